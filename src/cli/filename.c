/* filename.c - names of records as names of files. */
#include "filename.h"

#include "cli.h"
#include "term.h"

#include <inttypes.h>
#include <string.h>

static char *room(filename *name, size_t more)
{
    if (name->len + more + 1 > name->cap) {
        name->cap = (name->len + more + 1) * 2;
        name->text = get_memory(name->text, name->cap);
    }
    return name->text + name->len;
}

void filename_add(filename *name, const char *text)
{
    size_t len = strlen(text);
    memcpy(room(name, len), text, len + 1);
    name->len += len;
}

void filename_add_escaped(filename *name, const char *text)
{
    filename_add(name, "");
    for (size_t used; *text; text += used) {
        uint32_t code;
        unsigned char c = (unsigned char)*text;
        used = utf8_next(text, &code);
        bool plain = used && code_width(code) >= 0 && !(c < 0x80 && strchr("/\\:*?\"<>|%", c));
        plain &= !(name->len == 0 && c == '.');
        used = used ? used : 1;
        char *at = room(name, used * 3);
        if (plain)
            memcpy(at, text, used);
        for (size_t i = 0; i < used && !plain; i++)
            sprintf(at + i * 3, "%%%02X", (unsigned char)text[i]);
        name->len += plain ? used : used * 3;
        name->text[name->len] = 0;
    }
}

void filename_shorten(filename *name, size_t longest)
{
    if (name->len <= longest)
        return;
    uint64_t hash = tap_hash_bytes(name->text, name->len);
    size_t len = longest - 17;
    while (len && ((unsigned char)name->text[len] & 0xC0) == 0x80) /* not inside a character */
        len--;
    name->len = len + (size_t)sprintf(name->text + len, "~%016" PRIx64, hash);
}
