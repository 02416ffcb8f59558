/* running.c - results along one dimension that go on from element to element: sums, products, the largest and smallest
 * so far with their indices, and the logarithm of a sum of powers. Lines are independent of each other. */
#include "engine/kernels/lines.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 512, GRAIN = 16384 };

typedef enum kind { SUM, PRODUCT, LARGEST, SMALLEST, POWERS } kind;

typedef struct running {
    const tap__lanes *lanes;
    kind what;
    bool is_float;              /* computed in double, else in int64_t */
    tap_dtype from, to;
    tap__space kept;            /* x, y, indices: all dimensions but one */
    int64_t n, stride[3];       /* that one */
    int64_t width, lines, blocks;
} running;

typedef union value {
    double f;
    int64_t i;
} value;

typedef struct job {
    const running *self;
    void *const *data;
} job;

#define READ(type, member)                                                                                           \
    do {                                                                                                             \
        const type *at = x;                                                                                          \
        for (int64_t j = 0; j < n; j++)                                                                              \
            out[j].member = at[j * step];                                                                            \
        return;                                                                                                      \
    } while (0)

static void read_row(const running *self, const void *x, int64_t step, int64_t n, value *out)
{
    switch (self->from) {
    case TAP_F32:
        READ(float, f);
    case TAP_F64:
        READ(double, f);
    case TAP_BOOL:
    case TAP_U8:
        if (self->is_float)
            READ(uint8_t, f);
        READ(uint8_t, i);
    case TAP_I8:
        if (self->is_float)
            READ(int8_t, f);
        READ(int8_t, i);
    case TAP_I16:
        if (self->is_float)
            READ(int16_t, f);
        READ(int16_t, i);
    case TAP_I32:
        if (self->is_float)
            READ(int32_t, f);
        READ(int32_t, i);
    case TAP_I64:
        if (self->is_float)
            for (int64_t j = 0; j < n; j++)
                out[j].f = (double)((const int64_t *)x)[j * step];
        else
            READ(int64_t, i);
        return;
    default: {
        double buffer[TAP_LINE];
        const float *wide = tap__line_load(self->lanes, self->from, x, step, n, buffer);
        for (int64_t j = 0; j < n; j++)
            out[j].f = wide[j];
    }
    }
}

static void write_row(const running *self, void *y, int64_t step, int64_t n, const value *from)
{
    if (!self->is_float && self->to == TAP_I64) {
        for (int64_t j = 0; j < n; j++)
            ((int64_t *)y)[j * step] = from[j].i;
    } else if (!self->is_float) {
        for (int64_t j = 0; j < n; j++)
            tap__put_int(self->to, tap__element_at(y, self->to, j * step), from[j].i);
    } else if (self->to == TAP_F32) {
        for (int64_t j = 0; j < n; j++)
            ((float *)y)[j * step] = (float)from[j].f;
    } else if (self->to == TAP_F64) {
        for (int64_t j = 0; j < n; j++)
            ((double *)y)[j * step] = from[j].f;
    } else {
        float rounded[WIDTH];
        for (int64_t j = 0; j < n; j++)
            rounded[j] = (float)from[j].f;
        tap__line_store(self->lanes, self->to, y, step, n, rounded);
    }
}

/* the largest so far goes on with the later of equal values, and with NaN once there is one */
static bool goes_on(const running *self, value x, value best)
{
    if (!self->is_float)
        return self->what == LARGEST ? x.i >= best.i : x.i <= best.i;
    return isnan(x.f) || (!isnan(best.f) && (self->what == LARGEST ? x.f >= best.f : x.f <= best.f));
}

static double add_powers(double a, double b)
{
    double low = a < b ? a : b, high = a < b ? b : a;
    if (isnan(a) || isnan(b))
        return a + b;
    return low != high || isfinite(low) ? log1p(exp(low - high)) + high : a;
}

/* carry[j] joined with x[j]; x[j] becomes the result */
static void join_row(const running *self, value *carry, int64_t *index, value *x, int64_t n, int64_t at)
{
    switch (self->what) {
    case SUM:
        for (int64_t j = 0; j < n; j++)
            if (self->is_float)
                x[j].f = carry[j].f += x[j].f;
            else
                x[j].i = carry[j].i = (int64_t)((uint64_t)carry[j].i + (uint64_t)x[j].i);
        return;
    case PRODUCT:
        for (int64_t j = 0; j < n; j++)
            if (self->is_float)
                x[j].f = carry[j].f *= x[j].f;
            else
                x[j].i = carry[j].i = (int64_t)((uint64_t)carry[j].i * (uint64_t)x[j].i);
        return;
    case POWERS:
        for (int64_t j = 0; j < n; j++)
            x[j].f = carry[j].f = at ? add_powers(x[j].f, carry[j].f) : x[j].f;
        return;
    default:
        for (int64_t j = 0; j < n; j++) {
            if (at == 0 || goes_on(self, x[j], carry[j])) {
                carry[j] = x[j];
                index[j] = at;
            }
            x[j] = carry[j];
        }
    }
}

static void *place(const running *self, void *base, tap_dtype dtype, const tap__cursor *cursor, int k, int64_t row)
{
    return tap__element_at(base, dtype, cursor->at[k] + row * self->stride[k]);
}

/* n columns next to each other, row after row; one column for lines. */
static void run_block(const job *work, const tap__cursor *cursor, int64_t n)
{
    const running *self = work->self;
    value carry[WIDTH], x[WIDTH];
    int64_t index[WIDTH] = {0}, step[3];
    for (int k = 0; k < 3; k++)
        step[k] = self->kept.stride[k][self->kept.ndim - 1];
    for (int64_t j = 0; j < n; j++)
        carry[j] = self->what != PRODUCT ? (value){.i = 0} : self->is_float ? (value){.f = 1} : (value){.i = 1};
    for (int64_t row = 0; row < self->n; row++) {
        read_row(self, place(self, work->data[0], self->from, cursor, 0, row), step[0], n, x);
        join_row(self, carry, index, x, n, row);
        write_row(self, place(self, work->data[1], self->to, cursor, 1, row), step[1], n, x);
        if (self->what == LARGEST || self->what == SMALLEST)
            tap__line_scatter(place(self, work->data[2], TAP_I64, cursor, 2, row), step[2], index, n, 8);
    }
}

#define LINE_OF(type)                                                                                                \
    do {                                                                                                             \
        const type *x = from;                                                                                        \
        type *y = to;                                                                                                \
        if (self->what == SUM) {                                                                                     \
            double total = 0;                                                                                        \
            for (int64_t i = 0; i < self->n; i++)                                                                    \
                y[i * self->stride[1]] = (type)(total += (double)x[i * self->stride[0]]);                            \
        } else if (self->what == PRODUCT) {                                                                          \
            double total = 1;                                                                                        \
            for (int64_t i = 0; i < self->n; i++)                                                                    \
                y[i * self->stride[1]] = (type)(total *= (double)x[i * self->stride[0]]);                            \
        } else {                                                                                                     \
            type best = x[0];                                                                                        \
            int64_t index = 0;                                                                                       \
            for (int64_t i = 0; i < self->n; i++) {                                                                  \
                type next = x[i * self->stride[0]];                                                                  \
                bool better = self->what == LARGEST ? next >= best : next <= best;                                   \
                if (better || next != next) {                                                                        \
                    best = next;                                                                                    \
                    index = i;                                                                                       \
                }                                                                                                    \
                y[i * self->stride[1]] = best;                                                                       \
                indices[i * self->stride[2]] = index;                                                                \
            }                                                                                                        \
        }                                                                                                            \
    } while (0)

/* A line of floats that stays what it is. */
static void run_float_line(const running *self, const void *from, void *to, int64_t *indices)
{
    if (self->from == TAP_F32)
        LINE_OF(float);
    else
        LINE_OF(double);
}

/* One line, in pieces; each value waits for the one before. */
static void run_line(const job *work, const tap__cursor *cursor)
{
    const running *self = work->self;
    value carry = {.i = 0}, x[WIDTH];
    int64_t index = 0, indices[WIDTH];
    bool picks = self->what == LARGEST || self->what == SMALLEST;
    if (self->from == self->to && (self->from == TAP_F32 || self->from == TAP_F64) && self->what != POWERS) {
        run_float_line(self, place(self, work->data[0], self->from, cursor, 0, 0),
                       place(self, work->data[1], self->to, cursor, 1, 0),
                       picks ? place(self, work->data[2], TAP_I64, cursor, 2, 0) : NULL);
        return;
    }
    if (self->what == PRODUCT)
        carry = self->is_float ? (value){.f = 1} : (value){.i = 1};
    for (int64_t at = 0, n; at < self->n; at += n) {
        n = self->n - at < WIDTH ? self->n - at : WIDTH;
        read_row(self, place(self, work->data[0], self->from, cursor, 0, at), self->stride[0], n, x);
        if (self->what == SUM && self->is_float)
            for (int64_t j = 0; j < n; j++)
                x[j].f = carry.f += x[j].f;
        else
            for (int64_t j = 0; j < n; j++) {
                join_row(self, &carry, &index, &x[j], 1, at + j);
                indices[j] = index;
            }
        write_row(self, place(self, work->data[1], self->to, cursor, 1, at), self->stride[1], n, x);
        if (picks)
            tap__line_scatter(place(self, work->data[2], TAP_I64, cursor, 2, at), self->stride[2], indices, n, 8);
    }
}

static void run_tasks(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const running *self = work->self;
    int64_t columns = self->kept.size[self->kept.ndim - 1];
    tap__cursor cursor;
    for (; from < to; from++) {
        if (self->width == 1) {
            tap__cursor_seek(&cursor, &self->kept, from);
            run_line(work, &cursor);
        } else {
            int64_t column = from % self->blocks * self->width;
            tap__cursor_seek(&cursor, &self->kept, from / self->blocks * columns + column);
            run_block(work, &cursor, columns - column < self->width ? columns - column : self->width);
        }
    }
}

static bool fits(const running *self, tap_dtype from, tap_dtype to)
{
    char source = tap_dtype_describe(from)->kind, into = tap_dtype_describe(to)->kind;
    bool whole = strchr("BUI", source) && from != TAP_U16 && from != TAP_U32 && from != TAP_U64;
    bool half = from == TAP_F16 || from == TAP_BF16, is_float = half || from == TAP_F32 || from == TAP_F64;
    if (self->what == LARGEST || self->what == SMALLEST || self->what == POWERS)
        return from == to && (is_float || (whole && self->what != POWERS));
    if (is_float)
        return from == to || to == TAP_F64 || (half && to == TAP_F32);
    return whole && (to == TAP_I64 || to == TAP_I32 || to == from || (into == 'F' && (to == TAP_F32 || to == TAP_F64)));
}

static tap_status prepare(tap__call *call, kind what, tap_error *err)
{
    const tap__operand *x = &call->in[0], *y = &call->out[0], *indices = call->nout > 1 ? &call->out[1] : y;
    int64_t axis = tap__call_attr(call, "axis")->i;
    axis = axis < 0 ? axis + x->ndim : axis;
    running *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->what = what;
    if (!fits(self, x->dtype, y->dtype) || (x->ndim && (axis < 0 || axis >= x->ndim))) {
        tap__free(self);
        return tap__refuse(call, err);
    }
    self->lanes = tap__lanes_now();
    self->from = x->dtype;
    self->to = y->dtype;
    self->is_float = tap_dtype_describe(y->dtype)->kind == 'F';
    self->n = 1;
    tap__space_begin(&self->kept, 3);
    for (int i = 0; i < x->ndim; i++) {
        int64_t strides[] = {x->stride[i], y->stride[i], indices->stride[i]};
        if (i == axis) {
            self->n = x->size[i];
            memcpy(self->stride, strides, sizeof strides);
        } else {
            tap__space_add(&self->kept, x->size[i], strides);
        }
    }
    tap__space_end(&self->kept, true);
    int64_t columns = self->kept.size[self->kept.ndim - 1];
    bool wide = columns >= 4 && self->n > 1 && self->kept.stride[0][self->kept.ndim - 1] < self->stride[0];
    self->width = !wide ? 1 : columns < WIDTH ? columns : WIDTH;
    self->lines = wide ? self->kept.count / columns : self->kept.count;
    self->blocks = wide ? (columns + self->width - 1) / self->width : 1;
    call->state = self;
    return TAP_OK;
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const running *self = call->state;
    job work = {.self = self, .data = data};
    int64_t each = self->n * self->width;
    (void)err;
    if (self->n && self->kept.count)
        tap__parallel(call->threads, self->lines * self->blocks, each < GRAIN ? GRAIN / each : 1,
                      TAP_ANY_LENGTH, run_tasks, &work);
    return TAP_OK;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

#define KERNEL_OF(name, what)                                                                                        \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        return prepare(call, what, err);                                                                             \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {.prepare = prepare_##name, .run = run, .release = release};
KERNEL_OF(running_sum, SUM)
KERNEL_OF(running_prod, PRODUCT)
KERNEL_OF(running_max, LARGEST)
KERNEL_OF(running_min, SMALLEST)
KERNEL_OF(running_log_sum_exp, POWERS)
