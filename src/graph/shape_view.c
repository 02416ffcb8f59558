/* shape_view.c - sizes, strides and offset of views. */
#include "graph/shape_view.h"

#include "base/status.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

tap_status tap__dim_place(const tap__call *call, int64_t dim, int ndim, int *out, tap_error *err)
{
    int64_t limit = ndim ? ndim : 1, place = dim < 0 ? dim + limit : dim;
    *out = 0;
    if (place < 0 || place >= limit)
        return tap_fail(err, TAP_E_INVALID, "%s: dimension %" PRId64 " is not one of %" PRId64, call->name, dim, limit);
    *out = (int)place;
    return TAP_OK;
}

static void remove_dim(tap__operand *view, int dim)
{
    view->ndim--;
    for (int i = dim; i < view->ndim; i++) {
        view->size[i] = view->size[i + 1];
        view->stride[i] = view->stride[i + 1];
    }
}

static tap_status insert_dim(const tap__call *call, tap__operand *view, int dim, int64_t size, int64_t stride,
                             tap_error *err)
{
    if (view->ndim >= TAP_ENGINE_MAX_NDIM)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: more than %d dimensions", call->name, TAP_ENGINE_MAX_NDIM);
    for (int i = view->ndim; i > dim; i--) {
        view->size[i] = view->size[i - 1];
        view->stride[i] = view->stride[i - 1];
    }
    view->size[dim] = size;
    view->stride[dim] = stride;
    view->ndim++;
    return TAP_OK;
}

tap_status tap__view_select(const tap__call *call, tap__operand *view, int64_t dim, int64_t index, tap_error *err)
{
    int place;
    TAP_TRY(tap__dim_place(call, dim, view->ndim, &place, err));
    int64_t size = view->ndim ? view->size[place] : 0, at = index < 0 ? index + size : index;
    if (at < 0 || at >= size)
        return tap_fail(err, TAP_E_INVALID,
                        "%s: index %" PRId64 " is out of bounds for dimension %d with size %" PRId64, call->name, index,
                        place, size);
    view->offset += at * view->stride[place];
    remove_dim(view, place);
    return TAP_OK;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

tap_status tap__view_slice(const tap__call *call, tap__operand *view, int64_t dim, int64_t start, int64_t end,
                           int64_t step, tap_error *err)
{
    int place;
    TAP_TRY(tap__dim_place(call, dim, view->ndim, &place, err));
    if (view->ndim == 0 || step < 1)
        return tap_fail(err, TAP_E_INVALID, "%s: a slice needs a dimension and a step of at least 1", call->name);
    int64_t size = view->size[place];
    start = clamp(start < 0 ? start + size : start, 0, size);
    end = clamp(end < 0 ? end + size : end, start, size);
    view->offset += start * view->stride[place];
    view->size[place] = (end - start + step - 1) / step;
    view->stride[place] *= step;
    return TAP_OK;
}

tap_status tap__view_diagonal(const tap__call *call, tap__operand *view, int64_t offset, int64_t dim1, int64_t dim2,
                              tap_error *err)
{
    int first, second;
    TAP_TRY(tap__dim_place(call, dim1, view->ndim, &first, err));
    TAP_TRY(tap__dim_place(call, dim2, view->ndim, &second, err));
    if (first == second || view->ndim < 2)
        return tap_fail(err, TAP_E_INVALID, "%s: a diagonal needs two dimensions", call->name);
    int64_t rows = view->size[first] + (offset < 0 ? offset : 0);
    int64_t columns = view->size[second] - (offset > 0 ? offset : 0);
    int64_t size = rows < columns ? rows : columns, stride = view->stride[first] + view->stride[second];
    if (size > 0)
        view->offset += offset < 0 ? -offset * view->stride[first] : offset * view->stride[second];
    remove_dim(view, first > second ? first : second);
    remove_dim(view, first > second ? second : first);
    return insert_dim(call, view, view->ndim, size > 0 ? size : 0, stride, err);
}

/* Each output starts as the input. */
static void begin(tap__call *call)
{
    for (int i = 0; i < call->nout; i++) {
        call->out[i] = call->in[0];
        call->out[i].offset = 0;
    }
}

static int64_t int_attr(const tap__call *call, const char *name)
{
    return tap__call_attr(call, name)->i;
}

tap_status tap__shape_first(tap__call *call, tap_error *err)
{
    (void)err;
    begin(call);
    return TAP_OK;
}

tap_status tap__shape_as_strided(tap__call *call, tap_error *err)
{
    const tap__attr *size = tap__call_attr(call, "size"), *stride = tap__call_attr(call, "stride");
    const tap__attr *offset = tap__call_attr(call, "storage_offset");
    begin(call);
    tap__operand *out = &call->out[0];
    if (size->count != stride->count || size->count > TAP_ENGINE_MAX_NDIM)
        return tap_fail(err, TAP_E_INVALID, "%s: %d sizes and %d strides", call->name, size->count, stride->count);
    out->ndim = size->count;
    if (size->count) {
        memcpy(out->size, size->ints, (size_t)size->count * sizeof(int64_t));
        memcpy(out->stride, stride->ints, (size_t)size->count * sizeof(int64_t));
    }
    out->offset = offset->present ? offset->i : 0;
    return TAP_OK;
}

tap_status tap__shape_diagonal(tap__call *call, tap_error *err)
{
    begin(call);
    return tap__view_diagonal(call, &call->out[0], int_attr(call, "offset"), int_attr(call, "dim1"),
                              int_attr(call, "dim2"), err);
}

tap_status tap__shape_expand(tap__call *call, tap_error *err)
{
    const tap__attr *size = tap__call_attr(call, "size");
    const tap__operand *in = &call->in[0];
    begin(call);
    tap__operand *out = &call->out[0];
    int lead = size->count - in->ndim;
    if (lead < 0 || size->count > TAP_ENGINE_MAX_NDIM)
        return tap_fail(err, TAP_E_INVALID, "%s: %d dimensions cannot be expanded to %d", call->name, in->ndim,
                        size->count);
    out->ndim = size->count;
    for (int i = 0; i < out->ndim; i++) {
        int64_t from = i < lead ? 1 : in->size[i - lead], to = size->ints[i] == -1 && i >= lead ? from : size->ints[i];
        if (to < 0 || (to != from && from != 1))
            return tap_fail(err, TAP_E_INVALID, "%s: size %" PRId64 " cannot be expanded to %" PRId64, call->name, from,
                            to);
        out->size[i] = to;
        out->stride[i] = i < lead || to != from ? 0 : in->stride[i - lead];
    }
    return TAP_OK;
}

tap_status tap__shape_permute(tap__call *call, tap_error *err)
{
    const tap__attr *dims = tap__call_attr(call, "dims");
    const tap__operand *in = &call->in[0];
    unsigned seen = 0;
    begin(call);
    if (dims->count != in->ndim)
        return tap_fail(err, TAP_E_INVALID, "%s: %d dimensions named of %d", call->name, dims->count, in->ndim);
    for (int i = 0; i < dims->count; i++) {
        int from;
        TAP_TRY(tap__dim_place(call, dims->ints[i], in->ndim, &from, err));
        if (seen & 1u << from)
            return tap_fail(err, TAP_E_INVALID, "%s: dimension %d is named twice", call->name, from);
        seen |= 1u << from;
        call->out[0].size[i] = in->size[from];
        call->out[0].stride[i] = in->stride[from];
    }
    return TAP_OK;
}

tap_status tap__shape_select(tap__call *call, tap_error *err)
{
    begin(call);
    return tap__view_select(call, &call->out[0], int_attr(call, "dim"), int_attr(call, "index"), err);
}

tap_status tap__shape_slice(tap__call *call, tap_error *err)
{
    const tap__attr *start = tap__call_attr(call, "start"), *end = tap__call_attr(call, "end");
    begin(call);
    return tap__view_slice(call, &call->out[0], int_attr(call, "dim"), start->present ? start->i : 0,
                           end->present ? end->i : INT64_MAX, int_attr(call, "step"), err);
}

/* One output after the other along dim. */
static tap_status cut_along(tap__call *call, const int64_t *sizes, int64_t each, tap_error *err)
{
    int place;
    begin(call);
    TAP_TRY(tap__dim_place(call, int_attr(call, "dim"), call->in[0].ndim, &place, err));
    int64_t start = 0, size = call->in[0].ndim ? call->in[0].size[place] : 0;
    for (int i = 0; i < call->nout; i++) {
        int64_t wanted = sizes ? sizes[i] : each, left = size - start;
        if (wanted < 0 || (sizes && wanted > left))
            return tap_fail(err, TAP_E_INVALID, "%s: parts do not add up to size %" PRId64, call->name, size);
        TAP_TRY(tap__view_slice(call, &call->out[i], place, start, start + (wanted < left ? wanted : left), 1, err));
        start += call->out[i].size[place];
    }
    if (start != size)
        return tap_fail(err, TAP_E_INVALID, "%s: parts do not add up to size %" PRId64, call->name, size);
    return TAP_OK;
}

tap_status tap__shape_split(tap__call *call, tap_error *err)
{
    return cut_along(call, NULL, int_attr(call, "split_size"), err);
}

tap_status tap__shape_split_with_sizes(tap__call *call, tap_error *err)
{
    const tap__attr *sizes = tap__call_attr(call, "split_sizes");
    if (sizes->count != call->nout)
        return tap_fail(err, TAP_E_INVALID, "%s: %d sizes for %d outputs", call->name, sizes->count, call->nout);
    return cut_along(call, sizes->ints, 0, err);
}

tap_status tap__shape_squeeze(tap__call *call, tap_error *err)
{
    (void)err;
    begin(call);
    for (int i = call->in[0].ndim - 1; i >= 0; i--)
        if (call->in[0].size[i] == 1)
            remove_dim(&call->out[0], i);
    return TAP_OK;
}

static tap_status squeeze(tap__call *call, const int64_t *dims, int count, tap_error *err)
{
    unsigned gone = 0;
    begin(call);
    for (int i = 0; i < count; i++) {
        int place;
        TAP_TRY(tap__dim_place(call, dims[i], call->in[0].ndim, &place, err));
        gone |= 1u << place;
    }
    for (int i = call->in[0].ndim - 1; i >= 0; i--)
        if (gone & 1u << i && call->in[0].size[i] == 1)
            remove_dim(&call->out[0], i);
    return TAP_OK;
}

tap_status tap__shape_squeeze_dim(tap__call *call, tap_error *err)
{
    int64_t dim = int_attr(call, "dim");
    return squeeze(call, &dim, 1, err);
}

tap_status tap__shape_squeeze_dims(tap__call *call, tap_error *err)
{
    const tap__attr *dims = tap__call_attr(call, "dim");
    return squeeze(call, dims->ints, dims->count, err);
}

static tap_status swap(tap__call *call, int64_t first, int64_t second, tap_error *err)
{
    int a, b;
    begin(call);
    TAP_TRY(tap__dim_place(call, first, call->in[0].ndim, &a, err));
    TAP_TRY(tap__dim_place(call, second, call->in[0].ndim, &b, err));
    if (call->in[0].ndim == 0)
        return TAP_OK;
    call->out[0].size[a] = call->in[0].size[b];
    call->out[0].stride[a] = call->in[0].stride[b];
    call->out[0].size[b] = call->in[0].size[a];
    call->out[0].stride[b] = call->in[0].stride[a];
    return TAP_OK;
}

tap_status tap__shape_transpose(tap__call *call, tap_error *err)
{
    return swap(call, int_attr(call, "dim0"), int_attr(call, "dim1"), err);
}

tap_status tap__shape_transpose_matrix(tap__call *call, tap_error *err)
{
    if (call->in[0].ndim > 2)
        return tap_fail(err, TAP_E_INVALID, "%s: at most 2 dimensions, not %d", call->name, call->in[0].ndim);
    return swap(call, 0, -1, err);
}

tap_status tap__shape_unbind(tap__call *call, tap_error *err)
{
    begin(call);
    for (int i = 0; i < call->nout; i++)
        TAP_TRY(tap__view_select(call, &call->out[i], int_attr(call, "dim"), i, err));
    return TAP_OK;
}

tap_status tap__shape_unfold(tap__call *call, tap_error *err)
{
    int64_t size = int_attr(call, "size"), step = int_attr(call, "step");
    int place;
    begin(call);
    tap__operand *out = &call->out[0];
    TAP_TRY(tap__dim_place(call, int_attr(call, "dimension"), out->ndim, &place, err));
    int64_t whole = out->ndim ? out->size[place] : 1, stride = out->ndim ? out->stride[place] : 1;
    if (size < 0 || step < 1 || size > whole)
        return tap_fail(err, TAP_E_INVALID, "%s: windows of %" PRId64 " by steps of %" PRId64 " in size %" PRId64,
                        call->name, size, step, whole);
    if (out->ndim) {
        out->size[place] = (whole - size) / step + 1;
        out->stride[place] = stride * step;
    }
    return insert_dim(call, out, out->ndim, size, stride, err);
}

tap_status tap__shape_unsqueeze(tap__call *call, tap_error *err)
{
    int place;
    begin(call);
    tap__operand *out = &call->out[0];
    TAP_TRY(tap__dim_place(call, int_attr(call, "dim"), out->ndim + 1, &place, err));
    int64_t stride = place < out->ndim ? out->size[place] * out->stride[place] : 1;
    return insert_dim(call, out, place, 1, stride, err);
}

/* Strides of the same memory under other sizes: dimensions that lie behind one another are cut anew. */
static bool restride(const tap__operand *in, tap__operand *out)
{
    int to = out->ndim - 1;
    int64_t base = in->ndim ? in->stride[in->ndim - 1] : 1, have = 1, made = 1;
    for (int from = in->ndim - 1; from >= 0; from--) {
        have *= in->size[from];
        if (from > 0 && (in->size[from - 1] == 1 || in->stride[from - 1] == have * base))
            continue;
        while (to >= 0 && (made < have || out->size[to] == 1)) {
            out->stride[to] = made * base;
            made *= out->size[to--];
        }
        if (made != have)
            return false;
        if (from > 0) {
            base = in->stride[from - 1];
            have = made = 1;
        }
    }
    for (; to >= 0; to--)
        out->stride[to] = 1;
    return true;
}

tap_status tap__shape_view(tap__call *call, tap_error *err)
{
    const tap__attr *size = tap__call_attr(call, "size");
    const tap__operand *in = &call->in[0];
    int64_t count = tap__operand_count(in), known = 1;
    int open = -1;
    begin(call);
    tap__operand *out = &call->out[0];
    if (size->count > TAP_ENGINE_MAX_NDIM)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: more than %d dimensions", call->name, TAP_ENGINE_MAX_NDIM);
    out->ndim = size->count;
    for (int i = 0; i < out->ndim; i++) {
        out->size[i] = size->ints[i];
        if (size->ints[i] == -1 && open < 0)
            open = i;
        else
            known *= size->ints[i];
    }
    if (open >= 0)
        out->size[open] = known ? count / known : 0;
    if (tap__operand_count(out) != count)
        return tap_fail(err, TAP_E_INVALID, "%s: %" PRId64 " elements do not fill the sizes asked for", call->name,
                        count);
    if (count == 0) {
        int64_t stride = 1;
        for (int i = out->ndim - 1; i >= 0; i--) {
            out->stride[i] = stride;
            stride *= out->size[i] ? out->size[i] : 1;
        }
        return TAP_OK;
    }
    if (!restride(in, out))
        return tap_fail(err, TAP_E_INVALID, "%s: the strides allow no view of these sizes", call->name);
    return TAP_OK;
}

static tap_dtype part_of(tap_dtype dtype)
{
    return dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : dtype == TAP_C128 ? TAP_F64 : TAP_DTYPE_NONE;
}

static tap_dtype complex_of(tap_dtype dtype)
{
    return dtype == TAP_F16 ? TAP_C32 : dtype == TAP_F32 ? TAP_C64 : dtype == TAP_F64 ? TAP_C128 : TAP_DTYPE_NONE;
}

tap_status tap__shape_view_as_real(tap__call *call, tap_error *err)
{
    begin(call);
    tap__operand *out = &call->out[0];
    out->dtype = part_of(call->in[0].dtype);
    if (out->dtype == TAP_DTYPE_NONE)
        return tap_fail(err, TAP_E_INVALID, "%s: the input is not complex", call->name);
    for (int i = 0; i < out->ndim; i++)
        out->stride[i] *= 2;
    return insert_dim(call, out, out->ndim, 2, 1, err);
}

tap_status tap__shape_view_as_complex(tap__call *call, tap_error *err)
{
    begin(call);
    tap__operand *out = &call->out[0];
    out->dtype = complex_of(call->in[0].dtype);
    if (out->dtype == TAP_DTYPE_NONE || out->ndim < 1 || out->size[out->ndim - 1] != 2)
        return tap_fail(err, TAP_E_INVALID, "%s: the input is not pairs of floats", call->name);
    out->ndim--;
    for (int i = 0; i < out->ndim; i++)
        out->stride[i] /= 2;
    return TAP_OK;
}

tap_status tap__shape_view_dtype(tap__call *call, tap_error *err)
{
    begin(call);
    tap__operand *out = &call->out[0];
    out->dtype = (tap_dtype)int_attr(call, "dtype");
    const tap_dtype_info *to = tap_dtype_describe(out->dtype), *from = tap_dtype_describe(call->in[0].dtype);
    if (!to || !from)
        return tap_fail(err, TAP_E_INVALID, "%s: dtype %d is not known", call->name, (int)out->dtype);
    if (to->bytes == from->bytes)
        return TAP_OK;
    int last = out->ndim - 1;
    if (last < 0 || out->stride[last] != 1 || (out->size[last] * from->bytes) % to->bytes)
        return tap_fail(err, TAP_E_INVALID, "%s: the last dimension cannot be seen as %s", call->name, to->name);
    out->size[last] = out->size[last] * from->bytes / to->bytes;
    for (int i = 0; i < last; i++)
        out->stride[i] = out->stride[i] * from->bytes / to->bytes;
    return TAP_OK;
}
