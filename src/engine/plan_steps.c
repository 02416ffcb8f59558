/* plan_steps.c - the order of work: kernels and HostCalls as they come, pointwise nodes gathered into chains.
 *
 * One chain is open at a time. A pointwise node joins it when it has the same sizes and reads the chain's results as
 * they are (a view of one would need it in memory). Kernels have no side effects, so one that does not read the chain
 * is put before it; a HostCall may have some, so it closes the chain.
 *
 * A node that assigns is a store into a graph input: it joins a chain that reads this input only as it lies there, and
 * what reads the input's memory after it comes after the chain. */
#include "engine/plan.h"

#include "base/status.h"

#include <string.h>

enum { MAX_CHAIN = 48 };

typedef struct chain {
    int32_t nodes[MAX_CHAIN];
    int count, assigns;
} chain;

typedef struct builder {
    tap__planning *plan;
    chain open;
    int32_t *chained;  /* per value: position in the open chain + 1, 0: not made there */
    int32_t *readers;  /* per value: nodes of this segment that read it, directly or as a view */
    tap_error *err;
} builder;

static tap__step *new_step(builder *self, tap__step_kind kind, int32_t node)
{
    tap__plan *plan = self->plan->plan;
    tap__step *step = &plan->steps[plan->nsteps++];
    *step = (tap__step){.kind = kind, .node = node};
    return step;
}

static tap__ref ref_of(const tap__planning *plan, int32_t value)
{
    return (tap__ref){.value = plan->root[value], .bytes = plan->offset[value]};
}

static void set_refs(tap__plan *plan, tap__step *step, tap__ref *refs, int32_t count)
{
    step->refs = refs;
    step->nrefs = count;
    if (count > plan->nrefs_max)
        plan->nrefs_max = count;
}

/* -------------------------------------------------------------------------------------------------------- chains */

/* Whether the result must be in memory: somebody outside of nodes[from, to) of the chain reads it. */
static bool needs_store(const builder *self, int32_t value, int from, int to)
{
    const tap__planning *plan = self->plan;
    int inside = 0;
    if (plan->boxed[value] || tap__assigns(&plan->graph->nodes[plan->graph->values[value].node]))
        return true;
    for (int i = from; i < to; i++) {
        const tap__node *node = &plan->graph->nodes[self->open.nodes[i]];
        for (int32_t s = 0; s < node->nsources; s++)
            inside += node->sources[s].kind == TAP__SOURCE_VALUE && node->sources[s].value == value;
    }
    return self->readers[value] > inside;
}

typedef struct chain_parts {
    tap__pw_node nodes[MAX_CHAIN];
    tap__operand loads[TAP_PW_MAX_LOADS], stores[TAP_PW_MAX_STORES];
    int32_t load_values[TAP_PW_MAX_LOADS], store_values[TAP_PW_MAX_STORES];
    int nloads, nstores;
} chain_parts;

/* false: too many loads or stores for one pass */
static bool collect_parts(const builder *self, int from, int to, chain_parts *parts)
{
    const tap__planning *plan = self->plan;
    parts->nloads = parts->nstores = 0;
    for (int i = from; i < to; i++) {
        int32_t index = self->open.nodes[i];
        const tap__node *node = &plan->graph->nodes[index];
        tap__pw_node *out = &parts->nodes[i - from];
        out->call = &plan->plan->calls[index];
        out->store = -1;
        for (int32_t s = 0; s < node->nsources; s++) {
            int32_t value = node->sources[s].value;
            if (node->sources[s].kind != TAP__SOURCE_VALUE || (s == TAP__ASSIGN_INTO && tap__assigns(node)))
                continue;
            int at = self->chained[value] - 1;
            if (at >= from) {
                out->from[s] = at - from;
                continue;
            }
            int load = 0;
            while (load < parts->nloads && parts->load_values[load] != value)
                load++;
            if (load == TAP_PW_MAX_LOADS)
                return false;
            if (load == parts->nloads) {
                parts->load_values[load] = value;
                parts->loads[parts->nloads++] = plan->plan->values[value];
            }
            out->from[s] = ~load;
        }
        if (!needs_store(self, node->first_value, from, to))
            continue;
        if (parts->nstores == TAP_PW_MAX_STORES)
            return false;
        out->store = parts->nstores;
        parts->store_values[parts->nstores] = node->first_value;
        parts->stores[parts->nstores++] = plan->plan->values[node->first_value];
    }
    return true;
}

static tap_status emit_chain(builder *self, int from, int to)
{
    tap__planning *planning = self->plan;
    tap__plan *plan = planning->plan;
    chain_parts *parts = tap__plan_alloc(plan, 1, sizeof *parts);
    if (!parts)
        return tap_fail_nomem(self->err);
    if (!collect_parts(self, from, to, parts)) {
        int middle = from + (to - from) / 2;
        TAP_TRY(emit_chain(self, from, middle));
        return emit_chain(self, middle, to);
    }
    if (parts->nstores == 0)
        return TAP_OK; /* nobody reads any of it */
    tap__step *step = new_step(self, TAP__STEP_CHAIN, self->open.nodes[to - 1]);
    TAP_TRY(tap__pw_build(parts->nodes, to - from, parts->loads, parts->nloads, parts->stores, parts->nstores,
                          planning->in->threads, &step->chain, self->err));
    int32_t count = parts->nloads + parts->nstores;
    tap__ref *refs = tap__plan_alloc(plan, (size_t)count + 1, sizeof *refs);
    if (!refs)
        return tap_fail_nomem(self->err);
    for (int i = 0; i < parts->nloads; i++)
        refs[i] = ref_of(planning, parts->load_values[i]);
    for (int i = 0; i < parts->nstores; i++) {
        refs[parts->nloads + i] = ref_of(planning, parts->store_values[i]);
        planning->stored[parts->store_values[i]] = true;
        planning->made_by[parts->store_values[i]] = plan->nsteps - 1;
    }
    refs[count] = (tap__ref){.value = TAP__REF_NONE}; /* scratch: plan_memory.c */
    set_refs(plan, step, refs, count + 1);
    step->observed = tap__plan_alloc(plan, (size_t)(to - from), sizeof *step->observed);
    if (!step->observed)
        return tap_fail_nomem(self->err);
    for (int i = from; i < to; i++)
        if ((planning->graph->nodes[self->open.nodes[i]].flags & TAP_CALL_OBSERVE) ||
            (planning->in->flags & TAP_ENGINE_EVERY_NODE))
            step->observed[step->nobserved++] = self->open.nodes[i];
    return TAP_OK;
}

static tap_status close_chain(builder *self)
{
    int count = self->open.count;
    if (count == 0)
        return TAP_OK;
    TAP_TRY(emit_chain(self, 0, count));
    for (int i = 0; i < count; i++)
        self->chained[self->plan->graph->nodes[self->open.nodes[i]].first_value] = 0;
    self->open.count = self->open.assigns = 0;
    return TAP_OK;
}

/* 2: joins as it is; 1: reads nothing of the chain; 0: reads a view of what the chain has yet to store */
static int reads_chain(const builder *self, const tap__node *node)
{
    int result = 1;
    for (int32_t s = 0; s < node->nsources; s++) {
        int32_t value = node->sources[s].value;
        if (node->sources[s].kind != TAP__SOURCE_VALUE)
            continue;
        if (self->chained[value])
            result = 2;
        else if (self->chained[self->plan->root[value]])
            return 0;
    }
    return result;
}

/* Whether one of the two would see the other's write, or half of it, in one pass. */
static bool collides(const builder *self, const tap__node *reader, const tap__node *writer, bool reader_first)
{
    const tap_graph *graph = self->plan->graph;
    int32_t into = writer->sources[TAP__ASSIGN_INTO].value;
    for (int32_t s = 0; s < reader->nsources; s++) {
        int32_t value = reader->sources[s].value;
        bool as_it_lies = reader_first && value == into && !tap__assigns(reader);
        if (reader->sources[s].kind == TAP__SOURCE_VALUE && !self->chained[value] && !as_it_lies &&
            tap__may_share(graph, value, into))
            return true;
    }
    return false;
}

/* Whether the node must not be in one pass with what the chain has. */
static bool collides_with_chain(const builder *self, const tap__node *node)
{
    bool assigns = tap__assigns(node);
    for (int i = 0; (assigns || self->open.assigns) && i < self->open.count; i++) {
        const tap__node *other = &self->plan->graph->nodes[self->open.nodes[i]];
        if ((assigns && collides(self, other, node, true)) || (tap__assigns(other) && collides(self, node, other, false)))
            return true;
    }
    return false;
}

static tap_status add_pointwise(builder *self, int32_t index)
{
    tap__planning *planning = self->plan;
    const tap__node *node = &planning->graph->nodes[index];
    const tap__operand *out = &planning->plan->values[node->first_value];
    bool fuse = !(planning->in->flags & TAP_ENGINE_EVERY_NODE);
    if (self->open.count > 0) {
        int32_t first = planning->graph->nodes[self->open.nodes[0]].first_value;
        if (!fuse || self->open.count == MAX_CHAIN || !tap__operand_same_sizes(&planning->plan->values[first], out) ||
            reads_chain(self, node) == 0 || collides_with_chain(self, node))
            TAP_TRY(close_chain(self));
    }
    self->open.nodes[self->open.count++] = index;
    self->open.assigns += tap__assigns(node);
    self->chained[node->first_value] = self->open.count;
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------- kernels and the host */

static tap_status observe_step(builder *self, tap__step *step, int32_t index)
{
    const tap__planning *planning = self->plan;
    if (!(planning->graph->nodes[index].flags & TAP_CALL_OBSERVE) && !(planning->in->flags & TAP_ENGINE_EVERY_NODE))
        return TAP_OK;
    step->observed = tap__plan_alloc(planning->plan, 1, sizeof *step->observed);
    if (!step->observed)
        return tap_fail_nomem(self->err);
    step->observed[step->nobserved++] = index;
    return TAP_OK;
}

static tap_status add_kernel(builder *self, int32_t index)
{
    tap__planning *planning = self->plan;
    tap__plan *plan = planning->plan;
    const tap__node *node = &planning->graph->nodes[index];
    if (reads_chain(self, node) != 1 || self->open.assigns)
        TAP_TRY(close_chain(self));
    tap__call *call = &plan->calls[index];
    tap__ref *refs = tap__plan_alloc(plan, (size_t)(call->nin + call->nout + 1), sizeof *refs);
    if (!refs)
        return tap_fail_nomem(self->err);
    tap__step *step = new_step(self, TAP__STEP_KERNEL, index);
    step->call = call;
    int32_t count = 0;
    for (int i = 0; i < call->nin; i++)
        refs[count++] = node->sources[i].kind == TAP__SOURCE_VALUE ? ref_of(planning, node->sources[i].value)
                                                                   : (tap__ref){.value = TAP__REF_NONE};
    for (int i = 0; i < call->nout; i++) {
        int32_t value = node->first_value + i;
        bool absent = call->out[i].dtype == TAP_DTYPE_NONE;
        refs[count++] = absent ? (tap__ref){.value = TAP__REF_NONE} : ref_of(planning, value);
        planning->stored[value] = !absent;
        planning->made_by[value] = plan->nsteps - 1;
    }
    refs[count++] = (tap__ref){.value = TAP__REF_NONE}; /* scratch: plan_memory.c */
    set_refs(plan, step, refs, count);
    return observe_step(self, step, index);
}

static tap_status add_host(builder *self, int32_t index)
{
    TAP_TRY(close_chain(self));
    tap__step *step = new_step(self, TAP__STEP_HOST, index);
    const tap__node *node = &self->plan->graph->nodes[index];
    for (int32_t i = 0; i < node->nvalues; i++)
        self->plan->made_by[node->first_value + i] = self->plan->plan->nsteps - 1;
    return observe_step(self, step, index);
}

/* How often each value is read; a view counts for its root too, once, whoever reads the view. */
static void count_readers(builder *self)
{
    const tap__planning *planning = self->plan;
    for (int32_t n = planning->first; n < planning->end; n++) {
        const tap__node *node = &planning->graph->nodes[n];
        if (planning->plan->on_host[n]) {
            for (int32_t i = 0; i < node->nuses; i++)
                self->readers[node->uses[i]]++;
            continue;
        }
        for (int32_t s = 0; s < node->nsources; s++)
            if (node->sources[s].kind == TAP__SOURCE_VALUE)
                self->readers[node->sources[s].value]++;
    }
}

tap_status tap__plan_steps(tap__planning *planning, tap_error *err)
{
    const tap_graph *graph = planning->graph;
    tap__plan *plan = planning->plan;
    builder *self = tap__plan_alloc(plan, 1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    *self = (builder){.plan = planning, .err = err};
    self->chained = tap__plan_alloc(plan, (size_t)graph->nvalues, sizeof *self->chained);
    self->readers = tap__plan_alloc(plan, (size_t)graph->nvalues, sizeof *self->readers);
    /* a chain that is split becomes more than one step, never more than it has nodes */
    plan->steps = tap__plan_alloc(plan, (size_t)(planning->end - planning->first) + 1, sizeof *plan->steps);
    if (!self->chained || !self->readers || !plan->steps)
        return tap_fail_nomem(err);
    for (int32_t v = 0; v < graph->nvalues; v++)
        planning->made_by[v] = -1;
    count_readers(self);
    for (int32_t n = planning->first; n < planning->end; n++) {
        tap_op_kind kind = graph->nodes[n].op->kind;
        if (plan->on_host[n])
            TAP_TRY(add_host(self, n));
        else if (kind == TAP_OP_POINTWISE)
            TAP_TRY(add_pointwise(self, n));
        else if (kind == TAP_OP_KERNEL)
            TAP_TRY(add_kernel(self, n));
    }
    return close_chain(self);
}
