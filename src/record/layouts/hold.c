/* hold.c - the flock on a directory that is being written to. */
#include "record/layouts/hold.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* A forked child writes to <run>/rank<R>/child<pid>. */
char *tap__run_of(const char *dir, bool child)
{
    char *run = tap__strdup(dir);
    for (int up = 0; run && child && up < 2; up++) {
        char *slash = strrchr(run, '/');
        if (slash)
            *slash = 0;
    }
    return run;
}

int tap__run_hold(const char *dir)
{
    if (tap__make_dirs(dir, NULL) != TAP_OK)
        return -1; /* the first file that cannot be written says so */
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool tap__run_is_held(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}
