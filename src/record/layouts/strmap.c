/* strmap.c - open addressing with linear probing; keys are copied. */
#include "record/layouts/strmap.h"

#include "base/memory.h"

#include <string.h>

struct tap_strmap_slot {
    char *key; /* NULL: free */
    size_t len;
    uint64_t hash, value;
};

static struct tap_strmap_slot *probe(const tap_strmap *map, uint64_t hash, const char *key, size_t len)
{
    size_t mask = map->cap - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        struct tap_strmap_slot *slot = &map->slots[at];
        if (!slot->key || (slot->hash == hash && slot->len == len && memcmp(slot->key, key, len) == 0))
            return slot;
    }
}

static bool grow(tap_strmap *map)
{
    tap_strmap bigger = {NULL, map->cap ? map->cap * 2 : 64, map->count};
    bigger.slots = tap__calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < map->cap; i++)
        if (map->slots[i].key)
            *probe(&bigger, map->slots[i].hash, map->slots[i].key, map->slots[i].len) = map->slots[i];
    tap__free(map->slots);
    *map = bigger;
    return true;
}

uint64_t *tap__strmap_find(const tap_strmap *map, const char *key, size_t len)
{
    if (!map->cap)
        return NULL;
    struct tap_strmap_slot *slot = probe(map, tap_hash_bytes(key, len), key, len);
    return slot->key ? &slot->value : NULL;
}

uint64_t *tap__strmap_add(tap_strmap *map, const char *key, size_t len, bool *added)
{
    *added = false;
    if (map->count * 4 >= map->cap * 3 && !grow(map))
        return NULL;
    uint64_t hash = tap_hash_bytes(key, len);
    struct tap_strmap_slot *slot = probe(map, hash, key, len);
    if (!slot->key) {
        char *copy = tap__strndup(key, len);
        if (!copy)
            return NULL;
        *slot = (struct tap_strmap_slot){copy, len, hash, 0};
        map->count++;
        *added = true;
    }
    return &slot->value;
}

void tap__strmap_free(tap_strmap *map)
{
    for (size_t i = 0; i < map->cap; i++)
        tap__free(map->slots[i].key);
    tap__free(map->slots);
    *map = (tap_strmap){NULL, 0, 0};
}
