/* pool_avx2.c - the loops of pooling for avx2. */
#define POOL_TABLE tap__pool_avx2
#include "engine/kernels/pool_kernel.inc"
