/* matvec_plain.c - the loops for any machine of the architecture. */
#define ISA plain
#define ISA_NAME "plain"
#define VB 16
#include "engine/kernels/matvec_kernel.inc"
