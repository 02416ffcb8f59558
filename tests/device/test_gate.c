/* test_gate.c - the gate kernel, run natively: where groups are put, what it does where there is no room, how long it waits, and
 * many gates at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native_kernels.h"

enum { HEADERS = 8, PAYLOAD = 1024 };

typedef struct fixture {
    tap_k_words words;
    tap_k_tails tails;
    tap_k_group group;
    tap_k_gate gate;
} fixture;

static void start(fixture *f, tap_k_word full, tap_k_word stall_ns)
{
    memset(f, 0, sizeof *f);
    f->words.on = 1;
    f->words.serial = 4;
    f->words.step = 9;
    f->gate = (tap_k_gate){.room = {.words = &f->words, .tails = &f->tails, .header_count = HEADERS, .payload_bytes = PAYLOAD},
                           .group = &f->group, .headers = 1, .full = full, .stall_ns = stall_ns};
}

static tap_k_word pass(fixture *f, tap_k_word headers, tap_k_word payload)
{
    f->gate.headers = headers;
    f->gate.payload = payload;
    native_gate(&f->gate);
    return f->group.state;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void groups_follow_one_another(void **state)
{
    (void)state;
    fixture f;
    start(&f, TAP_K_DROP, 0);
    assert_int_equal(pass(&f, 3, 128), TAP_K_WHOLE);
    assert_int_equal(f.group.seq, 0);
    assert_int_equal(f.group.at, 0);
    assert_int_equal(f.group.serial, 4);
    assert_int_equal(f.group.step, 9);
    assert_int_equal(f.group.replay, 1);
    assert_int_equal(pass(&f, 2, 64), TAP_K_WHOLE);
    assert_int_equal(f.group.seq, 3);
    assert_int_equal(f.group.at, 128);
    assert_int_equal(f.group.replay, 2);
    assert_int_equal(pass(&f, 3, 0), TAP_K_WHOLE); /* needs no payload */
    assert_int_equal(f.words.head_seq, 8);
    assert_int_equal(f.words.head_at, 192);
}

static void a_payload_does_not_wrap(void **state)
{
    (void)state;
    fixture f;
    start(&f, TAP_K_DROP, 0);
    assert_int_equal(pass(&f, 1, 512), TAP_K_WHOLE);
    assert_int_equal(pass(&f, 1, 384), TAP_K_WHOLE);
    f.tails = (tap_k_tails){2, 896};
    assert_int_equal(pass(&f, 1, 256), TAP_K_WHOLE);
    assert_int_equal(f.group.at, 1024); /* 896 + 256 would reach past the end */
    assert_int_equal(f.words.head_at, 1280);
}

static void off_nothing_is_reserved(void **state)
{
    (void)state;
    fixture f;
    start(&f, TAP_K_BLOCK, 0);
    f.words.on = 0;
    assert_int_equal(pass(&f, 1, 64), TAP_K_OFF);
    assert_int_equal(f.words.head_seq, 0);
    assert_int_equal(f.group.replay, 1); /* a replay all the same */
    f.words.on = 1;
    assert_int_equal(pass(&f, 1, 64), TAP_K_WHOLE);
    assert_int_equal(f.group.replay, 2);
}

static void without_room_the_policy_decides(void **state)
{
    (void)state;
    fixture f;
    start(&f, TAP_K_STATS_ONLY, 0);
    assert_int_equal(pass(&f, 1, 512), TAP_K_WHOLE);
    assert_int_equal(pass(&f, 1, 512), TAP_K_WHOLE);
    assert_int_equal(pass(&f, 2, 64), TAP_K_HEADER_ONLY);
    assert_int_equal(f.words.stats_only, 2);
    f.gate.full = TAP_K_DROP;
    assert_int_equal(pass(&f, 2, 64), TAP_K_LOST);
    assert_int_equal(f.words.lost, 2);
    f.gate.full = TAP_K_STATS_ONLY;
    assert_int_equal(pass(&f, 4, 0), TAP_K_WHOLE);
    assert_int_equal(pass(&f, 1, 0), TAP_K_LOST); /* no headers either */
    assert_int_equal(f.words.lost, 3);
    assert_int_equal(f.words.head_seq, 8);
}

/* After one gave up none waits until the tail moves. */
static void a_wait_is_bounded_once(void **state)
{
    (void)state;
    fixture f;
    start(&f, TAP_K_BLOCK, 50000000);
    assert_int_equal(pass(&f, 1, 1024), TAP_K_WHOLE);
    double began = now();
    assert_int_equal(pass(&f, 1, 64), TAP_K_HEADER_ONLY);
    assert_true(now() - began >= 0.05);
    began = now();
    f.gate.stall_ns = 60000000000u;
    assert_int_equal(pass(&f, 1, 64), TAP_K_HEADER_ONLY); /* would hang for a minute */
    assert_true(now() - began < 20);
    f.tails = (tap_k_tails){3, 1024};
    assert_int_equal(pass(&f, 1, 64), TAP_K_WHOLE);
    assert_int_equal(f.words.stats_only, 2);
}

/* ------------------------------------------------------------------------------------------------------- many at once */

enum { GATES = 4, ROUNDS = 2000 };

typedef struct user {
    fixture *shared;
    tap_k_gate gate;
    tap_k_group group;
    tap_k_word seqs[ROUNDS], ats[ROUNDS];
} user;

static _Atomic uint64_t passed; /* gates: at least so many are reserved */

static void *go_through(void *arg)
{
    user *u = arg;
    for (int i = 0; i < ROUNDS; i++) {
        native_gate(&u->gate);
        atomic_fetch_add(&passed, 1);
        u->seqs[i] = u->group.state == TAP_K_WHOLE ? u->group.seq : ~0ull;
        u->ats[i] = u->group.at;
    }
    return NULL;
}

/* Frees what was reserved, a little behind. Numbers are given in order, so those below `passed` are taken. */
static void *drain(void *arg)
{
    fixture *f = arg;
    for (tap_k_word seq = 0; seq < GATES * ROUNDS;) {
        if (seq == atomic_load(&passed)) {
            usleep(50);
            continue;
        }
        seq++;
        __atomic_store_n(&f->tails.at, seq * 64, __ATOMIC_RELEASE);
        __atomic_store_n(&f->tails.seq, seq, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void many_gates_share_the_room(void **state)
{
    (void)state;
    static fixture f;
    static user users[GATES];
    static char taken[GATES * ROUNDS];
    pthread_t threads[GATES], drainer;
    memset(taken, 0, sizeof taken);
    start(&f, TAP_K_BLOCK, 20000000000u);
    pthread_create(&drainer, NULL, drain, &f);
    for (int i = 0; i < GATES; i++) {
        users[i].gate = f.gate;
        users[i].gate.payload = 64;
        users[i].gate.group = &users[i].group;
        pthread_create(&threads[i], NULL, go_through, &users[i]);
    }
    for (int i = 0; i < GATES; i++)
        pthread_join(threads[i], NULL);
    pthread_join(drainer, NULL);
    for (int i = 0; i < GATES; i++)
        for (int k = 0; k < ROUNDS; k++) {
            assert_true(users[i].seqs[k] < GATES * ROUNDS);
            assert_int_equal(users[i].ats[k], users[i].seqs[k] * 64);
            assert_int_equal(taken[users[i].seqs[k]]++, 0);
        }
    assert_int_equal(f.words.lost + f.words.stats_only, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_follow_one_another),
        cmocka_unit_test(a_payload_does_not_wrap),
        cmocka_unit_test(off_nothing_is_reserved),
        cmocka_unit_test(without_room_the_policy_decides),
        cmocka_unit_test(a_wait_is_bounded_once),
        cmocka_unit_test(many_gates_share_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
