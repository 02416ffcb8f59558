/* op.c - reads the rows of ops.def into tap_op structs, once, and finds them by name. */
#include "graph/op.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/shape.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define tap__shape_NULL ((tap_shape_rule)0)

typedef struct row {
    tap_op_kind kind;
    const char *name, *ge, *inputs, *attrs, *outputs, *dtypes;
    tap_shape_rule shape;
    bool counted;
    tap__pw_code code;
    const char *doc;
} row;

static const row ROWS[] = {
    {TAP_OP_DATA, "Data", "Data", "", "index:int", "y", NULL, NULL, false, 0, "A graph input."},
    {TAP_OP_CONST, "Const", "Const", "", "", "y", NULL, NULL, false, 0, "A value kept in the graph."},
    {TAP_OP_OUTPUT, "NetOutput", "NetOutput", "x*", "", "", NULL, NULL, false, 0, "The graph's results."},
    {TAP_OP_HOST, "HostCall", NULL, "x*", "", "", NULL, NULL, false, 0, "Run by the framework that made the graph."},
#define VIEW(name, ge, inputs, attrs, outputs, shape, doc) \
    {TAP_OP_VIEW, #name, ge, inputs, attrs, outputs, NULL, tap__shape_##shape, false, 0, doc},
#define POINTWISE(name, ge, inputs, attrs, dtypes, doc) \
    {TAP_OP_POINTWISE, #name, ge, inputs, attrs, "y", dtypes, tap__shape_broadcast, false, TAP_PW_##name, doc},
#define KERNEL(name, ge, inputs, attrs, outputs, dtypes, shape, kernel, doc) \
    {TAP_OP_KERNEL, #name, ge, inputs, attrs, outputs, dtypes, tap__shape_##shape, false, 0, doc},
#define COUNTED(name, ge, inputs, attrs, outputs, dtypes, kernel, doc) \
    {TAP_OP_KERNEL, #name, ge, inputs, attrs, outputs, dtypes, NULL, true, 0, doc},
#define GE(name, inputs, attrs, outputs, doc) \
    {TAP_OP_GE, "ge." #name, #name, inputs, attrs, outputs, NULL, NULL, false, 0, doc},
#include "graph/ops.def"
};

_Static_assert(sizeof ROWS / sizeof ROWS[0] == TAP__ROWS, "a row and a number for each operator");

enum { MAX_ADDED = 256 };

static const struct {
    const char *name;
    tap_attr_type type;
} TYPES[] = {
    {"int", TAP_ATTR_INT},     {"float", TAP_ATTR_FLOAT}, {"bool", TAP_ATTR_BOOL},
    {"scalar", TAP_ATTR_SCALAR}, {"dtype", TAP_ATTR_DTYPE}, {"str", TAP_ATTR_STR},
    {"ints", TAP_ATTR_INTS},   {"floats", TAP_ATTR_FLOATS}, {"bools", TAP_ATTR_BOOLS},
};

static tap_op table[TAP__ROWS + MAX_ADDED];
static const tap_op *by_name[TAP__ROWS]; /* the rows of ops.def; what was added stands behind them, as it came */
static _Atomic int added_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The next piece of a list with ", " between, without blanks; false at the end. */
static bool next_piece(const char **at, char *out, size_t size)
{
    const char *from = *at + strspn(*at, " ,");
    size_t len = strcspn(from, ",");
    if (!*from)
        return false;
    *at = from + len;
    while (len > 0 && from[len - 1] == ' ')
        len--;
    if (len >= size)
        len = size - 1;
    memcpy(out, from, len);
    out[len] = 0;
    return true;
}

static void take_name(char *dst, size_t size, const char *from, size_t len)
{
    if (len >= size)
        len = size - 1;
    memcpy(dst, from, len);
    dst[len] = 0;
}

static void parse_input(tap_param *param, const char *text)
{
    size_t len = strlen(text);
    char last = len ? text[len - 1] : 0;
    param->kind = last == '?' ? TAP_PARAM_OPTIONAL : last == '*' ? TAP_PARAM_LIST : TAP_PARAM_INPUT;
    take_name(param->name, sizeof param->name, text, param->kind == TAP_PARAM_INPUT ? len : len - 1);
}

static void parse_attr(tap_param *param, const char *text)
{
    size_t name = strcspn(text, ":"), type = strcspn(text + name, "=?");
    param->kind = TAP_PARAM_ATTR;
    take_name(param->name, sizeof param->name, text, name);
    const char *type_text = text + name + (text[name] == ':'), *rest = text + name + type;
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (strlen(TYPES[i].name) == (size_t)(rest - type_text) &&
            strncmp(TYPES[i].name, type_text, (size_t)(rest - type_text)) == 0)
            param->type = TYPES[i].type;
    if (*rest == '?') {
        param->optional = true;
        rest++;
    }
    if (*rest == '=') {
        param->has_default = true;
        take_name(param->text, sizeof param->text, rest + 1, strlen(rest + 1));
    }
}

static void parse_row(tap_op *op, const row *from)
{
    char piece[64];
    *op = (tap_op){.name = from->name, .ge = from->ge, .kind = from->kind, .dtypes = from->dtypes,
                   .shape = from->shape, .code = from->code, .doc = from->doc, .counted = from->counted};
    for (const char *at = from->inputs; op->nparams < TAP_OP_MAX_PARAMS && next_piece(&at, piece, sizeof piece);)
        parse_input(&op->params[op->nparams++], piece);
    op->ninputs = op->nparams;
    for (const char *at = from->attrs; op->nparams < TAP_OP_MAX_PARAMS && next_piece(&at, piece, sizeof piece);)
        parse_attr(&op->params[op->nparams++], piece);
    for (const char *at = from->outputs; op->noutputs < TAP_OP_MAX_OUTPUTS && next_piece(&at, piece, sizeof piece);) {
        size_t len = strlen(piece);
        char last = len ? piece[len - 1] : 0;
        if (last == '*') {
            op->noutputs = -1;
            take_name(op->outputs[0], sizeof op->outputs[0], piece, len - 1);
            break;
        }
        op->output_optional[op->noutputs] = last == '?';
        take_name(op->outputs[op->noutputs++], sizeof op->outputs[0], piece, len - (last == '?'));
    }
    if (from->kind == TAP_OP_HOST)
        op->noutputs = -1;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp((*(const tap_op *const *)a)->name, (*(const tap_op *const *)b)->name);
}

static void read_table(void)
{
    for (int i = 0; i < TAP__ROWS; i++) {
        parse_row(&table[i], &ROWS[i]);
        table[i].row = (tap__op_row)i;
        by_name[i] = &table[i];
    }
    qsort(by_name, TAP__ROWS, sizeof by_name[0], compare_name);
}

const tap_op *tap__op_at(int index)
{
    pthread_once(&once, read_table);
    return index >= 0 && index < TAP__ROWS + atomic_load(&added_count) ? &table[index] : NULL;
}

const tap_op *tap__op_find(const char *name)
{
    pthread_once(&once, read_table);
    for (int i = 0, count = atomic_load(&added_count); i < count; i++)
        if (strcmp(table[TAP__ROWS + i].name, name) == 0)
            return &table[TAP__ROWS + i];
    tap_op key = {.name = name};
    const tap_op *at = &key;
    const tap_op **found = bsearch(&at, by_name, TAP__ROWS, sizeof by_name[0], compare_name);
    return found ? *found : NULL;
}

tap_status tap__op_draft(const tap_op_desc *desc, tap_shape_rule shape, const tap_op **out, tap_error *err)
{
    *out = NULL;
    if (tap__op_find(desc->name))
        return tap_fail(err, TAP_E_EXISTS, "operator %s: there is one of this name; choose another", desc->name);
    int count = atomic_load(&added_count);
    if (count == MAX_ADDED)
        return tap_fail(err, TAP_E_LIMIT, "operator %s: %d operators were added already", desc->name, MAX_ADDED);
    row from = {.kind = TAP_OP_KERNEL, .name = desc->name, .inputs = desc->inputs ? desc->inputs : "",
                .attrs = desc->attrs ? desc->attrs : "", .outputs = desc->outputs ? desc->outputs : "y",
                .dtypes = desc->dtypes, .shape = shape, .doc = desc->doc ? desc->doc : ""};
    tap_op *op = &table[TAP__ROWS + count];
    parse_row(op, &from);
    op->row = TAP__ROWS;
    op->user = desc;
    *out = op;
    return TAP_OK;
}

void tap__op_publish(void)
{
    atomic_fetch_add(&added_count, 1);
}
