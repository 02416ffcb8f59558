/* plugin.c - operators from shared libraries: their plain functions behind the interface that our own kernels have. */
#include "base/memory.h"
#include "base/sized.h"
#include "engine/kernel.h"
#include "frontend/aten.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPERANDS = 64 };

/* ------------------------------------------------------------------------------------------------------ arguments */

static tap_arg arg_of(const tap__attr *attr, const char *name, tap_arg *items, size_t *used, size_t room)
{
    tap_arg out = {.name = name, .type = TAP_ARG_NONE, .i = attr->i, .f = attr->f, .s = attr->s};
    if (!attr->present)
        return out;
    switch (attr->type) {
    case TAP_ATTR_INT: out.type = TAP_ARG_INT; break;
    case TAP_ATTR_FLOAT: out.type = TAP_ARG_FLOAT; break;
    case TAP_ATTR_BOOL: out.type = TAP_ARG_BOOL; break;
    case TAP_ATTR_DTYPE: out.type = TAP_ARG_DTYPE; break;
    case TAP_ATTR_STR: out.type = TAP_ARG_STR; break;
    case TAP_ATTR_SCALAR:
        out.type = attr->scalar.kind == 'B'   ? TAP_ARG_BOOL
                   : attr->scalar.kind == 'I' ? TAP_ARG_INT
                   : attr->scalar.kind == 'F' ? TAP_ARG_FLOAT
                                              : TAP_ARG_COMPLEX;
        out.i = attr->scalar.i;
        out.f = attr->scalar.re;
        out.imag = attr->scalar.im;
        break;
    case TAP_ATTR_INTS:
    case TAP_ATTR_BOOLS:
    case TAP_ATTR_FLOATS:
        out.type = TAP_ARG_LIST;
        out.items = items + *used;
        for (int i = 0; i < attr->count && *used < room; i++, (*used)++, out.count++)
            items[*used] = attr->type == TAP_ATTR_FLOATS ? (tap_arg){.type = TAP_ARG_FLOAT, .f = attr->floats[i]}
                           : attr->type == TAP_ATTR_INTS ? (tap_arg){.type = TAP_ARG_INT, .i = attr->ints[i]}
                                                         : (tap_arg){.type = TAP_ARG_BOOL, .i = attr->ints[i]};
        break;
    }
    return out;
}

typedef struct arguments {
    tap_op_args args;
    tap_tensor in[MAX_OPERANDS], out[TAP_OP_MAX_OUTPUTS];
    tap_arg attrs[TAP_OP_MAX_PARAMS], items[256];
} arguments;

/* data: NULL for a shape rule. */
static void fill(arguments *self, const tap__call *call, void *const *data)
{
    const tap_op *op = call->op;
    size_t used = 0;
    self->args = (tap_op_args){.size = sizeof self->args, .nin = call->nin, .nout = call->nout, .nattrs = op->nparams - op->ninputs,
                               .threads = call->threads, .in = self->in, .out = self->out, .attrs = self->attrs};
    for (int i = 0; i < call->nin; i++)
        self->in[i] = tap__operand_view(&call->in[i], data ? data[i] : NULL);
    for (int i = 0; data && i < call->nout; i++)
        self->out[i] = tap__operand_view(&call->out[i], data[call->nin + i]);
    for (int i = 0; i < self->args.nattrs; i++)
        self->attrs[i] = arg_of(&call->attrs[i], op->params[op->ninputs + i].name, self->items, &used,
                                sizeof self->items / sizeof self->items[0]);
}

/* -------------------------------------------------------------------------------------------------------- kernels */

static tap_status shape_user(tap__call *call, tap_error *err)
{
    arguments self;
    int64_t sizes[TAP_OP_MAX_OUTPUTS][TAP_MAX_NDIM];
    if (call->nin > MAX_OPERANDS || call->nout > TAP_OP_MAX_OUTPUTS)
        return tap_fail(err, TAP_E_LIMIT, "node %s: operator %s has too many operands", call->name, call->op->name);
    fill(&self, call, NULL);
    for (int i = 0; i < call->nout; i++)
        self.out[i] = (tap_tensor){.shape = sizes[i]};
    TAP_TRY(call->op->user->shape(&self.args, err));
    for (int i = 0; i < call->nout; i++) {
        if (self.out[i].ndim < 0 || self.out[i].ndim > TAP_ENGINE_MAX_NDIM)
            return tap_fail(err, TAP_E_INVALID, "node %s: the shape rule of operator %s gives %d dimensions", call->name,
                            call->op->name, (int)self.out[i].ndim);
        call->out[i] = (tap__operand){.dtype = self.out[i].dtype, .ndim = self.out[i].ndim};
        memcpy(call->out[i].size, sizes[i], (size_t)self.out[i].ndim * sizeof sizes[i][0]);
    }
    return TAP_OK;
}

static void sizes_text(const tap__operand *operand, char *text, size_t size)
{
    const tap_dtype_info *info = tap_dtype_describe(operand->dtype);
    int used = snprintf(text, size, "%s [", info ? info->name : "?");
    for (int i = 0; i < operand->ndim && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%lld", i ? ", " : "", (long long)operand->size[i]);
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "]");
}

/* The rule must say what the framework said when it traced the graph. */
static tap_status prepare_user(tap__call *call, tap_error *err)
{
    tap__operand out[TAP_OP_MAX_OUTPUTS] = {0};
    tap__call asked = *call;
    asked.out = out;
    if (call->nin > MAX_OPERANDS || call->nout > TAP_OP_MAX_OUTPUTS)
        return tap__refuse(call, err);
    TAP_TRY(shape_user(&asked, err));
    for (int i = 0; i < call->nout; i++) {
        const tap__operand *a = &out[i], *b = &call->out[i];
        if (b->dtype == TAP_DTYPE_NONE || (a->dtype == b->dtype && tap__operand_same_sizes(a, b)))
            continue;
        char ours[160], theirs[160];
        sizes_text(a, ours, sizeof ours);
        sizes_text(b, theirs, sizeof theirs);
        return tap_fail(err, TAP_E_FORMAT, "node %s: the shape rule of operator %s gives %s for output %d, the framework says %s",
                        call->name, call->op->name, ours, i, theirs);
    }
    return TAP_OK;
}

static tap_status run_user(const tap__call *call, void *const *data, tap_error *err)
{
    arguments self;
    fill(&self, call, data);
    return call->op->user->run(&self.args, err);
}

const tap__kernel tap__kernel_user = {.prepare = prepare_user, .run = run_user};

/* ------------------------------------------------------------------------------------------------------- adding */

/* All of it or nothing: nobody finds the operator before the overload that means it is known. */
static tap_status add_copy(const tap_op_desc *desc, tap_error *err)
{
    static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
    const tap_op *op;
    pthread_mutex_lock(&adding);
    tap_status status = tap__op_draft(desc, shape_user, &op, err);
    if (status == TAP_OK)
        status = tap__aten_add(desc->target, op, desc->bindings, err);
    if (status == TAP_OK)
        tap__op_publish();
    pthread_mutex_unlock(&adding);
    return status;
}

tap_status tap_op_add(const tap_op_desc *op, tap_error *err)
{
    TAP_NEED_SIZED(err, tap_op_desc, op);
    if (!op->name || !op->target || !op->run)
        return tap_fail(err, TAP_E_INVALID, "operator %s: it needs a name, a target and a function that runs it",
                        op->name ? op->name : "?");
    if (!op->shape)
        return tap_fail(err, TAP_E_INVALID, "operator %s has no shape rule; set tap_op_desc.shape", op->name);
    tap_op_desc *copy = tap__calloc(1, sizeof *copy); /* lives as long as the process, as its library does */
    if (!copy)
        return tap_fail_nomem(err);
    copy->size = sizeof *copy;
    tap__sized_take(copy, op);
    tap_status status = add_copy(copy, err);
    if (status != TAP_OK)
        tap__free(copy);
    return status;
}

static tap_status fail_user(tap_error *err, tap_status status, const char *message)
{
    return tap_fail(err, status, "%s", message);
}

static void parallel_user(int threads, int64_t count, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end),
                          void *user)
{
    tap__parallel(threads, count, grain, TAP_ANY_LENGTH, body, user);
}

tap_status tap_op_load(const char *path, tap_error *err)
{
    TAP_NEED(err, path);
    static const tap_library LIBRARY = {.size = sizeof LIBRARY, .add = tap_op_add, .fail = fail_user,
                                        .parallel = parallel_user};
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return tap_fail(err, TAP_E_IO, "load %s: %s", path, dlerror());
    tap_status (*init)(const tap_library *, tap_error *);
    *(void **)&init = dlsym(handle, "tap_library_init");
    if (!init) {
        dlclose(handle);
        return tap_fail(err, TAP_E_FORMAT, "load %s: it exports no tap_library_init; see examples/operator", path);
    }
    return init(&LIBRARY, err); /* stays loaded: its functions are in use from now on */
}
