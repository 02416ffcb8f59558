/* segment.h - the segment files of one attempt: their header, and writing them. Where bytes go, nothing about what they
 * mean. */
#ifndef TAP_RECORD_SEGMENT_H
#define TAP_RECORD_SEGMENT_H

#include "record/native/attempt.h"

/* <dir>/attempt<A>-<NNNNNN>.tap: this header, zeros to first_entry, then entries back to back. The file may end
 * anywhere after a crash; what is whole before that is valid. */
#define TAP_SEGMENT_MAGIC 0x31474553504154ull /* "TAPSEG1" */
typedef struct tap_segment_header {
    uint64_t magic;
    uint32_t version;        /* 1 */
    uint32_t header_bytes;   /* 4096 */
    uint64_t first_entry;    /* offset of the first entry, 4096..8191 */
    uint64_t first_seq;      /* its seq */
    uint32_t segment;        /* number, from 0 */
    int32_t rank, attempt, child, pid, world_size;
    uint64_t started_ns;
    char host[64];
    uint64_t reserved[8];
    uint64_t header_hash;    /* tap_hash_bytes of all before it */
} tap_segment_header;
_Static_assert(sizeof(tap_segment_header) <= TAP_PAGE, "a segment header fits one page");

/* Is it the header of a segment? */
bool tap__segment_header_ok(const tap_segment_header *header);

typedef struct tap_segment {
    const tap_attempt_files *files;
    uint32_t number;
    int fd;          /* buffered; holds the flock that says "a writer is at work" */
    int direct;      /* the same file with O_DIRECT, -1 where that is not to be had */
} tap_segment;

#define TAP_SEGMENT_CLOSED {NULL, 0, -1, -1}

/* Makes segment `header->segment`, writes its header (sealing it) and takes the lock. A file that is there already,
 * left by a writer that died before it could say so, is taken over. */
tap_status tap__segment_create(tap_segment *segment, const tap_attempt_files *files, tap_segment_header *header,
                               tap_error *err);
/* Opens one that exists, to go on writing it; takes no lock. */
tap_status tap__segment_reopen(tap_segment *segment, const tap_attempt_files *files, uint32_t number, tap_error *err);
/* Tells readers that a writer is at work. One who is just asking has the lock for a moment: waits for it, not long. */
void tap__segment_lock(tap_segment *segment);
/* Writes len bytes at offset: whole pages of large writes go past the page cache when bytes and offset are aligned
 * alike. Returns 0 or an errno. */
int tap__segment_write(tap_segment *segment, const void *bytes, uint64_t len, uint64_t offset);
/* Takes back what was written behind `end`. */
void tap__segment_cut(tap_segment *segment, uint64_t end);
int tap__segment_sync(tap_segment *segment);
/* Makes the disk keep that there is such a file. */
void tap__segment_sync_name(const tap_segment *segment);
void tap__segment_close(tap_segment *segment);

#endif
