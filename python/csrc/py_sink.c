/* py_sink.c - where code that runs without the GIL finds the recorders: the process's own, and those of directories. */
#include "py_core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tap_sink {
    _Atomic(tap_recorder *) rec; /* NULL: not open */
    _Atomic uint64_t serial;
    atomic_int entered;          /* calls inside; close waits for them */
    atomic_bool failed;          /* could not be opened: said once, then left alone */
    struct tap_sink *next;
    char key[];
};

static tap_sink own = {.next = NULL};   /* what code without the GIL sees of `current`; heads the list of all */
static pthread_mutex_t sinks_lock = PTHREAD_MUTEX_INITIALIZER;
static PyObject *open_sink;             /* called with a key; publishes the recorder by set_sink */

tap_sink *sink_find(const char *key)
{
    pthread_mutex_lock(&sinks_lock);
    tap_sink *sink = own.next;
    while (sink && strcmp(sink->key, key) != 0)
        sink = sink->next;
    if (!sink && (sink = calloc(1, sizeof *sink + strlen(key) + 1))) {
        strcpy(sink->key, key);
        sink->next = own.next;
        own.next = sink;
    }
    pthread_mutex_unlock(&sinks_lock);
    return sink;
}

bool sink_is_open(tap_sink *sink)
{
    return sink || atomic_load_explicit(&own.rec, memory_order_relaxed);
}

/* The graph was compiled by another process, or the recorder was closed meanwhile. */
static void ask_to_open(tap_sink *sink)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *done = open_sink ? PyObject_CallFunction(open_sink, "s", sink->key) : NULL;
    if (!done)
        PyErr_Clear();
    Py_XDECREF(done);
    PyGILState_Release(gil);
    if (!atomic_load(&sink->rec))
        atomic_store(&sink->failed, true);
}

tap_recorder *sink_enter(tap_sink *sink, uint64_t *serial)
{
    if (sink && !atomic_load(&sink->rec) && !atomic_load(&sink->failed))
        ask_to_open(sink);
    sink = sink ? sink : &own;
    atomic_fetch_add(&sink->entered, 1);
    *serial = atomic_load(&sink->serial);
    return atomic_load(&sink->rec);
}

void sink_leave(tap_sink *sink)
{
    atomic_fetch_sub(&(sink ? sink : &own)->entered, 1);
}

void sink_publish(tap_sink *sink, tap_recorder *rec)
{
    sink = sink ? sink : &own;
    if (atomic_load(&sink->rec) == rec)
        return;
    atomic_fetch_add(&sink->serial, 1);
    atomic_store(&sink->failed, false);
    atomic_store(&sink->rec, rec);
}

void sinks_forget(tap_recorder *rec)
{
    pthread_mutex_lock(&sinks_lock);
    for (tap_sink *sink = &own; sink; sink = sink->next) {
        tap_recorder *expected = rec;
        if (atomic_compare_exchange_strong(&sink->rec, &expected, NULL))
            while (atomic_load(&sink->entered))
                usleep(200);
    }
    pthread_mutex_unlock(&sinks_lock);
}

static _Atomic int64_t steps_done; /* by sinks_step: the number of the step for recorders that are opened later */

void sinks_step(bool own_too)
{
    atomic_fetch_add(&steps_done, 1);
    pthread_mutex_lock(&sinks_lock);
    for (tap_sink *sink = own_too ? &own : own.next; sink; sink = sink->next) {
        atomic_fetch_add(&sink->entered, 1);
        tap_recorder *rec = atomic_load(&sink->rec);
        if (rec)
            tap_step(rec);
        atomic_fetch_sub(&sink->entered, 1);
    }
    pthread_mutex_unlock(&sinks_lock);
}

uint32_t next_file_id(void)
{
    static _Atomic uint32_t next;
    return atomic_fetch_add(&next, 1);
}

void sinks_after_fork(void)
{
    sinks_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (tap_sink *sink = &own; sink; sink = sink->next)
        atomic_store(&sink->entered, 0);
}

/* ------------------------------------------------------------------------------------------------------- the module's */

static PyObject *module_on_sink(PyObject *module, PyObject *callback)
{
    (void)module;
    Py_XDECREF(open_sink);
    open_sink = Py_NewRef(callback);
    Py_RETURN_NONE;
}

static PyObject *module_steps_done(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLongLong(atomic_load(&steps_done));
}

static PyObject *module_next_file_id(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromUnsignedLong(next_file_id());
}

static PyMethodDef module_methods[] = {
    {"on_sink", module_on_sink, METH_O, "on_sink(callback): called with a sink's key to open its recorder."},
    {"steps_done", module_steps_done, METH_NOARGS, "steps_done() -> int: how often all sinks were stepped."},
    {"next_file_id", module_next_file_id, METH_NOARGS, "next_file_id() -> int: one count for all directories."},
    {NULL, NULL, 0, NULL},
};

int sink_init(PyObject *module)
{
    return PyModule_AddFunctions(module, module_methods);
}
