/* view.c - sizes and shape questions of strided views. */
#include "tensortap/tensortap.h"

int64_t tap_tensor_count(const tap_tensor *tensor)
{
    const tap_dtype_info *info = tensor ? tap_dtype_describe(tensor->dtype) : NULL;
    if (!info || tensor->ndim < 0 || tensor->ndim > TAP_MAX_NDIM || (tensor->ndim && !tensor->shape))
        return -1;
    int64_t count = 1;
    bool empty = false, overflow = false;
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0)
            return -1;
        empty |= tensor->shape[i] == 0;
        overflow |= __builtin_mul_overflow(count, tensor->shape[i] ? tensor->shape[i] : 1, &count);
    }
    int64_t bytes;
    if (empty)
        return 0;
    return overflow || __builtin_mul_overflow(count, (int64_t)info->bytes, &bytes) ? -1 : count;
}

int64_t tap_tensor_bytes(const tap_tensor *tensor)
{
    int64_t count = tap_tensor_count(tensor);
    return count < 0 ? -1 : count * tap_dtype_describe(tensor->dtype)->bytes;
}

bool tap_tensor_is_contiguous(const tap_tensor *tensor)
{
    int64_t count = tap_tensor_count(tensor);
    if (count <= 1 || !tensor->strides)
        return count >= 0;
    int64_t expected = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected)
            return false;
        expected *= tensor->shape[i];
    }
    return true;
}
