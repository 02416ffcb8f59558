/* test_pairing.c - which records find each other, against a plain search; memory that fails; and who is told to stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/failing_allocator.h"
#include "compare/held.h"
#include "compare/verdict.h"
#include "record/scratch.h"
#include "tensortap/tensortap_compare.h"

static void bare_names(void **state)
{
    static const char *const NAMES[][2] = {
        {"a.b", "a.b"},
        {"module.a", "a"},
        {"module.module.a", "a"},
        {"_orig_mod.module.a._checkpoint_wrapped_module.b.weight", "a.b.weight"},
        {"module", "module"},
        {"a.module", "a.module"},
        {"modules.a", "modules.a"},
        {"a._fsdp_wrapped_module.b", "a.b"},
        {"", ""},
        {".", "."},
        {"..module.", ".."},
    };
    (void)state;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        tap_strbuf out = TAP_STRBUF_INIT;
        tap__strbuf_str(&out, "");
        tap__name_bare(&out, NAMES[i][0]);
        assert_string_equal(out.text ? out.text : "", NAMES[i][1]);
        tap__strbuf_free(&out);
    }
}

/* One record with a value of its own. */
static void save(tap_recorder *rec, const char *name, float value, uint32_t call)
{
    int64_t one = 1;
    tap_tensor tensor = {&value, TAP_F32, 1, &one, NULL};
    tap_save_info info = TAP_SAVE_INFO(.has_call = true, .call = call);
    assert_int_equal(tap_save(rec, name, &tensor, &info), TAP_OK);
}

static tap_recorder *open_in(const char *dir, const char *name, char path[600])
{
    tap_options options;
    tap_recorder *rec;
    tap_error err;
    snprintf(path, 600, "%s/%s", dir, name);
    tap_options_init(&options);
    options.dir = path;
    options.writer = "thread";
    options.ring_bytes = 8 << 20;
    if (tap_recorder_open(&options, &rec, &err))
        fail_msg("%s", err.message);
    return rec;
}

static void close_it(tap_recorder *rec)
{
    assert_int_equal(tap_recorder_close(rec, NULL), TAP_OK);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Names drawn from a few, in any order on both sides: the n-th of a key belongs to the n-th. */
static void any_order(void **state)
{
    enum { KEYS = 40, COUNT = 300 };
    (void)state;
    for (uint32_t round = 1; round <= 8; round++) {
        char *dir = scratch_make(), path[2][600];
        uint32_t random = round, came[2][KEYS] = {{0}};
        for (int side = 0; side < 2; side++) {
            tap_recorder *rec = open_in(dir, side ? "b" : "a", path[side]);
            for (int i = 0; i < COUNT; i++) {
                char name[16];
                uint32_t key = next_random(&random) % KEYS;
                snprintf(name, sizeof name, "k%u", key);
                save(rec, name, (float)(key * 1000 + came[side][key]++), 0);
            }
            close_it(rec);
        }
        tap_comparison *comparison;
        tap_comparison_summary sum;
        tap_error err;
        if (tap_compare_run(path[0], path[1], NULL, &comparison, &err))
            fail_msg("%s", err.message);
        tap_comparison_summary_init(&sum);
        assert_int_equal(tap_comparison_summarise(comparison, &sum, &err), TAP_OK);
        uint64_t equal = 0, only[2] = {0, 0};
        for (int key = 0; key < KEYS; key++) {
            uint32_t a = came[0][key], b = came[1][key], both = a < b ? a : b;
            equal += both;
            only[0] += a - both;
            only[1] += b - both;
        }
        assert_int_equal(sum.classes[TAP_MATCH_EQUAL], equal);
        assert_int_equal(sum.classes[TAP_MATCH_ONLY_A], only[0]);
        assert_int_equal(sum.classes[TAP_MATCH_ONLY_B], only[1]);
        assert_int_equal(sum.records[0], COUNT);
        tap_comparison_close(comparison);
        scratch_drop(dir);
    }
}

static void save_as(tap_recorder *rec, const tap_save_info *info)
{
    float value = 1;
    int64_t one = 1;
    tap_tensor tensor = {&value, TAP_F32, 1, &one, NULL};
    assert_int_equal(tap_save(rec, "x", &tensor, info), TAP_OK);
}

/* Records that differ in any part of their key do not belong to each other. */
static void keys_tell_apart(void **state)
{
    (void)state;
    tap_save_info usual = TAP_SAVE_INFO(.has_step = true, .has_call = true), others[] = {usual, usual, usual, usual, usual, usual};
    others[0].step = 1;
    others[1].call = 1;
    others[2].kind = TAP_KIND_GRAD;
    others[3].flags = TAP_SAVE_RECOMPUTED;
    others[4].replay = 1;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *dir = scratch_make(), path[2][600];
        for (int side = 0; side < 2; side++) {
            tap_recorder *rec = open_in(dir, side ? "b" : "a", path[side]);
            save_as(rec, side ? &others[i] : &usual);
            close_it(rec);
        }
        tap_comparison *comparison;
        tap_comparison_summary sum;
        tap_error err;
        tap_comparison_summary_init(&sum);
        assert_int_equal(tap_compare_run(path[0], path[1], NULL, &comparison, &err), TAP_OK);
        assert_int_equal(tap_comparison_summarise(comparison, &sum, &err), TAP_OK);
        bool same = i == sizeof others / sizeof others[0] - 1;
        assert_int_equal(sum.classes[TAP_MATCH_EQUAL], same);
        assert_int_equal(sum.classes[TAP_MATCH_ONLY_A], !same);
        assert_int_equal(sum.classes[TAP_MATCH_ONLY_B], !same);
        tap_comparison_close(comparison);
        scratch_drop(dir);
    }
}

static void two_runs(const char *dir, int count, char path[2][600])
{
    for (int side = 0; side < 2; side++) {
        tap_recorder *rec = open_in(dir, side ? "b" : "a", path[side]);
        for (int i = 0; i < count; i++) {
            char name[16];
            snprintf(name, sizeof name, "n%d", side ? count - 1 - i : i);
            save(rec, name, (float)(side && i == 3), 0);
        }
        close_it(rec);
    }
}

static void allocations_fail(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[2][600];
    two_runs(dir, 20, path);
    const char *rules[] = {"n1: rel<=1 or abs<=1"}, *noise[] = {path[0]};
    tap_compare_options options;
    tap_compare_options_init(&options);
    options.rules = rules;
    options.rule_count = 1;
    options.noise = noise;
    options.noise_count = 1;
    options.threads = 1;
    tap_status status = TAP_E_NOMEM;
    long fail_at = 0;
    while (status == TAP_E_NOMEM) {
        tap_comparison *comparison = NULL;
        tap_verdict verdict;
        tap_error err;
        tap_verdict_init(&verdict);
        allocations_left = ++fail_at;
        tap_allocator_set(&FAILING_ALLOCATOR);
        status = tap_compare_run(path[0], path[1], &options, &comparison, &err);
        if (status == TAP_OK)
            status = tap_comparison_verdict(comparison, &verdict, &err);
        tap_allocator_set(NULL);
        tap_comparison_close(comparison);
    }
    assert_int_equal(status, TAP_OK);
    assert_true(fail_at > 100);
    scratch_drop(dir);
}

static bool stop_soon(void *user, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return ++*(int *)user < 3;
}

static void somebody_says_stop(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[2][600], kept[700];
    two_runs(dir, 1000, path);
    snprintf(kept, sizeof kept, "%s/kept.cmp", dir);
    int calls = 0;
    tap_compare_options options;
    tap_comparison *comparison = NULL;
    tap_error err;
    tap_compare_options_init(&options);
    options.on_progress = stop_soon;
    options.user = &calls;
    options.output = kept;
    assert_int_equal(tap_compare_run(path[0], path[1], &options, &comparison, &err), TAP_E_TIMEOUT);
    assert_null(comparison);
    assert_int_equal(calls, 3);
    assert_int_not_equal(access(kept, F_OK), 0);
    scratch_drop(dir);
}

static void not_there(void **state)
{
    (void)state;
    tap_comparison *comparison;
    tap_error err;
    assert_int_equal(tap_compare_run("/nonexistent/a", "/nonexistent/b", NULL, &comparison, &err), TAP_E_NOTFOUND);
    assert_null(comparison);
    assert_int_equal(tap_comparison_open("/nonexistent/c", &comparison, &err), TAP_E_NOTFOUND);
    assert_null(comparison);
    tap_comparison_close(NULL);
    tap_match_cursor_close(NULL);
    assert_string_equal(tap_match_class_name(TAP_MATCH_NONFINITE), "nonfinite");
    assert_string_equal(tap_match_class_name((tap_match_class)99), "unknown");
    assert_string_equal(tap_evidence_name((tap_evidence)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bare_names),        cmocka_unit_test(any_order), cmocka_unit_test(allocations_fail),
        cmocka_unit_test(keys_tell_apart),
        cmocka_unit_test(somebody_says_stop), cmocka_unit_test(not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
