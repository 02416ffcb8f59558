/* sink.h - where the entries of a ring go. There are two sinks: the segment log of our own recordings
 * (native/seglog.h) and the files of other tools' layouts (layouts/filesink.h). The writer (drain/writer.c) is the one
 * caller, from one thread, and knows nothing of files:
 *
 *     open      goes on where the ring says that the last writer stopped
 *     take      the committed entry or piece at the tail; the tail moves behind it, its bytes stay the ring's
 *     skip      a range at the tail that nobody committed or that is damaged; the tail moves behind it
 *     publish   when `due` and when nothing more is there: the bytes are in files, producers get their space back
 *     flush     somebody waits for everything that was taken
 *     idle      between two looks at the ring
 *     finish    the recording is over
 *     close     lets go; without a finish before it another writer will go on
 *
 * A sink never fails after open: what it cannot keep becomes an entry, or a line of a journal, that says so, and
 * tap__ring_report tells it. */
#ifndef TAP_RECORD_SINK_H
#define TAP_RECORD_SINK_H

#include "base/dir.h"
#include "record/ring/ring.h"

typedef struct tap_sink tap_sink;

typedef struct tap_sink_type {
    /* The sink stays *out's until close; the ring and root, the recording's directory, are the caller's and outlive
     * it. */
    tap_status (*open)(tap_ring *ring, tap_dir *root, tap_sink **out, tap_error *err);
    /* The first sequence number and position that were not taken. */
    void (*tail)(const tap_sink *sink, uint64_t *seq, uint64_t *pos);
    /* desc: a copy of the tail's, committed; its range begins at the tail, lies within the ring and has room for an entry.
     * What is in the range may still be anything, and may change: a damaged program writes over it. See look.h. */
    void (*take)(tap_sink *sink, const tap_ring_desc *desc);
    /* Gives up everything from the tail to (seq_end, pos_end), which has room for an entry. */
    void (*skip)(tap_sink *sink, uint64_t seq_end, uint64_t pos_end);
    /* Is enough waiting that it should be published? */
    bool (*due)(const tap_sink *sink);
    void (*publish)(tap_sink *sink);
    void (*flush)(tap_sink *sink);
    void (*idle)(tap_sink *sink, uint64_t now_ns);
    /* Publishes, and ends the files. ended: "closed" or "killed". */
    void (*finish)(tap_sink *sink, const char *ended);
    /* Frees sink. */
    void (*close)(tap_sink *sink);
} tap_sink_type;

/* What every sink begins with. */
struct tap_sink {
    const tap_sink_type *type;
    tap_ring *ring;
};

#endif
