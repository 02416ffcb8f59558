/* matvec.c - see matvec.h. Rows of neighbours are summed row by row, long rows in parts that are added up afterwards;
 * columns of neighbours are added up block of rows by block of rows. Parts and blocks depend on the sizes only. */
#include "engine/kernels/matvec.h"

#include "tensor/kernels/by_isa.h"
#include "engine/kernels/strided.h"
#include "tensor/element.h"

#include <string.h>

enum { PART = 16384, BLOCK = 1024, GRAIN = 16384 };

/* The first problem's operands, and what every piece of work needs. */
typedef struct work {
    const tap__matvec *self;
    const tap__matvec_loops *loops;
    const char *matrix, *addend;
    char *result;
    const char *vector;           /* neighbours of the type of the sums */
    int64_t vector_step;          /* bytes from one batch's to the next */
    double *part;                 /* rows that were cut: sums of their parts */
    int64_t parts, item, word;
} work;

static const tap__matvec_loops *loops_now(void)
{
    TAP__BY_ISA(tap__matvec);
}

static tap_dtype real_of(tap_dtype dtype)
{
    return dtype == TAP_F64 ? TAP_F64 : TAP_F32;
}

static bool has_rows(const tap__matvec *self)
{
    return self->matrix[2] == 1 || self->columns == 1;
}

bool tap__matvec_fits(const tap__matvec *self)
{
    bool known = self->dtype == TAP_F64 || self->dtype == TAP_F32 || self->dtype == TAP_F16 || self->dtype == TAP_BF16;
    return known && (has_rows(self) || self->matrix[1] == 1 || self->rows == 1);
}

static int64_t parts_of(const tap__matvec *self)
{
    return has_rows(self) ? (self->columns + PART - 1) / PART : 1;
}

static size_t vector_bytes(const tap__matvec *self)
{
    size_t word = self->dtype == TAP_F64 ? 8 : 4;
    int64_t vectors = self->vector[0] == 0 ? 1 : self->batch;
    return ((size_t)(vectors * self->columns) * word + 63) / 64 * 64;
}

size_t tap__matvec_scratch(const tap__matvec *self)
{
    int64_t parts = parts_of(self);
    return vector_bytes(self) + (parts > 1 ? (size_t)(self->batch * self->rows * parts) * 8 : 0);
}

static void put(const work *all, int64_t batch, int64_t row, double sum)
{
    const tap__matvec *self = all->self;
    double value = self->alpha == 1 ? sum : self->alpha * sum;
    if (self->adds) {
        const char *from = all->addend + (batch * self->addend[0] + row * self->addend[1]) * all->item;
        value += self->beta * tap__element_get(self->dtype, from, 0).re;
    }
    char *to = all->result + (batch * self->result[0] + row * self->result[1]) * all->item;
    if (self->dtype == TAP_F32)
        *(float *)(void *)to = (float)value;
    else if (self->dtype == TAP_F64)
        *(double *)(void *)to = value;
    else
        tap__element_put(self->dtype, to, 0, &(tap_scalar){.kind = 'F', .re = value});
}

static double dot(const work *all, const char *row, const char *vector, int64_t count)
{
    switch ((int)all->self->dtype) {
    case TAP_F32: return all->loops->dot_f32((const void *)row, (const void *)vector, count);
    case TAP_F64: return all->loops->dot_f64((const void *)row, (const void *)vector, count);
    case TAP_BF16: return all->loops->dot_bf16((const void *)row, (const void *)vector, count);
    default: return all->loops->dot_f16((const void *)row, (const void *)vector, count);
    }
}

static void sum_rows(void *user, int64_t begin, int64_t end)
{
    const work *all = user;
    const tap__matvec *self = all->self;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / all->parts, batch = row / self->rows, first = i % all->parts * PART;
        int64_t count = self->columns - first < PART ? self->columns - first : PART;
        row %= self->rows;
        const char *from = all->matrix + (batch * self->matrix[0] + row * self->matrix[1] + first) * all->item;
        double sum = dot(all, from, all->vector + batch * all->vector_step + first * all->word, count);
        if (all->parts > 1)
            all->part[i] = sum;
        else
            put(all, batch, row, sum);
    }
}

static void add_columns(const work *all, void *sums, const char *column, const char *vector, int64_t rows)
{
    int64_t step = all->self->matrix[2];
    switch ((int)all->self->dtype) {
    case TAP_F32: all->loops->add4_f32(sums, (const void *)column, step, (const void *)vector, rows); break;
    case TAP_F64: all->loops->add4_f64(sums, (const void *)column, step, (const void *)vector, rows); break;
    case TAP_BF16: all->loops->add4_bf16(sums, (const void *)column, step, (const void *)vector, rows); break;
    default: all->loops->add4_f16(sums, (const void *)column, step, (const void *)vector, rows); break;
    }
}

static void sum_columns(void *user, int64_t begin, int64_t end)
{
    const work *all = user;
    const tap__matvec *self = all->self;
    int64_t blocks = (self->rows + BLOCK - 1) / BLOCK;
    for (int64_t i = begin; i < end; i++) {
        double sums[BLOCK];
        int64_t batch = i / blocks, first = i % blocks * BLOCK;
        int64_t rows = self->rows - first < BLOCK ? self->rows - first : BLOCK, k = 0;
        const char *column = all->matrix + (batch * self->matrix[0] + first) * all->item;
        const char *vector = all->vector + batch * all->vector_step;
        memset(sums, 0, (size_t)(rows * all->word));
        for (; k + 4 <= self->columns; k += 4)
            add_columns(all, sums, column + k * self->matrix[2] * all->item, vector + k * all->word, rows);
        for (int64_t j = 0; j < rows; j++) {
            double sum = all->word == 8 ? sums[j] : (double)((float *)(void *)sums)[j];
            for (int64_t c = k; c < self->columns; c++)
                sum += tap__element_get(self->dtype, column + (c * self->matrix[2] + j) * all->item, 0).re *
                       tap__element_get(real_of(self->dtype), vector + c * all->word, 0).re;
            put(all, batch, first + j, sum);
        }
    }
}

void tap__matvec_run(const tap__matvec *self, const tap__call *call, const void *matrix, const void *vector,
                     const void *addend, void *result, void *scratch)
{
    work all = {.self = self, .loops = loops_now(), .matrix = matrix, .addend = addend, .result = result,
                .vector = scratch, .parts = parts_of(self), .item = tap_dtype_describe(self->dtype)->bytes,
                .word = self->dtype == TAP_F64 ? 8 : 4};
    int64_t size[2] = {self->vector[0] == 0 ? 1 : self->batch, self->columns}, dense[2] = {self->columns, 1};
    all.vector_step = self->vector[0] == 0 ? 0 : self->columns * all.word;
    all.part = (double *)(void *)((char *)scratch + vector_bytes(self));
    tap__strided_convert(call, real_of(self->dtype), self->dtype, 2, size, dense, scratch, self->vector, vector);
    if (!has_rows(self)) {
        tap__parallel(call->threads, self->batch * ((self->rows + BLOCK - 1) / BLOCK), 1,
                      TAP_ANY_LENGTH, sum_columns, &all);
        return;
    }
    int64_t length = self->columns < PART ? self->columns : PART, rows = self->batch * self->rows;
    tap__parallel(call->threads, rows * all.parts, GRAIN / (length + 1) + 1, TAP_ANY_LENGTH, sum_rows, &all);
    for (int64_t i = 0; all.parts > 1 && i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < all.parts; k++)
            sum += all.part[i * all.parts + k];
        put(&all, i / self->rows, i % self->rows, sum);
    }
}
