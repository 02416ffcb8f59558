/* shape.c - the shape rules every family shares. */
#include "graph/shape.h"

#include "base/status.h"

#include <string.h>

tap_status tap__shape_same(tap__call *call, tap_error *err)
{
    if (call->nin < 1 || call->in[0].is_number)
        return tap_fail(err, TAP_E_INVALID, "%s: its first input must be a tensor", call->name);
    for (int i = 0; i < call->nout; i++)
        call->out[i] = call->in[0];
    return TAP_OK;
}

static tap_status widen(tap__call *call, const tap__operand *in, tap_error *err)
{
    tap__operand *out = &call->out[0];
    if (in->ndim > out->ndim) {
        int32_t more = in->ndim - out->ndim;
        memmove(out->size + more, out->size, sizeof out->size[0] * (size_t)out->ndim);
        for (int32_t i = 0; i < more; i++)
            out->size[i] = 1;
        out->ndim = in->ndim;
    }
    for (int32_t i = 0; i < in->ndim; i++) {
        int64_t *at = &out->size[out->ndim - in->ndim + i], size = in->size[i];
        if (*at != size && *at != 1 && size != 1)
            return tap_fail(err, TAP_E_INVALID, "%s: sizes %lld and %lld do not broadcast", call->name, (long long)*at,
                            (long long)size);
        if (*at == 1)
            *at = size;
    }
    return TAP_OK;
}

/* Whether integers stay what they are; the other operators are functions of real numbers. */
static bool keeps_integers(const tap__call *call)
{
    switch (call->op->code) {
    case TAP_PW_Abs: case TAP_PW_Add: case TAP_PW_Addcmul: case TAP_PW_BitwiseAnd: case TAP_PW_BitwiseNot:
    case TAP_PW_BitwiseOr: case TAP_PW_BitwiseXor: case TAP_PW_Ceil: case TAP_PW_Clamp: case TAP_PW_Conj:
    case TAP_PW_Floor: case TAP_PW_FloorDiv: case TAP_PW_Fmax: case TAP_PW_Fmin: case TAP_PW_Fmod: case TAP_PW_Gcd:
    case TAP_PW_Heaviside: case TAP_PW_Maximum: case TAP_PW_Minimum: case TAP_PW_Mul: case TAP_PW_NanToNum:
    case TAP_PW_Neg: case TAP_PW_Pow: case TAP_PW_Relu: case TAP_PW_Remainder: case TAP_PW_Round: case TAP_PW_Rsub:
    case TAP_PW_ShiftLeft: case TAP_PW_ShiftRight: case TAP_PW_Sign: case TAP_PW_Square: case TAP_PW_Sub:
    case TAP_PW_Threshold: case TAP_PW_ThresholdGrad: case TAP_PW_Trunc:
        return true;
    case TAP_PW_Div:
        return tap__call_attr(call, "rounding_mode")->present;
    default:
        return false;
    }
}

/* What the result is when it is not of the operands' common dtype. */
static tap_dtype result_dtype(const tap__call *call)
{
    const tap_op *op = call->op;
    switch (op->code) {
    case TAP_PW_Equal: case TAP_PW_NotEqual: case TAP_PW_Less: case TAP_PW_LessEqual: case TAP_PW_Greater:
    case TAP_PW_GreaterEqual: case TAP_PW_LogicalAnd: case TAP_PW_LogicalOr: case TAP_PW_LogicalXor:
    case TAP_PW_LogicalNot: case TAP_PW_IsNan: case TAP_PW_IsInf: case TAP_PW_IsFinite: case TAP_PW_IsPosInf:
    case TAP_PW_IsNegInf: case TAP_PW_Signbit:
        return TAP_BOOL;
    case TAP_PW_Where:
        return tap__promote(call->in + 1, call->nin - 1);
    case TAP_PW_MaskedFill:
        return call->in[0].dtype;
    case TAP_PW_Complex:
        return call->in[0].dtype == TAP_F64 ? TAP_C128 : TAP_C64;
    case TAP_PW_Fill: { /* as torch.full: the number decides */
        char kind = tap__call_attr(call, "value")->scalar.kind;
        return kind == 'B' ? TAP_BOOL : kind == 'I' ? TAP_I64 : kind == 'C' ? TAP_C64 : TAP_F32;
    }
    case TAP_PW_Cast: {
        const tap__attr *dtype = tap__call_attr(call, "dtype");
        return dtype->present ? (tap_dtype)dtype->i : call->in[0].dtype;
    }
    default:
        break;
    }
    tap_dtype common = tap__promote(call->in, call->nin);
    const tap_dtype_info *info = tap_dtype_describe(common);
    if (!info)
        return common;
    if (op->code == TAP_PW_Abs && info->kind == 'C')
        return common == TAP_C128 ? TAP_F64 : common == TAP_C64 ? TAP_F32 : TAP_F16;
    bool integral = info->kind != 'F' && info->kind != 'C';
    return integral && !keeps_integers(call) ? TAP_F32 : common;
}

tap_status tap__shape_broadcast(tap__call *call, tap_error *err)
{
    call->out[0] = (tap__operand){.ndim = 0};
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].dtype != TAP_DTYPE_NONE && !call->in[i].is_number)
            TAP_TRY(widen(call, &call->in[i], err));
    call->out[0].dtype = result_dtype(call);
    if (call->out[0].dtype == TAP_DTYPE_NONE)
        return tap_fail(err, TAP_E_INVALID, "%s: its inputs have no common dtype", call->name);
    return TAP_OK;
}
