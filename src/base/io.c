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

static tap_status make_dir(const char *path, tap_error *err)
{
    if (mkdir(path, TAP_DIR_MODE) == 0)
        return TAP_OK;
    int failed = errno;
    struct stat st;
    if (failed == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return TAP_OK;
    if (failed == EEXIST)
        return tap_fail(err, TAP_E_EXISTS, "cannot create directory %s: a file has that name", path);
    errno = failed;
    return tap_fail_errno(err, TAP_E_IO, "cannot create directory %s", path);
}

static tap_status make_dirs_len(const char *path, size_t len, tap_error *err)
{
    char *copy = tap__strndup(path, len);
    if (!copy)
        return tap_fail_nomem(err);
    tap_status status = TAP_OK;
    struct stat st;
    if (len && (stat(copy, &st) != 0 || !S_ISDIR(st.st_mode))) {
        for (char *at = copy + 1; *at && status == TAP_OK; at++) {
            if (*at != '/')
                continue;
            *at = 0;
            status = make_dir(copy, err);
            *at = '/';
        }
        if (status == TAP_OK)
            status = make_dir(copy, err);
    }
    tap__free(copy);
    return status;
}

tap_status tap__make_dirs(const char *path, tap_error *err)
{
    return make_dirs_len(path, strlen(path), err);
}

tap_status tap__make_parents(const char *path, tap_error *err)
{
    const char *slash = strrchr(path, '/');
    return slash && slash != path ? make_dirs_len(path, (size_t)(slash - path), err) : TAP_OK;
}

tap_status tap__file_get(const char *path, size_t max, char **out, size_t *len, tap_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    struct stat st;
    tap_status status = TAP_OK;
    char *bytes = NULL;
    ssize_t got = 0;
    if (fstat(fd, &st) != 0)
        status = tap_fail_errno(err, TAP_E_IO, "cannot look at %s", path);
    else if (!S_ISREG(st.st_mode))
        status = tap_fail(err, TAP_E_FORMAT, "%s is not a plain file", path);
    else if ((uint64_t)st.st_size > max)
        status = tap_fail(err, TAP_E_LIMIT, "%s has %lld bytes, more than the %zu allowed", path,
                          (long long)st.st_size, max);
    else if (!(bytes = tap__alloc((size_t)st.st_size + 1)))
        status = tap_fail_nomem(err);
    else if ((got = tap__pread_all(fd, bytes, (size_t)st.st_size, 0)) < 0)
        status = tap_fail_errno(err, TAP_E_IO, "cannot read %s", path);
    close(fd);
    if (status != TAP_OK) {
        tap__free(bytes);
        return status;
    }
    bytes[got] = 0;
    *out = bytes;
    if (len)
        *len = (size_t)got;
    return TAP_OK;
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
