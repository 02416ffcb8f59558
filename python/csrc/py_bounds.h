/* py_bounds.h - does a view lie inside the memory it shows? Tensors and arrays that outlive their memory are lost, not read. */
#ifndef TAP_PYTHON_BOUNDS_H
#define TAP_PYTHON_BOUNDS_H

#include "py_core.h"

/* numpy's array interface, version 2 of its C struct */
typedef struct array_interface {
    int two;
    int nd;
    char typekind;
    int itemsize;
    int flags;
    Py_intptr_t *shape, *strides; /* strides in bytes */
    void *data;
    PyObject *descr;
} array_interface;
enum { ARRAY_C_CONTIGUOUS = 0x1, ARRAY_ALIGNED = 0x100, ARRAY_NOTSWAPPED = 0x200 };

/* An array that does not own its memory must lie inside the one that does: as_strided makes others. Memory that is not
 * numpy's cannot be asked, and is trusted. 0, or -1 with unreadable_type. */
int array_check(PyObject *value, const array_interface *array);

/* Does a tensor that begins at `offset` (in elements) lie inside a storage of so many bytes? */
bool storage_holds(const tap_tensor *tensor, int64_t storage_bytes, int64_t offset);

int bounds_init(void);

#endif
