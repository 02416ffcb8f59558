/* test_reduce.c - reductions, running results, softmax, norms and losses as graphs of one call, against plain
 * loops in double: every instruction set, dtypes, odd sizes, empty and 0-d tensors, strides that are not dense. */
#include "engine/graph_test.h"

static const int64_t LENGTHS[] = {1, 7, 8, 9, 31, 33, 1000};
static const tap_dtype FLOATS[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_F16};

static double precision(tap_dtype dtype)
{
    return dtype == TAP_F64 ? 1e-12 : dtype == TAP_F32 ? 2e-6 : dtype == TAP_F16 ? 0x1p-10 : dtype == TAP_BF16 ? 0x1p-7 : 0;
}

/* Element i of t is `expected`, as good as its dtype is; slack: how many roundings more. */
static void expect(const tensor *t, int64_t i, double expected, double slack, const char *what)
{
    double given = get(t, i), allowed = precision(t->dtype) * slack * (1 + fabs(expected));
    if (isnan(expected) ? !isnan(given) : given != expected && !(fabs(given - expected) <= allowed))
        fail_msg("%s %s: element %lld of %lld is %.17g, not %.17g", what, tap_dtype_describe(t->dtype)->name,
                 (long long)i, (long long)t->count, given, expected);
}

/* ------------------------------------------------------------------------------------------------------- reductions */

typedef double (*fold)(const double *x, int64_t n);

static double sum(const double *x, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += x[i];
    return all;
}

static double mean(const double *x, int64_t n) { return sum(x, n) / (double)n; }

static double product(const double *x, int64_t n)
{
    double all = 1;
    for (int64_t i = 0; i < n; i++)
        all *= x[i];
    return all;
}

static int64_t best(const double *x, int64_t n, double sign)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (!isnan(x[at]) && (isnan(x[i]) || sign * x[i] > sign * x[at]))
            at = i;
    return at;
}

static double largest(const double *x, int64_t n) { return x[best(x, n, 1)]; }
static double smallest(const double *x, int64_t n) { return x[best(x, n, -1)]; }
static double where_largest(const double *x, int64_t n) { return (double)best(x, n, 1); }
static double where_smallest(const double *x, int64_t n) { return (double)best(x, n, -1); }

static double nonzero(const double *x, int64_t n)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found += x[i] != 0;
    return (double)found;
}

static double all_set(const double *x, int64_t n) { return nonzero(x, n) == (double)n; }
static double any_set(const double *x, int64_t n) { return nonzero(x, n) > 0; }

static double log_sum_exp(const double *x, int64_t n)
{
    double all = 0, top = largest(x, n);
    for (int64_t i = 0; i < n; i++)
        all += exp(x[i] - top);
    return log(all) + top;
}

static double variance(const double *x, int64_t n)
{
    double all = 0, middle = mean(x, n);
    for (int64_t i = 0; i < n; i++)
        all += (x[i] - middle) * (x[i] - middle);
    return all / (double)(n - 1);
}

static double deviation(const double *x, int64_t n) { return sqrt(variance(x, n)); }

static double norm2(const double *x, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += x[i] * x[i];
    return sqrt(all);
}

static double norm1(const double *x, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += fabs(x[i]);
    return all;
}

static double norm_top(const double *x, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all = fmax(all, fabs(x[i]));
    return all;
}

/* The elements of x along its middle dimension, at [a, :, b]. */
static const double *column(const tensor *x, int64_t a, int64_t b)
{
    static double room[4096];
    for (int64_t i = 0; i < x->size[1]; i++)
        room[i] = get(x, (a * x->size[1] + i) * x->size[2] + b);
    return room;
}

static void check_columns(const tensor *x, const tensor *y, fold f, double slack, const char *what)
{
    for (int64_t a = 0; a < x->size[0]; a++)
        for (int64_t b = 0; b < x->size[2]; b++)
            expect(y, a * x->size[2] + b, f(column(x, a, b), x->size[1]), slack, what);
}

typedef enum result_dtype { SAME, WIDE_INT, IS_BOOL, IS_INT } result_dtype;

static const struct reduction {
    const char *target;
    fold f[2];
    result_dtype result[2];
    bool integers, list;
    double slack;
    tap_arg extra;
} REDUCTIONS[] = {
    {"aten.sum.dim_IntList", {sum}, {WIDE_INT}, true, true, 1, {.type = TAP_ARG_NONE}},
    {"aten.mean.dim", {mean}, {SAME}, false, true, 1, {.type = TAP_ARG_NONE}},
    {"aten.prod.dim_int", {product}, {WIDE_INT}, true, false, 2, {.type = TAP_ARG_NONE}},
    {"aten.amax.default", {largest}, {SAME}, true, true, 0, {.type = TAP_ARG_NONE}},
    {"aten.amin.default", {smallest}, {SAME}, true, true, 0, {.type = TAP_ARG_NONE}},
    {"aten.argmax.default", {where_largest}, {IS_INT}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.argmin.default", {where_smallest}, {IS_INT}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.max.dim", {largest, where_largest}, {SAME, IS_INT}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.min.dim", {smallest, where_smallest}, {SAME, IS_INT}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.aminmax.default", {smallest, largest}, {SAME, SAME}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.all.dim", {all_set}, {IS_BOOL}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.any.dim", {any_set}, {IS_BOOL}, true, false, 0, {.type = TAP_ARG_NONE}},
    {"aten.count_nonzero.dim_IntList", {nonzero}, {IS_INT}, true, true, 0, {.type = TAP_ARG_NONE}},
    {"aten.logsumexp.default", {log_sum_exp}, {SAME}, false, true, 2, {.type = TAP_ARG_NONE}},
    {"aten.var.correction", {variance}, {SAME}, false, true, 2, INT("correction", 1)},
    {"aten.std.correction", {deviation}, {SAME}, false, true, 2, INT("correction", 1)},
    {"aten.var_mean.correction", {variance, mean}, {SAME, SAME}, false, true, 2, INT("correction", 1)},
    {"aten.std_mean.correction", {deviation, mean}, {SAME, SAME}, false, true, 2, INT("correction", 1)},
    {"aten.linalg_vector_norm.default", {norm2}, {SAME}, false, true, 1, INT("ord", 2)},
    {"aten.linalg_vector_norm.default", {norm1}, {SAME}, false, true, 1, INT("ord", 1)},
    {"aten.linalg_vector_norm.default", {norm_top}, {SAME}, false, true, 0, FLOAT("ord", INFINITY)},
    {"aten.linalg_vector_norm.default", {nonzero}, {SAME}, false, true, 1, INT("ord", 0)},
};

static tap_dtype dtype_of_result(result_dtype how, tap_dtype x)
{
    bool whole = tap_dtype_describe(x)->kind != 'F';
    return how == IS_INT || (how == WIDE_INT && whole) ? TAP_I64 : how == IS_BOOL ? (x == TAP_U8 ? TAP_U8 : TAP_BOOL) : x;
}

static bool reduce_one(const struct reduction *r, tap_dtype dtype, layout how, const int64_t *size, bool keep)
{
    tensor x = filled(dtype, how, dtype == TAP_BOOL || dtype == TAP_U8 ? 0 : -4, dtype == TAP_BOOL ? 1 : 4, 3, size);
    if (r->f[0] == product) /* so that it neither vanishes nor overflows */
        for (int64_t i = 0; i < x.count; i++)
            put(&x, i, dtype == TAP_BOOL || dtype == TAP_U8 ? 1 : i % 97 == 3 ? 2 : i % 3 ? 1 : -1);
    tensor out[2];
    keep = keep && r->f[0] != nonzero; /* count_nonzero has no such argument */
    int nout = r->f[1] ? 2 : 1;
    int64_t kept[3] = {size[0], 1, size[2]}, gone[2] = {size[0], size[2]};
    for (int i = 0; i < nout; i++)
        out[i] = shaped(dtype_of_result(r->result[i], dtype), DENSE, keep ? 3 : 2, keep ? kept : gone);
    const tap_arg one[] = {INT(NULL, -2)};
    tap_arg dim = r->list ? (tap_arg){.name = "dim", .type = TAP_ARG_LIST, .items = one, .count = 1} : (tap_arg)INT("dim", 1);
    tap_arg args[] = {VALUE("self", 0), dim, BOOL("keepdim", keep), r->extra};
    bool native = run_call(r->target, args, r->extra.name ? 4 : 3, &x, 1, out, nout);
    for (int i = 0; i < nout; i++) {
        if (native)
            check_columns(&x, &out[i], r->f[i], r->slack, r->target);
        drop(&out[i]);
    }
    drop(&x);
    return native;
}

static void reductions(void **state)
{
    (void)state;
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_F16, TAP_I64, TAP_I32, TAP_I8, TAP_U8, TAP_BOOL};
    for (size_t r = 0; r < COUNT_OF(REDUCTIONS); r++)
        for (size_t d = 0; d < COUNT_OF(DTYPES); d++) {
            if (tap_dtype_describe(DTYPES[d])->kind != 'F' && !REDUCTIONS[r].integers)
                continue;
            for (size_t n = (r + d) % 3; n < COUNT_OF(LENGTHS); n += 3) { /* all of them, over the dtypes */
                int64_t row[] = {3, LENGTHS[n], 1}, inner[] = {2, LENGTHS[n], n % 2 ? 9 : LENGTHS[n] > 100 ? 3 : 17};
                layout how = (layout)((n + r) % 3);
                if (!reduce_one(&REDUCTIONS[r], DTYPES[d], how, row, n % 2) |
                    !reduce_one(&REDUCTIONS[r], DTYPES[d], how, inner, d % 2))
                    fail_msg("%s of %s is not run by the engine", REDUCTIONS[r].target, tap_dtype_describe(DTYPES[d])->name);
            }
            int64_t nothing[] = {0, 5, 3}, none[] = {2, 0, 3};
            assert_true(reduce_one(&REDUCTIONS[r], DTYPES[d], DENSE, nothing, true));
            if (REDUCTIONS[r].f[0] == sum)
                assert_true(reduce_one(&REDUCTIONS[r], DTYPES[d], DENSE, none, false));
        }
}

/* Over everything, of a 0-d tensor, and with NaN among the values. */
static void whole_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        fold f;
    } CASES[] = {{"aten.sum.default", sum}, {"aten.mean.default", mean}, {"aten.max.default", largest},
                 {"aten.min.default", smallest}, {"aten.prod.default", product}};
    static const int64_t SIZES_OF[][2] = {{1, 1}, {3, 33}, {40, 100}};
    for (size_t c = 0; c < COUNT_OF(CASES); c++)
        for (int s = -1; s < 3; s++) {
            tensor x = filled(TAP_F32, s == 1 ? TURNED : DENSE, -2, 2, s < 0 ? 0 : 2, s < 0 ? NULL : SIZES_OF[s]);
            for (int64_t i = 0; CASES[c].f == product && i < x.count; i++)
                put(&x, i, i % 2 ? -1 : 1);
            double *all = malloc((size_t)x.count * sizeof *all);
            for (int nan = 0; nan < 2; nan++) {
                if (nan)
                    put(&x, x.count / 2, NAN);
                for (int64_t i = 0; i < x.count; i++)
                    all[i] = get(&x, i);
                tensor y = shaped(TAP_F32, DENSE, 0, NULL);
                assert_true(run_call(CASES[c].target, ARGS(VALUE("self", 0)), &x, 1, &y, 1));
                expect(&y, 0, CASES[c].f(all, x.count), 2, CASES[c].target);
                drop(&y);
            }
            free(all);
            drop(&x);
        }
    tensor square = filled(TAP_F32, DENSE, -4, 4, SIZES(5, 3)), y = shaped(TAP_F32, DENSE, 0, NULL);
    assert_true(run_call("aten.trace.default", ARGS(VALUE("self", 0)), &square, 1, &y, 1));
    expect(&y, 0, get(&square, 0) + get(&square, 4) + get(&square, 8), 1, "trace");
    drop(&square);
    drop(&y);
}

/* -------------------------------------------------------------------------------------------------- running results */

static void running(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        fold f[2];
        result_dtype result;
        bool integers;
    } CASES[] = {{"aten.cumsum.default", {sum}, WIDE_INT, true},
                 {"aten.cumprod.default", {product}, WIDE_INT, true},
                 {"aten.cummax.default", {largest, NULL}, SAME, true},
                 {"aten.cummin.default", {smallest, NULL}, SAME, true},
                 {"aten.logcumsumexp.default", {log_sum_exp}, SAME, false}};
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_F64, TAP_I64, TAP_I32, TAP_U8};
    for (size_t c = 0; c < COUNT_OF(CASES); c++)
        for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
            for (size_t n = (c + d) % 2; n < COUNT_OF(LENGTHS) && (d < 2 || CASES[c].integers); n += 2) {
                int64_t size[] = {2, LENGTHS[n], n % 2 ? 1 : 5};
                tensor x = filled(DTYPES[d], (layout)(n % 3), DTYPES[d] == TAP_U8 ? 0 : -3, 3, 3, size), out[2];
                for (int64_t i = 0; c == 1 && i < x.count; i++)
                    put(&x, i, i % 97 == 3 ? 2 : 1);
                int nout = c == 2 || c == 3 ? 2 : 1;
                out[0] = shaped(dtype_of_result(CASES[c].result, DTYPES[d]), DENSE, 3, size);
                out[1] = shaped(TAP_I64, DENSE, 3, size);
                assert_true(run_call(CASES[c].target, ARGS(VALUE("self", 0), INT("dim", 1)), &x, 1, out, nout));
                for (int64_t i = 0; i < x.count; i += x.count > 500 ? 53 : 1) {
                    int64_t b = i % size[2], along = i / size[2] % size[1], a = i / size[2] / size[1];
                    expect(&out[0], i, CASES[c].f[0](column(&x, a, b), along + 1), 4, CASES[c].target);
                    if (nout == 2) /* the last of equal ones */
                        assert_true(column(&x, a, b)[(int64_t)get(&out[1], i)] == get(&out[0], i));
                }
                for (int k = 0; k < nout; k++)
                    drop(&out[k]);
                drop(&x);
            }
}

/* ---------------------------------------------------------------------------------------------------------- softmax */

static void softmaxes(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
        for (size_t n = d % 2; n < COUNT_OF(LENGTHS); n += 2)
            for (int inner = 1; inner < 12; inner += 10) {
                int64_t size[] = {LENGTHS[n] > 100 ? 1 : 3, LENGTHS[n], inner};
                tensor x = filled(FLOATS[d], (layout)(n % 3), -6, 6, 3, size);
                for (int log_of = 0; log_of < 2; log_of++) {
                    tensor y = shaped(FLOATS[d], n % 2 ? DENSE : TURNED, 3, size);
                    const char *target = log_of ? "aten._log_softmax.default" : "aten._softmax.default";
                    assert_true(run_call(target, ARGS(VALUE("self", 0), INT("dim", 1), BOOL("half_to_float", 0)), &x, 1,
                                         &y, 1));
                    for (int64_t line = 0; line < size[0] * size[2]; line++) {
                        const double *values = column(&x, line / size[2], line % size[2]);
                        double total = log_sum_exp(values, size[1]);
                        for (int64_t i = 0; i < size[1]; i++)
                            expect(&y, (line / size[2] * size[1] + i) * size[2] + line % size[2],
                                   log_of ? values[i] - total : exp(values[i] - total), 2, target);
                    }
                    tensor in[2] = {filled(FLOATS[d], DENSE, -2, 2, 3, size), y}, dx = shaped(FLOATS[d], DENSE, 3, size);
                    const char *back = log_of ? "aten._log_softmax_backward_data.default" : "aten._softmax_backward_data.default";
                    assert_true(run_call(back, ARGS(VALUE("grad_output", 0), VALUE("output", 1), INT("dim", 1),
                                                    OF_DTYPE("input_dtype", FLOATS[d])), in, 2, &dx, 1));
                    for (int64_t a = 0; a < size[0]; a++)
                        for (int64_t b = 0; b < size[2]; b++) {
                            double total = 0, scale = 0;
                            for (int64_t i = 0; i < size[1]; i++) {
                                int64_t at = (a * size[1] + i) * size[2] + b;
                                total += get(&in[0], at) * (log_of ? 1 : get(&y, at));
                                scale += fabs(get(&in[0], at)) * (log_of ? 1 : get(&y, at));
                            }
                            for (int64_t i = 0; i < size[1]; i++) {
                                int64_t at = (a * size[1] + i) * size[2] + b;
                                double g = get(&in[0], at), p = get(&y, at);
                                expect(&dx, at, log_of ? g - exp(p) * total : p * (g - total), 2 + scale, back);
                            }
                        }
                    drop(&dx);
                    drop(&in[0]);
                    drop(&y);
                }
                drop(&x);
            }
}

/* ------------------------------------------------------------------------------------------------------------ norms */

static void layer_norms(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t n = 1; n < COUNT_OF(LENGTHS); n++) {
            int64_t size[] = {5, LENGTHS[n]}, rows[] = {5, 1};
            tap_dtype dtype = FLOATS[d];
            tensor in[3] = {filled(dtype, (layout)(n % 3), -4, 4, 2, size), filled(dtype, DENSE, -2, 2, 1, size + 1),
                            filled(dtype, GAPS, -2, 2, 1, size + 1)};
            tensor out[3] = {shaped(dtype, DENSE, 2, size), shaped(dtype, DENSE, 2, rows), shaped(dtype, DENSE, 2, rows)};
            const tap_arg shape[] = {INT(NULL, LENGTHS[n])};
            const tap_arg normalized = {.name = "normalized_shape", .type = TAP_ARG_LIST, .items = shape, .count = 1};
            assert_true(run_call("aten.native_layer_norm.default", ARGS(VALUE("input", 0), normalized, VALUE("weight", 1),
                                                                        VALUE("bias", 2), FLOAT("eps", 1e-5)), in, 3, out, 3));
            for (int64_t i = 0; i < 5; i++) {
                double row[1000];
                for (int64_t k = 0; k < size[1]; k++)
                    row[k] = get(&in[0], i * size[1] + k);
                double middle = mean(row, size[1]), biased = variance(row, size[1]) * (double)(size[1] - 1) / (double)size[1];
                double rstd = 1 / sqrt(biased + 1e-5);
                expect(&out[1], i, middle, 2, "layer norm's mean");
                expect(&out[2], i, rstd, 4, "layer norm's rstd");
                for (int64_t k = 0; k < size[1]; k++)
                    expect(&out[0], i * size[1] + k, (row[k] - middle) * rstd * get(&in[1], k) + get(&in[2], k), 8,
                           "layer norm");
            }
            for (int i = 0; i < 3; i++) {
                drop(&in[i]);
                drop(&out[i]);
            }
        }
}

static void batch_and_group_norms(void **state)
{
    (void)state;
    static const int64_t PLACES[] = {1, 7, 9, 33};
    for (size_t p = 0; p < COUNT_OF(PLACES); p++) {
        enum { N = 3, C = 4, G = 2 };
        int64_t size[] = {N, C, PLACES[p]}, channels[] = {C}, groups[] = {N, G}, each = PLACES[p];
        tensor in[3] = {filled(TAP_F32, p % 2 ? DENSE : TURNED, -4, 4, 3, size), filled(TAP_F32, DENSE, -2, 2, 1, channels),
                        filled(TAP_F32, DENSE, -2, 2, 1, channels)};
        tensor out[3] = {shaped(TAP_F32, DENSE, 3, size), shaped(TAP_F32, DENSE, 1, channels),
                         shaped(TAP_F32, DENSE, 1, channels)};
        assert_true(run_call("aten._native_batch_norm_legit.no_stats",
                             ARGS(VALUE("input", 0), VALUE("weight", 1), VALUE("bias", 2), BOOL("training", 1),
                                  FLOAT("momentum", 0.1), FLOAT("eps", 1e-3)), in, 3, out, 3));
        for (int64_t c = 0; c < C; c++) {
            double values[N * 33];
            for (int64_t i = 0; i < N * each; i++)
                values[i] = get(&in[0], (i / each * C + c) * each + i % each);
            double middle = mean(values, N * each), count = (double)(N * each);
            double rstd = 1 / sqrt(variance(values, N * each) * (count - 1) / count + 1e-3);
            expect(&out[1], c, middle, 2, "batch norm's mean");
            expect(&out[2], c, rstd, 4, "batch norm's rstd");
            for (int64_t i = 0; i < N * each; i++)
                expect(&out[0], (i / each * C + c) * each + i % each,
                       (values[i] - middle) * rstd * get(&in[1], c) + get(&in[2], c), 8, "batch norm");
        }
        for (int i = 0; i < 3; i++)
            drop(&out[i]);
        out[1] = shaped(TAP_F32, DENSE, 2, groups);
        out[2] = shaped(TAP_F32, DENSE, 2, groups);
        bool native = run_call("aten.native_group_norm.default",
                               ARGS(VALUE("input", 0), VALUE("weight", 1), VALUE("bias", 2), INT("N", N), INT("C", C),
                                    INT("HxW", each), INT("group", G), FLOAT("eps", 1e-3)), in, 3, out, 3);
        assert_true(native || p % 2 == 0); /* channels side by side are the framework's */
        for (int64_t g = 0; native && g < N * G; g++) {
            double values[C / G * 33], count = (double)(C / G * each);
            for (int64_t i = 0; i < C / G * each; i++)
                values[i] = get(&in[0], g * (C / G) * each + i);
            double middle = mean(values, C / G * each);
            double rstd = 1 / sqrt(variance(values, C / G * each) * (count - 1) / count + 1e-3);
            for (int64_t i = 0; i < C / G * each; i++) {
                int64_t at = g * (C / G) * each + i, c = at / each % C;
                expect(&out[0], at, (values[i] - middle) * rstd * get(&in[1], c) + get(&in[2], c), 8, "group norm");
            }
        }
        for (int i = 0; i < 3; i++) {
            drop(&in[i]);
            drop(&out[i]);
        }
    }
}

/* With statistics that are given, and so none of its own. */
static void batch_norm_of_inference(void **state)
{
    (void)state;
    enum { C = 5, EACH = 9 };
    tensor in[5] = {filled(TAP_F32, DENSE, -4, 4, SIZES(2, C, EACH)), filled(TAP_F32, DENSE, -2, 2, SIZES(C)),
                    filled(TAP_F32, DENSE, -2, 2, SIZES(C)), filled(TAP_F32, DENSE, -2, 2, SIZES(C)),
                    filled(TAP_F32, DENSE, 1, 4, SIZES(C))};
    tensor out[3] = {shaped(TAP_F32, DENSE, SIZES(2, C, EACH)), shaped(TAP_F32, DENSE, SIZES(0)), shaped(TAP_F32, DENSE, SIZES(0))};
    assert_true(run_call("aten._native_batch_norm_legit_no_training.default",
                         ARGS(VALUE("input", 0), VALUE("weight", 1), VALUE("bias", 2), VALUE("running_mean", 3),
                              VALUE("running_var", 4), FLOAT("momentum", 0.1), FLOAT("eps", 1e-3)), in, 5, out, 3));
    for (int64_t i = 0; i < out[0].count; i++) {
        int64_t c = i / EACH % C;
        expect(&out[0], i, (get(&in[0], i) - get(&in[3], c)) / sqrt(get(&in[4], c) + 1e-3) * get(&in[1], c) + get(&in[2], c), 4,
               "batch norm of inference");
    }
    for (int i = 0; i < 5; i++)
        drop(&in[i]);
    for (int i = 0; i < 3; i++)
        drop(&out[i]);
}

/* ----------------------------------------------------------------------------------------------------------- losses */

static double squared(double x, double t) { return (x - t) * (x - t); }
static double huber(double x, double t) { return fabs(x - t) <= 1 ? squared(x, t) / 2 : fabs(x - t) - 0.5; }

static void losses(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        double (*f)(double x, double target);
    } CASES[] = {{"aten.mse_loss.default", squared}, {"aten.huber_loss.default", huber},
                 {"aten.smooth_l1_loss.default", huber}};
    for (size_t c = 0; c < COUNT_OF(CASES); c++)
        for (size_t n = 0; n < COUNT_OF(LENGTHS); n++)
            for (int reduction = 0; reduction < 3; reduction++) {
                tensor in[2] = {filled(TAP_F32, (layout)(n % 3), -2, 2, SIZES(2, LENGTHS[n])),
                                filled(TAP_F32, DENSE, -2, 2, SIZES(2, LENGTHS[n]))};
                tensor y = shaped(TAP_F32, DENSE, reduction ? 0 : 2, in[0].size);
                assert_true(run_call(CASES[c].target, ARGS(VALUE("self", 0), VALUE("target", 1), INT("reduction", reduction)),
                                     in, 2, &y, 1));
                double all = 0;
                for (int64_t i = 0; i < in[0].count; i++) {
                    double one = CASES[c].f(get(&in[0], i), get(&in[1], i));
                    all += one;
                    if (!reduction)
                        expect(&y, i, one, 2, CASES[c].target);
                }
                if (reduction)
                    expect(&y, 0, reduction == 1 ? all / (double)in[0].count : all, 4, CASES[c].target);
                drop(&in[0]);
                drop(&in[1]);
                drop(&y);
            }
    tensor in[2] = {filled(TAP_F32, TURNED, -4, 0, SIZES(9, 5)), filled(TAP_I64, DENSE, 0, 4, SIZES(9))};
    put(&in[1], 3, -100);
    tensor out[2] = {shaped(TAP_F32, DENSE, 0, NULL), shaped(TAP_F32, DENSE, 0, NULL)};
    assert_true(run_call("aten.nll_loss_forward.default",
                         ARGS(VALUE("self", 0), VALUE("target", 1), {.name = "weight", .type = TAP_ARG_NONE},
                              INT("reduction", 1), INT("ignore_index", -100)), in, 2, out, 2));
    double all = 0;
    for (int64_t i = 0; i < 9; i++)
        all -= i == 3 ? 0 : get(&in[0], i * 5 + (int64_t)get(&in[1], i));
    expect(&out[0], 0, all / 8, 2, "nll loss");
    expect(&out[1], 0, 8, 0, "nll loss's weight");
    for (int i = 0; i < 2; i++) {
        drop(&in[i]);
        drop(&out[i]);
    }
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions), cmocka_unit_test(whole_tensors), cmocka_unit_test(running),
        cmocka_unit_test(softmaxes), cmocka_unit_test(layer_norms), cmocka_unit_test(batch_and_group_norms),
        cmocka_unit_test(batch_norm_of_inference),
        cmocka_unit_test(losses),
    };
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    return with_each_isa(group);
}
