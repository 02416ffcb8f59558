/* pointwise_walk.c - strided elements of 1 to 16 bytes into packed blocks and back. */
#include "engine/kernels/pointwise_program.h"

#include <string.h>

typedef struct element16 {
    uint64_t low, high;
} element16;

/* Coordinates of the index `first`, and the offset they lie at. */
static int64_t locate(const tap__pw_layout *layout, int64_t first, int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < layout->ndim; d++) {
        if (d == layout->ndim - 1) {
            at[d] = first;
        } else {
            at[d] = first % layout->size[d];
            first /= layout->size[d];
        }
        offset += at[d] * layout->stride[d];
    }
    return offset;
}

/* The offset of the next run along the innermost dimension. */
static inline int64_t next_run(const tap__pw_layout *layout, int64_t *at, int64_t offset)
{
    offset -= at[0] * layout->stride[0];
    at[0] = 0;
    for (int d = 1; d < layout->ndim; d++) {
        offset += layout->stride[d];
        if (++at[d] < layout->size[d] || d == layout->ndim - 1)
            break;
        offset -= at[d] * layout->stride[d];
        at[d] = 0;
    }
    return offset;
}

/* Four by four 32-bit elements, columns of src to rows of dst. */
typedef uint32_t four __attribute__((vector_size(16)));
typedef four four_any __attribute__((aligned(4), may_alias));

static inline void transpose_four(uint32_t *dst, int64_t dst_stride, const uint32_t *src, int64_t src_stride)
{
    four a = *(const four_any *)src, b = *(const four_any *)(src + src_stride);
    four c = *(const four_any *)(src + 2 * src_stride), d = *(const four_any *)(src + 3 * src_stride);
    four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four_any *)dst = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(four_any *)(dst + dst_stride) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(four_any *)(dst + 2 * dst_stride) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four_any *)(dst + 3 * dst_stride) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* dst[r * dst_stride + c] = src[c * src_stride + r] */
static void transpose_4(uint32_t *dst, int64_t dst_stride, const uint32_t *src, int64_t src_stride, int64_t rows,
                        int64_t columns)
{
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
        int64_t r = 0;
        for (; r + 4 <= rows; r += 4)
            transpose_four(dst + r * dst_stride + c, dst_stride, src + c * src_stride + r, src_stride);
        for (; r < rows; r++)
            for (int k = 0; k < 4; k++)
                dst[r * dst_stride + c + k] = src[(c + k) * src_stride + r];
    }
    for (; c < columns; c++)
        for (int64_t r = 0; r < rows; r++)
            dst[r * dst_stride + c] = src[c * src_stride + r];
}

#define TRANSPOSE(bytes, type)                                                                                       \
    static void transpose_##bytes(type *dst, int64_t dst_stride, const type *src, int64_t src_stride, int64_t rows,  \
                                  int64_t columns)                                                                   \
    {                                                                                                                \
        for (int64_t c = 0; c < columns; c++)                                                                        \
            for (int64_t r = 0; r < rows; r++)                                                                       \
                dst[r * dst_stride + c] = src[c * src_stride + r];                                                   \
    }
TRANSPOSE(1, uint8_t)
TRANSPOSE(2, uint16_t)
TRANSPOSE(8, uint64_t)
TRANSPOSE(16, element16)

#define WALKS(bytes, type)                                                                                           \
    static void gather_##bytes(type *dst, const type *src, const tap__pw_layout *layout, int64_t first, int64_t n)   \
    {                                                                                                                \
        int64_t at[TAP_ENGINE_MAX_NDIM], offset = locate(layout, first, at);                                         \
        const int64_t stride = layout->stride[0], size = layout->size[0];                                            \
        for (;;) {                                                                                                   \
            int64_t run = size - at[0] < n ? size - at[0] : n;                                                       \
            const type *from = src + offset;                                                                         \
            if (stride == 1)                                                                                         \
                for (int64_t i = 0; i < run; i++)                                                                    \
                    dst[i] = from[i];                                                                                \
            else if (stride == 0)                                                                                    \
                for (int64_t i = 0; i < run; i++)                                                                    \
                    dst[i] = from[0];                                                                                \
            else                                                                                                     \
                for (int64_t i = 0; i < run; i++)                                                                    \
                    dst[i] = from[i * stride];                                                                       \
            dst += run;                                                                                              \
            n -= run;                                                                                                \
            if (n <= 0)                                                                                              \
                return;                                                                                              \
            offset = next_run(layout, at, offset);                                                                   \
        }                                                                                                            \
    }                                                                                                                \
    static void scatter_##bytes(type *dst, const type *src, const tap__pw_layout *layout, int64_t first, int64_t n)  \
    {                                                                                                                \
        int64_t at[TAP_ENGINE_MAX_NDIM], offset = locate(layout, first, at);                                         \
        const int64_t stride = layout->stride[0], size = layout->size[0];                                            \
        for (;;) {                                                                                                   \
            int64_t run = size - at[0] < n ? size - at[0] : n;                                                       \
            type *to = dst + offset;                                                                                 \
            if (stride == 1)                                                                                         \
                for (int64_t i = 0; i < run; i++)                                                                    \
                    to[i] = src[i];                                                                                  \
            else                                                                                                     \
                for (int64_t i = 0; i < run; i++)                                                                    \
                    to[i * stride] = src[i];                                                                         \
            src += run;                                                                                              \
            n -= run;                                                                                                \
            if (n <= 0)                                                                                              \
                return;                                                                                              \
            offset = next_run(layout, at, offset);                                                                   \
        }                                                                                                            \
    }                                                                                                                \
    /* along the smaller stride first, so that each line of memory is touched once */                                \
    static void gather_tile_##bytes(type *dst, const type *src, int64_t rows, int64_t columns, int64_t row_stride,   \
                                    int64_t column_stride)                                                           \
    {                                                                                                                \
        if (column_stride == 1)                                                                                      \
            for (int64_t r = 0; r < rows; r++)                                                                       \
                for (int64_t c = 0; c < columns; c++)                                                                \
                    dst[r * columns + c] = src[r * row_stride + c];                                                  \
        else if (row_stride == 1)                                                                                    \
            transpose_##bytes(dst, columns, src, column_stride, rows, columns);                                      \
        else                                                                                                         \
            for (int64_t r = 0; r < rows; r++)                                                                       \
                for (int64_t c = 0; c < columns; c++)                                                                \
                    dst[r * columns + c] = src[r * row_stride + c * column_stride];                                  \
    }                                                                                                                \
    static void scatter_tile_##bytes(type *dst, const type *src, int64_t rows, int64_t columns, int64_t row_stride,  \
                                     int64_t column_stride)                                                          \
    {                                                                                                                \
        if (row_stride == 1)                                                                                         \
            transpose_##bytes(dst, column_stride, src, columns, columns, rows);                                      \
        else                                                                                                         \
            for (int64_t r = 0; r < rows; r++)                                                                       \
                for (int64_t c = 0; c < columns; c++)                                                                \
                    dst[r * row_stride + c * column_stride] = src[r * columns + c];                                  \
    }

WALKS(1, uint8_t)
WALKS(2, uint16_t)
WALKS(4, uint32_t)
WALKS(8, uint64_t)
WALKS(16, element16)

#define BY_SIZE(call)                                                                                                \
    switch (bytes) {                                                                                                 \
    case 1: call(1); break;                                                                                          \
    case 2: call(2); break;                                                                                          \
    case 4: call(4); break;                                                                                          \
    case 8: call(8); break;                                                                                          \
    default: call(16); break;                                                                                        \
    }

void tap__pw_gather(void *dst, const void *src, size_t bytes, const tap__pw_layout *layout, int64_t first, int64_t n)
{
#define CALL(size) gather_##size(dst, src, layout, first, n)
    BY_SIZE(CALL)
#undef CALL
}

void tap__pw_scatter(void *dst, const void *src, size_t bytes, const tap__pw_layout *layout, int64_t first, int64_t n)
{
#define CALL(size) scatter_##size(dst, src, layout, first, n)
    BY_SIZE(CALL)
#undef CALL
}

void tap__pw_gather_tile(void *dst, const void *src, size_t bytes, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride)
{
#define CALL(size) gather_tile_##size(dst, src, rows, columns, row_stride, column_stride)
    BY_SIZE(CALL)
#undef CALL
}

void tap__pw_scatter_tile(void *dst, const void *src, size_t bytes, int64_t rows, int64_t columns, int64_t row_stride,
                          int64_t column_stride)
{
#define CALL(size) scatter_tile_##size(dst, src, rows, columns, row_stride, column_stride)
    BY_SIZE(CALL)
#undef CALL
}
