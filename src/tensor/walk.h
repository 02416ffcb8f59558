/* walk.h - visits the elements of a strided view in row-major order, some at a time. */
#ifndef TAP_TENSOR_WALK_H
#define TAP_TENSOR_WALK_H

#include "tensortap/tensortap.h"

/* Dimensions that lie behind one another in memory are merged; ndim 1 with stride == item is contiguous. */
typedef struct tap_walk {
    const char *at;        /* the next element */
    size_t item;           /* bytes of one element */
    int ndim;              /* at least 1 */
    int64_t left;          /* elements not yet visited */
    int64_t shape[TAP_MAX_NDIM], stride[TAP_MAX_NDIM]; /* strides in bytes */
    int64_t index[TAP_MAX_NDIM];
} tap_walk;

/* Every tensor from outside is looked at by one of these: TAP_E_INVALID says what makes no sense in it. The first looks
 * at dimensions and shape alone, for a tensor of which nothing else is known. */
tap_status tap__shape_check(const tap_tensor *tensor, tap_error *err);
tap_status tap__tensor_check(const tap_tensor *tensor, int64_t *count, tap_error *err);

/* Looks at the tensor (tap__tensor_check) and stands before its first element. */
tap_status tap__walk_begin(tap_walk *walk, const tap_tensor *tensor, tap_error *err);
bool tap__walk_is_contiguous(const tap_walk *walk);
/* The last dimension but one is the one that lies side by side: reading many rows at a time is much faster. */
bool tap__walk_is_transposed(const tap_walk *walk);
/* Copies the next `count` elements (at most `left`) to dst. */
void tap__walk_read(tap_walk *walk, void *dst, int64_t count);
/* Address of element number `index` in row-major order. */
const void *tap__element_at(const tap_tensor *tensor, int64_t index);

#endif
