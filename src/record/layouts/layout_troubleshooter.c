/* layout_troubleshooter.c - files as troubleshooter.save and save_grad leave them: <id>_<name>[.<path>]_<suffix>.npy in
 * the directory the name has, id counting all of a process's files from 0. */
#include "record/layouts/naming.h"
#include "record/layouts/layout_files.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* A name (from start to stem) that ends as the part of a process does, "x_rank3", is not to be taken for one: its "_" is written %5F. Not so
 * "_rank0", which no process adds, and which scripts put into names. */
static void tell_from_process(tap_strbuf *out, size_t start, size_t stem)
{
    size_t digits = stem;
    while (digits > start && out->text[digits - 1] >= '0' && out->text[digits - 1] <= '9')
        digits--;
    bool zero = strspn(out->text + digits, "0") >= stem - digits;
    const char *end = out->text + digits;
    bool rank = tap__strip(out->text + start, &end, "_rank");
    if (digits == stem || (!rank && !tap__strip(out->text + start, &end, "_child")) || (rank && zero))
        return;
    size_t at = (size_t)(end - out->text), rest = out->len - at - 1;
    const char *slash = strrchr(out->text, '/');
    size_t component = slash ? (size_t)(slash + 1 - out->text) : 0;
    if (out->len + 2 - component > TAP_NAME_MAX || !tap__strbuf_reserve(out, 2))
        return;
    memmove(out->text + at + 3, out->text + at + 1, rest + 1);
    memcpy(out->text + at, "%5F", 3);
    out->len += 2;
}

tap_status tap__troubleshooter_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    if (!tap__leaf_has_file(namer, leaf, true))
        return TAP_OK;
    const char *file;
    size_t len;
    TAP_TRY(tap__user_path(&namer->options, leaf->name, out, &file, &len, err));
    if (len >= 4 && memcmp(file + len - 4, ".npy", 4) == 0)
        len -= 4;
    char prefix[32], process[48];
    /* rank 0 keeps the names scripts look for */
    tap__process_part(&namer->options, namer->options.rank > 0, process, sizeof process);
    /* a caller that writes to several directories, each with its own recorder, counts itself; a gradient comes with the
     * call it belongs to, whose file has that number perhaps */
    bool grad = leaf->kind == TAP_KIND_GRAD;
    uint64_t id = leaf->info->has_call && !grad ? leaf->call : namer->next_id++;
    snprintf(prefix, sizeof prefix, "%llu_", (unsigned long long)id);
    tap_strbuf *suffix = &namer->scratch;
    const char *end = leaf->info->suffix ? leaf->info->suffix : grad ? "backward" : "";
    if (end[0]) {
        tap__strbuf_char(suffix, '_');
        tap__name_escape(suffix, end, strlen(end), 64);
    }
    tap__strbuf_str(suffix, process);
    tap__strbuf_str(suffix, ".npy");
    size_t start = out->len + strlen(prefix);
    if (!suffix->failed)
        tap__component(out, prefix, file, len, "", leaf->path, leaf->path_len, suffix->text);
    if (!out->failed)
        tell_from_process(out, start, out->len - strlen(process) - strlen(".npy"));
    return TAP_OK;
}

/* "_rank0" is a name's own. */
static void strip_process(const char *name, const char **end, tap_found *found)
{
    tap__strip_process(name, end, found);
    if (found->rank == 0 && strncmp(*end, "_rank", 5) == 0)
        *end += 5 + strspn(*end + 5, "0");
}

/* <id>_<name>[_backward].npy, as its documents say, or <name>[_backward]_<dtype>_<id>.npy, as version 1.0.19 has it. */
static bool parse(const char *whole, const char *relative, tap_found *found)
{
    (void)whole;
    const char *end = relative + strlen(relative);
    const char *slash = strrchr(relative, '/'), *file = slash ? slash + 1 : relative;
    if (!tap__strip(file, &end, ".npy"))
        return false;
    const char *name = file + strspn(file, "0123456789");
    uint64_t id;
    if (name > file && *name == '_' && tap__parse_number(file, name, "", &id)) {
        name++;
        strip_process(name, &end, found);
    } else {
        name = file;
        if (!tap__parse_typed(file, end, &end, &id))
            return false;
    }
    if (tap__strip(name, &end, "_backward"))
        found->kind = TAP_KIND_GRAD;
    found->order[0] = id;
    found->number_calls = true;
    tap__name_unescape(&found->name, relative, (size_t)(file - relative));
    tap__name_unescape(&found->name, name, (size_t)(end - name));
    return true;
}

bool tap__troubleshooter_detect(tap_dir *dir, const char *only)
{
    return tap__tree_detect(dir, only, 2, parse);
}

tap_status tap__troubleshooter_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return tap__tree_read(dir, only, 16, parse, add, user, err);
}
