/* pass.h - one pass over a tensor in pieces: statistics, hash and copy together. tap_tensor_scan is the whole pass at
 * once; the recorder takes pieces when a tensor is larger than the room it has. */
#ifndef TAP_TENSOR_PASS_H
#define TAP_TENSOR_PASS_H

#include "tensor/kernels/kernels.h"
#include "tensor/walk.h"

/* Every piece but the last is a multiple of this many bytes. */
enum { TAP_PASS_UNIT = TAP_BLOCK };

/* Large (about 3 KiB) but only the used parts are touched. Holds pointers into the tensor's shape and data only. */
typedef struct tap_pass {
    const tap_kernels *kernels;
    const tap_dtype_info *info;
    unsigned what;
    bool streams;         /* copies go past the cache */
    uint64_t bytes, done; /* of the row-major bytes */
    uint64_t hash_sum;
    tap_sums sums;
    tap_walk walk;
} tap_pass;

tap_status tap__pass_begin(tap_pass *pass, const tap_tensor *tensor, unsigned what, tap_error *err);
/* The next `bytes` row-major bytes; dst NULL: no copy. */
void tap__pass_next(tap_pass *pass, void *dst, uint64_t bytes);
/* After the last piece. stats and hash may be NULL. */
void tap__pass_end(const tap_pass *pass, tap_stats *stats, uint64_t *hash);

#endif
