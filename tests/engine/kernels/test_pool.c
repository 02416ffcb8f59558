/* test_pool.c - pooling and its gradients as graphs of one call, against loops over each window in double: every
 * instruction set, dtypes, two and three dimensions, with and without a batch, channels side by side, NaN.
 *
 * Numbers are quarters, so that sums are exact in any order. */
#include "engine/graph_test.h"

static const tap_dtype FLOATS[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_F16};
enum { SPATIAL = 3 };

typedef struct window {
    int64_t in[SPATIAL], out[SPATIAL]; /* out: of the adaptive kind */
    int64_t kernel[SPATIAL], stride[SPATIAL], padding[SPATIAL], dilation[SPATIAL];
    bool ceil, with_padding;
    int64_t divisor; /* 0: the window's own */
} window;

static const window WINDOWS[] = {
    {{5, 7, 9}, {2, 3, 4}, {2, 3, 3}, {2, 2, 1}, {0, 1, 1}, {1, 1, 1}, true, true, 0},
    {{6, 8, 5}, {6, 3, 2}, {3, 2, 2}, {1, 2, 2}, {1, 0, 1}, {1, 2, 2}, false, false, 0},
    {{4, 9, 8}, {1, 1, 1}, {2, 3, 4}, {2, 2, 3}, {1, 1, 2}, {1, 1, 1}, true, false, 5},
    {{3, 4, 4}, {5, 4, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, true, true, 0},
};

typedef struct problem {
    window w;
    int spatial; /* the last dimensions of the window are used */
    int64_t batch, channels; /* batch -1: there is no such dimension */
    bool largest, adaptive, last;
    tap_dtype dtype;
    int64_t out[SPATIAL];
} problem;

static int64_t out_of(const problem *p, int i)
{
    const window *w = &p->w;
    if (p->adaptive)
        return w->out[i];
    int64_t reach = (p->largest ? w->dilation[i] : 1) * (w->kernel[i] - 1), room = w->in[i] + 2 * w->padding[i] - reach - 1;
    int64_t out = (room + (w->ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
    return w->ceil && (out - 1) * w->stride[i] >= w->in[i] + w->padding[i] ? out - 1 : out;
}

static tensor image(const problem *p, tap_dtype dtype, const int64_t *sizes)
{
    tensor t = {.dtype = dtype, .ndim = p->spatial + (p->batch < 0 ? 1 : 2)};
    t.count = p->channels * (p->batch < 0 ? 1 : p->batch);
    int lead = t.ndim - p->spatial;
    int64_t step = p->last ? p->channels : 1;
    for (int i = p->spatial - 1; i >= 0; i--) {
        int64_t size = sizes[SPATIAL - p->spatial + i];
        t.size[lead + i] = size;
        t.stride[lead + i] = step;
        step *= size;
        t.count *= size;
    }
    t.size[lead - 1] = p->channels;
    t.stride[lead - 1] = p->last ? 1 : step;
    if (lead == 2) {
        t.size[0] = p->batch;
        t.stride[0] = p->last ? step : step * p->channels;
    }
    return t;
}

/* ----------------------------------------------------------------------------------------------------------- oracle */

/* Of window o along dimension i: where it begins, how far it may go, and its part of the divisor. */
static void range(const problem *p, int i, int64_t o, int64_t *begin, int64_t *end, int64_t *step, int64_t *weight)
{
    const window *w = &p->w;
    if (i < SPATIAL - p->spatial) {
        *begin = 0, *end = 1, *step = 1, *weight = 1;
        return;
    }
    *step = !p->adaptive && p->largest ? w->dilation[i] : 1;
    *begin = p->adaptive ? o * w->in[i] / p->out[i] : o * w->stride[i] - w->padding[i];
    *end = p->adaptive ? ((o + 1) * w->in[i] + p->out[i] - 1) / p->out[i] : *begin + *step * (w->kernel[i] - 1) + 1;
    int64_t first = *begin < 0 ? 0 : *begin, last = *end < w->in[i] ? *end : w->in[i], padded = w->in[i] + w->padding[i];
    *weight = !p->adaptive && w->with_padding ? (*end < padded ? *end : padded) - *begin : last - first;
}

typedef struct numbers {
    double *x, *y, *grad, *dx;
    int64_t *where;
} numbers;

static void pool_one(const problem *p, const numbers *of, int64_t plane, int64_t place)
{
    const int64_t *in = p->w.in, *out = p->out;
    int64_t begin[SPATIAL], end[SPATIAL], step[SPATIAL], weight[SPATIAL], rest = place, ins = 1, outs = 1;
    for (int i = SPATIAL - 1; i >= 0; i--) {
        bool there = i >= SPATIAL - p->spatial;
        range(p, i, there ? rest % out[i] : 0, &begin[i], &end[i], &step[i], &weight[i]);
        rest /= there ? out[i] : 1;
        ins *= there ? in[i] : 1;
        outs *= there ? out[i] : 1;
    }
    int64_t depth = p->spatial == 3 ? in[0] : 1, at = plane * outs + place;
    double divisor = (double)(!p->adaptive && p->w.divisor ? p->w.divisor : weight[0] * weight[1] * weight[2]);
    of->y[at] = p->largest ? -INFINITY : 0;
    for (int64_t a = begin[0]; a < end[0]; a += step[0])
        for (int64_t b = begin[1]; b < end[1]; b += step[1])
            for (int64_t c = begin[2]; c < end[2]; c += step[2]) {
                if (a < 0 || b < 0 || c < 0 || a >= depth || b >= in[1] || c >= in[2])
                    continue;
                int64_t i = (a * in[1] + b) * in[2] + c;
                double x = of->x[plane * ins + i];
                if (!p->largest) {
                    of->y[at] += x / divisor;
                    of->dx[plane * ins + i] += of->grad[at] / divisor;
                } else if (x > of->y[at] || isnan(x) || of->where[at] < 0) {
                    of->y[at] = x;
                    of->where[at] = i;
                }
            }
    if (p->largest)
        of->dx[plane * ins + of->where[at]] += of->grad[at];
}

/* ------------------------------------------------------------------------------------------------------------- runs */

static tap_arg int_list(const char *name, tap_arg *room, const problem *p, const int64_t *of)
{
    for (int i = 0; i < p->spatial; i++)
        room[i] = (tap_arg)INT(NULL, of[SPATIAL - p->spatial + i]);
    return (tap_arg){.name = name, .type = TAP_ARG_LIST, .items = room, .count = (size_t)p->spatial};
}

/* The arguments after the tensors; how many. */
static size_t make_args(const problem *p, tap_arg (*room)[SPATIAL], tap_arg *args, bool backward)
{
    size_t n = 0;
    if (p->adaptive && !backward)
        args[n++] = int_list("output_size", room[0], p, p->w.out);
    if (p->adaptive)
        return n;
    args[n++] = int_list("kernel_size", room[0], p, p->w.kernel);
    args[n++] = int_list("stride", room[1], p, p->w.stride);
    args[n++] = int_list("padding", room[2], p, p->w.padding);
    if (p->largest)
        args[n++] = int_list("dilation", room[3], p, p->w.dilation);
    args[n++] = (tap_arg)BOOL("ceil_mode", p->w.ceil);
    if (p->largest)
        return n;
    args[n++] = (tap_arg)BOOL("count_include_pad", p->w.with_padding);
    args[n++] = p->w.divisor ? (tap_arg)INT("divisor_override", p->w.divisor)
                             : (tap_arg){.name = "divisor_override", .type = TAP_ARG_NONE};
    return n;
}

static bool run_forward(const problem *p, const tensor *x, tensor *out)
{
    static const char *const TARGETS[2][2][2] = {
        {{"aten.avg_pool2d.default", "aten.avg_pool3d.default"},
         {"aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default"}},
        {{"aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default"},
         {"aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default"}}};
    tap_arg room[4][SPATIAL], args[8] = {VALUE("self", 0)};
    size_t n = 1 + make_args(p, room, args + 1, false);
    out[0] = image(p, p->dtype, p->out);
    out[1] = image(p, TAP_I64, p->out);
    return run_call(TARGETS[p->largest][p->adaptive][p->spatial - 2], args, n, x, 1, out, p->largest ? 2 : 1);
}

static bool run_backward(const problem *p, const tensor *grad, const tensor *x, const tensor *where, tensor *dx)
{
    static const char *const TARGETS[2][2][2] = {
        {{"aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default"},
         {"aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default"}},
        {{"aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default"},
         {"aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default"}}};
    tensor in[3] = {*grad, *x, *where};
    tap_arg room[4][SPATIAL], args[12] = {VALUE("grad_output", 0), VALUE("self", 1)};
    size_t n = 2 + make_args(p, room, args + 2, true);
    if (p->largest)
        args[n++] = (tap_arg)VALUE("indices", 2);
    *dx = image(p, p->dtype, p->w.in);
    return run_call(TARGETS[p->largest][p->adaptive][p->spatial - 2], args, n, in, p->largest ? 3 : 2, dx, 1);
}

static void check(const tensor *t, const double *right, double slack, const char *what)
{
    double eps = t->dtype == TAP_F64 ? 1e-15 : t->dtype == TAP_F32 ? 1e-7 : t->dtype == TAP_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < t->count; i++) {
        double given = get(t, i);
        if (isnan(right[i]) ? !isnan(given) : !(fabs(given - right[i]) <= slack * eps * (1 + fabs(right[i]))))
            fail_msg("%s %s: element %lld of %lld is %.9g, not %.9g", what, tap_dtype_describe(t->dtype)->name, (long long)i,
                     (long long)t->count, given, right[i]);
    }
}

static double *flat(const tensor *t)
{
    double *out = calloc((size_t)t->count + 1, sizeof *out);
    for (int64_t i = 0; i < t->count; i++)
        out[i] = get(t, i);
    return out;
}

/* odd: some are NaN. */
static void solve(problem *p, bool odd)
{
    for (int i = 0; i < SPATIAL; i++)
        p->out[i] = out_of(p, i);
    tensor x = image(p, p->dtype, p->w.in), grad = image(p, p->dtype, p->out), out[2], dx;
    allocate_tensor(&x);
    allocate_tensor(&grad);
    for (int64_t i = 0; i < x.count; i++)
        put(&x, i, odd && random_below(9) == 0 ? NAN : 0.25 * (double)random_below(33) - 4);
    for (int64_t i = 0; i < grad.count; i++)
        put(&grad, i, 0.25 * (double)random_below(9) - 1);
    numbers right = {.x = flat(&x), .grad = flat(&grad), .y = flat(&grad), .dx = calloc((size_t)x.count + 1, sizeof(double)),
                     .where = malloc((size_t)(grad.count + 1) * sizeof(int64_t))};
    memset(right.where, 0xFF, (size_t)grad.count * sizeof(int64_t));
    int64_t planes = p->channels * (p->batch < 0 ? 1 : p->batch);
    for (int64_t i = 0; i < grad.count; i++)
        pool_one(p, &right, i / (grad.count / planes), i % (grad.count / planes));
    const char *what = p->largest ? "max pooling" : "average pooling";
    if (!run_forward(p, &x, out))
        fail_msg("%s of %d dimensions is not run by the engine", what, p->spatial);
    check(&out[0], right.y, 4, what);
    for (int64_t i = 0; p->largest && i < out[1].count; i++)
        if ((int64_t)get(&out[1], i) != right.where[i])
            fail_msg("max pooling: index %lld is %g, not %lld", (long long)i, get(&out[1], i), (long long)right.where[i]);
    if (!run_backward(p, &grad, &x, &out[1], &dx))
        fail_msg("the gradient of %s is not run by the engine", what);
    check(&dx, right.dx, 8, "a gradient of pooling");
    tensor *const tensors[] = {&x, &grad, &out[0], &dx};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        drop(tensors[i]);
    if (p->largest)
        drop(&out[1]);
    free(right.x);
    free(right.y);
    free(right.grad);
    free(right.dx);
    free(right.where);
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static void pool_all(bool largest, bool adaptive)
{
    static const int64_t CHANNELS[] = {1, 3, 17, 70};
    for (size_t w = 0; w < COUNT_OF(WINDOWS); w++)
        for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
            for (int spatial = 2; spatial <= SPATIAL; spatial++)
                for (int last = 0; last < 2; last++) {
                    /* ATen adds these up in the narrow type itself, so they are left to it */
                    if (adaptive && !largest && spatial == 3 && d >= 2)
                        continue;
                    problem p = {.w = WINDOWS[w], .spatial = spatial, .batch = (int64_t)((w + d) % 4) - 1, .dtype = FLOATS[d],
                                 .channels = CHANNELS[(w + d + (size_t)spatial) % 4], .largest = largest,
                                 .adaptive = adaptive, .last = last};
                    solve(&p, largest && w % 2);
                }
}

static void largest(void **state)
{
    (void)state;
    pool_all(true, false);
}

static void average(void **state)
{
    (void)state;
    pool_all(false, false);
}

static void adaptive_largest(void **state)
{
    (void)state;
    pool_all(true, true);
}

static void adaptive_average(void **state)
{
    (void)state;
    pool_all(false, true);
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(largest), cmocka_unit_test(average), cmocka_unit_test(adaptive_largest),
                                       cmocka_unit_test(adaptive_average)};
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    return with_each_isa(group);
}
