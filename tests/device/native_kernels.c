/* native_kernels.c - the device's kernels run by threads of the process. */
#include "native_kernels.h"

#include "device/kernels/tap_kernel.c"

#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>

typedef struct block {
    const tap_k_tap *tap;
    pthread_barrier_t barrier;
    alignas(64) char memory[TAP_K_MAX_THREADS * sizeof(tap_k_sums)]; /* what SHARED names first */
    alignas(64) unsigned word;                                       /* and then */
} block;

typedef struct runner {
    tap_k_place place;
    block *block;
    unsigned asked; /* SHARED names seen by this thread */
} runner;

static _Thread_local runner *here;

const tap_k_place *tap_k_here(void)
{
    return &here->place;
}

void *tap_k_shared(void)
{
    return here->asked++ == 0 ? (void *)here->block->memory : (void *)&here->block->word;
}

void tap_k_barrier(void)
{
    pthread_barrier_wait(&here->block->barrier);
}

static void *run_leaf(void *arg)
{
    here = arg;
    tap_leaf(*here->block->tap);
    return NULL;
}

void native_leaf(const tap_k_tap *tap, unsigned blocks, unsigned threads)
{
    block *shared = aligned_alloc(64, (sizeof *shared + 63) / 64 * 64);
    runner *runners = calloc(threads, sizeof *runners);
    pthread_t *ids = calloc(threads, sizeof *ids);
    shared->tap = tap;
    for (unsigned b = 0; b < blocks; b++) {
        pthread_barrier_init(&shared->barrier, NULL, threads);
        for (unsigned i = 0; i < threads; i++)
            runners[i] = (runner){.place = {i, threads, b, blocks}, .block = shared};
        for (unsigned i = 1; i < threads; i++)
            pthread_create(&ids[i], NULL, run_leaf, &runners[i]);
        run_leaf(&runners[0]);
        for (unsigned i = 1; i < threads; i++)
            pthread_join(ids[i], NULL);
        pthread_barrier_destroy(&shared->barrier);
    }
    free(ids);
    free(runners);
    free(shared);
}

void native_gate(const tap_k_gate *gate)
{
    tap_gate(*gate);
}
