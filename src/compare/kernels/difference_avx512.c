/* difference_avx512.c - comparing blocks: the kernels for x86-64 with AVX-512. */
#include <immintrin.h>

#define ISA avx512
#define VB 64
#include "tensor/kernels/vector.inc"

/* gives y when x is NaN */
#define LARGER(x, y) ((vf64)_mm512_max_pd((__m512d)(x), (__m512d)(y)))

#include "compare/kernels/difference_kernel.inc"
