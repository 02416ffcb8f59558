/* pointwise_program.h - a chain as it is run, between the builder, the lowering of nodes and the walk over memory. */
#ifndef TAP_ENGINE_POINTWISE_PROGRAM_H
#define TAP_ENGINE_POINTWISE_PROGRAM_H

#include "engine/kernels/pointwise.h"
#include "engine/kernels/pointwise_block.h"

enum {
    TAP_PW_MAX_STEPS = 320,
    TAP_PW_MAX_SLOTS = 480,
    TAP_PW_MAX_BLOCK = 4096 /* elements */
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

#endif
