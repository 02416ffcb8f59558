/* shape_view.h - views: how sizes, strides and offset change when the same memory is seen differently. The rules of the
 * VIEW rows fill all three; the tap__view functions do one step on an operand, for kernels that write into a part. */
#ifndef TAP_GRAPH_SHAPE_VIEW_H
#define TAP_GRAPH_SHAPE_VIEW_H

#include "graph/call.h"

/* A dimension as people write it (-1 is the last), as a place; fails when there is none. A 0-d operand has one. */
tap_status tap__dim_place(const tap__call *call, int64_t dim, int ndim, int *out, tap_error *err);

tap_status tap__view_select(const tap__call *call, tap__operand *view, int64_t dim, int64_t index, tap_error *err);
/* start and end as ATen takes them: counted from the end when negative, then cut to the size. */
tap_status tap__view_slice(const tap__call *call, tap__operand *view, int64_t dim, int64_t start, int64_t end,
                           int64_t step, tap_error *err);
tap_status tap__view_diagonal(const tap__call *call, tap__operand *view, int64_t offset, int64_t dim1, int64_t dim2,
                              tap_error *err);

tap_status tap__shape_first(tap__call *call, tap_error *err); /* as the first input */
tap_status tap__shape_as_strided(tap__call *call, tap_error *err);
tap_status tap__shape_diagonal(tap__call *call, tap_error *err);
tap_status tap__shape_expand(tap__call *call, tap_error *err);
tap_status tap__shape_permute(tap__call *call, tap_error *err);
tap_status tap__shape_select(tap__call *call, tap_error *err);
tap_status tap__shape_slice(tap__call *call, tap_error *err);
tap_status tap__shape_split(tap__call *call, tap_error *err);
tap_status tap__shape_split_with_sizes(tap__call *call, tap_error *err);
tap_status tap__shape_squeeze(tap__call *call, tap_error *err);
tap_status tap__shape_squeeze_dim(tap__call *call, tap_error *err);
tap_status tap__shape_squeeze_dims(tap__call *call, tap_error *err);
tap_status tap__shape_transpose(tap__call *call, tap_error *err);
tap_status tap__shape_transpose_matrix(tap__call *call, tap_error *err);
tap_status tap__shape_unbind(tap__call *call, tap_error *err);
tap_status tap__shape_unfold(tap__call *call, tap_error *err);
tap_status tap__shape_unsqueeze(tap__call *call, tap_error *err);
tap_status tap__shape_view(tap__call *call, tap_error *err);
tap_status tap__shape_view_as_complex(tap__call *call, tap_error *err);
tap_status tap__shape_view_as_real(tap__call *call, tap_error *err);
tap_status tap__shape_view_dtype(tap__call *call, tap_error *err);

#endif
