/* shape_reduce.h - shape rules of reductions, softmax, norms and losses. tap__shape_reduce itself is in shape.h. */
#ifndef TAP_GRAPH_SHAPE_REDUCE_H
#define TAP_GRAPH_SHAPE_REDUCE_H

#include "graph/call.h"

/* Attribute axes: bool (uint8 for uint8), and int64. */
tap_status tap__shape_reduce_bool(tap__call *call, tap_error *err);
tap_status tap__shape_reduce_int(tap__call *call, tap_error *err);
/* Attribute axis, none meaning all: int64; values and int64; every output as the values. */
tap_status tap__shape_arg(tap__call *call, tap_error *err);
tap_status tap__shape_best(tap__call *call, tap_error *err);
tap_status tap__shape_min_max(tap__call *call, tap_error *err);
tap_status tap__shape_scalar(tap__call *call, tap_error *err); /* one 0-d output; int64 of integers */
/* Attribute dtype or half_to_float. */
tap_status tap__shape_softmax(tap__call *call, tap_error *err);
/* Running results: attribute dtype; integers give int64. A second output holds indices. */
tap_status tap__shape_running(tap__call *call, tap_error *err);
/* y, then statistics of the leading dimensions, those normalised over (normalized_shape) being of size one. */
tap_status tap__shape_layer_norm(tap__call *call, tap_error *err);
tap_status tap__shape_group_norm(tap__call *call, tap_error *err); /* statistics (N, groups) */
tap_status tap__shape_batch_norm(tap__call *call, tap_error *err); /* statistics, and new running ones, (C) */
/* Gradients, of the sizes of the inputs named here. */
tap_status tap__shape_like_second(tap__call *call, tap_error *err);      /* of the second input */
tap_status tap__shape_norm_grad(tap__call *call, tap_error *err);        /* of the second, weight and bias */
/* Losses: attribute reduction 0: the sizes of the inputs together, else 0-d. */
tap_status tap__shape_loss(tap__call *call, tap_error *err);
tap_status tap__shape_nll_loss(tap__call *call, tap_error *err);

#endif
