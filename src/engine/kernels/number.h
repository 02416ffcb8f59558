/* number.h - one element of a dtype as the C type it is computed in, for kernels written once for all dtypes. */
#ifndef TAP_ENGINE_NUMBER_H
#define TAP_ENGINE_NUMBER_H

#include "tensor/element.h"

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t tap__encode_bf16(float value)
{
    uint32_t bits = tap__bits_of_float(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

static inline uint16_t tap__encode_f16(float value)
{
    uint32_t bits = tap__bits_of_float(value), sign = bits >> 16 & 0x8000u, body = bits & 0x7FFFFFFFu;
    if (body > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (body >> 13 & 0x3FFu));
    if (body >= 0x477FF000u)
        return (uint16_t)(sign | 0x7C00u);
    if (body < 0x38800000u) {
        /* subnormal: adding 0.5 leaves the rounded fraction in the low bits */
        float shifted = tap__float_of_bits(body) + 0.5f;
        return (uint16_t)(sign | (tap__bits_of_float(shifted) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((body - 0x38000000u + 0xFFFu + (body >> 13 & 1u)) >> 13));
}

typedef struct tap__complex_float {
    float re, im;
} tap__complex_float;

typedef struct tap__complex_double {
    double re, im;
} tap__complex_double;

static inline tap__complex_float tap__add_complex_float(tap__complex_float a, tap__complex_float b)
{
    return (tap__complex_float){a.re + b.re, a.im + b.im};
}

static inline tap__complex_double tap__add_complex_double(tap__complex_double a, tap__complex_double b)
{
    return (tap__complex_double){a.re + b.re, a.im + b.im};
}

/* TAP__NUMBERS(X): X(suffix, stored type, computed type, load, store), for dtypes that can be compared and added. */
#define TAP__SAME(x) (x)
#define TAP__NUMBERS_UNSIGNED(X)                                                                                     \
    X(U8, uint8_t, uint8_t, TAP__SAME, (uint8_t))                                                                    \
    X(U16, uint16_t, uint16_t, TAP__SAME, (uint16_t))                                                                \
    X(U32, uint32_t, uint32_t, TAP__SAME, TAP__SAME)                                                                 \
    X(U64, uint64_t, uint64_t, TAP__SAME, TAP__SAME)
#define TAP__NUMBERS_SIGNED(X)                                                                                       \
    X(I8, int8_t, int8_t, TAP__SAME, (int8_t))                                                                       \
    X(I16, int16_t, int16_t, TAP__SAME, (int16_t))                                                                   \
    X(I32, int32_t, int32_t, TAP__SAME, TAP__SAME)                                                                   \
    X(I64, int64_t, int64_t, TAP__SAME, TAP__SAME)
#define TAP__NUMBERS_INT(X) TAP__NUMBERS_UNSIGNED(X) TAP__NUMBERS_SIGNED(X)
#define TAP__NUMBERS_FLOAT(X)                                                                                        \
    X(F16, uint16_t, float, tap__decode_f16, tap__encode_f16)                                                        \
    X(BF16, uint16_t, float, tap__decode_bf16, tap__encode_bf16)                                                     \
    X(F32, float, float, TAP__SAME, TAP__SAME)                                                                       \
    X(F64, double, double, TAP__SAME, TAP__SAME)

#endif
