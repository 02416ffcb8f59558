/* attention.h - the kernels of scaled dot-product attention. */
#ifndef TAP_ENGINE_ATTENTION_H
#define TAP_ENGINE_ATTENTION_H

#include "engine/kernel.h"

extern const tap__kernel tap__kernel_attention, tap__kernel_attention_backward;

#endif
