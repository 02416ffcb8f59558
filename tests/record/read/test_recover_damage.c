/* test_recover_damage.c - attempts whose writer died are finished once: what is there is counted and indexed, nothing that was
 * readable is lost, what others work on is left alone, and a ring that is no ring is refused. */
#include "record/make_segment.h"

#include "base/failing_allocator.h"

enum { SAVES = 6, COUNT = 40 };

static float value_of(int save, int64_t i)
{
    return (float)(save * 1000 + i);
}

/* An attempt of SAVES values; ended NULL: its writer died. ends: where each entry ends in the segment. */
static void make_attempt(const char *dir, int rank, const char *ended, bool lock, uint64_t *ends)
{
    maker m;
    maker_open(&m, dir, rank, 0, TAP_OPEN_NEW, ended != NULL);
    m.info.pid = 1 << 28; /* nobody */
    assert_int_equal(tap__attempt_write(&m.files, &m.info, NULL), TAP_OK);
    if (lock)
        assert_int_equal(flock(m.fd, LOCK_EX), 0);
    for (int k = 0; k < SAVES; k++) {
        float data[COUNT];
        char name[8];
        for (int i = 0; i < COUNT; i++)
            data[i] = value_of(k, i);
        snprintf(name, sizeof name, "v%d", k);
        maker_add(&m, (made){.name = name, .step = k, .data = data, .count = COUNT});
        if (ends)
            ends[k] = m.offset;
    }
    if (lock)
        m.fd = dup(m.fd); /* the lock outlives the maker */
    maker_close(&m, ended);
}

/* How many of the values can be read and are right; fails the test for one that is wrong. */
static int count_right(const char *dir)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record r;
    tap_error err;
    int right = 0;
    tap_query_init(&query);
    tap_record_init(&r);
    if (tap_run_open(dir, &run, &err) != TAP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    while (tap_cursor_next(cursor, &r, &err) == TAP_OK) {
        tap_mapping mapping;
        tap_mapping_init(&mapping);
        if (r.state != TAP_RECORD_WHOLE)
            continue;
        assert_int_equal(tap_record_map(run, &r, &mapping, &err), TAP_OK);
        for (int64_t i = 0; i < COUNT; i++)
            assert_true(((const float *)mapping.tensor.data)[i] == value_of(atoi(r.name + 1), i));
        tap_mapping_release(&mapping);
        right++;
    }
    tap_cursor_close(cursor);
    tap_run_close(run);
    return right;
}

static tap_attempt_info info_of(const char *dir, int rank)
{
    tap_attempt_files files = tap__attempt_files(opened(dir), rank, 0, 0);
    tap_attempt_info info;
    assert_int_equal(tap__attempt_read(&files, &info, NULL), TAP_OK);
    return info;
}

static bool has_index(const char *dir, int rank)
{
    char path[320];
    snprintf(path, sizeof path, "%s/rank%d/attempt0.sqlite", dir, rank);
    return access(path, F_OK) == 0;
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static void finished_once(void **state)
{
    const char *dir = *state;
    tap_error err;
    make_attempt(dir, 0, NULL, false, NULL);
    assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
    tap_attempt_info first = info_of(dir, 0);
    assert_string_equal(first.ended, "recovered");
    assert_int_equal(first.records, SAVES);
    assert_int_equal(first.bytes, SAVES * COUNT * sizeof(float));
    assert_int_equal(first.entries, SAVES);
    assert_true(first.unknown); /* nobody knows what else was saved: no all-clear */
    assert_true(first.indexed && has_index(dir, 0));
    assert_int_equal(count_right(dir), SAVES);
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_verify(run, NULL, NULL, &err), TAP_E_LOST);
    tap_run_close(run);
    assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
    tap_attempt_info again = info_of(dir, 0);
    assert_memory_equal(&again, &first, sizeof first); /* nothing was left to do */
}

/* Beside one that died: one that ended in order, and one whose writer holds its lock. */
static void others_are_left_alone(void **state)
{
    const char *dir = *state;
    tap_error err;
    make_attempt(dir, 0, NULL, false, NULL);
    make_attempt(dir, 1, "closed", false, NULL);
    make_attempt(dir, 2, NULL, true, NULL);
    tap_attempt_info closed = info_of(dir, 1), live = info_of(dir, 2);
    tap_run_recover(dir, NULL, &err);
    tap_attempt_info now = info_of(dir, 1);
    assert_memory_equal(&now, &closed, sizeof now);
    now = info_of(dir, 2);
    assert_memory_equal(&now, &live, sizeof now);
    assert_false(has_index(dir, 2));
    assert_string_equal(info_of(dir, 0).ended, "recovered");
    assert_int_equal(count_right(dir), 3 * SAVES);
}

/* The segment ends anywhere: whole entries before that place are kept, by number. */
static void cut_anywhere(void **state)
{
    uint64_t ends[SAVES];
    tap_error err;
    for (uint64_t cut = 0;; cut += 40) {
        char path[340], dir[300];
        snprintf(dir, sizeof dir, "%s/%llu", (const char *)*state, (unsigned long long)cut);
        mkdir(dir, 0755);
        make_attempt(dir, 0, NULL, false, ends);
        uint64_t start = TAP_PAGE + 64, at = start + cut;
        if (at > ends[SAVES - 1])
            break;
        snprintf(path, sizeof path, "%s/rank0/attempt0-000000.tap", dir);
        assert_int_equal(truncate(path, (off_t)at), 0);
        int whole = 0;
        while (whole < SAVES && ends[whole] <= at)
            whole++;
        int before = count_right(dir);
        assert_in_range(before, whole, whole + 1); /* the last value may be whole without its filling */
        assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
        assert_int_equal(count_right(dir), before);
        assert_string_equal(info_of(dir, 0).ended, "recovered");
    }
}

/* What stands where a ring file should be, and is none, is not followed and not deleted; an empty one was never begun. */
static void no_ring_at_all(void **state)
{
    const char *dir = *state;
    char path[320], bytes[9000];
    tap_error err;
    make_attempt(dir, 0, NULL, false, NULL);
    snprintf(path, sizeof path, "%s/rank0/attempt0.ring", dir);
    for (size_t len = 3000; len <= sizeof bytes; len += 3000) {
        memset(bytes, (int)len / 3000 * 85, sizeof bytes);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, bytes, len), (ssize_t)len);
        close(fd);
        assert_int_not_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
        assert_non_null(strstr(err.message, "ring"));
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(count_right(dir), SAVES);
    }
    unlink(path); /* as the message says */
    assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
    assert_int_equal(count_right(dir), SAVES);
}

static void without_memory(void **state)
{
    const char *dir = *state;
    tap_status status = TAP_E_NOMEM;
    tap_error err;
    make_attempt(dir, 0, NULL, false, NULL);
    long n = 0;
    for (; status != TAP_OK && n < 3000; n++) {
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        status = tap_run_recover(dir, NULL, &err);
        tap_allocator_set(NULL);
        if (n % 16 == 0)
            assert_int_equal(count_right(dir), SAVES);
    }
    assert_in_range(n, 5, 2999);
    assert_int_equal(count_right(dir), SAVES);
    assert_string_equal(info_of(dir, 0).ended, "recovered");
}

static int setup(void **state)
{
    *state = scratch_make();
    return 0;
}

static int teardown(void **state)
{
    scratch_drop(*state);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(finished_once), T(others_are_left_alone), T(cut_anywhere), T(no_ring_at_all),
                                       T(without_memory)};
    return cmocka_run_group_tests_name("recover_damage", tests, NULL, NULL);
}
