/* tensortap_compare.h - two tensors, or two recordings, side by side. */
#ifndef TENSORTAP_TENSORTAP_COMPARE_H
#define TENSORTAP_TENSORTAP_COMPARE_H

#include "tensortap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------- two tensors */

/* A place and what lies there on each side. */
typedef struct tap_place {
    int64_t index;         /* of the value, row-major; -1: there is no such place */
    tap_number a, b;       /* by the dtype of each side, as in tap_stats; the real part of a complex value */
    double a_imag, b_imag;
} tap_place;

/* What tells two tensors of one shape apart. Index 0 of an array of two is A, 1 is B.
 * Values are compared as float64; where both sides are integers, exactly. NaN equals NaN, 0 equals -0.
 * Errors, norms and cosine are over the pairs of finite values. Complex: errors are magnitudes of the difference. */
typedef struct tap_difference {
    size_t size;
    uint64_t count;                         /* pairs */
    uint64_t different;                     /* pairs that are not equal */
    uint64_t unlike;                        /* of these: NaN or an infinity on one side, something else on the other */
    uint64_t nan[2], pos_inf[2], neg_inf[2];
    tap_place first;                        /* that is not equal */
    tap_place worst;                        /* the first unlike one, else the largest absolute error */
    double max_abs, mean_abs;               /* |a - b| */
    double max_rel, mean_rel;               /* |a - b| / |b|; infinite where only b is 0, which the mean takes as 0 */
    double max_ulp;                         /* |a - b| / distance of floats at b in the coarser dtype; integers: max_abs */
    double norm;                            /* L2 of a - b */
    double norms[2];                        /* L2 of each side */
    double cosine;                          /* 1 where both norms are 0, NaN where one is */
} tap_difference;
TAP_INIT_USUAL(tap_difference)

/* One pass over both. Any strides, any two dtypes; float4_e2m1fn_x2 only with itself. TAP_E_INVALID: other shapes. */
TAP_API tap_status tap_tensor_compare(const tap_tensor *a, const tap_tensor *b, tap_difference *out, tap_error *err);

/* ------------------------------------------------------------------------------------------------- two recordings */

/* How a record of A stands to its record of B. X(id, value, name): names and values are stable, they are in files. */
#define TAP_MATCH_MAP(X)                                                                                             \
    X(EQUAL, 0, "equal")                                                                                             \
    X(ROUNDING, 1, "rounding")         /* within tolerance */                                                        \
    X(NOISE, 2, "noise")               /* no more than A differs from its repetitions */                             \
    X(DRIFT, 3, "drift")               /* beyond tolerance, grown from what was different before */                  \
    X(WRONG, 4, "wrong")               /* beyond tolerance, and much more so than anything before */                 \
    X(NONFINITE, 5, "nonfinite")       /* NaN or an infinity on one side only */                                     \
    X(INCOMPARABLE, 6, "incomparable") /* other shapes, or nothing was kept that could be compared */                \
    X(ONLY_A, 7, "only_a")                                                                                           \
    X(ONLY_B, 8, "only_b")

typedef enum tap_match_class {
#define X(name, value, text) TAP_MATCH_##name = value,
    TAP_MATCH_MAP(X)
#undef X
        TAP_MATCH_COUNT
} tap_match_class;
TAP_API const char *tap_match_class_name(tap_match_class what); /* "equal" ... */

/* By what a match was judged. */
typedef enum tap_evidence {
    TAP_EVIDENCE_NONE = 0,
    TAP_EVIDENCE_VALUES = 1, /* every value was compared */
    TAP_EVIDENCE_HASH = 2,   /* hash, dtype and shape: nothing was read */
    TAP_EVIDENCE_STATS = 3   /* statistics, since the bytes were not kept */
} tap_evidence;
TAP_API const char *tap_evidence_name(tap_evidence evidence); /* "none", "values", "hash", "stats" */

/* Does a recording tell what happened before what? */
typedef enum tap_order {
    TAP_ORDER_NONE = 0,    /* its files say nothing about it */
    TAP_ORDER_FORWARD = 1, /* gradients stand beside the value they belong to */
    TAP_ORDER_EXACT = 2
} tap_order;

typedef struct tap_compare_options {
    size_t size;
    const char *name, *ranks; /* which records, as in tap_query */
    const char *steps;        /* of A */
    tap_kind kind;            /* default TAP_KIND_ANY */
    int64_t shift;            /* step n of A stands beside step n + shift of B */
    const char *const *rules; /* "attn.*: rel<=1e-3 or abs<=1e-5", for each value; the first whose glob matches the name
                               * takes the place of the tolerance */
    size_t rule_count;
    const char *const *noise; /* recordings of the same program as A, whose differences from A are noise */
    size_t noise_count;
    const char *allow;        /* globs of names that may differ, or be missing on one side */
    const char *precision;    /* what operations computed in, if coarser than what was recorded: "tf32" or a dtype */
    double factor;            /* how many times its rounding a value may be off; default 4 */
    bool exact;               /* the bytes must be the same */
    int threads;              /* that read and compare bytes; 0: one a processor, at most 8 */
    const char *output;       /* keep the result in this file; NULL: in a temporary one */
    bool (*on_progress)(void *user, uint64_t done, uint64_t total); /* records; return false to stop */
    void *user;
} tap_compare_options;
TAP_INIT_USUAL(tap_compare_options)

/* The result: an SQLite file with one row a match, and what follows from them. One thread at a time. */
typedef struct tap_comparison tap_comparison;

/* Compares recording b with recording a. TAP_OK whatever the outcome; tap_comparison_verdict tells it.
 * TAP_E_TIMEOUT: on_progress said stop. */
TAP_API tap_status tap_compare_run(const char *a, const char *b, const tap_compare_options *options,
                                   tap_comparison **out, tap_error *err);
/* Reads a result that was kept. */
TAP_API tap_status tap_comparison_open(const char *path, tap_comparison **out, tap_error *err);
TAP_API void tap_comparison_close(tap_comparison *comparison);

typedef struct tap_comparison_summary {
    size_t size;
    const char *path[2], *layout[2]; /* valid until the comparison is closed */
    tap_order order;                 /* of the side that has the better one */
    uint64_t records[2];
    uint64_t classes[TAP_MATCH_COUNT];
    uint64_t allowed;                /* of the bad ones (drift and after), those that may be so */
    uint64_t by_stats;               /* matches of which only statistics were compared */
    uint64_t unread;                 /* matches whose bytes could not be read; they are incomparable */
    uint64_t bytes;                  /* read of both sides */
    double factor;
} tap_comparison_summary;
TAP_INIT(tap_comparison_summary)
TAP_API tap_status tap_comparison_summarise(tap_comparison *comparison, tap_comparison_summary *out, tap_error *err);

/* One side of a match. Strings are "" when not known. */
typedef struct tap_match_side {
    bool there;
    const char *name;
    int64_t step;
    int32_t attempt;
    uint64_t seq;
    tap_value_type value_type;
    tap_dtype dtype;
    int32_t ndim;
    int64_t shape[TAP_MAX_NDIM];
    bool has_stats, has_hash;
    tap_stats stats;
    uint64_t hash;
    const char *source, *module, *graph, *node, *device, *placements;
    int32_t line;
    unsigned flags;      /* tap_save_bits */
    const char *file;    /* relative to the recording */
} tap_match_side;

/* Pointers are valid until the next call on the same cursor (or comparison, where that gave it). */
typedef struct tap_match {
    size_t size;
    int64_t id;
    tap_match_class what;
    tap_evidence evidence;
    bool allowed;
    bool ruled;          /* judged by a rule, not by rounding */
    bool recomputed;
    int32_t rank;
    uint32_t call;
    tap_kind kind;
    uint64_t replay;
    const char *path;    /* inside a nested value */
    tap_match_side side[2];
    double unit;         /* rounding of this tensor, relative to |b| + rms(b); 0: must be equal */
    double ratio;        /* the largest |a - b| / (unit * (|b| + rms(b))); NaN: not known */
    uint64_t beyond;     /* values beyond tolerance */
    double percentile[3];/* 50, 90, 99 % of the values have an absolute error of at most this, up to a factor of 1.2 */
    bool has_difference; /* values were compared */
    tap_difference difference;
    char bits[2][40];    /* exact: the first different element as hexadecimal digits, most significant first */
    const char *reason;  /* for people, in the language the comparison ran in; "" where the numbers say it */
} tap_match;
TAP_INIT_USUAL(tap_match)

typedef struct tap_match_query {
    size_t size;
    unsigned classes;    /* bits 1 << tap_match_class; 0: all */
    const char *name;    /* globs, or NULL */
} tap_match_query;
TAP_INIT(tap_match_query)

typedef struct tap_match_cursor tap_match_cursor;
/* Matches in causal order of the side that has one, else as they were found. */
TAP_API tap_status tap_comparison_query(tap_comparison *comparison, const tap_match_query *query, tap_match_cursor **out,
                                        tap_error *err);
TAP_API tap_status tap_match_cursor_next(tap_match_cursor *cursor, tap_match *out, tap_error *err); /* TAP_END */
TAP_API void tap_match_cursor_close(tap_match_cursor *cursor);
/* One match by its id. */
TAP_API tap_status tap_comparison_match(tap_comparison *comparison, int64_t id, tap_match *out, tap_error *err);

/* What can be said of the first divergence. */
typedef enum tap_blame {
    TAP_BLAME_NONE = 0,      /* nothing diverges */
    TAP_BLAME_UNORDERED = 1, /* the recordings do not tell what came first: this is the worst */
    TAP_BLAME_BETWEEN = 2,   /* between `before`, which agrees, and this */
    TAP_BLAME_OPERATION = 3, /* its recorded inputs agree: the operation is wrong */
    TAP_BLAME_INPUT = 4,     /* its input `before` differs already */
    TAP_BLAME_FIRST = 5      /* nothing was recorded before it */
} tap_blame;

typedef struct tap_verdict {
    size_t size;
    bool differs;            /* something is bad and not allowed, or on one side only */
    tap_blame blame;
    int64_t first;           /* id of the first divergence; -1: there is none */
    int64_t before;          /* id of the last match before it that agrees, or of the input that differs; -1: none */
    uint32_t inputs, inputs_agree, weights, weights_agree; /* recorded ones of the operation */
    const char *text;        /* all of it in one line, in the current language; valid until the next call */
} tap_verdict;
TAP_INIT_USUAL(tap_verdict)
TAP_API tap_status tap_comparison_verdict(tap_comparison *comparison, tap_verdict *out, tap_error *err);

#ifdef __cplusplus
}
#endif
#endif
