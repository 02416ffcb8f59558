/* onednn.c - finds the library, makes primitives and keeps the ones used last. */
#include "engine/onednn.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/blas.h"
#include "engine/dnn_primitive.h"
#include "tensor/hash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of oneDNN's interface, fixed for its major version 3. */
enum {
    DNN_CPU = 1,
    DNN_F16 = 1,
    DNN_BF16 = 2,
    DNN_F32 = 3,
    DNN_TAG_ANY = 1,
    DNN_FORWARD_INFERENCE = 96,
    DNN_FORWARD_TRAINING = 64,
    DNN_CONVOLUTION_DIRECT = 1,
    DNN_DECONVOLUTION_DIRECT = 10,
    DNN_ELTWISE_LINEAR = 38,
    DNN_SCRATCHPAD_USER = 1,
    DNN_QUERY_IMPLEMENTATION = 8,
    DNN_QUERY_SCRATCHPAD = 136,
    DNN_QUERY_ARGUMENT = 255,
    DNN_ARG_SRC = 1,
    DNN_ARG_DST = 17,
    DNN_ARG_WEIGHTS = 33,
    DNN_ARG_BIAS = 41,
    DNN_ARG_GRADIENT = 128, /* added to one of the above */
    DNN_OUT_OF_MEMORY = 1
};

/* ------------------------------------------------------------------------------------------------------ the library */

static tap__dnn_api api;
static bool api_found;
static char *library_path;
static bool load_tried;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

tap_status tap_engine_set_onednn(const char *path, tap_error *err)
{
    char *copy = path ? tap__strdup(path) : NULL;
    if (path && !copy)
        return tap_fail_nomem(err);
    pthread_mutex_lock(&loading);
    bool late = load_tried;
    if (!late) {
        char *old = library_path;
        library_path = copy;
        copy = old;
    }
    pthread_mutex_unlock(&loading);
    tap__free(copy);
    if (late)
        return tap_fail(err, TAP_E_BUSY, "oneDNN is in use already; choose its library before the first graph runs");
    return TAP_OK;
}

static bool find_functions(void *library)
{
    bool whole = true;
#define X(type, name, parameters)                                                                                    \
    *(void **)&api.name = dlsym(library, "dnnl_" #name);                                                             \
    whole = whole && api.name != NULL;
    TAP_DNN_FUNCTIONS(X)
#undef X
    return whole;
}

static void load(void)
{
    pthread_mutex_lock(&loading);
    load_tried = true;
    const char *path = library_path ? library_path : "libdnnl.so.3";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    if (library && !find_functions(library))
        why = tap_text("a function of its version 3 is missing");
    if (!why && api.engine_create(&api.engine, DNN_CPU, 0) != 0)
        why = tap_text("it finds no processor to work on");
    api_found = !why;
    if (why)
        tap__log(TAP_LOG_WARNING,
                 "oneDNN was not loaded (%s); matrix products and convolutions run in the framework. Install: "
                 "pip install tensortap[engine]", why);
    pthread_mutex_unlock(&loading);
}

const tap__dnn_api *tap__dnn(void)
{
    pthread_once(&once, load);
    return api_found ? &api : NULL;
}

/* ------------------------------------------------------------------------------------------------- what a role is */

static bool is_backward_data(tap__dnn_kind kind)
{
    return kind == TAP_DNN_CONV_DATA || kind == TAP_DNN_DECONV_DATA;
}

static bool is_backward_weights(tap__dnn_kind kind)
{
    return kind == TAP_DNN_CONV_WEIGHTS || kind == TAP_DNN_DECONV_WEIGHTS;
}

bool tap__dnn_role_is_result(tap__dnn_kind kind, int role)
{
    if (is_backward_data(kind))
        return role == TAP_DNN_SRC;
    if (is_backward_weights(kind))
        return role == TAP_DNN_WEIGHTS || role == TAP_DNN_BIAS;
    return role == TAP_DNN_DST;
}

int tap__dnn_role_arg(tap__dnn_kind kind, int role)
{
    static const int ARGS[TAP_DNN_ROLES] = {DNN_ARG_SRC, DNN_ARG_WEIGHTS, DNN_ARG_BIAS, DNN_ARG_DST};
    bool backward = is_backward_data(kind) || is_backward_weights(kind);
    if ((kind >= TAP_DNN_BRING && role != TAP_DNN_SRC && role != TAP_DNN_DST) ||
        (is_backward_data(kind) && role == TAP_DNN_BIAS))
        return 0;
    bool gradient = backward && (role == TAP_DNN_DST || tap__dnn_role_is_result(kind, role));
    return ARGS[role] + (gradient ? DNN_ARG_GRADIENT : 0);
}

/* -------------------------------------------------------------------------------------------------- making primitives */

static int dnn_dtype(int32_t dtype)
{
    return dtype == TAP_F32 ? DNN_F32 : dtype == TAP_BF16 ? DNN_BF16 : dtype == TAP_F16 ? DNN_F16 : 0;
}

bool tap__dnn_layout_make(const tap__dnn_tensor *tensor, tap__dnn_layout *out)
{
    *out = NULL;
    int dtype = dnn_dtype(tensor->dtype);
    if (tensor->any)
        return api.memory_desc_create_with_tag(out, tensor->ndim, tensor->size, dtype, DNN_TAG_ANY) == 0;
    return api.memory_desc_create_with_strides(out, tensor->ndim, tensor->size, dtype, tensor->stride) == 0;
}

static int make_attr(const tap__dnn_desc *desc, tap__dnn_attr *out)
{
    int status = api.primitive_attr_create(out);
    if (status)
        return status;
    status = api.primitive_attr_set_scratchpad_mode(*out, DNN_SCRATCHPAD_USER);
    bool scales = desc->kind == TAP_DNN_MATMUL && desc->alpha != 1.0f;
    bool adds = desc->kind == TAP_DNN_MATMUL && desc->beta != 0.0f;
    if (status || (!scales && !adds))
        return status;
    tap__dnn_posts posts;
    status = api.post_ops_create(&posts);
    if (status)
        return status;
    if (scales)
        status = api.post_ops_append_eltwise(posts, DNN_ELTWISE_LINEAR, desc->alpha, 0.0f);
    if (!status && adds)
        status = api.post_ops_append_sum(posts, desc->beta, 0, 0);
    if (!status)
        status = api.primitive_attr_set_post_ops(*out, posts);
    api.post_ops_destroy(posts);
    return status;
}

static const char *implementation_of(tap__dnn_plan plan)
{
    const char *name = NULL;
    return api.primitive_desc_query(plan, DNN_QUERY_IMPLEMENTATION, 0, &name) == 0 && name ? name : "ref";
}

/* Convolutions by tiles (AMX) are wrong in oneDNN 3.2: transposed ones give other numbers from call to call, the gradient
 * of a weight divides by zero (test_conv shows both). Takes the next best code. */
static int pass_over_tiles(tap__dnn_plan plan)
{
    int status = 0;
    while (!status && strstr(implementation_of(plan), "amx"))
        status = api.primitive_desc_next_impl(plan);
    return status;
}

/* The plan of a convolution's gradient wants that of its forward pass beside it, as a hint. */
static int make_conv(const tap__dnn_desc *desc, tap__dnn_layout *tensor, tap__dnn_attr attr, tap__dnn_plan *out)
{
    bool transposed = desc->kind >= TAP_DNN_DECONV;
    bool backward = desc->kind != TAP_DNN_CONV && desc->kind != TAP_DNN_DECONV;
    int algorithm = transposed ? DNN_DECONVOLUTION_DIRECT : DNN_CONVOLUTION_DIRECT;
    int prop = backward ? DNN_FORWARD_TRAINING : DNN_FORWARD_INFERENCE;
    tap__dnn_layout src = tensor[TAP_DNN_SRC], weights = tensor[TAP_DNN_WEIGHTS], bias = tensor[TAP_DNN_BIAS],
                    dst = tensor[TAP_DNN_DST];
    tap__dnn_plan forward = NULL;
    int status = (transposed ? api.deconvolution_forward_primitive_desc_create
                             : api.convolution_forward_primitive_desc_create)(
        &forward, api.engine, prop, algorithm, src, weights, bias, dst, desc->step, desc->dilate, desc->before,
        desc->after, attr);
    if (status)
        return status;
    if (!backward) {
        *out = forward;
        return pass_over_tiles(forward);
    }
    if (is_backward_data(desc->kind))
        status = (transposed ? api.deconvolution_backward_data_primitive_desc_create
                             : api.convolution_backward_data_primitive_desc_create)(
            out, api.engine, algorithm, src, weights, dst, desc->step, desc->dilate, desc->before, desc->after,
            forward, attr);
    else
        status = (transposed ? api.deconvolution_backward_weights_primitive_desc_create
                             : api.convolution_backward_weights_primitive_desc_create)(
            out, api.engine, algorithm, src, weights, bias, dst, desc->step, desc->dilate, desc->before, desc->after,
            forward, attr);
    if (!status)
        status = pass_over_tiles(*out); /* still looks at forward */
    api.primitive_desc_destroy(forward);
    return status;
}

static int make_copy(const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_attr attr, tap__dnn_plan *out)
{
    tap__dnn_layout other;
    if (!tap__dnn_layout_make(&desc->other, &other))
        return -1;
    bool fetch = desc->kind == TAP_DNN_FETCH;
    int status = api.reorder_primitive_desc_create(out, fetch ? wants : other, api.engine, fetch ? other : wants,
                                                   api.engine, attr);
    api.memory_desc_destroy(other);
    return status;
}

static int make_plan(const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_plan *out)
{
    tap__dnn_layout tensor[TAP_DNN_ROLES] = {NULL};
    tap__dnn_attr attr = NULL;
    int status = make_attr(desc, &attr);
    if (!status && desc->kind >= TAP_DNN_BRING) {
        status = make_copy(desc, wants, attr, out);
    } else if (!status) {
        for (int i = 0; i < TAP_DNN_ROLES && !status; i++)
            if (desc->tensor[i].dtype && !tap__dnn_layout_make(&desc->tensor[i], &tensor[i]))
                status = -1;
        if (!status && desc->kind == TAP_DNN_MATMUL)
            status = api.matmul_primitive_desc_create(out, api.engine, tensor[0], tensor[1], tensor[2], tensor[3],
                                                      attr);
        else if (!status)
            status = make_conv(desc, tensor, attr, out);
    }
    for (int i = 0; i < TAP_DNN_ROLES; i++)
        if (tensor[i])
            api.memory_desc_destroy(tensor[i]);
    if (attr)
        api.primitive_attr_destroy(attr);
    return status;
}

/* Its reference code is for checking, thousands of times slower: the framework is asked instead. */
static bool is_reference(tap__dnn_plan plan)
{
    return strncmp(implementation_of(plan), "ref", 3) == 0;
}

static void free_primitive(tap__dnn_primitive *self)
{
    if (self->code)
        api.primitive_destroy(self->code);
    if (self->plan)
        api.primitive_desc_destroy(self->plan);
    tap__free(self);
}

static tap_status make_primitive(const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_primitive **out,
                                 tap_error *err)
{
    tap__dnn_primitive *self = tap__calloc(1, sizeof *self);
    if (!self)
        return tap_fail_nomem(err);
    self->desc = *desc;
    /* the thread count is fixed into the code it generates */
    tap__thread_limit before = tap__thread_limit_enter(desc->threads);
    int status = make_plan(desc, wants, &self->plan);
    bool refused = status == 0 && desc->kind < TAP_DNN_BRING && is_reference(self->plan);
    if (status == 0 && !refused)
        status = api.primitive_create(&self->code, self->plan);
    tap__thread_limit_leave(before);
    if (status != 0 || refused) {
        free_primitive(self);
        return status == DNN_OUT_OF_MEMORY
                   ? tap_fail_nomem(err)
                   : tap_fail(err, TAP_E_UNSUPPORTED, "oneDNN has no fast code for these sizes and layouts");
    }
    for (int i = 0; i < TAP_DNN_ROLES; i++) {
        int arg = tap__dnn_role_arg((tap__dnn_kind)desc->kind, i);
        bool there = arg && (desc->kind >= TAP_DNN_BRING || desc->tensor[i].dtype);
        self->layout[i] = there ? api.primitive_desc_query_md(self->plan, DNN_QUERY_ARGUMENT, arg) : NULL;
    }
    self->scratch = api.primitive_desc_query_md(self->plan, DNN_QUERY_SCRATCHPAD, 0);
    self->scratch_bytes = self->scratch ? api.memory_desc_get_size(self->scratch) : 0;
    *out = self;
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- the cache */

enum { CACHE_SIZE = 256 };

static struct {
    tap__dnn_primitive *slot[CACHE_SIZE];
    uint64_t hash[CACHE_SIZE];
    int count;
    uint64_t clock;
    pthread_mutex_t lock;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tap__dnn_primitive *find_kept(const tap__dnn_desc *desc, uint64_t hash)
{
    for (int i = 0; i < cache.count; i++)
        if (cache.hash[i] == hash && memcmp(&cache.slot[i]->desc, desc, sizeof *desc) == 0) {
            cache.slot[i]->users++;
            cache.slot[i]->used = ++cache.clock;
            return cache.slot[i];
        }
    return NULL;
}

/* A place for one more: at the end, or that of the one not used for the longest time; -1 when all are in use. */
static int find_place(void)
{
    if (cache.count < CACHE_SIZE)
        return cache.count++;
    int oldest = -1;
    for (int i = 0; i < CACHE_SIZE; i++)
        if (cache.slot[i]->users == 0 && (oldest < 0 || cache.slot[i]->used < cache.slot[oldest]->used))
            oldest = i;
    if (oldest >= 0)
        free_primitive(cache.slot[oldest]);
    return oldest;
}

tap_status tap__dnn_primitive_get(const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_primitive **out,
                                  tap_error *err)
{
    uint64_t hash = tap_hash_bytes(desc, sizeof *desc);
    pthread_mutex_lock(&cache.lock);
    *out = find_kept(desc, hash);
    tap_status status = TAP_OK;
    if (!*out)
        status = make_primitive(desc, wants, out, err);
    if (status == TAP_OK && !(*out)->kept && (*out)->users == 0) {
        int place = find_place();
        (*out)->users = 1;
        (*out)->used = ++cache.clock;
        (*out)->kept = place >= 0;
        if (place >= 0) {
            cache.slot[place] = *out;
            cache.hash[place] = hash;
        }
    }
    pthread_mutex_unlock(&cache.lock);
    return status;
}

void tap__dnn_primitive_put(tap__dnn_primitive *primitive)
{
    if (!primitive)
        return;
    pthread_mutex_lock(&cache.lock);
    bool last = --primitive->users == 0 && !primitive->kept;
    pthread_mutex_unlock(&cache.lock);
    if (last)
        free_primitive(primitive);
}

int tap__dnn_kept(void)
{
    pthread_mutex_lock(&cache.lock);
    int count = cache.count;
    pthread_mutex_unlock(&cache.lock);
    return count;
}
