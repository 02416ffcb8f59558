/* test_match.c - name globs and number ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/match.h"

static void globs(void **state)
{
    (void)state;
    static const struct {
        const char *globs, *text;
        bool match;
    } CASES[] = {
        {NULL, "x", true}, {"", "x", true}, {"x", "x", true}, {"x", "xy", false}, {"*", "", true}, {"a*c", "abbc", true},
        {"a*c", "abb", false}, {"a?c", "abc", true}, {"a?c", "a层c", true}, {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false},
        {"[", "[", true}, {"\\*", "*", true}, {"\\*", "a", false}, {"a|b", "b", true}, {"a|b", "c", false},
        {"!a", "b", true}, {"!a", "a", false}, {"*|!a*", "abc", false}, {"*|!a*", "bc", true},
        {"attn.*", "attn.q", true}, {"attn.*", "mlp", false}, {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        if (tap__names_match(CASES[i].globs, CASES[i].text) != CASES[i].match)
            fail_msg("%s against %s", CASES[i].globs, CASES[i].text);
}

static void ranges(void **state)
{
    (void)state;
    tap_ranges r;
    assert_int_equal(tap__ranges_parse(&r, "0|10-20, 100-", "steps", NULL), TAP_OK);
    static const int64_t IN[] = {0, 10, 15, 20, 100, INT64_MAX}, OUT[] = {1, 9, 21, 99};
    for (size_t i = 0; i < 6; i++)
        assert_true(tap__ranges_contain(&r, IN[i]));
    for (size_t i = 0; i < 4; i++)
        assert_false(tap__ranges_contain(&r, OUT[i]));
    tap__ranges_free(&r);
    assert_int_equal(tap__ranges_parse(&r, NULL, "steps", NULL), TAP_OK);
    assert_true(tap__ranges_contain(&r, 7));
    static const char *const BAD[] = {"x", "1-x", "5-3", "-1", "1||2", "1|", "99999999999999999999", "1 2"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        tap_error err;
        assert_int_equal(tap__ranges_parse(&r, BAD[i], "steps", &err), TAP_E_INVALID);
        assert_non_null(strstr(err.message, BAD[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(globs), cmocka_unit_test(ranges)};
    return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
