/* keymap.c - a hash table from text to number. */
#include "keymap.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static size_t slot_of(const keymap *map, const char *key)
{
    size_t i = (size_t)tap_hash_bytes(key, strlen(key)) & (map->slot_count - 1);
    while (map->slots[i] && strcmp(map->keys[map->slots[i] - 1], key) != 0)
        i = (i + 1) & (map->slot_count - 1);
    return i;
}

static void grow(keymap *map)
{
    map->cap = map->cap ? map->cap * 2 : 64;
    map->slot_count = map->cap * 2;
    map->keys = get_memory(map->keys, map->cap * sizeof *map->keys);
    map->slots = get_memory(map->slots, map->slot_count * sizeof *map->slots);
    memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    for (size_t i = 0; i < map->count; i++)
        map->slots[slot_of(map, map->keys[i])] = (uint32_t)i + 1;
}

size_t keymap_add(keymap *map, const char *key, bool *added)
{
    if (map->count == map->cap)
        grow(map);
    size_t slot = slot_of(map, key);
    *added = map->slots[slot] == 0;
    if (*added) {
        map->keys[map->count++] = copy_text(key, strlen(key));
        map->slots[slot] = (uint32_t)map->count;
    }
    return map->slots[slot] - 1;
}

void keymap_free(keymap *map)
{
    for (size_t i = 0; i < map->count; i++)
        free(map->keys[i]);
    free(map->keys);
    free(map->slots);
    *map = (keymap){0};
}
