/* pointwise_lower.c - how each operator of the table becomes instructions: in which dtype it computes, what of its
 * attributes is a constant of the instruction. ATen's rules. */
#include "engine/kernels/pointwise_program.h"

#include "tensor/kernels/by_isa.h"
#include "engine/vml.h"
#include "graph/shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- types and slots */

static const struct {
    bool held;
    tap__pw_type type;
} TYPES[TAP_DTYPE_END] = {
    [TAP_BOOL] = {true, TAP_PW_b8}, [TAP_U8] = {true, TAP_PW_u8},    [TAP_I8] = {true, TAP_PW_i8},
    [TAP_I16] = {true, TAP_PW_i16}, [TAP_I32] = {true, TAP_PW_i32},  [TAP_I64] = {true, TAP_PW_i64},
    [TAP_F16] = {true, TAP_PW_f32}, [TAP_BF16] = {true, TAP_PW_f32}, [TAP_F32] = {true, TAP_PW_f32},
    [TAP_F64] = {true, TAP_PW_f64}, [TAP_C64] = {true, TAP_PW_c64},  [TAP_C128] = {true, TAP_PW_c128},
};

bool tap__pw_type_of(tap_dtype dtype, tap__pw_type *type)
{
    if (dtype <= TAP_DTYPE_NONE || dtype >= TAP_DTYPE_END || !TYPES[dtype].held)
        return false;
    *type = TYPES[dtype].type;
    return true;
}

size_t tap__pw_type_size(tap__pw_type type)
{
    static const size_t SIZES[TAP_PW_TYPES] = {
#define X(id, ctype) sizeof(ctype),
        TAP_PW_TYPE_MAP(X)
#undef X
    };
    return SIZES[type];
}

static bool is_float(tap__pw_type type)
{
    return type == TAP_PW_f32 || type == TAP_PW_f64;
}

static bool is_complex(tap__pw_type type)
{
    return type == TAP_PW_c64 || type == TAP_PW_c128;
}

static bool is_half(tap_dtype dtype)
{
    return dtype == TAP_F16 || dtype == TAP_BF16;
}

const tap__pw_kernels *tap__pw_kernels_now(void)
{
    TAP__BY_ISA(tap__pw);
}

void tap__pw_builder_init(tap__pw_builder *b)
{
    b->kernels = tap__pw_kernels_now();
    b->sleef = tap__sleef_find(b->kernels->isa);
    b->nsteps = b->nslots = b->ncasts = 0;
    b->failed = false;
}

uint16_t tap__pw_add_slot(tap__pw_builder *b, tap__pw_slot_kind kind, tap__pw_type type)
{
    if (b->nslots == TAP_PW_MAX_SLOTS) {
        b->failed = true;
        return 0;
    }
    b->slots[b->nslots] = (tap__pw_slot){.kind = kind, .type = type};
    return (uint16_t)b->nslots++;
}

/* A step that computes in `type` and gives `result`; its operands are filled in by the caller. */
static tap__pw_step *add_step(tap__pw_builder *b, tap__pw_fn fn, tap__pw_type type, tap__pw_type result)
{
    if (!fn || b->nsteps == TAP_PW_MAX_STEPS) {
        b->failed = true;
        return &b->nowhere;
    }
    uint16_t dst = tap__pw_add_slot(b, TAP_PW_COMPUTED, result);
    tap__pw_step *step = &b->steps[b->nsteps++];
    const tap__pw_step none = {.fn = fn, .nsrc = 1, .line = -1};
    *step = none;
    step->dst = dst;
    step->math = (const void *const *)(type == TAP_PW_f64 || type == TAP_PW_c128 ? b->sleef->f64 : b->sleef->f32);
    return step;
}

/* --------------------------------------------------------------------------------------------- one node's lowering */

typedef struct lowering {
    tap__pw_builder *b;
    const tap__call *call;
    const tap__pw_value *in;
    tap_dtype dtype;     /* that it computes in */
    tap__pw_type type;
    bool inner;
    tap__number imm[TAP_PW_MAX_IMM];
} lowering;

typedef struct rule rule;
struct rule {
    tap__pw_value (*lower)(lowering *l, const rule *r);
    tap__pw_insn insn;
    int flags;
};

enum {
    EXACT = 1,  /* the result is representable when the operands are: nothing to round */
    OPMATH = 2, /* a second operand that is one number is not rounded to float16 or bfloat16 first; integers wrap */
};

static const tap__attr *attr(const lowering *l, const char *name)
{
    return tap__call_attr(l->call, name);
}

static tap__number real_number(double value)
{
    return (tap__number){.kind = 'F', .i = (int64_t)0, .re = value};
}

/* Any attribute that is a number. */
static tap__number number_attr(const lowering *l, const char *name)
{
    const tap__attr *a = attr(l, name);
    switch (a->type) {
    case TAP_ATTR_FLOAT: return real_number(a->f);
    case TAP_ATTR_INT:
    case TAP_ATTR_BOOL: return (tap__number){.kind = 'I', .i = a->i, .re = (double)a->i};
    default: return a->scalar;
    }
}

/* As an integer type takes it. */
static int64_t whole(const tap__number *number)
{
    if (number->kind == 'B' || number->kind == 'I')
        return number->i;
    return number->re > -0x1p63 && number->re < 0x1p63 ? (int64_t)number->re : INT64_MIN;
}

/* Whether an integer dtype can hold it, negative ones wrapped in uint8; ATen refuses what does not fit. */
static bool fits(const lowering *l, const tap__number *number)
{
    static const struct {
        int64_t low, high;
    } RANGES[TAP_PW_TYPES] = {
        [TAP_PW_u8] = {-UINT8_MAX, UINT8_MAX}, [TAP_PW_i8] = {INT8_MIN, INT8_MAX},
        [TAP_PW_i16] = {INT16_MIN, INT16_MAX}, [TAP_PW_i32] = {INT32_MIN, INT32_MAX},
        [TAP_PW_i64] = {INT64_MIN, INT64_MAX},
    };
    if (is_float(l->type) || is_complex(l->type) || l->type == TAP_PW_b8)
        return true;
    int64_t value = whole(number);
    return value >= RANGES[l->type].low && value <= RANGES[l->type].high;
}

static double round_half(const lowering *l, double value)
{
    float wide = (float)value;
    uint16_t half;
    bool f16 = l->dtype == TAP_F16;
    (f16 ? l->b->kernels->narrow_f16 : l->b->kernels->narrow_bf16)(&half, &wide, 1);
    (f16 ? l->b->kernels->widen_f16 : l->b->kernels->widen_bf16)(&wide, &half, 1);
    return (double)wide;
}

/* The number as the node's dtype has it. */
static tap__number as_number(const lowering *l, tap__number number, bool opmath)
{
    if (number.kind == 'C' ? !is_complex(l->type) : !opmath && !fits(l, &number))
        l->b->failed = true;
    number.i = is_float(l->type) ? 0 : whole(&number);
    if (l->type == TAP_PW_b8)
        number.i = number.re != 0 || number.im != 0;
    if (is_half(l->dtype) && !opmath)
        number.re = round_half(l, number.re);
    return number;
}

static uint16_t constant(const lowering *l, tap__number number)
{
    uint16_t slot = tap__pw_add_slot(l->b, TAP_PW_CONSTANT, l->type);
    l->b->slots[slot].number = number;
    return slot;
}

static uint16_t cast_slot(tap__pw_builder *b, uint16_t slot, tap__pw_type from, tap__pw_type to)
{
    if (from == to)
        return slot;
    tap__pw_step *step = add_step(b, b->kernels->cast[from][to], to, to);
    step->src[0] = slot;
    return step->dst;
}

static uint16_t round_slot(tap__pw_builder *b, uint16_t slot, tap_dtype dtype)
{
    tap__pw_step *step =
        add_step(b, dtype == TAP_F16 ? b->kernels->round_f16 : b->kernels->round_bf16, TAP_PW_f32, TAP_PW_f32);
    step->src[0] = slot;
    return step->dst;
}

/* Whether every value of `from` is one of `to`. */
static bool holds(tap_dtype to, tap_dtype from)
{
    return !is_half(to) || from == to || from == TAP_BOOL || from == TAP_U8 || from == TAP_I8;
}

static uint16_t as_dtype(tap__pw_builder *b, tap__pw_value value, tap_dtype dtype, bool rounded)
{
    tap__pw_type from, to;
    if (value.dtype == dtype)
        return value.slot;
    for (int i = 0; i < b->ncasts; i++)
        if (rounded && b->casts[i].from.slot == value.slot && b->casts[i].to.dtype == dtype)
            return b->casts[i].to.slot;
    if (!tap__pw_type_of(value.dtype, &from) || !tap__pw_type_of(dtype, &to)) {
        b->failed = true;
        return 0;
    }
    uint16_t slot = cast_slot(b, value.slot, from, to);
    if (rounded && !holds(dtype, value.dtype))
        slot = round_slot(b, slot, dtype);
    if (rounded && b->ncasts < (int)(sizeof b->casts / sizeof b->casts[0])) {
        b->casts[b->ncasts].from = value;
        b->casts[b->ncasts++].to = (tap__pw_value){.slot = slot, .dtype = dtype};
    }
    return slot;
}

static bool is_number(const lowering *l, int k)
{
    return l->call->in[k].is_number;
}

static bool is_absent(const lowering *l, int k)
{
    return k >= l->call->nin || l->call->in[k].dtype == TAP_DTYPE_NONE;
}

/* Input k in the dtype the node computes in. */
static uint16_t operand(const lowering *l, int k, int flags)
{
    if (is_absent(l, k)) {
        l->b->failed = true;
        return 0;
    }
    bool alone = k > 0 && l->call->in[k].ndim == 0;
    if (is_number(l, k))
        return constant(l, as_number(l, l->call->in[k].number, flags & OPMATH));
    return as_dtype(l->b, l->in[k], l->dtype, !((flags & OPMATH) && alone));
}

static bool compute_in(lowering *l, tap_dtype dtype)
{
    l->dtype = dtype;
    if (!tap__pw_type_of(dtype, &l->type))
        l->b->failed = true;
    return !l->b->failed;
}

static void set_imm(const lowering *l, tap__pw_step *step)
{
    for (int k = 0; k < TAP_PW_MAX_IMM; k++) {
        step->imm[k].i = is_float(l->type) ? 0 : whole(&l->imm[k]);
        step->imm[k].f = l->imm[k].re;
    }
    if (is_complex(l->type))
        step->imm[1].f = l->imm[0].im;
}

static tap__pw_type result_type(const lowering *l, tap__pw_insn insn)
{
    switch (insn) {
    case TAP_PWI_CAbs: return l->type == TAP_PW_c64 ? TAP_PW_f32 : TAP_PW_f64;
#define ROW(name, shape, ...) RESULT_##shape(name)
#define RESULT_T1(name) case TAP_PWI_##name:
#define RESULT_T2(name) case TAP_PWI_##name:
#define RESULT_T2S(name) case TAP_PWI_##name:
#define RESULT_1(name)
#define RESULT_2(name)
#define RESULT_2S(name)
#define RESULT_D(name)
#define RESULT_3(name)
#define RESULT_W(name)
#define RESULT_V1(name)
#define RESULT_V2(name)
#define RESULT_R1(name)
#define RESULT_P2(name)
#include "engine/kernels/pointwise_insn.def"
        return TAP_PW_b8;
    default: return l->type;
    }
}

#define RUN_VML(type)                                                                                                \
    static void run_vml_##type(const tap__pw_step *step, char *const *slots, int64_t n)                              \
    {                                                                                                                \
        void (*function)(int, const type *, type *, int64_t) =                                                       \
            (void (*)(int, const type *, type *, int64_t))(uintptr_t)step->math[0];                                  \
        function((int)n, (const type *)(const void *)slots[step->src[0]], (type *)(void *)slots[step->dst],          \
                 TAP_VML_MODE);                                                                                      \
    }
RUN_VML(float)
RUN_VML(double)

/* Has MKL compute a step, where it is the one to do so. */
static void use_vml(tap__pw_step *step, tap__pw_insn insn, tap__pw_type type)
{
    int index = TAP_VML_END;
    switch (insn) {
#define X(name, function)                                                                                            \
    case TAP_PWI_##name: index = TAP_VML_##name; break;
        TAP_VML_MAP(X)
#undef X
    default: return;
    }
    const tap__vml *vml = tap__vml_find();
    const void *const *at = type == TAP_PW_f32 ? &vml->f32[index] : type == TAP_PW_f64 ? &vml->f64[index] : NULL;
    if (!at || !*at)
        return;
    step->math = at;
    step->fn = type == TAP_PW_f32 ? run_vml_float : run_vml_double;
}

static uint16_t emit(const lowering *l, tap__pw_insn insn, int count, const uint16_t *src)
{
    tap__pw_step *step = add_step(l->b, l->b->kernels->fn[l->type][insn], l->type, result_type(l, insn));
    if (count == 1)
        use_vml(step, insn, l->type);
    for (int k = 0; k < count; k++)
        step->src[k] = src[k];
    step->nsrc = (uint8_t)count;
    step->fn_line = count == 2 ? l->b->kernels->fn_imm[l->type][insn] : NULL;
    set_imm(l, step);
    return step->dst;
}

/* The second operand as a constant of the instruction, where there is such a loop. */
static uint16_t emit_number(lowering *l, tap__pw_insn insn, uint16_t x, tap__number number)
{
    tap__pw_fn fn = l->b->kernels->fn_imm[l->type][insn];
    l->imm[0] = number;
    if (!fn)
        return emit(l, insn, 2, (uint16_t[]){x, constant(l, number)});
    tap__pw_step *step = add_step(l->b, fn, l->type, result_type(l, insn));
    step->src[0] = x;
    set_imm(l, step);
    return step->dst;
}

/* The result of a node in its own dtype. */
static tap__pw_value finish(const lowering *l, uint16_t slot, int flags)
{
    tap_dtype dtype = l->call->out[0].dtype;
    if (is_half(dtype) && l->inner && !(flags & EXACT))
        slot = round_slot(l->b, slot, dtype);
    return (tap__pw_value){.slot = slot, .dtype = dtype};
}

/* ----------------------------------------------------------------------------------------------------- the rules */

static void attrs_to_imm(lowering *l)
{
    const tap_op *op = l->call->op;
    int n = 0;
    for (int i = op->ninputs; i < op->nparams && n < TAP_PW_MAX_IMM; i++)
        if (op->params[i].type != TAP_ATTR_STR && op->params[i].type != TAP_ATTR_DTYPE)
            l->imm[n++] = number_attr(l, op->params[i].name);
}

static uint16_t apply(lowering *l, tap__pw_insn insn, int flags)
{
    int count = l->call->nin;
    if (count == 2 && is_number(l, 1) && !is_number(l, 0))
        return emit_number(l, insn, operand(l, 0, 0), as_number(l, l->call->in[1].number, flags & OPMATH));
    uint16_t src[TAP_PW_MAX_SRC] = {0};
    for (int k = 0; k < count && k < TAP_PW_MAX_SRC; k++)
        src[k] = operand(l, k, flags);
    return emit(l, insn, count, src);
}

/* Operands and result in the dtype of the result. */
static tap__pw_value of_result(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    attrs_to_imm(l);
    return finish(l, apply(l, r->insn, r->flags), r->flags);
}

/* A question about operands of their common dtype; the result is bool. */
static tap__pw_value of_operands(lowering *l, const rule *r)
{
    if (!compute_in(l, tap__promote(l->call->in, l->call->nin)) || l->call->out[0].dtype != TAP_BOOL) {
        l->b->failed = true;
        return (tap__pw_value){0, 0};
    }
    return finish(l, apply(l, r->insn, 0), EXACT);
}

/* Questions only floats have an interesting answer to. */
static tap__pw_value of_floats(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->in[0].dtype))
        return (tap__pw_value){0, 0};
    tap__pw_insn insn = is_float(l->type) ? r->insn : r->insn == TAP_PWI_IsFinite ? TAP_PWI_True : TAP_PWI_False;
    return finish(l, apply(l, insn, 0), EXACT);
}

/* Integers stay as they are. */
static tap__pw_value round_floats(lowering *l, const rule *r)
{
    compute_in(l, l->call->out[0].dtype);
    return is_float(l->type) ? of_result(l, r) : finish(l, operand(l, 0, 0), EXACT);
}

static tap__pw_value to_dtype(lowering *l, const rule *r)
{
    (void)r;
    compute_in(l, l->call->out[0].dtype);
    /* a store rounds by itself */
    bool rounded = l->inner || !is_half(l->dtype);
    if (is_number(l, 0))
        return finish(l, operand(l, 0, 0), EXACT);
    return finish(l, as_dtype(l->b, l->in[0], l->dtype, rounded), EXACT);
}

static tap__pw_value fill(lowering *l, const rule *r)
{
    (void)r;
    compute_in(l, l->call->out[0].dtype);
    return finish(l, constant(l, as_number(l, number_attr(l, "value"), false)), EXACT);
}

static bool is_one(const tap__number *number)
{
    return number->re == 1 && number->im == 0;
}

static tap__number negative(const lowering *l, tap__number number)
{
    if (l->type == TAP_PW_b8)
        l->b->failed = true;
    return (tap__number){.kind = number.kind, .i = (int64_t)(0 - (uint64_t)number.i), .re = -number.re,
                         .im = -number.im};
}

/* Operands may change places. */
static tap__pw_value commute(lowering *l, const rule *r)
{
    compute_in(l, l->call->out[0].dtype);
    if (is_number(l, 0) && !is_number(l, 1)) {
        tap__number number = as_number(l, l->call->in[0].number, true);
        return finish(l, emit_number(l, r->insn, operand(l, 1, 0), number), 0);
    }
    return finish(l, apply(l, r->insn, OPMATH), 0);
}

static tap__pw_value lerp(lowering *l, const rule *r)
{
    if (!is_number(l, 2))
        return of_result(l, r);
    compute_in(l, l->call->out[0].dtype);
    double weight = as_number(l, l->call->in[2].number, true).re;
    bool low = fabs(weight) < 0.5;
    l->imm[0] = real_number(low ? weight : l->type == TAP_PW_f32 ? (double)(1 - (float)weight) : 1 - weight);
    return finish(l, emit(l, low ? TAP_PWI_LerpLow : TAP_PWI_LerpHigh, 2, (uint16_t[]){operand(l, 0, 0), operand(l, 1, 0)}),
                  0);
}

static tap__pw_value add(lowering *l, const rule *r)
{
    compute_in(l, l->call->out[0].dtype);
    tap__number alpha = as_number(l, number_attr(l, "alpha"), false);
    if (is_one(&alpha))
        return r->insn == TAP_PWI_Add ? commute(l, r) : finish(l, apply(l, r->insn, OPMATH), 0);
    l->imm[0] = r->insn == TAP_PWI_Sub ? negative(l, alpha) : alpha;
    return finish(l, emit(l, TAP_PWI_AddScaled, 2, (uint16_t[]){operand(l, 0, OPMATH), operand(l, 1, OPMATH)}), 0);
}

static tap__pw_value subtract_from(lowering *l, const rule *r)
{
    (void)r;
    compute_in(l, l->call->out[0].dtype);
    tap__number alpha = as_number(l, number_attr(l, "alpha"), false);
    uint16_t x = operand(l, 0, 0);
    if (is_one(&alpha) && is_number(l, 1) && !is_complex(l->type)) {
        l->imm[0] = as_number(l, l->call->in[1].number, true);
        return finish(l, emit(l, TAP_PWI_SubFrom, 1, &x), 0);
    }
    uint16_t other = operand(l, 1, OPMATH);
    if (is_one(&alpha))
        return finish(l, emit(l, TAP_PWI_Sub, 2, (uint16_t[]){other, x}), 0);
    l->imm[0] = negative(l, alpha);
    return finish(l, emit(l, TAP_PWI_AddScaled, 2, (uint16_t[]){other, x}), 0);
}

/* Rounds what ATen rounds between two operations of one operator in 16 bits. */
static uint16_t between(const lowering *l, uint16_t slot)
{
    return is_half(l->dtype) ? round_slot(l->b, slot, l->dtype) : slot;
}

static bool is_alone(const lowering *l, int k)
{
    return is_number(l, k) || l->call->in[k].ndim == 0;
}

/* Integers by zero fail: by a number here, by a tensor when it runs. */
static tap__pw_value divide_whole(lowering *l, tap__pw_insn floats, tap__pw_insn integers)
{
    compute_in(l, l->call->out[0].dtype);
    if (is_half(l->dtype) && floats == TAP_PWI_DivTrunc && !is_alone(l, 1)) {
        uint16_t quotient = between(l, emit(l, TAP_PWI_Div, 2, (uint16_t[]){operand(l, 0, 0), operand(l, 1, 0)}));
        return finish(l, emit(l, TAP_PWI_Trunc, 1, &quotient), EXACT);
    }
    if (is_float(l->type))
        return finish(l, apply(l, floats, OPMATH), 0);
    if (l->type == TAP_PW_b8 || is_complex(l->type) || l->b->failed) {
        l->b->failed = true;
        return (tap__pw_value){0, 0};
    }
    if (!is_number(l, 1)) {
        uint16_t quotient = emit(l, integers, 2, (uint16_t[]){operand(l, 0, 0), operand(l, 1, 0)});
        if (!l->b->failed)
            l->b->steps[l->b->nsteps - 1].divides = l->call->name ? l->call->name : "";
        return finish(l, quotient, EXACT);
    }
    tap__number divisor = as_number(l, l->call->in[1].number, false);
    if (divisor.i == 0)
        l->b->failed = true;
    return finish(l, emit_number(l, integers, operand(l, 0, 0), divisor), EXACT);
}

static tap__pw_value divide(lowering *l, const rule *r)
{
    const tap__attr *mode = attr(l, "rounding_mode");
    if (!mode->present) {
        compute_in(l, l->call->out[0].dtype);
        return finish(l, apply(l, r->insn, OPMATH), 0);
    }
    return strcmp(mode->s, "floor") == 0 ? divide_whole(l, TAP_PWI_DivFloor, TAP_PWI_IntFloor)
                                         : divide_whole(l, TAP_PWI_DivTrunc, TAP_PWI_IntTrunc);
}

static tap__pw_value floor_divide(lowering *l, const rule *r)
{
    (void)r;
    return divide_whole(l, TAP_PWI_DivFloor, TAP_PWI_IntFloor);
}

static tap__pw_value remainder_of(lowering *l, const rule *r)
{
    return divide_whole(l, r->insn, r->insn == TAP_PWI_Fmod ? TAP_PWI_IntFmod : TAP_PWI_IntMod);
}

/* Powers that have an instruction of their own, as ATen has them. */
static tap__pw_value power(lowering *l, const rule *r)
{
    static const struct {
        double exponent;
        tap__pw_insn insn;
        bool integers;
    } SPECIAL[] = {
        {0.5, TAP_PWI_Sqrt, false},       {2, TAP_PWI_Square, true},      {3, TAP_PWI_Cube, true},
        {-0.5, TAP_PWI_Rsqrt, false},     {-1, TAP_PWI_Reciprocal, false}, {-2, TAP_PWI_RecipSquare, false},
        {1, TAP_PWI_Copy, true},
    };
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    bool floats = is_float(l->type);
    if (is_number(l, 1)) {
        tap__number exponent = l->call->in[1].number;
        for (size_t i = 0; i < sizeof SPECIAL / sizeof SPECIAL[0]; i++)
            if (exponent.re == SPECIAL[i].exponent && exponent.kind != 'C' && (floats || SPECIAL[i].integers)) {
                uint16_t x = operand(l, 0, 0);
                return finish(l, emit(l, SPECIAL[i].insn, 1, &x), 0);
            }
        if (!floats && (exponent.kind == 'F' || exponent.i < 0))
            l->b->failed = true;
    }
    return finish(l, apply(l, floats ? r->insn : TAP_PWI_IntPow, OPMATH), 0);
}

static tap__pw_value clamp(lowering *l, const rule *r)
{
    (void)r;
    compute_in(l, l->call->out[0].dtype);
    uint16_t slot = operand(l, 0, 0);
    if (!is_absent(l, 1) && !is_absent(l, 2) && is_number(l, 1) && is_number(l, 2) && l->type != TAP_PW_b8) {
        for (int k = 0; k < 2; k++)
            l->imm[k] = as_number(l, l->call->in[k + 1].number, false);
        if (l->imm[0].re <= l->imm[1].re)
            return finish(l, emit(l, TAP_PWI_Hardtanh, 1, &slot), EXACT);
    }
    static const tap__pw_insn INSNS[] = {TAP_PWI_Copy, TAP_PWI_Max, TAP_PWI_Min};
    for (int k = 1; k <= 2; k++)
        if (!is_absent(l, k))
            slot = is_number(l, k)
                       ? emit_number(l, INSNS[k], slot, as_number(l, l->call->in[k].number, false))
                       : emit(l, INSNS[k], 2, (uint16_t[]){slot, operand(l, k, 0)});
    return finish(l, slot, EXACT);
}

static tap__pw_value choose(lowering *l, int condition, int yes, int no)
{
    if (!compute_in(l, l->call->out[0].dtype) || is_number(l, condition) || is_absent(l, condition)) {
        l->b->failed = true;
        return (tap__pw_value){0, 0};
    }
    uint16_t mask = as_dtype(l->b, l->in[condition], TAP_BOOL, true);
    return finish(l, emit(l, TAP_PWI_Where, 3, (uint16_t[]){mask, operand(l, yes, 0), operand(l, no, 0)}), EXACT);
}

static tap__pw_value where(lowering *l, const rule *r)
{
    (void)r;
    return choose(l, 0, 1, 2);
}

static tap__pw_value masked_fill(lowering *l, const rule *r)
{
    (void)r;
    return choose(l, 1, 2, 0);
}

static tap__pw_value magnitude(lowering *l, const rule *r)
{
    compute_in(l, l->call->in[0].dtype);
    if (l->b->failed || !is_complex(l->type))
        return of_result(l, r);
    uint16_t x = operand(l, 0, 0);
    return finish(l, emit(l, TAP_PWI_CAbs, 1, &x), EXACT);
}

static tap__pw_value exponential(lowering *l, const rule *r)
{
    compute_in(l, l->call->out[0].dtype);
    rule as = *r;
    if (is_complex(l->type))
        as.insn = TAP_PWI_CExp;
    return of_result(l, &as);
}

static tap__pw_value conjugate(lowering *l, const rule *r)
{
    compute_in(l, l->call->out[0].dtype);
    return is_complex(l->type) ? of_result(l, r) : finish(l, operand(l, 0, 0), EXACT);
}

static tap__pw_value from_parts(lowering *l, const rule *r)
{
    tap_dtype dtype = l->call->out[0].dtype;
    uint16_t src[2];
    compute_in(l, dtype == TAP_C64 ? TAP_F32 : TAP_F64);
    for (int k = 0; k < 2; k++)
        src[k] = operand(l, k, 0);
    return compute_in(l, dtype) ? finish(l, emit(l, r->insn, 2, src), EXACT) : (tap__pw_value){0, 0};
}

static tap__pw_value round_to(lowering *l, const rule *r)
{
    int64_t decimals = attr(l, "decimals")->i;
    compute_in(l, l->call->out[0].dtype);
    if (decimals == 0 || !is_float(l->type))
        return round_floats(l, r);
    l->imm[0] = real_number(pow(10, fabs((double)decimals)));
    uint16_t x = operand(l, 0, 0);
    return finish(l, emit(l, decimals > 0 ? TAP_PWI_RoundUp : TAP_PWI_RoundDown, 1, &x), 0);
}

static tap__pw_value gelu(lowering *l, const rule *r)
{
    rule as = *r;
    if (strcmp(attr(l, "approximate")->s, "tanh") == 0)
        as.insn = r->insn == TAP_PWI_Gelu ? TAP_PWI_GeluTanh : TAP_PWI_GeluTanhGrad;
    return of_result(l, &as);
}

static tap__pw_value elu(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    double alpha = number_attr(l, "alpha").re, scale = number_attr(l, "scale").re;
    l->imm[0] = real_number(alpha * scale);
    l->imm[1] = real_number(scale);
    l->imm[2] = number_attr(l, "input_scale");
    bool result = r->insn == TAP_PWI_EluGrad && attr(l, "is_result")->i;
    return finish(l, apply(l, result ? TAP_PWI_EluGradResult : r->insn, 0), 0);
}

/* In 16 bits each operation is rounded. */
static tap__pw_value logit_of_half(lowering *l, uint16_t x)
{
    l->imm[0] = real_number(1);
    uint16_t rest = between(l, emit(l, TAP_PWI_SubFrom, 1, &x));
    uint16_t odds = between(l, emit(l, TAP_PWI_Div, 2, (uint16_t[]){x, rest}));
    return finish(l, emit(l, TAP_PWI_Log, 1, &odds), 0);
}

static tap__pw_value celu(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    l->imm[0] = number_attr(l, "alpha");
    l->imm[1] = real_number(1);
    l->imm[2] = real_number(1 / l->imm[0].re);
    return finish(l, apply(l, r->insn, 0), 0);
}

static tap__pw_value logit(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    const tap__attr *eps = attr(l, "eps");
    tap__pw_insn insn = r->insn;
    if (eps->present && eps->f >= 0) {
        insn = insn == TAP_PWI_Logit ? TAP_PWI_LogitClamped : TAP_PWI_LogitClampedGrad;
        double low = is_half(l->dtype) ? round_half(l, eps->f) : eps->f;
        double high = l->type == TAP_PW_f32 ? (double)(1.0f - (float)low) : 1 - low;
        l->imm[0] = real_number(low);
        l->imm[1] = real_number(is_half(l->dtype) ? round_half(l, high) : high);
    }
    if (is_half(l->dtype) && r->insn == TAP_PWI_Logit) {
        uint16_t x = operand(l, 0, 0);
        return logit_of_half(l, insn == TAP_PWI_Logit ? x : emit(l, TAP_PWI_Hardtanh, 1, &x));
    }
    return finish(l, apply(l, insn, 0), 0);
}

static double largest(tap_dtype dtype)
{
    switch (dtype) {
    case TAP_F16: return 65504;
    case TAP_BF16: return 0x1.FEp127;
    case TAP_F32: return FLT_MAX;
    default: return DBL_MAX;
    }
}

static tap__pw_value nan_to_num(lowering *l, const rule *r)
{
    if (!compute_in(l, l->call->out[0].dtype))
        return (tap__pw_value){0, 0};
    if (!is_float(l->type))
        return finish(l, operand(l, 0, 0), EXACT);
    static const char *const NAMES[] = {"nan", "posinf", "neginf"};
    const double defaults[] = {0, largest(l->dtype), -largest(l->dtype)};
    for (int k = 0; k < 3; k++) {
        const tap__attr *a = attr(l, NAMES[k]);
        double value = a->present ? a->f : defaults[k];
        l->imm[k] = real_number(is_half(l->dtype) ? round_half(l, value) : value);
    }
    uint16_t x = operand(l, 0, 0);
    return finish(l, emit(l, r->insn, 1, &x), EXACT);
}

/* In 16 bits the next number is another one. */
static tap__pw_value next_after(lowering *l, const rule *r)
{
    if (is_half(l->call->out[0].dtype))
        l->b->failed = true;
    return of_result(l, r);
}

/* --------------------------------------------------------------------------------------------------- the table */

static const rule RULES[TAP_PW_END] = {
#define SIMPLE(name) [TAP_PW_##name] = {of_result, TAP_PWI_##name, 0}
#define MEANS(name, insn, flags) [TAP_PW_##name] = {of_result, TAP_PWI_##insn, flags}
#define ASK(name, insn) [TAP_PW_##name] = {of_operands, TAP_PWI_##insn, EXACT}
#define BY(name, function, insn) [TAP_PW_##name] = {function, TAP_PWI_##insn, 0}
    SIMPLE(Acos), SIMPLE(Acosh), SIMPLE(Asin), SIMPLE(Asinh), SIMPLE(Atan), SIMPLE(Atan2), SIMPLE(Atanh), SIMPLE(Cos),
    SIMPLE(Cosh), SIMPLE(Digamma), SIMPLE(DropoutGrad), SIMPLE(Erf), SIMPLE(Erfc), SIMPLE(Erfinv), SIMPLE(Exp2),
    SIMPLE(Expm1), SIMPLE(Frac), SIMPLE(Gcd), SIMPLE(Hardsigmoid), SIMPLE(HardsigmoidGrad), SIMPLE(Hardswish),
    SIMPLE(HardswishGrad), SIMPLE(Hypot), SIMPLE(LeakyRelu), SIMPLE(Lgamma), SIMPLE(Log), SIMPLE(Log10), SIMPLE(Log1p),
    SIMPLE(Log2), SIMPLE(LogAddExp), SIMPLE(LogAddExp2), SIMPLE(LogSigmoidGrad), SIMPLE(Mish), SIMPLE(Prelu),
    SIMPLE(Reciprocal), SIMPLE(Rsqrt), SIMPLE(Sigmoid), SIMPLE(SigmoidGrad), SIMPLE(Silu), SIMPLE(Sin), SIMPLE(Sinc),
    SIMPLE(Sinh), SIMPLE(Softplus), SIMPLE(Softshrink), SIMPLE(Sqrt), SIMPLE(Square), SIMPLE(Tan), SIMPLE(Tanh),
    SIMPLE(Xlog1py), SIMPLE(Xlogy), SIMPLE(Addcdiv), SIMPLE(Addcmul),
    MEANS(LeakyReluBackward, LeakyReluGrad, 0), MEANS(MishBackward, MishGrad, 0),
    MEANS(SiluBackward, SiluGrad, 0), MEANS(SoftplusBackward, SoftplusGrad, 0), MEANS(TanhBackward, TanhGrad, 0),
    [TAP_PW_Lerp] = {lerp, TAP_PWI_Lerp, OPMATH},
    MEANS(BitwiseAnd, And, EXACT | OPMATH), MEANS(BitwiseNot, Not, EXACT), MEANS(BitwiseOr, Or, EXACT | OPMATH),
    MEANS(BitwiseXor, Xor, EXACT | OPMATH), MEANS(Copysign, Copysign, EXACT), MEANS(Fmax, Fmax, EXACT), MEANS(Fmin, Fmin, EXACT),
    MEANS(Hardshrink, Hardshrink, EXACT), MEANS(HardtanhGrad, HardtanhGrad, EXACT), MEANS(Heaviside, Heaviside, EXACT),
    MEANS(Maximum, Max, EXACT), MEANS(Minimum, Min, EXACT), MEANS(Neg, Neg, EXACT), MEANS(Relu, Relu, EXACT),
    MEANS(ShiftLeft, Shl, EXACT), MEANS(ShiftRight, Shr, EXACT), MEANS(ShrinkGrad, ShrinkGrad, EXACT),
    MEANS(Sign, Sign, EXACT), MEANS(Threshold, Threshold, 0), MEANS(ThresholdGrad, ThresholdGrad, EXACT),
    ASK(Equal, Eq), ASK(NotEqual, Ne), ASK(Less, Lt), ASK(LessEqual, Le), ASK(Greater, Gt), ASK(GreaterEqual, Ge),
    ASK(LogicalAnd, BothTrue), ASK(LogicalOr, AnyTrue), ASK(LogicalXor, OneTrue), ASK(LogicalNot, IsZero),
    ASK(Signbit, Signbit),
    BY(IsNan, of_floats, IsNan), BY(IsInf, of_floats, IsInf), BY(IsFinite, of_floats, IsFinite),
    BY(IsPosInf, of_floats, IsPosInf), BY(IsNegInf, of_floats, IsNegInf),
    BY(Ceil, round_floats, Ceil), BY(Floor, round_floats, Floor), BY(Trunc, round_floats, Trunc),
    BY(Round, round_to, Round),
    BY(Abs, magnitude, Abs), BY(Add, add, Add), BY(Assign, to_dtype, Copy), BY(Cast, to_dtype, Copy), BY(Celu, celu, Elu), BY(Clamp, clamp, Max),
    BY(Complex, from_parts, Complex), BY(Conj, conjugate, Conj), BY(Div, divide, Div), BY(Elu, elu, Elu),
    BY(EluGrad, elu, EluGrad), BY(Exp, exponential, Exp), BY(Fill, fill, Copy), BY(FloorDiv, floor_divide, DivFloor),
    BY(Fmod, remainder_of, Fmod), BY(Gelu, gelu, Gelu), BY(GeluBackward, gelu, GeluGrad), BY(Logit, logit, Logit), BY(LogitGrad, logit, LogitGrad),
    BY(MaskedFill, masked_fill, Where), BY(Mul, commute, Mul), BY(NanToNum, nan_to_num, NanToNum),
    BY(Nextafter, next_after, Nextafter), BY(Pow, power, Pow), BY(Remainder, remainder_of, Mod),
    BY(Rsub, subtract_from, Sub), BY(Sub, add, Sub), BY(Where, where, Where),
};

tap__pw_value tap__pw_lower(tap__pw_builder *b, const tap__call *call, const tap__pw_value *in, bool inner)
{
    const rule *r = &RULES[call->op->code];
    lowering l = {.b = b, .call = call, .in = in, .inner = inner};
    if (!r->lower || call->nin > TAP_PW_MAX_INPUTS || call->nout != 1) {
        b->failed = true;
        return (tap__pw_value){0, 0};
    }
    return r->lower(&l, r);
}
