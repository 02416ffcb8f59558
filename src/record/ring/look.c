/* look.c - copies of what lies in a ring. */
#include "record/ring/look.h"

#include "base/memory.h"

#include <string.h>

enum { LOOK_BYTES = 64 << 10 };

/* One copy, which the compiler may not replace by reading the ring again. */
static void copy_once(void *out, const void *shared, size_t len)
{
    memcpy(out, shared, len);
    __asm__ volatile("" : : "r"(out) : "memory");
}

void tap__look_config(const tap_ring *ring, tap_ring_config *out)
{
    copy_once(out, &ring->header->config, sizeof *out);
    out->dir[sizeof out->dir - 1] = 0;
    out->dir_shown[sizeof out->dir_shown - 1] = 0;
    out->layout[sizeof out->layout - 1] = 0;
    out->framework[sizeof out->framework - 1] = 0;
    out->who[sizeof out->who - 1] = 0;
    out->tally[sizeof out->tally - 1] = 0;
}

tap_ring_desc tap__look_desc(const tap_ring *ring, uint64_t seq)
{
    tap_ring_desc copy = {0};
    size_t from = offsetof(tap_ring_desc, pos); /* its owner may just be committing it */
    copy_once((char *)&copy + from, (const char *)tap__ring_desc(ring, seq) + from, sizeof copy - from);
    return copy;
}

bool tap__look_is_range(const tap_ring *ring, const tap_ring_desc *desc, uint64_t pos)
{
    return desc->pos == pos && desc->bytes >= sizeof(tap_entry) && desc->bytes % TAP_ENTRY_ALIGN == 0 &&
           desc->bytes <= ring->mask + 1;
}

static bool make_room(tap_look *look, size_t bytes)
{
    if (bytes <= look->cap)
        return true;
    size_t cap = bytes < LOOK_BYTES ? LOOK_BYTES : bytes;
    tap_entry *grown = tap__resize(look->entry, cap, 1);
    if (!grown)
        return false;
    look->entry = grown;
    look->cap = cap;
    return true;
}

bool tap__look_begin(tap_look *look)
{
    return make_room(look, LOOK_BYTES);
}

tap_entry *tap__look_entry(tap_look *look, const tap_ring *ring, uint64_t pos, uint64_t bytes)
{
    tap_entry head;
    const uint8_t *at = tap__ring_at(ring, pos);
    if (bytes < sizeof head || bytes > ring->mask + 1)
        return NULL;
    copy_once(&head, at, sizeof head);
    if (head.magic != TAP_ENTRY_MAGIC || head.version != 1 || head.meta_bytes % 8 ||
        head.meta_bytes > bytes - sizeof head || !make_room(look, sizeof head + head.meta_bytes))
        return NULL;
    *look->entry = head;
    copy_once(look->entry + 1, at + sizeof head, head.meta_bytes);
    return look->entry;
}

void tap__look_put(const tap_ring *ring, uint64_t pos, const tap_entry *entry)
{
    memcpy(tap__ring_at(ring, pos), entry, sizeof *entry);
}

void tap__look_free(tap_look *look)
{
    tap__free(look->entry);
    *look = (tap_look){NULL, 0};
}
