/* test_attempt.c - who gets which attempt, what is refused and what is deleted. */
#include "record/make_segment.h"

#include "base/clock.h"

#include <pthread.h>
#include <sys/file.h>
#include <sys/wait.h>

static int setup(void **state)
{
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
    *state = scratch_make();
    return 0;
}

static int teardown(void **state)
{
    scratch_clear(*state);
    free(*state);
    return 0;
}

static tap_status take(const char *dir, int rank, int child, tap_open_mode mode, tap_attempt_files *files,
                       tap_error *err)
{
    tap_attempt_info info = {.world_size = 2};
    return tap__attempt_take(opened(dir), rank, child, mode, &info, files, err);
}

static void touch(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool exists(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* The directory its files are in. */
static const char *dir_of(const tap_attempt_files *files)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s/%s", files->root->path, files->dir);
    return path;
}

/* Marks an attempt as over, so that nothing takes it for live. */
static void end_attempt(const tap_attempt_files *files, const char *ended)
{
    tap_attempt_info info;
    assert_int_equal(tap__attempt_read(files, &info, NULL), TAP_OK);
    snprintf(info.ended, sizeof info.ended, "%s", ended);
    assert_int_equal(tap__attempt_write(files, &info, NULL), TAP_OK);
}

static void new_then_append(void **state)
{
    tap_attempt_files a, b, c;
    tap_error err;
    assert_int_equal(take(*state, 3, 0, TAP_OPEN_NEW, &a, &err), TAP_OK);
    assert_int_equal(a.attempt, 0);
    assert_true(exists(*state, "run.json"));
    assert_true(exists(*state, "rank3/attempt0.json"));
    end_attempt(&a, "killed");

    assert_int_equal(take(*state, 3, 0, TAP_OPEN_NEW, &b, &err), TAP_E_EXISTS);
    assert_non_null(strstr(err.message, "rank3"));
    assert_non_null(strstr(err.message, "killed"));
    assert_non_null(strstr(err.message, "append"));
    assert_non_null(strstr(err.message, "replace"));
    char pid[32];
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    assert_non_null(strstr(err.message, pid));

    assert_int_equal(take(*state, 3, 0, TAP_OPEN_APPEND, &b, &err), TAP_OK);
    assert_int_equal(b.attempt, 1);
    /* another rank is another recording */
    assert_int_equal(take(*state, 4, 0, TAP_OPEN_NEW, &c, &err), TAP_OK);
    assert_int_equal(c.attempt, 0);
}

static void append_goes_above_leftover_segments(void **state)
{
    tap_attempt_files a;
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_OK);
    touch(dir_of(&a), "attempt6-000000.tap"); /* its .json is gone */
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_APPEND, &a, NULL), TAP_OK);
    assert_int_equal(a.attempt, 7);
}

static void restart_of_the_same_job(void **state)
{
    tap_attempt_files a;
    setenv("TORCHELASTIC_RUN_ID", "job-7", 1);
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_OK);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1); /* not a restart */
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_E_EXISTS);
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_OK);
    assert_int_equal(a.attempt, 1);
    setenv("TORCHELASTIC_RUN_ID", "job-8", 1); /* another job */
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_E_EXISTS);
    unsetenv("TORCHELASTIC_RUN_ID"); /* two unknown jobs are not the same job */
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_E_EXISTS);
}

static void replace_deletes_only_ours(void **state)
{
    tap_attempt_files a, c;
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, NULL), TAP_OK);
    end_attempt(&a, "closed");
    assert_int_equal(take(*state, 0, 55, TAP_OPEN_REPLACE, &c, NULL), TAP_OK); /* a child never replaces */
    assert_true(exists(dir_of(&a), "attempt0.json"));
    end_attempt(&c, "closed");
    static const char *const OURS[] = {"attempt0-000000.tap", "attempt0-123456.tap", "attempt0.sqlite", "attempt0.lost",
                                       "attempt0.ring", ".tap-0a1b2c3d-0123456789abcdef.tmp",
                                       "child55/attempt0-000000.tap"};
    static const char *const THEIRS[] = {"attempt.json", "attempt0.txt", "attempt0-1.tap", "attempt0-000000.tap.bak",
                                         "notes.json", "attemptx.json", "x.tap", "../rank1.json", "../model.pt",
                                         "child55/mine.npy", ".tap-mine.tmp"};
    for (size_t i = 0; i < sizeof OURS / sizeof OURS[0]; i++)
        touch(dir_of(&a), OURS[i]);
    for (size_t i = 0; i < sizeof THEIRS / sizeof THEIRS[0]; i++)
        touch(dir_of(&a), THEIRS[i]);
    tap_attempt_files b;
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_REPLACE, &b, NULL), TAP_OK);
    assert_int_equal(b.attempt, 0);
    for (size_t i = 0; i < sizeof OURS / sizeof OURS[0]; i++)
        if (exists(dir_of(&a), OURS[i]))
            fail_msg("%s is still there", OURS[i]);
    for (size_t i = 0; i < sizeof THEIRS / sizeof THEIRS[0]; i++)
        if (!exists(dir_of(&a), THEIRS[i]))
            fail_msg("%s was deleted", THEIRS[i]);
    assert_false(exists(dir_of(&a), "child55/attempt0.json"));
}

static void live_is_a_lock(void **state)
{
    tap_attempt_files a;
    tap_attempt_info info = {.started_ns = 1}; /* long ago: only a lock makes it live */
    assert_int_equal(tap__attempt_take(opened(*state), 0, 0, TAP_OPEN_NEW, &info, &a, NULL), TAP_OK);
    assert_false(tap__attempt_is_live(&a, &info));
    touch(dir_of(&a), "attempt0-000000.tap");
    touch(dir_of(&a), "attempt0-000001.tap");
    char *path = segment_path(&a, 1);
    int fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(tap__attempt_is_live(&a, &info));
    tap_error err;
    tap_attempt_files b;
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_REPLACE, &b, &err), TAP_E_BUSY);
    assert_true(exists(dir_of(&a), "attempt0.json"));
    touch(dir_of(&a), "attempt0-000002.tap"); /* made, not locked yet */
    assert_true(tap__attempt_is_live(&a, &info));
    snprintf(info.ended, sizeof info.ended, "closed");
    assert_false(tap__attempt_is_live(&a, &info));
    info.ended[0] = 0;
    assert_int_equal(tap_run_wait(*state, 30, &err), TAP_E_TIMEOUT);
    close(fd);
    assert_false(tap__attempt_is_live(&a, &info));
    assert_int_equal(tap_run_wait(*state, -1, &err), TAP_OK);
    free(path);
}

static void just_taken_counts_as_live(void **state)
{
    tap_attempt_files a;
    tap_attempt_info info = {0};
    assert_int_equal(tap__attempt_take(opened(*state), 0, 0, TAP_OPEN_NEW, &info, &a, NULL), TAP_OK);
    assert_true(tap__attempt_is_live(&a, &info));
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    info.pid = (int32_t)pid; /* dead now */
    assert_false(tap__attempt_is_live(&a, &info));
    info.pid = (int32_t)getpid();
    info.started_ns = tap__wall_ns() - 60000000000u;
    assert_false(tap__attempt_is_live(&a, &info));
}

static void info_survives(void **state)
{
    tap_attempt_files a;
    tap_attempt_info info = {.pid = 12, .world_size = 8, .host = "h\"ö\\st", .job = "j", .started_ns = UINT64_MAX},
                     back;
    assert_int_equal(tap__attempt_take(opened(*state), 0, 0, TAP_OPEN_NEW, &info, &a, NULL), TAP_OK);
    info.ended_ns = 5;
    memcpy(info.ended, "recovered", 10);
    info.entries = UINT64_MAX;
    info.records = 1;
    info.bytes = 1ull << 63;
    info.filtered = 2;
    info.stats_only = 3;
    info.dropped = 4;
    info.torn = 5;
    info.not_named = 6;
    info.first_segment = 7;
    info.segments = UINT32_MAX;
    info.indexed = true;
    assert_int_equal(tap__attempt_write(&a, &info, NULL), TAP_OK);
    memset(&back, 0xAA, sizeof back);
    assert_int_equal(tap__attempt_read(&a, &back, NULL), TAP_OK);
    assert_memory_equal(&info, &back, sizeof info);
}

static void bad_descriptions(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", "{", "[]", "null", "{}", "{\"tensortap\": 2}", "{\"tensortap\": \"1\"}",
                                      "{\"tensortap\": 1, \"pid\": \"x\"}", "{\"tensortap\": 1, \"pid\": 1e3}",
                                      "{\"tensortap\": 1, \"segments\": -1}",
                                      "{\"tensortap\": 1, \"pid\": 99999999999}",
                                      "{\"tensortap\": 1, \"host\": 3}", "{\"tensortap\": 1, \"indexed\": 1}",
                                      "{\"tensortap\": 1, \"x\": [[[[[[[[[[[[]]]]]]]]]]]]}"};
    tap_attempt_info info;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        if (tap__attempt_parse(BAD[i], strlen(BAD[i]), &info, NULL) == TAP_OK)
            fail_msg("accepted %s", BAD[i]);
    assert_int_equal(tap__attempt_parse("{\"tensortap\": 1}", 16, &info, NULL), TAP_OK);
}

static void wrong_places(void **state)
{
    tap_attempt_files a;
    tap_error err;
    char path[4096];
    touch(*state, "file");
    snprintf(path, sizeof path, "%s/file", (char *)*state);
    tap_dir *none;
    assert_int_equal(tap__dir_open(path, true, &none, &err), TAP_E_EXISTS);
    assert_non_null(strstr(err.message, "file"));
    snprintf(path, sizeof path, "%s/run.json", (char *)*state);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "{\"tensortap\": 9}", 16), 16);
    close(fd);
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_APPEND, &a, &err), TAP_E_FORMAT);
    assert_int_equal(take(*state, -1, 0, TAP_OPEN_APPEND, &a, &err), TAP_E_INVALID);
    unlink(path);
    /* a directory with other things in it is fine, and is made with its parents */
    assert_int_equal(take(*state, 0, 0, TAP_OPEN_NEW, &a, &err), TAP_OK);
    snprintf(path, sizeof path, "%s/x/y/z", (char *)*state);
    assert_int_equal(take(path, 0, 0, TAP_OPEN_NEW, &a, &err), TAP_OK);
}

typedef struct racer {
    pthread_barrier_t *start;
    const char *dir;
    tap_open_mode mode;
    int rank, attempt;
} racer;

static void *race(void *user)
{
    racer *r = user;
    tap_attempt_files files;
    r->attempt = -1;
    pthread_barrier_wait(r->start);
    if (take(r->dir, r->rank, 0, r->mode, &files, NULL) == TAP_OK) {
        r->attempt = files.attempt;
    }
    return NULL;
}

/* Of many that ask at once each number goes to one; of many that want a new recording one gets it. */
static void races(void **state)
{
    enum { N = 8 };
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, N), 0);
    for (int round = 0; round < 60; round++) {
        bool fresh = round % 2;
        racer racers[N];
        pthread_t threads[N];
        for (int i = 0; i < N; i++) {
            racers[i] = (racer){&start, *state, fresh ? TAP_OPEN_NEW : TAP_OPEN_APPEND, round, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
        }
        int got = 0, seen[N] = {0};
        for (int i = 0; i < N; i++) {
            pthread_join(threads[i], NULL);
            got += racers[i].attempt >= 0;
            if (racers[i].attempt >= 0)
                seen[racers[i].attempt]++;
        }
        assert_int_equal(got, fresh ? 1 : N);
        for (int i = 0; i < got; i++)
            assert_int_equal(seen[i], 1);
    }
    pthread_barrier_destroy(&start);
}

static void list_is_ordered(void **state)
{
    static const int WHO[][2] = {{10, 0}, {2, 0}, {2, 77}, {2, 9}, {0, 0}};
    tap_attempt_files a;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(take(*state, WHO[i][0], WHO[i][1], TAP_OPEN_NEW, &a, NULL), TAP_OK);
    }
    assert_int_equal(take(*state, 2, 0, TAP_OPEN_APPEND, &a, NULL), TAP_OK);
    assert_int_equal(take(*state, 2, 77, TAP_OPEN_NEW, &a, NULL), TAP_OK); /* of the second attempt now */
    assert_int_equal(a.attempt, 1);
    touch(*state, "rank2/child12x");
    touch(*state, "rank02");
    tap_attempt_list list;
    assert_int_equal(tap__attempt_list(opened(*state), &list, NULL), TAP_OK);
    static const int ORDER[][3] = {{0, 0, 0}, {2, 0, 0}, {2, 0, 9}, {2, 0, 77}, {2, 1, 0}, {2, 1, 77}, {10, 0, 0}};
    assert_int_equal(list.count, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(list.items[i].rank, ORDER[i][0]);
        assert_int_equal(list.items[i].attempt, ORDER[i][1]);
        assert_int_equal(list.items[i].child, ORDER[i][2]);
    }
    tap__attempt_list_free(&list);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(new_then_append), T(append_goes_above_leftover_segments), T(restart_of_the_same_job),
        T(replace_deletes_only_ours), T(live_is_a_lock), T(just_taken_counts_as_live), T(info_survives),
        T(bad_descriptions), T(wrong_places), T(races), T(list_is_ordered),
    };
    return cmocka_run_group_tests_name("attempt", tests, NULL, NULL);
}
