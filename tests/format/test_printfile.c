/* test_printfile.c - what tap__printfile_append writes, byte for byte as protobuf encodes print.proto. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/printfile.h"

static void bytes(void **state)
{
    (void)state;
    const float data[4] = {2, 3, 4, 5};
    const int64_t shape[] = {2, 2}, strides[] = {1, 2};
    const tap_tensor tensor = {(void *)(uintptr_t)data, TAP_F32, 2, shape, strides};
    static const uint8_t MESSAGE[] = {
        0x0a, 0x05, 0x0a, 0x03, 'a', 'd', 'd',                     /* value { desc: "add" } */
        0x0a, 0x21, 0x12, 0x1f, 0x08, 0x02, 0x08, 0x02,            /* value { tensor { dims: 2 dims: 2 */
        0x12, 0x07, 'F', 'l', 'o', 'a', 't', '3', '2', 0x1a, 0x10, /* tensor_type, tensor_content */
        0, 0, 0, 0x40, 0, 0, 0x80, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0xa0, 0x40,
    };
    int fd = memfd_create("print", 0);
    tap_error err;
    assert_int_equal(tap__printfile_append(fd, "add", &tensor, &err), TAP_OK);
    uint8_t got[200];
    assert_int_equal(pread(fd, got, sizeof got, 0), sizeof MESSAGE);
    assert_memory_equal(got, MESSAGE, sizeof MESSAGE);
    close(fd);
}

/* Lengths of two and three varint bytes, a scalar, an empty tensor; read back in order. */
static void appended(void **state)
{
    (void)state;
    static double data[3000];
    for (int i = 0; i < 3000; i++)
        data[i] = i;
    const int64_t many[] = {3000}, none[] = {0, 300};
    const tap_tensor tensors[] = {{data, TAP_F64, 1, many, NULL}, {data + 7, TAP_F64, 0, NULL, NULL},
                                  {NULL, TAP_F64, 2, none, NULL}};
    char name[300];
    memset(name, 'n', 299);
    name[299] = 0;
    int fd = memfd_create("print", 0);
    tap_error err;
    for (int i = 0; i < 3; i++)
        assert_int_equal(tap__printfile_append(fd, name + 100 * i, &tensors[i], &err), TAP_OK);
    size_t len = (size_t)lseek(fd, 0, SEEK_END);
    void *map = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    tap_file *file;
    assert_int_equal(tap__file_open_memory(map, len, "print", NULL, &file, &err), TAP_OK);
    assert_int_equal(tap_file_count(file), 6);
    for (size_t i = 0; i < 3; i++) {
        tap_file_entry entry;
        tap_file_entry_init(&entry);
        assert_int_equal(tap_file_get(file, 2 * i, &entry, &err), TAP_OK);
        assert_int_equal(entry.value_type, TAP_VALUE_STR);
        assert_string_equal(entry.text, name + 100 * i);
        assert_int_equal(tap_file_get(file, 2 * i + 1, &entry, &err), TAP_OK);
        assert_string_equal(entry.name, name + 100 * i);
        assert_int_equal(entry.tensor.ndim, tensors[i].ndim);
        assert_int_equal(tap_tensor_count(&entry.tensor), tap_tensor_count(&tensors[i]));
        if (i < 2)
            assert_memory_equal(entry.tensor.data, tensors[i].data, (size_t)tap_tensor_bytes(&tensors[i]));
    }
    tap_file_close(file);
    munmap(map, len);
    close(fd);
}

static void refused(void **state)
{
    (void)state;
    const int64_t shape[] = {1};
    uint8_t byte = 0;
    const tap_tensor tensor = {&byte, TAP_F8E8M0FNU, 1, shape, NULL};
    tap_error err;
    assert_int_equal(tap__printfile_append(-1, "x", &tensor, &err), TAP_E_UNSUPPORTED);
    assert_string_equal(err.message, "cannot print x: MindSpore has no float8_e8m0fnu; convert it to float32");
    const tap_tensor good = {&byte, TAP_U8, 1, shape, NULL};
    assert_int_equal(tap__printfile_append(-1, "x", &good, &err), TAP_E_IO);
    assert_non_null(strstr(err.message, "cannot write the print file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes), cmocka_unit_test(appended), cmocka_unit_test(refused)};
    return cmocka_run_group_tests_name("printfile", tests, NULL, NULL);
}
