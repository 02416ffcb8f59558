/* test_save.c - the numbers a save is counted under, places left out of a nested value, and forwards run again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    tap_save_info info = {.flags = flags, .saved = &saved};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_tells_its_numbers),
        cmocka_unit_test(recomputed_calls_are_counted_apart),
        cmocka_unit_test(a_place_left_out_keeps_the_others_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
