/* dir.h - an opened directory, and the one way to the files below it. Somebody chose the directory, so its own path may
 * go through symbolic links; below it none is followed, whoever put it there, and only plain files are opened. The
 * descriptor is taken once: it stays right when the directory is renamed, in forked children and without descriptors
 * to spare. */
#ifndef TAP_BASE_DIR_H
#define TAP_BASE_DIR_H

#include "tensortap/tensortap.h"

#include <dirent.h>
#include <stdatomic.h>

struct stat;

enum { TAP_DIR_MODE = 0750, TAP_FILE_MODE = 0640 };

typedef struct tap_dir {
    char *path;          /* absolute, as it was when it was opened: for messages, and to see that it moved */
    _Atomic int fd;      /* use tap__dir_fd */
    uint64_t device, inode;
} tap_dir;

/* All fill *out, which tap__dir_close frees. make: path and its parents are made where they are not there, mode 0750. */
tap_status tap__dir_open(const char *path, bool make, tap_dir **out, tap_error *err);
/* The directory of the file at path, and the file's name in it (a part of path). */
tap_status tap__dir_of_file(const char *path, bool make, tap_dir **out, const char **name, tap_error *err);
/* A directory below dir. */
tap_status tap__dir_below(tap_dir *dir, const char *name, bool make, tap_dir **out, tap_error *err);
/* What another process opened and handed over as fd, which becomes *out's; path: where it was. */
tap_status tap__dir_take(int fd, const char *path, tap_dir **out, tap_error *err);
void tap__dir_close(tap_dir *dir); /* NULL is fine */

/* In the following, name is a path below dir without "." and ".."; "" is dir itself where a directory is asked for.
 * They return -1 (NULL) with errno: ELOOP for a symbolic link, ENXIO for what is no plain file, EISDIR. */

/* flags as of open(2); a new file has mode 0640. Never waits for a pipe or a device. */
int tap__dir_file(tap_dir *dir, const char *name, int flags);
int tap__dir_stat(tap_dir *dir, const char *name, struct stat *st); /* of a link, the link */
bool tap__dir_has(tap_dir *dir, const char *name);                  /* anything, a link too */
int tap__dir_unlink(tap_dir *dir, const char *name);
int tap__dir_rmdir(tap_dir *dir, const char *name);
DIR *tap__dir_list(tap_dir *dir, const char *name);
/* A descriptor of the directory that name lies in, for calls with a *at; *last: name's last part. */
int tap__dir_parent(tap_dir *dir, const char *name, bool make, const char **last);
/* A file that is to be there in whole: NUL-terminated, tap__free by the caller. Fails with E_LIMIT above max. */
tap_status tap__dir_get(tap_dir *dir, const char *name, size_t max, char **out, size_t *len, tap_error *err);

/* The descriptor, which stays dir's; -1 with errno when the program closed it and the directory is not at its path. */
int tap__dir_fd(tap_dir *dir);
/* Where is it now? Removed: no file can be made in it any more. */
typedef enum tap_dir_state { TAP_DIR_HERE, TAP_DIR_MOVED, TAP_DIR_REMOVED } tap_dir_state;
tap_dir_state tap__dir_look(tap_dir *dir);

/* The same descriptor or a copy that is none of the standard streams, should the program have closed one: it would
 * print into the file. */
int tap__fd_away(int fd);
/* The path an open file has now, tap__free by the caller; NULL where /proc does not tell. */
char *tap__fd_path(int fd);

#endif
