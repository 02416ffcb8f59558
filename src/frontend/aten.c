/* aten.c - the rows of aten.def as a sorted table. */
#include "frontend/aten.h"

#include "base/log.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *target, *op, *bindings;
} ROWS[] = {
#define ATEN(target, op, bindings) {target, #op, bindings},
#include "frontend/aten.def"
    {NULL, NULL, NULL},
};

enum { ROWS_COUNT = sizeof ROWS / sizeof ROWS[0] - 1 };

enum { MAX_ADDED = 256 };
static tap__aten table[ROWS_COUNT + MAX_ADDED];
static int table_count;
static tap__aten *added; /* behind the sorted rows */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* "name = something" up to the next comma outside of brackets; false at the end. */
static bool next_pair(const char **at, char *name, size_t name_size, char *text, size_t text_size)
{
    const char *from = *at + strspn(*at, " ,");
    if (!*from)
        return false;
    size_t len = strcspn(from, " =");
    size_t take = len < name_size ? len : name_size - 1;
    memcpy(name, from, take);
    name[take] = 0;
    from += len;
    from += strspn(from, " =");
    int depth = 0;
    for (len = 0; from[len] && (depth > 0 || from[len] != ','); len++)
        depth += from[len] == '[' ? 1 : from[len] == ']' ? -1 : 0;
    *at = from + len;
    while (len > 0 && from[len - 1] == ' ')
        len--;
    take = len < text_size ? len : text_size - 1;
    memcpy(text, from, take);
    text[take] = 0;
    return true;
}

static bool is_constant(const char *text)
{
    return strchr("[-.#0123456789'", text[0]) || strcmp(text, "true") == 0 || strcmp(text, "false") == 0 ||
           strcmp(text, "none") == 0 || strcmp(text, "inf") == 0;
}

/* op NULL: the row names an operator that is not there. */
static bool parse_row(tap__aten *out, const char *target, const tap_op *op, const char *bindings)
{
    out->target = target;
    out->op = op;
    if (!op)
        return false;
    for (int i = 0; i < out->op->nparams; i++) {
        out->bindings[i].kind = TAP__BIND_ARG;
        memcpy(out->bindings[i].text, out->op->params[i].name, sizeof out->bindings[i].text);
    }
    char name[24], text[24];
    for (const char *at = bindings; next_pair(&at, name, sizeof name, text, sizeof text);) {
        int i = 0;
        while (i < out->op->nparams && strcmp(out->op->params[i].name, name) != 0)
            i++;
        if (i == out->op->nparams)
            return false;
        out->bindings[i].kind = is_constant(text) ? TAP__BIND_CONST : TAP__BIND_ARG;
        memcpy(out->bindings[i].text, text, sizeof text);
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const tap__aten *)a)->target, ((const tap__aten *)b)->target);
}

static void read_table(void)
{
    for (int i = 0; i < ROWS_COUNT; i++)
        if (parse_row(&table[table_count], ROWS[i].target, tap__op_find(ROWS[i].op), ROWS[i].bindings))
            table_count++;
        else
            tap__log(TAP_LOG_ERROR, "%s: its row in the table of ATen overloads is wrong; it runs on the host",
                     ROWS[i].target);
    qsort(table, (size_t)table_count, sizeof table[0], compare);
    added = table + table_count;
}

/* Rows that were added are few and behind the sorted ones; one that is found stays where it is. */
static _Atomic int added_count;

const tap__aten *tap__aten_find(const char *target)
{
    pthread_once(&once, read_table);
    for (int i = 0, count = atomic_load(&added_count); i < count; i++)
        if (strcmp(added[i].target, target) == 0)
            return &added[i];
    tap__aten key = {.target = target};
    return bsearch(&key, table, (size_t)table_count, sizeof table[0], compare);
}

tap_status tap__aten_add(const char *target, const tap_op *op, const char *bindings, tap_error *err)
{
    pthread_once(&once, read_table);
    int count = atomic_load(&added_count);
    if (table_count + count == ROWS_COUNT + MAX_ADDED)
        return tap_fail(err, TAP_E_LIMIT, "operator %s: %d operators were added already", op->name, MAX_ADDED);
    if (!parse_row(&added[count], target, op, bindings ? bindings : ""))
        return tap_fail(err, TAP_E_INVALID, "operator %s: its bindings \"%s\" name a parameter it does not have", op->name,
                        bindings ? bindings : "");
    atomic_store(&added_count, count + 1);
    return TAP_OK;
}

bool tap_engine_knows(const char *target)
{
    if (!target)
        return false;
    return tap__aten_find(target) != NULL;
}
