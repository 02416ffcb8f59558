/* pool_plain.c - the loops of pooling for any machine. */
#define POOL_TABLE tap__pool_plain
#include "engine/kernels/pool_kernel.inc"
