/* arena.c - blocks of memory that are freed as one. */
#include "base/arena.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

struct tap_arena_block {
    struct tap_arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

enum { ARENA_BLOCK = 4096 - 64, ARENA_BLOCK_MAX = 1 << 20 };

void tap__arena_init(tap_arena *arena, uint64_t file_len)
{
    uint64_t limit = (uint64_t)64 << 20;
    if (file_len < (UINT64_MAX - limit) / 64)
        limit += file_len * 64;
    *arena = (tap_arena){NULL, 0, limit};
}

void tap__arena_init_unlimited(tap_arena *arena)
{
    *arena = (tap_arena){NULL, 0, UINT64_MAX};
}

static struct tap_arena_block *arena_grow(tap_arena *arena, size_t need)
{
    size_t size = ARENA_BLOCK;
    if (arena->blocks && arena->blocks->size >= ARENA_BLOCK)
        size = arena->blocks->size < ARENA_BLOCK_MAX ? arena->blocks->size * 2 : ARENA_BLOCK_MAX;
    if (size < need)
        size = need;
    struct tap_arena_block *block = tap__alloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->used = 0;
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

void *tap__arena_alloc(tap_arena *arena, size_t size)
{
    if (size > arena->limit || arena->used > arena->limit - size || size > SIZE_MAX / 2)
        return NULL;
    size_t need = (size + 15) / 16 * 16;
    struct tap_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < need)
        block = arena_grow(arena, need);
    if (!block)
        return NULL;
    void *ptr = block->bytes + block->used;
    block->used += need;
    arena->used += need;
    return ptr;
}

void *tap__arena_calloc(tap_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *ptr = tap__arena_alloc(arena, bytes);
    return ptr ? memset(ptr, 0, bytes) : NULL;
}

tap_status tap__arena_fail(const tap_arena *arena, size_t size, const char *path, tap_error *err)
{
    if (size > arena->limit || arena->used > arena->limit - size)
        return tap_fail(err, TAP_E_LIMIT, "%s: reading it would take more than %llu bytes of memory; the file is "
                        "damaged or hostile", path, (unsigned long long)arena->limit);
    return tap_fail_nomem(err);
}

void tap__arena_free(tap_arena *arena)
{
    while (arena->blocks) {
        struct tap_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        tap__free(block);
    }
}
