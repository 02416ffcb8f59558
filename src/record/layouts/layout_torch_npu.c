/* layout_torch_npu.c - files as torch_npu.save_npugraph_tensor leaves them: x.pt becomes x_device_0.pt, the next save
 * of the same path x_device_0_1.pt. */
#include "record/layouts/naming.h"
#include "record/layouts/layout_files.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The suffix of a file name, or NULL: what os.path.splitext calls one. */
static const char *file_suffix(const char *file, size_t len)
{
    size_t start = 0;
    while (start < len && file[start] == '.')
        start++;
    for (size_t i = len; i > start; i--)
        if (file[i - 1] == '.')
            return file + i - 1;
    return NULL;
}

/* tensor_<YYYYmmddHHMMSS><mmm>, local time; a millisecond that was used already counts on. */
static void default_stem(tap_namer *namer, tap_strbuf *out)
{
    uint64_t ms = tap__wall_ns() / 1000000u;
    if (ms <= namer->last_stamp)
        ms = namer->last_stamp + 1;
    namer->last_stamp = ms;
    time_t seconds = (time_t)(ms / 1000);
    struct tm now;
    char text[32];
    localtime_r(&seconds, &now);
    strftime(text, sizeof text, "%Y%m%d%H%M%S", &now);
    tap__strbuf_printf(out, "tensor_%s%03u", text, (unsigned)(ms % 1000));
}

tap_status tap__torch_npu_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    if (!tap__leaf_has_file(namer, leaf, false))
        return TAP_OK;
    char process[48], middle[96];
    tap__process_part(&namer->options, namer->options.several_nodes, process, sizeof process);
    snprintf(middle, sizeof middle, "_device_%d%s", namer->options.device_index, process);
    if (!leaf->name[0]) {
        default_stem(namer, &namer->scratch);
        tap__component(out, "", namer->scratch.text, namer->scratch.len, middle, NULL, 0, ".pt");
        return TAP_OK;
    }
    const char *file;
    size_t len;
    TAP_TRY(tap__user_path(&namer->options, leaf->name, out, &file, &len, err));
    if (!len)
        return tap_fail(err, TAP_E_INVALID, "%.200s names a directory; add a file name", leaf->name);
    const char *suffix = file_suffix(file, len);
    size_t stem = suffix ? (size_t)(suffix - file) : len;
    if (suffix && strcmp(suffix, ".pt") != 0 && strcmp(suffix, ".bin") != 0)
        return tap_fail(err, TAP_E_INVALID, "%.200s: the suffix must be .pt or .bin (both are torch archives); without "
                        "one it is .pt", leaf->name);
    if (!suffix)
        suffix = ".pt";
    /* counted by the normalised path, so that ./x.pt, x.pt and x are one */
    tap__strbuf_add(&namer->key, out->text, out->len);
    tap__strbuf_add(&namer->key, file, stem);
    tap__strbuf_str(&namer->key, suffix);
    if (namer->key.failed)
        return TAP_OK;
    uint64_t count;
    TAP_TRY(tap__namer_count(namer, namer->key.text, namer->key.len, &count, err));
    if (leaf->flags & TAP_SAVE_OVERWRITE)
        count = 0;
    size_t used = strlen(middle);
    if (count)
        snprintf(middle + used, sizeof middle - used, "_%llu", (unsigned long long)count);
    tap__component(out, "", file, stem, middle, NULL, 0, suffix);
    return TAP_OK;
}

/* <stem>_device_<d>[_rank<R>][_child<pid>][_<n>].pt or .bin; n is absent (here) or 0 (torch_npu's own) for the first. */
static bool parse(const char *whole, const char *relative, tap_found *found)
{
    (void)whole;
    const char *end = relative + strlen(relative);
    if (!tap__strip(relative, &end, ".pt") && !tap__strip(relative, &end, ".bin"))
        return false;
    const char *suffix = end;
    const char *file = strrchr(relative, '/');
    file = file ? file + 1 : relative;
    for (const char *at = end; at > file; at--) {
        uint64_t device, call;
        if (at[-1] != '_' || strncmp(at - 1, "_device_", 8) != 0)
            continue;
        const char *digits_end = at + 7 + strspn(at + 7, "0123456789"), *rest = end, *number = rest;
        while (number > digits_end && number[-1] >= '0' && number[-1] <= '9')
            number--;
        if (number > digits_end && number[-1] == '_' && tap__parse_number(number - 1, rest, "_", &call)) {
            found->call = (uint32_t)call;
            rest = number - 1;
        }
        found->rank = -1;
        tap__strip_process(digits_end, &rest, found);
        if (rest != digits_end || !tap__parse_number(at - 1, digits_end, "_device_", &device))
            return false;
        if (found->rank < 0)
            found->rank = (int32_t)(device & INT32_MAX);
        tap__name_unescape(&found->name, relative, (size_t)(at - 1 - relative));
        tap__strbuf_str(&found->name, suffix);
        return true;
    }
    return false;
}

bool tap__torch_npu_detect(tap_dir *dir, const char *only)
{
    return tap__tree_detect(dir, only, 3, parse);
}

tap_status tap__torch_npu_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return tap__tree_read(dir, only, 16, parse, add, user, err);
}
