/* checksum.c - see checksum.h. */
#include "record/layouts/checksum.h"

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
