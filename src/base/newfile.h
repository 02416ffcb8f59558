/* newfile.h - the one way a whole file is put in place: written under a name nobody else has, then renamed. And what
 * killed processes left half done is cleared away, without ever touching what somebody is still writing. */
#ifndef TAP_BASE_NEWFILE_H
#define TAP_BASE_NEWFILE_H

#include "base/dir.h"

/* A file under a temporary name in the directory it is for; tap__file_commit gives it its name, tap__file_abort removes
 * it. No reader ever sees half a file, and no two processes ever share a temporary name, whatever their pids. */
enum { TAP_TEMPORARY_LEN = 5 + 8 + 1 + 16 + 4 };
typedef struct tap_newfile {
    int fd;
    int parent;        /* the directory both names are in */
    char *path;        /* final, for messages */
    const char *name;  /* its last part */
    char temporary[TAP_TEMPORARY_LEN + 1]; /* "": there is none */
} tap_newfile;
/* For name below dir, whose directories are made. */
tap_status tap__file_create(tap_newfile *file, tap_dir *dir, const char *name, tap_error *err);
tap_status tap__file_commit(tap_newfile *file, tap_error *err); /* closes; on failure removes the temporary */
void tap__file_abort(tap_newfile *file);
/* The path of the temporary, for libraries that open files by path only; tap__free by the caller, NULL without memory. */
char *tap__file_path(const tap_newfile *file);
/* create + write + commit. */
tap_status tap__file_put(tap_dir *dir, const char *name, const void *bytes, size_t len, tap_error *err);
/* The same where no file of that name may be: TAP_E_EXISTS when there is one. */
tap_status tap__file_put_new(tap_dir *dir, const char *name, const void *bytes, size_t len, tap_error *err);

/* Is this the name of such a temporary file? */
bool tap__is_temporary(const char *name);
/* Removes the temporary files in a directory below dir ("": dir itself), and in directories at most depth below that, whose writers are gone. On a local
 * file system that is known at once; elsewhere, or after a restart of the machine, a file counts as left behind when
 * nothing was written to it for an hour. Links are not followed. */
enum { TAP_CLEAR_DEPTH = 32 }; /* deeper than a recording's directories go */
void tap__clear_temporaries(tap_dir *dir, const char *name, int depth);

#endif
