/* parallel.c - the one place where work is spread over threads. OpenMP, so that there is one pool in the process: the
 * one the framework uses already. The thread sanitizer does not understand it; its builds run in one thread. */
#include "engine/kernel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void tap__parallel(const tap__call *call, int64_t count, int64_t grain,
                   void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    if (count <= 0)
        return;
    if (grain < 1)
        grain = 1;
    int64_t pieces = (count + grain - 1) / grain;
#ifdef _OPENMP
    int threads = call->threads < pieces ? call->threads : (int)pieces;
    if (threads > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t piece = 0; piece < pieces; piece++) {
            int64_t begin = piece * grain, end = begin + grain < count ? begin + grain : count;
            body(user, begin, end);
        }
        return;
    }
#else
    (void)call;
#endif
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t begin = piece * grain, end = begin + grain < count ? begin + grain : count;
        body(user, begin, end);
    }
}
