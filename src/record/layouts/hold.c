/* hold.c - the flock on a directory that is being written to. */
#include "record/layouts/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

/* A lock belongs to what one open() gave: only a descriptor of its own will do. */
static int reopen(tap_dir *dir)
{
    int fd = tap__dir_fd(dir);
    return fd < 0 ? -1 : tap__fd_away(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int tap__run_hold(tap_dir *dir)
{
    int fd = reopen(dir);
    if (fd >= 0 && flock(fd, LOCK_SH) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool tap__run_is_held(tap_dir *dir)
{
    int fd = reopen(dir);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}
