/* run.h - an opened recording: its directory and its sources (source.h), in order of rank, attempt and child. */
#ifndef TAP_RECORD_RUN_H
#define TAP_RECORD_RUN_H

#include "record/read/source.h"

struct tap_run {
    tap_dir *dir;            /* what tap_record.file is below */
    const char *layout;
    const tap_source_type *type;
    int32_t only_rank;       /* -1: all */
    tap_source **sources;
    size_t count;
    int open_files;          /* sources with an index that is a file */
    tap_index **retired;     /* damaged, but still in use by cursors */
    size_t retired_count;
};

/* Puts source->index away, for good when the run is closed: cursors may still read it. */
tap_status tap__run_retire(tap_run *run, tap_source *source, tap_error *err);

/* A recording that is not ours: a layout's in run->dir, or its single file `only`. Makes its one source; TAP_E_NOTFOUND:
 * nothing knows it. */
tap_status tap__files_open(tap_run *run, const char *only, tap_error *err);

#endif
