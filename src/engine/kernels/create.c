/* create.c - values made from numbers alone: constants, ranges, identity matrices, indexes of triangles. */
#include "engine/kernels/move.h"
#include "engine/kernels/number.h"

#include "base/status.h"
#include "graph/shape_view.h"

#include <math.h>
#include <string.h>

static const unsigned char ZERO[16];

/* --------------------------------------------------------------------------------------------------- constants */

static tap_status prepare_full(tap__call *call, tap_error *err)
{
    const tap__attr *value = tap__call_attr(call, "fill_value");
    _Alignas(8) unsigned char element[16] = {0};
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    if (value->present)
        tap__number_store(&value->scalar, call->out[0].dtype, element);
    TAP_TRY(tap__moves_fill(call, call->nin, &call->out[0], element, err));
    tap__moves_ready(call);
    return TAP_OK;
}
TAP__MOVES_KERNEL(full);

static tap_status prepare_fill_tensor(tap__call *call, tap_error *err)
{
    const tap__operand *out = &call->out[0], *value = &call->in[1];
    if (value->dtype != out->dtype || value->is_number || value->ndim != 0)
        return tap__refuse(call, err);
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 1, &move, err));
    for (int i = 0; i < out->ndim; i++)
        tap__move_loop(move, out->size[i], out->stride[i], 0);
    tap__moves_ready(call);
    return TAP_OK;
}
TAP__MOVES_KERNEL(fill_tensor);

static tap_status prepare_eye(tap__call *call, tap_error *err)
{
    tap__number one = {.kind = 'I', .i = 1, .re = 1};
    _Alignas(8) unsigned char element[16] = {0};
    tap__operand diagonal = call->out[0];
    diagonal.offset = 0;
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    TAP_TRY(tap__view_diagonal(call, &diagonal, 0, 0, 1, err));
    TAP_TRY(tap__moves_fill(call, call->nin, &call->out[0], ZERO, err));
    tap__moves_next_phase(call);
    tap__number_store(&one, call->out[0].dtype, element);
    TAP_TRY(tap__moves_fill(call, call->nin, &diagonal, element, err));
    tap__moves_ready(call);
    return TAP_OK;
}
TAP__MOVES_KERNEL(eye);

/* ------------------------------------------------------------------------------------------------------ ranges */

typedef struct range {
    const tap__operand *out;
    void *to;
    int64_t first, step;          /* whole numbers */
    double start, end, by;        /* floats */
    float start_single, by_single, end_single;
    int64_t steps;
    bool line;                    /* linspace: counted from both ends */
} range;

/* The whole number at this place. */
static int64_t whole_at(const range *self, int64_t i)
{
    if (!self->line)
        return (int64_t)((uint64_t)self->first + (uint64_t)self->step * (uint64_t)i);
    return (int64_t)(i < self->steps / 2 ? self->start + self->by * (double)i
                                         : self->end - self->by * (double)(self->steps - i - 1));
}

static double float_at(const range *self, int64_t i)
{
    if (!self->line || i < self->steps / 2)
        return self->start + self->by * (double)i;
    return self->end - self->by * (double)(self->steps - i - 1);
}

static float single_at(const range *self, int64_t i)
{
    if (!self->line)
        return (float)(self->start + self->by * (double)i);
    if (i < self->steps / 2)
        return self->start_single + self->by_single * (float)i;
    return self->end_single - self->by_single * (float)(self->steps - i - 1);
}

static void range_part(void *user, int64_t begin, int64_t end)
{
    const range *self = user;
    int64_t stride = self->out->stride[0];
    switch (self->out->dtype) {
#define WHOLE(name, stored, ...)                                                                                     \
    case TAP_##name:                                                                                                 \
        for (int64_t i = begin; i < end; i++)                                                                        \
            ((stored *)self->to)[i * stride] = (stored)whole_at(self, i);                                            \
        break;
        TAP__NUMBERS_INT(WHOLE)
    case TAP_F16:
        for (int64_t i = begin; i < end; i++)
            ((uint16_t *)self->to)[i * stride] = tap__encode_f16(single_at(self, i));
        break;
    case TAP_BF16:
        for (int64_t i = begin; i < end; i++)
            ((uint16_t *)self->to)[i * stride] = tap__encode_bf16(single_at(self, i));
        break;
    case TAP_F32:
        for (int64_t i = begin; i < end; i++)
            ((float *)self->to)[i * stride] = single_at(self, i);
        break;
    default:
        for (int64_t i = begin; i < end; i++)
            ((double *)self->to)[i * stride] = float_at(self, i);
    }
}

static tap_status prepare_arange(tap__call *call, tap_error *err)
{
    char kind = tap_dtype_describe(call->out[0].dtype)->kind;
    bool known = kind == 'I' || kind == 'U' || call->out[0].dtype == TAP_F32 || call->out[0].dtype == TAP_F64 ||
                 call->out[0].dtype == TAP_F16 || call->out[0].dtype == TAP_BF16;
    return known && call->out[0].ndim == 1 ? TAP_OK : tap__refuse(call, err);
}

static int64_t whole_of(const tap__number *number)
{
    return number->kind == 'I' || number->kind == 'B' ? number->i : (int64_t)number->re;
}

static tap_status run_arange(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    const tap__number *start = &tap__call_attr(call, "start")->scalar, *step = &tap__call_attr(call, "step")->scalar;
    range self = {.out = &call->out[0], .to = data[call->nin], .first = whole_of(start), .step = whole_of(step),
                  .start = start->re, .by = step->re};
    tap__parallel(call->threads, call->out[0].size[0], 16384, TAP_ANY_LENGTH, range_part, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_arange = {prepare_arange, run_arange, NULL};

static tap_status prepare_linspace(tap__call *call, tap_error *err)
{
    char kind = tap_dtype_describe(call->out[0].dtype)->kind;
    bool known = kind == 'I' || kind == 'U' || call->out[0].dtype == TAP_F32 || call->out[0].dtype == TAP_F64;
    return known && call->out[0].ndim == 1 ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_linspace(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    double start = tap__call_attr(call, "start")->scalar.re, end = tap__call_attr(call, "end")->scalar.re;
    int64_t steps = call->out[0].size[0];
    if (tap_dtype_describe(call->out[0].dtype)->kind != 'F') {
        start = trunc(start);
        end = trunc(end);
    }
    range self = {.out = &call->out[0], .to = data[call->nin], .start = start, .end = end, .steps = steps, .line = true,
                  .start_single = (float)start, .end_single = (float)end};
    if (steps > 1) {
        self.by = (end - start) / (double)(steps - 1);
        self.by_single = (self.end_single - self.start_single) / (float)(steps - 1);
    } else {
        self.end = start;
        self.end_single = (float)start;
    }
    tap__parallel(call->threads, steps, 16384, TAP_ANY_LENGTH, range_part, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_linspace = {prepare_linspace, run_linspace, NULL};

/* --------------------------------------------------------------------------------------------------- triangles */

static void put_whole(const tap__operand *out, void *to, int64_t row, int64_t at, int64_t value)
{
    int64_t place = row * out->stride[0] + at * out->stride[1];
    if (out->dtype == TAP_I32)
        ((int32_t *)to)[place] = (int32_t)value;
    else
        ((int64_t *)to)[place] = value;
}

static tap_status prepare_triangle_indices(tap__call *call, tap_error *err)
{
    const tap__operand *out = &call->out[0];
    bool known = (out->dtype == TAP_I64 || out->dtype == TAP_I32) && out->ndim == 2 && out->size[0] == 2;
    return known ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_triangle_indices(const tap__call *call, void *const *data, bool upper, tap_error *err)
{
    const tap__operand *out = &call->out[0];
    int64_t rows = tap__call_attr(call, "row")->i, columns = tap__call_attr(call, "col")->i;
    int64_t offset = tap__call_attr(call, "offset")->i, at = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t edge = row + offset + (upper ? 0 : 1);
        edge = edge < 0 ? 0 : edge > columns ? columns : edge;
        for (int64_t column = upper ? edge : 0; column < (upper ? columns : edge); column++, at++) {
            if (at >= out->size[1])
                return tap__expect_sizes(call, out, -1, NULL, err);
            put_whole(out, data[call->nin], 0, at, row);
            put_whole(out, data[call->nin], 1, at, column);
        }
    }
    return TAP_OK;
}

static tap_status run_tril_indices(const tap__call *call, void *const *data, tap_error *err)
{
    return run_triangle_indices(call, data, false, err);
}
const tap__kernel tap__kernel_tril_indices = {prepare_triangle_indices, run_tril_indices, NULL};

static tap_status run_triu_indices(const tap__call *call, void *const *data, tap_error *err)
{
    return run_triangle_indices(call, data, true, err);
}
const tap__kernel tap__kernel_triu_indices = {prepare_triangle_indices, run_triu_indices, NULL};
