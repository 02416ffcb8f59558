/* lanes.h - the inner loops of reductions, softmax, norms, losses and windows over contiguous numbers, once per
 * instruction set behind one table.
 *
 * float32 is added up in 64 lanes, 16 values of a lane as float32 and what they make as float64; float64 in 32 lanes;
 * integers as int64. That does not depend on the vector width, so the bits of a sum are the same on every machine, and
 * the order depends on the number of values only. Products that are added, and powers, are fused where the machine has
 * an instruction for it: their bits depend on that. */
#ifndef TAP_ENGINE_LANES_H
#define TAP_ENGINE_LANES_H

#include "tensortap/tensortap.h"

/* Types a loop reads from memory; others are brought to one of them first. float16 and bfloat16, which follow these,
 * have folds only. */
#define TAP_LANE_TYPES(X)                                                                                            \
    X(F32, float) X(F64, double) X(I8, int8_t) X(U8, uint8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t)
typedef enum tap__lane_type {
#define X(id, type) TAP_LANE_##id,
    TAP_LANE_TYPES(X)
#undef X
        TAP_LANE_F16,
    TAP_LANE_BF16,
    TAP_LANE_TYPES_COUNT
} tap__lane_type;

/* Ways of making one number of many. Floats use doubles as accumulators, integers int64_t. */
typedef enum tap__fold {
    TAP_FOLD_SUM,
    TAP_FOLD_PROD,
    TAP_FOLD_MAX,     /* NaN wins */
    TAP_FOLD_MIN,
    TAP_FOLD_NONZERO, /* how many; accumulated as int64_t for floats too */
    TAP_FOLD_ABS,     /* sum of magnitudes; floats only from here on */
    TAP_FOLD_SQUARE,  /* sum of (x - mean)^2 */
    TAP_FOLD_ABS_MAX,
    TAP_FOLD_ABS_MIN,
    TAP_FOLDS
} tap__fold;

/* *acc joined with n values. mean: for SQUARE, the mean of these values, or of zero. */
typedef void (*tap__row_fn)(void *acc, const void *x, int64_t n, const double *mean);
/* acc[j] joined with x[j], x[j + pitch], ... of `rows` rows; j < n. mean: one per column. */
typedef void (*tap__col_fn)(void *acc, const void *x, int64_t n, int64_t rows, int64_t pitch, const double *mean);

/* Loops over floats (float or double as the member's place in its pair says). */
typedef struct tap__lane_math {
    double (*dot)(const void *x, const void *y, int64_t n);
    /* y = exp(x - shift), and the sum of y */
    double (*exp_sum)(void *y, const void *x, double shift, int64_t n);
    void (*scale)(void *y, const void *x, double factor, int64_t n);             /* y = x * factor */
    void (*minus)(void *y, const void *x, double first, double second, int64_t n); /* y = x - first - second */
    /* y = ((x - mean) * rstd) * weight + bias; weight and bias may be NULL */
    void (*affine)(void *y, const void *x, double mean, double rstd, const void *weight, const void *bias, int64_t n);
    /* per column: y = exp(x - shift), sum += y; shift and sum are doubles */
    void (*col_exp_sum)(void *y, const void *x, const double *shift, double *sum, int64_t n);
    void (*col_scale)(void *y, const void *x, const double *factor, int64_t n);
    void (*col_minus)(void *y, const void *x, const double *first, const double *second, int64_t n);
    /* dx = y * (g - sum) and dx = g - exp(y) * sum: softmax's and its logarithm's gradient */
    void (*softmax_grad)(void *dx, const void *g, const void *y, double sum, int64_t n);
    void (*log_softmax_grad)(void *dx, const void *g, const void *y, double sum, int64_t n);
    void (*col_softmax_grad)(void *dx, const void *g, const void *y, const double *sum, int64_t n);
    void (*col_log_softmax_grad)(void *dx, const void *g, const void *y, const double *sum, int64_t n);
    void (*col_dot)(double *acc, const void *x, const void *y, int64_t n); /* acc += x * y */
    /* sums of g * w and of g * w * (x - mean); w may be NULL */
    void (*norm_sums)(const void *g, const void *x, const void *w, double mean, int64_t n, double *sum, double *dot);
    /* dx = rstd * (g * w - first - (x - mean) * second) */
    void (*norm_grad)(void *dx, const void *g, const void *x, const void *w, double mean, double rstd, double first,
                      double second, int64_t n);
    /* per column over rows g_pitch and x_pitch apart: dw += g * (x - mean) * rstd, db += g; mean and rstd per row */
    void (*col_norm_sums)(double *dw, double *db, const void *g, const void *x, int64_t g_pitch, int64_t x_pitch,
                          const double *mean, const double *rstd, int64_t rows, int64_t n);
    void (*linear)(void *y, const void *x, double a, double b, int64_t n); /* y = x * a + b */
    /* dx = g * a + (x - mean) * b + c */
    void (*linear_grad)(void *dx, const void *g, const void *x, double mean, double a, double b, double c, int64_t n);
    void (*col_linear)(void *y, const void *x, const double *a, const double *b, int64_t n);
    void (*col_linear_grad)(void *dx, const void *g, const void *x, const double *mean, const double *a,
                            const double *b, const double *c, int64_t n);
    void (*col_sums)(double *sum, double *dot, const void *g, const void *x, const double *mean, int64_t n);
    /* losses of x against t, p being the loss's number: y, or their gradients times g */
    void (*squared)(void *y, const void *x, const void *t, double p, int64_t n);
    void (*smooth)(void *y, const void *x, const void *t, double p, int64_t n);
    void (*huber)(void *y, const void *x, const void *t, double p, int64_t n);
    void (*squared_grad)(void *dx, const void *g, const void *x, const void *t, double p, double factor, int64_t n);
    void (*smooth_grad)(void *dx, const void *g, const void *x, const void *t, double p, double factor, int64_t n);
    void (*huber_grad)(void *dx, const void *g, const void *x, const void *t, double p, double factor, int64_t n);
    void (*log)(void *y, const void *x, int64_t n);
    void (*log1p)(void *y, const void *x, int64_t n); /* of 1 + x */
} tap__lane_math;

typedef struct tap__lanes {
    const char *name;
    tap__row_fn row[TAP_FOLDS][TAP_LANE_TYPES_COUNT];
    tap__col_fn col[TAP_FOLDS][TAP_LANE_TYPES_COUNT];
    tap__lane_math math[2]; /* float, double */
    void (*widen_f16)(float *dst, const void *src, int64_t n);
    void (*widen_bf16)(float *dst, const void *src, int64_t n);
    void (*narrow_f16)(void *dst, const float *src, int64_t n); /* to nearest even */
    void (*narrow_bf16)(void *dst, const float *src, int64_t n);
    /* y[i] = bias + the sum over a window of weight[r * columns + c] * x[i + r * row + c * column]; x is read up to a
     * vector of 64 bytes behind what that needs */
    void (*slide)(float *y, const float *x, const float *weight, int64_t rows, int64_t columns, int64_t row,
                  int64_t column, float bias, int64_t n);
} tap__lanes;

extern const tap__lanes tap__lanes_plain, tap__lanes_avx2, tap__lanes_avx512, tap__lanes_neon;

/* The table of the instruction set in use: tap_isa_name(). */
const tap__lanes *tap__lanes_now(void);

#endif
