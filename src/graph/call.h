/* call.h - one node with concrete sizes: what shape rules and kernels look at. */
#ifndef TAP_GRAPH_CALL_H
#define TAP_GRAPH_CALL_H

#include "graph/op.h"

enum { TAP_ENGINE_MAX_NDIM = 12 };

/* A number that keeps its type: 'B' bool, 'I' int, 'F' float, 'C' complex. */
typedef struct tap__number {
    char kind;
    int64_t i;      /* B, I */
    double re, im;  /* F, C; set for B and I too */
} tap__number;

/* A tensor (sizes and strides in elements; no data: addresses come with each run) or a number. */
typedef struct tap__operand {
    tap_dtype dtype;  /* TAP_DTYPE_NONE: left out */
    bool is_number;   /* dtype is then bool, int64, float64 or complex128 */
    int32_t ndim;
    int64_t size[TAP_ENGINE_MAX_NDIM], stride[TAP_ENGINE_MAX_NDIM];
    int64_t offset;   /* set by a view's shape rule: elements from the input's first to the view's first */
    tap__number number;
} tap__operand;

typedef struct tap__attr {
    bool present;     /* false: none */
    tap_attr_type type;
    int64_t i;        /* INT, BOOL, DTYPE (a tap_dtype) */
    double f;         /* FLOAT */
    tap__number scalar;
    const char *s;
    int count;        /* of the lists; BOOLS are in ints */
    const int64_t *ints;
    const double *floats;
} tap__attr;

typedef struct tap__call {
    const tap_op *op;
    const char *name;            /* of the node, for messages */
    int nin, nout;               /* a LIST parameter is spread out: its items are in[first_of_list ... nin) */
    tap__operand *in, *out;
    const tap__attr *attrs;      /* in the order of the row's attributes */
    int threads;                 /* how many may be used */
    size_t scratch;              /* bytes wanted, 64-byte aligned: set by prepare */
    void *state;                 /* made by prepare, freed by release */
} tap__call;

/* By the attribute's name in the op's row; the row must have it. */
const tap__attr *tap__call_attr(const tap__call *call, const char *name);
int64_t tap__operand_count(const tap__operand *operand);
size_t tap__operand_bytes(const tap__operand *operand); /* from its first to behind its last element */
bool tap__operand_same_sizes(const tap__operand *a, const tap__operand *b);
/* Whether every element of one lies where that of the other does; strides that nobody walks may differ. */
bool tap__operand_same_layout(const tap__operand *a, const tap__operand *b);
/* The dtype a number stands for: bool, int64, float64 or complex128. */
tap_dtype tap__number_dtype(const tap__number *number);
bool tap__operand_is_contiguous(const tap__operand *operand);
/* As a public view, with this data. */
tap_tensor tap__operand_view(const tap__operand *operand, void *data);

#endif
