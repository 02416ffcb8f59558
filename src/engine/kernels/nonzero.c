/* nonzero.c - what lies where something is set: nonzero and masked_select. How much there is depends on data: it is
 * counted first, and the rest is planned when it is known. */
#include "engine/kernels/nonzero.h"

#include "base/status.h"
#include "engine/kernels/move.h"

#include <string.h>

/* What of an element's bytes makes it other than zero: a float's sign does not. */
typedef struct test {
    int parts;  /* 2: complex */
    size_t bytes; /* of one part */
    uint64_t mask;
} test;

static test test_of(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    test out = {.parts = info->kind == 'C' ? 2 : 1};
    out.bytes = info->bytes / (size_t)out.parts;
    out.mask = UINT64_MAX >> (64 - 8 * out.bytes);
    if (info->kind == 'F' || info->kind == 'C')
        out.mask >>= 1;
    return out;
}

static inline bool is_set(const test *self, const char *element)
{
    uint64_t bits = 0, low = 0;
    for (int part = 0; part < self->parts; part++) {
        memcpy(&low, element + (size_t)part * self->bytes, self->bytes);
        bits |= low & self->mask;
    }
    return bits != 0;
}

/* The common sizes of one or two operands, and where each of them is. */
typedef struct walk {
    int ndim, operands;
    int64_t size[TAP_ENGINE_MAX_NDIM], index[TAP_ENGINE_MAX_NDIM];
    int64_t stride[2][TAP_ENGINE_MAX_NDIM]; /* bytes */
    const char *at[2];
    int64_t left;                           /* lines */
} walk;

static void walk_add(walk *self, const tap__operand *operand)
{
    int64_t item = (int64_t)tap__item_bytes(operand->dtype);
    for (int i = 0; i < self->ndim; i++) {
        int at = i - (self->ndim - operand->ndim);
        self->stride[self->operands][i] = at < 0 || operand->size[at] == 1 ? 0 : operand->stride[at] * item;
    }
    self->operands++;
}

/* Over x, and over b where there is one: sizes are broadcast. At least one dimension. */
static void walk_begin(walk *self, const tap__operand *a, const tap__operand *b)
{
    *self = (walk){.ndim = a->ndim, .left = 1};
    if (b && b->ndim > self->ndim)
        self->ndim = b->ndim;
    self->ndim = self->ndim ? self->ndim : 1;
    for (int i = 0; i < self->ndim; i++) {
        int in_a = i - (self->ndim - a->ndim), in_b = b ? i - (self->ndim - b->ndim) : -1;
        self->size[i] = in_a >= 0 ? a->size[in_a] : 1;
        if (in_b >= 0 && self->size[i] == 1)
            self->size[i] = b->size[in_b];
        self->left *= i < self->ndim - 1 ? self->size[i] : self->size[i] > 0;
    }
    walk_add(self, a);
    if (b)
        walk_add(self, b);
}

/* On to the next line; false: there is none. */
static bool walk_next(walk *self)
{
    if (--self->left <= 0)
        return false;
    for (int i = self->ndim - 2; i >= 0; i--) {
        self->index[i]++;
        for (int k = 0; k < self->operands; k++)
            self->at[k] += self->stride[k][i];
        if (self->index[i] < self->size[i])
            break;
        for (int k = 0; k < self->operands; k++)
            self->at[k] -= self->stride[k][i] * self->size[i];
        self->index[i] = 0;
    }
    return true;
}

#define EACH_LINE(walk) for (bool more = (walk)->left > 0; more; more = walk_next(walk))

static int64_t count_line(const test *how, const char *at, int64_t stride, int64_t n)
{
    int64_t count = 0;
    if (how->parts == 1 && how->bytes == 1) {
        for (int64_t i = 0; i < n; i++)
            count += at[i * stride] != 0;
        return count;
    }
    for (int64_t i = 0; i < n; i++)
        count += is_set(how, at + i * stride);
    return count;
}

static int64_t count_set(const tap__operand *x, const void *data)
{
    test how = test_of(x->dtype);
    walk over;
    int64_t count = 0;
    walk_begin(&over, x, NULL);
    over.at[0] = data;
    int last = over.ndim - 1;
    EACH_LINE(&over)
        count += count_line(&how, over.at[0], over.stride[0][last], over.size[last]);
    return count;
}

/* ------------------------------------------------------------------------------------------------------- nonzero */

tap_status tap__count_nonzero(const tap__call *call, void *const *data, int64_t *count, tap_error *err)
{
    (void)err;
    *count = count_set(&call->in[0], data[0]);
    return TAP_OK;
}

static tap_status prepare_nonzero(tap__call *call, tap_error *err)
{
    const tap__operand *out = &call->out[0];
    bool fits = out->dtype == TAP_I64 && out->ndim == 2 && out->size[1] == call->in[0].ndim;
    return fits ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_nonzero(const tap__call *call, void *const *data, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    test how = test_of(x->dtype);
    walk over;
    int64_t *to = data[1], row = 0, rows = out->size[0];
    (void)err;
    walk_begin(&over, x, NULL);
    over.at[0] = data[0];
    int last = over.ndim - 1;
    EACH_LINE(&over)
        for (int64_t i = 0; i < over.size[last] && row < rows; i++) {
            if (!is_set(&how, over.at[0] + i * over.stride[0][last]))
                continue;
            int64_t *place = to + row++ * out->stride[0];
            over.index[last] = i;
            for (int d = 0; d < x->ndim; d++)
                place[d * out->stride[1]] = over.index[d];
        }
    return TAP_OK;
}
const tap__kernel tap__kernel_nonzero = {prepare_nonzero, run_nonzero, NULL};

/* ------------------------------------------------------------------------------------------------- masked_select */

tap_status tap__count_masked_select(const tap__call *call, void *const *data, int64_t *count, tap_error *err)
{
    const tap__operand *x = &call->in[0], *mask = &call->in[1];
    walk over;
    (void)err;
    walk_begin(&over, x, mask);
    int64_t all = 1, masks = tap__operand_count(mask);
    for (int i = 0; i < over.ndim; i++)
        all *= over.size[i];
    *count = all == 0 ? 0 : count_set(mask, data[1]) * (all / masks); /* each place as often as it is repeated */
    return TAP_OK;
}

static tap_status prepare_masked_select(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *mask = &call->in[1], *out = &call->out[0];
    return x->dtype == out->dtype && mask->dtype == TAP_BOOL && out->ndim == 1 ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_masked_select(const tap__call *call, void *const *data, tap_error *err)
{
    const tap__operand *out = &call->out[0];
    size_t item = tap__item_bytes(out->dtype);
    int64_t count = 0, step = out->stride[0] * (int64_t)item;
    walk over;
    (void)err;
    walk_begin(&over, &call->in[0], &call->in[1]);
    over.at[0] = data[0];
    over.at[1] = data[1];
    int last = over.ndim - 1;
    EACH_LINE(&over)
        for (int64_t i = 0; i < over.size[last] && count < out->size[0]; i++)
            if (over.at[1][i * over.stride[1][last]])
                memcpy((char *)data[2] + count++ * step, over.at[0] + i * over.stride[0][last], item);
    return TAP_OK;
}
const tap__kernel tap__kernel_masked_select = {prepare_masked_select, run_masked_select, NULL};
