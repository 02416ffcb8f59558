/* writer.c - the loop that drains a ring into files until its producer ends. */
#include "record/drain/writer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/filesink.h"
#include "record/layouts/layout.h"
#include "record/native/seglog.h"
#include "record/ring/look.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Data rests in the ring no longer than this; also how soon a producer's death is noticed. */
#define SLEEP_MS 100

typedef struct writer {
    tap_ring *ring;
    tap_dir *root;
    tap_ring_header *h;
    tap_ring_config config; /* as it was at first */
    tap_writer_mode mode;
    tap_sink *sink;
    int pidfd;            /* of the producer, -1: only its lock tells */
} writer;

/* Set by SIGTERM: write what is there and leave; the producer starts another writer when it needs one. */
volatile int tap__writer_stop;

static bool producer_is_dead(const writer *w)
{
    if (w->mode == TAP_WRITER_THREAD)
        return false;
    if (w->mode == TAP_WRITER_RECOVER)
        return true;
    if (w->pidfd >= 0) {
        struct pollfd fd = {w->pidfd, POLLIN, 0};
        return poll(&fd, 1, 0) > 0;
    }
    return !tap__ring_is_locked(w->ring, TAP_RING_PRODUCER);
}

static void watch_producer(writer *w)
{
    w->pidfd = -1;
    if (w->mode != TAP_WRITER_PROCESS)
        return;
#ifdef SYS_pidfd_open
    w->pidfd = (int)syscall(SYS_pidfd_open, w->h->config.pid, 0);
#endif
    /* the number may already belong to somebody else */
    if (w->pidfd >= 0 && !tap__ring_is_locked(w->ring, TAP_RING_PRODUCER)) {
        close(w->pidfd);
        w->pidfd = -1;
    }
}

static void tail(const writer *w, uint64_t *seq, uint64_t *pos)
{
    w->sink->type->tail(w->sink, seq, pos);
}

static void publish(writer *w)
{
    w->sink->type->publish(w->sink);
}

/* The next descriptor that was filled in, before `head`, and begins behind pos: *seq, *pos. False: there is none. */
static bool next_filled(const writer *w, uint64_t head, uint64_t *seq, uint64_t *pos)
{
    for (uint64_t at = *seq + 1; at < head; at++) {
        const tap_ring_desc *there = tap__ring_desc(w->ring, at);
        bool filled = tap__ring_is(there, at, TAP_RING_RESERVED) || tap__ring_is(there, at, TAP_RING_COMMITTED);
        tap_ring_desc between = {.pos = *pos, .bytes = tap__look_desc(w->ring, at).pos - *pos};
        if (filled && tap__look_is_range(w->ring, &between, *pos)) {
            *seq = at;
            *pos += between.bytes;
            return true;
        }
    }
    return false;
}

/* Takes everything committed, in order. True when something was there. */
static bool drain(writer *w)
{
    bool any = false;
    uint64_t seq, pos;
    for (;; any = true) {
        tail(w, &seq, &pos);
        if (!tap__ring_is(tap__ring_desc(w->ring, seq), seq, TAP_RING_COMMITTED))
            break;
        tap_ring_desc desc = tap__look_desc(w->ring, seq);
        uint64_t end_seq = seq, end_pos = pos;
        if (tap__look_is_range(w->ring, &desc, pos))
            w->sink->type->take(w->sink, &desc);
        else if (next_filled(w, seq + 2, &end_seq, &end_pos))
            w->sink->type->skip(w->sink, end_seq, end_pos);
        else
            break; /* its size is known when its neighbour comes, or its owner is dead */
        if (w->sink->type->due(w->sink))
            publish(w);
    }
    if (any)
        publish(w);
    return any;
}

/* The producer is dead: what it had reserved and not committed will never be. Its extent is known from the next
 * descriptor that was filled in, or from the head. */
static void drain_dead(writer *w)
{
    uint64_t head = tap__ring_head_seq(w->ring), head_pos = atomic_load(&w->h->tail_pos) + tap__ring_used(w->ring);
    for (;;) {
        drain(w);
        uint64_t seq, pos;
        tail(w, &seq, &pos);
        if (seq >= head)
            break;
        tap_ring_desc rest = {.pos = pos, .bytes = head_pos - pos};
        if (!tap__look_is_range(w->ring, &rest, pos) || head - seq > w->ring->desc_mask + 1) {
            tap__ring_report(w->ring, tap_text("the ring is damaged: what was in it is lost"));
            atomic_fetch_add(&w->ring->tally->lost, 1);
            break;
        }
        bool reserved = tap__ring_is(tap__ring_desc(w->ring, seq), seq, TAP_RING_RESERVED);
        tap_ring_desc own = tap__look_desc(w->ring, seq);
        uint64_t end_seq = seq, end_pos = pos;
        if (reserved && tap__look_is_range(w->ring, &own, pos) && own.bytes <= rest.bytes) {
            end_seq = seq + 1;
            end_pos = pos + own.bytes;
        } else if (!next_filled(w, head, &end_seq, &end_pos) || end_pos > head_pos) {
            end_seq = head;
            end_pos = head_pos;
        }
        w->sink->type->skip(w->sink, end_seq, end_pos);
        publish(w);
    }
}

static void serve_flush(writer *w)
{
    uint64_t want = atomic_load(&w->h->flush_want), seq, pos;
    tail(w, &seq, &pos);
    if (want <= atomic_load(&w->h->flush_done) || seq < want)
        return;
    w->sink->type->flush(w->sink);
    atomic_store(&w->h->flush_done, want);
    /* who waits looks again; what a collector could not write stays in the ring */
    tap__ring_publish_tail(w->ring, atomic_load(&w->h->tail_seq), atomic_load(&w->h->tail_pos));
}

static tap_status writer_open(writer *w, tap_error *err)
{
    tap__look_config(w->ring, &w->config);
    const tap_layout *layout = tap__layout_find(w->config.layout);
    if (!layout)
        return tap_fail(err, TAP_E_INVALID, "layout \"%s\" is not known", w->config.layout);
    const tap_sink_type *type = layout->name_file ? &tap__files_sink : &tap__seglog_sink;
    return type->open(w->ring, w->root, &w->sink, err);
}

static void writer_close(writer *w)
{
    if (w->sink)
        w->sink->type->close(w->sink);
    w->sink = NULL;
}

/* Nothing is held any more when the producer hears of it: a recording whose end could not be written must not look as if
 * it were still being made. */
static void writer_finish(writer *w, const char *ended)
{
    w->sink->type->finish(w->sink, ended);
    uint64_t seq, pos;
    tail(w, &seq, &pos);
    writer_close(w);
    tap__ring_publish_tail(w->ring, seq, pos); /* before: who sees the end sees how far it goes */
    atomic_store(&w->h->flush_done, UINT64_MAX);
    atomic_store(&w->h->finished, 1);
    tap__ring_publish_tail(w->ring, seq, pos);
}

/* One round; true when the recording is over. */
static bool writer_round(writer *w)
{
    uint32_t seen = atomic_load(&w->h->wake_futex);
    bool closed = atomic_load(&w->h->closed); /* read before draining: nothing comes after it */
    bool any = drain(w);
    serve_flush(w);
    uint64_t seq, pos;
    tail(w, &seq, &pos);
    if (closed && seq == tap__ring_head_seq(w->ring)) {
        writer_finish(w, "closed");
        return true;
    }
    if (!any && producer_is_dead(w)) {
        drain_dead(w);
        writer_finish(w, atomic_load(&w->h->closed) ? "closed" : "killed");
        return true;
    }
    if (tap__writer_stop)
        return true;
    w->sink->type->idle(w->sink, tap__monotonic_ns());
    tap__ring_sleep(w->ring, seen, SLEEP_MS);
    return false;
}

tap_status tap__writer_run(tap_ring *ring, tap_dir *root, tap_writer_mode mode, tap_error *err)
{
    writer *w = tap__calloc(1, sizeof *w);
    if (!w)
        return tap_fail_nomem(err);
    w->ring = ring;
    w->root = root;
    w->h = ring->header;
    w->mode = mode;
    watch_producer(w);
    tap_status status = writer_open(w, err);
    if (status == TAP_OK) {
        atomic_store(&w->h->writer_pid, mode == TAP_WRITER_THREAD ? 0 : (int32_t)getpid());
        atomic_fetch_add(&w->h->starts, 1);
        tap__ring_publish_tail(ring, atomic_load(&w->h->tail_seq), atomic_load(&w->h->tail_pos));
        while (!writer_round(w))
            ;
        writer_close(w);
    }
    if (w->pidfd >= 0)
        close(w->pidfd);
    tap__free(w);
    return status;
}
