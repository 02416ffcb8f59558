/* index.c - writing the index: entries in, rows out. One transaction from start to end: nobody reads the file before
 * it is finished, so all SQLite has to do is to keep the pages it cannot hold in memory. */
#include "record/native/index_private.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SCHEMA[] =
    "CREATE TABLE record(seq INTEGER PRIMARY KEY, name INTEGER NOT NULL, step INTEGER NOT NULL, row BLOB NOT NULL);"
    "CREATE INDEX record_site ON record(name, step);"
    "CREATE TABLE name(id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE, hash INTEGER NOT NULL);"
    "CREATE TABLE text(id INTEGER PRIMARY KEY, text BLOB NOT NULL, hash INTEGER NOT NULL);"
    "CREATE TABLE info(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;";

tap_status tap__index_fail(const tap_index *index, int code, const char *what, tap_error *err)
{
    const char *path = index->path ? index->path : "the index";
    int primary = code & 0xFF;
    if (primary == SQLITE_NOMEM)
        return tap_fail_nomem(err);
    if (primary == SQLITE_FULL)
        return tap_fail(err, TAP_E_NOSPACE, "cannot %s %s: the disk is full; free space, then run: tensortap index DIR",
                        what, path);
    if (index->writable ? primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB : tap__sql_is_damage(code))
        return tap_fail(err, TAP_E_CORRUPT, "cannot %s %s: it is damaged; run: tensortap index DIR", what, path);
    return tap_fail(err, TAP_E_IO, "cannot %s %s: %s", what, path,
                    index->db ? sqlite3_errmsg(index->db) : sqlite3_errstr(code));
}

tap_status tap__index_prepare(tap_index *index, const char *sql, sqlite3_stmt **out, tap_error *err)
{
    int code = sqlite3_prepare_v3(index->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return code == SQLITE_OK ? TAP_OK : tap__index_fail(index, code, "read", err);
}

/* -------------------------------------------------------------------------------------------------------- strings */

tap_string *tap__strings_at(tap_strings *strings, size_t id)
{
    if (id >= strings->cap) {
        size_t cap = strings->cap ? strings->cap : 64;
        while (cap <= id)
            cap *= 2;
        tap_string *grown = tap__resize(strings->items, cap, sizeof *grown);
        if (!grown)
            return NULL;
        strings->items = grown;
        strings->cap = cap;
    }
    while (strings->count <= id)
        strings->items[strings->count++] = (tap_string){.declared = TAP_NO_SEQ};
    return &strings->items[id];
}

void tap__strings_free(tap_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        tap__free(strings->items[i].text);
    tap__free(strings->items);
    tap__free(strings->table);
    *strings = (tap_strings){0};
}

static bool table_grow(tap_strings *strings)
{
    size_t size = strings->table_size ? 2 * strings->table_size : 256;
    uint32_t *table = tap__calloc(size, sizeof *table);
    if (!table)
        return false;
    for (size_t id = 0; id < strings->count; id++) {
        size_t at = strings->items[id].hash & (size - 1);
        while (table[at])
            at = (at + 1) & (size - 1);
        table[at] = (uint32_t)id + 1;
    }
    tap__free(strings->table);
    strings->table = table;
    strings->table_size = size;
    return true;
}

/* The id of a string; *fresh when it had none. false without memory. */
static bool strings_intern(tap_strings *strings, const char *text, size_t len, uint64_t *id, bool *fresh)
{
    if (2 * strings->count >= strings->table_size && !table_grow(strings))
        return false;
    uint64_t hash = tap_hash_bytes(text, len);
    size_t mask = strings->table_size - 1, at = hash & mask;
    for (; strings->table[at]; at = (at + 1) & mask) {
        const tap_string *s = &strings->items[strings->table[at] - 1];
        if (s->hash == hash && s->len == len && memcmp(s->text, text, len) == 0) {
            *id = strings->table[at] - 1;
            *fresh = false;
            return true;
        }
    }
    char *copy = tap__strndup(text, len);
    tap_string *s = copy && strings->count < UINT32_MAX - 1 ? tap__strings_at(strings, strings->count) : NULL;
    if (!s) {
        tap__free(copy);
        return false;
    }
    s->text = copy;
    s->len = len;
    s->hash = hash;
    *id = strings->count - 1;
    *fresh = true;
    strings->table[at] = (uint32_t)strings->count;
    return true;
}

static int run(sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Text of tag as an id; in memory the strings need no table. */
static tap_status intern(tap_index *index, bool name, const char *text, size_t len, uint64_t *id, tap_error *err)
{
    bool fresh;
    if (!strings_intern(name ? &index->names : &index->texts, text ? text : "", text ? len : 0, id, &fresh))
        return tap_fail_nomem(err);
    if (!fresh || !index->path)
        return TAP_OK;
    sqlite3_stmt *add = name ? index->add_name : index->add_text;
    const tap_string *s = name ? &index->names.items[*id] : &index->texts.items[*id];
    sqlite3_bind_int64(add, 1, (sqlite3_int64)*id);
    sqlite3_bind_blob64(add, 2, s->text, s->len, SQLITE_STATIC);
    sqlite3_bind_int64(add, 3, (sqlite3_int64)s->hash);
    int code = run(add);
    return code == SQLITE_OK ? TAP_OK : tap__index_fail(index, code, "write", err);
}

/* ----------------------------------------------------------------------------------------------- opening and ending */

static void index_free(tap_index *index)
{
    sqlite3_stmt *statements[] = {index->insert, index->update, index->remove, index->get, index->site,
                                  index->add_name, index->add_text, index->get_name, index->get_text};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        sqlite3_finalize(statements[i]);
    sqlite3_close_v2(index->db);
    tap__strings_free(&index->names);
    tap__strings_free(&index->texts);
    tap__free(index->segments);
    if (index->file.path)
        tap__file_abort(&index->file);
    tap__free(index->path);
    tap__free(index);
}

static tap_status prepare_all(tap_index *index, tap_error *err)
{
    TAP_TRY(tap__index_prepare(index, "INSERT INTO record VALUES(?1,?2,?3,?4)", &index->insert, err));
    TAP_TRY(tap__index_prepare(index, "UPDATE record SET row=?2 WHERE seq=?1", &index->update, err));
    TAP_TRY(tap__index_prepare(index, "DELETE FROM record WHERE seq BETWEEN ?1 AND ?2", &index->remove, err));
    TAP_TRY(tap__index_prepare(index, "SELECT name, step, row FROM record WHERE seq=?1", &index->get, err));
    TAP_TRY(tap__index_prepare(index, "SELECT seq, row FROM record WHERE name=?1 AND step=?2", &index->site, err));
    TAP_TRY(tap__index_prepare(index, "INSERT INTO name VALUES(?1,?2,?3)", &index->add_name, err));
    return tap__index_prepare(index, "INSERT INTO text VALUES(?1,?2,?3)", &index->add_text, err);
}

static int attach_new(tap_index *index)
{
    char *path = tap__file_path(&index->file);
    int code = path ? tap__sql_attach(index->file.fd, path, SQLITE_OPEN_READWRITE, "", &index->db) : SQLITE_NOMEM;
    tap__free(path);
    return code;
}

static tap_status index_begin(tap_index *index, tap_error *err)
{
    static const char PRAGMAS[] =
        "PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
        "PRAGMA cache_size=-32768; PRAGMA application_id=0x54415049; PRAGMA user_version=1; BEGIN;";
    int code = index->path ? attach_new(index)
                           : sqlite3_open_v2(":memory:", &index->db, SQLITE_OPEN_READWRITE | TAP_SQL_OPEN, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(index->db, PRAGMAS, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(index->db, SCHEMA, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return tap__index_fail(index, code, "create", err);
    TAP_TRY(prepare_all(index, err));
    uint64_t empty;
    return intern(index, false, "", 0, &empty, err); /* id 0 */
}

tap_status tap__index_create_memory(tap_index **out, tap_error *err)
{
    *out = NULL;
    tap_index *index = tap__calloc(1, sizeof *index);
    if (!index)
        return tap_fail_nomem(err);
    index->writable = index->all_names = true;
    tap_status status = index_begin(index, err);
    if (status != TAP_OK)
        index_free(index);
    else
        *out = index;
    return status;
}

tap_status tap__index_create(const tap_attempt_files *files, tap_index **out, tap_error *err)
{
    *out = NULL;
    tap_index *index = tap__calloc(1, sizeof *index);
    if (!index)
        return tap_fail_nomem(err);
    index->writable = index->all_names = true;
    char name[TAP_ATTEMPT_NAME];
    tap__attempt_name(files, ".sqlite", name);
    index->path = tap__path_join(files->root->path, name);
    tap__clear_temporaries(files->root, files->dir, 0); /* of the writer before this one */
    tap_status status = index->path ? tap__file_create(&index->file, files->root, name, err) : tap_fail_nomem(err);
    if (status == TAP_OK)
        status = index_begin(index, err);
    if (status != TAP_OK)
        tap__index_close(index);
    else
        *out = index;
    return status;
}

static tap_status info_write(tap_index *index, tap_error *err)
{
    char sql[200];
    const tap_index_counts *n = &index->counts;
    snprintf(sql, sizeof sql, "INSERT INTO info VALUES('entries',%lld),('records',%lld),('bytes',%lld); COMMIT;",
             (long long)n->entries, (long long)n->records, (long long)n->bytes);
    int code = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? TAP_OK : tap__index_fail(index, code, "write", err);
}

tap_status tap__index_finish(tap_index *index, tap_error *err)
{
    tap_status status = info_write(index, err);
    if (status != TAP_OK) {
        tap__index_close(index);
        return status;
    }
    tap_newfile file = index->file;
    index->file = (tap_newfile){.fd = -1, .parent = -1};
    index_free(index);
    /* readers believe an index that is there: after the death of the machine it must be whole, or not there */
    if (fdatasync(file.fd) != 0) {
        status = tap_fail_errno(err, TAP_E_IO, "%s: the disk did not keep what was written", file.path);
        tap__file_abort(&file);
        return status;
    }
    return tap__file_commit(&file, err);
}

void tap__index_close(tap_index *index)
{
    if (index)
        index_free(index);
}

void tap__index_counts(const tap_index *index, tap_index_counts *out)
{
    *out = index->counts;
}

/* --------------------------------------------------------------------------------------------------------- adding */

static tap_status row_write(tap_index *index, sqlite3_stmt *statement, const tap_row *row, tap_error *err)
{
    uint8_t bytes[TAP_ROW_MAX];
    size_t len = tap__row_encode(row, bytes);
    bool insert = statement == index->insert;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)row->seq);
    if (insert) {
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)row->name);
        sqlite3_bind_int64(statement, 3, row->step);
    }
    sqlite3_bind_blob(statement, insert ? 4 : 2, bytes, (int)len, SQLITE_STATIC);
    int code = run(statement);
    return code == SQLITE_OK ? TAP_OK : tap__index_fail(index, code, "write", err);
}

static tap_status rows_remove(tap_index *index, uint64_t first, uint64_t last, tap_error *err)
{
    sqlite3_bind_int64(index->remove, 1, (sqlite3_int64)first);
    sqlite3_bind_int64(index->remove, 2, (sqlite3_int64)last);
    int code = run(index->remove);
    return code == SQLITE_OK ? TAP_OK : tap__index_fail(index, code, "write", err);
}

/* Finds the slot a value (or the news that it will not come) belongs to; seq TAP_NO_SEQ when there is none. */
static tap_status slot_find(tap_index *index, const tap_row *value, tap_row *slot, tap_error *err)
{
    sqlite3_stmt *site = index->site;
    sqlite3_bind_int64(site, 1, (sqlite3_int64)value->name);
    sqlite3_bind_int64(site, 2, value->step);
    int code;
    bool found = false;
    while (!found && (code = sqlite3_step(site)) == SQLITE_ROW) {
        slot->seq = (uint64_t)sqlite3_column_int64(site, 0);
        slot->name = value->name;
        slot->step = value->step;
        found = tap__row_decode(slot, sqlite3_column_blob(site, 1), (size_t)sqlite3_column_bytes(site, 1)) &&
                slot->state == TAP_RECORD_SLOT && slot->call == value->call && slot->kind == value->kind &&
                slot->text[TAP_ROW_PATH] == value->text[TAP_ROW_PATH];
    }
    sqlite3_reset(site);
    if (found)
        return TAP_OK;
    slot->seq = TAP_NO_SEQ;
    return code == SQLITE_DONE ? TAP_OK : tap__index_fail(index, code, "read", err);
}

/* Everything but the strings. */
static void row_from_entry(tap_row *row, const tap_entry *entry, uint32_t segment, uint64_t offset)
{
    row->seq = entry->seq;
    row->step = entry->step;
    row->kind = entry->kind;
    row->value_type = entry->value_type;
    row->dtype = entry->dtype;
    row->state = entry->state;
    row->reason = entry->reason;
    row->flags = entry->flags;
    row->has = entry->has;
    row->call = entry->call;
    row->segment = segment;
    row->offset = entry->payload_bytes ? offset + entry->payload_offset : offset;
    row->payload_bytes = entry->payload_bytes;
    row->replay = entry->replay;
    row->line = (uint32_t)entry->line;
    row->stats = (tap_stats){entry->count, entry->nan, entry->pos_inf, entry->neg_inf, entry->zero,
                             entry->min, entry->max, entry->mean, entry->norm};
    row->hash = entry->hash;
    row->time_ns = entry->time_ns;
}

static tap_status row_texts(tap_index *index, const tap_meta *meta, tap_row *row, tap_error *err)
{
    static const uint8_t TAGS[TAP_ROW_TEXTS] = {
        [TAP_ROW_PATH] = TAP_META_PATH,         [TAP_ROW_SOURCE] = TAP_META_SOURCE, [TAP_ROW_MODULE] = TAP_META_MODULE,
        [TAP_ROW_GRAPH] = TAP_META_GRAPH,       [TAP_ROW_NODE] = TAP_META_NODE,     [TAP_ROW_DEVICE] = TAP_META_DEVICE,
        [TAP_ROW_PLACEMENTS] = TAP_META_PLACEMENTS, [TAP_ROW_TYPE_NAME] = TAP_META_TYPE_NAME,
    };
    TAP_TRY(intern(index, true, meta->text[TAP_META_NAME], meta->len[TAP_META_NAME], &row->name, err));
    for (int i = 0; i < TAP_ROW_TEXTS; i++) {
        row->text[i] = 0;
        if (TAGS[i] && meta->len[TAGS[i]])
            TAP_TRY(intern(index, false, meta->text[TAGS[i]], meta->len[TAGS[i]], &row->text[i], err));
    }
    row->ndim = (uint64_t)meta->ndim;
    if (meta->ndim)
        memcpy(row->shape, meta->shape, 8 * (size_t)meta->ndim);
    return TAP_OK;
}

/* A value came: its site ran, and the slot that announced it is no longer open. */
static tap_status value_came(tap_index *index, const tap_row *row, tap_error *err)
{
    tap_string *name = &index->names.items[row->name];
    name->saved = true;
    if (name->declared != TAP_NO_SEQ) {
        TAP_TRY(rows_remove(index, name->declared, name->declared, err));
        name->declared = TAP_NO_SEQ;
    }
    if (!name->open_slots || row->kind >= 32 || !(name->slot_kinds >> row->kind & 1))
        return TAP_OK;
    tap_row slot;
    TAP_TRY(slot_find(index, row, &slot, err));
    if (slot.seq == TAP_NO_SEQ)
        return TAP_OK;
    if (row->flags & TAP_SAVE_SLOT_GONE) {
        slot.flags |= TAP_SAVE_SLOT_GONE;
        return row_write(index, index->update, &slot, err);
    }
    name->open_slots--;
    return rows_remove(index, slot.seq, slot.seq, err);
}

static tap_status add_slot(tap_index *index, tap_row *row, tap_error *err)
{
    tap_string *name = &index->names.items[row->name];
    row->state = TAP_RECORD_SLOT;
    name->open_slots++;
    if (row->kind < 32)
        name->slot_kinds |= 1u << row->kind;
    if (name->declared != TAP_NO_SEQ) {
        TAP_TRY(rows_remove(index, name->declared, name->declared, err));
        name->declared = TAP_NO_SEQ;
    }
    name->saved = true;
    return row_write(index, index->insert, row, err);
}

static tap_status add_row(tap_index *index, const tap_entry *entry, tap_row *row, bool torn, tap_error *err)
{
    if (row->flags & TAP_SAVE_SLOT)
        return add_slot(index, row, err);
    TAP_TRY(value_came(index, row, err));
    if (row->flags & TAP_SAVE_SLOT_GONE)
        return TAP_OK;
    if (torn || entry->type == TAP_ENTRY_BIG) {
        row->state = TAP_RECORD_TORN;
        index->counts.torn++;
    }
    index->counts.records++;
    index->counts.bytes += row->payload_bytes;
    index->counts.stats_only += row->state == TAP_RECORD_STATS_ONLY;
    return row_write(index, index->insert, row, err);
}

static tap_status add_declare(tap_index *index, tap_row *row, tap_error *err)
{
    tap_string *name = &index->names.items[row->name];
    if (name->saved || name->declared != TAP_NO_SEQ)
        return TAP_OK;
    row->state = TAP_RECORD_DECLARED;
    name->declared = row->seq;
    return row_write(index, index->insert, row, err);
}

/* The trailer knows what the producer had not computed yet when the BIG entry was written. */
static tap_status add_trailer(tap_index *index, const tap_entry *entry, tap_error *err)
{
    tap_row row;
    row.seq = entry->ref;
    sqlite3_stmt *get = index->get;
    sqlite3_bind_int64(get, 1, (sqlite3_int64)entry->ref);
    int code = sqlite3_step(get);
    bool found = false;
    if (code == SQLITE_ROW) {
        row.name = (uint64_t)sqlite3_column_int64(get, 0);
        row.step = sqlite3_column_int64(get, 1);
        found = tap__row_decode(&row, sqlite3_column_blob(get, 2), (size_t)sqlite3_column_bytes(get, 2));
    }
    sqlite3_reset(get);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return tap__index_fail(index, code, "read", err);
    if (!found) /* its BIG entry was lost or dropped */
        return TAP_OK;
    row.stats = (tap_stats){entry->count, entry->nan, entry->pos_inf, entry->neg_inf, entry->zero,
                            entry->min, entry->max, entry->mean, entry->norm};
    row.has = entry->has;
    row.hash = entry->hash;
    row.reason = entry->reason;
    row.state = entry->state;
    if (row.state == TAP_RECORD_STATS_ONLY || row.state == TAP_RECORD_RULE)
        row.payload_bytes = 0; /* its extent is there, but was not filled */
    index->counts.torn -= row.state != TAP_RECORD_TORN && index->counts.torn;
    index->counts.stats_only += row.state == TAP_RECORD_STATS_ONLY;
    return row_write(index, index->update, &row, err);
}

/* Remembers which seqs lie in a segment, for tap__index_drop_segment. */
static bool note_segment(tap_index *index, uint32_t segment, uint64_t seq)
{
    tap_segment_range *last = index->segment_count ? &index->segments[index->segment_count - 1] : NULL;
    if (last && last->segment == segment) {
        last->last = seq;
        return true;
    }
    if ((index->segment_count & (index->segment_count - 1)) == 0) {
        size_t cap = index->segment_count ? 2 * index->segment_count : 1;
        tap_segment_range *grown = tap__resize(index->segments, cap, sizeof *grown);
        if (!grown)
            return false;
        index->segments = grown;
    }
    index->segments[index->segment_count++] = (tap_segment_range){segment, seq, seq};
    return true;
}

tap_status tap__index_add_cut(tap_index *index, const tap_entry *entry, uint32_t segment, uint64_t offset, bool torn,
                              tap_error *err)
{
    if (!note_segment(index, segment, entry->seq))
        return tap_fail_nomem(err);
    if (index->counts.entries <= entry->seq)
        index->counts.entries = entry->seq + 1;
    if (entry->type == TAP_ENTRY_TRAILER)
        return add_trailer(index, entry, err);
    if (entry->type == TAP_ENTRY_LOST) {
        uint64_t *count = tap__reason_is_rule((tap_reason)entry->reason) ? &index->counts.filtered
                                                                         : &index->counts.dropped;
        *count += entry->count;
    }
    index->counts.ended |= entry->type == TAP_ENTRY_END;
    if (entry->type != TAP_ENTRY_DATA && entry->type != TAP_ENTRY_BIG && entry->type != TAP_ENTRY_DECLARE)
        return TAP_OK;
    tap_meta meta;
    if (!tap__meta_read(&meta, entry + 1, entry->meta_bytes))
        return TAP_OK; /* the header hash was right, so a later version wrote it: nothing we could list */
    tap_row row;
    row_from_entry(&row, entry, segment, offset);
    TAP_TRY(row_texts(index, &meta, &row, err));
    return entry->type == TAP_ENTRY_DECLARE ? add_declare(index, &row, err) : add_row(index, entry, &row, torn, err);
}

tap_status tap__index_add(tap_index *index, const tap_entry *entry, uint32_t segment, uint64_t offset, tap_error *err)
{
    return tap__index_add_cut(index, entry, segment, offset, false, err);
}

tap_status tap__index_add_record(tap_index *index, const tap_record *record, tap_error *err)
{
    tap_row row = {.seq = index->counts.entries++, .step = record->step, .kind = record->kind,
                   .value_type = record->value_type, .dtype = record->dtype, .state = record->state,
                   .flags = record->flags, .call = record->call, .segment = (uint32_t)record->rank,
                   .offset = record->offset, .payload_bytes = record->payload_bytes, .replay = record->replay,
                   .line = (uint32_t)record->line, .stats = record->stats, .hash = record->hash,
                   .time_ns = record->time_ns};
    row.has = (record->has_stats ? TAP_HAS_STATS : 0u) | (record->has_hash ? TAP_HAS_HASH : 0u);
    const char *texts[TAP_ROW_TEXTS] = {record->path, record->source, record->module, record->graph, record->node,
                                        record->device, record->placements, record->type_name, record->file};
    const char *name = record->name ? record->name : "";
    TAP_TRY(intern(index, true, name, strlen(name), &row.name, err));
    for (int i = 0; i < TAP_ROW_TEXTS; i++)
        if (texts[i] && texts[i][0])
            TAP_TRY(intern(index, false, texts[i], strlen(texts[i]), &row.text[i], err));
    row.ndim = record->ndim > 0 && record->ndim <= TAP_MAX_NDIM ? (uint64_t)record->ndim : 0;
    if (row.ndim)
        memcpy(row.shape, record->shape, 8 * (size_t)row.ndim);
    index->counts.records++;
    index->counts.bytes += row.payload_bytes;
    return row_write(index, index->insert, &row, err);
}

tap_status tap__index_drop_segment(tap_index *index, uint32_t segment, tap_error *err)
{
    for (size_t i = 0; i < index->segment_count; i++) {
        tap_segment_range range = index->segments[i];
        if (range.segment != segment)
            continue;
        index->segment_count--;
        memmove(&index->segments[i], &index->segments[i + 1], (index->segment_count - i) * sizeof range);
        return rows_remove(index, range.first, range.last, err);
    }
    return TAP_OK;
}
