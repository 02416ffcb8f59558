/* pattern.h - what fault_stress saves: thread t's i-th tensor has a name, size and content that follow from (seed, t, i),
 * so that fault_check can tell every lost, torn or changed value without any other record of the run. */
#ifndef TAP_TESTS_FAULT_PATTERN_H
#define TAP_TESTS_FAULT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PATTERN_THREADS 16

/* In a shared mapping, so that it outlives kill -9: how many saves of each thread were started and had returned. */
typedef struct pattern_counters {
    struct {
        _Atomic uint64_t started, returned;
        uint64_t pad[6];
    } thread[PATTERN_THREADS];
    _Atomic uint64_t ready;
} pattern_counters;

static inline uint64_t pattern_mix(uint64_t seed, uint64_t thread, uint64_t index)
{
    uint64_t h = seed * 0x9E3779B97F4A7C15u + thread * 0xC2B2AE3D27D4EB4Fu + index + 1;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

/* Elements (uint32) of the tensor: mostly small, some large, a few up to three times the ring. */
static inline size_t pattern_count(uint64_t seed, uint64_t thread, uint64_t index, uint64_t ring_bytes)
{
    uint64_t h = pattern_mix(seed ^ 0x517CC1B7, thread, index), pick = h % 1000, size = h >> 20;
    uint64_t most = pick < 700 ? 4096 : pick < 970 ? 65536 * 3 : pick < 996 ? ring_bytes / 2 : ring_bytes * 3;
    return (size_t)(size % most / 4);
}

static inline uint32_t pattern_value(uint64_t seed, uint64_t thread, uint64_t index, size_t at)
{
    return (uint32_t)pattern_mix(seed, thread, index) + (uint32_t)at * 2654435761u;
}

#endif
