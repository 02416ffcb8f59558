/* run.c - opening a recording and knowing its attempts. Queries are in run_query.c. */
#include "record/read/run.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------------- attempts */

static tap_source *attempt_new(tap_attempt_files *files)
{
    tap_source *attempt = tap__calloc(1, sizeof *attempt);
    if (!attempt)
        return NULL;
    attempt->scan.fd = -1;
    char text[96];
    if (files->child)
        snprintf(text, sizeof text, "rank%d/child%d/attempt%d", files->rank, files->child, files->attempt);
    else
        snprintf(text, sizeof text, "rank%d/attempt%d", files->rank, files->attempt);
    attempt->relative = tap__strdup(text);
    if (!attempt->relative) {
        tap__free(attempt);
        return NULL;
    }
    attempt->files = *files;
    *files = (tap_attempt_files){0};
    /* what the description says decides whether its writer can be alive, so it is read before and after */
    tap__attempt_read(&attempt->files, &attempt->info, NULL);
    tap__run_attempt_look(attempt);
    return attempt;
}

static int place(const tap_source *a, const tap_attempt_files *b)
{
    if (a->files.rank != b->rank)
        return a->files.rank < b->rank ? -1 : 1;
    if (a->files.attempt != b->attempt)
        return a->files.attempt < b->attempt ? -1 : 1;
    return a->files.child == b->child ? 0 : a->files.child < b->child ? -1 : 1;
}

tap_status tap__run_look(tap_run *run, tap_error *err)
{
    tap_attempt_list list;
    TAP_TRY(tap__attempt_list(run->dir, &list, err));
    tap_source **merged = tap__calloc(run->count + list.count + 1, sizeof *merged);
    if (!merged) {
        tap__attempt_list_free(&list);
        return tap_fail_nomem(err);
    }
    size_t old = 0, count = 0;
    tap_status status = TAP_OK;
    for (size_t i = 0; i < list.count && status == TAP_OK; i++) {
        if (run->only_rank >= 0 && list.items[i].rank != run->only_rank)
            continue;
        while (old < run->count && place(run->attempts[old], &list.items[i]) < 0)
            merged[count++] = run->attempts[old++]; /* gone from disk or not: it stays known */
        if (old < run->count && place(run->attempts[old], &list.items[i]) == 0)
            merged[count++] = run->attempts[old++];
        else if ((merged[count] = attempt_new(&list.items[i])))
            count++;
        else
            status = tap_fail_nomem(err);
    }
    while (old < run->count)
        merged[count++] = run->attempts[old++];
    tap__free(run->attempts);
    run->attempts = merged;
    run->count = count;
    tap__attempt_list_free(&list);
    return status;
}

tap_status tap_run_refresh(tap_run *run, bool *more, bool *live, tap_error *err)
{
    *more = *live = false;
    if (!run->native)
        return TAP_OK;
    size_t before = run->count;
    TAP_TRY(tap__run_look(run, err));
    *more = run->count > before;
    for (size_t i = 0; i < run->count; i++) {
        tap_source *attempt = run->attempts[i];
        bool was_live = attempt->live, had = attempt->index != NULL;
        if (attempt->info.ended[0] && !was_live)
            continue;
        tap__run_attempt_look(attempt);
        *live |= attempt->live;
        tap_index_counts old = {0}, now;
        if (had)
            tap__index_counts(attempt->index, &old);
        if (!had)
            TAP_TRY(tap__run_source_open(run, attempt, err));
        else if (attempt->live && !was_live) /* a new writer took it over and may write over what looked final */
            TAP_TRY(tap__run_source_rebuild(run, attempt, err));
        else
            TAP_TRY(tap__run_source_catch_up(attempt, err));
        tap__index_counts(attempt->index, &now);
        *more |= now.entries > old.entries;
    }
    return TAP_OK;
}

int tap_run_attempt_count(const tap_run *run)
{
    return (int)run->count;
}

void tap_run_attempt(const tap_run *run, int index, tap_attempt *out)
{
    *out = (tap_attempt){.host = "", .ended = "unknown", .files = ""};
    if (index < 0 || (size_t)index >= run->count)
        return;
    const tap_source *attempt = run->attempts[index];
    const tap_attempt_info *info = &attempt->info;
    *out = (tap_attempt){
        .rank = attempt->files.rank, .attempt = attempt->files.attempt, .child = attempt->files.child,
        .pid = info->pid, .host = info->host,
        .ended = attempt->live ? "live" : info->ended[0] ? info->ended : "unknown",
        .started_ns = info->started_ns, .ended_ns = info->ended_ns, .records = info->records, .bytes = info->bytes,
        .filtered = info->filtered, .stats_only = info->stats_only, .dropped = info->dropped, .torn = info->torn,
        .files = attempt->relative,
    };
    if (info->ended[0] || !attempt->index || !attempt->in_memory)
        return;
    /* not finished: what was found is newer than what the description says */
    tap_index_counts counts;
    tap__index_counts(attempt->index, &counts);
    out->records = counts.records;
    out->bytes = counts.bytes;
    out->filtered = counts.filtered;
    out->stats_only = counts.stats_only;
    out->dropped = counts.dropped;
    out->torn = counts.torn;
}

/* -------------------------------------------------------------------------------------------------------- opening */

static char *path_copy(const char *path)
{
    char *real = realpath(path, NULL); /* a later chdir must not change what is meant */
    char *copy = tap__strdup(real ? real : path);
    free(real);
    return copy;
}

/* Is dir <run>/rank<R> of a native run? Then run->dir becomes the run. */
static bool is_rank_dir(tap_run *run)
{
    char *slash = strrchr(run->dir, '/');
    const char *rest;
    int32_t rank;
    if (!slash || slash == run->dir || !tap__name_number(slash + 1, "rank", &rank, &rest) || *rest)
        return false;
    *slash = 0;
    bool found = tap__run_check(run->dir, NULL) == TAP_OK;
    *slash = found ? 0 : '/';
    run->only_rank = found ? rank : -1;
    return found;
}

static tap_status open_dir(tap_run *run, tap_error *err)
{
    tap_status checked = tap__run_check(run->dir, err);
    run->native = checked == TAP_OK || is_rank_dir(run);
    if (!run->native) {
        tap_error foreign;
        tap_status status = tap__run_open_foreign(run, run->dir, false, &foreign);
        if (status == TAP_OK || status != TAP_E_FORMAT) {
            if (status != TAP_OK && err)
                *err = foreign;
            return status;
        }
        if (checked != TAP_E_NOTFOUND)
            return checked;
        /* run.json may be lost while the segments are there */
        run->native = true;
    }
    run->layout = "native";
    TAP_TRY(tap__run_look(run, err));
    if (checked != TAP_OK && run->only_rank < 0 && run->count == 0)
        return tap_fail(err, TAP_E_FORMAT, "no recording in %s: neither run.json nor files of a layout we know",
                        run->dir);
    return TAP_OK;
}

tap_status tap_run_open(const char *path, tap_run **out, tap_error *err)
{
    *out = NULL;
    struct stat st;
    if (stat(path, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    tap_run *run = tap__calloc(1, sizeof *run);
    if (!run)
        return tap_fail_nomem(err);
    run->only_rank = -1;
    run->dir = path_copy(path);
    tap_status status = !run->dir ? tap_fail_nomem(err)
                        : S_ISDIR(st.st_mode) ? open_dir(run, err)
                                              : tap__run_open_foreign(run, run->dir, true, err);
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
        tap__run_attempt_free(run->attempts[i]);
    for (size_t i = 0; i < run->retired_count; i++)
        tap__index_close(run->retired[i]);
    tap__free(run->retired);
    tap__free(run->attempts);
    tap__free(run->dir);
    tap__free(run);
}

const char *tap_run_layout(const tap_run *run)
{
    return run->layout;
}
