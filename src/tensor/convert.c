/* convert.c - a tensor's values as another dtype, and single values. */
#include "tensor/element.h"
#include "tensor/float_mode.h"
#include "tensor/walk.h"

#include "base/sized.h"

#include <math.h>

enum { PIECE = 256 }; /* elements gathered at a time */

static void convert_piece(const char *src, tap_dtype from, int64_t values, tap_dtype to, char *dst, int64_t first)
{
    const tap_dtype_info *in = tap_dtype_describe(from), *out = tap_dtype_describe(to);
    for (int64_t i = 0; i < values; i++) {
        tap_scalar value = tap__element_get(from, src + i / in->values * in->bytes, (int)(i % in->values));
        int64_t at = first + i;
        tap__element_put(to, dst + at / out->values * out->bytes, (int)(at % out->values), &value);
    }
}

tap_status tap_tensor_convert(const tap_tensor *src, tap_dtype to, void *dst, tap_error *err)
{
    TAP_NEED(err, src);
    TAP_NEED(err, dst);
    tap_walk walk;
    const tap_dtype_info *out = tap_dtype_describe(to);
    if (!out)
        return tap_fail(err, TAP_E_INVALID, "convert: dtype %d is not known; use one of tap_dtype", (int)to);
    TAP_TRY(tap__walk_begin(&walk, src, err));
    const tap_dtype_info *in = tap_dtype_describe(src->dtype);
    if (walk.left * in->values % out->values)
        return tap_fail(err, TAP_E_INVALID, "convert: %lld values do not fill elements of %s; make the count even",
                        (long long)walk.left, out->name);
    if (src->dtype == to) {
        tap__walk_read(&walk, dst, walk.left);
        return TAP_OK;
    }
    __auto_type mode = tap__float_mode_enter();
    char piece[PIECE * 16];
    for (int64_t first = 0; walk.left;) {
        int64_t take = walk.left < PIECE ? walk.left : PIECE;
        tap__walk_read(&walk, piece, take);
        convert_piece(piece, src->dtype, take * in->values, to, dst, first);
        first += take * in->values;
    }
    tap__float_mode_leave(mode);
    return TAP_OK;
}

double tap_tensor_value(const tap_tensor *tensor, int64_t index)
{
    if (!tensor)
        return (double)NAN;
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    tap_scalar value =
        tap__element_get(tensor->dtype, tap__element_at(tensor, index / info->values), (int)(index % info->values));
    return tap__scalar_float(&value);
}
