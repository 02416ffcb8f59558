/* py_recorder.c - the Recorder type and the module's own save, step, ... on the process's recorder. save is the hot one:
 * arguments are read by hand, nothing is allocated for a plain array, and with no recorder it is one test. */
#include "py_core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Above this many bytes a save is worth letting other threads run meanwhile. */
enum { RELEASE_BYTES = 1 << 20 };

typedef struct recorder {
    PyObject_HEAD
    tap_recorder *rec;  /* NULL when closed */
    atomic_int busy;    /* calls that run without the GIL; close waits for them */
    int source;         /* record file and line of the caller */
    PyObject *predicate; /* called with name and value: save it? NULL: always */
    struct recorder *next; /* of all recorders */
} recorder;

static recorder *all;      /* not held: a recorder takes itself out */

static recorder *current;  /* the process's recorder, held; NULL: not recording */
static int first_miss_done; /* the first save without a recorder was answered */
static PyObject *recorder_type, *open_from_environment;
static PyObject *save_traced, *save_gradients, *is_recompute; /* of torch_taps.py, once torch is there */
static PyObject *mindspore_gradients, *save_to_directory; /* of _mindspore.py, once mindspore is there */
static PyObject *after_step; /* called with a recorder after each of its steps; NULL: nothing to do */
static PyObject *export_flags, *str_exporting; /* torch.compiler's globals */

static atomic_bool open_predicate; /* what code without the GIL sees of current->predicate */

bool recorder_has_predicate(void)
{
    return atomic_load_explicit(&open_predicate, memory_order_relaxed);
}

/* Runs `call` without the GIL; close cannot free the recorder of r meanwhile. `call` uses a copy of r->rec. */
#define WITHOUT_GIL(r, call)                                                                                         \
    do {                                                                                                             \
        atomic_fetch_add(&(r)->busy, 1);                                                                             \
        PyThreadState *state_ = PyEval_SaveThread();                                                                 \
        call;                                                                                                        \
        PyEval_RestoreThread(state_);                                                                                \
        atomic_fetch_sub(&(r)->busy, 1);                                                                             \
    } while (0)

static PyObject *closed_error(void)
{
    tap_error err = {.status = TAP_E_CLOSED};
    return raise_error(&err);
}

#define SETTLED(name)                                                                                                \
    static PyObject *name(PyObject *self, PyObject *arg)                                                             \
    {                                                                                                                \
        return settled(name##_now, self, arg);                                                                       \
    }

/* ----------------------------------------------------------------------------------------------------------- save */

enum keyword { K_VALUE, K_NAME, K_KIND, K_STEP, K_CALL, K_REPLAY, K_MODULE, K_GRAPH, K_NODE, K_GRAPH_ID, K_ARGUMENT,
               K_SUFFIX, K_STAMP_US, K_FLAGS, K_DEVICE, K_SOURCE, K_LINE, K_PATH, K_GRAD, K_NUMBERS, K_ASKED, K_COUNT };
static const char *const KEYWORDS[K_COUNT] = {"value", "name", "kind", "step", "call", "replay", "module", "graph", "node",
                                              "graph_id", "argument", "suffix", "stamp_us", "flags", "device", "source",
                                              "line", "path", "grad", "numbers", "asked"};
static PyObject *keywords[K_COUNT]; /* interned */
enum { POSITIONAL = 4 };

static int find_keyword(PyObject *name)
{
    for (int i = 0; i < K_COUNT; i++)
        if (keywords[i] == name)
            return i;
    for (int i = 0; i < K_COUNT; i++)
        if (PyUnicode_Compare(keywords[i], name) == 0)
            return i;
    return -1;
}

static int parse(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **values)
{
    memset(values, 0, sizeof(PyObject *) * K_COUNT);
    if (nargs > POSITIONAL) {
        PyErr_Format(PyExc_TypeError, "save takes at most %d positional arguments", POSITIONAL);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        values[i] = args[i];
    Py_ssize_t count = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        int at = find_keyword(name);
        if (at < 0 || values[at]) {
            PyErr_Format(PyExc_TypeError, at < 0 ? "save has no argument %R" : "save got %R twice", name);
            return -1;
        }
        values[at] = args[nargs + i];
    }
    if (!values[K_VALUE] || !values[K_NAME] || !PyUnicode_Check(values[K_NAME])) {
        PyErr_SetString(PyExc_TypeError, "save takes a value and a name: tap.save(x, \"x\")");
        return -1;
    }
    for (int i = K_KIND; i < K_COUNT; i++)
        if (values[i] == Py_None)
            values[i] = NULL;
    int grad = values[K_GRAD] ? PyObject_IsTrue(values[K_GRAD]) : 0;
    values[K_GRAD] = grad > 0 ? Py_True : Py_False;
    return grad < 0 ? -1 : 0;
}

static int get_kind(PyObject *value, tap_kind *out)
{
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    for (int kind = TAP_KIND_FORWARD; text && kind <= TAP_KIND_PARAM; kind++)
        if (strcmp(text, tap_kind_name((tap_kind)kind)) == 0) {
            *out = (tap_kind)kind;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "kind is one of forward, grad, input, output, param, not %R", value);
    return -1;
}

typedef struct save_texts {
    PyObject *owners[K_COUNT];
} save_texts;

/* Everything after value and name; only what was given is looked at. */
static int fill_info(PyObject **values, tap_save_info *info, save_texts *texts)
{
    static const struct {
        enum keyword at;
        size_t offset;
    } TEXTS[] = {{K_MODULE, offsetof(tap_save_info, module)},     {K_GRAPH, offsetof(tap_save_info, graph)},
                 {K_NODE, offsetof(tap_save_info, node)},         {K_ARGUMENT, offsetof(tap_save_info, argument)},
                 {K_SUFFIX, offsetof(tap_save_info, suffix)},     {K_DEVICE, offsetof(tap_save_info, device)},
                 {K_SOURCE, offsetof(tap_save_info, source)},     {K_PATH, offsetof(tap_save_info, path)}};
    int64_t number;
    if (values[K_KIND] && get_kind(values[K_KIND], &info->kind) < 0)
        return -1;
    if (values[K_STEP]) {
        if (int_of(values[K_STEP], &info->step) < 0)
            return -1;
        info->has_step = true;
    }
    if (values[K_CALL]) {
        if (int_of(values[K_CALL], &number) < 0)
            return -1;
        info->call = (uint32_t)number;
        info->has_call = true;
    }
    if (values[K_REPLAY]) {
        if (int_of(values[K_REPLAY], &number) < 0)
            return -1;
        info->replay = (uint64_t)number;
    }
    if (values[K_FLAGS]) {
        if (int_of(values[K_FLAGS], &number) < 0)
            return -1;
        info->flags |= (unsigned)number;
    }
    if (values[K_LINE]) {
        if (int_of(values[K_LINE], &number) < 0)
            return -1;
        info->line = (int)number;
    }
    if ((values[K_GRAPH_ID] && int_of(values[K_GRAPH_ID], &info->graph_id) < 0) ||
        (values[K_STAMP_US] && int_of(values[K_STAMP_US], &info->stamp_us) < 0))
        return -1;
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        PyObject *value = values[TEXTS[i].at];
        if (!value)
            continue;
        if (!PyUnicode_Check(value)) {
            PyErr_Format(PyExc_TypeError, "save: %s is a str", KEYWORDS[TEXTS[i].at]);
            return -1;
        }
        const char *text = text_of(value, &texts->owners[TEXTS[i].at]);
        if (!text)
            return -1;
        memcpy((char *)info + TEXTS[i].offset, &text, sizeof text);
    }
    return 0;
}

static void free_texts(save_texts *texts)
{
    for (int i = 0; i < K_COUNT; i++)
        Py_XDECREF(texts->owners[i]);
}

/* A wrong call is told where it is written, and not first on the day somebody records. */
static int check_call(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs == 2 && !kwnames && PyUnicode_Check(args[1]))
        return 0;
    PyObject *values[K_COUNT];
    if (parse(args, nargs, kwnames, values) < 0)
        return -1;
    tap_save_info info = TAP_SAVE_INFO();
    save_texts texts;
    memset(&texts, 0, sizeof texts);
    int failed = fill_info(values, &info, &texts);
    free_texts(&texts);
    return failed;
}

static void do_save(tap_recorder *rec, const char *name, const tap_tree *tree, const tap_save_info *info)
{
    if (tree->value.type == TAP_VALUE_TENSOR && !tree->value.type_name)
        tap_save(rec, name, &tree->value.tensor, info);
    else
        tap_save_value(rec, name, &tree->value, info);
}

/* Says in `named` where the tap is, unless the caller did. 0, or -1 with an exception. */
static int name_source(PyObject *named, const tap_save_info *info)
{
    if (!info->source || PyDict_GetItem(named, keywords[K_SOURCE]))
        return 0;
    PyObject *source = PyUnicode_FromString(info->source), *line = PyLong_FromLong(info->line);
    int bad = !source || !line || PyDict_SetItem(named, keywords[K_SOURCE], source) < 0 ||
              PyDict_SetItem(named, keywords[K_LINE], line) < 0;
    Py_XDECREF(source);
    Py_XDECREF(line);
    return bad ? -1 : 0;
}

/* A graph is being traced and the value is a stand-in: the tap goes into the graph. */
static PyObject *save_into_graph(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, const tap_save_info *info)
{
    PyErr_Clear();
    PyObject *positional, *named;
    if (core_arguments(args, nargs, kwnames, &positional, &named) < 0)
        return NULL;
    PyObject *result = name_source(named, info) == 0 ? PyObject_Call(save_traced, positional, named) : NULL;
    Py_DECREF(positional);
    Py_DECREF(named);
    return result;
}

/* A forward that a backward pass runs again. Only then is Python asked whether it is activation checkpointing. */
static bool recomputed(void)
{
    if (!torch_in_recompute() || !is_recompute)
        return false;
    PyObject *answer = PyObject_CallFunctionObjArgs(is_recompute, NULL);
    bool yes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

/* The hooks that save the gradients when they come; they know the numbers of this save. */
static PyObject *add_gradients(recorder *self, PyObject **values, const tap_saved *saved, bool again)
{
    PyObject *makers[] = {save_gradients, mindspore_gradients};
    for (size_t i = 0; saved->wanted && i < sizeof makers / sizeof makers[0]; i++) {
        if (!makers[i])
            continue;
        PyObject *done = PyObject_CallFunction(makers[i], "OOOLIO", self, values[K_VALUE], values[K_NAME],
                                               (long long)saved->step, (unsigned)saved->call,
                                               again ? Py_False : Py_True);
        if (!done)
            return NULL;
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

/* Is an exported graph being made? It is for other processes, which may record. */
static bool is_exporting(void)
{
    return export_flags && PyDict_GetItem(export_flags, str_exporting) == Py_True && save_traced;
}

/* The user's own filter. One that fails is told once and says yes. */
static bool is_wanted(PyObject *predicate, PyObject *name, PyObject *value)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(predicate, name, value, NULL);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (yes >= 0)
        return yes;
    static bool told;
    if (!told)
        core_say("the predicate given to record raised an exception; what it was asked about is recorded");
    told = true;
    PyErr_Clear();
    return true;
}

static PyObject *save_on(recorder *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *values[K_COUNT], *name_owner = NULL;
    if (parse(args, nargs, kwnames, values) < 0)
        return NULL;
    tap_saved saved = {.wanted = false};
    if (self->predicate && !values[K_ASKED] && !is_exporting() &&
        !is_wanted(self->predicate, values[K_NAME], values[K_VALUE]))
        Py_RETURN_NONE;
    const char *name = text_of(values[K_NAME], &name_owner);
    if (!name)
        return NULL;
    tap_save_info info = TAP_SAVE_INFO();
    save_texts texts;
    memset(&texts, 0, sizeof texts);
    tap_tree tree;
    PyObject *result = NULL;
    int failed = (nargs > 2 || kwnames) ? fill_info(values, &info, &texts) : 0;
    if (!failed && self->source && !info.source)
        source_fill(&info);
    bool again = !failed && info.kind != TAP_KIND_GRAD && info.kind != TAP_KIND_PARAM && recomputed();
    if (again)
        info.flags |= TAP_SAVE_RECOMPUTED;
    if (failed)
        goto done;
    if (tree_build(&tree, values[K_VALUE]) < 0) {
        if (save_traced && PyErr_ExceptionMatches(traced_type))
            result = save_into_graph(args, nargs, kwnames, &info);
        goto done;
    }
    bool grad = values[K_GRAD] == Py_True, numbers = values[K_NUMBERS] == Py_True;
    if (grad || numbers)
        info.saved = &saved;
    if (tree.value.requires_grad)
        info.flags |= TAP_SAVE_REQUIRES_GRAD;
    if (tree.device && !info.device)
        info.device = PyUnicode_AsUTF8AndSize(tree.device, NULL);
    if (tree.placements)
        info.placements = PyUnicode_AsUTF8AndSize(tree.placements, NULL);
    tap_recorder *rec = self->rec; /* converting may have run Python code that closed it: then NULL, and no save */
    if (tree.tensor_bytes > RELEASE_BYTES)
        WITHOUT_GIL(self, do_save(rec, name, &tree, &info));
    else
        do_save(rec, name, &tree, &info);
    if (grad)
        result = add_gradients(self, values, &saved, again);
    else if (numbers && saved.wanted)
        result = Py_BuildValue("(LI)", (long long)saved.step, (unsigned)saved.call);
    else
        result = Py_NewRef(Py_None);
done:
    if (!failed)
        tree_free(&tree);
    free_texts(&texts);
    Py_XDECREF(name_owner);
    return result;
}

static PyObject *recorder_save(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (!((recorder *)self)->rec)
        return closed_error();
    return save_on((recorder *)self, args, nargs, kwnames);
}

static PyObject *module_save(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    (void)module;
    if (!current) {
        if (check_call(args, nargs, kwnames) < 0)
            return NULL;
        if (is_exporting()) {
            tap_save_info info = TAP_SAVE_INFO();
            source_fill(&info);
            return save_into_graph(args, nargs, kwnames, &info);
        }
        if (first_miss_done)
            Py_RETURN_NONE;
        first_miss_done = 1;
        PyObject *opened = PyObject_CallFunctionObjArgs(open_from_environment, NULL);
        if (!opened)
            return NULL;
        Py_DECREF(opened);
        if (!current)
            Py_RETURN_NONE;
    }
    recorder *self = current;
    Py_INCREF(self);
    PyObject *result = save_on(self, args, nargs, kwnames);
    Py_DECREF(self);
    return result;
}

/* -------------------------------------------------------------------------------------------------- open and close */

static int open_recorder(recorder *self, PyObject *given)
{
    tap_options options;
    tap_options_init(&options);
    PyObject *owners = PyList_New(0), *key, *value;
    Py_ssize_t at = 0;
    int failed = !owners;
    self->source = 1;
    while (!failed && given && PyDict_Next(given, &at, &key, &value)) {
        if (PyUnicode_CompareWithASCIIString(key, "source") == 0)
            self->source = PyObject_IsTrue(value) == 1;
        else if (PyUnicode_CompareWithASCIIString(key, "predicate") == 0)
            self->predicate = Py_NewRef(value);
        else
            failed = set_recorder_option(&options, key, value, owners) < 0;
    }
    if (!failed) {
        tap_error err = {.status = TAP_OK};
        tap_recorder *rec = NULL;
        PyThreadState *state = PyEval_SaveThread();
        tap_status status = tap_recorder_open(&options, &rec, &err);
        PyEval_RestoreThread(state);
        if (status != TAP_OK) {
            err.status = status;
            raise_error(&err);
            failed = 1;
        }
        self->rec = rec;
    }
    Py_XDECREF(owners);
    return failed ? -1 : 0;
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_Size(args) != 0)
        return PyErr_Format(PyExc_TypeError, "use tensortap.record(dir, ...)");
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    recorder *self = (recorder *)alloc(type, 0);
    if (!self)
        return NULL;
    self->next = all;
    all = self;
    if (open_recorder(self, kwargs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static tap_status close_recorder(recorder *self, tap_error *err)
{
    tap_recorder *rec = self->rec;
    if (!rec)
        return TAP_OK;
    self->rec = NULL;
    PyObject *was_current = NULL;
    if (current == self) {
        was_current = (PyObject *)current;
        current = NULL;
        tap_recorder_set_default(NULL);
        atomic_store(&open_predicate, false);
    }
    PyThreadState *state = PyEval_SaveThread();
    sinks_forget(rec);
    while (atomic_load(&self->busy))
        usleep(200);
    tap_status status = tap_recorder_close(rec, err);
    PyEval_RestoreThread(state);
    Py_XDECREF(was_current);
    return status;
}

static void recorder_dealloc(PyObject *object)
{
    recorder *self = (recorder *)object;
    PyTypeObject *type = Py_TYPE(object);
    close_recorder(self, NULL);
    Py_CLEAR(self->predicate);
    for (recorder **link = &all; *link; link = &(*link)->next)
        if (*link == self) {
            *link = self->next;
            break;
        }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The threads that were inside a call are not in the child. */
static void after_fork_in_child(void)
{
    for (recorder *each = all; each; each = each->next)
        atomic_store(&each->busy, 0);
    sinks_after_fork();
}

static PyObject *recorder_close_now(PyObject *self, PyObject *unused)
{
    (void)unused;
    tap_error err = {.status = TAP_OK};
    Py_INCREF(self);
    tap_status status = close_recorder((recorder *)self, &err);
    Py_DECREF(self);
    if (status == TAP_OK)
        Py_RETURN_NONE;
    err.status = status;
    return raise_error(&err);
}
SETTLED(recorder_close)

/* ---------------------------------------------------------------------------------------------------- smaller calls */

static PyObject *recorder_step_now(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder *self = (recorder *)object;
    if (!self->rec)
        return closed_error();
    tap_recorder *rec = self->rec;
    WITHOUT_GIL(self, tap_step(rec));
    if (after_step)
        return PyObject_CallFunctionObjArgs(after_step, object, NULL);
    Py_RETURN_NONE;
}
SETTLED(recorder_step)

static PyObject *recorder_set_step_now(PyObject *object, PyObject *value)
{
    recorder *self = (recorder *)object;
    int64_t step;
    if (!self->rec)
        return closed_error();
    if (int_of(value, &step) < 0)
        return NULL;
    tap_recorder *rec = self->rec;
    WITHOUT_GIL(self, tap_recorder_set_step(rec, step));
    Py_RETURN_NONE;
}
SETTLED(recorder_set_step)

static PyObject *recorder_flush_now(PyObject *object, PyObject *args)
{
    recorder *self = (recorder *)object;
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "|d", &seconds))
        return NULL;
    if (!self->rec)
        return closed_error();
    tap_error err = {.status = TAP_OK};
    tap_status status;
    int timeout = seconds < 0 ? -1 : seconds > 2e6 ? 2000000000 : (int)(seconds * 1000);
    tap_recorder *rec = self->rec;
    WITHOUT_GIL(self, status = tap_recorder_flush(rec, timeout, &err));
    if (status == TAP_OK)
        Py_RETURN_NONE;
    err.status = status;
    return raise_error(&err);
}
SETTLED(recorder_flush)

static PyObject *recorder_declare(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "kind", NULL};
    recorder *self = (recorder *)object;
    PyObject *name, *kind = NULL, *owner;
    tap_save_info info = TAP_SAVE_INFO();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|O", names, &name, &kind) ||
        (kind && get_kind(kind, &info.kind) < 0))
        return NULL;
    if (!self->rec)
        return closed_error();
    const char *text = text_of(name, &owner);
    if (!text)
        return NULL;
    tap_recorder *rec = self->rec;
    WITHOUT_GIL(self, tap_recorder_declare(rec, text, &info));
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

static PyObject *recorder_wants(PyObject *object, PyObject *name)
{
    recorder *self = (recorder *)object;
    PyObject *owner;
    const char *text = PyUnicode_Check(name) ? text_of(name, &owner) : NULL;
    if (!text)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "wants takes a name");
    bool yes = self->rec && tap_recorder_wants(self->rec, text);
    Py_XDECREF(owner);
    return PyBool_FromLong(yes);
}

static PyObject *recorder_wanted(PyObject *object, PyObject *args)
{
    recorder *self = (recorder *)object;
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "UO", &name, &value))
        return NULL;
    return PyBool_FromLong(!self->predicate || is_wanted(self->predicate, name, value));
}

static PyObject *recorder_set_enabled_now(PyObject *object, PyObject *value)
{
    recorder *self = (recorder *)object;
    int yes = PyObject_IsTrue(value);
    if (yes < 0)
        return NULL;
    if (!self->rec)
        return closed_error();
    tap_recorder_enable(self->rec, yes);
    Py_RETURN_NONE;
}
SETTLED(recorder_set_enabled)

static PyObject *recorder_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder *self = (recorder *)object;
    if (!self->rec)
        return closed_error();
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(self->rec, &counts);
    return Py_BuildValue("{sK sK sK sK sK sK sK sK si}", "saved", counts.saved, "saved_bytes", counts.saved_bytes,
                         "filtered", counts.filtered, "stats_only", counts.stats_only, "dropped", counts.dropped,
                         "ring_bytes", counts.ring_bytes, "ring_used", counts.ring_used, "written_bytes",
                         counts.written_bytes, "writer_pid", counts.writer_pid);
}

static PyObject *recorder_error(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder *self = (recorder *)object;
    if (!self->rec)
        return closed_error();
    tap_error err = {.status = TAP_OK};
    tap_recorder_error(self->rec, &err);
    if (err.status == TAP_OK)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(err.message, (Py_ssize_t)strlen(err.message), "replace");
}

static PyObject *get_current_step(PyObject *object, void *unused)
{
    (void)unused;
    recorder *self = (recorder *)object;
    return self->rec ? PyLong_FromLongLong(tap_recorder_get_step(self->rec)) : closed_error();
}

static PyObject *get_source(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((recorder *)object)->source);
}

static PyObject *get_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!((recorder *)object)->rec);
}

/* --------------------------------------------------------------------------------------------------- the module's */

static PyObject *module_current(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_NewRef(current ? (PyObject *)current : Py_None);
}

static PyObject *module_set_current(PyObject *module, PyObject *value)
{
    (void)module;
    if (!PyObject_TypeCheck(value, (PyTypeObject *)recorder_type))
        return PyErr_Format(PyExc_TypeError, "set_current takes a Recorder");
    if (current || !((recorder *)value)->rec)
        return PyErr_Format(PyExc_RuntimeError, "a recorder is open already; close it first");
    current = (recorder *)Py_NewRef(value);
    tap_recorder_set_default(current->rec);
    atomic_store(&open_predicate, current->predicate != NULL);
    sink_publish(NULL, current->rec);
    Py_RETURN_NONE;
}

static PyObject *module_step_now(PyObject *module, PyObject *unused)
{
    (void)module;
    if (!current)
        Py_RETURN_NONE;
    PyObject *self = Py_NewRef((PyObject *)current), *result = recorder_step_now(self, unused);
    Py_DECREF(self);
    return result;
}
SETTLED(module_step)

/* step_all() -> None: of the open recorder and of those that sinks have. */
static PyObject *module_step_all_now(PyObject *module, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    sinks_step(false);
    PyEval_RestoreThread(state);
    return module_step_now(module, unused);
}
SETTLED(module_step_all)

static PyObject *module_on_step(PyObject *module, PyObject *callback)
{
    (void)module;
    Py_XDECREF(after_step);
    after_step = callback == Py_None ? NULL : Py_NewRef(callback);
    Py_RETURN_NONE;
}

static PyObject *module_on_first_miss(PyObject *module, PyObject *callback)
{
    (void)module;
    Py_XDECREF(open_from_environment);
    open_from_environment = Py_NewRef(callback);
    first_miss_done = 0;
    Py_RETURN_NONE;
}

/* on_torch(save_traced, save_gradients, is_recompute, flags, ask, make) -> None: what torch's part of the package adds. */
static PyObject *module_on_torch(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *traced, *gradients, *again, *flags, *ask, *make;
    if (!PyArg_ParseTuple(args, "OOOO!OO", &traced, &gradients, &again, &PyDict_Type, &flags, &ask, &make))
        return NULL;
    torch_on_python(ask, make);
    save_traced = Py_NewRef(traced);
    save_gradients = Py_NewRef(gradients);
    is_recompute = Py_NewRef(again);
    export_flags = Py_NewRef(flags);
    Py_RETURN_NONE;
}

/* save of tensortap.mindspore: a str first is a directory, and the call is save(save_dir, name, data). */
static PyObject *module_save_mindspore(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    bool other = !nargs || PyUnicode_Check(args[0]) || nargs > POSITIONAL;
    if (other && save_to_directory)
        return core_call(save_to_directory, args, nargs, kwnames);
    PyObject *done = module_save(module, args, nargs, kwnames);
    if (!done || !kwnames)
        return done;
    Py_DECREF(done); /* with grad=True a graph needs the value that save returns; so it is returned everywhere */
    for (Py_ssize_t i = 0; i < PyTuple_Size(kwnames); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(kwnames, i), "grad") == 0 &&
            PyObject_IsTrue(args[nargs + i]) == 1)
            return Py_NewRef(args[0]);
    Py_RETURN_NONE;
}

/* on_mindspore(save_gradients, save_to_directory, view) -> None: what MindSpore's part of the package adds. */
static PyObject *module_on_mindspore(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *gradients, *directory, *view;
    if (!PyArg_ParseTuple(args, "OOO", &gradients, &directory, &view))
        return NULL;
    value_on_mindspore(view);
    save_to_directory = Py_NewRef(directory);
    mindspore_gradients = Py_NewRef(gradients);
    Py_RETURN_NONE;
}

/* set_sink(key, recorder) -> None */
static PyObject *module_set_sink(PyObject *module, PyObject *args)
{
    (void)module;
    const char *key;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "sO!", &key, (PyTypeObject *)recorder_type, &value))
        return NULL;
    tap_sink *sink = sink_find(key);
    if (!sink)
        return PyErr_NoMemory();
    if (((recorder *)value)->rec)
        sink_publish(sink, ((recorder *)value)->rec);
    Py_RETURN_NONE;
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

/* The first line is read by inspect.signature. */
#define SAVE_DOC(self)                                                                                               \
    "save($" self ", value, name, kind='forward', step=None, *, call=None, replay=None, module=None, graph=None, "    \
    "node=None, graph_id=None, argument=None, suffix=None, stamp_us=None, flags=None, device=None, source=None, "     \
    "line=None, path=None, grad=False)\n--\n\n"                                                                  \
    "Save a value under a name: an array, a tensor, a number, a str, or a nested list, tuple or dict of them.\n\n"    \
    "Returns when the value is safe from the death of this process. Without a recorder it does nothing.\n"           \
    "kind is forward, grad, input, output or param; step is the recorder's own unless given. grad=True saves the\n"   \
    "gradients of the torch tensors in it too, when they come, with the step and call of this save.\n\n"              \
    ">>> import numpy, tempfile, tensortap as tap\n"                                                                 \
    ">>> with tempfile.TemporaryDirectory() as d, tap.record(d + '/run'):\n"                                         \
    "...     tap.save(numpy.ones(3), 'x')\n"

static PyMethodDef recorder_methods[] = {
    {"save", FAST(recorder_save), METH_FASTCALL | METH_KEYWORDS, SAVE_DOC("self")},
    {"step", recorder_step, METH_NOARGS, "step() -> None: end the current step."},
    {"set_step", recorder_set_step, METH_O, "set_step(step) -> None: go to a step by number."},
    {"flush", recorder_flush, METH_VARARGS, "flush(timeout=-1) -> None: return when everything saved is in its files."},
    {"close", recorder_close, METH_NOARGS, "close() -> None: end the recording; all files are final then."},
    {"declare", FAST(recorder_declare), METH_VARARGS | METH_KEYWORDS,
     "declare(name, kind='forward') -> None: announce a name; verify reports it when no value ever comes."},
    {"wants", recorder_wants, METH_O, "wants(name) -> bool: would a save of this name be kept now?"},
    {"wanted", recorder_wanted, METH_VARARGS, "wanted(name, value) -> bool: what the predicate says."},
    {"set_enabled", recorder_set_enabled, METH_O, "set_enabled(yes) -> None: pause or resume."},
    {"counts", recorder_counts, METH_NOARGS, "counts() -> dict: what was saved, left out and lost so far."},
    {"last_error", recorder_error, METH_NOARGS, "last_error() -> str | None: why a save last failed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_getset[] = {
    {"current_step", get_current_step, NULL, "Number of the step that is being recorded.", NULL},
    {"records_source", get_source, NULL, "Whether the file and line of each save are recorded.", NULL},
    {"closed", get_closed, NULL, "Whether close was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_getset},
    {0, NULL},
};

static PyType_Spec recorder_spec = {
    .name = "tensortap._core.Recorder",
    .basicsize = sizeof(recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = recorder_slots,
};

static PyMethodDef module_methods[] = {
    {"save", FAST(module_save), METH_FASTCALL | METH_KEYWORDS, SAVE_DOC("module")},
    {"step", module_step, METH_NOARGS, "step() -> None: end the current step of the open recorder, if there is one."},
    {"current", module_current, METH_NOARGS, "current() -> Recorder | None"},
    {"set_current", module_set_current, METH_O, "set_current(recorder) -> None"},
    {"on_first_miss", module_on_first_miss, METH_O, "on_first_miss(callback): run by the first save with no recorder."},
    {"on_step", module_on_step, METH_O, "on_step(callback or None): called with the recorder after each step."},
    {"on_torch", module_on_torch, METH_VARARGS, "on_torch(...): the parts that need torch."},
    {"save_mindspore", FAST(module_save_mindspore), METH_FASTCALL | METH_KEYWORDS,
     "save($module, value, name, kind='forward', step=None, *, grad=False)\n--\n\n"
     "See tensortap.mindspore."},
    {"step_all", module_step_all, METH_NOARGS,
     "step() -> None: end the current step, of the open recorder and of every directory that save was given."},
    {"on_mindspore", module_on_mindspore, METH_VARARGS, "on_mindspore(...): the parts that need MindSpore."},
    {"set_sink", module_set_sink, METH_VARARGS, "set_sink(key, recorder): where the taps of a graph find a recorder."},
    {NULL, NULL, 0, NULL},
};

int recorder_init(PyObject *module)
{
    for (int i = 0; i < K_COUNT; i++)
        if (!(keywords[i] = PyUnicode_InternFromString(KEYWORDS[i])))
            return -1;
    if (!(str_exporting = PyUnicode_InternFromString("_is_exporting_flag")))
        return -1;
    recorder_type = PyType_FromSpec(&recorder_spec);
    if (!recorder_type || PyModule_AddObjectRef(module, "Recorder", recorder_type) < 0)
        return -1;
    pthread_atfork(NULL, NULL, after_fork_in_child);
    return PyModule_AddFunctions(module, module_methods);
}
