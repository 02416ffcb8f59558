/* verify_native.c - what was asked for against what is there, in recordings of our own. The segments are the truth; the
 * index, by which everything else reads, is held against them. */
#include "record/read/source_native.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/read/verify_ledger.h"
#include "record/ring/journal.h"
#include "tensor/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The finished index, walked beside the segments: what it lacks, ls does not show. */
typedef struct beside {
    tap_index *index;     /* NULL: there is none, or it cannot be read; then nothing trusts it */
    tap_index_rows *rows;
    tap_row row;
    bool more;
    uint64_t lacking;     /* records of the segments that it does not have, or has elsewhere */
} beside;

typedef struct verify {
    tap_verifier *v;
    tap_native *native;
    tap_scan scan;
    tap_ledger ledger;
    beside beside;
    uint64_t passed;                    /* bytes of segments passed */
    uint32_t bad_header_said;           /* segment + 1 */
    char file[128];
    tap_error *err;
} verify;

static void report(verify *v, tap_problem problem)
{
    tap__verify_report(v->v, problem);
}

static const char *segment_name(verify *v, uint32_t segment)
{
    snprintf(v->file, sizeof v->file, "%s-%06u.tap", v->native->source.relative, segment);
    return v->file;
}

/* -------------------------------------------------------------------------------------------------------- payloads */

/* Reads a payload and compares its hash: TAP_OK also when it does not match (*same). */
static tap_status hash_check(verify *v, int fd, uint64_t offset, uint64_t bytes, uint64_t hash, bool *same)
{
    uint64_t sum = 0, at = 0;
    *same = true;
    while (at < bytes && *same) {
        size_t want = bytes - at < TAP_VERIFY_PIECE ? (size_t)(bytes - at) : TAP_VERIFY_PIECE;
        ssize_t got = tap__pread_all(fd, v->v->piece, want, (off_t)(offset + at));
        *same = got == (ssize_t)want; /* a disk that cannot read it has not kept it */
        sum += tap__hash_sum(v->v->piece, want, at / 8);
        at += want;
        TAP_TRY(tap__verify_go_on(v->v, v->passed + (fd == v->scan.fd ? offset + at : 0)));
    }
    *same = *same && tap__hash_finish(sum, bytes) == hash;
    return TAP_OK;
}

static void corrupt(verify *v, const tap_ledger_item *site, uint32_t segment)
{
    report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = site->step, .name = site->name, .path = site->path,
                            .count = 1, .file = segment_name(v, segment),
                            .reason = tap_text("the bytes on disk do not match their checksum")});
}

/* A BIG payload is checked when its trailer brings the hash; its segment may be passed by then. */
static tap_status big_check(verify *v, const tap_ledger_item *big, const tap_entry *trailer)
{
    if (v->v->options.quick || !(trailer->has & TAP_HAS_HASH) || !big->bytes)
        return TAP_OK;
    char name[TAP_ATTEMPT_NAME];
    int fd = tap__dir_file(v->native->files.root, tap__segment_name(&v->native->files, big->segment, name), O_RDONLY);
    bool same = false;
    tap_status status = TAP_OK;
    if (fd >= 0) {
        status = hash_check(v, fd, big->offset, big->bytes, trailer->hash, &same);
        close(fd);
    }
    if (status == TAP_OK && !same)
        corrupt(v, big, big->segment);
    return status;
}

/* --------------------------------------------------------------------------------------------------------- entries */

static void report_state(verify *v, const tap_ledger_item *site, unsigned state, unsigned reason, uint32_t segment)
{
    tap_problem_kind kind = state == TAP_RECORD_STATS_ONLY ? TAP_PROBLEM_STATS_ONLY
                            : state == TAP_RECORD_RULE     ? TAP_PROBLEM_RULE
                                                           : TAP_PROBLEM_TORN;
    const char *why = reason != TAP_REASON_NONE ? tap__reason_text((tap_reason)reason)
                      : kind == TAP_PROBLEM_TORN ? tap__reason_text(TAP_REASON_KILLED)
                                                 : tap_text("only its statistics were kept");
    report(v, (tap_problem){.kind = kind, .step = site->step, .name = site->name, .path = site->path, .count = 1,
                            .file = segment_name(v, segment), .reason = why});
}

static void report_cut(verify *v, const tap_ledger_item *site, uint32_t segment)
{
    bool ended = v->native->source.info.ended[0];
    report(v, (tap_problem){.kind = ended ? TAP_PROBLEM_MISSING : TAP_PROBLEM_TORN, .step = site->step,
                            .name = site->name, .path = site->path, .count = 1, .file = segment_name(v, segment),
                            .reason = ended ? tap_text("the file ends inside it: it was cut after it was written")
                                            : tap__reason_text(TAP_REASON_KILLED)});
}

/* ------------------------------------------------------------------------------------------------------- the index */

static void beside_next(beside *b)
{
    tap_status status = b->more ? tap__index_next(b->rows, &b->row, NULL) : TAP_END;
    b->more = status == TAP_OK;
    if (status != TAP_OK && status != TAP_END) { /* damaged, which every reader notices */
        tap__index_rows_close(b->rows);
        tap__index_close(b->index);
        *b = (beside){.index = NULL};
    }
}

static void beside_open(verify *v)
{
    beside *b = &v->beside;
    *b = (beside){.index = NULL};
    if (v->native->source.indexed && tap__index_open(&v->native->files, &b->index, NULL) == TAP_OK) {
        tap_index_query all = {.end_seq = INT64_MAX, .kind = -1, .incomplete = true};
        b->more = tap__index_select(b->index, &all, &b->rows, NULL) == TAP_OK;
        if (!b->more) {
            tap__index_close(b->index);
            b->index = NULL;
        }
        beside_next(b);
    }
}

static void beside_check(beside *b, const tap_entry *entry, uint32_t segment, uint64_t offset)
{
    while (b->more && b->row.seq < entry->seq)
        beside_next(b);
    if (!b->index)
        return;
    bool has = b->more && b->row.seq == entry->seq && b->row.segment == segment &&
               (!entry->payload_bytes || b->row.offset == offset + entry->payload_offset);
    b->lacking += !has;
}

static void beside_close(verify *v)
{
    beside *b = &v->beside;
    if (b->lacking) {
        char reason[160];
        snprintf(v->file, sizeof v->file, "%s.sqlite", v->native->source.relative);
        snprintf(reason, sizeof reason, tap_text("the index lacks %" PRIu64 " records that the segments hold; run: "
                                                 "tensortap index DIR"), b->lacking);
        report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = -1, .file = v->file, .reason = reason});
    }
    if (b->index) {
        tap__index_rows_close(b->rows);
        tap__index_close(b->index);
    }
    *b = (beside){.index = NULL};
}

/* --------------------------------------------------------------------------------------------------------- entries */

static tap_status check_value(verify *v, const tap_entry *entry, const tap_ledger_item *site, uint32_t segment,
                              uint64_t offset, bool cut)
{
    v->v->result.records++;
    v->v->result.bytes += entry->payload_bytes;
    beside_check(&v->beside, entry, segment, offset);
    if (entry->type == TAP_ENTRY_BIG) {
        tap_ledger_item big = *site;
        big.seq = entry->seq;
        big.segment = segment;
        big.offset = offset + entry->payload_offset;
        big.bytes = entry->payload_bytes;
        return tap__ledger_add_big(&v->ledger, &big) ? TAP_OK : tap_fail_nomem(v->err);
    }
    if (cut) {
        report_cut(v, site, segment);
        return TAP_OK;
    }
    if (entry->state != TAP_RECORD_WHOLE)
        report_state(v, site, entry->state, entry->reason, segment);
    if (v->v->options.quick || !entry->payload_bytes || !(entry->has & TAP_HAS_HASH))
        return TAP_OK;
    bool same;
    TAP_TRY(hash_check(v, v->scan.fd, offset + entry->payload_offset, entry->payload_bytes, entry->hash, &same));
    if (!same)
        corrupt(v, site, segment);
    return TAP_OK;
}

static tap_status check_trailer(verify *v, const tap_entry *entry)
{
    tap_ledger_item *big = tap__ledger_take_big(&v->ledger, entry->ref);
    if (!big) /* its entry was lost, which the gap in seq has told */
        return TAP_OK;
    if (entry->state != TAP_RECORD_WHOLE)
        report_state(v, big, entry->state, entry->reason, big->segment);
    tap_status status = entry->state == TAP_RECORD_WHOLE ? big_check(v, big, entry) : TAP_OK;
    tap__ledger_item_free(big);
    return status;
}

/* why: in the words of who could not read the value, else "". */
static void check_lost(verify *v, const tap_entry *entry, const tap_ledger_item *site, const char *why)
{
    tap_reason reason = (tap_reason)entry->reason;
    report(v, (tap_problem){.kind = tap__reason_is_rule(reason)        ? TAP_PROBLEM_RULE
                                    : reason == TAP_REASON_KILLED      ? TAP_PROBLEM_TORN
                                    : entry->state == TAP_RECORD_STATS_ONLY ? TAP_PROBLEM_STATS_ONLY
                                                                       : TAP_PROBLEM_DROPPED,
                            .step = entry->step, .name = site->name, .path = site->path, .count = entry->count,
                            .reason = *why ? why : tap__reason_text(reason)});
    if (reason == TAP_REASON_BAD_VALUE) /* a gradient that came and could not be read */
        tap__ledger_value(&v->ledger, site);
}

static tap_status check_site(verify *v, const tap_entry *entry, const tap_ledger_item *site, const char *type_name,
                             uint32_t segment, uint64_t offset, bool cut)
{
    bool ok = true;
    switch (entry->type) {
    case TAP_ENTRY_DECLARE: ok = tap__ledger_declare(&v->ledger, site->name); break;
    case TAP_ENTRY_LOST:
        ok = tap__ledger_ran(&v->ledger, site->name);
        check_lost(v, entry, site, type_name);
        break;
    default:
        ok = tap__ledger_ran(&v->ledger, site->name);
        if (ok && (entry->flags & TAP_SAVE_SLOT))
            ok = tap__ledger_slot(&v->ledger, site);
        else if (entry->flags & TAP_SAVE_SLOT_GONE)
            tap__ledger_slot_gone(&v->ledger, site);
        else if (ok) {
            tap__ledger_value(&v->ledger, site);
            return check_value(v, entry, site, segment, offset, cut);
        }
    }
    return ok ? TAP_OK : tap_fail_nomem(v->err);
}

static tap_status check_entry(verify *v, const tap_entry *entry, tap_decoded *decoded, uint32_t segment,
                              uint64_t offset, bool cut)
{
    if (entry->type == TAP_ENTRY_TRAILER)
        return check_trailer(v, entry);
    if (entry->type != TAP_ENTRY_DATA && entry->type != TAP_ENTRY_BIG && entry->type != TAP_ENTRY_DECLARE &&
        entry->type != TAP_ENTRY_LOST)
        return TAP_OK;
    tap_status status = tap__entry_decode(entry, decoded, v->err);
    if (status == TAP_E_CORRUPT) /* sealed by a later version in a way we do not read */
        return TAP_OK;
    TAP_TRY(status);
    const tap_record *record = &decoded->record;
    tap_ledger_item site = {.name = (char *)record->name, .path = (char *)record->path, .step = record->step,
                     .call = record->call, .kind = (uint8_t)record->kind};
    return check_site(v, entry, &site, record->type_name, segment, offset, cut);
}

/* ------------------------------------------------------------------------------------------------------------ gaps */

static void report_header(verify *v)
{
    if (!v->scan.bad_header || v->bad_header_said == v->scan.segment + 1)
        return;
    v->bad_header_said = v->scan.segment + 1;
    report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = -1, .file = segment_name(v, v->scan.segment),
                            .reason = tap_text("the header of the segment is damaged or of another attempt")});
}

/* What lay before the entry just given. entries: how many are not there. */
static void report_gap(verify *v, uint64_t entries)
{
    const tap_scan *scan = &v->scan;
    char reason[200];
    if (scan->missing_segments) {
        snprintf(reason, sizeof reason,
                 tap_text("%u segment files from this one on are not there, %" PRIu64 " entries"),
                 scan->missing_segments, entries);
        report(v, (tap_problem){.kind = TAP_PROBLEM_MISSING, .step = -1, .count = entries,
                                .file = segment_name(v, scan->missing_first), .reason = reason});
        entries = 0;
    }
    if (scan->damage_bytes) {
        bool torn = scan->damage_is_tail && !v->native->source.info.ended[0];
        snprintf(reason, sizeof reason,
                 torn ? tap_text("the writer was killed while writing: %" PRIu64 " bytes from %" PRIu64
                                 " on are no whole entry, %" PRIu64 " entries")
                      : tap_text("%" PRIu64 " bytes from %" PRIu64 " on are damaged, %" PRIu64 " entries"),
                 scan->damage_bytes, scan->damage_offset, entries);
        report(v, (tap_problem){.kind = torn ? TAP_PROBLEM_TORN : TAP_PROBLEM_CORRUPT, .step = -1,
                                .count = entries ? entries : torn, .file = segment_name(v, scan->damage_segment),
                                .reason = reason});
    } else if (entries) {
        snprintf(reason, sizeof reason, tap_text("%" PRIu64 " entries before number %" PRIu64 " are not there"),
                 entries, scan->next_seq ? scan->next_seq - 1 : 0);
        report(v, (tap_problem){.kind = TAP_PROBLEM_MISSING, .step = -1, .count = entries,
                                .file = segment_name(v, scan->segment), .reason = reason});
    }
}

static tap_status scan_all(verify *v, tap_decoded *decoded)
{
    for (;;) {
        const tap_entry *entry;
        uint32_t before = v->scan.segment, segment;
        uint64_t offset, bytes = v->scan.file_bytes;
        bool cut;
        tap_status status = tap__scan_next(&v->scan, &entry, &segment, &offset, &cut, v->err);
        if (status == TAP_END)
            return TAP_OK;
        TAP_TRY(status);
        if (segment != before)
            v->passed += bytes;
        report_header(v);
        report_gap(v, v->scan.gap_entries);
        TAP_TRY(check_entry(v, entry, decoded, segment, offset, cut));
        TAP_TRY(tap__verify_go_on(v->v, v->passed + offset));
    }
}

/* ------------------------------------------------------------------------------------------------ the attempt's end */

static void on_open_site(void *user, const tap_ledger_item *site, tap_ledger_table kind)
{
    verify *v = user;
    switch (kind) {
    case TAP_LEDGER_SLOT:
        report(v, (tap_problem){.kind = TAP_PROBLEM_SLOT, .step = site->step, .name = site->name, .path = site->path,
                                .count = 1,
                                .reason = site->gone ? tap_text("its hook was removed before the value came")
                                                     : tap_text("announced, but the value never came")});
        break;
    case TAP_LEDGER_BIG:
        report(v, (tap_problem){.kind = TAP_PROBLEM_TORN, .step = site->step, .name = site->name, .path = site->path,
                                .count = 1, .file = segment_name(v, site->segment),
                                .reason = tap__reason_text(TAP_REASON_KILLED)});
        break;
    default:
        report(v, (tap_problem){.kind = TAP_PROBLEM_NEVER_RAN, .step = -1, .name = site->name, .count = 1,
                                .reason = tap_text("the site was compiled or declared and never ran")});
    }
}

static void on_journal(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    verify *v = user;
    (void)bytes;
    report(v, (tap_problem){.kind = TAP_PROBLEM_DROPPED, .step = step, .name = name, .count = count,
                            .reason = tap__reason_text(reason)});
}

static bool has_ring(const verify *v)
{
    char name[TAP_ATTEMPT_NAME];
    return tap__dir_has(v->native->files.root, tap__attempt_name(&v->native->files, ".ring", name));
}

static void report_end(verify *v)
{
    const tap_attempt_info *info = &v->native->source.info;
    const tap_scan *scan = &v->scan;
    bool ring = has_ring(v), unfinished = !info->ended[0] && !scan->ended;
    uint64_t gone = info->ended[0] ? info->not_named : ring || unfinished ? 0 : scan->missing;
    snprintf(v->file, sizeof v->file, "%s%s", v->native->source.relative, ring ? ".ring" : ".json");
    if (v->native->info_status != TAP_OK)
        report(v, (tap_problem){.kind = v->native->info_status == TAP_E_NOTFOUND ? TAP_PROBLEM_MISSING
                                                                                 : TAP_PROBLEM_CORRUPT,
                                .step = -1, .file = v->file,
                                .reason = tap_text("the description of the attempt cannot be read: how it ended is not "
                                                   "known")});
    else if (ring || unfinished || info->unknown)
        report(v, (tap_problem){.kind = TAP_PROBLEM_UNFINISHED, .step = -1, .file = v->file,
                                .count = unfinished ? scan->missing : 0,
                                .reason = ring             ? tap_text("values are still in the ring file; run: tensortap "
                                                                      "recover DIR")
                                          : info->unknown  ? tap_text("the program and its writer were killed: how many "
                                                                      "saves are missing is not known")
                                          : scan->counted  ? tap_text("the writer died before the end; run: tensortap "
                                                                      "recover DIR")
                                                           : tap_text("the writer died before the end, and how many "
                                                                      "saves are missing is not known; run: tensortap "
                                                                      "recover DIR")});
    if (gone) {
        v->v->result.not_named += gone;
        report(v, (tap_problem){.kind = TAP_PROBLEM_DROPPED, .step = -1, .count = gone,
                                .reason = tap_text("saves that were dropped before they had a name in the recording")});
    }
}

static tap_status attempt_end(verify *v)
{
    const tap_attempt_info *info = &v->native->source.info;
    report_header(v);
    uint64_t missing = info->ended[0] && info->entries > v->scan.next_seq ? info->entries - v->scan.next_seq : 0;
    report_gap(v, missing);
    if (!v->native->source.live) {
        if (!tap__ledger_each_open(&v->ledger, on_open_site, v))
            return tap_fail_nomem(v->err);
        report_end(v);
    }
    tap_error why;
    char lost[TAP_ATTEMPT_NAME];
    tap_status status = tap__journal_read(v->native->files.root, tap__attempt_name(&v->native->files, ".lost", lost),
                                          on_journal, v, &why);
    if (status == TAP_E_NOMEM)
        return tap_fail_nomem(v->err);
    if (status != TAP_OK) {
        snprintf(v->file, sizeof v->file, "%s.lost", v->native->source.relative);
        report(v, (tap_problem){.kind = TAP_PROBLEM_CORRUPT, .step = -1, .file = v->file, .reason = why.message});
    }
    return TAP_OK;
}

static tap_status verify_attempt(verify *v)
{
    v->bad_header_said = 0;
    v->v->rank = v->native->source.rank;
    v->v->attempt = v->native->source.attempt;
    TAP_TRY(tap__scan_open(&v->scan, &v->native->files, &v->native->source.info, v->err));
    v->scan.growing = v->native->source.live;
    beside_open(v);
    tap_decoded decoded = {.strings = NULL};
    tap_status status = scan_all(v, &decoded);
    if (status == TAP_OK)
        status = attempt_end(v);
    v->passed += v->scan.file_bytes;
    beside_close(v);
    tap__decoded_free(&decoded);
    tap__scan_close(&v->scan);
    tap__ledger_free(&v->ledger);
    return status;
}

/* Bytes of the attempt's segments, for the progress. */
static tap_status size_of(const tap_native *native, uint64_t *total, tap_error *err)
{
    uint32_t *list;
    size_t count;
    TAP_TRY(tap__segment_list(&native->files, &list, &count, err));
    for (size_t i = 0; i < count; i++) {
        char name[TAP_ATTEMPT_NAME];
        struct stat st;
        tap__segment_name(&native->files, list[i], name);
        *total += tap__dir_stat(native->files.root, name, &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    tap__free(list);
    return TAP_OK;
}

tap_status tap__verify_native(tap_verifier *verifier)
{
    tap_run *run = verifier->run;
    verify v = {.v = verifier, .scan.fd = -1, .err = verifier->err};
    TAP_TRY(run->type->look(run, v.err));
    for (size_t i = 0; i < run->count; i++) {
        tap_native *native = (tap_native *)run->sources[i];
        tap__native_look(native);
        TAP_TRY(size_of(native, &verifier->total, v.err));
    }
    if (run->count == 0) { /* whoever opens a recorder makes an attempt */
        verifier->rank = verifier->attempt = 0;
        tap__verify_report(verifier, (tap_problem){.kind = TAP_PROBLEM_MISSING, .step = -1, .file = "run.json",
            .reason = tap_text("no rank's files are there: they are lost, or were deleted")});
    }
    for (size_t i = 0; i < run->count; i++) {
        v.native = (tap_native *)run->sources[i];
        TAP_TRY(verify_attempt(&v));
    }
    return tap__verify_lineup(verifier);
}
