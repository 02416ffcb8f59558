/* nll_loss.c - the negative log likelihood of target classes, and its gradient. Samples and places are one index space;
 * classes are the dimension before the places. */
#include "engine/kernels/lines.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

enum { PIECE = 4096 };

typedef struct nll_loss {
    bool gradient;
    int64_t reduction, ignored, classes, class_stride;
    tap_dtype dtype;
    tap__space space; /* forward: x, target, y; gradient: dx, target, g */
    int64_t pieces;
} nll_loss;

typedef struct job {
    const nll_loss *self;
    const tap__call *call;
    const char *x;
    const void *target, *weight;
    const tap__operand *weight_operand;
    char *y;
    tap_dtype target_dtype, y_dtype;
    double *sums; /* [piece] of losses, then of weights */
    double factor;
    _Atomic int64_t bad;
} job;

static int64_t target_at(const job *work, int64_t offset)
{
    if (work->target_dtype == TAP_U8)
        return ((const uint8_t *)work->target)[offset];
    return ((const int64_t *)work->target)[offset];
}

static double weight_of(const job *work, int64_t class)
{
    const tap__operand *weight = work->weight_operand;
    if (!work->weight)
        return 1;
    return tap__get_float(weight->dtype, tap__element_at(work->weight, weight->dtype, class * weight->stride[0]));
}

static void run_forward_piece(job *work, int64_t piece)
{
    const nll_loss *self = work->self;
    int64_t begin = piece * PIECE, end = begin + PIECE < self->space.count ? begin + PIECE : self->space.count;
    double total = 0, weights = 0;
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->space, begin);
    for (; begin < end; begin++, tap__cursor_step(&cursor, 1)) {
        int64_t class = target_at(work, cursor.at[1]);
        double weight = 0, value = 0;
        if (class != self->ignored) {
            if (class < 0 || class >= self->classes) {
                atomic_store(&work->bad, class);
                continue;
            }
            weight = weight_of(work, class);
            value = -weight * tap__get_float(self->dtype, tap__element_at(work->x, self->dtype,
                                                                          cursor.at[0] + class * self->class_stride));
        }
        total += value;
        weights += weight;
        if (self->reduction == 0)
            tap__put_float(work->y_dtype, tap__element_at(work->y, work->y_dtype, cursor.at[2]), value);
    }
    work->sums[piece] = total;
    work->sums[self->pieces + piece] = weights;
}

static void run_forward_pieces(void *user, int64_t from, int64_t to)
{
    for (; from < to; from++)
        run_forward_piece(user, from);
}

static void run_gradient_pieces(void *user, int64_t from, int64_t to)
{
    job *work = user;
    const nll_loss *self = work->self;
    for (; from < to; from++) {
        int64_t begin = from * PIECE, end = begin + PIECE < self->space.count ? begin + PIECE : self->space.count;
        tap__cursor cursor;
        tap__cursor_seek(&cursor, &self->space, begin);
        for (; begin < end; begin++, tap__cursor_step(&cursor, 1)) {
            int64_t class = target_at(work, cursor.at[1]);
            if (class == self->ignored)
                continue;
            if (class < 0 || class >= self->classes) {
                atomic_store(&work->bad, class);
                continue;
            }
            double g = tap__get_float(work->y_dtype, tap__element_at(work->y, work->y_dtype, cursor.at[2]));
            int64_t at = cursor.at[0] + class * self->class_stride;
            tap__put_float(self->dtype, tap__element_at(work->x, self->dtype, at),
                           -weight_of(work, class) * g * work->factor);
        }
    }
}

/* A target the framework would not have accepted. */
static tap_status check_targets(const job *work, tap_error *err)
{
    int64_t bad = atomic_load(&work->bad);
    if (bad == INT64_MIN)
        return TAP_OK;
    return tap_fail(err, TAP_E_INVALID, "Target %lld is out of bounds.", (long long)bad);
}

static bool is_float(tap_dtype dtype)
{
    return dtype == TAP_F16 || dtype == TAP_BF16 || dtype == TAP_F32 || dtype == TAP_F64;
}

/* x: of classes, or its gradient; y: per sample, or 0-d */
static tap_status prepare(tap__call *call, const tap__operand *x, const tap__operand *target,
                          const tap__operand *weight, const tap__operand *y, bool gradient, tap_error *err)
{
    int64_t reduction = tap__call_attr(call, "reduction")->i;
    int axis = target->ndim == x->ndim ? -1 : x->ndim - 1 < 1 ? x->ndim - 1 : 1;
    if (x->ndim == 1)
        axis = 0;
    bool fits = is_float(x->dtype) && is_float(y->dtype) && (target->dtype == TAP_I64 || target->dtype == TAP_U8) &&
                axis >= 0 && target->ndim <= 3 && (x->ndim != 1 ? target->ndim == x->ndim - 1 : target->ndim <= 1);
    fits = fits && (weight->dtype == TAP_DTYPE_NONE ||
                    (is_float(weight->dtype) && weight->ndim == 1 && weight->size[0] == x->size[axis]));
    for (int i = 0, at = 0; fits && i < x->ndim; i++)
        if (i != axis)
            fits = target->size[at++] == x->size[i];
    if (!fits || (gradient && !tap__operand_is_contiguous(x)) || (reduction == 0 && y->ndim != target->ndim))
        return tap__refuse(call, err);
    nll_loss *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->gradient = gradient;
    self->reduction = reduction;
    self->ignored = tap__call_attr(call, "ignore_index")->i;
    self->classes = x->size[axis];
    self->class_stride = x->stride[axis];
    self->dtype = x->dtype;
    tap__space_begin(&self->space, 3);
    for (int i = 0, at = 0; i < x->ndim; i++)
        if (i != axis) {
            tap__space_add(&self->space, x->size[i],
                           (const int64_t[]){x->stride[i], target->stride[at], reduction == 0 ? y->stride[at] : 0});
            at++;
        }
    tap__space_end(&self->space, false);
    self->pieces = (self->space.count + PIECE - 1) / PIECE;
    call->scratch = (size_t)(2 * self->pieces + 1) * sizeof(double);
    call->state = self;
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

static tap_status prepare_forward(tap__call *call, tap_error *err)
{
    return prepare(call, &call->in[0], &call->in[1], &call->in[2], &call->out[0], false, err);
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    const nll_loss *self = call->state;
    job work = {.self = self, .call = call, .x = data[0], .target = data[1], .weight = data[2],
                .weight_operand = &call->in[2], .y = data[3], .target_dtype = call->in[1].dtype,
                .y_dtype = call->out[0].dtype, .sums = data[5]};
    atomic_init(&work.bad, INT64_MIN);
    tap__parallel(call->threads, self->pieces, 4, TAP_ANY_LENGTH, run_forward_pieces, &work);
    TAP_TRY(check_targets(&work, err));
    double total = 0, weights = 0;
    for (int64_t piece = 0; piece < self->pieces; piece++) {
        total += work.sums[piece];
        weights += work.sums[self->pieces + piece];
    }
    if (self->reduction != 0)
        tap__put_float(call->out[0].dtype, data[3], self->reduction == 1 ? total / weights : total);
    /* the framework leaves it at zero for a batch whose losses stay apart */
    tap__put_float(call->out[1].dtype, data[4], self->reduction == 0 && call->in[0].ndim > 1 ? 0 : weights);
    return TAP_OK;
}
const tap__kernel tap__kernel_nll_loss = {.prepare = prepare_forward, .run = run_forward, .release = release};

/* inputs: g, x, target, weight, total weight */
static tap_status prepare_gradient(tap__call *call, tap_error *err)
{
    if (!is_float(call->in[4].dtype))
        return tap__refuse(call, err);
    return prepare(call, &call->out[0], &call->in[2], &call->in[3], &call->in[0], true, err);
}

static void fill_zeros(void *user, int64_t from, int64_t to)
{
    memset((char *)user + from, 0, (size_t)(to - from));
}

static tap_status run_gradient(const tap__call *call, void *const *data, tap_error *err)
{
    const nll_loss *self = call->state;
    int64_t bytes = tap__operand_count(&call->out[0]) * tap_dtype_describe(self->dtype)->bytes;
    job work = {.self = self, .call = call, .x = data[5], .target = data[2], .weight = data[3],
                .weight_operand = &call->in[3], .y = data[0], .target_dtype = call->in[2].dtype,
                .y_dtype = call->in[0].dtype, .factor = 1};
    atomic_init(&work.bad, INT64_MIN);
    if (self->reduction == 1)
        work.factor = 1 / tap__get_float(call->in[4].dtype, data[4]);
    tap__parallel(call->threads, bytes, 1 << 18, TAP_ANY_LENGTH, fill_zeros, data[5]);
    tap__parallel(call->threads, self->pieces, 4, TAP_ANY_LENGTH, run_gradient_pieces, &work);
    return check_targets(&work, err);
}
const tap__kernel tap__kernel_nll_loss_grad = {.prepare = prepare_gradient, .run = run_gradient, .release = release};
