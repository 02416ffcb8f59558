/* print.c - tensors as text, as numpy's str(array) writes them: the same choice of notation, alignment, line breaks and
 * summary. Three visits of the values that are shown: what range they have, how wide they get, and the text. */
#include "tensortap/tensortap.h"

#include "base/sized.h"
#include "base/strbuf.h"
#include "tensor/decimal.h"
#include "tensor/element.h"
#include "tensor/float_mode.h"
#include "tensor/walk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How one float (or one part of a complex) is written. */
typedef struct float_format {
    bool any_finite, any_special, negative_infinity, scientific;
    double largest, smallest; /* magnitudes, not zero; 0: none */
    int whole, fraction, exponent; /* widths seen */
    tap_decimal how;
} float_format;

typedef struct printer {
    const tap_tensor *tensor;
    char kind;
    int values; /* in one element */
    tap_print_options opt;
    bool summary;
    int ndim;
    int64_t shape[TAP_MAX_NDIM + 1];
    float_format real, imag;
    int int_width;
    tap_strbuf line, out;
    tap_write_fn write;
    void *user;
} printer;

typedef void (*visit_fn)(printer *p, const tap_scalar *value);

/* The element at an index of the shape that is shown; a packed element is two values along the last dimension. */
static tap_scalar value_at(const printer *p, const char *at, int64_t last)
{
    return tap__element_get(p->tensor->dtype, at, p->values == 2 ? (int)(last % 2) : 0);
}

static int64_t stride_of(const printer *p, int axis)
{
    const tap_tensor *t = p->tensor;
    if (axis >= t->ndim)
        return 0;
    if (t->strides)
        return t->strides[axis];
    int64_t stride = 1;
    for (int i = t->ndim - 1; i > axis; i--)
        stride *= t->shape[i];
    return stride;
}

static const char *step(const printer *p, const char *at, int axis, int64_t index)
{
    if (p->values == 2 && axis == p->ndim - 1)
        index /= 2;
    return at + index * stride_of(p, axis) * tap_dtype_describe(p->tensor->dtype)->bytes;
}

static bool shortened(const printer *p, int axis)
{
    return p->summary && p->shape[axis] > 2 * (int64_t)p->opt.edge_items;
}

/* The next index that is shown. */
static int64_t following(const printer *p, int axis, int64_t index)
{
    index++;
    return shortened(p, axis) && index == p->opt.edge_items ? p->shape[axis] - p->opt.edge_items : index;
}

static void visit(printer *p, int axis, const char *at, int64_t last, visit_fn fn)
{
    if (axis == p->ndim) {
        tap_scalar value = value_at(p, at, last);
        fn(p, &value);
        return;
    }
    for (int64_t i = 0; i < p->shape[axis]; i = following(p, axis, i))
        visit(p, axis + 1, step(p, at, axis, i), i, fn);
}

/* ------------------------------------------------------------------------------------------------------ numbers */

static void note_range(float_format *f, double x)
{
    if (!isfinite(x)) {
        f->any_special = true;
        f->negative_infinity |= isinf(x) && x < 0;
        return;
    }
    f->any_finite = true;
    x = fabs(x);
    if (x > f->largest)
        f->largest = x;
    if (x > 0 && (f->smallest == 0 || x < f->smallest))
        f->smallest = x;
}

static void visit_range(printer *p, const tap_scalar *value)
{
    note_range(&p->real, value->re);
    if (p->kind == 'C')
        note_range(&p->imag, value->im);
}

/* x as the type the values have, as numpy computes with it. */
static double in_width(tap_width width, double x)
{
    if (width == TAP_WIDTH_DOUBLE)
        return x;
    if (width == TAP_WIDTH_SINGLE)
        return (double)(float)x;
    uint16_t half;
    tap_scalar scalar = {.kind = 'F', .re = (double)(float)x};
    tap__element_put(TAP_F16, &half, 0, &scalar);
    return (double)tap__decode_f16(half);
}

static void choose_notation(float_format *f)
{
    static const double CUTOFF[] = {1e3, 1e6, 1e8};
    if (f->largest > 0) {
        tap_width width = f->how.width;
        double ratio = width == TAP_WIDTH_DOUBLE ? f->largest / f->smallest
                                                 : in_width(width, (double)((float)f->largest / (float)f->smallest));
        f->scientific = f->largest >= CUTOFF[width] || f->smallest < in_width(width, 0.0001) || ratio > 1000;
    }
    f->how.trim = TAP_TRIM_POINT;
}

static void note_width(float_format *f, double x)
{
    char text[TAP_DECIMAL_MAX];
    if (!isfinite(x))
        return;
    int len = f->scientific ? tap__decimal_scientific(text, x, &f->how) : tap__decimal_positional(text, x, &f->how);
    int whole = (int)(strchr(text, '.') - text), end = len;
    if (f->scientific) {
        end = (int)(strchr(text, 'e') - text);
        f->exponent = len - end - 2 > f->exponent ? len - end - 2 : f->exponent;
    }
    f->whole = whole > f->whole ? whole : f->whole;
    f->fraction = end - whole - 1 > f->fraction ? end - whole - 1 : f->fraction;
}

static void visit_width(printer *p, const tap_scalar *value)
{
    note_width(&p->real, value->re);
    if (p->kind == 'C')
        note_width(&p->imag, value->im);
}

static void choose_width(float_format *f)
{
    tap_decimal *how = &f->how;
    how->pad_left = f->whole;
    how->pad_right = f->fraction;
    if (f->scientific) {
        how->trim = TAP_TRIM_NONE;
        how->precision = how->fraction = f->fraction;
        how->exponent = f->exponent;
        how->pad_right = f->exponent + 2 + f->fraction;
    }
    if (f->any_special) {
        int infinity = 3 + (how->plus || f->negative_infinity) - (how->pad_right + 1);
        int nan = 3 - (how->pad_right + 1);
        how->pad_left = nan > how->pad_left ? nan : how->pad_left;
        how->pad_left = infinity > how->pad_left ? infinity : how->pad_left;
    }
}

static int float_text(char *text, const float_format *f, double x)
{
    if (isfinite(x))
        return f->scientific ? tap__decimal_scientific(text, x, &f->how) : tap__decimal_positional(text, x, &f->how);
    const char *sign = isnan(x) || x > 0 ? f->how.plus ? "+" : "" : "-";
    char word[8];
    snprintf(word, sizeof word, "%s%s", sign, isnan(x) ? "nan" : "inf");
    return snprintf(text, TAP_DECIMAL_MAX, "%*s", f->how.pad_left + f->how.pad_right + 1, word);
}

static int integer_text(char *text, const tap_scalar *value, int width)
{
    return value->kind == 'U' ? snprintf(text, TAP_DECIMAL_MAX, "%*llu", width, (unsigned long long)value->u)
                              : snprintf(text, TAP_DECIMAL_MAX, "%*lld", width, (long long)value->i);
}

static void visit_integer(printer *p, const tap_scalar *value)
{
    char text[TAP_DECIMAL_MAX];
    int len = integer_text(text, value, 0);
    p->int_width = len > p->int_width ? len : p->int_width;
}

static int value_text(const printer *p, char *text, const tap_scalar *value)
{
    if (p->kind == 'B')
        return snprintf(text, TAP_DECIMAL_MAX, "%s", value->u ? " True" : "False");
    if (p->kind == 'U' || p->kind == 'I')
        return integer_text(text, value, p->int_width);
    int len = float_text(text, &p->real, value->re);
    if (p->kind == 'C') { /* the j stands before the spaces that pad the imaginary part */
        len += float_text(text + len, &p->imag, value->im);
        int end = len;
        while (text[end - 1] == ' ')
            end--;
        memmove(text + end + 1, text + end, (size_t)(len - end) + 1);
        text[end] = 'j';
        len++;
    }
    return len;
}

static tap_width width_of(tap_dtype dtype)
{
    if (dtype == TAP_F64 || dtype == TAP_C128)
        return TAP_WIDTH_DOUBLE;
    return dtype == TAP_F16 ? TAP_WIDTH_HALF : TAP_WIDTH_SINGLE;
}

static void choose_formats(printer *p)
{
    if (p->kind == 'U' || p->kind == 'I') {
        visit(p, 0, p->tensor->data, 0, visit_integer);
        return;
    }
    if (p->kind == 'B')
        return;
    p->real.how = (tap_decimal){.width = width_of(p->tensor->dtype), .precision = p->opt.precision};
    p->imag.how = p->real.how;
    p->imag.how.plus = true;
    visit(p, 0, p->tensor->data, 0, visit_range);
    choose_notation(&p->real);
    choose_notation(&p->imag);
    visit(p, 0, p->tensor->data, 0, visit_width);
    choose_width(&p->real);
    choose_width(&p->imag);
}

/* -------------------------------------------------------------------------------------------- lines and brackets */

static void flush(printer *p)
{
    if (p->out.len && !p->out.failed)
        p->write(p->user, p->out.text, p->out.len);
    tap__strbuf_clear(&p->out);
}

static void add_indent(tap_strbuf *to, int indent)
{
    for (int i = 0; i < indent; i++)
        tap__strbuf_char(to, ' ');
}

/* Moves the line to the output; the first line of a row stands behind its bracket and has no indent of its own. */
static void end_line(printer *p, int indent, bool first, bool last)
{
    size_t len = p->line.len, from = first ? (size_t)indent : 0;
    while (!last && len > from && p->line.text[len - 1] == ' ')
        len--;
    if (!p->line.failed)
        tap__strbuf_add(&p->out, p->line.text + from, len - from);
    tap__strbuf_clear(&p->line);
    if (p->out.len > 1 << 16)
        flush(p);
}

static void add_word(printer *p, const char *word, size_t len, int width, int indent, bool *first)
{
    if ((int64_t)(p->line.len + len) > width && p->line.len > (size_t)indent) {
        end_line(p, indent, *first, false);
        tap__strbuf_char(&p->out, '\n');
        *first = false;
        add_indent(&p->line, indent);
    }
    tap__strbuf_add(&p->line, word, len);
}

/* The innermost dimension: words, wrapped where they would pass the width. */
static void print_row(printer *p, const char *at, int indent, int width)
{
    int axis = p->ndim - 1;
    bool first = true;
    add_indent(&p->line, indent);
    for (int64_t i = 0; i < p->shape[axis];) {
        char text[2 * TAP_DECIMAL_MAX];
        tap_scalar value = value_at(p, step(p, at, axis, i), i);
        int len = value_text(p, text, &value);
        add_word(p, text, (size_t)len, width - 1, indent, &first);
        int64_t next = following(p, axis, i);
        if (next < p->shape[axis])
            tap__strbuf_char(&p->line, ' ');
        if (next > i + 1) {
            add_word(p, "...", 3, width - 1, indent, &first);
            tap__strbuf_char(&p->line, ' ');
        }
        i = next;
    }
    end_line(p, indent, first, true);
}

static void print_axis(printer *p, int axis, const char *at, int indent, int width)
{
    tap__strbuf_char(&p->out, '[');
    if (axis == p->ndim - 1) {
        print_row(p, at, indent, width);
    } else {
        for (int64_t i = 0; i < p->shape[axis];) {
            int64_t next = following(p, axis, i);
            if (i > 0)
                add_indent(&p->out, indent);
            print_axis(p, axis + 1, step(p, at, axis, i), indent + 1, width - 1);
            for (int repeat = 0; repeat < (next > i + 1 ? 2 : next < p->shape[axis] ? 1 : 0); repeat++) {
                if (repeat) {
                    add_indent(&p->out, indent);
                    tap__strbuf_str(&p->out, "...");
                }
                for (int k = 0; k < p->ndim - axis - 1; k++)
                    tap__strbuf_char(&p->out, '\n');
            }
            i = next;
        }
    }
    tap__strbuf_char(&p->out, ']');
}

/* --------------------------------------------------------------------------------------------------- one value */

static void scalar_float(tap_strbuf *out, double x, tap_width width, tap_trim trim, bool plus)
{
    static const double CUTOFF[] = {1e3, 1e6, 1e16};
    char text[TAP_DECIMAL_MAX];
    tap_decimal how = {.width = width, .precision = -1, .trim = trim, .plus = plus};
    if (!isfinite(x)) {
        tap__strbuf_printf(out, "%s%s", !isnan(x) && x < 0 ? "-" : plus ? "+" : "", isnan(x) ? "nan" : "inf");
        return;
    }
    double size = fabs(x);
    if (size == 0 || (size >= 1e-4 && size < CUTOFF[width])) {
        tap__decimal_positional(text, x, &how);
    } else {
        how.trim = TAP_TRIM_ALL;
        tap__decimal_scientific(text, x, &how);
    }
    tap__strbuf_str(out, text);
}

static void print_scalar(printer *p)
{
    char text[TAP_DECIMAL_MAX];
    tap_scalar v = tap__element_get(p->tensor->dtype, p->tensor->data, 0);
    tap_width width = width_of(p->tensor->dtype);
    if (p->kind == 'B') {
        tap__strbuf_str(&p->out, v.u ? "True" : "False");
    } else if (p->kind == 'U' || p->kind == 'I') {
        integer_text(text, &v, 0);
        tap__strbuf_str(&p->out, text);
    } else if (p->kind == 'F') {
        scalar_float(&p->out, v.re, width, TAP_TRIM_ONE_ZERO, false);
    } else if (v.re == 0 && !signbit(v.re)) {
        scalar_float(&p->out, v.im, width, TAP_TRIM_ALL, false);
        tap__strbuf_char(&p->out, 'j');
    } else {
        tap__strbuf_char(&p->out, '(');
        scalar_float(&p->out, v.re, width, TAP_TRIM_ALL, false);
        scalar_float(&p->out, v.im, width, TAP_TRIM_ALL, true);
        tap__strbuf_str(&p->out, "j)");
    }
}

/* ------------------------------------------------------------------------------------------------------ the call */

void tap_print_options_init_sized(tap_print_options *options, size_t size)
{
    static const tap_print_options USUAL = {.precision = 8, .threshold = 1000, .edge_items = 3, .line_width = 75};
    tap__sized_init(options, size, &USUAL, sizeof USUAL);
}

static void read_options(printer *p, const tap_print_options *options)
{
    tap_print_options_init(&p->opt);
    if (options)
        tap__sized_take(&p->opt, options);
    if (p->opt.precision < 0)
        p->opt.precision = 0;
    if (p->opt.edge_items < 1)
        p->opt.edge_items = 1;
}

tap_status tap_tensor_print(const tap_tensor *tensor, const tap_print_options *options, tap_write_fn write, void *user,
                            tap_error *err)
{
    TAP_NEED(err, tensor);
    TAP_NEED(err, write);
    if (options)
        TAP_NEED_SIZE(err, tap_print_options, options);
    int64_t count;
    TAP_TRY(tap__tensor_check(tensor, &count, err));
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    printer p = {.tensor = tensor, .kind = info->kind, .values = info->values, .ndim = tensor->ndim, .write = write,
                 .user = user};
    __auto_type mode = tap__float_mode_enter();
    read_options(&p, options);
    for (int i = 0; i < tensor->ndim; i++)
        p.shape[i] = tensor->shape[i];
    if (info->values == 2 && p.ndim == 0)
        p.shape[p.ndim++] = 1;
    if (info->values == 2)
        p.shape[p.ndim - 1] *= 2;
    if (count == 0) {
        tap__strbuf_str(&p.out, "[]");
    } else if (p.ndim == 0) {
        print_scalar(&p);
    } else {
        p.summary = count * info->values > p.opt.threshold;
        choose_formats(&p);
        print_axis(&p, 0, tensor->data, 1, p.opt.line_width);
    }
    flush(&p);
    bool failed = p.out.failed || p.line.failed;
    tap__strbuf_free(&p.out);
    tap__strbuf_free(&p.line);
    tap__float_mode_leave(mode);
    return failed ? tap_fail_nomem(err) : TAP_OK;
}
