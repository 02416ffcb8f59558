/* test_print.c - the text of a few tensors, written down from numpy 2.4, and printing without memory. Thousands more are
 * compared with numpy itself in tests/python/test_tensor_print.py. */
#include "tensor/check.h"

#include <math.h>
#include <string.h>

#include "base/failing_allocator.h"

typedef struct text {
    char bytes[4096];
    size_t len;
} text;

static void collect(void *user, const char *bytes, size_t len)
{
    text *to = user;
    assert_true(to->len + len < sizeof to->bytes);
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
    to->bytes[to->len] = 0;
}

static text print(const tap_tensor *tensor)
{
    text out = {.len = 0};
    tap_error err;
    if (tap_tensor_print(tensor, NULL, collect, &out, &err))
        fail_msg("%s", err.message);
    return out;
}

static void goldens(void **state)
{
    (void)state;
    float floats[6] = {1, 2.5f, -3, NAN, 0.1f, INFINITY};
    double wide[2] = {1e-5, 1};
    uint8_t bytes[2] = {1, 0};
    int64_t two[1] = {2}, six[2] = {2, 3}, none[1] = {0};
    const struct {
        tap_tensor tensor;
        const char *text;
    } CASES[] = {
        {{floats, TAP_F32, 2, six, NULL}, "[[ 1.   2.5 -3. ]\n [ nan  0.1  inf]]"},
        {{wide, TAP_F64, 1, two, NULL}, "[1.e-05 1.e+00]"},
        {{bytes, TAP_BOOL, 1, two, NULL}, "[ True False]"},
        {{bytes, TAP_U8, 1, two, NULL}, "[1 0]"},
        {{floats, TAP_C64, 1, two, NULL}, "[ 1.+2.5j -3.+nanj]"},
        {{floats + 1, TAP_F32, 0, NULL, NULL}, "2.5"},
        {{bytes, TAP_BOOL, 0, NULL, NULL}, "True"},
        {{NULL, TAP_F16, 1, none, NULL}, "[]"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_string_equal(print(&CASES[i].tensor).bytes, CASES[i].text);
}

static void a_long_one_is_summarised(void **state)
{
    (void)state;
    static int32_t numbers[2000];
    for (int i = 0; i < 2000; i++)
        numbers[i] = i;
    int64_t shape[1] = {2000};
    tap_tensor t = {.data = numbers, .dtype = TAP_I32, .ndim = 1, .shape = shape};
    assert_string_equal(print(&t).bytes, "[   0    1    2 ... 1997 1998 1999]");
}

static void without_memory(void **state)
{
    (void)state;
    static float values[900];
    int64_t shape[1] = {900};
    tap_tensor t = {.data = values, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    tap_allocator_set(&FAILING_ALLOCATOR);
    tap_status status = TAP_E_NOMEM;
    for (int n = 0; n < 100 && status; n++) {
        allocations_left = n;
        text out = {.len = 0};
        tap_error err;
        status = tap_tensor_print(&t, NULL, collect, &out, &err);
        assert_true(status == TAP_OK || status == TAP_E_NOMEM);
    }
    tap_allocator_set(NULL);
    assert_int_equal(status, TAP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(goldens), cmocka_unit_test(a_long_one_is_summarised),
                                       cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
