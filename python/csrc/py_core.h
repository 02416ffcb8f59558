/* py_core.h - what the files of the Python extension share. The extension uses the public headers and CPython's limited
 * API only: one build serves every Python from 3.10 on. */
#ifndef TAP_PYTHON_CORE_H
#define TAP_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensortap/tensortap.h"

/* A Python value turned into a tap_value. What the value points at lives until tree_free: small trees in `inside`,
 * larger ones in blocks; Python objects that own memory are held in `held`. */
enum { TREE_INSIDE = 1024 };
typedef struct tap_tree {
    tap_value value;
    size_t tensor_bytes;       /* of all tensors in it */
    PyObject *device;          /* a str when a tensor was not on the CPU */
    PyObject *placements;      /* a str when a tensor was sharded */
    struct tree_block *blocks;
    PyObject *held_one;        /* the usual case: one owner */
    PyObject *held;            /* a list of further owners */
    size_t items;              /* of all containers in it */
    bool given_up;             /* the whole value is lost */
    size_t used;
    _Alignas(16) char inside[TREE_INSIDE];
} tap_tree;

/* A leaf that cannot be read becomes TAP_VALUE_LOST: -1 only where a graph is being traced (traced_type) or somebody wants
 * the program to end. tree_free is called in both cases. */
int tree_build(tap_tree *tree, PyObject *value);
void tree_free(tap_tree *tree);
int value_init(void);
/* What gives a large tensor of MindSpore as an array without copying it, or None. */
void value_on_mindspore(PyObject *view);
/* Raised by tree_build for a stand-in: a graph is being traced. */
extern PyObject *traced_type;
/* Raised for a value that cannot be recorded: its text is the reason that verify gives. */
extern PyObject *unreadable_type;

/* A plain torch tensor, in place; valid while the object lives. 1: done; 2: done, but its memory is another device's; 0:
 * it is something else (a conjugate view, a number); -1 with an exception. */
int tensor_view(PyObject *tensor, tap_tensor *out);

/* UTF-8 of a str, NUL-terminated; *owner (may become NULL) keeps it alive. Lone surrogates and NUL bytes, which the
 * library's strings cannot hold, are written as escapes. NULL with an exception. */
const char *text_of(PyObject *str, PyObject **owner);

/* An int or a bool. 0, or -1 with an exception. */
int int_of(PyObject *value, int64_t *out);
/* Sets one of tap_options; owners (a list) keeps texts alive. 0, or -1 with an exception. */
int set_recorder_option(tap_options *options, PyObject *key, PyObject *value, PyObject *owners);

/* Raises tensortap.Error with the message of err. Always returns NULL. */
PyObject *raise_error(const tap_error *err);

/* Fills in source and line of the caller; a frame of our own modules is not taken for one. Cheap from the second time on. */
void source_fill(tap_save_info *info);
void source_init(void);

/* The arguments of a METH_FASTCALL function as a tuple and a dict. 0, or -1 with an exception and NULL in both. */
int core_arguments(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **positional, PyObject **named);
/* Calls a Python function with them. */
PyObject *core_call(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Prints and keeps a warning; needs no GIL. */
void core_say(const char *message);

/* Writes to sys.stdout, so that it stays in order with Python's own printing. Takes the GIL. */
void core_print(const char *text, size_t len);
/* Writes "name = dtype[sizes]" and, on the next line, the values of a tensor; not `typed`: "name values". A tensor without
 * data has no values. The text is made without the GIL. */
void core_print_value(const char *name, const tap_value *value, bool typed);

/* Where code that runs without the GIL finds a recorder. NULL stands for the process's own recorder; others have a key,
 * "<layout>:<directory>", and are opened on first use. Sinks are made once and live as long as the process. */
typedef struct tap_sink tap_sink;
tap_sink *sink_find(const char *key);
/* The open recorder, or NULL. Between the two calls it is not closed. *serial tells one recorder from the next. */
tap_recorder *sink_enter(tap_sink *sink, uint64_t *serial);
void sink_leave(tap_sink *sink);
/* May there be something to do? The process's recorder: is it open. */
bool sink_is_open(tap_sink *sink);
/* Has a sink (NULL: the process's own) give this recorder from now on. */
void sink_publish(tap_sink *sink, tap_recorder *rec);
/* Takes rec out of every sink and returns when no call is inside it any more. Without the GIL. */
void sinks_forget(tap_recorder *rec);
void sinks_after_fork(void);
/* Ends the step of every open recorder that a sink has; the process's own only where `own_too`. */
void sinks_step(bool own_too);
/* The number of the next file where one count serves all directories (troubleshooter). */
uint32_t next_file_id(void);
/* Does the process's recorder ask the user about every value? */
bool recorder_has_predicate(void);

/* The bytes of a plain strided tensor's storage, and where in it the tensor begins, in elements. 0, or -1 with an exception. */
int torch_storage(PyObject *tensor, int64_t *bytes, int64_t *offset);

/* Does torch's autograd run forward code in this thread, during a backward pass? */
bool torch_in_recompute(void);

/* Calls `body` once the framework has computed what it was asked for: the values of that belong to the step or the
 * recording that `body` ends. What failed in the framework meanwhile is raised after it. */
PyObject *settled(PyCFunction body, PyObject *self, PyObject *arg);

/* Adds the types and functions of a file to the module; 0 or -1 with an exception. */
int constants_init(PyObject *module);
int recorder_init(PyObject *module);
int sink_init(PyObject *module);
int settle_init(PyObject *module);
int reader_init(PyObject *module);
int compare_init(PyObject *module);
int torch_init(PyObject *module);
int engine_init(PyObject *module);
int mindspore_init(PyObject *module);
/* What the operators call in Python: ask(site, tensors) for the predicate, make(capsule of a handle) for a tensor. */
void torch_on_python(PyObject *ask, PyObject *make);

#endif
