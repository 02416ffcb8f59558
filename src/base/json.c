/* json.c - JSON as Python writes it. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The digits of number rounded to `count` of them, without point, and its decimal exponent; whatever the locale's
 * decimal point is. True when they read back as number. */
static bool round_digits(double number, int count, char *digits, int *exponent)
{
    char text[40];
    snprintf(text, sizeof text, "%.*e", count - 1, number);
    bool same = strtod(text, NULL) == number;
    char *e = strchr(text, 'e'), *out = digits;
    *exponent = atoi(e + 1);
    for (char *at = text; at < e; at++)
        if (*at >= '0' && *at <= '9')
            *out++ = *at;
    *out = 0;
    return same;
}

/* A power of two is farther from its neighbour above than from the one below: there the nearest 16 digits may not read
 * back while the next ones above do. True when they do; digits are then those. */
static bool next_above(double number, char *digits, int exponent)
{
    char above[40], text[64];
    strcpy(above, digits);
    int at = 15;
    while (at > 0 && above[at] == '9')
        above[at--] = '0';
    above[at]++;
    snprintf(text, sizeof text, "%se%d", above, exponent - 15);
    if (above[0] > '9' || strtod(text, NULL) != number)
        return false;
    strcpy(digits, above);
    return true;
}

/* The fewest digits that read back as number (positive, finite), as Python's repr picks them. */
static int shortest_digits(double number, char *digits, int *exponent)
{
    /* 15 digits of a normal number are exact: if they read back, the shortest are they without their zeros */
    int count = number < 2.2250738585072014e-308 ? 1 : 15;
    while (!round_digits(number, count, digits, exponent) && count < 17) {
        if (count == 16 && next_above(number, digits, *exponent))
            break;
        count++;
    }
    while (count > 1 && digits[count - 1] == '0')
        digits[--count] = 0;
    return count;
}

int tap__format_float(char *text, double number)
{
    if (isnan(number))
        return sprintf(text, "NaN");
    if (isinf(number))
        return sprintf(text, number > 0 ? "Infinity" : "-Infinity");
    char *at = text, digits[40] = "0";
    int exponent = 0, count = 1;
    if (signbit(number))
        *at++ = '-';
    if (number != 0)
        count = shortest_digits(fabs(number), digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        *at++ = digits[0];
        if (count > 1)
            at += sprintf(at, ".%s", digits + 1);
        at += sprintf(at, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        at += sprintf(at, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else if (count <= exponent + 1) {
        at += sprintf(at, "%s%.*s.0", digits, exponent + 1 - count, "000000000000000");
    } else {
        at += sprintf(at, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
    return (int)(at - text);
}

static void newline(tap_json *json)
{
    if (json->indent < 0)
        return;
    size_t spaces = (size_t)json->indent * (size_t)json->depth;
    char *at = tap__strbuf_reserve(json->out, spaces + 1);
    if (!at)
        return;
    at[0] = '\n';
    memset(at + 1, ' ', spaces);
    at[spaces + 1] = 0;
    json->out->len += spaces + 1;
}

static void before_value(tap_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth == 0)
        return;
    if (!json->first)
        tap__strbuf_str(json->out, json->indent < 0 ? ", " : ",");
    json->first = false;
    newline(json);
}

void tap__json_begin(tap_json *json, tap_strbuf *out, int indent)
{
    *json = (tap_json){.out = out, .indent = indent, .first = true};
}

void tap__json_open(tap_json *json, char bracket)
{
    before_value(json);
    tap__strbuf_char(json->out, bracket);
    json->depth++;
    json->first = true;
}

void tap__json_close(tap_json *json, char bracket)
{
    json->depth--;
    if (!json->first)
        newline(json);
    json->first = false;
    tap__strbuf_char(json->out, bracket);
}

static void escape(tap_json *json, const char *text, size_t len)
{
    static const char SPECIAL[] = "\"\\\b\f\n\r\t";
    tap_strbuf *out = json->out;
    tap__strbuf_char(out, '"');
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        size_t used = tap__utf8_char(text + i, len - i);
        const char *special = strchr(SPECIAL, c);
        if (c && special) {
            tap__strbuf_char(out, '\\');
            tap__strbuf_char(out, "\"\\bfnrt"[special - SPECIAL]);
        } else if (c < 0x20 || (c == 0x7f && !json->raw_utf8)) {
            tap__strbuf_printf(out, "\\u%04x", c);
        } else if (used <= 1) {
            if (used)
                tap__strbuf_char(out, (char)c);
            else /* a byte that is not UTF-8, as Python's surrogateescape shows it */
                tap__strbuf_printf(out, "\\udc%02x", c);
            used = 1;
        } else if (json->raw_utf8) {
            tap__strbuf_add(out, text + i, used);
        } else {
            uint32_t code = used == 2 ? c & 0x1Fu : used == 3 ? c & 0x0Fu : c & 0x07u;
            for (size_t k = 1; k < used; k++)
                code = code << 6 | ((unsigned char)text[i + k] & 0x3Fu);
            if (code >= 0x10000)
                tap__strbuf_printf(out, "\\u%04x\\u%04x", 0xD800u + ((code - 0x10000) >> 10),
                                   0xDC00u + ((code - 0x10000) & 0x3FF));
            else
                tap__strbuf_printf(out, "\\u%04x", code);
        }
        i += used ? used : 1;
    }
    tap__strbuf_char(out, '"');
}

void tap__json_keyn(tap_json *json, const char *key, size_t len)
{
    before_value(json);
    escape(json, key, len);
    tap__strbuf_str(json->out, ": ");
    json->after_key = true;
}

void tap__json_key(tap_json *json, const char *key)
{
    tap__json_keyn(json, key, strlen(key));
}

void tap__json_strn(tap_json *json, const char *text, size_t len)
{
    before_value(json);
    escape(json, text, len);
}

void tap__json_str(tap_json *json, const char *text)
{
    tap__json_strn(json, text, strlen(text));
}

void tap__json_raw(tap_json *json, const char *text, size_t len)
{
    before_value(json);
    tap__strbuf_add(json->out, text, len);
}

void tap__json_int(tap_json *json, int64_t number)
{
    char text[32];
    tap__json_raw(json, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)number));
}

void tap__json_uint(tap_json *json, uint64_t number)
{
    char text[32];
    tap__json_raw(json, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)number));
}

void tap__json_float(tap_json *json, double number)
{
    char text[32];
    tap__json_raw(json, text, (size_t)tap__format_float(text, number));
}

void tap__json_bool(tap_json *json, bool value)
{
    tap__json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void tap__json_null(tap_json *json)
{
    tap__json_raw(json, "null", 4);
}
