/* reduce_ops.c - the reductions themselves: what is done with the elements that reduce.c brings together. */
#include "engine/kernels/reduce.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ plain folds */

static void fold_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                     int64_t index)
{
    (void)b, (void)seen, (void)index;
    self->lanes->row[self->fold][self->type](a, x, n, NULL);
}

static const double ZEROS[512];

static void fold_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                     int64_t pitch, int64_t seen, int64_t index)
{
    (void)b, (void)seen, (void)index;
    self->lanes->col[self->fold][self->type](a, x, n, rows, pitch, ZEROS);
}

static bool beats(bool larger, double x, double best)
{
    return (larger ? x > best : x < best) || (isnan(x) && !isnan(best));
}

static void fold_merge(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                       const tap__acc *d, int64_t more, int64_t n)
{
    bool larger = self->fold == TAP_FOLD_MAX || self->fold == TAP_FOLD_ABS_MAX;
    bool is_float = self->is_float && self->fold != TAP_FOLD_NONZERO;
    (void)b, (void)d, (void)seen, (void)more;
#define EACH for (int64_t i = 0; i < n; i++)
    switch (self->fold) {
    case TAP_FOLD_PROD:
        if (is_float)
            EACH a[i].f *= c[i].f;
        else
            EACH a[i].i = (int64_t)((uint64_t)a[i].i * (uint64_t)c[i].i);
        break;
    case TAP_FOLD_MAX:
    case TAP_FOLD_MIN:
    case TAP_FOLD_ABS_MAX:
    case TAP_FOLD_ABS_MIN:
        if (is_float)
            EACH a[i].f = beats(larger, c[i].f, a[i].f) ? c[i].f : a[i].f;
        else if (larger)
            EACH a[i].i = c[i].i > a[i].i ? c[i].i : a[i].i;
        else
            EACH a[i].i = c[i].i < a[i].i ? c[i].i : a[i].i;
        break;
    default:
        if (is_float)
            EACH a[i].f += c[i].f;
        else
            EACH a[i].i = (int64_t)((uint64_t)a[i].i + (uint64_t)c[i].i);
    }
#undef EACH
}

static tap__acc fold_start(const tap__reduction *self, tap__fold fold)
{
    bool is_float = self->is_float;
    switch (fold) {
    case TAP_FOLD_PROD:
        return is_float ? (tap__acc){.f = 1} : (tap__acc){.i = 1};
    case TAP_FOLD_MAX:
    case TAP_FOLD_ABS_MAX:
        return is_float ? (tap__acc){.f = -INFINITY} : (tap__acc){.i = INT64_MIN};
    case TAP_FOLD_MIN:
    case TAP_FOLD_ABS_MIN:
        return is_float ? (tap__acc){.f = INFINITY} : (tap__acc){.i = INT64_MAX};
    default:
        return (tap__acc){.i = 0};
    }
}

void tap__reduction_use_halves(tap__reduction *self)
{
    if (self->dtype != TAP_F16 && self->dtype != TAP_BF16)
        return;
    self->type = self->dtype == TAP_F16 ? TAP_LANE_F16 : TAP_LANE_BF16;
    self->direct = true;
}

static void use_fold(tap__reduction *self, tap__fold fold)
{
    tap__reduction_use_halves(self);
    self->fold = fold;
    self->how = (tap__method){.first = fold_start(self, fold), .row = fold_row, .col = fold_col, .merge = fold_merge,
                              .plain = true};
}

/* --------------------------------------------------------------------------------------------- around every kernel */

static tap_status begin(tap__call *call, const bool *mask, bool ordered, tap__reduction **out, tap_error *err)
{
    tap__reduction *self = tap__alloc(sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    tap_status status = tap__reduction_begin(self, call, mask, ordered, err);
    if (status != TAP_OK) {
        tap__free(self);
        return status;
    }
    self->results = call->nout;
    for (int k = 0; k < call->nout; k++) {
        self->result_dtype[k] = call->out[k].dtype;
        self->result_second[k] = k > 0;
    }
    *out = self;
    return TAP_OK;
}

static tap_status end(tap__call *call, tap__reduction *self)
{
    tap__reduction_end(self, call);
    call->state = self;
    return TAP_OK;
}

static tap_status refuse(const tap__call *call, tap__reduction *self, tap_error *err)
{
    tap__free(self);
    return tap__refuse(call, err);
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    tap__reduction_run(call->state, call, data[0], data + call->nin, data[call->nin + call->nout]);
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

#define KERNEL_OF(name, prepare_function)                                                                            \
    const tap__kernel tap__kernel_##name = {.prepare = prepare_function, .run = run, .release = release};

/* No element to choose from: the framework has the message for it. */
static bool is_empty(const tap__reduction *self)
{
    return self->reduced.count == 0 && self->kept.count > 0;
}

/* ---------------------------------------------------------------------------------------------- sum, mean, product */

/* Whether sums of x may be given as out: the framework converts x first, which must not make another sum of it. */
static bool may_sum_as(tap_dtype x, tap_dtype out)
{
    const tap_dtype_info *from = tap_dtype_describe(x), *to = tap_dtype_describe(out);
    if (x == TAP_C64 || x == TAP_C128)
        return out == x;
    if (from->kind == 'F')
        return x == out || out == TAP_F64 || (out == TAP_F32 && x != TAP_F64);
    return out == TAP_I64 || out == TAP_I32 || out == TAP_F32 || out == TAP_F64 || (to->kind == 'I' && out == x) ||
           (out == TAP_U8 && x == TAP_U8);
}

static void float_results(tap__reduction *self, tap_dtype x, tap_dtype out)
{
    if (x == TAP_C64 || x == TAP_C128)
        self->result_dtype[0] = out == TAP_C64 ? TAP_F32 : TAP_F64;
}

static tap_status prepare_sum(tap__call *call, tap__fold fold, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), false, mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    bool widens = call->out[0].dtype != call->in[0].dtype &&
                  (call->out[0].dtype == TAP_F64 || call->out[0].dtype == TAP_C128);
    /* asked for a wider sum than the lanes keep: eager converts first */
    if (widens || !may_sum_as(call->in[0].dtype, call->out[0].dtype) ||
        (fold != TAP_FOLD_SUM && tap_dtype_describe(call->in[0].dtype)->kind == 'C'))
        return refuse(call, self, err);
    use_fold(self, fold);
    self->result_int[0] = !self->is_float;
    float_results(self, call->in[0].dtype, call->out[0].dtype);
    return end(call, self);
}

static tap_status reduce_sum(tap__call *call, tap_error *err)
{
    return prepare_sum(call, TAP_FOLD_SUM, err);
}

static tap_status reduce_prod(tap__call *call, tap_error *err)
{
    return prepare_sum(call, TAP_FOLD_PROD, err);
}

static void finish_mean(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    double count = (double)self->reduced.count;
    (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].f = (self->is_float ? a[i].f : (double)a[i].i) / count;
}

static tap_status reduce_mean(tap__call *call, tap_error *err)
{
    TAP_TRY(prepare_sum(call, TAP_FOLD_SUM, err));
    tap__reduction *self = call->state;
    self->how.finish = finish_mean;
    self->result_int[0] = false;
    if (strchr("FC", tap_dtype_describe(call->out[0].dtype)->kind))
        return TAP_OK;
    release(call);
    return tap__refuse(call, err);
}

KERNEL_OF(reduce_sum, reduce_sum)
KERNEL_OF(reduce_prod, reduce_prod)
KERNEL_OF(reduce_mean, reduce_mean)

/* The elements [i, i] are one dimension whose stride is that of a row and a column together. */
static tap_status trace(tap__call *call, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM] = {true};
    tap__operand *x = &call->in[0], whole = *x;
    if (x->ndim != 2)
        return tap__refuse(call, err);
    tap__operand diagonal = whole;
    diagonal.ndim = 1;
    diagonal.size[0] = whole.size[0] < whole.size[1] ? whole.size[0] : whole.size[1];
    diagonal.stride[0] = whole.stride[0] + whole.stride[1];
    tap__call narrowed = *call;
    narrowed.in = &diagonal;
    tap__reduction *self;
    TAP_TRY(begin(&narrowed, mask, false, &self, err));
    if (!may_sum_as(x->dtype, call->out[0].dtype))
        return refuse(call, self, err);
    use_fold(self, TAP_FOLD_SUM);
    self->result_int[0] = !self->is_float;
    float_results(self, x->dtype, call->out[0].dtype);
    return end(call, self);
}
KERNEL_OF(trace, trace)

/* ------------------------------------------------------------------------------------------------ largest, smallest */

static tap_status prepare_best(tap__call *call, tap__fold fold, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), false, mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    if (call->in[0].dtype != call->out[0].dtype || is_empty(self) ||
        tap_dtype_describe(call->in[0].dtype)->kind == 'C')
        return refuse(call, self, err);
    use_fold(self, fold);
    self->result_int[0] = !self->is_float;
    return end(call, self);
}

static tap_status reduce_max(tap__call *call, tap_error *err)
{
    return prepare_best(call, TAP_FOLD_MAX, err);
}

static tap_status reduce_min(tap__call *call, tap_error *err)
{
    return prepare_best(call, TAP_FOLD_MIN, err);
}
KERNEL_OF(reduce_max, reduce_max)
KERNEL_OF(reduce_min, reduce_min)

static void both_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                     int64_t index)
{
    (void)seen, (void)index;
    self->lanes->row[TAP_FOLD_MIN][self->type](a, x, n, NULL);
    self->lanes->row[TAP_FOLD_MAX][self->type](b, x, n, NULL);
}

static void both_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                     int64_t pitch, int64_t seen, int64_t index)
{
    (void)seen, (void)index;
    self->lanes->col[TAP_FOLD_MIN][self->type](a, x, n, rows, pitch, NULL);
    self->lanes->col[TAP_FOLD_MAX][self->type](b, x, n, rows, pitch, NULL);
}

static void both_merge(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                       const tap__acc *d, int64_t more, int64_t n)
{
    (void)seen, (void)more;
    for (int64_t i = 0; i < n; i++) {
        if (self->is_float ? beats(false, c[i].f, a[i].f) : c[i].i < a[i].i)
            a[i] = c[i];
        if (self->is_float ? beats(true, d[i].f, b[i].f) : d[i].i > b[i].i)
            b[i] = d[i];
    }
}

static tap_status min_max(tap__call *call, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axis_mask(call, tap__call_attr(call, "axis"), mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    if (is_empty(self) || tap_dtype_describe(call->in[0].dtype)->kind == 'C')
        return refuse(call, self, err);
    tap__reduction_use_halves(self);
    self->how = (tap__method){.first = fold_start(self, TAP_FOLD_MIN), .second = fold_start(self, TAP_FOLD_MAX),
                              .row = both_row, .col = both_col, .merge = both_merge, .chunks = true};
    self->result_int[0] = self->result_int[1] = !self->is_float;
    return end(call, self);
}
KERNEL_OF(min_max, min_max)

/* ----------------------------------------------------------------------------- where the largest or smallest one is */

/* First place in x of the value `best`; there is one. */
#define FIND(type, value)                                                                                            \
    do {                                                                                                             \
        const type *at = x, want = (type)(value);                                                                    \
        for (int64_t i = 0; i < n; i++)                                                                              \
            if (at[i] == want)                                                                                       \
                return i;                                                                                            \
        return n;                                                                                                    \
    } while (0)
#define FIND_FLOAT(type)                                                                                             \
    do {                                                                                                             \
        if (!isnan(best.f))                                                                                          \
            FIND(type, best.f);                                                                                      \
        const type *at = x;                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                                              \
            if (isnan(at[i]))                                                                                        \
                return i;                                                                                            \
        return n;                                                                                                    \
    } while (0)

static int64_t find(tap__lane_type type, const void *x, int64_t n, tap__acc best)
{
    switch (type) {
    case TAP_LANE_F32:
        FIND_FLOAT(float);
    case TAP_LANE_F64:
        FIND_FLOAT(double);
    case TAP_LANE_I8:
        FIND(int8_t, best.i);
    case TAP_LANE_U8:
        FIND(uint8_t, best.i);
    case TAP_LANE_I16:
        FIND(int16_t, best.i);
    case TAP_LANE_I32:
        FIND(int32_t, best.i);
    default:
        FIND(int64_t, best.i);
    }
}

/* a: the best so far, b: its index, -1 before the first. A later one must be better, so the first of equals stays. */
static bool improves(const tap__reduction *self, tap__acc a, tap__acc b, tap__acc c)
{
    bool larger = self->fold == TAP_FOLD_MAX;
    if (b.i < 0)
        return true;
    return self->is_float ? beats(larger, c.f, a.f) : larger ? c.i > a.i : c.i < a.i;
}

static void arg_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                    int64_t index)
{
    tap__acc best = self->how.first;
    (void)seen;
    self->lanes->row[self->fold][self->type](&best, x, n, NULL);
    if (!improves(self, *a, *b, best))
        return;
    *a = best;
    b->i = index + find(self->type, x, n, best);
}

#define ARG_COLUMNS(type, member, test)                                                                              \
    for (int64_t r = 0; r < rows; r++) {                                                                             \
        const type *at = (const type *)x + r * pitch;                                                                \
        for (int64_t j = 0; j < n; j++) {                                                                            \
            bool take = b[j].i < 0 || (test);                                                                        \
            a[j].member = take ? at[j] : a[j].member;                                                                \
            b[j].i = take ? index + r : b[j].i;                                                                      \
        }                                                                                                            \
    }
#define ARG_FLOAT(type)                                                                                              \
    if (larger)                                                                                                      \
        ARG_COLUMNS(type, f, (at[j] > a[j].f) | ((at[j] != at[j]) & (a[j].f == a[j].f)))                             \
    else                                                                                                             \
        ARG_COLUMNS(type, f, (at[j] < a[j].f) | ((at[j] != at[j]) & (a[j].f == a[j].f)))                             \
    break
#define ARG_INT(type)                                                                                                \
    if (larger)                                                                                                      \
        ARG_COLUMNS(type, i, at[j] > a[j].i)                                                                         \
    else                                                                                                             \
        ARG_COLUMNS(type, i, at[j] < a[j].i)                                                                         \
    break

static void arg_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                    int64_t pitch, int64_t seen, int64_t index)
{
    bool larger = self->fold == TAP_FOLD_MAX;
    (void)seen;
    switch (self->type) {
    case TAP_LANE_F32:
        ARG_FLOAT(float);
    case TAP_LANE_F64:
        ARG_FLOAT(double);
    case TAP_LANE_I8:
        ARG_INT(int8_t);
    case TAP_LANE_U8:
        ARG_INT(uint8_t);
    case TAP_LANE_I16:
        ARG_INT(int16_t);
    case TAP_LANE_I32:
        ARG_INT(int32_t);
    default:
        ARG_INT(int64_t);
    }
}

static void arg_merge(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                      const tap__acc *d, int64_t more, int64_t n)
{
    (void)seen, (void)more;
    for (int64_t i = 0; i < n; i++)
        if (d[i].i >= 0 && improves(self, a[i], b[i], c[i])) {
            a[i] = c[i];
            b[i] = d[i];
        }
}

static tap_status prepare_arg(tap__call *call, tap__fold fold, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axis_mask(call, tap__call_attr(call, "axis"), mask, err));
    TAP_TRY(begin(call, mask, true, &self, err));
    if (is_empty(self) || tap_dtype_describe(call->in[0].dtype)->kind == 'C')
        return refuse(call, self, err);
    self->fold = fold;
    self->how = (tap__method){.first = fold_start(self, fold), .second = {.i = -1}, .row = arg_row, .col = arg_col,
                              .merge = arg_merge, .chunks = true};
    self->result_int[0] = call->nout == 1 || !self->is_float;
    self->result_second[0] = call->nout == 1;
    self->result_int[1] = true;
    return end(call, self);
}

static tap_status prepare_arg_max(tap__call *call, tap_error *err)
{
    return prepare_arg(call, TAP_FOLD_MAX, err);
}

static tap_status prepare_arg_min(tap__call *call, tap_error *err)
{
    return prepare_arg(call, TAP_FOLD_MIN, err);
}
KERNEL_OF(arg_max, prepare_arg_max)
KERNEL_OF(arg_min, prepare_arg_min)

/* -------------------------------------------------------------------------------------------- any, all, how many */

static void finish_any(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)self, (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].i = a[i].i > 0;
}

static void finish_all(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].i = a[i].i == self->reduced.count;
}

/* Stops looking once it is known. */
static void any_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                    int64_t index)
{
    (void)b, (void)seen, (void)index;
    if (a->i == 0)
        self->lanes->row[TAP_FOLD_NONZERO][self->type](a, x, n, NULL);
}

static void all_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                    int64_t index)
{
    (void)b, (void)index;
    if (a->i == seen)
        self->lanes->row[TAP_FOLD_NONZERO][self->type](a, x, n, NULL);
}

static tap_status prepare_count(tap__call *call, bool empty_is_none, tap__reduction **out, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), empty_is_none, mask, err));
    TAP_TRY(begin(call, mask, false, out, err));
    if (tap_dtype_describe(call->in[0].dtype)->kind == 'C')
        return refuse(call, *out, err);
    use_fold(*out, TAP_FOLD_NONZERO);
    (*out)->result_int[0] = true;
    return TAP_OK;
}

static tap_status reduce_any(tap__call *call, tap_error *err)
{
    tap__reduction *self;
    TAP_TRY(prepare_count(call, true, &self, err));
    self->how.finish = finish_any;
    self->how.row = any_row;
    self->how.chunks = true;
    return end(call, self);
}

static tap_status reduce_all(tap__call *call, tap_error *err)
{
    tap__reduction *self;
    TAP_TRY(prepare_count(call, true, &self, err));
    self->how.finish = finish_all;
    self->how.row = all_row;
    self->how.chunks = true;
    return end(call, self);
}

static tap_status count_nonzero(tap__call *call, tap_error *err)
{
    tap__reduction *self;
    TAP_TRY(prepare_count(call, false, &self, err));
    return end(call, self);
}
KERNEL_OF(reduce_any, reduce_any)
KERNEL_OF(reduce_all, reduce_all)
KERNEL_OF(count_nonzero, count_nonzero)

/* ---------------------------------------------------------------------------------------- variance, about the mean */

/* a: the mean, b: the sum of squared deviations from it, of `seen` values; joined with those of `more` values. */
static void join_moments(tap__acc *a, tap__acc *b, double seen, double mean, double squares, double more)
{
    double difference = mean - a->f, all = seen + more;
    a->f += difference * (more / all);
    b->f += squares + difference * difference * (seen * more / all);
}

static void moments_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                        int64_t index)
{
    double mean = 0, squares = 0;
    (void)index;
    self->lanes->row[TAP_FOLD_SUM][self->type](&mean, x, n, NULL);
    mean /= (double)n;
    self->lanes->row[TAP_FOLD_SQUARE][self->type](&squares, x, n, &mean);
    if (seen) {
        join_moments(a, b, (double)seen, mean, squares, (double)n);
    } else {
        a->f = mean;
        b->f = squares;
    }
}

static void moments_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                        int64_t pitch, int64_t seen, int64_t index)
{
    double mean[512] = {0}, squares[512] = {0};
    (void)index;
    self->lanes->col[TAP_FOLD_SUM][self->type](mean, x, n, rows, pitch, ZEROS);
    for (int64_t j = 0; j < n; j++)
        mean[j] /= (double)rows;
    self->lanes->col[TAP_FOLD_SQUARE][self->type](squares, x, n, rows, pitch, mean);
    for (int64_t j = 0; j < n; j++) {
        /* float columns are compared with a mean that was rounded */
        double lost = self->type != TAP_LANE_F64 ? mean[j] - (double)(float)mean[j] : 0;
        join_moments(&a[j], &b[j], (double)seen, mean[j], squares[j] - (double)rows * lost * lost, (double)rows);
    }
}

static void moments_merge(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                          const tap__acc *d, int64_t more, int64_t n)
{
    (void)self;
    for (int64_t i = 0; i < n; i++)
        join_moments(&a[i], &b[i], (double)seen, c[i].f, d[i].f, (double)more);
}

/* a becomes the variance, b the mean */
static void finish_variance(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    double count = (double)self->reduced.count, over = count - self->number;
    for (int64_t i = 0; i < n; i++) {
        double mean = count > 0 ? a[i].f : NAN;
        a[i].f = b[i].f / (over > 0 ? over : 0);
        b[i].f = mean;
    }
}

static void finish_deviation(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    finish_variance(self, a, b, n);
    for (int64_t i = 0; i < n; i++)
        a[i].f = sqrt(a[i].f);
}

void tap__reduction_use_moments(tap__reduction *self)
{
    tap__reduction_use_halves(self);
    self->how = (tap__method){.row = moments_row, .col = moments_col, .merge = moments_merge, .chunks = true};
    self->results = 2;
    self->result_dtype[0] = self->result_dtype[1] = TAP_F64;
    self->result_second[1] = true;
}

static tap_status prepare_moments(tap__call *call, bool root, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), false, mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    const tap__attr *correction = tap__call_attr(call, "correction");
    if (!self->is_float || call->in[0].dtype != call->out[0].dtype)
        return refuse(call, self, err);
    self->number = correction->present ? correction->scalar.re : 1;
    tap__reduction_use_halves(self);
    self->how = (tap__method){.row = moments_row, .col = moments_col, .merge = moments_merge,
                              .finish = root ? finish_deviation : finish_variance, .chunks = true};
    return end(call, self);
}

static tap_status prepare_variance(tap__call *call, tap_error *err)
{
    return prepare_moments(call, false, err);
}

static tap_status prepare_deviation(tap__call *call, tap_error *err)
{
    return prepare_moments(call, true, err);
}
KERNEL_OF(variance, prepare_variance)
KERNEL_OF(deviation, prepare_deviation)

/* ----------------------------------------------------------------------------------------------------------- norms */

static void finish_root(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)self, (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].f = sqrt(a[i].f);
}

static void finish_count(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)self, (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].f = (double)a[i].i;
}

static void finish_power(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)b;
    for (int64_t i = 0; i < n; i++)
        a[i].f = pow(a[i].f, 1 / self->number);
}

static double value_at(const tap__reduction *self, const void *x, int64_t i)
{
    return self->type == TAP_LANE_F32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

static void power_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                      int64_t index)
{
    (void)b, (void)seen, (void)index;
    for (int64_t i = 0; i < n; i++)
        a->f += pow(fabs(value_at(self, x, i)), self->number);
}

static void power_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                      int64_t pitch, int64_t seen, int64_t index)
{
    (void)b, (void)seen, (void)index;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++)
            a[j].f += pow(fabs(value_at(self, x, r * pitch + j)), self->number);
}

static tap_status vector_norm(tap__call *call, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), false, mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    const tap__attr *order = tap__call_attr(call, "ord");
    double p = order->present ? order->scalar.re : 2;
    if (!self->is_float || !may_sum_as(call->in[0].dtype, call->out[0].dtype) || isnan(p) ||
        tap_dtype_describe(call->in[0].dtype)->kind == 'C' || ((p < 0 || isinf(p)) && is_empty(self)))
        return refuse(call, self, err);
    use_fold(self, p == 0 ? TAP_FOLD_NONZERO
                   : isinf(p) ? p > 0 ? TAP_FOLD_ABS_MAX : TAP_FOLD_ABS_MIN
                   : p == 2 ? TAP_FOLD_SQUARE : TAP_FOLD_ABS);
    self->number = p;
    if (p == 0)
        self->how.finish = finish_count;
    else if (p == 2)
        self->how.finish = finish_root;
    else if (p != 1 && !isinf(p)) {
        if (self->dtype == TAP_F16 || self->dtype == TAP_BF16) {
            self->type = TAP_LANE_F32;
            self->direct = false;
        }
        self->how.row = power_row;
        self->how.col = power_col;
        self->how.finish = finish_power;
    }
    return end(call, self);
}
KERNEL_OF(vector_norm, vector_norm)

/* ------------------------------------------------------------------------------------- logarithm of a sum of powers */

/* a: what was subtracted from the exponents, b: the sum of the powers. An infinite or missing maximum subtracts 0. */
static void join_powers(tap__acc *a, tap__acc *b, double shift, double sum)
{
    if (sum == 0)
        return;
    if (b->f == 0 || isinf(sum) || isnan(b->f + sum)) {
        b->f = isnan(b->f) ? b->f : sum;
        a->f = shift;
    } else if (!isinf(b->f)) {
        double top = a->f > shift ? a->f : shift;
        b->f = b->f * exp(a->f - top) + sum * exp(shift - top);
        a->f = top;
    }
}

static void powers_row(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t seen,
                       int64_t index)
{
    double powers[TAP_LINE], top = -INFINITY, sum = 0;
    size_t bytes = self->type == TAP_LANE_F32 ? 4 : 8;
    (void)seen, (void)index;
    self->lanes->row[TAP_FOLD_MAX][self->type](&top, x, n, NULL);
    top = isfinite(top) ? top : 0;
    for (int64_t at = 0; at < n; at += TAP_LINE)
        sum += self->lanes->math[self->type].exp_sum(powers, (const char *)x + (size_t)at * bytes, top,
                                                     n - at < TAP_LINE ? n - at : TAP_LINE);
    join_powers(a, b, top, sum);
}

static void powers_col(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows,
                       int64_t pitch, int64_t seen, int64_t index)
{
    double powers[512], top[512], sum[512] = {0};
    size_t bytes = self->type == TAP_LANE_F32 ? 4 : 8;
    (void)seen, (void)index;
    for (int64_t j = 0; j < n; j++)
        top[j] = -INFINITY;
    self->lanes->col[TAP_FOLD_MAX][self->type](top, x, n, rows, pitch, NULL);
    for (int64_t j = 0; j < n; j++)
        top[j] = isfinite(top[j]) ? top[j] : 0;
    for (int64_t r = 0; r < rows; r++)
        self->lanes->math[self->type].col_exp_sum(powers, (const char *)x + (size_t)(r * pitch) * bytes, top, sum, n);
    for (int64_t j = 0; j < n; j++)
        join_powers(&a[j], &b[j], top[j], sum[j]);
}

static void powers_merge(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t seen, const tap__acc *c,
                         const tap__acc *d, int64_t more, int64_t n)
{
    (void)self, (void)seen, (void)more;
    for (int64_t i = 0; i < n; i++)
        join_powers(&a[i], &b[i], c[i].f, d[i].f);
}

static void finish_powers(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    (void)self;
    for (int64_t i = 0; i < n; i++)
        a[i].f += log(b[i].f);
}

static tap_status log_sum_exp(tap__call *call, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__reduction *self;
    TAP_TRY(tap__axes_mask(call, tap__call_attr(call, "axes"), false, mask, err));
    TAP_TRY(begin(call, mask, false, &self, err));
    if (!self->is_float || call->in[0].dtype != call->out[0].dtype)
        return refuse(call, self, err);
    self->how = (tap__method){.row = powers_row, .col = powers_col, .merge = powers_merge, .finish = finish_powers,
                              .chunks = true};
    return end(call, self);
}
KERNEL_OF(log_sum_exp, log_sum_exp)
