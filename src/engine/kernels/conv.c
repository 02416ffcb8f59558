/* conv.c - convolutions of one, two or three dimensions, transposed ones too, and their gradients, by oneDNN but for
 * those of conv_depthwise.c. Images that lie channel by channel are brought into the layout it likes best, images with
 * neighbouring channels stay as they are. Types oneDNN has no code for on this machine are computed in float32 and
 * rounded once. */
#include "engine/kernels/conv.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn.h"
#include "tensor/element.h"

#include <string.h>

enum { JOBS = 2 };
/* of the gradient: inputs and outputs */
enum { GRAD, X, WEIGHT };
enum { GRAD_X, GRAD_WEIGHT, GRAD_BIAS };

typedef struct state {
    int njobs;
    tap__dnn_job *job[JOBS];
    int data[JOBS][TAP_DNN_ROLES]; /* per job and role: index into the run's addresses, -1: none */
    int nzeros, zeros[3];          /* outputs to be filled with zeros, by index */
    bool sums_bias;                /* the gradient of the bias is to be summed */
    tap__depthwise *depthwise;     /* done by conv_depthwise.c; NULL: by the jobs */
} state;

/* ----------------------------------------------------------------------------------------------------- descriptions */

int64_t tap__conv_list_at(const tap__attr *list, int i)
{
    return list->count == 0 ? 0 : list->ints[list->count == 1 ? 0 : i];
}

static tap__dnn_tensor describe_image(const tap__operand *from)
{
    tap__dnn_tensor out;
    memset(&out, 0, sizeof out);
    out.dtype = (int32_t)from->dtype;
    out.ndim = from->ndim;
    for (int i = 0; i < from->ndim; i++) {
        out.size[i] = from->size[i];
        out.stride[i] = from->stride[i];
    }
    /* dimensions of size 1 have strides that mean nothing; as in a row-major tensor they match most layouts */
    int64_t expected = 1;
    for (int i = from->ndim - 1; i >= 0; i--) {
        if (out.size[i] == 1)
            out.stride[i] = expected;
        expected = out.stride[i] * out.size[i] > expected ? out.stride[i] * out.size[i] : expected;
    }
    return out;
}

/* ATen keeps [out, in / groups, ...], transposed [in, out / groups, ...]; oneDNN's is [groups, out / groups,
 * in / groups, ...] with the first left away when there is one group. */
static tap__dnn_tensor describe_weight(const tap__conv_shapes *conv)
{
    const tap__operand *from = conv->weight;
    tap__dnn_tensor out;
    memset(&out, 0, sizeof out);
    out.dtype = (int32_t)from->dtype;
    int at = 0, big = conv->transposed ? 1 : 0, small = conv->transposed ? 0 : 1;
    int64_t first = from->size[0] / conv->groups;
    if (conv->groups > 1) {
        out.size[at] = conv->groups;
        out.stride[at++] = first * from->stride[0];
    }
    for (int i = 0; i < 2; i++, at++) {
        int dim = i == 0 ? big : small;
        out.size[at] = dim == 0 ? first : from->size[1];
        out.stride[at] = from->stride[dim];
    }
    for (int i = 2; i < from->ndim; i++, at++) {
        out.size[at] = from->size[i];
        out.stride[at] = from->stride[i];
    }
    out.ndim = at;
    int64_t beyond = 1;
    for (int i = 0; i < at; i++)
        if (out.size[i] != 1 && out.size[i] * out.stride[i] > beyond)
            beyond = out.size[i] * out.stride[i];
    for (int i = 0; i < at; i++)
        if (out.size[i] == 1)
            out.stride[i] = beyond;
    return out;
}

static tap__dnn_tensor describe_bias(const tap__conv_shapes *conv)
{
    tap__dnn_tensor out;
    memset(&out, 0, sizeof out);
    if (!conv->bias || conv->bias->dtype == TAP_DTYPE_NONE)
        return out;
    out.dtype = (int32_t)conv->bias->dtype;
    out.ndim = 1;
    out.size[0] = conv->bias->size[0];
    out.stride[0] = conv->bias->size[0] == 1 ? 1 : conv->bias->stride[0];
    return out;
}

static bool has_neighbouring_channels(const tap__dnn_tensor *image)
{
    return image->size[1] > 1 && image->stride[1] == 1 && image->stride[image->ndim - 1] >= image->size[1];
}

static void make_channels_last(tap__dnn_tensor *image)
{
    int64_t stride = image->size[1];
    image->stride[1] = 1;
    for (int i = image->ndim - 1; i >= 2; i--) {
        image->stride[i] = stride;
        stride *= image->size[i];
    }
    image->stride[0] = stride;
    image->any = 0;
}

static void set_layouts(tap__dnn_desc *desc, bool channels_last, bool f32)
{
    for (int i = 0; i < TAP_DNN_ROLES; i++) {
        tap__dnn_tensor *tensor = &desc->tensor[i];
        if (!tensor->dtype)
            continue;
        bool is_image = i == TAP_DNN_SRC || i == TAP_DNN_DST;
        if (f32)
            tensor->dtype = TAP_F32;
        if (is_image && channels_last)
            make_channels_last(tensor);
        else
            tensor->any = 1;
        if (i == TAP_DNN_BIAS) {
            tensor->any = 0;
            tensor->stride[0] = 1;
        }
        if (tensor->any)
            memset(tensor->stride, 0, sizeof tensor->stride);
    }
}

static void fill_desc(tap__dnn_desc *desc, tap__dnn_kind kind, const tap__conv_shapes *conv, int threads)
{
    memset(desc, 0, sizeof *desc);
    desc->kind = kind;
    desc->threads = threads;
    desc->tensor[TAP_DNN_SRC] = describe_image(conv->x);
    desc->tensor[TAP_DNN_WEIGHTS] = describe_weight(conv);
    desc->tensor[TAP_DNN_BIAS] = describe_bias(conv);
    desc->tensor[TAP_DNN_DST] = describe_image(conv->y);
    for (int i = 0; i < conv->spatial; i++) {
        desc->step[i] = tap__conv_list_at(conv->stride, i);
        desc->dilate[i] = tap__conv_list_at(conv->dilation, i) - 1;
        desc->before[i] = desc->after[i] = tap__conv_list_at(conv->padding, i);
        if (conv->transposed)
            desc->after[i] -= tap__conv_list_at(conv->output_padding, i);
    }
}

/* -------------------------------------------------------------------------------------------------------------- jobs */

/* data: where each role's address is found when it runs, -1: nowhere. */
static tap_status add_job(state *self, tap__call *call, tap__dnn_kind kind, const tap__conv_shapes *conv,
                          const int data[TAP_DNN_ROLES], tap_error *err)
{
    tap__dnn_desc desc, attempt;
    tap__dnn_tensor actual[TAP_DNN_ROLES];
    fill_desc(&desc, kind, conv, call->threads);
    memcpy(actual, desc.tensor, sizeof actual);
    bool last = has_neighbouring_channels(&desc.tensor[TAP_DNN_SRC]) ||
                has_neighbouring_channels(&desc.tensor[TAP_DNN_DST]);
    tap_status status = TAP_E_UNSUPPORTED;
    /* neighbouring channels kept, the layout it likes best, and both in float32 */
    for (int i = last ? 0 : 1; i < 4 && status == TAP_E_UNSUPPORTED; i++) {
        if ((i == 2 && !last) || (i >= 2 && conv->x->dtype == TAP_F32))
            continue;
        attempt = desc;
        set_layouts(&attempt, i % 2 == 0, i >= 2);
        status = tap__dnn_job_make(&attempt, actual, &self->job[self->njobs], err);
    }
    if (status != TAP_OK)
        return status;
    size_t scratch = tap__dnn_job_scratch(self->job[self->njobs]);
    call->scratch = scratch > call->scratch ? scratch : call->scratch;
    memcpy(self->data[self->njobs++], data, sizeof self->data[0]);
    return TAP_OK;
}

/* oneDNN would sum the bias's gradient one after the other in float32; here sums are float64. */
typedef struct bias_sums {
    const tap__operand *grad, *bias;
    const char *from;
    char *to;
    int64_t positions; /* of one channel */
} bias_sums;

enum { CHANNELS = 64 }; /* summed by one piece of work */

static float load(tap_dtype dtype, const char *at)
{
    uint16_t half;
    float whole;
    if (dtype == TAP_F32) {
        memcpy(&whole, at, 4);
        return whole;
    }
    memcpy(&half, at, 2);
    return dtype == TAP_BF16 ? tap__decode_bf16(half) : tap__decode_f16(half);
}

/* Adds one line of positions to the channels' sums: along whichever of the two lies closer together. */
static void add_line(const bias_sums *all, const char *at, int64_t count, int64_t step, int channels, double *sum)
{
    tap_dtype dtype = all->grad->dtype;
    int64_t item = dtype == TAP_F32 ? 4 : 2, next = all->grad->stride[1] * item;
    step *= item;
    if (all->grad->stride[1] == 1) {
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < channels; c++)
                sum[c] += (double)load(dtype, at + i * step + c * item);
        return;
    }
    for (int c = 0; c < channels; c++) {
        double lane[8] = {0};
        const char *row = at + c * next;
        int64_t i = 0;
        for (; i + 8 <= count; i += 8)
            for (int k = 0; k < 8; k++)
                lane[k] += (double)load(dtype, row + (i + k) * step);
        for (; i < count; i++)
            lane[0] += (double)load(dtype, row + i * step);
        sum[c] += ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
    }
}

static void sum_channels(void *user, int64_t begin, int64_t end)
{
    const bias_sums *all = user;
    const tap__operand *grad = all->grad;
    int last = grad->ndim - 1, channels = (int)(end - begin);
    int64_t item = grad->dtype == TAP_F32 ? 4 : 2, lines = all->positions / grad->size[last];
    double sum[CHANNELS] = {0};
    for (int64_t line = 0; line < lines; line++) {
        int64_t rest = line, offset = begin * grad->stride[1];
        for (int i = last - 1; i >= 0; i--) {
            if (i == 1)
                continue;
            offset += rest % grad->size[i] * grad->stride[i];
            rest /= grad->size[i];
        }
        add_line(all, all->from + offset * item, grad->size[last], grad->stride[last], channels, sum);
    }
    for (int c = 0; c < channels; c++) {
        tap_scalar value = {.kind = 'F', .re = sum[c]};
        tap__element_put(all->bias->dtype, all->to + (begin + c) * all->bias->stride[0] * item, 0, &value);
    }
}

static void sum_bias(const tap__call *call, const tap__operand *grad, const tap__operand *bias, const void *from,
                     void *to)
{
    bias_sums all = {.grad = grad, .bias = bias, .from = from, .to = to, .positions = 1};
    for (int i = 0; i < grad->ndim; i++)
        all.positions *= i == 1 ? 1 : grad->size[i];
    tap__parallel(call->threads, grad->size[1], grad->stride[1] == 1 ? CHANNELS : 1, CHANNELS, sum_channels, &all);
}

static void release(tap__call *call)
{
    state *self = call->state;
    if (!self)
        return;
    for (int i = 0; i < self->njobs; i++)
        tap__dnn_job_free(self->job[i]);
    tap__free(self->depthwise);
    tap__free(self);
    call->state = NULL;
}

static tap_status run(const tap__call *call, void *const *data, tap_error *err)
{
    const state *self = call->state;
    if (self->depthwise)
        tap__depthwise_run(self->depthwise, call, data[0], data[1],
                           call->in[2].dtype == TAP_DTYPE_NONE ? NULL : data[2], data[call->nin]);
    for (int i = 0; i < self->nzeros; i++) {
        const tap__operand *out = &call->out[self->zeros[i]];
        memset(data[call->nin + self->zeros[i]], 0,
               (size_t)tap__operand_count(out) * tap_dtype_describe(out->dtype)->bytes);
    }
    for (int i = 0; i < self->njobs; i++) {
        void *roles[TAP_DNN_ROLES];
        for (int k = 0; k < TAP_DNN_ROLES; k++)
            roles[k] = self->data[i][k] < 0 ? NULL : data[self->data[i][k]];
        TAP_TRY(tap__dnn_job_run(self->job[i], call, roles, data[call->nin + call->nout], err));
    }
    if (self->sums_bias)
        sum_bias(call, &call->in[GRAD], &call->out[GRAD_BIAS], data[GRAD], data[call->nin + GRAD_BIAS]);
    return TAP_OK;
}

static void read_attrs(const tap__call *call, tap__conv_shapes *conv)
{
    conv->stride = tap__call_attr(call, "stride");
    conv->padding = tap__call_attr(call, "padding");
    conv->dilation = tap__call_attr(call, "dilation");
    conv->output_padding = tap__call_attr(call, "output_padding");
    conv->transposed = tap__call_attr(call, "transposed")->i != 0;
    conv->groups = tap__call_attr(call, "groups")->i;
    conv->spatial = conv->x->ndim - 2;
}

/* Types and sizes that are left to the framework. */
static tap_status check(const tap__call *call, const tap__conv_shapes *conv, tap_error *err)
{
    tap_dtype dtype = conv->x->dtype;
    bool same = conv->weight->dtype == dtype && conv->y->dtype == dtype;
    if (!same || (dtype != TAP_F32 && dtype != TAP_BF16 && dtype != TAP_F16))
        return tap__refuse(call, err);
    if (conv->spatial < 1 || conv->spatial > 3 || conv->groups < 1 || tap__operand_count(conv->weight) == 0)
        return tap__refuse(call, err);
    return TAP_OK;
}

static tap_status prepare_with(tap__call *call, tap_status (*build)(tap__call *, state *, tap_error *), tap_error *err)
{
    call->scratch = 0;
    call->state = tap__calloc(1, sizeof(state));
    if (!call->state)
        return tap_fail_nomem(err);
    tap_status status = build(call, call->state, err);
    if (status != TAP_OK)
        release(call);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- forward */

static tap_status build_forward(tap__call *call, state *self, tap_error *err)
{
    tap__conv_shapes conv = {.x = &call->in[0], .weight = &call->in[1], .bias = &call->in[2], .y = &call->out[0]};
    read_attrs(call, &conv);
    TAP_TRY(check(call, &conv, err));
    if (tap__operand_count(conv.y) == 0)
        return TAP_OK;
    TAP_TRY(tap__depthwise_make(&conv, &self->depthwise, err));
    if (self->depthwise)
        return TAP_OK;
    bool has_bias = conv.bias->dtype != TAP_DTYPE_NONE;
    const int data[TAP_DNN_ROLES] = {0, 1, has_bias ? 2 : -1, call->nin};
    return add_job(self, call, conv.transposed ? TAP_DNN_DECONV : TAP_DNN_CONV, &conv, data, err);
}

static tap_status prepare_forward(tap__call *call, tap_error *err)
{
    return prepare_with(call, build_forward, err);
}

const tap__kernel tap__kernel_convolution = {.prepare = prepare_forward, .run = run, .release = release};

/* ---------------------------------------------------------------------------------------------------------- backward */

static bool is_wanted(const tap__call *call, int output)
{
    const tap__attr *mask = tap__call_attr(call, "output_mask");
    return output < mask->count && mask->ints[output] && call->out[output].dtype != TAP_DTYPE_NONE;
}

/* Without a single product every gradient is zero. */
static tap_status build_zeros(const tap__call *call, state *self, tap_error *err)
{
    for (int i = GRAD_X; i <= GRAD_BIAS; i++) {
        if (!is_wanted(call, i) || tap__operand_count(&call->out[i]) == 0)
            continue;
        if (i != GRAD_BIAS && !tap__operand_is_contiguous(&call->out[i]))
            return tap__refuse(call, err);
        self->zeros[self->nzeros++] = i;
    }
    return TAP_OK;
}

static tap_status build_backward(tap__call *call, state *self, tap_error *err)
{
    tap__conv_shapes conv = {.x = &call->in[X], .weight = &call->in[WEIGHT], .y = &call->in[GRAD]};
    read_attrs(call, &conv);
    TAP_TRY(check(call, &conv, err));
    if (tap__operand_count(conv.x) == 0 || tap__operand_count(conv.y) == 0)
        return build_zeros(call, self, err);
    if (is_wanted(call, GRAD_X)) {
        tap__conv_shapes of_x = conv;
        of_x.x = &call->out[GRAD_X];
        const int data[TAP_DNN_ROLES] = {call->nin + GRAD_X, WEIGHT, -1, GRAD};
        TAP_TRY(add_job(self, call, conv.transposed ? TAP_DNN_DECONV_DATA : TAP_DNN_CONV_DATA, &of_x, data, err));
    }
    self->sums_bias = is_wanted(call, GRAD_BIAS);
    if (!is_wanted(call, GRAD_WEIGHT))
        return TAP_OK;
    tap__conv_shapes of_weight = conv;
    of_weight.weight = &call->out[GRAD_WEIGHT];
    const int data[TAP_DNN_ROLES] = {X, call->nin + GRAD_WEIGHT, -1, GRAD};
    return add_job(self, call, conv.transposed ? TAP_DNN_DECONV_WEIGHTS : TAP_DNN_CONV_WEIGHTS, &of_weight, data, err);
}

static tap_status prepare_backward(tap__call *call, tap_error *err)
{
    return prepare_with(call, build_backward, err);
}

const tap__kernel tap__kernel_convolution_backward = {.prepare = prepare_backward, .run = run, .release = release};
