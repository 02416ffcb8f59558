/* run_query.c - cursors: the rows of every attempt a query wants, in order, as tap_record. */
#include "record/read/run.h"

#include "base/match.h"
#include "base/memory.h"
#include "base/sized.h"

#include <string.h>

enum { OPEN_FILES = 64 }; /* index files kept open for the next query */

typedef struct part {
    tap_source *source;
    uint64_t end_seq; /* what came later is not seen */
} part;

struct tap_cursor {
    tap_run *run;
    tap_query query;
    char *names;
    tap_ranges steps, ranks;
    part *parts;
    size_t count, at;
    tap_index_rows *rows; /* of parts[at]; NULL: not begun */
    uint64_t next_seq;
    tap_row row;
    tap_place place;      /* of row */
};

void tap_query_init_sized(tap_query *query, size_t size)
{
    static const tap_query USUAL = {.kind = TAP_KIND_ANY, .attempt = -1};
    tap__sized_init(query, size, &USUAL, sizeof USUAL);
}

/* ---------------------------------------------------------------------------------------------- choosing attempts */

/* Is it of the newest attempt of its rank? A child has its parent's number, or a higher one where that was taken. */
static bool is_newest(const tap_run *run, const tap_source *source)
{
    int32_t own = -1, any = -1;
    for (size_t i = 0; i < run->count; i++) {
        const tap_source *other = run->sources[i];
        if (other->rank != source->rank)
            continue;
        any = other->attempt > any ? other->attempt : any;
        if (other->child == 0)
            own = other->attempt > own ? other->attempt : own;
    }
    return source->attempt >= (own >= 0 ? own : any);
}

static bool attempt_is_wanted(const tap_cursor *cursor, const tap_source *source)
{
    if (source->rank != TAP_RANK_OF_ROW && !tap__ranges_contain(&cursor->ranks, source->rank))
        return false;
    int wanted = cursor->query.attempt;
    return wanted == -2 || (wanted < 0 ? is_newest(cursor->run, source) : source->attempt == wanted);
}

static tap_status parts_choose(tap_cursor *cursor, tap_error *err)
{
    tap_run *run = cursor->run;
    cursor->parts = tap__calloc(run->count + 1, sizeof *cursor->parts);
    if (!cursor->parts)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < run->count; i++) {
        tap_source *source = run->sources[i];
        if (!attempt_is_wanted(cursor, source))
            continue;
        uint64_t end = INT64_MAX;
        if (source->index || !source->indexed) {
            tap_index_counts counts;
            TAP_TRY(run->type->open(run, source, err));
            tap__index_counts(source->index, &counts);
            if (source->in_memory)
                end = counts.entries;
        }
        cursor->parts[cursor->count++] = (part){source, end};
    }
    return TAP_OK;
}

tap_status tap_run_query(tap_run *run, const tap_query *query, tap_cursor **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, run);
    if (query)
        TAP_NEED_SIZE(err, tap_query, query);
    tap_cursor *cursor = tap__calloc(1, sizeof *cursor);
    if (!cursor)
        return tap_fail_nomem(err);
    cursor->run = run;
    tap_query_init(&cursor->query);
    if (query)
        tap__sized_take(&cursor->query, query);
    const tap_query *q = &cursor->query;
    tap_status status = TAP_OK;
    if (q->name && *q->name && !(cursor->names = tap__strdup(q->name)))
        status = tap_fail_nomem(err);
    if (status == TAP_OK)
        status = tap__ranges_parse(&cursor->steps, q->steps, "steps", err);
    if (status == TAP_OK)
        status = tap__ranges_parse(&cursor->ranks, q->ranks, "ranks", err);
    if (status == TAP_OK)
        status = parts_choose(cursor, err);
    if (status != TAP_OK)
        tap_cursor_close(cursor);
    else
        *out = cursor;
    return status;
}

/* -------------------------------------------------------------------------------------------------------- walking */

static tap_status part_begin(tap_cursor *cursor, tap_error *err)
{
    part *p = &cursor->parts[cursor->at];
    TAP_TRY(cursor->run->type->open(cursor->run, p->source, err));
    tap_index_query query = {cursor->next_seq, p->end_seq, cursor->names, &cursor->steps, cursor->query.kind,
                             cursor->query.incomplete};
    TAP_TRY(tap__index_select(p->source->index, &query, &cursor->rows, err));
    p->source->users++;
    return TAP_OK;
}

static void part_leave(tap_cursor *cursor)
{
    tap_source *source = cursor->parts[cursor->at].source;
    tap__index_rows_close(cursor->rows);
    cursor->rows = NULL;
    source->users--;
    if (source->users == 0 && !source->in_memory && cursor->run->open_files > OPEN_FILES) {
        tap__index_close(source->index);
        source->index = NULL;
        cursor->run->open_files--;
    }
}

static tap_status part_next(tap_cursor *cursor, tap_error *err)
{
    if (!cursor->rows)
        TAP_TRY(part_begin(cursor, err));
    const tap_source *source = cursor->parts[cursor->at].source;
    do
        TAP_TRY(tap__index_next(cursor->rows, &cursor->row, err));
    while (!tap__ranges_contain(&cursor->ranks, cursor->run->type->rank(source, &cursor->row)));
    cursor->next_seq = cursor->row.seq + 1;
    return TAP_OK;
}

/* A damaged index file is no reason to stop: its segments say the same. */
static bool is_index_damaged(const tap_source *source, tap_status status)
{
    return status != TAP_OK && status != TAP_END && status != TAP_E_NOMEM && !source->in_memory;
}

static tap_status part_next_or_scan(tap_cursor *cursor, tap_error *err)
{
    tap_status status = part_next(cursor, err);
    tap_source *source = cursor->parts[cursor->at].source;
    if (!is_index_damaged(source, status))
        return status;
    if (cursor->rows) {
        tap__index_rows_close(cursor->rows);
        cursor->rows = NULL;
        source->users--;
    }
    TAP_TRY(cursor->run->type->rebuild(cursor->run, source, err));
    return part_next(cursor, err);
}

static tap_status row_next(tap_cursor *cursor, tap_error *err)
{
    for (; cursor->at < cursor->count; cursor->at++) {
        tap_status status = part_next_or_scan(cursor, err);
        if (status != TAP_END)
            return status;
        part_leave(cursor);
        cursor->next_seq = 0;
    }
    return TAP_END;
}

/* --------------------------------------------------------------------------------------------------------- records */

static tap_status text_of(tap_cursor *cursor, tap_index *index, tap_row_text which, const char **out, tap_error *err)
{
    size_t len;
    return tap__index_text(index, cursor->row.text[which], out, &len, err);
}

static tap_status texts_fill(tap_cursor *cursor, tap_index *index, tap_record *out, tap_error *err)
{
    TAP_TRY(tap__index_name(index, cursor->row.name, &out->name, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_SOURCE, &out->source, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_MODULE, &out->module, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_GRAPH, &out->graph, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_NODE, &out->node, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_DEVICE, &out->device, err));
    TAP_TRY(text_of(cursor, index, TAP_ROW_PLACEMENTS, &out->placements, err));
    return text_of(cursor, index, TAP_ROW_TYPE_NAME, &out->type_name, err);
}

static tap_status record_fill(tap_cursor *cursor, tap_record *out, tap_error *err)
{
    const tap_row *row = &cursor->row;
    const tap_source *source = cursor->parts[cursor->at].source;
    TAP_TRY(cursor->run->type->place(source, row, &cursor->place, err));
    *out = (tap_record){
        .seq = row->seq, .attempt = source->attempt, .rank = cursor->run->type->rank(source, row),
        .child = source->child, .step = row->step, .call = (uint32_t)row->call, .kind = (tap_kind)row->kind,
        .value_type = (tap_value_type)row->value_type, .dtype = (tap_dtype)row->dtype, .ndim = (int32_t)row->ndim,
        .shape = row->shape, .flags = (unsigned)row->flags, .replay = row->replay, .time_ns = row->time_ns,
        .has_stats = row->has & TAP_HAS_STATS, .has_hash = row->has & TAP_HAS_HASH, .stats = row->stats,
        .hash = row->hash, .payload_bytes = row->payload_bytes, .state = (tap_record_state)row->state,
        .line = (int32_t)(uint32_t)row->line, .offset = row->offset, .path = cursor->place.path,
        .file = cursor->place.file,
    };
    return texts_fill(cursor, source->index, out, err);
}

static tap_status record_next(tap_cursor *cursor, tap_record *out, tap_error *err)
{
    TAP_TRY(row_next(cursor, err));
    tap_status status = record_fill(cursor, out, err);
    tap_source *source = cursor->parts[cursor->at].source;
    if (!is_index_damaged(source, status))
        return status;
    /* a string of the index is damaged: the same record again, from the segments */
    tap__index_rows_close(cursor->rows);
    cursor->rows = NULL;
    source->users--;
    cursor->next_seq = cursor->row.seq;
    TAP_TRY(cursor->run->type->rebuild(cursor->run, source, err));
    TAP_TRY(row_next(cursor, err));
    return record_fill(cursor, out, err);
}

tap_status tap_cursor_next(tap_cursor *cursor, tap_record *out, tap_error *err)
{
    TAP_NEED(err, cursor);
    TAP_NEED_SIZED(err, tap_record, out);
    tap_record record;
    TAP_TRY(record_next(cursor, &record, err));
    tap__sized_give(out, &record);
    return TAP_OK;
}

void tap_cursor_close(tap_cursor *cursor)
{
    if (!cursor)
        return;
    if (cursor->rows)
        part_leave(cursor);
    tap__ranges_free(&cursor->steps);
    tap__ranges_free(&cursor->ranks);
    tap__free(cursor->names);
    tap__free(cursor->parts);
    tap__free(cursor->place.path_text);
    tap__free(cursor);
}

tap_status tap_run_count(tap_run *run, const tap_query *query, uint64_t *out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = 0;
    tap_cursor *cursor;
    TAP_TRY(tap_run_query(run, query, &cursor, err));
    tap_status status;
    while ((status = row_next(cursor, err)) == TAP_OK)
        ++*out;
    tap_cursor_close(cursor);
    return status == TAP_END ? TAP_OK : status;
}
