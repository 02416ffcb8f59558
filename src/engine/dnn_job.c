/* dnn_job.c - a primitive with the copies around it. Operands that lie as the primitive wants them are used in place;
 * others pass through scratch. Elements that repeat (strides of zero) or overlap are gathered by our own copy first, and
 * float16 and bfloat16 become float32 there, since oneDNN's own conversion is slow where it has no code for them. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/blas.h"
#include "engine/dnn_primitive.h"
#include "engine/kernels/strided.h"

#include <stdatomic.h>
#include <string.h>

enum { MAX_STEPS = 16, MAX_PLACES = 40, MAX_ARGS = 6, NO_ROLE = -1 };

/* Memory with a layout: an operand's own, or at an offset of the scratch. */
typedef struct place {
    tap__dnn_layout layout;
    int role;
    size_t offset;
} place;

typedef struct step {
    tap__dnn_primitive *primitive; /* NULL: our own copy between an operand and the scratch at `offset` */
    int nargs, arg[MAX_ARGS], place[MAX_ARGS];
    tap__dnn_tensor outer, inner;  /* the operand; its version in the scratch */
    int role;
    bool back;                     /* from the scratch to the operand */
    size_t offset;
} step;

/* An operand as oneDNN is shown it: in its own memory (role) or staged in the scratch. */
typedef struct stage {
    tap__dnn_tensor tensor;
    int role;
    size_t offset;
} stage;

/* What oneDNN wants per execution in flight. */
typedef struct context {
    tap__dnn_stream stream;
    tap__dnn_memory memory[MAX_PLACES];
} context;

struct tap__dnn_job {
    int threads, nsteps, nplaces;
    step steps[MAX_STEPS];
    place places[MAX_PLACES];
    tap__dnn_primitive *held[MAX_STEPS]; /* the steps' primitives: put back at the end */
    int nheld;
    size_t scratch;
    size_t work, work_bytes;             /* the primitives' own scratch */
    context ready;
    atomic_flag busy;
};

static size_t reserve(tap__dnn_job *job, size_t bytes)
{
    size_t at = job->scratch;
    job->scratch += (bytes + 63) / 64 * 64;
    return at;
}

static int add_place(tap__dnn_job *job, tap__dnn_layout layout, int role, size_t offset)
{
    job->places[job->nplaces] = (place){.layout = layout, .role = role, .offset = offset};
    return job->nplaces++;
}

static void add_arg(step *self, int arg, int where)
{
    self->arg[self->nargs] = arg;
    self->place[self->nargs++] = where;
}

/* Of the same sizes without gaps, the dimensions in the same order. */
static tap__dnn_tensor dense(const tap__dnn_tensor *tensor, int32_t dtype)
{
    tap__dnn_tensor out = *tensor;
    bool done[TAP_DNN_MAX_NDIM] = {false};
    int64_t stride = 1;
    out.any = 0;
    out.dtype = dtype;
    for (int n = 0; n < out.ndim; n++) {
        int next = -1;
        for (int i = out.ndim - 1; i >= 0; i--)
            if (!done[i] && (next < 0 || tensor->stride[i] < tensor->stride[next]))
                next = i;
        done[next] = true;
        out.stride[next] = stride;
        stride *= out.size[next];
    }
    return out;
}

static size_t bytes_of(const tap__dnn_tensor *tensor)
{
    size_t bytes = tap_dtype_describe((tap_dtype)tensor->dtype)->bytes;
    for (int i = 0; i < tensor->ndim; i++)
        bytes *= (size_t)tensor->size[i];
    return bytes;
}

static bool must_gather(const tap__dnn_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->stride[i] == 0 && tensor->size[i] > 1)
            return true;
    tap__dnn_layout layout;
    if (!tap__dnn_layout_make(tensor, &layout))
        return true;
    tap__dnn()->memory_desc_destroy(layout);
    return false;
}

static bool is_same_layout(const tap__dnn_tensor *tensor, tap__dnn_layout wants)
{
    tap__dnn_layout layout;
    if (!tap__dnn_layout_make(tensor, &layout))
        return false;
    bool same = tap__dnn()->memory_desc_equal(layout, wants) != 0;
    tap__dnn()->memory_desc_destroy(layout);
    return same;
}

static tap_status hold(tap__dnn_job *job, const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_primitive **out,
                       tap_error *err)
{
    TAP_TRY(tap__dnn_primitive_get(desc, wants, out, err));
    job->held[job->nheld++] = *out;
    return TAP_OK;
}

/* A copy between an operand, perhaps staged, and the primitive's own version of it. */
static tap_status add_copy(tap__dnn_job *job, const tap__dnn_primitive *main, tap__dnn_kind kind, int role,
                           const stage *outside, size_t inside, tap_error *err)
{
    tap__dnn_desc desc = main->desc;
    desc.of = desc.kind;
    desc.kind = kind;
    desc.role = role;
    desc.other = outside->tensor;
    tap__dnn_primitive *primitive;
    TAP_TRY(hold(job, &desc, main->layout[role], &primitive, err));
    step *self = &job->steps[job->nsteps++];
    self->primitive = primitive;
    bool bring = kind == TAP_DNN_BRING;
    int outer = add_place(job, primitive->layout[bring ? TAP_DNN_SRC : TAP_DNN_DST], outside->role, outside->offset);
    int own = add_place(job, primitive->layout[bring ? TAP_DNN_DST : TAP_DNN_SRC], NO_ROLE, inside);
    add_arg(self, tap__dnn_role_arg(kind, TAP_DNN_SRC), bring ? outer : own);
    add_arg(self, tap__dnn_role_arg(kind, TAP_DNN_DST), bring ? own : outer);
    return TAP_OK;
}

static void add_own_copy(tap__dnn_job *job, const tap__dnn_tensor *actual, int role, const stage *staged, bool back)
{
    step *self = &job->steps[job->nsteps++];
    self->outer = *actual;
    self->inner = staged->tensor;
    self->role = role;
    self->offset = staged->offset;
    self->back = back;
}

static stage stage_operand(tap__dnn_job *job, const tap__dnn_tensor *actual, int role, bool result, bool converts)
{
    if (!converts && (result || !must_gather(actual)))
        return (stage){*actual, role, 0};
    stage out = {dense(actual, converts ? TAP_F32 : actual->dtype), NO_ROLE, 0};
    out.offset = reserve(job, bytes_of(&out.tensor));
    return out;
}

/* Everything that happens to an operand before the primitive runs. */
static tap_status add_operand(tap__dnn_job *job, const tap__dnn_primitive *main, int role,
                              const tap__dnn_tensor *actual, step *compute, stage *outside, tap_error *err)
{
    tap__dnn_kind kind = (tap__dnn_kind)main->desc.kind;
    bool result = tap__dnn_role_is_result(kind, role);
    bool is_read = !result || (kind == TAP_DNN_MATMUL && main->desc.beta != 0.0f);
    bool converts = actual->dtype != TAP_F32 && main->desc.tensor[role].dtype == TAP_F32;
    *outside = stage_operand(job, actual, role, result, converts);
    if (outside->role == NO_ROLE && is_read)
        add_own_copy(job, actual, role, outside, false);
    int where;
    if (is_same_layout(&outside->tensor, main->layout[role])) {
        where = add_place(job, main->layout[role], outside->role, outside->offset);
    } else {
        size_t inside = reserve(job, tap__dnn()->memory_desc_get_size(main->layout[role]));
        where = add_place(job, main->layout[role], NO_ROLE, inside);
        if (is_read)
            TAP_TRY(add_copy(job, main, TAP_DNN_BRING, role, outside, inside, err));
    }
    add_arg(compute, tap__dnn_role_arg(kind, role), where);
    return TAP_OK;
}

/* And what happens to a result afterwards. */
static tap_status add_result(tap__dnn_job *job, const tap__dnn_primitive *main, int role,
                             const tap__dnn_tensor *actual, const step *compute, const stage *outside, tap_error *err)
{
    int arg = tap__dnn_role_arg((tap__dnn_kind)main->desc.kind, role);
    for (int i = 0; i < compute->nargs; i++) {
        const place *at = &job->places[compute->place[i]];
        bool direct = at->role == outside->role && at->offset == outside->offset;
        if (compute->arg[i] == arg && !direct)
            TAP_TRY(add_copy(job, main, TAP_DNN_FETCH, role, outside, at->offset, err));
    }
    if (outside->role == NO_ROLE)
        add_own_copy(job, actual, role, outside, true);
    return TAP_OK;
}

/* The primitives' own scratch is one area: they run one after the other. */
static void add_work_areas(tap__dnn_job *job)
{
    for (int i = 0; i < job->nsteps; i++)
        if (job->steps[i].primitive && job->steps[i].primitive->scratch_bytes > job->work_bytes)
            job->work_bytes = job->steps[i].primitive->scratch_bytes;
    job->work = reserve(job, job->work_bytes);
    for (int i = 0; i < job->nsteps; i++)
        if (job->steps[i].primitive && job->steps[i].primitive->scratch_bytes)
            add_arg(&job->steps[i], TAP_DNN_ARG_SCRATCHPAD,
                    add_place(job, job->steps[i].primitive->scratch, NO_ROLE, job->work));
}

static void close_context(const tap__dnn_job *job, context *self)
{
    for (int i = 0; i < job->nplaces; i++)
        if (self->memory[i])
            tap__dnn()->memory_destroy(self->memory[i]);
    if (self->stream)
        tap__dnn()->stream_destroy(self->stream);
    memset(self, 0, sizeof *self);
}

static tap_status open_context(const tap__dnn_job *job, context *self, tap_error *err)
{
    const tap__dnn_api *api = tap__dnn();
    memset(self, 0, sizeof *self);
    int status = api->stream_create(&self->stream, api->engine, 1);
    for (int i = 0; i < job->nplaces && !status; i++)
        status = api->memory_create(&self->memory[i], job->places[i].layout, api->engine, NULL);
    if (!status)
        return TAP_OK;
    close_context(job, self);
    return tap_fail_nomem(err);
}

static tap_status build(tap__dnn_job *job, const tap__dnn_desc *wanted, const tap__dnn_tensor *actual, tap_error *err)
{
    tap__dnn_primitive *main;
    TAP_TRY(hold(job, wanted, NULL, &main, err));
    step compute = {.primitive = main};
    stage outside[TAP_DNN_ROLES];
    for (int role = 0; role < TAP_DNN_ROLES; role++)
        if (main->layout[role])
            TAP_TRY(add_operand(job, main, role, &actual[role], &compute, &outside[role], err));
    job->steps[job->nsteps++] = compute;
    for (int role = 0; role < TAP_DNN_ROLES; role++)
        if (main->layout[role] && tap__dnn_role_is_result((tap__dnn_kind)main->desc.kind, role))
            TAP_TRY(add_result(job, main, role, &actual[role], &compute, &outside[role], err));
    add_work_areas(job);
    return open_context(job, &job->ready, err);
}

tap_status tap__dnn_job_make(const tap__dnn_desc *wanted, const tap__dnn_tensor actual[TAP_DNN_ROLES],
                             tap__dnn_job **out, tap_error *err)
{
    *out = NULL;
    if (!tap__dnn())
        return tap_fail(err, TAP_E_UNSUPPORTED, "oneDNN is not loaded");
    tap__dnn_job *job = tap__calloc(1, sizeof *job);
    if (!job)
        return tap_fail_nomem(err);
    job->threads = wanted->threads;
    atomic_flag_clear(&job->busy);
    tap_status status = build(job, wanted, actual, err);
    if (status != TAP_OK) {
        tap__dnn_job_free(job);
        return status;
    }
    *out = job;
    return TAP_OK;
}

size_t tap__dnn_job_scratch(const tap__dnn_job *job)
{
    return job->scratch;
}

static void run_own_copy(const step *self, const tap__call *call, void *data, char *scratch)
{
    const tap__dnn_tensor *to = self->back ? &self->outer : &self->inner, *from = self->back ? &self->inner : &self->outer;
    char *staged = scratch + self->offset;
    tap__strided_convert(call, (tap_dtype)to->dtype, (tap_dtype)from->dtype, to->ndim, to->size, to->stride,
                         self->back ? data : staged, from->stride, self->back ? staged : data);
}

static tap_status run_steps(const tap__dnn_job *job, const context *with, const tap__call *call, void *const *data,
                            char *scratch, tap_error *err)
{
    const tap__dnn_api *api = tap__dnn();
    for (int i = 0; i < job->nplaces; i++) {
        const place *at = &job->places[i];
        api->memory_set_data_handle(with->memory[i], at->role == NO_ROLE ? scratch + at->offset : data[at->role]);
    }
    for (int i = 0; i < job->nsteps; i++) {
        const step *self = &job->steps[i];
        if (!self->primitive) {
            run_own_copy(self, call, data[self->role], scratch);
            continue;
        }
        tap__dnn_arg args[MAX_ARGS];
        for (int k = 0; k < self->nargs; k++)
            args[k] = (tap__dnn_arg){self->arg[k], with->memory[self->place[k]]};
        int status = api->primitive_execute(self->primitive->code, with->stream, self->nargs, args);
        if (status)
            return tap_fail(err, TAP_E_INTERNAL, "oneDNN failed with status %d", status);
    }
    return TAP_OK;
}

tap_status tap__dnn_job_run(tap__dnn_job *job, const tap__call *call, void *const data[TAP_DNN_ROLES], void *scratch,
                            tap_error *err)
{
    context other, *with = &job->ready;
    bool own = !atomic_flag_test_and_set_explicit(&job->busy, memory_order_acquire);
    if (!own) {
        TAP_TRY(open_context(job, &other, err));
        with = &other;
    }
    tap__thread_limit before = tap__thread_limit_enter(job->threads);
    tap_status status = run_steps(job, with, call, data, scratch, err);
    tap__thread_limit_leave(before);
    if (own)
        atomic_flag_clear_explicit(&job->busy, memory_order_release);
    else
        close_context(job, &other);
    return status;
}

void tap__dnn_job_free(tap__dnn_job *job)
{
    if (!job)
        return;
    close_context(job, &job->ready);
    for (int i = 0; i < job->nheld; i++)
        tap__dnn_primitive_put(job->held[i]);
    tap__free(job);
}
