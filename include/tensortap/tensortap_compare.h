/* tensortap_compare.h - two tensors, or two recordings, side by side. */
#ifndef TENSORTAP_TENSORTAP_COMPARE_H
#define TENSORTAP_TENSORTAP_COMPARE_H

#include "tensortap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------- two tensors */

/* A place and what lies there on each side. */
typedef struct tap_place {
    int64_t index;         /* of the value, row-major; -1: there is no such place */
    tap_number a, b;       /* by the dtype of each side, as in tap_stats; the real part of a complex value */
    double a_imag, b_imag;
} tap_place;

/* What tells two tensors of one shape apart. Index 0 of an array of two is A, 1 is B.
 * Values are compared as float64; where both sides are integers, exactly. NaN equals NaN, 0 equals -0.
 * Errors, norms and cosine are over the pairs of finite values. Complex: errors are magnitudes of the difference. */
typedef struct tap_difference {
    size_t size;
    uint64_t count;                         /* pairs */
    uint64_t different;                     /* pairs that are not equal */
    uint64_t unlike;                        /* of these: NaN or an infinity on one side, something else on the other */
    uint64_t nan[2], pos_inf[2], neg_inf[2];
    tap_place first;                        /* that is not equal */
    tap_place worst;                        /* the first unlike one, else the largest absolute error */
    double max_abs, mean_abs;               /* |a - b| */
    double max_rel, mean_rel;               /* |a - b| / |b|; infinite where only b is 0, which the mean takes as 0 */
    double max_ulp;                         /* |a - b| / distance of floats at b in the coarser dtype; integers: max_abs */
    double norm;                            /* L2 of a - b */
    double norms[2];                        /* L2 of each side */
    double cosine;                          /* 1 where both norms are 0, NaN where one is */
} tap_difference;
TAP_API void tap_difference_init(tap_difference *difference);

/* One pass over both. Any strides, any two dtypes; float4_e2m1fn_x2 only with itself. TAP_E_INVALID: other shapes. */
TAP_API tap_status tap_tensor_compare(const tap_tensor *a, const tap_tensor *b, tap_difference *out, tap_error *err);

#ifdef __cplusplus
}
#endif
#endif
