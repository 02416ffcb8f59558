/* batch_norm.c - normalisation of each channel over samples and places, and its gradients. Where the channels lie side
 * by side they are worked on as columns, else a line of one channel at a time. */
#include "engine/kernels/norm.h"
#include "engine/kernels/reduce.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 16384, WIDTH = 512, PARTS = 16 };

/* operands: x, y (forward) or g, x, dx (gradient) */
typedef struct batch_norm {
    const tap__lanes *lanes;
    tap__lane_type type;
    int operands;
    bool training, columns;
    double eps, momentum;
    tap_dtype dtype[3];
    int64_t channels, count;    /* count: values of one channel */
    int64_t channel_stride[3];
    tap__space places;          /* of one channel */
    int64_t line, lines;        /* of the places */
    int64_t parts, part;        /* places whose sums are kept apart */
    tap__reduction moments;
    size_t moments_at;          /* of its scratch */
} batch_norm;

/* Everything a channel needs: y = x * a + b, dx = g * a + (x - mean) * b + c. */
typedef struct factors {
    double *mean, *a, *b, *c;
} factors;

typedef struct job {
    const batch_norm *self;
    void *at[3];
    factors by;
    double *sums; /* [part][sum, dot][channel] */
} job;

static tap_status begin(tap__call *call, const tap__operand *const *operands, int count, batch_norm **out,
                        tap_error *err)
{
    const tap__operand *x = operands[count == 3];
    tap__lane_type type;
    if (x->ndim < 2 || !tap__norm_type(x->dtype, &type) || tap__operand_count(x) == 0)
        return tap__refuse(call, err);
    for (int k = 0; k < count; k++)
        if (operands[k]->dtype != x->dtype || !tap__operand_same_sizes(operands[k], x))
            return tap__refuse(call, err);
    batch_norm *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->lanes = tap__lanes_now();
    self->type = type;
    self->operands = count;
    self->channels = x->size[1];
    tap__space_begin(&self->places, count);
    for (int i = 0; i < x->ndim; i++) {
        int64_t strides[3] = {0};
        for (int k = 0; k < count; k++)
            strides[k] = operands[k]->stride[i];
        if (i != 1)
            tap__space_add(&self->places, x->size[i], strides);
    }
    tap__space_end(&self->places, true);
    self->count = self->places.count;
    self->line = self->places.size[self->places.ndim - 1];
    self->lines = self->count / self->line;
    bool near = true;
    for (int k = 0; k < count; k++) {
        self->dtype[k] = x->dtype;
        self->channel_stride[k] = operands[k]->stride[1];
        near = near && operands[k]->stride[1] < self->places.stride[k][self->places.ndim - 1];
    }
    self->columns = self->channels > 1 && (near || self->line == 1);
    int64_t parts = self->count * self->channels / (4 * GRAIN);
    parts = parts < 1 ? 1 : parts > PARTS ? PARTS : parts;
    self->part = (self->count + parts - 1) / parts;
    self->parts = (self->count + self->part - 1) / self->part;
    *out = self;
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

static bool is_channels(const tap__operand *operand, int64_t channels)
{
    return operand->dtype == TAP_DTYPE_NONE || (operand->ndim == 1 && operand->size[0] == channels);
}

static double number(const tap__operand *operand, const void *data, int64_t i, double otherwise)
{
    if (operand->dtype == TAP_DTYPE_NONE)
        return otherwise;
    return tap__get_float(operand->dtype, tap__element_at(data, operand->dtype, i * operand->stride[0]));
}

static void put_number(const tap__operand *operand, void *data, int64_t i, double value)
{
    if (operand->dtype != TAP_DTYPE_NONE && operand->ndim == 1 && operand->size[0] > 0)
        tap__put_float(operand->dtype, tap__element_at(data, operand->dtype, i * operand->stride[0]), value);
}

/* --------------------------------------------------------------------------------------------------- lines, columns */

static void *place(const job *work, int k, const tap__cursor *cursor, int64_t channel)
{
    const batch_norm *self = work->self;
    return tap__element_at(work->at[k], self->dtype[k], cursor->at[k] + channel * self->channel_stride[k]);
}

static int64_t at_once(const batch_norm *self, int64_t n, const int64_t *steps)
{
    for (int k = 0; k < self->operands; k++)
        if (!tap__line_is_direct(self->dtype[k], steps[k], n))
            return n < TAP_LINE ? n : TAP_LINE;
    return n;
}

static void steps_of(const batch_norm *self, int64_t *steps)
{
    for (int k = 0; k < self->operands; k++)
        steps[k] = self->columns ? self->channel_stride[k] : self->places.stride[k][self->places.ndim - 1];
}

/* One line of one channel, or one row of all channels: the results from the factors. */
static void apply(const job *work, const tap__cursor *cursor, int64_t channel, int64_t all)
{
    const batch_norm *self = work->self;
    const tap__lane_math *math = &self->lanes->math[self->type];
    double room[3][TAP_LINE];
    int64_t steps[3];
    int last = self->operands - 1;
    steps_of(self, steps);
    for (int64_t i = 0, n; i < all; i += n) {
        n = at_once(self, all - i, steps);
        const void *from[2] = {NULL, NULL};
        for (int k = 0; k < last; k++)
            from[k] = tap__line_load(self->lanes, self->dtype[k],
                                     tap__element_at(place(work, k, cursor, channel), self->dtype[k], i * steps[k]),
                                     steps[k], n, room[k]);
        void *end = tap__element_at(place(work, last, cursor, channel), self->dtype[last], i * steps[last]);
        void *to = tap__line_target(self->dtype[last], end, steps[last], n, room[2]);
        factors by = work->by;
        int64_t c = channel + (self->columns ? i : 0);
        if (self->columns && last == 1)
            math->col_linear(to, from[0], by.a + c, by.b + c, n);
        else if (self->columns)
            math->col_linear_grad(to, from[0], from[1], by.mean + c, by.a + c, by.b + c, by.c + c, n);
        else if (last == 1)
            math->linear(to, from[0], by.a[c], by.b[c], n);
        else
            math->linear_grad(to, from[0], from[1], by.mean[c], by.a[c], by.b[c], by.c[c], n);
        tap__line_store(self->lanes, self->dtype[last], end, steps[last], n, to);
    }
}

/* Tasks: rows of columns; or lines, all channels of a line after each other. */
static void run_apply(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const batch_norm *self = work->self;
    tap__cursor cursor;
    for (; from < to; from++) {
        if (self->columns) {
            tap__cursor_seek(&cursor, &self->places, from);
            apply(work, &cursor, 0, self->channels);
        } else {
            tap__cursor_seek(&cursor, &self->places, from / self->channels * self->line);
            apply(work, &cursor, from % self->channels, self->line);
        }
    }
}

static void apply_all(const tap__call *call, job *work)
{
    const batch_norm *self = work->self;
    int64_t tasks = self->columns ? self->count : self->lines * self->channels;
    int64_t each = self->columns ? self->channels : self->line;
    tap__parallel(call->threads, tasks, each < GRAIN ? GRAIN / each : 1, TAP_ANY_LENGTH, run_apply, work);
}

/* ---------------------------------------------------------------------------------------------------------- forward */

/* The statistics as the results of a reduction over everything but the channels. */
static tap_status plan_moments(batch_norm *self, tap__call *call, tap_error *err)
{
    bool mask[TAP_ENGINE_MAX_NDIM];
    tap__operand results[2];
    for (int k = 0; k < 2; k++)
        results[k] = (tap__operand){.dtype = TAP_F64, .ndim = 1, .size = {self->channels}, .stride = {1}};
    tap__call part = *call;
    part.nout = 2;
    part.out = results;
    for (int i = 0; i < TAP_ENGINE_MAX_NDIM; i++)
        mask[i] = i != 1;
    TAP_TRY(tap__reduction_begin(&self->moments, &part, mask, false, err));
    tap__reduction_use_moments(&self->moments);
    tap__reduction_end(&self->moments, &part);
    self->moments_at = (size_t)(4 * self->channels) * sizeof(double);
    call->scratch = self->moments_at + part.scratch;
    return TAP_OK;
}

/* inputs: x, weight, bias, running mean, running variance; outputs: y, mean, rstd, new running mean and variance */
static tap_status prepare_forward(tap__call *call, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->out[0]};
    batch_norm *self = NULL;
    TAP_TRY(begin(call, operands, 2, &self, err));
    self->training = tap__call_attr(call, "training")->i;
    self->eps = tap__call_attr(call, "eps")->f;
    self->momentum = tap__call_attr(call, "momentum")->f;
    bool fits = self->training || (call->in[3].dtype != TAP_DTYPE_NONE && call->in[4].dtype != TAP_DTYPE_NONE);
    for (int i = 1; i < call->nin; i++)
        fits = fits && is_channels(&call->in[i], self->channels);
    for (int k = 1; k < call->nout; k++)
        fits = fits && (is_channels(&call->out[k], self->channels) || tap__operand_count(&call->out[k]) == 0);
    tap_status status = fits ? plan_moments(self, call, err) : tap__refuse(call, err);
    if (status != TAP_OK) {
        tap__free(self);
        return status;
    }
    call->state = self;
    return TAP_OK;
}

/* mean: the sums of squared deviations are in by.a */
static void use_batch(const tap__call *call, void *const *data, const batch_norm *self, factors by)
{
    void *const *out = data + call->nin;
    double count = (double)self->count, keep = 1 - self->momentum;
    for (int64_t c = 0; c < self->channels; c++) {
        double variance = by.a[c] / count, rstd = 1 / sqrt(variance + self->eps);
        double unbiased = by.a[c] / (count - 1);
        put_number(&call->out[1], out[1], c, by.mean[c]);
        put_number(&call->out[2], out[2], c, rstd);
        if (call->nout > 4 && call->in[3].dtype != TAP_DTYPE_NONE) {
            double mean = number(&call->in[3], data[3], c, 0), running = number(&call->in[4], data[4], c, 0);
            put_number(&call->out[3], out[3], c, self->momentum * by.mean[c] + keep * mean);
            put_number(&call->out[4], out[4], c, self->momentum * unbiased + keep * running);
        }
        by.a[c] = rstd;
    }
}

static void use_running(const tap__call *call, void *const *data, const batch_norm *self, factors by)
{
    void *const *out = data + call->nin;
    for (int64_t c = 0; c < self->channels; c++) {
        double variance = number(&call->in[4], data[4], c, 1);
        by.mean[c] = number(&call->in[3], data[3], c, 0);
        by.a[c] = 1 / sqrt(variance + self->eps);
        put_number(&call->out[1], out[1], c, by.mean[c]);
        put_number(&call->out[2], out[2], c, by.a[c]);
        if (call->nout > 4) {
            put_number(&call->out[3], out[3], c, by.mean[c]);
            put_number(&call->out[4], out[4], c, variance);
        }
    }
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    const batch_norm *self = call->state;
    double *scratch = data[call->nin + call->nout];
    job work = {.self = self, .at = {data[0], data[call->nin]}};
    (void)err;
    work.by = (factors){scratch, scratch + self->channels, scratch + 2 * self->channels, scratch + 3 * self->channels};
    if (self->training) {
        void *const results[] = {work.by.mean, work.by.a};
        tap__reduction_run(&self->moments, call, data[0], results, (char *)scratch + self->moments_at);
        use_batch(call, data, self, work.by);
    } else {
        use_running(call, data, self, work.by);
    }
    for (int64_t c = 0; c < self->channels; c++) {
        work.by.a[c] *= number(&call->in[1], data[1], c, 1);
        work.by.b[c] = number(&call->in[2], data[2], c, 0) - work.by.mean[c] * work.by.a[c];
    }
    apply_all(call, &work);
    return TAP_OK;
}
const tap__kernel tap__kernel_batch_norm = {.prepare = prepare_forward, .run = run_forward, .release = release};

/* --------------------------------------------------------------------------------------------------------- gradient */

/* Sums of g and g * (x - mean) over the places [begin, end) of one channel, or of all channels in columns. */
static void add_sums(const job *work, int64_t channel, int64_t begin, int64_t end, double *sum, double *dot)
{
    const batch_norm *self = work->self;
    const tap__lane_math *math = &self->lanes->math[self->type];
    double room[2][TAP_LINE];
    int64_t steps[3];
    tap__cursor cursor;
    steps_of(self, steps);
    tap__cursor_seek(&cursor, &self->places, begin);
    while (begin < end) {
        int64_t all = tap__cursor_rest(&cursor);
        all = self->columns ? self->channels : all < end - begin ? all : end - begin;
        for (int64_t i = 0, n; i < all; i += n) {
            n = at_once(self, all - i, steps);
            const void *from[2];
            for (int k = 0; k < 2; k++) {
                const void *at = tap__element_at(place(work, k, &cursor, channel), self->dtype[k], i * steps[k]);
                from[k] = tap__line_load(self->lanes, self->dtype[k], at, steps[k], n, room[k]);
            }
            if (self->columns)
                math->col_sums(sum + i, dot + i, from[0], from[1], work->by.mean + i, n);
            else
                math->norm_sums(from[0], from[1], NULL, work->by.mean[channel], n, sum, dot);
        }
        int64_t step = self->columns ? 1 : all;
        tap__cursor_step(&cursor, step);
        begin += step;
    }
}

static void run_sums(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const batch_norm *self = work->self;
    for (; from < to; from++) {
        int64_t part = self->columns ? from : from / self->channels;
        int64_t channel = self->columns ? 0 : from % self->channels;
        int64_t begin = part * self->part, end = begin + self->part;
        double *sum = work->sums + part * 2 * self->channels + channel, *dot = sum + self->channels;
        size_t bytes = (self->columns ? (size_t)self->channels : 1) * sizeof *sum;
        memset(sum, 0, bytes);
        memset(dot, 0, bytes);
        add_sums(work, channel, begin, end < self->count ? end : self->count, sum, dot);
    }
}

/* inputs: grad, x, weight, running mean, running variance, mean, rstd */
static tap_status prepare_gradient(tap__call *call, tap_error *err)
{
    const tap__operand *dx = call->out[0].dtype != TAP_DTYPE_NONE ? &call->out[0] : &call->in[1];
    const tap__operand *operands[] = {&call->in[0], &call->in[1], dx};
    batch_norm *self = NULL;
    TAP_TRY(begin(call, operands, 3, &self, err));
    self->training = tap__call_attr(call, "train")->i;
    self->eps = tap__call_attr(call, "eps")->f;
    int needed = self->training ? 5 : 3;
    bool fits = call->in[needed].dtype != TAP_DTYPE_NONE && call->in[needed + 1].dtype != TAP_DTYPE_NONE &&
                is_channels(&call->in[2], self->channels) && is_channels(&call->in[needed], self->channels) &&
                is_channels(&call->in[needed + 1], self->channels);
    for (int k = 1; k < call->nout; k++)
        fits = fits && is_channels(&call->out[k], self->channels);
    if (!fits) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    call->scratch = (size_t)((4 + 2 * self->parts) * self->channels) * sizeof(double);
    call->state = self;
    return TAP_OK;
}

static tap_status run_gradient(const tap__call *call, void *const *data, tap_error *err)
{
    const batch_norm *self = call->state;
    int64_t channels = self->channels;
    double *scratch = data[call->nin + call->nout], count = (double)self->count;
    void *const *out = data + call->nin;
    int given = self->training ? 5 : 3;
    job work = {.self = self, .at = {data[0], data[1], out[0]}, .sums = scratch + 4 * channels};
    (void)err;
    work.by = (factors){scratch, scratch + channels, scratch + 2 * channels, scratch + 3 * channels};
    for (int64_t c = 0; c < channels; c++) {
        double second = number(&call->in[given + 1], data[given + 1], c, 1);
        work.by.mean[c] = number(&call->in[given], data[given], c, 0);
        work.by.a[c] = self->training ? second : 1 / sqrt(second + self->eps);
    }
    bool sums = self->training || call->out[1].dtype != TAP_DTYPE_NONE || call->out[2].dtype != TAP_DTYPE_NONE;
    if (sums)
        tap__parallel(call->threads, self->columns ? self->parts : self->parts * channels,
                      self->columns || self->part >= GRAIN ? 1 : GRAIN / self->part, TAP_ANY_LENGTH, run_sums, &work);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, dot = 0, rstd = work.by.a[c];
        for (int64_t part = 0; sums && part < self->parts; part++) {
            sum += work.sums[part * 2 * channels + c];
            dot += work.sums[part * 2 * channels + channels + c];
        }
        put_number(&call->out[1], out[1], c, dot * rstd);
        put_number(&call->out[2], out[2], c, sum);
        double a = rstd * number(&call->in[2], data[2], c, 1);
        work.by.a[c] = a;
        work.by.b[c] = self->training ? -a * rstd * rstd * dot / count : 0;
        work.by.c[c] = self->training ? -a * sum / count : 0;
    }
    if (call->out[0].dtype != TAP_DTYPE_NONE)
        apply_all(call, &work);
    return TAP_OK;
}
const tap__kernel tap__kernel_batch_norm_grad = {.prepare = prepare_gradient, .run = run_gradient, .release = release};
