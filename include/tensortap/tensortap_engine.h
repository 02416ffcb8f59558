/* tensortap_engine.h - run a graph of tensor operators, and add operators to it.
 *
 * Experimental: until version 1.0 anything in here may change with a minor version; tensortap.h is more careful. A
 * graph is built, handed to an engine, and run in frames; what the engine cannot run it asks the host for, which is the
 * framework the graph came from. The rules of tensortap.h hold here too. */
#ifndef TENSORTAP_TENSORTAP_ENGINE_H
#define TENSORTAP_TENSORTAP_ENGINE_H

#include "tensortap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------------- graphs */

/* A graph is built in the order it runs: inputs, calls, outputs. Values are numbered from 0. Sizes are integers or
 * expressions over symbols that are known when the graph runs. Built by one thread; frozen by tap_engine_new. */
typedef struct tap_graph tap_graph;

/* An integer known at run time; -1: not known at all, or out of memory. Equal expressions have equal numbers. */
typedef int32_t tap_sym;
typedef enum tap_sym_op {
    TAP_SYM_ADD,
    TAP_SYM_SUB,
    TAP_SYM_MUL,
    TAP_SYM_FLOORDIV, /* rounds down; by zero: not known */
    TAP_SYM_MOD,      /* sign of the divisor, as in Python */
    TAP_SYM_POW,
    TAP_SYM_MAX,
    TAP_SYM_MIN
} tap_sym_op;

typedef enum tap_spec_type {
    TAP_SPEC_OPAQUE = 0, /* only the host knows what it is */
    TAP_SPEC_TENSOR = 1, /* strided, in memory */
    TAP_SPEC_INT = 2,    /* an integer: sizes[0] */
    TAP_SPEC_NONE = 3    /* nothing */
} tap_spec_type;

/* What a value will be. */
typedef struct tap_spec {
    tap_spec_type type;
    tap_dtype dtype;
    int32_t ndim;
    const tap_sym *sizes, *strides; /* copied */
    tap_sym offset;                 /* elements from the start of its storage */
    bool elsewhere;                 /* on a device whose memory the CPU cannot read */
} tap_spec;

typedef enum tap_arg_type {
    TAP_ARG_NONE,
    TAP_ARG_VALUE,   /* i: number of a value */
    TAP_ARG_INT,
    TAP_ARG_FLOAT,
    TAP_ARG_BOOL,
    TAP_ARG_COMPLEX,
    TAP_ARG_STR,
    TAP_ARG_DTYPE,   /* i: a tap_dtype */
    TAP_ARG_LIST,
    TAP_ARG_OTHER    /* something only the host understands (a device, a layout) */
} tap_arg_type;

typedef struct tap_arg {
    const char *name; /* of the parameter; NULL inside a list */
    tap_arg_type type;
    int64_t i;
    double f, imag;
    const char *s;
    const struct tap_arg *items; /* LIST */
    size_t count;
} tap_arg;

typedef enum tap_call_bits {
    TAP_CALL_HOST = 1,    /* must be run by the host, also if the engine could */
    TAP_CALL_OBSERVE = 2  /* tap_host.observe is called after it */
} tap_call_bits;

typedef struct tap_node_desc {
    size_t size;
    const char *name;      /* unique in the graph: "add_1" */
    const char *target;    /* "aten.add.Tensor" */
    const char *source;    /* "file.py:26: x = x + 1", NULL: not known */
    const tap_arg *args;   /* every parameter of the target, defaults filled in */
    size_t nargs;
    const tap_spec *outputs;
    size_t noutputs;
    unsigned flags;        /* tap_call_bits */
} tap_node_desc;
TAP_INIT(tap_node_desc)

TAP_API tap_status tap_graph_new(const char *name, tap_graph **out, tap_error *err);
TAP_API void tap_graph_free(tap_graph *graph);
TAP_API tap_sym tap_graph_const(tap_graph *graph, int64_t value);
TAP_API tap_sym tap_graph_symbol(tap_graph *graph, const char *name);
TAP_API tap_sym tap_graph_expr(tap_graph *graph, tap_sym_op op, tap_sym a, tap_sym b);
TAP_API tap_status tap_graph_input(tap_graph *graph, const char *name, const tap_spec *spec, int32_t *value,
                                   tap_error *err);
/* A value that is an integer following from the symbols alone. */
TAP_API tap_status tap_graph_int(tap_graph *graph, tap_sym sym, int32_t *value, tap_error *err);
/* Adds a node; *node is its number, *value the first of its values, the others follow. */
TAP_API tap_status tap_graph_call(tap_graph *graph, const tap_node_desc *desc, int32_t *node, int32_t *value,
                                  tap_error *err);
TAP_API tap_status tap_graph_output(tap_graph *graph, const int32_t *values, size_t count, tap_error *err);

typedef struct tap_node_info {
    size_t size;
    const char *name, *target, *source;
    const char *op;       /* name in the table of operators; "HostCall": the host runs it */
    const char *op_kind;  /* "view", "pointwise", "kernel", "host" */
    int32_t first_value, nvalues;
} tap_node_info;
TAP_INIT(tap_node_info)
TAP_API int32_t tap_graph_nodes(const tap_graph *graph);
TAP_API int32_t tap_graph_values(const tap_graph *graph);
TAP_API tap_status tap_graph_node(const tap_graph *graph, int32_t node, tap_node_info *out);

/* ----------------------------------------------------------------------------------------------------------- engine */

/* Whether a call of this target would be converted to an operator of the engine for some dtype. */
TAP_API bool tap_engine_knows(const char *target);

typedef struct tap_frame tap_frame; /* one run */

/* What the engine asks of the framework whose graph it runs. All calls come from the thread in tap_frame_run. */
typedef struct tap_host {
    size_t size;
    /* Runs a node as the framework does, and reports each of its values with tap_frame_set or tap_frame_set_int. */
    tap_status (*call)(void *user, tap_frame *frame, int32_t node, tap_error *err);
    /* Gives a fresh tensor for a value: `like` has dtype, sizes and strides; *data is element [0, ...]. */
    tap_status (*alloc)(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                        tap_error *err);
    /* The value was given with other strides or another dtype than the graph was traced with: makes a copy as traced. */
    tap_status (*match)(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                        tap_error *err);
    /* The value is not needed any more. */
    void (*release)(void *user, tap_frame *frame, int32_t value);
    /* Around long work that does not need the host, so that it can let other threads run. May be NULL. */
    void (*work)(void *user, tap_frame *frame, bool begins);
    /* After a node that asked for it, its values being held by the host (with TAP_ENGINE_EVERY_NODE its arguments
     * too). May be NULL when no node asks. */
    tap_status (*observe)(void *user, tap_frame *frame, int32_t node, tap_error *err);
} tap_host;
TAP_INIT(tap_host)

/* A graph ready to run. Thread-safe; plans for each signature are kept. Takes over the graph. */
typedef struct tap_engine tap_engine;
typedef enum tap_engine_bits {
    TAP_ENGINE_EVERY_NODE = 1, /* no fusing; every value is held by the host and every node observed */
    TAP_ENGINE_PROFILE = 2     /* times per node are kept: tap_engine_times */
} tap_engine_bits;
/* flags: tap_engine_bits. Frees the graph when it fails, too. */
TAP_API tap_status tap_engine_new(tap_graph *graph, unsigned flags, const tap_host *host, tap_engine **out,
                                  tap_error *err);
TAP_API void tap_engine_free(tap_engine *engine);
TAP_API const tap_graph *tap_engine_graph(const tap_engine *engine);
/* A run: begin, tap_frame_set for every input, run, end. user is handed to the host. */
TAP_API tap_status tap_frame_begin(tap_engine *engine, void *user, tap_frame **out, tap_error *err);
TAP_API tap_status tap_frame_run(tap_frame *frame, tap_error *err);
TAP_API void tap_frame_end(tap_frame *frame);
/* The value is this tensor: an input before the run, or what tap_host.call made. Sizes bind symbols. */
TAP_API tap_status tap_frame_set(tap_frame *frame, int32_t value, const tap_tensor *tensor, tap_error *err);
TAP_API tap_status tap_frame_set_int(tap_frame *frame, int32_t value, int64_t integer, tap_error *err);
TAP_API tap_status tap_frame_get_int(const tap_frame *frame, int32_t value, int64_t *out, tap_error *err);

typedef struct tap_engine_counts {
    size_t size;
    int32_t native, views, host; /* nodes of the newest plan, by who runs them */
    int32_t steps;               /* after fusing */
    int32_t plans;               /* made so far */
    uint64_t runs;
    uint64_t arena_bytes;        /* of the newest plan */
    uint64_t plan_nanoseconds;   /* spent on making plans */
} tap_engine_counts;
TAP_INIT(tap_engine_counts)
TAP_API tap_status tap_engine_count(tap_engine *engine, tap_engine_counts *out);
/* Whether the newest plan gave the node to the host. */
TAP_API bool tap_engine_is_host(tap_engine *engine, int32_t node);
/* TAP_ENGINE_PROFILE: work of a node over all runs, and when the newest run did it. A fused chain counts at its last. */
typedef struct tap_node_times {
    size_t size;
    uint64_t runs, nanoseconds, bytes;   /* bytes: read and written outside of the arena */
    uint64_t last_start, last_nanoseconds; /* on the monotonic clock */
} tap_node_times;
TAP_INIT(tap_node_times)
TAP_API tap_status tap_engine_times(tap_engine *engine, int32_t node, tap_node_times *out);

/* Where oneDNN's library (libdnnl.so.3) is; NULL: where the system looks for libraries. To be called before the first
 * graph runs. Without the library matrix products and convolutions run in the framework. */
TAP_API tap_status tap_engine_set_onednn(const char *path, tap_error *err);

/* -------------------------------------------------------------------------------------------------------- operators */

/* One row of the table of operators. Those of kind "ge" are GE's, called "ge.Add", under the names that GE has for inputs,
 * attributes and outputs; ge of any other row is the one that means the same. */
typedef struct tap_op_info {
    size_t size;
    const char *name, *ge, *kind, *doc;
    int nparams, ninputs, noutputs; /* noutputs -1: as many as a call says */
} tap_op_info;
TAP_INIT(tap_op_info)
TAP_API tap_status tap_op_describe(int index, tap_op_info *out); /* TAP_E_NOTFOUND past the end */
/* param: text "x", "x?", "x*", "axes:ints", "keep_dims:bool=false"; valid until the library is unloaded */
TAP_API const char *tap_op_param(int index, int param, char *room, size_t size);
/* output: text "y", "dx?" for one that may be left out, or "y*" for as many as a call says; NULL past the last */
TAP_API const char *tap_op_output(int index, int output, char *room, size_t size);

/* An operator of your own, in a shared library that exports
 *     tap_status tap_library_init(const tap_library *library, tap_error *err);
 * which calls library->add for each of its operators. tap_op_load (Python: tensortap.load_library) reads it into a
 * running process; nothing is built again. examples/operator has one. The library and the arguments are made by the
 * engine. */
typedef struct tap_op_args {
    size_t size;
    int nin, nout, nattrs, threads;
    const tap_tensor *in;  /* dtype NONE: left out; in a shape rule data is NULL */
    tap_tensor *out;       /* in run: all set (dtype NONE: left out); in a shape rule: to be filled, shape being room for TAP_MAX_NDIM sizes */
    const tap_arg *attrs;  /* in the order of the row */
} tap_op_args;

typedef struct tap_op_desc {
    size_t size;
    const char *name;     /* "Scale"; not one of the table's */
    const char *inputs;   /* "x, weight?, xs*" */
    const char *attrs;    /* "factor:float=1.0, axes:ints" */
    const char *outputs;  /* "y"; "dx?": one that may be left out when nobody wants it */
    const char *dtypes;   /* kinds of element: "BUIFC"; NULL: any */
    const char *doc;      /* one line */
    const char *target;   /* the framework's operator that means it: "mylib.scale.default" */
    const char *bindings; /* parameters whose arguments have other names there: "x=self, factor=2" */
    /* dtype, ndim and sizes of the outputs from the inputs; the engine compares them with what the framework says. */
    tap_status (*shape)(const tap_op_args *args, tap_error *err);
    /* Any strides; called from several threads at once. */
    tap_status (*run)(const tap_op_args *args, tap_error *err);
} tap_op_desc;
TAP_INIT(tap_op_desc)

typedef struct tap_library {
    size_t size;
    tap_status (*add)(const tap_op_desc *op, tap_error *err);
    tap_status (*fail)(tap_error *err, tap_status status, const char *message); /* fills err, returns status */
    void (*parallel)(int threads, int64_t count, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end),
                     void *user); /* pieces of at least grain on the threads the framework uses too */
} tap_library;

TAP_API tap_status tap_op_add(const tap_op_desc *op, tap_error *err);
TAP_API tap_status tap_op_load(const char *path, tap_error *err);

#ifdef __cplusplus
}
#endif
#endif
