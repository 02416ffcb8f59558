/* pairing.h - finds for each record of A its record of B, in bounded memory. */
#ifndef TAP_COMPARE_PAIRING_H
#define TAP_COMPARE_PAIRING_H

#include "compare/held.h"

/* Takes both records, of which one may be NULL; anything but TAP_OK ends the pairing and is returned. */
typedef tap_status (*tap_pair_found_fn)(void *user, tap_held *a, tap_held *b, tap_error *err);

/* Reads both cursors to their ends; shift: what is added to the steps of A. Records of one key that come more than once
 * are paired in their order. read counts the records of each side. */
tap_status tap__pairing_run(tap_cursor *const cursors[2], int64_t shift, tap_pair_found_fn found, void *user,
                            uint64_t read[2], tap_error *err);

#endif
