/* py_engine.c - running graphs from Python: a Program takes and gives lists. The engine works on memory; here are the
 * tensor objects around it: arguments, results, whatever an operator of torch's reads. */
#include "py_graph.h"

#include <stdlib.h>
#include <string.h>

static PyObject *codes_dtype, *empty_strided, *restride, *plain_view;

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
    tap_node_info_init(&info);
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
        tensor = PyObject_CallFunctionObjArgs(maker, sizes, strides, dtype, from, NULL);
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
    tap_node_info_init(&info);
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
    if (tap_frame_begin(program->engine, self, &frame, &err) != TAP_OK) {
        PyMem_Free(self);
        return raise_error(&err);
    }
    if (give_inputs(self, frame, list) == 0) {
        if (tap_frame_run(frame, &err) == TAP_OK)
            results = take_outputs(self, frame);
        else if (!PyErr_Occurred())
            raise_run_error(&err);
    }
    tap_frame_end(frame);
    for (size_t i = 0; i < values; i++)
        Py_XDECREF(self->objects[i]);
    PyMem_Free(self);
    return results;
}

static PyTypeObject *node_type;

static PyStructSequence_Field node_fields[] = {
    {"name", "unique in the graph: add_1"},
    {"target", "what torch calls: aten.add.Tensor"},
    {"source", "file and line in the user's code, or None"},
    {"operator", "its name in the table of operators; HostCall: torch runs it"},
    {"kind", "view, pointwise, kernel or host"},
    {"host", "does torch run it?"},
    {"runs", "with profile: how often it ran"},
    {"nanoseconds", "with profile: of all runs"},
    {"bytes", "with profile: read and written, of all runs"},
    {"last_start", "with profile: when the newest run began, of the monotonic clock"},
    {"last_nanoseconds", "with profile: of the newest run"},
    {NULL, NULL},
};
static PyStructSequence_Desc node_desc = {"tensortap._core.Node", "One node of a program.", node_fields,
                                          sizeof node_fields / sizeof node_fields[0] - 1};

static PyObject *node_new(const tap_node_info *info, bool host, const tap_node_times *times)
{
    const uint64_t numbers[] = {times->runs, times->nanoseconds, times->bytes, times->last_start, times->last_nanoseconds};
    PyObject *node = PyStructSequence_New(node_type);
    if (!node)
        return NULL;
    const char *const texts[] = {info->name, info->target, info->source, info->op, info->op_kind};
    Py_ssize_t at = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        PyStructSequence_SetItem(node, at++, texts[i] ? PyUnicode_FromString(texts[i]) : Py_NewRef(Py_None));
    PyStructSequence_SetItem(node, at++, PyBool_FromLong(host));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        PyStructSequence_SetItem(node, at++, PyLong_FromUnsignedLongLong(numbers[i]));
    if (PyErr_Occurred())
        Py_CLEAR(node);
    return node;
}

static PyObject *program_nodes(PyObject *object, PyObject *unused)
{
    (void)unused;
    program_object *self = (program_object *)object;
    const tap_graph *graph = tap_engine_graph(self->engine);
    PyObject *list = PyList_New(0);
    tap_node_info info;
    tap_node_info_init(&info);
    for (int32_t n = 0; list && tap_graph_node(graph, n, &info) == TAP_OK; n++) {
        tap_node_times times;
        tap_node_times_init(&times);
        tap_engine_times(self->engine, n, &times);
        PyObject *row = node_new(&info, tap_engine_is_host(self->engine, n), &times);
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
    tap_engine_counts_init(&counts);
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
    {"nodes", program_nodes, METH_NOARGS, "nodes() -> list[Node]: in the order of the graph"},
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

typedef const char *(*row_text)(int index, int item, char *room, size_t size);

/* What a row has of one sort, as its table writes them. */
static PyObject *row_texts(int index, row_text each)
{
    char room[64];
    PyObject *list = PyList_New(0);
    for (int i = 0; list && each(index, i, room, sizeof room); i++) {
        PyObject *text = PyUnicode_FromString(room);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *operators(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    tap_op_info info;
    tap_op_info_init(&info);
    for (int i = 0; list && tap_op_describe(i, &info) == TAP_OK; i++) {
        PyObject *params = row_texts(i, tap_op_param), *outputs = params ? row_texts(i, tap_op_output) : NULL;
        PyObject *row = outputs ? Py_BuildValue("(szsOiOs)", info.name, info.ge, info.kind, params, info.ninputs, outputs,
                                                info.doc) : NULL;
        Py_XDECREF(params);
        Py_XDECREF(outputs);
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
     "operators() -> list of (name, GE name, kind, parameters, how many are inputs, outputs, line of text)"},
    {NULL, NULL, 0, NULL},
};

int engine_init(PyObject *module)
{
    PyObject *program = PyType_FromSpec(&program_spec);
    node_type = PyStructSequence_NewType(&node_desc);
    int failed = graph_init(module) < 0 || !program || !node_type ||
                 PyModule_AddObjectRef(module, "Node", (PyObject *)node_type) < 0 || PyModule_AddFunctions(module, functions) < 0 ||
                 PyModule_AddObjectRef(module, "Program", program) < 0;
    Py_XDECREF(program);
    return failed ? -1 : 0;
}
