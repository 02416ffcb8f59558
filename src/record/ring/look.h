/* look.h - what the writer believes of a ring. Its program may be damaged, and write over it at this very moment: so
 * everything is copied once, checked in the copy, and used from the copy alone. Payloads are the exception; their bytes
 * decide nothing. */
#ifndef TAP_RECORD_LOOK_H
#define TAP_RECORD_LOOK_H

#include "record/ring/ring.h"

/* Room for one entry and its meta block, used again for the next; begins as {NULL, 0}. What tap__look_begin takes suffices
 * for all but the longest names, so that no save is lost for want of memory. */
typedef struct tap_look {
    tap_entry *entry;
    size_t cap;
} tap_look;

/* False without memory. */
bool tap__look_begin(tap_look *look);
void tap__look_free(tap_look *look);

/* Strings end within their members. */
void tap__look_config(const tap_ring *ring, tap_ring_config *out);
/* Of a descriptor that tap__ring_is says is filled in; its word is left out. */
tap_ring_desc tap__look_desc(const tap_ring *ring, uint64_t seq);
/* Can it be a range that begins at pos? */
bool tap__look_is_range(const tap_ring *ring, const tap_ring_desc *desc, uint64_t pos);
/* The entry at pos, with its meta block behind it, none of them longer than `bytes`; good until look is used again. NULL:
 * there is none, or no memory. */
tap_entry *tap__look_entry(tap_look *look, const tap_ring *ring, uint64_t pos, uint64_t bytes);
/* Brings the ring's fixed part of an entry up to date with a changed copy. */
void tap__look_put(const tap_ring *ring, uint64_t pos, const tap_entry *entry);

#endif
