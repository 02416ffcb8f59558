/* recover.c - finishing what a writer that died could not: ring files drained, attempts without an end ended. */
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/sized.h"
#include "record/native/index.h"
#include "record/native/scan.h"
#include "record/drain/writer.h"
#include "record/ring/journal.h"
#include "record/ring/locks.h"
#include "record/ring/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After a crash of the machine a ring file may hold any mixture of old and new pages: only what proves itself by its
 * hashes is taken; the rest is treated as never committed. */
static void distrust(tap_ring *ring)
{
    tap_ring_header *h = ring->header;
    uint64_t seq = atomic_load(&h->tail_seq), head = tap__ring_head_seq(ring), pos = atomic_load(&h->tail_pos);
    tap_look look = {NULL, 0};
    if (head - seq > ring->desc_mask + 1)
        head = seq + ring->desc_mask + 1;
    for (; seq < head; seq++) {
        bool committed = tap__ring_is(tap__ring_desc(ring, seq), seq, TAP_RING_COMMITTED);
        tap_ring_desc desc = tap__look_desc(ring, seq);
        if (!committed || desc.piece) {
            pos = desc.pos + desc.bytes;
            continue;
        }
        bool cut;
        const uint8_t *bytes = tap__ring_at(ring, pos);
        bool whole = tap__look_is_range(ring, &desc, pos);
        const tap_entry *entry = whole ? tap__look_entry(&look, ring, pos, desc.bytes) : NULL;
        bool good = entry && tap__entry_check(entry, desc.bytes, &entry, &cut) == TAP_OK && entry->seq == seq;
        if (good && entry->type == TAP_ENTRY_DATA && entry->payload_bytes && entry->has & TAP_HAS_HASH)
            good = !cut && tap_hash_bytes(bytes + entry->payload_offset, entry->payload_bytes) == entry->hash;
        if (!good)
            atomic_store(&tap__ring_desc(ring, seq)->word, seq << 2 | TAP_RING_RESERVED);
        pos = desc.pos + desc.bytes;
    }
    tap__look_free(&look);
}

static tap_status refuse_ring(const tap_attempt_files *files, tap_error *err)
{
    return tap_fail(err, TAP_E_CORRUPT, "%s/%s/attempt%d.ring: the ring is damaged or of another recording; delete it "
                    "and run recover again to keep what is in the segments", files->root->path, files->dir,
                    files->attempt);
}

/* What a ring file says of its recording decides where we write: only what can be true is followed. */
static tap_status check_ring(const tap_ring *ring, const tap_attempt_files *files, tap_error *err)
{
    const tap_ring_header *h = ring->header;
    const tap_ring_config *c = &h->config;
    const tap_ring_checkpoint *at = &h->checkpoint[atomic_load(&h->checkpoint_valid) & 1];
    uint64_t used = tap__ring_used((tap_ring *)(uintptr_t)ring);
    bool whole = at->first_segment <= at->segment && at->base % TAP_PAGE == 0 && at->tail_pos % TAP_ENTRY_ALIGN == 0 &&
                 at->segment_end <= INT64_MAX / 2 && atomic_load(&h->tail_pos) % TAP_ENTRY_ALIGN == 0 &&
                 at->tail_seq - atomic_load(&h->tail_seq) <= ring->desc_mask + 1 &&
                 at->tail_pos - atomic_load(&h->tail_pos) <= used && used <= ring->mask + 1;
    bool ours = strncmp(c->layout, "native", sizeof c->layout) == 0 && c->rank == files->rank &&
                c->attempt == files->attempt && c->child == files->child;
    return whole && ours ? TAP_OK : refuse_ring(files, err);
}

/* Should it have closed the descriptor that held its locks. */
static bool is_this_process(const tap_ring_config *config)
{
    return config->pid == (int32_t)getpid() && config->pid_start == tap__process_start(config->pid);
}

/* A program that was killed while it made its ring had put nothing there. */
static bool never_begun(int fd)
{
    uint64_t magic = 0;
    off_t at = offsetof(tap_ring_header, magic);
    ssize_t got = tap__pread_all(fd, &magic, sizeof magic, at);
    return got >= 0 && magic == 0;
}

static tap_status remove_ring(const tap_attempt_files *files, const char *name, tap_error *err)
{
    if (tap__dir_unlink(files->root, name) != 0 && errno != ENOENT)
        return tap_fail_errno(err, TAP_E_IO, "cannot remove %s/%s", files->root->path, name);
    return TAP_OK;
}

static tap_status end_if_dead(const tap_attempt_files *files, tap_error *err);

static tap_status still_recording(const tap_attempt_files *files, const char *name, int pid, tap_error *err)
{
    return tap_fail(err, TAP_E_BUSY, "%s/%s: process %d is still recording; end it first", files->root->path, name, pid);
}

static tap_status give_up_ring(const tap_attempt_files *files, const char *name, tap_error *err)
{
    tap_attempt_info info;
    TAP_TRY(end_if_dead(files, err));
    if (tap__attempt_read(files, &info, NULL) == TAP_OK && !info.ended[0])
        return still_recording(files, name, info.pid, err);
    return remove_ring(files, name, err);
}

static tap_status drain_ring(const tap_attempt_files *files, const char *name, uint64_t *records, tap_error *err)
{
    struct stat st;
    if (tap__dir_stat(files->root, name, &st) == 0 && tap__locks_hold(&st))
        return still_recording(files, name, (int)getpid(), err);
    int fd = tap__dir_file(files->root, name, O_RDWR);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open the ring %s/%s", files->root->path, name);
    if (never_begun(fd)) {
        close(fd);
        return give_up_ring(files, name, err);
    }
    tap_ring ring;
    tap_status status = tap__ring_open(&ring, fd, err);
    if (status != TAP_OK)
        return status == TAP_E_FORMAT ? refuse_ring(files, err) : status;
    if (!tap__ring_take_lock(&ring, TAP_RING_WRITER)) {
        tap__ring_close(&ring);
        return tap_fail(err, TAP_E_BUSY, "%s/%s: its writer is still at work; run: tensortap wait DIR",
                        files->root->path, name);
    }
    tap_ring_config *config = &ring.header->config;
    if (tap__ring_is_locked(&ring, TAP_RING_PRODUCER) || is_this_process(config))
        status = still_recording(files, name, config->pid, err);
    if (status == TAP_OK)
        status = check_ring(&ring, files, err);
    if (status == TAP_OK) {
        uint64_t before = ring.header->checkpoint[atomic_load(&ring.header->checkpoint_valid) & 1].records;
        distrust(&ring);
        status = tap__writer_run(&ring, files->root, TAP_WRITER_RECOVER, err);
        uint64_t after = ring.header->checkpoint[atomic_load(&ring.header->checkpoint_valid) & 1].records;
        if (status == TAP_OK && records)
            *records += after - before;
    }
    tap__ring_close(&ring);
    return status == TAP_OK ? remove_ring(files, name, err) : status;
}

/* What both took with them stays a loss: by its number, or as one of unknown number. */
static void account(const tap_scan *scan, tap_attempt_info *info)
{
    bool known = scan->ended || scan->counted;
    info->not_named = known ? scan->missing : 0;
    info->unknown = !known;
    info->tally[0] = 0;
}

/* Ends an attempt whose writer died and left no ring: counts what is there, builds the index. */
static tap_status end_attempt(const tap_attempt_files *files, tap_attempt_info *info, tap_error *err)
{
    char tally[TAP_TALLY_NAME];
    memcpy(tally, info->tally, sizeof tally);
    tap_scan scan;
    TAP_TRY(tap__scan_open(&scan, files, info, err));
    const tap_entry *entry;
    uint32_t segment = 0;
    uint64_t offset;
    bool cut;
    tap_status status;
    info->records = info->bytes = info->torn = info->entries = 0;
    while ((status = tap__scan_next(&scan, &entry, &segment, &offset, &cut, err)) == TAP_OK) {
        info->entries = entry->seq + 1;
        if (entry->type != TAP_ENTRY_DATA && entry->type != TAP_ENTRY_BIG)
            continue;
        info->records++;
        info->bytes += entry->payload_bytes;
        info->torn += cut || entry->state == TAP_RECORD_TORN;
    }
    if (status == TAP_END) {
        status = TAP_OK;
        info->segments = scan.opened ? scan.segment + 1 - info->first_segment : 0;
        account(&scan, info);
    }
    tap__scan_close(&scan);
    if (status != TAP_OK)
        return status;
    snprintf(info->ended, sizeof info->ended, "recovered");
    info->ended_ns = tap__wall_ns();
    info->indexed = tap__index_rebuild(files, info, NULL, NULL, NULL, NULL) == TAP_OK;
    TAP_TRY(tap__attempt_write(files, info, err));
    tap__tally_remove(tally);
    return TAP_OK;
}

/* Without a description there is nothing to end: its segments are read as they are. */
static tap_status end_if_dead(const tap_attempt_files *files, tap_error *err)
{
    tap_attempt_info info;
    tap_status status = tap__attempt_read(files, &info, err);
    if (status != TAP_OK)
        return status == TAP_E_NOMEM ? status : TAP_OK;
    return info.ended[0] || tap__attempt_is_live(files, &info) ? TAP_OK : end_attempt(files, &info, err);
}

static tap_status recover_attempt(const tap_attempt_files *files, uint64_t *records, tap_error *err)
{
    char ring[TAP_ATTEMPT_NAME];
    return tap__dir_has(files->root, tap__attempt_name(files, ".ring", ring)) ? drain_ring(files, ring, records, err)
                                                                               : end_if_dead(files, err);
}

/* All of them; the first failure is told. */
static tap_status recover_attempts(const tap_attempt_list *list, uint64_t *records, tap_error *err)
{
    tap_status first = TAP_OK;
    for (size_t i = 0; i < list->count; i++) {
        tap_error own;
        tap_status status = recover_attempt(&list->items[i], records, &own);
        if (status != TAP_OK && first == TAP_OK) {
            first = status;
            if (err)
                *err = own;
        }
    }
    return first;
}

tap_status tap_run_recover(const char *dir, uint64_t *records, tap_error *err)
{
    TAP_NEED(err, dir);
    tap_dir *root;
    tap_attempt_list list;
    if (records)
        *records = 0;
    TAP_TRY(tap__dir_open(dir, false, &root, err));
    tap_status status = tap__attempt_list(root, &list, err);
    if (status == TAP_OK) {
        tap__clear_temporaries(root, "", TAP_CLEAR_DEPTH);
        status = recover_attempts(&list, records, err);
        tap__attempt_list_free(&list);
    }
    if (status == TAP_OK)
        status = tap__journal_recover_beside(root, err);
    tap__dir_close(root);
    return status;
}
