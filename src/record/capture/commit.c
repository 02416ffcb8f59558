/* commit.c - the second half of a save (job.h): what was found out about the value is put into its entry, which is sealed
 * and given to the writer. Values larger than the ring go in pieces, and a trailer ends them. */
#include "base/status.h"
#include "record/capture/job.h"

#include <stdio.h>

/* A piece of a large tensor: enough for the disk, little enough that several fit the ring. */
#define PIECE_BYTES (4u << 20)

static void count_kept(const tap_job *job, uint64_t bytes)
{
    tap_tally *tally = job->session->tally;
    atomic_fetch_add_explicit(&tally->saved_bytes, bytes, memory_order_relaxed);
    if (job->state == TAP_RECORD_STATS_ONLY)
        atomic_fetch_add_explicit(&tally->stats_only, 1, memory_order_relaxed);
}

static void wake_when_due(tap_ring *ring)
{
    tap_ring_header *h = ring->header;
    if (!atomic_load_explicit(&h->writer_asleep, memory_order_relaxed))
        return;
    uint64_t used = tap__ring_used(ring);
    uint64_t entries = tap__ring_head_seq(ring) - atomic_load_explicit(&h->tail_seq, memory_order_relaxed);
    if (used >= ring->mask / 4 || entries >= ring->desc_mask / 4)
        tap__ring_wake_writer(ring);
}

void tap__job_finish(tap_job *job)
{
    tap__entry_seal(job->entry, job->entry + 1);
    tap__ring_commit(&job->range);
    wake_when_due(&job->session->ring);
}

/* The first of a recorder: its name and place are told when recording freezes. */
static __attribute__((noinline)) void note_bad(const tap_job *job, const tap_stats *stats)
{
    tap_recorder *rec = job->rec;
    const tap_save_info *info = job->leaf.info;
    char path[100] = "", place[300] = "";
    if (atomic_exchange(&rec->bad_seen, true))
        return;
    if (job->leaf.path_len)
        tap__path_show(job->leaf.path, job->leaf.path_len, path, sizeof path);
    if (info && info->source)
        snprintf(place, sizeof place, " (%.200s:%d)", info->source, info->line);
    pthread_mutex_lock(&rec->error_lock);
    snprintf(rec->first_bad, sizeof rec->first_bad, "%.200s%s%s%s, %llu NaN, %llu Inf, step %lld", job->site->name,
             path[0] ? "." : "", path, place, (unsigned long long)stats->nan,
             (unsigned long long)(stats->pos_inf + stats->neg_inf), (long long)job->leaf.step);
    pthread_mutex_unlock(&rec->error_lock);
}

static void put_findings(tap_job *job, tap_entry *entry, const tap_findings *found)
{
    unsigned what = found->what;
    entry->has = (uint16_t)((what & TAP_SCAN_STATS ? TAP_HAS_STATS : 0) | (what & TAP_SCAN_HASH ? TAP_HAS_HASH : 0) |
                            (what & TAP_SCAN_HEALTH ? TAP_HAS_HEALTH : 0) | (found->has_sum ? TAP_HAS_CRC : 0));
    if (what & TAP_SCAN_HASH)
        entry->hash = found->hash;
    if (found->has_sum)
        entry->crc = found->sum;
    if (!(what & (TAP_SCAN_STATS | TAP_SCAN_HEALTH)))
        return;
    const tap_stats *stats = &found->stats;
    entry->count = stats->count;
    entry->nan = stats->nan;
    entry->pos_inf = stats->pos_inf;
    entry->neg_inf = stats->neg_inf;
    entry->zero = stats->zero;
    entry->min = stats->min;
    entry->max = stats->max;
    entry->mean = stats->mean;
    entry->norm = stats->norm;
    if ((stats->nan | stats->pos_inf | stats->neg_inf) &&
        !atomic_load_explicit(&job->rec->bad_seen, memory_order_relaxed))
        note_bad(job, stats);
}

static tap_status commit_whole(tap_job *job, const tap_findings *found)
{
    put_findings(job, job->entry, found);
    if (job->room) {
        job->entry->payload_offset = (uint64_t)(job->room - job->range.data);
        job->entry->payload_bytes = job->payload;
    }
    if (job->type == TAP_ENTRY_DATA && !tap__is_announcement(job))
        tap__job_count_saved(job);
    tap__job_finish(job);
    if (job->type == TAP_ENTRY_DATA)
        count_kept(job, job->payload);
    return job->wanted_payload && !job->payload && job->state == TAP_RECORD_STATS_ONLY ? TAP_E_LOST : TAP_OK;
}

/* ---------------------------------------------------------------------------------- tensors larger than the ring */

void *tap__job_piece(tap_job *job, uint64_t *bytes)
{
    tap_ring *ring = &job->session->ring;
    uint64_t left = job->payload - job->sent, most = tap__ring_max_payload(ring) / 2;
    most = most < PIECE_BYTES ? most : PIECE_BYTES;
    uint64_t take = *bytes = left < most ? left : most, offset = job->sent;
    tap_job_wait wait = {0, 0};
    job->sent += take;
    while (job->complete && take) {
        uint32_t seen = atomic_load(&ring->header->tail_futex);
        if (tap__ring_reserve_piece(ring, take, (uint32_t)job->slot, offset, &job->range))
            return job->range.data;
        job->complete = job->rec->options.full == TAP_FULL_BLOCK && tap__job_wait(job, &wait, seen);
    }
    return NULL;
}

void tap__job_send(tap_job *job)
{
    tap__ring_commit(&job->range);
    wake_when_due(&job->session->ring);
}

/* The trailer, which gives the slot back. Without one the reader takes the BIG entry for torn. */
static tap_status commit_stream(tap_job *job, const tap_findings *found)
{
    uint64_t payload_at, total = job->payload;
    int slot = job->slot;
    job->type = TAP_ENTRY_TRAILER;
    job->payload = 0;
    job->complete = job->complete && job->sent == total;
    if (!job->complete) {
        job->state = TAP_RECORD_STATS_ONLY;
        job->reason = job->reason ? job->reason : TAP_REASON_RING_FULL;
    }
    bool room = tap__job_place(job, false, &payload_at);
    tap__ring_give_slot(&job->session->ring, slot);
    if (!room) {
        atomic_fetch_add_explicit(&job->session->tally->lost, 1, memory_order_relaxed);
        job->state = TAP_RECORD_STATS_ONLY;
        count_kept(job, 0);
        return tap__job_tell_lost(job, TAP_TOLD_DROP, tap__reason_text(TAP_REASON_RING_FULL));
    }
    job->range.desc->slot = (uint32_t)slot;
    job->entry->ref = job->seq;
    put_findings(job, job->entry, found);
    if (!job->complete)
        job->entry->has &= (uint16_t)~TAP_HAS_HASH;
    tap__job_finish(job);
    count_kept(job, job->complete ? total : 0);
    return job->complete ? TAP_OK : TAP_E_LOST;
}

tap_status tap__job_commit(tap_job *job, const tap_findings *found)
{
    return job->streams ? commit_stream(job, found) : commit_whole(job, found);
}

/* ---------------------------------------------------------------------------------------------------- giving it up */

tap_status tap__job_abandon(tap_job *job, tap_reason reason)
{
    static const tap_findings NOTHING;
    if (job->streams) {
        job->complete = false;
        job->reason = reason;
        return commit_stream(job, &NOTHING);
    }
    job->entry->type = TAP_ENTRY_LOST;
    job->entry->state = TAP_RECORD_WHOLE;
    job->entry->reason = (uint8_t)reason;
    job->entry->count = 1;
    job->entry->ref = job->payload;
    tap__job_count_dropped(job);
    tap__job_finish(job);
    if (job->session->layout->native)
        atomic_fetch_add_explicit(&job->session->told, 1, memory_order_relaxed);
    else
        tap__job_count_untold(job, reason);
    return TAP_E_LOST;
}

tap_status tap__job_put(tap_job *job)
{
    static const tap_findings NOTHING;
    TAP_TRY(tap__job_reserve(job));
    return tap__job_commit(job, &NOTHING);
}
