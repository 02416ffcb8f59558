/* reduce.h - one reduction of a tensor over any of its dimensions: which elements belong together, in which order they
 * are folded, and how the work is cut. A method says what is done with them. */
#ifndef TAP_ENGINE_REDUCE_H
#define TAP_ENGINE_REDUCE_H

#include "engine/kernels/lines.h"

/* An accumulator; methods use one or two for each result. */
typedef union tap__acc {
    double f;
    int64_t i;
} tap__acc;

struct tap__reduction;
typedef struct tap__method {
    tap__acc first, second; /* what they start from */
    /* Joins n values that lie together; `seen` values were joined before them, the first of these is number `index`. */
    void (*row)(const struct tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                int64_t index);
    /* The same for n columns of `rows` rows. */
    void (*col)(const struct tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                int64_t pitch, int64_t seen, int64_t index);
    /* Joins n accumulators of `seen` values each with those of the `more` values that follow. */
    void (*merge)(const struct tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                  const tap__acc *d, int64_t more, int64_t n);
    /* Accumulators to results; NULL: they are the results. */
    void (*finish)(const struct tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n);
    bool chunks; /* values of a row are joined a few thousands at a time */
    bool plain;  /* merge needs no numbers of values */
} tap__method;

enum { TAP_REDUCE_OUTPUTS = 2 };

typedef struct tap__reduction {
    const tap__lanes *lanes;
    tap__method how;
    tap__fold fold;
    tap__space kept, reduced;  /* operands of kept: x, then the results; of reduced: x */
    tap_dtype dtype;           /* of x's elements */
    tap__lane_type type;       /* what they are folded as */
    bool is_float;
    bool direct;               /* the elements are of a type that is folded in place */
    size_t bytes;
    bool columns;              /* one accumulator for each element of a line, or one for lines */
    int64_t width;             /* columns folded together */
    int64_t lines, blocks;     /* with columns: lines of results and blocks in each */
    int64_t pieces, piece;     /* parts in which the reduced elements are folded */
    int results;
    tap_dtype result_dtype[TAP_REDUCE_OUTPUTS];
    bool result_second[TAP_REDUCE_OUTPUTS]; /* it is in the second accumulator */
    bool result_int[TAP_REDUCE_OUTPUTS];    /* it is an int64_t there */
    double number;             /* the method's: an order, a correction */
} tap__reduction;

/* Fills in everything but how, results and number, for x = call->in[0] and its reduced dimensions; the results are
 * call->out[0 ... nout). ordered: elements are folded in row-major order. Refuses (E_UNSUPPORTED) types that cannot be
 * folded and outputs of other sizes. */
tap_status tap__reduction_begin(tap__reduction *self, const tap__call *call, const bool *mask, bool ordered,
                                tap_error *err);
/* The method is mean and sum of squared deviations, both as results of type float64. */
void tap__reduction_use_moments(tap__reduction *self);
/* Folds float16 and bfloat16 as they lie; for methods that use nothing but folds. */
void tap__reduction_use_halves(tap__reduction *self);
/* Decides the order of work; sets call->scratch. */
void tap__reduction_end(tap__reduction *self, tap__call *call);
/* x, out: addresses of the operands. */
void tap__reduction_run(const tap__reduction *self, const tap__call *call, const void *x, void *const *out,
                        void *scratch);

#endif
