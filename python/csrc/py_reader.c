/* py_reader.c - reading: Run, Cursor, Record and Mapping, thin over tap_run, tap_cursor, tap_record and tap_mapping. */
#include "py_core.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

static PyObject *run_type, *cursor_type, *mapping_type, *record_base;

typedef struct run_object {
    PyObject_HEAD
    tap_run *run;
    int cursors;  /* alive; the last one frees a run that was closed meanwhile */
    bool closed;
    bool verifying; /* without the GIL: nobody else may touch run */
} run_object;

typedef struct cursor_object {
    PyObject_HEAD
    tap_cursor *cursor;
    PyObject *run;    /* held: a cursor lives in it */
    PyObject *result; /* the type of its records */
} cursor_object;

typedef struct record_object {
    PyObject_HEAD
    tap_record record; /* its pointers go into `memory` */
    PyObject *run;     /* held */
    char *memory;
} record_object;

typedef struct mapping_object {
    PyObject_HEAD
    tap_mapping mapping;
    bool mapped;
} mapping_object;

static PyObject *new_object(PyObject *type)
{
    return ((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *fail(tap_error *err, tap_status status)
{
    err->status = status;
    return raise_error(err);
}

static PyObject *decode(const char *text)
{
    return PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
}

static tap_run *usable(PyObject *object)
{
    run_object *self = (run_object *)object;
    if (self && self->run && !self->closed && !self->verifying)
        return self->run;
    PyErr_SetString(PyExc_ValueError, self && self->verifying ? "the run is being verified by another thread"
                                                              : "the run is closed; read it while it is open");
    return NULL;
}

static void run_release(run_object *self)
{
    if (self->run && self->closed && !self->cursors) {
        tap_run_close(self->run);
        self->run = NULL;
    }
}

/* -------------------------------------------------------------------------------------------------------- records */

#define RECORD_TEXTS(X) X(name) X(path) X(source) X(module) X(graph) X(node) X(device) X(placements) X(type_name) X(file)

/* Copies what the cursor lent: strings and shape move into one block of the object's own. */
static int own_record(record_object *self, const tap_record *record)
{
    size_t size = sizeof(int64_t) * (size_t)(record->ndim > 0 ? record->ndim : 0);
#define X(field) size += strlen(record->field ? record->field : "") + 1;
    RECORD_TEXTS(X)
#undef X
    char *at = self->memory = PyMem_Malloc(size);
    if (!at) {
        PyErr_NoMemory();
        return -1;
    }
    self->record = *record;
    if (record->ndim > 0) {
        size_t len = sizeof(int64_t) * (size_t)record->ndim;
        memcpy(at, record->shape, len);
        self->record.shape = (const int64_t *)(void *)at;
        at += len;
    }
#define X(field)                                                                                                     \
    {                                                                                                                \
        const char *text = record->field ? record->field : "";                                                       \
        size_t len = strlen(text) + 1;                                                                               \
        memcpy(at, text, len);                                                                                       \
        self->record.field = at;                                                                                     \
        at += len;                                                                                                   \
    }
    RECORD_TEXTS(X)
#undef X
    return 0;
}

static void record_dealloc(PyObject *object)
{
    record_object *self = (record_object *)object;
    PyMem_Free(self->memory);
    Py_XDECREF(self->run);
    free_object(object);
}

static const tap_record *record_of(PyObject *object)
{
    return &((record_object *)object)->record;
}

/* Strings go through a getter, not T_STRING: what is on disk need not be UTF-8. */
#define X(field)                                                                                                     \
    static PyObject *get_##field(PyObject *self, void *unused)                                                       \
    {                                                                                                                \
        (void)unused;                                                                                                \
        return decode(record_of(self)->field);                                                                       \
    }
RECORD_TEXTS(X)
#undef X

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    const tap_record *record = record_of(self);
    PyObject *shape = PyTuple_New(record->ndim);
    for (int i = 0; shape && i < record->ndim; i++) {
        PyObject *size = PyLong_FromLongLong(record->shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    const tap_dtype_info *info = tap_dtype_describe(record_of(self)->dtype);
    return decode(info ? info->name : "");
}

static PyObject *get_kind(PyObject *self, void *unused)
{
    (void)unused;
    return decode(tap_kind_name(record_of(self)->kind));
}

static PyObject *get_value_type(PyObject *self, void *unused)
{
    (void)unused;
    static const char *const NAMES[] = {"tensor", "none", "bool", "int", "float", "complex", "str", "bytes", "list",
                                        "tuple", "dict", "meta"};
    unsigned type = record_of(self)->value_type;
    return decode(type < sizeof NAMES / sizeof NAMES[0] ? NAMES[type] : "unknown");
}

static PyObject *get_state(PyObject *self, void *unused)
{
    (void)unused;
    static const char *const NAMES[] = {"whole", "stats_only", "rule", "torn", "slot", "declared"};
    unsigned state = record_of(self)->state;
    return decode(state < sizeof NAMES / sizeof NAMES[0] ? NAMES[state] : "unknown");
}

static PyObject *get_hash(PyObject *self, void *unused)
{
    (void)unused;
    const tap_record *record = record_of(self);
    return record->has_hash ? PyLong_FromUnsignedLongLong(record->hash) : Py_NewRef(Py_None);
}

static PyObject *number(const tap_record *record, tap_number value)
{
    const tap_dtype_info *info = tap_dtype_describe(record->dtype);
    switch (info ? info->kind : 'F') {
    case 'I': return PyLong_FromLongLong(value.i);
    case 'U':
    case 'B': return PyLong_FromUnsignedLongLong(value.u);
    default: return PyFloat_FromDouble(value.f);
    }
}

/* (count, nan, pos_inf, neg_inf, zero, min, max, mean, norm) or None */
static PyObject *get_stats(PyObject *self, void *unused)
{
    (void)unused;
    const tap_record *record = record_of(self);
    if (!record->has_stats)
        Py_RETURN_NONE;
    const tap_stats *s = &record->stats;
    return Py_BuildValue("(KKKKKNNdd)", s->count, s->nan, s->pos_inf, s->neg_inf, s->zero, number(record, s->min),
                         number(record, s->max), s->mean, s->norm);
}

static PyObject *record_map(PyObject *object, PyObject *unused)
{
    (void)unused;
    record_object *self = (record_object *)object;
    tap_run *run = usable(self->run);
    if (!run)
        return NULL;
    mapping_object *mapping = (mapping_object *)new_object(mapping_type);
    if (!mapping)
        return NULL;
    tap_mapping_init(&mapping->mapping);
    tap_error err = {.status = TAP_OK};
    tap_status status = tap_record_map(run, &self->record, &mapping->mapping, &err);
    if (status != TAP_OK) {
        Py_DECREF(mapping);
        return fail(&err, status);
    }
    mapping->mapped = true;
    return (PyObject *)mapping;
}

#define M(name, type, doc) {#name, type, offsetof(record_object, record.name), READONLY, doc}
static PyMemberDef record_members[] = {
    M(seq, T_ULONGLONG, "Order of saving within rank and attempt."),
    M(attempt, T_INT, "Which run of the job, from 0."),
    M(rank, T_INT, "The rank that saved it."),
    M(child, T_INT, "Pid of the forked child that saved it, else 0."),
    M(step, T_LONGLONG, "Step."),
    M(call, T_UINT, "Which save of this name in this step, from 0."),
    M(flags, T_UINT, "TAP_SAVE_* bits."),
    M(replay, T_ULONGLONG, "Replay of a captured graph, from 1; else 0."),
    M(time_ns, T_ULONGLONG, "When, since 1970, UTC."),
    M(payload_bytes, T_ULONGLONG, "Bytes kept; 0: none."),
    M(line, T_INT, "Source line."),
    M(offset, T_ULONGLONG, "Of the payload in its file."),
    {NULL, 0, 0, 0, NULL},
};
#undef M

#define X(field) {#field, get_##field, NULL, NULL, NULL},
static PyGetSetDef record_getset[] = {
    RECORD_TEXTS(X)
    {"shape", get_shape, NULL, "Shape.", NULL},
    {"dtype", get_dtype, NULL, "Element type, by our name: 'float32', 'bfloat16', ...", NULL},
    {"kind", get_kind, NULL, "'forward', 'grad', 'input', 'output' or 'param'.", NULL},
    {"value_type", get_value_type, NULL, "'tensor', or what a leaf was: 'int', 'str', ...", NULL},
    {"state", get_state, NULL, "'whole', 'stats_only', 'rule', 'torn', 'slot' or 'declared'.", NULL},
    {"hash", get_hash, NULL, "Hash of the row-major bytes, or None.", NULL},
    {"_stats", get_stats, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
#undef X

static PyMethodDef record_methods[] = {
    {"map", record_map, METH_NOARGS, "map() -> Mapping: the bytes, mapped without a copy."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot record_slots[] = {
    {Py_tp_dealloc, record_dealloc}, {Py_tp_members, record_members}, {Py_tp_getset, record_getset},
    {Py_tp_methods, record_methods}, {Py_tp_doc, "One saved leaf. Made by a query."}, {0, NULL},
};
static PyType_Spec record_spec = {"tensortap._core.Record", sizeof(record_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, record_slots};

/* ------------------------------------------------------------------------------------------------------- mappings */

static void mapping_dealloc(PyObject *object)
{
    mapping_object *self = (mapping_object *)object;
    if (self->mapped)
        tap_mapping_release(&self->mapping);
    free_object(object);
}

static const tap_tensor *tensor_of(PyObject *object)
{
    return &((mapping_object *)object)->mapping.tensor;
}

static PyObject *tuple_of(const int64_t *numbers, int count, int64_t scale)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(numbers[i] * scale);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* numpy's protocol: the array it makes refers to this object and so keeps the mapping. A type numpy does not know is
 * given as unsigned integers of the same size, for view(). */
static PyObject *get_array_interface(PyObject *self, void *unused)
{
    (void)unused;
    const tap_tensor *tensor = tensor_of(self);
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    if (!info)
        return PyErr_Format(PyExc_TypeError, "no element type");
    static const char *const RAW[] = {"|u1", "|u1", "<u2", "", "<u4"};
    const char *letter = info->numpy ? info->numpy : RAW[info->bytes];
    PyObject *strides = tensor->strides ? tuple_of(tensor->strides, tensor->ndim, info->bytes) : Py_NewRef(Py_None);
    PyObject *shape = tuple_of(tensor->shape, tensor->ndim, 1);
    /* an empty tensor has no address; numpy wants one that is not NULL */
    static char nothing[16];
    void *data = tensor->data ? tensor->data : nothing;
    return Py_BuildValue("{si sN sN ss s(NO)}", "version", 3, "shape", shape, "strides", strides, "typestr", letter,
                         "data", PyLong_FromVoidPtr(data), Py_True);
}

static PyObject *mapping_bytes(PyObject *self, PyObject *unused)
{
    (void)unused;
    const tap_tensor *tensor = tensor_of(self);
    int64_t size = tap_tensor_bytes(tensor);
    if (size < 0)
        return PyErr_Format(PyExc_ValueError, "the shape is not valid");
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    tap_error err = {.status = TAP_OK};
    tap_status status = bytes ? tap_tensor_scan(tensor, 0, PyBytes_AsString(bytes), NULL, NULL, &err) : TAP_OK;
    if (status != TAP_OK) {
        Py_DECREF(bytes);
        return fail(&err, status);
    }
    return bytes;
}

/* convert(name) -> bytes: row-major elements as another dtype. */
static PyObject *mapping_convert(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const tap_tensor *tensor = tensor_of(self);
    const tap_dtype_info *from = tap_dtype_describe(tensor->dtype);
    const tap_dtype_info *to = text ? tap_dtype_describe(tap_dtype_find(text)) : NULL;
    int64_t count = tap_tensor_count(tensor);
    if (!from || !to || count < 0)
        return PyErr_Format(PyExc_ValueError, "cannot convert to %R", name);
    int64_t size = count * from->values * to->bytes;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    tap_error err = {.status = TAP_OK};
    tap_status status = bytes ? tap_tensor_convert(tensor, to->dtype, PyBytes_AsString(bytes), &err) : TAP_OK;
    if (status != TAP_OK) {
        Py_DECREF(bytes);
        return fail(&err, status);
    }
    return bytes;
}

static PyObject *get_mapping_shape(PyObject *self, void *unused)
{
    (void)unused;
    return tuple_of(tensor_of(self)->shape, tensor_of(self)->ndim, 1);
}

static PyObject *get_mapping_dtype(PyObject *self, void *unused)
{
    (void)unused;
    const tap_dtype_info *info = tap_dtype_describe(tensor_of(self)->dtype);
    return decode(info ? info->name : "");
}

static PyGetSetDef mapping_getset[] = {
    {"__array_interface__", get_array_interface, NULL, NULL, NULL},
    {"shape", get_mapping_shape, NULL, "Shape.", NULL},
    {"dtype", get_mapping_dtype, NULL, "Element type, by our name.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef mapping_methods[] = {
    {"tobytes", mapping_bytes, METH_NOARGS, "tobytes() -> bytes: the row-major bytes."},
    {"convert", mapping_convert, METH_O, "convert(dtype) -> bytes: the row-major elements as another dtype."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot mapping_slots[] = {
    {Py_tp_dealloc, mapping_dealloc}, {Py_tp_getset, mapping_getset}, {Py_tp_methods, mapping_methods},
    {Py_tp_doc, "The bytes of one record. numpy.asarray takes it without a copy."}, {0, NULL},
};
static PyType_Spec mapping_spec = {"tensortap._core.Mapping", sizeof(mapping_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, mapping_slots};

/* ---------------------------------------------------------------------------------------------------------- cursor */

static void cursor_dealloc(PyObject *object)
{
    cursor_object *self = (cursor_object *)object;
    if (self->cursor) {
        run_object *run = (run_object *)self->run;
        tap_cursor_close(self->cursor);
        run->cursors--;
        run_release(run);
    }
    Py_XDECREF(self->run);
    Py_XDECREF(self->result);
    free_object(object);
}

static PyObject *cursor_next(PyObject *object)
{
    cursor_object *self = (cursor_object *)object;
    if (!usable(self->run))
        return NULL;
    tap_record record;
    tap_record_init(&record);
    tap_error err = {.status = TAP_OK};
    tap_status status = tap_cursor_next(self->cursor, &record, &err);
    if (status == TAP_END)
        return NULL;
    if (status != TAP_OK)
        return fail(&err, status);
    record_object *out = (record_object *)new_object(self->result);
    if (!out)
        return NULL;
    out->run = Py_NewRef(self->run);
    if (own_record(out, &record) < 0)
        Py_CLEAR(out);
    return (PyObject *)out;
}

static PyType_Slot cursor_slots[] = {
    {Py_tp_dealloc, cursor_dealloc}, {Py_tp_iter, PyObject_SelfIter}, {Py_tp_iternext, cursor_next}, {0, NULL},
};
static PyType_Spec cursor_spec = {"tensortap._core.Cursor", sizeof(cursor_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, cursor_slots};

/* ------------------------------------------------------------------------------------------------------------ run */

static PyObject *run_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *path;
    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Run takes a path only");
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    run_object *self = (run_object *)new_object((PyObject *)type);
    if (self) {
        tap_error err = {.status = TAP_OK};
        PyThreadState *state = PyEval_SaveThread();
        tap_status status = tap_run_open(PyBytes_AsString(path), &self->run, &err);
        PyEval_RestoreThread(state);
        if (status != TAP_OK) {
            Py_CLEAR(self);
            fail(&err, status);
        }
    }
    Py_DECREF(path);
    return (PyObject *)self;
}

static void run_dealloc(PyObject *object)
{
    run_object *self = (run_object *)object;
    self->closed = true;
    run_release(self); /* cursors hold the run, so there are none */
    free_object(object);
}

static PyObject *run_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    run_object *self = (run_object *)object;
    if (self->verifying)
        return PyErr_Format(PyExc_ValueError, "the run is being verified by another thread");
    self->closed = true;
    run_release(self);
    Py_RETURN_NONE;
}

static int parse_query(PyObject *args, PyObject *kwargs, tap_query *query, PyObject **result)
{
    static char *names[] = {"name", "steps", "ranks", "kind", "attempt", "incomplete", "type", NULL};
    tap_query_init(query);
    const char *kind = NULL;
    int incomplete = query->incomplete;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zzzzipO", names, &query->name, &query->steps, &query->ranks, &kind,
                                     &query->attempt, &incomplete, result))
        return -1;
    query->incomplete = incomplete;
    for (int i = TAP_KIND_FORWARD; kind && query->kind < 0 && i <= TAP_KIND_PARAM; i++)
        if (strcmp(kind, tap_kind_name((tap_kind)i)) == 0)
            query->kind = i;
    if (kind && query->kind < 0) {
        PyErr_Format(PyExc_ValueError, "kind is one of forward, grad, input, output, param, not '%s'", kind);
        return -1;
    }
    return 0;
}

static PyObject *run_query(PyObject *object, PyObject *args, PyObject *kwargs)
{
    tap_query query;
    PyObject *result = record_base;
    tap_run *run = usable(object);
    if (!run || parse_query(args, kwargs, &query, &result) < 0)
        return NULL;
    if (!PyType_Check(result) || !PyType_IsSubtype((PyTypeObject *)result, (PyTypeObject *)record_base))
        return PyErr_Format(PyExc_TypeError, "type is a subclass of Record");
    cursor_object *cursor = (cursor_object *)new_object(cursor_type);
    if (!cursor)
        return NULL;
    tap_error err = {.status = TAP_OK};
    cursor->run = Py_NewRef(object);
    cursor->result = Py_NewRef(result);
    tap_status status = tap_run_query(run, &query, &cursor->cursor, &err);
    if (status != TAP_OK) {
        cursor->cursor = NULL;
        Py_DECREF(cursor);
        return fail(&err, status);
    }
    ((run_object *)object)->cursors++;
    return (PyObject *)cursor;
}

static PyObject *run_count(PyObject *object, PyObject *args, PyObject *kwargs)
{
    tap_query query;
    PyObject *ignored = NULL;
    tap_run *run = usable(object);
    if (!run || parse_query(args, kwargs, &query, &ignored) < 0)
        return NULL;
    tap_error err = {.status = TAP_OK};
    uint64_t count = 0;
    tap_status status = tap_run_count(run, &query, &count, &err);
    return status == TAP_OK ? PyLong_FromUnsignedLongLong(count) : fail(&err, status);
}

static PyObject *run_refresh(PyObject *object, PyObject *unused)
{
    (void)unused;
    tap_run *run = usable(object);
    if (!run)
        return NULL;
    bool more = false, live = false;
    tap_error err = {.status = TAP_OK};
    tap_status status = tap_run_refresh(run, &more, &live, &err);
    return status == TAP_OK ? Py_BuildValue("(OO)", more ? Py_True : Py_False, live ? Py_True : Py_False)
                            : fail(&err, status);
}

static PyObject *run_attempts(PyObject *object, PyObject *unused)
{
    (void)unused;
    tap_run *run = usable(object);
    PyObject *list = run ? PyList_New(0) : NULL;
    for (int i = 0; list && i < tap_run_attempt_count(run); i++) {
        tap_attempt a;
        tap_attempt_init(&a);
        tap_run_attempt(run, i, &a);
        PyObject *item = Py_BuildValue(
            "{si si si si sN ss sK sK sK sK sK sK sK sK}", "rank", a.rank, "attempt", a.attempt, "child", a.child, "pid",
            a.pid, "host", decode(a.host), "ended", a.ended ? a.ended : "unknown", "started_ns", a.started_ns, "ended_ns",
            a.ended_ns, "records", a.records, "bytes", a.bytes, "filtered", a.filtered, "stats_only", a.stats_only,
            "dropped", a.dropped, "torn", a.torn);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static void on_problem(void *user, const tap_problem *p)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *item = Py_BuildValue("(sOiiLNNKNN)", tap_problem_name(p->kind),
                                   tap_problem_is_loss(p->kind) ? Py_True : Py_False, p->rank, p->attempt,
                                   (long long)p->step, decode(p->name), decode(p->path), p->count, decode(p->file),
                                   decode(p->reason));
    if (!item || PyList_Append(user, item) < 0)
        PyErr_Clear(); /* out of memory: the counts still tell */
    Py_XDECREF(item);
    PyGILState_Release(state);
}

/* Lets Ctrl-C stop a long verify. */
static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user, (void)done, (void)total;
    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = PyErr_CheckSignals() == 0;
    PyObject *type, *value, *trace;
    if (!go_on) { /* raised again by the caller */
        PyErr_Fetch(&type, &value, &trace);
        Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    }
    PyGILState_Release(state);
    return go_on;
}

static PyObject *run_verify(PyObject *object, PyObject *args)
{
    int quick, rules;
    tap_run *run = usable(object);
    if (!run || !PyArg_ParseTuple(args, "pp", &quick, &rules))
        return NULL;
    PyObject *problems = PyList_New(0);
    if (!problems)
        return NULL;
    tap_verify_options options;
    tap_verify_options_init(&options);
    options.quick = quick;
    options.rules = rules;
    options.on_problem = on_problem;
    options.on_progress = on_progress;
    options.user = problems;
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_error err = {.status = TAP_OK};
    ((run_object *)object)->verifying = true;
    PyThreadState *state = PyEval_SaveThread();
    tap_status status = tap_run_verify(run, &options, &result, &err);
    PyEval_RestoreThread(state);
    ((run_object *)object)->verifying = false;
    if (status != TAP_OK && status != TAP_E_LOST) {
        Py_DECREF(problems);
        return fail(&err, status);
    }
    return Py_BuildValue("(OKKKKKN)", status == TAP_OK ? Py_True : Py_False, result.records, result.bytes, result.lost,
                         result.rules, result.not_named, problems);
}

static PyObject *get_layout(PyObject *object, void *unused)
{
    (void)unused;
    tap_run *run = usable(object);
    return run ? decode(tap_run_layout(run)) : NULL;
}

#define KEYWORDS_METHOD(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef run_methods[] = {
    {"cursor", KEYWORDS_METHOD(run_query), "cursor(name, steps, ranks, kind, attempt, incomplete, type) -> Cursor"},
    {"count", KEYWORDS_METHOD(run_count), "count(name, steps, ranks, kind, attempt, incomplete) -> int"},
    {"refresh", run_refresh, METH_NOARGS, "refresh() -> (more, live): look again at a growing recording."},
    {"attempts", run_attempts, METH_NOARGS, "attempts() -> list[dict]: how each rank's runs ended."},
    {"_verify", run_verify, METH_VARARGS, NULL},
    {"close", run_close, METH_NOARGS, "close() -> None"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef run_getset[] = {
    {"layout", get_layout, NULL, "'native' or the name of another layout.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot run_slots[] = {
    {Py_tp_new, run_new}, {Py_tp_dealloc, run_dealloc}, {Py_tp_methods, run_methods}, {Py_tp_getset, run_getset}, {0, NULL},
};
static PyType_Spec run_spec = {"tensortap._core.Run", sizeof(run_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               run_slots};

int reader_init(PyObject *module)
{
    record_base = PyType_FromSpec(&record_spec);
    mapping_type = PyType_FromSpec(&mapping_spec);
    cursor_type = PyType_FromSpec(&cursor_spec);
    run_type = PyType_FromSpec(&run_spec);
    if (!record_base || !mapping_type || !cursor_type || !run_type)
        return -1;
    return PyModule_AddObjectRef(module, "Record", record_base) < 0 ||
                   PyModule_AddObjectRef(module, "Mapping", mapping_type) < 0 ||
                   PyModule_AddObjectRef(module, "Run", run_type) < 0
               ? -1
               : 0;
}
