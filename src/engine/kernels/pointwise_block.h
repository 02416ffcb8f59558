/* pointwise_block.h - what the chain compiler and the vector kernels share: element types of blocks, instructions, and
 * the table of kernels of one instruction set. Blocks hold a multiple of TAP_PW_LANES elements; what lies past the
 * end of the data is computed too and never stored. */
#ifndef TAP_ENGINE_POINTWISE_BLOCK_H
#define TAP_ENGINE_POINTWISE_BLOCK_H

#include "engine/sleef.h"
#include "graph/call.h"

enum { TAP_PW_LANES = 16, TAP_PW_MAX_SRC = 4, TAP_PW_MAX_IMM = 4 };

/* X(id, C type): float16 and bfloat16 are float32 in a block; complex are pairs. */
#define TAP_PW_TYPE_MAP(X)                                                                                           \
    X(b8, uint8_t) X(u8, uint8_t) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t) X(f32, float)        \
    X(f64, double) X(c64, tap__c64) X(c128, tap__c128)

typedef struct tap__c64 {
    float re, im;
} tap__c64;

typedef struct tap__c128 {
    double re, im;
} tap__c128;

typedef enum tap__pw_type {
#define X(id, type) TAP_PW_##id,
    TAP_PW_TYPE_MAP(X)
#undef X
        TAP_PW_TYPES
} tap__pw_type;

typedef enum tap__pw_insn {
#define ROW(name, ...) TAP_PWI_##name,
#include "engine/kernels/pointwise_insn.def"
    TAP_PWI_END
} tap__pw_insn;

typedef struct tap__pw_step tap__pw_step;
typedef void (*tap__pw_fn)(const tap__pw_step *step, char *const *slots, int64_t n);

/* One instruction of a program; src and dst are slots. */
struct tap__pw_step {
    tap__pw_fn fn;
    tap__pw_fn fn_line;      /* the same with imm[0] for the second operand, or NULL */
    const void *const *math; /* SLEEF's functions for the type it computes in */
    uint16_t dst, src[TAP_PW_MAX_SRC];
    uint8_t nsrc;
    int8_t line;             /* the load that is its second operand and the same along a line; -1: none */
    const char *divides;     /* the node that fails where an integer of src[1] is zero; NULL: none does */
    struct {
        int64_t i;
        double f;
    } imm[TAP_PW_MAX_IMM];
};

/* Elements of 16-bit floats in memory to and from float32 in a block, any count, any address. */
typedef void (*tap__pw_widen)(float *dst, const uint16_t *src, int64_t n);
typedef void (*tap__pw_narrow)(uint16_t *dst, const float *src, int64_t n);

/* Sizes and strides of one operand in the order of iteration, innermost first. */
typedef struct tap__pw_layout {
    int ndim;
    int64_t size[TAP_ENGINE_MAX_NDIM], stride[TAP_ENGINE_MAX_NDIM];
} tap__pw_layout;

/* n elements of `bytes` bytes from the index `first` on: packed into dst, or scattered from packed src. */
typedef void (*tap__pw_walk)(void *dst, const void *src, size_t bytes, const tap__pw_layout *layout, int64_t first,
                             int64_t n);
/* rows by columns elements whose strides are given; packed row after row in the block. */
typedef void (*tap__pw_tile)(void *dst, const void *src, size_t bytes, int64_t rows, int64_t columns,
                             int64_t row_stride, int64_t column_stride);

typedef struct tap__pw_kernels {
    const char *isa;
    const tap__pw_fn *fn[TAP_PW_TYPES];     /* by instruction; NULL: the type has it not */
    const tap__pw_fn *fn_imm[TAP_PW_TYPES]; /* the second operand is imm[0] */
    const tap__pw_fn *cast[TAP_PW_TYPES];   /* from; by type to */
    tap__pw_widen widen_f16, widen_bf16;
    tap__pw_narrow narrow_f16, narrow_bf16;
    tap__pw_fn round_f16, round_bf16;       /* of float32 values, in a block */
    tap__pw_walk gather, scatter;
    tap__pw_tile gather_tile, scatter_tile;
} tap__pw_kernels;

extern const tap__pw_kernels tap__pw_plain, tap__pw_avx2, tap__pw_avx512, tap__pw_neon;
const tap__pw_kernels *tap__pw_kernels_now(void);

#endif
