/* pointwise_avx512.c - the kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#include "engine/kernels/vector_avx512.h"

#include <immintrin.h>
#include <stdint.h>

#define ISA avx512
#define ISA_NAME "avx512"
#define VB 64
#define FLOATS 16
#define DOUBLES 8
#define FUSED

static inline void widen_avx512(float *dst, const uint16_t *src)
{
    _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)src)));
}

static inline void narrow_avx512(uint16_t *dst, const float *src)
{
    _mm256_storeu_si256((__m256i_u *)dst, _mm512_cvtps_ph(_mm512_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT));
}
#define WIDEN_F16 widen_avx512
#define NARROW_F16 narrow_avx512

#include "engine/kernels/pointwise_kernel.inc"
