/* difference.c - one pass over two tensors: blocks go to a kernel, and those it cannot judge are looked at value by
 * value. Blocks are added up in order, with what each addition loses, so results do not depend on the machine. */
#include "compare/difference.h"

#include "base/sized.h"
#include "tensor/element.h"
#include "tensor/float_mode.h"
#include "tensor/kernels/by_isa.h"
#include "tensor/walk.h"

#include <math.h>

static const tap_pair_kernels *pair_kernels(void)
{
    TAP__BY_ISA(tap__pair_kernels);
}

void tap_difference_init_sized(tap_difference *difference, size_t size)
{
    static const tap_difference USUAL = {.first.index = -1, .worst.index = -1};
    tap__sized_init(difference, size, &USUAL, sizeof USUAL);
}

/* -------------------------------------------------------------------------------------------------------- dtypes */

/* Digits of the fraction and exponent of the smallest normal number of a float dtype, or of one part of a complex. */
static bool float_digits(tap_dtype dtype, int *digits, int *exponent)
{
    static const struct {
        tap_dtype dtype;
        int digits, exponent;
    } FLOATS[] = {
        {TAP_F16, 10, -14},      {TAP_BF16, 7, -126},      {TAP_F32, 23, -126},      {TAP_F64, 52, -1022},
        {TAP_C32, 10, -14},      {TAP_C64, 23, -126},      {TAP_C128, 52, -1022},    {TAP_F8E4M3FN, 3, -6},
        {TAP_F8E5M2, 2, -14},    {TAP_F8E4M3FNUZ, 3, -7},  {TAP_F8E5M2FNUZ, 2, -15}, {TAP_F8E8M0FNU, 0, -127},
        {TAP_F4E2M1X2, 1, 0},
    };
    for (size_t i = 0; i < sizeof FLOATS / sizeof FLOATS[0]; i++)
        if (FLOATS[i].dtype == dtype) {
            *digits = FLOATS[i].digits;
            *exponent = FLOATS[i].exponent;
            return true;
        }
    return false;
}

double tap__dtype_roundoff(tap_dtype dtype)
{
    int digits, exponent;
    return float_digits(dtype, &digits, &exponent) ? ldexp(1, -digits - 1) : 0;
}

static bool is_integer(const tap_dtype_info *info)
{
    return info->kind == 'B' || info->kind == 'U' || info->kind == 'I';
}

static bool is_packed(const tap_dtype_info *info)
{
    return info->values > 1;
}

static void digits_choose(tap_difference_pass *pass)
{
    int digits[2] = {0, 0}, exponent[2] = {0, 0};
    bool floats[2] = {float_digits(pass->a->dtype, &digits[0], &exponent[0]),
                      float_digits(pass->b->dtype, &digits[1], &exponent[1])};
    int coarser = !floats[0] || (floats[1] && digits[1] < digits[0]);
    pass->digits = floats[0] || floats[1] ? digits[coarser] : -1;
    pass->normal = floats[0] || floats[1] ? ldexp(1, exponent[coarser]) : 1;
}

static void way_choose(tap_difference_pass *pass)
{
    static const tap_dtype DIRECT[TAP_FORM_COUNT] = {
        [TAP_FORM_F64] = TAP_F64, [TAP_FORM_F32] = TAP_F32, [TAP_FORM_BF16] = TAP_BF16, [TAP_FORM_F16] = TAP_F16};
    pass->form = TAP_FORM_F64;
    pass->way = TAP_WAY_DECODED;
    if (pass->a->kind == 'C' || pass->b->kind == 'C')
        pass->way = TAP_WAY_COMPLEX;
    else if (is_integer(pass->a) && is_integer(pass->b) && (pass->a->bytes == 8 || pass->b->bytes == 8))
        pass->way = TAP_WAY_INTEGER;
    for (int form = 0; form < TAP_FORM_COUNT; form++)
        if (pass->a == pass->b && pass->a->dtype == DIRECT[form]) {
            pass->form = (tap_pair_form)form;
            pass->way = TAP_WAY_DIRECT;
        }
}

tap_status tap__difference_begin(tap_difference_pass *pass, tap_dtype a, tap_dtype b, tap_error *err)
{
    *pass = (tap_difference_pass){.kernels = pair_kernels(), .a = tap_dtype_describe(a), .b = tap_dtype_describe(b)};
    tap_difference_init(&pass->out);
    if (!pass->a || !pass->b)
        return tap_fail(err, TAP_E_INVALID, "tensor: dtype %d is not known; use one of tap_dtype",
                        (int)(pass->a ? b : a));
    if (is_packed(pass->a) != is_packed(pass->b))
        return tap_fail(err, TAP_E_INVALID, "compare: %s holds two values in an element, %s one; convert one of them",
                        is_packed(pass->a) ? pass->a->name : pass->b->name,
                        is_packed(pass->a) ? pass->b->name : pass->a->name);
    digits_choose(pass);
    way_choose(pass);
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- values */

static tap_scalar value_get(const tap_dtype_info *info, const void *block, size_t i)
{
    return tap__element_get(info->dtype, (const char *)block + i / info->values * info->bytes,
                            (int)(i % info->values));
}

static tap_number number_of(const tap_scalar *value)
{
    return value->kind == 'I' ? (tap_number){.i = value->i}
           : value->kind == 'U' ? (tap_number){.u = value->u}
                                : (tap_number){.f = value->re};
}

static void place_set(tap_difference_pass *pass, tap_place *place, const void *a, const void *b, size_t i)
{
    tap_scalar va = value_get(pass->a, a, i), vb = value_get(pass->b, b, i);
    *place = (tap_place){(int64_t)(pass->out.count + i), number_of(&va), number_of(&vb), va.im, vb.im};
}

/* Real part of any value. */
static double real_of(const tap_scalar *value)
{
    return value->kind == 'F' || value->kind == 'C' ? value->re : tap__scalar_float(value);
}

/* What one pair of values is, beyond being equal. */
typedef struct pair_facts {
    bool equal, unlike, finite;
    double error, size_a, size_b;  /* of finite pairs */
    long double square_a, square_b, product;
} pair_facts;

static bool is_finite(const tap_scalar *v)
{
    return isfinite(v->re) && isfinite(v->im);
}

static void count_special(tap_difference *out, int side, const tap_scalar *v)
{
    if (is_finite(v))
        return;
    if (isnan(v->re) || isnan(v->im))
        out->nan[side]++;
    else if (v->re == -INFINITY && v->kind == 'F')
        out->neg_inf[side]++;
    else
        out->pos_inf[side]++;
}

static bool same_float(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static pair_facts facts_of(const tap_scalar *a, const tap_scalar *b)
{
    pair_facts f = {.finite = is_finite(a) && is_finite(b)};
    double ra = real_of(a), rb = real_of(b);
    f.equal = same_float(ra, rb) && same_float(a->im, b->im);
    f.unlike = !f.equal && !f.finite;
    if (!f.finite)
        return f;
    f.error = a->kind == 'C' || b->kind == 'C' ? tap__magnitude(ra - rb, a->im - b->im) : fabs(ra - rb);
    f.size_a = tap__magnitude(ra, a->im);
    f.size_b = tap__magnitude(rb, b->im);
    f.square_a = (long double)f.size_a * f.size_a;
    f.square_b = (long double)f.size_b * f.size_b;
    f.product = (long double)ra * rb + (long double)a->im * b->im;
    return f;
}

static __int128 integer_of(const tap_scalar *v)
{
    return v->kind == 'I' ? (__int128)v->i : (__int128)v->u;
}

static pair_facts facts_of_integers(const tap_scalar *a, const tap_scalar *b)
{
    __int128 x = integer_of(a), y = integer_of(b), d = x > y ? x - y : y - x;
    pair_facts f = {.equal = d == 0, .finite = true, .error = (double)d};
    f.size_a = fabs((double)x);
    f.size_b = fabs((double)y);
    f.square_a = (long double)x * (long double)x;
    f.square_b = (long double)y * (long double)y;
    f.product = (long double)x * (long double)y;
    return f;
}

/* -------------------------------------------------------------------------------------------------------- blocks */

#define DECODE(type, decode)                                                                                         \
    for (size_t i = 0; i < values; i++) {                                                                            \
        type v;                                                                                                      \
        memcpy(&v, (const char *)src + i * sizeof v, sizeof v);                                                      \
        dst[i] = (double)(decode);                                                                                   \
    }                                                                                                                \
    break

void tap__block_decode(const tap_dtype_info *info, const void *src, size_t values, double *dst)
{
    switch (info->dtype) {
    case TAP_BOOL: DECODE(uint8_t, v != 0);
    case TAP_U8: DECODE(uint8_t, v);
    case TAP_U16: DECODE(uint16_t, v);
    case TAP_U32: DECODE(uint32_t, v);
    case TAP_U64: DECODE(uint64_t, v);
    case TAP_I8: DECODE(int8_t, v);
    case TAP_I16: DECODE(int16_t, v);
    case TAP_I32: DECODE(int32_t, v);
    case TAP_I64: DECODE(int64_t, v);
    case TAP_F16: DECODE(uint16_t, tap__decode_f16(v));
    case TAP_BF16: DECODE(uint16_t, tap__decode_bf16(v));
    case TAP_F32: DECODE(float, v);
    case TAP_F64: DECODE(double, v);
    default:
        for (size_t i = 0; i < values; i++) {
            tap_scalar v = value_get(info, src, i);
            dst[i] = tap__scalar_float(&v);
        }
    }
}

static void worst_take(tap_difference_pass *pass, const void *a, const void *b, size_t i, double error, bool unlike)
{
    tap_difference *out = &pass->out;
    if (pass->worst_is_unlike || !(unlike || error > out->max_abs || out->worst.index < 0))
        return;
    place_set(pass, &out->worst, a, b, i);
    pass->worst_is_unlike = unlike;
}

static void pair_take(tap_difference_pass *pass, const pair_facts *f)
{
    pass->finite++;
    pass->wide_abs += f->error;
    pass->wide_square += (long double)f->error * f->error;
    pass->wide_squares[0] += f->square_a;
    pass->wide_squares[1] += f->square_b;
    pass->wide_product += f->product;
    pass->from_zero |= f->size_b == 0 && f->error > 0;
    if (f->size_b != 0 && f->error > 0) {
        double rel = f->error / f->size_b;
        int exponent;
        frexp(fmax(f->size_b, pass->normal), &exponent);
        double scaled = ldexp(f->error, 1 - exponent);
        pass->wide_rel += rel;
        pass->out.max_rel = fmax(pass->out.max_rel, rel);
        pass->max_scaled = fmax(pass->max_scaled, scaled);
    } else if (f->error > 0) {
        pass->max_scaled = fmax(pass->max_scaled, f->error / pass->normal);
    }
}

/* Value by value: whatever a kernel does not know. */
static void block_slow(tap_difference_pass *pass, const void *a, const void *b, size_t count)
{
    tap_difference *out = &pass->out;
    for (size_t i = 0; i < count; i++) {
        tap_scalar va = value_get(pass->a, a, i), vb = value_get(pass->b, b, i);
        pair_facts f = pass->way == TAP_WAY_INTEGER ? facts_of_integers(&va, &vb) : facts_of(&va, &vb);
        count_special(out, 0, &va);
        count_special(out, 1, &vb);
        out->unlike += f.unlike;
        out->different += !f.equal;
        if (!f.equal) {
            if (out->first.index < 0)
                place_set(pass, &out->first, a, b, i);
            worst_take(pass, a, b, i, f.error, f.unlike);
        }
        if (!f.finite)
            continue;
        out->max_abs = fmax(out->max_abs, f.error);
        pair_take(pass, &f);
    }
}

/* Squares that came out neither infinite nor so small that digits were lost. A sum of 0 is of zeros only where the
 * values cannot vanish when squared, which float64 ones can. */
static bool square_is_sound(double square, bool zeros)
{
    return square <= 0x1p1000 && (square >= 0x1p-900 || (square == 0 && zeros));
}

static bool is_zero(const double *values, size_t count)
{
    uint64_t any = 0;
    for (size_t i = 0; i < count; i++)
        any |= tap__bits_of_double(values[i]) << 1;
    return any == 0;
}

static bool sums_are_sound(const tap_difference_pass *pass, const tap_pair_sums *s, const double *a, const double *b,
                           size_t count)
{
    bool wide = pass->way == TAP_WAY_DIRECT && pass->form == TAP_FORM_F64;
    wide |= pass->a->dtype == TAP_F64 || pass->b->dtype == TAP_F64;
    bool zero_a = s->squares[0] != 0 || !wide || is_zero(a, count);
    bool zero_b = s->squares[1] != 0 || !wide || is_zero(b, count);
    return square_is_sound(s->squares[0], zero_a) && square_is_sound(s->squares[1], zero_b) &&
           square_is_sound(s->square, s->different == 0 || !wide) && isfinite(s->rel);
}

/* Where in a block is the first difference, and where the largest? */
static void block_places(tap_difference_pass *pass, const void *a, const void *b, size_t count, const tap_pair_sums *s)
{
    tap_difference *out = &pass->out;
    bool want_first = out->first.index < 0;
    bool want_worst = !pass->worst_is_unlike && (s->max_abs > out->max_abs || out->worst.index < 0);
    double x[TAP_PAIR_BLOCK], y[TAP_PAIR_BLOCK];
    if (!want_first && !want_worst)
        return;
    tap__block_decode(pass->a, a, count, x);
    tap__block_decode(pass->b, b, count, y);
    for (size_t i = 0; i < count && (want_first || want_worst); i++) {
        double error = fabs(x[i] - y[i]);
        if (want_first && error > 0)
            place_set(pass, &out->first, a, b, i);
        if (want_worst && error == s->max_abs)
            place_set(pass, &out->worst, a, b, i);
        want_first &= !(error > 0);
        want_worst &= error != s->max_abs;
    }
}

static void sums_take(tap_difference_pass *pass, const tap_pair_sums *s, size_t count)
{
    tap_difference *out = &pass->out;
    pass->finite += count;
    pass->from_zero |= s->from_zero > 0;
    out->different += s->different;
    out->max_abs = fmax(out->max_abs, s->max_abs);
    out->max_rel = fmax(out->max_rel, s->max_rel);
    pass->max_scaled = fmax(pass->max_scaled, s->max_scaled);
    tap__pair_add(&pass->abs, s->abs);
    tap__pair_add(&pass->rel, s->rel);
    tap__pair_add(&pass->square, s->square);
    tap__pair_add(&pass->squares[0], s->squares[0]);
    tap__pair_add(&pass->squares[1], s->squares[1]);
    tap__pair_add(&pass->product, s->product);
}

/* Equal bytes of a dtype a kernel reads: only the norm is left to know. */
static bool block_equal(tap_difference_pass *pass, const void *a, const void *b, size_t count)
{
    if (pass->way != TAP_WAY_DIRECT || memcmp(a, b, count * pass->a->bytes) != 0)
        return false;
    double square = pass->kernels->squares[pass->form](a, count);
    bool zeros = pass->form != TAP_FORM_F64 || square != 0 || is_zero(a, count);
    if (!square_is_sound(square, zeros))
        return false;
    pass->finite += count;
    tap__pair_add(&pass->squares[0], square);
    tap__pair_add(&pass->squares[1], square);
    tap__pair_add(&pass->product, square);
    return true;
}

static void block_compare(tap_difference_pass *pass, const void *a, const void *b, size_t count)
{
    tap_pair_sums s;
    double x[TAP_PAIR_BLOCK], y[TAP_PAIR_BLOCK];
    if (pass->way == TAP_WAY_INTEGER || pass->way == TAP_WAY_COMPLEX) {
        block_slow(pass, a, b, count);
        return;
    }
    if (block_equal(pass, a, b, count))
        return;
    const void *left = a, *right = b;
    if (pass->way == TAP_WAY_DECODED) {
        tap__block_decode(pass->a, a, count, x);
        tap__block_decode(pass->b, b, count, y);
        left = x;
        right = y;
    }
    pass->kernels->pairs[pass->form](&s, left, right, count, pass->normal);
    if (!sums_are_sound(pass, &s, left, right, count)) {
        block_slow(pass, a, b, count);
        return;
    }
    if (s.different)
        block_places(pass, a, b, count, &s);
    sums_take(pass, &s, count);
}

void tap__difference_next(tap_difference_pass *pass, const void *a, const void *b, int64_t elements)
{
    __auto_type mode = tap__float_mode_enter();
    const char *left = a, *right = b;
    for (int64_t values = elements * pass->a->values; values > 0;) {
        size_t count = values < TAP_PAIR_BLOCK ? (size_t)values : TAP_PAIR_BLOCK;
        block_compare(pass, left, right, count);
        pass->out.count += count;
        left += count / pass->a->values * pass->a->bytes;
        right += count / pass->b->values * pass->b->bytes;
        values -= (int64_t)count;
    }
    tap__float_mode_leave(mode);
}

/* ---------------------------------------------------------------------------------------------------- the result */

static void pair_join(tap_pair *into, tap_pair more)
{
    tap__pair_add(into, more.high);
    into->low += more.low;
}

static void places_join(tap_difference_pass *pass, const tap_difference_pass *later)
{
    tap_difference *out = &pass->out;
    const tap_difference *more = &later->out;
    if (out->first.index < 0 && more->first.index >= 0) {
        out->first = more->first;
        out->first.index += (int64_t)out->count;
    }
    bool worse = later->worst_is_unlike || more->max_abs > out->max_abs || out->worst.index < 0;
    if (more->worst.index < 0 || pass->worst_is_unlike || !worse)
        return;
    out->worst = more->worst;
    out->worst.index += (int64_t)out->count;
    pass->worst_is_unlike = later->worst_is_unlike;
}

void tap__difference_join(tap_difference_pass *pass, const tap_difference_pass *later)
{
    tap_difference *out = &pass->out;
    const tap_difference *more = &later->out;
    places_join(pass, later);
    out->count += more->count;
    out->different += more->different;
    out->unlike += more->unlike;
    out->max_abs = fmax(out->max_abs, more->max_abs);
    out->max_rel = fmax(out->max_rel, more->max_rel);
    pass->max_scaled = fmax(pass->max_scaled, later->max_scaled);
    pass->finite += later->finite;
    pass->from_zero |= later->from_zero;
    pair_join(&pass->abs, later->abs);
    pair_join(&pass->rel, later->rel);
    pair_join(&pass->square, later->square);
    pair_join(&pass->product, later->product);
    pass->wide_abs += later->wide_abs;
    pass->wide_rel += later->wide_rel;
    pass->wide_square += later->wide_square;
    pass->wide_product += later->wide_product;
    for (int side = 0; side < 2; side++) {
        out->nan[side] += more->nan[side];
        out->pos_inf[side] += more->pos_inf[side];
        out->neg_inf[side] += more->neg_inf[side];
        pair_join(&pass->squares[side], later->squares[side]);
        pass->wide_squares[side] += later->wide_squares[side];
    }
}

static long double total(tap_pair pair, long double wide)
{
    return (long double)pair.high + pair.low + wide;
}

static double cosine_of(const tap_difference_pass *pass)
{
    long double aa = total(pass->squares[0], pass->wide_squares[0]), bb = total(pass->squares[1], pass->wide_squares[1]);
    if (aa == 0 || bb == 0)
        return aa == bb ? 1 : (double)NAN;
    double cosine = (double)(total(pass->product, pass->wide_product) / (sqrtl(aa) * sqrtl(bb)));
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

void tap__difference_end(const tap_difference_pass *pass, tap_difference *out)
{
    tap_difference full = pass->out;
    full.mean_abs = pass->finite ? (double)(total(pass->abs, pass->wide_abs) / pass->finite) : 0;
    full.mean_rel = pass->finite ? (double)(total(pass->rel, pass->wide_rel) / pass->finite) : 0;
    full.max_rel = pass->from_zero ? (double)INFINITY : full.max_rel;
    full.max_ulp = pass->digits < 0 ? full.max_abs : ldexp(pass->max_scaled, pass->digits);
    full.norm = (double)sqrtl(total(pass->square, pass->wide_square));
    for (int side = 0; side < 2; side++)
        full.norms[side] = (double)sqrtl(total(pass->squares[side], pass->wide_squares[side]));
    full.cosine = cosine_of(pass);
    *out = full;
}

/* ------------------------------------------------------------------------------------------------- whole tensors */

static tap_status shapes_check(const tap_tensor *a, const tap_tensor *b, tap_error *err)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same ? TAP_OK : tap_fail(err, TAP_E_INVALID, "compare: the tensors have different shapes");
}

tap_status tap_tensor_compare(const tap_tensor *a, const tap_tensor *b, tap_difference *out, tap_error *err)
{
    TAP_NEED(err, a);
    TAP_NEED(err, b);
    TAP_NEED_SIZED(err, tap_difference, out);
    tap_walk walks[2];
    tap_difference_pass pass;
    tap_difference whole;
    char room[2][TAP_PAIR_BLOCK * 16];
    TAP_TRY(tap__walk_begin(&walks[0], a, err));
    TAP_TRY(tap__walk_begin(&walks[1], b, err));
    TAP_TRY(shapes_check(a, b, err));
    TAP_TRY(tap__difference_begin(&pass, a->dtype, b->dtype, err));
    if (tap__walk_is_contiguous(&walks[0]) && tap__walk_is_contiguous(&walks[1]))
        tap__difference_next(&pass, walks[0].at, walks[1].at, walks[0].left);
    else
        while (walks[0].left) {
            int64_t block = TAP_PAIR_BLOCK / pass.a->values, take = walks[0].left < block ? walks[0].left : block;
            tap__walk_read(&walks[0], room[0], take);
            tap__walk_read(&walks[1], room[1], take);
            tap__difference_next(&pass, room[0], room[1], take);
        }
    tap__difference_end(&pass, &whole);
    tap__sized_give(out, &whole);
    return TAP_OK;
}
