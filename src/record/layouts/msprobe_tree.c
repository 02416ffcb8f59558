/* msprobe_tree.c - the values of one step as they stand in debug.json or dump.json: dicts and lists of leaves, whose
 * JSON is made when they are saved and copied when the file is written. */
#include "record/layouts/msprobe.h"

#include "base/json_read.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_FROM 32u        /* children from which a dict is looked up by hash */
#define GAP_MAX (1u << 20)    /* elements of a list that may be missing in a row */
#define TREE_MAX_DEPTH (TAP_MSPROBE_DEPTH + 32)

tap_node *tap__node_new(tap_node_type type)
{
    tap_node *node = tap__calloc(1, sizeof *node);
    if (node)
        node->type = type;
    return node;
}

static void drop_index(tap_node *node)
{
    if (node->index)
        tap__strmap_free(node->index);
    tap__free(node->index);
    node->index = NULL;
}

static void node_clear(tap_node *node)
{
    for (size_t i = 0; i < node->count; i++)
        tap__node_free(node->items[i]);
    tap__free(node->items);
    tap__free(node->text);
    drop_index(node);
    node->items = NULL;
    node->text = NULL;
    node->count = node->cap = node->text_len = 0;
}

void tap__node_free(tap_node *node)
{
    if (!node)
        return;
    node_clear(node);
    tap__free(node->key);
    tap__free(node);
}

static tap_node *append(tap_node *node, tap_node *child)
{
    if (child && node->count == node->cap) {
        size_t cap = node->cap ? node->cap * 2 : 4;
        tap_node **grown = tap__resize(node->items, cap, sizeof *grown);
        if (!grown) {
            tap__node_free(child);
            return NULL;
        }
        node->items = grown;
        node->cap = cap;
    }
    if (child)
        node->items[node->count++] = child;
    return child;
}

/* Without memory for it the dict is just searched. */
static void build_index(tap_node *dict)
{
    dict->index = tap__calloc(1, sizeof *dict->index);
    for (size_t i = 0; dict->index && i < dict->count; i++) {
        bool added;
        uint64_t *at = tap__strmap_add(dict->index, dict->items[i]->key, dict->items[i]->key_len, &added);
        if (!at)
            drop_index(dict);
        else if (added)
            *at = i;
    }
}

static bool has_key(const tap_node *node, const char *key, size_t len)
{
    return node->key_len == len && memcmp(node->key, key, len) == 0;
}

static tap_node *find_key(tap_node *dict, const char *key, size_t len)
{
    /* leaves come in order: it is nearly always the last one */
    if (dict->count && has_key(dict->items[dict->count - 1], key, len))
        return dict->items[dict->count - 1];
    if (dict->count >= INDEX_FROM && !dict->index)
        build_index(dict);
    if (dict->index) {
        uint64_t *at = tap__strmap_find(dict->index, key, len);
        return at ? dict->items[*at] : NULL;
    }
    for (size_t i = 0; i < dict->count; i++)
        if (has_key(dict->items[i], key, len))
            return dict->items[i];
    return NULL;
}

tap_node *tap__node_key(tap_node *dict, const char *key, size_t len)
{
    tap_node *child = find_key(dict, key, len);
    if (child)
        return child;
    child = tap__node_new(TAP_NODE_LEAF);
    if (child && !(child->key = tap__strndup(key, len))) {
        tap__node_free(child);
        return NULL;
    }
    if (child)
        child->key_len = len;
    child = append(dict, child);
    bool added;
    uint64_t *at = child && dict->index ? tap__strmap_add(dict->index, key, len, &added) : NULL;
    if (at)
        *at = dict->count - 1;
    else if (child)
        drop_index(dict);
    return child;
}

tap_node *tap__node_at(tap_node *list, uint64_t position)
{
    if (position >= list->count + GAP_MAX)
        return NULL;
    while (list->count <= position)
        if (!append(list, tap__node_new(TAP_NODE_LEAF)))
            return NULL;
    return list->items[position];
}

bool tap__node_become(tap_node *node, tap_node_type type)
{
    if (node->type == type)
        return true;
    node_clear(node);
    node->type = type;
    return true;
}

void tap__node_set(tap_node *node, char *text, size_t len)
{
    node_clear(node);
    node->type = TAP_NODE_LEAF;
    node->text = text;
    node->text_len = len;
}

void tap__node_drop_first(tap_node *dict, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tap__node_free(dict->items[i]);
    dict->count -= count;
    memmove(dict->items, dict->items + count, dict->count * sizeof *dict->items);
    drop_index(dict);
}

static int compare_order(const void *a, const void *b)
{
    const tap_node *x = *(tap_node *const *)a, *y = *(tap_node *const *)b;
    return x->order < y->order ? -1 : x->order > y->order;
}

void tap__node_sort(tap_node *dict)
{
    bool sorted = true;
    for (size_t i = 1; i < dict->count && sorted; i++)
        sorted = dict->items[i - 1]->order <= dict->items[i]->order;
    if (sorted)
        return;
    qsort(dict->items, dict->count, sizeof *dict->items, compare_order);
    drop_index(dict);
}

tap_node *tap__node_path(tap_node *node, const char *path, size_t len, int *depth)
{
    const char *end = len ? path + len : path;
    while (node && path < end) {
        char kind = *path++;
        const char *stop = memchr(path, 0x1F, (size_t)(end - path));
        if (!stop || *depth >= TAP_MSPROBE_DEPTH)
            stop = end;
        uint64_t position = 0;
        bool list = kind == 'i' || kind == 't';
        for (const char *at = path; list && at < stop; at++) {
            list = *at >= '0' && *at <= '9' && position < GAP_MAX * 16u;
            position = position * 10 + (uint64_t)(*at - '0');
        }
        if (!tap__node_become(node, list ? TAP_NODE_LIST : TAP_NODE_DICT))
            return NULL;
        node = list ? tap__node_at(node, position) : tap__node_key(node, path, (size_t)(stop - path));
        path = stop < end ? stop + 1 : end;
        ++*depth;
    }
    return node;
}

void tap__node_write(tap_json *json, const tap_node *node)
{
    if (node->type == TAP_NODE_LEAF) {
        if (node->text)
            tap__json_raw(json, node->text, node->text_len);
        else
            tap__json_null(json);
        return;
    }
    bool dict = node->type == TAP_NODE_DICT;
    tap__json_open(json, dict ? '{' : '[');
    for (size_t i = 0; i < node->count; i++) {
        if (dict)
            tap__json_keyn(json, node->items[i]->key, node->items[i]->key_len);
        tap__node_write(json, node->items[i]);
    }
    tap__json_close(json, dict ? '}' : ']');
}

/* -------------------------------------------------------------------------------------------------------- parsing */

/* An object whose "type" comes first and is a text is a leaf: that is how leaves are written, and a value under a user's
 * key "type" is never a plain text. */
static bool at_leaf(tap_json_reader look, tap_strbuf *key)
{
    char c = tap__json_peek(&look);
    return c != '[' && (c != '{' || (tap__json_enter(&look, '{') && tap__json_member(&look, key) &&
                                     strcmp(key->text, "type") == 0 && tap__json_peek(&look) == '"'));
}

/* texts: leaves may be plain texts. */
static bool parse_value(tap_json_reader *json, tap_node *node, bool texts, tap_strbuf *key)
{
    tap__node_set(node, NULL, 0); /* the last of equal keys counts */
    char c = tap__json_peek(json);
    if (at_leaf(*json, key)) {
        const char *text;
        size_t len;
        if (!tap__json_skip(json, &text, &len) || c == 'n')
            return c == 'n' && !json->why;
        if (c != '{' && !(texts && c == '"'))
            return false; /* leaves are objects */
        tap__node_set(node, tap__strndup(text, len), len);
        return node->text != NULL;
    }
    bool dict = c == '{';
    tap__node_become(node, dict ? TAP_NODE_DICT : TAP_NODE_LIST);
    if (!tap__json_enter(json, c))
        return false;
    while (dict ? tap__json_member(json, key) : tap__json_item(json)) {
        tap_node *child = key->failed ? NULL
                          : dict      ? tap__node_key(node, key->text, key->len)
                                      : tap__node_at(node, node->count);
        if (!child || !parse_value(json, child, texts, key))
            return false;
    }
    return !json->why;
}

/* Frees *out unless it is whole. */
static tap_status parsed(bool ok, tap_node **out, tap_error *err)
{
    if (ok && (*out)->type == TAP_NODE_DICT)
        return TAP_OK;
    tap__node_free(*out);
    *out = NULL;
    return tap_fail(err, TAP_E_FORMAT, "msprobe's JSON was changed by another program and cannot be continued");
}

tap_status tap__node_parse(const char *text, size_t len, tap_node **out, tap_error *err)
{
    tap_json_reader json;
    tap__json_read_begin(&json, text, len, TREE_MAX_DEPTH);
    tap_strbuf key = TAP_STRBUF_INIT;
    tap_node *data = *out = tap__node_new(TAP_NODE_DICT);
    bool found = false, ok = data && tap__json_enter(&json, '{');
    while (ok && tap__json_member(&json, &key)) {
        const char *value;
        size_t value_len;
        bool is_data = key.len == 4 && memcmp(key.text, "data", 4) == 0;
        found |= is_data;
        ok = is_data ? tap__json_peek(&json) == '{' && parse_value(&json, data, false, &key)
                     : tap__json_skip(&json, &value, &value_len);
    }
    ok = ok && found && tap__json_end(&json);
    tap__strbuf_free(&key);
    return parsed(ok, out, err);
}

tap_status tap__node_parse_plain(const char *text, size_t len, tap_node **out, tap_error *err)
{
    tap_json_reader json;
    tap__json_read_begin(&json, text, len, TREE_MAX_DEPTH);
    tap_strbuf key = TAP_STRBUF_INIT;
    tap_node *all = *out = tap__node_new(TAP_NODE_DICT);
    bool ok = all && tap__json_peek(&json) == '{' && parse_value(&json, all, true, &key) && tap__json_end(&json);
    tap__strbuf_free(&key);
    return parsed(ok, out, err);
}
