/* matvec_avx512.c - the loops for x86-64 with AVX-512 F, BW, DQ and VL. */
#include <immintrin.h>

#define ISA avx512
#define ISA_NAME "avx512"
#define VB 64
#define LOAD_F16
#define load_f16(p) ((vf32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p))))
#include "engine/kernels/matvec_kernel.inc"
