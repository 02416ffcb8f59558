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

enum { NAME_LEN = 5 + 8 + 1 + 16 + 4, TRIES = 100, OLD_SECONDS = 3600, ENTRIES_MAX = 1 << 20 };

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
    return strlen(name) == NAME_LEN && !strncmp(name, ".tap-", 5) && is_hex(name + 5, 8) && name[13] == '-' &&
           is_hex(name + 14, 16) && !strcmp(name + 30, ".tmp");
}

/* Is dir on a file system of this machine, whose locks cost nothing and mean something to every process on it? */
static bool is_local(const char *dir)
{
    static const uint32_t LOCAL[] = {0xEF53 /* ext */, 0x58465342 /* xfs */, 0x9123683E /* btrfs */, 0x01021994 /* tmpfs */,
                                     0x794C7630 /* overlay */, 0xF2F52010 /* f2fs */, 0x2FC12FC1 /* zfs */,
                                     0xCA451A4E /* bcachefs */};
    struct statfs where;
    if (statfs(dir, &where) != 0)
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

/* The directory of path, made when it is not there: the number that names in it carry. */
static uint32_t lock_number(const char *path, char *dir, size_t dir_len)
{
    char kept = dir[dir_len];
    dir[dir_len] = 0;
    if (dir_len && access(dir, F_OK) != 0 && errno == ENOENT)
        tap__make_parents(path, NULL);
    uint32_t number = is_local(dir_len ? dir : ".") ? boot_number() : 0;
    dir[dir_len] = kept;
    return number;
}

/* Makes a file with a name of its own in file->temporary, which has room for it behind dir_len bytes. */
static bool make_temporary(tap_newfile *file, size_t dir_len)
{
    uint32_t number = lock_number(file->path, file->temporary, dir_len);
    for (int i = 0; i < TRIES; i++) {
        snprintf(file->temporary + dir_len, NAME_LEN + 1, ".tap-%08x-%016llx.tmp", number,
                 (unsigned long long)random_number());
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, TAP_FILE_MODE);
        if (file->fd < 0 && errno != EEXIST)
            return false;
        if (file->fd >= 0 && (!number || lock_new(file->fd)))
            return true;
        if (file->fd >= 0)
            close(file->fd);
        file->fd = -1;
    }
    return false;
}

tap_status tap__file_create(tap_newfile *file, const char *path, tap_error *err)
{
    *file = (tap_newfile){-1, NULL, NULL};
    const char *slash = strrchr(path, '/');
    size_t dir_len = slash ? (size_t)(slash - path) + 1 : 0;
    file->path = tap__strdup(path);
    file->temporary = tap__alloc(dir_len + NAME_LEN + 1);
    if (!file->path || !file->temporary) {
        tap__free(file->temporary);
        file->temporary = NULL;
        tap__file_abort(file);
        return tap_fail_nomem(err);
    }
    memcpy(file->temporary, path, dir_len);
    file->temporary[dir_len] = 0;
    if (make_temporary(file, dir_len))
        return TAP_OK;
    tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot create %s", path);
    tap__free(file->temporary); /* not made by us */
    file->temporary = NULL;
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

tap_status tap__file_commit(tap_newfile *file, tap_error *err)
{
    if (!close_told_all(file->fd) || rename(file->temporary, file->path) != 0) {
        tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot put %s in place", file->path);
        tap__file_abort(file);
        return status;
    }
    tap__free(file->temporary);
    file->temporary = NULL;
    tap__file_abort(file);
    return TAP_OK;
}

void tap__file_abort(tap_newfile *file)
{
    int saved = errno;
    if (file->temporary)
        unlink(file->temporary);
    if (file->fd >= 0)
        close(file->fd);
    tap__free(file->temporary);
    tap__free(file->path);
    *file = (tap_newfile){-1, NULL, NULL};
    errno = saved;
}

tap_status tap__file_put(const char *path, const void *bytes, size_t len, tap_error *err)
{
    tap_newfile file;
    TAP_TRY(tap__file_create(&file, path, err));
    if (tap__write_all(file.fd, bytes, len)) {
        tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot write %s", path);
        tap__file_abort(&file);
        return status;
    }
    return tap__file_commit(&file, err);
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

static void clear_dir(int fd, int depth, int *left)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (struct dirent *item; (item = readdir(dir)) && (*left)-- > 0;) {
        if (item->d_type != DT_DIR && item->d_type != DT_UNKNOWN && tap__is_temporary(item->d_name))
            clear_one(dirfd(dir), item->d_name);
        if ((item->d_type != DT_DIR && item->d_type != DT_UNKNOWN) || depth == 0 || !strcmp(item->d_name, ".") ||
            !strcmp(item->d_name, ".."))
            continue;
        int below = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            clear_dir(below, depth - 1, left);
        else if (errno == ENOTDIR && tap__is_temporary(item->d_name)) /* a file system that does not tell types */
            clear_one(dirfd(dir), item->d_name);
    }
    closedir(dir);
}

void tap__clear_temporaries(const char *dir, int depth)
{
    int left = ENTRIES_MAX, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        clear_dir(fd, depth, &left);
}
