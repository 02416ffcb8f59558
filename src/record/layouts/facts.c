/* facts.c - a layout's list against the bytes of its files: dtype and shape, checksum, statistics. */
#include "record/layouts/facts.h"

#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/checksum.h"
#include "record/layouts/naming.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------- the tensor */

static bool same_tensor(const tap_record *record, const tap_tensor *tensor)
{
    if (tensor->ndim != record->ndim || (tensor->dtype != record->dtype && tensor->dtype != tap__npy_dtype(record->dtype)))
        return false;
    return !record->ndim || memcmp(tensor->shape, record->shape, 8 * (size_t)record->ndim) == 0;
}

/* ------------------------------------------------------------------------------------------------------- checksums */

/* Of the row-major bytes. */
static tap_status checksum_of(const tap_tensor *tensor, tap_checksum kind, uint64_t *sum, tap_error *err)
{
    int64_t bytes = tap_tensor_bytes(tensor);
    *sum = 0;
    if (bytes <= 0)
        return TAP_OK;
    if (tap_tensor_is_contiguous(tensor)) {
        *sum = tap__checksum_add(kind, 0, tensor->data, (size_t)bytes);
        return TAP_OK;
    }
    void *copy = tap__alloc((size_t)bytes);
    if (!copy)
        return tap_fail_nomem(err);
    tap_status status = tap_tensor_scan(tensor, 0, copy, NULL, NULL, err);
    if (status == TAP_OK)
        *sum = tap__checksum_add(kind, 0, copy, (size_t)bytes);
    tap__free(copy);
    return status;
}

/* ------------------------------------------------------------------------------------------------------ statistics */

/* Half the distance between numbers of the dtype near 1, and its largest number: what a statistic is rounded to. */
static void precision_of(tap_dtype dtype, double *step, double *largest)
{
    bool half = dtype == TAP_F16, brain = dtype == TAP_BF16, wide = dtype == TAP_F64 || dtype == TAP_C128;
    *step = half ? 0x1p-11 : brain ? 0x1p-8 : wide ? 0x1p-53 : 0x1p-24;
    *largest = half ? 65504.0 : brain ? 0x1.fep127 : wide ? DBL_MAX : (double)FLT_MAX;
}

/* The distance between the smallest numbers of the dtype. */
static double quantum_of(tap_dtype dtype)
{
    return dtype == TAP_F16 ? 0x1p-24 : dtype == TAP_BF16 ? 0x1p-133 : 0x1p-149;
}

/* Is `said` what `real` may have become? slack: by how much the sum it comes from may be off. */
static bool agrees(double said, double real, double slack, double step, double largest)
{
    if (isnan(real) || isnan(said))
        return isnan(real) && isnan(said);
    if (isinf(real) || isinf(said)) /* a sum may have left the range where the exact one did not */
        return said == real || (isinf(said) && fabs(real) + slack >= largest * (1 - step));
    return fabs(said - real) <= slack + 2 * step * fabs(real);
}

static double as_double(char kind, tap_number number)
{
    return kind == 'I' ? (double)number.i : kind == 'U' || kind == 'B' ? (double)number.u : number.f;
}

/* Extremes are picked, not computed: exact, but for what MindSpore turns into float32 first and for magnitudes. */
static bool extreme_agrees(const tap_dtype_info *info, tap_number said, tap_number real, bool any_nan)
{
    if (info->kind == 'I' || info->kind == 'U' || info->kind == 'B') {
        double shown = as_double(info->kind, said);
        return said.u == real.u || (info->kind != 'B' && shown == (double)(float)as_double(info->kind, real));
    }
    if (any_nan || isnan(said.f))
        return any_nan && isnan(said.f);
    if (said.f == real.f || said.f == (double)(float)real.f)
        return true;
    return info->kind == 'C' && fabs(said.f - real.f) <= 0x1p-20 * fabs(real.f);
}

static bool sums_agree(const tap_record *record, const tap_facts *facts, const tap_stats *real,
                       const tap_dtype_info *info)
{
    double step, largest, count = (double)real->count;
    precision_of(info->dtype, &step, &largest);
    if (info->dtype == TAP_F64 || info->kind == 'I' || info->kind == 'U') { /* null, or by way of float32 */
        step = 0x1p-24;
        largest = (double)FLT_MAX;
    }
    double mean = tap_stats_ieee_mean(real), norm = tap_stats_ieee_norm(real);
    /* what adding count numbers up in float32 may be off by: means are added in blocks, squares one after the other in
     * eight lanes. norm / sqrt(count) bounds the mean size of the numbers */
    double adding = 0x1p-24 * (8 + 4 * log2(count + 1) + sqrt(count) / 16), squares = 0x1p-24 * (16 + count / 16);
    double quantum = quantum_of(info->dtype), slack = (isfinite(norm) ? adding * norm / sqrt(count) : 0) + quantum;
    if (record->ndim == 0 && info->kind != 'C') { /* the value itself, with its sign */
        double value = as_double(info->kind, real->max);
        value = real->nan ? (double)NAN : value;
        return (!facts->mean || agrees(record->stats.mean, value, 0, step, largest)) &&
               (!facts->norm || agrees(fabs(record->stats.norm), fabs(value), 0, step, largest));
    }
    if (facts->mean && !agrees(record->stats.mean, mean, slack, step, fmin(largest, (double)FLT_MAX / count)))
        return false;
    double limit = fmin(largest, sqrt((double)FLT_MAX)); /* squares are added up in float32 */
    return !facts->norm || agrees(record->stats.norm, norm, norm * squares + 1e-19 * sqrt(count) + quantum, step, limit);
}

static tap_status check_statistics(const tap_record *record, const tap_facts *facts, const tap_tensor *tensor,
                                   bool *same, tap_error *err)
{
    const tap_dtype_info *info = tap_dtype_describe(record->dtype);
    tap_stats real;
    *same = true;
    if (!info || !record->stats.count)
        return TAP_OK;
    TAP_TRY(tap_tensor_scan(tensor, TAP_SCAN_STATS, NULL, &real, NULL, err));
    bool any_nan = real.nan > 0;
    *same = real.count == record->stats.count && extreme_agrees(info, record->stats.max, real.max, any_nan) &&
            extreme_agrees(info, record->stats.min, real.min, any_nan) && sums_agree(record, facts, &real, info);
    return TAP_OK;
}

tap_status tap__facts_check(const tap_record *record, const tap_facts *facts, const tap_tensor *tensor,
                            const char **why, tap_error *err)
{
    *why = NULL;
    if (record->dtype && !same_tensor(record, tensor)) {
        *why = tap_text("the file holds a tensor of another type or shape than was saved");
        return TAP_OK;
    }
    if (facts->checksum_kind != TAP_CHECKSUM_NONE) {
        uint64_t sum;
        TAP_TRY(checksum_of(tensor, facts->checksum_kind, &sum, err));
        if (sum != facts->checksum) {
            *why = tap_text("the bytes on disk do not match their checksum");
            return TAP_OK;
        }
    }
    bool same = true;
    if (record->has_stats)
        TAP_TRY(check_statistics(record, facts, tensor, &same, err));
    if (!same)
        *why = tap_text("the bytes on disk do not match their statistics");
    return TAP_OK;
}
