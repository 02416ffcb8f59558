/* reduce.c - how a reduction walks its tensor. Lines are folded along the dimension with the smallest stride: either a
 * line into one accumulator, or line after line into a row of accumulators. Where there are few results the reduced
 * elements are cut into pieces whose accumulators are merged in order. All of it depends on sizes and strides alone. */
#include "engine/kernels/reduce.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 512,         /* columns folded together */
    TILE = 16,           /* rows brought into a buffer together */
    TILE_ROWS = 64,      /* rows of memory folded together, so that they can be read twice */
    PIECE = 16384,       /* elements that are worth a task */
    CHUNK = 8192,        /* elements of a row that can be read twice from the cache */
    MANY = 64            /* tasks that keep every thread busy */
};

static const struct {
    tap_dtype dtype;
    tap__lane_type type;
    bool direct;
} LANE_OF[] = {
    {TAP_F32, TAP_LANE_F32, true},  {TAP_F64, TAP_LANE_F64, true},   {TAP_F16, TAP_LANE_F32, false},
    {TAP_BF16, TAP_LANE_F32, false}, {TAP_BOOL, TAP_LANE_U8, true},  {TAP_U8, TAP_LANE_U8, true},
    {TAP_I8, TAP_LANE_I8, true},    {TAP_I16, TAP_LANE_I16, true},   {TAP_I32, TAP_LANE_I32, true},
    {TAP_I64, TAP_LANE_I64, true},  {TAP_U16, TAP_LANE_I64, false},  {TAP_U32, TAP_LANE_I64, false},
};

static const size_t LANE_BYTES[] = {
#define X(id, type) sizeof(type),
    TAP_LANE_TYPES(X)
#undef X
    sizeof(uint16_t), sizeof(uint16_t),
};

static bool find_lane(tap__reduction *self, tap_dtype dtype)
{
    for (size_t i = 0; i < sizeof LANE_OF / sizeof LANE_OF[0]; i++)
        if (LANE_OF[i].dtype == dtype) {
            self->dtype = dtype;
            self->type = LANE_OF[i].type;
            self->direct = LANE_OF[i].direct;
            self->is_float = self->type == TAP_LANE_F32 || self->type == TAP_LANE_F64;
            self->bytes = tap_dtype_describe(dtype)->bytes;
            return true;
        }
    return false;
}

/* Where the results lie for each dimension of x; false when they do not have the sizes they should. */
static bool result_strides(const tap__operand *x, const bool *mask, const tap__operand *out, int64_t *strides)
{
    int kept = 0;
    for (int i = 0; i < x->ndim; i++)
        kept += !mask[i];
    bool keep_dims = out->ndim == x->ndim;
    if (!keep_dims && out->ndim != kept)
        return false;
    for (int i = 0, at = 0; i < x->ndim; i++) {
        if (keep_dims)
            at = i;
        if (!mask[i] || keep_dims) {
            if (out->size[at] != (mask[i] ? 1 : x->size[i]))
                return false;
            strides[i] = out->stride[at++];
        }
    }
    return true;
}

tap_status tap__reduction_begin(tap__reduction *self, const tap__call *call, const bool *mask, bool ordered,
                                tap_error *err)
{
    const tap__operand *x = &call->in[0];
    int64_t strides[TAP_REDUCE_OUTPUTS][TAP_ENGINE_MAX_NDIM];
    tap_dtype dtype = x->dtype;
    int parts = dtype == TAP_C64 || dtype == TAP_C128 ? 2 : 1; /* a complex number is two floats side by side */
    if (parts == 2)
        dtype = dtype == TAP_C64 ? TAP_F32 : TAP_F64;
    memset(self, 0, sizeof *self);
    self->lanes = tap__lanes_now();
    if (x->is_number || !find_lane(self, dtype) || call->nout > TAP_REDUCE_OUTPUTS)
        return tap__refuse(call, err);
    tap__space_begin(&self->kept, 1 + call->nout);
    tap__space_begin(&self->reduced, 1);
    for (int k = 0; k < call->nout; k++)
        if (!result_strides(x, mask, &call->out[k], strides[k]))
            return tap__refuse(call, err);
    for (int i = 0; i < x->ndim; i++) {
        int64_t all[1 + TAP_REDUCE_OUTPUTS] = {x->stride[i] * parts};
        for (int k = 0; k < call->nout && !mask[i]; k++)
            all[1 + k] = strides[k][i] * parts;
        tap__space_add(mask[i] ? &self->reduced : &self->kept, x->size[i], all);
    }
    if (parts == 2)
        tap__space_add(&self->kept, 2, (const int64_t[]){1, 1, 1});
    tap__space_end(&self->kept, true);
    tap__space_end(&self->reduced, !ordered);
    return TAP_OK;
}

void tap__reduction_end(tap__reduction *self, tap__call *call)
{
    const tap__space *kept = &self->kept, *reduced = &self->reduced;
    int64_t columns = kept->size[kept->ndim - 1], step = kept->stride[0][kept->ndim - 1];
    int64_t row = reduced->size[reduced->ndim - 1], row_step = reduced->stride[0][reduced->ndim - 1];
    bool few = reduced->count < 16 && columns > reduced->count;
    self->columns = columns > 1 && (few || reduced->count <= 1 || (row_step != 1 && step < row_step && columns >= 4) ||
                                    (row == 1 && step < row_step));
    self->width = 1;
    self->lines = kept->count;
    self->blocks = 1;
    if (self->columns) {
        self->width = columns < WIDTH ? columns : WIDTH;
        self->lines = columns ? kept->count / columns : 0;
        self->blocks = (columns + self->width - 1) / self->width;
    }
    int64_t tasks = self->lines * self->blocks;
    self->piece = reduced->count ? reduced->count : 1;
    if (tasks < MANY && tasks > 0) {
        /* every column has something to merge for each piece */
        int64_t worth = self->columns ? 4 * PIECE : PIECE, least = (worth + self->width - 1) / self->width;
        int64_t even = (reduced->count * tasks + 127) / 128;
        self->piece = even > least ? even : least;
    }
    self->pieces = reduced->count > self->piece ? (reduced->count + self->piece - 1) / self->piece : 1;
    call->scratch = self->pieces > 1 ? (size_t)(self->pieces * kept->count) * 2 * sizeof(tap__acc) : 0;
}

/* ---------------------------------------------------------------------------------------------------------- loading */

/* n elements that lie together, as numbers of the folded type. */
static const void *widen(const tap__reduction *self, const void *src, int64_t n, void *buffer)
{
    if (self->direct)
        return src;
    if (self->dtype == TAP_F16) {
        self->lanes->widen_f16(buffer, src, n);
    } else if (self->dtype == TAP_BF16) {
        self->lanes->widen_bf16(buffer, src, n);
    } else {
        int64_t *to = buffer;
        for (int64_t i = 0; i < n; i++)
            to[i] = self->dtype == TAP_U16 ? ((const uint16_t *)src)[i] : ((const uint32_t *)src)[i];
    }
    return buffer;
}

/* Up to TAP_LINE of the reduced elements from the cursor on, together, from as many lines as it takes. */
static const void *next_values(const tap__reduction *self, tap__cursor *cursor, const char *x, int64_t want, int64_t *n,
                               void *raw, void *buffer)
{
    int64_t rest = tap__cursor_rest(cursor), step = self->reduced.stride[0][self->reduced.ndim - 1];
    const char *from = x + cursor->at[0] * (int64_t)self->bytes;
    if (step == 1 && (rest >= 64 || rest >= want)) {
        int64_t limit = self->direct ? self->how.chunks ? CHUNK : rest : TAP_LINE;
        *n = rest < want ? rest : want;
        *n = *n < limit ? *n : limit;
        tap__cursor_step(cursor, *n);
        return widen(self, from, *n, buffer);
    }
    int64_t filled = 0, limit = want < TAP_LINE ? want : TAP_LINE;
    while (filled < limit) {
        rest = tap__cursor_rest(cursor);
        int64_t take = rest < limit - filled ? rest : limit - filled;
        tap__line_gather((char *)raw + (size_t)filled * self->bytes, x + cursor->at[0] * (int64_t)self->bytes, step,
                         take, self->bytes);
        tap__cursor_step(cursor, take);
        filled += take;
    }
    *n = filled;
    return widen(self, raw, filled, buffer);
}

/* ---------------------------------------------------------------------------------------------------------- folding */

static void fold_rows(const tap__reduction *self, tap__acc *a, tap__acc *b, const char *x, int64_t begin, int64_t end)
{
    double buffer[TAP_LINE], raw[TAP_LINE];
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->reduced, begin);
    for (int64_t at = begin; at < end;) {
        int64_t n;
        const void *values = next_values(self, &cursor, x, end - at, &n, raw, buffer);
        self->how.row(self, a, b, values, n, at - begin, at);
        at += n;
    }
}

/* Few columns that lie row after row without gaps: several rows are folded as one long row, whose parts are merged. */
static void fold_narrow(const tap__reduction *self, tap__acc *a, tap__acc *b, const void *x, int64_t n, int64_t rows)
{
    tap__acc c[WIDTH], d[WIDTH];
    int64_t together = WIDTH / n, long_rows = rows / together, done = long_rows * together;
    for (int64_t i = 0; i < together * n; i++) {
        c[i] = self->how.first;
        d[i] = self->how.second;
    }
    self->how.col(self, c, d, x, together * n, long_rows, together * n, 0, 0);
    for (int64_t i = 0; i < together; i++)
        self->how.merge(self, a, b, 0, c + i * n, d + i * n, 0, n);
    if (done < rows)
        self->how.col(self, a, b, (const char *)x + (size_t)(done * n) * self->bytes, n, rows - done, n, done, done);
}

static void fold_columns(const tap__reduction *self, tap__acc *a, tap__acc *b, const char *x, int64_t n, int64_t begin,
                         int64_t end)
{
    double tile[TILE * WIDTH], raw[WIDTH];
    int64_t step = self->kept.stride[0][self->kept.ndim - 1], pitch = self->reduced.stride[0][self->reduced.ndim - 1];
    size_t lane = LANE_BYTES[self->type];
    bool in_place = self->direct && step == 1;
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->reduced, begin);
    for (int64_t at = begin; at < end;) {
        int64_t rest = tap__cursor_rest(&cursor), limit = in_place ? self->how.chunks ? TILE_ROWS : rest : TILE;
        int64_t rows = rest < end - at ? rest : end - at;
        rows = rows < limit ? rows : limit;
        const char *from = x + cursor.at[0] * (int64_t)self->bytes;
        if (in_place && self->how.plain && pitch == n && n < 64 && rows >= 4 * (WIDTH / n)) {
            fold_narrow(self, a, b, from, n, rows);
        } else if (in_place) {
            self->how.col(self, a, b, from, n, rows, pitch, at - begin, at);
        } else {
            for (int64_t r = 0; r < rows; r++, from += pitch * (int64_t)self->bytes) {
                char *to = (char *)tile + (size_t)(r * n) * lane;
                if (self->direct) {
                    tap__line_gather(to, from, step, n, self->bytes);
                } else if (step == 1) {
                    widen(self, from, n, to);
                } else {
                    tap__line_gather(raw, from, step, n, self->bytes);
                    widen(self, raw, n, to);
                }
            }
            self->how.col(self, a, b, tile, n, rows, n, at - begin, at);
        }
        tap__cursor_step(&cursor, rows);
        at += rows;
    }
}

/* ---------------------------------------------------------------------------------------------------------- storing */

#define STORE(type, value)                                                                                           \
    do {                                                                                                             \
        type *to = dst;                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                                              \
            to[i * stride] = (type)(value);                                                                          \
    } while (0)

static void store(tap_dtype dtype, void *dst, int64_t stride, const tap__acc *from, bool is_int, int64_t n)
{
    if (is_int && dtype == TAP_I64)
        STORE(int64_t, from[i].i);
    else if (is_int && (dtype == TAP_BOOL))
        STORE(uint8_t, from[i].i != 0);
    else if (is_int)
        for (int64_t i = 0; i < n; i++)
            tap__put_int(dtype, tap__element_at(dst, dtype, i * stride), from[i].i);
    else if (dtype == TAP_F32)
        STORE(float, from[i].f);
    else if (dtype == TAP_F64)
        STORE(double, from[i].f);
    else
        for (int64_t i = 0; i < n; i++)
            tap__put_float(dtype, tap__element_at(dst, dtype, i * stride), from[i].f);
}

/* Results of n accumulators whose places start at the cursor, in one line of the results. */
static void finish(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n, void *const *out,
                   const tap__cursor *cursor)
{
    const tap__space *kept = &self->kept;
    if (self->how.finish)
        self->how.finish(self, a, b, n);
    for (int k = 0; k < self->results; k++) {
        tap_dtype dtype = self->result_dtype[k];
        store(dtype, tap__element_at(out[k], dtype, cursor->at[1 + k]), kept->stride[1 + k][kept->ndim - 1],
              self->result_second[k] ? b : a, self->result_int[k], n);
    }
}

/* ------------------------------------------------------------------------------------------------------------ tasks */

typedef struct job {
    const tap__reduction *self;
    const char *x;
    void *const *out;
    tap__acc *partial; /* [piece][result], then the second accumulators */
} job;

static void begin_accs(const tap__reduction *self, tap__acc *a, tap__acc *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] = self->how.first;
        b[i] = self->how.second;
    }
}

/* Whether a result is made of one run of elements that are folded as they lie. */
static bool has_plain_rows(const tap__reduction *self)
{
    return !self->columns && self->pieces == 1 && self->direct && self->reduced.ndim == 1 &&
           self->reduced.stride[0][0] == 1 && (!self->how.chunks || self->reduced.count <= CHUNK);
}

static void run_plain_rows(const job *work, int64_t from, int64_t to)
{
    const tap__reduction *self = work->self;
    int64_t step = self->kept.stride[0][self->kept.ndim - 1] * (int64_t)self->bytes;
    tap__acc a[WIDTH], b[WIDTH];
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->kept, from);
    while (from < to) {
        int64_t n = tap__cursor_rest(&cursor);
        n = n < to - from ? n : to - from;
        n = n < WIDTH ? n : WIDTH;
        const char *x = work->x + cursor.at[0] * (int64_t)self->bytes;
        begin_accs(self, a, b, n);
        for (int64_t i = 0; i < n && self->reduced.count; i++)
            self->how.row(self, &a[i], &b[i], x + i * step, self->reduced.count, 0, 0);
        finish(self, a, b, n, work->out, &cursor);
        tap__cursor_step(&cursor, n);
        from += n;
    }
}

/* Tasks are numbered by block of results, then by piece. */
static void run_tasks(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const tap__reduction *self = work->self;
    if (has_plain_rows(self)) {
        run_plain_rows(work, from, to);
        return;
    }
    int64_t columns = self->kept.size[self->kept.ndim - 1];
    tap__acc a[WIDTH], b[WIDTH];
    for (int64_t task = from; task < to; task++) {
        int64_t block = task / self->pieces, piece = task % self->pieces;
        int64_t begin = piece * self->piece, end = begin + self->piece, n = 1, result = block;
        end = end < self->reduced.count ? end : self->reduced.count;
        if (self->columns) {
            int64_t column = block % self->blocks * self->width;
            result = block / self->blocks * columns + column;
            n = columns - column < self->width ? columns - column : self->width;
        }
        tap__cursor cursor;
        tap__cursor_seek(&cursor, &self->kept, result);
        const char *x = work->x + cursor.at[0] * (int64_t)self->bytes;
        begin_accs(self, a, b, n);
        if (self->columns)
            fold_columns(self, a, b, x, n, begin, end);
        else
            fold_rows(self, a, b, x, begin, end);
        if (self->pieces == 1) {
            finish(self, a, b, n, work->out, &cursor);
        } else {
            tap__acc *keep = work->partial + piece * self->kept.count + result;
            memcpy(keep, a, (size_t)n * sizeof *a);
            memcpy(keep + self->pieces * self->kept.count, b, (size_t)n * sizeof *b);
        }
    }
}

static void merge_pieces(void *user, int64_t from, int64_t to)
{
    const job *work = user;
    const tap__reduction *self = work->self;
    int64_t all = self->kept.count;
    tap__cursor cursor;
    tap__cursor_seek(&cursor, &self->kept, from);
    while (from < to) {
        int64_t rest = tap__cursor_rest(&cursor), n = rest < to - from ? rest : to - from;
        tap__acc *a = work->partial + from, *b = a + self->pieces * all;
        for (int64_t p = 1; p < self->pieces; p++) {
            int64_t seen = p * self->piece, more = self->reduced.count - seen;
            self->how.merge(self, a, b, seen, a + p * all, b + p * all, more < self->piece ? more : self->piece, n);
        }
        finish(self, a, b, n, work->out, &cursor);
        tap__cursor_step(&cursor, n);
        from += n;
    }
}

void tap__reduction_run(const tap__reduction *self, const tap__call *call, const void *x, void *const *out,
                        void *scratch)
{
    job work = {.self = self, .x = x, .out = out, .partial = scratch};
    int64_t tasks = self->lines * self->blocks * self->pieces;
    int64_t each = self->piece * self->width, grain = each < PIECE ? PIECE / each : 1;
    if (self->kept.count == 0)
        return;
    tap__parallel(call->threads, tasks, grain, TAP_ANY_LENGTH, run_tasks, &work);
    if (self->pieces > 1)
        tap__parallel(call->threads, self->kept.count, WIDTH, TAP_ANY_LENGTH, merge_pieces, &work);
}
