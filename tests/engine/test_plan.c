/* test_plan.c - what planning promises, looked at in the plans themselves and by running them: which steps there are,
 * in which order, what is fused, who holds what, and that no two values share memory while both are needed. */
#include "engine/random_graph.h"

static test_host host;

static int32_t call(tap_graph *graph, const char *target, const tap_arg *args, size_t nargs, tensor out, unsigned flags)
{
    spec_room room;
    tap_spec spec = spec_like(graph, &out, &room);
    tap_node_desc desc;
    int32_t node, value;
    tap_error err;
    tap_node_desc_init(&desc);
    desc.name = "node", desc.target = target, desc.args = args, desc.nargs = nargs, desc.flags = flags;
    desc.outputs = &spec, desc.noutputs = 1;
    if (tap_graph_call(graph, &desc, &node, &value, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return value;
}

static int32_t unary(tap_graph *graph, const char *target, int32_t x, tensor out)
{
    return call(graph, target, ARGS(VALUE("self", x)), out, 0);
}

static int32_t binary(tap_graph *graph, const char *target, int32_t x, int32_t y, tensor out)
{
    return call(graph, target, ARGS(VALUE("self", x), VALUE("other", y)), out, 0);
}

static int32_t sums(tap_graph *graph, int32_t x, tensor out)
{
    return call(graph, "aten.sum.dim_IntList", ARGS(VALUE("self", x), LIST("dim", INT(NULL, 1))), out, 0);
}

static tap_graph *new_graph(void)
{
    tap_graph *graph;
    tap_error err;
    assert_int_equal(tap_graph_new("plan", &graph, &err), TAP_OK);
    return graph;
}

/* Runs the graph once, so that it is planned. */
static tap_engine *planned(tap_graph *graph, const int32_t *outputs, size_t count, unsigned flags, const tensor *in, int nin)
{
    tap_engine *engine;
    tap_error err;
    assert_int_equal(tap_graph_output(graph, outputs, count, &err), TAP_OK);
    if (tap_engine_new(graph, flags, &HOST, &engine, &err) != TAP_OK || run_engine(engine, &host, in, nin, &err) != TAP_OK)
        fail_msg("%s", err.message);
    host_clear(&host);
    return engine;
}

/* "CKH": a chain, a kernel, a HostCall. */
static void expect_steps(const tap_engine *engine, const char *kinds)
{
    const tap__plan *plan = engine->segments[0].plans;
    char found[100] = "";
    for (int32_t s = 0; s < plan->nsteps; s++)
        found[s] = "KCH"[plan->steps[s].kind];
    assert_string_equal(found, kinds);
}

/* ---------------------------------------------------------------------------------------------------------- steps */

static void chains_and_what_closes_them(void **state)
{
    (void)state;
    tensor x = filled(TAP_F32, DENSE, 0, 3, SIZES(6, 8)), rows = shaped(TAP_F32, DENSE, SIZES(6));
    tensor turned = x;
    turned.size[0] = 8, turned.size[1] = 6, turned.stride[0] = 1, turned.stride[1] = 8;
    enum { ALONE, READ_BY_KERNEL, BESIDE_KERNEL, BEFORE_HOST, OTHER_SIZES, VIEW_READ, UNREAD, CASES };
    static const char *const STEPS[CASES] = {"C", "CK", "KC", "CHC", "KCC", "CC", "C"};
    for (int c = 0; c < CASES; c++) {
        tap_graph *graph = new_graph();
        int32_t in = add_input(graph, &x), a = unary(graph, "aten.neg.default", in, x), b = -1;
        switch (c) {
        case ALONE: b = binary(graph, "aten.add.Tensor", a, in, x); break;
        case READ_BY_KERNEL: b = sums(graph, a, rows); break;
        case BESIDE_KERNEL: b = sums(graph, in, rows); break; /* put before: the chain stays open */
        case BEFORE_HOST: /* may have side effects, although it reads nothing of the chain */
            call(graph, "test.effect", ARGS(VALUE("x", in)), x, 0);
            b = unary(graph, "aten.abs.default", a, x);
            break;
        case OTHER_SIZES: b = unary(graph, "aten.neg.default", sums(graph, in, rows), rows); break;
        case VIEW_READ:
            b = unary(graph, "aten.abs.default", unary(graph, "aten.t.default", a, turned), shaped(TAP_F32, DENSE, SIZES(8, 6)));
            break;
        case UNREAD: b = unary(graph, "aten.abs.default", in, x); unary(graph, "aten.relu.default", b, x); break;
        }
        bool first = c == BESIDE_KERNEL || c == BEFORE_HOST || c == OTHER_SIZES;
        tap_engine *engine = planned(graph, (int32_t[]){b, a}, first ? 2 : 1, 0, &x, 1);
        expect_steps(engine, STEPS[c]);
        tap_engine_free(engine);
    }
    drop(&x);
}

/* A view of what the chain makes has the chain's sizes, and yet it must be in memory before it is read. */
static void square_view_of_the_chain(void **state)
{
    (void)state;
    tensor x = filled(TAP_F64, DENSE, 0, 9, SIZES(40, 40)), turned = x;
    turned.stride[0] = 1, turned.stride[1] = 40;
    tap_graph *graph = new_graph();
    int32_t in = add_input(graph, &x), a = unary(graph, "aten.neg.default", in, x);
    int32_t y = binary(graph, "aten.sub.Tensor", a, unary(graph, "aten.t.default", a, turned), x);
    tap_engine *engine = planned(graph, &y, 1, 0, &x, 1);
    expect_steps(engine, "CC");
    assert_int_equal(run_engine(engine, &host, &x, 1, NULL), TAP_OK);
    for (int64_t i = 0; i < 40; i++)
        for (int64_t k = 0; k < 40; k++)
            assert_true(get(&host.values[y], i * 40 + k) == get(&x, k * 40 + i) - get(&x, i * 40 + k));
    host_clear(&host);
    tap_engine_free(engine);
    drop(&x);
}

/* A chain nobody reads any of is no step. */
static void nothing_for_nobody(void **state)
{
    (void)state;
    tensor x = filled(TAP_F32, DENSE, 0, 3, SIZES(6, 8)), rows = shaped(TAP_F32, DENSE, SIZES(6));
    tap_graph *graph = new_graph();
    int32_t in = add_input(graph, &x), y = sums(graph, in, rows);
    unary(graph, "aten.neg.default", unary(graph, "aten.abs.default", in, x), x);
    tap_engine *engine = planned(graph, &y, 1, 0, &x, 1);
    expect_steps(engine, "K");
    tap_engine_free(engine);
    drop(&x);
}

/* Longer than a chain may be, with more loads than it may have, with more stores. */
static void long_chains(void **state)
{
    (void)state;
    tensor x = filled(TAP_F64, DENSE, 0, 3, SIZES(5, 7));
    tap_graph *graph = new_graph();
    int32_t in = add_input(graph, &x), y = in;
    for (int i = 0; i < 100; i++)
        y = unary(graph, i % 2 ? "aten.neg.default" : "aten.abs.default", y, x);
    tap_engine *engine = planned(graph, &y, 1, 0, &x, 1);
    expect_steps(engine, "CCC"); /* 48, 48, 4 */
    assert_int_equal(run_engine(engine, &host, &x, 1, NULL), TAP_OK);
    for (int64_t i = 0; i < x.count; i++)
        assert_true(get(&host.values[y], i) == -get(&x, i));
    host_clear(&host);
    tap_engine_free(engine);

    enum { LOADS = 40, STORES = 20 };
    tensor many[LOADS];
    graph = new_graph();
    for (int i = 0; i < LOADS; i++) {
        many[i] = filled(TAP_F64, DENSE, 0, 3, SIZES(5, 7));
        add_input(graph, &many[i]);
    }
    y = 0;
    for (int i = 1; i < LOADS; i++)
        y = binary(graph, "aten.add.Tensor", y, i, x);
    engine = planned(graph, &y, 1, 0, many, LOADS);
    expect_steps(engine, "CC");
    assert_int_equal(run_engine(engine, &host, many, LOADS, NULL), TAP_OK);
    for (int64_t i = 0; i < x.count; i++) {
        double sum = 0;
        for (int k = 0; k < LOADS; k++)
            sum += get(&many[k], i);
        assert_true(get(&host.values[y], i) == sum);
    }
    host_clear(&host);
    tap_engine_free(engine);

    graph = new_graph();
    int32_t outputs[STORES];
    in = add_input(graph, &x);
    for (int i = 0; i < STORES; i++)
        outputs[i] = unary(graph, i % 2 ? "aten.neg.default" : "aten.abs.default", i ? outputs[i - 1] : in, x);
    engine = planned(graph, outputs, STORES, 0, &x, 1);
    expect_steps(engine, "CC");
    assert_int_equal(run_engine(engine, &host, &x, 1, NULL), TAP_OK);
    for (int k = 0; k < STORES; k++)
        for (int64_t i = 0; i < x.count; i++)
            assert_true(get(&host.values[outputs[k]], i) == (k % 2 ? -1 : 1) * get(&x, i));
    host_clear(&host);
    tap_engine_free(engine);
    for (int i = 0; i < LOADS; i++)
        drop(&many[i]);
    drop(&x);
}

/* With every node watched nothing is fused and all is the host's. */
static void every_node_alone(void **state)
{
    (void)state;
    tensor x = filled(TAP_F32, DENSE, 0, 3, SIZES(6, 8));
    tap_graph *graph = new_graph();
    int32_t y = add_input(graph, &x);
    for (int i = 0; i < 5; i++)
        y = unary(graph, "aten.neg.default", y, x);
    tap_engine *engine = planned(graph, &y, 1, TAP_ENGINE_EVERY_NODE, &x, 1);
    const tap__plan *plan = engine->segments[0].plans;
    expect_steps(engine, "CCCCC");
    for (int32_t s = 0; s < plan->nsteps; s++) {
        assert_int_equal(plan->steps[s].nfresh, 1);
        assert_int_equal(plan->steps[s].nobserved, 1);
        assert_int_equal(plan->steps[s].ndone, 1); /* what it read; the input too */
    }
    tap_engine_free(engine);
    drop(&x);
}

/* --------------------------------------------------------------------------------------------------------- memory */

/* Kernels one behind the other need two places, however many they are; kernels that are all read in the end need all. */
static void arena_of_lines_and_fans(void **state)
{
    (void)state;
    enum { STEPS = 9, BYTES = 5 * 40 * 8 };
    tensor x = filled(TAP_F64, DENSE, 0, 3, SIZES(5, 40)), rows = shaped(TAP_F64, DENSE, SIZES(5));
    size_t place = (BYTES + 63) & ~(size_t)63;
    tap_graph *graph = new_graph();
    int32_t y = add_input(graph, &x);
    for (int i = 0; i < STEPS; i++)
        y = call(graph, "aten.flip.default", ARGS(VALUE("self", y), LIST("dims", INT(NULL, 1))), x, 0);
    y = sums(graph, y, rows);
    tap_engine *engine = planned(graph, &y, 1, 0, &x, 1);
    assert_int_equal(engine->segments[0].plans->arena, 2 * place);
    tap_engine_free(engine);

    graph = new_graph();
    int32_t in = add_input(graph, &x), fan[STEPS];
    for (int i = 0; i < STEPS; i++)
        fan[i] = call(graph, "aten.flip.default", ARGS(VALUE("self", in), LIST("dims", INT(NULL, 1))), x, 0);
    int32_t outputs[STEPS];
    for (int i = 0; i < STEPS; i++)
        outputs[i] = sums(graph, fan[STEPS - 1 - i], rows);
    engine = planned(graph, outputs, STEPS, 0, &x, 1);
    assert_int_equal(engine->segments[0].plans->arena, STEPS * place);
    tap_engine_free(engine);
    drop(&x);
}

static void extents(void **state)
{
    (void)state;
    tap__operand none = {.dtype = TAP_F32, .ndim = 1, .size = {0}, .stride = {1}};
    tap__operand one = {.dtype = TAP_F32, .ndim = 1, .size = {1}, .stride = {1}};
    tap__operand full = {.dtype = TAP_F32, .ndim = 1, .size = {16}, .stride = {1}};
    tap__operand gaps = {.dtype = TAP_F32, .ndim = 1, .size = {16}, .stride = {2}}; /* 31 elements, 124 bytes */
    assert_int_equal(tap__plan_extent(&none), 64);
    assert_int_equal(tap__plan_extent(&one), 64);
    assert_int_equal(tap__plan_extent(&full), 64);
    assert_int_equal(tap__plan_extent(&gaps), 128);
}

/* What can be said of any plan without running it. */
static void look_at_plan(const tap__plan *plan, const tap_graph *graph)
{
    bool fresh[MAX_VALUES] = {false}, gone[MAX_VALUES] = {false};
    size_t all = plan->room;
    int32_t last_host = -1;
    for (int32_t v = 0; v < graph->nvalues; v++)
        if (plan->values[v].ndim >= 0 && graph->values[v].node >= 0)
            all += tap__plan_extent(&plan->values[v]);
    for (int32_t s = 0; s < plan->nsteps; s++) {
        const tap__step *step = &plan->steps[s];
        assert_int_equal(step->kind == TAP__STEP_CHAIN, step->chain != NULL);
        assert_int_equal(step->kind == TAP__STEP_HOST, plan->on_host[step->node]);
        if (step->kind == TAP__STEP_HOST) {
            assert_true(step->node > last_host); /* in the graph's order */
            last_host = step->node;
        }
        if (step->call)
            all += (step->call->scratch + 63) & ~(size_t)63;
        for (int32_t i = 0; i < step->nrefs; i++) {
            assert_true(step->refs[i].value < graph->nvalues);
            if (step->refs[i].value == TAP__REF_ARENA)
                assert_true(step->refs[i].bytes >= 0 && (size_t)step->refs[i].bytes < plan->arena);
            if (step->refs[i].value >= 0)
                assert_false(gone[step->refs[i].value]);
        }
        for (int32_t i = 0; i < step->nfresh; i++) {
            assert_false(fresh[step->fresh[i]]);
            fresh[step->fresh[i]] = true;
        }
        for (int32_t i = 0; i < step->ndone; i++) {
            assert_false(gone[step->done[i]]);
            gone[step->done[i]] = true;
        }
    }
    assert_true(plan->arena <= all);
}

enum { PURE = (1u << (RG_ASSIGN + 1)) - 1 - (1u << RG_ASSIGN), ALL = (1u << (RG_ASSIGN + 1)) - 1 };

/* Graphs drawn at random, each run with several sizes: every operator sees the values it is meant to see. */
static void random_plans(void **state)
{
    (void)state;
    static const unsigned FLAGS[] = {0, 0, TAP_ENGINE_PROFILE, TAP_ENGINE_EVERY_NODE};
    enum { GRAPHS = 1500 };
    static random_graph graph;
    static rg_host user;
    user.callbacks_left = -1;
    int counted = 0, fused = 0, assigned = 0;
    for (int g = 0; g < GRAPHS; g++) {
        uint64_t began = seed;
        rg_draw(&graph, g % 3 ? PURE : ALL);
        tap_error err = {0};
        tap_engine *engine = rg_engine(&graph, FLAGS[g % 4], &err);
        if (!engine)
            fail_msg("graph %d (seed %llu): %s", g, (unsigned long long)began, err.message);
        for (int run = 0; run < 5; run++)
            if (rg_run(&user, engine, &graph, 12 + random_below(run < 3 ? 3 : 20), random_below(run % 2 ? 1 : 6), &err) != TAP_OK)
                fail_msg("graph %d (seed %llu), run %d: %s", g, (unsigned long long)began, run, err.message);
        for (int32_t s = 0; s < engine->nsegments; s++)
            for (const tap__plan *plan = engine->segments[s].plans; plan; plan = plan->next) {
                look_at_plan(plan, engine->graph);
                for (int32_t i = 0; i < plan->nsteps; i++)
                    fused += plan->steps[i].kind == TAP__STEP_CHAIN && plan->steps[i].nrefs > 3;
            }
        counted += graph.has_u0;
        assigned += graph.changes_inputs;
        tap_engine_free(engine);
    }
    print_message("%d graphs: %d count, %d change inputs, %d long chains\n", GRAPHS, counted, assigned, fused);
    assert_true(counted > GRAPHS / 10 && fused > GRAPHS && assigned > GRAPHS / 20); /* the graphs are worth it */
}

int main(void)
{
    rg_add_operators();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_and_what_closes_them), cmocka_unit_test(square_view_of_the_chain),
        cmocka_unit_test(nothing_for_nobody), cmocka_unit_test(long_chains),
        cmocka_unit_test(every_node_alone), cmocka_unit_test(arena_of_lines_and_fans), cmocka_unit_test(extents),
        cmocka_unit_test(random_plans),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
