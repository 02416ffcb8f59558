/* cmocka.h - the part of cmocka's interface that the kernels' tests use, in one header, for machines whose cmocka is
 * not installed (cross builds). Native builds use cmocka itself. A failed assertion ends its test, not the program. */
#ifndef TAP_TESTS_CROSS_CMOCKA_H
#define TAP_TESTS_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*CMFixtureFunction)(void **state);
struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};
#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_unit_test_setup(f, setup) {#f, f, setup, NULL, NULL}
#define cmocka_unit_test_teardown(f, teardown) {#f, f, NULL, teardown, NULL}
#define cmocka_unit_test_prestate(f, state) {#f, f, NULL, NULL, state}

static jmp_buf cross_jump;

static inline void cross_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    longjmp(cross_jump, 1);
}

#define cross_check(ok, text) ((ok) ? (void)0 : cross_fail(__FILE__, __LINE__, text))
#define assert_true(c) cross_check((c) != 0, "assert_true(" #c ")")
#define assert_false(c) cross_check(!(c), "assert_false(" #c ")")
#define assert_null(p) cross_check((const void *)(uintptr_t)(p) == NULL, "assert_null(" #p ")")
#define assert_non_null(p) cross_check((const void *)(uintptr_t)(p) != NULL, "assert_non_null(" #p ")")
#define assert_ptr_equal(a, b) cross_check((const void *)(a) == (const void *)(b), #a " is not " #b)
#define assert_ptr_not_equal(a, b) cross_check((const void *)(a) != (const void *)(b), #a " is " #b)
#define assert_int_equal(a, b) cross_check((uint64_t)(a) == (uint64_t)(b), #a " != " #b)
#define assert_uint_equal(a, b) cross_check((uint64_t)(a) == (uint64_t)(b), #a " != " #b)
#define assert_int_not_equal(a, b) cross_check((uint64_t)(a) != (uint64_t)(b), #a " == " #b)
#define assert_string_equal(a, b) cross_check(strcmp((a), (b)) == 0, #a " != " #b)
#define assert_string_not_equal(a, b) cross_check(strcmp((a), (b)) != 0, #a " == " #b)
#define assert_memory_equal(a, b, n) cross_check(memcmp((a), (b), (n)) == 0, #a " and " #b " differ")
#define assert_memory_not_equal(a, b, n) cross_check(memcmp((a), (b), (n)) != 0, #a " and " #b " are equal")
#define assert_in_range(v, lo, hi) \
    cross_check((uint64_t)(v) >= (uint64_t)(lo) && (uint64_t)(v) <= (uint64_t)(hi), #v " is out of range")
#define assert_float_equal(a, b, e) cross_check((a) - (b) <= (e) && (b) - (a) <= (e), #a " != " #b)
#define assert_double_equal(a, b, e) assert_float_equal(a, b, e)
#define assert_return_code(r, e) cross_check((r) >= 0, #r " failed")
#define fail() cross_fail(__FILE__, __LINE__, "fail()")
#define fail_msg(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), fail())
#define print_message(...) fprintf(stdout, __VA_ARGS__)
#define print_error(...) fprintf(stderr, __VA_ARGS__)
#define skip() longjmp(cross_jump, 2)
#define test_malloc malloc
#define test_free free

static inline int cross_run_one(const struct CMUnitTest *test, void *group)
{
    void *state = test->initial_state ? test->initial_state : group;
    if (test->setup_func && test->setup_func(&state))
        return 1;
    int how = setjmp(cross_jump);
    if (how == 0)
        test->test_func(&state);
    if (test->teardown_func)
        test->teardown_func(&state);
    printf("[%s] %s\n", how == 0 ? "  OK  " : how == 2 ? "SKIPPED" : "FAILED", test->name);
    return how == 1;
}

static inline int cross_run(const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                            CMFixtureFunction teardown)
{
    void *state = NULL;
    int failed = 0;
    if (setup && setup(&state))
        return 1;
    for (size_t i = 0; i < count; i++)
        failed += cross_run_one(&tests[i], state);
    if (teardown)
        teardown(&state);
    printf("%zu tests, %d failed\n", count, failed);
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) \
    cross_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    (printf("%s\n", name), cmocka_run_group_tests(tests, setup, teardown))

#endif
