/* lines.c - index spaces, cursors, and lines of any dtype and stride as contiguous numbers. */
#include "engine/kernels/lines.h"

#include "base/status.h"
#include "tensor/kernels/by_isa.h"
#include "tensor/element.h"

#include <string.h>

const tap__lanes *tap__lanes_now(void)
{
    TAP__BY_ISA(tap__lanes);
}

/* --------------------------------------------------------------------------------------------------------- spaces */

void tap__space_begin(tap__space *space, int operands)
{
    memset(space, 0, sizeof *space);
    space->operands = operands;
    space->count = 1;
}

void tap__space_add(tap__space *space, int64_t size, const int64_t *strides)
{
    space->count *= size;
    if (size == 1)
        return;
    space->size[space->ndim] = size;
    for (int k = 0; k < space->operands; k++)
        space->stride[k][space->ndim] = strides[k];
    space->ndim++;
}

static void swap_dims(tap__space *space, int i, int j)
{
    int64_t size = space->size[i];
    space->size[i] = space->size[j];
    space->size[j] = size;
    for (int k = 0; k < space->operands; k++) {
        int64_t stride = space->stride[k][i];
        space->stride[k][i] = space->stride[k][j];
        space->stride[k][j] = stride;
    }
}

/* Whether dimension i belongs inside dimension i + 1: the first operand that tells them apart says so. */
static bool is_inner(const tap__space *space, int i)
{
    for (int k = 0; k < space->operands; k++) {
        int64_t a = space->stride[k][i], b = space->stride[k][i + 1];
        if (a != b)
            return a < b;
    }
    return false;
}

static bool can_merge(const tap__space *space, int outer, int inner)
{
    for (int k = 0; k < space->operands; k++)
        if (space->stride[k][outer] != space->stride[k][inner] * space->size[inner])
            return false;
    return true;
}

void tap__space_end(tap__space *space, bool reorder)
{
    for (int done = 0; reorder && !done;) {
        done = 1;
        for (int i = 0; i + 1 < space->ndim; i++)
            if (is_inner(space, i)) {
                swap_dims(space, i, i + 1);
                done = 0;
            }
    }
    int kept = 0;
    for (int i = 1; i < space->ndim; i++)
        if (can_merge(space, kept, i)) {
            space->size[kept] *= space->size[i];
            for (int k = 0; k < space->operands; k++)
                space->stride[k][kept] = space->stride[k][i];
        } else if (++kept != i) {
            swap_dims(space, kept, i);
        }
    if (space->ndim)
        space->ndim = kept + 1;
    if (!space->ndim) {
        space->ndim = 1;
        space->size[0] = space->count; /* 1, or 0 when a size was */
        for (int k = 0; k < space->operands; k++)
            space->stride[k][0] = 1;
    }
}

void tap__cursor_seek(tap__cursor *cursor, const tap__space *space, int64_t linear)
{
    cursor->space = space;
    for (int k = 0; k < space->operands; k++)
        cursor->at[k] = 0;
    for (int i = space->ndim - 1; i >= 0; i--) {
        int64_t size = space->size[i] ? space->size[i] : 1;
        cursor->index[i] = i ? linear % size : linear;
        linear /= size;
        for (int k = 0; k < space->operands; k++)
            cursor->at[k] += cursor->index[i] * space->stride[k][i];
    }
}

int64_t tap__cursor_rest(const tap__cursor *cursor)
{
    int last = cursor->space->ndim - 1;
    return cursor->space->size[last] - cursor->index[last];
}

void tap__cursor_step(tap__cursor *cursor, int64_t n)
{
    const tap__space *space = cursor->space;
    int i = space->ndim - 1;
    cursor->index[i] += n;
    for (int k = 0; k < space->operands; k++)
        cursor->at[k] += n * space->stride[k][i];
    for (; i > 0 && cursor->index[i] == space->size[i]; i--) {
        for (int k = 0; k < space->operands; k++)
            cursor->at[k] += space->stride[k][i - 1] - space->size[i] * space->stride[k][i];
        cursor->index[i] = 0;
        cursor->index[i - 1]++;
    }
}

/* ---------------------------------------------------------------------------------------------------------- lines */

#define GATHER(type)                                                                                                 \
    do {                                                                                                             \
        type *to = dst;                                                                                              \
        const type *from = src;                                                                                      \
        if (stride == 0)                                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                          \
                to[i] = from[0];                                                                                     \
        else                                                                                                         \
            for (int64_t i = 0; i < n; i++)                                                                          \
                to[i] = from[i * stride];                                                                            \
    } while (0)
#define SCATTER(type)                                                                                                \
    do {                                                                                                             \
        type *to = dst;                                                                                              \
        const type *from = src;                                                                                      \
        for (int64_t i = 0; i < n; i++)                                                                              \
            to[i * stride] = from[i];                                                                                \
    } while (0)

void tap__line_gather(void *dst, const void *src, int64_t stride, int64_t n, size_t bytes)
{
    if (stride == 1)
        memcpy(dst, src, (size_t)n * bytes);
    else if (bytes == 1)
        GATHER(uint8_t);
    else if (bytes == 2)
        GATHER(uint16_t);
    else if (bytes == 4)
        GATHER(uint32_t);
    else
        GATHER(uint64_t);
}

void tap__line_scatter(void *dst, int64_t stride, const void *src, int64_t n, size_t bytes)
{
    if (stride == 1)
        memcpy(dst, src, (size_t)n * bytes);
    else if (bytes == 1)
        SCATTER(uint8_t);
    else if (bytes == 2)
        SCATTER(uint16_t);
    else if (bytes == 4)
        SCATTER(uint32_t);
    else
        SCATTER(uint64_t);
}

const void *tap__line_load(const tap__lanes *lanes, tap_dtype dtype, const void *src, int64_t stride, int64_t n,
                           void *buffer)
{
    if (tap__line_is_direct(dtype, stride, n))
        return src;
    size_t bytes = tap_dtype_describe(dtype)->bytes;
    if (dtype == TAP_F32 || dtype == TAP_F64) {
        tap__line_gather(buffer, src, stride, n, bytes);
        return buffer;
    }
    uint16_t halves[TAP_LINE];
    if (stride != 1) {
        tap__line_gather(halves, src, stride, n, bytes);
        src = halves;
    }
    (dtype == TAP_F16 ? lanes->widen_f16 : lanes->widen_bf16)(buffer, src, n);
    return buffer;
}

void tap__line_store(const tap__lanes *lanes, tap_dtype dtype, void *dst, int64_t stride, int64_t n, const void *src)
{
    if (src == dst)
        return;
    size_t bytes = tap_dtype_describe(dtype)->bytes;
    if (dtype == TAP_F32 || dtype == TAP_F64) {
        tap__line_scatter(dst, stride, src, n, bytes);
        return;
    }
    void (*narrow)(void *, const float *, int64_t) = dtype == TAP_F16 ? lanes->narrow_f16 : lanes->narrow_bf16;
    if (stride == 1) {
        narrow(dst, src, n);
        return;
    }
    uint16_t halves[TAP_LINE];
    narrow(halves, src, n);
    tap__line_scatter(dst, stride, halves, n, bytes);
}

/* -------------------------------------------------------------------------------------------------------- elements */

double tap__get_float(tap_dtype dtype, const void *at)
{
    if (dtype == TAP_F32)
        return *(const float *)at;
    if (dtype == TAP_F64)
        return *(const double *)at;
    tap_scalar value = tap__element_get(dtype, at, 0);
    return tap__scalar_float(&value);
}

void tap__put_float(tap_dtype dtype, void *at, double value)
{
    if (dtype == TAP_F32) {
        *(float *)at = (float)value;
    } else if (dtype == TAP_F64) {
        *(double *)at = value;
    } else {
        /* through float32, as the framework rounds its accumulators */
        tap_scalar scalar = {.kind = 'F', .re = (double)(float)value};
        tap__element_put(dtype, at, 0, &scalar);
    }
}

void tap__put_int(tap_dtype dtype, void *at, int64_t value)
{
    switch (dtype) {
    case TAP_BOOL:
        *(uint8_t *)at = value != 0;
        return;
    case TAP_U8:
    case TAP_I8:
        *(uint8_t *)at = (uint8_t)value;
        return;
    case TAP_U16:
    case TAP_I16:
        *(uint16_t *)at = (uint16_t)value;
        return;
    case TAP_U32:
    case TAP_I32:
        *(uint32_t *)at = (uint32_t)value;
        return;
    case TAP_U64:
    case TAP_I64:
        *(uint64_t *)at = (uint64_t)value;
        return;
    default:
        tap__put_float(dtype, at, (double)value);
    }
}

/* ----------------------------------------------------------------------------------------------------------- axes */

static tap_status mark_axis(const tap__call *call, int64_t axis, bool *mask, tap_error *err)
{
    int ndim = call->in[0].ndim;
    if (axis < 0)
        axis += ndim;
    if (ndim == 0 && (axis == 0 || axis == -1))
        return TAP_OK;
    if (axis < 0 || axis >= ndim || mask[axis])
        return tap__refuse(call, err);
    mask[axis] = true;
    return TAP_OK;
}

tap_status tap__axes_mask(const tap__call *call, const tap__attr *axes, bool empty_is_none, bool *mask, tap_error *err)
{
    memset(mask, 0, TAP_ENGINE_MAX_NDIM * sizeof mask[0]);
    if (!axes->present || (axes->count == 0 && !empty_is_none))
        memset(mask, 1, (size_t)call->in[0].ndim);
    else
        for (int i = 0; i < axes->count; i++)
            TAP_TRY(mark_axis(call, axes->ints[i], mask, err));
    return TAP_OK;
}

tap_status tap__axis_mask(const tap__call *call, const tap__attr *axis, bool *mask, tap_error *err)
{
    memset(mask, 0, TAP_ENGINE_MAX_NDIM * sizeof mask[0]);
    if (axis->present)
        return mark_axis(call, axis->i, mask, err);
    memset(mask, 1, (size_t)call->in[0].ndim);
    return TAP_OK;
}
