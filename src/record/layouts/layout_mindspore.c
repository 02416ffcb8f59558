/* layout_mindspore.c - files as msprobe.mindspore's save and save_grad leave them:
 * step<N>/rank<R>/<name>[.<path>][_grad]_<dtype>_<id>.npy, id counting from 0 for each name. */
#include "record/layouts/naming.h"
#include "record/layouts/layout_files.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

tap_status tap__mindspore_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    if (!tap__leaf_has_file(namer, leaf, true))
        return TAP_OK;
    char process[48], suffix[80];
    tap__process_part(&namer->options, false, process, sizeof process);
    const char *grad = leaf->kind == TAP_KIND_GRAD ? "_grad" : "";
    /* one count for one stem, so that the variable x_grad and the gradient of x never meet */
    tap_strbuf *key = &namer->key;
    tap__strbuf_str(key, leaf->name);
    if (leaf->path_len) {
        size_t len = tap__path_show(leaf->path, leaf->path_len, NULL, 0);
        tap__strbuf_char(key, '.');
        char *text = tap__strbuf_reserve(key, len);
        if (!text)
            return TAP_OK;
        key->len += tap__path_show(leaf->path, leaf->path_len, text, len + 1);
    }
    tap__strbuf_str(key, grad);
    if (key->failed)
        return TAP_OK;
    uint64_t id;
    TAP_TRY(tap__namer_count(namer, key->text, key->len, &id, err));
    const tap_dtype_info *dtype = tap_dtype_describe(tap__npy_dtype(leaf->tensor->dtype));
    tap__strbuf_printf(out, "step%lld/rank%d%s/", (long long)leaf->step, namer->options.rank, process);
    snprintf(suffix, sizeof suffix, "%s_%s_%llu.npy", grad, dtype ? dtype->name : "unknown", (unsigned long long)id);
    tap__component(out, "", leaf->name, strlen(leaf->name), "", leaf->path, leaf->path_len, suffix);
    return TAP_OK;
}

static bool parse(const char *whole, const char *relative, tap_found *found)
{
    (void)relative;
    const char *end = whole + strlen(whole), *up = end;
    const char *file = tap__last_component(whole, &up);
    const char *rank_end = up, *rank = tap__last_component(whole, &up);
    const char *step_end = up, *step = tap__last_component(whole, &up);
    uint64_t rank_number, step_number, id;
    if (!step || !tap__strip(file, &end, ".npy"))
        return false;
    tap__strip_process(rank, &rank_end, found);
    if (!tap__parse_number(rank, rank_end, "rank", &rank_number) ||
        !tap__parse_number(step, step_end, "step", &step_number) || !tap__parse_typed(file, end, &end, &id))
        return false;
    if (tap__strip(file, &end, "_grad"))
        found->kind = TAP_KIND_GRAD;
    found->rank = (int32_t)(rank_number & INT32_MAX);
    found->step = (int64_t)step_number;
    found->call = (uint32_t)id;
    found->order[0] = step_number;
    found->order[1] = id;
    tap__name_unescape(&found->name, file, (size_t)(end - file));
    return true;
}

bool tap__mindspore_detect(tap_dir *dir, const char *only)
{
    return tap__tree_detect(dir, only, 4, parse);
}

tap_status tap__mindspore_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return tap__tree_read(dir, only, 4, parse, add, user, err);
}
