/* cmd_show.c - prints tensors of a recording or of one file, as numpy does, with statistics and a histogram. */
#include "chart.h"
#include "keymap.h"
#include "records.h"
#include "term.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BINS_MAX = 48, JSON_VALUES = 1000, FEW = 16 /* of so few no picture is needed */ };

/* ------------------------------------------------------------------------------------------------- one tensor */

static void write_text(void *user, const char *text, size_t len)
{
    (void)user;
    fwrite(text, 1, len, stdout);
}

static int print_tensor(const cli *args, const tap_tensor *tensor)
{
    tap_print_options options;
    tap_error err = {0};
    tap_print_options_init(&options);
    options.precision = (int)args_number(args, OPT_PRECISION, options.precision);
    if (args->value[OPT_FULL])
        options.threshold = INT_MAX;
    if (term_width() > 20 && term_width() < options.line_width)
        options.line_width = term_width();
    if (tap_tensor_print(tensor, &options, write_text, NULL, &err) != TAP_OK)
        return trouble_error(args, &err);
    fputc('\n', stdout);
    return EXIT_FINE;
}

/* The ends of the finite values; false when there is none. */
static bool finite_range(const tap_tensor *tensor, const tap_stats *stats, double *low, double *high)
{
    if (stats->count == stats->nan + stats->pos_inf + stats->neg_inf)
        return false;
    *low = number_real(tensor->dtype, stats->min);
    *high = number_real(tensor->dtype, stats->max);
    if (isfinite(*low) && isfinite(*high))
        return true;
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < (int64_t)stats->count; i++) {
        double value = tap_tensor_value(tensor, i);
        if (!isfinite(value))
            continue;
        *low = value < *low ? value : *low;
        *high = value > *high ? value : *high;
    }
    return *low <= *high;
}

typedef struct histogram {
    uint64_t counts[BINS_MAX];
    int bins; /* fewer for few values, or all bars would be of height one */
    double low, high;
} histogram;

static bool histogram_of(const tap_tensor *tensor, const tap_stats *stats, histogram *out)
{
    *out = (histogram){.bins = (int)(2 * sqrt((double)stats->count)) + 1};
    if (out->bins > BINS_MAX)
        out->bins = BINS_MAX;
    return finite_range(tensor, stats, &out->low, &out->high) && out->low < out->high &&
           tap_tensor_histogram(tensor, out->low, out->high, out->counts, out->bins, NULL) == TAP_OK;
}

/* With more digits than a list has room for; integers exactly. */
static const char *precise_text(char text[TEXT_MAX], double number)
{
    if (isnan(number))
        snprintf(text, TEXT_MAX, "nan");
    else
        snprintf(text, TEXT_MAX, "%.8g", number == 0 ? 0 : number); /* -0 looks like a mistake */
    return text;
}

static const char *end_text(char text[TEXT_MAX], tap_dtype dtype, tap_number number)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    bool real = info && (info->kind == 'F' || info->kind == 'C');
    return real ? precise_text(text, number.f) : number_text(text, dtype, number);
}

static void print_stats(tap_dtype dtype, const tap_stats *stats)
{
    char min[TEXT_MAX], max[TEXT_MAX], mean[TEXT_MAX], norm[TEXT_MAX];
    say(stdout, "  min %s  max %s  mean %s  norm %s\n", end_text(min, dtype, stats->min),
        end_text(max, dtype, stats->max), precise_text(mean, stats->mean), precise_text(norm, stats->norm));
    term_style style = stats_bad(stats) ? STYLE_RED : STYLE_PLAIN;
    fputs(term_style_begin(style), stdout);
    counted_text(min, stats->count, N_("%llu value"), N_("%llu values"));
    say(stdout, "  %s: %llu NaN, %llu +Inf, %llu -Inf, %llu zero", min, (unsigned long long)stats->nan,
        (unsigned long long)stats->pos_inf, (unsigned long long)stats->neg_inf, (unsigned long long)stats->zero);
    printf("%s\n", term_style_end(style));
}

static void print_histogram(const tap_tensor *tensor, const tap_stats *stats)
{
    histogram bars;
    if (stats->count >= FEW && histogram_of(tensor, stats, &bars))
        chart_histogram(bars.counts, bars.bins, bars.low, bars.high);
}

/* Integers exactly, complex as [real, imaginary]. bytes: row-major. */
static void value_json(jsonout *json, const tap_tensor *tensor, const tap_dtype_info *info, const uint8_t *bytes,
                       int64_t i)
{
    if (info->kind == 'C') {
        double parts[2];
        memcpy(parts, bytes + i * 16, 16);
        json_open(json, NULL, '[');
        json_real(json, NULL, parts[0]);
        json_real(json, NULL, parts[1]);
        json_close(json, ']');
    } else if (info->kind == 'B') {
        json_bool(json, NULL, bytes[i] != 0);
    } else if (info->dtype == TAP_I64 || info->dtype == TAP_U64) {
        uint64_t value;
        memcpy(&value, bytes + i * 8, 8);
        if (info->dtype == TAP_I64)
            json_int(json, NULL, (int64_t)value);
        else
            json_uint(json, NULL, value);
    } else {
        json_real(json, NULL, tap_tensor_value(tensor, i));
    }
}

/* Row-major; null when there are too many and --full was not given. */
static void values_json(const cli *args, jsonout *json, const tap_tensor *tensor)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    int64_t count = tap_tensor_count(tensor) * (info ? info->values : 1);
    if (!info || count < 0 || (count > JSON_VALUES && !args->value[OPT_FULL])) {
        json_null(json, "values");
        return;
    }
    bool complex = info->kind == 'C';
    size_t size = complex ? (size_t)count * 16 : (size_t)tap_tensor_bytes(tensor);
    uint8_t *bytes = get_memory(NULL, size);
    tap_status status = complex ? tap_tensor_convert(tensor, TAP_C128, bytes, NULL)
                                : tap_tensor_scan(tensor, 0, bytes, NULL, NULL, NULL);
    json_open(json, "values", '[');
    for (int64_t i = 0; i < count && status == TAP_OK; i++)
        value_json(json, tensor, info, bytes, i);
    json_close(json, ']');
    free(bytes);
}

static void tensor_json(const cli *args, jsonout *json, const tap_tensor *tensor, const tap_stats *stats)
{
    histogram bars;
    if (histogram_of(tensor, stats, &bars)) {
        json_open(json, "histogram", '{');
        json_real(json, "low", bars.low);
        json_real(json, "high", bars.high);
        json_open(json, "counts", '[');
        for (int i = 0; i < bars.bins; i++)
            json_uint(json, NULL, bars.counts[i]);
        json_close(json, ']');
        json_close(json, '}');
    } else {
        json_null(json, "histogram");
    }
    values_json(args, json, tensor);
}

/* ------------------------------------------------------------------------------------------------- of a recording */

static void print_header(const tap_record *record)
{
    char text[TEXT_MAX], shape[24 * TAP_MAX_NDIM], *label = NULL;
    size_t cap = 0;
    const tap_dtype_info *dtype = tap_dtype_describe(record->dtype);
    term_print(stdout, STYLE_BOLD, text_shown(record_label(record, &label, &cap)));
    free(label);
    say(stdout, "  step %lld  rank %d  call %u  %s", (long long)record->step, record->rank, record->call,
        tap_kind_name(record->kind));
    if (record->attempt)
        say(stdout, "  attempt %d", record->attempt);
    if (record->replay)
        say(stdout, "  replay %llu", (unsigned long long)record->replay);
    fputc('\n', stdout);
    if (record_is_tensor(record) && dtype)
        printf("  %s %s", dtype->name, shape_text(shape, sizeof shape, record->shape, record->ndim));
    else
        printf("  %s", value_type_name(record->value_type));
    if (record->payload_bytes)
        printf("  %s", bytes_text(text, record->payload_bytes));
    if (*record->device)
        printf("  %s", text_shown(record->device));
    if (record->time_ns)
        printf("  %s", time_text(text, record->time_ns));
    fputc('\n', stdout);
}

static void print_place(const tap_record *record)
{
    if (*record->source || *record->module) {
        fputs("  ", stdout);
        if (*record->source)
            printf("%s:%d", text_shown(record->source), record->line);
        if (*record->module)
            say(stdout, *record->source ? "  module %s" : "module %s", text_shown(record->module));
        fputc('\n', stdout);
    }
    if (*record->graph || *record->node)
        say(stdout, "  graph %s  node %s\n", text_shown(record->graph), text_shown(record->node));
    if (*record->placements)
        say(stdout, "  placements %s\n", text_shown(record->placements));
    if (record->has_hash && record->payload_bytes)
        say(stdout, "  hash %016llx  file %s at %llu\n", (unsigned long long)record->hash, text_shown(record->file),
            (unsigned long long)record->offset);
}

/* A value that is not a tensor but has bytes. */
static int print_value(const cli *args, const tap_record *record, const tap_mapping *mapping)
{
    if (record->value_type != TAP_VALUE_STR && record->value_type != TAP_VALUE_BYTES)
        return print_tensor(args, &mapping->tensor);
    char *text = copy_text(mapping->tensor.data ? mapping->tensor.data : "", (size_t)record->payload_bytes);
    printf("\"%s\"\n", text_shown(text));
    free(text);
    return EXIT_FINE;
}

static const char *empty_text(tap_value_type type)
{
    switch (type) {
    case TAP_VALUE_NONE: return "None";
    case TAP_VALUE_LIST: return "[]";
    case TAP_VALUE_TUPLE: return "()";
    case TAP_VALUE_DICT: return "{}";
    case TAP_VALUE_STR: return "\"\"";
    default: return NULL;
    }
}

static int print_record(const cli *args, const tap_record *record, const tap_mapping *mapping)
{
    int status = EXIT_FINE;
    print_header(record);
    print_place(record);
    fputc('\n', stdout);
    if (mapping)
        status = print_value(args, record, mapping);
    else if (empty_text(record->value_type))
        puts(empty_text(record->value_type));
    else if (record->state == TAP_RECORD_WHOLE || record->state == TAP_RECORD_RULE)
        say(stdout, "(only statistics were kept)\n");
    else
        say(stdout, "(no values kept: %s)\n", state_text(record->state));
    if (record->has_stats && record_is_tensor(record)) {
        fputc('\n', stdout);
        print_stats(record->dtype, &record->stats);
        if (mapping)
            print_histogram(&mapping->tensor, &record->stats);
    }
    return status;
}

static void record_line_json(const cli *args, const tap_record *record, const tap_mapping *mapping)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    record_json(&json, record);
    if (mapping && (record->value_type == TAP_VALUE_STR || record->value_type == TAP_VALUE_BYTES)) {
        json_textn(&json, "text", mapping->tensor.data ? mapping->tensor.data : "", (size_t)record->payload_bytes);
    } else if (mapping) {
        tensor_json(args, &json, &mapping->tensor, &record->stats);
    } else {
        json_null(&json, "histogram");
        json_null(&json, "values");
    }
    json_end(&json);
}

static int show_record(const cli *args, tap_run *run, const tap_record *record, bool first)
{
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_error err = {0};
    bool mapped = false, empty = record_is_tensor(record) && record->has_stats && record->stats.count == 0 &&
                                 record->state == TAP_RECORD_WHOLE && record->value_type == TAP_VALUE_TENSOR;
    if (record->payload_bytes || empty) {
        if (tap_record_map(run, record, &mapping, &err) != TAP_OK)
            return trouble_error(args, &err);
        mapped = true;
    }
    int status = EXIT_FINE;
    if (args->json) {
        record_line_json(args, record, mapped ? &mapping : NULL);
    } else {
        if (!first)
            fputc('\n', stdout);
        status = print_record(args, record, mapped ? &mapping : NULL);
    }
    if (mapped)
        tap_mapping_release(&mapping);
    return status;
}

/* Which of the records that match are shown. */
typedef struct selection {
    const cli *args;
    const char *name, *path; /* path NULL: any */
    bool any;
    int32_t rank;
    int64_t step;
    keymap newest;  /* by everything but the call */
    uint64_t *seq;  /* of the newest, by number */
    size_t matched, shown;
} selection;

typedef int (*record_fn)(selection *select, tap_run *run, const tap_record *record);

static bool record_fits(const selection *select, const tap_record *record)
{
    const cli *args = select->args;
    if (select->path && strcmp(select->path, record->path) != 0)
        return false;
    if (args->value[OPT_CALL] && record->call != (uint32_t)args_number(args, OPT_CALL, 0))
        return false;
    return true;
}

static int each_record(selection *select, tap_run *run, record_fn fn)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {0};
    query_from(select->args, &query);
    query.name = select->name;
    query.incomplete = true;
    if (tap_run_query(run, &query, &cursor, &err) != TAP_OK)
        return trouble_error(select->args, &err);
    int result = EXIT_FINE;
    tap_status status = TAP_OK;
    while (!result && !output_gone() && (status = tap_cursor_next(cursor, &record, &err)) == TAP_OK)
        if (record_fits(select, &record))
            result = fn(select, run, &record);
    tap_cursor_close(cursor);
    if (!result && status != TAP_OK && status != TAP_END)
        result = trouble_error(select->args, &err);
    return result;
}

static int find_rank_and_step(selection *select, tap_run *run, const tap_record *record)
{
    (void)run;
    select->matched++;
    if (!select->any || record->rank < select->rank) {
        select->any = true;
        select->rank = record->rank;
        select->step = record->step;
    } else if (record->rank == select->rank && record->step > select->step) {
        select->step = record->step;
    }
    return EXIT_FINE;
}

static bool is_chosen(const selection *select, const tap_record *record)
{
    const cli *args = select->args;
    if (args->value[OPT_ALL])
        return true;
    return (args->value[OPT_RANK] || record->rank == select->rank) &&
           (args->value[OPT_STEP] || record->step == select->step);
}

static size_t newest_number(selection *select, const tap_record *record, bool *added)
{
    size_t size = strlen(record->name) + strlen(record->path) + 80;
    char *key = get_memory(NULL, size);
    snprintf(key, size, "%d %d %d %" PRId64 " %d %s\x1f%s", record->rank, record->attempt, record->child, record->step,
             (int)record->kind, record->name, record->path);
    size_t number = keymap_add(&select->newest, key, added);
    free(key);
    return number;
}

static int note_newest(selection *select, tap_run *run, const tap_record *record)
{
    (void)run;
    bool added;
    if (!is_chosen(select, record) || select->args->value[OPT_ALL])
        return EXIT_FINE;
    size_t number = newest_number(select, record, &added);
    if (added)
        select->seq = get_memory(select->seq, select->newest.cap * sizeof *select->seq);
    select->seq[number] = record->seq;
    return EXIT_FINE;
}

static int show_chosen(selection *select, tap_run *run, const tap_record *record)
{
    bool added;
    if (!is_chosen(select, record))
        return EXIT_FINE;
    if (!select->args->value[OPT_ALL] && select->seq[newest_number(select, record, &added)] != record->seq)
        return EXIT_FINE;
    return show_record(select->args, run, record, select->shown++ == 0);
}

/* "x2[key.0]", as ls prints it, also names one leaf of a nested value. */
static bool split_label(selection *select, char *label)
{
    size_t len = strlen(label);
    char *bracket = strrchr(label, '[');
    if (!bracket || bracket == label || label[len - 1] != ']')
        return false;
    *bracket = 0;
    label[len - 1] = 0;
    select->name = label;
    select->path = bracket + 1;
    return true;
}

static int show_run(const cli *args)
{
    const char *name = args->argument[1] ? args->argument[1] : args->value[OPT_NAME];
    tap_run *run;
    int status = run_open(args, &run);
    if (status)
        return status;
    if (!name) {
        tap_run_close(run);
        return trouble_usage(args->command, "NAME is missing: which record of %s?", text_shown(args->argument[0]));
    }
    char *label = copy_text(name, strlen(name));
    selection select = {.args = args, .name = name};
    status = each_record(&select, run, find_rank_and_step);
    if (!status && !select.any && split_label(&select, label))
        status = each_record(&select, run, find_rank_and_step);
    if (!status && !select.any)
        status = nothing_matched(args, run, name);
    if (!status)
        status = each_record(&select, run, note_newest);
    if (!status)
        status = each_record(&select, run, show_chosen);
    if (!status && !args->json && select.shown < select.matched && !output_gone())
        say(stderr, "%zu of %zu records that match are shown; --step, --rank, --call choose others, --all shows all\n",
            select.shown, select.matched);
    keymap_free(&select.newest);
    free(select.seq);
    free(label);
    tap_run_close(run);
    return status;
}

/* --------------------------------------------------------------------------------------------------- of a file */

static void entry_scalar(const tap_file_entry *entry, char *text, size_t size)
{
    const char *fixed = empty_text(entry->value_type);
    if (entry->value_type == TAP_VALUE_BOOL)
        snprintf(text, size, "%s", entry->integer ? "True" : "False");
    else if (entry->value_type == TAP_VALUE_INT)
        snprintf(text, size, "%" PRId64, entry->integer);
    else if (entry->value_type == TAP_VALUE_FLOAT)
        snprintf(text, size, "%.17g", entry->number);
    else if (entry->value_type == TAP_VALUE_COMPLEX)
        snprintf(text, size, "%.17g%+.17gj", entry->number, entry->imag);
    else
        snprintf(text, size, "%s", fixed ? fixed : value_type_name(entry->value_type));
}

static void entry_json(const cli *args, const tap_file_entry *entry, const tap_stats *stats)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "name", entry->name);
    json_text(&json, "value", value_type_name(entry->value_type));
    if (stats) {
        const tap_dtype_info *dtype = tap_dtype_describe(entry->tensor.dtype);
        json_text(&json, "dtype", dtype ? dtype->name : NULL);
        shape_json(&json, "shape", entry->tensor.shape, entry->tensor.ndim);
        stats_json(&json, "stats", entry->tensor.dtype, stats);
        tensor_json(args, &json, &entry->tensor, stats);
    } else if (entry->value_type == TAP_VALUE_STR || entry->value_type == TAP_VALUE_BYTES) {
        json_text(&json, "text", entry->text);
    } else {
        char text[80];
        entry_scalar(entry, text, sizeof text);
        json_text(&json, "text", text);
    }
    json_end(&json);
}

static int entry_print(const cli *args, const tap_file_entry *entry, const tap_stats *stats)
{
    char text[80], shape[24 * TAP_MAX_NDIM];
    if (!stats) {
        const char *label = entry->name && *entry->name ? entry->name : "";
        entry_scalar(entry, text, sizeof text);
        if (*label)
            printf("%s%s%s: ", term_style_begin(STYLE_BOLD), text_shown(label), term_style_end(STYLE_BOLD));
        bool quoted = entry->value_type == TAP_VALUE_STR && entry->text;
        printf(quoted ? "\"%s\"\n" : "%s\n", quoted ? text_shown(entry->text) : text);
        return EXIT_FINE;
    }
    const tap_dtype_info *dtype = tap_dtype_describe(entry->tensor.dtype);
    const char *label = entry->name && *entry->name ? entry->name : args->argument[0];
    term_print(stdout, STYLE_BOLD, text_shown(label));
    printf("  %s %s  %s\n\n", dtype ? dtype->name : "?",
           shape_text(shape, sizeof shape, entry->tensor.shape, entry->tensor.ndim),
           bytes_text(text, (uint64_t)tap_tensor_bytes(&entry->tensor)));
    int status = print_tensor(args, &entry->tensor);
    if (status)
        return status;
    fputc('\n', stdout);
    print_stats(entry->tensor.dtype, stats);
    print_histogram(&entry->tensor, stats);
    return EXIT_FINE;
}

static int show_entry(const cli *args, tap_file *file, size_t index, size_t *shown)
{
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    tap_stats stats;
    tap_error err = {0};
    const char *name = args->argument[1];
    if (tap_file_get(file, index, &entry, &err) != TAP_OK)
        return trouble_error(args, &err);
    if (name && (!entry.name || strcmp(name, entry.name) != 0))
        return EXIT_FINE;
    bool tensor = entry.value_type == TAP_VALUE_TENSOR;
    if (tensor && tap_tensor_scan(&entry.tensor, TAP_SCAN_STATS, NULL, &stats, NULL, &err) != TAP_OK)
        return trouble_error(args, &err);
    if (!args->json && *shown && tensor)
        fputc('\n', stdout);
    ++*shown;
    if (!args->json)
        return entry_print(args, &entry, tensor ? &stats : NULL);
    entry_json(args, &entry, tensor ? &stats : NULL);
    return EXIT_FINE;
}

static int show_file(const cli *args, tap_file *file)
{
    size_t shown = 0;
    int status = EXIT_FINE;
    for (size_t i = 0; i < tap_file_count(file) && !status && !output_gone(); i++)
        status = show_entry(args, file, i, &shown);
    if (!status && shown == 0 && args->argument[1]) {
        trouble(args, "%s holds nothing named %s; without a name everything in it is shown",
                text_shown(args->argument[0]), text_shown(args->argument[1]));
        status = EXIT_DIFFERENT;
    }
    tap_file_close(file);
    return status;
}

int cmd_show(const cli *args)
{
    struct stat st;
    if (stat(args->argument[0], &st) != 0 || !S_ISREG(st.st_mode))
        return show_run(args);
    tap_file *file;
    tap_error err = {0};
    if (tap_file_open(args->argument[0], &file, &err) == TAP_OK)
        return show_file(args, file);
    /* not a tensor file, yet perhaps the one file of a layout */
    if (err.status == TAP_E_FORMAT && args->argument[1])
        return show_run(args);
    return trouble_error(args, &err);
}
