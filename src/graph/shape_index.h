/* shape_index.h - shape rules of movement, indexing, making, sorting, pooling and resampling. */
#ifndef TAP_GRAPH_SHAPE_INDEX_H
#define TAP_GRAPH_SHAPE_INDEX_H

#include "graph/call.h"

tap_status tap__shape_arange(tap__call *call, tap_error *err);
tap_status tap__shape_cat(tap__call *call, tap_error *err);
tap_status tap__shape_constant_pad(tap__call *call, tap_error *err); /* attribute pad */
tap_status tap__shape_embedding(tap__call *call, tap_error *err);
tap_status tap__shape_embedding_backward(tap__call *call, tap_error *err);
tap_status tap__shape_eye(tap__call *call, tap_error *err);
tap_status tap__shape_full(tap__call *call, tap_error *err);         /* attributes size, dtype; fill_value */
tap_status tap__shape_full_like(tap__call *call, tap_error *err);
tap_status tap__shape_gather(tap__call *call, tap_error *err);       /* dtype of the first, sizes of the second input */
tap_status tap__shape_index(tap__call *call, tap_error *err);
tap_status tap__shape_index_select(tap__call *call, tap_error *err);
tap_status tap__shape_input_size(tap__call *call, tap_error *err);   /* attribute input_size */
tap_status tap__shape_input_sizes(tap__call *call, tap_error *err);  /* attribute input_sizes */
tap_status tap__shape_linspace(tap__call *call, tap_error *err);
tap_status tap__shape_output_size(tap__call *call, tap_error *err);  /* the last dimensions are output_size */
tap_status tap__shape_padding(tap__call *call, tap_error *err);      /* attribute padding */
tap_status tap__shape_pixel_shuffle(tap__call *call, tap_error *err);
tap_status tap__shape_pixel_unshuffle(tap__call *call, tap_error *err);
tap_status tap__shape_pool(tap__call *call, tap_error *err);         /* windows that slide over the last dimensions */
tap_status tap__shape_repeat(tap__call *call, tap_error *err);
tap_status tap__shape_second(tap__call *call, tap_error *err);       /* as the second input */
tap_status tap__shape_sort(tap__call *call, tap_error *err);         /* values and indices as the input */
tap_status tap__shape_topk(tap__call *call, tap_error *err);
tap_status tap__shape_stack(tap__call *call, tap_error *err);

#endif
