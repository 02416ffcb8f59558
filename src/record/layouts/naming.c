/* naming.c - everything that becomes part of a path is made here: escaping, components, the producer's counters. */
#include "record/layouts/naming.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Bytes at text to copy as they are, 0 when the first byte must be written %XX. */
static size_t plain_bytes(const char *text, size_t len)
{
    unsigned char c = (unsigned char)text[0];
    if (c < 0x20 || c == 0x7f || c == '/' || (c == '%' && len > 2 && is_hex(text[1]) && is_hex(text[2])))
        return 0;
    return tap__utf8_char(text, len);
}

static bool only_dots(const char *name, size_t len)
{
    return (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.');
}

/* Names below a recording's directory that are ours: readers pass them by. */
static bool is_ours(const char *name, size_t len)
{
    return (len == 10 && memcmp(name, ".tensortap", 10) == 0) || (len >= 5 && memcmp(name, ".tap-", 5) == 0);
}

/* Does what torchair puts behind a node's name begin here: ".INPUT" or ".OUTPUT", and then "." or the end? */
static bool reads_as_kind(const char *text, size_t len)
{
    size_t word = len >= 6 && memcmp(text, ".INPUT", 6) == 0 ? 6 : len >= 7 && memcmp(text, ".OUTPUT", 7) == 0 ? 7 : 0;
    return word && (len == word || text[word] == '.');
}

/* The same at place i of a name. */
static size_t plain_at(const char *name, size_t i, size_t len)
{
    if (name[i] == '.' && ((i == 0 && is_ours(name, len)) || reads_as_kind(name + i, len - i)))
        return 0;
    return plain_bytes(name + i, len - i);
}

static size_t escaped_size(const char *name, size_t len)
{
    size_t size = 0;
    if (only_dots(name, len))
        return 3 * len;
    for (size_t i = 0; i < len;) {
        size_t plain = plain_at(name, i, len);
        size += plain ? plain : 3;
        i += plain ? plain : 1;
    }
    return size;
}

void tap__name_escape(tap_strbuf *out, const char *name, size_t len, size_t max_bytes)
{
    if (only_dots(name, len)) {
        tap__strbuf_str(out, len == 1 ? "%2E" : "%2E%2E");
        return;
    }
    bool cut = escaped_size(name, len) > max_bytes;
    size_t room = !cut ? SIZE_MAX : max_bytes > 17 ? max_bytes - 17 : 0;
    for (size_t i = 0; i < len;) {
        size_t plain = plain_at(name, i, len);
        size_t need = plain ? plain : 3;
        if (need > room)
            break;
        room -= need;
        if (plain)
            tap__strbuf_add(out, name + i, plain);
        else
            tap__strbuf_printf(out, "%%%02X", (unsigned char)name[i]);
        i += plain ? plain : 1;
    }
    if (cut)
        tap__strbuf_printf(out, "~%016llx", (unsigned long long)tap_hash_bytes(name, len));
}

static int hex_value(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

void tap__name_unescape(tap_strbuf *out, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '%' && len - i > 2 && is_hex(name[i + 1]) && is_hex(name[i + 2]) &&
            memcmp(name + i, "%00", 3) != 0) {
            tap__strbuf_char(out, (char)(hex_value(name[i + 1]) * 16 + hex_value(name[i + 2])));
            i += 2;
        } else {
            tap__strbuf_char(out, name[i]);
        }
    }
}

/* The longest a path inside a value may get in a name before it is cut. */
#define PATH_PART_MAX 100u

void tap__component(tap_strbuf *out, const char *prefix, const char *name, size_t name_len, const char *middle,
                    const char *path, size_t path_len, const char *suffix)
{
    char small[256], *shown = small;
    size_t shown_len = tap__path_show(path, path_len, small, sizeof small);
    if (shown_len >= sizeof small && (shown = tap__alloc(shown_len + 1)))
        tap__path_show(path, path_len, shown, shown_len + 1);
    if (!shown) {
        out->failed = true;
        return;
    }
    size_t fixed = strlen(prefix) + strlen(middle) + strlen(suffix);
    if (path_len) {
        size_t path_size = escaped_size(shown, shown_len);
        fixed += 1 + (path_size < PATH_PART_MAX ? path_size : PATH_PART_MAX);
    }
    tap__strbuf_str(out, prefix);
    tap__name_escape(out, name, name_len, fixed < TAP_NAME_MAX ? TAP_NAME_MAX - fixed : 0);
    tap__strbuf_str(out, middle);
    if (path_len) {
        tap__strbuf_char(out, '.');
        tap__name_escape(out, shown, shown_len, PATH_PART_MAX);
    }
    tap__strbuf_str(out, suffix);
    if (shown != small)
        tap__free(shown);
}

/* --------------------------------------------------------------------------------------------------- users' paths */

/* Directories longer than this together become one component: the whole path must stay below PATH_MAX. */
#define DIRS_MAX 2000u

static tap_status leaves_dir(const char *path, const tap_layout_options *options, tap_error *err)
{
    return tap_fail(err, TAP_E_INVALID,
                    "%.200s would be written outside %s; give a path below it, or open the recorder with a directory "
                    "that holds both", path, options->dir->path);
}

/* The part of an absolute path behind dir, or NULL. */
static const char *below_dir(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    while (len && dir[len - 1] == '/')
        len--;
    if (dir[0] != '/' || strncmp(path, dir, len) != 0 || path[len] != '/')
        return NULL;
    return path + len + 1;
}

/* Takes the last component off out, but nothing before start. false: there is none. */
static bool drop_component(tap_strbuf *out, size_t start)
{
    if (out->len == start)
        return false;
    size_t at = out->len - 1;
    while (at > start && out->text[at - 1] != '/')
        at--;
    out->len = at;
    out->text[at] = 0;
    return true;
}

tap_status tap__user_path(const tap_layout_options *options, const char *path, tap_strbuf *out, const char **file,
                          size_t *file_len, tap_error *err)
{
    const char *whole = path;
    if (path[0] == '/' && !(path = below_dir(path, options->dir->path)))
        return leaves_dir(whole, options, err);
    size_t start = out->len;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        size_t len = (size_t)(slash - path);
        if (len == 0 || (len == 1 && path[0] == '.'))
            continue;
        if (only_dots(path, len)) {
            if (!drop_component(out, start))
                return leaves_dir(whole, options, err);
            continue;
        }
        tap__name_escape(out, path, len, TAP_NAME_MAX);
        tap__strbuf_char(out, '/');
    }
    *file = path;
    *file_len = strlen(path);
    if (only_dots(path, *file_len))
        return tap_fail(err, TAP_E_INVALID, "%.200s names a directory; add a file name", whole);
    if (out->len - start > DIRS_MAX) {
        tap_strbuf dirs = TAP_STRBUF_INIT;
        tap__name_escape(&dirs, out->text + start, out->len - start, TAP_NAME_MAX);
        out->len = start;
        tap__strbuf_add(out, dirs.text, dirs.len);
        tap__strbuf_char(out, '/');
        out->failed |= dirs.failed;
        tap__strbuf_free(&dirs);
    }
    return TAP_OK;
}

void tap__process_part(const tap_layout_options *options, bool ranks_share, char *text, size_t cap)
{
    text[0] = 0;
    int len = ranks_share ? snprintf(text, cap, "_rank%d", options->rank) : 0;
    if (options->child)
        snprintf(text + len, cap - (size_t)len, "_child%d", options->child);
}

/* --------------------------------------------------------------------------------------------------------- claims */

bool tap__claim(tap_claims *claims, const char *name, size_t len, char owner_kind, const char *owner, size_t owner_len,
                tap_strbuf *out, unsigned *number)
{
    uint64_t id = tap_hash_bytes(owner, owner_len) ^ (uint64_t)(unsigned char)owner_kind << 56;
    size_t start = out->len;
    for (*number = 0;; ++*number) {
        out->len = start;
        tap__strbuf_add(out, name, len);
        if (*number)
            tap__strbuf_printf(out, "~%u", *number);
        bool added = false;
        uint64_t *held = out->failed ? NULL : tap__strmap_add(&claims->owners, out->text + start, out->len - start,
                                                              &added);
        if (!held)
            return false;
        if (added)
            *held = id;
        if (*held == id)
            return true;
    }
}

void tap__claims_free(tap_claims *claims)
{
    tap__strmap_free(&claims->owners);
}

/* ---------------------------------------------------------------------------------------------------------- namer */

tap_dtype tap__npy_dtype(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (!info || info->numpy)
        return dtype;
    return info->kind == 'C' ? TAP_C64 : TAP_F32;
}

bool tap__leaf_has_file(const tap_namer *namer, const tap_leaf *leaf, bool numbers)
{
    if (!(namer->options.keep & TAP_KEEP_TENSOR) || (leaf->flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE)) ||
        !leaf->tensor)
        return false;
    if (leaf->value_type == TAP_VALUE_TENSOR)
        return true;
    return numbers && leaf->value_type >= TAP_VALUE_BOOL && leaf->value_type <= TAP_VALUE_COMPLEX;
}

tap_status tap__namer_count(tap_namer *namer, const char *key, size_t len, uint64_t *out, tap_error *err)
{
    bool added;
    uint64_t *next = tap__strmap_add(&namer->counts, key, len, &added);
    if (!next)
        return tap_fail_nomem(err);
    *out = (*next)++;
    return TAP_OK;
}

tap_status tap__namer_create(const tap_layout *layout, const tap_layout_options *options, tap_namer **out,
                             tap_error *err)
{
    tap_namer *namer = *out = tap__calloc(1, sizeof *namer);
    if (!namer)
        return tap_fail_nomem(err);
    namer->layout = layout;
    namer->options = *options;
    pthread_mutex_init(&namer->lock, NULL);
    return TAP_OK;
}

tap_status tap__namer_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    tap__strbuf_clear(out);
    if (!namer->layout->name_file)
        return TAP_OK;
    pthread_mutex_lock(&namer->lock);
    tap__strbuf_clear(&namer->scratch);
    tap__strbuf_clear(&namer->key);
    tap_status status = namer->layout->name_file(namer, leaf, out, err);
    bool failed = out->failed || namer->scratch.failed || namer->key.failed;
    pthread_mutex_unlock(&namer->lock);
    return status == TAP_OK && failed ? tap_fail_nomem(err) : status;
}

void tap__namer_free(tap_namer *namer)
{
    if (!namer)
        return;
    pthread_mutex_destroy(&namer->lock);
    tap__strmap_free(&namer->counts);
    tap__claims_free(&namer->claims);
    tap__free(namer->recent);
    tap__strbuf_free(&namer->scratch);
    tap__strbuf_free(&namer->key);
    tap__free(namer);
}
