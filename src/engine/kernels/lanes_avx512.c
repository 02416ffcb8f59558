/* lanes_avx512.c - the loops for x86-64 with AVX-512 F, BW, DQ and VL. */
#include "engine/kernels/vector_avx512.h"

#include <immintrin.h>
#include <stdint.h>

#define ISA avx512
#define ISA_NAME "avx512"
#define VB 64
/* these instructions give the second operand when one is NaN */
#define MAX_F32(x, best) VHIGH32(x, best)
#define MIN_F32(x, best) VLOW32(x, best)
#define MAX_F64(x, best) ((vf64)_mm512_max_pd((__m512d)(x), (__m512d)(best)))
#define MIN_F64(x, best) ((vf64)_mm512_min_pd((__m512d)(x), (__m512d)(best)))
#define NAN_OF_F32(x, y)                                                                                             \
    ((vf32)_mm512_mask_mov_ps((__m512)(y), _mm512_cmp_ps_mask((__m512)(x), (__m512)(x), _CMP_UNORD_Q), (__m512)(x)))
#define NAN_OF_F64(x, y)                                                                                             \
    ((vf64)_mm512_mask_mov_pd((__m512d)(y), _mm512_cmp_pd_mask((__m512d)(x), (__m512d)(x), _CMP_UNORD_Q),            \
                              (__m512d)(x)))

#define WIDEN_F16
static void widen_f16(float *dst, const void *src, int64_t n)
{
    const uint16_t *h = src;
    for (; n >= 16; n -= 16, h += 16, dst += 16)
        _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h)));
    if (n > 0) {
        __mmask16 there = (__mmask16)((1u << n) - 1);
        _mm512_mask_storeu_ps(dst, there, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, h)));
    }
}

static void narrow_f16(void *dst, const float *src, int64_t n)
{
    uint16_t *h = dst;
    for (; n >= 16; n -= 16, h += 16, src += 16)
        _mm256_storeu_si256((__m256i *)(void *)h, _mm512_cvtps_ph(_mm512_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT));
    if (n > 0) {
        __mmask16 there = (__mmask16)((1u << n) - 1);
        _mm256_mask_storeu_epi16(h, there,
                                 _mm512_cvtps_ph(_mm512_maskz_loadu_ps(there, src), _MM_FROUND_TO_NEAREST_INT));
    }
}
#include "engine/kernels/lanes_kernel.inc"
