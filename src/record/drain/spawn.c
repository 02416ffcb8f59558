/* spawn.c - starting the writer's process, and its first steps there: detach from everything of the producer's. */
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "private/writer_main.h"
#include "record/drain/writer.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FREED = 8 };

enum { SPAWN_MS = 20000, KILLED_MS = 1000, SPAWN_PAUSE_US = 1000, SEE_OFF_US = 200 };

extern char **environ;
extern volatile int tap__writer_stop;

/* ------------------------------------------------------------------------------------------- in the producer */

static bool is_command(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Beside the library or program that holds this function: as built, as installed, as packed in a wheel. */
static char *find_beside(void)
{
    static const char *const PLACES[] = {"tensortap", "_bin/tensortap", "../bin/tensortap", "../tensortap"};
    Dl_info info;
    char self[PATH_MAX];
    if (!dladdr((const void *)(uintptr_t)&tap_version, &info) || !info.dli_fname || !realpath(info.dli_fname, self))
        return NULL;
    char *slash = strrchr(self, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        char *path = tap__path_join(self, PLACES[i]);
        if (path && is_command(path))
            return path;
        tap__free(path);
    }
    return NULL;
}

static char *find_in_path(void)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        const char *colon = strchr(at, ':');
        char *dir = tap__strndup(at, colon ? (size_t)(colon - at) : strlen(at));
        char *path = dir && *dir ? tap__path_join(dir, "tensortap") : NULL;
        tap__free(dir);
        if (path && is_command(path))
            return path;
        tap__free(path);
        at = colon ? colon + 1 : NULL;
    }
    return NULL;
}

char *tap__writer_find(const char *given)
{
    if (!given || !*given)
        given = getenv("TENSORTAP_WRITER");
    if (given && *given)
        return tap__strdup(given);
    char *found = find_beside();
    return found ? found : find_in_path();
}

/* As waitpid, for ms at most; 0: it is there still. */
static pid_t wait_for(pid_t pid, int *status, uint64_t ms)
{
    for (uint64_t start = tap__monotonic_ns();; usleep(SPAWN_PAUSE_US)) {
        pid_t left = waitpid(pid, status, WNOHANG);
        if (left > 0 || (left < 0 && errno != EINTR))
            return left;
        if (tap__monotonic_ns() - start > ms * 1000000u)
            return 0;
    }
}

/* The writer forks and leaves when it is at work: nobody's wait() ever meets the real one. What TENSORTAP_WRITER names may be any
 * program, and the real one may be stopped or hang in the disk it is read from: one that does not leave is ended, and
 * one that cannot be ended is left. As waitpid; 0: it did not leave by itself. */
static pid_t wait_shortly(pid_t pid, int *status)
{
    pid_t left = wait_for(pid, status, SPAWN_MS);
    if (left)
        return left;
    kill(pid, SIGKILL);
    wait_for(pid, status, KILLED_MS);
    return 0;
}

/* posix_spawn neither copies page tables nor runs the application's fork handlers. The child's standard streams are
 * /dev/null from the first instruction on, so a pipe to `tee` ends when the producer does. */
tap_status tap__writer_spawn(const tap_ring *ring, tap_dir *root, const char *command, tap_error *err)
{
    int dir = tap__dir_fd(root);
    if (dir < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot use directory %s", root->path);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    char ring_number[16], dir_number[16], tally_number[16];
    snprintf(ring_number, sizeof ring_number, "%d", ring->fd);
    snprintf(dir_number, sizeof dir_number, "%d", dir);
    snprintf(tally_number, sizeof tally_number, "%d", ring->tally_fd);
    char *argv[] = {(char *)(uintptr_t)"tensortap", (char *)(uintptr_t)"__writer", ring_number, dir_number, tally_number,
                    NULL};
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    /* a program that has used all its descriptors up starts a writer too: a command needs some to load its libraries */
    for (int fd = 3; fd < 3 + FREED; fd++)
        if (fd != ring->fd && fd != ring->tally_fd && fd != dir)
            posix_spawn_file_actions_addclose(&files, fd);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, ring->fd, ring->fd); /* inherited although it is close-on-exec */
    posix_spawn_file_actions_adddup2(&files, dir, dir);
    if (ring->tally_fd >= 0)
        posix_spawn_file_actions_adddup2(&files, ring->tally_fd, ring->tally_fd);
    pid_t pid;
    int failed = posix_spawn(&pid, command, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (failed) {
        errno = failed;
        return tap_fail_errno(err, TAP_E_IO, "cannot start the writer %s", command);
    }
    int status = 0;
    pid_t left = wait_shortly(pid, &status);
    if (left < 0)
        return TAP_OK; /* the application reaps every child itself */
    if (left == 0)
        return tap_fail(err, TAP_E_TIMEOUT, "the writer %s did not start within %d s and was ended", command,
                        SPAWN_MS / 1000);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return tap_fail(err, TAP_E_IO, "the writer %s did not start (status 0x%x); run it with: tensortap version",
                        command, (unsigned)status);
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------- in the writer */

/* Closes first..last; false: the kernel cannot. */
static bool close_span(int first, unsigned last)
{
#ifdef SYS_close_range
    return (unsigned)first > last || syscall(SYS_close_range, first, last, 0) == 0;
#else
    return false;
#endif
}

static int number_order(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* All but the standard streams and these three; -1 for none. */
static void close_all_but(int keep[3])
{
    qsort(keep, 3, sizeof *keep, number_order);
    int next = 3;
    bool done = true;
    for (int i = 0; i < 3 && done; i++)
        if (keep[i] >= next) {
            done = close_span(next, (unsigned)keep[i] - 1);
            next = keep[i] + 1;
        }
    if (done && close_span(next, ~0u))
        return;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return;
    for (struct dirent *item; (item = readdir(dir));) {
        int fd = atoi(item->d_name);
        if (fd > 2 && fd != keep[0] && fd != keep[1] && fd != keep[2] && fd != dirfd(dir))
            close(fd);
    }
    closedir(dir);
}

static void on_term(int signal_number)
{
    (void)signal_number;
    tap__writer_stop = 1;
}

static void set_signals(void)
{
    static const int IGNORED[] = {SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGTSTP, SIGXFSZ};
    struct sigaction action = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof IGNORED / sizeof IGNORED[0]; i++)
        sigaction(IGNORED[i], &action, NULL);
    action.sa_handler = on_term;
    sigaction(SIGTERM, &action, NULL);
}

/* The trainer may have a limit on open files that suits itself. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The trainer may be pinned to cores that it wants for itself. */
static void reset_affinity(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
}

/* The writer itself; what becomes of it is its exit status. */
static int writer_process(tap_ring *ring, int dir_fd, int tally_fd)
{
    if (tally_fd >= 0 && !tap__ring_open_tally(ring, tally_fd)) /* holds it, as this process */
        return 1;
    if (!tap__ring_take_lock(ring, TAP_RING_WRITER))
        return 0; /* another writer is at work */
    tap_error err;
    tap_dir *root = NULL;
    tap_status status = tap__dir_take(dir_fd, ring->header->config.dir, &root, &err);
    if (status == TAP_OK)
        status = tap__writer_run(ring, root, TAP_WRITER_PROCESS, &err);
    if (status != TAP_OK) {
        snprintf(ring->header->error_text, sizeof ring->header->error_text, "%.*s",
                 (int)sizeof ring->header->error_text - 1, err.message);
        atomic_fetch_add(&ring->header->error_count, 1);
        tap__ring_publish_tail(ring, atomic_load(&ring->header->tail_seq), atomic_load(&ring->header->tail_pos));
    }
    tap__dir_close(root);
    return status == TAP_OK ? 0 : 1;
}

/* Whoever started us waits for us: we leave when the writer is at work, or with its status when it died before. */
static int see_off(pid_t writer, const tap_ring *ring, uint32_t starts)
{
    int status;
    uint64_t end = tap__monotonic_ns() + SPAWN_MS * 1000000ull;
    for (; atomic_load(&ring->header->starts) == starts && tap__monotonic_ns() < end; usleep(SEE_OFF_US))
        if (waitpid(writer, &status, WNOHANG) == writer)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return 0;
}

int tap__writer_main(int ring_fd, int dir_fd, int tally_fd)
{
    if (ring_fd < 3 || dir_fd < 3)
        return 1;
    close_all_but((int[]){ring_fd, dir_fd, tally_fd});
    setsid();
    set_signals();
    raise_limits();
    reset_affinity();
    tap_ring ring;
    if (chdir("/") != 0 || tap__ring_open(&ring, ring_fd, NULL) != TAP_OK)
        return 1;
    uint32_t starts = atomic_load(&ring.header->starts);
    pid_t pid = fork();
    if (pid < 0)
        return 1;
    if (pid > 0)
        _exit(see_off(pid, &ring, starts));
    return writer_process(&ring, dir_fd, tally_fd);
}
