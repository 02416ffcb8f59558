/* safetensors.c - safetensors files: eight bytes with the length of a JSON header, the header, the data. Header order
 * and metadata of other writers are accepted; what we write has its data aligned to 64 bytes and packed, largest
 * elements first, so that every tensor is aligned in a mapping. */
#include "format/format.h"

#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "format/payload.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, ALIGN = 64, HEADER_MAX = 100000000, JSON_DEPTH = 8 };

/* ------------------------------------------------------------------------------------------------------- reading */

static uint64_t header_length(const uint8_t *bytes)
{
    uint64_t len = 0;
    for (int i = 0; i < PREFIX; i++)
        len |= (uint64_t)bytes[i] << 8 * i;
    return len;
}

/* The upper bytes of a length are zero; in a print file, which may look alike, they are text. */
static bool safetensors_detect(const uint8_t *bytes, size_t len)
{
    return len > PREFIX && bytes[PREFIX] == '{' && header_length(bytes) >> 40 == 0;
}

static tap_status damaged(const tap_file *file, const char *name, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the tensor %.100s is damaged: %s; write the file again", file->path, name,
                    what);
}

static tap_status parse_json(tap_file *file, size_t len, struct json_object **out, tap_error *err)
{
    const char *text = (const char *)file->bytes + PREFIX;
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\n'))
        len--;
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH);
    if (!tokener)
        return tap_fail_nomem(err);
    *out = json_tokener_parse_ex(tokener, text, (int)len);
    enum json_tokener_error failed = json_tokener_get_error(tokener);
    size_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (failed == json_tokener_success && end == len && json_object_is_type(*out, json_type_object))
        return TAP_OK;
    json_object_put(*out);
    *out = NULL;
    return tap_fail(err, TAP_E_FORMAT, "%s: the safetensors header is not a JSON object (%s at byte %zu); write the "
                    "file again", file->path, failed ? json_tokener_error_desc(failed) : "unexpected end",
                    PREFIX + end);
}

/* An array of integers that are not negative. */
static bool read_numbers(struct json_object *array, int64_t *out, size_t min, size_t max, size_t *count)
{
    if (!json_object_is_type(array, json_type_array))
        return false;
    *count = json_object_array_length(array);
    if (*count < min || *count > max)
        return false;
    for (size_t i = 0; i < *count; i++) {
        struct json_object *number = json_object_array_get_idx(array, i);
        if (!json_object_is_type(number, json_type_int) || json_object_get_int64(number) < 0)
            return false;
        out[i] = json_object_get_int64(number);
    }
    return true;
}

static tap_dtype find_dtype(struct json_object *text)
{
    const char *name = json_object_is_type(text, json_type_string) ? json_object_get_string(text) : "";
    for (int i = 1; i < TAP_DTYPE_END; i++) {
        const tap_dtype_info *row = tap_dtype_describe((tap_dtype)i);
        if (row->safetensors && strcmp(row->safetensors, name) == 0)
            return row->dtype;
    }
    return TAP_DTYPE_NONE;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} */
static tap_status read_tensor(tap_file *file, const char *name, struct json_object *object, uint64_t data_at,
                              tap_error *err)
{
    int64_t shape[TAP_MAX_NDIM], offsets[2];
    size_t ndim = 0, two;
    tap_item *item;
    TAP_TRY(tap__file_add(file, &item, err));
    TAP_TRY(tap__file_text(file, name, strlen(name), &item->entry.name, err));
    if (!json_object_is_type(object, json_type_object))
        return damaged(file, name, "it is not described by an object", err);
    struct json_object *type = json_object_object_get(object, "dtype");
    tap_dtype dtype = find_dtype(type);
    if (dtype == TAP_DTYPE_NONE)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: the tensor %.100s has dtype %.40s, which is not supported; "
                        "convert it to F32 before saving", file->path, name,
                        type ? json_object_to_json_string(type) : "null");
    if (!read_numbers(json_object_object_get(object, "shape"), shape, 0, TAP_MAX_NDIM, &ndim))
        return damaged(file, name, "its shape is not a list of sizes", err);
    if (!read_numbers(json_object_object_get(object, "data_offsets"), offsets, 2, 2, &two) || offsets[1] < offsets[0])
        return damaged(file, name, "its data_offsets are not two numbers in order", err);
    int values = tap_dtype_describe(dtype)->values; /* the shape counts values: two of F4 are one element */
    if (values > 1 && (ndim == 0 || shape[ndim - 1] % values))
        return damaged(file, name, "its last dimension is not even", err);
    if (values > 1)
        shape[ndim - 1] /= values;
    uint64_t have = file->len - data_at, begin = (uint64_t)offsets[0], end = (uint64_t)offsets[1];
    if (end > have)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: header promises %llu bytes, file has %llu; the writer "
                        "was killed, run: tensortap verify DIR", file->path, (unsigned long long)end,
                        (unsigned long long)have);
    TAP_TRY(tap__file_place(file, item, dtype, (int32_t)ndim, shape, data_at + begin, have - begin, err));
    return item->extent == end - begin ? TAP_OK : damaged(file, name, "its shape and data_offsets disagree", err);
}

static tap_status safetensors_open(tap_file *file, tap_error *err)
{
    if (file->len < PREFIX)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: %zu bytes are no safetensors file", file->path,
                        file->len);
    uint64_t len = header_length(file->bytes);
    if (len > HEADER_MAX)
        return tap_fail(err, TAP_E_LIMIT, "%s: a safetensors header of %llu bytes is more than the %d allowed; the "
                        "file is damaged", file->path, (unsigned long long)len, HEADER_MAX);
    if (len > file->len - PREFIX)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: the safetensors header has %llu bytes, the file %zu; the "
                        "writer was killed, run: tensortap verify DIR", file->path, (unsigned long long)len, file->len);
    struct json_object *root;
    TAP_TRY(parse_json(file, (size_t)len, &root, err));
    tap_status status = TAP_OK;
    struct json_object_iterator at = json_object_iter_begin(root), end = json_object_iter_end(root);
    for (; status == TAP_OK && !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *name = json_object_iter_peek_name(&at);
        if (strcmp(name, "__metadata__") != 0)
            status = read_tensor(file, name, json_object_iter_peek_value(&at), PREFIX + len, err);
    }
    json_object_put(root);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- writing */

/* One tensor's place in the file. */
typedef struct slot {
    const tap_tensor *tensor;
    const char *name;
    tap_dtype dtype;
    size_t index;
    uint64_t bytes;
} slot;

static int compare_slots(const void *a, const void *b)
{
    const slot *x = a, *y = b;
    int bytes = tap_dtype_describe(y->dtype)->bytes - tap_dtype_describe(x->dtype)->bytes;
    return bytes ? bytes : (x->index > y->index) - (x->index < y->index);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_utf8(const char *text)
{
    size_t left = strlen(text);
    while (left) {
        size_t step = tap__utf8_char(text, left);
        if (step == 0)
            return false;
        text += step;
        left -= step;
    }
    return true;
}

static tap_status check_names(const tap_write_request *request, const char **sorted, tap_error *err)
{
    for (size_t i = 0; i < request->count; i++) {
        sorted[i] = request->names[i];
        if (!sorted[i] || !is_utf8(sorted[i]) || strcmp(sorted[i], "__metadata__") == 0)
            return tap_fail(err, TAP_E_INVALID, "cannot write %s: the name of tensor %zu is not UTF-8 or is reserved; "
                            "choose another", request->path, i);
    }
    qsort(sorted, request->count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < request->count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return tap_fail(err, TAP_E_INVALID, "cannot write %s: two tensors are named %.100s; choose another name",
                            request->path, sorted[i]);
    return TAP_OK;
}

static tap_status fill_slots(const tap_write_request *request, slot *slots, tap_error *err)
{
    for (size_t i = 0; i < request->count; i++) {
        const tap_tensor *tensor = &request->tensors[i];
        const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
        /* F4 counts values in its shape, so that a packed scalar has no shape there */
        bool lacking = !info->safetensors || (info->values > 1 && tensor->ndim == 0);
        if (lacking && !request->convert)
            return tap_fail(err, TAP_E_UNSUPPORTED, "cannot write %s: safetensors has no %s; convert it to %s or use "
                            "format pt", request->path, info->name,
                            tap_dtype_describe(tap__format_widen(tensor->dtype))->name);
        tap_dtype dtype = lacking ? tap__format_widen(tensor->dtype) : tensor->dtype;
        int64_t bytes = tap__payload_bytes(tensor, dtype);
        if (bytes < 0)
            return tap_fail(err, TAP_E_LIMIT, "cannot write %s: tensor %zu is too large", request->path, i);
        slots[i] = (slot){tensor, request->names[i], dtype, i, (uint64_t)bytes};
    }
    if (request->count)
        qsort(slots, request->count, sizeof *slots, compare_slots);
    return TAP_OK;
}

static void put_slot(tap_json *json, const slot *at, uint64_t offset)
{
    const tap_dtype_info *info = tap_dtype_describe(at->dtype);
    int64_t shape[TAP_MAX_NDIM];
    int32_t ndim = tap__payload_shape(at->tensor, at->dtype, shape);
    if (info->values > 1)
        shape[ndim - 1] *= info->values;
    tap__json_key(json, at->name);
    tap__json_open(json, '{');
    tap__json_key(json, "dtype");
    tap__json_str(json, info->safetensors);
    tap__json_key(json, "shape");
    tap__json_open(json, '[');
    for (int32_t i = 0; i < ndim; i++)
        tap__json_int(json, shape[i]);
    tap__json_close(json, ']');
    tap__json_key(json, "data_offsets");
    tap__json_open(json, '[');
    tap__json_uint(json, offset);
    tap__json_uint(json, offset + at->bytes);
    tap__json_close(json, ']');
    tap__json_close(json, '}');
}

static tap_status put_header(const slot *slots, size_t count, tap_strbuf *out, const char *path, tap_error *err)
{
    tap_json json;
    uint64_t offset = 0;
    tap__strbuf_add(out, "\0\0\0\0\0\0\0\0", PREFIX);
    tap__json_begin(&json, out, -1);
    json.raw_utf8 = true;
    tap__json_open(&json, '{');
    for (size_t i = 0; i < count; offset += slots[i++].bytes)
        put_slot(&json, &slots[i], offset);
    tap__json_close(&json, '}');
    while (out->len % ALIGN && !out->failed)
        tap__strbuf_char(out, ' ');
    if (out->failed)
        return tap_fail_nomem(err);
    if (out->len - PREFIX > HEADER_MAX)
        return tap_fail(err, TAP_E_LIMIT, "cannot write %s: its header would be larger than safetensors allows; write "
                        "several files", path);
    for (int i = 0; i < PREFIX; i++)
        out->text[i] = (char)((out->len - PREFIX) >> 8 * i & 0xff);
    return TAP_OK;
}

static tap_status write_slots(const tap_write_request *request, const slot *slots, const tap_strbuf *header,
                              tap_error *err)
{
    tap_newfile file;
    TAP_TRY(tap__file_create(&file, request->dir, request->name, err));
    tap_payload payload = {.fd = file.fd, .path = request->path};
    const tap_tensor none = {.dtype = TAP_U8, .ndim = 1, .shape = (const int64_t[]){0}};
    tap_status status = TAP_OK;
    if (request->count == 0)
        status = tap__payload_write(&payload, header->text, header->len, &none, TAP_U8, err);
    for (size_t i = 0; i < request->count && status == TAP_OK; i++)
        status = tap__payload_write(&payload, header->text, i ? 0 : header->len, slots[i].tensor, slots[i].dtype, err);
    if (status == TAP_OK)
        return tap__file_commit(&file, err);
    tap__file_abort(&file);
    return status;
}

static tap_status safetensors_write(const tap_write_request *request, tap_error *err)
{
    if (!request->names && request->count)
        return tap_fail(err, TAP_E_INVALID, "cannot write %s: safetensors needs a name for each tensor", request->path);
    slot *slots = tap__calloc(request->count + 1, sizeof *slots);
    const char **sorted = tap__calloc(request->count + 1, sizeof *sorted);
    tap_strbuf header = TAP_STRBUF_INIT;
    tap_status status = slots && sorted ? check_names(request, sorted, err) : tap_fail_nomem(err);
    if (status == TAP_OK)
        status = fill_slots(request, slots, err);
    if (status == TAP_OK)
        status = put_header(slots, request->count, &header, request->path, err);
    if (status == TAP_OK)
        status = write_slots(request, slots, &header, err);
    tap__strbuf_free(&header);
    tap__free(sorted);
    tap__free(slots);
    return status;
}

const tap_format tap__format_safetensors = {"safetensors", safetensors_detect, safetensors_open, safetensors_write,
                                            false};
