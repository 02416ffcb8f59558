/* check.h - cmocka, or the little of it that these tests use where there is no cmocka (cross builds). */
#ifndef TAP_TESTS_CHECK_H
#define TAP_TESTS_CHECK_H

#ifndef TAP_NO_CMOCKA

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#else

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(function) {#function, function}
#define fail_msg(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), exit(1))
#define assert_true(x) ((x) ? (void)0 : (void)fail_msg("not true: %s", #x))
#define assert_false(x) assert_true(!(x))
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, len) assert_true(memcmp(a, b, len) == 0)
#define assert_non_null(x) assert_true((x) != NULL)

static inline int check_run(const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tests[i].run(NULL);
        printf("ok %s\n", tests[i].name);
    }
    return 0;
}
#define cmocka_run_group_tests(tests, setup, teardown) check_run(tests, sizeof(tests) / sizeof(tests)[0])

#endif
#endif
