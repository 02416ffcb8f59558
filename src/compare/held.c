/* held.c - copies of records, and the key by which the records of two recordings find each other. */
#include "compare/held.h"

#include "base/memory.h"

#include <string.h>

#define RECORD_TEXTS(X) X(name) X(path) X(source) X(module) X(graph) X(node) X(device) X(placements) X(type_name) X(file)

/* What data parallelism, compilation, sharding and checkpointing put between a model and its parts. */
static const char *const WRAPPERS[] = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};

static bool is_wrapper(const char *part, size_t len)
{
    for (size_t i = 0; i < sizeof WRAPPERS / sizeof WRAPPERS[0]; i++)
        if (strlen(WRAPPERS[i]) == len && memcmp(WRAPPERS[i], part, len) == 0)
            return true;
    return false;
}

void tap__name_bare(tap_strbuf *out, const char *name)
{
    for (const char *at = name; *at;) {
        size_t len = strcspn(at, ".");
        bool last = at[len] == 0;
        if (last || !is_wrapper(at, len))
            tap__strbuf_add(out, at, len + !last);
        at += len + !last;
    }
}

static void key_number(tap_strbuf *out, int64_t number)
{
    tap__strbuf_add(out, &number, sizeof number);
}

static void key_build(tap_strbuf *out, const tap_record *record, int64_t shift)
{
    tap__strbuf_clear(out);
    key_number(out, record->step + shift);
    key_number(out, record->rank);
    key_number(out, (int64_t)record->kind << 2 | (record->flags & TAP_SAVE_RECOMPUTED ? 2 : 0) | (record->child != 0));
    key_number(out, record->call);
    key_number(out, (int64_t)record->replay);
    tap__name_bare(out, record->name);
    tap__strbuf_add(out, "", 1);
    tap__strbuf_str(out, record->path);
}

static size_t texts_size(const tap_record *record)
{
    size_t size = 0;
#define X(field) size += strlen(record->field ? record->field : "") + 1;
    RECORD_TEXTS(X)
#undef X
    return size;
}

tap_held *tap__held_new(const tap_record *record, int64_t shift, tap_strbuf *room)
{
    size_t shape = sizeof(int64_t) * (size_t)(record->ndim > 0 ? record->ndim : 0);
    key_build(room, record, shift);
    size_t bytes = sizeof(tap_held) + shape + texts_size(record) + room->len;
    tap_held *held = room->failed ? NULL : tap__alloc(bytes);
    if (!held)
        return NULL;
    *held = (tap_held){.bytes = bytes, .base = held, .record = *record, .key_len = room->len};
    char *at = (char *)(held + 1);
    if (shape)
        memcpy(at, record->shape, shape);
    held->record.shape = (const int64_t *)(const void *)at;
    at += shape;
#define X(field)                                                                                                     \
    {                                                                                                                \
        const char *text = record->field ? record->field : "";                                                       \
        size_t len = strlen(text) + 1;                                                                               \
        memcpy(at, text, len);                                                                                       \
        held->record.field = at;                                                                                     \
        at += len;                                                                                                   \
    }
    RECORD_TEXTS(X)
#undef X
    memcpy(at, room->text, room->len);
    held->key = at;
    held->key_hash = tap_hash_bytes(at, room->len);
    return held;
}

/* The same place in a block that moved. */
static const void *moved(const void *pointer, const tap_held *held)
{
    return (const char *)held + ((const char *)pointer - (const char *)held->base);
}

tap_held *tap__held_load(const void *bytes, size_t len)
{
    tap_held *held = tap__alloc(len);
    if (!held)
        return NULL;
    memcpy(held, bytes, len);
    held->record.shape = moved(held->record.shape, held);
#define X(field) held->record.field = moved(held->record.field, held);
    RECORD_TEXTS(X)
#undef X
    held->key = moved(held->key, held);
    held->base = held;
    return held;
}

bool tap__held_same(const tap_held *a, const tap_held *b)
{
    return a->key_hash == b->key_hash && a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

void tap__held_free(tap_held *held)
{
    tap__free(held);
}
