/* verdict_text.c - the verdict in one line: what diverges first, where, by how much, and what that means. */
#include "compare/verdict.h"

#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const tap_match_side *side_of(const tap_match *match)
{
    return &match->side[match->side[0].there ? 0 : 1];
}

void tap__match_label(tap_strbuf *out, const tap_match *match)
{
    tap__strbuf_str(out, side_of(match)->name);
    if (*match->path)
        tap__strbuf_printf(out, "[%s]", match->path);
}

/* The kind where the name does not tell it. */
static void say_kind(tap_strbuf *out, const tap_match *match)
{
    const char *kind = tap_kind_name(match->kind);
    if (match->kind != TAP_KIND_FORWARD && !strstr(side_of(match)->name, kind))
        tap__strbuf_printf(out, " %s", kind);
}

static void say_where(tap_strbuf *out, const tap_match *match)
{
    const tap_match_side *side = side_of(match);
    const char *slash = strrchr(side->source, '/');
    tap__match_label(out, match);
    say_kind(out, match);
    tap__strbuf_printf(out, tap_text(", step %lld, rank %d"), (long long)side->step, match->rank);
    if (match->call)
        tap__strbuf_printf(out, tap_text(", call %u"), match->call);
    if (match->recomputed)
        tap__strbuf_str(out, tap_text(", recomputed"));
    if (*side->source && side->line > 0)
        tap__strbuf_printf(out, ", %s:%d", slash ? slash + 1 : side->source, side->line);
}

static void say_index(tap_strbuf *out, const tap_match_side *side, int64_t index)
{
    int64_t place[TAP_MAX_NDIM];
    for (int32_t i = side->ndim; i-- > 0;) {
        place[i] = side->shape[i] > 0 ? index % side->shape[i] : 0;
        index = side->shape[i] > 0 ? index / side->shape[i] : 0;
    }
    tap__strbuf_char(out, '[');
    for (int32_t i = 0; i < side->ndim; i++)
        tap__strbuf_printf(out, "%s%" PRId64, i ? ", " : "", place[i]);
    tap__strbuf_char(out, ']');
}

static void say_number(tap_strbuf *out, tap_dtype dtype, tap_number number, double imag)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    char kind = info ? info->kind : 'F';
    if (kind == 'I')
        tap__strbuf_printf(out, "%" PRId64, number.i);
    else if (kind == 'U' || kind == 'B')
        tap__strbuf_printf(out, "%" PRIu64, number.u);
    else
        tap__strbuf_printf(out, "%.7g", number.f);
    if (kind == 'C')
        tap__strbuf_printf(out, "%+.7gj", imag);
}

static void say_place(tap_strbuf *out, const tap_match *match, const tap_place *place)
{
    if (place->index < 0)
        return;
    tap__strbuf_str(out, tap_text(" at "));
    say_index(out, side_of(match), place->index);
    tap__strbuf_str(out, " (");
    say_number(out, match->side[0].dtype, place->a, place->a_imag);
    tap__strbuf_str(out, ", ");
    say_number(out, match->side[1].dtype, place->b, place->b_imag);
    tap__strbuf_char(out, ')');
}

static void say_ratio(tap_strbuf *out, double ratio)
{
    if (isfinite(ratio) && ratio > 0)
        tap__strbuf_printf(out, tap_text(", %.3gx rounding"), ratio);
}

static void say_bits(tap_strbuf *out, const tap_match *match)
{
    tap__strbuf_str(out, tap_text("other bits at "));
    say_index(out, side_of(match), match->difference.first.index);
    tap__strbuf_printf(out, ": 0x%s, 0x%s", match->bits[0], match->bits[1]);
}

static void say_difference(tap_strbuf *out, const tap_match *match)
{
    const tap_difference *d = &match->difference;
    if (match->what == TAP_MATCH_INCOMPARABLE || (!match->has_difference && match->evidence == TAP_EVIDENCE_HASH)) {
        tap__strbuf_str(out, match->reason);
    } else if (match->bits[0][0]) {
        say_bits(out, match);
    } else if (match->what == TAP_MATCH_NONFINITE) {
        tap__strbuf_str(out, tap_text("NaN or Inf on one side only"));
        say_place(out, match, &d->worst);
    } else if (match->evidence == TAP_EVIDENCE_STATS) {
        tap__strbuf_str(out, tap_text("the statistics differ (nothing else was kept)"));
        say_ratio(out, match->ratio);
    } else {
        tap__strbuf_printf(out, "max |A-B| %.2g", d->max_abs);
        say_place(out, match, &d->worst);
        say_ratio(out, match->ratio);
    }
}

static void say_inputs(tap_strbuf *out, const tap_verdict *v, const tap_match *before)
{
    if (v->inputs == 1 && v->weights == 0) {
        tap__strbuf_str(out, tap_text("its input "));
        tap__match_label(out, before);
        tap__strbuf_str(out, tap_text(" agrees"));
    } else if (v->weights == 0) {
        tap__strbuf_printf(out, tap_text("its %u inputs agree"), v->inputs);
    } else {
        tap__strbuf_printf(out, tap_text("its inputs (%u) and weights (%u) agree"), v->inputs, v->weights);
    }
    tap__strbuf_str(out, tap_text(" -> this operation is wrong"));
}

static tap_status say_blame(tap_matchfile *file, const tap_verdict *v, tap_strbuf *out, tap_error *err)
{
    if (v->before >= 0)
        TAP_TRY(tap__matchfile_get(file, v->before, err));
    switch (v->blame) {
    case TAP_BLAME_OPERATION: say_inputs(out, v, &file->row); break;
    case TAP_BLAME_INPUT:
        tap__strbuf_str(out, tap_text("its input "));
        tap__match_label(out, &file->row);
        tap__strbuf_str(out, tap_text(" differs already"));
        break;
    case TAP_BLAME_BETWEEN:
        tap__strbuf_str(out, tap_text("it happened between "));
        tap__match_label(out, &file->row);
        say_kind(out, &file->row);
        if (file->row.call)
            tap__strbuf_printf(out, tap_text(", call %u"), file->row.call);
        tap__strbuf_str(out, tap_text(" (agrees) and this"));
        break;
    case TAP_BLAME_UNORDERED:
        tap__strbuf_str(out, tap_text("the recordings do not tell what came first: this is the largest"));
        break;
    default: tap__strbuf_str(out, tap_text("nothing before it was recorded")); break;
    }
    return TAP_OK;
}

tap_status tap__verdict_say(tap_matchfile *file, const tap_verdict *verdict, tap_strbuf *out, tap_error *err)
{
    tap__strbuf_clear(out);
    if (verdict->first < 0) {
        tap__strbuf_str(out, verdict->differs ? tap_text("no divergence, but not every record has one to be compared with")
                                              : tap_text("no divergence"));
        return out->failed ? tap_fail_nomem(err) : TAP_OK;
    }
    TAP_TRY(tap__matchfile_get(file, verdict->first, err));
    tap__strbuf_str(out, file->row.what == TAP_MATCH_DRIFT ? tap_text("first drift: ") : tap_text("first divergence: "));
    say_where(out, &file->row);
    tap__strbuf_str(out, ": ");
    say_difference(out, &file->row);
    tap__strbuf_str(out, "; ");
    TAP_TRY(say_blame(file, verdict, out, err));
    return out->failed ? tap_fail_nomem(err) : TAP_OK;
}
