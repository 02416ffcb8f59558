/* run.c - opening a recording and knowing its sources. Queries are in run_query.c. */
#include "record/read/run.h"

#include "base/memory.h"
#include "base/sized.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -------------------------------------------------------------------------------------------------------- sources */

tap_status tap__run_retire(tap_run *run, tap_source *source, tap_error *err)
{
    if (!source->index)
        return TAP_OK;
    tap_index **grown = tap__resize(run->retired, run->retired_count + 1, sizeof *grown);
    if (!grown)
        return tap_fail_nomem(err);
    run->retired = grown;
    run->retired[run->retired_count++] = source->index;
    run->open_files -= !source->in_memory;
    source->index = NULL;
    return TAP_OK;
}

static void source_free(const tap_run *run, tap_source *source)
{
    run->type->close(source);
    tap__index_close(source->index);
    tap__free(source->relative);
    tap__free(source);
}

tap_status tap_run_refresh(tap_run *run, bool *more, bool *live, tap_error *err)
{
    TAP_NEED(err, more);
    TAP_NEED(err, live);
    *more = *live = false;
    TAP_NEED(err, run);
    size_t before = run->count;
    TAP_TRY(run->type->look(run, err));
    *more = run->count > before;
    for (size_t i = 0; i < run->count; i++) {
        tap_source *source = run->sources[i];
        tap_index_counts old = {0}, now = {0};
        if (source->index)
            tap__index_counts(source->index, &old);
        TAP_TRY(run->type->refresh(run, source, err));
        if (source->index)
            tap__index_counts(source->index, &now);
        *live |= source->live;
        *more |= now.entries > old.entries;
    }
    return TAP_OK;
}

int tap_run_attempt_count(const tap_run *run)
{
    return run ? (int)run->count : 0;
}

/* Not finished: what was found is newer than what the description says. */
static void count_newest(tap_index *index, tap_attempt *out)
{
    tap_index_counts counts;
    tap__index_counts(index, &counts);
    out->records = counts.records;
    out->bytes = counts.bytes;
    out->filtered = counts.filtered;
    out->stats_only = counts.stats_only;
    out->dropped = counts.dropped;
    out->torn = counts.torn;
}

tap_status tap_run_attempt(const tap_run *run, int index, tap_attempt *out)
{
    TAP_NEED(NULL, run);
    TAP_NEED_SIZED(NULL, tap_attempt, out);
    if (index < 0 || (size_t)index >= run->count)
        return TAP_E_INVALID;
    const tap_source *source = run->sources[index];
    const tap_attempt_info *info = &source->info;
    tap_attempt whole = {
        .rank = source->rank < 0 ? 0 : source->rank, .attempt = source->attempt, .child = source->child,
        .pid = info->pid, .host = info->host,
        .ended = source->live ? "live" : info->ended[0] ? info->ended : "unknown",
        .started_ns = info->started_ns, .ended_ns = info->ended_ns, .records = info->records, .bytes = info->bytes,
        .filtered = info->filtered, .stats_only = info->stats_only, .dropped = info->dropped, .torn = info->torn,
        .files = source->relative,
    };
    if (!info->ended[0] && source->index && source->in_memory)
        count_newest(source->index, &whole);
    tap__sized_give(out, &whole);
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- opening */

/* Is dir <run>/rank<R> of a native run? Then run->dir becomes the run. */
static bool is_rank_dir(tap_run *run)
{
    const char *name, *rest;
    tap_dir *above = NULL;
    int32_t rank;
    if (tap__dir_of_file(run->dir->path, false, &above, &name, NULL) != TAP_OK)
        return false;
    bool found = tap__name_number(name, "rank", &rank, &rest) && !*rest && tap__run_check(above, NULL) == TAP_OK;
    tap__dir_close(found ? run->dir : above);
    if (found) {
        run->dir = above;
        run->only_rank = rank;
    }
    return found;
}

static tap_status open_native(tap_run *run, tap_error *err)
{
    run->type = &tap__source_native;
    run->layout = "native";
    return run->type->look(run, err);
}

static tap_status open_dir(tap_run *run, const char *path, tap_error *err)
{
    TAP_TRY(tap__dir_open(path, false, &run->dir, err));
    tap_error why;
    tap_status checked = tap__run_check(run->dir, &why);
    if (checked == TAP_OK || is_rank_dir(run))
        return open_native(run, err);
    /* what a layout recognised it keeps: a file of it that is broken is not a reason to try another */
    tap_status status = tap__files_open(run, NULL, err);
    if (status != TAP_E_NOTFOUND || run->type)
        return status;
    if (checked == TAP_E_NOTFOUND || checked == TAP_E_CORRUPT) { /* without run.json the segments say enough */
        TAP_TRY(open_native(run, err));
        if (run->count)
            return TAP_OK;
    }
    if (checked == TAP_E_NOTFOUND)
        return tap_fail(err, TAP_E_FORMAT, "no recording in %s: neither run.json nor files of a layout we know",
                        run->dir->path);
    if (err)
        *err = why;
    return checked;
}

static tap_status open_file(tap_run *run, const char *path, tap_error *err)
{
    const char *name;
    char *real = realpath(path, NULL); /* somebody chose the file: a link to it is meant */
    if (!real)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    tap_status status = tap__dir_of_file(real, false, &run->dir, &name, err);
    if (status == TAP_OK)
        status = tap__files_open(run, name, err);
    free(real);
    return status;
}

tap_status tap_run_open(const char *path, tap_run **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, path);
    struct stat st;
    if (stat(path, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    tap_run *run = tap__calloc(1, sizeof *run);
    if (!run)
        return tap_fail_nomem(err);
    run->only_rank = -1;
    tap_status status = S_ISDIR(st.st_mode) ? open_dir(run, path, err) : open_file(run, path, err);
    if (status != TAP_OK)
        tap_run_close(run);
    else
        *out = run;
    return status;
}

void tap_run_close(tap_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->count; i++)
        source_free(run, run->sources[i]);
    for (size_t i = 0; i < run->retired_count; i++)
        tap__index_close(run->retired[i]);
    tap__free(run->retired);
    tap__free(run->sources);
    tap__dir_close(run->dir);
    tap__free(run);
}

const char *tap_run_layout(const tap_run *run)
{
    return run ? run->layout : NULL;
}
