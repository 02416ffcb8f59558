/* test_json.c - JSON as Python writes it. The expected text was printed by Python 3.11's json.dumps; with an argument
 * the program formats what it is given, for tests/python/test_layout_json.py, which asks Python itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_read.h"

static void floats(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } CASES[] = {
        {0.0, "0.0"}, {-0.0, "-0.0"}, {1.0, "1.0"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {1e15, "1000000000000000.0"},
        {1e16, "1e+16"}, {123456789012345680.0, "1.2345678901234568e+17"}, {0.0001, "0.0001"}, {0.00001, "1e-05"},
        {0.00012345, "0.00012345"}, {1.0 / 3, "0.3333333333333333"}, {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"}, {1.7976931348623157e308, "1.7976931348623157e+308"},
        {1e100, "1e+100"}, {9007199254740993.0, "9007199254740992.0"}, {0x1p-44, "5.684341886080802e-14"},
        {(double)0.1f, "0.10000000149011612"}, {2512.0, "2512.0"}, {1e22, "1e+22"}, {1e23, "1e+23"},
        {123456.0, "123456.0"}, {(double)INFINITY, "Infinity"}, {-(double)INFINITY, "-Infinity"},
        {(double)NAN, "NaN"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[32];
        int len = tap__format_float(text, CASES[i].number);
        assert_string_equal(text, CASES[i].text);
        assert_int_equal(len, strlen(text));
    }
}

/* A program that set a locale with a decimal comma still gets JSON. */
static void floats_in_another_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "de_DE"))
        skip();
    char text[32];
    tap__format_float(text, 0.5);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "0.5");
}

static void strings(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *ascii, *raw;
    } CASES[] = {
        {"", "\"\"", "\"\""}, {"a\"b\\c/", "\"a\\\"b\\\\c/\"", "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t\x01\x1f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\"", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\""},
        {"\x7f", "\"\\u007f\"", "\"\x7f\""},
        {"\xe6\xb5\x8b\xc3\xa9", "\"\\u6d4b\\u00e9\"", "\"\xe6\xb5\x8b\xc3\xa9\""},
        {"\xf0\x9f\x98\x80", "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
        {"a\xff", "\"a\\udcff\"", "\"a\\udcff\""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        for (int raw = 0; raw < 2; raw++) {
            tap_strbuf out = TAP_STRBUF_INIT;
            tap_json json;
            tap__json_begin(&json, &out, -1);
            json.raw_utf8 = raw;
            tap__json_str(&json, CASES[i].bytes);
            assert_string_equal(out.text, raw ? CASES[i].raw : CASES[i].ascii);
            tap__strbuf_free(&out);
        }
    }
    tap_strbuf out = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &out, -1);
    tap__json_strn(&json, "a\0b", 3);
    assert_string_equal(out.text, "\"a\\u0000b\"");
    tap__strbuf_free(&out);
}

static void write_sample(tap_json *json)
{
    tap__json_open(json, '{');
    tap__json_key(json, "a");
    tap__json_open(json, '[');
    tap__json_int(json, -1);
    tap__json_uint(json, UINT64_MAX);
    tap__json_open(json, '{');
    tap__json_close(json, '}');
    tap__json_open(json, '[');
    tap__json_close(json, ']');
    tap__json_close(json, ']');
    tap__json_keyn(json, "bcd", 1);
    tap__json_open(json, '{');
    tap__json_key(json, "t");
    tap__json_bool(json, true);
    tap__json_key(json, "f");
    tap__json_bool(json, false);
    tap__json_key(json, "n");
    tap__json_null(json);
    tap__json_close(json, '}');
    tap__json_close(json, '}');
}

static void structure(void **state)
{
    (void)state;
    static const struct {
        int indent;
        const char *text;
    } CASES[] = {
        {-1, "{\"a\": [-1, 18446744073709551615, {}, []], \"b\": {\"t\": true, \"f\": false, \"n\": null}}"},
        {1, "{\n \"a\": [\n  -1,\n  18446744073709551615,\n  {},\n  []\n ],\n \"b\": {\n  \"t\": true,\n  \"f\": false,\n"
            "  \"n\": null\n }\n}"},
        {0, "{\n\"a\": [\n-1,\n18446744073709551615,\n{},\n[]\n],\n\"b\": {\n\"t\": true,\n\"f\": false,\n\"n\": null\n}"
            "\n}"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        tap_strbuf out = TAP_STRBUF_INIT;
        tap_json json;
        tap__json_begin(&json, &out, CASES[i].indent);
        write_sample(&json);
        assert_string_equal(out.text, CASES[i].text);
        tap__strbuf_free(&out);
    }
}

/* Lines of 16 hex digits, a double's bits, to lines of text. */
static int format_lines(void)
{
    char line[64], text[32];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t bits = strtoull(line, NULL, 16);
        double number;
        memcpy(&number, &bits, 8);
        tap__format_float(text, number);
        puts(text);
    }
    return 0;
}

/* Lines of hex bytes to lines of JSON strings. */
static int escape_lines(void)
{
    static char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        char bytes[4096];
        size_t len = 0;
        for (char *at = line; at[0] > ' ' && at[1] > ' '; at += 2)
            bytes[len++] = (char)strtoul((char[]){at[0], at[1], 0}, NULL, 16);
        tap_strbuf out = TAP_STRBUF_INIT;
        tap_json json;
        tap__json_begin(&json, &out, -1);
        tap__json_strn(&json, bytes, len);
        puts(out.text);
        tap__strbuf_free(&out);
    }
    return 0;
}

static char *unhex(const char *line, size_t *len)
{
    char *bytes = malloc(strlen(line) / 2 + 1);
    *len = 0;
    for (const char *at = line; at[0] > ' ' && at[1] > ' '; at += 2)
        bytes[(*len)++] = (char)strtoul((char[]){at[0], at[1], 0}, NULL, 16);
    return bytes;
}

static void show_hex(tap_json *json, const char *text, size_t len)
{
    tap_strbuf hex = TAP_STRBUF_INIT;
    tap__strbuf_str(&hex, "t");
    for (size_t i = 0; i < len; i++)
        tap__strbuf_printf(&hex, "%02x", (unsigned char)text[i]);
    tap__json_str(json, hex.text);
    tap__strbuf_free(&hex);
}

/* Lists begin with "l", dicts with "d" and go on with key, value, key, value; a text is "t" and its bytes. */
static void show(tap_json *json, const tap_json_value *value)
{
    switch (value->type) {
    case TAP_JSON_NULL: tap__json_null(json); return;
    case TAP_JSON_BOOL: tap__json_bool(json, value->magnitude); return;
    case TAP_JSON_INT: tap__json_str(json, value->text); return;
    case TAP_JSON_FLOAT: tap__json_float(json, value->number); return;
    case TAP_JSON_TEXT: show_hex(json, value->text, value->len); return;
    default: break;
    }
    tap__json_open(json, '[');
    tap__json_str(json, value->type == TAP_JSON_LIST ? "l" : "d");
    for (const tap_json_value *item = value->items; item; item = item->next) {
        if (item->key)
            show_hex(json, item->key, strlen(item->key));
        show(json, item);
    }
    tap__json_close(json, ']');
}

/* Lines of hex bytes to what they say as JSON, or the name of the status. Walking without memory must find the same. */
static int read_lines(void)
{
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin)) {
        size_t len, whole_len;
        char *text = unhex(line, &len);
        const char *whole;
        tap_json_reader reader, skipper;
        tap_arena arena;
        tap__arena_init(&arena, len);
        tap__json_read_begin(&reader, text, len, 900);
        tap__json_read_begin(&skipper, text, len, 900);
        tap_json_value *value = tap__json_value(&reader, &arena);
        bool ok = value && tap__json_end(&reader);
        bool skipped = tap__json_skip(&skipper, &whole, &whole_len) && tap__json_end(&skipper);
        if (ok != skipped || reader.at != skipper.at || reader.why != skipper.why) {
            puts("two answers");
        } else if (!ok) {
            puts(tap_status_name(tap__json_broken(&reader, "x", NULL)));
        } else {
            tap_strbuf out = TAP_STRBUF_INIT;
            tap_json json;
            tap__json_begin(&json, &out, -1);
            show(&json, value);
            puts(out.text);
            tap__strbuf_free(&out);
        }
        tap__arena_free(&arena);
        free(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return strcmp(argv[1], "floats") == 0 ? format_lines()
               : strcmp(argv[1], "read") == 0 ? read_lines()
                                              : escape_lines();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats),
        cmocka_unit_test(floats_in_another_locale),
        cmocka_unit_test(strings),
        cmocka_unit_test(structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
