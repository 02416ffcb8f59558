/* msprobe_read.c - reads trees of debug.json and of dump.json, ours and those mindstudio-probe wrote. json-c does the
 * parsing; depth, sizes and every member are checked here, since the file may come from anywhere. */
#include "record/layouts/msprobe.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/layouts/layout_files.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define JSON_MAX_BYTES ((size_t)1 << 30)
#define JSON_MAX_DEPTH (TAP_MSPROBE_DEPTH + 64)
#define TREE_DEPTH 4 /* pynative/step0/rank0/debug.json */

/* -------------------------------------------------------------------------------------------------- leaf to record */

typedef struct reader {
    const tap_msprobe_place *place;
    uint64_t *seq;
    tap_record_fn add;
    void *user;
    json_object *data;    /* all items, to tell a gradient from a variable named like one */
    json_object *forward; /* of a gradient: the value it belongs to */
    tap_record record;    /* name, call, kind of the item at hand */
    tap_strbuf name, path, file;
    int64_t shape[TAP_MAX_NDIM];
    tap_error *err;
} reader;

static const char *member_text(json_object *object, const char *key)
{
    json_object *value;
    if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_string))
        return NULL;
    return json_object_get_string(value);
}

/* A statistic as a double; NaN when it is null or not there. */
static double member_double(json_object *object, const char *key, bool *there)
{
    json_object *value;
    *there = json_object_object_get_ex(object, key, &value) && value &&
             (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double) ||
              json_object_is_type(value, json_type_boolean));
    return *there ? json_object_get_double(value) : (double)NAN;
}

static tap_number member_number(json_object *object, const char *key, char kind, bool *there)
{
    tap_number number = {.f = member_double(object, key, there)};
    json_object *value;
    if (!*there || !json_object_object_get_ex(object, key, &value))
        return number;
    if (kind == 'B')
        number.u = json_object_get_boolean(value) != 0;
    else if (kind == 'I')
        number.i = json_object_get_int64(value);
    else if (kind == 'U')
        number.u = json_object_get_uint64(value);
    return number;
}

static bool read_shape(reader *r, json_object *leaf)
{
    json_object *shape;
    if (!json_object_object_get_ex(leaf, "shape", &shape) || !json_object_is_type(shape, json_type_array))
        return false;
    size_t ndim = json_object_array_length(shape);
    if (ndim > TAP_MAX_NDIM)
        return false;
    for (size_t i = 0; i < ndim; i++) {
        json_object *item = json_object_array_get_idx(shape, i);
        if (!json_object_is_type(item, json_type_int) || json_object_get_int64(item) < 0)
            return false;
        r->shape[i] = json_object_get_int64(item);
    }
    r->record.ndim = (int32_t)ndim;
    r->record.shape = r->shape;
    return true;
}

static void read_stats(tap_record *record, json_object *leaf, uint64_t count)
{
    const tap_dtype_info *info = tap_dtype_describe(record->dtype);
    bool has_max, has_min, there;
    if (!info)
        return;
    tap_stats stats = {.count = count};
    stats.max = member_number(leaf, "Max", info->kind, &has_max);
    stats.min = member_number(leaf, "Min", info->kind, &has_min);
    stats.mean = member_double(leaf, "Mean", &there);
    stats.norm = member_double(leaf, "Norm", &there);
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

/* The tensor's file, when the name stays in its directory. */
static void read_file_name(reader *r, json_object *leaf, uint64_t bytes)
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
    char *path = r->file.failed || !r->place->root ? NULL : tap__path_join(r->place->root, r->file.text);
    struct stat st;
    if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        record->state = TAP_RECORD_WHOLE;
        record->payload_bytes = bytes;
    }
    record->file = r->file.failed ? "" : r->file.text;
    tap__free(path);
}

static void read_tensor(reader *r, json_object *leaf)
{
    tap_record *record = &r->record;
    const char *dtype = member_text(leaf, "dtype");
    json_object *flag;
    record->value_type = TAP_VALUE_TENSOR;
    record->dtype = dtype ? tap_dtype_find(dtype) : TAP_DTYPE_NONE;
    if (!read_shape(r, leaf)) {
        record->ndim = 0;
        record->dtype = TAP_DTYPE_NONE;
    }
    tap_tensor tensor = {.dtype = record->dtype, .ndim = record->ndim, .shape = record->shape};
    int64_t count = record->dtype ? tap_tensor_count(&tensor) : -1;
    int64_t bytes = record->dtype ? tap_tensor_bytes(&tensor) : -1;
    if (json_object_object_get_ex(leaf, "requires_grad", &flag) && json_object_get_boolean(flag))
        record->flags |= TAP_SAVE_REQUIRES_GRAD;
    read_stats(record, leaf, count > 0 ? (uint64_t)count : 0);
    read_file_name(r, leaf, bytes > 0 ? (uint64_t)bytes : 0);
}

static void read_scalar(tap_record *record, json_object *value)
{
    tap_number number = {.u = 0};
    switch (json_object_get_type(value)) {
    case json_type_boolean:
        record->value_type = TAP_VALUE_BOOL;
        record->dtype = TAP_BOOL;
        number.u = json_object_get_boolean(value) != 0;
        break;
    case json_type_int:
        record->value_type = TAP_VALUE_INT;
        record->dtype = TAP_I64;
        number.i = json_object_get_int64(value);
        break;
    case json_type_double:
        record->value_type = TAP_VALUE_FLOAT;
        record->dtype = TAP_F64;
        number.f = json_object_get_double(value);
        break;
    default:
        record->value_type = json_object_is_type(value, json_type_null) ? TAP_VALUE_NONE : TAP_VALUE_STR;
        return;
    }
    double mean = record->dtype == TAP_F64 ? number.f : record->dtype == TAP_I64 ? (double)number.i : (double)number.u;
    record->has_stats = true;
    record->stats = (tap_stats){.count = 1, .min = number, .max = number, .mean = mean, .norm = fabs(mean)};
    record->stats.nan = (uint64_t)(isnan(mean) ? 1 : 0);
    record->stats.pos_inf = isinf(mean) && mean > 0;
    record->stats.neg_inf = isinf(mean) && mean < 0;
    record->stats.zero = fpclassify(mean) == FP_ZERO;
}

static tap_status add_leaf(reader *r, json_object *leaf)
{
    tap_record item = r->record; /* of the item; what the leaf adds is gone after it */
    tap_record *record = &r->record;
    record->seq = (*r->seq)++;
    record->path = r->path.text ? r->path.text : "";
    json_object *value;
    const char *type = leaf ? member_text(leaf, "type") : NULL;
    if (!leaf) {
        record->value_type = record->kind == TAP_KIND_GRAD ? TAP_VALUE_TENSOR : TAP_VALUE_NONE;
        record->state = record->kind == TAP_KIND_GRAD ? TAP_RECORD_SLOT : TAP_RECORD_WHOLE;
        record->flags = record->kind == TAP_KIND_GRAD ? TAP_SAVE_SLOT : 0;
    } else if (json_object_is_type(leaf, json_type_array)) {
        record->value_type = TAP_VALUE_LIST;
    } else if (!type) {
        record->value_type = TAP_VALUE_DICT;
    } else if (json_object_object_get_ex(leaf, "value", &value)) {
        record->type_name = type;
        read_scalar(record, value);
    } else {
        record->type_name = type;
        read_tensor(r, leaf);
    }
    tap_status status = r->path.failed || r->file.failed ? tap_fail_nomem(r->err) : r->add(r->user, record);
    r->record = item;
    return status;
}

/* ----------------------------------------------------------------------------------------------------- the items */

static tap_status walk_value(reader *r, json_object *value);

/* Of a null where a gradient could be: was one to come? Numbers and tensors that need none have it too. */
static bool is_awaited(json_object *forward)
{
    json_object *flag;
    if (!json_object_is_type(forward, json_type_object) || !member_text(forward, "dtype"))
        return false;
    return !json_object_object_get_ex(forward, "requires_grad", &flag) || json_object_get_boolean(flag);
}

static tap_status walk_child(reader *r, const char *key, json_object *value)
{
    size_t len = r->path.len;
    json_object *forward = r->forward, *below = NULL;
    if (json_object_is_type(forward, json_type_array))
        below = json_object_array_get_idx(forward, strtoul(key, NULL, 10));
    else if (json_object_is_type(forward, json_type_object))
        json_object_object_get_ex(forward, key, &below);
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

static tap_status walk_value(reader *r, json_object *value)
{
    tap_status status = TAP_OK;
    if (json_object_is_type(value, json_type_array) && json_object_array_length(value)) {
        for (size_t i = 0; i < json_object_array_length(value) && status == TAP_OK; i++) {
            char key[24];
            snprintf(key, sizeof key, "%zu", i);
            status = walk_child(r, key, json_object_array_get_idx(value, i));
        }
        return status;
    }
    if (json_object_is_type(value, json_type_object) && !member_text(value, "type") &&
        json_object_object_length(value)) {
        json_object_object_foreach(value, key, child)
        {
            if (status == TAP_OK)
                status = walk_child(r, key, child);
        }
        return status;
    }
    if (value && !json_object_is_type(value, json_type_object) && !json_object_is_type(value, json_type_array))
        return TAP_OK; /* not something msprobe writes */
    bool grad = r->record.kind == TAP_KIND_GRAD;
    if (grad && (value ? !member_text(value, "type") : !is_awaited(r->forward)))
        return TAP_OK;
    return add_leaf(r, value);
}

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
    if (*dot != '.' || !tap__parse_number(dot, end, ".", &number))
        return (size_t)(all - key);
    *call = (uint32_t)number;
    return (size_t)(dot - key);
}

/* Is there "<name without _grad>.<call>.debug"? Then this is its gradient. */
static bool is_gradient(reader *r, const char *name, size_t len, uint32_t call)
{
    r->forward = NULL;
    const char *end = name + len;
    if (!tap__strip(name, &end, "_grad"))
        return false;
    tap__strbuf_clear(&r->file);
    tap__strbuf_add(&r->file, name, (size_t)(end - name));
    tap__strbuf_printf(&r->file, ".%u.debug", call);
    return !r->file.failed && json_object_object_get_ex(r->data, r->file.text, &r->forward);
}

/* "x_grad~1" was x_grad. */
static size_t without_number(const char *name, size_t len)
{
    size_t end = len;
    while (end && name[end - 1] >= '0' && name[end - 1] <= '9')
        end--;
    const char *stop = name + (end ? end - 1 : 0);
    return end < len && end && name[end - 1] == '~' && tap__strip(name, &stop, "_grad") ? end - 1 : len;
}

static void start_record(reader *r, uint32_t call, tap_kind kind)
{
    r->record = (tap_record){.rank = r->place->rank, .child = r->place->child, .step = r->place->step,
        .name = r->name.text, .call = call, .kind = kind, .path = "", .source = "",
        .module = "", .graph = "", .node = "", .device = "", .placements = "", .type_name = "", .file = ""};
}

static tap_status read_item(reader *r, const char *key, json_object *value)
{
    uint32_t call;
    size_t len = split_key(key, &call);
    bool grad = is_gradient(r, key, len, call);
    tap__strbuf_clear(&r->name);
    tap__strbuf_clear(&r->path);
    tap__strbuf_add(&r->name, key, grad ? len - 5 : without_number(key, len));
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
    if (*dot != '.' || !tap__parse_number(dot, end, ".", &number))
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
static tap_status read_member(reader *r, const char *key, json_object *value)
{
    if (r->record.kind != TAP_KIND_GRAD && r->record.kind != TAP_KIND_PARAM)
        r->record.kind = strncmp(key, "input", 5) == 0 ? TAP_KIND_INPUT : TAP_KIND_OUTPUT;
    bool empty = (json_object_is_type(value, json_type_array) && !json_object_array_length(value)) ||
                 (json_object_is_type(value, json_type_object) && !json_object_object_length(value));
    return empty ? TAP_OK : walk_child(r, key, value);
}

static tap_status read_module(reader *r, const char *key, json_object *value)
{
    uint32_t call;
    tap_kind kind;
    size_t len = split_module_key(key, &call, &kind);
    tap_status status = TAP_OK;
    tap__strbuf_clear(&r->name);
    tap__strbuf_clear(&r->path);
    tap__strbuf_add(&r->name, key, len);
    if (r->name.failed)
        return tap_fail_nomem(r->err);
    start_record(r, call, kind);
    if (!json_object_is_type(value, json_type_object) || member_text(value, "type"))
        return walk_value(r, value);
    json_object_object_foreach(value, member, child)
    {
        if (status == TAP_OK)
            status = read_member(r, member, child);
    }
    return status;
}

static tap_status read_items(reader *r)
{
    tap_status status = TAP_OK;
    json_object_object_foreach(r->data, key, value)
    {
        if (status == TAP_OK)
            status = r->place->modules ? read_module(r, key, value) : read_item(r, key, value);
    }
    return status;
}

tap_status tap__msprobe_records(const char *text, size_t len, const tap_msprobe_place *place, uint64_t *seq,
                                tap_record_fn add, void *user, tap_error *err)
{
    const char *where = place->relative[0] ? place->relative : ".", *file = place->modules ? "dump" : "debug";
    if (len > JSON_MAX_BYTES)
        return tap_fail(err, TAP_E_LIMIT, "%s: %s.json is larger than 1 GiB", where, file);
    json_tokener *tokener = json_tokener_new_ex(JSON_MAX_DEPTH);
    if (!tokener)
        return tap_fail_nomem(err);
    json_object *root = json_tokener_parse_ex(tokener, text, (int)len);
    enum json_tokener_error why = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    reader r = {.place = place, .seq = seq, .add = add, .user = user, .err = err};
    tap_status status = TAP_OK;
    if (why != json_tokener_success)
        status = tap_fail(err, why == json_tokener_continue ? TAP_E_TRUNCATED : TAP_E_FORMAT,
                          "%s: %s.json is not JSON: %s", where, file, json_tokener_error_desc(why));
    else if (!json_object_object_get_ex(root, "data", &r.data) || !json_object_is_type(r.data, json_type_object))
        status = tap_fail(err, TAP_E_FORMAT, "%s: %s.json has no \"data\" object; is it msprobe's?", where,
                          file);
    else
        status = read_items(&r);
    json_object_put(root);
    tap__strbuf_free(&r.name);
    tap__strbuf_free(&r.path);
    tap__strbuf_free(&r.file);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- the trees */

typedef struct found_json {
    char *whole;
    size_t base;         /* of its relative part */
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
    found_json found = {.whole = tap__strdup(whole), .base = (size_t)(relative - whole)};
    read_place(whole, &found);
    if (!found.whole)
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
    return x->step < y->step ? -1 : x->step > y->step ? 1 : strcmp(x->whole, y->whole);
}

static void list_free(listing *list)
{
    for (size_t i = 0; i < list->count; i++)
        tap__free(list->items[i].whole);
    tap__free(list->items);
}

static bool detect(const char *path, const char *file)
{
    listing list = {.file = file, .only_one = true};
    tap__tree_walk(path, TREE_DEPTH, 20000, list_visit, &list, NULL);
    bool yes = list.count;
    list_free(&list);
    return yes;
}

bool tap__msprobe_detect(const char *path)
{
    return detect(path, "debug.json");
}

bool tap__msprobe_modules_detect(const char *path)
{
    return detect(path, "dump.json");
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

static tap_status read_json(found_json *found, bool modules, uint64_t *seq, tap_record_fn add, void *user,
                            tap_error *err)
{
    char *text;
    size_t len;
    TAP_TRY(tap__file_get(found->whole, JSON_MAX_BYTES, &text, &len, err));
    /* whole becomes the root directory, relative a copy of what follows it */
    *strrchr(found->whole, '/') = 0;
    size_t whole_len = strlen(found->whole);
    tap_strbuf relative = TAP_STRBUF_INIT;
    if (found->base <= whole_len) {
        tap__strbuf_str(&relative, found->whole + found->base);
        tap__strbuf_char(&relative, '/');
        found->whole[found->base ? found->base - 1 : 0] = 0;
    } else {
        tap__strbuf_str(&relative, "");
    }
    tap_msprobe_place place = {found->whole[0] ? found->whole : "/", relative.text, found->step, found->rank,
                               found->child, modules};
    tap_status status = relative.failed ? tap_fail_nomem(err)
                                        : tap__msprobe_records(text, len, &place, seq, add, user, err);
    tap__strbuf_free(&relative);
    tap__free(text);
    return status;
}

static tap_status read_tree(const char *path, bool modules, tap_record_fn add, void *user, tap_error *err)
{
    listing list = {.file = modules ? "dump.json" : "debug.json"};
    tap_status status = tap__tree_walk(path, TREE_DEPTH, (size_t)64 << 20, list_visit, &list, err);
    if (status == TAP_OK && list.failed)
        status = tap_fail_nomem(err);
    tell_processes(&list);
    if (list.count)
        qsort(list.items, list.count, sizeof *list.items, list_order);
    uint64_t seq = 0;
    for (size_t i = 0; i < list.count && status == TAP_OK; i++) {
        if (i && list.items[i].rank != list.items[i - 1].rank)
            seq = 0;
        status = read_json(&list.items[i], modules, &seq, add, user, err);
    }
    list_free(&list);
    return status;
}

tap_status tap__msprobe_read(const char *path, tap_record_fn add, void *user, tap_error *err)
{
    return read_tree(path, false, add, user, err);
}

tap_status tap__msprobe_modules_read(const char *path, tap_record_fn add, void *user, tap_error *err)
{
    return read_tree(path, true, add, user, err);
}
