/* text.c - the language of messages. English text is the key; text_zh.def holds the Chinese for it.
 * A translated format takes the same conversions in the same order as its key (a test compares them). */
#include "base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_row {
    const char *english, *chinese;
} text_row;

static const text_row ROWS[] = {
#define T(english, chinese) {english, chinese},
#include "base/text_zh.def"
#undef T
    {NULL, NULL},
};

/* Row number + 1 by hash of the English text; filled once. */
enum { SLOTS = 2048 };
_Static_assert(sizeof ROWS / sizeof ROWS[0] < SLOTS / 2, "make SLOTS larger");
static uint16_t slots[SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static size_t slot_find(const char *english)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *at = english; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    size_t slot = hash % SLOTS;
    while (slots[slot] && strcmp(ROWS[slots[slot] - 1].english, english) != 0)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void slots_fill(void)
{
    for (size_t i = 0; ROWS[i].english; i++)
        slots[slot_find(ROWS[i].english)] = (uint16_t)(i + 1);
}

enum { LANGUAGE_UNKNOWN, LANGUAGE_ENGLISH, LANGUAGE_CHINESE };
static atomic_int language;

static int language_from_environment(void)
{
    static const char *const NAMES[] = {"TENSORTAP_LANG", "LC_ALL", "LC_MESSAGES", "LANG"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        const char *value = getenv(NAMES[i]);
        if (value && *value)
            return strncmp(value, "zh", 2) == 0 ? LANGUAGE_CHINESE : LANGUAGE_ENGLISH;
    }
    return LANGUAGE_ENGLISH;
}

void tap_language_set(const char *name)
{
    int chosen = name ? (strncmp(name, "zh", 2) == 0 ? LANGUAGE_CHINESE : LANGUAGE_ENGLISH)
                      : language_from_environment();
    atomic_store(&language, chosen);
}

const char *tap_text(const char *text)
{
    if (!text)
        return NULL;
    int chosen = atomic_load_explicit(&language, memory_order_relaxed);
    if (chosen == LANGUAGE_UNKNOWN) {
        chosen = language_from_environment();
        atomic_store(&language, chosen);
    }
    if (chosen != LANGUAGE_CHINESE)
        return text;
    pthread_once(&slots_once, slots_fill);
    uint16_t number = slots[slot_find(text)];
    return number ? ROWS[number - 1].chinese : text;
}
