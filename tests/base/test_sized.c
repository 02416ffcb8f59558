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
#include <signal.h>

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
    tap_comparison *comparison;
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
    assert_int_equal(tap_compare_run(all.dir, all.dir, NULL, &all.comparison, &err), TAP_OK);
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
    tap_comparison_close(all.comparison);
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

static tap_status with_compare_options(void *it, tap_error *err)
{
    tap_comparison *comparison;
    tap_status status = tap_compare_run(all.dir, all.dir, it, &comparison, err);
    tap_comparison_close(comparison);
    return status;
}

static tap_status with_summary(void *it, tap_error *err)
{
    return tap_comparison_summarise(all.comparison, it, err);
}

static tap_status with_match_query(void *it, tap_error *err)
{
    tap_match_cursor *cursor;
    tap_status status = tap_comparison_query(all.comparison, it, &cursor, err);
    tap_match_cursor_close(cursor);
    return status;
}

static tap_status with_match(void *it, tap_error *err)
{
    tap_match_cursor *cursor;
    assert_int_equal(tap_comparison_query(all.comparison, NULL, &cursor, NULL), TAP_OK);
    tap_status status = tap_match_cursor_next(cursor, it, err);
    tap_match_cursor_close(cursor);
    return status;
}

static tap_status with_verdict(void *it, tap_error *err)
{
    return tap_comparison_verdict(all.comparison, it, err);
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
    X(tap_compare_options, with_compare_options, true)                                                               \
    X(tap_comparison_summary, with_summary, true)                                                                    \
    X(tap_match_query, with_match_query, true)                                                                       \
    X(tap_match, with_match, true)                                                                                   \
    X(tap_verdict, with_verdict, true)                                                                               \
    X(tap_op_info, with_op_info, false)
#define INIT(type) static void init_##type(void *it) { type##_init(it); }
INIT(tap_options) INIT(tap_print_options) INIT(tap_difference) INIT(tap_query) INIT(tap_counts) INIT(tap_save_info)
INIT(tap_record) INIT(tap_mapping) INIT(tap_attempt) INIT(tap_verify_options) INIT(tap_verify_result)
INIT(tap_file_entry) INIT(tap_node_desc) INIT(tap_node_info) INIT(tap_host) INIT(tap_engine_counts)
INIT(tap_node_times) INIT(tap_op_info) INIT(tap_compare_options) INIT(tap_comparison_summary) INIT(tap_match_query)
INIT(tap_match) INIT(tap_verdict)

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
                char bytes[4096];
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
            bool needed = strcmp(ROWS[i].type, "tap_mapping") == 0; /* its last member is what is released */
            if (status != (k < (needed ? 1 : 2) ? TAP_OK : TAP_E_INVALID))
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

/* ------------------------------------------------------------------------------------------------------------- NULL */

/* One pointer of a call is NULL. */
#define P(number, pointer) (null == (number) ? NULL : (pointer))
/* What comes of it: E is TAP_E_INVALID, any other letter only that nobody crashes, as for what may be left out. */
#define CALL(function, outcome, ...)                                                                                 \
    static tap_status null_##function(int null)                                                                      \
    {                                                                                                                \
        (void)null;                                                                                                  \
        __VA_ARGS__                                                                                                  \
        return TAP_OK;                                                                                               \
    }                                                                                                                \
    static const char *const outcome_##function = outcome;

static tap_recorder *fresh(void)
{
    tap_options options;
    tap_recorder *rec;
    tap_options_init(&options);
    options.dir = all.other;
    options.mode = TAP_OPEN_REPLACE;
    options.writer = "thread";
    options.ring_bytes = 1 << 20;
    assert_int_equal(tap_recorder_open(&options, &rec, NULL), TAP_OK);
    return rec;
}

static const tap_value VALUE = {.type = TAP_VALUE_INT, .i = 4};
static tap_stats numbers;
static tap_error error;
static uint64_t number;
static bool flag;

CALL(tap_text, "-", tap_text(P(0, "x"));)
CALL(tap_log_set, "--", tap_log_set(NULL, P(1, &flag));)
CALL(tap_allocator_set, "-", tap_allocator_set(NULL);)
CALL(tap_language_set, "-", tap_language_set(NULL);)
CALL(tap_dtype_find, "-", tap_dtype_find(P(0, "f"));)
CALL(tap_tensor_count, "-", tap_tensor_count(P(0, &all.tensor));)
CALL(tap_tensor_bytes, "-", tap_tensor_bytes(P(0, &all.tensor));)
CALL(tap_tensor_is_contiguous, "-", tap_tensor_is_contiguous(P(0, &all.tensor));)
CALL(tap_stats_ieee_mean, "-", tap_stats_ieee_mean(P(0, &numbers));)
CALL(tap_stats_ieee_norm, "-", tap_stats_ieee_norm(P(0, &numbers));)
CALL(tap_tensor_scan, "E----", float to[3];
     return tap_tensor_scan(P(0, &all.tensor), 7, P(1, to), P(2, &numbers), P(3, &number), P(4, &error));)
CALL(tap_hash_bytes, "-", tap_hash_bytes(P(0, data), 12);)
CALL(tap_tensor_convert, "EE-", double to[3]; return tap_tensor_convert(P(0, &all.tensor), TAP_F64, P(1, to), P(2, &error));)
CALL(tap_tensor_value, "-", tap_tensor_value(P(0, &all.tensor), 1);)
CALL(tap_tensor_print, "E-E--", tap_print_options options; tap_print_options_init(&options);
     return tap_tensor_print(P(0, &all.tensor), P(1, &options), null == 2 ? NULL : drop, P(3, &flag), P(4, &error));)
CALL(tap_tensor_histogram, "EE-", uint64_t counts[2];
     return tap_tensor_histogram(P(0, &all.tensor), 0, 1, P(1, counts), 2, P(2, &error));)
CALL(tap_isa_set, "-", tap_isa_set(NULL);)
CALL(tap_recorder_open, "EE-", tap_options options; tap_options_init(&options); tap_recorder *rec = NULL;
     options.dir = all.other; options.mode = TAP_OPEN_REPLACE; options.writer = "thread"; options.ring_bytes = 1 << 20;
     tap_status status = tap_recorder_open(P(0, &options), P(1, &rec), P(2, &error)); tap_recorder_close(rec, NULL);
     return status;)
CALL(tap_save, "----", tap_save_info info = TAP_SAVE_INFO();
     return tap_save(P(0, all.rec), P(1, "n"), P(2, &all.tensor), P(3, &info));)
CALL(tap_save_value, "----", tap_save_info info = TAP_SAVE_INFO();
     return tap_save_value(P(0, all.rec), P(1, "n"), P(2, &VALUE), P(3, &info));)
CALL(tap_recorder_wants, "--", tap_recorder_wants(P(0, all.rec), P(1, "n"));)
CALL(tap_recorder_declare, "---", tap_save_info info = TAP_SAVE_INFO();
     return tap_recorder_declare(P(0, all.rec), P(1, "n"), P(2, &info));)
CALL(tap_step, "-", return tap_step(P(0, all.rec));)
CALL(tap_recorder_set_step, "-", return tap_recorder_set_step(P(0, all.rec), 3);)
CALL(tap_recorder_get_step, "-", tap_recorder_get_step(P(0, all.rec));)
CALL(tap_recorder_flush, "--", return tap_recorder_flush(P(0, all.rec), -1, P(1, &error));)
CALL(tap_recorder_close, "--", if (null == 0) return tap_recorder_close(NULL, &error);
     return tap_recorder_close(fresh(), P(1, &error));)
CALL(tap_recorder_enable, "-", tap_recorder_enable(P(0, all.rec), true);)
CALL(tap_recorder_counts, "-E", tap_counts counts; tap_counts_init(&counts);
     return tap_recorder_counts(P(0, all.rec), P(1, &counts));)
CALL(tap_recorder_error, "--", tap_recorder_error(P(0, all.rec), P(1, &error));)
CALL(tap_run_open, "EE-", tap_run *run = NULL; tap_status status = tap_run_open(P(0, all.dir), P(1, &run), P(2, &error));
     tap_run_close(run); return status;)
CALL(tap_run_close, "-", tap_run_close(P(0, all.run));)
CALL(tap_run_layout, "-", tap_run_layout(P(0, all.run));)
CALL(tap_run_query, "E-E-", tap_query query; tap_query_init(&query); tap_cursor *cursor = NULL;
     tap_status status = tap_run_query(P(0, all.run), P(1, &query), P(2, &cursor), P(3, &error));
     tap_cursor_close(cursor); return status;)
CALL(tap_cursor_next, "EE-", tap_cursor *cursor; tap_record record; tap_record_init(&record);
     assert_int_equal(tap_run_query(all.run, NULL, &cursor, NULL), TAP_OK);
     tap_status status = tap_cursor_next(P(0, cursor), P(1, &record), P(2, &error)); tap_cursor_close(cursor); return status;)
CALL(tap_cursor_close, "-", tap_cursor_close(NULL);)
CALL(tap_run_count, "E-E-", tap_query query; tap_query_init(&query);
     return tap_run_count(P(0, all.run), P(1, &query), P(2, &number), P(3, &error));)
CALL(tap_run_refresh, "EEE-", bool live; return tap_run_refresh(P(0, all.run), P(1, &flag), P(2, &live), P(3, &error));)
CALL(tap_record_map, "EEE-", tap_mapping mapping; tap_mapping_init(&mapping);
     tap_status status = tap_record_map(P(0, all.run), P(1, &all.record), P(2, &mapping), P(3, &error));
     tap_mapping_release(&mapping); return status;)
CALL(tap_mapping_release, "-", tap_mapping_release(NULL);)
CALL(tap_run_attempt_count, "-", tap_run_attempt_count(P(0, all.run));)
CALL(tap_run_attempt, "EE", tap_attempt attempt; tap_attempt_init(&attempt);
     return tap_run_attempt(P(0, all.run), 0, P(1, &attempt));)
CALL(tap_run_verify, "E---", tap_verify_options options; tap_verify_options_init(&options); tap_verify_result result;
     tap_verify_result_init(&result);
     return tap_run_verify(P(0, all.run), P(1, &options), P(2, &result), P(3, &error));)
CALL(tap_run_index, "E--", return tap_run_index(P(0, all.dir), NULL, NULL, P(1, &number), P(2, &error));)
CALL(tap_run_recover, "E--", return tap_run_recover(P(0, all.dir), P(1, &number), P(2, &error));)
CALL(tap_run_wait, "E-", return tap_run_wait(P(0, all.dir), 0, P(1, &error));)
CALL(tap_file_open, "EE-", tap_file *file = NULL; tap_status status = tap_file_open(P(0, all.file), P(1, &file), P(2, &error));
     tap_file_close(file); return status;)
CALL(tap_file_format, "-", tap_file_format(P(0, all.tensors));)
CALL(tap_file_count, "-", tap_file_count(P(0, all.tensors));)
CALL(tap_file_get, "EE-", tap_file_entry entry; tap_file_entry_init(&entry);
     return tap_file_get(P(0, all.tensors), 0, P(1, &entry), P(2, &error));)
CALL(tap_file_close, "-", tap_file_close(NULL);)
CALL(tap_file_write, "EEE--", char path[620]; snprintf(path, sizeof path, "%s/w.npy", all.dir);
     static const char *const NAMES[] = {"x"};
     return tap_file_write(P(0, path), P(1, "npy"), P(2, &all.tensor), P(3, NAMES), 1, false, P(4, &error));)
CALL(tap_print_file_append, "EEE-", char path[620]; snprintf(path, sizeof path, "%s/w.print", all.dir);
     return tap_print_file_append(P(0, path), P(1, "x"), P(2, &all.tensor), P(3, &error));)
CALL(tap_cuda_is_capturing, "-", tap_cuda_is_capturing(NULL);)
CALL(tap_recorder_set_default, "-", tap_recorder_set_default(NULL);)
CALL(tap_tensor_compare, "EEE-", tap_difference difference; tap_difference_init(&difference);
     return tap_tensor_compare(P(0, &all.tensor), P(1, &all.tensor), P(2, &difference), P(3, &error));)
CALL(tap_compare_run, "EE-E-", tap_compare_options options; tap_compare_options_init(&options);
     tap_comparison *out = NULL;
     tap_status status = tap_compare_run(P(0, all.dir), P(1, all.dir), P(2, &options), P(3, &out), P(4, &error));
     tap_comparison_close(out); return status;)
CALL(tap_comparison_open, "EE-", tap_comparison *out = NULL;
     tap_status status = tap_comparison_open(P(0, all.file), P(1, &out), P(2, &error)); tap_comparison_close(out);
     return status;)
CALL(tap_comparison_close, "-", tap_comparison_close(NULL);)
CALL(tap_comparison_summarise, "EE-", tap_comparison_summary summary; tap_comparison_summary_init(&summary);
     return tap_comparison_summarise(P(0, all.comparison), P(1, &summary), P(2, &error));)
CALL(tap_comparison_query, "E-E-", tap_match_query query; tap_match_query_init(&query); tap_match_cursor *cursor = NULL;
     tap_status status = tap_comparison_query(P(0, all.comparison), P(1, &query), P(2, &cursor), P(3, &error));
     tap_match_cursor_close(cursor); return status;)
CALL(tap_match_cursor_next, "EE-", tap_match_cursor *cursor; tap_match match; tap_match_init(&match);
     assert_int_equal(tap_comparison_query(all.comparison, NULL, &cursor, NULL), TAP_OK);
     tap_status status = tap_match_cursor_next(P(0, cursor), P(1, &match), P(2, &error)); tap_match_cursor_close(cursor);
     return status;)
CALL(tap_match_cursor_close, "-", tap_match_cursor_close(NULL);)
CALL(tap_comparison_match, "EE-", tap_match match; tap_match_init(&match);
     return tap_comparison_match(P(0, all.comparison), 1, P(1, &match), P(2, &error));)
CALL(tap_comparison_verdict, "EE-", tap_verdict verdict; tap_verdict_init(&verdict);
     return tap_comparison_verdict(P(0, all.comparison), P(1, &verdict), P(2, &error));)
CALL(tap_graph_new, "-E-", tap_graph *graph = NULL; tap_status status = tap_graph_new(P(0, "g"), P(1, &graph), P(2, &error));
     tap_graph_free(graph); return status;)
CALL(tap_graph_free, "-", tap_graph_free(NULL);)
CALL(tap_graph_const, "-", tap_graph_const(NULL, 1);)
CALL(tap_graph_symbol, "--", tap_graph *graph = make_graph(NULL, NULL); tap_graph_symbol(P(0, graph), P(1, "s"));
     tap_graph_free(graph);)
CALL(tap_graph_expr, "-", tap_graph_expr(NULL, TAP_SYM_ADD, 0, 0);)
CALL(tap_graph_input, "E-EE-", tap_graph *graph = make_graph(NULL, NULL); tap_spec spec = {.type = TAP_SPEC_OPAQUE};
     int32_t value; tap_status status = tap_graph_input(P(0, graph), P(1, "y"), P(2, &spec), P(3, &value), P(4, &error));
     tap_graph_free(graph); return status;)
CALL(tap_graph_int, "EE-", tap_graph *graph = make_graph(NULL, NULL); int32_t value;
     tap_status status = tap_graph_int(P(0, graph), 0, P(1, &value), P(2, &error)); tap_graph_free(graph); return status;)
CALL(tap_graph_call, "EEEE-", tap_graph *graph = make_graph(NULL, NULL); int32_t node; int32_t value;
     tap_node_desc desc; tap_node_desc_init(&desc);
     tap_status status = tap_graph_call(P(0, graph), P(1, &desc), P(2, &node), P(3, &value), P(4, &error));
     tap_graph_free(graph); return status;)
CALL(tap_graph_output, "EE-", tap_graph *graph = make_graph(NULL, NULL); int32_t value = 0;
     tap_status status = tap_graph_output(P(0, graph), P(1, &value), 1, P(2, &error)); tap_graph_free(graph); return status;)
CALL(tap_graph_nodes, "-", tap_graph_nodes(NULL);)
CALL(tap_graph_values, "-", tap_graph_values(NULL);)
CALL(tap_graph_node, "EE", tap_node_info info; tap_node_info_init(&info); return tap_graph_node(P(0, all.graph), 0, P(1, &info));)
CALL(tap_engine_knows, "-", tap_engine_knows(NULL);)
CALL(tap_engine_new, "EEE-", tap_graph *graph = null ? make_graph(NULL, NULL) : NULL; tap_host host = make_host();
     tap_engine *engine = NULL; tap_status status = tap_engine_new(graph, 0, P(1, &host), P(2, &engine), P(3, &error));
     tap_engine_free(engine); return status;)
CALL(tap_engine_free, "-", tap_engine_free(NULL);)
CALL(tap_engine_graph, "-", tap_engine_graph(NULL);)
CALL(tap_frame_begin, "E-E-", tap_frame *frame = NULL;
     tap_status status = tap_frame_begin(P(0, all.engine), P(1, &flag), P(2, &frame), P(3, &error)); tap_frame_end(frame);
     return status;)
CALL(tap_frame_run, "E-", if (null == 0) return tap_frame_run(NULL, &error); tap_frame_run(all.frame, NULL);)
CALL(tap_frame_end, "-", tap_frame_end(NULL);)
CALL(tap_frame_set, "EE-", return tap_frame_set(P(0, all.frame), 0, P(1, &all.tensor), P(2, &error));)
CALL(tap_frame_set_int, "E-", return tap_frame_set_int(P(0, all.frame), 0, 1, P(1, &error));)
CALL(tap_frame_get_int, "EE-", int64_t out; return tap_frame_get_int(P(0, all.frame), 0, P(1, &out), P(2, &error));)
CALL(tap_engine_count, "EE", tap_engine_counts counts; tap_engine_counts_init(&counts);
     return tap_engine_count(P(0, all.engine), P(1, &counts));)
CALL(tap_engine_is_host, "-", tap_engine_is_host(NULL, 0);)
CALL(tap_engine_times, "EE", tap_node_times times; tap_node_times_init(&times);
     return tap_engine_times(P(0, all.engine), 0, P(1, &times));)
CALL(tap_engine_set_onednn, "--", return tap_engine_set_onednn(NULL, P(1, &error));)
CALL(tap_op_describe, "E", return tap_op_describe(0, NULL);)
CALL(tap_op_param, "-", tap_op_param(20, 0, NULL, 10);)
CALL(tap_op_output, "-", tap_op_output(20, 0, NULL, 10);)
CALL(tap_op_add, "E-", tap_op_desc desc; tap_op_desc_init(&desc); return tap_op_add(P(0, &desc), P(1, &error));)
CALL(tap_op_load, "E-", return tap_op_load(P(0, "/nothing"), P(1, &error));)

#define ROW(function) {#function, null_##function, &outcome_##function}
static const struct {
    const char *name;
    tap_status (*call)(int null);
    const char *const *outcome;
} NULLS[] = {
    ROW(tap_text), ROW(tap_log_set), ROW(tap_allocator_set), ROW(tap_language_set), ROW(tap_dtype_find),
    ROW(tap_tensor_count), ROW(tap_tensor_bytes), ROW(tap_tensor_is_contiguous), ROW(tap_stats_ieee_mean),
    ROW(tap_stats_ieee_norm), ROW(tap_tensor_scan), ROW(tap_hash_bytes), ROW(tap_tensor_convert),
    ROW(tap_tensor_value), ROW(tap_tensor_print), ROW(tap_tensor_histogram), ROW(tap_isa_set), ROW(tap_recorder_open),
    ROW(tap_save), ROW(tap_save_value), ROW(tap_recorder_wants), ROW(tap_recorder_declare), ROW(tap_step),
    ROW(tap_recorder_set_step), ROW(tap_recorder_get_step), ROW(tap_recorder_flush), ROW(tap_recorder_close),
    ROW(tap_recorder_enable), ROW(tap_recorder_counts), ROW(tap_recorder_error), ROW(tap_run_open),
    ROW(tap_run_close), ROW(tap_run_layout), ROW(tap_run_query), ROW(tap_cursor_next), ROW(tap_cursor_close),
    ROW(tap_run_count), ROW(tap_run_refresh), ROW(tap_record_map), ROW(tap_mapping_release),
    ROW(tap_run_attempt_count), ROW(tap_run_attempt), ROW(tap_run_verify), ROW(tap_run_index), ROW(tap_run_recover),
    ROW(tap_run_wait), ROW(tap_file_open), ROW(tap_file_format), ROW(tap_file_count), ROW(tap_file_get),
    ROW(tap_file_close), ROW(tap_file_write), ROW(tap_print_file_append), ROW(tap_cuda_is_capturing),
    ROW(tap_recorder_set_default), ROW(tap_tensor_compare), ROW(tap_compare_run), ROW(tap_comparison_open),
    ROW(tap_comparison_close), ROW(tap_comparison_summarise), ROW(tap_comparison_query), ROW(tap_match_cursor_next),
    ROW(tap_match_cursor_close), ROW(tap_comparison_match), ROW(tap_comparison_verdict), ROW(tap_graph_new),
    ROW(tap_graph_free), ROW(tap_graph_const), ROW(tap_graph_symbol), ROW(tap_graph_expr), ROW(tap_graph_input),
    ROW(tap_graph_int), ROW(tap_graph_call), ROW(tap_graph_output), ROW(tap_graph_nodes), ROW(tap_graph_values),
    ROW(tap_graph_node), ROW(tap_engine_knows), ROW(tap_engine_new), ROW(tap_engine_free), ROW(tap_engine_graph),
    ROW(tap_frame_begin), ROW(tap_frame_run), ROW(tap_frame_end), ROW(tap_frame_set), ROW(tap_frame_set_int),
    ROW(tap_frame_get_int), ROW(tap_engine_count), ROW(tap_engine_is_host), ROW(tap_engine_times),
    ROW(tap_engine_set_onednn), ROW(tap_op_describe), ROW(tap_op_param), ROW(tap_op_output), ROW(tap_op_add),
    ROW(tap_op_load),
};

static const char *now_called;

static void name_the_culprit(int signal)
{
    (void)signal;
    if (write(2, now_called, strlen(now_called)) < 0 || write(2, " crashed\n", 9) < 0)
        _exit(2);
    _exit(1);
}

static void null_is_refused_or_nothing(void **state)
{
    (void)state;
    signal(SIGSEGV, name_the_culprit);
    for (size_t i = 0; i < sizeof NULLS / sizeof NULLS[0]; i++)
        for (int null = 0; (*NULLS[i].outcome)[null]; null++) {
            now_called = NULLS[i].name;
            error.message[0] = 0;
            tap_status status = NULLS[i].call(null);
            if ((*NULLS[i].outcome)[null] == 'E' && status != TAP_E_INVALID)
                fail_msg("%s with pointer %d NULL: %s", NULLS[i].name, null, tap_status_name(status));
        }
    signal(SIGSEGV, SIG_DFL);
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
        cmocka_unit_test(null_is_refused_or_nothing),
    };
    return cmocka_run_group_tests_name("sized", tests, setup, teardown);
}
