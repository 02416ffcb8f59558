/* scan_avx2.c - the kernels for x86-64 with AVX2 and FMA. */
#include <immintrin.h>

#define ISA avx2
#define ISA_NAME "avx2"
#define VB 32
#include "tensor/kernels/vector.inc"

/* these instructions give the second operand when one is NaN */
#define MIN32(x, best) ((vf32)_mm256_min_ps((__m256)(x), (__m256)(best)))
#define MAX32(x, best) ((vf32)_mm256_max_ps((__m256)(x), (__m256)(best)))
#define MIN64(x, best) ((vf64)_mm256_min_pd((__m256d)(x), (__m256d)(best)))
#define MAX64(x, best) ((vf64)_mm256_max_pd((__m256d)(x), (__m256d)(best)))
#define WIDEN(half) ((vf64)_mm256_cvtps_pd((__m128)(half)))
#define PLUS(d, s) ((vf64)_mm256_fmadd_pd((__m256d)(d), _mm256_set1_pd(1), (__m256d)(s)))
#define SQUARE_ADD(d, s) ((vf64)_mm256_fmadd_pd((__m256d)(d), (__m256d)(d), (__m256d)(s)))
#define HASH_PRODUCT(x) ((vu64)_mm256_mul_epu32((__m256i)(x), _mm256_srli_epi64((__m256i)(x), 32)))
#define ROTATE32(w) ((vu64)_mm256_shuffle_epi32((__m256i)(w), 0xB1))
#define STREAM(ptr, v) _mm256_stream_si256((__m256i *)(void *)(ptr), (__m256i)(v))

INLINE float reduce_min(__m256 v)
{
    __m128 a = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_min_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_min_ss(a, _mm_movehdup_ps(a)));
}

INLINE float reduce_max(__m256 v)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

INLINE uint32_t reduce_add(__m256i v)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xB1)));
}
#define REDUCE_MIN32(v) reduce_min((__m256)(v))
#define REDUCE_MAX32(v) reduce_max((__m256)(v))
#define REDUCE_ADD32(v) reduce_add((__m256i)(v))

/* whole vectors are stored, so that the loads that follow need not wait for several stores */
#define FILL_ROW(filled, repeated, x, n) fill_row256(filled, repeated, x, (int)(n))
INLINE void fill_row256(float *filled, float *repeated, const char *x, int n)
{
    float first;
    memcpy(&first, x, 4);
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int half = 0; half < 2; half++) {
        __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8 * half), count);
        __m256 v = _mm256_maskload_ps((const float *)(const void *)(x + 32 * half), there);
        _mm256_store_ps(filled + 8 * half, v);
        _mm256_store_ps(repeated + 8 * half, _mm256_blendv_ps(_mm256_set1_ps(first), v, (__m256)there));
    }
}

#include "tensor/kernels/scan_kernel.inc"
