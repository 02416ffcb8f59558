/* graph_test.h - for tests that build graphs and run them: tensors of any layout, a host made of malloc, and one call that
 * runs a graph. Memory of a value is exactly as long as its elements reach, so that a sanitizer sees every step past it.
 * Elements are read and written one by one (tensor/element.h), which no kernel does. */
#ifndef TAP_TESTS_GRAPH_TEST_H
#define TAP_TESTS_GRAPH_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/parallel.h"
#include "tensor/element.h"

enum { MAX_VALUES = 128, MAX_DIMS = 6 };

/* ---------------------------------------------------------------------------------------------------------- numbers */

static inline int64_t random_below(int64_t bound)
{
    return (int64_t)(next_random() % (uint64_t)bound);
}

/* ------------------------------------------------------------------------------------------------- instruction sets */

/* Runs a group of tests with every instruction set there is here; how many failed. */
static inline int with_each_isa(int (*group)(const char *isa))
{
    static const char *const ISAS[] = {"plain", "avx2", "avx512", "neon"};
    int failed = 0;
    for (size_t i = 0; i < sizeof ISAS / sizeof ISAS[0]; i++)
        if (tap_isa_set(ISAS[i]))
            failed += group(ISAS[i]);
    tap_isa_set(NULL);
    return failed;
}

/* ---------------------------------------------------------------------------------------------------------- threads */

/* How many threads kernels may use from now on; false where OpenMP is not there (or a sanitizer fixes the number). */
static inline bool set_threads(int count)
{
    void *library = dlopen("libgomp.so.1", RTLD_NOW);
    void (*set)(int);
    *(void **)&set = library ? dlsym(library, "omp_set_num_threads") : NULL;
    if (set)
        set(count);
    return tap__threads() == count;
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

typedef enum layout { DENSE, TURNED, GAPS } layout; /* TURNED: the first dimension is the innermost */

typedef struct tensor {
    tap_dtype dtype;
    int ndim;
    int64_t size[MAX_DIMS], stride[MAX_DIMS], count;
    int64_t offset; /* of a view's spec: elements from the start of its storage */
    void *data;     /* element [0, ...]; NULL: not made yet */
} tensor;

static inline size_t reach(const tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++)
        last += (t->size[i] - 1) * t->stride[i];
    return t->count ? (size_t)(last + 1) * tap_dtype_describe(t->dtype)->bytes : 0;
}

static inline tensor shaped(tap_dtype dtype, layout how, int ndim, const int64_t *size)
{
    tensor t = {.dtype = dtype, .ndim = ndim, .count = 1};
    int64_t step = how == GAPS ? 2 : 1;
    for (int k = 0; k < ndim; k++) {
        int i = how == TURNED ? k : ndim - 1 - k;
        t.size[i] = size[i];
        t.stride[i] = step;
        step *= size[i] > 0 ? size[i] : 1;
        step += how == GAPS;
        t.count *= size[i];
    }
    return t;
}

static inline void allocate_tensor(tensor *t)
{
    size_t bytes = reach(t);
    t->data = malloc(bytes ? bytes : 1);
    memset(t->data, 0xA5, bytes);
}

/* Element number i, counted in row-major order. */
static inline void *element(const tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->size[d] * t->stride[d];
        i /= t->size[d];
    }
    return (char *)t->data + at * (int64_t)tap_dtype_describe(t->dtype)->bytes;
}

static inline double get(const tensor *t, int64_t i)
{
    tap_scalar value = tap__element_get(t->dtype, element(t, i), 0);
    return value.kind == 'F' ? value.re : value.kind == 'I' ? (double)value.i : (double)value.u;
}

static inline void put(const tensor *t, int64_t i, double number)
{
    tap_scalar value = {.kind = tap_dtype_describe(t->dtype)->kind, .i = (int64_t)number, .u = (uint64_t)(int64_t)number,
                        .re = number};
    tap__element_put(t->dtype, element(t, i), 0, &value);
}

/* What number becomes when it is stored as dtype. */
static inline double stored(tap_dtype dtype, double number)
{
    int64_t room[2];
    tensor one = {.dtype = dtype, .count = 1, .data = room};
    put(&one, 0, number);
    return get(&one, 0);
}

/* Multiples of a quarter (whole numbers where there is nothing else) in [low, high]. */
static inline tensor filled(tap_dtype dtype, layout how, int low, int high, int ndim, const int64_t *size)
{
    tensor t = shaped(dtype, how, ndim, size);
    allocate_tensor(&t);
    bool whole = tap_dtype_describe(dtype)->kind != 'F';
    for (int64_t i = 0; i < t.count; i++)
        put(&t, i, whole ? (double)(low + random_below(high - low + 1)) : low + 0.25 * (double)random_below(4 * (high - low) + 1));
    return t;
}

static inline void drop(tensor *t)
{
    free(t->data);
    t->data = NULL;
}

static inline tap_tensor view_of(const tensor *t)
{
    return (tap_tensor){.data = t->data, .dtype = t->dtype, .ndim = t->ndim, .shape = t->size, .strides = t->stride};
}

static inline void copy_elements(const tensor *to, const tensor *from)
{
    for (int64_t i = 0; i < from->count; i++) {
        tap_scalar value = tap__element_get(from->dtype, element(from, i), 0);
        tap__element_put(to->dtype, element(to, i), 0, &value);
    }
}

/* ------------------------------------------------------------------------------------------------------------- host */

/* Holds the values of one run. A view that the host must make is made from the specs; other nodes go to `call`. */
typedef struct test_host {
    const tap_graph *graph;
    tensor values[MAX_VALUES];
    bool owned[MAX_VALUES], viewed[MAX_VALUES]; /* viewed: its memory is needed as long as the view of it */
    int allocs, matches, calls, observed;
    tap_status (*call)(struct test_host *self, tap_frame *frame, int32_t node, tap_error *err);
} test_host;

static inline void take_layout(tensor *t, const tap_tensor *like)
{
    *t = (tensor){.dtype = like->dtype, .ndim = like->ndim, .count = 1};
    for (int i = 0; i < like->ndim; i++) {
        t->size[i] = like->shape[i];
        t->stride[i] = like->strides[i];
        t->count *= like->shape[i];
    }
}

static inline tensor host_tensor(const tap_tensor *like)
{
    tensor t;
    take_layout(&t, like);
    allocate_tensor(&t);
    return t;
}

static inline void hold(test_host *self, int32_t value, tensor t)
{
    if (self->owned[value])
        drop(&self->values[value]);
    self->values[value] = t;
    self->owned[value] = true;
}

static inline tap_status host_alloc(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                                    tap_error *err)
{
    test_host *self = user;
    tensor t = host_tensor(like);
    (void)frame;
    (void)err;
    hold(self, value, t);
    self->allocs++;
    *data = t.data;
    return TAP_OK;
}

static inline tap_status host_match(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                                    tap_error *err)
{
    test_host *self = user;
    tensor t = host_tensor(like);
    (void)frame;
    (void)err;
    copy_elements(&t, &self->values[value]);
    hold(self, value, t);
    self->matches++;
    *data = t.data;
    return TAP_OK;
}

static inline void host_release(void *user, tap_frame *frame, int32_t value)
{
    test_host *self = user;
    (void)frame;
    if (!self->owned[value] || self->viewed[value])
        return;
    drop(&self->values[value]);
    self->owned[value] = false;
}

static inline tap_status make_view(test_host *self, tap_frame *frame, const tap__node *node, tap_error *err)
{
    const tap__plan *plan = frame->plan;
    const tap__value *base = &self->graph->values[node->uses[0]];
    self->viewed[node->uses[0]] = true;
    for (int32_t i = 0; i < node->nvalues; i++) {
        int32_t value = node->first_value + i;
        const tap__value *spec = &self->graph->values[value];
        tap_tensor like = tap__operand_view(&plan->values[value], NULL);
        tensor *t = &self->values[value];
        take_layout(t, &like);
        int64_t further = plan->syms[spec->offset] * (int64_t)tap_dtype_describe(spec->dtype)->bytes -
                          plan->syms[base->offset] * (int64_t)tap_dtype_describe(base->dtype)->bytes;
        t->data = (char *)frame->data[node->uses[0]] + further;
        tap_tensor view = view_of(t);
        TAP_TRY(tap_frame_set(frame, value, &view, err));
    }
    return TAP_OK;
}

static inline tap_status host_call(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    test_host *self = user;
    self->calls++;
    if (self->graph->nodes[node].op->kind == TAP_OP_VIEW)
        return make_view(self, frame, &self->graph->nodes[node], err);
    if (self->call)
        return self->call(self, frame, node, err);
    for (int32_t i = 0; i < self->graph->nodes[node].nvalues; i++) { /* anything, of the right sizes */
        int32_t value = self->graph->nodes[node].first_value + i;
        if (self->graph->values[value].type == TAP_SPEC_NONE)
            continue;
        if (frame->plan->values[value].ndim < 0)
            return TAP_E_UNSUPPORTED;
        tap_tensor like = tap__operand_view(&frame->plan->values[value], NULL);
        TAP_TRY(host_alloc(user, frame, value, &like, &frame->data[value], err));
        tap_tensor made = view_of(&self->values[value]);
        TAP_TRY(tap_frame_set(frame, value, &made, err));
    }
    return TAP_OK;
}

static inline tap_status host_observe(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    (void)frame;
    (void)node;
    (void)err;
    ((test_host *)user)->observed++;
    return TAP_OK;
}

static inline void host_work(void *user, tap_frame *frame, bool begins)
{
    (void)user;
    (void)frame;
    (void)begins;
}

static const tap_host HOST = {.size = sizeof HOST, .call = host_call, .alloc = host_alloc, .match = host_match,
                              .release = host_release, .work = host_work, .observe = host_observe};

static inline void host_clear(test_host *self)
{
    for (int i = 0; i < MAX_VALUES; i++)
        if (self->owned[i])
            drop(&self->values[i]);
    *self = (test_host){.allocs = 0};
}

/* One run; results are in host->values. The tensors of in are the graph's inputs in order. */
static inline tap_status run_engine(tap_engine *engine, test_host *host, const tensor *in, int nin, tap_error *err)
{
    tap_frame *frame;
    host->graph = tap_engine_graph(engine);
    TAP_TRY(tap_frame_begin(engine, host, &frame, err));
    tap_status status = TAP_OK;
    for (int i = 0; i < nin && status == TAP_OK; i++) {
        tap_tensor view = view_of(&in[i]);
        int32_t value = host->graph->inputs[i];
        host->values[value] = in[i];
        status = tap_frame_set(frame, value, &view, err);
    }
    if (status == TAP_OK)
        status = tap_frame_run(frame, err);
    tap_frame_end(frame);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

typedef struct spec_room {
    tap_sym size[MAX_DIMS], stride[MAX_DIMS];
} spec_room;

static inline tap_spec spec_like(tap_graph *graph, const tensor *t, spec_room *room)
{
    for (int i = 0; i < t->ndim; i++) {
        room->size[i] = tap_graph_const(graph, t->size[i]);
        room->stride[i] = tap_graph_const(graph, t->stride[i]);
    }
    return (tap_spec){.type = TAP_SPEC_TENSOR, .dtype = t->dtype, .ndim = t->ndim, .sizes = room->size,
                      .strides = room->stride, .offset = tap_graph_const(graph, t->offset)};
}

static inline int32_t add_input(tap_graph *graph, const tensor *t)
{
    spec_room room;
    tap_spec spec = spec_like(graph, t, &room);
    int32_t value;
    tap_error err;
    assert_int_equal(tap_graph_input(graph, "x", &spec, &value, &err), TAP_OK);
    return value;
}

/* Adds a call whose results look like out[0 ... nout). */
static inline tap_status add_call(tap_graph *graph, const char *name, const char *target, const tap_arg *args, size_t nargs,
                                  const tensor *out, int nout, int32_t *value, tap_error *err)
{
    spec_room rooms[8];
    tap_spec specs[8];
    for (int i = 0; i < nout; i++)
        specs[i] = out[i].dtype == TAP_DTYPE_NONE ? (tap_spec){.type = TAP_SPEC_NONE} : spec_like(graph, &out[i], &rooms[i]);
    tap_node_desc desc;
    int32_t node;
    tap_node_desc_init(&desc);
    desc.name = name;
    desc.target = target;
    desc.args = args;
    desc.nargs = nargs;
    desc.outputs = specs;
    desc.noutputs = (size_t)nout;
    return tap_graph_call(graph, &desc, &node, value, err);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ARGS(...) (const tap_arg[]){__VA_ARGS__}, COUNT_OF(((const tap_arg[]){__VA_ARGS__}))
#define SIZES(...) (int)COUNT_OF(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__}
#define VALUE(n, v) {.name = (n), .type = TAP_ARG_VALUE, .i = (v)}
#define INT(n, v) {.name = (n), .type = TAP_ARG_INT, .i = (v)}
#define BOOL(n, v) {.name = (n), .type = TAP_ARG_BOOL, .i = (v)}
#define FLOAT(n, v) {.name = (n), .type = TAP_ARG_FLOAT, .f = (v)}
#define STR(n, v) {.name = (n), .type = TAP_ARG_STR, .s = (v)}
#define OF_DTYPE(n, v) {.name = (n), .type = TAP_ARG_DTYPE, .i = (v)}
#define LIST(n, ...)                                                                                                 \
    {.name = (n), .type = TAP_ARG_LIST, .items = (const tap_arg[]){__VA_ARGS__},                                     \
     .count = COUNT_OF(((const tap_arg[]){__VA_ARGS__}))}

/* A graph of one call. VALUE arguments number the inputs. The results come in out, whose layouts are the ones asked for
 * (dtype NONE: nobody wants it). False: the engine leaves the call to the host. */
static inline bool run_call(const char *target, const tap_arg *args, size_t nargs, const tensor *in, int nin, tensor *out,
                            int nout)
{
    tap_graph *graph;
    tap_engine *engine;
    tap_error err = {0};
    int32_t value, outputs[8];
    assert_int_equal(tap_graph_new("one call", &graph, &err), TAP_OK);
    for (int i = 0; i < nin; i++)
        add_input(graph, &in[i]);
    if (add_call(graph, "node", target, args, nargs, out, nout, &value, &err) != TAP_OK)
        fail_msg("%s: %s", target, err.message);
    for (int i = 0; i < nout; i++)
        outputs[i] = value + i;
    assert_int_equal(tap_graph_output(graph, outputs, (size_t)nout, &err), TAP_OK);
    assert_int_equal(tap_engine_new(graph, 0, &HOST, &engine, &err), TAP_OK);
    static test_host host;
    if (run_engine(engine, &host, in, nin, &err) != TAP_OK)
        fail_msg("%s: %s", target, err.message);
    bool native = !tap_engine_is_host(engine, 0);
    for (int i = 0; i < nout; i++) {
        out[i].data = NULL;
        if (out[i].dtype == TAP_DTYPE_NONE)
            continue;
        out[i].data = host.values[value + i].data;
        host.owned[value + i] = false;
    }
    host_clear(&host);
    tap_engine_free(engine);
    return native;
}

#endif
