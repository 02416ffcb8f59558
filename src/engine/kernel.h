/* kernel.h - what a kernel sees: one node with concrete sizes. The plan makes a call once per signature (prepare) and
 * runs it many times, in several threads at once, so run() writes only to its outputs and its scratch.
 *
 * Rules for kernels: any strides in inputs and outputs unless prepare refuses them; sizes of zero; 0-d; outputs never
 * overlap inputs unless the op table says so. The same bits for any number of threads. Never allocate in run: ask for
 * scratch in prepare. prepare may return TAP_E_UNSUPPORTED, and then the framework runs the node. */
#ifndef TAP_ENGINE_KERNEL_H
#define TAP_ENGINE_KERNEL_H

#include "engine/parallel.h"
#include "graph/call.h"

/* data: addresses of the elements [0, 0, ...] of in[0] ... in[nin - 1] (NULL: left out, or a number), of out[0] ..., then
 * of the scratch. */
typedef struct tap__kernel {
    tap_status (*prepare)(tap__call *call, tap_error *err); /* may be NULL */
    tap_status (*run)(const tap__call *call, void *const *data, tap_error *err);
    void (*release)(tap__call *call);                       /* may be NULL */
} tap__kernel;

/* NULL where the operator is not carried out by a kernel. */
const tap__kernel *tap__kernel_of(const tap_op *op);
/* The first size of the first output, where it depends on data (tap_op.counted): the addresses are those of the inputs. */
tap_status tap__kernel_count(const tap__call *call, void *const *data, int64_t *count, tap_error *err);
extern const tap__kernel tap__kernel_user; /* of every operator that was added: plugin.c */

/* TAP_E_UNSUPPORTED, for prepare: the framework runs the node. */
tap_status tap__refuse(const tap__call *call, tap_error *err);

#endif
