/* picklecall.c - the globals a pickle of tensors may name, and what calling each one gives. Adding one is adding a row
 * and its function; functions only rearrange nodes. */
#include "format/picklecall.h"

#include "base/status.h"

#include <string.h>

typedef tap_status (*call_fn)(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                              tap_error *err);

struct tap_pickle_global {
    const char *module, *name;
    call_fn call;   /* NULL: a type that is only passed along */
    size_t min, max; /* arguments */
};

static tap_status damaged(const tap_pickle_context *context, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the pickle is damaged: %s; write the file again", context->path, what);
}

tap_status tap__pickle_node(tap_pickle_context *context, tap_pickle_kind kind, tap_pickle_node **out, tap_error *err)
{
    *out = tap__arena_alloc(context->arena, sizeof **out);
    if (!*out)
        return tap__arena_fail(context->arena, sizeof **out, context->path, err);
    memset(*out, 0, sizeof **out);
    (*out)->kind = (uint8_t)kind;
    return TAP_OK;
}

tap_status tap__pickle_append(tap_pickle_context *context, tap_pickle_node *container, tap_pickle_node *item,
                              tap_error *err)
{
    size_t len = container->len;
    if ((len & (len - 1)) == 0) { /* room is always the next power of two */
        size_t bytes = (len ? len * 2 : 1) * sizeof item;
        tap_pickle_node **grown = tap__arena_alloc(context->arena, bytes);
        if (!grown)
            return tap__arena_fail(context->arena, bytes, context->path, err);
        if (len)
            memcpy(grown, container->items, len * sizeof item);
        container->items = grown;
    }
    container->items[container->len++] = item;
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------- calls */

static tap_status check_numbers(const tap_pickle_context *context, const tap_pickle_node *node, tap_error *err)
{
    bool good = node->kind == TAP_PICKLE_TUPLE || node->kind == TAP_PICKLE_LIST;
    for (size_t i = 0; good && i < node->len; i++)
        good = node->items[i]->kind == TAP_PICKLE_INT;
    return good ? TAP_OK : damaged(context, "a tensor's size or stride is not a tuple of integers", err);
}

static tap_status make_tensor(tap_pickle_context *context, tap_pickle_kind kind, tap_pickle_node *storage,
                              tap_pickle_node *size, tap_pickle_node *stride, tap_pickle_node **out, tap_error *err)
{
    TAP_TRY(check_numbers(context, size, err));
    TAP_TRY(check_numbers(context, stride, err));
    TAP_TRY(tap__pickle_node(context, kind, out, err));
    TAP_TRY(tap__pickle_append(context, *out, storage, err));
    TAP_TRY(tap__pickle_append(context, *out, size, err));
    return tap__pickle_append(context, *out, stride, err);
}

/* (storage, offset, size, stride, ...) */
static tap_status call_tensor(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                              tap_error *err)
{
    if (arguments[0]->kind != TAP_PICKLE_STORAGE || arguments[1]->kind != TAP_PICKLE_INT)
        return damaged(context, "a tensor has no storage or offset", err);
    TAP_TRY(make_tensor(context, TAP_PICKLE_TENSOR, arguments[0], arguments[2], arguments[3], out, err));
    (*out)->integer = arguments[1]->integer;
    (*out)->dtype = arguments[0]->dtype;
    return TAP_OK;
}

/* Flags such as "conj" change what the bytes mean. */
static tap_status check_flags(const tap_pickle_context *context, const tap_pickle_node *flags, tap_error *err)
{
    if (flags->kind == TAP_PICKLE_NONE || (flags->kind == TAP_PICKLE_DICT && flags->len == 0))
        return TAP_OK;
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: a tensor was saved with a conjugate or negative flag; save "
                    "tensor.resolve_conj().resolve_neg() instead", context->path);
}

/* (storage, offset, size, stride, requires_grad, hooks[, flags]) */
static tap_status call_tensor_v2(tap_pickle_context *context, tap_pickle_node *const *arguments,
                                 tap_pickle_node **out, tap_error *err)
{
    TAP_TRY(check_flags(context, arguments[6], err));
    return call_tensor(context, arguments, out, err);
}

/* (storage, offset, size, stride, requires_grad, hooks, dtype[, flags]) */
static tap_status call_tensor_v3(tap_pickle_context *context, tap_pickle_node *const *arguments,
                                 tap_pickle_node **out, tap_error *err)
{
    if (arguments[6]->kind != TAP_PICKLE_DTYPE)
        return damaged(context, "a tensor has no dtype", err);
    TAP_TRY(check_flags(context, arguments[7], err));
    TAP_TRY(call_tensor(context, arguments, out, err));
    (*out)->dtype = arguments[6]->dtype;
    return TAP_OK;
}

/* (dtype, size, stride, requires_grad) */
static tap_status call_meta(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                            tap_error *err)
{
    if (arguments[0]->kind != TAP_PICKLE_DTYPE)
        return damaged(context, "a tensor has no dtype", err);
    TAP_TRY(make_tensor(context, TAP_PICKLE_META, context->none, arguments[1], arguments[2], out, err));
    (*out)->dtype = arguments[0]->dtype;
    return TAP_OK;
}

/* (tensor, requires_grad, hooks[, state]) */
static tap_status call_parameter(tap_pickle_context *context, tap_pickle_node *const *arguments,
                                 tap_pickle_node **out, tap_error *err)
{
    if (arguments[0]->kind != TAP_PICKLE_TENSOR && arguments[0]->kind != TAP_PICKLE_META)
        return damaged(context, "a parameter has no tensor", err);
    *out = arguments[0];
    return TAP_OK;
}

/* (function, type, arguments, state): a tensor with attributes, which are dropped. */
static tap_status call_from_type(tap_pickle_context *context, tap_pickle_node *const *arguments,
                                 tap_pickle_node **out, tap_error *err)
{
    static const char *const INNER[] = {"_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
                                        "_rebuild_parameter_with_state"};
    if (arguments[0]->kind == TAP_PICKLE_GLOBAL && arguments[1]->kind == TAP_PICKLE_GLOBAL &&
        !arguments[1]->global->call)
        for (size_t i = 0; i < sizeof INNER / sizeof INNER[0]; i++)
            if (strcmp(arguments[0]->global->name, INNER[i]) == 0)
                return tap__pickle_call(context, arguments[0], arguments[2], out, err);
    return damaged(context, "a tensor with attributes is not made of a tensor", err);
}

static tap_status call_size(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                            tap_error *err)
{
    TAP_TRY(check_numbers(context, arguments[0], err));
    *out = arguments[0];
    return TAP_OK;
}

/* ("cuda", 0), as "cuda": where a value lived is of no use here. */
static tap_status call_device(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                              tap_error *err)
{
    if (arguments[0]->kind != TAP_PICKLE_STR)
        return damaged(context, "a device has no name", err);
    *out = arguments[0];
    return TAP_OK;
}

/* () or ([[key, value], ...]) */
static tap_status call_dict(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                            tap_error *err)
{
    TAP_TRY(tap__pickle_node(context, TAP_PICKLE_DICT, out, err));
    const tap_pickle_node *pairs = arguments[0];
    if (pairs->kind == TAP_PICKLE_NONE)
        return TAP_OK;
    if (pairs->kind != TAP_PICKLE_LIST)
        return damaged(context, "an OrderedDict is not made of pairs", err);
    for (size_t i = 0; i < pairs->len; i++) {
        const tap_pickle_node *pair = pairs->items[i];
        if ((pair->kind != TAP_PICKLE_LIST && pair->kind != TAP_PICKLE_TUPLE) || pair->len != 2)
            return damaged(context, "an OrderedDict is not made of pairs", err);
        TAP_TRY(tap__pickle_append(context, *out, pair->items[0], err));
        TAP_TRY(tap__pickle_append(context, *out, pair->items[1], err));
    }
    return TAP_OK;
}

static tap_status call_complex(tap_pickle_context *context, tap_pickle_node *const *arguments, tap_pickle_node **out,
                               tap_error *err)
{
    if (arguments[0]->kind != TAP_PICKLE_FLOAT || arguments[1]->kind != TAP_PICKLE_FLOAT)
        return damaged(context, "a complex number is not made of two floats", err);
    TAP_TRY(tap__pickle_node(context, TAP_PICKLE_COMPLEX, out, err));
    (*out)->number = arguments[0]->number;
    (*out)->imag = arguments[1]->number;
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------- globals */

enum { MAX_ARGUMENTS = 8 };

static const struct tap_pickle_global GLOBALS[] = {
    {"torch._utils", "_rebuild_tensor", call_tensor, 4, 4},
    {"torch._utils", "_rebuild_tensor_v2", call_tensor_v2, 6, 7},
    {"torch._utils", "_rebuild_tensor_v3", call_tensor_v3, 7, 8},
    {"torch._utils", "_rebuild_parameter", call_parameter, 3, 3},
    {"torch._utils", "_rebuild_parameter_with_state", call_parameter, 4, 4},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", call_meta, 4, 4},
    {"torch._tensor", "_rebuild_from_type_v2", call_from_type, 4, 4},
    {"torch", "Tensor", NULL, 0, 0},
    {"torch.nn.parameter", "Parameter", NULL, 0, 0},
    {"torch", "Size", call_size, 1, 1},
    {"torch", "device", call_device, 1, 2},
    {"collections", "OrderedDict", call_dict, 0, 1},
    {"__builtin__", "complex", call_complex, 2, 2},
    {"builtins", "complex", call_complex, 2, 2},
};

static bool equal(const char *text, const char *other, size_t len)
{
    return text && strlen(text) == len && memcmp(text, other, len) == 0;
}

/* torch.float32 and torch.FloatStorage, by the table of dtypes. */
static tap_status find_dtype(tap_pickle_context *context, const char *name, size_t len, tap_pickle_node **out,
                             tap_error *err)
{
    for (int i = 1; i < TAP_DTYPE_END; i++) {
        const tap_dtype_info *row = tap_dtype_describe((tap_dtype)i);
        bool storage = equal(row->torch_storage, name, len);
        if (!storage && !equal(row->torch, name, len))
            continue;
        TAP_TRY(tap__pickle_node(context, storage ? TAP_PICKLE_STORAGE_TYPE : TAP_PICKLE_DTYPE, out, err));
        (*out)->dtype = (uint8_t)i;
        return TAP_OK;
    }
    return TAP_OK;
}

tap_status tap__pickle_global(tap_pickle_context *context, const char *module, size_t module_len, const char *name,
                              size_t name_len, tap_pickle_node **out, tap_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof GLOBALS / sizeof GLOBALS[0]; i++)
        if (equal(GLOBALS[i].module, module, module_len) && equal(GLOBALS[i].name, name, name_len)) {
            TAP_TRY(tap__pickle_node(context, TAP_PICKLE_GLOBAL, out, err));
            (*out)->global = &GLOBALS[i];
            return TAP_OK;
        }
    if (equal("torch", module, module_len))
        TAP_TRY(find_dtype(context, name, name_len, out, err));
    if (equal("torch.storage", module, module_len) && equal("UntypedStorage", name, name_len))
        TAP_TRY(tap__pickle_node(context, TAP_PICKLE_STORAGE_TYPE, out, err));
    if (*out)
        return TAP_OK;
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: refuses %.*s.%.*s: only tensors, lists, tuples, dicts, numbers and "
                    "strings are read; load it with torch and save the tensors alone", context->path,
                    (int)(module_len < 100 ? module_len : 100), module, (int)(name_len < 100 ? name_len : 100), name);
}

tap_status tap__pickle_call(tap_pickle_context *context, const tap_pickle_node *function,
                            const tap_pickle_node *arguments, tap_pickle_node **out, tap_error *err)
{
    if (function->kind != TAP_PICKLE_GLOBAL || !function->global->call || arguments->kind != TAP_PICKLE_TUPLE)
        return damaged(context, "it calls something that is not a function", err);
    const struct tap_pickle_global *global = function->global;
    if (arguments->len < global->min || arguments->len > global->max)
        return tap_fail(err, TAP_E_FORMAT, "%s: the pickle calls %s.%s with %zu arguments; it is damaged or written by "
                        "a torch that is too new", context->path, global->module, global->name, arguments->len);
    tap_pickle_node *all[MAX_ARGUMENTS];
    for (size_t i = 0; i < MAX_ARGUMENTS; i++)
        all[i] = i < arguments->len ? arguments->items[i] : context->none;
    return global->call(context, all, out, err);
}

tap_status tap__pickle_storage(tap_pickle_context *context, const tap_pickle_node *id, tap_pickle_node **out,
                               tap_error *err)
{
    if (id->kind != TAP_PICKLE_TUPLE || id->len < 5 || id->items[0]->kind != TAP_PICKLE_STR ||
        !equal("storage", id->items[0]->text, id->items[0]->len) || id->items[1]->kind != TAP_PICKLE_STORAGE_TYPE ||
        id->items[2]->kind != TAP_PICKLE_STR || id->items[4]->kind != TAP_PICKLE_INT)
        return damaged(context, "a storage is not described as torch does", err);
    TAP_TRY(tap__pickle_node(context, TAP_PICKLE_STORAGE, out, err));
    (*out)->dtype = id->items[1]->dtype;
    (*out)->text = id->items[2]->text;
    (*out)->len = id->items[2]->len;
    (*out)->integer = id->items[4]->integer;
    return TAP_OK;
}
