/* records.c - opening, querying and showing records, for all subcommands that read a recording. */
#include "records.h"

#include "keymap.h"
#include "term.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int run_open(const cli *args, tap_run **out)
{
    tap_error err = {0};
    if (tap_run_open(args->argument[0], out, &err) == TAP_OK)
        return EXIT_FINE;
    return trouble_error(args, &err);
}

static tap_kind kind_find(const char *name)
{
    for (int kind = TAP_KIND_FORWARD; kind <= TAP_KIND_PARAM; kind++)
        if (strcmp(tap_kind_name((tap_kind)kind), name) == 0)
            return (tap_kind)kind;
    return TAP_KIND_ANY;
}

void query_from(const cli *args, tap_query *query)
{
    tap_query_init(query);
    query->name = args->value[OPT_NAME];
    query->steps = args->value[OPT_STEP];
    query->ranks = args->value[OPT_RANK];
    query->kind = args->value[OPT_KIND] ? kind_find(args->value[OPT_KIND]) : TAP_KIND_ANY;
    const char *attempt = args->value[OPT_ATTEMPT];
    query->attempt = !attempt ? -1 : strcmp(attempt, "all") == 0 ? -2 : atoi(attempt);
}

bool query_filters(const cli *args)
{
    return args->value[OPT_NAME] || args->value[OPT_STEP] || args->value[OPT_RANK] || args->value[OPT_KIND] ||
           args->value[OPT_ATTEMPT] || args->value[OPT_CALL];
}

/* --------------------------------------------------------------------------------------------------- near names */

typedef struct near_name {
    char *name;
    size_t distance;
} near_name;

enum { NEAR_MAX = 5 };

/* To the whole name or to one part of it between dots. */
static size_t near_distance(const char *name, const char *wanted)
{
    size_t best = edit_distance(name, wanted);
    for (const char *at = name; *at;) {
        size_t len = strcspn(at, ".");
        char *part = copy_text(at, len);
        size_t distance = edit_distance(part, wanted);
        best = distance < best ? distance : best;
        free(part);
        at += len + (at[len] == '.');
    }
    return best;
}

/* Keeps the nearest few, nearest first, each once. */
static void near_offer(near_name near[NEAR_MAX], const char *name, const char *wanted)
{
    size_t len = strlen(name), wanted_len = strlen(wanted), limit = wanted_len < 6 ? 1 : wanted_len / 3;
    bool inside = strstr(name, wanted) || strstr(wanted, name);
    if (len > 400 || wanted_len > 400) /* too costly for a hint */
        return;
    size_t distance = inside ? 1 : near_distance(name, wanted);
    if (distance > limit)
        return;
    int place = NEAR_MAX;
    for (int i = NEAR_MAX - 1; i >= 0; i--) {
        if (near[i].name && strcmp(near[i].name, name) == 0)
            return;
        if (!near[i].name || distance < near[i].distance)
            place = i;
    }
    if (place == NEAR_MAX)
        return;
    free(near[NEAR_MAX - 1].name);
    memmove(near + place + 1, near + place, (size_t)(NEAR_MAX - 1 - place) * sizeof *near);
    near[place] = (near_name){copy_text(name, strlen(name)), distance};
}

static void near_collect(tap_run *run, const char *wanted, near_name near[NEAR_MAX])
{
    tap_query query;
    tap_query_init(&query);
    query.attempt = -2;
    query.incomplete = true;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    keymap known = {0};
    bool added;
    if (tap_run_query(run, &query, &cursor, NULL) != TAP_OK)
        return;
    enum { LOOK_AT = 200000 }; /* a hint must not take longer than the answer */
    for (int i = 0; i < LOOK_AT && tap_cursor_next(cursor, &record, NULL) == TAP_OK; i++) {
        keymap_add(&known, record.name, &added);
        if (added)
            near_offer(near, record.name, wanted);
    }
    keymap_free(&known);
    tap_cursor_close(cursor);
}

int nothing_matched(const cli *args, tap_run *run, const char *name)
{
    near_name near[NEAR_MAX] = {{NULL, 0}};
    if (name)
        trouble(args, "%s: no record of that name matches", text_shown(name));
    else
        trouble(args, "no record matches; tensortap ls %s shows what there is", text_shown(args->argument[0]));
    if (name)
        near_collect(run, name, near);
    if (near[0].name)
        say(stderr, "there is:");
    for (int i = 0; i < NEAR_MAX && near[i].name; i++) {
        fprintf(stderr, "%s %s", i ? "," : "", text_shown(near[i].name));
        free(near[i].name);
    }
    if (near[0].name)
        fputc('\n', stderr);
    return EXIT_DIFFERENT;
}

/* ---------------------------------------------------------------------------------------------------------- texts */

const char *record_label(const tap_record *record, char **room, size_t *cap)
{
    size_t need = strlen(record->name) + strlen(record->path) + 3;
    if (need > *cap) {
        *cap = need * 2;
        *room = get_memory(*room, *cap);
    }
    if (*record->path)
        snprintf(*room, *cap, "%s[%s]", record->name, record->path);
    else
        memcpy(*room, record->name, strlen(record->name) + 1);
    return *room;
}

const char *value_type_name(tap_value_type type)
{
    static const char *const NAMES[] = {"tensor", "none", "bool", "int",  "float", "complex",
                                        "str",    "bytes", "list", "tuple", "dict", "meta"};
    return (size_t)type < sizeof NAMES / sizeof NAMES[0] ? NAMES[type] : "unknown";
}

typedef struct state_row {
    const char *name, *text;
    bool bad;
} state_row;

static const state_row *state_find(tap_record_state state)
{
    static const state_row ROWS[] = {
        {"whole", N_("ok"), false},
        {"stats_only", N_("stats only"), true},
        {"rule", N_("by rule"), false},
        {"torn", N_("torn"), true},
        {"slot", N_("never came"), true},
        {"declared", N_("never ran"), true},
        {"unknown", N_("unknown"), true},
    };
    return &ROWS[(size_t)state < 6 ? (size_t)state : 6];
}

const char *state_name(tap_record_state state)
{
    return state_find(state)->name;
}

const char *state_text(tap_record_state state)
{
    return tap_text(state_find(state)->text);
}

bool state_is_bad(tap_record_state state)
{
    return state_find(state)->bad;
}

bool record_is_tensor(const tap_record *record)
{
    return record->value_type == TAP_VALUE_TENSOR || record->value_type == TAP_VALUE_META;
}

bool record_has_numbers(const tap_record *record)
{
    return record->has_stats && record->stats.count && record->value_type != TAP_VALUE_STR &&
           record->value_type != TAP_VALUE_BYTES;
}

uint64_t stats_bad(const tap_stats *stats)
{
    return stats->nan + stats->pos_inf + stats->neg_inf;
}

const char *shape_text(char *text, size_t size, const int64_t *shape, int32_t ndim)
{
    size_t len = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < ndim && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (len < size)
        snprintf(text + len, size - len, "]");
    return text;
}

const char *real_text(char text[TEXT_MAX], double number)
{
    if (isnan(number))
        snprintf(text, TEXT_MAX, "nan");
    else if (number > -1e4 && number < 1e4 && (double)(int)number == number)
        snprintf(text, TEXT_MAX, "%d", (int)number); /* as below, and faster */
    else
        snprintf(text, TEXT_MAX, "%.4g", number);
    return text;
}

static char dtype_class(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    return info ? info->kind : 'F';
}

double number_real(tap_dtype dtype, tap_number number)
{
    char kind = dtype_class(dtype);
    return kind == 'I' ? (double)number.i : kind == 'U' || kind == 'B' ? (double)number.u : number.f;
}

const char *number_text(char text[TEXT_MAX], tap_dtype dtype, tap_number number)
{
    char kind = dtype_class(dtype);
    if (kind == 'I')
        snprintf(text, TEXT_MAX, "%" PRId64, number.i);
    else if (kind == 'U' || kind == 'B')
        snprintf(text, TEXT_MAX, "%" PRIu64, number.u);
    else
        real_text(text, number.f);
    return text;
}

const char *bytes_text(char text[TEXT_MAX], uint64_t bytes)
{
    static const char *const UNITS[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof UNITS / sizeof UNITS[0]) {
        value /= 1024;
        unit++;
    }
    if (bytes < 1024)
        snprintf(text, TEXT_MAX, "%" PRIu64 " B", bytes);
    else
        snprintf(text, TEXT_MAX, "%.1f %s", value, UNITS[unit]);
    return text;
}

const char *bad_text(char text[TEXT_MAX], const tap_stats *stats)
{
    uint64_t inf = stats->pos_inf + stats->neg_inf;
    int len = 0;
    text[0] = 0;
    if (stats->nan)
        len = snprintf(text, TEXT_MAX, "%" PRIu64 " nan", stats->nan);
    if (inf)
        snprintf(text + len, TEXT_MAX - (size_t)len, "%s%" PRIu64 " inf", len ? " " : "", inf);
    return text;
}

const char *time_text(char text[TEXT_MAX], uint64_t time_ns)
{
    time_t seconds = (time_t)(time_ns / 1000000000u);
    struct tm parts;
    text[0] = 0;
    if (!time_ns || !localtime_r(&seconds, &parts))
        return text;
    size_t len = strftime(text, TEXT_MAX, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(text + len, TEXT_MAX - len, ".%03u", (unsigned)(time_ns / 1000000u % 1000u));
    return text;
}

const char *counted_text(char text[TEXT_MAX], uint64_t count, const char *one, const char *many)
{
    snprintf(text, TEXT_MAX, tap_text(count == 1 ? one : many), (unsigned long long)count);
    return text;
}

/* ----------------------------------------------------------------------------------------------------------- json */

void shape_json(jsonout *json, const char *key, const int64_t *shape, int32_t ndim)
{
    json_open(json, key, '[');
    for (int32_t i = 0; i < ndim; i++)
        json_int(json, NULL, shape[i]);
    json_close(json, ']');
}

static void number_json(jsonout *json, const char *key, tap_dtype dtype, tap_number number)
{
    char kind = dtype_class(dtype);
    if (kind == 'I')
        json_int(json, key, number.i);
    else if (kind == 'U' || kind == 'B')
        json_uint(json, key, number.u);
    else
        json_real(json, key, number.f);
}

void stats_json(jsonout *json, const char *key, tap_dtype dtype, const tap_stats *stats)
{
    json_open(json, key, '{');
    json_uint(json, "count", stats->count);
    json_uint(json, "nan", stats->nan);
    json_uint(json, "pos_inf", stats->pos_inf);
    json_uint(json, "neg_inf", stats->neg_inf);
    json_uint(json, "zero", stats->zero);
    number_json(json, "min", dtype, stats->min);
    number_json(json, "max", dtype, stats->max);
    json_real(json, "mean", stats->mean);
    json_real(json, "norm", stats->norm);
    json_close(json, '}');
}

/* "" is "not known": null. */
static void json_known(jsonout *json, const char *key, const char *text)
{
    json_text(json, key, text && *text ? text : NULL);
}

static void place_json(jsonout *json, const tap_record *record)
{
    json_known(json, "source", record->source);
    if (record->line > 0)
        json_int(json, "line", record->line);
    else
        json_null(json, "line");
    json_known(json, "module", record->module);
    json_known(json, "graph", record->graph);
    json_known(json, "node", record->node);
    json_known(json, "device", record->device);
    json_known(json, "placements", record->placements);
    json_known(json, "type_name", record->type_name);
    json_known(json, "file", record->file);
    json_uint(json, "offset", record->offset);
}

void record_json(jsonout *json, const tap_record *record)
{
    const tap_dtype_info *dtype = tap_dtype_describe(record->dtype);
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, record->hash);
    json_int(json, "rank", record->rank);
    json_int(json, "attempt", record->attempt);
    json_int(json, "child", record->child);
    json_int(json, "step", record->step);
    json_text(json, "name", record->name);
    json_text(json, "path", record->path);
    json_uint(json, "call", record->call);
    json_text(json, "kind", tap_kind_name(record->kind));
    json_text(json, "value", value_type_name(record->value_type));
    json_text(json, "dtype", dtype ? dtype->name : NULL);
    shape_json(json, "shape", record->shape, record->ndim);
    if (record->has_stats && (record_is_tensor(record) || record_has_numbers(record)))
        stats_json(json, "stats", record->dtype, &record->stats);
    else
        json_null(json, "stats");
    json_text(json, "hash", record->has_hash ? hash : NULL);
    json_uint(json, "bytes", record->payload_bytes);
    json_text(json, "state", state_name(record->state));
    json_bool(json, "requires_grad", record->flags & TAP_SAVE_REQUIRES_GRAD);
    json_bool(json, "recomputed", record->flags & TAP_SAVE_RECOMPUTED);
    json_uint(json, "replay", record->replay);
    json_uint(json, "seq", record->seq);
    json_uint(json, "time_ns", record->time_ns);
    place_json(json, record);
}

/* --------------------------------------------------------------------------------------------- sets and endings */

static void set_place(number_set *set, int64_t number)
{
    size_t i = ((uint64_t)number * 0x9E3779B97F4A7C15u >> 20) & (set->cap - 1);
    while (set->used[i] && set->slots[i] != number)
        i = (i + 1) & (set->cap - 1);
    set->count += !set->used[i];
    set->used[i] = 1;
    set->slots[i] = number;
}

static void set_grow(number_set *set)
{
    number_set old = *set;
    set->cap = old.cap ? old.cap * 2 : 64;
    set->count = 0;
    set->slots = get_memory(NULL, set->cap * sizeof *set->slots);
    set->used = get_memory(NULL, set->cap);
    memset(set->used, 0, set->cap);
    for (size_t i = 0; i < old.cap; i++)
        if (old.used[i])
            set_place(set, old.slots[i]);
    free(old.slots);
    free(old.used);
}

void set_add(number_set *set, int64_t number)
{
    if (set->count * 2 >= set->cap)
        set_grow(set);
    if (set->count == 0 || number < set->min)
        set->min = number;
    if (set->count == 0 || number > set->max)
        set->max = number;
    set_place(set, number);
}

void set_free(number_set *set)
{
    free(set->slots);
    free(set->used);
    *set = (number_set){0};
}

const char *ended_name(const char *ended)
{
    static const char *const NAMES[][2] = {
        {"closed", N_("closed")},
        {"killed", N_("killed")},
        {"live", N_("still recording")},
        {"unknown", N_("not closed")},
    };
    for (size_t i = 0; ended && i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(NAMES[i][0], ended) == 0)
            return tap_text(NAMES[i][1]);
    return ended ? ended : "";
}

/* Is there a later attempt of the same rank? Then this one's end no longer matters. */
static bool attempt_is_old(const tap_run *run, const tap_attempt *it)
{
    for (int i = 0; i < tap_run_attempt_count(run); i++) {
        tap_attempt other;
        tap_attempt_init(&other);
        tap_run_attempt(run, i, &other);
        if (other.rank == it->rank && other.child == 0 && it->child == 0 && other.attempt > it->attempt)
            return true;
    }
    return false;
}

const char *ended_text(const tap_run *run, char *text, size_t size)
{
    int count = tap_run_attempt_count(run), closed = 0, others = 0;
    size_t len = 0;
    text[0] = 0;
    for (int i = 0; i < count; i++) {
        tap_attempt it;
        tap_attempt_init(&it);
        tap_run_attempt(run, i, &it);
        if (it.child || attempt_is_old(run, &it))
            continue;
        if (strcmp(it.ended, "closed") == 0) {
            closed++;
            continue;
        }
        if (others++ < 4 && len < size)
            len += (size_t)snprintf(text + len, size - len, tap_text("%srank %d %s"), len ? ", " : "", it.rank,
                                    ended_name(it.ended));
    }
    if (others > 4 && len < size)
        snprintf(text + len, size - len, ", ...");
    if (!others && closed)
        snprintf(text, size, "%s", ended_name("closed"));
    return text;
}
