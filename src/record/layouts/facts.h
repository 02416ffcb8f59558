/* facts.h - what a layout's list says of a value (tap_facts, and the statistics of its record) held against the bytes of
 * its file. */
#ifndef TAP_RECORD_FACTS_H
#define TAP_RECORD_FACTS_H

#include "record/layouts/layout.h"

/* *why is NULL when they agree, else what does not. Statistics agree within what rounding to the dtype and adding up in
 * float32 may change, so that files of mindstudio-probe itself pass. */
tap_status tap__facts_check(const tap_record *record, const tap_facts *facts, const tap_tensor *tensor,
                            const char **why, tap_error *err);

#endif
