/* leaf.h - between a tensor and the tap kernel: what the kernel is told of a view, and statistics made of its sums. */
#ifndef TAP_DEVICE_LEAF_H
#define TAP_DEVICE_LEAF_H

#include "device/kernels/room.h"
#include "tensortap/tensortap.h"

/* Fills the members that describe the view: data, bytes, dtype, item, ndim, shape, stride. tensor->data is a device's. */
tap_status tap__leaf_view(tap_k_tap *tap, const tap_tensor *tensor, tap_error *err);

/* How many blocks and threads go over a leaf: from its bytes alone, so that equal values give equal sums. One block up to
 * TAP_LEAF_ONE_BLOCK bytes. */
enum { TAP_LEAF_ONE_BLOCK = 64 << 10, TAP_LEAF_MAX_BLOCKS = 396 };
unsigned tap__leaf_blocks(uint64_t bytes);
unsigned tap__leaf_threads(uint64_t bytes);

/* As tap_tensor_scan would have filled them. Either may be NULL. */
void tap__leaf_finish(const tap_k_sums *sums, tap_dtype dtype, uint64_t bytes, tap_stats *stats, uint64_t *hash);

#endif
