/* difference.h - comparing two tensors in pieces, so that a piece can come from a file and be somebody else's work. */
#ifndef TAP_COMPARE_DIFFERENCE_H
#define TAP_COMPARE_DIFFERENCE_H

#include "compare/kernels/difference_kernel.h"
#include "tensor/kernels/kernels.h"
#include "tensortap/tensortap_compare.h"

/* How two dtypes are compared. */
typedef enum tap_pair_way {
    TAP_WAY_DIRECT,  /* one float dtype that a kernel reads */
    TAP_WAY_DECODED, /* turned into float64 first, which holds them exactly, or is the rule */
    TAP_WAY_INTEGER, /* 64-bit integers among them: exactly */
    TAP_WAY_COMPLEX
} tap_pair_way;

/* Large; holds no memory. */
typedef struct tap_difference_pass {
    const tap_pair_kernels *kernels;
    const tap_dtype_info *a, *b;
    tap_pair_way way;
    tap_pair_form form;
    double normal;                 /* of the coarser dtype */
    int digits;                    /* of its fraction; -1: both are integers */
    tap_difference out;            /* counts and places */
    bool worst_is_unlike;
    uint64_t finite;               /* pairs of finite values */
    bool from_zero;
    double max_scaled;
    tap_pair abs, rel, square, squares[2], product;
    /* of blocks looked at value by value, whose squares may not fit a double */
    long double wide_abs, wide_rel, wide_square, wide_squares[2], wide_product;
} tap_difference_pass;

tap_status tap__difference_begin(tap_difference_pass *pass, tap_dtype a, tap_dtype b, tap_error *err);
/* The next `elements` of each side, row-major; elements of all pieces but the last are a multiple of TAP_PAIR_BLOCK. */
void tap__difference_next(tap_difference_pass *pass, const void *a, const void *b, int64_t elements);
/* Takes in what another pass found in the elements that follow. */
void tap__difference_join(tap_difference_pass *pass, const tap_difference_pass *later);
void tap__difference_end(const tap_difference_pass *pass, tap_difference *out);

/* Unit roundoff: half the distance of 1 and the next number; 0 for integers. */
double tap__dtype_roundoff(tap_dtype dtype);

/* Values of a block as float64; complex: the magnitude. */
void tap__block_decode(const tap_dtype_info *info, const void *src, size_t values, double *dst);

#endif
