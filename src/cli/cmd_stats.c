/* cmd_stats.c - each name over the steps, and the health of each step. */
#include "chart.h"
#include "keymap.h"
#include "records.h"
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct point {
    int64_t step;
    double norm;
} point;

typedef struct name_row {
    char *label;
    tap_kind kind;
    uint64_t records, without_stats, bad_records, nan, inf;
    double min, max, mean_sum, norm_min, norm_max;
    int64_t bad_step;
    point *points;
    size_t point_count, point_cap;
} name_row;

typedef struct step_row {
    int64_t step;
    uint64_t records, bad_records, nan, inf;
    char *bad_label; /* of the first bad record */
    int32_t bad_rank;
} step_row;

typedef struct summary {
    keymap name_numbers, step_numbers;
    name_row *names;
    step_row *steps;
    size_t step_now;
    char *label, *key;
    size_t label_cap, key_cap;
} summary;

static void row_take(name_row *row, const tap_record *record)
{
    const tap_stats *stats = &record->stats;
    row->records++;
    if (!record_has_numbers(record)) {
        row->without_stats++;
        return;
    }
    double min = number_real(record->dtype, stats->min), max = number_real(record->dtype, stats->max);
    row->min = fmin(row->min, min);
    row->max = fmax(row->max, max);
    row->mean_sum += stats->mean;
    row->norm_min = fmin(row->norm_min, stats->norm);
    row->norm_max = fmax(row->norm_max, stats->norm);
    row->nan += stats->nan;
    row->inf += stats->pos_inf + stats->neg_inf;
    bool bad = stats_bad(stats) > 0;
    if (bad && (row->bad_records == 0 || record->step < row->bad_step))
        row->bad_step = record->step;
    row->bad_records += bad;
    if (row->point_count == row->point_cap) {
        row->point_cap = row->point_cap ? row->point_cap * 2 : 8;
        row->points = get_memory(row->points, row->point_cap * sizeof *row->points);
    }
    row->points[row->point_count++] = (point){record->step, bad ? NAN : stats->norm};
}

static name_row *name_of(summary *all, const tap_record *record)
{
    const char *label = record_label(record, &all->label, &all->label_cap);
    size_t need = strlen(label) + 16;
    if (need > all->key_cap) {
        all->key_cap = need * 2;
        all->key = get_memory(all->key, all->key_cap);
    }
    snprintf(all->key, all->key_cap, "%d %s", (int)record->kind, label);
    bool added;
    size_t number = keymap_add(&all->name_numbers, all->key, &added);
    if (added) {
        all->names = get_memory(all->names, all->name_numbers.cap * sizeof *all->names);
        all->names[number] = (name_row){.label = copy_text(label, strlen(label)), .kind = record->kind, .min = NAN,
                                        .max = NAN, .norm_min = NAN, .norm_max = NAN};
    }
    return &all->names[number];
}

static step_row *step_of(summary *all, int64_t step)
{
    if (all->step_now < all->step_numbers.count && all->steps[all->step_now].step == step)
        return &all->steps[all->step_now];
    char key[32];
    bool added;
    snprintf(key, sizeof key, "%" PRId64, step);
    size_t number = keymap_add(&all->step_numbers, key, &added);
    if (added) {
        all->steps = get_memory(all->steps, all->step_numbers.cap * sizeof *all->steps);
        all->steps[number] = (step_row){.step = step};
    }
    all->step_now = number;
    return &all->steps[number];
}

static void summary_take(summary *all, const tap_record *record)
{
    row_take(name_of(all, record), record);
    step_row *step = step_of(all, record->step);
    step->records++;
    if (!record->has_stats || !stats_bad(&record->stats))
        return;
    if (step->bad_records++ == 0) {
        step->bad_label = copy_text(all->label, strlen(all->label));
        step->bad_rank = record->rank;
    }
    step->nan += record->stats.nan;
    step->inf += record->stats.pos_inf + record->stats.neg_inf;
}

static void summary_free(summary *all)
{
    for (size_t i = 0; i < all->name_numbers.count; i++) {
        free(all->names[i].label);
        free(all->names[i].points);
    }
    for (size_t i = 0; i < all->step_numbers.count; i++)
        free(all->steps[i].bad_label);
    free(all->names);
    free(all->steps);
    free(all->label);
    free(all->key);
    keymap_free(&all->name_numbers);
    keymap_free(&all->step_numbers);
}

static int point_order(const void *a, const void *b)
{
    int64_t x = ((const point *)a)->step, y = ((const point *)b)->step;
    return x < y ? -1 : x > y;
}

static int step_order(const void *a, const void *b)
{
    int64_t x = ((const step_row *)a)->step, y = ((const step_row *)b)->step;
    return x < y ? -1 : x > y;
}

/* The norm of each step, averaged over ranks and calls; returns the number of steps. norms has point_count places. */
static size_t norms_by_step(name_row *row, double *norms)
{
    size_t steps = 0;
    if (row->point_count)
        qsort(row->points, row->point_count, sizeof *row->points, point_order);
    for (size_t i = 0, end; i < row->point_count; i = end) {
        double sum = 0;
        for (end = i; end < row->point_count && row->points[end].step == row->points[i].step; end++)
            sum += row->points[end].norm;
        norms[steps++] = sum / (double)(end - i);
    }
    return steps;
}

static double mean_of(const name_row *row)
{
    uint64_t count = row->records - row->without_stats;
    return count ? row->mean_sum / (double)count : NAN;
}

/* --------------------------------------------------------------------------------------------------------- people */

static const column COLUMNS[] = {
    {N_("name"), '<', 20, 255},     {N_("kind"), '<', 0, 120},     {N_("records"), '>', 0, 150},
    {N_("steps"), '>', 0, 110},     {N_("min"), '>', 0, 170},      {N_("max"), '>', 0, 171},
    {N_("mean"), '>', 0, 140},      {N_("norm from"), '>', 0, 180}, {N_("to"), '>', 0, 181},
    {N_("nan/inf since"), '>', 0, 250}, {N_("norm over steps"), '<', 0, 200},
};

static void print_name(table *rows, name_row *row)
{
    char text[TEXT_MAX], spark[SPARK_MAX * 3 + 1];
    double *norms = get_memory(NULL, (row->point_count + 1) * sizeof *norms);
    size_t steps = norms_by_step(row, norms);
    chart_spark(spark, norms, steps);
    free(norms);
    bool known = row->records > row->without_stats;
    table_cell(rows, row->bad_records ? STYLE_RED : STYLE_CYAN, row->label);
    table_cell(rows, STYLE_PLAIN, tap_kind_name(row->kind));
    table_cellf(rows, STYLE_PLAIN, "%" PRIu64, row->records);
    table_cellf(rows, STYLE_PLAIN, "%zu", steps);
    table_cell(rows, STYLE_PLAIN, known ? real_text(text, row->min) : "");
    table_cell(rows, STYLE_PLAIN, known ? real_text(text, row->max) : "");
    table_cell(rows, STYLE_PLAIN, known ? real_text(text, mean_of(row)) : "");
    table_cell(rows, STYLE_PLAIN, known ? real_text(text, row->norm_min) : "");
    table_cell(rows, STYLE_PLAIN, known ? real_text(text, row->norm_max) : "");
    if (row->bad_records)
        table_cellf(rows, STYLE_RED, tap_text("step %lld"), (long long)row->bad_step);
    else
        table_cell(rows, STYLE_PLAIN, "");
    table_cell(rows, STYLE_PLAIN, spark);
    table_row(rows);
}

/* One character a step, or a group of steps where there are too many. */
static void print_strip(const summary *all)
{
    enum { STRIP = 60 };
    size_t count = all->step_numbers.count, cells = count < STRIP ? count : STRIP;
    fputs("  ", stdout);
    for (size_t i = 0; i < cells; i++) {
        bool bad = false;
        for (size_t k = i * count / cells; k < (i + 1) * count / cells; k++)
            bad |= all->steps[k].bad_records > 0;
        term_print(stdout, bad ? STYLE_RED : STYLE_GREEN, bad ? "!" : term_utf8() ? "·" : ".");
    }
    fputc('\n', stdout);
}

static void print_health(const summary *all)
{
    enum { LISTED = 10 };
    char steps[TEXT_MAX];
    size_t bad = 0, listed = 0, count = all->step_numbers.count;
    for (size_t i = 0; i < count; i++)
        bad += all->steps[i].bad_records > 0;
    fputc('\n', stdout);
    if (bad)
        say(stdout, "health: %zu of %zu steps have NaN or Inf\n", bad, count);
    else
        say(stdout, "health: no NaN or Inf in %s\n", counted_text(steps, count, N_("%llu step"), N_("%llu steps")));
    print_strip(all);
    for (size_t i = 0; i < count && listed < LISTED; i++) {
        const step_row *step = &all->steps[i];
        if (!step->bad_records)
            continue;
        listed++;
        say(stdout, "  step %lld: %llu of %llu records; first %s on rank %d\n", (long long)step->step,
            (unsigned long long)step->bad_records, (unsigned long long)step->records, text_shown(step->bad_label),
            step->bad_rank);
    }
    if (bad > listed)
        say(stdout, "  and %zu more steps\n", bad - listed);
}

static void summary_print(summary *all)
{
    table *rows = table_new(COLUMNS, sizeof COLUMNS / sizeof COLUMNS[0]);
    for (size_t i = 0; i < all->name_numbers.count; i++)
        print_name(rows, &all->names[i]);
    table_end(rows);
    print_health(all);
}

/* ------------------------------------------------------------------------------------------------------- programs */

static void name_json(name_row *row)
{
    jsonout json = {0};
    double *norms = get_memory(NULL, (row->point_count + 1) * sizeof *norms);
    size_t steps = norms_by_step(row, norms);
    json_open(&json, NULL, '{');
    json_text(&json, "type", "name");
    json_text(&json, "name", row->label);
    json_text(&json, "kind", tap_kind_name(row->kind));
    json_uint(&json, "records", row->records);
    json_uint(&json, "steps", steps);
    json_real(&json, "min", row->min);
    json_real(&json, "max", row->max);
    json_real(&json, "mean", mean_of(row));
    json_real(&json, "norm_min", row->norm_min);
    json_real(&json, "norm_max", row->norm_max);
    json_uint(&json, "nan", row->nan);
    json_uint(&json, "inf", row->inf);
    if (row->bad_records)
        json_int(&json, "first_bad_step", row->bad_step);
    else
        json_null(&json, "first_bad_step");
    json_open(&json, "norms", '[');
    for (size_t i = 0; i < steps; i++)
        json_real(&json, NULL, norms[i]);
    json_close(&json, ']');
    json_end(&json);
    free(norms);
}

static void step_json(const step_row *step)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "step");
    json_int(&json, "step", step->step);
    json_uint(&json, "records", step->records);
    json_uint(&json, "bad_records", step->bad_records);
    json_uint(&json, "nan", step->nan);
    json_uint(&json, "inf", step->inf);
    json_text(&json, "first_bad_name", step->bad_label);
    if (step->bad_label)
        json_int(&json, "first_bad_rank", step->bad_rank);
    else
        json_null(&json, "first_bad_rank");
    json_end(&json);
}

static void summary_json(summary *all)
{
    for (size_t i = 0; i < all->name_numbers.count && !output_gone(); i++)
        name_json(&all->names[i]);
    for (size_t i = 0; i < all->step_numbers.count && !output_gone(); i++)
        step_json(&all->steps[i]);
}

static int summary_read(const cli *args, tap_run *run, summary *all)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {0};
    uint64_t total = 0, done = 0;
    query_from(args, &query);
    if (tap_run_count(run, &query, &total, &err) != TAP_OK || tap_run_query(run, &query, &cursor, &err) != TAP_OK)
        return trouble_error(args, &err);
    progress bar;
    tap_status status;
    progress_start(&bar, tap_text("reading"), false);
    while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK) {
        summary_take(all, &record);
        if (++done % 1024 == 0)
            progress_update(&bar, done, total);
    }
    progress_clear();
    tap_cursor_close(cursor);
    return status == TAP_END ? EXIT_FINE : trouble_error(args, &err);
}

int cmd_stats(const cli *args)
{
    tap_run *run;
    summary all = {.names = NULL};
    int status = run_open(args, &run);
    if (status)
        return status;
    status = summary_read(args, run, &all);
    if (!status && all.name_numbers.count == 0 && query_filters(args))
        status = nothing_matched(args, run, args->value[OPT_NAME]);
    if (!status && all.step_numbers.count)
        qsort(all.steps, all.step_numbers.count, sizeof *all.steps, step_order);
    if (!status && args->json)
        summary_json(&all);
    else if (!status)
        summary_print(&all);
    summary_free(&all);
    tap_run_close(run);
    return status;
}
