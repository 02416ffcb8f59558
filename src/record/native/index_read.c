/* index_read.c - asking the index: a finished one from its file, one in memory while it is filled. Damage shows as
 * TAP_E_CORRUPT, never as a wrong row: rows and strings carry checksums. */
#include "record/native/index_private.h"

#include "base/io.h"
#include "base/match.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FEW_NAMES = 64 }; /* more than this are looked for by reading all rows */

/* One number, or -1. */
static int64_t ask(tap_index *index, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int64_t number = -1;
    if (sqlite3_prepare_v2(index->db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return number;
}

static tap_status open_checked(tap_index *index, int fd, tap_error *err)
{
    int code = tap__sql_open_strange(fd, index->path, &index->limit, &index->db);
    if (code != SQLITE_OK)
        return tap__index_fail(index, code, "open", err);
    int64_t entries = ask(index, "SELECT value FROM info WHERE key='entries'");
    int64_t records = ask(index, "SELECT value FROM info WHERE key='records'");
    int64_t bytes = ask(index, "SELECT value FROM info WHERE key='bytes'");
    if (ask(index, "PRAGMA application_id") != TAP_INDEX_APPLICATION ||
        ask(index, "PRAGMA user_version") != TAP_INDEX_VERSION || entries < 0 || records < 0 || bytes < 0)
        return tap__index_fail(index, SQLITE_CORRUPT, "read", err);
    index->counts.entries = (uint64_t)entries;
    index->counts.records = (uint64_t)records;
    index->counts.bytes = (uint64_t)bytes;
    TAP_TRY(tap__index_prepare(index, "SELECT text, hash FROM name WHERE id=?1", &index->get_name, err));
    return tap__index_prepare(index, "SELECT text, hash FROM text WHERE id=?1", &index->get_text, err);
}

tap_status tap__index_open(const tap_attempt_files *files, tap_index **out, tap_error *err)
{
    *out = NULL;
    char name[TAP_ATTEMPT_NAME];
    int fd = tap__dir_file(files->root, tap__attempt_name(files, ".sqlite", name), O_RDONLY);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s/%s", files->root->path, name);
    tap_index *index = tap__calloc(1, sizeof *index);
    if (index)
        index->path = tap__path_join(files->root->path, name);
    tap_status status = index && index->path ? open_checked(index, fd, err) : tap_fail_nomem(err);
    close(fd);
    if (status != TAP_OK)
        tap__index_close(index);
    else
        *out = index;
    return status;
}

/* -------------------------------------------------------------------------------------------------------- strings */

/* Keeps a string of the current row: text and hash in columns first and first + 1. */
static tap_status string_keep(tap_index *index, tap_strings *strings, uint64_t id, sqlite3_stmt *row, int first,
                              tap_error *err)
{
    const void *text = sqlite3_column_blob(row, first);
    size_t len = (size_t)sqlite3_column_bytes(row, first);
    uint64_t hash = (uint64_t)sqlite3_column_int64(row, first + 1);
    if (id > UINT32_MAX || tap_hash_bytes(text, len) != hash)
        return tap__index_fail(index, SQLITE_CORRUPT, "read", err);
    tap_string *s = tap__strings_at(strings, (size_t)id);
    if (!s)
        return tap_fail_nomem(err);
    if (s->text)
        return TAP_OK;
    s->text = tap__strndup(text ? text : "", len);
    if (!s->text)
        return tap_fail_nomem(err);
    s->len = len;
    s->hash = hash;
    return TAP_OK;
}

static tap_status string_get(tap_index *index, bool name, uint64_t id, const tap_string **out, tap_error *err)
{
    tap_strings *strings = name ? &index->names : &index->texts;
    if (id < strings->count && strings->items[id].text) {
        *out = &strings->items[id];
        return TAP_OK;
    }
    sqlite3_stmt *get = name ? index->get_name : index->get_text;
    if (!get)
        return tap__index_fail(index, SQLITE_CORRUPT, "read", err);
    sqlite3_bind_int64(get, 1, (sqlite3_int64)id);
    int code = sqlite3_step(get);
    tap_status status = code == SQLITE_ROW ? string_keep(index, strings, id, get, 0, err)
                                           : tap__index_fail(index, SQLITE_CORRUPT, "read", err);
    sqlite3_reset(get);
    if (status == TAP_OK)
        *out = &strings->items[id];
    return status;
}

tap_status tap__index_name(tap_index *index, uint64_t id, const char **text, tap_error *err)
{
    const tap_string *s = NULL;
    TAP_TRY(string_get(index, true, id, &s, err));
    *text = s->text;
    return TAP_OK;
}

tap_status tap__index_text(tap_index *index, uint64_t id, const char **text, size_t *len, tap_error *err)
{
    *text = "";
    *len = 0;
    if (id == 0)
        return TAP_OK;
    const tap_string *s = NULL;
    TAP_TRY(string_get(index, false, id, &s, err));
    *text = s->text;
    *len = s->len;
    return TAP_OK;
}

static tap_status read_all_names(tap_index *index, tap_error *err)
{
    if (index->all_names)
        return TAP_OK;
    sqlite3_stmt *all = NULL;
    TAP_TRY(tap__index_prepare(index, "SELECT id, text, hash FROM name", &all, err));
    tap_status status = TAP_OK;
    int code;
    while (status == TAP_OK && (code = sqlite3_step(all)) == SQLITE_ROW)
        status = string_keep(index, &index->names, (uint64_t)sqlite3_column_int64(all, 0), all, 1, err);
    sqlite3_finalize(all);
    if (status == TAP_OK && code != SQLITE_DONE)
        status = tap__index_fail(index, code, "read", err);
    index->all_names = status == TAP_OK;
    return status;
}

/* --------------------------------------------------------------------------------------------------------- select */

struct tap_index_rows {
    tap_index *index;
    tap_index_query query;
    sqlite3_stmt *statement; /* NULL: no name matches */
    uint8_t *wanted;         /* by name id; NULL: all */
    size_t wanted_count;     /* size of wanted */
    uint64_t next_seq;       /* no row comes before it */
};

/* Which ids have a name that matches. */
typedef struct name_ids {
    uint64_t *items;
    size_t count, total;
} name_ids;

static tap_status find_literal(tap_index *index, const char *name, name_ids *ids, tap_error *err)
{
    sqlite3_stmt *find = NULL;
    TAP_TRY(tap__index_prepare(index, "SELECT id, text, hash FROM name WHERE text=?1", &find, err));
    sqlite3_bind_blob(find, 1, name, (int)strlen(name), SQLITE_STATIC);
    int code = sqlite3_step(find);
    tap_status status = TAP_OK;
    if (code == SQLITE_ROW) {
        ids->items[ids->count++] = (uint64_t)sqlite3_column_int64(find, 0);
        status = string_keep(index, &index->names, ids->items[0], find, 1, err);
    } else if (code != SQLITE_DONE) {
        status = tap__index_fail(index, code, "read", err);
    }
    sqlite3_finalize(find);
    ids->total = SIZE_MAX;
    return status;
}

static tap_status find_names(tap_index *index, const char *globs, name_ids *ids, tap_error *err)
{
    bool literal = !strpbrk(globs, "*?[]\\|!");
    size_t room = literal ? 1 : 0;
    if (!literal || index->all_names) {
        TAP_TRY(read_all_names(index, err));
        room = index->names.count;
        literal = false;
    }
    ids->items = tap__calloc(room ? room : 1, sizeof *ids->items);
    if (!ids->items)
        return tap_fail_nomem(err);
    if (literal)
        return find_literal(index, globs, ids, err);
    for (size_t id = 0; id < index->names.count; id++)
        if (index->names.items[id].text && tap__names_match(globs, index->names.items[id].text))
            ids->items[ids->count++] = id;
    ids->total = index->names.count;
    return TAP_OK;
}

static void select_text(tap_strbuf *sql, const tap_index_query *query, const name_ids *ids)
{
    tap__strbuf_str(sql, "SELECT seq, name, step, row FROM record WHERE seq >= ?1 AND seq < ?2");
    if (ids) { /* the inner query reads only record_site; its seqs come sorted */
        tap__strbuf_str(sql, " AND seq IN (SELECT seq FROM record WHERE name IN (");
        for (size_t i = 0; i < ids->count; i++)
            tap__strbuf_printf(sql, i ? ",%llu" : "%llu", (unsigned long long)ids->items[i]);
        tap__strbuf_str(sql, ")");
        if (query->steps && query->steps->count == 1)
            tap__strbuf_printf(sql, " AND step BETWEEN %lld AND %lld", (long long)query->steps->items[0].first,
                               (long long)query->steps->items[0].last);
        tap__strbuf_str(sql, ")");
    }
    tap__strbuf_str(sql, " ORDER BY seq");
}

/* Are few names wanted, so that looking them up beats reading every row? */
static bool is_narrow(const tap_index_query *query, const name_ids *ids)
{
    bool few_steps = query->steps && query->steps->count == 1 && query->steps->items[0].last != INT64_MAX;
    return ids->count <= FEW_NAMES && (few_steps || ids->count <= ids->total / 4);
}

static tap_status rows_prepare(tap_index_rows *rows, const name_ids *ids, tap_error *err)
{
    const tap_index_query *query = &rows->query;
    bool by_name = query->names && *query->names, narrow = by_name && is_narrow(query, ids);
    if (by_name && ids->count == 0)
        return TAP_OK;
    if (by_name && !narrow) {
        rows->wanted_count = rows->index->names.count;
        rows->wanted = tap__calloc(rows->wanted_count, 1);
        if (!rows->wanted)
            return tap_fail_nomem(err);
        for (size_t i = 0; i < ids->count; i++)
            rows->wanted[ids->items[i]] = 1;
    }
    tap_strbuf sql = TAP_STRBUF_INIT;
    select_text(&sql, query, narrow ? ids : NULL);
    tap_status status = sql.failed ? tap_fail_nomem(err)
                                   : tap__index_prepare(rows->index, sql.text, &rows->statement, err);
    tap__strbuf_free(&sql);
    if (status != TAP_OK)
        return status;
    sqlite3_bind_int64(rows->statement, 1, (sqlite3_int64)query->first_seq);
    sqlite3_bind_int64(rows->statement, 2, (sqlite3_int64)(query->end_seq < INT64_MAX ? query->end_seq : INT64_MAX));
    return TAP_OK;
}

tap_status tap__index_select(tap_index *index, const tap_index_query *query, tap_index_rows **out, tap_error *err)
{
    *out = NULL;
    tap_index_rows *rows = tap__calloc(1, sizeof *rows);
    if (!rows)
        return tap_fail_nomem(err);
    rows->index = index;
    rows->query = *query;
    name_ids ids = {NULL, 0, 0};
    tap_status status = TAP_OK;
    if (query->names && *query->names)
        status = find_names(index, query->names, &ids, err);
    if (status == TAP_OK)
        status = rows_prepare(rows, &ids, err);
    tap__free(ids.items);
    if (status != TAP_OK)
        tap__index_rows_close(rows);
    else
        *out = rows;
    return status;
}

void tap__index_rows_close(tap_index_rows *rows)
{
    if (!rows)
        return;
    sqlite3_finalize(rows->statement);
    tap__free(rows->wanted);
    tap__free(rows);
}

static bool row_is_wanted(const tap_index_rows *rows, const tap_row *row)
{
    const tap_index_query *query = &rows->query;
    if (query->kind >= 0 && row->kind != (uint64_t)query->kind)
        return false;
    return query->incomplete || (row->state != TAP_RECORD_SLOT && row->state != TAP_RECORD_TORN &&
                                 row->state != TAP_RECORD_DECLARED);
}

tap_status tap__index_next(tap_index_rows *rows, tap_row *out, tap_error *err)
{
    if (!rows->statement)
        return TAP_END;
    int code;
    while ((code = sqlite3_step(rows->statement)) == SQLITE_ROW) {
        out->seq = (uint64_t)sqlite3_column_int64(rows->statement, 0);
        if (out->seq < rows->next_seq) /* a tree that leads in circles */
            return tap__index_fail(rows->index, SQLITE_CORRUPT, "read", err);
        rows->next_seq = out->seq + 1;
        out->name = (uint64_t)sqlite3_column_int64(rows->statement, 1);
        out->step = sqlite3_column_int64(rows->statement, 2);
        if (rows->wanted && (out->name >= rows->wanted_count || !rows->wanted[out->name]))
            continue;
        if (rows->query.steps && !tap__ranges_contain(rows->query.steps, out->step))
            continue;
        const void *bytes = sqlite3_column_blob(rows->statement, 3);
        if (!tap__row_decode(out, bytes, (size_t)sqlite3_column_bytes(rows->statement, 3)))
            return tap__index_fail(rows->index, SQLITE_CORRUPT, "read", err);
        if (row_is_wanted(rows, out))
            return TAP_OK;
    }
    return code == SQLITE_DONE ? TAP_END : tap__index_fail(rows->index, code, "read", err);
}
