/* element.c - single elements: any dtype to a number and back. */
#include "tensor/element.h"

#include <math.h>

/* A small float format: what encoding needs to know. */
typedef struct small_format {
    int exponent_bits, fraction_bits, bias;
    enum { HAS_INFINITY, NAN_AT_TOP, UNSIGNED_ZERO, SATURATES } special;
} small_format;

static const small_format F16 = {5, 10, 15, HAS_INFINITY};
static const small_format BF16 = {8, 7, 127, HAS_INFINITY};
static const small_format E5M2 = {5, 2, 15, HAS_INFINITY};
static const small_format E4M3FN = {4, 3, 7, NAN_AT_TOP};
static const small_format E4M3FNUZ = {4, 3, 8, UNSIGNED_ZERO};
static const small_format E5M2FNUZ = {5, 2, 16, UNSIGNED_ZERO};
static const small_format E2M1 = {2, 1, 1, SATURATES};

static unsigned encode_special(const small_format *to, unsigned sign, bool is_nan)
{
    unsigned top = (1u << (to->exponent_bits + to->fraction_bits)) - 1;
    switch (to->special) {
    case HAS_INFINITY: {
        unsigned infinity = top & ~((1u << to->fraction_bits) - 1);
        return sign | infinity | (is_nan ? 1u << (to->fraction_bits - 1) : 0);
    }
    case NAN_AT_TOP: return sign | top;
    case UNSIGNED_ZERO: return top + 1;
    default: return is_nan ? top + 1 : sign | top;
    }
}

/* Rounds the fraction to nearest even as an integer: a carry walks into the exponent by itself. */
static unsigned encode_small(const small_format *to, double value)
{
    uint64_t bits = tap__bits_of_double(value);
    unsigned sign = (unsigned)(bits >> 63) << (to->exponent_bits + to->fraction_bits);
    if (!isfinite(value))
        return encode_special(to, sign, isnan(value));
    if (value == 0)
        return to->special == UNSIGNED_ZERO ? 0 : sign;
    int exponent;
    uint64_t fraction = (uint64_t)ldexp(frexp(fabs(value), &exponent), 53); /* 53 bits, the top one set */
    int field = exponent - 1 + to->bias;
    int drop = 52 - to->fraction_bits + (field < 1 ? 1 - field : 0);
    if (drop > 63)
        return to->special == UNSIGNED_ZERO ? 0 : sign;
    uint64_t kept = fraction >> drop, rest = fraction & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    if (field > 1)
        kept += (uint64_t)(field - 1) << to->fraction_bits;
    uint64_t top = (UINT64_C(1) << (to->exponent_bits + to->fraction_bits)) - 1;
    uint64_t largest = to->special == HAS_INFINITY ? top - (UINT64_C(1) << to->fraction_bits)
                       : to->special == NAN_AT_TOP ? top - 1
                                                   : top;
    if (kept > largest)
        return encode_special(to, sign, false);
    return kept == 0 && to->special == UNSIGNED_ZERO ? 0 : sign | (unsigned)kept;
}

/* Powers of two only, no zero, no sign: the nearest, ties up, zero becomes the smallest, as torch does it. */
static unsigned encode_e8m0(double value)
{
    if (!(value > 0) || isinf(value))
        return value == 0 ? 0 : 0xFF;
    int exponent;
    double fraction = frexp(value, &exponent); /* 0.5 <= fraction < 1 */
    int field = exponent - 1 + 127;
    field += fraction >= 0.75;
    if (field < 0)
        return 0;
    return field > 254 ? 0xFF : (unsigned)field;
}

double tap__magnitude(double re, double im)
{
    double square = re * re + im * im;
    if (square > 0x1p-800 && square < 0x1p1000)
        return sqrt(square);
    if (isnan(re) || isnan(im))
        return (double)NAN;
    if (isinf(re) || isinf(im))
        return (double)INFINITY;
    double big = fmax(fabs(re), fabs(im)), scale = big > 1 ? 0x1p-600 : 0x1p600;
    re *= scale;
    im *= scale;
    return sqrt(re * re + im * im) / scale;
}

static uint64_t load_bits(const void *element, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, element, bytes);
    return bits;
}

static float load_float(const void *element)
{
    return tap__float_of_bits((uint32_t)load_bits(element, 4));
}

static double load_double(const void *element)
{
    return tap__double_of_bits(load_bits(element, 8));
}

static double decode_float(tap_dtype dtype, const void *element, int half)
{
    const uint8_t *byte = element;
    switch (dtype) {
    case TAP_F16: return (double)tap__decode_f16((uint16_t)load_bits(element, 2));
    case TAP_BF16: return (double)tap__decode_bf16((uint16_t)load_bits(element, 2));
    case TAP_F32: return (double)load_float(element);
    case TAP_F64: return load_double(element);
    case TAP_F8E4M3FN: return (double)tap__decode_f8e4m3fn(*byte);
    case TAP_F8E5M2: return (double)tap__decode_f8e5m2(*byte);
    case TAP_F8E4M3FNUZ: return (double)tap__decode_f8e4m3fnuz(*byte);
    case TAP_F8E5M2FNUZ: return (double)tap__decode_f8e5m2fnuz(*byte);
    case TAP_F8E8M0FNU: return (double)tap__decode_f8e8m0fnu(*byte);
    default: return (double)tap__decode_f4e2m1(half ? *byte >> 4 : *byte & 15u);
    }
}

tap_scalar tap__element_get(tap_dtype dtype, const void *element, int half)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    tap_scalar out = {.kind = info->kind};
    const char *second = (const char *)element + info->bytes / 2;
    switch (info->kind) {
    case 'B':
        out.kind = 'U';
        out.u = *(const uint8_t *)element != 0;
        break;
    case 'U': out.u = load_bits(element, info->bytes); break;
    case 'I': {
        int shift = 64 - 8 * info->bytes;
        out.i = (int64_t)(load_bits(element, info->bytes) << shift) >> shift;
        break;
    }
    case 'F': out.re = decode_float(dtype, element, half); break;
    default: {
        tap_dtype part = dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : TAP_F64;
        out.re = decode_float(part, element, 0);
        out.im = decode_float(part, second, 0);
    }
    }
    return out;
}

double tap__scalar_float(const tap_scalar *value)
{
    switch (value->kind) {
    case 'U': return (double)value->u;
    case 'I': return (double)value->i;
    case 'F': return value->re;
    default: return tap__magnitude(value->re, value->im);
    }
}

/* Rounded to odd, so that a second rounding to a narrower float is right. */
static double magnitude_to_odd(uint64_t u)
{
    int shift = u >> 53 ? 11 - __builtin_clzll(u) : 0;
    uint64_t lost = u & ((UINT64_C(1) << shift) - 1);
    return ldexp((double)(u >> shift | (lost != 0)), shift);
}

static double scalar_to_odd(const tap_scalar *value)
{
    if (value->kind == 'U')
        return magnitude_to_odd(value->u);
    if (value->kind == 'I')
        return value->i < 0 ? -magnitude_to_odd(0 - (uint64_t)value->i) : magnitude_to_odd((uint64_t)value->i);
    return value->re;
}

static void put_float(tap_dtype dtype, void *element, int half, double value)
{
    uint64_t bits;
    size_t bytes = tap_dtype_describe(dtype)->bytes;
    switch (dtype) {
    case TAP_F16: bits = encode_small(&F16, value); break;
    case TAP_BF16: bits = encode_small(&BF16, value); break;
    case TAP_F32: bits = tap__bits_of_float((float)value); break;
    case TAP_F64: bits = tap__bits_of_double(value); break;
    case TAP_F8E4M3FN: bits = encode_small(&E4M3FN, value); break;
    case TAP_F8E5M2: bits = encode_small(&E5M2, value); break;
    case TAP_F8E4M3FNUZ: bits = encode_small(&E4M3FNUZ, value); break;
    case TAP_F8E5M2FNUZ: bits = encode_small(&E5M2FNUZ, value); break;
    case TAP_F8E8M0FNU: bits = encode_e8m0(value); break;
    default: {
        unsigned nibble = encode_small(&E2M1, value), old = *(uint8_t *)element;
        bits = half ? (old & 0x0Fu) | nibble << 4 : (old & 0xF0u) | nibble;
    }
    }
    memcpy(element, &bits, bytes);
}

static uint64_t to_unsigned(const tap_scalar *value, unsigned bits)
{
    uint64_t top = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (value->kind == 'U')
        return value->u & top;
    if (value->kind == 'I')
        return (uint64_t)value->i & top;
    if (!(value->re > 0))
        return 0;
    return value->re >= ldexp(1, (int)bits) ? top : (uint64_t)value->re;
}

static uint64_t to_signed(const tap_scalar *value, unsigned bits)
{
    if (value->kind == 'U')
        return value->u;
    if (value->kind == 'I')
        return (uint64_t)value->i;
    double limit = ldexp(1, (int)bits - 1);
    int64_t top = (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
    if (isnan(value->re))
        return 0;
    if (value->re >= limit)
        return (uint64_t)top;
    return value->re <= -limit ? (uint64_t)(-top - 1) : (uint64_t)(int64_t)value->re;
}

void tap__element_put(tap_dtype dtype, void *element, int half, const tap_scalar *value)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    uint64_t bits;
    switch (info->kind) {
    case 'B': {
        bool zero = value->kind == 'U'   ? value->u == 0
                    : value->kind == 'I' ? value->i == 0
                                         : value->re == 0 && value->im == 0;
        *(uint8_t *)element = !zero;
        return;
    }
    case 'U':
        bits = to_unsigned(value, 8u * info->bytes);
        memcpy(element, &bits, info->bytes);
        return;
    case 'I':
        bits = to_signed(value, 8u * info->bytes);
        memcpy(element, &bits, info->bytes);
        return;
    default: break;
    }
    /* float64 holds the nearest value directly; narrower types need the one rounding to be theirs */
    tap_dtype part = dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : dtype == TAP_C128 ? TAP_F64 : dtype;
    double re = part != TAP_F64 ? scalar_to_odd(value) : value->kind == 'C' ? value->re : tap__scalar_float(value);
    put_float(part, element, half, re);
    if (info->kind == 'C')
        put_float(part, (char *)element + info->bytes / 2, 0, value->kind == 'C' ? value->im : 0.0);
}
