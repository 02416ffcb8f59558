/* test_dir.c - a directory as a descriptor: links and what is no plain file are refused below it, with openat2 and
 * without; it stays right when it is renamed and when the program closes every descriptor. */
#include "base/dir.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static char *place;   /* everything is below it */
static tap_dir *dir;  /* place/dir */

static void at(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", place, name);
}

static int setup(void **state)
{
    (void)state;
    char path[600];
    place = scratch_make();
    at("dir", path, sizeof path);
    return tap__dir_open(path, true, &dir, NULL) == TAP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tap__dir_close(dir);
    scratch_drop(place);
    return 0;
}

static void put(const char *name, const char *text)
{
    char path[600];
    at(name, path, sizeof path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void link_to(const char *name, const char *target)
{
    char path[600];
    at(name, path, sizeof path);
    assert_int_equal(symlink(target, path), 0);
}

static bool holds(const char *name, const char *text)
{
    char path[600], *found = NULL;
    at(name, path, sizeof path);
    bool same = tap__file_get(path, 100, &found, NULL, NULL) == TAP_OK && strcmp(found, text) == 0;
    tap__free(found);
    return same;
}

static bool refuses(int result, int why)
{
    if (result >= 0)
        close(result);
    return result == -1 && errno == why;
}

/* Calls every function at names that are links, or lie behind one. */
static bool links_are_refused(void)
{
    static const char *const FILES[] = {"to_file", "to_dir/file", "a/to_dir/file", "to_nothing"};
    struct stat st;
    char *text;
    bool ok = true;
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        ok = ok && refuses(tap__dir_file(dir, FILES[i], O_RDONLY), ELOOP);
        ok = ok && refuses(tap__dir_file(dir, FILES[i], O_RDWR | O_CREAT | O_TRUNC), ELOOP);
        ok = ok && tap__dir_file(dir, FILES[i], O_WRONLY | O_CREAT | O_EXCL) == -1; /* EEXIST or ELOOP */
        ok = ok && tap__dir_get(dir, FILES[i], 100, &text, NULL, NULL) == TAP_E_IO;
    }
    for (size_t i = 1; i < 3; i++) {
        ok = ok && refuses(tap__dir_unlink(dir, FILES[i]), ELOOP) && refuses(tap__dir_stat(dir, FILES[i], &st), ELOOP);
        ok = ok && tap__file_put(dir, FILES[i], "mine", 4, NULL) == TAP_E_IO;
        ok = ok && tap__file_put_new(dir, FILES[i], "mine", 4, NULL) == TAP_E_IO;
    }
    tap_dir *below;
    ok = ok && !tap__dir_list(dir, "to_dir") && errno == ELOOP;
    ok = ok && tap__dir_below(dir, "to_dir/x", true, &below, NULL) == TAP_E_IO;
    /* of a link itself: it can be seen, replaced and removed */
    ok = ok && tap__dir_stat(dir, "to_file", &st) == 0 && S_ISLNK(st.st_mode);
    ok = ok && tap__file_put_new(dir, "to_file", "mine", 4, NULL) == TAP_E_EXISTS;
    ok = ok && tap__file_put(dir, "to_file", "mine", 4, NULL) == TAP_OK && holds("dir/to_file", "mine");
    return ok && tap__dir_unlink(dir, "to_nothing") == 0;
}

static void plant(void)
{
    char path[600];
    at("victims", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    put("victims/file", "victim");
    at("dir/a", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    link_to("dir/to_file", "../victims/file");
    link_to("dir/to_dir", "../victims");
    link_to("dir/a/to_dir", "../../victims");
    link_to("dir/to_nothing", "../victims/nothing");
}

static void links(void **state)
{
    (void)state;
    plant();
    assert_true(links_are_refused());
    assert_true(holds("victims/file", "victim"));
    assert_false(holds("victims/nothing", ""));
}

/* As in containers that know no openat2 (ENOSYS), or whose filter of system calls does not (EPERM). */
static void forbid_openat2(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

static void without_openat2(void **state)
{
    (void)state;
    static const int ERRORS[] = {ENOSYS, EPERM};
    for (int i = 0; i < 2; i++) {
        if (i) {
            teardown(state);
            setup(state);
        }
        plant();
        pid_t pid = fork();
        if (pid == 0) {
            forbid_openat2(ERRORS[i]);
            bool plain = tap__file_put(dir, "x/y/z", "z", 1, NULL) == TAP_OK && holds("dir/x/y/z", "z");
            _exit(plain && links_are_refused() && holds("victims/file", "victim") ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
            print_message("this machine takes no filter of system calls\n");
            skip();
        }
        assert_int_equal(status, 0);
    }
}

/* A pipe nobody writes to, a socket, a device and a directory: said at once. */
static void only_plain_files(void **state)
{
    (void)state;
    char path[600];
    at("dir/pipe", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s/dir/socket", place);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof name), 0);
    at("dir/below", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    alarm(20);
    assert_true(refuses(tap__dir_file(dir, "pipe", O_RDONLY), ENXIO));
    assert_true(refuses(tap__dir_file(dir, "pipe", O_RDWR), ENXIO));
    assert_true(refuses(tap__dir_file(dir, "pipe", O_WRONLY), ENXIO));
    assert_true(refuses(tap__dir_file(dir, "socket", O_RDONLY), ENXIO));
    assert_true(refuses(tap__dir_file(dir, "below", O_RDONLY), EISDIR));
    tap_dir *devices;
    assert_int_equal(tap__dir_open("/dev", false, &devices, NULL), TAP_OK);
    assert_true(refuses(tap__dir_file(devices, "zero", O_RDONLY), ENXIO));
    alarm(0);
    tap__dir_close(devices);
    close(listener);
}

static void names_that_lead_away(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"", ".", "..", "../victims", "a/../../x", "/etc/passwd", "a//b", "a/", "a/."};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        assert_true(refuses(tap__dir_file(dir, NAMES[i], O_RDONLY), EINVAL));
        assert_int_not_equal(tap__file_put(dir, NAMES[i], "x", 1, NULL), TAP_OK);
    }
    assert_int_equal(tap__file_put(dir, "...", "x", 1, NULL), TAP_OK);
    assert_int_equal(tap__file_put(dir, "..x/.y", "x", 1, NULL), TAP_OK);
}

/* The chosen directory itself may be a link. */
static void the_chosen_one_may_be_a_link(void **state)
{
    (void)state;
    char path[600];
    tap_dir *linked;
    link_to("chosen", "dir");
    at("chosen", path, sizeof path);
    assert_int_equal(tap__dir_open(path, true, &linked, NULL), TAP_OK);
    assert_string_equal(linked->path, dir->path);
    assert_int_equal(tap__file_put(linked, "x", "x", 1, NULL), TAP_OK);
    assert_true(holds("dir/x", "x"));
    tap__dir_close(linked);
}

static void renamed_and_removed(void **state)
{
    (void)state;
    char from[600], to[600];
    at("dir", from, sizeof from);
    at("elsewhere", to, sizeof to);
    assert_int_equal(tap__dir_look(dir), TAP_DIR_HERE);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(tap__dir_look(dir), TAP_DIR_MOVED);
    assert_int_equal(tap__file_put(dir, "x", "x", 1, NULL), TAP_OK);
    assert_true(holds("elsewhere/x", "x"));
    assert_int_equal(mkdir(from, 0700), 0); /* another one of that name */
    assert_int_equal(tap__dir_look(dir), TAP_DIR_MOVED);
    scratch_clear(to);
    assert_int_equal(tap__dir_look(dir), TAP_DIR_REMOVED);
    assert_int_equal(tap__file_put(dir, "x", "x", 1, NULL), TAP_E_NOTFOUND);
}

/* What some programs do to become daemons: every descriptor is closed, and its number given to something else. */
static void every_descriptor_closed(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        int number = tap__dir_fd(dir);
        close(number);
        bool ok = dup2(open("/", O_RDONLY | O_DIRECTORY), number) == number;
        ok = ok && tap__file_put(dir, "tap-test-not-here", "x", 1, NULL) == TAP_OK;
        _exit(ok && holds("dir/tap-test-not-here", "x") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access("/tap-test-not-here", F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links, setup, teardown),
        cmocka_unit_test_setup_teardown(without_openat2, setup, teardown),
        cmocka_unit_test_setup_teardown(only_plain_files, setup, teardown),
        cmocka_unit_test_setup_teardown(names_that_lead_away, setup, teardown),
        cmocka_unit_test_setup_teardown(the_chosen_one_may_be_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(renamed_and_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(every_descriptor_closed, setup, teardown),
    };
    return cmocka_run_group_tests_name("dir", tests, NULL, NULL);
}
