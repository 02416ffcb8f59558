/* pass.c - a pass over a view: blocks that fit the first cache, gathered there first when the view is strided. */
#include "tensor/pass.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/float_mode.h"
#include "tensor/hash.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* From here on a copy would push everything else out of the cache, and reading dst's lines first would cost a third. */
enum { STREAM_FROM = 1 << 20 };
/* Transposed views from this size on are gathered through memory of this size; both are multiples of TAP_BLOCK. */
enum { ROWS_FROM = 1 << 18, ROWS_ROOM = 1 << 20 };
enum { LITTLE = 1024 };
enum { WANTS_STATS = TAP_SCAN_STATS | TAP_SCAN_HEALTH };

static void stream_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

tap_status tap__pass_begin(tap_pass *pass, const tap_tensor *tensor, unsigned what, tap_error *err)
{
    TAP_TRY(tap__walk_begin(&pass->walk, tensor, err));
    pass->kernels = tap__kernels();
    pass->info = tap_dtype_describe(tensor->dtype);
    pass->what = what;
    pass->done = pass->hash_sum = 0;
    pass->bytes = (uint64_t)pass->walk.left * pass->walk.item;
    pass->streams = pass->bytes >= STREAM_FROM;
    if (what & WANTS_STATS)
        pass->kernels->begin(&pass->sums);
    return TAP_OK;
}

/* float32 with statistics: everything in one loop. Only whole chunks; returns the bytes done. */
static size_t float_block(tap_pass *pass, const char *src, size_t len, char *dst, bool stream)
{
    const tap_kernels *k = pass->kernels;
    size_t chunks = len / (TAP_CHUNK * 4);
    uint64_t word = pass->done / 8;
    if (chunks == 0)
        return 0;
    if (!(pass->what & TAP_SCAN_HASH)) {
        if (!dst || !stream)
            return 0;
        k->float_stream(&pass->sums, src, chunks, dst);
    } else if (!dst) {
        pass->hash_sum += k->float_hash(&pass->sums, src, chunks, word);
    } else {
        pass->hash_sum += stream ? k->float_hash_stream(&pass->sums, src, chunks, word, dst)
                                 : k->float_hash_copy(&pass->sums, src, chunks, word, dst);
    }
    return chunks * TAP_CHUNK * 4;
}

static void block_scan(tap_pass *pass, const char *src, size_t len, char *dst, bool stream)
{
    const tap_kernels *k = pass->kernels;
    if (pass->what & WANTS_STATS) {
        if (pass->info->dtype == TAP_F32) {
            size_t fused = float_block(pass, src, len, dst, stream);
            pass->done += fused;
            src += fused;
            dst = dst ? dst + fused : NULL;
            len -= fused;
        }
        if (len)
            k->stats[pass->info->dtype](&pass->sums, src, len / pass->info->bytes);
    }
    if (len == 0)
        return;
    if (pass->what & TAP_SCAN_HASH)
        pass->hash_sum += dst && stream ? k->hash_stream(src, len, pass->done / 8, dst)
                                        : k->hash(src, len, pass->done / 8);
    else if (dst && stream)
        k->stream(src, len, dst);
    if (dst && !stream && dst != src)
        memcpy(dst, src, len);
    pass->done += len;
}

/* Blocks of bytes that are side by side. */
static void blocks_scan(tap_pass *pass, const char *src, uint64_t bytes, char *dst, bool stream)
{
    while (bytes) {
        size_t len = bytes < TAP_BLOCK ? (size_t)bytes : TAP_BLOCK;
        block_scan(pass, src, len, dst, stream);
        src += len;
        dst = dst ? dst + len : NULL;
        bytes -= len;
    }
}

/* Gathers `room` bytes at a time, into dst itself when that is not streamed to. */
static void gathered_next(tap_pass *pass, char *dst, uint64_t bytes, bool stream, char *buffer, size_t room)
{
    while (bytes) {
        size_t len = bytes < room ? (size_t)bytes : room;
        char *to = dst && !stream ? dst : buffer;
        tap__walk_read(&pass->walk, to, (int64_t)(len / pass->walk.item));
        blocks_scan(pass, to, len, stream ? dst : NULL, stream);
        dst = dst ? dst + len : NULL;
        bytes -= len;
    }
}

static __attribute__((noinline)) void strided_by_stack(tap_pass *pass, char *dst, uint64_t bytes, bool stream)
{
    char block[TAP_BLOCK] __attribute__((aligned(64)));
    gathered_next(pass, dst, bytes, stream, block, sizeof block);
}

static __attribute__((noinline)) void strided_little(tap_pass *pass, uint64_t bytes)
{
    char block[LITTLE] __attribute__((aligned(64)));
    gathered_next(pass, NULL, bytes, false, block, sizeof block);
}

/* Threads may have small stacks, and the kernels need some: a block of ours lies there only if there is no memory. */
static void strided_next(tap_pass *pass, char *dst, uint64_t bytes, bool stream)
{
    /* a transposed view fetches a whole cache line for each element it reads of a row: better many rows at a time */
    size_t room = bytes >= ROWS_FROM && tap__walk_is_transposed(&pass->walk) ? ROWS_ROOM : TAP_BLOCK;
    if (dst && !stream) {
        gathered_next(pass, dst, bytes, false, NULL, room);
        return;
    }
    if (!dst && bytes <= LITTLE) {
        strided_little(pass, bytes);
        return;
    }
    char *block = tap__alloc(room);
    if (block)
        gathered_next(pass, dst, bytes, stream, block, room);
    else
        strided_by_stack(pass, dst, bytes, stream);
    tap__free(block);
}

void tap__pass_next(tap_pass *pass, void *dst, uint64_t bytes)
{
    __auto_type mode = tap__float_mode_enter();
    bool stream = dst && pass->streams && (uintptr_t)dst % 64 == 0;
    if (tap__walk_is_contiguous(&pass->walk))
        blocks_scan(pass, pass->walk.at + pass->done, bytes, dst, stream);
    else
        strided_next(pass, dst, bytes, stream);
    if (stream)
        stream_fence();
    tap__float_mode_leave(mode);
}

void tap__pass_end(const tap_pass *pass, tap_stats *stats, uint64_t *hash)
{
    if (stats && pass->what & WANTS_STATS) {
        uint64_t count = pass->bytes / pass->info->bytes * pass->info->values;
        tap__sums_finish(&pass->sums, pass->kernels, pass->info->kind, count, stats);
        if (!(pass->what & TAP_SCAN_STATS)) {
            stats->min.u = stats->max.u = 0;
            stats->mean = stats->norm = 0;
        }
    }
    if (hash && pass->what & TAP_SCAN_HASH)
        *hash = tap__hash_finish(pass->hash_sum, pass->bytes);
}

tap_status tap_tensor_scan(const tap_tensor *tensor, unsigned what, void *dst, tap_stats *stats, uint64_t *hash,
                           tap_error *err)
{
    tap_pass pass;
    TAP_TRY(tap__pass_begin(&pass, tensor, what, err));
    tap__pass_next(&pass, dst, pass.bytes);
    tap__pass_end(&pass, stats, hash);
    return TAP_OK;
}
