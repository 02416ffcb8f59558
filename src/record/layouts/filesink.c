/* filesink.c - seed layouts: entries of the ring into files. */
#include "record/layouts/filesink.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/hold.h"

#include <stdio.h>
#include <unistd.h>

/* How long entries rest in the ring before the collector's files are written for their sake. */
#define KEPT_NS 1000000000ull

static void lost(tap_filesink *sink, const tap_entry *entry, const tap_meta *meta, const tap_error *err)
{
    atomic_fetch_add(&sink->ring->header->dropped, 1);
    tap__ring_report(sink->ring, err->message);
    char who[64];
    snprintf(who, sizeof who, "rank%d.writer%d", sink->options.rank, sink->options.pid);
    if (!sink->journal && tap__journal_create_beside(sink->options.dir, who, &sink->journal, NULL) != TAP_OK)
        return;
    char *name = tap__strndup(meta->text[TAP_META_NAME] ? meta->text[TAP_META_NAME] : "", meta->len[TAP_META_NAME]);
    if (name)
        tap__journal_add(sink->journal, name, entry->step,
                         err->status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL : TAP_REASON_DISK_ERROR, 1,
                         entry->payload_bytes);
    tap__free(name);
}

tap_status tap__filesink_open(tap_filesink *sink, tap_ring *ring, const tap_layout *layout, tap_error *err)
{
    *sink = (tap_filesink){.hold = -1};
    sink->ring = ring;
    sink->layout = layout;
    sink->options = tap__layout_options(&ring->header->config);
    sink->tail_seq = atomic_load(&ring->header->tail_seq);
    sink->tail_pos = atomic_load(&ring->header->tail_pos);
    sink->kept_seq = sink->tail_seq;
    sink->kept_pos = sink->tail_pos;
    sink->kept_ns = tap__monotonic_ns();
    sink->options.resume = atomic_load(&ring->header->starts) != 0;
    if (layout->collect_open)
        TAP_TRY(layout->collect_open(&sink->options, &sink->collector, err));
    sink->hold = tap__run_hold(sink->options.dir);
    return TAP_OK;
}

/* The file of an entry that carries its bytes and was left to us. */
static void write_file(tap_filesink *sink, const tap_entry *entry, const tap_meta *meta, const void *payload)
{
    tap_error err;
    char *file = tap__strndup(meta->text[TAP_META_FILE], meta->len[TAP_META_FILE]);
    if (!file) {
        tap_fail_nomem(&err);
        lost(sink, entry, meta, &err);
        return;
    }
    tap_tensor tensor = {(void *)(uintptr_t)payload, (tap_dtype)entry->dtype, meta->ndim, meta->shape, NULL};
    int64_t bytes = tap_tensor_bytes(&tensor);
    tap_status status = bytes < 0 || (uint64_t)bytes != entry->payload_bytes
                            ? tap_fail(&err, TAP_E_CORRUPT, "%s: what was saved is damaged: the program wrote over it", file)
                            : tap__layout_write_file(sink->layout, sink->options.dir, file, &tensor, &err);
    if (status != TAP_OK)
        lost(sink, entry, meta, &err);
    tap__free(file);
}

void tap__filesink_take(tap_filesink *sink, const tap_ring_desc *desc)
{
    const tap_entry *entry = (const tap_entry *)(const void *)tap__ring_at(sink->ring, sink->tail_pos);
    tap_meta meta;
    bool sane = entry->magic == TAP_ENTRY_MAGIC && entry->version == 1 && entry->length == desc->bytes &&
                sizeof *entry + (uint64_t)entry->meta_bytes <= desc->bytes &&
                entry->payload_offset <= desc->bytes && entry->payload_bytes <= desc->bytes - entry->payload_offset &&
                tap__meta_read(&meta, entry + 1, entry->meta_bytes);
    if (sane) {
        const void *payload = entry->payload_offset ? (const uint8_t *)entry + entry->payload_offset : NULL;
        if (entry->type == TAP_ENTRY_DATA && payload && meta.text[TAP_META_FILE] &&
            sink->ring->header->config.asynchronous)
            write_file(sink, entry, &meta, payload);
        tap_error err;
        if (sink->collector && sink->layout->collect(sink->collector, entry, payload, &err) != TAP_OK)
            lost(sink, entry, &meta, &err);
    }
    if (!sane) {
        atomic_fetch_add(&sink->ring->header->dropped, 1);
        tap__ring_report(sink->ring, tap_text("a value is lost: the program wrote over the ring"));
    }
    bool step = sane && entry->type == TAP_ENTRY_STEP;
    tap__filesink_skip(sink, sink->tail_seq + 1, sink->tail_pos + desc->bytes);
    if (step)
        tap__filesink_flush(sink, true);
}

void tap__filesink_skip(tap_filesink *sink, uint64_t seq_end, uint64_t pos_end)
{
    sink->tail_seq = seq_end;
    sink->tail_pos = pos_end;
}

/* Gives the space of everything taken back to the producers. */
static void release(tap_filesink *sink)
{
    sink->kept_seq = sink->tail_seq;
    sink->kept_pos = sink->tail_pos;
    sink->kept_ns = tap__monotonic_ns();
    tap__ring_publish_tail(sink->ring, sink->tail_seq, sink->tail_pos);
}

/* What a collector holds is only in its memory: should this writer die, the next one takes it from the ring again. */
void tap__filesink_publish(tap_filesink *sink)
{
    const tap_ring *ring = sink->ring;
    atomic_fetch_add_explicit(&ring->header->progress, 1, memory_order_relaxed);
    if (!sink->collector)
        release(sink);
    else if (sink->tail_pos - sink->kept_pos > ring->mask / 4 || sink->tail_seq - sink->kept_seq > ring->desc_mask / 4)
        tap__filesink_flush(sink, true);
}

void tap__filesink_flush(tap_filesink *sink, bool force)
{
    tap_error err;
    uint64_t now = tap__monotonic_ns();
    if (!sink->collector)
        return;
    force = force || (sink->tail_seq != sink->kept_seq && now - sink->kept_ns > KEPT_NS);
    tap_status status = sink->layout->collect_flush(sink->collector, now, force, &err);
    if (status != TAP_OK && !sink->told)
        tap__ring_report(sink->ring, err.message);
    sink->told = sink->told || status != TAP_OK;
    if (force)
        release(sink); /* also after a failure: the collector keeps trying, and producers must not hang */
}

void tap__filesink_finish(tap_filesink *sink)
{
    tap__filesink_flush(sink, true);
    release(sink);
}

void tap__filesink_close(tap_filesink *sink)
{
    if (sink->collector)
        sink->layout->collect_close(sink->collector);
    tap__journal_close(sink->journal);
    if (sink->hold >= 0)
        close(sink->hold);
    *sink = (tap_filesink){.hold = -1};
}
