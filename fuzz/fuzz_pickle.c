/* fuzz_pickle.c - the pickle machine alone: every node it gives must be readable. */
#include "file_oracle.h"

#include "format/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* A list may hold itself: a bounded walk. */
static void walk(const tap_pickle_node *node, int depth, int *left)
{
    if (depth > 100 || --*left < 0)
        return;
    ORACLE(node->kind < TAP_PICKLE_MARK);
    if (node->kind == TAP_PICKLE_STR || node->kind == TAP_PICKLE_STORAGE)
        for (size_t i = 0; i < node->len; i++)
            oracle_sink = (unsigned char)node->text[i];
    if (node->kind == TAP_PICKLE_TENSOR || node->kind == TAP_PICKLE_META)
        ORACLE(node->len == 3 && node->items[1]->len < SIZE_MAX / 8);
    if (node->kind == TAP_PICKLE_DICT)
        ORACLE(node->len % 2 == 0);
    if (node->kind == TAP_PICKLE_LIST || node->kind == TAP_PICKLE_TUPLE || node->kind == TAP_PICKLE_DICT ||
        node->kind == TAP_PICKLE_TENSOR || node->kind == TAP_PICKLE_META)
        for (size_t i = 0; i < node->len; i++)
            walk(node->items[i], depth + 1, left);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    tap_arena arena;
    tap_pickle_node *root = NULL;
    tap_error err = {.status = TAP_OK};
    tap__arena_init(&arena, len);
    tap_status status = tap__pickle_read(bytes, len, "fuzzed", &arena, &root, &err);
    int left = 100000;
    if (status == TAP_OK)
        walk(root, 0, &left);
    else
        ORACLE(err.status == status && err.message[0]);
    tap__arena_free(&arena);
    return 0;
}
