/* py_graph.h - what the builder of graphs (py_graph.c) and what runs them (py_engine.c) share. */
#ifndef TAP_PYTHON_GRAPH_H
#define TAP_PYTHON_GRAPH_H

#include "py_core.h"
#include "tensortap/tensortap_engine.h"

/* Stands in templates of arguments for a value of the graph. */
typedef struct ref_object {
    PyObject_HEAD
    int32_t value;
} ref_object;
extern PyTypeObject *ref_type;

/* How torch runs a node. */
typedef struct host_node {
    PyObject *target, *args, *kwargs; /* args: a tuple with Refs; kwargs: a dict or NULL */
    bool many;                        /* the result is a tuple or list of the node's values */
} host_node;
void host_nodes_free(host_node *nodes, size_t count);

typedef struct graph_object {
    PyObject_HEAD
    tap_graph *graph; /* NULL once a Program has it */
    host_node *nodes;
    size_t nnodes, room;
    PyObject *constants; /* list of (value, object): inputs that are always the same */
} graph_object;
extern PyTypeObject *graph_type;
/* The graph being built; NULL with an exception when a Program has it. */
tap_graph *graph_of(graph_object *self);

/* torch.dtype itself, and its values to the library's numbers; set by engine_setup. */
extern PyObject *torch_dtype_type, *dtype_codes;

int graph_init(PyObject *module);

#endif
