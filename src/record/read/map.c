/* map.c - the bytes of a record: mapped from a segment, or opened through the file formats. */
#include "record/read/run.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Checks that shape and bytes of the record agree and describes the tensor; its data comes later. */
static tap_status tensor_describe(const tap_record *record, tap_mapping *out, tap_error *err)
{
    if (record->ndim < 0 || record->ndim > TAP_MAX_NDIM)
        return tap_fail(err, TAP_E_CORRUPT, "%s: %d dimensions", record->name, record->ndim);
    if (record->ndim)
        memcpy(out->shape, record->shape, 8 * (size_t)record->ndim);
    out->tensor = (tap_tensor){.dtype = record->dtype, .ndim = record->ndim, .shape = out->shape};
    if (record->dtype == TAP_DTYPE_NONE) { /* text and bytes have no element type: the bytes as they are */
        out->tensor.dtype = TAP_U8;
        out->tensor.ndim = 1;
        out->shape[0] = (int64_t)record->payload_bytes;
    }
    int64_t bytes = tap_tensor_bytes(&out->tensor);
    if (bytes == 0)
        return TAP_OK;
    if (record->payload_bytes == 0)
        return tap_fail(err, TAP_E_LOST, "%s of step %lld: no bytes were kept, only what is known about them",
                        record->name, (long long)record->step);
    if (bytes < 0 || (uint64_t)bytes != record->payload_bytes)
        return tap_fail(err, TAP_E_CORRUPT, "%s of step %lld: %llu bytes do not fit its shape; run: tensortap verify",
                        record->name, (long long)record->step, (unsigned long long)record->payload_bytes);
    return TAP_OK;
}

static tap_status map_native(const char *path, const tap_record *record, tap_mapping *out, tap_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    struct stat st;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = record->offset / page * page, end = 0;
    tap_status status = TAP_OK;
    if (fstat(fd, &st) != 0)
        status = tap_fail_errno(err, TAP_E_IO, "cannot look at %s", path);
    else if (__builtin_add_overflow(record->offset, record->payload_bytes, &end) || end > (uint64_t)st.st_size)
        status = tap_fail(err, TAP_E_TRUNCATED, "%s ends before the bytes of %s; run: tensortap verify", path,
                          record->name);
    if (status == TAP_OK) {
        out->base_bytes = (size_t)(end - start);
        out->base = mmap(NULL, out->base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)start);
        if (out->base == MAP_FAILED) {
            out->base = NULL;
            out->base_bytes = 0;
            status = tap_fail_errno(err, TAP_E_IO, "cannot map %s", path);
        } else {
            out->tensor.data = (char *)out->base + (record->offset - start);
        }
    }
    close(fd);
    return status;
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
        TAP_TRY(tensor_describe(record, out, err));
        return scalar_copy(&entry, record, out, err);
    }
    out->tensor = entry.tensor; /* strides live in the file, which the mapping keeps open */
    out->tensor.shape = out->shape;
    if (entry.tensor.ndim)
        memcpy(out->shape, entry.tensor.shape, 8 * (size_t)entry.tensor.ndim);
    return TAP_OK;
}

static tap_status map_foreign(const char *path, const tap_record *record, tap_mapping *out, tap_error *err)
{
    tap_file *file;
    TAP_TRY(tap_file_open(path, &file, err));
    tap_status status = entry_take(file, path, record, out, err);
    if (status != TAP_OK)
        tap_file_close(file);
    else
        out->owned = file;
    return status;
}

tap_status tap_record_map(tap_run *run, const tap_record *record, tap_mapping *out, tap_error *err)
{
    memset(out, 0, sizeof *out);
    bool native = run->native;
    if (native)
        TAP_TRY(tensor_describe(record, out, err));
    if (native && tap_tensor_bytes(&out->tensor) == 0)
        return TAP_OK;
    if (!native && !(record->file && record->file[0]))
        return tap_fail(err, TAP_E_LOST, "%s of step %lld: no bytes were kept, only what is known about them",
                        record->name, (long long)record->step);
    char *path = tap__path_join(run->dir, record->file);
    if (!path)
        return tap_fail_nomem(err);
    tap_status status = native ? map_native(path, record, out, err) : map_foreign(path, record, out, err);
    tap__free(path);
    return status;
}

void tap_mapping_release(tap_mapping *mapping)
{
    if (mapping->base_bytes)
        munmap(mapping->base, mapping->base_bytes);
    else
        tap__free(mapping->base);
    if (mapping->owned)
        tap_file_close(mapping->owned);
    memset(mapping, 0, sizeof *mapping);
}
