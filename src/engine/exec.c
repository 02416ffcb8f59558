/* exec.c - one run: the signature finds its plan, then the steps in order. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/sized.h"
#include "engine/parallel.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a step from which on the host is told, so that it lets its other threads run: about 20 us of work. */
enum { LONG_WORK = 262144 };
enum { ALIGN = 64 };

/* -------------------------------------------------------------------------------------------------------- symbols */

static tap_status bind_symbol(tap_frame *frame, int32_t value, tap_sym sym, int64_t given, tap_error *err)
{
    const tap__syms *syms = &frame->engine->graph->syms;
    int32_t symbol = tap__sym_is_symbol(syms, sym);
    if (symbol < 0)
        return TAP_OK;
    if (frame->known[symbol] && frame->symbols[symbol] != given)
        return tap_fail(err, TAP_E_INVALID, "value %d: a size is %lld where another value of the call says %s = %lld",
                        (int)value, (long long)given, syms->names[symbol], (long long)frame->symbols[symbol]);
    frame->symbols[symbol] = given;
    frame->known[symbol] = true;
    return TAP_OK;
}

static tap_status wrong_sizes(const tap_graph *graph, int32_t value, const tap__operand *given, const tap__operand *want,
                              tap_error *err)
{
    char got[200] = "", expected[200] = "";
    for (int i = 0; i < given->ndim && i < 8; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? ", " : "", (long long)given->size[i]);
    for (int i = 0; i < want->ndim && i < 8; i++)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s%lld", i ? ", " : "",
                 (long long)want->size[i]);
    int32_t node = graph->values[value].node;
    return tap_fail(err, TAP_E_INVALID, "%s: value %d has sizes [%s], and the graph was made for [%s]",
                    node < 0 ? "graph input" : graph->nodes[node].name, (int)value, got, expected);
}

/* The value as the plan wants it: its own memory, or a copy the host makes. */
static tap_status settle(tap_frame *frame, int32_t value, tap_error *err)
{
    const tap_engine *engine = frame->engine;
    const tap__operand *want = &frame->plan->values[value], *given = &frame->given[value];
    if (want->ndim < 0 || given->ndim < 0 || (given->dtype == want->dtype && tap__operand_same_layout(given, want)))
        return TAP_OK;
    if (!tap__operand_same_sizes(given, want))
        return wrong_sizes(engine->graph, value, given, want, err);
    tap_tensor like = tap__operand_view(want, NULL);
    return engine->host.match(frame->user, frame, value, &like, &frame->data[value], err);
}

static tap_status check_value(const tap_frame *frame, int32_t value, tap_error *err)
{
    int32_t count = frame->engine->graph->nvalues;
    if (value >= 0 && value < count)
        return TAP_OK;
    return tap_fail(err, TAP_E_INVALID, "there is no value %d: the graph has values 0 to %d", (int)value, (int)count - 1);
}

tap_status tap_frame_set(tap_frame *frame, int32_t value, const tap_tensor *tensor, tap_error *err)
{
    TAP_NEED(err, frame);
    TAP_NEED(err, tensor);
    TAP_TRY(check_value(frame, value, err));
    const tap_graph *graph = frame->engine->graph;
    const tap__value *spec = &graph->values[value];
    tap__operand *given = &frame->given[value];
    frame->data[value] = tensor->data;
    given->ndim = -1;
    if (spec->type != TAP_SPEC_TENSOR)
        return TAP_OK;
    given->dtype = tensor->dtype;
    /* what a HostCall made may be of another dtype than the trace said: it is converted */
    if (tensor->ndim != spec->ndim || (tensor->dtype != spec->dtype && spec->node < 0))
        return tap_fail(err, TAP_E_INVALID, "value %d is %s with %d dimensions, and the graph was made for %s with %d",
                        (int)value, tap_dtype_describe(tensor->dtype) ? tap_dtype_describe(tensor->dtype)->name : "?",
                        (int)tensor->ndim, tap_dtype_describe(spec->dtype)->name, (int)spec->ndim);
    if (tensor->ndim && !tensor->shape)
        return tap_fail(err, TAP_E_INVALID, "value %d has %d dimensions and no shape", (int)value, (int)tensor->ndim);
    given->ndim = tensor->ndim;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        given->size[i] = tensor->shape[i];
        given->stride[i] = tensor->strides                ? tensor->strides[i]
                           : i + 1 < tensor->ndim ? given->stride[i + 1] * given->size[i + 1]
                                                  : 1;
    }
    for (int32_t i = 0; !spec->inferred && i < spec->ndim; i++) {
        TAP_TRY(bind_symbol(frame, value, spec->size[i], given->size[i], err));
        int32_t symbol = tap__sym_is_symbol(&graph->syms, spec->stride[i]);
        if (symbol >= 0 && !frame->known[symbol]) /* else another stride than the traced one: settled by a copy */
            TAP_TRY(bind_symbol(frame, value, spec->stride[i], given->stride[i], err));
    }
    if (spec->elsewhere)
        given->ndim = -1; /* strides are the host's own matter */
    return frame->plan ? settle(frame, value, err) : TAP_OK;
}

tap_status tap_frame_set_int(tap_frame *frame, int32_t value, int64_t integer, tap_error *err)
{
    TAP_NEED(err, frame);
    TAP_TRY(check_value(frame, value, err));
    const tap__value *spec = &frame->engine->graph->values[value];
    return spec->type == TAP_SPEC_INT ? bind_symbol(frame, value, spec->size[0], integer, err) : TAP_OK;
}

tap_status tap_frame_get_int(const tap_frame *frame, int32_t value, int64_t *out, tap_error *err)
{
    TAP_NEED(err, frame);
    TAP_NEED(err, out);
    TAP_TRY(check_value(frame, value, err));
    const tap_graph *graph = frame->engine->graph;
    const tap__value *spec = &graph->values[value];
    int32_t symbol = spec->type == TAP_SPEC_INT ? tap__sym_is_symbol(&graph->syms, spec->size[0]) : -1;
    if (symbol >= 0 && frame->known[symbol]) {
        *out = frame->symbols[symbol];
        return TAP_OK;
    }
    if (spec->type != TAP_SPEC_INT || !frame->plan || !frame->plan->have[spec->size[0]])
        return tap_fail(err, TAP_E_INTERNAL, "value %d is not an integer that is known here", (int)value);
    *out = frame->plan->syms[spec->size[0]];
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------------------------------- plans */

static bool fits(const tap__plan *plan, const tap_frame *frame, int threads)
{
    return plan->threads == threads &&
           memcmp(plan->symbols, frame->symbols,
                  (size_t)frame->engine->graph->syms.nsymbols * sizeof *frame->symbols) == 0;
}

/* Moves the plan that fits to the front and holds it; NULL: there is none. Called with the lock. */
static tap__plan *find_plan(tap__segment *segment, const tap_frame *frame, int threads)
{
    for (tap__plan **at = &segment->plans; *at; at = &(*at)->next) {
        tap__plan *plan = *at;
        if (!fits(plan, frame, threads))
            continue;
        *at = plan->next;
        plan->next = segment->plans;
        segment->plans = plan;
        plan->users++;
        return plan;
    }
    return NULL;
}

/* Frees the plan used longest ago that nobody runs; false: all are in use. Called with the lock. */
static bool drop_oldest(tap_engine *engine, tap__segment *segment)
{
    tap__plan **last = NULL;
    for (tap__plan **at = &segment->plans; *at; at = &(*at)->next)
        if ((*at)->users == 0)
            last = at;
    if (!last)
        return false;
    tap__plan *plan = *last;
    *last = plan->next;
    segment->nplans--;
    tap__plan_free(plan, engine->graph->nnodes);
    return true;
}

static void keep_plan(tap_engine *engine, tap__segment *segment, tap__plan *plan)
{
    while (segment->nplans >= TAP__MAX_PLANS && drop_oldest(engine, segment))
        ; /* more than one where many runs were in flight at once */
    plan->users = 1;
    plan->next = segment->plans;
    segment->plans = plan;
    segment->nplans++;
    engine->counts.plans++;
    engine->counts.arena_bytes = plan->arena - plan->room;
    if (plan->segment == 0)
        engine->counts.steps = 0;
    engine->counts.steps += plan->nsteps;
    for (int32_t n = segment->first; n < segment->end; n++)
        engine->newest_on_host[n] = plan->on_host[n];
}

static tap_status choose_plan(tap_frame *frame, int32_t index, tap_error *err)
{
    tap_engine *engine = frame->engine;
    tap__segment *segment = &engine->segments[index];
    int threads = tap__threads();
    pthread_mutex_lock(&engine->lock);
    if (frame->plan)
        frame->plan->users--;
    frame->plan = find_plan(segment, frame, threads);
    pthread_mutex_unlock(&engine->lock);
    if (frame->plan)
        return TAP_OK;
    tap__plan_input input = {.graph = engine->graph, .native = engine->native, .flags = engine->flags,
                             .segments = engine->segments, .segment = index,
                             .symbols = frame->symbols, .known = frame->known, .threads = threads};
    tap__plan *plan;
    uint64_t began = tap__monotonic_ns();
    TAP_TRY(tap__plan_make(&input, &plan, err));
    pthread_mutex_lock(&engine->lock);
    engine->counts.plan_nanoseconds += tap__monotonic_ns() - began;
    tap__plan *other = find_plan(segment, frame, threads); /* made by another thread meanwhile */
    if (!other)
        keep_plan(engine, segment, plan);
    pthread_mutex_unlock(&engine->lock);
    if (other)
        tap__plan_free(plan, engine->graph->nnodes);
    frame->plan = other ? other : plan;
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------------------- memory */

static tap_status grow_workspace(tap__workspace *workspace, size_t size, tap_error *err)
{
    if (workspace->size >= size)
        return TAP_OK;
    tap__free(workspace->memory);
    workspace->size = 0;
    workspace->memory = size > SIZE_MAX - ALIGN ? NULL : tap__alloc(size + ALIGN);
    if (!workspace->memory)
        return tap_fail(err, TAP_E_NOMEM, "no memory for the %zu bytes of a graph's values", size);
    workspace->start = (char *)workspace->memory + (-(uintptr_t)workspace->memory & (ALIGN - 1));
    workspace->size = size;
    return TAP_OK;
}

static tap_status take_workspace(tap_frame *frame, size_t size, tap_error *err)
{
    tap_engine *engine = frame->engine;
    if (size == 0)
        return TAP_OK;
    if (!frame->workspace) {
        pthread_mutex_lock(&engine->lock);
        frame->workspace = engine->workspaces;
        if (frame->workspace)
            engine->workspaces = frame->workspace->next;
        pthread_mutex_unlock(&engine->lock);
    }
    if (!frame->workspace && !(frame->workspace = tap__calloc(1, sizeof *frame->workspace)))
        return tap_fail_nomem(err);
    return grow_workspace(frame->workspace, size, err);
}

static tap_status take_pointers(tap_frame *frame, int32_t count, tap_error *err)
{
    if (count <= frame->npointers)
        return TAP_OK;
    void **pointers = tap__resize(frame->pointers, (size_t)count, sizeof *pointers);
    if (!pointers)
        return tap_fail_nomem(err);
    frame->pointers = pointers;
    frame->npointers = count;
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------------------------------- steps */

/* Where a kernel asked for none: an address still, from which no bytes may be counted, cleared or copied. */
static _Alignas(64) char no_scratch[64];

static void resolve(tap_frame *frame, const tap__step *step)
{
    for (int32_t i = 0; i < step->nrefs; i++) {
        const tap__ref *ref = &step->refs[i];
        frame->pointers[i] = ref->value >= 0                ? (char *)frame->data[ref->value] + ref->bytes
                             : ref->value == TAP__REF_ARENA ? frame->workspace->start + ref->bytes
                                                            : NULL;
    }
    if (step->kind == TAP__STEP_KERNEL && !frame->pointers[step->nrefs - 1])
        frame->pointers[step->nrefs - 1] = no_scratch;
}

static tap_status run_native(tap_frame *frame, const tap__step *step, tap_error *err)
{
    const tap_host *host = &frame->engine->host;
    bool alone = host->work && step->bytes >= LONG_WORK;
    tap_status status = TAP_OK;
    resolve(frame, step);
    if (alone)
        host->work(frame->user, frame, true);
    if (step->kind == TAP__STEP_CHAIN)
        status = tap__pw_run(step->chain, frame->pointers, err);
    else
        status = tap__kernel_of(step->call->op)->run(step->call, frame->pointers, err);
    if (alone)
        host->work(frame->user, frame, false);
    return status;
}

static tap_status run_step(tap_frame *frame, const tap__step *step, tap_error *err)
{
    const tap_host *host = &frame->engine->host;
    for (int32_t i = 0; i < step->nfresh; i++) {
        int32_t value = step->fresh[i];
        tap_tensor like = tap__operand_view(&frame->plan->values[value], NULL);
        TAP_TRY(host->alloc(frame->user, frame, value, &like, &frame->data[value], err));
    }
    if (step->kind == TAP__STEP_HOST)
        TAP_TRY(host->call(frame->user, frame, step->node, err));
    else
        TAP_TRY(run_native(frame, step, err));
    for (int32_t i = 0; i < step->nobserved; i++)
        TAP_TRY(host->observe(frame->user, frame, step->observed[i], err));
    for (int32_t i = 0; i < step->ndone; i++)
        host->release(frame->user, frame, step->done[i]);
    return TAP_OK;
}

static tap_status run_timed(tap_frame *frame, const tap__step *step, tap_error *err)
{
    uint64_t began = tap__monotonic_ns();
    tap_status status = run_step(frame, step, err);
    uint64_t took = tap__monotonic_ns() - began;
    tap__times *times = &frame->engine->times[step->node];
    atomic_fetch_add(&times->runs, 1);
    atomic_fetch_add(&times->nanoseconds, took);
    atomic_fetch_add(&times->bytes, step->bytes);
    atomic_store(&times->last_start, began);
    atomic_store(&times->last_nanoseconds, took);
    return status;
}

static tap_status run_segment(tap_frame *frame, tap_error *err)
{
    const tap__plan *plan = frame->plan;
    bool timed = frame->engine->flags & TAP_ENGINE_PROFILE;
    TAP_TRY(take_workspace(frame, plan->arena, err));
    TAP_TRY(take_pointers(frame, plan->nrefs_max, err));
    for (int32_t s = 0; s < plan->nsteps; s++)
        TAP_TRY(timed ? run_timed(frame, &plan->steps[s], err) : run_step(frame, &plan->steps[s], err));
    return TAP_OK;
}

/* How big the results of a node will be: its inputs are there, and all held by the host. */
static tap_status count_node(tap_frame *frame, int32_t index, tap_error *err)
{
    enum { MAX_INPUTS = 4 };
    const tap_graph *graph = frame->engine->graph;
    const tap__node *node = &graph->nodes[index];
    tap__operand in[MAX_INPUTS];
    void *data[MAX_INPUTS];
    int64_t count = 0;
    if (node->nsources > MAX_INPUTS)
        return tap_fail(err, TAP_E_INTERNAL, "node %s: %d inputs are too many to count", node->name, (int)node->nsources);
    for (int32_t i = 0; i < node->nsources; i++) {
        in[i] = frame->plan->values[node->sources[i].value];
        data[i] = frame->data[node->sources[i].value];
    }
    tap__call call = {.op = node->op, .name = node->name, .nin = node->nsources, .in = in, .threads = 1};
    TAP_TRY(tap__kernel_count(&call, data, &count, err));
    return bind_symbol(frame, node->first_value, graph->values[node->first_value].size[0], count, err);
}

/* An input without elements may be left out: torch hands over nothing where a token of an effect stands in the graph. */
static tap_status settle_input(tap_frame *frame, int32_t index, tap_error *err)
{
    int32_t value = frame->engine->graph->inputs[index];
    const tap__operand *want = &frame->plan->values[value];
    if (want->ndim >= 0 && !frame->engine->graph->values[value].elsewhere && frame->given[value].ndim < 0 &&
        tap__operand_count(want) > 0)
        return tap_fail(err, TAP_E_INVALID, "input %d of the graph was not given, or is no tensor in memory", (int)index);
    return settle(frame, value, err);
}

tap_status tap_frame_run(tap_frame *frame, tap_error *err)
{
    TAP_NEED(err, frame);
    tap_engine *engine = frame->engine;
    for (int32_t s = 0; s < engine->nsegments; s++) {
        TAP_TRY(choose_plan(frame, s, err));
        for (int32_t i = 0; s == 0 && i < engine->graph->ninputs; i++)
            TAP_TRY(settle_input(frame, i, err));
        TAP_TRY(run_segment(frame, err));
        if (engine->segments[s].counts >= 0)
            TAP_TRY(count_node(frame, engine->segments[s].counts, err));
    }
    return TAP_OK;
}
