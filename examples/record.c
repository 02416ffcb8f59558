/* record.c - records a computation of three steps and reads it back. After `make install`:
 *
 *     cc examples/record.c $(pkg-config --cflags --libs tensortap) -o record && ./record run && tensortap ls run */
#include <tensortap/tensortap.h>

#include <stdio.h>

static int record(const char *dir, tap_error *err)
{
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    tap_recorder *rec;
    if (tap_recorder_open(&options, &rec, err))
        return 1;
    float x[4] = {0};
    int64_t shape[2] = {2, 2};
    tap_tensor tensor = {.data = x, .dtype = TAP_F32, .ndim = 2, .shape = shape};
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 4; i++)
            x[i] += (float)(step + i);
        tap_save(rec, "x", &tensor, NULL); /* safe from kill -9 of this process when it returns */
        tap_step(rec);
    }
    return tap_recorder_close(rec, err) != TAP_OK;
}

static int list(const char *dir, tap_error *err)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record one;
    tap_record_init(&one);
    tap_query_init(&query);
    query.name = "x";
    if (tap_run_open(dir, &run, err))
        return 1;
    tap_status status = tap_run_query(run, &query, &cursor, err);
    if (status == TAP_OK) {
        while ((status = tap_cursor_next(cursor, &one, err)) == TAP_OK)
            printf("step %lld: max %g, norm %g\n", (long long)one.step, one.stats.max.f, one.stats.norm);
        tap_cursor_close(cursor);
    }
    tap_run_close(run);
    return status != TAP_END;
}

int main(int argc, char **argv)
{
    tap_error err = {.status = TAP_OK};
    const char *dir = argc > 1 ? argv[1] : "run";
    if (record(dir, &err) || list(dir, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}
