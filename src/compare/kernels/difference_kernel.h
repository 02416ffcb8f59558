/* difference_kernel.h - the inner loops that compare two blocks of values, once per instruction set.
 *
 * Sums are float64. A block is summed in COLUMNS columns, one row after another, and the columns are added two by two,
 * so the result is the same bits on every machine. A kernel knows finite values only: where a sum is not finite, the
 * caller looks at the block value by value (difference.c). */
#ifndef TAP_COMPARE_DIFFERENCE_KERNEL_H
#define TAP_COMPARE_DIFFERENCE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

enum {
    TAP_PAIR_COLUMNS = 8,
    TAP_PAIR_BLOCK = 1024 /* values of each side in a block, less only at the end of a tensor */
};

/* Of one block. */
typedef struct tap_pair_sums {
    double abs, rel, square;       /* of the difference: |d|, |d| / |b| where b is not 0, d * d */
    double squares[2], product;    /* a * a, b * b, a * b */
    double max_abs, max_rel;       /* max_rel: where b is not 0 */
    double max_scaled;             /* |d| / the power of two at or below |b| (at least `normal`) */
    uint64_t different, from_zero; /* pairs; from_zero: where b is 0 and a is not */
} tap_pair_sums;

/* normal: the smallest power of two the coarser dtype has with all its digits. */
typedef void (*tap_pair_fn)(tap_pair_sums *sums, const void *a, const void *b, size_t count, double normal);
/* The sum of squares of one block: what is left to know where the bytes are equal. */
typedef double (*tap_square_fn)(const void *a, size_t count);

/* How a block lies in memory. */
typedef enum tap_pair_form { TAP_FORM_F64, TAP_FORM_F32, TAP_FORM_BF16, TAP_FORM_F16, TAP_FORM_COUNT } tap_pair_form;

typedef struct tap_pair_kernels {
    tap_pair_fn pairs[TAP_FORM_COUNT];
    tap_square_fn squares[TAP_FORM_COUNT];
} tap_pair_kernels;

extern const tap_pair_kernels tap__pair_kernels_plain, tap__pair_kernels_avx2, tap__pair_kernels_avx512,
    tap__pair_kernels_neon;

#endif
