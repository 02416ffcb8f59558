/* test_conv.c - convolutions of one to three dimensions, transposed ones, and their gradients as graphs of one
 * call, against loops over every product in double: strides, padding, dilation, groups, layouts, dtypes, no images.
 *
 * They are oneDNN's. It is looked for in TENSORTAP_ONEDNN, in .venv and among the system's libraries; without it what
 * needs it is skipped. */
#include "engine/graph_test.h"
#include "engine/onednn.h"
#include "tensortap/tensortap_engine.h"

#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* oneDNN and its OpenMP are not compiled for the sanitizer, which therefore does not see how their threads wait for each
 * other. */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libdnnl.so\ncalled_from_lib:libgomp.so\n";
}
#endif

static const tap_dtype FLOATS[] = {TAP_F32, TAP_BF16, TAP_F16};
enum { SPATIAL = 3 };

/* Numbers are quarters, so that sums of float32 are exact in any order; the others are rounded. */
static double precision(tap_dtype dtype)
{
    return dtype == TAP_F32 ? 0 : dtype == TAP_F16 ? 0x1p-10 : 0x1p-7;
}

/* --------------------------------------------------------------------------------------------------------- problems */

typedef struct window {
    int64_t in[SPATIAL], kernel[SPATIAL], stride[SPATIAL], padding[SPATIAL], dilation[SPATIAL], output_padding[SPATIAL];
    int64_t groups, inside, outside; /* channels */
} window;

static const window WINDOWS[] = {
    {{9, 7, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, 3, 5},
    {{9, 7, 6}, {2, 3, 1}, {2, 1, 3}, {0, 2, 0}, {1, 1, 1}, {1, 0, 2}, 1, 4, 7},
    {{8, 9, 7}, {3, 2, 2}, {1, 2, 1}, {2, 1, 0}, {2, 3, 1}, {1, 2, 0}, 1, 2, 3},
    {{6, 5, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, 1, 8, 8},
    {{6, 5, 4}, {1, 1, 1}, {2, 3, 2}, {0, 0, 0}, {1, 1, 1}, {1, 2, 1}, 1, 1, 1},
    {{7, 8, 5}, {3, 2, 3}, {2, 1, 1}, {1, 1, 1}, {2, 1, 1}, {0, 0, 0}, 2, 4, 6},  /* groups */
    {{7, 8, 5}, {3, 3, 2}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}, {0, 1, 0}, 8, 8, 8},  /* depthwise */
    {{7, 6, 5}, {2, 3, 2}, {1, 1, 1}, {0, 1, 1}, {1, 2, 1}, {0, 0, 0}, 3, 3, 6},  /* depthwise, two of each */
    {{6, 5, 4}, {2, 2, 2}, {1, 1, 2}, {0, 1, 0}, {1, 1, 1}, {0, 0, 1}, 1, 16, 32}, /* a vector's width of channels */
    {{5, 4, 4}, {3, 2, 2}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}, {0, 0, 0}, 1, 17, 33},
    {{3, 3, 3}, {3, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, 1, 5, 4},  /* one place */
};

typedef struct problem {
    window w;
    int spatial;
    int64_t batch, out[SPATIAL];
    bool transposed, bias, last; /* last: channels lie side by side */
    tap_dtype dtype;
} problem;

static problem make_problem(const window *w, int spatial, bool transposed)
{
    problem p = {.w = *w, .spatial = spatial, .batch = 2, .transposed = transposed, .dtype = TAP_F32};
    for (int i = 0; i < spatial; i++) {
        int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1;
        p.out[i] = transposed ? (w->in[i] - 1) * w->stride[i] - 2 * w->padding[i] + reach + w->output_padding[i]
                              : (w->in[i] + 2 * w->padding[i] - reach) / w->stride[i] + 1;
    }
    return p;
}

/* [first, second, ...] with the places of `sizes`; last: the second dimension is the innermost. */
static tensor image(const problem *p, int64_t first, int64_t second, const int64_t *sizes)
{
    tensor t = {.dtype = p->dtype, .ndim = p->spatial + 2, .size = {first, second}, .count = first * second};
    int64_t step = p->last ? second : 1;
    for (int i = p->spatial - 1; i >= 0; i--) {
        t.size[i + 2] = sizes[i];
        t.stride[i + 2] = step;
        step *= sizes[i];
        t.count *= sizes[i];
    }
    t.stride[1] = p->last ? 1 : step;
    t.stride[0] = p->last ? step : step * second;
    return t;
}

static tensor weight_like(const problem *p)
{
    int64_t big = p->transposed ? p->w.inside : p->w.outside, small = p->transposed ? p->w.outside : p->w.inside;
    return image(p, big, small / p->w.groups, p->w.kernel);
}

static void fill(tensor *t)
{
    allocate_tensor(t);
    for (int64_t i = 0; i < t->count; i++)
        put(t, i, 0.25 * (double)random_below(13) - 1.5);
}

/* ----------------------------------------------------------------------------------------------------------- oracle */

typedef struct numbers {
    double *x, *weight, *y, *grad, *dx, *dweight; /* row-major */
} numbers;

static double *flat(const tensor *t, bool zero)
{
    double *out = calloc((size_t)t->count + 1, sizeof *out);
    for (int64_t i = 0; !zero && i < t->count; i++)
        out[i] = get(t, i);
    return out;
}

static int64_t product(const int64_t *sizes, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= sizes[i];
    return all;
}

/* Where `place` of the smaller side and tap `tap` of the window meet the larger side; -1: in the padding. The window
 * slides over x, and over y when transposed. */
static int64_t meet(const problem *p, int64_t place, int64_t tap)
{
    const int64_t *small = p->transposed ? p->w.in : p->out, *large = p->transposed ? p->out : p->w.in;
    int64_t at = 0, step = 1;
    for (int i = p->spatial - 1; i >= 0; i--) {
        int64_t k = place % small[i] * p->w.stride[i] - p->w.padding[i] + tap % p->w.kernel[i] * p->w.dilation[i];
        if (k < 0 || k >= large[i])
            return -1;
        at += k * step;
        step *= large[i];
        place /= small[i];
        tap /= p->w.kernel[i];
    }
    return at;
}

static void add_products(const problem *p, const numbers *to, int64_t batch, int64_t place, int64_t tap)
{
    int64_t met = meet(p, place, tap), taps = product(p->w.kernel, p->spatial);
    int64_t ins = product(p->w.in, p->spatial), outs = product(p->out, p->spatial);
    int64_t each_in = p->w.inside / p->w.groups, each_out = p->w.outside / p->w.groups;
    for (int64_t c = 0; met >= 0 && c < p->w.outside * each_in; c++) {
        int64_t out = c / each_in, in = out / each_out * each_in + c % each_in;
        int64_t w = p->transposed ? in * each_out + out % each_out : out * each_in + c % each_in;
        int64_t xi = (batch * p->w.inside + in) * ins + (p->transposed ? place : met);
        int64_t yi = (batch * p->w.outside + out) * outs + (p->transposed ? met : place);
        w = w * taps + tap;
        to->y[yi] += to->x[xi] * to->weight[w];
        to->dx[xi] += to->grad[yi] * to->weight[w];
        to->dweight[w] += to->grad[yi] * to->x[xi];
    }
}

static void compute(const problem *p, const numbers *to)
{
    int64_t places = product(p->transposed ? p->w.in : p->out, p->spatial);
    for (int64_t i = 0; i < p->batch * places; i++)
        for (int64_t tap = 0; tap < product(p->w.kernel, p->spatial); tap++)
            add_products(p, to, i / places, i % places, tap);
}

/* ------------------------------------------------------------------------------------------------------------- runs */

typedef struct how_args {
    tap_arg stride[SPATIAL], padding[SPATIAL], dilation[SPATIAL], output_padding[SPATIAL], list[6];
} how_args;

static tap_arg int_list(const char *name, tap_arg *room, const int64_t *numbers_of, int n)
{
    for (int i = 0; i < n; i++)
        room[i] = (tap_arg)INT(NULL, numbers_of[i]);
    return (tap_arg){.name = name, .type = TAP_ARG_LIST, .items = room, .count = (size_t)n};
}

static void make_args(const problem *p, how_args *args)
{
    args->list[0] = int_list("stride", args->stride, p->w.stride, p->spatial);
    args->list[1] = int_list("padding", args->padding, p->w.padding, p->spatial);
    args->list[2] = int_list("dilation", args->dilation, p->w.dilation, p->spatial);
    args->list[3] = (tap_arg)BOOL("transposed", p->transposed);
    static const int64_t NONE[SPATIAL] = {0};
    args->list[4] = int_list("output_padding", args->output_padding, p->transposed ? p->w.output_padding : NONE, p->spatial);
    args->list[5] = (tap_arg)INT("groups", p->w.groups);
}

static bool run_forward(const problem *p, const tensor *in, tensor *y)
{
    how_args how;
    make_args(p, &how);
    tap_arg args[9] = {VALUE("input", 0), VALUE("weight", 1), {.name = "bias", .type = TAP_ARG_NONE}};
    if (p->bias)
        args[2] = (tap_arg)VALUE("bias", 2);
    memcpy(args + 3, how.list, sizeof how.list);
    *y = image(p, p->batch, p->w.outside, p->out);
    return run_call("aten.convolution.default", args, 9, in, p->bias ? 3 : 2, y, 1);
}

/* wanted: which of dx, dweight and dbias. */
static bool run_backward(const problem *p, const tensor *in, const tensor *grad, const bool *wanted, tensor *out)
{
    how_args how;
    make_args(p, &how);
    tensor all[3] = {*grad, in[0], in[1]};
    tap_arg mask[3] = {BOOL(NULL, wanted[0]), BOOL(NULL, wanted[1]), BOOL(NULL, wanted[2])};
    tap_arg sizes[1] = {INT(NULL, p->w.outside)};
    tap_arg args[11] = {VALUE("grad_output", 0), VALUE("input", 1), VALUE("weight", 2),
                        {.name = "bias_sizes", .type = TAP_ARG_LIST, .items = sizes, .count = 1}};
    memcpy(args + 4, how.list, sizeof how.list);
    args[10] = (tap_arg){.name = "output_mask", .type = TAP_ARG_LIST, .items = mask, .count = 3};
    out[0] = image(p, p->batch, p->w.inside, p->w.in);
    out[1] = weight_like(p);
    out[2] = shaped(p->dtype, DENSE, SIZES(p->w.outside));
    for (int i = 0; i < 3; i++)
        if (!wanted[i])
            out[i] = (tensor){.dtype = TAP_DTYPE_NONE};
    return run_call("aten.convolution_backward.default", args, 11, all, 3, out, 3);
}

static void check(const problem *p, const tensor *t, const double *expected, const double *more, const char *what)
{
    int64_t places = product(p->out, p->spatial);
    for (int64_t i = 0; i < t->count; i++) {
        double right = expected[i] + (more ? more[i / places % p->w.outside] : 0), given = get(t, i);
        if (!(fabs(given - right) <= precision(t->dtype) * fabs(right)))
            fail_msg("%s of %d dimensions, %s: element %lld of %lld is %.9g, not %.9g", what, p->spatial,
                     tap_dtype_describe(t->dtype)->name, (long long)i, (long long)t->count, given, right);
    }
}

static void check_gradients(const problem *p, const tensor *in, const tensor *grad, const numbers *right, const bool *wanted)
{
    tensor out[3];
    double *dbias = calloc((size_t)p->w.outside, sizeof *dbias);
    for (int64_t i = 0; i < grad->count; i++)
        dbias[i / product(p->out, p->spatial) % p->w.outside] += right->grad[i];
    if (!run_backward(p, in, grad, wanted, out))
        fail_msg("a gradient of %d dimensions is not run by the engine", p->spatial);
    if (wanted[0])
        check(p, &out[0], right->dx, NULL, "the image's gradient");
    if (wanted[1])
        check(p, &out[1], right->dweight, NULL, "the weight's gradient");
    if (wanted[2])
        check(p, &out[2], dbias, NULL, "the bias's gradient");
    for (int i = 0; i < 3; i++)
        drop(&out[i]);
    free(dbias);
}

/* How the image and the gradient lie: as the problem says; with gaps, and turned around; one number for all places. */
typedef enum oddity { AS_USUAL, APART, EXPANDED } oddity;

static tensor gradient_like(const problem *p, oddity how)
{
    int64_t size[SPATIAL + 2] = {p->batch, p->w.outside};
    memcpy(size + 2, p->out, sizeof p->out);
    tensor t = how == APART ? shaped(p->dtype, TURNED, p->spatial + 2, size) : image(p, p->batch, p->w.outside, p->out);
    if (how == EXPANDED)
        memset(t.stride, 0, sizeof t.stride);
    return t;
}

static void solve(const problem *p, oddity how)
{
    static const bool ALL[] = {true, true, true}, SOME[][3] = {{true, false, false}, {false, true, true}};
    int64_t size[SPATIAL + 2] = {p->batch, p->w.inside}, bias_size[] = {p->w.outside};
    memcpy(size + 2, p->w.in, sizeof p->w.in);
    tensor in[3] = {how == APART ? shaped(p->dtype, GAPS, p->spatial + 2, size) : image(p, p->batch, p->w.inside, p->w.in),
                    weight_like(p), shaped(p->dtype, how == APART ? GAPS : DENSE, 1, bias_size)};
    for (int i = 0; i < 3; i++)
        fill(&in[i]);
    tensor grad = gradient_like(p, how), y;
    fill(&grad);
    numbers right = {flat(&in[0], false), flat(&in[1], false), flat(&grad, true), flat(&grad, false), flat(&in[0], true),
                     flat(&in[1], true)};
    double *bias = flat(&in[2], false);
    compute(p, &right);
    if (!run_forward(p, in, &y))
        fail_msg("a convolution of %d dimensions is not run by the engine", p->spatial);
    check(p, &y, right.y, p->bias ? bias : NULL, "a convolution");
    check_gradients(p, in, &grad, &right, p->bias ? ALL : SOME[p->spatial % 2]);
    double *const numbers_of[] = {right.x, right.weight, right.y, right.grad, right.dx, right.dweight, bias};
    for (size_t i = 0; i < COUNT_OF(numbers_of); i++)
        free(numbers_of[i]);
    for (int i = 0; i < 3; i++)
        drop(&in[i]);
    drop(&grad);
    drop(&y);
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static void need_onednn(void)
{
    if (tap__dnn())
        return;
    print_message("oneDNN was not found: TENSORTAP_ONEDNN names no libdnnl.so.3, and neither .venv nor the system has one\n");
    skip();
}

static void solve_all(bool transposed)
{
    for (size_t w = 0; w < COUNT_OF(WINDOWS); w++)
        for (int spatial = 1; spatial <= SPATIAL; spatial++)
            for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
                for (int last = 0; last < 2; last++) {
                    problem p = make_problem(&WINDOWS[w], spatial, transposed);
                    p.dtype = FLOATS[d];
                    p.last = last;
                    p.bias = (w + d + (size_t)last) % 2;
                    solve(&p, AS_USUAL);
                }
}

static void convolutions(void **state)
{
    (void)state;
    need_onednn();
    solve_all(false);
}

static void transposed_convolutions(void **state)
{
    (void)state;
    need_onednn();
    solve_all(true);
}

static void odd_strides(void **state)
{
    (void)state;
    need_onednn();
    for (size_t w = 0; w < COUNT_OF(WINDOWS); w += 2)
        for (int spatial = 1; spatial <= SPATIAL; spatial++)
            for (int transposed = 0; transposed < 2; transposed++) {
                problem p = make_problem(&WINDOWS[w], spatial, transposed);
                p.dtype = FLOATS[(w / 2 + (size_t)spatial) % 3];
                p.bias = true;
                solve(&p, APART);
                solve(&p, EXPANDED);
            }
}

/* More channels than one piece of work takes, whatever the number of threads. */
static void many_channels(void **state)
{
    static const int64_t CHANNELS[] = {64, 65, 127, 512, 519, 520, 576, 1024, 1030, 4096, 8200};
    static const int THREADS[] = {1, 2, 16};
    (void)state;
    need_onednn();
    int usual = tap__threads();
    for (size_t t = 0; t < COUNT_OF(THREADS); t++) {
        if (!set_threads(THREADS[t]) && t > 0)
            continue;
        for (size_t c = 0; c < COUNT_OF(CHANNELS); c++)
            for (int last = 0; last < 2; last++) {
                problem p = make_problem(&WINDOWS[3], 2, false);
                p.w.inside = 3;
                p.w.outside = CHANNELS[c];
                p.bias = true;
                p.last = last;
                p.dtype = FLOATS[(c + t) % 3];
                solve(&p, AS_USUAL);
            }
    }
    set_threads(usual);
}

/* Without images the results are empty and the weight's gradient is zero; nothing is asked of oneDNN. */
static void no_images(void **state)
{
    (void)state;
    for (int spatial = 1; spatial <= SPATIAL; spatial++)
        for (int transposed = 0; transposed < 2; transposed++) {
            problem p = make_problem(&WINDOWS[0], spatial, transposed);
            p.batch = 0;
            p.bias = true;
            solve(&p, AS_USUAL);
        }
}

/* float64 is not oneDNN's. */
static void left_to_the_host(void **state)
{
    (void)state;
    problem p = make_problem(&WINDOWS[0], 2, false);
    p.dtype = TAP_F64;
    tensor in[2] = {image(&p, p.batch, p.w.inside, p.w.in), weight_like(&p)}, y;
    fill(&in[0]);
    fill(&in[1]);
    assert_false(run_forward(&p, in, &y));
    drop(&in[0]);
    drop(&in[1]);
    drop(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions), cmocka_unit_test(transposed_convolutions), cmocka_unit_test(odd_strides),
        cmocka_unit_test(many_channels),
        cmocka_unit_test(no_images), cmocka_unit_test(left_to_the_host),
    };
    tap_error err;
    const char *named = getenv("TENSORTAP_ONEDNN");
#ifdef TAP_ONEDNN
    if (!named && access(TAP_ONEDNN, R_OK) == 0)
        named = TAP_ONEDNN;
#endif
    tap_engine_set_onednn(named, &err);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
