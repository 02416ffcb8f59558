/* source_files.c - recordings of the other layouts and single tensor files: one source, whose rows were gathered into
 * an index in memory when it was opened, and whose bytes are read through the file formats. */
#include "record/read/source_files.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/format.h"
#include "record/ring/journal.h"

#include <string.h>

/* --------------------------------------------------------------------------------------------------- single files */

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

static tap_status add_entry(const tap_file_entry *entry, const char *file, const char *stem, tap_record_fn add,
                            void *user, tap_error *err)
{
    int64_t shape[TAP_MAX_NDIM];
    tap_facts facts = {.why = NULL};
    tap_record record = {.name = entry->name && entry->name[0] ? entry->name : stem, .value_type = entry->value_type,
                         .shape = shape, .file = file, .offset = entry->offset, .path = ""};
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
    return add(user, &record, &facts);
}

static tap_status read_entries(tap_file *file, const char *name, tap_record_fn add, void *user, tap_error *err)
{
    const char *dot = strrchr(name, '.');
    char *stem = tap__strndup(name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
    tap_status status = stem ? TAP_OK : tap_fail_nomem(err);
    for (size_t i = 0; i < tap_file_count(file) && status == TAP_OK; i++) {
        tap_file_entry entry;
        tap_file_entry_init(&entry);
        status = tap_file_get(file, i, &entry, err);
        if (status == TAP_OK)
            status = add_entry(&entry, name, stem, add, user, err);
    }
    tap__free(stem);
    return status;
}

tap_status tap__files_each(const tap_files *files, tap_record_fn add, void *user, tap_error *err)
{
    if (files->layout)
        return files->layout->read(files->dir, files->only, add, user, err);
    if (!files->only)
        return TAP_OK;
    tap_file *file;
    TAP_TRY(tap__file_open_below(files->dir, files->only, &file, err));
    tap_status status = read_entries(file, files->only, add, user, err);
    tap_file_close(file);
    return status;
}

/* --------------------------------------------------------------------------------------------------------- opening */

/* What filling an index from files comes to. */
typedef struct filling {
    tap_index *index;
    uint64_t whole, broken; /* records; files of which nobody knows what they held */
    tap_error why;          /* of the first of them */
} filling;

static tap_status add_row(void *user, const tap_record *record, const tap_facts *facts)
{
    filling *f = user;
    if (facts->unknown) { /* no record of anything that was saved */
        if (!f->broken++)
            tap_fail(&f->why, TAP_E_FORMAT, "%s", facts->why);
        return TAP_OK;
    }
    f->whole++;
    return tap__index_add_record(f->index, record, NULL);
}

/* The one source there is. */
static tap_status source_make(tap_run *run, const tap_layout *layout, const char *only, tap_error *err)
{
    tap_files *files = tap__calloc(1, sizeof *files);
    run->sources = tap__calloc(1, sizeof *run->sources);
    if (!files || !run->sources) {
        tap__free(files);
        return tap_fail_nomem(err);
    }
    run->type = &tap__source_files;
    run->sources[run->count++] = &files->source;
    files->layout = layout;
    files->dir = run->dir;
    files->only = only ? tap__strdup(only) : NULL;
    files->source.rank = TAP_RANK_OF_ROW;
    files->source.in_memory = true;
    files->source.relative = tap__strdup("");
    if (!files->source.relative || (only && !files->only))
        return tap_fail_nomem(err);
    return tap__index_create_memory(&files->source.index, err);
}

static tap_status fill(tap_run *run, tap_error *err)
{
    tap_source *source = run->sources[0];
    filling f = {.index = source->index};
    TAP_TRY(tap__files_each((tap_files *)source, add_row, &f, err));
    if (f.broken && !f.whole)
        return tap_fail(err, f.why.status, "%s: %s", run->dir->path, f.why.message);
    if (f.broken)
        tap__log(TAP_LOG_WARNING, "%s: %s; what is whole is read. Run: tensortap verify", run->dir->path,
                 f.why.message);
    tap_index_counts counts;
    tap__index_counts(source->index, &counts);
    source->info.records = counts.records;
    source->info.bytes = counts.bytes;
    return TAP_OK;
}

static const tap_layout *layout_of(const tap_run *run, const char *only)
{
    const tap_layout *layout;
    for (size_t i = 0; (layout = tap__layout_at(i)); i++)
        if (layout->detect && layout->read && layout->detect(run->dir, only))
            return layout;
    return NULL;
}

tap_status tap__files_open(tap_run *run, const char *only, tap_error *err)
{
    const tap_layout *layout = layout_of(run, only);
    /* where the disk was full before a layout's first list was written, what was lost is all there is to tell */
    if (!layout && !only && !tap__journal_is_beside(run->dir))
        return tap_fail(err, TAP_E_NOTFOUND, "no recording in %s", run->dir->path);
    run->layout = layout ? layout->name : "lost";
    if (!layout && only) {
        tap_file *file;
        TAP_TRY(tap__file_open_below(run->dir, only, &file, err));
        run->layout = tap_file_format(file);
        tap_file_close(file);
    }
    TAP_TRY(source_make(run, layout, only, err));
    return fill(run, err);
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
static tap_status scalar_copy(const tap_file_entry *entry, const tap_record *record, tap_mapped *out, tap_error *err)
{
    double complex_parts[2] = {entry->number, entry->imag};
    const void *from = &entry->integer;
    size_t len = sizeof entry->integer;
    if (entry->value_type == TAP_VALUE_STR) {
        from = entry->text;
        len = entry->text ? strlen(entry->text) : 0;
    } else if (entry->value_type == TAP_VALUE_FLOAT || entry->value_type == TAP_VALUE_COMPLEX) {
        from = complex_parts;
        len = sizeof complex_parts;
    }
    if (record->payload_bytes > len)
        return tap_fail(err, TAP_E_CORRUPT, "%s is shorter than it was when the run was opened; open it again",
                        record->name);
    char *bytes = tap__calloc(1, (size_t)record->payload_bytes + 1);
    if (!bytes)
        return tap_fail_nomem(err);
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
static tap_status entry_take(tap_file *file, const char *path, const tap_record *record, tap_mapped *out,
                             tap_error *err)
{
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    TAP_TRY(entry_find(file, path, record, &entry, err));
    if (entry.value_type != TAP_VALUE_TENSOR) {
        TAP_TRY(tap__mapped_describe(record, out, err));
        return scalar_copy(&entry, record, out, err);
    }
    out->tensor = entry.tensor; /* strides live in the file, which the mapping keeps open */
    out->tensor.shape = out->shape;
    if (entry.tensor.ndim)
        memcpy(out->shape, entry.tensor.shape, 8 * (size_t)entry.tensor.ndim);
    return TAP_OK;
}

static tap_status map(tap_dir *dir, const tap_record *record, tap_mapped *out, tap_error *err)
{
    if (!record->file || !record->file[0])
        return tap_fail(err, TAP_E_LOST, "%s of step %lld: no bytes were kept, only what is known about them",
                        record->name, (long long)record->step);
    tap_file *file;
    TAP_TRY(tap__file_open_below(dir, record->file, &file, err));
    tap_status status = entry_take(file, record->file, record, out, err);
    if (status != TAP_OK)
        tap_file_close(file);
    else
        out->file = file;
    return status;
}

static void close_source(tap_source *source)
{
    tap__free(((tap_files *)source)->only);
}

const tap_source_type tap__source_files = {
    .look = look, .open = nothing, .refresh = nothing, .rebuild = nothing, .rank = rank_of,
    .place = place, .map = map, .verify = tap__verify_files, .close = close_source,
};
