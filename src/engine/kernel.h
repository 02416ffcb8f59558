/* kernel.h - what a kernel sees: one node with concrete sizes. The plan makes a call once per signature (prepare) and
 * runs it many times, in several threads at once, so run() writes only to its outputs and its scratch.
 *
 * Rules for kernels: any strides in inputs and outputs unless prepare refuses them; sizes of zero; 0-d; outputs never
 * overlap inputs unless the op table says so. The same bits for any number of threads. Never allocate in run: ask for
 * scratch in prepare. prepare may return TAP_E_UNSUPPORTED, and then the framework runs the node. */
#ifndef TAP_ENGINE_KERNEL_H
#define TAP_ENGINE_KERNEL_H

#include "graph/call.h"

/* data: addresses of the elements [0, 0, ...] of in[0] ... in[nin - 1] (NULL: left out, or a number), of out[0] ..., then
 * of the scratch. */
typedef struct tap__kernel {
    tap_status (*prepare)(tap__call *call, tap_error *err); /* may be NULL */
    tap_status (*run)(const tap__call *call, void *const *data, tap_error *err);
    void (*release)(tap__call *call);                       /* may be NULL */
} tap__kernel;

/* TAP_E_UNSUPPORTED, for prepare: the framework runs the node. */
tap_status tap__refuse(const tap__call *call, tap_error *err);

/* Calls body(user, begin, end) over [0, count) in pieces of at least `least` units (the last one may be shorter) and at
 * most `most`, on at most `threads` threads of OpenMP's pool. A body says how many units it can take at once: what it
 * keeps in an array of its own is a limit, TAP_ANY_LENGTH says that there is none. Where the pieces begin depends on
 * count, least and most alone, never on the number of threads. Not nested. */
#define TAP_ANY_LENGTH INT64_MAX
void tap__parallel(int threads, int64_t count, int64_t least, int64_t most,
                   void (*body)(void *user, int64_t begin, int64_t end), void *user);

#endif
