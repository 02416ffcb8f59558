/* cmd_nan.c - the first NaN or Inf of a recording, and whether what fed it had one already. */
#include "records.h"
#include "term.h"

#include <stdlib.h>
#include <string.h>

/* Where a record stands: its step, and its place among the records of its rank and step. */
typedef struct spot {
    bool found;
    int64_t step;
    uint64_t place, seq;
    int32_t rank, attempt;
    uint32_t call;
    tap_kind kind;
    char *label, *module, *source;
    int32_t line;
    tap_stats stats;
} spot;

static void spot_free(spot *at)
{
    free(at->label);
    free(at->module);
    free(at->source);
}

static void spot_take(spot *at, const tap_record *record, uint64_t place)
{
    static char *room;
    static size_t cap;
    const char *label = record_label(record, &room, &cap);
    spot_free(at);
    *at = (spot){.found = true, .step = record->step, .place = place, .seq = record->seq, .rank = record->rank,
                 .attempt = record->attempt, .call = record->call, .kind = record->kind, .line = record->line,
                 .stats = record->stats, .label = copy_text(label, strlen(label)),
                 .module = copy_text(record->module, strlen(record->module)),
                 .source = copy_text(record->source, strlen(record->source))};
}

/* Statistics where none were kept come from the bytes, if those were. */
static uint64_t bad_values(tap_run *run, tap_record *record)
{
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    if (!record_is_tensor(record) && record->value_type != TAP_VALUE_FLOAT)
        return 0;
    if (!record->has_stats && tap_record_map(run, record, &mapping, NULL) == TAP_OK) {
        record->has_stats = tap_tensor_scan(&mapping.tensor, TAP_SCAN_HEALTH, NULL, &record->stats, NULL, NULL) == TAP_OK;
        tap_mapping_release(&mapping);
    }
    return record->has_stats ? stats_bad(&record->stats) : 0;
}

static bool is_before(int64_t step, uint64_t place, const spot *than)
{
    return !than->found || step < than->step || (step == than->step && place < than->place);
}

static tap_status first_find(tap_run *run, const tap_query *query, spot *first, uint64_t *bad, uint64_t *all, tap_error *err)
{
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_status status;
    int64_t step = -1;
    int32_t rank = -1;
    uint64_t place = 0;
    if ((status = tap_run_query(run, query, &cursor, err)) != TAP_OK)
        return status;
    while ((status = tap_cursor_next(cursor, &record, err)) == TAP_OK) {
        place = record.step == step && record.rank == rank ? place + 1 : 0;
        step = record.step;
        rank = record.rank;
        ++*all;
        if (!bad_values(run, &record))
            continue;
        ++*bad;
        if (is_before(step, place, first))
            spot_take(first, &record, place);
    }
    tap_cursor_close(cursor);
    return status == TAP_END ? TAP_OK : status;
}

typedef struct fed {
    spot last;         /* before it, without a bad value */
    unsigned inputs;   /* of its operation, all of them without one */
} fed;

/* Looks again at the records of that rank, now knowing what to look for. */
static tap_status fed_find(tap_run *run, const spot *first, fed *by, tap_error *err)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_status status;
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", first->rank);
    tap_query_init(&query);
    query.ranks = ranks;
    query.attempt = first->attempt;
    if ((status = tap_run_query(run, &query, &cursor, err)) != TAP_OK)
        return status;
    while ((status = tap_cursor_next(cursor, &record, err)) == TAP_OK && record.seq < first->seq) {
        if (bad_values(run, &record))
            continue;
        by->inputs += record.kind == TAP_KIND_INPUT && first->kind == TAP_KIND_OUTPUT && *first->module &&
                      record.step == first->step && record.call == first->call && strcmp(record.module, first->module) == 0;
        if (record_is_tensor(&record))
            spot_take(&by->last, &record, 0);
    }
    tap_cursor_close(cursor);
    return status == TAP_END || status == TAP_OK ? TAP_OK : status;
}

static void say_people(const spot *first, const fed *by, uint64_t bad, uint64_t all)
{
    char text[TEXT_MAX];
    say(stdout, "first NaN or Inf: %s %s, step %lld, rank %d", text_shown(first->label), tap_kind_name(first->kind),
        (long long)first->step, first->rank);
    if (*first->source && first->line > 0)
        printf(", %s:%d", text_shown(first->source), first->line);
    say(stdout, ": %s of %llu values; ", bad_text(text, &first->stats), (unsigned long long)first->stats.count);
    if (by->inputs)
        say(stdout, "its recorded inputs (%u) have none -> it was made here\n", by->inputs);
    else if (by->last.found)
        say(stdout, "%s before it has none\n", text_shown(by->last.label));
    else
        say(stdout, "nothing before it was recorded\n");
    say(stdout, "%llu of %llu records have NaN or Inf\n", (unsigned long long)bad, (unsigned long long)all);
}

static void say_json(const spot *first, const fed *by, uint64_t bad, uint64_t all)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "nan");
    json_uint(&json, "records", all);
    json_uint(&json, "bad_records", bad);
    json_text(&json, "first", first->label);
    if (first->found) {
        json_text(&json, "kind", tap_kind_name(first->kind));
        json_int(&json, "step", first->step);
        json_int(&json, "rank", first->rank);
        json_uint(&json, "call", first->call);
        json_text(&json, "source", *first->source ? first->source : NULL);
        json_int(&json, "line", first->line);
        json_uint(&json, "nan", first->stats.nan);
        json_uint(&json, "pos_inf", first->stats.pos_inf);
        json_uint(&json, "neg_inf", first->stats.neg_inf);
        json_text(&json, "before", by->last.label);
        json_uint(&json, "clean_inputs", by->inputs);
    }
    json_end(&json);
}

int cmd_nan(const cli *args)
{
    tap_run *run;
    tap_query query;
    tap_error err = {0};
    spot first = {.found = false};
    fed by = {.inputs = 0};
    uint64_t bad = 0, all = 0;
    char text[TEXT_MAX];
    int status = run_open(args, &run);
    if (status)
        return status;
    query_from(args, &query);
    tap_status got = first_find(run, &query, &first, &bad, &all, &err);
    if (got == TAP_OK && first.found)
        got = fed_find(run, &first, &by, &err);
    if (got != TAP_OK)
        status = trouble_error(args, &err);
    else if (args->json)
        say_json(&first, &by, bad, all);
    else if (first.found)
        say_people(&first, &by, bad, all);
    else
        say(stdout, "no NaN or Inf in %s\n", counted_text(text, all, N_("%llu record"), N_("%llu records")));
    if (!status && first.found)
        status = EXIT_DIFFERENT;
    spot_free(&first);
    spot_free(&by.last);
    tap_run_close(run);
    return status;
}
