/* locks.h - the files on which this process has record locks (fcntl). POSIX takes all of them away when the process
 * closes any descriptor of such a file, and never shows a process its own. So who looks at a ring or a page of counts
 * asks here first: one of ours is read through the descriptor that holds it and never opened again. */
#ifndef TAP_RECORD_LOCKS_H
#define TAP_RECORD_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct stat;

typedef enum tap_locks_found { TAP_LOCKS_NONE, TAP_LOCKS_READ, TAP_LOCKS_UNREADABLE } tap_locks_found;

/* From here on fd holds locks, which a forked child does not inherit. Twice is as once; beyond 256 files nothing. */
void tap__locks_add(int fd);
/* Before fd is closed. */
void tap__locks_remove(int fd);
/* Is it in the list, and still the file it was? The program may have closed it. */
bool tap__locks_has(int fd);
/* Does this process hold locks on that file? */
bool tap__locks_hold(const struct stat *st);
/* The same, and reads from it. */
tap_locks_found tap__locks_read(const struct stat *st, void *out, size_t bytes, off_t offset);

#endif
