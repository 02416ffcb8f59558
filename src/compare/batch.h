/* batch.h - judges matches, some hundred at a time: what must be read is read and compared by several threads. */
#ifndef TAP_COMPARE_BATCH_H
#define TAP_COMPARE_BATCH_H

#include "compare/held.h"
#include "compare/matchfile.h"
#include "compare/tolerance.h"

/* What judging needs to know; lent. */
typedef struct tap_batch_setup {
    tap_run *run[2];
    int lead;               /* 0 or 1: whose order the places are of */
    const tap_rules *rules;
    const char *allow;
    double factor, precision;
    bool exact;
    int threads;
    tap_matchfile *noise;   /* results of A against its repetitions */
    size_t noise_count;
    tap_matchfile *out;
} tap_batch_setup;

typedef struct tap_batch_counts {
    uint64_t classes[TAP_MATCH_COUNT], by_stats, unread, bytes;
} tap_batch_counts;

typedef struct tap_batch tap_batch;
tap_status tap__batch_new(const tap_batch_setup *setup, tap_batch **out, tap_error *err);
/* Takes both records, of which one may be NULL, in any case. */
tap_status tap__batch_add(tap_batch *batch, tap_held *a, tap_held *b, tap_error *err);
/* Judges what is left. */
tap_status tap__batch_flush(tap_batch *batch, tap_error *err);
const tap_batch_counts *tap__batch_counts(const tap_batch *batch);
void tap__batch_free(tap_batch *batch);

#endif
