/* verify_files.c - what was asked for against what is there, in recordings of other layouts and in single files: each is
 * listed again, and what the list says of a value is held against the bytes of its file. */
#include "record/read/source_files.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "base/status.h"
#include "record/layouts/facts.h"
#include "record/layouts/hold.h"
#include "record/layouts/strmap.h"
#include "record/ring/journal.h"

#include <string.h>
#include <unistd.h>

typedef struct verify {
    tap_verifier *v;
    bool live;            /* a writer is at work: what has not come may still come */
    bool lists;           /* a file may hold many values: nobody knows how many a broken one held */
    tap_strmap gone;      /* files that are not there and were reported */
    tap_strmap dropped;   /* "rank/step/name": how many saves the journal has, less those whose files were missed */
    int32_t journal_rank; /* whose journal is read */
    bool failed;          /* no memory */
} verify;

static void report(verify *self, const tap_record *record, tap_problem_kind kind, uint64_t count, const char *why)
{
    tap__verify_report(self->v, (tap_problem){.kind = kind, .step = record->step, .name = record->name,
                                              .path = record->path, .count = count, .file = record->file,
                                              .reason = why});
}

/* How many saves of the name the journal has; made when it is not there. NULL: no memory. */
static uint64_t *dropped_of(verify *self, int32_t rank, int64_t step, const char *name)
{
    tap_strbuf key = TAP_STRBUF_INIT;
    bool added;
    tap__strbuf_printf(&key, "%d/%lld/%s", rank, (long long)step, name);
    uint64_t *count = key.failed ? NULL : tap__strmap_add(&self->dropped, key.text, key.len, &added);
    tap__strbuf_free(&key);
    return count;
}

static void note_dropped(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    verify *self = user;
    (void)reason, (void)bytes;
    uint64_t *known = *name ? dropped_of(self, self->journal_rank, step, name) : NULL;
    self->failed |= *name && !known;
    if (known)
        *known += count;
}

/* The file of a record is not there; once for each file. A save that the journal has is told by it, with the reason. */
static tap_status check_gone(verify *self, const tap_record *record)
{
    bool added;
    uint64_t *dropped = dropped_of(self, record->rank, record->step, record->name);
    if (!dropped || !tap__strmap_add(&self->gone, record->file, strlen(record->file), &added))
        return tap_fail_nomem(self->v->err);
    if (added && *dropped)
        --*dropped;
    else if (added)
        report(self, record, TAP_PROBLEM_MISSING, 1, tap_text("the file that holds its value is not there"));
    return TAP_OK;
}

static tap_status check_bytes(verify *self, const tap_record *record, const tap_facts *facts)
{
    tap_verifier *v = self->v;
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_error why;
    const char *differs = NULL;
    tap_status status = tap__record_map(v->run, record, &mapping, &why);
    if (status != TAP_OK) {
        report(self, record, status == TAP_E_NOTFOUND ? TAP_PROBLEM_MISSING : TAP_PROBLEM_CORRUPT, 1, why.message);
        return status == TAP_E_NOMEM ? tap_fail_nomem(v->err) : TAP_OK;
    }
    if (record->value_type == TAP_VALUE_TENSOR)
        status = tap__facts_check(record, facts, &mapping.tensor, &differs, v->err);
    if (differs)
        report(self, record, TAP_PROBLEM_CORRUPT, 1, differs);
    tap_mapping_release(&mapping);
    return status;
}

static tap_status check_record(void *user, const tap_record *record, const tap_facts *facts)
{
    verify *self = user;
    tap_verifier *v = self->v;
    v->rank = record->rank;
    if (facts->unknown) {
        report(self, record, TAP_PROBLEM_CORRUPT, 0, facts->why);
        return TAP_OK;
    }
    v->result.records += record->state != TAP_RECORD_SLOT;
    v->result.bytes += record->payload_bytes;
    switch (record->state) {
    case TAP_RECORD_SLOT:
        if (!self->live)
            report(self, record, TAP_PROBLEM_SLOT, 1, tap_text("announced, but the value never came"));
        return TAP_OK;
    case TAP_RECORD_TORN:
        report(self, record, TAP_PROBLEM_TORN, self->lists ? 0 : 1,
               facts->why ? facts->why : tap_text("its file cannot be read"));
        return TAP_OK;
    case TAP_RECORD_STATS_ONLY:
        return check_gone(self, record);
    case TAP_RECORD_RULE:
        report(self, record, TAP_PROBLEM_RULE, 1, tap_text("only its statistics were kept"));
        return TAP_OK;
    default:
        if (!v->options.quick && record->payload_bytes && record->file[0])
            TAP_TRY(check_bytes(self, record, facts));
        return tap__verify_go_on(v, v->done + record->payload_bytes);
    }
}

static void on_journal(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    tap_verifier *v = user;
    (void)bytes;
    bool killed = !*name && reason == TAP_REASON_KILLED;
    if (!*name)
        v->result.not_named += count;
    tap__verify_report(v, (tap_problem){.kind = killed ? TAP_PROBLEM_UNFINISHED : TAP_PROBLEM_DROPPED, .step = step,
                                        .name = name, .count = count,
                                        .reason = !killed ? tap__reason_text(reason)
                                                  : count ? tap_text("the program and its writer were killed before these "
                                                                     "were written")
                                                          : tap_text("the program and its writer were killed: how many "
                                                                     "saves are missing is not known")});
}

/* What was there when the recording was opened and is in no list any more. */
static tap_status check_rows(verify *self)
{
    tap_query query;
    tap_query_init(&query);
    query.incomplete = true;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_verifier *v = self->v;
    TAP_TRY(tap_run_query(v->run, &query, &cursor, v->err));
    tap_status status;
    while ((status = tap_cursor_next(cursor, &record, v->err)) == TAP_OK) {
        v->rank = record.rank;
        if (record.file[0] && !tap__dir_has(v->run->dir, record.file))
            status = check_gone(self, &record);
        if (status != TAP_OK)
            break;
    }
    tap_cursor_close(cursor);
    return status == TAP_END ? TAP_OK : status;
}

/* Lists it all. A list that cannot be read is a problem, not the end. */
static tap_status check_list(verify *self, const tap_files *files)
{
    tap_error why;
    tap_status status = tap__files_each(files, check_record, self, &why);
    if (status == TAP_OK)
        return TAP_OK;
    if (status == TAP_E_NOMEM || status == TAP_E_TIMEOUT) {
        if (self->v->err)
            *self->v->err = why;
        return status;
    }
    if (status != TAP_E_NOTFOUND) /* what was there is told record by record */
        tap__verify_report(self->v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = -1, .reason = why.message});
    return TAP_OK;
}

tap_status tap__verify_files(tap_verifier *v)
{
    const tap_files *files = (const tap_files *)v->run->sources[0];
    verify self = {.v = v, .live = !files->only && tap__run_is_held(files->dir),
                   .lists = files->layout && files->layout->one_file_per_value};
    v->total = files->source.info.bytes;
    tap_error damage; /* of a journal: it is a finding like others, and the values are looked at all the same */
    tap_status journals = tap__journal_read_beside(v->run->dir, note_dropped, &self, &self.journal_rank, &damage);
    tap_status status = journals == TAP_E_NOMEM ? tap_fail_nomem(v->err) : TAP_OK;
    if (status == TAP_OK)
        status = self.failed ? tap_fail_nomem(v->err) : check_list(&self, files);
    if (status == TAP_OK)
        status = check_rows(&self);
    tap__strmap_free(&self.gone);
    tap__strmap_free(&self.dropped);
    v->rank = 0;
    if (status != TAP_OK)
        return status;
    tap__journal_read_beside(v->run->dir, on_journal, v, &v->rank, NULL);
    v->rank = 0;
    if (journals != TAP_OK)
        tap__verify_report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = -1, .reason = damage.message});
    return TAP_OK;
}
