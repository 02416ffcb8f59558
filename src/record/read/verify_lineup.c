/* verify_lineup.c - which files ought to be there besides segments: run.json, and attempts: a rank counts its attempts from 0, and every rank of a job opens one
 * unless the option `ranks` left it out. What was deleted or never opened is missing. */
#include "record/read/source_native.h"

#include "base/match.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>

enum { RANKS_MAX = 1 << 17 }; /* looked for: a description may claim any number */

static bool has_attempt(const tap_run *run, int32_t rank, int32_t attempt)
{
    for (size_t i = 0; i < run->count; i++)
        if (run->sources[i]->rank == rank && run->sources[i]->attempt == attempt && !run->sources[i]->child)
            return true;
    return false;
}

static void report(tap_verifier *v, int32_t rank, int32_t attempt, const char *why)
{
    char file[64];
    snprintf(file, sizeof file, "rank%d/attempt%d", rank, attempt);
    v->rank = rank;
    v->attempt = attempt;
    tap__verify_report(v, (tap_problem){.kind = TAP_PROBLEM_MISSING, .step = -1, .file = file, .reason = why});
}

/* Numbers below one that is there. */
static void check_numbers(tap_verifier *v, const tap_source *source)
{
    if (source->child)
        return;
    int32_t next = 0;
    for (size_t i = 0; i < v->run->count; i++) {
        const tap_source *other = v->run->sources[i];
        if (other->rank == source->rank && other->attempt < source->attempt && !other->child)
            next = other->attempt + 1;
    }
    for (int32_t missing = next; missing < source->attempt && missing - next < 1000; missing++)
        report(v, source->rank, missing, tap_text("an attempt of this rank was deleted: there are later ones"));
}

/* One of the newest attempts of their number: what its job looked like. */
typedef struct lineup {
    int32_t attempt, world_size;
    const char *ranks;
    bool live;
} lineup;

static lineup lineup_of(const tap_run *run, int32_t attempt)
{
    lineup found = {.attempt = attempt};
    for (size_t i = 0; i < run->count; i++) {
        const tap_source *source = run->sources[i];
        if (source->attempt != attempt || source->child)
            continue;
        found.live |= source->live; /* the others may still open theirs */
        if (source->info.world_size > found.world_size) {
            found.world_size = source->info.world_size;
            found.ranks = source->info.ranks;
        }
    }
    return found;
}

/* The number the rank's next attempt would have: a gap below it is reported as such. */
static int32_t next_attempt(const tap_run *run, int32_t rank)
{
    int32_t next = 0;
    for (size_t i = 0; i < run->count; i++)
        if (run->sources[i]->rank == rank && !run->sources[i]->child && run->sources[i]->attempt >= next)
            next = run->sources[i]->attempt + 1;
    return next;
}

/* Ranks one after the other that are missing are one problem: a world may be large. */
static void report_ranks(tap_verifier *v, const lineup *job, int32_t first, int32_t last)
{
    char why[160];
    if (first == last)
        snprintf(why, sizeof why, tap_text("rank %d of a job of %d never opened this recording, or its part was deleted"),
                 first, job->world_size);
    else
        snprintf(why, sizeof why, tap_text("ranks %d to %d of a job of %d never opened this recording, or their parts "
                                           "were deleted"), first, last, job->world_size);
    report(v, first, job->attempt, why);
}

static tap_status check_ranks(tap_verifier *v, int32_t attempt)
{
    lineup job = lineup_of(v->run, attempt);
    tap_ranges wanted;
    if (job.live || job.world_size < 2 || (job.ranks[0] == '?' && !job.ranks[1]) ||
        tap__ranges_parse(&wanted, job.ranks, "ranks", NULL) != TAP_OK)
        return TAP_OK;
    int32_t first = -1;
    for (int32_t rank = 0; rank <= job.world_size && rank <= RANKS_MAX; rank++) {
        bool missing = rank < job.world_size && tap__ranges_contain(&wanted, rank) &&
                       !has_attempt(v->run, rank, attempt) && next_attempt(v->run, rank) <= attempt;
        if (missing && first < 0)
            first = rank;
        if (!missing && first >= 0)
            report_ranks(v, &job, first, rank - 1);
        first = missing ? first : -1;
    }
    tap__ranges_free(&wanted);
    return TAP_OK;
}

/* What a directory must hold to be known as a recording. */
static void check_run_json(tap_verifier *v)
{
    tap_error why;
    tap_status status = v->run->only_rank < 0 ? tap__run_check(v->run->dir, &why) : TAP_OK;
    if (status != TAP_OK)
        tap__verify_report(v, (tap_problem){.kind = status == TAP_E_NOTFOUND ? TAP_PROBLEM_MISSING : TAP_PROBLEM_CORRUPT,
                                            .step = -1, .file = "run.json", .reason = why.message});
}

tap_status tap__verify_lineup(tap_verifier *v)
{
    const tap_run *run = v->run;
    int32_t newest = -1;
    check_run_json(v);
    for (size_t i = 0; i < run->count; i++) {
        check_numbers(v, run->sources[i]);
        if (!run->sources[i]->child && run->sources[i]->attempt > newest)
            newest = run->sources[i]->attempt;
    }
    for (int32_t attempt = 0; attempt <= newest && run->only_rank < 0; attempt++)
        TAP_TRY(check_ranks(v, attempt));
    return TAP_OK;
}
