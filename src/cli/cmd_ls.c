/* cmd_ls.c - lists records, once or while they come. */
#include "records.h"
#include "table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const column COLUMNS[] = {
    {N_("attempt"), '>', 0, 195},
    {N_("step"), '>', 0, 240}, {N_("rank"), '>', 0, 200},  {N_("name"), '<', 24, 255}, {N_("call"), '>', 0, 90},
    {N_("kind"), '<', 0, 150}, {N_("dtype"), '<', 0, 230}, {N_("shape"), '<', 10, 235}, {N_("min"), '>', 0, 130},
    {N_("max"), '>', 0, 131},  {N_("mean"), '>', 0, 110},  {N_("norm"), '>', 0, 140},  {N_("nan/inf"), '<', 0, 250},
    {N_("size"), '>', 0, 120}, {N_("state"), '<', 0, 160}, {N_("time"), '<', 0, 180},  {N_("source"), '<', 14, 220},
    {N_("module"), '<', 12, 190}, {N_("hash"), '<', 0, 170},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof COLUMNS[0], SHORT_COUNT = COLUMN_COUNT - 4 };

/* The newest record seen of one writer: in follow mode what comes after it is new. */
typedef struct seen {
    int32_t rank, attempt, child;
    uint64_t seq;
} seen;

typedef struct listing {
    const cli *args;
    tap_run *run;
    table *rows; /* NULL: JSON */
    bool details, attempts;
    uint64_t limit, printed, matched, bytes, bad_records;
    number_set steps, ranks;
    char *label;
    size_t label_cap;
    seen *last;
    size_t last_count, last_now;
} listing;

/* Remembers the record; false when it was seen before. */
static bool is_new(listing *list, const tap_record *record)
{
    size_t i = list->last_now;
    seen *at = i < list->last_count ? &list->last[i] : NULL;
    if (!at || at->rank != record->rank || at->attempt != record->attempt || at->child != record->child) {
        for (i = 0; i < list->last_count; i++) {
            at = &list->last[i];
            if (at->rank == record->rank && at->attempt == record->attempt && at->child == record->child)
                break;
        }
        if (i == list->last_count) {
            list->last = get_memory(list->last, (list->last_count + 1) * sizeof *list->last);
            list->last[list->last_count++] = (seen){record->rank, record->attempt, record->child, record->seq};
            list->last_now = i;
            return true;
        }
        list->last_now = i;
    }
    if (record->seq <= at->seq)
        return false;
    at->seq = record->seq;
    return true;
}

/* As number_text, short: nobody compares sixteen digits in a list. */
static const char *short_number(char text[TEXT_MAX], tap_dtype dtype, tap_number number)
{
    double real = number_real(dtype, number);
    return real > -1e7 && real < 1e7 ? number_text(text, dtype, number) : real_text(text, real);
}

static void stats_cells(table *rows, const tap_record *record)
{
    char text[TEXT_MAX];
    const tap_stats *stats = &record->stats;
    if (!record_has_numbers(record)) {
        for (int i = 0; i < 5; i++)
            table_cell(rows, STYLE_PLAIN, "");
        return;
    }
    table_cell(rows, STYLE_PLAIN, short_number(text, record->dtype, stats->min));
    table_cell(rows, STYLE_PLAIN, short_number(text, record->dtype, stats->max));
    table_cell(rows, STYLE_PLAIN, real_text(text, stats->mean));
    table_cell(rows, STYLE_PLAIN, real_text(text, stats->norm));
    table_cell(rows, STYLE_RED, bad_text(text, stats));
}

static void detail_cells(table *rows, const tap_record *record)
{
    char text[TEXT_MAX], *place = NULL;
    table_cell(rows, STYLE_DIM, time_text(text, record->time_ns));
    if (*record->source && record->line > 0) {
        size_t size = strlen(record->source) + 16;
        place = get_memory(NULL, size);
        snprintf(place, size, "%s:%d", record->source, record->line);
    }
    table_cell(rows, STYLE_PLAIN, place ? place : record->source);
    free(place);
    table_cell(rows, STYLE_PLAIN, record->module);
    if (record->has_hash)
        table_cellf(rows, STYLE_DIM, "%016" PRIx64, record->hash);
}

static void print_row(listing *list, const tap_record *record)
{
    table *rows = list->rows;
    char text[TEXT_MAX], shape[24 * TAP_MAX_NDIM];
    const tap_dtype_info *dtype = tap_dtype_describe(record->dtype);
    bool bad = record->has_stats && stats_bad(&record->stats);
    if (list->attempts)
        table_cellf(rows, STYLE_PLAIN, "%d", record->attempt);
    table_cellf(rows, STYLE_PLAIN, "%" PRId64, record->step);
    table_cellf(rows, STYLE_PLAIN, "%d", record->rank);
    table_cell(rows, bad || state_is_bad(record->state) ? STYLE_RED : STYLE_CYAN,
               record_label(record, &list->label, &list->label_cap));
    table_cellf(rows, STYLE_PLAIN, "%u", record->call);
    table_cell(rows, STYLE_PLAIN, tap_kind_name(record->kind));
    bool has_dtype = record_is_tensor(record) && dtype;
    table_cell(rows, STYLE_PLAIN,
               has_dtype ? dtype->name : record_is_tensor(record) ? "-" : value_type_name(record->value_type));
    table_cell(rows, STYLE_PLAIN, has_dtype ? shape_text(shape, sizeof shape, record->shape, record->ndim) : "");
    stats_cells(rows, record);
    table_cell(rows, STYLE_PLAIN, record->payload_bytes ? bytes_text(text, record->payload_bytes) : "-");
    /* on a terminal the column goes away where all is well */
    bool silent = record->state == TAP_RECORD_WHOLE && term_is_terminal();
    table_cell(rows, state_is_bad(record->state) ? STYLE_RED : STYLE_PLAIN, silent ? "" : state_text(record->state));
    if (list->details)
        detail_cells(rows, record);
    table_row(rows);
}

static void print_record(listing *list, const tap_record *record)
{
    list->printed++;
    list->bytes += record->payload_bytes;
    list->bad_records += record->has_stats && stats_bad(&record->stats);
    set_add(&list->steps, record->step);
    set_add(&list->ranks, record->rank);
    if (list->rows) {
        print_row(list, record);
        return;
    }
    jsonout json = {0};
    json_open(&json, NULL, '{');
    record_json(&json, record);
    json_end(&json);
}

/* Prints what is new since the last time. */
static int list_records(listing *list, bool follow)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {0};
    query_from(list->args, &query);
    query.incomplete = true;
    if (tap_run_query(list->run, &query, &cursor, &err) != TAP_OK)
        return trouble_error(list->args, &err);
    tap_status status = TAP_OK;
    while (!output_gone() && !interrupted() && (status = tap_cursor_next(cursor, &record, &err)) == TAP_OK) {
        if (follow && !is_new(list, &record))
            continue;
        if (list->matched++ == list->limit && list->limit)
            break;
        print_record(list, &record);
    }
    tap_cursor_close(cursor);
    if (status != TAP_OK && status != TAP_END)
        return trouble_error(list->args, &err);
    return EXIT_FINE;
}

static bool limit_reached(const listing *list)
{
    return list->limit && list->matched >= list->limit;
}

static void pause_ms(uint64_t ms)
{
    struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static int follow_records(listing *list)
{
    uint64_t wait_ms = 100;
    for (;;) {
        bool more = false, live = false;
        tap_error err = {0};
        fflush(stdout);
        if (limit_reached(list) || output_gone() || interrupted())
            return EXIT_FINE;
        pause_ms(wait_ms);
        if (tap_run_refresh(list->run, &more, &live, &err) != TAP_OK)
            return trouble_error(list->args, &err);
        if (more) {
            uint64_t before = clock_ns();
            int status = list_records(list, true);
            if (status)
                return status;
            if (list->rows)
                table_flush(list->rows);
            /* looking again costs more the longer the recording is: rest four times as long as it took */
            wait_ms = (clock_ns() - before) / 1000000u * 4 + 100;
        }
        if (!live)
            return EXIT_FINE;
    }
}

static void print_summary(const listing *list, int hidden)
{
    char records[TEXT_MAX], bytes[TEXT_MAX], ranks[TEXT_MAX], steps[TEXT_MAX], ended[256];
    fputc('\n', stdout);
    say(stdout, "%s, %s, %s, %s", counted_text(records, list->printed, N_("%llu record"), N_("%llu records")),
           bytes_text(bytes, list->bytes), counted_text(ranks, list->ranks.count, N_("%llu rank"), N_("%llu ranks")),
           counted_text(steps, list->steps.count, N_("%llu step"), N_("%llu steps")));
    if (list->steps.count == 1)
        printf(" (%" PRId64 ")", list->steps.min);
    else if (list->steps.count)
        printf(" (%" PRId64 "-%" PRId64 ")", list->steps.min, list->steps.max);
    if (list->bad_records) {
        fputs(term_style_begin(STYLE_RED), stdout);
        say(stdout, "; %llu with NaN or Inf", (unsigned long long)list->bad_records);
        fputs(term_style_end(STYLE_RED), stdout);
    }
    if (*ended_text(list->run, ended, sizeof ended))
        say(stdout, "; %s", ended);
    fputc('\n', stdout);
    if (list->limit && list->matched > list->limit)
        say(stdout, "there are more; --limit %llu ended the list\n", (unsigned long long)list->limit);
    if (hidden)
        say(stdout, "%d columns have no room here: widen the terminal, or pipe to less -S\n", hidden);
}

int cmd_ls(const cli *args)
{
    listing list = {.args = args, .details = args->value[OPT_LONG] != NULL,
                    .limit = (uint64_t)args_number(args, OPT_LIMIT, 0)};
    bool follow = args->value[OPT_FOLLOW] != NULL;
    int status = run_open(args, &list.run);
    if (status)
        return status;
    list.attempts = args->value[OPT_ATTEMPT] != NULL;
    int first = list.attempts ? 0 : 1;
    if (!args->json)
        list.rows = table_new(COLUMNS + first, (list.details ? COLUMN_COUNT : SHORT_COUNT) - first);
    if (follow)
        interrupt_catch();
    status = list_records(&list, follow);
    if (list.rows && follow)
        table_flush(list.rows);
    if (!status && follow)
        status = follow_records(&list);
    int hidden = 0;
    if (list.rows) {
        table_flush(list.rows);
        hidden = table_hidden(list.rows);
        table_end(list.rows);
    }
    if (!status && list.printed == 0 && query_filters(args))
        status = nothing_matched(args, list.run, args->value[OPT_NAME]);
    else if (!status && !args->json)
        print_summary(&list, hidden);
    set_free(&list.steps);
    set_free(&list.ranks);
    free(list.label);
    free(list.last);
    tap_run_close(list.run);
    return status;
}
