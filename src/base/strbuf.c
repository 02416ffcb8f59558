/* strbuf.c - a growing byte string. */
#include "base/strbuf.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tap__strbuf_free(tap_strbuf *buf)
{
    tap__free(buf->text);
    *buf = (tap_strbuf)TAP_STRBUF_INIT;
}

void tap__strbuf_clear(tap_strbuf *buf)
{
    buf->len = 0;
    buf->failed = false;
    if (buf->text)
        buf->text[0] = 0;
}

char *tap__strbuf_reserve(tap_strbuf *buf, size_t len)
{
    if (buf->failed)
        return NULL;
    size_t need = buf->len + len + 1;
    if (need <= buf->cap)
        return buf->text + buf->len;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need && cap < SIZE_MAX / 2)
        cap *= 2;
    char *grown = cap >= need ? tap__resize(buf->text, cap, 1) : NULL;
    if (!grown) {
        buf->failed = true;
        return NULL;
    }
    buf->text = grown;
    buf->cap = cap;
    return buf->text + buf->len;
}

void tap__strbuf_add(tap_strbuf *buf, const void *bytes, size_t len)
{
    char *at = tap__strbuf_reserve(buf, len);
    if (!at)
        return;
    if (len)
        memcpy(at, bytes, len);
    at[len] = 0;
    buf->len += len;
}

void tap__strbuf_str(tap_strbuf *buf, const char *text)
{
    tap__strbuf_add(buf, text, strlen(text));
}

void tap__strbuf_char(tap_strbuf *buf, char c)
{
    tap__strbuf_add(buf, &c, 1);
}

void tap__strbuf_printf(tap_strbuf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *at = len < 0 ? NULL : tap__strbuf_reserve(buf, (size_t)len);
    if (at) {
        vsnprintf(at, (size_t)len + 1, fmt, again);
        buf->len += (size_t)len;
    } else {
        buf->failed = true;
    }
    va_end(again);
}

size_t tap__utf8_char(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    if (len == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t need = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || need > len)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return need;
}
