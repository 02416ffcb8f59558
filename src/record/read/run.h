/* run.h - an opened recording: its attempts, and where the rows of each come from. Every attempt is read through an
 * index: its own file when that is finished and whole, else one built in memory from the segments. Recordings of other
 * layouts and single files are one attempt whose index in memory was filled by the layout's reader. */
#ifndef TAP_RECORD_RUN_H
#define TAP_RECORD_RUN_H

#include "record/native/index.h"
#include "record/native/scan.h"

typedef struct tap_source {
    tap_attempt_files files;
    tap_attempt_info info;
    tap_status info_status;  /* TAP_OK, or why there is no description */
    bool live;
    char *relative;          /* "rank0/attempt0" */
    tap_index *index;        /* NULL: not opened yet */
    bool in_memory;
    int users;               /* cursors reading index */
    tap_scan scan;           /* in_memory and native */
    bool scanning;
} tap_source;

struct tap_run {
    char *dir;               /* what tap_record.file is relative to */
    const char *layout;
    bool native;
    int32_t only_rank;       /* -1: all */
    tap_source **attempts; /* by rank, attempt, child */
    size_t count;
    int open_files;          /* attempts with an index that is a file */
    tap_index **retired;     /* damaged, but still in use by cursors */
    size_t retired_count;
};

/* Lists attempts that are not known yet. */
tap_status tap__run_look(tap_run *run, tap_error *err);
/* Reads description and liveness again. */
void tap__run_attempt_look(tap_source *attempt);
/* Makes attempt->index. */
tap_status tap__run_source_open(tap_run *run, tap_source *attempt, tap_error *err);
/* Adds what was written since, when the index is in memory. */
tap_status tap__run_source_catch_up(tap_source *attempt, tap_error *err);
/* The index file is damaged: read the segments instead. */
tap_status tap__run_source_rebuild(tap_run *run, tap_source *attempt, tap_error *err);
void tap__run_attempt_free(tap_source *attempt);

/* A recording that is not ours: a layout's or a single file. Fills run->attempts[0]; TAP_E_FORMAT: nothing knows it. */
tap_status tap__run_open_foreign(tap_run *run, const char *path, bool is_file, tap_error *err);

#endif
