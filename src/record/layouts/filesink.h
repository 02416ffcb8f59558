/* filesink.h - the writer's side of the seed layouts: files of single tensors that were left to the writer, and the
 * layout's collector (msprobe's debug.json). */
#ifndef TAP_RECORD_FILESINK_H
#define TAP_RECORD_FILESINK_H

#include "record/ring/journal.h"
#include "record/layouts/layout.h"
#include "record/ring/ring.h"

typedef struct tap_filesink {
    tap_ring *ring;
    const tap_layout *layout;
    tap_layout_options options;
    tap_collector *collector;
    tap_journal *journal;     /* made at the first loss */
    uint64_t tail_seq, tail_pos; /* taken; the ring keeps them until the collector's files hold them */
    uint64_t kept_seq, kept_pos; /* from here on the ring still has what was taken */
    uint64_t kept_ns;
    int hold;                    /* of the directory, see tap__run_hold */
    bool told;                   /* that the collector's files could not be written: once is enough */
} tap_filesink;

tap_status tap__filesink_open(tap_filesink *sink, tap_ring *ring, const tap_layout *layout, tap_error *err);
void tap__filesink_take(tap_filesink *sink, const tap_ring_desc *desc);
void tap__filesink_skip(tap_filesink *sink, uint64_t seq_end, uint64_t pos_end);
void tap__filesink_publish(tap_filesink *sink);
void tap__filesink_flush(tap_filesink *sink, bool force);
void tap__filesink_finish(tap_filesink *sink);
void tap__filesink_close(tap_filesink *sink);

#endif
