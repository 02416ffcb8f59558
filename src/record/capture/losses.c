/* losses.c - saves that were not kept: counted at their site, said once, and told to whoever reads the recording; and the
 * entries without bytes. */
#include "base/status.h"
#include "record/capture/job.h"

#include <stdio.h>

void tap__job_count_dropped(const tap_job *job)
{
    atomic_fetch_add_explicit(&job->session->tally->dropped, 1 + job->more, memory_order_relaxed);
}

void tap__job_count_untold(const tap_job *job, tap_reason reason)
{
    atomic_store_explicit(&job->site->lost_reason, (uint32_t)reason, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->site->lost_bytes, job->payload, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->site->lost, 1 + job->more, memory_order_relaxed);
}

tap_status tap__job_tell_lost(tap_job *job, uint32_t told, const char *why)
{
    tap_error err;
    tap_fail(&err, TAP_E_LOST, "%.200s was not recorded: %s; later ones are only counted, run: tensortap verify %s",
             job->site->name, why, job->session->dir->path);
    tap__recorder_tell(job->rec, told, &err);
    return TAP_E_LOST;
}

tap_status tap__job_lose_because(tap_job *job, tap_reason reason, uint32_t told, const char *why)
{
    tap__job_count_dropped(job);
    tap__job_count_untold(job, reason);
    return tap__job_tell_lost(job, told, why);
}

tap_status tap__job_lose(tap_job *job, tap_reason reason)
{
    return tap__job_lose_because(job, reason, TAP_TOLD_DROP, tap__reason_text(reason));
}

tap_status tap__job_refuse(tap_job *job, const char *why)
{
    tap_error err;
    tap_fail(&err, TAP_E_INVALID, "%.200s was not recorded: %s; run: tensortap verify %s", job->site->name, why,
             job->session->dir->path);
    if (!atomic_exchange_explicit(&job->site->refused, true, memory_order_relaxed))
        tap__recorder_tell(job->rec, 0, &err);
    job->leaf.tensor = NULL;
    job->leaf.value_type = TAP_VALUE_NONE;
    job->payload = 0;
    job->reason = TAP_REASON_BAD_VALUE;
    tap__job_count_dropped(job);
    if (!job->session->layout->native) {
        tap__job_count_untold(job, TAP_REASON_BAD_VALUE);
        return TAP_E_INVALID;
    }
    job->type = TAP_ENTRY_LOST;
    job->state = TAP_RECORD_WHOLE;
    job->count = 1;
    job->type_name = why;
    if (tap__job_put(job) != TAP_OK)
        tap__job_count_untold(job, TAP_REASON_BAD_VALUE);
    else
        atomic_fetch_add_explicit(&job->session->told, 1, memory_order_relaxed);
    return TAP_E_INVALID;
}

tap_status tap__save_mark(tap_recorder *rec, tap_session *session, tap_entry_type type, int64_t step)
{
    tap_job job = {.rec = rec, .session = session, .type = type};
    job.leaf.info = &tap__no_info;
    job.leaf.step = step;
    return tap__job_put(&job);
}

/* ------------------------------------------------------------------------------------------ those that were counted */

typedef struct loss_walk {
    tap_recorder *rec;
    tap_session *session;
} loss_walk;

static void tell_loss(void *user, tap_site *site)
{
    loss_walk *walk = user;
    uint64_t lost = atomic_exchange(&site->lost, 0);
    if (!lost)
        return;
    tap_job job = {.rec = walk->rec, .session = walk->session, .site = site, .type = TAP_ENTRY_LOST};
    job.leaf.info = &tap__no_info;
    job.leaf.step = atomic_load(&walk->rec->step);
    job.reason = (tap_reason)atomic_load(&site->lost_reason);
    job.count = lost;
    job.lost_bytes = atomic_exchange(&site->lost_bytes, 0);
    if (tap__job_put(&job) == TAP_OK) {
        atomic_fetch_add(&walk->session->told, lost);
    } else { /* told another time */
        atomic_fetch_add(&site->lost_bytes, job.lost_bytes);
        atomic_fetch_add(&site->lost, lost);
    }
}

void tap__save_losses(tap_recorder *rec, tap_session *session)
{
    uint64_t dropped = atomic_load(&session->tally->dropped);
    if (dropped == atomic_load(&session->told))
        return;
    if (!session->layout->native)
        tap__losses_journal(rec, session, NULL);
    else
        tap__site_table_each(&session->sites, tell_loss, &(loss_walk){rec, session});
}
