/* record_fixture.c - makes the recordings the tests of the command read: record_fixture SCENARIO DIR.
 * Values are the same on every run; only times and process ids differ. */
#include "tensortap/tensortap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(tap_status status, const tap_error *err)
{
    if (status == TAP_OK)
        return;
    fprintf(stderr, "record_fixture: %s: %s\n", tap_status_name(status), err ? err->message : "");
    exit(1);
}

static tap_recorder *recorder_open(const char *dir, int rank, int ranks, tap_open_mode mode, unsigned keep)
{
    tap_options options;
    tap_recorder *rec;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.rank = rank;
    options.world_size = ranks;
    options.mode = mode;
    options.keep = keep;
    options.ring_bytes = 4 << 20;
    check(tap_recorder_open(&options, &rec, &err), &err);
    return rec;
}

static void recorder_close(tap_recorder *rec)
{
    tap_error err;
    check(tap_recorder_close(rec, &err), &err);
}

static void save_floats(tap_recorder *rec, const char *name, int64_t rows, int64_t columns, double start, double slope,
                        const tap_save_info *info, int bad)
{
    float *values = malloc((size_t)(rows * columns) * sizeof *values);
    int64_t shape[2] = {rows, columns};
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)(start + slope * (double)i);
    if (bad) {
        values[1] = NAN;
        values[2] = INFINITY;
    }
    tap_tensor tensor = {values, TAP_F32, 2, shape, NULL};
    check(tap_save(rec, name, &tensor, info), NULL);
    free(values);
}

static void save_nested(tap_recorder *rec, int64_t step)
{
    float left[2] = {1, 2}, right[3] = {0, -1, 0.5f};
    int64_t two = 2, three = 3;
    tap_value items[2] = {{.type = TAP_VALUE_TENSOR, .tensor = {left, TAP_F32, 1, &two, NULL}},
                          {.type = TAP_VALUE_TENSOR, .tensor = {right, TAP_F32, 1, &three, NULL}}};
    tap_value members[3] = {{.type = TAP_VALUE_LIST, .items = items, .len = 2},
                            {.type = TAP_VALUE_INT, .i = step},
                            {.type = TAP_VALUE_STR, .bytes = "text 文本", .len = strlen("text 文本")}};
    const char *keys[3] = {"pair", "step", "note"};
    tap_value value = {.type = TAP_VALUE_DICT, .items = members, .keys = keys, .len = 3};
    check(tap_save_value(rec, "nested", &value, NULL), NULL);
}

/* Another run of the same program, in which one gradient is wrong and one record is missing. */
static int changed;

static void save_step(tap_recorder *rec, int rank, int64_t step)
{
    tap_save_info placed = TAP_SAVE_INFO(.source = "train.py", .line = 12, .module = "layers.0.attn");
    tap_save_info grad = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .source = "train.py", .line = 12);
    int64_t ids[4] = {3, -1, 9007199254740993, (int64_t)rank}, four = 4;
    double loss = 4.0 / (double)(step + 1);
    tap_tensor id_tensor = {ids, TAP_I64, 1, &four, NULL}, loss_tensor = {&loss, TAP_F64, 0, NULL, NULL};
    save_floats(rec, "layers.0.attn.query", 4, 8, rank, 0.125 * (double)(step + 1), &placed, 0);
    save_floats(rec, "layers.0.attn.query", 4, 8, 0.25, -0.125 * (double)(step + 1), &placed, 0);
    save_floats(rec, "layers.0.attn.query", 4, 8, 0.5, changed && step ? 0.2501 : 0.25, &grad, step == 2 && rank == 1);
    save_floats(rec, "注意力.输出", 2, 3, 0, 1, NULL, 0);
    if (!changed || step < 2)
        check(tap_save(rec, "ids", &id_tensor, NULL), NULL);
    save_nested(rec, step);
    check(tap_save(rec, "loss", &loss_tensor, NULL), NULL);
    check(tap_step(rec), NULL);
}

static void make_small(const char *dir)
{
    for (int rank = 0; rank < 2; rank++) {
        tap_recorder *rec = recorder_open(dir, rank, 2, TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
        for (int64_t step = 0; step < 3; step++)
            save_step(rec, rank, step);
        recorder_close(rec);
    }
}

static void make_changed(const char *dir)
{
    changed = 1;
    make_small(dir);
}

/* A gradient that never comes and a site that never runs. */
static void make_lossy(const char *dir)
{
    tap_recorder *rec = recorder_open(dir, 0, 1, TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    tap_save_info slot = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT);
    float value = 1;
    int64_t one = 1;
    tap_tensor tensor = {&value, TAP_F32, 1, &one, NULL};
    check(tap_recorder_declare(rec, "never.runs", NULL), NULL);
    for (int64_t step = 0; step < 2; step++) {
        save_floats(rec, "x", 2, 2, 0, 1, NULL, 0);
        check(tap_save(rec, "x", &tensor, step == 0 ? &slot : NULL), NULL);
        check(tap_step(rec), NULL);
    }
    tap_error err;
    tap_recorder_close(rec, &err);
}

static void make_stats_only(const char *dir)
{
    tap_recorder *rec = recorder_open(dir, 0, 1, TAP_OPEN_NEW, TAP_KEEP_STATS);
    save_floats(rec, "x", 2, 2, 0, 1, NULL, 0);
    recorder_close(rec);
}

/* Types npy lacks, and names a file system does not like. */
static void make_odd(const char *dir)
{
    tap_recorder *rec = recorder_open(dir, 0, 1, TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    uint16_t bf16[2] = {0x3f80, 0xc000};
    int64_t two = 2;
    tap_tensor tensor = {bf16, TAP_BF16, 1, &two, NULL};
    check(tap_save(rec, "half", &tensor, NULL), NULL);
    save_floats(rec, "../up/and\nover", 1, 2, 0, 1, NULL, 0);
    save_floats(rec, "\033[31mred", 1, 2, 0, 1, NULL, 0);
    char longest[301];
    memset(longest, 'n', 300);
    longest[300] = 0;
    save_floats(rec, longest, 1, 2, 0, 1, NULL, 0);
    recorder_close(rec);
}

/* Texts that would move the cursor, write over lines or turn them around, in every place that keeps a text. */
#define HOSTILE(where) "\033[31m\033]0;" where "\007\r\nFORGED " where " \xe2\x80\x8b\xe2\x80\xae\xe2\x81\xa6\xc2\x9b"
static void make_hostile(const char *dir)
{
    tap_recorder *rec = recorder_open(dir, 0, 1, TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    tap_save_info info = TAP_SAVE_INFO(.source = HOSTILE("source"), .line = 3, .module = HOSTILE("module"),
                                       .graph = HOSTILE("graph"), .node = HOSTILE("node"), .device = HOSTILE("device"),
                                       .placements = HOSTILE("placements"));
    tap_save_info slot = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT, .source = HOSTILE("source"),
                                       .module = HOSTILE("module"));
    float values[2] = {1, changed ? NAN : 2};
    int64_t two = 2;
    tap_value members[2] = {{.type = TAP_VALUE_TENSOR, .tensor = {values, TAP_F32, 1, &two, NULL}},
                            {.type = TAP_VALUE_STR, .bytes = HOSTILE("text"), .len = sizeof HOSTILE("text") - 1,
                             .type_name = HOSTILE("type")}};
    const char *keys[2] = {HOSTILE("key"), "note"};
    tap_value value = {.type = TAP_VALUE_DICT, .items = members, .keys = keys, .len = 2};
    check(tap_recorder_declare(rec, HOSTILE("declared"), NULL), NULL);
    save_floats(rec, HOSTILE("name"), 2, 2, changed, 1, &info, changed);
    save_floats(rec, HOSTILE("other"), 2, 2, changed, 1, &info, 0);
    check(tap_save_value(rec, HOSTILE("nested"), &value, &info), NULL);
    check(tap_save(rec, HOSTILE("slot"), &members[0].tensor, &slot), NULL);
    check(tap_step(rec), NULL);
    tap_error err;
    tap_recorder_close(rec, &err); /* what never came is a loss */
}

static void make_hostile_too(const char *dir)
{
    changed = 1;
    make_hostile(dir);
}

/* Two attempts of one job. */
static void make_attempts(const char *dir)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        tap_recorder *rec =
            recorder_open(dir, 0, 1, attempt ? TAP_OPEN_APPEND : TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
        save_floats(rec, "x", 1, 2, attempt, 1, NULL, 0);
        recorder_close(rec);
    }
}

/* One record, then one more each time a line comes on stdin; ends with it. */
static void make_growing(const char *dir)
{
    tap_recorder *rec = recorder_open(dir, 0, 1, TAP_OPEN_NEW, TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    tap_error err;
    do {
        save_floats(rec, "grows", 1, 2, 0, 1, NULL, 0);
        check(tap_step(rec), NULL);
        check(tap_recorder_flush(rec, 10000, &err), &err);
        puts("saved");
        fflush(stdout);
    } while (getchar() != EOF);
    recorder_close(rec);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(const char *dir);
    } SCENARIOS[] = {{"small", make_small},       {"changed", make_changed}, {"lossy", make_lossy}, {"stats_only", make_stats_only},
                     {"odd", make_odd},           {"attempts", make_attempts}, {"growing", make_growing},
                     {"hostile", make_hostile},   {"hostile_too", make_hostile_too}};
    for (size_t i = 0; argc == 3 && i < sizeof SCENARIOS / sizeof SCENARIOS[0]; i++)
        if (strcmp(SCENARIOS[i].name, argv[1]) == 0) {
            SCENARIOS[i].make(argv[2]);
            return 0;
        }
    fprintf(stderr, "usage: record_fixture small|changed|lossy|stats_only|odd|attempts|growing DIR\n");
    return 2;
}
