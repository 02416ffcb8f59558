/* payload.c - a tensor's row-major bytes into a file, block by block. */
#include "format/payload.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <libdeflate.h>

enum { BLOCK_BYTES = 1 << 20, STACK_BYTES = 4096 };

/* How a strided or converted tensor is cut: runs of `rows` along dimension `split`, all that comes after it inside. */
typedef struct block_walk {
    tap_tensor view;          /* the current block */
    tap_dtype to;
    int split;                /* -1: a scalar, one block */
    int64_t rows;
    int64_t shape[TAP_MAX_NDIM + 1], strides[TAP_MAX_NDIM + 1]; /* [split...] is the block's */
    int64_t index[TAP_MAX_NDIM + 1];
    size_t max_bytes;         /* of a block */
} block_walk;

static size_t value_bytes(tap_dtype from, tap_dtype to)
{
    size_t bytes = tap_dtype_describe(to)->bytes;
    return from == to ? bytes : bytes * tap_dtype_describe(from)->values;
}

int64_t tap__payload_bytes(const tap_tensor *tensor, tap_dtype dtype)
{
    int64_t count = tap_tensor_count(tensor), bytes;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)value_bytes(tensor->dtype, dtype), &bytes))
        return -1;
    return bytes;
}

int32_t tap__payload_shape(const tap_tensor *tensor, tap_dtype dtype, int64_t *shape)
{
    int32_t ndim = tensor->ndim;
    for (int32_t i = 0; i < ndim; i++)
        shape[i] = tensor->shape[i];
    int values = tap_dtype_describe(tensor->dtype)->values;
    if (dtype == tensor->dtype || values == 1)
        return ndim;
    if (ndim == 0)
        shape[ndim++] = values;
    else if (__builtin_mul_overflow(shape[ndim - 1], values, &shape[ndim - 1]))
        shape[ndim - 1] = 0; /* only of an empty tensor: tap__payload_bytes refused the others */
    return ndim;
}

static tap_status write_piece(tap_payload *payload, const void *head, size_t head_len, const void *bytes, size_t len,
                              tap_error *err)
{
    if (payload->crc_wanted && len)
        payload->crc = libdeflate_crc32(payload->crc, bytes, len);
    const struct iovec parts[2] = {{(void *)(uintptr_t)head, head_len}, {(void *)(uintptr_t)bytes, len}};
    if (tap__writev_all(payload->fd, parts, 2))
        return tap_fail_errno(err, TAP_E_IO, "cannot write %s", payload->path);
    return TAP_OK;
}

/* With a checksum in blocks, so that the bytes are still in the cache when they are written. */
static tap_status write_straight(tap_payload *payload, const void *head, size_t head_len, const void *bytes,
                                 size_t len, tap_error *err)
{
    const char *at = bytes;
    do {
        size_t piece = payload->crc_wanted && len > BLOCK_BYTES ? BLOCK_BYTES : len;
        TAP_TRY(write_piece(payload, head, head_len, at, piece, err));
        head_len = 0;
        at = piece ? at + piece : at;
        len -= piece;
    } while (len);
    return TAP_OK;
}

static void walk_begin(block_walk *walk, const tap_tensor *tensor, tap_dtype to)
{
    int ndim = tensor->ndim;
    int64_t inner = (int64_t)value_bytes(tensor->dtype, to), expected = 1;
    walk->to = to;
    walk->view = *tensor;
    for (int i = ndim - 1; i >= 0; i--) {
        walk->shape[i] = tensor->shape[i];
        walk->strides[i] = tensor->strides ? tensor->strides[i] : expected;
        walk->index[i] = 0;
        expected *= tensor->shape[i];
    }
    walk->split = ndim - 1;
    while (walk->split > 0 && inner * walk->shape[walk->split] <= BLOCK_BYTES)
        inner *= walk->shape[walk->split--];
    walk->rows = ndim == 0 ? 1 : BLOCK_BYTES / inner;
    if (ndim > 0 && walk->rows > walk->shape[walk->split])
        walk->rows = walk->shape[walk->split];
    walk->max_bytes = (size_t)(inner * walk->rows);
    if (ndim > 0) {
        walk->view.ndim = ndim - walk->split;
        walk->view.shape = walk->shape + walk->split;
        walk->view.strides = walk->strides + walk->split;
    }
}

/* Points view at the block at index; returns its bytes. */
static size_t walk_block(block_walk *walk, const tap_tensor *tensor)
{
    if (walk->split < 0)
        return walk->max_bytes;
    int64_t offset = 0, left = tensor->shape[walk->split] - walk->index[walk->split];
    for (int i = 0; i <= walk->split; i++)
        offset += walk->index[i] * walk->strides[i];
    walk->view.data = (char *)tensor->data + offset * tap_dtype_describe(tensor->dtype)->bytes;
    walk->shape[walk->split] = left < walk->rows ? left : walk->rows;
    return walk->max_bytes / (size_t)walk->rows * (size_t)walk->shape[walk->split];
}

static bool walk_next(block_walk *walk, const tap_tensor *tensor)
{
    int i = walk->split;
    if (i < 0)
        return false;
    walk->index[i] += walk->rows;
    while (walk->index[i] >= tensor->shape[i]) {
        walk->index[i] = 0;
        if (--i < 0)
            return false;
        walk->index[i]++;
    }
    return true;
}

static tap_status write_blocks(tap_payload *payload, const void *head, size_t head_len, const tap_tensor *tensor,
                               block_walk *walk, void *buffer, tap_error *err)
{
    do {
        size_t len = walk_block(walk, tensor);
        if (walk->to == tensor->dtype)
            TAP_TRY(tap_tensor_scan(&walk->view, 0, buffer, NULL, NULL, err));
        else
            TAP_TRY(tap_tensor_convert(&walk->view, walk->to, buffer, err));
        TAP_TRY(write_piece(payload, head, head_len, buffer, len, err));
        head_len = 0;
    } while (walk_next(walk, tensor));
    return TAP_OK;
}

tap_status tap__payload_write(tap_payload *payload, const void *head, size_t head_len, const tap_tensor *tensor,
                              tap_dtype dtype, tap_error *err)
{
    int64_t bytes = tap__payload_bytes(tensor, dtype);
    if (bytes < 0)
        return tap_fail(err, TAP_E_LIMIT, "%s: the tensor is too large", payload->path);
    if (bytes == 0 || (dtype == tensor->dtype && tap_tensor_is_contiguous(tensor)))
        return write_straight(payload, head, head_len, tensor->data, (size_t)bytes, err);
    block_walk walk;
    walk_begin(&walk, tensor, dtype);
    if (walk.max_bytes <= STACK_BYTES) {
        _Alignas(64) char small[STACK_BYTES];
        return write_blocks(payload, head, head_len, tensor, &walk, small, err);
    }
    void *buffer = tap__alloc(walk.max_bytes);
    if (!buffer)
        return tap_fail_nomem(err);
    tap_status status = write_blocks(payload, head, head_len, tensor, &walk, buffer, err);
    tap__free(buffer);
    return status;
}
