/* op.h - the one table of operators (ops.def), as data: what each takes, what it gives, how it is run. Builders,
 * documentation, printers and checks are all made from it. Nothing here allocates after the first use. */
#ifndef TAP_GRAPH_OP_H
#define TAP_GRAPH_OP_H

#include "tensortap/tensortap_engine.h"

enum { TAP_OP_MAX_PARAMS = 24, TAP_OP_MAX_OUTPUTS = 12 };

/* How a node of the operator is carried out. */
typedef enum tap_op_kind {
    TAP_OP_DATA,      /* a graph input */
    TAP_OP_CONST,     /* a value kept in the graph */
    TAP_OP_OUTPUT,    /* the graph's results */
    TAP_OP_VIEW,      /* the same memory seen with other sizes, strides and offset: no work at all */
    TAP_OP_POINTWISE, /* one value from values at the same place: fused into block programs (kernels/pointwise.h) */
    TAP_OP_KERNEL,    /* a kernel of its own (engine/kernel.h) */
    TAP_OP_HOST,      /* run by the framework that made the graph */
    TAP_OP_GE         /* of GE: described for those who build such graphs, never a node of ours */
} tap_op_kind;

typedef enum tap_attr_type {
    TAP_ATTR_INT,
    TAP_ATTR_FLOAT,
    TAP_ATTR_BOOL,
    TAP_ATTR_SCALAR, /* a number of any type: bool, int, float or complex; its own type matters */
    TAP_ATTR_DTYPE,
    TAP_ATTR_STR,
    TAP_ATTR_INTS,
    TAP_ATTR_FLOATS,
    TAP_ATTR_BOOLS
} tap_attr_type;

typedef enum tap_param_kind {
    TAP_PARAM_INPUT,    /* "x": a tensor, or a number where a pointwise operator takes one */
    TAP_PARAM_OPTIONAL, /* "x?": may be left out */
    TAP_PARAM_LIST,     /* "x*": any number of tensors, the last input; items may be left out */
    TAP_PARAM_ATTR      /* "name:type", "name:type=default", "name:type?" (may be none) */
} tap_param_kind;

typedef struct tap_param {
    char name[24];
    tap_param_kind kind;
    tap_attr_type type;   /* ATTR */
    bool optional;        /* ATTR: none is allowed */
    bool has_default;
    char text[16];        /* the default as written */
} tap_param;

/* One number for each POINTWISE row: TAP_PW_Add ... */
typedef enum tap__pw_code {
    TAP_PW_NONE,
#define POINTWISE(name, ...) TAP_PW_##name,
#include "graph/ops.def"
    TAP_PW_END
} tap__pw_code;

/* One number for each row of the table, in its order: TAP__ROW_Add, of a GE row TAP__ROW_GE_Add. */
typedef enum tap__op_row {
    TAP__ROW_Data,
    TAP__ROW_Const,
    TAP__ROW_NetOutput,
    TAP__ROW_HostCall,
#define VIEW(name, ...) TAP__ROW_##name,
#define POINTWISE(name, ...) TAP__ROW_##name,
#define KERNEL(name, ...) TAP__ROW_##name,
#define COUNTED(name, ...) TAP__ROW_##name,
#define GE(name, ...) TAP__ROW_GE_##name,
#include "graph/ops.def"
    TAP__ROWS /* and of an operator that was added */
} tap__op_row;

struct tap__call;
/* Sizes of the outputs from those of the inputs, all concrete: fills call->out[i] (dtype, ndim, sizes). */
typedef tap_status (*tap_shape_rule)(struct tap__call *call, tap_error *err);

typedef struct tap_op {
    const char *name;       /* "Add"; of a GE row "ge.Add" */
    const char *ge;         /* the GE operator of the same meaning, NULL: none; of a GE row its own name */
    tap_op_kind kind;
    tap__op_row row;
    int nparams, ninputs;   /* inputs come first; a LIST counts as one */
    int noutputs;           /* -1: as many as the node says */
    tap_param params[TAP_OP_MAX_PARAMS];
    char outputs[TAP_OP_MAX_OUTPUTS][16];
    bool output_optional[TAP_OP_MAX_OUTPUTS]; /* "dx?": may be one that nobody wants */
    const char *dtypes;     /* kinds of element its inputs may have, of "BUIFC"; NULL: any */
    tap_shape_rule shape;   /* NULL: not known from the inputs alone */
    bool counted;           /* the first size of the first output depends on data */
    tap__pw_code code;      /* POINTWISE */
    const char *doc;        /* one line */
    const struct tap_op_desc *user; /* of an operator that is not ours; NULL: in the table */
} tap_op;

/* By our name; NULL if there is none. Thread-safe, also while operators are added. */
const tap_op *tap__op_find(const char *name);
/* In the order of the table; NULL past its end. */
const tap_op *tap__op_at(int index);
/* An operator that is not in the table (a library of the user's), which nobody finds before it is published; fails with
 * E_EXISTS for a name taken. One thread at a time drafts, and publishes or forgets its draft. desc and its texts live as
 * long as the process. */
tap_status tap__op_draft(const tap_op_desc *desc, tap_shape_rule shape, const tap_op **out, tap_error *err);
void tap__op_publish(void);

#endif
