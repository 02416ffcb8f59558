/* test_recorder.c - what a recorder promises: everything saved comes back equal, filters and limits do what they say,
 * forks, threads and every failing allocation are survived. Runs with a writer thread and with a writer process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "record/capture/recorder.h"
#include "record/opened.h"
#include "record/native/scan.h"
#include "record/scratch.h"
#include "tensortap/tensortap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char *last_log;

static void keep_log(void *user, tap_log_level level, const char *message)
{
    (void)user;
    (void)level;
    free(last_log);
    last_log = strdup(message);
}

static tap_options options_for(const char *dir, const char *writer)
{
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    options.writer = writer;
    options.ring_bytes = 1 << 20;
    options.stall_ms = 20000;
    return options;
}

static tap_recorder *must_open(const tap_options *options)
{
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return rec;
}

static void must_close(tap_recorder *rec)
{
    tap_error err;
    if (tap_recorder_close(rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static void save_floats(tap_recorder *rec, const char *name, size_t count, float first)
{
    float *data = malloc(count * sizeof *data + 1);
    int64_t shape[1] = {(int64_t)count};
    for (size_t i = 0; i < count; i++)
        data[i] = first + (float)(i % 1000);
    tap_tensor tensor = {data, TAP_F32, 1, shape, NULL};
    assert_int_equal(tap_save(rec, name, &tensor, NULL), TAP_OK);
    memset(data, 0xff, count * sizeof *data);
    free(data);
}

static void expect_floats(const char *dir, const char *name, size_t count, float first)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_record_init(&record);
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_error err;
    tap_query_init(&query);
    query.name = name;
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &record, &err), TAP_OK);
    assert_int_equal(record.payload_bytes, count * 4);
    assert_int_equal(tap_record_map(run, &record, &mapping, &err), TAP_OK);
    const float *data = mapping.tensor.data;
    for (size_t i = 0; i < count; i++)
        if (data[i] != first + (float)(i % 1000))
            fail_msg("%s[%zu] is %g", name, i, (double)data[i]);
    assert_true(record.has_stats && record.has_hash);
    assert_int_equal(record.hash, tap_hash_bytes(data, count * 4));
    tap_mapping_release(&mapping);
    tap_cursor_close(cursor);
    tap_run_close(run);
}

static void expect_verify(const char *dir, tap_status expected)
{
    tap_run *run;
    tap_error err;
    tap_verify_options options;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options_init(&options);
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    tap_status status = tap_run_verify(run, &options, &result, &err);
    if (status != expected)
        fail_msg("verify says %s", tap_status_name(status));
    tap_run_close(run);
}

static void expect_list(const char *dir, const char *name, const char *expected)
{
    char *text = scratch_list(dir, name, false);
    assert_string_equal(text, expected);
    free(text);
}

/* Each test runs once with a thread and once with the command as writer. */
static const char *const WRITERS[] = {"thread", TAP_COMMAND};

/* Where many threads save: the thread sanitizer cannot see that a writer in another process comes between two users of
 * the same part of the ring. */
#ifdef __SANITIZE_THREAD__
enum { MANY_THREADS_WRITERS = 1 };
#else
enum { MANY_THREADS_WRITERS = 2 };
#endif

static void values_come_back(void **state)
{
    (void)state;
    for (int w = 0; w < 2; w++) {
        char *dir = scratch_make();
        tap_options options = options_for(dir, WRITERS[w]);
        tap_recorder *rec = must_open(&options);
        save_floats(rec, "small", 256, 1);
        save_floats(rec, "page", 40000, 2);
        save_floats(rec, "empty", 0, 0);
        save_floats(rec, "streams through", 1 << 20, 3); /* four times the ring */
        save_floats(rec, "after", 10, 4);
        assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
        tap_counts counts;
        tap_counts_init(&counts);
        tap_recorder_counts(rec, &counts);
        assert_int_equal(counts.saved, 5);
        assert_int_equal(counts.dropped, 0);
        assert_int_equal(counts.writer_pid > 0, w == 1);
        must_close(rec);
        expect_floats(dir, "small", 256, 1);
        expect_floats(dir, "page", 40000, 2);
        expect_floats(dir, "streams through", 1 << 20, 3);
        expect_floats(dir, "after", 10, 4);
        expect_list(dir, "empty", "empty@0.0 forward float32[0] 0\n");
        expect_verify(dir, TAP_OK);
        scratch_drop(dir);
    }
}

static void steps_calls_and_filters(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.names = "x|y*|!yy";
    options.steps = "0|2-3";
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 5; step++) {
        save_floats(rec, "x", 2, 0);
        save_floats(rec, "x", 2, 0);
        save_floats(rec, "y1", 1, 0);
        save_floats(rec, "yy", 1, 0);
        save_floats(rec, "z", 1, 0);
        assert_int_equal(tap_recorder_wants(rec, "x"), step == 0 || step == 2 || step == 3);
        assert_false(tap_recorder_wants(rec, "z"));
        assert_int_equal(tap_recorder_get_step(rec), step);
        assert_int_equal(tap_step(rec), TAP_OK);
    }
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(rec, &counts);
    assert_int_equal(counts.saved, 9);
    assert_int_equal(counts.filtered, 25 - 9);
    must_close(rec);
    expect_list(dir, "x",
                "x@0.0 forward float32[2] 0\nx@0.1 forward float32[2] 0\nx@2.0 forward float32[2] 0\n"
                "x@2.1 forward float32[2] 0\nx@3.0 forward float32[2] 0\nx@3.1 forward float32[2] 0\n");
    expect_list(dir, "y*", "y1@0.0 forward float32[1] 0\ny1@2.0 forward float32[1] 0\ny1@3.0 forward float32[1] 0\n");
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void every_and_enabled(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.every = 3;
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 7; step++) {
        tap_recorder_enable(rec, step != 3);
        save_floats(rec, "x", 1, 0);
        tap_step(rec);
    }
    must_close(rec);
    expect_list(dir, "x", "x@0.0 forward float32[1] 0\nx@6.0 forward float32[1] 0\n");
    scratch_drop(dir);
}

static void a_rank_that_is_not_wanted_writes_nothing(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.rank = 3;
    options.ranks = "0-2";
    tap_recorder *rec = must_open(&options);
    save_floats(rec, "x", 1, 0);
    assert_int_equal(tap_step(rec), TAP_OK);
    assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
    must_close(rec);
    assert_int_equal(rmdir(dir), 0);
    free(dir);
}

static void nested_values(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    float data[2] = {1, 2};
    int64_t shape[1] = {2};
    tap_value list[] = {{.type = TAP_VALUE_TENSOR, .tensor = {data, TAP_F32, 1, shape, NULL}},
                        {.type = TAP_VALUE_INT, .i = 7},
                        {.type = TAP_VALUE_NONE},
                        {.type = TAP_VALUE_TUPLE}};
    tap_value dict[] = {{.type = TAP_VALUE_LIST, .items = list, .len = 4},
                        {.type = TAP_VALUE_STR, .bytes = "hello", .len = 5},
                        {.type = TAP_VALUE_FLOAT, .f = 2.5},
                        {.type = TAP_VALUE_BOOL, .i = 1},
                        {.type = TAP_VALUE_META, .tensor = {NULL, TAP_BF16, 1, shape, NULL}}};
    const char *const keys[] = {"列表", "s", "f", "b", "m"};
    tap_value root = {.type = TAP_VALUE_DICT, .items = dict, .keys = keys, .len = 5};
    assert_int_equal(tap_save_value(rec, "tree", &root, NULL), TAP_OK);
    tap_value plain = {.type = TAP_VALUE_INT, .i = -5};
    assert_int_equal(tap_save_value(rec, "number", &plain, NULL), TAP_OK);
    must_close(rec);
    expect_list(dir, NULL,
                "tree/列表.0@0.0 forward float32[2] 0\ntree/列表.1@0.0 forward int64[] 0\n"
                "tree/列表.2@0.0 forward none[] 0\ntree/列表.3@0.0 forward none[] 0\n"
                "tree/s@0.0 forward uint8[5] 0\ntree/f@0.0 forward float64[] 0\ntree/b@0.0 forward bool[] 0\n"
                "tree/m@0.0 forward bfloat16[2] 0\nnumber@0.0 forward int64[] 0\n");
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void only_the_last_steps(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.last = 2;
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 10; step++) {
        save_floats(rec, "x", 1000, (float)step);
        tap_step(rec);
    }
    must_close(rec);
    char *text = scratch_list(dir, "x", false);
    assert_non_null(strstr(text, "x@9.0"));
    assert_non_null(strstr(text, "x@8.0"));
    assert_null(strstr(text, "x@7.0"));
    assert_null(strstr(text, "x@0.0"));
    free(text);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static char frozen_text[1000];

static void hear_frozen(void *user, tap_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "frozen"))
        snprintf(frozen_text, sizeof frozen_text, "%s", message);
}

static void freezes_on_nan(void **state)
{
    (void)state;
    tap_log_set(hear_frozen, NULL);
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.freeze_on_nan = true;
    tap_recorder *rec = must_open(&options);
    float bad[2] = {1, 0};
    int64_t shape[1] = {2};
    tap_tensor tensor = {bad, TAP_F32, 1, shape, NULL};
    for (int step = 0; step < 5; step++) {
        bad[1] = step == 2 ? (float)(0.0 / *(volatile double *)&(double){0}) : 0;
        tap_save(rec, "x", &tensor, &(tap_save_info)TAP_SAVE_INFO(.source = "train.py", .line = 26));
        save_floats(rec, "after", 1, 0);
        tap_step(rec);
    }
    must_close(rec);
    tap_log_set(NULL, NULL);
    assert_non_null(strstr(frozen_text, "NaN or infinity in x (train.py:26), 1 NaN, 0 Inf, step 2; recording is frozen after "
                                        "step 2"));
    expect_list(dir, "after",
                "after@0.0 forward float32[1] 0\nafter@1.0 forward float32[1] 0\nafter@2.0 forward float32[1] 0\n");
    scratch_drop(dir);
}

/* A flight recorder: what led to the NaN stays, however many steps the program goes on afterwards. */
static void the_last_steps_stay_after_a_freeze(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.freeze_on_nan = true;
    options.last = 2;
    tap_recorder *rec = must_open(&options);
    float value = 0;
    tap_tensor tensor = {&value, TAP_F32, 0, NULL, NULL};
    for (int step = 0; step < 40; step++) {
        value = step == 10 ? 1 / *(volatile float *)&(float){0} : 0;
        tap_save_info info = TAP_SAVE_INFO(.has_step = true, .step = step);
        assert_int_equal(tap_save(rec, "x", &tensor, NULL), TAP_OK);
        assert_int_equal(tap_save(rec, "replayed", &tensor, &info), TAP_OK);
        tap_step(rec);
    }
    tap_save_info late = TAP_SAVE_INFO(.has_step = true, .step = 10, .kind = TAP_KIND_GRAD); /* belongs to a step that is recorded */
    assert_int_equal(tap_save(rec, "x", &tensor, &late), TAP_OK);
    must_close(rec);
    expect_list(dir, "x", "x@9.0 forward float32[] 0\nx@10.0 forward float32[] 0\nx@10.0 grad float32[] 0\n");
    expect_list(dir, "replayed", "replayed@9.0 forward float32[] 0\nreplayed@10.0 forward float32[] 0\n");
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

/* Steps in which nothing was recorded do not count among the last ones. */
static void the_last_of_every_third_step(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.every = 3;
    options.last = 2;
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 12; step++) {
        save_floats(rec, "x", 1, 0);
        tap_recorder_enable(rec, step < 9);
        tap_step(rec);
    }
    must_close(rec);
    expect_list(dir, "x", "x@6.0 forward float32[1] 0\nx@9.0 forward float32[1] 0\n");
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

/* max_bytes counts what is on disk: when old steps are deleted there is room for whole tensors again. */
static void max_bytes_with_last(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.last = 2;
    options.max_bytes = 200000;
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 3; i++)
            save_floats(rec, "x", 10000, 0);
        tap_step(rec);
        tap_recorder_flush(rec, -1, NULL);
    }
    for (int step = 3; step < 12; step++) { /* small steps; the large ones go, and the disk is asked once a second */
        save_floats(rec, "small", 10, 0);
        tap_step(rec);
        usleep(300000);
    }
    save_floats(rec, "again", 10000, 5);
    must_close(rec);
    expect_floats(dir, "again", 10000, 5);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void large_tensors_of_deleted_steps(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.last = 1;
    options.segment_bytes = 4096;
    tap_recorder *rec = must_open(&options);
    for (int step = 0; step < 6; step++) {
        save_floats(rec, "large", 1 << 20, (float)step);
        save_floats(rec, "small", 100, (float)step);
        tap_step(rec);
    }
    must_close(rec);
    assert_null(last_log && strstr(last_log, "cannot write") ? last_log : NULL);
    expect_list(dir, NULL, "large@5.0 forward float32[1048576] 0\nsmall@5.0 forward float32[100] 0\n");
    expect_floats(dir, "large", 1 << 20, 5);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void max_bytes_keeps_statistics(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    options.max_bytes = 300000;
    tap_recorder *rec = must_open(&options);
    for (int i = 0; i < 20; i++) {
        save_floats(rec, "x", 10000, (float)i);
        tap_recorder_flush(rec, -1, NULL);
    }
    must_close(rec);
    char *text = scratch_list(dir, "x", false);
    assert_non_null(strstr(text, "x@0.0 forward float32[10000] 0\n"));
    assert_non_null(strstr(text, "x@0.19 forward float32[10000] 2\n")); /* a rule, statistics there */
    free(text);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void slots_and_declared_names(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    tap_save_info slot = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT, .has_call = true);
    assert_int_equal(tap_save(rec, "x", NULL, &slot), TAP_OK);
    assert_int_equal(tap_save(rec, "y", NULL, &slot), TAP_OK);
    assert_int_equal(tap_recorder_declare(rec, "never", NULL), TAP_OK);
    assert_int_equal(tap_recorder_declare(rec, "x", NULL), TAP_OK);
    float data[1] = {1};
    tap_tensor tensor = {data, TAP_F32, 0, NULL, NULL};
    tap_save_info grad = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .has_call = true, .has_step = true, .step = 0);
    tap_step(rec);
    assert_int_equal(tap_save(rec, "x", &tensor, &grad), TAP_OK);
    must_close(rec);
    expect_list(dir, NULL, "x@0.0 grad float32[] 0\n");
    char *all = scratch_list(dir, NULL, true);
    assert_non_null(strstr(all, "y@0.0 grad none[] 4\n")); /* announced, never came: told, but nothing was lost */
    assert_null(strstr(all, "x@0.0 grad none"));
    free(all);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

/* ----------------------------------------------------------------------------------------------------- threads, forks */

typedef struct thread_job {
    tap_recorder *rec;
    int number;
} thread_job;

static void *save_many(void *argument)
{
    thread_job *job = argument;
    for (int i = 0; i < 300; i++) {
        char name[32];
        float data[700];
        snprintf(name, sizeof name, "t%d.%d", job->number, i % 7);
        for (int k = 0; k < 700; k++)
            data[k] = (float)(job->number * 1000 + i);
        int64_t shape[1] = {(i * 37) % 700};
        tap_tensor tensor = {data, TAP_F32, 1, shape, NULL};
        tap_save(job->rec, name, &tensor, NULL);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    for (int w = 0; w < MANY_THREADS_WRITERS; w++) {
        char *dir = scratch_make();
        tap_options options = options_for(dir, WRITERS[w]);
        tap_recorder *rec = must_open(&options);
        pthread_t ids[6];
        thread_job jobs[6];
        for (int t = 0; t < 6; t++) {
            jobs[t] = (thread_job){rec, t};
            pthread_create(&ids[t], NULL, save_many, &jobs[t]);
        }
        for (int t = 0; t < 6; t++)
            pthread_join(ids[t], NULL);
        must_close(rec);
        tap_run *run;
        tap_query query;
        uint64_t count;
        tap_query_init(&query);
        assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
        assert_int_equal(tap_run_count(run, &query, &count, NULL), TAP_OK);
        assert_int_equal(count, 1800);
        tap_run_close(run);
        expect_verify(dir, TAP_OK);
        scratch_drop(dir);
    }
}

static void a_forked_child_records_beside_its_parent(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, TAP_COMMAND);
    tap_recorder *rec = must_open(&options);
    save_floats(rec, "parent", 10, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        save_floats(rec, "child", 10, 2);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    save_floats(rec, "parent", 10, 1);
    must_close(rec);
    assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
    expect_floats(dir, "child", 10, 2);
    expect_list(dir, "parent", "parent@0.0 forward float32[10] 0\nparent@0.1 forward float32[10] 0\n");
    char path[600];
    snprintf(path, sizeof path, "%s/rank0/child%d", dir, pid);
    assert_int_equal(access(path, F_OK), 0);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static tap_status save_one(tap_recorder *rec)
{
    float value = 1;
    tap_tensor tensor = {&value, TAP_F32, 0, NULL, NULL};
    return tap_save(rec, "x", &tensor, NULL);
}

/* A child whose own recorder cannot be opened must not claim that its values are safe. */
/* The thread that the newest entry of an attempt with this name says it was saved by. */
static int32_t saved_by(const char *dir, int32_t child, const char *name)
{
    tap_attempt_list list;
    int32_t tid = 0;
    assert_int_equal(tap__attempt_list(opened(dir), &list, NULL), TAP_OK);
    for (size_t i = 0; i < list.count; i++) {
        const tap_entry *entry;
        tap_meta meta;
        uint32_t segment;
        uint64_t offset;
        bool cut;
        tap_scan scan;
        if (list.items[i].child != child)
            continue;
        assert_int_equal(tap__scan_open(&scan, &list.items[i], NULL, NULL), TAP_OK);
        while (tap__scan_next(&scan, &entry, &segment, &offset, &cut, NULL) == TAP_OK)
            if (entry->type == TAP_ENTRY_DATA && tap__meta_read(&meta, entry + 1, entry->meta_bytes) &&
                meta.len[TAP_META_NAME] == strlen(name) &&
                memcmp(meta.text[TAP_META_NAME], name, strlen(name)) == 0)
                tid = entry->tid;
        tap__scan_close(&scan);
    }
    tap__attempt_list_free(&list);
    return tid;
}

static void a_forked_child_has_its_own_thread_number(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, TAP_COMMAND);
    tap_recorder *rec = must_open(&options);
    save_floats(rec, "parent", 3, 1);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        save_floats(rec, "child", 3, 2);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    must_close(rec);
    assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
    assert_int_equal(saved_by(dir, 0, "parent"), getpid());
    assert_int_equal(saved_by(dir, (int32_t)pid, "child"), pid);
    scratch_drop(dir);
}

static void a_child_that_cannot_record_says_so(void **state)
{
    (void)state;
    char *dir = scratch_make(), taken[600];
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(taken, sizeof taken, "%s/rank0/child%d", dir, (int)getpid());
        FILE *file = fopen(taken, "w"); /* where its directory would be */
        bool told = file && save_one(rec) == TAP_E_LOST && save_one(rec) == TAP_E_LOST;
        _exit(told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    tap_error err; /* the parent's recording counts what its child could not record */
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    assert_non_null(strstr(err.message, "2 saves were not kept"));
    expect_verify(dir, TAP_E_LOST);
    scratch_drop(dir);
}

/* Files go on landing in a renamed directory; what was removed is said, with its number. */
static void renamed_and_removed(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"native", "msprobe", "troubleshooter"};
    for (size_t i = 0; i < 3; i++) {
        char *dir = scratch_make(), inside[600], away[600];
        snprintf(inside, sizeof inside, "%s/run", dir);
        snprintf(away, sizeof away, "%s/away", dir);
        tap_options options = options_for(inside, TAP_COMMAND);
        options.layout = LAYOUTS[i];
        tap_recorder *rec = must_open(&options);
        tap_error err;
        assert_int_equal(save_one(rec), TAP_OK);
        assert_int_equal(tap_recorder_flush(rec, -1, &err), TAP_OK);
        assert_int_equal(rename(inside, away), 0);
        assert_int_equal(save_one(rec), TAP_OK);
        assert_int_equal(tap_recorder_flush(rec, -1, &err), TAP_OK);
        tap_recorder_error(rec, &err);
        assert_non_null(strstr(err.message, "renamed"));
        must_close(rec);
        expect_verify(away, TAP_OK);
        rec = must_open(&options);
        assert_int_equal(save_one(rec), TAP_OK);
        assert_int_equal(save_one(rec), TAP_OK);
        scratch_clear(inside);
        assert_int_equal(tap_recorder_flush(rec, -1, &err), TAP_E_LOST);
        if (!strstr(err.message, "2 saves are gone"))
            fail_msg("%s: %s", LAYOUTS[i], err.message);
        assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
        scratch_drop(dir);
    }
}

/* What TENSORTAP_WRITER may name; %s is the real command. */
static const struct hostile {
    const char *what, *script;
    bool comes_late; /* it wrote its number beside the script, and waits to go on */
} HOSTILE[] = {
    {"sleeps", "exec sleep 1000", false},
    {"is stopped before it has left", "kill -STOP $$; exec %s \"$@\"", false},
    {"leaves at once", "exit 0", false},
    {"fails", "exit 3", false},
    {"floods", "exec yes", false},
    {"closes all it has", "for fd in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $fd<&-\"; done; exec sleep 1000", false},
    {"is stopped when it has left",
     "sh -c 'kill -STOP $$; exec \"$@\"' sh %s \"$@\" &\necho $! >$0.pid", true},
};
enum { HOSTILE_COUNT = sizeof HOSTILE / sizeof HOSTILE[0] };

static int told_of_a_thread;

static void count_told(void *user, tap_log_level level, const char *message)
{
    (void)user;
    (void)level;
    told_of_a_thread += strstr(message, "a thread writes instead") != NULL;
}

static void go_on(const char *script)
{
    char path[700];
    int pid = 0;
    snprintf(path, sizeof path, "%s.pid", script);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &pid) == 1 && pid > 1)
        kill(pid, SIGCONT);
    if (file)
        fclose(file);
}

/* A program of its own. 0: it recorded, and said once that a thread writes. */
static int record_with(const struct hostile *hostile, const char *dir, const char *script)
{
    tap_options options = options_for(dir, script);
    tap_recorder *rec;
    tap_log_set(count_told, NULL);
    alarm(60); /* the limit is 20 s */
    if (tap_recorder_open(&options, &rec, NULL) != TAP_OK)
        return 1;
    if (save_one(rec) != TAP_OK)
        return 2;
    if (hostile->comes_late)
        go_on(script);
    if (save_one(rec) != TAP_OK || tap_recorder_flush(rec, -1, NULL) != TAP_OK)
        return 3;
    if (tap_recorder_close(rec, NULL) != TAP_OK)
        return 4;
    return told_of_a_thread == 1 ? 0 : 5;
}

static void make_script(const char *path, const char *format)
{
    char text[1000];
    const char *at = strstr(format, "%s");
    int before = at ? (int)(at - format) : (int)strlen(format);
    snprintf(text, sizeof text, "#!/bin/sh\n%.*s%s%s\n", before, format, at ? TAP_COMMAND : "", at ? at + 2 : "");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

/* Whatever the program does that TENSORTAP_WRITER names: a thread writes, and soon. */
static void writers_that_never_answer(void **state)
{
    (void)state;
    char *dirs[HOSTILE_COUNT], script[600];
    pid_t pids[HOSTILE_COUNT];
    fflush(NULL);
    for (int i = 0; i < HOSTILE_COUNT; i++) { /* side by side: each takes until a limit */
        dirs[i] = scratch_make();
        snprintf(script, sizeof script, "%s/hostile", dirs[i]);
        make_script(script, HOSTILE[i].script);
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(record_with(&HOSTILE[i], dirs[i], script));
    }
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status)
            fail_msg("a writer that %s: status 0x%x", HOSTILE[i].what, (unsigned)status);
        expect_list(dirs[i], NULL, "x@0.0 forward float32[] 0\nx@0.1 forward float32[] 0\n");
        expect_verify(dirs[i], TAP_OK);
        scratch_drop(dirs[i]);
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Where each save waits for the disk: for one that takes nothing the first one waits, and the others when it moved. */
static void a_stuck_writer_is_waited_for_once(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, TAP_COMMAND);
    options.durability = TAP_DURABLE_SAVE;
    options.stall_ms = 500;
    tap_recorder *rec = must_open(&options);
    tap_counts counts;
    tap_counts_init(&counts);
    assert_int_equal(save_one(rec), TAP_OK);
    tap_recorder_counts(rec, &counts);
    assert_true(counts.writer_pid > 1 && counts.writer_pid != getpid());
    kill(counts.writer_pid, SIGSTOP);
    uint64_t start = now_ms();
    for (int i = 0; i < 20; i++)
        assert_int_equal(save_one(rec), TAP_E_TIMEOUT);
    assert_int_equal(tap_step(rec), TAP_E_TIMEOUT);
    if (now_ms() - start > 5000)
        fail_msg("20 saves waited for %llu ms", (unsigned long long)(now_ms() - start));
    tap_error err;
    tap_recorder_error(rec, &err);
    assert_non_null(strstr(err.message, "no progress"));
    kill(counts.writer_pid, SIGCONT);
    for (start = now_ms(); tap_recorder_flush(rec, -1, NULL) != TAP_OK;)
        assert_true(now_ms() - start < 20000);
    assert_int_equal(save_one(rec), TAP_OK);
    must_close(rec);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

/* Each generation has a recorder of its own; two recorders in one process do not meet. */
static void children_of_children_and_two_recorders(void **state)
{
    (void)state;
    char *dir = scratch_make(), *other = scratch_make();
    tap_options options = options_for(dir, TAP_COMMAND), second = options_for(other, TAP_COMMAND);
    second.durability = TAP_DURABLE_SAVE;
    tap_recorder *rec = must_open(&options), *two = must_open(&second);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool well = save_one(rec) == TAP_OK;
        pid_t below = fork();
        if (below == 0)
            _exit(save_one(rec) == TAP_OK && save_one(two) == TAP_OK && tap_recorder_close(rec, NULL) == TAP_OK ? 0 : 1);
        int status;
        well = waitpid(below, &status, 0) == below && status == 0 && well;
        _exit(well ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(save_one(two), TAP_OK);
    must_close(two);
    must_close(rec);
    assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
    assert_int_equal(tap_run_wait(other, 20000, NULL), TAP_OK);
    expect_list(dir, NULL, "x@0.0 forward float32[] 0\nx@0.0 forward float32[] 0\n");
    expect_list(other, NULL, "x@0.0 forward float32[] 0\nx@0.0 forward float32[] 0\n");
    expect_verify(dir, TAP_OK);
    expect_verify(other, TAP_OK);
    scratch_drop(dir);
    scratch_drop(other);
}

static void *save_for_ever(void *argument)
{
    for (;;)
        save_floats(argument, "x", 1000, 0);
    return NULL;
}

/* A recorder left open is ended at exit, also while other threads go on saving; nothing crashes. */
static void exit_while_other_threads_save(void **state)
{
    (void)state;
    for (int w = 0; w < MANY_THREADS_WRITERS; w++) {
        char *dir = scratch_make();
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            tap_options options = options_for(dir, WRITERS[w]);
            tap_recorder *rec = must_open(&options);
            pthread_t id;
            for (int i = 0; i < 3; i++)
                pthread_create(&id, NULL, save_for_ever, rec);
            usleep(50000);
            exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(tap_run_wait(dir, 20000, NULL), TAP_OK);
        scratch_drop(dir);
    }
}

/* -------------------------------------------------------------------------------------------------------- full rings */

static void *drop_large(void *argument)
{
    static float data[1 << 19];
    int64_t shape[1] = {1 << 19};
    tap_tensor tensor = {data, TAP_F32, 1, shape, NULL};
    for (int i = 0; i < 100; i++)
        tap_save(argument, "large", &tensor, NULL);
    return NULL;
}

/* Whatever became of their tensors, no slot stays taken. */
static void slots_come_back(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, WRITERS[MANY_THREADS_WRITERS - 1]);
    options.full = TAP_FULL_DROP;
    tap_recorder *rec = must_open(&options);
    pthread_t ids[4];
    for (int t = 0; t < 4; t++)
        pthread_create(&ids[t], NULL, drop_large, rec);
    for (int t = 0; t < 4; t++)
        pthread_join(ids[t], NULL);
    tap_ring_header *h = atomic_load(&rec->session)->ring.header;
    assert_int_equal(atomic_load(&h->big_slots), 0);
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(rec, &counts);
    assert_int_equal(counts.saved + counts.dropped, 400);
    assert_int_equal(counts.saved_bytes, (counts.saved - counts.stats_only) * (4u << 19));
    tap_error err;
    tap_status status = tap_recorder_close(rec, &err);
    assert_int_equal(status, counts.dropped ? TAP_E_LOST : TAP_OK);
    expect_verify(dir, counts.dropped + counts.stats_only ? TAP_E_LOST : TAP_OK);
    scratch_drop(dir);
}

/* A name that no ring of this size can hold is lost at once, not after a stall. */
static void a_name_as_long_as_the_ring(void **state)
{
    (void)state;
    char *dir = scratch_make(), *name = malloc(2 << 20);
    memset(name, 'n', 2 << 20);
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    float value = 1;
    tap_tensor tensor = {&value, TAP_F32, 0, NULL, NULL};
    alarm(15); /* less than the stall */
    name[(2 << 20) - 1] = 0;
    assert_int_equal(tap_save(rec, name, &tensor, NULL), TAP_E_LOST);
    name[900000] = 0;
    assert_int_equal(tap_save(rec, name, &tensor, NULL), TAP_OK);
    save_floats(rec, "after", 10, 1);
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    alarm(0);
    expect_floats(dir, "after", 10, 1);
    expect_verify(dir, TAP_E_LOST);
    free(name);
    scratch_drop(dir);
}

/* -------------------------------------------------------------------------------------------------------- opening */

static void options_that_cannot_be(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_error err;
    tap_recorder *rec;
    tap_options options = options_for(dir, "thread");
    options.ring_bytes = UINT64_MAX;
    assert_int_equal(tap_recorder_open(&options, &rec, &err), TAP_E_INVALID);
    assert_non_null(strstr(err.message, "ring_bytes"));
    options.ring_bytes = 0;
    options.segment_bytes = 1;
    options.stall_ms = 0;
    options.max_bytes = 1;
    setenv("LOCAL_WORLD_SIZE", "0", 1);
    rec = must_open(&options);
    unsetenv("LOCAL_WORLD_SIZE");
    for (int i = 0; i < 5; i++)
        save_floats(rec, "x", 1000, 0);
    must_close(rec);
    expect_verify(dir, TAP_OK);
    scratch_drop(dir);
}

static void opening_says_why_not(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_error err;
    tap_recorder *rec;
    tap_options options = options_for(dir, "thread");
    must_close(must_open(&options));
    assert_int_equal(tap_recorder_open(&options, &rec, &err), TAP_E_EXISTS);
    assert_non_null(strstr(err.message, dir));
    assert_null(rec);
    options.mode = TAP_OPEN_APPEND;
    rec = must_open(&options);
    save_floats(rec, "second", 1, 0);
    must_close(rec);
    expect_list(dir, NULL, "second@0.0 forward float32[1] 0\n"); /* readers take the newest attempt */
    options.mode = TAP_OPEN_REPLACE;
    rec = must_open(&options);
    save_floats(rec, "third", 1, 0);
    must_close(rec);
    expect_list(dir, NULL, "third@0.0 forward float32[1] 0\n");
    options.layout = "nonsense";
    assert_int_equal(tap_recorder_open(&options, &rec, &err), TAP_E_INVALID);
    assert_non_null(strstr(err.message, "msprobe"));
    options.layout = "native";
    options.steps = "a-b";
    assert_int_equal(tap_recorder_open(&options, &rec, &err), TAP_E_INVALID);
    options.steps = NULL;
    options.dir = "/proc/cannot/be";
    assert_int_not_equal(tap_recorder_open(&options, &rec, &err), TAP_OK);
    assert_non_null(strstr(err.message, "/proc/cannot"));
    scratch_drop(dir);
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    assert_int_equal(tap_save(NULL, "x", NULL, NULL), TAP_OK);
    assert_int_equal(tap_step(NULL), TAP_OK);
    assert_int_equal(tap_recorder_flush(NULL, -1, NULL), TAP_OK);
    assert_int_equal(tap_recorder_close(NULL, NULL), TAP_OK);
}

static void a_bad_tensor_is_counted(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    int64_t shape[1] = {-1};
    tap_tensor tensor = {&options, TAP_F32, 1, shape, NULL};
    assert_int_equal(tap_save(rec, "bad", &tensor, NULL), TAP_E_INVALID);
    shape[0] = 4;
    tensor.data = NULL;
    assert_int_equal(tap_save(rec, "bad", &tensor, NULL), TAP_E_INVALID);
    int64_t many[100] = {0};
    tap_value meta = {.type = TAP_VALUE_META, .tensor = {NULL, TAP_F32, 100, many, NULL}};
    assert_int_equal(tap_save_value(rec, "bad", &meta, NULL), TAP_E_INVALID);
    meta.tensor.ndim = -1;
    assert_int_equal(tap_save_value(rec, "bad", &meta, NULL), TAP_E_INVALID);
    meta.tensor = (tap_tensor){NULL, TAP_F32, 1, NULL, NULL};
    assert_int_equal(tap_save_value(rec, "bad", &meta, NULL), TAP_E_INVALID);
    tensor = (tap_tensor){&options, TAP_F32, 2, NULL, NULL};
    assert_int_equal(tap_save(rec, "bad", &tensor, NULL), TAP_E_INVALID);
    assert_int_equal(tap_save(rec, "bad", &tensor, &(tap_save_info)TAP_SAVE_INFO(.flags = TAP_SAVE_SLOT)), TAP_E_INVALID);
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    expect_verify(dir, TAP_E_LOST);
    scratch_drop(dir);
}

/* An open that fails half-way leaves nothing that a second one meets. */
static void an_open_that_failed_can_be_tried_again(void **state)
{
    (void)state;
    static const tap_open_mode MODES[] = {TAP_OPEN_NEW, TAP_OPEN_APPEND, TAP_OPEN_REPLACE};
    for (int m = 0; m < 3; m++) {
        char *dir = scratch_make(), path[600];
        tap_options options = options_for(dir, "thread");
        tap_recorder *rec;
        tap_error err;
        options.mode = MODES[m];
        options.ring = TAP_RING_FILE;
        options.ring_bytes = 1ull << 50; /* no disk has room for it */
        assert_int_not_equal(tap_recorder_open(&options, &rec, &err), TAP_OK);
        snprintf(path, sizeof path, "%s/rank0/attempt0.json", dir);
        assert_int_not_equal(access(path, F_OK), 0);
        snprintf(path, sizeof path, "%s/rank0/attempt0.ring", dir);
        assert_int_not_equal(access(path, F_OK), 0);
        options.ring_bytes = 1 << 20;
        rec = must_open(&options);
        save_floats(rec, "x", 3, 1);
        must_close(rec);
        expect_list(dir, NULL, "x@0.0 forward float32[3] 0\n");
        expect_verify(dir, TAP_OK);
        scratch_drop(dir);
    }
}

/* ------------------------------------------------------------------------------------------------------------- steps */

enum { STEP_THREADS = 4, STEPS_EACH = 2000 };

static void *take_steps(void *rec)
{
    for (int i = 0; i < STEPS_EACH; i++)
        if (tap_step(rec) != TAP_OK)
            return rec;
    return NULL;
}

static void threads_end_different_steps(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    pthread_t threads[STEP_THREADS];
    for (int i = 0; i < STEP_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_steps, rec), 0);
    for (int i = 0; i < STEP_THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(tap_recorder_get_step(rec), STEP_THREADS * STEPS_EACH);
    must_close(rec);
    scratch_drop(dir);
}

static void there_is_a_last_step(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec = must_open(&options);
    tap_error err;
    assert_int_equal(tap_recorder_set_step(rec, INT64_MAX), TAP_OK);
    assert_int_equal(tap_step(rec), TAP_E_INVALID);
    tap_recorder_error(rec, &err);
    assert_non_null(strstr(err.message, "tap_recorder_set_step"));
    assert_int_equal(tap_recorder_get_step(rec), INT64_MAX);
    assert_int_equal(tap_recorder_set_step(rec, 5), TAP_OK);
    assert_int_equal(tap_step(rec), TAP_OK);
    assert_int_equal(tap_recorder_get_step(rec), 6);
    must_close(rec);
    scratch_drop(dir);
}

/* ----------------------------------------------------------------------------------------- the n-th allocation fails */

static atomic_long allocations, fail_at;

static void *failing_resize(void *user, void *old, size_t size)
{
    (void)user;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return atomic_fetch_add(&allocations, 1) == fail_at ? NULL : realloc(old, size);
}

/* One small life of a recorder; every call may fail, none may crash, hang or leave a torn file. True: every call said
 * that all is well. */
static bool small_life(const char *dir)
{
    tap_options options = options_for(dir, "thread");
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK) {
        assert_true(err.message[0] != 0);
        return false;
    }
    float data[4] = {1, 2, 3, 4};
    int64_t shape[1] = {4};
    tap_tensor tensor = {data, TAP_F32, 1, shape, NULL};
    tap_value items[2] = {{.type = TAP_VALUE_TENSOR, .tensor = tensor}, {.type = TAP_VALUE_INT, .i = 1}};
    tap_value list = {.type = TAP_VALUE_LIST, .items = items, .len = 2};
    bool well = tap_save(rec, "x", &tensor, NULL) == TAP_OK;
    well &= tap_save_value(rec, "list", &list, NULL) == TAP_OK;
    well &= tap_step(rec) == TAP_OK;
    return (tap_recorder_close(rec, &err) == TAP_OK) & well;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    tap_allocator failing = {failing_resize, NULL};
    for (long n = 0; n < 400; n++) {
        char *dir = scratch_make();
        allocations = 0;
        fail_at = n;
        tap_allocator_set(&failing);
        bool well = small_life(dir);
        long used = allocations;
        tap_allocator_set(NULL);
        tap_run *run;
        tap_error err;
        if (tap_run_open(dir, &run, &err) == TAP_OK) { /* whatever there is can be read */
            tap_verify_options options;
            tap_verify_result result;
            tap_verify_result_init(&result);
            tap_verify_options_init(&options);
            tap_status status = tap_run_verify(run, &options, &result, &err);
            assert_true(status == TAP_OK || (status == TAP_E_LOST && !well));
            tap_run_close(run);
        }
        if (well)
            expect_list(dir, NULL, "x@0.0 forward float32[4] 0\nlist/0@0.0 forward float32[4] 0\n"
                                   "list/1@0.0 forward int64[] 0\n");
        scratch_drop(dir);
        if (used <= n)
            return; /* nothing failed any more: all have been tried */
    }
    fail_msg("more than 400 allocations in a small recording");
}

int main(void)
{
    tap_log_set(keep_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(steps_calls_and_filters),
        cmocka_unit_test(every_and_enabled),
        cmocka_unit_test(a_rank_that_is_not_wanted_writes_nothing),
        cmocka_unit_test(nested_values),
        cmocka_unit_test(only_the_last_steps),
        cmocka_unit_test(freezes_on_nan),
        cmocka_unit_test(the_last_steps_stay_after_a_freeze),
        cmocka_unit_test(the_last_of_every_third_step),
        cmocka_unit_test(max_bytes_with_last),
        cmocka_unit_test(large_tensors_of_deleted_steps),
        cmocka_unit_test(max_bytes_keeps_statistics),
        cmocka_unit_test(slots_and_declared_names),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_forked_child_records_beside_its_parent),
        cmocka_unit_test(a_forked_child_has_its_own_thread_number),
        cmocka_unit_test(a_child_that_cannot_record_says_so),
        cmocka_unit_test(renamed_and_removed),
        cmocka_unit_test(writers_that_never_answer),
        cmocka_unit_test(a_stuck_writer_is_waited_for_once),
        cmocka_unit_test(children_of_children_and_two_recorders),
        cmocka_unit_test(exit_while_other_threads_save),
        cmocka_unit_test(slots_come_back),
        cmocka_unit_test(a_name_as_long_as_the_ring),
        cmocka_unit_test(options_that_cannot_be),
        cmocka_unit_test(opening_says_why_not),
        cmocka_unit_test(nothing_is_nothing),
        cmocka_unit_test(a_bad_tensor_is_counted),
        cmocka_unit_test(an_open_that_failed_can_be_tried_again),
        cmocka_unit_test(threads_end_different_steps),
        cmocka_unit_test(there_is_a_last_step),
        cmocka_unit_test(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests_name("recorder", tests, NULL, NULL);
    free(last_log);
    return failed;
}
