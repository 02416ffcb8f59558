/* source_files.h - the files of another tool's layout, or one file, as a source, for source_files.c and verify_files.c. */
#ifndef TAP_RECORD_SOURCE_FILES_H
#define TAP_RECORD_SOURCE_FILES_H

#include "record/layouts/layout.h"
#include "record/read/verify.h"

typedef struct tap_files {
    tap_source source;
    const tap_layout *layout; /* NULL: of no layout we know */
    tap_dir *dir;             /* the run's */
    char *only;               /* the one file in it; NULL: the directory */
} tap_files;

/* Lists every record there is now, by what the files say. */
tap_status tap__files_each(const tap_files *files, tap_record_fn add, void *user, tap_error *err);
tap_status tap__verify_files(tap_verifier *v);

#endif
