/* reserve.c - the first half of a save (job.h): name, numbers, a range of the ring, and the entry begun in it. Waits for room
 * as long as the writer makes progress. Nothing allocates except the first save of a name. */
#include "base/clock.h"
#include "base/sized.h"
#include "record/capture/job.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_MS 20

const tap_save_info tap__no_info = TAP_SAVE_INFO();
static _Thread_local int32_t thread_id;

void tap__save_forked(void)
{
    thread_id = 0;
}

/* ------------------------------------------------------------------------------------------------ names and numbers */

bool tap__job_begin(tap_job *job, tap_recorder *rec, const char *name, const tap_save_info *info, tap_status *status)
{
    memset(job, 0, offsetof(tap_job, entry)); /* the rest is set with the place */
    job->rec = rec;
    job->leaf.info = info ? info : &tap__no_info;
    job->session = tap__recorder_session(rec);
    *status = TAP_E_LOST; /* a forked child that could not open its own recorder has said so */
    if (!job->session) {
        if (rec->parent)
            atomic_fetch_add_explicit(&rec->parent->dropped, 1, memory_order_relaxed);
        return false;
    }
    job->site = tap__site_table_find(&job->session->sites, name ? name : "");
    *status = TAP_E_NOMEM;
    if (!job->site) {
        tap__job_count_dropped(job);
        return false;
    }
    *status = TAP_OK;
    if (!job->site->wanted) {
        atomic_fetch_add_explicit(&rec->filtered, 1, memory_order_relaxed);
        return false;
    }
    job->leaf.name = job->site->name;
    job->leaf.kind = job->leaf.info->kind;
    job->leaf.flags = job->leaf.info->flags;
    job->leaf.step = job->leaf.info->has_step ? job->leaf.info->step : atomic_load(&rec->step);
    job->type = TAP_ENTRY_DATA;
    return true;
}

void tap__job_number(tap_job *job)
{
    const tap_save_info *info = job->leaf.info;
    unsigned counter = info->flags & TAP_SAVE_RECOMPUTED ? TAP_COUNTER_RECOMPUTED : (unsigned)job->leaf.kind;
    job->leaf.call = info->has_call ? info->call : tap__site_call(job->site, counter, job->leaf.step);
    if (info->saved)
        *info->saved = (tap_saved){true, job->leaf.step, job->leaf.call};
}

unsigned tap__job_wants(const tap_job *job)
{
    unsigned keep = job->rec->options.keep, what = 0;
    if (!job->leaf.tensor || !job->leaf.tensor->data || job->leaf.value_type == TAP_VALUE_META)
        return 0;
    if (keep & TAP_KEEP_STATS)
        what |= TAP_SCAN_STATS;
    else if (keep & TAP_KEEP_HEALTH || job->rec->options.freeze_on_nan)
        what |= TAP_SCAN_HEALTH;
    if (job->payload || keep & TAP_KEEP_HASH)
        what |= TAP_SCAN_HASH;
    return what;
}

/* ---------------------------------------------------------------------------------------------- room in the ring */

bool tap__session_is_stuck(const tap_session *session)
{
    uint64_t given_up = atomic_load(&session->stalled_at);
    return given_up && given_up - 1 == atomic_load(&session->ring.header->progress);
}

bool tap__job_wait(tap_job *job, tap_job_wait *wait, uint32_t seen)
{
    tap_session *s = job->session;
    tap_ring_header *h = s->ring.header;
    uint64_t progress = atomic_load(&h->progress), now = tap__monotonic_ns();
    tap__recorder_mind_writer(job->rec, s, false);
    tap__recorder_hear(job->rec, s);
    if (tap__session_is_stuck(s))
        return false;
    atomic_store(&s->stalled_at, 0);
    if (!wait->since_ns || wait->progress != progress)
        *wait = (tap_job_wait){now, progress};
    tap__ring_wake_writer(&s->ring);
    tap__ring_wait_tail(&s->ring, seen, WAIT_MS);
    if (now - wait->since_ns < (uint64_t)job->rec->options.stall_ms * 1000000u)
        return true;
    atomic_store(&s->stalled_at, progress + 1);
    tap_error err;
    tap_fail(&err, TAP_E_TIMEOUT, "%s: the disk took nothing for %d ms; from here on values are dropped and counted "
             "until it does", s->dir->path, job->rec->options.stall_ms);
    tap__recorder_tell(job->rec, TAP_TOLD_STALL, &err);
    return false;
}

/* The writer of another tool's layout keeps in the ring what a full disk does not take: it is full until the disk is not. */
static tap_reason stuck(const tap_job *job)
{
    uint32_t degraded = atomic_load_explicit(&job->session->ring.header->degraded, memory_order_relaxed);
    return job->session->layout->native ? TAP_REASON_NONE : (tap_reason)degraded;
}

tap_reason tap__job_why_full(const tap_job *job)
{
    return stuck(job) ? stuck(job) : TAP_REASON_RING_FULL;
}

static bool make_room(tap_job *job, uint64_t head, bool page, uint64_t *payload_at)
{
    tap_ring *ring = &job->session->ring;
    tap_job_wait wait = {0, 0};
    for (;;) {
        tap_reason degraded = (tap_reason)atomic_load_explicit(&ring->header->degraded, memory_order_relaxed);
        if (job->payload && degraded != TAP_REASON_NONE && job->session->layout->native) {
            job->payload = 0;
            job->state = tap__reason_is_rule(degraded) ? TAP_RECORD_RULE : TAP_RECORD_STATS_ONLY;
            job->reason = degraded;
        }
        uint32_t seen = atomic_load(&ring->header->tail_futex);
        if (tap__ring_reserve(ring, head, job->payload, page, &job->range, payload_at))
            return true;
        tap_full_policy full = job->rec->options.full;
        bool fits = tap__ring_can_hold(ring, head, job->payload); /* else it never will: a name as long as the ring */
        if (fits && !stuck(job) && full == TAP_FULL_BLOCK && tap__job_wait(job, &wait, seen))
            continue;
        if (!job->payload || full == TAP_FULL_DROP)
            return false;
        job->payload = 0; /* try once more for the statistics alone */
        job->state = TAP_RECORD_STATS_ONLY;
        job->reason = TAP_REASON_RING_FULL;
    }
}

/* -------------------------------------------------------------------------------------------------- entries begun */

static void meta_text(tap_meta *meta, tap_meta_tag tag, const char *text)
{
    if (text && *text) {
        meta->text[tag] = text;
        meta->len[tag] = (uint32_t)strlen(text);
    }
}

static void fill_meta(const tap_job *job, tap_meta *meta)
{
    const tap_save_info *info = job->leaf.info;
    memset(meta, 0, sizeof *meta);
    meta->text[TAP_META_NAME] = job->site ? job->site->name : NULL;
    meta->len[TAP_META_NAME] = job->site ? job->site->len : 0;
    if (job->leaf.path_len) {
        meta->text[TAP_META_PATH] = job->leaf.path;
        meta->len[TAP_META_PATH] = (uint32_t)job->leaf.path_len;
    }
    if (job->leaf.tensor) {
        meta->ndim = job->leaf.tensor->ndim;
        meta->shape = job->leaf.tensor->shape;
    }
    meta_text(meta, TAP_META_FILE, job->file);
    meta_text(meta, TAP_META_TYPE_NAME, job->type_name);
    if (info == &tap__no_info)
        return;
    meta_text(meta, TAP_META_SOURCE, info->source);
    meta_text(meta, TAP_META_MODULE, info->module);
    meta_text(meta, TAP_META_GRAPH, info->graph);
    meta_text(meta, TAP_META_NODE, info->node);
    meta_text(meta, TAP_META_DEVICE, info->device);
    meta_text(meta, TAP_META_PLACEMENTS, info->placements);
    meta_text(meta, TAP_META_SUFFIX, info->suffix);
    meta_text(meta, TAP_META_ARGUMENT, info->argument);
}

/* Everything known before the value is read: enough to say what was being written if we die now. */
static void start_entry(const tap_job *job, tap_entry *entry, const tap_meta *meta, uint32_t meta_bytes)
{
    const tap_save_info *info = job->leaf.info;
    memset(entry, 0, sizeof *entry);
    entry->version = 1;
    entry->type = (uint8_t)job->type;
    entry->kind = (uint8_t)job->leaf.kind;
    entry->value_type = (uint8_t)job->leaf.value_type;
    if (job->leaf.tensor) {
        entry->dtype = (uint8_t)job->leaf.tensor->dtype;
        entry->ndim = (uint8_t)job->leaf.tensor->ndim;
    }
    entry->state = (uint8_t)job->state;
    entry->reason = (uint8_t)job->reason;
    entry->flags = (uint16_t)job->leaf.flags;
    entry->step = job->leaf.step;
    entry->call = job->leaf.call;
    entry->meta_bytes = meta_bytes;
    entry->replay = info->replay;
    entry->time_ns = tap__wall_ns();
    entry->count = job->count;
    entry->ref = job->lost_bytes;
    entry->line = info->line;
    entry->graph_id = info->graph_id;
    entry->stamp_us = info->stamp_us;
    if (!thread_id)
        thread_id = (int32_t)syscall(SYS_gettid);
    entry->tid = thread_id;
    entry->seq = job->range.seq;
    entry->length = job->range.bytes;
    tap__meta_write(meta, entry + 1);
    entry->magic = TAP_ENTRY_MAGIC;
}

bool tap__job_place(tap_job *job, bool page, uint64_t *payload_at)
{
    tap_meta meta;
    fill_meta(job, &meta);
    uint32_t meta_bytes = tap__meta_size(&meta);
    if (!make_room(job, sizeof(tap_entry) + meta_bytes, page, payload_at))
        return false;
    job->entry = (tap_entry *)(void *)job->range.data;
    start_entry(job, job->entry, &meta, meta_bytes);
    return true;
}

static tap_status reserve_whole(tap_job *job)
{
    uint64_t payload_at;
    job->streams = false;
    if (!tap__job_place(job, false, &payload_at))
        return job->type == TAP_ENTRY_DATA ? tap__job_lose(job, tap__job_why_full(job)) : TAP_E_LOST;
    job->room = job->payload ? job->range.data + payload_at : NULL;
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------- tensors larger than the ring */

static int take_slot(tap_job *job)
{
    tap_job_wait wait = {0, 0};
    for (;;) {
        uint32_t seen = atomic_load(&job->session->ring.header->tail_futex);
        int slot = tap__ring_take_slot(&job->session->ring);
        if (slot >= 0 || job->rec->options.full != TAP_FULL_BLOCK || !tap__job_wait(job, &wait, seen))
            return slot;
    }
}

/* The entry of a value that streams says where its bytes will lie; the writer needs it before the first of them. */
static tap_status reserve_stream(tap_job *job)
{
    uint64_t total = job->payload, payload_at;
    job->slot = take_slot(job);
    if (job->slot < 0) {
        job->state = TAP_RECORD_STATS_ONLY;
        job->reason = TAP_REASON_RING_FULL;
        job->payload = 0;
        return reserve_whole(job);
    }
    job->type = TAP_ENTRY_BIG;
    job->payload = 0; /* the entry itself carries none */
    if (!tap__job_place(job, true, &payload_at)) {
        tap__ring_give_slot(&job->session->ring, job->slot);
        return tap__job_lose(job, TAP_REASON_RING_FULL);
    }
    job->range.desc->slot = (uint32_t)job->slot;
    job->entry->payload_offset = payload_at;
    job->entry->payload_bytes = total;
    job->entry->length = payload_at + tap__round_up(total, TAP_PAGE);
    job->seq = job->range.seq;
    job->payload = total;
    job->streams = job->complete = true;
    job->sent = 0;
    job->room = NULL;
    tap__job_count_saved(job);
    tap__job_finish(job);
    return TAP_OK;
}

tap_status tap__job_reserve(tap_job *job)
{
    tap_ring *ring = &job->session->ring;
    job->wanted_payload = job->payload != 0;
    if (job->payload > tap__ring_max_payload(ring) &&
        !atomic_load_explicit(&ring->header->degraded, memory_order_relaxed))
        return reserve_stream(job);
    return reserve_whole(job);
}
