/* test_commit.c - the two halves of a save apart: a place is made here, and what lies there is said by another thread, with
 * statistics that somebody else found, in pieces, late, or not at all. */
#include "record/capture/save.h"
#include "record/scratch.h"
#include "tensor/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

static char *dir;
static tap_recorder *rec;

static void open_it(const char *writer, unsigned keep)
{
    tap_options options;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.writer = writer;
    options.ring_bytes = 1 << 20;
    options.keep = keep;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static int setup(void **state)
{
    (void)state;
    dir = scratch_make();
    open_it("thread", TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tap_recorder_close(rec, NULL);
    rec = NULL;
    scratch_drop(dir);
    return 0;
}

/* The first half; a value of count floats. */
static tap_status begin(tap_job *job, const char *name, tap_tensor *tensor, const int64_t *shape)
{
    tap_status status;
    if (!tap__job_begin(job, rec, name, NULL, &status))
        return status;
    tap__job_number(job);
    *tensor = (tap_tensor){.data = job, .dtype = TAP_F32, .ndim = 1, .shape = shape}; /* data: only that there is some */
    job->leaf.tensor = tensor;
    job->leaf.value_type = TAP_VALUE_TENSOR;
    job->payload = rec->options.keep & TAP_KEEP_TENSOR ? (uint64_t)shape[0] * 4 : 0;
    return tap__job_reserve(job);
}

typedef struct second_half {
    tap_job *job;
    const float *data;
    tap_findings found;
    tap_status status;
} second_half;

/* Statistics that no pass over these bytes would give: they are taken as they are. */
static tap_findings made_up(const float *data, int64_t count)
{
    tap_findings found = {.what = TAP_SCAN_STATS | TAP_SCAN_HASH};
    found.stats = (tap_stats){.count = (uint64_t)count, .zero = 7, .min.f = -3, .max.f = 5, .mean = 0.25, .norm = 9};
    found.hash = tap_hash_bytes(data, (size_t)count * 4);
    return found;
}

static void *commit(void *user)
{
    second_half *half = user;
    tap_job *job = half->job;
    if (job->room)
        memcpy(job->room, half->data, job->payload);
    for (uint64_t bytes, at = 0; job->streams; at += bytes) {
        void *room = tap__job_piece(job, &bytes);
        if (!bytes)
            break;
        if (!room)
            continue;
        memcpy(room, (const char *)half->data + at, bytes);
        tap__job_send(job);
    }
    half->status = tap__job_commit(job, &half->found);
    return NULL;
}

static tap_status commit_elsewhere(tap_job *job, const float *data, int64_t count)
{
    second_half half = {.job = job, .data = data, .found = made_up(data, count)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, commit, &half), 0);
    pthread_join(thread, NULL);
    return half.status;
}

static float *numbers(int64_t count)
{
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(i * 7 % 1000) - 3.5f;
    return data;
}

/* The record of that name, with these bytes unless data is NULL. */
static void expect(const char *name, const float *data, int64_t count, bool statistics)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_mapping mapping;
    tap_error err;
    tap_query_init(&query);
    tap_record_init(&record);
    tap_mapping_init(&mapping);
    query.name = name;
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &record, &err), TAP_OK);
    assert_int_equal(record.ndim, 1);
    assert_int_equal(record.shape[0], count);
    if (statistics) {
        assert_true(record.has_stats);
        assert_int_equal(record.stats.count, count);
        assert_int_equal(record.stats.zero, 7);
        assert_true(record.stats.min.f == -3 && record.stats.max.f == 5 && record.stats.norm == 9);
    }
    if (data) {
        assert_int_equal(record.state, TAP_RECORD_WHOLE);
        assert_int_equal(tap_record_map(run, &record, &mapping, &err), TAP_OK);
        assert_memory_equal(mapping.tensor.data, data, (size_t)count * 4);
        tap_mapping_release(&mapping);
    }
    tap_cursor_close(cursor);
    tap_run_close(run);
}

typedef struct problems {
    int count;
    char text[8][160];
} problems;

static void note(void *user, const tap_problem *problem)
{
    problems *all = user;
    assert_true(all->count < 8);
    snprintf(all->text[all->count++], sizeof all->text[0], "%s %s %d: %s", tap_problem_name(problem->kind), problem->name,
             (int)problem->count, problem->reason);
}

static problems verify(void)
{
    problems all = {.count = 0};
    tap_run *run;
    tap_verify_options options;
    tap_verify_options_init(&options);
    options.on_problem = note;
    options.user = &all;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    tap_status status = tap_run_verify(run, &options, NULL, NULL);
    assert_int_equal(status, all.count ? TAP_E_LOST : TAP_OK);
    tap_run_close(run);
    return all;
}

static void closed(tap_status status)
{
    assert_int_equal(tap_recorder_close(rec, NULL), status);
    rec = NULL;
}

static void bytes_and_statistics_come_from_another_thread(void **state)
{
    (void)state;
    int64_t shape[1] = {1000}, one[1] = {1};
    float *data = numbers(shape[0]);
    tap_job job;
    tap_tensor tensor;
    assert_int_equal(begin(&job, "late", &tensor, shape), TAP_OK);
    assert_non_null(job.room);
    assert_int_equal(tap__job_wants(&job), TAP_SCAN_STATS | TAP_SCAN_HASH);
    /* others go on meanwhile; what was reserved holds back the flush alone */
    assert_int_equal(tap_save(rec, "other", &(tap_tensor){data, TAP_F32, 1, one, NULL}, NULL), TAP_OK);
    assert_int_equal(tap_recorder_flush(rec, 50, NULL), TAP_E_TIMEOUT);
    assert_int_equal(commit_elsewhere(&job, data, shape[0]), TAP_OK);
    assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
    closed(TAP_OK);
    expect("late", data, shape[0], true);
    expect("other", data, 1, false);
    assert_int_equal(verify().count, 0);
    free(data);
}

static void larger_than_the_ring_in_pieces(void **state)
{
    (void)state;
    int64_t shape[1] = {3 << 20}; /* 12 MiB through 1 MiB */
    float *data = numbers(shape[0]);
    tap_job job;
    tap_tensor tensor;
    assert_int_equal(begin(&job, "large", &tensor, shape), TAP_OK);
    assert_true(job.streams);
    assert_null(job.room);
    assert_int_equal(commit_elsewhere(&job, data, shape[0]), TAP_OK);
    closed(TAP_OK);
    expect("large", data, shape[0], true);
    assert_int_equal(verify().count, 0);
    free(data);
}

static void statistics_alone(void **state)
{
    (void)state;
    tap_recorder_close(rec, NULL);
    scratch_clear(dir);
    open_it("thread", TAP_KEEP_STATS);
    int64_t shape[1] = {3 << 20};
    float *data = numbers(shape[0]);
    tap_job job;
    tap_tensor tensor;
    assert_int_equal(begin(&job, "only", &tensor, shape), TAP_OK);
    assert_null(job.room);
    assert_int_equal(tap__job_wants(&job), TAP_SCAN_STATS);
    assert_int_equal(commit_elsewhere(&job, data, shape[0]), TAP_OK);
    closed(TAP_OK);
    expect("only", NULL, shape[0], true);
    free(data);
}

static void what_is_abandoned_is_listed(void **state)
{
    (void)state;
    int64_t shape[1] = {1000};
    float *data = numbers(shape[0]);
    tap_job job;
    tap_tensor tensor;
    tap_counts counts;
    tap_counts_init(&counts);
    assert_int_equal(begin(&job, "gone", &tensor, shape), TAP_OK);
    assert_int_equal(tap__job_abandon(&job, TAP_REASON_BAD_VALUE), TAP_E_LOST);
    assert_int_equal(begin(&job, "there", &tensor, shape), TAP_OK);
    assert_int_equal(commit_elsewhere(&job, data, shape[0]), TAP_OK);
    tap_recorder_counts(rec, &counts);
    assert_int_equal(counts.dropped, 1);
    assert_int_equal(counts.saved, 1);
    closed(TAP_E_LOST);
    expect("there", data, shape[0], true);
    problems all = verify();
    assert_int_equal(all.count, 1);
    assert_string_equal(all.text[0], "dropped gone 1: the value could not be read");
    free(data);
}

/* Its place is there already when it turns out that it cannot be read, in one piece or streaming. */
static void what_cannot_be_read_is_listed(void **state)
{
    (void)state;
    for (int64_t count = 1000; count < 1 << 20; count *= 1000) {
        const tap_tensor tensor = {NULL, TAP_F32, 1, &count, NULL};
        tap_job job;
        tap_status status;
        assert_true(tap__job_begin(&job, rec, "gone", NULL, &status));
        job.leaf.tensor = &tensor;
        job.leaf.value_type = TAP_VALUE_TENSOR;
        job.payload = (uint64_t)count * 4;
        assert_int_equal(tap__save_entry(&job), TAP_E_LOST);
    }
    closed(TAP_E_LOST);
    problems all = verify();
    assert_int_equal(all.count, 2);
    assert_string_equal(all.text[0], "dropped gone 1: the value could not be read");
    assert_string_equal(all.text[1], "stats only gone 1: the value could not be read");
}

/* Its slot is given back: there are 64. */
static void a_stream_may_be_abandoned(void **state)
{
    (void)state;
    int64_t shape[1] = {1 << 19};
    tap_tensor tensor;
    for (int i = 0; i < 70; i++) {
        tap_job job;
        uint64_t bytes;
        assert_int_equal(begin(&job, "half", &tensor, shape), TAP_OK);
        assert_true(job.streams);
        void *room = i % 2 ? tap__job_piece(&job, &bytes) : NULL;
        if (room) {
            memset(room, 1, bytes);
            tap__job_send(&job);
        }
        assert_int_equal(tap__job_abandon(&job, TAP_REASON_BAD_VALUE), TAP_E_LOST);
        if (i % 8 == 7)
            tap_step(rec);
    }
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(rec, &counts);
    assert_int_equal(counts.stats_only, 70);
    tap_recorder_close(rec, NULL);
    rec = NULL;
    tap_run *run;
    tap_verify_result result;
    tap_verify_result_init(&result);
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    assert_int_equal(tap_run_verify(run, NULL, &result, NULL), TAP_E_LOST);
    assert_int_equal(result.lost, 70);
    tap_run_close(run);
}

static void killed_between_the_halves(void **state)
{
    (void)state;
    tap_recorder_close(rec, NULL);
    rec = NULL;
    scratch_clear(dir);
    pid_t child = fork();
    if (child == 0) {
        int64_t shape[1] = {1000};
        tap_job job;
        tap_tensor tensor;
        open_it(TAP_COMMAND, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
        if (begin(&job, "torn", &tensor, shape) == TAP_OK)
            raise(SIGKILL);
        _exit(1);
    }
    int how;
    waitpid(child, &how, 0);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
    problems all = verify();
    assert_int_equal(all.count, 1);
    assert_non_null(strstr(all.text[0], "torn torn 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_and_statistics_come_from_another_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(larger_than_the_ring_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(statistics_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_abandoned_is_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_may_be_abandoned, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_between_the_halves, setup, teardown),
    };
    return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
