/* pool_avx512.c - the loops of pooling for avx512. */
#define POOL_TABLE tap__pool_avx512
#include "engine/kernels/pool_kernel.inc"
