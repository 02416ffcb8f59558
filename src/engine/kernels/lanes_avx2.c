/* lanes_avx2.c - the loops for x86-64 with AVX2. */
#include <immintrin.h>

#define ISA avx2
#define ISA_NAME "avx2"
#define VB 32
/* these instructions give the second operand when one is NaN */
#define MAX_F32(x, best) ((vf32)_mm256_max_ps((__m256)(x), (__m256)(best)))
#define MIN_F32(x, best) ((vf32)_mm256_min_ps((__m256)(x), (__m256)(best)))
#define MAX_F64(x, best) ((vf64)_mm256_max_pd((__m256d)(x), (__m256d)(best)))
#define MIN_F64(x, best) ((vf64)_mm256_min_pd((__m256d)(x), (__m256d)(best)))
#include "engine/kernels/lanes_kernel.inc"
