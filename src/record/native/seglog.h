/* seglog.h - the writer's native side: entries of the ring into segment files, index and loss journal.
 *
 * Ring memory is written as it is: an entry at position p of the stream lies at file offset p + base of the current
 * segment, and base is always a whole number of pages. Where the two part (a new segment, a large tensor's extent, bytes
 * left out because the disk is full) base changes, and a gap in the file is filled with a SKIP entry. */
#ifndef TAP_RECORD_SEGLOG_H
#define TAP_RECORD_SEGLOG_H

#include "record/native/index.h"
#include "record/ring/journal.h"
#include "record/ring/ring.h"
#include "record/native/segment.h"

typedef struct tap_seglog {
    tap_ring *ring;
    tap_attempt_files files;
    tap_ring_checkpoint at;      /* where we are; copied to the ring at every publish */
    tap_segment segment;
    tap_segment extents[TAP_RING_BIG_SLOTS]; /* open for pieces of large tensors */
    tap_index *index;            /* NULL: given up or inherited; built from the segments at the end */
    tap_journal *journal;
    uint64_t span_pos;           /* entries from here to at.tail_pos wait to be written */
    uint64_t span_seq;
    int64_t newest_step;
    bool step_has_records;       /* last: the step under way counts as one of them */
    uint64_t free_bytes;         /* on the disk when last asked, less what was written since */
    uint64_t free_asked_ns;
    uint64_t reserve;            /* the part of free_bytes that is not ours */
    uint32_t *marks;             /* last: the segments that steps with records started in, ascending */
    size_t mark_count;
} tap_seglog;

/* Starts a log, or goes on where the ring's checkpoint says the last writer stopped. */
tap_status tap__seglog_open(tap_seglog *log, tap_ring *ring, tap_error *err);
/* Takes the committed entry or piece at the tail. Its bytes stay the ring's until tap__seglog_publish. */
void tap__seglog_take(tap_seglog *log, const tap_ring_desc *desc);
/* Takes a range that its dead owner never committed: what is known of it becomes a TORN entry. */
void tap__seglog_take_torn(tap_seglog *log, uint64_t seq_end, uint64_t pos_end);
/* Writes what was taken and gives its space back to the producers. */
void tap__seglog_publish(tap_seglog *log);
/* Is enough waiting that it should be written? */
bool tap__seglog_due(const tap_seglog *log);
/* Makes the disk keep what was written; a failure is told and stays in the ring's sync_errno. */
void tap__seglog_sync(tap_seglog *log);
/* Asks the disk whether producers may send bytes again. */
void tap__seglog_check_space(tap_seglog *log, uint64_t now_ns);
/* Ends the log: END entry, index, attempt<A>.json. ended: "closed" or "killed". */
void tap__seglog_finish(tap_seglog *log, const char *ended);
/* Lets go of everything without ending it: another writer will go on. */
void tap__seglog_close(tap_seglog *log);

#endif
