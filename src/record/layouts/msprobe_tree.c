/* msprobe_tree.c - the values of one step as they stand in debug.json or dump.json: dicts and lists of leaves, whose
 * JSON is made when they are saved and copied when the file is written. */
#include "record/layouts/msprobe.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_FROM 32u        /* children from which a dict is looked up by hash */
#define GAP_MAX (1u << 20)    /* elements of a list that may be missing in a row */

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

typedef struct parser {
    const char *at, *end;
    bool texts; /* leaves may be strings */
} parser;

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

static bool take(parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool skip_string(parser *p)
{
    if (!take(p, '"'))
        return false;
    for (; p->at < p->end && *p->at != '"'; p->at++)
        if (*p->at == '\\' && p->at + 1 < p->end)
            p->at++;
    return take(p, '"');
}

/* Steps over one value of any kind. */
static bool skip_value(parser *p)
{
    int depth = 0;
    do {
        skip_space(p);
        if (p->at == p->end)
            return false;
        char c = *p->at;
        if (c == '"') {
            if (!skip_string(p))
                return false;
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth < 0 || (depth == 0 && (c == ',' || c == ':')))
            return false;
        if (strchr("{}[],:", c)) {
            p->at++;
            continue;
        }
        while (p->at < p->end && !strchr(" \t\r\n{}[],:\"", *p->at))
            p->at++;
    } while (depth > 0);
    return true;
}

static int hex4(const char *text)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static void add_utf8(tap_strbuf *out, uint32_t code)
{
    if (code >= 0xDC80 && code <= 0xDCFF) { /* a byte that was not UTF-8 */
        tap__strbuf_char(out, (char)(code & 0xFF));
    } else if (code < 0x80) {
        tap__strbuf_char(out, (char)code);
    } else if (code < 0x800) {
        tap__strbuf_char(out, (char)(0xC0 | code >> 6));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    } else if (code < 0x10000) {
        tap__strbuf_char(out, (char)(0xE0 | code >> 12));
        tap__strbuf_char(out, (char)(0x80 | (code >> 6 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    } else {
        tap__strbuf_char(out, (char)(0xF0 | code >> 18));
        tap__strbuf_char(out, (char)(0x80 | (code >> 12 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code >> 6 & 0x3F)));
        tap__strbuf_char(out, (char)(0x80 | (code & 0x3F)));
    }
}

/* One escape; at is behind the backslash. */
static const char *take_escape(const char *at, const char *end, tap_strbuf *out)
{
    static const char NAMES[] = "bfnrt", VALUES[] = "\b\f\n\r\t";
    const char *name = strchr(NAMES, *at);
    if (*at != 'u' || end - at < 5) {
        tap__strbuf_char(out, *at && name ? VALUES[name - NAMES] : *at);
        return at + 1;
    }
    int code = hex4(at + 1), low = end - at >= 11 && at[5] == '\\' && at[6] == 'u' ? hex4(at + 7) : -1;
    if (code >= 0xD800 && code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
        add_utf8(out, 0x10000u + ((uint32_t)(code - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
        return at + 11;
    }
    add_utf8(out, code < 0 ? '?' : (uint32_t)code);
    return at + 5;
}

static bool take_key(parser *p, tap_strbuf *out)
{
    skip_space(p);
    const char *start = p->at + 1;
    if (!skip_string(p))
        return false;
    const char *end = p->at - 1;
    tap__strbuf_clear(out);
    tap__strbuf_add(out, "", 0);
    for (const char *at = start; at < end;) {
        if (*at == '\\' && at + 1 < end)
            at = take_escape(at + 1, end, out);
        else
            tap__strbuf_char(out, *at++);
    }
    return !out->failed && take(p, ':');
}

/* An object whose "type" comes first and is a string is a leaf: that is how leaves are written, and a value under a
 * user's key "type" is never a plain string. */
static bool at_leaf(const parser *p)
{
    parser look = *p;
    if (!take(&look, '{'))
        return *look.at != '[';
    skip_space(&look);
    const char *key = look.at;
    return skip_string(&look) && look.at - key == 6 && memcmp(key, "\"type\"", 6) == 0 && take(&look, ':') &&
           (skip_space(&look), look.at < look.end && *look.at == '"');
}

static bool parse_value(parser *p, tap_node *node, int depth, tap_strbuf *key)
{
    skip_space(p);
    if (p->at == p->end || depth > TAP_MSPROBE_DEPTH + 16)
        return false;
    tap__node_set(node, NULL, 0); /* the last of equal keys counts */
    if (at_leaf(p)) {
        const char *start = p->at;
        if (!skip_value(p))
            return false;
        size_t len = (size_t)(p->at - start);
        if (len == 4 && memcmp(start, "null", 4) == 0)
            return true;
        if (*start != '{' && !(p->texts && *start == '"'))
            return false; /* leaves are objects */
        tap__node_set(node, tap__strndup(start, len), len);
        return node->text != NULL;
    }
    bool dict = *p->at++ == '{';
    char close = dict ? '}' : ']';
    tap__node_become(node, dict ? TAP_NODE_DICT : TAP_NODE_LIST);
    if (take(p, close))
        return true;
    do {
        if (dict && !take_key(p, key))
            return false;
        tap_node *child = dict ? tap__node_key(node, key->text, key->len) : tap__node_at(node, node->count);
        if (!child || !parse_value(p, child, depth + 1, key))
            return false;
    } while (take(p, ','));
    return take(p, close);
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
    parser p = {text, text + len, false};
    tap_strbuf key = TAP_STRBUF_INIT;
    tap_node *data = *out = tap__node_new(TAP_NODE_DICT);
    bool ok = data && take(&p, '{'), found = false;
    while (ok && !found && take_key(&p, &key)) {
        found = key.len == 4 && memcmp(key.text, "data", 4) == 0;
        ok = found ? (skip_space(&p), p.at < p.end && *p.at == '{') && parse_value(&p, data, 0, &key)
                   : skip_value(&p) && take(&p, ',');
    }
    tap__strbuf_free(&key);
    return parsed(ok && found, out, err);
}

tap_status tap__node_parse_plain(const char *text, size_t len, tap_node **out, tap_error *err)
{
    parser p = {text, text + len, true};
    tap_strbuf key = TAP_STRBUF_INIT;
    tap_node *all = *out = tap__node_new(TAP_NODE_DICT);
    bool ok = all && (skip_space(&p), p.at < p.end && *p.at == '{') && parse_value(&p, all, 0, &key);
    tap__strbuf_free(&key);
    return parsed(ok, out, err);
}
