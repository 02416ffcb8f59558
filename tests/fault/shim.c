/* shim.c - LD_PRELOAD: an operating system with bad manners. By environment:
 *   SHIM_SHORT=N   writes and reads move at most N bytes
 *   SHIM_EINTR=N   every N-th such call is interrupted before it moves anything
 *   SHIM_FULL=N    after N bytes written in this process, ENOSPC where a file would grow
 *   SHIM_FAIL=N    after N bytes written in this process, EIO
 *   SHIM_SYNC=1    the disk does not keep what it took: fdatasync says EIO
 *   SHIM_FREE=N    the disk says that it has N bytes left
 *   SHIM_HANG=1    reads at an offset never come back
 *   SHIM_CLOCK=1   the wall clock goes back one second with every look
 * A test that is linked with it sets them as it goes, and counts from where it likes: shim.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#pragma GCC visibility push(default) /* the rest of the project hides its symbols; these must be found first */
#include "fault/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long setting(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

atomic_long shim_written;
static atomic_long calls;

static int interrupted(void)
{
    long every = setting("SHIM_EINTR");
    if (every && atomic_fetch_add(&calls, 1) % every == 0) {
        errno = EINTR;
        return 1;
    }
    return 0;
}

static size_t limited(size_t len)
{
    size_t most = (size_t)setting("SHIM_SHORT");
    return most && len > most ? most : len;
}

/* A full disk takes what lies in blocks that a file has already; one that fails takes nothing. offset -1: where it
 * stands. */
static int refused(int fd, size_t len, off_t offset)
{
    long full = setting("SHIM_FULL"), fail = setting("SHIM_FAIL");
    struct stat st;
    if ((!full && !fail) || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    long now = atomic_fetch_add(&shim_written, (long)len) + (long)len;
    if (offset < 0)
        offset = lseek(fd, 0, SEEK_CUR);
    if (full && now > full && offset + (off_t)len > (st.st_size + 4095) / 4096 * 4096) {
        errno = ENOSPC;
        return 1;
    }
    if (fail && now > fail) {
        errno = EIO;
        return 1;
    }
    return 0;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (fd > 2 && (interrupted() || refused(fd, limited(len), -1)))
        return -1;
    return real(fd, bytes, fd > 2 ? limited(len) : len);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    if (interrupted() || refused(fd, limited(len), offset))
        return -1;
    return real(fd, bytes, limited(len), offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    return pwrite(fd, bytes, len, (off_t)offset);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    (void)count;
    return write(fd, iov[0].iov_base, iov[0].iov_len ? iov[0].iov_len : 0);
}

ssize_t pread(int fd, void *bytes, size_t len, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    while (setting("SHIM_HANG"))
        pause();
    if (interrupted())
        return -1;
    return real(fd, bytes, limited(len), offset);
}

ssize_t pread64(int fd, void *bytes, size_t len, off64_t offset)
{
    return pread(fd, bytes, len, (off_t)offset);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!setting("SHIM_SYNC"))
        return real(fd);
    errno = EIO;
    return -1;
}

int fstatvfs(int fd, struct statvfs *out)
{
    static int (*real)(int, struct statvfs *);
    if (!real)
        real = (int (*)(int, struct statvfs *))dlsym(RTLD_NEXT, "fstatvfs");
    int result = real(fd, out);
    if (getenv("SHIM_FREE"))
        out->f_bavail = (fsblkcnt_t)(setting("SHIM_FREE") / (long)out->f_frsize);
    return result;
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);
    static atomic_long back;
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, out);
    if (id == CLOCK_REALTIME && setting("SHIM_CLOCK"))
        out->tv_sec -= atomic_fetch_add(&back, 1);
    return result;
}
