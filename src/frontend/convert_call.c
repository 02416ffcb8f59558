/* convert_call.c - a call of the framework becomes a node: its arguments are bound to the parameters of the operator it
 * means. What does not fit (another device, a dtype the operator lacks, an argument of a strange type) becomes a
 * HostCall: no graph fails here. */
#include "frontend/aten.h"

#include "base/memory.h"
#include "base/sized.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A conversion ends in one of three ways. */
typedef enum outcome { FITS, HOST, NOMEM } outcome;

typedef struct conversion {
    tap_graph *graph;
    const tap_node_desc *desc;
    const tap_op *op;
    tap__source *sources;
    int32_t nsources;
    tap__attr_source *attrs;
} conversion;

/* ----------------------------------------------------------------------------------------------------- constants */

/* Reads a constant of aten.def or a default of ops.def. Lists hold integers or floats. */
static bool parse_const(const char *text, tap_arg *out, tap_arg *items, size_t room)
{
    *out = (tap_arg){.type = TAP_ARG_NONE};
    char *end;
    if (strcmp(text, "none") == 0)
        return true;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        out->type = TAP_ARG_BOOL;
        out->i = text[0] == 't';
        return true;
    }
    if (text[0] == '#') {
        out->type = TAP_ARG_DTYPE;
        out->i = tap_dtype_find(text + 1);
        return out->i != TAP_DTYPE_NONE;
    }
    if (text[0] == '[') {
        out->type = TAP_ARG_LIST;
        out->items = items;
        for (const char *at = text + 1; *at && *at != ']' && out->count < room; at += strspn(at, " ,")) {
            items[out->count++] = (tap_arg){.type = TAP_ARG_INT, .i = strtoll(at, &end, 10)};
            if (end == at)
                return false;
            at = end;
        }
        return true;
    }
    if (strcmp(text, "inf") == 0 || strpbrk(text, ".e")) {
        out->type = TAP_ARG_FLOAT;
        out->f = strcmp(text, "inf") == 0 ? INFINITY : strtod(text, &end);
        return true;
    }
    long long number = strtoll(text, &end, 10);
    if (end != text && !*end) {
        *out = (tap_arg){.type = TAP_ARG_INT, .i = number};
        return true;
    }
    *out = (tap_arg){.type = TAP_ARG_STR, .s = text};
    return true;
}

static const tap_arg *find_arg(const tap_node_desc *desc, const char *name)
{
    for (size_t i = 0; i < desc->nargs; i++)
        if (desc->args[i].name && strcmp(desc->args[i].name, name) == 0)
            return &desc->args[i];
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- numbers */

static bool number_of(const tap_arg *arg, tap__number *out)
{
    switch (arg->type) {
    case TAP_ARG_BOOL: *out = (tap__number){.kind = 'B', .i = arg->i != 0, .re = arg->i != 0}; return true;
    case TAP_ARG_INT: *out = (tap__number){.kind = 'I', .i = arg->i, .re = (double)arg->i}; return true;
    case TAP_ARG_FLOAT: *out = (tap__number){.kind = 'F', .re = arg->f}; return true;
    case TAP_ARG_COMPLEX: *out = (tap__number){.kind = 'C', .re = arg->f, .im = arg->imag}; return true;
    default: return false;
    }
}

/* The expression of an argument that is an integer value of the graph; -1: it is not one. */
static tap_sym sym_of(const tap_graph *graph, const tap_arg *arg)
{
    if (arg->type != TAP_ARG_VALUE || arg->i < 0 || arg->i >= graph->nvalues)
        return -1;
    const tap__value *value = &graph->values[arg->i];
    return value->type == TAP_SPEC_INT ? value->size[0] : -1;
}

/* ------------------------------------------------------------------------------------------------------ operands */

static outcome bind_operand(conversion *self, const tap_arg *arg, tap__source *out)
{
    tap_sym sym = sym_of(self->graph, arg);
    *out = (tap__source){.kind = TAP__SOURCE_NONE};
    if (arg->type == TAP_ARG_NONE)
        return FITS;
    if (sym >= 0) {
        *out = (tap__source){.kind = TAP__SOURCE_SYM, .sym = sym};
        return self->op->kind == TAP_OP_POINTWISE ? FITS : HOST;
    }
    if (arg->type == TAP_ARG_VALUE) {
        const tap__value *value = &self->graph->values[arg->i];
        if (value->type != TAP_SPEC_TENSOR || value->elsewhere)
            return HOST;
        *out = (tap__source){.kind = TAP__SOURCE_VALUE, .value = (int32_t)arg->i};
        return FITS;
    }
    out->kind = TAP__SOURCE_NUMBER;
    return self->op->kind == TAP_OP_POINTWISE && number_of(arg, &out->number) ? FITS : HOST;
}

static outcome bind_input(conversion *self, const tap_param *param, const tap_arg *arg)
{
    if (param->kind == TAP_PARAM_LIST) {
        if (arg->type != TAP_ARG_LIST)
            return HOST;
        for (size_t i = 0; i < arg->count; i++) {
            outcome result = bind_operand(self, &arg->items[i], &self->sources[self->nsources++]);
            if (result != FITS)
                return result;
        }
        return FITS;
    }
    if (param->kind == TAP_PARAM_INPUT && arg->type == TAP_ARG_NONE)
        return HOST;
    return bind_operand(self, arg, &self->sources[self->nsources++]);
}

/* ---------------------------------------------------------------------------------------------------- attributes */

static outcome bind_ints(conversion *self, const tap_arg *arg, tap__attr_source *out)
{
    const tap_arg *items = arg->type == TAP_ARG_LIST ? arg->items : arg;
    size_t count = arg->type == TAP_ARG_LIST ? arg->count : 1;
    int64_t *ints = tap__graph_alloc(self->graph, count ? count : 1, sizeof *ints);
    tap_sym *syms = NULL;
    if (!ints)
        return NOMEM;
    for (size_t i = 0; i < count; i++) {
        tap_sym sym = sym_of(self->graph, &items[i]);
        if (sym >= 0 && !syms) {
            if (!(syms = tap__graph_alloc(self->graph, count, sizeof *syms)))
                return NOMEM;
            memset(syms, 0xFF, count * sizeof *syms);
        }
        if (sym >= 0)
            syms[i] = sym;
        else if (items[i].type == TAP_ARG_INT || items[i].type == TAP_ARG_BOOL)
            ints[i] = items[i].i;
        else
            return HOST;
    }
    out->fixed.ints = ints;
    out->fixed.count = (int)count;
    out->syms = syms;
    return FITS;
}

static outcome bind_floats(conversion *self, const tap_arg *arg, tap__attr_source *out)
{
    if (arg->type != TAP_ARG_LIST)
        return HOST;
    double *floats = tap__graph_alloc(self->graph, arg->count ? arg->count : 1, sizeof *floats);
    if (!floats)
        return NOMEM;
    for (size_t i = 0; i < arg->count; i++) {
        tap__number number;
        if (!number_of(&arg->items[i], &number) || number.kind == 'C')
            return HOST;
        floats[i] = number.re;
    }
    out->fixed.floats = floats;
    out->fixed.count = (int)arg->count;
    return FITS;
}

static outcome bind_sym(conversion *self, tap_sym sym, tap__attr_source *out)
{
    tap_sym *syms = tap__graph_alloc(self->graph, 1, sizeof *syms);
    if (!syms)
        return NOMEM;
    syms[0] = sym;
    out->syms = syms;
    return FITS;
}

static outcome bind_attr(conversion *self, const tap_param *param, const tap_arg *arg, tap__attr_source *out)
{
    *out = (tap__attr_source){.fixed = {.type = param->type, .present = arg->type != TAP_ARG_NONE}};
    if (arg->type == TAP_ARG_NONE)
        return param->optional ? FITS : HOST;
    tap_sym sym = sym_of(self->graph, arg);
    tap__number number = {.kind = 0};
    bool is_number = number_of(arg, &number);
    switch (param->type) {
    case TAP_ATTR_INT:
    case TAP_ATTR_BOOL:
        out->fixed.i = number.i;
        return sym >= 0 ? bind_sym(self, sym, out) : is_number && number.kind != 'F' && number.kind != 'C' ? FITS : HOST;
    case TAP_ATTR_FLOAT:
        out->fixed.f = number.re;
        return sym >= 0 ? bind_sym(self, sym, out) : is_number && number.kind != 'C' ? FITS : HOST;
    case TAP_ATTR_SCALAR:
        out->fixed.scalar = number;
        return sym >= 0 ? bind_sym(self, sym, out) : is_number ? FITS : HOST;
    case TAP_ATTR_DTYPE:
        out->fixed.i = arg->i;
        return arg->type == TAP_ARG_DTYPE ? FITS : HOST;
    case TAP_ATTR_STR:
        if (arg->type != TAP_ARG_STR)
            return HOST;
        out->fixed.s = tap__graph_text(self->graph, arg->s);
        return out->fixed.s ? FITS : NOMEM;
    case TAP_ATTR_INTS:
    case TAP_ATTR_BOOLS: return bind_ints(self, arg, out);
    case TAP_ATTR_FLOATS: return bind_floats(self, arg, out);
    }
    return HOST;
}

/* ------------------------------------------------------------------------------------------------------ the call */

static outcome bind_param(conversion *self, int index, const tap__binding *binding)
{
    const tap_param *param = &self->op->params[index];
    tap_arg constant, items[16];
    const tap_arg *arg = binding->kind == TAP__BIND_ARG ? find_arg(self->desc, binding->text) : NULL;
    if (!arg) {
        const char *text = binding->kind == TAP__BIND_CONST ? binding->text : param->has_default ? param->text : "none";
        if (!parse_const(text, &constant, items, sizeof items / sizeof items[0]))
            return HOST;
        arg = &constant;
    }
    if (index < self->op->ninputs)
        return bind_input(self, param, arg);
    return bind_attr(self, param, arg, &self->attrs[index - self->op->ninputs]);
}

static bool kind_fits(const tap_op *op, tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    return info && info->values == 1 && (!op->dtypes || strchr(op->dtypes, info->kind));
}

/* Whether the values' types and places are ones the operator has. */
static bool values_fit(const conversion *self)
{
    const tap_op *op = self->op;
    if (op->noutputs >= 0 && self->desc->noutputs != (size_t)op->noutputs)
        return false;
    for (size_t i = 0; i < self->desc->noutputs; i++) {
        const tap_spec *spec = &self->desc->outputs[i];
        if (spec->type == TAP_SPEC_NONE)
            continue;
        if (spec->type != TAP_SPEC_TENSOR || spec->elsewhere || spec->ndim > TAP_ENGINE_MAX_NDIM)
            return false;
        for (int32_t d = 0; d < spec->ndim; d++)
            if (spec->sizes && (spec->sizes[d] < 0 || !spec->strides || spec->strides[d] < 0))
                return false;
    }
    for (int32_t i = 0; i < self->nsources; i++)
        if (self->sources[i].kind == TAP__SOURCE_VALUE &&
            !kind_fits(op, self->graph->values[self->sources[i].value].dtype))
            return false;
    return true;
}

static outcome convert(conversion *self, const tap__aten *row)
{
    size_t sources = (size_t)self->op->ninputs;
    for (size_t i = 0; i < self->desc->nargs; i++)
        sources += self->desc->args[i].type == TAP_ARG_LIST ? self->desc->args[i].count : 0;
    self->sources = tap__graph_alloc(self->graph, sources ? sources : 1, sizeof *self->sources);
    self->attrs = tap__graph_alloc(self->graph, TAP_OP_MAX_PARAMS, sizeof *self->attrs);
    if (!self->sources || !self->attrs)
        return NOMEM;
    for (int i = 0; i < self->op->nparams; i++) {
        outcome result = bind_param(self, i, &row->bindings[i]);
        if (result != FITS)
            return result;
    }
    return values_fit(self) ? FITS : HOST;
}

/* Every value among the arguments, in order, each once for each place. */
static size_t count_uses(const tap_arg *args, size_t count)
{
    size_t uses = 0;
    for (size_t i = 0; i < count; i++)
        uses += args[i].type == TAP_ARG_VALUE ? 1 : args[i].type == TAP_ARG_LIST ? count_uses(args[i].items, args[i].count) : 0;
    return uses;
}

static void collect_uses(const tap_arg *args, size_t count, tap__node *node)
{
    for (size_t i = 0; i < count; i++)
        if (args[i].type == TAP_ARG_VALUE)
            node->uses[node->nuses++] = (int32_t)args[i].i;
        else if (args[i].type == TAP_ARG_LIST)
            collect_uses(args[i].items, args[i].count, node);
}

static tap_status check_values(const tap_graph *graph, const tap_node_desc *desc, const tap_arg *args, size_t count,
                               tap_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (args[i].type == TAP_ARG_VALUE && (args[i].i < 0 || args[i].i >= graph->nvalues))
            return tap_fail(err, TAP_E_INVALID, "node %s: argument %s is value %lld, and there are %d so far", desc->name,
                            args[i].name ? args[i].name : "?", (long long)args[i].i, (int)graph->nvalues);
        if (args[i].type == TAP_ARG_LIST)
            TAP_TRY(check_values(graph, desc, args[i].items, args[i].count, err));
    }
    return TAP_OK;
}

/* Whole, whatever header it came from. */
static tap_node_desc node_desc_of(const tap_node_desc *desc)
{
    tap_node_desc whole = {.size = sizeof whole};
    tap__sized_take(&whole, desc);
    return whole;
}

tap_status tap_graph_call(tap_graph *graph, const tap_node_desc *desc, int32_t *node, int32_t *value, tap_error *err)
{
    TAP_NEED(err, graph);
    TAP_NEED_SIZED(err, tap_node_desc, desc);
    TAP_NEED(err, node);
    TAP_NEED(err, value);
    const tap_node_desc given = node_desc_of(desc);
    desc = &given;
    const tap__aten *row = desc->target && !(desc->flags & TAP_CALL_HOST) ? tap__aten_find(desc->target) : NULL;
    TAP_TRY(check_values(graph, desc, desc->args, desc->nargs, err));
    conversion self = {.graph = graph, .desc = desc, .op = row ? row->op : NULL};
    outcome result = row ? convert(&self, row) : HOST;
    if (result == NOMEM)
        return tap_fail_nomem(err);
    tap__node *made;
    TAP_TRY(tap__graph_node(graph, result == FITS ? row->op : tap__op_find("HostCall"), desc, &made, err));
    if (result == FITS) {
        made->sources = self.sources;
        made->nsources = self.nsources;
        made->attrs = self.attrs;
    }
    made->uses = tap__graph_alloc(graph, count_uses(desc->args, desc->nargs) + 1, sizeof *made->uses);
    if (!made->uses)
        return tap_fail_nomem(err);
    collect_uses(desc->args, desc->nargs, made);
    *node = graph->nnodes - 1;
    *value = made->first_value;
    return TAP_OK;
}
