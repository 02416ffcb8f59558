/* lanes_plain.c - the loops for any machine of the architecture; the compiler makes of the vectors what it has. */
#define ISA plain
#define ISA_NAME "plain"
#define VB 16
#include "engine/kernels/lanes_kernel.inc"
