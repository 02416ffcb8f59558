/* consumer.c - a program of somebody else: built against the installed copy only, as C and as C++, it records three
 * numbers and reads them back. Its one argument is the directory to record to. */
#include <tensortap/tensortap.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what, const tap_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
}

static int record_one(const char *dir, float *values, tap_error *err)
{
    int64_t shape[1] = {3};
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    tap_recorder *rec;
    if (tap_recorder_open(&options, &rec, err) != TAP_OK)
        return fail("open", err);
    tap_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = values;
    tensor.dtype = TAP_F32;
    tensor.ndim = 1;
    tensor.shape = shape;
    if (tap_save(rec, "x", &tensor, NULL) != TAP_OK) {
        tap_recorder_error(rec, err);
        return fail("save", err);
    }
    tap_step(rec);
    return tap_recorder_close(rec, err) == TAP_OK ? 0 : fail("close", err);
}

static int read_back(const char *dir, const float *values, tap_error *err)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_query query;
    tap_query_init(&query);
    query.name = "x";
    if (tap_run_open(dir, &run, err) != TAP_OK)
        return fail("open the run", err);
    if (tap_run_query(run, &query, &cursor, err) != TAP_OK || tap_cursor_next(cursor, &record, err) != TAP_OK)
        return fail("find x", err);
    if (tap_record_map(run, &record, &mapping, err) != TAP_OK)
        return fail("map x", err);
    int same = memcmp(mapping.tensor.data, values, 3 * sizeof *values) == 0 && record.stats.max.f == 3.0;
    tap_mapping_release(&mapping);
    tap_cursor_close(cursor);
    tap_run_close(run);
    if (!same)
        fprintf(stderr, "x came back different\n");
    return same ? 0 : 1;
}

int main(int argc, char **argv)
{
    tap_error err;
    float values[3] = {1, 2, 3};
    if (argc != 2) {
        fprintf(stderr, "usage: consumer DIR\n");
        return 2;
    }
    memset(&err, 0, sizeof err);
    if (record_one(argv[1], values, &err) || read_back(argv[1], values, &err))
        return 1;
    printf("tensortap %s: three numbers recorded and read back\n", tap_version());
    return 0;
}
