/* vector_neon.h - what vector_exp.inc is made of, in instructions of 64-bit ARM. vf: the including file's vector of
 * floats. */
#ifndef TAP_ENGINE_VECTOR_NEON_H
#define TAP_ENGINE_VECTOR_NEON_H

#include <arm_neon.h>

#define VFMA32(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define VLOW32(limit, x) ((vf)vminq_f32((float32x4_t)(limit), (float32x4_t)(x)))
#define VHIGH32(limit, x) ((vf)vmaxq_f32((float32x4_t)(limit), (float32x4_t)(x)))

#endif
