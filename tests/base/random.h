/* random.h - numbers that look random and are the same in every run. */
#ifndef TAP_TESTS_RANDOM_H
#define TAP_TESTS_RANDOM_H

#include <stdint.h>

static uint64_t seed = 1;

static inline uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

#endif
