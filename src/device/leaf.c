/* leaf.c - between a tensor and the tap kernel. */
#include "device/leaf.h"

#include "tensor/hash.h"
#include "tensor/kernels/kernels.h"
#include "tensor/walk.h"

#include <string.h>

_Static_assert(sizeof(tap_k_header) == 256, "both sides agree");
_Static_assert((int)TAP_K_MAX_NDIM == (int)TAP_MAX_NDIM, "every tensor fits");
_Static_assert(sizeof(tap_k_tap) < 4096, "arguments of a kernel");
_Static_assert((int)TAP_K_BLOCK == (int)TAP_FULL_BLOCK && (int)TAP_K_STATS_ONLY == (int)TAP_FULL_STATS &&
                   (int)TAP_K_DROP == (int)TAP_FULL_DROP,
               "the same policies");

tap_status tap__leaf_view(tap_k_tap *tap, const tap_tensor *tensor, tap_error *err)
{
    tap_walk walk;
    tap_status status = tap__walk_begin(&walk, tensor, err);
    if (status != TAP_OK)
        return status;
    tap->data = walk.at;
    tap->item = (unsigned)walk.item;
    tap->bytes = (uint64_t)walk.left * walk.item;
    tap->dtype = (unsigned)tensor->dtype;
    tap->ndim = tap__walk_is_contiguous(&walk) ? 0 : (unsigned)walk.ndim;
    for (unsigned d = 0; d < tap->ndim; d++) {
        tap->shape[d] = walk.shape[d];
        tap->stride[d] = walk.stride[d];
    }
    return TAP_OK;
}

enum { BLOCK_BYTES = 32 << 10 };

unsigned tap__leaf_threads(uint64_t bytes)
{
    unsigned threads = 32;
    while (threads < TAP_K_MAX_THREADS && threads * (uint64_t)TAP_K_UNIT < bytes)
        threads *= 2;
    return threads;
}

unsigned tap__leaf_blocks(uint64_t bytes)
{
    uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return bytes <= TAP_LEAF_ONE_BLOCK ? 1 : blocks < TAP_LEAF_MAX_BLOCKS ? (unsigned)blocks : TAP_LEAF_MAX_BLOCKS;
}

static tap_pair pair_of(tap_k_pair pair)
{
    return (tap_pair){pair.high, pair.low};
}

static void lane_of(tap_lanes *lanes, tap_k_pair pair)
{
    lanes->high[0] = pair.high;
    lanes->low[0] = pair.low;
}

static unsigned __int128 wide_of(const tap_k_word *words)
{
    return (unsigned __int128)words[1] << 64 | words[0];
}

void tap__leaf_finish(const tap_k_sums *sums, tap_dtype dtype, uint64_t bytes, tap_stats *stats, uint64_t *hash)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    tap_sums all;
    if (hash)
        *hash = tap__hash_finish(sums->hash, bytes);
    if (!stats)
        return;
    memset(&all, 0, sizeof all);
    lane_of(&all.sum, sums->sum);
    lane_of(&all.square, sums->square);
    all.big_sum = pair_of(sums->big_sum);
    all.big_square = pair_of(sums->big_square);
    all.small_square = pair_of(sums->small_square);
    all.unusual = sums->big_square.high > 0 || sums->small_square.high > 0;
    memcpy(&all.min, &sums->min, sizeof all.min);
    memcpy(&all.max, &sums->max, sizeof all.max);
    all.int_min = (int64_t)sums->min;
    all.int_max = (int64_t)sums->max;
    all.uint_min = sums->min;
    all.uint_max = sums->max;
    all.nan = sums->nan;
    all.pos_inf = sums->pos_inf;
    all.neg_inf = sums->neg_inf;
    all.zero = sums->zero;
    all.int_sum = (__int128)wide_of(sums->int_sum);
    all.int_square = wide_of(sums->int_square);
    tap__sums_finish(&all, tap__kernels(), info->kind, bytes / info->bytes * info->values, stats);
}
