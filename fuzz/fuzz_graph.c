/* fuzz_graph.c - bytes as a graph: inputs of any layout, calls of any overload the table knows with any arguments, then
 * plans and runs for two signatures. Sizes of results are mostly what the operator's rule says and now and then something
 * else. Whatever comes, nothing may be read or written outside of a value's memory. */
#include "engine/engine.h"
#include "frontend/aten.h"
#include "graph/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const TARGETS[] = {
#define ATEN(target, op, bindings) target,
#include "frontend/aten.def"
};

enum { MAX_INPUTS = 4, MAX_NODES = 10, MAX_VALUES = 64, MAX_OUT = 5, MAX_ELEMENTS = 4096 };
enum { COUNT_TARGETS = sizeof TARGETS / sizeof TARGETS[0] };

static const tap_dtype DTYPES[] = {TAP_F32, TAP_I64, TAP_F64, TAP_BF16, TAP_BOOL, TAP_F16,
                                   TAP_I32, TAP_U8,  TAP_C64, TAP_I8,   TAP_I16,  TAP_C128};

typedef struct known {
    tap__operand operand;
    int64_t offset;          /* bytes from the start of its root's storage */
    int64_t begin, end;      /* of the root's storage, in bytes */
} known;

typedef struct fuzz {
    const uint8_t *at, *end;
    tap_graph *graph;
    known values[MAX_VALUES];
    int32_t nvalues;
    bool has_views;          /* placed for the first signature */
    int64_t signature[2];    /* what s0 and s1 are in the first run */
    tap_sym symbols[2];
    /* of a run */
    void *memory[MAX_VALUES * 2]; /* of a value, and of a copy of it */
    bool viewed[MAX_VALUES];
    uint64_t random;
} fuzz;

static unsigned next(fuzz *self)
{
    return self->at < self->end ? *self->at++ : 0;
}

/* ---------------------------------------------------------------------------------------------------------- sizes */

static int64_t small_size(fuzz *self)
{
    static const int64_t SIZES[] = {1, 2, 3, 4, 5, 0, 7, 8, 9, 17};
    return SIZES[next(self) % 10];
}

static void set_strides(tap__operand *operand, unsigned how)
{
    int64_t step = how == 2 ? 2 : 1;
    for (int k = 0; k < operand->ndim; k++) {
        int i = how == 1 ? k : operand->ndim - 1 - k;
        operand->stride[i] = step;
        step *= operand->size[i] > 0 ? operand->size[i] : 1;
    }
    if (how == 3 && operand->ndim > 0)
        operand->stride[0] = 0;
}

/* Some sizes are symbols that have this value just now. */
static tap_sym sym_of(fuzz *self, int64_t value, unsigned symbolic)
{
    for (int i = 0; i < 2; i++)
        if (symbolic >> i & 1 && value == self->signature[i])
            return self->symbols[i];
    return tap_graph_const(self->graph, value);
}

static tap_spec spec_of(fuzz *self, tap_graph *graph, const known *value, unsigned symbolic, tap_sym *room)
{
    const tap__operand *operand = &value->operand;
    for (int i = 0; i < operand->ndim; i++) {
        bool real = graph == self->graph;
        room[i] = real ? sym_of(self, operand->size[i], symbolic) : tap_graph_const(graph, operand->size[i]);
        room[TAP_ENGINE_MAX_NDIM + i] = real ? sym_of(self, operand->stride[i], symbolic)
                                             : tap_graph_const(graph, operand->stride[i]);
    }
    const tap_dtype_info *info = tap_dtype_describe(operand->dtype);
    return (tap_spec){.type = TAP_SPEC_TENSOR, .dtype = operand->dtype, .ndim = operand->ndim, .sizes = room,
                      .strides = room + TAP_ENGINE_MAX_NDIM,
                      .offset = tap_graph_const(graph, info ? value->offset / info->bytes : 0)};
}

static bool is_small(const tap__operand *operand)
{
    int64_t count = 1;
    if (operand->ndim < 0 || operand->ndim > TAP_ENGINE_MAX_NDIM)
        return false;
    for (int i = 0; i < operand->ndim; i++) {
        if (operand->size[i] < 0 || operand->size[i] > MAX_ELEMENTS || operand->stride[i] < 0 ||
            operand->stride[i] > MAX_ELEMENTS)
            return false;
        count *= operand->size[i];
        if (count > MAX_ELEMENTS)
            return false;
    }
    return true;
}

static void own_storage(known *value)
{
    value->offset = value->begin = 0;
    value->end = tap_dtype_describe(value->operand.dtype) ? (int64_t)tap__operand_bytes(&value->operand) : 0;
}

/* ------------------------------------------------------------------------------------------------------ arguments */

static int64_t any_int(fuzz *self)
{
    /* shape rules multiply what they are given: as far as no product of four overflows */
    static const int64_t RARE[] = {4096, -4096, 1000, -100, 100, 33, 64, -9};
    unsigned byte = next(self);
    return byte < 240 ? (int64_t)(byte % 8) - 2 : RARE[byte % 8];
}

static double any_float(fuzz *self)
{
    static const double VALUES[] = {0, 1, -1, 0.5, 1e-5, 2, 20, 1e30, -0.0, INFINITY, NAN, -2.5};
    return VALUES[next(self) % 12];
}

typedef struct arguments {
    tap_arg list[TAP_OP_MAX_PARAMS], items[TAP_OP_MAX_PARAMS][4];
    size_t count;
} arguments;

static tap_arg any_value(fuzz *self)
{
    return (tap_arg){.type = TAP_ARG_VALUE, .i = (int64_t)(next(self) % (unsigned)self->nvalues)};
}

static tap_arg any_number(fuzz *self)
{
    unsigned how = next(self) % 4;
    return how == 0 ? (tap_arg){.type = TAP_ARG_INT, .i = any_int(self)}
           : how == 1 ? (tap_arg){.type = TAP_ARG_FLOAT, .f = any_float(self)}
           : how == 2 ? (tap_arg){.type = TAP_ARG_BOOL, .i = next(self) % 2}
                      : (tap_arg){.type = TAP_ARG_COMPLEX, .f = any_float(self), .imag = any_float(self)};
}

static tap_arg any_operand(fuzz *self)
{
    unsigned how = next(self);
    return how < 224 ? any_value(self) : how < 240 ? any_number(self) : (tap_arg){.type = TAP_ARG_NONE};
}

static void fill_list(fuzz *self, tap_arg *arg, tap_arg *items, const tap_param *param)
{
    arg->type = TAP_ARG_LIST;
    arg->items = items;
    arg->count = next(self) % 5;
    for (size_t i = 0; i < arg->count; i++)
        items[i] = param->kind == TAP_PARAM_LIST ? any_operand(self)
                   : param->type == TAP_ATTR_FLOATS ? (tap_arg){.type = TAP_ARG_FLOAT, .f = any_float(self)}
                                                    : (tap_arg){.type = TAP_ARG_INT, .i = any_int(self)};
}

static tap_arg any_arg(fuzz *self, const tap_param *param, tap_arg *items)
{
    static const char *const WORDS[] = {"none", "tanh", "floor", "trunc", "sum", "prod", "mean", "amax", "amin", "add", "multiply",
                                        "left", "right", ""};
    tap_arg arg = {.type = TAP_ARG_NONE};
    if (param->kind == TAP_PARAM_LIST) {
        fill_list(self, &arg, items, param);
        return arg;
    }
    if (param->kind != TAP_PARAM_ATTR)
        return param->kind == TAP_PARAM_OPTIONAL && next(self) % 2 ? arg : any_operand(self);
    if (next(self) % 8 == 0)
        return arg;
    switch (param->type) {
    case TAP_ATTR_INT: return (tap_arg){.type = TAP_ARG_INT, .i = any_int(self)};
    case TAP_ATTR_FLOAT: return (tap_arg){.type = TAP_ARG_FLOAT, .f = any_float(self)};
    case TAP_ATTR_BOOL: return (tap_arg){.type = TAP_ARG_BOOL, .i = next(self) % 2};
    case TAP_ATTR_SCALAR: return any_number(self);
    case TAP_ATTR_DTYPE: return (tap_arg){.type = TAP_ARG_DTYPE, .i = DTYPES[next(self) % 12]};
    case TAP_ATTR_STR: return (tap_arg){.type = TAP_ARG_STR, .s = WORDS[next(self) % 14]};
    case TAP_ATTR_INTS:
    case TAP_ATTR_FLOATS:
    case TAP_ATTR_BOOLS: fill_list(self, &arg, items, param); break;
    }
    return arg;
}

static void make_arguments(fuzz *self, const tap__aten *row, arguments *out)
{
    out->count = 0;
    for (int i = 0; i < row->op->nparams; i++) {
        if (row->bindings[i].kind != TAP__BIND_ARG)
            continue;
        tap_arg *arg = &out->list[out->count];
        *arg = any_arg(self, &row->op->params[i], out->items[out->count]);
        arg->name = row->bindings[i].text;
        out->count++;
    }
}

/* ---------------------------------------------------------------------------------------------------------- nodes */

/* What the rule of the operator says about the outputs: the call is bound in a graph that is thrown away. */
static bool ask_rule(fuzz *self, const tap_node_desc *desc, known *out, int nout)
{
    tap_graph *graph;
    tap_sym room[2 * TAP_ENGINE_MAX_NDIM];
    int32_t node, value;
    if (tap_graph_new(NULL, &graph, NULL) != TAP_OK)
        return false;
    for (int32_t i = 0; i < self->nvalues; i++) {
        tap_spec spec = spec_of(self, graph, &self->values[i], 0, room);
        tap_graph_input(graph, NULL, &spec, &value, NULL);
    }
    tap_spec outputs[MAX_OUT];
    tap_node_desc asked = *desc;
    for (int i = 0; i < nout; i++)
        outputs[i] = (tap_spec){.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .offset = -1};
    asked.outputs = outputs;
    bool known_now = false;
    if (tap_graph_call(graph, &asked, &node, &value, NULL) == TAP_OK && graph->nodes[0].op->shape) {
        const tap__node *made = &graph->nodes[0];
        tap__operand in[64] = {0}, results[MAX_OUT] = {0};
        tap__attr attrs[TAP_OP_MAX_PARAMS];
        for (int i = 0; i < TAP_OP_MAX_PARAMS; i++)
            attrs[i] = made->attrs[i].fixed;
        for (int32_t i = 0; i < made->nsources && i < 64; i++) {
            const tap__source *from = &made->sources[i];
            if (from->kind == TAP__SOURCE_VALUE)
                in[i] = self->values[from->value].operand;
            else if (from->kind == TAP__SOURCE_NUMBER)
                in[i] = (tap__operand){.is_number = true, .number = from->number, .dtype = tap__number_dtype(&from->number)};
        }
        tap__call call = {.op = made->op, .name = "n", .nin = made->nsources, .nout = nout, .in = in, .out = results,
                          .attrs = attrs, .threads = 1};
        known_now = made->op->shape(&call, NULL) == TAP_OK;
        for (int i = 0; known_now && i < nout; i++)
            out[i].operand = results[i];
    }
    tap_graph_free(graph);
    return known_now;
}

static bool place_view(fuzz *self, const arguments *args, known *out, int nout)
{
    if (args->count == 0 || args->list[0].type != TAP_ARG_VALUE)
        return false;
    const known *base = &self->values[args->list[0].i];
    int64_t item = tap_dtype_describe(base->operand.dtype)->bytes;
    for (int i = 0; i < nout; i++) {
        const tap_dtype_info *info = tap_dtype_describe(out[i].operand.dtype);
        if (!info || !is_small(&out[i].operand) || out[i].operand.offset < -MAX_ELEMENTS || out[i].operand.offset > MAX_ELEMENTS)
            return false;
        out[i].begin = base->begin;
        out[i].end = base->end;
        out[i].offset = base->offset + out[i].operand.offset * item;
        if (out[i].offset % info->bytes != 0 || out[i].offset < out[i].begin ||
            out[i].offset + (int64_t)tap__operand_bytes(&out[i].operand) > out[i].end)
            return false;
        out[i].operand.offset = 0;
    }
    return true;
}

static void guess(fuzz *self, known *out)
{
    tap__operand *operand = &out->operand;
    *operand = self->values[next(self) % (unsigned)self->nvalues].operand;
    unsigned how = next(self);
    if (how % 4 == 0)
        operand->dtype = DTYPES[how / 4 % 12];
    if (how % 4 == 1 && operand->ndim > 0)
        operand->size[how / 4 % (unsigned)operand->ndim] = small_size(self);
    if (how % 4 == 2) {
        operand->ndim = (int32_t)(how / 4 % 4);
        for (int i = 0; i < operand->ndim; i++)
            operand->size[i] = small_size(self);
    }
    set_strides(operand, 0);
}

static void add_node(fuzz *self)
{
    unsigned which = next(self) << 8;
    const char *target = TARGETS[(which | next(self)) % COUNT_TARGETS];
    const tap__aten *row = tap__aten_find(target);
    static arguments args;
    known out[MAX_OUT] = {0};
    if (!row)
        return;
    make_arguments(self, row, &args);
    int nout = row->op->noutputs >= 0 ? row->op->noutputs : 1 + (int)(next(self) % 4);
    if (nout > MAX_OUT || self->nvalues + nout > MAX_VALUES)
        return;
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.name = "n";
    desc.target = target;
    desc.args = args.list;
    desc.nargs = args.count;
    desc.noutputs = (size_t)nout;
    unsigned how = next(self);
    desc.flags = (how & 3) == 3 ? how >> 6 : 0;
    bool ruled = ask_rule(self, &desc, out, nout), is_view = row->op->kind == TAP_OP_VIEW;
    tap_sym room[MAX_OUT][2 * TAP_ENGINE_MAX_NDIM];
    tap_spec specs[MAX_OUT];
    if (is_view && (!ruled || !place_view(self, &args, out, nout)))
        return;
    for (int i = 0; i < nout; i++) {
        if (!is_view) {
            if (!ruled || how % 16 == 1)
                guess(self, &out[i]);
            if (!tap_dtype_describe(out[i].operand.dtype) || !is_small(&out[i].operand))
                return;
            set_strides(&out[i].operand, how / 16 % 8 < 6 ? 0 : how / 16 % 8 - 5);
            own_storage(&out[i]);
        }
        specs[i] = spec_of(self, self->graph, &out[i], how >> 4 & 3, room[i]);
        if (!is_view && how % 32 == 2 + (unsigned)i) /* not wanted, as a backward's outputs may be */
            specs[i] = (tap_spec){.type = TAP_SPEC_NONE};
    }
    desc.outputs = specs;
    int32_t node, value;
    if (tap_graph_call(self->graph, &desc, &node, &value, NULL) != TAP_OK)
        return;
    self->has_views = self->has_views || is_view;
    for (int i = 0; i < nout; i++)
        self->values[self->nvalues++] = out[i];
}

static void add_inputs(fuzz *self)
{
    unsigned count = 1 + next(self) % MAX_INPUTS;
    for (unsigned i = 0; i < count; i++) {
        known *value = &self->values[self->nvalues];
        tap_sym room[2 * TAP_ENGINE_MAX_NDIM];
        int32_t made;
        unsigned how = next(self);
        *value = (known){.operand = {.dtype = DTYPES[next(self) % 12], .ndim = (int32_t)(next(self) % 5)}};
        for (int d = 0; d < value->operand.ndim; d++)
            value->operand.size[d] = how & 16 && d < 2 ? self->signature[d] : small_size(self);
        set_strides(&value->operand, how % 8 < 4 ? how % 4 : 0);
        if (!is_small(&value->operand))
            continue;
        own_storage(value);
        tap_spec spec = spec_of(self, self->graph, value, how >> 4, room);
        if (tap_graph_input(self->graph, "x", &spec, &made, NULL) == TAP_OK)
            self->nvalues++;
    }
}

/* ----------------------------------------------------------------------------------------------------------- host */

static void fill(fuzz *self, void *memory, size_t bytes, tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    size_t count = bytes / info->bytes;
    uint8_t *to = memory;
    for (size_t i = 0; i < bytes; i++) {
        self->random = self->random * 6364136223846793005u + 1442695040888963407u;
        to[i] = (uint8_t)(self->random >> 56);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t number = (int64_t)to[i * info->bytes] % 8 - (to[i * info->bytes] > 250 ? 4 : 0);
        if (info->kind == 'I' || info->kind == 'U' || info->kind == 'B')
            memcpy(to + i * info->bytes, &(int64_t){info->kind == 'B' ? number & 1 : number}, info->bytes);
        else if (dtype == TAP_F32 && i % 5)
            memcpy(to + i * 4, &(float){(float)number / 4}, 4);
        else if (dtype == TAP_F64 && i % 5)
            memcpy(to + i * 8, &(double){(double)number / 4}, 8);
    }
}

static void *fresh(fuzz *self, void **slot, const tap__operand *operand)
{
    size_t bytes = tap__operand_bytes(operand);
    if (bytes > (1 << 22))
        return NULL;
    free(*slot);
    *slot = malloc(bytes ? bytes : 1);
    if (*slot)
        fill(self, *slot, bytes, operand->dtype);
    return *slot;
}

static tap__operand operand_like(const tap_tensor *like)
{
    tap__operand operand = {.dtype = like->dtype, .ndim = like->ndim};
    memcpy(operand.size, like->shape, (size_t)like->ndim * sizeof operand.size[0]);
    memcpy(operand.stride, like->strides, (size_t)like->ndim * sizeof operand.stride[0]);
    return operand;
}

static tap_status host_alloc(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data, tap_error *err)
{
    fuzz *self = user;
    tap__operand operand = operand_like(like);
    (void)frame;
    (void)err;
    *data = fresh(self, &self->memory[value], &operand);
    return *data ? TAP_OK : TAP_E_NOMEM;
}

static tap_status host_match(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data, tap_error *err)
{
    fuzz *self = user;
    tap__operand operand = operand_like(like);
    (void)frame;
    (void)err;
    *data = fresh(self, &self->memory[MAX_VALUES + value], &operand);
    return *data ? TAP_OK : TAP_E_NOMEM;
}

static void host_release(void *user, tap_frame *frame, int32_t value)
{
    fuzz *self = user;
    (void)frame;
    if (self->viewed[value])
        return;
    free(self->memory[value]);
    free(self->memory[MAX_VALUES + value]);
    self->memory[value] = self->memory[MAX_VALUES + value] = NULL;
}

static tap_status give(tap_frame *frame, int32_t value, const tap__operand *operand, void *data, tap_error *err)
{
    tap_tensor tensor = tap__operand_view(operand, data);
    return tap_frame_set(frame, value, &tensor, err);
}

static tap_status host_call(void *user, tap_frame *frame, int32_t index, tap_error *err)
{
    fuzz *self = user;
    const tap_graph *graph = self->graph;
    const tap__node *node = &graph->nodes[index];
    const tap__plan *plan = frame->plan;
    for (int32_t i = 0; i < node->nvalues; i++) {
        int32_t value = node->first_value + i;
        const tap__value *spec = &graph->values[value];
        tap__operand operand = plan->values[value];
        if (spec->type != TAP_SPEC_TENSOR)
            continue;
        if (operand.ndim < 0 || tap__operand_count(&operand) > MAX_ELEMENTS * 8)
            return TAP_E_UNSUPPORTED;
        void *data;
        if (node->op->kind == TAP_OP_VIEW) {
            int32_t base = node->uses[0];
            self->viewed[base] = true;
            data = (char *)frame->data[base] + (self->values[value].offset - self->values[base].offset);
        } else {
            data = fresh(self, &self->memory[value], &operand);
        }
        if (!data)
            return TAP_E_NOMEM;
        tap_status status = give(frame, value, &operand, data, err);
        if (status != TAP_OK)
            return status;
    }
    return TAP_OK;
}

static tap_status host_observe(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    (void)user;
    (void)frame;
    (void)node;
    (void)err;
    return TAP_OK;
}

static const tap_host HOST = {.size = sizeof HOST, .call = host_call, .alloc = host_alloc, .match = host_match,
                              .release = host_release, .observe = host_observe};

/* ----------------------------------------------------------------------------------------------------------- runs */

static void run(fuzz *self, tap_engine *engine, const int64_t *signature)
{
    const tap__syms *syms = &self->graph->syms;
    int64_t *values = calloc((size_t)syms->count + 1, sizeof *values);
    bool *have = calloc((size_t)syms->count + 1, sizeof *have), both[2] = {true, true};
    tap_frame *frame;
    tap_error err;
    tap_status status = TAP_OK;
    tap__syms_eval(syms, signature, both, values, have);
    if (tap_frame_begin(engine, self, &frame, &err) == TAP_OK) {
        for (int32_t i = 0; i < self->graph->ninputs && status == TAP_OK; i++) {
            int32_t value = self->graph->inputs[i];
            const tap__value *spec = &self->graph->values[value];
            tap__operand operand = {.dtype = spec->dtype, .ndim = spec->ndim};
            for (int d = 0; d < spec->ndim; d++) {
                operand.size[d] = values[spec->size[d]];
                operand.stride[d] = values[spec->stride[d]];
            }
            void *data = fresh(self, &self->memory[value], &operand);
            self->viewed[value] = true;
            status = data ? give(frame, value, &operand, data, &err) : TAP_E_NOMEM;
        }
        if (status == TAP_OK)
            tap_frame_run(frame, &err);
        tap_frame_end(frame);
    }
    for (int i = 0; i < MAX_VALUES * 2; i++) {
        free(self->memory[i]);
        self->memory[i] = NULL;
    }
    memset(self->viewed, 0, sizeof self->viewed);
    free(values);
    free(have);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz self;
    memset(&self, 0, sizeof self);
    self.at = data;
    self.end = data + size;
    self.random = size;
    if (tap_graph_new("fuzz", &self.graph, NULL) != TAP_OK)
        return 0;
    self.symbols[0] = tap_graph_symbol(self.graph, "s0");
    self.symbols[1] = tap_graph_symbol(self.graph, "s1");
    for (int i = 0; i < 2; i++)
        self.signature[i] = small_size(&self);
    unsigned flags = next(&self) % 8;
    int64_t other[2] = {small_size(&self), small_size(&self)};
    add_inputs(&self);
    for (int i = 0; i < MAX_NODES && self.nvalues > 0 && self.at < self.end; i++)
        add_node(&self);
    int32_t outputs[4];
    size_t noutputs = 0;
    for (int32_t v = self.nvalues - 1; v >= 0 && noutputs < 4; v -= 1 + (int32_t)(flags & 1))
        outputs[noutputs++] = v;
    tap_engine *engine = NULL;
    if (tap_graph_output(self.graph, outputs, noutputs, NULL) != TAP_OK)
        tap_graph_free(self.graph);
    else
        tap_engine_new(self.graph, flags & 6 ? flags >> 1 & 3 : 0, &HOST, &engine, NULL);
    if (!engine)
        return 0;
    run(&self, engine, self.signature);
    run(&self, engine, self.signature);
    run(&self, engine, self.has_views ? self.signature : other);
    tap_engine_free(engine);
    return 0;
}
