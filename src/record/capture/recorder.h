/* recorder.h - the producer's side: what tap_recorder is, shared by recorder.c (life) and the capture path (job.h). */
#ifndef TAP_RECORD_RECORDER_H
#define TAP_RECORD_RECORDER_H

#include "base/match.h"
#include "record/native/attempt.h"
#include "record/ring/journal.h"
#include "record/layouts/naming.h"
#include "record/ring/ring.h"
#include "record/capture/sites.h"

/* Everything that belongs to one process. A forked child makes its own and leaves its parent's alone. */
typedef struct tap_session {
    const tap_layout *layout;
    tap_namer *namer;          /* layouts of other tools */
    tap_dir *root;             /* the recorder's */
    tap_dir *dir;              /* where its files go: the recorder's, or one below that of a forked child */
    int32_t child;             /* pid of a forked child, else 0 */
    tap_attempt_files files;   /* native */
    char who[64];              /* layouts of other tools: the journals' directory, */
    tap_journal *journal;      /* our own in it, until the recording ended, */
    uint64_t unsettled;        /* and the losses that it names and its file not yet; under lock */
    bool has_ring;
    tap_ring ring;
    tap_sites sites;
    pthread_mutex_t lock;      /* starting a writer; the journal */
    char *command;             /* NULL: a thread is the writer */
    _Atomic bool has_thread;
    pthread_t thread;
    _Atomic bool thread_failed;    /* it could not start */
    tap_tally *tally;              /* the ring's, or where there is none a page of its own */
    _Atomic uint64_t told;         /* of what was dropped: by LOST entries in the ring */
    _Atomic uint64_t checked_ns;   /* when the writer's life was last looked at */
    uint64_t started_ns, start_progress, start_pause_ns; /* of the newest writer; doubles while they die at once */
    _Atomic uint64_t put;          /* files put in place, where there is no ring to count saves in */
    _Atomic uint32_t errors_seen;
    _Atomic uint64_t stalled_at;   /* progress at which the writer was given up on, + 1; 0: all is well */
} tap_session;

struct tap_recorder {
    tap_options options;           /* strings owned */
    char *strings;                 /* where they live */
    tap_dir *dir;                  /* options.dir, opened once: for this process and for its forked children */
    tap_ranges steps;
    _Atomic(tap_session *) session;
    tap_tally *parent;             /* in a forked child without a session: where its losses count */
    _Atomic uint32_t generation;   /* of forks, of the process the session belongs to */
    _Atomic bool active;           /* a save is to do anything: not paused, frozen or filtered by step or rank */
    _Atomic bool paused, bad_seen;
    _Atomic int64_t frozen_after;  /* the last step to record; INT64_MAX: not frozen */
    bool rank_wanted;
    _Atomic int64_t step;
    _Atomic uint64_t filtered;     /* by the rank, step and enabled filters: not in the ring's count */
    _Atomic uint32_t opening;      /* the generation whose session was begun by some thread */
    _Atomic bool ended;            /* closed, at exit without being freed: other threads may still save */
    pthread_mutex_t step_lock;     /* a step ends in the ring and here before the next one does */
    pthread_mutex_t error_lock;
    tap_error error;
    char first_bad[700];           /* with bad_seen: which tensor it was, where and when */
    uint32_t told;                 /* TOLD_* bits: what was said once */
    tap_recorder *next;            /* in the list of open recorders */
};

enum { TAP_TOLD_STALL = 1, TAP_TOLD_DROP = 2, TAP_TOLD_WRITER = 4, TAP_TOLD_FILE = 16, TAP_TOLD_RESTART = 32,
       TAP_TOLD_STEP = 64, TAP_TOLD_NAME = 128, TAP_TOLD_MOVED = 256, TAP_TOLD_FLUSH = 512 };

/* The session of this process, made anew in a forked child. NULL: it could not be (said once). */
tap_session *tap__recorder_session(tap_recorder *rec);
/* Would step be recorded? */
bool tap__recorder_wants_step(const tap_recorder *rec, int64_t step);
/* Remembers err and logs it, once per bit of `told` (0: always). */
void tap__recorder_tell(tap_recorder *rec, uint32_t told, const tap_error *err);
/* Passes on what the writer had to say. */
void tap__recorder_hear(tap_recorder *rec, tap_session *session);
/* Starts a new writer when the old one is gone. Cheap when called often. */
void tap__recorder_mind_writer(tap_recorder *rec, tap_session *session, bool now);

/* reserve.c: was the writer given up on, and has it done nothing since? Nothing but a flush or a close that was asked for
 * waits for it then. The session has a ring. */
bool tap__session_is_stuck(const tap_session *session);
/* outcome.c. Is what was recorded where it was recorded to? Said once when it moved: the files go with it. Never asked when
 * the writer is stuck: the file system may be, and asking it anything could take for ever. */
tap_status tap__session_place(tap_recorder *rec, tap_session *session, tap_error *err);
/* Did the disk keep what it took? The session of these has a ring. */
tap_status tap__session_synced(tap_session *session, tap_error *err);
/* Was the recording ended before it was closed? Who takes this process for dead does that. */
bool tap__session_ended_early(const tap_session *session);
/* TAP_E_LOST where it was, or ended before `want`: what comes after that is in no file. */
tap_status tap__session_ended(tap_session *session, bool early, uint64_t want, tap_error *err);
/* save.c: tap_recorder_flush on behalf of a save or a step: not waiting for a writer that is stuck. */
tap_status tap__recorder_keep(tap_recorder *rec);

/* reserve.c: in a forked child, in its only thread: what was remembered of the parent's is not true any more. */
void tap__save_forked(void);
/* losses.c: LOST entries for what was dropped since the last time. */
void tap__save_losses(tap_recorder *rec, tap_session *session);
/* loss_journal.c: layouts of other tools. Begins the journal of a session; tally: a name that nobody has. */
tap_status tap__losses_begin(tap_session *session, const char *tally, int32_t rank, tap_error *err);
/* Lists what was dropped since the last time, of one site or (NULL) of all. */
void tap__losses_journal(tap_recorder *rec, tap_session *session, tap_site *site);
/* Lists what is left and closes the journal, which goes when it is empty. */
void tap__losses_end(tap_session *session);
void tap__losses_abandon(tap_session *session);

/* losses.c: an entry without name or payload (STEP). */
tap_status tap__save_mark(tap_recorder *rec, tap_session *session, tap_entry_type type, int64_t step);

#endif
