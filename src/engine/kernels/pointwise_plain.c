/* pointwise_plain.c - the kernels for any machine, as the compiler makes them. */
#define ISA plain
#define ISA_NAME "plain"
#define VB 16
#define FLOATS 4
#define DOUBLES 2
#include "engine/kernels/pointwise_kernel.inc"
