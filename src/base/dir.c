/* dir.c - directories as descriptors: openat2 where the kernel has it and lets us, else one component after the other. */
#include "base/dir.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* O_NOFOLLOW is for openat; the rules of openat2 say it for every part. */
enum { PASS = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC }; /* to go through a directory */

/* ---------------------------------------------------------------------------------------------------- descriptors */

int tap__fd_away(int fd)
{
    if (fd < 0 || fd > 2)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3), saved = errno;
    close(fd);
    errno = saved;
    return moved;
}

char *tap__fd_path(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path);
    return len > 0 && len < (ssize_t)sizeof path && path[0] == '/' ? tap__strndup(path, (size_t)len) : NULL;
}

/* Closes fd and gives -1 with the errno there was, or this one. */
static int give_up(int fd, int failed)
{
    int saved = failed ? failed : errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return -1;
}

/* A directory that may only be passed through is good enough to write files in. */
static int open_chosen(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return tap__fd_away(fd);
}

static bool is_same(const struct stat *st, const tap_dir *dir)
{
    return st->st_dev == dir->device && st->st_ino == dir->inode;
}

/* Some programs close every descriptor when they become daemons, and the number may be another file's by now. */
int tap__dir_fd(tap_dir *dir)
{
    struct stat st;
    int fd = atomic_load(&dir->fd);
    if (fstat(fd, &st) == 0 && is_same(&st, dir))
        return fd;
    int again = open_chosen(dir->path);
    if (again < 0 || fstat(again, &st) != 0 || !is_same(&st, dir))
        return give_up(again, EBADF);
    if (atomic_compare_exchange_strong(&dir->fd, &fd, again)) /* what the number means now is not ours to close */
        return again;
    close(again);
    return fd;
}

/* ----------------------------------------------------------------------------------------------------- going down */

/* Every part is a name: nothing leads up or nowhere. */
static bool is_below(const char *name)
{
    for (const char *part = name;; part++) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.'))))
            return false;
        part += len;
        if (!*part)
            return true;
    }
}

/* Where the last part of name begins. */
static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* What a component that was refused as a directory is: a link says so. */
static int refused(int at, const char *part)
{
    struct stat st;
    int failed = errno;
    if (failed == ENOTDIR && fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        failed = ELOOP;
    errno = failed;
    return -1;
}

/* The directory name[0..len) below the descriptor from, part by part; made on the way when asked for. */
static int walk(int from, const char *name, size_t len, bool make)
{
    char part[NAME_MAX + 1];
    int at = from;
    for (const char *end = name + len; name < end; name++) {
        size_t part_len = strcspn(name, "/");
        if (part_len > NAME_MAX)
            return give_up(at == from ? -1 : at, ENAMETOOLONG);
        memcpy(part, name, part_len);
        part[part_len] = 0;
        name += part_len;
        int made = make ? mkdirat(at, part, TAP_DIR_MODE) : 0;
        int next = made != 0 && errno != EEXIST ? -1 : openat(at, part, PASS);
        if (next < 0)
            refused(at, part);
        int failed = errno;
        if (at != from)
            close(at);
        if (next < 0)
            return give_up(-1, failed);
        at = next;
    }
    return at;
}

/* As openat2 with these rules does it, in more calls. */
static int open_by_parts(int from, const char *name, int flags)
{
    const char *last = last_part(name);
    int parent = last == name ? from : walk(from, name, (size_t)(last - name) - 1, false);
    if (parent < 0)
        return -1;
    int fd = openat(parent, last, flags | O_NOFOLLOW, TAP_FILE_MODE);
    if (fd < 0)
        refused(parent, last);
    int failed = errno;
    if (parent != from)
        close(parent);
    errno = failed;
    return fd;
}

static int open_below(int from, const char *name, int flags)
{
#ifdef SYS_openat2
    static _Atomic bool missing;
    struct open_how how = {.flags = (unsigned)(flags & ~O_NOFOLLOW), .mode = flags & O_CREAT ? TAP_FILE_MODE : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    if (!atomic_load_explicit(&missing, memory_order_relaxed)) {
        int fd = (int)syscall(SYS_openat2, from, name, &how, sizeof how);
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) /* EPERM: a filter of system calls, or the file itself */
            return fd;
        if (errno == ENOSYS)
            atomic_store(&missing, true);
    }
#endif
    return open_by_parts(from, name, flags);
}

/* The descriptor to start from for name, or -1. */
static int start(tap_dir *dir, const char *name)
{
    if (!is_below(name)) {
        errno = EINVAL;
        return -1;
    }
    return tap__dir_fd(dir);
}

int tap__dir_parent(tap_dir *dir, const char *name, bool make, const char **last)
{
    int from = start(dir, name);
    *last = last_part(name);
    if (from < 0)
        return -1;
    if (*last == name)
        return fcntl(from, F_DUPFD_CLOEXEC, 3);
    char way[PATH_MAX];
    size_t len = (size_t)(*last - name) - 1;
    if (len >= sizeof way)
        return give_up(-1, ENAMETOOLONG);
    memcpy(way, name, len);
    way[len] = 0;
    int fd = open_below(from, way, PASS);
    if (fd < 0 && errno == ENOENT && make)
        fd = walk(from, name, len, true);
    return tap__fd_away(fd);
}

/* ---------------------------------------------------------------------------------------------------------- files */

int tap__dir_file(tap_dir *dir, const char *name, int flags)
{
    int from = start(dir, name);
    if (from < 0)
        return -1;
    int fd = tap__fd_away(open_below(from, name, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat st;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0)
        return give_up(fd, 0);
    return S_ISREG(st.st_mode) ? fd : give_up(fd, S_ISDIR(st.st_mode) ? EISDIR : ENXIO);
}

int tap__dir_stat(tap_dir *dir, const char *name, struct stat *st)
{
    const char *last;
    int parent = tap__dir_parent(dir, name, false, &last);
    if (parent < 0)
        return -1;
    int result = fstatat(parent, last, st, AT_SYMLINK_NOFOLLOW), failed = errno;
    close(parent);
    errno = failed;
    return result;
}

bool tap__dir_has(tap_dir *dir, const char *name)
{
    struct stat st;
    return tap__dir_stat(dir, name, &st) == 0;
}

static int drop(tap_dir *dir, const char *name, int flags)
{
    const char *last;
    int parent = tap__dir_parent(dir, name, false, &last);
    if (parent < 0)
        return -1;
    int result = unlinkat(parent, last, flags), failed = errno;
    close(parent);
    errno = failed;
    return result;
}

int tap__dir_unlink(tap_dir *dir, const char *name)
{
    return drop(dir, name, 0);
}

int tap__dir_rmdir(tap_dir *dir, const char *name)
{
    return drop(dir, name, AT_REMOVEDIR);
}

DIR *tap__dir_list(tap_dir *dir, const char *name)
{
    int from = *name ? start(dir, name) : tap__dir_fd(dir);
    if (from < 0)
        return NULL;
    /* opened anew in any case: what is read from a descriptor moves on in all its copies */
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = tap__fd_away(*name ? open_below(from, name, flags) : openat(from, ".", flags));
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list)
        give_up(fd, 0);
    return list;
}

tap_status tap__dir_get(tap_dir *dir, const char *name, size_t max, char **out, size_t *len, tap_error *err)
{
    *out = NULL;
    char *shown = tap__path_join(dir->path, name);
    if (!shown)
        return tap_fail_nomem(err);
    int fd = tap__dir_file(dir, name, O_RDONLY);
    tap_status status = fd < 0 ? tap_fail_errno(err, TAP_E_IO, "cannot open %s", shown)
                               : tap__fd_get(fd, shown, max, out, len, err);
    if (fd >= 0)
        close(fd);
    tap__free(shown);
    return status;
}

/* ----------------------------------------------------------------------------------------------------- directories */

/* path becomes *out's, also on failure. */
static tap_status dir_new(int fd, char *path, tap_dir **out, tap_error *err)
{
    struct stat st;
    tap_dir *dir = tap__calloc(1, sizeof *dir);
    tap_status status = TAP_OK;
    if (!dir || !path)
        status = tap_fail_nomem(err);
    else if (fstat(fd, &st) != 0 || !S_ISDIR(st.st_mode))
        status = tap_fail(err, TAP_E_IO, "%s is not an open directory", path);
    if (status != TAP_OK) {
        close(fd);
        tap__free(path);
        tap__free(dir);
        return status;
    }
    dir->path = path;
    dir->device = st.st_dev;
    dir->inode = st.st_ino;
    atomic_init(&dir->fd, fd);
    *out = dir;
    return TAP_OK;
}

static tap_status make_one(const char *path, tap_error *err)
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

/* Creates path and its parents; path is as it was when this is done. */
static tap_status make_all(char *path, tap_error *err)
{
    struct stat st;
    tap_status status = TAP_OK;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return TAP_OK;
    for (char *at = path + 1; *at && status == TAP_OK; at++)
        if (*at == '/' && at[-1] != '/') {
            *at = 0;
            status = make_one(path, err);
            *at = '/';
        }
    return status == TAP_OK ? make_one(path, err) : status;
}

tap_status tap__dir_open(const char *path, bool make, tap_dir **out, tap_error *err)
{
    *out = NULL;
    char *copy = tap__strdup(path);
    if (!copy)
        return tap_fail_nomem(err);
    tap_status status = make && *copy ? make_all(copy, err) : TAP_OK;
    tap__free(copy);
    TAP_TRY(status);
    int fd = open_chosen(path);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open directory %s", path);
    char *real = realpath(path, NULL); /* a later chdir must not change what is meant */
    copy = tap__strdup(real ? real : path);
    free(real);
    return dir_new(fd, copy, out, err);
}

tap_status tap__dir_of_file(const char *path, bool make, tap_dir **out, const char **name, tap_error *err)
{
    *out = NULL;
    *name = last_part(path);
    size_t len = (size_t)(*name - path);
    char *parent = len ? tap__strndup(path, len) : tap__strdup(".");
    if (!parent)
        return tap_fail_nomem(err);
    tap_status status = tap__dir_open(parent, make, out, err);
    tap__free(parent);
    return status;
}

tap_status tap__dir_below(tap_dir *dir, const char *name, bool make, tap_dir **out, tap_error *err)
{
    *out = NULL;
    char *shown = tap__path_join(dir->path, name);
    int from = start(dir, name), fd = -1;
    if (!shown)
        return tap_fail_nomem(err);
    int way = from < 0 ? -1 : walk(from, name, strlen(name), make);
    if (way >= 0) {
        fd = tap__fd_away(openat(way, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        give_up(way, 0);
    }
    if (fd >= 0)
        return dir_new(fd, shown, out, err);
    tap_status status = tap_fail_errno(err, TAP_E_IO, make ? "cannot create directory %s" : "cannot open directory %s", shown);
    tap__free(shown);
    return status;
}

tap_status tap__dir_take(int fd, const char *path, tap_dir **out, tap_error *err)
{
    *out = NULL;
    return dir_new(fd, tap__strdup(path), out, err);
}

void tap__dir_close(tap_dir *dir)
{
    struct stat st;
    if (!dir)
        return;
    int fd = atomic_load(&dir->fd);
    if (fstat(fd, &st) == 0 && is_same(&st, dir))
        close(fd);
    tap__free(dir->path);
    tap__free(dir);
}

tap_dir_state tap__dir_look(tap_dir *dir)
{
    struct stat st;
    int fd = tap__dir_fd(dir);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_nlink == 0)
        return TAP_DIR_REMOVED;
    if (stat(dir->path, &st) == 0)
        return is_same(&st, dir) ? TAP_DIR_HERE : TAP_DIR_MOVED;
    return errno == ENOENT || errno == ENOTDIR ? TAP_DIR_MOVED : TAP_DIR_HERE;
}
