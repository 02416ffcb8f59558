/* py_settle.c - waiting for a framework that computes by itself, before a step or a recording ends. */
#include "py_core.h"

static PyObject *settle; /* returns when the framework has computed what it was asked for; NULL: it always has */

PyObject *settled(PyCFunction body, PyObject *self, PyObject *arg)
{
    if (!settle)
        return body(self, arg);
    PyObject *wait = Py_NewRef(settle), *type = NULL, *value = NULL, *trace = NULL;
    PyObject *done = PyObject_CallNoArgs(wait);
    if (!done)
        PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(done);
    Py_DECREF(wait);
    PyObject *result = body(self, arg);
    if (!type)
        return result;
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
    return NULL;
}

static PyObject *nothing(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_RETURN_NONE;
}

static PyObject *settle_now(PyObject *module, PyObject *unused)
{
    return settled(nothing, module, unused);
}

static PyObject *on_settle(PyObject *module, PyObject *callback)
{
    (void)module;
    Py_XDECREF(settle);
    settle = callback == Py_None ? NULL : Py_NewRef(callback);
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {
    {"settle", settle_now, METH_NOARGS, "settle() -> None: return when the framework is idle."},
    {"on_settle", on_settle, METH_O,
     "on_settle(callback or None): called before a step or a recording ends; returns when the framework is idle."},
    {NULL, NULL, 0, NULL},
};

int settle_init(PyObject *module)
{
    return PyModule_AddFunctions(module, FUNCTIONS);
}
