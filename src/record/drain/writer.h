/* writer.h - the writer: what drains a ring, in a process of its own or, where none can be started, in a thread. */
#ifndef TAP_RECORD_WRITER_H
#define TAP_RECORD_WRITER_H

#include "record/ring/ring.h"

typedef enum tap_writer_mode {
    TAP_WRITER_PROCESS, /* its own process: leaves when its producer is gone */
    TAP_WRITER_THREAD,  /* inside the producer: leaves when the ring is closed */
    TAP_WRITER_RECOVER  /* the producer is known to be dead: drains a ring file and leaves */
} tap_writer_mode;

/* Drains the ring into files below root until its producer ends, then finishes them. The caller holds the ring's writer
 * lock. */
tap_status tap__writer_run(tap_ring *ring, tap_dir *root, tap_writer_mode mode, tap_error *err);

/* Starts `command __writer RING DIRECTORY TALLY`, three descriptors, detached from this process: own session, no
 * descriptors of ours, default signals. */
tap_status tap__writer_spawn(const tap_ring *ring, tap_dir *root, const char *command, tap_error *err);
/* Path of the tensortap command: `given`, TENSORTAP_WRITER, beside this library, PATH. tap__free by the caller; NULL. */
char *tap__writer_find(const char *given);

#endif
