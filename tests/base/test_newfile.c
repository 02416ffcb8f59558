/* test_newfile.c - temporary names: nobody shares one, and only those that were left behind are cleared away. */
#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "record/opened.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = scratch_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_drop(dir);
    return 0;
}

/* Names in dir below sub, "." and ".." apart. */
static int count_names(const char *sub)
{
    char *path = tap__path_join(dir, sub);
    DIR *list = opendir(path);
    int count = 0;
    for (struct dirent *item; list && (item = readdir(list));)
        count += strcmp(item->d_name, ".") && strcmp(item->d_name, "..");
    if (list)
        closedir(list);
    tap__free(path);
    return count;
}

static tap_newfile make(const char *name)
{
    tap_newfile file;
    assert_int_equal(tap__file_create(&file, opened(dir), name, NULL), TAP_OK);
    return file;
}

/* A process makes a file and is killed before the file has its name. */
static void leave_behind(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) {
        make(name);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void put_in_place(void **state)
{
    (void)state;
    tap_newfile a = make("x/y/file"), b = make("x/y/file"); /* two at once, for one file */
    assert_string_not_equal(a.temporary, b.temporary);
    assert_true(tap__is_temporary(a.temporary));
    assert_int_equal(tap__write_all(a.fd, "a", 1), 0);
    assert_int_equal(tap__write_all(b.fd, "b", 1), 0);
    assert_int_equal(tap__file_commit(&a, NULL), TAP_OK);
    char *path = tap__path_join(dir, "x/y/file"), *text;
    assert_int_equal(tap__file_get(path, 10, &text, NULL, NULL), TAP_OK);
    assert_string_equal(text, "a");
    tap__free(text);
    tap__file_abort(&b);
    assert_int_equal(tap__file_get(path, 10, &text, NULL, NULL), TAP_OK);
    assert_string_equal(text, "a");
    tap__free(text);
    tap__free(path);
    assert_int_equal(count_names("x/y"), 1);
}

static void left_behind_is_cleared(void **state)
{
    (void)state;
    leave_behind("file");
    leave_behind("a/b/file");
    leave_behind("a/b/c/d/file");
    assert_int_equal(count_names("a/b"), 2);
    tap_newfile live = make("a/b/live");
    tap__clear_temporaries(opened(dir), "", 3);
    assert_int_equal(count_names(""), 1);
    assert_int_equal(count_names("a/b"), 2); /* c and the live one */
    assert_int_equal(count_names("a/b/c/d"), 1); /* deeper than asked */
    assert_int_equal(tap__file_commit(&live, NULL), TAP_OK);
    assert_int_equal(count_names("a/b"), 2);
}

static void make_plain(const char *name, bool old)
{
    char *path = tap__path_join(dir, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    if (old)
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    tap__free(path);
}

/* What is not ours stays, and so does what another machine may still be writing. */
static void others_are_left_alone(void **state)
{
    (void)state;
    make_plain(".tap-mine.tmp", true);
    make_plain(".tap-00000001-0123456789ABCDEF.tmp", true);
    make_plain(".tap-00000000-0123456789abcdef.tmp.x", true);
    make_plain(".tap-00000000-0123456789abcdef.tmp", false);
    make_plain(".tap-00000000-fedcba9876543210.tmp", true);
    make_plain(".tap-12345678-0123456789abcdef.tmp", false);
    make_plain(".tap-12345678-fedcba9876543210.tmp", true);
    char *link = tap__path_join(dir, ".tap-00000000-0000000000000000.tmp");
    assert_int_equal(symlink("elsewhere", link), 0);
    tap__free(link);
    assert_int_equal(count_names(""), 8);
    tap__clear_temporaries(opened(dir), "", 1);
    assert_int_equal(count_names(""), 6);
    char *path = tap__path_join(dir, ".tap-00000000-fedcba9876543210.tmp");
    assert_int_equal(access(path, F_OK), -1);
    tap__free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(put_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(left_behind_is_cleared, setup, teardown),
        cmocka_unit_test_setup_teardown(others_are_left_alone, setup, teardown),
    };
    return cmocka_run_group_tests_name("newfile", tests, NULL, NULL);
}
