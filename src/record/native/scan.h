/* scan.h - walks the entries of one attempt's segments in order, as they are on disk, whatever happened to them.
 * Reads with pread, never through a mapping: a file that is cut or a disk that fails must not raise SIGBUS. */
#ifndef TAP_RECORD_SCAN_H
#define TAP_RECORD_SCAN_H

#include "record/native/attempt.h"

typedef struct tap_scan {
    const tap_attempt_files *files;
    uint32_t segment, end_segment; /* current; one past the last known (0: go on while files exist) */
    uint64_t offset;               /* of the next entry in the current segment */
    uint64_t next_seq;
    int fd;                        /* of the current segment; -1: none open */
    uint64_t file_bytes;           /* its size when last looked at */
    bool growing;                  /* a writer may add: an entry whose payload is cut is not there yet. Set by the
                                    * caller; cleared, the scan goes on and gives such an entry as cut */
    bool ended;                    /* an END entry was seen */
    bool counted;                  /* there is no end, but a tally is left */
    uint64_t missing;              /* saves that returned and are in no file: by the END, or by the tally so far */
    uint64_t skipped_bytes;        /* that were not readable as entries, in all */
    bool segment_missing;          /* a segment between the first and the last is not there */

    /* What lay between the entry given before and the one given now (or the end). */
    uint64_t gap_entries;          /* entries that are not there, by seq */
    uint64_t damage_bytes;         /* not readable as entries */
    uint64_t damage_offset;
    uint32_t damage_segment;
    bool damage_is_tail;           /* and nothing came after it */
    uint32_t missing_first, missing_segments; /* files that are not there */
    bool bad_header;               /* the segment's own header is damaged or of another attempt */

    bool opened;                   /* private from here */
    uint64_t tally_seq;            /* the tally has accounted for what lies before */
    bool any_start;                /* nothing says which seq comes first */
    uint64_t first_seq;            /* of the segment */
    uint8_t *window;
    size_t window_cap, window_bytes;
    uint64_t window_offset;
} tap_scan;

/* Starts at the first segment that exists. info may be NULL; when it has ended its number of segments is believed. */
tap_status tap__scan_open(tap_scan *scan, const tap_attempt_files *files, const tap_attempt_info *info, tap_error *err);
/* The next whole entry and where it lies; TAP_END when there is none (yet: call again on a growing attempt).
 * Damaged bytes are stepped over to the next entry and counted. The entry and its meta block are in memory until the
 * next call; its payload is not: read it from scan->fd. */
tap_status tap__scan_next(tap_scan *scan, const tap_entry **entry, uint32_t *segment, uint64_t *offset,
                          bool *payload_cut, tap_error *err);
void tap__scan_close(tap_scan *scan);

#endif
