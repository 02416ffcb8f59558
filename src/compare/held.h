/* held.h - a record that outlives its cursor: one block of memory, which can lie in a file meanwhile. */
#ifndef TAP_COMPARE_HELD_H
#define TAP_COMPARE_HELD_H

#include "base/strbuf.h"
#include "tensortap/tensortap.h"

/* Its pointers go into the same block. */
typedef struct tap_held {
    size_t bytes;         /* of the block */
    const void *base;     /* where the block was when its pointers were set */
    uint64_t place;       /* its number among the records of its side, from 0 */
    uint64_t beside;      /* how many records of the other side had been read then */
    tap_record record;
    uint64_t key_hash;
    size_t key_len;
    const char *key;      /* bytes that are the same for the record of the other side that belongs to it */
} tap_held;

/* shift is added to the step in the key. NULL without memory. */
tap_held *tap__held_new(const tap_record *record, int64_t shift, tap_strbuf *room);
/* From the bytes of a block. */
tap_held *tap__held_load(const void *bytes, size_t len);
bool tap__held_same(const tap_held *a, const tap_held *b);
void tap__held_free(tap_held *held);

/* Appends a name without the parts that wrappers of models put into it. */
void tap__name_bare(tap_strbuf *out, const char *name);

#endif
