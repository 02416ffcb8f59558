/* decimal.h - floats as decimal text the way numpy writes them: the fewest digits that read back as the same value of
 * their own type, or that value rounded exactly where fewer are asked for. */
#ifndef TAP_TENSOR_DECIMAL_H
#define TAP_TENSOR_DECIMAL_H

#include <stdbool.h>

typedef enum tap_width { TAP_WIDTH_HALF, TAP_WIDTH_SINGLE, TAP_WIDTH_DOUBLE } tap_width;

/* What becomes of zeros at the end of the fraction. */
typedef enum tap_trim {
    TAP_TRIM_POINT,    /* "1." */
    TAP_TRIM_ONE_ZERO, /* "1.0" */
    TAP_TRIM_ALL,      /* "1" */
    TAP_TRIM_NONE      /* kept */
} tap_trim;

typedef struct tap_decimal {
    tap_width width;
    int precision;  /* digits after the point at most; -1: as many as needed */
    tap_trim trim;
    int fraction;   /* digits after the point at least, with TAP_TRIM_NONE: the exact value's, beyond the fewest */
    bool plus;      /* a sign before positive values too */
    int exponent;   /* digits of the exponent at least */
    int pad_left;   /* width of sign and whole part */
    int pad_right;  /* width of the fraction */
} tap_decimal;

/* value is finite. text holds TAP_DECIMAL_MAX bytes; returns the length. The first is for values below 1e17. */
enum { TAP_DECIMAL_MAX = 160 };
int tap__decimal_positional(char *text, double value, const tap_decimal *how);
int tap__decimal_scientific(char *text, double value, const tap_decimal *how);

#endif
