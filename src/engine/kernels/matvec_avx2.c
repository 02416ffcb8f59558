/* matvec_avx2.c - the loops for x86-64 with AVX2. */
#include <immintrin.h>

#define ISA avx2
#define ISA_NAME "avx2"
#define VB 32
#define LOAD_F16
#define load_f16(p) ((vf32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#include "engine/kernels/matvec_kernel.inc"
