/* pool.h - windows that slide over the last one to three dimensions of [batch, channels, ...]. Every operator of the
 * family is tables of windows, one table per dimension, and one of the loops of pool_kernel.inc. */
#ifndef TAP_ENGINE_POOL_H
#define TAP_ENGINE_POOL_H

#include "engine/kernel.h"

enum { TAP_POOL_DIMS = 3 };

/* One dimension: window o covers start[o], start[o] + step, ... below end[o]; weight[o] is its part of the divisor. */
typedef struct tap__windows {
    int64_t in, out, step;
    int64_t *start, *end, *weight;
} tap__windows;

/* Strides in elements; missing dimensions have size 1. Side x is what the windows lie in, side y has one element per
 * window. */
typedef struct tap__pool {
    int64_t batch, channels;
    tap__windows dims[TAP_POOL_DIMS];
    int64_t x_batch, x_channel, x[TAP_POOL_DIMS];
    int64_t y_batch, y_channel, y[TAP_POOL_DIMS];
    int64_t i_batch, i_channel, i[TAP_POOL_DIMS]; /* indices of the largest, beside y */
    int64_t divisor;                              /* 0: the product of the weights */
    bool across;   /* channels lie side by side on all sides: the innermost loop runs over them */
    int64_t chunk; /* channels of one unit of work */
} tap__pool;

/* Runs units [begin, end): forward, a unit is a row of windows of some channels; backward, all windows of them. */
typedef void (*tap__pool_fn)(const tap__pool *pool, const void *from, void *to, int64_t *indices, int64_t begin,
                             int64_t end);

typedef struct tap__pool_fns {
    tap__pool_fn largest, largest_backward, average, average_backward;
} tap__pool_fns;

/* One for each of float16, bfloat16, float32, float64, in that order. Backward adds into float32 or float64: for the
 * half-width floats `to` is a buffer of float32, as large as x and row-major. */
extern const tap__pool_fns tap__pool_plain[4], tap__pool_avx2[4], tap__pool_avx512[4], tap__pool_neon[4];

#endif
