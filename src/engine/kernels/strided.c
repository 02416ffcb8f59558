/* strided.c - see strided.h. Dimensions are put into the order of the destination's memory and merged where both sides
 * allow it; what is left is rows, spread over threads. */
#include "engine/kernels/strided.h"

#include "engine/kernels/lanes.h"

#include <string.h>

enum { MAX = TAP_ENGINE_MAX_NDIM, GRAIN_BYTES = 1 << 18, CHUNK = 256 };

typedef struct copy {
    size_t item, src_item;
    void (*widen)(float *dst, const void *src, int64_t n);  /* at most one of these; none: a plain copy */
    void (*narrow)(void *dst, const float *src, int64_t n);
    int ndim; /* at least 1 */
    int64_t size[MAX], dst_stride[MAX], src_stride[MAX];
    char *dst;
    const char *src;
} copy;

static void swap_dims(copy *self, int a, int b)
{
    int64_t size = self->size[a], dst = self->dst_stride[a], src = self->src_stride[a];
    self->size[a] = self->size[b];
    self->dst_stride[a] = self->dst_stride[b];
    self->src_stride[a] = self->src_stride[b];
    self->size[b] = size;
    self->dst_stride[b] = dst;
    self->src_stride[b] = src;
}

static void simplify(copy *self)
{
    int kept = 0;
    for (int i = 0; i < self->ndim; i++)
        if (self->size[i] != 1)
            swap_dims(self, kept++, i);
    self->ndim = kept;
    for (int i = 1; i < self->ndim; i++)
        for (int j = i; j > 0 && self->dst_stride[j - 1] < self->dst_stride[j]; j--)
            swap_dims(self, j - 1, j);
    kept = 0;
    for (int i = 1; i < self->ndim; i++) {
        if (self->dst_stride[kept] == self->size[i] * self->dst_stride[i] &&
            self->src_stride[kept] == self->size[i] * self->src_stride[i]) {
            self->size[i] *= self->size[kept];
            swap_dims(self, kept, i);
        } else {
            swap_dims(self, ++kept, i);
        }
    }
    if (self->ndim == 0) {
        self->size[0] = self->dst_stride[0] = self->src_stride[0] = 1;
        kept = 0;
    }
    self->ndim = kept + 1;
}

#define COPY_ROW(type)                                                                                               \
    do {                                                                                                             \
        type *to = (type *)(void *)dst;                                                                              \
        const type *from = (const type *)(const void *)src;                                                          \
        for (int64_t i = 0; i < count; i++)                                                                          \
            to[i * dst_stride] = from[i * src_stride];                                                               \
    } while (0)

typedef struct wide {
    uint64_t half[2];
} wide;

static void copy_row(size_t item, int64_t count, char *dst, int64_t dst_stride, const char *src, int64_t src_stride)
{
    if (dst_stride == 1 && src_stride == 1)
        memcpy(dst, src, (size_t)count * item);
    else if (item == 4)
        COPY_ROW(uint32_t);
    else if (item == 2)
        COPY_ROW(uint16_t);
    else if (item == 8)
        COPY_ROW(uint64_t);
    else if (item == 1)
        COPY_ROW(uint8_t);
    else
        COPY_ROW(wide);
}

/* Rows that are not of neighbours pass through a small buffer on either side. */
static void convert_row(const copy *self, int64_t count, char *dst, int64_t dst_stride, const char *src,
                        int64_t src_stride)
{
    uint32_t from[CHUNK], to[CHUNK];
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t now = count - done < CHUNK ? count - done : CHUNK;
        const char *at = src + done * src_stride * (int64_t)self->src_item;
        char *goal = dst + done * dst_stride * (int64_t)self->item;
        if (src_stride != 1) {
            copy_row(self->src_item, now, (char *)from, 1, at, src_stride);
            at = (const char *)from;
        }
        char *made = dst_stride == 1 ? goal : (char *)to;
        if (self->widen)
            self->widen((float *)(void *)made, at, now);
        else
            self->narrow(made, (const float *)(const void *)at, now);
        if (dst_stride != 1)
            copy_row(self->item, now, goal, dst_stride, made, 1);
    }
}

/* Positions [begin, end) of the flattened index space; rows are cut where a piece begins or ends. */
static void copy_piece(void *user, int64_t begin, int64_t end)
{
    const copy *self = user;
    int last = self->ndim - 1;
    int64_t item = (int64_t)self->item, src_item = (int64_t)self->src_item;
    while (begin < end) {
        int64_t rest = begin / self->size[last], first = begin % self->size[last];
        int64_t count = self->size[last] - first < end - begin ? self->size[last] - first : end - begin;
        int64_t dst = first * self->dst_stride[last], src = first * self->src_stride[last];
        for (int i = last - 1; i >= 0; i--) {
            int64_t at = rest % self->size[i];
            rest /= self->size[i];
            dst += at * self->dst_stride[i];
            src += at * self->src_stride[i];
        }
        if (self->widen || self->narrow)
            convert_row(self, count, self->dst + dst * item, self->dst_stride[last], self->src + src * src_item,
                        self->src_stride[last]);
        else
            copy_row(self->item, count, self->dst + dst * item, self->dst_stride[last], self->src + src * item,
                     self->src_stride[last]);
        begin += count;
    }
}

static void spread(copy *self, const tap__call *call, int ndim, const int64_t *size, const int64_t *dst_stride,
                   const int64_t *src_stride)
{
    int64_t count = 1;
    self->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        self->size[i] = size[i];
        self->dst_stride[i] = dst_stride[i];
        self->src_stride[i] = src_stride[i];
        count *= size[i];
    }
    if (count == 0)
        return;
    simplify(self);
    tap__parallel(call->threads, count, GRAIN_BYTES / (int64_t)self->item, TAP_ANY_LENGTH, copy_piece, self);
}

void tap__strided_copy(const tap__call *call, size_t item, int ndim, const int64_t *size, const int64_t *dst_stride,
                       void *dst, const int64_t *src_stride, const void *src)
{
    copy self = {.item = item, .src_item = item, .dst = dst, .src = src};
    spread(&self, call, ndim, size, dst_stride, src_stride);
}

void tap__strided_convert(const tap__call *call, tap_dtype to, tap_dtype from, int ndim, const int64_t *size,
                          const int64_t *dst_stride, void *dst, const int64_t *src_stride, const void *src)
{
    const tap__lanes *lanes = tap__lanes_now();
    copy self = {.item = tap_dtype_describe(to)->bytes, .src_item = tap_dtype_describe(from)->bytes, .dst = dst,
                 .src = src};
    if (to != from && to == TAP_F32)
        self.widen = from == TAP_F16 ? lanes->widen_f16 : lanes->widen_bf16;
    else if (to != from)
        self.narrow = to == TAP_F16 ? lanes->narrow_f16 : lanes->narrow_bf16;
    spread(&self, call, ndim, size, dst_stride, src_stride);
}
