/* cmd_export.c - writes records as files other programs read: one for each record, or one for all. */
#include "filename.h"
#include "keymap.h"
#include "records.h"
#include "term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct exporting {
    const cli *args;
    tap_run *run;
    const char *format, *out;
    bool one_file;
    keymap names; /* of files or tensors, so that none is used twice */
    tap_mapping **mappings;
    size_t mapping_count;
    uint64_t written, bytes, widened, no_bytes, not_tensors;
    char *path;
    size_t path_cap;
} exporting;

/* ---------------------------------------------------------------------------------------------------------- names */

/* name[.path].stepS.rankR[...]: the whole key of the record, as short as it can be said. */
static char *record_file_name(const tap_record *record)
{
    enum { LONGEST = 160 };
    filename name = {0};
    char part[48];
    filename_add_escaped(&name, record->name);
    if (*record->path) {
        filename_add(&name, ".");
        filename_add_escaped(&name, record->path);
    }
    filename_shorten(&name, LONGEST);
    snprintf(part, sizeof part, ".step%" PRId64 ".rank%d", record->step, record->rank);
    filename_add(&name, part);
    snprintf(part, sizeof part, ".call%u", record->call);
    filename_add(&name, record->call ? part : "");
    snprintf(part, sizeof part, ".%s", tap_kind_name(record->kind));
    filename_add(&name, record->kind != TAP_KIND_FORWARD ? part : "");
    snprintf(part, sizeof part, ".replay%" PRIu64, record->replay);
    filename_add(&name, record->replay ? part : "");
    snprintf(part, sizeof part, ".attempt%d", record->attempt);
    filename_add(&name, record->attempt ? part : "");
    snprintf(part, sizeof part, ".child%d", record->child);
    filename_add(&name, record->child ? part : "");
    return name.text;
}

/* The same, never given out twice: then "~2" and so on. */
static char *unique_name(exporting *all, const tap_record *record)
{
    bool added;
    char *name = record_file_name(record);
    size_t len = strlen(name);
    name = get_memory(name, len + 24);
    keymap_add(&all->names, name, &added);
    for (unsigned long again = 2; !added; again++) {
        snprintf(name + len, 24, "~%lu", again);
        keymap_add(&all->names, name, &added);
    }
    return name;
}

/* -------------------------------------------------------------------------------------------------------- writing */

/* Does the format hold the type as it is? */
static bool format_holds(const char *format, tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (!info)
        return false;
    return strcmp(format, "npy") == 0 ? info->numpy != NULL : strcmp(format, "pt") == 0 || info->safetensors != NULL;
}

static int write_file(exporting *all, const char *path, const tap_tensor *tensors, const char *const *names,
                      size_t count)
{
    struct stat st;
    tap_error err = {0};
    if (!all->args->value[OPT_FORCE] && lstat(path, &st) == 0)
        return trouble(all->args, "%s is already there; choose another place, or --force to replace it",
                       text_shown(path));
    bool convert = !all->args->value[OPT_EXACT];
    if (tap_file_write(path, all->format, tensors, names, count, convert, &err) != TAP_OK)
        return trouble_error(all->args, &err);
    return EXIT_FINE;
}

static void report_file(const exporting *all, const char *path, const tap_record *record, const tap_tensor *tensor)
{
    char shape[24 * TAP_MAX_NDIM];
    const tap_dtype_info *dtype = tap_dtype_describe(tensor->dtype);
    bool widened = !format_holds(all->format, tensor->dtype);
    if (output_gone())
        return;
    progress_clear();
    if (!all->args->json) {
        printf("%s  %s %s", text_shown(path), dtype ? dtype->name : "?",
               shape_text(shape, sizeof shape, tensor->shape, tensor->ndim));
        if (widened)
            say(stdout, " (as %s)", dtype && dtype->kind == 'C' ? "complex64" : "float32");
        fputc('\n', stdout);
        return;
    }
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "written", path);
    json_bool(&json, "widened", widened);
    record_json(&json, record);
    json_end(&json);
}

static int export_alone(exporting *all, const tap_record *record, const tap_mapping *mapping)
{
    char *name = unique_name(all, record);
    size_t need = strlen(all->out) + strlen(name) + strlen(all->format) + 3;
    if (need > all->path_cap) {
        all->path_cap = need * 2;
        all->path = get_memory(all->path, all->path_cap);
    }
    snprintf(all->path, all->path_cap, "%s/%s.%s", all->out, name, all->format);
    int status = write_file(all, all->path, &mapping->tensor, NULL, 1);
    if (!status)
        report_file(all, all->path, record, &mapping->tensor);
    free(name);
    return status;
}

static void keep_mapping(exporting *all, tap_mapping *mapping)
{
    size_t count = all->mapping_count;
    if ((count & (count - 1)) == 0)
        all->mappings = get_memory(all->mappings, (count ? count * 2 : 1) * sizeof *all->mappings);
    all->mappings[all->mapping_count++] = mapping;
}

static bool exportable(exporting *all, const tap_record *record)
{
    switch (record->value_type) {
    case TAP_VALUE_TENSOR:
    case TAP_VALUE_BOOL:
    case TAP_VALUE_INT:
    case TAP_VALUE_FLOAT:
    case TAP_VALUE_COMPLEX: break;
    default: all->not_tensors++; return false;
    }
    bool empty = record->state == TAP_RECORD_WHOLE && record->has_stats && record->stats.count == 0;
    if (record->payload_bytes && record->state != TAP_RECORD_TORN)
        return true;
    all->no_bytes += !empty;
    return empty;
}

static int export_record(exporting *all, const tap_record *record)
{
    tap_error err = {0};
    if (!exportable(all, record))
        return EXIT_FINE;
    tap_mapping *mapping = get_memory(NULL, sizeof *mapping);
    tap_mapping_init(mapping);
    if (tap_record_map(all->run, record, mapping, &err) != TAP_OK) {
        free(mapping);
        return trouble_error(all->args, &err);
    }
    int status = EXIT_FINE;
    all->widened += !format_holds(all->format, mapping->tensor.dtype);
    all->bytes += record->payload_bytes;
    if (all->one_file) {
        keep_mapping(all, mapping);
        free(unique_name(all, record)); /* numbered as the mappings are */
    } else {
        status = export_alone(all, record, mapping);
        tap_mapping_release(mapping);
        free(mapping);
    }
    all->written += !status;
    return status;
}

static int export_together(exporting *all)
{
    size_t count = all->mapping_count;
    if (strcmp(all->format, "npy") == 0 && count > 1)
        return trouble(all->args,
                       "%zu records match and an npy file holds one; give a directory, or choose by --name and --step",
                       count);
    tap_tensor *tensors = get_memory(NULL, (count + 1) * sizeof *tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i] = all->mappings[i]->tensor;
    int status = write_file(all, all->out, tensors, (const char *const *)all->names.keys, count);
    free(tensors);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- whole */

static int export_all(exporting *all)
{
    tap_query query;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {0};
    uint64_t total = 0, done = 0;
    query_from(all->args, &query);
    if (tap_run_count(all->run, &query, &total, &err) != TAP_OK ||
        tap_run_query(all->run, &query, &cursor, &err) != TAP_OK)
        return trouble_error(all->args, &err);
    int result = EXIT_FINE;
    tap_status status = TAP_OK;
    progress bar;
    interrupt_catch();
    progress_start(&bar, tap_text("exporting"), false);
    while (!result && (status = tap_cursor_next(cursor, &record, &err)) == TAP_OK) {
        result = export_record(all, &record);
        if (!progress_update(&bar, ++done, total))
            break;
    }
    progress_clear();
    tap_cursor_close(cursor);
    if (!result && status != TAP_OK && status != TAP_END)
        result = trouble_error(all->args, &err);
    if (!result && all->one_file && all->mapping_count && !interrupted())
        result = export_together(all);
    return result;
}

static void export_report(const exporting *all)
{
    char count[TEXT_MAX], bytes[TEXT_MAX];
    if (all->args->json && !all->one_file)
        return;
    if (all->args->json) {
        jsonout json = {0};
        json_open(&json, NULL, '{');
        json_text(&json, "written", all->out);
        json_uint(&json, "tensors", all->written);
        json_uint(&json, "bytes", all->bytes);
        json_uint(&json, "widened", all->widened);
        json_uint(&json, "no_bytes", all->no_bytes);
        json_uint(&json, "not_tensors", all->not_tensors);
        json_end(&json);
        return;
    }
    if (all->one_file)
        counted_text(count, all->written, N_("%llu tensor"), N_("%llu tensors"));
    else
        counted_text(count, all->written, N_("%llu file"), N_("%llu files"));
    say(stdout, "wrote %s, %s, to %s\n", count, bytes_text(bytes, all->bytes), text_shown(all->out));
}

static void export_notes(const exporting *all)
{
    if (all->widened)
        say(stderr, "%llu widened: %s lacks their type; --exact refuses that, --format pt keeps all types\n",
            (unsigned long long)all->widened, all->format);
    if (all->not_tensors)
        say(stderr, "%llu left out: not tensors\n", (unsigned long long)all->not_tensors);
    if (all->no_bytes)
        say(stderr, "%llu left out: no bytes were kept; tensortap verify --rules tells why\n",
            (unsigned long long)all->no_bytes);
}

static const char *suffix_format(const char *path)
{
    static const char *const FORMATS[] = {"npy", "pt", "safetensors"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof FORMATS / sizeof FORMATS[0]; i++)
        if (strcmp(dot + 1, FORMATS[i]) == 0)
            return FORMATS[i];
    return NULL;
}

static int export_prepare(exporting *all)
{
    const char *given = all->args->value[OPT_FORMAT], *suffix = suffix_format(all->out);
    struct stat st;
    bool is_dir = stat(all->out, &st) == 0 && S_ISDIR(st.st_mode);
    all->one_file = suffix && !is_dir;
    all->format = given ? given : all->one_file ? suffix : "npy";
    if (all->one_file && strcmp(all->format, suffix) != 0)
        return trouble_usage(all->args->command, "%s does not end in .%s; give --format %s or another name",
                             text_shown(all->out), all->format, suffix);
    if (!all->one_file && !is_dir && stat(all->out, &st) == 0)
        return trouble(all->args, "%s is a file; give a directory, or a name that ends in .safetensors, .pt or .npy",
                       text_shown(all->out));
    return EXIT_FINE;
}

static void export_free(exporting *all)
{
    for (size_t i = 0; i < all->mapping_count; i++) {
        tap_mapping_release(all->mappings[i]);
        free(all->mappings[i]);
    }
    free(all->mappings);
    free(all->path);
    keymap_free(&all->names);
}

int cmd_export(const cli *args)
{
    exporting all = {.args = args, .out = args->argument[1]};
    int status = run_open(args, &all.run);
    if (status)
        return status;
    status = export_prepare(&all);
    if (!status)
        status = export_all(&all);
    if (!status && !all.written && !all.no_bytes && !all.not_tensors)
        status = nothing_matched(args, all.run, args->value[OPT_NAME]);
    else if (!status) {
        export_report(&all);
        export_notes(&all);
        status = all.written == 0 || all.no_bytes ? EXIT_DIFFERENT : EXIT_FINE;
    }
    export_free(&all);
    tap_run_close(all.run);
    interrupt_finish();
    return status;
}
