/* pointwise_geometry.c - the order in which a chain walks over memory, and how that is cut. Blocks are runs of elements
 * in the order of the first store's memory. Where an operand lies across it (a transposed one), blocks are tiles of two
 * dimensions instead, so that each line of memory is used whole. */
#include "engine/kernels/pointwise_program.h"

enum {
    FIRST_LEVEL = 24 * 1024, /* bytes of blocks that stay in the cache */
    MIN_BLOCK = 64,          /* elements */
    REPEATED = 1024          /* of a block with values that repeat */
};

typedef struct space {
    int ndim;                            /* innermost first from here on */
    int64_t size[TAP_ENGINE_MAX_NDIM];
    int noperands;
    int64_t (*stride)[TAP_ENGINE_MAX_NDIM]; /* per tap__pw_operand */
} space;

static int64_t broadcast_stride(const tap__operand *from, int ndim, int dim)
{
    int at = dim - (ndim - from->ndim);
    return at < 0 || from->size[at] == 1 ? 0 : from->stride[at];
}

static void swap_dims(space *s, int a, int b)
{
    int64_t size = s->size[a];
    s->size[a] = s->size[b];
    s->size[b] = size;
    for (int o = 0; o < s->noperands; o++) {
        int64_t stride = s->stride[o][a];
        s->stride[o][a] = s->stride[o][b];
        s->stride[o][b] = stride;
    }
}

/* The dimensions of more than one element, by the strides of operand `leader`, innermost first. */
static void order_dims(space *s, const tap__operand *shape, const tap__operand *const *operands, int leader)
{
    s->ndim = 0;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        if (shape->size[d] == 1)
            continue;
        s->size[s->ndim] = shape->size[d];
        for (int o = 0; o < s->noperands; o++)
            s->stride[o][s->ndim] = broadcast_stride(operands[o], shape->ndim, d);
        s->ndim++;
    }
    for (int i = 1; i < s->ndim; i++)
        for (int k = i; k > 0 && s->stride[leader][k] < s->stride[leader][k - 1]; k--)
            swap_dims(s, k, k - 1);
}

/* Joins neighbours that are one dimension for every operand. */
static void join_dims(space *s)
{
    int last = 0;
    for (int d = 1; d < s->ndim; d++) {
        bool joins = true;
        for (int o = 0; o < s->noperands; o++)
            joins = joins && s->stride[o][d] == s->stride[o][last] * s->size[last];
        if (joins) {
            s->size[last] *= s->size[d];
            continue;
        }
        last++;
        s->size[last] = s->size[d];
        for (int o = 0; o < s->noperands; o++)
            s->stride[o][last] = s->stride[o][d];
    }
    if (s->ndim > 0)
        s->ndim = last + 1;
}

/* One operand's own view, joined as far as it allows. */
static tap__pw_layout own_layout(const space *s, int o)
{
    tap__pw_layout out = {.ndim = 1, .size = {1}, .stride = {0}};
    if (s->ndim == 0)
        return out;
    out.size[0] = s->size[0];
    out.stride[0] = s->stride[o][0];
    for (int d = 1; d < s->ndim; d++) {
        int last = out.ndim - 1;
        if (s->stride[o][d] == out.stride[last] * out.size[last]) {
            out.size[last] *= s->size[d];
            continue;
        }
        out.size[out.ndim] = s->size[d];
        out.stride[out.ndim++] = s->stride[o][d];
    }
    return out;
}

/* The dimension along which operand o lies across the innermost one; 0: it does not. */
static int crossing(const space *s, int o, int bytes)
{
    int best = 0;
    int64_t inner = s->ndim > 0 ? s->stride[o][0] : 0;
    if (s->ndim < 2 || inner * bytes < TAP_PW_LINE || s->size[0] < 4)
        return 0;
    for (int d = 1; d < s->ndim; d++)
        if (s->stride[o][d] > 0 && s->stride[o][d] < s->stride[o][best] && s->size[d] >= 4)
            best = d;
    return best;
}

/* How many elements before the values repeat; 0: they do not within a block. */
static int64_t period(const tap__pw_layout *layout)
{
    if (layout->stride[layout->ndim - 1] != 0)
        return 0;
    int64_t count = 1;
    for (int d = 0; d < layout->ndim - 1; d++) {
        count *= layout->size[d];
        if (count > TAP_PW_MAX_BLOCK)
            return 0;
    }
    return count;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Blocks that are a multiple of a broadcast operand's period see the same values each time. */
static void find_repeats(tap__pw *p)
{
    int64_t unit = TAP_PW_LANES;
    for (int i = 0; i < p->nloads; i++) {
        int64_t every = period(&p->loads[i].layout);
        if (every && common_multiple(unit, every) <= p->block) {
            unit = common_multiple(unit, every);
            p->loads[i].once = true;
            p->nrepeats++;
        }
    }
    /* few of them at a time: what repeats stays in the first level beside what passes by; 4096 numbers did not */
    int64_t most = p->nrepeats ? REPEATED : p->block;
    p->block = p->block < most ? p->block : most;
    p->block = p->block < unit ? unit : p->block / unit * unit;
}

static void set_tiles(tap__pw *p, const space *s, int across)
{
    p->tiled = true;
    p->columns = s->size[0];
    p->rows = s->size[across];
    /* a line of what lies across, and as much as there is room for of the others */
    p->tile_rows = p->block >= 512 ? 16 : 8;
    if (p->tile_rows > p->rows)
        p->tile_rows = p->rows;
    p->tile_columns = p->block / p->tile_rows / 8 * 8;
    if (p->tile_columns > TAP_PW_MAX_TILE)
        p->tile_columns = TAP_PW_MAX_TILE;
    if (p->tile_columns > p->columns)
        p->tile_columns = p->columns;
    p->nouter = 0;
    for (int d = 1; d < s->ndim; d++) {
        if (d == across)
            continue;
        p->outer_size[p->nouter] = s->size[d];
        for (int o = 0; o < s->noperands; o++)
            (o < p->nloads ? &p->loads[o] : &p->stores[o - p->nloads])->outer_stride[p->nouter] = s->stride[o][d];
        p->nouter++;
    }
    for (int o = 0; o < s->noperands; o++) {
        tap__pw_operand *at = o < p->nloads ? &p->loads[o] : &p->stores[o - p->nloads];
        at->row_stride = s->stride[o][across];
        at->column_stride = s->stride[o][0];
    }
}

/* As many elements as fit into the first-level cache for every block that is not the operand's own memory. */
static int64_t choose_block(const tap__pw *p, const uint16_t *block_of, size_t size, bool tiled)
{
    bool elsewhere[TAP_PW_MAX_SLOTS] = {false}, taken[TAP_PW_MAX_SLOTS] = {false};
    size_t count = 0;
    for (int i = 0; i < p->nloads && !tiled; i++)
        elsewhere[p->loads[i].slot] = p->loads[i].direct;
    for (int i = 0; i < p->nstores && !tiled; i++)
        elsewhere[p->stores[i].slot] = p->stores[i].direct && p->slots[p->stores[i].slot].kind == TAP_PW_COMPUTED;
    for (int s = 0; s < p->nslots; s++)
        if (!elsewhere[s] && !taken[block_of[s]]) {
            taken[block_of[s]] = true;
            count++;
        }
    int64_t block = tiled ? TAP_PW_MAX_BLOCK / 16 : TAP_PW_MAX_BLOCK;
    while (block > MIN_BLOCK && (size_t)block * size * count > FIRST_LEVEL)
        block /= 2;
    return block;
}

/* The load whose halves are widened right into the store; -1: none. */
static int widened_by(const tap__pw *p, const tap__pw_operand *store)
{
    for (int i = 0; i < p->nloads; i++)
        if (p->loads[i].slot == store->slot && p->loads[i].half != TAP_PW_NOT_HALF && !p->loads[i].once)
            return i;
    return -1;
}

/* A block is written where the store wants it, once. */
static void settle_direct(tap__pw *p)
{
    for (int i = 0; i < p->nloads; i++)
        p->loads[i].into = -1;
    for (int i = 0; i < p->nstores; i++) {
        tap__pw_operand *at = &p->stores[i];
        int load = p->slots[at->slot].kind == TAP_PW_COMPUTED ? -1 : widened_by(p, at);
        at->direct = at->direct && (p->slots[at->slot].kind == TAP_PW_COMPUTED || load >= 0) && !p->tiled;
        for (int k = 0; k < i; k++)
            if (p->stores[k].slot == at->slot)
                at->direct = false;
        if (at->direct && load >= 0)
            p->loads[load].into = (int16_t)i;
    }
    for (int i = 0; i < p->nloads; i++)
        p->loads[i].direct = p->loads[i].direct && !p->loads[i].once && !p->tiled;
}

static int uses_of(const tap__pw *p, uint16_t slot, int *step)
{
    int uses = 0;
    for (int s = 0; s < p->nsteps; s++)
        for (int k = 0; k < p->steps[s].nsrc; k++)
            if (p->steps[s].src[k] == slot) {
                uses += k == 1 && p->steps[s].fn_line ? 1 : 2; /* others need the block */
                *step = s;
            }
    for (int i = 0; i < p->nstores; i++)
        uses += p->stores[i].slot == slot ? 2 : 0;
    return uses;
}

/* As many elements as a block may have that a line holds a whole number of times; 0: none. */
static int64_t part_of_line(int64_t line, int64_t block)
{
    for (int64_t parts = (line + block - 1) / block; parts > 0 && parts <= line / MIN_BLOCK; parts++)
        if (line % parts == 0 && line / parts % TAP_PW_LANES == 0)
            return line / parts;
    return 0;
}

/* An operand that is one number along a line (a column beside a matrix) need not be spread over a block. */
static void find_lines(tap__pw *p)
{
    for (int i = 0; i < p->nloads && !p->tiled; i++) {
        tap__pw_operand *at = &p->loads[i];
        int step = 0;
        at->line = at->layout.ndim > 1 && at->layout.stride[0] == 0 && !at->once && p->slots[at->slot].type < TAP_PW_c64 &&
                   uses_of(p, at->slot, &step) == 1;
        int64_t part = at->line && p->nrepeats == 0 ? part_of_line(at->layout.size[0], p->block) : 0;
        at->line = part != 0;
        if (!at->line)
            continue;
        p->steps[step].line = (int8_t)i;
        p->block = part;
    }
}

void tap__pw_set_geometry(tap__pw *p, const tap__operand *loads, const tap__operand *stores, const uint16_t *block_of,
                          size_t size)
{
    int64_t strides[TAP_PW_MAX_LOADS + TAP_PW_MAX_STORES][TAP_ENGINE_MAX_NDIM];
    const tap__operand *operands[TAP_PW_MAX_LOADS + TAP_PW_MAX_STORES];
    space s = {.noperands = p->nloads + p->nstores, .stride = strides};
    for (int o = 0; o < s.noperands; o++)
        operands[o] = o < p->nloads ? &loads[o] : &stores[p->stores[o - p->nloads].address - p->nloads];
    order_dims(&s, &stores[0], operands, p->nloads);
    join_dims(&s);
    p->count = 1;
    for (int d = 0; d < s.ndim; d++)
        p->count *= s.size[d];
    int across = 0;
    for (int o = 0; o < s.noperands; o++) {
        tap__pw_operand *at = o < p->nloads ? &p->loads[o] : &p->stores[o - p->nloads];
        at->layout = own_layout(&s, o);
        at->direct = at->half == TAP_PW_NOT_HALF && at->layout.ndim == 1 && (at->layout.stride[0] == 1 || p->count == 1);
        if (!across)
            across = crossing(&s, o, at->bytes);
    }
    across = p->count >= TAP_PW_MAX_TILE ? across : 0;
    p->block = choose_block(p, block_of, size, across != 0);
    if (across)
        set_tiles(p, &s, across);
    else
        find_repeats(p);
    settle_direct(p);
    find_lines(p);
}
