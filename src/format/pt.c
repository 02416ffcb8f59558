/* pt.c - reads torch's .pt and .bin archives: the pickle says what is there, each storage is a record of the zip
 * archive and is used where it lies. One item for each leaf, named by its path: "key.0". */
#include "format/pt.h"

#include "base/json.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "format/pickle.h"
#include "format/zip.h"

#include <string.h>

enum { MAX_DEPTH = 100 };

typedef struct pt_reader {
    tap_file *file;
    tap_zip zip;
    tap_strbuf path, record; /* of the current leaf, of the storage looked for */
    size_t prefix_len;       /* of record: "<archive>/data/" */
    size_t max_items;        /* a small pickle that repeats itself must not become a large list */
} pt_reader;

static bool pt_detect(const uint8_t *bytes, size_t len)
{
    static const uint8_t MAGIC[] = {'P', 'K', 3, 4}, EMPTY[] = {'P', 'K', 5, 6};
    size_t have = len < sizeof MAGIC ? len : sizeof MAGIC;
    return len && (memcmp(bytes, MAGIC, have) == 0 || memcmp(bytes, EMPTY, have) == 0);
}

static tap_status damaged(const pt_reader *reader, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the tensor %s is damaged: %s; write the file again", reader->file->path,
                    reader->path.len ? reader->path.text : "in it", what);
}

/* ------------------------------------------------------------------------------------------------------- tensors */

/* Shape and strides, checked for signs; strides NULL when row-major. */
static tap_status read_shape(pt_reader *reader, const tap_pickle_node *node, tap_tensor *tensor, tap_error *err)
{
    const tap_pickle_node *size = node->items[1], *stride = node->items[2];
    if (size->len != stride->len || size->len > TAP_MAX_NDIM)
        return damaged(reader, "its size and stride do not fit together", err);
    void *memory;
    TAP_TRY(tap__file_alloc(reader->file, size->len * 2 * sizeof(int64_t), &memory, err));
    int64_t *shape = memory, *strides = shape + size->len;
    for (size_t i = 0; i < size->len; i++) {
        shape[i] = size->items[i]->integer;
        strides[i] = stride->items[i]->integer;
        if (shape[i] < 0 || strides[i] < 0)
            return damaged(reader, "a size or stride is negative", err);
    }
    *tensor = (tap_tensor){.dtype = (tap_dtype)node->dtype, .ndim = (int32_t)size->len, .shape = shape};
    if (tap_tensor_bytes(tensor) < 0)
        return damaged(reader, "its size is larger than any memory", err);
    tensor->strides = strides;
    if (tap_tensor_is_contiguous(tensor))
        tensor->strides = NULL;
    return TAP_OK;
}

/* Elements from the first to the last one the view reaches; false when that does not fit. */
static bool view_extent(const tap_tensor *tensor, int64_t *out)
{
    int64_t last = 0, reach;
    *out = tap_tensor_count(tensor);
    if (*out == 0 || !tensor->strides)
        return true;
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    return !__builtin_add_overflow(last, 1, out);
}

static tap_status find_storage(pt_reader *reader, const tap_pickle_node *storage, tap_zip_record **record,
                               const uint8_t **data, tap_error *err)
{
    *record = NULL;
    reader->record.len = reader->prefix_len;
    tap__strbuf_add(&reader->record, storage->text, storage->len);
    if (reader->record.failed)
        return tap_fail_nomem(err);
    *record = tap__zip_find(&reader->zip, reader->record.text, reader->record.len);
    if (!*record)
        return damaged(reader, "its storage is not in the archive", err);
    return tap__zip_data(&reader->zip, *record, data, err);
}

static tap_status add_tensor(pt_reader *reader, tap_item *item, const tap_pickle_node *node, tap_error *err)
{
    const tap_pickle_node *storage = node->items[0];
    tap_tensor *tensor = &item->entry.tensor;
    if (node->dtype == TAP_DTYPE_NONE)
        return damaged(reader, "it has no dtype", err);
    TAP_TRY(read_shape(reader, node, tensor, err));
    tap_zip_record *record = NULL;
    const uint8_t *data;
    TAP_TRY(find_storage(reader, storage, &record, &data, err));
    int64_t bytes = tap_dtype_describe(tensor->dtype)->bytes, end, begin, promised;
    if (node->integer < 0 || !view_extent(tensor, &end) || __builtin_add_overflow(end, node->integer, &end) ||
        __builtin_mul_overflow(end, bytes, &end) || __builtin_mul_overflow(node->integer, bytes, &begin) ||
        __builtin_mul_overflow(storage->integer, storage->dtype ? bytes : 1, &promised))
        return damaged(reader, "its size does not fit 64 bits", err);
    if (promised < 0 || (uint64_t)promised > record->size)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: storage %.*s promises %lld bytes, the archive has %llu; "
                        "write the file again", reader->file->path, (int)(storage->len < 40 ? storage->len : 40),
                        storage->text, (long long)promised, (unsigned long long)record->size);
    if (end > promised)
        return damaged(reader, "it reaches beyond its storage", err);
    tensor->data = (void *)(uintptr_t)(data + begin);
    item->extent = tap_tensor_count(tensor) ? (uint64_t)(end - begin) : 0;
    item->entry.offset = record->inflated ? 0 : (uint64_t)(data - reader->file->bytes) + (uint64_t)begin;
    return TAP_OK;
}

/* -------------------------------------------------------------------------------------------------------- leaves */

static tap_status add_text(pt_reader *reader, tap_item *item, const char *text, size_t len, tap_error *err)
{
    item->entry.value_type = TAP_VALUE_STR;
    return tap__file_text(reader->file, text, len, &item->entry.text, err);
}

static tap_status add_dtype(pt_reader *reader, tap_item *item, const tap_pickle_node *node, tap_error *err)
{
    char text[64] = "torch.";
    size_t len = strlen(tap_dtype_describe((tap_dtype)node->dtype)->torch);
    memcpy(text + 6, tap_dtype_describe((tap_dtype)node->dtype)->torch, len);
    return add_text(reader, item, text, 6 + len, err);
}

static tap_status fill_leaf(pt_reader *reader, tap_item *item, const tap_pickle_node *node, tap_error *err)
{
    tap_file_entry *entry = &item->entry;
    switch ((tap_pickle_kind)node->kind) {
    case TAP_PICKLE_TENSOR: return add_tensor(reader, item, node, err);
    case TAP_PICKLE_META: entry->value_type = TAP_VALUE_META; return read_shape(reader, node, &entry->tensor, err);
    case TAP_PICKLE_NONE: entry->value_type = TAP_VALUE_NONE; return TAP_OK;
    case TAP_PICKLE_BOOL: entry->value_type = TAP_VALUE_BOOL; entry->integer = node->integer; return TAP_OK;
    case TAP_PICKLE_INT: entry->value_type = TAP_VALUE_INT; entry->integer = node->integer; return TAP_OK;
    case TAP_PICKLE_FLOAT: entry->value_type = TAP_VALUE_FLOAT; entry->number = node->number; return TAP_OK;
    case TAP_PICKLE_COMPLEX:
        entry->value_type = TAP_VALUE_COMPLEX;
        entry->number = node->number;
        entry->imag = node->imag;
        return TAP_OK;
    case TAP_PICKLE_LIST: entry->value_type = TAP_VALUE_LIST; return TAP_OK;
    case TAP_PICKLE_TUPLE: entry->value_type = TAP_VALUE_TUPLE; return TAP_OK;
    case TAP_PICKLE_DICT: entry->value_type = TAP_VALUE_DICT; return TAP_OK;
    case TAP_PICKLE_STR: return add_text(reader, item, node->text, node->len, err);
    case TAP_PICKLE_DTYPE: return add_dtype(reader, item, node, err);
    case TAP_PICKLE_STORAGE:
    case TAP_PICKLE_STORAGE_TYPE:
    case TAP_PICKLE_GLOBAL:
    case TAP_PICKLE_MARK: break;
    }
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: %s holds a type or a bare storage, not a value; save tensors",
                    reader->file->path, reader->path.len ? reader->path.text : "the file");
}

static tap_status add_leaf(pt_reader *reader, const tap_pickle_node *node, tap_error *err)
{
    tap_item *item;
    if (reader->file->count >= reader->max_items)
        return tap_fail(err, TAP_E_LIMIT, "%s: repeats its values more than %zu times; the file is damaged or hostile",
                        reader->file->path, reader->max_items);
    TAP_TRY(tap__file_add(reader->file, &item, err));
    if (reader->path.len)
        TAP_TRY(tap__file_text(reader->file, reader->path.text, reader->path.len, &item->entry.name, err));
    return fill_leaf(reader, item, node, err);
}

static tap_status add_key(pt_reader *reader, const tap_pickle_node *key, tap_error *err)
{
    tap_strbuf *path = &reader->path;
    char text[32];
    if (path->len)
        tap__strbuf_char(path, '.');
    switch ((tap_pickle_kind)key->kind) {
    case TAP_PICKLE_STR: tap__strbuf_add(path, key->text, key->len); break;
    case TAP_PICKLE_INT: tap__strbuf_printf(path, "%lld", (long long)key->integer); break;
    case TAP_PICKLE_BOOL: tap__strbuf_str(path, key->integer ? "True" : "False"); break;
    case TAP_PICKLE_NONE: tap__strbuf_str(path, "None"); break;
    case TAP_PICKLE_FLOAT: tap__strbuf_add(path, text, (size_t)tap__format_float(text, key->number)); break;
    default:
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: a dict has a key that is neither a string nor a number; save it "
                        "with string keys", reader->file->path);
    }
    return path->failed ? tap_fail_nomem(err) : TAP_OK;
}

static tap_status add_value(pt_reader *reader, const tap_pickle_node *node, int depth, tap_error *err)
{
    bool dict = node->kind == TAP_PICKLE_DICT;
    if ((!dict && node->kind != TAP_PICKLE_LIST && node->kind != TAP_PICKLE_TUPLE) || node->len == 0)
        return add_leaf(reader, node, err);
    if (depth == MAX_DEPTH)
        return tap_fail(err, TAP_E_LIMIT, "%s: is nested more than %d deep; the file is damaged or hostile",
                        reader->file->path, MAX_DEPTH);
    size_t len = reader->path.len, step = dict ? 2 : 1;
    for (size_t i = 0; i < node->len; i += step) {
        const tap_pickle_node index = {.kind = TAP_PICKLE_INT, .integer = (int64_t)i};
        TAP_TRY(add_key(reader, dict ? node->items[i] : &index, err));
        TAP_TRY(add_value(reader, node->items[i + step - 1], depth + 1, err));
        reader->path.len = len;
        reader->path.text[len] = 0;
    }
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------- archive */

static bool ends_with(const tap_zip_record *record, const char *end)
{
    size_t len = strlen(end);
    return record->name_len >= len && memcmp(record->name + record->name_len - len, end, len) == 0;
}

/* "<archive>/data.pkl"; remembers "<archive>/". */
static tap_status find_pickle(pt_reader *reader, tap_zip_record **out, tap_error *err)
{
    static const char NAME[] = "data.pkl";
    const tap_zip *zip = &reader->zip;
    bool numpy = false;
    *out = NULL;
    for (size_t i = 0; i < zip->count && !*out; i++) {
        size_t prefix = ends_with(&zip->records[i], NAME) ? zip->records[i].name_len - strlen(NAME) : 0;
        if (ends_with(&zip->records[i], NAME) && (prefix == 0 || zip->records[i].name[prefix - 1] == '/')) {
            *out = &zip->records[i];
            tap__strbuf_add(&reader->record, zip->records[i].name, prefix);
        }
        numpy = numpy || ends_with(&zip->records[i], ".npy");
    }
    if (!*out && numpy)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: a numpy npz archive; unpack it with unzip and open the npy files",
                        zip->path);
    if (!*out)
        return tap_fail(err, TAP_E_FORMAT, "%s: a zip archive, but not of torch: data.pkl is missing; check that the "
                        "path names the right file", zip->path);
    return TAP_OK;
}

static tap_status check_byteorder(pt_reader *reader, tap_error *err)
{
    size_t prefix = reader->record.len;
    tap__strbuf_str(&reader->record, "byteorder");
    if (reader->record.failed)
        return tap_fail_nomem(err);
    tap_zip_record *record = tap__zip_find(&reader->zip, reader->record.text, reader->record.len);
    reader->record.len = prefix;
    if (!record)
        return TAP_OK;
    const uint8_t *bytes;
    TAP_TRY(tap__zip_data(&reader->zip, record, &bytes, err));
    if (record->size == 6 && memcmp(bytes, "little", 6) == 0)
        return TAP_OK;
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: was saved on a big-endian machine; load it with torch and save it "
                    "again", reader->file->path);
}

static tap_status read_archive(pt_reader *reader, tap_arena *nodes, tap_error *err)
{
    tap_file *file = reader->file;
    tap_zip_record *pickle;
    const uint8_t *bytes;
    tap_pickle_node *root;
    TAP_TRY(tap__zip_open(&reader->zip, file->bytes, file->len, file->path, &file->arena, err));
    TAP_TRY(find_pickle(reader, &pickle, err));
    TAP_TRY(check_byteorder(reader, err));
    tap__strbuf_str(&reader->record, "data/");
    reader->prefix_len = reader->record.len;
    TAP_TRY(tap__zip_data(&reader->zip, pickle, &bytes, err));
    TAP_TRY(tap__pickle_read(bytes, pickle->size, file->path, nodes, &root, err));
    reader->max_items = 1000 + 4 * (size_t)pickle->size;
    return add_value(reader, root, 0, err);
}

static tap_status pt_open(tap_file *file, tap_error *err)
{
    pt_reader reader = {.file = file};
    tap_arena nodes;
    tap__arena_init(&nodes, file->len);
    tap_status status = read_archive(&reader, &nodes, err);
    tap__arena_free(&nodes);
    tap__strbuf_free(&reader.path);
    tap__strbuf_free(&reader.record);
    return status;
}

const tap_format tap__format_pt = {"pt", pt_detect, pt_open, tap__pt_write, false};
