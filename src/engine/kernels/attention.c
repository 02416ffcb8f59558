/* attention.c - softmax(scale * q @ k^T + mask) @ v and its gradient, block by block, so that no matrix of all queries
 * by all keys is ever made. A piece of work is a block of queries of one head (forward) or one head of keys (backward)
 * and is computed by one thread from beginning to end: the same bits for any number of threads.
 *
 * float16 and bfloat16 are computed in float32, what is stored is rounded once. Operands whose rows are not of
 * neighbours, or of another type than the computation's, pass through the scratch. */
#include "engine/kernels/attention.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/blas.h"
#include "engine/kernels/lanes.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { KEY_BLOCK = 512, MAX_SLOTS = 256 };
enum { BATCH, HEAD, ROW, COLUMN }; /* dimensions of q, k, v and everything shaped like them */

/* Sizes, types and how the work is cut. */
typedef struct attention {
    tap_dtype dtype, real;          /* of the operands; of the computation: F32 or F64 */
    int64_t item, word;             /* bytes of each */
    int64_t batch, heads, groups;   /* groups: heads of queries that share one of keys */
    int64_t queries, keys, width, value_width;
    int64_t query_block;
    double scale;
    bool causal;
    const tap__operand *mask;       /* NULL: none */
    int64_t mask_stride[4];
    tap__gemm_fn gemm;
    bool copy_q, copy_k, copy_v, copy_grad, copy_out; /* not usable in place */
    int slots;                      /* areas of scratch, one per thread */
    int64_t slot_bytes;
    int64_t at_k, at_v;             /* forward: copies of all of k and v in the scratch */
    int64_t at_slots;
} attention;

typedef struct run_state {
    const attention *self;
    const tap__call *call;
    void *const *data;
    char *scratch;
    const tap__lanes *lanes;
    const tap__lane_math *math;
    atomic_flag busy[MAX_SLOTS];
} run_state;

/* ------------------------------------------------------------------------------------------------------ small things */

/* A matrix in memory: rows `step` bytes apart, of neighbouring numbers of the computation's type. */
typedef struct matrix {
    char *at;
    int64_t step;
} matrix;

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static bool must_copy(const attention *self, const tap__operand *x)
{
    return x->dtype != self->real || (x->stride[COLUMN] != 1 && x->size[COLUMN] > 1) ||
           (x->size[ROW] > 1 && x->stride[ROW] < x->size[COLUMN]) || x->stride[ROW] > TAP_GEMM_MAX;
}

static char *element(const tap__operand *x, void *data, int64_t batch, int64_t head, int64_t row)
{
    int64_t item = tap_dtype_describe(x->dtype)->bytes;
    return (char *)data + (batch * x->stride[BATCH] + head * x->stride[HEAD] + row * x->stride[ROW]) * item;
}

/* `count` numbers `stride` elements apart, to neighbours of the computation's type. */
static void load_row(const run_state *state, tap_dtype dtype, const char *from, int64_t stride, int64_t count, char *to)
{
    uint16_t part[256];
    if (stride == 1 && dtype == state->self->real) {
        memcpy(to, from, (size_t)(count * state->self->word));
        return;
    }
    if (dtype == state->self->real) {
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * state->self->word, from + i * stride * state->self->word, (size_t)state->self->word);
        return;
    }
    for (int64_t done = 0; done < count; done += 256) {
        int64_t now = count - done < 256 ? count - done : 256;
        const char *src = from + done * stride * 2;
        if (stride != 1) {
            for (int64_t i = 0; i < now; i++)
                memcpy(&part[i], src + i * stride * 2, 2);
            src = (const char *)part;
        }
        (dtype == TAP_F16 ? state->lanes->widen_f16 : state->lanes->widen_bf16)((float *)(void *)to + done, src, now);
    }
}

static void store_row(const run_state *state, tap_dtype dtype, char *to, int64_t stride, int64_t count,
                      const char *from)
{
    uint16_t part[256];
    if (dtype == state->self->real) {
        for (int64_t i = 0; stride != 1 && i < count; i++)
            memcpy(to + i * stride * state->self->word, from + i * state->self->word, (size_t)state->self->word);
        if (stride == 1)
            memcpy(to, from, (size_t)(count * state->self->word));
        return;
    }
    for (int64_t done = 0; done < count; done += 256) {
        int64_t now = count - done < 256 ? count - done : 256;
        char *dst = to + done * stride * 2;
        (dtype == TAP_F16 ? state->lanes->narrow_f16 : state->lanes->narrow_bf16)(
            stride == 1 ? (void *)dst : part, (const float *)(const void *)from + done, now);
        for (int64_t i = 0; stride != 1 && i < now; i++)
            memcpy(dst + i * stride * 2, &part[i], 2);
    }
}

/* Rows [first, first + rows) of one head, in place or copied to `room`. */
static matrix take_rows(const run_state *state, int input, bool copy, int64_t batch, int64_t head, int64_t first,
                        int64_t rows, char *room)
{
    const tap__operand *x = &state->call->in[input];
    char *from = element(x, state->data[input], batch, head, first);
    int64_t item = tap_dtype_describe(x->dtype)->bytes, columns = x->size[COLUMN];
    if (!copy)
        return (matrix){from, (x->size[ROW] > 1 ? x->stride[ROW] : columns) * item};
    int64_t step = columns * state->self->word;
    for (int64_t i = 0; i < rows; i++)
        load_row(state, x->dtype, from + i * x->stride[ROW] * item, x->stride[COLUMN], columns, room + i * step);
    return (matrix){room, step};
}

static void put_rows(const run_state *state, int output, int64_t batch, int64_t head, int64_t first, int64_t rows,
                     const char *from)
{
    const tap__operand *x = &state->call->out[output];
    char *to = element(x, state->data[state->call->nin + output], batch, head, first);
    int64_t item = tap_dtype_describe(x->dtype)->bytes, columns = x->size[COLUMN];
    for (int64_t i = 0; i < rows; i++)
        store_row(state, x->dtype, to + i * x->stride[ROW] * item, x->stride[COLUMN], columns,
                  from + i * columns * state->self->word);
}

/* c = alpha * op(a) @ op(b) + beta * c */
static void multiply(const attention *self, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, matrix a,
                     matrix b, double beta, matrix c)
{
    if (m == 0 || n == 0)
        return;
    float alpha32 = (float)alpha, beta32 = (float)beta;
    bool wide = self->real == TAP_F64;
    self->gemm(ta, tb, m, n, k, wide ? (void *)&alpha : &alpha32, a.at, a.step / self->word, b.at,
               b.step / self->word, wide ? (void *)&beta : &beta32, c.at, c.step / self->word);
}

static double get_real(const attention *self, const char *at)
{
    return self->real == TAP_F64 ? *(const double *)(const void *)at : (double)*(const float *)(const void *)at;
}

/* ------------------------------------------------------------------------------------------------ scores of a block */

/* How many of the keys [first, first + count) query number `query` may look at. */
static int64_t visible(const attention *self, int64_t query, int64_t first, int64_t count)
{
    if (!self->causal)
        return count;
    int64_t seen = query - first + 1;
    return seen < 0 ? 0 : seen < count ? seen : count;
}

static void add_mask(const run_state *state, int64_t batch, int64_t head, int64_t query, int64_t first, int64_t count,
                     char *scores)
{
    const attention *self = state->self;
    const int64_t *stride = self->mask_stride;
    int64_t item = tap_dtype_describe(self->mask->dtype)->bytes;
    const char *from = (const char *)state->data[self->mask - state->call->in] +
                       (batch * stride[0] + head * stride[1] + query * stride[2] + first * stride[3]) * item;
    double wide[KEY_BLOCK];
    char *row = (char *)wide;
    if (self->mask->dtype == TAP_BOOL) {
        for (int64_t i = 0; i < count; i++) {
            bool hidden = !from[i * stride[3]];
            if (self->real == TAP_F64)
                ((double *)(void *)row)[i] = hidden ? -INFINITY : 0;
            else
                ((float *)(void *)row)[i] = hidden ? -INFINITY : 0;
        }
    } else {
        load_row(state, self->mask->dtype, from, stride[3], count, row);
    }
    if (self->real == TAP_F64)
        for (int64_t i = 0; i < count; i++)
            ((double *)(void *)scores)[i] += ((double *)(void *)row)[i];
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)(void *)scores)[i] += ((float *)(void *)row)[i];
}

/* ----------------------------------------------------------------------------------------------------------- forward */

enum { Q, K, V, MASK };
enum { OUT, LOGSUMEXP };

/* Scores become exponentials; max and sum go on over the blocks. Returns what earlier results are to be multiplied by. */
static double soften(const run_state *state, char *scores, int64_t seen, int64_t count, double *max, double *sum)
{
    int64_t word = state->self->word;
    tap__lane_type type = state->self->real == TAP_F64 ? TAP_LANE_F64 : TAP_LANE_F32;
    double best = *max;
    memset(scores + seen * word, 0, (size_t)((count - seen) * word));
    if (seen > 0)
        state->lanes->row[TAP_FOLD_MAX][type](&best, scores, seen, NULL);
    if (best == -INFINITY) { /* nothing to look at so far */
        memset(scores, 0, (size_t)(seen * word));
        return 1;
    }
    double again = exp(*max - best);
    *sum = *sum * again + (seen > 0 ? state->math->exp_sum(scores, scores, best, seen) : 0);
    *max = best;
    return again;
}

static char *take_slot(run_state *state, int *slot)
{
    for (int i = 0;; i = (i + 1) % state->self->slots)
        if (!atomic_flag_test_and_set_explicit(&state->busy[i], memory_order_acquire)) {
            *slot = i;
            return state->scratch + state->self->at_slots + i * state->self->slot_bytes;
        }
}

static void give_slot(run_state *state, int slot)
{
    atomic_flag_clear_explicit(&state->busy[slot], memory_order_release);
}

/* All of k or v of one head: in place, or the copy made before. */
static matrix take_keys(const run_state *state, int input, bool copy, int64_t at, int64_t batch, int64_t head)
{
    if (!copy)
        return take_rows(state, input, false, batch, head, 0, 0, NULL);
    const tap__operand *x = &state->call->in[input];
    int64_t step = x->size[COLUMN] * state->self->word;
    return (matrix){state->scratch + at + (batch * x->size[HEAD] + head) * x->size[ROW] * step, step};
}

static void copy_heads(void *user, int64_t begin, int64_t end)
{
    const run_state *state = user;
    const attention *self = state->self;
    int64_t key_heads = self->heads / self->groups;
    for (int64_t i = begin; i < end; i++)
        for (int input = K; input <= V; input++) {
            bool copy = input == K ? self->copy_k : self->copy_v;
            if (!copy)
                continue;
            matrix to = take_keys(state, input, true, input == K ? self->at_k : self->at_v, i / key_heads,
                                  i % key_heads);
            take_rows(state, input, true, i / key_heads, i % key_heads, 0, self->keys, to.at);
        }
}

static void finish_block(const run_state *state, int64_t batch, int64_t head, int64_t first, int64_t rows, matrix sums,
                         const double *max, const double *sum)
{
    const attention *self = state->self;
    const tap__operand *lse = &state->call->out[LOGSUMEXP];
    char *to = state->data[state->call->nin + LOGSUMEXP];
    for (int64_t i = 0; i < rows; i++) {
        char *row = sums.at + i * sums.step;
        state->math->scale(row, row, sum[i] == 0 ? 1 : 1 / sum[i], self->value_width);
        if (!to)
            continue;
        double value = max[i] + log(sum[i]);
        char *at = to + (batch * lse->stride[0] + head * lse->stride[1] + (first + i) * lse->stride[2]) * self->word;
        if (self->real == TAP_F64)
            *(double *)(void *)at = value;
        else
            *(float *)(void *)at = (float)value;
    }
    put_rows(state, OUT, batch, head, first, rows, sums.at);
}

static void attend(const run_state *state, int64_t batch, int64_t head, int64_t first, char *room)
{
    const attention *self = state->self;
    int64_t rows = self->queries - first < self->query_block ? self->queries - first : self->query_block;
    int64_t key_head = head / self->groups;
    double *max = (double *)(void *)room, *sum = max + self->query_block;
    room += round_up(2 * self->query_block * 8);
    matrix scores = {room, KEY_BLOCK * self->word};
    room += round_up(self->query_block * KEY_BLOCK * self->word);
    matrix sums = {room, self->value_width * self->word};
    room += round_up(self->query_block * self->value_width * self->word);
    matrix q = take_rows(state, Q, self->copy_q, batch, head, first, rows, room);
    matrix k = take_keys(state, K, self->copy_k, self->at_k, batch, key_head);
    matrix v = take_keys(state, V, self->copy_v, self->at_v, batch, key_head);
    for (int64_t i = 0; i < rows; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    memset(sums.at, 0, (size_t)(rows * sums.step));
    int64_t end = self->causal && first + rows < self->keys ? first + rows : self->keys;
    for (int64_t at = 0; at < end; at += KEY_BLOCK) {
        int64_t count = end - at < KEY_BLOCK ? end - at : KEY_BLOCK;
        matrix these = {k.at + at * k.step, k.step}, values = {v.at + at * v.step, v.step};
        multiply(self, false, true, rows, count, self->width, self->scale, q, these, 0, scores);
        for (int64_t i = 0; i < rows; i++) {
            char *row = scores.at + i * scores.step;
            int64_t seen = visible(self, first + i, at, count);
            if (self->mask)
                add_mask(state, batch, head, first + i, at, seen, row);
            double again = soften(state, row, seen, count, &max[i], &sum[i]);
            if (at > 0 && again != 1)
                state->math->scale(sums.at + i * sums.step, sums.at + i * sums.step, again, self->value_width);
        }
        multiply(self, false, false, rows, self->value_width, count, 1, scores, values, 1, sums);
    }
    finish_block(state, batch, head, first, rows, sums, max, sum);
}

static void attend_pieces(void *user, int64_t begin, int64_t end)
{
    run_state *state = user;
    const attention *self = state->self;
    int64_t blocks = (self->queries + self->query_block - 1) / self->query_block;
    int slot;
    char *room = take_slot(state, &slot);
    for (int64_t i = begin; i < end; i++) {
        int64_t head = i / blocks;
        attend(state, head / self->heads, head % self->heads, i % blocks * self->query_block, room);
    }
    give_slot(state, slot);
}

static void start(run_state *state, const tap__call *call, void *const *data)
{
    state->self = call->state;
    state->call = call;
    state->data = data;
    state->scratch = data[call->nin + call->nout];
    state->lanes = tap__lanes_now();
    state->math = &state->lanes->math[state->self->real == TAP_F64];
    for (int i = 0; i < state->self->slots; i++)
        atomic_flag_clear(&state->busy[i]);
}

static tap_status run_forward(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    run_state state;
    start(&state, call, data);
    const attention *self = state.self;
    int64_t blocks = (self->queries + self->query_block - 1) / self->query_block;
    tap__thread_limit before = tap__thread_limit_enter(1);
    if (self->copy_k || self->copy_v)
        tap__parallel(call->threads, self->batch * self->heads / self->groups, 1, TAP_ANY_LENGTH, copy_heads, &state);
    tap__parallel(call->threads, self->batch * self->heads * blocks, 1, TAP_ANY_LENGTH, attend_pieces, &state);
    tap__thread_limit_leave(before);
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------------------------------- backward */

enum { B_GRAD, B_Q, B_K, B_V, B_OUT, B_LOGSUMEXP, B_MASK };
enum { GRAD_Q, GRAD_K, GRAD_V };

/* The scratch of one head of keys. */
typedef struct backward_room {
    matrix k, v, grad_k, grad_v, grad_q, scores, slopes;
    char *q_room, *out_room, *grad_room;
} backward_room;

/* base NULL: only the sizes are wanted. */
static char *cut(char *base, int64_t *used, int64_t bytes)
{
    int64_t at = *used;
    *used += round_up(bytes);
    return base ? base + at : NULL;
}

static int64_t lay_out_backward(const attention *self, char *base, backward_room *out)
{
    int64_t used = 0, word = self->word, wide = self->width * word, values = self->value_width * word;
    int64_t scores = self->query_block * KEY_BLOCK * word;
    out->k = (matrix){cut(base, &used, self->copy_k ? self->keys * wide : 0), wide};
    out->v = (matrix){cut(base, &used, self->copy_v ? self->keys * values : 0), values};
    out->grad_k = (matrix){cut(base, &used, self->keys * wide), wide};
    out->grad_v = (matrix){cut(base, &used, self->keys * values), values};
    out->q_room = cut(base, &used, self->copy_q ? self->query_block * wide : 0);
    out->out_room = cut(base, &used, self->copy_out ? self->query_block * values : 0);
    out->grad_room = cut(base, &used, self->copy_grad ? self->query_block * values : 0);
    out->grad_q = (matrix){cut(base, &used, self->query_block * wide), wide};
    out->scores = (matrix){cut(base, &used, scores), KEY_BLOCK * word};
    out->slopes = (matrix){cut(base, &used, scores), KEY_BLOCK * word};
    return used;
}

/* Probabilities from the scores, and the scores' gradients from those of the probabilities. */
static void slope_row(const run_state *state, int64_t batch, int64_t head, int64_t query, int64_t at, int64_t count,
                      double lse, double mean, char *scores, char *slopes)
{
    const attention *self = state->self;
    int64_t seen = visible(self, query, at, count);
    if (self->mask)
        add_mask(state, batch, head, query, at, seen, scores);
    if (lse == -INFINITY)
        seen = 0;
    if (seen > 0)
        state->math->exp_sum(scores, scores, lse, seen);
    memset(scores + seen * self->word, 0, (size_t)((count - seen) * self->word));
    state->math->softmax_grad(slopes, slopes, scores, mean, seen);
    memset(slopes + seen * self->word, 0, (size_t)((count - seen) * self->word));
}

static void slope_block(const run_state *state, int64_t batch, int64_t head, int64_t first, backward_room *room)
{
    const attention *self = state->self;
    int64_t rows = self->queries - first < self->query_block ? self->queries - first : self->query_block;
    const tap__operand *lse = &state->call->in[B_LOGSUMEXP];
    matrix q = take_rows(state, B_Q, self->copy_q, batch, head, first, rows, room->q_room);
    matrix out = take_rows(state, B_OUT, self->copy_out, batch, head, first, rows, room->out_room);
    matrix grad = take_rows(state, B_GRAD, self->copy_grad, batch, head, first, rows, room->grad_room);
    int64_t end = self->causal && first + rows < self->keys ? first + rows : self->keys;
    memset(room->grad_q.at, 0, (size_t)(rows * room->grad_q.step));
    for (int64_t at = 0; at < end; at += KEY_BLOCK) {
        int64_t count = end - at < KEY_BLOCK ? end - at : KEY_BLOCK;
        matrix k = {room->k.at + at * room->k.step, room->k.step}, v = {room->v.at + at * room->v.step, room->v.step};
        matrix grad_k = {room->grad_k.at + at * room->grad_k.step, room->grad_k.step};
        matrix grad_v = {room->grad_v.at + at * room->grad_v.step, room->grad_v.step};
        multiply(self, false, true, rows, count, self->width, self->scale, q, k, 0, room->scores);
        multiply(self, false, true, rows, count, self->value_width, 1, grad, v, 0, room->slopes);
        for (int64_t i = 0; i < rows; i++) {
            const char *lse_at = (const char *)state->data[B_LOGSUMEXP] +
                                 (batch * lse->stride[0] + head * lse->stride[1] + (first + i) * lse->stride[2]) *
                                     self->word;
            double mean = state->math->dot(grad.at + i * grad.step, out.at + i * out.step, self->value_width);
            slope_row(state, batch, head, first + i, at, count, get_real(self, lse_at), mean,
                      room->scores.at + i * room->scores.step, room->slopes.at + i * room->slopes.step);
        }
        multiply(self, true, false, count, self->value_width, rows, 1, room->scores, grad, 1, grad_v);
        multiply(self, false, false, rows, self->width, count, self->scale, room->slopes, k, 1, room->grad_q);
        multiply(self, true, false, count, self->width, rows, self->scale, room->slopes, q, 1, grad_k);
    }
    put_rows(state, GRAD_Q, batch, head, first, rows, room->grad_q.at);
}

static void slope_heads(void *user, int64_t begin, int64_t end)
{
    run_state *state = user;
    const attention *self = state->self;
    int64_t key_heads = self->heads / self->groups;
    int slot;
    char *area = take_slot(state, &slot);
    for (int64_t i = begin; i < end; i++) {
        int64_t batch = i / key_heads, key_head = i % key_heads;
        backward_room room;
        lay_out_backward(self, area, &room);
        room.k = take_rows(state, B_K, self->copy_k, batch, key_head, 0, self->keys, room.k.at);
        room.v = take_rows(state, B_V, self->copy_v, batch, key_head, 0, self->keys, room.v.at);
        memset(room.grad_k.at, 0, (size_t)(self->keys * room.grad_k.step));
        memset(room.grad_v.at, 0, (size_t)(self->keys * room.grad_v.step));
        for (int64_t head = key_head * self->groups; head < (key_head + 1) * self->groups; head++)
            for (int64_t first = 0; first < self->queries; first += self->query_block)
                slope_block(state, batch, head, first, &room);
        put_rows(state, GRAD_K, batch, key_head, 0, self->keys, room.grad_k.at);
        put_rows(state, GRAD_V, batch, key_head, 0, self->keys, room.grad_v.at);
    }
    give_slot(state, slot);
}

static tap_status run_backward(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    run_state state;
    start(&state, call, data);
    tap__thread_limit before = tap__thread_limit_enter(1);
    tap__parallel(call->threads, state.self->batch * state.self->heads / state.self->groups, 1,
                  TAP_ANY_LENGTH, slope_heads, &state);
    tap__thread_limit_leave(before);
    return TAP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- prepare */

/* The mask has the scores' sizes, fewer dimensions, or sizes of 1. */
static bool read_mask(attention *self, const tap__operand *mask)
{
    if (mask->dtype == TAP_DTYPE_NONE)
        return true;
    if (mask->ndim > 4 || (mask->dtype != self->dtype && mask->dtype != self->real && mask->dtype != TAP_BOOL))
        return false;
    self->mask = mask;
    for (int i = 0; i < mask->ndim; i++) {
        int dim = mask->ndim - 1 - i;
        self->mask_stride[3 - i] = mask->size[dim] == 1 ? 0 : mask->stride[dim];
    }
    return true;
}

static bool read_sizes(attention *self, tap__call *call, const tap__operand *q, const tap__operand *k,
                       const tap__operand *v)
{
    const tap__attr *scale = tap__call_attr(call, "scale");
    self->dtype = q->dtype;
    bool known = q->dtype == TAP_F32 || q->dtype == TAP_F64 || q->dtype == TAP_F16 || q->dtype == TAP_BF16;
    if (!known || k->dtype != q->dtype || v->dtype != q->dtype || q->ndim != 4 || k->ndim != 4 || v->ndim != 4 ||
        tap__call_attr(call, "dropout_p")->f != 0 || k->size[HEAD] == 0 || q->size[HEAD] % k->size[HEAD] != 0)
        return false;
    self->real = q->dtype == TAP_F64 ? TAP_F64 : TAP_F32;
    self->item = tap_dtype_describe(q->dtype)->bytes;
    self->word = tap_dtype_describe(self->real)->bytes;
    self->batch = q->size[BATCH];
    self->heads = q->size[HEAD];
    self->groups = self->heads / k->size[HEAD];
    self->queries = q->size[ROW];
    self->keys = k->size[ROW];
    self->width = q->size[COLUMN];
    self->value_width = v->size[COLUMN];
    self->query_block = self->queries >= 512 ? 128 : self->queries >= 128 ? 64 : 32;
    self->scale = scale->present ? scale->f : 1 / sqrt((double)self->width);
    self->causal = tap__call_attr(call, "is_causal")->i != 0;
    self->gemm = tap__gemm(self->real);
    self->slots = call->threads < MAX_SLOTS ? call->threads : MAX_SLOTS;
    return self->gemm && self->width > 0 && self->value_width > 0 && call->threads <= MAX_SLOTS;
}

static void release(tap__call *call)
{
    tap__free(call->state);
    call->state = NULL;
}

static tap_status prepare_forward(tap__call *call, tap_error *err)
{
    attention *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    call->state = self;
    const tap__operand *q = &call->in[Q], *k = &call->in[K], *v = &call->in[V];
    if (!read_sizes(self, call, q, k, v) || !read_mask(self, &call->in[MASK]) ||
        call->out[LOGSUMEXP].dtype != self->real) {
        release(call);
        return tap__refuse(call, err);
    }
    self->copy_q = must_copy(self, q);
    self->copy_k = must_copy(self, k);
    self->copy_v = must_copy(self, v);
    int64_t key_rows = self->batch * (self->heads / self->groups) * self->keys;
    self->at_v = self->copy_k ? round_up(key_rows * self->width * self->word) : 0;
    self->at_slots = self->at_v + (self->copy_v ? round_up(key_rows * self->value_width * self->word) : 0);
    self->slot_bytes = round_up(2 * self->query_block * 8) + round_up(self->query_block * KEY_BLOCK * self->word) +
                       round_up(self->query_block * self->value_width * self->word) +
                       (self->copy_q ? round_up(self->query_block * self->width * self->word) : 0);
    call->scratch = (size_t)(self->at_slots + self->slots * self->slot_bytes);
    return TAP_OK;
}

static tap_status prepare_backward(tap__call *call, tap_error *err)
{
    attention *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    call->state = self;
    const tap__operand *q = &call->in[B_Q], *k = &call->in[B_K], *v = &call->in[B_V];
    if (!read_sizes(self, call, q, k, v) || !read_mask(self, &call->in[B_MASK]) ||
        call->in[B_LOGSUMEXP].dtype != self->real || call->in[B_GRAD].dtype != self->dtype ||
        call->in[B_OUT].dtype != self->dtype) {
        release(call);
        return tap__refuse(call, err);
    }
    self->copy_q = must_copy(self, q);
    self->copy_k = must_copy(self, k);
    self->copy_v = must_copy(self, v);
    self->copy_out = must_copy(self, &call->in[B_OUT]);
    self->copy_grad = must_copy(self, &call->in[B_GRAD]);
    backward_room room;
    self->slot_bytes = lay_out_backward(self, NULL, &room);
    call->scratch = (size_t)(self->slots * self->slot_bytes);
    return TAP_OK;
}

const tap__kernel tap__kernel_attention = {.prepare = prepare_forward, .run = run_forward, .release = release};
const tap__kernel tap__kernel_attention_backward = {.prepare = prepare_backward, .run = run_backward,
                                                    .release = release};
