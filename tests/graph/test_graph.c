/* test_graph.c - graphs through the public interface: symbolic sizes, what is refused and how that is said, plans for
 * several signatures, views, inputs that are changed or returned, HostCalls, threads, and memory running out. */
#include "engine/graph_test.h"

#include <pthread.h>
#include <stdio.h>

#include "base/failing_allocator.h"

static tap_graph *new_graph(void)
{
    tap_graph *graph;
    tap_error err;
    assert_int_equal(tap_graph_new("test", &graph, &err), TAP_OK);
    return graph;
}

static tap_engine *new_engine(tap_graph *graph, const int32_t *outputs, size_t count, unsigned flags)
{
    tap_engine *engine;
    tap_error err;
    assert_int_equal(tap_graph_output(graph, outputs, count, &err), TAP_OK);
    if (tap_engine_new(graph, flags, &HOST, &engine, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return engine;
}

static int32_t call(tap_graph *graph, const char *name, const char *target, const tap_arg *args, size_t nargs, tensor out)
{
    int32_t value;
    tap_error err;
    if (add_call(graph, name, target, args, nargs, &out, 1, &value, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return value;
}

static void run_ok(tap_engine *engine, test_host *host, const tensor *in, int nin)
{
    tap_error err = {0};
    if (run_engine(engine, host, in, nin, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

/* --------------------------------------------------------------------------------------------------------- symbols */

static void symbols(void **state)
{
    (void)state;
    static const struct {
        tap_sym_op op;
        int64_t a, b, result;
    } CASES[] = {{TAP_SYM_ADD, 3, 4, 7}, {TAP_SYM_SUB, 3, 4, -1}, {TAP_SYM_MUL, -3, 4, -12}, {TAP_SYM_FLOORDIV, 7, 2, 3},
                 {TAP_SYM_FLOORDIV, -7, 2, -4}, {TAP_SYM_FLOORDIV, 7, -2, -4}, {TAP_SYM_MOD, 7, 3, 1}, {TAP_SYM_MOD, -7, 3, 2},
                 {TAP_SYM_MOD, 7, -3, -2}, {TAP_SYM_POW, 3, 4, 81}, {TAP_SYM_POW, -1, INT64_MAX, -1}, {TAP_SYM_POW, -1, INT64_MAX - 1, 1},
                 {TAP_SYM_POW, 0, 0, 1}, {TAP_SYM_POW, 1, INT64_MAX, 1}, {TAP_SYM_POW, 0, 9, 0},
                 {TAP_SYM_MAX, 3, 4, 4}, {TAP_SYM_MIN, 3, 4, 3}};
    tap_graph *graph = new_graph();
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        tap_sym sym = tap_graph_expr(graph, CASES[i].op, tap_graph_const(graph, CASES[i].a), tap_graph_const(graph, CASES[i].b));
        assert_int_equal(sym, tap_graph_const(graph, CASES[i].result));
    }
    tap_sym s = tap_graph_symbol(graph, "s0"), twice = tap_graph_expr(graph, TAP_SYM_ADD, s, s);
    assert_int_equal(s, tap_graph_symbol(graph, "s0"));
    assert_int_equal(twice, tap_graph_expr(graph, TAP_SYM_ADD, s, s));
    assert_int_not_equal(s, tap_graph_symbol(graph, "s1"));
    assert_int_equal(tap_graph_expr(graph, TAP_SYM_ADD, s, -1), -1);
    assert_int_equal(tap_graph_expr(graph, TAP_SYM_ADD, s, 100000), -1);
    assert_int_equal(tap_graph_expr(graph, (tap_sym_op)100, s, s), -1); /* not one of the operations */
    tap_sym big = tap_graph_const(graph, INT64_MAX), zero = tap_graph_const(graph, 0);
    tap_sym none[] = {tap_graph_expr(graph, TAP_SYM_ADD, big, big), tap_graph_expr(graph, TAP_SYM_FLOORDIV, big, zero),
                      tap_graph_expr(graph, TAP_SYM_MOD, big, zero), tap_graph_expr(graph, TAP_SYM_POW, big, big)};
    for (int i = 0; i < 2000; i++) /* the table grows */
        assert_int_equal(tap_graph_expr(graph, TAP_SYM_MUL, s, tap_graph_const(graph, i + 100)),
                         tap_graph_expr(graph, TAP_SYM_MUL, s, tap_graph_const(graph, i + 100)));
    int64_t known = 5;
    bool yes = true, have[5000];
    int64_t values[5000];
    assert_true(graph->syms.count < 5000);
    int64_t both[2] = {known, 0};
    bool which[2] = {yes, false};
    tap__syms_eval(&graph->syms, both, which, values, have);
    assert_true(have[twice]);
    assert_int_equal(values[twice], 10);
    for (size_t i = 0; i < COUNT_OF(none); i++)
        assert_true(none[i] >= 0 && !have[none[i]]);
    tap_graph_free(graph);
}

/* ----------------------------------------------------------------------------------------------------- signatures */

/* a = relu(x * w) of [s0, 4], b = the sums of its rows, c = [a, a] along the first dimension. */
static tap_engine *dynamic_engine(unsigned flags)
{
    tap_graph *graph = new_graph();
    tap_error err;
    int32_t x, w, a, b, c, node;
    tap_sym one = tap_graph_const(graph, 1), four = tap_graph_const(graph, 4), s0 = tap_graph_symbol(graph, "s0");
    tap_sym twice = tap_graph_expr(graph, TAP_SYM_MUL, tap_graph_const(graph, 2), s0), zero = tap_graph_const(graph, 0);
    tap_spec rows = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 2, .sizes = (tap_sym[]){s0, four},
                     .strides = (tap_sym[]){four, one}, .offset = zero};
    tap_spec weight = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &four, .strides = &one, .offset = zero};
    tap_spec sums = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &s0, .strides = &one, .offset = zero};
    tap_spec both = rows;
    both.sizes = (tap_sym[]){twice, four};
    assert_int_equal(tap_graph_input(graph, "x", &rows, &x, &err), TAP_OK);
    assert_int_equal(tap_graph_input(graph, "w", &weight, &w, &err), TAP_OK);
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.noutputs = 1;
    desc.outputs = &rows;
    const tap_arg mul[] = {VALUE("self", x), VALUE("other", w)};
    desc.name = "mul", desc.target = "aten.mul.Tensor", desc.args = mul, desc.nargs = 2;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &a, &err), TAP_OK);
    const tap_arg relu[] = {VALUE("self", a)};
    desc.name = "relu", desc.target = "aten.relu.default", desc.args = relu, desc.nargs = 1;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &a, &err), TAP_OK);
    const tap_arg sum[] = {VALUE("self", a), LIST("dim", INT(NULL, 1)), BOOL("keepdim", 0)};
    desc.name = "sum", desc.target = "aten.sum.dim_IntList", desc.args = sum, desc.nargs = 3, desc.outputs = &sums;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &b, &err), TAP_OK);
    const tap_arg cat[] = {LIST("tensors", VALUE(NULL, a), VALUE(NULL, a)), INT("dim", 0)};
    desc.name = "cat", desc.target = "aten.cat.default", desc.args = cat, desc.nargs = 2, desc.outputs = &both;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &c, &err), TAP_OK);
    return new_engine(graph, (int32_t[]){b, c}, 2, flags);
}

static void check_dynamic(tap_engine *engine, test_host *host, int64_t rows)
{
    tensor in[2] = {shaped(TAP_F32, DENSE, SIZES(rows, 4)), shaped(TAP_F32, DENSE, SIZES(4))};
    for (int i = 0; i < 2; i++)
        allocate_tensor(&in[i]);
    for (int64_t i = 0; i < in[0].count; i++)
        put(&in[0], i, (double)(i % 11 - 5));
    for (int64_t i = 0; i < 4; i++)
        put(&in[1], i, (double)(i - 1));
    run_ok(engine, host, in, 2);
    const tap_graph *graph = tap_engine_graph(engine);
    const tensor *sums = &host->values[graph->outputs[0]], *both = &host->values[graph->outputs[1]];
    assert_int_equal(both->size[0], 2 * rows);
    for (int64_t i = 0; i < rows; i++) {
        double all = 0;
        for (int64_t k = 0; k < 4; k++) {
            double value = fmax(get(&in[0], i * 4 + k) * get(&in[1], k), 0);
            all += value;
            assert_true(get(both, i * 4 + k) == value && get(both, (rows + i) * 4 + k) == value);
        }
        assert_true(get(sums, i) == all);
    }
    host_clear(host);
    drop(&in[0]);
    drop(&in[1]);
}

static void signatures(void **state)
{
    (void)state;
    static const int64_t ROWS[] = {3, 9, 3, 1000, 0, 1, 9, 33};
    static const unsigned FLAGS[] = {0, TAP_ENGINE_EVERY_NODE, TAP_ENGINE_PROFILE};
    for (size_t f = 0; f < COUNT_OF(FLAGS); f++) {
        tap_engine *engine = dynamic_engine(FLAGS[f]);
        static test_host host;
        for (size_t i = 0; i < COUNT_OF(ROWS); i++)
            check_dynamic(engine, &host, ROWS[i]);
        tap_engine_counts counts;
        tap_engine_counts_init(&counts);
        tap_engine_count(engine, &counts);
        assert_int_equal(counts.plans, 6);
        assert_int_equal(counts.runs, 8);
        assert_int_equal(counts.host, 0);
        assert_int_equal(counts.native, 4);
        tap_node_times times;
        tap_node_times_init(&times);
        tap_engine_times(engine, 2, &times);
        assert_int_equal(times.runs, FLAGS[f] == TAP_ENGINE_PROFILE ? 8 : 0);
        for (int64_t rows = 0; f == 0 && rows < 150; rows++) /* more than are kept */
            check_dynamic(engine, &host, rows % 70);
        tap_engine_free(engine);
    }
}

static void *run_many(void *user)
{
    test_host *host = calloc(1, sizeof *host);
    for (int64_t i = 0; i < 40; i++)
        check_dynamic(user, host, i % 3 ? 5 + i % 4 : 20000);
    free(host);
    return NULL;
}

static void two_threads(void **state)
{
    (void)state;
    tap_engine *engine = dynamic_engine(0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, engine), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    tap_engine_counts counts;
    tap_engine_counts_init(&counts);
    tap_engine_count(engine, &counts);
    assert_int_equal(counts.runs, 80);
    tap_engine_free(engine);
}

/* ----------------------------------------------------------------------------------------------------------- inputs */

static void expect_failure(tap_engine *engine, const tensor *in, int nin, const char *says)
{
    static test_host host;
    tap_error err = {0};
    assert_int_equal(run_engine(engine, &host, in, nin, &err), TAP_E_INVALID);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    host_clear(&host);
}

static void wrong_inputs(void **state)
{
    (void)state;
    tensor x = filled(TAP_F32, DENSE, 0, 3, SIZES(3, 4)), w = filled(TAP_F32, DENSE, 0, 3, SIZES(4));
    tensor wide = filled(TAP_F32, DENSE, 0, 3, SIZES(3, 5)), whole = filled(TAP_I64, DENSE, 0, 3, SIZES(3, 4));
    tap_engine *engine = dynamic_engine(0);
    expect_failure(engine, (tensor[]){wide, w}, 2, "sizes [3, 5], and the graph was made for [3, 4]");
    expect_failure(engine, (tensor[]){whole, w}, 2, "value 0 is int64 with 2 dimensions, and the graph was made for float32");
    expect_failure(engine, (tensor[]){w, w}, 2, "value 0 is float32 with 1 dimensions");
    expect_failure(engine, &x, 1, "input 1 of the graph was not given");
    static test_host host;
    check_dynamic(engine, &host, 4); /* a run that failed leaves nothing behind */
    tap_engine_free(engine);
    tap_graph *graph = new_graph(); /* one symbol, two sizes */
    tap_error err;
    int32_t values[2], sum, node;
    tap_sym s0 = tap_graph_symbol(graph, "s0"), one = tap_graph_const(graph, 1);
    tap_spec spec = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &s0, .strides = &one,
                     .offset = tap_graph_const(graph, 0)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(tap_graph_input(graph, "x", &spec, &values[i], &err), TAP_OK);
    const tap_arg args[] = {VALUE("self", 0), VALUE("other", 1)};
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.name = "add", desc.target = "aten.add.Tensor", desc.args = args, desc.nargs = 2;
    desc.outputs = &spec, desc.noutputs = 1;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &sum, &err), TAP_OK);
    engine = new_engine(graph, &sum, 1, 0);
    tensor three = filled(TAP_F32, DENSE, 0, 3, SIZES(3));
    expect_failure(engine, (tensor[]){w, three}, 2, "s0 = 4");
    tap_engine_free(engine);
    drop(&x);
    drop(&w);
    drop(&wide);
    drop(&whole);
    drop(&three);
}

/* Other strides than the traced ones: the host makes a copy. */
static void other_strides(void **state)
{
    (void)state;
    tap_graph *graph = new_graph();
    tensor traced = shaped(TAP_F32, DENSE, SIZES(5, 3)), x = filled(TAP_F32, TURNED, -4, 4, SIZES(5, 3));
    int32_t in = add_input(graph, &traced);
    int32_t y = call(graph, "neg", "aten.neg.default", ARGS(VALUE("self", in)), traced);
    tap_engine *engine = new_engine(graph, &y, 1, 0);
    static test_host host;
    run_ok(engine, &host, &x, 1);
    assert_int_equal(host.matches, 1);
    for (int64_t i = 0; i < 15; i++)
        assert_true(get(&host.values[y], i) == -get(&x, i));
    host_clear(&host);
    tap_engine_free(engine);
    drop(&x);
}

/* --------------------------------------------------------------------------------------------- views and aliases */

static tensor viewed(tap_dtype dtype, int64_t offset, int ndim, const int64_t *size, const int64_t *stride)
{
    tensor t = {.dtype = dtype, .ndim = ndim, .count = 1, .offset = offset};
    for (int i = 0; i < ndim; i++) {
        t.size[i] = size[i];
        t.stride[i] = stride[i];
        t.count *= size[i];
    }
    return t;
}

/* Views cost nothing in the middle of a graph, and are the host's where it must hold them. */
static void views(void **state)
{
    (void)state;
    enum { ROWS = 6, COLUMNS = 33 };
    tap_graph *graph = new_graph();
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(ROWS, COLUMNS));
    int32_t in = add_input(graph, &x);
    int32_t twice = call(graph, "add", "aten.add.Tensor", ARGS(VALUE("self", in), VALUE("other", in)), x);
    tensor turned = viewed(TAP_F32, 0, SIZES(COLUMNS, ROWS), (int64_t[]){1, COLUMNS});
    int32_t t = call(graph, "t", "aten.t.default", ARGS(VALUE("self", twice)), turned);
    tensor part = viewed(TAP_F32, 2, SIZES(10, ROWS), (int64_t[]){3, COLUMNS});
    int32_t slice = call(graph, "slice", "aten.slice.Tensor",
                         ARGS(VALUE("self", t), INT("dim", 0), INT("start", 2), INT("end", 32), INT("step", 3)), part);
    int32_t sums = call(graph, "sum", "aten.sum.dim_IntList", ARGS(VALUE("self", slice), LIST("dim", INT(NULL, 0))),
                        shaped(TAP_F32, DENSE, SIZES(ROWS)));
    tensor one = viewed(TAP_F32, 5 * COLUMNS, SIZES(COLUMNS), (int64_t[]){1});
    int32_t row = call(graph, "select", "aten.select.int", ARGS(VALUE("self", in), INT("dim", 0), INT("index", 5)), one);
    tensor wide = viewed(TAP_F32, 5 * COLUMNS, SIZES(ROWS, COLUMNS), (int64_t[]){0, 1});
    int32_t expanded = call(graph, "expand", "aten.expand.default",
                            ARGS(VALUE("self", row), LIST("size", INT(NULL, ROWS), INT(NULL, COLUMNS))), wide);
    int32_t both = call(graph, "mul", "aten.mul.Tensor", ARGS(VALUE("self", expanded), VALUE("other", twice)),
                        shaped(TAP_F32, DENSE, SIZES(ROWS, COLUMNS)));
    tap_engine *engine = new_engine(graph, (int32_t[]){sums, both, row, in, t}, 5, 0);
    static test_host host;
    run_ok(engine, &host, &x, 1);
    assert_int_equal(host.calls, 2); /* row and t */
    for (int64_t r = 0; r < ROWS; r++) {
        double all = 0;
        for (int64_t c = 2; c < 32; c += 3)
            all += 2 * get(&x, r * COLUMNS + c);
        assert_true(get(&host.values[sums], r) == all);
        for (int64_t c = 0; c < COLUMNS; c++) {
            assert_true(get(&host.values[both], r * COLUMNS + c) == get(&x, 5 * COLUMNS + c) * 2 * get(&x, r * COLUMNS + c));
            assert_true(get(&host.values[t], c * ROWS + r) == 2 * get(&x, r * COLUMNS + c));
        }
    }
    assert_ptr_equal(host.values[row].data, (float *)x.data + 5 * COLUMNS);
    assert_ptr_equal(host.values[in].data, x.data);
    host_clear(&host);
    tap_engine_free(engine);
    drop(&x);
}

/* A view that reaches past the memory of what it is a view of is refused, not read. */
static void view_too_far(void **state)
{
    (void)state;
    tap_graph *graph = new_graph();
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(8));
    int32_t in = add_input(graph, &x), neg = call(graph, "neg", "aten.neg.default", ARGS(VALUE("self", in)), x);
    tensor far = viewed(TAP_F32, 4, SIZES(8), (int64_t[]){1});
    int32_t view = call(graph, "too_far", "aten.as_strided.default",
                        ARGS(VALUE("self", neg), LIST("size", INT(NULL, 8)), LIST("stride", INT(NULL, 1)), INT("storage_offset", 4)),
                        far);
    int32_t y = call(graph, "abs", "aten.abs.default", ARGS(VALUE("self", view)), x);
    tap_engine *engine = new_engine(graph, &y, 1, 0);
    expect_failure(engine, &x, 1, "node too_far");
    tap_engine_free(engine);
    drop(&x);
}

/* ------------------------------------------------------------------------------------------------- HostCalls */

/* "test.double_": x *= 2 in place. "test.some": how many elements of x are above zero, as a tensor of that size. */
static tap_status host_ops(test_host *self, tap_frame *frame, int32_t node, tap_error *err)
{
    const tap__node *from = &self->graph->nodes[node];
    const tensor *x = &self->values[from->uses[0]];
    if (strcmp(from->target, "test.double_") == 0) {
        for (int64_t i = 0; i < x->count; i++)
            put(x, i, 2 * get(x, i));
        return TAP_OK;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < x->count; i++)
        count += get(x, i) > 0;
    tensor made = shaped(TAP_F32, DENSE, SIZES(count));
    allocate_tensor(&made);
    for (int64_t i = 0, at = 0; i < x->count; i++)
        if (get(x, i) > 0)
            put(&made, at++, get(x, i));
    hold(self, from->first_value, made);
    tap_tensor view = view_of(&made);
    return tap_frame_set(frame, from->first_value, &view, err);
}

/* What reads an input before the call that changes it sees the old values, what reads it after it the new ones. */
static void changed_input(void **state)
{
    (void)state;
    tap_graph *graph = new_graph();
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(9, 31)), sums = shaped(TAP_F32, DENSE, SIZES(9)), before[2];
    int32_t in = add_input(graph, &x);
    int32_t neg = call(graph, "neg", "aten.neg.default", ARGS(VALUE("self", in)), x);
    int32_t old = call(graph, "sum", "aten.sum.dim_IntList", ARGS(VALUE("self", in), LIST("dim", INT(NULL, 1))), sums);
    int32_t value;
    tap_error err;
    assert_int_equal(add_call(graph, "double", "test.double_", ARGS(VALUE("self", in)), NULL, 0, &value, &err), TAP_OK);
    int32_t new = call(graph, "sum_1", "aten.sum.dim_IntList", ARGS(VALUE("self", in), LIST("dim", INT(NULL, 1))), sums);
    int32_t abs = call(graph, "abs", "aten.abs.default", ARGS(VALUE("self", in)), x);
    tap_engine *engine = new_engine(graph, (int32_t[]){neg, old, new, abs, in}, 5, 0);
    static test_host host;
    host.call = host_ops;
    before[0] = x;
    allocate_tensor(&before[0]);
    copy_elements(&before[0], &x);
    run_ok(engine, &host, &x, 1);
    for (int64_t r = 0; r < 9; r++) {
        double all = 0;
        for (int64_t i = r * 31; i < r * 31 + 31; i++) {
            double was = get(&before[0], i);
            all += was;
            assert_true(get(&host.values[neg], i) == -was && get(&host.values[abs], i) == 2 * fabs(was) && get(&x, i) == 2 * was);
        }
        assert_true(get(&host.values[old], r) == all && get(&host.values[new], r) == 2 * all);
    }
    host_clear(&host);
    tap_engine_free(engine);
    drop(&before[0]);
    drop(&x);
}

/* Sizes that depend on data cut the graph; the second part is planned when they are known. */
static void data_dependent(void **state)
{
    (void)state;
    tap_graph *graph = new_graph();
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(100));
    int32_t in = add_input(graph, &x), neg = call(graph, "neg", "aten.neg.default", ARGS(VALUE("self", in)), x), some, node, y;
    tap_sym u0 = tap_graph_symbol(graph, "u0"), one = tap_graph_const(graph, 1);
    tap_spec spec = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &u0, .strides = &one,
                     .offset = tap_graph_const(graph, 0)};
    tap_error err;
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    const tap_arg from[] = {VALUE("x", neg)};
    desc.name = "some", desc.target = "test.some", desc.args = from, desc.nargs = 1;
    desc.outputs = &spec, desc.noutputs = 1;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &some, &err), TAP_OK);
    const tap_arg twice[] = {VALUE("self", some), VALUE("other", some)};
    desc.name = "add", desc.target = "aten.add.Tensor", desc.args = twice, desc.nargs = 2;
    assert_int_equal(tap_graph_call(graph, &desc, &node, &y, &err), TAP_OK);
    tap_engine *engine = new_engine(graph, &y, 1, 0);
    static test_host host;
    for (int run = 0; run < 4; run++) {
        host.call = host_ops;
        for (int64_t i = 0; i < 100; i++)
            put(&x, i, run == 3 ? 1 : (double)random_below(9) - 4);
        run_ok(engine, &host, &x, 1);
        int64_t at = 0;
        for (int64_t i = 0; i < 100; i++)
            if (get(&x, i) < 0)
                assert_true(get(&host.values[y], at++) == -2 * get(&x, i));
        assert_int_equal(host.values[y].count, at);
        host_clear(&host);
    }
    tap_engine_free(engine);
    drop(&x);
}

/* ------------------------------------------------------------------------------------------------------ bad graphs */

static void expect_message(tap_status status, const tap_error *err, const char *says)
{
    assert_int_equal(status, TAP_E_INVALID);
    if (!strstr(err->message, says))
        fail_msg("\"%s\" does not say \"%s\"", err->message, says);
}

static void bad_graphs(void **state)
{
    (void)state;
    tap_graph *graph = new_graph();
    tensor x = shaped(TAP_F32, DENSE, SIZES(4));
    int32_t in = add_input(graph, &x), value, node;
    tap_error err;
    expect_message(add_call(graph, "bad", "aten.neg.default", ARGS(VALUE("self", 7)), &x, 1, &value, &err), &err,
                   "node bad: argument self is value 7, and there are 1 so far");
    expect_message(add_call(graph, "bad", "aten.cat.default", ARGS(LIST("tensors", VALUE(NULL, in), VALUE(NULL, -2))), &x, 1,
                            &value, &err), &err, "node bad: argument");
    expect_message(tap_graph_output(graph, (int32_t[]){in, 9}, 2, &err), &err, "output 1 of the graph is value 9");
    tap_sym far = 12345, s = tap_graph_const(graph, 4);
    const tap_spec bad[] = {
        {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &far, .strides = &s, .offset = s},
        {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &s, .strides = &far, .offset = s},
        {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &s, .strides = &s, .offset = far},
        {.type = TAP_SPEC_INT, .dtype = TAP_I64, .ndim = 1, .sizes = NULL},
        {.type = TAP_SPEC_INT, .dtype = TAP_I64, .ndim = 1, .sizes = &far},
        {.type = (tap_spec_type)9, .dtype = TAP_I64},
    };
    const tap_arg args[] = {VALUE("self", in)};
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.name = "bad", desc.target = "aten.neg.default", desc.args = args, desc.nargs = 1, desc.noutputs = 1;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        int32_t values = tap_graph_values(graph);
        desc.outputs = &bad[i];
        expect_message(tap_graph_call(graph, &desc, &node, &value, &err), &err, "bad");
        expect_message(tap_graph_input(graph, "the_input", &bad[i], &value, &err), &err, "the_input");
        assert_int_equal(tap_graph_values(graph), values); /* and nothing was added */
    }
    assert_int_equal(tap_graph_nodes(graph), 0);
    tap_graph_free(graph);
}

/* Sizes that contradict the operator are the host's, whatever they are; no kernel sees them. */
static void impossible_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        int64_t a[2], b[2], out[2];
    } CASES[] = {{"aten.mm.default", {3, 4}, {5, 6}, {3, 6}},      {"aten.mm.default", {3, 4}, {4, 6}, {30, 60}},
                 {"aten.add.Tensor", {3, 4}, {3, 5}, {3, 4}},      {"aten.add.Tensor", {3, 4}, {3, 4}, {30, 40}},
                 {"aten.gather.default", {3, 4}, {3, 4}, {9, 9}},  {"aten.index_select.default", {3, 4}, {5, 1}, {9, 4}},
                 {"aten.sum.dim_IntList", {3, 4}, {1, 1}, {7, 9}}, {"aten._softmax.default", {3, 4}, {1, 1}, {8, 8}},
                 {"aten.sort.default", {3, 4}, {1, 1}, {8, 8}},    {"aten.cumsum.default", {3, 4}, {1, 1}, {8, 8}},
                 {"aten.flip.default", {3, 4}, {1, 1}, {8, 8}},    {"aten.tril.default", {3, 4}, {1, 1}, {8, 8}}};
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        bool whole = strstr(CASES[c].target, "gather") || strstr(CASES[c].target, "index");
        tensor in[2] = {filled(TAP_F32, DENSE, 0, 1, 2, CASES[c].a), filled(whole ? TAP_I64 : TAP_F32, DENSE, 0, 1, 2, CASES[c].b)};
        tensor out[2] = {shaped(TAP_F32, DENSE, 2, CASES[c].out), shaped(TAP_I64, DENSE, 2, CASES[c].out)};
        int nout = strstr(CASES[c].target, "sort") ? 2 : 1;
        bool native = run_call(CASES[c].target,
                               ARGS(VALUE("self", 0), VALUE("other", 1), VALUE("mat2", 1), VALUE("index", 1), INT("dim", 0),
                                    LIST("dims", INT(NULL, 0)), BOOL("half_to_float", 0)), in, 2, out, nout);
        if (native)
            fail_msg("%s was run", CASES[c].target);
        for (int i = 0; i < 2; i++) {
            drop(&in[i]);
            drop(&out[i]);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- no memory */

static tap_status whole_life(const tensor *x, const tensor *w)
{
    tap_graph *graph;
    tap_engine *engine;
    tap_error err;
    TAP_TRY(tap_graph_new("life", &graph, &err));
    spec_room room[3];
    tap_spec specs[3] = {spec_like(graph, x, &room[0]), spec_like(graph, w, &room[1])};
    tensor sums = shaped(TAP_F32, DENSE, SIZES(x->size[0])), turned = viewed(TAP_F32, 0, SIZES(7, 5), (int64_t[]){1, 7});
    int32_t value[8];
    tap_status status = tap_graph_input(graph, "x", &specs[0], &value[0], &err);
    if (status == TAP_OK)
        status = tap_graph_input(graph, "w", &specs[1], &value[1], &err);
    if (status == TAP_OK)
        status = add_call(graph, "mul", "aten.mul.Tensor", ARGS(VALUE("self", 0), VALUE("other", 1)), x, 1, &value[2], &err);
    if (status == TAP_OK)
        status = add_call(graph, "sort", "aten._softmax.default", ARGS(VALUE("self", 2), INT("dim", 1), BOOL("half_to_float", 0)),
                          x, 1, &value[3], &err);
    if (status == TAP_OK)
        status = add_call(graph, "t", "aten.t.default", ARGS(VALUE("self", 3)), &turned, 1, &value[4], &err);
    if (status == TAP_OK)
        status = add_call(graph, "sum", "aten.sum.dim_IntList", ARGS(VALUE("self", 4), LIST("dim", INT(NULL, 0))), &sums, 1,
                          &value[5], &err);
    if (status == TAP_OK)
        status = tap_graph_output(graph, &value[5], 1, &err);
    if (status != TAP_OK) {
        tap_graph_free(graph);
        return status;
    }
    TAP_TRY(tap_engine_new(graph, 0, &HOST, &engine, &err));
    static test_host host;
    status = run_engine(engine, &host, (tensor[]){*x, *w}, 2, &err);
    for (int64_t i = 0; status == TAP_OK && i < 5; i++)
        assert_true(fabs(get(&host.values[5], i) - 1) < 1e-6);
    host_clear(&host);
    tap_engine_free(engine);
    return status;
}

static void allocations_fail(void **state)
{
    (void)state;
    tensor x = filled(TAP_F32, DENSE, -2, 2, SIZES(5, 7)), w = filled(TAP_F32, DENSE, -2, 2, SIZES(7));
    int allowed = 0;
    for (; allowed < 1000; allowed++) {
        allocations_left = allowed;
        tap_allocator_set(&FAILING_ALLOCATOR);
        tap_status status = whole_life(&x, &w);
        tap_allocator_set(NULL);
        if (status == TAP_OK)
            break;
        if (status != TAP_E_NOMEM && status != TAP_E_INVALID) /* a size that could not be kept is not known */
            fail_msg("allocation %d: status %d", allowed, (int)status);
    }
    assert_in_range(allowed, 10, 999);
    drop(&x);
    drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols), cmocka_unit_test(signatures), cmocka_unit_test(two_threads),
        cmocka_unit_test(wrong_inputs), cmocka_unit_test(other_strides), cmocka_unit_test(views),
        cmocka_unit_test(view_too_far), cmocka_unit_test(changed_input), cmocka_unit_test(data_dependent),
        cmocka_unit_test(bad_graphs), cmocka_unit_test(impossible_sizes), cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
