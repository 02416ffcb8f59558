/* tolerance.c - rules, units of rounding, and counting what is beyond them. */
#include "compare/tolerance.h"

#include "base/match.h"
#include "base/memory.h"
#include "base/status.h"
#include "compare/difference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- rules */

static const char *skip(const char *at)
{
    return at + strspn(at, " \t");
}

/* "rel<=1e-3"; NULL: it is something else. */
static const char *limit_parse(const char *at, tap_rule *rule)
{
    static const struct {
        const char *name;
        size_t member;
    } LIMITS[] = {{"rel", offsetof(tap_rule, rel)}, {"abs", offsetof(tap_rule, abs)}};
    for (size_t i = 0; i < sizeof LIMITS / sizeof LIMITS[0]; i++) {
        size_t len = strlen(LIMITS[i].name);
        if (strncmp(at, LIMITS[i].name, len) != 0)
            continue;
        const char *sign = skip(at + len);
        if (strncmp(sign, "<=", 2) != 0)
            return NULL;
        char *end;
        double limit = strtod(sign + 2, &end);
        if (end == sign + 2 || !(limit >= 0))
            return NULL;
        *(double *)(void *)((char *)rule + LIMITS[i].member) = limit;
        return skip(end);
    }
    return NULL;
}

static bool rule_parse(const char *text, tap_rule *rule)
{
    const char *colon = strrchr(text, ':');
    *rule = (tap_rule){.rel = -1, .abs = -1};
    const char *at = colon && colon > text ? limit_parse(skip(colon + 1), rule) : NULL;
    if (at && *at) {
        rule->both = strncmp(at, "and ", 4) == 0;
        at = rule->both || strncmp(at, "or ", 3) == 0 ? limit_parse(skip(at + 3 + rule->both), rule) : NULL;
    }
    if (!at || *at)
        return false;
    rule->glob = tap__strndup(text, (size_t)(colon - text));
    return true;
}

tap_status tap__rules_parse(tap_rules *rules, const char *const *texts, size_t count, tap_error *err)
{
    *rules = (tap_rules){NULL, 0};
    rules->items = tap__calloc(count + 1, sizeof *rules->items);
    if (!rules->items)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < count; i++) {
        if (!rule_parse(texts[i], &rules->items[i]))
            return tap_fail(err, TAP_E_INVALID, "tolerance \"%s\": expected GLOB: rel<=1e-3 or abs<=1e-5", texts[i]);
        rules->count++;
        if (!rules->items[i].glob)
            return tap_fail_nomem(err);
    }
    return TAP_OK;
}

const tap_rule *tap__rules_find(const tap_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->count; i++)
        if (tap__names_match(rules->items[i].glob, name))
            return &rules->items[i];
    return NULL;
}

bool tap__rule_allows(const tap_rule *rule, double error, double size)
{
    bool rel = rule->rel >= 0 && error <= rule->rel * size, abs = rule->abs >= 0 && error <= rule->abs;
    return rule->both ? rel && abs : rel || abs;
}

void tap__rules_free(tap_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++)
        tap__free(rules->items[i].glob);
    tap__free(rules->items);
    *rules = (tap_rules){NULL, 0};
}

/* ------------------------------------------------------------------------------------------------------- rounding */

tap_status tap__precision_parse(const char *text, double *roundoff, tap_error *err)
{
    *roundoff = 0;
    if (!text)
        return TAP_OK;
    *roundoff = strcmp(text, "tf32") == 0 ? 0x1p-11 : tap__dtype_roundoff(tap_dtype_find(text));
    if (*roundoff == 0)
        return tap_fail(err, TAP_E_INVALID, "precision \"%s\": expected tf32 or a floating-point dtype", text);
    return TAP_OK;
}

double tap__rounding_unit(double roundoff, int64_t terms)
{
    return 2 * roundoff + fmin(roundoff, 0x1p-24) * sqrt((double)terms);
}

/* ---------------------------------------------------------------------------------------------------- second look */

static const tap_dtype_info *part_of(tap_dtype dtype)
{
    tap_dtype part = dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : dtype == TAP_C128 ? TAP_F64 : dtype;
    return tap_dtype_describe(part);
}

void tap__beyond_begin(tap_beyond *look, tap_dtype a, tap_dtype b)
{
    const tap_dtype_info *whole[2] = {tap_dtype_describe(a), tap_dtype_describe(b)};
    bool complex = whole[0]->kind == 'C' && whole[1]->kind == 'C';
    *look = (tap_beyond){.parts = complex ? 2 : whole[0]->values, .dtype = {whole[0], whole[1]}};
    if (complex)
        for (int side = 0; side < 2; side++)
            look->dtype[side] = part_of(whole[side]->dtype);
}

/* Quarters of octaves below the largest error; x in (0, 1]. */
static int bin_of(double x)
{
    int exponent;
    double m = frexp(x, &exponent); /* [0.5, 1) */
    int quarter = m > 0x1.ae89f995ad3adp-1 ? 0 : m > 0x1.6a09e667f3bcdp-1 ? 1 : m > 0x1.306fe0a31b715p-1 ? 2
                  : m > 0.5 ? 3 : 4;
    int bin = -exponent * 4 + quarter + 1;
    return bin < 1 ? 1 : bin < TAP_ERROR_BINS ? bin : TAP_ERROR_BINS - 1;
}

static void pair_look(tap_beyond *look, double a, double b)
{
    double error = fabs(a - b), size = fabs(b);
    if (!(error > 0)) { /* equal, or not finite: those are counted elsewhere */
        look->bins[0]++;
        return;
    }
    double allowed = look->unit * (size + look->rms), ratio = allowed > 0 ? error / allowed : (double)INFINITY;
    if (!isfinite(error))
        return;
    look->ratio = fmax(look->ratio, ratio);
    look->beyond += look->rule ? !tap__rule_allows(look->rule, error, size) : ratio > look->factor;
    look->bins[bin_of(error / look->largest)]++;
}

void tap__beyond_next(tap_beyond *look, const void *a, const void *b, int64_t elements)
{
    double x[TAP_PAIR_BLOCK], y[TAP_PAIR_BLOCK];
    const char *left = a, *right = b;
    for (size_t values = (size_t)elements * look->parts; values > 0;) {
        size_t count = values < TAP_PAIR_BLOCK ? values : TAP_PAIR_BLOCK;
        tap__block_decode(look->dtype[0], left, count, x);
        tap__block_decode(look->dtype[1], right, count, y);
        for (size_t i = 0; i < count; i++)
            pair_look(look, x[i], y[i]);
        left += count / look->dtype[0]->values * look->dtype[0]->bytes;
        right += count / look->dtype[1]->values * look->dtype[1]->bytes;
        look->count += count;
        values -= count;
    }
}

void tap__beyond_join(tap_beyond *look, const tap_beyond *more)
{
    look->count += more->count;
    look->beyond += more->beyond;
    look->ratio = fmax(look->ratio, more->ratio);
    for (int i = 0; i < TAP_ERROR_BINS; i++)
        look->bins[i] += more->bins[i];
}

double tap__beyond_percentile(const tap_beyond *look, int percent)
{
    uint64_t larger = 0, left = 100 - (uint64_t)percent;
    for (int i = 1; i < TAP_ERROR_BINS; i++) {
        larger += look->bins[i];
        /* larger > count * left / 100, in whole numbers: 10 * (1 - 0.9) is less than 1 */
        if (larger > look->count / 100 * left + look->count % 100 * left / 100)
            return look->largest * exp2(-(i - 1) / 4.0);
    }
    return 0;
}
