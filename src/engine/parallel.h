/* parallel.h - work spread over threads, and how many the framework lets a kernel use. */
#ifndef TAP_ENGINE_PARALLEL_H
#define TAP_ENGINE_PARALLEL_H

#include <stdint.h>

int tap__threads(void);

/* Calls body(user, begin, end) over [0, count) in pieces of at least `least` units (the last one may be shorter) and at
 * most `most`, on at most `threads` threads of OpenMP's pool. A body says how many units it can take at once: what it
 * keeps in an array of its own is a limit, TAP_ANY_LENGTH says that there is none. Where the pieces begin depends on
 * count, least and most alone, never on the number of threads. Not nested. */
#define TAP_ANY_LENGTH INT64_MAX
void tap__parallel(int threads, int64_t count, int64_t least, int64_t most,
                   void (*body)(void *user, int64_t begin, int64_t end), void *user);

#endif
