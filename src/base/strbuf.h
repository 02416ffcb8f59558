/* strbuf.h - a growing byte string. After a failed allocation `failed` stays set and appends do nothing, so that a
 * caller checks once, at the end. text is always NUL-terminated when it is not NULL. */
#ifndef TAP_BASE_STRBUF_H
#define TAP_BASE_STRBUF_H

#include "tensortap/tensortap.h"

typedef struct tap_strbuf {
    char *text;
    size_t len, cap;
    bool failed;
} tap_strbuf;

#define TAP_STRBUF_INIT {NULL, 0, 0, false}

void tap__strbuf_free(tap_strbuf *buf);
void tap__strbuf_clear(tap_strbuf *buf); /* keeps the memory */
void tap__strbuf_add(tap_strbuf *buf, const void *bytes, size_t len);
void tap__strbuf_str(tap_strbuf *buf, const char *text);
void tap__strbuf_char(tap_strbuf *buf, char c);
void tap__strbuf_printf(tap_strbuf *buf, const char *fmt, ...) TAP_PRINTF(2, 3);
/* Room for len more bytes at text + len, or NULL. The caller then adds to len itself. */
char *tap__strbuf_reserve(tap_strbuf *buf, size_t len);

/* Bytes of one UTF-8 character at text (at most len), 0 when it is not valid UTF-8. */
size_t tap__utf8_char(const char *text, size_t len);

#endif
