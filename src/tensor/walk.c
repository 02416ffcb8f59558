/* walk.c - strided views in row-major order. */
#include "tensor/walk.h"

#include "base/status.h"

#include <string.h>

tap_status tap__shape_check(const tap_tensor *tensor, tap_error *err)
{
    if (!tensor)
        return tap_fail(err, TAP_E_INVALID, "tensor: the pointer to it is NULL; give a tap_tensor");
    if (tensor->ndim < 0 || tensor->ndim > TAP_MAX_NDIM)
        return tap_fail(err, TAP_E_INVALID, "tensor: %d dimensions; 0 to %d are possible", tensor->ndim, TAP_MAX_NDIM);
    if (tensor->ndim && !tensor->shape)
        return tap_fail(err, TAP_E_INVALID, "tensor: %d dimensions but no shape; set tap_tensor.shape", tensor->ndim);
    return TAP_OK;
}

tap_status tap__tensor_check(const tap_tensor *tensor, int64_t *count, tap_error *err)
{
    TAP_TRY(tap__shape_check(tensor, err));
    if (!tap_dtype_describe(tensor->dtype))
        return tap_fail(err, TAP_E_INVALID, "tensor: dtype %d is not known; use one of tap_dtype", (int)tensor->dtype);
    *count = tap_tensor_count(tensor);
    if (*count < 0)
        return tap_fail(err, TAP_E_INVALID, "tensor: its shape has a negative size or its bytes do not fit 63 bits");
    if (*count && !tensor->data)
        return tap_fail(err, TAP_E_INVALID, "tensor: %lld elements but no data; set tap_tensor.data", (long long)*count);
    return TAP_OK;
}

tap_status tap__walk_begin(tap_walk *walk, const tap_tensor *tensor, tap_error *err)
{
    int64_t count = 0;
    TAP_TRY(tap__tensor_check(tensor, &count, err));
    walk->at = tensor->data;
    walk->item = tap_dtype_describe(tensor->dtype)->bytes;
    walk->left = count;
    int64_t item = (int64_t)walk->item;
    if (!tensor->strides || count <= 1) {
        walk->ndim = 1;
        walk->shape[0] = count;
        walk->stride[0] = item;
        walk->index[0] = 0;
        return TAP_OK;
    }
    int ndim = 0;
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t size = tensor->shape[i], stride = tensor->strides[i] * item;
        if (size == 1)
            continue;
        if (ndim && walk->stride[ndim - 1] == size * stride) {
            walk->shape[ndim - 1] *= size;
            walk->stride[ndim - 1] = stride;
            continue;
        }
        walk->shape[ndim] = size;
        walk->stride[ndim] = stride;
        walk->index[ndim++] = 0;
    }
    walk->ndim = ndim;
    return TAP_OK;
}

bool tap__walk_is_contiguous(const tap_walk *walk)
{
    return walk->ndim == 1 && walk->stride[0] == (int64_t)walk->item;
}

/* The first element is there; doubles what is filled until all is. */
static void repeat(char *dst, size_t item, size_t len)
{
    for (size_t done = item; done < len;) {
        size_t take = done < len - done ? done : len - done;
        memcpy(dst + done, dst, take);
        done += take;
    }
}

typedef struct pair {
    uint64_t a, b;
} pair;

#define GATHER(type)                                                                                                 \
    for (int64_t i = 0; i < count; i++) {                                                                            \
        type element;                                                                                                \
        memcpy(&element, src + i * stride, sizeof element);                                                          \
        memcpy(dst + i * (int64_t)sizeof element, &element, sizeof element);                                         \
    }

static void gather(char *dst, const char *src, int64_t stride, int64_t count, size_t item)
{
    if (stride == (int64_t)item) {
        memcpy(dst, src, (size_t)count * item);
        return;
    }
    if (stride == 0) {
        memcpy(dst, src, item);
        repeat(dst, item, (size_t)count * item);
        return;
    }
    switch (item) {
    case 1: GATHER(uint8_t) break;
    case 2: GATHER(uint16_t) break;
    case 4: GATHER(uint32_t) break;
    case 8: GATHER(uint64_t) break;
    default: GATHER(pair) break;
    }
}

enum { TILE_ROWS = 16, TILE_COLUMNS = 8 };

/* rows x columns elements that lie side by side down the columns, in tiles, so that every cache line that is fetched is
 * used up while it is there. Whole tiles go through a small array that the compiler keeps in registers. */
#define TRANSPOSE(name, type)                                                                                        \
    static void tile_##name(char *dst, int64_t row, const char *src, int64_t across)                                 \
    {                                                                                                                \
        type tile[TILE_COLUMNS][TILE_ROWS];                                                                          \
        for (int c = 0; c < TILE_COLUMNS; c++)                                                                       \
            memcpy(tile[c], src + c * across, sizeof tile[c]);                                                       \
        for (int r = 0; r < TILE_ROWS; r++) {                                                                        \
            type line[TILE_COLUMNS];                                                                                 \
            for (int c = 0; c < TILE_COLUMNS; c++)                                                                   \
                line[c] = tile[c][r];                                                                                \
            memcpy(dst + r * row, line, sizeof line);                                                                \
        }                                                                                                            \
    }                                                                                                                \
    static void transpose_##name(char *dst, const char *src, int64_t rows, int64_t columns, int64_t across)          \
    {                                                                                                                \
        const int64_t item = sizeof(type), row = columns * item;                                                     \
        for (int64_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {                                                           \
            int64_t c = 0, end = r0 + TILE_ROWS < rows ? r0 + TILE_ROWS : rows;                                      \
            for (; end - r0 == TILE_ROWS && c + TILE_COLUMNS <= columns; c += TILE_COLUMNS)                          \
                tile_##name(dst + r0 * row + c * item, row, src + r0 * item + c * across, across);                   \
            for (; c < columns; c++)                                                                                 \
                for (int64_t r = r0; r < end; r++)                                                                   \
                    memcpy(dst + r * row + c * item, src + r * item + c * across, sizeof(type));                     \
        }                                                                                                            \
    }

TRANSPOSE(1, uint8_t)
TRANSPOSE(2, uint16_t)
TRANSPOSE(4, uint32_t)
TRANSPOSE(8, uint64_t)
TRANSPOSE(16, pair)

static void transpose(char *dst, const char *src, int64_t rows, int64_t columns, int64_t across, size_t item)
{
    switch (item) {
    case 1: transpose_1(dst, src, rows, columns, across); break;
    case 2: transpose_2(dst, src, rows, columns, across); break;
    case 4: transpose_4(dst, src, rows, columns, across); break;
    case 8: transpose_8(dst, src, rows, columns, across); break;
    default: transpose_16(dst, src, rows, columns, across); break;
    }
}

/* Moves `count` steps on in dimension d, carrying into the outer ones at its end. */
static void advance(tap_walk *walk, int d, int64_t count)
{
    walk->index[d] += count;
    walk->at += count * walk->stride[d];
    while (d > 0 && walk->index[d] == walk->shape[d]) {
        walk->at -= walk->shape[d] * walk->stride[d];
        walk->index[d--] = 0;
        walk->index[d]++;
        walk->at += walk->stride[d];
    }
}

bool tap__walk_is_transposed(const tap_walk *walk)
{
    int inner = walk->ndim - 1;
    return inner > 0 && walk->stride[inner - 1] == (int64_t)walk->item && walk->stride[inner] != 0;
}

/* Whole rows of a transposed view, as many as there are next to one another; 0 where that does not help. */
static int64_t read_rows(tap_walk *walk, char *dst, int64_t count)
{
    int inner = walk->ndim - 1;
    if (!tap__walk_is_transposed(walk) || walk->index[inner] != 0)
        return 0;
    int64_t columns = walk->shape[inner], rows = walk->shape[inner - 1] - walk->index[inner - 1];
    rows = count / columns < rows ? count / columns : rows;
    if (rows < 2)
        return 0;
    transpose(dst, walk->at, rows, columns, walk->stride[inner], walk->item);
    advance(walk, inner - 1, rows);
    return rows * columns;
}

void tap__walk_read(tap_walk *walk, void *dst, int64_t count)
{
    char *to = dst;
    int inner = walk->ndim - 1;
    walk->left -= count;
    while (count > 0) {
        int64_t run = read_rows(walk, to, count);
        if (run == 0) {
            run = walk->shape[inner] - walk->index[inner];
            run = run < count ? run : count;
            gather(to, walk->at, walk->stride[inner], run, walk->item);
            advance(walk, inner, run);
        }
        to += run * (int64_t)walk->item;
        count -= run;
    }
}

const void *tap__element_at(const tap_tensor *tensor, int64_t index)
{
    int64_t item = tap_dtype_describe(tensor->dtype)->bytes, offset = 0;
    if (!tensor->strides)
        return (const char *)tensor->data + index * item;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        offset += index % tensor->shape[i] * tensor->strides[i];
        index /= tensor->shape[i];
    }
    return (const char *)tensor->data + offset * item;
}
