/* pointwise_program.h - a chain as it is run, between the builder, the lowering of nodes and the walk over memory. */
#ifndef TAP_ENGINE_POINTWISE_PROGRAM_H
#define TAP_ENGINE_POINTWISE_PROGRAM_H

#include "engine/kernels/pointwise.h"
#include "engine/kernels/pointwise_block.h"

enum {
    TAP_PW_MAX_STEPS = 320,
    TAP_PW_MAX_SLOTS = 480,
    TAP_PW_MAX_BLOCK = 16384, /* elements */
    TAP_PW_MAX_TILE = 128,   /* elements in a row */
    TAP_PW_LINE = 64         /* bytes */
};

typedef enum tap__pw_slot_kind { TAP_PW_LOADED, TAP_PW_CONSTANT, TAP_PW_COMPUTED } tap__pw_slot_kind;

typedef struct tap__pw_slot {
    tap__pw_slot_kind kind;
    tap__pw_type type;
    tap__number number; /* CONSTANT */
} tap__pw_slot;

/* What a node's input or result is inside the program: the values of dtype, held in a slot. */
typedef struct tap__pw_value {
    uint16_t slot;
    tap_dtype dtype;
} tap__pw_value;

/* A program while nodes are being added to it. */
typedef struct tap__pw_builder {
    const tap__pw_kernels *kernels;
    const tap__sleef *sleef;
    int nsteps, nslots;
    bool failed; /* something is not supported, or too much */
    tap__pw_step nowhere; /* what is written after a failure */
    tap__pw_step steps[TAP_PW_MAX_STEPS];
    tap__pw_slot slots[TAP_PW_MAX_SLOTS];
    struct {
        tap__pw_value from, to;
    } casts[64]; /* made already */
    int ncasts;
} tap__pw_builder;

/* false for a dtype that blocks do not hold. */
bool tap__pw_type_of(tap_dtype dtype, tap__pw_type *type);
size_t tap__pw_type_size(tap__pw_type type);

void tap__pw_builder_init(tap__pw_builder *b);
uint16_t tap__pw_add_slot(tap__pw_builder *b, tap__pw_slot_kind kind, tap__pw_type type);
/* Adds one node: in[k] for each input that is a tensor. inner: later nodes use the result, so it is rounded to its
 * dtype in the block; else its store does that. The result is meaningless when b->failed is set. */
tap__pw_value tap__pw_lower(tap__pw_builder *b, const tap__call *call, const tap__pw_value *in, bool inner);

typedef enum tap__pw_half { TAP_PW_NOT_HALF, TAP_PW_HALF_F16, TAP_PW_HALF_BF16 } tap__pw_half;

/* One load or store. */
typedef struct tap__pw_operand {
    uint16_t slot;
    int16_t after;       /* stores: the step that gives the value, -1: before all */
    int16_t address;     /* which of the addresses of a run */
    uint8_t bytes;       /* of an element in memory */
    tap__pw_half half;           /* widened to float32 in the block */
    bool direct;         /* the block can be the memory itself */
    bool once;           /* loads: the same in every block */
    bool line;           /* loads: the same along a line, for one step that can take it as a number */
    int16_t into;        /* loads of halves: the store that takes them as float32, -1: none */
    tap__pw_layout layout;
    int64_t row_stride, column_stride; /* tiles */
    int64_t outer_stride[TAP_ENGINE_MAX_NDIM];
} tap__pw_operand;

struct tap__pw {
    const tap__pw_kernels *kernels;
    int threads;         /* and so many scratches */
    int nsteps, nslots, nloads, nstores;
    tap__pw_step *steps;
    tap__pw_slot *slots;
    uint32_t *place;     /* per slot: where its block is in the scratch */
    tap__pw_operand *loads, *stores;
    size_t scratch;      /* bytes of one thread's blocks, whole lines; the last block is for staging */
    size_t stage;        /* where that is */
    int64_t count;       /* elements */
    int64_t block;       /* elements of a block */
    int64_t grain;       /* blocks or tiles in a piece */
    int nrepeats;        /* loads that are the same in every block */
    bool tiled;
    int64_t rows, columns, tile_rows, tile_columns; /* of the two dimensions */
    int nouter;
    int64_t outer_size[TAP_ENGINE_MAX_NDIM];        /* innermost first */
};

/* Puts every operand into the order of iteration and cuts that into blocks or tiles. block_of: per slot, which block;
 * size: bytes of the largest element. */
void tap__pw_set_geometry(tap__pw *p, const tap__operand *loads, const tap__operand *stores, const uint16_t *block_of,
                          size_t size);

#endif
