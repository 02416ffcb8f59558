/* pointwise_avx2.c - the kernels for x86-64 with AVX2, FMA and F16C. */
#include "engine/kernels/vector_avx2.h"

#include <immintrin.h>
#include <stdint.h>

#define ISA avx2
#define ISA_NAME "avx2"
#define VB 32
#define FLOATS 8
#define DOUBLES 4
#define FUSED

static inline void widen_avx2(float *dst, const uint16_t *src)
{
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(src + i))));
}

static inline void narrow_avx2(uint16_t *dst, const float *src)
{
    for (int i = 0; i < 16; i += 8)
        _mm_storeu_si128((__m128i_u *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
}
#define WIDEN_F16 widen_avx2
#define NARROW_F16 narrow_avx2

#include "engine/kernels/pointwise_kernel.inc"
