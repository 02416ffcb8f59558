/* scatter.c - gather and scatter: an index for every element, into one dimension. Elements that meet in one place do so
 * in the order of the index tensor: only what lies across the indexed dimension is spread over threads. Half-width
 * floats are reduced in float32 and rounded once, as ATen does. */
#include "engine/kernels/move.h"
#include "engine/kernels/number.h"
#include "engine/kernels/offsets.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/shape_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { OUT, INDEX, SOURCE, SIDES };

/* Loops over the index tensor. Steps are elements: of what is written, of the index, of what is read. */
typedef struct nest {
    int nouter;
    int64_t size[TAP_ENGINE_MAX_NDIM], step[TAP_ENGINE_MAX_NDIM][SIDES];
    int64_t along_size, along_step[SIDES]; /* the indexed dimension, where its order matters */
    int64_t inner_size, inner_step[SIDES];
    int64_t chunk, chunks, outer;          /* pieces of the inner loop; product of the outer ones */
    int64_t bound, jump;                   /* of the indexed dimension: its size, its step in what the index selects */
    int dim;
    int64_t total;                         /* elements of the index tensor */
} nest;

typedef enum reduction { REPLACE, SUM, PRODUCT, LARGEST, SMALLEST, MEAN } reduction;

typedef struct scattering {
    tap__moves moves; /* copies x; first: tap__moves_release frees it */
    nest nest;
    reduction reduce;
    bool include_self, buffered; /* buffered: in float32, in the scratch */
    bool constant;               /* the source is one number */
    size_t row;                  /* bytes of a row that is copied just before it is scattered into; 0: x is copied whole */
    tap_dtype computed;          /* of the buffer, or of the output */
    _Alignas(8) unsigned char value[16];
    nest still;                  /* the same with a source that is one element */
    nest places;                 /* the same, into row-major places of the scratch */
    nest whole;                  /* over the output, beside row-major places of the scratch */
    size_t counts;               /* MEAN: where int64 counts lie in the scratch, in bytes */
} scattering;

static int64_t stride_of(const tap__operand *operand, int dim)
{
    return operand->ndim ? operand->stride[dim] : 0;
}

/* serial: the order along the indexed dimension matters. */
static void plan_nest(nest *self, const tap__operand *index, int dim, const int64_t *steps[SIDES], bool serial)
{
    int inner = -1;
    *self = (nest){.dim = dim, .along_size = 1, .inner_size = 1, .outer = 1, .total = tap__operand_count(index)};
    for (int i = index->ndim - 1; i >= 0 && inner < 0; i--)
        if (index->size[i] > 1 && !(serial && i == dim))
            inner = i;
    for (int i = 0; i < index->ndim; i++) {
        bool along = serial && i == dim;
        int64_t *step = along ? self->along_step : i == inner ? self->inner_step : self->step[self->nouter];
        for (int side = 0; side < SIDES; side++)
            step[side] = steps[side] ? steps[side][i] : 0;
        if (along) {
            self->along_size = index->size[i];
        } else if (i == inner) {
            self->inner_size = index->size[i];
        } else if (index->size[i] != 1) {
            self->size[self->nouter++] = index->size[i];
            self->outer *= index->size[i];
        }
    }
    /* along the last dimension: better one long inner loop, and whole rows for each thread */
    if (serial && index->ndim && dim == index->ndim - 1) {
        if (inner >= 0) {
            memcpy(self->step[self->nouter], self->inner_step, sizeof self->inner_step);
            self->size[self->nouter++] = self->inner_size;
            self->outer *= self->inner_size;
        }
        self->inner_size = self->along_size;
        memcpy(self->inner_step, self->along_step, sizeof self->inner_step);
        self->along_size = 1;
        self->chunk = self->inner_size;
    } else {
        self->chunk = serial ? 256 : 16384;
    }
    self->chunks = self->chunk ? (self->inner_size + self->chunk - 1) / self->chunk : 0;
}

static int64_t nest_grain(const nest *self)
{
    int64_t each = (self->chunk < self->inner_size ? self->chunk : self->inner_size) * self->along_size;
    return 1 + 16384 / (each ? each : 1);
}

/* Where unit number `unit` begins, and how many inner elements it has. */
static int64_t unit_at(const nest *self, int64_t unit, int64_t at[SIDES])
{
    int64_t rest = unit / self->chunks, first = unit % self->chunks * self->chunk;
    for (int side = 0; side < SIDES; side++)
        at[side] = first * self->inner_step[side];
    for (int i = self->nouter - 1; i >= 0; i--) {
        int64_t place = rest % self->size[i];
        rest /= self->size[i];
        for (int side = 0; side < SIDES; side++)
            at[side] += place * self->step[i][side];
    }
    return self->inner_size - first < self->chunk ? self->inner_size - first : self->chunk;
}

/* --------------------------------------------------------------------------------------------------- checking */

/* Indices are looked at where they are used: a pass of its own over the index alone made gather take 1.3 times eager's
 * time. A line ends at a bad one. */
typedef struct checking {
    const nest *nest;
    const void *index;
    bool wide;
    _Atomic int64_t bad; /* an element of the index tensor; INT64_MAX: none */
} checking;

static void begin_checking(checking *self, const nest *loops, const void *index, bool wide)
{
    self->nest = loops;
    self->index = index;
    self->wide = wide;
    atomic_init(&self->bad, INT64_MAX);
}

/* Number `which` of the line whose indices start at `base` is bad; below 0: none is. */
static void note_bad(checking *self, int64_t base, int64_t which)
{
    int64_t place = base + which * self->nest->inner_step[INDEX], old = atomic_load(&self->bad);
    while (which >= 0 && place < old && !atomic_compare_exchange_weak(&self->bad, &old, place))
        continue;
}

static tap_status end_checking(const checking *self, const tap__call *call, tap_error *err)
{
    int64_t bad = atomic_load(&self->bad);
    if (bad == INT64_MAX)
        return TAP_OK;
    return tap__bad_index(call, tap__index_load(self->index, self->wide, bad), self->nest->dim, self->nest->bound, err);
}

/* ------------------------------------------------------------------------------------------------------ gather */

typedef struct wide_item {
    uint64_t half[2];
} wide_item;

typedef struct gathering {
    checking check;
    const nest *nest;
    const void *index;
    bool wide;
    const char *from;
    char *to;
    size_t item;
} gathering;

#define GATHER(type)                                                                                                 \
    static int64_t gather_##type(const gathering *self, const int64_t at[SIDES], int64_t count)                      \
    {                                                                                                                \
        const nest *loops = self->nest;                                                                              \
        type *to = (type *)self->to + at[OUT];                                                                       \
        const type *from = (const type *)self->from + at[SOURCE];                                                    \
        int64_t to_step = loops->inner_step[OUT], from_step = loops->inner_step[SOURCE];                             \
        int64_t index_step = loops->inner_step[INDEX], jump = loops->jump;                                           \
        uint64_t bound = (uint64_t)loops->bound;                                                                     \
        if (index_step == 0) {                                                                                       \
            int64_t index = tap__index_load(self->index, self->wide, at[INDEX]);                                     \
            if ((uint64_t)index >= bound)                                                                            \
                return 0;                                                                                            \
            from += index * jump;                                                                                    \
            if (to_step == 1 && from_step == 1)                                                                      \
                memcpy(to, from, (size_t)count * sizeof(type));                                                      \
            else                                                                                                     \
                for (int64_t i = 0; i < count; i++)                                                                  \
                    to[i * to_step] = from[i * from_step];                                                           \
        } else if (self->wide && index_step == 1 && to_step == 1 && from_step == 0 && jump == 1) {                   \
            const int64_t *index = (const int64_t *)self->index + at[INDEX];                                         \
            for (int64_t i = 0; i < count; i++) {                                                                    \
                if ((uint64_t)index[i] >= bound)                                                                     \
                    return i;                                                                                        \
                to[i] = from[index[i]];                                                                              \
            }                                                                                                        \
        } else {                                                                                                     \
            for (int64_t i = 0; i < count; i++) {                                                                    \
                int64_t index = tap__index_load(self->index, self->wide, at[INDEX] + i * index_step);                \
                if ((uint64_t)index >= bound)                                                                        \
                    return i;                                                                                        \
                to[i * to_step] = from[i * from_step + index * jump];                                                \
            }                                                                                                        \
        }                                                                                                            \
        return -1;                                                                                                   \
    }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)
GATHER(wide_item)

static void gather_units(void *user, int64_t begin, int64_t end)
{
    gathering *self = user;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at[SIDES], count = unit_at(self->nest, unit, at);
        int64_t bad;
        switch (self->item) {
        case 1: bad = gather_uint8_t(self, at, count); break;
        case 2: bad = gather_uint16_t(self, at, count); break;
        case 4: bad = gather_uint32_t(self, at, count); break;
        case 8: bad = gather_uint64_t(self, at, count); break;
        default: bad = gather_wide_item(self, at, count);
        }
        note_bad(&self->check, at[INDEX], bad);
    }
}

/* x, index and dim of both: the index may be smaller than x in the other dimensions, but has as many. */
static tap_status check_operands(tap__call *call, const tap__operand *x, const tap__operand *index, int *dim,
                                 tap_error *err)
{
    if ((index->dtype != TAP_I64 && index->dtype != TAP_I32) || index->is_number)
        return tap__refuse(call, err);
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, x->ndim, dim, err));
    if (tap__operand_count(index) == 0)
        return TAP_OK;
    if (index->ndim != x->ndim)
        return tap__refuse(call, err);
    for (int i = 0; i < x->ndim; i++)
        if (i != *dim && index->size[i] > x->size[i])
            return tap__expect_sizes(call, index, x->ndim, x->size, err);
    return TAP_OK;
}

static tap_status prepare_gather(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *index = &call->in[1], *out = &call->out[0];
    int dim;
    if (x->dtype != out->dtype)
        return tap__refuse(call, err);
    TAP_TRY(tap__expect_sizes(call, out, index->ndim, index->size, err));
    TAP_TRY(check_operands(call, x, index, &dim, err));
    nest *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    int64_t from[TAP_ENGINE_MAX_NDIM];
    memcpy(from, x->stride, sizeof from);
    from[dim] = 0;
    const int64_t *steps[SIDES] = {out->stride, index->stride, from};
    plan_nest(self, index, dim, steps, false);
    self->bound = x->ndim ? x->size[dim] : 1;
    self->jump = stride_of(x, dim);
    call->state = self;
    return TAP_OK;
}

static tap_status run_gather(const tap__call *call, void *const *data, tap_error *err)
{
    const nest *loops = call->state;
    bool wide = call->in[1].dtype == TAP_I64;
    if (loops->total == 0)
        return TAP_OK;
    gathering self = {.nest = loops, .index = data[1], .wide = wide, .from = data[0], .to = data[2],
                      .item = tap__item_bytes(call->out[0].dtype)};
    begin_checking(&self.check, loops, data[1], wide);
    tap__parallel(call->threads, loops->outer * loops->chunks, nest_grain(loops), TAP_ANY_LENGTH, gather_units, &self);
    return end_checking(&self.check, call, err);
}

static void release_gather(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

const tap__kernel tap__kernel_gather = {prepare_gather, run_gather, release_gather};

/* ----------------------------------------------------------------------------------------------------- scatter */

typedef struct scatter_run {
    const nest *nest;
    const void *index;
    bool wide;
    const void *source;
    void *to;
    const char *x; /* rows to begin with, of `row` bytes and elements of `item`; NULL: they are there */
    size_t row, item;
} scatter_run;

/* One line: places to[i * step + index * jump], in order of i. The number of the first bad index; -1: there is none. */
#define LINE(name, stored, type, read, update)                                                                       \
    static int64_t name(const scatter_run *self, const int64_t at[SIDES], int64_t count)                             \
    {                                                                                                                \
        const nest *loops = self->nest;                                                                              \
        type *to = (type *)self->to + at[OUT];                                                                       \
        const stored *from = (const stored *)self->source + at[SOURCE];                                              \
        int64_t to_step = loops->inner_step[OUT], from_step = loops->inner_step[SOURCE];                             \
        int64_t index_step = loops->inner_step[INDEX], jump = loops->jump;                                           \
        uint64_t bound = (uint64_t)loops->bound;                                                                     \
        if (index_step == 0) {                                                                                       \
            int64_t index = tap__index_load(self->index, self->wide, at[INDEX]);                                     \
            if ((uint64_t)index >= bound)                                                                            \
                return 0;                                                                                            \
            to += index * jump;                                                                                      \
            if (to_step == 1 && from_step == 1) {                                                                    \
                for (int64_t i = 0; i < count; i++) {                                                                \
                    type a = to[i], b = read(from[i]);                                                               \
                    to[i] = update;                                                                                  \
                }                                                                                                    \
                return -1;                                                                                           \
            }                                                                                                        \
            for (int64_t i = 0; i < count; i++) {                                                                    \
                type a = to[i * to_step], b = read(from[i * from_step]);                                             \
                to[i * to_step] = update;                                                                            \
            }                                                                                                        \
            return -1;                                                                                               \
        }                                                                                                            \
        if (self->wide && index_step == 1 && from_step == 1 && to_step == 0 && jump == 1) {                          \
            const int64_t *index = (const int64_t *)self->index + at[INDEX];                                         \
            for (int64_t i = 0; i < count; i++) {                                                                    \
                if ((uint64_t)index[i] >= bound)                                                                     \
                    return i;                                                                                        \
                type a = to[index[i]], b = read(from[i]);                                                            \
                to[index[i]] = update;                                                                               \
            }                                                                                                        \
            return -1;                                                                                               \
        }                                                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                                        \
            int64_t index = tap__index_load(self->index, self->wide, at[INDEX] + i * index_step);                    \
            if ((uint64_t)index >= bound)                                                                            \
                return i;                                                                                            \
            type *place = to + i * to_step + index * jump;                                                           \
            type a = *place, b = read(from[i * from_step]);                                                          \
            *place = update;                                                                                         \
        }                                                                                                            \
        return -1;                                                                                                   \
    }

#define IGNORE(a, b) ((void)a, b)
#define LARGER(a, b) (b != b || b > a ? b : a)
#define SMALLER(a, b) (b != b || b < a ? b : a)
#define ADD_WRAP(type) (type)((uint64_t)a + (uint64_t)b)
#define MULTIPLY_WRAP(type) (type)((uint64_t)a * (uint64_t)b)

LINE(replace_1, uint8_t, uint8_t, TAP__SAME, IGNORE(a, b))
LINE(replace_2, uint16_t, uint16_t, TAP__SAME, IGNORE(a, b))
LINE(replace_4, uint32_t, uint32_t, TAP__SAME, IGNORE(a, b))
LINE(replace_8, uint64_t, uint64_t, TAP__SAME, IGNORE(a, b))
LINE(replace_16, wide_item, wide_item, TAP__SAME, IGNORE(a, b))

#define INT_LINES(name, stored, type, load, store)                                                                   \
    LINE(sum_##name, stored, type, load, ADD_WRAP(type))                                                             \
    LINE(product_##name, stored, type, load, MULTIPLY_WRAP(type))                                                    \
    LINE(largest_##name, stored, type, load, (b > a ? b : a))                                                        \
    LINE(smallest_##name, stored, type, load, (b < a ? b : a))
#define FLOAT_LINES(name, stored, type, load, store)                                                                 \
    LINE(sum_##name, stored, type, load, a + b)                                                                      \
    LINE(product_##name, stored, type, load, (a * b))                                                                  \
    LINE(largest_##name, stored, type, load, LARGER(a, b))                                                           \
    LINE(smallest_##name, stored, type, load, SMALLER(a, b))
TAP__NUMBERS_INT(INT_LINES)
TAP__NUMBERS_FLOAT(FLOAT_LINES)
LINE(sum_BOOL, uint8_t, uint8_t, TAP__SAME, (a || b))
LINE(product_BOOL, uint8_t, uint8_t, TAP__SAME, (a && b))
LINE(largest_BOOL, uint8_t, uint8_t, TAP__SAME, (a || b))
LINE(smallest_BOOL, uint8_t, uint8_t, TAP__SAME, (a && b))

LINE(sum_C64, tap__complex_float, tap__complex_float, TAP__SAME, tap__add_complex_float(a, b))
LINE(sum_C128, tap__complex_double, tap__complex_double, TAP__SAME, tap__add_complex_double(a, b))

/* counts how often a place was met: to is int64, whatever the dtype */
LINE(count_all, uint8_t, int64_t, TAP__SAME, (int64_t)((void)b, a + 1))

typedef int64_t (*line_fn)(const scatter_run *self, const int64_t at[SIDES], int64_t count);

static line_fn replace_line(size_t item)
{
    return item == 1 ? replace_1 : item == 2 ? replace_2 : item == 4 ? replace_4 : item == 8 ? replace_8 : replace_16;
}

static line_fn reduce_line(reduction reduce, tap_dtype dtype)
{
    static const line_fn LINES[TAP_DTYPE_END][4] = {
#define ROW(name, ...) [TAP_##name] = {sum_##name, product_##name, largest_##name, smallest_##name},
        TAP__NUMBERS_INT(ROW) TAP__NUMBERS_FLOAT(ROW) ROW(BOOL)
        [TAP_C64] = {sum_C64}, [TAP_C128] = {sum_C128},
    };
    if (reduce == REPLACE)
        return replace_line(tap__item_bytes(dtype));
    return LINES[dtype][reduce == MEAN ? 0 : reduce - SUM];
}

typedef struct line_run {
    checking check;
    const scatter_run *run;
    line_fn line;
} line_run;

static void scatter_units(void *user, int64_t begin, int64_t end)
{
    line_run *self = user;
    const nest *loops = self->run->nest;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at[SIDES], count = unit_at(loops, unit, at);
        if (self->run->x) {
            size_t begins = (size_t)at[OUT] * self->run->item;
            memcpy((char *)self->run->to + begins, self->run->x + begins, self->run->row);
        }
        for (int64_t k = 0; k < loops->along_size; k++) {
            note_bad(&self->check, at[INDEX], self->line(self->run, at, count));
            for (int side = 0; side < SIDES; side++)
                at[side] += loops->along_step[side];
        }
    }
}

static tap_status scatter_all(const tap__call *call, const scatter_run *run, line_fn line, tap_error *err)
{
    line_run self = {.run = run, .line = line};
    begin_checking(&self.check, run->nest, run->index, run->wide);
    tap__parallel(call->threads, run->nest->outer * run->nest->chunks, nest_grain(run->nest),
                  TAP_ANY_LENGTH, scatter_units, &self);
    return end_checking(&self.check, call, err);
}

/* The neutral element of a reduction. */
static void neutral(reduction reduce, tap_dtype dtype, void *element)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    tap__number one = {.kind = 'I', .i = 1, .re = 1};
    memset(element, 0, 16);
    if (reduce == PRODUCT)
        tap__number_store(&one, dtype, element);
    if (reduce != LARGEST && reduce != SMALLEST)
        return;
    bool top = reduce == SMALLEST;
    if (info->kind == 'F') {
        tap__number infinity = {.kind = 'F', .re = top ? INFINITY : -INFINITY};
        tap__number_store(&infinity, dtype, element);
    } else if (info->kind == 'B') {
        *(uint8_t *)element = top;
    } else {
        /* all bits set, but for the sign bit of a signed largest; its opposite for the smallest */
        memset(element, top ? 0xFF : 0, info->bytes);
        if (info->kind == 'I')
            ((uint8_t *)element)[info->bytes - 1] ^= 0x80;
    }
}

/* --------------------------------------------------------------------------- the output between the passes */

typedef struct finishing {
    const scattering *state;
    void *out;
    float *buffer;
    const int64_t *counts;
    tap_dtype dtype;
    bool load;
} finishing;

#define DIVIDE_FLOAT(name, stored, type, load, store)                                                                \
    case TAP_##name: {                                                                                               \
        stored *value = (stored *)self->out + out;                                                                   \
        *value = store(load(*value) / (type)times);                                                                  \
        return;                                                                                                      \
    }
#define DIVIDE_UNSIGNED(name, stored, ...)                                                                           \
    case TAP_##name: {                                                                                               \
        stored *value = (stored *)self->out + out;                                                                   \
        *value = (stored)(*value / (uint64_t)times);                                                                 \
        return;                                                                                                      \
    }
#define DIVIDE_SIGNED(name, stored, ...)                                                                             \
    case TAP_##name: {                                                                                               \
        stored *value = (stored *)self->out + out;                                                                   \
        *value = (stored)(*value / times - (*value % times != 0 && *value < 0));                                     \
        return;                                                                                                      \
    }

/* ints: rounded down */
static void divide(const finishing *self, int64_t out, int64_t place, int64_t times)
{
    if (self->buffer) {
        self->buffer[place] /= (float)times;
        return;
    }
    switch (self->dtype) {
        TAP__NUMBERS_FLOAT(DIVIDE_FLOAT)
        TAP__NUMBERS_UNSIGNED(DIVIDE_UNSIGNED)
        TAP__NUMBERS_SIGNED(DIVIDE_SIGNED)
    default: return;
    }
}

static float load_half(const finishing *self, int64_t at)
{
    uint16_t half = ((const uint16_t *)self->out)[at];
    return self->dtype == TAP_F16 ? tap__decode_f16(half) : tap__decode_bf16(half);
}

static void store_half(const finishing *self, int64_t at, float value)
{
    ((uint16_t *)self->out)[at] = self->dtype == TAP_F16 ? tap__encode_f16(value) : tap__encode_bf16(value);
}

/* Over the whole output: into the buffer, or the mean and out of the buffer. */
static void finish_units(void *user, int64_t begin, int64_t end)
{
    const finishing *self = user;
    const nest *loops = &self->state->whole;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at[SIDES], count = unit_at(loops, unit, at);
        for (int64_t i = 0; i < count; i++) {
            int64_t out = at[OUT] + i * loops->inner_step[OUT], place = at[SOURCE] + i * loops->inner_step[SOURCE];
            if (self->load) {
                self->buffer[place] = load_half(self, out);
                continue;
            }
            int64_t times = self->counts ? self->counts[place] + self->state->include_self : 1;
            if (times > 1)
                divide(self, out, place, times);
            if (self->buffer)
                store_half(self, out, self->buffer[place]);
        }
    }
}

static void finish(const tap__call *call, finishing *self, bool load)
{
    const nest *loops = &self->state->whole;
    self->load = load;
    tap__parallel(call->threads, loops->outer * loops->chunks, nest_grain(loops), TAP_ANY_LENGTH, finish_units, self);
}

/* --------------------------------------------------------------------------------------------------- the kernel */

/* Steps of a row-major tensor of these sizes. */
static void row_major(const tap__operand *operand, int64_t *steps)
{
    int64_t step = 1;
    for (int i = operand->ndim - 1; i >= 0; i--) {
        steps[i] = step;
        step *= operand->size[i];
    }
}

/* Whether every unit is a whole row of the output, which lies as x does. */
static bool has_own_rows(const tap__call *call, int dim)
{
    const tap__operand *x = &call->in[0], *index = &call->in[1], *out = &call->out[0];
    bool whole = dim == x->ndim - 1 && tap__operand_is_contiguous(x) && tap__operand_is_contiguous(out);
    for (int i = 0; i < dim && whole; i++)
        whole = index->size[i] == x->size[i];
    return whole;
}

static tap_status plan_scatter(tap__call *call, const tap__operand *source, tap_error *err)
{
    scattering *self = call->state;
    const tap__operand *x = &call->in[0], *index = &call->in[1], *out = &call->out[0];
    int dim;
    TAP_TRY(check_operands(call, x, index, &dim, err));
    if (source && tap__operand_count(index)) {
        if (source->ndim != index->ndim)
            return tap__refuse(call, err);
        for (int i = 0; i < index->ndim; i++)
            if (index->size[i] > source->size[i])
                return tap__expect_sizes(call, index, source->ndim, source->size, err);
    }
    bool half = out->dtype == TAP_F16 || out->dtype == TAP_BF16;
    self->buffered = half && self->reduce != REPLACE;
    self->computed = self->buffered ? TAP_F32 : out->dtype;
    if (self->reduce != REPLACE && (!reduce_line(self->reduce, out->dtype) ||
                                    (self->reduce == MEAN && strchr("BC", tap_dtype_describe(out->dtype)->kind))))
        return tap__refuse(call, err);
    int64_t rows[TAP_ENGINE_MAX_NDIM] = {0}, steps_out[TAP_ENGINE_MAX_NDIM] = {0};
    row_major(out, rows);
    const int64_t *place = self->buffered ? rows : out->stride;
    memcpy(steps_out, place, sizeof steps_out);
    int64_t jump = out->ndim ? steps_out[dim] : 0;
    steps_out[dim] = 0;
    const int64_t *steps[SIDES] = {steps_out, index->stride, source ? source->stride : NULL};
    plan_nest(&self->nest, index, dim, steps, true);
    self->nest.bound = x->ndim ? x->size[dim] : 1;
    self->nest.jump = jump;
    const int64_t *alone[SIDES] = {steps_out, index->stride, NULL};
    plan_nest(&self->still, index, dim, alone, true);
    self->still.jump = jump;
    self->still.bound = self->nest.bound;
    memcpy(steps_out, rows, sizeof steps_out);
    steps_out[dim] = 0;
    plan_nest(&self->places, index, dim, alone, true);
    self->places.jump = rows[dim];
    self->places.bound = self->nest.bound;
    const int64_t *all[SIDES] = {out->stride, NULL, rows};
    plan_nest(&self->whole, out, 0, all, false);
    size_t count = (size_t)tap__operand_count(out), bytes = self->buffered ? count * sizeof(float) : 0;
    self->counts = (bytes + 63) / 64 * 64;
    call->scratch = self->reduce == MEAN ? self->counts + count * sizeof(int64_t) : bytes;
    TAP_TRY(tap__moves_copy(call, call->nin, out, 0, x, err));
    tap__moves_ready(call);
    if (self->nest.total && !self->buffered && has_own_rows(call, dim))
        self->row = (size_t)x->size[dim] * tap__item_bytes(out->dtype);
    return TAP_OK;
}

static tap_status begin_scatter(tap__call *call, reduction reduce, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    if (x->dtype != out->dtype)
        return tap__refuse(call, err);
    TAP_TRY(tap__expect_sizes(call, out, x->ndim, x->size, err));
    TAP_TRY(tap__moves_begin(call, sizeof(scattering), err));
    scattering *self = call->state;
    self->reduce = reduce;
    self->include_self = true;
    return TAP_OK;
}

static tap_status prepare_source(tap__call *call, reduction reduce, tap_error *err)
{
    if (call->in[2].dtype != call->out[0].dtype || call->in[2].is_number)
        return tap__refuse(call, err);
    TAP_TRY(begin_scatter(call, reduce, err));
    return plan_scatter(call, &call->in[2], err);
}

static tap_status prepare_value(tap__call *call, reduction reduce, tap_error *err)
{
    TAP_TRY(begin_scatter(call, reduce, err));
    scattering *self = call->state;
    self->constant = true;
    tap__number_store(&tap__call_attr(call, "value")->scalar, call->out[0].dtype, self->value);
    return plan_scatter(call, NULL, err);
}

static bool find_reduction(const char *name, reduction *out)
{
    static const struct {
        const char *name;
        reduction reduce;
    } NAMES[] = {{"add", SUM},     {"multiply", PRODUCT}, {"sum", SUM},  {"prod", PRODUCT},
                 {"mean", MEAN}, {"amax", LARGEST},     {"amin", SMALLEST}};
    for (size_t i = 0; name && i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(NAMES[i].name, name) == 0) {
            *out = NAMES[i].reduce;
            return true;
        }
    return false;
}

static tap_status run_scatter(const tap__call *call, void *const *data, tap_error *err)
{
    const scattering *self = call->state;
    bool wide = call->in[1].dtype == TAP_I64;
    void *out = data[call->nin], *scratch = data[call->nin + 1];
    bool by_rows = self->row && self->include_self && out != data[0];
    if (!by_rows)
        TAP_TRY(tap__moves_run(call, data, err));
    if (!self->nest.total)
        return TAP_OK;
    scatter_run run = {.nest = &self->nest, .index = data[1], .wide = wide,
                       .source = self->constant ? self->value : data[2], .to = self->buffered ? scratch : out,
                       .x = by_rows ? data[0] : NULL, .row = self->row, .item = tap__item_bytes(call->out[0].dtype)};
    finishing last = {self, out, self->buffered ? scratch : NULL, NULL, call->out[0].dtype, false};
    if (self->buffered)
        finish(call, &last, true);
    if (!self->include_self) {
        _Alignas(8) unsigned char value[16];
        neutral(self->reduce, self->computed, value);
        scatter_run first = run;
        first.nest = &self->still;
        first.source = value;
        TAP_TRY(scatter_all(call, &first, replace_line(tap__item_bytes(self->computed)), err));
    }
    TAP_TRY(scatter_all(call, &run, reduce_line(self->reduce, call->out[0].dtype), err));
    if (self->reduce == MEAN) {
        int64_t *counts = (int64_t *)((char *)scratch + self->counts);
        memset(counts, 0, (size_t)tap__operand_count(&call->out[0]) * sizeof(int64_t));
        scatter_run counting = {.nest = &self->places, .index = data[1], .wide = wide, .source = self->value, .to = counts};
        TAP_TRY(scatter_all(call, &counting, count_all, err));
        last.counts = counts;
    }
    if (self->buffered || self->reduce == MEAN)
        finish(call, &last, false);
    return TAP_OK;
}

#define SCATTER(name, how)                                                                                           \
    static tap_status prepare_##name(tap__call *call, tap_error *err)                                                \
    {                                                                                                                \
        tap_status status = how;                                                                                     \
        if (status != TAP_OK)                                                                                        \
            tap__moves_release(call);                                                                                \
        return status;                                                                                               \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {prepare_##name, run_scatter, tap__moves_release};

static tap_status prepare_named(tap__call *call, bool constant, tap_error *err)
{
    reduction reduce;
    if (!find_reduction(tap__call_attr(call, "reduce")->s, &reduce))
        return tap__refuse(call, err);
    TAP_TRY(constant ? prepare_value(call, reduce, err) : prepare_source(call, reduce, err));
    scattering *self = call->state;
    const tap__attr *include_self = tap__call_attr(call, "include_self");
    self->include_self = !include_self->present || include_self->i;
    return TAP_OK;
}

SCATTER(scatter, prepare_source(call, REPLACE, err))
SCATTER(scatter_value, prepare_value(call, REPLACE, err))
SCATTER(scatter_add, prepare_source(call, SUM, err))
SCATTER(scatter_reduce, prepare_named(call, false, err))
SCATTER(scatter_value_reduce, prepare_named(call, true, err))
