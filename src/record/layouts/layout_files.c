/* layout_files.c - walks trees of tensor files and makes records of them. Names and files come from anywhere: nothing
 * in them is trusted, links are not followed. */
#include "record/layouts/layout_files.h"

#include "base/memory.h"
#include "base/status.h"
#include "format/format.h"
#include "record/layouts/strmap.h"

#include <ctype.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILES (16u << 20)   /* of one recording */

/* ----------------------------------------------------------------------------------------------------- small parts */

int tap__natural_compare(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            const char *start_a = a, *start_b = b;
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            size_t len_a = strspn(a, "0123456789"), len_b = strspn(b, "0123456789");
            if (len_a != len_b)
                return len_a < len_b ? -1 : 1;
            int order = memcmp(a, b, len_a);
            if (order)
                return order;
            a += len_a;
            b += len_b;
            if (a - start_a != b - start_b)
                return a - start_a < b - start_b ? -1 : 1;
            continue;
        }
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    return *a ? 1 : *b ? -1 : 0;
}

bool tap__parse_number(const char *text, const char *end, const char *prefix, uint64_t *out)
{
    size_t len = strlen(prefix);
    if ((size_t)(end - text) <= len || memcmp(text, prefix, len) != 0)
        return false;
    uint64_t number = 0;
    for (text += len; text < end; text++) {
        if (*text < '0' || *text > '9' || number > (uint64_t)INT64_MAX / 10 - 1)
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    *out = number;
    return true;
}

const char *tap__last_component(const char *start, const char **end)
{
    const char *at = *end;
    if (at <= start)
        return NULL;
    while (at > start && at[-1] != '/')
        at--;
    *end = at > start ? at - 1 : start;
    return at;
}

bool tap__strip(const char *text, const char **end, const char *suffix)
{
    size_t len = strlen(suffix);
    if ((size_t)(*end - text) < len || memcmp(*end - len, suffix, len) != 0)
        return false;
    *end -= len;
    return true;
}

/* The last "_" in [text, end), or NULL. */
static const char *last_underscore(const char *text, const char *end)
{
    while (end > text)
        if (*--end == '_')
            return end;
    return NULL;
}

bool tap__parse_typed(const char *text, const char *end, const char **stem_end, uint64_t *id)
{
    const char *number = last_underscore(text, end);
    if (!number || !tap__parse_number(number, end, "_", id))
        return false;
    for (int i = 1; i < TAP_DTYPE_END; i++) {
        const tap_dtype_info *info = tap_dtype_describe((tap_dtype)i);
        size_t len = info ? strlen(info->name) : 0;
        if (info && (size_t)(number - text) > len && number[-(ptrdiff_t)len - 1] == '_' &&
            memcmp(number - len, info->name, len) == 0) {
            *stem_end = number - len - 1;
            return true;
        }
    }
    return false;
}

void tap__strip_process(const char *text, const char **end, tap_found *found)
{
    uint64_t number;
    const char *at = last_underscore(text, *end);
    if (at && tap__parse_number(at, *end, "_child", &number)) {
        found->child = (int32_t)(number & INT32_MAX);
        *end = at;
        at = last_underscore(text, *end);
    }
    if (at && tap__parse_number(at, *end, "_rank", &number)) {
        found->rank = (int32_t)(number & INT32_MAX);
        *end = at;
    }
}

/* -------------------------------------------------------------------------------------------------------- walking */

typedef struct walk {
    tap_dir *dir;
    tap_strbuf whole;      /* path of what is looked at */
    size_t base;           /* where its relative part starts */
    size_t left;           /* files that may still come */
    tap_visit_fn visit;
    void *user;
    bool stopped;
} walk;

typedef struct names {
    char **items;
    size_t count, cap;
} names;

static void names_free(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        tap__free(list->items[i]);
    tap__free(list->items);
}

static bool names_add(names *list, const char *name)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        char **grown = tap__resize(list->items, cap, sizeof *grown);
        if (!grown)
            return false;
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count] = tap__strdup(name);
    return list->items[list->count] && ++list->count;
}

static int names_order(const void *a, const void *b)
{
    return tap__natural_compare(*(char *const *)a, *(char *const *)b);
}

/* Our own: the loss journal and what it stands beside, and files that are not finished. */
static bool is_passed_by(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".tensortap") == 0 ||
           strncmp(name, ".tap-", 5) == 0;
}

static tap_status names_read(names *list, DIR *dir, walk *w, tap_error *err)
{
    tap_status status = TAP_OK;
    errno = 0; /* at the end it stays so */
    for (struct dirent *entry; status == TAP_OK && (entry = readdir(dir)); errno = 0) {
        if (is_passed_by(entry->d_name))
            continue;
        if (!names_add(list, entry->d_name))
            status = tap_fail_nomem(err);
    }
    if (status == TAP_OK && errno)
        status = tap_fail_errno(err, TAP_E_IO, "cannot list %s", w->whole.text);
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, names_order);
    return status;
}

static tap_status walk_dir(walk *w, int depth, tap_error *err);

/* name: the last part of what is at, in the directory parent. */
static tap_status walk_item(walk *w, int parent, const char *name, int depth, tap_error *err)
{
    struct stat st;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return TAP_OK; /* went away meanwhile */
    if (S_ISDIR(st.st_mode))
        return depth > 0 ? walk_dir(w, depth - 1, err) : TAP_OK;
    if (!S_ISREG(st.st_mode))
        return TAP_OK;
    if (w->left == 0)
        return tap_fail(err, TAP_E_LIMIT, "too many files to list at %s", w->whole.text);
    w->left--;
    w->stopped = !w->visit(w->user, w->whole.text, w->whole.text + w->base);
    return TAP_OK;
}

static tap_status walk_names(walk *w, DIR *dir, const names *list, int depth, tap_error *err)
{
    tap_status status = TAP_OK;
    size_t len = w->whole.len;
    for (size_t i = 0; i < list->count && status == TAP_OK && !w->stopped; i++) {
        w->whole.len = len;
        if (w->whole.text[len - 1] != '/')
            tap__strbuf_char(&w->whole, '/');
        tap__strbuf_str(&w->whole, list->items[i]);
        status = w->whole.failed ? tap_fail_nomem(err) : walk_item(w, dirfd(dir), list->items[i], depth, err);
    }
    w->whole.len = len;
    w->whole.text[len] = 0;
    return status;
}

/* One unreadable directory does not hide the others. */
static tap_status walk_dir(walk *w, int depth, tap_error *err)
{
    bool top = w->whole.len <= w->base;
    DIR *dir = tap__dir_list(w->dir, top ? "" : w->whole.text + w->base);
    if (!dir)
        return top ? tap_fail_errno(err, TAP_E_IO, "cannot open directory %s", w->whole.text) : TAP_OK;
    names list = {NULL, 0, 0};
    tap_status status = names_read(&list, dir, w, err);
    if (status == TAP_E_NOTFOUND && !top)
        status = TAP_OK; /* removed meanwhile */
    if (status == TAP_OK)
        status = walk_names(w, dir, &list, depth, err);
    closedir(dir);
    names_free(&list);
    return status;
}

tap_status tap__tree_walk(tap_dir *dir, const char *only, int depth, size_t max_files, tap_visit_fn visit, void *user,
                          tap_error *err)
{
    walk w = {.dir = dir, .left = max_files, .visit = visit, .user = user};
    tap__strbuf_str(&w.whole, dir->path);
    bool slash = w.whole.len && w.whole.text[w.whole.len - 1] == '/';
    w.base = w.whole.len + !slash;
    if (only)
        tap__strbuf_printf(&w.whole, "%s%s", slash ? "" : "/", only);
    tap_status status = TAP_OK;
    if (w.whole.failed)
        status = tap_fail_nomem(err);
    else if (only)
        visit(user, w.whole.text, w.whole.text + w.base);
    else
        status = walk_dir(&w, depth, err);
    tap__strbuf_free(&w.whole);
    return status;
}

/* ------------------------------------------------------------------------------------------------------ detecting */

static void found_clear(tap_found *found)
{
    tap_strbuf name = found->name, path = found->path;
    tap__strbuf_clear(&name);
    tap__strbuf_clear(&path);
    *found = (tap_found){.name = name, .path = path};
}

static void found_free(tap_found *found)
{
    tap__strbuf_free(&found->name);
    tap__strbuf_free(&found->path);
}

typedef struct detection {
    tap_parse_fn parse;
    tap_found found;
    bool yes;
} detection;

static bool detect_visit(void *user, const char *whole, const char *relative)
{
    detection *d = user;
    found_clear(&d->found);
    d->yes = d->parse(whole, relative, &d->found);
    return !d->yes;
}

bool tap__tree_detect(tap_dir *dir, const char *only, int depth, tap_parse_fn parse)
{
    detection d = {.parse = parse};
    tap__tree_walk(dir, only, depth, MAX_FILES, detect_visit, &d, NULL);
    found_free(&d.found);
    return d.yes;
}

/* -------------------------------------------------------------------------------------------------------- reading */

typedef struct item {
    tap_found found;
    char *whole;
    const char *relative; /* into whole */
} item;

typedef struct reading {
    tap_parse_fn parse;
    item *items;
    size_t count, cap;
    bool failed;
} reading;

static bool read_visit(void *user, const char *whole, const char *relative)
{
    reading *r = user;
    if (r->count == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        item *grown = tap__resize(r->items, cap, sizeof *grown);
        if (!grown)
            return !(r->failed = true);
        r->items = grown;
        r->cap = cap;
    }
    item *it = &r->items[r->count];
    *it = (item){.whole = NULL};
    if (!r->parse(whole, relative, &it->found)) {
        found_free(&it->found);
        return true;
    }
    it->whole = tap__strdup(whole);
    if (it->whole)
        it->relative = it->whole + (relative - whole);
    r->count++;
    r->failed = !it->whole || it->found.name.failed || it->found.path.failed;
    return !r->failed;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int item_order(const void *a, const void *b)
{
    const item *x = a, *y = b;
    const tap_found *f = &x->found, *g = &y->found;
    int order = f->rank != g->rank ? (f->rank < g->rank ? -1 : 1) : 0;
    if (!order && f->child != g->child)
        order = f->child < g->child ? -1 : 1;
    for (int i = 0; i < 2 && !order; i++)
        order = compare_u64(f->order[i], g->order[i]);
    return order ? order : tap__natural_compare(x->relative, y->relative);
}

static void record_from_found(tap_record *record, const item *it)
{
    const tap_found *found = &it->found;
    const char *name = found->name.text ? found->name.text : "";
    *record = (tap_record){.rank = found->rank, .child = found->child, .step = found->step, .name = name,
        .path = found->path.text ? found->path.text : "", .call = found->call, .kind = found->kind,
        .time_ns = found->time_ns, .source = "", .module = "", .graph = found->graph,
        .node = found->node ? name : "", .device = "", .placements = "", .type_name = "",
        .file = it->relative};
}

/* A file of several values gives a record for each. */
static tap_status add_file(tap_dir *dir, const item *it, uint64_t *seq, tap_record_fn add, void *user)
{
    tap_record record;
    record_from_found(&record, it);
    tap_file *file;
    tap_error why;
    tap_facts facts = {.why = why.message};
    if (tap__file_open_below(dir, it->relative, &file, &why) != TAP_OK) {
        record.seq = (*seq)++;
        record.state = TAP_RECORD_TORN;
        return add(user, &record, &facts);
    }
    size_t count = tap_file_count(file);
    tap_status status = TAP_OK;
    for (size_t i = 0; i < count && status == TAP_OK; i++) {
        tap_file_entry entry;
        tap_file_entry_init(&entry);
        record_from_found(&record, it);
        record.seq = (*seq)++;
        if (tap_file_get(file, i, &entry, &why) != TAP_OK) {
            record.state = TAP_RECORD_TORN;
        } else {
            int64_t bytes = tap_tensor_bytes(&entry.tensor);
            record.value_type = entry.value_type;
            record.dtype = entry.tensor.dtype;
            record.ndim = entry.tensor.ndim;
            record.shape = entry.tensor.shape;
            record.offset = entry.offset;
            record.payload_bytes = entry.value_type == TAP_VALUE_TENSOR && bytes > 0 ? (uint64_t)bytes : 0;
            if (entry.name && entry.name[0])
                record.path = entry.name;
        }
        status = add(user, &record, &facts);
    }
    tap_file_close(file);
    return status;
}

static bool number_call(tap_strmap *calls, tap_found *found)
{
    if (!found->number_calls)
        return true;
    tap_strbuf key = TAP_STRBUF_INIT;
    tap__strbuf_printf(&key, "%d/%d/%d/%s", found->rank, found->child, (int)found->kind, found->name.text);
    bool added;
    uint64_t *next = key.failed ? NULL : tap__strmap_add(calls, key.text, key.len, &added);
    tap__strbuf_free(&key);
    if (next)
        found->call = (uint32_t)(*next)++;
    return next;
}

tap_status tap__tree_read(tap_dir *dir, const char *only, int depth, tap_parse_fn parse, tap_record_fn add, void *user,
                          tap_error *err)
{
    reading r = {.parse = parse};
    tap_status status = tap__tree_walk(dir, only, depth, MAX_FILES, read_visit, &r, err);
    if (status == TAP_OK && r.failed)
        status = tap_fail_nomem(err);
    if (r.count)
        qsort(r.items, r.count, sizeof *r.items, item_order);
    uint64_t seq = 0;
    tap_strmap calls = {NULL, 0, 0};
    for (size_t i = 0; i < r.count && status == TAP_OK; i++) {
        if (i && r.items[i].found.rank != r.items[i - 1].found.rank)
            seq = 0;
        status = number_call(&calls, &r.items[i].found) ? TAP_OK : tap_fail_nomem(err);
        if (status == TAP_OK)
            status = add_file(dir, &r.items[i], &seq, add, user);
    }
    tap__strmap_free(&calls);
    for (size_t i = 0; i < r.count; i++) {
        found_free(&r.items[i].found);
        tap__free(r.items[i].whole);
    }
    tap__free(r.items);
    return status;
}
