/* disk_log.c - stands before the C library's calls that change files and writes down what they did: disk_log.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#pragma GCC visibility push(default) /* the rest of the project hides its symbols; these must be found first */
#include "fault/disk_log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const uint64_t ROOM = 64u << 20;
static disk_log *log_now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    dev_t dev;
    ino_t ino;
    int file;
} seen[4096]; /* the file that has this inode now */
static int seen_count;
long disk_clock_ahead;

disk_log *disk_log_new(void)
{
    void *room = mmap(NULL, sizeof(disk_log) + ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

void disk_log_into(disk_log *log, const char *dir)
{
    pthread_mutex_lock(&lock);
    if (log) {
        log->count = log->files = 0;
        log->used = 0;
        log->overflow = false;
        snprintf(log->dir, sizeof log->dir, "%s", dir);
    }
    seen_count = 0;
    log_now = log;
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------------------------------------------------- events */

/* The path below the log's directory, or false: it is elsewhere. */
static bool below(const char *path, char *out)
{
    size_t len = strlen(log_now->dir);
    if (strncmp(path, log_now->dir, len) != 0 || (path[len] != '/' && path[len] != 0) || strlen(path + len) >= 72)
        return false;
    strcpy(out, path[len] ? path + len + 1 : "");
    return true;
}

static bool path_of(int fd, char *out)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0)
        return false;
    path[len] = 0;
    return below(path, out);
}

/* What name means beside the directory dirfd. */
static bool path_at(int dirfd, const char *name, char *out)
{
    char folder[72];
    if (name[0] == '/')
        return below(name, out);
    if (dirfd == AT_FDCWD || !path_of(dirfd, folder) || strlen(folder) + strlen(name) + 2 > 72)
        return false;
    snprintf(out, 72, "%.35s%s%.35s", folder, *folder ? "/" : "", strncmp(name, "./", 2) == 0 ? name + 2 : name);
    return true;
}

static disk_event *add(disk_kind kind)
{
    if (log_now->count == DISK_EVENTS) {
        log_now->overflow = true;
        return &log_now->events[DISK_EVENTS - 1];
    }
    disk_event *event = &log_now->events[log_now->count++];
    memset(event, 0, sizeof *event);
    event->kind = kind;
    return event;
}

/* fresh: the inode is a new file, whoever had its number before. */
static int file_of(int fd, bool fresh)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    for (int i = seen_count - 1; i >= 0 && !fresh; i--)
        if (seen[i].dev == st.st_dev && seen[i].ino == st.st_ino)
            return seen[i].file;
    if (seen_count == 4096)
        return -1;
    seen[seen_count].dev = st.st_dev;
    seen[seen_count].ino = st.st_ino;
    return seen[seen_count++].file = log_now->files++;
}

static void wrote(int fd, const void *bytes, size_t len, off_t offset)
{
    char name[72];
    int kept = errno, file;
    pthread_mutex_lock(&lock);
    if (log_now && len && path_of(fd, name) && (file = file_of(fd, false)) >= 0) {
        if (log_now->used + len > ROOM) {
            log_now->overflow = true;
        } else {
            disk_event *event = add(DISK_WRITE);
            event->file = file;
            event->offset = (uint64_t)offset;
            event->length = len;
            event->bytes = log_now->used;
            memcpy(log_now->bytes + log_now->used, bytes, len);
            log_now->used += len;
            memcpy(event->name, name, sizeof name);
        }
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void sized(int fd, off_t size)
{
    char name[72];
    int kept = errno, file;
    pthread_mutex_lock(&lock);
    if (log_now && path_of(fd, name) && (file = file_of(fd, false)) >= 0) {
        disk_event *event = add(DISK_SIZE);
        event->file = file;
        event->offset = (uint64_t)size;
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void synced(int fd)
{
    char name[72];
    struct stat st;
    int kept = errno;
    pthread_mutex_lock(&lock);
    if (log_now && path_of(fd, name) && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            snprintf(add(DISK_SYNC_NAMES)->name, 72, "%s", name);
        else
            add(DISK_SYNC)->file = file_of(fd, false);
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void opened(int fd, int dirfd, const char *path, int flags, bool existed)
{
    char name[72];
    int kept = errno;
    pthread_mutex_lock(&lock);
    if (log_now && fd >= 0 && (flags & O_TMPFILE) == O_TMPFILE && path_of(fd, name)) {
        file_of(fd, true);
    } else if (log_now && fd >= 0 && (flags & O_CREAT) && path_at(dirfd, path, name) && !existed) {
        int file = file_of(fd, true);
        disk_event *event = add(DISK_NAME);
        event->file = file;
        snprintf(event->name, sizeof event->name, "%s", name);
    } else if (log_now && fd >= 0 && (flags & O_TRUNC) && path_at(dirfd, path, name)) {
        add(DISK_SIZE)->file = file_of(fd, false);
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void named(int from_dir, const char *from, int to_dir, const char *to, bool moved)
{
    char old[72] = "", now[72];
    struct stat st;
    int kept = errno, fd;
    pthread_mutex_lock(&lock);
    if (log_now && path_at(to_dir, to, now)) {
        bool known = path_at(from_dir, from, old) && moved;
        fd = REAL(openat)(to_dir, to, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            int file = file_of(fd, false);
            disk_event *event = add(DISK_NAME);
            event->file = file;
            snprintf(event->name, sizeof event->name, "%s", now);
            snprintf(event->other, sizeof event->other, "%s", known ? old : "");
        }
        if (fd >= 0)
            close(fd);
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void gone(int dirfd, const char *path)
{
    char name[72];
    int kept = errno;
    pthread_mutex_lock(&lock);
    if (log_now && path_at(dirfd, path, name))
        snprintf(add(DISK_GONE)->name, 72, "%s", name);
    pthread_mutex_unlock(&lock);
    errno = kept;
}

void disk_log_mark(uint64_t what)
{
    pthread_mutex_lock(&lock);
    if (log_now)
        add(DISK_MARK)->offset = what;
    pthread_mutex_unlock(&lock);
}

/* ----------------------------------------------------------------------------------------------------------- calls */

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
    struct stat st;
    bool existed = log_now && (flags & O_CREAT) && fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    int fd = REAL(openat)(dirfd, path, flags, mode);
    if (log_now && (flags & (O_CREAT | O_TRUNC | O_TMPFILE)))
        opened(fd, dirfd, path, flags, existed);
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPENING(call, dirfd)                                                                                          \
    va_list args;                                                                                                     \
    va_start(args, flags);                                                                                            \
    mode_t mode = mode_of(flags, args);                                                                               \
    va_end(args);                                                                                                     \
    return open_at(dirfd, path, flags, mode)

int open(const char *path, int flags, ...) { OPENING(open, AT_FDCWD); }
int open64(const char *path, int flags, ...) { OPENING(open64, AT_FDCWD); }
int openat(int dirfd, const char *path, int flags, ...) { OPENING(openat, dirfd); }
int openat64(int dirfd, const char *path, int flags, ...) { OPENING(openat64, dirfd); }

/* A kernel without openat2: what opens with it falls back to openat, which is seen. */
long syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number != SYS_openat2)
        return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = ENOSYS;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    off_t at = log_now ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t done = REAL(write)(fd, bytes, len);
    if (done > 0 && log_now)
        wrote(fd, bytes, (size_t)done, at);
    return done;
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    return count > 0 ? write(fd, iov[0].iov_base, iov[0].iov_len) : 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    ssize_t done = REAL(pwrite)(fd, bytes, len, offset);
    if (done > 0 && log_now)
        wrote(fd, bytes, (size_t)done, offset);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    return pwrite(fd, bytes, len, (off_t)offset);
}

int ftruncate(int fd, off_t size)
{
    int result = REAL(ftruncate)(fd, size);
    if (result == 0 && log_now)
        sized(fd, size);
    return result;
}

int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, (off_t)size);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    struct stat st;
    int result = REAL(fallocate)(fd, mode, offset, len);
    if (result == 0 && log_now && mode == 0 && fstat(fd, &st) == 0)
        sized(fd, st.st_size);
    return result;
}

int fsync(int fd)
{
    int result = REAL(fsync)(fd);
    if (result == 0 && log_now)
        synced(fd);
    return result;
}

int fdatasync(int fd)
{
    int result = REAL(fdatasync)(fd);
    if (result == 0 && log_now)
        synced(fd);
    return result;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int result = REAL(renameat2)(from_dir, from, to_dir, to, flags);
    if (result == 0 && log_now)
        named(from_dir, from, to_dir, to, true);
    return result;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int result = REAL(renameat)(from_dir, from, to_dir, to);
    if (result == 0 && log_now)
        named(from_dir, from, to_dir, to, true);
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    int result = REAL(linkat)(from_dir, from, to_dir, to, flags);
    if (result == 0 && log_now)
        named(from_dir, from, to_dir, to, false);
    return result;
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    int result = REAL(unlinkat)(dirfd, path, flags);
    if (result == 0 && log_now && !(flags & AT_REMOVEDIR))
        gone(dirfd, path);
    return result;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    int result = REAL(clock_gettime)(id, out);
    if (id == CLOCK_REALTIME)
        out->tv_sec += disk_clock_ahead;
    return result;
}
