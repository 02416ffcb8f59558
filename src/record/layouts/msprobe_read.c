/* msprobe_read.c - finds the debug.json and dump.json of a tree, ours or mindstudio-probe's own, and gives their records
 * in order. Where such a file is broken, the tensor files beside it that it no longer names are told by their names. */
#include "record/layouts/msprobe.h"

#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/layout_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define JSON_MAX_BYTES ((size_t)1 << 30)
#define MAX_FILES ((size_t)64 << 20) /* of one recording */
#define TREE_DEPTH 4 /* pynative/step0/rank0/debug.json */

typedef struct found_json {
    char *relative;
    int64_t step;
    int32_t rank, child, pid;
} found_json;

typedef struct listing {
    found_json *items;
    size_t count, cap;
    const char *file;    /* "debug.json" or "dump.json" */
    bool failed, only_one;
} listing;

/* Step, rank and process from the directories above the file, as far as they say. */
static void read_place(const char *whole, found_json *found)
{
    const char *end = strrchr(whole, '/');
    for (int i = 0; i < 2 && end; i++) {
        uint64_t number;
        const char *stop = end, *part = tap__last_component(whole, &end), *part_end = stop;
        if (!part)
            return;
        tap_found process = {.child = 0};
        if (strncmp(part, "rank", 4) == 0)
            tap__strip_process(part, &part_end, &process);
        if (tap__parse_number(part, part_end, "rank", &number)) {
            found->rank = (int32_t)(number & INT32_MAX);
            found->child = process.child;
        } else if (tap__parse_number(part, stop, "proc", &number)) {
            found->pid = (int32_t)(number & INT32_MAX);
        } else if (tap__parse_number(part, stop, "step", &number)) {
            found->step = (int64_t)number;
        }
    }
}

static bool list_visit(void *user, const char *whole, const char *relative)
{
    listing *list = user;
    const char *slash = strrchr(whole, '/');
    if (strcmp(slash + 1, list->file) != 0)
        return true;
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 16;
        found_json *grown = tap__resize(list->items, cap, sizeof *grown);
        if (!grown)
            return !(list->failed = true);
        list->items = grown;
        list->cap = cap;
    }
    found_json found = {.relative = tap__strdup(relative)};
    read_place(whole, &found);
    if (!found.relative)
        return !(list->failed = true);
    list->items[list->count++] = found;
    return !list->only_one;
}

static int list_order(const void *a, const void *b)
{
    const found_json *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->child != y->child)
        return x->child < y->child ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step ? 1 : strcmp(x->relative, y->relative);
}

static void list_free(listing *list)
{
    for (size_t i = 0; i < list->count; i++)
        tap__free(list->items[i].relative);
    tap__free(list->items);
}

static bool detect(tap_dir *dir, const char *only, const char *file)
{
    listing list = {.file = file, .only_one = true};
    tap__tree_walk(dir, only, TREE_DEPTH, MAX_FILES, list_visit, &list, NULL);
    bool yes = list.count;
    list_free(&list);
    return yes;
}

bool tap__msprobe_detect(tap_dir *dir, const char *only)
{
    return detect(dir, only, "debug.json");
}

bool tap__msprobe_modules_detect(tap_dir *dir, const char *only)
{
    return detect(dir, only, "dump.json");
}

/* Processes without a rank that wrote side by side are told apart as children of rank 0. */
static void tell_processes(listing *list)
{
    bool several = false;
    for (size_t i = 1; i < list->count; i++)
        several |= list->items[i].pid != list->items[0].pid;
    for (size_t i = 0; several && i < list->count; i++)
        if (list->items[i].pid)
            list->items[i].child = list->items[i].pid;
}

/* -------------------------------------------------------------------------------------------- files that are broken */

/* What reading goes on with where a debug.json is broken. */
typedef struct rest {
    const tap_msprobe_place *place;
    uint64_t *seq;
    tap_record_fn add;
    void *user;
    tap_strmap named;    /* files that have a record */
    bool failed;
} rest;

static tap_status note_file(void *user, const tap_record *record, const tap_facts *facts)
{
    rest *r = user;
    bool added;
    (void)facts;
    r->failed |= record->file[0] && !tap__strmap_add(&r->named, record->file, strlen(record->file), &added);
    return TAP_OK;
}

/* "<name>[_grad].<call>.debug[.<path>].pt" */
static bool parse_debug(const char *whole, const char *relative, tap_found *found)
{
    (void)whole;
    const char *end = relative + strlen(relative);
    if (!tap__strip(relative, &end, ".pt") && !tap__strip(relative, &end, ".npy"))
        return false;
    for (const char *at = end; at > relative; at--) {
        if (strncmp(at, ".debug", 6) != 0 || (at + 6 != end && at[6] != '.'))
            continue;
        uint64_t call;
        const char *dot = at;
        while (dot > relative && dot[-1] != '.')
            dot--;
        if (dot == relative || dot == at || !tap__parse_number(dot, at, "", &call))
            continue;
        const char *name_end = dot - 1;
        if (tap__strip(relative, &name_end, "_grad"))
            found->kind = TAP_KIND_GRAD;
        found->call = (uint32_t)call;
        tap__name_unescape(&found->name, relative, (size_t)(name_end - relative));
        if (at + 6 < end)
            tap__name_unescape(&found->path, at + 7, (size_t)(end - at - 7));
        return true;
    }
    return false;
}

/* "<name>.forward.<call>[.<path>].pt" and the like */
static bool parse_module(const char *whole, const char *relative, tap_found *found)
{
    static const struct {
        const char *text;
        tap_kind kind;
    } DIRECTIONS[] = {{".forward.", TAP_KIND_OUTPUT}, {".backward.", TAP_KIND_GRAD},
                      {".parameters_grad.", TAP_KIND_PARAM}};
    (void)whole;
    const char *end = relative + strlen(relative);
    if (!tap__strip(relative, &end, ".pt") && !tap__strip(relative, &end, ".npy"))
        return false;
    for (const char *at = end; at >= relative; at--) {
        for (size_t i = 0; i < sizeof DIRECTIONS / sizeof DIRECTIONS[0]; i++) {
            size_t len = strlen(DIRECTIONS[i].text);
            if (strncmp(at, DIRECTIONS[i].text, len) != 0)
                continue;
            const char *digits = at + len, *stop = digits + strspn(digits, "0123456789");
            uint64_t call;
            if (stop == digits || (stop != end && *stop != '.') || !tap__parse_number(digits, stop, "", &call))
                continue;
            found->kind = DIRECTIONS[i].kind;
            if (found->kind == TAP_KIND_OUTPUT && (strncmp(stop, ".input", 6) == 0 || strncmp(stop, ".kwargs", 7) == 0))
                found->kind = TAP_KIND_INPUT;
            found->call = (uint32_t)call;
            tap__name_unescape(&found->name, relative, (size_t)(at - relative));
            if (stop < end)
                tap__name_unescape(&found->path, stop + 1, (size_t)(end - stop - 1));
            return true;
        }
    }
    return false;
}

/* A file of dump_tensor_data: a record of its own unless the part that is whole names it. */
static tap_status add_unnamed(void *user, const tap_record *record, const tap_facts *facts)
{
    rest *r = user;
    tap_strbuf file = TAP_STRBUF_INIT;
    tap__strbuf_str(&file, r->place->relative);
    tap__strbuf_str(&file, "dump_tensor_data/");
    tap__strbuf_str(&file, record->file);
    tap_record own = *record;
    own.file = file.text;
    own.step = r->place->step;
    own.rank = r->place->rank;
    own.child = r->place->child;
    tap_status status = TAP_OK;
    if (file.failed) {
        status = tap_fail_nomem(NULL);
    } else if (!tap__strmap_find(&r->named, file.text, file.len)) {
        own.seq = (*r->seq)++;
        status = r->add(r->user, &own, facts);
    }
    tap__strbuf_free(&file);
    return status;
}

static tap_status add_files(rest *r, tap_error *err)
{
    tap_strbuf name = TAP_STRBUF_INIT;
    tap_dir *files = NULL;
    tap__strbuf_printf(&name, "%sdump_tensor_data", r->place->relative);
    tap_status status = name.failed ? tap_fail_nomem(err) : TAP_OK;
    if (status == TAP_OK && tap__dir_below(r->place->dir, name.text, false, &files, NULL) == TAP_OK)
        status = tap__tree_read(files, NULL, 0, r->place->modules ? parse_module : parse_debug, add_unnamed, r, err);
    tap__dir_close(files);
    tap__strbuf_free(&name);
    return status;
}

/* The file itself, for what it held and nobody can name any more. */
static tap_status add_broken(rest *r, const char *file, const char *why)
{
    tap_facts facts = {.why = why, .unknown = true};
    tap_record record = {.seq = (*r->seq)++, .rank = r->place->rank, .child = r->place->child, .step = r->place->step,
        .name = file, .state = TAP_RECORD_TORN, .value_type = TAP_VALUE_NONE, .path = "", .source = "", .module = "",
        .graph = "", .node = "", .device = "", .placements = "", .type_name = "", .file = file};
    return r->add(r->user, &record, &facts);
}

/* text NULL: it could not be read at all; why: what is wrong with it. */
static tap_status read_rest(const tap_msprobe_place *place, const char *text, size_t len, const char *file,
                            const char *why, uint64_t *seq, tap_record_fn add, void *user, tap_error *err)
{
    rest r = {.place = place, .seq = seq, .add = add, .user = user};
    uint64_t again = 0;
    if (text)
        tap__msprobe_records(text, len, place, &again, note_file, &r, NULL);
    tap_status status = r.failed ? tap_fail_nomem(err) : add_files(&r, err);
    if (status == TAP_OK)
        status = add_broken(&r, file, why);
    tap__strmap_free(&r.named);
    return status;
}

static bool is_of_file(tap_status status)
{
    return status == TAP_E_TRUNCATED || status == TAP_E_FORMAT || status == TAP_E_LIMIT;
}

/* ------------------------------------------------------------------------------------------------------- the trees */

static tap_status read_text(const tap_msprobe_place *place, const char *file, const char *text, size_t len,
                            uint64_t *seq, tap_record_fn add, void *user, tap_error *err)
{
    tap_error why;
    tap_status status = tap__msprobe_records(text, len, place, seq, add, user, &why);
    if (is_of_file(status))
        return read_rest(place, text, len, file, why.message, seq, add, user, err);
    if (status != TAP_OK && err)
        *err = why;
    return status;
}

static tap_status read_json(tap_dir *dir, const found_json *found, bool modules, uint64_t *seq, tap_record_fn add,
                            void *user, tap_error *err)
{
    char *text = NULL;
    size_t len = 0;
    tap_error why;
    const char *slash = strrchr(found->relative, '/');
    char *below = tap__strndup(found->relative, slash ? (size_t)(slash - found->relative) + 1 : 0);
    tap_status got = tap__dir_get(dir, found->relative, JSON_MAX_BYTES, &text, &len, &why);
    tap_msprobe_place place = {dir, below, found->step, found->rank, found->child, modules};
    tap_status status = !below || got == TAP_E_NOMEM ? tap_fail_nomem(err)
                        : got == TAP_OK
                            ? read_text(&place, found->relative, text, len, seq, add, user, err)
                            : read_rest(&place, NULL, 0, found->relative, why.message, seq, add, user, err);
    tap__free(below);
    tap__free(text);
    return status;
}

static tap_status read_tree(tap_dir *dir, const char *only, bool modules, tap_record_fn add, void *user,
                            tap_error *err)
{
    listing list = {.file = modules ? "dump.json" : "debug.json"};
    tap_status status = tap__tree_walk(dir, only, TREE_DEPTH, MAX_FILES, list_visit, &list, err);
    if (status == TAP_OK && list.failed)
        status = tap_fail_nomem(err);
    tell_processes(&list);
    if (list.count)
        qsort(list.items, list.count, sizeof *list.items, list_order);
    uint64_t seq = 0;
    for (size_t i = 0; i < list.count && status == TAP_OK; i++) {
        if (i && list.items[i].rank != list.items[i - 1].rank)
            seq = 0;
        status = read_json(dir, &list.items[i], modules, &seq, add, user, err);
    }
    list_free(&list);
    return status;
}

tap_status tap__msprobe_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return read_tree(dir, only, false, add, user, err);
}

tap_status tap__msprobe_modules_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return read_tree(dir, only, true, add, user, err);
}
