/* move.c - orders the loops of a move, cuts them into units of work, and runs them. */
#include "engine/kernels/move.h"
#include "engine/kernels/move_lines.h"
#include "engine/kernels/number.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 1 << 16, TILE = 32 };

typedef struct tap__table {
    struct tap__table *next;
    int64_t values[];
} tap__table;

/* ------------------------------------------------------------------------------------------------------ building */

tap_status tap__moves_begin(tap__call *call, size_t size, tap_error *err)
{
    call->state = tap__calloc(1, size);
    return call->state ? TAP_OK : tap_fail_nomem(err);
}

tap_status tap__moves_add(tap__call *call, int to, int from, tap__move **out, tap_error *err)
{
    tap__moves *moves = call->state;
    if (moves->count == moves->room) {
        int room = moves->room ? 2 * moves->room : 2;
        tap__move *list = tap__resize(moves->list, (size_t)room, sizeof *list);
        if (!list)
            return tap_fail_nomem(err);
        moves->list = list;
        moves->room = room;
    }
    tap__move *move = &moves->list[moves->count++];
    memset(move, 0, sizeof *move);
    move->to = to;
    move->from = from;
    move->phase = moves->phases;
    move->item = tap__item_bytes(to < call->nin + call->nout ? call->out[to - call->nin].dtype : TAP_I64);
    *out = move;
    return TAP_OK;
}

void tap__moves_next_phase(tap__call *call)
{
    ((tap__moves *)call->state)->phases++;
}

int64_t *tap__moves_table(tap__call *call, int64_t count)
{
    tap__moves *moves = call->state;
    if (count < 0 || (uint64_t)count > (SIZE_MAX - sizeof(tap__table)) / sizeof(int64_t))
        return NULL;
    tap__table *table = tap__alloc(sizeof *table + (size_t)count * sizeof(int64_t));
    if (!table)
        return NULL;
    table->next = moves->tables;
    moves->tables = table;
    return table->values;
}

void tap__move_loop_at(tap__move *move, int64_t size, tap__move_step to, tap__move_step from)
{
    if (move->ndim < TAP_MOVE_MAX_DIMS)
        move->dims[move->ndim++] = (tap__move_dim){.size = size, .to = to, .from = from};
}

void tap__move_loop(tap__move *move, int64_t size, int64_t to_stride, int64_t from_stride)
{
    int64_t item = (int64_t)move->item;
    tap__move_step to = {to_stride * item, NULL, -1}, from = {from_stride * item, NULL, -1};
    tap__move_loop_at(move, size, to, from);
}

tap_status tap__moves_copy(tap__call *call, int to, const tap__operand *to_operand, int from,
                           const tap__operand *from_operand, tap_error *err)
{
    tap__move *move;
    TAP_TRY(tap__moves_add(call, to, from, &move, err));
    for (int i = 0; i < to_operand->ndim; i++)
        tap__move_loop(move, to_operand->size[i], to_operand->stride[i], from_operand->stride[i]);
    return TAP_OK;
}

tap_status tap__moves_fill(tap__call *call, int to, const tap__operand *to_operand, const void *value, tap_error *err)
{
    tap__move *move;
    TAP_TRY(tap__moves_add(call, to, TAP_MOVE_CONSTANT, &move, err));
    memcpy(move->constant, value, move->item);
    for (int i = 0; i < to_operand->ndim; i++)
        tap__move_loop(move, to_operand->size[i], to_operand->stride[i], 0);
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------ ordering */

static bool has_table(const tap__move_step *step)
{
    return step->at || step->scratch >= 0;
}

static bool is_plain(const tap__move_dim *dim)
{
    return !has_table(&dim->to) && !has_table(&dim->from);
}

/* Loops with long steps go outside. */
static int64_t reach(const tap__move_dim *dim)
{
    return llabs(has_table(&dim->to) ? dim->from.stride : dim->to.stride);
}

static void order_dims(tap__move *move)
{
    int kept = 0;
    for (int i = 0; i < move->ndim; i++)
        if (move->dims[i].size != 1 || !is_plain(&move->dims[i]))
            move->dims[kept++] = move->dims[i];
    move->ndim = kept;
    for (int i = 1; i < kept; i++) {
        tap__move_dim dim = move->dims[i];
        int at = i;
        for (; at > 0 && reach(&move->dims[at - 1]) < reach(&dim); at--)
            move->dims[at] = move->dims[at - 1];
        move->dims[at] = dim;
    }
}

static void merge_dims(tap__move *move)
{
    int kept = 0;
    for (int i = 0; i < move->ndim; i++) {
        tap__move_dim *dim = &move->dims[i], *outer = kept ? &move->dims[kept - 1] : NULL;
        if (outer && is_plain(outer) && is_plain(dim) && !outer->serial && !dim->serial && 
            outer->to.stride == dim->to.stride * dim->size && outer->from.stride == dim->from.stride * dim->size) {
            int64_t size = outer->size * dim->size;
            *outer = *dim;
            outer->size = size;
        } else {
            move->dims[kept++] = *dim;
        }
    }
    move->ndim = kept;
    if (!move->ndim)
        tap__move_loop(move, 1, 1, 1);
}

static void swap_in(tap__move *move, int from, int to)
{
    tap__move_dim dim = move->dims[from];
    for (int i = from; i < to; i++)
        move->dims[i] = move->dims[i + 1];
    move->dims[to] = dim;
}

/* Reading jumps while writing does not: a loop whose reads lie side by side comes beside the innermost one, and the two
 * run in tiles. */
static void find_tile(tap__move *move)
{
    int last = move->ndim - 1;
    const tap__move_dim *inner = &move->dims[last];
    if (last < 1 || !is_plain(inner) || inner->from.stride == 0 || llabs(inner->from.stride) == (int64_t)move->item ||
        inner->size < 4)
        return;
    for (int i = last - 1; i >= 0; i--)
        if (is_plain(&move->dims[i]) && llabs(move->dims[i].from.stride) == (int64_t)move->item &&
            move->dims[i].size >= 4) {
            swap_in(move, i, last - 1);
            move->tiled = true;
            return;
        }
}

static bool is_serial(const tap__move_dim *dim)
{
    return dim->serial || has_table(&dim->to);
}

/* Loops that may write to one place twice stay in one unit, in their order; what is spread are the others, in pieces
 * of whole cache lines where they are innermost. */
static bool order_writes(tap__move *move)
{
    int others = 0, last = move->ndim - 1, serial = 0;
    for (int i = 0; i <= last; i++)
        serial += is_serial(&move->dims[i]);
    if (!serial)
        return false;
    bool inside = !is_serial(&move->dims[last]);
    for (int i = last, left = serial; i >= 0 && left; i--)
        if (is_serial(&move->dims[i])) {
            swap_in(move, i, last - (serial - left) - inside);
            left--;
        }
    others = move->ndim - serial - inside;
    move->parallel = others;
    move->split = -1;
    if (inside) {
        int64_t line = 64 / (int64_t)move->item, lines = (move->dims[last].size + line - 1) / line;
        move->split = last;
        move->piece = line * ((lines + 3) / 4 > 64 ? 64 : (lines + 3) / 4);
    } else if (others) {
        move->parallel = move->split = others - 1;
        move->piece = 1 + 8192 / move->dims[last].size;
    }
    return true;
}

static void cut(tap__move *move)
{
    move->units = 1;
    for (int i = 0; i < move->parallel; i++)
        move->units *= move->dims[i].size;
    move->pieces = 1;
    if (move->split >= 0) {
        int64_t size = move->dims[move->split].size;
        move->pieces = (size + move->piece - 1) / move->piece;
        move->units *= move->pieces;
    }
}

static void choose_units(tap__move *move)
{
    int64_t inner = (int64_t)move->item;
    int split = move->ndim - 1, innermost = move->tiled ? move->ndim - 2 : move->ndim - 1;
    while (split > 0 && (split > innermost || inner * move->dims[split].size <= UNIT_BYTES / 2))
        inner *= move->dims[split--].size;
    move->parallel = move->split = split;
    move->piece = UNIT_BYTES / (inner ? inner : 1);
    if (move->piece < (move->tiled ? TILE : 1))
        move->piece = move->tiled ? TILE : 1;
}

static void ready(tap__move *move)
{
    for (int i = 0; i < move->ndim; i++)
        if (move->dims[i].size == 0) {
            move->units = 0;
            return;
        }
    order_dims(move);
    merge_dims(move);
    if (!order_writes(move)) {
        if (move->add == TAP_DTYPE_NONE)
            find_tile(move);
        choose_units(move);
    }
    cut(move);
}

void tap__moves_ready(tap__call *call)
{
    tap__moves *moves = call->state;
    int64_t first = 0;
    for (int i = 0; i < moves->count; i++) {
        tap__move *move = &moves->list[i];
        if (i && move->phase != move[-1].phase)
            first = 0;
        ready(move);
        move->first_unit = first;
        first += move->units;
    }
    moves->phases++;
}

/* ------------------------------------------------------------------------------------------------------- running */

typedef struct wide {
    uint64_t half[2];
} wide;

/* to[i] = from[count - 1 - i], in vectors where there is a whole one */
#define BACK(type, lanes, ...)                                                                                       \
    static void back_##type(type *restrict to, const type *restrict from, int64_t count)                             \
    {                                                                                                                \
        typedef type vector __attribute__((vector_size(lanes * sizeof(type)), aligned(sizeof(type)), may_alias));    \
        int64_t i = 0;                                                                                               \
        for (; i + (lanes) <= count; i += (lanes)) {                                                                 \
            vector v = *(const vector *)(from + count - i - (lanes));                                                \
            *(vector *)(to + i) = __builtin_shufflevector(v, v, __VA_ARGS__);                                        \
        }                                                                                                            \
        for (; i < count; i++)                                                                                       \
            to[i] = from[count - 1 - i];                                                                             \
    }
BACK(uint8_t, 8, 7, 6, 5, 4, 3, 2, 1, 0)
BACK(uint16_t, 8, 7, 6, 5, 4, 3, 2, 1, 0)
BACK(uint32_t, 4, 3, 2, 1, 0)
BACK(uint64_t, 2, 1, 0)

static void back_wide(wide *restrict to, const wide *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[count - 1 - i];
}

#define LINES(type)                                                                                                  \
    static void line_##type(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count)           \
    {                                                                                                                \
        int64_t item = (int64_t)sizeof(type);                                                                        \
        if (from_step == 0) {                                                                                        \
            type value = *(const type *)from;                                                                        \
            if (to_step == item)                                                                                     \
                for (int64_t i = 0; i < count; i++)                                                                  \
                    ((type *)to)[i] = value;                                                                         \
            else                                                                                                     \
                for (int64_t i = 0; i < count; i++)                                                                  \
                    *(type *)(to + i * to_step) = value;                                                             \
        } else if (to_step == item && from_step == -item) {                                                          \
            back_##type((type *)to, (const type *)from - (count - 1), count);                                        \
        } else if (to_step == item) {                                                                                \
            for (int64_t i = 0; i < count; i++)                                                                      \
                ((type *)to)[i] = *(const type *)(from + i * from_step);                                             \
        } else {                                                                                                     \
            for (int64_t i = 0; i < count; i++)                                                                      \
                *(type *)(to + i * to_step) = *(const type *)(from + i * from_step);                                 \
        }                                                                                                            \
    }                                                                                                                \
    static void gather_##type(char *to, int64_t to_step, const char *from, const int64_t *at, int64_t count)         \
    {                                                                                                                \
        if (to_step == (int64_t)sizeof(type))                                                                        \
            for (int64_t i = 0; i < count; i++)                                                                      \
                ((type *)to)[i] = *(const type *)(from + at[i]);                                                     \
        else                                                                                                         \
            for (int64_t i = 0; i < count; i++)                                                                      \
                *(type *)(to + i * to_step) = *(const type *)(from + at[i]);                                         \
    }                                                                                                                \
    static void scatter_##type(char *to, const int64_t *at, const char *from, int64_t from_step, int64_t count)      \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            *(type *)(to + at[i]) = *(const type *)(from + i * from_step);                                           \
    }                                                                                                                \
    static void both_##type(char *to, const int64_t *to_at, const char *from, const int64_t *from_at, int64_t count) \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            *(type *)(to + to_at[i]) = *(const type *)(from + from_at[i]);                                           \
    }                                                                                                                \
    /* rows whose elements lie side by side when read, written as columns that do when written */                    \
    static void tile_##type(const tap__move_dim *rows, const tap__move_dim *columns, char *to, const char *from)     \
    {                                                                                                                \
        for (int64_t row = 0; row < rows->size; row += TILE)                                                         \
            for (int64_t column = 0; column < columns->size; column += TILE) {                                       \
                int64_t row_end = row + TILE < rows->size ? row + TILE : rows->size;                                 \
                int64_t column_end = column + TILE < columns->size ? column + TILE : columns->size;                  \
                for (int64_t i = row; i < row_end; i++) {                                                            \
                    char *to_row = to + i * rows->to.stride;                                                         \
                    const char *from_row = from + i * rows->from.stride;                                             \
                    for (int64_t j = column; j < column_end; j++)                                                    \
                        *(type *)(to_row + j * columns->to.stride) =                                                 \
                            *(const type *)(from_row + j * columns->from.stride);                                    \
                }                                                                                                    \
            }                                                                                                        \
    }
LINES(uint8_t)
LINES(uint16_t)
LINES(uint32_t)
LINES(uint64_t)
LINES(wide)

#define ROW(type) {line_##type, gather_##type, scatter_##type, both_##type, tile_##type}
static const tap__lines LINES_OF[5] = {ROW(uint8_t), ROW(uint16_t), ROW(uint32_t), ROW(uint64_t), ROW(wide)};

const tap__lines *tap__lines_copy(size_t item)
{
    return &LINES_OF[item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : item == 8 ? 3 : 4];
}

typedef struct walker {
    const tap__lines *lines;
    int64_t item;
    bool tiled, adds;
} walker;

static void walk_line(const walker *self, const tap__move_dim *dim, char *to, const char *from)
{
    if (dim->to.at && dim->from.at)
        self->lines->both(to, dim->to.at, from, dim->from.at, dim->size);
    else if (dim->to.at)
        self->lines->scatter(to, dim->to.at, from, dim->from.stride, dim->size);
    else if (dim->from.at)
        self->lines->gather(to, dim->to.stride, from, dim->from.at, dim->size);
    else if (dim->to.stride == self->item && dim->from.stride == self->item && !self->adds)
        memcpy(to, from, (size_t)(dim->size * self->item));
    else
        self->lines->line(to, dim->to.stride, from, dim->from.stride, dim->size);
}

static int64_t step_at(const tap__move_step *step, int64_t i)
{
    return step->at ? step->at[i] : i * step->stride;
}

static void walk(const walker *self, const tap__move_dim *dims, int ndim, char *to, const char *from)
{
    if (ndim == 1) {
        walk_line(self, dims, to, from);
        return;
    }
    if (ndim == 2 && self->tiled) {
        self->lines->tile(&dims[0], &dims[1], to, from);
        return;
    }
    for (int64_t i = 0; i < dims->size; i++)
        walk(self, dims + 1, ndim - 1, to + step_at(&dims->to, i), from + step_at(&dims->from, i));
}

static const int64_t *find_table(const tap__move_step *step, const void *scratch)
{
    return step->scratch >= 0 ? (const int64_t *)((const char *)scratch + step->scratch) : step->at;
}

/* Runs the units [begin, end) of one move. */
static void run_units(const tap__move *move, void *const *data, const void *scratch, int64_t begin, int64_t end)
{
    tap__move_dim dims[TAP_MOVE_MAX_DIMS];
    for (int i = 0; i < move->ndim; i++) {
        dims[i] = move->dims[i];
        dims[i].to.at = find_table(&dims[i].to, scratch);
        dims[i].from.at = find_table(&dims[i].from, scratch);
    }
    bool adds = move->add != TAP_DTYPE_NONE;
    const tap__lines *lines = adds ? tap__lines_add(move->add) : tap__lines_copy(move->item);
    walker self = {lines, (int64_t)move->item, move->tiled, adds};
    char *to = data[move->to];
    const char *from = move->from == TAP_MOVE_CONSTANT ? (const char *)move->constant : data[move->from];
    if (!to || !from) /* an operand without elements */
        return;
    to += move->to_offset;
    if (move->from != TAP_MOVE_CONSTANT)
        from += move->from_offset;
    tap__move_dim whole = move->split >= 0 ? dims[move->split] : (tap__move_dim){0};
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t rest = unit / move->pieces, piece = unit % move->pieces;
        char *unit_to = to;
        const char *unit_from = from;
        for (int i = move->parallel - 1; i >= 0; i--) {
            int64_t at = rest % dims[i].size;
            rest /= dims[i].size;
            unit_to += step_at(&dims[i].to, at);
            unit_from += step_at(&dims[i].from, at);
        }
        if (move->split >= 0) {
            tap__move_dim *dim = &dims[move->split];
            int64_t first = piece * move->piece;
            *dim = whole;
            dim->size = whole.size - first < move->piece ? whole.size - first : move->piece;
            if (dim->to.at)
                dim->to.at += first;
            else
                unit_to += first * dim->to.stride;
            if (dim->from.at)
                dim->from.at += first;
            else
                unit_from += first * dim->from.stride;
        }
        walk(&self, dims + move->parallel, move->ndim - move->parallel, unit_to, unit_from);
    }
}

typedef struct phase_run {
    const tap__move *moves;
    int count;
    void *const *data;
    const void *scratch;
} phase_run;

static void run_part(void *user, int64_t begin, int64_t end)
{
    const phase_run *self = user;
    int low = 0, high = self->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (self->moves[middle].first_unit <= begin)
            low = middle;
        else
            high = middle - 1;
    }
    for (int i = low; i < self->count && begin < end; i++) {
        const tap__move *move = &self->moves[i];
        int64_t stop = move->first_unit + move->units < end ? move->first_unit + move->units : end;
        if (begin < stop) {
            run_units(move, self->data, self->scratch, begin - move->first_unit, stop - move->first_unit);
            begin = stop;
        }
    }
}

tap_status tap__moves_run(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    const tap__moves *moves = call->state;
    const void *scratch = call->scratch ? data[call->nin + call->nout] : NULL;
    for (int i = 0; i < moves->count;) {
        int end = i;
        while (end < moves->count && moves->list[end].phase == moves->list[i].phase)
            end++;
        const tap__move *last = &moves->list[end - 1];
        int64_t units = last->first_unit + last->units;
        phase_run self = {&moves->list[i], end - i, data, scratch};
        int64_t bytes = 0;
        for (int j = i; j < end; j++) {
            int64_t elements = (int64_t)moves->list[j].item;
            for (int d = 0; d < moves->list[j].ndim; d++)
                elements *= moves->list[j].dims[d].size;
            bytes += elements;
        }
        /* small units are taken several at a time */
        int64_t grain = bytes > 0 ? (UNIT_BYTES / 2 * units + bytes - 1) / bytes : 1;
        tap__parallel(call->threads, units, grain, TAP_ANY_LENGTH, run_part, &self);
        i = end;
    }
    return TAP_OK;
}

void tap__moves_release(tap__call *call)
{
    tap__moves *moves = call->state;
    if (!moves)
        return;
    while (moves->tables) {
        tap__table *next = moves->tables->next;
        tap__free(moves->tables);
        moves->tables = next;
    }
    tap__free(moves->list);
    tap__free(moves);
    call->state = NULL;
}

tap_status tap__expect_sizes(const tap__call *call, const tap__operand *operand, int ndim, const int64_t *sizes,
                             tap_error *err)
{
    bool same = operand->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = operand->size[i] == sizes[i];
    return same ? TAP_OK : tap_fail(err, TAP_E_INVALID, "%s: the sizes of its operands do not fit", call->name);
}

/* ------------------------------------------------------------------------------------------------------- numbers */

void tap__number_store(const tap__number *number, tap_dtype dtype, void *element)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    bool whole = number->kind == 'B' || number->kind == 'I';
    if (info->kind == 'B') {
        *(uint8_t *)element = whole ? number->i != 0 : number->re != 0 || number->im != 0;
    } else if (info->kind == 'I' || info->kind == 'U') {
        bool fits = number->re >= -0x1p63 && number->re < 0x1p63;
        int64_t value = whole ? number->i : fits ? (int64_t)number->re : 0;
        memcpy(element, &value, info->bytes);
    } else {
        tap_scalar value = {.kind = whole ? 'I' : 'C', .i = number->i, .re = number->re, .im = number->im};
        tap__element_put(dtype, element, 0, &value);
    }
}

void tap__store_halves(const tap__operand *operand, const float *from, uint16_t *to)
{
    int64_t count = tap__operand_count(operand);
    bool dense = tap__operand_is_contiguous(operand), half = operand->dtype == TAP_F16;
    for (int64_t position = 0; position < count; position++) {
        int64_t rest = position, at = dense ? position : 0;
        for (int i = operand->ndim - 1; i >= 0 && !dense; i--) {
            at += rest % operand->size[i] * operand->stride[i];
            rest /= operand->size[i];
        }
        to[at] = half ? tap__encode_f16(from[position]) : tap__encode_bf16(from[position]);
    }
}
