/* save_file.c - layouts of other tools: a leaf gets a name and a file, and an entry for what is gathered about it. */
#include "base/status.h"
#include "record/capture/save.h"

static tap_reason file_reason(tap_status status, bool named)
{
    return status == TAP_E_NOMEM     ? TAP_REASON_NO_MEMORY
           : status == TAP_E_NOSPACE ? TAP_REASON_DISK_FULL
           : named                   ? TAP_REASON_DISK_ERROR
                                     : TAP_REASON_BAD_NAME;
}

tap_status tap__save_file(tap_job *job, const tap_tensor *tensors, size_t count, bool list, tap_strbuf *path)
{
    tap_session *s = job->session;
    tap_error err;
    if (!s->layout->name_file)
        return TAP_OK;
    tap_status status = tap__namer_name(s->namer, &job->leaf, path, &err);
    if (status == TAP_OK && path->failed)
        status = tap_fail_nomem(&err);
    bool named = status == TAP_OK;
    bool to_writer = job->rec->options.asynchronous && !list && job->payload &&
                     job->payload <= tap__ring_max_payload(&s->ring);
    if (status == TAP_OK && path->len && !tap__is_announcement(job)) {
        job->file = path->text;
        if (!to_writer)
            status = list ? tap__layout_write_files(s->layout, s->dir, path->text, tensors, count, &err)
                          : tap__layout_write_file(s->layout, s->dir, path->text, tensors, &err);
    }
    if (status == TAP_OK && job->file && !s->has_ring)
        atomic_fetch_add_explicit(&s->put, 1, memory_order_relaxed);
    if (status != TAP_OK)
        tap__job_lose_because(job, file_reason(status, named), named ? TAP_TOLD_FILE : TAP_TOLD_NAME, err.message);
    return status;
}

static tap_status count_in_place(const tap_job *job)
{
    if (tap__is_announcement(job))
        return TAP_OK;
    tap__job_count_saved(job);
    atomic_fetch_add_explicit(&job->session->tally->named, 1, memory_order_relaxed); /* accounted for */
    return TAP_OK;
}

tap_status tap__save_compat(tap_job *job)
{
    tap_session *s = job->session;
    tap_strbuf path = TAP_STRBUF_INIT;
    tap_status status = tap__save_file(job, job->leaf.tensor, 1, false, &path);
    if (status == TAP_OK && s->has_ring) {
        bool small = job->payload <= tap__ring_max_payload(&s->ring);
        bool travels = job->rec->options.asynchronous || job->rec->options.checksum ||
                       job->leaf.value_type != TAP_VALUE_TENSOR;
        if (!small || !travels)
            job->payload = 0;
        bool for_writer = job->payload != 0 && job->rec->options.asynchronous && job->file;
        bool in_place = !for_writer && !s->layout->collect; /* or nothing to keep: the writer has no part in it */
        status = in_place ? count_in_place(job) : tap__save_entry(job);
        if (for_writer && !job->payload && status == TAP_E_LOST && job->state == TAP_RECORD_STATS_ONLY)
            tap__job_lose(job, tap__job_why_full(job)); /* its file: the collector has the statistics */
    }
    tap__strbuf_free(&path);
    return status;
}

