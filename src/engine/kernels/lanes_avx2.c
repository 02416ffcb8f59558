/* lanes_avx2.c - the loops for x86-64 with AVX2. */
#include "engine/kernels/vector_avx2.h"

#include <immintrin.h>

#define ISA avx2
#define ISA_NAME "avx2"
#define VB 32
/* these instructions give the second operand when one is NaN */
#define MAX_F32(x, best) VHIGH32(x, best)
#define MIN_F32(x, best) VLOW32(x, best)
#define MAX_F64(x, best) ((vf64)_mm256_max_pd((__m256d)(x), (__m256d)(best)))
#define MIN_F64(x, best) ((vf64)_mm256_min_pd((__m256d)(x), (__m256d)(best)))
#define NAN_OF_F32(x, y)                                                                                             \
    ((vf32)_mm256_blendv_ps((__m256)(y), (__m256)(x), _mm256_cmp_ps((__m256)(x), (__m256)(x), _CMP_UNORD_Q)))
#define NAN_OF_F64(x, y)                                                                                             \
    ((vf64)_mm256_blendv_pd((__m256d)(y), (__m256d)(x), _mm256_cmp_pd((__m256d)(x), (__m256d)(x), _CMP_UNORD_Q)))
#include "engine/kernels/lanes_kernel.inc"
