/* verify.h - what the two kinds of sources share when they are verified: reporting, progress, the verdict. */
#ifndef TAP_RECORD_VERIFY_H
#define TAP_RECORD_VERIFY_H

#include "record/read/run.h"

enum { TAP_VERIFY_PIECE = 1 << 20 }; /* of a payload read at once; a multiple of 8 */

typedef struct tap_verifier {
    tap_run *run;
    tap_verify_options options;
    tap_verify_result result;
    bool any_loss;
    int32_t rank, attempt;       /* what problems are reported of */
    uint64_t done, said, total;  /* bytes: position, last reported, all */
    uint8_t *piece;              /* TAP_VERIFY_PIECE bytes */
    tap_error *err;
} tap_verifier;

/* Counts it and gives it to the caller, as one of v->rank and v->attempt. */
void tap__verify_report(tap_verifier *v, tap_problem problem);
/* Tells the caller's progress function; TAP_E_TIMEOUT: it wants to stop. */
tap_status tap__verify_go_on(tap_verifier *v, uint64_t done);

#endif
