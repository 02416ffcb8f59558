/* test_ring.c - the ring by itself: positions and numbers that wrap, room that is kept free, many producers against one
 * consumer, and the writer's answer to ranges that were never committed or were written over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "record/ring/ring.h"
#include "record/fill_ring.h"
#include "record/drain/writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)

/* In the file "ring" of dir, or in memory. */
static tap_ring make_ring(const char *dir, uint64_t bytes)
{
    tap_ring ring;
    tap_error err;
    tap_ring_config *config = calloc(1, sizeof *config);
    if (tap__ring_create(&ring, dir ? opened(dir) : NULL, dir ? "ring" : NULL, bytes, config, &err) != TAP_OK)
        fail_msg("%s", err.message);
    free(config);
    return ring;
}

/* As if the stream had come this far already. */
static void start_at(tap_ring *ring, uint64_t seq, uint64_t pos)
{
    tap_ring_header *h = ring->header;
    atomic_store(&h->head, (seq & ((1u << 28) - 1)) << 36 | (pos / 64 & ((1ull << 36) - 1)));
    tap__ring_publish_tail(ring, seq, pos);
}

static void sizes_are_powers_of_two(void **state)
{
    (void)state;
    static const uint64_t ASKED[] = {0, 1, MIB, 3 * MIB, 4 * MIB}, GIVEN[] = {MIB, MIB, MIB, 2 * MIB, 4 * MIB};
    for (size_t i = 0; i < 5; i++) {
        tap_ring ring = make_ring(NULL, ASKED[i]);
        assert_int_equal(ring.mask + 1, GIVEN[i]);
        assert_int_equal(atomic_load(&ring.header->writer_pid), -1);
        ring.data[0] = 17; /* mapped twice */
        assert_int_equal(ring.data[GIVEN[i]], 17);
        tap__ring_close(&ring);
    }
    tap_ring ring;
    tap_error err;
    tap_ring_config *config = calloc(1, sizeof *config);
    assert_int_not_equal(tap__ring_create(&ring, NULL, NULL, UINT64_MAX, config, &err), TAP_OK);
    assert_non_null(strstr(err.message, "ring_bytes"));
    free(config);
}

/* A program that closed its standard streams must not print into the ring. */
static void never_a_standard_stream(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        close(0);
        tap_ring ring = make_ring(NULL, MIB);
        _exit(ring.fd > 2 && fcntl(ring.fd, F_GETFD) == FD_CLOEXEC ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void room_is_kept_for_entries_without_payload(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    tap_ring_range range;
    uint64_t at, used = 0;
    while (tap__ring_reserve(&ring, 300, 100000, false, &range, &at)) {
        assert_int_equal(range.pos, used);
        assert_int_equal((range.pos + at) % 4096, 0);
        assert_true(at >= 300 && range.bytes >= at + 100000 && range.bytes % 64 == 0);
        used += range.bytes;
    }
    assert_true(used <= MIB - MIB / 16);
    assert_int_equal(tap__ring_used(&ring), used);
    assert_false(tap__ring_reserve_piece(&ring, 128 << 10, 0, 0, &range));
    int small = 0;
    for (; tap__ring_reserve(&ring, 300, 0, false, &range, &at); small++)
        assert_int_equal(range.bytes, 320);
    assert_true(small * 320 >= (int)(MIB / 16) - 320);
    assert_true(tap__ring_used(&ring) <= MIB);
    tap__ring_close(&ring);
}

static void descriptors_run_out_before_room_does(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    tap_ring_range range;
    uint64_t at, count = 0;
    while (tap__ring_reserve(&ring, 256, 8, false, &range, &at))
        count++;
    assert_int_equal(count, 1024 - 1024 / 16);
    while (tap__ring_reserve(&ring, 256, 0, false, &range, &at))
        count++;
    assert_int_equal(count, 1024);
    tap__ring_close(&ring);
}

static void what_never_fits_is_known(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    tap_ring_range range;
    uint64_t at;
    assert_true(tap__ring_can_hold(&ring, 300, tap__ring_max_payload(&ring)));
    assert_false(tap__ring_can_hold(&ring, 300, MIB));
    assert_false(tap__ring_can_hold(&ring, MIB + 300, 0));
    assert_false(tap__ring_can_hold(&ring, UINT64_MAX, UINT64_MAX));
    assert_true(tap__ring_can_hold(&ring, MIB / 2, 0));
    assert_true(tap__ring_reserve(&ring, MIB / 2, 0, false, &range, &at));
    tap__ring_close(&ring);
}

/* The head word has 28 bits of number and 36 of position: both wrap, neither may be noticed. */
static void numbers_and_positions_wrap(void **state)
{
    (void)state;
    static const uint64_t SEQS[] = {(1ull << 28) - 50, (5ull << 28) - 1, 7}, POSITIONS[] = {(1ull << 42) - MIB, 64, (9ull << 42) - 64};
    for (size_t s = 0; s < 3; s++)
        for (size_t p = 0; p < 3; p++) {
            tap_ring ring = make_ring(NULL, MIB);
            start_at(&ring, SEQS[s], POSITIONS[p]);
            assert_int_equal(tap__ring_used(&ring), 0);
            uint64_t seq = SEQS[s], pos = POSITIONS[p];
            for (int i = 0; i < 400; i++) {
                tap_ring_range range;
                uint64_t at;
                assert_true(tap__ring_reserve(&ring, 256, (uint64_t)i * 37, false, &range, &at));
                assert_int_equal(range.seq, seq);
                assert_int_equal(range.pos, pos);
                assert_ptr_equal(range.data, ring.data + pos % MIB);
                memset(range.data, i, range.bytes);
                assert_false(tap__ring_is(tap__ring_desc(&ring, seq), seq, TAP_RING_COMMITTED));
                tap__ring_commit(&range);
                assert_true(tap__ring_is(tap__ring_desc(&ring, seq), seq, TAP_RING_COMMITTED));
                assert_int_equal(tap__ring_head_seq(&ring), ++seq);
                pos += range.bytes;
                if (i % 10 == 9)
                    tap__ring_publish_tail(&ring, seq, pos);
            }
            tap__ring_close(&ring);
        }
}

static void slots_are_given_once(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    uint64_t seen = 0;
    for (int i = 0; i < TAP_RING_BIG_SLOTS; i++) {
        int slot = tap__ring_take_slot(&ring);
        assert_in_range(slot, 0, TAP_RING_BIG_SLOTS - 1);
        assert_false(seen >> slot & 1);
        seen |= 1ull << slot;
    }
    assert_int_equal(tap__ring_take_slot(&ring), -1);
    tap__ring_give_slot(&ring, 41);
    assert_int_equal(tap__ring_take_slot(&ring), 41);
    tap__ring_close(&ring);
}

/* --------------------------------------------------------------------------------------- many producers, one consumer */

enum { PRODUCERS = 4, EACH = 20000 };

typedef struct producer {
    tap_ring *ring;
    uint32_t number;
} producer;

/* Every 8-byte word of a range says who wrote it and which of theirs it is. */
static void *produce(void *argument)
{
    producer *p = argument;
    for (uint32_t i = 0; i < EACH; i++) {
        tap_ring_range range;
        uint64_t at, size = (i * 2654435761u >> 8) % 3000;
        uint32_t seen = atomic_load(&p->ring->header->tail_futex);
        while (!tap__ring_reserve(p->ring, 256, size, false, &range, &at)) {
            tap__ring_wait_tail(p->ring, seen, 20);
            seen = atomic_load(&p->ring->header->tail_futex);
        }
        uint64_t word = (uint64_t)p->number << 32 | i;
        for (uint64_t k = 0; k < range.bytes; k += 8)
            memcpy(range.data + k, &word, 8);
        tap__ring_commit(&range);
    }
    return NULL;
}

static void producers_and_one_consumer(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    uint64_t first = (1ull << 28) - PRODUCERS * EACH / 2, seq = first, pos = (1ull << 42) - 16 * MIB;
    start_at(&ring, seq, pos);
    pthread_t ids[PRODUCERS];
    producer producers[PRODUCERS];
    for (uint32_t t = 0; t < PRODUCERS; t++) {
        producers[t] = (producer){&ring, t};
        pthread_create(&ids[t], NULL, produce, &producers[t]);
    }
    uint32_t next[PRODUCERS] = {0};
    while (seq < first + PRODUCERS * EACH) {
        const tap_ring_desc *desc = tap__ring_desc(&ring, seq);
        if (!tap__ring_is(desc, seq, TAP_RING_COMMITTED)) {
            tap__ring_publish_tail(&ring, seq, pos);
            sched_yield();
            continue;
        }
        assert_int_equal(desc->pos, pos);
        uint64_t word, other;
        memcpy(&word, tap__ring_at(&ring, pos), 8);
        uint32_t who = (uint32_t)(word >> 32);
        assert_in_range(who, 0, PRODUCERS - 1);
        assert_int_equal((uint32_t)word, next[who]); /* each producer's in its own order */
        next[who]++;
        for (uint64_t k = 0; k < desc->bytes; k += 8) {
            memcpy(&other, tap__ring_at(&ring, pos) + k, 8);
            if (other != word)
                fail_msg("range %llu is mixed", (unsigned long long)seq);
        }
        pos += desc->bytes;
        seq++;
        if (seq % 16 == 0)
            tap__ring_publish_tail(&ring, seq, pos);
    }
    for (int t = 0; t < PRODUCERS; t++)
        pthread_join(ids[t], NULL);
    assert_int_equal(tap__ring_head_seq(&ring), seq);
    tap__ring_publish_tail(&ring, seq, pos);
    assert_int_equal(tap__ring_used(&ring), 0);
    tap__ring_close(&ring);
}

/* ----------------------------------------------------------------------------------- what a dead producer leaves behind */

/* A ring of a producer that is dead, with its attempt beside it. */
static tap_ring dead_ring(const char *dir)
{
    tap_attempt_files files;
    tap_ring ring = filled_ring_make(dir, MIB, NULL, &files);
    return ring;
}

static tap_ring_range put(tap_ring *ring, const char *name, uint64_t payload, bool commit)
{
    return ring_put(ring, (ring_entry){.name = name, .payload = payload, .open = !commit});
}

static void drain_dead_ring(tap_ring *ring, const char *dir)
{
    tap_error err;
    if (tap__writer_run(ring, opened(dir), TAP_WRITER_RECOVER, &err) != TAP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(atomic_load(&ring->header->finished), 1);
}

/* Killed between any two instructions of a save: before it filled its descriptor in, before or after its name was there. */
static void torn_reservations_are_skipped(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_ring ring = dead_ring(dir);
    put(&ring, "first", 1000, true);
    tap_ring_range nameless = put(&ring, "nameless", 100, false);
    memset(nameless.data, 0xEE, nameless.bytes);
    put(&ring, "second", 1000, true);
    tap_ring_range unknown = put(&ring, "unknown", 500, false); /* its descriptor still has an older round's word */
    atomic_store(&unknown.desc->word, 0);
    unknown.desc->pos = unknown.desc->bytes = UINT64_MAX;
    memset(unknown.data, 0, unknown.bytes);
    put(&ring, "third", 1000, true);
    put(&ring, "torn", 5000, false);
    tap_ring_range tail = put(&ring, "tail", 70000, false);
    atomic_store(&tail.desc->word, 0);
    memset(tail.data, 0, tail.bytes);
    drain_dead_ring(&ring, dir);
    tap__ring_close(&ring);
    char *text = scratch_list(dir, NULL, true);
    assert_string_equal(text, "first@0.0 forward uint8[1000] 0\nsecond@0.0 forward uint8[1000] 0\n"
                              "third@0.0 forward uint8[1000] 0\ntorn@0.0 forward uint8[5000] 3\n");
    free(text);
    tap_run *run;
    tap_error err;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options_init(&options);
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_verify(run, &options, &result, &err), TAP_E_LOST);
    tap_run_close(run);
    scratch_drop(dir);
}

/* The program wrote over its ring: nothing crashes, hangs or is believed; what is whole is kept. */
static void a_ring_that_was_written_over(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int round = 0; round < 60; round++) {
        char *dir = scratch_make();
        tap_ring ring = dead_ring(dir);
        for (int i = 0; i < 20; i++)
            put(&ring, "value", 100 + (uint64_t)i * 777, i % 7 != 3);
        for (int hit = 0; hit < 1 + round / 4; hit++) {
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            uint64_t where = dice >> 33, what = dice ^ dice >> 29;
            uint8_t *victims[] = {(uint8_t *)tap__ring_desc(&ring, where % 20) + where / 32 % 8 * 8,
                                  ring.data + where % 200000 / 8 * 8, (uint8_t *)&ring.header->desc_count,
                                  (uint8_t *)&ring.header->head, (uint8_t *)&ring.header->data_bytes};
            uint8_t *victim = victims[where / 7 % (hit % 3 ? 2 : 5)];
            memcpy(victim, &what, victim == (uint8_t *)&ring.header->desc_count ? 4 : 8);
        }
        alarm(60);
        drain_dead_ring(&ring, dir);
        alarm(0);
        tap__ring_close(&ring);
        char *text = scratch_list(dir, NULL, true);
        free(text);
        scratch_drop(dir);
    }
}

static void what_is_not_a_ring_is_refused(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[600];
    snprintf(path, sizeof path, "%s/ring", dir);
    tap_ring ring = make_ring(dir, MIB);
    ring.header->desc_count = 1u << 31;
    tap__ring_close(&ring);
    tap_error err;
    assert_int_equal(tap__ring_open(&ring, open(path, O_RDWR), &err), TAP_E_FORMAT);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(tap__ring_open(&ring, open(path, O_RDWR), &err), TAP_E_FORMAT);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tap__ring_open(&ring, open(path, O_RDWR), &err), TAP_E_FORMAT);
    scratch_drop(dir);
}

static void one_writer_at_a_time(void **state)
{
    (void)state;
    tap_ring ring = make_ring(NULL, MIB);
    int go[2];
    char byte;
    assert_false(tap__ring_is_locked(&ring, TAP_RING_WRITER));
    assert_int_equal(pipe(go), 0);
    pid_t writer = fork();
    if (writer == 0) {
        bool took = tap__ring_take_lock(&ring, TAP_RING_WRITER);
        if (write(go[1], took ? "y" : "n", 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(go[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    struct rlimit none, before; /* nothing of this needs a descriptor */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_true(tap__ring_is_locked(&ring, TAP_RING_WRITER));
    assert_false(tap__ring_is_locked(&ring, TAP_RING_PRODUCER));
    assert_false(tap__ring_take_lock(&ring, TAP_RING_WRITER));
    assert_true(tap__ring_take_lock(&ring, TAP_RING_PRODUCER));
    if (fork() == 0) /* a child of the producer is not the producer */
        _exit(tap__ring_is_locked(&ring, TAP_RING_PRODUCER) ? 0 : 1);
    int status;
    assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kill(writer, SIGKILL);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_false(tap__ring_is_locked(&ring, TAP_RING_WRITER));
    assert_true(tap__ring_take_lock(&ring, TAP_RING_WRITER));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(go[0]);
    close(go[1]);
    tap__ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_powers_of_two),
        cmocka_unit_test(never_a_standard_stream),
        cmocka_unit_test(room_is_kept_for_entries_without_payload),
        cmocka_unit_test(descriptors_run_out_before_room_does),
        cmocka_unit_test(what_never_fits_is_known),
        cmocka_unit_test(numbers_and_positions_wrap),
        cmocka_unit_test(slots_are_given_once),
        cmocka_unit_test(producers_and_one_consumer),
        cmocka_unit_test(torn_reservations_are_skipped),
        cmocka_unit_test(a_ring_that_was_written_over),
        cmocka_unit_test(what_is_not_a_ring_is_refused),
        cmocka_unit_test(one_writer_at_a_time),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
