/* filesink.c - seed layouts: entries of the ring into files. */
#include "record/filesink.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/seglog.h"

#include <string.h>

tap_layout_options tap__ring_layout_options(const tap_ring_config *config)
{
    return (tap_layout_options){
        .dir = config->dir,
        .dir_shown = config->dir_shown,
        .child = config->child,
        .several_nodes = config->several_nodes,
        .rank = config->rank,
        .world_size = config->world_size,
        .device_index = config->device_index,
        .pid = config->pid,
        .distributed = config->distributed,
        .checksum = config->checksum,
        .keep = config->keep,
        .framework = config->framework,
        .first_step = config->first_step,
    };
}

static void lost(tap_filesink *sink, const tap_error *err)
{
    atomic_fetch_add(&sink->ring->header->dropped, 1);
    tap__ring_report(sink->ring, err->message);
}

tap_status tap__filesink_open(tap_filesink *sink, tap_ring *ring, const tap_layout *layout, tap_error *err)
{
    memset(sink, 0, sizeof *sink);
    sink->ring = ring;
    sink->layout = layout;
    sink->options = tap__ring_layout_options(&ring->header->config);
    sink->tail_seq = atomic_load(&ring->header->tail_seq);
    sink->tail_pos = atomic_load(&ring->header->tail_pos);
    sink->options.resume = sink->tail_seq > 0;
    return layout->collect_open ? layout->collect_open(&sink->options, &sink->collector, err) : TAP_OK;
}

/* The file of an entry that carries its bytes and was left to us. */
static void write_file(tap_filesink *sink, const tap_entry *entry, const tap_meta *meta, const void *payload)
{
    tap_error err;
    char *file = tap__strndup(meta->text[TAP_META_FILE], meta->len[TAP_META_FILE]);
    if (!file) {
        tap_fail_nomem(&err);
        lost(sink, &err);
        return;
    }
    tap_tensor tensor = {(void *)(uintptr_t)payload, (tap_dtype)entry->dtype, meta->ndim, meta->shape, NULL};
    if (tap__layout_write_file(sink->layout, sink->options.dir, file, &tensor, &err) != TAP_OK)
        lost(sink, &err);
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
            lost(sink, &err);
        if (entry->type == TAP_ENTRY_STEP)
            tap__filesink_flush(sink, true);
    }
    tap__filesink_skip(sink, sink->tail_seq + 1, sink->tail_pos + desc->bytes);
}

void tap__filesink_skip(tap_filesink *sink, uint64_t seq_end, uint64_t pos_end)
{
    sink->tail_seq = seq_end;
    sink->tail_pos = pos_end;
}

void tap__filesink_publish(tap_filesink *sink)
{
    atomic_fetch_add_explicit(&sink->ring->header->progress, 1, memory_order_relaxed);
    tap__ring_publish_tail(sink->ring, sink->tail_seq, sink->tail_pos);
}

void tap__filesink_flush(tap_filesink *sink, bool force)
{
    tap_error err;
    if (!sink->collector || !sink->layout->collect_flush)
        return;
    if (sink->layout->collect_flush(sink->collector, tap__monotonic_ns(), force, &err) != TAP_OK)
        tap__ring_report(sink->ring, err.message);
}

void tap__filesink_finish(tap_filesink *sink)
{
    tap__filesink_flush(sink, true);
    tap__filesink_publish(sink);
}

void tap__filesink_close(tap_filesink *sink)
{
    if (sink->collector)
        sink->layout->collect_close(sink->collector);
    memset(sink, 0, sizeof *sink);
}
