/* loss.c - losses of values against targets, element by element, and their sum or mean; and their gradients. */
#include "engine/kernels/lines.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 16384, /* elements whose losses are added up together */
    OPERANDS = 6,
    SPACES = 2     /* of TAP_SPACE_OPERANDS operands each */
};

typedef enum kind { SQUARED, SMOOTH, HUBER, CROSS_ENTROPY, CROSS_ENTROPY_LOGITS } kind;

/* operands forward: x, t, weight, pos_weight, y; gradient: g, x, t, weight, dx. Some are left out. */
typedef struct loss {
    const tap__lanes *lanes;
    tap__lane_type type;
    kind what;
    bool gradient, mean, reduced;
    double number, factor;
    int operands, result; /* result: the operand that is written, with `reduced` none */
    bool there[OPERANDS];
    tap_dtype dtype[OPERANDS];
    tap__space spaces[SPACES]; /* the same sizes */
    int64_t count, pieces;
} loss;

typedef struct job {
    const loss *self;
    void *at[OPERANDS];
    double *sums;
} job;

/* --------------------------------------------------------------------------------------------------------- planning */

/* Strides that make an operand as large as the sizes; false when it is not of such sizes. */
static bool spread(const tap__operand *operand, int ndim, const int64_t *sizes, int64_t *strides)
{
    for (int i = 0; i < ndim; i++) {
        int at = i - (ndim - operand->ndim);
        strides[i] = 0;
        if (at < 0)
            continue;
        if (operand->size[at] != sizes[i] && operand->size[at] != 1)
            return false;
        strides[i] = operand->size[at] == 1 && sizes[i] != 1 ? 0 : operand->stride[at];
    }
    return operand->ndim <= ndim;
}

static void common_sizes(const tap__operand *const *operands, int count, int *ndim, int64_t *sizes)
{
    *ndim = 0;
    for (int k = 0; k < count; k++)
        if (operands[k] && operands[k]->ndim > *ndim)
            *ndim = operands[k]->ndim;
    for (int i = 0; i < *ndim; i++) {
        sizes[i] = 1;
        for (int k = 0; k < count; k++) {
            int at = operands[k] ? i - (*ndim - operands[k]->ndim) : -1;
            if (at >= 0 && operands[k]->size[at] != 1)
                sizes[i] = operands[k]->size[at];
        }
    }
}

static bool is_float(tap_dtype dtype)
{
    return dtype == TAP_F16 || dtype == TAP_BF16 || dtype == TAP_F32 || dtype == TAP_F64;
}

static tap_status prepare(tap__call *call, const tap__operand *const *operands, int count, loss *self, tap_error *err)
{
    int64_t sizes[TAP_ENGINE_MAX_NDIM], strides[OPERANDS][TAP_ENGINE_MAX_NDIM];
    int ndim;
    tap_dtype dtype = operands[self->gradient]->dtype;
    common_sizes(operands, count, &ndim, sizes);
    for (int k = 0; k < count; k++) {
        self->there[k] = operands[k] != NULL;
        if (!operands[k])
            continue;
        self->dtype[k] = operands[k]->dtype;
        if (!is_float(operands[k]->dtype) || (operands[k]->dtype == TAP_F64) != (dtype == TAP_F64) ||
            !spread(operands[k], ndim, sizes, strides[k]))
            return tap__refuse(call, err);
    }
    for (int s = 0; s < SPACES; s++)
        tap__space_begin(&self->spaces[s], TAP_SPACE_OPERANDS);
    self->operands = count;
    self->lanes = tap__lanes_now();
    self->type = dtype == TAP_F64 ? TAP_LANE_F64 : TAP_LANE_F32;
    int64_t merged[SPACES][TAP_SPACE_OPERANDS];
    for (int i = 0; i < ndim; i++) {
        memset(merged, 0, sizeof merged);
        for (int k = 0; k < count; k++)
            if (operands[k])
                merged[k / TAP_SPACE_OPERANDS][k % TAP_SPACE_OPERANDS] = strides[k][i];
        for (int s = 0; s < SPACES; s++)
            tap__space_add(&self->spaces[s], sizes[i], merged[s]);
    }
    /* lines of both spaces are walked together and may end at different places */
    for (int s = 0; s < SPACES; s++)
        tap__space_end(&self->spaces[s], false);
    self->count = self->spaces[0].count;
    self->pieces = (self->count + PIECE - 1) / PIECE;
    self->factor = self->mean ? 1 / (double)self->count : 1;
    call->scratch = self->reduced ? (size_t)(self->pieces + 1) * sizeof(double) : 0;
    return TAP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- blocks */

/* first, second: log(x) and log(1 - x) of probabilities; log(1 + e^-|x|) of logarithms of odds, and nothing */
#define CROSS(type)                                                                                                  \
    do {                                                                                                             \
        type *to = y;                                                                                                \
        const type *x = in[0], *t = in[1], *w = in[2], *p = in[3], *a = (const type *)first,                         \
                   *b = (const type *)second;                                                                        \
        if (self->what == CROSS_ENTROPY)                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                          \
                to[i] = (t[i] - 1) * (b[i] < -100 ? -100 : b[i]) - t[i] * (a[i] < -100 ? -100 : a[i]);               \
        else                                                                                                         \
            for (int64_t i = 0; i < n; i++)                                                                          \
                to[i] = (1 - t[i]) * x[i] - (p ? (p[i] - 1) * t[i] + 1 : 1) * ((x[i] < 0 ? x[i] : 0) - a[i]);        \
        for (int64_t i = 0; w && i < n; i++)                                                                         \
            to[i] *= w[i];                                                                                           \
    } while (0)

#define NEGATED(type, expression)                                                                                    \
    do {                                                                                                             \
        const type *x = from;                                                                                        \
        type *y = to;                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                              \
            y[i] = expression;                                                                                       \
    } while (0)

/* -x, or -|x| */
static void negate(tap__lane_type type, bool size, void *to, const void *from, int64_t n)
{
    if (type == TAP_LANE_F32 && size)
        NEGATED(float, x[i] < 0 ? x[i] : -x[i]);
    else if (type == TAP_LANE_F32)
        NEGATED(float, -x[i]);
    else if (size)
        NEGATED(double, x[i] < 0 ? x[i] : -x[i]);
    else
        NEGATED(double, -x[i]);
}

static void cross_block(const loss *self, void *y, const void *const *in, int64_t n)
{
    const tap__lane_math *math = &self->lanes->math[self->type];
    double room[2][TAP_LINE];
    const void *first = room[0], *second = room[1];
    if (self->what == CROSS_ENTROPY) {
        math->log(room[0], in[0], n);
        negate(self->type, false, room[1], in[0], n);
        math->log1p(room[1], room[1], n);
    } else {
        negate(self->type, true, room[0], in[0], n);
        math->exp_sum(room[0], room[0], 0, n);
        math->log1p(room[0], room[0], n);
    }
    if (self->type == TAP_LANE_F32)
        CROSS(float);
    else
        CROSS(double);
}

static void forward_block(const loss *self, void *y, const void *const *in, int64_t n)
{
    const tap__lane_math *math = &self->lanes->math[self->type];
    if (self->what == SQUARED)
        math->squared(y, in[0], in[1], self->number, n);
    else if (self->what == SMOOTH)
        math->smooth(y, in[0], in[1], self->number, n);
    else if (self->what == HUBER)
        math->huber(y, in[0], in[1], self->number, n);
    else
        cross_block(self, y, in, n);
}

/* dx = g (x - t) / max((1 - x) x, 1e-12) */
#define CROSS_GRAD(type)                                                                                             \
    do {                                                                                                             \
        type *to = dx, f = (type)self->factor;                                                                       \
        const type *g = in[0], *x = in[1], *t = in[2], *w = in[3];                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            type under = (1 - x[i]) * x[i], least = (type)1e-12;                                                     \
            type value = g[i] * (x[i] - t[i]) / (under > least ? under : least);                                     \
            to[i] = (w ? value * w[i] : value) * f;                                                                  \
        }                                                                                                            \
    } while (0)

static void gradient_block(const loss *self, void *dx, const void *const *in, int64_t n)
{
    const tap__lane_math *math = &self->lanes->math[self->type];
    if (self->what == SQUARED)
        math->squared_grad(dx, in[0], in[1], in[2], self->number, self->factor, n);
    else if (self->what == SMOOTH)
        math->smooth_grad(dx, in[0], in[1], in[2], self->number, self->factor, n);
    else if (self->what == HUBER)
        math->huber_grad(dx, in[0], in[1], in[2], self->number, self->factor, n);
    else if (self->type == TAP_LANE_F32)
        CROSS_GRAD(float);
    else
        CROSS_GRAD(double);
}

/* Numbers of all operands, at most a buffer full, from the cursors on. */
static int64_t next_block(const job *work, tap__cursor *cursors, int64_t left, double room[][TAP_LINE], const void **in)
{
    const loss *self = work->self;
    int64_t n = left < TAP_LINE ? left : TAP_LINE;
    for (int s = 0; s < SPACES; s++) {
        int64_t rest = tap__cursor_rest(&cursors[s]);
        n = rest < n ? rest : n;
    }
    for (int k = 0; k < self->operands; k++) {
        const tap__cursor *cursor = &cursors[k / TAP_SPACE_OPERANDS];
        int at = k % TAP_SPACE_OPERANDS;
        in[k] = NULL;
        if (self->there[k] && k != self->result)
            in[k] = tap__line_load(self->lanes, self->dtype[k],
                                   tap__element_at(work->at[k], self->dtype[k], cursor->at[at]),
                                   cursor->space->stride[at][cursor->space->ndim - 1], n, room[k]);
    }
    return n;
}

static void run_piece(const job *work, int64_t piece)
{
    const loss *self = work->self;
    double room[OPERANDS + 1][TAP_LINE], total = 0;
    const void *in[OPERANDS];
    int64_t begin = piece * PIECE, end = begin + PIECE < self->count ? begin + PIECE : self->count;
    tap__cursor cursors[SPACES];
    for (int s = 0; s < SPACES; s++)
        tap__cursor_seek(&cursors[s], &self->spaces[s], begin);
    while (begin < end) {
        int64_t n = next_block(work, cursors, end - begin, room, in);
        void *to = room[OPERANDS], *place = NULL;
        int64_t step = 1;
        if (self->result >= 0) {
            const tap__cursor *cursor = &cursors[self->result / TAP_SPACE_OPERANDS];
            int at = self->result % TAP_SPACE_OPERANDS;
            tap_dtype dtype = self->dtype[self->result];
            step = cursor->space->stride[at][cursor->space->ndim - 1];
            place = tap__element_at(work->at[self->result], dtype, cursor->at[at]);
            to = tap__line_target(dtype, place, step, n, to);
        }
        if (self->gradient)
            gradient_block(self, to, in, n);
        else
            forward_block(self, to, in, n);
        if (self->reduced)
            self->lanes->row[TAP_FOLD_SUM][self->type](&total, to, n, NULL);
        else
            tap__line_store(self->lanes, self->dtype[self->result], place, step, n, to);
        for (int s = 0; s < SPACES; s++)
            tap__cursor_step(&cursors[s], n);
        begin += n;
    }
    if (self->reduced)
        work->sums[piece] = total;
}

static void run_pieces(void *user, int64_t from, int64_t to)
{
    for (; from < to; from++)
        run_piece(user, from);
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

static const tap__operand *given(const tap__operand *operand)
{
    return operand->dtype == TAP_DTYPE_NONE ? NULL : operand;
}

static tap_status begin(tap__call *call, kind what, bool gradient, const char *number, tap_error *err)
{
    int64_t reduction = tap__call_attr(call, "reduction")->i;
    const tap__operand *operands[OPERANDS] = {NULL};
    int count = 0;
    for (int i = 0; i < call->nin; i++)
        operands[count++] = given(&call->in[i]);
    loss *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->what = what;
    self->gradient = gradient;
    self->mean = reduction == 1;
    self->reduced = reduction != 0 && !gradient;
    self->number = number ? tap__call_attr(call, number)->f : 0;
    self->result = -1;
    if (!self->reduced) {
        self->result = count;
        operands[count++] = &call->out[0];
    }
    tap_status status = prepare(call, operands, count, self, err);
    /* a smooth loss of width 0 is another one */
    if (status == TAP_OK && ((self->reduced && call->out[0].ndim != 0) || (what == SMOOTH && self->number == 0)))
        status = tap__refuse(call, err);
    if (status != TAP_OK) {
        tap__free(self);
        return status;
    }
    call->state = self;
    return TAP_OK;
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const loss *self = call->state;
    job work = {.self = self, .sums = data[call->nin + call->nout]};
    (void)err;
    for (int i = 0; i < call->nin; i++)
        work.at[i] = data[i];
    if (self->result >= 0)
        work.at[self->result] = data[call->nin];
    tap__parallel(call->threads, self->pieces, 1, TAP_ANY_LENGTH, run_pieces, &work);
    if (self->reduced) {
        double total = 0;
        for (int64_t piece = 0; piece < self->pieces; piece++)
            total += work.sums[piece];
        tap__put_float(call->out[0].dtype, data[call->nin], self->mean ? total / (double)self->count : total);
    }
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

#define KERNEL_OF(name, what, gradient, number)                                                                      \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        return begin(call, what, gradient, number, err);                                                             \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {.prepare = prepare_##name, .run = run, .release = release};
KERNEL_OF(mse_loss, SQUARED, false, NULL)
KERNEL_OF(mse_loss_grad, SQUARED, true, NULL)
KERNEL_OF(smooth_l1_loss, SMOOTH, false, "beta")
KERNEL_OF(smooth_l1_loss_grad, SMOOTH, true, "beta")
KERNEL_OF(huber_loss, HUBER, false, "delta")
KERNEL_OF(huber_loss_grad, HUBER, true, "delta")
KERNEL_OF(cross_entropy, CROSS_ENTROPY, false, NULL)
KERNEL_OF(cross_entropy_grad, CROSS_ENTROPY, true, NULL)
KERNEL_OF(cross_entropy_logits, CROSS_ENTROPY_LOGITS, false, NULL)
