/* strided.h - copies between two layouts of the same elements, broadcast or not; float16 and bfloat16 to and from
 * float32. */
#ifndef TAP_ENGINE_STRIDED_H
#define TAP_ENGINE_STRIDED_H

#include "engine/kernel.h"

/* item: bytes of one element (1, 2, 4, 8 or 16). Strides in elements; a stride of 0 in src repeats. ndim at most
 * TAP_ENGINE_MAX_NDIM. call says how many threads may be used. */
void tap__strided_copy(const tap__call *call, size_t item, int ndim, const int64_t *size, const int64_t *dst_stride,
                       void *dst, const int64_t *src_stride, const void *src);
/* The same, from one dtype to another: equal ones, or F16 or BF16 to F32 and back. */
void tap__strided_convert(const tap__call *call, tap_dtype to, tap_dtype from, int ndim, const int64_t *size,
                          const int64_t *dst_stride, void *dst, const int64_t *src_stride, const void *src);

#endif
