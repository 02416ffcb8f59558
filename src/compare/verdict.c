/* verdict.c - the rows of a comparison in causal order. A tensor that is more than GROWTH times further off than anything
 * before it was made wrong; one that is not inherits what was wrong before, or drifts. */
#include "compare/verdict.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const double GROWTH = 8;

/* ------------------------------------------------------------------------------------------------------ all rounding */

/* A sum that ought to be 0 but for rounding (the gradient of a bias that a norm takes out again) has other digits in every
 * run. Told by its size: both sides are within a few units of rounding of the largest of their kind and step. Squares,
 * since SQLite need not have roots. */
static tap_status all_rounding_find(tap_matchfile *file, double factor, tap_error *err)
{
    static const char SCALES[] =
        "CREATE TEMP TABLE scale AS SELECT rank AS of_rank, step_a AS of_step, kind AS of_kind, "
        "max(min(norm_a * norm_a / count_a, norm_b * norm_b / count_b)) AS square FROM match "
        "WHERE count_a > 0 AND count_b > 0 GROUP BY 1, 2, 3";
    sqlite3_stmt *update;
    int code = sqlite3_exec(file->db, SCALES, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return tap__matchfile_fail(file, code, "write", err);
    TAP_TRY(tap__matchfile_prepare(file, "UPDATE match SET class = 1, ratio = ?1, reason = ?2 WHERE class = 4 AND unit > 0 AND "
                                   "NOT ruled AND pairs > 0 AND max(l2_a * l2_a, l2_b * l2_b) / pairs <= 4 * unit * unit * "
                                   "(SELECT square FROM scale WHERE of_rank = rank AND of_step = step_a AND of_kind = kind)",
                                   &update, err));
    sqlite3_bind_double(update, 1, factor);
    sqlite3_bind_text(update, 2, tap_text("smaller than the rounding of what it was made of"), -1, SQLITE_STATIC);
    code = sqlite3_step(update);
    sqlite3_finalize(update);
    sqlite3_exec(file->db, "DROP TABLE scale", NULL, NULL, NULL);
    return code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "write", err);
}

/* ---------------------------------------------------------------------------------------------------------- growth */

typedef struct change {
    int64_t id;
    tap_match_class what;
} change;

typedef struct changes {
    change *items;
    size_t count, cap;
} changes;

static tap_status changes_add(changes *list, int64_t id, tap_match_class what, tap_error *err)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 256;
        change *grown = tap__resize(list->items, cap, sizeof *grown);
        if (!grown)
            return tap_fail_nomem(err);
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count++] = (change){id, what};
    return TAP_OK;
}

/* Rows are changed a bunch at a time, after the statement that finds them stands still. */
static tap_status growth_pass(tap_matchfile *file, sqlite3_stmt *rows, bool ordered, changes *list, tap_error *err)
{
    double before = 1;
    int64_t rank = 0;
    int code;
    bool first = true;
    while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
        int what = sqlite3_column_int(rows, 2);
        bool known = sqlite3_column_type(rows, 3) != SQLITE_NULL;
        double ratio = known ? sqlite3_column_double(rows, 3) : 0;
        if (first || sqlite3_column_int64(rows, 1) != rank || !ordered)
            before = 1;
        first = false;
        rank = sqlite3_column_int64(rows, 1);
        if (what == TAP_MATCH_WRONG && !(ratio / before > GROWTH))
            TAP_TRY(changes_add(list, sqlite3_column_int64(rows, 0), TAP_MATCH_DRIFT, err));
        if (what == TAP_MATCH_NONFINITE)
            ratio = (double)INFINITY;
        before = fmax(before, ratio);
    }
    return code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

static tap_status growth_find(tap_matchfile *file, bool ordered, tap_error *err)
{
    sqlite3_stmt *rows;
    changes list = {NULL, 0, 0};
    TAP_TRY(tap__matchfile_prepare(file, "SELECT id, rank, class, ratio FROM match WHERE class IN (1,4,5) AND "
                                   "(class <> 1 OR ratio > 1) ORDER BY rank, place, id", &rows, err));
    tap_status status = growth_pass(file, rows, ordered, &list, err);
    sqlite3_finalize(rows);
    for (size_t i = 0; i < list.count && status == TAP_OK; i++)
        status = tap__matchfile_set_class(file, list.items[i].id, list.items[i].what, err);
    tap__free(list.items);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- first */

/* One number of the first row; -1 when there is no row. */
static tap_status number_of(tap_matchfile *file, const char *sql, int64_t *out, tap_error *err)
{
    sqlite3_stmt *statement;
    TAP_TRY(tap__matchfile_prepare(file, sql, &statement, err));
    int code = sqlite3_step(statement);
    *out = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

/* What is certainly wrong comes before what drifts; incomparable ones count where it is certain that they differ. */
#define CERTAIN "allowed = 0 AND (class IN (4,5) OR class = 6 AND ratio > 0)"
#define DRIFTS "allowed = 0 AND class = 3"
/* Ranks run side by side: the place of a record is counted from the start of its rank. */
#define IN_ORDER(which, more)                                                                                        \
    "SELECT id FROM match JOIN (SELECT rank AS of, MIN(place) AS start FROM match GROUP BY rank) ON of = rank "      \
    "WHERE " which more " ORDER BY coalesce(step_a, step_b), place - start, rank LIMIT 1"
#define LARGEST(which) "SELECT id FROM match WHERE " which " ORDER BY ratio DESC, id LIMIT 1"

static tap_status first_find(tap_matchfile *file, tap_order order, tap_verdict *v, tap_error *err)
{
    static const char *const EXACT[] = {IN_ORDER(CERTAIN, ""), IN_ORDER(DRIFTS, ""), NULL};
    static const char *const FORWARD[] = {IN_ORDER(CERTAIN, " AND kind <> 1"), IN_ORDER(DRIFTS, " AND kind <> 1"), NULL};
    static const char *const NONE[] = {LARGEST(CERTAIN), LARGEST(DRIFTS), NULL};
    const char *const *ways = order == TAP_ORDER_EXACT ? EXACT : order == TAP_ORDER_FORWARD ? FORWARD : NONE;
    for (int i = 0; ways[i] && v->first < 0; i++)
        TAP_TRY(number_of(file, ways[i], &v->first, err));
    if (v->first >= 0 || order != TAP_ORDER_FORWARD) {
        v->blame = v->first < 0 ? TAP_BLAME_NONE : order == TAP_ORDER_NONE ? TAP_BLAME_UNORDERED : TAP_BLAME_FIRST;
        return TAP_OK;
    }
    /* gradients only, whose order is not known */
    for (int i = 0; NONE[i] && v->first < 0; i++)
        TAP_TRY(number_of(file, NONE[i], &v->first, err));
    v->blame = v->first < 0 ? TAP_BLAME_NONE : TAP_BLAME_UNORDERED;
    return TAP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- blame */

/* The operation a record belongs to: its module, or its name up to what says which end of it this is. */
static size_t operation_of(const char *name, const char *module, const char **out)
{
    static const char *const ENDS[] = {".input", ".output"};
    *out = module;
    if (*module)
        return strlen(module);
    *out = name;
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        const char *end = strstr(name, ENDS[i]);
        if (end)
            return (size_t)(end - name);
    }
    return 0;
}

static bool same_operation(const tap_match *m, const char *name, const char *module)
{
    const char *a, *b;
    int side = m->side[0].there ? 0 : 1;
    size_t len_a = operation_of(m->side[side].name, m->side[side].module, &a), len_b = operation_of(name, module, &b);
    return len_a > 0 && len_a == len_b && memcmp(a, b, len_a) == 0;
}

/* Counts the recorded inputs and weights of the operation that file->row came out of. */
static tap_status inputs_find(tap_matchfile *file, sqlite3_stmt *rows, tap_verdict *v, tap_error *err)
{
    const tap_match *m = &file->row;
    int code;
    sqlite3_bind_int(rows, 1, m->rank);
    sqlite3_bind_int64(rows, 2, m->side[0].step);
    sqlite3_bind_int64(rows, 3, m->id);
    sqlite3_bind_int64(rows, 4, m->call);
    while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(rows, 3), *module = (const char *)sqlite3_column_text(rows, 4);
        if (!same_operation(m, name ? name : "", module ? module : ""))
            continue;
        bool agrees = sqlite3_column_int(rows, 1) <= TAP_MATCH_NOISE, weight = sqlite3_column_int(rows, 2) == TAP_KIND_PARAM;
        *(weight ? &v->weights : &v->inputs) += 1;
        *(weight ? &v->weights_agree : &v->inputs_agree) += agrees;
        if (v->before < 0 || !agrees)
            v->before = sqlite3_column_int64(rows, 0);
    }
    return code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

static tap_status blame_inputs(tap_matchfile *file, tap_verdict *v, tap_error *err)
{
    sqlite3_stmt *rows;
    if (file->row.kind != TAP_KIND_OUTPUT || !file->row.side[0].there)
        return TAP_OK;
    TAP_TRY(tap__matchfile_prepare(file, "SELECT id, class, kind, name_a, module_a FROM match WHERE rank=?1 AND step_a=?2 "
                                   "AND id<>?3 AND class <= 6 AND (kind = 2 AND call=?4 OR kind = 4)", &rows, err));
    tap_status status = inputs_find(file, rows, v, err);
    sqlite3_finalize(rows);
    if (status == TAP_OK && v->inputs)
        v->blame = v->inputs_agree == v->inputs && v->weights_agree == v->weights ? TAP_BLAME_OPERATION : TAP_BLAME_INPUT;
    else
        v->before = -1;
    return status;
}

/* The last one before it, on its rank, that agrees. */
static tap_status blame_neighbour(tap_matchfile *file, tap_verdict *v, tap_error *err)
{
    sqlite3_stmt *rows;
    TAP_TRY(tap__matchfile_prepare(file, "SELECT m.id FROM match m, match f WHERE f.id=?1 AND m.rank = f.rank AND m.class "
                                   "<= 2 AND (m.place, m.id) < (f.place, f.id) ORDER BY m.place DESC, m.id DESC LIMIT 1",
                                   &rows, err));
    sqlite3_bind_int64(rows, 1, v->first);
    int code = sqlite3_step(rows);
    if (code == SQLITE_ROW) {
        v->before = sqlite3_column_int64(rows, 0);
        v->blame = TAP_BLAME_BETWEEN;
    }
    sqlite3_finalize(rows);
    return code == SQLITE_ROW || code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

static tap_status verdict_write(tap_matchfile *file, const tap_verdict *v, tap_error *err)
{
    const struct {
        const char *key;
        int64_t number;
    } ROWS[] = {{"differs", v->differs}, {"blame", v->blame}, {"first", v->first}, {"before", v->before},
                {"inputs", v->inputs}, {"inputs_agree", v->inputs_agree}, {"weights", v->weights},
                {"weights_agree", v->weights_agree}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        TAP_TRY(tap__matchfile_set_number(file, ROWS[i].key, ROWS[i].number, err));
    return TAP_OK;
}

tap_status tap__verdict_find(tap_matchfile *file, tap_order order, bool exact, double factor, tap_error *err)
{
    tap_verdict v;
    int64_t bad;
    tap_verdict_init(&v);
    if (!exact) {
        TAP_TRY(all_rounding_find(file, factor, err));
        TAP_TRY(growth_find(file, order != TAP_ORDER_NONE, err));
    }
    TAP_TRY(number_of(file, "SELECT EXISTS(SELECT 1 FROM match WHERE class >= 3 AND allowed = 0)", &bad, err));
    v.differs = bad > 0;
    TAP_TRY(first_find(file, order, &v, err));
    if (v.first >= 0 && v.blame != TAP_BLAME_UNORDERED) {
        TAP_TRY(tap__matchfile_get(file, v.first, err));
        TAP_TRY(blame_inputs(file, &v, err));
        if (v.blame == TAP_BLAME_FIRST)
            TAP_TRY(blame_neighbour(file, &v, err));
    }
    return verdict_write(file, &v, err);
}

void tap__verdict_read(tap_matchfile *file, tap_verdict *out)
{
    out->differs = tap__matchfile_number(file, "differs") != 0;
    out->blame = (tap_blame)tap__matchfile_number(file, "blame");
    out->first = tap__matchfile_number(file, "first");
    out->before = tap__matchfile_number(file, "before");
    out->inputs = (uint32_t)tap__matchfile_number(file, "inputs");
    out->inputs_agree = (uint32_t)tap__matchfile_number(file, "inputs_agree");
    out->weights = (uint32_t)tap__matchfile_number(file, "weights");
    out->weights_agree = (uint32_t)tap__matchfile_number(file, "weights_agree");
}
