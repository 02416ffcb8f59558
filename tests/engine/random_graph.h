/* random_graph.h - graphs drawn at random, what they compute by a plain walk over their nodes, and a host that compares.
 *
 * Operators of the test's own look at every element of their inputs before and after they have written their results, so
 * two values that share memory while both are needed are found when it happens. Numbers are whole and float64: exact.
 * Values have two dimensions; rows may be multiples of a symbol of the inputs (s0) or of one that the host tells while the
 * graph runs (u0). Included by one .c file each, after graph_test.h. */
#ifndef TAP_TESTS_RANDOM_GRAPH_H
#define TAP_TESTS_RANDOM_GRAPH_H

#include "engine/graph_test.h"

#include <stdio.h>

enum { RG_NODES = 36, RG_SOURCES = 3, RG_RESULTS = 2, RG_INPUTS = 4, RG_VALUES = RG_INPUTS + RG_NODES * RG_RESULTS };

/* per[0] * s0 + per[1] * u0 + fixed */
typedef struct rg_size {
    int64_t per[2], fixed;
} rg_size;

typedef struct rg_value {
    rg_size size[2], stride[2], offset;
    int32_t root;  /* in whose memory it lies; itself: its own */
    int32_t node;  /* -1: an input */
    bool absent, whole_numbers, is_output;
} rg_value;

typedef enum rg_kind { RG_UNARY, RG_BINARY, RG_MIX, RG_PAIR, RG_PICK, RG_HOST, RG_COUNT, RG_SLICE, RG_TURN, RG_ASSIGN } rg_kind;

typedef struct rg_node {
    rg_kind kind;
    const char *target;
    char name[16];
    int32_t source[RG_SOURCES], result[RG_RESULTS];
    int nsources, nresults;
    int64_t number; /* of the slice */
    unsigned flags;
} rg_node;

typedef struct random_graph {
    rg_value values[RG_VALUES];
    rg_node nodes[RG_NODES];
    int32_t nvalues, nnodes, ninputs;
    bool changes_inputs, has_u0;
} random_graph;

/* What one run must find: sizes are known, and every node's operands as they are when it runs. */
typedef struct rg_truth {
    const random_graph *graph;
    int64_t symbols[2];
    double *memory[RG_VALUES];                   /* of roots, as it is in the end */
    double *in[RG_NODES][RG_SOURCES], *out[RG_NODES][RG_RESULTS];
    char wrong[200];                             /* the first thing that was not as it must be */
} rg_truth;

static _Thread_local rg_truth *rg_running; /* for operators, which are called without a user */

/* ----------------------------------------------------------------------------------------------------------- sizes */

static inline int64_t rg_concrete(const rg_truth *truth, rg_size size)
{
    return size.per[0] * truth->symbols[0] + size.per[1] * truth->symbols[1] + size.fixed;
}

static inline rg_size rg_fixed(int64_t number)
{
    return (rg_size){.fixed = number};
}

static inline bool rg_equal(rg_size a, rg_size b)
{
    return a.per[0] == b.per[0] && a.per[1] == b.per[1] && a.fixed == b.fixed;
}

static inline rg_size rg_plus(rg_size a, rg_size b, int64_t times)
{
    return (rg_size){{a.per[0] + times * b.per[0], a.per[1] + times * b.per[1]}, a.fixed + times * b.fixed};
}

static inline int64_t rg_count(const rg_truth *truth, const rg_value *value)
{
    return rg_concrete(truth, value->size[0]) * rg_concrete(truth, value->size[1]);
}

/* Element i in row-major order, counted from the start of the root's memory. */
static inline int64_t rg_place(const rg_truth *truth, const rg_value *value, int64_t i)
{
    int64_t columns = rg_concrete(truth, value->size[1]);
    return rg_concrete(truth, value->offset) + i / columns * rg_concrete(truth, value->stride[0]) +
           i % columns * rg_concrete(truth, value->stride[1]);
}

/* --------------------------------------------------------------------------------------------------------- drawing */

static inline int32_t rg_new_value(random_graph *self, int32_t node, rg_size rows, rg_size columns)
{
    int32_t at = self->nvalues++;
    self->values[at] = (rg_value){.size = {rows, columns}, .stride = {columns, rg_fixed(1)}, .root = at, .node = node};
    return at;
}

/* A value that may be read: numbers, and there. */
static inline int32_t rg_draw_value(const random_graph *self)
{
    for (;;) {
        /* late ones more often: graphs are deep then */
        int64_t back = random_below(3) ? random_below(self->nvalues < 6 ? self->nvalues : 6) : random_below(self->nvalues);
        const rg_value *value = &self->values[self->nvalues - 1 - back];
        if (!value->absent && !value->whole_numbers)
            return (int32_t)(value - self->values);
    }
}

static inline rg_size rg_draw_rows(const random_graph *self)
{
    if (self->has_u0 && random_below(3) == 0)
        return (rg_size){.per = {0, 1 + random_below(2)}};
    return random_below(2) ? (rg_size){.per = {1 + random_below(2), 0}} : rg_fixed(3 + random_below(20));
}

/* A second operand for a: equal sizes, or one that is broadcast. -1: none found */
static inline int32_t rg_draw_partner(const random_graph *self, int32_t a)
{
    for (int tries = 0; tries < 12; tries++) {
        int32_t b = rg_draw_value(self);
        bool fits = true;
        for (int d = 0; d < 2; d++)
            fits = fits && (rg_equal(self->values[b].size[d], self->values[a].size[d]) ||
                            rg_equal(self->values[b].size[d], rg_fixed(1)));
        if (fits)
            return b;
    }
    return -1;
}

static inline void rg_draw_view(random_graph *self, rg_node *node, int32_t from)
{
    const rg_value base = self->values[from];
    int32_t view = rg_new_value(self, self->nnodes, base.size[0], base.size[1]);
    rg_value *value = &self->values[view];
    value->root = base.root;
    value->offset = base.offset;
    memcpy(value->stride, base.stride, sizeof base.stride);
    if (node->kind == RG_TURN) {
        value->size[0] = base.size[1], value->size[1] = base.size[0];
        value->stride[0] = base.stride[1], value->stride[1] = base.stride[0];
        node->target = "aten.t.default";
    } else {
        node->number = 1 + random_below(2);
        value->size[0].fixed -= node->number;
        value->offset = rg_plus(value->offset, base.stride[0], node->number);
        node->target = "aten.slice.Tensor";
    }
    node->result[node->nresults++] = view;
}

/* A view can be cut where its rows are many, whatever u0 will be. */
static inline bool rg_can_slice(const rg_value *value)
{
    return value->size[0].per[1] == 0 && (value->size[0].per[0] > 0 ? value->size[0].fixed > -8 : value->size[0].fixed > 5);
}

static inline bool rg_draw_kind(random_graph *self, rg_node *node)
{
    static const char *const UNARY[] = {"aten.neg.default", "aten.abs.default", "aten.relu.default"};
    static const char *const BINARY[] = {"aten.sub.Tensor", "aten.maximum.default", "aten.minimum.default"};
    int32_t a = rg_draw_value(self), b;
    rg_value *first = &self->values[a];
    node->source[0] = a;
    node->nsources = 1;
    switch (node->kind) {
    case RG_UNARY: node->target = UNARY[random_below(3)]; break;
    case RG_BINARY:
        if ((b = rg_draw_partner(self, a)) < 0)
            return false;
        node->source[node->nsources++] = b;
        node->target = BINARY[random_below(3)];
        break;
    case RG_MIX:
    case RG_PAIR:
    case RG_HOST:
        while (node->nsources < RG_SOURCES && random_below(3))
            node->source[node->nsources++] = rg_draw_value(self);
        node->target = node->kind == RG_MIX ? "test.mix.default" : node->kind == RG_PAIR ? "test.pair.default" : "test.host";
        break;
    case RG_PICK: /* by the last input: three numbers of rows */
        if (!rg_can_slice(first) || rg_equal(first->size[1], rg_fixed(0)))
            return false;
        node->source[node->nsources++] = self->ninputs - 1;
        node->target = "aten.index_select.default";
        node->result[node->nresults++] = rg_new_value(self, self->nnodes, rg_fixed(3), self->values[a].size[1]);
        return true;
    case RG_COUNT:
        if (self->has_u0)
            return false;
        self->has_u0 = true;
        node->target = "test.count";
        node->result[node->nresults++] = rg_new_value(self, self->nnodes, (rg_size){.per = {0, 1}}, rg_fixed(1 + random_below(9)));
        return true;
    case RG_SLICE:
        if (!rg_can_slice(first))
            return false;
        rg_draw_view(self, node, a);
        return true;
    case RG_TURN: rg_draw_view(self, node, a); return true;
    case RG_ASSIGN:
        b = (int32_t)random_below(self->ninputs - 1);
        if ((a = rg_draw_partner(self, b)) < 0 || a == b || !rg_equal(self->values[a].size[0], self->values[b].size[0]) ||
            !rg_equal(self->values[a].size[1], self->values[b].size[1]))
            return false;
        node->source[0] = b; /* as the arguments are: self, src */
        node->source[node->nsources++] = a;
        node->target = "aten.copy_.default";
        self->changes_inputs = true;
        node->result[node->nresults++] = rg_new_value(self, self->nnodes, self->values[b].size[0], self->values[b].size[1]);
        self->values[node->result[0]].root = b;
        return true;
    }
    bool same = node->kind == RG_UNARY || node->kind == RG_BINARY;
    for (int i = 0; i < (node->kind == RG_PAIR ? 2 : 1); i++)
        node->result[node->nresults++] =
            same ? rg_new_value(self, self->nnodes, self->values[a].size[0], self->values[a].size[1])
                 : rg_new_value(self, self->nnodes, rg_draw_rows(self), rg_fixed(1 + random_below(30)));
    if (node->kind == RG_PAIR && random_below(3) == 0)
        self->values[node->result[1]].absent = true;
    return true;
}

/* with: bits of the kinds that may be drawn. */
static inline void rg_draw(random_graph *self, unsigned with)
{
    *self = (random_graph){.ninputs = RG_INPUTS};
    for (int i = 0; i + 1 < RG_INPUTS; i++)
        rg_new_value(self, -1, i == 0 ? (rg_size){.per = {1, 0}} : rg_draw_rows(self), rg_fixed(1 + random_below(30)));
    int32_t rows = rg_new_value(self, -1, rg_fixed(3), rg_fixed(1));
    self->values[rows].whole_numbers = true;
    int wanted = 4 + (int)random_below(RG_NODES - 4);
    while (self->nnodes < wanted) {
        rg_node *node = &self->nodes[self->nnodes];
        *node = (rg_node){.kind = (rg_kind)random_below(RG_ASSIGN + 1)};
        if (random_below(2))
            node->kind = random_below(2) ? RG_BINARY : RG_UNARY; /* chains are long */
        else if (random_below(3) == 0)
            node->kind = RG_ASSIGN; /* most find no partner */
        if (!(with >> node->kind & 1) || !rg_draw_kind(self, node))
            continue;
        snprintf(node->name, sizeof node->name, "n%d", (int)self->nnodes);
        if (random_below(8) == 0)
            node->flags |= TAP_CALL_OBSERVE;
        if (random_below(16) == 0)
            node->flags |= TAP_CALL_HOST;
        for (int i = 0; i < node->nresults; i++)
            self->values[node->result[i]].is_output = !self->values[node->result[i]].absent && random_below(8) == 0;
        self->nnodes++;
    }
    for (int32_t v = self->nvalues - 1, some = 0; v >= 0 && !some; v--)
        some = self->values[v].is_output = !self->values[v].absent && !self->values[v].whole_numbers;
}

/* ------------------------------------------------------------------------------------------------------------- truth */

static inline double *rg_copy(const rg_truth *truth, const rg_value *value)
{
    int64_t count = rg_count(truth, value);
    double *made = malloc((size_t)(count + 1) * sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = truth->memory[value->root][rg_place(truth, value, i)];
    return made;
}

/* What the operators of the test compute: anything that depends on every element. */
static inline double rg_mixed(const rg_truth *truth, int32_t n, int result, int64_t i)
{
    const rg_node *node = &truth->graph->nodes[n];
    double sum = result + (double)(i % 7);
    for (int s = 0; s < node->nsources; s++) {
        int64_t count = rg_count(truth, &truth->graph->values[node->source[s]]);
        if (count > 0)
            sum += fmod(truth->in[n][s][i % count], 1 << 20) * (s + 1);
    }
    return sum;
}

static inline double rg_pointwise(const rg_truth *truth, int32_t n, int64_t i)
{
    const rg_node *node = &truth->graph->nodes[n];
    double a = truth->in[n][0][i], b = 0;
    if (node->kind == RG_BINARY) {
        const rg_value *out = &truth->graph->values[node->result[0]], *other = &truth->graph->values[node->source[1]];
        int64_t columns = rg_concrete(truth, out->size[1]), row = i / columns, column = i % columns;
        int64_t width = rg_concrete(truth, other->size[1]);
        row = rg_concrete(truth, other->size[0]) == 1 ? 0 : row;
        column = width == 1 ? 0 : column;
        b = truth->in[n][1][row * width + column];
    }
    return strstr(node->target, "neg")       ? -a
           : strstr(node->target, "abs")     ? fabs(a)
           : strstr(node->target, "relu")    ? fmax(a, 0)
           : strstr(node->target, "maximum") ? fmax(a, b)
           : strstr(node->target, "minimum") ? fmin(a, b)
                                             : a - b;
}

static inline double rg_result(const rg_truth *truth, int32_t n, int result, int64_t i)
{
    const rg_node *node = &truth->graph->nodes[n];
    int64_t columns = rg_concrete(truth, truth->graph->values[node->result[0]].size[1]);
    switch (node->kind) {
    case RG_UNARY:
    case RG_BINARY: return rg_pointwise(truth, n, i);
    case RG_PICK: return truth->in[n][0][(int64_t)truth->in[n][1][i / columns] * columns + i % columns];
    case RG_ASSIGN: return truth->in[n][1][i];
    default: return rg_mixed(truth, n, result, i);
    }
}

/* in: the memory of the inputs, which is read. */
static inline void rg_truth_make(rg_truth *self, const random_graph *graph, int64_t s0, int64_t u0, const tensor *in)
{
    *self = (rg_truth){.graph = graph, .symbols = {s0, u0}};
    for (int32_t v = 0; v < graph->nvalues; v++) {
        const rg_value *value = &graph->values[v];
        int64_t count = rg_count(self, value);
        if (value->root == v)
            self->memory[v] = calloc((size_t)count + 1, sizeof *self->memory[v]);
        for (int64_t i = 0; v < graph->ninputs && i < count; i++)
            self->memory[v][i] = get(&in[v], i);
    }
    for (int32_t n = 0; n < graph->nnodes; n++) {
        const rg_node *node = &graph->nodes[n];
        for (int s = 0; s < node->nsources; s++)
            self->in[n][s] = rg_copy(self, &graph->values[node->source[s]]);
        for (int r = 0; r < node->nresults; r++) {
            const rg_value *value = &graph->values[node->result[r]];
            bool view = node->kind == RG_SLICE || node->kind == RG_TURN;
            for (int64_t i = 0; !view && i < rg_count(self, value); i++)
                self->memory[value->root][rg_place(self, value, i)] = rg_result(self, n, r, i);
            self->out[n][r] = rg_copy(self, value);
        }
    }
}

static inline void rg_truth_free(rg_truth *self)
{
    for (int32_t v = 0; v < self->graph->nvalues; v++)
        free(self->memory[v]);
    for (int32_t n = 0; n < self->graph->nnodes; n++) {
        for (int s = 0; s < RG_SOURCES; s++)
            free(self->in[n][s]);
        for (int r = 0; r < RG_RESULTS; r++)
            free(self->out[n][r]);
    }
}

/* For a person who looks at a failure. */
__attribute__((unused)) static void rg_print(const rg_truth *truth)
{
    const random_graph *graph = truth->graph;
    for (int32_t n = 0; n < graph->nnodes; n++) {
        const rg_node *node = &graph->nodes[n];
        printf("%d %s%s%s:", (int)n, node->target, node->flags & TAP_CALL_HOST ? " HOST" : "",
               node->flags & TAP_CALL_OBSERVE ? " OBSERVE" : "");
        for (int i = 0; i < node->nsources; i++)
            printf(" %d", (int)node->source[i]);
        for (int i = 0; i < node->nresults; i++) {
            const rg_value *value = &graph->values[node->result[i]];
            printf(" -> %d%s (%lld s0 + %lld u0 + %lld = %lld, %lld)", (int)node->result[i], value->is_output ? " OUT" : "",
                   (long long)value->size[0].per[0], (long long)value->size[0].per[1], (long long)value->size[0].fixed,
                   (long long)rg_concrete(truth, value->size[0]), (long long)rg_concrete(truth, value->size[1]));
        }
        printf("\n");
    }
}

/* ------------------------------------------------------------------------------------------------------- comparing */

__attribute__((format(printf, 2, 3))) static inline void rg_complain(rg_truth *truth, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!truth->wrong[0])
        vsnprintf(truth->wrong, sizeof truth->wrong, format, args);
    va_end(args);
}

/* Whether the elements are these; stride in elements, as everywhere. */
static inline void rg_compare(rg_truth *truth, const tap_tensor *found, const double *wanted, int32_t n, const char *what,
                              int which)
{
    tensor t;
    if (found->dtype != TAP_F64)
        return;
    t = (tensor){.dtype = TAP_F64, .ndim = 2, .count = 1, .data = found->data};
    for (int d = 0; d < 2; d++) {
        t.size[d] = found->shape[d];
        t.stride[d] = found->strides ? found->strides[d] : d == 0 ? found->shape[1] : 1;
        t.count *= t.size[d];
    }
    for (int64_t i = 0; i < t.count; i++)
        if (get(&t, i) != wanted[i]) {
            rg_complain(truth, "node %d, %s %d, element %lld of %lld x %lld: %g, not %g", (int)n, what, which, (long long)i,
                        (long long)t.size[0], (long long)t.size[1], get(&t, i), wanted[i]);
            return;
        }
}

/* -------------------------------------------------------------------------------------------- operators of the test's own */

static tap_status rg_op_shape(const tap_op_args *args, tap_error *err)
{
    const rg_node *node = &rg_running->graph->nodes[args->attrs[0].i];
    (void)err;
    for (int i = 0; i < args->nout; i++) {
        const rg_value *value = &rg_running->graph->values[node->result[i]];
        args->out[i].dtype = TAP_F64;
        args->out[i].ndim = 2;
        for (int d = 0; d < 2; d++)
            ((int64_t *)(uintptr_t)args->out[i].shape)[d] = rg_concrete(rg_running, value->size[d]);
    }
    return TAP_OK;
}

static tap_status rg_op_run(const tap_op_args *args, tap_error *err)
{
    int32_t n = (int32_t)args->attrs[0].i;
    (void)err;
    for (int time = 0; time < 2; time++) {
        for (int s = 0; s < args->nin; s++)
            rg_compare(rg_running, &args->in[s], rg_running->in[n][s], n, time ? "after writing, input" : "input", s);
        for (int r = 0; time == 0 && r < args->nout; r++)
            if (args->out[r].dtype != TAP_DTYPE_NONE)
                for (int64_t i = 0; i < args->out[r].shape[0] * args->out[r].shape[1]; i++) {
                    const tap_tensor *out = &args->out[r];
                    int64_t columns = out->shape[1];
                    int64_t at = i / columns * (out->strides ? out->strides[0] : columns) +
                                 i % columns * (out->strides ? out->strides[1] : 1);
                    ((double *)out->data)[at] = rg_running->out[n][r][i];
                }
    }
    return TAP_OK;
}

static inline void rg_add_operators(void)
{
    static const struct {
        const char *name, *target, *outputs;
    } ROWS[] = {{"Mix", "test.mix.default", "y"}, {"Pair", "test.pair.default", "y, other?"}};
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        tap_error err;
        tap_op_desc desc = {.size = sizeof desc, .name = ROWS[i].name, .inputs = "xs*", .attrs = "node:int",
                            .outputs = ROWS[i].outputs, .target = ROWS[i].target, .shape = rg_op_shape, .run = rg_op_run};
        if (tap_op_add(&desc, &err) != TAP_OK)
            fail_msg("%s", err.message);
    }
}

/* ------------------------------------------------------------------------------------------------------ as a tap_graph */

/* A symbol alone stays one: those of the inputs are bound by it. */
static inline tap_sym rg_sym(tap_graph *graph, rg_size size)
{
    tap_sym sum = -1;
    for (int k = 0; k < 2; k++) {
        if (!size.per[k])
            continue;
        tap_sym term = tap_graph_symbol(graph, k ? "u0" : "s0");
        if (size.per[k] != 1)
            term = tap_graph_expr(graph, TAP_SYM_MUL, tap_graph_const(graph, size.per[k]), term);
        sum = sum < 0 ? term : tap_graph_expr(graph, TAP_SYM_ADD, sum, term);
    }
    tap_sym fixed = tap_graph_const(graph, size.fixed);
    return sum < 0 ? fixed : size.fixed ? tap_graph_expr(graph, TAP_SYM_ADD, sum, fixed) : sum;
}

static inline tap_spec rg_spec(tap_graph *graph, const rg_value *value, spec_room *room)
{
    for (int d = 0; d < 2; d++) {
        room->size[d] = rg_sym(graph, value->size[d]);
        room->stride[d] = rg_sym(graph, value->stride[d]);
    }
    return value->absent ? (tap_spec){.type = TAP_SPEC_NONE}
                         : (tap_spec){.type = TAP_SPEC_TENSOR, .dtype = value->whole_numbers ? TAP_I64 : TAP_F64,
                                      .ndim = value->whole_numbers ? 1 : 2, .sizes = room->size, .strides = room->stride,
                                      .offset = rg_sym(graph, value->offset)};
}

static inline size_t rg_args(const rg_node *node, int32_t n, tap_arg *args, tap_arg *list)
{
    size_t count = 0;
    if (node->kind == RG_MIX || node->kind == RG_PAIR) {
        for (int s = 0; s < node->nsources; s++)
            list[s] = (tap_arg)VALUE(NULL, node->source[s]);
        args[count++] = (tap_arg){.name = "xs", .type = TAP_ARG_LIST, .items = list, .count = (size_t)node->nsources};
        args[count++] = (tap_arg)INT("node", n);
        return count;
    }
    static const char *const NAMES[] = {"self", "other", "third"};
    for (int s = 0; s < node->nsources; s++) {
        const char *name = node->kind == RG_ASSIGN && s == 1 ? "src" : node->kind == RG_PICK && s == 1 ? "index" : NAMES[s];
        args[count++] = (tap_arg)VALUE(name, node->source[s]);
    }
    if (node->kind == RG_PICK || node->kind == RG_SLICE)
        args[count++] = (tap_arg)INT("dim", 0);
    if (node->kind == RG_SLICE) {
        args[count++] = (tap_arg)INT("start", node->number);
        args[count++] = (tap_arg)INT("end", INT64_MAX);
        args[count++] = (tap_arg)INT("step", 1);
    }
    return count;
}

static inline tap_graph *rg_build(const random_graph *self, tap_error *err)
{
    tap_graph *graph;
    spec_room rooms[RG_RESULTS];
    if (tap_graph_new("random", &graph, err) != TAP_OK)
        return NULL;
    tap_status status = TAP_OK;
    int32_t outputs[RG_VALUES], noutputs = 0, value, number;
    for (int32_t v = 0; v < self->ninputs && status == TAP_OK; v++) {
        tap_spec spec = rg_spec(graph, &self->values[v], &rooms[0]);
        status = tap_graph_input(graph, "x", &spec, &value, err);
    }
    for (int32_t n = 0; n < self->nnodes && status == TAP_OK; n++) {
        const rg_node *node = &self->nodes[n];
        tap_arg args[8], list[RG_SOURCES];
        tap_spec specs[RG_RESULTS];
        for (int r = 0; r < node->nresults; r++)
            specs[r] = rg_spec(graph, &self->values[node->result[r]], &rooms[r]);
        tap_node_desc desc;
        tap_node_desc_init(&desc);
        desc.name = node->name, desc.target = node->target, desc.flags = node->flags;
        desc.args = args, desc.nargs = rg_args(node, n, args, list);
        desc.outputs = specs, desc.noutputs = (size_t)node->nresults;
        status = tap_graph_call(graph, &desc, &number, &value, err);
    }
    for (int32_t v = 0; v < self->nvalues; v++)
        if (self->values[v].is_output)
            outputs[noutputs++] = v;
    if (status == TAP_OK)
        status = tap_graph_output(graph, outputs, (size_t)noutputs, err);
    if (status == TAP_OK)
        return graph;
    tap_graph_free(graph);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------------------- host */

/* The first member is what host_alloc and the others of graph_test.h take for the user. */
typedef struct rg_host {
    test_host host;
    rg_truth *truth;
    long callbacks_left; /* how many succeed; negative: all */
    bool released[RG_VALUES];
    void (*inside)(struct rg_host *self, int32_t node); /* called in every HostCall, may be NULL */
} rg_host;

static inline tap_status rg_may_fail(rg_host *self, tap_error *err)
{
    return self->callbacks_left < 0 || self->callbacks_left-- > 0 ? TAP_OK : tap_fail(err, TAP_E_BUSY, "the host said no");
}

static tap_status rg_alloc(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data, tap_error *err)
{
    rg_host *self = user;
    TAP_TRY(rg_may_fail(self, err));
    if (self->host.owned[value])
        rg_complain(self->truth, "value %d is allocated twice", (int)value);
    return host_alloc(user, frame, value, like, data, err);
}

static tap_status rg_match(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data, tap_error *err)
{
    TAP_TRY(rg_may_fail(user, err));
    return host_match(user, frame, value, like, data, err);
}

static void rg_release(void *user, tap_frame *frame, int32_t value)
{
    rg_host *self = user;
    if (self->released[value])
        rg_complain(self->truth, "value %d is let go twice", (int)value);
    if (self->truth->graph->values[value].is_output)
        rg_complain(self->truth, "value %d is let go, and the graph returns it", (int)value);
    self->released[value] = true;
    host_release(user, frame, value);
}

/* The node's arguments (or results) as the engine holds them for the host. */
static inline void rg_check_held(rg_host *self, tap_frame *frame, int32_t n, bool results)
{
    const rg_node *node = &self->truth->graph->nodes[n];
    for (int i = 0; i < (results ? node->nresults : node->nsources); i++) {
        int32_t v = results ? node->result[i] : node->source[i];
        if (self->truth->graph->values[v].absent)
            continue;
        if (self->released[v])
            rg_complain(self->truth, "node %d: value %d is wanted and was let go", (int)n, (int)v);
        tap_tensor like = tap__operand_view(&frame->plan->values[v], frame->data[v]);
        double *const *wanted = results ? self->truth->out[n] : self->truth->in[n];
        if (!results || !self->truth->graph->changes_inputs) /* else its memory may be another's by now */
            rg_compare(self->truth, &like, wanted[i], n, results ? "observed result" : "argument", i);
    }
}

static inline tap_status rg_assign(rg_host *self, tap_frame *frame, int32_t n, tap_error *err)
{
    const rg_node *node = &self->truth->graph->nodes[n];
    tensor *into = &self->host.values[node->source[0]];
    for (int64_t i = 0; i < into->count; i++)
        put(into, i, self->truth->in[n][1][i]);
    self->host.values[node->result[0]] = *into;
    self->host.viewed[node->source[0]] = true;
    tap_tensor view = view_of(into);
    return tap_frame_set(frame, node->result[0], &view, err);
}

/* Every value the graph returns that was made before node n is there when the host is asked for n. */
static inline void rg_check_earlier(rg_host *self, tap_frame *frame, int32_t n)
{
    const random_graph *graph = self->truth->graph;
    for (int32_t v = graph->ninputs; v < graph->nvalues && !graph->changes_inputs; v++) {
        const rg_value *value = &graph->values[v];
        if (!value->is_output || value->node >= n || value->whole_numbers)
            continue;
        tap_tensor held = view_of(&self->host.values[v]);
        (void)frame;
        if (!held.data)
            rg_complain(self->truth, "node %d: value %d is not there yet", (int)n, (int)v);
        else
            rg_compare(self->truth, &held, self->truth->out[value->node][graph->nodes[value->node].result[0] != v], n,
                       "the earlier value", (int)v);
    }
}

static tap_status rg_call(void *user, tap_frame *frame, int32_t n, tap_error *err)
{
    rg_host *self = user;
    const rg_node *node = &self->truth->graph->nodes[n];
    TAP_TRY(rg_may_fail(self, err));
    rg_check_held(self, frame, n, false);
    rg_check_earlier(self, frame, n);
    if (self->inside)
        self->inside(self, n);
    if (node->kind == RG_SLICE || node->kind == RG_TURN)
        return make_view(&self->host, frame, &self->host.graph->nodes[n], err);
    if (node->kind == RG_ASSIGN)
        return rg_assign(self, frame, n, err);
    for (int r = 0; r < node->nresults; r++) {
        const rg_value *value = &self->truth->graph->values[node->result[r]];
        if (value->absent)
            continue;
        tensor made = shaped(TAP_F64, DENSE, 2, (int64_t[]){rg_concrete(self->truth, value->size[0]),
                                                            rg_concrete(self->truth, value->size[1])});
        allocate_tensor(&made);
        for (int64_t i = 0; i < made.count; i++)
            put(&made, i, self->truth->out[n][r][i]);
        hold(&self->host, node->result[r], made);
        tap_tensor view = view_of(&made);
        TAP_TRY(tap_frame_set(frame, node->result[r], &view, err));
    }
    return TAP_OK;
}

static tap_status rg_observe(void *user, tap_frame *frame, int32_t n, tap_error *err)
{
    TAP_TRY(rg_may_fail(user, err));
    rg_check_held(user, frame, n, true);
    ((rg_host *)user)->host.observed++;
    return TAP_OK;
}

static const tap_host RG_HOST_TABLE = {.size = sizeof RG_HOST_TABLE, .call = rg_call, .alloc = rg_alloc, .match = rg_match,
                                       .release = rg_release, .observe = rg_observe};

static inline tap_engine *rg_engine(const random_graph *self, unsigned flags, tap_error *err)
{
    tap_engine *engine = NULL;
    tap_graph *graph = rg_build(self, err);
    if (!graph || tap_engine_new(graph, flags, &RG_HOST_TABLE, &engine, err) != TAP_OK)
        return NULL;
    return engine;
}

/* The inputs; strange: strides that the graph was not traced with. */
static inline void rg_inputs(const random_graph *self, int64_t s0, bool strange, tensor *in)
{
    const rg_truth sizes = {.graph = self, .symbols = {s0, 0}};
    for (int32_t v = 0; v < self->ninputs; v++) {
        const rg_value *value = &self->values[v];
        int64_t size[2] = {rg_concrete(&sizes, value->size[0]), rg_concrete(&sizes, value->size[1])};
        if (value->whole_numbers) {
            in[v] = shaped(TAP_I64, DENSE, 1, size);
            allocate_tensor(&in[v]);
            for (int64_t i = 0; i < 3; i++)
                put(&in[v], i, (double)(2 - i));
            continue;
        }
        in[v] = filled(TAP_F64, strange && v == 1 ? GAPS : DENSE, -9, 9, 2, size);
        for (int64_t i = 0; i < in[v].count; i++)
            put(&in[v], i, (double)(random_below(2001) - 1000));
    }
}

/* One run of the engine against the truth. self->truth->wrong says what was not right; outputs are compared only after
 * TAP_OK. Everything that the run held is given back. */
static inline tap_status rg_run(rg_host *self, tap_engine *engine, const random_graph *graph, int64_t s0, int64_t u0,
                                tap_error *err)
{
    rg_truth *truth = calloc(1, sizeof *truth), *outer = rg_running; /* a run may have another inside */
    tensor in[RG_INPUTS];
    rg_inputs(graph, s0, !graph->changes_inputs && s0 % 2, in);
    rg_truth_make(truth, graph, s0, u0, in);
    self->truth = rg_running = truth;
    memset(self->released, 0, sizeof self->released);
    tap_status status = run_engine(engine, &self->host, in, graph->ninputs, err);
    for (int32_t v = 0; status == TAP_OK && v < graph->nvalues; v++) {
        const rg_value *value = &graph->values[v];
        if (!value->is_output)
            continue;
        double *wanted = rg_copy(truth, value);
        tap_tensor found = view_of(&self->host.values[v]);
        rg_compare(truth, &found, wanted, value->node, "returned value", (int)v);
        free(wanted);
    }
    /* What is left is the graph's result, what its views lie in, or what only a view of a later segment names. */
    for (int32_t v = graph->ninputs; v < graph->nvalues; v++)
        if (status == TAP_OK && !graph->has_u0 && self->host.owned[v] && !graph->values[v].is_output && !self->host.viewed[v])
            rg_complain(truth, "value %d was never let go", (int)v);
    if (getenv("RG_PRINT") && (truth->wrong[0] || status != TAP_OK))
        rg_print(truth);
    if (truth->wrong[0]) {
        status = TAP_E_INTERNAL;
        tap_fail(err, status, "%s", truth->wrong);
    }
    host_clear(&self->host);
    for (int32_t v = 0; v < graph->ninputs; v++)
        drop(&in[v]);
    rg_truth_free(truth);
    free(truth);
    rg_running = outer;
    return status;
}

#endif
