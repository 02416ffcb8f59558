/* io.h - files: every read and write that may be short or interrupted. How a new file is put in place is newfile.h. */
#ifndef TAP_BASE_IO_H
#define TAP_BASE_IO_H

#include "tensortap/tensortap.h"

#include <sys/types.h>
#include <sys/uio.h>

enum { TAP_DIR_MODE = 0750, TAP_FILE_MODE = 0640 };

/* All of it or -1 with errno; short writes and EINTR are handled here. A write that moves nothing is ENOSPC. */
int tap__write_all(int fd, const void *bytes, size_t len);
int tap__pwrite_all(int fd, const void *bytes, size_t len, off_t offset);
int tap__writev_all(int fd, const struct iovec *iov, int count);
/* Bytes read, less than len only at the end of the file; -1 with errno. */
ssize_t tap__pread_all(int fd, void *bytes, size_t len, off_t offset);

/* Creates path and its parents, mode 0750. */
tap_status tap__make_dirs(const char *path, tap_error *err);
/* The same for the directory part of a file's path. */
tap_status tap__make_parents(const char *path, tap_error *err);

/* The whole file, NUL-terminated, tap__free by the caller. Fails with E_LIMIT above max. */
tap_status tap__file_get(const char *path, size_t max, char **out, size_t *len, tap_error *err);
/* "a/b", tap__free by the caller; NULL without memory. */
char *tap__path_join(const char *a, const char *b);

#endif
