/* seglog.h - the sink of our own recordings: entries of the ring into segment files, index and loss journal.
 *
 * Ring memory is written as it is: an entry at position p of the stream lies at file offset p + base of the current
 * segment, and base is always a whole number of pages. Where the two part (a new segment, a large tensor's extent, bytes
 * left out because the disk is full) base changes, and a gap in the file is filled with a SKIP entry. */
#ifndef TAP_RECORD_SEGLOG_H
#define TAP_RECORD_SEGLOG_H

#include "record/ring/sink.h"

/* Goes by the ring's configuration (rank, attempt and child) and by its checkpoint. */
extern const tap_sink_type tap__seglog_sink;

#endif
