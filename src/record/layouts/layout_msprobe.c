/* layout_msprobe.c - where msprobe puts things, below step<N>/rank<R>|proc<pid>/dump_tensor_data/: a single-point save
 * <name>[_grad].<call>.debug[.<path>].pt, beside debug.json; a module's values <name>.forward.<call>.input.<path>.pt
 * and the like, beside dump.json. */
#include "record/layouts/msprobe.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

bool tap__msprobe_is_mindspore(const tap_layout_options *options)
{
    return options->framework && strcmp(options->framework, "mindspore") == 0;
}

void tap__msprobe_dir(const tap_layout_options *options, int64_t step, tap_strbuf *out)
{
    tap__strbuf_printf(out, "step%lld/", (long long)step);
    if (!options->distributed)
        tap__strbuf_printf(out, "proc%d/", options->pid);
    else if (options->child)
        tap__strbuf_printf(out, "rank%d_child%d/", options->rank, options->child);
    else
        tap__strbuf_printf(out, "rank%d/", options->rank);
}

/* The length of a name without a number that tap__claim may have added to it. */
static size_t without_claim(const char *name, size_t len)
{
    size_t end = len;
    while (end && name[end - 1] >= '0' && name[end - 1] <= '9')
        end--;
    return end < len && end && name[end - 1] == '~' ? end - 1 : len;
}

/* The length of "..._grad" when name is that, and numbers behind it; 0: it is not. */
static size_t gradient_stem(const char *name, size_t len)
{
    for (size_t shorter; (shorter = without_claim(name, len)) < len; len = shorter)
        ;
    return len >= 5 && memcmp(name + len - 5, "_grad", 5) == 0 ? len : 0;
}

size_t tap__msprobe_unclaim(const char *name, size_t len)
{
    return gradient_stem(name, len) ? without_claim(name, len) : len;
}

bool tap__msprobe_claim(tap_claims *claims, const char *name, size_t len, tap_kind kind, tap_strbuf *out,
                        unsigned *number)
{
    *number = 0;
    size_t stem = gradient_stem(name, len);
    if (kind != TAP_KIND_GRAD && !stem) {
        tap__strbuf_add(out, name, len);
        return !out->failed;
    }
    tap_strbuf wanted = TAP_STRBUF_INIT;
    tap__strbuf_add(&wanted, name, len);
    if (kind != TAP_KIND_GRAD && stem < len) /* it has a number of its own: readers take off one */
        tap__strbuf_str(&wanted, "~0");
    if (kind == TAP_KIND_GRAD)
        tap__strbuf_str(&wanted, "_grad");
    bool ok = !wanted.failed && tap__claim(claims, wanted.text, wanted.len, kind == TAP_KIND_GRAD ? 'G' : 'F', name,
                                           len, out, number);
    tap__strbuf_free(&wanted);
    return ok;
}

void tap__msprobe_file(const tap_layout_options *options, const char *claimed, size_t len, uint32_t call,
                       const char *path, size_t path_len, tap_strbuf *out)
{
    char middle[32];
    snprintf(middle, sizeof middle, ".%u.debug", call);
    tap__strbuf_str(out, "dump_tensor_data/");
    tap__component(out, "", claimed, len, middle, path, path_len,
                   tap__msprobe_is_mindspore(options) ? ".npy" : ".pt");
}

/* What the file is for: saving the same thing again goes to the same file. */
static uint64_t owner_hash(const tap_leaf *leaf)
{
    struct {
        uint64_t name, path;
        int64_t step;
        uint32_t call, kind;
    } owner = {tap_hash_bytes(leaf->name, strlen(leaf->name)), tap_hash_bytes(leaf->path, leaf->path_len), leaf->step,
               leaf->call, leaf->kind};
    return tap_hash_bytes(&owner, sizeof owner);
}

/* Adds "~1" before the suffix when the name was just given to something else: {"a.b": x} and {"a": {"b": y}}. */
static bool tell_apart(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out)
{
    if (!namer->recent && !(namer->recent = tap__calloc(TAP_RECENT_COUNT, sizeof *namer->recent)))
        return false;
    uint64_t owner = owner_hash(leaf);
    size_t suffix_len = tap__msprobe_is_mindspore(&namer->options) ? 4 : 3, stem = out->len - suffix_len;
    char suffix[8];
    memcpy(suffix, out->text + stem, suffix_len + 1);
    for (unsigned number = 1;; number++) {
        uint64_t file = tap_hash_bytes(out->text, out->len);
        tap_recent *recent = &namer->recent[file % TAP_RECENT_COUNT];
        if (recent->file != file || recent->owner == owner) {
            *recent = (tap_recent){file, owner};
            return true;
        }
        out->len = stem;
        tap__strbuf_printf(out, "~%u%s", number, suffix);
        if (out->failed)
            return false;
    }
}

tap_status tap__msprobe_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    unsigned number;
    size_t len = strlen(leaf->name);
    if (!tap__msprobe_claim(&namer->claims, leaf->name, len, leaf->kind, &namer->scratch, &number))
        return tap_fail_nomem(err);
    if (number && !namer->said) {
        namer->said = true;
        tap__log(TAP_LOG_WARNING, "%.200s%s is recorded as %.200s: another save has that name already", leaf->name,
                 leaf->kind == TAP_KIND_GRAD ? " (its gradient)" : "", namer->scratch.text);
    }
    /* msprobe writes no file for an empty tensor */
    if (!tap__leaf_has_file(namer, leaf, false) || tap_tensor_count(leaf->tensor) <= 0)
        return TAP_OK;
    tap__msprobe_dir(&namer->options, leaf->step, out);
    tap__msprobe_file(&namer->options, namer->scratch.text, namer->scratch.len, leaf->call, leaf->path, leaf->path_len,
                      out);
    return out->failed || tell_apart(namer, leaf, out) ? TAP_OK : tap_fail_nomem(err);
}

/* -------------------------------------------------------------------------------------------------------- modules */

static const char *direction_of(tap_kind kind)
{
    return kind == TAP_KIND_GRAD ? "backward" : kind == TAP_KIND_PARAM ? "parameters_grad" : "forward";
}

void tap__msprobe_module_key(const char *name, size_t len, tap_kind kind, uint32_t call, tap_strbuf *out)
{
    tap__strbuf_add(out, name, len);
    tap__strbuf_printf(out, ".%s.%u", direction_of(kind), call);
}

/* What a member of a module's item is called in file names, NULL: it is no such member. */
static const char *member_in_file(const char *key, size_t len)
{
    static const struct {
        const char *member, *file;
    } MEMBERS[] = {{"input_args", "input"}, {"input_kwargs", "kwargs"}, {"input", "input"}, {"output", "output"},
                   {"parameters", "parameters"}};
    for (size_t i = 0; i < sizeof MEMBERS / sizeof MEMBERS[0]; i++)
        if (strlen(MEMBERS[i].member) == len && memcmp(MEMBERS[i].member, key, len) == 0)
            return MEMBERS[i].file;
    return NULL;
}

/* Appends "dump_tensor_data/<name>.forward.<call>.input.0.pt". A parameter's gradient is the one element of a list,
 * which its name does not show. */
static void module_file(const tap_leaf *leaf, tap_strbuf *out)
{
    const char *path = leaf->path;
    size_t len = leaf->path_len;
    const char *stop = len ? memchr(path, 0x1F, len) : NULL;
    size_t first = stop ? (size_t)(stop - path) : len;
    const char *member = leaf->kind != TAP_KIND_PARAM && len && path[0] == 'k' ? member_in_file(path + 1, first - 1)
                                                                              : NULL;
    char middle[64];
    snprintf(middle, sizeof middle, ".%s.%u%s%s", direction_of(leaf->kind), leaf->call, member ? "." : "",
             member ? member : "");
    if (leaf->kind == TAP_KIND_PARAM) {
        len = first;
    } else if (member) {
        len -= stop ? first + 1 : first;
        path = stop ? stop + 1 : path;
    }
    tap__strbuf_str(out, "dump_tensor_data/");
    tap__component(out, "", leaf->name, strlen(leaf->name), middle, path, len, ".pt");
}

tap_status tap__msprobe_modules_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    if (!tap__leaf_has_file(namer, leaf, false) || tap_tensor_count(leaf->tensor) <= 0 || leaf->info->suffix)
        return TAP_OK;
    tap__msprobe_dir(&namer->options, leaf->step, out);
    module_file(leaf, out);
    return out->failed || tell_apart(namer, leaf, out) ? TAP_OK : tap_fail_nomem(err);
}
