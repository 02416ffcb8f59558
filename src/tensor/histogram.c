/* histogram.c - how values are spread over equal parts of a range. */
#include "base/sized.h"
#include "tensor/element.h"
#include "tensor/float_mode.h"
#include "tensor/walk.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1024 }; /* elements gathered at a time */

typedef struct range {
    double lo, hi, scale; /* scale: bins per half of the range, which cannot overflow */
    int bins;
} range;

/* The bin number rounds now and then across an edge; the edges themselves decide, the way numpy.histogram does it. */
static void count_value(const range *r, uint64_t *counts, double x)
{
    if (!(x >= r->lo && x <= r->hi) || isinf(x))
        return;
    if (r->lo == r->hi) {
        counts[0]++;
        return;
    }
    int bin = (int)((x / 2 - r->lo / 2) * r->scale);
    bin = bin < 0 ? 0 : bin >= r->bins ? r->bins - 1 : bin;
    double width = r->hi / r->bins - r->lo / r->bins;
    if (bin > 0 && x < r->lo + width * bin)
        bin--;
    else if (bin + 1 < r->bins && x >= r->lo + width * (bin + 1))
        bin++;
    counts[bin]++;
}

tap_status tap_tensor_histogram(const tap_tensor *tensor, double lo, double hi, uint64_t *counts, int bins,
                                tap_error *err)
{
    TAP_NEED(err, tensor);
    TAP_NEED(err, counts);
    tap_walk walk;
    if (bins < 1 || !isfinite(lo) || !isfinite(hi) || lo > hi)
        return tap_fail(err, TAP_E_INVALID,
                        "histogram: %d bins of [%g, %g]; give at least 1 bin and lo <= hi, both finite", bins, lo, hi);
    TAP_TRY(tap__walk_begin(&walk, tensor, err));
    memset(counts, 0, (size_t)bins * sizeof *counts);
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    range r = {lo, hi, bins / (hi / 2 - lo / 2), bins};
    __auto_type mode = tap__float_mode_enter();
    char piece[PIECE * 16];
    while (walk.left) {
        int64_t take = walk.left < PIECE ? walk.left : PIECE;
        tap__walk_read(&walk, piece, take);
        for (int64_t i = 0; i < take * info->values; i++) {
            const char *at = piece + i / info->values * info->bytes;
            tap_scalar v = tap__element_get(tensor->dtype, at, (int)(i % info->values));
            count_value(&r, counts, tap__scalar_float(&v));
        }
    }
    tap__float_mode_leave(mode);
    return TAP_OK;
}
