/* pointwise.h - chains of pointwise nodes as one pass: a program whose instructions work on blocks of elements that
 * stay in the first-level cache. Loads bring strided, broadcast elements of any dtype into a block, instructions
 * compute, stores scatter a block into an output of any strides.
 *
 * Each node computes as ATen does (operands converted to the common dtype of the node, float16 and bfloat16 in
 * float32) and its result is rounded to the node's own dtype, so fusing changes no bit. */
#ifndef TAP_ENGINE_POINTWISE_H
#define TAP_ENGINE_POINTWISE_H

#include "engine/kernel.h"

enum { TAP_PW_MAX_NODES = 64, TAP_PW_MAX_LOADS = 32, TAP_PW_MAX_STORES = 16, TAP_PW_MAX_INPUTS = 6 };

/* One node of the chain. call->in tells dtype, rank and numbers of its operands, call->out[0] its result. */
typedef struct tap__pw_node {
    const tap__call *call;
    int from[TAP_PW_MAX_INPUTS]; /* per input: result of an earlier node of the chain (>= 0), or ~index of a load; a
                                    number or an input left out is not looked at */
    int store;                   /* index of the store its result goes to, -1: used inside the chain only */
} tap__pw_node;

typedef struct tap__pw tap__pw;

/* Whether the chain compiler has this node for these dtypes; if not, the framework runs it. */
bool tap__pw_supports(const tap__call *call);
/* All nodes have the same output sizes; loads broadcast to them. Owned by the caller, freed with tap__pw_free. */
tap_status tap__pw_build(const tap__pw_node *nodes, int nnodes, const tap__operand *loads, int nloads,
                         const tap__operand *stores, int nstores, int threads, tap__pw **out, tap_error *err);
/* Bytes of scratch that a run needs, on a line of the cache: a chain's blocks are too big for a thread's stack. */
size_t tap__pw_room(const tap__pw *program);
/* data: addresses of the loads, then of the stores, then of the scratch. A store may be the same memory as a load with the same strides.
 * Fails where an integer is divided by zero. */
tap_status tap__pw_run(const tap__pw *program, void *const *data, tap_error *err);
void tap__pw_free(tap__pw *program);

#endif
