/* py_value.c - Python values as tap_value trees: numpy arrays through __array_struct__, torch tensors through DLPack's
 * exchange table, numbers, strings and containers directly. What is rarer (subclasses, other devices, odd dtypes) goes
 * through values.simplify in Python, which turns it into one of these. */
#include "py_bounds.h"

#include <string.h>

/* A container that holds itself ends somewhere, and so does one that holds another twice, and so on. */
enum { MAX_DEPTH = 64, MAX_ITEMS = 1 << 20 };

_Static_assert(sizeof(Py_intptr_t) == sizeof(int64_t), "shapes are used in place");

/* DLPack's ABI, the part a consumer of C exchange needs */
typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_exchange {
    uint32_t major, minor;
    struct dl_exchange *previous;
    void *allocate, *managed_from_object, *object_from_managed;
    int (*view_object)(void *object, dl_tensor *out); /* borrowed: valid while the object lives */
    void *current_stream;
} dl_exchange;
typedef struct dl_managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed;
enum { DL_CPU = 1 };

/* How values of one Python type are taken: values.classify gives the name. OTHER: simplify first; ARRAY: has
 * __array_struct__; TORCH, MINDSPORE: a plain tensor; SKIP: a place in a container that is left out. */
#define VALUE_KIND_MAP(X)                                                                                            \
    X(OTHER) X(NONE) X(BOOL) X(INT) X(FLOAT) X(COMPLEX) X(STR) X(BYTES) X(LIST) X(TUPLE) X(DICT) X(ARRAY) X(TORCH) X(SKIP) \
    X(MINDSPORE)
typedef enum value_kind {
#define X(name) KIND_##name,
    VALUE_KIND_MAP(X)
#undef X
} value_kind;

typedef struct type_info {
    PyObject *type; /* held */
    value_kind kind;
    const dl_exchange *exchange;
    PyObject *name; /* str: what is recorded as type_name; NULL when the kind says it */
} type_info;

static type_info types[64]; /* by address; a newcomer takes the place of an older one */
static PyObject *classify, *simplify, *reason_of;
PyObject *traced_type, *unreadable_type;
static PyObject *str_array_struct, *str_exchange, *str_is_neg, *str_is_conj, *str_requires_grad, *str_dlpack, *str_asnumpy,
    *str_nbytes;

typedef struct tree_block {
    struct tree_block *next;
    _Alignas(16) char bytes[];
} tree_block;

static void *tree_alloc(tap_tree *tree, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size <= TREE_INSIDE - tree->used) {
        void *at = tree->inside + tree->used;
        tree->used += size;
        return at;
    }
    tree_block *block = PyMem_Malloc(sizeof *block + size);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = tree->blocks;
    tree->blocks = block;
    return block->bytes;
}

/* Takes over the reference. */
static int tree_hold(tap_tree *tree, PyObject *owner)
{
    if (!tree->held_one) {
        tree->held_one = owner;
        return 0;
    }
    if (!tree->held && !(tree->held = PyList_New(0))) {
        Py_DECREF(owner);
        return -1;
    }
    int failed = PyList_Append(tree->held, owner);
    Py_DECREF(owner);
    return failed;
}

void tree_free(tap_tree *tree)
{
    while (tree->blocks) {
        tree_block *next = tree->blocks->next;
        PyMem_Free(tree->blocks);
        tree->blocks = next;
    }
    Py_CLEAR(tree->held_one);
    Py_CLEAR(tree->held);
    Py_CLEAR(tree->device);
    Py_CLEAR(tree->placements);
}

const char *text_of(PyObject *str, PyObject **owner)
{
    *owner = NULL;
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(str, &len);
    if (text && strlen(text) == (size_t)len)
        return text;
    if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear();
    PyObject *nul = PyUnicode_FromStringAndSize("\0", 1), *shown = PyUnicode_FromString("\\x00");
    PyObject *clean = nul && shown ? PyUnicode_Replace(str, nul, shown, -1) : NULL;
    Py_XDECREF(nul);
    Py_XDECREF(shown);
    if (clean)
        *owner = PyUnicode_AsEncodedString(clean, "utf-8", "backslashreplace");
    Py_XDECREF(clean);
    return *owner ? PyBytes_AsString(*owner) : NULL;
}

static const char *tree_text(tap_tree *tree, PyObject *str)
{
    PyObject *owner;
    const char *text = text_of(str, &owner);
    if (owner && tree_hold(tree, owner) < 0)
        return NULL;
    return text;
}

/* Fills entry->exchange from the type's capsule; without one a plain tensor is taken through __dlpack__. */
static void find_exchange(type_info *entry)
{
    PyObject *capsule = PyObject_GetAttr(entry->type, str_exchange);
    const dl_exchange *api = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    while (api && api->major != 1)
        api = api->previous;
    entry->exchange = api && api->view_object ? api : NULL;
    Py_XDECREF(capsule); /* the table is static in its library */
    PyErr_Clear();
}

static value_kind kind_find(const char *text)
{
    static const char *const NAMES[] = {
#define X(name) #name,
        VALUE_KIND_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(text, NAMES[i]) == 0)
            return (value_kind)i;
    return KIND_OTHER;
}

static const type_info *type_find(PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    type_info *entry = &types[((uintptr_t)type >> 5) % 64];
    if (entry->type == type)
        return entry;
    PyObject *result = PyObject_CallFunctionObjArgs(classify, type, NULL);
    const char *kind;
    PyObject *name;
    if (!result || !PyArg_ParseTuple(result, "sO", &kind, &name)) {
        Py_XDECREF(result);
        return NULL;
    }
    Py_XDECREF(entry->type);
    Py_XDECREF(entry->name);
    entry->type = Py_NewRef(type);
    entry->kind = kind_find(kind);
    entry->name = name == Py_None ? NULL : Py_NewRef(name);
    entry->exchange = NULL;
    Py_DECREF(result);
    if (entry->kind == KIND_TORCH)
        find_exchange(entry);
    return entry;
}

int tensor_view(PyObject *tensor, tap_tensor *out)
{
    const type_info *entry = type_find(tensor);
    dl_tensor dl;
    if (!entry)
        return -1;
    if (entry->kind != KIND_TORCH || !entry->exchange)
        return 0;
    if (entry->exchange->view_object(tensor, &dl) != 0) {
        PyErr_Clear(); /* a conjugate or negated view */
        return 0;
    }
    if (dl.ndim > TAP_MAX_NDIM)
        return 0;
    *out = (tap_tensor){.data = (char *)dl.data + dl.byte_offset, .ndim = dl.ndim, .shape = dl.shape,
                        .strides = dl.strides,
                        .dtype = tap_dtype_from_dlpack(dl.dtype.code, dl.dtype.bits, dl.dtype.lanes)};
    return out->dtype == TAP_DTYPE_NONE ? 0 : dl.device.type == DL_CPU ? 1 : 2;
}

static tap_dtype array_dtype(char kind, int size)
{
    switch (kind) {
    case 'f': return size == 4 ? TAP_F32 : size == 8 ? TAP_F64 : size == 2 ? TAP_F16 : TAP_DTYPE_NONE;
    case 'M':
    case 'm': return TAP_I64;
    case 'i': return size == 8 ? TAP_I64 : size == 4 ? TAP_I32 : size == 2 ? TAP_I16 : size == 1 ? TAP_I8 : TAP_DTYPE_NONE;
    case 'u': return size == 8 ? TAP_U64 : size == 4 ? TAP_U32 : size == 2 ? TAP_U16 : size == 1 ? TAP_U8 : TAP_DTYPE_NONE;
    case 'b': return TAP_BOOL;
    case 'c': return size == 8 ? TAP_C64 : size == 16 ? TAP_C128 : TAP_DTYPE_NONE;
    default: return TAP_DTYPE_NONE;
    }
}

/* 1: taken; 0: simplify it first; -1: exception. dtype overrides the array's own (types numpy has no letter for). */
static int take_array(tap_tree *tree, tap_value *out, PyObject *value, tap_dtype dtype)
{
    PyObject *capsule = PyObject_GetAttr(value, str_array_struct);
    const array_interface *array = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (!array) {
        Py_XDECREF(capsule);
        return -1;
    }
    if (tree_hold(tree, capsule) < 0 || array_check(value, array) < 0)
        return -1;
    if (dtype == TAP_DTYPE_NONE)
        dtype = array_dtype(array->typekind, array->itemsize);
    if (dtype == TAP_DTYPE_NONE || !(array->flags & ARRAY_ALIGNED) || !(array->flags & ARRAY_NOTSWAPPED) ||
        array->nd > TAP_MAX_NDIM)
        return 0;
    out->type = TAP_VALUE_TENSOR;
    out->tensor = (tap_tensor){.data = array->data, .dtype = dtype, .ndim = array->nd,
                               .shape = (const int64_t *)array->shape};
    if (!(array->flags & ARRAY_C_CONTIGUOUS)) {
        int64_t *strides = tree_alloc(tree, sizeof(int64_t) * (size_t)array->nd);
        if (!strides)
            return -1;
        for (int i = 0; i < array->nd; i++) {
            if (array->strides[i] % array->itemsize)
                return 0;
            strides[i] = array->strides[i] / array->itemsize;
        }
        out->tensor.strides = strides;
    }
    return 1;
}

static int dl_view(tap_value *out, const dl_tensor *dl)
{
    tap_dtype dtype = tap_dtype_from_dlpack(dl->dtype.code, dl->dtype.bits, dl->dtype.lanes);
    if (dl->device.type != DL_CPU || dtype == TAP_DTYPE_NONE || dl->ndim > TAP_MAX_NDIM)
        return 0;
    bool empty = false;
    for (int i = 0; i < dl->ndim; i++)
        empty |= dl->shape[i] == 0;
    if (!dl->data && !empty) /* a wrapper such as those of torch.func */
        return 0;
    out->type = TAP_VALUE_TENSOR;
    out->tensor = (tap_tensor){.data = (char *)dl->data + dl->byte_offset, .dtype = dtype, .ndim = dl->ndim,
                               .shape = dl->shape, .strides = dl->strides};
    return 1;
}

/* Does value.name() say true? -1 with an exception. */
static int ask(PyObject *value, PyObject *name)
{
    PyObject *answer = PyObject_CallMethodObjArgs(value, name, NULL);
    if (!answer)
        return -1;
    int yes = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return yes;
}

static int dl_managed_view(tap_tree *tree, tap_value *out, PyObject *value);

/* As take_array. A tensor whose bits are to be read negated or conjugated is resolved by simplify. */
static int take_torch(tap_tree *tree, tap_value *out, PyObject *value, const dl_exchange *exchange)
{
    dl_tensor dl;
    int taken = 0;
    if (exchange) {
        if (exchange->view_object(value, &dl) == 0)
            taken = dl_view(out, &dl);
        else
            PyErr_Clear();
    } else {
        taken = dl_managed_view(tree, out, value);
    }
    if (taken != 1)
        return taken;
    int64_t bytes, offset;
    if (torch_storage(value, &bytes, &offset) < 0)
        return -1;
    if (!storage_holds(&out->tensor, bytes, offset)) {
        PyErr_Format(unreadable_type, "its storage has %lld bytes, fewer than it needs; was it resized or freed?",
                     (long long)bytes);
        return -1;
    }
    int odd = ask(value, str_is_neg);
    if (!odd && (out->tensor.dtype == TAP_C32 || out->tensor.dtype == TAP_C64 || out->tensor.dtype == TAP_C128))
        odd = ask(value, str_is_conj);
    if (odd)
        return odd < 0 ? -1 : 0;
    PyObject *grad = PyObject_GetAttr(value, str_requires_grad);
    if (!grad)
        return -1;
    out->requires_grad = grad == Py_True;
    Py_DECREF(grad);
    return 1;
}

static int dl_managed_view(tap_tree *tree, tap_value *out, PyObject *value)
{
    PyObject *detach = PyObject_CallMethod(value, "detach", NULL);
    PyObject *capsule = detach ? PyObject_CallMethodObjArgs(detach, str_dlpack, NULL) : NULL;
    Py_XDECREF(detach);
    /* an unversioned capsule begins with the tensor itself */
    const dl_tensor *dl = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dltensor"))
        dl = PyCapsule_GetPointer(capsule, "dltensor");
    else if (capsule && PyCapsule_IsValid(capsule, "dltensor_versioned"))
        dl = &((const dl_managed *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->tensor;
    if (!dl) {
        Py_XDECREF(capsule);
        PyErr_Clear();
        return 0;
    }
    /* not renamed, so the capsule's own destructor gives the tensor back */
    return tree_hold(tree, capsule) < 0 ? -1 : dl_view(out, dl);
}

static PyObject *mindspore_view; /* of _mindspore.py: a large tensor's numbers as an array, where they lie, or None */

void value_on_mindspore(PyObject *view)
{
    Py_XDECREF(mindspore_view);
    mindspore_view = Py_NewRef(view);
}

static bool is_large(PyObject *value)
{
    PyObject *bytes = PyObject_GetAttr(value, str_nbytes);
    long long count = bytes ? PyLong_AsLongLong(bytes) : 0;
    Py_XDECREF(bytes);
    PyErr_Clear();
    return count >= 1 << 20;
}

/* As take_array; waits until the value is there. asnumpy copies what MindSpore has computed, which for 64 MiB takes twice
 * as long as saving it. */
static int take_mindspore(tap_tree *tree, tap_value *out, PyObject *value)
{
    PyObject *array = NULL;
    if (mindspore_view && is_large(value)) {
        array = PyObject_CallFunctionObjArgs(mindspore_view, value, NULL);
        if (!array)
            return -1;
        if (array == Py_None)
            Py_CLEAR(array);
    }
    if (!array)
        array = PyObject_CallMethodObjArgs(value, str_asnumpy, NULL);
    if (!array || tree_hold(tree, array) < 0)
        return -1;
    return take_array(tree, out, array, TAP_DTYPE_NONE);
}

static int build(tap_tree *tree, tap_value *out, PyObject *value, int depth);

/* The whole value is lost, not only a leaf of it. */
static int give_up(tap_tree *tree, const char *why)
{
    tree->given_up = true;
    PyErr_SetString(unreadable_type, why);
    return -1;
}

static int count_items(tap_tree *tree, size_t more)
{
    tree->items += more;
    return tree->items <= MAX_ITEMS ? 0 : give_up(tree, "it has more than 1048576 leaves; make it an array");
}

static int take_int(tap_tree *tree, tap_value *out, PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (!overflow) {
        out->type = TAP_VALUE_INT;
        out->i = number;
        return 0;
    }
    /* larger than 64 bits: its digits */
    PyObject *text = PyObject_Str(value);
    if (!text || tree_hold(tree, text) < 0 || !(out->bytes = tree_text(tree, text)))
        return -1;
    out->type = TAP_VALUE_STR;
    out->len = strlen(out->bytes);
    out->type_name = "int";
    return 0;
}

static int take_str(tap_tree *tree, tap_value *out, PyObject *value)
{
    Py_ssize_t len;
    out->type = TAP_VALUE_STR;
    out->bytes = PyUnicode_AsUTF8AndSize(value, &len);
    if (!out->bytes) { /* lone surrogates */
        PyErr_Clear();
        if (!(out->bytes = tree_text(tree, value)))
            return -1;
        len = (Py_ssize_t)strlen(out->bytes);
    }
    out->len = (size_t)len;
    return 0;
}

/* A snapshot first: converting an item may run Python code that changes the container. */
static int take_sequence(tap_tree *tree, tap_value *out, PyObject *value, tap_value_type type, int depth)
{
    PyObject *items = PySequence_Tuple(value);
    if (!items || tree_hold(tree, items) < 0)
        return -1;
    Py_ssize_t count = PyTuple_Size(items);
    if (count_items(tree, (size_t)count) < 0)
        return -1;
    tap_value *values = count ? tree_alloc(tree, sizeof(tap_value) * (size_t)count) : NULL;
    if (count && !values)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (build(tree, &values[i], PyTuple_GetItem(items, i), depth + 1) < 0)
            return -1;
    out->type = type;
    out->items = values;
    out->len = (size_t)count;
    return 0;
}

/* The keys that are texts, as a set. */
static PyObject *text_keys(PyObject *items)
{
    PyObject *taken = PySet_New(NULL);
    for (Py_ssize_t i = 0; taken && i < PyList_Size(items); i++) {
        PyObject *key = PyTuple_GetItem(PyList_GetItem(items, i), 0);
        if (PyUnicode_Check(key) && PySet_Add(taken, key) < 0)
            Py_CLEAR(taken);
    }
    return taken;
}

/* A key that is no text, as one. Where another reads the same, as 1 does beside "1", it is numbered: "1~1". */
static PyObject *key_text(tap_tree *tree, PyObject *items, PyObject **taken, PyObject *key)
{
    if (!*taken && (!(*taken = text_keys(items)) || tree_hold(tree, *taken) < 0))
        return NULL;
    PyObject *text = PyObject_Str(key);
    for (unsigned number = 1; text; number++) {
        int has = PySet_Contains(*taken, text);
        PyObject *next = has > 0 ? PyUnicode_FromFormat("%S~%u", key, number) : NULL;
        if (has == 0 && PySet_Add(*taken, text) == 0)
            break;
        Py_DECREF(text);
        text = next;
    }
    return text && tree_hold(tree, text) == 0 ? text : NULL;
}

static int take_dict(tap_tree *tree, tap_value *out, PyObject *value, int depth)
{
    PyObject *items = PyDict_Items(value), *taken = NULL;
    if (!items || tree_hold(tree, items) < 0)
        return -1;
    size_t count = (size_t)PyList_Size(items);
    if (count_items(tree, count) < 0)
        return -1;
    tap_value *values = count ? tree_alloc(tree, sizeof(tap_value) * count) : NULL;
    const char **keys = count ? tree_alloc(tree, sizeof(char *) * count) : NULL;
    if (count && (!values || !keys))
        return -1;
    for (size_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(items, (Py_ssize_t)i), *key = PyTuple_GetItem(pair, 0);
        if (!PyUnicode_Check(key) && !(key = key_text(tree, items, &taken, key)))
            return -1;
        if (!(keys[i] = tree_text(tree, key)) || build(tree, &values[i], PyTuple_GetItem(pair, 1), depth + 1) < 0)
            return -1;
    }
    out->type = TAP_VALUE_DICT;
    out->items = values;
    out->keys = keys;
    out->len = count;
    return 0;
}

/* A tensor without data: its shape and dtype. */
static int take_meta(tap_tree *tree, tap_value *out, PyObject *shape, const char *dtype)
{
    Py_ssize_t ndim = PyTuple_Size(shape);
    int64_t *sizes = tree_alloc(tree, sizeof(int64_t) * (size_t)(ndim > 0 ? ndim : 1));
    if (!sizes || ndim < 0)
        return -1;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (sizes[i] == -1 && PyErr_Occurred())
            return -1;
    }
    out->type = TAP_VALUE_META;
    out->tensor = (tap_tensor){.dtype = tap_dtype_find(dtype), .ndim = (int32_t)ndim, .shape = sizes};
    return 0;
}

/* What simplify made of a value is taken as it is: once more through simplify would be for ever. */
static int take_simple(tap_tree *tree, tap_value *out, PyObject *simple, const char *dtype, int depth)
{
    const type_info *info = type_find(simple);
    if (!info)
        return -1;
    int taken;
    if (dtype)
        taken = take_array(tree, out, simple, tap_dtype_find(dtype));
    else if (info->kind == KIND_TORCH)
        taken = take_torch(tree, out, simple, info->exchange);
    else
        return build(tree, out, simple, depth + 1);
    if (taken == 0)
        PyErr_SetString(unreadable_type, "no way is known to read its bytes");
    return taken == 1 ? 0 : -1;
}

/* simplify gives (value, dtype or None, type name or None, requires_grad, device or None, placements or None); a value
 * that is a tuple together with a dtype is the shape of a tensor without data. */
static int take_other(tap_tree *tree, tap_value *out, PyObject *value, int depth)
{
    PyObject *result = PyObject_CallFunctionObjArgs(simplify, value, depth ? Py_True : Py_False, NULL);
    if (!result || tree_hold(tree, result) < 0)
        return -1;
    PyObject *simple, *device, *placements;
    const char *dtype, *type_name;
    int grad;
    if (!PyArg_ParseTuple(result, "OzzpOO", &simple, &dtype, &type_name, &grad, &device, &placements))
        return -1;
    int failed;
    if (dtype && PyTuple_Check(simple))
        failed = take_meta(tree, out, simple, dtype);
    else
        failed = take_simple(tree, out, simple, dtype, depth);
    if (failed)
        return -1;
    if (type_name)
        out->type_name = type_name;
    out->requires_grad = grad;
    if (device != Py_None && !tree->device)
        tree->device = Py_NewRef(device);
    if (placements != Py_None && !tree->placements)
        tree->placements = Py_NewRef(placements);
    return 0;
}

static int take_complex(tap_value *out, PyObject *value)
{
    out->type = TAP_VALUE_COMPLEX;
    out->f = PyComplex_RealAsDouble(value);
    out->imag = PyComplex_ImagAsDouble(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int build_kind(tap_tree *tree, tap_value *out, PyObject *value, const type_info *info, int depth)
{
    int taken = 0;
    char *bytes;
    Py_ssize_t len;
    switch (info->kind) {
    case KIND_NONE: out->type = TAP_VALUE_NONE; return 0;
    case KIND_BOOL: out->type = TAP_VALUE_BOOL; out->i = value == Py_True; return 0;
    case KIND_INT: return take_int(tree, out, value);
    case KIND_FLOAT: out->type = TAP_VALUE_FLOAT; out->f = PyFloat_AsDouble(value); return 0;
    case KIND_COMPLEX: return take_complex(out, value);
    case KIND_STR: return take_str(tree, out, value);
    case KIND_BYTES:
        if (PyBytes_AsStringAndSize(value, &bytes, &len) < 0)
            return -1;
        out->type = TAP_VALUE_BYTES;
        out->bytes = bytes;
        out->len = (size_t)len;
        return 0;
    case KIND_LIST: return take_sequence(tree, out, value, TAP_VALUE_LIST, depth);
    case KIND_TUPLE: return take_sequence(tree, out, value, TAP_VALUE_TUPLE, depth);
    case KIND_DICT: return take_dict(tree, out, value, depth);
    case KIND_ARRAY: taken = take_array(tree, out, value, TAP_DTYPE_NONE); break;
    case KIND_TORCH: taken = take_torch(tree, out, value, info->exchange); break;
    case KIND_MINDSPORE: taken = take_mindspore(tree, out, value); break;
    case KIND_SKIP: out->type = TAP_VALUE_SKIP; return 0;
    case KIND_OTHER: break;
    }
    if (taken < 0)
        return -1;
    if (taken == 0)
        return take_other(tree, out, value, depth);
    return 0;
}

/* The exception that a leaf raised becomes the reason why it is lost: recording never ends a training. -1: a graph is being
 * traced, somebody wants the program to end, or a container above this leaf is lost as a whole. */
static int lose_leaf(tap_tree *tree, tap_value *out)
{
    if (tree->given_up || PyErr_ExceptionMatches(traced_type) || !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *reason = PyObject_CallFunctionObjArgs(reason_of, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    memset(out, 0, sizeof *out);
    out->type = TAP_VALUE_LOST;
    out->bytes = reason && tree_hold(tree, Py_NewRef(reason)) == 0 ? tree_text(tree, reason) : NULL;
    Py_XDECREF(reason);
    PyErr_Clear();
    if (!out->bytes)
        out->bytes = "it could not be read, and not be asked why";
    return 0;
}

static int build(tap_tree *tree, tap_value *out, PyObject *value, int depth)
{
    if (depth > MAX_DEPTH)
        return give_up(tree, "nested deeper than 64 levels; does a container hold itself?");
    memset(out, 0, sizeof *out);
    const type_info *info = type_find(value);
    PyObject *name = info ? info->name : NULL; /* the entry may be replaced while items are converted */
    if (!info || (name && tree_hold(tree, Py_NewRef(name)) < 0) || build_kind(tree, out, value, info, depth) < 0)
        return lose_leaf(tree, out);
    int64_t size = out->type == TAP_VALUE_TENSOR ? tap_tensor_bytes(&out->tensor) : 0;
    tree->tensor_bytes += size > 0 ? (size_t)size : 0;
    if (name && !out->type_name)
        out->type_name = PyUnicode_AsUTF8AndSize(name, NULL);
    return 0;
}

int tree_build(tap_tree *tree, PyObject *value)
{
    memset(tree, 0, offsetof(tap_tree, inside));
    if (build(tree, &tree->value, value, 0) == 0)
        return 0;
    tree->given_up = false;
    return lose_leaf(tree, &tree->value);
}

int value_init(void)
{
    struct {
        PyObject **at;
        const char *text;
    } names[] = {{&str_array_struct, "__array_struct__"}, {&str_exchange, "__dlpack_c_exchange_api__"},
                 {&str_is_neg, "is_neg"}, {&str_is_conj, "is_conj"}, {&str_requires_grad, "requires_grad"},
                 {&str_dlpack, "__dlpack__"}, {&str_asnumpy, "asnumpy"}, {&str_nbytes, "nbytes"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!(*names[i].at = PyUnicode_InternFromString(names[i].text)))
            return -1;
    PyObject *module = PyImport_ImportModule("tensortap._record.values");
    if (!module)
        return -1;
    classify = PyObject_GetAttrString(module, "classify");
    simplify = PyObject_GetAttrString(module, "simplify");
    traced_type = PyObject_GetAttrString(module, "Traced");
    unreadable_type = PyObject_GetAttrString(module, "Unreadable");
    reason_of = PyObject_GetAttrString(module, "reason_of");
    Py_DECREF(module);
    return classify && simplify && traced_type && unreadable_type && reason_of ? 0 : -1;
}
