/* plan_memory.c - how long each value is needed, which the host allocates, and where the others lie in the arena.
 *
 * The arena is laid out greedily in the order values come to life: each takes the lowest gap that is big enough among
 * those alive at the same time. */
#include "engine/plan.h"

#include "base/status.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct block {
    size_t offset, size;
    int32_t until; /* last step that needs it */
} block;

typedef struct layout {
    block *live;   /* by offset */
    int32_t count;
    size_t top;
} layout;

size_t tap__plan_extent(const tap__operand *operand)
{
    size_t bytes = tap__operand_bytes(operand);
    return bytes ? (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1) : ALIGN;
}

static size_t place(layout *self, int32_t now, int32_t until, size_t size)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < self->count; i++)
        if (self->live[i].until >= now)
            self->live[kept++] = self->live[i];
    self->count = kept;
    size_t at = 0;
    int32_t i = 0;
    while (i < self->count && self->live[i].offset - at < size) {
        at = self->live[i].offset + self->live[i].size;
        i++;
    }
    memmove(&self->live[i + 1], &self->live[i], (size_t)(self->count - i) * sizeof *self->live);
    self->live[i] = (block){.offset = at, .size = size, .until = until};
    self->count++;
    if (at + size > self->top)
        self->top = at + size;
    return at;
}

static void use(tap__planning *self, int32_t value, int32_t step)
{
    int32_t root = self->root[value];
    if (self->last_use[root] < step)
        self->last_use[root] = step;
}

static void find_lifetimes(tap__planning *self)
{
    const tap_graph *graph = self->graph;
    for (int32_t v = 0; v < graph->nvalues; v++)
        self->last_use[v] = -1;
    for (int32_t s = 0; s < self->plan->nsteps; s++) {
        const tap__step *step = &self->plan->steps[s];
        for (int32_t i = 0; i < step->nrefs; i++)
            if (step->refs[i].value >= 0)
                use(self, step->refs[i].value, s);
        const tap__node *node = &graph->nodes[step->node];
        for (int32_t i = 0; step->kind == TAP__STEP_HOST && i < node->nuses; i++)
            use(self, node->uses[i], s);
        for (int32_t o = 0; o < step->nobserved; o++) {
            const tap__node *seen = &graph->nodes[step->observed[o]];
            for (int32_t i = 0; i < seen->nvalues; i++)
                use(self, seen->first_value + i, s);
            for (int32_t i = 0; i < seen->nuses; i++)
                use(self, seen->uses[i], s);
        }
    }
    for (int32_t i = 0; i < graph->noutputs; i++)
        self->last_use[graph->outputs[i]] = INT32_MAX;
    for (int32_t n = self->end; n < graph->nnodes; n++)
        for (int32_t i = 0; i < graph->nodes[n].nuses; i++)
            self->last_use[graph->nodes[n].uses[i]] = INT32_MAX;
}

/* Values the host holds: allocated before the step that makes them, let go after the last that reads them. */
static tap_status plan_boxes(tap__planning *self, tap_error *err)
{
    tap__plan *plan = self->plan;
    const tap_graph *graph = self->graph;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t s = 0; pass == 1 && s < plan->nsteps; s++) {
            tap__step *step = &plan->steps[s];
            step->fresh = tap__plan_alloc(plan, (size_t)step->nfresh, sizeof *step->fresh);
            step->done = tap__plan_alloc(plan, (size_t)step->ndone, sizeof *step->done);
            if (!step->fresh || !step->done)
                return tap_fail_nomem(err);
            step->nfresh = step->ndone = 0;
        }
        for (int32_t v = 0; v < graph->nvalues; v++) {
            bool own = self->root[v] == v, native = self->stored[v];
            int32_t made = self->made_by[v], last = self->last_use[v];
            if (!own || graph->values[v].type == TAP_SPEC_INT || (native && !self->boxed[v]))
                continue;
            if (native) {
                tap__step *step = &plan->steps[made];
                if (pass == 1)
                    step->fresh[step->nfresh] = v;
                step->nfresh++;
            }
            if (last == INT32_MAX || (made < 0 && last < 0))
                continue;
            tap__step *step = &plan->steps[last > made ? last : made];
            if (pass == 1)
                step->done[step->ndone] = v;
            step->ndone++;
        }
    }
    return TAP_OK;
}

/* What chains keep their blocks in lies in front, always in the same place: it stays in the cache. */
static void reserve_room(tap__plan *plan, layout *arena)
{
    for (int32_t s = 0; s < plan->nsteps; s++) {
        tap__step *step = &plan->steps[s];
        size_t room = step->chain ? tap__pw_room(step->chain) : 0;
        plan->room = room > plan->room ? room : plan->room;
        if (room)
            step->refs[step->nrefs - 1] = (tap__ref){.value = TAP__REF_ARENA};
    }
    if (plan->room)
        place(arena, 0, INT32_MAX, plan->room);
}

static tap_status plan_arena(tap__planning *self, tap_error *err)
{
    tap__plan *plan = self->plan;
    layout arena = {.live = tap__plan_alloc(plan, (size_t)self->graph->nvalues + (size_t)plan->nsteps + 1, sizeof(block))};
    int64_t *at = tap__plan_alloc(plan, (size_t)self->graph->nvalues, sizeof *at);
    if (!arena.live || !at)
        return tap_fail_nomem(err);
    memset(at, 0xFF, (size_t)self->graph->nvalues * sizeof *at);
    reserve_room(plan, &arena);
    for (int32_t s = 0; s < plan->nsteps; s++) {
        tap__step *step = &plan->steps[s];
        for (int32_t i = 0; i < step->nrefs; i++) {
            int32_t value = step->refs[i].value;
            if (value < 0 || !self->stored[value] || self->boxed[value])
                continue;
            if (at[value] < 0)
                at[value] = (int64_t)place(&arena, s, self->last_use[value] > s ? self->last_use[value] : s,
                                           tap__plan_extent(&plan->values[value]));
            step->refs[i] = (tap__ref){.value = TAP__REF_ARENA, .bytes = at[value] + step->refs[i].bytes};
        }
        if (step->call && step->call->scratch > 0)
            step->refs[step->nrefs - 1] =
                (tap__ref){.value = TAP__REF_ARENA, .bytes = (int64_t)place(&arena, s, s, (step->call->scratch + ALIGN - 1) &
                                                                                            ~(size_t)(ALIGN - 1))};
    }
    plan->arena = arena.top;
    return TAP_OK;
}

/* Bytes a step reads and writes, once each. */
static void count_bytes(tap__planning *self)
{
    for (int32_t s = 0; s < self->plan->nsteps; s++) {
        tap__step *step = &self->plan->steps[s];
        for (int32_t i = 0; i < step->nrefs; i++)
            if (step->refs[i].value >= 0)
                step->bytes += tap__plan_extent(&self->plan->values[step->refs[i].value]);
    }
}

tap_status tap__plan_memory(tap__planning *self, tap_error *err)
{
    count_bytes(self);
    find_lifetimes(self);
    TAP_TRY(plan_boxes(self, err));
    return plan_arena(self, err);
}
