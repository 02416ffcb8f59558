/* test_drain.c - values through the room of a device and out of it: order, numbers, policies, replays of graphs, several streams, and
 * every call of the driver that may fail. The driver is the tests' own; `test_drain gpu` runs what does not ask it to fail on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/drain.h"
#include "fake_cuda.h"

/* What the tests ask of a driver beyond what the drain does: the tests' own, found by name, or a real one. */
static struct {
    struct fake_stream *(*stream_create)(void);
    void (*stream_wait)(struct fake_stream *), (*stream_destroy)(struct fake_stream *), (*capture_begin)(struct fake_stream *);
    struct fake_graph *(*capture_end)(struct fake_stream *);
    void (*replay)(const struct fake_graph *, struct fake_stream *), (*graph_free)(struct fake_graph *), (*fail_at)(int), (*delay)(int);
    int (*balance)(void);
} fake;
static void *library;
static bool on_gpu;

static void find_fake(void)
{
#define FIND(name) memcpy(&fake.name, &(void *){dlsym(library, "fake_" #name)}, sizeof fake.name)
    FIND(stream_create), FIND(stream_wait), FIND(stream_destroy), FIND(capture_begin), FIND(capture_end), FIND(replay);
    FIND(graph_free), FIND(fail_at), FIND(delay), FIND(balance);
#undef FIND
}

/* ------------------------------------------------------------------------------------------------------- a real driver */

#define CALL(name, types, ...)                                                                                       \
    do {                                                                                                             \
        int(*call_) types;                                                                                           \
        memcpy(&call_, &(void *){dlsym(library, name)}, sizeof call_);                                               \
        int result_ = call_ ? call_(__VA_ARGS__) : -1;                                                               \
        if (result_)                                                                                                 \
            fail_msg("%s: CUDA error %d", name, result_);                                                            \
    } while (0)

static void gpu_use(void)
{
    void *context;
    int device;
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGet", (int *, int), &device, 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
    CALL("cuCtxSetCurrent", (void *), context);
}

static struct fake_stream *gpu_stream_create(void)
{
    struct fake_stream *stream;
    CALL("cuStreamCreate", (struct fake_stream **, unsigned), &stream, 1);
    return stream;
}

static void gpu_stream_wait(struct fake_stream *stream)
{
    CALL("cuStreamSynchronize", (struct fake_stream *), stream);
}

static void gpu_stream_destroy(struct fake_stream *stream)
{
    gpu_stream_wait(stream);
    CALL("cuStreamDestroy_v2", (struct fake_stream *), stream);
}

static void gpu_capture_begin(struct fake_stream *stream)
{
    CALL("cuStreamBeginCapture_v2", (struct fake_stream *, int), stream, 0);
}

static struct fake_graph *gpu_capture_end(struct fake_stream *stream)
{
    void *graph;
    struct fake_graph *ready;
    CALL("cuStreamEndCapture", (struct fake_stream *, void **), stream, &graph);
    CALL("cuGraphInstantiateWithFlags", (struct fake_graph **, void *, uint64_t), &ready, graph, 0);
    CALL("cuGraphDestroy", (void *), graph);
    return ready;
}

static void gpu_replay(const struct fake_graph *graph, struct fake_stream *stream)
{
    CALL("cuGraphLaunch", (const struct fake_graph *, struct fake_stream *), graph, stream);
}

static void gpu_graph_free(struct fake_graph *graph)
{
    CALL("cuGraphExecDestroy", (struct fake_graph *), graph);
}

static void gpu_delay(int us)
{
    (void)us;
}

static int gpu_balance(void)
{
    return 0;
}

static void find_gpu(void)
{
    fake.stream_create = gpu_stream_create, fake.stream_wait = gpu_stream_wait, fake.stream_destroy = gpu_stream_destroy;
    fake.capture_begin = gpu_capture_begin, fake.capture_end = gpu_capture_end, fake.replay = gpu_replay;
    fake.graph_free = gpu_graph_free, fake.delay = gpu_delay, fake.balance = gpu_balance;
    gpu_use();
}

/* ------------------------------------------------------------------------------------------------------------ fixtures */

enum { MOST = 20000, STREAMS = 3 };

/* What came out: which tap, which replay and step, and whether statistics and bytes are those of its value. */
typedef struct came {
    uint64_t count, wrong, bare;
    uint64_t unordered; /* where eight taps follow one another: not the next one, or not of the next replay */
    struct {
        uint64_t tap, replay;
        int64_t step;
        float first;
    } at[MOST];
    atomic_int pause_us; /* at each value */
} came;

static came out;

/* A value is n floats, all of them alike. */
static void take(void *user, const tap_k_header *header, const char *payload)
{
    came *c = user;
    tap_stats stats;
    uint64_t hash, bytes = header->payload_bytes;
    float first = 0;
    tap__leaf_finish(&header->sums, TAP_F32, bytes, &stats, &hash);
    if (bytes) {
        memcpy(&first, payload, sizeof first);
        c->wrong += hash != tap_hash_bytes(payload, bytes) || stats.min.f != first || stats.max.f != first || stats.mean != first;
    } else {
        c->bare++;
        first = (float)header->sums.sum.high;
    }
    c->unordered += header->tap != c->count % 8 || header->replay != c->count / 8 + 1;
    if (c->count < MOST) {
        c->at[c->count].tap = header->tap;
        c->at[c->count].replay = header->replay;
        c->at[c->count].step = header->step;
        c->at[c->count].first = first;
    }
    c->count++;
    if (c->pause_us)
        usleep((unsigned)c->pause_us);
}

static tap_drain *open_drain(uint64_t headers, uint64_t payload, tap_full_policy full)
{
    tap_drain *drain;
    tap_error err;
    memset(&out, 0, sizeof out);
    tap_drain_options options = {.headers = headers, .payload_bytes = payload, .full = full, .stall_ms = 20000, .take = take,
                                 .user = &out};
    if (tap__drain_open(&options, &drain, &err))
        fail_msg("%s", err.message);
    assert_int_equal(tap__drain_control(drain, NULL, true, 1, 0, &err), TAP_OK);
    return drain;
}

static void close_drain(tap_drain *drain)
{
    tap_error err;
    if (tap__drain_close(drain, 60000, &err))
        fail_msg("%s", err.message);
    assert_int_equal(fake.balance(), 0);
    assert_int_equal(out.wrong, 0);
}

static tap_drain_slot *slot_of(tap_drain *drain)
{
    tap_drain_slot *slot;
    tap_error err;
    assert_int_equal(tap__drain_slot(drain, &slot, &err), TAP_OK);
    return slot;
}

static tap_status launch(tap_drain *drain, tap_drain_slot *slot, struct fake_stream *stream, uint64_t number, float *data, int64_t count)
{
    tap_k_tap tap;
    tap_error err;
    memset(&tap, 0, sizeof tap);
    tap.what = TAP_K_STATS | TAP_K_HASH | TAP_K_COPY;
    tap.tap = number;
    assert_int_equal(tap__leaf_view(&tap, &(tap_tensor){data, TAP_F32, 1, &count, NULL}, &err), TAP_OK);
    return tap__drain_launch(drain, slot, stream, &tap, &err);
}

/* Where kernels can read it. */
static float *value(float x, int count)
{
    float *data = malloc((size_t)count * sizeof *data), *there;
    for (int i = 0; i < count; i++)
        data[i] = x;
    if (!on_gpu)
        return data;
    CALL("cuMemAlloc_v2", (float **, size_t), &there, (size_t)count * sizeof *data);
    CALL("cuMemcpyHtoD_v2", (float *, const float *, size_t), there, data, (size_t)count * sizeof *data);
    free(data);
    return there;
}

static void value_free(float *data)
{
    if (on_gpu)
        CALL("cuMemFree_v2", (float *), data);
    else
        free(data);
}

/* ------------------------------------------------------------------------------------------------------------- values */

/* A room for a few values, and a slow taker: gates wait, and all come in order. */
static void values_come_in_order(void **state)
{
    (void)state;
    enum { COUNT = 500, FLOATS = 50 };
    tap_drain *drain = open_drain(8, 2048, TAP_FULL_BLOCK);
    struct fake_stream *stream = fake.stream_create();
    tap_drain_slot *slot = slot_of(drain);
    float *data[COUNT];
    out.pause_us = 100;
    for (int i = 0; i < COUNT; i++) {
        data[i] = value((float)i, FLOATS);
        assert_int_equal(launch(drain, slot, stream, (uint64_t)i, data[i], 1 + i % FLOATS), TAP_OK);
    }
    fake.stream_wait(stream);
    fake.stream_destroy(stream);
    close_drain(drain);
    assert_int_equal(out.count, COUNT);
    assert_int_equal(out.bare, 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(out.at[i].tap, i);
        assert_true(out.at[i].first == (float)i);
        value_free(data[i]);
    }
}

static void policies_keep_and_count(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    for (int full = TAP_FULL_STATS; full <= TAP_FULL_DROP; full++) {
        tap_drain *drain = open_drain(16, 1024, (tap_full_policy)full);
        struct fake_stream *stream = fake.stream_create();
        tap_drain_slot *slot = slot_of(drain);
        tap_error err;
        float *data = value(3, 100);
        out.pause_us = 3000;
        for (int i = 0; i < COUNT; i++)
            launch(drain, slot, stream, (uint64_t)i, data, 100);
        fake.stream_wait(stream);
        assert_int_equal(tap__drain_wait(drain, 60000, &err), TAP_OK);
        tap_drain_counts counts = tap__drain_count(drain);
        assert_int_equal(counts.taken, out.count);
        assert_int_equal(counts.taken + counts.lost, COUNT);
        assert_int_equal(counts.stats_only, out.bare);
        assert_true(counts.lost > 0);
        assert_true(full == TAP_FULL_STATS ? out.bare > 0 : out.bare == 0);
        for (uint64_t i = 1; i < out.count; i++)
            assert_true(out.at[i].tap > out.at[i - 1].tap);
        fake.stream_destroy(stream);
        close_drain(drain);
        value_free(data);
    }
}

static void too_large_a_value_is_refused(void **state)
{
    (void)state;
    tap_drain *drain = open_drain(8, 1024, TAP_FULL_BLOCK);
    float *data = value(1, 200);
    assert_int_equal(launch(drain, slot_of(drain), NULL, 0, data, 129), TAP_E_LIMIT);
    assert_int_equal(launch(drain, slot_of(drain), NULL, 0, data, 128), TAP_OK);
    close_drain(drain);
    assert_int_equal(out.count, 1);
    value_free(data);
}

/* ------------------------------------------------------------------------------------------------------------- graphs */

/* Two taps captured once, replayed many times: each replay gives two values with its number and the step of its time. */
static void replays_are_numbered(void **state)
{
    (void)state;
    enum { REPLAYS = 300, PER_STEP = 10 };
    tap_drain *drain = open_drain(32, 8192, TAP_FULL_BLOCK);
    struct fake_stream *stream = fake.stream_create();
    float *a = value(1, 40), *b = value(2, 90);
    tap_error err;
    fake.capture_begin(stream);
    assert_int_equal(launch(drain, slot_of(drain), stream, 1, a, 40), TAP_OK);
    assert_int_equal(launch(drain, slot_of(drain), stream, 2, b, 90), TAP_OK);
    struct fake_graph *graph = fake.capture_end(stream);
    fake.stream_wait(stream);
    assert_int_equal(tap__drain_wait(drain, 1000, &err), TAP_OK);
    assert_int_equal(out.count, 0); /* capture itself gives none */
    fake.delay(200);
    for (int i = 0; i < REPLAYS; i++) {
        if (i % PER_STEP == 0)
            tap__drain_control(drain, stream, i != 100, 1, i / PER_STEP, &err);
        fake.replay(graph, stream);
        tap__drain_nudge(drain);
    }
    fake.stream_wait(stream);
    fake.delay(0);
    close_drain(drain);
    fake.stream_destroy(stream);
    fake.graph_free(graph);
    assert_int_equal(out.count, 2 * (REPLAYS - PER_STEP)); /* one step was off */
    for (uint64_t i = 0; i < out.count; i++) {
        uint64_t replay = i / 2 + 1 + (i / 2 >= 100 ? PER_STEP : 0);
        assert_int_equal(out.at[i].tap, 1 + i % 2);
        assert_int_equal(out.at[i].replay, replay);
        assert_int_equal(out.at[i].step, (replay - 1) / PER_STEP);
    }
    value_free(a);
    value_free(b);
}

typedef struct replayer {
    tap_drain *drain;
    struct fake_stream *stream;
    struct fake_graph *graph;
} replayer;

enum { TIMES = 200 };

static void *replay_many(void *arg)
{
    replayer *r = arg;
    if (on_gpu)
        gpu_use();
    for (int i = 0; i < TIMES; i++) {
        fake.replay(r->graph, r->stream);
        tap__drain_nudge(r->drain);
    }
    fake.stream_wait(r->stream);
    return NULL;
}

/* Several graphs in as many streams and threads share one room. */
static void graphs_share_the_room(void **state)
{
    (void)state;
    tap_drain *drain = open_drain(16, 4096, TAP_FULL_BLOCK);
    replayer replayers[STREAMS];
    pthread_t threads[STREAMS];
    float *data[STREAMS];
    fake.delay(50);
    for (int i = 0; i < STREAMS; i++) {
        replayers[i] = (replayer){.drain = drain, .stream = fake.stream_create()};
        data[i] = value((float)i, 100);
        fake.capture_begin(replayers[i].stream);
        assert_int_equal(launch(drain, slot_of(drain), replayers[i].stream, (uint64_t)i, data[i], 60 + 10 * i), TAP_OK);
        replayers[i].graph = fake.capture_end(replayers[i].stream);
    }
    for (int i = 0; i < STREAMS; i++)
        pthread_create(&threads[i], NULL, replay_many, &replayers[i]);
    for (int i = 0; i < STREAMS; i++)
        pthread_join(threads[i], NULL);
    fake.delay(0);
    close_drain(drain);
    uint64_t next[STREAMS] = {0};
    assert_int_equal(out.count, STREAMS * TIMES);
    for (uint64_t i = 0; i < out.count; i++) {
        uint64_t tap = out.at[i].tap;
        assert_true(tap < STREAMS);
        assert_int_equal(out.at[i].replay, ++next[tap]);
        assert_true(out.at[i].first == (float)tap);
    }
    for (int i = 0; i < STREAMS; i++) {
        fake.stream_destroy(replayers[i].stream);
        fake.graph_free(replayers[i].graph);
        value_free(data[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------- faults */

static void every_call_may_fail(void **state)
{
    (void)state;
    tap_drain_options options = {.headers = 8, .payload_bytes = 1024, .take = take, .user = &out};
    int n = 1;
    for (tap_drain *drain = NULL; !drain; n++) {
        tap_error err;
        fake.fail_at(n);
        tap_status status = tap__drain_open(&options, &drain, &err);
        fake.fail_at(0);
        if (status == TAP_OK) {
            assert_int_equal(tap__drain_close(drain, 1000, &err), TAP_OK);
        } else {
            assert_null(drain);
            assert_non_null(strstr(err.message, "made to fail"));
        }
        assert_int_equal(fake.balance(), 0);
    }
    assert_true(n > 6);
}

/* A gate that ran and a tap that did not, as after an error on the device: nobody waits for ever, and the error says so. */
static void a_value_that_never_comes_is_told(void **state)
{
    (void)state;
    tap_drain *drain = open_drain(8, 1024, TAP_FULL_BLOCK);
    tap_error err;
    float x = 1;
    fake.fail_at(2);
    assert_int_equal(launch(drain, slot_of(drain), NULL, 0, &x, 1), TAP_E_INTERNAL);
    fake.fail_at(0);
    assert_int_equal(tap__drain_wait(drain, 50, &err), TAP_E_TIMEOUT);
    assert_non_null(strstr(err.message, "1 values"));
    assert_int_equal(tap__drain_close(drain, 50, &err), TAP_E_TIMEOUT);
    assert_int_equal(fake.balance(), 3); /* what a kernel may still write is left alone */
}

static void slots_run_out(void **state)
{
    (void)state;
    tap_drain *drain = open_drain(8, 1024, TAP_FULL_BLOCK);
    tap_drain_slot *slot;
    tap_error err;
    int count = 0;
    while (tap__drain_slot(drain, &slot, &err) == TAP_OK)
        count++;
    assert_int_equal(count, 64);
    assert_int_equal(tap__drain_slot(drain, &slot, &err), TAP_E_LIMIT);
    close_drain(drain);
}

/* ------------------------------------------------------------------------------------------------------ the whole of it */

enum { MANY = 10000, TAPS = 8, LARGE = 64 << 10 };

/* Ten thousand replays of eight taps, of 40 bytes to 256 KiB, through a room that holds a few of them: all come, in order. */
static void ten_thousand_replays(void **state)
{
    (void)state;
    tap_drain *drain = open_drain(64, 4 << 20, TAP_FULL_BLOCK);
    struct fake_stream *stream = fake.stream_create();
    float *data[TAPS];
    for (int i = 0; i < TAPS; i++)
        data[i] = value((float)i, LARGE);
    fake.capture_begin(stream);
    for (int i = 0; i < TAPS; i++) {
        int count = i == 7 ? LARGE : 10 << i;
        assert_int_equal(launch(drain, slot_of(drain), stream, (uint64_t)i, data[i], count), TAP_OK);
    }
    struct fake_graph *graph = fake.capture_end(stream);
    for (int i = 0; i < MANY; i++) {
        fake.replay(graph, stream);
        tap__drain_nudge(drain);
    }
    fake.stream_wait(stream);
    close_drain(drain);
    assert_int_equal(out.count, MANY * TAPS);
    assert_int_equal(out.bare + out.unordered, 0);
    fake.stream_destroy(stream);
    fake.graph_free(graph);
    for (int i = 0; i < TAPS; i++)
        value_free(data[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest both[] = {
        cmocka_unit_test(values_come_in_order),
        cmocka_unit_test(policies_keep_and_count),
        cmocka_unit_test(too_large_a_value_is_refused),
        cmocka_unit_test(replays_are_numbered),
        cmocka_unit_test(graphs_share_the_room),
        cmocka_unit_test(slots_run_out),
    };
    const struct CMUnitTest faults[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(a_value_that_never_comes_is_told), /* last: it leaves memory behind */
    };
    const struct CMUnitTest gpu[] = {
        cmocka_unit_test(ten_thousand_replays),
    };
    on_gpu = argc > 1 && strcmp(argv[1], "gpu") == 0;
    if (!on_gpu)
        setenv("TENSORTAP_CUDA_DRIVER", FAKE_CUDA, 1);
    library = dlopen(on_gpu ? "libcuda.so.1" : FAKE_CUDA, RTLD_NOW);
    if (!library) {
        print_message("no CUDA driver here: nothing was tested\n");
        return on_gpu ? 77 : 1;
    }
    if (on_gpu)
        find_gpu();
    else
        find_fake();
    int failed = cmocka_run_group_tests(both, NULL, NULL);
    return failed + (on_gpu ? cmocka_run_group_tests(gpu, NULL, NULL) : cmocka_run_group_tests(faults, NULL, NULL));
}
