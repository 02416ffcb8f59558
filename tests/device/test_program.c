/* test_program.c - the kernels' text, loaded by a driver, and their launches: the tests' own driver, which runs them natively. On a
 * machine with a GPU, `test_program gpu` does the same there and compares every dtype and view. */
#include "leaf_cases.h"

#include <dlfcn.h>
#include <stdio.h>

#include "device/program.h"

static void *library;

static void *symbol(const char *name)
{
    void *at = dlsym(library, name);
    if (!at)
        fail_msg("the driver lacks %s", name);
    return at;
}

/* ------------------------------------------------------------------------------------------------- with the tests' driver */

static void a_leaf_runs(void **state)
{
    (void)state;
    tap_program program;
    tap_error err;
    int64_t count = 3;
    float values[3] = {1, 2, -3};
    tap_k_header header = {.flag = 0};
    tap_k_group group;
    tap_k_words words = {.on = 1};
    tap_k_tails tails = {0, 0};
    char payload[64];
    tap_k_tap tap;
    memset(&tap, 0, sizeof tap);
    tap.room = (tap_k_room){&words, &tails, &header, 1, payload, sizeof payload};
    tap_k_gate gate = {.room = tap.room, .group = &group, .headers = 1, .payload = sizeof payload};
    tap.group = &group;
    tap.what = TAP_K_STATS | TAP_K_COPY;
    assert_int_equal(tap__leaf_view(&tap, &(tap_tensor){values, TAP_F32, 1, &count, NULL}, &err), TAP_OK);
    assert_int_equal(tap__program_load(&program, &err), TAP_OK);
    assert_int_equal(tap__program_gate(&program, NULL, &gate, &err), TAP_OK);
    assert_int_equal(tap__program_leaf(&program, NULL, &tap, 1, 32, &err), TAP_OK);
    assert_int_equal(header.flag, 1);
    assert_int_equal(header.payload_bytes, sizeof values);
    assert_memory_equal(payload, values, sizeof values);
    tap__program_unload(&program);
    assert_int_equal(((int (*)(void))symbol("fake_balance"))(), 0);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    void (*fail_at)(int) = (void (*)(int))symbol("fake_fail_at");
    tap_program program;
    tap_error err;
    for (int n = 1; n <= 3; n++) {
        fail_at(n);
        assert_int_equal(tap__program_load(&program, &err), TAP_E_INTERNAL);
        assert_non_null(strstr(err.message, "made to fail"));
        assert_int_equal(((int (*)(void))symbol("fake_balance"))(), 0);
    }
    fail_at(0);
    assert_int_equal(tap__program_load(&program, &err), TAP_OK);
    fail_at(1);
    assert_int_equal(tap__program_gate(&program, NULL, &(tap_k_gate){.headers = 1}, &err), TAP_E_INTERNAL);
    fail_at(0);
    tap__program_unload(&program);
}

/* ------------------------------------------------------------------------------------------------------------ on a GPU */

static tap_program on_gpu;
static char *gpu_pool, *gpu_room; /* pool; words, group, partial sums, `arrived` */
static char *host_room;           /* tails, headers, payload: pinned, the same address on both sides */

static void must(int result, const char *what)
{
    if (result)
        fail_msg("%s: CUDA error %d", what, result);
}

static void start_gpu(void)
{
    void *context;
    int device;
    tap_error err;
    must(((int (*)(unsigned))symbol("cuInit"))(0), "cuInit");
    must(((int (*)(int *, int))symbol("cuDeviceGet"))(&device, 0), "cuDeviceGet");
    must(((int (*)(void **, int))symbol("cuDevicePrimaryCtxRetain"))(&context, device), "cuDevicePrimaryCtxRetain");
    must(((int (*)(void *))symbol("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    int (*alloc)(char **, size_t) = (int (*)(char **, size_t))symbol("cuMemAlloc_v2");
    must(alloc(&gpu_pool, CASE_BYTES), "cuMemAlloc");
    must(alloc(&gpu_room, 1 << 20), "cuMemAlloc");
    must(((int (*)(char **, size_t, unsigned))symbol("cuMemHostAlloc"))(&host_room, 1 << 20, 1 | 2), "cuMemHostAlloc");
    if (tap__program_load(&on_gpu, &err))
        fail_msg("%s", err.message);
}

static void run_on_gpu(tap_k_tap *tap, unsigned blocks, unsigned threads, const char *pool, tap_k_header *header, char *payload)
{
    static tap_k_word seq;
    tap_error err;
    tap_k_words *words = (tap_k_words *)(void *)gpu_room;
    tap_k_group *group = (tap_k_group *)(void *)(gpu_room + 1024);
    tap_k_tails *tails = (tap_k_tails *)(void *)host_room;
    tap_k_header *headers = (tap_k_header *)(void *)(host_room + 4096);
    char *room_payload = host_room + 8192;
    tap_k_words begin = {.on = 1, .serial = 7, .step = -2, .head_seq = seq};
    int (*up)(void *, const void *, size_t) = (int (*)(void *, const void *, size_t))symbol("cuMemcpyHtoD_v2");
    must(((int (*)(void *, unsigned char, size_t))symbol("cuMemsetD8_v2"))(gpu_room, 0, 1 << 20), "cuMemsetD8");
    must(up(words, &begin, sizeof begin), "cuMemcpyHtoD");
    must(up(gpu_pool, pool, CASE_BYTES), "cuMemcpyHtoD");
    *tails = (tap_k_tails){seq, 0};
    memset(room_payload, 0x55, CASE_PAYLOAD);
    memset(headers, 0, 4 * sizeof *headers);
    tap->room = (tap_k_room){words, tails, headers, 4, room_payload, CASE_PAYLOAD / 64 * 64};
    tap->group = group;
    tap->partial = (tap_k_sums *)(void *)(gpu_room + 4096);
    tap->arrived = (unsigned *)(void *)(gpu_room + 2048);
    tap->data = gpu_pool + (tap->data - pool);
    tap_k_gate gate = {.room = tap->room, .group = group, .headers = 1, .payload = (tap->bytes + 63) / 64 * 64,
                       .stall_ns = 1000000000};
    if (tap__program_gate(&on_gpu, NULL, &gate, &err) || tap__program_leaf(&on_gpu, NULL, tap, blocks, threads, &err))
        fail_msg("%s", err.message);
    must(((int (*)(void))symbol("cuCtxSynchronize"))(), "cuCtxSynchronize");
    *header = headers[seq % 4];
    assert_int_equal(header->flag, ++seq);
    assert_int_equal(header->serial, 7);
    assert_int_equal(header->step, -2);
    assert_int_equal(header->replay, 1);
    memcpy(payload, room_payload, CASE_PAYLOAD);
}

static void sizes_on_a_gpu(void **state)
{
    (void)state;
    cases_of_sizes(run_on_gpu, 1, 32);
    cases_of_sizes(run_on_gpu, 3, 64);
    cases_of_sizes(run_on_gpu, 1, 1);
}

static void views_on_a_gpu(void **state)
{
    (void)state;
    cases_of_views(run_on_gpu, 1, 256);
    cases_of_views(run_on_gpu, 4, 96);
}

static void launches_on_a_gpu(void **state)
{
    (void)state;
    cases_of_launches(run_on_gpu);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest faked[] = {
        cmocka_unit_test(a_leaf_runs),
        cmocka_unit_test(every_call_may_fail),
    };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(sizes_on_a_gpu),
        cmocka_unit_test(views_on_a_gpu),
        cmocka_unit_test(launches_on_a_gpu),
    };
    bool gpu = argc > 1 && strcmp(argv[1], "gpu") == 0;
    if (!gpu)
        setenv("TENSORTAP_CUDA_DRIVER", FAKE_CUDA, 1);
    library = dlopen(gpu ? "libcuda.so.1" : FAKE_CUDA, RTLD_NOW);
    if (!library) {
        printf("no CUDA driver here: nothing was tested\n");
        return gpu ? 77 : 1;
    }
    if (!gpu)
        return cmocka_run_group_tests(faked, NULL, NULL);
    start_gpu();
    return cmocka_run_group_tests(real, NULL, NULL);
}
