/* plan.c - sizes, kernels and who runs what: the first half of planning. */
#include "engine/plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

void *tap__plan_alloc(tap__plan *plan, size_t count, size_t size)
{
    return tap__arena_calloc(&plan->memory, count ? count : 1, size);
}

void tap__plan_free(tap__plan *plan, int32_t nnodes)
{
    if (!plan)
        return;
    for (int32_t i = 0; i < plan->nsteps; i++)
        tap__pw_free(plan->steps[i].chain);
    for (int32_t i = 0; plan->calls && i < nnodes; i++) {
        tap__call *call = &plan->calls[i];
        const tap__kernel *kernel = call->op ? tap__kernel_of(call->op) : NULL;
        if (kernel && kernel->release && !plan->on_host[i])
            kernel->release(call);
    }
    tap__arena_free(&plan->memory);
    tap__free(plan);
}

/* --------------------------------------------------------------------------------------------------------- sizes */

/* Whether all of it can be addressed; sizes nobody could allocate are the host's to complain about. */
static bool is_addressable(const tap__operand *operand, int32_t ndim)
{
    int64_t count = 1, last = 0, far, bytes;
    for (int32_t i = 0; i < ndim; i++) {
        if (operand->size[i] < 0 || operand->stride[i] < 0 ||
            __builtin_mul_overflow(count, operand->size[i] > 0 ? operand->size[i] : 1, &count) ||
            __builtin_mul_overflow(operand->size[i], operand->stride[i], &far) || __builtin_add_overflow(last, far, &last))
            return false;
    }
    /* a dtype's elements are at most 16 bytes; scratch may hold several times as much */
    return !__builtin_mul_overflow(count > last ? count : last, 1024, &bytes);
}

static void concrete_value(const tap__plan *plan, const tap__value *value, tap__operand *out)
{
    *out = (tap__operand){.dtype = value->dtype, .ndim = -1};
    if (value->type != TAP_SPEC_TENSOR || value->inferred)
        return;
    for (int32_t i = 0; i < value->ndim; i++) {
        if (!plan->have[value->size[i]] || !plan->have[value->stride[i]])
            return;
        out->size[i] = plan->syms[value->size[i]];
        out->stride[i] = plan->syms[value->stride[i]];
    }
    if (is_addressable(out, value->ndim))
        out->ndim = value->ndim;
}

static void contiguous_strides(tap__operand *operand)
{
    int64_t step = 1;
    for (int i = operand->ndim - 1; i >= 0; i--) {
        operand->stride[i] = step;
        step *= operand->size[i] > 0 ? operand->size[i] : 1;
    }
}

/* --------------------------------------------------------------------------------------------------------- calls */

static bool concrete_source(const tap__plan *plan, const tap__source *source, tap__operand *out)
{
    switch (source->kind) {
    case TAP__SOURCE_NONE: *out = (tap__operand){.dtype = TAP_DTYPE_NONE}; return true;
    case TAP__SOURCE_VALUE: *out = plan->values[source->value]; return out->ndim >= 0;
    case TAP__SOURCE_NUMBER:
        *out = (tap__operand){.is_number = true, .number = source->number,
                              .dtype = tap__number_dtype(&source->number)};
        return true;
    case TAP__SOURCE_SYM:
        *out = (tap__operand){.is_number = true, .dtype = TAP_I64};
        if (!plan->have[source->sym])
            return false;
        out->number = (tap__number){.kind = 'I', .i = plan->syms[source->sym], .re = (double)plan->syms[source->sym]};
        return true;
    }
    return false;
}

/* 1: done, 0: a symbol is not known here, -1: no memory */
static int concrete_attr(tap__plan *plan, const tap__attr_source *from, tap__attr *out)
{
    *out = from->fixed;
    if (!from->syms)
        return 1;
    if (out->type == TAP_ATTR_INTS) {
        int64_t *ints = tap__plan_alloc(plan, (size_t)out->count, sizeof *ints);
        if (!ints)
            return -1;
        for (int i = 0; i < out->count; i++) {
            if (from->syms[i] >= 0 && !plan->have[from->syms[i]])
                return 0;
            ints[i] = from->syms[i] >= 0 ? plan->syms[from->syms[i]] : out->ints[i];
        }
        out->ints = ints;
        return 1;
    }
    if (!plan->have[from->syms[0]])
        return 0;
    out->i = plan->syms[from->syms[0]];
    out->f = (double)out->i;
    out->scalar = (tap__number){.kind = 'I', .i = out->i, .re = out->f};
    return 1;
}

static bool broadcasts(const tap__operand *in, const tap__operand *out)
{
    if (in->ndim > out->ndim)
        return false;
    for (int i = 0; i < in->ndim; i++) {
        int64_t size = in->size[i];
        if (size != 1 && size != out->size[out->ndim - in->ndim + i])
            return false;
    }
    return true;
}

static bool may_be_absent(const tap_op *op, int output)
{
    return output < op->noutputs && op->output_optional[output];
}

/* Whether the operands' sizes go together as the operator needs it. Kernels rely on that. */
static bool sizes_fit(const tap__call *call)
{
    tap__operand out[TAP_OP_MAX_OUTPUTS];
    tap__call asked = *call;
    if (call->op->kind == TAP_OP_POINTWISE) {
        for (int i = 0; i < call->nin; i++)
            if (call->in[i].dtype != TAP_DTYPE_NONE && !call->in[i].is_number && !broadcasts(&call->in[i], &call->out[0]))
                return false;
        return call->out[0].dtype != TAP_DTYPE_NONE;
    }
    for (int i = 0; i < call->nout; i++)
        if (call->out[i].dtype == TAP_DTYPE_NONE && call->op->kind == TAP_OP_KERNEL && !may_be_absent(call->op, i))
            return false;
    if (call->op->kind != TAP_OP_KERNEL || !call->op->shape || call->op->user || call->nout > TAP_OP_MAX_OUTPUTS)
        return true;
    memcpy(out, call->out, (size_t)call->nout * sizeof out[0]);
    asked.out = out;
    if (call->op->shape(&asked, NULL) != TAP_OK)
        return false;
    for (int i = 0; i < call->nout; i++)
        if (call->out[i].dtype != TAP_DTYPE_NONE &&
            (!tap__operand_same_sizes(&out[i], &call->out[i]) || /* indices are not converted */
             (i > 0 && out[i].dtype == TAP_I64 && call->out[i].dtype != TAP_I64)))
            return false;
    return true;
}

/* Whether what is assigned lies in memory just as the input it goes into. */
static bool lands(const tap__node *node, const tap__call *call)
{
    if (!tap__assigns(node))
        return true;
    const tap__operand *into = &call->in[TAP__ASSIGN_INTO], *out = &call->out[0];
    return into->dtype == out->dtype && tap__operand_same_layout(into, out);
}

/* Fills plan->calls[index]; *fits is false when something about it is not known here. */
static tap_status make_call(tap__planning *self, int32_t index, bool *fits, tap_error *err)
{
    tap__plan *plan = self->plan;
    const tap__node *node = &self->graph->nodes[index];
    tap__call *call = &plan->calls[index];
    int nattrs = node->op->nparams - node->op->ninputs;
    *call = (tap__call){.op = node->op, .name = node->name, .nin = node->nsources, .nout = node->nvalues,
                        .threads = self->in->threads};
    call->in = tap__plan_alloc(plan, (size_t)call->nin, sizeof *call->in);
    call->out = tap__plan_alloc(plan, (size_t)call->nout, sizeof *call->out);
    tap__attr *attrs = tap__plan_alloc(plan, (size_t)nattrs, sizeof *attrs);
    call->attrs = attrs;
    if (!call->in || !call->out || !attrs)
        return tap_fail_nomem(err);
    *fits = false;
    for (int i = 0; i < call->nin; i++)
        if (!concrete_source(plan, &node->sources[i], &call->in[i]))
            return TAP_OK;
    for (int i = 0; i < nattrs; i++) {
        int done = concrete_attr(plan, &node->attrs[i], &attrs[i]);
        if (done < 0)
            return tap_fail_nomem(err);
        if (!done)
            return TAP_OK;
    }
    bool infer = false;
    for (int i = 0; i < call->nout; i++) {
        const tap__value *value = &self->graph->values[node->first_value + i];
        call->out[i] = plan->values[node->first_value + i];
        if (value->type == TAP_SPEC_NONE)
            call->out[i] = (tap__operand){.dtype = TAP_DTYPE_NONE};
        else if (value->inferred)
            infer = true;
        else if (call->out[i].ndim < 0)
            return TAP_OK;
    }
    if (infer) {
        if (!node->op->shape)
            return tap_fail(err, TAP_E_INVALID, "node %s: operator %s has no shape rule; give the sizes of its outputs",
                            node->name, node->op->name);
        TAP_TRY(node->op->shape(call, err));
        for (int i = 0; i < call->nout; i++) {
            contiguous_strides(&call->out[i]);
            plan->values[node->first_value + i] = call->out[i];
        }
    }
    *fits = (infer || sizes_fit(call)) && lands(node, call);
    return TAP_OK;
}

static tap_status prepare_node(tap__planning *self, int32_t index, tap_error *err)
{
    tap__plan *plan = self->plan;
    const tap__node *node = &self->graph->nodes[index];
    plan->on_host[index] = true;
    if (!self->in->native[index])
        return TAP_OK;
    bool fits = false;
    TAP_TRY(make_call(self, index, &fits, err));
    if (!fits)
        return TAP_OK;
    const tap__kernel *kernel = tap__kernel_of(node->op);
    if (kernel && kernel->prepare) {
        tap_status status = kernel->prepare(&plan->calls[index], err);
        if (status == TAP_E_UNSUPPORTED)
            return TAP_OK;
        TAP_TRY(status);
    }
    plan->on_host[index] = false;
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------- who holds what */

/* Whose memory a value is in, as far as views and assignments tell. */
static int32_t origin(const tap_graph *graph, int32_t value)
{
    for (;;) {
        int32_t maker = graph->values[value].node;
        const tap__node *node = maker < 0 ? NULL : &graph->nodes[maker];
        int source = node && tap__assigns(node) ? TAP__ASSIGN_INTO : 0;
        if (!node || (node->op->kind != TAP_OP_VIEW && !tap__assigns(node)) || node->nsources <= source ||
            node->sources[source].kind != TAP__SOURCE_VALUE)
            return value;
        value = node->sources[source].value;
    }
}

bool tap__may_share(const tap_graph *graph, int32_t value, int32_t into)
{
    int32_t from = origin(graph, value), maker = graph->values[from].node;
    if (from == into)
        return true;
    if (maker < 0 || graph->nodes[maker].op->kind != TAP_OP_HOST)
        return false;
    const tap__node *node = &graph->nodes[maker]; /* what the host makes may be a view of what it was given */
    for (int32_t i = 0; i < node->nuses; i++)
        if (origin(graph, node->uses[i]) == into)
            return true;
    return false;
}

/* Which values the host must hold, and so which views it must make. Back to front: a view the host makes needs its
 * base held too. */
static void find_boxed(tap__planning *self)
{
    const tap_graph *graph = self->graph;
    bool every = self->in->flags & TAP_ENGINE_EVERY_NODE;
    for (int32_t v = 0; v < graph->nvalues; v++)
        self->boxed[v] = graph->values[v].is_output || every;
    for (int32_t n = self->end; n < graph->nnodes; n++) /* later segments */
        for (int32_t i = 0; i < graph->nodes[n].nuses; i++)
            self->boxed[graph->nodes[n].uses[i]] = true;
    for (int32_t n = self->end - 1; n >= self->first; n--) {
        const tap__node *node = &graph->nodes[n];
        bool observed = node->flags & TAP_CALL_OBSERVE, held = false;
        for (int32_t i = 0; i < node->nvalues; i++) {
            self->boxed[node->first_value + i] |= observed;
            held |= self->boxed[node->first_value + i];
        }
        if ((node->op->kind == TAP_OP_VIEW || tap__assigns(node)) && held)
            self->plan->on_host[n] = true;
        if (self->plan->on_host[n])
            for (int32_t i = 0; i < node->nuses; i++)
                self->boxed[node->uses[i]] = true;
    }
}

/* Whether a view stays inside its root's memory, where that is ours: how long the host's is, is not known. */
static bool is_inside(const tap__planning *self, int32_t value)
{
    int32_t root = self->root[value], node = self->graph->values[root].node;
    const tap__operand *view = &self->plan->values[value];
    if (node < self->first || self->plan->on_host[node] || tap__operand_count(view) == 0)
        return true;
    int64_t from = self->offset[value], room = (int64_t)tap__operand_bytes(&self->plan->values[root]);
    return from >= 0 && from <= room && (int64_t)tap__operand_bytes(view) <= room - from;
}

static tap_status find_roots(tap__planning *self, tap_error *err)
{
    const tap_graph *graph = self->graph;
    tap__plan *plan = self->plan;
    for (int32_t v = 0; v < graph->nvalues; v++)
        self->root[v] = v;
    for (int32_t n = self->first; n < self->end; n++) {
        const tap__node *node = &graph->nodes[n];
        if (plan->on_host[n] || (node->op->kind != TAP_OP_VIEW && !tap__assigns(node)))
            continue;
        int32_t from = node->sources[tap__assigns(node) ? TAP__ASSIGN_INTO : 0].value;
        const tap__value *base = &graph->values[from];
        int64_t base_item = tap_dtype_describe(base->dtype)->bytes;
        for (int32_t i = 0; i < node->nvalues; i++) {
            const tap__value *value = &graph->values[node->first_value + i];
            int64_t item = tap_dtype_describe(value->dtype)->bytes;
            self->root[node->first_value + i] = self->root[from];
            int64_t begin, base_begin, *offset = &self->offset[node->first_value + i];
            if (__builtin_mul_overflow(plan->syms[value->offset], item, &begin) ||
                __builtin_mul_overflow(plan->syms[base->offset], base_item, &base_begin) ||
                __builtin_sub_overflow(begin, base_begin, &begin) ||
                __builtin_add_overflow(self->offset[from], begin, offset) || !is_inside(self, node->first_value + i))
                return tap_fail(err, TAP_E_INVALID, "node %s: it is a view that reaches past the memory of its base",
                                node->name);
        }
    }
    return TAP_OK;
}

/* A view needs the offsets of both ends; one that lacks them is made by the host. */
static void check_views(tap__planning *self)
{
    const tap_graph *graph = self->graph;
    const bool *have = self->plan->have;
    for (int32_t n = self->first; n < self->end; n++) {
        const tap__node *node = &graph->nodes[n];
        if (self->plan->on_host[n] || node->op->kind != TAP_OP_VIEW)
            continue;
        bool known = node->nsources > 0 && node->sources[0].kind == TAP__SOURCE_VALUE;
        tap_sym base = known ? graph->values[node->sources[0].value].offset : -1;
        known = known && base >= 0 && have[base];
        for (int32_t i = 0; known && i < node->nvalues; i++) {
            tap_sym offset = graph->values[node->first_value + i].offset;
            known = offset >= 0 && have[offset] && self->plan->values[node->first_value + i].ndim >= 0;
        }
        self->plan->on_host[n] = !known;
    }
}

static tap_status allocate(tap__planning *self, tap_error *err)
{
    tap__plan *plan = self->plan;
    size_t values = (size_t)self->graph->nvalues, nodes = (size_t)self->graph->nnodes;
    size_t syms = (size_t)self->graph->syms.count, symbols = (size_t)self->graph->syms.nsymbols;
    plan->symbols = tap__plan_alloc(plan, symbols, sizeof *plan->symbols);
    plan->syms = tap__plan_alloc(plan, syms, sizeof *plan->syms);
    plan->have = tap__plan_alloc(plan, syms, sizeof *plan->have);
    plan->values = tap__plan_alloc(plan, values, sizeof *plan->values);
    plan->on_host = tap__plan_alloc(plan, nodes, sizeof *plan->on_host);
    tap__call *calls = tap__plan_alloc(plan, nodes, sizeof *calls);
    self->root = tap__plan_alloc(plan, values, sizeof *self->root);
    self->offset = tap__plan_alloc(plan, values, sizeof *self->offset);
    self->boxed = tap__plan_alloc(plan, values, sizeof *self->boxed);
    self->stored = tap__plan_alloc(plan, values, sizeof *self->stored);
    self->last_use = tap__plan_alloc(plan, values, sizeof *self->last_use);
    self->made_by = tap__plan_alloc(plan, values, sizeof *self->made_by);
    if (!plan->symbols || !plan->syms || !plan->have || !plan->values || !plan->on_host || !calls || !self->root ||
        !self->offset || !self->boxed || !self->stored || !self->last_use || !self->made_by)
        return tap_fail_nomem(err);
    memset(plan->on_host, true, nodes);
    plan->calls = calls;
    return TAP_OK;
}

static tap_status make(tap__planning *self, tap_error *err)
{
    const tap_graph *graph = self->graph;
    tap__plan *plan = self->plan;
    TAP_TRY(allocate(self, err));
    memcpy(plan->symbols, self->in->symbols, (size_t)graph->syms.nsymbols * sizeof *plan->symbols);
    tap__syms_eval(&graph->syms, self->in->symbols, self->in->known, plan->syms, plan->have);
    for (int32_t v = 0; v < graph->nvalues; v++)
        concrete_value(plan, &graph->values[v], &plan->values[v]);
    for (int32_t n = self->first; n < self->end; n++)
        TAP_TRY(prepare_node(self, n, err));
    check_views(self);
    find_boxed(self);
    TAP_TRY(find_roots(self, err));
    TAP_TRY(tap__plan_steps(self, err));
    return tap__plan_memory(self, err);
}

tap_status tap__plan_make(const tap__plan_input *input, tap__plan **out, tap_error *err)
{
    tap__plan *plan = tap__calloc(1, sizeof *plan);
    *out = NULL;
    if (!plan)
        return tap_fail_nomem(err);
    tap__arena_init_unlimited(&plan->memory);
    plan->segment = input->segment;
    plan->threads = input->threads;
    tap__planning self = {.in = input, .plan = plan, .graph = input->graph,
                          .first = input->segments[input->segment].first,
                          .end = input->segments[input->segment].end};
    tap_status status = make(&self, err);
    if (status != TAP_OK) {
        tap__plan_free(plan, input->graph->nnodes);
        return status;
    }
    *out = plan;
    return TAP_OK;
}
