/* promote.c - the dtype ATen computes in. Tensors with dimensions decide; 0-d tensors and then numbers only when they
 * are of a higher category (bool, integer, float, complex). */
#include "graph/shape.h"

enum { NONE, BOOLEAN, INTEGER, FLOATING, COMPLEX };

static int category(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (!info)
        return NONE;
    return info->kind == 'B' ? BOOLEAN : info->kind == 'F' ? FLOATING : info->kind == 'C' ? COMPLEX : INTEGER;
}

static int bytes(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->bytes;
}

static bool is_unsigned(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->kind == 'U';
}

static tap_dtype promote_integers(tap_dtype a, tap_dtype b)
{
    if (is_unsigned(a) == is_unsigned(b))
        return bytes(a) >= bytes(b) ? a : b;
    tap_dtype of_sign = is_unsigned(a) ? b : a, without = is_unsigned(a) ? a : b;
    if (without != TAP_U8) /* ATen has no rule for the wider unsigned ones */
        return TAP_DTYPE_NONE;
    return of_sign == TAP_I8 ? TAP_I16 : of_sign;
}

/* 8-bit and packed floats mix with nothing */
static bool is_small(tap_dtype dtype)
{
    return dtype >= TAP_F8E4M3FN;
}

static tap_dtype promote_floats(tap_dtype a, tap_dtype b)
{
    if (is_small(a) || is_small(b))
        return TAP_DTYPE_NONE;
    if (bytes(a) == bytes(b)) /* float16 and bfloat16 */
        return TAP_F32;
    return bytes(a) > bytes(b) ? a : b;
}

static tap_dtype as_complex(tap_dtype real)
{
    return real == TAP_F64 ? TAP_C128 : real == TAP_F16 ? TAP_C32 : TAP_C64;
}

static tap_dtype promote_complex(tap_dtype a, tap_dtype b)
{
    tap_dtype ca = category(a) == COMPLEX ? a : category(a) == FLOATING ? as_complex(a) : TAP_DTYPE_NONE;
    tap_dtype cb = category(b) == COMPLEX ? b : category(b) == FLOATING ? as_complex(b) : TAP_DTYPE_NONE;
    if (!ca || !cb)
        return ca ? ca : cb;
    return bytes(ca) >= bytes(cb) ? ca : cb;
}

tap_dtype tap__promote_two(tap_dtype a, tap_dtype b)
{
    int ka = category(a), kb = category(b);
    if (a == b || kb == NONE)
        return a;
    if (ka == NONE)
        return b;
    if (ka == COMPLEX || kb == COMPLEX)
        return promote_complex(a, b);
    if (ka == FLOATING && kb == FLOATING)
        return promote_floats(a, b);
    if (ka == INTEGER && kb == INTEGER)
        return promote_integers(a, b);
    return ka > kb ? a : b;
}

/* higher has the say; lower only when its category is above. */
static tap_dtype combine(tap_dtype higher, tap_dtype lower)
{
    int kh = category(higher), kl = category(lower);
    if (kh == COMPLEX || kl == NONE)
        return higher;
    if (kh == NONE)
        return lower;
    if (kh == FLOATING)
        return kl == COMPLEX ? as_complex(higher) : higher;
    return kh == BOOLEAN || kl >= FLOATING ? tap__promote_two(higher, lower) : higher;
}

static tap_dtype of_number(const tap__operand *operand)
{
    switch (operand->number.kind) {
    case 'B': return TAP_BOOL;
    case 'I': return TAP_I64;
    case 'C': return TAP_C64;
    default: return TAP_F32;
    }
}

tap_dtype tap__promote(const tap__operand *operands, int count)
{
    tap_dtype dimensioned = TAP_DTYPE_NONE, zero = TAP_DTYPE_NONE, number = TAP_DTYPE_NONE;
    for (int i = 0; i < count; i++) {
        const tap__operand *at = &operands[i];
        if (at->dtype == TAP_DTYPE_NONE)
            continue;
        tap_dtype *into = at->is_number ? &number : at->ndim ? &dimensioned : &zero;
        tap_dtype dtype = at->is_number ? of_number(at) : at->dtype;
        bool first = *into == TAP_DTYPE_NONE;
        *into = first ? dtype : tap__promote_two(*into, dtype);
        if (*into == TAP_DTYPE_NONE)
            return TAP_DTYPE_NONE;
    }
    return combine(dimensioned, combine(zero, number));
}
