/* pairing.c - both recordings are read side by side. Records of one program come in one order, so mostly the next of A
 * belongs to the next of B. What does not is held until its partner comes: some thousand records in memory, the oldest
 * of more than that in a temporary file. */
#include "compare/pairing.h"

#include "base/memory.h"
#include "base/status.h"

#include <sqlite3.h>
#include <string.h>

enum { BUCKETS = 8192, IN_MEMORY = 8192 };

typedef struct item {
    tap_held *held;
    struct item *next;           /* of the same bucket, in order of coming */
    struct item *older, *younger; /* of the same side */
} item;

/* The records of one side that wait. */
typedef struct waiting {
    item *buckets[BUCKETS];
    item *oldest, *youngest;
    size_t in_memory;
    uint64_t in_file;
} waiting;

typedef struct pairing {
    waiting sides[2];
    sqlite3 *db; /* NULL: nothing was too much for memory */
    sqlite3_stmt *add, *find, *take, *rest;
    tap_pair_found_fn found;
    void *user;
    tap_error *err;
} pairing;

/* ------------------------------------------------------------------------------------------------------ the file */

static tap_status file_fail(pairing *p, int code)
{
    if ((code & 0xFF) == SQLITE_NOMEM)
        return tap_fail_nomem(p->err);
    return tap_fail(p->err, (code & 0xFF) == SQLITE_FULL ? TAP_E_NOSPACE : TAP_E_IO,
                    "compare: a temporary file failed: %s; set TMPDIR to a directory with room",
                    p->db ? sqlite3_errmsg(p->db) : sqlite3_errstr(code));
}

static tap_status file_open(pairing *p)
{
    static const char SETUP[] =
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-16384;"
        "CREATE TABLE waiting(side INTEGER, hash INTEGER, held BLOB);"
        "CREATE INDEX waiting_key ON waiting(side, hash); BEGIN;";
    static const char *const TEXTS[] = {"INSERT INTO waiting VALUES(?1,?2,?3)",
                                        "SELECT rowid, held FROM waiting WHERE side=?1 AND hash=?2 ORDER BY rowid",
                                        "DELETE FROM waiting WHERE rowid=?1",
                                        "SELECT held FROM waiting WHERE side=?1 ORDER BY rowid"};
    sqlite3_stmt **statements[] = {&p->add, &p->find, &p->take, &p->rest};
    int code = sqlite3_open_v2("", &p->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(p->db, SETUP, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0] && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v2(p->db, TEXTS[i], -1, statements[i], NULL);
    return code == SQLITE_OK ? TAP_OK : file_fail(p, code);
}

static void file_close(pairing *p)
{
    sqlite3_finalize(p->add);
    sqlite3_finalize(p->find);
    sqlite3_finalize(p->take);
    sqlite3_finalize(p->rest);
    sqlite3_close_v2(p->db);
}

static tap_status file_put(pairing *p, int side, const tap_held *held)
{
    if (!p->db)
        TAP_TRY(file_open(p));
    sqlite3_bind_int(p->add, 1, side);
    sqlite3_bind_int64(p->add, 2, (sqlite3_int64)held->key_hash);
    sqlite3_bind_blob64(p->add, 3, held, held->bytes, SQLITE_STATIC);
    int code = sqlite3_step(p->add);
    sqlite3_reset(p->add);
    if (code != SQLITE_DONE)
        return file_fail(p, code);
    p->sides[side].in_file++;
    return TAP_OK;
}

/* The held record of the current row. */
static tap_status file_row(pairing *p, sqlite3_stmt *statement, int column, tap_held **out)
{
    const void *bytes = sqlite3_column_blob(statement, column);
    *out = bytes ? tap__held_load(bytes, (size_t)sqlite3_column_bytes(statement, column)) : NULL;
    return *out ? TAP_OK : tap_fail_nomem(p->err);
}

/* The oldest one of this key, or NULL. */
static tap_status file_take(pairing *p, int side, const tap_held *wanted, tap_held **out)
{
    *out = NULL;
    if (!p->sides[side].in_file)
        return TAP_OK;
    sqlite3_bind_int(p->find, 1, side);
    sqlite3_bind_int64(p->find, 2, (sqlite3_int64)wanted->key_hash);
    tap_status status = TAP_OK;
    sqlite3_int64 row = 0;
    int code;
    while (status == TAP_OK && !*out && (code = sqlite3_step(p->find)) == SQLITE_ROW) {
        row = sqlite3_column_int64(p->find, 0);
        status = file_row(p, p->find, 1, out);
        if (status == TAP_OK && !tap__held_same(*out, wanted)) {
            tap__held_free(*out);
            *out = NULL;
        }
    }
    sqlite3_reset(p->find);
    if (status != TAP_OK || !*out)
        return status != TAP_OK || code == SQLITE_DONE ? status : file_fail(p, code);
    sqlite3_bind_int64(p->take, 1, row);
    code = sqlite3_step(p->take);
    sqlite3_reset(p->take);
    p->sides[side].in_file--;
    return code == SQLITE_DONE ? TAP_OK : file_fail(p, code);
}

/* -------------------------------------------------------------------------------------------------------- waiting */

static void item_remove(waiting *w, item *it)
{
    item **link = &w->buckets[it->held->key_hash % BUCKETS];
    while (*link != it)
        link = &(*link)->next;
    *link = it->next;
    *(it->older ? &it->older->younger : &w->oldest) = it->younger;
    *(it->younger ? &it->younger->older : &w->youngest) = it->older;
    w->in_memory--;
    tap__free(it);
}

/* Takes the record, in any case. */
static tap_status wait_for(pairing *p, int side, tap_held *held)
{
    waiting *w = &p->sides[side];
    tap_status status = TAP_OK;
    if (w->in_memory == IN_MEMORY) {
        tap_held *oldest = w->oldest->held;
        status = file_put(p, side, oldest);
        item_remove(w, w->oldest);
        tap__held_free(oldest);
    }
    item *it = status == TAP_OK ? tap__calloc(1, sizeof *it) : NULL;
    if (!it) {
        tap__held_free(held);
        return status != TAP_OK ? status : tap_fail_nomem(p->err);
    }
    it->held = held;
    it->older = w->youngest;
    *(w->youngest ? &w->youngest->younger : &w->oldest) = it;
    w->youngest = it;
    item **link = &w->buckets[held->key_hash % BUCKETS];
    while (*link)
        link = &(*link)->next;
    *link = it;
    w->in_memory++;
    return TAP_OK;
}

/* The oldest record of this key that waits on a side, or NULL. What is in the file came before what is in memory. */
static tap_status partner_take(pairing *p, int side, const tap_held *wanted, tap_held **out)
{
    waiting *w = &p->sides[side];
    TAP_TRY(file_take(p, side, wanted, out));
    for (item *it = w->buckets[wanted->key_hash % BUCKETS]; it && !*out; it = it->next)
        if (tap__held_same(it->held, wanted)) {
            *out = it->held;
            item_remove(w, it);
            break;
        }
    return TAP_OK;
}

static bool nothing_waits(const pairing *p)
{
    return !p->sides[0].in_memory && !p->sides[1].in_memory && !p->sides[0].in_file && !p->sides[1].in_file;
}

/* A record of one side: to its partner if that waits already, else it waits. Takes it. */
static tap_status record_take(pairing *p, int side, tap_held *held)
{
    tap_held *partner = NULL;
    tap_status status = partner_take(p, !side, held, &partner);
    if (status != TAP_OK) {
        tap__held_free(held);
        return status;
    }
    if (!partner)
        return wait_for(p, side, held);
    return p->found(p->user, side ? partner : held, side ? held : partner, p->err);
}

/* ------------------------------------------------------------------------------------------------- what is left over */

static tap_status left_over(pairing *p, int side)
{
    waiting *w = &p->sides[side];
    tap_status status = TAP_OK;
    if (w->in_file) {
        int code;
        sqlite3_bind_int(p->rest, 1, side);
        while (status == TAP_OK && (code = sqlite3_step(p->rest)) == SQLITE_ROW) {
            tap_held *held;
            status = file_row(p, p->rest, 0, &held);
            if (status == TAP_OK)
                status = p->found(p->user, side ? NULL : held, side ? held : NULL, p->err);
        }
        if (status == TAP_OK && code != SQLITE_DONE)
            status = file_fail(p, code);
        sqlite3_reset(p->rest);
    }
    while (status == TAP_OK && w->oldest) {
        tap_held *held = w->oldest->held;
        item_remove(w, w->oldest);
        status = p->found(p->user, side ? NULL : held, side ? held : NULL, p->err);
    }
    return status;
}

static void pairing_free(pairing *p)
{
    for (int side = 0; side < 2; side++)
        while (p->sides[side].oldest) {
            tap_held *held = p->sides[side].oldest->held;
            item_remove(&p->sides[side], p->sides[side].oldest);
            tap__held_free(held);
        }
    file_close(p);
    tap__free(p);
}

/* -------------------------------------------------------------------------------------------------------- reading */

/* *out is NULL at the end. */
static tap_status next_held(pairing *p, tap_cursor *cursor, int64_t shift, tap_strbuf *room, tap_held **out)
{
    tap_record record;
    tap_record_init(&record);
    *out = NULL;
    tap_status status = tap_cursor_next(cursor, &record, p->err);
    if (status != TAP_OK)
        return status == TAP_END ? TAP_OK : status;
    *out = tap__held_new(&record, shift, room);
    return *out ? TAP_OK : tap_fail_nomem(p->err);
}

static tap_status read_both(pairing *p, tap_cursor *const cursors[2], int64_t shift, tap_strbuf *room, uint64_t read[2])
{
    bool ended[2] = {false, false};
    while (!ended[0] || !ended[1]) {
        tap_held *held[2] = {NULL, NULL};
        tap_status status = TAP_OK;
        for (int side = 0; side < 2 && status == TAP_OK; side++) {
            if (!ended[side])
                status = next_held(p, cursors[side], side ? 0 : shift, room, &held[side]);
            ended[side] |= !held[side];
            if (held[side])
                held[side]->place = read[side]++;
        }
        for (int side = 0; side < 2; side++)
            if (held[side])
                held[side]->beside = read[!side];
        if (status == TAP_OK && held[0] && held[1] && tap__held_same(held[0], held[1]) && nothing_waits(p)) {
            TAP_TRY(p->found(p->user, held[0], held[1], p->err));
            continue;
        }
        for (int side = 0; side < 2; side++)
            if (held[side] && status == TAP_OK)
                status = record_take(p, side, held[side]);
            else
                tap__held_free(held[side]);
        TAP_TRY(status);
    }
    TAP_TRY(left_over(p, 0));
    return left_over(p, 1);
}

tap_status tap__pairing_run(tap_cursor *const cursors[2], int64_t shift, tap_pair_found_fn found, void *user,
                            uint64_t read[2], tap_error *err)
{
    pairing *p = tap__calloc(1, sizeof *p);
    tap_strbuf room = TAP_STRBUF_INIT;
    if (!p)
        return tap_fail_nomem(err);
    p->found = found;
    p->user = user;
    p->err = err;
    read[0] = read[1] = 0;
    tap_status status = read_both(p, cursors, shift, &room, read);
    tap__strbuf_free(&room);
    pairing_free(p);
    return status;
}
