/* map.c - the bytes of a record, mapped by its source. */
#include "record/read/run.h"

#include "base/memory.h"
#include "base/sized.h"

#include <string.h>
#include <sys/mman.h>

tap_status tap__mapped_describe(const tap_record *record, tap_mapped *out, tap_error *err)
{
    if (record->ndim < 0 || record->ndim > TAP_MAX_NDIM)
        return tap_fail(err, TAP_E_CORRUPT, "%s: %d dimensions", record->name, record->ndim);
    if (record->ndim && !record->shape)
        return tap_fail(err, TAP_E_INVALID, "%s: %d dimensions and no shape", record->name, record->ndim);
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

static void mapped_free(tap_mapped *mapped)
{
    if (mapped->base_bytes)
        munmap(mapped->base, mapped->base_bytes);
    else
        tap__free(mapped->base);
    tap_file_close(mapped->file);
    tap__free(mapped);
}

tap_status tap__record_map(tap_run *run, const tap_record *record, tap_mapping *out, tap_error *err)
{
    tap_mapped *mapped = tap__calloc(1, sizeof *mapped);
    if (!mapped)
        return tap_fail_nomem(err);
    tap_status status = run->type->map(run->dir, record, mapped, err);
    if (status != TAP_OK) {
        mapped_free(mapped);
        return status;
    }
    out->tensor = mapped->tensor;
    out->held = mapped;
    return TAP_OK;
}

tap_status tap_record_map(tap_run *run, const tap_record *record, tap_mapping *out, tap_error *err)
{
    TAP_NEED(err, run);
    TAP_NEED_SIZED(err, tap_record, record);
    TAP_NEED_SIZED(err, tap_mapping, out);
    if (out->size < offsetof(tap_mapping, held) + sizeof out->held) /* what is not told cannot be released */
        return tap__wrong_size(err, __func__, "tap_mapping", out->size, sizeof *out);
    tap_record whole = {.name = ""};
    tap_mapping mapping = {.held = NULL};
    tap__sized_take(&whole, record);
    tap_status status = tap__record_map(run, &whole, &mapping, err);
    tap__sized_give(out, &mapping);
    return status;
}

void tap_mapping_release(tap_mapping *mapping)
{
    if (!mapping || !TAP_SIZE_IS_KNOWN(tap_mapping, mapping))
        return;
    if (mapping->held)
        mapped_free(mapping->held);
    tap__sized_give(mapping, &(tap_mapping){.held = NULL});
}
