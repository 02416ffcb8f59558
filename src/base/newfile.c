/* newfile.c - temporary names, and clearing away those that were left behind.
 *
 * A name is ".tap-<8 hex digits>-<16 hex digits>.tmp". The second number is random. The first says which start of which
 * machine holds a lock on the file: whoever gets that lock there knows that the writer is gone. It is zero where locks
 * may be slow or missing; age must do there. */
#include "base/newfile.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 100, OLD_SECONDS = 3600, ENTRIES_MAX = 1 << 20 };

/* ---------------------------------------------------------------------------------------------------------- names */

/* The same in all containers of a machine, and another after it was started again. 0: not known. */
static uint32_t boot_number(void)
{
    static _Atomic uint32_t known;
    uint32_t number = atomic_load(&known);
    char *text = NULL;
    size_t len;
    if (number || tap__file_get("/proc/sys/kernel/random/boot_id", 256, &text, &len, NULL) != TAP_OK)
        return number;
    number = (uint32_t)tap_hash_bytes(text, len) | 1;
    tap__free(text);
    atomic_store(&known, number);
    return number;
}

static uint64_t random_number(void)
{
    static _Atomic uint64_t count;
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == (ssize_t)sizeof number)
        return number;
    struct timespec now; /* the machine has just started: O_EXCL tells when this is not enough */
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mixed[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(), atomic_fetch_add(&count, 1)};
    return tap_hash_bytes(mixed, sizeof mixed);
}

static bool is_hex(const char *text, size_t len)
{
    return strspn(text, "0123456789abcdef") >= len;
}

bool tap__is_temporary(const char *name)
{
    return strlen(name) == TAP_TEMPORARY_LEN && !strncmp(name, ".tap-", 5) && is_hex(name + 5, 8) && name[13] == '-' &&
           is_hex(name + 14, 16) && !strcmp(name + 30, ".tmp");
}

/* Is the directory on a file system of this machine, whose locks cost nothing and mean something to every process on it? */
static bool is_local(int dir)
{
    static const uint32_t LOCAL[] = {0xEF53 /* ext */, 0x58465342 /* xfs */, 0x9123683E /* btrfs */, 0x01021994 /* tmpfs */,
                                     0x794C7630 /* overlay */, 0xF2F52010 /* f2fs */, 0x2FC12FC1 /* zfs */,
                                     0xCA451A4E /* bcachefs */};
    struct statfs where;
    if (fstatfs(dir, &where) != 0)
        return false;
    for (size_t i = 0; i < sizeof LOCAL / sizeof LOCAL[0]; i++)
        if ((uint32_t)where.f_type == LOCAL[i])
            return true;
    return false;
}

/* --------------------------------------------------------------------------------------------------------- writing */

/* Locks the file just made. false: somebody who clears away was faster, another name is needed. */
static bool lock_new(int fd)
{
    struct stat st;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? fstat(fd, &st) == 0 && st.st_nlink > 0 : errno != EWOULDBLOCK;
}

/* Makes a file with a name of its own in file->parent. */
static bool make_temporary(tap_newfile *file)
{
    uint32_t number = is_local(file->parent) ? boot_number() : 0;
    for (int i = 0; i < TRIES; i++) {
        snprintf(file->temporary, sizeof file->temporary, ".tap-%08x-%016llx.tmp", number,
                 (unsigned long long)random_number());
        file->fd = tap__fd_away(openat(file->parent, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                       TAP_FILE_MODE));
        if (file->fd < 0 && errno != EEXIST)
            break;
        if (file->fd >= 0 && (!number || lock_new(file->fd)))
            return true;
        if (file->fd >= 0)
            close(file->fd);
        file->fd = -1;
    }
    file->temporary[0] = 0; /* not made by us */
    return false;
}

tap_status tap__file_create(tap_newfile *file, tap_dir *dir, const char *name, tap_error *err)
{
    const char *last;
    *file = (tap_newfile){.fd = -1, .parent = -1, .path = tap__path_join(dir->path, name)};
    if (!file->path)
        return tap_fail_nomem(err);
    file->name = strrchr(file->path, '/') + 1;
    file->parent = tap__dir_parent(dir, name, true, &last);
    if (file->parent >= 0 && make_temporary(file))
        return TAP_OK;
    tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot create %s", file->path);
    tap__file_abort(file);
    return status;
}

/* Some file systems say only at close that there was no room. The last descriptor stays open, and with it the lock,
 * until the file has its name. */
static bool close_told_all(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy < 0 || close(copy) == 0;
}

static tap_status fail_in_place(tap_newfile *file, tap_error *err)
{
    tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot put %s in place", file->path);
    tap__file_abort(file);
    return status;
}

tap_status tap__file_commit(tap_newfile *file, tap_error *err)
{
    if (!close_told_all(file->fd) || renameat(file->parent, file->temporary, file->parent, file->name) != 0)
        return fail_in_place(file, err);
    file->temporary[0] = 0;
    tap__file_abort(file);
    return TAP_OK;
}

char *tap__file_path(const tap_newfile *file)
{
    char *path = tap__fd_path(file->fd), *dir;
    if (path || !(dir = tap__strndup(file->path, (size_t)(file->name - file->path))))
        return path;
    path = tap__path_join(dir, file->temporary); /* no /proc: where it was made */
    tap__free(dir);
    return path;
}

void tap__file_abort(tap_newfile *file)
{
    int saved = errno;
    if (file->temporary[0])
        unlinkat(file->parent, file->temporary, 0);
    if (file->fd >= 0)
        close(file->fd);
    if (file->parent >= 0)
        close(file->parent);
    tap__free(file->path);
    *file = (tap_newfile){.fd = -1, .parent = -1};
    errno = saved;
}

static tap_status create_filled(tap_newfile *file, tap_dir *dir, const char *name, const void *bytes, size_t len,
                                tap_error *err)
{
    TAP_TRY(tap__file_create(file, dir, name, err));
    if (tap__write_all(file->fd, bytes, len) == 0)
        return TAP_OK;
    tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot write %s", file->path);
    tap__file_abort(file);
    return status;
}

tap_status tap__file_put(tap_dir *dir, const char *name, const void *bytes, size_t len, tap_error *err)
{
    tap_newfile file;
    TAP_TRY(create_filled(&file, dir, name, bytes, len, err));
    return tap__file_commit(&file, err);
}

/* Gives the finished temporary its name unless that is taken: EEXIST. Not every file system has every way. */
static int put_where_none_is(const tap_newfile *file, const void *bytes, size_t len)
{
    if (renameat2(file->parent, file->temporary, file->parent, file->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    if (linkat(file->parent, file->temporary, file->parent, file->name, 0) == 0)
        return 0;
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    int fd = openat(file->parent, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, TAP_FILE_MODE);
    if (fd < 0)
        return -1;
    int result = tap__write_all(fd, bytes, len);
    return close(fd) ? -1 : result;
}

tap_status tap__file_put_new(tap_dir *dir, const char *name, const void *bytes, size_t len, tap_error *err)
{
    tap_newfile file;
    TAP_TRY(create_filled(&file, dir, name, bytes, len, err));
    if (put_where_none_is(&file, bytes, len) != 0)
        return fail_in_place(&file, err);
    tap__file_abort(&file); /* after a rename there is no temporary any more */
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------------- clearing away */

static bool is_old(const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec - st->st_mtim.tv_sec > OLD_SECONDS;
}

/* The lock is held until the name is gone: a writer that has just made the file takes another one. */
static void clear_one(int dir, const char *name)
{
    char boot[16];
    snprintf(boot, sizeof boot, "%08x", boot_number());
    bool locked_here = memcmp(name + 5, boot, 8) == 0 && strcmp(boot, "00000000") != 0;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (locked_here ? flock(fd, LOCK_EX | LOCK_NB) == 0 : is_old(&st)))
        unlinkat(dir, name, 0);
    close(fd);
}

static void clear_dir(DIR *dir, int depth, int *left)
{
    if (!dir)
        return;
    for (struct dirent *item; (item = readdir(dir)) && (*left)-- > 0;) {
        if (item->d_type != DT_DIR && item->d_type != DT_UNKNOWN && tap__is_temporary(item->d_name))
            clear_one(dirfd(dir), item->d_name);
        if ((item->d_type != DT_DIR && item->d_type != DT_UNKNOWN) || depth == 0 || !strcmp(item->d_name, ".") ||
            !strcmp(item->d_name, ".."))
            continue;
        int below = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *list = below >= 0 ? fdopendir(below) : NULL;
        if (list)
            clear_dir(list, depth - 1, left);
        else if (below >= 0)
            close(below);
        else if (errno == ENOTDIR && tap__is_temporary(item->d_name)) /* a file system that does not tell types */
            clear_one(dirfd(dir), item->d_name);
    }
    closedir(dir);
}

void tap__clear_temporaries(tap_dir *dir, const char *name, int depth)
{
    int left = ENTRIES_MAX;
    clear_dir(tap__dir_list(dir, name), depth, &left);
}
