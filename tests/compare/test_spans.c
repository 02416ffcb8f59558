/* test_spans.c - the bytes of two files compared in spans: by any number of threads the same, and what cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compare/spans.h"
#include "record/scratch.h"
#include "base/dir.h"

enum { COUNT = 5000003 }; /* two spans and some, not a whole number of blocks */

/* A file of values, of which one in `every` is off by `off`. */
static char *file_make(const char *dir, const char *name, int64_t every, float off)
{
    char path[600];
    float *values = malloc(COUNT * sizeof *values);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = (float)(i % 977) + (every && i % every == every - 1 ? off : 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(values, sizeof *values, COUNT, file), COUNT);
    fclose(file);
    free(values);
    return strdup(path);
}

static tap_sidebytes side_of(tap_dir *dir, char *path)
{
    return (tap_sidebytes){.dtype = TAP_F32, .ndim = 1, .shape = {COUNT}, .count = COUNT, .element = 4, .path = path,
                           .dir = dir, .name = strrchr(path, '/') + 1};
}

static tap_spanned compare(const char *place, char *a, char *b, int threads)
{
    tap_dir *dir;
    assert_int_equal(tap__dir_open(place, false, &dir, NULL), TAP_OK);
    tap_sidebytes sides[2] = {side_of(dir, a), side_of(dir, b)};
    tap_spanned pair = {.side = {&sides[0], &sides[1]}, .exact = true};
    tap_spanned *pairs[] = {&pair};
    tap_error err;
    assert_int_equal(tap__spans_compare(pairs, 1, threads, &err), TAP_OK);
    if (pair.status == TAP_OK) {
        tap__beyond_begin(&pair.beyond, TAP_F32, TAP_F32);
        pair.beyond.unit = 1e-6;
        pair.beyond.factor = 4;
        pair.beyond.largest = pair.difference.max_abs;
        pair.look = true;
        assert_int_equal(tap__spans_look(pairs, 1, threads, &err), TAP_OK);
    }
    tap__free(pair.spans);
    tap__dir_close(dir);
    pair.spans = NULL;
    pair.side[0] = pair.side[1] = NULL;
    return pair;
}

static void any_number_of_threads(void **state)
{
    (void)state;
    char *dir = scratch_make(), *a = file_make(dir, "a", 0, 0), *b = file_make(dir, "b", 1000, 0.5f);
    tap_spanned one = compare(dir, a, b, 1);
    assert_int_equal(one.status, TAP_OK);
    assert_int_equal(one.difference.count, COUNT);
    assert_int_equal(one.difference.different, COUNT / 1000);
    assert_int_equal(one.difference.first.index, 999);
    assert_true(one.difference.max_abs == 0.5);
    assert_int_equal(one.other_bits, COUNT / 1000);
    assert_int_equal(one.first_bit, 999);
    assert_int_equal(one.beyond.count, COUNT);
    assert_int_equal(one.beyond.beyond, COUNT / 1000);
    for (int threads = 2; threads <= 8; threads *= 2) {
        tap_spanned more = compare(dir, a, b, threads);
        assert_memory_equal(&more, &one, sizeof more);
    }
    tap_spanned same = compare(dir, a, a, 4);
    assert_int_equal(same.difference.different, 0);
    assert_int_equal(same.first_bit, -1);
    free(a);
    free(b);
    scratch_drop(dir);
}

static void what_cannot_be_read(void **state)
{
    (void)state;
    char *dir = scratch_make(), *a = file_make(dir, "a", 0, 0), *b = file_make(dir, "b", 0, 0);
    assert_int_equal(truncate(b, 4 * (COUNT - 1)), 0);
    tap_spanned shorter = compare(dir, a, b, 4);
    assert_int_equal(shorter.status, TAP_E_TRUNCATED);
    assert_non_null(strstr(shorter.err.message, "ends before the bytes"));
    unlink(b);
    assert_int_equal(compare(dir, a, b, 4).status, TAP_E_NOTFOUND);
    free(a);
    free(b);
    scratch_drop(dir);
}

/* A mapping whose file became shorter: an error too, where a plain read would be the end of the program. */
static void a_mapping_without_its_file(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[600];
    tap_error err;
    int64_t shape = COUNT;
    float *values = calloc(COUNT, sizeof *values);
    tap_tensor tensor = {values, TAP_F32, 1, &shape, NULL};
    snprintf(path, sizeof path, "%s/x.npy", dir);
    assert_int_equal(tap_file_write(path, "npy", &tensor, NULL, 1, false, &err), TAP_OK);
    free(values);
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_sidebytes sides[2];
    tap_query_init(&query);
    tap_record_init(&record);
    assert_int_equal(tap_run_open(path, &run, &err), TAP_OK);
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &record, &err), TAP_OK);
    assert_true(tap__sidebytes_kept(run, &record));
    for (int side = 0; side < 2; side++)
        assert_int_equal(tap__sidebytes_open(&sides[side], run, &record, &err), TAP_OK);
    assert_int_equal(truncate(path, 4096), 0);
    tap_spanned pair = {.side = {&sides[0], &sides[1]}}, *pairs[] = {&pair};
    assert_int_equal(tap__spans_compare(pairs, 1, 2, &err), TAP_OK);
    assert_int_equal(pair.status, TAP_E_IO);
    tap__free(pair.spans);
    for (int side = 0; side < 2; side++)
        tap__sidebytes_close(&sides[side]);
    tap_cursor_close(cursor);
    tap_run_close(run);
    scratch_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(what_cannot_be_read),
        cmocka_unit_test(a_mapping_without_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
