/* test_layout_msprobe_modules.c - the collector of dump.json: the order of its items, the files beside it, a writer
 * that takes over, and memory that fails. What the file says is compared with msprobe itself by tests/compat. */
#include "record/collector_test.h"

#include "base/failing_allocator.h"

#define DUMP "step0/proc5/dump.json"
#define CONSTRUCT "step0/proc5/construct.json"
#define STACK "step0/proc5/stack.json"

static void start(fixture *f)
{
    start_with(tap__msprobe_modules_open, f);
}

static tap_status take_int(fixture *f, const char *name, tap_kind kind, const char *path, uint32_t call, int64_t number)
{
    return take(f, (test_entry){.name = name, .kind = kind, .path = path, .call = call, .value_type = TAP_VALUE_INT,
                                .bytes = &number, .len = 8});
}

static tap_status take_text(fixture *f, const char *suffix, const char *path, const char *text)
{
    return take(f, (test_entry){.name = suffix, .suffix = suffix, .path = path, .bytes = text,
                                .value_type = text ? TAP_VALUE_STR : TAP_VALUE_NONE, .len = text ? strlen(text) : 0});
}

static void expect(fixture *f, const char *relative, const char *wanted)
{
    char *text = read_text(f->dir, relative);
    assert_string_equal(text, wanted);
    tap__free(text);
}

static size_t times(fixture *f, const char *relative, const char *part)
{
    char *text = read_text(f->dir, relative);
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    tap__free(text);
    return count;
}

/* The entries of a container around one module, up to a number of them. */
static tap_status model(fixture *f, int from, int to)
{
    tap_status status = TAP_OK;
    for (int i = from; i < to && status == TAP_OK; i++) {
        switch (i) {
        case 0: status = take_text(f, "construct", "kM.a.A.forward.0", NULL); break;
        case 1: status = take_int(f, "M.a.A", TAP_KIND_INPUT, "kinput_args\x1ft0", 0, 1); break;
        case 2: status = take(f, (test_entry){.name = "M.a.A", .kind = TAP_KIND_INPUT, .path = "kinput_kwargs",
                                              .value_type = TAP_VALUE_DICT}); break;
        case 3: status = take_text(f, "stack", "k0\x1fi0\x1fi0", "M.a.A.forward.0"); break;
        case 4: status = take_text(f, "stack", "k0\x1fi1\x1fi0", "File \"x\", \n y"); break;
        case 5: status = take_text(f, "construct", "kM.a.b.B.forward.0", "M.a.A.forward.0"); break;
        case 6: status = take_int(f, "M.a.b.B", TAP_KIND_INPUT, "kinput_args\x1ft0", 0, 2); break;
        case 7: status = take_text(f, "stack", "k0\x1fi0\x1fi1", "M.a.b.B.forward.0"); break;
        case 8: status = take_int(f, "M.a.b.B", TAP_KIND_OUTPUT, "koutput\x1fi0", 0, 3); break;
        case 9: status = take_int(f, "M.a.A", TAP_KIND_OUTPUT, "koutput\x1fi0", 0, 4); break;
        case 10: status = take_int(f, "M.a.A", TAP_KIND_PARAM, "kbias\x1fi0", 0, 5); break;
        case 11: status = take_int(f, "M.a.A", TAP_KIND_GRAD, "kinput\x1fi0", 0, 6); break;
        case 12: status = take_int(f, "M.a.A", TAP_KIND_PARAM, "kweight\x1fi0", 0, 7); break;
        default: break;
        }
    }
    return status;
}
enum { MODEL = 13 };

/* With msprobe what changed last comes last. */
static void what_changed_last_comes_last(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    assert_int_equal(model(&f, 0, MODEL), TAP_OK);
    flush(&f, 0, true);
    char *text = read_text(f.dir, DUMP);
    const char *wanted[] = {"\"level\": \"L0\"", "\"M.a.b.B.forward.0\": {", "\"M.a.A.forward.0\": {",
                            "\"input_kwargs\": {}", "\"output\": [", "\"M.a.A.backward.0\": {", "\"M.a.A.parameters_grad.0\": {", "\"bias\": [",
                            "\"weight\": ["};
    const char *at = text;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!(at = strstr(at, wanted[i])))
            fail_msg("%s is not there, or not in its place:\n%s", wanted[i], text);
    tap__free(text);
    expect(&f, CONSTRUCT, "{\n \"M.a.A.forward.0\": null,\n \"M.a.b.B.forward.0\": \"M.a.A.forward.0\"\n}");
    expect(&f, STACK, "{\n \"0\": [\n  [\n   \"M.a.A.forward.0\",\n   \"M.a.b.B.forward.0\"\n  ],\n  [\n   "
                      "\"File \\\"x\\\", \\n y\"\n  ]\n ]\n}");
    stop(&f);
}

/* Whatever was written when it took over, and wherever it starts again before that. */
static void a_second_writer_goes_on(void **state)
{
    (void)state;
    fixture whole = {.dir = NULL};
    start(&whole);
    assert_int_equal(model(&whole, 0, MODEL), TAP_OK);
    flush(&whole, 0, true);
    const char *const files[] = {DUMP, CONSTRUCT, STACK};
    for (int stopped = 1; stopped < MODEL; stopped++) {
        fixture f = {.dir = NULL};
        start(&f);
        assert_int_equal(model(&f, 0, stopped), TAP_OK);
        flush(&f, 0, true);
        tap__msprobe_collect_close(f.collector);
        f.options.resume = true;
        start(&f);
        assert_int_equal(model(&f, stopped > 3 ? stopped - 3 : 0, MODEL), TAP_OK);
        flush(&f, 0, true);
        for (size_t i = 0; i < 3; i++) {
            char *wanted = read_text(whole.dir, files[i]);
            expect(&f, files[i], wanted);
            tap__free(wanted);
        }
        stop(&f);
    }
    stop(&whole);
}

static tap_status count_record(void *user, const tap_record *record, const tap_facts *facts)
{
    (void)facts;
    (void)record;
    ++*(uint64_t *)user;
    return TAP_OK;
}

/* A step of many values, written many times on the way: an item that is not complete is never written apart. */
static void open_items_stay_in_memory(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    take_int(&f, "first", TAP_KIND_INPUT, "kinput_args\x1ft0", 0, 1);
    take_int(&f, "first", TAP_KIND_OUTPUT, "koutput\x1ft0", 0, 1);
    take_int(&f, "outer", TAP_KIND_INPUT, "kinput_args\x1ft0", 0, 1);
    enum { COUNT = 100000 };
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(take_int(&f, "v", TAP_KIND_INPUT, "kinput_args\x1ft0", i, i), TAP_OK);
        assert_int_equal(take_int(&f, "v", TAP_KIND_OUTPUT, "koutput\x1ft0", i, i), TAP_OK);
        if (i % (COUNT / 8) == 0)
            flush(&f, 0, true);
    }
    for (int i = 0; i < 4; i++) {
        take_int(&f, "w", TAP_KIND_PARAM, i % 2 ? "kbias\x1fi0" : "kweight\x1fi0", 0, i);
        flush(&f, 0, true);
    }
    take_int(&f, "outer", TAP_KIND_OUTPUT, "koutput\x1ft0", 0, 1);
    flush(&f, 0, true);
    assert_int_equal(times(&f, DUMP, "\"outer.forward.0\""), 1);
    assert_int_equal(times(&f, DUMP, "\"first.forward.0\""), 1);
    assert_int_equal(times(&f, DUMP, "\"w.parameters_grad.0\""), 1);
    uint64_t records = 0;
    assert_int_equal(tap__msprobe_modules_read(opened(f.dir), NULL, count_record, &records, &f.err), TAP_OK);
    assert_int_equal(records, 2 * COUNT + 6);
    stop(&f);
}

static void another_file_beside_is_refused(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    start(&f);
    assert_int_equal(take_text(&f, "../x", "ka", "text"), TAP_E_INVALID);
    assert_non_null(strstr(f.err.message, "give suffix construct or stack"));
    stop(&f);
}

/* Whichever allocation fails: an error or whole files, no crash, no leak. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_dir *root = opened(dir);
    int whole = 0;
    for (long n = 0; whole < 3 && n < 600; n++) {
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        fixture f = {.dir = dir, .options = {.dir = root, .pid = 5, .keep = TAP_KEEP_STATS, .resume = n % 2}};
        tap_status status = tap__msprobe_modules_open(&f.options, &f.collector, &f.err);
        if (status == TAP_OK)
            status = model(&f, 0, MODEL);
        if (status == TAP_OK)
            status = tap__msprobe_collect_flush(f.collector, 0, true, &f.err);
        tap__msprobe_collect_close(f.collector);
        whole += status == TAP_OK;
        tap_allocator_set(NULL);
    }
    assert_int_equal(whole, 3);
    scratch_drop(dir);
}

static tap_status keep_line(void *user, const tap_record *r, const tap_facts *facts)
{
    (void)facts;
    char *text = user;
    snprintf(text + strlen(text), 1024 - strlen(text), "%s %s %u %s\n", r->name, tap_kind_name(r->kind), r->call,
             r->path);
    return TAP_OK;
}

static void read_back(void **state)
{
    (void)state;
    fixture f = {.dir = NULL};
    char text[1024] = "";
    start(&f);
    assert_int_equal(model(&f, 0, MODEL), TAP_OK);
    flush(&f, 0, true);
    assert_true(tap__msprobe_modules_detect(opened(f.dir), NULL));
    assert_false(tap__msprobe_detect(opened(f.dir), NULL));
    assert_int_equal(tap__msprobe_modules_read(opened(f.dir), NULL, keep_line, text, &f.err), TAP_OK);
    assert_string_equal(text, "M.a.b.B input 0 input_args.0\nM.a.b.B output 0 output.0\nM.a.A input 0 input_args.0\n"
                              "M.a.A output 0 output.0\nM.a.A grad 0 input.0\nM.a.A param 0 bias.0\n"
                              "M.a.A param 0 weight.0\n");
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changed_last_comes_last),
        cmocka_unit_test(a_second_writer_goes_on),
        cmocka_unit_test(open_items_stay_in_memory),
        cmocka_unit_test(another_file_beside_is_refused),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
