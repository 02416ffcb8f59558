/* py_recorder_option.c - the options of a recorder by name, as Python gives them. */
#include "py_core.h"

#include <string.h>

int int_of(PyObject *value, int64_t *out)
{
    *out = PyLong_AsLongLong(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* tap_options by name. type: s text, i int or enum, q 64 bits, b bool. */
static const struct {
    const char *name;
    char type;
    size_t offset;
} OPTIONS[] = {
    {"dir", 's', offsetof(tap_options, dir)},
    {"layout", 's', offsetof(tap_options, layout)},
    {"mode", 'i', offsetof(tap_options, mode)},
    {"keep", 'i', offsetof(tap_options, keep)},
    {"names", 's', offsetof(tap_options, names)},
    {"steps", 's', offsetof(tap_options, steps)},
    {"ranks", 's', offsetof(tap_options, ranks)},
    {"every", 'q', offsetof(tap_options, every)},
    {"last", 'q', offsetof(tap_options, last)},
    {"freeze_on_nan", 'b', offsetof(tap_options, freeze_on_nan)},
    {"max_bytes", 'q', offsetof(tap_options, max_bytes)},
    {"reserve_bytes", 'q', offsetof(tap_options, reserve_bytes)},
    {"ring_bytes", 'q', offsetof(tap_options, ring_bytes)},
    {"ring", 'i', offsetof(tap_options, ring)},
    {"full", 'i', offsetof(tap_options, full)},
    {"stall_ms", 'i', offsetof(tap_options, stall_ms)},
    {"durability", 'i', offsetof(tap_options, durability)},
    {"segment_bytes", 'q', offsetof(tap_options, segment_bytes)},
    {"rank", 'i', offsetof(tap_options, rank)},
    {"world_size", 'i', offsetof(tap_options, world_size)},
    {"device_index", 'i', offsetof(tap_options, device_index)},
    {"distributed", 'b', offsetof(tap_options, distributed)},
    {"writer", 's', offsetof(tap_options, writer)},
    {"asynchronous", 'b', offsetof(tap_options, asynchronous)},
    {"checksum", 'i', offsetof(tap_options, checksum)},
    {"framework", 's', offsetof(tap_options, framework)},
    {"first_step", 'q', offsetof(tap_options, first_step)},
};

int set_recorder_option(tap_options *options, PyObject *key, PyObject *value, PyObject *owners)
{
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++) {
        if (PyUnicode_CompareWithASCIIString(key, OPTIONS[i].name) != 0)
            continue;
        char *at = (char *)options + OPTIONS[i].offset;
        if (OPTIONS[i].type == 's') {
            PyObject *owner = NULL;
            const char *text = PyUnicode_Check(value) ? text_of(value, &owner) : NULL;
            if (owner && PyList_Append(owners, owner) < 0)
                text = NULL;
            Py_XDECREF(owner);
            if (!text) {
                if (!PyErr_Occurred())
                    PyErr_Format(PyExc_TypeError, "%s is a str", OPTIONS[i].name);
                return -1;
            }
            memcpy(at, &text, sizeof text);
            return 0;
        }
        int64_t number;
        if (int_of(value, &number) < 0)
            return -1;
        if (OPTIONS[i].type == 'b') {
            *(bool *)at = number != 0;
        } else if (OPTIONS[i].type == 'i') {
            int small = (int)number;
            memcpy(at, &small, sizeof small);
        } else {
            memcpy(at, &number, sizeof number);
        }
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "record has no option %R", key);
    return -1;
}
