/* test_parallel.c - work in pieces: all of it once, no piece longer than its body can take, and the same pieces for any
 * number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "engine/parallel.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_UNITS = 20000 };

typedef struct pieces {
    _Atomic uint8_t done[MOST_UNITS];  /* how often */
    _Atomic int64_t end[MOST_UNITS];   /* of the piece that begins here; 0: none does */
    _Atomic int64_t longest, shortest; /* the last piece is not counted in shortest */
    int64_t count;
} pieces;

static void note(void *user, int64_t begin, int64_t end)
{
    pieces *p = user;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&p->done[i], 1);
    atomic_store(&p->end[begin], end);
    int64_t length = end - begin, seen = atomic_load(&p->longest);
    while (length > seen && !atomic_compare_exchange_weak(&p->longest, &seen, length))
        ;
    seen = atomic_load(&p->shortest);
    while (end < p->count && length < seen && !atomic_compare_exchange_weak(&p->shortest, &seen, length))
        ;
}

static void spread(pieces *p, int threads, int64_t count, int64_t least, int64_t most)
{
    memset(p, 0, sizeof *p);
    p->count = count;
    p->shortest = INT64_MAX;
    tap__parallel(threads, count, least, most, note, p);
}

static void check(int64_t count, int64_t least, int64_t most)
{
    static const int THREADS[] = {1, 2, 3, 16};
    static pieces first, other;
    for (size_t t = 0; t < sizeof THREADS / sizeof THREADS[0]; t++) {
        pieces *p = t ? &other : &first;
        spread(p, THREADS[t], count, least, most);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(p->done[i], 1);
        assert_true(p->longest <= most);
        assert_true(p->shortest >= (least < most ? least : most));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(p->end[i], first.end[i]);
    }
}

static void edges(void **state)
{
    (void)state;
    static const int64_t SIZES[] = {0, 1, 2, 63, 64, 65, 519, 520, 576, 4096, MOST_UNITS};
    for (size_t c = 0; c < sizeof SIZES / sizeof SIZES[0]; c++)
        for (size_t l = 1; l < sizeof SIZES / sizeof SIZES[0]; l++) {
            check(SIZES[c], SIZES[l], TAP_ANY_LENGTH);
            check(SIZES[c], SIZES[l], 64);
            check(SIZES[c], 1, SIZES[l]);
        }
    check(1000, 0, 64);
    check(1000, -3, 64);
}

static void at_random(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        int64_t least = 1 + (int64_t)(next_random() % 3000);
        int64_t most = next_random() % 4 ? 1 + (int64_t)(next_random() % 3000) : TAP_ANY_LENGTH;
        check((int64_t)(next_random() % MOST_UNITS), least, most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(edges), cmocka_unit_test(at_random)};
    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
