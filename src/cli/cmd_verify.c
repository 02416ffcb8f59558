/* cmd_verify.c - what was asked for against what is on disk, and the reason for each difference. */
#include "keymap.h"
#include "records.h"
#include "table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One step of one rank. asked = kept + lost; what a rule left out was not asked for. */
typedef struct place {
    int32_t rank, attempt;
    int64_t step; /* -1: not of one step */
    uint64_t kept, lost, rules, damaged;
} place;

typedef struct finding {
    tap_problem_kind kind;
    int32_t rank, attempt;
    int64_t step;
    uint64_t count;
    char *label, *reason, *file;
} finding;

typedef struct verification {
    const cli *args;
    keymap numbers;
    place *places;
    size_t now;
    finding *findings;
    size_t finding_count, finding_cap;
    uint64_t others; /* differences that are neither loss nor rule */
    bool unknown;    /* a loss of which nobody knows how many saves it took */
    progress bar;
    char *file; /* looked for last */
    bool file_there;
} verification;

static place *place_of(verification *all, int32_t rank, int32_t attempt, int64_t step)
{
    if (all->now < all->numbers.count) {
        place *it = &all->places[all->now];
        if (it->rank == rank && it->attempt == attempt && it->step == step)
            return it;
    }
    char key[80];
    bool added;
    snprintf(key, sizeof key, "%d %d %" PRId64, rank, attempt, step);
    size_t number = keymap_add(&all->numbers, key, &added);
    if (added) {
        all->places = get_memory(all->places, all->numbers.cap * sizeof *all->places);
        all->places[number] = (place){.rank = rank, .attempt = attempt, .step = step};
    }
    all->now = number;
    return &all->places[number];
}

static char *label_of(const tap_problem *problem)
{
    size_t size = strlen(problem->name) + strlen(problem->path) + 3;
    char *label = get_memory(NULL, size);
    snprintf(label, size, *problem->path ? "%s[%s]" : "%s%s", problem->name, problem->path);
    return label;
}

static void take_problem(void *user, const tap_problem *problem)
{
    verification *all = user;
    place *at = place_of(all, problem->rank, problem->attempt, problem->step);
    if (problem->kind == TAP_PROBLEM_RULE)
        at->rules += problem->count;
    else if (tap_problem_is_loss(problem->kind))
        at->lost += problem->count;
    else
        all->others += problem->count;
    if (problem->kind == TAP_PROBLEM_CORRUPT)
        at->damaged += problem->count;
    all->unknown |= tap_problem_is_loss(problem->kind) && !problem->count && problem->kind != TAP_PROBLEM_UNFINISHED;
    if (all->finding_count == all->finding_cap) {
        all->finding_cap = all->finding_cap ? all->finding_cap * 2 : 16;
        all->findings = get_memory(all->findings, all->finding_cap * sizeof *all->findings);
    }
    all->findings[all->finding_count++] = (finding){
        .kind = problem->kind, .rank = problem->rank, .attempt = problem->attempt, .step = problem->step,
        .count = problem->count, .label = label_of(problem),
        .reason = copy_text(problem->reason, strlen(problem->reason)),
        .file = copy_text(problem->file, strlen(problem->file))};
}

static bool take_progress(void *user, uint64_t done, uint64_t total)
{
    verification *all = user;
    return progress_update(&all->bar, done, total);
}

/* A record may be listed by the index though its file is gone. */
static bool file_is_there(verification *all, const char *file)
{
    if (!*file || (all->file && strcmp(all->file, file) == 0))
        return all->file_there || !*file;
    size_t size = strlen(all->args->argument[0]) + strlen(file) + 2;
    char *path = get_memory(NULL, size);
    snprintf(path, size, "%s/%s", all->args->argument[0], file);
    all->file_there = access(path, F_OK) == 0 || access(all->args->argument[0], X_OK) != 0;
    free(path);
    free(all->file);
    all->file = copy_text(file, strlen(file));
    return all->file_there;
}

/* Counts the records that are there; those that were listed as whole and turned out not to be are taken away. */
static int count_kept(verification *all, tap_run *run)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {0};
    tap_query_init(&query);
    query.attempt = -2;
    if (tap_run_query(run, &query, &cursor, &err) != TAP_OK)
        return trouble_error(all->args, &err);
    tap_status status;
    while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK)
        if ((record.state == TAP_RECORD_WHOLE || record.state == TAP_RECORD_RULE) && file_is_there(all, record.file))
            place_of(all, record.rank, record.attempt, record.step)->kept++;
    tap_cursor_close(cursor);
    for (size_t i = 0; i < all->numbers.count; i++) {
        place *it = &all->places[i];
        it->kept -= it->damaged < it->kept ? it->damaged : it->kept;
    }
    return status == TAP_END ? EXIT_FINE : trouble_error(all->args, &err);
}

static int place_order(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->attempt != y->attempt)
        return x->attempt < y->attempt ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

/* --------------------------------------------------------------------------------------------------------- people */

static const column FINDINGS[] = {
    {N_("step"), '>', 0, 220}, {N_("rank"), '>', 0, 200},  {N_("attempt"), '>', 0, 100}, {N_("name"), '<', 20, 230},
    {N_("count"), '>', 0, 210}, {N_("what"), '<', 0, 240}, {N_("reason"), '<', 20, 255},
};

static void step_cell(table *rows, int64_t step)
{
    if (step < 0)
        table_cell(rows, STYLE_PLAIN, "-");
    else
        table_cellf(rows, STYLE_PLAIN, "%" PRId64, step);
}

static void print_findings(const verification *all, uint64_t limit)
{
    table *rows = table_new(FINDINGS, sizeof FINDINGS / sizeof FINDINGS[0]);
    size_t i;
    for (i = 0; i < all->finding_count && (!limit || i < limit); i++) {
        const finding *it = &all->findings[i];
        bool loss = tap_problem_is_loss(it->kind);
        step_cell(rows, it->step);
        table_cellf(rows, STYLE_PLAIN, "%d", it->rank);
        table_cellf(rows, STYLE_PLAIN, "%d", it->attempt);
        table_cell(rows, STYLE_CYAN, *it->label ? it->label : *it->file ? it->file : "-");
        table_cellf(rows, STYLE_PLAIN, "%" PRIu64, it->count);
        table_cell(rows, loss ? STYLE_RED : STYLE_YELLOW, tap_text(tap_problem_name(it->kind)));
        table_cell(rows, STYLE_PLAIN, it->reason);
        table_row(rows);
    }
    table_end(rows);
    if (i < all->finding_count)
        say(stdout, "and %zu more; --limit 0 prints all\n", all->finding_count - i);
    if (all->finding_count)
        fputc('\n', stdout);
}

static const column PLACES[] = {
    {N_("rank"), '>', 0, 255},      {N_("attempt"), '>', 0, 200},  {N_("step"), '>', 0, 255},
    {N_("asked for"), '>', 0, 255}, {N_("captured"), '>', 0, 255}, {N_("lost"), '>', 0, 255},
    {N_("by rule"), '>', 0, 150},
};

static void count_cells(table *rows, uint64_t kept, uint64_t lost, uint64_t rules)
{
    table_cellf(rows, STYLE_PLAIN, "%" PRIu64, kept + lost);
    table_cellf(rows, STYLE_PLAIN, "%" PRIu64, kept);
    table_cellf(rows, lost ? STYLE_RED : STYLE_GREEN, "%" PRIu64, lost);
    table_cellf(rows, STYLE_PLAIN, "%" PRIu64, rules);
    table_row(rows);
}

/* Every step with a difference (or every one, with --all), then the sum of each rank and attempt. */
static void print_places(const verification *all)
{
    bool every = all->args->value[OPT_ALL] != NULL;
    table *rows = table_new(PLACES, sizeof PLACES / sizeof PLACES[0]);
    size_t count = all->numbers.count;
    for (size_t i = 0, end; i < count; i = end) {
        const place *first = &all->places[i];
        uint64_t kept = 0, lost = 0, rules = 0;
        for (end = i; end < count && all->places[end].rank == first->rank && all->places[end].attempt == first->attempt;
             end++) {
            const place *it = &all->places[end];
            kept += it->kept;
            lost += it->lost;
            rules += it->rules;
            if (!every && !it->lost && !it->rules)
                continue;
            table_cellf(rows, STYLE_PLAIN, "%d", it->rank);
            table_cellf(rows, STYLE_PLAIN, "%d", it->attempt);
            step_cell(rows, it->step);
            count_cells(rows, it->kept, it->lost, it->rules);
        }
        table_cellf(rows, STYLE_BOLD, "%d", first->rank);
        table_cellf(rows, STYLE_PLAIN, "%d", first->attempt);
        table_cell(rows, STYLE_PLAIN, tap_text("all"));
        count_cells(rows, kept, lost, rules);
    }
    table_end(rows);
}

static void print_total(const verification *all, tap_run *run, const tap_verify_result *result)
{
    char records[TEXT_MAX], bytes[TEXT_MAX], ended[256];
    bool lost = result->lost > 0 || all->unknown;
    fputc('\n', stdout);
    counted_text(records, result->records, N_("%llu record"), N_("%llu records"));
    if (all->args->value[OPT_QUICK])
        say(stdout, "%s, %s not read; ", records, bytes_text(bytes, result->bytes));
    else
        say(stdout, "%s, %s read; ", records, bytes_text(bytes, result->bytes));
    fputs(term_style_begin(lost ? STYLE_RED : STYLE_GREEN), stdout);
    if (result->lost)
        say(stdout, "%llu lost", (unsigned long long)result->lost);
    else
        say(stdout, lost ? N_("something is missing") : N_("nothing lost"));
    fputs(term_style_end(STYLE_RED), stdout);
    if (result->not_named)
        say(stdout, " (%llu of which only the number is known)", (unsigned long long)result->not_named);
    if (result->rules)
        say(stdout, "; %llu left out by rules", (unsigned long long)result->rules);
    if (all->others)
        say(stdout, "; %llu that never came or never ran", (unsigned long long)all->others);
    if (*ended_text(run, ended, sizeof ended))
        say(stdout, "; %s", ended);
    fputc('\n', stdout);
}

/* ------------------------------------------------------------------------------------------------------- programs */

static void finding_json(const finding *it)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "problem");
    json_text(&json, "problem", tap_problem_name(it->kind));
    json_bool(&json, "loss", tap_problem_is_loss(it->kind));
    json_int(&json, "rank", it->rank);
    json_int(&json, "attempt", it->attempt);
    if (it->step < 0)
        json_null(&json, "step");
    else
        json_int(&json, "step", it->step);
    json_text(&json, "name", *it->label ? it->label : NULL);
    json_uint(&json, "count", it->count);
    json_text(&json, "file", *it->file ? it->file : NULL);
    json_text(&json, "reason", it->reason);
    json_end(&json);
}

static void place_json(const place *it)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "step");
    json_int(&json, "rank", it->rank);
    json_int(&json, "attempt", it->attempt);
    if (it->step < 0)
        json_null(&json, "step");
    else
        json_int(&json, "step", it->step);
    json_uint(&json, "asked_for", it->kept + it->lost);
    json_uint(&json, "captured", it->kept);
    json_uint(&json, "lost", it->lost);
    json_uint(&json, "by_rule", it->rules);
    json_end(&json);
}

static void attempts_json(tap_run *run)
{
    for (int i = 0; i < tap_run_attempt_count(run); i++) {
        tap_attempt it;
        tap_attempt_init(&it);
        jsonout json = {0};
        tap_run_attempt(run, i, &it);
        json_open(&json, NULL, '{');
        json_text(&json, "type", "attempt");
        json_int(&json, "rank", it.rank);
        json_int(&json, "attempt", it.attempt);
        json_int(&json, "child", it.child);
        json_int(&json, "pid", it.pid);
        json_text(&json, "host", it.host);
        json_text(&json, "ended", it.ended);
        json_uint(&json, "started_ns", it.started_ns);
        json_uint(&json, "ended_ns", it.ended_ns);
        json_uint(&json, "records", it.records);
        json_uint(&json, "bytes", it.bytes);
        json_text(&json, "files", it.files);
        json_end(&json);
    }
}

static void result_json(const verification *all, tap_run *run, const tap_verify_result *result)
{
    for (size_t i = 0; i < all->finding_count; i++)
        finding_json(&all->findings[i]);
    for (size_t i = 0; i < all->numbers.count; i++)
        if (all->args->value[OPT_ALL] || all->places[i].lost || all->places[i].rules)
            place_json(&all->places[i]);
    attempts_json(run);
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "total");
    json_uint(&json, "records", result->records);
    json_uint(&json, "bytes", result->bytes);
    json_uint(&json, "lost", result->lost);
    json_uint(&json, "by_rule", result->rules);
    json_uint(&json, "not_named", result->not_named);
    json_bool(&json, "quick", all->args->value[OPT_QUICK] != NULL);
    json_end(&json);
}

static void verification_free(verification *all)
{
    for (size_t i = 0; i < all->finding_count; i++) {
        free(all->findings[i].label);
        free(all->findings[i].reason);
        free(all->findings[i].file);
    }
    free(all->findings);
    free(all->file);
    free(all->places);
    keymap_free(&all->numbers);
}

static int verify_run(verification *all, tap_run *run)
{
    const cli *args = all->args;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_error err = {0};
    tap_verify_options_init(&options);
    options.quick = args->value[OPT_QUICK] != NULL;
    options.rules = args->value[OPT_RULES] != NULL;
    options.on_problem = take_problem;
    options.on_progress = take_progress;
    options.user = all;
    interrupt_catch();
    progress_start(&all->bar, tap_text("verifying"), true);
    tap_status status = tap_run_verify(run, &options, &result, &err);
    progress_clear();
    interrupt_finish();
    if (status != TAP_OK && status != TAP_E_LOST)
        return trouble_error(args, &err);
    int counted = count_kept(all, run);
    if (counted)
        return counted;
    if (all->numbers.count)
        qsort(all->places, all->numbers.count, sizeof *all->places, place_order);
    if (args->json) {
        result_json(all, run, &result);
    } else {
        print_findings(all, (uint64_t)args_number(args, OPT_LIMIT, 100));
        print_places(all);
        print_total(all, run, &result);
    }
    return status == TAP_OK ? EXIT_FINE : EXIT_DIFFERENT;
}

int cmd_verify(const cli *args)
{
    verification all = {.args = args};
    tap_run *run;
    int status = run_open(args, &run);
    if (status)
        return status;
    status = verify_run(&all, run);
    verification_free(&all);
    tap_run_close(run);
    return status;
}
