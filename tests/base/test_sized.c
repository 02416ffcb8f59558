/* test_sized.c - the public functions and what they are given: structs whose size was not set, is of an older or of a
 * newer header, and pointers that are NULL, one at a time. tests/python/test_headers.py sees that no function is left out. */
#include "record/scratch.h"
#include "tensortap/tensortap_compare.h"
#include "tensortap/tensortap_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* One of everything. */
static struct {
    char *dir;
    char file[600], other[600];
    tap_recorder *rec;
    tap_run *run;
    tap_file *tensors;
    tap_graph *graph;
    tap_engine *engine;
    tap_frame *frame;
    tap_tensor tensor;
    tap_record record;
} all;

static float data[3] = {1, 2, 3};
static const int64_t shape[1] = {3};

static tap_status host_call(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    (void)user, (void)frame, (void)node, (void)err;
    return TAP_E_UNSUPPORTED;
}

static tap_status host_alloc(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **out, tap_error *err)
{
    (void)user, (void)frame, (void)value, (void)like, (void)out, (void)err;
    return TAP_E_UNSUPPORTED;
}

static void host_release(void *user, tap_frame *frame, int32_t value)
{
    (void)user, (void)frame, (void)value;
}

static tap_host make_host(void)
{
    tap_host host;
    tap_host_init(&host);
    host.call = host_call;
    host.alloc = host.match = host_alloc;
    host.release = host_release;
    return host;
}

/* A graph of one input; a node where one is asked for. */
static tap_graph *make_graph(const tap_node_desc *desc, tap_error *err)
{
    tap_graph *graph;
    int32_t value, node;
    assert_int_equal(tap_graph_new("g", &graph, NULL), TAP_OK);
    tap_sym sizes[1] = {tap_graph_const(graph, 3)}, strides[1] = {tap_graph_const(graph, 1)};
    tap_spec spec = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = sizes, .strides = strides,
                     .offset = tap_graph_const(graph, 0)};
    assert_int_equal(tap_graph_input(graph, "x", &spec, &value, NULL), TAP_OK);
    tap_status status = desc ? tap_graph_call(graph, desc, &node, &value, err) : TAP_OK;
    if (status == TAP_OK)
        return graph;
    tap_graph_free(graph);
    return NULL;
}

static void one_record(void)
{
    tap_cursor *cursor;
    tap_record_init(&all.record);
    assert_int_equal(tap_run_query(all.run, NULL, &cursor, NULL), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &all.record, NULL), TAP_OK);
    all.record.name = "x";
    all.record.shape = shape;
    all.record.file = strdup(all.record.file);
    tap_cursor_close(cursor);
}

static int setup(void **state)
{
    (void)state;
    all.dir = scratch_make();
    snprintf(all.file, sizeof all.file, "%s/one.npy", all.dir);
    snprintf(all.other, sizeof all.other, "%s/other", all.dir);
    all.tensor = (tap_tensor){.data = data, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    tap_options options;
    tap_options_init(&options);
    options.dir = all.dir;
    options.writer = "thread";
    options.ring_bytes = 1 << 20;
    options.rank = 0;
    tap_error err;
    assert_int_equal(tap_recorder_open(&options, &all.rec, &err), TAP_OK);
    assert_int_equal(tap_save(all.rec, "x", &all.tensor, NULL), TAP_OK);
    assert_int_equal(tap_recorder_flush(all.rec, -1, NULL), TAP_OK);
    assert_int_equal(tap_run_open(all.dir, &all.run, &err), TAP_OK);
    one_record();
    assert_int_equal(tap_file_write(all.file, "npy", &all.tensor, NULL, 1, false, &err), TAP_OK);
    assert_int_equal(tap_file_open(all.file, &all.tensors, &err), TAP_OK);
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.target = "not.known";
    all.graph = make_graph(&desc, &err);
    tap_host host = make_host();
    assert_int_equal(tap_engine_new(all.graph, TAP_ENGINE_PROFILE, &host, &all.engine, &err), TAP_OK);
    assert_int_equal(tap_frame_begin(all.engine, NULL, &all.frame, &err), TAP_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tap_frame_end(all.frame);
    tap_engine_free(all.engine);
    tap_file_close(all.tensors);
    free((void *)(uintptr_t)all.record.file);
    tap_run_close(all.run);
    tap_recorder_close(all.rec, NULL);
    scratch_drop(all.dir);
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- sizes */

static void drop(void *user, const char *text, size_t len)
{
    (void)user, (void)text, (void)len;
}

static tap_status with_options(void *it, tap_error *err)
{
    tap_options *options = it;
    tap_recorder *rec;
    options->dir = all.other;
    options->writer = "thread";
    options->ring_bytes = 1 << 20;
    tap_status status = tap_recorder_open(options, &rec, err);
    if (status == TAP_OK)
        tap_recorder_close(rec, NULL);
    scratch_clear(all.other);
    return status;
}

static tap_status with_print_options(void *it, tap_error *err)
{
    return tap_tensor_print(&all.tensor, it, drop, NULL, err);
}

static tap_status with_difference(void *it, tap_error *err)
{
    return tap_tensor_compare(&all.tensor, &all.tensor, it, err);
}

static tap_status with_query(void *it, tap_error *err)
{
    tap_cursor *cursor;
    tap_status status = tap_run_query(all.run, it, &cursor, err);
    tap_cursor_close(cursor);
    return status;
}

static tap_status with_counts(void *it, tap_error *err)
{
    (void)err;
    return tap_recorder_counts(all.rec, it);
}

static tap_status with_save_info(void *it, tap_error *err)
{
    tap_status status = tap_save(all.rec, "y", &all.tensor, it);
    tap_recorder_error(all.rec, err);
    return status;
}

static tap_status with_save_info_of_value(void *it, tap_error *err)
{
    tap_status status = tap_save_value(all.rec, "y", &(tap_value){.type = TAP_VALUE_INT}, it);
    tap_recorder_error(all.rec, err);
    return status;
}

static tap_status with_save_info_declared(void *it, tap_error *err)
{
    tap_status status = tap_recorder_declare(all.rec, "z", it);
    tap_recorder_error(all.rec, err);
    return status;
}

static tap_status with_record(void *it, tap_error *err)
{
    tap_cursor *cursor;
    assert_int_equal(tap_run_query(all.run, NULL, &cursor, NULL), TAP_OK);
    tap_status status = tap_cursor_next(cursor, it, err);
    tap_cursor_close(cursor);
    return status;
}

static tap_status with_record_to_map(void *it, tap_error *err)
{
    tap_record *record = it;
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    size_t size = record->size;
    *record = all.record;
    record->size = size;
    tap_status status = tap_record_map(all.run, record, &mapping, err);
    tap_mapping_release(&mapping);
    return status;
}

static tap_status with_mapping(void *it, tap_error *err)
{
    tap_status status = tap_record_map(all.run, &all.record, it, err);
    tap_mapping_release(it);
    return status;
}

static tap_status with_attempt(void *it, tap_error *err)
{
    (void)err;
    return tap_run_attempt(all.run, 0, it);
}

static tap_status with_verify_options(void *it, tap_error *err)
{
    tap_status status = tap_run_verify(all.run, it, NULL, err);
    return status == TAP_E_LOST ? TAP_OK : status;
}

static tap_status with_verify_result(void *it, tap_error *err)
{
    tap_status status = tap_run_verify(all.run, NULL, it, err);
    return status == TAP_E_LOST ? TAP_OK : status;
}

static tap_status with_file_entry(void *it, tap_error *err)
{
    return tap_file_get(all.tensors, 0, it, err);
}

static tap_status with_node_desc(void *it, tap_error *err)
{
    tap_node_desc *desc = it;
    desc->target = "not.known";
    err->status = TAP_OK;
    tap_graph_free(make_graph(desc, err));
    return err->status;
}

static tap_status with_node_info(void *it, tap_error *err)
{
    (void)err;
    return tap_graph_node(all.graph, 0, it);
}

static tap_status with_host(void *it, tap_error *err)
{
    tap_host *host = it, good = make_host();
    tap_engine *engine;
    good.size = host->size;
    *host = good;
    tap_status status = tap_engine_new(make_graph(NULL, NULL), 0, host, &engine, err);
    tap_engine_free(engine);
    return status;
}

static tap_status with_engine_counts(void *it, tap_error *err)
{
    (void)err;
    return tap_engine_count(all.engine, it);
}

static tap_status with_node_times(void *it, tap_error *err)
{
    (void)err;
    return tap_engine_times(all.engine, 0, it);
}

static tap_status with_op_info(void *it, tap_error *err)
{
    (void)err;
    return tap_op_describe(0, it);
}

/* As large as the library's, but one member of eight bytes; what lies behind it is left alone. */
#define CASE(type, fn, tells) {#type, #fn, sizeof(type), tells, fn, init_##type},
#define CASES(X)                                                                                                     \
    X(tap_options, with_options, true)                                                                               \
    X(tap_print_options, with_print_options, true)                                                                   \
    X(tap_difference, with_difference, true)                                                                         \
    X(tap_query, with_query, true)                                                                                   \
    X(tap_counts, with_counts, false)                                                                                \
    X(tap_save_info, with_save_info, true)                                                                           \
    X(tap_save_info, with_save_info_of_value, true)                                                                  \
    X(tap_save_info, with_save_info_declared, true)                                                                  \
    X(tap_record, with_record, true)                                                                                 \
    X(tap_record, with_record_to_map, true)                                                                          \
    X(tap_mapping, with_mapping, true)                                                                               \
    X(tap_attempt, with_attempt, false)                                                                              \
    X(tap_verify_options, with_verify_options, true)                                                                 \
    X(tap_verify_result, with_verify_result, true)                                                                   \
    X(tap_file_entry, with_file_entry, true)                                                                         \
    X(tap_node_desc, with_node_desc, true)                                                                           \
    X(tap_node_info, with_node_info, false)                                                                          \
    X(tap_host, with_host, true)                                                                                     \
    X(tap_engine_counts, with_engine_counts, false)                                                                  \
    X(tap_node_times, with_node_times, false)                                                                        \
    X(tap_op_info, with_op_info, false)
#define INIT(type) static void init_##type(void *it) { type##_init(it); }
INIT(tap_options) INIT(tap_print_options) INIT(tap_difference) INIT(tap_query) INIT(tap_counts) INIT(tap_save_info)
INIT(tap_record) INIT(tap_mapping) INIT(tap_attempt) INIT(tap_verify_options) INIT(tap_verify_result)
INIT(tap_file_entry) INIT(tap_node_desc) INIT(tap_node_info) INIT(tap_host) INIT(tap_engine_counts)
INIT(tap_node_times) INIT(tap_op_info)

static void sizes_are_looked_at(void **state)
{
    (void)state;
    static const struct {
        const char *type, *name;
        size_t size;
        bool tells;
        tap_status (*fn)(void *it, tap_error *err);
        void (*init)(void *it);
    } ROWS[] = {CASES(CASE)};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const size_t sizes[] = {ROWS[i].size, ROWS[i].size - 8, 0, ROWS[i].size + 8, SIZE_MAX};
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            union {
                size_t size;
                char bytes[1024];
                max_align_t align;
            } it;
            tap_error err = {.message = ""};
            char init[64];
            memset(&it, 0x5A, sizeof it);
            ROWS[i].init(&it);
            assert_int_equal(it.size, ROWS[i].size);
            it.size = sizes[k];
            uint64_t behind;
            memcpy(&behind, it.bytes + ROWS[i].size - 8, 8);
            tap_status status = ROWS[i].fn(&it, &err);
            if (status != (k < 2 ? TAP_OK : TAP_E_INVALID))
                fail_msg("%s with size %zu of %zu: %s: %s", ROWS[i].name, sizes[k], ROWS[i].size, tap_status_name(status),
                         err.message);
            snprintf(init, sizeof init, "%s_init", ROWS[i].type);
            if (k >= 2 && ROWS[i].tells && !strstr(err.message, init))
                fail_msg("%s: the message does not say how: %s", ROWS[i].name, err.message);
            assert_int_equal(it.bytes[ROWS[i].size], 0x5A);
            if (k == 1 && strcmp(ROWS[i].type, "tap_host") && strcmp(ROWS[i].name, "with_record_to_map"))
                assert_memory_equal(it.bytes + ROWS[i].size - 8, &behind, 8);
        }
    }
}

/* What an older header did not have keeps its usual value. */
static void usual_values_stay(void **state)
{
    (void)state;
    tap_query query;
    tap_query_init_sized(&query, offsetof(tap_query, kind));
    assert_int_equal(query.size, offsetof(tap_query, kind));
    query.kind = TAP_KIND_GRAD; /* not his to set */
    query.attempt = 7;
    uint64_t count = 0;
    assert_int_equal(tap_run_count(all.run, &query, &count, NULL), TAP_OK);
    assert_int_equal(count, 1);
    struct {
        tap_query query;
        char more[16];
    } newer;
    memset(&newer, 0x5A, sizeof newer);
    tap_query_init_sized(&newer.query, sizeof newer);
    assert_int_equal(newer.query.size, sizeof newer);
    assert_int_equal(newer.more[15], 0);
}

static void a_save_that_was_refused_is_counted(void **state)
{
    (void)state;
    tap_counts before, after;
    tap_counts_init(&before);
    tap_counts_init(&after);
    assert_int_equal(tap_recorder_counts(all.rec, &before), TAP_OK);
    assert_int_equal(tap_save(all.rec, "w", &all.tensor, &(tap_save_info){.size = 0}), TAP_E_INVALID);
    assert_int_equal(tap_recorder_counts(all.rec, &after), TAP_OK);
    assert_int_equal(after.dropped, before.dropped + 1);
}

static void a_mapping_may_be_copied(void **state)
{
    (void)state;
    tap_mapping mapping, copy;
    tap_mapping_init(&mapping);
    assert_int_equal(tap_record_map(all.run, &all.record, &mapping, NULL), TAP_OK);
    copy = mapping;
    memset(&mapping, 0x5A, sizeof mapping);
    assert_int_equal(copy.tensor.shape[0], 3);
    assert_memory_equal(copy.tensor.data, data, sizeof data);
    tap_mapping_release(&copy);
    assert_null(copy.tensor.data);
    tap_mapping_release(&copy);
}

static void a_host_has_its_functions(void **state)
{
    (void)state;
    const size_t OFFSETS[] = {offsetof(tap_host, call), offsetof(tap_host, alloc), offsetof(tap_host, match),
                              offsetof(tap_host, release)};
    tap_engine *engine;
    tap_error err;
    for (size_t i = 0; i < 4; i++) {
        tap_host host = make_host();
        memset((char *)&host + OFFSETS[i], 0, sizeof(void *));
        assert_int_equal(tap_engine_new(make_graph(NULL, NULL), 0, &host, &engine, &err), TAP_E_INVALID);
        assert_null(engine);
    }
    tap_host host = make_host();
    assert_int_equal(tap_engine_new(make_graph(NULL, NULL), TAP_ENGINE_EVERY_NODE, &host, &engine, &err), TAP_E_INVALID);
    assert_non_null(strstr(err.message, "observe"));
}

static void values_out_of_range(void **state)
{
    (void)state;
    int64_t integer;
    for (int i = 0; i < 4; i++) {
        int32_t value = (int32_t[]){-1, 1000, INT32_MAX, INT32_MIN}[i];
        assert_int_equal(tap_frame_set(all.frame, value, &all.tensor, NULL), TAP_E_INVALID);
        assert_int_equal(tap_frame_set_int(all.frame, value, 1, NULL), TAP_E_INVALID);
        assert_int_equal(tap_frame_get_int(all.frame, value, &integer, NULL), TAP_E_INVALID);
    }
    tap_tensor shapeless = all.tensor;
    shapeless.shape = NULL;
    assert_int_equal(tap_frame_set(all.frame, 0, &shapeless, NULL), TAP_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_looked_at),
        cmocka_unit_test(usual_values_stay),
        cmocka_unit_test(a_save_that_was_refused_is_counted),
        cmocka_unit_test(a_mapping_may_be_copied),
        cmocka_unit_test(a_host_has_its_functions),
        cmocka_unit_test(values_out_of_range),
    };
    return cmocka_run_group_tests_name("sized", tests, setup, teardown);
}
