/* lanes_neon.c - the loops for 64-bit ARM. */
#include "engine/kernels/vector_neon.h"

#define ISA neon
#define ISA_NAME "neon"
#define VB 16
#include "engine/kernels/lanes_kernel.inc"
