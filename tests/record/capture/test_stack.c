/* test_stack.c - threads with stacks of 32 KiB save: every element type, strided and not, with values that are not finite,
 * nested a thousand deep, larger than the ring, refused, in every layout. */
#include "record/scratch.h"
#include "tensortap/tensortap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

enum { STACK_BYTES = 32 << 10, SIDE = 96, BIG = 3 << 19 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

typedef struct work {
    tap_recorder *rec;
    const tap_value *value;
    const char *name;
    tap_status want;
    int done;
} work;

static void *save(void *user)
{
    work *w = user;
    if (w->value->type == TAP_VALUE_TENSOR)
        w->done = tap_save(w->rec, w->name, &w->value->tensor, NULL) == w->want;
    else
        w->done = tap_save_value(w->rec, w->name, w->value, NULL) == w->want;
    return NULL;
}

static void on_a_small_stack(tap_recorder *rec, const char *name, const tap_value *value, tap_status want)
{
    work w = {rec, value, name, want, 0};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, save, &w), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    if (!w.done)
        fail_msg("%s: not the status that was expected", name);
}

/* Contiguous, transposed, and every second row. */
static void save_views(tap_recorder *rec, tap_dtype dtype, void *data)
{
    static const int64_t SHAPE[2] = {SIDE, SIDE}, HALF[2] = {SIDE / 2, SIDE}, TURNED[2] = {1, SIDE}, ROWS[2] = {2 * SIDE, 1};
    const tap_tensor views[] = {
        {data, dtype, 2, SHAPE, NULL}, {data, dtype, 2, SHAPE, TURNED}, {data, dtype, 2, HALF, ROWS}};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        tap_value value = {.type = TAP_VALUE_TENSOR, .tensor = views[i]};
        on_a_small_stack(rec, tap_dtype_describe(dtype)->name, &value, TAP_OK);
    }
}

static void save_all(tap_recorder *rec)
{
    char *data = calloc(SIDE * SIDE, 16);
    for (int filler = 0; filler < 2; filler++) { /* zeros; and bytes that make NaNs of every float type */
        memset(data, filler ? 0xFF : 0, SIDE * SIDE * 16);
        for (int dtype = 1; dtype < TAP_DTYPE_END; dtype++)
            save_views(rec, (tap_dtype)dtype, data);
    }
    free(data);
}

static tap_recorder *open_it(const char *dir, const char *layout, unsigned keep, bool asynchronous)
{
    tap_options options;
    tap_recorder *rec;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.layout = layout;
    options.keep = keep;
    options.asynchronous = asynchronous;
    options.checksum = TAP_CHECKSUM_CRC32;
    options.writer = "thread";
    options.ring_bytes = 1 << 20;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return rec;
}

static bool can_run(void)
{
    if (SANITIZED)
        print_message("[          ] not run: a sanitizer's frames are several times as large\n");
    return !SANITIZED;
}

static void every_type_in_every_layout(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"native", "msprobe", "msprobe_modules", "troubleshooter", "torch_npu", "torchair",
                                          "mindspore"};
    for (size_t i = 0; can_run() && i < 2 * sizeof LAYOUTS / sizeof LAYOUTS[0]; i++) {
        char *dir = scratch_make();
        tap_recorder *rec = open_it(dir, LAYOUTS[i / 2], TAP_KEEP_STATS | TAP_KEEP_TENSOR, i % 2);
        save_all(rec);
        assert_int_equal(tap_recorder_close(rec, NULL), TAP_OK);
        scratch_drop(dir);
    }
}

static void statistics_alone(void **state)
{
    (void)state;
    for (int health = 0; can_run() && health < 2; health++) {
        char *dir = scratch_make();
        tap_recorder *rec = open_it(dir, "native", health ? TAP_KEEP_HEALTH : TAP_KEEP_STATS | TAP_KEEP_HASH, false);
        save_all(rec);
        assert_int_equal(tap_recorder_close(rec, NULL), TAP_OK);
        scratch_drop(dir);
    }
}

static void larger_than_the_ring(void **state)
{
    (void)state;
    if (!can_run())
        return;
    char *dir = scratch_make();
    tap_recorder *rec = open_it(dir, "native", TAP_KEEP_STATS | TAP_KEEP_TENSOR, false);
    double *data = malloc(BIG * sizeof *data);
    for (int64_t i = 0; i < BIG; i++)
        data[i] = i % 5 ? (double)i : 1e300;
    const int64_t shape[2] = {BIG / 1024, 1024}, turned[2] = {1, BIG / 1024};
    tap_value value = {.type = TAP_VALUE_TENSOR, .tensor = {data, TAP_F64, 2, shape, NULL}};
    on_a_small_stack(rec, "rows", &value, TAP_OK);
    value.tensor.strides = turned;
    on_a_small_stack(rec, "columns", &value, TAP_OK);
    assert_int_equal(tap_recorder_close(rec, NULL), TAP_OK);
    free(data);
    scratch_drop(dir);
}

/* A list in a list in a list ..., `depth` of them, with one number inside. */
static void deep(tap_recorder *rec, int depth, tap_status want)
{
    tap_value *levels = calloc((size_t)depth + 1, sizeof *levels);
    for (int i = 0; i < depth; i++)
        levels[i] = (tap_value){.type = TAP_VALUE_LIST, .items = &levels[i + 1], .len = 1};
    levels[depth] = (tap_value){.type = TAP_VALUE_FLOAT, .f = 0.5};
    on_a_small_stack(rec, "deep", levels, want);
    free(levels);
}

static void a_thousand_deep(void **state)
{
    (void)state;
    if (!can_run())
        return;
    char *dir = scratch_make();
    tap_recorder *rec = open_it(dir, "native", TAP_KEEP_STATS | TAP_KEEP_TENSOR, false);
    deep(rec, 1, TAP_OK);
    deep(rec, 17, TAP_OK);
    deep(rec, 1001, TAP_OK);
    deep(rec, 1002, TAP_E_LIMIT);
    assert_int_equal(tap_recorder_close(rec, NULL), TAP_E_LOST);
    char *names = scratch_list(dir, NULL, false);
    const char *at = strstr(names, "deep/0.0.0");
    assert_non_null(at);
    assert_non_null(strstr(at, "deep/0.0.0.0.0"));
    free(names);
    scratch_drop(dir);
}

static void refused(void **state)
{
    (void)state;
    if (!can_run())
        return;
    char *dir = scratch_make();
    tap_recorder *rec = open_it(dir, "native", TAP_KEEP_STATS | TAP_KEEP_TENSOR, false);
    const int64_t shape[1] = {-4};
    tap_value value = {.type = TAP_VALUE_TENSOR, .tensor = {dir, TAP_F32, 1, shape, NULL}};
    on_a_small_stack(rec, "bad", &value, TAP_E_INVALID);
    assert_int_equal(tap_recorder_close(rec, NULL), TAP_E_LOST);
    scratch_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_in_every_layout),
        cmocka_unit_test(statistics_alone),
        cmocka_unit_test(larger_than_the_ring),
        cmocka_unit_test(a_thousand_deep),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("stack", tests, NULL, NULL);
}
