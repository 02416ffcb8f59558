/* io.h - files: every read and write that may be short or interrupted. Where files are is dir.h, how a new one is put in
 * place newfile.h. */
#ifndef TAP_BASE_IO_H
#define TAP_BASE_IO_H

#include "tensortap/tensortap.h"

#include <sys/types.h>
#include <sys/uio.h>

/* All of it or -1 with errno; short writes and EINTR are handled here. A write that moves nothing is ENOSPC. */
int tap__write_all(int fd, const void *bytes, size_t len);
int tap__pwrite_all(int fd, const void *bytes, size_t len, off_t offset);
/* Gives a file all its room now; 0 or an error number. A signal does not end it: the memory file systems of older kernels
 * undo what was not finished when one comes, so that it is then asked for in pieces. */
int tap__allocate(int fd, uint64_t bytes);
int tap__writev_all(int fd, const struct iovec *iov, int count);
/* Bytes read, less than len only at the end of the file; -1 with errno. */
ssize_t tap__pread_all(int fd, void *bytes, size_t len, off_t offset);

/* The whole file, NUL-terminated, tap__free by the caller. Fails with E_LIMIT above max. Only for the system's own files:
 * those of recordings are below a directory (dir.h). */
tap_status tap__file_get(const char *path, size_t max, char **out, size_t *len, tap_error *err);
/* The same for an open one, from its start; path is for messages. */
tap_status tap__fd_get(int fd, const char *path, size_t max, char **out, size_t *len, tap_error *err);
/* "a/b", tap__free by the caller; NULL without memory. */
char *tap__path_join(const char *a, const char *b);

#endif
