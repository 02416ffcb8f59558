/* strmap.h - byte strings to 64-bit numbers, in memory, growing. Not thread-safe: its owner locks. */
#ifndef TAP_RECORD_STRMAP_H
#define TAP_RECORD_STRMAP_H

#include "tensortap/tensortap.h"

typedef struct tap_strmap {
    struct tap_strmap_slot *slots;
    size_t cap, count;
} tap_strmap;

/* The value of key, for reading and writing; NULL when it is not there. Valid until the next add. */
uint64_t *tap__strmap_find(const tap_strmap *map, const char *key, size_t len);
/* The same, adding the key with value 0 when it is not there (*added says so); NULL without memory. */
uint64_t *tap__strmap_add(tap_strmap *map, const char *key, size_t len, bool *added);
void tap__strmap_free(tap_strmap *map);

#endif
