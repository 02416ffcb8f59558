/* offsets.c - see offsets.h. */
#include "engine/kernels/offsets.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

tap_status tap__bad_index(const tap__call *call, int64_t index, int dim, int64_t size, tap_error *err)
{
    return tap_fail(err, TAP_E_INVALID, "%s: index %" PRId64 " is out of bounds for dimension %d with size %" PRId64,
                    call->name, index, dim, size);
}

tap_status tap__indexes_add(const tap__call *call, tap__indexes *all, int input, int dim, int64_t size, int64_t step,
                            tap_error *err)
{
    const tap__operand *operand = &call->in[input];
    if ((operand->dtype != TAP_I64 && operand->dtype != TAP_I32) || operand->is_number)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: no kernel for operands like these; the framework runs it",
                        call->name);
    int ndim = operand->ndim > all->ndim ? operand->ndim : all->ndim;
    int64_t common[TAP_ENGINE_MAX_NDIM];
    for (int i = 0; i < ndim; i++) {
        int old = i - (ndim - all->ndim), new = i - (ndim - operand->ndim);
        int64_t a = old < 0 ? 1 : all->size[old], b = new < 0 ? 1 : operand->size[new];
        if (a != b && a != 1 && b != 1)
            return tap_fail(err, TAP_E_INVALID, "%s: the sizes of its operands do not fit", call->name);
        common[i] = a == 1 ? b : a;
    }
    all->ndim = ndim;
    all->positions = 1;
    for (int i = 0; i < ndim; i++) {
        all->size[i] = common[i];
        all->positions *= common[i];
    }
    all->list[all->count++] = (tap__index){.input = input, .dim = dim, .size = size, .step = step};
    return TAP_OK;
}

void tap__indexes_ready(const tap__call *call, tap__indexes *all)
{
    for (int k = 0; k < all->count; k++) {
        const tap__operand *operand = &call->in[all->list[k].input];
        for (int i = 0; i < all->ndim; i++) {
            int at = i - (all->ndim - operand->ndim);
            all->list[k].stride[i] = at < 0 || operand->size[at] == 1 ? 0 : operand->stride[at];
        }
    }
}

typedef struct filling {
    const tap__call *call;
    const tap__indexes *all;
    void *const *data;
    int64_t *table;
    _Atomic int64_t bad; /* position * TAP_MAX_INDEXES + which, the smallest */
} filling;

static void report(filling *self, int64_t position, int which)
{
    int64_t mine = position * TAP_MAX_INDEXES + which, old = atomic_load(&self->bad);
    while (mine < old && !atomic_compare_exchange_weak(&self->bad, &old, mine))
        continue;
}

/* The element of an index tensor at a row-major position of the common sizes. */
static int64_t element_of(const tap__indexes *all, const tap__index *index, int64_t position)
{
    int64_t at = 0;
    for (int i = all->ndim - 1; i >= 0; i--) {
        at += position % all->size[i] * index->stride[i];
        position /= all->size[i];
    }
    return at;
}

static void fill_line(filling *self, int which, int64_t begin, int64_t count, bool first)
{
    const tap__indexes *all = self->all;
    const tap__index *index = &all->list[which];
    const void *values = self->data[index->input];
    bool wide = self->call->in[index->input].dtype == TAP_I64;
    int64_t at = element_of(all, index, begin), stride = all->ndim ? index->stride[all->ndim - 1] : 0;
    int64_t size = index->size, step = index->step, low = all->no_negative ? 0 : -size;
    int64_t *table = self->table + begin;
    for (int64_t i = 0; i < count; i++) {
        int64_t value = tap__index_load(values, wide, at + i * stride);
        if (value < low || value >= size) {
            report(self, begin + i, which);
            return;
        }
        int64_t offset = (value < 0 ? value + size : value) * step;
        table[i] = first ? offset : table[i] + offset;
    }
}

static void fill_part(void *user, int64_t begin, int64_t end)
{
    filling *self = user;
    int64_t row = self->all->ndim ? self->all->size[self->all->ndim - 1] : 1;
    while (begin < end) {
        int64_t left = row - begin % row, count = left < end - begin ? left : end - begin;
        for (int k = 0; k < self->all->count; k++)
            fill_line(self, k, begin, count, k == 0);
        begin += count;
    }
}

tap_status tap__indexes_table(const tap__call *call, const tap__indexes *all, void *const *data, int64_t *table,
                              tap_error *err)
{
    filling self = {.call = call, .all = all, .data = data, .table = table};
    atomic_init(&self.bad, INT64_MAX);
    tap__parallel(call->threads, all->positions, 16384, TAP_ANY_LENGTH, fill_part, &self);
    int64_t bad = atomic_load(&self.bad);
    if (bad == INT64_MAX)
        return TAP_OK;
    const tap__index *index = &all->list[bad % TAP_MAX_INDEXES];
    int64_t at = element_of(all, index, bad / TAP_MAX_INDEXES);
    bool wide = call->in[index->input].dtype == TAP_I64;
    return tap__bad_index(call, tap__index_load(data[index->input], wide, at), index->dim, index->size, err);
}
