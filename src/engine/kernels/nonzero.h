/* nonzero.h - how much there is where something is set: the rules that rows of ops.def name. */
#ifndef TAP_ENGINE_NONZERO_H
#define TAP_ENGINE_NONZERO_H

#include "graph/call.h"

tap_status tap__count_nonzero(const tap__call *call, void *const *data, int64_t *count, tap_error *err);
tap_status tap__count_masked_select(const tap__call *call, void *const *data, int64_t *count, tap_error *err);

#endif
