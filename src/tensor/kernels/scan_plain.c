/* scan_plain.c - the kernels for any machine of the architecture; the compiler makes of the vectors what it has. */
#define ISA plain
#define ISA_NAME "plain"
#define VB 16
#include "tensor/kernels/vector.inc"

#include "tensor/kernels/scan_kernel.inc"
