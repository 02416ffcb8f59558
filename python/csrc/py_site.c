/* py_site.c - what a tap inside a graph says about itself. A graph holds a tap's site as one string, so that the graph
 * can be cached, exported and run by another process; here such strings are read, once each, and turned into saves.
 *
 *     site   = name *(";" key "=" text) [";tree=" tree]       in texts "%3B" is ";" and "%25" is "%"
 *     tree   = "T" | "G" | "I" | "-"                          the next tensor, one whose gradient is awaited, one that
 *                                                             holds an int; a place left out
 *            | "n" | "b" digit | "i" number ";" | "f" number ";" | "c" number "," number ";" | "s" text ";"
 *            | "x" text ";"                                    a leaf that cannot be recorded, and why
 *            | ("l" | "t") count ";" *tree | "d" count ";" *(text ";" tree) | "@" type name ";" tree             */
#include "py_site.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, MAX_NODES = 4096, MAX_DEPTH = 64 };

struct tap_graph_site {
    tap_graph_site *next;
    uint64_t hash;
    size_t len;
    char *name;
    tap_save_info info;
    tap_sink *sink;          /* NULL: the process's recorder */
    int64_t flags;           /* of a site that is run by graph_site_run_leaf */
    const char *print_file;  /* NULL: print to stdout */
    bool announce, count_files;
    size_t nodes, leaves;    /* nodes 0: one plain tensor */
    tap_value *tree;         /* nodes of them, the root first */
    char *marks;             /* what each node was written as: 'T', 'G', 'I', '-' or 0 */
    char text[];             /* its own string, the key; then room for decoded texts */
};

static _Atomic(tap_graph_site *) buckets[BUCKETS];
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* -------------------------------------------------------------------------------------------------------- parsing */

typedef struct parser {
    const char *at, *end;
    char *out;               /* decoded texts go here; never more than the string's own length */
    tap_graph_site *site;
    tap_value *nodes;
    const char **keys;
    size_t used, keys_used, limit;
} parser;

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes up to the next ";" or the end, and steps over it. */
static const char *read_text(parser *p)
{
    char *start = p->out;
    while (p->at < p->end && *p->at != ';') {
        if (*p->at == '%' && p->end - p->at > 2 && hex(p->at[1]) >= 0 && hex(p->at[2]) >= 0) {
            *p->out++ = (char)(hex(p->at[1]) * 16 + hex(p->at[2]));
            p->at += 3;
        } else {
            *p->out++ = *p->at++;
        }
    }
    if (p->at < p->end)
        p->at++;
    *p->out++ = 0;
    return start;
}

static bool read_tree(parser *p, size_t node, int depth);

static bool read_items(parser *p, size_t node, tap_value_type type, int depth)
{
    long count = strtol(read_text(p), NULL, 10);
    if (count < 0 || (size_t)count > p->limit - p->used)
        return false;
    size_t first = p->used;
    const char **keys = p->keys + p->keys_used;
    p->used += (size_t)count;
    if (type == TAP_VALUE_DICT)
        p->keys_used += (size_t)count;
    for (long i = 0; i < count; i++) {
        if (type == TAP_VALUE_DICT)
            keys[i] = read_text(p);
        if (!read_tree(p, first + (size_t)i, depth + 1))
            return false;
    }
    tap_value *value = &p->nodes[node];
    value->type = type;
    value->items = p->nodes + first;
    value->keys = type == TAP_VALUE_DICT ? keys : NULL;
    value->len = (size_t)count;
    return true;
}

static bool read_tree(parser *p, size_t node, int depth)
{
    if (p->at >= p->end || depth > MAX_DEPTH)
        return false;
    tap_value *value = &p->nodes[node];
    char mark = *p->at++, *rest;
    const char *text;
    switch (mark) {
    case 'T':
    case 'G':
    case 'I':
        p->site->leaves++; /* fall through */
    case '-':
        p->site->marks[node] = mark;
        value->type = TAP_VALUE_SKIP;
        return true;
    case 'n': value->type = TAP_VALUE_NONE; return true;
    case 'b':
        value->type = TAP_VALUE_BOOL;
        value->i = p->at < p->end && *p->at == '1';
        p->at++;
        return true;
    case 'i':
        value->type = TAP_VALUE_INT;
        value->i = strtoll(read_text(p), NULL, 10);
        return true;
    case 'f':
        value->type = TAP_VALUE_FLOAT;
        value->f = strtod(read_text(p), NULL);
        return true;
    case 'c':
        value->type = TAP_VALUE_COMPLEX;
        value->f = strtod(read_text(p), &rest);
        value->imag = strtod(*rest ? rest + 1 : rest, NULL);
        return true;
    case 's':
        value->type = TAP_VALUE_STR;
        value->bytes = read_text(p);
        value->len = strlen(value->bytes);
        return true;
    case 'x':
        value->type = TAP_VALUE_LOST;
        value->bytes = read_text(p);
        return true;
    case 'l': return read_items(p, node, TAP_VALUE_LIST, depth);
    case 't': return read_items(p, node, TAP_VALUE_TUPLE, depth);
    case 'd': return read_items(p, node, TAP_VALUE_DICT, depth);
    case '@':
        text = read_text(p);
        if (!read_tree(p, node, depth + 1))
            return false;
        value->type_name = text;
        return true;
    default: return false;
    }
}

static bool is_key(const char *key, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(key, name, len) == 0;
}

static void set_field(tap_graph_site *site, const char *key, size_t len, const char *text)
{
    tap_save_info *info = &site->info;
    static const struct {
        const char *key;
        size_t offset;
    } TEXTS[] = {{"module", offsetof(tap_save_info, module)}, {"graph", offsetof(tap_save_info, graph)},
                 {"node", offsetof(tap_save_info, node)},     {"source", offsetof(tap_save_info, source)},
                 {"suffix", offsetof(tap_save_info, suffix)}, {"argument", offsetof(tap_save_info, argument)},
                 {"device", offsetof(tap_save_info, device)}, {"path", offsetof(tap_save_info, path)},
                 {"placements", offsetof(tap_save_info, placements)}};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        if (is_key(key, len, TEXTS[i].key))
            memcpy((char *)info + TEXTS[i].offset, &text, sizeof text);
    int64_t number = strtoll(text, NULL, 10);
    if (is_key(key, len, "step"))
        info->has_step = true, info->step = number;
    else if (is_key(key, len, "call"))
        info->has_call = true, info->call = (uint32_t)number;
    else if (is_key(key, len, "line"))
        info->line = (int)number;
    else if (is_key(key, len, "replay"))
        info->replay = (uint64_t)number;
    else if (is_key(key, len, "graph_id"))
        info->graph_id = number;
    else if (is_key(key, len, "flags"))
        site->flags = number;
    else if (is_key(key, len, "announce"))
        site->announce = number != 0;
    else if (is_key(key, len, "count_files"))
        site->count_files = number != 0;
    else if (is_key(key, len, "print_file"))
        site->print_file = text;
    else if (is_key(key, len, "sink"))
        site->sink = sink_find(text);
}

/* A tree has at most as many nodes as characters. */
static bool parse_tree(parser *p)
{
    tap_graph_site *site = p->site;
    size_t room = (size_t)(p->end - p->at);
    p->limit = room < MAX_NODES ? room : MAX_NODES;
    if (!p->limit)
        return false;
    site->tree = p->nodes = calloc(p->limit, sizeof *p->nodes);
    p->keys = calloc(p->limit, sizeof *p->keys);
    site->marks = calloc(p->limit, 1);
    p->used = 1;
    if (!site->tree || !p->keys || !site->marks || !read_tree(p, 0, 0))
        return false;
    site->nodes = p->used;
    return true;
}

static bool parse(tap_graph_site *site, const char *text, size_t len)
{
    parser p = {.at = text, .end = text + len, .out = site->text + len + 1, .site = site};
    site->name = (char *)(uintptr_t)read_text(&p);
    site->leaves = 0;
    while (p.at < p.end) {
        const char *equals = memchr(p.at, '=', (size_t)(p.end - p.at)), *key = p.at;
        if (!equals)
            return false;
        p.at = equals + 1;
        if (is_key(key, (size_t)(equals - key), "tree"))
            return parse_tree(&p);
        set_field(site, key, (size_t)(equals - key), read_text(&p));
    }
    site->leaves = 1;
    return true;
}

static tap_graph_site *find(uint64_t hash, const char *text, size_t len)
{
    tap_graph_site *site = atomic_load_explicit(&buckets[hash % BUCKETS], memory_order_acquire);
    while (site && (site->hash != hash || site->len != len || memcmp(site->text, text, len) != 0))
        site = site->next;
    return site;
}

const tap_graph_site *graph_site(const char *text, size_t len)
{
    uint64_t hash = tap_hash_bytes(text, len);
    tap_graph_site *site = find(hash, text, len);
    if (site)
        return site;
    pthread_mutex_lock(&adding);
    if (!(site = find(hash, text, len)) && (site = calloc(1, sizeof *site + 3 * len + 4))) {
        tap_save_info_init(&site->info);
        site->hash = hash;
        site->len = len;
        memcpy(site->text, text, len);
        if (!parse(site, text, len)) { /* not ours to lose: the value is kept under the whole text */
            site->nodes = 0;
            site->leaves = 1;
            site->name = site->text;
        }
        site->next = atomic_load_explicit(&buckets[hash % BUCKETS], memory_order_relaxed);
        atomic_store_explicit(&buckets[hash % BUCKETS], site, memory_order_release);
    }
    pthread_mutex_unlock(&adding);
    return site;
}

size_t graph_site_leaves(const tap_graph_site *site)
{
    return site->leaves;
}

const char *graph_site_name(const tap_graph_site *site)
{
    return site->name;
}

const char *graph_site_print_file(const tap_graph_site *site)
{
    return site->print_file;
}

const char *graph_site_text(const tap_graph_site *site)
{
    return site->text;
}

/* --------------------------------------------------------------------------------------------------------- saving */

static void take_leaf(tap_value *out, char mark, const tap_value *leaf, bool gradients)
{
    const char *type_name = out->type_name;
    if (gradients && mark != 'G')
        return;
    *out = *leaf;
    if (mark == 'I' && leaf->type == TAP_VALUE_TENSOR && leaf->tensor.dtype == TAP_I64 && leaf->tensor.data) {
        out->type = TAP_VALUE_INT;
        memcpy(&out->i, leaf->tensor.data, sizeof out->i);
    }
    if (type_name)
        out->type_name = type_name;
}

/* A copy of the site's tree, its leaves not in it yet. gradients: without what has none. */
static void copy_tree(const tap_graph_site *site, tap_value *copy, bool gradients)
{
    memcpy(copy, site->tree, site->nodes * sizeof *copy);
    for (size_t i = 0; i < site->nodes; i++) {
        bool nested = copy[i].type == TAP_VALUE_LIST || copy[i].type == TAP_VALUE_TUPLE || copy[i].type == TAP_VALUE_DICT;
        if (nested && copy[i].len)
            copy[i].items = copy + (copy[i].items - site->tree);
        else if (gradients && !site->marks[i])
            copy[i].type = TAP_VALUE_SKIP;
    }
}

/* Leaves are numbered in the order of writing, which is depth first; nodes lie in another order. */
static void place_leaves(const tap_graph_site *site, tap_value *copy, tap_value *at, const tap_value *leaves,
                         size_t *next, bool gradients)
{
    size_t node = (size_t)(at - copy);
    char mark = site->marks[node];
    if (mark) {
        if (mark != '-')
            take_leaf(at, mark, &leaves[(*next)++], gradients);
        return;
    }
    bool nested = at->type == TAP_VALUE_LIST || at->type == TAP_VALUE_TUPLE || at->type == TAP_VALUE_DICT;
    for (size_t i = 0; nested && i < at->len; i++)
        place_leaves(site, copy, (tap_value *)(uintptr_t)&at->items[i], leaves, next, gradients);
}

static void save_tree(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves, const tap_save_info *info,
                      bool gradients)
{
    tap_value inside[32], *copy = inside;
    if (site->nodes > 32 && !(copy = malloc(site->nodes * sizeof *copy)))
        return;
    size_t next = 0;
    copy_tree(site, copy, gradients);
    place_leaves(site, copy, copy, leaves, &next, gradients);
    tap_save_value(rec, site->name, copy, info);
    if (copy != inside)
        free(copy);
}

static void save_any(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves, const tap_save_info *info,
                     bool gradients)
{
    if (site->nodes)
        save_tree(rec, site, leaves, info, gradients);
    else if (leaves->type == TAP_VALUE_TENSOR && !leaves->type_name)
        tap_save(rec, site->name, &leaves->tensor, info);
    else
        tap_save_value(rec, site->name, leaves, info);
}

static void save_site(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves, size_t count,
                      int64_t flags, const char *device, const int64_t *given, tap_saved *saved)
{
    tap_save_info info = site->info;
    saved->wanted = false;
    if (count != site->leaves)
        return;
    info.kind = (tap_kind)(flags >> 8 & 0xFF);
    info.flags = (unsigned)(flags & 0xFF);
    if (torch_in_recompute() && info.kind == TAP_KIND_FORWARD)
        info.flags |= TAP_SAVE_RECOMPUTED;
    if (device && !info.device)
        info.device = device;
    if (given) {
        info.has_step = info.has_call = true;
        info.step = given[2];
        info.call = (uint32_t)given[3];
    }
    if (site->count_files) {
        info.has_call = true;
        info.call = next_file_id();
    }
    info.saved = saved;
    save_any(rec, site, leaves, &info, false);
}

void graph_site_lose(const tap_graph_site *site, const char *why)
{
    uint64_t serial;
    tap_recorder *rec = site ? sink_enter(site->sink, &serial) : NULL;
    if (rec)
        tap_save_value(rec, site->name, &(tap_value){.type = TAP_VALUE_LOST, .bytes = why}, &site->info);
    if (site)
        sink_leave(site->sink);
}

static void announce(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves, const tap_saved *saved)
{
    tap_save_info info = site->info;
    info.kind = TAP_KIND_GRAD;
    info.flags = TAP_SAVE_SLOT;
    info.has_step = info.has_call = true;
    info.step = saved->step;
    info.call = saved->call;
    save_any(rec, site, leaves, &info, true);
}

size_t graph_site_gradients(const tap_graph_site *site)
{
    size_t count = site->nodes ? 0 : 1;
    for (size_t i = 0; i < site->nodes; i++)
        count += site->marks[i] == 'G';
    return count;
}

void graph_site_gone(tap_recorder *rec, const tap_graph_site *site, int64_t step, uint32_t call)
{
    tap_value *nothing = calloc(site->leaves + 1, sizeof *nothing);
    tap_save_info info = site->info;
    info.kind = TAP_KIND_GRAD;
    info.flags = TAP_SAVE_SLOT_GONE;
    info.has_step = info.has_call = true;
    info.step = step;
    info.call = call;
    for (size_t i = 0; nothing && i < site->leaves; i++)
        nothing[i].type = TAP_VALUE_NONE;
    if (nothing)
        save_any(rec, site, nothing, &info, true);
    free(nothing);
}

static void fill_ticket(int64_t *numbers, uint64_t serial, const tap_saved *saved)
{
    if (!saved->wanted)
        return;
    numbers[1] = (int64_t)serial;
    numbers[2] = saved->step;
    numbers[3] = saved->call;
}

void graph_site_run(const tap_graph_site *site, const tap_value *values, size_t count, int64_t flags,
                    const char *device, int64_t *numbers)
{
    if (!site)
        return;
    uint64_t serial;
    tap_recorder *rec = sink_enter(site->sink, &serial);
    if (rec) {
        tap_saved saved;
        save_site(rec, site, values, count, flags, device, NULL, &saved);
        if (saved.wanted && numbers) {
            fill_ticket(numbers, serial, &saved);
            if (!torch_in_recompute() && !(flags & TAP_SAVE_SLOT)) /* else it is itself the announcement */
                announce(rec, site, values, &saved);
        }
    }
    sink_leave(site->sink);
}

void graph_site_run_gradient(const tap_graph_site *site, const tap_value *value, const int64_t *numbers,
                             const char *device)
{
    if (!site || site->leaves != 1)
        return;
    uint64_t serial;
    tap_recorder *rec = sink_enter(site->sink, &serial);
    if (rec && numbers[0] == TICKET_MAGIC && numbers[1] == (int64_t)serial) {
        tap_save_info info = site->info;
        info.kind = TAP_KIND_GRAD;
        info.has_step = info.has_call = true;
        info.step = numbers[2];
        info.call = (uint32_t)numbers[3];
        if (device && !info.device)
            info.device = device;
        save_any(rec, site, value, &info, false);
    }
    sink_leave(site->sink);
}

void graph_site_run_leaf(const tap_graph_site *site, const tap_value *value, const int64_t *given, int64_t *numbers)
{
    uint64_t serial;
    tap_recorder *rec = sink_enter(site->sink, &serial);
    if (rec && (!given || given[1] == (int64_t)serial)) {
        tap_saved saved;
        save_site(rec, site, value, site->leaves, site->flags, NULL, given, &saved);
        fill_ticket(numbers, serial, &saved);
        if (saved.wanted && site->announce)
            announce(rec, site, value, &saved);
    }
    sink_leave(site->sink);
}
