/* onednn.h - oneDNN 3's C interface, loaded at run time and never linked: the functions used are one table, its types
 * and numbers are declared here, so no header of it is needed to build.
 *
 * A primitive is a computation made for exact sizes, layouts and thread count; making one takes a fraction of a
 * millisecond, so they are kept by description and shared. A job is a primitive together with the copies that bring
 * operands into the layouts it wants and its results back. Both may be run by several threads at once. */
#ifndef TAP_ENGINE_ONEDNN_H
#define TAP_ENGINE_ONEDNN_H

#include "engine/kernel.h"

typedef struct dnnl_engine *tap__dnn_engine;
typedef struct dnnl_stream *tap__dnn_stream;
typedef struct dnnl_memory *tap__dnn_memory;
typedef struct dnnl_memory_desc *tap__dnn_layout;
typedef struct dnnl_primitive *tap__dnn_code;
typedef struct dnnl_primitive_desc *tap__dnn_plan;
typedef struct dnnl_primitive_attr *tap__dnn_attr;
typedef struct dnnl_post_ops *tap__dnn_posts;

/* One argument of an execution. */
typedef struct tap__dnn_arg {
    int arg;
    tap__dnn_memory memory;
} tap__dnn_arg;

enum { TAP_DNN_MAX_NDIM = 12 };

/* X(return type, name without dnnl_, parameters) */
#define TAP_DNN_FUNCTIONS(X)                                                                                         \
    X(int, engine_create, (tap__dnn_engine * engine, int kind, size_t index))                                        \
    X(int, stream_create, (tap__dnn_stream * stream, tap__dnn_engine engine, unsigned flags))                        \
    X(int, stream_destroy, (tap__dnn_stream stream))                                                                 \
    X(int, memory_create, (tap__dnn_memory * memory, tap__dnn_layout layout, tap__dnn_engine engine, void *data))    \
    X(int, memory_set_data_handle, (tap__dnn_memory memory, void *data))                                             \
    X(int, memory_destroy, (tap__dnn_memory memory))                                                                 \
    X(int, memory_desc_create_with_strides,                                                                          \
      (tap__dnn_layout * layout, int ndim, const int64_t *size, int dtype, const int64_t *stride))                   \
    X(int, memory_desc_create_with_tag,                                                                              \
      (tap__dnn_layout * layout, int ndim, const int64_t *size, int dtype, int tag))                                 \
    X(int, memory_desc_destroy, (tap__dnn_layout layout))                                                            \
    X(int, memory_desc_equal, (tap__dnn_layout a, tap__dnn_layout b))                                                \
    X(size_t, memory_desc_get_size, (tap__dnn_layout layout))                                                        \
    X(int, primitive_attr_create, (tap__dnn_attr * attr))                                                            \
    X(int, primitive_attr_destroy, (tap__dnn_attr attr))                                                             \
    X(int, primitive_attr_set_scratchpad_mode, (tap__dnn_attr attr, int mode))                                       \
    X(int, primitive_attr_set_post_ops, (tap__dnn_attr attr, tap__dnn_posts posts))                                  \
    X(int, post_ops_create, (tap__dnn_posts * posts))                                                                \
    X(int, post_ops_destroy, (tap__dnn_posts posts))                                                                 \
    X(int, post_ops_append_eltwise, (tap__dnn_posts posts, int algorithm, float alpha, float beta))                  \
    X(int, post_ops_append_sum, (tap__dnn_posts posts, float scale, int32_t zero_point, int dtype))                  \
    X(int, primitive_desc_destroy, (tap__dnn_plan plan))                                                             \
    X(int, primitive_desc_query, (tap__dnn_plan plan, int what, int index, void *result))                            \
    X(int, primitive_desc_next_impl, (tap__dnn_plan plan))                                                           \
    X(tap__dnn_layout, primitive_desc_query_md, (tap__dnn_plan plan, int what, int index))                           \
    X(int, primitive_create, (tap__dnn_code * code, tap__dnn_plan plan))                                             \
    X(int, primitive_destroy, (tap__dnn_code code))                                                                  \
    X(int, primitive_execute, (tap__dnn_code code, tap__dnn_stream stream, int nargs, const tap__dnn_arg *args))     \
    X(int, reorder_primitive_desc_create,                                                                            \
      (tap__dnn_plan * plan, tap__dnn_layout from, tap__dnn_engine from_engine, tap__dnn_layout to,                  \
       tap__dnn_engine to_engine, tap__dnn_attr attr))                                                               \
    X(int, matmul_primitive_desc_create,                                                                             \
      (tap__dnn_plan * plan, tap__dnn_engine engine, tap__dnn_layout src, tap__dnn_layout weights,                   \
       tap__dnn_layout bias, tap__dnn_layout dst, tap__dnn_attr attr))                                               \
    X(int, convolution_forward_primitive_desc_create, TAP__DNN_FORWARD)                                              \
    X(int, convolution_backward_data_primitive_desc_create, TAP__DNN_DATA)                                           \
    X(int, convolution_backward_weights_primitive_desc_create, TAP__DNN_WEIGHTS)                                     \
    X(int, deconvolution_forward_primitive_desc_create, TAP__DNN_FORWARD)                                            \
    X(int, deconvolution_backward_data_primitive_desc_create, TAP__DNN_DATA)                                         \
    X(int, deconvolution_backward_weights_primitive_desc_create, TAP__DNN_WEIGHTS)                                   \
    X(int, sgemm,                                                                                                    \
      (char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,          \
       const float *b, int64_t ldb, float beta, float *c, int64_t ldc))

#define TAP__DNN_FORWARD                                                                                             \
    (tap__dnn_plan * plan, tap__dnn_engine engine, int prop, int algorithm, tap__dnn_layout src,                     \
     tap__dnn_layout weights, tap__dnn_layout bias, tap__dnn_layout dst, const int64_t *step, const int64_t *dilate, \
     const int64_t *before, const int64_t *after, tap__dnn_attr attr)
#define TAP__DNN_DATA                                                                                                \
    (tap__dnn_plan * plan, tap__dnn_engine engine, int algorithm, tap__dnn_layout src, tap__dnn_layout weights,      \
     tap__dnn_layout dst, const int64_t *step, const int64_t *dilate, const int64_t *before, const int64_t *after,   \
     tap__dnn_plan forward, tap__dnn_attr attr)
#define TAP__DNN_WEIGHTS                                                                                             \
    (tap__dnn_plan * plan, tap__dnn_engine engine, int algorithm, tap__dnn_layout src, tap__dnn_layout weights,      \
     tap__dnn_layout bias, tap__dnn_layout dst, const int64_t *step, const int64_t *dilate, const int64_t *before,   \
     const int64_t *after, tap__dnn_plan forward, tap__dnn_attr attr)

typedef struct tap__dnn_api {
#define X(type, name, parameters) type(*name) parameters;
    TAP_DNN_FUNCTIONS(X)
#undef X
    tap__dnn_engine engine;
} tap__dnn_api;

/* Loads the library at its first call; NULL when it is not there, which is said once through the log. */
const tap__dnn_api *tap__dnn(void);

/* ----------------------------------------------------------------------------------------------------- primitives */

/* A tensor as a primitive sees it. any: the primitive may choose the layout itself; strides are then not looked at.
 * All fields of these structs are compared byte by byte: fill them from zero. */
typedef struct tap__dnn_tensor {
    int32_t dtype; /* a tap_dtype: F16, BF16, F32; NONE: left out */
    int32_t ndim;
    int64_t any;
    int64_t size[TAP_DNN_MAX_NDIM], stride[TAP_DNN_MAX_NDIM];
} tap__dnn_tensor;

typedef enum tap__dnn_kind {
    TAP_DNN_MATMUL,       /* dst = alpha * src @ weights + bias, + beta * dst when beta is not 0 */
    TAP_DNN_CONV,         /* dst = src * weights + bias */
    TAP_DNN_CONV_DATA,    /* src, a gradient, from weights and the gradient dst */
    TAP_DNN_CONV_WEIGHTS, /* weights, a gradient, from src and the gradient dst */
    TAP_DNN_DECONV,       /* the same three of the transposed convolution */
    TAP_DNN_DECONV_DATA,
    TAP_DNN_DECONV_WEIGHTS,
    TAP_DNN_BRING,        /* copies made by jobs: other -> the tensor of `role` in the layout the primitive wants */
    TAP_DNN_FETCH         /* and back */
} tap__dnn_kind;

enum { TAP_DNN_SRC, TAP_DNN_WEIGHTS, TAP_DNN_BIAS, TAP_DNN_DST, TAP_DNN_ROLES };

typedef struct tap__dnn_desc {
    int32_t kind, threads;
    int32_t of, role;               /* BRING, FETCH: the primitive's kind and which of its tensors */
    float alpha, beta;              /* MATMUL */
    tap__dnn_tensor tensor[TAP_DNN_ROLES];
    tap__dnn_tensor other;          /* BRING, FETCH */
    int64_t step[3], dilate[3], before[3], after[3];
} tap__dnn_desc;

/* --------------------------------------------------------------------------------------------------------- jobs */

typedef struct tap__dnn_job tap__dnn_job;

/* A job for operands as `actual` describes them, computed by the primitive `wanted`, whose tensors have the same sizes
 * but may have other dtypes and layouts. Fails with TAP_E_UNSUPPORTED when oneDNN has no fast code for it. */
tap_status tap__dnn_job_make(const tap__dnn_desc *wanted, const tap__dnn_tensor actual[TAP_DNN_ROLES],
                             tap__dnn_job **out, tap_error *err);
size_t tap__dnn_job_scratch(const tap__dnn_job *job);
/* data: addresses of the roles' tensors. */
tap_status tap__dnn_job_run(tap__dnn_job *job, const tap__call *call, void *const data[TAP_DNN_ROLES], void *scratch,
                            tap_error *err);
void tap__dnn_job_free(tap__dnn_job *job); /* NULL is fine */

/* How many primitives are kept, for tests. */
int tap__dnn_kept(void);

#endif
