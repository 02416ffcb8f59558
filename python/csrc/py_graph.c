/* py_graph.c - building graphs from Python: Graph takes what _engine/backend.py reads from an FX graph, node by node. */
#include "py_graph.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ Ref */

PyTypeObject *ref_type, *graph_type;
PyObject *torch_dtype_type, *dtype_codes;

static PyObject *ref_new(int32_t value)
{
    ref_object *self = (ref_object *)((allocfunc)PyType_GetSlot(ref_type, Py_tp_alloc))(ref_type, 0);
    if (self)
        self->value = value;
    return (PyObject *)self;
}

static void ref_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *ref_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<value %d>", (int)((ref_object *)self)->value);
}

static PyType_Slot ref_slots[] = {{Py_tp_dealloc, ref_dealloc}, {Py_tp_repr, ref_repr}, {0, NULL}};
static PyType_Spec ref_spec = {"tensortap._core.Ref", sizeof(ref_object), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, ref_slots};

/* ---------------------------------------------------------------------------------------------------------- Graph */

void host_nodes_free(host_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Py_XDECREF(nodes[i].target);
        Py_XDECREF(nodes[i].args);
        Py_XDECREF(nodes[i].kwargs);
    }
    PyMem_Free(nodes);
}

static void graph_dealloc(PyObject *object)
{
    graph_object *self = (graph_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    tap_graph_free(self->graph);
    host_nodes_free(self->nodes, self->nnodes);
    Py_XDECREF(self->constants);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    tap_error err = {0};
    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Graph takes a name");
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    graph_object *self = (graph_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->constants = PyList_New(0);
    if (!self->constants || tap_graph_new(name, &self->graph, &err) != TAP_OK) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : raise_error(&err);
    }
    return (PyObject *)self;
}

tap_graph *graph_of(graph_object *self)
{
    if (!self->graph)
        PyErr_SetString(PyExc_RuntimeError, "this graph was made into a program already");
    return self->graph;
}

/* Memory of one call of the builder: arguments nest, so they are gathered in a bump allocator. */
typedef struct pool {
    struct pool_block {
        struct pool_block *next;
        size_t used;
        _Alignas(16) char bytes[8192 - 32];
    } *blocks;
    PyObject *owners; /* list or NULL: what keeps texts alive */
} pool;

static void *pool_alloc(pool *self, size_t count, size_t size)
{
    size_t bytes = (count * size + 15) & ~(size_t)15;
    if (bytes > sizeof self->blocks->bytes) {
        PyErr_SetString(PyExc_ValueError, "a list of arguments is too long for a graph");
        return NULL;
    }
    if (!self->blocks || self->blocks->used + bytes > sizeof self->blocks->bytes) {
        struct pool_block *block = PyMem_Malloc(sizeof *block);
        if (!block) {
            PyErr_NoMemory();
            return NULL;
        }
        block->next = self->blocks;
        block->used = 0;
        self->blocks = block;
    }
    void *at = self->blocks->bytes + self->blocks->used;
    self->blocks->used += bytes;
    memset(at, 0, bytes);
    return at;
}

static void pool_free(pool *self)
{
    while (self->blocks) {
        struct pool_block *next = self->blocks->next;
        PyMem_Free(self->blocks);
        self->blocks = next;
    }
    Py_XDECREF(self->owners);
}

static const char *pool_text(pool *self, PyObject *str)
{
    PyObject *owner;
    const char *text = text_of(str, &owner);
    if (owner) {
        if (!self->owners)
            self->owners = PyList_New(0);
        int failed = !self->owners || PyList_Append(self->owners, owner) < 0;
        Py_DECREF(owner);
        if (failed)
            return NULL;
    }
    return text;
}

/* A size: an int, or ~number of an expression. */
static int take_sym(tap_graph *graph, PyObject *item, tap_sym *out)
{
    long long value = PyLong_AsLongLong(item);
    if (value == -1 && PyErr_Occurred())
        return -1;
    *out = value < 0 ? (tap_sym)~value : tap_graph_const(graph, value);
    return 0;
}

static int take_syms(pool *memory, tap_graph *graph, PyObject *tuple, const tap_sym **out, int32_t *count)
{
    Py_ssize_t len = PyTuple_Size(tuple);
    tap_sym *syms = len < 0 ? NULL : pool_alloc(memory, (size_t)len + 1, sizeof *syms);
    if (!syms)
        return -1;
    for (Py_ssize_t i = 0; i < len; i++)
        if (take_sym(graph, PyTuple_GetItem(tuple, i), &syms[i]) < 0)
            return -1;
    *out = syms;
    *count = (int32_t)len;
    return 0;
}

/* spec: None (nothing), False (only torch knows it), an int (~number of an expression: an integer), or a tuple
 * (dtype code, sizes, strides, offset, elsewhere); sizes None: the shape rule tells them, strides then hold the rank. */
static int take_spec(pool *memory, tap_graph *graph, PyObject *spec, tap_spec *out)
{
    *out = (tap_spec){.type = TAP_SPEC_OPAQUE, .offset = -1};
    if (spec == Py_None) {
        out->type = TAP_SPEC_NONE;
        return 0;
    }
    if (spec == Py_False)
        return 0;
    if (PyLong_Check(spec)) {
        tap_sym *sym = pool_alloc(memory, 1, sizeof *sym);
        if (!sym || take_sym(graph, spec, sym) < 0)
            return -1;
        out->type = TAP_SPEC_INT;
        out->dtype = TAP_I64;
        out->ndim = 1;
        out->sizes = sym;
        return 0;
    }
    int dtype, elsewhere;
    PyObject *sizes, *strides, *offset;
    int32_t count;
    if (!PyArg_ParseTuple(spec, "iOOOp", &dtype, &sizes, &strides, &offset, &elsewhere))
        return -1;
    out->dtype = (tap_dtype)dtype;
    out->elsewhere = elsewhere;
    out->type = TAP_SPEC_TENSOR;
    if (take_sym(graph, offset, &out->offset) < 0)
        return -1;
    if (sizes == Py_None) {
        out->ndim = (int32_t)PyLong_AsLong(strides);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (take_syms(memory, graph, sizes, &out->sizes, &out->ndim) < 0 ||
        take_syms(memory, graph, strides, &out->strides, &count) < 0)
        return -1;
    if (count != out->ndim) {
        PyErr_SetString(PyExc_ValueError, "as many strides as sizes");
        return -1;
    }
    return 0;
}

static int take_arg(pool *memory, PyObject *object, tap_arg *out);

static int take_list(pool *memory, PyObject *object, tap_arg *out)
{
    Py_ssize_t count = PySequence_Size(object);
    tap_arg *items = count < 0 ? NULL : pool_alloc(memory, (size_t)count + 1, sizeof *items);
    if (!items)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int failed = !item || take_arg(memory, item, &items[i]) < 0;
        Py_XDECREF(item); /* the list keeps it */
        if (failed)
            return -1;
    }
    out->type = TAP_ARG_LIST;
    out->items = items;
    out->count = (size_t)count;
    return 0;
}

static int take_arg(pool *memory, PyObject *object, tap_arg *out)
{
    out->type = TAP_ARG_OTHER;
    if (object == Py_None) {
        out->type = TAP_ARG_NONE;
    } else if (Py_TYPE(object) == ref_type) {
        out->type = TAP_ARG_VALUE;
        out->i = ((ref_object *)object)->value;
    } else if (PyBool_Check(object)) {
        out->type = TAP_ARG_BOOL;
        out->i = object == Py_True;
    } else if (PyLong_Check(object)) {
        int overflow;
        out->i = PyLong_AsLongLongAndOverflow(object, &overflow);
        out->type = overflow ? TAP_ARG_OTHER : TAP_ARG_INT;
    } else if (PyFloat_Check(object)) {
        out->type = TAP_ARG_FLOAT;
        out->f = PyFloat_AsDouble(object);
    } else if (PyComplex_Check(object)) {
        out->type = TAP_ARG_COMPLEX;
        out->f = PyComplex_RealAsDouble(object);
        out->imag = PyComplex_ImagAsDouble(object);
    } else if (PyUnicode_Check(object)) {
        out->type = TAP_ARG_STR;
        out->s = pool_text(memory, object);
        return out->s ? 0 : -1;
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
        return take_list(memory, object, out);
    } else if ((PyObject *)Py_TYPE(object) == torch_dtype_type) {
        PyObject *code = PyDict_GetItem(dtype_codes, object);
        if (code) {
            out->type = TAP_ARG_DTYPE;
            out->i = PyLong_AsLongLong(code);
        }
    }
    return 0;
}

static PyObject *graph_symbol(PyObject *object, PyObject *name)
{
    graph_object *self = (graph_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text || !graph_of(self))
        return NULL;
    tap_sym sym = tap_graph_symbol(self->graph, text);
    return sym < 0 ? PyErr_NoMemory() : PyLong_FromLong(~(long)sym);
}

static PyObject *graph_expr(PyObject *object, PyObject *args)
{
    graph_object *self = (graph_object *)object;
    int op;
    PyObject *a, *b;
    tap_sym left, right;
    if (!PyArg_ParseTuple(args, "iOO", &op, &a, &b) || !graph_of(self) || take_sym(self->graph, a, &left) < 0 ||
        take_sym(self->graph, b, &right) < 0)
        return NULL;
    tap_sym sym = tap_graph_expr(self->graph, (tap_sym_op)op, left, right);
    return sym < 0 ? PyErr_NoMemory() : PyLong_FromLong(~(long)sym);
}

static PyObject *graph_const(PyObject *object, PyObject *number)
{
    graph_object *self = (graph_object *)object;
    long long value = PyLong_AsLongLong(number);
    if ((value == -1 && PyErr_Occurred()) || !graph_of(self))
        return NULL;
    tap_sym sym = tap_graph_const(self->graph, value);
    return sym < 0 ? PyErr_NoMemory() : PyLong_FromLong(~(long)sym);
}

static PyObject *graph_input(PyObject *object, PyObject *args)
{
    graph_object *self = (graph_object *)object;
    const char *name;
    PyObject *spec, *constant = NULL;
    if (!PyArg_ParseTuple(args, "sO|O", &name, &spec, &constant) || !graph_of(self))
        return NULL;
    pool memory = {0};
    tap_spec taken;
    tap_error err = {0};
    int32_t value;
    PyObject *ref = NULL;
    if (take_spec(&memory, self->graph, spec, &taken) == 0) {
        if (tap_graph_input(self->graph, name, &taken, &value, &err) != TAP_OK)
            raise_error(&err);
        else
            ref = ref_new(value);
    }
    pool_free(&memory);
    if (ref && constant) {
        PyObject *pair = Py_BuildValue("(iO)", (int)value, constant);
        if (!pair || PyList_Append(self->constants, pair) < 0)
            Py_CLEAR(ref);
        Py_XDECREF(pair);
    }
    return ref;
}

static PyObject *graph_integer(PyObject *object, PyObject *sym)
{
    graph_object *self = (graph_object *)object;
    tap_error err = {0};
    tap_sym taken;
    int32_t value;
    if (!graph_of(self) || take_sym(self->graph, sym, &taken) < 0)
        return NULL;
    if (tap_graph_int(self->graph, taken, &value, &err) != TAP_OK)
        return raise_error(&err);
    return ref_new(value);
}

static int keep_host_node(graph_object *self, PyObject *target, PyObject *args, PyObject *kwargs, bool many)
{
    if (self->nnodes == self->room) {
        size_t room = self->room ? self->room * 2 : 64;
        host_node *nodes = PyMem_Realloc(self->nodes, room * sizeof *nodes);
        if (!nodes) {
            PyErr_NoMemory();
            return -1;
        }
        self->nodes = nodes;
        self->room = room;
    }
    self->nodes[self->nnodes++] = (host_node){.target = Py_NewRef(target), .args = Py_NewRef(args), .many = many,
                                              .kwargs = PyDict_Check(kwargs) && PyDict_Size(kwargs) > 0
                                                            ? Py_NewRef(kwargs) : NULL};
    return 0;
}

/* call(name, target text, source or None, [(parameter, argument)...], (spec, ...), flags, target, args, kwargs, many)
 * -> tuple of Refs */
static PyObject *graph_call(PyObject *object, PyObject *args)
{
    graph_object *self = (graph_object *)object;
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    PyObject *named, *specs, *target, *template, *kwargs;
    unsigned flags;
    int many;
    if (!PyArg_ParseTuple(args, "sszO!O!IOO!Op", &desc.name, &desc.target, &desc.source, &PyTuple_Type, &named,
                          &PyTuple_Type, &specs, &flags, &target, &PyTuple_Type, &template, &kwargs, &many) ||
        !graph_of(self))
        return NULL;
    pool memory = {0};
    PyObject *result = NULL;
    tap_error err = {0};
    int32_t node, value;
    desc.flags = flags;
    desc.nargs = (size_t)PyTuple_Size(named);
    desc.noutputs = (size_t)PyTuple_Size(specs);
    tap_arg *taken = pool_alloc(&memory, desc.nargs + 1, sizeof *taken);
    tap_spec *outputs = taken ? pool_alloc(&memory, desc.noutputs + 1, sizeof *outputs) : NULL;
    if (!outputs)
        goto done;
    for (size_t i = 0; i < desc.nargs; i++) {
        PyObject *pair = PyTuple_GetItem(named, (Py_ssize_t)i), *argument;
        if (!PyArg_ParseTuple(pair, "sO", &taken[i].name, &argument) || take_arg(&memory, argument, &taken[i]) < 0)
            goto done;
    }
    for (size_t i = 0; i < desc.noutputs; i++)
        if (take_spec(&memory, self->graph, PyTuple_GetItem(specs, (Py_ssize_t)i), &outputs[i]) < 0)
            goto done;
    desc.args = taken;
    desc.outputs = outputs;
    if (tap_graph_call(self->graph, &desc, &node, &value, &err) != TAP_OK) {
        raise_error(&err);
        goto done;
    }
    if (keep_host_node(self, target, template, kwargs, many) < 0)
        goto done;
    result = PyTuple_New((Py_ssize_t)desc.noutputs);
    for (size_t i = 0; result && i < desc.noutputs; i++) {
        PyObject *ref = ref_new(value + (int32_t)i);
        if (!ref || PyTuple_SetItem(result, (Py_ssize_t)i, ref) < 0)
            Py_CLEAR(result);
    }
done:
    pool_free(&memory);
    return result;
}

static PyMethodDef graph_methods[] = {
    {"symbol", graph_symbol, METH_O, "symbol(name) -> the number of a symbol, as sizes take it"},
    {"expr", graph_expr, METH_VARARGS, "expr(op, a, b) -> the number of an expression"},
    {"const", graph_const, METH_O, "const(int) -> the number of a constant"},
    {"input", graph_input, METH_VARARGS, "input(name, spec[, constant]) -> Ref"},
    {"integer", graph_integer, METH_O, "integer(expression) -> Ref of a value that follows from the symbols"},
    {"call", graph_call, METH_VARARGS, "call(...) -> tuple of Refs: adds a node"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot graph_slots[] = {{Py_tp_new, graph_new}, {Py_tp_dealloc, graph_dealloc},
                                    {Py_tp_methods, graph_methods},
                                    {Py_tp_doc, "A graph being built, in the order it runs."}, {0, NULL}};
static PyType_Spec graph_spec = {"tensortap._core.Graph", sizeof(graph_object), 0, Py_TPFLAGS_DEFAULT, graph_slots};

int graph_init(PyObject *module)
{
    ref_type = (PyTypeObject *)PyType_FromSpec(&ref_spec);
    graph_type = (PyTypeObject *)PyType_FromSpec(&graph_spec);
    return !ref_type || !graph_type || PyModule_AddObjectRef(module, "Ref", (PyObject *)ref_type) < 0 ||
                   PyModule_AddObjectRef(module, "Graph", (PyObject *)graph_type) < 0
               ? -1
               : 0;
}
