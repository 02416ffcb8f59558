/* locks.c - the list of files that this process holds record locks on. */
#include "record/ring/locks.h"

#include "base/io.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MAX = 256 };

typedef struct locked_file {
    int fd;
    dev_t device;
    ino_t inode;
} locked_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a file is read: it is not closed meanwhile */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static locked_file files[FILES_MAX];
static size_t count;

static void forget_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    count = 0;
}

static void start(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void begin(void)
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

static void end(void)
{
    pthread_mutex_unlock(&lock);
}

static bool is_there(const locked_file *file)
{
    struct stat st;
    return fstat(file->fd, &st) == 0 && st.st_dev == file->device && st.st_ino == file->inode;
}

static locked_file *find_fd(int fd)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].fd == fd)
            return &files[i];
    return NULL;
}

static const locked_file *find_file(const struct stat *st)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].device == st->st_dev && files[i].inode == st->st_ino && is_there(&files[i]))
            return &files[i];
    return NULL;
}

void tap__locks_add(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return;
    begin();
    locked_file *file = find_fd(fd);
    if (!file && count < FILES_MAX)
        file = &files[count++];
    if (file)
        *file = (locked_file){fd, st.st_dev, st.st_ino};
    end();
}

void tap__locks_remove(int fd)
{
    begin();
    locked_file *file = find_fd(fd);
    if (file)
        *file = files[--count];
    end();
}

bool tap__locks_has(int fd)
{
    begin();
    const locked_file *file = find_fd(fd);
    bool has = file && is_there(file);
    end();
    return has;
}

bool tap__locks_hold(const struct stat *st)
{
    begin();
    bool found = find_file(st) != NULL;
    end();
    return found;
}

tap_locks_found tap__locks_read(const struct stat *st, void *out, size_t bytes, off_t offset)
{
    tap_locks_found found = TAP_LOCKS_NONE;
    begin();
    const locked_file *file = find_file(st);
    if (file)
        found = tap__pread_all(file->fd, out, bytes, offset) == (ssize_t)bytes ? TAP_LOCKS_READ : TAP_LOCKS_UNREADABLE;
    end();
    return found;
}
