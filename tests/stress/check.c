/* check.c - the recording against the truth: every expected value is there and equal, or listed as lost; and what is
 * listed as lost is not there. Only the public interface is used. */
#include "stress/stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABSENT, PARTIAL, WHOLE };
enum { EXPIRING_THREADS = 16 };

typedef struct check {
    const plan *plan;
    truth *t;
    int run;
    check_policy policy;
    findings *out;
    uint32_t count;
    uint8_t *seen;          /* by number */
    uint32_t *listed;       /* by base: saves that verify names as lost */
    uint32_t *partial;      /* by base: records without their bytes, not yet given a number */
    bool *slot_listed;      /* by base */
    uint64_t unnamed[MAX_RANKS];
    bool unknown[MAX_RANKS]; /* verify says that the end is missing */
    uint64_t losses;         /* problems that are a loss */
    bool alarm;              /* verify says something was lost */
    bool unreadable;
    bool any_seen[EXPIRING_THREADS]; /* of the records looked at so far */
    char first[300];         /* problem */
} check;

/* ---------------------------------------------------------------------------------------------------------- records */

/* The number in "v12", "0_v12.pt" or "v12.0.debug"; -1: none. */
static int64_t base_of(const char *name)
{
    for (const char *at = name; *at; at++)
        if (at[0] == 'v' && at[1] >= '0' && at[1] <= '9')
            return strtoll(at + 1, NULL, 10);
    return -1;
}

static bool same_elements(uint32_t number, const int32_t *data, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (data[i] != truth_value(number, i))
            return false;
    return true;
}

/* The record that a mapped tensor must be, or -1. */
static int64_t number_of(const check *c, uint32_t base, const tap_tensor *tensor)
{
    int64_t n = tap_tensor_count(tensor);
    if (tensor->dtype != TAP_I32 || n < 0 || !tap_tensor_is_contiguous(tensor))
        return -1;
    if (n)
        return ((const int32_t *)tensor->data)[0];
    return c->t->records[base].elements == 0 ? (int64_t)base : -1;
}

static void check_statistics(check *c, const tap_record *record, const truth_record *want, uint32_t number)
{
    if (!record->has_stats || !want->elements || !plan_is_native(c->plan))
        return;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (uint32_t i = 0; i < want->elements; i++) {
        int32_t value = truth_value(number, i);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    if (record->stats.min.i != least || record->stats.max.i != most || record->stats.count != want->elements)
        finding_add(c->out, FIND_WRONG, "v%u: its statistics are another value's", number);
}

static bool knows_steps(const plan *p)
{
    return p->layout <= 4; /* torch_npu and troubleshooter have none */
}

static void check_whole(check *c, const tap_record *record, uint32_t base, const tap_tensor *tensor)
{
    int64_t number = number_of(c, base, tensor), n = tap_tensor_count(tensor);
    const truth_record *want = number >= 0 && number < c->count ? &c->t->records[number] : NULL;
    if (!want || want->base != base || want->run != c->run || atomic_load(&want->state) == TRUTH_EMPTY ||
        want->elements != n || !same_elements((uint32_t)number, tensor->data, want->elements)) {
        if (c->policy.damaged) { /* a file cut while it was written has a hole: verify must say so */
            c->partial[base]++;
            return;
        }
        finding_add(c->out, FIND_WRONG, "%s (%lld elements): holds something else than was saved", record->name,
                    (long long)n);
        return;
    }
    if (c->seen[number] == WHOLE)
        finding_add(c->out, FIND_STRANGE, "%s: v%lld is there twice", record->name, (long long)number);
    c->seen[number] = WHOLE;
    if (record->rank != want->rank && c->plan->ranks > 1)
        finding_add(c->out, FIND_WRONG, "v%lld: rank %d instead of %d", (long long)number, record->rank, want->rank);
    if (record->step != want->step && want->step != TRUTH_ANY_STEP && knows_steps(c->plan))
        finding_add(c->out, FIND_WRONG, "v%lld: step %lld instead of %lld", (long long)number,
                    (long long)record->step, (long long)want->step);
    if (plan_is_native(c->plan) && (record->kind == TAP_KIND_GRAD) != ((want->flags & TRUTH_GRAD) != 0))
        finding_add(c->out, FIND_WRONG, "v%lld: is a %s", (long long)number, tap_kind_name(record->kind));
    check_statistics(c, record, want, (uint32_t)number);
}

static void check_record(check *c, tap_run *run, const tap_record *record)
{
    if (record->state == TAP_RECORD_SLOT || record->state == TAP_RECORD_DECLARED)
        return;
    int64_t base = base_of(record->name);
    if (base < 0 || base >= c->count || c->t->records[base].run != c->run) {
        finding_add(c->out, FIND_STRANGE, "\"%.200s\" was never saved", record->name);
        return;
    }
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_error err;
    bool empty = c->t->records[base].elements == 0;
    if (empty && !record->payload_bytes && record->ndim == 1 && record->shape[0] == 0) { /* msprobe has no file for it */
        check_whole(c, record, (uint32_t)base, &(tap_tensor){NULL, record->dtype, 1, record->shape, NULL});
        return;
    }
    if (record->state == TAP_RECORD_TORN || (!record->payload_bytes && !empty) ||
        tap_record_map(run, record, &mapping, &err) != TAP_OK) {
        c->partial[base]++;
        return;
    }
    check_whole(c, record, (uint32_t)base, &mapping.tensor);
    tap_mapping_release(&mapping);
}

/* ----------------------------------------------------------------------------------------------------------- verify */

static void on_problem(void *user, const tap_problem *problem)
{
    check *c = user;
    int64_t base = base_of(problem->name);
    int rank = problem->rank >= 0 && problem->rank < MAX_RANKS ? problem->rank : 0;
    if (getenv("STRESS_VERBOSE"))
        fprintf(stderr, "    verify: %s, %llu of \"%s\", rank %d, %s: %s\n", tap_problem_name(problem->kind),
                (unsigned long long)problem->count, problem->name, problem->rank, problem->file, problem->reason);
    if (base >= c->count)
        base = -1;
    if (problem->kind == TAP_PROBLEM_SLOT && base >= 0)
        c->slot_listed[base] = true;
    if (!tap_problem_is_loss(problem->kind))
        return;
    if (!c->losses++)
        snprintf(c->first, sizeof c->first, "%s %.60s: %.200s", tap_problem_name(problem->kind), problem->name,
                 problem->reason);
    c->unknown[plan_is_native(c->plan) ? rank : 0] |= problem->count == 0;
    if (base >= 0)
        c->listed[base] += (uint32_t)problem->count;
    else
        c->unnamed[rank] += problem->count;
    atomic_fetch_add(&c->out->listed, problem->count);
}

static void unreadable(check *c, const char *what, const tap_error *err)
{
    c->unreadable = true;
    if (c->policy.damaged && !plan_is_native(c->plan))
        return; /* it is said, with the file's name: that is all a broken file of another tool's allows */
    finding_add(c->out, FIND_UNREADABLE, "%s: %.300s", what, err->message);
}

static bool anything_returned(const check *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const truth_record *r = &c->t->records[i];
        if (r->run == c->run && atomic_load(&r->state) == TRUTH_RETURNED && r->status == TAP_OK &&
            !(r->flags & TRUTH_ANNOUNCED))
            return true;
    }
    return false;
}

static void look_at(check *c, const char *dir)
{
    tap_error err;
    tap_run *run;
    if (tap_run_open(dir, &run, &err) != TAP_OK) {
        if (anything_returned(c))
            unreadable(c, "open", &err);
        return;
    }
    tap_query query;
    tap_query_init(&query);
    query.attempt = -2;
    query.incomplete = true;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_status status = tap_run_query(run, &query, &cursor, &err);
    if (status == TAP_OK) {
        while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK)
            check_record(c, run, &record);
        tap_cursor_close(cursor);
    }
    if (status != TAP_END)
        unreadable(c, "cursor", &err);
    tap_verify_options options;
    tap_verify_options_init(&options);
    options.on_problem = on_problem;
    options.user = c;
    tap_verify_result result;
    tap_verify_result_init(&result);
    status = tap_run_verify(run, &options, &result, &err);
    if (status != TAP_OK && status != TAP_E_LOST)
        unreadable(c, "verify", &err);
    c->alarm |= status == TAP_E_LOST;
    tap_run_close(run);
}

/* ---------------------------------------------------------------------------------------------------------- verdict */

/* Records without bytes stand for those of their name that were not found whole; the others are not there at all. */
static void give_partial(check *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t base = c->t->records[i].base;
        if (c->seen[i] == ABSENT && c->t->records[i].run == c->run && c->partial[base]) {
            c->seen[i] = PARTIAL;
            c->partial[base]--;
        }
    }
}

static void judge_missing(check *c, uint32_t number, const truth_record *r)
{
    const char *how = c->seen[number] == PARTIAL ? "without its bytes" : "absent";
    const char *when = c->policy.recovered ? " after recover" : "";
    bool orphan = r->flags & TRUTH_CHILD && c->policy.children_may_lose;
    if (r->status == TAP_OK && !c->policy.may_lose && !orphan)
        finding_add(c->out, FIND_LOST, "v%u (base v%u, rank %d, step %lld, %u elements): the save returned OK, it is %s%s",
                    number, r->base, r->rank, (long long)r->step, r->elements, how, when);
    if (c->listed[r->base])
        c->listed[r->base]--;
    else if (c->unnamed[r->rank])
        c->unnamed[r->rank]--;
    else if (!plan_is_native(c->plan) && c->unnamed[0])
        c->unnamed[0]--;
    else if (!c->unreadable && !(c->unknown[plan_is_native(c->plan) ? r->rank : 0] && c->policy.unknown_will_do))
        finding_add(c->out, FIND_SILENT, "v%u (base v%u, rank %d, step %lld, %u elements, %s) is %s%s; verify %s", number,
                    r->base, r->rank, (long long)r->step, r->elements, tap_status_name((tap_status)r->status), how, when,
                    c->alarm ? "lists others only" : "says nothing was lost");
}

/* Gone by the rule `last`: nothing that its thread saved before is there. */
static bool is_expired(check *c, uint32_t number)
{
    uint16_t thread = c->t->records[number].thread % EXPIRING_THREADS;
    c->any_seen[thread] |= c->seen[number] != ABSENT;
    return c->policy.last && !c->any_seen[thread];
}

static void judge(check *c)
{
    uint64_t flying[MAX_RANKS] = {0}, missing = 0, in_flight = 0;
    uint32_t *flying_of = calloc(c->count + 1, sizeof *flying_of);
    for (uint32_t i = 0; i < c->count && flying_of; i++) {
        const truth_record *r = &c->t->records[i];
        uint32_t state = atomic_load(&r->state);
        if (r->run != c->run || state == TRUTH_EMPTY)
            continue;
        if (r->flags & TRUTH_ANNOUNCED) {
            flying[r->rank]++;
            if (plan_is_native(c->plan) && state == TRUTH_RETURNED && r->status == TAP_OK && !c->policy.may_lose &&
                !c->slot_listed[r->base])
                finding_add(c->out, FIND_SILENT, "the gradient of v%u never came, and verify does not say so", r->base);
            continue;
        }
        atomic_fetch_add(&c->out->saves, state == TRUTH_RETURNED);
        bool expired = is_expired(c, i);
        if (c->seen[i] == WHOLE) {
            atomic_fetch_add(&c->out->whole, state == TRUTH_RETURNED);
        } else if (state == TRUTH_BEGUN) {
            flying_of[r->base]++;
            flying[r->rank]++;
            in_flight++;
        } else if (!expired) {
            missing++;
            atomic_fetch_add(c->seen[i] == PARTIAL ? &c->out->partial : &c->out->missing, 1);
            judge_missing(c, i, r);
        }
    }
    for (uint32_t i = 0; i < c->count && flying_of && !c->policy.damaged; i++)
        if (c->listed[i] > flying_of[i])
            finding_add(c->out, FIND_LISTED, "v%u is listed %u times too often", i, c->listed[i] - flying_of[i]);
    for (int r = 0; r < MAX_RANKS && !c->policy.damaged; r++)
        if (c->unnamed[r] > flying[r] + atomic_load(&c->t->ranks[r].marks) + c->policy.uncounted)
            finding_add(c->out, FIND_LISTED, "rank %d: %llu more saves are listed as lost than are (%s)", r,
                        (unsigned long long)(c->unnamed[r] - flying[r]), c->first);
    if (c->alarm && !missing && !in_flight && !c->policy.may_lose && !c->policy.damaged && !c->policy.children_may_lose &&
        !c->policy.opening)
        finding_add(c->out, FIND_ALARM, "%s", c->first);
    free(flying_of);
}

void check_run(const plan *made, truth *t, int run, const char *const *dirs, int dir_count, check_policy policy,
               findings *out)
{
    check c = {.plan = made, .t = t, .run = run, .policy = policy, .out = out, .count = atomic_load(&t->next)};
    c.seen = calloc(c.count + 1, sizeof *c.seen);
    c.listed = calloc(c.count + 1, sizeof *c.listed);
    c.partial = calloc(c.count + 1, sizeof *c.partial);
    c.slot_listed = calloc(c.count + 1, sizeof *c.slot_listed);
    if (c.seen && c.listed && c.partial && c.slot_listed) {
        for (int i = 0; i < dir_count; i++)
            look_at(&c, dirs[i]);
        give_partial(&c);
        judge(&c);
    }
    free(c.seen);
    free(c.listed);
    free(c.partial);
    free(c.slot_listed);
}
