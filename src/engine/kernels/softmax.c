/* softmax.c - softmax and its logarithm along one dimension, and their gradients. A line along the dimension is worked
 * on in the cache: its maximum, its powers and their sum, its result. Where another dimension has the smaller stride, a
 * block of its columns is worked on together. */
#include "engine/kernels/lines.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 512,      /* columns of a block */
    CACHED = 262144,  /* numbers of a block of columns that stay in the cache */
    NARROW = 64,      /* columns that are at least read together */
    WHOLE = 4096,     /* doubles of a line kept in a buffer */
    GRAIN = 16384,    /* numbers that are worth a task */
    OPERANDS = 3
};

typedef struct softmax {
    const tap__lanes *lanes;
    const tap__lane_math *math;
    tap__lane_type type;        /* computed in */
    size_t bytes;               /* of a number computed in */
    bool logarithm, safe;
    int operands;               /* forward: x, y; gradient: g, y, dx */
    tap_dtype dtype[OPERANDS];
    int64_t item[OPERANDS];     /* bytes of an element */
    bool plain;                 /* lines of all operands are numbers computed in, one after the other */
    tap__space kept;            /* all dimensions but one */
    int64_t n, stride[OPERANDS]; /* that one */
    bool columns;
    int64_t width, lines, blocks;
} softmax;

typedef struct job {
    const softmax *self;
    void *const *data;
} job;

/* --------------------------------------------------------------------------------------------------------- planning */

static int64_t at_least(int64_t x, int64_t least)
{
    return x < least ? least : x;
}

static void choose_order(softmax *self)
{
    const tap__space *kept = &self->kept;
    int64_t columns = kept->size[kept->ndim - 1], step = kept->stride[0][kept->ndim - 1];
    self->columns = self->stride[0] != 1 && columns >= 4 && step < self->stride[0] && self->n > 1;
    self->width = 1;
    self->lines = kept->count;
    self->blocks = 1;
    if (!self->columns)
        return;
    int64_t width = at_least(CACHED / self->n / 16 * 16, NARROW);
    self->width = width < WIDTH ? width : WIDTH;
    self->width = columns < self->width ? columns : self->width;
    self->lines = kept->count / columns;
    self->blocks = (columns + self->width - 1) / self->width;
}

static bool is_float(tap_dtype dtype)
{
    return dtype == TAP_F16 || dtype == TAP_BF16 || dtype == TAP_F32 || dtype == TAP_F64;
}

static tap_status prepare(tap__call *call, const tap__operand *const *operands, int count, bool logarithm, bool safe,
                          tap_error *err)
{
    const tap__operand *x = operands[0];
    int64_t axis = tap__call_attr(call, "axis")->i, strides[OPERANDS];
    if (axis < 0)
        axis += x->ndim;
    if (x->ndim && (axis < 0 || axis >= x->ndim))
        return tap__refuse(call, err);
    for (int k = 0; k < count; k++) {
        bool wide = operands[k]->dtype == TAP_F64;
        if (!is_float(operands[k]->dtype) || wide != (x->dtype == TAP_F64) ||
            !tap__operand_same_sizes(operands[k], x))
            return tap__refuse(call, err);
    }
    softmax *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->lanes = tap__lanes_now();
    self->type = x->dtype == TAP_F64 ? TAP_LANE_F64 : TAP_LANE_F32;
    self->math = &self->lanes->math[self->type];
    self->bytes = x->dtype == TAP_F64 ? 8 : 4;
    self->logarithm = logarithm;
    self->safe = safe;
    self->operands = count;
    self->n = 1;
    tap__space_begin(&self->kept, count);
    for (int i = 0; i < x->ndim; i++) {
        for (int k = 0; k < count; k++)
            strides[k] = operands[k]->stride[i];
        if (i == axis) {
            self->n = x->size[i];
            memcpy(self->stride, strides, sizeof strides);
        } else {
            tap__space_add(&self->kept, x->size[i], strides);
        }
    }
    for (int k = 0; k < count; k++) {
        self->dtype[k] = operands[k]->dtype;
        self->item[k] = (int64_t)tap_dtype_describe(operands[k]->dtype)->bytes;
        if (self->n == 1)
            self->stride[k] = 1;
    }
    self->plain = true;
    for (int k = 0; k < count; k++)
        self->plain = self->plain && tap__line_is_direct(self->dtype[k], self->stride[k], self->n);
    tap__space_end(&self->kept, true);
    choose_order(self);
    call->state = self;
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ lines */

static void *plus(const softmax *self, const void *base, int k, int64_t elements)
{
    return (char *)base + elements * self->item[k];
}

/* n numbers of operand k from element i of the line on. */
static const void *load(const softmax *self, int k, const void *line, int64_t i, int64_t n, void *buffer)
{
    return tap__line_load(self->lanes, self->dtype[k], plus(self, line, k, i * self->stride[k]), self->stride[k], n,
                          buffer);
}

static void put(const softmax *self, int k, void *line, int64_t i, int64_t n, const void *from)
{
    tap__line_store(self->lanes, self->dtype[k], plus(self, line, k, i * self->stride[k]), self->stride[k], n, from);
}

static void *target(const softmax *self, int k, void *line, int64_t i, int64_t n, void *buffer)
{
    return tap__line_target(self->dtype[k], plus(self, line, k, i * self->stride[k]), self->stride[k], n, buffer);
}

/* From numbers that lie together to numbers that lie together; y may be x. */
static void forward_numbers(const softmax *self, void *y, const void *x, int64_t n)
{
    double top = -INFINITY;
    self->lanes->row[TAP_FOLD_MAX][self->type](&top, x, n, NULL);
    if (self->safe && top == -INFINITY) {
        memset(y, 0, (size_t)n * self->bytes);
        return;
    }
    if (!self->logarithm) {
        double sum = self->math->exp_sum(y, x, top, n);
        self->math->scale(y, y, 1 / sum, n);
        return;
    }
    double powers[TAP_LINE], sum = 0;
    for (int64_t i = 0; i < n; i += TAP_LINE)
        sum += self->math->exp_sum(powers, (const char *)x + (size_t)i * self->bytes, top,
                                   n - i < TAP_LINE ? n - i : TAP_LINE);
    self->math->minus(y, x, top, log(sum), n);
}

/* A line too long for a buffer, of which the numbers are brought together again for each pass. */
static void forward_pieces(const softmax *self, const void *x, void *y)
{
    double buffer[TAP_LINE], powers[TAP_LINE], top = -INFINITY, sum = 0;
    int64_t n = self->n, i, take;
#define EACH_PIECE for (i = 0; i < n && (take = n - i < TAP_LINE ? n - i : TAP_LINE, 1); i += take)
    EACH_PIECE
        self->lanes->row[TAP_FOLD_MAX][self->type](&top, load(self, 0, x, i, take, buffer), take, NULL);
    bool nothing = self->safe && top == -INFINITY;
    EACH_PIECE
        sum += self->math->exp_sum(powers, load(self, 0, x, i, take, buffer), top, take);
    EACH_PIECE {
        const void *from = load(self, 0, x, i, take, buffer);
        if (nothing) {
            memset(powers, 0, sizeof powers);
        } else if (self->logarithm) {
            self->math->minus(powers, from, top, log(sum), take);
        } else {
            self->math->exp_sum(powers, from, top, take);
            self->math->scale(powers, powers, 1 / sum, take);
        }
        put(self, 1, y, i, take, powers);
    }
#undef EACH_PIECE
}

static void forward_line(const softmax *self, const void *x, void *y)
{
    double whole[WHOLE];
    whole[0] = 0; /* a line of no numbers */
    int64_t n = self->n;
    if (self->plain) {
        forward_numbers(self, y, x, n);
    } else if ((size_t)n * self->bytes <= sizeof whole) {
        for (int64_t i = 0, take; i < n; i += take) {
            take = n - i < TAP_LINE ? n - i : TAP_LINE;
            char *to = (char *)whole + (size_t)i * self->bytes;
            const void *from = load(self, 0, x, i, take, to);
            if (from != to)
                memcpy(to, from, (size_t)take * self->bytes);
        }
        forward_numbers(self, whole, whole, n);
        for (int64_t i = 0, take; i < n; i += take) {
            take = n - i < TAP_LINE ? n - i : TAP_LINE;
            put(self, 1, y, i, take, (char *)whole + (size_t)i * self->bytes);
        }
    } else {
        forward_pieces(self, x, y);
    }
}

static void gradient_line(const softmax *self, const void *g, const void *y, void *dx)
{
    double a[TAP_LINE], b[TAP_LINE], c[TAP_LINE], sum = 0;
    int64_t n = self->n, most = tap__line_chunk(n, self->plain);
    for (int64_t i = 0, take; i < n; i += take) {
        take = n - i < most ? n - i : most;
        const void *from = load(self, 0, g, i, take, a);
        if (self->logarithm)
            self->lanes->row[TAP_FOLD_SUM][self->type](&sum, from, take, NULL);
        else
            sum += self->math->dot(from, load(self, 1, y, i, take, b), take);
    }
    for (int64_t i = 0, take; i < n; i += take) {
        take = n - i < most ? n - i : most;
        const void *from = load(self, 0, g, i, take, a), *out = load(self, 1, y, i, take, b);
        void *to = target(self, 2, dx, i, take, c);
        (self->logarithm ? self->math->log_softmax_grad : self->math->softmax_grad)(to, from, out, sum, take);
        put(self, 2, dx, i, take, to);
    }
}

/* Lines that lie one behind the other as numbers. Each is done while it is in the first level of the cache: the sums of
 * a few of them first made it a tenth slower. */
static void run_plain_gradient(const job *work, int64_t from, int64_t to)
{
    const softmax *self = work->self;
    int64_t n = self->n, next[OPERANDS];
    for (int k = 0; k < OPERANDS; k++)
        next[k] = self->kept.stride[k][0] * self->item[k];
    const char *g = (const char *)work->data[0] + from * next[0], *y = (const char *)work->data[1] + from * next[1];
    char *dx = (char *)work->data[2] + from * next[2];
    for (; from < to; from++, g += next[0], y += next[1], dx += next[2])
        self->math->softmax_grad(dx, g, y, self->math->dot(g, y, n), n);
}

static void run_lines(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const softmax *self = work->self;
    if (self->plain && self->operands == 3 && !self->logarithm && self->kept.ndim == 1) {
        run_plain_gradient(work, from, to);
        return;
    }
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->kept, from);
    for (; from < to; from++) {
        void *at[OPERANDS] = {NULL, NULL, NULL};
        for (int k = 0; k < self->operands; k++)
            at[k] = plus(self, work->data[k], k, cursor.at[k]);
        if (self->operands == 2)
            forward_line(self, at[0], at[1]);
        else
            gradient_line(self, at[0], at[1], at[2]);
        tap__cursor_step(&cursor, 1);
    }
}

/* ---------------------------------------------------------------------------------------------------------- columns */

/* Numbers of row r of a block of n columns; the columns lie `step` apart. */
static const void *load_row(const softmax *self, int k, const void *block, int64_t r, int64_t n, void *buffer)
{
    return tap__line_load(self->lanes, self->dtype[k], plus(self, block, k, r * self->stride[k]),
                          self->kept.stride[k][self->kept.ndim - 1], n, buffer);
}

static void *target_row(const softmax *self, int k, void *block, int64_t r, int64_t n, void *buffer)
{
    return tap__line_target(self->dtype[k], plus(self, block, k, r * self->stride[k]),
                            self->kept.stride[k][self->kept.ndim - 1], n, buffer);
}

static void put_row(const softmax *self, int k, void *block, int64_t r, int64_t n, const void *from)
{
    tap__line_store(self->lanes, self->dtype[k], plus(self, block, k, r * self->stride[k]),
                    self->kept.stride[k][self->kept.ndim - 1], n, from);
}

static void forward_block(const softmax *self, const void *x, void *y, int64_t n)
{
    double a[WIDTH], b[WIDTH], top[WIDTH], sum[WIDTH] = {0};
    for (int64_t j = 0; j < n; j++)
        top[j] = -INFINITY;
    for (int64_t r = 0; r < self->n; r++)
        self->lanes->col[TAP_FOLD_MAX][self->type](top, load_row(self, 0, x, r, n, a), n, 1, n, NULL);
    bool kept = tap__line_is_direct(self->dtype[1], self->kept.stride[1][self->kept.ndim - 1], n) && !self->logarithm;
    for (int64_t r = 0; r < self->n; r++)
        self->math->col_exp_sum(kept ? target_row(self, 1, y, r, n, b) : b, load_row(self, 0, x, r, n, a), top, sum, n);
    for (int64_t j = 0; j < n; j++)
        sum[j] = self->logarithm ? log(sum[j]) : 1 / sum[j];
    for (int64_t r = 0; r < self->n; r++) {
        double unused[WIDTH];
        void *to = target_row(self, 1, y, r, n, b);
        if (self->logarithm) {
            self->math->col_minus(to, load_row(self, 0, x, r, n, a), top, sum, n);
        } else {
            if (!kept)
                self->math->col_exp_sum(to, load_row(self, 0, x, r, n, a), top, memset(unused, 0, sizeof unused), n);
            self->math->col_scale(to, to, sum, n);
        }
        for (int64_t j = 0; self->safe && j < n; j++)
            if (top[j] == -INFINITY)
                memset((char *)to + (size_t)j * self->bytes, 0, self->bytes);
        put_row(self, 1, y, r, n, to);
    }
}

static void gradient_block(const softmax *self, const void *g, const void *y, void *dx, int64_t n)
{
    double a[WIDTH], b[WIDTH], c[WIDTH], sum[WIDTH] = {0};
    static const double zeros[WIDTH];
    for (int64_t r = 0; r < self->n; r++) {
        const void *from = load_row(self, 0, g, r, n, a);
        if (self->logarithm)
            self->lanes->col[TAP_FOLD_SUM][self->type](sum, from, n, 1, n, zeros);
        else
            self->math->col_dot(sum, from, load_row(self, 1, y, r, n, b), n);
    }
    for (int64_t r = 0; r < self->n; r++) {
        const void *from = load_row(self, 0, g, r, n, a), *out = load_row(self, 1, y, r, n, b);
        void *to = target_row(self, 2, dx, r, n, c);
        (self->logarithm ? self->math->col_log_softmax_grad : self->math->col_softmax_grad)(to, from, out, sum, n);
        put_row(self, 2, dx, r, n, to);
    }
}

static void run_blocks(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const softmax *self = work->self;
    int64_t columns = self->kept.size[self->kept.ndim - 1];
    for (; from < to; from++) {
        int64_t column = from % self->blocks * self->width;
        int64_t n = columns - column < self->width ? columns - column : self->width;
        tap__cursor cursor;
        tap__cursor_seek(&cursor, &self->kept, from / self->blocks * columns + column);
        void *at[OPERANDS] = {NULL, NULL, NULL};
        for (int k = 0; k < self->operands; k++)
            at[k] = plus(self, work->data[k], k, cursor.at[k]);
        if (self->operands == 2)
            forward_block(self, at[0], at[1], n);
        else
            gradient_block(self, at[0], at[1], at[2], n);
    }
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const softmax *self = call->state;
    job work = {.self = self, .data = data};
    (void)err;
    if (self->n == 0 || self->kept.count == 0)
        return TAP_OK;
    int64_t each = self->n * self->width;
    tap__parallel(call->threads, self->lines * self->blocks, each < GRAIN ? GRAIN / each : 1, TAP_ANY_LENGTH,
                  self->columns ? run_blocks : run_lines, &work);
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

static tap_status prepare_forward(tap__call *call, bool logarithm, bool safe, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->out[0]};
    return prepare(call, operands, 2, logarithm, safe, err);
}

static tap_status prepare_gradient(tap__call *call, bool logarithm, tap_error *err)
{
    const tap__operand *operands[] = {&call->in[0], &call->in[1], &call->out[0]};
    return prepare(call, operands, 3, logarithm, false, err);
}

#define KERNEL_OF(name, prepared)                                                                                    \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        return prepared;                                                                                             \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {.prepare = prepare_##name, .run = run, .release = release};
KERNEL_OF(softmax, prepare_forward(call, false, false, err))
KERNEL_OF(log_softmax, prepare_forward(call, true, false, err))
KERNEL_OF(safe_softmax, prepare_forward(call, false, true, err))
KERNEL_OF(softmax_grad, prepare_gradient(call, false, err))
KERNEL_OF(log_softmax_grad, prepare_gradient(call, true, err))
