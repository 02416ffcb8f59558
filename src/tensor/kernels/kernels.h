/* kernels.h - the inner loops of a pass over a tensor, once per instruction set behind one table.
 *
 * Results are the same bits on every machine. Floats are summed as float64 in an order that does not depend on the
 * vector width: a chunk is ROWS rows of ROW values; the values of a column are added one after another, then the
 * columns i, i + 4, i + 8 and i + 12 two by two, and that is added to lane i, which is an unevaluated pair high + low,
 * so that nothing is lost between chunks. What is exact: float32 sums whose values span no more than 24 powers of two
 * within a chunk; float64 values are added as pairs one by one. */
#ifndef TAP_TENSOR_KERNELS_H
#define TAP_TENSOR_KERNELS_H

#include "tensortap/tensortap.h"

enum {
    TAP_LANES = 4,
    TAP_ROW = 16, /* values */
    TAP_ROWS = 8,
    TAP_CHUNK = TAP_ROW * TAP_ROWS,   /* values */
    TAP_BLOCK = 16384,                /* bytes given to a kernel at a time, less only at the end of a tensor */
    TAP_BLOCK_VALUES = 2048           /* float64 values judged together for overflow and underflow */
};

/* A sum kept as high + low. */
typedef struct tap_pair {
    double high, low;
} tap_pair;

typedef struct tap_lanes {
    double high[TAP_LANES], low[TAP_LANES];
} tap_lanes;

/* Everything known about the values seen so far. Integers fill the integer half, floats and magnitudes the other. */
typedef struct tap_sums {
    tap_lanes sum, square; /* of finite floats */
    double min; /* not beside max: a compiler would load both at once and wait for two stores */
    uint64_t zero;
    double max;
    bool unusual;          /* the five pairs below are not all zero */
    uint64_t nan, pos_inf, neg_inf;
    tap_pair middle_sum, middle_square; /* blocks that needed a look at each value */
    tap_pair big_sum, big_square;       /* values above 2^500, times 2^-600 */
    tap_pair small_square;              /* values below 2^-400, times 2^600 */
    int64_t int_min, int_max;
    uint64_t uint_min, uint_max;
    __int128 int_sum;
    unsigned __int128 int_square;
} tap_sums;

typedef void (*tap_stats_fn)(tap_sums *sums, const void *block, size_t elements);

typedef struct tap_kernels {
    const char *name;
    tap_stats_fn stats[TAP_DTYPE_END];
    /* float32, chunks of TAP_CHUNK values: statistics and hash in one go, and with a copy, and with a streaming copy. */
    uint64_t (*float_hash)(tap_sums *sums, const void *src, size_t chunks, uint64_t word);
    uint64_t (*float_hash_copy)(tap_sums *sums, const void *src, size_t chunks, uint64_t word, void *dst);
    uint64_t (*float_hash_stream)(tap_sums *sums, const void *src, size_t chunks, uint64_t word, void *dst);
    void (*float_stream)(tap_sums *sums, const void *src, size_t chunks, void *dst);
    uint64_t (*hash)(const void *bytes, size_t len, uint64_t word);
    /* dst is aligned to 64; the caller fences. */
    uint64_t (*hash_stream)(const void *bytes, size_t len, uint64_t word, void *dst);
    void (*stream)(const void *bytes, size_t len, void *dst);
    void (*begin)(tap_sums *sums);
    /* Adds up the lanes. */
    tap_pair (*fold)(const tap_lanes *lanes);
} tap_kernels;

extern const tap_kernels tap__kernels_plain, tap__kernels_avx2, tap__kernels_avx512, tap__kernels_neon;

/* The table in use. */
const tap_kernels *tap__kernels(void);

/* A block whose squares overflow or vanish, or that holds values that are not finite, value by value. */
void tap__sums_unusual(tap_sums *sums, const double *values, size_t count);
void tap__sums_finish(const tap_sums *sums, const tap_kernels *kernels, char kind, uint64_t count, tap_stats *stats);

static inline void tap__pair_add(tap_pair *pair, double x)
{
    double total = pair->high + x, part = total - pair->high;
    pair->low += (pair->high - (total - part)) + (x - part);
    pair->high = total;
}

#endif
