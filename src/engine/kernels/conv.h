/* conv.h - the kernels of convolutions. */
#ifndef TAP_ENGINE_CONV_H
#define TAP_ENGINE_CONV_H

#include "engine/kernel.h"

extern const tap__kernel tap__kernel_convolution, tap__kernel_convolution_backward;

#endif
