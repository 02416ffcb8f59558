/* kernel.c - which kernel carries out an operator: the rows of ops.def by their numbers; and what every kernel may say. */
#include "engine/kernel.h"

#include "base/status.h"

tap_status tap__refuse(const tap__call *call, tap_error *err)
{
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: no kernel for operands like these; the framework runs it", call->name);
}

#define KERNEL(name, ge, inputs, attrs, outputs, dtypes, shape, kernel, doc) extern const tap__kernel tap__kernel_##kernel;
#define COUNTED(name, ge, inputs, attrs, outputs, dtypes, kernel, doc)                                               \
    extern const tap__kernel tap__kernel_##kernel;                                                                   \
    tap_status tap__count_##kernel(const tap__call *call, void *const *data, int64_t *count, tap_error *err);
#include "graph/ops.def"

static const tap__kernel *const KERNELS[TAP__ROWS + 1] = {
#define KERNEL(name, ge, inputs, attrs, outputs, dtypes, shape, kernel, doc) [TAP__ROW_##name] = &tap__kernel_##kernel,
#define COUNTED(name, ge, inputs, attrs, outputs, dtypes, kernel, doc) [TAP__ROW_##name] = &tap__kernel_##kernel,
#include "graph/ops.def"
    [TAP__ROWS] = &tap__kernel_user,
};

const tap__kernel *tap__kernel_of(const tap_op *op)
{
    return KERNELS[op->row];
}

tap_status tap__kernel_count(const tap__call *call, void *const *data, int64_t *count, tap_error *err)
{
    switch ((int)call->op->row) {
#define COUNTED(name, ge, inputs, attrs, outputs, dtypes, kernel, doc) \
    case TAP__ROW_##name: return tap__count_##kernel(call, data, count, err);
#include "graph/ops.def"
    default: return tap_fail(err, TAP_E_INTERNAL, "node %s: no size of operator %s depends on data", call->name, call->op->name);
    }
}
