/* scaled_add.c - an operator of one's own for the engine: y = x + factor * other, element by element.
 *
 *     cc -O2 -shared -fPIC -I include scaled_add.c -o libscaled_add.so
 *     python scaled_add.py
 */
#include "tensortap/tensortap_engine.h"

static tap_status shape(const tap_op_args *args, tap_error *err)
{
    (void)err;
    args->out[0].dtype = args->in[0].dtype;
    args->out[0].ndim = args->in[0].ndim;
    for (int i = 0; i < args->in[0].ndim; i++)
        ((int64_t *)args->out[0].shape)[i] = args->in[0].shape[i];
    return TAP_OK;
}

static int64_t count_of(const tap_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++)
        count *= tensor->shape[i];
    return count;
}

/* Adds up what strides and the indices of element `n` come to. */
static int64_t offset_of(const tap_tensor *tensor, int64_t n)
{
    int64_t offset = 0;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        offset += n % tensor->shape[i] * tensor->strides[i];
        n /= tensor->shape[i];
    }
    return offset;
}

static tap_status run(const tap_op_args *args, tap_error *err)
{
    (void)err;
    const float *x = args->in[0].data, *other = args->in[1].data;
    float *y = args->out[0].data, factor = (float)args->attrs[0].f;
    for (int64_t n = 0, count = count_of(&args->in[0]); n < count; n++)
        y[offset_of(&args->out[0], n)] = x[offset_of(&args->in[0], n)] + factor * other[offset_of(&args->in[1], n)];
    return TAP_OK;
}

tap_status tap_library_init(const tap_library *library, tap_error *err);
tap_status tap_library_init(const tap_library *library, tap_error *err)
{
    static const tap_op_desc OP = {.size = sizeof OP,
                                   .name = "ScaledAdd",
                                   .inputs = "x, other",
                                   .attrs = "factor:float=1.0",
                                   .outputs = "y",
                                   .dtypes = "F",
                                   .doc = "y = x + factor * other",
                                   .target = "example.scaled_add.default",
                                   .shape = shape,
                                   .run = run};
    return library->add(&OP, err);
}
