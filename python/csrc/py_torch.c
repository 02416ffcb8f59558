/* py_torch.c - the operators of the namespace tensortap in torch: taps inside compiled and exported graphs. They are
 * registered through libtorch's C shim, found at run time, so this file needs no torch to build and one build serves
 * every torch from 2.10 on. Older ones reach the same code from Python through torch_op.
 *
 *     tap(Tensor x, str site, int flags) -> ()                saves one value
 *     tap_tree(Tensor[] xs, str site, int flags) -> ()        saves a nested value: site says where each tensor belongs
 *     tap_ticket(Tensor[] xs, str site, int flags) -> Tensor  as tap_tree, and says under which step and call
 *     tap_grad(Tensor g, Tensor ticket, str site) -> ()       saves a gradient under the step and call of a ticket
 *     tap_print(Tensor x, str name) -> ()                     shows a value
 *
 * The kernels run without the GIL, in any thread. */
#include "py_bounds.h"
#include "py_site.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;    /* of a tensor, a string, a list or a library */
typedef uint64_t slot;   /* an argument or result on the dispatcher's stack */
typedef int32_t failed;  /* what the shim's functions return */
typedef void (*kernel)(slot *stack, uint64_t inputs, uint64_t outputs);

enum { MAX_LEAVES = 4096, DEVICE_CPU = 0, DEVICE_CUDA = 1, TICKET_BUCKETS = 256, OWN_TICKET = TICKET + 1 };
enum { RELAXED = 2 }; /* the capture mode in which a thread may copy beside other threads' captures */

/* Everything taken from libtorch. X(result, name, parameters) */
#define SHIM(X)                                                                                                      \
    X(failed, aoti_torch_library_init_fragment, (const char *ns, const char *file, uint32_t line, handle *out))      \
    X(failed, aoti_torch_library_init_impl,                                                                          \
      (const char *ns, const char *key, const char *file, uint32_t line, handle *out))                               \
    X(failed, aoti_torch_library_def, (handle library, const char *schema))                                          \
    X(failed, aoti_torch_library_impl, (handle library, const char *name, kernel function))                          \
    X(failed, aoti_torch_get_data_ptr, (handle tensor, void **out))                                                  \
    X(failed, aoti_torch_get_dim, (handle tensor, int64_t *out))                                                     \
    X(failed, aoti_torch_get_sizes, (handle tensor, int64_t **out))                                                  \
    X(failed, aoti_torch_get_strides, (handle tensor, int64_t **out))                                                \
    X(failed, aoti_torch_get_storage_size, (handle tensor, int64_t *out))                                            \
    X(failed, aoti_torch_get_storage_offset, (handle tensor, int64_t *out))                                          \
    X(failed, aoti_torch_get_dtype, (handle tensor, int32_t *out))                                                   \
    X(failed, aoti_torch_get_layout, (handle tensor, int32_t *out))                                                  \
    X(failed, aoti_torch_get_device_type, (handle tensor, int32_t *out))                                             \
    X(failed, aoti_torch_get_device_index, (handle tensor, int32_t *out))                                            \
    X(failed, aoti_torch_delete_tensor_object, (handle tensor))                                                      \
    X(failed, aoti_torch_new_tensor_handle, (handle tensor, handle *out))                                            \
    X(failed, aoti_torch_empty_strided,                                                                              \
      (int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device, int32_t index,     \
       handle *out))                                                                                                 \
    X(failed, aoti_torch_copy_, (handle self, handle source, int32_t non_blocking))                                  \
    X(int32_t, aoti_torch_dtype_int64, (void))                                                                       \
    X(bool, aoti_torch_grad_mode_is_enabled, (void))                                                                 \
    X(failed, torch_list_size, (handle list, size_t *out))                                                           \
    X(failed, torch_list_get_item, (handle list, size_t index, slot *out))                                           \
    X(failed, torch_delete_list, (handle list))                                                                      \
    X(failed, torch_string_length, (handle string, size_t *out))                                                     \
    X(failed, torch_string_c_str, (handle string, const char **out))                                                 \
    X(failed, torch_delete_string, (handle string))

static struct {
#define X(result, name, parameters) result(*name) parameters;
    SHIM(X)
#undef X
    failed (*cuda_stream)(int32_t device, void **out); /* the current one; NULL: not a torch for CUDA */
    int (*graph_task)(void); /* number of the backward pass this thread works for, -1: none; may be NULL */
    bool (*grad_enabled)(void); /* may be NULL */
    /* a tensor over memory of ours, which tells when it goes; may be NULL */
    failed (*torch_from_blob)(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                              int32_t dtype, int32_t device, int32_t index, handle *out, int32_t layout,
                              const uint8_t *opaque, int64_t opaque_size, void (*deleter)(void *data, void *context),
                              void *context);
    bool ready;
} torch;

static tap_dtype dtypes[256]; /* by torch's number */
static PyObject *str_cdata;

/* ------------------------------------------------------------------------------------------------ where we are called */

bool torch_in_recompute(void)
{
    return torch.graph_task && torch.grad_enabled && torch.graph_task() >= 0 && torch.grad_enabled();
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

/* A tensor of the stack as a leaf; `copy` is one made on the CPU, to be deleted after use. */
typedef struct leaf {
    tap_value value;
    handle tensor, copy;
} leaf;

static const char *device_name(int32_t type, int32_t index, char *room, size_t size)
{
    static const char *const NAMES[] = {[1] = "cuda", [6] = "hip", [8] = "maia", [9] = "xla", [12] = "xpu",
                                        [13] = "mps", [14] = "meta", [15] = "hpu", [19] = "mtia",
                                        [20] = "privateuseone"};
    const char *name = type > 0 && type < (int32_t)(sizeof NAMES / sizeof NAMES[0]) ? NAMES[type] : NULL;
    snprintf(room, size, "%s:%d", name ? name : "device", (int)(index < 0 ? 0 : index));
    return room;
}

/* Does a CUDA graph capture what runs on a device's current stream? */
static bool is_capturing(int32_t device)
{
    void *stream = NULL;
    if (torch.cuda_stream && torch.cuda_stream(device, &stream))
        return false;
    return tap_cuda_is_capturing(stream);
}

static const char CAPTURED[] = "it is part of a captured CUDA graph, whose replays are not recorded";

/* One of the values has no content yet and must not be touched. */
static bool any_captured(const handle *tensors, size_t count)
{
    int32_t type = DEVICE_CPU, device = 0;
    for (size_t i = 0; i < count; i++)
        if (!torch.aoti_torch_get_device_type(tensors[i], &type) && type == DEVICE_CUDA &&
            !torch.aoti_torch_get_device_index(tensors[i], &device) && is_capturing(device))
            return true;
    return false;
}

/* A value on another device, copied by torch itself. */
static handle copy_to_cpu(handle tensor, int64_t ndim, const int64_t *sizes, int32_t dtype)
{
    int64_t strides[TAP_MAX_NDIM], size = 1;
    for (int64_t i = ndim - 1; i >= 0; i--) {
        strides[i] = size;
        size *= sizes[i] > 0 ? sizes[i] : 1;
    }
    handle copy = NULL;
    if (torch.aoti_torch_empty_strided(ndim, sizes, strides, dtype, DEVICE_CPU, 0, &copy))
        return NULL;
    int mode = tap_cuda_capture_mode(RELAXED);
    failed refused = torch.aoti_torch_copy_(copy, tensor, 0);
    tap_cuda_capture_mode(mode);
    if (refused) {
        torch.aoti_torch_delete_tensor_object(copy);
        return NULL;
    }
    return copy;
}

/* A number that a tensor of Python tells: one of its methods, or of what `through` gives. */
static int ask_number(PyObject *tensor, const char *through, const char *method, int64_t *out)
{
    PyObject *from = through ? PyObject_CallMethod(tensor, through, NULL) : Py_NewRef(tensor);
    PyObject *number = from ? PyObject_CallMethod(from, method, NULL) : NULL;
    int failure = number ? int_of(number, out) : -1;
    Py_XDECREF(number);
    Py_XDECREF(from);
    return failure;
}

/* A tensor of the shim is a C++ one, which is one pointer; Python tells that pointer. Twenty times as fast as asking the
 * storage itself. */
int torch_storage(PyObject *tensor, int64_t *bytes, int64_t *offset)
{
    PyObject *number = torch.ready ? PyObject_GetAttr(tensor, str_cdata) : NULL;
    void *pointer = number ? PyLong_AsVoidPtr(number) : NULL;
    Py_XDECREF(number);
    if (pointer && !torch.aoti_torch_get_storage_size(&pointer, bytes) &&
        !torch.aoti_torch_get_storage_offset(&pointer, offset))
        return 0;
    PyErr_Clear();
    if (ask_number(tensor, "untyped_storage", "nbytes", bytes) < 0)
        return -1;
    return ask_number(tensor, NULL, "storage_offset", offset);
}

/* A storage that was resized below its tensor is not to be read. */
static bool is_whole(handle tensor, tap_dtype dtype, int64_t ndim, const int64_t *sizes)
{
    int64_t bytes, offset, *strides;
    tap_tensor view = {.dtype = dtype, .ndim = (int32_t)ndim, .shape = sizes};
    if (torch.aoti_torch_get_storage_size(tensor, &bytes) || torch.aoti_torch_get_storage_offset(tensor, &offset) ||
        torch.aoti_torch_get_strides(tensor, &strides))
        return false;
    view.strides = strides;
    return storage_holds(&view, bytes, offset);
}

static bool view_tensor(leaf *out, char *device, size_t device_size)
{
    int64_t ndim, *sizes, *strides;
    int32_t dtype, layout, type, index;
    handle from = out->tensor;
    memset(&out->value, 0, sizeof out->value);
    out->copy = NULL;
    if (torch.aoti_torch_get_layout(from, &layout) || layout != 0 || torch.aoti_torch_get_dim(from, &ndim) ||
        ndim > TAP_MAX_NDIM || torch.aoti_torch_get_sizes(from, &sizes) || torch.aoti_torch_get_dtype(from, &dtype) ||
        dtype < 0 || dtype > 255 || dtypes[dtype] == TAP_DTYPE_NONE || torch.aoti_torch_get_device_type(from, &type) ||
        !is_whole(from, dtypes[dtype], ndim, sizes))
        return false;
    if (type != DEVICE_CPU) {
        torch.aoti_torch_get_device_index(from, &index);
        device_name(type, index, device, device_size);
        if (!(from = out->copy = copy_to_cpu(from, ndim, sizes, dtype)))
            return false;
    }
    void *data;
    if (torch.aoti_torch_get_data_ptr(from, &data) || torch.aoti_torch_get_strides(from, &strides) ||
        torch.aoti_torch_get_sizes(from, &sizes))
        return false;
    out->value.type = TAP_VALUE_TENSOR;
    out->value.tensor = (tap_tensor){.data = data, .dtype = dtypes[dtype], .ndim = (int32_t)ndim, .shape = sizes,
                                     .strides = strides};
    return true;
}

static void leaf_free(leaf *self)
{
    if (self->copy)
        torch.aoti_torch_delete_tensor_object(self->copy);
    torch.aoti_torch_delete_tensor_object(self->tensor);
}

/* ----------------------------------------------------------------------------------------------------------- saving */

static const tap_graph_site *read_site(handle string)
{
    const char *text;
    size_t len;
    const tap_graph_site *site = NULL;
    if (!torch.torch_string_length(string, &len) && !torch.torch_string_c_str(string, &text))
        site = graph_site(text, len);
    torch.torch_delete_string(string);
    return site;
}

/* Tickets whose gradients are awaited: when one goes before they came, they are given up, so that nobody waits on. The
 * numbers of a ticket are a magic one, the recorder's, the step, the call and its own. */
typedef struct ticket {
    struct ticket *next;
    int64_t id, serial, step;
    uint32_t call;
    size_t awaited; /* gradients that did not come yet */
    const tap_graph_site *site;
} ticket;

static ticket *tickets[TICKET_BUCKETS];
static int64_t last_ticket;
static pthread_mutex_t tickets_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t ticket_add(const tap_graph_site *site, const int64_t *numbers)
{
    ticket *self = calloc(1, sizeof *self);
    if (!self)
        return 0;
    *self = (ticket){.serial = numbers[1], .step = numbers[2], .call = (uint32_t)numbers[3], .site = site,
                     .awaited = graph_site_gradients(site)};
    pthread_mutex_lock(&tickets_lock);
    self->id = ++last_ticket;
    ticket **bucket = &tickets[self->id % TICKET_BUCKETS];
    self->next = *bucket;
    *bucket = self;
    pthread_mutex_unlock(&tickets_lock);
    return self->id;
}

static ticket **ticket_find(int64_t id)
{
    ticket **at = &tickets[(uint64_t)id % TICKET_BUCKETS];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void ticket_came(int64_t id)
{
    pthread_mutex_lock(&tickets_lock);
    ticket *self = *ticket_find(id);
    if (self && self->awaited)
        self->awaited--;
    pthread_mutex_unlock(&tickets_lock);
}

/* The ticket's tensor is gone: no gradient can come any more. */
static void ticket_drop(int64_t id)
{
    pthread_mutex_lock(&tickets_lock);
    ticket **link = ticket_find(id), *self = *link;
    if (self)
        *link = self->next;
    pthread_mutex_unlock(&tickets_lock);
    if (!self)
        return;
    uint64_t serial;
    tap_recorder *rec = self->awaited ? sink_enter(NULL, &serial) : NULL;
    if (rec && self->serial == (int64_t)serial)
        graph_site_gone(rec, self->site, self->step, self->call);
    if (self->awaited)
        sink_leave(NULL);
    free(self);
}

/* Saves the values and, where a ticket is wanted, announces the gradients. numbers: OWN_TICKET of them, or NULL. */
static void save_leaves(const tap_graph_site *site, const tap_value *values, size_t count, int64_t flags,
                        const char *device, int64_t *numbers)
{
    graph_site_run(site, values, count, flags, device, numbers);
    if (site && numbers && numbers[1] && !torch_in_recompute())
        numbers[TICKET] = ticket_add(site, numbers);
}

/* numbers: of the ticket. One of a recorder that is closed by now saves nothing. */
static void save_gradient(const tap_graph_site *site, const tap_value *value, const int64_t *numbers, const char *device)
{
    graph_site_run_gradient(site, value, numbers, device);
    if (numbers[0] == TICKET_MAGIC)
        ticket_came(numbers[TICKET]);
}

/* ------------------------------------------------------------------------------------------------- through Python */

static PyObject *ask_python, *make_tensor; /* see torch_on_python */

void torch_on_python(PyObject *ask, PyObject *make)
{
    ask_python = Py_NewRef(ask);
    make_tensor = make == Py_None ? NULL : Py_NewRef(make);
}

/* Further references to tensors of the stack, as a list of Python's; NULL with an exception. Needs the GIL. */
static PyObject *list_tensors(const handle *tensors, size_t count)
{
    PyObject *list = make_tensor ? PyList_New(0) : NULL;
    if (!list)
        PyErr_SetString(PyExc_RuntimeError, "this torch cannot hand a tensor of a graph to Python");
    for (size_t i = 0; list && i < count; i++) {
        handle again = NULL;
        PyObject *capsule = torch.aoti_torch_new_tensor_handle(tensors[i], &again) ? NULL : PyCapsule_New(again, NULL, NULL);
        PyObject *tensor = capsule ? PyObject_CallFunctionObjArgs(make_tensor, capsule, NULL) : NULL;
        if (!tensor || PyList_Append(list, tensor) < 0)
            Py_CLEAR(list);
        Py_XDECREF(tensor);
        Py_XDECREF(capsule);
    }
    return list;
}

/* torch could not hand a value to Python: verify lists it. Needs the GIL; clears the exception. */
static void lose_value(const tap_graph_site *site)
{
    PyErr_Clear();
    graph_site_lose(site, "torch could not hand it over inside a graph");
}

/* What an operator does with tensors of Python. given: the numbers of a ticket whose gradient is in the list, or NULL.
 * numbers: OWN_TICKET of them, filled, or NULL. 0, or -1 with an exception. */
static int save_objects(PyObject *list, const tap_graph_site *site, int64_t flags, const int64_t *given, int64_t *numbers)
{
    size_t count = (size_t)PyList_Size(list), built = 0;
    tap_tree *trees = calloc(count + 1, sizeof *trees);
    tap_value *values = calloc(count + 1, sizeof *values);
    const char *device = NULL;
    int failure = !trees || !values;
    if (failure)
        PyErr_NoMemory();
    for (; !failure && built < count; built++) {
        failure = tree_build(&trees[built], PyList_GetItem(list, (Py_ssize_t)built)) < 0;
        values[built] = trees[built].value;
        if (trees[built].device)
            device = PyUnicode_AsUTF8AndSize(trees[built].device, NULL);
    }
    if (!failure) {
        PyThreadState *state = PyEval_SaveThread();
        if (given)
            save_gradient(site, values, given, device);
        else
            save_leaves(site, values, count, flags, device, numbers);
        PyEval_RestoreThread(state);
    }
    for (size_t i = 0; i < built; i++)
        tree_free(&trees[i]);
    free(trees);
    free(values);
    return failure ? -1 : 0;
}

/* Sparse and quantised tensors, and whatever else only torch itself can take apart. */
static void save_odd(const handle *tensors, size_t count, const tap_graph_site *site, int64_t flags,
                     const int64_t *given, int64_t *numbers)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *list = list_tensors(tensors, count);
    if (!list || save_objects(list, site, flags, given, numbers) < 0)
        lose_value(site);
    Py_XDECREF(list);
    PyGILState_Release(gil);
}

/* What the user's predicate says; yes where it cannot be asked. Needs the GIL. */
static bool ask_about(PyObject *list, const tap_graph_site *site)
{
    PyObject *answer = list && ask_python ? PyObject_CallFunction(ask_python, "sO", graph_site_text(site), list) : NULL;
    bool no = answer == Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return !no;
}

static bool is_wanted(const handle *tensors, size_t count, const tap_graph_site *site)
{
    if (!recorder_has_predicate() || !site)
        return true;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *list = list_tensors(tensors, count);
    bool wanted = ask_about(list, site);
    Py_XDECREF(list);
    PyGILState_Release(gil);
    return wanted;
}

/* --------------------------------------------------------------------------------------------------------- kernels */

static void kernel_tap(slot *stack, uint64_t inputs, uint64_t outputs)
{
    (void)inputs, (void)outputs;
    leaf x = {.tensor = (handle)stack[0]};
    const tap_graph_site *site = read_site((handle)stack[1]);
    char device[40] = "";
    if (sink_is_open(NULL) && any_captured(&x.tensor, 1)) {
        graph_site_lose(site, tap_text(CAPTURED));
    } else if (sink_is_open(NULL) && is_wanted(&x.tensor, 1, site)) {
        if (view_tensor(&x, device, sizeof device))
            save_leaves(site, &x.value, 1, (int64_t)stack[2], device[0] ? device : NULL, NULL);
        else
            save_odd(&x.tensor, 1, site, (int64_t)stack[2], NULL, NULL);
    }
    leaf_free(&x);
}

static void save_handles(const handle *tensors, size_t count, const tap_graph_site *site, int64_t flags,
                         int64_t *numbers)
{
    leaf *leaves = calloc(count + 1, sizeof *leaves);
    tap_value *values = calloc(count + 1, sizeof *values);
    char device[40] = "";
    size_t got = 0;
    for (; leaves && values && got < count; got++) {
        leaves[got].tensor = tensors[got];
        if (!view_tensor(&leaves[got], device, sizeof device))
            break;
        values[got] = leaves[got].value;
    }
    if (leaves && values && got == count)
        save_leaves(site, values, count, flags, device[0] ? device : NULL, numbers);
    else
        save_odd(tensors, count, site, flags, NULL, numbers);
    for (size_t i = 0; leaves && i < count; i++)
        if (leaves[i].copy)
            torch.aoti_torch_delete_tensor_object(leaves[i].copy);
    free(leaves);
    free(values);
}

static void save_list(handle list, const tap_graph_site *site, int64_t flags, int64_t *numbers)
{
    size_t count = 0, got = 0;
    handle *tensors = NULL;
    if (sink_is_open(NULL) && !torch.torch_list_size(list, &count) && count <= MAX_LEAVES)
        tensors = calloc(count + 1, sizeof *tensors);
    for (slot item; tensors && got < count && !torch.torch_list_get_item(list, got, &item); got++)
        tensors[got] = (handle)item;
    if (tensors && got == count && any_captured(tensors, count))
        graph_site_lose(site, tap_text(CAPTURED));
    else if (tensors && got == count && is_wanted(tensors, count, site))
        save_handles(tensors, count, site, flags, numbers);
    for (size_t i = 0; i < got; i++)
        torch.aoti_torch_delete_tensor_object(tensors[i]);
    free(tensors);
    torch.torch_delete_list(list);
}

static void kernel_tree(slot *stack, uint64_t inputs, uint64_t outputs)
{
    (void)inputs, (void)outputs;
    const tap_graph_site *site = read_site((handle)stack[1]);
    save_list((handle)stack[0], site, (int64_t)stack[2], NULL);
}

static void on_ticket_gone(void *data, void *context)
{
    (void)context;
    ticket_drop(((int64_t *)data)[4]);
    free(data);
}

static handle ticket_tensor(const int64_t *numbers)
{
    int64_t size = OWN_TICKET, stride = 1;
    int32_t dtype = torch.aoti_torch_dtype_int64();
    handle tensor = NULL;
    void *data = torch.torch_from_blob ? malloc(OWN_TICKET * sizeof *numbers) : NULL;
    if (data) {
        memcpy(data, numbers, OWN_TICKET * sizeof *numbers);
        if (!torch.torch_from_blob(data, 1, &size, &stride, 0, dtype, DEVICE_CPU, -1, &tensor, 0, NULL, 0,
                                   on_ticket_gone, data))
            return tensor;
        free(data);
    }
    if (torch.aoti_torch_empty_strided(1, &size, &stride, dtype, DEVICE_CPU, 0, &tensor) == 0 &&
        torch.aoti_torch_get_data_ptr(tensor, &data) == 0)
        memcpy(data, numbers, OWN_TICKET * sizeof *numbers);
    return tensor;
}

static void kernel_ticket(slot *stack, uint64_t inputs, uint64_t outputs)
{
    (void)inputs, (void)outputs;
    int64_t numbers[OWN_TICKET] = {TICKET_MAGIC};
    const tap_graph_site *site = read_site((handle)stack[1]);
    save_list((handle)stack[0], site, (int64_t)stack[2], numbers);
    stack[0] = (slot)ticket_tensor(numbers);
}

static void kernel_grad(slot *stack, uint64_t inputs, uint64_t outputs)
{
    (void)inputs, (void)outputs;
    leaf g = {.tensor = (handle)stack[0]}, numbers = {.tensor = (handle)stack[1]};
    const tap_graph_site *site = read_site((handle)stack[2]);
    char device[40] = "", unused[40];
    if (sink_is_open(NULL) && any_captured(&g.tensor, 1)) {
        graph_site_lose(site, tap_text(CAPTURED));
    } else if (sink_is_open(NULL) && view_tensor(&numbers, unused, sizeof unused) && numbers.value.tensor.ndim == 1 &&
        numbers.value.tensor.shape[0] == OWN_TICKET) {
        if (view_tensor(&g, device, sizeof device))
            save_gradient(site, &g.value, numbers.value.tensor.data, device[0] ? device : NULL);
        else
            save_odd(&g.tensor, 1, site, 0, numbers.value.tensor.data, NULL);
    }
    leaf_free(&g);
    leaf_free(&numbers);
}

/* --------------------------------------------------------------------------------------------------------- printing */

static void kernel_print(slot *stack, uint64_t inputs, uint64_t outputs)
{
    (void)inputs, (void)outputs;
    leaf x = {.tensor = (handle)stack[0]};
    const tap_graph_site *site = read_site((handle)stack[1]);
    char device[40];
    if (site && !any_captured(&x.tensor, 1) && view_tensor(&x, device, sizeof device))
        core_print_value(graph_site_name(site), &x.value, true);
    leaf_free(&x);
}

/* ------------------------------------------------------------------------------------------------------ registration */

static const struct {
    const char *schema, *name;
    kernel function;
} OPERATORS[] = {
    {"tap(Tensor x, str site, int flags) -> ()", "tap", kernel_tap},
    {"tap_tree(Tensor[] xs, str site, int flags) -> ()", "tap_tree", kernel_tree},
    {"tap_ticket(Tensor[] xs, str site, int flags) -> Tensor", "tap_ticket", kernel_ticket},
    {"tap_grad(Tensor g, Tensor ticket, str site) -> ()", "tap_grad", kernel_grad},
    {"tap_print(Tensor x, str site) -> ()", "tap_print", kernel_print},
};
enum { OPERATOR_COUNT = sizeof OPERATORS / sizeof OPERATORS[0] };

static void find_dtypes(void *library)
{
    char name[64];
    for (int dtype = 1; dtype < TAP_DTYPE_END; dtype++) {
        const tap_dtype_info *info = tap_dtype_describe((tap_dtype)dtype);
        if (!info || !info->torch)
            continue;
        snprintf(name, sizeof name, "aoti_torch_dtype_%s", info->torch);
        int32_t (*number)(void) = (int32_t(*)(void))dlsym(library, name);
        if (!number) {
            snprintf(name, sizeof name, "torch_dtype_%s", info->torch);
            number = (int32_t(*)(void))dlsym(library, name);
        }
        int32_t at = number ? number() : -1;
        if (at >= 0 && at < 256)
            dtypes[at] = (tap_dtype)dtype;
    }
}

/* Text for what is missing, or NULL. */
static const char *find_symbols(void *library)
{
    /* C++, so it may be gone one day: recomputation is not marked then */
    torch.graph_task = (int (*)(void))dlsym(library, "_ZN5torch8autograd25get_current_graph_task_idEv");
    torch.grad_enabled = (bool (*)(void))dlsym(library, "aoti_torch_grad_mode_is_enabled");
    void *cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (cuda)
        memcpy(&torch.cuda_stream, &(void *){dlsym(cuda, "aoti_torch_get_current_cuda_stream")}, sizeof torch.cuda_stream);
    memcpy(&torch.torch_from_blob, &(void *){dlsym(library, "torch_from_blob")}, sizeof torch.torch_from_blob);
#define X(result, name, parameters)                                                                                  \
    torch.name = (result(*) parameters)dlsym(library, #name);                                                        \
    if (!torch.name)                                                                                                 \
        return #name;
    SHIM(X)
#undef X
    return NULL;
}

/* torch_register(path of libtorch_cpu.so) -> None, or a str that says why not. Once a process. */
static PyObject *torch_register(PyObject *module, PyObject *path)
{
    (void)module;
    PyObject *owner;
    const char *text = PyUnicode_Check(path) ? text_of(path, &owner) : NULL;
    if (!text)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "torch_register takes a path");
    void *library = dlopen(text, RTLD_LAZY | RTLD_NOLOAD);
    Py_XDECREF(owner);
    if (!library)
        return PyUnicode_FromString("libtorch_cpu.so is not loaded");
    if (torch.ready)
        Py_RETURN_NONE;
    const char *missing = find_symbols(library);
    if (missing)
        return PyUnicode_FromFormat("this torch lacks %s", missing);
    find_dtypes(library);
    handle fragment, kernels;
    int bad = torch.aoti_torch_library_init_fragment("tensortap", __FILE__, __LINE__, &fragment);
    for (int i = 0; !bad && i < OPERATOR_COUNT; i++)
        bad = torch.aoti_torch_library_def(fragment, OPERATORS[i].schema);
    if (!bad)
        bad = torch.aoti_torch_library_init_impl("tensortap", "CompositeExplicitAutograd", __FILE__, __LINE__, &kernels);
    for (int i = 0; !bad && i < OPERATOR_COUNT; i++)
        bad = torch.aoti_torch_library_impl(kernels, OPERATORS[i].name, OPERATORS[i].function);
    if (bad)
        return PyUnicode_FromString("torch refused the registration");
    torch.ready = true;
    Py_RETURN_NONE;
}

/* torch_schemas() -> list[str]: for registration through torch.library */
static PyObject *torch_schemas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < OPERATOR_COUNT; i++) {
        PyObject *schema = PyUnicode_FromString(OPERATORS[i].schema);
        if (!schema || PyList_Append(list, schema) < 0)
            Py_CLEAR(list);
        Py_XDECREF(schema);
    }
    return list;
}

/* torch_op(tensors, site, flags, ticket) -> tuple: what the kernels do, for torches without the shim. ticket: None; a
 * tuple: the gradient of it is in tensors. Returns the numbers of a ticket. */
static PyObject *torch_op(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *list, *text, *given, *owner;
    long long flags, numbers[OWN_TICKET] = {TICKET_MAGIC, 0, 0, 0, 0};
    if (!PyArg_ParseTuple(args, "O!ULO", &PyList_Type, &list, &text, &flags, &given))
        return NULL;
    if (given != Py_None && !PyArg_ParseTuple(given, "LLLLL", &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4]))
        return NULL;
    const char *utf8 = text_of(text, &owner);
    const tap_graph_site *site = utf8 ? graph_site(utf8, strlen(utf8)) : NULL;
    Py_XDECREF(owner);
    if (!site)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    int64_t own[OWN_TICKET] = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    bool gradient = given != Py_None, wants = flags & WANTS_TICKET;
    if (sink_is_open(NULL) && (gradient || !recorder_has_predicate() || ask_about(list, site)) &&
        save_objects(list, site, flags & ~WANTS_TICKET, gradient ? own : NULL, wants ? own : NULL) < 0)
        lose_value(site);
    return Py_BuildValue("(LLLLL)", (long long)own[0], (long long)own[1], (long long)own[2], (long long)own[3],
                         (long long)own[4]);
}

/* torch_drop(number of a ticket) -> None: its tensor is gone */
static PyObject *torch_drop(PyObject *module, PyObject *number)
{
    (void)module;
    long long id = PyLong_AsLongLong(number);
    if (id == -1 && PyErr_Occurred())
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    ticket_drop(id);
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

/* show(value, name) -> None: prints a tensor or array as tap_print does */
static PyObject *show(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *value, *name, *owner;
    if (!PyArg_ParseTuple(args, "OU", &value, &name))
        return NULL;
    const char *text = text_of(name, &owner);
    tap_tree tree;
    int failure = !text || tree_build(&tree, value) < 0;
    if (!failure && (tree.value.type == TAP_VALUE_TENSOR || tree.value.type == TAP_VALUE_META)) {
        PyThreadState *state = PyEval_SaveThread();
        core_print_value(text, &tree.value, true);
        PyEval_RestoreThread(state);
    } else if (!failure && tree.value.type == TAP_VALUE_LOST) {
        core_print(text, strlen(text));
        core_print(" = ", 3);
        core_print(tree.value.bytes, strlen(tree.value.bytes));
        core_print("\n", 1);
    }
    if (text)
        tree_free(&tree);
    Py_XDECREF(owner);
    if (failure)
        return NULL;
    Py_RETURN_NONE;
}

/* torch_capturing(device) -> str | None: why a value of the device cannot be read: a CUDA graph captures what runs there */
static PyObject *torch_capturing(PyObject *module, PyObject *device)
{
    (void)module;
    long index = PyLong_AsLong(device);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (is_capturing((int32_t)index))
        return PyUnicode_FromString(tap_text(CAPTURED));
    Py_RETURN_NONE;
}

/* capture_mode(mode) -> int: see tap_cuda_capture_mode */
static PyObject *capture_mode(PyObject *module, PyObject *mode)
{
    (void)module;
    long number = PyLong_AsLong(mode);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(tap_cuda_capture_mode((int)number));
}

static PyMethodDef module_methods[] = {
    {"torch_register", torch_register, METH_O, "torch_register(path) -> str | None: why the operators are not there."},
    {"torch_schemas", torch_schemas, METH_NOARGS, "torch_schemas() -> list[str]"},
    {"torch_op", torch_op, METH_VARARGS, "torch_op(tensors, site, flags, ticket) -> tuple: the kernels, from Python."},
    {"torch_drop", torch_drop, METH_O, "torch_drop(number) -> None: the tensor of a ticket is gone."},
    {"torch_capturing", torch_capturing, METH_O, "torch_capturing(device) -> str | None: why its values cannot be read."},
    {"capture_mode", capture_mode, METH_O, "capture_mode(mode) -> int: exchange this thread's capture mode."},
    {"show", show, METH_VARARGS, "show(value, name) -> None: print a tensor."},
    {NULL, NULL, 0, NULL},
};

/* Another thread may have held it. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&tickets_lock, NULL);
}

int torch_init(PyObject *module)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
    if (!(str_cdata = PyUnicode_InternFromString("_cdata")))
        return -1;
    return PyModule_AddFunctions(module, module_methods);
}
