/* jsonout.c - JSON on stdout. */
#include "jsonout.h"

#include "term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As utf8_next for a text that has no NUL at its end. */
static size_t utf8_within(const char *text, size_t len, uint32_t *code)
{
    char bytes[5] = {0};
    memcpy(bytes, text, len < 4 ? len : 4);
    return utf8_next(bytes, code);
}

/* By its number: what a terminal must not see. */
static void put_code(uint32_t code)
{
    if (code > 0xFFFF)
        printf("\\u%04x\\u%04x", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    else
        printf("\\u%04x", code);
}

/* Bytes that need no care. */
static size_t plain_run(const char *text, size_t len)
{
    size_t done = 0;
    while (done < len && text[done] >= 0x20 && text[done] < 0x7F && text[done] != '"' && text[done] != '\\')
        done++;
    return done;
}

static void put_text(const char *text, size_t len)
{
    putchar('"');
    uint32_t code;
    for (size_t i = 0, used; i < len; i += used) {
        unsigned char c = (unsigned char)text[i];
        used = plain_run(text + i, len - i);
        if (used) {
            fwrite(text + i, 1, used, stdout);
            continue;
        }
        used = 1;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7F)
            put_code(c);
        else if ((used = utf8_within(text + i, len - i, &code)) && code_width(code) < 0)
            put_code(code);
        else if (used)
            fwrite(text + i, 1, used, stdout);
        else {
            fputs("\xEF\xBF\xBD", stdout);
            used = 1;
        }
    }
    putchar('"');
}

static void before(jsonout *json, const char *key)
{
    if (json->more)
        fputs(", ", stdout);
    json->more = true;
    if (!key)
        return;
    put_text(key, strlen(key));
    fputs(": ", stdout);
}

void json_open(jsonout *json, const char *key, char bracket)
{
    before(json, key);
    putchar(bracket);
    json->more = false;
}

void json_close(jsonout *json, char bracket)
{
    putchar(bracket);
    json->more = true;
}

void json_end(jsonout *json)
{
    fputs("}\n", stdout);
    json->more = false;
}

void json_textn(jsonout *json, const char *key, const char *text, size_t len)
{
    before(json, key);
    put_text(text, len);
}

void json_text(jsonout *json, const char *key, const char *text)
{
    if (text)
        json_textn(json, key, text, strlen(text));
    else
        json_null(json, key);
}

void json_int(jsonout *json, const char *key, int64_t number)
{
    before(json, key);
    printf("%lld", (long long)number);
}

void json_uint(jsonout *json, const char *key, uint64_t number)
{
    before(json, key);
    printf("%llu", (unsigned long long)number);
}

void json_real(jsonout *json, const char *key, double number)
{
    if (!isfinite(number)) {
        json_null(json, key);
        return;
    }
    char text[40];
    for (int digits = 15; digits <= 17; digits++) { /* the fewest that read back the same */
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    before(json, key);
    fputs(text, stdout);
}

void json_bool(jsonout *json, const char *key, bool value)
{
    before(json, key);
    fputs(value ? "true" : "false", stdout);
}

void json_null(jsonout *json, const char *key)
{
    before(json, key);
    fputs("null", stdout);
}
