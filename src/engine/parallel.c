/* parallel.c - the one place where work is spread over threads: by the OpenMP runtime that the process has loaded
 * already, so that there is one pool and no second set of spinning threads. It is found at run time; where there is
 * none, one thread does the work. The thread sanitizer cannot see into it, so its builds start threads of their own. */
#include "engine/parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

/* No more pieces than that, unless a body takes only short ones: long enough for memory to be read ahead, and enough for
 * some to be left for the threads that are done first. */
enum { PIECES = 64 };

typedef struct job {
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
    int64_t count, grain, pieces;
    _Atomic int64_t next;
} job;

static void work(void *data)
{
    job *self = data;
    int64_t piece;
    while ((piece = atomic_fetch_add_explicit(&self->next, 1, memory_order_relaxed)) < self->pieces) {
        int64_t begin = piece * self->grain, end = begin + self->grain;
        self->body(self->user, begin, end < self->count ? end : self->count);
    }
}

#ifdef __SANITIZE_THREAD__

static void *work_thread(void *data)
{
    work(data);
    return NULL;
}

int tap__threads(void)
{
    return 4;
}

static void spread(job *self, int threads)
{
    pthread_t others[16];
    int started = 0;
    while (started < threads - 1 && started < 16 && !pthread_create(&others[started], NULL, work_thread, self))
        started++;
    work(self);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

#else

static struct {
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
    int (*in_parallel)(void);
    int (*max_threads)(void);
} gomp;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_runtime(void)
{
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen("libgomp.so.1", RTLD_NOW);
    void *parallel = library ? dlsym(library, "GOMP_parallel") : NULL;
    void *in_parallel = library ? dlsym(library, "omp_in_parallel") : NULL;
    void *max_threads = library ? dlsym(library, "omp_get_max_threads") : NULL;
    if (!parallel || !in_parallel || !max_threads)
        return;
    *(void **)&gomp.parallel = parallel;
    *(void **)&gomp.in_parallel = in_parallel;
    *(void **)&gomp.max_threads = max_threads;
}

int tap__threads(void)
{
    pthread_once(&once, find_runtime);
    return gomp.max_threads ? gomp.max_threads() : 1;
}

static void spread(job *self, int threads)
{
    pthread_once(&once, find_runtime);
    if (gomp.parallel && !gomp.in_parallel())
        gomp.parallel(work, self, (unsigned)threads, 0);
    else
        work(self);
}

#endif

void tap__parallel(int threads, int64_t count, int64_t least, int64_t most,
                   void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    if (count <= 0)
        return;
    int64_t grain = least > 1 ? least : 1, even = count / PIECES;
    if (even > grain)
        grain = even / grain * grain;
    if (grain > most)
        grain = most;
    job self = {.body = body, .user = user, .count = count, .grain = grain, .pieces = (count + grain - 1) / grain};
    if (threads > self.pieces)
        threads = (int)self.pieces;
    if (threads > 1)
        spread(&self, threads);
    else
        work(&self);
}
