/* pool.c - max, average and adaptive pooling over one to three dimensions, and their gradients: the windows of each
 * dimension as tables, then the loops of pool_kernel.inc. */
#include "engine/kernels/pool.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/kernels/move.h"
#include "engine/kernels/offsets.h"

#include <string.h>

typedef struct pooling {
    tap__moves moves; /* zeros for a gradient; owns the tables. First: tap__moves_release frees it */
    tap__pool pool;
    tap__pool_fn run;
    int64_t units, grain;
    bool buffered;    /* the gradient is added up in float32 in the scratch */
} pooling;

static const unsigned char ZERO[16];

static const tap__pool_fns *find_fns(tap_dtype dtype)
{
    static const struct {
        const char *isa;
        const tap__pool_fns *fns;
    } ALL[] = {
#if defined(__x86_64__)
        {"avx512", tap__pool_avx512},
        {"avx2", tap__pool_avx2},
#elif defined(__aarch64__)
        {"neon", tap__pool_neon},
#endif
        {"plain", tap__pool_plain},
    };
    int type = dtype == TAP_F16 ? 0 : dtype == TAP_BF16 ? 1 : dtype == TAP_F32 ? 2 : dtype == TAP_F64 ? 3 : -1;
    const char *isa = tap_isa_name();
    for (size_t i = 0; type >= 0 && i < sizeof ALL / sizeof ALL[0]; i++)
        if (strcmp(ALL[i].isa, isa) == 0)
            return &ALL[i].fns[type];
    return type >= 0 ? &tap__pool_plain[type] : NULL;
}

/* ------------------------------------------------------------------------------------------------------ windows */

static tap_status make_tables(tap__call *call, tap__windows *dim, tap_error *err)
{
    dim->start = tap__moves_table(call, 3 * dim->out);
    if (!dim->start)
        return tap_fail_nomem(err);
    dim->end = dim->start + dim->out;
    dim->weight = dim->end + dim->out;
    return TAP_OK;
}

/* The attribute's number for spatial dimension i: one number may stand for all. */
static int64_t number_for(const tap__call *call, const char *name, int i, int64_t otherwise)
{
    const tap__attr *attr = tap__call_attr(call, name);
    if (!attr->present || attr->count == 0)
        return otherwise;
    return attr->ints[attr->count > i ? i : 0];
}

static tap_status sliding(tap__call *call, tap__windows *dim, int i, bool average, tap_error *err)
{
    int64_t kernel = number_for(call, "kernel_size", i, 1), stride = number_for(call, "stride", i, kernel);
    int64_t padding = number_for(call, "padding", i, 0), dilation = average ? 1 : number_for(call, "dilation", i, 1);
    bool with_padding = average && tap__call_attr(call, "count_include_pad")->i;
    if (kernel < 1 || stride < 1 || padding < 0 || dilation < 1)
        return tap__expect_sizes(call, &call->out[0], -1, NULL, err);
    TAP_TRY(make_tables(call, dim, err));
    dim->step = dilation;
    for (int64_t o = 0; o < dim->out; o++) {
        int64_t first = o * stride - padding, last = first + (kernel - 1) * dilation + 1;
        int64_t reach = last < dim->in + padding ? last : dim->in + padding;
        dim->start[o] = first;
        while (dim->start[o] < 0)
            dim->start[o] += dilation;
        dim->end[o] = last < dim->in ? last : dim->in;
        dim->weight[o] = with_padding ? reach - first : dim->end[o] - dim->start[o];
        if (dim->start[o] >= dim->end[o])
            return tap__refuse(call, err);
    }
    return TAP_OK;
}

static tap_status adaptive(tap__call *call, tap__windows *dim, tap_error *err)
{
    TAP_TRY(make_tables(call, dim, err));
    dim->step = 1;
    for (int64_t o = 0; o < dim->out; o++) {
        dim->start[o] = o / dim->out * dim->in + o % dim->out * dim->in / dim->out;
        dim->end[o] = ((o + 1) * dim->in + dim->out - 1) / dim->out;
        dim->weight[o] = dim->end[o] - dim->start[o];
    }
    return TAP_OK;
}

/* A dimension the operands lack. */
static tap_status single(tap__call *call, tap__windows *dim, tap_error *err)
{
    *dim = (tap__windows){.in = 1, .out = 1, .step = 1};
    TAP_TRY(make_tables(call, dim, err));
    dim->start[0] = 0;
    dim->end[0] = dim->weight[0] = 1;
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------ operands */

/* Strides of one side, for operands with or without a batch. */
static void strides_of(const tap__operand *operand, int spatial, int64_t *batch, int64_t *channel, int64_t *steps)
{
    int lead = operand->ndim - spatial;
    *batch = lead == 2 ? operand->stride[0] : 0;
    *channel = operand->stride[lead - 1];
    for (int i = 0; i < TAP_POOL_DIMS; i++) {
        int dim = i - (TAP_POOL_DIMS - spatial);
        steps[i] = dim < 0 ? 0 : operand->stride[lead + dim];
    }
}

static bool fits(const tap__operand *a, const tap__operand *b, int spatial)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim - spatial; i++)
        same = a->size[i] == b->size[i];
    return same;
}

typedef struct sides {
    const tap__operand *x, *y, *indices; /* indices: of max pooling, else NULL */
    bool adaptive, average, backward;
} sides;

static void row_major(const tap__operand *like, tap__operand *out)
{
    int64_t step = 1;
    *out = *like;
    for (int i = out->ndim - 1; i >= 0; i--) {
        out->stride[i] = step;
        step *= out->size[i];
    }
}

static void cut_units(pooling *self, const sides *of)
{
    tap__pool *pool = &self->pool;
    bool across = pool->x_channel == 1 && pool->y_channel == 1 && (!of->indices || pool->i_channel == 1);
    int64_t plane = pool->dims[0].in * pool->dims[1].in * pool->dims[2].in;
    pool->across = across && pool->channels > 1 && plane < INT32_MAX;
    pool->chunk = pool->across ? 64 : 1;
    int64_t planes = pool->batch * ((pool->channels + pool->chunk - 1) / pool->chunk);
    int64_t windows = pool->dims[0].out * pool->dims[1].out;
    self->units = planes * (of->backward ? 1 : windows);
    int64_t each = plane * pool->chunk / (of->backward ? 1 : windows ? windows : 1);
    self->grain = 1 + 16384 / (each ? each : 1);
}

static tap_status prepare(tap__call *call, const sides *of, tap_error *err)
{
    int spatial = (int)tap__call_attr(call, "spatial")->i;
    tap_dtype dtype = of->x->dtype;
    const tap__pool_fns *fns = find_fns(dtype);
    int lead = of->x->ndim - spatial;
    if (!fns || of->y->dtype != dtype || call->out[0].dtype != dtype || spatial < 1 || spatial > TAP_POOL_DIMS ||
        lead < 1 || lead > 2 || (of->indices && of->indices->dtype != TAP_I64))
        return tap__refuse(call, err);
    /* ATen adds these up in the narrow type itself */
    if (of->adaptive && of->average && spatial == 3 && (dtype == TAP_F16 || dtype == TAP_BF16))
        return tap__refuse(call, err);
    if (!fits(of->x, of->y, spatial) || (of->indices && !fits(of->x, of->indices, spatial)))
        return tap__expect_sizes(call, of->y, -1, NULL, err);
    TAP_TRY(tap__moves_begin(call, sizeof(pooling), err));
    pooling *self = call->state;
    tap__pool *pool = &self->pool;
    self->buffered = of->backward && (dtype == TAP_F16 || dtype == TAP_BF16);
    pool->batch = lead == 2 ? of->x->size[0] : 1;
    pool->channels = of->x->size[lead - 1];
    for (int i = 0; i < TAP_POOL_DIMS; i++) {
        int dim = i - (TAP_POOL_DIMS - spatial);
        tap__windows *windows = &pool->dims[i];
        if (dim >= 0)
            *windows = (tap__windows){.in = of->x->size[lead + dim], .out = of->y->size[lead + dim]};
        TAP_TRY(dim < 0        ? single(call, windows, err)
                : of->adaptive ? adaptive(call, windows, err)
                               : sliding(call, windows, dim, of->average, err));
    }
    tap__operand buffer;
    row_major(of->x, &buffer);
    strides_of(self->buffered ? &buffer : of->x, spatial, &pool->x_batch, &pool->x_channel, pool->x);
    strides_of(of->y, spatial, &pool->y_batch, &pool->y_channel, pool->y);
    if (of->indices)
        strides_of(of->indices, spatial, &pool->i_batch, &pool->i_channel, pool->i);
    if (of->average && !of->adaptive) {
        const tap__attr *divisor = tap__call_attr(call, "divisor_override");
        pool->divisor = divisor->present ? divisor->i : 0;
    }
    self->run = of->average ? (of->backward ? fns->average_backward : fns->average)
                            : (of->backward ? fns->largest_backward : fns->largest);
    cut_units(self, of);
    if (self->buffered)
        call->scratch = (size_t)tap__operand_count(of->x) * sizeof(float);
    else if (of->backward)
        TAP_TRY(tap__moves_fill(call, call->nin, &call->out[0], ZERO, err));
    tap__moves_ready(call);
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------ running */

typedef struct pool_run {
    const pooling *self;
    const void *from;
    void *to;
    int64_t *indices;
} pool_run;

static void run_part(void *user, int64_t begin, int64_t end)
{
    const pool_run *run = user;
    run->self->run(&run->self->pool, run->from, run->to, run->indices, begin, end);
}

static void run_units(const tap__call *call, const void *from, void *to, int64_t *indices)
{
    const pooling *self = call->state;
    pool_run run = {self, from, to, indices};
    tap__parallel(call->threads, self->units, self->grain, TAP_ANY_LENGTH, run_part, &run);
}

static tap_status run_largest(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    run_units(call, data[0], data[1], data[2]);
    return TAP_OK;
}

static tap_status run_average(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    run_units(call, data[0], data[1], NULL);
    return TAP_OK;
}

static tap_status run_backward(const tap__call *call, void *const *data, int64_t *indices, tap_error *err)
{
    const pooling *self = call->state;
    void *out = data[call->nin];
    if (self->buffered)
        memset(data[call->nin + 1], 0, call->scratch);
    else
        TAP_TRY(tap__moves_run(call, data, err));
    run_units(call, data[0], self->buffered ? data[call->nin + 1] : out, indices);
    if (self->buffered)
        tap__store_halves(&call->out[0], data[call->nin + 1], out);
    return TAP_OK;
}

static tap_status run_average_backward(const tap__call *call, void *const *data, tap_error *err)
{
    return run_backward(call, data, NULL, err);
}

/* Indices come from outside: none may point out of its plane. */
static tap_status check_indices(const tap__call *call, const int64_t *indices, tap_error *err)
{
    const pooling *self = call->state;
    const tap__pool *pool = &self->pool;
    int64_t plane = pool->dims[0].in * pool->dims[1].in * pool->dims[2].in;
    for (int64_t n = 0; n < pool->batch; n++)
        for (int64_t k = 0; k < pool->channels; k++)
            for (int64_t a = 0; a < pool->dims[0].out; a++)
                for (int64_t b = 0; b < pool->dims[1].out; b++)
                    for (int64_t c = 0; c < pool->dims[2].out; c++) {
                        int64_t index = indices[n * pool->i_batch + k * pool->i_channel + a * pool->i[0] +
                                                b * pool->i[1] + c * pool->i[2]];
                        if (index < 0 || index >= plane)
                            return tap__bad_index(call, index, call->out[0].ndim - 1, plane, err);
                    }
    return TAP_OK;
}

static tap_status run_largest_backward(const tap__call *call, void *const *data, tap_error *err)
{
    TAP_TRY(check_indices(call, data[2], err));
    return run_backward(call, data, data[2], err);
}

/* ------------------------------------------------------------------------------------------------------ kernels */

#define POOL(name, run, ...)                                                                                         \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        sides of = {__VA_ARGS__};                                                                                    \
        tap_status status = prepare(call, &of, err);                                                                 \
        if (status != TAP_OK)                                                                                        \
            tap__moves_release(call);                                                                                \
        return status;                                                                                               \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {prepare_##name, run, tap__moves_release};

POOL(max_pool, run_largest, &call->in[0], &call->out[0], &call->out[1], false, false, false)
POOL(max_pool_backward, run_largest_backward, &call->out[0], &call->in[0], &call->in[2], false, false, true)
POOL(avg_pool, run_average, &call->in[0], &call->out[0], NULL, false, true, false)
POOL(avg_pool_backward, run_average_backward, &call->out[0], &call->in[0], NULL, false, true, true)
POOL(adaptive_avg_pool, run_average, &call->in[0], &call->out[0], NULL, true, true, false)
POOL(adaptive_avg_pool_backward, run_average_backward, &call->out[0], &call->in[0], NULL, true, true, true)
POOL(adaptive_max_pool, run_largest, &call->in[0], &call->out[0], &call->out[1], true, false, false)
POOL(adaptive_max_pool_backward, run_largest_backward, &call->out[0], &call->in[0], &call->in[2], true, false, true)
