/* test_pointwise.c - chains as block programs: numbers against the C library and plain loops, layouts against a naive
 * walk, every instruction set, any number of threads. */
#include "engine/graph_test.h"

#include <pthread.h>

#include "base/failing_allocator.h"
#include "engine/kernels/pointwise.h"
#include "graph/shape.h"

static double random_unit(void)
{
    return (double)(next_random() >> 11) * 0x1p-53;
}

/* ------------------------------------------------------------------------------------------------- making chains */

enum { MAX_NODES = 12 };

typedef struct chain {
    tap__pw_node nodes[MAX_NODES];
    tap__call calls[MAX_NODES];
    tap__operand in[MAX_NODES][TAP_PW_MAX_INPUTS], out[MAX_NODES];
    tap__attr attrs[MAX_NODES][4];
    tap__operand loads[4], stores[4];
    int nnodes, nloads, nstores;
} chain;

static tap__operand dense(tap_dtype dtype, int ndim, const int64_t *size)
{
    tap__operand out = {.dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        out.size[d] = size[d];
        out.stride[d] = step;
        step *= size[d];
    }
    return out;
}

static tap__operand flat(tap_dtype dtype, int64_t count)
{
    return dense(dtype, 1, &count);
}

static tap__number whole_number(int64_t value)
{
    return (tap__number){.kind = 'I', .i = value, .re = (double)value};
}

static tap__number real_number(double value)
{
    return (tap__number){.kind = 'F', .re = value};
}

static tap__operand number_operand(tap__number number)
{
    return (tap__operand){.dtype = number.kind == 'I' ? TAP_I64 : TAP_F64, .is_number = true, .number = number};
}

static int add_load(chain *c, tap__operand operand)
{
    c->loads[c->nloads] = operand;
    return ~c->nloads++;
}

/* Attributes get the defaults of the row where they are numbers. */
static int add_node(chain *c, const char *name, tap_dtype dtype)
{
    int n = c->nnodes++;
    tap__call *call = &c->calls[n];
    const tap_op *op = tap__op_find(name);
    assert_non_null(op);
    *call = (tap__call){.op = op, .name = name, .nin = 0, .nout = 1, .in = c->in[n], .out = &c->out[n],
                        .attrs = c->attrs[n]};
    for (int i = op->ninputs; i < op->nparams; i++) {
        tap__attr *attr = &c->attrs[n][i - op->ninputs];
        double value = strtod(op->params[i].text, NULL);
        *attr = (tap__attr){.present = op->params[i].has_default, .type = op->params[i].type, .i = (int64_t)value,
                            .f = value, .scalar = real_number(value), .s = op->params[i].text};
    }
    c->out[n] = (tap__operand){.dtype = dtype};
    c->nodes[n] = (tap__pw_node){.call = call, .store = -1};
    return n;
}

static void give(chain *c, int n, int from)
{
    int k = c->calls[n].nin++;
    c->in[n][k] = from < 0 ? c->loads[~from] : c->out[from];
    c->nodes[n].from[k] = from;
}

static void give_number(chain *c, int n, tap__number number)
{
    c->in[n][c->calls[n].nin++] = number_operand(number);
}

static int unary(chain *c, const char *name, tap_dtype dtype, int x)
{
    int n = add_node(c, name, dtype);
    give(c, n, x);
    return n;
}

static int binary(chain *c, const char *name, tap_dtype dtype, int x, int y)
{
    int n = add_node(c, name, dtype);
    give(c, n, x);
    give(c, n, y);
    return n;
}

static int with_number(chain *c, const char *name, tap_dtype dtype, int x, tap__number y)
{
    int n = add_node(c, name, dtype);
    give(c, n, x);
    give_number(c, n, y);
    return n;
}

static void add_store(chain *c, int node, tap__operand operand)
{
    c->nodes[node].store = c->nstores;
    c->stores[c->nstores++] = operand;
}

static void run_chain(chain *c, int threads, void *const *data)
{
    tap__pw *program;
    tap_error err;
    for (int n = 0; n < c->nnodes; n++) {
        tap_dtype dtype = c->out[n].dtype;
        c->out[n] = c->stores[0];
        c->out[n].dtype = dtype;
    }
    for (int n = 0; n < c->nnodes; n++) /* results are inputs of later nodes */
        for (int k = 0; k < c->calls[n].nin; k++)
            if (!c->in[n][k].is_number && c->nodes[n].from[k] >= 0)
                c->in[n][k] = c->out[c->nodes[n].from[k]];
    tap_status status = tap__pw_build(c->nodes, c->nnodes, c->loads, c->nloads, c->stores, c->nstores, threads,
                                      &program, &err);
    if (status != TAP_OK)
        fail_msg("%s", err.message);
    void *with_room[4 + 4 + 1], *room = NULL;
    memcpy(with_room, data, (size_t)(c->nloads + c->nstores) * sizeof *data);
    assert_int_equal(posix_memalign(&room, 64, tap__pw_room(program)), 0);
    with_room[c->nloads + c->nstores] = room;
    assert_int_equal(tap__pw_run(program, with_room, &err), TAP_OK);
    free(room);
    tap__pw_free(program);
}

/* --------------------------------------------------------------------------------------------------- one long chain */

/* relu(sigmoid(x * y + 1.5) * tanh(x - y)) + x / 2 */
static void make_long(chain *c, int64_t count)
{
    *c = (chain){.nnodes = 0};
    int x = add_load(c, flat(TAP_F32, count)), y = add_load(c, flat(TAP_F32, count));
    int a = binary(c, "Mul", TAP_F32, x, y);
    a = with_number(c, "Add", TAP_F32, a, real_number(1.5));
    a = unary(c, "Sigmoid", TAP_F32, a);
    int b = binary(c, "Sub", TAP_F32, x, y);
    b = unary(c, "Tanh", TAP_F32, b);
    a = binary(c, "Mul", TAP_F32, a, b);
    a = unary(c, "Relu", TAP_F32, a);
    b = with_number(c, "Div", TAP_F32, x, real_number(2));
    a = binary(c, "Add", TAP_F32, a, b);
    add_store(c, a, flat(TAP_F32, count));
}

static void long_chain(void **state)
{
    (void)state;
    static const int64_t COUNTS[] = {0, 1, 7, 16, 17, 1023, 1024, 1025, 5000, 200000};
    for (size_t i = 0; i < sizeof COUNTS / sizeof COUNTS[0]; i++) {
        int64_t n = COUNTS[i];
        size_t bytes = (size_t)n * sizeof(float) + 1;
        float *x = malloc(bytes), *y = malloc(bytes), *one = malloc(bytes), *many = malloc(bytes);
        for (int64_t k = 0; k < n; k++) {
            x[k] = (float)(random_unit() * 8 - 4);
            y[k] = (float)(random_unit() * 8 - 4);
        }
        chain c;
        make_long(&c, n);
        run_chain(&c, 1, (void *[]){x, y, one});
        make_long(&c, n);
        run_chain(&c, 4, (void *[]){x, y, many});
        assert_memory_equal(one, many, (size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) {
            double u = 1 / (1 + exp(-((double)x[k] * y[k] + 1.5))), v = tanh((double)x[k] - y[k]);
            double expected = fmax(u * v, 0) + x[k] / 2.0;
            if (fabs(one[k] - expected) > 1e-6 + 1e-6 * fabs(expected))
                fail_msg("%lld of %lld: %g, not %g", (long long)k, (long long)n, (double)one[k], expected);
        }
        free(x);
        free(y);
        free(one);
        free(many);
    }
}

/* ------------------------------------------------------------------------------------------------------- functions */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double gelu(double x) { return 0.5 * x * (1 + erf(x * 0.70710678118654752440)); }
static double mish(double x) { return x * tanh(log1p(exp(x))); }
static double softplus(double x) { return log1p(exp(x)); }
static double square(double x) { return x * x; }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double reciprocal(double x) { return 1 / x; }
static double relu(double x) { return x > 0 ? x : 0; }
static double negative(double x) { return -x; }
static double hardswish(double x) { return x * fmin(fmax(x + 3, 0), 6) / 6; }

static const struct {
    const char *name;
    double (*f)(double);
    double low, high;
} FUNCTIONS[] = {
    {"Abs", fabs, -5, 5},       {"Acos", acos, -1, 1},       {"Acosh", acosh, 1, 9},      {"Asin", asin, -1, 1},
    {"Asinh", asinh, -9, 9},    {"Atan", atan, -9, 9},       {"Atanh", atanh, -.99, .99}, {"Ceil", ceil, -9, 9},
    {"Cos", cos, -9, 9},        {"Cosh", cosh, -5, 5},       {"Erf", erf, -3, 3},         {"Erfc", erfc, -3, 3},
    {"Exp", exp, -20, 20},      {"Exp2", exp2, -20, 20},     {"Expm1", expm1, -5, 5},     {"Floor", floor, -9, 9},
    {"Gelu", gelu, -4, 4},      {"Hardswish", hardswish, -5, 5}, {"Lgamma", lgamma, 0.1, 9}, {"Log", log, 1e-3, 50},
    {"Log10", log10, 1e-3, 50}, {"Log1p", log1p, -.9, 9},    {"Log2", log2, 1e-3, 50},    {"Mish", mish, -5, 5},
    {"Neg", negative, -5, 5},   {"Reciprocal", reciprocal, .1, 9}, {"Relu", relu, -5, 5}, {"Rsqrt", rsqrt, .01, 9},
    {"Sigmoid", sigmoid, -9, 9}, {"Silu", silu, -9, 9},      {"Sin", sin, -9, 9},         {"Sinh", sinh, -5, 5},
    {"Softplus", softplus, -9, 9}, {"Sqrt", sqrt, 0, 9},     {"Square", square, -9, 9},   {"Tan", tan, -1.4, 1.4},
    {"Tanh", tanh, -5, 5},      {"Trunc", trunc, -9, 9},
};

static void functions(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static float x32[COUNT], y32[COUNT];
    static double x64[COUNT], y64[COUNT];
    for (size_t f = 0; f < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; f++) {
        for (int i = 0; i < COUNT; i++) {
            x64[i] = FUNCTIONS[f].low + random_unit() * (FUNCTIONS[f].high - FUNCTIONS[f].low);
            x32[i] = (float)x64[i];
        }
        for (int wide = 0; wide < 2; wide++) {
            tap_dtype dtype = wide ? TAP_F64 : TAP_F32;
            chain c = {.nnodes = 0};
            add_store(&c, unary(&c, FUNCTIONS[f].name, dtype, add_load(&c, flat(dtype, COUNT))), flat(dtype, COUNT));
            run_chain(&c, 1, wide ? (void *[]){x64, y64} : (void *[]){x32, y32});
        }
        for (int i = 0; i < COUNT; i++) {
            double wide = FUNCTIONS[f].f(x64[i]), narrow = FUNCTIONS[f].f((double)x32[i]);
            if (fabs(y64[i] - wide) > 1e-13 + 1e-13 * fabs(wide))
                fail_msg("%s(%g): %.17g, not %.17g", FUNCTIONS[f].name, x64[i], y64[i], wide);
            if (fabs(y32[i] - narrow) > 2e-6 + 2e-6 * fabs(narrow))
                fail_msg("%s(%g): %.9g, not %.9g", FUNCTIONS[f].name, (double)x32[i], (double)y32[i], narrow);
        }
    }
}

/* --------------------------------------------------------------------------------------------------- 16-bit floats */

/* Every bit pattern survives widening and rounding; halves and neighbours round as element.c does. */
static void halves(void **state)
{
    (void)state;
    enum { COUNT = 65536 };
    static uint16_t in[COUNT], out[COUNT];
    static float wide[COUNT];
    static const tap_dtype DTYPES[] = {TAP_F16, TAP_BF16};
    for (int d = 0; d < 2; d++) {
        tap_dtype dtype = DTYPES[d];
        for (int i = 0; i < COUNT; i++) {
            in[i] = (uint16_t)i;
            uint32_t bits = (uint32_t)next_random();
            memcpy(&wide[i], &bits, 4);
            if (i % 2) { /* between two neighbours */
                tap_scalar a = tap__element_get(dtype, &in[i], 0);
                wide[i] = (float)a.re * (1 + 0x1p-12f * (float)(i % 5));
            }
        }
        chain c = {.nnodes = 0};
        add_store(&c, unary(&c, "Neg", dtype, add_load(&c, flat(dtype, COUNT))), flat(dtype, COUNT));
        run_chain(&c, 1, (void *[]){in, out});
        for (int i = 0; i < COUNT; i++)
            if (!isnan(tap__element_get(dtype, &in[i], 0).re))
                assert_int_equal(out[i], in[i] ^ 0x8000);
            else
                assert_true(isnan(tap__element_get(dtype, &out[i], 0).re));
        c = (chain){.nnodes = 0};
        add_store(&c, unary(&c, "Cast", dtype, add_load(&c, flat(TAP_F32, COUNT))), flat(dtype, COUNT));
        run_chain(&c, 1, (void *[]){wide, out});
        for (int i = 0; i < COUNT; i++) {
            tap_scalar value = {.kind = 'F', .re = (double)wide[i]};
            uint16_t expected;
            tap__element_put(dtype, &expected, 0, &value);
            if (isnan(wide[i]))
                assert_true(isnan(tap__element_get(dtype, &out[i], 0).re));
            else if (out[i] != expected)
                fail_msg("%s: %.9g became %04x, not %04x", tap_dtype_describe(dtype)->name, (double)wide[i],
                         (unsigned)out[i], (unsigned)expected);
        }
    }
}

/* A result that a later node uses is rounded first: (x + 1) - 1 in bfloat16. */
static void nodes_round(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    uint16_t in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        tap_scalar value = {.kind = 'F', .re = random_unit() * 0.01};
        tap__element_put(TAP_BF16, &in[i], 0, &value);
    }
    chain c = {.nnodes = 0};
    int x = add_load(&c, flat(TAP_BF16, COUNT));
    int sum = with_number(&c, "Add", TAP_BF16, x, real_number(1));
    add_store(&c, with_number(&c, "Sub", TAP_BF16, sum, real_number(1)), flat(TAP_BF16, COUNT));
    run_chain(&c, 1, (void *[]){in, out});
    for (int i = 0; i < COUNT; i++) {
        uint16_t rounded, expected;
        tap_scalar value = {.kind = 'F', .re = tap__element_get(TAP_BF16, &in[i], 0).re + 1};
        tap__element_put(TAP_BF16, &rounded, 0, &value);
        value.re = tap__element_get(TAP_BF16, &rounded, 0).re - 1;
        tap__element_put(TAP_BF16, &expected, 0, &value);
        assert_int_equal(out[i], expected);
    }
}

/* --------------------------------------------------------------------------------------------------------- layouts */

/* Strides of a tensor whose dimensions lie in memory in a random order, now and then with gaps. */
static tap__operand random_layout(tap_dtype dtype, int ndim, const int64_t *size, bool broadcast, int64_t *room)
{
    tap__operand out = {.dtype = dtype, .ndim = ndim};
    int order[TAP_ENGINE_MAX_NDIM];
    for (int d = 0; d < ndim; d++) {
        order[d] = d;
        out.size[d] = broadcast && random_below(4) == 0 ? 1 : size[d];
    }
    if (random_below(2))
        for (int d = ndim - 1; d > 0; d--) {
            int other = (int)random_below(d + 1), kept = order[d];
            order[d] = order[other];
            order[other] = kept;
        }
    int64_t step = random_below(8) ? 1 : 3;
    for (int k = ndim - 1; k >= 0; k--) {
        out.stride[order[k]] = step;
        step *= out.size[order[k]] + (random_below(8) ? 0 : 1);
    }
    *room = step + 4;
    return out;
}

static int64_t offset_at(const tap__operand *operand, int ndim, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < operand->ndim; d++) {
        int64_t index = at[ndim - operand->ndim + d];
        offset += (operand->size[d] == 1 ? 0 : index) * operand->stride[d];
    }
    return offset;
}

/* x * 2 + y of int32 or bytes, against a walk over all indexes. */
static void one_layout(tap_dtype dtype, int threads)
{
    int ndim = (int)random_below(5);
    int64_t size[TAP_ENGINE_MAX_NDIM], count = 1, room[3];
    for (int d = 0; d < ndim; d++) {
        size[d] = random_below(20) == 0 ? 0 : 1 + random_below(ndim < 3 ? 150 : 14);
        count *= size[d];
    }
    tap__operand x = random_layout(dtype, ndim, size, true, &room[0]);
    tap__operand y = random_layout(dtype, ndim, size, true, &room[1]);
    tap__operand z = random_layout(dtype, ndim, size, false, &room[2]);
    if (ndim > 1 && y.size[0] == 1 && random_below(2)) { /* fewer dimensions */
        y.ndim--;
        memmove(y.size, y.size + 1, sizeof(int64_t) * (size_t)y.ndim);
        memmove(y.stride, y.stride + 1, sizeof(int64_t) * (size_t)y.ndim);
    }
    chain c = {.nnodes = 0};
    int a = add_load(&c, x), b = add_load(&c, y);
    int twice = with_number(&c, "Mul", dtype, a, whole_number(2));
    add_store(&c, binary(&c, "Add", dtype, twice, b), z);
    size_t bytes = tap_dtype_describe(dtype)->bytes;
    char *data[3];
    for (int k = 0; k < 3; k++) {
        data[k] = malloc((size_t)room[k] * bytes);
        for (size_t i = 0; i < (size_t)room[k] * bytes; i++)
            data[k][i] = (char)next_random();
    }
    char *before = malloc((size_t)room[2] * bytes), *touched = calloc((size_t)room[2], 1);
    memcpy(before, data[2], (size_t)room[2] * bytes);
    run_chain(&c, threads, (void *[]){data[0], data[1], data[2]});
    int64_t at[TAP_ENGINE_MAX_NDIM] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t from = offset_at(&x, ndim, at), other = offset_at(&y, ndim, at), to = offset_at(&z, ndim, at);
        int64_t u = 0, v = 0, w = 0;
        memcpy(&u, data[0] + from * (int64_t)bytes, bytes);
        memcpy(&v, data[1] + other * (int64_t)bytes, bytes);
        memcpy(&w, data[2] + to * (int64_t)bytes, bytes);
        uint64_t mask = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << bytes * 8) - 1;
        if ((((uint64_t)u * 2 + (uint64_t)v) & mask) != ((uint64_t)w & mask))
            fail_msg("%s, %d dimensions, element %lld of %lld", tap_dtype_describe(dtype)->name, ndim, (long long)i,
                     (long long)count);
        touched[to] = 1;
        for (int d = ndim - 1; d >= 0 && ++at[d] == size[d]; d--)
            at[d] = 0;
    }
    for (int64_t i = 0; i < room[2]; i++) /* nothing else was written */
        if (!touched[i])
            assert_memory_equal(data[2] + i * (int64_t)bytes, before + i * (int64_t)bytes, bytes);
    for (int k = 0; k < 3; k++)
        free(data[k]);
    free(before);
    free(touched);
}

static void layouts(void **state)
{
    (void)state;
    static const tap_dtype DTYPES[] = {TAP_U8, TAP_I16, TAP_I32, TAP_I64};
    for (int i = 0; i < 2000; i++)
        one_layout(DTYPES[i % 4], 1 + i % 3);
}

static void transposed(void **state)
{
    (void)state;
    enum { ROWS = 333, COLUMNS = 517 };
    float *x = malloc(sizeof *x * ROWS * COLUMNS), *y = malloc(sizeof *y * ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)i;
    tap__operand in = dense(TAP_F32, 2, (int64_t[]){ROWS, COLUMNS}), out = in;
    in.stride[0] = 1;
    in.stride[1] = ROWS;
    chain c = {.nnodes = 0};
    add_store(&c, with_number(&c, "Add", TAP_F32, add_load(&c, in), real_number(0.5)), out);
    run_chain(&c, 2, (void *[]){x, y});
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLUMNS; k++)
            assert_true(y[r * COLUMNS + k] == x[k * ROWS + r] + 0.5f);
    free(x);
    free(y);
}

/* The first node's result goes where its input was, and the second node needs that input still. */
static void in_place(void **state)
{
    (void)state;
    static const int64_t COUNTS[] = {5, 1024, 5000, 100000};
    for (int i = 0; i < 4; i++) {
        int64_t n = COUNTS[i];
        double *x = malloc(sizeof *x * (size_t)n), *y = malloc(sizeof *y * (size_t)n);
        for (int64_t k = 0; k < n; k++)
            x[k] = (double)k;
        chain c = {.nnodes = 0};
        int a = add_load(&c, flat(TAP_F64, n));
        int more = with_number(&c, "Add", TAP_F64, a, whole_number(1));
        int twice = with_number(&c, "Mul", TAP_F64, a, whole_number(2));
        add_store(&c, more, flat(TAP_F64, n));
        add_store(&c, twice, flat(TAP_F64, n));
        run_chain(&c, 2, (void *[]){x, x, y});
        for (int64_t k = 0; k < n; k++) {
            assert_true(x[k] == (double)k + 1);
            assert_true(y[k] == (double)k * 2);
        }
        free(x);
        free(y);
    }
}

/* ------------------------------------------------------------------------------------------------ dtypes and rules */

static void promotion(void **state)
{
    (void)state;
    static const struct {
        tap_dtype a, b, common;
    } PAIRS[] = {
        {TAP_BOOL, TAP_BOOL, TAP_BOOL}, {TAP_BOOL, TAP_U8, TAP_U8},    {TAP_U8, TAP_I8, TAP_I16},
        {TAP_U8, TAP_I64, TAP_I64},     {TAP_I16, TAP_I32, TAP_I32},   {TAP_I64, TAP_F16, TAP_F16},
        {TAP_F16, TAP_BF16, TAP_F32},   {TAP_BF16, TAP_F32, TAP_F32},  {TAP_F32, TAP_F64, TAP_F64},
        {TAP_F64, TAP_C64, TAP_C128},   {TAP_I32, TAP_C64, TAP_C64},   {TAP_F16, TAP_C32, TAP_C32},
        {TAP_BF16, TAP_C32, TAP_C64},   {TAP_U16, TAP_I32, TAP_DTYPE_NONE},
    };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++) {
        assert_int_equal(tap__promote_two(PAIRS[i].a, PAIRS[i].b), PAIRS[i].common);
        assert_int_equal(tap__promote_two(PAIRS[i].b, PAIRS[i].a), PAIRS[i].common);
    }
    tap__operand wide = flat(TAP_F16, 3), zero = dense(TAP_F64, 0, NULL), number = number_operand(real_number(1));
    assert_int_equal(tap__promote((tap__operand[]){wide, zero, number}, 3), TAP_F16);
    wide.dtype = TAP_I32;
    assert_int_equal(tap__promote((tap__operand[]){wide, number}, 2), TAP_F32);
    assert_int_equal(tap__promote((tap__operand[]){wide, zero}, 2), TAP_F64);
    zero.dtype = TAP_I64;
    assert_int_equal(tap__promote((tap__operand[]){wide, zero}, 2), TAP_I32);
    wide.dtype = TAP_BOOL;
    assert_int_equal(tap__promote((tap__operand[]){wide, number_operand(whole_number(1))}, 2), TAP_I64);
}

static bool supported(chain *c)
{
    return tap__pw_supports(&c->calls[0]);
}

/* What may raise in the framework is left to it. */
static void refusals(void **state)
{
    (void)state;
    chain c = {.nnodes = 0};
    int x = add_load(&c, flat(TAP_I32, 4)), y = add_load(&c, flat(TAP_I32, 4));
    binary(&c, "FloorDiv", TAP_I32, x, y);
    assert_true(supported(&c)); /* looks at the divisors when it runs */
    c.nnodes = 0;
    with_number(&c, "FloorDiv", TAP_I32, x, whole_number(0));
    assert_false(supported(&c));
    c.nnodes = 0;
    with_number(&c, "FloorDiv", TAP_I32, x, whole_number(-3));
    assert_true(supported(&c));
    c.nnodes = 0;
    with_number(&c, "Less", TAP_BOOL, x, whole_number(INT64_MAX));
    assert_false(supported(&c));
    c.nnodes = 0;
    unary(&c, "Exp", TAP_F8E4M3FN, x);
    assert_false(supported(&c));
}

static void integers(void **state)
{
    (void)state;
    enum { COUNT = 512 };
    int32_t x[COUNT], y[COUNT];
    int64_t wide[COUNT], out[COUNT];
    static const int64_t DIVISORS[] = {1, -1, 2, -2, 7, -7, 1000003, INT32_MIN};
    for (size_t d = 0; d < sizeof DIVISORS / sizeof DIVISORS[0]; d++)
        for (int mode = 0; mode < 2; mode++) {
            for (int i = 0; i < COUNT; i++) {
                x[i] = i == 0 ? INT32_MIN : i == 1 ? INT32_MAX : (int32_t)next_random() >> random_below(31);
                wide[i] = i == 0 ? INT64_MIN : (int64_t)next_random() >> random_below(63);
            }
            const char *name = mode ? "Remainder" : "FloorDiv";
            chain c = {.nnodes = 0};
            add_store(&c, with_number(&c, name, TAP_I32, add_load(&c, flat(TAP_I32, COUNT)), whole_number(DIVISORS[d])),
                      flat(TAP_I32, COUNT));
            run_chain(&c, 1, (void *[]){x, y});
            c = (chain){.nnodes = 0};
            add_store(&c, with_number(&c, name, TAP_I64, add_load(&c, flat(TAP_I64, COUNT)), whole_number(DIVISORS[d])),
                      flat(TAP_I64, COUNT));
            run_chain(&c, 1, (void *[]){wide, out});
            for (int i = 0; i < COUNT; i++) {
                __int128 a = x[i], b = DIVISORS[d], q = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
                assert_int_equal(y[i], (int32_t)(mode ? a - q * b : q));
                a = wide[i];
                q = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
                assert_int_equal(out[i], (int64_t)(mode ? a - q * b : q));
            }
        }
}

/* Comparisons, choices and casts agree with C on every instruction set. */
static void choices(void **state)
{
    (void)state;
    enum { COUNT = 777 };
    float x[COUNT], y[COUNT], z[COUNT];
    uint8_t mask[COUNT];
    int64_t whole[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = i % 50 == 0 ? NAN : (float)random_below(9) - 4;
        y[i] = i % 70 == 0 ? INFINITY : (float)random_below(9) - 4;
    }
    chain c = {.nnodes = 0};
    int a = add_load(&c, flat(TAP_F32, COUNT)), b = add_load(&c, flat(TAP_F32, COUNT));
    int less = binary(&c, "Less", TAP_BOOL, a, b);
    int chosen = add_node(&c, "Where", TAP_F32);
    give(&c, chosen, less);
    give(&c, chosen, a);
    give_number(&c, chosen, real_number(0.25));
    int cast = unary(&c, "Cast", TAP_I64, b);
    add_store(&c, less, flat(TAP_BOOL, COUNT));
    add_store(&c, chosen, flat(TAP_F32, COUNT));
    add_store(&c, cast, flat(TAP_I64, COUNT));
    run_chain(&c, 1, (void *[]){x, y, mask, z, whole});
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(mask[i], x[i] < y[i]);
        assert_true(z[i] == (x[i] < y[i] ? x[i] : 0.25f));
        if (isfinite(y[i]))
            assert_int_equal(whole[i], (int64_t)y[i]);
    }
}

/* ----------------------------------------------------------------------------------------------------- small stack */

/* The largest blocks there are, on a thread that has hardly any stack: x * x in complex128. */
static void *run_on_small_stack(void *user)
{
    enum { COUNT = 40000 };
    double *x = user;
    chain c = {.nnodes = 0};
    int a = add_load(&c, flat(TAP_C128, COUNT)), b = add_load(&c, flat(TAP_C128, COUNT));
    add_store(&c, binary(&c, "Mul", TAP_C128, a, b), flat(TAP_C128, COUNT));
    double *y = malloc(COUNT * 2 * sizeof *y);
    run_chain(&c, 1, (void *[]){x, x, y});
    int wrong = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double re = x[2 * i], im = x[2 * i + 1];
        wrong += y[2 * i] != re * re - im * im || y[2 * i + 1] != 2 * re * im;
    }
    free(y);
    return wrong ? user : NULL;
}

static void small_stack(void **state)
{
    (void)state;
    enum { STACK = 256 * 1024, GUARD = 16 << 20 };
    pthread_t thread;
    pthread_attr_t attr;
    void *wrong;
    double *x = malloc(40000 * 2 * sizeof *x);
    for (int i = 0; i < 40000 * 2; i++)
        x[i] = (double)random_below(64) - 32;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK), 0);
    assert_int_equal(pthread_attr_setguardsize(&attr, GUARD), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_on_small_stack, x), 0);
    pthread_join(thread, &wrong);
    pthread_attr_destroy(&attr);
    assert_null(wrong);
    free(x);
}

/* ------------------------------------------------------------------------------------------------- allocation fails */

static void allocations_fail(void **state)
{
    (void)state;
    chain c;
    make_long(&c, 100);
    for (int n = 0; n < c.nnodes; n++)
        c.out[n] = flat(TAP_F32, 100);
    tap__pw *program = NULL;
    int allowed = 0;
    for (;; allowed++) {
        allocations_left = allowed;
        tap_allocator_set(&FAILING_ALLOCATOR);
        tap_status status =
            tap__pw_build(c.nodes, c.nnodes, c.loads, c.nloads, c.stores, c.nstores, 1, &program, NULL);
        if (status == TAP_OK)
            break;
        assert_int_equal(status, TAP_E_NOMEM);
        assert_null(program);
    }
    tap__pw_free(program);
    tap_allocator_set(NULL);
    assert_int_equal(allowed, 2);
}

static int group(const char *isa)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_chain), cmocka_unit_test(functions), cmocka_unit_test(halves),
        cmocka_unit_test(nodes_round), cmocka_unit_test(layouts), cmocka_unit_test(transposed),
        cmocka_unit_test(in_place), cmocka_unit_test(promotion), cmocka_unit_test(refusals),
        cmocka_unit_test(integers), cmocka_unit_test(choices), cmocka_unit_test(small_stack),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

int main(void)
{
    return with_each_isa(group);
}
