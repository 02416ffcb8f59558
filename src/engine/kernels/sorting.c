/* sorting.c - sort, topk, median and searchsorted along one dimension. An element becomes an unsigned key whose order
 * is the element's (NaN above everything, -0 equal to 0, turned over for descending order) together with its place, so
 * that equal elements keep their order; long rows are sorted digit by digit, short ones by insertion. */
#include "engine/kernels/move.h"
#include "engine/kernels/number.h"
#include "engine/kernels/offsets.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/shape_view.h"

#include <string.h>

enum { INSERTION = 40, WIDE_FROM = 4096, HEAP_MAX = 4096 };

/* Keys of at most 32 bits share a word with their place: key << 32 | place. Wider ones are apart. */
typedef struct item {
    uint64_t key, place;
} item;

typedef struct rows {
    const tap__call *call;
    int dim, ndim;
    int64_t count, length;           /* of rows; of one row */
    int64_t size[TAP_ENGINE_MAX_NDIM];
    int64_t in_stride[TAP_ENGINE_MAX_NDIM], out_stride[TAP_ENGINE_MAX_NDIM], index_stride[TAP_ENGINE_MAX_NDIM];
    int64_t in_step, out_step, index_step; /* along the row, elements */
    bool descending, wide;
    bool middle, ignore_nan;         /* the median alone */
    int64_t keep;                    /* how many of each row are wanted */
    int slots;
    size_t slot_bytes;
} rows;

/* --------------------------------------------------------------------------------------------------------- keys */

static inline uint64_t key_f32(uint32_t bits)
{
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return UINT32_MAX;
    bits = bits == 0x80000000u ? 0 : bits;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static inline uint64_t key_f64(uint64_t bits)
{
    const uint64_t sign = UINT64_C(1) << 63;
    if ((bits & ~sign) > UINT64_C(0x7FF0000000000000))
        return UINT64_MAX;
    bits = bits == sign ? 0 : bits;
    return bits >> 63 ? ~bits : bits | sign;
}

static inline uint64_t key_half(uint16_t bits, unsigned infinity)
{
    if ((bits & 0x7FFFu) > infinity)
        return 0xFFFF;
    bits = bits == 0x8000u ? 0 : bits;
    return bits >> 15 ? (uint16_t)~bits : bits | 0x8000u;
}

/* How many low bits of the keys of a dtype mean something; 0: it has none. */
static int key_bits(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (info->kind == 'C' || (info->kind == 'F' && info->bytes == 1))
        return 0;
    return 8 * info->bytes;
}

#define FILL(type, expression)                                                                                       \
    for (int64_t i = 0; i < count; i++) {                                                                            \
        type v = ((const type *)from)[i * step];                                                                     \
        keys[i] = (expression) ^ flip;                                                                               \
    }                                                                                                                \
    break;

static void make_keys(tap_dtype dtype, const void *from, int64_t step, int64_t count, bool descending, uint64_t *keys)
{
    int bits = key_bits(dtype);
    uint64_t flip = !descending ? 0 : bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    switch (dtype) {
    case TAP_BOOL: FILL(uint8_t, (uint64_t)(v != 0))
    case TAP_U8: FILL(uint8_t, v)
    case TAP_I8: FILL(uint8_t, v ^ 0x80u)
    case TAP_U16: FILL(uint16_t, v)
    case TAP_I16: FILL(uint16_t, v ^ 0x8000u)
    case TAP_U32: FILL(uint32_t, v)
    case TAP_I32: FILL(uint32_t, v ^ 0x80000000u)
    case TAP_U64: FILL(uint64_t, v)
    case TAP_I64: FILL(uint64_t, v ^ UINT64_C(0x8000000000000000))
    case TAP_F16: FILL(uint16_t, key_half(v, 0x7C00))
    case TAP_BF16: FILL(uint16_t, key_half(v, 0x7F80))
    case TAP_F32: FILL(uint32_t, key_f32(v))
    default: FILL(uint64_t, key_f64(v))
    }
}

/* ------------------------------------------------------------------------------------------------------ sorting */

static void insert_narrow(uint64_t *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        uint64_t value = values[i];
        int64_t at = i;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

static void insert_wide(item *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        item value = values[i];
        int64_t at = i;
        for (; at > 0 && values[at - 1].key > value.key; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

enum { MAX_DIGITS = 8, MAX_BUCKETS = 2048 };

/* Digit by digit from the lowest; a digit that all keys share is passed over. Returns where the result is. */
#define RADIX(name, type, key_of)                                                                                    \
    static type *name(type *values, type *other, int64_t count, int first_bit, int bits)                             \
    {                                                                                                                \
        int width = count < WIDE_FROM ? 8 : 11, digits = (bits + width - 1) / width;                                 \
        uint32_t buckets[MAX_BUCKETS];                                                                               \
        for (int digit = 0; digit < digits; digit++) {                                                               \
            int shift = first_bit + digit * width;                                                                   \
            int take = bits - digit * width < width ? bits - digit * width : width;                                  \
            uint64_t mask = (UINT64_C(1) << take) - 1;                                                               \
            memset(buckets, 0, sizeof buckets[0] << take);                                                           \
            for (int64_t i = 0; i < count; i++)                                                                      \
                buckets[key_of(values[i]) >> shift & mask]++;                                                        \
            if (buckets[key_of(values[0]) >> shift & mask] == (uint64_t)count)                                       \
                continue;                                                                                            \
            uint32_t sum = 0;                                                                                        \
            for (uint64_t i = 0; i <= mask; i++) {                                                                   \
                uint32_t here = buckets[i];                                                                          \
                buckets[i] = sum;                                                                                    \
                sum += here;                                                                                         \
            }                                                                                                        \
            for (int64_t i = 0; i < count; i++)                                                                      \
                other[buckets[key_of(values[i]) >> shift & mask]++] = values[i];                                     \
            type *swap = values;                                                                                     \
            values = other;                                                                                          \
            other = swap;                                                                                            \
        }                                                                                                            \
        return values;                                                                                               \
    }
#define KEY_WORD(value) (value)
#define KEY_ITEM(value) ((value).key)
RADIX(radix_narrow, uint64_t, KEY_WORD)
RADIX(radix_wide, item, KEY_ITEM)

static const uint64_t *sort_narrow(uint64_t *values, uint64_t *other, int64_t count, int bits)
{
    if (count > INSERTION)
        return radix_narrow(values, other, count, 32, bits);
    insert_narrow(values, count);
    return values;
}

static const item *sort_wide(item *values, item *other, int64_t count)
{
    if (count > INSERTION)
        return radix_wide(values, other, count, 0, 64);
    insert_wide(values, count);
    return values;
}

/* The smallest `keep` of the values, in any order, into heap: the largest of them is on top. */
#define SELECT(name, type, less)                                                                                     \
    static void sift_##name(type *heap, int64_t count, int64_t at, type value)                                       \
    {                                                                                                                \
        for (int64_t child; (child = 2 * at + 1) < count; at = child) {                                              \
            if (child + 1 < count && less(heap[child], heap[child + 1]))                                             \
                child++;                                                                                             \
            if (!less(value, heap[child]))                                                                           \
                break;                                                                                               \
            heap[at] = heap[child];                                                                                  \
        }                                                                                                            \
        heap[at] = value;                                                                                            \
    }                                                                                                                \
    static void select_##name(type *values, int64_t count, int64_t keep)                                             \
    {                                                                                                                \
        for (int64_t i = keep / 2 - 1; i >= 0; i--)                                                                  \
            sift_##name(values, keep, i, values[i]);                                                                 \
        for (int64_t i = keep; i < count; i++)                                                                       \
            if (less(values[i], values[0]))                                                                          \
                sift_##name(values, keep, 0, values[i]);                                                             \
    }
#define LESS_WORD(a, b) ((a) < (b))
#define LESS_ITEM(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
SELECT(narrow, uint64_t, LESS_WORD)
SELECT(wide, item, LESS_ITEM)

/* Puts the value of rank k into its place. */
#define NTH(name, type, less)                                                                                        \
    static type nth_##name(type *values, int64_t count, int64_t k)                                                   \
    {                                                                                                                \
        int64_t low = 0, high = count - 1;                                                                           \
        while (low < high) {                                                                                         \
            type a = values[low], b = values[low + (high - low) / 2], c = values[high];                              \
            type pivot = less(a, b) ? (less(b, c) ? b : less(a, c) ? c : a) : (less(a, c) ? a : less(b, c) ? c : b);  \
            int64_t i = low, j = high;                                                                               \
            while (i <= j) {                                                                                         \
                while (less(values[i], pivot))                                                                       \
                    i++;                                                                                             \
                while (less(pivot, values[j]))                                                                       \
                    j--;                                                                                             \
                if (i > j)                                                                                           \
                    break;                                                                                           \
                type swap = values[i];                                                                               \
                values[i++] = values[j];                                                                             \
                values[j--] = swap;                                                                                  \
            }                                                                                                        \
            if (k <= j)                                                                                              \
                high = j;                                                                                            \
            else if (k >= i)                                                                                         \
                low = i;                                                                                             \
            else                                                                                                     \
                break;                                                                                               \
        }                                                                                                            \
        return values[k];                                                                                            \
    }
NTH(narrow, uint64_t, LESS_WORD)
NTH(wide, item, LESS_ITEM)

/* --------------------------------------------------------------------------------------------------------- rows */

static void insert_all_wide(item *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        item value = values[i];
        int64_t at = i;
        for (; at > 0 && LESS_ITEM(value, values[at - 1]); at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

/* heap order is no order: the places decide between equal keys */
static const item *sort_selected_wide(item *values, item *other, int64_t count)
{
    if (count <= INSERTION) {
        insert_all_wide(values, count);
        return values;
    }
    for (int64_t i = 0; i < count; i++)
        values[i] = (item){values[i].place, values[i].key};
    item *by_place = radix_wide(values, other, count, 0, 64);
    item *rest = by_place == values ? other : values;
    for (int64_t i = 0; i < count; i++)
        by_place[i] = (item){by_place[i].place, by_place[i].key};
    return radix_wide(by_place, rest, count, 0, 64);
}

static void store_row(const rows *self, const void *from, char *values, int64_t *indices, int64_t at, int64_t place)
{
    size_t bytes = tap__item_bytes(self->call->in[0].dtype);
    const char *source = (const char *)from + place * self->in_step * (int64_t)bytes;
    char *target = values + at * self->out_step * (int64_t)bytes;
    switch (bytes) {
    case 1: *(uint8_t *)target = *(const uint8_t *)source; break;
    case 2: *(uint16_t *)target = *(const uint16_t *)source; break;
    case 4: *(uint32_t *)target = *(const uint32_t *)source; break;
    default: *(uint64_t *)target = *(const uint64_t *)source;
    }
    indices[at * self->index_step] = place;
}

/* The rank of the median; -1 - place: the first NaN is the answer. */
static int64_t middle_rank(const rows *self, const uint64_t *keys)
{
    tap_dtype dtype = self->call->in[0].dtype;
    int64_t count = self->length, numbers = count, first = -1;
    uint64_t nan = UINT64_MAX >> (64 - key_bits(dtype));
    for (int64_t i = 0; tap_dtype_describe(dtype)->kind == 'F' && i < count; i++) {
        numbers -= keys[i] == nan;
        first = first < 0 && keys[i] == nan ? i : first;
    }
    if (numbers == 0 || (numbers < count && !self->ignore_nan))
        return -1 - first;
    return (numbers - 1) / 2;
}

static void median_row(const rows *self, const void *from, char *values, int64_t *indices, char *room)
{
    int64_t count = self->length;
    item *items = (item *)room;
    uint64_t *words = (uint64_t *)room, *keys = self->wide ? (uint64_t *)(items + count) : words;
    make_keys(self->call->in[0].dtype, from, self->in_step, count, false, keys);
    int64_t rank = middle_rank(self, keys), place = -1 - rank;
    if (rank >= 0 && self->wide) {
        for (int64_t i = 0; i < count; i++)
            items[i] = (item){keys[i], (uint64_t)i};
        place = (int64_t)nth_wide(items, count, rank).place;
    } else if (rank >= 0) {
        for (int64_t i = 0; i < count; i++)
            words[i] = keys[i] << 32 | (uint64_t)i;
        place = (int64_t)(nth_narrow(words, count, rank) & UINT32_MAX);
    }
    store_row(self, from, values, indices, 0, place);
}

static void sort_row(const rows *self, const void *from, char *values, int64_t *indices, char *room)
{
    tap_dtype dtype = self->call->in[0].dtype;
    int64_t count = self->length, keep = self->keep;
    bool heap = keep < count && keep <= HEAP_MAX && keep * 8 <= count;
    uint64_t *keys = (uint64_t *)room;
    if (!self->wide) {
        uint64_t *other = keys + count;
        make_keys(dtype, from, self->in_step, count, self->descending, keys);
        for (int64_t i = 0; i < count; i++)
            keys[i] = keys[i] << 32 | (uint64_t)i;
        if (heap)
            select_narrow(keys, count, keep);
        int64_t sorted = heap ? keep : count;
        /* heap order is no order: the places are digits too */
        const uint64_t *result = heap && keep > INSERTION ? radix_narrow(keys, other, sorted, 0, 32 + key_bits(dtype))
                                                          : sort_narrow(keys, other, sorted, key_bits(dtype));
        for (int64_t i = 0; i < keep; i++)
            store_row(self, from, values, indices, i, (int64_t)(result[i] & UINT32_MAX));
        return;
    }
    item *items = (item *)room, *other = items + count;
    keys = (uint64_t *)other;
    make_keys(dtype, from, self->in_step, count, self->descending, keys);
    for (int64_t i = 0; i < count; i++)
        items[i] = (item){keys[i], (uint64_t)i};
    if (heap)
        select_wide(items, count, keep);
    const item *result = heap ? sort_selected_wide(items, other, keep) : sort_wide(items, other, count);
    for (int64_t i = 0; i < keep; i++)
        store_row(self, from, values, indices, i, (int64_t)result[i].place);
}

typedef struct rows_run {
    const rows *rows;
    const char *in;
    char *values, *room;
    int64_t *indices;
} rows_run;

/* One slot of scratch, and every row that is its turn. */
static void sort_slot(void *user, int64_t begin, int64_t end)
{
    const rows_run *self = user;
    const rows *all = self->rows;
    int64_t bytes = (int64_t)tap__item_bytes(all->call->in[0].dtype);
    for (int64_t slot = begin; slot < end; slot++)
        for (int64_t row = slot * all->count / all->slots; row < (slot + 1) * all->count / all->slots; row++) {
            int64_t rest = row, in = 0, out = 0, index = 0;
            for (int i = all->ndim - 1; i >= 0; i--) {
                int64_t at = rest % all->size[i];
                rest /= all->size[i];
                in += at * all->in_stride[i];
                out += at * all->out_stride[i];
                index += at * all->index_stride[i];
            }
            (all->middle ? median_row : sort_row)(all, self->in + in * bytes, self->values + out * bytes,
                                                  self->indices + index, self->room + (size_t)slot * all->slot_bytes);
        }
}

/* keeps: the outputs have the dimension too. */
static tap_status make_rows(tap__call *call, const rows *wanted, bool keeps, tap_error *err)
{
    const tap__operand *in = &call->in[0], *values = &call->out[0], *indices = &call->out[1];
    rows *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    *self = *wanted;
    self->count = 1;
    self->wide = key_bits(in->dtype) == 64;
    int64_t length = self->length;
    for (int i = 0; i < in->ndim; i++) {
        int out = keeps || i < self->dim ? i : i - 1;
        if (i == self->dim) {
            self->in_step = in->stride[i];
            self->out_step = keeps ? values->stride[i] : 0;
            self->index_step = keeps ? indices->stride[i] : 0;
            continue;
        }
        self->size[self->ndim] = in->size[i];
        self->in_stride[self->ndim] = in->stride[i];
        self->out_stride[self->ndim] = values->stride[out];
        self->index_stride[self->ndim++] = indices->stride[out];
        self->count *= in->size[i];
    }
    self->slots = call->threads < self->count ? call->threads : (int)self->count;
    if (self->count * length < 8192 || self->slots < 1)
        self->slots = 1;
    self->slot_bytes = (size_t)length * 2 * (self->wide ? sizeof(item) : sizeof(uint64_t));
    self->slot_bytes = (self->slot_bytes + 63) / 64 * 64;
    call->scratch = self->slot_bytes * (size_t)self->slots;
    call->state = self;
    return TAP_OK;
}

static tap_status prepare_rows(tap__call *call, int64_t keep, bool descending, tap_error *err)
{
    const tap__operand *in = &call->in[0], *values = &call->out[0], *indices = &call->out[1];
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    int dim;
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, in->ndim, &dim, err));
    int64_t length = in->ndim ? in->size[dim] : 1;
    if (values->dtype != in->dtype || indices->dtype != TAP_I64 || !key_bits(in->dtype) || length > UINT32_MAX)
        return tap__refuse(call, err);
    memcpy(sizes, in->size, sizeof sizes);
    keep = keep < 0 ? length : keep;
    if (in->ndim)
        sizes[dim] = keep;
    TAP_TRY(tap__expect_sizes(call, values, in->ndim, sizes, err));
    TAP_TRY(tap__expect_sizes(call, indices, in->ndim, sizes, err));
    const rows wanted = {.call = call, .dim = dim, .length = length, .keep = keep, .descending = descending};
    return make_rows(call, &wanted, true, err);
}

static tap_status prepare_sort(tap__call *call, tap_error *err)
{
    return prepare_rows(call, -1, tap__call_attr(call, "descending")->i != 0, err);
}

static tap_status prepare_topk(tap__call *call, tap_error *err)
{
    return prepare_rows(call, tap__call_attr(call, "k")->i, tap__call_attr(call, "largest")->i != 0, err);
}

static tap_status run_rows(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    const rows *self = call->state;
    rows_run run = {self, data[0], data[1], data[3], data[2]};
    if (self->count > 0 && self->length > 0)
        tap__parallel(call->threads, self->slots, 1, TAP_ANY_LENGTH, sort_slot, &run);
    return TAP_OK;
}

static void release_rows(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

const tap__kernel tap__kernel_sort = {prepare_sort, run_rows, release_rows};
const tap__kernel tap__kernel_topk = {prepare_topk, run_rows, release_rows};

static tap_status prepare_median(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0], *values = &call->out[0], *indices = &call->out[1];
    bool keepdim = tap__call_attr(call, "keepdim")->i != 0;
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    int dim, ndim = 0;
    TAP_TRY(tap__dim_place(call, tap__call_attr(call, "dim")->i, in->ndim, &dim, err));
    int64_t length = in->ndim ? in->size[dim] : 1;
    if (values->dtype != in->dtype || indices->dtype != TAP_I64 || !key_bits(in->dtype) || length > UINT32_MAX ||
        length < 1)
        return tap__refuse(call, err);
    for (int i = 0; i < in->ndim; i++)
        if (keepdim || i != dim)
            sizes[ndim++] = i == dim ? 1 : in->size[i];
    TAP_TRY(tap__expect_sizes(call, values, ndim, sizes, err));
    TAP_TRY(tap__expect_sizes(call, indices, ndim, sizes, err));
    const rows wanted = {.call = call, .dim = dim, .length = length, .keep = 1, .middle = true,
                         .ignore_nan = tap__call_attr(call, "ignore_nan")->i != 0};
    return make_rows(call, &wanted, keepdim, err);
}
const tap__kernel tap__kernel_median = {prepare_median, run_rows, release_rows};

/* ---------------------------------------------------------------------------------------------------- searching */

typedef struct search {
    const tap__call *call;
    const void *sequence, *values;
    const int64_t *sorter;
    void *out;
    bool right;
    int sequence_input, values_input;
} search;

/* Where a value belongs: the first place whose element is not below it (left), or above it (right). A NaN belongs
 * behind everything. */
#define SEARCH(name, stored, type, load, store)                                                                      \
    static int64_t search_##name(const search *self, int64_t row, int64_t row_sorter, int64_t step,                  \
                                 int64_t sorter_step, int64_t length, int64_t value_at)                              \
    {                                                                                                                \
        const stored *from = (const stored *)self->sequence + row;                                                   \
        type value = load(((const stored *)self->values)[value_at]);                                                 \
        int64_t low = 0, high = length;                                                                              \
        while (low < high) {                                                                                         \
            int64_t middle = low + (high - low) / 2;                                                                 \
            int64_t place = self->sorter ? self->sorter[row_sorter + middle * sorter_step] : middle;                 \
            type here = load(from[place * step]);                                                                    \
            if (self->right ? !(here > value) : !(here >= value))                                                    \
                low = middle + 1;                                                                                    \
            else                                                                                                     \
                high = middle;                                                                                       \
        }                                                                                                            \
        return low;                                                                                                  \
    }
TAP__NUMBERS_INT(SEARCH)
TAP__NUMBERS_FLOAT(SEARCH)

typedef int64_t (*search_fn)(const search *self, int64_t row, int64_t row_sorter, int64_t step, int64_t sorter_step,
                             int64_t length, int64_t value_at);

static search_fn search_of(tap_dtype dtype)
{
    switch (dtype) {
#define CASE(name, ...) case TAP_##name: return search_##name;
        TAP__NUMBERS_INT(CASE)
        TAP__NUMBERS_FLOAT(CASE)
    default: return NULL;
    }
}

static void search_part(void *user, int64_t begin, int64_t end)
{
    const search *self = user;
    const tap__operand *sequence = &self->call->in[self->sequence_input], *out = &self->call->out[0];
    const tap__operand *values = &self->call->in[self->values_input];
    const tap__operand *sorter = self->sorter ? &self->call->in[2] : sequence;
    int last = sequence->ndim - 1;
    bool shared = sequence->ndim == 1;
    search_fn find = search_of(sequence->dtype);
    for (int64_t at = begin; at < end; at++) {
        int64_t rest = at, row = 0, row_sorter = 0, value_at = 0, out_at = 0;
        for (int i = out->ndim - 1; i >= 0; i--) {
            int64_t place = rest % out->size[i];
            rest /= out->size[i];
            value_at += place * values->stride[i];
            out_at += place * out->stride[i];
            if (!shared && i < last) {
                row += place * sequence->stride[i];
                row_sorter += place * sorter->stride[i];
            }
        }
        int64_t found = find(self, row, row_sorter, sequence->stride[last], sorter->stride[last], sequence->size[last],
                             value_at);
        if (out->dtype == TAP_I32)
            ((int32_t *)self->out)[out_at] = (int32_t)found;
        else
            ((int64_t *)self->out)[out_at] = found;
    }
}

static tap_status prepare_search(tap__call *call, int sequence_input, int values_input, tap_error *err)
{
    const tap__operand *sequence = &call->in[sequence_input], *values = &call->in[values_input];
    tap_dtype out = call->out[0].dtype;
    if (sequence->dtype != values->dtype || !search_of(sequence->dtype) || sequence->ndim < 1 ||
        (out != TAP_I32 && out != TAP_I64))
        return tap__refuse(call, err);
    if (sequence->ndim > 1) {
        if (values->ndim != sequence->ndim)
            return tap__refuse(call, err);
        for (int i = 0; i < sequence->ndim - 1; i++)
            if (values->size[i] != sequence->size[i])
                return tap__refuse(call, err);
    }
    return tap__expect_sizes(call, &call->out[0], values->ndim, values->size, err);
}

static tap_status prepare_searchsorted(tap__call *call, tap_error *err)
{
    const tap__operand *sequence = &call->in[0], *sorter = &call->in[2];
    if (sorter->dtype != TAP_DTYPE_NONE) {
        if (sorter->dtype != TAP_I64)
            return tap__refuse(call, err);
        TAP_TRY(tap__expect_sizes(call, sorter, sequence->ndim, sequence->size, err));
    }
    return prepare_search(call, 0, 1, err);
}

/* A sorter must name places of its row. */
static tap_status check_sorter(const tap__call *call, const int64_t *sorter, tap_error *err)
{
    const tap__operand *operand = &call->in[2];
    int64_t count = tap__operand_count(operand), size = operand->size[operand->ndim - 1];
    for (int64_t position = 0; position < count; position++) {
        int64_t rest = position, at = 0;
        for (int i = operand->ndim - 1; i >= 0; i--) {
            at += rest % operand->size[i] * operand->stride[i];
            rest /= operand->size[i];
        }
        if (sorter[at] < 0 || sorter[at] >= size)
            return tap__bad_index(call, sorter[at], operand->ndim - 1, size, err);
    }
    return TAP_OK;
}

static tap_status run_searchsorted(const tap__call *call, void *const *data, tap_error *err)
{
    if (call->in[2].dtype != TAP_DTYPE_NONE)
        TAP_TRY(check_sorter(call, data[2], err));
    const char *side = tap__call_attr(call, "side")->s;
    bool right = tap__call_attr(call, "right")->i != 0 || (side && strcmp(side, "right") == 0);
    search self = {call, data[0], data[1], call->in[2].dtype != TAP_DTYPE_NONE ? data[2] : NULL, data[3], right, 0, 1};
    tap__parallel(call->threads, tap__operand_count(&call->out[0]), 2048, TAP_ANY_LENGTH, search_part, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_searchsorted = {prepare_searchsorted, run_searchsorted, NULL};

static tap_status prepare_bucketize(tap__call *call, tap_error *err)
{
    if (call->in[1].ndim != 1)
        return tap__refuse(call, err);
    return prepare_search(call, 1, 0, err);
}

static tap_status run_bucketize(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    search self = {call, data[1], data[0], NULL, data[2], tap__call_attr(call, "right")->i != 0, 1, 0};
    tap__parallel(call->threads, tap__operand_count(&call->out[0]), 2048, TAP_ANY_LENGTH, search_part, &self);
    return TAP_OK;
}
const tap__kernel tap__kernel_bucketize = {prepare_bucketize, run_bucketize, NULL};
