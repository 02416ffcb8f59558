/* scan_avx512.c - the kernels for x86-64 with AVX-512 F, BW, DQ and VL. */
#include <immintrin.h>

#define ISA avx512
#define ISA_NAME "avx512"
#define VB 64
#include "tensor/kernels/vector.inc"

/* these instructions give the second operand when one is NaN */
#define MIN32(x, best) ((vf32)_mm512_min_ps((__m512)(x), (__m512)(best)))
#define MAX32(x, best) ((vf32)_mm512_max_ps((__m512)(x), (__m512)(best)))
#define MIN64(x, best) ((vf64)_mm512_min_pd((__m512d)(x), (__m512d)(best)))
#define MAX64(x, best) ((vf64)_mm512_max_pd((__m512d)(x), (__m512d)(best)))
#define WIDEN(half) ((vf64)_mm512_cvtps_pd((__m256)(half)))
#define SQUARE_ADD(d, s) ((vf64)_mm512_fmadd_pd((__m512d)(d), (__m512d)(d), (__m512d)(s)))
#define HASH_PRODUCT(x) ((vu64)_mm512_mul_epu32((__m512i)(x), _mm512_srli_epi64((__m512i)(x), 32)))
#define ROTATE32(w) ((vu64)_mm512_ror_epi64((__m512i)(w), 32))
#define STREAM(ptr, v) _mm512_stream_si512((__m512i *)(void *)(ptr), (__m512i)(v))
#define REDUCE_MIN32(v) _mm512_reduce_min_ps((__m512)(v))
#define REDUCE_MAX32(v) _mm512_reduce_max_ps((__m512)(v))
#define REDUCE_ADD32(v) ((uint32_t)_mm512_reduce_add_epi32((__m512i)(v)))

#include "tensor/kernels/scan_kernel.inc"
