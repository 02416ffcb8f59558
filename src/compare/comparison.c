/* comparison.c - the public face: opens both recordings, sends their records through pairing and judging into a file of
 * matches, and reads that file. */
#include "base/match.h"
#include "base/memory.h"
#include "base/sized.h"
#include "compare/batch.h"
#include "compare/pairing.h"
#include "compare/verdict.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tap_comparison {
    tap_matchfile file;
    tap_strbuf text;         /* of the verdict */
    char *path[2], *layout[2];
};

struct tap_match_cursor {
    tap_comparison *comparison;
    sqlite3_stmt *rows;
    unsigned classes;
    char *name;
};

/* ---------------------------------------------------------------------------------------------------------- tables */

const char *tap_match_class_name(tap_match_class what)
{
    static const char *const NAMES[] = {
#define X(name, value, text) [value] = text,
        TAP_MATCH_MAP(X)
#undef X
    };
    return (size_t)what < TAP_MATCH_COUNT ? NAMES[what] : "unknown";
}

const char *tap_evidence_name(tap_evidence evidence)
{
    static const char *const NAMES[] = {"none", "values", "hash", "stats"};
    return (size_t)evidence < sizeof NAMES / sizeof NAMES[0] ? NAMES[evidence] : "unknown";
}

/* What the order of a layout's records says. Layouts that are not here list their files by name. */
static tap_order layout_order(const char *layout)
{
    static const struct {
        const char *layout;
        tap_order order;
    } ORDERS[] = {{"native", TAP_ORDER_EXACT}, {"troubleshooter", TAP_ORDER_EXACT}, {"msprobe", TAP_ORDER_FORWARD},
                  {"msprobe_modules", TAP_ORDER_FORWARD}};
    for (size_t i = 0; i < sizeof ORDERS / sizeof ORDERS[0]; i++)
        if (strcmp(ORDERS[i].layout, layout) == 0)
            return ORDERS[i].order;
    return TAP_ORDER_NONE;
}

void tap_compare_options_init_sized(tap_compare_options *options, size_t size)
{
    static const tap_compare_options USUAL = {.kind = TAP_KIND_ANY, .factor = 4};
    tap__sized_init(options, size, &USUAL, sizeof USUAL);
}

#define NOT_THERE                                                                                                    \
    {.name = "", .source = "", .module = "", .graph = "", .node = "", .device = "", .placements = "", .file = ""}

void tap_match_init_sized(tap_match *match, size_t size)
{
    static const tap_match USUAL = {
        .path = "", .reason = "", .side = {NOT_THERE, NOT_THERE},
        .difference = {.size = sizeof(tap_difference), .first.index = -1, .worst.index = -1}};
    tap__sized_init(match, size, &USUAL, sizeof USUAL);
}

void tap_verdict_init_sized(tap_verdict *verdict, size_t size)
{
    static const tap_verdict USUAL = {.first = -1, .before = -1, .text = ""};
    tap__sized_init(verdict, size, &USUAL, sizeof USUAL);
}

/* ------------------------------------------------------------------------------------------------------- comparing */

/* Everything a comparison holds while it runs. */
typedef struct job {
    const tap_compare_options *options;
    const char *path[2];
    tap_run *run[2];
    tap_cursor *cursor[2];
    tap_rules rules;
    tap_comparison **noise;
    tap_matchfile *noise_files;
    tap_batch *batch;
    tap_batch_setup setup;
    uint64_t records[2], total, taken;
    char *steps_b;
    tap_matchfile *out;
} job;

static int threads_of(const tap_compare_options *options)
{
    long count = options->threads > 0 ? options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : options->threads <= 0 && count > 8 ? 8 : count > 64 ? 64 : (int)count;
}

static tap_order job_order(const job *j)
{
    tap_order a = layout_order(tap_run_layout(j->run[0])), b = layout_order(tap_run_layout(j->run[1]));
    return a >= b ? a : b;
}

/* The steps of A as those of B beside them; *out is NULL where all are meant. */
static tap_status steps_shift(const char *steps, int64_t shift, char **out, tap_error *err)
{
    tap_ranges ranges;
    tap_strbuf text = TAP_STRBUF_INIT;
    TAP_TRY(tap__ranges_parse(&ranges, steps, "steps", err));
    for (size_t i = 0; i < ranges.count; i++) {
        int64_t first = ranges.items[i].first + shift, last = ranges.items[i].last;
        if (last < INT64_MAX - (shift > 0 ? shift : 0) && last + shift < 0)
            continue; /* B has no such steps */
        tap__strbuf_printf(&text, "%s%lld-", text.len ? "|" : "", (long long)(first > 0 ? first : 0));
        if (last < INT64_MAX - (shift > 0 ? shift : 0))
            tap__strbuf_printf(&text, "%lld", (long long)(last + shift));
    }
    tap__ranges_free(&ranges);
    *out = text.text;
    return text.failed ? tap_fail_nomem(err) : TAP_OK;
}

static tap_status side_open(job *j, int side, tap_error *err)
{
    tap_query query;
    uint64_t count;
    TAP_TRY(tap_run_open(j->path[side], &j->run[side], err));
    tap_query_init(&query);
    query.name = j->options->name;
    query.ranks = j->options->ranks;
    query.kind = j->options->kind;
    query.steps = j->options->steps;
    if (side == 1 && j->options->shift) {
        TAP_TRY(steps_shift(j->options->steps, j->options->shift, &j->steps_b, err));
        query.steps = j->steps_b;
    }
    TAP_TRY(tap_run_count(j->run[side], &query, &count, err));
    j->total += count;
    return tap_run_query(j->run[side], &query, &j->cursor[side], err);
}

/* A against each of its repetitions, under the same filters. */
static tap_status noise_run(job *j, tap_error *err)
{
    size_t count = j->options->noise_count;
    j->noise = tap__calloc(count + 1, sizeof *j->noise);
    j->noise_files = tap__calloc(count + 1, sizeof *j->noise_files);
    if (!j->noise || !j->noise_files)
        return tap_fail_nomem(err);
    tap_compare_options options = *j->options;
    options.noise_count = options.rule_count = 0;
    options.shift = 0;
    options.allow = NULL;
    options.output = NULL;
    for (size_t i = 0; i < count; i++) {
        TAP_TRY(tap_compare_run(j->path[0], j->options->noise[i], &options, &j->noise[i], err));
        sqlite3_exec(j->noise[i]->file.db, "CREATE INDEX match_a ON match(rank, attempt_a, seq_a)", NULL, NULL, NULL);
        j->noise_files[i] = j->noise[i]->file;
    }
    return TAP_OK;
}

static bool go_on(job *j)
{
    j->taken++;
    if (!j->options->on_progress || j->taken % 64)
        return true;
    uint64_t done = 2 * j->taken;
    return j->options->on_progress(j->options->user, done < j->total ? done : j->total, j->total);
}

static tap_status match_found(void *user, tap_held *a, tap_held *b, tap_error *err)
{
    job *j = user;
    if (!go_on(j)) {
        tap__held_free(a);
        tap__held_free(b);
        return tap_fail(err, TAP_E_TIMEOUT, "stopped before everything was compared");
    }
    return tap__batch_add(j->batch, a, b, err);
}

static tap_status job_setup(job *j, tap_error *err)
{
    tap_order order = job_order(j);
    TAP_TRY(tap__rules_parse(&j->rules, j->options->rules, j->options->rule_count, err));
    j->setup = (tap_batch_setup){
        .run = {j->run[0], j->run[1]}, .lead = layout_order(tap_run_layout(j->run[0])) < order, .rules = &j->rules,
        .allow = j->options->allow, .factor = j->options->factor, .exact = j->options->exact,
        .threads = threads_of(j->options), .noise = j->noise_files, .noise_count = j->options->noise_count, .out = j->out};
    TAP_TRY(tap__precision_parse(j->options->precision, &j->setup.precision, err));
    return tap__batch_new(&j->setup, &j->batch, err);
}

static tap_status info_write(job *j, tap_error *err)
{
    const tap_batch_counts *counts = tap__batch_counts(j->batch);
    const struct {
        const char *key;
        uint64_t number;
    } NUMBERS[] = {{"records_a", j->records[0]}, {"records_b", j->records[1]}, {"by_stats", counts->by_stats},
                   {"unread", counts->unread}, {"bytes", counts->bytes}, {"order", (uint64_t)job_order(j)},
                   {"exact", j->options->exact}};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        TAP_TRY(tap__matchfile_set_number(j->out, NUMBERS[i].key, (int64_t)NUMBERS[i].number, err));
    TAP_TRY(tap__matchfile_set_real(j->out, "factor", j->options->factor, err));
    TAP_TRY(tap__matchfile_set_text(j->out, "path_a", j->path[0], err));
    TAP_TRY(tap__matchfile_set_text(j->out, "path_b", j->path[1], err));
    TAP_TRY(tap__matchfile_set_text(j->out, "layout_a", tap_run_layout(j->run[0]), err));
    return tap__matchfile_set_text(j->out, "layout_b", tap_run_layout(j->run[1]), err);
}

static tap_status job_run(job *j, tap_error *err)
{
    TAP_TRY(side_open(j, 0, err));
    TAP_TRY(side_open(j, 1, err));
    TAP_TRY(noise_run(j, err));
    TAP_TRY(tap__matchfile_create(j->out, j->options->output, err));
    TAP_TRY(job_setup(j, err));
    TAP_TRY(tap__pairing_run(j->cursor, j->options->shift, match_found, j, j->records, err));
    TAP_TRY(tap__batch_flush(j->batch, err));
    TAP_TRY(info_write(j, err));
    TAP_TRY(tap__verdict_find(j->out, job_order(j), j->options->exact, j->options->factor, err));
    return tap__matchfile_finish(j->out, err);
}

static void job_free(job *j)
{
    tap__batch_free(j->batch);
    for (size_t i = 0; j->noise && i < j->options->noise_count; i++)
        tap_comparison_close(j->noise[i]);
    tap__free(j->noise);
    tap__free(j->noise_files);
    tap__rules_free(&j->rules);
    tap__free(j->steps_b);
    for (int side = 0; side < 2; side++) {
        tap_cursor_close(j->cursor[side]);
        tap_run_close(j->run[side]);
    }
}

static tap_status info_take(tap_comparison *c, tap_error *err)
{
    static const char *const PATHS[] = {"path_a", "path_b"}, *const LAYOUTS[] = {"layout_a", "layout_b"};
    for (int side = 0; side < 2; side++) {
        c->path[side] = tap__matchfile_text(&c->file, PATHS[side]);
        c->layout[side] = tap__matchfile_text(&c->file, LAYOUTS[side]);
        if (!c->path[side] || !c->layout[side])
            return tap_fail_nomem(err);
    }
    return TAP_OK;
}

static tap_status comparison_new(tap_comparison **out, tap_error *err)
{
    *out = tap__calloc(1, sizeof **out);
    if (!*out)
        return tap_fail_nomem(err);
    (*out)->file.file.fd = -1;
    return TAP_OK;
}

static tap_status ended(tap_comparison **out, tap_status status)
{
    if (status == TAP_OK)
        return TAP_OK;
    tap_comparison_close(*out);
    *out = NULL;
    return status;
}

tap_status tap_compare_run(const char *a, const char *b, const tap_compare_options *options, tap_comparison **out,
                           tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, a);
    TAP_NEED(err, b);
    tap_compare_options whole;
    tap_compare_options_init(&whole);
    if (options) {
        TAP_NEED_SIZE(err, tap_compare_options, options);
        tap__sized_take(&whole, options);
    }
    TAP_TRY(comparison_new(out, err));
    job j = {.options = &whole, .path = {a, b}, .out = &(*out)->file};
    tap_status status = job_run(&j, err);
    job_free(&j);
    if (status == TAP_OK)
        status = info_take(*out, err);
    return ended(out, status);
}

tap_status tap_comparison_open(const char *path, tap_comparison **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, path);
    TAP_TRY(comparison_new(out, err));
    tap_status status = tap__matchfile_open(&(*out)->file, path, err);
    if (status == TAP_OK)
        status = info_take(*out, err);
    return ended(out, status);
}

void tap_comparison_close(tap_comparison *comparison)
{
    if (!comparison)
        return;
    tap__matchfile_close(&comparison->file);
    tap__strbuf_free(&comparison->text);
    for (int side = 0; side < 2; side++) {
        tap__free(comparison->path[side]);
        tap__free(comparison->layout[side]);
    }
    tap__free(comparison);
}

/* --------------------------------------------------------------------------------------------------------- reading */

static tap_status classes_count(tap_comparison *c, tap_comparison_summary *out, tap_error *err)
{
    sqlite3_stmt *rows;
    int code;
    TAP_TRY(tap__matchfile_prepare(&c->file, "SELECT class, allowed, count(*) FROM match GROUP BY class, allowed", &rows,
                                   err));
    while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
        int what = sqlite3_column_int(rows, 0);
        uint64_t count = (uint64_t)sqlite3_column_int64(rows, 2);
        if (what >= 0 && what < TAP_MATCH_COUNT)
            out->classes[what] += count;
        out->allowed += sqlite3_column_int(rows, 1) ? count : 0;
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(&c->file, code, "read", err);
}

tap_status tap_comparison_summarise(tap_comparison *c, tap_comparison_summary *out, tap_error *err)
{
    TAP_NEED(err, c);
    TAP_NEED_SIZED(err, tap_comparison_summary, out);
    tap_comparison_summary full;
    tap_comparison_summary_init(&full);
    TAP_TRY(classes_count(c, &full, err));
    for (int side = 0; side < 2; side++) {
        full.path[side] = c->path[side];
        full.layout[side] = c->layout[side];
        full.records[side] = (uint64_t)tap__matchfile_number(&c->file, side ? "records_b" : "records_a");
    }
    full.order = (tap_order)tap__matchfile_number(&c->file, "order");
    full.by_stats = (uint64_t)tap__matchfile_number(&c->file, "by_stats");
    full.unread = (uint64_t)tap__matchfile_number(&c->file, "unread");
    full.bytes = (uint64_t)tap__matchfile_number(&c->file, "bytes");
    full.factor = tap__matchfile_real(&c->file, "factor");
    tap__sized_give(out, &full);
    return TAP_OK;
}

tap_status tap_comparison_match(tap_comparison *c, int64_t id, tap_match *out, tap_error *err)
{
    TAP_NEED(err, c);
    TAP_NEED_SIZED(err, tap_match, out);
    TAP_TRY(tap__matchfile_get(&c->file, id, err));
    tap__sized_give(out, &c->file.row);
    return TAP_OK;
}

tap_status tap_comparison_verdict(tap_comparison *c, tap_verdict *out, tap_error *err)
{
    TAP_NEED(err, c);
    TAP_NEED_SIZED(err, tap_verdict, out);
    tap_verdict full;
    tap_verdict_init(&full);
    tap__verdict_read(&c->file, &full);
    TAP_TRY(tap__verdict_say(&c->file, &full, &c->text, err));
    full.text = c->text.text;
    tap__sized_give(out, &full);
    return TAP_OK;
}

tap_status tap_comparison_query(tap_comparison *c, const tap_match_query *query, tap_match_cursor **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, c);
    tap_match_query asked;
    tap_match_query_init(&asked);
    if (query) {
        TAP_NEED_SIZE(err, tap_match_query, query);
        tap__sized_take(&asked, query);
    }
    tap_strbuf sql = TAP_STRBUF_INIT;
    *out = tap__calloc(1, sizeof **out);
    if (!*out)
        return tap_fail_nomem(err);
    (*out)->comparison = c;
    (*out)->classes = asked.classes ? asked.classes : ~0u;
    tap_status status = TAP_OK;
    if (asked.name && !((*out)->name = tap__strdup(asked.name)))
        status = tap_fail_nomem(err);
    tap__strbuf_printf(&sql, "SELECT %s FROM match WHERE (1 << class) & %u ORDER BY place, id", tap__matchfile_columns(),
                       (*out)->classes);
    if (status == TAP_OK)
        status = sql.failed ? tap_fail_nomem(err) : tap__matchfile_prepare(&c->file, sql.text, &(*out)->rows, err);
    tap__strbuf_free(&sql);
    if (status != TAP_OK) {
        tap_match_cursor_close(*out);
        *out = NULL;
    }
    return status;
}

tap_status tap_match_cursor_next(tap_match_cursor *cursor, tap_match *out, tap_error *err)
{
    TAP_NEED(err, cursor);
    TAP_NEED_SIZED(err, tap_match, out);
    tap_match row;
    int code;
    while ((code = sqlite3_step(cursor->rows)) == SQLITE_ROW) {
        tap__matchfile_read(cursor->rows, &row);
        if (cursor->name && !tap__names_match(cursor->name, row.side[0].name) &&
            !tap__names_match(cursor->name, row.side[1].name))
            continue;
        tap__sized_give(out, &row);
        return TAP_OK;
    }
    return code == SQLITE_DONE ? TAP_END : tap__matchfile_fail(&cursor->comparison->file, code, "read", err);
}

void tap_match_cursor_close(tap_match_cursor *cursor)
{
    if (!cursor)
        return;
    sqlite3_finalize(cursor->rows);
    tap__free(cursor->name);
    tap__free(cursor);
}
