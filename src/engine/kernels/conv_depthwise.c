/* conv_depthwise.c - convolutions of one or two dimensions in which every channel has weights of its own, one column
 * apart, channel by channel in memory. A channel is copied, with its padding around it, to where the cache is, and the
 * windows slide over it: oneDNN copies the whole images to its own layout and back, which takes longer than the sums. */
#include "engine/kernels/conv.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/kernels/lanes.h"

#include <string.h>

enum {
    PADDED = 8192, /* floats of a padded band */
    BEHIND = 16,   /* floats that are read behind it */
    GRAIN = 32768  /* products that are worth a task */
};

struct tap__depthwise {
    const tap__lanes *lanes;
    int64_t batch, channels, each;                /* each: results of one channel of x */
    int64_t height, width, out_height, out_width; /* one dimension: heights are 1 */
    int64_t rows, columns, step, dilate, dilate_column, before, before_column;
    int64_t x[3], y[3];                           /* strides of batch, channel and row */
    int64_t pitch, band, bands;                   /* of a padded row; rows of results made of one padded band */
};

typedef struct job {
    const tap__depthwise *self;
    const float *x, *weight, *bias;
    float *y;
} job;

static bool is_image(const tap__operand *image, int64_t strides[3])
{
    int last = image->ndim - 1;
    strides[0] = image->stride[0];
    strides[1] = image->stride[1];
    strides[2] = last == 3 ? image->stride[2] : 0;
    return image->dtype == TAP_F32 && (image->stride[last] == 1 || image->size[last] == 1);
}

tap_status tap__depthwise_make(const tap__conv_shapes *conv, tap__depthwise **out, tap_error *err)
{
    int spatial = conv->spatial, wide = spatial - 1;
    const tap__operand *x = conv->x, *weight = conv->weight, *y = conv->y;
    bool has_bias = conv->bias && conv->bias->dtype != TAP_DTYPE_NONE;
    tap__depthwise self = {.lanes = tap__lanes_now()};
    *out = NULL;
    if (conv->transposed || spatial > 2 || conv->groups != x->size[1] || weight->size[1] != 1 ||
        weight->dtype != TAP_F32 || !is_image(x, self.x) || !is_image(y, self.y) ||
        !tap__operand_is_contiguous(weight) || tap__conv_list_at(conv->stride, wide) != 1 ||
        (has_bias && (conv->bias->dtype != TAP_F32 || !tap__operand_is_contiguous(conv->bias))))
        return TAP_OK;
    self.batch = x->size[0];
    self.channels = y->size[1];
    self.each = y->size[1] / x->size[1];
    self.height = spatial == 2 ? x->size[2] : 1;
    self.width = x->size[x->ndim - 1];
    self.out_height = spatial == 2 ? y->size[2] : 1;
    self.out_width = y->size[y->ndim - 1];
    self.rows = spatial == 2 ? weight->size[2] : 1;
    self.columns = weight->size[weight->ndim - 1];
    self.step = spatial == 2 ? tap__conv_list_at(conv->stride, 0) : 1;
    self.dilate = spatial == 2 ? tap__conv_list_at(conv->dilation, 0) : 1;
    self.before = spatial == 2 ? tap__conv_list_at(conv->padding, 0) : 0;
    self.dilate_column = tap__conv_list_at(conv->dilation, wide);
    self.before_column = tap__conv_list_at(conv->padding, wide);
    self.pitch = self.out_width + (self.columns - 1) * self.dilate_column;
    int64_t more = PADDED / self.pitch - ((self.rows - 1) * self.dilate + 1);
    if (more < 0)
        return TAP_OK;
    self.band = more / self.step + 1;
    self.band = self.band < self.out_height ? self.band : self.out_height;
    self.bands = (self.out_height + self.band - 1) / self.band;
    *out = tap__calloc(1, sizeof **out);
    if (!*out)
        return tap_fail_nomem(err);
    **out = self;
    return TAP_OK;
}

/* Rows first, first + 1, ... of a channel, each with its padding. */
static void pad_rows(const tap__depthwise *self, float *to, const float *channel, int64_t first, int64_t count)
{
    int64_t left = self->before_column < self->pitch ? self->before_column : self->pitch;
    int64_t take = self->pitch - left < self->width ? self->pitch - left : self->width;
    for (int64_t i = first; i < first + count; i++, to += self->pitch) {
        if (i < 0 || i >= self->height) {
            memset(to, 0, (size_t)self->pitch * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)left * sizeof *to);
        memcpy(to + left, channel + i * self->x[2], (size_t)take * sizeof *to);
        memset(to + left + take, 0, (size_t)(self->pitch - left - take) * sizeof *to);
    }
}

static void run_bands(void *user, int64_t begin, int64_t end)
{
    const job *work = user;
    const tap__depthwise *self = work->self;
    float padded[PADDED + BEHIND];
    memset(padded + PADDED, 0, BEHIND * sizeof *padded);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit % self->bands * self->band, plane = unit / self->bands;
        int64_t channel = plane % self->channels, batch = plane / self->channels;
        int64_t count = self->out_height - first < self->band ? self->out_height - first : self->band;
        int64_t rows = (count - 1) * self->step + (self->rows - 1) * self->dilate + 1;
        const float *x = work->x + batch * self->x[0] + channel / self->each * self->x[1];
        float *y = work->y + batch * self->y[0] + channel * self->y[1] + first * self->y[2];
        pad_rows(self, padded, x, first * self->step - self->before, rows);
        memset(padded + rows * self->pitch, 0, BEHIND * sizeof *padded);
        for (int64_t i = 0; i < count; i++)
            self->lanes->slide(y + i * self->y[2], padded + i * self->step * self->pitch,
                               work->weight + channel * self->rows * self->columns, self->rows, self->columns,
                               self->dilate * self->pitch, self->dilate_column, work->bias ? work->bias[channel] : 0,
                               self->out_width);
    }
}

void tap__depthwise_run(const tap__depthwise *self, const tap__call *call, const float *x, const float *weight,
                        const float *bias, float *y)
{
    job work = {.self = self, .x = x, .weight = weight, .bias = bias, .y = y};
    int64_t products = self->band * self->out_width * self->rows * self->columns;
    tap__parallel(call->threads, self->batch * self->channels * self->bands, 1 + GRAIN / products,
                  TAP_ANY_LENGTH, run_bands, &work);
}
