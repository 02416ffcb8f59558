/* source_native.h - an attempt of our own as a source, for source_native.c and verify_native.c. */
#ifndef TAP_RECORD_SOURCE_NATIVE_H
#define TAP_RECORD_SOURCE_NATIVE_H

#include "record/native/scan.h"
#include "record/read/verify.h"

typedef struct tap_native {
    tap_source source;
    tap_attempt_files files;
    tap_status info_status;  /* TAP_OK, or why there is no description */
    tap_scan scan;           /* what fills an index in memory */
    bool scanning;
} tap_native;

/* Reads description and liveness again. */
void tap__native_look(tap_native *native);
tap_status tap__verify_native(tap_verifier *v);
/* Reports attempts that ought to be there and are not. */
tap_status tap__verify_lineup(tap_verifier *v);

#endif
