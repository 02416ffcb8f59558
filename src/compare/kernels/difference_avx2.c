/* difference_avx2.c - comparing blocks: the kernels for x86-64 with AVX2. */
#include <immintrin.h>

#define ISA avx2
#define VB 32
#include "tensor/kernels/vector.inc"

/* gives y when x is NaN */
#define LARGER(x, y) ((vf64)_mm256_max_pd((__m256d)(x), (__m256d)(y)))

#include "compare/kernels/difference_kernel.inc"
