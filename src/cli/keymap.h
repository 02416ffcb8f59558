/* keymap.h - numbers texts in the order they are first seen. */
#ifndef TAP_CLI_KEYMAP_H
#define TAP_CLI_KEYMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct keymap {
    char **keys; /* by number; owned */
    size_t count, cap;
    uint32_t *slots; /* number + 1 */
    size_t slot_count;
} keymap;

/* The number of key; *added: it is new. */
size_t keymap_add(keymap *map, const char *key, bool *added);
void keymap_free(keymap *map);

#endif
