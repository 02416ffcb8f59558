/* test_exec.c - one run and those beside it: plans kept for signatures and dropped, runs inside and between others, hosts
 * that fail at every point, memory that ends at every point, and values that are not what the graph was made for. */
#include "engine/random_graph.h"

#include "base/failing_allocator.h"

enum { PURE = (1u << RG_ASSIGN) - 1, ALL = (1u << (RG_ASSIGN + 1)) - 1 };

static random_graph graph;
static rg_host user;
static tap_error err;

static tap_engine *draw_engine(unsigned kinds, unsigned flags)
{
    rg_draw(&graph, kinds);
    tap_engine *engine = rg_engine(&graph, flags, &err);
    if (!engine)
        fail_msg("%s", err.message);
    return engine;
}

static void run_well(tap_engine *engine, int64_t s0, int64_t u0)
{
    user.callbacks_left = -1;
    if (rg_run(&user, engine, &graph, s0, u0, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static int32_t plans_made(tap_engine *engine)
{
    tap_engine_counts counts;
    tap_engine_counts_init(&counts);
    tap_engine_count(engine, &counts);
    return counts.plans;
}

/* -------------------------------------------------------------------------------------------------------- failures */

/* The host fails at its n-th callback: the run ends with the host's own error, and the next one is right. */
static void host_fails_everywhere(void **state)
{
    (void)state;
    int failed = 0;
    for (int g = 0; g < 60; g++) {
        tap_engine *engine = draw_engine(g % 3 ? PURE : ALL, g % 4 == 3 ? TAP_ENGINE_EVERY_NODE : 0);
        for (long n = 0;; n++) {
            user.callbacks_left = n;
            tap_status status = rg_run(&user, engine, &graph, 12 + g % 3, n % 4, &err);
            if (status == TAP_OK)
                break;
            if (status != TAP_E_BUSY || !strstr(err.message, "the host said no"))
                fail_msg("graph %d, callback %ld: %s", g, n, err.message);
            failed++;
            if (n % 5 == 0)
                run_well(engine, 12 + g % 3, n % 4);
            for (int32_t s = 0; s < engine->nsegments; s++)
                for (const tap__plan *plan = engine->segments[s].plans; plan; plan = plan->next)
                    assert_int_equal(plan->users, 0); /* nobody holds one after a run that failed */
        }
        tap_engine_free(engine);
    }
    assert_true(failed > 500);
}

/* Memory ends at the n-th allocation of a run: planning, workspaces, frames. */
static void memory_ends_everywhere(void **state)
{
    (void)state;
    int failed = 0;
    user.callbacks_left = -1;
    for (int g = 0; g < 25; g++) {
        tap_engine *engine = draw_engine(g % 3 ? PURE : ALL, g % 4 == 3 ? TAP_ENGINE_EVERY_NODE : 0);
        for (long n = 0;; n++) {
            allocations_left = n;
            tap_allocator_set(&FAILING_ALLOCATOR);
            tap_status status = rg_run(&user, engine, &graph, 12 + n, n % 4, &err); /* a signature that is new */
            tap_allocator_set(NULL);
            if (status == TAP_OK)
                break;
            if (status != TAP_E_NOMEM)
                fail_msg("graph %d, allocation %ld: %s", g, n, err.message);
            failed++;
            if (n % 7 == 0)
                run_well(engine, 12 + n, n % 4);
        }
        tap_engine_free(engine);
    }
    assert_true(failed > 100);
}

/* ----------------------------------------------------------------------------------------------------------- plans */

/* y = test.mix(x) where x has s0 rows, with a HostCall before it: small, and something of everything. */
static tap_engine *small_engine(void)
{
    graph = (random_graph){.ninputs = RG_INPUTS};
    for (int i = 0; i + 1 < RG_INPUTS; i++)
        rg_new_value(&graph, -1, (rg_size){.per = {1, 0}}, rg_fixed(3));
    graph.values[rg_new_value(&graph, -1, rg_fixed(3), rg_fixed(1))].whole_numbers = true;
    static const struct {
        rg_kind kind;
        const char *target;
    } NODES[] = {{RG_UNARY, "aten.neg.default"}, {RG_MIX, "test.mix.default"}, {RG_HOST, "test.host"},
                 {RG_MIX, "test.mix.default"}, {RG_BINARY, "aten.sub.Tensor"}};
    for (size_t n = 0; n < COUNT_OF(NODES); n++) {
        rg_node *node = &graph.nodes[graph.nnodes];
        int32_t last = n == 0 ? 0 : graph.nvalues - 1;
        *node = (rg_node){.kind = NODES[n].kind, .target = NODES[n].target, .source = {last, last - 1}, .nresults = 1,
                          .nsources = NODES[n].kind == RG_UNARY || NODES[n].kind == RG_HOST ? 1 : 2};
        snprintf(node->name, sizeof node->name, "n%zu", n);
        if (n == 1) /* the index of the last input is no number to compute with */
            node->source[1] = 0;
        node->result[0] = rg_new_value(&graph, graph.nnodes++, (rg_size){.per = {1, 0}}, rg_fixed(3));
    }
    graph.values[graph.nvalues - 1].is_output = true;
    tap_engine *engine = rg_engine(&graph, 0, &err);
    if (!engine)
        fail_msg("%s", err.message);
    return engine;
}

/* 64 signatures are kept; the one used longest ago goes first, not the one made first. */
static void oldest_plan_goes(void **state)
{
    (void)state;
    tap_engine *engine = small_engine();
    for (int64_t rows = 1; rows <= TAP__MAX_PLANS; rows++)
        run_well(engine, rows, 0);
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS);
    run_well(engine, 1, 0); /* used again: now 2 is the oldest */
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS);
    run_well(engine, 1000, 0);
    assert_int_equal(engine->segments[0].nplans, TAP__MAX_PLANS);
    run_well(engine, 1, 0);
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS + 1);
    run_well(engine, 2, 0); /* gone, and made again */
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS + 2);
    run_well(engine, 4, 0); /* 3 went for it, 4 is there */
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS + 2);
    run_well(engine, 3, 0);
    assert_int_equal(plans_made(engine), TAP__MAX_PLANS + 3);
    int32_t kept = 0;
    for (const tap__plan *plan = engine->segments[0].plans; plan; plan = plan->next)
        kept++;
    assert_int_equal(kept, TAP__MAX_PLANS);
    assert_int_equal(engine->segments[0].nplans, kept);
    tap_engine_free(engine);
}

static tap_engine *nested_engine;
static int depth, deepest;

/* Another run of the same engine, with other sizes, inside a HostCall. */
static void run_inside(rg_host *self, int32_t node)
{
    (void)self;
    (void)node;
    if (depth >= deepest)
        return;
    depth++;
    rg_host *inner = calloc(1, sizeof *inner);
    inner->callbacks_left = -1;
    inner->inside = run_inside;
    tap_error inner_err = {0};
    tap_status status = rg_run(inner, nested_engine, &graph, 5 + depth, 0, &inner_err);
    free(inner);
    if (status != TAP_OK)
        rg_complain(self->truth, "the run inside: %s", inner_err.message);
}

/* More runs at once than plans are kept: none that is in use is freed, and afterwards there are 64 again. */
static void runs_inside_runs(void **state)
{
    (void)state;
    static const int DEPTHS[] = {1, 3, TAP__MAX_PLANS + 10};
    nested_engine = small_engine();
    user.inside = run_inside;
    for (size_t i = 0; i < COUNT_OF(DEPTHS); i++) {
        depth = 0;
        deepest = DEPTHS[i];
        run_well(nested_engine, 4, 0);
        assert_int_equal(depth, DEPTHS[i]);
    }
    user.inside = NULL;
    assert_true(nested_engine->segments[0].nplans > TAP__MAX_PLANS); /* all were held */
    run_well(nested_engine, 500, 0);
    assert_int_equal(nested_engine->segments[0].nplans, TAP__MAX_PLANS);
    run_well(nested_engine, 4, 0);
    tap_engine_free(nested_engine);
}

/* Two forwards before a backward: frames in flight at once hold different memory, in whatever order they end. */
static void frames_side_by_side(void **state)
{
    (void)state;
    tap_engine *engine = small_engine();
    static rg_host hosts[3];
    rg_truth *truths = calloc(3, sizeof *truths);
    tap_frame *frames[3];
    tensor in[3][RG_INPUTS];
    for (int i = 0; i < 3; i++) {
        hosts[i] = (rg_host){.callbacks_left = -1, .truth = &truths[i]};
        hosts[i].host.graph = tap_engine_graph(engine);
        rg_inputs(&graph, 6, false, in[i]);
        rg_truth_make(&truths[i], &graph, 6, 0, in[i]);
        assert_int_equal(tap_frame_begin(engine, &hosts[i], &frames[i], &err), TAP_OK);
        for (int32_t v = 0; v < RG_INPUTS; v++) {
            tap_tensor view = view_of(&in[i][v]);
            hosts[i].host.values[v] = in[i][v];
            assert_int_equal(tap_frame_set(frames[i], v, &view, &err), TAP_OK);
        }
    }
    for (int i = 2; i >= 0; i--) { /* begun first, run last */
        rg_running = &truths[i];
        assert_int_equal(tap_frame_run(frames[i], &err), TAP_OK);
    }
    assert_ptr_not_equal(frames[0]->workspace, frames[1]->workspace);
    for (int i = 0; i < 3; i++) {
        int32_t y = graph.nvalues - 1;
        double *wanted = rg_copy(&truths[i], &graph.values[y]);
        tap_tensor found = view_of(&hosts[i].host.values[y]);
        rg_compare(&truths[i], &found, wanted, graph.values[y].node, "returned value", y);
        free(wanted);
        if (truths[i].wrong[0])
            fail_msg("frame %d: %s", i, truths[i].wrong);
    }
    static const int ORDER[] = {1, 0, 2};
    for (int i = 0; i < 3; i++)
        tap_frame_end(frames[ORDER[i]]);
    int free_ones = 0;
    for (const tap__workspace *w = engine->workspaces; w; w = w->next)
        free_ones++;
    assert_int_equal(free_ones, 3);
    for (int i = 0; i < 3; i++) {
        host_clear(&hosts[i].host);
        rg_truth_free(&truths[i]);
        for (int32_t v = 0; v < RG_INPUTS; v++)
            drop(&in[i][v]);
    }
    run_well(engine, 6, 0); /* and takes one of them */
    free(truths);
    rg_running = NULL;
    tap_engine_free(engine);
}

/* --------------------------------------------------------------------------------------------------- wrong values */

typedef enum wrong { RIGHT, MORE_ROWS, FLOAT32, FLAT, TURNED_RESULT, NOTHING } wrong;
static wrong made_wrong;

/* A host whose result is not what the graph was made for. */
static tap_status make_wrong(test_host *self, tap_frame *frame, int32_t node, tap_error *error)
{
    int32_t value = self->graph->nodes[node].first_value;
    if (made_wrong == NOTHING)
        return TAP_OK;
    tensor made = made_wrong == FLAT ? shaped(TAP_F64, DENSE, SIZES(12))
                                     : shaped(made_wrong == FLOAT32 ? TAP_F32 : TAP_F64, made_wrong == TURNED_RESULT ? TURNED : DENSE,
                                              SIZES(made_wrong == MORE_ROWS ? 5 : 4, 3));
    allocate_tensor(&made);
    for (int64_t i = 0; i < made.count; i++)
        put(&made, i, (double)i);
    hold(self, value, made);
    tap_tensor view = view_of(&made);
    return tap_frame_set(frame, value, &view, error);
}

/* What a HostCall made: other strides and another dtype are copied, other sizes are refused by name. */
static void wrong_results(void **state)
{
    (void)state;
    static const struct {
        wrong how;
        const char *says; /* NULL: it is put right */
        int matches;
    } CASES[] = {{RIGHT, NULL, 0}, {TURNED_RESULT, NULL, 1}, {FLOAT32, NULL, 1},
                 {MORE_ROWS, "made: value 1 has sizes [5, 3], and the graph was made for [4, 3]", 0},
                 {FLAT, "with 1 dimensions", 0}};
    tap_graph *built;
    tap_engine *engine;
    tensor x = filled(TAP_F64, DENSE, 0, 9, SIZES(4, 3));
    int32_t made, y;
    assert_int_equal(tap_graph_new("wrong", &built, &err), TAP_OK);
    add_input(built, &x);
    assert_int_equal(add_call(built, "made", "test.make", ARGS(VALUE("x", 0)), &x, 1, &made, &err), TAP_OK);
    assert_int_equal(add_call(built, "neg", "aten.neg.default", ARGS(VALUE("self", made)), &x, 1, &y, &err), TAP_OK);
    assert_int_equal(tap_graph_output(built, &y, 1, &err), TAP_OK);
    assert_int_equal(tap_engine_new(built, 0, &HOST, &engine, &err), TAP_OK);
    static test_host host;
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        made_wrong = CASES[c].how;
        host.call = make_wrong;
        tap_status status = run_engine(engine, &host, &x, 1, &err);
        assert_int_equal(status, CASES[c].says ? TAP_E_INVALID : TAP_OK);
        if (CASES[c].says && !strstr(err.message, CASES[c].says))
            fail_msg("\"%s\" does not say \"%s\"", err.message, CASES[c].says);
        assert_int_equal(host.matches, CASES[c].matches);
        for (int64_t i = 0; status == TAP_OK && i < x.count; i++)
            assert_true(get(&host.values[y], i) == -(double)i);
        host_clear(&host);
    }
    tap_engine_free(engine);
    drop(&x);
}

/* Numbers of values that the graph does not have, and symbols that are two numbers at once. */
static void wrong_numbers(void **state)
{
    (void)state;
    tap_graph *built;
    tap_engine *engine;
    tap_frame *frame;
    tensor x = filled(TAP_F64, DENSE, 0, 9, SIZES(4, 3));
    int32_t whole, twice;
    int64_t number = 0;
    assert_int_equal(tap_graph_new("numbers", &built, &err), TAP_OK);
    tap_sym s0 = tap_graph_symbol(built, "s0"), three = tap_graph_const(built, 3), one = tap_graph_const(built, 1);
    tap_spec rows = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F64, .ndim = 2, .sizes = (tap_sym[]){s0, three},
                     .strides = (tap_sym[]){three, one}, .offset = tap_graph_const(built, 0)};
    tap_spec count = {.type = TAP_SPEC_INT, .dtype = TAP_I64, .sizes = &s0};
    int32_t in;
    assert_int_equal(tap_graph_input(built, "x", &rows, &in, &err), TAP_OK);
    assert_int_equal(tap_graph_input(built, "rows", &count, &whole, &err), TAP_OK);
    assert_int_equal(tap_graph_int(built, tap_graph_expr(built, TAP_SYM_ADD, s0, s0), &twice, &err), TAP_OK);
    assert_int_equal(tap_graph_output(built, &in, 1, &err), TAP_OK);
    assert_int_equal(tap_engine_new(built, 0, &HOST, &engine, &err), TAP_OK);
    static test_host host;
    assert_int_equal(tap_frame_begin(engine, &host, &frame, &err), TAP_OK);
    tap_tensor view = view_of(&x);
    static const int32_t NONE[] = {-1, INT32_MIN, 1000, INT32_MAX};
    for (size_t i = 0; i < COUNT_OF(NONE); i++) {
        assert_int_equal(tap_frame_set(frame, NONE[i], &view, &err), TAP_E_INVALID);
        assert_non_null(strstr(err.message, "the graph has values 0 to 2"));
        assert_int_equal(tap_frame_set_int(frame, NONE[i], 4, &err), TAP_E_INVALID);
        assert_int_equal(tap_frame_get_int(frame, NONE[i], &number, &err), TAP_E_INVALID);
    }
    assert_int_not_equal(tap_frame_get_int(frame, whole, &number, &err), TAP_OK); /* nobody said it yet */
    assert_int_equal(tap_frame_set(frame, in, &view, &err), TAP_OK);
    assert_int_equal(tap_frame_get_int(frame, whole, &number, &err), TAP_OK); /* follows from x */
    assert_int_equal(number, 4);
    assert_int_equal(tap_frame_set_int(frame, whole, 4, &err), TAP_OK);
    assert_int_equal(tap_frame_set_int(frame, whole, 5, &err), TAP_E_INVALID);
    assert_non_null(strstr(err.message, "s0 = 4"));
    assert_int_equal(tap_frame_run(frame, &err), TAP_OK);
    assert_int_equal(tap_frame_get_int(frame, twice, &number, &err), TAP_OK);
    assert_int_equal(number, 8);
    assert_int_not_equal(tap_frame_get_int(frame, in, &number, &err), TAP_OK); /* no integer */
    tap_frame_end(frame);
    host_clear(&host);
    tap_engine_free(engine);
    drop(&x);
}

int main(void)
{
    rg_add_operators();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_fails_everywhere), cmocka_unit_test(memory_ends_everywhere), cmocka_unit_test(oldest_plan_goes),
        cmocka_unit_test(runs_inside_runs), cmocka_unit_test(frames_side_by_side), cmocka_unit_test(wrong_results),
        cmocka_unit_test(wrong_numbers),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
