/* test_namespaces.c - two ranks whose processes have equal numbers, as in two containers, record into one directory:
 * every record holds its own rank's value, in every layout. */
#include "record/layouts/layout.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <sys/wait.h>

enum { SAVES = 250, ELEMENTS = 200 };

typedef struct job {
    const char *dir, *layout;
    bool asynchronous;
    int rank, gate; /* gate: the end of a pipe that ends when all are ready */
} job;

static int record(const job *j)
{
    tap_options options;
    tap_options_init(&options);
    options.dir = j->dir;
    options.layout = j->layout;
    options.asynchronous = j->asynchronous;
    options.rank = options.device_index = j->rank;
    options.world_size = 2;
    options.distributed = true;
    options.writer = TAP_COMMAND;
    options.ring = TAP_RING_MEMORY;
    options.ring_bytes = 1 << 20;
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        return 2;
    char none;
    if (read(j->gate, &none, 1) != 0)
        return 3;
    static int32_t data[ELEMENTS];
    int64_t shape[1] = {ELEMENTS};
    tap_tensor tensor = {data, TAP_I32, 1, shape, NULL};
    int failed = 0;
    for (int i = 0; i < SAVES; i++) {
        char name[32];
        snprintf(name, sizeof name, "v%d", i);
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = j->rank * 1000000 + i;
        failed += tap_save(rec, name, &tensor, NULL) != TAP_OK;
    }
    return tap_recorder_close(rec, &err) != TAP_OK || failed ? 4 : 0;
}

/* In a PID namespace of its own: the recording process is number 1 there, and its writer has the same number too. */
static pid_t start(const job *j, const int *gate)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    close(gate[1]);
    if (unshare(CLONE_NEWPID) != 0)
        _exit(99);
    pid = fork();
    if (pid == 0)
        exit(record(j)); /* pid 1 here */
    int status = 0;
    waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

static void check(const char *dir, const char *layout)
{
    tap_run *run;
    tap_error err;
    if (tap_run_open(dir, &run, &err) != TAP_OK)
        fail_msg("%s: %s", layout, err.message);
    tap_query query;
    tap_query_init(&query);
    tap_cursor *cursor;
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    tap_record record;
    tap_record_init(&record);
    bool seen[2][SAVES] = {{false}};
    while (tap_cursor_next(cursor, &record, &err) == TAP_OK) {
        tap_mapping mapping;
        tap_mapping_init(&mapping);
        if (tap_record_map(run, &record, &mapping, &err) != TAP_OK)
            fail_msg("%s: %s", layout, err.message);
        const int32_t *data = mapping.tensor.data;
        int rank = data[0] / 1000000, number = data[0] % 1000000;
        const char *name = strrchr(record.name, 'v'); /* torch_npu numbers in front */
        if (rank != record.rank || number >= SAVES || !name || atoi(name + 1) != number || seen[rank][number])
            fail_msg("%s: %s of rank %d holds v%d of rank %d", layout, record.name, record.rank, number, rank);
        seen[rank][number] = true;
        tap_mapping_release(&mapping);
    }
    tap_cursor_close(cursor);
    for (int i = 0; i < 2 * SAVES; i++)
        if (!seen[i / SAVES][i % SAVES])
            fail_msg("%s: v%d of rank %d is not there", layout, i % SAVES, i / SAVES);
    assert_int_equal(tap_run_verify(run, NULL, NULL, &err), TAP_OK);
    tap_run_close(run);
}

static void two_ranks(const char *layout, bool asynchronous)
{
    char *dir = scratch_make();
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    pid_t pids[2];
    job jobs[2];
    for (int r = 0; r < 2; r++) {
        jobs[r] = (job){dir, layout, asynchronous, r, gate[0]};
        pids[r] = start(&jobs[r], gate);
    }
    close(gate[0]);
    close(gate[1]);
    int status[2], codes[2];
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pids[r], &status[r], 0), pids[r]);
        codes[r] = WIFEXITED(status[r]) ? WEXITSTATUS(status[r]) : -1;
    }
    if (codes[0] == 99) {
        scratch_drop(dir);
        print_message("skipped: a PID namespace cannot be made here (it needs root)\n");
        skip();
    }
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 0);
    check(dir, layout);
    scratch_drop(dir);
}

static void equal_pids(void **state)
{
    (void)state;
    for (size_t i = 0; tap__layout_at(i); i++) {
        two_ranks(tap__layout_at(i)->name, false);
        two_ranks(tap__layout_at(i)->name, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_pids)};
    return cmocka_run_group_tests_name("namespaces", tests, NULL, NULL);
}
