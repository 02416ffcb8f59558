/* sidebytes.h - the bytes of one record, read in pieces by any thread. What cannot be read is an error, never a signal:
 * files are read, not mapped, and where a format had to map its file the mapping is read by a system call. */
#ifndef TAP_COMPARE_SIDEBYTES_H
#define TAP_COMPARE_SIDEBYTES_H

#include "base/dir.h"
#include "compare/held.h"
#include "tensor/walk.h"

typedef struct tap_sidebytes {
    tap_dtype dtype;        /* of the bytes, which a layout may have converted */
    int32_t ndim;
    int64_t shape[TAP_MAX_NDIM];
    int64_t count;          /* elements */
    size_t element;         /* bytes of one */
    char *path;             /* a file to read from offset on; NULL: from the mapping */
    tap_dir *dir;           /* it lies below this directory of the run, */
    const char *name;       /* under this part of path */
    uint64_t offset;
    tap_mapping mapping;
    bool in_order;          /* strided: pieces must be read one after another, by one thread */
    tap_walk walk;
} tap_sidebytes;

/* Were the bytes of this record kept at all? */
bool tap__sidebytes_kept(const tap_run *run, const tap_record *record);
/* By the thread the run belongs to. After a failure nothing has to be closed. */
tap_status tap__sidebytes_open(tap_sidebytes *bytes, tap_run *run, const tap_record *record, tap_error *err);
void tap__sidebytes_close(tap_sidebytes *bytes);

/* A file that stays open for the next piece: one for each thread and side. */
typedef struct tap_sidefile {
    int fd;      /* -1: none */
    char *path;
} tap_sidefile;
void tap__sidefile_close(tap_sidefile *file);
/* Elements [first, first + count) into dst. */
tap_status tap__sidebytes_read(tap_sidebytes *bytes, tap_sidefile *file, int64_t first, int64_t count, void *dst,
                               tap_error *err);

#endif
