/* test_file.c - tensor files as a whole: told by content, read from memory, written or not at all, and every
 * allocation failing in turn. What is in the files is compared with numpy, torch and safetensors in tests/python. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "format/printfile.h"

static char dir[] = "/tmp/tap-test-file-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static int files_in_dir(void)
{
    DIR *handle = opendir(dir);
    int count = -2;
    while (handle && readdir(handle))
        count++;
    closedir(handle);
    return count;
}

static int remove_dir(void **state)
{
    (void)state;
    DIR *handle = opendir(dir);
    for (struct dirent *entry; handle && (entry = readdir(handle));)
        unlinkat(dirfd(handle), entry->d_name, 0);
    closedir(handle);
    return rmdir(dir);
}

/* A view that is not contiguous: columns 0, 2, 4 of a 4 x 6 matrix. */
static float numbers[24];
static const int64_t SHAPE[] = {4, 3}, STRIDES[] = {6, 2};
static const tap_tensor VIEW = {numbers, TAP_F32, 2, SHAPE, STRIDES};

static void write_file(const char *format, const tap_tensor *tensor, size_t count)
{
    static const char *const NAMES[] = {"a", "b", "c"};
    tap_error err;
    if (tap_file_write(in_dir(format), format, tensor, NAMES, count, false, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static void check_view(tap_file *file, size_t index)
{
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    tap_error err;
    assert_int_equal(tap_file_get(file, index, &entry, &err), TAP_OK);
    assert_int_equal(entry.tensor.dtype, TAP_F32);
    assert_int_equal(entry.tensor.ndim, 2);
    assert_int_equal((uintptr_t)entry.tensor.data % 4, 0);
    for (int i = 0; i < 12; i++)
        assert_true(((const float *)entry.tensor.data)[i] == (float)(i / 3 * 6 + i % 3 * 2));
}

static void round_trips(void **state)
{
    (void)state;
    static const char *const FORMATS[] = {"npy", "pt", "safetensors"};
    for (int i = 0; i < 24; i++)
        numbers[i] = (float)i;
    for (int i = 0; i < 3; i++) {
        const tap_tensor three[] = {VIEW, VIEW, VIEW};
        size_t count = i ? 3 : 1;
        write_file(FORMATS[i], three, count);
        tap_file *file;
        tap_error err;
        assert_int_equal(tap_file_open(in_dir(FORMATS[i]), &file, &err), TAP_OK);
        assert_string_equal(tap_file_format(file), FORMATS[i]);
        assert_int_equal(tap_file_count(file), count);
        for (size_t k = 0; k < count; k++)
            check_view(file, k);
        tap_file_entry entry;
        tap_file_entry_init(&entry);
        assert_int_equal(tap_file_get(file, count, &entry, &err), TAP_E_NOTFOUND);
        assert_non_null(strstr(err.message, "has no entry"));
        tap_file_close(file);
    }
    tap_file_close(NULL);
}

static char *read_bytes(const char *path, size_t *len)
{
    FILE *in = fopen(path, "rb");
    char *bytes = malloc(1 << 16);
    assert_non_null(in);
    *len = fread(bytes, 1, 1 << 16, in);
    fclose(in);
    return bytes;
}

/* Memory at an odd address: the data is copied, once, and stays. */
static void unaligned_memory(void **state)
{
    (void)state;
    write_file("npy", &VIEW, 1);
    size_t len;
    char *bytes = read_bytes(in_dir("npy"), &len), *odd = malloc(len + 1);
    memcpy(odd + 1, bytes, len);
    tap_file *file;
    tap_error err;
    assert_int_equal(tap__file_open_memory(odd + 1, len, "memory", NULL, &file, &err), TAP_OK);
    tap_file_entry first, second;
    tap_file_entry_init(&first);
    tap_file_entry_init(&second);
    assert_int_equal(tap_file_get(file, 0, &first, &err), TAP_OK);
    assert_int_equal(tap_file_get(file, 0, &second, &err), TAP_OK);
    assert_ptr_equal(first.tensor.data, second.tensor.data);
    check_view(file, 0);
    tap_file_close(file);
    free(odd);
    free(bytes);
}

/* Allocation number `countdown` fails, and all after it. */
typedef struct failing {
    long countdown, live;
} failing;

static void *failing_resize(void *user, void *old, size_t size)
{
    failing *state = user;
    if (size == 0) {
        state->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (state->countdown-- <= 0)
        return NULL;
    state->live += old == NULL;
    return realloc(old, size);
}

static tap_status open_and_read(const char *path, tap_error *err)
{
    tap_file *file;
    tap_status status = tap_file_open(path, &file, err);
    if (status != TAP_OK)
        return status;
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    for (size_t i = 0; i < tap_file_count(file) && status == TAP_OK; i++)
        status = tap_file_get(file, i, &entry, err);
    tap_file_close(file);
    return status;
}

typedef tap_status (*operation_fn)(const char *format, tap_error *err);

static tap_status operation_read(const char *format, tap_error *err)
{
    return open_and_read(in_dir(format), err);
}

static tap_status operation_write(const char *format, tap_error *err)
{
    static const char *const NAMES[] = {"a", "b"};
    const tap_tensor tensors[] = {VIEW, VIEW};
    return tap_file_write(in_dir("new"), format, tensors, NAMES, strcmp(format, "npy") == 0 ? 1 : 2, false, err);
}

static void every_allocation_fails(operation_fn operation, const char *format)
{
    for (long n = 0;; n++) {
        failing state = {n, 0};
        tap_error err = {.status = TAP_OK};
        tap_allocator_set(&(tap_allocator){failing_resize, &state});
        tap_status status = operation(format, &err);
        tap_allocator_set(NULL);
        assert_int_equal(state.live, 0);
        if (status == TAP_OK) {
            assert_true(n > 1);
            return;
        }
        assert_int_equal(status, TAP_E_NOMEM);
        assert_string_equal(err.message, "out of memory");
        assert_true(n < 1000);
    }
}

static void make_print_file(void)
{
    tap_error err;
    int fd = open(in_dir("print"), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_int_equal(tap__printfile_append(fd, "Tensor(shape=[2], dtype=Float16, value=[1 2])", &VIEW, &err), TAP_OK);
    assert_int_equal(tap__printfile_append(fd, "name", &VIEW, &err), TAP_OK);
    close(fd);
}

static void allocations(void **state)
{
    (void)state;
    static const char *const FORMATS[] = {"npy", "pt", "safetensors", "print"};
    make_print_file();
    for (int i = 0; i < 4; i++) {
        every_allocation_fails(operation_read, FORMATS[i]);
        int before = files_in_dir();
        if (i < 3)
            every_allocation_fails(operation_write, FORMATS[i]);
        unlink(in_dir("new"));
        assert_int_equal(files_in_dir(), before);
    }
}

/* A write that fails leaves neither a half file nor a temporary, and the old file as it was. */
static void failed_writes(void **state)
{
    (void)state;
    static const char *const FORMATS[] = {"npy", "pt", "safetensors"};
    static char zeros[1 << 16];
    const int64_t shape[] = {sizeof zeros};
    const tap_tensor large = {zeros, TAP_U8, 1, shape, NULL};
    static const char *const NAMES[] = {"a"};
    struct rlimit old, small = {1000, RLIM_INFINITY};
    int before = files_in_dir();
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    for (int i = 0; i < 3; i++) {
        tap_error err;
        setrlimit(RLIMIT_FSIZE, &small);
        tap_status status = tap_file_write(in_dir(FORMATS[i]), FORMATS[i], &large, NAMES, 1, false, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, TAP_E_IO);
        assert_non_null(strstr(err.message, "cannot write "));
        assert_int_equal(files_in_dir(), before);
        tap_file *file;
        assert_int_equal(tap_file_open(in_dir(FORMATS[i]), &file, &err), TAP_OK);
        check_view(file, 0);
        tap_file_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(unaligned_memory),
                                       cmocka_unit_test(allocations), cmocka_unit_test(failed_writes)};
    return cmocka_run_group_tests_name("file", tests, make_dir, remove_dir);
}
