/* pointwise_neon.c - the kernels for 64-bit ARM. */
#include "engine/kernels/vector_neon.h"

#include <arm_neon.h>
#include <stdint.h>

#define ISA neon
#define ISA_NAME "neon"
#define VB 16
#define FLOATS 4
#define DOUBLES 2
#define FUSED

static inline void widen_neon(float *dst, const uint16_t *src)
{
    for (int i = 0; i < 16; i += 4)
        vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src + i))));
}

static inline void narrow_neon(uint16_t *dst, const float *src)
{
    for (int i = 0; i < 16; i += 4)
        vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
}
#define WIDEN_F16 widen_neon
#define NARROW_F16 narrow_neon

#include "engine/kernels/pointwise_kernel.inc"
