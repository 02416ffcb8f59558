/* spans.h - the values of a pair of records, compared in spans of some megabytes by several threads. */
#ifndef TAP_COMPARE_SPANS_H
#define TAP_COMPARE_SPANS_H

#include "compare/difference.h"
#include "compare/sidebytes.h"
#include "compare/tolerance.h"

/* A pair whose bytes are open, and what the spans found. */
typedef struct tap_spanned {
    tap_sidebytes *side[2];
    bool exact;                /* also: are the bytes the same? */
    tap_difference difference; /* of all spans */
    int64_t first_bit;         /* exact: the first element with other bytes, -1: none */
    uint64_t other_bits;
    unsigned char element[2][16]; /* exact: that element */
    bool look;                 /* wanted: the second look, as `beyond` was set up */
    tap_beyond beyond;
    tap_status status;
    tap_error err;             /* when a span could not be read */
    struct tap_span *spans;    /* private */
    size_t span_count;
} tap_spanned;

/* Compares all pairs; those that cannot be read have a status. Fails only without memory. */
tap_status tap__spans_compare(tap_spanned *const *pairs, size_t count, int threads, tap_error *err);
/* The second look at those that want it. */
tap_status tap__spans_look(tap_spanned *const *pairs, size_t count, int threads, tap_error *err);

#endif
