/* save_value.c - nested values: one record for each leaf, with one call number. The walk keeps its levels in memory, not on
 * the stack, which may be small and values deep. */
#include "base/memory.h"
#include "base/status.h"
#include "record/capture/save.h"
#include "tensor/walk.h"

#include <string.h>

#define MAX_DEPTH 1000

static const int64_t NO_SHAPE[1];

/* ------------------------------------------------------------------------------------------------------- the walk */

typedef struct level {
    const tap_value *value; /* a container with items */
    size_t next;            /* the item that comes */
    size_t before;          /* length of the path above */
} level;

typedef struct value_walk {
    const tap_value *root;  /* still to come */
    level few[16], *levels;
    size_t depth, room;
    bool failed;            /* out of memory */
    tap_strbuf path;        /* of the leaf given last */
} value_walk;

static bool has_items(const tap_value *value)
{
    return (value->type == TAP_VALUE_LIST || value->type == TAP_VALUE_TUPLE || value->type == TAP_VALUE_DICT) && value->len;
}

/* A container that is not gone into: it lies too deep, or does not say where its items are. */
static bool is_closed(const value_walk *walk, const tap_value *value)
{
    return walk->depth > MAX_DEPTH || !value->items || (value->type == TAP_VALUE_DICT && !value->keys);
}

/* path: where value is in a greater one, or NULL. */
static void walk_begin(value_walk *walk, const tap_value *value, const char *path)
{
    walk->root = value;
    walk->levels = walk->few;
    walk->depth = 0;
    walk->room = sizeof walk->few / sizeof walk->few[0];
    walk->failed = false;
    walk->path = (tap_strbuf)TAP_STRBUF_INIT;
    if (path)
        tap__strbuf_str(&walk->path, path);
}

static void walk_end(value_walk *walk)
{
    if (walk->levels != walk->few)
        tap__free(walk->levels);
    tap__strbuf_free(&walk->path);
}

static bool walk_enter(value_walk *walk, const tap_value *value)
{
    if (walk->depth == walk->room) {
        level *old = walk->levels == walk->few ? NULL : walk->levels, *grown = tap__resize(old, 2 * walk->room, sizeof *grown);
        if (!grown)
            return false;
        if (!old)
            memcpy(grown, walk->few, sizeof walk->few);
        walk->levels = grown;
        walk->room *= 2;
    }
    walk->levels[walk->depth++] = (level){value, 0, walk->path.len};
    return true;
}

static void path_add(tap_strbuf *path, const tap_value *container, size_t i)
{
    if (path->len)
        tap__strbuf_char(path, 0x1F);
    if (container->type == TAP_VALUE_DICT) {
        tap__strbuf_char(path, 'k');
        for (const char *key = container->keys[i] ? container->keys[i] : ""; *key;) {
            size_t plain = strcspn(key, "\x1F");
            tap__strbuf_add(path, key, plain);
            key += plain;
            if (*key) { /* what stands between elements */
                tap__strbuf_str(path, "%1F");
                key++;
            }
        }
    } else {
        tap__strbuf_printf(path, "%c%zu", container->type == TAP_VALUE_TUPLE ? 't' : 'i', i);
    }
}

/* The next leaf in order, or a container that is closed; NULL: at the end, or walk->failed. */
static const tap_value *walk_next(value_walk *walk)
{
    const tap_value *item = walk->root;
    walk->root = NULL;
    for (;;) {
        if (item && (!has_items(item) || is_closed(walk, item)))
            return item;
        walk->failed = walk->failed || walk->path.failed || (item && !walk_enter(walk, item));
        if (walk->failed || !walk->depth)
            return NULL;
        level *top = &walk->levels[walk->depth - 1];
        if (walk->path.len > top->before) {
            walk->path.len = top->before;
            walk->path.text[top->before] = 0;
        }
        item = NULL;
        if (top->next == top->value->len) {
            walk->depth--;
            continue;
        }
        item = &top->value->items[top->next];
        path_add(&walk->path, top->value, top->next++);
    }
}

/* --------------------------------------------------------------------------------------------------------- leaves */

static tap_status save_one(const tap_job *as, const value_walk *walk, const tap_value *value)
{
    if (value->type == TAP_VALUE_SKIP)
        return TAP_OK;
    tap_job job = *as;
    double complex_value[2] = {value->f, value->imag};
    uint8_t flag = value->i != 0;
    int64_t len = (int64_t)value->len;
    tap_tensor scalar = {NULL, TAP_DTYPE_NONE, 0, NO_SHAPE, NULL};
    job.leaf.tensor = &scalar;
    switch (value->type) {
    case TAP_VALUE_TENSOR:
    case TAP_VALUE_META: job.leaf.tensor = &value->tensor; break;
    case TAP_VALUE_BOOL: scalar.dtype = TAP_BOOL, scalar.data = &flag; break;
    case TAP_VALUE_INT: scalar.dtype = TAP_I64, scalar.data = (void *)(uintptr_t)&value->i; break;
    case TAP_VALUE_FLOAT: scalar.dtype = TAP_F64, scalar.data = (void *)(uintptr_t)&value->f; break;
    case TAP_VALUE_COMPLEX: scalar.dtype = TAP_C128, scalar.data = complex_value; break;
    case TAP_VALUE_STR:
    case TAP_VALUE_BYTES:
        scalar = (tap_tensor){(void *)(uintptr_t)value->bytes, TAP_U8, 1, &len, NULL};
        break;
    default: job.leaf.tensor = NULL; break; /* None and empty containers */
    }
    bool lost = value->type == TAP_VALUE_LOST;
    job.leaf.value_type = lost ? TAP_VALUE_TENSOR : value->type;
    job.leaf.path = walk->path.text;
    job.leaf.path_len = walk->path.len;
    if (value->requires_grad)
        job.leaf.flags |= TAP_SAVE_REQUIRES_GRAD;
    job.type_name = value->type_name;
    if (has_items(value)) {
        tap__job_lose(&job, TAP_REASON_BAD_VALUE);
        return TAP_E_LIMIT;
    }
    return lost && !tap__is_announcement(&job) ? tap__job_refuse(&job, value->bytes) : tap__save_leaf(&job);
}

static tap_status save_leaves(tap_job *job, const tap_value *value)
{
    value_walk walk;
    tap_status status = TAP_OK;
    walk_begin(&walk, value, job->leaf.info->path);
    for (const tap_value *leaf; !walk.path.failed && (leaf = walk_next(&walk));) {
        tap_status saved = walk.path.failed ? TAP_OK : save_one(job, &walk, leaf);
        status = status == TAP_OK ? saved : status;
    }
    if (walk.failed || walk.path.failed) {
        tap__job_lose(job, TAP_REASON_NO_MEMORY);
        status = TAP_E_NOMEM;
    }
    walk_end(&walk);
    return status;
}

/* ------------------------------------------------------------------------------- layouts with one file for all leaves */

/* Can the leaf be put into the file? False: *why is filled. */
static bool is_sound(const tap_value *leaf, tap_error *why)
{
    int64_t count;
    if (leaf->type == TAP_VALUE_LOST)
        tap_fail(why, TAP_E_INVALID, "%s", leaf->bytes);
    return leaf->type != TAP_VALUE_LOST &&
           (leaf->type != TAP_VALUE_TENSOR || tap__tensor_check(&leaf->tensor, &count, why) == TAP_OK);
}

/* The tensors of a nested value, in order; E_INVALID: one cannot be recorded. */
static tap_status collect(const tap_value *value, tap_tensor **tensors, size_t *count, tap_error *why)
{
    value_walk walk;
    tap_status status = TAP_OK;
    walk_begin(&walk, value, NULL);
    for (const tap_value *leaf; status == TAP_OK && (leaf = walk_next(&walk));) {
        if (has_items(leaf))
            status = tap_fail(why, TAP_E_INVALID, "it is nested too deep, or a container in it has no items");
        else if (!is_sound(leaf, why))
            status = TAP_E_INVALID;
        if (status != TAP_OK || leaf->type != TAP_VALUE_TENSOR)
            continue;
        tap_tensor *grown = tap__resize(*tensors, *count + 1, sizeof *grown);
        if (!grown)
            status = tap_fail_nomem(why);
        else
            *tensors = grown, grown[(*count)++] = leaf->tensor;
    }
    if (status == TAP_OK && walk.failed)
        status = tap_fail_nomem(why);
    walk_end(&walk);
    return status;
}

static tap_status save_in_one_file(tap_job *job, const tap_value *value)
{
    tap_tensor *tensors = NULL;
    size_t count = 0;
    tap_strbuf path = TAP_STRBUF_INIT;
    tap_error why;
    tap_status status = collect(value, &tensors, &count, &why);
    if (status == TAP_E_INVALID) {
        tap__job_refuse(job, why.message);
    } else if (status != TAP_OK) {
        tap__job_lose(job, TAP_REASON_NO_MEMORY);
    } else if (count) {
        job->leaf.tensor = tensors;
        job->more = count - 1;
        status = tap__save_file(job, tensors, count, true, &path);
    }
    tap__strbuf_free(&path);
    tap__free(tensors);
    return status;
}

tap_status tap_save_value(tap_recorder *rec, const char *name, const tap_value *value, const tap_save_info *info)
{
    if (!value)
        return tap_save(rec, name, NULL, info);
    if (tap__is_resized(rec, info))
        return tap__save_resized(rec, name, NULL, value, info);
    if (!tap__is_active(rec, info))
        return tap__save_filtered(rec);
    tap_job job;
    tap_status status;
    if (!tap__job_begin(&job, rec, name, info, &status))
        return status;
    tap__job_number(&job);
    bool one_file = job.session->layout->one_file_per_value && value->type != TAP_VALUE_TENSOR;
    return tap__save_end(&job, one_file ? save_in_one_file(&job, value) : save_leaves(&job, value));
}
