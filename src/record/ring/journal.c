/* journal.c - the list of what a full disk kept out, on space that was taken while there was some. */
#include "record/ring/journal.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HALF = TAP_JOURNAL_BYTES / 2,
    HEAD = 64,         /* the first line of a half, blanks before its newline */
    MORE_ROOM = 128,   /* kept for the {"more"} line */
    LINE_ROOM = 160,   /* numbers and keys of a line */
    NAME_MAX_BYTES = 512,
    WRITE_EVERY_NS = 20000000,
    TRIES = 20
};

/* <dir>/.tensortap/<who>/attempt0.lost */
#define BESIDE ".tensortap"
#define BESIDE_FILE "attempt0.lost"
enum { BESIDE_MAX = 320 };

typedef struct loss {
    char *name;
    int64_t step;
    tap_reason reason;
    uint64_t count, bytes, hash;
} loss;

struct tap_journal {
    int fd;
    tap_dir *dir;
    char *path;          /* below dir */
    uint64_t turn;
    loss *items;
    size_t count, cap;
    size_t room;         /* bytes the lines may still take, estimated from above */
    uint64_t more, more_bytes;
    bool dirty;
    uint64_t written_ns;
    char tally[TAP_TALLY_NAME]; /* while nobody has ended the recording: who knows what is missing */
    bool unknown;               /* how many more are missing is not known */
    bool beside;
};

static void journal_load(tap_journal *journal);

/* What is there keeps its place and its bytes: on a full disk it could not be had again. */
static tap_status reserve(tap_journal *journal, tap_error *err)
{
    struct stat st;
    journal->fd = tap__dir_file(journal->dir, journal->path, O_RDWR | O_CREAT);
    if (journal->fd < 0)
        return tap_fail_errno(err, errno == ENOENT ? TAP_E_NOTFOUND : TAP_E_IO, "cannot create %s/%s", journal->dir->path,
                              journal->path);
    if (fstat(journal->fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at %s/%s", journal->dir->path, journal->path);
    flock(journal->fd, LOCK_EX | LOCK_NB); /* somebody works on it */
    if (st.st_size == TAP_JOURNAL_BYTES)
        return TAP_OK;
    char *blanks = tap__alloc(TAP_JOURNAL_BYTES);
    if (!blanks)
        return tap_fail_nomem(err);
    memset(blanks, ' ', TAP_JOURNAL_BYTES);
    /* KEEP_SIZE: at no moment does it hold zeros, which are not blank, for whoever reads it after a kill.
     * Written, not only allocated: then overwriting needs nothing more from any file system that writes in place */
    int failed = fallocate(journal->fd, FALLOC_FL_KEEP_SIZE, 0, TAP_JOURNAL_BYTES) != 0 && errno == ENOSPC;
    failed = failed || tap__pwrite_all(journal->fd, blanks, TAP_JOURNAL_BYTES, 0);
    tap__free(blanks);
    return failed ? tap_fail_errno(err, TAP_E_IO, "cannot reserve %u bytes for %s/%s", TAP_JOURNAL_BYTES,
                                   journal->dir->path, journal->path)
                  : TAP_OK;
}

static void forget(tap_journal *journal)
{
    for (size_t i = 0; i < journal->count; i++)
        tap__free(journal->items[i].name);
    journal->count = 0;
    journal->more = journal->more_bytes = 0;
    journal->room = HALF - HEAD - MORE_ROOM;
}

/* .tensortap/<who> and .tensortap, unless something is in them. */
static void remove_parents(tap_dir *dir, char *path)
{
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
        if (tap__dir_rmdir(dir, path) != 0)
            return;
    }
}

static void journal_free(tap_journal *journal, bool remove)
{
    if (journal->fd >= 0)
        close(journal->fd);
    if (remove && journal->path)
        tap__dir_unlink(journal->dir, journal->path);
    if (remove && journal->path && journal->beside)
        remove_parents(journal->dir, journal->path);
    forget(journal);
    tap__free(journal->items);
    tap__free(journal->path);
    tap__free(journal);
}

/* Takes over what a writer before this one had to say. */
static void inherit(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    tap_journal *journal = user;
    journal->written_ns = tap__monotonic_ns(); /* in memory only: the file says it */
    tap__journal_add(journal, name, step, reason, count, bytes);
}

tap_status tap__journal_create(tap_dir *dir, const char *name, tap_journal **out, tap_error *err)
{
    *out = NULL;
    tap_journal *journal = tap__calloc(1, sizeof *journal);
    if (!journal)
        return tap_fail_nomem(err);
    journal->fd = -1;
    forget(journal);
    journal->dir = dir;
    journal->path = tap__strdup(name);
    if (journal->path)
        journal_load(journal);
    tap_status status = journal->path ? reserve(journal, err) : tap_fail_nomem(err);
    if (status == TAP_OK)
        tap__journal_sync(journal);
    if (status != TAP_OK)
        journal_free(journal, journal->fd >= 0);
    else
        *out = journal;
    return status;
}

static void line_write(tap_strbuf *out, const loss *item)
{
    tap_json json;
    tap__json_begin(&json, out, -1);
    tap__json_open(&json, '{');
    if (item->name) {
        tap__json_key(&json, "name");
        tap__json_str(&json, item->name);
        tap__json_key(&json, "step");
        tap__json_int(&json, item->step);
        tap__json_key(&json, "reason");
        tap__json_int(&json, item->reason);
    }
    tap__json_key(&json, item->name ? "count" : "more");
    tap__json_uint(&json, item->count);
    tap__json_key(&json, "bytes");
    tap__json_uint(&json, item->bytes);
    tap__json_close(&json, '}');
    tap__strbuf_char(out, '\n');
}

/* The line that says what became of the recording, where it has no end yet or never had one. */
static void state_write(tap_strbuf *out, const tap_journal *journal)
{
    if (!journal->tally[0] && !journal->unknown)
        return;
    tap_json json;
    tap__json_begin(&json, out, -1);
    tap__json_open(&json, '{');
    if (journal->tally[0]) {
        tap__json_key(&json, "tally");
        tap__json_str(&json, journal->tally);
    }
    tap__json_key(&json, "unknown");
    tap__json_bool(&json, journal->unknown);
    tap__json_close(&json, '}');
    tap__strbuf_char(out, '\n');
}

tap_status tap__journal_sync(tap_journal *journal)
{
    if (!journal->dirty)
        return TAP_OK;
    tap_strbuf text = TAP_STRBUF_INIT;
    for (int i = 0; i < HEAD; i++)
        tap__strbuf_char(&text, ' ');
    state_write(&text, journal);
    for (size_t i = 0; i < journal->count; i++)
        line_write(&text, &journal->items[i]);
    if (journal->more)
        line_write(&text, &(loss){.count = journal->more, .bytes = journal->more_bytes});
    if (text.failed || text.len > HALF) {
        tap__strbuf_free(&text);
        return TAP_E_NOMEM;
    }
    size_t len = text.len - HEAD;
    int head = snprintf(text.text, HEAD, "tensortap-lost 1 %llu %zu %016llx", (unsigned long long)journal->turn, len,
                        (unsigned long long)tap_hash_bytes(text.text + HEAD, len));
    memset(text.text + head, ' ', HEAD - (size_t)head);
    text.text[HEAD - 1] = '\n';
    off_t offset = journal->turn % 2 ? HALF : 0;
    tap_status status = tap__pwrite_all(journal->fd, text.text, text.len, offset) ? TAP_E_IO : TAP_OK;
    tap__strbuf_free(&text);
    if (status == TAP_OK) {
        journal->turn++;
        journal->dirty = false;
        journal->written_ns = tap__monotonic_ns();
    }
    return status;
}

/* Cuts at a character, not inside one. */
static size_t name_clip(const char *name)
{
    size_t len = strlen(name);
    if (len <= NAME_MAX_BYTES)
        return len;
    len = NAME_MAX_BYTES;
    while (len && ((unsigned char)name[len] & 0xC0) == 0x80)
        len--;
    return len;
}

static loss *loss_find(tap_journal *journal, const char *name, size_t len, int64_t step, tap_reason reason)
{
    uint64_t hash = tap_hash_bytes(name, len);
    for (size_t i = 0; i < journal->count; i++) {
        loss *item = &journal->items[i];
        if (item->hash == hash && item->step == step && item->reason == reason && strlen(item->name) == len &&
            memcmp(item->name, name, len) == 0)
            return item;
    }
    size_t need = LINE_ROOM + 6 * len; /* an escaped byte takes at most six */
    if (need > journal->room)
        return NULL;
    if (journal->count == journal->cap) {
        size_t cap = journal->cap ? 2 * journal->cap : 16;
        loss *grown = tap__resize(journal->items, cap, sizeof *grown);
        if (!grown)
            return NULL;
        journal->items = grown;
        journal->cap = cap;
    }
    char *copy = tap__strndup(name, len);
    if (!copy)
        return NULL;
    journal->room -= need;
    journal->items[journal->count] = (loss){.name = copy, .step = step, .reason = reason, .hash = hash};
    return &journal->items[journal->count++];
}

tap_status tap__journal_add(tap_journal *journal, const char *name, int64_t step, tap_reason reason, uint64_t count,
                            uint64_t bytes)
{
    loss *item = loss_find(journal, name, name_clip(name), step, reason);
    if (item) {
        item->count += count;
        item->bytes += bytes;
    } else {
        journal->more += count;
        journal->more_bytes += bytes;
    }
    journal->dirty = true;
    bool due = !journal->written_ns || tap__monotonic_ns() - journal->written_ns >= WRITE_EVERY_NS;
    return due ? tap__journal_sync(journal) : TAP_OK;
}

tap_status tap__journal_clear(tap_journal *journal)
{
    if (!journal->count && !journal->more)
        return TAP_OK;
    forget(journal);
    journal->dirty = true;
    return tap__journal_sync(journal);
}

tap_status tap__journal_begin(tap_journal *journal, const char *tally)
{
    snprintf(journal->tally, sizeof journal->tally, "%s", *tally ? tally : "none");
    journal->dirty = true;
    return tap__journal_sync(journal);
}

tap_status tap__journal_end(tap_journal *journal)
{
    journal->tally[0] = 0;
    journal->dirty = true;
    return tap__journal_sync(journal);
}

void tap__journal_close(tap_journal *journal)
{
    if (!journal)
        return;
    tap__journal_sync(journal);
    journal_free(journal, !journal->count && !journal->more && !journal->tally[0] && !journal->unknown);
}

/* -------------------------------------------------------------------------------------------------------- reading */

/* Checks one half; its lines are text[0..len). */
static bool half_check(const char *half, size_t avail, const char **text, size_t *len, uint64_t *turn)
{
    unsigned long long number, hash;
    size_t bytes;
    char head[HEAD + 1];
    if (avail < HEAD)
        return false;
    memcpy(head, half, HEAD);
    head[HEAD] = 0;
    if (sscanf(head, "tensortap-lost 1 %llu %zu %llx", &number, &bytes, &hash) != 3 || bytes > avail - HEAD ||
        tap_hash_bytes(half + HEAD, bytes) != hash)
        return false;
    *text = half + HEAD;
    *len = bytes;
    *turn = number;
    return true;
}

static uint64_t number_of(struct json_object *object, const char *key, int64_t *sign)
{
    struct json_object *value;
    if (!json_object_object_get_ex(object, key, &value))
        return 0;
    *sign = json_object_get_int64(value);
    return json_object_get_uint64(value);
}

typedef struct reading {
    tap_journal_fn each;
    void *user;
    uint64_t turn;                /* of the half that counts, + 1 */
    char tally[TAP_TALLY_NAME];
    bool unknown;
} reading;

static bool state_read(struct json_object *object, reading *r)
{
    struct json_object *tally, *unknown;
    if (!json_object_object_get_ex(object, "unknown", &unknown))
        return false;
    if (json_object_object_get_ex(object, "tally", &tally) && json_object_is_type(tally, json_type_string))
        snprintf(r->tally, sizeof r->tally, "%s", json_object_get_string(tally));
    r->unknown = json_object_get_boolean(unknown);
    return true;
}

static void line_read(const char *line, reading *r)
{
    struct json_object *object = json_tokener_parse(line), *name;
    if (!json_object_is_type(object, json_type_object)) {
        json_object_put(object);
        return;
    }
    if (state_read(object, r)) {
        json_object_put(object);
        return;
    }
    int64_t step = -1, reason = TAP_REASON_DISK_FULL, unused;
    number_of(object, "step", &step);
    number_of(object, "reason", &reason);
    uint64_t bytes = number_of(object, "bytes", &unused);
    bool named = json_object_object_get_ex(object, "name", &name);
    if (named && json_object_is_type(name, json_type_string))
        r->each(r->user, json_object_get_string(name), step, (tap_reason)reason, number_of(object, "count", &unused), bytes);
    else
        r->each(r->user, "", -1, TAP_REASON_DISK_FULL, number_of(object, "more", &unused), bytes);
    json_object_put(object);
}

static tap_status lines_read(const char *path, char *text, size_t len, reading *r, tap_error *err)
{
    const char *best = NULL, *lines;
    size_t best_len = 0, lines_len;
    uint64_t best_turn = 0, turn;
    for (size_t at = 0; at < TAP_JOURNAL_BYTES && at < len; at += HALF) {
        if (half_check(text + at, len - at < HALF ? len - at : HALF, &lines, &lines_len, &turn) &&
            (!best || turn > best_turn)) {
            best = lines;
            best_len = lines_len;
            best_turn = turn;
        }
    }
    bool blank = strspn(text, " ") == len;
    if (!best)
        return blank ? TAP_OK : tap_fail(err, TAP_E_CORRUPT, "%s is damaged: what was lost cannot be told", path);
    r->turn = best_turn + 1;
    char *line = text + (best - text), *end = line + best_len;
    while (line < end) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline)
            break;
        *newline = 0;
        line_read(line, r);
        line = newline + 1;
    }
    return TAP_OK;
}

static tap_status file_read(tap_dir *dir, const char *name, reading *r, tap_error *err)
{
    char *text = NULL;
    size_t len = 0;
    tap_status status = tap__dir_get(dir, name, TAP_JOURNAL_BYTES, &text, &len, err);
    if (status == TAP_OK)
        status = lines_read(name, text, len, r, err);
    else if (status == TAP_E_NOTFOUND)
        status = TAP_OK;
    tap__free(text);
    return status;
}

tap_status tap__journal_read(tap_dir *dir, const char *name, tap_journal_fn each, void *user, tap_error *err)
{
    reading r = {.each = each, .user = user};
    return file_read(dir, name, &r, err);
}

static void journal_load(tap_journal *journal)
{
    reading r = {.each = inherit, .user = journal};
    file_read(journal->dir, journal->path, &r, NULL);
    journal->turn = r.turn;
    journal->unknown = r.unknown;
    memcpy(journal->tally, r.tally, sizeof r.tally);
    journal->written_ns = 0;
    journal->dirty = false;
}

/* ------------------------------------------------------------------------------------- beside other people's layouts */

static const char *beside_name(const char *who, char *name)
{
    snprintf(name, BESIDE_MAX, BESIDE "/%.255s/" BESIDE_FILE, who);
    return name;
}

/* <dir>/.tensortap/<who>: gone when nothing was lost, so that a layout's own files stay as they are. Another recorder that
 * ends may remove .tensortap between our two steps. */
tap_status tap__journal_create_beside(tap_dir *dir, const char *who, tap_journal **out, tap_error *err)
{
    *out = NULL;
    char name[BESIDE_MAX];
    tap_status status = TAP_E_NOTFOUND;
    for (int i = 0; i < TRIES && status == TAP_E_NOTFOUND; i++) {
        const char *last;
        int parent = tap__dir_parent(dir, beside_name(who, name), true, &last);
        if (parent >= 0)
            close(parent);
        status = parent < 0 ? tap_fail_errno(err, TAP_E_IO, "cannot create %s/%s", dir->path, name)
                            : tap__journal_create(dir, name, out, err);
    }
    if (*out)
        (*out)->beside = true;
    return status;
}

bool tap__journal_is_beside(tap_dir *dir)
{
    return tap__dir_has(dir, BESIDE);
}

static bool is_locked(tap_dir *dir, const char *name)
{
    int fd = tap__dir_file(dir, name, O_RDONLY);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* What a program and its writer took with them, neither of whom is there any more. */
static void missing(tap_dir *dir, const reading *r, tap_journal_fn each, void *user)
{
    tap_tally tally;
    if (r->unknown)
        each(user, "", -1, TAP_REASON_KILLED, 0, 0);
    if (!r->tally[0])
        return;
    if (!tap__tally_read(r->tally, &tally)) {
        if (!r->unknown)
            each(user, "", -1, TAP_REASON_KILLED, 0, 0);
        return;
    }
    uint64_t count = tap__tally_missing(&tally, tap__tally_finished(&tally, dir));
    if (count)
        each(user, "", -1, TAP_REASON_KILLED, count, 0);
}

/* Calls fn for every <dir>/.tensortap/<who>/attempt0.lost. One that fails does not keep the others from their turn; the first
 * failure is returned. */
typedef tap_status (*file_fn)(void *user, tap_dir *dir, const char *file, const char *who, tap_error *err);
static tap_status each_beside(tap_dir *dir, file_fn fn, void *user, tap_error *err)
{
    DIR *list = tap__dir_list(dir, BESIDE);
    tap_status first = TAP_OK;
    for (struct dirent *item; list && (item = readdir(list));) {
        char name[BESIDE_MAX];
        if (item->d_name[0] == '.')
            continue;
        tap_status status = fn(user, dir, beside_name(item->d_name, name), item->d_name, first == TAP_OK ? err : NULL);
        first = first == TAP_OK ? status : first;
    }
    if (list)
        closedir(list);
    return first;
}

typedef struct beside {
    tap_journal_fn each;
    void *user;
    int32_t *rank;
} beside;

/* Does somebody work on it? A lock on the file may be one that a forked child inherited; that of the tally never is. */
static bool in_use(tap_dir *dir, const char *file, const char *tally)
{
    tap_tally page;
    return *tally && tap__tally_read(tally, &page) ? tap__tally_in_use(tally) : is_locked(dir, file);
}

static tap_status read_one(void *user, tap_dir *dir, const char *file, const char *who, tap_error *err)
{
    const beside *b = user;
    reading r = {.each = b->each, .user = b->user};
    if (b->rank)
        *b->rank = strncmp(who, "rank", 4) == 0 ? (int32_t)strtol(who + 4, NULL, 10) : 0;
    TAP_TRY(file_read(dir, file, &r, err));
    if (in_use(dir, file, r.tally))
        r.tally[0] = 0;
    missing(dir, &r, b->each, b->user);
    return TAP_OK;
}

tap_status tap__journal_read_beside(tap_dir *dir, tap_journal_fn each, void *user, int32_t *rank, tap_error *err)
{
    return each_beside(dir, read_one, &(beside){each, user, rank}, err);
}

static void ignore(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    (void)user, (void)name, (void)step, (void)reason, (void)count, (void)bytes;
}

static void settle(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    tap_journal *journal = user;
    if (count)
        tap__journal_add(journal, name, step, reason, count, bytes);
    else
        journal->unknown = true;
}

static tap_status recover_one(void *user, tap_dir *dir, const char *file, const char *who, tap_error *err)
{
    tap_journal *journal;
    (void)user, (void)who;
    reading r = {.each = ignore};
    if (!tap__dir_has(dir, file))
        return TAP_OK;
    TAP_TRY(file_read(dir, file, &r, err));
    if (in_use(dir, file, r.tally))
        return TAP_OK;
    TAP_TRY(tap__journal_create(dir, file, &journal, err));
    journal->beside = true;
    r.unknown = false;
    tap_status status = TAP_OK;
    if (r.tally[0]) {
        missing(dir, &r, settle, journal);
        status = tap__journal_end(journal);
        if (status == TAP_OK)
            tap__tally_remove(r.tally);
        else
            tap_fail_errno(err, status, "cannot write %s/%s", dir->path, file);
    }
    tap__journal_close(journal);
    return status;
}

tap_status tap__journal_recover_beside(tap_dir *dir, tap_error *err)
{
    return each_beside(dir, recover_one, NULL, err);
}
