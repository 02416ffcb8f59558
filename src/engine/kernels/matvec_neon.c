/* matvec_neon.c - the loops for 64-bit ARM. */
#include <arm_neon.h>

#define ISA neon
#define ISA_NAME "neon"
#define VB 16
#define LOAD_F16
#define load_f16(p) ((vf32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))))
#include "engine/kernels/matvec_kernel.inc"
