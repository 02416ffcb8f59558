/* test_move.c - movement, indexing, sorting, making, pooling and matrix products as graphs of one call, against
 * plain loops. What is moved is compared exactly. */
#include "engine/graph_test.h"

static const int64_t LENGTHS[] = {1, 7, 8, 9, 31, 33, 1000};
static const tap_dtype DTYPES[] = {TAP_F32, TAP_I64, TAP_BF16, TAP_U8, TAP_F64};

static void same(const tensor *t, int64_t i, double expected, const char *what)
{
    if (get(t, i) != expected)
        fail_msg("%s %s: element %lld of %lld is %.17g, not %.17g", what, tap_dtype_describe(t->dtype)->name, (long long)i,
                 (long long)t->count, get(t, i), expected);
}

static void near(const tensor *t, int64_t i, double expected, const char *what)
{
    double allowed = (t->dtype == TAP_F32 ? 1e-5 : t->dtype == TAP_F64 ? 1e-12 : t->dtype == TAP_F16 ? 2e-3 : 1e-2) *
                     (1 + fabs(expected));
    if (!(fabs(get(t, i) - expected) <= allowed))
        fail_msg("%s %s: element %lld of %lld is %.9g, not %.9g", what, tap_dtype_describe(t->dtype)->name, (long long)i,
                 (long long)t->count, get(t, i), expected);
}

static void drop_all(tensor *t, int count)
{
    for (int i = 0; i < count; i++)
        drop(&t[i]);
}

/* -------------------------------------------------------------------------------------------------------- movement */

static void cat_and_stack(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++) {
            int64_t len = LENGTHS[n];
            tensor in[3] = {filled(DTYPES[d], DENSE, 0, 9, SIZES(3, len, 2)), filled(DTYPES[d], TURNED, 0, 9, SIZES(3, 5, 2)),
                            filled(DTYPES[d], GAPS, 0, 9, SIZES(3, 0, 2))};
            tensor y = shaped(DTYPES[d], n % 2 ? DENSE : TURNED, SIZES(3, len + 5, 2));
            assert_true(run_call("aten.cat.default", ARGS(LIST("tensors", VALUE(NULL, 0), VALUE(NULL, 1), VALUE(NULL, 2)),
                                                          INT("dim", 1)), in, 3, &y, 1));
            for (int64_t i = 0; i < y.count; i++) {
                int64_t a = i / 2 / (len + 5), k = i / 2 % (len + 5), b = i % 2;
                same(&y, i, k < len ? get(&in[0], (a * len + k) * 2 + b) : get(&in[1], (a * 5 + k - len) * 2 + b), "cat");
            }
            drop_all(in, 3);
            drop(&y);
            tensor pair[2] = {filled(DTYPES[d], TURNED, 0, 9, SIZES(len, 3)), filled(DTYPES[d], DENSE, 0, 9, SIZES(len, 3))};
            y = shaped(DTYPES[d], DENSE, SIZES(len, 2, 3));
            assert_true(run_call("aten.stack.default", ARGS(LIST("tensors", VALUE(NULL, 0), VALUE(NULL, 1)), INT("dim", -2)),
                                 pair, 2, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&pair[i / 3 % 2], i / 6 * 3 + i % 3), "stack");
            drop_all(pair, 2);
            drop(&y);
        }
}

static int64_t wrap(int64_t i, int64_t size) { return (i % size + size) % size; }

static void flip_roll_repeat(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++) {
            int64_t rows = 3, len = LENGTHS[n];
            tensor x = filled(DTYPES[d], (layout)(n % 3), 0, 9, SIZES(rows, len)), y = shaped(DTYPES[d], DENSE, SIZES(rows, len));
            assert_true(run_call("aten.flip.default", ARGS(VALUE("self", 0), LIST("dims", INT(NULL, 0), INT(NULL, -1))), &x, 1,
                                 &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&x, y.count - 1 - i), "flip");
            drop(&y);
            assert_true(run_call("aten.roll.default", ARGS(VALUE("self", 0), LIST("shifts", INT(NULL, 4), INT(NULL, -1)),
                                                           LIST("dims", INT(NULL, 1), INT(NULL, 0))), &x, 1, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&x, wrap(i / len + 1, rows) * len + wrap(i % len - 4, len)), "roll");
            drop(&y);
            for (int upper = 0; upper < 2; upper++) {
                assert_true(run_call(upper ? "aten.triu.default" : "aten.tril.default",
                                     ARGS(VALUE("self", 0), INT("diagonal", 1)), &x, 1, &y, 1));
                for (int64_t i = 0; i < y.count; i++) {
                    bool kept = upper ? i % len >= i / len + 1 : i % len <= i / len + 1;
                    same(&y, i, kept ? get(&x, i) : 0, "triangle");
                }
                drop(&y);
            }
            y = shaped(DTYPES[d], DENSE, SIZES(2, rows, len * 3));
            assert_true(run_call("aten.repeat.default", ARGS(VALUE("self", 0), LIST("repeats", INT(NULL, 2), INT(NULL, 1),
                                                                                    INT(NULL, 3))), &x, 1, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&x, i / (len * 3) % rows * len + i % len), "repeat");
            drop(&y);
            y = shaped(DTYPES[d], DENSE, SIZES(rows + 3, len + 1));
            assert_true(run_call("aten.constant_pad_nd.default",
                                 ARGS(VALUE("self", 0), LIST("pad", INT(NULL, 2), INT(NULL, -1), INT(NULL, 1), INT(NULL, 2)),
                                      INT("value", 7)), &x, 1, &y, 1));
            for (int64_t i = 0; i < y.count; i++) {
                int64_t r = i / (len + 1) - 1, c = i % (len + 1) - 2;
                same(&y, i, r >= 0 && r < rows && c >= 0 && c < len ? get(&x, r * len + c) : 7, "pad");
            }
            drop(&y);
            drop(&x);
        }
}

/* -------------------------------------------------------------------------------------------------------- indexing */

/* One index for each place, all of them different, so that the order of writing does not matter. */
static tensor permutation(layout how, int64_t rows, int64_t len, int64_t bound)
{
    tensor t = shaped(TAP_I64, how, SIZES(rows, len));
    allocate_tensor(&t);
    for (int64_t r = 0; r < rows; r++) {
        int64_t start = random_below(bound);
        for (int64_t i = 0; i < len; i++)
            put(&t, r * len + i, (double)((start + i) % bound));
    }
    return t;
}

static void gather_and_scatter(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++) {
            enum { ROWS = 3 };
            int64_t len = LENGTHS[n], size = len + 2;
            tensor in[3] = {filled(DTYPES[d], (layout)(n % 3), 0, 9, SIZES(ROWS, size)),
                            permutation(n % 2 ? DENSE : TURNED, ROWS, len, size),
                            filled(DTYPES[d], DENSE, 0, 9, SIZES(ROWS, len))};
            tensor y = shaped(DTYPES[d], DENSE, SIZES(ROWS, len));
            assert_true(run_call("aten.gather.default", ARGS(VALUE("self", 0), INT("dim", -1), VALUE("index", 1)), in, 2, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&in[0], i / len * size + (int64_t)get(&in[1], i)), "gather");
            drop(&y);
            y = shaped(DTYPES[d], DENSE, SIZES(ROWS, size));
            double *want = malloc((size_t)y.count * sizeof *want);
            for (int add = 0; add < 2; add++) {
                assert_true(run_call(add ? "aten.scatter_add.default" : "aten.scatter.src",
                                     ARGS(VALUE("self", 0), INT("dim", 1), VALUE("index", 1), VALUE("src", 2)), in, 3, &y, 1));
                for (int64_t i = 0; i < y.count; i++)
                    want[i] = get(&in[0], i);
                for (int64_t i = 0; i < in[1].count; i++) {
                    int64_t at = i / len * size + (int64_t)get(&in[1], i);
                    want[at] = stored(DTYPES[d], (add ? want[at] : 0) + get(&in[2], i));
                }
                for (int64_t i = 0; i < y.count; i++)
                    same(&y, i, want[i], add ? "scatter_add" : "scatter");
                drop(&y);
            }
            free(want);
            drop_all(in, 3);
        }
}

static void rows_by_index(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++) {
            int64_t len = LENGTHS[n];
            tensor in[3] = {filled(DTYPES[d], (layout)(n % 3), 0, 9, SIZES(6, len)), filled(TAP_I64, GAPS, 0, 5, SIZES(4)),
                            filled(DTYPES[d], TURNED, 0, 9, SIZES(4, len))};
            tensor y = shaped(DTYPES[d], DENSE, SIZES(4, len));
            assert_true(run_call("aten.index_select.default", ARGS(VALUE("self", 0), INT("dim", 0), VALUE("index", 1)), in, 2,
                                 &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&in[0], (int64_t)get(&in[1], i / len) * len + i % len), "index_select");
            drop(&y);
            assert_true(run_call("aten.embedding.default", ARGS(VALUE("weight", 0), VALUE("indices", 1)), in, 2, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&in[0], (int64_t)get(&in[1], i / len) * len + i % len), "embedding");
            drop(&y);
            for (int64_t i = 0; i < 4; i++) /* from the end, for those that allow it */
                put(&in[1], i, get(&in[1], i) - (i % 2 ? 6 : 0));
            assert_true(run_call("aten.index.Tensor", ARGS(VALUE("self", 0), LIST("indices", VALUE(NULL, 1))), in, 2, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, get(&in[0], wrap((int64_t)get(&in[1], i / len), 6) * len + i % len), "index");
            drop(&y);
            y = shaped(DTYPES[d], DENSE, SIZES(6, len));
            assert_true(run_call("aten.index_put.default", ARGS(VALUE("self", 0), LIST("indices", VALUE(NULL, 1)),
                                                                VALUE("values", 2), BOOL("accumulate", 1)), in, 3, &y, 1));
            for (int64_t i = 0; i < y.count; i++) {
                double want = get(&in[0], i);
                for (int64_t k = 0; k < 4; k++)
                    if (wrap((int64_t)get(&in[1], k), 6) == i / len)
                        want = stored(DTYPES[d], want + get(&in[2], k * len + i % len));
                same(&y, i, want, "index_put");
            }
            drop(&y);
            drop_all(in, 3);
        }
}

/* An index that is out of bounds is said, with the node's name, and nothing is read there. */
static void bad_indexes(void **state)
{
    (void)state;
    static const char *const TARGETS[] = {"aten.gather.default", "aten.index_select.default", "aten.embedding.default"};
    for (size_t t = 0; t < COUNT_OF(TARGETS); t++)
        for (int wrong = -20; wrong < 30; wrong += 23) {
            bool gathers = t == 0;
            tensor in[2] = {filled(TAP_F32, DENSE, 0, 9, SIZES(3, 4)),
                            gathers ? filled(TAP_I64, DENSE, 0, 2, SIZES(3, 4)) : filled(TAP_I64, DENSE, 0, 2, SIZES(3))};
            tensor y = shaped(TAP_F32, DENSE, SIZES(3, 4));
            put(&in[1], 1, wrong);
            tap_graph *graph;
            tap_engine *engine;
            tap_error err = {0};
            int32_t value;
            assert_int_equal(tap_graph_new(NULL, &graph, &err), TAP_OK);
            add_input(graph, &in[0]);
            add_input(graph, &in[1]);
            assert_int_equal(add_call(graph, "the_node", TARGETS[t], ARGS(VALUE("self", 0), VALUE("weight", 0), INT("dim", 0),
                                      VALUE("index", 1), VALUE("indices", 1)), &y, 1, &value, &err), TAP_OK);
            assert_int_equal(tap_graph_output(graph, &value, 1, &err), TAP_OK);
            assert_int_equal(tap_engine_new(graph, 0, &HOST, &engine, &err), TAP_OK);
            static test_host host;
            assert_int_equal(run_engine(engine, &host, in, 2, &err), TAP_E_INVALID);
            if (!strstr(err.message, "the_node"))
                fail_msg("%s: the message does not name the node: %s", TARGETS[t], err.message);
            host_clear(&host);
            tap_engine_free(engine);
            drop_all(in, 2);
        }
}

/* --------------------------------------------------------------------------------------------------------- sorting */

static void sorting(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++)
            for (int down = 0; down < 2; down++) {
                int64_t len = LENGTHS[n], k = len < 5 ? len : 5;
                tensor x = filled(DTYPES[d], (layout)(n % 3), 0, 9, SIZES(3, len));
                tensor out[2] = {shaped(DTYPES[d], DENSE, SIZES(3, len)), shaped(TAP_I64, TURNED, SIZES(3, len))};
                assert_true(run_call("aten.sort.default", ARGS(VALUE("self", 0), INT("dim", -1), BOOL("descending", down)), &x, 1,
                                     out, 2));
                for (int64_t i = 0; i < x.count; i++) {
                    int64_t row = i / len * len;
                    same(&out[0], i, get(&x, row + (int64_t)get(&out[1], i)), "sort");
                    if (i == row)
                        continue;
                    double before = get(&out[0], i - 1), now = get(&out[0], i);
                    assert_true(down ? before >= now : before <= now);
                    assert_true(before != now || get(&out[1], i - 1) < get(&out[1], i)); /* equal ones keep their order */
                }
                tensor top[2] = {shaped(DTYPES[d], DENSE, SIZES(3, k)), shaped(TAP_I64, DENSE, SIZES(3, k))};
                if (run_call("aten.topk.default", ARGS(VALUE("self", 0), INT("k", k), INT("dim", 1), BOOL("largest", down),
                                                       BOOL("sorted", 1)), &x, 1, top, 2))
                    for (int64_t i = 0; i < top[0].count; i++) {
                        same(&top[0], i, get(&out[0], i / k * len + i % k), "topk");
                        same(&top[0], i, get(&x, i / k * len + (int64_t)get(&top[1], i)), "topk's indices");
                    }
                drop_all(out, 2);
                drop_all(top, 2);
                drop(&x);
            }
}

static void searching(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(LENGTHS); n++)
        for (int right = 0; right < 2; right++) {
            int64_t len = LENGTHS[n];
            tensor in[2] = {filled(TAP_F32, (layout)(n % 3), -3, 12, SIZES(4, 3)), shaped(TAP_F32, DENSE, SIZES(len))};
            allocate_tensor(&in[1]);
            for (int64_t i = 0; i < len; i++)
                put(&in[1], i, (double)(i / 2));
            tensor y = shaped(TAP_I64, DENSE, SIZES(4, 3));
            if (run_call("aten.bucketize.Tensor", ARGS(VALUE("self", 0), VALUE("boundaries", 1), BOOL("out_int32", 0),
                                                       BOOL("right", right)), in, 2, &y, 1))
                for (int64_t i = 0; i < y.count; i++) {
                    int64_t at = 0;
                    while (at < len && (right ? get(&in[1], at) <= get(&in[0], i) : get(&in[1], at) < get(&in[0], i)))
                        at++;
                    same(&y, i, (double)at, "bucketize");
                }
            drop_all(in, 2);
            drop(&y);
        }
}

static void making(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS) - 1; n++) {
            int64_t len = LENGTHS[n];
            tap_arg dtype = OF_DTYPE("dtype", DTYPES[d]);
            tensor y = shaped(DTYPES[d], DENSE, SIZES(len));
            assert_true(run_call("aten.arange.start_step", ARGS(INT("start", 3), INT("end", 3 + 2 * len), INT("step", 2), dtype),
                                 NULL, 0, &y, 1));
            for (int64_t i = 0; i < len; i++)
                same(&y, i, (double)(3 + 2 * i), "arange");
            drop(&y);
            y = shaped(DTYPES[d], n % 2 ? DENSE : TURNED, SIZES(3, len));
            assert_true(run_call("aten.full.default", ARGS(LIST("size", INT(NULL, 3), INT(NULL, len)), INT("fill_value", 5), dtype),
                                 NULL, 0, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, 5, "full");
            drop(&y);
            assert_true(run_call("aten.eye.m", ARGS(INT("n", 3), INT("m", len), dtype), NULL, 0, &y, 1));
            for (int64_t i = 0; i < y.count; i++)
                same(&y, i, i / len == i % len, "eye");
            drop(&y);
        }
}

/* --------------------------------------------------------------------------------------------------------- pooling */

static void pooling(void **state)
{
    (void)state;
    static const tap_dtype FLOATS[] = {TAP_F32, TAP_F64, TAP_BF16};
    for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
        for (size_t n = 1; n < COUNT_OF(LENGTHS) - 1; n++)
            for (int back = 0; back < 2; back++) {
                int64_t high = 7, wide = LENGTHS[n], h = (high + 2 - 3) / 2 + 1, w = (wide + 2 - 3) / 2 + 1;
                tensor x = shaped(FLOATS[d], DENSE, SIZES(2, 3, high, wide));
                if (back) /* channels last */
                    for (int i = 0; i < 4; i++)
                        x.stride[i] = (const int64_t[]){3 * high * wide, 1, 3 * wide, 3}[i];
                allocate_tensor(&x);
                for (int64_t i = 0; i < x.count; i++)
                    put(&x, i, (double)random_below(17) - 8);
                tensor out[2] = {shaped(FLOATS[d], DENSE, SIZES(2, 3, h, w)), shaped(TAP_I64, DENSE, SIZES(2, 3, h, w))};
                const tap_arg three = LIST("kernel_size", INT(NULL, 3), INT(NULL, 3)),
                              two = LIST("stride", INT(NULL, 2), INT(NULL, 2)), one = LIST("padding", INT(NULL, 1), INT(NULL, 1)),
                              apart = LIST("dilation", INT(NULL, 1), INT(NULL, 1));
                assert_true(run_call("aten.max_pool2d_with_indices.default",
                                     ARGS(VALUE("self", 0), three, two, one, apart, BOOL("ceil_mode", 0)), &x, 1, out, 2));
                tensor mean = shaped(FLOATS[d], DENSE, SIZES(2, 3, h, w));
                assert_true(run_call("aten.avg_pool2d.default",
                                     ARGS(VALUE("self", 0), three, two, one, BOOL("ceil_mode", 0), BOOL("count_include_pad", 0),
                                          {.name = "divisor_override", .type = TAP_ARG_NONE}), &x, 1, &mean, 1));
                for (int64_t i = 0; i < out[0].count; i++) {
                    int64_t plane = i / (h * w) * high * wide, at = -1;
                    double all = 0, seen = 0;
                    for (int64_t k = 0; k < 9; k++) {
                        int64_t r = i / w % h * 2 - 1 + k / 3, c = i % w * 2 - 1 + k % 3;
                        if (r < 0 || r >= high || c < 0 || c >= wide)
                            continue;
                        all += get(&x, plane + r * wide + c);
                        seen++;
                        if (at < 0 || get(&x, plane + r * wide + c) > get(&x, plane + at))
                            at = r * wide + c;
                    }
                    same(&out[0], i, get(&x, plane + at), "max_pool2d");
                    same(&out[1], i, (double)at, "max_pool2d's indices");
                    near(&mean, i, all / seen, "avg_pool2d");
                }
                drop_all(out, 2);
                drop(&mean);
                tensor y = shaped(FLOATS[d], DENSE, SIZES(2, 3, 4, 3));
                assert_true(run_call("aten._adaptive_avg_pool2d.default",
                                     ARGS(VALUE("self", 0), LIST("output_size", INT(NULL, 4), INT(NULL, 3))), &x, 1, &y, 1));
                for (int64_t i = 0; i < y.count; i++) {
                    int64_t r = i / 3 % 4, c = i % 3;
                    double all = 0, seen = 0;
                    for (int64_t u = r * high / 4; u < ((r + 1) * high + 3) / 4; u++)
                        for (int64_t v = c * wide / 3; v < ((c + 1) * wide + 2) / 3; v++, seen++)
                            all += get(&x, i / 12 * high * wide + u * wide + v);
                    near(&y, i, all / seen, "adaptive_avg_pool2d");
                }
                drop(&y);
                y = shaped(FLOATS[d], DENSE, SIZES(2, 3, high * 2, wide * 3));
                assert_true(run_call("aten.upsample_nearest2d.default",
                                     ARGS(VALUE("self", 0), LIST("output_size", INT(NULL, high * 2), INT(NULL, wide * 3))), &x, 1,
                                     &y, 1));
                for (int64_t i = 0; i < y.count; i++)
                    same(&y, i, get(&x, i / (high * wide * 6) * high * wide + i / (wide * 3) % (high * 2) / 2 * wide +
                                            i % (wide * 3) / 3), "upsample_nearest2d");
                drop(&y);
                drop(&x);
            }
}

/* --------------------------------------------------------------------------------------------------------- products */

static double product_at(const tensor *a, const tensor *b, int64_t batch, int64_t i, int64_t j, int64_t m, int64_t k, int64_t n)
{
    double all = 0;
    for (int64_t at = 0; at < k; at++)
        all += get(a, (batch * m + i) * k + at) * get(b, (batch * k + at) * n + j);
    return all;
}

/* Integers by our own loops, vectors by our own kernels; the rest needs a library that may not be there. */
static void products(void **state)
{
    (void)state;
    static const tap_dtype ALL[] = {TAP_I32, TAP_I64, TAP_I8, TAP_F32, TAP_BF16, TAP_F16, TAP_F64};
    static const int64_t SHAPES[][3] = {{1, 1, 1}, {1, 33, 9}, {9, 31, 1}, {7, 8, 9}, {1, 1000, 7}, {1, 7, 1000},
                                        {33, 1000, 1}, {5, 0, 3}, {0, 4, 2}};
    int native = 0;
    for (size_t d = 0; d < COUNT_OF(ALL); d++)
        for (size_t s = 0; s < COUNT_OF(SHAPES); s++)
            for (int how = 0; how < 3; how++) {
                int64_t m = SHAPES[s][0], k = SHAPES[s][1], n = SHAPES[s][2];
                tensor in[3] = {filled(ALL[d], (layout)how, -1, 1, SIZES(2, m, k)),
                                filled(ALL[d], (layout)((how + (int)s) % 3), -1, 1, SIZES(2, k, n)),
                                filled(ALL[d], DENSE, -2, 2, SIZES(n))};
                tensor y = shaped(ALL[d], DENSE, SIZES(2, m, n));
                if (run_call("aten.bmm.default", ARGS(VALUE("self", 0), VALUE("mat2", 1)), in, 2, &y, 1))
                    for (int64_t i = 0; i < y.count; i++, native++) {
                        double want = product_at(&in[0], &in[1], i / (m * n), i / n % m, i % n, m, k, n);
                        if (tap_dtype_describe(ALL[d])->kind == 'I')
                            same(&y, i, ALL[d] == TAP_I8 ? (double)(int8_t)(int64_t)want : want, "bmm");
                        else
                            near(&y, i, want, "bmm");
                    }
                drop(&y);
                for (int x = 0; x < 2; x++) { /* the first matrix of each */
                    in[x].ndim = 2;
                    memmove(in[x].size, in[x].size + 1, 2 * sizeof in[x].size[0]);
                    memmove(in[x].stride, in[x].stride + 1, 2 * sizeof in[x].stride[0]);
                    in[x].count /= 2;
                }
                y = shaped(ALL[d], how == 1 ? TURNED : DENSE, SIZES(m, n));
                if (run_call("aten.addmm.default", ARGS(VALUE("self", 2), VALUE("mat1", 0), VALUE("mat2", 1), INT("beta", 2),
                                                        INT("alpha", 3)), in, 3, &y, 1))
                    for (int64_t i = 0; i < y.count; i++, native++) {
                        double want = 3 * product_at(&in[0], &in[1], 0, i / n, i % n, m, k, n) + 2 * get(&in[2], i % n);
                        if (tap_dtype_describe(ALL[d])->kind == 'I')
                            same(&y, i, ALL[d] == TAP_I8 ? (double)(int8_t)(int64_t)want : want, "addmm");
                        else
                            near(&y, i, want, "addmm");
                    }
                else
                    assert_true(tap_dtype_describe(ALL[d])->kind == 'F');
                drop(&y);
                drop_all(in, 3);
            }
    assert_true(native > 1000);
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cat_and_stack), cmocka_unit_test(flip_roll_repeat), cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(rows_by_index), cmocka_unit_test(bad_indexes), cmocka_unit_test(sorting),
        cmocka_unit_test(searching), cmocka_unit_test(making), cmocka_unit_test(pooling), cmocka_unit_test(products),
    };
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    return with_each_isa(group);
}
