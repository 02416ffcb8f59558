/* engine.c - making an engine from a graph: which nodes it may run itself, where sizes depend on data. */
#include "engine/engine.h"

#include "base/memory.h"
#include "base/sized.h"

#include <string.h>

/* ----------------------------------------------------------------------------------------------- what runs where */

/* dtypes and ranks are all that is known before a run. */
static bool chain_takes(const tap_graph *graph, const tap__node *node)
{
    tap__operand in[TAP_PW_MAX_INPUTS] = {0}, out = {0};
    tap__attr attrs[TAP_OP_MAX_PARAMS] = {0};
    if (node->nsources > TAP_PW_MAX_INPUTS)
        return false;
    for (int32_t i = 0; i < node->nsources; i++) {
        const tap__source *source = &node->sources[i];
        if (source->kind == TAP__SOURCE_VALUE) {
            in[i].dtype = graph->values[source->value].dtype;
            in[i].ndim = graph->values[source->value].ndim;
        } else if (source->kind != TAP__SOURCE_NONE) {
            in[i].is_number = true;
            in[i].number = source->kind == TAP__SOURCE_NUMBER ? source->number : (tap__number){.kind = 'I', .i = 1, .re = 1};
            in[i].dtype = tap__number_dtype(&in[i].number);
        }
    }
    for (int i = 0; i < node->op->nparams - node->op->ninputs; i++)
        attrs[i] = node->attrs[i].fixed;
    out.dtype = graph->values[node->first_value].dtype;
    out.ndim = graph->values[node->first_value].ndim;
    tap__call call = {.op = node->op, .name = node->name, .nin = node->nsources, .nout = 1, .in = in, .out = &out,
                      .attrs = attrs, .threads = 1};
    return tap__pw_supports(&call);
}

/* Only graph inputs are written into, and not from their own memory. */
static bool can_assign(const tap_graph *graph, const tap__node *node)
{
    const tap__source *src = &node->sources[0], *into = &node->sources[TAP__ASSIGN_INTO];
    return into->kind == TAP__SOURCE_VALUE && graph->values[into->value].node < 0 &&
           (src->kind != TAP__SOURCE_VALUE || src->value == into->value ||
            !tap__may_share(graph, src->value, into->value));
}

static void find_native(tap_engine *engine)
{
    const tap_graph *graph = engine->graph;
    for (int32_t n = 0; n < graph->nnodes; n++) {
        const tap__node *node = &graph->nodes[n];
        tap_op_kind kind = node->op->kind;
        engine->native[n] = kind == TAP_OP_VIEW || kind == TAP_OP_KERNEL ||
                            (kind == TAP_OP_POINTWISE && chain_takes(graph, node) &&
                             (!tap__assigns(node) || can_assign(graph, node)));
    }
}

/* ------------------------------------------------------------------------------------------------------ segments */

/* How many expressions say how big a value is. */
static int32_t size_count(const tap__value *value)
{
    return value->type == TAP_SPEC_INT ? 1 : value->type == TAP_SPEC_TENSOR && !value->inferred ? value->ndim : 0;
}

static void learn_symbols(const tap_graph *graph, const tap__value *value, bool *known)
{
    for (int32_t i = 0; i < size_count(value); i++) {
        int32_t symbol = tap__sym_is_symbol(&graph->syms, value->size[i]);
        if (symbol >= 0)
            known[symbol] = true;
        symbol = value->type == TAP_SPEC_TENSOR ? tap__sym_is_symbol(&graph->syms, value->stride[i]) : -1;
        if (symbol >= 0)
            known[symbol] = true;
    }
}

static bool is_reached(const tap__value *value, const bool *have)
{
    for (int32_t i = 0; i < size_count(value); i++)
        if (!have[value->size[i]] || (value->type == TAP_SPEC_TENSOR && !have[value->stride[i]]))
            return false;
    return true;
}

/* Whether an operator of ours can tell the only size that is not known, from inputs that are. `now` and `have` are then
 * what is known behind it. */
static bool can_count(const tap_graph *graph, const tap__node *node, bool *now, bool *have)
{
    if (!node->op->counted || tap__sym_is_symbol(&graph->syms, graph->values[node->first_value].size[0]) < 0)
        return false;
    for (int32_t i = 0; i < node->nsources; i++)
        if (node->sources[i].kind != TAP__SOURCE_VALUE || !is_reached(&graph->values[node->sources[i].value], have))
            return false;
    now[tap__sym_is_symbol(&graph->syms, graph->values[node->first_value].size[0])] = true;
    tap__syms_reach(&graph->syms, now, have);
    return is_reached(&graph->values[node->first_value], have);
}

/* Where a size depends on data the graph is cut: before a node that is counted, or behind one that the host runs to
 * see what comes. */
static tap_status find_segments(tap_engine *engine, tap_error *err)
{
    const tap_graph *graph = engine->graph;
    const tap__syms *syms = &graph->syms;
    bool *known = engine->starts_known, *now = tap__calloc((size_t)syms->nsymbols + 1, sizeof *now);
    bool *have = tap__calloc((size_t)syms->count + 1, sizeof *have);
    engine->segments = tap__calloc((size_t)graph->nnodes + 1, sizeof *engine->segments);
    if (!now || !have || !engine->segments) {
        tap__free(now);
        tap__free(have);
        return tap_fail_nomem(err);
    }
    for (int32_t i = 0; i < graph->ninputs; i++)
        learn_symbols(graph, &graph->values[graph->inputs[i]], known);
    memcpy(now, known, (size_t)syms->nsymbols * sizeof *now);
    tap__syms_reach(syms, now, have);
    int32_t first = 0;
    for (int32_t n = 0; n < graph->nnodes; n++) {
        const tap__node *node = &graph->nodes[n];
        bool reached = true;
        for (int32_t i = 0; i < node->nvalues; i++)
            reached = reached && is_reached(&graph->values[node->first_value + i], have);
        if (reached)
            continue;
        if (engine->native[n] && can_count(graph, node, now, have)) {
            engine->segments[engine->nsegments++] = (tap__segment){.first = first, .end = n, .counts = n};
            first = n;
            continue;
        }
        engine->native[n] = false;
        for (int32_t i = 0; i < node->nvalues; i++)
            learn_symbols(graph, &graph->values[node->first_value + i], now);
        tap__syms_reach(syms, now, have);
        engine->segments[engine->nsegments++] = (tap__segment){.first = first, .end = n + 1, .counts = -1};
        first = n + 1;
    }
    engine->segments[engine->nsegments++] = (tap__segment){.first = first, .end = graph->nnodes, .counts = -1};
    tap__free(now);
    tap__free(have);
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------------------- engine */

static bool asks_to_observe(const tap_graph *graph, unsigned flags)
{
    bool asks = flags & TAP_ENGINE_EVERY_NODE;
    for (int32_t n = 0; n < graph->nnodes && !asks; n++)
        asks = graph->nodes[n].flags & TAP_CALL_OBSERVE;
    return asks;
}

/* Every callback that this graph may need is there. */
static tap_status host_check(const tap_host *host, const tap_graph *graph, unsigned flags, tap_error *err)
{
    const char *missing = !host->call      ? "call"
                          : !host->alloc   ? "alloc"
                          : !host->match   ? "match"
                          : !host->release ? "release"
                          : !host->observe && asks_to_observe(graph, flags) ? "observe" : NULL;
    if (missing)
        return tap_fail(err, TAP_E_INVALID, "tap_engine_new: tap_host.%s is NULL, and the graph needs it", missing);
    return TAP_OK;
}

static tap_status host_take(tap_host *to, const tap_host *host, const tap_graph *graph, unsigned flags, tap_error *err)
{
    TAP_NEED_SIZED(err, tap_host, host);
    tap__sized_take(to, host);
    return host_check(to, graph, flags, err);
}

tap_status tap_engine_new(tap_graph *graph, unsigned flags, const tap_host *host, tap_engine **out, tap_error *err)
{
    TAP_NEED(err, graph);
    tap_host taken = {0};
    tap_status valid = out ? host_take(&taken, host, graph, flags, err) : tap__null(err, __func__, "out");
    if (out)
        *out = NULL;
    tap_engine *engine = valid == TAP_OK ? tap__calloc(1, sizeof *engine) : NULL;
    if (!engine) {
        tap_graph_free(graph);
        return valid == TAP_OK ? tap_fail_nomem(err) : valid;
    }
    engine->graph = graph;
    engine->flags = flags;
    engine->host = taken;
    pthread_mutex_init(&engine->lock, NULL);
    size_t nodes = (size_t)graph->nnodes + 1;
    engine->native = tap__calloc(nodes, sizeof *engine->native);
    engine->newest_on_host = tap__calloc(nodes, sizeof *engine->newest_on_host);
    engine->starts_known = tap__calloc((size_t)graph->syms.nsymbols + 1, sizeof *engine->starts_known);
    engine->times = tap__calloc(flags & TAP_ENGINE_PROFILE ? nodes : 1, sizeof *engine->times);
    tap_status status = TAP_E_NOMEM;
    if (engine->native && engine->starts_known && engine->times && engine->newest_on_host) {
        find_native(engine);
        for (int32_t n = 0; n < graph->nnodes; n++)
            engine->newest_on_host[n] = !engine->native[n];
        status = find_segments(engine, err);
    } else {
        tap_fail_nomem(err);
    }
    if (status != TAP_OK) {
        tap_engine_free(engine);
        return status;
    }
    *out = engine;
    return TAP_OK;
}

static void frame_free(tap_frame *frame)
{
    tap__free(frame->symbols);
    tap__free(frame->known);
    tap__free(frame->data);
    tap__free(frame->given);
    tap__free(frame->pointers);
    tap__free(frame);
}

void tap_engine_free(tap_engine *engine)
{
    if (!engine)
        return;
    for (int32_t s = 0; s < engine->nsegments; s++)
        while (engine->segments[s].plans) {
            tap__plan *next = engine->segments[s].plans->next;
            tap__plan_free(engine->segments[s].plans, engine->graph->nnodes);
            engine->segments[s].plans = next;
        }
    while (engine->workspaces) {
        tap__workspace *next = engine->workspaces->next;
        tap__free(engine->workspaces->memory);
        tap__free(engine->workspaces);
        engine->workspaces = next;
    }
    while (engine->frames) {
        tap_frame *next = engine->frames->next;
        frame_free(engine->frames);
        engine->frames = next;
    }
    tap__free(engine->segments);
    tap__free(engine->native);
    tap__free(engine->newest_on_host);
    tap__free(engine->starts_known);
    tap__free(engine->times);
    pthread_mutex_destroy(&engine->lock);
    tap_graph_free(engine->graph);
    tap__free(engine);
}

const tap_graph *tap_engine_graph(const tap_engine *engine)
{
    return engine ? engine->graph : NULL;
}

tap_status tap_engine_count(tap_engine *engine, tap_engine_counts *out)
{
    TAP_NEED(NULL, engine);
    TAP_NEED_SIZED(NULL, tap_engine_counts, out);
    pthread_mutex_lock(&engine->lock);
    tap_engine_counts counts = engine->counts;
    counts.native = counts.views = counts.host = 0;
    for (int32_t n = 0; n < engine->graph->nnodes; n++)
        if (engine->newest_on_host[n] && engine->graph->nodes[n].op->kind != TAP_OP_VIEW)
            counts.host++;
        else if (engine->graph->nodes[n].op->kind == TAP_OP_VIEW)
            counts.views++;
        else
            counts.native++;
    pthread_mutex_unlock(&engine->lock);
    tap__sized_give(out, &counts);
    return TAP_OK;
}

bool tap_engine_is_host(tap_engine *engine, int32_t node)
{
    if (!engine)
        return false;
    pthread_mutex_lock(&engine->lock);
    bool host = node >= 0 && node < engine->graph->nnodes && engine->newest_on_host[node];
    pthread_mutex_unlock(&engine->lock);
    return host;
}

tap_status tap_engine_times(tap_engine *engine, int32_t node, tap_node_times *out)
{
    TAP_NEED(NULL, engine);
    TAP_NEED_SIZED(NULL, tap_node_times, out);
    if (node < 0 || node >= engine->graph->nnodes)
        return TAP_E_INVALID;
    tap_node_times sums = {0};
    if (engine->flags & TAP_ENGINE_PROFILE) {
        tap__times *times = &engine->times[node];
        sums = (tap_node_times){.runs = atomic_load(&times->runs), .nanoseconds = atomic_load(&times->nanoseconds),
                                .bytes = atomic_load(&times->bytes), .last_start = atomic_load(&times->last_start),
                                .last_nanoseconds = atomic_load(&times->last_nanoseconds)};
    }
    tap__sized_give(out, &sums);
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------------------- frames */

static tap_frame *new_frame(tap_engine *engine)
{
    size_t values = (size_t)engine->graph->nvalues + 1, symbols = (size_t)engine->graph->syms.nsymbols + 1;
    tap_frame *frame = tap__calloc(1, sizeof *frame);
    if (!frame)
        return NULL;
    frame->engine = engine;
    frame->symbols = tap__calloc(symbols, sizeof *frame->symbols);
    frame->known = tap__calloc(symbols, sizeof *frame->known);
    frame->data = tap__calloc(values, sizeof *frame->data);
    frame->given = tap__calloc(values, sizeof *frame->given);
    if (!frame->symbols || !frame->known || !frame->data || !frame->given) {
        frame_free(frame);
        return NULL;
    }
    return frame;
}

tap_status tap_frame_begin(tap_engine *engine, void *user, tap_frame **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, engine);
    pthread_mutex_lock(&engine->lock);
    tap_frame *frame = engine->frames;
    if (frame)
        engine->frames = frame->next;
    engine->counts.runs++;
    pthread_mutex_unlock(&engine->lock);
    if (!frame && !(frame = new_frame(engine)))
        return tap_fail_nomem(err);
    frame->user = user;
    frame->next = NULL;
    memset(frame->known, 0, (size_t)engine->graph->syms.nsymbols * sizeof *frame->known);
    memset(frame->symbols, 0, (size_t)engine->graph->syms.nsymbols * sizeof *frame->symbols);
    for (int32_t i = 0; i < engine->graph->ninputs; i++)
        frame->given[engine->graph->inputs[i]].ndim = -1;
    *out = frame;
    return TAP_OK;
}

void tap_frame_end(tap_frame *frame)
{
    if (!frame)
        return;
    tap_engine *engine = frame->engine;
    pthread_mutex_lock(&engine->lock);
    if (frame->plan)
        frame->plan->users--;
    frame->plan = NULL;
    if (frame->workspace) {
        frame->workspace->next = engine->workspaces;
        engine->workspaces = frame->workspace;
        frame->workspace = NULL;
    }
    frame->next = engine->frames;
    engine->frames = frame;
    pthread_mutex_unlock(&engine->lock);
}
