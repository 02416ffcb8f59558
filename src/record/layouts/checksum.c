/* checksum.c - see checksum.h. */
#include "record/layouts/checksum.h"

#include "tensor/walk.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>

static uint64_t xor_words(uint64_t sum, const char *bytes, size_t len)
{
    uint64_t word;
    for (; len >= sizeof word; bytes += sizeof word, len -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum ^= word;
    }
    word = 0; /* the last one is filled up with zeros */
    memcpy(&word, bytes, len);
    return sum ^ word;
}

uint64_t tap__checksum_add(tap_checksum kind, uint64_t sum, const void *bytes, size_t len)
{
    if (!len)
        return sum;
    return kind == TAP_CHECKSUM_XOR ? xor_words(sum, bytes, len) : libdeflate_crc32((uint32_t)sum, bytes, len);
}

void tap__checksum_show(tap_checksum kind, uint64_t sum, char *out)
{
    if (kind == TAP_CHECKSUM_XOR)
        snprintf(out, 24, "0x%016" PRIx64, sum);
    else
        snprintf(out, 24, "%08" PRIx64, sum);
}

/* A strided tensor in blocks, which are small: this may be a small stack. */
uint64_t tap__checksum_tensor(tap_checksum kind, const tap_tensor *tensor)
{
    enum { BLOCK_BYTES = 2048 }; /* a multiple of every element's */
    tap_walk walk;
    char block[BLOCK_BYTES];
    uint64_t sum = 0;
    if (tap__walk_begin(&walk, tensor, NULL) != TAP_OK)
        return 0;
    size_t bytes = tap_dtype_describe(tensor->dtype)->bytes;
    if (tap_tensor_is_contiguous(tensor))
        return tap__checksum_add(kind, 0, tensor->data, (size_t)walk.left * bytes);
    while (walk.left) {
        int64_t most = (int64_t)(BLOCK_BYTES / bytes), take = walk.left < most ? walk.left : most;
        tap__walk_read(&walk, block, take);
        sum = tap__checksum_add(kind, sum, block, (size_t)take * bytes);
    }
    return sum;
}
