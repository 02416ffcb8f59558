/* fuzz_debug_json.c - any bytes as msprobe's debug.json, dump.json, construct.json: through the readers, and through the
 * parsers with which a writer goes on with a file; what that writes must read back the same. */
#include "record/layouts/msprobe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tap_status add(void *user, const tap_record *record, const tap_facts *facts)
{
    (void)facts;
    size_t *total = user;
    for (int32_t i = 0; i < record->ndim; i++)
        *total += (size_t)record->shape[i] & 1;
    *total += strlen(record->name) + strlen(record->path) + strlen(record->file) + strlen(record->type_name);
    if (strstr(record->file, "/../") || record->file[0] == '/')
        abort();
    return TAP_OK;
}

typedef tap_status (*parse_fn)(const char *text, size_t len, tap_node **out, tap_error *err);

static char *write_tree(const tap_node *tree, bool plain, size_t *len)
{
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &text, 1);
    if (!plain) {
        tap__json_open(&json, '{');
        tap__json_key(&json, "data");
    }
    tap__node_write(&json, tree);
    if (!plain)
        tap__json_close(&json, '}');
    *len = text.len;
    return text.text;
}

static void go_on_with(const uint8_t *data, size_t size, bool plain)
{
    parse_fn parse = plain ? tap__node_parse_plain : tap__node_parse;
    tap_node *first, *second;
    if (parse((const char *)data, size, &first, NULL) != TAP_OK)
        return;
    size_t len, again_len;
    char *text = write_tree(first, plain, &len);
    if (parse(text, len, &second, NULL) != TAP_OK)
        abort();
    char *again = write_tree(second, plain, &again_len);
    if (again_len != len || memcmp(text, again, len) != 0)
        abort();
    tap__node_free(first);
    tap__node_free(second);
    tap__free(text);
    tap__free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_msprobe_place place = {.dir = NULL, .relative = "step0/rank0/", .step = 0};
    uint64_t seq = 0;
    size_t total = 0;
    tap_error err;
    for (int modules = 0; modules < 2; modules++) {
        place.modules = modules;
        tap__msprobe_records((const char *)data, size, &place, &seq, add, &total, &err);
        go_on_with(data, size, modules);
    }
    return 0;
}
