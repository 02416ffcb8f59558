/* vector_avx512.h - what vector_exp.inc is made of, in instructions of AVX-512. vf: the including file's vector of
 * floats. */
#ifndef TAP_ENGINE_VECTOR_AVX512_H
#define TAP_ENGINE_VECTOR_AVX512_H

#include <immintrin.h>

#define VFMA32(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
/* these instructions give the second operand when one is NaN */
#define VLOW32(limit, x) ((vf)_mm512_min_ps((__m512)(limit), (__m512)(x)))
#define VHIGH32(limit, x) ((vf)_mm512_max_ps((__m512)(limit), (__m512)(x)))
#define VSCALE32(x, n, k) ((vf)_mm512_scalef_ps((__m512)(x), (__m512)(n)))

#endif
