/* test_locks.c - a program that reads, verifies and recovers its own live recording keeps its record locks, as another
 * process sees them; when they are lost all the same, they come back, or the end that somebody else wrote is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "record/capture/recorder.h"
#include "record/ring/locks.h"
#include "record/scratch.h"
#include "tensortap/tensortap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PRODUCER = 1, WRITER = 2 }; /* bits of what is locked */
enum { TRIES = 2000, PAUSE_US = 5000, MIND_US = 250000 };

static const char *const WRITERS[] = {"thread", TAP_COMMAND};

static tap_recorder *must_open(const char *dir, const char *writer, const char *layout, bool in_file)
{
    tap_recorder *rec;
    tap_options options;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.writer = writer;
    options.layout = layout;
    options.ring = in_file ? TAP_RING_FILE : TAP_RING_MEMORY;
    options.asynchronous = true;
    options.ring_bytes = 1 << 20;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return rec;
}

static void save_some(tap_recorder *rec, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        float data[4] = {(float)i, 1, 2, 3};
        int64_t shape[1] = {4};
        char name[16];
        tap_tensor tensor = {data, TAP_F32, 1, shape, NULL};
        snprintf(name, sizeof name, "v%d", i);
        assert_int_equal(tap_save(rec, name, &tensor, NULL), TAP_OK);
    }
}

static void must_flush(tap_recorder *rec)
{
    tap_error err;
    if (tap_recorder_flush(rec, -1, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static int count_records(const char *dir)
{
    char *text = scratch_list(dir, NULL, true);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    free(text);
    return lines;
}

static void must_verify(const char *dir)
{
    tap_run *run;
    tap_error err;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options_init(&options);
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    if (tap_run_verify(run, &options, &result, &err) != TAP_OK)
        fail_msg("verify: %s", err.message);
    tap_run_close(run);
}

/* Which of two bytes of the file this process has locked, as another process sees it. */
static int locks_seen(const char *path, off_t from, int first_bit, int second_bit)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDWR), seen = 0, bits[] = {first_bit, second_bit};
        for (int i = 0; i < 2 && fd >= 0; i++) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from + i, .l_len = 1};
            if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == parent)
                seen |= bits[i];
        }
        _exit(fd >= 0 ? seen : 64);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int ring_locks_seen(const char *dir)
{
    char path[600];
    snprintf(path, sizeof path, "%s/rank0/attempt0.ring", dir);
    return locks_seen(path, 0, WRITER, PRODUCER);
}

static const tap_ring *ring_of(tap_recorder *rec)
{
    return &atomic_load(&rec->session)->ring;
}

static bool page_is_held(tap_recorder *rec)
{
    char path[16 + TAP_TALLY_NAME];
    snprintf(path, sizeof path, "/dev/shm/%s", ring_of(rec)->header->config.tally);
    return locks_seen(path, (off_t)getpid(), 1, 0) == 1;
}

/* Where it is a process. */
static void kill_writer(tap_recorder *rec)
{
    tap_counts counts;
    tap_counts_init(&counts);
    assert_int_equal(tap_recorder_counts(rec, &counts), TAP_OK);
    if (counts.writer_pid <= 0)
        return;
    kill(counts.writer_pid, SIGKILL);
    for (int i = 0; i < TRIES && tap__ring_is_locked(ring_of(rec), TAP_RING_WRITER); i++)
        usleep(PAUSE_US);
    assert_false(tap__ring_is_locked(ring_of(rec), TAP_RING_WRITER));
}

static void must_end_whole(tap_recorder *rec, const char *dir)
{
    tap_error err;
    kill_writer(rec);
    save_some(rec, 10, 10);
    must_flush(rec);
    if (tap_recorder_close(rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(count_records(dir), 20);
    must_verify(dir);
}

static void a_ring_in_a_file_keeps_its_locks(void **state)
{
    (void)state;
    for (int w = 0; w < 2; w++) {
        char *dir = scratch_make();
        tap_error err;
        tap_recorder *rec = must_open(dir, WRITERS[w], "native", true);
        save_some(rec, 0, 10);
        must_flush(rec);
        int held = w == 0 ? PRODUCER | WRITER : PRODUCER;
        assert_int_equal(ring_locks_seen(dir), held);
        assert_int_equal(count_records(dir), 10);
        assert_int_equal(ring_locks_seen(dir), held);
        must_verify(dir);
        assert_int_equal(ring_locks_seen(dir), held);
        assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_E_BUSY);
        assert_int_equal(ring_locks_seen(dir), held);
        must_end_whole(rec, dir);
        scratch_drop(dir);
    }
}

static void a_page_of_counts_stays_held(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"native", "troubleshooter"};
    for (int i = 0; i < 4; i++) {
        char *dir = scratch_make();
        tap_error err;
        tap_recorder *rec = must_open(dir, WRITERS[i & 1], LAYOUTS[i >> 1], false);
        save_some(rec, 0, 10);
        must_flush(rec);
        assert_true(page_is_held(rec));
        assert_int_equal(count_records(dir), 10);
        must_verify(dir);
        assert_true(page_is_held(rec));
        assert_int_equal(tap_run_recover(dir, NULL, &err), TAP_OK);
        assert_true(page_is_held(rec)); /* and is there still */
        must_verify(dir);
        must_end_whole(rec, dir);
        scratch_drop(dir);
    }
}

/* As a program does that copies the directory. */
static void lose_locks(const char *dir)
{
    char path[600];
    snprintf(path, sizeof path, "%s/rank0/attempt0.ring", dir);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ring_locks_seen(dir), 0);
}

static void lost_locks_come_back(void **state)
{
    (void)state;
    for (int w = 0; w < 2; w++) {
        char *dir = scratch_make();
        tap_recorder *rec = must_open(dir, WRITERS[w], "native", true);
        save_some(rec, 0, 10);
        must_flush(rec);
        lose_locks(dir);
        usleep(MIND_US);
        assert_int_equal(tap_step(rec), TAP_OK);
        assert_int_equal(ring_locks_seen(dir), w == 0 ? PRODUCER | WRITER : PRODUCER);
        must_end_whole(rec, dir);
        scratch_drop(dir);
    }
}

/* Another process takes this one for dead: what comes after that is lost, and flush and close say so. */
static void an_end_by_others_is_told(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_error err;
    int status;
    tap_recorder *rec = must_open(dir, TAP_COMMAND, "native", true);
    save_some(rec, 0, 10);
    must_flush(rec);
    kill_writer(rec);
    lose_locks(dir);
    pid_t pid = fork();
    if (pid == 0)
        _exit(tap_run_recover(dir, NULL, NULL) == TAP_OK ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    save_some(rec, 10, 10);
    assert_int_equal(tap_recorder_flush(rec, -1, &err), TAP_E_LOST);
    assert_non_null(strstr(err.message, "somebody else ended this recording"));
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    assert_int_equal(count_records(dir), 10);
    scratch_drop(dir);
}

static void the_list_forgets(void **state)
{
    (void)state;
    char path[] = "/tmp/tap-locks-XXXXXX", other[] = "/tmp/tap-locks-XXXXXX", bytes[4];
    int fd = mkstemp(path), second = mkstemp(other), status;
    struct stat st, none;
    assert_int_equal(write(fd, "abcd", 4), 4);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(fstat(second, &none), 0);
    assert_false(tap__locks_hold(&st));
    tap__locks_add(fd);
    tap__locks_add(fd);
    assert_true(tap__locks_has(fd) && tap__locks_hold(&st));
    assert_false(tap__locks_has(second) || tap__locks_hold(&none));
    assert_int_equal(tap__locks_read(&st, bytes, 2, 2), TAP_LOCKS_READ);
    assert_memory_equal(bytes, "cd", 2);
    assert_int_equal(tap__locks_read(&st, bytes, 4, 2), TAP_LOCKS_UNREADABLE);
    pid_t pid = fork();
    if (pid == 0)
        _exit(tap__locks_has(fd) || tap__locks_hold(&st));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0); /* it has no locks */
    assert_int_equal(dup2(second, fd), fd); /* the number is another file's now */
    assert_false(tap__locks_has(fd) || tap__locks_hold(&st) || tap__locks_hold(&none));
    tap__locks_remove(fd);
    tap__locks_remove(fd);
    tap__locks_add(second);
    tap__locks_remove(second);
    assert_int_equal(tap__locks_read(&none, bytes, 1, 0), TAP_LOCKS_NONE);
    close(fd);
    close(second);
    unlink(path);
    unlink(other);
}

static void quiet(void *user, tap_log_level level, const char *message)
{
    (void)user, (void)level, (void)message;
}

int main(void)
{
    tap_log_set(quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_in_a_file_keeps_its_locks),
        cmocka_unit_test(a_page_of_counts_stays_held),
        cmocka_unit_test(lost_locks_come_back),
        cmocka_unit_test(an_end_by_others_is_told),
        cmocka_unit_test(the_list_forgets),
    };
    return cmocka_run_group_tests_name("locks", tests, NULL, NULL);
}
