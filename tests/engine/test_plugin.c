/* test_plugin.c - operators that are added: found by some threads while others add, nothing left of one that is refused,
 * and results that nobody wants. */
#include "engine/graph_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static tap_status shape_as_first(const tap_op_args *args, tap_error *err)
{
    (void)err;
    for (int i = 0; i < args->nout; i++) {
        args->out[i].dtype = args->in[0].dtype;
        args->out[i].ndim = args->in[0].ndim;
        for (int d = 0; d < args->in[0].ndim; d++)
            ((int64_t *)(uintptr_t)args->out[i].shape)[d] = args->in[0].shape[d];
    }
    return TAP_OK;
}

/* Every output becomes the input; all is contiguous float32 here. */
static tap_status run_copies(const tap_op_args *args, tap_error *err)
{
    (void)err;
    for (int i = 0; i < args->nout; i++)
        if (args->out[i].dtype != TAP_DTYPE_NONE)
            memcpy(args->out[i].data, args->in[0].data, (size_t)args->in[0].shape[0] * sizeof(float));
    return TAP_OK;
}

static tap_op_desc desc_of(const char *name, const char *target)
{
    return (tap_op_desc){.size = sizeof(tap_op_desc), .name = name, .inputs = "x", .outputs = "y", .target = target,
                         .shape = shape_as_first, .run = run_copies};
}

/* --------------------------------------------------------------------------------------------------------- refused */

static void refused_leaves_nothing(void **state)
{
    (void)state;
    tap_error err = {0};
    tap_op_desc desc = desc_of("Refused", "test.refused.default");
    desc.bindings = "no_such_parameter=self";
    assert_int_equal(tap_op_add(&desc, &err), TAP_E_INVALID);
    assert_non_null(strstr(err.message, "no_such_parameter"));
    assert_null(tap__op_find("Refused"));
    assert_false(tap_engine_knows("test.refused.default"));
    tap_op_info info;
    tap_op_info_init(&info);
    for (int i = 0; tap_op_describe(i, &info) == TAP_OK; i++)
        assert_string_not_equal(info.name, "Refused");
    desc.bindings = "x=self"; /* put right, it is taken */
    if (tap_op_add(&desc, &err) != TAP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tap_op_add(&desc, &err), TAP_E_EXISTS);
    assert_true(tap_engine_knows("test.refused.default"));
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(9)), y = shaped(TAP_F32, DENSE, SIZES(9));
    assert_true(run_call("test.refused.default", ARGS(VALUE("self", 0)), &x, 1, &y, 1));
    for (int64_t i = 0; i < 9; i++)
        assert_true(get(&y, i) == get(&x, i));
    drop(&x);
    drop(&y);
}

/* --------------------------------------------------------------------------------------------------------- threads */

enum { ADDED = 40 };
static _Atomic bool done;
static _Atomic int missing;

static void *look(void *user)
{
    (void)user;
    while (!atomic_load(&done)) {
        if (!tap__op_find("Add") || !tap__op_find("ge.Add") || !tap_engine_knows("aten.add.Tensor"))
            atomic_fetch_add(&missing, 1);
        for (int i = 0; i < ADDED; i++) { /* a target that is known has its operator */
            char target[40];
            snprintf(target, sizeof target, "test.while%d.default", i);
            tap_engine_knows(target);
        }
        tap_op_info info;
        tap_op_info_init(&info);
        for (int i = 0; tap_op_describe(i, &info) == TAP_OK; i++)
            if (!info.name || !info.kind)
                atomic_fetch_add(&missing, 1);
    }
    return NULL;
}

/* The two halves are added by two threads. */
static void *add_half(void *user)
{
    static char names[2][ADDED / 2][16], targets[2][ADDED / 2][40];
    int half = *(const int *)user;
    for (int i = 0; i < ADDED / 2; i++) {
        tap_error err;
        snprintf(names[half][i], sizeof names[half][i], "While%d", half * ADDED / 2 + i);
        snprintf(targets[half][i], sizeof targets[half][i], "test.while%d.default", half * ADDED / 2 + i);
        tap_op_desc desc = desc_of(names[half][i], targets[half][i]);
        if (tap_op_add(&desc, &err) != TAP_OK)
            atomic_fetch_add(&missing, 1);
    }
    return NULL;
}

static void found_while_others_add(void **state)
{
    (void)state;
    pthread_t lookers[2], adders[2];
    int half[2] = {0, 1};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&lookers[i], NULL, look, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&adders[i], NULL, add_half, &half[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(adders[i], NULL);
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++)
        pthread_join(lookers[i], NULL);
    assert_int_equal(atomic_load(&missing), 0);
    for (int i = 0; i < ADDED; i++) {
        char name[16], target[40];
        snprintf(name, sizeof name, "While%d", i);
        snprintf(target, sizeof target, "test.while%d.default", i);
        assert_non_null(tap__op_find(name));
        assert_true(tap_engine_knows(target));
    }
}

/* ------------------------------------------------------------------------------------------------- absent results */

/* Only a result whose row marks it may be left out, whatever its name begins with. */
static void absent_results(void **state)
{
    (void)state;
    static const struct {
        const char *name, *target, *outputs;
        bool native;
    } CASES[] = {{"Distance", "test.distance.default", "distance, y", false},
                 {"Marked", "test.marked.default", "y, other?", true},
                 {"MarkedFirst", "test.marked_first.default", "other?, y", false}};
    tensor x = filled(TAP_F32, DENSE, -4, 4, SIZES(9));
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        tap_error err;
        tap_op_desc desc = desc_of(CASES[c].name, CASES[c].target);
        desc.outputs = CASES[c].outputs;
        if (tap_op_add(&desc, &err) != TAP_OK)
            fail_msg("%s", err.message);
        tensor out[2] = {shaped(TAP_F32, DENSE, SIZES(9)), {.dtype = TAP_DTYPE_NONE}};
        if (run_call(CASES[c].target, ARGS(VALUE("x", 0)), &x, 1, out, 2) != CASES[c].native)
            fail_msg("%s of %s: its second result is nobody's", CASES[c].name, CASES[c].outputs);
        drop(&out[0]);
    }
    drop(&x);
    char room[40];
    const tap_op *op = tap__op_find("LayerNormGrad"), *marked = tap__op_find("Marked");
    assert_string_equal(tap_op_output((int)op->row, 1, room, sizeof room), "dweight?");
    assert_string_equal(marked->outputs[1], "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_leaves_nothing), cmocka_unit_test(found_while_others_add), cmocka_unit_test(absent_results),
    };
    return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
