/* cmd_compare.c - compare and repeat: two recordings, or the kept result of comparing them. */
#include "jsonout.h"
#include "matches.h"
#include "records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------------- options */

/* Lines of a text as an array, in one block that is the caller's to free. */
static char **lines_of(const char *text, size_t *count)
{
    size_t len = text ? strlen(text) : 0, lines = 0;
    *count = 0;
    if (!text)
        return NULL;
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        lines++;
    char **list = get_memory(NULL, lines * sizeof *list + len + 1);
    char *copy = (char *)(list + lines);
    memcpy(copy, text, len + 1);
    for (char *at = copy; at;) {
        char *end = strchr(at, '\n');
        list[(*count)++] = at;
        if (end)
            *end = 0;
        at = end ? end + 1 : NULL;
    }
    return list;
}

/* "A:B": steps from A on, shifted by B - A. steps has room for the text of a number and "-". */
static int steps_parse(const cli *args, char steps[32], tap_compare_options *options)
{
    const char *text = args->value[OPT_STEPS];
    char *end = NULL;
    if (!text)
        return EXIT_FINE;
    long long a = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    long long b = end && *end == ':' && end[1] >= '0' && end[1] <= '9' ? strtoll(end + 1, &end, 10) : -1;
    if (a < 0 || b < 0 || *end || a > INT32_MAX || b > INT32_MAX)
        return trouble_usage(args->command, "--steps %s: expected A:B, such as 0:100", text_shown(text));
    options->shift = b - a;
    if (!args->value[OPT_STEP]) {
        snprintf(steps, 32, "%lld-", a);
        options->steps = steps;
    }
    return EXIT_FINE;
}

typedef struct wanted {
    tap_compare_options options;
    char steps[32];
    char **rules, **noise;
    progress bar;
} wanted;

static int options_from(const cli *args, bool exact, wanted *w)
{
    tap_query query;
    query_from(args, &query);
    tap_compare_options_init(&w->options);
    w->options.name = query.name;
    w->options.ranks = query.ranks;
    w->options.steps = query.steps;
    w->options.kind = query.kind;
    w->options.exact = exact;
    w->options.allow = args->value[OPT_ALLOW];
    w->options.precision = args->value[OPT_PRECISION];
    w->options.output = args->value[OPT_OUTPUT];
    w->options.threads = (int)args_number(args, OPT_THREADS, 0) & 0xFFFF;
    w->rules = lines_of(args->value[OPT_TOL], &w->options.rule_count);
    w->noise = lines_of(args->value[OPT_NOISE], &w->options.noise_count);
    w->options.rules = (const char *const *)w->rules;
    w->options.noise = (const char *const *)w->noise;
    w->options.on_progress = progress_step;
    w->options.user = &w->bar;
    return steps_parse(args, w->steps, &w->options);
}

/* --------------------------------------------------------------------------------------------------------- people */

static void print_counts(const tap_comparison_summary *sum)
{
    static const char SIDES[] = "AB";
    char text[TEXT_MAX];
    for (int side = 0; side < 2; side++)
        printf("%c  %s (%s), %s\n", SIDES[side], text_shown(sum->path[side]), text_shown(sum->layout[side]),
               counted_text(text, sum->records[side], N_("%llu record"), N_("%llu records")));
    bool more = false;
    for (int what = 0; what < TAP_MATCH_COUNT; what++) {
        if (!sum->classes[what])
            continue;
        tap_match match = {.what = (tap_match_class)what};
        printf("%s", more ? ", " : "");
        term_print(stdout, match_class_style(&match), match_class_text((tap_match_class)what));
        printf(" %" PRIu64, sum->classes[what]);
        more = true;
    }
    fputc('\n', stdout);
    if (sum->allowed)
        say(stdout, "%llu of them allowed\n", (unsigned long long)sum->allowed);
    if (sum->by_stats)
        say(stdout, "%llu compared by statistics only, since their bytes were not kept\n",
            (unsigned long long)sum->by_stats);
}

static void print_verdict(const tap_verdict *verdict)
{
    term_print(stdout, verdict->first >= 0 ? STYLE_RED : verdict->differs ? STYLE_YELLOW : STYLE_GREEN,
               text_shown(verdict->text));
    fputs("\n\n", stdout);
}

/* ------------------------------------------------------------------------------------------------------- programs */

static void summary_json(const tap_comparison_summary *sum)
{
    static const char *const ORDERS[] = {"none", "forward", "exact"};
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "summary");
    json_text(&json, "a", sum->path[0]);
    json_text(&json, "b", sum->path[1]);
    json_text(&json, "layout_a", sum->layout[0]);
    json_text(&json, "layout_b", sum->layout[1]);
    json_text(&json, "order", (size_t)sum->order < 3 ? ORDERS[sum->order] : NULL);
    json_uint(&json, "records_a", sum->records[0]);
    json_uint(&json, "records_b", sum->records[1]);
    json_open(&json, "classes", '{');
    for (int what = 0; what < TAP_MATCH_COUNT; what++)
        json_uint(&json, tap_match_class_name((tap_match_class)what), sum->classes[what]);
    json_close(&json, '}');
    json_uint(&json, "allowed", sum->allowed);
    json_uint(&json, "by_stats", sum->by_stats);
    json_uint(&json, "unread", sum->unread);
    json_uint(&json, "bytes", sum->bytes);
    json_real(&json, "factor", sum->factor);
    json_end(&json);
}

static void id_json(jsonout *json, const char *key, int64_t id)
{
    if (id >= 0)
        json_int(json, key, id);
    else
        json_null(json, key);
}

static void verdict_json(const tap_verdict *verdict)
{
    static const char *const BLAMES[] = {"none", "unordered", "between", "operation", "input", "first"};
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "verdict");
    json_bool(&json, "differs", verdict->differs);
    json_text(&json, "blame", (size_t)verdict->blame < 6 ? BLAMES[verdict->blame] : NULL);
    id_json(&json, "first", verdict->first);
    id_json(&json, "before", verdict->before);
    json_uint(&json, "inputs", verdict->inputs);
    json_uint(&json, "inputs_agree", verdict->inputs_agree);
    json_uint(&json, "weights", verdict->weights);
    json_uint(&json, "weights_agree", verdict->weights_agree);
    json_text(&json, "text", verdict->text);
    json_end(&json);
}

/* ---------------------------------------------------------------------------------------------------------- listing */

typedef struct listing {
    const cli *args;
    table *rows; /* NULL: for programs */
    uint64_t shown, more, limit;
} listing;

static void list_one(listing *list, const tap_match *match)
{
    if (list->limit && list->shown == list->limit) {
        list->more++;
        return;
    }
    list->shown++;
    if (list->rows)
        match_row(list->rows, match);
    else if (list->args->json)
        match_json(match);
    else
        match_csv(match);
}

static int list_matches(const cli *args, tap_comparison *comparison, tap_error *err)
{
    bool people = !args->json && !args->value[OPT_CSV];
    listing list = {.args = args, .limit = (uint64_t)args_number(args, OPT_LIMIT, people && !args->value[OPT_ALL] ? 20 : 0)};
    tap_match_query query;
    tap_match_cursor *cursor;
    tap_match match;
    tap_match_query_init(&query);
    tap_match_init(&match);
    if (!args->value[OPT_ALL] && people)
        query.classes = ~0u << TAP_MATCH_DRIFT;
    if (tap_comparison_query(comparison, &query, &cursor, err) != TAP_OK)
        return EXIT_TROUBLE;
    list.rows = people ? table_new(MATCH_COLUMNS, MATCH_COLUMN_COUNT) : NULL;
    if (args->value[OPT_CSV] && !args->json)
        match_csv_titles();
    tap_status status;
    while (!output_gone() && (status = tap_match_cursor_next(cursor, &match, err)) == TAP_OK)
        list_one(&list, &match);
    tap_match_cursor_close(cursor);
    if (list.rows)
        table_end(list.rows);
    if (list.more && people)
        say(stdout, "and %llu more; --limit 0 prints all\n", (unsigned long long)list.more);
    return output_gone() || status == TAP_END ? EXIT_FINE : EXIT_TROUBLE;
}

static int say_all(const cli *args, tap_comparison *comparison)
{
    tap_comparison_summary sum;
    tap_verdict verdict;
    tap_error err = {0};
    char text[TEXT_MAX];
    tap_comparison_summary_init(&sum);
    tap_verdict_init(&verdict);
    if (tap_comparison_summarise(comparison, &sum, &err) != TAP_OK ||
        tap_comparison_verdict(comparison, &verdict, &err) != TAP_OK)
        return trouble_error(args, &err);
    if (!sum.records[0] && !sum.records[1]) {
        trouble(args, "there was nothing to compare");
        return EXIT_DIFFERENT;
    }
    if (args->json) {
        verdict_json(&verdict);
        summary_json(&sum);
    } else if (!args->value[OPT_CSV]) {
        print_verdict(&verdict);
        print_counts(&sum);
    }
    if (list_matches(args, comparison, &err) != EXIT_FINE)
        return trouble_error(args, &err);
    if (sum.unread)
        return trouble(args, "%s could not be read; the remarks say why",
                       counted_text(text, sum.unread, N_("%llu record"), N_("%llu records")));
    return verdict.differs ? EXIT_DIFFERENT : EXIT_FINE;
}

/* ---------------------------------------------------------------------------------------------------------- running */

static int run_compare(const cli *args, bool exact, tap_comparison **out)
{
    wanted w = {.rules = NULL};
    tap_error err = {0};
    int status = options_from(args, exact, &w);
    if (!status) {
        interrupt_catch();
        progress_start(&w.bar, tap_text("comparing"), false);
        if (tap_compare_run(args->argument[0], args->argument[1], &w.options, out, &err) != TAP_OK)
            status = EXIT_TROUBLE;
        progress_clear();
        if (interrupted())
            interrupt_finish();
        if (status)
            trouble_error(args, &err);
    }
    free(w.rules);
    free(w.noise);
    return status;
}

static int compare(const cli *args, bool exact)
{
    tap_comparison *comparison = NULL;
    tap_error err = {0};
    int status;
    if (args->argument[1])
        status = run_compare(args, exact, &comparison);
    else
        status = tap_comparison_open(args->argument[0], &comparison, &err) == TAP_OK ? EXIT_FINE : trouble_error(args, &err);
    if (!status)
        status = say_all(args, comparison);
    tap_comparison_close(comparison);
    return status;
}

int cmd_compare(const cli *args)
{
    return compare(args, false);
}

int cmd_repeat(const cli *args)
{
    return compare(args, true);
}
