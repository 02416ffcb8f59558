/* pointwise.c - builds block programs and runs them. */
#include "engine/kernels/pointwise_program.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/element.h"

#include <stdatomic.h>
#include <string.h>

enum {
    PIECE = 32768,   /* elements given to a thread at a time */
    MAX_THREADS = 64 /* bits of run.busy */
};

/* -------------------------------------------------------------------------------------------------------- supports */

bool tap__pw_supports(const tap__call *call)
{
    tap__pw_builder b;
    tap__pw_value in[TAP_PW_MAX_INPUTS];
    tap__pw_type type;
    tap__pw_builder_init(&b);
    if (call->nin > TAP_PW_MAX_INPUTS || call->nout != 1 || !tap__pw_type_of(call->out[0].dtype, &type))
        return false;
    for (int k = 0; k < call->nin; k++) {
        const tap__operand *at = &call->in[k];
        if (at->dtype == TAP_DTYPE_NONE || at->is_number)
            continue;
        if (!tap__pw_type_of(at->dtype, &type))
            return false;
        in[k] = (tap__pw_value){.slot = tap__pw_add_slot(&b, TAP_PW_LOADED, type), .dtype = at->dtype};
    }
    tap__pw_value out = tap__pw_lower(&b, call, in, true);
    return !b.failed && tap__pw_type_of(out.dtype, &type) && b.slots[out.slot].type == type;
}

/* -------------------------------------------------------------------------------------------------------- building */

static tap__pw_half half_of(tap_dtype dtype)
{
    return dtype == TAP_F16 ? TAP_PW_HALF_F16 : dtype == TAP_BF16 ? TAP_PW_HALF_BF16 : TAP_PW_NOT_HALF;
}

static uint8_t bytes_of(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->bytes;
}

/* Gives every slot a block: a computed one from its step to its last use, a loaded one from the start, a constant
 * for good. An operand's block may be taken over by the result of the step that uses it last. Returns how many. */
static int place_slots(const tap__pw_builder *b, uint16_t *block_of)
{
    int16_t last[TAP_PW_MAX_SLOTS];
    uint16_t spare[TAP_PW_MAX_SLOTS];
    int nspare = 0, count = 0;
    memset(last, 0xFF, sizeof last);
    for (int i = 0; i < b->nsteps; i++)
        for (int k = 0; k < TAP_PW_MAX_SRC; k++)
            last[b->steps[i].src[k]] = (int16_t)i;
    for (int s = 0; s < b->nslots; s++)
        if (b->slots[s].kind != TAP_PW_COMPUTED)
            block_of[s] = (uint16_t)count++;
    for (int i = 0; i < b->nsteps; i++) {
        const tap__pw_step *step = &b->steps[i];
        uint16_t after[TAP_PW_MAX_SRC];
        int nafter = 0;
        size_t size = tap__pw_type_size(b->slots[step->dst].type);
        for (int k = 0; k < TAP_PW_MAX_SRC; k++) {
            uint16_t src = step->src[k];
            if (last[src] != i || b->slots[src].kind == TAP_PW_CONSTANT)
                continue;
            last[src] = -1; /* once */
            if (tap__pw_type_size(b->slots[src].type) == size && b->slots[src].kind == TAP_PW_COMPUTED)
                spare[nspare++] = block_of[src];
            else if (b->slots[src].kind == TAP_PW_COMPUTED)
                after[nafter++] = block_of[src];
        }
        block_of[step->dst] = nspare ? spare[--nspare] : (uint16_t)count++;
        while (nafter)
            spare[nspare++] = after[--nafter];
    }
    return count;
}

typedef struct draft {
    tap__pw_builder b;
    tap__pw_value values[TAP_PW_MAX_NODES];
    uint16_t block_of[TAP_PW_MAX_SLOTS];
    tap__pw_operand loads[TAP_PW_MAX_LOADS], stores[TAP_PW_MAX_STORES];
} draft;

static bool is_used_later(const tap__pw_node *nodes, int nnodes, int index)
{
    for (int n = index + 1; n < nnodes; n++)
        for (int k = 0; k < nodes[n].call->nin; k++)
            if (!nodes[n].call->in[k].is_number && nodes[n].call->in[k].dtype != TAP_DTYPE_NONE &&
                nodes[n].from[k] == index)
                return true;
    return false;
}

static bool lower_nodes(draft *d, const tap__pw_node *nodes, int nnodes, const tap__operand *loads, int nloads,
                        const tap__operand *stores)
{
    tap__pw_builder *b = &d->b;
    tap__pw_builder_init(b);
    for (int i = 0; i < nloads; i++) {
        tap__pw_type type;
        if (!tap__pw_type_of(loads[i].dtype, &type))
            return false;
        d->loads[i] = (tap__pw_operand){.slot = tap__pw_add_slot(b, TAP_PW_LOADED, type), .half = half_of(loads[i].dtype),
                                .bytes = bytes_of(loads[i].dtype), .address = (int16_t)i};
    }
    for (int n = 0; n < nnodes; n++) {
        const tap__call *call = nodes[n].call;
        tap__pw_value in[TAP_PW_MAX_INPUTS] = {{0, TAP_DTYPE_NONE}};
        for (int k = 0; k < call->nin && k < TAP_PW_MAX_INPUTS; k++) {
            int from = nodes[n].from[k];
            if (call->in[k].is_number || call->in[k].dtype == TAP_DTYPE_NONE)
                continue;
            in[k] = from >= 0 ? d->values[from] : (tap__pw_value){d->loads[~from].slot, loads[~from].dtype};
        }
        d->values[n] = tap__pw_lower(b, call, in, is_used_later(nodes, nnodes, n));
        if (b->failed)
            return false;
        if (nodes[n].store >= 0) {
            tap_dtype dtype = stores[nodes[n].store].dtype;
            if (dtype != d->values[n].dtype)
                return false;
            d->stores[nodes[n].store] =
                (tap__pw_operand){.slot = d->values[n].slot, .half = half_of(dtype), .bytes = bytes_of(dtype), .after = -1,
                          .address = (int16_t)(nloads + nodes[n].store)};
        }
    }
    return true;
}

/* A value is stored right after its step; steps after that may use it still. In the order of the steps. */
static void time_stores(draft *d, int nstores)
{
    for (int i = 0; i < nstores; i++)
        for (int s = 0; s < d->b.nsteps; s++)
            if (d->b.steps[s].dst == d->stores[i].slot)
                d->stores[i].after = (int16_t)s;
    for (int i = 1; i < nstores; i++)
        for (int k = i; k > 0 && d->stores[k].after < d->stores[k - 1].after; k--) {
            tap__pw_operand other = d->stores[k];
            d->stores[k] = d->stores[k - 1];
            d->stores[k - 1] = other;
        }
}

/* 16-bit floats that are only moved are moved as they are. */
static void keep_halves(draft *d, int nloads, int nstores)
{
    for (int i = 0; i < nloads; i++) {
        uint16_t slot = d->loads[i].slot;
        bool used = d->loads[i].half == TAP_PW_NOT_HALF;
        for (int s = 0; s < d->b.nsteps; s++)
            for (int k = 0; k < TAP_PW_MAX_SRC; k++)
                used = used || d->b.steps[s].src[k] == slot;
        for (int k = 0; k < nstores; k++)
            used = used || (d->stores[k].slot == slot && d->stores[k].half != d->loads[i].half);
        if (used)
            continue;
        d->loads[i].half = TAP_PW_NOT_HALF;
        d->b.slots[slot].type = TAP_PW_i16;
        for (int k = 0; k < nstores; k++)
            if (d->stores[k].slot == slot)
                d->stores[k].half = TAP_PW_NOT_HALF;
    }
}

static void *take(char **at, size_t count, size_t size)
{
    void *here = *at;
    *at += (count * size + 15) / 16 * 16;
    return here;
}

static tap__pw *make_program(const draft *d, int nloads, int nstores)
{
    const tap__pw_builder *b = &d->b;
    size_t nsteps = (size_t)b->nsteps, nslots = (size_t)b->nslots;
    size_t bytes = sizeof(tap__pw) + nsteps * sizeof(tap__pw_step) + nslots * (sizeof(tap__pw_slot) + 4) +
                   (size_t)(nloads + nstores) * sizeof(tap__pw_operand) + 6 * 16;
    char *at = tap__calloc(1, bytes);
    if (!at)
        return NULL;
    tap__pw *p = take(&at, 1, sizeof *p);
    p->steps = take(&at, nsteps, sizeof(tap__pw_step));
    p->slots = take(&at, nslots, sizeof(tap__pw_slot));
    p->place = take(&at, nslots, sizeof(uint32_t));
    p->loads = take(&at, (size_t)nloads, sizeof(tap__pw_operand));
    p->stores = take(&at, (size_t)nstores, sizeof(tap__pw_operand));
    p->nsteps = b->nsteps;
    p->nslots = b->nslots;
    p->nloads = nloads;
    p->nstores = nstores;
    p->kernels = b->kernels;
    memcpy(p->steps, b->steps, nsteps * sizeof(tap__pw_step));
    memcpy(p->slots, b->slots, nslots * sizeof(tap__pw_slot));
    memcpy(p->loads, d->loads, (size_t)nloads * sizeof(tap__pw_operand));
    memcpy(p->stores, d->stores, (size_t)nstores * sizeof(tap__pw_operand));
    return p;
}

/* Blocks, or tiles. */
static int64_t units_of(const tap__pw *p)
{
    if (!p->tiled)
        return (p->count + p->block - 1) / p->block;
    int64_t tiles = ((p->columns + p->tile_columns - 1) / p->tile_columns) * ((p->rows + p->tile_rows - 1) / p->tile_rows);
    for (int d = 0; d < p->nouter; d++)
        tiles *= p->outer_size[d];
    return tiles;
}

tap_status tap__pw_build(const tap__pw_node *nodes, int nnodes, const tap__operand *loads, int nloads,
                         const tap__operand *stores, int nstores, int threads, tap__pw **out, tap_error *err)
{
    *out = NULL;
    if (nnodes < 1 || nnodes > TAP_PW_MAX_NODES || nloads > TAP_PW_MAX_LOADS || nstores < 1 ||
        nstores > TAP_PW_MAX_STORES)
        return tap_fail(err, TAP_E_LIMIT, "a chain of %d nodes with %d loads and %d stores is too long for one pass", nnodes, nloads, nstores);
    draft *d = tap__alloc(sizeof *d);
    if (!d)
        return tap_fail_nomem(err);
    if (!lower_nodes(d, nodes, nnodes, loads, nloads, stores)) {
        tap__free(d);
        return tap__refuse(nodes[0].call, err);
    }
    time_stores(d, nstores);
    keep_halves(d, nloads, nstores);
    int nblocks = place_slots(&d->b, d->block_of);
    size_t size = 1;
    for (int s = 0; s < d->b.nslots; s++)
        if (tap__pw_type_size(d->b.slots[s].type) > size)
            size = tap__pw_type_size(d->b.slots[s].type);
    tap__pw *p = make_program(d, nloads, nstores);
    if (!p) {
        tap__free(d);
        return tap_fail_nomem(err);
    }
    tap__pw_set_geometry(p, loads, stores, d->block_of, size);
    size_t room = (size_t)p->block * size + TAP_PW_LINE; /* the line keeps blocks from falling onto the same cache sets */
    for (int s = 0; s < p->nslots; s++)
        p->place[s] = (uint32_t)(d->block_of[s] * room);
    p->stage = (size_t)nblocks * room;
    p->scratch = (p->stage + room + TAP_PW_LINE - 1) / TAP_PW_LINE * TAP_PW_LINE;
    tap__free(d);
    p->grain = PIECE / (p->tiled ? p->tile_rows * p->tile_columns : p->block);
    if (p->grain < 1)
        p->grain = 1;
    int64_t pieces = (units_of(p) + p->grain - 1) / p->grain;
    p->threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    if (p->threads > pieces)
        p->threads = pieces > 0 ? (int)pieces : 1;
    *out = p;
    return TAP_OK;
}

size_t tap__pw_room(const tap__pw *program)
{
    return (size_t)program->threads * program->scratch;
}

void tap__pw_free(tap__pw *program)
{
    tap__free(program);
}

/* --------------------------------------------------------------------------------------------------------- running */

typedef struct run {
    const tap__pw *p;
    void *const *data;
    uint32_t aliased; /* loads whose memory is stored to: never used in place */
    _Atomic(const char *) *by_zero; /* the name of a node that divided by zero */
    _Atomic uint64_t *busy; /* which scratches are taken: bits */
} run;

typedef struct frame {
    char *slots[TAP_PW_MAX_SLOTS];
    char *scratch;
    const char *lines[TAP_PW_MAX_LOADS]; /* where the number of a line is; NULL: it is spread over the block */
} frame;

static void fill_constant(const tap__pw_slot *slot, char *block, int64_t n)
{
    const tap__number *number = &slot->number;
    switch (slot->type) {
#define FILL(id, type, value)                                                                                        \
    case TAP_PW_##id:                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                              \
            ((type *)(void *)block)[i] = value;                                                                      \
        break;
        FILL(b8, uint8_t, (uint8_t)(number->i != 0))
        FILL(u8, uint8_t, (uint8_t)number->i)
        FILL(i8, int8_t, (int8_t)number->i)
        FILL(i16, int16_t, (int16_t)number->i)
        FILL(i32, int32_t, (int32_t)number->i)
        FILL(i64, int64_t, number->i)
        FILL(f32, float, (float)number->re)
        FILL(f64, double, number->re)
        FILL(c64, tap__c64, ((tap__c64){(float)number->re, (float)number->im}))
        FILL(c128, tap__c128, ((tap__c128){number->re, number->im}))
#undef FILL
    case TAP_PW_TYPES: break;
    }
}

static void widen(const tap__pw *p, const tap__pw_operand *at, void *block, const void *halves, int64_t n)
{
    (at->half == TAP_PW_HALF_F16 ? p->kernels->widen_f16 : p->kernels->widen_bf16)(block, halves, n);
}

static void narrow(const tap__pw *p, const tap__pw_operand *at, void *halves, const void *block, int64_t n)
{
    (at->half == TAP_PW_HALF_F16 ? p->kernels->narrow_f16 : p->kernels->narrow_bf16)(halves, block, n);
}

static bool is_dense(const tap__pw_operand *at)
{
    return at->layout.ndim == 1 && at->layout.stride[0] == 1;
}

static void load_block(const tap__pw *p, const tap__pw_operand *at, const char *memory, char *block, frame *f, int64_t first,
                       int64_t n)
{
    char *stage = f->scratch + p->stage;
    f->slots[at->slot] = block;
    if (at->half == TAP_PW_NOT_HALF) {
        if (is_dense(at))
            memcpy(block, memory + first * at->bytes, (size_t)n * at->bytes);
        else
            p->kernels->gather(block, memory, at->bytes, &at->layout, first, n);
    } else if (is_dense(at)) {
        widen(p, at, block, memory + first * at->bytes, n);
    } else {
        p->kernels->gather(stage, memory, at->bytes, &at->layout, first, n);
        widen(p, at, block, stage, n);
    }
}

static void store_block(const tap__pw *p, const tap__pw_operand *at, char *memory, const frame *f, int64_t first, int64_t n)
{
    char *block = f->slots[at->slot], *stage = f->scratch + p->stage;
    if (at->half == TAP_PW_NOT_HALF) {
        if (is_dense(at))
            memcpy(memory + first * at->bytes, block, (size_t)n * at->bytes);
        else
            p->kernels->scatter(memory, block, at->bytes, &at->layout, first, n);
    } else if (is_dense(at)) {
        narrow(p, at, memory + first * at->bytes, block, n);
    } else {
        narrow(p, at, stage, block, n);
        p->kernels->scatter(memory, stage, at->bytes, &at->layout, first, n);
    }
}

/* What lies behind the data in a block that is not full is computed too; let it be zeros. */
static void pad_block(const tap__pw *p, const tap__pw_operand *at, frame *f, int64_t n, int64_t padded)
{
    size_t size = tap__pw_type_size(p->slots[at->slot].type);
    memset(f->slots[at->slot] + (size_t)n * size, 0, (size_t)(padded - n) * size);
}

/* Takes a scratch that nobody uses: there are as many as threads, so there is one. */
static int start_frame(const run *r, frame *f)
{
    const tap__pw *p = r->p;
    uint64_t busy = atomic_load_explicit(r->busy, memory_order_relaxed);
    int mine;
    do
        mine = __builtin_ctzll(~busy);
    while (!atomic_compare_exchange_weak_explicit(r->busy, &busy, busy | (uint64_t)1 << mine, memory_order_acquire,
                                                  memory_order_relaxed));
    f->scratch = (char *)r->data[p->nloads + p->nstores] + (size_t)mine * p->scratch;
    for (int s = 0; s < p->nslots; s++) {
        f->slots[s] = f->scratch + p->place[s];
        if (p->slots[s].kind == TAP_PW_CONSTANT) {
            int64_t n = p->count < p->block ? (p->count + TAP_PW_LANES - 1) & -(int64_t)TAP_PW_LANES : p->block;
            fill_constant(&p->slots[s], f->slots[s], p->tiled ? p->block : n);
        }
    }
    return mine;
}

static void end_frame(const run *r, int mine)
{
    atomic_fetch_and_explicit(r->busy, ~((uint64_t)1 << mine), memory_order_release);
}

/* The address of the number that n elements from `first` on share; NULL: they go on into the next line. */
static const char *line_number(const tap__pw_operand *at, const char *memory, int64_t first, int64_t n)
{
    int64_t line = first / at->layout.size[0], offset = 0;
    if (first - line * at->layout.size[0] + n > at->layout.size[0])
        return NULL;
    for (int d = 1; d < at->layout.ndim; d++) {
        bool last = d == at->layout.ndim - 1;
        offset += (last ? line : line % at->layout.size[d]) * at->layout.stride[d];
        line = last ? 0 : line / at->layout.size[d];
    }
    return memory + offset * at->bytes;
}

static void run_line(const tap__pw *p, const tap__pw_step *step, const char *number, const frame *f, int64_t n)
{
    tap__pw_step now = *step;
    const tap__pw_operand *at = &p->loads[step->line];
    const void *from = number;
    double *real = &now.imm[0].f;
    int64_t *whole = &now.imm[0].i;
    switch (p->slots[at->slot].type) {
    case TAP_PW_f32:
        *real = (double)(at->half == TAP_PW_HALF_F16    ? tap__decode_f16(*(const uint16_t *)from)
                         : at->half == TAP_PW_HALF_BF16 ? tap__decode_bf16(*(const uint16_t *)from)
                                                 : *(const float *)from);
        break;
    case TAP_PW_f64: *real = *(const double *)from; break;
    case TAP_PW_i64: *whole = *(const int64_t *)from; break;
    case TAP_PW_i32: *whole = *(const int32_t *)from; break;
    case TAP_PW_i16: *whole = *(const int16_t *)from; break;
    case TAP_PW_i8: *whole = *(const int8_t *)from; break;
    default: *whole = *(const uint8_t *)from; break;
    }
    now.fn_line(&now, f->slots, n);
}

static bool has_zero(const char *block, size_t size, int64_t n)
{
    bool found = false;
#define X(bytes, type)                                                                                               \
    for (int64_t i = 0; size == bytes && i < n; i++)                                                                 \
        found |= ((const type *)(const void *)block)[i] == 0;
    X(1, int8_t) X(2, int16_t) X(4, int32_t) X(8, int64_t)
#undef X
    return found;
}

/* n: elements of the block that are data. */
static void run_instruction(const run *r, const frame *f, int index, int64_t n, int64_t padded)
{
    const tap__pw_step *step = &r->p->steps[index];
    if (step->divides && has_zero(f->slots[step->src[1]], tap__pw_type_size(r->p->slots[step->src[1]].type), n))
        atomic_store(r->by_zero, step->divides);
    if (step->line >= 0 && f->lines[step->line])
        run_line(r->p, step, f->lines[step->line], f, padded);
    else
        step->fn(step, f->slots, padded);
}

static void run_block(const run *r, frame *f, int64_t first, int64_t n, bool load_all)
{
    const tap__pw *p = r->p;
    int64_t padded = (n + TAP_PW_LANES - 1) & -(int64_t)TAP_PW_LANES;
    bool full = n == padded;
    for (int i = 0; i < p->nloads; i++) {
        const tap__pw_operand *at = &p->loads[i];
        char *memory = r->data[at->address], *block = f->scratch + p->place[at->slot];
        bool alone = full && !(r->aliased >> i & 1);
        f->lines[i] = at->line ? line_number(at, memory, first, n) : NULL;
        if (at->direct && alone) {
            f->slots[at->slot] = memory + first * at->bytes;
        } else if (!f->lines[i] && (load_all || !at->once)) {
            if (at->into >= 0 && alone)
                block = (char *)r->data[p->stores[at->into].address] + first * p->stores[at->into].bytes;
            load_block(p, at, memory, block, f, first, n);
            if (!full)
                pad_block(p, at, f, n, padded);
        }
    }
    for (int i = 0; i < p->nstores; i++) {
        const tap__pw_operand *at = &p->stores[i];
        if (at->direct && p->slots[at->slot].kind == TAP_PW_COMPUTED)
            f->slots[at->slot] = full ? (char *)r->data[at->address] + first * at->bytes
                                      : f->scratch + p->place[at->slot];
    }
    int next = 0;
    for (int s = -1; s < p->nsteps; s++) {
        if (s >= 0)
            run_instruction(r, f, s, n, padded);
        for (; next < p->nstores && p->stores[next].after == s; next++) {
            const tap__pw_operand *at = &p->stores[next];
            char *memory = r->data[at->address];
            /* where it already is: nothing is left to do */
            if (!at->direct || f->slots[at->slot] != memory + first * at->bytes)
                store_block(p, at, memory, f, first, n);
        }
    }
}

static void run_blocks(void *user, int64_t begin, int64_t end)
{
    const run *r = user;
    const tap__pw *p = r->p;
    frame f;
    int mine = start_frame(r, &f);
    for (int64_t b = begin; b < end; b++) {
        int64_t first = b * p->block, n = p->count - first < p->block ? p->count - first : p->block;
        /* the last few elements apart, so that all others can stay where they are */
        int64_t whole = n & -(int64_t)TAP_PW_LANES;
        if (p->nrepeats > 0 || whole == 0)
            whole = n;
        run_block(r, &f, first, whole, b == begin);
        if (whole < n)
            run_block(r, &f, first + whole, n - whole, false);
    }
    end_frame(r, mine);
}

static void load_tile(const tap__pw *p, const tap__pw_operand *at, const char *memory, frame *f, int64_t rows, int64_t columns)
{
    char *block = f->scratch + p->place[at->slot], *stage = f->scratch + p->stage;
    f->slots[at->slot] = block;
    p->kernels->gather_tile(at->half ? stage : block, memory, at->bytes, rows, columns, at->row_stride, at->column_stride);
    if (at->half)
        widen(p, at, block, stage, rows * columns);
}

static void store_tile(const tap__pw *p, const tap__pw_operand *at, char *memory, frame *f, int64_t rows, int64_t columns)
{
    char *block = f->slots[at->slot], *stage = f->scratch + p->stage;
    if (at->half) {
        narrow(p, at, stage, block, rows * columns);
        block = stage;
    }
    p->kernels->scatter_tile(memory, block, at->bytes, rows, columns, at->row_stride, at->column_stride);
}

/* Offset in elements of a tile: of its corner and of the outer dimensions. */
static int64_t tile_offset(const tap__pw_operand *at, int64_t row, int64_t column, const int64_t *outer, int nouter)
{
    int64_t offset = row * at->row_stride + column * at->column_stride;
    for (int d = 0; d < nouter; d++)
        offset += outer[d] * at->outer_stride[d];
    return offset;
}

static void run_tile(const run *r, frame *f, int64_t tile)
{
    const tap__pw *p = r->p;
    int64_t across = (p->columns + p->tile_columns - 1) / p->tile_columns;
    int64_t down = (p->rows + p->tile_rows - 1) / p->tile_rows, outer[TAP_ENGINE_MAX_NDIM];
    /* down a column of tiles first: the rows that lie across are then read on and on */
    int64_t row = tile % down * p->tile_rows, column = tile / down % across * p->tile_columns;
    tile /= down * across;
    for (int d = 0; d < p->nouter; d++) {
        outer[d] = tile % p->outer_size[d];
        tile /= p->outer_size[d];
    }
    int64_t rows = p->rows - row < p->tile_rows ? p->rows - row : p->tile_rows;
    int64_t columns = p->columns - column < p->tile_columns ? p->columns - column : p->tile_columns;
    int64_t n = rows * columns, padded = (n + TAP_PW_LANES - 1) & -(int64_t)TAP_PW_LANES;
    for (int i = 0; i < p->nloads; i++) {
        const tap__pw_operand *at = &p->loads[i];
        int64_t offset = tile_offset(at, row, column, outer, p->nouter);
        load_tile(p, at, (const char *)r->data[at->address] + offset * at->bytes, f, rows, columns);
        if (padded > n)
            pad_block(p, at, f, n, padded);
    }
    int next = 0;
    for (int s = -1; s < p->nsteps; s++) {
        if (s >= 0)
            run_instruction(r, f, s, n, padded);
        for (; next < p->nstores && p->stores[next].after == s; next++) {
            const tap__pw_operand *at = &p->stores[next];
            int64_t offset = tile_offset(at, row, column, outer, p->nouter);
            store_tile(p, at, (char *)r->data[at->address] + offset * at->bytes, f, rows, columns);
        }
    }
}

static void run_tiles(void *user, int64_t begin, int64_t end)
{
    const run *r = user;
    frame f;
    int mine = start_frame(r, &f);
    for (int64_t tile = begin; tile < end; tile++)
        run_tile(r, &f, tile);
    end_frame(r, mine);
}

static void run_all(run *r)
{
    const tap__pw *p = r->p;
    int64_t units = units_of(p);
    if (units <= p->grain)
        (p->tiled ? run_tiles : run_blocks)(r, 0, units);
    else
        tap__parallel(p->threads, units, p->grain, TAP_ANY_LENGTH, p->tiled ? run_tiles : run_blocks, r);
}

tap_status tap__pw_run(const tap__pw *p, void *const *data, tap_error *err)
{
    _Atomic(const char *) by_zero = NULL;
    _Atomic uint64_t busy = 0;
    run r = {.p = p, .data = data, .by_zero = &by_zero, .busy = &busy};
    if (p->count == 0)
        return TAP_OK;
    for (int i = 0; i < p->nloads; i++)
        for (int k = 0; k < p->nstores; k++)
            if (data[i] == data[p->nloads + k])
                r.aliased |= 1u << i;
    run_all(&r);
    const char *node = atomic_load(&by_zero);
    return node ? tap_fail(err, TAP_E_UNSUPPORTED, "ZeroDivisionError: %s divides an integer by zero", node) : TAP_OK;
}
