/* lanes_neon.c - the loops for 64-bit ARM. */
#define ISA neon
#define ISA_NAME "neon"
#define VB 16
#include "engine/kernels/lanes_kernel.inc"
