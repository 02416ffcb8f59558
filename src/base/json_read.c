/* json_read.c - JSON by the rules of Python's json module. */
#include "base/json_read.h"

#include "base/memory.h"
#include "base/status.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static bool broken(tap_json_reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return false;
}

static bool at_end(const tap_json_reader *r)
{
    return r->at == r->end;
}

static void skip_space(tap_json_reader *r)
{
    while (!at_end(r) && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

void tap__json_read_begin(tap_json_reader *r, const char *text, size_t len, int max_depth)
{
    *r = (tap_json_reader){.start = text, .at = text, .end = text + len, .max_depth = max_depth};
}

char tap__json_peek(tap_json_reader *r)
{
    skip_space(r);
    return r->why || at_end(r) ? 0 : *r->at;
}

bool tap__json_enter(tap_json_reader *r, char bracket)
{
    if (tap__json_peek(r) != bracket)
        return broken(r, "another kind of value is expected");
    if (r->depth >= r->max_depth) {
        r->too_deep = true;
        return broken(r, "it is nested too deep");
    }
    r->at++;
    r->depth++;
    r->first = true;
    return true;
}

/* Steps to the next element, or over the bracket that closes. */
static bool next_element(tap_json_reader *r, char close)
{
    char c = tap__json_peek(r);
    if (r->why)
        return false;
    if (c == close) {
        r->at++;
        r->depth--;
        r->first = false;
        return false;
    }
    if (!r->first) {
        if (c != ',')
            return broken(r, "a comma or the closing bracket is expected");
        r->at++;
        if (tap__json_peek(r) == close)
            return broken(r, "nothing follows a comma");
    }
    r->first = false;
    return true;
}

bool tap__json_item(tap_json_reader *r)
{
    return next_element(r, ']');
}

/* ------------------------------------------------------------------------------------------------------------ texts */

static int hex4(const tap_json_reader *r, const char *text)
{
    int value = 0;
    if (r->end - text < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static void add_code(tap_strbuf *out, uint32_t code)
{
    if (code == 0) {
        tap__strbuf_str(out, "%00");
    } else if (code >= 0xDC80 && code <= 0xDCFF) { /* a byte that was not UTF-8 */
        tap__strbuf_char(out, (char)(code & 0xFF));
    } else if (code < 0x80) {
        tap__strbuf_char(out, (char)code);
    } else if (code < 0x800) {
        tap__strbuf_char(out, (char)(0xC0 | code >> 6));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    } else if (code < 0x10000) {
        tap__strbuf_char(out, (char)(0xE0 | code >> 12));
        tap__strbuf_char(out, (char)(0x80 | (code >> 6 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    } else {
        tap__strbuf_char(out, (char)(0xF0 | code >> 18));
        tap__strbuf_char(out, (char)(0x80 | (code >> 12 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code >> 6 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    }
}

/* One escape; at is on the backslash. out may be NULL. */
static bool take_escape(tap_json_reader *r, tap_strbuf *out)
{
    static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
    if (r->end - r->at < 2) {
        r->at = r->end;
        return broken(r, "a text is not closed");
    }
    char c = r->at[1];
    const char *name = c ? strchr(NAMES, c) : NULL;
    if (name) {
        if (out)
            tap__strbuf_char(out, VALUES[name - NAMES]);
        r->at += 2;
        return true;
    }
    int code = c == 'u' ? hex4(r, r->at + 2) : -1;
    if (code < 0) {
        r->at = c == 'u' && r->end - r->at < 6 ? r->end : r->at;
        return broken(r, "an escape that does not exist");
    }
    r->at += 6;
    int low = r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u' ? hex4(r, r->at + 2) : -1;
    if (code >= 0xD800 && code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        r->at += 6;
    }
    if (out)
        add_code(out, (uint32_t)code);
    return true;
}

static bool take_text(tap_json_reader *r, tap_strbuf *out)
{
    if (tap__json_peek(r) != '"')
        return broken(r, "a text is expected");
    r->at++;
    while (!at_end(r) && *r->at != '"') {
        if (*r->at == '\\') {
            if (!take_escape(r, out))
                return false;
            continue;
        }
        if ((unsigned char)*r->at < 0x20)
            return broken(r, "a control character in a text");
        size_t len = tap__utf8_char(r->at, (size_t)(r->end - r->at));
        if (!len)
            return broken(r, "bytes that are not UTF-8");
        if (out)
            tap__strbuf_add(out, r->at, len);
        r->at += len;
    }
    if (at_end(r))
        return broken(r, "a text is not closed");
    r->at++;
    return !r->why;
}

bool tap__json_text(tap_json_reader *r, tap_strbuf *out)
{
    tap__strbuf_clear(out);
    tap__strbuf_add(out, "", 0);
    return take_text(r, out);
}

static bool take_colon(tap_json_reader *r)
{
    if (tap__json_peek(r) != ':')
        return broken(r, "a colon is expected");
    r->at++;
    return true;
}

bool tap__json_member(tap_json_reader *r, tap_strbuf *key)
{
    return next_element(r, '}') && tap__json_text(r, key) && take_colon(r);
}

/* --------------------------------------------------------------------------------------------------- other values */

static const char *digits_end(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The longest number at r->at; NULL: none. *whole: an integer. */
static const char *number_end(const tap_json_reader *r, bool *whole)
{
    const char *at = r->at, *end = r->end;
    at += at < end && *at == '-';
    const char *digits = digits_end(at, end);
    if (digits == at)
        return NULL;
    at = *at == '0' ? at + 1 : digits;
    *whole = true;
    if (at < end && *at == '.' && digits_end(at + 1, end) > at + 1) {
        at = digits_end(at + 1, end);
        *whole = false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *power = at + 1 + (end - at > 1 && (at[1] == '+' || at[1] == '-'));
        const char *stop = power < end ? digits_end(power, end) : power;
        if (stop > power) {
            at = stop;
            *whole = false;
        }
    }
    return at;
}

/* Nothing follows but what begins a fraction or an exponent. */
static bool number_is_cut(const char *at, const char *end)
{
    if (at == end || (*at != '.' && *at != 'e' && *at != 'E'))
        return false;
    bool sign = end - at == 2 && *at != '.' && (at[1] == '+' || at[1] == '-');
    return sign || end - at == 1;
}

static const struct word {
    const char *text;
    tap_json_type type;
    double number;
} WORDS[] = {
    {"null", TAP_JSON_NULL, 0}, {"true", TAP_JSON_BOOL, 1}, {"false", TAP_JSON_BOOL, 0},
    {"NaN", TAP_JSON_FLOAT, __builtin_nan("")}, {"Infinity", TAP_JSON_FLOAT, __builtin_inf()},
    {"-Infinity", TAP_JSON_FLOAT, -__builtin_inf()},
};

static const struct word *take_word(tap_json_reader *r)
{
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        size_t len = strlen(WORDS[i].text), left = (size_t)(r->end - r->at);
        if (left >= len && memcmp(r->at, WORDS[i].text, len) == 0) {
            r->at += len;
            return &WORDS[i];
        }
        if (left && left < len && memcmp(r->at, WORDS[i].text, left) == 0)
            r->at = r->end; /* it was cut */
    }
    return NULL;
}

/* Steps over a number or a word; *word NULL: a number, from the old position to the new one. */
static bool take_plain(tap_json_reader *r, const struct word **word, bool *whole)
{
    *word = NULL;
    const char *stop = number_end(r, whole);
    if (stop) {
        bool cut = number_is_cut(stop, r->end);
        r->at = cut ? r->end : stop;
        return !cut || broken(r, "a digit is expected");
    }
    *word = take_word(r);
    return *word || broken(r, at_end(r) ? "a value is expected" : "this is no value");
}

static bool skip_value(tap_json_reader *r)
{
    char c = tap__json_peek(r);
    if (c == '"')
        return take_text(r, NULL);
    if (c == '[') {
        if (!tap__json_enter(r, c))
            return false;
        while (tap__json_item(r))
            if (!skip_value(r))
                return false;
        return !r->why;
    }
    if (c == '{') {
        if (!tap__json_enter(r, c))
            return false;
        while (next_element(r, '}'))
            if (!take_text(r, NULL) || !take_colon(r) || !skip_value(r))
                return false;
        return !r->why;
    }
    const struct word *word;
    bool whole;
    return !r->why && take_plain(r, &word, &whole);
}

bool tap__json_skip(tap_json_reader *r, const char **text, size_t *len)
{
    tap__json_peek(r);
    *text = r->at;
    bool ok = skip_value(r);
    *len = (size_t)(r->at - *text);
    return ok;
}

bool tap__json_end(tap_json_reader *r)
{
    tap__json_peek(r);
    return !r->why && (at_end(r) || broken(r, "something follows the last bracket"));
}

tap_status tap__json_broken(const tap_json_reader *r, const char *what, tap_error *err)
{
    tap_status status = r->too_deep ? TAP_E_LIMIT : at_end(r) ? TAP_E_TRUNCATED : TAP_E_FORMAT;
    return tap_fail(err, status, "%s is not whole JSON: byte %zu: %s", what, (size_t)(r->at - r->start),
                    tap_text(r->why ? r->why : "it ends too early"));
}

/* ----------------------------------------------------------------------------------------------- values in memory */

static locale_t plain_locale;

static void plain_locale_make(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Whatever the program's locale has for a decimal point. text ends in a byte that is of no number. */
static double number_of(const char *text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, plain_locale_make);
    return plain_locale ? strtod_l(text, NULL, plain_locale) : strtod(text, NULL);
}

static const char *text_keep(tap_arena *arena, const char *text, size_t len)
{
    char *copy = tap__arena_alloc(arena, len + 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

static bool fill_number(tap_json_value *value, tap_arena *arena, const char *text, size_t len, bool whole)
{
    value->type = whole ? TAP_JSON_INT : TAP_JSON_FLOAT;
    value->text = text_keep(arena, text, len);
    if (!value->text)
        return false;
    value->len = len;
    value->number = number_of(value->text);
    value->negative = *text == '-';
    for (const char *at = value->text + value->negative; whole && *at; at++)
        value->huge |= __builtin_mul_overflow(value->magnitude, 10u, &value->magnitude) ||
                       __builtin_add_overflow(value->magnitude, (uint64_t)(*at - '0'), &value->magnitude);
    return true;
}

static bool fill_plain(tap_json_reader *r, tap_json_value *value, tap_arena *arena)
{
    const struct word *word;
    const char *start = r->at;
    bool whole;
    if (!take_plain(r, &word, &whole))
        return false;
    if (!word)
        return fill_number(value, arena, start, (size_t)(r->at - start), whole);
    value->type = word->type;
    value->number = word->number;
    value->magnitude = word->type == TAP_JSON_BOOL && word->number != 0;
    return true;
}

static tap_json_value *read_value(tap_json_reader *r, tap_arena *arena, tap_strbuf *scratch);

static bool fill_members(tap_json_reader *r, tap_json_value *value, tap_arena *arena, tap_strbuf *scratch)
{
    bool dict = value->type == TAP_JSON_DICT;
    if (!tap__json_enter(r, dict ? '{' : '['))
        return false;
    tap_json_value **end = &value->items;
    while (dict ? tap__json_member(r, scratch) : tap__json_item(r)) {
        const char *key = dict && !scratch->failed ? text_keep(arena, scratch->text, scratch->len) : NULL;
        tap_json_value *item = dict && !key ? NULL : read_value(r, arena, scratch);
        if (!item)
            return false;
        item->key = key;
        *end = item;
        end = &item->next;
        value->count++;
    }
    return !r->why;
}

static bool fill_text(tap_json_reader *r, tap_json_value *value, tap_arena *arena, tap_strbuf *scratch)
{
    value->type = TAP_JSON_TEXT;
    if (!tap__json_text(r, scratch) || scratch->failed)
        return false;
    value->text = text_keep(arena, scratch->text, scratch->len);
    value->len = scratch->len;
    return value->text;
}

static tap_json_value *read_value(tap_json_reader *r, tap_arena *arena, tap_strbuf *scratch)
{
    char c = tap__json_peek(r);
    tap_json_value *value = r->why ? NULL : tap__arena_calloc(arena, 1, sizeof *value);
    if (!value)
        return NULL;
    bool ok;
    if (c == '{' || c == '[') {
        value->type = c == '{' ? TAP_JSON_DICT : TAP_JSON_LIST;
        ok = fill_members(r, value, arena, scratch);
    } else {
        ok = c == '"' ? fill_text(r, value, arena, scratch) : fill_plain(r, value, arena);
    }
    return ok ? value : NULL;
}

tap_json_value *tap__json_value(tap_json_reader *r, tap_arena *arena)
{
    tap_strbuf scratch = TAP_STRBUF_INIT;
    tap_json_value *value = read_value(r, arena, &scratch);
    tap__strbuf_free(&scratch);
    return value;
}

const tap_json_value *tap__json_get(const tap_json_value *value, const char *key, const tap_json_value *hint)
{
    if (!value || value->type != TAP_JSON_DICT)
        return NULL;
    if (hint && strcmp(hint->key, key) == 0)
        return hint;
    const tap_json_value *found = NULL;
    for (const tap_json_value *item = value->items; item; item = item->next)
        if (strcmp(item->key, key) == 0)
            found = item;
    return found;
}

bool tap__json_int64(const tap_json_value *value, int64_t *out)
{
    if (!value || value->type != TAP_JSON_INT || value->huge || value->magnitude > (uint64_t)INT64_MAX + value->negative)
        return false;
    *out = (int64_t)(value->negative ? 0 - value->magnitude : value->magnitude);
    return true;
}

bool tap__json_uint64(const tap_json_value *value, uint64_t *out)
{
    if (!value || value->type != TAP_JSON_INT || value->huge || (value->negative && value->magnitude))
        return false;
    *out = value->magnitude;
    return true;
}
