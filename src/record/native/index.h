/* index.h - the SQLite index of one attempt: what a reader needs to list and find records without touching segments.
 * Written behind the data by the one writer, without locks and without a journal, under a temporary name; it gets its
 * name only when complete, and readers open it as immutable. Losing it loses nothing: it can be built again.
 *
 *     PRAGMA application_id = 0x54415049 ("TAPI"), user_version = 1
 *     record(seq INTEGER PRIMARY KEY, name INTEGER, step INTEGER, row BLOB)   one per listed record
 *     INDEX record_site ON record(name, step)
 *     name(id INTEGER PRIMARY KEY, text BLOB UNIQUE, hash INTEGER)            names of records
 *     text(id INTEGER PRIMARY KEY, text BLOB, hash INTEGER)                   every other string; 0 is ""
 *     info(key TEXT PRIMARY KEY, value INTEGER)                               "entries", "records", "bytes"; last
 *
 * hash is tap_hash_bytes of text. A row is unsigned LEB128 numbers in this order (as in tap_entry):
 * kind, value_type, dtype, state, reason, flags, has, call, segment, offset of the payload in the segment,
 * payload_bytes, replay, line, count, nan, pos_inf, neg_inf, zero, nine text ids (path as stored in the entry, source,
 * module, graph, node, device, placements, type_name, file), ndim, ndim sizes; then min, max, mean, norm, hash, time_ns
 * as 8 bytes each, and 4 bytes of checksum: the low half of tap_hash_bytes of all before it, xored with
 * tap_hash_bytes of seq, name and step as three 8-byte numbers.
 *
 * Listed are DATA and BIG entries, slots whose value has not come (state SLOT), and names declared and never saved
 * (state DECLARED). */
#ifndef TAP_RECORD_INDEX_H
#define TAP_RECORD_INDEX_H

#include "base/match.h"
#include "record/native/attempt.h"

typedef struct tap_index tap_index;

/* Starts an empty index under a temporary name. */
tap_status tap__index_create(const tap_attempt_files *files, tap_index **out, tap_error *err);
/* Adds one checked entry that lies at offset of a segment. Every type may come; what is not listed is ignored. A
 * TRAILER completes its BIG row, a value takes its slot's row away. All adds make one transaction; memory is bounded
 * by the page cache (32 MiB) and the distinct strings. After a failure the index is of no use: close it. */
tap_status tap__index_add(tap_index *index, const tap_entry *entry, uint32_t segment, uint64_t offset, tap_error *err);
/* Forgets the rows of a segment that was deleted. */
tap_status tap__index_drop_segment(tap_index *index, uint32_t segment, tap_error *err);
/* Commits and puts it in place; frees index in any case, and removes what was built when it fails. */
tap_status tap__index_finish(tap_index *index, tap_error *err);

/* Builds the index of a finished attempt from its segments (first_segment .. +segments). progress may be NULL. */
tap_status tap__index_rebuild(const tap_attempt_files *files, const tap_attempt_info *info, tap_progress_fn progress,
                              void *user, uint64_t *records, tap_error *err);

/* -------------------------------------------------------------------------------------------------------- reading */

/* An index in memory, filled by tap__index_add and tap__index_add_record and read at the same time; closed by
 * tap__index_close. This is how attempts without a finished index and recordings of other layouts are read. */
tap_status tap__index_create_memory(tap_index **out, tap_error *err);
/* As tap__index_add; torn: its payload is not all there. */
tap_status tap__index_add_cut(tap_index *index, const tap_entry *entry, uint32_t segment, uint64_t offset, bool torn,
                              tap_error *err);
/* Adds a record read by a layout; seq is given by the index. */
tap_status tap__index_add_record(tap_index *index, const tap_record *record, tap_error *err);

/* Opens a finished index: TAP_E_NOTFOUND without one, TAP_E_CORRUPT when it is not whole. */
tap_status tap__index_open(const tap_attempt_files *files, tap_index **out, tap_error *err);
/* Removes what was built when it is not finished; frees index. NULL is fine. */
void tap__index_close(tap_index *index);

typedef struct tap_index_counts {
    uint64_t entries;        /* seq of the last entry + 1 */
    uint64_t records, bytes; /* DATA and BIG entries; payload bytes */
    uint64_t filtered, stats_only, dropped, torn;
    bool ended;              /* an END entry was added */
} tap_index_counts;
/* Of an index in memory everything; of a finished one entries, records and bytes. */
void tap__index_counts(const tap_index *index, tap_index_counts *out);

typedef enum tap_row_text {
    TAP_ROW_PATH, TAP_ROW_SOURCE, TAP_ROW_MODULE, TAP_ROW_GRAPH, TAP_ROW_NODE, TAP_ROW_DEVICE, TAP_ROW_PLACEMENTS,
    TAP_ROW_TYPE_NAME, TAP_ROW_FILE, TAP_ROW_TEXTS
} tap_row_text;

/* A row, decoded. */
typedef struct tap_row {
    uint64_t seq;
    int64_t step;
    uint64_t name;
    uint64_t kind, value_type, dtype, state, reason, flags, has, call, segment, offset, payload_bytes, replay, line;
    tap_stats stats;
    uint64_t text[TAP_ROW_TEXTS];
    uint64_t ndim;
    int64_t shape[TAP_MAX_NDIM];
    uint64_t hash, time_ns;
} tap_row;

/* Rows in order of seq, first_seq <= seq < end_seq. */
typedef struct tap_index_query {
    uint64_t first_seq, end_seq;
    const char *names;              /* globs or NULL */
    const tap_ranges *steps;        /* or NULL */
    int kind;                       /* or -1 */
    bool incomplete;                /* also SLOT, TORN and DECLARED */
} tap_index_query;
typedef struct tap_index_rows tap_index_rows;
/* names and steps must outlive the rows. */
tap_status tap__index_select(tap_index *index, const tap_index_query *query, tap_index_rows **out, tap_error *err);
/* TAP_END at the end; TAP_E_CORRUPT when the index is damaged: read the segments instead. */
tap_status tap__index_next(tap_index_rows *rows, tap_row *out, tap_error *err);
void tap__index_rows_close(tap_index_rows *rows);
/* A string of a row; lives as long as the index. */
tap_status tap__index_name(tap_index *index, uint64_t id, const char **text, tap_error *err);
tap_status tap__index_text(tap_index *index, uint64_t id, const char **text, size_t *len, tap_error *err);

#endif
