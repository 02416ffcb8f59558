/* test_payload.c - strided and converted tensors into a file, against a walk over one element at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/payload.h"

/* CRC-32 one bit at a time, as zip defines it. */
static uint32_t slow_crc(const uint8_t *bytes, size_t len)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static size_t slow_gather(const tap_tensor *tensor, uint8_t *out)
{
    size_t bytes = tap_dtype_describe(tensor->dtype)->bytes, at = 0;
    int64_t index[TAP_MAX_NDIM] = {0};
    for (int64_t left = tap_tensor_count(tensor); left > 0; left--) {
        int64_t offset = 0;
        for (int i = 0; i < tensor->ndim; i++)
            offset += index[i] * tensor->strides[i];
        memcpy(out + at, (const char *)tensor->data + offset * (int64_t)bytes, bytes);
        at += bytes;
        for (int i = tensor->ndim - 1; i >= 0 && ++index[i] == tensor->shape[i]; i--)
            index[i] = 0;
    }
    return at;
}

static void check(const tap_tensor *tensor)
{
    size_t room = (size_t)tap_tensor_bytes(tensor);
    uint8_t *expected = malloc(room + 1), *got = malloc(room + 5);
    size_t len = slow_gather(tensor, expected);
    int fd = memfd_create("payload", 0);
    tap_payload payload = {.fd = fd, .path = "payload", .crc_wanted = true};
    tap_error err;
    assert_int_equal(tap__payload_write(&payload, "head", 4, tensor, tensor->dtype, &err), TAP_OK);
    assert_int_equal(pread(fd, got, room + 5, 0), (ssize_t)len + 4);
    assert_memory_equal(got, "head", 4);
    assert_memory_equal(got + 4, expected, len);
    assert_int_equal(payload.crc, slow_crc(expected, len));
    close(fd);
    free(expected);
    free(got);
}

static void strided(void **state)
{
    (void)state;
    enum { COUNT = 3 << 20 };
    uint16_t *data = malloc(COUNT * sizeof *data);
    for (int i = 0; i < COUNT; i++)
        data[i] = (uint16_t)(i * 2654435761u >> 13);
    static const struct {
        int64_t offset;
        int32_t ndim;
        int64_t shape[4], strides[4];
    } CASES[] = {
        {0, 1, {COUNT}, {1}}, {0, 1, {COUNT / 2}, {2}}, {COUNT - 1, 1, {COUNT}, {-1}}, {7, 1, {1000000}, {0}},
        {0, 2, {1024, 2048}, {1, 1024}}, {0, 2, {3, 700000}, {1, 3}}, {0, 2, {700000, 3}, {4, 1}},
        {5, 3, {3, 5, 40001}, {200005, 40001, 1}}, {5, 3, {40001, 5, 3}, {1, 40001, 200005}},
        {0, 4, {2, 3, 600000, 1}, {0, 5, 2, 9}}, {0, 3, {2, 524288, 2}, {1048576, 1, 524288}},
        {0, 2, {2, 524288}, {524289, 1}}, {0, 2, {2, 524289}, {524290, 1}}, {9, 0, {0}, {0}}, {0, 2, {0, 5}, {7, 1}},
        {3, 4, {1, 1, 1, 1}, {9, 9, 9, 9}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const tap_tensor tensor = {data + CASES[i].offset, TAP_U16, CASES[i].ndim, CASES[i].shape, CASES[i].strides};
        check(&tensor);
    }
    free(data);
}

static void converted(void **state)
{
    (void)state;
    enum { ROWS = 700, COLUMNS = 900 };
    uint16_t *data = malloc(ROWS * COLUMNS * sizeof *data);
    uint32_t *got = malloc(ROWS * COLUMNS * sizeof *got);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (uint16_t)(i % 0x7f00); /* no NaN: finite and positive bfloat16 */
    const int64_t shape[] = {COLUMNS, ROWS}, strides[] = {1, COLUMNS};
    const tap_tensor tensor = {data, TAP_BF16, 2, shape, strides};
    int fd = memfd_create("payload", 0);
    tap_payload payload = {.fd = fd, .path = "payload"};
    tap_error err;
    assert_int_equal(tap__payload_bytes(&tensor, TAP_F32), ROWS * COLUMNS * 4);
    assert_int_equal(tap__payload_write(&payload, NULL, 0, &tensor, TAP_F32, &err), TAP_OK);
    assert_int_equal(pread(fd, got, ROWS * COLUMNS * 4, 0), ROWS * COLUMNS * 4);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (got[i] != (uint32_t)data[i % ROWS * COLUMNS + i / ROWS] << 16)
            fail_msg("value %d", i);
    close(fd);
    free(data);
    free(got);
}

static void shapes(void **state)
{
    (void)state;
    int64_t shape[] = {2, 3}, out[TAP_MAX_NDIM];
    const tap_tensor packed = {NULL, TAP_F4E2M1X2, 2, shape, NULL}, scalar = {NULL, TAP_F4E2M1X2, 0, NULL, NULL};
    assert_int_equal(tap__payload_shape(&packed, TAP_F32, out), 2);
    assert_int_equal(out[1], 6);
    assert_int_equal(tap__payload_shape(&packed, TAP_F4E2M1X2, out), 2);
    assert_int_equal(out[1], 3);
    assert_int_equal(tap__payload_shape(&scalar, TAP_F32, out), 1);
    assert_int_equal(out[0], 2);
    assert_int_equal(tap__payload_bytes(&packed, TAP_F32), 48);
    shape[0] = INT64_MAX / 4;
    assert_int_equal(tap__payload_bytes(&packed, TAP_F32), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strided), cmocka_unit_test(converted),
                                       cmocka_unit_test(shapes)};
    return cmocka_run_group_tests_name("payload", tests, NULL, NULL);
}
