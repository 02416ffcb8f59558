/* newfile.h - the one way a whole file is put in place: written under a name nobody else has, then renamed. And what
 * killed processes left half done is cleared away, without ever touching what somebody is still writing. */
#ifndef TAP_BASE_NEWFILE_H
#define TAP_BASE_NEWFILE_H

#include "tensortap/tensortap.h"

/* A file under a temporary name in the same directory; tap__file_commit gives it its name, tap__file_abort removes it.
 * No reader ever sees half a file, and no two processes ever share a temporary name, whatever their pids. */
typedef struct tap_newfile {
    int fd;
    char *path;      /* final */
    char *temporary;
} tap_newfile;
tap_status tap__file_create(tap_newfile *file, const char *path, tap_error *err);
tap_status tap__file_commit(tap_newfile *file, tap_error *err); /* closes; on failure removes the temporary */
void tap__file_abort(tap_newfile *file);
/* create + write + commit. */
tap_status tap__file_put(const char *path, const void *bytes, size_t len, tap_error *err);

/* Is this the name of such a temporary file? */
bool tap__is_temporary(const char *name);
/* Removes the temporary files in dir, and in directories at most depth below it, whose writers are gone. On a local
 * file system that is known at once; elsewhere, or after a restart of the machine, a file counts as left behind when
 * nothing was written to it for an hour. Links are not followed. */
enum { TAP_CLEAR_DEPTH = 32 }; /* deeper than a recording's directories go */
void tap__clear_temporaries(const char *dir, int depth);

#endif
