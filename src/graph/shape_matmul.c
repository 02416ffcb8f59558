/* shape_matmul.c - sizes of matrix products, convolutions and attention. */
#include "base/status.h"
#include "graph/shape.h"

/* a and b are a batch of matrices, a matrix, or one of them a vector. */
static tap_status shape_product(const tap__call *call, const tap__operand *a, const tap__operand *b,
                                tap__operand *out, tap_error *err)
{
    int rank = a->ndim > b->ndim ? a->ndim : b->ndim;
    int batched = rank == 3, inner = b->ndim == 1 ? 0 : b->ndim - 2;
    if (rank < 1 || rank > 3 || (batched && (a->ndim != 3 || b->ndim != 3 || a->size[0] != b->size[0])) ||
        a->ndim < 1 || b->ndim < 1 || a->size[a->ndim - 1] != b->size[inner])
        return tap_fail(err, TAP_E_INVALID, "%s: the sizes of the factors do not fit together", call->name);
    out->dtype = a->dtype;
    out->ndim = 0;
    if (batched)
        out->size[out->ndim++] = a->size[0];
    if (a->ndim > 1)
        out->size[out->ndim++] = a->size[a->ndim - 2];
    if (b->ndim > 1)
        out->size[out->ndim++] = b->size[b->ndim - 1];
    return TAP_OK;
}

tap_status tap__shape_mm(tap__call *call, tap_error *err)
{
    return shape_product(call, &call->in[0], &call->in[1], &call->out[0], err);
}

tap_status tap__shape_addmm(tap__call *call, tap_error *err)
{
    return shape_product(call, &call->in[1], &call->in[2], &call->out[0], err);
}

static int64_t list_at(const tap__attr *list, int i)
{
    return list->count == 0 ? 0 : list->ints[list->count == 1 ? 0 : i];
}

tap_status tap__shape_convolution(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *weight = &call->in[1];
    tap__operand *out = &call->out[0];
    const tap__attr *stride = tap__call_attr(call, "stride"), *padding = tap__call_attr(call, "padding"),
                    *dilation = tap__call_attr(call, "dilation"),
                    *output_padding = tap__call_attr(call, "output_padding");
    bool transposed = tap__call_attr(call, "transposed")->i != 0, fits = x->ndim == weight->ndim && x->ndim >= 3;
    int64_t groups = tap__call_attr(call, "groups")->i;
    if (fits)
        fits = groups > 0 && x->size[1] == (transposed ? weight->size[0] : weight->size[1] * groups);
    out->dtype = x->dtype;
    out->ndim = x->ndim;
    out->size[0] = x->size[0];
    out->size[1] = transposed ? weight->size[1] * groups : weight->size[0];
    for (int i = 2; fits && i < x->ndim; i++) {
        int64_t window = list_at(dilation, i - 2) * (weight->size[i] - 1) + 1, step = list_at(stride, i - 2);
        int64_t room = x->size[i] + 2 * list_at(padding, i - 2) - window;
        if (transposed)
            out->size[i] = (x->size[i] - 1) * step - 2 * list_at(padding, i - 2) + window +
                           list_at(output_padding, i - 2);
        else
            out->size[i] = step > 0 && room >= 0 ? room / step + 1 : -1;
        fits = out->size[i] >= 0;
    }
    if (!fits)
        return tap_fail(err, TAP_E_INVALID, "%s: the sizes of image, weight and window do not fit together",
                        call->name);
    return TAP_OK;
}

tap_status tap__shape_attention(tap__call *call, tap_error *err)
{
    const tap__operand *query = &call->in[0], *key = &call->in[1], *value = &call->in[2];
    if (query->ndim != 4 || key->ndim != 4 || value->ndim != 4 || query->size[3] != key->size[3] ||
        key->size[2] != value->size[2])
        return tap_fail(err, TAP_E_INVALID, "%s: the sizes of the factors do not fit together", call->name);
    call->out[0].dtype = query->dtype;
    call->out[0].ndim = 4;
    call->out[1].dtype = query->dtype == TAP_F64 ? TAP_F64 : TAP_F32;
    call->out[1].ndim = 3;
    for (int i = 0; i < 3; i++)
        call->out[0].size[i] = call->out[1].size[i] = query->size[i];
    call->out[0].size[3] = value->size[3];
    return TAP_OK;
}
