/* matmul.h - the kernels of the matrix products. */
#ifndef TAP_ENGINE_MATMUL_H
#define TAP_ENGINE_MATMUL_H

#include "engine/kernel.h"

extern const tap__kernel tap__kernel_addmm, tap__kernel_addmv, tap__kernel_baddbmm, tap__kernel_bmm, tap__kernel_dot,
    tap__kernel_mm, tap__kernel_mv;

#endif
