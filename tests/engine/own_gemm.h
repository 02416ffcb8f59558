/* own_gemm.h - products of matrices for tests, found by the engine as a BLAS is: so nothing needs to be installed, and a
 * sanitizer sees every element that is read. */
#ifndef TAP_TESTS_OWN_GEMM_H
#define TAP_TESTS_OWN_GEMM_H

#include <stdint.h>

#include "tensortap/tensortap_engine.h"

/* Column-major, as Fortran has it. */
#define GEMM(name, real)                                                                                             \
    __attribute__((visibility("default"))) void name(const char *ta, const char *tb, const int *m, const int *n,     \
                                                     const int *k, const real *alpha, const real *a, const int *lda, \
                                                     const real *b, const int *ldb, const real *beta, real *c,       \
                                                     const int *ldc);                                                \
    void name(const char *ta, const char *tb, const int *m, const int *n, const int *k, const real *alpha,           \
              const real *a, const int *lda, const real *b, const int *ldb, const real *beta, real *c,               \
              const int *ldc)                                                                                        \
    {                                                                                                                \
        for (int j = 0; j < *n; j++)                                                                                 \
            for (int i = 0; i < *m; i++) {                                                                           \
                real sum = 0, *to = c + i + (int64_t)j * *ldc;                                                       \
                for (int l = 0; l < *k; l++)                                                                         \
                    sum += a[*ta == 'N' ? i + (int64_t)l * *lda : l + (int64_t)i * *lda] *                           \
                           b[*tb == 'N' ? l + (int64_t)j * *ldb : j + (int64_t)l * *ldb];                            \
                *to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);                                                 \
            }                                                                                                        \
    }
GEMM(sgemm_, float)
GEMM(dgemm_, double)

/* Before the first graph runs: with oneDNN float32 would be its. */
static inline void use_own_gemm(void)
{
    tap_error err;
    tap_engine_set_onednn("none: products are the test's own", &err);
}

#endif
