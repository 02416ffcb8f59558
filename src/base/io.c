/* io.c - whole reads, whole writes, whole files. */
#include "base/io.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux moves at most this much in one call. */
#define IO_MAX ((size_t)0x7ffff000)

static size_t io_clamp(size_t len)
{
    return len < IO_MAX ? len : IO_MAX;
}

/* What a call that moved `moved` bytes means: 1 go on, 0 again, -1 failed. */
static int io_progress(ssize_t moved)
{
    if (moved > 0)
        return 1;
    if (moved == 0) {
        errno = ENOSPC;
        return -1;
    }
    return errno == EINTR ? 0 : -1;
}

int tap__write_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len) {
        ssize_t moved = write(fd, at, io_clamp(len));
        int progress = io_progress(moved);
        if (progress < 0)
            return -1;
        if (progress) {
            at += moved;
            len -= (size_t)moved;
        }
    }
    return 0;
}

int tap__pwrite_all(int fd, const void *bytes, size_t len, off_t offset)
{
    const char *at = bytes;
    while (len) {
        ssize_t moved = pwrite(fd, at, io_clamp(len), offset);
        int progress = io_progress(moved);
        if (progress < 0)
            return -1;
        if (progress) {
            at += moved;
            len -= (size_t)moved;
            offset += moved;
        }
    }
    return 0;
}

int tap__allocate(int fd, uint64_t bytes)
{
    enum { PIECE = 4 << 20 };
    /* at once, so that far too much is refused before anything is taken */
    int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed != EINTR)
        return failed;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t take = bytes - at < PIECE ? bytes - at : PIECE;
        failed = posix_fallocate(fd, (off_t)at, (off_t)take);
        if (failed && failed != EINTR)
            return failed;
        if (!failed)
            at += take;
    }
    return 0;
}

int tap__writev_all(int fd, const struct iovec *iov, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (total == 0)
        return 0;
    ssize_t moved = -1;
    if (total <= IO_MAX && count <= IOV_MAX)
        do
            moved = writev(fd, iov, count);
        while (moved < 0 && errno == EINTR);
    else
        moved = 0;
    if (moved < 0)
        return -1;
    size_t done = (size_t)moved;
    for (int i = 0; i < count; i++) {
        size_t len = iov[i].iov_len;
        if (done >= len) {
            done -= len;
            continue;
        }
        if (tap__write_all(fd, (const char *)iov[i].iov_base + done, len - done))
            return -1;
        done = 0;
    }
    return 0;
}

ssize_t tap__pread_all(int fd, void *bytes, size_t len, off_t offset)
{
    size_t done = 0;
    while (done < len) {
        ssize_t moved = pread(fd, (char *)bytes + done, io_clamp(len - done), offset + (off_t)done);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return -1;
        if (moved == 0)
            break;
        done += (size_t)moved;
    }
    return (ssize_t)done;
}

/* Files of the system say that they have no bytes: so many are asked for. */
enum { UNKNOWN_BYTES = 4096 };

tap_status tap__fd_get(int fd, const char *path, size_t max, char **out, size_t *len, tap_error *err)
{
    *out = NULL;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at %s", path);
    if (!S_ISREG(st.st_mode))
        return tap_fail(err, TAP_E_FORMAT, "%s is not a plain file", path);
    if ((uint64_t)st.st_size > max)
        return tap_fail(err, TAP_E_LIMIT, "%s has %lld bytes, more than the %zu allowed", path, (long long)st.st_size,
                        max);
    size_t want = st.st_size ? (size_t)st.st_size : max < UNKNOWN_BYTES ? max : UNKNOWN_BYTES;
    char *bytes = tap__alloc(want + 1);
    if (!bytes)
        return tap_fail_nomem(err);
    ssize_t got = tap__pread_all(fd, bytes, want, 0);
    if (got < 0) {
        tap__free(bytes);
        return tap_fail_errno(err, TAP_E_IO, "cannot read %s", path);
    }
    bytes[got] = 0;
    *out = bytes;
    if (len)
        *len = (size_t)got;
    return TAP_OK;
}

tap_status tap__file_get(const char *path, size_t max, char **out, size_t *len, tap_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    tap_status status = tap__fd_get(fd, path, max, out, len, err);
    close(fd);
    return status;
}

char *tap__path_join(const char *a, const char *b)
{
    size_t len = strlen(a), more = strlen(b);
    bool slash = len && a[len - 1] != '/';
    char *path = tap__alloc(len + more + 2);
    if (!path)
        return NULL;
    memcpy(path, a, len);
    if (slash)
        path[len++] = '/';
    memcpy(path + len, b, more + 1);
    return path;
}
