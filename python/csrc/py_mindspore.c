/* py_mindspore.c - the operators that taps are inside MindSpore's graphs: plain C functions that its "aot" custom operator
 * finds by name in this library. params: the inputs, then the output; all row-major, on the CPU.
 *
 *     tensortap_ms_tap(site, x) -> ticket            saves one leaf
 *     tensortap_ms_more(site, x, ticket) -> ticket   saves a further leaf of the same value
 *     tensortap_ms_grad(site, g, ticket) -> ticket   saves a gradient
 *     tensortap_ms_here(x) -> ticket                 does nothing: a place that others can be made to come after
 *     tensortap_ms_step(x) -> ticket                 ends the step
 *     tensortap_ms_print(site, x) -> ticket          shows a value, or appends it to a print file
 *
 * site is a uint8 tensor holding the string of py_site.h, a ticket is int64[4]. They run on MindSpore's threads, without
 * the GIL, and always succeed: a graph is not ended for what could not be recorded. */
#include "py_site.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Called by MindSpore. stream is NULL on the CPU; extra is a C++ object. */
typedef int ms_operator(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                        void *extra);
EXPORT ms_operator tensortap_ms_tap, tensortap_ms_more, tensortap_ms_grad, tensortap_ms_here, tensortap_ms_step,
    tensortap_ms_print;

/* What MindSpore asks where shapes are dynamic, by the operator's name and "InferShape": a C++ function that returns a
 * std::vector<int64_t>. Both compilers hand a struct of this size back in the same way, and MindSpore frees the memory. */
typedef struct ms_shape {
    int64_t *begin, *end, *capacity;
} ms_shape;
typedef ms_shape ms_infer_shape(int *ndims, int64_t **shapes, void *extra);
EXPORT ms_infer_shape tensortap_ms_tapInferShape, tensortap_ms_moreInferShape, tensortap_ms_gradInferShape,
    tensortap_ms_hereInferShape, tensortap_ms_stepInferShape, tensortap_ms_printInferShape;

static ms_shape ticket_shape(void)
{
    int64_t *room = malloc(sizeof *room);
    if (!room)
        return (ms_shape){NULL, NULL, NULL};
    *room = TICKET;
    return (ms_shape){room, room + 1, room + 1};
}

#define INFER_SHAPE(name)                                                                                            \
    ms_shape name##InferShape(int *ndims, int64_t **shapes, void *extra)                                             \
    {                                                                                                                \
        (void)ndims, (void)shapes, (void)extra;                                                                      \
        return ticket_shape();                                                                                       \
    }
INFER_SHAPE(tensortap_ms_tap)
INFER_SHAPE(tensortap_ms_more)
INFER_SHAPE(tensortap_ms_grad)
INFER_SHAPE(tensortap_ms_here)
INFER_SHAPE(tensortap_ms_step)
INFER_SHAPE(tensortap_ms_print)

static const tap_graph_site *read_site(void *const *params, int64_t *const *shapes)
{
    return graph_site(params[0], (size_t)shapes[0][0]);
}

static bool view_param(int at, void *const *params, const int *ndims, int64_t *const *shapes,
                       const char *const *dtypes, tap_value *out)
{
    memset(out, 0, sizeof *out);
    out->type = TAP_VALUE_TENSOR;
    out->tensor = (tap_tensor){.data = params[at], .dtype = tap_dtype_find(dtypes[at]), .ndim = ndims[at],
                               .shape = shapes[at]};
    return out->tensor.dtype != TAP_DTYPE_NONE && ndims[at] <= TAP_MAX_NDIM;
}

static void start_ticket(int64_t *numbers)
{
    memset(numbers, 0, TICKET * sizeof *numbers);
    numbers[0] = TICKET_MAGIC;
}

int tensortap_ms_tap(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                     void *extra)
{
    (void)stream, (void)extra;
    if (nparam != 3)
        return 0;
    start_ticket(params[2]);
    const tap_graph_site *site = read_site(params, shapes);
    tap_value value;
    if (site && view_param(1, params, ndims, shapes, dtypes, &value))
        graph_site_run_leaf(site, &value, NULL, params[2]);
    return 0;
}

int tensortap_ms_more(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                      void *extra)
{
    (void)stream, (void)extra;
    if (nparam != 4)
        return 0;
    const tap_graph_site *site = read_site(params, shapes);
    tap_value value;
    int64_t unused[TICKET];
    if (site && view_param(1, params, ndims, shapes, dtypes, &value))
        graph_site_run_leaf(site, &value, params[2], unused);
    memmove(params[3], params[2], TICKET * sizeof(int64_t));
    return 0;
}

int tensortap_ms_grad(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                      void *extra)
{
    (void)stream, (void)extra;
    if (nparam != 4)
        return 0;
    const tap_graph_site *site = read_site(params, shapes);
    tap_value value;
    if (site && view_param(1, params, ndims, shapes, dtypes, &value))
        graph_site_run_gradient(site, &value, params[2], NULL);
    memmove(params[3], params[2], TICKET * sizeof(int64_t));
    return 0;
}

int tensortap_ms_here(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                      void *extra)
{
    (void)ndims, (void)shapes, (void)dtypes, (void)stream, (void)extra;
    if (nparam == 2)
        start_ticket(params[1]);
    return 0;
}

int tensortap_ms_step(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                      void *extra)
{
    (void)ndims, (void)shapes, (void)dtypes, (void)stream, (void)extra;
    if (nparam != 2)
        return 0;
    start_ticket(params[1]);
    sinks_step(true);
    return 0;
}

/* The text before the value, then the value; a file that cannot be written is said once. */
static void print_value(const tap_graph_site *site, const tap_value *value)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *file = graph_site_print_file(site);
    tap_error err;
    if (!file)
        core_print_value(graph_site_name(site), value, false);
    else if (tap_print_file_append(file, graph_site_name(site), &value->tensor, &err) != TAP_OK &&
             !atomic_flag_test_and_set(&told))
        core_say(err.message);
}

int tensortap_ms_print(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                       void *extra)
{
    (void)stream, (void)extra;
    if (nparam != 3)
        return 0;
    start_ticket(params[2]);
    const tap_graph_site *site = read_site(params, shapes);
    tap_value value;
    if (site && view_param(1, params, ndims, shapes, dtypes, &value))
        print_value(site, &value);
    return 0;
}

/* print_to_file(path, text, value) -> None: appends to a print file */
static PyObject *print_to_file(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *value;
    const char *path, *text;
    if (!PyArg_ParseTuple(args, "ssO", &path, &text, &value))
        return NULL;
    tap_tree tree;
    tap_error err = {.status = TAP_OK};
    int failure = tree_build(&tree, value) < 0;
    if (!failure && tree.value.type != TAP_VALUE_TENSOR) {
        PyErr_SetString(PyExc_TypeError, "print_to_file takes a tensor");
        failure = 1;
    } else if (!failure && (err.status = tap_print_file_append(path, text, &tree.value.tensor, &err)) != TAP_OK) {
        raise_error(&err);
        failure = 1;
    }
    tree_free(&tree);
    if (failure)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"print_to_file", print_to_file, METH_VARARGS, "print_to_file(path, text, value): append to a print file."},
    {NULL, NULL, 0, NULL},
};

int mindspore_init(PyObject *module)
{
    return PyModule_AddFunctions(module, module_methods);
}
