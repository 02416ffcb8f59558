/* difference_neon.c - comparing blocks: the kernels for 64-bit ARM. */
#define ISA neon
#define VB 16
#include "tensor/kernels/vector.inc"

#include "compare/kernels/difference_kernel.inc"
