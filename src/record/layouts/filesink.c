/* filesink.c - entries of the ring into the files of other tools' layouts. */
#include "record/layouts/filesink.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/hold.h"
#include "record/layouts/layout.h"
#include "record/ring/journal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long entries rest in the ring before the collector's files are written for their sake. */
#define KEPT_NS 1000000000ull

typedef struct filesink {
    tap_sink sink;
    const tap_layout *layout;
    tap_layout_options options;
    tap_collector *collector;
    tap_journal *journal;     /* made at the first loss */
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

static void lost(filesink *files, const tap_entry *entry, const tap_meta *meta, const tap_error *err)
{
    atomic_fetch_add(&files->sink.ring->tally->lost, 1);
    tap__ring_report(files->sink.ring, err->message);
    char who[64];
    snprintf(who, sizeof who, "rank%d.writer%d", files->options.rank, files->options.pid);
    if (!files->journal && tap__journal_create_beside(files->options.dir, who, &files->journal, NULL) != TAP_OK)
        return;
    char *name = tap__strndup(meta->text[TAP_META_NAME] ? meta->text[TAP_META_NAME] : "", meta->len[TAP_META_NAME]);
    if (name)
        tap__journal_add(files->journal, name, entry->step,
                         err->status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL : TAP_REASON_DISK_ERROR, 1,
                         entry->payload_bytes);
    tap__free(name);
}

/* The file of an entry that carries its bytes and was left to us. */
static void write_file(filesink *files, const tap_entry *entry, const tap_meta *meta, const void *payload)
{
    tap_error err;
    char *file = tap__strndup(meta->text[TAP_META_FILE], meta->len[TAP_META_FILE]);
    if (!file) {
        tap_fail_nomem(&err);
        lost(files, entry, meta, &err);
        return;
    }
    tap_tensor tensor = {(void *)(uintptr_t)payload, (tap_dtype)entry->dtype, meta->ndim, meta->shape, NULL};
    int64_t bytes = tap_tensor_bytes(&tensor);
    tap_status status = bytes < 0 || (uint64_t)bytes != entry->payload_bytes
                            ? tap_fail(&err, TAP_E_CORRUPT, "%s: what was saved is damaged: the program wrote over it", file)
                            : tap__layout_write_file(files->layout, files->options.dir, file, &tensor, &err);
    if (status != TAP_OK)
        lost(files, entry, meta, &err);
    tap__free(file);
}

/* Gives the space of everything taken back to the producers. */
static void release(filesink *files)
{
    files->kept_seq = files->tail_seq;
    files->kept_pos = files->tail_pos;
    files->kept_ns = tap__monotonic_ns();
    tap__ring_publish_tail(files->sink.ring, files->tail_seq, files->tail_pos);
}

/* force: at a step, a flush and the end; else the collector writes what is due. */
static void collector_flush(filesink *files, uint64_t now_ns, bool force)
{
    tap_error err;
    if (!files->collector)
        return;
    force = force || (files->tail_seq != files->kept_seq && now_ns - files->kept_ns > KEPT_NS);
    tap_status status = files->layout->collect_flush(files->collector, now_ns, force, &err);
    if (status != TAP_OK && !files->told)
        tap__ring_report(files->sink.ring, err.message);
    files->told = files->told || status != TAP_OK;
    if (force)
        release(files); /* also after a failure: the collector keeps trying, and producers must not hang */
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
    tap__free(files);
}

/* A forked child writes to <run>/rank<R>/child<pid>; who waits for the run waits for it too. */
static int hold_run(const tap_layout_options *options)
{
    char *run = tap__strdup(options->dir);
    for (int up = 0; run && options->child && up < 2; up++) {
        char *slash = strrchr(run, '/');
        if (slash)
            *slash = 0;
    }
    int hold = run ? tap__run_hold(run) : -1;
    tap__free(run);
    return hold;
}

static tap_status files_open(tap_ring *ring, tap_sink **out, tap_error *err)
{
    *out = NULL;
    tap_ring_header *h = ring->header;
    const tap_layout *layout = tap__layout_find(h->config.layout);
    filesink *files = tap__calloc(1, sizeof *files);
    if (!files)
        return tap_fail_nomem(err);
    files->sink = (tap_sink){&tap__files_sink, ring};
    files->layout = layout;
    files->options = tap__layout_options(&h->config);
    files->options.resume = atomic_load(&h->starts) != 0;
    files->tail_seq = files->kept_seq = atomic_load(&h->tail_seq);
    files->tail_pos = files->kept_pos = atomic_load(&h->tail_pos);
    files->kept_ns = tap__monotonic_ns();
    files->hold = -1;
    tap_status status = TAP_OK;
    if (layout->collect_open)
        status = layout->collect_open(&files->options, &files->collector, err);
    if (status != TAP_OK) {
        files_close(&files->sink);
        return status;
    }
    files->hold = hold_run(&files->options);
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
    collector_flush(of(sink), tap__monotonic_ns(), true);
}

static void files_take(tap_sink *sink, const tap_ring_desc *desc)
{
    filesink *files = of(sink);
    const tap_entry *entry = (const tap_entry *)(const void *)tap__ring_at(sink->ring, files->tail_pos);
    tap_meta meta;
    bool sane = entry->magic == TAP_ENTRY_MAGIC && entry->version == 1 && entry->length == desc->bytes &&
                sizeof *entry + (uint64_t)entry->meta_bytes <= desc->bytes &&
                entry->payload_offset <= desc->bytes && entry->payload_bytes <= desc->bytes - entry->payload_offset &&
                tap__meta_read(&meta, entry + 1, entry->meta_bytes);
    if (sane) {
        const void *payload = entry->payload_offset ? (const uint8_t *)entry + entry->payload_offset : NULL;
        if (entry->type == TAP_ENTRY_DATA && payload && meta.text[TAP_META_FILE] &&
            sink->ring->header->config.asynchronous)
            write_file(files, entry, &meta, payload);
        tap_error err;
        if (files->collector && files->layout->collect(files->collector, entry, payload, &err) != TAP_OK)
            lost(files, entry, &meta, &err);
    }
    if (!sane) {
        atomic_fetch_add(&sink->ring->tally->lost, 1);
        tap__ring_report(sink->ring, tap_text("a value is lost: the program wrote over the ring"));
    }
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
    if (!files->collector)
        release(files);
    else if (files->tail_pos - files->kept_pos > ring->mask / 4 ||
             files->tail_seq - files->kept_seq > ring->desc_mask / 4)
        files_flush(sink);
}

static void files_idle(tap_sink *sink, uint64_t now_ns)
{
    collector_flush(of(sink), now_ns, false);
}

static void files_finish(tap_sink *sink, const char *ended)
{
    (void)ended; /* other tools' files do not say */
    files_flush(sink);
    release(of(sink));
}

const tap_sink_type tap__files_sink = {
    .open = files_open, .tail = files_tail, .take = files_take, .skip = files_skip, .due = files_due,
    .publish = files_publish, .flush = files_flush, .idle = files_idle, .finish = files_finish, .close = files_close,
};
