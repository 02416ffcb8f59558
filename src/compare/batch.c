/* batch.c - from two records to a judged row. What names, shapes, hashes and statistics say is judged at once; the
 * values of the others are compared together. */
#include "compare/batch.h"

#include "base/match.h"
#include "base/memory.h"
#include "base/status.h"
#include "compare/spans.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 256 };

/* K is at least so much, since the length of the sums that made a tensor does not show in its shape; gradients are sums
 * over all that a weight met. tests/compare/test_planted.py measures what these numbers do: the smallest of its faults, an
 * eps of 1e-6 for 1e-5, is 8.5 units off where the tolerance is 4, all others are more than 100; equal models compiled by
 * inductor are at most 2.3 units apart (a gradient was 5 apart when it had 64 terms too). */
static const int64_t TERMS_AT_LEAST = 64, TERMS_OF_GRADIENT = 1024;
static const double NOISE_FACTOR = 3;

typedef struct judged {
    tap_held *held[2];
    tap_match match;
    char reason[sizeof((tap_error *)0)->message];
    tap_sidebytes side[2];
    bool open[2];
    const tap_rule *rule;
    tap_spanned spanned;
} judged;

/* What was seen of one rank so far. */
typedef struct seen {
    int32_t rank;
    double roundoff;       /* of the coarsest dtype */
} seen;

struct tap_batch {
    tap_batch_setup setup;
    tap_batch_counts counts;
    judged *items;         /* BATCH of them */
    size_t count;
    seen *ranks;
    size_t rank_count;
    sqlite3_stmt **noise;
};

/* ------------------------------------------------------------------------------------------------------ description */

static void side_describe(tap_match_side *side, const tap_record *record)
{
    *side = (tap_match_side){
        .there = true, .name = record->name, .step = record->step, .attempt = record->attempt, .seq = record->seq,
        .value_type = record->value_type, .dtype = record->dtype, .ndim = record->ndim, .has_stats = record->has_stats,
        .has_hash = record->has_hash, .stats = record->stats, .hash = record->hash, .source = record->source,
        .module = record->module, .graph = record->graph, .node = record->node, .device = record->device,
        .placements = record->placements, .line = record->line, .flags = record->flags, .file = record->file};
    if (record->ndim > 0)
        memcpy(side->shape, record->shape, 8 * (size_t)record->ndim);
}

static void match_describe(judged *it)
{
    const tap_record *any = &it->held[it->held[0] ? 0 : 1]->record;
    tap_match_init(&it->match);
    it->match.recomputed = any->flags & TAP_SAVE_RECOMPUTED;
    it->match.rank = any->rank;
    it->match.call = any->call;
    it->match.kind = any->kind;
    it->match.replay = any->replay;
    it->match.path = any->path;
    it->match.reason = it->reason;
    it->match.ratio = (double)NAN;
    for (int side = 0; side < 2; side++)
        if (it->held[side])
            side_describe(&it->match.side[side], &it->held[side]->record);
}

static bool shapes_differ(const tap_match *m)
{
    const tap_match_side *a = &m->side[0], *b = &m->side[1];
    return a->ndim != b->ndim || (a->ndim > 0 && memcmp(a->shape, b->shape, 8 * (size_t)a->ndim) != 0);
}

static int shape_print(char *text, size_t size, const tap_match_side *side)
{
    int len = snprintf(text, size, "[");
    for (int32_t i = 0; i < side->ndim && len < (int)size; i++)
        len += snprintf(text + len, size - (size_t)len, "%s%lld", i ? ", " : "", (long long)side->shape[i]);
    if (len < (int)size)
        len += snprintf(text + len, size - (size_t)len, "]");
    return len;
}

static void settle(judged *it, tap_match_class what, tap_evidence evidence)
{
    it->match.what = what;
    it->match.evidence = evidence;
}

static void incomparable(judged *it, const char *reason)
{
    settle(it, TAP_MATCH_INCOMPARABLE, TAP_EVIDENCE_NONE);
    it->match.ratio = (double)NAN;
    snprintf(it->reason, sizeof it->reason, "%s", reason);
}

/* The same, but it is certain that they differ. */
static void contradict(judged *it, const char *reason)
{
    incomparable(it, reason);
    it->match.ratio = (double)INFINITY;
}

static void other_shapes(judged *it)
{
    char a[100], b[100], text[256];
    shape_print(a, sizeof a, &it->match.side[0]);
    shape_print(b, sizeof b, &it->match.side[1]);
    snprintf(text, sizeof text, tap_text("the shapes differ: %s and %s"), a, b);
    contradict(it, text);
}

/* --------------------------------------------------------------------------------------------------------- what was seen */

static seen *seen_of(tap_batch *batch, int32_t rank)
{
    for (size_t i = batch->rank_count; i-- > 0;)
        if (batch->ranks[i].rank == rank)
            return &batch->ranks[i];
    seen *grown = tap__resize(batch->ranks, batch->rank_count + 1, sizeof *grown);
    if (!grown)
        return NULL;
    batch->ranks = grown;
    grown[batch->rank_count] = (seen){.rank = rank};
    return &grown[batch->rank_count++];
}

static double rms_of(const tap_stats *stats)
{
    uint64_t finite = stats->count - stats->nan - stats->pos_inf - stats->neg_inf;
    return finite && finite <= stats->count ? stats->norm / sqrt((double)finite) : 0;
}

/* The coarsest dtype a value was made of, as far as it can be known: that of all values before it. */
static tap_status seen_take(tap_batch *batch, judged *it, double *roundoff, tap_error *err)
{
    seen *now = seen_of(batch, it->match.rank);
    if (!now)
        return tap_fail_nomem(err);
    for (int side = 0; side < 2; side++)
        if (it->held[side]->record.value_type == TAP_VALUE_TENSOR)
            now->roundoff = fmax(now->roundoff, tap__dtype_roundoff(it->held[side]->record.dtype));
    *roundoff = now->roundoff;
    return TAP_OK;
}

static bool is_float(tap_dtype dtype)
{
    return tap__dtype_roundoff(dtype) > 0;
}

static void unit_choose(const tap_batch *batch, judged *it, double seen_roundoff)
{
    const tap_match_side *a = &it->match.side[0], *b = &it->match.side[1];
    int64_t terms = it->match.kind == TAP_KIND_GRAD ? TERMS_OF_GRADIENT : TERMS_AT_LEAST;
    it->match.unit = 0;
    if (!is_float(a->dtype) && !is_float(b->dtype))
        return;
    double roundoff = fmax(fmax(tap__dtype_roundoff(a->dtype), tap__dtype_roundoff(b->dtype)), seen_roundoff);
    for (int32_t i = 0; i < a->ndim; i++)
        terms = a->shape[i] > terms ? a->shape[i] : terms;
    it->match.unit = tap__rounding_unit(fmax(roundoff, batch->setup.precision), terms);
}

/* ------------------------------------------------------------------------------------------------ without the values */

static double number_of(tap_dtype dtype, tap_number n)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    char kind = info ? info->kind : 'F';
    return kind == 'I' ? (double)n.i : kind == 'U' || kind == 'B' ? (double)n.u : n.f;
}

/* How many units of rounding two statistics lie apart. */
static double apart(double a, double b, double unit, double rms)
{
    double error = fabs(a - b), allowed = unit * (fabs(b) + rms);
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return allowed > 0 && isfinite(error) ? error / allowed : (double)INFINITY;
}

static double stats_ratio(const tap_match *m)
{
    const tap_match_side *a = &m->side[0], *b = &m->side[1];
    double rms = rms_of(&b->stats), root = b->stats.count ? sqrt((double)b->stats.count) : 1;
    double ratio = apart(a->stats.norm / root, b->stats.norm / root, m->unit, rms);
    ratio = fmax(ratio, apart(a->stats.mean, b->stats.mean, m->unit, rms));
    ratio = fmax(ratio, apart(number_of(a->dtype, a->stats.min), number_of(b->dtype, b->stats.min), m->unit, rms));
    return fmax(ratio, apart(number_of(a->dtype, a->stats.max), number_of(b->dtype, b->stats.max), m->unit, rms));
}

static bool same_specials(const tap_stats *a, const tap_stats *b)
{
    return a->nan == b->nan && a->pos_inf == b->pos_inf && a->neg_inf == b->neg_inf;
}

static void judge_stats(const tap_batch *batch, judged *it)
{
    tap_match *m = &it->match;
    snprintf(it->reason, sizeof it->reason, "%s", tap_text("only statistics were kept"));
    if (!same_specials(&m->side[0].stats, &m->side[1].stats)) {
        settle(it, TAP_MATCH_NONFINITE, TAP_EVIDENCE_STATS);
        return;
    }
    m->ratio = stats_ratio(m);
    settle(it, m->ratio == 0 ? TAP_MATCH_EQUAL : m->ratio <= batch->setup.factor ? TAP_MATCH_ROUNDING : TAP_MATCH_WRONG,
           TAP_EVIDENCE_STATS);
}

static bool is_empty_value(tap_value_type type)
{
    return type == TAP_VALUE_NONE || type == TAP_VALUE_LIST || type == TAP_VALUE_TUPLE || type == TAP_VALUE_DICT;
}

static bool is_text(tap_value_type type)
{
    return type == TAP_VALUE_STR || type == TAP_VALUE_BYTES;
}

/* What the records say without their bytes; false: the bytes must be read. */
static bool judge_records(const tap_batch *batch, judged *it)
{
    tap_match *m = &it->match;
    const tap_match_side *a = &m->side[0], *b = &m->side[1];
    bool same_hash = a->has_hash && b->has_hash && a->hash == b->hash;
    if (is_empty_value(a->value_type) || is_empty_value(b->value_type) || is_text(a->value_type) != is_text(b->value_type)) {
        if (a->value_type == b->value_type)
            settle(it, TAP_MATCH_EQUAL, TAP_EVIDENCE_NONE);
        else
            contradict(it, tap_text("the values are of different types"));
        return true;
    }
    if (!is_text(a->value_type) && shapes_differ(m)) {
        other_shapes(it);
        return true;
    }
    if (same_hash && a->dtype == b->dtype) {
        settle(it, TAP_MATCH_EQUAL, TAP_EVIDENCE_HASH);
        m->ratio = 0;
        return true;
    }
    if (tap__sidebytes_kept(batch->setup.run[0], &it->held[0]->record) &&
        tap__sidebytes_kept(batch->setup.run[1], &it->held[1]->record))
        return false;
    if (batch->setup.exact && a->has_hash && b->has_hash) {
        settle(it, TAP_MATCH_WRONG, TAP_EVIDENCE_HASH);
        snprintf(it->reason, sizeof it->reason, "%s", tap_text("the hashes differ, and the bytes were not kept"));
    } else if (a->has_stats && b->has_stats && a->stats.count) {
        judge_stats(batch, it);
    } else if (a->value_type == TAP_VALUE_META && b->value_type == TAP_VALUE_META) {
        settle(it, TAP_MATCH_EQUAL, TAP_EVIDENCE_NONE);
    } else {
        incomparable(it, a->has_hash && b->has_hash ? tap_text("only hashes were kept, and they differ")
                                                    : tap_text("the bytes of one side were not kept"));
    }
    return true;
}

/* --------------------------------------------------------------------------------------------------- with the values */

static void unreadable(tap_batch *batch, judged *it, const tap_error *err)
{
    incomparable(it, err->message);
    batch->counts.unread++;
}

static void sides_close(judged *it)
{
    for (int side = 0; side < 2; side++)
        if (it->open[side])
            tap__sidebytes_close(&it->side[side]);
    it->open[0] = it->open[1] = false;
}

static bool sides_open(tap_batch *batch, judged *it)
{
    tap_error err;
    for (int side = 0; side < 2; side++) {
        tap_match_side *seen_side = &it->match.side[side];
        it->open[side] = tap__sidebytes_open(&it->side[side], batch->setup.run[side], &it->held[side]->record, &err) ==
                         TAP_OK;
        if (!it->open[side]) {
            unreadable(batch, it, &err);
            return false;
        }
        seen_side->dtype = it->side[side].dtype;
        seen_side->ndim = it->side[side].ndim;
        memcpy(seen_side->shape, it->side[side].shape, sizeof seen_side->shape);
    }
    if (shapes_differ(&it->match)) {
        if (is_text(it->match.side[0].value_type))
            contradict(it, tap_text("the texts differ"));
        else
            other_shapes(it);
        return false;
    }
    return true;
}

static double rms_b(const tap_difference *d)
{
    uint64_t special = d->nan[1] + d->pos_inf[1] + d->neg_inf[1];
    return d->count > special ? d->norms[1] / sqrt((double)(d->count - special)) : 0;
}

/* After the first look; true: the second one is wanted. */
static bool judge_difference(const tap_batch *batch, judged *it)
{
    tap_match *m = &it->match;
    const tap_difference *d = &m->difference;
    double rms = rms_b(d);
    if (d->different == 0) {
        m->ratio = 0;
        settle(it, TAP_MATCH_EQUAL, TAP_EVIDENCE_VALUES);
        return false;
    }
    if (is_text(m->side[0].value_type)) {
        contradict(it, tap_text("the texts differ"));
        return false;
    }
    if (d->unlike) {
        settle(it, TAP_MATCH_NONFINITE, TAP_EVIDENCE_VALUES);
        return false;
    }
    if (m->unit == 0 && !it->rule) {
        m->beyond = d->different;
        m->ratio = (double)INFINITY;
        settle(it, TAP_MATCH_WRONG, TAP_EVIDENCE_VALUES);
        return false;
    }
    m->ratio = apart(number_of(m->side[0].dtype, d->worst.a), number_of(m->side[1].dtype, d->worst.b), m->unit, rms);
    settle(it, TAP_MATCH_ROUNDING, TAP_EVIDENCE_VALUES);
    if (!it->rule && rms > 0 && d->max_abs <= batch->setup.factor * m->unit * rms)
        return false;
    tap__beyond_begin(&it->spanned.beyond, m->side[0].dtype, m->side[1].dtype);
    it->spanned.beyond.unit = m->unit;
    it->spanned.beyond.rms = rms;
    it->spanned.beyond.factor = batch->setup.factor;
    it->spanned.beyond.rule = it->rule;
    it->spanned.beyond.largest = d->max_abs;
    it->spanned.look = true;
    return true;
}

static void judge_beyond(judged *it)
{
    static const int PERCENTS[] = {50, 90, 99};
    tap_match *m = &it->match;
    const tap_beyond *look = &it->spanned.beyond;
    m->beyond = look->beyond;
    m->ratio = look->ratio;
    for (int i = 0; i < 3; i++)
        m->percentile[i] = tap__beyond_percentile(look, PERCENTS[i]);
    if (look->beyond == 0)
        return;
    settle(it, TAP_MATCH_WRONG, TAP_EVIDENCE_VALUES);
}

static void bits_print(char *text, const unsigned char *element, size_t size)
{
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", element[size - 1 - i]);
}

static void judge_exact(judged *it)
{
    const tap_spanned *s = &it->spanned;
    tap_match *m = &it->match;
    bool same = s->other_bits == 0 && m->side[0].dtype == m->side[1].dtype;
    settle(it, same ? TAP_MATCH_EQUAL : TAP_MATCH_WRONG, TAP_EVIDENCE_VALUES);
    m->beyond = s->other_bits;
    m->ratio = same ? 0 : (double)INFINITY;
    if (m->side[0].dtype != m->side[1].dtype)
        snprintf(it->reason, sizeof it->reason, "%s", tap_text("the dtypes differ"));
    if (s->first_bit < 0)
        return;
    m->difference.first.index = s->first_bit;
    for (int side = 0; side < 2; side++)
        bits_print(m->bits[side], s->element[side], it->side[side].element);
}

/* ---------------------------------------------------------------------------------------------------------- noise */

static tap_status noise_prepare(tap_batch *batch, tap_error *err)
{
    size_t count = batch->setup.noise_count;
    batch->noise = tap__calloc(count + 1, sizeof *batch->noise);
    if (!batch->noise)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < count; i++)
        TAP_TRY(tap__matchfile_prepare(&batch->setup.noise[i],
                                       "SELECT max_abs, l2 FROM match WHERE rank=?1 AND attempt_a=?2 AND seq_a=?3 AND "
                                       "step_a=?4 AND path=?5", &batch->noise[i], err));
    return TAP_OK;
}

/* Is A no nearer to its repetitions than to B? */
static bool is_noise(tap_batch *batch, const judged *it)
{
    double max_abs = 0, norm = 0;
    const tap_match *m = &it->match;
    if (!m->has_difference || m->what != TAP_MATCH_WRONG)
        return false;
    for (size_t i = 0; i < batch->setup.noise_count; i++) {
        sqlite3_stmt *find = batch->noise[i];
        sqlite3_bind_int(find, 1, m->rank);
        sqlite3_bind_int(find, 2, m->side[0].attempt);
        sqlite3_bind_int64(find, 3, (sqlite3_int64)m->side[0].seq);
        sqlite3_bind_int64(find, 4, m->side[0].step);
        sqlite3_bind_text(find, 5, m->path, -1, SQLITE_STATIC);
        if (sqlite3_step(find) == SQLITE_ROW) {
            max_abs = fmax(max_abs, sqlite3_column_double(find, 0));
            norm = fmax(norm, sqlite3_column_double(find, 1));
        }
        sqlite3_reset(find);
    }
    return max_abs > 0 && m->difference.max_abs <= NOISE_FACTOR * max_abs && m->difference.norm <= NOISE_FACTOR * norm;
}

/* ---------------------------------------------------------------------------------------------------------- batches */

/* Anything that needs no bytes; *read: the values must be compared. */
static tap_status judge_first(tap_batch *batch, judged *it, bool *read, tap_error *err)
{
    double roundoff = 0;
    *read = false;
    if (!it->held[0] || !it->held[1]) {
        settle(it, it->held[0] ? TAP_MATCH_ONLY_A : TAP_MATCH_ONLY_B, TAP_EVIDENCE_NONE);
        return TAP_OK;
    }
    TAP_TRY(seen_take(batch, it, &roundoff, err));
    unit_choose(batch, it, roundoff);
    it->rule = batch->setup.exact ? NULL : tap__rules_find(batch->setup.rules, it->match.side[0].name);
    it->match.ruled = it->rule != NULL;
    if (judge_records(batch, it))
        return TAP_OK;
    *read = sides_open(batch, it);
    if (*read) {
        unit_choose(batch, it, roundoff); /* a layout's file may hold another dtype than was saved */
        it->spanned = (tap_spanned){.side = {&it->side[0], &it->side[1]}, .exact = batch->setup.exact};
    }
    return TAP_OK;
}

static void judge_compared(tap_batch *batch, judged *it)
{
    if (it->spanned.status != TAP_OK) {
        unreadable(batch, it, &it->spanned.err);
        return;
    }
    it->match.difference = it->spanned.difference;
    it->match.has_difference = true;
    batch->counts.bytes += (uint64_t)it->side[0].count * (it->side[0].element + it->side[1].element);
    if (batch->setup.exact)
        judge_exact(it);
    else
        judge_difference(batch, it);
}

static void judge_looked(tap_batch *batch, judged *it)
{
    if (!it->spanned.look)
        return;
    if (it->spanned.status != TAP_OK)
        unreadable(batch, it, &it->spanned.err);
    else
        judge_beyond(it);
}

static tap_status values_judge(tap_batch *batch, judged **items, size_t count, tap_error *err)
{
    tap_spanned *pairs[BATCH];
    for (size_t i = 0; i < count; i++)
        pairs[i] = &items[i]->spanned;
    tap_status status = tap__spans_compare(pairs, count, batch->setup.threads, err);
    for (size_t i = 0; i < count && status == TAP_OK; i++)
        judge_compared(batch, items[i]);
    if (status == TAP_OK)
        status = tap__spans_look(pairs, count, batch->setup.threads, err);
    for (size_t i = 0; i < count; i++) {
        if (status == TAP_OK)
            judge_looked(batch, items[i]);
        tap__free(pairs[i]->spans);
    }
    return status;
}

static tap_status row_write(tap_batch *batch, judged *it, tap_error *err)
{
    tap_match *m = &it->match;
    int lead = batch->setup.lead;
    const char *name = m->side[m->side[0].there ? 0 : 1].name;
    if (is_noise(batch, it))
        settle(it, TAP_MATCH_NOISE, m->evidence);
    m->allowed = m->what >= TAP_MATCH_DRIFT && batch->setup.allow && tap__names_match(batch->setup.allow, name);
    batch->counts.by_stats += m->evidence == TAP_EVIDENCE_STATS;
    uint64_t place = it->held[lead] ? it->held[lead]->place : it->held[!lead]->beside;
    return tap__matchfile_add(batch->setup.out, m, place, err);
}

static void batch_clear(tap_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        sides_close(&batch->items[i]);
        tap__held_free(batch->items[i].held[0]);
        tap__held_free(batch->items[i].held[1]);
    }
    batch->count = 0;
}

static tap_status batch_judge(tap_batch *batch, tap_error *err)
{
    judged *to_read[BATCH];
    size_t reads = 0;
    for (size_t i = 0; i < batch->count; i++) {
        bool read;
        match_describe(&batch->items[i]);
        TAP_TRY(judge_first(batch, &batch->items[i], &read, err));
        if (read)
            to_read[reads++] = &batch->items[i];
    }
    TAP_TRY(values_judge(batch, to_read, reads, err));
    for (size_t i = 0; i < batch->count; i++)
        TAP_TRY(row_write(batch, &batch->items[i], err));
    return TAP_OK;
}

tap_status tap__batch_flush(tap_batch *batch, tap_error *err)
{
    tap_status status = batch_judge(batch, err);
    batch_clear(batch);
    return status;
}

tap_status tap__batch_add(tap_batch *batch, tap_held *a, tap_held *b, tap_error *err)
{
    judged *it = &batch->items[batch->count++];
    memset(it, 0, offsetof(judged, spanned));
    it->held[0] = a;
    it->held[1] = b;
    return batch->count == BATCH ? tap__batch_flush(batch, err) : TAP_OK;
}

tap_status tap__batch_new(const tap_batch_setup *setup, tap_batch **out, tap_error *err)
{
    *out = NULL;
    tap_batch *batch = tap__calloc(1, sizeof *batch);
    if (!batch)
        return tap_fail_nomem(err);
    batch->setup = *setup;
    batch->items = tap__calloc(BATCH, sizeof *batch->items);
    tap_status status = batch->items ? noise_prepare(batch, err) : tap_fail_nomem(err);
    if (status != TAP_OK)
        tap__batch_free(batch);
    else
        *out = batch;
    return status;
}

const tap_batch_counts *tap__batch_counts(const tap_batch *batch)
{
    return &batch->counts;
}

void tap__batch_free(tap_batch *batch)
{
    if (!batch)
        return;
    batch_clear(batch);
    for (size_t i = 0; batch->noise && i < batch->setup.noise_count; i++)
        sqlite3_finalize(batch->noise[i]);
    tap__free(batch->noise);
    tap__free(batch->items);
    tap__free(batch->ranks);
    tap__free(batch);
}
