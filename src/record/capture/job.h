/* job.h - a save in two halves. The first makes a place: the site of the name, filters, the numbers of step and call, a
 * range of the ring, and in it the entry begun, which says what was being written if this process dies. The second
 * says what lies there: statistics and hash, by whomever they were found, the seal, and the writer may take it. Between
 * the halves any time may pass, and the second may be another thread's, as for bytes that come from a device:
 *
 *     tap_job job;
 *     if (tap__job_begin(&job, rec, name, info, &status)) {      the first half: reserve.c
 *         tap__job_number(&job);
 *         job.leaf.tensor = tensor, ...;  job.payload = bytes;
 *         status = tap__job_reserve(&job);
 *     }
 *     fill job.room, or for a value larger than the ring         the second: commit.c
 *     tap__job_piece and tap__job_send in turns
 *     tap__job_commit(&job, &found);      or tap__job_abandon(&job, reason);
 *
 * What was reserved is committed or abandoned, once: the writer takes entries in order and waits for it. Until then the
 * job stays where it is, and so does what its leaf points to. A job belongs to one thread at a time. */
#ifndef TAP_RECORD_JOB_H
#define TAP_RECORD_JOB_H

#include "record/capture/recorder.h"

typedef struct tap_job {
    tap_recorder *rec;
    tap_session *session;
    tap_site *site;        /* NULL: a mark */
    tap_leaf leaf;
    const char *type_name;
    const char *file;      /* relative path of its file, layouts of other tools */
    tap_entry_type type;
    tap_record_state state;
    tap_reason reason;
    uint64_t count;        /* LOST */
    uint64_t lost_bytes;
    uint64_t more;         /* leaves that share the file of this one */
    uint64_t payload;      /* bytes to keep; 0 when there was no room for them */
    /* set by tap__job_reserve */
    tap_entry *entry;      /* in the ring, not of a value that streams: its entry is the writer's already */
    uint8_t *room;         /* payload bytes for row-major data; NULL: none are kept, or it streams */
    tap_ring_range range;
    bool wanted_payload;
    bool streams;          /* larger than the ring: it goes in pieces */
    bool complete;         /* streams: no piece was left out yet */
    int slot;              /* streams */
    uint64_t seq, sent;    /* streams: the number of its BIG entry; bytes that were sent */
} tap_job;

static inline bool tap__is_announcement(const tap_job *job)
{
    return job->leaf.flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE);
}

extern const tap_save_info tap__no_info; /* all as usual */

/* What is known about a value's bytes; statistics that were not asked for are left out of `what`. */
typedef struct tap_findings {
    unsigned what;         /* TAP_SCAN_* that are set */
    tap_stats stats;
    uint64_t hash;         /* of all row-major bytes, whether they are kept or not */
    bool has_sum;
    uint64_t sum;          /* the layout's checksum */
} tap_findings;

/* ------------------------------------------------------------------------------------------------------ first half */

/* The quick answer to "is anything to be done at all?" */
static inline bool tap__is_active(tap_recorder *rec, const tap_save_info *info)
{
    if (!rec)
        return false;
    if (info && info->has_step)
        return !atomic_load_explicit(&rec->paused, memory_order_relaxed) &&
               !atomic_load_explicit(&rec->ended, memory_order_relaxed) && rec->rank_wanted &&
               info->step <= atomic_load_explicit(&rec->frozen_after, memory_order_relaxed) &&
               tap__recorder_wants_step(rec, info->step);
    return atomic_load_explicit(&rec->active, memory_order_relaxed);
}

/* Finds session and site and asks the name filter. False: nothing to do, *status says why. info NULL: all as usual. */
bool tap__job_begin(tap_job *job, tap_recorder *rec, const char *name, const tap_save_info *info, tap_status *status);
/* Gives it its call number. */
void tap__job_number(tap_job *job);
/* What of TAP_SCAN_* the options want of this value: it may be less where its bytes have no room. */
unsigned tap__job_wants(const tap_job *job);
/* A range of the ring and the entry begun in it, or what streams announced. E_LOST: nothing can be kept, it was counted;
 * there is nothing to commit then. */
tap_status tap__job_reserve(tap_job *job);

/* ----------------------------------------------------------------------------------------------------- second half */

/* Room for the next *bytes of a value that streams, *bytes 0: it is at its end. NULL: none came, the piece is left
 * out, and the record will say so. */
void *tap__job_piece(tap_job *job, uint64_t *bytes);
/* The piece is filled. */
void tap__job_send(tap_job *job);
/* E_LOST: kept less than asked for. */
tap_status tap__job_commit(tap_job *job, const tap_findings *found);
/* The value will not come: its place says so, and it is counted as lost; E_LOST. */
tap_status tap__job_abandon(tap_job *job, tap_reason reason);

/* ------------------------------------------------------------------------------------------------ between the halves */

typedef struct tap_job_wait {
    uint64_t since_ns, progress;
} tap_job_wait;

/* Waits a little for the tail to move. False: the writer is stuck, give up. Starts with {0, 0}. */
bool tap__job_wait(tap_job *job, tap_job_wait *wait, uint32_t seen);
/* Room for an entry, begun at job->entry; payload is set to 0 when its bytes have to be left out. False: nothing can be
 * kept. */
bool tap__job_place(tap_job *job, bool page, uint64_t *payload_at);
/* The reason of what found no room. */
tap_reason tap__job_why_full(const tap_job *job);
/* Seals the entry and gives it to the writer. */
void tap__job_finish(tap_job *job);

/* --------------------------------------------------------------------------------------------------------- losses.c */

/* Before the entry is committed: see tally.h. */
static inline void tap__job_count_saved(const tap_job *job)
{
    atomic_fetch_add_explicit(&job->session->tally->saved, 1, memory_order_relaxed);
}
/* A save that is not in `saved`. */
void tap__job_count_dropped(const tap_job *job);
/* To be told by a LOST entry, or the journal, at a step or a flush. */
void tap__job_count_untold(const tap_job *job, tap_reason reason);
/* Says once per bit of `told` why; E_LOST. */
tap_status tap__job_tell_lost(tap_job *job, uint32_t told, const char *why);
/* All three. */
tap_status tap__job_lose_because(tap_job *job, tap_reason reason, uint32_t told, const char *why);
tap_status tap__job_lose(tap_job *job, tap_reason reason);
/* A value that cannot be recorded: said once a name, and listed by verify with its place and the reason; E_INVALID. */
tap_status tap__job_refuse(tap_job *job, const char *why);
/* An entry without bytes (marks, LOST). */
tap_status tap__job_put(tap_job *job);

#endif
