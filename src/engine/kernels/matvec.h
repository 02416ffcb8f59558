/* matvec.h - products of a matrix and a vector, where reading the matrix is all the work: y = alpha * A x + beta * d.
 * float64, float32, float16 and bfloat16; the last two are summed in float32 and rounded once. */
#ifndef TAP_ENGINE_MATVEC_H
#define TAP_ENGINE_MATVEC_H

#include "engine/kernel.h"

/* The inner loops, once per instruction set. Numbers are neighbours. */
typedef struct tap__matvec_loops {
    const char *name;
    double (*dot_f32)(const float *a, const float *b, int64_t n);
    double (*dot_f64)(const double *a, const double *b, int64_t n);
    double (*dot_bf16)(const uint16_t *a, const float *b, int64_t n);
    double (*dot_f16)(const uint16_t *a, const float *b, int64_t n);
    /* y += x[0] * a + x[1] * (a + step) + x[2] * (a + 2 * step) + x[3] * (a + 3 * step) */
    void (*add4_f32)(float *y, const float *a, int64_t step, const float *x, int64_t n);
    void (*add4_f64)(double *y, const double *a, int64_t step, const double *x, int64_t n);
    void (*add4_bf16)(float *y, const uint16_t *a, int64_t step, const float *x, int64_t n);
    void (*add4_f16)(float *y, const uint16_t *a, int64_t step, const float *x, int64_t n);
} tap__matvec_loops;

extern const tap__matvec_loops tap__matvec_plain, tap__matvec_avx2, tap__matvec_avx512, tap__matvec_neon;

/* Strides in elements; a batch of problems. */
typedef struct tap__matvec {
    tap_dtype dtype;
    int64_t batch, rows, columns;
    int64_t matrix[3];            /* strides of batch, row, column */
    int64_t vector[2];            /* batch, element */
    int64_t result[2], addend[2];
    bool adds;
    double alpha, beta;
} tap__matvec;

/* Whether rows or columns of the matrix are neighbours and the type is one of ours. */
bool tap__matvec_fits(const tap__matvec *self);
size_t tap__matvec_scratch(const tap__matvec *self);
void tap__matvec_run(const tap__matvec *self, const tap__call *call, const void *matrix, const void *vector,
                     const void *addend, void *result, void *scratch);

#endif
