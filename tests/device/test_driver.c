/* test_driver.c - finding the driver, and asking it whether a stream captures. The driver is the tests' own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/driver.h"

static void *fake;

static void tell(int result, int status)
{
    void (*set)(int, int) = (void (*)(int, int))dlsym(fake, "fake_capturing");
    set(result, status);
}

static void a_stream_that_captures_is_told(void **state)
{
    (void)state;
    tell(0, 0);
    assert_false(tap_cuda_is_capturing(NULL));
    tell(0, 1);
    assert_true(tap_cuda_is_capturing(NULL));
    tell(0, 2); /* invalidated: still no place to read from */
    assert_true(tap_cuda_is_capturing(NULL));
}

static void a_refusal_to_answer_counts_as_capturing(void **state)
{
    (void)state;
    tell(TAP_CU_CAPTURE_IMPLICIT, 0);
    assert_true(tap_cuda_is_capturing(NULL));
    tell(201, 1); /* no context: nothing runs there */
    assert_false(tap_cuda_is_capturing(NULL));
}

static void the_mode_is_exchanged(void **state)
{
    (void)state;
    assert_int_equal(tap_cuda_capture_mode(2), 0);
    assert_int_equal(tap_cuda_capture_mode(0), 2);
}

/* In a process of its own, since the driver is looked for once. Is it no driver, and do streams capture? */
static bool is_no_driver(const char *path, bool captures)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("TENSORTAP_CUDA_DRIVER", path, 1);
        _exit(!tap__driver() && tap_cuda_is_capturing(NULL) == captures && tap_cuda_capture_mode(2) == 2 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 0;
}

static void without_a_driver_nothing_captures(void **state)
{
    (void)state;
    assert_true(is_no_driver("/nowhere/libcuda.so", false));
    assert_true(is_no_driver("libc.so.6", false)); /* a library without the functions */
}

static void an_old_driver_still_tells_captures(void **state)
{
    (void)state;
    assert_true(is_no_driver(FAKE_CUDA_OLD, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_driver_nothing_captures), /* first: it must be the one to look */
        cmocka_unit_test(an_old_driver_still_tells_captures),
        cmocka_unit_test(a_stream_that_captures_is_told),
        cmocka_unit_test(a_refusal_to_answer_counts_as_capturing),
        cmocka_unit_test(the_mode_is_exchanged),
    };
    setenv("TENSORTAP_CUDA_DRIVER", FAKE_CUDA, 1);
    fake = dlopen(FAKE_CUDA, RTLD_NOW);
    return fake ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
