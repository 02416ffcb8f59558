/* hash.h - the hash of a tensor's row-major bytes, in pieces.
 *
 * The bytes are read as little-endian 64-bit words w[0], w[1], ... (the last one filled with zeros). With
 *     k[i] = K0 + i * K1 (mod 2^64)        x = w[i] ^ k[i]
 *     sum  = sum over i of  low32(x) * high32(x) + rotate(w[i], 32)   (mod 2^64)
 * the hash is mix(sum ^ (bytes * K2)), mix being the last step of splitmix64. A sum may be taken in any order and in
 * any pieces, on any device; a single changed bit always changes it. */
#ifndef TAP_TENSOR_HASH_H
#define TAP_TENSOR_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TAP_HASH_K0 0x9E3779B97F4A7C15u
#define TAP_HASH_K1 0xD1B54A32D192ED03u
#define TAP_HASH_K2 0x8CB92BA72F3D8DD7u

/* The sum over a piece that starts at word number `word`. Only the last piece may have len not a multiple of 8. */
uint64_t tap__hash_sum(const void *bytes, size_t len, uint64_t word);
/* The hash, from the whole sum and the whole length. */
uint64_t tap__hash_finish(uint64_t sum, uint64_t len);

#endif
