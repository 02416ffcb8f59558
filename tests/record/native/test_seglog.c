/* test_seglog.c - the segment log by itself: what a ring is given, however the disk answers and whenever the writer is
 * replaced, lies whole in the segments or is named with a reason. The test keeps a list of what it put into the ring;
 * the segments are read with scan.h and the journal with journal.h. */
#include "record/fill_ring.h"

#include "base/clock.h"
#include "base/failing_allocator.h"
#include "base/random.h"
#include "fault/shim.h"
#include "record/native/index.h"
#include "record/native/scan.h"
#include "record/native/seglog.h"
#include "record/ring/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MIB (1u << 20)
#define TYPE (&tap__seglog_sink)
enum { MAX_FED = 600, BIG_BYTES = 300000, PIECE = 128 << 10 };

typedef enum fate { UNSEEN, WHOLE, NAMED, NAMED_BY_RULE } fate;

typedef struct fed {
    tap_entry_type type; /* DATA or BIG */
    int64_t step;
    uint64_t payload;
    bool open;           /* never committed: may only be torn */
    fate fate;
} fed;

typedef struct bench {
    char *dir;
    tap_attempt_files files;
    tap_ring ring;
    tap_sink *sink;
    fed fed[MAX_FED];
    int count;
    int64_t step;
} bench;

static void disk_well(void)
{
    unsetenv("SHIM_FULL");
    unsetenv("SHIM_FAIL");
    unsetenv("SHIM_SHORT");
    unsetenv("SHIM_EINTR");
    unsetenv("SHIM_SYNC");
    unsetenv("SHIM_FREE");
}

static void disk_set(const char *what, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(what, text, 1);
}

/* The sink keeps the address of the ring. */
static bench *bench_new(uint64_t ring_bytes, const tap_ring_config *config)
{
    bench *b = calloc(1, sizeof *b);
    disk_well();
    b->dir = scratch_make();
    b->ring = filled_ring_make(b->dir, ring_bytes, config, &b->files);
    return b;
}

static bench *bench_make(uint64_t ring_bytes, const tap_ring_config *config)
{
    bench *b = bench_new(ring_bytes, config);
    tap_error err;
    if (TYPE->open(&b->ring, b->files.root, &b->sink, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return b;
}

static void bench_drop(bench *b)
{
    if (b->sink)
        TYPE->close(b->sink);
    tap__ring_close(&b->ring);
    scratch_drop(b->dir);
    free(b);
}

static tap_ring_header *header(const bench *b)
{
    return b->ring.header;
}

static const char *name_of(int number)
{
    static char name[32];
    snprintf(name, sizeof name, "v%d", number);
    return name;
}

/* ------------------------------------------------------------------------------------------------------- the writer */

/* As drain/writer.c does it, with one difference: nothing is published but what is due. */
static void take_all(bench *b)
{
    for (;;) {
        uint64_t seq, pos;
        TYPE->tail(b->sink, &seq, &pos);
        const tap_ring_desc *desc = tap__ring_desc(&b->ring, seq);
        if (!tap__ring_is(desc, seq, TAP_RING_COMMITTED))
            return;
        TYPE->take(b->sink, desc);
        if (TYPE->due(b->sink))
            TYPE->publish(b->sink);
    }
}

static void publish_all(bench *b)
{
    take_all(b);
    TYPE->publish(b->sink);
}

/* The writer is killed: what it did not publish it never took. */
static void other_writer(bench *b)
{
    tap_error err;
    TYPE->close(b->sink);
    if (TYPE->open(&b->ring, b->files.root, &b->sink, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

/* Killed after the bytes were written and before the ring heard of it. */
static void other_writer_after_writing(bench *b)
{
    tap_ring_header *h = header(b), *before = malloc(sizeof *before);
    memcpy(before, h, sizeof *before);
    publish_all(b);
    memcpy(h->checkpoint, before->checkpoint, sizeof h->checkpoint);
    atomic_store(&h->checkpoint_valid, atomic_load(&before->checkpoint_valid));
    tap__ring_publish_tail(&b->ring, atomic_load(&before->tail_seq), atomic_load(&before->tail_pos));
    free(before);
    other_writer(b);
}

/* ------------------------------------------------------------------------------------------------------ the producer */

static tap_ring_range put(bench *b, ring_entry e)
{
    tap_ring_range range;
    e.step = b->step;
    if (!ring_try(&b->ring, e, &range)) {
        publish_all(b);
        assert_true(ring_try(&b->ring, e, &range));
    }
    return range;
}

static int enter(bench *b, tap_entry_type type, uint64_t payload, bool open)
{
    assert_true(b->count < MAX_FED);
    b->fed[b->count] = (fed){.type = type, .step = b->step, .payload = payload, .open = open};
    return b->count++;
}

static void feed(bench *b, uint64_t payload)
{
    int number = enter(b, TAP_ENTRY_DATA, payload, false);
    put(b, (ring_entry){.name = name_of(number), .payload = payload, .fill = (uint64_t)number});
}

static void feed_step(bench *b)
{
    put(b, (ring_entry){.type = TAP_ENTRY_STEP});
    b->step++;
}

typedef struct big {
    int number, slot;
    uint64_t seq, sent;
} big;

static big big_begin(bench *b)
{
    big x = {.number = enter(b, TAP_ENTRY_BIG, BIG_BYTES, false), .slot = tap__ring_take_slot(&b->ring)};
    x.seq = put(b, (ring_entry){.name = name_of(x.number), .type = TAP_ENTRY_BIG, .payload = BIG_BYTES, .slot = x.slot}).seq;
    return x;
}

/* False: that was the last. */
static bool big_piece(bench *b, big *x)
{
    uint64_t bytes = BIG_BYTES - x->sent < PIECE ? BIG_BYTES - x->sent : PIECE;
    tap_ring_range range;
    if (!tap__ring_reserve_piece(&b->ring, bytes, (uint32_t)x->slot, x->sent, &range)) {
        publish_all(b);
        assert_true(tap__ring_reserve_piece(&b->ring, bytes, (uint32_t)x->slot, x->sent, &range));
    }
    fill_bytes(range.data, bytes, (uint64_t)x->number, x->sent);
    tap__ring_commit(&range);
    x->sent += bytes;
    return x->sent < BIG_BYTES;
}

static void big_end(bench *b, const big *x)
{
    tap__ring_give_slot(&b->ring, x->slot);
    put(b, (ring_entry){.name = name_of(x->number), .type = TAP_ENTRY_TRAILER, .ref = x->seq, .slot = x->slot,
                        .count = BIG_BYTES, .fill = (uint64_t)x->number});
}

static void feed_big(bench *b)
{
    big x = big_begin(b);
    while (big_piece(b, &x))
        ;
    big_end(b, &x);
}

static uint64_t random_size(void)
{
    static const uint64_t SIZES[] = {0, 1, 64, 500, 4096, 20000, 70000, 130000};
    return SIZES[next_random() % 8];
}

/* Entries of all sizes, two large tensors under way at once, and the ends of steps. */
static void feed_mixture(bench *b, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 5; k++)
            feed(b, random_size());
        if (i % 3 == 1) {
            big x = big_begin(b), y = big_begin(b);
            big_piece(b, &x);
            feed(b, 100);
            while (big_piece(b, &y))
                ;
            feed(b, 5000);
            big_end(b, &y);
            while (big_piece(b, &x))
                ;
            big_end(b, &x);
        }
        feed_step(b);
    }
}

/* -------------------------------------------------------------------------------------------------------- the reader */

static void settle(bench *b, int number, fate what)
{
    assert_in_range(number, 0, b->count - 1);
    if (b->fed[number].fate != UNSEEN)
        fail_msg("v%d is there twice", number);
    b->fed[number].fate = what;
}

static void expect_payload(const bench *b, int number, uint32_t segment, uint64_t offset)
{
    uint64_t bytes = b->fed[number].payload;
    char *path = segment_path(&b->files, segment);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *back = malloc(bytes + 1);
    assert_int_equal(pread(fd, back, bytes, (off_t)offset), bytes);
    for (uint64_t i = 0; i < bytes; i++)
        if (back[i] != fill_byte((uint64_t)number, i))
            fail_msg("v%d: byte %llu of %llu is another", number, (unsigned long long)i, (unsigned long long)bytes);
    free(back);
    close(fd);
    tap__free(path);
}

static fate named_because(uint8_t reason)
{
    assert_int_not_equal(reason, TAP_REASON_NONE);
    return tap__reason_is_rule((tap_reason)reason) ? NAMED_BY_RULE : NAMED;
}

static int number_of(const tap_entry *entry)
{
    tap_meta meta;
    char name[32] = "";
    assert_true(tap__meta_read(&meta, entry + 1, entry->meta_bytes));
    assert_in_range(meta.len[TAP_META_NAME], 2, sizeof name - 1);
    memcpy(name, meta.text[TAP_META_NAME], meta.len[TAP_META_NAME]);
    return atoi(name + 1);
}

/* A BIG entry; without a trailer it is torn. */
typedef struct started {
    uint64_t seq, offset; /* of its payload */
    uint32_t segment;
    int number;
    bool ended;
} started;

typedef struct reading {
    bench *b;
    started big[MAX_FED];
    int bigs;
    uint64_t records, ends;
} reading;

static void read_trailer(reading *r, const tap_entry *entry)
{
    for (int i = 0; i < r->bigs; i++) {
        started *begun = &r->big[i];
        if (begun->seq != entry->ref)
            continue;
        begun->ended = true;
        bool whole = entry->state == TAP_RECORD_WHOLE;
        settle(r->b, begun->number, whole ? WHOLE : named_because(entry->reason));
        if (!whole)
            continue;
        assert_int_equal(entry->hash, fill_hash(BIG_BYTES, (uint64_t)begun->number));
        expect_payload(r->b, begun->number, begun->segment, begun->offset);
    }
}

static void read_value(reading *r, const tap_entry *entry, uint32_t segment, uint64_t offset)
{
    int number = number_of(entry);
    r->records++;
    if (entry->state != TAP_RECORD_WHOLE) {
        settle(r->b, number, named_because(entry->reason));
        return;
    }
    assert_false(r->b->fed[number].open);
    assert_int_equal(entry->payload_bytes, r->b->fed[number].payload);
    if (entry->type == TAP_ENTRY_BIG) {
        r->big[r->bigs++] = (started){entry->seq, offset + entry->payload_offset, segment, number, false};
        return;
    }
    expect_payload(r->b, number, segment, offset + entry->payload_offset);
    settle(r->b, number, WHOLE);
}

static void read_journal_line(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    bench *b = user;
    (void)bytes;
    assert_int_equal(count, 1);
    assert_int_equal(step, b->fed[atoi(name + 1)].step);
    settle(b, atoi(name + 1), named_because((uint8_t)reason));
}

static void read_segments(reading *r, const tap_attempt_info *info)
{
    tap_scan scan;
    tap_error err;
    assert_int_equal(tap__scan_open(&scan, &r->b->files, info, &err), TAP_OK);
    for (;;) {
        const tap_entry *entry;
        uint32_t segment;
        uint64_t offset;
        bool cut;
        tap_status status = tap__scan_next(&scan, &entry, &segment, &offset, &cut, &err);
        if (scan.gap_entries || (scan.damage_bytes && !scan.damage_is_tail) || scan.bad_header || scan.missing_segments)
            fail_msg("%llu numbers without an entry, %llu bytes are none", (unsigned long long)scan.gap_entries,
                     (unsigned long long)scan.damage_bytes);
        if (status == TAP_END)
            break;
        assert_int_equal(status, TAP_OK);
        if (entry->type == TAP_ENTRY_TRAILER)
            read_trailer(r, entry);
        else if (entry->type == TAP_ENTRY_DATA || entry->type == TAP_ENTRY_BIG)
            read_value(r, entry, segment, offset);
        r->ends += entry->type == TAP_ENTRY_END;
    }
    tap__scan_close(&scan);
    for (int i = 0; i < r->bigs; i++)
        if (!r->big[i].ended)
            settle(r->b, r->big[i].number, NAMED);
}

static tap_status verify(const bench *b, uint64_t *not_named)
{
    tap_run *run;
    tap_error err;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options_init(&options);
    assert_int_equal(tap_run_open(b->dir, &run, &err), TAP_OK);
    tap_status status = tap_run_verify(run, &options, &result, &err);
    tap_run_close(run);
    *not_named = result.not_named;
    return status;
}

typedef struct totals {
    int whole, named, rule, unseen;
    uint64_t not_named; /* of which verify knows that they were, and no more */
} totals;

/* Ends the recording and holds what is on disk against the list. */
static totals finish(bench *b)
{
    reading r = {.b = b};
    totals sum = {0};
    tap_attempt_info info;
    publish_all(b);
    TYPE->finish(b->sink, "closed");
    TYPE->close(b->sink);
    b->sink = NULL;
    char lost[TAP_ATTEMPT_NAME];
    tap__attempt_name(&b->files, ".lost", lost);
    assert_int_equal(tap__journal_read(b->files.root, lost, read_journal_line, b, NULL), TAP_OK);
    assert_int_equal(tap__attempt_read(&b->files, &info, NULL), TAP_OK);
    assert_string_equal(info.ended, "closed");
    read_segments(&r, &info);
    if (header(b)->config.last)
        assert_true(info.records >= r.records); /* of deleted steps too */
    else
        assert_int_equal(info.records, r.records);
    for (int i = 0; i < b->count; i++) {
        sum.whole += b->fed[i].fate == WHOLE;
        sum.named += b->fed[i].fate == NAMED;
        sum.rule += b->fed[i].fate == NAMED_BY_RULE;
        sum.unseen += b->fed[i].fate == UNSEEN;
    }
    tap_status status = verify(b, &sum.not_named);
    assert_int_equal(status, sum.named || sum.not_named ? TAP_E_LOST : TAP_OK);
    return sum;
}

static void finish_whole(bench *b)
{
    totals sum = finish(b);
    assert_int_equal(sum.whole, b->count);
}

static uint32_t segment_count(const bench *b)
{
    uint32_t *numbers;
    size_t count;
    assert_int_equal(tap__segment_list(&b->files, &numbers, &count, NULL), TAP_OK);
    tap__free(numbers);
    return (uint32_t)count;
}

static uint64_t segment_bytes(const bench *b, uint32_t number)
{
    struct stat st;
    char *path = segment_path(&b->files, number);
    assert_int_equal(stat(path, &st), 0);
    tap__free(path);
    return (uint64_t)st.st_size;
}

/* --------------------------------------------------------------------------------------------------------- segments */

static void entries_of_all_sizes(void **state)
{
    (void)state;
    bench *b = bench_make(MIB, NULL);
    feed_mixture(b, 30); /* several times around the ring */
    assert_true(atomic_load(&header(b)->tail_pos) > 4 * MIB);
    finish_whole(b);
    assert_int_equal(segment_count(b), 1);
    bench_drop(b);
}

static void spans_that_go_past_the_page_cache(void **state)
{
    (void)state;
    bench *b = bench_make(8 * MIB, NULL);
    for (int i = 0; i < 60; i++)
        feed(b, 250000);
    finish_whole(b);
    bench_drop(b);
}

static void many_segments(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->segment_bytes = 200000;
    bench *b = bench_make(MIB, config);
    feed_mixture(b, 30);
    publish_all(b);
    uint32_t count = segment_count(b);
    assert_true(count > 20);
    for (uint32_t i = 0; i < count; i++) /* one that holds a large tensor alone is as long as that */
        assert_true(segment_bytes(b, i) <= 200000 || segment_bytes(b, i) >= BIG_BYTES);
    finish_whole(b);
    free(config);
    bench_drop(b);
}

/* Where the next segment cannot be made the last one grows on, and a later attempt is made. */
static void a_segment_that_cannot_be_made(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->segment_bytes = 100000;
    bench *b = bench_make(MIB, config);
    char *next = segment_path(&b->files, 1);
    assert_int_equal(mkdir(next, 0700), 0);
    for (int i = 0; i < 10; i++)
        feed(b, 30000);
    publish_all(b);
    assert_true(segment_bytes(b, 0) > 200000);
    assert_int_equal(rmdir(next), 0);
    feed(b, 30000);
    feed(b, 30000);
    publish_all(b);
    assert_int_equal(segment_count(b), 2);
    finish_whole(b);
    tap__free(next);
    free(config);
    bench_drop(b);
}

/* --------------------------------------------------------------------------------------------------- another writer */

static void other_writers_go_on(void **state)
{
    (void)state;
    for (int segments = 0; segments < 2; segments++) {
        tap_ring_config *config = calloc(1, sizeof *config);
        config->segment_bytes = segments ? 150000 : 0;
        bench *b = bench_make(MIB, config);
        for (int i = 0; i < 60; i++) {
            feed_mixture(b, 1);
            uint64_t dice = next_random() % 4;
            if (dice == 1)
                take_all(b); /* taken, written in part, not published */
            if (dice == 2)
                publish_all(b);
            if (dice == 3)
                other_writer_after_writing(b);
            else
                other_writer(b);
        }
        finish_whole(b);
        free(config);
        bench_drop(b);
    }
}

/* A writer dies between any two parts of large tensors; the files of the earlier ones are opened again. */
static void other_writers_within_large_tensors(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->segment_bytes = 200000;
    bench *b = bench_make(MIB, config);
    big at[3];
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 3; i++) {
            at[i] = big_begin(b);
            feed(b, 90000); /* the next one begins in another segment */
            publish_all(b);
            other_writer(b);
        }
        for (bool more = true; more;) {
            for (int i = 0; i < 3; i++) {
                more = big_piece(b, &at[i]);
                feed(b, 1000);
                if (round % 2)
                    publish_all(b);
                else
                    take_all(b);
                other_writer(b);
            }
        }
        for (int i = 0; i < 3; i++)
            big_end(b, &at[i]);
        feed_step(b);
    }
    finish_whole(b);
    free(config);
    bench_drop(b);
}

/* ------------------------------------------------------------------------------------------------------------ disks */

static void short_and_interrupted_writes(void **state)
{
    (void)state;
    bench *b = bench_make(8 * MIB, NULL);
    disk_set("SHIM_SHORT", 70001);
    disk_set("SHIM_EINTR", 3);
    feed_mixture(b, 20);
    publish_all(b);
    disk_well();
    finish_whole(b);
    bench_drop(b);
}

/* The disk gives up after so many bytes, and is well again later, or not. */
static totals disk_gives_up(const char *how, long after, bool recovers)
{
    tap_ring_config *config = calloc(1, sizeof *config);
    config->segment_bytes = after % 3 ? 300000 : 0;
    bench *b = bench_make(MIB, config);
    feed_mixture(b, 2);
    publish_all(b);
    atomic_store(&shim_written, 0);
    disk_set(how, after);
    feed_mixture(b, 6);
    publish_all(b);
    if (after < 500000) {
        assert_int_not_equal(atomic_load(&header(b)->degraded), TAP_REASON_NONE);
        assert_int_equal(atomic_load(&header(b)->error_count), 1);
    }
    if (after % 2)
        other_writer(b); /* who knows nothing of it but what the ring says */
    if (recovers) {
        disk_well();
        TYPE->idle(b->sink, tap__monotonic_ns() + 2000000000u);
        assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_NONE);
        feed_mixture(b, 3);
    }
    totals sum = finish(b);
    disk_well();
    assert_int_equal(sum.unseen, sum.not_named);
    free(config);
    bench_drop(b);
    return sum;
}

static void a_full_disk(void **state)
{
    (void)state;
    for (int recovers = 0; recovers < 2; recovers++)
        for (long after = 1; after < 700000; after += 20011) {
            totals sum = disk_gives_up("SHIM_FULL", after, recovers);
            assert_true(after > 500000 || sum.named > 0);
            assert_int_equal(sum.unseen, 0); /* the journal has its room since the start */
        }
}

static void a_failing_disk(void **state)
{
    (void)state;
    for (long after = 1; after < 700000; after += 40009) {
        totals sum = disk_gives_up("SHIM_FAIL", after, true);
        if (after % 2 == 0)
            assert_int_equal(sum.unseen, 0); /* the same writer names them when it can again */
    }
}

/* Less left than the reserve that is not ours: bytes are left out before a write fails. */
static void little_room(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->reserve_bytes = 1 << 20;
    bench *b = bench_make(MIB, config);
    feed(b, 1000);
    publish_all(b);
    disk_set("SHIM_FREE", 1 << 20);
    TYPE->idle(b->sink, tap__monotonic_ns() + 2000000000u); /* not degraded: nothing is asked */
    other_writer(b);                                      /* asks when it starts */
    feed(b, 1000);
    feed_big(b);
    publish_all(b);
    assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_DISK_FULL);
    TYPE->idle(b->sink, tap__monotonic_ns() + 2000000000u);
    assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_DISK_FULL);
    disk_set("SHIM_FREE", 1 << 30);
    TYPE->idle(b->sink, tap__monotonic_ns() + 4000000000u);
    assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_NONE);
    feed(b, 1000);
    totals sum = finish(b);
    disk_well();
    assert_int_equal(sum.whole, 2);
    assert_int_equal(sum.named, 2);
    free(config);
    bench_drop(b);
}

/* One value that is too large for what is left keeps nobody else out, and "room again" is said when bytes were written. */
static void one_too_large(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->max_bytes = BIG_BYTES;
    bench *b = bench_make(MIB, config);
    feed(b, 1000);
    for (int i = 0; i < 3; i++) {
        feed_big(b);
        feed(b, 1000);
        publish_all(b);
        TYPE->idle(b->sink, tap__monotonic_ns() + 2000000000u * (uint64_t)(i + 1));
        assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_NONE);
        assert_int_equal(atomic_load(&header(b)->error_count), 1); /* once, and nothing else */
    }
    totals sum = finish(b);
    assert_int_equal(sum.whole, 4);
    assert_int_equal(sum.rule, 3);
    free(config);
    bench_drop(b);
}

static void room_again_is_said_when_it_is_true(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->reserve_bytes = 1 << 20;
    bench *b = bench_make(MIB, config);
    feed(b, 1000);
    disk_set("SHIM_FREE", 1 << 20);
    other_writer(b);
    publish_all(b);
    assert_int_equal(atomic_load(&header(b)->error_count), 1); /* full */
    for (uint64_t i = 1; i < 4; i++) {
        disk_set("SHIM_FREE", 1 << 30); /* for a moment: gone before anything is written */
        TYPE->idle(b->sink, tap__monotonic_ns() + 2 * i * 2000000000u);
        disk_set("SHIM_FREE", 1 << 20);
        feed(b, 1000);
        publish_all(b);
        assert_int_equal(atomic_load(&header(b)->error_count), 1);
    }
    disk_set("SHIM_FREE", 1 << 30);
    TYPE->idle(b->sink, tap__monotonic_ns() + 40000000000u);
    assert_int_equal(atomic_load(&header(b)->error_count), 1);
    feed(b, 1000);
    publish_all(b);
    assert_int_equal(atomic_load(&header(b)->error_count), 2); /* now */
    disk_well();
    finish(b);
    free(config);
    bench_drop(b);
}

/* What the disk did not keep is said, stays said, and the next flush does not make it good. */
static void a_disk_that_does_not_keep(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->durability = TAP_DURABLE_FLUSH;
    config->segment_bytes = 100000;
    bench *b = bench_make(MIB, config);
    feed(b, 1000);
    publish_all(b);
    TYPE->flush(b->sink);
    assert_int_equal(atomic_load(&header(b)->sync_errno), 0);
    disk_set("SHIM_SYNC", 1);
    for (int i = 0; i < 5; i++)
        feed(b, 60000); /* a segment that is left is synced too */
    publish_all(b);
    assert_int_equal(atomic_load(&header(b)->sync_errno), EIO);
    assert_in_range(atomic_load(&header(b)->error_count), 1, 5);
    disk_well();
    TYPE->flush(b->sink);
    assert_int_equal(atomic_load(&header(b)->sync_errno), EIO);
    finish_whole(b);
    free(config);
    bench_drop(b);
}

/* ------------------------------------------------------------------------------------------------------------ rules */

static void no_more_than_max_bytes(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->max_bytes = 500000;
    bench *b = bench_make(MIB, config);
    feed_mixture(b, 10);
    publish_all(b);
    assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_MAX_BYTES);
    TYPE->idle(b->sink, tap__monotonic_ns() + 2000000000u); /* time alone makes no room */
    assert_int_equal(atomic_load(&header(b)->degraded), TAP_REASON_MAX_BYTES);
    totals sum = finish(b);
    assert_true(sum.whole > 0 && sum.rule > 0);
    assert_int_equal(sum.whole + sum.rule, b->count);
    assert_true(segment_bytes(b, 0) < 500000 + 64 * 1024); /* statistics have no limit */
    free(config);
    bench_drop(b);
}

/* Of the last steps everything is there, of older ones nothing, and nothing counts as lost. */
static void only_the_last_steps(void **state)
{
    (void)state;
    for (int writers = 0; writers < 2; writers++) {
        tap_ring_config *config = calloc(1, sizeof *config);
        config->last = 3;
        bench *b = bench_make(MIB, config);
        for (int i = 0; i < 20; i++) {
            feed_mixture(b, 1);
            publish_all(b);
            if (i > 5)
                assert_true(segment_count(b) <= 5);
        }
        if (writers)
            other_writer(b);
        feed_step(b); /* without records: takes none away */
        feed_step(b);
        totals sum = finish(b);
        assert_int_equal(sum.named + sum.rule, 0);
        for (int i = 0; i < b->count; i++)
            if (b->fed[i].step >= 17)
                assert_int_equal(b->fed[i].fate, WHOLE);
            else if (b->fed[i].step < 16)
                assert_int_equal(b->fed[i].fate, UNSEEN);
        free(config);
        bench_drop(b);
    }
}

/* A large tensor that outlives its step: its beginning is deleted, and nothing is written there any more. */
static void a_large_tensor_of_a_deleted_step(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->last = 1;
    bench *b = bench_make(MIB, config);
    big x = big_begin(b);
    big_piece(b, &x);
    publish_all(b);
    for (int i = 0; i < 4; i++) {
        feed(b, 100);
        feed_step(b);
        publish_all(b);
    }
    while (big_piece(b, &x))
        ;
    big_end(b, &x);
    totals sum = finish(b);
    assert_int_equal(b->fed[x.number].fate, UNSEEN);
    assert_int_equal(sum.named, 0);
    assert_int_equal(b->fed[b->count - 1].fate, WHOLE);
    free(config);
    bench_drop(b);
}

/* ----------------------------------------------------------------------------------------------- dead and damaged */

static tap_ring_range put_open(bench *b, uint64_t payload)
{
    int number = enter(b, TAP_ENTRY_DATA, payload, true);
    return put(b, (ring_entry){.name = name_of(number), .payload = payload, .fill = (uint64_t)number, .open = true});
}

static void give_up(bench *b, const tap_ring_range *to)
{
    take_all(b);
    (TYPE->skip)(b->sink, to->seq + 1, to->pos + to->bytes);
}

static void what_was_never_committed(void **state)
{
    (void)state;
    bench *b = bench_make(MIB, NULL);
    feed(b, 1000);
    tap_ring_range named = put_open(b, 3000); /* its header was there: named as torn */
    give_up(b, &named);
    feed(b, 1000);
    tap_ring_range first = put_open(b, 200), second = put_open(b, 70000); /* as one range: no names */
    memset(first.data, 0xEE, first.bytes);
    give_up(b, &second);
    feed(b, 1000);
    totals sum = finish(b);
    assert_int_equal(sum.whole, 3);
    assert_int_equal(sum.named, 1);
    assert_int_equal(sum.unseen, 2);
    tap_attempt_info info;
    assert_int_equal(tap__attempt_read(&b->files, &info, NULL), TAP_OK);
    assert_int_equal(info.torn, 3);
    bench_drop(b);
}

/* A piece whose owner died: its trailer never comes, and what follows lies where it should. */
static void a_piece_that_was_never_committed(void **state)
{
    (void)state;
    bench *b = bench_make(MIB, NULL);
    big x = big_begin(b);
    big_piece(b, &x);
    tap_ring_range range;
    assert_true(tap__ring_reserve_piece(&b->ring, PIECE, (uint32_t)x.slot, x.sent, &range));
    give_up(b, &range);
    for (int i = 0; i < 5; i++)
        feed(b, 20000);
    totals sum = finish(b);
    assert_int_equal(sum.whole, 5);
    assert_int_equal(sum.named, 1); /* a BIG entry without a trailer */
    bench_drop(b);
}

/* Committed, and then written over by the program: given up with its number, never followed. */
static void entries_written_over(void **state)
{
    (void)state;
    for (int field = 0; field < 6; field++) {
        bench *b = bench_make(MIB, NULL);
        feed(b, 1000);
        tap_ring_range range = put_open(b, 5000);
        tap_entry *entry = (tap_entry *)(void *)range.data;
        if (field == 0)
            entry->magic++;
        if (field == 1)
            entry->length = UINT64_MAX - 63;
        if (field == 2)
            entry->meta_bytes = UINT32_MAX - 7;
        if (field == 3)
            entry->payload_bytes = INT64_MAX;
        if (field == 4)
            entry->payload_offset = UINT64_MAX - 100;
        if (field == 5)
            entry->type = TAP_ENTRY_BIG;
        tap__ring_commit(&range);
        feed(b, 1000);
        totals sum = finish(b);
        assert_int_equal(sum.whole, 2);
        bench_drop(b);
    }
}

/* ------------------------------------------------------------------------------------------------- memory, files */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    bool succeeded = false;
    for (long most = 0; most < 400; most += most < 60 || !succeeded ? 1 : 7) {
        bench *b = bench_new(MIB, NULL);
        tap_error err;
        allocations_left = most;
        tap_allocator_set(&FAILING_ALLOCATOR);
        tap_status status = TYPE->open(&b->ring, b->files.root, &b->sink, &err);
        if (status == TAP_OK) {
            feed_mixture(b, 3);
            publish_all(b);
        }
        tap_allocator_set(NULL);
        if (status == TAP_OK) {
            succeeded = true;
            assert_int_equal(finish(b).unseen, 0);
        } else {
            assert_int_equal(status, TAP_E_NOMEM);
            assert_null(b->sink);
        }
        bench_drop(b);
    }
    assert_true(succeeded);
}

static void a_ring_file_goes_with_its_attempt(void **state)
{
    (void)state;
    tap_ring_config *config = calloc(1, sizeof *config);
    config->file_ring = 1;
    bench *b = bench_make(MIB, config);
    char *path = attempt_path(&b->files, ".ring");
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    feed(b, 100);
    publish_all(b);
    other_writer(b);
    assert_int_equal(access(path, F_OK), 0); /* its end alone takes it away */
    finish_whole(b);
    assert_int_equal(access(path, F_OK), -1);
    tap__free(path);
    free(config);
    bench_drop(b);
}

/* An index that a writer began is its own: the next one builds it from the segments. */
static void the_index_is_there_at_the_end(void **state)
{
    (void)state;
    for (int writers = 0; writers < 2; writers++) {
        bench *b = bench_make(MIB, NULL);
        feed_mixture(b, 4);
        publish_all(b);
        if (writers)
            other_writer(b);
        feed_mixture(b, 1);
        finish_whole(b);
        tap_index *index;
        tap_index_counts counts;
        assert_int_equal(tap__index_open(&b->files, &index, NULL), TAP_OK);
        tap__index_counts(index, &counts);
        assert_int_equal(counts.records, b->count);
        tap__index_close(index);
        bench_drop(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_of_all_sizes),
        cmocka_unit_test(spans_that_go_past_the_page_cache),
        cmocka_unit_test(many_segments),
        cmocka_unit_test(a_segment_that_cannot_be_made),
        cmocka_unit_test(other_writers_go_on),
        cmocka_unit_test(other_writers_within_large_tensors),
        cmocka_unit_test(short_and_interrupted_writes),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_failing_disk),
        cmocka_unit_test(little_room),
        cmocka_unit_test(a_disk_that_does_not_keep),
        cmocka_unit_test(no_more_than_max_bytes),   cmocka_unit_test(one_too_large),
        cmocka_unit_test(room_again_is_said_when_it_is_true),
        cmocka_unit_test(only_the_last_steps),
        cmocka_unit_test(a_large_tensor_of_a_deleted_step),
        cmocka_unit_test(what_was_never_committed),
        cmocka_unit_test(a_piece_that_was_never_committed),
        cmocka_unit_test(entries_written_over),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_ring_file_goes_with_its_attempt),
        cmocka_unit_test(the_index_is_there_at_the_end),
    };
    return cmocka_run_group_tests_name("seglog", tests, NULL, NULL);
}
