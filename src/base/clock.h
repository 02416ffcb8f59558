/* clock.h - time. Durations come from the monotonic clock only: the wall clock may go backwards. */
#ifndef TAP_BASE_CLOCK_H
#define TAP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t tap__clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t tap__monotonic_ns(void)
{
    return tap__clock_ns(CLOCK_MONOTONIC);
}

/* Since 1970, UTC. For labels, never for waiting. */
static inline uint64_t tap__wall_ns(void)
{
    return tap__clock_ns(CLOCK_REALTIME);
}

#endif
