/* text.c - the language of messages. English text is the key; text_zh.def holds the Chinese for it.
 * A translated format takes the same conversions in the same order as its key (a test compares them). */
#include "base/status.h"

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

void tap_set_language(const char *name)
{
    int chosen = name ? (strncmp(name, "zh", 2) == 0 ? LANGUAGE_CHINESE : LANGUAGE_ENGLISH)
                      : language_from_environment();
    atomic_store(&language, chosen);
}

const char *tap_text(const char *text)
{
    int chosen = atomic_load_explicit(&language, memory_order_relaxed);
    if (chosen == LANGUAGE_UNKNOWN) {
        chosen = language_from_environment();
        atomic_store(&language, chosen);
    }
    if (chosen != LANGUAGE_CHINESE)
        return text;
    for (const text_row *row = ROWS; row->english; row++)
        if (strcmp(row->english, text) == 0)
            return row->chinese;
    return text;
}
