/* verify.c - what was asked for against what is there: what every source reports is counted here. */
#include "record/read/verify.h"

#include "base/memory.h"
#include "base/sized.h"

#include <inttypes.h>
#include <string.h>

static const struct problem_row {
    const char *name;
    bool loss;
} PROBLEMS[] = {
    [TAP_PROBLEM_DROPPED] = {"dropped", true},       [TAP_PROBLEM_STATS_ONLY] = {"stats only", true},
    [TAP_PROBLEM_TORN] = {"torn", true},             [TAP_PROBLEM_SLOT] = {"never came", false},
    [TAP_PROBLEM_NEVER_RAN] = {"never ran", false},  [TAP_PROBLEM_CORRUPT] = {"corrupt", true},
    [TAP_PROBLEM_MISSING] = {"missing", true},       [TAP_PROBLEM_UNFINISHED] = {"unfinished", true},
    [TAP_PROBLEM_RULE] = {"rule", false},
};
enum { PROBLEM_COUNT = sizeof PROBLEMS / sizeof PROBLEMS[0] };

const char *tap_problem_name(tap_problem_kind kind)
{
    return (unsigned)kind < PROBLEM_COUNT ? PROBLEMS[kind].name : "unknown";
}

bool tap_problem_is_loss(tap_problem_kind kind)
{
    return (unsigned)kind < PROBLEM_COUNT && PROBLEMS[kind].loss;
}

/* ------------------------------------------------------------------------------------------------------- reporting */

void tap__verify_report(tap_verifier *v, tap_problem problem)
{
    problem.size = sizeof problem;
    if (tap_problem_is_loss(problem.kind)) {
        v->any_loss = true;
        v->result.lost += problem.count;
    }
    if (problem.kind == TAP_PROBLEM_RULE)
        v->result.rules += problem.count;
    if (!v->options.on_problem || (problem.kind == TAP_PROBLEM_RULE && !v->options.rules))
        return;
    problem.rank = v->rank;
    problem.attempt = v->attempt;
    problem.name = problem.name ? problem.name : "";
    problem.path = problem.path ? problem.path : "";
    problem.file = problem.file ? problem.file : "";
    v->options.on_problem(v->options.user, &problem);
}

tap_status tap__verify_go_on(tap_verifier *v, uint64_t done)
{
    v->done = done = done > v->done ? done : v->done;
    if (!v->options.on_progress || (done - v->said < TAP_VERIFY_PIECE && done < v->total))
        return TAP_OK;
    v->said = done;
    if (v->options.on_progress(v->options.user, done < v->total ? done : v->total, v->total))
        return TAP_OK;
    return tap_fail(v->err, TAP_E_TIMEOUT, "stopped before everything was read");
}

tap_status tap_run_verify(tap_run *run, const tap_verify_options *options, tap_verify_result *result, tap_error *err)
{
    TAP_NEED(err, run);
    if (options)
        TAP_NEED_SIZE(err, tap_verify_options, options);
    if (result)
        TAP_NEED_SIZE(err, tap_verify_result, result);
    tap_verifier v = {.run = run, .err = err};
    tap_verify_options_init(&v.options);
    if (options)
        tap__sized_take(&v.options, options);
    v.piece = tap__alloc(TAP_VERIFY_PIECE);
    tap_status status = !v.piece ? tap_fail_nomem(err) : run->type->verify(&v);
    tap__free(v.piece);
    if (result)
        tap__sized_give(result, &v.result);
    if (status == TAP_OK && v.any_loss)
        status = tap_fail(err, TAP_E_LOST, "%s: %" PRIu64 " saves were not kept whole", run->dir->path, v.result.lost);
    return status;
}
