/* hash.c - the hash of bytes; the loops are in kernels/. */
#include "tensor/hash.h"

#include "tensor/kernels/kernels.h"

uint64_t tap__hash_sum(const void *bytes, size_t len, uint64_t word)
{
    return tap__kernels()->hash(bytes, len, word);
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
    if (!bytes)
        len = 0;
    return tap__hash_finish(tap__hash_sum(bytes, len, 0), len);
}
