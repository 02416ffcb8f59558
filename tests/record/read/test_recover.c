/* test_recover.c - program and writer are both killed: what they took with them is counted, before recover and after it,
 * and where nobody can count it any more that is said and stays said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "record/ring/tally.h"
#include "record/scratch.h"
#include "tensortap/tensortap.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT = 20, TAKEN = 15 };

static const struct kind {
    const char *layout;
    bool asynchronous;
    tap_ring_kind ring;
} KINDS[] = {
    {"native", false, TAP_RING_MEMORY},
    {"native", false, TAP_RING_FILE},
    {"msprobe", false, TAP_RING_MEMORY},
    {"msprobe", true, TAP_RING_MEMORY},
    {"msprobe_modules", true, TAP_RING_MEMORY},
    {"torchair", true, TAP_RING_MEMORY},
    {"mindspore", true, TAP_RING_MEMORY},
    {"torch_npu", true, TAP_RING_MEMORY},
    {"troubleshooter", true, TAP_RING_MEMORY},
};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0] };

static void save_some(tap_recorder *rec, int count)
{
    static int made;
    for (int i = 0; i < count; i++) {
        int64_t value = made, shape[1] = {1};
        char name[32];
        snprintf(name, sizeof name, "v%d", made++);
        if (tap_save(rec, name, &(tap_tensor){&value, TAP_I64, 1, shape, NULL}, NULL) != TAP_OK)
            _exit(3);
    }
}

/* KEPT saves reach the disk; then the writer is killed, TAKEN more saves return, and the program is killed. */
static void both_killed(const char *dir, const struct kind *kind)
{
    pid_t pid = fork();
    if (pid == 0) {
        tap_options options;
        tap_options_init(&options);
        options.dir = dir;
        options.layout = kind->layout;
        options.asynchronous = kind->asynchronous;
        options.ring = kind->ring;
        options.ring_bytes = 1 << 20;
        options.writer = TAP_COMMAND;
        tap_recorder *rec;
        if (tap_recorder_open(&options, &rec, NULL) != TAP_OK)
            _exit(1);
        save_some(rec, KEPT);
        if (tap_recorder_flush(rec, -1, NULL) != TAP_OK)
            _exit(2);
        tap_counts counts;
        tap_counts_init(&counts);
        tap_recorder_counts(rec, &counts);
        kill(counts.writer_pid, SIGKILL);
        save_some(rec, TAKEN);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
}

typedef struct seen {
    tap_status status;
    uint64_t records, lost, unknown;
} seen;

static void on_problem(void *user, const tap_problem *problem)
{
    if (tap_problem_is_loss(problem->kind))
        ((seen *)user)->unknown += problem->count == 0;
}

static seen look(const char *dir)
{
    seen s = {TAP_OK, 0, 0, 0};
    tap_run *run;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options_init(&options);
    options.on_problem = on_problem;
    options.user = &s;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    s.status = tap_run_verify(run, &options, &result, NULL);
    s.records = result.records;
    s.lost = result.lost;
    tap_run_close(run);
    return s;
}

static char tally[TAP_TALLY_NAME];

static int find_tally(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    static char text[64 << 10];
    (void)st, (void)ftw;
    FILE *file = type == FTW_F ? fopen(path, "r") : NULL;
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    const char *at = strstr(text, "\"tensortap-");
    if (at)
        snprintf(tally, sizeof tally, "%.26s", at + 1);
    if (file)
        fclose(file);
    return 0;
}

/* The name that something in the recording holds. */
static void tally_of(const char *dir)
{
    tally[0] = 0;
    nftw(dir, find_tally, 16, FTW_PHYS);
}

static void a_loss_has_its_number(void **state)
{
    (void)state;
    for (int i = 0; i < KIND_COUNT; i++) {
        char *dir = scratch_make();
        both_killed(dir, &KINDS[i]);
        tally_of(dir);
        seen s = look(dir);
        assert_int_equal(s.status, TAP_E_LOST);
        assert_int_equal(s.records, KEPT);
        assert_int_equal(s.lost, TAKEN);
        for (int round = 0; round < 2; round++) { /* recovering again changes nothing */
            assert_int_equal(tap_run_recover(dir, NULL, NULL), TAP_OK);
            s = look(dir);
            bool drained = KINDS[i].ring == TAP_RING_FILE;
            assert_int_equal(s.status, drained ? TAP_OK : TAP_E_LOST);
            assert_int_equal(s.records, drained ? KEPT + TAKEN : KEPT);
            assert_int_equal(s.lost, drained ? 0 : TAKEN);
            assert_int_equal(s.unknown, 0);
        }
        tap_tally gone;
        assert_false(tap__tally_read(tally, &gone));
        scratch_drop(dir);
    }
}

/* The machine was started again, or the recording is looked at on another. */
static void an_unknown_loss_stays_one(void **state)
{
    (void)state;
    for (int i = 0; i < KIND_COUNT; i++) {
        if (KINDS[i].ring == TAP_RING_FILE)
            continue;
        char *dir = scratch_make();
        both_killed(dir, &KINDS[i]);
        tally_of(dir);
        assert_int_equal(strlen(tally), 26);
        tap__tally_remove(tally);
        for (int round = 0; round < 3; round++) {
            seen s = look(dir);
            assert_int_equal(s.status, TAP_E_LOST);
            assert_int_equal(s.records, KEPT);
            assert_int_equal(s.unknown, 1);
            assert_int_equal(tap_run_recover(dir, NULL, NULL), TAP_OK);
        }
        scratch_drop(dir);
    }
}

/* A program killed while it made its ring: the file is empty, or of its size and not yet a ring. There is nothing to
 * drain, and recover needs nobody's help. Without segments none is missed by its number. */
static void a_ring_that_was_never_begun(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char *dir = scratch_make(), ring[600], segment[600];
        both_killed(dir, &KINDS[1]);
        snprintf(ring, sizeof ring, "%s/rank0/attempt0.ring", dir);
        snprintf(segment, sizeof segment, "%s/rank0/attempt0-000000.tap", dir);
        struct stat st;
        assert_int_equal(stat(ring, &st), 0);
        assert_int_equal(truncate(ring, 0), 0);
        if (i & 1)
            assert_int_equal(truncate(ring, st.st_size), 0);
        if (i & 2)
            assert_int_equal(unlink(segment), 0);
        tap_error err;
        if (tap_run_recover(dir, NULL, &err) != TAP_OK)
            fail_msg("%s", err.message);
        assert_int_equal(access(ring, F_OK), -1);
        seen after = look(dir);
        assert_int_equal(after.status, TAP_E_LOST);
        assert_int_equal(after.records, i & 2 ? 0 : KEPT);
        assert_int_equal(after.unknown, 1);
        scratch_drop(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_has_its_number),
        cmocka_unit_test(an_unknown_loss_stays_one),
        cmocka_unit_test(a_ring_that_was_never_begun),
    };
    return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
