/* offsets.h - index tensors as tables of byte offsets, every index checked before anything is written. */
#ifndef TAP_ENGINE_OFFSETS_H
#define TAP_ENGINE_OFFSETS_H

#include "engine/kernel.h"

enum { TAP_MAX_INDEXES = TAP_ENGINE_MAX_NDIM };

/* One tensor of indexes into one dimension. */
typedef struct tap__index {
    int input;                            /* which input of the call */
    int64_t stride[TAP_ENGINE_MAX_NDIM];  /* in elements, over the common sizes: 0 where it is broadcast */
    int dim;                              /* of what is indexed, for messages */
    int64_t size, step;                   /* of that dimension; bytes from one to the next */
} tap__index;

/* Several that select together, broadcast to common sizes. */
typedef struct tap__indexes {
    int count, ndim;
    int64_t size[TAP_ENGINE_MAX_NDIM], positions; /* the product of the sizes */
    tap__index list[TAP_MAX_INDEXES];
    bool no_negative; /* an index below zero is an error, not counted from the end */
} tap__indexes;

/* Adds one; its sizes are broadcast with those so far. TAP_E_UNSUPPORTED for a dtype that is no index. */
tap_status tap__indexes_add(const tap__call *call, tap__indexes *all, int input, int dim, int64_t size, int64_t step,
                            tap_error *err);
/* The strides, once all were added. */
void tap__indexes_ready(const tap__call *call, tap__indexes *all);
/* Fills table[positions] with the sums of the offsets. TAP_E_INVALID names the first index that is out of bounds. */
tap_status tap__indexes_table(const tap__call *call, const tap__indexes *all, void *const *data, int64_t *table,
                              tap_error *err);
/* The message of a bad index. */
tap_status tap__bad_index(const tap__call *call, int64_t index, int dim, int64_t size, tap_error *err);

/* Index `at` of an int32 or int64 tensor. */
static inline int64_t tap__index_load(const void *data, bool wide, int64_t at)
{
    return wide ? ((const int64_t *)data)[at] : ((const int32_t *)data)[at];
}

#endif
