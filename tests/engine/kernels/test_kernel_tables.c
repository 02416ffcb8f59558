/* test_kernel_tables.c - every function in the tables of kernels of every instruction set this machine has, against the
 * same one in plain C: odd lengths, odd addresses, NaN, infinities, zeros of both signs, subnormals, 16-bit floats.
 *
 * Plain C is checked against numbers of others elsewhere (test_pointwise.c, test_reduce.c). Here bits are equal,
 * except where a fused product, another order of a sum or another library's function is allowed to differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tensor/kernels/by_isa.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/matvec.h"
#include "engine/kernels/pointwise_block.h"
#include "engine/kernels/pool.h"
#include "tensor/element.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const int LENGTHS[] = {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 127, 1023, 1024, 1025, 2085};
enum { MOST = 2085 };

static const char *isa; /* the one compared with plain C */

/* -------------------------------------------------------------------------------------------------------- elements */

typedef enum kind { U8, I8, I16, I32, I64, F16, BF16, F32, F64, KINDS } kind;
static const int BYTES[KINDS] = {1, 1, 2, 4, 8, 2, 2, 4, 8};

static double number_at(kind type, const void *data, int64_t i)
{
    const char *at = (const char *)data + i * BYTES[type];
    uint16_t half = 0;
    float single = 0;
    double wide = 0;
    int64_t whole = 0;
    switch (type) {
    case F16: memcpy(&half, at, 2); return (double)tap__decode_f16(half);
    case BF16: memcpy(&half, at, 2); return (double)tap__decode_bf16(half);
    case F32: memcpy(&single, at, 4); return (double)single;
    case F64: memcpy(&wide, at, 8); return wide;
    default: memcpy(&whole, at, (size_t)BYTES[type]); return (double)whole;
    }
}

/* Bits in general; NaN is as good as NaN. slack: how far off relative to the number, or to 1 for small ones. */
static void expect_same(kind type, const void *given, const void *plain, int64_t n, double slack, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp((const char *)given + i * BYTES[type], (const char *)plain + i * BYTES[type], (size_t)BYTES[type]) == 0)
            continue;
        double a = number_at(type, given, i), b = number_at(type, plain, i);
        if (type < F16 ||
            !((isnan(a) && isnan(b)) || (slack > 0 && isfinite(b) && fabs(a - b) <= slack * (1 + fabs(b)))))
            fail_msg("%s %s: element %lld of %lld is %.17g, plain C says %.17g", isa, what, (long long)i, (long long)n, a, b);
    }
}

typedef enum data_kind { ORDINARY, FINITE, SPECIAL, DATA_KINDS } data_kind; /* FINITE: any size; SPECIAL: NaN and all */

static const double SPECIALS[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 0.5, -2.5, 3, 1e-45, -1e-45, 1e-39, 5e-324,
                                  6e-8, -6e-8, 65504, 65520, -1e5, 3e38, -3e38, 1e300, 0x1p-14, 0x1p31, -0x1p63, 255.5};

static void put_number(kind type, void *data, int64_t i, double x)
{
    static const tap_dtype DTYPES[KINDS] = {TAP_U8, TAP_I8, TAP_I16, TAP_I32, TAP_I64, TAP_F16, TAP_BF16, TAP_F32, TAP_F64};
    tap_scalar value = {.kind = 'F', .re = x};
    tap__element_put(DTYPES[type], (char *)data + i * BYTES[type], 0, &value);
}

/* Whole numbers are any bits. turn: lets two operands meet in all pairs. */
static void fill(kind type, void *data, int64_t n, data_kind how, int turn)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = next_random();
        if (type < F16) {
            static const int64_t EDGES[] = {0, 1, -1, INT64_MIN, INT64_MAX, INT32_MIN, 127, 128, 2};
            bits = how == SPECIAL ? (uint64_t)EDGES[(turn ? i / COUNT_OF(EDGES) : i) % COUNT_OF(EDGES)] : bits;
            if (how == SPECIAL && bits == (uint64_t)INT64_MIN)
                bits >>= 64 - 8 * BYTES[type];
            memcpy((char *)data + i * BYTES[type], &bits, (size_t)BYTES[type]);
            continue;
        }
        double x = (double)(int64_t)bits * 0x1p-62;
        if (how == SPECIAL && bits % 8 != 7)
            x = SPECIALS[(turn ? i / COUNT_OF(SPECIALS) : i) % COUNT_OF(SPECIALS)];
        if (how == FINITE)
            x = ldexp(x, (int)(bits % 40) - 20) * (bits % 11 == 0 ? -0.0 : 1);
        put_number(type, data, i, x);
    }
}

/* ------------------------------------------------------------------------------------------------ folds of the lanes */

static const kind LANE_KINDS[TAP_LANE_TYPES_COUNT] = {F32, F64, I8, U8, I16, I32, I64, F16, BF16};
static char first[MOST * 8 * 9 + 64], second[MOST * 8 + 64], third[MOST * 8 + 64];
static double means[MOST];

/* Zeros of both signs are the same to MAX and MIN: which one wins is the order's, and that is the vectors'. */
static void expect_folded(bool whole, int fold, const void *given, const void *plain, int64_t n, const char *what)
{
    const double *a = given, *b = plain;
    bool best = fold == TAP_FOLD_MAX || fold == TAP_FOLD_MIN;
    for (int64_t i = 0; i < n; i++)
        if (whole || !best || a[i] != 0 || b[i] != 0)
            expect_same(whole ? I64 : F64, a + i, b + i, 1, 0, what);
}

static void fold_rows_and_columns(int fold, int type, data_kind how, int n, const tap__lanes *lanes)
{
    static double given[MOST], plain[MOST];
    kind is = LANE_KINDS[type];
    bool whole = is < F16 || fold == TAP_FOLD_NONZERO;
    int rows = n > 100 ? 3 : 9 + n % 4, pitch = n + n % 3;
    char *x = first + BYTES[is]; /* not at the start of a vector */
    char what[64];
    snprintf(what, sizeof what, "fold %d of lane type %d, %d", fold, type, n);
    fill(is, x, (int64_t)rows * pitch, how, 0);
    for (int i = 0; i < n; i++) {
        means[i] = 0.1 * i;
        given[i] = plain[i] = whole ? 0 : 0.375;
    }
    double a = plain[0], b = plain[0];
    tap__row_fn row[] = {lanes->row[fold][type], tap__lanes_plain.row[fold][type]};
    assert_true(!row[0] == !row[1]);
    if (!row[0])
        return;
    row[0](&a, x, n, fold == TAP_FOLD_SQUARE ? &means[n / 2] : NULL);
    row[1](&b, x, n, fold == TAP_FOLD_SQUARE ? &means[n / 2] : NULL);
    expect_folded(whole, fold, &a, &b, 1, what);
    lanes->col[fold][type](given, x, n, rows, pitch, means);
    tap__lanes_plain.col[fold][type](plain, x, n, rows, pitch, means);
    expect_folded(whole, fold, given, plain, n, what);
}

static void folds(void **state)
{
    (void)state;
    const tap__lanes *lanes = tap__lanes_now();
    assert_string_equal(lanes->name, isa);
    for (int fold = 0; fold < TAP_FOLDS; fold++)
        for (int type = 0; type < TAP_LANE_TYPES_COUNT; type++)
            for (int how = 0; how < DATA_KINDS; how++)
                for (int n = 0; n < COUNT_OF(LENGTHS); n++)
                    fold_rows_and_columns(fold, type, (data_kind)how, LENGTHS[n], lanes);
}

/* ------------------------------------------------------------------------------------------------- math of the lanes */

typedef struct math_case {
    void *y;
    const void *x, *g, *w;
    double *p, *q, *r, *s; /* one per column */
    int64_t n;
} math_case;

/* X(name, call): m is the table, c the case. */
#define MATH_CALLS(X)                                                                                                \
    X(dot, c->p[0] = m->dot(c->x, c->g, c->n))                                                                       \
    X(exp_sum, c->p[0] = m->exp_sum(c->y, c->x, 0.75, c->n))                                                         \
    X(scale, m->scale(c->y, c->x, 1.7, c->n))                                                                        \
    X(minus, m->minus(c->y, c->x, 0.3, 1.1, c->n))                                                                   \
    X(affine, m->affine(c->y, c->x, 0.3, 1.3, c->w, c->g, c->n))                                                     \
    X(affine_weight, m->affine(c->y, c->x, 0.3, 1.3, c->w, NULL, c->n))                                              \
    X(affine_bias, m->affine(c->y, c->x, 0.3, 1.3, NULL, c->g, c->n))                                                \
    X(affine_none, m->affine(c->y, c->x, 0.3, 1.3, NULL, NULL, c->n))                                                \
    X(col_exp_sum, m->col_exp_sum(c->y, c->x, c->q, c->p, c->n))                                                     \
    X(col_scale, m->col_scale(c->y, c->x, c->q, c->n))                                                               \
    X(col_minus, m->col_minus(c->y, c->x, c->q, c->r, c->n))                                                         \
    X(softmax_grad, m->softmax_grad(c->y, c->g, c->x, 0.6, c->n))                                                    \
    X(log_softmax_grad, m->log_softmax_grad(c->y, c->g, c->x, 0.6, c->n))                                            \
    X(col_softmax_grad, m->col_softmax_grad(c->y, c->g, c->x, c->q, c->n))                                           \
    X(col_log_softmax_grad, m->col_log_softmax_grad(c->y, c->g, c->x, c->q, c->n))                                   \
    X(col_dot, m->col_dot(c->p, c->x, c->g, c->n))                                                                   \
    X(norm_sums, m->norm_sums(c->g, c->x, c->w, 0.3, c->n, &c->p[0], &c->p[1]))                                      \
    X(norm_sums_none, m->norm_sums(c->g, c->x, NULL, 0.3, c->n, &c->p[0], &c->p[1]))                                 \
    X(norm_grad, m->norm_grad(c->y, c->g, c->x, c->w, 0.3, 1.3, 0.1, 0.2, c->n))                                     \
    X(norm_grad_none, m->norm_grad(c->y, c->g, c->x, NULL, 0.3, 1.3, 0.1, 0.2, c->n))                                \
    X(col_norm_sums, m->col_norm_sums(c->p, c->s, c->g, c->x, c->n / 6, c->n / 6, c->q, c->r, 6, c->n / 6))          \
    X(linear, m->linear(c->y, c->x, 1.3, -0.2, c->n))                                                                \
    X(linear_grad, m->linear_grad(c->y, c->g, c->x, 0.3, 1.3, 0.1, 0.2, c->n))                                       \
    X(col_linear, m->col_linear(c->y, c->x, c->q, c->r, c->n))                                                       \
    X(col_linear_grad, m->col_linear_grad(c->y, c->g, c->x, c->q, c->r, c->q, c->r, c->n))                           \
    X(col_sums, m->col_sums(c->p, c->s, c->g, c->x, c->q, c->n))                                                     \
    X(squared, m->squared(c->y, c->x, c->g, 1, c->n))                                                                \
    X(smooth, m->smooth(c->y, c->x, c->g, 0.7, c->n))                                                                \
    X(huber, m->huber(c->y, c->x, c->g, 0.7, c->n))                                                                  \
    X(squared_grad, m->squared_grad(c->y, c->w, c->x, c->g, 1, 0.4, c->n))                                           \
    X(smooth_grad, m->smooth_grad(c->y, c->w, c->x, c->g, 0.7, 0.4, c->n))                                           \
    X(huber_grad, m->huber_grad(c->y, c->w, c->x, c->g, 0.7, 0.4, c->n))                                             \
    X(log, m->log(c->y, c->x, c->n))                                                                                 \
    X(log1p, m->log1p(c->y, c->x, c->n))

#define X(name, call)                                                                                                \
    static void call_##name(const tap__lane_math *m, const math_case *c)                                             \
    {                                                                                                                \
        call;                                                                                                        \
    }
MATH_CALLS(X)
#undef X

static const struct {
    const char *name;
    void (*call)(const tap__lane_math *m, const math_case *c);
} CALLS[] = {
#define X(name, call) {#name, call_##name},
    MATH_CALLS(X)
#undef X
};

/* SLEEF's, where it is found: as good as others in the middle of the range, not at its ends. */
static bool has_sleef(void)
{
    return tap__sleef_find(isa)->f32[TAP_SLEEF_log] != NULL;
}

static void compare_math(int call, kind type, int n, data_kind how, const tap__lanes *lanes)
{
    const char *name = CALLS[call].name;
    bool other = strncmp(name, "log", 3) == 0 && !strstr(name, "grad");
    bool power = type == F32 && (strstr(name, "exp_sum") || strstr(name, "log_softmax_grad"));
    bool product = type == F32 && strcmp(name, "dot") == 0;
    /* fused or not, numbers of any size cancel to anything */
    if ((other && how == SPECIAL && has_sleef()) || (product && how != ORDINARY))
        return;
    static char y[2][MOST * 8 + 64];
    static double columns[2][4][MOST + 2];
    char what[64];
    snprintf(what, sizeof what, "%s of %d bytes, %d", name, BYTES[type], n);
    for (int k = 0; k < 2; k++) {
        double(*of)[MOST + 2] = columns[k];
        math_case c = {.y = y[k] + BYTES[type], .x = first + BYTES[type], .g = second, .w = third, .p = of[0], .q = of[1],
                       .r = of[2], .s = of[3], .n = n};
        memset(y[k], 0x11, sizeof y[k]);
        for (int i = 0; i < MOST + 2; i++) {
            of[0][i] = of[3][i] = 0.25;
            of[1][i] = 0.1 * (i % 17) - 0.5;
            of[2][i] = 1 + 0.01 * (i % 5);
        }
        CALLS[call].call(&(k ? lanes : &tap__lanes_plain)->math[type == F64], &c);
    }
    expect_same(type, y[1], y[0], (int)sizeof y[0] / BYTES[type], other && type == F64 ? 1e-15 : other || power ? 3e-7 : 0,
                what);
    expect_same(F64, columns[1], columns[0], 4 * (MOST + 2), power ? 3e-7 : product ? 1e-6 : 0, what);
}

/* Windows of all shapes up to 3 by 3, dilated; the source is exactly as long as promised. */
static void sliding_windows(void **state)
{
    (void)state;
    enum { PITCH = 400, ROWS = 5, BEHIND = 16, ALL = PITCH * ROWS + BEHIND };
    static float x[ALL], y[2][MOST];
    const tap__lanes *lanes = tap__lanes_now();
    fill(F32, x, ALL, ORDINARY, 0);
    fill(F32, third, 9, ORDINARY, 1);
    for (int rows = 1; rows <= 3; rows++)
        for (int columns = 1; columns <= 3; columns++)
            for (int n = 1; n <= 300; n += n < 70 ? 1 : 46) {
                int64_t column = 1 + n % 2;
                const float *from = x + ALL - BEHIND - (rows - 1) * 2 * PITCH - (columns - 1) * column - n;
                char what[64];
                snprintf(what, sizeof what, "slide %d by %d over %d", rows, columns, n);
                memset(y, 0x11, sizeof y);
                for (int k = 0; k < 2; k++)
                    (k ? lanes : &tap__lanes_plain)
                        ->slide(y[k], from, (const float *)(const void *)third, rows, columns, 2 * PITCH, column, 0.5f, n);
                expect_same(F32, y[1], y[0], MOST, 2e-6, what);
                for (int i = 0; i < n; i++) {
                    double sum = 0.5;
                    for (int r = 0; r < rows; r++)
                        for (int c = 0; c < columns; c++)
                            sum += (double)from[i + r * 2 * PITCH + c * column] *
                                   (double)((const float *)(const void *)third)[r * columns + c];
                    if (fabs(sum - (double)y[0][i]) > 1e-5 * (1 + fabs(sum)))
                        fail_msg("%s: element %d is %g, not %g", what, i, (double)y[0][i], sum);
                }
            }
}

static void math_of_lanes(void **state)
{
    (void)state;
    const tap__lanes *lanes = tap__lanes_now();
    for (kind type = F32; type <= F64; type++)
        for (int n = 0; n < COUNT_OF(LENGTHS); n++)
            for (int how = 0; how < DATA_KINDS; how++) {
                fill(type, first, LENGTHS[n] + 1, (data_kind)how, 0);
                fill(type, second, LENGTHS[n], (data_kind)how, 1);
                fill(type, third, LENGTHS[n], ORDINARY, 0);
                for (int call = 0; call < COUNT_OF(CALLS); call++)
                    compare_math(call, type, LENGTHS[n], (data_kind)how, lanes);
            }
}

/* --------------------------------------------------------------------------------------------------- 16-bit floats */

/* Floats in each binade that rounding can tell apart, and halfway between. */
static void fill_floats(float *x, int n, int from)
{
    for (int i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(from + i) * 0x9E3779B1u, low = (uint32_t)(next_random() % 6);
        static const uint32_t LOW[] = {0, 0x1000, 0x1001, 0x0FFF, 0x8000, 0x7FFF};
        x[i] = tap__float_of_bits((bits & 0xFFFFE000u) ^ LOW[low]);
    }
}

static void half_floats(void **state)
{
    (void)state;
    enum { ALL = 65536 };
    static uint16_t halves[ALL + 1], given[ALL + 1], plain[ALL + 1];
    static float wide[ALL + 1], plain_wide[ALL + 1];
    const tap__lanes *lanes = tap__lanes_now(), *lanes_plain = &tap__lanes_plain;
    const tap__pw_kernels *pw = tap__pw_kernels_now(), *pw_plain = &tap__pw_plain;
    const uint16_t slot[2] = {0, 1};
    tap__pw_step step = {.dst = slot[1], .src = {slot[0]}};
    for (int i = 0; i < ALL; i++)
        halves[i + 1] = (uint16_t)i;
    for (int k = 0; k < COUNT_OF(LENGTHS) + 1; k++) {
        int n = k < COUNT_OF(LENGTHS) ? LENGTHS[k] : ALL;
#define WIDEN(table, id)                                                                                             \
    memset(wide, 0x11, sizeof wide), memset(plain_wide, 0x11, sizeof wide);                                          \
    table->widen_##id(wide + 1, halves + 1, n);                                                                      \
    table##_plain->widen_##id(plain_wide + 1, halves + 1, n);                                                        \
    expect_same(F32, wide, plain_wide, n + 1 < ALL ? n + 2 : n + 1, 0, #table " widen_" #id)
        WIDEN(lanes, f16);
        WIDEN(lanes, bf16);
        WIDEN(pw, f16);
        WIDEN(pw, bf16);
        fill_floats(wide + 1, n, k * 77777);
#define NARROW(table, id, type)                                                                                      \
    memset(given, 0x11, sizeof given), memset(plain, 0x11, sizeof plain);                                            \
    table->narrow_##id(given + 1, wide + 1, n);                                                                      \
    table##_plain->narrow_##id(plain + 1, wide + 1, n);                                                              \
    expect_same(type, given, plain, n + 1 < ALL ? n + 2 : n + 1, 0, #table " narrow_" #id)
        NARROW(lanes, f16, F16);
        NARROW(lanes, bf16, BF16);
        NARROW(pw, f16, F16);
        NARROW(pw, bf16, BF16);
        int whole = n / TAP_PW_LANES * TAP_PW_LANES;
        static float from[2][ALL];
        memcpy(from[0], wide + 1, (size_t)n * 4);
#define ROUND(id)                                                                                                    \
    pw->round_##id(&step, (char *[]){(char *)from[0], (char *)wide}, whole);                                         \
    pw_plain->round_##id(&step, (char *[]){(char *)from[0], (char *)plain_wide}, whole);                             \
    expect_same(F32, wide, plain_wide, whole, 0, "round_" #id)
        ROUND(f16);
        ROUND(bf16);
    }
}

/* --------------------------------------------------------------------------------------- products with a vector */

static void matrix_vector(void **state)
{
    (void)state;
    const tap__matvec_loops *given, *plain = &tap__matvec_plain;
#if defined(__x86_64__)
    given = strcmp(isa, "avx512") == 0 ? &tap__matvec_avx512 : &tap__matvec_avx2;
#elif defined(__aarch64__)
    given = &tap__matvec_neon;
#else
    given = plain;
#endif
    assert_string_equal(given->name, isa);
    static char y[2][MOST * 8 + 8];
    for (int n = 0; n < COUNT_OF(LENGTHS); n++)
        for (int how = 0; how < DATA_KINDS; how++) {
            int64_t count = LENGTHS[n], pitch = count + 1;
/* the sum's order is the vectors': as far off as that may be, and without numbers whose products end a float's range */
#define COMPARE(id, type, stored, real, number)                                                                      \
    do {                                                                                                             \
        const stored *a = (const stored *)(void *)first + 1;                                                         \
        const number *b = (const number *)(void *)second;                                                            \
        fill(type, first, 4 * pitch + 1, (data_kind)how, 0);                                                         \
        fill(real, second, count + 4, how == SPECIAL ? ORDINARY : (data_kind)how, 0);                                \
        double sum = 0;                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                                          \
            sum += fabs(number_at(type, a, i) * number_at(real, b, i));                                              \
        double of[2] = {given->dot_##id(a, b, count), plain->dot_##id(a, b, count)};                                 \
        bool same = (isnan(of[0]) && isnan(of[1])) || of[0] == of[1] ||                                              \
                    fabs(of[0] - of[1]) <= (real == F64 ? 1e-13 : 1e-5) * sum;                                       \
        if (!same && !(how == SPECIAL && isnan(sum - sum)))                                                          \
            fail_msg("%s dot_" #id " of %d: %.17g, plain C says %.17g", isa, (int)count, of[0], of[1]);              \
        fill(real, y[0], count + 1, ORDINARY, 0);                                                                    \
        memcpy(y[1], y[0], sizeof y[0]);                                                                             \
        given->add4_##id((number *)(void *)y[1] + 1, a, pitch, b, count);                                            \
        plain->add4_##id((number *)(void *)y[0] + 1, a, pitch, b, count);                                            \
        expect_same(real, y[1], y[0], (int)sizeof y[0] / BYTES[real], 0, "add4_" #id);                               \
    } while (0)
            COMPARE(f32, F32, float, F32, float);
            COMPARE(f64, F64, double, F64, double);
            COMPARE(bf16, BF16, uint16_t, F32, float);
            COMPARE(f16, F16, uint16_t, F32, float);
        }
}

/* -------------------------------------------------------------------------------------------------------- pointwise */

enum { BLOCK = 768 };

static const char *const NAMES[] = {
#define ROW(name, ...) #name,
#include "engine/kernels/pointwise_insn.def"
};
/* shapes of the rows: of the types that are not complex, and of those that are */
static const char *const SHAPES[] = {
#define ROW(name, shape, ...) #shape,
#include "engine/kernels/pointwise_insn.def"
};
static const char *const COMPLEX_SHAPES[TAP_PWI_END] = {
#define CROW(name, shape, ...) [TAP_PWI_##name] = #shape,
#include "engine/kernels/pointwise_insn.def"
};

/* Of one part, where there are two. */
static const kind PARTS[TAP_PW_TYPES] = {U8, U8, I8, I16, I32, I64, F32, F64, F32, F64};

static bool is_complex(int type)
{
    return type == TAP_PW_c64 || type == TAP_PW_c128;
}

static void fill_block(int type, char *data, data_kind how, int turn)
{
    fill(PARTS[type], data, BLOCK * (is_complex(type) ? 2 : 1), how, turn);
    for (int i = 0; type == TAP_PW_b8 && i < BLOCK; i++)
        data[i] &= 1;
}

/* Which elements a row of this shape leaves behind: kind, and how many of it for each. */
static kind result_of(int type, const char *shape, int *parts)
{
    *parts = is_complex(type) && shape[0] != 'R' && shape[0] != 'T' ? 2 : 1;
    return shape[0] == 'T' ? U8 : PARTS[type];
}

static const struct tap__pw_step STEP = {.dst = 3, .src = {0, 1, 2}, .imm = {{2, 0.5}, {1, 1.25}, {3, 0.75}, {1, 1}}};

static void compare_insn(const tap__pw_kernels *kernels, int type, int insn, bool constant, data_kind how,
                         const tap__sleef *sleef)
{
    static char src[3][BLOCK * 16] __attribute__((aligned(64))), dst[2][BLOCK * 16] __attribute__((aligned(64)));
    const char *shape = (is_complex(type) ? COMPLEX_SHAPES : SHAPES)[insn];
    for (int k = 0; k < 3; k++)
        fill_block(shape[0] == 'W' && k == 0 ? TAP_PW_b8 : type, src[k], how, k);
    memset(dst, 0x11, sizeof dst);
    for (int k = 0; k < 2; k++) {
        const tap__pw_kernels *of = k ? kernels : &tap__pw_plain;
        const tap__sleef *with = k ? sleef : tap__sleef_find("plain");
        tap__pw_step step = STEP;
        step.math = (const void *const *)(type == TAP_PW_f64 ? with->f64 : with->f32);
        (constant ? of->fn_imm : of->fn)[type][insn](&step, (char *[]){src[0], src[1], src[2], dst[k]}, BLOCK);
    }
    int parts;
    kind is = result_of(type, shape, &parts);
    /* functions in whole vectors may be another library's, sums of products fused */
    bool near = shape[0] == 'V' || is_complex(type) || (is >= F32 && insn == TAP_PWI_AddScaled);
    /* a gradient is large numbers times what may have cancelled */
    double times = strstr(NAMES[insn], "Grad") ? 30 : 1;
    char what[64];
    snprintf(what, sizeof what, "%s%s of type %d", NAMES[insn], constant ? " with a constant" : "", type);
    expect_same(is, dst[1], dst[0], BLOCK * parts, near ? times * (is == F64 ? 1e-13 : 2e-6) : 0, what);
    size_t end = (size_t)(BLOCK * parts * BYTES[is]);
    assert_memory_equal(dst[1] + end, dst[0] + end, sizeof dst[0] - end);
}

static void instructions(void **state)
{
    (void)state;
    const tap__pw_kernels *kernels = tap__pw_kernels_now();
    assert_string_equal(kernels->isa, isa);
    int compared = 0;
    for (int type = 0; type < TAP_PW_TYPES; type++)
        for (int insn = 0; insn < TAP_PWI_END; insn++)
            for (int constant = 0; constant < 2; constant++) {
                const tap__pw_fn *fns = (constant ? kernels->fn_imm : kernels->fn)[type];
                const tap__pw_fn *plain = (constant ? tap__pw_plain.fn_imm : tap__pw_plain.fn)[type];
                assert_true(!fns[insn] == !plain[insn]);
                for (int how = 0; fns[insn] && how < DATA_KINDS; how++, compared++) {
                    compare_insn(kernels, type, insn, constant, (data_kind)how, tap__sleef_find("plain"));
                    if (how == ORDINARY && has_sleef())
                        compare_insn(kernels, type, insn, constant, ORDINARY, tap__sleef_find(isa));
                }
            }
    assert_true(compared > 1000);
}

/* In a type's range; past it the results are the machine's. */
static void casts(void **state)
{
    (void)state;
    static char src[BLOCK * 16] __attribute__((aligned(64))), dst[2][BLOCK * 16] __attribute__((aligned(64)));
    const tap__pw_kernels *kernels = tap__pw_kernels_now();
    for (int from = 0; from < TAP_PW_TYPES; from++)
        for (int to = 0; to < TAP_PW_TYPES; to++)
            for (int how = 0; how < DATA_KINDS; how++) {
                fill_block(from, src, (data_kind)how, 0);
                bool cut = PARTS[from] >= F32 && PARTS[to] < F16;
                for (int i = 0; cut && i < BLOCK * (is_complex(from) ? 2 : 1); i++)
                    if (!(fabs(number_at(PARTS[from], src, i)) < 100))
                        put_number(PARTS[from], src, i, (double)(i % 100) + 0.5);
                for (int k = 0; k < 2; k++)
                    (k ? kernels : &tap__pw_plain)->cast[from][to](&STEP, (char *[]){src, NULL, NULL, dst[k]}, BLOCK);
                char what[64];
                snprintf(what, sizeof what, "cast from type %d to %d", from, to);
                expect_same(PARTS[to], dst[1], dst[0], BLOCK * (is_complex(to) ? 2 : 1), 0, what);
            }
}

static void walks(void **state)
{
    (void)state;
    enum { ROOM = 1 << 16 };
    static char from[ROOM * 16], to[2][ROOM * 16];
    const tap__pw_kernels *kernels = tap__pw_kernels_now();
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)next_random();
    static const tap__pw_layout LAYOUTS[] = {
        {1, {1000}, {1}}, {1, {1000}, {3}}, {2, {17, 31}, {1, 40}}, {2, {17, 31}, {31, 1}}, {2, {33, 9}, {0, 2}},
        {3, {5, 7, 9}, {2, 11, 80}}, {3, {4, 4, 30}, {1, 4, 16}},
    };
    for (size_t bytes = 1; bytes <= 16; bytes *= 2)
        for (int l = 0; l < COUNT_OF(LAYOUTS); l++) {
            const tap__pw_layout *layout = &LAYOUTS[l];
            int64_t count = 1, begin = l * 7 % 13;
            for (int d = 0; d < layout->ndim; d++)
                count *= layout->size[d];
            for (int way = 0; way < 4; way++) {
                memset(to, 0x11, sizeof to);
                for (int k = 0; k < 2; k++) {
                    const tap__pw_kernels *of = k ? kernels : &tap__pw_plain;
                    int64_t rows = 3 + l * 5, columns = 37 - l * 4;
                    if (way == 0)
                        of->gather(to[k], from, bytes, layout, begin, count - begin);
                    else if (way == 1 && layout->stride[0] != 0)
                        of->scatter(to[k], from, bytes, layout, begin, count - begin);
                    else if (way == 2)
                        of->gather_tile(to[k], from, bytes, rows, columns, l % 3 == 0 ? 1 : 60, l % 3 == 1 ? 1 : 50);
                    else if (way == 3)
                        of->scatter_tile(to[k], from, bytes, rows, columns, l % 3 == 0 ? 1 : 60, l % 3 == 1 ? 1 : 50);
                }
                if (memcmp(to[0], to[1], sizeof to[0]) != 0)
                    fail_msg("%s: way %d of walking layout %d by %zu bytes", isa, way, l, bytes);
            }
        }
}

/* ---------------------------------------------------------------------------------------------------------- pooling */

/* Planes of 3 by 7 by 9 under windows of 2 by 3 by 3, two steps apart; across: channels side by side. */
static tap__pool make_pool(int64_t channels, bool across, int64_t (*tables)[3][8])
{
    static const int64_t IN[] = {3, 7, 9}, OUT[] = {2, 3, 4}, WINDOW[] = {2, 3, 3};
    tap__pool pool = {.batch = 2, .channels = channels, .across = across, .chunk = across ? 64 : 1};
    int64_t x = across ? channels : 1, y = across ? channels : 1;
    for (int d = 2; d >= 0; d--) {
        tap__windows *dim = &pool.dims[d];
        *dim = (tap__windows){.in = IN[d], .out = OUT[d], .step = 1, .start = tables[d][0], .end = tables[d][1],
                              .weight = tables[d][2]};
        for (int64_t o = 0; o < OUT[d]; o++) {
            dim->start[o] = o * 2;
            dim->end[o] = o * 2 + WINDOW[d] < IN[d] ? o * 2 + WINDOW[d] : IN[d];
            dim->weight[o] = dim->end[o] - dim->start[o];
        }
        pool.x[d] = x;
        pool.y[d] = pool.i[d] = y;
        x *= IN[d];
        y *= OUT[d];
    }
    pool.x_channel = across ? 1 : x;
    pool.y_channel = pool.i_channel = across ? 1 : y;
    pool.x_batch = across ? x : x * channels;
    pool.y_batch = pool.i_batch = across ? y : y * channels;
    return pool;
}

static void pools(void **state)
{
    (void)state;
    enum { PLANE = 3 * 7 * 9, WINDOWS = 2 * 3 * 4, CHANNELS = 70 };
    static char x[2 * PLANE * CHANNELS * 8], grad[2 * WINDOWS * CHANNELS * 8], back[2][2 * PLANE * CHANNELS * 8];
    static char y[2][2 * WINDOWS * CHANNELS * 8];
    static int64_t where[2][2 * WINDOWS * CHANNELS];
    static int64_t tables[3][3][8];
    static const kind TYPES[] = {F16, BF16, F32, F64}, SUMS[] = {F32, F32, F32, F64};
    const tap__pool_fns *given = tap__pool_plain;
#if defined(__x86_64__)
    given = strcmp(isa, "avx512") == 0 ? tap__pool_avx512 : tap__pool_avx2;
#elif defined(__aarch64__)
    given = tap__pool_neon;
#endif
    for (int type = 0; type < 4; type++)
        for (int how = 0; how < DATA_KINDS; how++)
            for (int across = 0; across < 2; across++)
                for (int64_t channels = 3; channels <= CHANNELS; channels += CHANNELS - 3) {
                    tap__pool pool = make_pool(channels, across, tables);
                    int64_t planes = 2 * (across ? (channels + 63) / 64 : channels), units = planes * 6;
                    fill(TYPES[type], x, 2 * PLANE * channels, (data_kind)how, 0);
                    fill(TYPES[type], grad, 2 * WINDOWS * channels, (data_kind)how, 0);
                    for (int average = 0; average < 2; average++) {
                        for (int k = 0; k < 2; k++) {
                            const tap__pool_fns *fns = k ? &given[type] : &tap__pool_plain[type];
                            memset(back[k], 0, sizeof back[k]);
                            (average ? fns->average : fns->largest)(&pool, x, y[k], where[k], 0, units);
                            (average ? fns->average_backward : fns->largest_backward)(&pool, grad, back[k], where[k], 0, planes);
                        }
                        expect_same(TYPES[type], y[1], y[0], 2 * WINDOWS * channels, 0, "pooling");
                        expect_same(SUMS[type], back[1], back[0], 2 * PLANE * channels, 0, "pooling's gradient");
                        assert_memory_equal(where[1], where[0], sizeof where[0]);
                    }
                }
}

int main(void)
{
    static const char *const ISAS[] = {"avx2", "avx512", "neon"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folds),         cmocka_unit_test(math_of_lanes), cmocka_unit_test(sliding_windows),
        cmocka_unit_test(half_floats),   cmocka_unit_test(matrix_vector), cmocka_unit_test(instructions),
        cmocka_unit_test(casts),         cmocka_unit_test(walks),         cmocka_unit_test(pools),
    };
    int failed = 0;
    for (int i = 0; i < COUNT_OF(ISAS); i++)
        if (tap_isa_set(ISAS[i])) {
            isa = ISAS[i];
            failed += cmocka_run_group_tests_name(ISAS[i], tests, NULL, NULL);
        }
    if (!isa)
        print_message("this machine has plain C only: nothing to compare\n");
    tap_isa_set(NULL);
    return failed;
}
