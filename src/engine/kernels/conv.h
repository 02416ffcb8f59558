/* conv.h - the kernels of convolutions. */
#ifndef TAP_ENGINE_CONV_H
#define TAP_ENGINE_CONV_H

#include "engine/kernel.h"

extern const tap__kernel tap__kernel_convolution, tap__kernel_convolution_backward;

/* The operands of a convolution or of its gradient, by what they are. */
typedef struct tap__conv_shapes {
    const tap__operand *x, *weight, *bias, *y;
    const tap__attr *stride, *padding, *dilation, *output_padding;
    bool transposed;
    int64_t groups;
    int spatial; /* number of spatial dimensions */
} tap__conv_shapes;

/* Of a list with one number for all dimensions, or one for each. */
int64_t tap__conv_list_at(const tap__attr *list, int i);

typedef struct tap__depthwise tap__depthwise;

/* *out: NULL where it is no convolution of the kind conv_depthwise.c is about. Freed by tap__free. */
tap_status tap__depthwise_make(const tap__conv_shapes *conv, tap__depthwise **out, tap_error *err);
void tap__depthwise_run(const tap__depthwise *self, const tap__call *call, const float *x, const float *weight,
                        const float *bias, float *y);

#endif
