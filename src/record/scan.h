/* scan.h - walks the entries of one attempt's segments in order, as they are on disk, whatever happened to them. */
#ifndef TAP_RECORD_SCAN_H
#define TAP_RECORD_SCAN_H

#include "record/attempt.h"

typedef struct tap_scan {
    const tap_attempt_files *files;
    uint32_t segment, end_segment; /* current, one past the last known (0: go on while files exist) */
    uint64_t offset;               /* of the next entry in the current segment */
    uint64_t next_seq;
    int fd;
    const uint8_t *map;            /* of the current segment */
    uint64_t map_bytes;
    bool ended;                    /* an END entry was seen */
    uint64_t skipped_bytes;        /* that were not readable as entries */
    bool segment_missing;          /* a segment between the first and the last is not there */
} tap_scan;

/* Starts at the first segment that exists. */
tap_status tap__scan_open(tap_scan *scan, const tap_attempt_files *files, const tap_attempt_info *info, tap_error *err);
/* The next whole entry and where it lies; TAP_END when there is none (yet: call again on a growing attempt).
 * Damaged bytes are stepped over to the next entry and counted. The entry is valid until the next call. */
tap_status tap__scan_next(tap_scan *scan, const tap_entry **entry, uint32_t *segment, uint64_t *offset,
                          bool *payload_cut, tap_error *err);
void tap__scan_close(tap_scan *scan);

#endif
