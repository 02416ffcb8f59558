/* sums.c - from the sums that kernels keep to the statistics people see. */
#include "tensor/kernels/kernels.h"

#include <math.h>

static void add_finite(tap_sums *sums, double x)
{
    double size = fabs(x);
    if (size > 0x1p500) {
        x *= 0x1p-600;
        tap__pair_add(&sums->big_sum, x);
        tap__pair_add(&sums->big_square, x * x);
        return;
    }
    tap__pair_add(&sums->middle_sum, x);
    if (size < 0x1p-400) {
        x *= 0x1p600;
        tap__pair_add(&sums->small_square, x * x);
    } else {
        tap__pair_add(&sums->middle_square, x * x);
    }
}

void tap__sums_unusual(tap_sums *sums, const double *values, size_t count)
{
    sums->unusual = true;
    for (size_t i = 0; i < count; i++) {
        double x = values[i];
        if (isnan(x)) {
            sums->nan++;
            continue;
        }
        sums->min = x < sums->min ? x : sums->min;
        sums->max = x > sums->max ? x : sums->max;
        sums->zero += x == 0;
        if (isinf(x)) {
            sums->pos_inf += x > 0;
            sums->neg_inf += x < 0;
        } else {
            add_finite(sums, x);
        }
    }
}

static tap_pair pair_join(tap_pair a, tap_pair b)
{
    tap__pair_add(&a, b.high);
    a.low += b.low;
    return a;
}

static double pair_value(tap_pair pair)
{
    return pair.high + pair.low;
}

/* The parts at their scales: the largest that is there decides, and takes the next smaller one in as far as it shows. */
static double unusual_norm(const tap_sums *sums, double square)
{
    double big = pair_value(sums->big_square), small = pair_value(sums->small_square);
    if (big > 0)
        return sqrt(big + square * 0x1p-600 * 0x1p-600) * 0x1p600;
    if (square > 0)
        return sqrt(square + small * 0x1p-600 * 0x1p-600);
    return sqrt(small) * 0x1p-600;
}

static void float_finish(const tap_sums *sums, const tap_kernels *kernels, double finite, tap_stats *stats)
{
    tap_pair sum = kernels->fold(&sums->sum), square = kernels->fold(&sums->square);
    if (finite == 0)
        return;
    if (__builtin_expect(!sums->unusual, 1)) {
        stats->mean = pair_value(sum) / finite + 0.0;
        stats->norm = sqrt(pair_value(square));
        return;
    }
    sum = pair_join(sum, sums->middle_sum);
    square = pair_join(square, sums->middle_square);
    double big = pair_value(sums->big_sum);
    stats->mean = big == 0 ? pair_value(sum) / finite + 0.0 : (big + pair_value(sum) * 0x1p-600) / finite * 0x1p600;
    stats->norm = unusual_norm(sums, pair_value(square));
}

void tap__sums_finish(const tap_sums *sums, const tap_kernels *kernels, char kind, uint64_t count, tap_stats *stats)
{
    *stats = (tap_stats){.count = count, .nan = sums->nan, .pos_inf = sums->pos_inf, .neg_inf = sums->neg_inf,
                         .zero = sums->zero};
    if (kind == 'F' || kind == 'C') {
        bool none = count == sums->nan;
        stats->min.f = none ? (double)NAN : sums->min + 0.0; /* -0 becomes 0 */
        stats->max.f = none ? (double)NAN : sums->max + 0.0;
        float_finish(sums, kernels, (double)(count - sums->nan - sums->pos_inf - sums->neg_inf), stats);
        return;
    }
    if (count == 0)
        return;
    stats->mean = (double)sums->int_sum / (double)count;
    if (kind == 'I') {
        stats->min.i = sums->int_min;
        stats->max.i = sums->int_max;
    } else {
        stats->min.u = sums->uint_min;
        stats->max.u = sums->uint_max;
    }
    /* one of the two is zero: squares of 64-bit values are summed as floats */
    stats->norm = sqrt((double)sums->int_square + pair_value(kernels->fold(&sums->square)));
}
