/* mask.h - index_put where the index is a mask: inputs x, values, then indexes. */
#ifndef TAP_ENGINE_MASK_H
#define TAP_ENGINE_MASK_H

#include "engine/kernel.h"

/* mask_input: which input the mask is; first: the first dimension of x that it covers. State as tap__moves_release
 * frees it. */
tap_status tap__mask_prepare(tap__call *call, int mask_input, int first, tap_error *err);
tap_status tap__mask_run(const tap__call *call, void *const *data, tap_error *err);

#endif
