/* hash.c - the position-keyed sum; vector versions are in kernels/. */
#include "tensor/hash.h"

#include "tensortap/tensortap.h"

#include <string.h>

uint64_t tap__hash_sum(const void *bytes, size_t len, uint64_t word)
{
    const unsigned char *at = bytes;
    uint64_t sum = 0, key = TAP_HASH_K0 + word * TAP_HASH_K1;
    for (; len; key += TAP_HASH_K1) {
        uint64_t w = 0;
        size_t take = len < 8 ? len : 8;
        memcpy(&w, at, take);
        uint64_t x = w ^ key;
        sum += (x & 0xFFFFFFFFu) * (x >> 32) + (w << 32 | w >> 32);
        at += take;
        len -= take;
    }
    return sum;
}

uint64_t tap__hash_finish(uint64_t sum, uint64_t len)
{
    uint64_t h = sum ^ len * TAP_HASH_K2;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

uint64_t tap_hash_bytes(const void *bytes, size_t len)
{
    return tap__hash_finish(tap__hash_sum(bytes, len, 0), len);
}
