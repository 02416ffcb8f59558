/* msprobe.h - what the parts of the msprobe layout share. layout_msprobe.c names files, msprobe_leaf.c makes the JSON
 * of one value, msprobe_tree.c holds a step's values, msprobe_collect.c writes debug.json, msprobe_read.c reads it.
 *
 * Two layouts share them: "msprobe" is the single-point save, with debug.json; "msprobe_modules" is level L0, what
 * goes into and comes out of modules, with dump.json, construct.json and stack.json. There kind says which item of
 * dump.json a leaf belongs to (INPUT, OUTPUT, FORWARD: forward; GRAD: backward; PARAM: parameters_grad), and path its
 * place in it. A leaf with a suffix is text for the file of that name beside dump.json, at its path. */
#ifndef TAP_RECORD_MSPROBE_H
#define TAP_RECORD_MSPROBE_H

#include "base/json.h"
#include "record/layouts/naming.h"

/* "step<N>/rank<R>/", or proc<pid>/ without a process group. */
void tap__msprobe_dir(const tap_layout_options *options, int64_t step, tap_strbuf *out);
/* The name a save goes under in debug.json and in file names, "x" or "x_grad", or with "~1" where that is taken by the
 * gradient of another variable. Only names that end in "_grad" are looked up. false: no memory. */
bool tap__msprobe_claim(tap_claims *claims, const char *name, size_t len, tap_kind kind, tap_strbuf *out,
                        unsigned *number);
/* The length of what a name in debug.json was before tap__msprobe_claim. */
size_t tap__msprobe_unclaim(const char *name, size_t len);
/* Appends "dump_tensor_data/<claimed>.<call>.debug[.<path>].pt". */
void tap__msprobe_file(const tap_layout_options *options, const char *claimed, size_t len, uint32_t call,
                       const char *path, size_t path_len, tap_strbuf *out);
/* Appends the key of a module's item in dump.json, "<name>.forward.<call>". */
void tap__msprobe_module_key(const char *name, size_t len, tap_kind kind, uint32_t call, tap_strbuf *out);
bool tap__msprobe_is_mindspore(const tap_layout_options *options);

/* The JSON of one leaf as it stands in debug.json at this depth of brackets; meta is the entry's. */
tap_status tap__msprobe_leaf(const tap_layout_options *options, const tap_entry *entry, const tap_meta *meta,
                             const void *payload, int depth, tap_strbuf *out, tap_error *err);

/* ----------------------------------------------------------------------------------------------------------- tree */

typedef enum tap_node_type { TAP_NODE_LEAF, TAP_NODE_LIST, TAP_NODE_DICT } tap_node_type;

/* A value of debug.json: leaves keep their JSON text. A node owns its key, text and children. */
typedef struct tap_node {
    tap_node_type type;
    bool waiting;            /* a leaf that is null until its gradient comes */
    char *key;               /* in a dict; key_len bytes */
    size_t key_len;
    char *text;              /* leaf; NULL: null */
    size_t text_len;
    struct tap_node **items;
    size_t count, cap;
    tap_strmap *index;       /* of a large dict: key to position */
    uint64_t touched;        /* an item of data: when it last changed, in rewrites of the file */
    uint64_t waiting_count;  /* an item of data: leaves below it that wait */
    uint64_t order;          /* an item of a module's data: where it comes, see tap__node_sort */
    bool open;               /* an item of a module's data: more is to come, so it stays in memory */
} tap_node;

/* Nesting deeper than this is shown in one key, joined with ".". */
#define TAP_MSPROBE_DEPTH 900

tap_node *tap__node_new(tap_node_type type);
void tap__node_free(tap_node *node);
/* The child of a dict or of a list, made when it is not there; NULL without memory, or for a place in a list that is
 * impossible. */
tap_node *tap__node_key(tap_node *dict, const char *key, size_t len);
tap_node *tap__node_at(tap_node *list, uint64_t position);
/* Walks a structured path down from node, making what is not there; *depth grows by its length. */
tap_node *tap__node_path(tap_node *node, const char *path, size_t len, int *depth);
/* Makes node a leaf with this text (NULL: null), whatever it was. Takes text. */
void tap__node_set(tap_node *node, char *text, size_t len);
/* Makes an empty list or dict of it unless it is one. */
bool tap__node_become(tap_node *node, tap_node_type type);
/* Forgets the first count children of a dict. */
void tap__node_drop_first(tap_node *dict, size_t count);
/* Puts the children of a dict in the order of their member order. */
void tap__node_sort(tap_node *dict);
void tap__node_write(tap_json *json, const tap_node *node);
/* Reads a debug.json that tap__node_write wrote, and gives the dict under "data". */
tap_status tap__node_parse(const char *text, size_t len, tap_node **out, tap_error *err);
/* The same for a file that is the dict itself, whose leaves may be strings: construct.json, stack.json. */
tap_status tap__node_parse_plain(const char *text, size_t len, tap_node **out, tap_error *err);

/* -------------------------------------------------------------------------------------------------------- reading */

/* Where a debug.json or dump.json lies. */
typedef struct tap_msprobe_place {
    tap_dir *dir;         /* that record files are below; NULL: none are looked for */
    const char *relative; /* of its directory below that, with a "/" behind; "" for dir itself */
    int64_t step;
    int32_t rank, child;
    bool modules;         /* it is a dump.json */
} tap_msprobe_place;

/* Gives the records of its text, ours or msprobe's own; *seq counts them on. */
tap_status tap__msprobe_records(const char *text, size_t len, const tap_msprobe_place *place, uint64_t *seq,
                                tap_record_fn add, void *user, tap_error *err);

#endif
