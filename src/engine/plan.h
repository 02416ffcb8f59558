/* plan.h - a graph made concrete for one signature: what runs in which order, on which memory.
 *
 * A value lives in one of four places: with the host from the start (graph inputs, results of HostCalls), in a tensor
 * the host allocates (graph outputs, and whatever a HostCall, an observer or a later segment reads), in the arena
 * (everything else), or nowhere (inside a fused chain). A view has no memory of its own: it is its root's, further on.
 *
 * Where sizes depend on data the graph is cut into segments; a segment is planned when all its sizes are known. */
#ifndef TAP_ENGINE_PLAN_H
#define TAP_ENGINE_PLAN_H

#include "engine/kernel.h"
#include "engine/kernels/pointwise.h"
#include "graph/graph.h"

/* An address: of a value plus bytes, of the arena plus bytes (value TAP__REF_ARENA), or none (TAP__REF_NONE). */
typedef struct tap__ref {
    int32_t value;
    int64_t bytes;
} tap__ref;
enum { TAP__REF_NONE = -1, TAP__REF_ARENA = -2 };

typedef enum tap__step_kind { TAP__STEP_KERNEL, TAP__STEP_CHAIN, TAP__STEP_HOST } tap__step_kind;

typedef struct tap__step {
    tap__step_kind kind;
    int32_t node;                 /* the last node of a chain */
    tap__call *call;              /* KERNEL */
    tap__pw *chain;               /* CHAIN */
    tap__ref *refs;               /* of loads and stores, or inputs and outputs; the last is its scratch */
    int32_t nrefs;
    int32_t *fresh, nfresh;       /* values the host allocates before it */
    int32_t *done, ndone;         /* values nobody needs after it */
    int32_t *observed, nobserved; /* nodes the host wants to see after it */
    uint64_t bytes;               /* read and written, for the profile */
} tap__step;

typedef struct tap__plan {
    struct tap__plan *next;       /* of the same segment, the newest used first */
    int32_t users;                /* runs that hold it; guarded by the engine's lock */
    int32_t segment, threads;
    int64_t *symbols;             /* the signature */
    int64_t *syms;                /* every expression evaluated; which are known: */
    bool *have;
    tap__operand *values;         /* sizes and strides; ndim -1: not known here */
    bool *on_host;                /* per node: the host runs it */
    tap__call *calls;             /* per node */
    tap__step *steps;
    int32_t nsteps, nrefs_max;
    size_t arena;                 /* bytes of a workspace that its steps need, */
    size_t room;                  /* of which the first are what a chain keeps its blocks in */
    tap_arena memory;             /* of all of this */
} tap__plan;

typedef struct tap__segment {
    int32_t first, end; /* nodes */
    int32_t counts;     /* the node after it, whose results are measured when these have run; -1: none */
    tap__plan *plans;
    int32_t nplans;
} tap__segment;

/* What planning needs to know of the engine. */
typedef struct tap__plan_input {
    const tap_graph *graph;
    const bool *native;   /* per node: the engine may run it */
    unsigned flags;       /* TAP_ENGINE_* */
    const tap__segment *segments;
    int32_t segment;
    const int64_t *symbols;
    const bool *known;
    int32_t threads;
} tap__plan_input;

tap_status tap__plan_make(const tap__plan_input *input, tap__plan **out, tap_error *err);
void tap__plan_free(tap__plan *plan, int32_t nnodes);

void *tap__plan_alloc(tap__plan *plan, size_t count, size_t size); /* zeroed; lives as long as the plan */

/* plan_steps.c: chains and steps; plan_memory.c: places, lifetimes, the arena. Work of one planning. */
typedef struct tap__planning {
    const tap__plan_input *in;
    tap__plan *plan;
    const tap_graph *graph;
    int32_t first, end;      /* nodes of the segment */
    int32_t *root;           /* per value: whose memory it is in; itself: its own */
    int64_t *offset;         /* bytes from the root's first element */
    bool *boxed;             /* the host must hold it */
    bool *stored;            /* the result of a step: has memory */
    int32_t *last_use;       /* per root: number of the last step that reads it; -1: none; INT32_MAX: never ends */
    int32_t *made_by;        /* per value: step; -1: given */
} tap__planning;

/* A node that writes into a graph input, and which of its sources that is. */
enum { TAP__ASSIGN_INTO = 1 };
static inline bool tap__assigns(const tap__node *node)
{
    return node->op->code == TAP_PW_Assign && node->op->kind == TAP_OP_POINTWISE;
}
/* Whether a value may be in the memory of the graph input `into`. */
bool tap__may_share(const tap_graph *graph, int32_t value, int32_t into);

tap_status tap__plan_steps(tap__planning *self, tap_error *err);
tap_status tap__plan_memory(tap__planning *self, tap_error *err);
/* Bytes from its first to its last element, rounded up for the arena. */
size_t tap__plan_extent(const tap__operand *operand);

#endif
