/* mask.c - writing where a mask says: index_put with a mask for an index, and masked_scatter. How many places there are
 * is known only when it runs, so these walk the mask. */
#include "engine/kernels/mask.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/kernels/move.h"
#include "engine/kernels/move_lines.h"

#include <inttypes.h>
#include <string.h>

/* The dimensions of x before, under and after the mask, with the strides of the output and of the values, in bytes. */
typedef struct masking {
    tap__moves moves; /* copies x; first: tap__moves_release frees it */
    int mask_input, first, masked, nrest;
    int64_t size[TAP_ENGINE_MAX_NDIM], to[TAP_ENGINE_MAX_NDIM], from[TAP_ENGINE_MAX_NDIM]; /* of the rest */
    int64_t mask_stride[TAP_ENGINE_MAX_NDIM], mask_to[TAP_ENGINE_MAX_NDIM], mask_size[TAP_ENGINE_MAX_NDIM];
    int64_t places, count_size, count_step; /* of the values' dimension that counts the places */
    tap_dtype add;
} masking;

/* The dimensions of one slice, as nested loops. */
static void put_slice(const masking *self, const tap__lines *lines, int dim, char *to, const char *from)
{
    if (dim == self->nrest) {
        lines->line(to, 0, from, 0, 1);
        return;
    }
    if (dim == self->nrest - 1) {
        lines->line(to, self->to[dim], from, self->from[dim], self->size[dim]);
        return;
    }
    for (int64_t i = 0; i < self->size[dim]; i++)
        put_slice(self, lines, dim + 1, to + i * self->to[dim], from + i * self->from[dim]);
}

/* Offsets of place number `at` of the mask. */
static void mask_place(const masking *self, int64_t at, int64_t *mask, int64_t *to)
{
    *mask = *to = 0;
    for (int i = self->masked - 1; i >= 0; i--) {
        int64_t here = at % self->mask_size[i];
        at /= self->mask_size[i];
        *mask += here * self->mask_stride[i];
        *to += here * self->mask_to[i];
    }
}

tap_status tap__mask_prepare(tap__call *call, int mask_input, int first, tap_error *err)
{
    const tap__operand *x = &call->in[0], *values = &call->in[1], *mask = &call->in[mask_input], *out = &call->out[0];
    bool accumulate = tap__call_attr(call, "accumulate")->i != 0;
    if (x->dtype != out->dtype || values->dtype != out->dtype || mask->ndim < 1 || first + mask->ndim > x->ndim ||
        (accumulate && !tap__lines_add(out->dtype)))
        return tap__refuse(call, err);
    TAP_TRY(tap__expect_sizes(call, out, x->ndim, x->size, err));
    TAP_TRY(tap__expect_sizes(call, mask, mask->ndim, x->size + first, err));
    TAP_TRY(tap__moves_begin(call, sizeof(masking), err));
    masking *self = call->state;
    int64_t item = (int64_t)tap__item_bytes(out->dtype);
    self->mask_input = mask_input;
    self->masked = mask->ndim;
    self->add = accumulate ? out->dtype : TAP_DTYPE_NONE;
    self->places = 1;
    for (int i = 0; i < mask->ndim; i++) {
        self->mask_size[i] = mask->size[i];
        self->mask_stride[i] = mask->stride[i];
        self->mask_to[i] = out->stride[first + i] * item;
        self->places *= mask->size[i];
    }
    int result = x->ndim - mask->ndim + 1;
    if (values->ndim > result)
        return tap__refuse(call, err);
    self->count_size = 1;
    for (int i = 0; i < result; i++) {
        int at = i - (result - values->ndim), dim = i < first ? i : i + mask->ndim - 1;
        int64_t size = at < 0 ? 1 : values->size[at], step = size == 1 ? 0 : values->stride[at] * item;
        if (i == first) {
            self->count_size = size;
            self->count_step = step;
            continue;
        }
        if (size != 1 && size != x->size[dim])
            return tap__expect_sizes(call, values, -1, NULL, err);
        self->size[self->nrest] = x->size[dim];
        self->to[self->nrest] = out->stride[dim] * item;
        self->from[self->nrest++] = step;
    }
    TAP_TRY(tap__moves_copy(call, call->nin, out, 0, x, err));
    tap__moves_ready(call);
    return TAP_OK;
}

static tap_status mask_count(const tap__call *call, int64_t size, int64_t count, tap_error *err)
{
    return tap_fail(err, TAP_E_INVALID, "%s: %" PRId64 " values for %" PRId64 " places of the mask", call->name, size,
                    count);
}

tap_status tap__mask_run(const tap__call *call, void *const *data, tap_error *err)
{
    const masking *self = call->state;
    const uint8_t *mask = data[self->mask_input];
    int64_t count = 0, at, to;
    bool empty = false;
    for (int i = 0; i < self->nrest; i++)
        empty = empty || self->size[i] == 0;
    for (int64_t place = 0; place < self->places; place++) {
        mask_place(self, place, &at, &to);
        count += mask[at] != 0;
    }
    if (self->count_size != 1 && self->count_size != count)
        return mask_count(call, self->count_size, count, err);
    TAP_TRY(tap__moves_run(call, data, err));
    const tap__lines *lines = self->add != TAP_DTYPE_NONE ? tap__lines_add(self->add)
                                                          : tap__lines_copy(tap__item_bytes(call->out[0].dtype));
    const char *from = data[1];
    for (int64_t place = 0; place < self->places && !empty && count; place++) {
        mask_place(self, place, &at, &to);
        if (!mask[at])
            continue;
        put_slice(self, lines, 0, (char *)data[call->nin] + to, from);
        from += self->count_step;
    }
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------ masked_scatter */

/* Row-major walk over the output; x and mask are broadcast to it. */
typedef struct cursor {
    int64_t stride[TAP_ENGINE_MAX_NDIM];
} cursor;

static void broadcast(const tap__operand *operand, const tap__operand *to, cursor *out)
{
    for (int i = 0; i < to->ndim; i++) {
        int at = i - (to->ndim - operand->ndim);
        out->stride[i] = at < 0 || operand->size[at] == 1 ? 0 : operand->stride[at];
    }
}

static int64_t cursor_at(const tap__operand *over, const int64_t *stride, int64_t position)
{
    int64_t at = 0;
    for (int i = over->ndim - 1; i >= 0; i--) {
        at += position % over->size[i] * stride[i];
        position /= over->size[i];
    }
    return at;
}

static bool broadcasts(const tap__operand *operand, const tap__operand *to)
{
    bool fits = operand->ndim <= to->ndim;
    for (int i = 0; fits && i < operand->ndim; i++)
        fits = operand->size[i] == 1 || operand->size[i] == to->size[to->ndim - operand->ndim + i];
    return fits;
}

static tap_status prepare_masked_scatter(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *mask = &call->in[1], *source = &call->in[2], *out = &call->out[0];
    if (x->dtype != out->dtype || source->dtype != out->dtype || mask->dtype != TAP_BOOL)
        return tap__refuse(call, err);
    if (!broadcasts(x, out) || !broadcasts(mask, out))
        return tap__expect_sizes(call, out, -1, NULL, err);
    return TAP_OK;
}

static tap_status run_masked_scatter(const tap__call *call, void *const *data, tap_error *err)
{
    const tap__operand *out = &call->out[0], *source = &call->in[2];
    const uint8_t *mask = data[1];
    size_t item = tap__item_bytes(out->dtype);
    cursor from_x, from_mask;
    broadcast(&call->in[0], out, &from_x);
    broadcast(&call->in[1], out, &from_mask);
    int64_t count = tap__operand_count(out), wanted = 0, taken = 0, have = tap__operand_count(source);
    for (int64_t i = 0; i < count; i++)
        wanted += mask[cursor_at(out, from_mask.stride, i)] != 0;
    if (wanted > have)
        return mask_count(call, have, wanted, err);
    for (int64_t i = 0; i < count; i++) {
        bool take = mask[cursor_at(out, from_mask.stride, i)] != 0;
        const char *from = take ? data[2] : data[0];
        int64_t at = take ? cursor_at(source, source->stride, taken++) : cursor_at(out, from_x.stride, i);
        memcpy((char *)data[3] + cursor_at(out, out->stride, i) * (int64_t)item, from + at * (int64_t)item, item);
    }
    return TAP_OK;
}
const tap__kernel tap__kernel_masked_scatter = {prepare_masked_scatter, run_masked_scatter, NULL};
