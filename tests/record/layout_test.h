/* layout_test.h - what the tests of layouts share: a directory of their own, and entries made as the recorder makes
 * them. Included by one .c file each. */
#ifndef TAP_TESTS_LAYOUT_TEST_H
#define TAP_TESTS_LAYOUT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/opened.h"
#include "record/layouts/layout.h"
#include "record/layouts/naming.h"
#include "record/scratch.h"

__attribute__((unused)) static char *read_text(const char *dir, const char *relative)
{
    char *path = tap__path_join(dir, relative), *text = NULL;
    tap_error err;
    if (tap__file_get(path, 1u << 30, &text, NULL, &err) != TAP_OK)
        fail_msg("%s", err.message);
    tap__free(path);
    return text;
}

/* A saved leaf, ready to be made an entry. */
typedef struct test_entry {
    tap_entry_type type;
    const char *name, *path, *file, *type_name, *placements, *suffix; /* path structured */
    tap_kind kind;
    tap_value_type value_type;
    unsigned flags;
    int64_t step;
    uint32_t call;
    const tap_tensor *tensor;
    const void *bytes; /* of a leaf that is no tensor */
    size_t len;
    bool no_payload;
} test_entry;

/* The entry with its meta block and, behind it at *payload, its bytes; free() it. */
__attribute__((unused)) static tap_entry *make_entry(const test_entry *from, const void **payload)
{
    tap_meta meta = {.shape = NULL};
    const char *texts[TAP_META_END] = {[TAP_META_NAME] = from->name, [TAP_META_FILE] = from->file,
        [TAP_META_TYPE_NAME] = from->type_name, [TAP_META_PATH] = from->path,
        [TAP_META_PLACEMENTS] = from->placements, [TAP_META_SUFFIX] = from->suffix};
    for (int tag = 1; tag < TAP_META_END; tag++)
        if (texts[tag]) {
            meta.text[tag] = texts[tag];
            meta.len[tag] = (uint32_t)strlen(texts[tag]);
        }
    const tap_tensor *tensor = from->tensor;
    if (tensor) {
        meta.shape = tensor->shape;
        meta.ndim = tensor->ndim;
    }
    size_t meta_bytes = tap__meta_size(&meta);
    bool scan = tensor && tensor->data;
    size_t bytes = scan ? (size_t)tap_tensor_bytes(tensor) : from->len;
    size_t size = (sizeof(tap_entry) + meta_bytes + bytes + 127) / 64 * 64;
    tap_entry *entry = calloc(1, size);
    entry->magic = TAP_ENTRY_MAGIC;
    entry->version = 1;
    entry->type = (uint8_t)(from->type ? from->type : TAP_ENTRY_DATA);
    entry->kind = (uint8_t)from->kind;
    entry->value_type = (uint8_t)from->value_type;
    entry->flags = (uint16_t)from->flags;
    entry->length = size;
    entry->step = from->step;
    entry->call = from->call;
    entry->meta_bytes = (uint32_t)meta_bytes;
    entry->payload_offset = sizeof(tap_entry) + meta_bytes;
    char *data = (char *)entry + entry->payload_offset;
    if (tensor) {
        entry->dtype = (uint8_t)tensor->dtype;
        entry->ndim = (uint8_t)tensor->ndim;
    }
    if (scan) {
        tap_stats s;
        uint64_t hash;
        assert_int_equal(tap_tensor_scan(tensor, TAP_SCAN_STATS | TAP_SCAN_HASH, data, &s, &hash, NULL), TAP_OK);
        entry->has = TAP_HAS_STATS | TAP_HAS_HASH;
        entry->hash = hash;
        entry->count = s.count;
        entry->nan = s.nan;
        entry->pos_inf = s.pos_inf;
        entry->neg_inf = s.neg_inf;
        entry->zero = s.zero;
        entry->min = s.min;
        entry->max = s.max;
        entry->mean = s.mean;
        entry->norm = s.norm;
    } else if (from->len) {
        memcpy(data, from->bytes, from->len);
    }
    entry->payload_bytes = from->no_payload ? 0 : bytes;
    tap__meta_write(&meta, entry + 1);
    tap__entry_seal(entry, entry + 1);
    *payload = entry->payload_bytes ? data : NULL;
    return entry;
}

#endif
