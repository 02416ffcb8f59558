/* move.h - elements moved from place to place: what most movement operators are. prepare writes a program of moves
 * once; the run needs no more code. A move is a nest of loops over two places in the call's memory; each loop steps by
 * a fixed distance or by a table of offsets. Moves of one phase may run in any order and at once; phases follow one
 * another. dtype does not matter, only the bytes of an element. */
#ifndef TAP_ENGINE_MOVE_H
#define TAP_ENGINE_MOVE_H

#include "engine/kernel.h"

enum {
    TAP_MOVE_MAX_DIMS = 2 * TAP_ENGINE_MAX_NDIM + 2,
    TAP_MOVE_CONSTANT = -1, /* "from" of a move that fills with one value */
};

/* Where a loop goes on one side, in bytes. */
typedef struct tap__move_step {
    int64_t stride;
    const int64_t *at; /* offset of each step instead, kept by the program; NULL: none */
    int64_t scratch;   /* or such a table, made by run at this place of the scratch; negative: none */
} tap__move_step;

typedef struct tap__move_dim {
    int64_t size;
    tap__move_step to, from;
    bool serial;       /* its steps may write to one place: they stay in order, in one unit. So does a table of places
                          to write to, by itself */
} tap__move_dim;

typedef struct tap__move {
    int to, from;         /* places in data: inputs, then outputs, then the scratch */
    int64_t to_offset, from_offset; /* bytes */
    size_t item;          /* bytes of one element: 1, 2, 4, 8 or 16 */
    tap_dtype add;        /* adds to what is there, as elements of this dtype; TAP_DTYPE_NONE: replaces it */
    _Alignas(8) unsigned char constant[16]; /* read as one element */
    int phase;
    int ndim;
    tap__move_dim dims[TAP_MOVE_MAX_DIMS];
    /* set when the program is ready */
    bool tiled;
    int parallel, split;  /* the first `parallel` loops are spread over units; loop `split` in pieces; -1: none */
    int64_t piece, pieces, units, first_unit;
} tap__move;

typedef struct tap__moves {
    int count, room, phases;
    tap__move *list;
    struct tap__table *tables;
} tap__moves;

/* Makes the call's program, empty; tap__moves_release frees it. `size` is that of a struct whose first member is a
 * tap__moves, for kernels that keep more. */
tap_status tap__moves_begin(tap__call *call, size_t size, tap_error *err);
/* A move with no loops yet, in the present phase; valid until the next one is added. */
tap_status tap__moves_add(tap__call *call, int to, int from, tap__move **out, tap_error *err);
/* What is added later runs after what was added so far. */
void tap__moves_next_phase(tap__call *call);
/* A table of offsets that lives as long as the program; NULL when there is no memory. */
int64_t *tap__moves_table(tap__call *call, int64_t count);
/* Loops over steps of fixed distance (in elements of the move), the outermost first. */
void tap__move_loop(tap__move *move, int64_t size, int64_t to_stride, int64_t from_stride);
void tap__move_loop_at(tap__move *move, int64_t size, tap__move_step to, tap__move_step from);
/* The end of the program: orders and cuts the loops. */
void tap__moves_ready(tap__call *call);
/* The kernel's run and release functions. */
tap_status tap__moves_run(const tap__call *call, void *const *data, tap_error *err);
void tap__moves_release(tap__call *call);

/* With a run function of its own, which ends in tap__moves_run. */
#define TAP__MOVES_KERNEL_RUN(name, run_function)                                                                    \
    static tap_status tap__ready_##name(tap__call *call, tap_error *err)                                             \
    {                                                                                                                \
        tap_status status = prepare_##name(call, err);                                                               \
        if (status != TAP_OK)                                                                                        \
            tap__moves_release(call);                                                                                \
        return status;                                                                                               \
    }                                                                                                                \
    const tap__kernel tap__kernel_##name = {tap__ready_##name, run_function, tap__moves_release}
#define TAP__MOVES_KERNEL(name) TAP__MOVES_KERNEL_RUN(name, tap__moves_run)

/* Adds moves that copy a whole operand to one of the same sizes, or fill it with a value. */
tap_status tap__moves_copy(tap__call *call, int to, const tap__operand *to_operand, int from,
                           const tap__operand *from_operand, tap_error *err);
tap_status tap__moves_fill(tap__call *call, int to, const tap__operand *to_operand, const void *value, tap_error *err);

static inline size_t tap__item_bytes(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->bytes;
}

/* Fails unless the operand has these sizes, which its node's shape rule gives. */
tap_status tap__expect_sizes(const tap__call *call, const tap__operand *operand, int ndim, const int64_t *sizes,
                             tap_error *err);

/* The number as one element of this dtype, as ATen converts it: floats to integers by cutting off. */
void tap__number_store(const tap__number *number, tap_dtype dtype, void *element);

/* Row-major float32 rounded into a float16 or bfloat16 operand. */
void tap__store_halves(const tap__operand *operand, const float *from, uint16_t *to);

#endif
