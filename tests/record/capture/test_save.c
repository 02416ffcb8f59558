/* test_save.c - the numbers a save is counted under, places left out of a nested value, and forwards run again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "record/scratch.h"
#include "tensortap/tensortap.h"

static const int64_t SHAPE[1] = {2};
static float DATA[2] = {1, 2};
static const tap_tensor TENSOR = {DATA, TAP_F32, 1, SHAPE, NULL};

static tap_recorder *open_recorder(const char *dir, const char *names)
{
    tap_options options;
    tap_recorder *rec;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.names = names;
    options.writer = "thread";
    options.ring_bytes = 1 << 20;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return rec;
}

static void close_recorder(tap_recorder *rec)
{
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_OK);
}

static tap_saved save(tap_recorder *rec, const char *name, unsigned flags)
{
    tap_saved saved = {.wanted = false};
    tap_save_info info = TAP_SAVE_INFO(.flags = flags, .saved = &saved);
    assert_int_equal(tap_save(rec, name, &TENSOR, &info), TAP_OK);
    return saved;
}

static void a_save_tells_its_numbers(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_recorder(dir, "x*");
    for (int64_t step = 0; step < 2; step++) {
        for (uint32_t call = 0; call < 3; call++) {
            tap_saved saved = save(rec, "x", 0);
            assert_true(saved.wanted);
            assert_int_equal(saved.step, step);
            assert_int_equal(saved.call, call);
        }
        assert_false(save(rec, "other", 0).wanted);
        tap_step(rec);
    }
    tap_recorder_enable(rec, false);
    assert_false(save(rec, "x", 0).wanted);
    close_recorder(rec);
    scratch_drop(dir);
}

static void recomputed_calls_are_counted_apart(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_recorder(dir, NULL);
    assert_int_equal(save(rec, "x", 0).call, 0);
    assert_int_equal(save(rec, "x", 0).call, 1);
    assert_int_equal(save(rec, "x", TAP_SAVE_RECOMPUTED).call, 0);
    assert_int_equal(save(rec, "x", 0).call, 2);
    assert_int_equal(save(rec, "x", TAP_SAVE_RECOMPUTED).call, 1);
    close_recorder(rec);
    scratch_drop(dir);
}

static void a_place_left_out_keeps_the_others_paths(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_recorder(dir, NULL);
    tap_value items[3] = {{.type = TAP_VALUE_SKIP}, {.type = TAP_VALUE_TENSOR, .tensor = TENSOR}, {.type = TAP_VALUE_SKIP}};
    tap_value list = {.type = TAP_VALUE_LIST, .items = items, .len = 3};
    assert_int_equal(tap_save_value(rec, "x", &list, NULL), TAP_OK);
    close_recorder(rec);
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_record_init(&record);
    tap_error err;
    tap_query_init(&query);
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &record, &err), TAP_OK);
    assert_string_equal(record.path, "1");
    assert_int_equal(tap_cursor_next(cursor, &record, &err), TAP_END);
    tap_cursor_close(cursor);
    tap_run_close(run);
    scratch_drop(dir);
}

typedef struct losses {
    size_t count;
    char text[4][200];
} losses;

static void note_loss(void *user, const tap_problem *problem)
{
    losses *found = user;
    assert_true(found->count < 4);
    snprintf(found->text[found->count++], sizeof found->text[0], "%s %s %s %d %lld %s", tap_problem_name(problem->kind),
             problem->name, problem->path, (int)problem->count, (long long)problem->step, problem->reason);
}

static size_t warnings;

static void count_warning(void *user, tap_log_level level, const char *message)
{
    (void)user, (void)message;
    warnings += level == TAP_LOG_WARNING;
}

static void losses_of(const char *dir, losses *found)
{
    tap_run *run;
    tap_error err;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_verify_options options;
    *found = (losses){.count = 0};
    tap_verify_options_init(&options);
    options.on_problem = note_loss;
    options.user = found;
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_verify(run, &options, &result, &err), TAP_E_LOST);
    assert_int_equal(result.lost, found->count);
    tap_run_close(run);
}

static void a_leaf_nobody_could_read_is_lost_by_name(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_recorder(dir, NULL);
    tap_log_set(count_warning, NULL);
    warnings = 0;
    tap_value items[2] = {{.type = TAP_VALUE_TENSOR, .tensor = TENSOR}, {.type = TAP_VALUE_LOST, .bytes = "no storage"}};
    tap_value list = {.type = TAP_VALUE_LIST, .items = items, .len = 2};
    tap_step(rec);
    assert_int_equal(tap_save_value(rec, "x", &list, NULL), TAP_E_INVALID);
    assert_int_equal(tap_save_value(rec, "x", &list, NULL), TAP_E_INVALID);
    tap_tensor nowhere = {NULL, TAP_F32, 1, SHAPE, NULL};
    assert_int_equal(tap_save(rec, "y", &nowhere, NULL), TAP_E_INVALID);
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(rec, &counts);
    assert_int_equal(counts.dropped, 3);
    assert_int_equal(counts.saved, 2);
    assert_int_equal(warnings, 2); /* one a name */
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    tap_log_set(NULL, NULL);
    losses found;
    losses_of(dir, &found);
    assert_int_equal(found.count, 3);
    assert_string_equal(found.text[0], "dropped x 1 1 1 no storage");
    assert_string_equal(found.text[1], "dropped x 1 1 1 no storage");
    assert_non_null(strstr(found.text[2], "dropped y  1 1 "));
    scratch_drop(dir);
}

/* A container that does not say where its items are, and a name that is missing. */
static void a_container_without_items(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"native", "torch_npu"};
    for (int i = 0; i < 2; i++) {
        char *dir = scratch_make();
        tap_options options;
        tap_recorder *rec;
        tap_options_init(&options);
        options.dir = dir;
        options.layout = LAYOUTS[i];
        options.writer = "thread";
        assert_int_equal(tap_recorder_open(&options, &rec, NULL), TAP_OK);
        tap_log_set(count_warning, NULL);
        const char *const keys[1] = {NULL};
        tap_value item = {.type = TAP_VALUE_TENSOR, .tensor = TENSOR};
        tap_value inner[2] = {item, {.type = TAP_VALUE_LIST, .len = 3}};
        tap_value list = {.type = TAP_VALUE_LIST, .items = inner, .len = 2};
        tap_value dict = {.type = TAP_VALUE_DICT, .items = &item, .len = 1};
        assert_int_not_equal(tap_save_value(rec, "a", &list, NULL), TAP_OK);
        assert_int_not_equal(tap_save_value(rec, "b", &inner[1], NULL), TAP_OK);
        assert_int_not_equal(tap_save_value(rec, "c", &dict, NULL), TAP_OK);
        dict.keys = keys;
        assert_int_equal(tap_save_value(rec, "d", &dict, NULL), TAP_OK);
        tap_log_set(NULL, NULL);
        tap_error err;
        assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
        losses found;
        losses_of(dir, &found);
        assert_int_equal(found.count, 3);
        scratch_drop(dir);
    }
}

/* Its announcement left a slot; that it came and could not be read is one loss, not two. */
static void a_gradient_nobody_could_read_is_one_loss(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_recorder(dir, NULL);
    tap_value lost = {.type = TAP_VALUE_LOST, .bytes = "no storage"};
    tap_save_info info = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT, .has_call = true);
    assert_int_equal(tap_save_value(rec, "g", &lost, &info), TAP_OK);
    info.flags = 0;
    assert_int_equal(tap_save_value(rec, "g", &lost, &info), TAP_E_INVALID);
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    losses found;
    losses_of(dir, &found);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.text[0], "dropped g  1 0 no storage");
    scratch_drop(dir);
}

/* 2^36 elements that are one: told, not read for minutes and written for hours. One that is small is saved. */
static void a_view_that_repeats_for_ever(void **state)
{
    (void)state;
    static const unsigned KEEP[2] = {TAP_KEEP_STATS | TAP_KEEP_TENSOR, TAP_KEEP_STATS};
    for (int i = 0; i < 2; i++) {
        char *dir = scratch_make();
        tap_options options;
        tap_recorder *rec;
        tap_options_init(&options);
        options.dir = dir;
        options.keep = KEEP[i];
        options.writer = "thread";
        options.ring_bytes = 1 << 20;
        assert_int_equal(tap_recorder_open(&options, &rec, NULL), TAP_OK);
        const int64_t shape[3] = {1 << 18, 1 << 18, 2}, few[3] = {100, 100, 2}, strides[3] = {0, 0, 1};
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        assert_int_equal(tap_save(rec, "much", &(tap_tensor){DATA, TAP_F32, 3, shape, strides}, NULL), TAP_E_INVALID);
        assert_int_equal(tap_save(rec, "little", &(tap_tensor){DATA, TAP_F32, 3, few, strides}, NULL), TAP_OK);
        clock_gettime(CLOCK_MONOTONIC, &after);
        assert_true(after.tv_sec - before.tv_sec < 5);
        assert_int_equal(tap_recorder_close(rec, NULL), TAP_E_LOST);
        losses found;
        losses_of(dir, &found);
        assert_int_equal(found.count, 1);
        assert_non_null(strstr(found.text[0], "dropped much "));
        assert_non_null(strstr(found.text[0], "repeats its elements"));
        scratch_drop(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_tells_its_numbers),
        cmocka_unit_test(recomputed_calls_are_counted_apart),
        cmocka_unit_test(a_place_left_out_keeps_the_others_paths),
        cmocka_unit_test(a_leaf_nobody_could_read_is_lost_by_name),
        cmocka_unit_test(a_container_without_items),
        cmocka_unit_test(a_gradient_nobody_could_read_is_one_loss),
        cmocka_unit_test(a_view_that_repeats_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
