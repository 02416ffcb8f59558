/* make_segment.h - recordings for tests, written byte by byte from the format: a recorder that knows nothing but
 * entry.h. Everything fails the test at once. */
#ifndef TAP_TESTS_MAKE_SEGMENT_H
#define TAP_TESTS_MAKE_SEGMENT_H

#include "record/opened.h"
#include "record/native/index.h"
#include "record/native/segment.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A recording being made: one attempt, one open segment. */
typedef struct maker {
    tap_attempt_files files;
    tap_attempt_info info;
    int fd;
    uint32_t segment;
    uint64_t offset, seq;
    tap_index *index; /* NULL: none is written */
    bool lock;        /* hold the lock of a writer at work */
} maker;

static inline void maker_segment(maker *m)
{
    char *path = segment_path(&m->files, m->segment);
    m->fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    assert_true(m->fd >= 0);
    if (m->lock)
        assert_int_equal(flock(m->fd, LOCK_EX), 0);
    free(path);
    tap_segment_header header = {.magic = TAP_SEGMENT_MAGIC, .version = 1, .header_bytes = TAP_PAGE,
                                 .first_entry = TAP_PAGE + 64, .first_seq = m->seq, .segment = m->segment,
                                 .rank = m->files.rank, .attempt = m->files.attempt, .child = m->files.child};
    header.header_hash = tap_hash_bytes(&header, offsetof(tap_segment_header, header_hash));
    assert_int_equal(pwrite(m->fd, &header, sizeof header, 0), sizeof header);
    m->offset = header.first_entry;
    assert_int_equal(ftruncate(m->fd, (off_t)m->offset), 0);
    m->info.segments++;
}

static inline void maker_open(maker *m, const char *dir, int rank, int child, tap_open_mode mode, bool indexed)
{
    memset(m, 0, sizeof *m);
    tap_error err;
    if (tap__attempt_take(opened(dir), rank, child, mode, &m->info, &m->files, &err))
        fail_msg("%s", err.message);
    if (indexed)
        assert_int_equal(tap__index_create(&m->files, &m->index, &err), TAP_OK);
    maker_segment(m);
}

static inline void maker_next_segment(maker *m)
{
    int before = m->fd;
    m->segment++;
    maker_segment(m);
    close(before);
}

/* Everything of one entry that tests set. */
typedef struct made {
    tap_entry_type type; /* 0: DATA */
    const char *name, *path;
    int64_t step;
    uint32_t call;
    tap_kind kind;
    unsigned flags, state, reason;
    const float *data;
    int64_t count;       /* of data; LOST: saves */
    uint64_t ref;
    const char *source;
} made;

/* Appends one entry; returns its seq. */
static inline uint64_t maker_add(maker *m, made e)
{
    int64_t shape[1] = {e.count};
    tap_meta meta = {.shape = shape, .ndim = e.data ? 1 : 0};
    meta.text[TAP_META_NAME] = e.name;
    meta.text[TAP_META_PATH] = e.path;
    meta.text[TAP_META_SOURCE] = e.source;
    for (int tag = 1; tag < TAP_META_END; tag++)
        meta.len[tag] = meta.text[tag] ? (uint32_t)strlen(meta.text[tag]) : 0;
    uint64_t payload = e.data ? (uint64_t)e.count * sizeof *e.data : 0;
    uint32_t meta_bytes = tap__meta_size(&meta);
    uint64_t at = (m->offset + sizeof(tap_entry) + meta_bytes + 63) / 64 * 64;
    if (payload >= TAP_PAGE_ALIGN_FROM)
        at = (at + TAP_PAGE - 1) / TAP_PAGE * TAP_PAGE;
    uint64_t length = (at - m->offset + payload + 63) / 64 * 64;
    char *bytes = calloc(1, length);
    assert_non_null(bytes);
    tap_entry *entry = (tap_entry *)(void *)bytes;
    *entry = (tap_entry){.magic = TAP_ENTRY_MAGIC, .version = 1, .type = (uint8_t)(e.type ? e.type : TAP_ENTRY_DATA),
                         .kind = (uint8_t)e.kind, .dtype = e.data ? TAP_F32 : 0, .ndim = e.data ? 1 : 0,
                         .state = (uint8_t)e.state, .reason = (uint8_t)e.reason, .flags = (uint16_t)e.flags,
                         .length = length, .seq = m->seq++, .step = e.step, .call = e.call, .meta_bytes = meta_bytes,
                         .time_ns = 1700000000000000000u + m->seq, .payload_offset = payload ? at - m->offset : 0,
                         .payload_bytes = payload, .count = (uint64_t)e.count, .ref = e.ref, .line = 7};
    tap__meta_write(&meta, entry + 1);
    if (payload) {
        memcpy(bytes + entry->payload_offset, e.data, payload);
        if (entry->type == TAP_ENTRY_DATA) {
            entry->has = TAP_HAS_HASH | TAP_HAS_STATS;
            entry->hash = tap_hash_bytes(e.data, payload);
            entry->mean = e.data[0];
        }
    }
    if (entry->type == TAP_ENTRY_TRAILER) {
        entry->has = TAP_HAS_HASH;
        entry->hash = (uint64_t)e.count; /* the caller computed it */
    }
    tap__entry_seal(entry, entry + 1);
    assert_int_equal(pwrite(m->fd, bytes, length, (off_t)m->offset), (ssize_t)length);
    if (m->index)
        assert_int_equal(tap__index_add(m->index, entry, m->segment, m->offset, NULL), TAP_OK);
    m->offset += length;
    if (entry->type == TAP_ENTRY_DATA && !(e.flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE))) {
        m->info.records++;
        m->info.bytes += payload;
    }
    uint64_t seq = entry->seq;
    free(bytes);
    return seq;
}

/* Ends it in order: END entry, index, description. ended NULL: as if the writer had died now. */
static inline void maker_close(maker *m, const char *ended)
{
    if (ended)
        maker_add(m, (made){.type = TAP_ENTRY_END});
    close(m->fd);
    if (m->index && ended) {
        assert_int_equal(tap__index_finish(m->index, NULL), TAP_OK);
        m->info.indexed = true;
    } else {
        tap__index_close(m->index);
    }
    m->index = NULL;
    if (ended) {
        snprintf(m->info.ended, sizeof m->info.ended, "%s", ended);
        m->info.entries = m->seq;
        assert_int_equal(tap__attempt_write(&m->files, &m->info, NULL), TAP_OK);
    }
}

#endif
