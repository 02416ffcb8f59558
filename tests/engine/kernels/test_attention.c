/* test_attention.c - attention and its gradients as graphs of one call, against loops in double over the whole
 * matrix of scores: every instruction set, dtypes, masks, groups of heads, sizes past the blocks, nothing to look at.
 *
 * The products of matrices are own_gemm.h's; oneDNN's are in test_attention.py. */
#include "engine/graph_test.h"
#include "engine/own_gemm.h"

static const tap_dtype FLOATS[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_F16};

static double precision(tap_dtype dtype)
{
    return dtype == TAP_F64 ? 1e-12 : dtype == TAP_F32 ? 2e-6 : dtype == TAP_F16 ? 0x1p-10 : 0x1p-7;
}

static void expect(const tensor *t, int64_t i, double expected, double slack, const char *what)
{
    double given = get(t, i), allowed = precision(t->dtype) * slack * (1 + fabs(expected));
    if (given != expected && !(fabs(given - expected) <= allowed))
        fail_msg("%s %s: element %lld of %lld is %.17g, not %.17g", what, tap_dtype_describe(t->dtype)->name,
                 (long long)i, (long long)t->count, given, expected);
}

/* --------------------------------------------------------------------------------------------------------- problems */

/* WIDE_NUMBERS: of the type that is computed in */
typedef enum mask_kind { NO_MASK, WHOLE, PER_KEY, PER_PAIR, WIDE_NUMBERS, BOOLS } mask_kind;
typedef enum place { ROWS_INSIDE, HEADS_INSIDE, COLUMNS_APART } place; /* how queries, keys and values lie */

typedef struct problem {
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool causal;
    mask_kind mask;
    double scale; /* 0: the default */
    place where;
    bool blind; /* the mask hides every key from query 1 */
} problem;

static tap_dtype real_of(tap_dtype dtype)
{
    return dtype == TAP_F64 ? TAP_F64 : TAP_F32;
}

static tensor make(tap_dtype dtype, place where, int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    tensor t;
    if (where != HEADS_INSIDE) {
        t = shaped(dtype, where == COLUMNS_APART ? GAPS : DENSE, SIZES(batch, heads, rows, columns));
    } else {
        t = shaped(dtype, DENSE, SIZES(batch, rows, heads, columns));
        int64_t stride = t.stride[1];
        t.size[1] = heads;
        t.stride[1] = t.stride[2];
        t.size[2] = rows;
        t.stride[2] = stride;
    }
    return t;
}

static tensor make_filled(tap_dtype dtype, place where, int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    tensor t = make(dtype, where, batch, heads, rows, columns);
    allocate_tensor(&t);
    for (int64_t i = 0; i < t.count; i++)
        put(&t, i, 0.25 * (double)random_below(13) - 1.5);
    return t;
}

static tensor make_mask(const problem *p, tap_dtype dtype)
{
    tap_dtype as = p->mask == BOOLS ? TAP_BOOL : p->mask == WIDE_NUMBERS ? real_of(dtype) : dtype;
    tensor t;
    if (p->mask == WHOLE)
        t = make(as, p->where == COLUMNS_APART ? COLUMNS_APART : ROWS_INSIDE, p->batch, p->heads, p->queries, p->keys);
    else if (p->mask == PER_KEY)
        t = make(as, ROWS_INSIDE, p->batch, 1, 1, p->keys);
    else
        t = shaped(as, p->where == COLUMNS_APART ? TURNED : DENSE, SIZES(p->queries, p->keys));
    allocate_tensor(&t);
    for (int64_t i = 0; i < t.count; i++) {
        bool hidden = (p->blind && i / p->keys % p->queries == 1) || random_below(4) == 0;
        put(&t, i, p->mask == BOOLS ? !hidden : hidden ? -INFINITY : 0.5 * (double)random_below(5) - 1);
    }
    return t;
}

static double mask_at(const problem *p, const tensor *mask, int64_t batch, int64_t head, int64_t query, int64_t key)
{
    if (p->mask == NO_MASK)
        return 0;
    int64_t i = p->mask == WHOLE ? ((batch * p->heads + head) * p->queries + query) * p->keys + key
                : p->mask == PER_KEY ? batch * p->keys + key
                                     : query * p->keys + key;
    double value = get(mask, i);
    return p->mask == BOOLS ? (value != 0 ? 0 : -INFINITY) : value;
}

/* ----------------------------------------------------------------------------------------------------------- oracle */

typedef struct numbers {
    double *q, *k, *v, *grad, *probability, *out, *lse, *dq, *dk, *dv;
} numbers;

static double *flat(const tensor *t)
{
    double *out = malloc((size_t)(t->count + 1) * sizeof *out);
    for (int64_t i = 0; i < t->count; i++)
        out[i] = get(t, i);
    return out;
}

static double *zeros(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* One query: probabilities, the result and the logarithm of the sum. Nothing to look at: zeros and -inf. */
static void attend(const problem *p, const numbers *to, const tensor *mask, int64_t batch, int64_t head, int64_t query)
{
    int64_t row = (batch * p->heads + head) * p->queries + query;
    int64_t keys = (batch * p->key_heads + head / (p->heads / p->key_heads)) * p->keys;
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->width), top = -INFINITY, sum = 0;
    double *probability = to->probability + row * p->keys;
    for (int64_t key = 0; key < p->keys; key++) {
        probability[key] = scale * dot(to->q + row * p->width, to->k + (keys + key) * p->width, p->width) +
                           mask_at(p, mask, batch, head, query, key);
        if (p->causal && key > query)
            probability[key] = -INFINITY;
        top = fmax(top, probability[key]);
    }
    for (int64_t key = 0; key < p->keys; key++)
        sum += probability[key] = top == -INFINITY ? 0 : exp(probability[key] - top);
    for (int64_t key = 0; key < p->keys && sum > 0; key++) {
        probability[key] /= sum;
        for (int64_t c = 0; c < p->value_width; c++)
            to->out[row * p->value_width + c] += probability[key] * to->v[(keys + key) * p->value_width + c];
    }
    to->lse[row] = sum > 0 ? top + log(sum) : -INFINITY;
}

static void slope(const problem *p, const numbers *to, int64_t batch, int64_t head, int64_t query)
{
    int64_t row = (batch * p->heads + head) * p->queries + query;
    int64_t keys = (batch * p->key_heads + head / (p->heads / p->key_heads)) * p->keys;
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->width);
    const double *grad = to->grad + row * p->value_width;
    double mean = dot(grad, to->out + row * p->value_width, p->value_width);
    for (int64_t key = 0; key < p->keys; key++) {
        double probability = to->probability[row * p->keys + key];
        double towards = dot(grad, to->v + (keys + key) * p->value_width, p->value_width);
        for (int64_t c = 0; c < p->value_width; c++)
            to->dv[(keys + key) * p->value_width + c] += probability * grad[c];
        for (int64_t c = 0; c < p->width; c++) {
            double score = scale * probability * (towards - mean);
            to->dq[row * p->width + c] += score * to->k[(keys + key) * p->width + c];
            to->dk[(keys + key) * p->width + c] += score * to->q[row * p->width + c];
        }
    }
}

static numbers compute(const problem *p, const tensor *in, const tensor *mask)
{
    int64_t rows = p->batch * p->heads * p->queries;
    numbers to = {.q = flat(&in[0]), .k = flat(&in[1]), .v = flat(&in[2]), .grad = flat(&in[3])};
    to.probability = zeros(rows * p->keys);
    to.out = zeros(rows * p->value_width);
    to.lse = zeros(rows);
    to.dq = zeros(in[0].count);
    to.dk = zeros(in[1].count);
    to.dv = zeros(in[2].count);
    for (int64_t row = 0; row < rows; row++) {
        int64_t head = row / p->queries;
        attend(p, &to, mask, head / p->heads, head % p->heads, row % p->queries);
        slope(p, &to, head / p->heads, head % p->heads, row % p->queries);
    }
    return to;
}

static void forget(numbers *of)
{
    double *const all[] = {of->q, of->k, of->v, of->grad, of->probability, of->out, of->lse, of->dq, of->dk, of->dv};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

/* ------------------------------------------------------------------------------------------------------------- runs */

static tap_arg mask_arg(const problem *p, int input)
{
    return p->mask == NO_MASK ? (tap_arg){.name = "attn_mask", .type = TAP_ARG_NONE} : (tap_arg)VALUE("attn_mask", input);
}

static tap_arg scale_arg(const problem *p)
{
    return p->scale == 0 ? (tap_arg){.name = "scale", .type = TAP_ARG_NONE} : (tap_arg)FLOAT("scale", p->scale);
}

static bool run_forward(const problem *p, tap_dtype dtype, double dropout, const tensor *in, const tensor *mask, tensor *out)
{
    tensor all[4] = {in[0], in[1], in[2], *mask};
    out[0] = make(dtype, p->where == ROWS_INSIDE ? HEADS_INSIDE : p->where, p->batch, p->heads, p->queries, p->value_width);
    out[1] = shaped(real_of(dtype), p->where == HEADS_INSIDE ? TURNED : DENSE, SIZES(p->batch, p->heads, p->queries));
    return run_call("aten._scaled_dot_product_flash_attention_for_cpu.default",
                    ARGS(VALUE("query", 0), VALUE("key", 1), VALUE("value", 2), FLOAT("dropout_p", dropout),
                         BOOL("is_causal", p->causal), mask_arg(p, 3), scale_arg(p)),
                    all, p->mask == NO_MASK ? 3 : 4, out, 2);
}

static bool run_backward(const problem *p, const tensor *in, const tensor *mask, const tensor *results, tensor *out)
{
    tensor all[7] = {in[3], in[0], in[1], in[2], results[0], results[1], *mask};
    for (int i = 0; i < 3; i++)
        out[i] = make(in[i].dtype, p->where, p->batch, in[i].size[1], in[i].size[2], in[i].size[3]);
    return run_call("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
                    ARGS(VALUE("grad_out", 0), VALUE("query", 1), VALUE("key", 2), VALUE("value", 3), VALUE("out", 4),
                         VALUE("logsumexp", 5), FLOAT("dropout_p", 0), BOOL("is_causal", p->causal), mask_arg(p, 6),
                         scale_arg(p)),
                    all, p->mask == NO_MASK ? 6 : 7, out, 3);
}

static void check(const tensor *t, const double *expected, double slack, const char *what)
{
    for (int64_t i = 0; i < t->count; i++)
        expect(t, i, expected[i], slack, what);
}

/* The gradients' inputs are the oracle's results, rounded, so that one kernel's fault is not the other's. */
static void solve(const problem *p, tap_dtype dtype)
{
    tensor in[4] = {make_filled(dtype, p->where, p->batch, p->heads, p->queries, p->width),
                    make_filled(dtype, p->where, p->batch, p->key_heads, p->keys, p->width),
                    make_filled(dtype, p->where, p->batch, p->key_heads, p->keys, p->value_width),
                    make_filled(dtype, p->where, p->batch, p->heads, p->queries, p->value_width)};
    tensor mask = {0}, results[2], grads[3];
    if (p->mask != NO_MASK)
        mask = make_mask(p, dtype);
    numbers right = compute(p, in, &mask);
    assert_true(run_forward(p, dtype, 0, in, &mask, results));
    check(&results[0], right.out, 4, "attention");
    check(&results[1], right.lse, 4, "attention's logarithms");
    for (int64_t i = 0; i < results[0].count; i++)
        put(&results[0], i, right.out[i]);
    for (int64_t i = 0; i < results[1].count; i++)
        put(&results[1], i, right.lse[i]);
    assert_true(run_backward(p, in, &mask, results, grads));
    check(&grads[0], right.dq, 16, "the queries' gradient");
    check(&grads[1], right.dk, 16, "the keys' gradient");
    check(&grads[2], right.dv, 16, "the values' gradient");
    forget(&right);
    for (int i = 0; i < 4; i++)
        drop(&in[i]);
    for (int i = 0; i < 3; i++)
        drop(&grads[i]);
    drop(&results[0]);
    drop(&results[1]);
    drop(&mask);
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static void sizes_and_layouts(void **state)
{
    (void)state;
    static const int64_t WIDTHS[] = {1, 5, 8, 19};
    for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
        for (size_t w = 0; w < COUNT_OF(WIDTHS); w++)
            for (int causal = 0; causal < 2; causal++) {
                problem p = {2, 3, 3, 11, 13, WIDTHS[w], WIDTHS[(w + d) % 4], .causal = causal,
                             .where = (place)((w + d + (size_t)causal) % 3)};
                solve(&p, FLOATS[d]);
            }
}

/* More queries and keys than a block of either, of each size a block has. */
static void blocks(void **state)
{
    (void)state;
    static const int64_t SIZES_OF[][2] = {{37, 600}, {600, 37}, {130, 513}, {513, 520}, {1, 1030}};
    for (size_t s = 0; s < COUNT_OF(SIZES_OF); s++)
        for (int causal = 0; causal < 2; causal++) {
            problem p = {1, 1, 1, SIZES_OF[s][0], SIZES_OF[s][1], 3, 2, .causal = causal, .where = (place)(s % 3)};
            solve(&p, s % 2 ? TAP_F32 : TAP_BF16);
        }
}

static void groups_of_heads(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
        for (int64_t share = 1; share <= 6; share++) {
            problem p = {2, 6, 6 / share, 7, 9, 5, 6, .causal = d % 2, .where = (place)(d % 3)};
            if (6 % share == 0)
                solve(&p, FLOATS[d]);
        }
}

static void masks(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
        for (int kind = WHOLE; kind <= WIDE_NUMBERS; kind++)
            for (int blind = 0; blind < 2; blind++) {
                problem p = {2, 4, 2, 9, 17, 6, 5, .mask = (mask_kind)kind, .blind = blind,
                             .where = (place)((d + (size_t)kind) % 3), .causal = kind == WHOLE && blind};
                solve(&p, FLOATS[d]);
            }
    /* hidden over whole blocks of keys, and over the first of them */
    problem far = {1, 1, 1, 3, 1100, 2, 2, .mask = WHOLE, .blind = true};
    solve(&far, TAP_F32);
}

static void scales(void **state)
{
    (void)state;
    static const double SCALES[] = {0.3, 1, -0.5, 4};
    for (size_t s = 0; s < COUNT_OF(SCALES); s++) {
        problem p = {1, 2, 1, 6, 10, 7, 3, .scale = SCALES[s], .causal = s % 2};
        solve(&p, s % 2 ? TAP_F64 : TAP_F32);
    }
}

/* Without keys a result is zero, without queries there is none. */
static void nothing(void **state)
{
    (void)state;
    static const int64_t CASES[][3] = {{2, 0, 5}, {2, 5, 0}, {0, 5, 5}, {1, 0, 0}};
    for (size_t c = 0; c < COUNT_OF(CASES); c++)
        for (size_t d = 0; d < COUNT_OF(FLOATS); d++)
            for (int causal = 0; causal < 2; causal++) {
                problem p = {CASES[c][0], 2, 1, CASES[c][1], CASES[c][2], 3, 4, .causal = causal, .where = (place)(d % 3)};
                solve(&p, FLOATS[d]);
            }
}

/* Random numbers are the framework's, and heads that do not share evenly. So are masks of bools, of which ATen makes
 * numbers before it calls this operator. */
static void left_to_the_host(void **state)
{
    (void)state;
    static const struct {
        int64_t heads;
        double dropout;
        mask_kind mask;
    } CASES[] = {{2, 0.5, NO_MASK}, {3, 0, NO_MASK}, {2, 0, BOOLS}};
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        problem p = {1, CASES[c].heads, 2, 4, 4, 3, 3, .mask = CASES[c].mask};
        tensor in[3], out[2], mask = {0};
        for (int i = 0; i < 3; i++)
            in[i] = make_filled(TAP_F32, ROWS_INSIDE, 1, i == 0 ? p.heads : 2, 4, 3);
        if (p.mask != NO_MASK)
            mask = make_mask(&p, TAP_F32);
        assert_false(run_forward(&p, TAP_F32, CASES[c].dropout, in, &mask, out));
        for (int i = 0; i < 3; i++)
            drop(&in[i]);
        drop(&out[0]);
        drop(&out[1]);
        drop(&mask);
    }
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_layouts), cmocka_unit_test(blocks), cmocka_unit_test(groups_of_heads),
        cmocka_unit_test(masks), cmocka_unit_test(scales), cmocka_unit_test(nothing), cmocka_unit_test(left_to_the_host),
    };
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    use_own_gemm();
    return with_each_isa(group);
}
