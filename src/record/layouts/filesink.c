/* filesink.c - entries of the ring into the files of other tools' layouts. */
#include "record/layouts/filesink.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/hold.h"
#include "record/layouts/layout.h"
#include "record/ring/journal.h"
#include "record/ring/look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long entries rest in the ring before the collector's files are written for their sake. */
#define KEPT_NS 1000000000ull
/* tap_entry.reserved[0], in the ring only: the journal lists this entry. */
enum { LISTED = 1 };

typedef struct filesink {
    tap_sink sink;
    tap_ring_config config;      /* as it was at first: nobody changes it later */
    tap_look taken, kept;        /* the entry that is taken; one that the ring still has */
    const tap_layout *layout;
    tap_layout_options options;
    tap_dir *root;               /* the recording's directory */
    tap_dir *own;                /* below it, of a forked child; NULL: the files go to root */
    tap_collector *collector;
    tap_journal *journal;
    uint64_t accounted;          /* saves that are in files or listed, of the entries taken */
    uint64_t unsettled;          /* saves that the journal names, and its file not yet */
    uint64_t counted_from;       /* entries before this number are in accounted since another writer */
    char below[64];              /* from the recording's directory to ours: a forked child's is "rank<R>/child<pid>/" */
    uint64_t tail_seq, tail_pos; /* taken; the ring keeps them until the collector's files hold them */
    uint64_t kept_seq, kept_pos; /* from here on the ring still has what was taken */
    uint64_t kept_ns;
    int hold;                    /* of the directory, see tap__run_hold */
    bool told;                   /* that the collector's files could not be written: once is enough */
} filesink;

static filesink *of(tap_sink *sink)
{
    return (filesink *)sink;
}

static void journal_add(filesink *files, const tap_entry *entry, tap_reason reason)
{
    tap_meta meta;
    bool named = tap__meta_read(&meta, entry + 1, entry->meta_bytes) && meta.text[TAP_META_NAME];
    char *name = named ? tap__strndup(meta.text[TAP_META_NAME], meta.len[TAP_META_NAME]) : NULL;
    if (!name)
        return; /* it stays unaccounted for, and is listed without its name */
    tap__journal_add(files->journal, name, entry->step, reason, 1, entry->payload_bytes);
    tap__free(name);
    files->unsettled++;
}

/* Called before the ring gives up what the journal names. */
static void journal_settle(filesink *files)
{
    if (!files->unsettled || tap__journal_sync(files->journal) != TAP_OK)
        return;
    files->accounted += files->unsettled;
    files->unsettled = 0;
}

/* An entry is listed once. That it was is noted in the ring, for the writer after this one, when the journal's file has
 * it and not before: listed twice is better than not at all. */
static void lost(filesink *files, tap_entry *entry, const tap_error *err)
{
    atomic_fetch_add(&files->sink.ring->tally->lost, 1);
    tap__ring_report(files->sink.ring, err->message);
    journal_add(files, entry, err->status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL : TAP_REASON_DISK_ERROR);
    journal_settle(files);
    entry->reserved[0] = LISTED;
    if (!files->unsettled)
        tap__look_put(files->sink.ring, files->tail_pos, entry);
}

/* The file of an entry that carries its bytes and was left to us. */
static tap_status write_file(filesink *files, const tap_entry *entry, const tap_meta *meta, const void *payload,
                             tap_error *err)
{
    char *file = tap__strndup(meta->text[TAP_META_FILE], meta->len[TAP_META_FILE]);
    tap_strbuf below = TAP_STRBUF_INIT;
    tap__strbuf_printf(&below, "%s%s", files->below, file ? file : "");
    if (!file || below.failed) {
        tap__free(file);
        tap__strbuf_free(&below);
        return tap_fail_nomem(err);
    }
    tap_tensor tensor = {(void *)(uintptr_t)payload, (tap_dtype)entry->dtype, meta->ndim, meta->shape, NULL};
    int64_t bytes = tap_tensor_bytes(&tensor);
    if (!files->collector) /* else it is there for readers when the collector's file says so */
        tap__tally_file(files->sink.ring->tally, files->tail_seq, entry->time_ns, below.text);
    tap_status status = bytes < 0 || (uint64_t)bytes != entry->payload_bytes
                            ? tap_fail(err, TAP_E_CORRUPT, "%s: what was saved is damaged: the program wrote over it", file)
                            : tap__layout_write_file(files->layout, files->options.dir, file, &tensor, err);
    tap__strbuf_free(&below);
    tap__free(file);
    return status;
}

/* Gives the space of everything taken back to the producers. */
static void release(filesink *files)
{
    files->kept_seq = files->tail_seq;
    files->kept_pos = files->tail_pos;
    files->kept_ns = tap__monotonic_ns();
    atomic_store(&files->sink.ring->tally->ahead, 0);
    tap__tally_account(files->sink.ring->tally, files->tail_seq, files->accounted);
    tap__ring_publish_tail(files->sink.ring, files->tail_seq, files->tail_pos);
}

/* The entry of number seq, which the ring still has, when it is a save that nobody listed; else NULL. */
static const tap_entry *kept_save(filesink *files, uint64_t seq)
{
    const tap_ring *ring = files->sink.ring;
    bool committed = tap__ring_is(tap__ring_desc(ring, seq), seq, TAP_RING_COMMITTED);
    tap_ring_desc desc = tap__look_desc(ring, seq);
    bool whole = committed && desc.pos - files->kept_pos <= ring->mask && tap__look_is_range(ring, &desc, desc.pos);
    const tap_entry *entry = whole ? tap__look_entry(&files->kept, ring, desc.pos, desc.bytes) : NULL;
    return entry && tap__entry_accounts(entry) && entry->reserved[0] != LISTED ? entry : NULL;
}

/* Some of the collector's files were due and others were not: what is in the former needs no ring any more. */
static void count_ahead(filesink *files)
{
    uint64_t ahead = 0;
    for (uint64_t seq = files->kept_seq; seq < files->tail_seq; seq++) {
        const tap_entry *entry = kept_save(files, seq);
        ahead += entry && !files->layout->collect_waits(files->collector, &entry->step, seq);
    }
    atomic_store(&files->sink.ring->tally->ahead, ahead);
}

/* force: at a step, a flush and the end; else the collector writes what is due. What could not be written stays in the
 * ring: producers that find it full do not wait for a disk that is. */
static bool collector_flush(filesink *files, uint64_t now_ns, bool force)
{
    tap_error err;
    if (!files->collector)
        return true;
    tap_ring_header *h = files->sink.ring->header;
    force = force || (files->tail_seq != files->kept_seq && now_ns - files->kept_ns > KEPT_NS);
    tap_status status = files->layout->collect_flush(files->collector, now_ns, force, &err);
    if (status != TAP_OK && !files->told)
        tap__ring_report(files->sink.ring, err.message);
    files->told = status != TAP_OK;
    bool kept = files->tail_seq != files->kept_seq;
    if (status == TAP_OK && !force && kept && !files->layout->collect_waits(files->collector, NULL, 0))
        release(files);
    else if (!force && kept)
        count_ahead(files);
    if (!force)
        return true;
    atomic_store(&h->degraded, status == TAP_OK             ? TAP_REASON_NONE
                               : status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL
                                                         : TAP_REASON_DISK_ERROR);
    atomic_store(&h->sync_errno, status == TAP_OK ? 0 : status == TAP_E_NOSPACE ? ENOSPC : EIO); /* for flush to say */
    files->kept_ns = tap__monotonic_ns();
    if (status == TAP_OK)
        release(files);
    return status == TAP_OK;
}

/* --------------------------------------------------------------------------------------------------------- the sink */

static void files_close(tap_sink *sink)
{
    filesink *files = of(sink);
    if (files->collector)
        files->layout->collect_close(files->collector);
    tap__journal_close(files->journal);
    if (files->hold >= 0)
        close(files->hold);
    tap__dir_close(files->own);
    tap__look_free(&files->taken);
    tap__look_free(&files->kept);
    tap__free(files);
}

/* Who waits for the run waits for its forked children too, and reads their journals with its own. */
static tap_status run_begin(filesink *files, tap_error *err)
{
    const tap_ring_config *c = &files->config;
    char who[sizeof c->who + 16];
    files->hold = tap__run_hold(files->root);
    snprintf(who, sizeof who, "%s.writer", c->who);
    TAP_TRY(tap__journal_create_beside(files->root, who, &files->journal, err));
    if (!files->options.child)
        return TAP_OK;
    snprintf(files->below, sizeof files->below, "rank%d/child%d/", files->options.rank, files->options.child);
    TAP_TRY(tap__layout_child_dir(files->root, files->options.rank, files->options.child, &files->own, err));
    files->options.dir = files->own;
    return TAP_OK;
}

static tap_status files_open(tap_ring *ring, tap_dir *root, tap_sink **out, tap_error *err)
{
    *out = NULL;
    tap_ring_header *h = ring->header;
    filesink *files = tap__calloc(1, sizeof *files);
    if (!files)
        return tap_fail_nomem(err);
    files->sink = (tap_sink){&tap__files_sink, ring};
    tap__look_config(ring, &files->config);
    const tap_layout *layout = tap__layout_find(files->config.layout);
    if (!layout || !layout->name_file) {
        tap__free(files);
        return tap_fail(err, TAP_E_CORRUPT, "%s: the program wrote over the ring: what was in it is lost", root->path);
    }
    files->layout = layout;
    files->root = root;
    files->options = tap__layout_options(root, &files->config);
    files->options.resume = atomic_load(&h->starts) != 0;
    files->tail_seq = files->kept_seq = atomic_load(&h->tail_seq);
    files->tail_pos = files->kept_pos = atomic_load(&h->tail_pos);
    files->kept_ns = tap__monotonic_ns();
    files->hold = -1;
    tap_tally_mark mark = tap__tally_marked(ring->tally);
    files->accounted = mark.accounted;
    files->counted_from = mark.seq;
    atomic_store(&ring->tally->ahead, 0);
    bool room = tap__look_begin(&files->taken) && tap__look_begin(&files->kept);
    tap_status status = room ? run_begin(files, err) : tap_fail_nomem(err);
    if (status == TAP_OK && layout->collect_open)
        status = layout->collect_open(&files->options, &files->collector, err);
    if (status != TAP_OK) {
        files_close(&files->sink);
        return status;
    }
    *out = &files->sink;
    return TAP_OK;
}

static void files_tail(const tap_sink *sink, uint64_t *seq, uint64_t *pos)
{
    const filesink *files = (const filesink *)sink;
    *seq = files->tail_seq;
    *pos = files->tail_pos;
}

static void files_skip(tap_sink *sink, uint64_t seq_end, uint64_t pos_end)
{
    of(sink)->tail_seq = seq_end;
    of(sink)->tail_pos = pos_end;
}

static void files_flush(tap_sink *sink)
{
    journal_settle(of(sink));
    collector_flush(of(sink), tap__monotonic_ns(), true);
}

/* To its file and to the collector. */
static tap_status keep(filesink *files, tap_entry *entry, const tap_meta *meta, tap_error *err)
{
    const tap_ring *ring = files->sink.ring;
    const void *payload = entry->payload_offset ? tap__ring_at(ring, files->tail_pos) + entry->payload_offset : NULL;
    tap_status status = TAP_OK;
    bool for_us = files->config.asynchronous && entry->reserved[0] != LISTED;
    if (entry->type == TAP_ENTRY_DATA && payload && meta->text[TAP_META_FILE] && for_us)
        status = write_file(files, entry, meta, payload, err);
    if (status != TAP_OK) {
        entry->state = TAP_RECORD_STATS_ONLY;
        tap__look_put(ring, files->tail_pos, entry); /* also for the writer after this one */
    }
    if (files->collector) { /* also without its file: the statistics */
        tap_status collected = files->layout->collect(files->collector, entry, payload, status == TAP_OK ? err : NULL);
        status = status == TAP_OK ? collected : status;
    }
    return status;
}

static void files_take(tap_sink *sink, const tap_ring_desc *desc)
{
    filesink *files = of(sink);
    tap_entry *entry = tap__look_entry(&files->taken, sink->ring, files->tail_pos, desc->bytes);
    tap_meta meta;
    tap_error err;
    bool sane = entry && entry->length == desc->bytes &&
                entry->payload_offset <= desc->bytes && entry->payload_bytes <= desc->bytes - entry->payload_offset &&
                tap__meta_read(&meta, entry + 1, entry->meta_bytes);
    if (!sane)
        tap__ring_report(sink->ring, tap_text("a value is lost: the program wrote over the ring"));
    else if (keep(files, entry, &meta, &err) != TAP_OK && entry->reserved[0] != LISTED)
        lost(files, entry, &err);
    else if (files->tail_seq >= files->counted_from)
        files->accounted += entry->type == TAP_ENTRY_LOST ? 0 : tap__entry_accounts(entry); /* the program's journal lists it */
    bool step = sane && entry->type == TAP_ENTRY_STEP;
    files_skip(sink, files->tail_seq + 1, files->tail_pos + desc->bytes);
    if (step)
        files_flush(sink);
}

/* A file is written as soon as it was taken; its place in the ring is free then. */
static bool files_due(const tap_sink *sink)
{
    (void)sink;
    return true;
}

/* What a collector holds is only in its memory: should this writer die, the next one takes it from the ring again. */
static void files_publish(tap_sink *sink)
{
    filesink *files = of(sink);
    const tap_ring *ring = sink->ring;
    atomic_fetch_add_explicit(&ring->header->progress, 1, memory_order_relaxed);
    journal_settle(files);
    bool again = !atomic_load(&ring->header->degraded) || tap__monotonic_ns() - files->kept_ns > KEPT_NS;
    if (!files->collector)
        release(files);
    else if (!again)
        return; /* a full disk was tried a moment ago */
    else if (files->tail_pos - files->kept_pos > ring->mask / 4 ||
             files->tail_seq - files->kept_seq > ring->desc_mask / 4)
        files_flush(sink);
}

static void files_idle(tap_sink *sink, uint64_t now_ns)
{
    collector_flush(of(sink), now_ns, false);
}

/* What the collector took and could not write is still in the ring: it is named. */
static void list_kept(filesink *files)
{
    tap_ring *ring = files->sink.ring;
    for (uint64_t seq = files->kept_seq; seq < files->tail_seq; seq++) {
        const tap_entry *entry = kept_save(files, seq);
        bool told = !entry || entry->state == TAP_RECORD_STATS_ONLY; /* by the program: its bytes found no room */
        if (told || !files->layout->collect_waits(files->collector, &entry->step, seq))
            continue;
        atomic_fetch_add(&ring->tally->lost, 1);
        files->accounted--; /* until the journal's file says it */
        journal_add(files, entry, (tap_reason)atomic_load(&ring->header->degraded));
    }
    journal_settle(files);
}

/* A program that is there ends its journal itself. */
static void end_for_the_dead(const filesink *files)
{
    const tap_ring *ring = files->sink.ring;
    const tap_ring_config *c = &files->config;
    if (c->pid == (int32_t)getpid() || tap__ring_is_locked(ring, TAP_RING_PRODUCER))
        return;
    tap_journal *journal = NULL;
    if (tap__journal_create_beside(files->root, c->who, &journal, NULL) == TAP_OK &&
        tap__journal_end(journal) == TAP_OK)
        tap__tally_remove(c->tally);
    tap__journal_close(journal);
}

static void files_finish(tap_sink *sink, const char *ended)
{
    filesink *files = of(sink);
    tap_tally *tally = sink->ring->tally;
    journal_settle(files);
    if (!collector_flush(files, tap__monotonic_ns(), true))
        list_kept(files);
    atomic_store(&sink->ring->header->sync_errno, 0); /* close says how many saves were lost */
    release(files);
    uint64_t missing = tap__tally_missing(tally, files->unsettled);
    if (missing)
        tap__journal_add(files->journal, "", -1, strcmp(ended, "closed") == 0 ? TAP_REASON_NO_WRITER : TAP_REASON_KILLED,
                         missing, 0);
    if (tap__journal_sync(files->journal) != TAP_OK)
        return; /* the tally still says it */
    atomic_fetch_add(&tally->named, missing);
    end_for_the_dead(files);
}

const tap_sink_type tap__files_sink = {
    .open = files_open, .tail = files_tail, .take = files_take, .skip = files_skip, .due = files_due,
    .publish = files_publish, .flush = files_flush, .idle = files_idle, .finish = files_finish, .close = files_close,
};
