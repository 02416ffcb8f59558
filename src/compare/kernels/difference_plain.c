/* difference_plain.c - comparing blocks: the kernels for any machine of the architecture. */
#define ISA plain
#define VB 16
#include "tensor/kernels/vector.inc"

#include "compare/kernels/difference_kernel.inc"
