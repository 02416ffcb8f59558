/* graph.h - a graph as the engine sees it: values with symbolic sizes, and nodes whose parameters are bound to rows of
 * the op table. Built front to back; nothing is changed after tap_engine_new. */
#ifndef TAP_GRAPH_GRAPH_H
#define TAP_GRAPH_GRAPH_H

#include "base/arena.h"
#include "graph/call.h"
#include "graph/sym.h"

typedef struct tap__value {
    tap_spec_type type;
    tap_dtype dtype;
    int32_t ndim;
    bool elsewhere;
    bool inferred;         /* sizes are not given: the op's shape rule tells them */
    tap_sym *size, *stride; /* ndim each, in the graph's own memory; INT: size[0] is the integer */
    tap_sym offset;
    int32_t node;          /* that makes it; -1: a graph input */
    bool is_output;
} tap__value;

/* One operand of a node. */
typedef struct tap__source {
    enum { TAP__SOURCE_NONE, TAP__SOURCE_VALUE, TAP__SOURCE_NUMBER, TAP__SOURCE_SYM } kind;
    int32_t value;       /* VALUE */
    tap_sym sym;         /* SYM: an integer known at run time */
    tap__number number;  /* NUMBER */
} tap__source;

/* An attribute; where syms is not NULL the integers of it are these expressions (one for INT and SCALAR). */
typedef struct tap__attr_source {
    tap__attr fixed;
    const tap_sym *syms;
} tap__attr_source;

typedef struct tap__node {
    const tap_op *op;           /* the HostCall row when the host runs it */
    char *name, *target, *source;
    int32_t nsources;
    tap__source *sources;       /* of the op's inputs in order, a list spread out */
    tap__attr_source *attrs;
    int32_t nuses;
    int32_t *uses;              /* every value among the arguments: what the host needs to run it */
    int32_t first_value, nvalues;
    unsigned flags;             /* TAP_CALL_* */
} tap__node;

struct tap_graph {
    char *name;
    tap__syms syms;
    tap__value *values;
    int32_t nvalues, values_room;
    tap__node *nodes;
    int32_t nnodes, nodes_room;
    int32_t *inputs, ninputs, inputs_room;   /* values */
    int32_t *outputs, noutputs;
    tap_arena memory;                        /* of everything small */
};

/* Memory that lives as long as the graph; zeroed; NULL when there is none. */
void *tap__graph_alloc(tap_graph *graph, size_t count, size_t size);
char *tap__graph_text(tap_graph *graph, const char *text);
/* A new value made by `node`; name: whose it is, for messages. */
tap_status tap__graph_value(tap_graph *graph, const char *name, const tap_spec *spec, int32_t node, int32_t *value,
                            tap_error *err);
/* Appends a node with its values; the caller fills sources, attrs and uses. The pointer is good until the next one. */
tap_status tap__graph_node(tap_graph *graph, const tap_op *op, const tap_node_desc *desc, tap__node **node,
                           tap_error *err);

#endif
