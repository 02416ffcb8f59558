/* attempt.c - the directory of a native recording: taking, describing and listing attempts. What is inside segments and
 * index is not known here. */
#include "record/native/attempt.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define JSON_MAX (64u << 10)
enum { SOON_TRIES = 250, SOON_US = 20000 };
#define JUST_TAKEN_NS 30000000000u /* how long an attempt may be without a lock before its writer counts as dead */

/* ---------------------------------------------------------------------------------------------------------- names */

tap_attempt_files tap__attempt_files(tap_dir *root, int32_t rank, int32_t attempt, int32_t child)
{
    tap_attempt_files files = {.root = root, .rank = rank, .attempt = attempt, .child = child};
    int len = snprintf(files.dir, sizeof files.dir, "rank%d", rank);
    if (child)
        snprintf(files.dir + len, sizeof files.dir - (size_t)len, "/child%d", child);
    return files;
}

const char *tap__attempt_name(const tap_attempt_files *files, const char *suffix, char *name)
{
    snprintf(name, TAP_ATTEMPT_NAME, "%s/attempt%d%s", files->dir, files->attempt, suffix);
    return name;
}

const char *tap__segment_name(const tap_attempt_files *files, uint32_t segment, char *name)
{
    char suffix[32];
    snprintf(suffix, sizeof suffix, "-%06u.tap", segment);
    return tap__attempt_name(files, suffix, name);
}

bool tap__name_number(const char *name, const char *prefix, int32_t *number, const char **rest)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0 || name[len] < '0' || name[len] > '9')
        return false;
    if (name[len] == '0' && name[len + 1] >= '0' && name[len + 1] <= '9') /* we write no leading zeros */
        return false;
    char *end;
    errno = 0;
    long value = strtol(name + len, &end, 10);
    if (errno || value > INT32_MAX)
        return false;
    *number = (int32_t)value;
    *rest = end;
    return true;
}

/* The segment number of "-000003.tap"; false for anything else. */
static bool segment_number(const char *rest, uint32_t *number)
{
    if (rest[0] != '-' || strspn(rest + 1, "0123456789") < 6)
        return false;
    char *end;
    errno = 0;
    unsigned long value = strtoul(rest + 1, &end, 10);
    *number = (uint32_t)value;
    return errno == 0 && value < UINT32_MAX && strcmp(end, ".tap") == 0;
}

/* ----------------------------------------------------------------------------------------------------------- JSON */

typedef struct field {
    const char *key;
    size_t offset;
    char type; /* 'i' int32, 'u' uint32, 'n' uint64, 'b' bool, 's' text of `size` bytes */
    size_t size;
} field;

#define FIELD(name, type) {#name, offsetof(tap_attempt_info, name), type, sizeof(((tap_attempt_info *)0)->name)}
static const field FIELDS[] = {
    FIELD(pid, 'i'), FIELD(world_size, 'i'), FIELD(host, 's'), FIELD(job, 's'), FIELD(ranks, 's'),
    FIELD(started_ns, 'n'),
    FIELD(ended_ns, 'n'), FIELD(ended, 's'), FIELD(entries, 'n'), FIELD(records, 'n'), FIELD(bytes, 'n'),
    FIELD(filtered, 'n'), FIELD(stats_only, 'n'), FIELD(dropped, 'n'), FIELD(torn, 'n'), FIELD(not_named, 'n'),
    FIELD(unknown, 'b'), FIELD(tally, 's'),
    FIELD(first_segment, 'u'), FIELD(segments, 'u'), FIELD(indexed, 'b'),
};
#undef FIELD
enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

static void field_write(tap_json *json, const field *f, const void *at)
{
    tap__json_key(json, f->key);
    switch (f->type) {
    case 'i': tap__json_int(json, *(const int32_t *)at); break;
    case 'u': tap__json_uint(json, *(const uint32_t *)at); break;
    case 'n': tap__json_uint(json, *(const uint64_t *)at); break;
    case 'b': tap__json_bool(json, *(const bool *)at); break;
    default: tap__json_str(json, at); break;
    }
}

static bool field_read(struct json_object *value, const field *f, void *at)
{
    if (f->type == 's') {
        if (!json_object_is_type(value, json_type_string))
            return false;
        snprintf(at, f->size, "%s", json_object_get_string(value));
        return true;
    }
    if (f->type == 'b') {
        *(bool *)at = json_object_get_boolean(value);
        return json_object_is_type(value, json_type_boolean);
    }
    if (!json_object_is_type(value, json_type_int))
        return false;
    int64_t number = json_object_get_int64(value);
    if (f->type == 'i') {
        *(int32_t *)at = (int32_t)number;
        return number >= INT32_MIN && number <= INT32_MAX;
    }
    if (number < 0)
        return false;
    if (f->type == 'u') {
        *(uint32_t *)at = (uint32_t)number;
        return number <= UINT32_MAX;
    }
    *(uint64_t *)at = json_object_get_uint64(value);
    return true;
}

static void info_text(const tap_attempt_files *files, const tap_attempt_info *info, tap_strbuf *out)
{
    tap_json json;
    tap__json_begin(&json, out, 1);
    tap__json_open(&json, '{');
    tap__json_key(&json, "tensortap");
    tap__json_int(&json, 1);
    tap__json_key(&json, "rank");
    tap__json_int(&json, files->rank);
    tap__json_key(&json, "attempt");
    tap__json_int(&json, files->attempt);
    tap__json_key(&json, "child");
    tap__json_int(&json, files->child);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        field_write(&json, &FIELDS[i], (const char *)info + FIELDS[i].offset);
    tap__json_close(&json, '}');
    tap__strbuf_char(out, '\n');
}

/* An object whose "tensortap" is 1, or NULL. */
static struct json_object *object_parse(const char *text, size_t len)
{
    struct json_tokener *tokener = json_tokener_new_ex(8);
    if (!tokener)
        return NULL;
    struct json_object *root = len <= JSON_MAX ? json_tokener_parse_ex(tokener, text, (int)len) : NULL;
    struct json_object *version;
    if (root && (json_tokener_get_error(tokener) != json_tokener_success ||
                 !json_object_is_type(root, json_type_object) ||
                 !json_object_object_get_ex(root, "tensortap", &version) ||
                 !json_object_is_type(version, json_type_int) || json_object_get_int64(version) != 1)) {
        json_object_put(root);
        root = NULL;
    }
    json_tokener_free(tokener);
    return root;
}

tap_status tap__attempt_parse(const char *text, size_t len, tap_attempt_info *info, tap_error *err)
{
    memset(info, 0, sizeof *info);
    struct json_object *root = object_parse(text, len);
    if (!root)
        return tap_fail(err, TAP_E_FORMAT, "not the description of an attempt, or of a later version of tensortap");
    const char *bad = NULL;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        struct json_object *value;
        if (json_object_object_get_ex(root, FIELDS[i].key, &value) &&
            !field_read(value, &FIELDS[i], (char *)info + FIELDS[i].offset))
            bad = FIELDS[i].key;
    }
    json_object_put(root);
    return bad ? tap_fail(err, TAP_E_CORRUPT, "\"%s\" does not hold what it should", bad) : TAP_OK;
}

tap_status tap__attempt_read(const tap_attempt_files *files, tap_attempt_info *info, tap_error *err)
{
    memset(info, 0, sizeof *info);
    char name[TAP_ATTEMPT_NAME], *text = NULL;
    size_t len;
    TAP_TRY(tap__dir_get(files->root, tap__attempt_name(files, ".json", name), JSON_MAX, &text, &len, err));
    tap_error why;
    tap_status status = tap__attempt_parse(text, len, info, &why);
    if (status != TAP_OK)
        tap_fail(err, status, "%s/%s: %s; its segments can still be read", files->root->path, name, why.message);
    tap__free(text);
    return status;
}

/* A full disk has no room for a new file, but the old one's block can be written again. */
static tap_status overwrite(const tap_attempt_files *files, const char *name, const tap_strbuf *text, tap_error *err)
{
    int fd = tap__dir_file(files->root, name, O_WRONLY);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s/%s", files->root->path, name);
    tap_status status = TAP_OK;
    if (tap__pwrite_all(fd, text->text, text->len, 0) || ftruncate(fd, (off_t)text->len))
        status = tap_fail_errno(err, TAP_E_IO, "cannot write %s/%s", files->root->path, name);
    close(fd);
    return status;
}

tap_status tap__attempt_write(const tap_attempt_files *files, const tap_attempt_info *info, tap_error *err)
{
    char name[TAP_ATTEMPT_NAME];
    tap_strbuf text = TAP_STRBUF_INIT;
    info_text(files, info, &text);
    tap_status status = text.failed ? tap_fail_nomem(err)
                                    : tap__file_put(files->root, tap__attempt_name(files, ".json", name), text.text,
                                                    text.len, err);
    if (status == TAP_E_NOSPACE)
        status = overwrite(files, name, &text, err);
    tap__strbuf_free(&text);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- the run */

static const char RUN[] = "run.json";

tap_status tap__run_check(tap_dir *dir, tap_error *err)
{
    char *text = NULL;
    size_t len = 0;
    TAP_TRY(tap__dir_get(dir, RUN, JSON_MAX, &text, &len, err));
    tap_status status = TAP_OK;
    struct json_object *layout, *root = object_parse(text, len);
    tap_json_reader reader;
    const char *whole;
    size_t whole_len;
    tap__json_read_begin(&reader, text, len, 8);
    if (!root && !(tap__json_skip(&reader, &whole, &whole_len) && tap__json_end(&reader)))
        status = tap_fail(err, TAP_E_CORRUPT, "%s/%s is damaged; what was recorded can still be read, a new recording "
                          "needs another directory", dir->path, RUN);
    else if (!root || !json_object_object_get_ex(root, "layout", &layout) ||
             !json_object_is_type(layout, json_type_string) ||
             strcmp(json_object_get_string(layout), "native") != 0)
        status = tap_fail(err, TAP_E_FORMAT,
                          "%s/%s is not one of ours, or of a later version of tensortap; choose another directory",
                          dir->path, RUN);
    json_object_put(root);
    tap__free(text);
    return status;
}

/* Makes run.json when there is none; of many processes that try, one does. */
static tap_status run_ensure(tap_dir *dir, tap_error *err)
{
    tap_status status = tap__run_check(dir, err);
    if (status != TAP_E_NOTFOUND)
        return status;
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &text, 1);
    tap__json_open(&json, '{');
    tap__json_key(&json, "tensortap");
    tap__json_int(&json, 1);
    tap__json_key(&json, "layout");
    tap__json_str(&json, "native");
    tap__json_key(&json, "version");
    tap__json_str(&json, tap_version());
    tap__json_key(&json, "created_ns");
    tap__json_uint(&json, tap__wall_ns());
    tap__json_close(&json, '}');
    tap__strbuf_char(&text, '\n');
    status = text.failed ? tap_fail_nomem(err) : tap__file_put_new(dir, RUN, text.text, text.len, err);
    tap__strbuf_free(&text);
    return status == TAP_E_EXISTS ? tap__run_check(dir, err) : status;
}

/* -------------------------------------------------------------------------------------------------------- listing */

static tap_status list_add(tap_attempt_list *list, const tap_attempt_files *files, tap_error *err)
{
    for (size_t i = list->count; i-- > 0;)
        if (list->items[i].rank == files->rank && list->items[i].attempt == files->attempt &&
            list->items[i].child == files->child)
            return TAP_OK;
    if ((list->count & (list->count - 1)) == 0) { /* full at every power of two */
        tap_attempt_files *grown = tap__resize(list->items, list->count ? 2 * list->count : 1, sizeof *grown);
        if (!grown)
            return tap_fail_nomem(err);
        list->items = grown;
    }
    list->items[list->count++] = *files;
    return TAP_OK;
}

/* Lists a directory of attempts; *stream is NULL where there is none. */
static tap_status list_open(tap_dir *root, const char *dir, DIR **stream, tap_error *err)
{
    *stream = tap__dir_list(root, dir);
    if (*stream || errno == ENOENT || errno == ENOTDIR)
        return TAP_OK;
    return tap_fail_errno(err, TAP_E_IO, "cannot list %s/%s", root->path, dir);
}

/* Attempts of a rank, those of its children too when child is 0. */
static tap_status list_dir(tap_attempt_list *list, tap_dir *root, int32_t rank, int32_t child, tap_error *err)
{
    tap_attempt_files files = tap__attempt_files(root, rank, 0, child);
    DIR *stream;
    TAP_TRY(list_open(root, files.dir, &stream, err));
    tap_status status = TAP_OK;
    for (struct dirent *item; stream && status == TAP_OK && (item = readdir(stream));) {
        int32_t number;
        const char *rest;
        uint32_t segment;
        if (tap__name_number(item->d_name, "attempt", &files.attempt, &rest)) {
            if (strcmp(rest, ".json") == 0 || segment_number(rest, &segment))
                status = list_add(list, &files, err);
        } else if (!child && tap__name_number(item->d_name, "child", &number, &rest) && !*rest && number) {
            status = list_dir(list, root, rank, number, err);
        }
    }
    if (stream)
        closedir(stream);
    return status;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_files(const void *a, const void *b)
{
    const tap_attempt_files *x = a, *y = b;
    int order = compare_numbers(x->rank, y->rank);
    if (!order)
        order = compare_numbers(x->attempt, y->attempt);
    return order ? order : compare_numbers(x->child, y->child);
}

static void list_sort(tap_attempt_list *list)
{
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, compare_files);
}

tap_status tap__attempt_list(tap_dir *dir, tap_attempt_list *out, tap_error *err)
{
    *out = (tap_attempt_list){0, NULL};
    DIR *stream = tap__dir_list(dir, "");
    if (!stream)
        return tap_fail_errno(err, TAP_E_IO, "cannot list %s", dir->path);
    tap_status status = TAP_OK;
    for (struct dirent *item; status == TAP_OK && (item = readdir(stream));) {
        int32_t rank;
        const char *rest;
        if (tap__name_number(item->d_name, "rank", &rank, &rest) && !*rest)
            status = list_dir(out, dir, rank, 0, err);
    }
    closedir(stream);
    if (status != TAP_OK)
        tap__attempt_list_free(out);
    list_sort(out);
    return status;
}

void tap__attempt_list_free(tap_attempt_list *list)
{
    tap__free(list->items);
    *list = (tap_attempt_list){0, NULL};
}

static int compare_segments(const void *a, const void *b)
{
    return compare_numbers(*(const uint32_t *)a, *(const uint32_t *)b);
}

tap_status tap__segment_list(const tap_attempt_files *files, uint32_t **out, size_t *count, tap_error *err)
{
    *out = NULL;
    *count = 0;
    DIR *stream = tap__dir_list(files->root, files->dir);
    if (!stream)
        return tap_fail_errno(err, TAP_E_IO, "cannot list %s/%s", files->root->path, files->dir);
    tap_status status = TAP_OK;
    size_t used = 0;
    for (struct dirent *item; status == TAP_OK && (item = readdir(stream));) {
        int32_t number;
        const char *rest;
        uint32_t segment;
        if (!tap__name_number(item->d_name, "attempt", &number, &rest) || number != files->attempt ||
            !segment_number(rest, &segment))
            continue;
        if ((used & (used - 1)) == 0) {
            uint32_t *grown = tap__resize(*out, used ? 2 * used : 1, sizeof *grown);
            if (!grown) {
                status = tap_fail_nomem(err);
                break;
            }
            *out = grown;
        }
        (*out)[used++] = segment;
    }
    closedir(stream);
    if (status != TAP_OK) {
        tap__free(*out);
        *out = NULL;
        return status;
    }
    *count = used;
    if (used)
        qsort(*out, used, sizeof **out, compare_segments);
    return TAP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- live */

static bool is_locked(const tap_attempt_files *files, const char *name)
{
    int fd = tap__dir_file(files->root, name, O_RDONLY);
    if (fd < 0)
        return false;
    bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

static void this_host(char *host, size_t size)
{
    if (gethostname(host, size) != 0)
        host[0] = 0;
    host[size - 1] = 0;
}

/* Between taking an attempt and the writer's first lock there is nothing to ask but the clock and the process. */
static bool just_taken(const tap_attempt_info *info)
{
    uint64_t now = tap__wall_ns();
    if (now < info->started_ns || now - info->started_ns > JUST_TAKEN_NS)
        return false;
    char host[sizeof info->host];
    this_host(host, sizeof host);
    return strcmp(host, info->host) != 0 || info->pid <= 0 || kill(info->pid, 0) == 0 || errno != ESRCH;
}

/* *count: segments there are; *newest: the last of them. */
static bool segment_is_locked(const tap_attempt_files *files, size_t *count, uint32_t *newest)
{
    uint32_t *segments;
    bool locked = false;
    *newest = 0;
    if (tap__segment_list(files, &segments, count, NULL) != TAP_OK)
        return false;
    /* the newest may have been made a moment ago and not locked yet: the one before it is then still locked */
    char name[TAP_ATTEMPT_NAME];
    for (size_t i = *count; i-- > 0 && i + 2 >= *count && !locked;)
        locked = is_locked(files, tap__segment_name(files, segments[i], name));
    if (*count)
        *newest = segments[*count - 1];
    tap__free(segments);
    return locked;
}

bool tap__attempt_is_live(const tap_attempt_files *files, const tap_attempt_info *info)
{
    if (info->ended[0])
        return false;
    size_t count, now;
    uint32_t newest, last;
    bool live = segment_is_locked(files, &count, &last);
    /* while we looked at the old ones its writer may have gone on to a new one */
    while (!live && (live = segment_is_locked(files, &now, &newest), now != count || newest != last)) {
        count = now;
        last = newest;
    }
    if (live)
        return true;
    char name[TAP_ATTEMPT_NAME];
    return is_locked(files, tap__attempt_name(files, ".json", name)) || (count == 0 && just_taken(info)) ||
           tap__tally_in_use(info->tally);
}

/* --------------------------------------------------------------------------------------------------------- taking */

/* What an attempt may leave beside its segments, the description first. Nothing else is ever deleted. */
static const char *const SUFFIXES[] = {".json", ".sqlite", ".lost", ".ring"};
enum { SUFFIX_COUNT = sizeof SUFFIXES / sizeof SUFFIXES[0] };

static bool is_ours(const char *name)
{
    int32_t number;
    const char *rest;
    uint32_t segment;
    if (tap__is_temporary(name))
        return true;
    if (!tap__name_number(name, "attempt", &number, &rest))
        return false;
    for (size_t i = 0; i < SUFFIX_COUNT; i++)
        if (strcmp(rest, SUFFIXES[i]) == 0)
            return true;
    return segment_number(rest, &segment);
}

/* Deletes what is ours in the directory of files. Descriptions (.json) go last, in a pass of their own: while one is
 * left the directory still says what it is. */
static tap_status delete_ours(const tap_attempt_files *files, bool descriptions, tap_error *err)
{
    tap_dir *root = files->root;
    DIR *stream;
    TAP_TRY(list_open(root, files->dir, &stream, err));
    tap_status status = TAP_OK;
    for (struct dirent *item; stream && status == TAP_OK && (item = readdir(stream));) {
        int32_t pid;
        const char *rest, *dot = strrchr(item->d_name, '.');
        if (!files->child && tap__name_number(item->d_name, "child", &pid, &rest) && !*rest && pid) {
            tap_attempt_files child = tap__attempt_files(root, files->rank, 0, pid);
            status = delete_ours(&child, descriptions, err);
            if (descriptions && status == TAP_OK)
                tap__dir_rmdir(root, child.dir); /* stays when somebody else's files are in it */
        } else if (is_ours(item->d_name) && (strcmp(dot, ".json") == 0) == descriptions &&
                   unlinkat(dirfd(stream), item->d_name, 0) != 0 && errno != ENOENT) {
            status = tap_fail_errno(err, TAP_E_IO, "cannot delete %s/%s/%s", root->path, files->dir, item->d_name);
        }
    }
    if (stream) {
        /* Names that are used again must be gone for good: an index that came back would be taken for the new attempt's.
         * Where a directory cannot be synced, nothing else helps either. */
        fsync(dirfd(stream));
        closedir(stream);
    }
    return status;
}

static void drop_tally(const tap_attempt_files *files)
{
    tap_attempt_info info;
    if (tap__attempt_read(files, &info, NULL) == TAP_OK)
        tap__tally_remove(info.tally);
}

/* A program that is gone, as a forked child often is, leaves a writer that needs a moment more. */
static bool ends_soon(const tap_attempt_files *files, const tap_attempt_info *known)
{
    char host[sizeof known->host];
    tap_attempt_info info = *known;
    this_host(host, sizeof host);
    bool gone = strcmp(host, known->host) == 0 && known->pid > 0 && kill(known->pid, 0) != 0 && errno == ESRCH;
    bool live = true;
    for (int i = 0; gone && live && i < SOON_TRIES; i++) {
        usleep(SOON_US);
        tap__attempt_read(files, &info, NULL);
        live = tap__attempt_is_live(files, &info);
    }
    return !live;
}

static tap_status replace(const tap_attempt_list *list, const tap_attempt_files *files, tap_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        tap_attempt_info info;
        tap__attempt_read(&list->items[i], &info, NULL);
        if (tap__attempt_is_live(&list->items[i], &info) && !ends_soon(&list->items[i], &info))
            return tap_fail(err, TAP_E_BUSY,
                            "%s/%s: attempt %d is being recorded by process %d on %s and cannot be replaced; wait for "
                            "it to end or choose another directory",
                            files->root->path, files->dir, list->items[i].attempt, info.pid, info.host);
    }
    for (size_t i = 0; i < list->count; i++)
        drop_tally(&list->items[i]);
    TAP_TRY(delete_ours(files, false, err));
    return delete_ours(files, true, err);
}

static bool is_restart(void)
{
    static const char *const COUNTS[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"};
    for (size_t i = 0; i < 2; i++) {
        const char *text = getenv(COUNTS[i]);
        if (text && strtol(text, NULL, 10) > 0)
            return true;
    }
    return false;
}

static void info_defaults(tap_attempt_info *info)
{
    if (!info->pid)
        info->pid = (int32_t)getpid();
    if (!info->host[0])
        this_host(info->host, sizeof info->host);
    if (!info->started_ns)
        info->started_ns = tap__wall_ns();
    const char *job = getenv("TORCHELASTIC_RUN_ID");
    if (!job || !*job)
        job = getenv("SLURM_JOB_ID");
    if (!info->job[0] && job)
        snprintf(info->job, sizeof info->job, "%s", job);
}

static tap_status refuse(const tap_attempt_files *files, tap_error *err)
{
    tap_attempt_info info;
    tap__attempt_read(files, &info, NULL);
    const char *how = info.ended[0] ? info.ended : "unfinished";
    if (tap__attempt_is_live(files, &info))
        how = "still recording";
    return tap_fail(err, TAP_E_EXISTS,
                    "%s/%s holds a recording already (attempt %d, %s, by process %d on %s); choose mode append (a new "
                    "attempt beside it), replace (delete this rank's part first) or another directory",
                    files->root->path, files->dir, files->attempt, how, info.pid, info.host[0] ? info.host : "?");
}

/* The number to try first. A child shares its parent's number, so that readers know which attempt it belongs to. */
static tap_status first_number(const tap_attempt_list *list, tap_attempt_files *files, tap_open_mode mode,
                               const tap_attempt_info *info, tap_error *err)
{
    const tap_attempt_files *newest = NULL, *own = NULL;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].child == 0)
            newest = &list->items[i];
        if (list->items[i].child == files->child)
            own = &list->items[i];
    }
    if (mode == TAP_OPEN_REPLACE && !files->child)
        return replace(list, files, err);
    if (files->child && newest)
        files->attempt = newest->attempt;
    if (own && own->attempt >= files->attempt)
        files->attempt = own->attempt + 1;
    if (!own || files->child || mode == TAP_OPEN_APPEND)
        return TAP_OK;
    tap_attempt_info before;
    tap__attempt_read(own, &before, NULL);
    if (info->job[0] && strcmp(info->job, before.job) == 0 && is_restart())
        return TAP_OK;
    return refuse(own, err);
}

/* Goes up from files->attempt until one is ours; racing processes each get their own. */
static tap_status take_number(tap_attempt_files *files, bool may_go_up, const tap_attempt_info *info, tap_error *err)
{
    for (;;) {
        char name[TAP_ATTEMPT_NAME];
        tap_strbuf text = TAP_STRBUF_INIT;
        info_text(files, info, &text);
        tap_status status = text.failed ? tap_fail_nomem(err)
                                        : tap__file_put_new(files->root, tap__attempt_name(files, ".json", name),
                                                            text.text, text.len, err);
        tap__strbuf_free(&text);
        if (status != TAP_E_EXISTS)
            return status;
        if (!may_go_up)
            return refuse(files, err);
        if (files->attempt == INT32_MAX)
            return status;
        files->attempt++;
    }
}

static tap_status take(tap_attempt_files *files, tap_open_mode mode, const tap_attempt_info *info, tap_error *err)
{
    tap_attempt_list list = {0, NULL};
    tap_status status = list_dir(&list, files->root, files->rank, 0, err);
    list_sort(&list);
    if (status == TAP_OK)
        status = first_number(&list, files, mode, info, err);
    tap__attempt_list_free(&list);
    TAP_TRY(status);
    return take_number(files, files->child || mode == TAP_OPEN_APPEND || files->attempt > 0, info, err);
}

tap_status tap__attempt_take(tap_dir *dir, int32_t rank, int32_t child, tap_open_mode mode, tap_attempt_info *info,
                             tap_attempt_files *out, tap_error *err)
{
    *out = (tap_attempt_files){.root = NULL};
    if (rank < 0 || child < 0)
        return tap_fail(err, TAP_E_INVALID, "rank %d and child %d must not be negative", rank, child);
    TAP_TRY(run_ensure(dir, err));
    info_defaults(info);
    tap_attempt_files files = tap__attempt_files(dir, rank, 0, child);
    TAP_TRY(take(&files, mode, info, err));
    *out = files;
    return TAP_OK;
}

void tap__attempt_give_back(const tap_attempt_files *files)
{
    char name[TAP_ATTEMPT_NAME];
    uint32_t *segments;
    size_t count;
    if (!files->root)
        return;
    if (tap__segment_list(files, &segments, &count, NULL) == TAP_OK) {
        for (size_t i = 0; i < count; i++)
            tap__dir_unlink(files->root, tap__segment_name(files, segments[i], name));
        tap__free(segments);
    }
    drop_tally(files);
    for (size_t i = SUFFIX_COUNT; i-- > 0;) /* the description, which is the first, goes last */
        tap__dir_unlink(files->root, tap__attempt_name(files, SUFFIXES[i], name));
    if (files->child)
        tap__dir_rmdir(files->root, files->dir); /* stays when an earlier attempt of that child is in it */
}
