/* grid_sampler.c - an image sampled at the places a grid names: linear, nearest and cubic, and its gradients. */
#include "engine/kernel.h"

#include "base/status.h"

#include <math.h>

enum { BILINEAR, NEAREST, BICUBIC };  /* interpolation_mode */
enum { ZEROS, BORDER, REFLECTION };   /* padding_mode */

typedef struct sampler {
    const tap__call *call;
    int64_t mode, padding;
    bool align;
    const void *image, *grid, *grad;
    void *out, *dgrid; /* backward: out is the image's gradient; NULL: not wanted */
} sampler;

#define T float
#define N(name) name##_f32
#define FN(name) name##f
#include "engine/kernels/grid_kernel.inc"

#define T double
#define N(name) name##_f64
#define FN(name) name
#include "engine/kernels/grid_kernel.inc"

static sampler make(const tap__call *call)
{
    return (sampler){.call = call, .mode = tap__call_attr(call, "interpolation_mode")->i,
                     .padding = tap__call_attr(call, "padding_mode")->i,
                     .align = tap__call_attr(call, "align_corners")->i != 0};
}

static bool fits(const tap__call *call, const tap__operand *image, const tap__operand *grid)
{
    sampler self = make(call);
    return (image->dtype == TAP_F32 || image->dtype == TAP_F64) && grid->dtype == image->dtype && image->ndim == 4 &&
           grid->ndim == 4 && grid->size[3] == 2 && grid->size[0] == image->size[0] && image->size[2] > 0 &&
           image->size[3] > 0 && self.mode >= BILINEAR && self.mode <= BICUBIC && self.padding >= ZEROS &&
           self.padding <= REFLECTION;
}

static bool has_sizes(const tap__operand *operand, tap_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return operand->dtype == dtype && operand->ndim == 4 && operand->size[0] == n && operand->size[1] == c &&
           operand->size[2] == h && operand->size[3] == w;
}

static tap_status prepare_grid_sampler(tap__call *call, tap_error *err)
{
    const tap__operand *image = &call->in[0], *grid = &call->in[1];
    return fits(call, image, grid) && has_sizes(&call->out[0], image->dtype, image->size[0], image->size[1],
                                                grid->size[1], grid->size[2])
               ? TAP_OK
               : tap__refuse(call, err);
}

static tap_status run_grid_sampler(const tap__call *call, void *const *data, tap_error *err)
{
    sampler self = make(call);
    (void)err;
    self.image = data[0];
    self.grid = data[1];
    self.out = data[2];
    tap__parallel(call->threads, call->in[1].size[0] * call->in[1].size[1], 8, TAP_ANY_LENGTH,
                  call->in[0].dtype == TAP_F32 ? forward_f32 : forward_f64, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_grid_sampler = {prepare_grid_sampler, run_grid_sampler, NULL};

static tap_status prepare_grid_sampler_grad(tap__call *call, tap_error *err)
{
    const tap__operand *grad = &call->in[0], *image = &call->in[1], *grid = &call->in[2];
    bool right = fits(call, image, grid) &&
                 has_sizes(grad, image->dtype, image->size[0], image->size[1], grid->size[1], grid->size[2]);
    const tap__operand *const wanted[] = {image, grid};
    for (int i = 0; right && i < 2; i++)
        right = call->out[i].dtype == TAP_DTYPE_NONE ||
                (call->out[i].dtype == image->dtype && tap__operand_same_sizes(&call->out[i], wanted[i]));
    return right ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_grid_sampler_grad(const tap__call *call, void *const *data, tap_error *err)
{
    sampler self = make(call);
    (void)err;
    self.grad = data[0];
    self.image = data[1];
    self.grid = data[2];
    self.out = data[3];
    self.dgrid = data[4];
    tap__parallel(call->threads, call->in[1].size[0], 1,
                  TAP_ANY_LENGTH, call->in[1].dtype == TAP_F32 ? backward_f32 : backward_f64, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_grid_sampler_grad = {prepare_grid_sampler_grad, run_grid_sampler_grad, NULL};
