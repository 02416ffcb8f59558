/* json_read.h - reading JSON that may come from anywhere, by the rules of Python's json module: NaN, Infinity and
 * -Infinity are numbers, and everything that json.loads refuses is refused, at the byte where it goes wrong. Values are
 * walked where they lie; what was whole before the break has been read by then. */
#ifndef TAP_BASE_JSON_READ_H
#define TAP_BASE_JSON_READ_H

#include "base/arena.h"
#include "base/strbuf.h"

typedef struct tap_json_reader {
    const char *start, *at, *end;
    int depth, max_depth;
    bool first;          /* nothing was read yet of the list or dict at hand */
    bool too_deep;
    const char *why;     /* it is broken at `at`; NULL: well so far. Everything below is false from then on */
} tap_json_reader;

void tap__json_read_begin(tap_json_reader *reader, const char *text, size_t len, int max_depth);
/* The first byte of the next value, 0 when nothing comes. */
char tap__json_peek(tap_json_reader *reader);
/* Goes into a dict ('{') or list ('['). */
bool tap__json_enter(tap_json_reader *reader, char bracket);
/* Another member comes, and this is its key; false: the dict ended here, or it is broken. */
bool tap__json_member(tap_json_reader *reader, tap_strbuf *key);
/* The same for the next of a list. */
bool tap__json_item(tap_json_reader *reader);
/* Takes a string: UTF-8, where a byte was not of one (Python's surrogateescape) that byte; a NUL is "%00", since names
 * are C strings. */
bool tap__json_text(tap_json_reader *reader, tap_strbuf *out);
/* Steps over one whole value of any kind, and says where it lies. */
bool tap__json_skip(tap_json_reader *reader, const char **text, size_t *len);
/* Nothing but space is left. */
bool tap__json_end(tap_json_reader *reader);
/* What is broken: TAP_E_TRUNCATED when the text ended too early, TAP_E_LIMIT when it is nested too deep. */
tap_status tap__json_broken(const tap_json_reader *reader, const char *what, tap_error *err);

/* ----------------------------------------------------------------------------------------------- values in memory */

typedef enum tap_json_type {
    TAP_JSON_NULL, TAP_JSON_BOOL, TAP_JSON_INT, TAP_JSON_FLOAT, TAP_JSON_TEXT, TAP_JSON_LIST, TAP_JSON_DICT
} tap_json_type;

typedef struct tap_json_value {
    tap_json_type type;
    bool negative, huge;            /* INT: huge: more than 64 bits, number only */
    uint64_t magnitude;             /* INT; BOOL: 0 or 1 */
    double number;                  /* INT, FLOAT; BOOL */
    const char *text;               /* TEXT, a NUL behind; INT: its digits */
    size_t len, count;              /* of text; members or items */
    const char *key;                /* of a member of a dict, a NUL behind; else NULL */
    struct tap_json_value *items, *next;
} tap_json_value;

/* The next value with all below it, in arena; NULL: broken, or no memory (then reader->why is NULL). */
tap_json_value *tap__json_value(tap_json_reader *reader, tap_arena *arena);
/* The last member of that key, as Python has it; NULL: none, or value is no dict. hint may be NULL: looked at first. */
const tap_json_value *tap__json_get(const tap_json_value *value, const char *key, const tap_json_value *hint);
/* Of an INT that fits. */
bool tap__json_int64(const tap_json_value *value, int64_t *out);
bool tap__json_uint64(const tap_json_value *value, uint64_t *out);

#endif
