/* kernel.h - what a kernel sees: one node with concrete sizes. The plan makes a call once per signature (prepare) and
 * runs it many times, in several threads at once, so run() writes only to its outputs and its scratch.
 *
 * Rules for kernels: any strides in inputs and outputs unless prepare refuses them; sizes of zero; 0-d; outputs never
 * overlap inputs unless the op table says so. The same bits for any number of threads. Never allocate in run: ask for
 * scratch in prepare. prepare may return TAP_E_UNSUPPORTED, and then the framework runs the node. */
#ifndef TAP_ENGINE_KERNEL_H
#define TAP_ENGINE_KERNEL_H

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

/* data: addresses of the elements [0, 0, ...] of in[0] ... in[nin - 1] (NULL: left out, or a number), of out[0] ..., then
 * of the scratch. */
typedef struct tap__kernel {
    tap_status (*prepare)(tap__call *call, tap_error *err); /* may be NULL */
    tap_status (*run)(const tap__call *call, void *const *data, tap_error *err);
    void (*release)(tap__call *call);                       /* may be NULL */
} tap__kernel;

/* By the attribute's name in the op's row; the row must have it. */
const tap__attr *tap__call_attr(const tap__call *call, const char *name);
int64_t tap__operand_count(const tap__operand *operand);
bool tap__operand_is_contiguous(const tap__operand *operand);
/* As a public view, with this data. */
tap_tensor tap__operand_view(const tap__operand *operand, void *data);

/* Calls body(user, begin, end) over [0, count) in pieces of at least `grain`, on at most call->threads threads of
 * OpenMP. Pieces depend on count and grain only, never on the number of threads. Not nested. */
void tap__parallel(const tap__call *call, int64_t count, int64_t grain,
                   void (*body)(void *user, int64_t begin, int64_t end), void *user);

#endif
