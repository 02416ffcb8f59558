/* save.c - the capture path: a tensor becomes an entry in the ring. One pass fills statistics, hash and copy. */
#include "base/sized.h"
#include "record/capture/save.h"
#include "record/layouts/checksum.h"
#include "tensor/pass.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- entries */

static tap_status save_pieces(tap_job *job, tap_findings *found)
{
    tap_pass pass;
    uint64_t bytes;
    if (tap__pass_begin(&pass, job->leaf.tensor, found->what, NULL) != TAP_OK)
        return tap__job_abandon(job, TAP_REASON_BAD_VALUE);
    for (;;) {
        void *room = tap__job_piece(job, &bytes);
        if (!bytes)
            break;
        tap__pass_next(&pass, room, bytes); /* without room the statistics still want to see it */
        if (room)
            tap__job_send(job);
    }
    tap__pass_end(&pass, &found->stats, &found->hash);
    return tap__job_commit(job, found);
}

static tap_status save_bytes(tap_job *job, tap_findings *found)
{
    tap_pass pass;
    if (tap__pass_begin(&pass, job->leaf.tensor, found->what, NULL) != TAP_OK)
        return tap__job_abandon(job, TAP_REASON_BAD_VALUE);
    tap__pass_next(&pass, job->room, pass.bytes);
    tap__pass_end(&pass, &found->stats, &found->hash);
    return tap__job_commit(job, found);
}

tap_status tap__save_entry(tap_job *job)
{
    TAP_TRY(tap__job_reserve(job));
    tap_findings found;
    tap_checksum sum = job->rec->options.checksum;
    found.what = tap__job_wants(job);
    found.has_sum = sum && !job->payload && job->leaf.tensor && job->leaf.tensor->data;
    if (found.has_sum)
        found.sum = tap__checksum_tensor(sum, job->leaf.tensor);
    if (job->streams)
        return save_pieces(job, &found);
    return found.what || job->room ? save_bytes(job, &found) : tap__job_commit(job, &found);
}

/* ----------------------------------------------------------------------------------------------------------- leaves */

/* From here on a view must not repeat each of its elements this often: reading and writing it would take the time and the
 * space of what is not there. */
enum { REPEATS = 16 };
#define REPEATED_BYTES (1ll << 34)

/* Dimensions with stride 0 show the same elements again. */
static bool repeats_for_ever(const tap_tensor *tensor, int64_t bytes)
{
    int64_t own = bytes;
    if (bytes < REPEATED_BYTES)
        return false;
    for (int i = 0; tensor->strides && i < tensor->ndim; i++)
        if (tensor->strides[i] == 0 && tensor->shape[i] > 1)
            own /= tensor->shape[i];
    return own <= bytes / REPEATS;
}

/* Looks at a leaf's tensor, once, before anything reads it. */
static bool leaf_is_sound(tap_job *job, bool has_data)
{
    tap_error why;
    int64_t count;
    tap_status status = has_data ? tap__tensor_check(job->leaf.tensor, &count, &why)
                                 : tap__shape_check(job->leaf.tensor, &why);
    int64_t bytes = has_data && status == TAP_OK ? tap_tensor_bytes(job->leaf.tensor) : 0;
    if (repeats_for_ever(job->leaf.tensor, bytes))
        status = tap_fail(&why, TAP_E_LIMIT, "a view that repeats its elements until they are %lld bytes; save the tensor "
                          "that was expanded", (long long)bytes);
    if (status == TAP_OK)
        return true;
    tap__job_refuse(job, why.message);
    return false;
}

tap_status tap__save_leaf(tap_job *job)
{
    const tap_tensor *tensor = job->leaf.tensor;
    bool announced = tap__is_announcement(job);
    job->payload = 0;
    if (announced)
        job->state = TAP_RECORD_SLOT;
    bool has_data = tensor && job->leaf.value_type != TAP_VALUE_META && !announced;
    if (tensor && !leaf_is_sound(job, has_data))
        return TAP_E_INVALID;
    if (has_data) {
        bool keep = job->rec->options.keep & TAP_KEEP_TENSOR || job->leaf.value_type != TAP_VALUE_TENSOR;
        if (keep || (job->rec->options.checksum && !job->session->layout->native))
            job->payload = (uint64_t)tap_tensor_bytes(tensor);
    }
    if (!job->session->layout->native)
        return tap__save_compat(job);
    return tap__save_entry(job);
}

/* --------------------------------------------------------------------------------------------------------- the calls */

tap_status tap__recorder_keep(tap_recorder *rec)
{
    tap_session *session = tap__recorder_session(rec);
    bool stuck = session && session->has_ring && tap__session_is_stuck(session);
    tap_error err;
    tap_status status = tap_recorder_flush(rec, stuck ? 0 : -1, &err);
    if (status == TAP_E_TIMEOUT && !stuck)
        tap__recorder_tell(rec, TAP_TOLD_FLUSH, &err);
    return status;
}

tap_status tap__save_end(tap_job *job, tap_status status)
{
    if (atomic_load_explicit(&job->site->lost, memory_order_relaxed) && !job->session->layout->native)
        tap__losses_journal(job->rec, job->session, job->site); /* now: nobody else could name it */
    if (job->rec->options.durability == TAP_DURABLE_SAVE && status == TAP_OK)
        return tap__recorder_keep(job->rec);
    return status;
}

tap_status tap__save_filtered(tap_recorder *rec)
{
    if (rec)
        atomic_fetch_add_explicit(&rec->filtered, 1, memory_order_relaxed);
    return TAP_OK;
}

/* Kept out of tap_save, so that saying no costs no stack frame. */
static __attribute__((noinline)) tap_status save_tensor(tap_recorder *rec, const char *name, const tap_tensor *tensor,
                                                        const tap_save_info *info)
{
    tap_job job;
    tap_status status;
    if (!tap__job_begin(&job, rec, name, info, &status))
        return status;
    tap__job_number(&job);
    job.leaf.tensor = tensor;
    job.leaf.value_type = tensor || tap__is_announcement(&job) ? TAP_VALUE_TENSOR : TAP_VALUE_NONE;
    job.leaf.path = job.leaf.info->path;
    job.leaf.path_len = job.leaf.path ? strlen(job.leaf.path) : 0;
    return tap__save_end(&job, tap__save_leaf(&job));
}

tap_status tap__save_resized(tap_recorder *rec, const char *name, const tap_tensor *tensor,
                                                         const tap_value *value, const tap_save_info *info)
{
    if (TAP_SIZE_IS_KNOWN(tap_save_info, info)) {
        tap_save_info whole = TAP_SAVE_INFO();
        tap__sized_take(&whole, info);
        return value ? tap_save_value(rec, name, value, &whole) : tap_save(rec, name, tensor, &whole);
    }
    tap_job job;
    tap_status status;
    if (!tap__is_active(rec, NULL))
        return tap__save_filtered(rec);
    if (tap__job_begin(&job, rec, name, NULL, &status)) {
        tap_error why;
        status = tap__wrong_size(&why, value ? "tap_save_value" : "tap_save", "tap_save_info", info->size, sizeof *info);
        tap__job_refuse(&job, why.message);
    }
    return status;
}

tap_status tap_save(tap_recorder *rec, const char *name, const tap_tensor *tensor, const tap_save_info *info)
{
    if (tap__is_resized(rec, info))
        return tap__save_resized(rec, name, tensor, NULL, info);
    if (!tap__is_active(rec, info))
        return tap__save_filtered(rec);
    return save_tensor(rec, name, tensor, info);
}

bool tap_recorder_wants(tap_recorder *rec, const char *name)
{
    if (!tap__is_active(rec, NULL))
        return false;
    tap_session *session = tap__recorder_session(rec);
    tap_site *site = session ? tap__site_table_find(&session->sites, name ? name : "") : NULL;
    return site && site->wanted;
}

tap_status tap_recorder_declare(tap_recorder *rec, const char *name, const tap_save_info *info)
{
    tap_job job;
    tap_status status = TAP_OK;
    tap_save_info whole = TAP_SAVE_INFO();
    tap_error err;
    if (info && !TAP_SIZE_IS_KNOWN(tap_save_info, info)) {
        status = tap__wrong_size(&err, __func__, "tap_save_info", info->size, sizeof *info);
        if (rec)
            tap__recorder_tell(rec, 0, &err);
        return status;
    }
    if (info)
        tap__sized_take(&whole, info);
    info = &whole;
    if (!rec || !rec->rank_wanted || !tap__job_begin(&job, rec, name, info, &status) || !job.session->has_ring)
        return status;
    job.type = TAP_ENTRY_DECLARE;
    job.state = TAP_RECORD_DECLARED;
    return tap__job_put(&job);
}
