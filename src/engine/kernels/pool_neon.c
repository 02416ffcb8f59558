/* pool_neon.c - the loops of pooling for neon. */
#define POOL_TABLE tap__pool_neon
#include "engine/kernels/pool_kernel.inc"
