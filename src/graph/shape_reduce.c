/* shape_reduce.c - shape rules of reductions, softmax, norms and losses. */
#include "graph/shape_reduce.h"

#include "base/status.h"
#include "graph/shape.h"

#include <string.h>

static tap_status bad_axis(const tap__call *call, int64_t axis, tap_error *err)
{
    return tap_fail(err, TAP_E_INVALID, "%s: axis %lld does not fit %d dimensions", call->name, (long long)axis,
                    (int)call->in[0].ndim);
}

static tap_status mark(const tap__call *call, int64_t axis, bool *mask, tap_error *err)
{
    int ndim = call->in[0].ndim;
    int64_t at = axis < 0 ? axis + ndim : axis;
    if (ndim == 0 && (axis == 0 || axis == -1))
        return TAP_OK;
    if (at < 0 || at >= ndim || mask[at])
        return bad_axis(call, axis, err);
    mask[at] = true;
    return TAP_OK;
}

/* Every output has the sizes of the first input without the marked dimensions. */
static void reduce_sizes(tap__call *call, const bool *mask, tap_dtype dtype)
{
    const tap__operand *x = &call->in[0];
    bool keep = tap__call_attr(call, "keep_dims")->i;
    for (int k = 0; k < call->nout; k++) {
        tap__operand *out = &call->out[k];
        out->dtype = dtype;
        out->ndim = 0;
        for (int i = 0; i < x->ndim; i++)
            if (!mask[i] || keep)
                out->size[out->ndim++] = mask[i] ? 1 : x->size[i];
    }
}

/* empty_is_none: an empty list of axes means no dimension, not all of them. */
static tap_status reduce_axes(tap__call *call, bool empty_is_none, tap_dtype dtype, tap_error *err)
{
    const tap__attr *axes = tap__call_attr(call, "axes");
    bool mask[TAP_ENGINE_MAX_NDIM] = {false};
    if (!axes->present || (axes->count == 0 && !empty_is_none))
        memset(mask, 1, sizeof mask);
    else
        for (int i = 0; i < axes->count; i++)
            TAP_TRY(mark(call, axes->ints[i], mask, err));
    reduce_sizes(call, mask, dtype);
    return TAP_OK;
}

static tap_status reduce_axis(tap__call *call, tap_dtype dtype, tap_error *err)
{
    const tap__attr *axis = tap__call_attr(call, "axis");
    bool mask[TAP_ENGINE_MAX_NDIM] = {false};
    if (axis->present)
        TAP_TRY(mark(call, axis->i, mask, err));
    else
        memset(mask, 1, sizeof mask);
    reduce_sizes(call, mask, dtype);
    return TAP_OK;
}

static bool has_attr(const tap__call *call, const char *name)
{
    for (int i = call->op->ninputs; i < call->op->nparams; i++)
        if (strcmp(call->op->params[i].name, name) == 0)
            return true;
    return false;
}

/* What a sum of this dtype is given as: integers as int64. */
static tap_dtype sum_dtype(const tap__call *call)
{
    tap_dtype dtype = call->in[0].dtype;
    const tap__attr *asked = tap__call_attr(call, "dtype");
    if (asked->present)
        return (tap_dtype)asked->i;
    return strchr("BUI", tap_dtype_describe(dtype)->kind) ? TAP_I64 : dtype;
}

tap_status tap__shape_reduce(tap__call *call, tap_error *err)
{
    return reduce_axes(call, false, has_attr(call, "dtype") ? sum_dtype(call) : call->in[0].dtype, err);
}

tap_status tap__shape_reduce_bool(tap__call *call, tap_error *err)
{
    return reduce_axes(call, true, call->in[0].dtype == TAP_U8 ? TAP_U8 : TAP_BOOL, err);
}

tap_status tap__shape_reduce_int(tap__call *call, tap_error *err)
{
    return reduce_axes(call, false, TAP_I64, err);
}

tap_status tap__shape_arg(tap__call *call, tap_error *err)
{
    return reduce_axis(call, TAP_I64, err);
}

tap_status tap__shape_min_max(tap__call *call, tap_error *err)
{
    return reduce_axis(call, call->in[0].dtype, err);
}

tap_status tap__shape_best(tap__call *call, tap_error *err)
{
    TAP_TRY(reduce_axis(call, call->in[0].dtype, err));
    call->out[1].dtype = TAP_I64;
    return TAP_OK;
}

tap_status tap__shape_scalar(tap__call *call, tap_error *err)
{
    (void)err;
    call->out[0].dtype = sum_dtype(call);
    call->out[0].ndim = 0;
    return TAP_OK;
}

static void copy_sizes(tap__operand *out, const tap__operand *from, tap_dtype dtype)
{
    out->dtype = dtype;
    out->ndim = from->ndim;
    memcpy(out->size, from->size, sizeof out->size);
}

tap_status tap__shape_softmax(tap__call *call, tap_error *err)
{
    const tap__attr *asked = tap__call_attr(call, "dtype");
    tap_dtype dtype = call->in[0].dtype;
    (void)err;
    if (asked->present)
        dtype = (tap_dtype)asked->i;
    else if (tap__call_attr(call, "half_to_float")->i)
        dtype = TAP_F32;
    copy_sizes(&call->out[0], &call->in[0], dtype);
    return TAP_OK;
}

tap_status tap__shape_running(tap__call *call, tap_error *err)
{
    (void)err;
    copy_sizes(&call->out[0], &call->in[0], has_attr(call, "dtype") ? sum_dtype(call) : call->in[0].dtype);
    if (call->nout > 1)
        copy_sizes(&call->out[1], &call->in[0], TAP_I64);
    return TAP_OK;
}

/* Statistics of half floats with wider parameters are kept in float32. */
static tap_dtype stats_dtype(const tap__call *call)
{
    tap_dtype dtype = call->in[0].dtype;
    for (int i = 1; i < call->nin; i++)
        if (call->in[i].dtype == TAP_F32 && (dtype == TAP_F16 || dtype == TAP_BF16))
            return TAP_F32;
    return dtype;
}

tap_status tap__shape_layer_norm(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int axis = x->ndim - tap__call_attr(call, "normalized_shape")->count;
    if (axis < 0)
        return bad_axis(call, axis, err);
    copy_sizes(&call->out[0], x, x->dtype);
    for (int k = 1; k < call->nout; k++) {
        copy_sizes(&call->out[k], x, stats_dtype(call));
        for (int i = axis; i < x->ndim; i++)
            call->out[k].size[i] = 1;
    }
    return TAP_OK;
}

tap_status tap__shape_group_norm(tap__call *call, tap_error *err)
{
    (void)err;
    copy_sizes(&call->out[0], &call->in[0], call->in[0].dtype);
    for (int k = 1; k < call->nout; k++)
        call->out[k] = (tap__operand){.dtype = stats_dtype(call), .ndim = 2,
                                      .size = {tap__call_attr(call, "N")->i, tap__call_attr(call, "group")->i}};
    return TAP_OK;
}

tap_status tap__shape_batch_norm(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0];
    if (x->ndim < 2)
        return bad_axis(call, 1, err);
    /* where the running statistics are used there are none of this call's own */
    int64_t channels = tap__call_attr(call, "training")->i || call->nout != 3 ? x->size[1] : 0;
    copy_sizes(&call->out[0], x, x->dtype);
    for (int k = 1; k < call->nout; k++)
        call->out[k] = (tap__operand){.dtype = stats_dtype(call), .ndim = 1, .size = {channels}};
    return TAP_OK;
}

tap_status tap__shape_like_second(tap__call *call, tap_error *err)
{
    (void)err;
    copy_sizes(&call->out[0], &call->in[1], call->in[1].dtype);
    return TAP_OK;
}

/* The input is the second operand; weight and bias have the sizes of an operand called weight, else of the channels. */
tap_status tap__shape_norm_grad(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[1], *weight = NULL;
    (void)err;
    for (int i = 0; i < call->nin; i++)
        if (strcmp(call->op->params[i].name, "weight") == 0 && call->in[i].dtype != TAP_DTYPE_NONE)
            weight = &call->in[i];
    copy_sizes(&call->out[0], x, x->dtype);
    for (int k = 1; k < call->nout; k++)
        if (weight)
            copy_sizes(&call->out[k], weight, weight->dtype);
        else
            call->out[k] = (tap__operand){.dtype = x->dtype, .ndim = 1, .size = {x->ndim > 1 ? x->size[1] : 1}};
    return TAP_OK;
}

tap_status tap__shape_loss(tap__call *call, tap_error *err)
{
    int nout = call->nout;
    TAP_TRY(tap__shape_broadcast(call, err));
    if (tap__call_attr(call, "reduction")->i != 0)
        for (int k = 0; k < nout; k++)
            call->out[k].ndim = 0;
    return TAP_OK;
}

tap_status tap__shape_nll_loss(tap__call *call, tap_error *err)
{
    (void)err;
    copy_sizes(&call->out[0], &call->in[1], call->in[0].dtype);
    if (tap__call_attr(call, "reduction")->i != 0)
        call->out[0].ndim = 0;
    call->out[1] = (tap__operand){.dtype = call->in[0].dtype};
    return TAP_OK;
}
