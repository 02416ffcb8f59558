/* msprobe_records.c - the text of one debug.json or dump.json, ours or mindstudio-probe's own, as records. Every member
 * is checked here, since the file may come from anywhere. Items are read one after the other, so that a file which is
 * broken somewhere gives all that lie whole before that place. */
#include "record/layouts/msprobe.h"

#include "base/io.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/layout_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define JSON_MAX_DEPTH (TAP_MSPROBE_DEPTH + 64)

/* An item of "data": its key, and where its value lies in the text. */
typedef struct item {
    size_t key, value, len; /* key: into reader.keys */
} item;

typedef struct reader {
    const tap_msprobe_place *place;
    uint64_t *seq;
    tap_record_fn add;
    void *user;
    const char *text;
    item *items;
    size_t count, cap;
    tap_strbuf keys;
    tap_strmap by_key;       /* to position + 1, to tell a gradient from a variable named like one */
    tap_arena arena;         /* of the item at hand */
    const tap_json_value *forward; /* of a gradient: the value it belongs to */
    tap_record record;       /* name, call, kind of the item at hand */
    tap_facts facts;         /* of the leaf at hand */
    tap_strbuf name, path, file;
    int64_t shape[TAP_MAX_NDIM];
    tap_error *err;
} reader;

/* -------------------------------------------------------------------------------------------------- leaf to record */

static const tap_json_value *member(const tap_json_value *object, const char *key)
{
    return tap__json_get(object, key, NULL);
}

static const char *member_text(const tap_json_value *object, const char *key)
{
    const tap_json_value *value = member(object, key);
    return value && value->type == TAP_JSON_TEXT ? value->text : NULL;
}

static bool is_type(const tap_json_value *value, tap_json_type type)
{
    return value && value->type == type;
}

static bool is_true(const tap_json_value *value)
{
    return is_type(value, TAP_JSON_BOOL) && value->magnitude;
}

/* A statistic as a double; NaN when it is null or not there. */
static double member_double(const tap_json_value *object, const char *key, bool *there)
{
    const tap_json_value *value = member(object, key);
    *there = value && (value->type == TAP_JSON_INT || value->type == TAP_JSON_FLOAT || value->type == TAP_JSON_BOOL);
    return *there ? value->number : (double)NAN;
}

/* In the kind of number that the dtype has; *there: it is a number of that kind. */
static tap_number member_number(const tap_json_value *object, const char *key, char kind, bool *there)
{
    tap_number number = {.f = member_double(object, key, there)};
    const tap_json_value *value = member(object, key);
    if (!*there)
        return number;
    double real = number.f;
    if (kind == 'B') {
        *there = value->type == TAP_JSON_BOOL;
        number.u = *there ? value->magnitude : 0;
    } else if (kind == 'I' && !tap__json_int64(value, &number.i)) {
        *there = fabs(real) < 0x1p62; /* MindSpore has them as float32 */
        number.i = *there ? (int64_t)real : 0;
    } else if (kind == 'U' && !tap__json_uint64(value, &number.u)) {
        *there = real >= 0 && real < 0x1p63;
        number.u = *there ? (uint64_t)real : 0;
    }
    return number;
}

static bool read_shape(reader *r, const tap_json_value *leaf)
{
    const tap_json_value *shape = member(leaf, "shape");
    if (!is_type(shape, TAP_JSON_LIST) || shape->count > TAP_MAX_NDIM)
        return false;
    int32_t ndim = 0;
    for (const tap_json_value *size = shape->items; size; size = size->next)
        if (!tap__json_int64(size, &r->shape[ndim++]) || r->shape[ndim - 1] < 0)
            return false;
    r->record.ndim = ndim;
    r->record.shape = r->shape;
    return true;
}

static void read_stats(reader *r, const tap_json_value *leaf, uint64_t count)
{
    tap_record *record = &r->record;
    const tap_dtype_info *info = tap_dtype_describe(record->dtype);
    bool has_max, has_min;
    if (!info)
        return;
    tap_stats stats = {.count = count};
    stats.max = member_number(leaf, "Max", info->kind, &has_max);
    stats.min = member_number(leaf, "Min", info->kind, &has_min);
    stats.mean = member_double(leaf, "Mean", &r->facts.mean);
    stats.norm = member_double(leaf, "Norm", &r->facts.norm);
    if (!has_max || !has_min)
        return;
    if (info->kind == 'F' || info->kind == 'C') {
        stats.nan = (uint64_t)(isnan(stats.max.f) ? 1 : 0);
        stats.pos_inf = isinf(stats.max.f) && stats.max.f > 0;
        stats.neg_inf = isinf(stats.min.f) && stats.min.f < 0;
    }
    record->stats = stats;
    record->has_stats = true;
}

/* "0a1b2c3d", a CRC-32, or "0x" and 16 digits, the xor of all words. */
static void read_checksum(reader *r, const tap_json_value *leaf)
{
    const char *text = member_text(leaf, "md5");
    if (!text)
        return;
    bool is_xor = strncmp(text, "0x", 2) == 0;
    const char *digits = text + (is_xor ? 2 : 0);
    if (strlen(digits) != (is_xor ? 16 : 8) || strspn(digits, "0123456789abcdef") != strlen(digits))
        return;
    r->facts.checksum_kind = is_xor ? TAP_CHECKSUM_XOR : TAP_CHECKSUM_CRC32;
    r->facts.checksum = strtoull(digits, NULL, 16);
}

/* The tensor's file, when the name stays in its directory. */
static void read_file_name(reader *r, const tap_json_value *leaf, uint64_t bytes)
{
    const char *name = member_text(leaf, "data_name");
    tap_record *record = &r->record;
    tap__strbuf_clear(&r->file);
    if (!name) {
        record->state = record->value_type == TAP_VALUE_META || bytes == 0 ? TAP_RECORD_WHOLE : TAP_RECORD_RULE;
        return;
    }
    record->state = TAP_RECORD_STATS_ONLY;
    if (!name[0] || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return;
    tap__strbuf_str(&r->file, r->place->relative);
    tap__strbuf_str(&r->file, "dump_tensor_data/");
    tap__strbuf_str(&r->file, name);
    struct stat st;
    if (!r->file.failed && r->place->dir && tap__dir_stat(r->place->dir, r->file.text, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        record->state = TAP_RECORD_WHOLE;
        record->payload_bytes = bytes;
    }
    record->file = r->file.failed ? "" : r->file.text;
}

static void read_tensor(reader *r, const tap_json_value *leaf)
{
    tap_record *record = &r->record;
    const char *dtype = member_text(leaf, "dtype");
    record->value_type = TAP_VALUE_TENSOR;
    record->dtype = dtype ? tap_dtype_find(dtype) : TAP_DTYPE_NONE;
    if (!read_shape(r, leaf)) {
        record->ndim = 0;
        record->dtype = TAP_DTYPE_NONE;
    }
    tap_tensor tensor = {.dtype = record->dtype, .ndim = record->ndim, .shape = record->shape};
    int64_t count = record->dtype ? tap_tensor_count(&tensor) : -1;
    int64_t bytes = record->dtype ? tap_tensor_bytes(&tensor) : -1;
    if (is_true(member(leaf, "requires_grad")))
        record->flags |= TAP_SAVE_REQUIRES_GRAD;
    read_stats(r, leaf, count > 0 ? (uint64_t)count : 0);
    read_checksum(r, leaf);
    read_file_name(r, leaf, bytes > 0 ? (uint64_t)bytes : 0);
}

static void read_scalar(tap_record *record, const tap_json_value *value)
{
    tap_number number = {.u = 0};
    if (value->type == TAP_JSON_BOOL) {
        record->value_type = TAP_VALUE_BOOL;
        record->dtype = TAP_BOOL;
        number.u = value->magnitude;
    } else if (tap__json_int64(value, &number.i)) {
        record->value_type = TAP_VALUE_INT;
        record->dtype = TAP_I64;
    } else if (value->type == TAP_JSON_FLOAT) {
        record->value_type = TAP_VALUE_FLOAT;
        record->dtype = TAP_F64;
        number.f = value->number;
    } else {
        record->value_type = value->type == TAP_JSON_NULL ? TAP_VALUE_NONE : TAP_VALUE_STR;
        return;
    }
    double mean = value->number;
    record->has_stats = true;
    record->stats = (tap_stats){.count = 1, .min = number, .max = number, .mean = mean, .norm = fabs(mean)};
    record->stats.nan = (uint64_t)(isnan(mean) ? 1 : 0);
    record->stats.pos_inf = isinf(mean) && mean > 0;
    record->stats.neg_inf = isinf(mean) && mean < 0;
    record->stats.zero = fpclassify(mean) == FP_ZERO;
}

static void fill_leaf(reader *r, const tap_json_value *leaf)
{
    tap_record *record = &r->record;
    const char *type = member_text(leaf, "type");
    const tap_json_value *value = type ? member(leaf, "value") : NULL;
    if (leaf->type == TAP_JSON_NULL) {
        record->value_type = record->kind == TAP_KIND_GRAD ? TAP_VALUE_TENSOR : TAP_VALUE_NONE;
        record->state = record->kind == TAP_KIND_GRAD ? TAP_RECORD_SLOT : TAP_RECORD_WHOLE;
        record->flags = record->kind == TAP_KIND_GRAD ? TAP_SAVE_SLOT : 0;
    } else if (leaf->type == TAP_JSON_LIST || (leaf->type == TAP_JSON_DICT && !type)) {
        record->value_type = leaf->type == TAP_JSON_LIST ? TAP_VALUE_LIST : TAP_VALUE_DICT;
    } else if (!type) {
        record->value_type = TAP_VALUE_NONE;
        record->state = TAP_RECORD_TORN;
        r->facts.why = tap_text("msprobe writes no such value here");
    } else {
        record->type_name = type;
        if (value)
            read_scalar(record, value);
        else
            read_tensor(r, leaf);
    }
}

static tap_status add_leaf(reader *r, const tap_json_value *leaf)
{
    tap_record whole = r->record; /* of the item; what the leaf adds is gone after it */
    tap_record *record = &r->record;
    r->facts = (tap_facts){.why = NULL};
    record->seq = (*r->seq)++;
    record->path = r->path.text ? r->path.text : "";
    fill_leaf(r, leaf);
    tap_status status = r->path.failed || r->file.failed ? tap_fail_nomem(r->err)
                                                         : r->add(r->user, record, &r->facts);
    r->record = whole;
    return status;
}

/* ------------------------------------------------------------------------------------------------------ the values */

static tap_status walk_value(reader *r, const tap_json_value *value);

/* Of a null where a gradient could be: was one to come? Numbers and tensors that need none have it too. */
static bool is_awaited(const tap_json_value *forward)
{
    const tap_json_value *flag = member(forward, "requires_grad");
    return member_text(forward, "dtype") && (!flag || is_true(flag));
}

static bool is_value(const tap_json_value *leaf)
{
    return leaf->type != TAP_JSON_NULL;
}

static bool any_leaf(const tap_json_value *value, bool (*test)(const tap_json_value *leaf))
{
    bool container = value->type == TAP_JSON_LIST || (value->type == TAP_JSON_DICT && !member_text(value, "type"));
    if (!container)
        return test(value);
    for (const tap_json_value *child = value->items; child; child = child->next)
        if (any_leaf(child, test))
            return true;
    return false;
}

static tap_status walk_child(reader *r, const char *key, const tap_json_value *value, const tap_json_value *below)
{
    size_t len = r->path.len;
    const tap_json_value *forward = r->forward;
    r->forward = below;
    if (len)
        tap__strbuf_char(&r->path, '.');
    tap__strbuf_str(&r->path, key);
    tap_status status = walk_value(r, value);
    r->forward = forward;
    r->path.len = len;
    if (r->path.text)
        r->path.text[len] = 0;
    return status;
}

/* beside: where the forward value is looked for, member by member in the same order. */
static tap_status walk_items(reader *r, const tap_json_value *value)
{
    bool list = value->type == TAP_JSON_LIST;
    const tap_json_value *beside = r->forward && r->forward->type == value->type ? r->forward->items : NULL;
    size_t position = 0;
    for (const tap_json_value *child = value->items; child; child = child->next) {
        char number[24];
        snprintf(number, sizeof number, "%zu", position++);
        const tap_json_value *below = list ? beside : tap__json_get(r->forward, child->key, beside);
        TAP_TRY(walk_child(r, list ? number : child->key, child, below));
        beside = beside ? beside->next : NULL;
    }
    return TAP_OK;
}

static tap_status walk_value(reader *r, const tap_json_value *value)
{
    if (value->count && !member_text(value, "type"))
        return walk_items(r, value);
    bool grad = r->record.kind == TAP_KIND_GRAD, container = value->type == TAP_JSON_LIST || value->type == TAP_JSON_DICT;
    if (grad && (value->type == TAP_JSON_NULL ? !is_awaited(r->forward) : container && !value->count))
        return TAP_OK; /* the mirror of what has no gradient */
    return add_leaf(r, value);
}

/* ------------------------------------------------------------------------------------------------------- the items */

/* "<name>.<call>.debug"; a key of another form is the name itself. */
static size_t split_key(const char *key, uint32_t *call)
{
    const char *end = key + strlen(key), *all = end;
    uint64_t number;
    *call = 0;
    if (!tap__strip(key, &end, ".debug"))
        return (size_t)(all - key);
    const char *dot = end;
    while (dot > key && *--dot != '.')
        ;
    if (dot == end || *dot != '.' || !tap__parse_number(dot, end, ".", &number))
        return (size_t)(all - key);
    *call = (uint32_t)number;
    return (size_t)(dot - key);
}

static const tap_json_value *item_value(reader *r, const item *at)
{
    tap_json_reader json;
    tap__json_read_begin(&json, r->text + at->value, at->len, JSON_MAX_DEPTH);
    return tap__json_value(&json, &r->arena);
}

/* Is there "<name without _grad>.<call>.debug"? Then this is its gradient, and *forward its item. */
static bool is_gradient(reader *r, const char *name, size_t len, uint32_t call, const item **forward)
{
    const char *end = name + len;
    if (!tap__strip(name, &end, "_grad"))
        return false;
    tap__strbuf_clear(&r->file);
    tap__strbuf_add(&r->file, name, (size_t)(end - name));
    tap__strbuf_printf(&r->file, ".%u.debug", call);
    uint64_t *at = r->file.failed ? NULL : tap__strmap_find(&r->by_key, r->file.text, r->file.len);
    *forward = at ? &r->items[*at - 1] : NULL;
    return at;
}

static void start_record(reader *r, uint32_t call, tap_kind kind)
{
    r->record = (tap_record){.rank = r->place->rank, .child = r->place->child, .step = r->place->step,
        .name = r->name.text, .call = call, .kind = kind, .path = "", .source = "",
        .module = "", .graph = "", .node = "", .device = "", .placements = "", .type_name = "", .file = ""};
}

static tap_status read_item(reader *r, const char *key, const tap_json_value *value)
{
    uint32_t call;
    size_t len = split_key(key, &call);
    const item *forward = NULL;
    bool grad = is_gradient(r, key, len, call, &forward);
    r->forward = grad ? item_value(r, forward) : NULL;
    if (grad && !r->forward)
        return tap_fail_nomem(r->err);
    if (grad && !any_leaf(r->forward, is_awaited) && any_leaf(value, is_value)) {
        grad = false; /* a variable: what is called so without "_grad" has no gradient */
        r->forward = NULL;
    }
    tap__strbuf_clear(&r->name);
    tap__strbuf_clear(&r->path);
    tap__strbuf_add(&r->name, key, grad ? len - 5 : tap__msprobe_unclaim(key, len));
    if (r->name.failed)
        return tap_fail_nomem(r->err);
    start_record(r, call, grad ? TAP_KIND_GRAD : TAP_KIND_FORWARD);
    return walk_value(r, value);
}

/* "<name>.forward.<call>" and the like; a key of another form is the name itself. */
static size_t split_module_key(const char *key, uint32_t *call, tap_kind *kind)
{
    static const struct {
        const char *text;
        tap_kind kind;
    } DIRECTIONS[] = {{".forward", TAP_KIND_FORWARD}, {".backward", TAP_KIND_GRAD},
                      {".parameters_grad", TAP_KIND_PARAM}};
    const char *end = key + strlen(key), *dot = end;
    uint64_t number;
    *call = 0;
    *kind = TAP_KIND_FORWARD;
    while (dot > key && *--dot != '.')
        ;
    if (dot == end || *dot != '.' || !tap__parse_number(dot, end, ".", &number))
        return (size_t)(end - key);
    for (size_t i = 0; i < sizeof DIRECTIONS / sizeof DIRECTIONS[0]; i++) {
        const char *stop = dot;
        if (tap__strip(key, &stop, DIRECTIONS[i].text)) {
            *call = (uint32_t)number;
            *kind = DIRECTIONS[i].kind;
            return (size_t)(stop - key);
        }
    }
    return (size_t)(end - key);
}

/* One member of a module's item: input_args, input_kwargs, output, parameters. */
static tap_status read_member(reader *r, const tap_json_value *value)
{
    if (r->record.kind != TAP_KIND_GRAD && r->record.kind != TAP_KIND_PARAM)
        r->record.kind = strncmp(value->key, "input", 5) == 0 ? TAP_KIND_INPUT : TAP_KIND_OUTPUT;
    bool container = value->type == TAP_JSON_LIST || value->type == TAP_JSON_DICT;
    if (container ? !value->count : value->type != TAP_JSON_NULL)
        return TAP_OK; /* nothing came in, or a remark: "is_recompute": true */
    return walk_child(r, value->key, value, NULL);
}

static tap_status read_module(reader *r, const char *key, const tap_json_value *value)
{
    uint32_t call;
    tap_kind kind;
    size_t len = split_module_key(key, &call, &kind);
    tap__strbuf_clear(&r->name);
    tap__strbuf_clear(&r->path);
    tap__strbuf_add(&r->name, key, len);
    if (r->name.failed)
        return tap_fail_nomem(r->err);
    start_record(r, call, kind);
    if (value->type != TAP_JSON_DICT || member_text(value, "type"))
        return walk_value(r, value);
    for (const tap_json_value *child = value->items; child; child = child->next)
        TAP_TRY(read_member(r, child));
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- the text */

static bool item_add(reader *r, const tap_strbuf *key, const char *value, size_t len)
{
    if (r->count == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        item *grown = tap__resize(r->items, cap, sizeof *grown);
        if (!grown)
            return false;
        r->items = grown;
        r->cap = cap;
    }
    r->items[r->count] = (item){r->keys.len, (size_t)(value - r->text), len};
    tap__strbuf_add(&r->keys, key->text, key->len + 1);
    bool added;
    uint64_t *at = tap__strmap_add(&r->by_key, key->text, key->len, &added);
    if (!at || r->keys.failed)
        return false;
    *at = ++r->count;
    return true;
}

/* Finds the items of "data", as far as the text is whole. false: no memory. */
static bool find_items(reader *r, tap_json_reader *json, bool *found)
{
    tap_strbuf key = TAP_STRBUF_INIT;
    const char *value;
    size_t len;
    bool ok = true;
    if (tap__json_enter(json, '{')) {
        while (ok && tap__json_member(json, &key)) {
            if (strcmp(key.text, "data") != 0 || tap__json_peek(json) != '{') {
                tap__json_skip(json, &value, &len);
                continue;
            }
            *found = tap__json_enter(json, '{');
            while (ok && tap__json_member(json, &key))
                if (tap__json_skip(json, &value, &len))
                    ok = item_add(r, &key, value, len);
        }
        tap__json_end(json);
    }
    ok = ok && !key.failed;
    tap__strbuf_free(&key);
    return ok;
}

static tap_status read_items(reader *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const item *at = &r->items[i];
        tap__arena_init(&r->arena, r->items[i].len);
        const tap_json_value *value = item_value(r, at);
        const char *key = r->keys.text + at->key;
        tap_status status = !value ? tap_fail_nomem(r->err)
                            : r->place->modules ? read_module(r, key, value)
                                                : read_item(r, key, value);
        tap__arena_free(&r->arena);
        TAP_TRY(status);
    }
    return TAP_OK;
}

tap_status tap__msprobe_records(const char *text, size_t len, const tap_msprobe_place *place, uint64_t *seq,
                                tap_record_fn add, void *user, tap_error *err)
{
    char what[300];
    snprintf(what, sizeof what, "%.250s%s.json", place->relative, place->modules ? "dump" : "debug");
    reader r = {.place = place, .seq = seq, .add = add, .user = user, .text = text, .err = err};
    tap_json_reader json;
    bool found = false;
    tap__json_read_begin(&json, text, len, JSON_MAX_DEPTH);
    tap_status status = find_items(&r, &json, &found) ? read_items(&r) : tap_fail_nomem(err);
    if (status == TAP_OK && json.why)
        status = tap__json_broken(&json, what, err);
    else if (status == TAP_OK && !found)
        status = tap_fail(err, TAP_E_FORMAT, "%s has no \"data\" object; is it msprobe's?", what);
    tap__free(r.items);
    tap__strmap_free(&r.by_key);
    tap__strbuf_free(&r.keys);
    tap__strbuf_free(&r.name);
    tap__strbuf_free(&r.path);
    tap__strbuf_free(&r.file);
    return status;
}
