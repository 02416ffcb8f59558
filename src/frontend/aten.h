/* aten.h - which operator an ATen overload means: the rows of aten.def, read once. */
#ifndef TAP_FRONTEND_ATEN_H
#define TAP_FRONTEND_ATEN_H

#include "graph/graph.h"

/* Where a parameter of the operator comes from. */
typedef struct tap__binding {
    enum { TAP__BIND_DEFAULT, TAP__BIND_ARG, TAP__BIND_CONST } kind;
    char text[24]; /* name of the argument, or the constant as written */
} tap__binding;

typedef struct tap__aten {
    const char *target;    /* "aten.add.Tensor" */
    const tap_op *op;
    tap__binding bindings[TAP_OP_MAX_PARAMS];
} tap__aten;

/* NULL: the host runs it. */
const tap__aten *tap__aten_find(const char *target);

/* One more row, for an operator that is being added, by one thread at a time; texts live as long as the process. */
tap_status tap__aten_add(const char *target, const tap_op *op, const char *bindings, tap_error *err);

#endif
