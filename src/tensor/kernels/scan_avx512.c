/* scan_avx512.c - the kernels for x86-64 with AVX-512 F, BW, DQ and VL. */
#include <immintrin.h>

#define ISA avx512
#define ISA_NAME "avx512"
#define VB 64
#define VD 32 /* widening float to double is faster in halves */
#include "tensor/kernels/vector.inc"

/* these instructions give the second operand when one is NaN */
#define MIN32(x, best) ((vf32)_mm512_min_ps((__m512)(x), (__m512)(best)))
#define MAX32(x, best) ((vf32)_mm512_max_ps((__m512)(x), (__m512)(best)))
#define MIN64(x, best) ((vf64)_mm256_min_pd((__m256d)(x), (__m256d)(best)))
#define MAX64(x, best) ((vf64)_mm256_max_pd((__m256d)(x), (__m256d)(best)))
#define WIDEN(half) ((vf64)_mm256_cvtps_pd((__m128)(half)))
#define PLUS(d, s) ((vf64)_mm256_fmadd_pd((__m256d)(d), _mm256_set1_pd(1), (__m256d)(s)))
#define SQUARE_ADD(d, s) ((vf64)_mm256_fmadd_pd((__m256d)(d), (__m256d)(d), (__m256d)(s)))
typedef uint64_t zero_count;
#define COUNT_ZEROS(counter, v)                                                                                      \
    ((counter) + (uint64_t)__builtin_popcount(_mm512_cmp_ps_mask((__m512)(v), _mm512_setzero_ps(), _CMP_EQ_OQ)))
#define ZEROS_COUNTED(counter) (counter)
#define HASH_PRODUCT(x) ((vu64)_mm512_mul_epu32((__m512i)(x), _mm512_srli_epi64((__m512i)(x), 32)))
#define ROTATE32(w) ((vu64)_mm512_ror_epi64((__m512i)(w), 32))
#define STREAM(ptr, v) _mm512_stream_si512((__m512i *)(void *)(ptr), (__m512i)(v))
#define REDUCE_MIN32(v) _mm512_reduce_min_ps((__m512)(v))
#define REDUCE_MAX32(v) _mm512_reduce_max_ps((__m512)(v))
#define REDUCE_ADD32(v) ((uint32_t)_mm512_reduce_add_epi32((__m512i)(v)))

/* whole vectors are stored, so that the loads that follow need not wait for several stores */
#define FILL_ROW(filled, repeated, x, n) fill_row512(filled, repeated, x, n)
INLINE void fill_row512(float *filled, float *repeated, const char *x, size_t n)
{
    __mmask16 there = (__mmask16)((1u << n) - 1);
    float first;
    memcpy(&first, x, 4);
    _mm512_store_ps(filled, _mm512_maskz_loadu_ps(there, x));
    _mm512_store_ps(repeated, _mm512_mask_loadu_ps(_mm512_set1_ps(first), there, x));
}

#include "tensor/kernels/scan_kernel.inc"
