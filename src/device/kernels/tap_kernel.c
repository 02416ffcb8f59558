/* tap_kernel.c - the kernels, in C that is CUDA too. tap_gate reserves room for a group of taps; tap_leaf takes one leaf of it:
 * statistics, hash and snapshot in one pass. cmake/ptx.sh makes tap_kernel.ptx of this file; tests run it natively. Any
 * number of threads and blocks gives the same bytes, counts, extremes and hash. */
#ifdef __CUDA__
#pragma clang force_cuda_host_device begin
#endif
#include "tensor/element.h"
#include "tensor/hash.h"
#ifdef __CUDA__
#pragma clang force_cuda_host_device end
#endif

#include "device/kernels/machine.h"
#include "device/kernels/room.h"

KERNEL tap_gate(tap_k_gate gate);
KERNEL tap_leaf(tap_k_tap tap);

/* ------------------------------------------------------------------------------------------------------------ sums */

static const double DOUBLE_INFINITY = __builtin_inf();

DEVICE void pair_add(tap_k_pair *pair, double x)
{
    double total = pair->high + x, part = total - pair->high;
    pair->low += (pair->high - (total - part)) + (x - part);
    pair->high = total;
}

DEVICE void pair_join(tap_k_pair *pair, tap_k_pair other)
{
    pair_add(pair, other.high);
    pair->low += other.low;
}

DEVICE void wide_add(tap_k_word *sum, tap_k_word low, tap_k_word high)
{
    sum[0] += low;
    sum[1] += high + (sum[0] < low);
}

/* kind: as in tap_dtype_info, which says what min and max hold */
DEVICE void sums_begin(tap_k_sums *s, char kind)
{
    const tap_k_pair nothing = {0, 0};
    s->sum = s->square = s->big_sum = s->big_square = s->small_square = nothing;
    s->nan = s->pos_inf = s->neg_inf = s->zero = s->hash = 0;
    s->int_sum[0] = s->int_sum[1] = s->int_square[0] = s->int_square[1] = 0;
    s->min = kind == 'F' ? tap__bits_of_double(DOUBLE_INFINITY) : kind == 'I' ? ~0ull >> 1 : ~0ull;
    s->max = kind == 'F' ? tap__bits_of_double(-DOUBLE_INFINITY) : kind == 'I' ? ~(~0ull >> 1) : 0;
}

DEVICE void extreme_float(tap_k_sums *s, double low, double high)
{
    if (low < tap__double_of_bits(s->min))
        s->min = tap__bits_of_double(low);
    if (high > tap__double_of_bits(s->max))
        s->max = tap__bits_of_double(high);
}

DEVICE void extreme_integer(tap_k_sums *s, tap_k_word low, tap_k_word high, bool is_signed)
{
    if (is_signed ? (tap_k_number)low < (tap_k_number)s->min : low < s->min)
        s->min = low;
    if (is_signed ? (tap_k_number)high > (tap_k_number)s->max : high > s->max)
        s->max = high;
}

DEVICE void sums_join(tap_k_sums *s, const tap_k_sums *other, char kind)
{
    s->zero += other->zero;
    s->hash += other->hash;
    pair_join(&s->square, other->square);
    if (kind != 'F') {
        extreme_integer(s, other->min, other->max, kind == 'I');
        wide_add(s->int_sum, other->int_sum[0], other->int_sum[1]);
        wide_add(s->int_square, other->int_square[0], other->int_square[1]);
        return;
    }
    extreme_float(s, tap__double_of_bits(other->min), tap__double_of_bits(other->max));
    pair_join(&s->sum, other->sum);
    pair_join(&s->big_sum, other->big_sum);
    pair_join(&s->big_square, other->big_square);
    pair_join(&s->small_square, other->small_square);
    s->nan += other->nan;
    s->pos_inf += other->pos_inf;
    s->neg_inf += other->neg_inf;
}

/* ---------------------------------------------------------------------------------------------------------- values */

/* Values of a unit, before they join what the thread has. Plain sums of so few values, as the kernels of src/tensor make them:
 * exact where the values span no more than 24 powers of two. */
typedef struct unit_sums {
    double sum, square;
    float min, max;
    unsigned nan, pos_inf, neg_inf, zero;
} unit_sums;

/* A value whose square a double holds with all that counts: every float of less than 64 bits. No branch is taken for finite
 * ones. */
DEVICE void add_narrow(unit_sums *u, float x)
{
    bool is_finite = (tap__bits_of_float(x) & 0x7F800000u) != 0x7F800000u;
    double finite = is_finite ? x : 0;
    u->sum += finite;
    u->square += finite * finite;
    u->zero += x == 0;
    u->min = x < u->min ? x : u->min;
    u->max = x > u->max ? x : u->max;
    if (!is_finite) {
        u->nan += x != x;
        u->pos_inf += x > 0;
        u->neg_inf += x < 0;
    }
}

DEVICE void add_wide(tap_k_sums *s, double x)
{
    double size = x < 0 ? -x : x;
    extreme_float(s, x, x);
    s->zero += x == 0;
    if (x != x || size == DOUBLE_INFINITY) {
        s->nan += x != x;
        s->pos_inf += x > 0;
        s->neg_inf += x < 0;
    } else if (size > 0x1p500) {
        pair_add(&s->big_sum, x * 0x1p-600);
        pair_add(&s->big_square, x * 0x1p-600 * (x * 0x1p-600));
    } else {
        pair_add(&s->sum, x);
        if (size < 0x1p-400)
            pair_add(&s->small_square, x * 0x1p600 * (x * 0x1p600));
        else
            pair_add(&s->square, x * x);
    }
}

/* tap__magnitude of element.c, bit for bit. */
DEVICE double magnitude(double re, double im)
{
    double square = re * re + im * im;
    if (square > 0x1p-800 && square < 0x1p1000)
        return square_root(square);
    if (re != re || im != im)
        return __builtin_nan("");
    re = re < 0 ? -re : re;
    im = im < 0 ? -im : im;
    if (re == DOUBLE_INFINITY || im == DOUBLE_INFINITY)
        return DOUBLE_INFINITY;
    double scale = (re > im ? re : im) > 1 ? 0x1p-600 : 0x1p600;
    re *= scale;
    im *= scale;
    return square_root(re * re + im * im) / scale;
}

DEVICE void add_integer(tap_k_sums *s, tap_k_word bits, bool is_signed)
{
    tap_k_word size = is_signed && (tap_k_number)bits < 0 ? 0 - bits : bits;
    extreme_integer(s, bits, bits, is_signed);
    s->zero += bits == 0;
    wide_add(s->int_sum, bits, is_signed && (tap_k_number)bits < 0 ? ~0ull : 0);
    if (size >> 32)
        pair_add(&s->square, (double)size * (double)size);
    else
        wide_add(s->int_square, size * size, 0);
}

/* The n-th value of `bytes` bytes in a unit. */
DEVICE tap_k_word value_bits(const tap_k_word *unit, unsigned n, unsigned bytes)
{
    unsigned per_word = 8 / bytes;
    return unit[n / per_word] >> n % per_word * bytes * 8 & (bytes == 8 ? ~0ull : (1ull << bytes * 8) - 1);
}

DEVICE float float_value(unsigned dtype, tap_k_word bits)
{
    switch (dtype) {
    case TAP_F32: return tap__float_of_bits((uint32_t)bits);
    case TAP_BF16: return tap__decode_bf16((uint16_t)bits);
    case TAP_F16: return tap__decode_f16((uint16_t)bits);
    case TAP_F8E4M3FN: return tap__decode_f8e4m3fn((uint8_t)bits);
    case TAP_F8E5M2: return tap__decode_f8e5m2((uint8_t)bits);
    case TAP_F8E4M3FNUZ: return tap__decode_f8e4m3fnuz((uint8_t)bits);
    case TAP_F8E5M2FNUZ: return tap__decode_f8e5m2fnuz((uint8_t)bits);
    default: return tap__decode_f8e8m0fnu((uint8_t)bits);
    }
}

#define EACH_NARROW(count, value)                                                                                    \
    for (unsigned i = 0; i < (count); i++)                                                                           \
    add_narrow(&u, value)

/* The values of floats up to 32 bits and of packed ones. */
DEVICE void add_floats(tap_k_sums *s, unsigned dtype, const tap_k_word *unit, unsigned bytes)
{
    unit_sums u = {0, 0, __builtin_inff(), -__builtin_inff(), 0, 0, 0, 0};
    switch (dtype) {
    case TAP_F32: EACH_NARROW(bytes / 4, float_value(TAP_F32, value_bits(unit, i, 4))); break;
    case TAP_BF16: EACH_NARROW(bytes / 2, float_value(TAP_BF16, value_bits(unit, i, 2))); break;
    case TAP_F16: EACH_NARROW(bytes / 2, float_value(TAP_F16, value_bits(unit, i, 2))); break;
    case TAP_F4E2M1X2: EACH_NARROW(bytes * 2, tap__decode_f4e2m1((unsigned)(unit[i / 16] >> i % 16 * 4 & 15))); break;
    default: EACH_NARROW(bytes, float_value(dtype, value_bits(unit, i, 1))); break;
    }
    pair_add(&s->sum, u.sum);
    pair_add(&s->square, u.square);
    extreme_float(s, u.min, u.max);
    s->nan += u.nan;
    s->pos_inf += u.pos_inf;
    s->neg_inf += u.neg_inf;
    s->zero += u.zero;
}

DEVICE void add_integers(tap_k_sums *s, const tap_k_word *unit, unsigned bytes, unsigned item, bool is_signed)
{
    for (unsigned i = 0; i < bytes / item; i++) {
        tap_k_word bits = value_bits(unit, i, item);
        unsigned unused = 64 - item * 8;
        add_integer(s, is_signed ? (tap_k_word)((tap_k_number)(bits << unused) >> unused) : bits, is_signed);
    }
}

/* bytes: of the unit that are there, whole elements */
DEVICE void add_unit(tap_k_sums *s, unsigned dtype, unsigned item, const tap_k_word *unit, unsigned bytes)
{
    switch (dtype) {
    case TAP_BOOL: /* whatever is not 0 is 1 */
        for (unsigned i = 0; i < bytes; i++)
            add_integer(s, value_bits(unit, i, 1) != 0, false);
        break;
    case TAP_U8:
    case TAP_U16:
    case TAP_U32:
    case TAP_U64: add_integers(s, unit, bytes, item, false); break;
    case TAP_I8:
    case TAP_I16:
    case TAP_I32:
    case TAP_I64: add_integers(s, unit, bytes, item, true); break;
    case TAP_F64:
        for (unsigned i = 0; i < bytes / 8; i++)
            add_wide(s, tap__double_of_bits(unit[i]));
        break;
    case TAP_C32:
        for (unsigned i = 0; i < bytes / 2; i += 2)
            add_wide(s, magnitude(float_value(TAP_F16, value_bits(unit, i, 2)), float_value(TAP_F16, value_bits(unit, i + 1, 2))));
        break;
    case TAP_C64:
        for (unsigned i = 0; i < bytes / 4; i += 2)
            add_wide(s, magnitude(float_value(TAP_F32, value_bits(unit, i, 4)), float_value(TAP_F32, value_bits(unit, i + 1, 4))));
        break;
    case TAP_C128:
        if (bytes == 16)
            add_wide(s, magnitude(tap__double_of_bits(unit[0]), tap__double_of_bits(unit[1])));
        break;
    default: add_floats(s, dtype, unit, bytes); break;
    }
}

DEVICE char kind_of(unsigned dtype)
{
    return dtype >= TAP_I8 && dtype <= TAP_I64 ? 'I' : dtype <= TAP_U64 ? 'U' : 'F';
}

/* --------------------------------------------------------------------------------------------------------- reading */

typedef tap_k_word unit_words __attribute__((vector_size(TAP_K_UNIT)));

DEVICE void hash_word(tap_k_sums *s, tap_k_word w, tap_k_word index)
{
    tap_k_word x = w ^ (TAP_HASH_K0 + index * TAP_HASH_K1);
    s->hash += (x & 0xFFFFFFFFu) * (x >> 32) + (w << 32 | w >> 32);
}

DEVICE const char *element_at(const tap_k_tap *t, tap_k_word index)
{
    if (t->ndim == 0)
        return t->data + index * t->item;
    const char *at = t->data;
    for (unsigned d = t->ndim; d-- > 0;) {
        tap_k_word size = (tap_k_word)t->shape[d], outer = index / size;
        at += (tap_k_number)(index - outer * size) * t->stride[d];
        index = outer;
    }
    return at;
}

/* `bytes` bytes as words, zeros behind them. Elements lie at multiples of their size (16-byte ones of 8). */
DEVICE void gather_unit(const tap_k_tap *t, tap_k_word unit, unsigned bytes, tap_k_word *out)
{
    if (t->ndim == 0 && bytes == TAP_K_UNIT && (tap_k_word)t->data % TAP_K_UNIT == 0) {
        unit_words both = ((const unit_words *)(const void *)t->data)[unit];
        out[0] = both[0];
        out[1] = both[1];
        return;
    }
    out[0] = out[1] = 0;
    for (unsigned done = 0; done < bytes; done += t->item) {
        const char *at = element_at(t, (unit * TAP_K_UNIT + done) / t->item);
        switch (t->item) {
        case 1: out[done / 8] |= (tap_k_word)*(const uint8_t *)at << done % 8 * 8; break;
        case 2: out[done / 8] |= (tap_k_word)*(const uint16_t *)(const void *)at << done % 8 * 8; break;
        case 4: out[done / 8] |= (tap_k_word)*(const uint32_t *)(const void *)at << done % 8 * 8; break;
        case 8: out[done / 8] = *(const tap_k_word *)(const void *)at; break;
        default: out[0] = ((const tap_k_word *)(const void *)at)[0], out[1] = ((const tap_k_word *)(const void *)at)[1]; break;
        }
    }
}

/* Where a unit's sums and copy go. */
typedef struct target {
    tap_k_sums *sums;
    char *to; /* or NULL; payloads have room up to the next multiple of TAP_K_ALIGN */
    unsigned what;
} target;

DEVICE void take_unit(const target *out, unsigned dtype, unsigned item, tap_k_word unit, const tap_k_word *words, unsigned bytes)
{
    if (out->to) {
        unit_words both = {words[0], words[1]};
        *(unit_words *)(void *)(out->to + unit * TAP_K_UNIT) = both;
    }
    if (out->what & TAP_K_HASH) {
        hash_word(out->sums, words[0], unit * 2);
        if (bytes > 8)
            hash_word(out->sums, words[1], unit * 2 + 1);
    }
    if (out->what & TAP_K_STATS)
        add_unit(out->sums, dtype, item, words, bytes);
}

enum { AHEAD = 4 }; /* units that a thread asks for before it looks at the first */

/* The whole units of a contiguous, aligned leaf. Inlined for each dtype that is worth it. */
DEVICE void take_units(const tap_k_tap *t, const target *out, unsigned dtype, unsigned item, tap_k_word first, tap_k_word step)
{
    const unit_words *data = (const unit_words *)(const void *)t->data;
    tap_k_word units = t->bytes / TAP_K_UNIT;
    for (tap_k_word unit = first; unit < units; unit += AHEAD * step) {
        unit_words loaded[AHEAD];
        TAP_K_UNROLL
        for (unsigned j = 0; j < AHEAD; j++)
            if (unit + j * step < units)
                loaded[j] = data[unit + j * step];
        TAP_K_UNROLL
        for (unsigned j = 0; j < AHEAD; j++)
            if (unit + j * step < units) {
                tap_k_word words[2] = {loaded[j][0], loaded[j][1]};
                take_unit(out, dtype, item, unit + j * step, words, TAP_K_UNIT);
            }
    }
}

/* Everything else: strided, not aligned, rarer dtypes, and the end of a leaf. */
DEVICE void take_others(const tap_k_tap *t, const target *out, tap_k_word first, tap_k_word step)
{
    for (tap_k_word unit = first; unit * TAP_K_UNIT < t->bytes; unit += step) {
        tap_k_word words[2], left = t->bytes - unit * TAP_K_UNIT;
        unsigned bytes = left < TAP_K_UNIT ? (unsigned)left : TAP_K_UNIT;
        gather_unit(t, unit, bytes, words);
        take_unit(out, t->dtype, t->item, unit, words, bytes);
    }
}

/* This thread's part of the leaf. */
DEVICE void take_part(const tap_k_tap *t, const target *out)
{
    tap_k_word step = (tap_k_word)block_count() * thread_count(), whole = t->bytes / TAP_K_UNIT;
    tap_k_word me = (tap_k_word)block_index() * thread_count() + thread_index();
    bool quick = t->ndim == 0 && (tap_k_word)t->data % TAP_K_UNIT == 0;
    switch (quick ? t->dtype : TAP_DTYPE_NONE) {
    case TAP_F32: take_units(t, out, TAP_F32, 4, me, step); break;
    case TAP_BF16: take_units(t, out, TAP_BF16, 2, me, step); break;
    case TAP_F16: take_units(t, out, TAP_F16, 2, me, step); break;
    case TAP_F64: take_units(t, out, TAP_F64, 8, me, step); break;
    case TAP_I64: take_units(t, out, TAP_I64, 8, me, step); break;
    default: quick = false; break;
    }
    if (!quick || me == whole % step)
        take_others(t, out, quick ? whole : me, step);
}

/* ----------------------------------------------------------------------------------------------------- the tap kernel */

/* Adds up the block's sums into those of its thread 0. Waits for every thread. */
DEVICE void join_block(tap_k_sums *shared, const tap_k_sums *own, char kind)
{
    unsigned me = thread_index();
    shared[me] = *own;
    for (unsigned n = thread_count(); n > 1;) {
        unsigned half = (n + 1) / 2;
        block_wait();
        if (me + half < n)
            sums_join(&shared[me], &shared[me + half], kind);
        n = half;
    }
    block_wait();
}

/* Is this block the last one, so that shared[0] has the whole? */
DEVICE bool join_blocks(const tap_k_tap *t, tap_k_sums *shared, char kind)
{
    SHARED(unsigned, is_last, 1);
    unsigned blocks = block_count();
    if (blocks == 1)
        return true;
    if (thread_index() == 0) {
        t->partial[block_index()] = shared[0];
        device_fence();
        *is_last = add_to(t->arrived, 1) == blocks - 1;
        device_fence();
    }
    block_wait();
    if (!*is_last)
        return false;
    tap_k_sums own;
    sums_begin(&own, kind);
    for (unsigned i = thread_index(); i < blocks; i += thread_count())
        sums_join(&own, &t->partial[i], kind);
    block_wait();
    join_block(shared, &own, kind);
    return true;
}

/* By all threads of the block, so that few writes cross the bus. room: of a header, beside the sums in shared memory. */
DEVICE void write_header(const tap_k_tap *t, const tap_k_sums *sums, tap_k_header *room)
{
    const tap_k_group *group = t->group;
    tap_k_word seq = group->seq + t->index;
    tap_k_header *header = &t->room.headers[seq & (t->room.header_count - 1)];
    enum { WORDS = sizeof *room / sizeof(tap_k_word) };
    if (thread_index() == 0) {
        bool whole = group->state == TAP_K_WHOLE && t->what & TAP_K_COPY;
        room->sums = *sums;
        room->seq = seq;
        room->tap = t->tap;
        room->serial = group->serial;
        room->step = group->step;
        room->replay = group->replay;
        room->payload_at = group->at + t->offset;
        room->payload_bytes = whole ? t->bytes : 0;
        room->state = group->state;
        room->unused[0] = room->unused[1] = 0;
    }
    block_wait();
    for (unsigned i = thread_index(); i < WORDS - 1; i += thread_count())
        ((tap_k_word *)(void *)header)[i] = ((const tap_k_word *)(const void *)room)[i];
    block_wait();
    if (thread_index() == 0)
        publish(&header->flag, seq + 1);
}

LAUNCHED(TAP_K_MAX_THREADS, 3) tap_leaf(tap_k_tap tap)
{
    SHARED(tap_k_sums, shared, TAP_K_MAX_THREADS);
    const tap_k_group *group = tap.group;
    if (group->state == TAP_K_OFF || group->state == TAP_K_LOST)
        return;
    char kind = kind_of(tap.dtype), *to = 0;
    if (group->state == TAP_K_WHOLE && tap.what & TAP_K_COPY)
        to = tap.room.payload + (group->at + tap.offset) % tap.room.payload_bytes;
    tap_k_sums own;
    sums_begin(&own, kind);
    target out = {&own, to, tap.what};
    take_part(&tap, &out);
    join_block(shared, &own, kind); /* every byte of the block is written */
    if (!join_blocks(&tap, shared, kind))
        return;
    if (block_count() > 1 && thread_index() == 0)
        exchange(tap.arrived, 0);
    device_fence();
    write_header(&tap, &shared[0], (tap_k_header *)(void *)&shared[1]);
}

/* ---------------------------------------------------------------------------------------------------------- the gate */

/* Where a payload of these bytes would begin: it does not wrap. */
DEVICE tap_k_word payload_start(const tap_k_room *room, tap_k_word at, tap_k_word bytes)
{
    tap_k_word inside = at % room->payload_bytes;
    return inside + bytes > room->payload_bytes ? at + room->payload_bytes - inside : at;
}

DEVICE bool has_room(const tap_k_room *room, volatile tap_k_words *words, tap_k_word headers, tap_k_word start,
                     tap_k_word bytes)
{
    return words->head_seq + headers - words->seen_seq <= room->header_count &&
           (bytes == 0 || start + bytes - words->seen_at <= room->payload_bytes);
}

/* Reads the tails where those seen last leave no room. */
DEVICE bool finds_room(const tap_k_gate *gate, volatile tap_k_words *words, tap_k_word bytes)
{
    tap_k_word start = payload_start(&gate->room, words->head_at, bytes);
    if (has_room(&gate->room, words, gate->headers, start, bytes))
        return true;
    words->seen_at = observe(&gate->room.tails->at);
    words->seen_seq = observe(&gate->room.tails->seq);
    return has_room(&gate->room, words, gate->headers, start, bytes);
}

/* Waits until there is room or the tail has stood still for too long; after one gave up none waits until it moves. */
DEVICE bool waits_for_room(const tap_k_gate *gate, volatile tap_k_words *words)
{
    tap_k_word since = clock_ns(), seen = words->seen_seq;
    while (!finds_room(gate, words, gate->payload)) {
        if (words->given_up == words->seen_seq + 1)
            return false;
        if (words->seen_seq != seen) {
            seen = words->seen_seq;
            since = clock_ns();
        } else if (clock_ns() - since >= gate->stall_ns) {
            words->given_up = seen + 1;
            return false;
        }
        nap();
    }
    return true;
}

/* The lock is held. */
DEVICE tap_k_word reserve(const tap_k_gate *gate, volatile tap_k_words *words)
{
    bool fits = gate->full == TAP_K_BLOCK ? waits_for_room(gate, words) : finds_room(gate, words, gate->payload);
    tap_k_word bytes = fits ? gate->payload : 0;
    if (!fits && (gate->full == TAP_K_DROP || !gate->payload || !finds_room(gate, words, 0))) {
        words->lost += gate->headers;
        return TAP_K_LOST;
    }
    if (bytes)
        words->head_at = payload_start(&gate->room, words->head_at, bytes);
    gate->group->seq = words->head_seq;
    gate->group->at = words->head_at;
    words->head_seq += gate->headers;
    words->head_at += bytes;
    words->stats_only += fits ? 0 : gate->headers;
    return fits ? TAP_K_WHOLE : TAP_K_HEADER_ONLY;
}

/* One thread of one block. */
KERNEL tap_gate(tap_k_gate gate)
{
    volatile tap_k_words *words = gate.room.words;
    gate.group->replay++;
    gate.group->state = TAP_K_OFF;
    if (!observe(&words->on))
        return;
    while (exchange((unsigned *)&gate.room.words->lock, 1))
        nap();
    gate.group->serial = words->serial;
    gate.group->step = words->step;
    gate.group->state = reserve(&gate, words);
    device_fence();
    exchange(&gate.room.words->lock, 0);
}
