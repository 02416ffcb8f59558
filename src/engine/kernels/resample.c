/* resample.c - images made larger or smaller: nearest, linear and cubic, over one to three dimensions, and their
 * gradients. An output element is a weighted sum of a few input elements in each dimension; places and weights are
 * tables made by prepare, one per dimension. Nearest needs no arithmetic and is a program of moves. */
#include "engine/kernels/move.h"
#include "engine/kernels/number.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { DIMS = 3, MAX_TAPS = 4, MAX_ROWS = MAX_TAPS * MAX_TAPS, CHUNK = 64, LINE = 2048 };

/* One dimension: output o is the sum of weight[o * taps + t] times input place[o * taps + t]. */
typedef struct axis {
    int64_t in, out;
    int taps;
    int64_t *place;
    double *weight;
    float *single; /* the weights as float32 */
} axis;

typedef struct resampling {
    tap__moves moves; /* zeros for a gradient, or all of nearest; owns the tables. First: tap__moves_release frees it */
    axis dims[DIMS];
    int64_t batch, channels;
    int64_t x_batch, x_channel, x[DIMS]; /* the smaller the tables point into */
    int64_t y_batch, y_channel, y[DIMS];
    bool across, buffered;
    int64_t chunk;
} resampling;

typedef enum method { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } method;

static const unsigned char ZERO[16];

/* ------------------------------------------------------------------------------------------------------- tables */

/* Scale as ATen has it, in the type it computes in. */
static double scale_of(const axis *dim, bool align_corners, double given, bool single)
{
    double in = (double)dim->in, out = (double)dim->out;
    if (align_corners) {
        if (dim->out <= 1)
            return 0;
        return single ? (double)((float)(dim->in - 1) / (float)(dim->out - 1)) : (in - 1) / (out - 1);
    }
    if (given > 0)
        return single ? (double)(float)(1.0 / given) : 1.0 / given;
    return single ? (double)((float)dim->in / (float)dim->out) : in / out;
}

static double source_of(int64_t o, double scale, bool align_corners, bool single)
{
    if (single) {
        float place = (float)o;
        return align_corners ? (double)((float)scale * place) : (double)((float)scale * (place + 0.5f) - 0.5f);
    }
    return align_corners ? scale * (double)o : scale * ((double)o + 0.5) - 0.5;
}

static int64_t within(int64_t place, const axis *dim)
{
    return place < 0 ? 0 : place >= dim->in ? dim->in - 1 : place;
}

/* Weights of four neighbours at distance t from the second. */
static void cubic_weights(double t, bool single, double *weight)
{
    const double a = -0.75;
    for (int i = 0; i < 4; i++) {
        double x = fabs(t + 1 - i);
        weight[i] = x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
        if (single)
            weight[i] = (double)(float)weight[i];
    }
}

static void fill_tap(const axis *dim, int64_t o, method how, double scale, bool align_corners, bool single)
{
    int64_t *place = dim->place + o * dim->taps;
    double *weight = dim->weight + o * dim->taps;
    if (how == NEAREST || how == NEAREST_EXACT) {
        double half = how == NEAREST_EXACT ? 0.5 : 0;
        place[0] = within((int64_t)(single ? floorf(((float)o + (float)half) * (float)scale)
                                           : floor(((double)o + half) * scale)), dim);
        weight[0] = 1;
        return;
    }
    double source = source_of(o, scale, align_corners, single);
    if (how == CUBIC) {
        double below = floor(source);
        for (int t = 0; t < 4; t++)
            place[t] = within((int64_t)below - 1 + t, dim);
        cubic_weights(source - below, single, weight);
        return;
    }
    source = source < 0 ? 0 : source;
    place[0] = within((int64_t)source, dim);
    place[1] = within(place[0] + 1, dim);
    double over = source - (double)place[0];
    over = over < 0 ? 0 : over > 1 ? 1 : over;
    weight[1] = single ? (double)(float)over : over;
    weight[0] = single ? (double)(1.0f - (float)over) : 1 - over;
}

static tap_status make_axis(tap__call *call, axis *dim, method how, double given, bool align_corners, bool single,
                            tap_error *err)
{
    bool nearest = how == NEAREST || how == NEAREST_EXACT;
    dim->taps = nearest ? 1 : how == LINEAR ? 2 : 4;
    dim->place = tap__moves_table(call, dim->out * dim->taps);
    dim->weight = (double *)tap__moves_table(call, dim->out * dim->taps);
    dim->single = (float *)tap__moves_table(call, dim->out * dim->taps);
    if (!dim->place || !dim->weight || !dim->single)
        return tap_fail_nomem(err);
    double scale = scale_of(dim, align_corners && !nearest, given, single);
    for (int64_t o = 0; o < dim->out; o++)
        fill_tap(dim, o, how, scale, align_corners, single);
    for (int64_t i = 0; i < dim->out * dim->taps; i++)
        dim->single[i] = (float)dim->weight[i];
    return TAP_OK;
}

static tap_status make_single(tap__call *call, axis *dim, tap_error *err)
{
    *dim = (axis){.in = 1, .out = 1, .taps = 1};
    dim->place = tap__moves_table(call, 1);
    dim->weight = (double *)tap__moves_table(call, 1);
    dim->single = (float *)tap__moves_table(call, 1);
    if (!dim->place || !dim->weight || !dim->single)
        return tap_fail_nomem(err);
    dim->place[0] = 0;
    dim->weight[0] = dim->single[0] = 1;
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------ operands */

static void strides_of(const tap__operand *operand, int spatial, int64_t *batch, int64_t *channel, int64_t *steps)
{
    *batch = operand->stride[0];
    *channel = operand->stride[1];
    for (int i = 0; i < DIMS; i++)
        steps[i] = i < DIMS - spatial ? 0 : operand->stride[2 + i - (DIMS - spatial)];
}

static double given_scale(const tap__call *call, int i)
{
    static const char *const NAMES[DIMS] = {"scales_d", "scales_h", "scales_w"};
    const tap__attr *scale = tap__call_attr(call, NAMES[i]);
    return scale->present ? scale->f : 0;
}

static tap_status make_axes(tap__call *call, const tap__operand *x, const tap__operand *y, method how, tap_error *err)
{
    resampling *self = call->state;
    int spatial = x->ndim - 2;
    bool align_corners = tap__call_attr(call, "align_corners")->i != 0;
    for (int i = 0; i < DIMS; i++) {
        int dim = i - (DIMS - spatial);
        if (dim < 0) {
            TAP_TRY(make_single(call, &self->dims[i], err));
            continue;
        }
        self->dims[i] = (axis){.in = x->size[2 + dim], .out = y->size[2 + dim]};
        TAP_TRY(make_axis(call, &self->dims[i], how, given_scale(call, i), align_corners, x->dtype != TAP_F64, err));
    }
    return TAP_OK;
}

static tap_status begin(tap__call *call, const tap__operand *x, const tap__operand *y, tap_error *err)
{
    int spatial = x->ndim - 2;
    if (x->dtype != y->dtype || spatial < 1 || spatial > DIMS || y->ndim != x->ndim)
        return tap__refuse(call, err);
    if (x->size[0] != y->size[0] || x->size[1] != y->size[1])
        return tap__expect_sizes(call, y, -1, NULL, err);
    for (int i = 0; i < spatial; i++)
        if (x->size[2 + i] < 1)
            return tap__refuse(call, err);
    return tap__moves_begin(call, sizeof(resampling), err);
}

/* ------------------------------------------------------------------------------------------------------- nearest */

static tap_status prepare_nearest_by(tap__call *call, method how, tap_error *err)
{
    const tap__operand *x = &call->in[0], *y = &call->out[0];
    TAP_TRY(begin(call, x, y, err));
    TAP_TRY(make_axes(call, x, y, how, err));
    const resampling *self = call->state;
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    for (int i = 0; i < 2; i++)
        tap__move_loop(move, x->size[i], y->stride[i], x->stride[i]);
    int64_t item = (int64_t)move->item;
    for (int i = 2; i < x->ndim; i++) {
        const axis *dim = &self->dims[DIMS - x->ndim + i];
        for (int64_t o = 0; o < dim->out; o++)
            dim->place[o] *= x->stride[i] * item;
        tap__move_loop_at(move, dim->out, (tap__move_step){y->stride[i] * item, NULL, -1},
                          (tap__move_step){x->stride[i] * item, dim->place, -1});
    }
    tap__moves_ready(call);
    return TAP_OK;
}

static tap_status prepare_upsample_nearest(tap__call *call, tap_error *err)
{
    return prepare_nearest_by(call, tap__call_attr(call, "exact")->i ? NEAREST_EXACT : NEAREST, err);
}
TAP__MOVES_KERNEL(upsample_nearest);

/* -------------------------------------------------------------------------------------------------- weighted sums */

typedef struct resample_run {
    const resampling *self;
    const void *from;
    void *to;
} resample_run;

/* Unit of the forward pass: one row of outputs of some channels; of the gradient: all outputs of them. */
typedef struct spot {
    int64_t batch, channel, channels, at[2];
} spot;

static spot spot_of(const resampling *self, int64_t unit, bool rows)
{
    spot out = {0};
    if (rows) {
        out.at[1] = unit % self->dims[1].out;
        unit /= self->dims[1].out;
        out.at[0] = unit % self->dims[0].out;
        unit /= self->dims[0].out;
    }
    int64_t chunks = (self->channels + self->chunk - 1) / self->chunk;
    out.channel = unit % chunks * self->chunk;
    out.batch = unit / chunks;
    int64_t left = self->channels - out.channel;
    out.channels = left < self->chunk ? left : self->chunk;
    return out;
}

/* The rows of x that output row (a, b) is made of: offsets and weights. */
static int rows_of(const resampling *self, int64_t a, int64_t b, int64_t *offset, double *weight)
{
    const axis *first = &self->dims[0], *second = &self->dims[1];
    int count = 0;
    for (int s = 0; s < first->taps; s++)
        for (int t = 0; t < second->taps; t++) {
            int64_t i = a * first->taps + s, j = b * second->taps + t;
            offset[count] = first->place[i] * self->x[0] + second->place[j] * self->x[1];
            weight[count++] = first->weight[i] * second->weight[j];
        }
    return count;
}

#define WEIGHTS_F16(dim) (dim)->single
#define WEIGHTS_BF16(dim) (dim)->single
#define WEIGHTS_F32(dim) (dim)->single
#define WEIGHTS_F64(dim) (dim)->weight

#define RESAMPLE(name, stored, type, load, store)                                                                    \
    /* two rows into one, then that one along itself: the rows are then read once, in order */                       \
    static void mix_##name(type *restrict line, const stored *low, const stored *high, type low_weight,              \
                           type high_weight, int64_t count)                                                          \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            line[i] = low_weight * load(low[i]) + high_weight * load(high[i]);                                       \
    }                                                                                                                \
    static void spread_##name(stored *restrict to, int64_t step, const type *restrict line,                          \
                              const int64_t *restrict place, const type *restrict part, int64_t count)               \
    {                                                                                                                \
        for (int64_t o = 0; o < count; o++)                                                                          \
            to[o * step] = store(part[2 * o] * line[place[2 * o]] + part[2 * o + 1] * line[place[2 * o + 1]]);       \
    }                                                                                                                \
    static void forward_##name(void *user, int64_t begin_unit, int64_t end_unit)                                     \
    {                                                                                                                \
        const resample_run *run = user;                                                                              \
        const resampling *self = run->self;                                                                          \
        const axis *last = &self->dims[2];                                                                           \
        for (int64_t unit = begin_unit; unit < end_unit; unit++) {                                                   \
            spot at = spot_of(self, unit, true);                                                                     \
            int64_t offset[MAX_ROWS];                                                                                \
            double weight[MAX_ROWS];                                                                                 \
            int rows = rows_of(self, at.at[0], at.at[1], offset, weight);                                            \
            const stored *x = (const stored *)run->from + at.batch * self->x_batch + at.channel * self->x_channel;   \
            stored *y = (stored *)run->to + at.batch * self->y_batch + at.channel * self->y_channel +                \
                        at.at[0] * self->y[0] + at.at[1] * self->y[1];                                               \
            const type *parts = WEIGHTS_##name(last);                                                                \
            if (!self->across && rows == 2 && last->taps == 2 && self->x[2] == 1 && last->in <= LINE) {              \
                type line[LINE];                                                                                     \
                mix_##name(line, x + offset[0], x + offset[1], (type)weight[0], (type)weight[1], last->in);          \
                spread_##name(y, self->y[2], line, last->place, parts, last->out);                                   \
                continue;                                                                                            \
            }                                                                                                        \
            for (int64_t o = 0; o < last->out; o++) {                                                                \
                const int64_t *place = last->place + o * last->taps;                                                 \
                const type *part = parts + o * last->taps;                                                           \
                if (!self->across) {                                                                                 \
                    type sum = 0;                                                                                    \
                    for (int r = 0; r < rows; r++) {                                                                 \
                        const stored *row = x + offset[r];                                                           \
                        type inner = 0;                                                                              \
                        for (int t = 0; t < last->taps; t++)                                                         \
                            inner += part[t] * load(row[place[t] * self->x[2]]);                                     \
                        sum += (type)weight[r] * inner;                                                              \
                    }                                                                                                \
                    y[o * self->y[2]] = store(sum);                                                                  \
                    continue;                                                                                        \
                }                                                                                                    \
                type sums[CHUNK] = {0};                                                                              \
                for (int r = 0; r < rows; r++)                                                                       \
                    for (int t = 0; t < last->taps; t++) {                                                           \
                        const stored *row = x + offset[r] + place[t] * self->x[2];                                   \
                        type factor = (type)weight[r] * part[t];                                                     \
                        for (int64_t k = 0; k < at.channels; k++)                                                    \
                            sums[k] += factor * load(row[k]);                                                        \
                    }                                                                                                \
                for (int64_t k = 0; k < at.channels; k++)                                                            \
                    y[o * self->y[2] + k] = store(sums[k]);                                                          \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    static void backward_##name(void *user, int64_t begin_unit, int64_t end_unit)                                    \
    {                                                                                                                \
        const resample_run *run = user;                                                                              \
        const resampling *self = run->self;                                                                          \
        const axis *last = &self->dims[2];                                                                           \
        for (int64_t unit = begin_unit; unit < end_unit; unit++) {                                                   \
            spot at = spot_of(self, unit, false);                                                                    \
            type *x = (type *)run->to + at.batch * self->x_batch + at.channel * self->x_channel;                     \
            const stored *y = (const stored *)run->from + at.batch * self->y_batch + at.channel * self->y_channel;   \
            for (int64_t a = 0; a < self->dims[0].out; a++)                                                          \
                for (int64_t b = 0; b < self->dims[1].out; b++) {                                                    \
                    int64_t offset[MAX_ROWS];                                                                        \
                    double weight[MAX_ROWS];                                                                         \
                    int rows = rows_of(self, a, b, offset, weight);                                                  \
                    for (int64_t o = 0; o < last->out; o++) {                                                        \
                        const stored *g = y + a * self->y[0] + b * self->y[1] + o * self->y[2];                      \
                        for (int r = 0; r < rows; r++)                                                               \
                            for (int t = 0; t < last->taps; t++) {                                                   \
                                type factor = (type)weight[r] * (type)last->weight[o * last->taps + t];              \
                                type *to = x + offset[r] + last->place[o * last->taps + t] * self->x[2];             \
                                for (int64_t k = 0; k < at.channels; k++)                                            \
                                    to[k * self->x_channel] += factor * load(g[k * self->y_channel]);                \
                            }                                                                                        \
                    }                                                                                                \
                }                                                                                                    \
        }                                                                                                            \
    }
TAP__NUMBERS_FLOAT(RESAMPLE)

typedef void (*part_fn)(void *user, int64_t begin, int64_t end);

static part_fn find_part(tap_dtype dtype, bool backward)
{
    switch (dtype) {
#define CASE(name, ...) case TAP_##name: return backward ? backward_##name : forward_##name;
        TAP__NUMBERS_FLOAT(CASE)
    default: return NULL;
    }
}

static tap_status prepare_sums(tap__call *call, method how, bool backward, tap_error *err)
{
    const tap__operand *x = backward ? &call->out[0] : &call->in[0], *y = backward ? &call->in[0] : &call->out[0];
    /* ATen rounds each step of these sums to the half-width float */
    bool half = x->dtype == TAP_F16 || x->dtype == TAP_BF16;
    if (!find_part(x->dtype, backward) || (half && !backward))
        return tap__refuse(call, err);
    TAP_TRY(begin(call, x, y, err));
    TAP_TRY(make_axes(call, x, y, how, err));
    resampling *self = call->state;
    int spatial = x->ndim - 2;
    tap__operand buffer = *x;
    self->buffered = backward && half;
    if (self->buffered) {
        int64_t step = 1;
        for (int i = x->ndim - 1; i >= 0; i--) {
            buffer.stride[i] = step;
            step *= x->size[i];
        }
        call->scratch = (size_t)step * sizeof(float);
    }
    self->batch = x->size[0];
    self->channels = x->size[1];
    strides_of(&buffer, spatial, &self->x_batch, &self->x_channel, self->x);
    strides_of(y, spatial, &self->y_batch, &self->y_channel, self->y);
    self->across = self->x_channel == 1 && self->y_channel == 1 && self->channels > 1;
    self->chunk = self->across ? CHUNK : 1;
    if (backward && !self->buffered)
        TAP_TRY(tap__moves_fill(call, call->nin, x, ZERO, err));
    tap__moves_ready(call);
    return TAP_OK;
}

static int64_t planes_of(const resampling *self)
{
    return self->batch * ((self->channels + self->chunk - 1) / self->chunk);
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    const resampling *self = call->state;
    resample_run run = {self, data[0], data[1]};
    int64_t each = self->dims[2].out * self->chunk * 4;
    tap__parallel(call->threads, planes_of(self) * self->dims[0].out * self->dims[1].out,
                  1 + 32768 / (each ? each : 1), TAP_ANY_LENGTH,
                  find_part(call->in[0].dtype, false), &run);
    return TAP_OK;
}

static tap_status run_backward(const tap__call *call, void *const *data, tap_error *err)
{
    const resampling *self = call->state;
    resample_run run = {self, data[0], self->buffered ? data[2] : data[1]};
    if (self->buffered)
        memset(data[2], 0, call->scratch);
    else
        TAP_TRY(tap__moves_run(call, data, err));
    tap__parallel(call->threads, planes_of(self), 1, TAP_ANY_LENGTH, find_part(call->in[0].dtype, true), &run);
    if (self->buffered)
        tap__store_halves(&call->out[0], data[2], data[1]);
    return TAP_OK;
}

#define SUMS(name, how, backward)                                                                                    \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        tap_status status = prepare_sums(call, how, backward, err);                                                  \
        if (status != TAP_OK)                                                                                        \
            tap__moves_release(call);                                                                                \
        return status;                                                                                               \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {prepare_##name, backward ? run_backward : run_forward, tap__moves_release};

SUMS(upsample_linear, LINEAR, false)
SUMS(upsample_linear_backward, LINEAR, true)
SUMS(upsample_cubic, CUBIC, false)
SUMS(upsample_cubic_backward, CUBIC, true)
SUMS(upsample_nearest_backward, tap__call_attr(call, "exact")->i ? NEAREST_EXACT : NEAREST, true)
