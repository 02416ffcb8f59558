/* lines.h - walking operands of any strides line by line: an index space over up to TAP_SPACE_OPERANDS operands at
 * once, whose innermost dimension is a line, and lines as contiguous numbers a vector kernel can work on. */
#ifndef TAP_ENGINE_LINES_H
#define TAP_ENGINE_LINES_H

#include "engine/kernel.h"
#include "engine/kernels/lanes.h"

enum {
    TAP_SPACE_OPERANDS = 4,
    TAP_LINE = 1024 /* numbers brought into a buffer at a time */
};

/* Sizes with the strides of each operand, in elements, innermost last. */
typedef struct tap__space {
    int ndim, operands;
    int64_t count; /* product of the sizes */
    int64_t size[TAP_ENGINE_MAX_NDIM];
    int64_t stride[TAP_SPACE_OPERANDS][TAP_ENGINE_MAX_NDIM];
} tap__space;

void tap__space_begin(tap__space *space, int operands);
/* One more dimension inside the others; strides: one per operand. */
void tap__space_add(tap__space *space, int64_t size, const int64_t *strides);
/* Ends the space: dimensions of size one go, those that follow on each other become one. `reorder`: sorted by the
 * strides of operand 0 first, largest outermost, where the order of the elements does not matter. At least one
 * dimension is left. */
void tap__space_end(tap__space *space, bool reorder);

/* A place in a space: offsets of each operand in elements. */
typedef struct tap__cursor {
    const tap__space *space;
    int64_t index[TAP_ENGINE_MAX_NDIM];
    int64_t at[TAP_SPACE_OPERANDS];
} tap__cursor;

void tap__cursor_seek(tap__cursor *cursor, const tap__space *space, int64_t linear);
/* What is left of the line the cursor is in. */
int64_t tap__cursor_rest(const tap__cursor *cursor);
/* n: at most the rest of the line. */
void tap__cursor_step(tap__cursor *cursor, int64_t n);

/* Address of the element `offset` elements from base. */
static inline void *tap__element_at(const void *base, tap_dtype dtype, int64_t offset)
{
    return (char *)base + offset * (int64_t)tap_dtype_describe(dtype)->bytes;
}

/* n elements of `bytes` each, stride apart, one after another into dst. */
void tap__line_gather(void *dst, const void *src, int64_t stride, int64_t n, size_t bytes);
void tap__line_scatter(void *dst, int64_t stride, const void *src, int64_t n, size_t bytes);

/* n values as float (of float16, bfloat16, float32) or double (float64), contiguous: where they lie already, or in
 * buffer, which has room for TAP_LINE doubles; n is at most TAP_LINE unless they lie so already. */
const void *tap__line_load(const tap__lanes *lanes, tap_dtype dtype, const void *src, int64_t stride, int64_t n,
                           void *buffer);
static inline bool tap__line_is_direct(tap_dtype dtype, int64_t stride, int64_t n)
{
    return (dtype == TAP_F32 || dtype == TAP_F64) && (stride == 1 || n <= 1);
}
/* Where to compute values that tap__line_store then puts into place: the place itself, or buffer. */
static inline void *tap__line_target(tap_dtype dtype, void *dst, int64_t stride, int64_t n, void *buffer)
{
    return tap__line_is_direct(dtype, stride, n) ? dst : buffer;
}
void tap__line_store(const tap__lanes *lanes, tap_dtype dtype, void *dst, int64_t stride, int64_t n, const void *src);

/* How many numbers may be worked on at once: all of them where they lie ready, else a buffer full. */
static inline int64_t tap__line_chunk(int64_t n, bool direct)
{
    return direct || n <= TAP_LINE ? n : TAP_LINE;
}

/* One float or integer as a number, and back with rounding to the dtype. */
double tap__get_float(tap_dtype dtype, const void *at);
void tap__put_float(tap_dtype dtype, void *at, double value);
void tap__put_int(tap_dtype dtype, void *at, int64_t value);

/* The reduced dimensions of an operand: mask[i] is set for each axis of the list (negative: from the end), for all when
 * the list is none or, unless `empty_is_none`, empty. E_UNSUPPORTED for an axis twice or out of range. */
tap_status tap__axes_mask(const tap__call *call, const tap__attr *axes, bool empty_is_none, bool *mask, tap_error *err);
/* The same for one axis, none meaning all. */
tap_status tap__axis_mask(const tap__call *call, const tap__attr *axis, bool *mask, tap_error *err);


#endif
