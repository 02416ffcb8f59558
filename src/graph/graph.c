/* graph.c - building a graph and asking what is in it. */
#include "graph/graph.h"

#include "base/memory.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

tap_status tap_graph_new(const char *name, tap_graph **out, tap_error *err)
{
    TAP_NEED(err, out);
    tap_graph *graph = tap__calloc(1, sizeof *graph);
    *out = graph;
    if (!graph)
        return tap_fail_nomem(err);
    tap__arena_init_unlimited(&graph->memory);
    if (!(graph->name = tap__graph_text(graph, name ? name : "graph"))) {
        tap_graph_free(graph);
        *out = NULL;
        return tap_fail_nomem(err);
    }
    return TAP_OK;
}

void tap_graph_free(tap_graph *graph)
{
    if (!graph)
        return;
    tap__arena_free(&graph->memory);
    tap__syms_free(&graph->syms);
    tap__free(graph->values);
    tap__free(graph->nodes);
    tap__free(graph->inputs);
    tap__free(graph);
}

void *tap__graph_alloc(tap_graph *graph, size_t count, size_t size)
{
    return tap__arena_calloc(&graph->memory, count, size);
}

char *tap__graph_text(tap_graph *graph, const char *text)
{
    if (!text)
        return NULL;
    size_t len = strlen(text) + 1;
    char *copy = tap__graph_alloc(graph, 1, len);
    if (copy)
        memcpy(copy, text, len);
    return copy;
}

/* ------------------------------------------------------------------------------------------------------- symbols */

tap_sym tap_graph_const(tap_graph *graph, int64_t value)
{
    return graph ? tap__sym_const(&graph->syms, value) : -1;
}

tap_sym tap_graph_symbol(tap_graph *graph, const char *name)
{
    return graph && name ? tap__sym_symbol(&graph->syms, name) : -1;
}

tap_sym tap_graph_expr(tap_graph *graph, tap_sym_op op, tap_sym a, tap_sym b)
{
    return graph ? tap__sym_expr(&graph->syms, op, a, b) : -1;
}

/* -------------------------------------------------------------------------------------------------------- values */

/* Room for one more element of an array that grows by doubling. */
static bool reserve(void *array, int32_t count, int32_t *room, size_t size)
{
    if (count < *room)
        return true;
    int32_t wanted = *room ? *room * 2 : 64;
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = tap__resize(old, (size_t)wanted, size);
    if (!grown)
        return false;
    memcpy(array, &grown, sizeof grown);
    *room = wanted;
    return true;
}

/* Expressions are numbers the caller hands back; -1 is one that is not known. */
static tap_status check_syms(const tap_graph *graph, const char *name, const tap_sym *syms, int32_t count, tap_error *err)
{
    for (int32_t i = 0; syms && i < count; i++)
        if (syms[i] >= graph->syms.count)
            return tap_fail(err, TAP_E_INVALID, "%s: expression %d is not one of the graph's, which has %d", name,
                            (int)syms[i], (int)graph->syms.count);
    return TAP_OK;
}

static tap_status check_spec(const tap_graph *graph, const char *name, const tap_spec *spec, int32_t count, tap_error *err)
{
    if ((unsigned)spec->type > TAP_SPEC_NONE)
        return tap_fail(err, TAP_E_INVALID, "%s: a value cannot be of type %d", name, (int)spec->type);
    if (spec->type == TAP_SPEC_INT && (!spec->sizes || spec->sizes[0] < 0))
        return tap_fail(err, TAP_E_INVALID, "%s: an integer value of a graph needs an expression or a symbol", name);
    TAP_TRY(check_syms(graph, name, spec->sizes, count, err));
    if (spec->type != TAP_SPEC_TENSOR)
        return TAP_OK;
    TAP_TRY(check_syms(graph, name, spec->strides, count, err));
    return check_syms(graph, name, &spec->offset, 1, err);
}

static tap_status copy_spec(tap_graph *graph, const char *name, tap__value *value, const tap_spec *spec, tap_error *err)
{
    int32_t count = spec->type == TAP_SPEC_INT ? 1 : spec->type == TAP_SPEC_TENSOR ? spec->ndim : 0;
    *value = (tap__value){.type = spec->type, .dtype = spec->dtype, .ndim = spec->ndim, .elsewhere = spec->elsewhere,
                          .offset = spec->offset, .node = -1};
    if (spec->type == TAP_SPEC_TENSOR &&
        (spec->ndim < 0 || spec->ndim > TAP_ENGINE_MAX_NDIM || !tap_dtype_describe(spec->dtype))) {
        value->type = TAP_SPEC_OPAQUE; /* the host handles what is deeper than the engine goes, or of a dtype it lacks */
        count = 0;
    }
    TAP_TRY(check_spec(graph, name, spec, count, err));
    value->inferred = value->type == TAP_SPEC_TENSOR && !spec->sizes && spec->ndim > 0;
    if (count == 0 || value->inferred)
        return TAP_OK;
    value->size = tap__graph_alloc(graph, (size_t)count, sizeof(tap_sym));
    value->stride = tap__graph_alloc(graph, (size_t)count, sizeof(tap_sym));
    if (!value->size || !value->stride)
        return tap_fail_nomem(err);
    for (int32_t i = 0; i < count; i++) {
        value->size[i] = spec->sizes[i];
        value->stride[i] = spec->strides ? spec->strides[i] : -1;
        if (spec->type == TAP_SPEC_TENSOR && (value->size[i] < 0 || value->stride[i] < 0))
            value->type = TAP_SPEC_OPAQUE; /* a size we cannot compute */
    }
    return TAP_OK;
}

tap_status tap__graph_value(tap_graph *graph, const char *name, const tap_spec *spec, int32_t node, int32_t *value,
                            tap_error *err)
{
    if (!reserve(&graph->values, graph->nvalues, &graph->values_room, sizeof *graph->values))
        return tap_fail_nomem(err);
    TAP_TRY(copy_spec(graph, name, &graph->values[graph->nvalues], spec, err));
    graph->values[graph->nvalues].node = node;
    *value = graph->nvalues++;
    return TAP_OK;
}

tap_status tap_graph_input(tap_graph *graph, const char *name, const tap_spec *spec, int32_t *value, tap_error *err)
{
    TAP_NEED(err, graph);
    TAP_NEED(err, spec);
    TAP_NEED(err, value);
    if (!reserve(&graph->inputs, graph->ninputs, &graph->inputs_room, sizeof *graph->inputs))
        return tap_fail_nomem(err);
    TAP_TRY(tap__graph_value(graph, name ? name : "input", spec, -1, value, err));
    graph->inputs[graph->ninputs++] = *value;
    return TAP_OK;
}

tap_status tap_graph_int(tap_graph *graph, tap_sym sym, int32_t *value, tap_error *err)
{
    TAP_NEED(err, graph);
    TAP_NEED(err, value);
    tap_spec spec = {.type = TAP_SPEC_INT, .dtype = TAP_I64, .ndim = 1, .sizes = &sym, .offset = -1};
    return tap__graph_value(graph, "integer", &spec, -1, value, err);
}

tap_status tap_graph_output(tap_graph *graph, const int32_t *values, size_t count, tap_error *err)
{
    TAP_NEED(err, graph);
    if (count)
        TAP_NEED(err, values);
    graph->outputs = tap__graph_alloc(graph, count ? count : 1, sizeof *graph->outputs);
    if (!graph->outputs)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < count; i++) {
        if (values[i] < 0 || values[i] >= graph->nvalues)
            return tap_fail(err, TAP_E_INVALID, "output %zu of the graph is value %d, and there are %d", i,
                            (int)values[i], (int)graph->nvalues);
        graph->values[values[i]].is_output = true;
        graph->outputs[i] = values[i];
    }
    graph->noutputs = (int32_t)count;
    return TAP_OK;
}

/* --------------------------------------------------------------------------------------------------------- nodes */

tap_status tap__graph_node(tap_graph *graph, const tap_op *op, const tap_node_desc *desc, tap__node **node,
                           tap_error *err)
{
    if (!reserve(&graph->nodes, graph->nnodes, &graph->nodes_room, sizeof *graph->nodes))
        return tap_fail_nomem(err);
    tap__node *made = &graph->nodes[graph->nnodes];
    *made = (tap__node){.op = op, .flags = desc->flags, .first_value = graph->nvalues,
                        .nvalues = (int32_t)desc->noutputs};
    made->name = tap__graph_text(graph, desc->name ? desc->name : "node");
    made->target = tap__graph_text(graph, desc->target ? desc->target : op->name);
    made->source = tap__graph_text(graph, desc->source);
    if (!made->name || !made->target || (desc->source && !made->source))
        return tap_fail_nomem(err);
    for (size_t i = 0; i < desc->noutputs; i++) {
        int32_t value;
        tap_status status = tap__graph_value(graph, made->name, &desc->outputs[i], graph->nnodes, &value, err);
        if (status != TAP_OK) {
            graph->nvalues = made->first_value;
            return status;
        }
    }
    graph->nnodes++;
    *node = made;
    return TAP_OK;
}

int32_t tap_graph_nodes(const tap_graph *graph)
{
    return graph ? graph->nnodes : 0;
}

int32_t tap_graph_values(const tap_graph *graph)
{
    return graph ? graph->nvalues : 0;
}

static const char *const KIND_NAMES[] = {[TAP_OP_DATA] = "data",           [TAP_OP_CONST] = "const",
                                         [TAP_OP_OUTPUT] = "output",       [TAP_OP_VIEW] = "view",
                                         [TAP_OP_POINTWISE] = "pointwise", [TAP_OP_KERNEL] = "kernel",
                                         [TAP_OP_HOST] = "host",           [TAP_OP_GE] = "ge"};

tap_status tap_graph_node(const tap_graph *graph, int32_t node, tap_node_info *out)
{
    TAP_NEED(NULL, graph);
    TAP_NEED_SIZED(NULL, tap_node_info, out);
    if (node < 0 || node >= graph->nnodes)
        return TAP_E_INVALID;
    const tap__node *from = &graph->nodes[node];
    tap_node_info info = {.name = from->name, .target = from->target, .source = from->source, .op = from->op->name,
                          .op_kind = KIND_NAMES[from->op->kind], .first_value = from->first_value,
                          .nvalues = from->nvalues};
    tap__sized_give(out, &info);
    return TAP_OK;
}

tap_status tap_op_describe(int index, tap_op_info *out)
{
    TAP_NEED_SIZED(NULL, tap_op_info, out);
    const tap_op *op = tap__op_at(index);
    if (!op)
        return TAP_E_NOTFOUND;
    tap_op_info info = {.name = op->name, .ge = op->ge, .kind = KIND_NAMES[op->kind], .doc = op->doc,
                        .nparams = op->nparams, .ninputs = op->ninputs, .noutputs = op->noutputs};
    tap__sized_give(out, &info);
    return TAP_OK;
}

const char *tap_op_param(int index, int param, char *room, size_t size)
{
    static const char *const TYPES[] = {[TAP_ATTR_INT] = "int",       [TAP_ATTR_FLOAT] = "float",
                                        [TAP_ATTR_BOOL] = "bool",     [TAP_ATTR_SCALAR] = "scalar",
                                        [TAP_ATTR_DTYPE] = "dtype",   [TAP_ATTR_STR] = "str",
                                        [TAP_ATTR_INTS] = "ints",     [TAP_ATTR_FLOATS] = "floats",
                                        [TAP_ATTR_BOOLS] = "bools"};
    const tap_op *op = tap__op_at(index);
    if (!op || !room || param < 0 || param >= op->nparams)
        return NULL;
    const tap_param *p = &op->params[param];
    if (p->kind == TAP_PARAM_ATTR)
        snprintf(room, size, "%s:%s%s%s%s", p->name, TYPES[p->type], p->optional ? "?" : "", p->has_default ? "=" : "",
                 p->has_default ? p->text : "");
    else
        snprintf(room, size, "%s%s", p->name,
                 p->kind == TAP_PARAM_OPTIONAL ? "?" : p->kind == TAP_PARAM_LIST ? "*" : "");
    return room;
}

const char *tap_op_output(int index, int output, char *room, size_t size)
{
    const tap_op *op = tap__op_at(index);
    bool list = op && op->noutputs < 0;
    if (!op || !room || output < 0 || output >= (list ? 1 : op->noutputs))
        return NULL;
    snprintf(room, size, "%s%s", op->outputs[output], list ? "*" : op->output_optional[output] ? "?" : "");
    return room;
}
