/* run_foreign.c - recordings of the other layouts and single tensor files, gathered into an index in memory. */
#include "record/read/run.h"

#include "base/memory.h"
#include "base/status.h"
#include "record/ring/journal.h"
#include "record/layouts/layout.h"

#include <string.h>

static tap_status add(void *user, const tap_record *record)
{
    tap_source *attempt = user;
    return tap__index_add_record(attempt->index, record, NULL);
}

/* The one attempt a foreign recording has. */
static tap_status attempt_make(tap_run *run, tap_error *err)
{
    tap_source *attempt = tap__calloc(1, sizeof *attempt);
    run->attempts = tap__calloc(1, sizeof *run->attempts);
    if (!attempt || !run->attempts) {
        tap__free(attempt);
        return tap_fail_nomem(err);
    }
    run->attempts[run->count++] = attempt;
    attempt->scan.fd = -1;
    attempt->in_memory = true;
    attempt->info_status = TAP_OK;
    attempt->relative = tap__strdup("");
    if (!attempt->relative)
        return tap_fail_nomem(err);
    return tap__index_create_memory(&attempt->index, err);
}

static void counts_take(tap_run *run)
{
    tap_index_counts counts;
    tap__index_counts(run->attempts[0]->index, &counts);
    run->attempts[0]->info.records = counts.records;
    run->attempts[0]->info.bytes = counts.bytes;
}

static tap_status read_layout(tap_run *run, const tap_layout *layout, const char *path, tap_error *err)
{
    run->layout = layout->name;
    TAP_TRY(attempt_make(run, err));
    TAP_TRY(layout->read(path, add, run->attempts[0], err));
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
    return tap__index_add_record(run->attempts[0]->index, &record, err);
}

static tap_status read_entries(tap_run *run, tap_file *file, const char *name, const char *stem, tap_error *err)
{
    run->layout = tap_file_format(file);
    TAP_TRY(attempt_make(run, err));
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

tap_status tap__run_open_foreign(tap_run *run, const char *path, bool is_file, tap_error *err)
{
    const tap_layout *layout;
    for (size_t i = 0; (layout = tap__layout_at(i)); i++)
        if (!layout->native && layout->detect && layout->read && layout->detect(path))
            return read_layout(run, layout, path, err);
    if (is_file)
        return read_file(run, path, err);
    if (!tap__journal_is_beside(path))
        return tap_fail(err, TAP_E_FORMAT, "no recording in %s", path);
    /* the disk was full before a layout's first list was written: what was lost is all there is to tell */
    run->layout = "lost";
    TAP_TRY(attempt_make(run, err));
    counts_take(run);
    return TAP_OK;
}
