/* _engine.c - graphs for Python: Graph takes what _backend.py reads from an FX graph, Program runs it. The engine works
 * on memory; here are the tensor objects around it: arguments, results, whatever an operator of torch's reads. */
#include "_core.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DIMS = 64, MAX_ARGS = 64 };

/* ------------------------------------------------------------------------------------------------------------ Ref */

/* Stands in templates of arguments for a value of the graph. */
typedef struct ref_object {
    PyObject_HEAD
    int32_t value;
} ref_object;

static PyTypeObject *ref_type;
static PyObject *torch_dtype_type, *dtype_codes, *codes_dtype, *empty_strided, *restride, *plain_view;

static PyObject *ref_new(int32_t value)
{
    ref_object *self = PyObject_New(ref_object, ref_type);
    if (self)
        self->value = value;
    return (PyObject *)self;
}

static void ref_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
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

/* How torch runs a node. */
typedef struct host_node {
    PyObject *target, *args, *kwargs; /* args: a tuple with Refs; kwargs: a dict or NULL */
    bool many;                        /* the result is a tuple or list of the node's values */
} host_node;

typedef struct graph_object {
    PyObject_HEAD
    tap_graph *graph; /* NULL once a Program has it */
    host_node *nodes;
    size_t nnodes, room;
    PyObject *constants; /* list of (value, object): inputs that are always the same */
} graph_object;

static void host_nodes_free(host_node *nodes, size_t count)
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

static tap_graph *graph_of(graph_object *self)
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
static PyTypeObject *graph_type;

/* -------------------------------------------------------------------------------------------------------- Program */

typedef struct program_object {
    PyObject_HEAD
    tap_engine *engine;
    host_node *nodes;
    size_t nnodes;
    int32_t nvalues;
    int32_t *inputs; /* of the call's arguments: values */
    Py_ssize_t ninputs;
    PyObject *constants, *outputs; /* outputs: a tuple of Refs and constants */
    PyObject *observer;            /* called with (node, args, kwargs, outputs) or NULL; args None: not held */
    unsigned flags;                /* TAP_ENGINE_* */
} program_object;

/* One call. */
typedef struct run {
    program_object *program;
    PyThreadState *released;
    PyObject *objects[]; /* per value, owned */
} run;

static PyObject *object_of(run *self, tap_frame *frame, int32_t value)
{
    if (self->objects[value])
        return Py_NewRef(self->objects[value]);
    int64_t integer;
    tap_error err = {0};
    if (tap_frame_get_int(frame, value, &integer, &err) != TAP_OK)
        return raise_error(&err);
    return PyLong_FromLongLong(integer);
}

static PyObject *fill_template(run *self, tap_frame *frame, PyObject *template);

static PyObject *fill_sequence(run *self, tap_frame *frame, PyObject *template, bool tuple)
{
    Py_ssize_t count = tuple ? PyTuple_Size(template) : PyList_Size(template);
    PyObject *made = tuple ? PyTuple_New(count) : PyList_New(count);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        PyObject *item = tuple ? PyTuple_GetItem(template, i) : PyList_GetItem(template, i);
        PyObject *filled = item ? fill_template(self, frame, item) : NULL;
        if (!filled || (tuple ? PyTuple_SetItem(made, i, filled) : PyList_SetItem(made, i, filled)) < 0)
            Py_CLEAR(made);
    }
    return made;
}

static PyObject *fill_dict(run *self, tap_frame *frame, PyObject *template)
{
    PyObject *made = PyDict_New(), *key, *item;
    Py_ssize_t at = 0;
    while (made && PyDict_Next(template, &at, &key, &item)) {
        PyObject *filled = fill_template(self, frame, item);
        if (!filled || PyDict_SetItem(made, key, filled) < 0)
            Py_CLEAR(made);
        Py_XDECREF(filled);
    }
    return made;
}

static PyObject *fill_template(run *self, tap_frame *frame, PyObject *template)
{
    if (Py_TYPE(template) == ref_type)
        return object_of(self, frame, ((ref_object *)template)->value);
    if (PyTuple_CheckExact(template))
        return fill_sequence(self, frame, template, true);
    if (PyList_CheckExact(template))
        return fill_sequence(self, frame, template, false);
    if (PyDict_CheckExact(template))
        return fill_dict(self, frame, template);
    return Py_NewRef(template);
}

/* Hands a value to the engine. Takes over the reference. */
static int give_value(run *self, tap_frame *frame, int32_t value, PyObject *object)
{
    tap_error err = {0};
    tap_status status = TAP_OK;
    PyObject *old = self->objects[value];
    self->objects[value] = object;
    Py_XDECREF(old);
    if (PyLong_Check(object)) {
        int overflow;
        long long integer = PyLong_AsLongLongAndOverflow(object, &overflow);
        status = overflow ? TAP_OK : tap_frame_set_int(frame, value, integer, &err);
    } else {
        tap_tensor view;
        int taken = tensor_view(object, &view);
        if (taken == 0) {
            /* a conjugate view, a subclass: torch makes a plain one of it; NULL without exception: not a CPU tensor */
            PyObject *plain = PyObject_CallFunctionObjArgs(plain_view, object, NULL);
            if (!plain)
                return -1;
            if (plain == Py_None) {
                Py_DECREF(plain);
                return 0;
            }
            self->objects[value] = plain;
            Py_DECREF(object);
            taken = tensor_view(plain, &view);
        }
        if (taken < 0)
            return -1;
        if (taken > 0)
            status = tap_frame_set(frame, value, &view, &err);
    }
    if (status != TAP_OK) {
        if (!PyErr_Occurred())
            raise_error(&err);
        return -1;
    }
    return 0;
}

/* The exception stays set; what the engine hears is only that there is one. */
static tap_status broken(tap_error *err)
{
    err->status = TAP_E_INTERNAL;
    err->message[0] = 0;
    return TAP_E_INTERNAL;
}

static tap_status host_call(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    run *self = user;
    const host_node *host = &self->program->nodes[node];
    PyObject *args = fill_template(self, frame, host->args);
    PyObject *kwargs = args && host->kwargs ? fill_template(self, frame, host->kwargs) : NULL;
    PyObject *result = args && (kwargs || !host->kwargs) ? PyObject_Call(host->target, args, kwargs) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    tap_node_info info;
    if (!result || tap_graph_node(tap_engine_graph(self->program->engine), node, &info) != TAP_OK) {
        Py_XDECREF(result);
        return broken(err);
    }
    int failed = 0;
    if (!host->many) {
        if (info.nvalues == 1 && result != Py_None)
            return give_value(self, frame, info.first_value, result) < 0 ? broken(err) : TAP_OK;
        Py_DECREF(result);
        return TAP_OK;
    }
    for (int32_t i = 0; !failed && i < info.nvalues; i++) {
        PyObject *item = PySequence_GetItem(result, i);
        failed = !item || (item == Py_None ? (self->objects[info.first_value + i] = item, 0)
                                           : give_value(self, frame, info.first_value + i, item)) < 0;
    }
    Py_DECREF(result);
    return failed ? broken(err) : TAP_OK;
}

static PyObject *dims_of(const int64_t *dims, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple && i < count; i++) {
        PyObject *dim = PyLong_FromLongLong(dims[i]);
        if (!dim || PyTuple_SetItem(tuple, i, dim) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *code_dtype(tap_dtype dtype)
{
    PyObject *code = PyLong_FromLong(dtype);
    PyObject *found = code ? PyDict_GetItem(codes_dtype, code) : NULL;
    Py_XDECREF(code);
    return found;
}

static tap_status fresh(run *self, int32_t value, PyObject *maker, PyObject *from, const tap_tensor *like, void **data,
                        tap_error *err)
{
    PyObject *sizes = dims_of(like->shape, like->ndim), *strides = dims_of(like->strides, like->ndim);
    PyObject *dtype = code_dtype(like->dtype), *tensor = NULL;
    if (sizes && strides && dtype)
        tensor = PyObject_CallFunctionObjArgs(maker, sizes, strides, from ? from : dtype, NULL);
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    tap_tensor view;
    if (!tensor || tensor_view(tensor, &view) != 1) {
        Py_XDECREF(tensor);
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_RuntimeError, "torch gave no memory for value %d of a graph", (int)value);
        return broken(err);
    }
    PyObject *old = self->objects[value];
    self->objects[value] = tensor;
    Py_XDECREF(old);
    *data = view.data;
    return TAP_OK;
}

static tap_status host_alloc(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                             tap_error *err)
{
    (void)frame;
    return fresh(user, value, empty_strided, NULL, like, data, err);
}

static tap_status host_match(void *user, tap_frame *frame, int32_t value, const tap_tensor *like, void **data,
                             tap_error *err)
{
    (void)frame;
    run *self = user;
    return fresh(self, value, restride, self->objects[value], like, data, err);
}

static void host_release(void *user, tap_frame *frame, int32_t value)
{
    (void)frame;
    Py_CLEAR(((run *)user)->objects[value]);
}

static void host_work(void *user, tap_frame *frame, bool begins)
{
    (void)frame;
    run *self = user;
    if (begins)
        self->released = PyEval_SaveThread();
    else
        PyEval_RestoreThread(self->released);
}

static tap_status host_observe(void *user, tap_frame *frame, int32_t node, tap_error *err)
{
    run *self = user;
    const host_node *host = &self->program->nodes[node];
    tap_node_info info;
    if (!self->program->observer || tap_graph_node(tap_engine_graph(self->program->engine), node, &info) != TAP_OK)
        return TAP_OK;
    PyObject *outputs = PyTuple_New(info.nvalues), *result = NULL, *args, *kwargs;
    for (int32_t i = 0; outputs && i < info.nvalues; i++) {
        PyObject *object = self->objects[info.first_value + i];
        if (PyTuple_SetItem(outputs, i, Py_NewRef(object ? object : Py_None)) < 0)
            Py_CLEAR(outputs);
    }
    bool whole = self->program->flags & TAP_ENGINE_EVERY_NODE; /* else arguments may be gone already */
    args = whole ? fill_template(self, frame, host->args) : Py_NewRef(Py_None);
    kwargs = whole && host->kwargs ? fill_template(self, frame, host->kwargs) : Py_NewRef(Py_None);
    if (outputs && args && kwargs)
        result = PyObject_CallFunction(self->program->observer, "iOOO", (int)node, args, kwargs, outputs);
    Py_XDECREF(outputs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (!result)
        return broken(err);
    Py_DECREF(result);
    return TAP_OK;
}

static const tap_host HOST = {.size = sizeof HOST, .call = host_call, .alloc = host_alloc, .match = host_match,
                              .release = host_release, .work = host_work, .observe = host_observe};

static void program_dealloc(PyObject *object)
{
    program_object *self = (program_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    tap_engine_free(self->engine);
    host_nodes_free(self->nodes, self->nnodes);
    PyMem_Free(self->inputs);
    Py_XDECREF(self->constants);
    Py_XDECREF(self->outputs);
    Py_XDECREF(self->observer);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int program_traverse(PyObject *object, visitproc visit, void *arg)
{
    program_object *self = (program_object *)object;
    Py_VISIT(Py_TYPE(object));
    for (size_t i = 0; i < self->nnodes; i++) {
        Py_VISIT(self->nodes[i].target);
        Py_VISIT(self->nodes[i].args);
        Py_VISIT(self->nodes[i].kwargs);
    }
    Py_VISIT(self->constants);
    Py_VISIT(self->outputs);
    Py_VISIT(self->observer);
    return 0;
}

/* Program(graph, inputs: tuple of Refs, outputs: tuple of Refs and constants, flags, observer or None) */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *graph, *inputs, *outputs, *observer;
    unsigned flags;
    tap_error err = {0};
    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Program takes no keywords");
    if (!PyArg_ParseTuple(args, "O!O!O!IO", graph_type, &graph, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &flags,
                          &observer))
        return NULL;
    graph_object *from = (graph_object *)graph;
    if (!graph_of(from))
        return NULL;
    Py_ssize_t ninputs = PyTuple_Size(inputs), noutputs = PyTuple_Size(outputs);
    int32_t *values = PyMem_Malloc(sizeof *values * (size_t)(ninputs + noutputs + 1));
    if (!values)
        return PyErr_NoMemory();
    size_t count = 0;
    for (Py_ssize_t i = 0; i < noutputs; i++)
        if (Py_TYPE(PyTuple_GetItem(outputs, i)) == ref_type)
            values[count++] = ((ref_object *)PyTuple_GetItem(outputs, i))->value;
    tap_graph *core = from->graph;
    int32_t nvalues = tap_graph_values(core);
    tap_engine *engine;
    from->graph = NULL;
    if (tap_graph_output(core, values, count, &err) != TAP_OK) {
        tap_graph_free(core);
        PyMem_Free(values);
        return raise_error(&err);
    }
    if (tap_engine_new(core, flags, &HOST, &engine, &err) != TAP_OK) {
        PyMem_Free(values);
        return raise_error(&err);
    }
    program_object *self = (program_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        tap_engine_free(engine);
        PyMem_Free(values);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < ninputs; i++)
        values[i] = ((ref_object *)PyTuple_GetItem(inputs, i))->value;
    self->engine = engine;
    self->nvalues = nvalues;
    self->inputs = values;
    self->ninputs = ninputs;
    self->nodes = from->nodes;
    self->nnodes = from->nnodes;
    from->nodes = NULL;
    from->nnodes = from->room = 0;
    self->constants = Py_NewRef(from->constants);
    self->outputs = Py_NewRef(outputs);
    self->flags = flags;
    self->observer = observer == Py_None ? NULL : Py_NewRef(observer);
    return (PyObject *)self;
}

static int give_inputs(run *self, tap_frame *frame, PyObject *list)
{
    program_object *program = self->program;
    if (PyList_Size(list) != program->ninputs) {
        PyErr_Format(PyExc_TypeError, "the graph takes %zd arguments, and %zd were given", program->ninputs,
                     PyList_Size(list));
        return -1;
    }
    for (Py_ssize_t i = 0; i < program->ninputs; i++)
        if (give_value(self, frame, program->inputs[i], Py_NewRef(PyList_GetItem(list, i))) < 0)
            return -1;
    Py_ssize_t constants = PyList_Size(program->constants);
    for (Py_ssize_t i = 0; i < constants; i++) {
        PyObject *pair = PyList_GetItem(program->constants, i);
        long value = PyLong_AsLong(PyTuple_GetItem(pair, 0));
        if (give_value(self, frame, (int32_t)value, Py_NewRef(PyTuple_GetItem(pair, 1))) < 0)
            return -1;
    }
    /* the caller's list holds no argument longer than the graph needs it */
    return PyList_SetSlice(list, 0, program->ninputs, NULL);
}

static PyObject *take_outputs(run *self, tap_frame *frame)
{
    PyObject *outputs = self->program->outputs;
    Py_ssize_t count = PyTuple_Size(outputs);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *item = fill_template(self, frame, PyTuple_GetItem(outputs, i));
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* What a kernel finds wrong in its operands at run time is an index, as torch would say it. */
static void raise_run_error(const tap_error *err)
{
    PyErr_SetString(err->status == TAP_E_INVALID ? PyExc_IndexError
                    : err->status == TAP_E_NOMEM ? PyExc_MemoryError
                                                 : PyExc_RuntimeError,
                    err->message[0] ? err->message : tap_status_text(err->status));
}

/* program(list of arguments) -> list of results; empties the list */
static PyObject *program_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    program_object *program = (program_object *)object;
    PyObject *list, *results = NULL;
    tap_error err = {0};
    tap_frame *frame;
    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "a program takes one list");
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    size_t values = (size_t)program->nvalues;
    run *self = PyMem_Calloc(1, sizeof *self + values * sizeof self->objects[0]);
    if (!self)
        return PyErr_NoMemory();
    self->program = program;
    if (tap_engine_begin(program->engine, self, &frame, &err) != TAP_OK) {
        PyMem_Free(self);
        return raise_error(&err);
    }
    if (give_inputs(self, frame, list) == 0) {
        if (tap_engine_run(frame, &err) == TAP_OK)
            results = take_outputs(self, frame);
        else if (!PyErr_Occurred())
            raise_run_error(&err);
    }
    tap_engine_end(frame);
    for (size_t i = 0; i < values; i++)
        Py_XDECREF(self->objects[i]);
    PyMem_Free(self);
    return results;
}

static PyObject *program_nodes(PyObject *object, PyObject *unused)
{
    (void)unused;
    program_object *self = (program_object *)object;
    const tap_graph *graph = tap_engine_graph(self->engine);
    PyObject *list = PyList_New(0);
    tap_node_info info;
    for (int32_t n = 0; list && tap_graph_node(graph, n, &info) == TAP_OK; n++) {
        tap_node_times times;
        tap_engine_times(self->engine, n, &times);
        PyObject *row = Py_BuildValue("(sszssiKKKKK)", info.name, info.target, info.source, info.op, info.op_kind,
                                      tap_engine_is_host(self->engine, n), (unsigned long long)times.runs,
                                      (unsigned long long)times.nanoseconds, (unsigned long long)times.bytes,
                                      (unsigned long long)times.last_start, (unsigned long long)times.last_nanoseconds);
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *program_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    tap_engine_counts counts;
    tap_engine_count(((program_object *)object)->engine, &counts);
    return Py_BuildValue("{s:i,s:i,s:i,s:i,s:i,s:K,s:K,s:K}", "native", (int)counts.native, "views", (int)counts.views,
                         "host", (int)counts.host, "steps", (int)counts.steps, "plans", (int)counts.plans, "runs",
                         (unsigned long long)counts.runs, "arena_bytes", (unsigned long long)counts.arena_bytes,
                         "plan_nanoseconds", (unsigned long long)counts.plan_nanoseconds);
}

static PyObject *program_is_host(PyObject *object, PyObject *node)
{
    long number = PyLong_AsLong(node);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(tap_engine_is_host(((program_object *)object)->engine, (int32_t)number));
}

static PyMethodDef program_methods[] = {
    {"nodes", program_nodes, METH_NOARGS,
     "nodes() -> list of (name, target, source, operator, kind, on the host, runs, nanoseconds, bytes, newest start, "
     "newest nanoseconds)"},
    {"is_host", program_is_host, METH_O, "is_host(node number) -> bool: does torch run it?"},
    {"counts", program_counts, METH_NOARGS, "counts() -> dict: nodes by who runs them, plans, runs, bytes"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot program_slots[] = {{Py_tp_new, program_new},
                                      {Py_tp_dealloc, program_dealloc},
                                      {Py_tp_traverse, program_traverse},
                                      {Py_tp_call, program_call},
                                      {Py_tp_methods, program_methods},
                                      {Py_tp_doc, "A graph ready to run: program(list of arguments) -> list."},
                                      {0, NULL}};
static PyType_Spec program_spec = {"tensortap._core.Program", sizeof(program_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, program_slots};

/* --------------------------------------------------------------------------------------------------------- module */

static void keep(PyObject **place, PyObject *object)
{
    PyObject *old = *place;
    *place = Py_NewRef(object);
    Py_XDECREF(old);
}

static PyObject *engine_setup(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dtype_type, *codes, *dtypes, *empty, *match, *plain;
    if (!PyArg_ParseTuple(args, "OO!O!OOO", &dtype_type, &PyDict_Type, &codes, &PyDict_Type, &dtypes, &empty, &match,
                          &plain))
        return NULL;
    keep(&torch_dtype_type, dtype_type);
    keep(&dtype_codes, codes);
    keep(&codes_dtype, dtypes);
    keep(&empty_strided, empty);
    keep(&restride, match);
    keep(&plain_view, plain);
    Py_RETURN_NONE;
}

static PyObject *engine_knows(PyObject *module, PyObject *target)
{
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(target, NULL);
    return text ? PyBool_FromLong(tap_engine_knows(text)) : NULL;
}

static PyObject *engine_onednn(PyObject *module, PyObject *path)
{
    (void)module;
    const char *text = path == Py_None ? NULL : PyUnicode_AsUTF8AndSize(path, NULL);
    tap_error err;
    if (PyErr_Occurred())
        return NULL;
    if (tap_engine_set_onednn(text, &err) != TAP_OK)
        return raise_error(&err);
    Py_RETURN_NONE;
}

static PyObject *operators(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    tap_op_info info;
    char room[64];
    for (int i = 0; list && tap_op_describe(i, &info); i++) {
        PyObject *params = PyList_New(0);
        for (int p = 0; params && p < info.nparams; p++) {
            PyObject *text = PyUnicode_FromString(tap_op_param(i, p, room, sizeof room));
            if (!text || PyList_Append(params, text) < 0)
                Py_CLEAR(params);
            Py_XDECREF(text);
        }
        PyObject *row = params ? Py_BuildValue("(szsNiis)", info.name, info.ge, info.kind, params, info.ninputs,
                                               info.noutputs, info.doc) : NULL;
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *load_operators(PyObject *module, PyObject *path)
{
    (void)module;
    tap_error err = {0};
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    if (!text)
        return NULL;
    if (tap_op_load(text, &err) != TAP_OK)
        return raise_error(&err);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"engine_setup", engine_setup, METH_VARARGS, "engine_setup(...): what the engine needs of torch"},
    {"engine_knows", engine_knows, METH_O, "engine_knows(target) -> bool: has the engine an operator for it?"},
    {"load_operators", load_operators, METH_O, "load_operators(path): read a library of operators into the process"},
    {"engine_onednn", engine_onednn, METH_O, "engine_onednn(path): where oneDNN's library is; None: where others are"},
    {"operators", operators, METH_NOARGS,
     "operators() -> list of (name, GE name, kind, parameters, inputs, outputs, line of text)"},
    {NULL, NULL, 0, NULL},
};

int engine_init(PyObject *module)
{
    ref_type = (PyTypeObject *)PyType_FromSpec(&ref_spec);
    graph_type = (PyTypeObject *)PyType_FromSpec(&graph_spec);
    PyObject *program = PyType_FromSpec(&program_spec);
    int failed = !ref_type || !graph_type || !program || PyModule_AddFunctions(module, functions) < 0 ||
                 PyModule_AddObjectRef(module, "Ref", (PyObject *)ref_type) < 0 ||
                 PyModule_AddObjectRef(module, "Graph", (PyObject *)graph_type) < 0 ||
                 PyModule_AddObjectRef(module, "Program", program) < 0;
    Py_XDECREF(program);
    return failed ? -1 : 0;
}
