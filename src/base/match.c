/* match.c - name globs and number ranges. */
#include "base/match.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Matches one set "[...]" at glob[0]; *used is its length, 0 when it is not closed and so stands for itself. */
static bool set_match(const char *glob, size_t len, unsigned char c, size_t *used)
{
    size_t i = 1;
    bool negate = i < len && (glob[i] == '!' || glob[i] == '^'), found = false;
    i += negate;
    for (size_t first = i; i < len && (glob[i] != ']' || i == first); i++) {
        unsigned char lo = (unsigned char)glob[i], hi = lo;
        if (i + 2 < len && glob[i + 1] == '-' && glob[i + 2] != ']') {
            hi = (unsigned char)glob[i + 2];
            i += 2;
        }
        found |= c >= lo && c <= hi;
    }
    *used = i < len ? i + 1 : 0;
    return found != negate;
}

/* Backtracks to the last "*" only: linear in practice, never exponential. */
bool tap__glob_match(const char *glob, size_t glob_len, const char *text)
{
    size_t g = 0, star = SIZE_MAX;
    const char *retry = NULL;
    while (*text) {
        size_t used = 0;
        bool ok = false;
        if (g < glob_len && glob[g] == '*') {
            star = g++;
            retry = text;
            continue;
        }
        if (g < glob_len) {
            if (glob[g] == '?') {
                ok = true;
                used = 1;
                while (((unsigned char)text[1] & 0xC0) == 0x80) /* one character, not one byte */
                    text++;
            } else if (glob[g] == '[') {
                ok = set_match(glob + g, glob_len - g, (unsigned char)*text, &used);
                if (!used) {
                    ok = *text == '[';
                    used = 1;
                }
            } else if (glob[g] == '\\' && g + 1 < glob_len) {
                ok = glob[g + 1] == *text;
                used = 2;
            } else {
                ok = glob[g] == *text;
                used = 1;
            }
        }
        if (ok) {
            g += used;
            text++;
        } else if (star != SIZE_MAX) {
            g = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (g < glob_len && glob[g] == '*')
        g++;
    return g == glob_len;
}

bool tap__names_match(const char *globs, const char *text)
{
    if (!globs || !*globs)
        return true;
    bool included = false, any_include = false;
    for (const char *at = globs; at; ) {
        const char *bar = strchr(at, '|');
        size_t len = bar ? (size_t)(bar - at) : strlen(at);
        bool negate = len && *at == '!';
        bool hit = tap__glob_match(at + negate, len - negate, text);
        if (negate && hit)
            return false;
        if (!negate && len) {
            any_include = true;
            included |= hit;
        }
        at = bar ? bar + 1 : NULL;
    }
    return included || !any_include;
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static bool parse_number(const char **at, int64_t *out)
{
    char *end;
    const char *start = skip_blanks(*at);
    if (*start < '0' || *start > '9')
        return false;
    errno = 0;
    *out = strtoll(start, &end, 10);
    *at = skip_blanks(end);
    return errno == 0;
}

tap_status tap__ranges_parse(tap_ranges *ranges, const char *text, const char *what, tap_error *err)
{
    *ranges = (tap_ranges){0, NULL};
    if (!text || !*skip_blanks(text))
        return TAP_OK;
    size_t parts = 1;
    for (const char *at = text; *at; at++)
        parts += *at == '|' || *at == ',';
    ranges->items = tap__calloc(parts, sizeof *ranges->items);
    if (!ranges->items)
        return tap_fail_nomem(err);
    const char *at = text;
    for (;;) {
        struct tap_range item;
        if (!parse_number(&at, &item.first))
            break;
        item.last = item.first;
        if (*at == '-') {
            at = skip_blanks(at + 1);
            item.last = INT64_MAX;
            if (*at && *at != '|' && *at != ',' && !parse_number(&at, &item.last))
                break;
        }
        if (item.last < item.first)
            break;
        ranges->items[ranges->count++] = item;
        if (!*at)
            return TAP_OK;
        if (*at != '|' && *at != ',')
            break;
        at++;
    }
    tap__ranges_free(ranges);
    return tap_fail(err, TAP_E_INVALID, "%s \"%s\": expected numbers and ranges such as 0|10-20|100-", what, text);
}

bool tap__ranges_contain(const tap_ranges *ranges, int64_t number)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (number >= ranges->items[i].first && number <= ranges->items[i].last)
            return true;
    return ranges->count == 0;
}

void tap__ranges_free(tap_ranges *ranges)
{
    tap__free(ranges->items);
    *ranges = (tap_ranges){0, NULL};
}
