/* test_matmul.c - products of matrices and vectors as graphs of one call, against loops in double: every
 * instruction set, dtypes, layouts, sizes past the blocks, addends that are broadcast, nothing to add up.
 *
 * Products of two matrices are own_gemm.h's; oneDNN's are in test_matmul.py. Numbers are quarters, so that every sum is
 * exact in any order, and what is compared is exact too: 16-bit floats are rounded once. */
#include "engine/graph_test.h"
#include "engine/own_gemm.h"


/* What is added: nothing, all of it, or one row, one column, one number for all. */
typedef enum addend { NOTHING, WHOLE, ROW, COLUMN, NUMBER } addend;

typedef struct product {
    tap_dtype dtype;
    int64_t batch, m, n, k; /* batch 0: a matrix, no batch of them */
    layout a, b, c;
    addend adds;
    double alpha, beta;
} product;

static bool is_whole(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->kind != 'F';
}

static tensor matrix(const product *p, layout how, int64_t rows, int64_t columns, int64_t batch)
{
    int64_t size[] = {batch, rows, columns};
    return shaped(p->dtype, how, p->batch ? 3 : 2, p->batch ? size : size + 1);
}

static void fill(tensor *t)
{
    allocate_tensor(t);
    for (int64_t i = 0; i < t->count; i++)
        put(t, i, is_whole(t->dtype) ? (double)random_below(3) - (t->dtype != TAP_U8) : 0.25 * (double)random_below(9) - 1);
}

static void check(const product *p, const tensor *in, const tensor *d, const tensor *c, const char *target)
{
    for (int64_t i = 0; i < c->count; i++) {
        int64_t batch = i / (p->m * p->n), row = i / p->n % p->m, column = i % p->n;
        double sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += get(&in[0], (batch * p->m + row) * p->k + k) * get(&in[1], (batch * p->k + k) * p->n + column);
        int64_t added = p->adds == ROW ? column : p->adds == COLUMN ? row : p->adds == NUMBER ? 0 : i;
        if (p->adds)
            sum = p->alpha * sum + p->beta * get(d, added);
        if (get(c, i) != stored(p->dtype, sum))
            fail_msg("%s %s [%lld %lld %lld]: element %lld is %.17g, not %.17g", target, tap_dtype_describe(p->dtype)->name,
                     (long long)p->m, (long long)p->n, (long long)p->k, (long long)i, get(c, i), stored(p->dtype, sum));
    }
}

/* mv, addmv and dot where a vector is one; mm, bmm and the like else. False: left to the host. */
static bool multiply(const product *p, bool vectors)
{
    int64_t batch = p->batch ? p->batch : 1;
    bool column = vectors && p->n == 1, dot = column && p->m == 1 && !p->adds;
    tensor in[3] = {matrix(p, p->a, p->m, p->k, batch), matrix(p, p->b, p->k, p->n, batch), {0}};
    tensor c = matrix(p, p->c, p->m, p->n, batch), d = {0};
    if (column) { /* the same elements, one dimension less */
        in[1] = shaped(p->dtype, p->b, SIZES(p->k));
        c = shaped(p->dtype, DENSE, SIZES(p->m));
    }
    if (dot) {
        in[0] = shaped(p->dtype, p->a, SIZES(p->k));
        c = shaped(p->dtype, DENSE, 0, NULL);
    }
    fill(&in[0]);
    fill(&in[1]);
    if (p->adds) {
        d = p->adds == ROW      ? shaped(p->dtype, p->b, SIZES(p->n))
            : p->adds == COLUMN ? shaped(p->dtype, p->b, SIZES(p->m, 1))
            : p->adds == NUMBER ? shaped(p->dtype, p->b, SIZES(1, 1))
            : column            ? shaped(p->dtype, p->a, SIZES(p->m))
                                : matrix(p, p->a, p->m, p->n, batch);
        fill(&d);
    }
    const char *target = dot        ? "aten.dot.default"
                         : column   ? (p->adds ? "aten.addmv.default" : "aten.mv.default")
                         : p->batch ? (p->adds ? "aten.baddbmm.default" : "aten.bmm.default")
                                    : (p->adds ? "aten.addmm.default" : "aten.mm.default");
    const char *first = column ? "mat" : p->batch ? "batch1" : "mat1";
    const char *second = column ? "vec" : p->batch && p->adds ? "batch2" : "mat2";
    tap_arg alpha = is_whole(p->dtype) ? (tap_arg)INT("alpha", (int64_t)p->alpha) : (tap_arg)FLOAT("alpha", p->alpha);
    tap_arg beta = is_whole(p->dtype) ? (tap_arg)INT("beta", (int64_t)p->beta) : (tap_arg)FLOAT("beta", p->beta);
    in[2] = d;
    bool native = p->adds ? run_call(target, ARGS(VALUE("self", 2), VALUE(first, 0), VALUE(second, 1), beta, alpha), in, 3, &c, 1)
                          : run_call(target, ARGS(VALUE("self", 0), VALUE(dot ? "tensor" : second, 1)), in, 2, &c, 1);
    if (native)
        check(p, in, &d, &c, target);
    for (int i = 0; i < 3; i++)
        drop(&in[i]);
    drop(&c);
    return native;
}

/* Rows and columns longer than what is summed at once, of neighbours and not. */
static void vectors(void **state)
{
    (void)state;
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_F16};
    static const int64_t MANY[][3] = {{1, 1, 1}, {1, 1, 77}, {5, 1, 33}, {7, 1, 3}, {33, 1, 64}, {3, 1, 17000}, {1500, 1, 6},
                                      {1, 9, 40}, {1, 1030, 5}, {1, 2, 16500}, {4, 1, 0}, {0, 1, 4}};
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t s = 0; s < COUNT_OF(MANY); s++)
            for (int how = 0; how < 2; how++)
                for (int adds = 0; adds < 2; adds++) {
                    if (MANY[s][2] > 1000 && how != adds) /* long ones take their time under an emulator */
                        continue;
                    product p = {DTYPES[d], 0, MANY[s][0], MANY[s][1], MANY[s][2], how ? TURNED : DENSE, how ? TURNED : DENSE,
                                 DENSE, adds ? WHOLE : NOTHING, adds ? 2 : 1, adds ? 0.5 : 1};
                    if (!multiply(&p, true))
                        fail_msg("%s: a vector is not ours", tap_dtype_describe(p.dtype)->name);
                    p.batch = 3;
                    p.a = p.b = DENSE;
                    assert_true(MANY[s][2] > 1000 || multiply(&p, false));
                }
}

static void matrices(void **state)
{
    (void)state;
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_F64, TAP_I64, TAP_I32, TAP_I16, TAP_I8, TAP_U8};
    static const int64_t MANY[][3] = {{3, 4, 5}, {2, 2, 1}, {17, 8, 9}, {4, 300, 6}, {9, 33, 12}, {5, 3, 0}, {0, 3, 4},
                                      {3, 0, 4}};
    static const double FACTORS[][2] = {{1, 1}, {2, 3}, {1, 0}, {0, 1}};
    for (size_t d = 0; d < COUNT_OF(DTYPES); d++)
        for (size_t s = 0; s < COUNT_OF(MANY); s++)
            for (int how = 0; how < 9; how++)
                for (int adds = (how + (int)d) % 2; adds <= NUMBER; adds += 2) { /* all of them, over the dtypes */
                    const double *factors = FACTORS[(s + (size_t)how) % 4];
                    product p = {DTYPES[d], how % 2 ? 2 : 0, MANY[s][0], MANY[s][1], MANY[s][2], (layout)(how % 3),
                                 (layout)(how / 3), (layout)(how % 2), (addend)adds, factors[0], factors[1]};
                    if (!multiply(&p, false))
                        fail_msg("%s: a product is not ours", tap_dtype_describe(p.dtype)->name);
                }
}

/* Products of 16-bit floats are oneDNN's alone. */
static void left_to_the_host(void **state)
{
    (void)state;
    product p = {TAP_BF16, 0, 3, 4, 5, DENSE, DENSE, DENSE, NOTHING, 1, 1};
    assert_false(multiply(&p, false));
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(matrices), cmocka_unit_test(left_to_the_host)};
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    use_own_gemm();
    return with_each_isa(group);
}
