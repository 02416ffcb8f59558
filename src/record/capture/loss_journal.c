/* loss_journal.c - what could not be recorded in the layout of another tool, which has no place for it: the journal beside its
 * files, at once, since the program may be killed next. */
#include "base/memory.h"
#include "base/status.h"
#include "record/capture/recorder.h"

#include <stdio.h>
#include <string.h>

tap_status tap__losses_begin(tap_session *session, const char *tally, int32_t rank, tap_error *err)
{
    int len = snprintf(session->who, sizeof session->who, "rank%d", rank);
    if (session->child)
        len += snprintf(session->who + len, sizeof session->who - (size_t)len, ".child%d", session->child);
    snprintf(session->who + len, sizeof session->who - (size_t)len, ".%s", strchr(tally, '-') + 1);
    return tap__journal_create_beside(session->root, session->who, &session->journal, err);
}

typedef struct journal_walk {
    tap_session *session;
    int64_t step;
} journal_walk;

static void add(tap_session *session, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    tap__journal_add(session->journal, name, step, reason, count, bytes);
    session->unsettled += count;
    atomic_fetch_add(&session->told, count);
}

static void journal_loss(void *user, tap_site *site)
{
    journal_walk *walk = user;
    uint64_t lost = atomic_exchange(&site->lost, 0);
    if (lost)
        add(walk->session, site->name, walk->step, (tap_reason)atomic_load(&site->lost_reason), lost,
            atomic_exchange(&site->lost_bytes, 0));
}

static void settle(tap_session *session)
{
    if (!session->unsettled || tap__journal_sync(session->journal) != TAP_OK)
        return;
    atomic_fetch_add(&session->tally->named, session->unsettled);
    session->unsettled = 0;
}

void tap__losses_journal(tap_recorder *rec, tap_session *session, tap_site *site)
{
    journal_walk walk = {session, atomic_load(&rec->step)};
    pthread_mutex_lock(&session->lock);
    if (session->journal && site)
        journal_loss(&walk, site);
    else if (session->journal)
        tap__site_table_each(&session->sites, journal_loss, &walk);
    if (session->journal)
        settle(session);
    pthread_mutex_unlock(&session->lock);
}

/* The recording did not come about. */
void tap__losses_abandon(tap_session *session)
{
    if (session->journal)
        tap__journal_end(session->journal);
    tap__journal_close(session->journal);
    session->journal = NULL;
    if (session->has_ring && !session->layout->native)
        tap__tally_remove(session->ring.header->config.tally);
}

/* What has no name is the writer's to list, where there is one. */
void tap__losses_end(tap_session *session)
{
    pthread_mutex_lock(&session->lock);
    uint64_t missing = session->has_ring ? 0 : tap__tally_missing(session->tally, session->unsettled);
    if (session->journal && missing)
        add(session, "", -1, TAP_REASON_NO_WRITER, missing, 0);
    bool ended = session->has_ring && atomic_load(&session->ring.header->finished);
    if (session->journal && ended && tap__journal_end(session->journal) == TAP_OK)
        tap__tally_remove(session->ring.header->config.tally);
    tap__journal_close(session->journal);
    session->journal = NULL;
    pthread_mutex_unlock(&session->lock);
}
