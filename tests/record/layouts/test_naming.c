/* test_naming.c - names made safe for paths, and the file names of every layout. */
#include "record/layout_test.h"

#include <time.h>

/* -------------------------------------------------------------------------------------------------------- escaping */

static char *escaped(const char *name, size_t len, size_t max)
{
    tap_strbuf out = TAP_STRBUF_INIT;
    tap__strbuf_str(&out, "");
    tap__name_escape(&out, name, len, max);
    return out.text;
}

static void escape_table(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
    } CASES[] = {
        {"", ""}, {"x", "x"}, {"a.b", "a.b"}, {".", "%2E"}, {"..", "%2E%2E"}, {"...", "..."}, {"..a", "..a"},
        {"a/b", "a%2Fb"}, {"/", "%2F"}, {"../../etc", "..%2F..%2Fetc"}, {"a\nb\x7f", "a%0Ab%7F"}, {"100%", "100%"},
        {"%zz", "%zz"}, {"%2F", "%252F"}, {"%%41", "%%2541"}, {"层 1+é", "层 1+é"}, {"a\xff\xc3", "a%FF%C3"},
        {"\xed\xa0\x80", "%ED%A0%80"}, {"C:\\x*?\"<>|", "C:\\x*?\"<>|"}, {"~", "~"},
        {".weight", ".weight"}, {".tensortap", "%2Etensortap"}, {".tensortapes", ".tensortapes"}, {"a.tensortap", "a.tensortap"},
        {".tap-0.tmp", "%2Etap-0.tmp"}, {"a.INPUT", "a%2EINPUT"}, {"a.OUTPUT.0", "a%2EOUTPUT.0"}, {"a.INPUTS", "a.INPUTS"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char *file = escaped(CASES[i].name, strlen(CASES[i].name), 255);
        assert_string_equal(file, CASES[i].file);
        tap_strbuf back = TAP_STRBUF_INIT;
        tap__strbuf_str(&back, "");
        tap__name_unescape(&back, file, strlen(file));
        assert_string_equal(back.text, CASES[i].name);
        tap__strbuf_free(&back);
        tap__free(file);
    }
    char *nul = escaped("a\0b", 3, 255);
    assert_string_equal(nul, "a%00b");
    tap__free(nul);
}

static void long_names_are_cut_and_stay_different(void **state)
{
    (void)state;
    static char first[10000], second[10000];
    memset(first, 'n', sizeof first);
    memset(second, 'n', sizeof second);
    second[9999] = 'm';
    char *a = escaped(first, sizeof first, 255), *b = escaped(second, sizeof second, 255);
    assert_int_equal(strlen(a), 255);
    assert_int_equal(a[255 - 17], '~');
    assert_string_not_equal(a, b);
    tap__free(a);
    tap__free(b);
    /* a cut never leaves half a character */
    for (size_t i = 0; i + 3 <= sizeof first; i += 3)
        memcpy(first + i, "层", 3);
    for (size_t max = 20; max < 60; max++) {
        a = escaped(first, 9999, max);
        assert_true(strlen(a) <= max && strlen(a) + 3 > max);
        for (size_t i = 0, used; a[i]; i += used) {
            used = tap__utf8_char(a + i, strlen(a + i));
            assert_true(used > 0);
        }
        tap__free(a);
    }
    /* just fits: not cut */
    memset(first, 'n', 255);
    a = escaped(first, 255, 255);
    assert_int_equal(strlen(a), 255);
    assert_null(strchr(a, '~'));
    tap__free(a);
}

/* ----------------------------------------------------------------------------------------------------------- names */

typedef struct fixture {
    tap_layout_options options;
    tap_namer *namer;
    tap_strbuf out;
    tap_error err;
    tap_tensor tensor;
    float data[4];
    int64_t shape[1];
    tap_save_info info;
} fixture;

static void start(fixture *f, const char *layout)
{
    if (!f->options.dir)
        f->options.dir = opened("/run");
    if (!f->options.world_size)
        f->options.world_size = 1;
    f->options.keep = f->options.keep ? f->options.keep : (TAP_KEEP_STATS | TAP_KEEP_TENSOR);
    f->options.pid = f->options.pid ? f->options.pid : 77;
    f->shape[0] = 4;
    f->tensor = (tap_tensor){.data = f->data, .dtype = TAP_F32, .ndim = 1, .shape = f->shape};
    f->out = (tap_strbuf)TAP_STRBUF_INIT;
    assert_int_equal(tap__namer_create(tap__layout_find(layout), &f->options, &f->namer, NULL), TAP_OK);
}

static void stop(fixture *f)
{
    tap__namer_free(f->namer);
    tap__strbuf_free(&f->out);
}

static tap_leaf leaf_of(fixture *f, const char *name)
{
    return (tap_leaf){.name = name, .tensor = &f->tensor, .info = &f->info};
}

static void set_path(tap_leaf *leaf, const char *path)
{
    leaf->path = path;
    leaf->path_len = strlen(path);
}

static const char *name_leaf(fixture *f, const tap_leaf *leaf)
{
    f->err.message[0] = 0;
    if (tap__namer_name(f->namer, leaf, &f->out, &f->err) != TAP_OK)
        return f->err.message;
    return f->out.text ? f->out.text : "";
}

static const char *name(fixture *f, const char *text)
{
    tap_leaf leaf = leaf_of(f, text);
    return name_leaf(f, &leaf);
}

static void torch_npu(void **state)
{
    (void)state;
    fixture f = {.options = {.device_index = 3}};
    start(&f, "torch_npu");
    assert_string_equal(name(&f, "d/x.pt"), "d/x_device_3.pt");
    assert_string_equal(name(&f, "d/x.pt"), "d/x_device_3_1.pt");
    assert_string_equal(name(&f, "./d//./x.pt"), "d/x_device_3_2.pt");
    assert_string_equal(name(&f, "d/e/../x"), "d/x_device_3_3.pt");
    assert_string_equal(name(&f, "/run/d/x.pt"), "d/x_device_3_4.pt");
    assert_string_equal(name(&f, "d/x.bin"), "d/x_device_3.bin");
    assert_string_equal(name(&f, "x"), "x_device_3.pt");
    assert_string_equal(name(&f, ".pt"), ".pt_device_3.pt");
    assert_string_equal(name(&f, "a%2Fb/c\n.pt"), "a%252Fb/c%0A_device_3.pt");
    tap_leaf over = leaf_of(&f, "o.pt");
    over.flags = TAP_SAVE_OVERWRITE;
    assert_string_equal(name_leaf(&f, &over), "o_device_3.pt");
    assert_string_equal(name_leaf(&f, &over), "o_device_3.pt");
    assert_string_equal(name(&f, "o.pt"), "o_device_3_2.pt"); /* the newest kept one is not overwritten */
    static const char *const BAD[] = {"../x.pt", "d/../../x.pt", "/etc/x.pt", "/runner/x.pt", "..", "d/..", "d/.", "d/",
                                      "x.npy", "d/x.safetensors"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        tap_leaf leaf = leaf_of(&f, BAD[i]);
        assert_int_equal(tap__namer_name(f.namer, &leaf, &f.out, &f.err), TAP_E_INVALID);
    }
    assert_non_null(strstr(name(&f, "x.npy"), ".pt or .bin"));
    assert_non_null(strstr(name(&f, "../x.pt"), "below it"));
    stop(&f);
}

static void torch_npu_default_names(void **state)
{
    (void)state;
    fixture f = {.options = {.device_index = 0}};
    start(&f, "torch_npu");
    char seen[64][64], before[16], after[16];
    time_t now = time(NULL);
    struct tm local;
    strftime(before, sizeof before, "%Y%m%d%H%M%S", localtime_r(&now, &local));
    for (int i = 0; i < 64; i++) {
        snprintf(seen[i], sizeof seen[i], "%s", name(&f, ""));
        assert_int_equal(strlen(seen[i]), strlen("tensor_20260101000000123_device_0.pt"));
        assert_int_equal(strncmp(seen[i], "tensor_", 7), 0);
        assert_string_equal(seen[i] + 24, "_device_0.pt");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(seen[i], seen[j]);
    }
    now = time(NULL) + 1; /* names of one millisecond count on into the next */
    strftime(after, sizeof after, "%Y%m%d%H%M%S", localtime_r(&now, &local));
    assert_true(strncmp(seen[0] + 7, before, 14) >= 0 && strncmp(seen[63] + 7, after, 14) <= 0);
    stop(&f);
}

static void processes_never_share_a_file(void **state)
{
    (void)state;
    fixture nodes = {.options = {.device_index = 1, .rank = 9, .world_size = 16, .several_nodes = true}};
    start(&nodes, "torch_npu");
    assert_string_equal(name(&nodes, "x.pt"), "x_device_1_rank9.pt");
    assert_string_equal(name(&nodes, "x.pt"), "x_device_1_rank9_1.pt");
    stop(&nodes);
    fixture child = {.options = {.child = 55, .rank = 2, .world_size = 4, .distributed = true},
                     .info = {.stamp_us = 1760685131190258}};
    static const struct {
        const char *layout, *file;
    } CASES[] = {
        {"torch_npu", "x_device_0_child55.pt"},
        {"troubleshooter", "0_x_rank2_child55.npy"},
        {"mindspore", "step0/rank2_child55/x_float32_0.npy"},
        {"msprobe", "step0/rank2_child55/dump_tensor_data/x.0.debug.pt"},
        {"torchair", "worldsize4_global_rank2_child55/graph_0/0/x.OUTPUT.0.20251017071211190258.npy"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        start(&child, CASES[i].layout);
        assert_string_equal(name(&child, "x"), CASES[i].file);
        stop(&child);
    }
}

static void torchair(void **state)
{
    (void)state;
    fixture f = {.options = {.rank = 1, .world_size = 2}};
    start(&f, "torchair");
    /* the stamp of the documents' example, 2025-10-17 07:12:11.190258 UTC */
    f.info = (tap_save_info)TAP_SAVE_INFO(.node = "add_1-aten.add.Tensor", .graph_id = 1, .argument = "0",
                             .stamp_us = 1760685131190258);
    tap_leaf leaf = leaf_of(&f, "ignored");
    leaf.kind = TAP_KIND_INPUT;
    leaf.step = 7;
    assert_string_equal(name_leaf(&f, &leaf),
                        "worldsize2_global_rank1/graph_1/7/add_1-aten.add.Tensor.INPUT.0.20251017071211190258.npy");
    leaf.kind = TAP_KIND_OUTPUT;
    f.info.argument = "1.2";
    assert_string_equal(name_leaf(&f, &leaf),
                        "worldsize2_global_rank1/graph_1/7/add_1-aten.add.Tensor.OUTPUT.1.2.20251017071211190258.npy");
    f.info.argument = "out/../..";
    f.info.node = NULL;
    leaf.name = "sub/x";
    assert_string_equal(name_leaf(&f, &leaf),
                        "worldsize2_global_rank1/graph_1/7/sub%2Fx.OUTPUT.out%2F..%2F...20251017071211190258.npy");
    leaf.value_type = TAP_VALUE_NONE;
    assert_string_equal(name_leaf(&f, &leaf), "");
    leaf.value_type = TAP_VALUE_INT;
    assert_string_not_equal(name_leaf(&f, &leaf), "");
    stop(&f);
}

static void mindspore(void **state)
{
    (void)state;
    fixture f = {.options = {.rank = 0}};
    start(&f, "mindspore");
    tap_leaf x = leaf_of(&f, "x"), grad = leaf_of(&f, "x"), nested = leaf_of(&f, "x");
    assert_string_equal(name_leaf(&f, &x), "step0/rank0/x_float32_0.npy");
    assert_string_equal(name_leaf(&f, &x), "step0/rank0/x_float32_1.npy");
    grad.kind = TAP_KIND_GRAD;
    assert_string_equal(name_leaf(&f, &grad), "step0/rank0/x_grad_float32_0.npy");
    assert_string_equal(name(&f, "x_grad"), "step0/rank0/x_grad_float32_1.npy"); /* not over the gradient */
    x.step = 1;
    assert_string_equal(name_leaf(&f, &x), "step1/rank0/x_float32_2.npy");
    set_path(&nested, "kkey\x1fi0");
    assert_string_equal(name_leaf(&f, &nested), "step0/rank0/x.key.0_float32_0.npy");
    f.tensor.dtype = TAP_BF16;
    assert_string_equal(name_leaf(&f, &nested), "step0/rank0/x.key.0_float32_1.npy");
    f.tensor.dtype = TAP_I64;
    assert_string_equal(name(&f, "../y"), "step0/rank0/..%2Fy_int64_0.npy");
    stop(&f);
}

static void troubleshooter(void **state)
{
    (void)state;
    fixture f = {.options = {.rank = 0}};
    start(&f, "troubleshooter");
    f.info.suffix = "backward";
    assert_string_equal(name(&f, "torch_ts_save/dense"), "torch_ts_save/0_dense_backward.npy");
    f.info.suffix = NULL;
    assert_string_equal(name(&f, "./torch_ts_save/dense.npy"), "torch_ts_save/1_dense.npy");
    tap_leaf nested = leaf_of(&f, "d/numpy");
    set_path(&nested, "kd1\x1ft1");
    f.info.suffix = "a/b";
    assert_string_equal(name_leaf(&f, &nested), "d/2_numpy.d1.1_a%2Fb.npy");
    f.info.suffix = NULL;
    nested.value_type = TAP_VALUE_NONE;
    assert_string_equal(name_leaf(&f, &nested), ""); /* uses no id */
    assert_string_equal(name(&f, "x.npy.npy"), "3_x.npy.npy");
    assert_non_null(strstr(name(&f, "../x"), "outside"));
    stop(&f);
}

static void msprobe(void **state)
{
    (void)state;
    fixture f = {.options = {.rank = 4, .distributed = true}};
    start(&f, "msprobe");
    tap_leaf leaf = leaf_of(&f, "x2");
    leaf.call = 3;
    leaf.step = 12;
    assert_string_equal(name_leaf(&f, &leaf), "step12/rank4/dump_tensor_data/x2.3.debug.pt");
    leaf.kind = TAP_KIND_GRAD;
    set_path(&leaf, "kkey2\x1fi0");
    assert_string_equal(name_leaf(&f, &leaf), "step12/rank4/dump_tensor_data/x2_grad.3.debug.key2.0.pt");
    leaf.flags = TAP_SAVE_SLOT;
    assert_string_equal(name_leaf(&f, &leaf), "");
    leaf.flags = 0;
    f.shape[0] = 0;
    assert_string_equal(name_leaf(&f, &leaf), "");
    stop(&f);
    fixture alone = {.options = {.pid = 123, .framework = "mindspore"}};
    start(&alone, "msprobe");
    assert_string_equal(name(&alone, "a b/+"), "step0/proc123/dump_tensor_data/a b%2F+.0.debug.npy");
    stop(&alone);
    fixture stats = {.options = {.keep = TAP_KEEP_STATS}};
    start(&stats, "msprobe");
    assert_string_equal(name(&stats, "x"), "");
    stop(&stats);
}

static void msprobe_names_that_meet(void **state)
{
    (void)state;
    fixture f = {.options = {.pid = 1}};
    start(&f, "msprobe");
    tap_leaf slot = leaf_of(&f, "x"), variable = leaf_of(&f, "x_grad"), grad = leaf_of(&f, "x");
    slot.kind = grad.kind = TAP_KIND_GRAD;
    slot.flags = TAP_SAVE_SLOT;
    name_leaf(&f, &slot);
    assert_string_equal(name_leaf(&f, &variable), "step0/proc1/dump_tensor_data/x_grad~1.0.debug.pt");
    assert_string_equal(name_leaf(&f, &grad), "step0/proc1/dump_tensor_data/x_grad.0.debug.pt");
    assert_string_equal(name(&f, "y_grad"), "step0/proc1/dump_tensor_data/y_grad.0.debug.pt");
    /* {"a.b": ..., "a": {"b": ...}} */
    tap_leaf first = leaf_of(&f, "s"), second = leaf_of(&f, "s");
    set_path(&first, "ka.b");
    set_path(&second, "ka\x1fkb");
    assert_string_equal(name_leaf(&f, &first), "step0/proc1/dump_tensor_data/s.0.debug.a.b.pt");
    assert_string_equal(name_leaf(&f, &second), "step0/proc1/dump_tensor_data/s.0.debug.a.b~1.pt");
    assert_string_equal(name_leaf(&f, &first), "step0/proc1/dump_tensor_data/s.0.debug.a.b.pt");
    stop(&f);
}

/* Whatever the name: one component stays within 255 bytes and the path inside the directory. */
static void hostile_names_stay_inside(void **state)
{
    (void)state;
    static char longest[10001], slashes[10001], long_path[6001] = "k";
    memset(longest, 'x', 10000);
    for (int i = 0; i < 9999; i++)
        slashes[i] = i % 2 ? '/' : 'a';
    slashes[9999] = 'b';
    memset(long_path + 1, 'p', 5999);
    const char *names[] = {longest, slashes, "..", "../..", "/", "//", "%", "%2e%2e/", "a/../../b", "\x01\x02", "\xff\xfe",
                           " ", "-rf", ".tap-00000000-0123456789abcdef.tmp"};
    for (size_t i = 0; tap__layout_at(i); i++) {
        if (tap__layout_at(i)->native)
            continue;
        fixture f = {.options = {.rank = 1, .world_size = 2, .distributed = true}};
        start(&f, tap__layout_at(i)->name);
        for (size_t k = 0; k < 2 * sizeof names / sizeof names[0]; k++) {
            tap_leaf leaf = leaf_of(&f, names[k / 2]);
            if (k % 2)
                set_path(&leaf, long_path);
            if (tap__namer_name(f.namer, &leaf, &f.out, &f.err) != TAP_OK) {
                assert_int_equal(f.err.status, TAP_E_INVALID);
                continue;
            }
            assert_true(f.out.len > 0 && f.out.len < 3000);
            assert_int_not_equal(f.out.text[0], '/');
            for (char *part = strtok(f.out.text, "/"); part; part = strtok(NULL, "/")) {
                assert_true(strlen(part) <= 255);
                assert_string_not_equal(part, "..");
                assert_string_not_equal(part, ".");
            }
        }
        stop(&f);
    }
}

/* 100,000 names take 100,000 counters and no more. */
static void many_names(void **state)
{
    (void)state;
    fixture f = {.options = {.rank = 0}};
    start(&f, "mindspore");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 100000; i++) {
            char text[32], want[64];
            snprintf(text, sizeof text, "n%d", i);
            snprintf(want, sizeof want, "step0/rank0/n%d_float32_%d.npy", i, round);
            if (strcmp(name(&f, text), want) != 0)
                fail_msg("%s instead of %s", f.out.text, want);
        }
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escape_table),
        cmocka_unit_test(long_names_are_cut_and_stay_different),
        cmocka_unit_test(torch_npu),
        cmocka_unit_test(torch_npu_default_names),
        cmocka_unit_test(processes_never_share_a_file),
        cmocka_unit_test(torchair),
        cmocka_unit_test(mindspore),
        cmocka_unit_test(troubleshooter),
        cmocka_unit_test(msprobe),
        cmocka_unit_test(msprobe_names_that_meet),
        cmocka_unit_test(hostile_names_stay_inside),
        cmocka_unit_test(many_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
