/* engine.h - a graph that runs: its segments, the plans made so far, workspaces that are free, and one frame per run. */
#ifndef TAP_ENGINE_ENGINE_H
#define TAP_ENGINE_ENGINE_H

#include "engine/plan.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TAP__MAX_PLANS = 64 }; /* kept per segment; the one used longest ago goes first */

/* Where the values of a call in flight lie that the host does not hold, at the offsets its plans say. */
typedef struct tap__workspace {
    struct tap__workspace *next;
    size_t size;
    void *memory; /* as it was allocated */
    char *start;  /* the first byte in it that lies on a line of the cache */
} tap__workspace;

typedef struct tap__times {
    _Atomic uint64_t runs, nanoseconds, bytes, last_start, last_nanoseconds;
} tap__times;

struct tap_engine {
    tap_graph *graph;
    tap_host host;
    unsigned flags;
    bool *native;           /* per node: may be run by a kernel */
    bool *starts_known;     /* per symbol: bound by the inputs */
    tap__segment *segments;
    int32_t nsegments;
    tap__times *times;      /* per node, TAP_ENGINE_PROFILE */
    pthread_mutex_t lock;   /* of what follows and of the plans' lists */
    tap__workspace *workspaces; /* free ones */
    tap_frame *frames;      /* free ones */
    tap_engine_counts counts;
    bool *newest_on_host;   /* per node: as the newest plans have it */
};

struct tap_frame {
    tap_frame *next;
    tap_engine *engine;
    void *user;
    int64_t *symbols;
    bool *known;
    void **data;            /* per value: its first element */
    tap__operand *given;    /* per value: sizes and strides the host gave; ndim -1: nothing yet */
    void **pointers;        /* of the running step */
    int32_t npointers;
    tap__plan *plan;        /* of the running segment, held */
    tap__workspace *workspace;
};

#endif
