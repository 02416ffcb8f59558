/* entry.c - entries and their meta blocks, bytes <-> memory. */
#include "record/ring/entry.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

typedef struct meta_item {
    uint32_t tag, len;
} meta_item;

static uint32_t round8(uint32_t len)
{
    return (len + 7u) & ~7u;
}

const char *tap_kind_name(tap_kind kind)
{
    static const char *const NAMES[] = {"forward", "grad", "input", "output", "param"};
    return (size_t)kind < sizeof NAMES / sizeof NAMES[0] ? NAMES[kind] : "unknown";
}

bool tap__reason_is_rule(tap_reason reason)
{
    return reason == TAP_REASON_KEEP || reason == TAP_REASON_MAX_BYTES || reason == TAP_REASON_FILTER ||
           reason == TAP_REASON_FROZEN || reason == TAP_REASON_LAST_N;
}

const char *tap__reason_text(tap_reason reason)
{
    static const char *const TEXTS[] = {
        [TAP_REASON_NONE] = "",
        [TAP_REASON_KEEP] = "only statistics were asked for",
        [TAP_REASON_MAX_BYTES] = "max_bytes was reached",
        [TAP_REASON_FILTER] = "a filter left it out",
        [TAP_REASON_FROZEN] = "recording froze after a NaN or infinity",
        [TAP_REASON_RING_FULL] = "the ring was full; make it larger or record less",
        [TAP_REASON_DISK_FULL] = "the disk was full",
        [TAP_REASON_DISK_ERROR] = "the disk could not be written",
        [TAP_REASON_KILLED] = "the process was killed while writing it",
        [TAP_REASON_NO_MEMORY] = "out of memory",
        [TAP_REASON_BAD_VALUE] = "the value could not be read",
        [TAP_REASON_NO_WRITER] = "no writer could be started",
        [TAP_REASON_LAST_N] = "older than the last steps that are kept",
        [TAP_REASON_BAD_NAME] = "the layout has no file for a name like this",
    };
    size_t count = sizeof TEXTS / sizeof TEXTS[0];
    return tap_text((size_t)reason < count ? TEXTS[reason] : "unknown reason");
}

size_t tap__path_show(const char *path, size_t len, char *out, size_t cap)
{
    size_t used = 0;
    bool kind_next = true;
    for (size_t i = 0; i < len; i++) {
        char c = path[i];
        if (kind_next) {
            kind_next = false;
            continue;
        }
        if (c == 0x1F) {
            c = '.';
            kind_next = true;
        }
        if (used + 1 < cap)
            out[used] = c;
        used++;
    }
    if (cap)
        out[used < cap ? used : cap - 1] = 0;
    return used;
}

uint32_t tap__meta_size(const tap_meta *meta)
{
    uint32_t size = meta->ndim ? (uint32_t)sizeof(meta_item) + 8u * (uint32_t)meta->ndim : 0;
    for (int tag = 1; tag < TAP_META_END; tag++)
        if (meta->text[tag])
            size += (uint32_t)sizeof(meta_item) + round8(meta->len[tag]);
    return size;
}

static char *item_write(char *at, uint32_t tag, const void *bytes, uint32_t len)
{
    meta_item item = {tag, len};
    memcpy(at, &item, sizeof item);
    at += sizeof item;
    memcpy(at, bytes, len);
    memset(at + len, 0, round8(len) - len);
    return at + round8(len);
}

void tap__meta_write(const tap_meta *meta, void *dst)
{
    char *at = dst;
    if (meta->ndim)
        at = item_write(at, TAP_META_SHAPE, meta->shape, 8u * (uint32_t)meta->ndim);
    for (uint32_t tag = 1; tag < TAP_META_END; tag++)
        if (meta->text[tag])
            at = item_write(at, tag, meta->text[tag], meta->len[tag]);
}

bool tap__meta_read(tap_meta *meta, const void *block, size_t len)
{
    memset(meta, 0, sizeof *meta);
    const char *at = block;
    while (len) {
        meta_item item;
        if (len < sizeof item)
            return false;
        memcpy(&item, at, sizeof item);
        at += sizeof item;
        len -= sizeof item;
        if (item.len > len || round8(item.len) > len || round8(item.len) < item.len)
            return false;
        if (item.tag == TAP_META_SHAPE) {
            if (item.len % 8 || item.len / 8 > TAP_MAX_NDIM)
                return false;
            meta->shape = (const int64_t *)(const void *)at;
            meta->ndim = (int32_t)(item.len / 8);
        } else if (item.tag < TAP_META_END) {
            meta->text[item.tag] = at;
            meta->len[item.tag] = item.len;
        }
        at += round8(item.len);
        len -= round8(item.len);
    }
    return true;
}

static uint64_t entry_hash(const tap_entry *entry, const void *meta)
{
    return tap_hash_bytes(entry, offsetof(tap_entry, header_hash)) ^ tap_hash_bytes(meta, entry->meta_bytes);
}

void tap__entry_seal(tap_entry *entry, const void *meta)
{
    entry->header_hash = entry_hash(entry, meta);
}

tap_status tap__entry_check(const void *bytes, uint64_t avail, const tap_entry **out, bool *payload_cut)
{
    const tap_entry *entry = bytes;
    if (avail < sizeof *entry)
        return TAP_E_TRUNCATED;
    if (entry->magic != TAP_ENTRY_MAGIC || entry->version != 1 || entry->meta_bytes % 8 ||
        entry->length % TAP_ENTRY_ALIGN || entry->ndim > TAP_MAX_NDIM)
        return TAP_E_CORRUPT;
    uint64_t head = sizeof *entry + (uint64_t)entry->meta_bytes;
    if (entry->length < head || (entry->payload_bytes && (entry->payload_offset < head ||
        entry->payload_offset > entry->length || entry->payload_bytes > entry->length - entry->payload_offset)))
        return TAP_E_CORRUPT;
    if (avail < head)
        return TAP_E_TRUNCATED;
    if (entry_hash(entry, entry + 1) != entry->header_hash)
        return TAP_E_CORRUPT;
    *payload_cut = entry->payload_bytes && entry->payload_offset + entry->payload_bytes > avail;
    *out = entry;
    return TAP_OK;
}

/* Copies one meta string to *at and moves it on; the room was counted before. */
static const char *string_take(const tap_meta *meta, tap_meta_tag tag, char **at)
{
    if (!meta->text[tag])
        return "";
    char *start = *at;
    memcpy(start, meta->text[tag], meta->len[tag]);
    start[meta->len[tag]] = 0;
    *at = start + meta->len[tag] + 1;
    return start;
}

tap_status tap__entry_decode(const tap_entry *entry, tap_decoded *decoded, tap_error *err)
{
    tap_meta meta;
    if (!tap__meta_read(&meta, entry + 1, entry->meta_bytes))
        return tap_fail(err, TAP_E_CORRUPT, "entry %llu has a malformed meta block", (unsigned long long)entry->seq);
    size_t need = (size_t)entry->meta_bytes + TAP_META_END + 1;
    if (need > decoded->cap) {
        char *grown = tap__resize(decoded->strings, need, 1);
        if (!grown)
            return tap_fail_nomem(err);
        decoded->strings = grown;
        decoded->cap = need;
    }
    tap_record *record = &decoded->record;
    memset(record, 0, sizeof *record);
    record->seq = entry->seq;
    record->step = entry->step;
    record->call = entry->call;
    record->kind = (tap_kind)entry->kind;
    record->value_type = (tap_value_type)entry->value_type;
    record->dtype = (tap_dtype)entry->dtype;
    record->ndim = meta.ndim;
    if (meta.ndim)
        memcpy(decoded->shape, meta.shape, 8 * (size_t)meta.ndim);
    record->shape = decoded->shape;
    record->flags = entry->flags;
    record->replay = entry->replay;
    record->time_ns = entry->time_ns;
    record->has_stats = entry->has & TAP_HAS_STATS;
    record->has_hash = entry->has & TAP_HAS_HASH;
    record->stats = (tap_stats){entry->count, entry->nan, entry->pos_inf, entry->neg_inf, entry->zero,
                                entry->min, entry->max, entry->mean, entry->norm};
    record->hash = entry->hash;
    record->payload_bytes = entry->payload_bytes;
    record->state = (tap_record_state)entry->state;
    record->line = entry->line;
    char *at = decoded->strings;
    record->name = string_take(&meta, TAP_META_NAME, &at);
    record->source = string_take(&meta, TAP_META_SOURCE, &at);
    record->module = string_take(&meta, TAP_META_MODULE, &at);
    record->graph = string_take(&meta, TAP_META_GRAPH, &at);
    record->node = string_take(&meta, TAP_META_NODE, &at);
    record->device = string_take(&meta, TAP_META_DEVICE, &at);
    record->placements = string_take(&meta, TAP_META_PLACEMENTS, &at);
    record->type_name = string_take(&meta, TAP_META_TYPE_NAME, &at);
    record->path = at; /* the shown form is never longer than the stored one */
    tap__path_show(meta.text[TAP_META_PATH], meta.len[TAP_META_PATH], at, meta.len[TAP_META_PATH] + 1u);
    record->file = "";
    return TAP_OK;
}

void tap__decoded_free(tap_decoded *decoded)
{
    tap__free(decoded->strings);
    decoded->strings = NULL;
    decoded->cap = 0;
}
