/* fold.c - windows laid out side by side and added up again: im2col, col2im and the gradient of unfold. */
#include "base/status.h"
#include "engine/kernels/move.h"
#include "engine/kernels/move_lines.h"
#include "graph/shape_view.h"

enum { MAX_WINDOW = 4096 };

static const unsigned char ZERO[16];

static tap_status prepare_unfold_backward(tap__call *call, tap_error *err)
{
    const tap__operand *grad = &call->in[0], *out = &call->out[0];
    int64_t size = tap__call_attr(call, "size")->i, step = tap__call_attr(call, "step")->i;
    int dim;
    if (grad->dtype != out->dtype || !tap__lines_add(out->dtype) || grad->ndim != out->ndim + 1 || out->ndim == 0)
        return tap__refuse(call, err);
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, out->ndim, &dim, err));
    if (size > out->size[dim] || grad->size[out->ndim] != size || step < 1 ||
        grad->size[dim] != (out->size[dim] - size) / step + 1)
        return tap__expect_sizes(call, grad, -1, NULL, err);
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    TAP_TRY(tap__moves_fill(call, 1, out, ZERO, err));
    tap__moves_next_phase(call);
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    move->add = out->dtype;
    for (int i = 0; i < out->ndim; i++) {
        bool windows = i == dim;
        tap__move_loop(move, grad->size[i], out->stride[i] * (windows ? step : 1), grad->stride[i]);
        move->dims[i].serial = windows && step < size;
    }
    tap__move_loop(move, size, out->stride[dim], grad->stride[out->ndim]);
    move->dims[out->ndim].serial = step < size;
    tap__moves_ready(call);
    return TAP_OK;
}
TAP__MOVES_KERNEL(unfold_backward);

/* An image [N, C, H, W] or [C, H, W] and its columns [N, C * kernel, places] or [C * kernel, places]. */
typedef struct columns {
    const tap__operand *image, *columns;
    int lead;                                  /* 1 with a batch */
    int64_t kernel[2], stride[2], padding[2], dilation[2], out[2];
} columns;

static int64_t number_for(const tap__call *call, const char *name, int i)
{
    const tap__attr *attr = tap__call_attr(call, name);
    return attr->count > i ? attr->ints[i] : attr->count ? attr->ints[0] : 1;
}

static tap_status find_columns(const tap__call *call, const tap__operand *image, const tap__operand *flat,
                               columns *self, tap_error *err)
{
    *self = (columns){.image = image, .columns = flat, .lead = image->ndim - 3};
    if (image->dtype != flat->dtype || self->lead < 0 || self->lead > 1 || flat->ndim != image->ndim - 1)
        return tap__refuse(call, err);
    for (int i = 0; i < 2; i++) {
        self->kernel[i] = number_for(call, "kernel_size", i);
        self->stride[i] = number_for(call, "stride", i);
        self->padding[i] = number_for(call, "padding", i);
        self->dilation[i] = number_for(call, "dilation", i);
        if (self->kernel[i] < 1 || self->stride[i] < 1 || self->dilation[i] < 1)
            return tap__refuse(call, err);
        int64_t room = image->size[self->lead + 1 + i] + 2 * self->padding[i] -
                       self->dilation[i] * (self->kernel[i] - 1) - 1;
        self->out[i] = room < 0 ? 0 : room / self->stride[i] + 1;
    }
    int64_t window = self->kernel[0] * self->kernel[1];
    if (window > MAX_WINDOW)
        return tap__refuse(call, err);
    if ((self->lead && flat->size[0] != image->size[0]) || flat->size[self->lead] != image->size[self->lead] * window ||
        flat->size[self->lead + 1] != self->out[0] * self->out[1])
        return tap__expect_sizes(call, flat, -1, NULL, err);
    return TAP_OK;
}

/* Where windows have their element k inside the image: the first such window and how many there are. */
static void inside(const columns *self, int i, int64_t k, int64_t *first, int64_t *count)
{
    int64_t offset = k * self->dilation[i] - self->padding[i], size = self->image->size[self->lead + 1 + i];
    int64_t stride = self->stride[i], last = size - 1 - offset;
    *first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    end = end < self->out[i] ? end : self->out[i];
    *count = end > *first ? end - *first : 0;
}

/* Element (k0, k1) of all windows. */
static tap_status add_element(tap__call *call, const columns *self, int64_t k0, int64_t k1, bool back, tap_error *err)
{
    const tap__operand *image = self->image, *flat = self->columns;
    int lead = self->lead;
    int64_t first[2], count[2];
    inside(self, 0, k0, &first[0], &count[0]);
    inside(self, 1, k1, &first[1], &count[1]);
    if (!count[0] || !count[1])
        return TAP_OK;
    int64_t window = self->kernel[0] * self->kernel[1], place = flat->stride[lead + 1];
    int64_t flat_at = (k0 * self->kernel[1] + k1) * flat->stride[lead] + (first[0] * self->out[1] + first[1]) * place;
    int64_t image_at = 0;
    struct {
        int64_t size, flat, image;
    } loops[4] = {{lead ? image->size[0] : 1, lead ? flat->stride[0] : 0, lead ? image->stride[0] : 0},
                  {image->size[lead], flat->stride[lead] * window, image->stride[lead]}};
    for (int i = 0; i < 2; i++) {
        int64_t step = image->stride[lead + 1 + i], k = i ? k1 : k0;
        image_at += (first[i] * self->stride[i] + k * self->dilation[i] - self->padding[i]) * step;
        loops[2 + i].size = count[i];
        loops[2 + i].flat = i ? place : place * self->out[1];
        loops[2 + i].image = step * self->stride[i];
    }
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    for (int i = 0; i < 4; i++)
        tap__move_loop(move, loops[i].size, back ? loops[i].image : loops[i].flat,
                       back ? loops[i].flat : loops[i].image);
    move->add = back ? call->out[0].dtype : TAP_DTYPE_NONE;
    move->to_offset = (back ? image_at : flat_at) * (int64_t)move->item;
    move->from_offset = (back ? flat_at : image_at) * (int64_t)move->item;
    return TAP_OK;
}

static tap_status prepare_columns(tap__call *call, bool back, tap_error *err)
{
    columns self;
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    TAP_TRY(find_columns(call, back ? out : in, back ? in : out, &self, err));
    if (back && !tap__lines_add(out->dtype))
        return tap__refuse(call, err);
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    TAP_TRY(tap__moves_fill(call, 1, out, ZERO, err));
    tap__moves_next_phase(call);
    for (int64_t k0 = 0; k0 < self.kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < self.kernel[1]; k1++) {
            TAP_TRY(add_element(call, &self, k0, k1, back, err));
            if (back) /* windows meet in the image: one element of all of them at a time */
                tap__moves_next_phase(call);
        }
    tap__moves_ready(call);
    return TAP_OK;
}

static tap_status prepare_im2col(tap__call *call, tap_error *err)
{
    return prepare_columns(call, false, err);
}
TAP__MOVES_KERNEL(im2col);

static tap_status prepare_col2im(tap__call *call, tap_error *err)
{
    return prepare_columns(call, true, err);
}
TAP__MOVES_KERNEL(col2im);
