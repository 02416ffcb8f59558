/* msprobe_collect.c - gathers entries into one debug.json a step, or into dump.json with construct.json and stack.json,
 * in the writer. A file is written whole, under a temporary name, at most once a second while values come, and at step,
 * flush and close; it stays open until every gradient that was announced came or was given up. What is written and can
 * no longer change leaves memory. */
#include "record/layouts/msprobe.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND_NS 1000000000u
#define CHUNK_BYTES (1u << 20)        /* of text made before it is written */
#define RETIRE_BYTES (32u << 20)      /* a step larger than this keeps its finished values on disk only */
#define STEPS_OPEN 64u                /* at once; older ones are written and read again when a late value comes */
#define MEMORY_MAX ((size_t)512 << 20) /* only reached when nothing can be written */
#define NODE_BYTES 160u               /* of memory beside a leaf's text, roughly */
#define PENDING_MAX 1024u
#define FILE_MAX_BYTES ((size_t)2 << 30)

/* The files beside dump.json: the suffixes of their leaves. */
static const char *const BESIDE[] = {"construct", "stack"};
enum { BESIDE_COUNT = sizeof BESIDE / sizeof BESIDE[0] };

typedef struct step_file {
    int64_t step;
    tap_node *data;
    tap_node *beside[BESIDE_COUNT]; /* NULL: nothing came for it */
    uint64_t order;     /* of the newest change, see tap_node.order */
    bool ended, dirty;
    uint64_t rewrites;
    uint64_t written;   /* entries before this number are in the file */
    uint64_t next_ns;   /* not written again before this */
    uint64_t waiting;   /* gradients announced and not there */
    size_t bytes;       /* of memory, roughly */
    uint64_t on_disk;   /* bytes at the start of the file that stay as they are; 0: all of it is in data */
} step_file;

/* A BIG entry whose TRAILER has not come. */
typedef struct pending {
    uint64_t seq;
    tap_entry *entry;   /* with its meta block behind it */
} pending;

typedef struct step_range {
    int64_t first, last;
} step_range;

struct tap_collector {
    tap_layout_options options;
    bool modules;       /* level L0: dump.json */
    step_file *steps;   /* by step, ascending */
    size_t count;
    int64_t ended;      /* the newest step that ended; meaningless until any_ended */
    bool any_ended;
    step_range *written; /* steps of which we wrote a file */
    size_t written_count;
    tap_claims claims;
    pending pending[PENDING_MAX];
    size_t pending_count;
    size_t bytes;
    uint64_t next_seq;  /* of the newest entry, + 1 */
    tap_strbuf scratch;
};

tap_status tap__msprobe_collect_open(const tap_layout_options *options, tap_collector **out, tap_error *err)
{
    tap_collector *collector = *out = tap__calloc(1, sizeof *collector);
    if (!collector)
        return tap_fail_nomem(err);
    collector->options = *options;
    return TAP_OK;
}

tap_status tap__msprobe_modules_open(const tap_layout_options *options, tap_collector **out, tap_error *err)
{
    TAP_TRY(tap__msprobe_collect_open(options, out, err));
    (*out)->modules = true;
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------- steps and files */

static bool was_written(const tap_collector *collector, int64_t step)
{
    for (size_t i = collector->written_count; i-- > 0;)
        if (step >= collector->written[i].first && step <= collector->written[i].last)
            return true;
    return false;
}

/* Without memory the step is only not remembered: a late value would then start its file anew, so say so. */
static bool remember_written(tap_collector *collector, int64_t step)
{
    if (was_written(collector, step))
        return true;
    for (size_t i = 0; i < collector->written_count; i++)
        if (collector->written[i].last + 1 == step) {
            collector->written[i].last = step;
            return true;
        }
    step_range *grown = tap__resize(collector->written, collector->written_count + 1, sizeof *grown);
    if (!grown)
        return false;
    grown[collector->written_count++] = (step_range){step, step};
    collector->written = grown;
    return true;
}

static const char *main_file(const tap_collector *collector)
{
    return collector->modules ? "dump" : "debug";
}

/* file: without ".json"; the name below options.dir, tap__strbuf_free by the caller. false: no memory. */
static bool step_name(const tap_collector *collector, int64_t step, const char *file, tap_strbuf *name)
{
    tap__msprobe_dir(&collector->options, step, name);
    tap__strbuf_str(name, file);
    tap__strbuf_str(name, ".json");
    return !name->failed;
}

static size_t tree_bytes(const tap_node *node)
{
    size_t bytes = NODE_BYTES + node->text_len + node->key_len;
    for (size_t i = 0; i < node->count; i++)
        bytes += tree_bytes(node->items[i]);
    return bytes;
}

typedef tap_status (*parse_fn)(const char *text, size_t len, tap_node **out, tap_error *err);

/* Puts what a file holds in the place of *tree; a file that is not there changes nothing. */
static tap_status load_tree(tap_collector *collector, step_file *file, const char *name, parse_fn parse,
                            tap_node **tree, tap_error *err)
{
    tap_strbuf relative = TAP_STRBUF_INIT;
    char *text = NULL;
    size_t len;
    tap_status status = tap_fail_nomem(err);
    if (step_name(collector, file->step, name, &relative))
        status = tap__dir_get(collector->options.dir, relative.text, FILE_MAX_BYTES, &text, &len, err);
    tap__strbuf_free(&relative);
    if (status == TAP_OK) {
        tap__node_free(*tree);
        status = parse(text, len, tree, err);
        if (status == TAP_OK)
            file->bytes += tree_bytes(*tree);
    }
    tap__free(text);
    return status == TAP_E_NOTFOUND ? TAP_OK : status;
}

/* Goes on with files that were written and closed. */
static tap_status step_load(tap_collector *collector, step_file *file, tap_error *err)
{
    TAP_TRY(load_tree(collector, file, main_file(collector), tap__node_parse, &file->data, err));
    for (size_t i = 0; collector->modules && i < BESIDE_COUNT; i++)
        TAP_TRY(load_tree(collector, file, BESIDE[i], tap__node_parse_plain, &file->beside[i], err));
    for (size_t i = 0; i < file->data->count; i++)
        file->data->items[i]->order = ++file->order;
    collector->bytes += file->bytes;
    return TAP_OK;
}

static void step_free(step_file *file)
{
    tap__node_free(file->data);
    for (size_t i = 0; i < BESIDE_COUNT; i++)
        tap__node_free(file->beside[i]);
}

static void step_close(tap_collector *collector, size_t index)
{
    collector->bytes -= collector->steps[index].bytes;
    step_free(&collector->steps[index]);
    collector->count--;
    memmove(collector->steps + index, collector->steps + index + 1,
            (collector->count - index) * sizeof *collector->steps);
}

static tap_status step_write(tap_collector *collector, step_file *file, uint64_t now_ns, tap_error *err);

/* Room for one more: the oldest goes to disk. */
static tap_status make_room(tap_collector *collector, tap_error *err)
{
    if (collector->count < STEPS_OPEN)
        return TAP_OK;
    if (collector->steps[0].dirty)
        TAP_TRY(step_write(collector, &collector->steps[0], 0, err));
    step_close(collector, 0);
    return TAP_OK;
}

static tap_status step_open(tap_collector *collector, int64_t step, step_file **out, tap_error *err)
{
    size_t at = collector->count;
    while (at && collector->steps[at - 1].step > step)
        at--;
    if (at && collector->steps[at - 1].step == step) {
        *out = &collector->steps[at - 1];
        return TAP_OK;
    }
    TAP_TRY(make_room(collector, err));
    if (!collector->steps && !(collector->steps = tap__calloc(STEPS_OPEN, sizeof *collector->steps)))
        return tap_fail_nomem(err);
    step_file file = {.step = step, .ended = collector->any_ended && step <= collector->ended};
    if (!(file.data = tap__node_new(TAP_NODE_DICT)))
        return tap_fail_nomem(err);
    if (collector->options.resume || was_written(collector, step)) {
        tap_status status = step_load(collector, &file, err);
        if (status != TAP_OK) {
            step_free(&file);
            return status;
        }
    }
    at = collector->count;
    while (at && collector->steps[at - 1].step > step)
        at--;
    memmove(collector->steps + at + 1, collector->steps + at, (collector->count - at) * sizeof file);
    collector->steps[at] = file;
    collector->count++;
    *out = &collector->steps[at];
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- writing */

static void write_header(tap_collector *collector, tap_json *json, int64_t step)
{
    const tap_layout_options *options = &collector->options;
    bool tensors = options->keep & TAP_KEEP_TENSOR;
    tap__json_open(json, '{');
    tap__json_key(json, "task");
    tap__json_str(json, tensors ? "tensor" : "statistics");
    tap__json_key(json, "level");
    tap__json_str(json, collector->modules ? "L0" : "debug");
    tap__json_key(json, "framework");
    tap__json_str(json, options->framework ? options->framework : "pytorch");
    tap__json_key(json, "dump_data_dir");
    if (tensors) {
        const char *dir = options->dir_shown ? options->dir_shown : options->dir->path;
        tap_strbuf *shown = &collector->scratch;
        tap__strbuf_clear(shown);
        tap__strbuf_str(shown, dir);
        if (shown->len && shown->text[shown->len - 1] != '/')
            tap__strbuf_char(shown, '/');
        tap__msprobe_dir(options, step, shown);
        tap__strbuf_str(shown, "dump_tensor_data");
        tap__json_strn(json, shown->text ? shown->text : "", shown->len);
    } else {
        tap__json_null(json);
    }
    tap__json_key(json, "data");
    tap__json_open(json, '{');
}

/* The start of the file that does not change, from the file as it is. */
static tap_status copy_start(tap_newfile *to, uint64_t bytes, tap_strbuf *buffer, tap_error *err)
{
    int from = openat(to->parent, to->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s to go on with it", to->path);
    tap_status status = TAP_OK;
    tap__strbuf_clear(buffer);
    char *chunk = tap__strbuf_reserve(buffer, CHUNK_BYTES);
    for (uint64_t at = 0; at < bytes && status == TAP_OK;) {
        size_t want = bytes - at < CHUNK_BYTES ? (size_t)(bytes - at) : CHUNK_BYTES;
        ssize_t got = chunk ? tap__pread_all(from, chunk, want, (off_t)at) : 0;
        if (!chunk)
            status = tap_fail_nomem(err);
        else if (got < (ssize_t)want)
            status = tap_fail(err, TAP_E_TRUNCATED, "%s was cut by another program and cannot be continued", to->path);
        else if (tap__write_all(to->fd, chunk, want))
            status = tap_fail_errno(err, TAP_E_IO, "cannot write %s", to->path);
        at += want;
    }
    close(from);
    return status;
}

/* Writes out what is in text when it is enough or the last. */
static tap_status drain(tap_newfile *to, tap_strbuf *text, uint64_t *total, bool last, tap_error *err)
{
    if (text->failed)
        return tap_fail_nomem(err);
    if (!last && text->len < CHUNK_BYTES)
        return TAP_OK;
    if (tap__write_all(to->fd, text->text, text->len))
        return tap_fail_errno(err, TAP_E_IO, "cannot write %s", to->path);
    *total += text->len;
    tap__strbuf_clear(text);
    return TAP_OK;
}

/* Can an item no longer change? Its leaves came together, two rewrites ago or earlier, and nothing is awaited. */
static bool is_settled(const step_file *file, const tap_node *item)
{
    return item->waiting_count == 0 && !item->open && item->touched + 2 <= file->rewrites;
}

/* *settled: how many items at the start cannot change any more; *settled_end: where they end in the file. */
static tap_status write_body(tap_collector *collector, step_file *file, tap_newfile *to, size_t *settled,
                             uint64_t *settled_end, tap_error *err)
{
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    uint64_t total = file->on_disk;
    tap_status status = TAP_OK;
    tap__json_begin(&json, &text, 1);
    if (file->on_disk) {
        status = copy_start(to, file->on_disk, &text, err);
        tap__strbuf_clear(&text);
        json.depth = 2;
        json.first = false;
    } else {
        write_header(collector, &json, file->step);
    }
    bool run = true;
    *settled = 0;
    for (size_t i = 0; i < file->data->count && status == TAP_OK; i++) {
        const tap_node *item = file->data->items[i];
        tap__json_keyn(&json, item->key, item->key_len);
        tap__node_write(&json, item);
        run = run && is_settled(file, item);
        if (run) {
            *settled = i + 1;
            *settled_end = total + text.len;
        }
        status = drain(to, &text, &total, false, err);
    }
    if (status == TAP_OK) {
        tap__json_close(&json, '}');
        tap__json_close(&json, '}');
        status = drain(to, &text, &total, true, err);
    }
    tap__strbuf_free(&text);
    return status;
}

/* Frees the items that are on disk for good. */
static void retire(tap_collector *collector, step_file *file, size_t settled, uint64_t settled_end)
{
    size_t bytes = 0;
    for (size_t i = 0; i < settled; i++)
        bytes += tree_bytes(file->data->items[i]);
    tap__node_drop_first(file->data, settled);
    file->on_disk = settled_end;
    bytes = bytes < file->bytes ? bytes : file->bytes;
    file->bytes -= bytes;
    collector->bytes -= bytes;
}

/* Opens a new file of the step under its temporary name. */
static tap_status step_create(tap_collector *collector, const step_file *file, const char *name, tap_newfile *to,
                              tap_error *err)
{
    tap_strbuf relative = TAP_STRBUF_INIT;
    tap_status status = step_name(collector, file->step, name, &relative)
                            ? tap__file_create(to, collector->options.dir, relative.text, err)
                            : tap_fail_nomem(err);
    tap__strbuf_free(&relative);
    return status;
}

static tap_status write_beside(tap_collector *collector, const step_file *file, size_t which, tap_error *err)
{
    tap_newfile to;
    TAP_TRY(step_create(collector, file, BESIDE[which], &to, err));
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    uint64_t total = 0;
    tap__json_begin(&json, &text, 1);
    tap__node_write(&json, file->beside[which]);
    tap_status status = drain(&to, &text, &total, true, err);
    tap__strbuf_free(&text);
    if (status == TAP_OK)
        return tap__file_commit(&to, err);
    tap__file_abort(&to);
    return status;
}

static tap_status step_write(tap_collector *collector, step_file *file, uint64_t now_ns, tap_error *err)
{
    uint64_t start_ns = tap__monotonic_ns();
    file->next_ns = now_ns + SECOND_NS;
    tap_newfile to;
    size_t settled = 0;
    uint64_t settled_end = 0;
    if (!remember_written(collector, file->step))
        return tap_fail_nomem(err);
    for (size_t i = 0; i < BESIDE_COUNT; i++)
        if (file->beside[i])
            TAP_TRY(write_beside(collector, file, i, err));
    if (collector->modules)
        tap__node_sort(file->data);
    tap_status status = step_create(collector, file, main_file(collector), &to, err);
    TAP_TRY(status);
    status = write_body(collector, file, &to, &settled, &settled_end, err);
    if (status != TAP_OK) {
        tap__file_abort(&to);
        return status;
    }
    TAP_TRY(tap__file_commit(&to, err));
    file->dirty = false;
    file->written = collector->next_seq;
    file->rewrites++;
    if (settled && file->bytes > RETIRE_BYTES)
        retire(collector, file, settled, settled_end);
    /* a file that takes long to write is written more rarely: a tenth of the time at most */
    uint64_t took_ns = (tap__monotonic_ns() - start_ns) * 10;
    if (took_ns > SECOND_NS)
        file->next_ns = now_ns + took_ns;
    return TAP_OK;
}

tap_status tap__msprobe_collect_flush(tap_collector *collector, uint64_t now_ns, bool force, tap_error *err)
{
    tap_status first = TAP_OK;
    for (size_t i = 0; i < collector->count;) {
        step_file *file = &collector->steps[i];
        if (file->dirty && (force || now_ns >= file->next_ns)) {
            tap_status status = step_write(collector, file, now_ns, first == TAP_OK ? err : NULL);
            if (first == TAP_OK)
                first = status;
        }
        if (file->ended && !file->dirty && !file->waiting)
            step_close(collector, i);
        else
            i++;
    }
    return first;
}

/* ----------------------------------------------------------------------------------------------------- collecting */

static void set_waiting(step_file *file, tap_node *item, tap_node *node, bool waiting)
{
    if (node->waiting == waiting)
        return;
    node->waiting = waiting;
    if (waiting) {
        item->waiting_count++;
        file->waiting++;
    } else {
        item->waiting_count--;
        file->waiting--;
    }
}

/* An announced gradient: null at its place, waiting until it comes or is given up. */
static void take_slot(step_file *file, tap_node *item, tap_node *node, const tap_entry *entry)
{
    if (node->type != TAP_NODE_LEAF || node->text)
        return; /* it came before */
    set_waiting(file, item, node, !(entry->flags & TAP_SAVE_SLOT_GONE));
}

/* The node is now a leaf with a copy of the text. */
static tap_status set_text(tap_collector *collector, step_file *file, tap_node *node, const tap_strbuf *text, tap_error *err)
{
    char *copy = text->failed ? NULL : tap__strndup(text->text, text->len);
    if (!copy)
        return tap_fail_nomem(err);
    file->bytes += text->len + NODE_BYTES;
    collector->bytes += text->len + NODE_BYTES;
    tap__node_set(node, copy, text->len);
    return TAP_OK;
}

static tap_status take_leaf(tap_collector *collector, step_file *file, tap_node *item, tap_node *node,
                            const tap_entry *entry, const tap_meta *meta, const void *payload, int depth,
                            tap_error *err)
{
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_status status = tap__msprobe_leaf(&collector->options, entry, meta, payload, depth, &text, err);
    if (status == TAP_OK)
        status = set_text(collector, file, node, &text, err);
    tap__strbuf_free(&text);
    TAP_TRY(status);
    set_waiting(file, item, node, false);
    return TAP_OK;
}

/* As with msprobe, what changed last comes last. A module's inputs wait for its outputs, and the gradient of one
 * parameter for those of the others. */
static tap_node *find_module(step_file *file, const tap_entry *entry, const char *name, size_t len, tap_strbuf *key)
{
    tap__msprobe_module_key(name, len, (tap_kind)entry->kind, entry->call, key);
    tap_node *item = key->failed ? NULL : tap__node_key(file->data, key->text, key->len);
    if (item) {
        item->order = ++file->order;
        item->open = entry->kind == TAP_KIND_INPUT || entry->kind == TAP_KIND_PARAM;
    }
    return item;
}

static tap_node *find_item(tap_collector *collector, step_file *file, const tap_entry *entry, const tap_meta *meta)
{
    unsigned number;
    const char *name = meta->text[TAP_META_NAME] ? meta->text[TAP_META_NAME] : "";
    tap_strbuf *key = &collector->scratch;
    tap__strbuf_clear(key);
    if (collector->modules)
        return find_module(file, entry, name, meta->len[TAP_META_NAME], key);
    if (!tap__msprobe_claim(&collector->claims, name, meta->len[TAP_META_NAME], (tap_kind)entry->kind, key, &number))
        return NULL;
    tap__strbuf_printf(key, ".%u.debug", entry->call);
    return key->failed ? NULL : tap__node_key(file->data, key->text, key->len);
}

/* Puts text, or null, at its place in one of the files beside dump.json. */
static tap_status take_text(tap_collector *collector, step_file *file, tap_node *node, const tap_entry *entry,
                            const void *payload, tap_error *err)
{
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &text, 1);
    json.after_key = true;
    if (entry->value_type == TAP_VALUE_STR)
        tap__json_strn(&json, payload ? payload : "", payload ? entry->payload_bytes : 0);
    else
        tap__json_null(&json);
    tap_status status = set_text(collector, file, node, &text, err);
    tap__strbuf_free(&text);
    return status;
}

static tap_status collect_beside(tap_collector *collector, step_file *file, const tap_entry *entry,
                                 const tap_meta *meta, const void *payload, tap_error *err)
{
    size_t which = 0, len = meta->len[TAP_META_SUFFIX];
    while (which < BESIDE_COUNT &&
           (strlen(BESIDE[which]) != len || memcmp(BESIDE[which], meta->text[TAP_META_SUFFIX], len) != 0))
        which++;
    if (which == BESIDE_COUNT)
        return tap_fail(err, TAP_E_INVALID, "%.*s.json is no file of layout msprobe_modules; give suffix construct or "
                        "stack", (int)len, meta->text[TAP_META_SUFFIX]);
    for (size_t i = 0; i < BESIDE_COUNT; i++) /* with the one there is the other, if only empty */
        if (!file->beside[i] && !(file->beside[i] = tap__node_new(TAP_NODE_DICT)))
            return tap_fail_nomem(err);
    int depth = 0;
    tap_node *node = tap__node_path(file->beside[which], meta->text[TAP_META_PATH], meta->len[TAP_META_PATH], &depth);
    if (!node)
        return tap_fail_nomem(err);
    file->dirty = true;
    if (entry->value_type != TAP_VALUE_LIST)
        return take_text(collector, file, node, entry, payload, err);
    tap__node_become(node, TAP_NODE_LIST);
    return TAP_OK;
}

static tap_status collect_data(tap_collector *collector, const tap_entry *entry, const void *payload, tap_error *err)
{
    tap_meta meta;
    step_file *file = NULL;
    if (!tap__meta_read(&meta, entry + 1, entry->meta_bytes))
        return tap_fail(err, TAP_E_CORRUPT, "entry %llu has a malformed meta block", (unsigned long long)entry->seq);
    if (collector->bytes > MEMORY_MAX)
        return tap_fail(err, TAP_E_LIMIT, "%s.json of %s cannot be written and takes too much memory; free space on "
                        "the disk", main_file(collector), collector->options.dir->path);
    TAP_TRY(step_open(collector, entry->step, &file, err));
    if (collector->modules && meta.text[TAP_META_SUFFIX])
        return collect_beside(collector, file, entry, &meta, payload, err);
    tap_node *item = find_item(collector, file, entry, &meta);
    int depth = 2;
    tap_node *node = item ? tap__node_path(item, meta.text[TAP_META_PATH], meta.len[TAP_META_PATH], &depth) : NULL;
    if (!node)
        return tap_fail_nomem(err);
    item->touched = file->rewrites;
    file->dirty = true;
    if (entry->value_type == TAP_VALUE_LIST || entry->value_type == TAP_VALUE_TUPLE)
        tap__node_become(node, TAP_NODE_LIST);
    else if (entry->value_type == TAP_VALUE_DICT)
        tap__node_become(node, TAP_NODE_DICT);
    else if (entry->flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE))
        take_slot(file, item, node, entry);
    else
        return take_leaf(collector, file, item, node, entry, &meta, payload, depth, err);
    return TAP_OK;
}

/* Keeps a BIG entry until its statistics come. */
static tap_status collect_big(tap_collector *collector, const tap_entry *entry, tap_error *err)
{
    size_t size = sizeof *entry + entry->meta_bytes;
    if (collector->pending_count == PENDING_MAX) { /* killed while writing, all of them: the oldest gets no statistics */
        tap__free(collector->pending[0].entry);
        memmove(collector->pending, collector->pending + 1, --collector->pending_count * sizeof *collector->pending);
    }
    tap_entry *copy = tap__alloc(size);
    if (!copy)
        return tap_fail_nomem(err);
    memcpy(copy, entry, size);
    collector->pending[collector->pending_count++] = (pending){entry->seq, copy};
    return TAP_OK;
}

static tap_status collect_trailer(tap_collector *collector, const tap_entry *trailer, tap_error *err)
{
    for (size_t i = 0; i < collector->pending_count; i++) {
        if (collector->pending[i].seq != trailer->ref)
            continue;
        tap_entry *entry = collector->pending[i].entry;
        collector->pending_count--;
        memmove(collector->pending + i, collector->pending + i + 1,
                (collector->pending_count - i) * sizeof *collector->pending);
        entry->has = trailer->has;
        entry->count = trailer->count;
        entry->nan = trailer->nan;
        entry->pos_inf = trailer->pos_inf;
        entry->neg_inf = trailer->neg_inf;
        entry->zero = trailer->zero;
        entry->min = trailer->min;
        entry->max = trailer->max;
        entry->mean = trailer->mean;
        entry->norm = trailer->norm;
        tap_status status = collect_data(collector, entry, NULL, err);
        tap__free(entry);
        return status;
    }
    return TAP_OK;
}

static void collect_step(tap_collector *collector, int64_t step)
{
    if (!collector->any_ended || step > collector->ended)
        collector->ended = step;
    collector->any_ended = true;
    for (size_t i = 0; i < collector->count; i++)
        if (collector->steps[i].step <= step)
            collector->steps[i].ended = true;
}

tap_status tap__msprobe_collect(tap_collector *collector, const tap_entry *entry, const void *payload, tap_error *err)
{
    collector->next_seq = entry->seq + 1;
    switch ((tap_entry_type)entry->type) {
    case TAP_ENTRY_DATA:
        return collect_data(collector, entry, payload, err);
    case TAP_ENTRY_BIG:
        TAP_TRY(collect_data(collector, entry, payload, err));
        return collect_big(collector, entry, err);
    case TAP_ENTRY_TRAILER:
        return collect_trailer(collector, entry, err);
    case TAP_ENTRY_STEP:
        collect_step(collector, entry->step);
        return TAP_OK;
    default:
        return TAP_OK;
    }
}

bool tap__msprobe_collect_waits(const tap_collector *collector, const int64_t *step, uint64_t seq)
{
    bool waits = false;
    for (size_t i = 0; i < collector->count && !waits; i++) {
        const step_file *file = &collector->steps[i];
        waits = file->dirty && (!step || (file->step == *step && seq >= file->written));
    }
    return waits;
}

void tap__msprobe_collect_close(tap_collector *collector)
{
    if (!collector)
        return;
    for (size_t i = 0; i < collector->count; i++)
        step_free(&collector->steps[i]);
    for (size_t i = 0; i < collector->pending_count; i++)
        tap__free(collector->pending[i].entry);
    tap__free(collector->steps);
    tap__free(collector->written);
    tap__claims_free(&collector->claims);
    tap__strbuf_free(&collector->scratch);
    tap__free(collector);
}
