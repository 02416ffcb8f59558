/* fill_ring.h - a recording process as its writer sees it: a ring with its attempt, and entries put into it one by one
 * without a recorder. Everything fails the test at once. */
#ifndef TAP_TESTS_FILL_RING_H
#define TAP_TESTS_FILL_RING_H

#include "record/opened.h"
#include "record/ring/ring.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What a test says of an entry; the rest follows from it. */
typedef struct ring_entry {
    const char *name;
    tap_entry_type type; /* 0: DATA */
    int64_t step;
    uint64_t payload;
    uint64_t fill;       /* what its bytes are: fill_byte */
    uint64_t ref;        /* TRAILER: seq of its BIG entry; LOST: bytes lost */
    uint64_t count;      /* LOST: saves */
    int slot;            /* BIG, TRAILER */
    bool open;           /* reserved and not committed: its owner died */
} ring_entry;

static inline uint8_t fill_byte(uint64_t fill, uint64_t at)
{
    return (uint8_t)((fill + 1) * 2654435761u + at + at / 251);
}

static inline void fill_bytes(uint8_t *bytes, uint64_t count, uint64_t fill, uint64_t from)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = fill_byte(fill, from + i);
}

static inline uint64_t fill_hash(uint64_t count, uint64_t fill)
{
    uint8_t *bytes = malloc(count ? count : 1);
    fill_bytes(bytes, count, fill, 0);
    uint64_t hash = tap_hash_bytes(bytes, count);
    free(bytes);
    return hash;
}

/* A ring in memory for a new attempt in dir, whose configuration begins as `like` says (NULL: all default). */
static inline tap_ring filled_ring_make(const char *dir, uint64_t bytes, const tap_ring_config *like,
                                        tap_attempt_files *files)
{
    tap_ring ring;
    tap_error err;
    tap_ring_config *config = calloc(1, sizeof *config);
    tap_attempt_info info = {.pid = 1};
    if (like)
        *config = *like;
    if (tap__attempt_take(opened(dir), 0, 0, TAP_OPEN_NEW, &info, files, &err) != TAP_OK)
        fail_msg("%s", err.message);
    snprintf(config->dir, sizeof config->dir, "%s", dir);
    strcpy(config->layout, "native");
    config->segment_bytes = config->segment_bytes ? config->segment_bytes : 1 << 30;
    config->world_size = 1;
    if (tap__ring_create(&ring, NULL, NULL, bytes, config, &err) != TAP_OK)
        fail_msg("%s", err.message);
    free(config);
    return ring;
}

/* False: no room. */
static inline bool ring_try(tap_ring *ring, ring_entry e, tap_ring_range *range)
{
    int64_t shape[1] = {(int64_t)e.payload};
    tap_meta meta = {.shape = shape, .ndim = e.payload ? 1 : 0};
    meta.text[TAP_META_NAME] = e.name;
    meta.len[TAP_META_NAME] = e.name ? (uint32_t)strlen(e.name) : 0;
    uint32_t meta_bytes = tap__meta_size(&meta);
    bool big = e.type == TAP_ENTRY_BIG;
    uint64_t at;
    if (!tap__ring_reserve(ring, sizeof(tap_entry) + meta_bytes, big ? 0 : e.payload, big, range, &at))
        return false;
    range->desc->slot = (uint32_t)e.slot;
    tap_entry *entry = (tap_entry *)(void *)range->data;
    *entry = (tap_entry){.magic = TAP_ENTRY_MAGIC, .version = 1, .type = (uint8_t)(e.type ? e.type : TAP_ENTRY_DATA),
                         .dtype = TAP_U8, .ndim = e.payload ? 1 : 0, .seq = range->seq, .step = e.step,
                         .meta_bytes = meta_bytes, .payload_offset = e.payload ? at : 0, .payload_bytes = e.payload,
                         .ref = e.ref, .count = e.count,
                         .length = big ? at + tap__round_up(e.payload, TAP_PAGE) : range->bytes};
    if (e.type == TAP_ENTRY_LOST)
        entry->reason = TAP_REASON_RING_FULL;
    if (!big && e.payload) {
        fill_bytes(range->data + at, e.payload, e.fill, 0);
        entry->has = TAP_HAS_HASH;
        entry->hash = tap_hash_bytes(range->data + at, e.payload);
    }
    if (e.type == TAP_ENTRY_TRAILER) {
        entry->has = TAP_HAS_HASH;
        entry->hash = fill_hash(e.count, e.fill); /* of so many bytes */
        entry->count = 0;
    }
    tap__meta_write(&meta, entry + 1);
    tap__entry_seal(entry, entry + 1);
    bool value = !e.type || e.type == TAP_ENTRY_DATA || big;
    if (e.open)
        return true;
    if (value)
        atomic_fetch_add(&ring->tally->saved, 1);
    if (e.type == TAP_ENTRY_LOST)
        atomic_fetch_add(&ring->tally->dropped, e.count);
    tap__ring_commit(range);
    return true;
}

static inline tap_ring_range ring_put(tap_ring *ring, ring_entry e)
{
    tap_ring_range range;
    assert_true(ring_try(ring, e, &range));
    return range;
}

#endif
