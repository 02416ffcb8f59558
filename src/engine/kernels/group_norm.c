/* group_norm.c - normalisation of groups of channels, and its gradients. A task is one group of one sample. */
#include "engine/kernels/norm.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 8192, GRAIN = 16384 };

/* operands: x, y (forward) or g, x, dx (gradient) */
typedef struct group_norm {
    const tap__lanes *lanes;
    tap__lane_type type;
    int operands;
    tap_dtype dtype[3];
    int64_t samples, channels, groups, each; /* each: channels of a group */
    int64_t sample_stride[3], channel_stride[3];
    tap__space place;           /* of one channel */
    tap__space group;           /* of one group, x alone, in any order */
    double eps;
} group_norm;

typedef struct job {
    const group_norm *self;
    const tap__call *call;
    void *const *data;
    double *sums; /* gradient: [sample][channel] of g * x, then of g */
} job;

static tap_status begin(tap__call *call, const tap__operand *const *operands, int count, group_norm **out,
                        tap_error *err)
{
    const tap__operand *x = operands[count == 3];
    int64_t groups = tap__call_attr(call, "group")->i;
    tap__lane_type type;
    if (x->ndim < 2 || groups < 1 || x->size[1] % groups != 0 || !tap__norm_type(x->dtype, &type))
        return tap__refuse(call, err);
    for (int k = 0; k < count; k++)
        if (operands[k]->dtype != x->dtype || !tap__operand_same_sizes(operands[k], x))
            return tap__refuse(call, err);
    group_norm *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->lanes = tap__lanes_now();
    self->type = type;
    self->operands = count;
    self->samples = x->size[0];
    self->channels = x->size[1];
    self->groups = groups;
    self->each = x->size[1] / groups;
    tap__space_begin(&self->place, count);
    tap__space_begin(&self->group, 1);
    tap__space_add(&self->group, self->each, &x->stride[1]);
    for (int i = 2; i < x->ndim; i++) {
        int64_t strides[3] = {0};
        for (int k = 0; k < count; k++)
            strides[k] = operands[k]->stride[i];
        tap__space_add(&self->place, x->size[i], strides);
        tap__space_add(&self->group, x->size[i], &x->stride[i]);
    }
    tap__space_end(&self->place, true);
    tap__space_end(&self->group, true);
    for (int k = 0; k < count; k++) {
        self->dtype[k] = x->dtype;
        self->sample_stride[k] = operands[k]->stride[0];
        self->channel_stride[k] = operands[k]->stride[1];
    }
    *out = self;
    /* channels side by side: the framework has loops of its own for that */
    if (self->place.count > 1 && self->place.stride[0][self->place.ndim - 1] != 1) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

static void *channel_at(const group_norm *self, int k, const void *base, int64_t sample, int64_t channel)
{
    return tap__element_at(base, self->dtype[k], sample * self->sample_stride[k] + channel * self->channel_stride[k]);
}

/* How many numbers of the channel from the cursor on can be worked on at once. */
static int64_t at_once(const group_norm *self, const tap__cursor *cursor)
{
    int64_t n = tap__cursor_rest(cursor);
    for (int k = 0; k < self->operands; k++)
        if (!tap__line_is_direct(self->dtype[k], self->place.stride[k][self->place.ndim - 1], n))
            return n < TAP_LINE ? n : TAP_LINE;
    return n;
}

static const void *load(const group_norm *self, int k, const void *channel, const tap__cursor *cursor, int64_t n,
                        void *buffer)
{
    return tap__line_load(self->lanes, self->dtype[k], tap__element_at(channel, self->dtype[k], cursor->at[k]),
                          self->place.stride[k][self->place.ndim - 1], n, buffer);
}

/* Element i of a parameter of one dimension; `otherwise` where it is left out. */
static double number(const tap__operand *operand, const void *data, int64_t i, double otherwise)
{
    if (operand->dtype == TAP_DTYPE_NONE)
        return otherwise;
    return tap__get_float(operand->dtype, tap__element_at(data, operand->dtype, i * operand->stride[0]));
}

static double number2(const tap__operand *operand, const void *data, int64_t i, int64_t j)
{
    return tap__get_float(operand->dtype, tap__element_at(data, operand->dtype, i * operand->stride[0] +
                                                                                    j * operand->stride[1]));
}

/* ---------------------------------------------------------------------------------------------------------- forward */

static tap__moments group_moments(const group_norm *self, const void *x)
{
    double buffer[TAP_LINE];
    tap__moments moments = {0};
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->group, 0);
    int64_t step = self->group.stride[0][self->group.ndim - 1];
    for (int64_t i = 0, n; i < self->group.count; i += n) {
        n = tap__cursor_rest(&cursor);
        int64_t most = tap__line_is_direct(self->dtype[0], step, n) ? CHUNK : TAP_LINE;
        n = n < most ? n : most;
        tap__moments_add(&moments, self->lanes, self->type,
                         tap__line_load(self->lanes, self->dtype[0], tap__element_at(x, self->dtype[0], cursor.at[0]),
                                        step, n, buffer), n);
        tap__cursor_step(&cursor, n);
    }
    return moments;
}

static void forward_channel(const group_norm *self, const void *x, void *y, double a, double b)
{
    double from[TAP_LINE], room[TAP_LINE];
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->place, 0);
    int64_t step = self->place.stride[1][self->place.ndim - 1];
    for (int64_t i = 0, n; i < self->place.count; i += n) {
        n = at_once(self, &cursor);
        void *place = tap__element_at(y, self->dtype[1], cursor.at[1]);
        void *to = tap__line_target(self->dtype[1], place, step, n, room);
        self->lanes->math[self->type].linear(to, load(self, 0, x, &cursor, n, from), a, b, n);
        tap__line_store(self->lanes, self->dtype[1], place, step, n, to);
        tap__cursor_step(&cursor, n);
    }
}

static void run_forward_groups(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const group_norm *self = work->self;
    const tap__call *call = work->call;
    void *const *data = work->data, *const *out = data + call->nin;
    for (; from < to; from++) {
        int64_t sample = from / self->groups, group = from % self->groups, first = group * self->each;
        tap__moments moments = group_moments(self, channel_at(self, 0, data[0], sample, first));
        double rstd = 1 / sqrt(moments.squares / (double)self->group.count + self->eps);
        for (int64_t c = first; c < first + self->each; c++) {
            double a = rstd * number(&call->in[1], data[1], c, 1);
            forward_channel(self, channel_at(self, 0, data[0], sample, c), channel_at(self, 1, out[0], sample, c), a,
                            number(&call->in[2], data[2], c, 0) - moments.mean * a);
        }
        const tap__operand *mean = &call->out[1], *deviation = &call->out[2];
        tap__put_float(mean->dtype,
                       tap__element_at(out[1], mean->dtype, sample * mean->stride[0] + group * mean->stride[1]),
                       moments.mean);
        tap__put_float(deviation->dtype, tap__element_at(out[2], deviation->dtype, sample * deviation->stride[0] +
                                                                                        group * deviation->stride[1]),
                       rstd);
    }
}

static bool is_channels(const tap__operand *operand, int64_t channels)
{
    return operand->dtype == TAP_DTYPE_NONE || (operand->ndim == 1 && operand->size[0] == channels);
}

static tap_status prepare_forward(tap__call *call, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->out[0]};
    group_norm *self = NULL;
    TAP_TRY(begin(call, operands, 2, &self, err));
    bool fits = is_channels(&call->in[1], self->channels) && is_channels(&call->in[2], self->channels) &&
                self->group.count > 0;
    for (int k = 1; k < 3; k++)
        fits = fits && call->out[k].ndim == 2 && call->out[k].size[0] == call->in[0].size[0] &&
               call->out[k].size[1] == self->groups;
    if (!fits) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    self->eps = tap__call_attr(call, "eps")->f;
    call->state = self;
    return TAP_OK;
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    const group_norm *self = call->state;
    job work = {.self = self, .call = call, .data = data};
    (void)err;
    tap__parallel(call->threads, self->samples * self->groups, GRAIN / self->group.count,
                  TAP_ANY_LENGTH, run_forward_groups, &work);
    return TAP_OK;
}
const tap__kernel tap__kernel_group_norm = {.prepare = prepare_forward, .run = run_forward, .release = release};

/* --------------------------------------------------------------------------------------------------------- gradient */

/* Sums over one channel of g * (x - mean) and of g. */
static void channel_sums(const group_norm *self, const void *g, const void *x, double mean, double *dot, double *sum)
{
    double a[TAP_LINE], b[TAP_LINE];
    tap__cursor cursor;
    *dot = *sum = 0;
    tap__cursor_seek(&cursor, &self->place, 0);
    for (int64_t i = 0, n; i < self->place.count; i += n) {
        n = at_once(self, &cursor);
        self->lanes->math[self->type].norm_sums(load(self, 0, g, &cursor, n, a), load(self, 1, x, &cursor, n, b), NULL,
                                                mean, n, sum, dot);
        tap__cursor_step(&cursor, n);
    }
}

static void gradient_channel(const group_norm *self, const void *g, const void *x, void *dx, double mean, double a,
                             double b, double c)
{
    double from_g[TAP_LINE], from_x[TAP_LINE], room[TAP_LINE];
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->place, 0);
    int64_t step = self->place.stride[2][self->place.ndim - 1];
    for (int64_t i = 0, n; i < self->place.count; i += n) {
        n = at_once(self, &cursor);
        void *place = tap__element_at(dx, self->dtype[2], cursor.at[2]);
        void *to = tap__line_target(self->dtype[2], place, step, n, room);
        self->lanes->math[self->type].linear_grad(to, load(self, 0, g, &cursor, n, from_g),
                                                  load(self, 1, x, &cursor, n, from_x), mean, a, b, c, n);
        tap__line_store(self->lanes, self->dtype[2], place, step, n, to);
        tap__cursor_step(&cursor, n);
    }
}

static bool wanted(const tap__call *call, int k)
{
    return call->out[k].dtype != TAP_DTYPE_NONE;
}

static void run_gradient_groups(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const group_norm *self = work->self;
    const tap__call *call = work->call;
    void *const *data = work->data;
    double count = (double)self->group.count;
    for (; from < to; from++) {
        int64_t sample = from / self->groups, group = from % self->groups, first = group * self->each;
        double mean = number2(&call->in[2], data[2], sample, group);
        double rstd = number2(&call->in[3], data[3], sample, group);
        double *dots = work->sums + sample * self->channels, *sums = dots + self->samples * self->channels;
        double dot = 0, sum = 0;
        for (int64_t c = first; c < first + self->each; c++) {
            double weight = number(&call->in[4], data[4], c, 1);
            channel_sums(self, channel_at(self, 0, data[0], sample, c), channel_at(self, 1, data[1], sample, c), mean,
                         &dots[c], &sums[c]);
            dot += dots[c] * weight;
            sum += sums[c] * weight;
        }
        if (!wanted(call, 0))
            continue;
        double b = -dot * rstd * rstd * rstd / count, c0 = -sum * rstd / count;
        for (int64_t c = first; c < first + self->each; c++)
            gradient_channel(self, channel_at(self, 0, data[0], sample, c), channel_at(self, 1, data[1], sample, c),
                             channel_at(self, 2, data[call->nin], sample, c), mean,
                             rstd * number(&call->in[4], data[4], c, 1), b, c0);
    }
}

static void put_parameters(const group_norm *self, const tap__call *call, void *const *data, const double *dots)
{
    const double *sums = dots + self->samples * self->channels;
    for (int64_t c = 0; c < self->channels; c++) {
        double weight = 0, bias = 0;
        for (int64_t sample = 0; sample < self->samples; sample++) {
            weight += dots[sample * self->channels + c] * number2(&call->in[3], data[3], sample, c / self->each);
            bias += sums[sample * self->channels + c];
        }
        for (int k = 1; k < 3; k++)
            if (wanted(call, k))
                tap__put_float(call->out[k].dtype, tap__element_at(data[call->nin + k], call->out[k].dtype,
                                                                   c * call->out[k].stride[0]), k == 1 ? weight : bias);
    }
}

static tap_status prepare_gradient(tap__call *call, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->in[1], wanted(call, 0) ? &call->out[0] : &call->in[1]};
    group_norm *self = NULL;
    TAP_TRY(begin(call, operands, 3, &self, err));
    bool fits = is_channels(&call->in[4], self->channels) && is_channels(&call->out[1], self->channels) &&
                is_channels(&call->out[2], self->channels) && self->group.count > 0;
    for (int k = 2; k < 4; k++)
        fits = fits && call->in[k].ndim == 2 && call->in[k].size[0] == call->in[1].size[0] &&
               call->in[k].size[1] == self->groups;
    if (!fits) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    call->scratch = (size_t)(2 * self->samples * self->channels) * sizeof(double);
    call->state = self;
    return TAP_OK;
}

static tap_status run_gradient(const tap__call *call, void *const *data, tap_error *err)
{
    const group_norm *self = call->state;
    job work = {.self = self, .call = call, .data = data, .sums = data[call->nin + call->nout]};
    (void)err;
    tap__parallel(call->threads, self->samples * self->groups, GRAIN / self->group.count,
                  TAP_ANY_LENGTH, run_gradient_groups, &work);
    if (wanted(call, 1) || wanted(call, 2))
        put_parameters(self, call, data, work.sums);
    return TAP_OK;
}
const tap__kernel tap__kernel_group_norm_grad = {.prepare = prepare_gradient, .run = run_gradient, .release = release};
