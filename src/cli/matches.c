/* matches.c - one match of a comparison: a row for people, an object for programs, a line for spreadsheets. */
#include "matches.h"

#include "jsonout.h"
#include "records.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *match_class_text(tap_match_class what)
{
    static const char *const TEXTS[] = {N_("equal"), N_("rounding"), N_("noise"), N_("drift"), N_("wrong"),
                                        N_("new NaN or Inf"), N_("not comparable"), N_("only in A"), N_("only in B")};
    return (size_t)what < sizeof TEXTS / sizeof TEXTS[0] ? tap_text(TEXTS[what]) : "?";
}

term_style match_class_style(const tap_match *match)
{
    if (match->allowed || match->what < TAP_MATCH_DRIFT)
        return match->what == TAP_MATCH_EQUAL ? STYLE_GREEN : STYLE_PLAIN;
    return match->what == TAP_MATCH_DRIFT ? STYLE_YELLOW : STYLE_RED;
}

static const tap_match_side *side_of(const tap_match *match)
{
    return &match->side[match->side[0].there ? 0 : 1];
}

/* "x2[key.0]"; in one of two buffers, used in turn. */
static const char *label_of(const tap_match *match)
{
    static char *room[2];
    static size_t cap[2];
    static int turn;
    tap_record record = {.name = side_of(match)->name, .path = match->path};
    turn = !turn;
    return record_label(&record, &room[turn], &cap[turn]);
}

/* --------------------------------------------------------------------------------------------------------- people */

const column MATCH_COLUMNS[] = {
    {N_("step"), '>', 0, 230}, {N_("rank"), '>', 0, 120},      {N_("name"), '<', 20, 255}, {N_("call"), '>', 0, 110},
    {N_("kind"), '<', 0, 150}, {N_("dtype"), '<', 0, 140},     {N_("class"), '<', 0, 250}, {N_("max |A-B|"), '>', 0, 240},
    {N_("max rel"), '>', 0, 180}, {N_("x rounding"), '>', 0, 200}, {N_("beyond"), '>', 0, 170}, {N_("cosine"), '>', 0, 160},
    {N_("remark"), '<', 16, 190},
};
const int MATCH_COLUMN_COUNT = sizeof MATCH_COLUMNS / sizeof MATCH_COLUMNS[0];

static void dtype_cell(table *rows, const tap_match *match)
{
    const tap_dtype_info *a = tap_dtype_describe(side_of(match)->dtype), *b = tap_dtype_describe(match->side[1].dtype);
    if (side_of(match)->value_type != TAP_VALUE_TENSOR)
        table_cell(rows, STYLE_PLAIN, value_type_name(side_of(match)->value_type));
    else if (a && b && a != b && match->side[0].there && match->side[1].there)
        table_cellf(rows, STYLE_PLAIN, "%s, %s", a->name, b->name);
    else
        table_cell(rows, STYLE_PLAIN, a ? a->name : value_type_name(side_of(match)->value_type));
}

static void real_cell(table *rows, bool known, double number)
{
    char text[TEXT_MAX];
    table_cell(rows, STYLE_PLAIN, known && !isnan(number) ? real_text(text, number) : "");
}

static void remark_cell(table *rows, const tap_match *match)
{
    const tap_match_side *side = side_of(match);
    const char *slash = strrchr(side->source, '/');
    if (*match->reason)
        table_cell(rows, STYLE_PLAIN, text_shown(match->reason));
    else if (*side->source && side->line > 0)
        table_cellf(rows, STYLE_DIM, "%s:%d", text_shown(slash ? slash + 1 : side->source), side->line);
    else
        table_cell(rows, STYLE_PLAIN, "");
}

void match_row(table *rows, const tap_match *match)
{
    const tap_difference *d = &match->difference;
    bool values = match->has_difference, other = values && d->different > 0;
    table_cellf(rows, STYLE_PLAIN, "%" PRId64, side_of(match)->step);
    table_cellf(rows, STYLE_PLAIN, "%d", match->rank);
    table_cell(rows, STYLE_CYAN, label_of(match));
    table_cellf(rows, STYLE_PLAIN, "%u", match->call);
    table_cell(rows, STYLE_PLAIN, tap_kind_name(match->kind));
    dtype_cell(rows, match);
    table_cell(rows, match_class_style(match), match_class_text(match->what));
    real_cell(rows, other, d->max_abs);
    real_cell(rows, other, d->max_rel);
    real_cell(rows, match->what <= TAP_MATCH_WRONG && match->ratio > 0 && isfinite(match->ratio), match->ratio);
    if (match->beyond)
        table_cellf(rows, STYLE_PLAIN, "%.3g %%", 100.0 * (double)match->beyond / (double)d->count);
    else
        table_cell(rows, STYLE_PLAIN, "");
    real_cell(rows, other, d->cosine);
    remark_cell(rows, match);
    table_row(rows);
}

/* -------------------------------------------------------------------------------------------------------- programs */

static void number_json(jsonout *json, const char *key, tap_dtype dtype, tap_number number)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    char kind = info ? info->kind : 'F';
    if (kind == 'I')
        json_int(json, key, number.i);
    else if (kind == 'U' || kind == 'B')
        json_uint(json, key, number.u);
    else
        json_real(json, key, number.f);
}

static void place_json(jsonout *json, const char *key, const tap_match *match, const tap_place *place)
{
    const tap_match_side *side = side_of(match);
    int64_t at[TAP_MAX_NDIM], index = place->index;
    if (index < 0) {
        json_null(json, key);
        return;
    }
    for (int32_t i = side->ndim; i-- > 0;) {
        at[i] = side->shape[i] > 0 ? index % side->shape[i] : 0;
        index = side->shape[i] > 0 ? index / side->shape[i] : 0;
    }
    json_open(json, key, '{');
    shape_json(json, "index", at, side->ndim);
    number_json(json, "a", match->side[0].dtype, place->a);
    number_json(json, "b", match->side[1].dtype, place->b);
    json_close(json, '}');
}

static void pair_json(jsonout *json, const char *key, const uint64_t counts[2])
{
    json_open(json, key, '[');
    json_uint(json, NULL, counts[0]);
    json_uint(json, NULL, counts[1]);
    json_close(json, ']');
}

static void difference_json(jsonout *json, const tap_match *match)
{
    const tap_difference *d = &match->difference;
    if (!match->has_difference) {
        json_null(json, "difference");
        return;
    }
    json_open(json, "difference", '{');
    json_uint(json, "count", d->count);
    json_uint(json, "different", d->different);
    json_uint(json, "unlike", d->unlike);
    json_uint(json, "beyond", match->beyond);
    pair_json(json, "nan", d->nan);
    pair_json(json, "pos_inf", d->pos_inf);
    pair_json(json, "neg_inf", d->neg_inf);
    place_json(json, "first", match, &d->first);
    place_json(json, "worst", match, &d->worst);
    json_real(json, "max_abs", d->max_abs);
    json_real(json, "mean_abs", d->mean_abs);
    json_real(json, "max_rel", d->max_rel);
    json_real(json, "mean_rel", d->mean_rel);
    json_real(json, "max_ulp", d->max_ulp);
    json_real(json, "norm", d->norm);
    json_real(json, "norm_a", d->norms[0]);
    json_real(json, "norm_b", d->norms[1]);
    json_real(json, "cosine", d->cosine);
    json_real(json, "p50", match->percentile[0]);
    json_real(json, "p90", match->percentile[1]);
    json_real(json, "p99", match->percentile[2]);
    if (match->bits[0][0]) {
        json_text(json, "bits_a", match->bits[0]);
        json_text(json, "bits_b", match->bits[1]);
    }
    json_close(json, '}');
}

static void known_json(jsonout *json, const char *key, const char *text)
{
    json_text(json, key, *text ? text : NULL);
}

static void side_json(jsonout *json, const char *key, const tap_match_side *side)
{
    const tap_dtype_info *dtype = tap_dtype_describe(side->dtype);
    char hash[20];
    if (!side->there) {
        json_null(json, key);
        return;
    }
    snprintf(hash, sizeof hash, "%016" PRIx64, side->hash);
    json_open(json, key, '{');
    json_text(json, "name", side->name);
    json_int(json, "step", side->step);
    json_int(json, "attempt", side->attempt);
    json_uint(json, "seq", side->seq);
    json_text(json, "value", value_type_name(side->value_type));
    json_text(json, "dtype", dtype ? dtype->name : NULL);
    shape_json(json, "shape", side->shape, side->ndim);
    if (side->has_stats)
        stats_json(json, "stats", side->dtype, &side->stats);
    else
        json_null(json, "stats");
    json_text(json, "hash", side->has_hash ? hash : NULL);
    known_json(json, "source", side->source);
    if (side->line > 0)
        json_int(json, "line", side->line);
    else
        json_null(json, "line");
    known_json(json, "module", side->module);
    known_json(json, "graph", side->graph);
    known_json(json, "node", side->node);
    known_json(json, "file", side->file);
    json_close(json, '}');
}

void match_json(const tap_match *match)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "type", "match");
    json_int(&json, "id", match->id);
    json_text(&json, "class", tap_match_class_name(match->what));
    json_text(&json, "evidence", tap_evidence_name(match->evidence));
    json_bool(&json, "allowed", match->allowed);
    json_int(&json, "rank", match->rank);
    json_uint(&json, "call", match->call);
    json_text(&json, "kind", tap_kind_name(match->kind));
    json_text(&json, "path", match->path);
    json_bool(&json, "recomputed", match->recomputed);
    json_uint(&json, "replay", match->replay);
    json_real(&json, "unit", match->unit);
    json_real(&json, "ratio", match->ratio);
    known_json(&json, "reason", match->reason);
    side_json(&json, "a", &match->side[0]);
    side_json(&json, "b", &match->side[1]);
    difference_json(&json, match);
    json_end(&json);
}

/* Quoted where the format asks for it, and where a spreadsheet would take it for a formula. As it is for a program that
 * reads it, fit to be seen on a terminal. */
static void csv_text(const char *text, bool last)
{
    if (term_is_terminal())
        text = text_shown(text);
    bool formula = *text && strchr("=+-@\t\r", *text);
    bool quote = formula || strpbrk(text, ",\"\n\r");
    if (quote)
        putchar('"');
    if (formula)
        putchar('\'');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    if (quote)
        putchar('"');
    putchar(last ? '\n' : ',');
}

void match_csv_titles(void)
{
    puts("step,rank,name,call,kind,class,evidence,dtype_a,dtype_b,shape_a,shape_b,count,different,beyond,max_abs,mean_abs,"
         "max_rel,mean_rel,max_ulp,l2,cosine,ratio,source,line,reason");
}

static void csv_real(bool known, double number)
{
    if (known && !isnan(number))
        printf("%.9g", number);
    putchar(',');
}

static void csv_sides(const tap_match *match)
{
    for (int side = 0; side < 2; side++) {
        const tap_dtype_info *dtype = tap_dtype_describe(match->side[side].dtype);
        csv_text(match->side[side].there && dtype ? dtype->name : "", false);
    }
    for (int side = 0; side < 2; side++) {
        char text[512] = "";
        if (match->side[side].there)
            shape_text(text, sizeof text, match->side[side].shape, match->side[side].ndim);
        csv_text(text, false);
    }
}

void match_csv(const tap_match *match)
{
    const tap_match_side *side = side_of(match);
    const tap_difference *d = &match->difference;
    bool v = match->has_difference;
    printf("%" PRId64 ",%d,", side->step, match->rank);
    csv_text(label_of(match), false);
    printf("%u,%s,%s,%s,", match->call, tap_kind_name(match->kind), tap_match_class_name(match->what),
           tap_evidence_name(match->evidence));
    csv_sides(match);
    if (v)
        printf("%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", d->count, d->different, match->beyond);
    else
        fputs(",,,", stdout);
    csv_real(v, d->max_abs);
    csv_real(v, d->mean_abs);
    csv_real(v, d->max_rel);
    csv_real(v, d->mean_rel);
    csv_real(v, d->max_ulp);
    csv_real(v, d->norm);
    csv_real(v, d->cosine);
    csv_real(true, match->ratio);
    csv_text(side->source, false);
    if (side->line > 0)
        printf("%d", side->line);
    putchar(',');
    csv_text(match->reason, true);
}
