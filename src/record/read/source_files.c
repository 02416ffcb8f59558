/* source_files.c - recordings of the other layouts and single tensor files: one source, whose rows were gathered into
 * an index in memory when it was opened, and whose bytes are read through the file formats. */
#include "record/read/verify.h"

#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/layout.h"
#include "record/ring/journal.h"

#include <string.h>

/* --------------------------------------------------------------------------------------------------------- opening */

static tap_status add(void *user, const tap_record *record)
{
    tap_source *source = user;
    return tap__index_add_record(source->index, record, NULL);
}

/* The one source there is. */
static tap_status source_make(tap_run *run, tap_error *err)
{
    tap_source *source = tap__calloc(1, sizeof *source);
    run->sources = tap__calloc(1, sizeof *run->sources);
    if (!source || !run->sources) {
        tap__free(source);
        return tap_fail_nomem(err);
    }
    run->type = &tap__source_files;
    run->sources[run->count++] = source;
    source->rank = TAP_RANK_OF_ROW;
    source->in_memory = true;
    source->relative = tap__strdup("");
    if (!source->relative)
        return tap_fail_nomem(err);
    return tap__index_create_memory(&source->index, err);
}

static void counts_take(tap_run *run)
{
    tap_index_counts counts;
    tap__index_counts(run->sources[0]->index, &counts);
    run->sources[0]->info.records = counts.records;
    run->sources[0]->info.bytes = counts.bytes;
}

static tap_status read_layout(tap_run *run, const tap_layout *layout, const char *path, tap_error *err)
{
    run->layout = layout->name;
    TAP_TRY(source_make(run, err));
    TAP_TRY(layout->read(path, add, run->sources[0], err));
    counts_take(run);
    return TAP_OK;
}

/* A number is kept as the eight bytes of its value, text as its bytes. */
static void describe_scalar(const tap_file_entry *entry, tap_record *record, int64_t *shape)
{
    switch (entry->value_type) {
    case TAP_VALUE_BOOL:
    case TAP_VALUE_INT: record->dtype = TAP_I64; break;
    case TAP_VALUE_FLOAT: record->dtype = TAP_F64; break;
    case TAP_VALUE_COMPLEX: record->dtype = TAP_C128; break;
    case TAP_VALUE_STR:
        record->dtype = TAP_U8;
        record->ndim = 1;
        shape[0] = entry->text ? (int64_t)strlen(entry->text) : 0;
        record->payload_bytes = (uint64_t)shape[0];
        return;
    default: return;
    }
    record->payload_bytes = tap_dtype_describe(record->dtype)->bytes;
}

static tap_status add_entry(tap_run *run, const tap_file_entry *entry, const char *file, const char *stem,
                            tap_error *err)
{
    int64_t shape[TAP_MAX_NDIM];
    tap_record record = {.name = entry->name && entry->name[0] ? entry->name : stem, .value_type = entry->value_type,
                         .shape = shape, .file = file, .offset = entry->offset};
    if (entry->value_type == TAP_VALUE_TENSOR || entry->value_type == TAP_VALUE_META) {
        int64_t bytes = tap_tensor_bytes(&entry->tensor);
        if (bytes < 0)
            return tap_fail(err, TAP_E_LIMIT, "%s: %s has an impossible shape", file, record.name);
        record.dtype = entry->tensor.dtype;
        record.ndim = entry->tensor.ndim;
        record.shape = entry->tensor.shape;
        record.payload_bytes = entry->value_type == TAP_VALUE_TENSOR ? (uint64_t)bytes : 0;
    } else {
        describe_scalar(entry, &record, shape);
    }
    return tap__index_add_record(run->sources[0]->index, &record, err);
}

static tap_status read_entries(tap_run *run, tap_file *file, const char *name, const char *stem, tap_error *err)
{
    run->layout = tap_file_format(file);
    TAP_TRY(source_make(run, err));
    for (size_t i = 0; i < tap_file_count(file); i++) {
        tap_file_entry entry;
        TAP_TRY(tap_file_get(file, i, &entry, err));
        TAP_TRY(add_entry(run, &entry, name, stem, err));
    }
    counts_take(run);
    return TAP_OK;
}

static tap_status read_file(tap_run *run, const char *path, tap_error *err)
{
    tap_file *file;
    TAP_TRY(tap_file_open(path, &file, err));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    char *stem = tap__strndup(name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
    char *base = tap__strdup(name);
    tap_status status = stem && base ? read_entries(run, file, base, stem, err) : tap_fail_nomem(err);
    tap_file_close(file);
    tap__free(stem);
    tap__free(base);
    /* files are found relative to the directory */
    char *end = strrchr(run->dir, '/');
    if (end)
        end[end == run->dir] = 0;
    return status;
}

tap_status tap__files_open(tap_run *run, const char *path, bool is_file, tap_error *err)
{
    const tap_layout *layout;
    for (size_t i = 0; (layout = tap__layout_at(i)); i++)
        if (!layout->native && layout->detect && layout->read && layout->detect(path))
            return read_layout(run, layout, path, err);
    if (is_file)
        return read_file(run, path, err);
    if (!tap__journal_is_beside(path))
        return tap_fail(err, TAP_E_NOTFOUND, "no recording in %s", path);
    /* the disk was full before a layout's first list was written: what was lost is all there is to tell */
    run->layout = "lost";
    TAP_TRY(source_make(run, err));
    counts_take(run);
    return TAP_OK;
}

/* Rows are read once, when the recording is opened. */
static tap_status look(tap_run *run, tap_error *err)
{
    (void)run;
    (void)err;
    return TAP_OK;
}

static tap_status nothing(tap_run *run, tap_source *source, tap_error *err)
{
    (void)run;
    (void)source;
    (void)err;
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- records */

/* It stands where ours have the segment. */
static int32_t rank_of(const tap_source *source, const tap_row *row)
{
    (void)source;
    return (int32_t)row->segment;
}

static tap_status place(const tap_source *source, const tap_row *row, tap_place *out, tap_error *err)
{
    size_t len;
    TAP_TRY(tap__index_text(source->index, row->text[TAP_ROW_PATH], &out->path, &len, err));
    return tap__index_text(source->index, row->text[TAP_ROW_FILE], &out->file, &len, err);
}

/* Numbers and text of a file lie in its entries, not in bytes that could be mapped. */
static tap_status scalar_copy(const tap_file_entry *entry, const tap_record *record, tap_mapping *out, tap_error *err)
{
    char *bytes = tap__calloc(1, (size_t)record->payload_bytes + 1);
    if (!bytes)
        return tap_fail_nomem(err);
    double complex_parts[2] = {entry->number, entry->imag};
    const void *from = entry->value_type == TAP_VALUE_STR ? (const void *)entry->text
                       : entry->value_type == TAP_VALUE_FLOAT || entry->value_type == TAP_VALUE_COMPLEX
                           ? (const void *)complex_parts
                           : (const void *)&entry->integer;
    if (record->payload_bytes)
        memcpy(bytes, from, (size_t)record->payload_bytes);
    out->base = bytes; /* base_bytes 0: not mapped */
    out->tensor.data = bytes;
    return TAP_OK;
}

/* Which entry of its file is the record? The one at its offset; in a file of one value, that one. */
static tap_status entry_find(tap_file *file, const char *path, const tap_record *record, tap_file_entry *entry,
                             tap_error *err)
{
    size_t count = tap_file_count(file);
    bool tensor = record->value_type == TAP_VALUE_TENSOR;
    for (size_t i = 0; i < count; i++) {
        TAP_TRY(tap_file_get(file, i, entry, err));
        const char *name = entry->name ? entry->name : "";
        if (entry->value_type == record->value_type && entry->offset == record->offset &&
            (tensor || !name[0] || strcmp(name, record->name) == 0))
            return TAP_OK;
    }
    if (count == 1 && (entry->value_type == TAP_VALUE_TENSOR || !tensor))
        return TAP_OK;
    return tap_fail(err, TAP_E_NOTFOUND, "%s no longer holds %s; it was changed after the run was opened", path,
                    record->name);
}

/* A layout may have converted the value: what the file says about it counts, not the record. */
static tap_status entry_take(tap_file *file, const char *path, const tap_record *record, tap_mapping *out,
                             tap_error *err)
{
    tap_file_entry entry;
    TAP_TRY(entry_find(file, path, record, &entry, err));
    if (entry.value_type != TAP_VALUE_TENSOR) {
        TAP_TRY(tap__mapping_describe(record, out, err));
        return scalar_copy(&entry, record, out, err);
    }
    out->tensor = entry.tensor; /* strides live in the file, which the mapping keeps open */
    out->tensor.shape = out->shape;
    if (entry.tensor.ndim)
        memcpy(out->shape, entry.tensor.shape, 8 * (size_t)entry.tensor.ndim);
    return TAP_OK;
}

static tap_status map(const char *path, const tap_record *record, tap_mapping *out, tap_error *err)
{
    if (!record->file || !record->file[0])
        return tap_fail(err, TAP_E_LOST, "%s of step %lld: no bytes were kept, only what is known about them",
                        record->name, (long long)record->step);
    tap_file *file;
    TAP_TRY(tap_file_open(path, &file, err));
    tap_status status = entry_take(file, path, record, out, err);
    if (status != TAP_OK)
        tap_file_close(file);
    else
        out->owned = file;
    return status;
}

/* ------------------------------------------------------------------------------------------------------ verifying */

static void verify_record(tap_verifier *v, const tap_record *record)
{
    v->result.records++;
    v->result.bytes += record->payload_bytes;
    if (v->options.quick || !record->payload_bytes || !record->file[0])
        return;
    tap_mapping mapping;
    tap_error why;
    tap_status status = tap_record_map(v->run, record, &mapping, &why);
    if (status != TAP_OK) {
        tap__verify_report(v, (tap_problem){.kind = status == TAP_E_NOTFOUND ? TAP_PROBLEM_MISSING : TAP_PROBLEM_CORRUPT,
                                .step = record->step, .name = record->name, .path = record->path, .count = 1,
                                .file = record->file, .reason = why.message});
        return;
    }
    int64_t bytes = tap_tensor_bytes(&mapping.tensor);
    if (record->has_hash && mapping.tensor.dtype == record->dtype && bytes >= 0 &&
        tap_tensor_is_contiguous(&mapping.tensor) &&
        tap_hash_bytes(mapping.tensor.data, (size_t)bytes) != record->hash)
        tap__verify_report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = record->step, .name = record->name,
                                .path = record->path, .count = 1, .file = record->file,
                                .reason = tap_text("the bytes on disk do not match their checksum")});
    tap_mapping_release(&mapping);
}

static void on_journal(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    tap_verifier *v = user;
    (void)bytes;
    tap__verify_report(v, (tap_problem){.kind = TAP_PROBLEM_DROPPED, .step = step, .name = name, .count = count,
                                        .reason = tap__reason_text(reason)});
}

static tap_status verify(tap_verifier *v)
{
    v->total = v->run->sources[0]->info.bytes;
    tap_query query;
    tap_query_init(&query);
    query.incomplete = true;
    tap_cursor *cursor;
    TAP_TRY(tap_run_query(v->run, &query, &cursor, v->err));
    tap_record record;
    tap_status status;
    while ((status = tap_cursor_next(cursor, &record, v->err)) == TAP_OK) {
        verify_record(v, &record);
        if ((status = tap__verify_go_on(v, v->done + record.payload_bytes)) != TAP_OK)
            break;
    }
    tap_cursor_close(cursor);
    if (status != TAP_END)
        return status;
    return tap__journal_read_beside(v->run->dir, on_journal, v, v->err);
}

static void close_source(tap_source *source)
{
    (void)source;
}

const tap_source_type tap__source_files = {
    .look = look, .open = nothing, .refresh = nothing, .rebuild = nothing, .rank = rank_of,
    .place = place, .map = map, .verify = verify, .close = close_source,
};
