/* save.c - the capture path: a value becomes an entry in the ring. One pass over the tensor fills statistics, hash and
 * copy; nothing allocates except the first save of a name. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/checksum.h"
#include "record/capture/recorder.h"
#include "tensor/pass.h"
#include "tensor/walk.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A piece of a large tensor: enough for the disk, little enough that several fit the ring. */
#define PIECE_BYTES (4u << 20)
#define WAIT_MS 20
#define MAX_DEPTH 1000

static const tap_save_info NO_INFO;
static _Thread_local int32_t thread_id;

void tap__save_forked(void)
{
    thread_id = 0;
}

/* One leaf on its way into the ring. */
typedef struct save_job {
    tap_recorder *rec;
    tap_session *session;
    tap_site *site;
    tap_leaf leaf;
    const char *type_name;
    const char *file;      /* relative path of its file, layouts of other tools */
    bool keep_payload;
    tap_entry_type type;
    tap_record_state state;
    tap_reason reason;
    uint64_t count;        /* LOST */
    uint64_t lost_bytes;
    uint64_t payload;
} save_job;

/* ---------------------------------------------------------------------------------------------------------- losing */

/* A step or a flush writes down what was counted. */
static void count_dropped(const save_job *job)
{
    atomic_fetch_add_explicit(&job->session->tally->dropped, 1, memory_order_relaxed);
}

/* To be told by a LOST entry, or the journal, later. */
static void count_untold(const save_job *job, tap_reason reason)
{
    atomic_store_explicit(&job->site->lost_reason, (uint32_t)reason, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->site->lost_bytes, job->payload, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->site->lost, 1, memory_order_relaxed);
}

static tap_status tell_lost(save_job *job, tap_reason reason)
{
    tap_error err;
    tap_fail(&err, TAP_E_LOST, "%.200s was not recorded: %s; later ones are only counted, run: tensortap verify %s",
             job->site->name, tap__reason_text(reason), job->session->dir);
    tap__recorder_tell(job->rec, TAP_TOLD_DROP, &err);
    return TAP_E_LOST;
}

static tap_status lose(save_job *job, tap_reason reason)
{
    count_dropped(job);
    count_untold(job, reason);
    return tell_lost(job, reason);
}

/* --------------------------------------------------------------------------------------------- room in the ring */

typedef struct room_wait {
    uint64_t since_ns, progress;
} room_wait;

/* Waits a little for the tail to move. False: the writer is stuck, give up. */
static bool wait_for_room(save_job *job, room_wait *wait, uint32_t seen)
{
    tap_session *s = job->session;
    tap_ring_header *h = s->ring.header;
    uint64_t progress = atomic_load(&h->progress), now = tap__monotonic_ns();
    uint64_t given_up = atomic_load(&s->stalled_at);
    tap__recorder_mind_writer(job->rec, s, false);
    tap__recorder_hear(job->rec, s);
    if (given_up && given_up - 1 == progress)
        return false;
    atomic_store(&s->stalled_at, 0);
    if (!wait->since_ns || wait->progress != progress)
        *wait = (room_wait){now, progress};
    tap__ring_wake_writer(&s->ring);
    tap__ring_wait_tail(&s->ring, seen, WAIT_MS);
    if (now - wait->since_ns < (uint64_t)job->rec->options.stall_ms * 1000000u)
        return true;
    atomic_store(&s->stalled_at, progress + 1);
    tap_error err;
    tap_fail(&err, TAP_E_TIMEOUT, "%s: the disk took nothing for %d ms; from here on values are dropped and counted "
             "until it does", s->dir, job->rec->options.stall_ms);
    tap__recorder_tell(job->rec, TAP_TOLD_STALL, &err);
    return false;
}

/* Room for an entry; *payload is set to 0 when its bytes have to be left out. False: nothing can be kept. */
static bool make_room(save_job *job, uint64_t head, bool page, tap_ring_range *range, uint64_t *payload_at)
{
    tap_ring *ring = &job->session->ring;
    room_wait wait = {0, 0};
    for (;;) {
        tap_reason degraded = (tap_reason)atomic_load_explicit(&ring->header->degraded, memory_order_relaxed);
        if (job->payload && degraded != TAP_REASON_NONE && job->session->layout->native) {
            job->payload = 0;
            job->state = tap__reason_is_rule(degraded) ? TAP_RECORD_RULE : TAP_RECORD_STATS_ONLY;
            job->reason = degraded;
        }
        uint32_t seen = atomic_load(&ring->header->tail_futex);
        if (tap__ring_reserve(ring, head, job->payload, page, range, payload_at))
            return true;
        tap_full_policy full = job->rec->options.full;
        bool fits = tap__ring_can_hold(ring, head, job->payload); /* else it never will: a name as long as the ring */
        if (fits && full == TAP_FULL_BLOCK && wait_for_room(job, &wait, seen))
            continue;
        if (!job->payload || full == TAP_FULL_DROP)
            return false;
        job->payload = 0; /* try once more for the statistics alone */
        job->state = TAP_RECORD_STATS_ONLY;
        job->reason = TAP_REASON_RING_FULL;
    }
}

static bool is_announcement(const save_job *job)
{
    return job->leaf.flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE);
}

/* Before the entry is committed: see tally.h. */
static void count_saved(const save_job *job)
{
    atomic_fetch_add_explicit(&job->session->tally->saved, 1, memory_order_relaxed);
}

static void count_kept(const save_job *job, uint64_t bytes)
{
    tap_tally *tally = job->session->tally;
    atomic_fetch_add_explicit(&tally->saved_bytes, bytes, memory_order_relaxed);
    if (job->state == TAP_RECORD_STATS_ONLY)
        atomic_fetch_add_explicit(&tally->stats_only, 1, memory_order_relaxed);
}

static void wake_when_due(tap_ring *ring)
{
    tap_ring_header *h = ring->header;
    if (!atomic_load_explicit(&h->writer_asleep, memory_order_relaxed))
        return;
    uint64_t used = tap__ring_used(ring);
    uint64_t entries = tap__ring_head_seq(ring) - atomic_load_explicit(&h->tail_seq, memory_order_relaxed);
    if (used >= ring->mask / 4 || entries >= ring->desc_mask / 4)
        tap__ring_wake_writer(ring);
}

/* -------------------------------------------------------------------------------------------------------- entries */

static void meta_text(tap_meta *meta, tap_meta_tag tag, const char *text)
{
    if (text && *text) {
        meta->text[tag] = text;
        meta->len[tag] = (uint32_t)strlen(text);
    }
}

static void fill_meta(const save_job *job, tap_meta *meta)
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
    if (info == &NO_INFO)
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
static void start_entry(const save_job *job, tap_entry *entry, const tap_meta *meta, uint32_t meta_bytes)
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
    tap__meta_write(meta, entry + 1);
    entry->magic = TAP_ENTRY_MAGIC;
}

static void set_stats(tap_entry *entry, const tap_stats *stats, unsigned what)
{
    entry->has = (uint16_t)((what & TAP_SCAN_STATS ? TAP_HAS_STATS : 0) | (what & TAP_SCAN_HASH ? TAP_HAS_HASH : 0) |
                            (what & TAP_SCAN_HEALTH ? TAP_HAS_HEALTH : 0));
    if (!(what & (TAP_SCAN_STATS | TAP_SCAN_HEALTH)))
        return;
    entry->count = stats->count;
    entry->nan = stats->nan;
    entry->pos_inf = stats->pos_inf;
    entry->neg_inf = stats->neg_inf;
    entry->zero = stats->zero;
    entry->min = stats->min;
    entry->max = stats->max;
    entry->mean = stats->mean;
    entry->norm = stats->norm;
}

static void look_for_bad(save_job *job, const tap_entry *entry)
{
    if (entry->nan | entry->pos_inf | entry->neg_inf)
        atomic_store_explicit(&job->rec->bad_seen, true, memory_order_relaxed);
}

static unsigned what_to_scan(const save_job *job, bool with_payload)
{
    unsigned keep = job->rec->options.keep, what = 0;
    if (!job->leaf.tensor || !job->leaf.tensor->data || job->leaf.value_type == TAP_VALUE_META)
        return 0;
    if (keep & TAP_KEEP_STATS)
        what |= TAP_SCAN_STATS;
    else if (keep & TAP_KEEP_HEALTH || job->rec->options.freeze_on_nan)
        what |= TAP_SCAN_HEALTH;
    if (with_payload || keep & TAP_KEEP_HASH)
        what |= TAP_SCAN_HASH;
    return what;
}

static void finish_entry(save_job *job, tap_ring_range *range, tap_entry *entry)
{
    tap_session *s = job->session;
    tap__entry_seal(entry, entry + 1);
    tap__ring_commit(range);
    wake_when_due(&s->ring);
}

/* A leaf whose payload fits the ring at once, or that has none. */
static tap_status save_whole(save_job *job)
{
    tap_meta meta;
    fill_meta(job, &meta);
    uint32_t meta_bytes = tap__meta_size(&meta);
    tap_ring_range range;
    uint64_t payload_at;
    bool wanted_payload = job->payload != 0;
    if (!make_room(job, sizeof(tap_entry) + meta_bytes, false, &range, &payload_at))
        return job->type == TAP_ENTRY_DATA ? lose(job, TAP_REASON_RING_FULL) : TAP_E_LOST;
    tap_entry *entry = (tap_entry *)(void *)range.data;
    start_entry(job, entry, &meta, meta_bytes);
    entry->seq = range.seq;
    entry->length = range.bytes;
    unsigned what = what_to_scan(job, job->payload != 0);
    if (what || job->payload) {
        tap_pass pass;
        tap_stats stats;
        if (tap__pass_begin(&pass, job->leaf.tensor, what, NULL) == TAP_OK) {
            tap__pass_next(&pass, job->payload ? range.data + payload_at : NULL, pass.bytes);
            tap__pass_end(&pass, &stats, &entry->hash);
            set_stats(entry, &stats, what);
            look_for_bad(job, entry);
        }
        if (job->payload) {
            entry->payload_offset = payload_at;
            entry->payload_bytes = job->payload;
        }
    }
    if (!job->payload && job->rec->options.checksum && job->leaf.tensor && job->leaf.tensor->data) {
        entry->has |= TAP_HAS_CRC;
        entry->crc = tap__checksum_tensor((tap_checksum)job->rec->options.checksum, job->leaf.tensor);
    }
    if (job->type == TAP_ENTRY_DATA && !is_announcement(job))
        count_saved(job);
    finish_entry(job, &range, entry);
    if (job->type == TAP_ENTRY_DATA)
        count_kept(job, job->payload);
    return wanted_payload && !job->payload && job->state == TAP_RECORD_STATS_ONLY ? TAP_E_LOST : TAP_OK;
}

/* ---------------------------------------------------------------------------------- tensors larger than the ring */

static int take_slot(save_job *job)
{
    room_wait wait = {0, 0};
    for (;;) {
        uint32_t seen = atomic_load(&job->session->ring.header->tail_futex);
        int slot = tap__ring_take_slot(&job->session->ring);
        if (slot >= 0 || job->rec->options.full != TAP_FULL_BLOCK || !wait_for_room(job, &wait, seen))
            return slot;
    }
}

/* Sends one piece. False: no room came. */
static bool send_piece(save_job *job, tap_pass *pass, int slot, uint64_t offset, uint64_t bytes)
{
    tap_ring *ring = &job->session->ring;
    room_wait wait = {0, 0};
    tap_ring_range range;
    for (;;) {
        uint32_t seen = atomic_load(&ring->header->tail_futex);
        if (tap__ring_reserve_piece(ring, bytes, (uint32_t)slot, offset, &range))
            break;
        if (job->rec->options.full != TAP_FULL_BLOCK || !wait_for_room(job, &wait, seen))
            return false;
    }
    tap__pass_next(pass, range.data, bytes);
    tap__ring_commit(&range);
    wake_when_due(ring);
    return true;
}

/* Ends the large tensor whose BIG entry has number `ref` and total bytes; gives its slot back. */
static tap_status send_trailer(save_job *job, tap_pass *pass, unsigned what, uint64_t ref, uint64_t total, int slot,
                               bool complete)
{
    save_job trailer = *job;
    trailer.type = TAP_ENTRY_TRAILER;
    trailer.payload = 0;
    tap_meta meta;
    fill_meta(&trailer, &meta);
    uint32_t meta_bytes = tap__meta_size(&meta);
    tap_ring_range range;
    uint64_t payload_at;
    if (!complete) {
        trailer.state = TAP_RECORD_STATS_ONLY;
        trailer.reason = TAP_REASON_RING_FULL;
    }
    bool room = make_room(&trailer, sizeof(tap_entry) + meta_bytes, false, &range, &payload_at);
    tap__ring_give_slot(&job->session->ring, slot);
    if (!room) { /* the reader sees a BIG entry without a trailer: torn */
        atomic_fetch_add_explicit(&job->session->tally->lost, 1, memory_order_relaxed);
        trailer.state = TAP_RECORD_STATS_ONLY;
        count_kept(&trailer, 0);
        return tell_lost(job, TAP_REASON_RING_FULL);
    }
    tap_entry *entry = (tap_entry *)(void *)range.data;
    range.desc->slot = (uint32_t)slot;
    start_entry(&trailer, entry, &meta, meta_bytes);
    entry->seq = range.seq;
    entry->length = range.bytes;
    entry->ref = ref;
    tap_stats stats;
    tap__pass_end(pass, &stats, &entry->hash);
    set_stats(entry, &stats, what);
    if (!complete)
        entry->has &= (uint16_t)~TAP_HAS_HASH;
    look_for_bad(job, entry);
    finish_entry(&trailer, &range, entry);
    count_kept(&trailer, complete ? total : 0);
    return complete ? TAP_OK : TAP_E_LOST;
}

static tap_status save_big(save_job *job)
{
    uint64_t total = job->payload;
    int slot = take_slot(job);
    if (slot < 0) {
        job->state = TAP_RECORD_STATS_ONLY;
        job->reason = TAP_REASON_RING_FULL;
        job->payload = 0;
        tap_status status = save_whole(job);
        return status == TAP_OK ? TAP_E_LOST : status;
    }
    tap_meta meta;
    fill_meta(job, &meta);
    uint32_t meta_bytes = tap__meta_size(&meta);
    tap_ring_range range;
    uint64_t payload_at;
    job->type = TAP_ENTRY_BIG;
    job->payload = 0; /* the entry itself carries none */
    if (!make_room(job, sizeof(tap_entry) + meta_bytes, true, &range, &payload_at)) {
        tap__ring_give_slot(&job->session->ring, slot);
        return lose(job, TAP_REASON_RING_FULL);
    }
    tap_entry *entry = (tap_entry *)(void *)range.data;
    range.desc->slot = (uint32_t)slot;
    start_entry(job, entry, &meta, meta_bytes);
    entry->seq = range.seq;
    entry->payload_offset = payload_at;
    entry->payload_bytes = total;
    entry->length = payload_at + tap__round_up(total, TAP_PAGE);
    count_saved(job);
    finish_entry(job, &range, entry);

    tap_pass pass;
    unsigned what = what_to_scan(job, true);
    bool complete = true;
    tap__pass_begin(&pass, job->leaf.tensor, what, NULL); /* save_leaf has looked at the tensor: it cannot fail */
    uint64_t most = tap__ring_max_payload(&job->session->ring) / 2;
    uint64_t piece = most < PIECE_BYTES ? most : PIECE_BYTES;
    for (uint64_t at = 0; at < total; at += piece) {
        uint64_t bytes = total - at < piece ? total - at : piece;
        if (complete)
            complete = send_piece(job, &pass, slot, at, bytes);
        if (!complete)
            tap__pass_next(&pass, NULL, bytes); /* the statistics still want to see it */
    }
    return send_trailer(job, &pass, what, range.seq, total, slot, complete);
}

/* ----------------------------------------------------------------------------------------- layouts of other tools */

/* Names the leaf's file (its slot too, which keeps the name) and, unless the writer is to do it, writes it. tensors: all
 * that go into the one file. */
static tap_status put_file(save_job *job, const tap_tensor *tensors, size_t count, bool list, tap_strbuf *path)
{
    tap_session *s = job->session;
    tap_error err;
    if (!s->layout->name_file)
        return TAP_OK;
    tap_status status = tap__namer_name(s->namer, &job->leaf, path, &err);
    if (status == TAP_OK && path->failed)
        status = tap_fail_nomem(&err);
    bool to_writer = job->rec->options.asynchronous && !list && job->payload &&
                     job->payload <= tap__ring_max_payload(&s->ring);
    if (status == TAP_OK && path->len && !is_announcement(job)) {
        job->file = path->text;
        if (!to_writer)
            status = list ? tap__layout_write_files(s->layout, s->dir, path->text, tensors, count, &err)
                          : tap__layout_write_file(s->layout, s->dir, path->text, tensors, &err);
    }
    if (status != TAP_OK) {
        tap__recorder_tell(job->rec, TAP_TOLD_FILE, &err);
        lose(job, status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL : TAP_REASON_DISK_ERROR);
    }
    return status;
}

static tap_status save_compat(save_job *job)
{
    tap_session *s = job->session;
    tap_strbuf path = TAP_STRBUF_INIT;
    tap_status status = put_file(job, job->leaf.tensor, 1, false, &path);
    if (status == TAP_OK && s->has_ring) {
        bool small = job->payload <= tap__ring_max_payload(&s->ring);
        bool travels = job->rec->options.asynchronous || job->rec->options.checksum ||
                       job->leaf.value_type != TAP_VALUE_TENSOR;
        if (!small || !travels)
            job->payload = 0;
        bool for_writer = job->payload != 0 && job->rec->options.asynchronous && job->file;
        status = save_whole(job);
        if (for_writer && !job->payload && status == TAP_E_LOST && job->state == TAP_RECORD_STATS_ONLY)
            lose(job, TAP_REASON_RING_FULL); /* its file: the collector has the statistics */
    }
    tap__strbuf_free(&path);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- leaves */

/* A value that cannot be recorded: said once a name, and listed by verify with its place and the reason. */
static __attribute__((noinline)) tap_status refuse_leaf(save_job *job, const char *why)
{
    tap_error err;
    tap_fail(&err, TAP_E_INVALID, "%.200s was not recorded: %s; run: tensortap verify %s", job->site->name, why,
             job->session->dir);
    if (!atomic_exchange_explicit(&job->site->refused, true, memory_order_relaxed))
        tap__recorder_tell(job->rec, 0, &err);
    job->leaf.tensor = NULL;
    job->leaf.value_type = TAP_VALUE_NONE;
    job->payload = 0;
    job->reason = TAP_REASON_BAD_VALUE;
    count_dropped(job);
    if (!job->session->layout->native) {
        count_untold(job, TAP_REASON_BAD_VALUE);
        return TAP_E_INVALID;
    }
    job->type = TAP_ENTRY_LOST;
    job->state = TAP_RECORD_WHOLE;
    job->count = 1;
    job->type_name = why;
    if (save_whole(job) != TAP_OK) {
        count_untold(job, TAP_REASON_BAD_VALUE);
        return TAP_E_INVALID;
    }
    atomic_fetch_add_explicit(&job->session->told, 1, memory_order_relaxed);
    return TAP_E_INVALID;
}

/* Looks at a leaf's tensor, once, before anything reads it. */
static bool leaf_is_sound(save_job *job, bool has_data)
{
    tap_error why;
    int64_t count;
    tap_status status = has_data ? tap__tensor_check(job->leaf.tensor, &count, &why)
                                 : tap__shape_check(job->leaf.tensor, &why);
    if (status == TAP_OK)
        return true;
    refuse_leaf(job, why.message);
    return false;
}

static tap_status save_leaf(save_job *job)
{
    const tap_tensor *tensor = job->leaf.tensor;
    bool announced = is_announcement(job);
    job->payload = 0;
    if (announced)
        job->state = TAP_RECORD_SLOT;
    bool has_data = tensor && job->leaf.value_type != TAP_VALUE_META && !announced;
    if (tensor && !leaf_is_sound(job, has_data))
        return TAP_E_INVALID;
    if (has_data) {
        bool keep = job->rec->options.keep & TAP_KEEP_TENSOR || job->leaf.value_type != TAP_VALUE_TENSOR;
        if (keep || (job->rec->options.checksum && !job->session->layout->native))
            job->payload = (uint64_t)tap_tensor_bytes(tensor);
    }
    if (!job->session->layout->native)
        return save_compat(job);
    if (job->payload > tap__ring_max_payload(&job->session->ring) &&
        !atomic_load_explicit(&job->session->ring.header->degraded, memory_order_relaxed))
        return save_big(job);
    return save_whole(job);
}

/* Finds the session and site of a save and decides whether it is wanted. False: nothing to do, *status says why. */
static bool job_begin(save_job *job, tap_recorder *rec, const char *name, const tap_save_info *info, tap_status *status)
{
    memset(job, 0, sizeof *job);
    job->rec = rec;
    job->leaf.info = info ? info : &NO_INFO;
    job->session = tap__recorder_session(rec);
    *status = TAP_E_LOST; /* a forked child that could not open its own recorder has said so */
    if (!job->session)
        return false;
    job->site = tap__site_table_find(&job->session->sites, name ? name : "");
    *status = TAP_E_NOMEM;
    if (!job->site) {
        atomic_fetch_add_explicit(&job->session->tally->dropped, 1, memory_order_relaxed);
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

static void job_count_call(save_job *job)
{
    const tap_save_info *info = job->leaf.info;
    unsigned counter = info->flags & TAP_SAVE_RECOMPUTED ? TAP_COUNTER_RECOMPUTED : (unsigned)job->leaf.kind;
    job->leaf.call = info->has_call ? info->call : tap__site_call(job->site, counter, job->leaf.step);
    if (info->saved)
        *info->saved = (tap_saved){true, job->leaf.step, job->leaf.call};
}

/* The quick answer to "is anything to be done at all?" */
static inline bool is_active(tap_recorder *rec, const tap_save_info *info)
{
    if (!rec)
        return false;
    if (info && info->has_step)
        return !atomic_load_explicit(&rec->paused, memory_order_relaxed) &&
               !atomic_load_explicit(&rec->ended, memory_order_relaxed) && rec->rank_wanted &&
               info->step <= atomic_load_explicit(&rec->frozen_after, memory_order_relaxed) &&
               tap__recorder_wants_step(rec, info->step);
    return atomic_load_explicit(&rec->active, memory_order_relaxed);
}

static tap_status save_end(save_job *job, tap_status status)
{
    if (job->rec->options.durability == TAP_DURABLE_SAVE && status == TAP_OK)
        return tap_recorder_flush(job->rec, -1, NULL);
    return status;
}

static tap_status save_filtered(tap_recorder *rec)
{
    if (rec)
        atomic_fetch_add_explicit(&rec->filtered, 1, memory_order_relaxed);
    return TAP_OK;
}

/* Kept out of tap_save, so that saying no costs no stack frame. */
static __attribute__((noinline)) tap_status save_tensor(tap_recorder *rec, const char *name, const tap_tensor *tensor,
                                                        const tap_save_info *info)
{
    save_job job;
    tap_status status;
    if (!job_begin(&job, rec, name, info, &status))
        return status;
    job_count_call(&job);
    job.leaf.tensor = tensor;
    job.leaf.value_type = tensor || is_announcement(&job) ? TAP_VALUE_TENSOR : TAP_VALUE_NONE;
    job.leaf.path = job.leaf.info->path;
    job.leaf.path_len = job.leaf.path ? strlen(job.leaf.path) : 0;
    return save_end(&job, save_leaf(&job));
}

tap_status tap_save(tap_recorder *rec, const char *name, const tap_tensor *tensor, const tap_save_info *info)
{
    if (!is_active(rec, info))
        return save_filtered(rec);
    return save_tensor(rec, name, tensor, info);
}

/* ----------------------------------------------------------------------------------------------------- nested values */

typedef struct tree_walk {
    save_job job;
    tap_strbuf path;
    tap_status status;
} tree_walk;

static void tree_leaf(tree_walk *walk, const tap_value *value)
{
    if (value->type == TAP_VALUE_SKIP)
        return;
    save_job job = walk->job;
    static const int64_t NO_SHAPE[1];
    double complex_value[2] = {value->f, value->imag};
    uint8_t flag = value->i != 0;
    int64_t len = (int64_t)value->len;
    tap_tensor scalar = {NULL, TAP_DTYPE_NONE, 0, NO_SHAPE, NULL};
    job.leaf.tensor = &scalar;
    switch (value->type) {
    case TAP_VALUE_TENSOR:
    case TAP_VALUE_META: job.leaf.tensor = &value->tensor; break;
    case TAP_VALUE_BOOL: scalar.dtype = TAP_BOOL, scalar.data = &flag; break;
    case TAP_VALUE_INT: scalar.dtype = TAP_I64, scalar.data = (void *)(uintptr_t)&value->i; break;
    case TAP_VALUE_FLOAT: scalar.dtype = TAP_F64, scalar.data = (void *)(uintptr_t)&value->f; break;
    case TAP_VALUE_COMPLEX: scalar.dtype = TAP_C128, scalar.data = complex_value; break;
    case TAP_VALUE_STR:
    case TAP_VALUE_BYTES:
        scalar = (tap_tensor){(void *)(uintptr_t)value->bytes, TAP_U8, 1, &len, NULL};
        break;
    default: job.leaf.tensor = NULL; break; /* None and empty containers */
    }
    bool lost = value->type == TAP_VALUE_LOST;
    job.leaf.value_type = lost ? TAP_VALUE_TENSOR : value->type;
    job.leaf.path = walk->path.text;
    job.leaf.path_len = walk->path.len;
    if (value->requires_grad)
        job.leaf.flags |= TAP_SAVE_REQUIRES_GRAD;
    job.type_name = value->type_name;
    tap_status status = lost && !is_announcement(&job) ? refuse_leaf(&job, value->bytes) : save_leaf(&job);
    if (walk->status == TAP_OK)
        walk->status = status;
}

static void tree_visit(tree_walk *walk, const tap_value *value, int depth)
{
    bool nested = value->type == TAP_VALUE_LIST || value->type == TAP_VALUE_TUPLE || value->type == TAP_VALUE_DICT;
    if (!nested || value->len == 0 || depth > MAX_DEPTH) {
        if (nested && value->len) {
            lose(&walk->job, TAP_REASON_BAD_VALUE);
            walk->status = TAP_E_LIMIT;
            return;
        }
        tree_leaf(walk, value);
        return;
    }
    char kind = value->type == TAP_VALUE_DICT ? 'k' : value->type == TAP_VALUE_TUPLE ? 't' : 'i';
    size_t before = walk->path.len;
    for (size_t i = 0; i < value->len; i++) {
        if (before)
            tap__strbuf_char(&walk->path, 0x1F);
        tap__strbuf_char(&walk->path, kind);
        if (kind == 'k')
            tap__strbuf_str(&walk->path, value->keys[i]);
        else
            tap__strbuf_printf(&walk->path, "%zu", i);
        if (walk->path.failed) {
            lose(&walk->job, TAP_REASON_NO_MEMORY);
            walk->status = TAP_E_NOMEM;
            tap__strbuf_clear(&walk->path);
            return;
        }
        tree_visit(walk, &value->items[i], depth + 1);
        if (walk->path.len < before)
            return;
        walk->path.len = before;
        walk->path.text[before] = 0;
    }
}

/* The tensors of a nested value, in order. */
static bool collect_tensors(const tap_value *value, tap_tensor **tensors, size_t *count, int depth)
{
    if (value->type == TAP_VALUE_TENSOR) {
        tap_tensor *grown = tap__resize(*tensors, *count + 1, sizeof *grown);
        if (!grown)
            return false;
        *tensors = grown;
        grown[(*count)++] = value->tensor;
        return true;
    }
    bool nested = value->type == TAP_VALUE_LIST || value->type == TAP_VALUE_TUPLE || value->type == TAP_VALUE_DICT;
    for (size_t i = 0; nested && i < value->len && depth < MAX_DEPTH; i++)
        if (!collect_tensors(&value->items[i], tensors, count, depth + 1))
            return false;
    return true;
}

/* Has a value a leaf that cannot be recorded? *why is filled. */
static bool has_unsound(const tap_value *value, tap_error *why, int depth)
{
    int64_t count;
    if (value->type == TAP_VALUE_LOST) {
        tap_fail(why, TAP_E_INVALID, "%s", value->bytes);
        return true;
    }
    if (value->type == TAP_VALUE_TENSOR)
        return tap__tensor_check(&value->tensor, &count, why) != TAP_OK;
    bool nested = value->type == TAP_VALUE_LIST || value->type == TAP_VALUE_TUPLE || value->type == TAP_VALUE_DICT;
    for (size_t i = 0; nested && i < value->len && depth < MAX_DEPTH; i++)
        if (has_unsound(&value->items[i], why, depth + 1))
            return true;
    return false;
}

/* Layouts that put a list of tensors into one file. */
static tap_status save_in_one_file(save_job *job, const tap_value *value)
{
    tap_tensor *tensors = NULL;
    size_t count = 0;
    tap_strbuf path = TAP_STRBUF_INIT;
    tap_status status = TAP_OK;
    tap_error why;
    if (has_unsound(value, &why, 0))
        return refuse_leaf(job, why.message);
    if (!collect_tensors(value, &tensors, &count, 0)) {
        lose(job, TAP_REASON_NO_MEMORY);
        status = TAP_E_NOMEM;
    } else if (count) {
        job->leaf.tensor = tensors;
        status = put_file(job, tensors, count, true, &path);
    }
    tap__strbuf_free(&path);
    tap__free(tensors);
    return status;
}

tap_status tap_save_value(tap_recorder *rec, const char *name, const tap_value *value, const tap_save_info *info)
{
    if (!is_active(rec, info))
        return save_filtered(rec);
    tree_walk walk = {.path = TAP_STRBUF_INIT, .status = TAP_OK};
    if (!job_begin(&walk.job, rec, name, info, &walk.status))
        return walk.status;
    job_count_call(&walk.job);
    if (walk.job.session->layout->one_file_per_value && value->type != TAP_VALUE_TENSOR)
        return save_end(&walk.job, save_in_one_file(&walk.job, value));
    if (walk.job.leaf.info->path)
        tap__strbuf_str(&walk.path, walk.job.leaf.info->path);
    tree_visit(&walk, value, 0);
    tap__strbuf_free(&walk.path);
    return save_end(&walk.job, walk.status);
}

bool tap_recorder_wants(tap_recorder *rec, const char *name)
{
    if (!is_active(rec, NULL))
        return false;
    tap_session *session = tap__recorder_session(rec);
    tap_site *site = session ? tap__site_table_find(&session->sites, name) : NULL;
    return site && site->wanted;
}

tap_status tap_recorder_declare(tap_recorder *rec, const char *name, const tap_save_info *info)
{
    save_job job;
    tap_status status = TAP_OK;
    if (!rec || !rec->rank_wanted || !job_begin(&job, rec, name, info, &status) || !job.session->has_ring)
        return status;
    job.type = TAP_ENTRY_DECLARE;
    job.state = TAP_RECORD_DECLARED;
    return save_whole(&job);
}

/* ------------------------------------------------------------------------------------------------------------- marks */

tap_status tap__save_mark(tap_recorder *rec, tap_session *session, tap_entry_type type, int64_t step)
{
    save_job job = {.rec = rec, .session = session, .type = type};
    job.leaf.info = &NO_INFO;
    job.leaf.step = step;
    return save_whole(&job);
}

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
    save_job job = {.rec = walk->rec, .session = walk->session, .site = site, .type = TAP_ENTRY_LOST};
    job.leaf.info = &NO_INFO;
    job.leaf.step = atomic_load(&walk->rec->step);
    job.reason = (tap_reason)atomic_load(&site->lost_reason);
    job.count = lost;
    job.lost_bytes = atomic_exchange(&site->lost_bytes, 0);
    if (save_whole(&job) == TAP_OK) {
        atomic_fetch_add(&walk->session->told, lost);
    } else { /* told another time */
        atomic_fetch_add(&site->lost_bytes, job.lost_bytes);
        atomic_fetch_add(&site->lost, lost);
    }
}

static void journal_loss(void *user, tap_site *site)
{
    loss_walk *walk = user;
    uint64_t lost = atomic_exchange(&site->lost, 0);
    if (lost)
        tap__journal_add(walk->session->journal, site->name, atomic_load(&walk->rec->step),
                         (tap_reason)atomic_load(&site->lost_reason), lost, atomic_exchange(&site->lost_bytes, 0));
}

/* The layouts of other tools have no place for it among their own files. */
static void journal_losses(tap_recorder *rec, tap_session *session)
{
    char who[64];
    int len = snprintf(who, sizeof who, "rank%d", rec->options.rank);
    if (session->child)
        snprintf(who + len, sizeof who - (size_t)len, ".child%d", session->child);
    pthread_mutex_lock(&session->lock);
    if (!session->journal)
        tap__journal_create_beside(session->dir, who, &session->journal, NULL);
    if (session->journal) {
        tap__site_table_each(&session->sites, journal_loss, &(loss_walk){rec, session});
        tap__journal_sync(session->journal);
    }
    pthread_mutex_unlock(&session->lock);
}

void tap__save_losses(tap_recorder *rec, tap_session *session)
{
    uint64_t dropped = atomic_load(&session->tally->dropped);
    if (dropped == atomic_load(&session->told))
        return;
    if (!session->layout->native)
        journal_losses(rec, session);
    else
        tap__site_table_each(&session->sites, tell_loss, &(loss_walk){rec, session});
}
