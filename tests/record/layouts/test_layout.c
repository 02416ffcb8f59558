/* test_layout.c - the table of layouts, and every layout written and read back. With the argument "drive" the program is
 * a small recorder that does what JSON lines on stdin say, and "read" lists a directory as JSON lines: that is how
 * tests/python/test_layout_*.py compare what is written with torch, numpy and Python's json. */
#include "record/layout_test.h"

#include <json-c/json.h>

#include "base/json.h"

/* ------------------------------------------------------------------------------------------------------- recording */

typedef struct machine {
    const tap_layout *layout;
    tap_layout_options options;
    tap_namer *namer;
    tap_collector *collector;
    tap_strbuf file;
    tap_error err;
} machine;

static tap_status machine_open(machine *m, const char *layout)
{
    m->layout = tap__layout_find(layout);
    tap_status status = tap__namer_create(m->layout, &m->options, &m->namer, &m->err);
    if (status == TAP_OK && m->layout->collect_open)
        status = m->layout->collect_open(&m->options, &m->collector, &m->err);
    return status;
}

static void machine_close(machine *m)
{
    if (m->collector)
        m->layout->collect_close(m->collector);
    tap__namer_free(m->namer);
    tap__strbuf_free(&m->file);
}

/* What the recorder and its writer do with one leaf. */
static tap_status machine_save(machine *m, test_entry *from, const tap_save_info *info)
{
    tap_leaf leaf = {.name = from->name, .path = from->path, .path_len = from->path ? strlen(from->path) : 0,
        .tensor = from->tensor, .value_type = from->value_type, .kind = from->kind, .flags = from->flags,
        .step = from->step, .call = from->call, .info = info};
    tap_status status = tap__namer_name(m->namer, &leaf, &m->file, &m->err);
    if (status == TAP_OK && m->file.len) {
        from->file = m->file.text;
        status = tap__layout_write_file(m->layout, m->options.dir, m->file.text, from->tensor, &m->err);
    }
    if (status != TAP_OK || !m->collector)
        return status;
    const void *payload;
    tap_entry *entry = make_entry(from, &payload);
    status = m->layout->collect(m->collector, entry, payload, &m->err);
    free(entry);
    return status;
}

/* ---------------------------------------------------------------------------------------------------- the drive mode */

static const char *text_of(json_object *line, const char *key)
{
    json_object *value;
    return json_object_object_get_ex(line, key, &value) ? json_object_get_string(value) : NULL;
}

static int64_t int_of(json_object *line, const char *key)
{
    json_object *value;
    return json_object_object_get_ex(line, key, &value) ? json_object_get_int64(value) : 0;
}

static size_t bytes_of(json_object *line, unsigned char **out)
{
    const char *hex = text_of(line, "hex");
    size_t len = hex ? strlen(hex) / 2 : 0;
    *out = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        (*out)[i] = (unsigned char)strtoul((char[]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
    return len;
}

static tap_status drive_save(machine *m, json_object *line)
{
    unsigned char *bytes;
    int64_t shape[TAP_MAX_NDIM];
    json_object *dims;
    tap_tensor tensor = {.shape = shape};
    test_entry entry = {.name = text_of(line, "name"), .path = text_of(line, "path"),
        .type_name = text_of(line, "type_name"), .placements = text_of(line, "placements"),
        .kind = (tap_kind)int_of(line, "kind"), .value_type = (tap_value_type)int_of(line, "value_type"),
        .flags = (unsigned)int_of(line, "flags"), .step = int_of(line, "step"), .call = (uint32_t)int_of(line, "call"),
        .no_payload = int_of(line, "no_payload")};
    tap_save_info info = TAP_SAVE_INFO(.suffix = text_of(line, "suffix"), .node = text_of(line, "node"),
        .argument = text_of(line, "argument"), .graph_id = int_of(line, "graph_id"),
        .stamp_us = int_of(line, "stamp_us"));
    entry.len = bytes_of(line, &bytes);
    entry.bytes = bytes;
    const char *dtype = text_of(line, "dtype");
    if (dtype && json_object_object_get_ex(line, "shape", &dims)) {
        tensor.ndim = (int32_t)json_object_array_length(dims);
        for (int32_t i = 0; i < tensor.ndim; i++)
            shape[i] = json_object_get_int64(json_object_array_get_idx(dims, (size_t)i));
        tensor.dtype = tap_dtype_find(dtype);
        tensor.data = entry.value_type == TAP_VALUE_META ? NULL : bytes;
        entry.tensor = &tensor;
        entry.len = 0;
    }
    tap_status status = machine_save(m, &entry, &info);
    free(bytes);
    return status;
}

static tap_status drive_line(machine *m, json_object *line)
{
    const char *op = text_of(line, "op");
    if (strcmp(op, "open") == 0) {
        m->options = (tap_layout_options){.dir = opened(text_of(line, "dir")), .dir_shown = text_of(line, "dir_shown"),
            .rank = (int32_t)int_of(line, "rank"), .world_size = 1, .pid = (int32_t)int_of(line, "pid"),
            .distributed = int_of(line, "distributed"), .checksum = (tap_checksum)int_of(line, "checksum"),
            .keep = (unsigned)int_of(line, "keep"), .framework = text_of(line, "framework")};
        return machine_open(m, text_of(line, "layout"));
    }
    if (strcmp(op, "save") == 0)
        return drive_save(m, line);
    if (strcmp(op, "step") == 0) {
        const void *payload;
        tap_entry *entry = make_entry(&(test_entry){.type = TAP_ENTRY_STEP, .step = int_of(line, "step")}, &payload);
        tap_status status = m->layout->collect(m->collector, entry, NULL, &m->err);
        free(entry);
        return status;
    }
    return m->layout->collect_flush(m->collector, (uint64_t)int_of(line, "now"), true, &m->err);
}

static int drive(void)
{
    machine m = {.layout = NULL};
    char *text = NULL;
    size_t cap = 0;
    json_object *first = NULL;
    int failed = 0;
    while (getline(&text, &cap, stdin) > 0) {
        json_object *line = json_tokener_parse(text);
        if (!line || drive_line(&m, line) != TAP_OK) {
            fprintf(stderr, "%s\n", line ? m.err.message : text);
            failed = 1;
        }
        if (!first)
            first = line; /* the options point into it */
        else
            json_object_put(line);
    }
    machine_close(&m);
    json_object_put(first);
    free(text);
    return failed;
}

static tap_status print_record(void *user, const tap_record *r, const tap_facts *facts)
{
    (void)facts;
    (void)user;
    tap_strbuf out = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &out, -1);
    tap__json_open(&json, '{');
#define FIELD(name, kind) (tap__json_key(&json, #name), tap__json_##kind(&json, r->name))
    FIELD(seq, uint), FIELD(rank, int), FIELD(child, int), FIELD(step, int), FIELD(name, str), FIELD(path, str);
    FIELD(call, uint), FIELD(kind, int), FIELD(value_type, int), FIELD(flags, uint), FIELD(state, int);
    FIELD(file, str), FIELD(payload_bytes, uint), FIELD(has_stats, bool), FIELD(graph, str), FIELD(node, str);
    FIELD(time_ns, uint), FIELD(type_name, str);
#undef FIELD
    const tap_dtype_info *info = tap_dtype_describe(r->dtype);
    tap__json_key(&json, "dtype");
    tap__json_str(&json, info ? info->name : "");
    tap__json_key(&json, "shape");
    tap__json_open(&json, '[');
    for (int32_t i = 0; i < r->ndim; i++)
        tap__json_int(&json, r->shape[i]);
    tap__json_close(&json, ']');
    if (r->has_stats) {
        char kind = info ? info->kind : 'F';
        for (int max = 0; max < 2; max++) {
            tap_number n = max ? r->stats.max : r->stats.min;
            tap__json_key(&json, max ? "max" : "min");
            if (kind == 'I')
                tap__json_int(&json, n.i);
            else if (kind == 'U' || kind == 'B')
                tap__json_uint(&json, n.u);
            else
                tap__json_float(&json, n.f);
        }
        tap__json_key(&json, "mean");
        tap__json_float(&json, r->stats.mean);
        tap__json_key(&json, "norm");
        tap__json_float(&json, r->stats.norm);
    }
    tap__json_close(&json, '}');
    puts(out.text);
    tap__strbuf_free(&out);
    return TAP_OK;
}

/* Prints the layout that detects path, then its records. */
static int read_dir(const char *path)
{
    struct stat st;
    const char *only = NULL;
    tap_dir *dir = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        dir = opened(path);
    else
        tap__dir_of_file(path, false, &dir, &only, NULL);
    for (size_t i = 0; tap__layout_at(i); i++) {
        const tap_layout *layout = tap__layout_at(i);
        if (!layout->detect || !layout->detect(dir, only))
            continue;
        puts(layout->name);
        tap_error err;
        if (layout->read(dir, only, print_record, NULL, &err) == TAP_OK)
            return 0;
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    fprintf(stderr, "no layout knows %s\n", path);
    return 1;
}

/* --------------------------------------------------------------------------------------------------------- C tests */

static void table(void **state)
{
    (void)state;
    char names[256] = "";
    for (size_t i = 0; tap__layout_at(i); i++) {
        const tap_layout *layout = tap__layout_at(i);
        assert_ptr_equal(tap__layout_find(layout->name), layout);
        assert_true(layout->native == !layout->name_file);
        assert_true(layout->native == !layout->read);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", layout->name);
    }
    assert_string_equal(tap__layout_names(), names);
    assert_null(tap__layout_find("nope"));
}

typedef struct seen {
    size_t count;
    struct seen_record {
        char name[64], path[32], file[200];
        int64_t step;
        int rank, ndim;
        uint32_t call;
        tap_kind kind;
        tap_dtype dtype;
        int64_t dim;
    } items[16];
} seen;

static tap_status keep_record(void *user, const tap_record *r, const tap_facts *facts)
{
    (void)facts;
    seen *s = user;
    assert_true(s->count < 16);
    struct seen_record *item = &s->items[s->count++];
    snprintf(item->name, sizeof item->name, "%s", r->name);
    snprintf(item->path, sizeof item->path, "%s", r->path);
    snprintf(item->file, sizeof item->file, "%s", r->file);
    item->step = r->step;
    item->rank = r->rank;
    item->call = r->call;
    item->kind = r->kind;
    item->dtype = r->dtype;
    item->ndim = r->ndim;
    item->dim = r->ndim ? r->shape[0] : -1;
    return TAP_OK;
}

/* Saves the same three things with every layout, reads the directory and looks for them. */
static void written_and_read(void **state)
{
    (void)state;
    float data[3] = {1, -2, 3};
    int64_t shape[1] = {3};
    tap_tensor tensor = {.data = data, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    for (size_t i = 1; tap__layout_at(i); i++) {
        char *dir = scratch_make();
        machine m = {.options = {.dir = opened(dir), .rank = 2, .world_size = 3, .pid = 9, .distributed = true,
                                 .device_index = 2, .keep = TAP_KEEP_STATS | TAP_KEEP_TENSOR}};
        const char *layout = tap__layout_at(i)->name;
        bool steps = strncmp(layout, "msprobe", 7) == 0 || strcmp(layout, "mindspore") == 0 ||
                     strcmp(layout, "torchair") == 0;
        bool npu = strcmp(layout, "torch_npu") == 0, air = strcmp(layout, "torchair") == 0;
        const char *name = npu ? "sub/x.pt" : "x";
        assert_int_equal(machine_open(&m, layout), TAP_OK);
        tap_save_info info = TAP_SAVE_INFO(.graph_id = 4, .argument = "0", .stamp_us = 1760685131190258);
        for (int k = 0; k < 2; k++) {
            test_entry entry = {.name = name, .tensor = &tensor, .step = 5, .call = (uint32_t)k,
                                .kind = air ? (k ? TAP_KIND_OUTPUT : TAP_KIND_INPUT) : TAP_KIND_FORWARD};
            if (machine_save(&m, &entry, &info) != TAP_OK)
                fail_msg("%s: %s", layout, m.err.message);
        }
        if (m.collector)
            assert_int_equal(m.layout->collect_flush(m.collector, 0, true, &m.err), TAP_OK);
        machine_close(&m);
        for (size_t k = 1; k < i; k++)
            assert_false(tap__layout_at(k)->detect(opened(dir), NULL));
        assert_true(tap__layout_at(i)->detect(opened(dir), NULL));
        seen s = {.count = 0};
        assert_int_equal(tap__layout_at(i)->read(opened(dir), NULL, keep_record, &s, &m.err), TAP_OK);
        assert_int_equal(s.count, 2);
        for (int k = 0; k < 2; k++) {
            const struct seen_record *r = &s.items[k];
            assert_string_equal(r->name, name);
            assert_string_equal(r->path, air ? "0" : "");
            assert_int_equal(r->step, steps ? 5 : 0);
            assert_int_equal(r->rank, 2);
            assert_int_equal(r->call, air ? 0 : k);
            assert_int_equal(r->kind, air ? (k ? TAP_KIND_OUTPUT : TAP_KIND_INPUT) : TAP_KIND_FORWARD);
            assert_int_equal(r->dtype, TAP_F32);
            assert_int_equal(r->ndim, 1);
            assert_int_equal(r->dim, 3);
            char *path = tap__path_join(dir, r->file);
            struct stat st;
            tap_file *file;
            tap_file_entry entry;
            tap_file_entry_init(&entry);
            assert_int_equal(stat(path, &st), 0);
            assert_int_equal(st.st_mode & 0777 & ~0640, 0);
            assert_int_equal(tap_file_open(path, &file, &m.err), TAP_OK);
            assert_int_equal(tap_file_get(file, 0, &entry, &m.err), TAP_OK);
            assert_memory_equal(entry.tensor.data, data, sizeof data);
            tap_file_close(file);
            tap__free(path);
        }
        scratch_drop(dir);
    }
}

/* torch_npu: a list is one file, and each of its tensors a record. */
static void lists_in_one_file(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_error err;
    const tap_layout *layout = tap__layout_find("torch_npu");
    assert_true(layout->one_file_per_value);
    int32_t a[2] = {1, 2};
    double b[1] = {3};
    int64_t two[1] = {2};
    tap_tensor tensors[2] = {{.data = a, .dtype = TAP_I32, .ndim = 1, .shape = two}, {.data = b, .dtype = TAP_F64}};
    if (tap__layout_write_files(layout, opened(dir), "l_device_0.pt", tensors, 2, &err) != TAP_OK)
        fail_msg("%s", err.message);
    seen s = {.count = 0};
    assert_int_equal(layout->read(opened(dir), NULL, keep_record, &s, &err), TAP_OK);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.items[0].path, "0");
    assert_string_equal(s.items[1].path, "1");
    assert_int_equal(s.items[0].dtype, TAP_I32);
    assert_int_equal(s.items[1].dtype, TAP_F64);
    assert_string_equal(s.items[1].name, "l.pt");
    scratch_drop(dir);
}

static void put(const char *dir, const char *relative, const void *bytes, size_t len)
{
    assert_int_equal(tap__file_put(opened(dir), relative, bytes, len, NULL), TAP_OK);
}

/* Names the original tools give, beside files that are none of theirs. */
static void names_of_the_originals(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *file, *name;
        int64_t step;
        int rank;
        uint32_t call;
        tap_kind kind;
    } CASES[] = {
        {"torch_npu", "d/x_device_1_12.pt", "d/x.pt", 0, 1, 12, TAP_KIND_FORWARD},
        {"torch_npu", "x_device_0_device_3.bin", "x_device_0.bin", 0, 3, 0, TAP_KIND_FORWARD},
        {"torch_npu", "tensor_20260101_000000_123456_device_0_0.pt", "tensor_20260101_000000_123456.pt", 0, 0, 0,
         TAP_KIND_FORWARD},
        {"torchair", "worldsize2_global_rank1/graph_3/4/sub-aten.sub.Tensor.OUTPUT.0.20251017071211202083.npy",
         "sub-aten.sub.Tensor", 4, 1, 0, TAP_KIND_OUTPUT},
        {"mindspore", "step10/rank3/z_grad_float32_1.npy", "z", 10, 3, 1, TAP_KIND_GRAD},
        {"mindspore", "step0/rank0/a.b.0_bfloat16_7.npy", "a.b.0", 0, 0, 7, TAP_KIND_FORWARD},
        {"troubleshooter", "torch_ts_save/0_dense_backward.npy", "torch_ts_save/dense", 0, 0, 0, TAP_KIND_GRAD},
        {"troubleshooter", "numpy.d1.0_float32_0.npy", "numpy.d1.0", 0, 0, 0, TAP_KIND_FORWARD},
        {"troubleshooter", "x_backward_bfloat16_3.npy", "x", 0, 0, 0, TAP_KIND_GRAD},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char *dir = scratch_make();
        put(dir, CASES[i].file, "not a tensor", 12);
        put(dir, "notes.txt", "x", 1);
        put(dir, "weights.npy", "x", 1);
        put(dir, "model.pt", "x", 1);
        const tap_layout *layout = tap__layout_find(CASES[i].layout);
        if (!layout->detect(opened(dir), NULL))
            fail_msg("%s not seen in %s", CASES[i].layout, CASES[i].file);
        seen s = {.count = 0};
        assert_int_equal(layout->read(opened(dir), NULL, keep_record, &s, NULL), TAP_OK);
        assert_int_equal(s.count, 1); /* torn, but listed */
        assert_string_equal(s.items[0].name, CASES[i].name);
        assert_int_equal(s.items[0].step, CASES[i].step);
        assert_int_equal(s.items[0].rank, CASES[i].rank);
        assert_int_equal(s.items[0].call, CASES[i].call);
        assert_int_equal(s.items[0].kind, CASES[i].kind);
        assert_string_equal(s.items[0].file, CASES[i].file);
        scratch_drop(dir);
    }
}

static void plain_directories_are_no_recording(void **state)
{
    (void)state;
    char *dir = scratch_make();
    static const char *const FILES[] = {"x.npy", "a/b.pt", "step0/x.txt", "x_device_.pt", "_device_x.pt", "x_device_0a.pt",
        "worldsize1_global_rank0/graph_1/0/a.INPUT.0.2025.npy", "step0/rank0/x_float99_0.npy", "12.npy", "x_3.npy",
        "99999999999999999999999_x_.pt", ".0_hidden.npy", "step/rank/x_float32_0.txt"};
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        put(dir, FILES[i], "x", 1);
    for (size_t i = 1; tap__layout_at(i); i++)
        if (tap__layout_at(i)->detect(opened(dir), NULL))
            fail_msg("%s", tap__layout_at(i)->name);
    tap_dir *gone = opened(dir);
    scratch_clear(dir);
    for (size_t i = 1; tap__layout_at(i); i++) {
        assert_false(tap__layout_at(i)->detect(gone, NULL)); /* removed while it is open: nothing is in it any more */
        assert_int_equal(tap__layout_at(i)->read(gone, NULL, keep_record, NULL, NULL), TAP_OK);
    }
    scratch_drop(dir);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return strcmp(argv[1], "drive") == 0 ? drive() : read_dir(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(lists_in_one_file),
        cmocka_unit_test(names_of_the_originals),
        cmocka_unit_test(plain_directories_are_no_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
