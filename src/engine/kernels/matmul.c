/* matmul.c - products of matrices: Mm, Bmm, Addmm, Baddbmm, Mv, Addmv, Dot. Each becomes one problem,
 *     c[i] = alpha * a[i] @ b[i] + beta * d[i]
 * with strides for everything, carried out by oneDNN (float32, float16, bfloat16), BLAS (float64, complex; float32
 * where there is no oneDNN) or loops of our own (integers, and vectors: one of m and n is 1). float16 where oneDNN has no code for it is computed in
 * float32 and rounded once. */
#include "engine/kernels/matmul.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/blas.h"
#include "engine/kernels/matvec.h"
#include "engine/kernels/strided.h"
#include "engine/onednn.h"
#include "tensor/element.h"

#include <string.h>

enum { B, R, C, NONE = -1 }; /* batch, row, column; no input */

typedef enum method { NOTHING, ONLY_ADDEND, BY_VECTOR, BY_ONEDNN, BY_BLAS, BY_LOOPS } method;

typedef struct problem {
    method how;
    tap_dtype dtype;
    int64_t batch, m, n, k;
    int64_t a[3], b[3], c[3], d[3]; /* strides of batch, row, column; zero where one row serves all */
    int in_a, in_b, in_d;           /* which inputs they are; in_d NONE: nothing is added */
    tap__number alpha, beta;
    tap__dnn_job *job;
    tap__matvec vector;
    bool adds_bias;                 /* d is handed to oneDNN as a row; else it is copied into c first */
    tap__gemm_fn gemm;
    size_t item;
    bool ta, tb;                    /* BLAS: how a and b are to be read */
    int64_t lda, ldb, ldc;
    bool copy_a, copy_b, copy_c;    /* BLAS: through the scratch */
    size_t at_a, at_b, at_c;
} problem;

/* ------------------------------------------------------------------------------------------- from operator to problem */

/* How the operands of an operator are laid out. */
typedef struct form {
    int in_d, in_a, in_b;
    bool batched, a_is_row, b_is_column; /* a vector as first or second factor */
} form;

static const tap__number ONE = {.kind = 'I', .i = 1, .re = 1};

static void take_matrix(int64_t stride[3], const tap__operand *from, const form *how, bool is_row, bool is_column)
{
    const int64_t *at = from->stride;
    stride[B] = how->batched ? *at++ : 0;
    stride[R] = is_row ? 0 : *at++;
    stride[C] = is_column ? 0 : *at;
}

/* The addend has the result's sizes, or fewer dimensions, or sizes of 1: one element then serves all. */
static void take_addend(problem *self, const tap__operand *from, const form *how)
{
    static const int OF_MATRIX[] = {C, R, B}, OF_COLUMN[] = {R};
    const int *which = how->b_is_column ? OF_COLUMN : OF_MATRIX;
    for (int i = 0; i < from->ndim && i < 3; i++) {
        int dim = from->ndim - 1 - i;
        self->d[which[i]] = from->size[dim] == 1 ? 0 : from->stride[dim];
    }
}

static void read_problem(problem *self, const tap__call *call, const form *how)
{
    const tap__operand *a = &call->in[how->in_a], *b = &call->in[how->in_b], *c = &call->out[0];
    int first = how->batched ? 1 : 0;
    self->dtype = a->dtype;
    self->item = tap_dtype_describe(a->dtype)->bytes;
    self->in_a = how->in_a;
    self->in_b = how->in_b;
    self->in_d = how->in_d;
    self->batch = how->batched ? a->size[0] : 1;
    self->m = how->a_is_row ? 1 : a->size[first];
    self->k = a->size[a->ndim - 1];
    self->n = how->b_is_column ? 1 : b->size[b->ndim - 1];
    take_matrix(self->a, a, how, how->a_is_row, false);
    take_matrix(self->b, b, how, false, how->b_is_column);
    take_matrix(self->c, c, how, how->a_is_row, how->b_is_column);
    self->alpha = self->beta = ONE;
    if (how->in_d == NONE)
        return;
    self->alpha = tap__call_attr(call, "alpha")->scalar;
    self->beta = tap__call_attr(call, "beta")->scalar;
    take_addend(self, &call->in[how->in_d], how);
    if (self->beta.re == 0 && self->beta.im == 0)
        self->in_d = NONE;
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t was = *a;
    *a = *b;
    *b = was;
}

/* A result that lies column by column is the row-major result of the transposed problem. */
static void transpose(problem *self)
{
    int64_t a[3] = {self->a[B], self->a[C], self->a[R]}, b[3] = {self->b[B], self->b[C], self->b[R]};
    memcpy(self->a, b, sizeof a);
    memcpy(self->b, a, sizeof b);
    swap(&self->c[R], &self->c[C]);
    swap(&self->d[R], &self->d[C]);
    swap(&self->m, &self->n);
    int input = self->in_a;
    self->in_a = self->in_b;
    self->in_b = input;
}

/* One second factor for all of the batch: the batch's rows are rows of one matrix. */
static void fold_batch(problem *self)
{
    if (self->batch < 2 || self->b[B] != 0 || self->a[B] != self->m * self->a[R] ||
        self->c[B] != self->m * self->c[R] || (self->in_d != NONE && self->d[B] != self->m * self->d[R]))
        return;
    self->m *= self->batch;
    self->batch = 1;
}

/* Dimensions of size 1 have strides that mean nothing; libraries look at them all the same. */
static void settle(int64_t stride[3], int64_t rows, int64_t columns)
{
    if (columns == 1)
        stride[C] = 1;
    if (rows == 1)
        stride[R] = columns * stride[C] > 0 ? columns * stride[C] : 1;
}

static void simplify(problem *self)
{
    if (self->c[R] == 1 && self->c[C] != 1 && self->m > 1 && self->n > 1)
        transpose(self);
    fold_batch(self);
    settle(self->a, self->m, self->k);
    settle(self->b, self->k, self->n);
    settle(self->c, self->m, self->n);
}

/* ----------------------------------------------------------------------------------------------------------- vectors */

/* One row or one column of results: the other factor is a vector. */
static bool prepare_vector(problem *self, tap__call *call)
{
    if (self->m != 1 && self->n != 1)
        return false;
    bool column = self->n == 1;
    const int64_t *matrix = column ? self->a : self->b, *vector = column ? self->b : self->a;
    int row = column ? R : C, inner = column ? C : R;
    self->vector = (tap__matvec){.dtype = self->dtype, .batch = self->batch, .rows = column ? self->m : self->n,
                                 .columns = self->k, .adds = self->in_d != NONE, .alpha = self->alpha.re,
                                 .beta = self->beta.re};
    tap__matvec *out = &self->vector;
    out->matrix[0] = matrix[B];
    out->matrix[1] = matrix[row];
    out->matrix[2] = matrix[inner];
    out->vector[0] = vector[B];
    out->vector[1] = vector[column ? R : C];
    out->result[0] = self->c[B];
    out->result[1] = self->c[row];
    out->addend[0] = self->d[B];
    out->addend[1] = self->d[row];
    if (!tap__matvec_fits(out))
        return false;
    call->scratch = tap__matvec_scratch(out);
    self->how = BY_VECTOR;
    return true;
}

static void run_vector(const problem *self, const tap__call *call, void *const *data)
{
    bool column = self->n == 1;
    tap__matvec_run(&self->vector, call, data[column ? self->in_a : self->in_b],
                    data[column ? self->in_b : self->in_a], self->in_d != NONE ? data[self->in_d] : NULL,
                    data[call->nin], data[call->nin + call->nout]);
}

/* ------------------------------------------------------------------------------------------------------------ oneDNN */

static tap__dnn_tensor describe(const problem *self, const int64_t stride[3], int64_t rows, int64_t columns)
{
    tap__dnn_tensor out = {.dtype = (int32_t)self->dtype, .ndim = self->batch > 1 ? 3 : 2};
    int at = 0;
    if (self->batch > 1) {
        out.size[0] = self->batch;
        out.stride[at++] = stride[B];
    }
    out.size[at] = rows;
    out.stride[at++] = stride[R];
    out.size[at] = columns;
    out.stride[at] = stride[C];
    return out;
}

/* One matrix for the whole batch is a batch of one. */
static void share_batch(tap__dnn_tensor *tensor)
{
    if (tensor->ndim != 3 || tensor->stride[0] != 0)
        return;
    tensor->size[0] = 1;
    tensor->stride[0] = tensor->size[1] * tensor->size[2];
}

static void make_dense(tap__dnn_tensor *tensor)
{
    int last = tensor->ndim - 1;
    bool by_columns = tensor->stride[last - 1] == 1 && tensor->stride[last] > 1;
    tensor->stride[last] = by_columns ? tensor->size[last - 1] : 1;
    tensor->stride[last - 1] = by_columns ? 1 : tensor->size[last];
    if (last == 2)
        tensor->stride[0] = tensor->size[1] * tensor->size[2];
}

/* Rows or columns of neighbours, the others behind one another. */
static bool is_plain(const tap__dnn_tensor *tensor)
{
    int last = tensor->ndim - 1;
    const int64_t *size = tensor->size, *stride = tensor->stride;
    return (stride[last] == 1 && stride[last - 1] >= size[last]) ||
           (stride[last - 1] == 1 && stride[last] >= size[last - 1]);
}

/* As the operands lie; with copies of those whose layout is not plain; and all of it in float32. */
static tap_status make_job(problem *self, tap__dnn_desc *desc, tap_error *err)
{
    tap__dnn_tensor actual[TAP_DNN_ROLES];
    memcpy(actual, desc->tensor, sizeof actual);
    for (int i = 0; i < TAP_DNN_ROLES; i++)
        if (i != TAP_DNN_BIAS && !is_plain(&desc->tensor[i]))
            make_dense(&desc->tensor[i]);
    tap_status status = tap__dnn_job_make(desc, actual, &self->job, err);
    if (status != TAP_E_UNSUPPORTED)
        return status;
    for (int i = 0; i < TAP_DNN_ROLES; i++) {
        if (i != TAP_DNN_BIAS)
            make_dense(&desc->tensor[i]);
        if (desc->tensor[i].dtype)
            desc->tensor[i].dtype = TAP_F32;
    }
    return tap__dnn_job_make(desc, actual, &self->job, err);
}

static tap_status prepare_onednn(problem *self, tap__call *call, tap_error *err)
{
    tap__dnn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = TAP_DNN_MATMUL;
    desc.threads = call->threads;
    desc.alpha = (float)self->alpha.re;
    desc.tensor[TAP_DNN_SRC] = describe(self, self->a, self->m, self->k);
    desc.tensor[TAP_DNN_WEIGHTS] = describe(self, self->b, self->k, self->n);
    desc.tensor[TAP_DNN_DST] = describe(self, self->c, self->m, self->n);
    if (self->a[B] == 0 || self->b[B] == 0)
        share_batch(&desc.tensor[self->b[B] == 0 ? TAP_DNN_WEIGHTS : TAP_DNN_SRC]);
    self->adds_bias = self->in_d != NONE && self->alpha.re == 1 && self->beta.re == 1 && self->d[B] == 0 &&
                      self->d[R] == 0 && self->d[C] == 1;
    if (self->adds_bias) {
        int64_t stride[3] = {0, self->n, 1};
        desc.tensor[TAP_DNN_BIAS] = describe(self, stride, 1, self->n);
        share_batch(&desc.tensor[TAP_DNN_BIAS]);
    } else if (self->in_d != NONE) {
        desc.beta = (float)self->beta.re;
    }
    TAP_TRY(make_job(self, &desc, err));
    call->scratch = tap__dnn_job_scratch(self->job);
    self->how = BY_ONEDNN;
    return TAP_OK;
}

static void copy_addend(const problem *self, const tap__call *call, const void *d, void *c)
{
    int64_t size[3] = {self->batch, self->m, self->n};
    tap__strided_copy(call, self->item, 3, size, self->c, c, self->d, d);
}

static tap_status run_onednn(const problem *self, const tap__call *call, void *const *data, tap_error *err)
{
    void *c = data[call->nin], *scratch = data[call->nin + call->nout];
    void *const roles[TAP_DNN_ROLES] = {data[self->in_a], data[self->in_b],
                                        self->adds_bias ? data[self->in_d] : NULL, c};
    if (self->in_d != NONE && !self->adds_bias)
        copy_addend(self, call, data[self->in_d], c);
    return tap__dnn_job_run(self->job, call, roles, scratch, err);
}

/* -------------------------------------------------------------------------------------------------------------- BLAS */

/* True: can be read in place, as it is or transposed. */
static bool fits_blas(const int64_t stride[3], int64_t rows, int64_t columns, bool *transposed, int64_t *ld)
{
    if (stride[C] == 1 && stride[R] >= columns && stride[R] <= TAP_GEMM_MAX) {
        *transposed = false;
        *ld = stride[R];
        return true;
    }
    if (stride[R] == 1 && stride[C] >= rows && stride[C] <= TAP_GEMM_MAX) {
        *transposed = true;
        *ld = stride[C];
        return true;
    }
    *transposed = false;
    *ld = columns;
    return false;
}

static size_t reserve(tap__call *call, size_t item, int64_t batch, int64_t rows, int64_t columns)
{
    size_t at = call->scratch;
    call->scratch += ((size_t)(batch * rows * columns) * item + 63) / 64 * 64;
    return at;
}

static tap_status prepare_blas(problem *self, tap__call *call, tap_error *err)
{
    self->gemm = tap__gemm(self->dtype);
    if (!self->gemm || self->m > TAP_GEMM_MAX || self->n > TAP_GEMM_MAX || self->k > TAP_GEMM_MAX)
        return tap__refuse(call, err);
    bool transposed;
    self->copy_a = !fits_blas(self->a, self->m, self->k, &self->ta, &self->lda);
    self->copy_b = !fits_blas(self->b, self->k, self->n, &self->tb, &self->ldb);
    self->copy_c = !fits_blas(self->c, self->m, self->n, &transposed, &self->ldc) || transposed;
    if (self->copy_c)
        self->ldc = self->n;
    if (self->copy_a)
        self->at_a = reserve(call, self->item, self->batch, self->m, self->k);
    if (self->copy_b)
        self->at_b = reserve(call, self->item, self->batch, self->k, self->n);
    if (self->copy_c)
        self->at_c = reserve(call, self->item, self->batch, self->m, self->n);
    self->how = BY_BLAS;
    return TAP_OK;
}

/* A number in the matrices' own type. */
static void put_number(const problem *self, const tap__number *number, void *out)
{
    tap_scalar value = {.kind = 'C', .re = number->re, .im = number->im};
    if (tap_dtype_describe(self->dtype)->kind == 'F')
        value.kind = 'F';
    tap__element_put(self->dtype, out, 0, &value);
}

typedef struct products {
    const problem *self;
    const char *a, *b;
    char *c;
    int64_t a_step, b_step, c_step; /* bytes from one matrix to the next */
    _Alignas(8) char alpha[16], beta[16];
} products;

static void run_products(void *user, int64_t begin, int64_t end)
{
    const products *all = user;
    const problem *self = all->self;
    for (int64_t i = begin; i < end; i++)
        self->gemm(self->ta, self->tb, self->m, self->n, self->k, all->alpha, all->a + i * all->a_step, self->lda,
                   all->b + i * all->b_step, self->ldb, all->beta, all->c + i * all->c_step, self->ldc);
}

static const char *copy_in(const problem *self, const tap__call *call, const int64_t stride[3], int64_t rows,
                           int64_t columns, const void *from, char *to)
{
    int64_t size[3] = {self->batch, rows, columns}, dense[3] = {rows * columns, columns, 1};
    tap__strided_copy(call, self->item, 3, size, dense, to, stride, from);
    return to;
}

static void run_blas(const problem *self, const tap__call *call, void *const *data)
{
    char *scratch = data[call->nin + call->nout], *c = data[call->nin];
    int64_t item = (int64_t)self->item, m = self->m, n = self->n, k = self->k;
    products all = {.self = self, .a = data[self->in_a], .b = data[self->in_b], .c = c};
    all.a_step = (self->copy_a ? m * k : self->a[B]) * item;
    all.b_step = (self->copy_b ? k * n : self->b[B]) * item;
    all.c_step = (self->copy_c ? m * n : self->c[B]) * item;
    if (self->copy_a)
        all.a = copy_in(self, call, self->a, m, k, all.a, scratch + self->at_a);
    if (self->copy_b)
        all.b = copy_in(self, call, self->b, k, n, all.b, scratch + self->at_b);
    if (self->copy_c)
        all.c = scratch + self->at_c;
    int64_t size[3] = {self->batch, m, n}, dense[3] = {m * n, n, 1};
    if (self->in_d != NONE)
        tap__strided_copy(call, self->item, 3, size, self->copy_c ? dense : self->c, all.c, self->d,
                          data[self->in_d]);
    tap__number zero = {.kind = 'I'};
    put_number(self, &self->alpha, all.alpha);
    put_number(self, self->in_d != NONE ? &self->beta : &zero, all.beta);
    /* many matrices: a thread each; few: all threads for each */
    bool many = self->batch >= 2 * call->threads;
    tap__thread_limit before = tap__thread_limit_enter(many ? 1 : call->threads);
    if (many)
        tap__parallel(call->threads, self->batch, 1, TAP_ANY_LENGTH, run_products, &all);
    else
        run_products(&all, 0, self->batch);
    tap__thread_limit_leave(before);
    if (self->copy_c)
        tap__strided_copy(call, self->item, 3, size, self->c, c, dense, all.c);
}

/* -------------------------------------------------------------------------------------------------------- own loops */

typedef struct rows {
    const problem *self;
    const void *a, *b, *d;
    void *c;
} rows;

enum { COLUMNS = 256 };

#define TIMES(word, x, y) ((word)(x) * (word)(int64_t)(y))

/* Integers wrap, so unsigned arithmetic of at least 32 bits gives ATen's result. */
#define INTEGER_ROWS(name, type, word)                                                                               \
    static void rows_##name(void *user, int64_t begin, int64_t end)                                                  \
    {                                                                                                                \
        const rows *all = user;                                                                                      \
        const problem *p = all->self;                                                                                \
        const type *a = all->a, *b = all->b, *d = all->d;                                                            \
        type *c = all->c;                                                                                            \
        word alpha = (word)p->alpha.i, beta = (word)p->beta.i;                                                       \
        for (int64_t row = begin; row < end; row++) {                                                                \
            int64_t batch = row / p->m, i = row % p->m;                                                              \
            for (int64_t first = 0; first < p->n; first += COLUMNS) {                                                \
                int64_t count = p->n - first < COLUMNS ? p->n - first : COLUMNS;                                     \
                word sum[COLUMNS] = {0};                                                                             \
                for (int64_t k = 0; k < p->k; k++) {                                                                 \
                    word x = (word)a[batch * p->a[B] + i * p->a[R] + k * p->a[C]];                                   \
                    const type *from = b + batch * p->b[B] + k * p->b[R] + first * p->b[C];                          \
                    if (p->b[C] == 1)                                                                                \
                        for (int64_t j = 0; j < count; j++)                                                          \
                            sum[j] += TIMES(word, x, from[j]);                                                       \
                    else                                                                                             \
                        for (int64_t j = 0; j < count; j++)                                                          \
                            sum[j] += TIMES(word, x, from[j * p->b[C]]);                                             \
                }                                                                                                    \
                type *to = c + batch * p->c[B] + i * p->c[R] + first * p->c[C];                                      \
                for (int64_t j = 0; j < count; j++)                                                                  \
                    to[j * p->c[C]] = (type)(alpha * sum[j]);                                                        \
                if (!d)                                                                                              \
                    continue;                                                                                        \
                const type *add = d + batch * p->d[B] + i * p->d[R] + first * p->d[C];                               \
                for (int64_t j = 0; j < count; j++)                                                                  \
                    to[j * p->c[C]] = (type)(alpha * sum[j] + TIMES(word, beta, add[j * p->d[C]]));                  \
            }                                                                                                        \
        }                                                                                                            \
    }
INTEGER_ROWS(u8, uint8_t, uint32_t)
INTEGER_ROWS(i8, int8_t, uint32_t)
INTEGER_ROWS(i16, int16_t, uint32_t)
INTEGER_ROWS(i32, int32_t, uint32_t)
INTEGER_ROWS(i64, int64_t, uint64_t)

typedef void (*rows_fn)(void *user, int64_t begin, int64_t end);

static rows_fn find_loops(tap_dtype dtype)
{
    switch ((int)dtype) {
    case TAP_U8: return rows_u8;
    case TAP_I8: return rows_i8;
    case TAP_I16: return rows_i16;
    case TAP_I32: return rows_i32;
    case TAP_I64: return rows_i64;
    default: return NULL;
    }
}

/* Pieces of about a hundred thousand multiplications. */
static int64_t rows_grain(const problem *self)
{
    int64_t work = self->n * (self->k + 1);
    return work >= 100000 ? 1 : 100000 / (work + 1) + 1;
}

/* beta * d, or zero: nothing is multiplied. */
static void addend_rows(void *user, int64_t begin, int64_t end)
{
    const rows *all = user;
    const problem *p = all->self;
    int64_t item = (int64_t)p->item;
    char kind = tap_dtype_describe(p->dtype)->kind;
    for (int64_t row = begin; row < end; row++) {
        int64_t batch = row / p->m, i = row % p->m;
        for (int64_t j = 0; j < p->n; j++) {
            char *to = (char *)all->c + (batch * p->c[B] + i * p->c[R] + j * p->c[C]) * item;
            memset(to, 0, p->item);
            if (!all->d)
                continue;
            const char *from = (const char *)all->d + (batch * p->d[B] + i * p->d[R] + j * p->d[C]) * item;
            tap_scalar value = tap__element_get(p->dtype, from, 0);
            double re = value.re, im = value.im;
            value.re = re * p->beta.re - (kind == 'C' ? im * p->beta.im : 0);
            value.im = kind == 'C' ? re * p->beta.im + im * p->beta.re : 0;
            value.i = (int64_t)((uint64_t)value.i * (uint64_t)p->beta.i);
            value.u = (value.u * (uint64_t)p->beta.i) & 0xFF;
            if (kind == 'I' && p->item < 8) { /* wraps, where storing would saturate */
                int shift = 64 - 8 * (int)p->item;
                value.i = (int64_t)((uint64_t)value.i << shift) >> shift;
            }
            tap__element_put(p->dtype, to, 0, &value);
        }
    }
}

static void run_rows(const problem *self, const tap__call *call, void *const *data, rows_fn fn)
{
    rows all = {.self = self, .a = data[self->in_a], .b = data[self->in_b], .c = data[call->nin],
                .d = self->in_d != NONE ? data[self->in_d] : NULL};
    tap__parallel(call->threads, self->batch * self->m, rows_grain(self), TAP_ANY_LENGTH, fn, &all);
}

/* -------------------------------------------------------------------------------------------------------- the kernels */

static tap_status choose(problem *self, tap__call *call, tap_error *err)
{
    char kind = tap_dtype_describe(self->dtype)->kind;
    if (self->batch == 0 || self->m == 0 || self->n == 0) {
        self->how = NOTHING;
        return TAP_OK;
    }
    bool known = find_loops(self->dtype) || kind == 'C' || self->dtype == TAP_F64 || self->dtype == TAP_F32 ||
                 self->dtype == TAP_BF16 || self->dtype == TAP_F16;
    if (known && (self->k == 0 || (self->alpha.re == 0 && self->alpha.im == 0))) {
        self->how = ONLY_ADDEND;
        return TAP_OK;
    }
    if (find_loops(self->dtype)) {
        self->how = BY_LOOPS;
        return TAP_OK;
    }
    if (prepare_vector(self, call))
        return TAP_OK;
    if (self->dtype == TAP_BF16 || self->dtype == TAP_F16 || (self->dtype == TAP_F32 && tap__dnn()))
        return prepare_onednn(self, call, err);
    return prepare_blas(self, call, err);
}

/* The factors' ranks, and an addend that is broadcast to the result; the shape rule has looked at the factors' sizes. */
static bool ranks_fit(const tap__call *call, const form *how)
{
    const tap__operand *c = &call->out[0], *d = how->in_d == NONE ? NULL : &call->in[how->in_d];
    if (call->in[how->in_a].ndim != (how->batched ? 3 : how->a_is_row ? 1 : 2) ||
        call->in[how->in_b].ndim != (how->batched ? 3 : how->b_is_column ? 1 : 2))
        return false;
    for (int i = 1; d && i <= d->ndim; i++)
        if (i > c->ndim || (d->size[d->ndim - i] != 1 && d->size[d->ndim - i] != c->size[c->ndim - i]))
            return false;
    return true;
}

static tap_status prepare(tap__call *call, const form *how, tap_error *err)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].dtype != call->out[0].dtype || call->in[i].is_number)
            return tap__refuse(call, err);
    if (!ranks_fit(call, how))
        return tap__refuse(call, err);
    problem *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    read_problem(self, call, how);
    simplify(self);
    call->scratch = 0;
    tap_status status = choose(self, call, err);
    if (status != TAP_OK) {
        tap__free(self);
        return status;
    }
    call->state = self;
    return TAP_OK;
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const problem *self = call->state;
    switch (self->how) {
    case NOTHING: break;
    case ONLY_ADDEND: run_rows(self, call, data, addend_rows); break;
    case BY_VECTOR: run_vector(self, call, data); break;
    case BY_ONEDNN: return run_onednn(self, call, data, err);
    case BY_BLAS: run_blas(self, call, data); break;
    case BY_LOOPS: run_rows(self, call, data, find_loops(self->dtype)); break;
    }
    return TAP_OK;
}

static void release(tap__call *call)
{
    problem *self = call->state;
    if (!self)
        return;
    tap__dnn_job_free(self->job);
    tap__free(self);
    call->state = NULL;
}

#define PRODUCT(name, ...)                                                                                           \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        static const form HOW = {__VA_ARGS__};                                                                       \
        return prepare(call, &HOW, err);                                                                             \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {.prepare = prepare_##name, .run = run, .release = release};

PRODUCT(addmm, .in_d = 0, .in_a = 1, .in_b = 2)
PRODUCT(addmv, .in_d = 0, .in_a = 1, .in_b = 2, .b_is_column = true)
PRODUCT(baddbmm, .in_d = 0, .in_a = 1, .in_b = 2, .batched = true)
PRODUCT(bmm, .in_d = NONE, .in_a = 0, .in_b = 1, .batched = true)
PRODUCT(dot, .in_d = NONE, .in_a = 0, .in_b = 1, .a_is_row = true, .b_is_column = true)
PRODUCT(mm, .in_d = NONE, .in_a = 0, .in_b = 1)
PRODUCT(mv, .in_d = NONE, .in_a = 0, .in_b = 1, .b_is_column = true)
