/* test_layout_msprobe.c - the collector of debug.json: when it writes, what it keeps, what happens when a writer takes
 * over, when the disk fails and when memory does. What the file says is tests/python/test_layout_msprobe.py's matter. */
#include "record/collector_test.h"

#include <fcntl.h>
#include <pthread.h>

#include "base/failing_allocator.h"

#define SECOND 1000000000ull
#define FILE_0 "step0/proc5/debug.json"

static void start(fixture *f)
{
    start_with(tap__msprobe_collect_open, f);
}

/* Saves the integer `number` under name. */
static tap_status take_int(fixture *f, const char *name, int64_t step, uint32_t call, int64_t number)
{
    return take(f, (test_entry){.name = name, .step = step, .call = call, .value_type = TAP_VALUE_INT, .bytes = &number,
                                .len = 8});
}

static bool exists(fixture *f, const char *relative)
{
    char *path = tap__path_join(f->dir, relative);
    bool there = access(path, F_OK) == 0;
    tap__free(path);
    return there;
}

static bool holds(fixture *f, const char *relative, const char *part)
{
    char *text = read_text(f->dir, relative);
    bool there = strstr(text, part);
    tap__free(text);
    return there;
}

static ino_t inode(fixture *f, const char *relative)
{
    char *path = tap__path_join(f->dir, relative);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0640, 0);
    tap__free(path);
    return st.st_ino;
}

static void written_at_most_once_a_second(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    uint64_t now = 100 * SECOND;
    flush(&f, now, false);
    assert_false(exists(&f, "step0"));
    take_int(&f, "a", 0, 0, 1);
    flush(&f, now, false);
    assert_true(holds(&f, FILE_0, "\"a.0.debug\""));
    ino_t first = inode(&f, FILE_0);
    take_int(&f, "b", 0, 0, 2);
    flush(&f, now + SECOND / 2, false);
    assert_false(holds(&f, FILE_0, "\"b.0.debug\""));
    flush(&f, now + 2 * SECOND, false);
    assert_true(holds(&f, FILE_0, "\"b.0.debug\""));
    assert_int_not_equal(inode(&f, FILE_0), first); /* replaced, not written over */
    take_int(&f, "c", 0, 0, 3);
    flush(&f, now + 2 * SECOND + 1, true);
    assert_true(holds(&f, FILE_0, "\"c.0.debug\""));
    first = inode(&f, FILE_0);
    flush(&f, now + 9 * SECOND, true); /* nothing new: not written */
    assert_int_equal(inode(&f, FILE_0), first);
    stop(&f);
}

static void slot(fixture *f, int64_t step, unsigned flags)
{
    assert_int_equal(take(f, (test_entry){.name = "x", .step = step, .kind = TAP_KIND_GRAD, .flags = flags}), TAP_OK);
}

static void end_step(fixture *f, int64_t step)
{
    assert_int_equal(take(f, (test_entry){.type = TAP_ENTRY_STEP, .step = step}), TAP_OK);
}

static void slots_keep_a_step_open(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    float data[1] = {2.5};
    int64_t shape[1] = {1};
    tap_tensor grad = {.data = data, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    for (int64_t step = 0; step < 3; step++) {
        take_int(&f, "x", step, 0, 1);
        slot(&f, step, TAP_SAVE_SLOT);
        end_step(&f, step);
        flush(&f, 0, true);
    }
    assert_true(holds(&f, FILE_0, "\"x_grad.0.debug\": null"));
    take(&f, (test_entry){.name = "x", .step = 0, .kind = TAP_KIND_GRAD, .tensor = &grad});
    slot(&f, 1, TAP_SAVE_SLOT_GONE);
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"Max\": 2.5"));
    assert_true(holds(&f, "step1/proc5/debug.json", "\"x_grad.0.debug\": null"));
    /* a second firing of the hook takes the place of the first */
    data[0] = 7;
    take(&f, (test_entry){.name = "x", .step = 0, .kind = TAP_KIND_GRAD, .tensor = &grad});
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"Max\": 7.0"));
    assert_false(holds(&f, FILE_0, "\"Max\": 2.5"));
    stop(&f);
}

/* A writer that takes over starts a little before the place where the last one stopped. */
static void a_second_writer_goes_on(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    for (uint32_t i = 0; i < 50; i++)
        take_int(&f, "x", 0, i, i);
    slot(&f, 0, TAP_SAVE_SLOT);
    flush(&f, 0, true);
    tap__msprobe_collect_close(f.collector);
    f.options.resume = true;
    start(&f);
    for (uint32_t i = 40; i < 60; i++)
        take_int(&f, "x", 0, i, i);
    slot(&f, 0, TAP_SAVE_SLOT);
    flush(&f, 0, true);
    char *resumed = read_text(f.dir, FILE_0);
    tap__msprobe_collect_close(f.collector);
    char *old = f.dir;
    fixture whole = {.dir = NULL};
    start(&whole);
    for (uint32_t i = 0; i < 50; i++)
        take_int(&whole, "x", 0, i, i);
    slot(&whole, 0, TAP_SAVE_SLOT);
    for (uint32_t i = 50; i < 60; i++)
        take_int(&whole, "x", 0, i, i);
    flush(&whole, 0, true);
    char *expected = read_text(whole.dir, FILE_0);
    assert_string_equal(resumed, expected);
    tap__free(resumed);
    tap__free(expected);
    stop(&whole);
    scratch_drop(old);
}

/* Without resume what another run left in the directory is not mixed in. */
static void an_old_file_is_replaced(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    take_int(&f, "old", 0, 0, 1);
    flush(&f, 0, true);
    tap__msprobe_collect_close(f.collector);
    start(&f);
    take_int(&f, "new", 0, 0, 1);
    flush(&f, 0, true);
    assert_false(holds(&f, FILE_0, "old"));
    stop(&f);
}

static tap_status count_record(void *user, const tap_record *record, const tap_facts *facts)
{
    (void)facts;
    uint64_t *next = user;
    char want[32];
    snprintf(want, sizeof want, "v%llu", (unsigned long long)*next);
    assert_string_equal(record->name, want);
    assert_int_equal(record->stats.min.i, (int64_t)*next);
    ++*next;
    return TAP_OK;
}

/* A step of 400,000 values, written many times on the way: finished ones leave memory, none leaves the file. */
static void large_steps_do_not_stay_in_memory(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    enum { COUNT = 400000, ROUNDS = 8 };
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "v%d", i);
        assert_int_equal(take_int(&f, name, 0, 0, i), TAP_OK);
        if (i % (COUNT / ROUNDS) == 0)
            flush(&f, 0, true);
    }
    for (int i = 0; i < 4; i++) { /* values settle after two rewrites */
        take_int(&f, "v399999", 0, 0, 399999);
        flush(&f, 0, true);
    }
    uint64_t next = 0;
    if (tap__msprobe_read(opened(f.dir), NULL, count_record, &next, &f.err) != TAP_OK)
        fail_msg("%s", f.err.message);
    assert_int_equal(next, COUNT);
    stop(&f);
}

static void many_open_steps(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    for (int64_t step = 0; step < 200; step++) {
        take_int(&f, "x", step, 0, step);
        slot(&f, step, TAP_SAVE_SLOT); /* never comes */
        end_step(&f, step);
    }
    /* the oldest were written to make room; a late value finds its file */
    assert_true(holds(&f, FILE_0, "\"x_grad.0.debug\": null"));
    assert_int_equal(take_int(&f, "late", 0, 0, 1), TAP_OK);
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"x.0.debug\"") && holds(&f, FILE_0, "\"late.0.debug\""));
    assert_true(exists(&f, "step199/proc5/debug.json"));
    stop(&f);
}

static void big_tensors_get_their_statistics_later(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    int64_t shape[1] = {2};
    tap_tensor tensor = {.dtype = TAP_F32, .ndim = 1, .shape = shape};
    const void *payload;
    tap_entry *big = make_entry(&(test_entry){.type = TAP_ENTRY_BIG, .name = "b", .tensor = &tensor}, &payload);
    big->seq = 77;
    assert_int_equal(tap__msprobe_collect(f.collector, big, NULL, &f.err), TAP_OK);
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"Max\": null"));
    tap_entry trailer = {.type = TAP_ENTRY_TRAILER, .ref = 77, .has = TAP_HAS_STATS, .count = 2, .min.f = -1, .max.f = 3,
                         .mean = 1, .norm = 2};
    assert_int_equal(tap__msprobe_collect(f.collector, &trailer, NULL, &f.err), TAP_OK);
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"Max\": 3.0"));
    free(big);
    stop(&f);
}

static void a_disk_that_fails_is_tried_again(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    char *blocked = tap__path_join(f.dir, "step0");
    assert_int_equal(put_at(blocked, "x", 1), TAP_OK); /* a file where the directory belongs */
    take_int(&f, "x", 0, 0, 1);
    take_int(&f, "x", 1, 0, 1);
    assert_int_not_equal(tap__msprobe_collect_flush(f.collector, 0, true, &f.err), TAP_OK);
    assert_true(strlen(f.err.message) > 0);
    assert_true(exists(&f, "step1/proc5/debug.json")); /* the other step was written all the same */
    unlink(blocked);
    flush(&f, 0, true);
    assert_true(holds(&f, FILE_0, "\"x.0.debug\""));
    tap__free(blocked);
    stop(&f);
}

/* ------------------------------------------------------------------------------------------------ memory and threads */

/* Whichever allocation fails: an error or a whole file, no crash, no leak. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_dir *root = opened(dir);
    int whole = 0;
    for (long n = 0; whole < 3 && n < 400; n++) {
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        fixture f = {.dir = dir, .options = {.dir = root, .pid = 5, .keep = TAP_KEEP_STATS, .resume = n % 2}};
        tap_status status = tap__msprobe_collect_open(&f.options, &f.collector, &f.err);
        for (uint32_t i = 0; i < 40 && status == TAP_OK; i++)
            status = take_int(&f, i % 2 ? "x" : "y_grad", 0, i, 1);
        if (status == TAP_OK)
            status = take(&f, (test_entry){.name = "t", .path = "ka\x1fi1\x1fkb", .value_type = TAP_VALUE_STR});
        if (status == TAP_OK)
            status = tap__msprobe_collect_flush(f.collector, 0, true, &f.err);
        tap__msprobe_collect_close(f.collector);
        whole += status == TAP_OK;
        tap_allocator_set(NULL);
    }
    assert_int_equal(whole, 3);
    scratch_drop(dir);
}

enum { THREADS = 4, SAVES = 2000 };
static char thread_files[THREADS * SAVES][32];

typedef struct worker {
    tap_namer *namer;
    int index;
} worker;

static void *name_many(void *user)
{
    worker *w = user;
    float data[1];
    int64_t shape[1] = {1};
    tap_tensor tensor = {.data = data, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    tap_save_info info = TAP_SAVE_INFO();
    tap_leaf leaf = {.name = "x", .tensor = &tensor, .info = &info};
    tap_strbuf out = TAP_STRBUF_INIT;
    for (int i = 0; i < SAVES; i++) {
        tap__namer_name(w->namer, &leaf, &out, NULL);
        snprintf(thread_files[w->index * SAVES + i], 32, "%s", out.text);
    }
    tap__strbuf_free(&out);
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void threads_never_get_one_name(void **state)
{
    (void)state;
    tap_layout_options options = {.dir = opened("/run"), .world_size = 1, .keep = TAP_KEEP_TENSOR};
    tap_namer *namer;
    assert_int_equal(tap__namer_create(tap__layout_find("troubleshooter"), &options, &namer, NULL), TAP_OK);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){namer, i};
        pthread_create(&threads[i], NULL, name_many, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qsort(thread_files, THREADS * SAVES, 32, by_text);
    for (int i = 1; i < THREADS * SAVES; i++)
        assert_string_not_equal(thread_files[i], thread_files[i - 1]);
    tap__namer_free(namer);
}

/* ----------------------------------------------------------------------------------------------------- bad debug.json */

static tap_status any_record(void *user, const tap_record *record, const tap_facts *facts)
{
    (void)facts;
    ++*(int *)user;
    assert_null(strstr(record->file, ".."));
    return TAP_OK;
}

static void hostile_files_are_refused_or_survived(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tap_status status;
        int records;
    } CASES[] = {
        {"", TAP_E_TRUNCATED, 0}, {"{", TAP_E_TRUNCATED, 0}, {"[]", TAP_E_FORMAT, 0}, {"{\"data\": 3}", TAP_E_FORMAT, 0},
        {"null ", TAP_E_FORMAT, 0}, {"nonsense", TAP_E_FORMAT, 0}, {"{\"data\": {}}", TAP_OK, 0},
        {"{\"data\": {\"x\": 1, \"y\": \"s\"}}", TAP_OK, 2} /* torn */,
        {"{\"data\": {\"a.0.debug\": {\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2],"
         " \"Max\": NaN, \"Min\": -Infinity, \"Mean\": null, \"Norm\": 1, \"data_name\": \"../../../etc/passwd\"}}}",
         TAP_OK, 1},
        {"{\"data\": {\"a\": {\"type\": \"torch.Tensor\", \"dtype\": 5, \"shape\": [-1, \"x\"]}}}", TAP_OK, 1},
        {"{\"data\": {\"a\": {\"type\": \"torch.Tensor\", \"dtype\": \"torch.int8\", \"shape\": [9223372036854775807,"
         " 9223372036854775807, 99999999999999999999]}}}", TAP_OK, 1},
        {"{\"data\": {\"a\": {\"type\": \"torch.Tensor\", \"dtype\": \"torch.int8\", \"shape\": {}, \"Max\": \"x\","
         " \"Min\": [], \"data_name\": \"..\"}}}", TAP_OK, 1},
        {"{\"data\": {\".debug\": [[], {}], \"..debug\": null, \"_grad.0.debug\": null, \".0.debug\": null}}", TAP_OK, 4},
        {"{\"data\": {\"t.0.debug\": [{\"dtype\": \"torch.int8\", \"requires_grad\": true, \"type\": \"torch.Tensor\"},"
         " {\"type\": \"int\", \"value\": 1}], \"t_grad.0.debug\": [null, null, null, []]}}", TAP_OK, 3},
        {"{\"data\": {\"x\": {\"type\": \"int\", \"value\": 99999999999999999999999}}}", TAP_OK, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        tap_msprobe_place place = {.dir = opened("/tmp"), .relative = ""};
        uint64_t seq = 0;
        int records = 0;
        tap_error err = {.status = TAP_OK};
        tap_status status = tap__msprobe_records(CASES[i].text, strlen(CASES[i].text), &place, &seq, any_record,
                                                 &records, &err);
        if (status != CASES[i].status || records != CASES[i].records)
            fail_msg("%s: %d, %d records", CASES[i].text, (int)status, records);
    }
    /* too deep */
    static char deep[200001] = "{\"data\": {\"x\": ";
    memset(deep + strlen(deep), '[', sizeof deep - 1 - strlen(deep));
    tap_msprobe_place place = {.dir = opened("/tmp"), .relative = ""};
    uint64_t seq = 0;
    int records = 0;
    assert_int_equal(tap__msprobe_records(deep, sizeof deep - 1, &place, &seq, any_record, &records, NULL),
                     TAP_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_at_most_once_a_second),
        cmocka_unit_test(slots_keep_a_step_open),
        cmocka_unit_test(a_second_writer_goes_on),
        cmocka_unit_test(an_old_file_is_replaced),
        cmocka_unit_test(large_steps_do_not_stay_in_memory),
        cmocka_unit_test(many_open_steps),
        cmocka_unit_test(big_tensors_get_their_statistics_later),
        cmocka_unit_test(a_disk_that_fails_is_tried_again),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(threads_never_get_one_name),
        cmocka_unit_test(hostile_files_are_refused_or_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
