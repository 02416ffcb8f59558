/* test_tally.c - the page of counts by itself: it outlives who made it, says what is missing, and nobody is made to read
 * what is not such a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "record/ring/tally.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char name[TAP_TALLY_NAME], path[64];

static int fresh(void **state)
{
    (void)state;
    tap__tally_name(name);
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    return 0;
}

static int gone(void **state)
{
    (void)state;
    tap__tally_remove(name);
    return access(path, F_OK) == 0;
}

static void names_differ(void **state)
{
    (void)state;
    char other[TAP_TALLY_NAME];
    tap__tally_name(other);
    assert_string_not_equal(name, other);
}

static void missing_is_what_nobody_accounts_for(void **state)
{
    (void)state;
    tap_tally *t = tap__tally_private();
    assert_int_equal(tap__tally_missing(t, 0), 0);
    atomic_store(&t->saved, 100);
    atomic_store(&t->dropped, 20);
    atomic_store(&t->named, 5);
    tap__tally_account(t, 70, 60);
    assert_int_equal(tap__tally_missing(t, 0), 55);
    assert_int_equal(tap__tally_missing(t, 50), 5);
    assert_int_equal(tap__tally_missing(t, 60), 0); /* never less than none */
    tap__tally_account(t, 90, 80);
    assert_int_equal(tap__tally_marked(t).seq, 90);
    assert_int_equal(tap__tally_missing(t, 0), 35);
    tap__tally_unmap(t);
}

static void outlives_a_killed_process(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        tap_tally *t = tap__tally_create(name, &fd);
        if (!t || fd < 3)
            _exit(1);
        tap__tally_hold(fd);
        for (int i = 0; i < 340; i++)
            atomic_fetch_add(&t->saved, 1);
        tap__tally_account(t, 25, 20);
        if (write(ready[1], "y", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_blocks * 512, TAP_TALLY_BYTES); /* taken, not only promised */
    assert_true(tap__tally_in_use(name));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(tap__tally_in_use(name));
    tap_tally left;
    assert_true(tap__tally_read(name, &left));
    assert_int_equal(tap__tally_missing(&left, 0), 320);
    assert_int_equal(tap__tally_marked(&left).seq, 25);
    tap__tally_remove(name);
    assert_false(tap__tally_read(name, &left));
    close(ready[0]);
}

static void put(const char *at, const void *bytes, size_t len)
{
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void refuses_what_is_none(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"", "tensortap-", "../../etc/passwd", "tensortap-/../../etc/hosts",
                                        "tensortap-0123456789abcdeF", "tensortap-0123456789abcdef0"};
    tap_tally t = {.magic = TAP_TALLY_MAGIC};
    int fd;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        assert_false(tap__tally_read(NAMES[i], &t));
        assert_false(tap__tally_in_use(NAMES[i]));
        assert_null(tap__tally_create(NAMES[i], &fd));
        tap__tally_remove(NAMES[i]);
    }
    put(path, "short", 5);
    assert_false(tap__tally_read(name, &t));
    assert_null(tap__tally_create(name, &fd)); /* somebody else's */
    unlink(path);
    t = (tap_tally){.magic = TAP_TALLY_MAGIC, .name = "tensortap-0123456789abcdef"};
    put(path, &t, sizeof t);
    assert_false(tap__tally_read(name, &t)); /* another's numbers */
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_false(tap__tally_read(name, &t));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(tap__tally_read(name, &t)); /* and does not wait for anybody to write into it */
    assert_false(tap__tally_in_use(name));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_differ, fresh, gone),
        cmocka_unit_test_setup_teardown(missing_is_what_nobody_accounts_for, fresh, gone),
        cmocka_unit_test_setup_teardown(outlives_a_killed_process, fresh, gone),
        cmocka_unit_test_setup_teardown(refuses_what_is_none, fresh, gone),
    };
    return cmocka_run_group_tests_name("tally", tests, NULL, NULL);
}
