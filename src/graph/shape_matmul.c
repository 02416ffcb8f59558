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
