/* vector_avx2.h - what vector_exp.inc is made of, in instructions of AVX2 and FMA. vf: the including file's vector of floats. */
#ifndef TAP_ENGINE_VECTOR_AVX2_H
#define TAP_ENGINE_VECTOR_AVX2_H

#include <immintrin.h>

#define VFMA32(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
/* these instructions give the second operand when one is NaN */
#define VLOW32(limit, x) ((vf)_mm256_min_ps((__m256)(limit), (__m256)(x)))
#define VHIGH32(limit, x) ((vf)_mm256_max_ps((__m256)(limit), (__m256)(x)))

#endif
