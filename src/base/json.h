/* json.h - writing JSON the way Python's json.dump(indent=N) does, byte for byte: escapes, float repr, NaN and
 * Infinity tokens. Reading is json_read.h. */
#ifndef TAP_BASE_JSON_H
#define TAP_BASE_JSON_H

#include "base/strbuf.h"

/* Writes into out; commas, newlines and indentation are added where they belong. indent < 0: on one line with Python's
 * default separators (", " and ": "). */
typedef struct tap_json {
    tap_strbuf *out;
    int indent;
    int depth;
    bool first;     /* nothing yet in the current object or array */
    bool after_key;
    bool raw_utf8;  /* keep non-ASCII characters (ensure_ascii=False) */
} tap_json;

void tap__json_begin(tap_json *json, tap_strbuf *out, int indent);
void tap__json_open(tap_json *json, char bracket);  /* '{' or '[' */
void tap__json_close(tap_json *json, char bracket); /* '}' or ']'; an empty one stays on its line */
void tap__json_key(tap_json *json, const char *key);
void tap__json_keyn(tap_json *json, const char *key, size_t len);
void tap__json_str(tap_json *json, const char *text);
void tap__json_strn(tap_json *json, const char *text, size_t len);
void tap__json_int(tap_json *json, int64_t number);
void tap__json_uint(tap_json *json, uint64_t number);
void tap__json_float(tap_json *json, double number);
void tap__json_bool(tap_json *json, bool value);
void tap__json_null(tap_json *json);
/* Text that is JSON already. */
void tap__json_raw(tap_json *json, const char *text, size_t len);

/* Python's repr(float): the shortest text that reads back the same. Returns its length; text needs 32 bytes. */
int tap__format_float(char *text, double number);

#endif
