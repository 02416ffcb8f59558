/* pass.c - tap_tensor_scan: statistics, hash and copy of a view in one pass over blocks that fit the first cache. */
#include "tensor/element.h"
#include "tensor/float_mode.h"
#include "tensor/hash.h"
#include "tensor/walk.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 16384 };

typedef struct sums {
    tap_stats stats;
    __int128 sum;
    double hi, lo, square_hi, square_lo;
} sums;

static void add(double *hi, double *lo, double x)
{
    double s = *hi + x, b = s - *hi;
    *lo += (*hi - (s - b)) + (x - b);
    *hi = s;
}

static void look(sums *s, const tap_scalar *v)
{
    tap_stats *t = &s->stats;
    double x = tap__scalar_float(v);
    bool first = t->count++ == t->nan;
    t->zero += x == 0;
    if (v->kind == 'U') {
        t->min.u = first || v->u < t->min.u ? v->u : t->min.u;
        t->max.u = first || v->u > t->max.u ? v->u : t->max.u;
        s->sum += v->u;
    } else if (v->kind == 'I') {
        t->min.i = first || v->i < t->min.i ? v->i : t->min.i;
        t->max.i = first || v->i > t->max.i ? v->i : t->max.i;
        s->sum += v->i;
    } else if (isnan(x)) {
        t->nan++;
        return;
    } else {
        t->min.f = first || x < t->min.f ? x + 0.0 : t->min.f;
        t->max.f = first || x > t->max.f ? x + 0.0 : t->max.f;
        t->pos_inf += x > 0 && isinf(x);
        t->neg_inf += x < 0 && isinf(x);
        if (isinf(x))
            return;
        add(&s->hi, &s->lo, x);
    }
    add(&s->square_hi, &s->square_lo, x * x);
}

static void finish(sums *s, char kind, tap_stats *out)
{
    *out = s->stats;
    uint64_t finite = out->count - out->nan - out->pos_inf - out->neg_inf;
    bool is_float = kind == 'F' || kind == 'C';
    if (is_float && out->count == out->nan)
        out->min.f = out->max.f = (double)NAN;
    out->mean = finite ? (is_float ? s->hi + s->lo : (double)s->sum) / (double)finite : 0;
    out->norm = sqrt(s->square_hi + s->square_lo);
}

tap_status tap_tensor_scan(const tap_tensor *tensor, unsigned what, void *dst, tap_stats *stats, uint64_t *hash,
                           tap_error *err)
{
    tap_walk walk;
    TAP_TRY(tap__walk_begin(&walk, tensor, err));
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    __auto_type mode = tap__float_mode_enter();
    char block[BLOCK];
    sums s = {.hi = 0};
    uint64_t sum = 0, done = 0, bytes = (uint64_t)walk.left * walk.item;
    while (walk.left) {
        int64_t most = BLOCK / (int64_t)walk.item, take = walk.left < most ? walk.left : most;
        size_t len = (size_t)take * walk.item;
        tap__walk_read(&walk, block, take);
        if (what & (TAP_SCAN_STATS | TAP_SCAN_HEALTH))
            for (int64_t i = 0; i < take * info->values; i++) {
                tap_scalar v = tap__element_get(tensor->dtype, block + i / info->values * info->bytes, (int)(i % info->values));
                look(&s, &v);
            }
        if (what & TAP_SCAN_HASH)
            sum += tap__hash_sum(block, len, done / 8);
        if (dst)
            memcpy((char *)dst + done, block, len);
        done += len;
    }
    tap__float_mode_leave(mode);
    if (stats && what & (TAP_SCAN_STATS | TAP_SCAN_HEALTH))
        finish(&s, info->kind, stats);
    if (hash && what & TAP_SCAN_HASH)
        *hash = tap__hash_finish(sum, bytes);
    return TAP_OK;
}
