/* py_compare.c - comparing recordings: Comparison and its matches, thin over tensortap_compare.h. Matches are dicts of
 * plain values; the module tensortap._record.comparing makes objects of them. */
#include "py_core.h"

#include "tensortap/tensortap_compare.h"

#include <string.h>

static PyObject *comparison_type, *matches_type;

typedef struct comparison_object {
    PyObject_HEAD
    tap_comparison *comparison;
} comparison_object;

typedef struct matches_object {
    PyObject_HEAD
    tap_match_cursor *cursor;
    PyObject *comparison; /* held */
} matches_object;

static PyObject *fail(tap_error *err, tap_status status)
{
    err->status = status;
    return raise_error(err);
}

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

static tap_comparison *usable(PyObject *object)
{
    comparison_object *self = (comparison_object *)object;
    if (self->comparison)
        return self->comparison;
    PyErr_SetString(PyExc_ValueError, "the comparison is closed");
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ dicts */

/* Puts a new value under a key; -1 with an exception, also where value is NULL. */
static int put(PyObject *dict, const char *key, PyObject *value)
{
    if (!value)
        return -1;
    int status = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return status;
}

static PyObject *text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes ? bytes : "", bytes ? (Py_ssize_t)strlen(bytes) : 0, "replace");
}

static PyObject *number(tap_dtype dtype, tap_number value, double imag)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    switch (info ? info->kind : 'F') {
    case 'I': return PyLong_FromLongLong(value.i);
    case 'U':
    case 'B': return PyLong_FromUnsignedLongLong(value.u);
    case 'C': return PyComplex_FromDoubles(value.f, imag);
    default: return PyFloat_FromDouble(value.f);
    }
}

static PyObject *shape_of(const tap_match_side *side)
{
    PyObject *shape = PyTuple_New(side->ndim);
    for (int i = 0; shape && i < side->ndim; i++) {
        PyObject *size = PyLong_FromLongLong(side->shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

/* (index, a, b) or None */
static PyObject *place_of(const tap_match *match, const tap_place *place)
{
    if (place->index < 0)
        Py_RETURN_NONE;
    const tap_match_side *side = &match->side[0];
    int64_t index = place->index;
    PyObject *at = PyTuple_New(side->ndim);
    for (int i = side->ndim; at && i-- > 0;) {
        int64_t size = side->shape[i] > 0 ? side->shape[i] : 1;
        PyObject *one = PyLong_FromLongLong(index % size);
        index /= size;
        if (!one || PyTuple_SetItem(at, i, one) < 0)
            Py_CLEAR(at);
    }
    return Py_BuildValue("(NNN)", at, number(match->side[0].dtype, place->a, place->a_imag),
                         number(match->side[1].dtype, place->b, place->b_imag));
}

static PyObject *stats_of(const tap_match_side *side)
{
    const tap_stats *s = &side->stats;
    if (!side->has_stats)
        Py_RETURN_NONE;
    return Py_BuildValue("(KKKKKNNdd)", s->count, s->nan, s->pos_inf, s->neg_inf, s->zero,
                         number(side->dtype, s->min, 0), number(side->dtype, s->max, 0), s->mean, s->norm);
}

static PyObject *side_of(const tap_match_side *side)
{
    const tap_dtype_info *dtype = tap_dtype_describe(side->dtype);
    if (!side->there)
        Py_RETURN_NONE;
    PyObject *out = PyDict_New();
    if (out && (put(out, "name", text(side->name)) < 0 || put(out, "step", PyLong_FromLongLong(side->step)) < 0 ||
                put(out, "attempt", PyLong_FromLong(side->attempt)) < 0 ||
                put(out, "seq", PyLong_FromUnsignedLongLong(side->seq)) < 0 ||
                put(out, "dtype", text(dtype ? dtype->name : "")) < 0 || put(out, "shape", shape_of(side)) < 0 ||
                put(out, "stats", stats_of(side)) < 0 || put(out, "source", text(side->source)) < 0 ||
                put(out, "line", PyLong_FromLong(side->line)) < 0 || put(out, "module", text(side->module)) < 0 ||
                put(out, "graph", text(side->graph)) < 0 || put(out, "node", text(side->node)) < 0 ||
                put(out, "file", text(side->file)) < 0 ||
                put(out, "hash", side->has_hash ? PyLong_FromUnsignedLongLong(side->hash) : Py_NewRef(Py_None)) < 0))
        Py_CLEAR(out);
    return out;
}

static PyObject *difference_of(const tap_match *match)
{
    const tap_difference *d = &match->difference;
    if (!match->has_difference)
        Py_RETURN_NONE;
    PyObject *out = Py_BuildValue(
        "{sKsKsKsKs(KK)s(KK)s(KK)sdsdsdsdsdsdsdsdsds(ddd)}", "count", d->count, "different", d->different, "unlike",
        d->unlike, "beyond", match->beyond, "nan", d->nan[0], d->nan[1], "pos_inf", d->pos_inf[0], d->pos_inf[1],
        "neg_inf", d->neg_inf[0], d->neg_inf[1], "max_abs", d->max_abs, "mean_abs", d->mean_abs, "max_rel", d->max_rel,
        "mean_rel", d->mean_rel, "max_ulp", d->max_ulp, "norm", d->norm, "norm_a", d->norms[0], "norm_b", d->norms[1],
        "cosine", d->cosine, "percentiles", match->percentile[0], match->percentile[1], match->percentile[2]);
    if (out && (put(out, "first", place_of(match, &d->first)) < 0 || put(out, "worst", place_of(match, &d->worst)) < 0 ||
                put(out, "bits", match->bits[0][0] ? Py_BuildValue("(ss)", match->bits[0], match->bits[1])
                                                   : Py_NewRef(Py_None)) < 0))
        Py_CLEAR(out);
    return out;
}

static PyObject *match_of(const tap_match *match)
{
    PyObject *out = PyDict_New();
    if (out && (put(out, "id", PyLong_FromLongLong(match->id)) < 0 ||
                put(out, "what", text(tap_match_class_name(match->what))) < 0 ||
                put(out, "evidence", text(tap_evidence_name(match->evidence))) < 0 ||
                put(out, "allowed", PyBool_FromLong(match->allowed)) < 0 ||
                put(out, "recomputed", PyBool_FromLong(match->recomputed)) < 0 ||
                put(out, "rank", PyLong_FromLong(match->rank)) < 0 ||
                put(out, "call", PyLong_FromUnsignedLong(match->call)) < 0 ||
                put(out, "kind", text(tap_kind_name(match->kind))) < 0 ||
                put(out, "replay", PyLong_FromUnsignedLongLong(match->replay)) < 0 ||
                put(out, "path", text(match->path)) < 0 || put(out, "unit", PyFloat_FromDouble(match->unit)) < 0 ||
                put(out, "ratio", PyFloat_FromDouble(match->ratio)) < 0 || put(out, "reason", text(match->reason)) < 0 ||
                put(out, "a", side_of(&match->side[0])) < 0 || put(out, "b", side_of(&match->side[1])) < 0 ||
                put(out, "difference", difference_of(match)) < 0))
        Py_CLEAR(out);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------- matches */

static void matches_dealloc(PyObject *object)
{
    matches_object *self = (matches_object *)object;
    tap_match_cursor_close(self->cursor);
    Py_XDECREF(self->comparison);
    free_object(object);
}

static PyObject *matches_next(PyObject *object)
{
    matches_object *self = (matches_object *)object;
    tap_match match;
    tap_error err = {.status = TAP_OK};
    tap_match_init(&match);
    if (!usable(self->comparison))
        return NULL;
    tap_status status = tap_match_cursor_next(self->cursor, &match, &err);
    return status == TAP_OK ? match_of(&match) : status == TAP_END ? NULL : fail(&err, status);
}

static PyType_Slot matches_slots[] = {
    {Py_tp_dealloc, matches_dealloc}, {Py_tp_iter, PyObject_SelfIter}, {Py_tp_iternext, matches_next}, {0, NULL},
};
static PyType_Spec matches_spec = {"tensortap._core.Matches", sizeof(matches_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, matches_slots};

/* ------------------------------------------------------------------------------------------------------- comparison */

/* A tuple of str as texts that live as long as the tuple; the caller frees the array. */
static int texts_of(PyObject *tuple, const char ***out, size_t *count)
{
    Py_ssize_t len = PyTuple_Size(tuple);
    *out = NULL;
    if (len < 0 || !(*out = PyMem_Malloc((size_t)(len + 1) * sizeof **out)))
        return len < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < len; i++)
        if (!((*out)[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL)))
            return -1;
    *count = (size_t)len;
    return 0;
}

/* Ctrl-C is asked for now and then. */
static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    PyGILState_STATE state = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() < 0;
    PyGILState_Release(state);
    return !stop;
}

typedef struct wanted {
    tap_compare_options options;
    PyObject *a, *b, *output; /* paths as bytes */
    const char **rules, **noise;
} wanted;

static int wanted_parse(PyObject *args, PyObject *kwargs, wanted *w)
{
    static char *names[] = {"a", "b", "name", "steps", "ranks", "kind", "shift", "rules", "noise", "allow", "precision",
                            "factor", "exact", "threads", "output", NULL};
    tap_compare_options *o = &w->options;
    PyObject *rules, *noise;
    int exact;
    long long shift;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&zzziLO!O!zzdpiO", names, PyUnicode_FSConverter, &w->a,
                                     PyUnicode_FSConverter, &w->b, &o->name, &o->steps, &o->ranks, &o->kind, &shift,
                                     &PyTuple_Type, &rules, &PyTuple_Type, &noise, &o->allow, &o->precision, &o->factor,
                                     &exact, &o->threads, &w->output))
        return -1;
    if (w->output == Py_None)
        w->output = NULL;
    else if (!PyUnicode_FSConverter(w->output, &w->output))
        return w->output = NULL, -1;
    o->output = w->output ? PyBytes_AsString(w->output) : NULL;
    o->exact = exact;
    o->shift = shift;
    o->on_progress = on_progress;
    if (texts_of(rules, &w->rules, &o->rule_count) < 0 || texts_of(noise, &w->noise, &o->noise_count) < 0)
        return -1;
    o->rules = w->rules;
    o->noise = w->noise;
    return 0;
}

static void wanted_free(wanted *w)
{
    Py_XDECREF(w->a);
    Py_XDECREF(w->b);
    Py_XDECREF(w->output);
    PyMem_Free(w->rules);
    PyMem_Free(w->noise);
}

static PyObject *compare_runs(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    wanted w = {.a = NULL};
    tap_error err = {.status = TAP_OK};
    tap_compare_options_init(&w.options);
    comparison_object *self = NULL;
    if (wanted_parse(args, kwargs, &w) == 0 && (self = (comparison_object *)new_object(comparison_type))) {
        PyThreadState *state = PyEval_SaveThread();
        tap_status status = tap_compare_run(PyBytes_AsString(w.a), PyBytes_AsString(w.b), &w.options, &self->comparison,
                                            &err);
        PyEval_RestoreThread(state);
        if (status != TAP_OK) {
            Py_CLEAR(self);
            if (!PyErr_Occurred())
                fail(&err, status);
        }
    }
    wanted_free(&w);
    return (PyObject *)self;
}

static PyObject *compare_open(PyObject *module, PyObject *path)
{
    (void)module;
    PyObject *bytes;
    tap_error err = {.status = TAP_OK};
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    comparison_object *self = (comparison_object *)new_object(comparison_type);
    tap_status status = self ? tap_comparison_open(PyBytes_AsString(bytes), &self->comparison, &err) : TAP_OK;
    Py_DECREF(bytes);
    if (status != TAP_OK) {
        Py_CLEAR(self);
        fail(&err, status);
    }
    return (PyObject *)self;
}

static void comparison_dealloc(PyObject *object)
{
    tap_comparison_close(((comparison_object *)object)->comparison);
    free_object(object);
}

static PyObject *comparison_summary(PyObject *self, PyObject *unused)
{
    (void)unused;
    static const char *const ORDERS[] = {"none", "forward", "exact"};
    tap_comparison *comparison = usable(self);
    tap_comparison_summary s;
    tap_error err = {.status = TAP_OK};
    tap_comparison_summary_init(&s);
    if (!comparison)
        return NULL;
    tap_status status = tap_comparison_summarise(comparison, &s, &err);
    if (status != TAP_OK)
        return fail(&err, status);
    PyObject *classes = PyDict_New();
    for (int what = 0; classes && what < TAP_MATCH_COUNT; what++)
        if (put(classes, tap_match_class_name((tap_match_class)what), PyLong_FromUnsignedLongLong(s.classes[what])) < 0)
            Py_CLEAR(classes);
    return Py_BuildValue("{s(NN)s(NN)sss(KK)sNsKsKsKsKsd}", "paths", text(s.path[0]), text(s.path[1]), "layouts",
                         text(s.layout[0]), text(s.layout[1]), "order", (size_t)s.order < 3 ? ORDERS[s.order] : "none",
                         "records", s.records[0], s.records[1], "classes", classes, "allowed", s.allowed, "by_stats",
                         s.by_stats, "unread", s.unread, "bytes", s.bytes, "factor", s.factor);
}

static PyObject *comparison_verdict(PyObject *self, PyObject *unused)
{
    (void)unused;
    static const char *const BLAMES[] = {"none", "unordered", "between", "operation", "input", "first"};
    tap_comparison *comparison = usable(self);
    tap_verdict v;
    tap_error err = {.status = TAP_OK};
    tap_verdict_init(&v);
    if (!comparison)
        return NULL;
    tap_status status = tap_comparison_verdict(comparison, &v, &err);
    if (status != TAP_OK)
        return fail(&err, status);
    return Py_BuildValue("{sNsssLsLs(II)s(II)sN}", "differs", PyBool_FromLong(v.differs), "blame",
                         (size_t)v.blame < 6 ? BLAMES[v.blame] : "none", "first", (long long)v.first, "before",
                         (long long)v.before, "inputs", v.inputs, v.inputs_agree, "weights", v.weights, v.weights_agree,
                         "text", text(v.text));
}

static PyObject *comparison_matches(PyObject *self, PyObject *args)
{
    tap_comparison *comparison = usable(self);
    tap_match_query query;
    tap_error err = {.status = TAP_OK};
    tap_match_query_init(&query);
    if (!comparison || !PyArg_ParseTuple(args, "Iz", &query.classes, &query.name))
        return NULL;
    matches_object *out = (matches_object *)new_object(matches_type);
    if (!out)
        return NULL;
    out->comparison = Py_NewRef(self);
    tap_status status = tap_comparison_query(comparison, &query, &out->cursor, &err);
    if (status != TAP_OK) {
        Py_CLEAR(out);
        fail(&err, status);
    }
    return (PyObject *)out;
}

static PyObject *comparison_match(PyObject *self, PyObject *id)
{
    tap_comparison *comparison = usable(self);
    long long row = PyLong_AsLongLong(id);
    tap_match match;
    tap_error err = {.status = TAP_OK};
    tap_match_init(&match);
    if (!comparison || (row == -1 && PyErr_Occurred()))
        return NULL;
    tap_status status = tap_comparison_match(comparison, row, &match, &err);
    return status == TAP_OK ? match_of(&match) : fail(&err, status);
}

static PyMethodDef comparison_methods[] = {
    {"summary", comparison_summary, METH_NOARGS, "summary() -> dict"},
    {"verdict", comparison_verdict, METH_NOARGS, "verdict() -> dict"},
    {"matches", comparison_matches, METH_VARARGS, "matches(classes, name) -> iterator of dicts"},
    {"match", comparison_match, METH_O, "match(id) -> dict"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot comparison_slots[] = {
    {Py_tp_dealloc, comparison_dealloc}, {Py_tp_methods, comparison_methods}, {0, NULL},
};
static PyType_Spec comparison_spec = {"tensortap._core.Comparison", sizeof(comparison_object), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, comparison_slots};

static PyMethodDef functions[] = {
    {"compare_runs", (PyCFunction)(void (*)(void))compare_runs, METH_VARARGS | METH_KEYWORDS,
     "compare_runs(a, b, ...) -> Comparison"},
    {"compare_open", compare_open, METH_O, "compare_open(path) -> Comparison"},
    {NULL, NULL, 0, NULL},
};

int compare_init(PyObject *module)
{
    comparison_type = PyType_FromSpec(&comparison_spec);
    matches_type = PyType_FromSpec(&matches_spec);
    if (!comparison_type || !matches_type || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Comparison", comparison_type);
}
