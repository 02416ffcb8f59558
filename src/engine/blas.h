/* blas.h - matrix products of one pair of matrices: BLAS as the process has it already (the framework's), found at run
 * time; float32 by oneDNN's where that is loaded. And how many threads such libraries may use. */
#ifndef TAP_ENGINE_BLAS_H
#define TAP_ENGINE_BLAS_H

#include "engine/kernel.h"

/* c = alpha * op(a) @ op(b) + beta * c, all row-major with rows lda, ldb, ldc elements apart; op transposes where ta or
 * tb says so: a is then k x m, b is n x k. alpha and beta are of the matrices' type. Not conjugated. */
typedef void (*tap__gemm_fn)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
                             int64_t lda, const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc);

/* For F32, F64, C64 or C128; NULL: this process has none. Sizes are limited by TAP_GEMM_MAX. */
tap__gemm_fn tap__gemm(tap_dtype dtype);
enum { TAP_GEMM_MAX = 0x7FFFFFFF };

/* Sets how many threads libraries called by this thread use until tap__thread_limit_leave. */
typedef struct tap__thread_limit {
    int omp, blas;
} tap__thread_limit;
tap__thread_limit tap__thread_limit_enter(int count);
void tap__thread_limit_leave(tap__thread_limit before);

#endif
