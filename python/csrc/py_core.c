/* py_core.c - the module tensortap._core: errors, what the library says to people, and the loading of its parts. */
#include "py_bounds.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static PyObject *error_type;

PyObject *raise_error(const tap_error *err)
{
    PyObject *args = Py_BuildValue("(ss)", err->message[0] ? err->message : tap_status_text(err->status),
                                   tap_status_name(err->status));
    if (args)
        PyErr_SetObject(error_type, args);
    Py_XDECREF(args);
    return NULL;
}

int core_arguments(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **positional, PyObject **named)
{
    *positional = PyTuple_New(nargs);
    *named = PyDict_New();
    int bad = !*positional || !*named;
    for (Py_ssize_t i = 0; !bad && i < nargs; i++)
        bad = PyTuple_SetItem(*positional, i, Py_NewRef(args[i])) < 0;
    for (Py_ssize_t i = 0; !bad && kwnames && i < PyTuple_Size(kwnames); i++)
        bad = PyDict_SetItem(*named, PyTuple_GetItem(kwnames, i), args[nargs + i]) < 0;
    if (bad) {
        Py_CLEAR(*positional);
        Py_CLEAR(*named);
    }
    return bad ? -1 : 0;
}

PyObject *core_call(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional, *named;
    if (core_arguments(args, nargs, kwnames, &positional, &named) < 0)
        return NULL;
    PyObject *result = PyObject_Call(function, positional, named);
    Py_DECREF(positional);
    Py_DECREF(named);
    return result;
}

/* ------------------------------------------------------------------------------------------------------- messages */

/* The library speaks from any of its threads, at any time, also while Python shuts down. So the callback never takes
 * the GIL: it writes to stderr and keeps the newest messages for messages(). */
enum { KEPT = 64, MESSAGE_BYTES = 1024 };
static struct {
    pthread_mutex_t lock;
    unsigned long count;
    char text[KEPT][MESSAGE_BYTES];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
static int quiet;
/* Below a warning nothing is printed unless somebody asked for it: TNG_LOG_LEVEL, in the form that torchair's logs have. */
static int details = TAP_LOG_WARNING;

static void hear_detail(tap_log_level level, const char *message)
{
    static const char *const NAMES[] = {"DEBUG", "INFO"};
    struct timespec now;
    struct tm parts;
    char line[MESSAGE_BYTES + 128], date[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &parts))
        strftime(date, sizeof date, "%Y-%m-%d-%H:%M:%S", &parts);
    long micro = now.tv_nsec / 1000;
    int len = snprintf(line, sizeof line, "[%s] TORCHAIR(%d,%.40s):%s.%03ld.%03ld [tensortap]%ld %.*s\n", NAMES[level],
                       (int)getpid(), program_invocation_short_name, date, micro / 1000, micro % 1000,
                       (long)syscall(SYS_gettid), MESSAGE_BYTES - 1, message);
    if (!quiet && len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0)
        return; /* nobody listens */
}

static void hear(void *user, tap_log_level level, const char *message)
{
    (void)user;
    static const char *const NAMES[] = {"debug", "info", "warning", "error"};
    if (level < TAP_LOG_WARNING) {
        if ((int)level >= details)
            hear_detail(level, message);
        return;
    }
    char line[MESSAGE_BYTES + 64];
    int len = snprintf(line, sizeof line, "tensortap: %s: %.*s\n", NAMES[level], MESSAGE_BYTES - 1, message);
    /* a message is lost rather than waited for: a fork may have left the lock taken for ever */
    if (pthread_mutex_trylock(&heard.lock) == 0) {
        snprintf(heard.text[heard.count++ % KEPT], MESSAGE_BYTES, "%s", message);
        pthread_mutex_unlock(&heard.lock);
    }
    if (!quiet && len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0)
        return; /* nobody listens */
}

void core_say(const char *message)
{
    hear(NULL, TAP_LOG_WARNING, message);
}

void core_print(const char *text, size_t len)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *shown = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
    PyObject *stdout_ = PySys_GetObject("stdout"); /* borrowed */
    PyObject *done = shown && stdout_ ? PyObject_CallMethod(stdout_, "write", "O", shown) : NULL;
    Py_XDECREF(done);
    done = done ? PyObject_CallMethod(stdout_, "flush", NULL) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(shown);
    PyErr_Clear();
    PyGILState_Release(gil);
}

static void write_out(void *user, const char *text, size_t len)
{
    fwrite(text, 1, len, user);
}

static void write_type(FILE *out, const tap_tensor *tensor)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    fprintf(out, "= %s[", info ? info->name : "?");
    for (int i = 0; i < tensor->ndim; i++)
        fprintf(out, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    fprintf(out, "]\n");
}

void core_print_value(const char *name, const tap_value *value, bool typed)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return;
    tap_print_options options;
    tap_print_options_init(&options);
    tap_error err;
    fprintf(out, "%s ", name);
    if (typed)
        write_type(out, &value->tensor);
    if (value->type == TAP_VALUE_TENSOR)
        tap_tensor_print(&value->tensor, &options, write_out, out, &err);
    fputc('\n', out);
    fclose(out);
    if (text)
        core_print(text, len);
    free(text);
}

static PyObject *messages(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    char(*copy)[MESSAGE_BYTES] = PyMem_Malloc(sizeof heard.text);
    if (!copy)
        return PyErr_NoMemory();
    pthread_mutex_lock(&heard.lock);
    unsigned long count = heard.count;
    memcpy(copy, heard.text, sizeof heard.text);
    pthread_mutex_unlock(&heard.lock);
    PyObject *list = PyList_New(0);
    for (unsigned long i = count > KEPT ? count - KEPT : 0; list && i < count; i++) {
        const char *text = copy[i % KEPT];
        PyObject *item = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyMem_Free(copy);
    return list;
}

static PyObject *set_quiet(PyObject *self, PyObject *value)
{
    (void)self;
    int yes = PyObject_IsTrue(value);
    if (yes < 0)
        return NULL;
    quiet = yes;
    Py_RETURN_NONE;
}

static PyObject *set_log_level(PyObject *self, PyObject *value)
{
    (void)self;
    long level = PyLong_AsLong(value);
    if (level == -1 && PyErr_Occurred())
        return NULL;
    details = level < TAP_LOG_DEBUG ? TAP_LOG_DEBUG : level > TAP_LOG_WARNING ? TAP_LOG_WARNING : (int)level;
    Py_RETURN_NONE;
}

static PyObject *say_detail(PyObject *self, PyObject *text)
{
    (void)self;
    PyObject *owner;
    const char *utf8 = PyUnicode_Check(text) ? text_of(text, &owner) : NULL;
    if (!utf8)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "say_detail takes a str");
    hear(NULL, TAP_LOG_INFO, utf8);
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

static PyObject *say(PyObject *self, PyObject *text)
{
    (void)self;
    PyObject *owner;
    const char *utf8 = PyUnicode_Check(text) ? text_of(text, &owner) : NULL;
    if (!utf8)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "say takes a str");
    hear(NULL, TAP_LOG_WARNING, tap_text(utf8));
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"messages", messages, METH_NOARGS, "messages() -> list[str]: the newest warnings and errors of the library."},
    {"set_quiet", set_quiet, METH_O, "set_quiet(yes): do not print messages to stderr; messages() still has them."},
    {"set_log_level", set_log_level, METH_O,
     "set_log_level(n): also print the library's details, 0: all, 1: without debugging; warnings always are."},
    {"say_detail", say_detail, METH_O, "say_detail(text): print a detail of the Python side, where those are printed."},
    {"say", say, METH_O, "say(text): print and keep a warning of the Python side."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tensortap._core", "The C half of tensortap. Use the package.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    source_init();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    error_type = PyErr_NewExceptionWithDoc("tensortap.Error",
                                           "A call of the library failed. args: the message, the status name.",
                                           PyExc_OSError, NULL);
    if (!error_type || PyModule_AddObjectRef(module, "Error", error_type) < 0 ||
        PyModule_AddStringConstant(module, "version", tap_version()) < 0 || constants_init(module) < 0 ||
        bounds_init() < 0 || value_init() < 0 ||
        recorder_init(module) < 0 || sink_init(module) < 0 || settle_init(module) < 0 || reader_init(module) < 0 ||
        compare_init(module) < 0 ||
        torch_init(module) < 0 || mindspore_init(module) < 0 || engine_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    tap_log_set(hear, NULL);
    return module;
}
