/* arena.h - memory that is freed as one. Readers set a limit: a small hostile file must not make them allocate much. */
#ifndef TAP_BASE_ARENA_H
#define TAP_BASE_ARENA_H

#include "tensortap/tensortap.h"

typedef struct tap_arena {
    struct tap_arena_block *blocks;
    uint64_t used, limit;
} tap_arena;

/* 64 MiB and 64 bytes for each byte of the file. */
void tap__arena_init(tap_arena *arena, uint64_t file_len);
/* As much as there is: for what does not come from a file. */
void tap__arena_init_unlimited(tap_arena *arena);
/* Zeroed room for count elements; NULL when there is none. */
void *tap__arena_calloc(tap_arena *arena, size_t count, size_t size);
/* Aligned to 16, not zeroed; NULL when the limit or memory is reached (tap__arena_fail says which). */
void *tap__arena_alloc(tap_arena *arena, size_t size);
tap_status tap__arena_fail(const tap_arena *arena, size_t size, const char *path, tap_error *err);
void tap__arena_free(tap_arena *arena);

#endif
