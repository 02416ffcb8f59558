/* decimal.c - shortest digits by trying: the C library prints and reads exactly, which is all that is needed. */
#include "tensor/decimal.h"

#include "tensor/element.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0.d1d2d3... times 10^(point) */
typedef struct digits {
    char text[24];
    int count, point;
} digits;

static bool reads_back(const char *text, double value, tap_width width)
{
    if (width == TAP_WIDTH_DOUBLE)
        return strtod(text, NULL) == value;
    if (width == TAP_WIDTH_SINGLE)
        return strtof(text, NULL) == (float)value;
    uint16_t got, want;
    tap_scalar read = {.kind = 'F', .re = strtod(text, NULL)}, is = {.kind = 'F', .re = value};
    tap__element_put(TAP_F16, &got, 0, &read);
    tap__element_put(TAP_F16, &want, 0, &is);
    return got == want;
}

/* One more or one less in the last place of "d.ddde+XX". */
static void nudge(char *text, int by)
{
    char *e = strchr(text, 'e'), *at = e;
    while (at > text) {
        at--;
        if (*at == '.')
            continue;
        if (by > 0 && *at == '9') {
            *at = '0';
        } else if (by < 0 && *at == '0') {
            *at = '9';
        } else {
            *at = (char)(*at + by);
            return;
        }
    }
    if (by > 0) { /* 9.99 became 0.00: it is 1.00 of the next power */
        text[0] = '1';
        sprintf(e, "e%+03d", atoi(e + 1) + 1);
    }
}

/* Below a power of two values lie twice as close: a text next to the nearest one may read back where that does not. */
static bool shortest_text(char *text, size_t size, double value, tap_width width, int precision)
{
    snprintf(text, size, "%.*e", precision, value);
    if (reads_back(text, value, width))
        return true;
    for (int by = -1; by <= 1; by += 2) {
        char other[40];
        snprintf(other, sizeof other, "%s", text);
        nudge(other, by);
        if (other[0] != '0' && reads_back(other, value, width)) {
            snprintf(text, size, "%s", other);
            return true;
        }
    }
    return false;
}

static digits digits_of(const char *text)
{
    digits d = {.count = 0};
    const char *at = text;
    for (; *at && *at != 'e'; at++)
        if (*at != '.' && d.count < (int)sizeof d.text - 1)
            d.text[d.count++] = *at;
    d.point = atoi(at + 1) + 1;
    while (d.count > 1 && d.text[d.count - 1] == '0')
        d.count--;
    d.text[d.count] = 0;
    return d;
}

static digits shortest(double value, tap_width width)
{
    char text[40];
    value = fabs(value);
    if (value == 0)
        return (digits){.text = "0", .count = 1, .point = 1};
    for (int precision = 0; precision < 17; precision++)
        if (shortest_text(text, sizeof text, value, width, precision))
            break;
    return digits_of(text);
}

/* Removes zeros from the end of the fraction in text of length len, of which `whole` bytes lie before the point. */
static int trim(char *text, int len, int whole, tap_trim how)
{
    if (how != TAP_TRIM_NONE)
        while (len > whole + 1 && text[len - 1] == '0')
            len--;
    if (len == whole + 1) {
        if (how == TAP_TRIM_ONE_ZERO)
            text[len++] = '0';
        else if (how == TAP_TRIM_ALL)
            len--;
    }
    text[len] = 0;
    return len;
}

static int pad_left(char *text, int len, int whole, int wanted)
{
    int missing = wanted - whole;
    if (missing <= 0)
        return len;
    memmove(text + missing, text, (size_t)len + 1);
    memset(text, ' ', (size_t)missing);
    return len + missing;
}

static int put_sign(char *text, double value, bool plus)
{
    if (signbit(value) || plus)
        *text = signbit(value) ? '-' : '+';
    return signbit(value) || plus;
}

/* Digits without an exponent, with a point. */
static int put_plain(char *text, const digits *d)
{
    int len = 0;
    if (d->point <= 0)
        text[len++] = '0';
    for (int i = 0; i < d->point; i++)
        text[len++] = i < d->count ? d->text[i] : '0';
    text[len++] = '.';
    for (int i = d->point; i < 0; i++)
        text[len++] = '0';
    for (int i = d->point > 0 ? d->point : 0; i < d->count; i++)
        text[len++] = d->text[i];
    text[len] = 0;
    return len;
}

int tap__decimal_positional(char *text, double value, const tap_decimal *how)
{
    digits d = shortest(value, how->width);
    int len = put_sign(text, value, how->plus);
    if (how->precision >= 0 && d.count - d.point > how->precision)
        len += snprintf(text + len, 64, "%#.*f", how->precision, fabs(value));
    else
        len += put_plain(text + len, &d);
    int whole = (int)(strchr(text, '.') - text);
    len = trim(text, len, whole, how->trim);
    for (int fraction = len > whole ? len - whole - 1 : 0; fraction < how->pad_right; fraction++)
        text[len++] = ' ';
    text[len] = 0;
    return pad_left(text, len, whole, how->pad_left);
}

int tap__decimal_scientific(char *text, double value, const tap_decimal *how)
{
    digits d = shortest(value, how->width);
    int least = how->trim == TAP_TRIM_NONE ? how->fraction : 0;
    if ((how->precision >= 0 && d.count - 1 > how->precision) || d.count - 1 < least) {
        char rounded[40];
        snprintf(rounded, sizeof rounded, "%.*e", d.count - 1 < least ? least : how->precision, fabs(value));
        d = digits_of(rounded);
    }
    int len = put_sign(text, value, how->plus);
    text[len++] = d.text[0];
    int whole = len;
    text[len++] = '.';
    for (int i = 1; i < d.count; i++)
        text[len++] = d.text[i];
    while (len - whole - 1 < least)
        text[len++] = '0';
    len = trim(text, len, whole, how->trim);
    int exponent = d.point - 1;
    len += snprintf(text + len, 16, "e%c%0*d", exponent < 0 ? '-' : '+', how->exponent > 2 ? how->exponent : 2,
                    abs(exponent));
    return pad_left(text, len, whole, how->pad_left);
}
