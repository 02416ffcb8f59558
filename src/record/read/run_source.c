/* run_source.c - where the rows of one attempt come from: the finished index, or a scan of the segments. */
#include "record/read/run.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

void tap__run_attempt_look(tap_source *attempt)
{
    /* liveness first: when no writer is there before we read, what we read is all there is */
    attempt->live = tap__attempt_is_live(&attempt->files, &attempt->info);
    attempt->info_status = tap__attempt_read(&attempt->files, &attempt->info, NULL);
    if (attempt->info.ended[0])
        attempt->live = false;
}

void tap__run_attempt_free(tap_source *attempt)
{
    if (!attempt)
        return;
    if (attempt->scanning)
        tap__scan_close(&attempt->scan);
    tap__index_close(attempt->index);
    tap__attempt_files_free(&attempt->files);
    tap__free(attempt->relative);
    tap__free(attempt);
}

tap_status tap__run_source_catch_up(tap_source *attempt, tap_error *err)
{
    if (!attempt->scanning)
        return TAP_OK;
    attempt->scan.growing = attempt->live;
    for (;;) {
        const tap_entry *entry;
        uint32_t segment;
        uint64_t offset;
        bool cut;
        tap_status status = tap__scan_next(&attempt->scan, &entry, &segment, &offset, &cut, err);
        if (status == TAP_END)
            return TAP_OK;
        TAP_TRY(status);
        TAP_TRY(tap__index_add_cut(attempt->index, entry, segment, offset, cut, err));
    }
}

static tap_status source_scan(tap_source *attempt, tap_error *err)
{
    TAP_TRY(tap__index_create_memory(&attempt->index, err));
    attempt->in_memory = true;
    tap_status status = tap__scan_open(&attempt->scan, &attempt->files, &attempt->info, err);
    if (status == TAP_OK) {
        attempt->scanning = true;
        status = tap__run_source_catch_up(attempt, err);
    }
    if (status != TAP_OK) {
        tap__scan_close(&attempt->scan);
        attempt->scanning = false;
        tap__index_close(attempt->index);
        attempt->index = NULL;
    }
    return status;
}

tap_status tap__run_source_open(tap_run *run, tap_source *attempt, tap_error *err)
{
    if (attempt->index)
        return TAP_OK;
    attempt->in_memory = false;
    if (attempt->info.indexed && !attempt->live) {
        char *path = tap__attempt_path(&attempt->files, ".sqlite");
        if (!path)
            return tap_fail_nomem(err);
        tap_status status = tap__index_open(path, &attempt->index, err);
        tap__free(path);
        if (status == TAP_OK)
            run->open_files++;
        if (status == TAP_OK || status == TAP_E_NOMEM)
            return status;
    }
    return source_scan(attempt, err);
}

tap_status tap__run_source_rebuild(tap_run *run, tap_source *attempt, tap_error *err)
{
    if (attempt->index) {
        tap_index **grown = tap__resize(run->retired, run->retired_count + 1, sizeof *grown);
        if (!grown)
            return tap_fail_nomem(err);
        run->retired = grown;
        run->retired[run->retired_count++] = attempt->index;
        run->open_files -= !attempt->in_memory;
        if (attempt->scanning)
            tap__scan_close(&attempt->scan);
        attempt->scanning = false;
        attempt->index = NULL;
    }
    return source_scan(attempt, err);
}
