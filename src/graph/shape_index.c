/* shape_index.c - see shape_index.h. Sizes only: the plan makes such outputs contiguous. */
#include "graph/shape_index.h"

#include "base/status.h"
#include "graph/shape_view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static tap_status wrong(const tap__call *call, tap_error *err)
{
    return tap_fail(err, TAP_E_INVALID, "%s: the sizes of its operands do not fit", call->name);
}

static tap_status set_sizes(tap__call *call, tap_dtype dtype, int ndim, const int64_t *sizes, tap_error *err)
{
    tap__operand *out = &call->out[0];
    if (ndim < 0 || ndim > TAP_ENGINE_MAX_NDIM)
        return wrong(call, err);
    *out = (tap__operand){.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] < 0)
            return wrong(call, err);
        out->size[i] = sizes[i];
    }
    return TAP_OK;
}

static tap_dtype dtype_or(const tap__call *call, tap_dtype otherwise)
{
    const tap__attr *dtype = tap__call_attr(call, "dtype");
    return dtype->present ? (tap_dtype)dtype->i : otherwise;
}

static tap_dtype dtype_of_number(const tap__number *number)
{
    return number->kind == 'B'   ? TAP_BOOL
           : number->kind == 'I' ? TAP_I64
           : number->kind == 'C' ? TAP_C64
                                 : TAP_F32;
}

tap_status tap__shape_arange(tap__call *call, tap_error *err)
{
    const tap__number *start = &tap__call_attr(call, "start")->scalar, *end = &tap__call_attr(call, "end")->scalar;
    const tap__number *step = &tap__call_attr(call, "step")->scalar;
    bool whole = start->kind != 'F' && end->kind != 'F' && step->kind != 'F';
    if (step->re == 0)
        return wrong(call, err);
    double count = ceil((end->re - start->re) / step->re);
    if (!(count < 0x1p62)) /* NaN too */
        return wrong(call, err);
    int64_t size = count > 0 ? (int64_t)count : 0;
    return set_sizes(call, dtype_or(call, whole ? TAP_I64 : TAP_F32), 1, &size, err);
}

tap_status tap__shape_cat(tap__call *call, tap_error *err)
{
    tap__operand out = {.dtype = TAP_DTYPE_NONE};
    int dim = 0;
    for (int i = 0; i < call->nin; i++) {
        const tap__operand *in = &call->in[i];
        if (out.dtype != TAP_DTYPE_NONE && in->ndim == 1 && in->size[0] == 0)
            continue;
        if (out.dtype == TAP_DTYPE_NONE || (out.ndim == 1 && out.size[0] == 0)) {
            out = *in;
            TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, in->ndim, &dim, err));
            continue;
        }
        if (in->ndim != out.ndim || in->dtype != out.dtype)
            return wrong(call, err);
        for (int d = 0; d < in->ndim; d++)
            if (d != dim && in->size[d] != out.size[d])
                return wrong(call, err);
        out.size[dim] += in->size[dim];
    }
    return set_sizes(call, out.dtype, out.ndim, out.size, err);
}

static tap_status padded(tap__call *call, const char *attr, tap_error *err)
{
    const tap__operand *in = &call->in[0];
    const tap__attr *pad = tap__call_attr(call, attr);
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    memcpy(sizes, in->size, sizeof sizes);
    if (pad->count % 2 || pad->count / 2 > in->ndim)
        return wrong(call, err);
    for (int i = 0; i < pad->count / 2; i++)
        sizes[in->ndim - 1 - i] += pad->ints[2 * i] + pad->ints[2 * i + 1];
    return set_sizes(call, in->dtype, in->ndim, sizes, err);
}

tap_status tap__shape_constant_pad(tap__call *call, tap_error *err)
{
    return padded(call, "pad", err);
}

tap_status tap__shape_padding(tap__call *call, tap_error *err)
{
    return padded(call, "padding", err);
}

tap_status tap__shape_embedding(tap__call *call, tap_error *err)
{
    int64_t sizes[TAP_ENGINE_MAX_NDIM + 1];
    const tap__operand *weight = &call->in[0], *indices = &call->in[1];
    if (weight->ndim != 2)
        return wrong(call, err);
    memcpy(sizes, indices->size, sizeof indices->size);
    sizes[indices->ndim] = weight->size[1];
    return set_sizes(call, weight->dtype, indices->ndim + 1, sizes, err);
}

tap_status tap__shape_embedding_backward(tap__call *call, tap_error *err)
{
    const tap__operand *grad = &call->in[0];
    if (grad->ndim < 1)
        return wrong(call, err);
    int64_t sizes[2] = {tap__call_attr(call, "num_weights")->i, grad->size[grad->ndim - 1]};
    return set_sizes(call, grad->dtype, 2, sizes, err);
}

tap_status tap__shape_eye(tap__call *call, tap_error *err)
{
    const tap__attr *n = tap__call_attr(call, "n"), *m = tap__call_attr(call, "m");
    int64_t sizes[2] = {n->i, m->present ? m->i : n->i};
    return set_sizes(call, dtype_or(call, TAP_F32), 2, sizes, err);
}

tap_status tap__shape_full(tap__call *call, tap_error *err)
{
    const tap__attr *size = tap__call_attr(call, "size");
    tap_dtype dtype = dtype_of_number(&tap__call_attr(call, "fill_value")->scalar);
    return set_sizes(call, dtype_or(call, dtype), size->count, size->ints, err);
}

tap_status tap__shape_full_like(tap__call *call, tap_error *err)
{
    return set_sizes(call, dtype_or(call, call->in[0].dtype), call->in[0].ndim, call->in[0].size, err);
}

tap_status tap__shape_gather(tap__call *call, tap_error *err)
{
    return set_sizes(call, call->in[0].dtype, call->in[1].ndim, call->in[1].size, err);
}

tap_status tap__shape_index(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int64_t common[TAP_ENGINE_MAX_NDIM], sizes[2 * TAP_ENGINE_MAX_NDIM];
    int ncommon = 0, first = -1, last = -1, ndim = 0;
    bool together = true;
    if (call->nin - 1 > x->ndim)
        return wrong(call, err);
    for (int i = 1; i < call->nin; i++) {
        const tap__operand *index = &call->in[i];
        if (index->dtype == TAP_DTYPE_NONE)
            continue;
        if (index->dtype == TAP_BOOL || index->dtype == TAP_U8)
            return tap_fail(err, TAP_E_UNSUPPORTED, "%s: the size of what a mask selects is not known", call->name);
        together = together && (last < 0 || last == i - 2);
        first = first < 0 ? i - 1 : first;
        last = i - 1;
        for (; ncommon < index->ndim; ncommon++) {
            memmove(common + 1, common, (size_t)ncommon * sizeof common[0]);
            common[0] = 1;
        }
        for (int d = 0; d < index->ndim; d++) {
            int64_t *to = &common[ncommon - index->ndim + d], size = index->size[d];
            if (*to != size && *to != 1 && size != 1)
                return wrong(call, err);
            *to = *to == 1 ? size : *to;
        }
    }
    for (int d = 0; d <= x->ndim; d++) {
        if (d == (together && first >= 0 ? first : 0))
            for (int i = 0; i < ncommon; i++)
                sizes[ndim++] = common[i];
        if (d < x->ndim && (d + 1 >= call->nin || call->in[d + 1].dtype == TAP_DTYPE_NONE))
            sizes[ndim++] = x->size[d];
    }
    return set_sizes(call, x->dtype, ndim, sizes, err);
}

tap_status tap__shape_index_select(tap__call *call, tap_error *err)
{
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    const tap__operand *x = &call->in[0];
    int dim;
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, x->ndim, &dim, err));
    memcpy(sizes, x->size, sizeof sizes);
    sizes[dim] = tap__operand_count(&call->in[1]);
    return set_sizes(call, x->dtype, x->ndim, sizes, err);
}

tap_status tap__shape_input_sizes(tap__call *call, tap_error *err)
{
    const tap__attr *sizes = tap__call_attr(call, "input_sizes");
    return set_sizes(call, call->in[0].dtype, sizes->count, sizes->ints, err);
}

tap_status tap__shape_input_size(tap__call *call, tap_error *err)
{
    const tap__attr *sizes = tap__call_attr(call, "input_size");
    return set_sizes(call, call->in[0].dtype, sizes->count, sizes->ints, err);
}

tap_status tap__shape_linspace(tap__call *call, tap_error *err)
{
    int64_t steps = tap__call_attr(call, "steps")->i;
    return set_sizes(call, dtype_or(call, TAP_F32), 1, &steps, err);
}

tap_status tap__shape_pixel_shuffle(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int64_t factor = tap__call_attr(call, "upscale_factor")->i, sizes[TAP_ENGINE_MAX_NDIM];
    int ndim = x->ndim;
    if (ndim < 3 || factor < 1 || x->size[ndim - 3] % (factor * factor))
        return wrong(call, err);
    memcpy(sizes, x->size, sizeof sizes);
    sizes[ndim - 3] /= factor * factor;
    sizes[ndim - 2] *= factor;
    sizes[ndim - 1] *= factor;
    return set_sizes(call, x->dtype, ndim, sizes, err);
}

tap_status tap__shape_pixel_unshuffle(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int64_t factor = tap__call_attr(call, "downscale_factor")->i, sizes[TAP_ENGINE_MAX_NDIM];
    int ndim = x->ndim;
    if (ndim < 3 || factor < 1 || x->size[ndim - 2] % factor || x->size[ndim - 1] % factor)
        return wrong(call, err);
    memcpy(sizes, x->size, sizeof sizes);
    sizes[ndim - 3] *= factor * factor;
    sizes[ndim - 2] /= factor;
    sizes[ndim - 1] /= factor;
    return set_sizes(call, x->dtype, ndim, sizes, err);
}

tap_status tap__shape_repeat(tap__call *call, tap_error *err)
{
    const tap__attr *repeats = tap__call_attr(call, "repeats");
    const tap__operand *x = &call->in[0];
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    int lead = repeats->count - x->ndim;
    if (lead < 0 || repeats->count > TAP_ENGINE_MAX_NDIM)
        return wrong(call, err);
    for (int i = 0; i < repeats->count; i++)
        sizes[i] = repeats->ints[i] * (i < lead ? 1 : x->size[i - lead]);
    return set_sizes(call, x->dtype, repeats->count, sizes, err);
}

tap_status tap__shape_second(tap__call *call, tap_error *err)
{
    return set_sizes(call, call->in[1].dtype, call->in[1].ndim, call->in[1].size, err);
}

tap_status tap__shape_stack(tap__call *call, tap_error *err)
{
    int64_t sizes[TAP_ENGINE_MAX_NDIM + 1];
    int dim;
    if (call->nin < 1)
        return wrong(call, err);
    const tap__operand *x = &call->in[0];
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, x->ndim + 1, &dim, err));
    for (int i = 0; i <= x->ndim; i++)
        sizes[i] = i < dim ? x->size[i] : i == dim ? call->nin : x->size[i - 1];
    return set_sizes(call, x->dtype, x->ndim + 1, sizes, err);
}

static void values_and_indices(tap__call *call, int dim, int64_t keep)
{
    for (int i = 0; i < 2 && i < call->nout; i++) {
        call->out[i] = call->in[0];
        call->out[i].dtype = i ? TAP_I64 : call->in[0].dtype;
        if (call->in[0].ndim && keep >= 0)
            call->out[i].size[dim] = keep;
    }
}

tap_status tap__shape_sort(tap__call *call, tap_error *err)
{
    (void)err;
    values_and_indices(call, 0, -1);
    return TAP_OK;
}

tap_status tap__shape_topk(tap__call *call, tap_error *err)
{
    int64_t keep = tap__call_attr(call, "k")->i;
    int dim;
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, call->in[0].ndim, &dim, err));
    if (keep < 0 || keep > (call->in[0].ndim ? call->in[0].size[dim] : 1))
        return wrong(call, err);
    values_and_indices(call, dim, keep);
    return TAP_OK;
}

/* A second output holds indices. */
static void indices_beside(tap__call *call)
{
    if (call->nout < 2)
        return;
    call->out[1] = call->out[0];
    call->out[1].dtype = TAP_I64;
}

tap_status tap__shape_output_size(tap__call *call, tap_error *err)
{
    const tap__attr *size = tap__call_attr(call, "output_size");
    const tap__operand *x = &call->in[0];
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    memcpy(sizes, x->size, sizeof sizes);
    if (size->count > x->ndim)
        return wrong(call, err);
    for (int i = 0; i < size->count; i++)
        sizes[x->ndim - size->count + i] = size->ints[i];
    TAP_TRY(set_sizes(call, x->dtype, x->ndim, sizes, err));
    indices_beside(call);
    return TAP_OK;
}

static int64_t number_for(const tap__call *call, const char *name, int i, int64_t otherwise)
{
    const tap__attr *attr = tap__call_attr(call, name);
    return attr->present && attr->count ? attr->ints[attr->count > i ? i : 0] : otherwise;
}

tap_status tap__shape_pool(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int spatial = (int)tap__call_attr(call, "spatial")->i;
    int64_t sizes[TAP_ENGINE_MAX_NDIM], up = tap__call_attr(call, "ceil_mode")->i;
    memcpy(sizes, x->size, sizeof sizes);
    for (int i = 0; i < spatial; i++) {
        int64_t kernel = number_for(call, "kernel_size", i, 1), stride = number_for(call, "stride", i, kernel);
        int64_t padding = number_for(call, "padding", i, 0), dilation = number_for(call, "dilation", i, 1);
        int dim = x->ndim - spatial + i;
        if (dim < 0 || kernel < 1 || stride < 1)
            return wrong(call, err);
        int64_t room = x->size[dim] + 2 * padding - dilation * (kernel - 1) - 1;
        int64_t count = (room + (up ? stride - 1 : 0)) / stride + 1;
        /* the last window must begin inside the input or its left border */
        if (up && (count - 1) * stride >= x->size[dim] + padding)
            count--;
        sizes[dim] = room < 0 ? -1 : count;
    }
    TAP_TRY(set_sizes(call, x->dtype, x->ndim, sizes, err));
    indices_beside(call);
    return TAP_OK;
}
