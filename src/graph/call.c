/* call.c - small questions a kernel or a shape rule asks of its call. */
#include "graph/call.h"

#include <string.h>

const tap__attr *tap__call_attr(const tap__call *call, const char *name)
{
    static const tap__attr none;
    const tap_op *op = call->op;
    for (int i = op->ninputs; i < op->nparams; i++)
        if (strcmp(op->params[i].name, name) == 0)
            return &call->attrs[i - op->ninputs];
    return &none;
}

int64_t tap__operand_count(const tap__operand *operand)
{
    int64_t count = 1;
    for (int i = 0; i < operand->ndim; i++)
        count *= operand->size[i];
    return count;
}

size_t tap__operand_bytes(const tap__operand *operand)
{
    int64_t last = 0;
    for (int i = 0; i < operand->ndim; i++) {
        if (operand->size[i] == 0)
            return 0;
        last += (operand->size[i] - 1) * operand->stride[i];
    }
    return (size_t)(last + 1) * tap_dtype_describe(operand->dtype)->bytes;
}

bool tap__operand_same_sizes(const tap__operand *a, const tap__operand *b)
{
    return a->ndim == b->ndim && memcmp(a->size, b->size, (size_t)a->ndim * sizeof a->size[0]) == 0;
}

bool tap__operand_same_layout(const tap__operand *a, const tap__operand *b)
{
    if (!tap__operand_same_sizes(a, b))
        return false;
    if (memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof a->stride[0]) == 0)
        return true;
    for (int i = 0; i < a->ndim; i++)
        if (a->size[i] == 0)
            return true;
    for (int i = 0; i < a->ndim; i++)
        if (a->size[i] != 1 && a->stride[i] != b->stride[i])
            return false;
    return true;
}

tap_dtype tap__number_dtype(const tap__number *number)
{
    return number->kind == 'B' ? TAP_BOOL : number->kind == 'I' ? TAP_I64 : number->kind == 'F' ? TAP_F64 : TAP_C128;
}

bool tap__operand_is_contiguous(const tap__operand *operand)
{
    int64_t expected = 1;
    for (int i = operand->ndim - 1; i >= 0; i--) {
        if (operand->size[i] == 0)
            return true;
        if (operand->size[i] != 1 && operand->stride[i] != expected)
            return false;
        expected *= operand->size[i];
    }
    return true;
}

tap_tensor tap__operand_view(const tap__operand *operand, void *data)
{
    return (tap_tensor){.data = data, .dtype = operand->dtype, .ndim = operand->ndim, .shape = operand->size,
                        .strides = operand->stride};
}
