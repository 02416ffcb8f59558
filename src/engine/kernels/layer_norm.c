/* layer_norm.c - normalisation over the last dimensions (layer norm, and RMS norm, which leaves the mean alone) and its
 * gradients. One row after another: its moments, then its result, both from the cache. */
#include "engine/kernels/norm.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 8192,  /* numbers whose moments are taken together */
    GRAIN = 16384  /* numbers that are worth a task */
};

/* operands of outer: x, y (or g, x, dx), of inner the same */
typedef struct layer_norm {
    const tap__lanes *lanes;
    tap__lane_type type;
    size_t bytes;
    bool rms;
    double eps;
    int axis;                   /* the first normalised dimension */
    tap_dtype dtype[3];
    tap__space outer, inner;
    size_t weight_room, bias_room;
    bool weight_direct, bias_direct; /* they lie ready for use */
    int64_t tasks, rows_each;   /* of the gradient: rows whose parameter gradients are summed up together */
} layer_norm;

/* A parameter has the sizes of the normalised dimensions. */
static bool parameter_fits(const tap__operand *x, int axis, const tap__operand *parameter)
{
    tap__lane_type type;
    if (parameter->dtype == TAP_DTYPE_NONE)
        return true;
    return tap__norm_type(parameter->dtype, &type) && parameter->ndim == x->ndim - axis &&
           memcmp(parameter->size, x->size + axis, (size_t)parameter->ndim * sizeof x->size[0]) == 0;
}

static bool lies_ready(const tap__operand *parameter, tap__lane_type type)
{
    return parameter->dtype == (type == TAP_LANE_F64 ? TAP_F64 : TAP_F32) && tap__operand_is_contiguous(parameter);
}

static tap_status begin(tap__call *call, const tap__operand *const *operands, int count, const tap__operand *weight,
                        const tap__operand *bias, layer_norm **out, tap_error *err)
{
    const tap__operand *x = operands[count == 3];
    const tap__attr *shape = tap__call_attr(call, "normalized_shape");
    int axis = x->ndim - shape->count;
    tap__lane_type type;
    if (axis < 0 || shape->count == 0 || !tap__norm_type(x->dtype, &type) || !parameter_fits(x, axis, weight) ||
        (bias && !parameter_fits(x, axis, bias)))
        return tap__refuse(call, err);
    for (int k = 0; k < count; k++) {
        tap__lane_type other;
        if (operands[k]->dtype != TAP_DTYPE_NONE &&
            (!tap__norm_type(operands[k]->dtype, &other) || other != type || !tap__operand_same_sizes(operands[k], x)))
            return tap__refuse(call, err);
    }
    layer_norm *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->lanes = tap__lanes_now();
    self->type = type;
    self->bytes = type == TAP_LANE_F64 ? 8 : 4;
    self->axis = axis;
    tap__space_begin(&self->outer, count);
    tap__space_begin(&self->inner, count);
    for (int i = 0; i < x->ndim; i++) {
        int64_t strides[3] = {0};
        for (int k = 0; k < count; k++)
            strides[k] = operands[k]->dtype != TAP_DTYPE_NONE ? operands[k]->stride[i] : x->stride[i];
        tap__space_add(i < axis ? &self->outer : &self->inner, x->size[i], strides);
    }
    for (int k = 0; k < count; k++)
        self->dtype[k] = operands[k]->dtype != TAP_DTYPE_NONE ? operands[k]->dtype : x->dtype;
    tap__space_end(&self->outer, false);
    tap__space_end(&self->inner, false);
    self->weight_direct = lies_ready(weight, type);
    self->weight_room = self->weight_direct ? 0 : tap__norm_room(weight, type);
    self->bias_direct = bias && lies_ready(bias, type);
    self->bias_room = !bias || self->bias_direct ? 0 : tap__norm_room(bias, type);
    call->scratch = self->weight_room + self->bias_room;
    *out = self;
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

/* A parameter as numbers that lie together: where it is, or in the scratch. */
static const void *parameter(const layer_norm *self, const tap__operand *operand, const void *data, bool direct,
                             void *room)
{
    if (operand->dtype == TAP_DTYPE_NONE || direct)
        return data;
    tap__norm_gather(self->lanes, operand, data, self->type, room);
    return room;
}

static const void *load(const layer_norm *self, int k, const void *base, const tap__cursor *cursor, int64_t n,
                        void *buffer)
{
    return tap__line_load(self->lanes, self->dtype[k], tap__element_at(base, self->dtype[k], cursor->at[k]),
                          self->inner.stride[k][self->inner.ndim - 1], n, buffer);
}

/* Numbers of operand k that can be worked on at once. */
static int64_t at_once(const layer_norm *self, int count, const tap__cursor *cursor, int64_t left, int64_t most)
{
    int64_t n = tap__cursor_rest(cursor);
    n = n < left ? n : left;
    bool direct = true;
    for (int k = 0; k < count; k++)
        direct = direct && tap__line_is_direct(self->dtype[k], self->inner.stride[k][self->inner.ndim - 1], n);
    if (!direct)
        most = TAP_LINE;
    return n < most ? n : most;
}

/* ---------------------------------------------------------------------------------------------------------- forward */

typedef struct forward_job {
    const layer_norm *self;
    const char *x;
    char *y;
    const void *weight, *bias;
    void *mean, *rstd;
    tap_dtype mean_dtype, rstd_dtype;
    tap__space stats; /* of mean and rstd */
} forward_job;

static void row_moments(const layer_norm *self, const void *x, double *mean, double *rstd)
{
    double buffer[TAP_LINE], squares = 0;
    static const double zero = 0;
    tap__moments moments = {0};
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->inner, 0);
    for (int64_t i = 0, n; i < self->inner.count; i += n) {
        n = at_once(self, 1, &cursor, self->inner.count - i, CHUNK);
        const void *from = load(self, 0, x, &cursor, n, buffer);
        if (self->rms)
            self->lanes->row[TAP_FOLD_SQUARE][self->type](&squares, from, n, &zero);
        else
            tap__moments_add(&moments, self->lanes, self->type, from, n);
        tap__cursor_step(&cursor, n);
    }
    *mean = self->rms ? 0 : moments.mean;
    *rstd = 1 / sqrt((self->rms ? squares : moments.squares) / (double)self->inner.count + self->eps);
}

static void forward_row(const forward_job *work, const void *x, void *y, double mean, double rstd)
{
    const layer_norm *self = work->self;
    double a[TAP_LINE], b[TAP_LINE];
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->inner, 0);
    for (int64_t i = 0, n; i < self->inner.count; i += n) {
        n = at_once(self, 2, &cursor, self->inner.count - i, INT64_MAX);
        size_t offset = (size_t)i * self->bytes;
        int64_t step = self->inner.stride[1][self->inner.ndim - 1];
        void *place = tap__element_at(y, self->dtype[1], cursor.at[1]);
        void *to = tap__line_target(self->dtype[1], place, step, n, b);
        self->lanes->math[self->type].affine(to, load(self, 0, x, &cursor, n, a), mean, rstd,
                                             work->weight ? (const char *)work->weight + offset : NULL,
                                             work->bias ? (const char *)work->bias + offset : NULL, n);
        tap__line_store(self->lanes, self->dtype[1], place, step, n, to);
        tap__cursor_step(&cursor, n);
    }
}

static void run_forward_rows(void *user, int64_t from, int64_t to)
{
    const forward_job *work = user;
    const layer_norm *self = work->self;
    tap__cursor cursor, stats;
    tap__cursor_seek(&cursor, &self->outer, from);
    tap__cursor_seek(&stats, &work->stats, from);
    for (; from < to; from++) {
        const void *x = tap__element_at(work->x, self->dtype[0], cursor.at[0]);
        double mean, rstd;
        row_moments(self, x, &mean, &rstd);
        if (self->inner.count)
            forward_row(work, x, tap__element_at(work->y, self->dtype[1], cursor.at[1]), mean, rstd);
        if (work->mean)
            tap__put_float(work->mean_dtype, tap__element_at(work->mean, work->mean_dtype, stats.at[0]), mean);
        if (work->rstd)
            tap__put_float(work->rstd_dtype, tap__element_at(work->rstd, work->rstd_dtype, stats.at[1]), rstd);
        tap__cursor_step(&cursor, 1);
        tap__cursor_step(&stats, 1);
    }
}

/* The space of the statistics: the leading dimensions of x. */
static void stats_space(tap__space *space, int axis, const tap__operand *mean, const tap__operand *rstd)
{
    tap__space_begin(space, 2);
    for (int i = 0; i < axis; i++)
        tap__space_add(space, rstd->size[i], (const int64_t[]){mean ? mean->stride[i] : 0, rstd->stride[i]});
    tap__space_end(space, false);
}

static tap_status prepare_forward(tap__call *call, bool rms, tap_error *err)
{
    static const tap__operand none;
    const tap__operand *operands[] = {&call->in[0], &call->out[0]};
    const tap__attr *eps = tap__call_attr(call, "eps");
    layer_norm *self = NULL;
    const tap__operand *x = &call->in[0], *last = &call->out[call->nout - 1];
    TAP_TRY(begin(call, operands, 2, &call->in[1], rms ? &none : &call->in[2], &self, err));
    if (call->out[0].dtype == TAP_DTYPE_NONE || last->ndim != x->ndim) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    self->rms = rms;
    /* what the framework takes when none is given */
    self->eps = eps->present ? eps->f : self->type == TAP_LANE_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
    call->state = self;
    return TAP_OK;
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    const layer_norm *self = call->state;
    static const tap__operand none;
    char *scratch = data[call->nin + call->nout];
    void *const *out = data + call->nin;
    bool has_mean = !self->rms;
    (void)err;
    const tap__operand *mean = has_mean ? &call->out[1] : NULL, *rstd = &call->out[call->nout - 1];
    forward_job work = {.self = self, .x = data[0], .y = out[0], .mean = has_mean ? out[1] : NULL,
                        .rstd = out[call->nout - 1], .mean_dtype = has_mean ? mean->dtype : TAP_F32,
                        .rstd_dtype = rstd->dtype};
    work.weight = parameter(self, &call->in[1], data[1], self->weight_direct, scratch);
    work.bias = self->rms ? NULL
                          : parameter(self, self->rms ? &none : &call->in[2], data[2], self->bias_direct,
                                      self->weight_room ? scratch + self->weight_room : scratch);
    stats_space(&work.stats, self->axis, mean, rstd);
    int64_t each = self->inner.count ? self->inner.count : 1;
    tap__parallel(call->threads, self->outer.count, each < GRAIN ? GRAIN / each : 1,
                  TAP_ANY_LENGTH, run_forward_rows, &work);
    return TAP_OK;
}

static tap_status prepare_layer_norm(tap__call *call, tap_error *err)
{
    return prepare_forward(call, false, err);
}

static tap_status prepare_rms_norm(tap__call *call, tap_error *err)
{
    return prepare_forward(call, true, err);
}
const tap__kernel tap__kernel_layer_norm = {.prepare = prepare_layer_norm, .run = run_forward, .release = release};
const tap__kernel tap__kernel_rms_norm = {.prepare = prepare_rms_norm, .run = run_forward, .release = release};

/* --------------------------------------------------------------------------------------------------------- gradient */

enum { ROWS = 4 }; /* whose parameter gradients are added together */

typedef struct gradient_job {
    const layer_norm *self;
    const tap__call *call;
    const void *g, *x, *weight, *mean, *rstd;
    void *dx;
    tap_dtype mean_dtype, rstd_dtype;
    tap__space stats;
    double *sums; /* [task][weight, bias][inner], NULL: not asked for */
    int64_t rows_each;
} gradient_job;

static void gradient_row(const gradient_job *work, const void *g, const void *x, void *dx, double mean, double rstd,
                         double *dw, double *db)
{
    const layer_norm *self = work->self;
    const tap__lane_math *math = &self->lanes->math[self->type];
    double a[TAP_LINE], b[TAP_LINE], c[TAP_LINE], sum = 0, dot = 0, count = (double)self->inner.count;
    tap__cursor cursor;
    for (int pass = 0; pass < 2; pass++) {
        tap__cursor_seek(&cursor, &self->inner, 0);
        for (int64_t i = 0, n; i < self->inner.count; i += n) {
            n = at_once(self, 3, &cursor, self->inner.count - i, INT64_MAX);
            const void *gv = load(self, 0, g, &cursor, n, a), *xv = load(self, 1, x, &cursor, n, b);
            const char *w = work->weight ? (const char *)work->weight + (size_t)i * self->bytes : NULL;
            if (pass == 0) {
                if (work->dx)
                    math->norm_sums(gv, xv, w, mean, n, &sum, &dot);
                if (dw)
                    math->col_norm_sums(dw + i, db + i, gv, xv, 0, 0, &mean, &rstd, 1, n);
            } else {
                int64_t step = self->inner.stride[2][self->inner.ndim - 1];
                void *place = tap__element_at(dx, self->dtype[2], cursor.at[2]);
                void *to = tap__line_target(self->dtype[2], place, step, n, c);
                math->norm_grad(to, gv, xv, w, mean, rstd, self->rms ? 0 : sum / count, dot * rstd * rstd / count, n);
                tap__line_store(self->lanes, self->dtype[2], place, step, n, to);
            }
            tap__cursor_step(&cursor, n);
        }
        if (!work->dx)
            break;
    }
}

/* Whether rows of g and x are single lines that lie ready, evenly spaced: then several are taken together. */
static bool rows_are_even(const layer_norm *self)
{
    return self->inner.ndim == 1 && self->outer.ndim == 1 &&
           tap__line_is_direct(self->dtype[0], self->inner.stride[0][0], self->inner.count) &&
           tap__line_is_direct(self->dtype[1], self->inner.stride[1][0], self->inner.count);
}

static void run_gradient_task(const gradient_job *work, int64_t task)
{
    const layer_norm *self = work->self;
    int64_t first = task * work->rows_each, last = first + work->rows_each, n = self->inner.count;
    last = last < self->outer.count ? last : self->outer.count;
    double *dw = work->sums ? work->sums + task * 2 * n : NULL, *db = dw ? dw + n : NULL;
    bool even = dw && rows_are_even(self);
    if (dw)
        memset(dw, 0, (size_t)n * 2 * sizeof *dw);
    tap__cursor cursor, stats;
    tap__cursor_seek(&cursor, &self->outer, first);
    tap__cursor_seek(&stats, &work->stats, first);
    double mean[ROWS] = {0}, rstd[ROWS];
    const void *from_g = NULL, *from_x = NULL;
    int held = 0;
    for (int64_t row = first; row < last; row++) {
        const void *g = tap__element_at(work->g, self->dtype[0], cursor.at[0]);
        const void *x = tap__element_at(work->x, self->dtype[1], cursor.at[1]);
        if (work->mean)
            mean[held] = tap__get_float(work->mean_dtype, tap__element_at(work->mean, work->mean_dtype, stats.at[0]));
        rstd[held] = tap__get_float(work->rstd_dtype, tap__element_at(work->rstd, work->rstd_dtype, stats.at[1]));
        gradient_row(work, g, x, work->dx ? tap__element_at(work->dx, self->dtype[2], cursor.at[2]) : NULL, mean[held],
                     rstd[held], even ? NULL : dw, db);
        if (even) {
            from_g = held ? from_g : g;
            from_x = held ? from_x : x;
            if (++held == ROWS || row + 1 == last) {
                self->lanes->math[self->type].col_norm_sums(dw, db, from_g, from_x, self->outer.stride[0][0],
                                                            self->outer.stride[1][0], mean, rstd, held, n);
                held = 0;
            }
        }
        tap__cursor_step(&cursor, 1);
        tap__cursor_step(&stats, 1);
    }
}

static void run_gradient_tasks(void *user, int64_t from, int64_t to)
{
    for (; from < to; from++)
        run_gradient_task(user, from);
}

/* Sums of the tasks, in their order, into a parameter's gradient. */
static void put_sums(const layer_norm *self, const double *sums, int64_t tasks, const tap__operand *out, void *data)
{
    tap__space space;
    tap__cursor cursor;
    int64_t n = self->inner.count;
    tap__space_begin(&space, 1);
    for (int i = 0; i < out->ndim; i++)
        tap__space_add(&space, out->size[i], &out->stride[i]);
    tap__space_end(&space, false);
    tap__cursor_seek(&cursor, &space, 0);
    for (int64_t j = 0; j < n; j++) {
        double total = 0;
        for (int64_t task = 0; task < tasks; task++)
            total += sums[task * 2 * n + j];
        tap__put_float(out->dtype, tap__element_at(data, out->dtype, cursor.at[0]), total);
        tap__cursor_step(&cursor, 1);
    }
}

static bool wanted(const tap__call *call, int k)
{
    return k < call->nout && call->out[k].dtype != TAP_DTYPE_NONE;
}

/* inputs: grad, x, mean, rstd, weight (layer norm) or grad, x, rstd, weight (RMS norm) */
static tap_status prepare_gradient(tap__call *call, bool rms, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->in[1], &call->out[0]};
    const tap__operand *rstd = &call->in[rms ? 2 : 3], *weight = &call->in[rms ? 3 : 4];
    layer_norm *self = NULL;
    TAP_TRY(begin(call, operands, 3, weight, NULL, &self, err));
    self->rms = rms;
    bool fits = rstd->ndim == call->in[1].ndim;
    for (int k = 1; k < call->nout; k++)
        fits = fits && (!wanted(call, k) || parameter_fits(&call->in[1], self->axis, &call->out[k]));
    if (!fits) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    int64_t rows = self->outer.count, tasks = rows * self->inner.count / (4 * GRAIN);
    tasks = tasks < 1 ? 1 : tasks > 16 ? 16 : tasks;
    if (!wanted(call, 1) && !wanted(call, 2) && tasks == 16)
        tasks = 64; /* nothing to keep for each */
    self->rows_each = rows ? (rows + tasks - 1) / tasks : 1;
    self->tasks = rows ? (rows + self->rows_each - 1) / self->rows_each : 0;
    if (wanted(call, 1) || wanted(call, 2))
        call->scratch += (size_t)(self->tasks * 2 * self->inner.count) * sizeof(double);
    call->state = self;
    return TAP_OK;
}

static tap_status run_gradient(const tap__call *call, void *const *data, tap_error *err)
{
    const layer_norm *self = call->state;
    int rstd = self->rms ? 2 : 3, weight = rstd + 1;
    char *scratch = data[call->nin + call->nout];
    void *const *out = data + call->nin;
    bool sums = wanted(call, 1) || wanted(call, 2);
    (void)err;
    gradient_job work = {.self = self, .call = call, .g = data[0], .x = data[1], .mean = self->rms ? NULL : data[2],
                         .rstd = data[rstd], .dx = wanted(call, 0) ? out[0] : NULL, .mean_dtype = call->in[2].dtype,
                         .rstd_dtype = call->in[rstd].dtype, .rows_each = self->rows_each};
    if (sums)
        work.sums = (double *)(void *)(scratch + self->weight_room);
    work.weight = parameter(self, &call->in[weight], data[weight], self->weight_direct, scratch);
    stats_space(&work.stats, self->axis, self->rms ? NULL : &call->in[2], &call->in[rstd]);
    tap__parallel(call->threads, self->tasks, 1, TAP_ANY_LENGTH, run_gradient_tasks, &work);
    for (int k = 1; k < call->nout; k++)
        if (wanted(call, k))
            put_sums(self, work.sums + (k - 1) * self->inner.count, self->tasks, &call->out[k], out[k]);
    return TAP_OK;
}

static tap_status prepare_layer_norm_grad(tap__call *call, tap_error *err)
{
    return prepare_gradient(call, false, err);
}

static tap_status prepare_rms_norm_grad(tap__call *call, tap_error *err)
{
    return prepare_gradient(call, true, err);
}
const tap__kernel tap__kernel_layer_norm_grad = {.prepare = prepare_layer_norm_grad, .run = run_gradient,
                                                 .release = release};
const tap__kernel tap__kernel_rms_norm_grad = {.prepare = prepare_rms_norm_grad, .run = run_gradient,
                                               .release = release};
