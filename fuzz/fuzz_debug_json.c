/* fuzz_debug_json.c - any bytes as msprobe's debug.json: through the reader, and through the parser with which a writer
 * goes on with a file; what that writes must read back the same. */
#include "record/msprobe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tap_status add(void *user, const tap_record *record)
{
    size_t *total = user;
    for (int32_t i = 0; i < record->ndim; i++)
        *total += (size_t)record->shape[i] & 1;
    *total += strlen(record->name) + strlen(record->path) + strlen(record->file) + strlen(record->type_name);
    if (strstr(record->file, "/../") || record->file[0] == '/')
        abort();
    return TAP_OK;
}

static char *write_tree(const tap_node *tree, size_t *len)
{
    tap_strbuf text = TAP_STRBUF_INIT;
    tap_json json;
    tap__json_begin(&json, &text, 1);
    tap__json_open(&json, '{');
    tap__json_key(&json, "data");
    tap__node_write(&json, tree);
    tap__json_close(&json, '}');
    *len = text.len;
    return text.text;
}

static void go_on_with(const uint8_t *data, size_t size)
{
    tap_node *first, *second;
    if (tap__node_parse((const char *)data, size, &first, NULL) != TAP_OK)
        return;
    size_t len, again_len;
    char *text = write_tree(first, &len);
    if (tap__node_parse(text, len, &second, NULL) != TAP_OK)
        abort();
    char *again = write_tree(second, &again_len);
    if (again_len != len || memcmp(text, again, len) != 0)
        abort();
    tap__node_free(first);
    tap__node_free(second);
    tap__free(text);
    tap__free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_msprobe_place place = {.root = NULL, .relative = "step0/rank0/", .step = 0};
    uint64_t seq = 0;
    size_t total = 0;
    tap_error err;
    tap__msprobe_records((const char *)data, size, &place, &seq, add, &total, &err);
    go_on_with(data, size);
    return 0;
}
