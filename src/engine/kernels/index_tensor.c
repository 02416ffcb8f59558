/* index_tensor.c - reading and writing where tensors of indexes say: index, index_put, index_select, index_copy,
 * index_fill, index_add, take, embedding and its backward. prepare writes the moves; run checks the indexes, turns
 * them into a table of offsets in the scratch, and lets the moves use it. */
#include "engine/kernels/mask.h"
#include "engine/kernels/move.h"
#include "engine/kernels/move_lines.h"
#include "engine/kernels/offsets.h"

#include "base/status.h"
#include "graph/shape_view.h"

#include <string.h>

typedef struct indexing {
    tap__moves moves; /* first: tap__moves_release frees it */
    tap__indexes indexes;
} indexing;

static tap_status begin(tap__call *call, indexing **out, tap_error *err)
{
    TAP_TRY(tap__moves_begin(call, sizeof(indexing), err));
    *out = call->state;
    return TAP_OK;
}

static tap_status done(tap__call *call)
{
    indexing *self = call->state;
    tap__indexes_ready(call, &self->indexes);
    call->scratch = (size_t)self->indexes.positions * sizeof(int64_t);
    tap__moves_ready(call);
    return TAP_OK;
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const indexing *self = call->state;
    if (self->indexes.positions > 0)
        TAP_TRY(tap__indexes_table(call, &self->indexes, data, data[call->nin + call->nout], err));
    return tap__moves_run(call, data, err);
}

#define INDEXING(name) TAP__MOVES_KERNEL_RUN(name, run)

static const unsigned char ZERO[16];
static const tap__move_step TABLE = {0, NULL, 0};

static tap__move_step fixed(int64_t bytes)
{
    return (tap__move_step){bytes, NULL, -1};
}

/* Some dimensions of an operand as one loop over their row-major positions: a fixed distance where they lie behind one
 * another, else a table. */
static tap_status one_loop(tap__call *call, int ndim, const int64_t *size, const int64_t *stride, int64_t item,
                           tap__move_step *out, tap_error *err)
{
    int64_t count = 1, last = 0;
    bool regular = true;
    for (int i = ndim - 1; i >= 0; i--) {
        if (size[i] == 1)
            continue;
        if (count == 1)
            last = stride[i];
        else
            regular = regular && stride[i] == last * count;
        count *= size[i];
    }
    *out = fixed(last * item);
    if (regular || count == 0)
        return TAP_OK;
    int64_t *table = tap__moves_table(call, count);
    if (!table)
        return tap_fail_nomem(err);
    for (int64_t position = 0; position < count; position++) {
        int64_t rest = position, at = 0;
        for (int i = ndim - 1; i >= 0; i--) {
            at += rest % size[i] * stride[i];
            rest /= size[i];
        }
        table[position] = at * item;
    }
    out->at = table;
    return TAP_OK;
}

/* ----------------------------------------------------------------------------------------------- index, index_put */

/* How the dimensions of x[indices] come about: `lead` of x, then those of the indexes, then the rest of x. */
typedef struct selection {
    int lead, ndim;
    int rest[TAP_ENGINE_MAX_NDIM], nrest; /* dimensions of x that are not indexed, in order */
} selection;

/* The indexes are the inputs from `first` on. */
static tap_status select_dims(tap__call *call, int first, selection *out, tap_error *err)
{
    indexing *self = call->state;
    const tap__operand *x = &call->in[0];
    int before = -1, after = -1;
    bool together = true;
    *out = (selection){0};
    for (int dim = 0; dim < x->ndim; dim++) {
        bool indexed = first + dim < call->nin && call->in[first + dim].dtype != TAP_DTYPE_NONE;
        if (!indexed) {
            out->rest[out->nrest++] = dim;
            continue;
        }
        together = together && (after < 0 || after == dim - 1);
        before = before < 0 ? dim : before;
        after = dim;
        int64_t step = x->stride[dim] * (int64_t)tap__item_bytes(x->dtype);
        TAP_TRY(tap__indexes_add(call, &self->indexes, first + dim, dim, x->size[dim], step, err));
    }
    if (call->nin - first > x->ndim || !self->indexes.count)
        return tap__refuse(call, err);
    out->lead = together ? before : 0;
    out->ndim = out->nrest + self->indexes.ndim;
    if (out->ndim > TAP_ENGINE_MAX_NDIM)
        return tap__refuse(call, err);
    return TAP_OK;
}

/* Sizes of the selection. */
static void selection_sizes(const tap__call *call, const selection *from, int64_t *sizes)
{
    const indexing *self = call->state;
    for (int i = 0; i < from->nrest; i++)
        sizes[i < from->lead ? i : i + self->indexes.ndim] = call->in[0].size[from->rest[i]];
    for (int i = 0; i < self->indexes.ndim; i++)
        sizes[from->lead + i] = self->indexes.size[i];
}

/* The loops of a move between x (or what has its sizes) and a selection of it. */
static tap_status selection_loops(tap__call *call, const selection *from, const tap__operand *x,
                                  const int64_t *sizes, const int64_t *strides, bool reads, tap__move *move,
                                  tap_error *err)
{
    const indexing *self = call->state;
    int64_t item = (int64_t)move->item;
    for (int i = 0; i <= from->nrest; i++) {
        if (i == from->lead) {
            tap__move_step other;
            TAP_TRY(one_loop(call, self->indexes.ndim, sizes + i, strides + i, item, &other, err));
            tap__move_loop_at(move, self->indexes.positions, reads ? other : TABLE, reads ? TABLE : other);
        }
        if (i < from->nrest) {
            int64_t other = strides[i < from->lead ? i : i + self->indexes.ndim], own = x->stride[from->rest[i]];
            tap__move_loop(move, x->size[from->rest[i]], reads ? other : own, reads ? own : other);
        }
    }
    return TAP_OK;
}

static tap_status prepare_index(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    indexing *self;
    selection from;
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    if (x->dtype != out->dtype)
        return tap__refuse(call, err);
    TAP_TRY(begin(call, &self, err));
    TAP_TRY(select_dims(call, 1, &from, err));
    selection_sizes(call, &from, sizes);
    TAP_TRY(tap__expect_sizes(call, out, from.ndim, sizes, err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 0, &move, err));
    TAP_TRY(selection_loops(call, &from, x, out->size, out->stride, true, move, err));
    return done(call);
}
INDEXING(index);

/* The only index there is, where it is a mask; 0: there is none, or more than one. */
static int only_mask(const tap__call *call, int first, int *dims_before)
{
    int found = 0;
    *dims_before = 0;
    for (int i = first; i < call->nin; i++) {
        if (call->in[i].dtype == TAP_DTYPE_NONE)
            continue;
        if (found || call->in[i].dtype != TAP_BOOL)
            return 0;
        found = i;
        *dims_before = i - first;
    }
    return found;
}

static tap_status prepare_index_put(tap__call *call, tap_error *err)
{
    int before, mask = only_mask(call, 2, &before);
    if (mask)
        return tap__mask_prepare(call, mask, before, err);
    const tap__operand *x = &call->in[0], *values = &call->in[1], *out = &call->out[0];
    bool accumulate = tap__call_attr(call, "accumulate")->i != 0;
    indexing *self;
    selection from;
    int64_t sizes[TAP_ENGINE_MAX_NDIM], strides[TAP_ENGINE_MAX_NDIM];
    if (x->dtype != out->dtype || values->dtype != out->dtype || values->is_number ||
        (accumulate && !tap__lines_add(out->dtype)))
        return tap__refuse(call, err);
    TAP_TRY(tap__expect_sizes(call, out, x->ndim, x->size, err));
    TAP_TRY(begin(call, &self, err));
    TAP_TRY(select_dims(call, 2, &from, err));
    /* offsets are those of the output, which may lie differently */
    for (int k = 0; k < self->indexes.count; k++)
        self->indexes.list[k].step = out->stride[self->indexes.list[k].dim] * (int64_t)tap__item_bytes(out->dtype);
    selection_sizes(call, &from, sizes);
    for (int i = 0; i < from.ndim; i++) {
        int at = i - (from.ndim - values->ndim);
        if (at >= 0 && values->size[at] != sizes[i] && values->size[at] != 1)
            return tap__expect_sizes(call, values, from.ndim, sizes, err);
        strides[i] = at < 0 || values->size[at] == 1 ? 0 : values->stride[at];
    }
    if (values->ndim > from.ndim)
        return tap__refuse(call, err);
    TAP_TRY(tap__moves_copy(call, call->nin, out, 0, x, err));
    tap__moves_next_phase(call);
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 1, &move, err));
    move->add = accumulate ? out->dtype : TAP_DTYPE_NONE;
    TAP_TRY(selection_loops(call, &from, out, sizes, strides, false, move, err));
    return done(call);
}

static tap_status ready_index_put(tap__call *call, tap_error *err)
{
    tap_status status = prepare_index_put(call, err);
    if (status != TAP_OK)
        tap__moves_release(call);
    return status;
}

static tap_status run_index_put(const tap__call *call, void *const *data, tap_error *err)
{
    int before;
    return only_mask(call, 2, &before) ? tap__mask_run(call, data, err) : run(call, data, err);
}
const tap__kernel tap__kernel_index_put = {ready_index_put, run_index_put, tap__moves_release};

/* -------------------------------------------------------------------------------- one row of indexes, one dimension */

/* Loops over `part` and `whole`, equal but for dimension dim, where the part is what the table selects of the whole.
 * into: the part is written into the whole; else it is read from there. A 0-d operand counts as one element. */
static void row_loops(const tap__operand *whole, const tap__operand *part, int dim, int64_t positions, bool into,
                      tap__move *move)
{
    int64_t item = (int64_t)move->item;
    for (int i = 0; i < whole->ndim; i++) {
        int64_t own = part ? part->stride[i] : 0;
        if (i != dim)
            tap__move_loop(move, whole->size[i], into ? whole->stride[i] : own, into ? own : whole->stride[i]);
        else
            tap__move_loop_at(move, positions, into ? TABLE : fixed(own * item), into ? fixed(own * item) : TABLE);
    }
    if (whole->ndim == 0)
        tap__move_loop_at(move, positions, into ? TABLE : fixed(0), into ? fixed(0) : TABLE);
}

/* Adds the index input; `whole` is what it points into. */
static tap_status row_index(tap__call *call, int input, const tap__operand *whole, int *dim, tap_error *err)
{
    indexing *self = call->state;
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, whole->ndim, dim, err));
    int64_t size = whole->ndim ? whole->size[*dim] : 1, stride = whole->ndim ? whole->stride[*dim] : 1;
    self->indexes.no_negative = true;
    if (call->in[input].ndim > 1)
        return tap__refuse(call, err);
    stride *= (int64_t)tap__item_bytes(whole->dtype);
    return tap__indexes_add(call, &self->indexes, input, *dim, size, stride, err);
}

static tap_status expect_part(const tap__call *call, const tap__operand *whole, const tap__operand *part, int dim,
                              int64_t positions, tap_error *err)
{
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    memcpy(sizes, whole->size, sizeof sizes);
    if (whole->ndim)
        sizes[dim] = positions;
    return tap__expect_sizes(call, part, whole->ndim, sizes, err);
}

static tap_status prepare_index_select(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    indexing *self;
    int dim;
    if (x->dtype != out->dtype)
        return tap__refuse(call, err);
    TAP_TRY(begin(call, &self, err));
    TAP_TRY(row_index(call, 1, x, &dim, err));
    if (out->ndim == x->ndim)
        TAP_TRY(expect_part(call, x, out, dim, self->indexes.positions, err));
    else
        return tap__refuse(call, err);
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 0, &move, err));
    row_loops(x, out, dim, self->indexes.positions, false, move);
    return done(call);
}
INDEXING(index_select);

/* The part of the output that the index names is replaced by, or added to from, the rows of `source`; or filled. */
static tap_status write_rows(tap__call *call, int source, const void *value, bool add, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    indexing *self;
    int dim;
    if (x->dtype != out->dtype || (source >= 0 && call->in[source].dtype != out->dtype) ||
        (add && !tap__lines_add(out->dtype)))
        return tap__refuse(call, err);
    TAP_TRY(tap__expect_sizes(call, out, x->ndim, x->size, err));
    TAP_TRY(begin(call, &self, err));
    TAP_TRY(row_index(call, 1, out, &dim, err));
    const tap__operand *part = source >= 0 ? &call->in[source] : NULL;
    if (part && (x->ndim == 0 || part->ndim != x->ndim))
        return tap__refuse(call, err);
    if (part)
        TAP_TRY(expect_part(call, x, part, dim, self->indexes.positions, err));
    TAP_TRY(tap__moves_copy(call, call->nin, out, 0, x, err));
    tap__moves_next_phase(call);
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, source >= 0 ? source : TAP_MOVE_CONSTANT, &move, err));
    if (value)
        memcpy(move->constant, value, move->item);
    move->add = add ? out->dtype : TAP_DTYPE_NONE;
    row_loops(out, part, dim, self->indexes.positions, true, move);
    return TAP_OK;
}

static tap_status prepare_index_copy(tap__call *call, tap_error *err)
{
    TAP_TRY(write_rows(call, 2, NULL, false, err));
    return done(call);
}
INDEXING(index_copy);

static tap_status prepare_index_add(tap__call *call, tap_error *err)
{
    const tap__number *alpha = &tap__call_attr(call, "alpha")->scalar;
    if (alpha->re != 1 || alpha->im != 0)
        return tap__refuse(call, err);
    TAP_TRY(write_rows(call, 2, NULL, true, err));
    return done(call);
}
INDEXING(index_add);

static tap_status prepare_index_fill(tap__call *call, tap_error *err)
{
    _Alignas(8) unsigned char value[16] = {0};
    tap__number_store(&tap__call_attr(call, "value")->scalar, call->out[0].dtype, value);
    TAP_TRY(write_rows(call, -1, value, false, err));
    indexing *self = call->state;
    self->indexes.no_negative = false;
    return done(call);
}
INDEXING(index_fill);

static tap_status prepare_index_fill_tensor(tap__call *call, tap_error *err)
{
    if (call->in[2].ndim != 0 || call->in[2].is_number || call->in[2].dtype != call->out[0].dtype)
        return tap__refuse(call, err);
    TAP_TRY(write_rows(call, -1, ZERO, false, err));
    indexing *self = call->state;
    self->indexes.no_negative = false;
    self->moves.list[self->moves.count - 1].from = 2;
    return done(call);
}
INDEXING(index_fill_tensor);

/* Over all elements of x as one long row. */
static tap_status prepare_take(tap__call *call, tap_error *err)
{
    const tap__operand *x = &call->in[0], *out = &call->out[0];
    indexing *self;
    if (x->dtype != out->dtype || !tap__operand_is_contiguous(x))
        return tap__refuse(call, err);
    TAP_TRY(begin(call, &self, err));
    int64_t item = (int64_t)tap__item_bytes(x->dtype);
    TAP_TRY(tap__indexes_add(call, &self->indexes, 1, 0, tap__operand_count(x), item, err));
    TAP_TRY(tap__expect_sizes(call, out, call->in[1].ndim, call->in[1].size, err));
    tap__move_step to;
    TAP_TRY(one_loop(call, out->ndim, out->size, out->stride, item, &to, err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 0, &move, err));
    tap__move_loop_at(move, self->indexes.positions, to, TABLE);
    return done(call);
}
INDEXING(take);

/* ----------------------------------------------------------------------------------------------------- embedding */

static tap_status embedding_index(tap__call *call, const tap__operand *table, const tap__operand *rows, tap_error *err)
{
    indexing *self = call->state;
    const tap__operand *index = &call->in[1];
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    if (table->ndim != 2 || index->ndim >= TAP_ENGINE_MAX_NDIM)
        return tap__refuse(call, err);
    memcpy(sizes, index->size, sizeof sizes);
    sizes[index->ndim] = table->size[1];
    TAP_TRY(tap__expect_sizes(call, rows, index->ndim + 1, sizes, err));
    self->indexes.no_negative = true;
    return tap__indexes_add(call, &self->indexes, 1, 0, table->size[0],
                            table->stride[0] * (int64_t)tap__item_bytes(table->dtype), err);
}

static tap_status prepare_embedding(tap__call *call, tap_error *err)
{
    const tap__operand *table = &call->in[0], *out = &call->out[0];
    indexing *self;
    if (table->dtype != out->dtype)
        return tap__refuse(call, err);
    TAP_TRY(begin(call, &self, err));
    TAP_TRY(embedding_index(call, table, out, err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, call->nin, 0, &move, err));
    int last = out->ndim - 1;
    tap__move_step to;
    TAP_TRY(one_loop(call, last, out->size, out->stride, (int64_t)move->item, &to, err));
    tap__move_loop_at(move, self->indexes.positions, to, TABLE);
    tap__move_loop(move, out->size[last], out->stride[last], table->stride[1]);
    return done(call);
}
INDEXING(embedding);

/* The gradient of a table: rows are added where they came from. A thread has rows of the table for itself and looks at
 * every index; a row becomes zeros when the first is added to it, or at the end, so that memory is passed once. */
typedef struct table_gradient {
    indexing base; /* first, as it is in the others */
    tap__move_step from;         /* of one position's row */
    int64_t rows, width, padding;
    int64_t row, to_step, from_step; /* bytes: of a row of the table, and along a row of both */
    const tap__lines *add, *copy;
} table_gradient;

typedef struct gradient_run {
    const table_gradient *self;
    const int64_t *at; /* of each position: where its row of the table is */
    unsigned char *seen;
    const char *from;
    char *to;
} gradient_run;

static void clear_row(const table_gradient *self, char *row)
{
    self->copy->line(row, self->to_step, (const char *)ZERO, 0, self->width);
}

static void add_rows(void *user, int64_t begin, int64_t end)
{
    const gradient_run *run = user;
    const table_gradient *self = run->self;
    int64_t first = begin * self->row, last = end * self->row;
    for (int64_t i = 0; i < self->base.indexes.positions; i++) {
        int64_t at = run->at[i];
        if (at < first || at >= last)
            continue;
        int64_t row = at / self->row;
        if (row == self->padding)
            continue;
        if (!run->seen[row])
            clear_row(self, run->to + at);
        run->seen[row] = 1;
        const char *from = run->from + (self->from.at ? self->from.at[i] : i * self->from.stride);
        self->add->line(run->to + at, self->to_step, from, self->from_step, self->width);
    }
    for (int64_t row = begin; row < end; row++)
        if (!run->seen[row])
            clear_row(self, run->to + row * self->row);
}

static tap_status run_embedding_backward(const tap__call *call, void *const *data, tap_error *err)
{
    const table_gradient *self = call->state;
    int64_t *table = data[call->nin + call->nout];
    gradient_run run = {self, table, (unsigned char *)(table + self->base.indexes.positions), data[0], data[call->nin]};
    if (self->rows == 0 || self->width == 0)
        return TAP_OK;
    if (self->base.indexes.positions > 0)
        TAP_TRY(tap__indexes_table(call, &self->base.indexes, data, table, err));
    memset(run.seen, 0, (size_t)self->rows);
    int64_t each = (self->rows + call->threads - 1) / call->threads, least = 1 + 16384 / self->width;
    tap__parallel(call->threads, self->rows, each > least ? each : least, TAP_ANY_LENGTH, add_rows, &run);
    return TAP_OK;
}

static tap_status prepare_embedding_backward(tap__call *call, tap_error *err)
{
    const tap__operand *rows = &call->in[0], *out = &call->out[0];
    int64_t item = (int64_t)tap__item_bytes(out->dtype);
    if (rows->dtype != out->dtype || !tap__lines_add(out->dtype) || tap__call_attr(call, "scale_grad_by_freq")->i)
        return tap__refuse(call, err);
    TAP_TRY(tap__moves_begin(call, sizeof(table_gradient), err));
    table_gradient *self = call->state;
    TAP_TRY(embedding_index(call, out, rows, err));
    int last = rows->ndim - 1;
    TAP_TRY(one_loop(call, last, rows->size, rows->stride, item, &self->from, err));
    self->rows = out->size[0];
    self->width = out->size[1];
    self->padding = tap__call_attr(call, "padding_idx")->i;
    self->row = self->rows > 1 ? out->stride[0] * item : 1;
    self->to_step = out->stride[1] * item;
    self->from_step = rows->stride[last] * item;
    self->add = tap__lines_add(out->dtype);
    self->copy = tap__lines_copy((size_t)item);
    TAP_TRY(done(call));
    call->scratch += (size_t)self->rows;
    /* offsets tell the rows apart: they lie one behind the other */
    return self->row <= 0 ? tap__refuse(call, err) : TAP_OK;
}
TAP__MOVES_KERNEL_RUN(embedding_backward, run_embedding_backward);
