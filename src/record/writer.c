/* writer.c - the loop that drains a ring into files until its producer ends. */
#include "record/writer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/filesink.h"
#include "record/seglog.h"

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
    tap_ring_header *h;
    tap_writer_mode mode;
    bool native;
    tap_seglog log;       /* native */
    tap_filesink sink;    /* every other layout */
    int pidfd;            /* of the producer, -1: look at /proc */
    uint64_t seq, pos;    /* tail */
} writer;

/* Set by SIGTERM: write what is there and leave; the producer starts another writer when it needs one. */
volatile int tap__writer_stop;

static bool producer_is_dead(const writer *w)
{
    const tap_ring_config *c = &w->h->config;
    if (w->mode == TAP_WRITER_THREAD)
        return false;
    if (w->mode == TAP_WRITER_RECOVER)
        return true;
    if (w->pidfd >= 0) {
        struct pollfd fd = {w->pidfd, POLLIN, 0};
        return poll(&fd, 1, 0) > 0;
    }
    return tap__process_start(c->pid) != c->pid_start;
}

static void watch_producer(writer *w)
{
    const tap_ring_config *c = &w->h->config;
    w->pidfd = -1;
    if (w->mode != TAP_WRITER_PROCESS)
        return;
#ifdef SYS_pidfd_open
    w->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
#endif
    /* the number may already belong to somebody else */
    if (w->pidfd >= 0 && tap__process_start(c->pid) != c->pid_start) {
        close(w->pidfd);
        w->pidfd = -1;
    }
}

static void take(writer *w, const tap_ring_desc *desc)
{
    if (w->native)
        tap__seglog_take(&w->log, desc);
    else
        tap__filesink_take(&w->sink, desc);
}

static void publish(writer *w)
{
    if (w->native)
        tap__seglog_publish(&w->log);
    else
        tap__filesink_publish(&w->sink);
}

static void tail(const writer *w, uint64_t *seq, uint64_t *pos)
{
    *seq = w->native ? w->log.at.tail_seq : w->sink.tail_seq;
    *pos = w->native ? w->log.at.tail_pos : w->sink.tail_pos;
}

/* Takes everything committed, in order. True when something was there. */
static bool drain(writer *w)
{
    bool any = false;
    uint64_t seq, pos;
    for (;; any = true) {
        tail(w, &seq, &pos);
        const tap_ring_desc *desc = tap__ring_desc(w->ring, seq);
        if (!tap__ring_is(desc, seq, TAP_RING_COMMITTED) || desc->bytes == 0 || desc->bytes > w->h->data_bytes)
            break;
        take(w, desc);
        if (w->native ? tap__seglog_due(&w->log) : true)
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
    uint64_t head = tap__ring_head_seq(w->ring);
    for (;;) {
        drain(w);
        uint64_t seq, pos;
        tail(w, &seq, &pos);
        if (seq >= head)
            break;
        uint64_t end_seq = seq + 1, end_pos = pos + tap__ring_used(w->ring) - (pos - atomic_load(&w->h->tail_pos));
        const tap_ring_desc *own = tap__ring_desc(w->ring, seq);
        bool reserved = tap__ring_is(own, seq, TAP_RING_RESERVED);
        if (reserved && own->pos == pos && own->bytes && own->bytes <= end_pos - pos) {
            end_pos = pos + own->bytes;
        } else {
            while (end_seq < head) {
                const tap_ring_desc *next = tap__ring_desc(w->ring, end_seq);
                bool filled = tap__ring_is(next, end_seq, TAP_RING_RESERVED) ||
                              tap__ring_is(next, end_seq, TAP_RING_COMMITTED);
                if (filled && next->pos > pos && next->pos <= end_pos) {
                    end_pos = next->pos;
                    break;
                }
                end_seq++;
            }
        }
        if (w->native && reserved && own->piece)
            tap__seglog_take(&w->log, &(tap_ring_desc){.bytes = end_pos - pos, .piece = 1, .slot = own->slot,
                                                       .piece_offset = UINT64_MAX});
        else if (w->native)
            tap__seglog_take_torn(&w->log, end_seq, end_pos);
        else
            tap__filesink_skip(&w->sink, end_seq, end_pos);
        publish(w);
    }
}

static void serve_flush(writer *w)
{
    uint64_t want = atomic_load(&w->h->flush_want), seq, pos;
    tail(w, &seq, &pos);
    if (want <= atomic_load(&w->h->flush_done) || seq < want)
        return;
    if (w->native && w->h->config.durability >= TAP_DURABLE_FLUSH) {
        int failed = tap__seglog_sync(&w->log);
        if (failed)
            tap__ring_report(w->ring, strerror(failed));
    }
    if (!w->native)
        tap__filesink_flush(&w->sink, true);
    atomic_store(&w->h->flush_done, want);
    tap__ring_publish_tail(w->ring, seq, pos);
}

static tap_status writer_open(writer *w, tap_error *err)
{
    const tap_layout *layout = tap__layout_find(w->h->config.layout);
    if (!layout)
        return tap_fail(err, TAP_E_INVALID, "layout \"%s\" is not known", w->h->config.layout);
    w->native = layout->native;
    return w->native ? tap__seglog_open(&w->log, w->ring, err) : tap__filesink_open(&w->sink, w->ring, layout, err);
}

/* A ring kept as a file has nothing more to say once its attempt is finished. */
static void remove_ring_file(const writer *w)
{
    if (!w->native || !w->h->config.file_ring || w->mode == TAP_WRITER_RECOVER)
        return;
    char *path = tap__attempt_path(&w->log.files, ".ring");
    if (path)
        unlink(path);
    tap__free(path);
}

static void writer_finish(writer *w, const char *ended)
{
    if (w->native)
        tap__seglog_finish(&w->log, ended);
    else
        tap__filesink_finish(&w->sink);
    remove_ring_file(w);
    uint64_t seq, pos;
    tail(w, &seq, &pos);
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
    if (w->native)
        tap__seglog_check_space(&w->log, tap__monotonic_ns());
    else
        tap__filesink_flush(&w->sink, false);
    tap__ring_sleep(w->ring, seen, SLEEP_MS);
    return false;
}

tap_status tap__writer_run(tap_ring *ring, tap_writer_mode mode, tap_error *err)
{
    writer *w = tap__calloc(1, sizeof *w);
    if (!w)
        return tap_fail_nomem(err);
    w->ring = ring;
    w->h = ring->header;
    w->mode = mode;
    watch_producer(w);
    tap_status status = writer_open(w, err);
    if (status == TAP_OK) {
        atomic_store(&w->h->writer_pid, mode == TAP_WRITER_THREAD ? 0 : (int32_t)getpid());
        tap__ring_publish_tail(ring, atomic_load(&w->h->tail_seq), atomic_load(&w->h->tail_pos));
        while (!writer_round(w))
            ;
        if (w->native)
            tap__seglog_close(&w->log);
        else
            tap__filesink_close(&w->sink);
    }
    if (w->pidfd >= 0)
        close(w->pidfd);
    tap__free(w);
    return status;
}
