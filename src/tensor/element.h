/* element.h - one element of any dtype to and from numbers. The float decoders are branch-free integer and float
 * arithmetic, exact, and simple enough that compilers turn a loop over them into vector code. They expect subnormal
 * numbers to be honoured: see tap__float_mode_enter in float_mode.h. */
#ifndef TAP_TENSOR_ELEMENT_H
#define TAP_TENSOR_ELEMENT_H

#include "tensortap/tensortap.h"

#include <string.h>

static inline float tap__float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t tap__bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline double tap__double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static inline uint64_t tap__bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline float tap__decode_bf16(uint16_t h)
{
    return tap__float_of_bits((uint32_t)h << 16);
}

/* Moves exponent and fraction into place and corrects the bias by a multiplication, which makes subnormals right too. */
static inline float tap__decode_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, body = (uint32_t)(h & 0x7FFFu) << 13;
    float finite = tap__float_of_bits(body) * 0x1p112f;
    uint32_t special = 0x7F800000u | body;
    return tap__float_of_bits(sign | ((h & 0x7C00u) == 0x7C00u ? special : tap__bits_of_float(finite)));
}

static inline float tap__decode_f8e5m2(uint8_t b)
{
    return tap__decode_f16((uint16_t)(b << 8));
}

static inline float tap__decode_f8e4m3fn(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    float finite = tap__float_of_bits((uint32_t)(b & 0x7Fu) << 20) * 0x1p120f;
    return tap__float_of_bits(sign | ((b & 0x7Fu) == 0x7Fu ? 0x7FC00000u : tap__bits_of_float(finite)));
}

static inline float tap__decode_f8e4m3fnuz(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    float finite = tap__float_of_bits((uint32_t)(b & 0x7Fu) << 20) * 0x1p119f;
    return tap__float_of_bits(b == 0x80u ? 0x7FC00000u : sign | tap__bits_of_float(finite));
}

static inline float tap__decode_f8e5m2fnuz(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    float finite = tap__float_of_bits((uint32_t)(b & 0x7Fu) << 21) * 0x1p111f;
    return tap__float_of_bits(b == 0x80u ? 0x7FC00000u : sign | tap__bits_of_float(finite));
}

static inline float tap__decode_f8e8m0fnu(uint8_t b)
{
    return tap__float_of_bits(b == 0xFFu ? 0x7FC00000u : b ? (uint32_t)b << 23 : 0x00400000u);
}

/* nibble: 0 to 15 */
static inline float tap__decode_f4e2m1(unsigned nibble)
{
    float finite = tap__float_of_bits((nibble & 7u) << 22) * 0x1p126f;
    return tap__float_of_bits((nibble & 8u) << 28 | tap__bits_of_float(finite));
}

/* The magnitude of a complex number by the rule of tap_stats; the same bits on every machine. */
double tap__magnitude(double re, double im);

/* A number as it comes out of an element. */
typedef struct tap_scalar {
    char kind;      /* 'U' (bool too), 'I', 'F', 'C' */
    double re, im;  /* F, C */
    int64_t i;      /* I */
    uint64_t u;     /* U */
} tap_scalar;

/* half: which of the values of a packed element, 0 or 1. */
tap_scalar tap__element_get(tap_dtype dtype, const void *element, int half);
/* Rounds to nearest even; out of range: infinity or NaN as the type has it, integers saturate, NaN becomes 0. */
void tap__element_put(tap_dtype dtype, void *element, int half, const tap_scalar *value);
/* The value as float64, the magnitude of a complex one. */
double tap__scalar_float(const tap_scalar *value);

#endif
