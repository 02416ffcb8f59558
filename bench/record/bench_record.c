/* bench_record.c - what recording costs the caller and what reaches the disk, each beside its limit in the same run.
 *
 *     bench_record DIR LINE...        one line of output per measurement: "name value unit"
 *
 * LINE is one of small, off, big, sustained, records, list, or nothing for all. The Python side (table.py) adds numpy,
 * torch and mindstudio-probe and prints the table. */
#include "tensortap/tensortap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

static const char *root;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void put(const char *name, double value, const char *unit)
{
    printf("%s %.6g %s\n", name, value, unit);
    fflush(stdout);
}

static tap_recorder *open_in(const char *name, uint64_t ring, unsigned keep, const char *layout)
{
    static char dir[4096];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    options.ring_bytes = ring;
    options.layout = layout;
    if (keep)
        options.keep = keep;
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK) {
        fprintf(stderr, "bench_record: %s\n", err.message);
        exit(1);
    }
    return rec;
}

static void close_it(tap_recorder *rec)
{
    tap_error err;
    if (tap_recorder_close(rec, &err) != TAP_OK) {
        fprintf(stderr, "bench_record: %s\n", err.message);
        exit(1);
    }
}

static float floats[256];
static int64_t floats_shape[1] = {256};
static const tap_tensor small_tensor = {floats, TAP_F32, 1, floats_shape, NULL};

/* 256 floats with tensor, the ring with room: the best of many bursts that fit it. */
static void bench_small(void)
{
    tap_recorder *rec = open_in("small", 256 * MIB, 0, "native");
    double best = 1;
    for (int round = 0; round < 30; round++) {
        tap_recorder_flush(rec, -1, NULL);
        double start = seconds();
        for (int i = 0; i < 5000; i++)
            tap_save(rec, "layer.0.attention.output", &small_tensor, NULL);
        double each = (seconds() - start) / 5000;
        best = each < best ? each : best;
        tap_step(rec);
    }
    close_it(rec);
    put("small", best * 1e6, "us");
}

static void bench_off(void)
{
    double best = 1;
    for (int round = 0; round < 10; round++) {
        double start = seconds();
        for (int i = 0; i < 10000000; i++) {
            tap_recorder *rec = NULL;
            __asm__ volatile("" : "+r"(rec)); /* the call is made each time */
            tap_save(rec, "x", &small_tensor, NULL);
        }
        double each = (seconds() - start) / 10000000;
        best = each < best ? each : best;
    }
    put("off", best * 1e9, "ns");
}

/* 64 MiB into a ring with room: how long the caller is blocked, beside memcpy of the same bytes into memory as warm. */
static void bench_big(void)
{
    size_t bytes = 64 * MIB;
    float *data = malloc(bytes), *copy = malloc(bytes);
    for (size_t i = 0; i < bytes / 4; i++)
        data[i] = (float)(i % 1000) * 0.25f;
    memset(copy, 1, bytes);
    int64_t shape[2] = {4096, 4096};
    tap_tensor tensor = {data, TAP_F32, 2, shape, NULL};
    tap_recorder *rec = open_in("big", 1024 * MIB, 0, "native");
    double best_save = 1e9, best_copy = 1e9;
    for (int round = 0; round < 12; round++) {
        double start = seconds();
        memcpy(copy, data, bytes);
        double took = seconds() - start;
        best_copy = took < best_copy ? took : best_copy;
        start = seconds();
        tap_save(rec, "activations", &tensor, NULL);
        took = seconds() - start;
        best_save = took < best_save ? took : best_save;
        tap_recorder_flush(rec, -1, NULL);
    }
    close_it(rec);
    put("big_memcpy", best_copy * 1e3, "ms");
    put("big_save", best_save * 1e3, "ms");
    free(data);
    free(copy);
}

/* dd oflag=direct bs=4M without dd: whole aligned blocks past the page cache. */
static double direct_write(const char *path, const char *data, size_t block, uint64_t total)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0640);
    if (fd < 0)
        return 0;
    double start = seconds();
    for (uint64_t at = 0; at < total; at += block)
        if (pwrite(fd, data + at % (64 * MIB), block, (off_t)at) != (ssize_t)block)
            return 0;
    fdatasync(fd);
    double took = seconds() - start;
    close(fd);
    unlink(path);
    return (double)total / took;
}

static double recorder_write(const char *name, const tap_tensor *tensor, uint64_t total)
{
    static char dir[4096];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    options.durability = TAP_DURABLE_FLUSH;
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK) {
        fprintf(stderr, "bench_record: %s\n", err.message);
        exit(1);
    }
    double start = seconds();
    for (uint64_t at = 0; at < total; at += 64 * MIB)
        tap_save(rec, "activations", tensor, NULL);
    tap_recorder_flush(rec, -1, NULL);
    double took = seconds() - start;
    close_it(rec);
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0)
        fprintf(stderr, "bench_record: cannot remove %s\n", dir);
    return (double)total / took;
}

/* To the disk and synchronised, 64 MiB at a time; direct writes of the same size before and after each round. */
static void bench_sustained(uint64_t total)
{
    char *data;
    if (posix_memalign((void **)&data, 4096, 64 * MIB))
        exit(1);
    for (size_t i = 0; i < 64 * MIB / 4; i++)
        ((float *)(void *)data)[i] = (float)i;
    int64_t shape[2] = {4096, 4096};
    tap_tensor tensor = {data, TAP_F32, 2, shape, NULL};
    char path[4096];
    snprintf(path, sizeof path, "%s/direct", root);
    double direct = 0, recorded = 0;
    for (int round = 0; round < 2; round++) {
        double rate = direct_write(path, data, 4 * MIB, total);
        direct = rate > direct ? rate : direct;
        rate = recorder_write("sustained", &tensor, total);
        recorded = rate > recorded ? rate : recorded;
    }
    put("sustained_direct", direct / 1e9, "GB/s");
    put("sustained_record", recorded / 1e9, "GB/s");
    free(data);
}

/* Records of 256 floats as fast as they go, until all are in their files and the index is in place. */
static void bench_records(uint64_t count)
{
    tap_recorder *rec = open_in("records", 0, 0, "native");
    char names[100][32];
    for (int i = 0; i < 100; i++)
        snprintf(names[i], sizeof names[i], "layer.%d.output", i);
    double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        tap_save(rec, names[i % 100], &small_tensor, NULL);
        if (i % 1000 == 999)
            tap_step(rec);
    }
    close_it(rec);
    put("records", (double)count / (seconds() - start), "1/s");
}

/* Opening and walking the recording that bench_records left, and one record of it by name and step. */
static void bench_list(void)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/records", root);
    double best_list = 1e9, best_find = 1e9;
    uint64_t seen = 0;
    for (int round = 0; round < 3; round++) {
        tap_run *run;
        tap_cursor *cursor;
        tap_query query;
        tap_record record;
        tap_record_init(&record);
        tap_error err;
        double start = seconds();
        tap_query_init(&query);
        if (tap_run_open(dir, &run, &err) || tap_run_query(run, &query, &cursor, &err)) {
            fprintf(stderr, "bench_record: %s\n", err.message);
            exit(1);
        }
        for (seen = 0; tap_cursor_next(cursor, &record, &err) == TAP_OK;)
            seen++;
        double took = seconds() - start;
        best_list = took < best_list ? took : best_list;
        tap_cursor_close(cursor);
        tap_run_close(run);
        start = seconds();
        query.name = "layer.42.output";
        query.steps = "321";
        uint64_t found = 0;
        if (tap_run_open(dir, &run, &err) || tap_run_query(run, &query, &cursor, &err))
            exit(1);
        while (tap_cursor_next(cursor, &record, &err) == TAP_OK)
            found++;
        took = seconds() - start;
        if (found != 10)
            fprintf(stderr, "bench_record: the query found %llu records\n", (unsigned long long)found);
        best_find = took < best_find ? took : best_find;
        tap_cursor_close(cursor);
        tap_run_close(run);
    }
    put("list_records", (double)seen, "");
    put("list", best_list, "s");
    put("find", best_find * 1e3, "ms");
}

/* A save in a layout of other tools: the file is in place when it returns. */
static void bench_compat(void)
{
    tap_recorder *rec = open_in("compat", 8 * MIB, 0, "troubleshooter");
    double best = 1;
    for (int round = 0; round < 10; round++) {
        double start = seconds();
        for (int i = 0; i < 500; i++)
            tap_save(rec, "x", &small_tensor, NULL);
        double each = (seconds() - start) / 500;
        best = each < best ? each : best;
    }
    close_it(rec);
    put("compat", best * 1e6, "us");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "bench_record DIR [small|off|big|sustained|records|list|compat ...]\n");
        return 2;
    }
    root = argv[1];
    for (int i = 0; i < 256; i++)
        floats[i] = (float)i * 0.5f;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "small")) bench_small();
        else if (!strcmp(argv[i], "off")) bench_off();
        else if (!strcmp(argv[i], "big")) bench_big();
        else if (!strcmp(argv[i], "sustained")) bench_sustained(8192 * MIB);
        else if (!strcmp(argv[i], "sustained-short")) bench_sustained(1024 * MIB);
        else if (!strcmp(argv[i], "records")) bench_records(1000000);
        else if (!strcmp(argv[i], "list")) bench_list();
        else if (!strcmp(argv[i], "compat")) bench_compat();
        else return 2;
    }
    return 0;
}
