/* test_leaf.c - the tap kernel, run natively: every dtype, size and view, with any number of blocks and threads. */
#include "leaf_cases.h"
#include "native_kernels.h"

static void run_native(tap_k_tap *tap, unsigned blocks, unsigned threads, const char *pool, tap_k_header *header, char *payload)
{
    (void)pool;
    tap_k_sums partial[64];
    unsigned arrived = 0;
    tap_k_header headers[4];
    tap_k_group group = {.seq = 5, .at = 0, .state = TAP_K_WHOLE, .replay = 3, .serial = 7, .step = -2};
    tap->room = (tap_k_room){.headers = headers, .header_count = 4, .payload = payload, .payload_bytes = CASE_PAYLOAD / 64 * 64};
    tap->group = &group;
    tap->partial = partial;
    tap->arrived = &arrived;
    tap->tap = 11;
    tap->index = 1;
    memset(headers, 0xAA, sizeof headers);
    assert_true(blocks <= 64);
    native_leaf(tap, blocks, threads);
    *header = headers[(5 + 1) % 4];
    assert_int_equal(arrived, 0);
    assert_int_equal(header->flag, 7);
    assert_int_equal(header->seq, 6);
    assert_int_equal(header->tap, 11);
    assert_int_equal(header->replay, 3);
    assert_int_equal(header->serial, 7);
    assert_int_equal(header->step, -2);
}

static void one_thread(void **state)
{
    (void)state;
    cases_of_sizes(run_native, 1, 1);
    cases_of_views(run_native, 1, 1);
}

static void several_blocks_of_one(void **state)
{
    (void)state;
    cases_of_sizes(run_native, 3, 1);
    cases_of_views(run_native, 5, 1);
}

static void blocks_of_any_size(void **state)
{
    (void)state;
    static const unsigned THREADS[] = {2, 3, 5, 32};
    case_fill(TAP_F32, 1);
    for (size_t i = 0; i < sizeof THREADS / sizeof THREADS[0]; i++)
        for (unsigned blocks = 1; blocks < 4; blocks++) {
            int64_t count = 1000 + (int64_t)i, shape[2] = {31, 17}, strides[2] = {1, 31};
            case_run(run_native, &(tap_tensor){case_pool, TAP_F32, 1, &count, NULL}, blocks, THREADS[i]);
            case_run(run_native, &(tap_tensor){case_pool, TAP_BF16, 2, shape, strides}, blocks, THREADS[i]);
        }
}

static void launches_as_the_library_makes_them(void **state)
{
    (void)state;
    cases_of_launches(run_native);
}

static void equal_values_give_equal_sums(void **state)
{
    (void)state;
    int64_t count = 5000;
    tap_k_header first, second;
    tap_k_tap tap;
    case_fill(TAP_F32, 1);
    memset(&tap, 0, sizeof tap);
    tap.what = TAP_K_STATS | TAP_K_HASH | TAP_K_COPY;
    assert_int_equal(tap__leaf_view(&tap, &(tap_tensor){case_pool, TAP_F32, 1, &count, NULL}, NULL), TAP_OK);
    run_native(&tap, 3, 4, case_pool, &first, case_payload);
    run_native(&tap, 3, 4, case_pool, &second, case_payload);
    assert_memory_equal(&first, &second, sizeof first);
}

static void without_room_only_the_header_comes(void **state)
{
    (void)state;
    int64_t count = 100;
    case_fill(TAP_F32, 1);
    for (unsigned at = TAP_K_OFF; at <= TAP_K_LOST; at++) {
        tap_k_header header = {.flag = 0};
        tap_k_group group = {.state = at};
        tap_k_tap tap = {.group = &group, .what = TAP_K_STATS | TAP_K_COPY};
        memset(case_payload, 0x55, sizeof case_payload);
        tap.room = (tap_k_room){.headers = &header, .header_count = 1, .payload = case_payload, .payload_bytes = CASE_PAYLOAD / 64 * 64};
        assert_int_equal(tap__leaf_view(&tap, &(tap_tensor){case_pool, TAP_F32, 1, &count, NULL}, NULL), TAP_OK);
        native_leaf(&tap, 1, 2);
        bool runs = at == TAP_K_WHOLE || at == TAP_K_HEADER_ONLY;
        assert_int_equal(header.flag, runs);
        assert_int_equal(header.payload_bytes, at == TAP_K_WHOLE ? 400 : 0);
        assert_int_equal(case_payload[0] == 0x55 && case_payload[399] == 0x55, at != TAP_K_WHOLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(several_blocks_of_one),
        cmocka_unit_test(blocks_of_any_size),
        cmocka_unit_test(launches_as_the_library_makes_them),
        cmocka_unit_test(equal_values_give_equal_sums),
        cmocka_unit_test(without_room_only_the_header_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
