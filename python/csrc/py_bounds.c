/* py_bounds.c - where the bytes of a view lie, beside the memory they are to lie in: storages of torch that were resized or
 * freed, arrays that numpy's as_strided made. */
#include "py_bounds.h"

enum { MAX_BASES = 64 };

static PyObject *str_array_struct, *str_base;

/* A view whose strides count `unit` bytes; NULL: row-major. */
typedef struct view {
    int ndim;
    const Py_intptr_t *shape, *strides;
    int64_t unit, itemsize;
} view;

/* How many bytes below and above its first element a view reaches. False: more than can be counted. */
static bool view_reach(const view *self, int64_t *below, int64_t *above)
{
    int64_t row = self->itemsize, step, way;
    *below = 0;
    *above = self->itemsize;
    for (int i = self->ndim - 1; i >= 0; i--) {
        if (self->shape[i] == 0) {
            *below = *above = 0;
            return true;
        }
        step = row;
        if (self->strides && __builtin_mul_overflow(self->strides[i], self->unit, &step))
            return false;
        if (__builtin_mul_overflow(self->shape[i] - 1, step, &way))
            return false;
        int64_t *end = way < 0 ? below : above;
        if (__builtin_add_overflow(*end, way, end))
            return false;
        if (!self->strides && __builtin_mul_overflow(row, self->shape[i], &row))
            return false;
    }
    return true;
}

/* The struct of an object that is an array, or NULL; *capsule keeps it. Never leaves an exception. */
static const array_interface *array_of(PyObject *object, PyObject **capsule)
{
    Py_XDECREF(*capsule);
    *capsule = PyObject_GetAttr(object, str_array_struct);
    const array_interface *array = *capsule ? PyCapsule_GetPointer(*capsule, NULL) : NULL;
    PyErr_Clear();
    return array;
}

/* The array at the end of the chain of bases, or NULL where `value` owns its memory or nobody of numpy's does. */
static const array_interface *array_owner(PyObject *value, PyObject **capsule)
{
    PyObject *at = Py_NewRef(value), *base = NULL;
    int links = 0;
    while (links < MAX_BASES && (base = PyObject_GetAttr(at, str_base)) && base != Py_None) {
        Py_DECREF(at); /* as_strided puts an object between that is no array */
        at = base;
        links++;
    }
    const array_interface *found = links && base == Py_None ? array_of(at, capsule) : NULL;
    if (base == Py_None)
        Py_DECREF(base);
    Py_DECREF(at);
    PyErr_Clear();
    return found;
}

int array_check(PyObject *value, const array_interface *array)
{
    PyObject *capsule = NULL;
    const array_interface *owner = array_owner(value, &capsule);
    bool inside = true;
    int64_t below, above, none, size = 0;
    if (owner) {
        view shown = {array->nd, array->shape, array->strides, 1, array->itemsize};
        view whole = {owner->nd, owner->shape, NULL, 0, owner->itemsize};
        intptr_t start = (intptr_t)array->data - (intptr_t)owner->data;
        inside = view_reach(&shown, &below, &above) && view_reach(&whole, &none, &size) &&
                 (above == 0 || (start + below >= 0 && above <= size - start));
    }
    Py_XDECREF(capsule);
    if (!inside)
        PyErr_Format(unreadable_type, "it reaches outside the array whose memory it shows, which has %lld bytes",
                     (long long)size);
    return inside ? 0 : -1;
}

bool storage_holds(const tap_tensor *tensor, int64_t storage_bytes, int64_t offset)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    int64_t size = info ? info->bytes : 1, below, above, start;
    view shown = {tensor->ndim, (const Py_intptr_t *)tensor->shape, (const Py_intptr_t *)tensor->strides, size, size};
    if (!view_reach(&shown, &below, &above) || __builtin_mul_overflow(offset, size, &start))
        return false;
    return above == 0 || (above <= storage_bytes - start && start >= 0);
}

int bounds_init(void)
{
    str_array_struct = PyUnicode_InternFromString("__array_struct__");
    str_base = PyUnicode_InternFromString("base");
    return str_array_struct && str_base ? 0 : -1;
}
