/* scan_neon.c - the kernels for 64-bit ARM. */
#include <arm_neon.h>

#define ISA neon
#define ISA_NAME "neon"
#define VB 16
#include "tensor/kernels/vector.inc"

#define HASH_PRODUCT(x)                                                                                              \
    ((vu64)vmull_u32(vmovn_u64((uint64x2_t)(x)), vshrn_n_u64((uint64x2_t)(x), 32)))
#define ROTATE32(w) ((vu64)vrev64q_u32((uint32x4_t)(w)))
#define SQUARE_ADD(d, s) ((vf64)vfmaq_f64((float64x2_t)(s), (float64x2_t)(d), (float64x2_t)(d)))

#include "tensor/kernels/scan_kernel.inc"
