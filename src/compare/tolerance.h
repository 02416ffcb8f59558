/* tolerance.h - how far apart two values may be: by the rounding of their dtypes, or by a rule of the user's. */
#ifndef TAP_COMPARE_TOLERANCE_H
#define TAP_COMPARE_TOLERANCE_H

#include "tensortap/tensortap_compare.h"

/* "GLOB: rel<=X or abs<=Y" (or "and"). */
typedef struct tap_rule {
    char *glob;
    double rel, abs;  /* negative: not given */
    bool both;        /* "and" */
} tap_rule;

typedef struct tap_rules {
    tap_rule *items;
    size_t count;
} tap_rules;

tap_status tap__rules_parse(tap_rules *rules, const char *const *texts, size_t count, tap_error *err);
/* The first whose glob matches; NULL: none. */
const tap_rule *tap__rules_find(const tap_rules *rules, const char *name);
bool tap__rule_allows(const tap_rule *rule, double error, double size);
void tap__rules_free(tap_rules *rules);

/* Unit roundoff of "tf32" or a dtype; TAP_E_INVALID: neither. NULL: 0. */
tap_status tap__precision_parse(const char *text, double *roundoff, tap_error *err);

/* What two values may differ by rounding alone, relative to |b| + rms(b): the rounding of both results, and that of a sum
 * of `terms` products, which is kept in float32 where the dtype is narrower. roundoff: of the coarsest dtype involved. */
double tap__rounding_unit(double roundoff, int64_t terms);

/* The second look at a pair of tensors: which values are beyond tolerance, and how the errors are distributed. */
enum { TAP_ERROR_BINS = 258 };
typedef struct tap_beyond {
    const tap_dtype_info *dtype[2];
    size_t parts;              /* values of dtype in one element: 2 of a complex one */
    double unit, rms, factor;
    const tap_rule *rule;      /* NULL: unit and factor say what is too much */
    double largest;            /* error, known from the first look */
    uint64_t count, beyond;
    double ratio;
    uint64_t bins[TAP_ERROR_BINS]; /* 0: no error; i + 1: (2^(-(i+1)/4), 2^(-i/4)] of the largest */
} tap_beyond;
/* Complex elements are looked at part by part. */
void tap__beyond_begin(tap_beyond *look, tap_dtype a, tap_dtype b);
void tap__beyond_next(tap_beyond *look, const void *a, const void *b, int64_t elements);
void tap__beyond_join(tap_beyond *look, const tap_beyond *more);
/* The error that `percent` of the values do not exceed, up to a factor of 2^(1/4). */
double tap__beyond_percentile(const tap_beyond *look, int percent);

#endif
