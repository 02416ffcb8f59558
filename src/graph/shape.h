/* shape.h - the shape rules the op table names: sizes and dtype of the outputs from the concrete inputs. A rule reads
 * call->in and call->attrs and fills call->out. */
#ifndef TAP_GRAPH_SHAPE_H
#define TAP_GRAPH_SHAPE_H

#include "graph/call.h"
#include "graph/shape_reduce.h"
#include "graph/shape_index.h"
#include "graph/shape_view.h"

tap_status tap__shape_same(tap__call *call, tap_error *err);      /* every output as the first input */
tap_status tap__shape_broadcast(tap__call *call, tap_error *err); /* one output, as big as all inputs together */
tap_status tap__shape_reduce(tap__call *call, tap_error *err);    /* attributes axes, keep_dims; dtype */
tap_status tap__shape_mm(tap__call *call, tap_error *err);        /* the product of the two inputs */
tap_status tap__shape_addmm(tap__call *call, tap_error *err);     /* the product of the second and the third input */
tap_status tap__shape_attention(tap__call *call, tap_error *err); /* y and logsumexp from query, key and value */
tap_status tap__shape_convolution(tap__call *call, tap_error *err);

/* The dtype ATen computes in for these operands: tensors with dimensions over 0-d tensors over numbers. */
tap_dtype tap__promote(const tap__operand *operands, int count);
tap_dtype tap__promote_two(tap_dtype a, tap_dtype b);

#endif
