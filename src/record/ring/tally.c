/* tally.c - the page of numbers that outlives a program and its writer. Whoever reads it afterwards reads a copy and
 * believes no name: it comes from a description that anybody may have written. */
#include "record/ring/tally.h"

#include "base/io.h"
#include "record/ring/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "tensortap-"
enum { DIGITS = 16 };

static bool is_name(const char *name)
{
    size_t len = sizeof PREFIX - 1;
    return strncmp(name, PREFIX, len) == 0 && strspn(name + len, "0123456789abcdef") == DIGITS && !name[len + DIGITS];
}

static bool path_of(const char *name, char path[16 + TAP_TALLY_NAME])
{
    if (!is_name(name)) {
        errno = EINVAL;
        return false;
    }
    snprintf(path, 16 + TAP_TALLY_NAME, "/dev/shm/%s", name);
    return true;
}

static bool tally_stat(const char *name, struct stat *st)
{
    char path[16 + TAP_TALLY_NAME];
    return path_of(name, path) && lstat(path, st) == 0;
}

static int tally_open(const char *name, int flags)
{
    char path[16 + TAP_TALLY_NAME];
    if (!path_of(name, path))
        return -1;
    return open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

void tap__tally_name(char *name)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        struct timespec now; /* the machine has just started: whoever is second gets no page */
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t mixed[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid()};
        number = tap_hash_bytes(mixed, sizeof mixed);
    }
    snprintf(name, TAP_TALLY_NAME, PREFIX "%016llx", (unsigned long long)number);
}

static tap_tally *map(int fd, int flags)
{
    void *page = mmap(NULL, TAP_TALLY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

tap_tally *tap__tally_create(const char *name, int *fd)
{
    *fd = tally_open(name, O_RDWR | O_CREAT | O_EXCL);
    if (*fd < 0)
        return NULL;
    if (*fd < 3) { /* the program closed a standard stream: it would print into the page */
        int moved = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
        close(*fd);
        *fd = moved;
    }
    /* all of it now, so that no later touch can fail */
    tap_tally *tally = *fd >= 0 && tap__allocate(*fd, TAP_TALLY_BYTES) == 0 ? map(*fd, 0) : NULL;
    if (tally) {
        tally->magic = TAP_TALLY_MAGIC;
        snprintf(tally->name, sizeof tally->name, "%s", name);
        return tally;
    }
    tap__tally_remove(name);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return NULL;
}

tap_tally *tap__tally_map(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size != TAP_TALLY_BYTES)
        return NULL;
    tap_tally *tally = map(fd, 0);
    if (tally && tally->magic != TAP_TALLY_MAGIC) {
        tap__tally_unmap(tally);
        return NULL;
    }
    return tally;
}

tap_tally *tap__tally_private(void)
{
    return map(-1, MAP_ANONYMOUS);
}

void tap__tally_unmap(tap_tally *tally)
{
    if (tally)
        munmap(tally, TAP_TALLY_BYTES);
}

void tap__tally_account(tap_tally *tally, uint64_t seq, uint64_t accounted)
{
    uint32_t other = !atomic_load_explicit(&tally->mark_valid, memory_order_relaxed);
    tally->mark[other] = (tap_tally_mark){seq, accounted};
    atomic_store_explicit(&tally->mark_valid, other, memory_order_release);
}

tap_tally_mark tap__tally_marked(const tap_tally *tally)
{
    return tally->mark[atomic_load_explicit(&tally->mark_valid, memory_order_acquire) & 1];
}

uint64_t tap__tally_missing(const tap_tally *tally, uint64_t more)
{
    uint64_t accounted = tap__tally_marked(tally).accounted + more + atomic_load(&tally->named) +
                         atomic_load(&tally->ahead);
    uint64_t asked = atomic_load(&tally->saved) + atomic_load(&tally->dropped);
    return asked > accounted ? asked - accounted : 0;
}

void tap__tally_file(tap_tally *tally, uint64_t seq, uint64_t saved_ns, const char *file)
{
    atomic_store_explicit(&tally->file_seq, 0, memory_order_release);
    if (strlen(file) >= sizeof tally->file)
        return;
    tally->file_ns = saved_ns;
    snprintf(tally->file, sizeof tally->file, "%s", file);
    atomic_store_explicit(&tally->file_seq, seq + 1, memory_order_release);
}

/* ------------------------------------------------------------------------------------------------------- afterwards */

/* One of that name may lie there from before: it is older. File systems take the time from a clock that ticks. */
uint64_t tap__tally_finished(const tap_tally *tally, tap_dir *dir)
{
    enum { TICK_NS = 20000000 };
    uint64_t seq = atomic_load(&tally->file_seq);
    char file[sizeof tally->file];
    memcpy(file, tally->file, sizeof file);
    file[sizeof file - 1] = 0;
    if (!seq || seq - 1 < tap__tally_marked(tally).seq)
        return 0;
    struct stat st;
    return tap__dir_stat(dir, file, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec + TICK_NS >= tally->file_ns;
}

static bool is_page(const tap_tally *tally, const char *name)
{
    return tally->magic == TAP_TALLY_MAGIC && strncmp(tally->name, name, sizeof tally->name) == 0;
}

bool tap__tally_read(const char *name, tap_tally *out)
{
    struct stat st;
    tap_locks_found held = tally_stat(name, &st) ? tap__locks_read(&st, out, sizeof *out, 0) : TAP_LOCKS_NONE;
    if (held != TAP_LOCKS_NONE)
        return held == TAP_LOCKS_READ && is_page(out, name);
    int fd = tally_open(name, O_RDONLY);
    if (fd < 0)
        return false;
    /* anybody may make files there: only one of our own, or of whom root looks at */
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_uid == geteuid() || geteuid() == 0) &&
                tap__pread_all(fd, out, sizeof *out, 0) == (ssize_t)sizeof *out && is_page(out, name);
    close(fd);
    return ours;
}

static int lock(int fd, int command, struct flock *which)
{
    *which = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    which->l_start = command == F_GETLK ? 0 : (off_t)getpid();
    which->l_len = command == F_GETLK ? 0 : 1;
    return fcntl(fd, command, which);
}

void tap__tally_hold(int fd)
{
    struct flock which;
    tap__locks_add(fd);
    lock(fd, F_SETLK, &which);
}

bool tap__tally_in_use(const char *name)
{
    struct flock which;
    struct stat st;
    if (tally_stat(name, &st) && tap__locks_hold(&st))
        return true;
    int fd = tally_open(name, O_RDWR);
    bool used = fd >= 0 && lock(fd, F_GETLK, &which) == 0 && which.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return used;
}

void tap__tally_remove(const char *name)
{
    char path[16 + TAP_TALLY_NAME];
    if (path_of(name, path))
        unlink(path);
}
