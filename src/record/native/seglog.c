/* seglog.c - ring entries into segment files, with every way a disk can say no. */
#include "record/native/seglog.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/native/index.h"
#include "record/native/segment.h"
#include "record/ring/journal.h"
#include "record/ring/look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Written in one go: large enough for the disk, small enough that producers get room back soon. */
#define SPAN_BYTES (4u << 20)
/* How often the free space is asked for. */
#define SPACE_NS 1000000000ull
#define SPACE_BYTES (64u << 20)

typedef struct seglog {
    tap_sink sink;
    tap_ring_config config;      /* as it was at first: nobody changes it later */
    tap_look taken, walked;      /* the entry that is taken; one of those that were */
    tap_attempt_files files;
    tap_ring_checkpoint at;      /* where we are; copied to the ring at every publish */
    tap_segment segment;
    tap_segment extents[TAP_RING_BIG_SLOTS]; /* open for pieces of large tensors */
    tap_index *index;            /* NULL: given up or inherited; built from the segments at the end */
    tap_journal *journal;
    uint64_t journaled;          /* saves that the journal names, and its file not yet */
    uint64_t span_pos;           /* entries from here to at.tail_pos wait to be written */
    uint64_t span_seq;
    int64_t newest_step;
    bool step_has_records;       /* last: the step under way counts as one of them */
    uint64_t free_bytes;         /* on the disk when last asked, less what was written since */
    uint64_t free_asked_ns;
    uint64_t reserve;            /* the part of free_bytes that is not ours */
    tap_reason lifted;           /* what kept bytes out until a moment ago; none were written since */
    bool told_one;               /* that one value had no room */
    uint32_t *marks;             /* last: the segments that steps with records started in, ascending */
    size_t mark_count;
} seglog;

static seglog *of(tap_sink *sink)
{
    return (seglog *)sink;
}

static const tap_ring_config *config(const seglog *log)
{
    return &log->config;
}

static uint64_t file_offset(const seglog *log, uint64_t pos)
{
    return pos + log->at.base;
}

/* ----------------------------------------------------------------------------------------------------- segments */

/* After a failure the disk may have forgotten what it took: no later success makes that good. */
static void sync_one(seglog *log, tap_segment *segment)
{
    int failed = tap__segment_sync(segment);
    if (!failed)
        return;
    char message[480];
    snprintf(message, sizeof message, tap_text("%.300s/%s: the disk did not keep what was written: %.80s"),
             log->files.root->path, log->files.dir, strerror(failed));
    atomic_store(&log->sink.ring->header->sync_errno, failed);
    tap__ring_report(log->sink.ring, message);
}

static void sync_all(seglog *log)
{
    sync_one(log, &log->segment);
    for (int i = 0; i < TAP_RING_BIG_SLOTS; i++)
        sync_one(log, &log->extents[i]);
}

/* A file that is let go is synced no more by a later flush. */
static void segment_leave(seglog *log, tap_segment *segment)
{
    if (config(log)->durability >= TAP_DURABLE_FLUSH)
        sync_one(log, segment);
    tap__segment_close(segment);
}

static tap_status segment_start(seglog *log, uint32_t number, uint64_t pos, uint64_t seq, tap_error *err)
{
    const tap_ring_config *c = config(log);
    tap_segment_header header = {.magic = TAP_SEGMENT_MAGIC, .version = 1, .header_bytes = TAP_PAGE};
    header.first_entry = TAP_PAGE + pos % TAP_PAGE;
    header.first_seq = seq;
    header.segment = number;
    header.rank = c->rank;
    header.attempt = c->attempt;
    header.child = c->child;
    header.pid = c->pid;
    header.world_size = c->world_size;
    header.started_ns = tap__wall_ns();
    gethostname(header.host, sizeof header.host - 1);
    tap_segment next = TAP_SEGMENT_CLOSED;
    TAP_TRY(tap__segment_create(&next, &log->files, &header, err));
    if (c->durability >= TAP_DURABLE_FLUSH)
        tap__segment_sync_name(&next);
    segment_leave(log, &log->segment);
    log->segment = next;
    log->at.segment = number;
    log->at.segment_end = header.first_entry;
    log->at.base = header.first_entry - pos;
    log->at.on_disk += header.first_entry;
    return TAP_OK;
}

/* Brings attempt<A>.json up to date; ended "" while it goes on. */
static void write_info(seglog *log, const char *ended, bool indexed)
{
    tap_tally *tally = log->sink.ring->tally;
    tap_attempt_info info;
    tap_error err;
    if (tap__attempt_read(&log->files, &info, NULL) != TAP_OK) {
        memset(&info, 0, sizeof info);
        info.pid = config(log)->pid;
        info.world_size = config(log)->world_size;
    }
    snprintf(info.ended, sizeof info.ended, "%s", ended);
    info.ended_ns = *ended ? tap__wall_ns() : 0;
    info.entries = log->at.tail_seq - log->at.absent;
    info.records = log->at.records;
    info.bytes = log->at.bytes;
    info.filtered = atomic_load(&tally->filtered);
    info.stats_only = log->at.stats_only;
    info.dropped = atomic_load(&tally->dropped) + atomic_load(&tally->lost);
    info.not_named = *ended ? tap__tally_missing(tally, 0) : 0;
    if (*ended)
        info.tally[0] = 0;
    info.torn = log->at.torn;
    info.first_segment = log->at.first_segment;
    info.segments = log->at.segment + 1 - log->at.first_segment;
    info.indexed = indexed;
    if (tap__attempt_write(&log->files, &info, &err) != TAP_OK)
        tap__ring_report(log->sink.ring, err.message);
    else if (*ended)
        tap__tally_remove(config(log)->tally);
}

/* Deletes the segments of all but the last `last` steps. Only steps with records count: a recording that was frozen or
 * paused keeps what it has, however long the program goes on. */
static void segments_expire(seglog *log)
{
    uint64_t keep = (uint64_t)config(log)->last + 1; /* the newest has only begun */
    if (log->mark_count <= keep)
        return;
    char name[TAP_ATTEMPT_NAME];
    size_t gone = log->mark_count - (size_t)keep;
    uint32_t first = log->marks[gone], old = log->at.first_segment;
    log->at.first_segment = first;
    if (first != old)
        write_info(log, "", false); /* before they go: a missing segment is a loss, an expired one is not */
    tap__tally_account(log->sink.ring->tally, log->at.tail_seq, log->at.accounted);
    for (uint32_t s = old; s < first; s++) {
        struct stat st;
        tap__segment_name(&log->files, s, name);
        if (tap__dir_stat(log->files.root, name, &st) == 0 && tap__dir_unlink(log->files.root, name) == 0)
            log->at.on_disk -= (uint64_t)st.st_size < log->at.on_disk ? (uint64_t)st.st_size : log->at.on_disk;
        if (log->index && tap__index_drop_segment(log->index, s, NULL) != TAP_OK) {
            tap__index_close(log->index);
            log->index = NULL;
        }
    }
    memmove(log->marks, log->marks + gone, (log->mark_count - gone) * sizeof *log->marks);
    log->mark_count -= gone;
}

static void step_mark(seglog *log)
{
    log->step_has_records = false;
    uint32_t *grown = tap__resize(log->marks, log->mark_count + 1, sizeof *grown);
    if (!grown)
        return; /* the segment is kept longer than asked */
    log->marks = grown;
    log->marks[log->mark_count++] = log->at.segment;
    segments_expire(log);
}

/* -------------------------------------------------------------------------------------------------------- writing */

/* count: sequence numbers it stands for; 0 for mere filling. */
static void seal_skip(tap_entry *entry, uint64_t seq, uint64_t count, uint64_t length)
{
    memset(entry, 0, sizeof *entry);
    entry->magic = TAP_ENTRY_MAGIC;
    entry->version = 1;
    entry->type = TAP_ENTRY_SKIP;
    entry->seq = seq;
    entry->count = count;
    entry->length = length;
    tap__entry_seal(entry, entry + 1);
}

/* An entry was changed: so is the ring's, whose bytes go to the file. */
static void seal_again(const seglog *log, uint64_t pos, tap_entry *entry)
{
    tap__entry_seal(entry, entry + 1);
    tap__look_put(log->sink.ring, pos, entry);
}

/* Writes the numbers that left no entry before this one, the one at the tail, into it. */
static void settle_absent(seglog *log, tap_entry *entry)
{
    if (entry->absent == log->at.absent)
        return; /* compared, since a writer before us may have settled it otherwise */
    entry->absent = log->at.absent;
    seal_again(log, log->at.tail_pos, entry);
    log->at.absent = 0;
}

/* Writes at offset of the current segment and moves its end; a gap before it becomes a SKIP entry. 0 or errno. */
static int log_write(seglog *log, const void *bytes, uint64_t len, uint64_t offset, uint64_t seq)
{
    int failed = 0;
    if (offset > log->at.segment_end) {
        tap_entry skip;
        seal_skip(&skip, seq, 0, offset - log->at.segment_end);
        failed = tap__segment_write(&log->segment, &skip, sizeof skip, log->at.segment_end);
    }
    if (!failed)
        failed = tap__segment_write(&log->segment, bytes, len, offset);
    if (failed) {
        tap__segment_cut(&log->segment, log->at.segment_end); /* a part of it may have been written */
        return failed;
    }
    log->at.on_disk += offset + len - log->at.segment_end;
    log->at.segment_end = offset + len;
    log->at.written += len;
    log->free_bytes -= len < log->free_bytes ? len : log->free_bytes;
    atomic_fetch_add_explicit(&log->sink.ring->header->written_bytes, len, memory_order_relaxed);
    atomic_fetch_add_explicit(&log->sink.ring->header->progress, 1, memory_order_relaxed);
    return 0;
}

static void index_add(seglog *log, const tap_entry *entry, uint64_t offset)
{
    if (log->index && tap__index_add(log->index, entry, log->at.segment, offset, NULL) != TAP_OK) {
        tap__index_close(log->index);
        log->index = NULL; /* built from the segments at the end */
    }
}

static void count_entry(seglog *log, const tap_entry *entry)
{
    bool big = entry->type == TAP_ENTRY_BIG;
    log->at.accounted += tap__entry_accounts(entry);
    if (entry->type == TAP_ENTRY_DATA || big) {
        log->at.records++;
        log->at.bytes += entry->payload_bytes;
        log->at.torn += entry->state == TAP_RECORD_TORN;
        log->at.stats_only += entry->state == TAP_RECORD_STATS_ONLY;
    }
}

/* --------------------------------------------------------------------------------------- when the disk says no */

static void degrade(seglog *log, tap_reason reason, int failed)
{
    tap_ring_header *h = log->sink.ring->header;
    tap_reason lifted = log->lifted;
    log->lifted = TAP_REASON_NONE;
    if (atomic_exchange(&h->degraded, (uint32_t)reason) == (uint32_t)reason || lifted == reason)
        return; /* it was said, and never said that it was over */
    char message[480];
    if (reason == TAP_REASON_MAX_BYTES)
        snprintf(message, sizeof message, tap_text("%.300s/%s: max_bytes is reached; from here on only statistics are kept"),
                 log->files.root->path, log->files.dir);
    else if (reason == TAP_REASON_DISK_FULL)
        snprintf(message, sizeof message,
                 tap_text("%.300s/%s: the disk is full; only statistics are kept until there is room"),
                 log->files.root->path, log->files.dir);
    else
        snprintf(message, sizeof message, tap_text("%.300s/%s: cannot write: %.80s; values are being lost"),
                 log->files.root->path, log->files.dir, strerror(failed));
    tap__ring_report(log->sink.ring, message);
}

/* Bytes were written. Only now is it true that there is room again. */
static void say_room(seglog *log)
{
    if (log->lifted == TAP_REASON_MAX_BYTES)
        tap__ring_report(log->sink.ring, tap_text("old steps made room below max_bytes: whole tensors are kept again"));
    else if (log->lifted != TAP_REASON_NONE)
        tap__ring_report(log->sink.ring, tap_text("there is room on the disk again: whole tensors are kept"));
    log->lifted = TAP_REASON_NONE;
}

static tap_reason reason_of(int failed)
{
    return failed == ENOSPC || failed == EDQUOT ? TAP_REASON_DISK_FULL : TAP_REASON_DISK_ERROR;
}

static uint64_t disk_free(const seglog *log, uint64_t *total)
{
    struct statvfs fs;
    if (fstatvfs(tap__dir_fd(log->files.root), &fs) != 0) { /* no knowing: a write that fails will tell */
        *total = 0;
        return UINT64_MAX / 2;
    }
    *total = (uint64_t)fs.f_blocks * fs.f_frsize;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

static void ask_space(seglog *log, uint64_t now_ns)
{
    uint64_t total;
    log->free_bytes = disk_free(log, &total);
    log->free_asked_ns = now_ns;
    uint64_t most = total / 20;
    log->reserve = config(log)->reserve_bytes < most ? config(log)->reserve_bytes : most;
}

/* May payload bytes be written now? 0, or why not. */
static tap_reason space_for(seglog *log, uint64_t bytes)
{
    uint64_t max = config(log)->max_bytes;
    if (max && log->at.on_disk + bytes > max)
        return TAP_REASON_MAX_BYTES;
    uint64_t now = tap__monotonic_ns();
    if (now - log->free_asked_ns > SPACE_NS || log->free_bytes < SPACE_BYTES + log->reserve + bytes)
        if (now - log->free_asked_ns > SPACE_NS / 50)
            ask_space(log, now);
    return log->free_bytes < log->reserve + bytes ? TAP_REASON_DISK_FULL : TAP_REASON_NONE;
}

static void journal_entry(seglog *log, const tap_entry *entry, tap_reason reason)
{
    tap_meta meta;
    bool value = entry->type == TAP_ENTRY_DATA || entry->type == TAP_ENTRY_BIG;
    uint64_t saves = tap__entry_accounts(entry);
    log->at.absent += 1 + entry->absent;
    atomic_fetch_add(&log->sink.ring->tally->lost, value ? saves : 0);
    if (!log->journal || !tap__meta_read(&meta, entry + 1, entry->meta_bytes))
        return; /* not accounted for: the end says how many, without their names */
    char *name = tap__strndup(meta.text[TAP_META_NAME] ? meta.text[TAP_META_NAME] : "", meta.len[TAP_META_NAME]);
    if (name)
        log->journaled += saves;
    if (name && value && saves)
        tap__journal_add(log->journal, name, entry->step, reason, 1, entry->payload_bytes);
    if (name && entry->type == TAP_ENTRY_LOST)
        tap__journal_add(log->journal, name, entry->step, (tap_reason)entry->reason, entry->count, entry->ref);
    tap__free(name);
}

/* The journal's file cannot be written either, when a disk fails in earnest: what only we could name is not accounted for
 * until it can. */
static void journal_settle(seglog *log)
{
    if (!log->journaled || tap__journal_sync(log->journal) != TAP_OK)
        return;
    log->at.accounted += log->journaled;
    log->journaled = 0;
}

/* Asks the disk whether producers may send bytes again. */
static void seglog_idle(tap_sink *sink, uint64_t now_ns)
{
    seglog *log = of(sink);
    tap_ring_header *h = log->sink.ring->header;
    journal_settle(log);
    tap__tally_account(sink->ring->tally, log->at.tail_seq, log->at.accounted);
    uint32_t why = atomic_load(&h->degraded);
    if (!why || now_ns - log->free_asked_ns < SPACE_NS)
        return;
    ask_space(log, now_ns);
    uint64_t max = config(log)->max_bytes;
    bool below_max = !max || log->at.on_disk < max - max / 4; /* again so once old steps are deleted */
    if (below_max && log->free_bytes > log->reserve + log->reserve / 2 + SPAN_BYTES) {
        atomic_store(&h->degraded, 0);
        log->lifted = (tap_reason)why;
    }
}

/* An entry without its bytes, in memory of its own, at the end of the log. */
static void emit_without_payload(seglog *log, const tap_entry *entry, tap_reason reason)
{
    uint64_t head = sizeof *entry + (uint64_t)entry->meta_bytes, length = tap__round_up(head, TAP_ENTRY_ALIGN);
    tap_entry *copy = tap__calloc(1, length);
    if (!copy) {
        journal_entry(log, entry, TAP_REASON_NO_MEMORY);
        return;
    }
    memcpy(copy, entry, head);
    copy->absent += log->at.absent;
    copy->length = length;
    if (copy->payload_bytes) {
        copy->payload_offset = copy->payload_bytes = 0;
        copy->state = tap__reason_is_rule(reason) ? TAP_RECORD_RULE : TAP_RECORD_STATS_ONLY;
        copy->reason = (uint8_t)reason;
        atomic_fetch_add(&log->sink.ring->tally->lost, !tap__reason_is_rule(reason));
    }
    tap__entry_seal(copy, copy + 1);
    uint64_t offset = log->at.segment_end;
    int failed = log_write(log, copy, length, offset, entry->seq);
    if (failed) {
        journal_entry(log, entry, reason_of(failed));
    } else {
        log->at.absent = 0;
        index_add(log, copy, offset);
        count_entry(log, copy);
    }
    tap__free(copy);
}

/* A damaged process may have written over its ring: what does not hold together is given up, never followed. */
static bool entry_is_sane(const tap_entry *entry, uint64_t bytes)
{
    if (sizeof *entry + (uint64_t)entry->meta_bytes > bytes)
        return false;
    if (entry->type == TAP_ENTRY_BIG)
        return entry->payload_offset == bytes && entry->length >= bytes && entry->length <= INT64_MAX / 2 &&
               entry->length % TAP_PAGE == bytes % TAP_PAGE && entry->payload_bytes <= entry->length - bytes;
    return entry->length == bytes && entry->payload_offset <= bytes &&
           entry->payload_bytes <= bytes - entry->payload_offset;
}

/* The entry at pos of a span that was looked at when it was taken; NULL where it has been written over since. */
static const tap_entry *span_entry(seglog *log, uint64_t pos, uint64_t end)
{
    const tap_entry *entry = tap__look_entry(&log->walked, log->sink.ring, pos, end - pos);
    bool good = entry && entry->length <= end - pos && entry->length % TAP_ENTRY_ALIGN == 0;
    return good && entry_is_sane(entry, entry->length) ? entry : NULL;
}

/* The entries of [from, to) one by one without their bytes; behind them the stream goes on at the next fitting place. */
static void emit_span_without_payload(seglog *log, uint64_t from, uint64_t to, tap_reason reason)
{
    const tap_entry *entry;
    for (uint64_t pos = from; pos < to && (entry = span_entry(log, pos, to));) {
        uint64_t length = entry->length;
        if (entry->type == TAP_ENTRY_SKIP)
            log->at.absent += entry->count + entry->absent;
        else
            emit_without_payload(log, entry, reason);
        pos += length;
    }
    journal_settle(log);
    uint64_t end = log->at.segment_end, gap = (to - end) % TAP_PAGE;
    if (gap && gap < sizeof(tap_entry))
        gap += TAP_PAGE;
    log->at.base = end + gap - to;
}

/* --------------------------------------------------------------------------------------------------------- taking */

static uint64_t span_bytes(const seglog *log)
{
    return log->at.tail_pos - log->span_pos;
}

static bool seglog_due(const tap_sink *sink)
{
    const seglog *log = (const seglog *)sink;
    uint64_t unpublished = log->at.tail_pos - atomic_load_explicit(&log->sink.ring->header->tail_pos, memory_order_relaxed);
    uint64_t quarter = (log->sink.ring->mask + 1) / 4;
    return unpublished >= (quarter < SPAN_BYTES ? quarter : SPAN_BYTES);
}

/* Indexes and counts the entries that were just written as they are. */
static void span_account(seglog *log)
{
    const tap_entry *entry;
    for (uint64_t pos = log->span_pos; pos < log->at.tail_pos && (entry = span_entry(log, pos, log->at.tail_pos));) {
        index_add(log, entry, file_offset(log, pos));
        count_entry(log, entry);
        pos += entry->length;
    }
}

static void span_write(seglog *log)
{
    uint64_t bytes = span_bytes(log);
    if (!bytes)
        return;
    tap_reason reason = log->segment.fd < 0 ? TAP_REASON_DISK_ERROR : space_for(log, bytes);
    int failed = 0;
    if (reason == TAP_REASON_NONE) {
        failed = log_write(log, tap__ring_at(log->sink.ring, log->span_pos), bytes, file_offset(log, log->span_pos),
                           log->span_seq);
        if (failed) {
            reason = reason_of(failed);
        } else {
            span_account(log);
            say_room(log);
        }
    }
    if (reason != TAP_REASON_NONE) {
        degrade(log, reason, failed);
        emit_span_without_payload(log, log->span_pos, log->at.tail_pos, reason);
    }
    log->span_pos = log->at.tail_pos;
    log->span_seq = log->at.tail_seq;
}

static void seglog_publish(tap_sink *sink)
{
    seglog *log = of(sink);
    span_write(log);
    tap_ring_header *h = log->sink.ring->header;
    uint32_t other = !atomic_load_explicit(&h->checkpoint_valid, memory_order_relaxed);
    h->checkpoint[other] = log->at;
    atomic_store_explicit(&h->checkpoint_valid, other, memory_order_release);
    tap__tally_account(log->sink.ring->tally, log->at.tail_seq, log->at.accounted);
    tap__ring_publish_tail(log->sink.ring, log->at.tail_seq, log->at.tail_pos);
}

static void tail_move(seglog *log, uint64_t seq, uint64_t pos)
{
    log->at.tail_seq = seq;
    log->at.tail_pos = pos;
}

static void maybe_new_segment(seglog *log, uint64_t pos, uint64_t seq, uint64_t bytes)
{
    uint64_t end = file_offset(log, pos);
    if (end <= TAP_PAGE * 2 || end + bytes <= config(log)->segment_bytes)
        return;
    span_write(log);
    segment_start(log, log->at.segment + 1, pos, seq, NULL); /* on failure the old one grows on */
}

/* A value so large that it alone has no room does not keep out those that have. */
static bool room_for_others(seglog *log, const tap_entry *entry, tap_reason reason)
{
    uint64_t some = entry->length / 4 < SPAN_BYTES ? entry->length / 4 : SPAN_BYTES;
    if (space_for(log, some) != TAP_REASON_NONE)
        return false;
    char message[480];
    snprintf(message, sizeof message, tap_text("%.300s: a tensor of %llu bytes has no room (%.80s): its statistics are kept"),
             log->files.dir, (unsigned long long)entry->payload_bytes, tap__reason_text(reason));
    if (!log->told_one)
        tap__ring_report(log->sink.ring, message);
    return log->told_one = true;
}

static void take_big(seglog *log, const tap_ring_desc *desc, const tap_entry *entry, uint64_t seq)
{
    tap_ring_big *big = &log->at.big[desc->slot % TAP_RING_BIG_SLOTS];
    segment_leave(log, &log->extents[desc->slot % TAP_RING_BIG_SLOTS]);
    span_write(log);
    uint64_t pos = desc->pos, bytes = desc->bytes;
    *big = (tap_ring_big){seq, 0, entry->payload_bytes, log->at.segment, 0};
    tap_reason reason = space_for(log, entry->length);
    int failed = 0;
    if (reason == TAP_REASON_NONE) {
        failed = log_write(log, tap__ring_at(log->sink.ring, pos), bytes, file_offset(log, pos), seq);
        if (failed)
            reason = reason_of(failed);
    }
    tail_move(log, seq + 1, pos + bytes);
    if (reason == TAP_REASON_NONE) {
        uint64_t start = file_offset(log, pos);
        big->offset = start + entry->payload_offset;
        index_add(log, entry, start);
        count_entry(log, entry);
        log->at.on_disk += entry->length - bytes;
        log->at.segment_end = start + entry->length;
        log->at.base = log->at.segment_end - log->at.tail_pos;
    } else {
        if (failed || !room_for_others(log, entry, reason))
            degrade(log, reason, failed);
        big->discard = (uint32_t)reason;
        emit_without_payload(log, entry, reason);
        emit_span_without_payload(log, log->at.tail_pos, log->at.tail_pos, reason);
    }
    log->span_pos = log->at.tail_pos;
    log->span_seq = log->at.tail_seq;
}

static void piece_write(seglog *log, const tap_ring_desc *desc, tap_ring_big *big, tap_segment *extent)
{
    int failed = 0;
    if (extent->fd < 0 && tap__segment_reopen(extent, &log->files, big->segment, NULL) != TAP_OK)
        failed = EIO;
    uint64_t bytes = desc->piece_bytes;
    /* whole pages keep the write direct; the extent has room for them */
    if (desc->piece_offset + bytes == big->bytes)
        bytes = tap__round_up(bytes, TAP_PAGE);
    if (!failed)
        failed = tap__segment_write(extent, tap__ring_at(log->sink.ring, desc->piece_pos), bytes,
                                    big->offset + desc->piece_offset);
    if (failed) {
        degrade(log, reason_of(failed), failed);
        big->discard = (uint32_t)reason_of(failed);
        return;
    }
    log->at.written += bytes;
    log->free_bytes -= bytes < log->free_bytes ? bytes : log->free_bytes;
    atomic_fetch_add_explicit(&log->sink.ring->header->written_bytes, bytes, memory_order_relaxed);
}

/* A piece whose owner died before it was filled has no bytes. */
static void take_piece(seglog *log, const tap_ring_desc *desc, uint64_t seq)
{
    tap_ring_big *big = &log->at.big[desc->slot % TAP_RING_BIG_SLOTS];
    span_write(log);
    uint64_t whole = tap__round_up(desc->piece_bytes, TAP_PAGE);
    bool inside = desc->piece_offset <= big->bytes && desc->piece_bytes <= big->bytes - desc->piece_offset &&
                  desc->piece_bytes <= desc->bytes && whole <= desc->bytes &&
                  desc->piece_pos - desc->pos <= desc->bytes - whole;
    bool wanted = desc->piece_bytes && !big->discard;
    if (wanted && big->segment < log->at.first_segment)
        big->discard = TAP_REASON_LAST_N; /* its beginning is already deleted */
    else if (wanted && !inside)
        big->discard = TAP_REASON_BAD_VALUE;
    else if (wanted)
        piece_write(log, desc, big, &log->extents[desc->slot % TAP_RING_BIG_SLOTS]);
    atomic_fetch_add_explicit(&log->sink.ring->header->progress, 1, memory_order_relaxed);
    /* the piece leaves no trace in the log: what follows goes on at the same place in the file */
    log->at.base -= desc->bytes;
    log->at.absent++;
    tail_move(log, seq + 1, desc->pos + desc->bytes);
    log->span_pos = log->at.tail_pos;
    log->span_seq = log->at.tail_seq;
}

static void take_trailer(seglog *log, const tap_ring_desc *desc, tap_entry *entry)
{
    uint32_t slot = desc->slot % TAP_RING_BIG_SLOTS;
    const tap_ring_big *big = &log->at.big[slot];
    if (big->discard) {
        entry->state = tap__reason_is_rule((tap_reason)big->discard) ? TAP_RECORD_RULE : TAP_RECORD_STATS_ONLY;
        entry->reason = (uint8_t)big->discard;
        seal_again(log, desc->pos, entry);
    }
    segment_leave(log, &log->extents[slot]);
}

/* A range that its dead owner never committed: what is known of it becomes a TORN entry. */
static void take_torn(seglog *log, uint64_t seq_end, uint64_t pos_end)
{
    uint64_t pos = log->at.tail_pos, bytes = pos_end - pos, seq = log->at.tail_seq;
    tap_entry *entry = tap__look_entry(&log->taken, log->sink.ring, pos, bytes), given_up;
    tap_meta meta;
    bool known = entry && seq_end == seq + 1 && entry->seq == seq && tap__meta_read(&meta, entry + 1, entry->meta_bytes) &&
                 meta.text[TAP_META_NAME];
    if (known) {
        entry->type = TAP_ENTRY_DATA;
        entry->state = TAP_RECORD_TORN;
        entry->reason = TAP_REASON_KILLED;
        entry->has = 0;
        entry->payload_offset = entry->payload_bytes = 0;
        entry->length = bytes;
        seal_again(log, pos, entry);
    } else {
        entry = &given_up;
        seal_skip(entry, seq, seq_end - seq, bytes);
        tap__look_put(log->sink.ring, pos, entry);
        log->at.torn += seq_end - seq;
    }
    settle_absent(log, entry);
    tail_move(log, seq_end, pos_end);
}

static void seglog_take(tap_sink *sink, const tap_ring_desc *desc)
{
    seglog *log = of(sink);
    uint64_t seq = log->at.tail_seq;
    if (desc->piece) {
        take_piece(log, desc, seq);
        return;
    }
    tap_entry *entry = tap__look_entry(&log->taken, sink->ring, desc->pos, desc->bytes);
    if (!entry || !entry_is_sane(entry, desc->bytes)) {
        take_torn(log, seq + 1, desc->pos + desc->bytes);
        return;
    }
    maybe_new_segment(log, desc->pos, seq, entry->length);
    settle_absent(log, entry);
    if (entry->type != TAP_ENTRY_STEP)
        log->step_has_records = true;
    if (entry->type == TAP_ENTRY_BIG) {
        take_big(log, desc, entry, seq);
        return;
    }
    if (entry->type == TAP_ENTRY_TRAILER)
        take_trailer(log, desc, entry);
    tail_move(log, seq + 1, desc->pos + desc->bytes);
    if (entry->type != TAP_ENTRY_STEP)
        return;
    log->newest_step = entry->step < INT64_MAX ? entry->step + 1 : INT64_MAX; /* the last step has none after it */
    if (config(log)->last > 0 && log->step_has_records) { /* so that whole segments can go when their steps are old */
        span_write(log);
        segment_start(log, log->at.segment + 1, log->at.tail_pos, log->at.tail_seq, NULL);
        step_mark(log);
    }
}

static void seglog_tail(const tap_sink *sink, uint64_t *seq, uint64_t *pos)
{
    const seglog *log = (const seglog *)sink;
    *seq = log->at.tail_seq;
    *pos = log->at.tail_pos;
}

static void seglog_skip(tap_sink *sink, uint64_t seq_end, uint64_t pos_end)
{
    seglog *log = of(sink);
    uint64_t seq = log->at.tail_seq, pos = log->at.tail_pos;
    bool reserved = tap__ring_is(tap__ring_desc(sink->ring, seq), seq, TAP_RING_RESERVED);
    tap_ring_desc own = tap__look_desc(sink->ring, seq);
    if (seq_end == seq + 1 && reserved && own.piece)
        take_piece(log, &(tap_ring_desc){.pos = pos, .bytes = pos_end - pos, .piece = 1, .slot = own.slot}, seq);
    else
        take_torn(log, seq_end, pos_end);
}

/* ---------------------------------------------------------------------------------------------- start and finish */

static void seglog_close(tap_sink *sink)
{
    seglog *log = of(sink);
    tap__segment_close(&log->segment);
    for (int i = 0; i < TAP_RING_BIG_SLOTS; i++)
        tap__segment_close(&log->extents[i]);
    if (log->index)
        tap__index_close(log->index);
    tap__journal_close(log->journal);
    tap__free(log->marks);
    tap__look_free(&log->taken);
    tap__look_free(&log->walked);
    tap__free(log);
}

/* What a damaged program wrote over is not gone on from. */
static bool checkpoint_is_sane(const seglog *log)
{
    const tap_ring_checkpoint *at = &log->at;
    return at->tail_pos % TAP_ENTRY_ALIGN == 0 && at->base % TAP_PAGE == 0 && at->first_segment <= at->segment &&
           at->segment_end <= INT64_MAX / 2 && file_offset(log, at->tail_pos) - at->segment_end < 2 * TAP_PAGE;
}

/* Starts a log, or goes on where the ring's checkpoint says the last writer stopped. */
static tap_status start(seglog *log, tap_dir *root, tap_error *err)
{
    const tap_ring_config *c = config(log);
    tap__look_config(log->sink.ring, &log->config);
    log->files = tap__attempt_files(root, c->rank, c->attempt, c->child);
    tap_ring_header *h = log->sink.ring->header;
    log->at = h->checkpoint[atomic_load_explicit(&h->checkpoint_valid, memory_order_acquire) & 1];
    log->newest_step = c->first_step;
    tap_status status;
    if (log->at.segment_end == 0) {
        status = segment_start(log, 0, 0, 0, err);
        if (status == TAP_OK && tap__index_create(&log->files, &log->index, NULL) != TAP_OK)
            log->index = NULL;
    } else if (!checkpoint_is_sane(log)) {
        status = tap_fail(err, TAP_E_CORRUPT, "%s: the program wrote over the ring: what was in it is lost", root->path);
    } else {
        status = tap__segment_reopen(&log->segment, &log->files, log->at.segment, err);
        tap__segment_lock(&log->segment);
    }
    TAP_TRY(status);
    char lost[TAP_ATTEMPT_NAME];
    if (tap__journal_create(root, tap__attempt_name(&log->files, ".lost", lost), &log->journal, NULL) != TAP_OK)
        log->journal = NULL;
    if (c->last > 0)
        step_mark(log);
    log->step_has_records = log->at.tail_seq != 0; /* a writer before us may have taken some of this step */
    log->span_pos = log->at.tail_pos;
    log->span_seq = log->at.tail_seq;
    ask_space(log, tap__monotonic_ns());
    seglog_publish(&log->sink);
    return TAP_OK;
}

static tap_status seglog_open(tap_ring *ring, tap_dir *root, tap_sink **out, tap_error *err)
{
    *out = NULL;
    seglog *log = tap__calloc(1, sizeof *log);
    if (!log)
        return tap_fail_nomem(err);
    log->sink = (tap_sink){&tap__seglog_sink, ring};
    log->segment = (tap_segment)TAP_SEGMENT_CLOSED;
    for (int i = 0; i < TAP_RING_BIG_SLOTS; i++)
        log->extents[i] = (tap_segment)TAP_SEGMENT_CLOSED;
    bool room = tap__look_begin(&log->taken) && tap__look_begin(&log->walked);
    tap_status status = room ? start(log, root, err) : tap_fail_nomem(err);
    if (status == TAP_OK)
        *out = &log->sink;
    else
        seglog_close(&log->sink);
    return status;
}

static void seglog_flush(tap_sink *sink)
{
    if (config(of(sink))->durability >= TAP_DURABLE_FLUSH)
        sync_all(of(sink));
}

static bool write_end(seglog *log, bool killed)
{
    tap_entry end;
    seal_skip(&end, log->at.tail_seq, 0, sizeof end);
    end.type = TAP_ENTRY_END;
    end.absent = log->at.absent;
    end.step = log->newest_step;
    end.time_ns = tap__wall_ns();
    end.count = tap__tally_missing(log->sink.ring->tally, 0);
    end.reason = killed ? TAP_REASON_KILLED : TAP_REASON_NONE;
    tap__entry_seal(&end, &end + 1);
    return log_write(log, &end, sizeof end, log->at.segment_end, log->at.tail_seq) == 0;
}

/* A ring kept as a file has nothing more to say once its attempt is finished. */
static void remove_ring_file(const seglog *log)
{
    char name[TAP_ATTEMPT_NAME];
    if (config(log)->file_ring)
        tap__dir_unlink(log->files.root, tap__attempt_name(&log->files, ".ring", name));
}

static void seglog_finish(tap_sink *sink, const char *ended)
{
    seglog *log = of(sink);
    span_write(log);
    journal_settle(log);
    seglog_publish(sink);
    if (write_end(log, strcmp(ended, "closed") != 0))
        log->at.absent = 0;
    seglog_flush(sink);
    /* say how it ended first: should the index fail or take long, the recording is already whole */
    bool built = log->index != NULL;
    bool indexed = built && tap__index_finish(log->index, NULL) == TAP_OK;
    log->index = NULL;
    write_info(log, ended, indexed);
    if (!indexed) {
        tap_attempt_info info;
        if (tap__attempt_read(&log->files, &info, NULL) == TAP_OK &&
            tap__index_rebuild(&log->files, &info, NULL, NULL, NULL, NULL) == TAP_OK)
            write_info(log, ended, true);
    }
    tap__journal_close(log->journal);
    log->journal = NULL;
    remove_ring_file(log);
}

const tap_sink_type tap__seglog_sink = {
    .open = seglog_open, .tail = seglog_tail, .take = seglog_take, .skip = seglog_skip, .due = seglog_due,
    .publish = seglog_publish, .flush = seglog_flush, .idle = seglog_idle, .finish = seglog_finish,
    .close = seglog_close,
};
