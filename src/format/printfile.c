/* printfile.c - MindSpore print files. The file is one protobuf message, Print, however it was appended:
 *     Print { repeated Value value = 1; }    Value { string desc = 1 | TensorProto tensor = 2; }
 *     TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }
 * It is walked value by value, so that its size does not matter. */
#include "format/printfile.h"

#include "base/log.h"
#include "base/sized.h"
#include "base/strbuf.h"
#include "format/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct wire {
    const uint8_t *at, *end;
} wire;

/* One field: number and either a varint or bytes (empty for the fixed sizes, which nothing here uses). */
typedef struct field {
    uint32_t number, type;
    uint64_t varint;
    wire bytes;
} field;

typedef struct print_reader {
    tap_file *file;
    const char *name; /* the string right before, "" when it was a tensor */
} print_reader;

/* ------------------------------------------------------------------------------------------------------- reading */

static bool take_varint(wire *in, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        if (shift < 64)
            *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool take_field(wire *in, field *out)
{
    uint64_t tag, len = 0;
    if (!take_varint(in, &tag) || tag >> 32 || tag >> 3 == 0)
        return false;
    *out = (field){.number = (uint32_t)(tag >> 3), .type = (uint32_t)(tag & 7), .bytes = {in->at, in->at}};
    switch (out->type) {
    case WIRE_VARINT: return take_varint(in, &out->varint);
    case WIRE_BYTES:
        if (!take_varint(in, &len))
            return false;
        break;
    case WIRE_FIXED64: len = 8; break;
    case WIRE_FIXED32: len = 4; break;
    default: return false;
    }
    if (len > (uint64_t)(in->end - in->at))
        return false;
    out->bytes = (wire){in->at, in->at + len};
    in->at += len;
    return true;
}

/* No magic: a first field of the right kind, holding one of the two kinds of value. */
static bool print_detect(const uint8_t *bytes, size_t len)
{
    wire in = {bytes, bytes + len};
    uint64_t inner;
    if (in.at == in.end || *in.at++ != 0x0a)
        return false;
    if (!take_varint(&in, &inner))
        return in.at == in.end && len < 10;
    return inner == 0 || in.at == in.end || *in.at == 0x0a || *in.at == 0x12;
}

static tap_status damaged(const tap_file *file, const uint8_t *at, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the print file is damaged at byte %llu: %s; print again into a new file",
                    file->path, (unsigned long long)(at - file->bytes), what);
}

static tap_status add_string(print_reader *reader, const char *text, size_t len, tap_error *err)
{
    tap_item *item;
    TAP_TRY(tap__file_add(reader->file, &item, err));
    TAP_TRY(tap__file_text(reader->file, text, len, &item->entry.text, err));
    item->entry.value_type = TAP_VALUE_STR;
    item->entry.offset = (uint64_t)((const uint8_t *)text - reader->file->bytes);
    reader->name = item->entry.text;
    return TAP_OK;
}

static tap_status add_parsed(print_reader *reader, const tap_tensor *tensor, const tap_getext *text, tap_error *err)
{
    tap_item *item;
    TAP_TRY(tap__file_add(reader->file, &item, err));
    item->entry.name = reader->name;
    item->entry.tensor = *tensor;
    item->entry.offset = (uint64_t)((const uint8_t *)text->begin - reader->file->bytes);
    item->extent = (uint64_t)tap_tensor_bytes(tensor);
    item->owned = true;
    reader->name = "";
    return TAP_OK;
}

static size_t trimmed(const char *text, size_t len)
{
    while (len && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
        len--;
    return len;
}

/* A string; tensors inside become items of their own, the text between them strings. */
static tap_status add_desc(print_reader *reader, wire bytes, tap_error *err)
{
    const char *text = (const char *)bytes.at, *at = text, *end = (const char *)bytes.end, *from = text;
    tap_getext inside;
    while (tap__getext_find(from, (size_t)(end - from), &inside)) {
        tap_tensor tensor;
        bool good;
        TAP_TRY(tap__getext_read(reader->file, &inside, &tensor, &good, err));
        from = inside.end;
        if (!good)
            continue;
        size_t before = trimmed(at, (size_t)(inside.begin - at));
        if (before)
            TAP_TRY(add_string(reader, at, before, err));
        TAP_TRY(add_parsed(reader, &tensor, &inside, err));
        at = inside.end;
    }
    bool whole = at == text;
    if (whole || trimmed(at, (size_t)(end - at)))
        return add_string(reader, at, (size_t)(end - at), err);
    return TAP_OK;
}

typedef struct print_tensor {
    int64_t dims[TAP_MAX_NDIM];
    int32_t ndim;
    tap_dtype dtype;
    wire type, content;
} print_tensor;

static bool add_dim(print_tensor *tensor, uint64_t dim)
{
    if (tensor->ndim == TAP_MAX_NDIM)
        return false;
    tensor->dims[tensor->ndim++] = (int64_t)dim;
    return true;
}

static bool take_dims(print_tensor *tensor, field *from)
{
    if (from->type == WIRE_VARINT)
        return add_dim(tensor, from->varint);
    uint64_t dim;
    while (from->type == WIRE_BYTES && from->bytes.at < from->bytes.end)
        if (!take_varint(&from->bytes, &dim) || !add_dim(tensor, dim))
            return false;
    return from->type == WIRE_BYTES;
}

static tap_status parse_tensor(const tap_file *file, wire in, print_tensor *out, tap_error *err)
{
    const uint8_t *begin = in.at;
    *out = (print_tensor){.ndim = 0, .content = {in.at, in.at}, .type = {in.at, in.at}};
    while (in.at < in.end) {
        field part;
        if (!take_field(&in, &part))
            return damaged(file, begin, "a tensor ends too early", err);
        if (part.number == 1 && !take_dims(out, &part))
            return damaged(file, begin, "a tensor has bad or too many dimensions", err);
        if (part.number == 2 && part.type == WIRE_BYTES)
            out->type = part.bytes;
        if (part.number == 3 && part.type == WIRE_BYTES)
            out->content = part.bytes;
    }
    char name[40];
    size_t len = (size_t)(out->type.end - out->type.at);
    size_t kept = len < sizeof name ? len : sizeof name - 1;
    memcpy(name, out->type.at, kept);
    name[kept] = 0;
    out->dtype = kept == len ? tap_dtype_find(name) : TAP_DTYPE_NONE;
    if (out->dtype == TAP_DTYPE_NONE)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: a tensor has type \"%s\", which is not supported; print it as "
                        "Float32", file->path, name);
    return TAP_OK;
}

static tap_status add_tensor(print_reader *reader, wire in, tap_error *err)
{
    tap_file *file = reader->file;
    print_tensor tensor;
    TAP_TRY(parse_tensor(file, in, &tensor, err));
    uint64_t bytes = (uint64_t)(tensor.content.end - tensor.content.at);
    /* MindSpore writes a scalar with no dimension or with one of size 0 */
    if (tensor.ndim == 1 && tensor.dims[0] == 0 && bytes == tap_dtype_describe(tensor.dtype)->bytes)
        tensor.ndim = 0;
    tap_item *item;
    TAP_TRY(tap__file_add(file, &item, err));
    TAP_TRY(tap__file_place(file, item, tensor.dtype, tensor.ndim, tensor.dims,
                            (uint64_t)(tensor.content.at - file->bytes), bytes, err));
    if (item->extent != bytes)
        return damaged(file, tensor.content.at, "a tensor's dimensions and data disagree", err);
    item->entry.name = reader->name;
    reader->name = "";
    return TAP_OK;
}

static tap_status add_value(print_reader *reader, wire in, tap_error *err)
{
    const uint8_t *begin = in.at;
    field value = {.number = 0};
    while (in.at < in.end) {
        field part;
        if (!take_field(&in, &part))
            return damaged(reader->file, begin, "a value ends too early", err);
        if ((part.number == 1 || part.number == 2) && part.type == WIRE_BYTES)
            value = part;
    }
    if (value.number == 1)
        return add_desc(reader, value.bytes, err);
    return value.number == 2 ? add_tensor(reader, value.bytes, err) : TAP_OK;
}

/* A writer that was killed leaves a last value that is cut off: those before it are still worth having. */
static tap_status cut_off(const tap_file *file, const uint8_t *at, tap_error *err)
{
    unsigned long long where = (unsigned long long)(at - file->bytes);
    if (file->count == 0)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: the value at byte %llu goes beyond the end of the file; "
                        "the writer was killed, print again into a new file", file->path, where);
    tap__log(TAP_LOG_WARNING, "%s: truncated: the value at byte %llu goes beyond the end of the file; the %zu values "
             "before it were read", file->path, where, file->count);
    return TAP_OK;
}

static tap_status print_open(tap_file *file, tap_error *err)
{
    print_reader reader = {file, ""};
    wire in = {file->bytes, file->bytes + file->len};
    while (in.at < in.end) {
        const uint8_t *begin = in.at;
        field part;
        if (!take_field(&in, &part))
            return cut_off(file, begin, err);
        if (part.number == 1 && part.type == WIRE_BYTES)
            TAP_TRY(add_value(&reader, part.bytes, err));
    }
    return TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------- writing */

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;
    while (value >>= 7)
        bytes++;
    return bytes;
}

static void put_varint(tap_strbuf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        tap__strbuf_char(out, (char)(value | 0x80));
    tap__strbuf_char(out, (char)value);
}

static void put_tag(tap_strbuf *out, char tag, uint64_t len)
{
    tap__strbuf_char(out, tag);
    put_varint(out, len);
}

static uint64_t field_bytes(uint64_t len)
{
    return 1 + varint_bytes(len) + len;
}

/* Everything of the message up to the tensor's data. */
static void put_message(tap_strbuf *out, const char *name, const tap_tensor *tensor, uint64_t data_bytes)
{
    const char *type = tap_dtype_describe(tensor->dtype)->mindspore;
    size_t name_len = strlen(name), type_len = strlen(type);
    uint64_t inner = field_bytes(type_len) + field_bytes(data_bytes);
    for (int32_t i = 0; i < tensor->ndim; i++)
        inner += 1 + varint_bytes((uint64_t)tensor->shape[i]);
    put_tag(out, 0x0a, field_bytes(name_len));
    put_tag(out, 0x0a, name_len);
    tap__strbuf_add(out, name, name_len);
    put_tag(out, 0x0a, field_bytes(inner));
    put_tag(out, 0x12, inner);
    for (int32_t i = 0; i < tensor->ndim; i++)
        put_tag(out, 0x08, (uint64_t)tensor->shape[i]);
    put_tag(out, 0x12, type_len);
    tap__strbuf_add(out, type, type_len);
    put_tag(out, 0x1a, data_bytes);
}

tap_status tap__printfile_append(int fd, const char *name, const tap_tensor *tensor, tap_error *err)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    int64_t bytes = tap_tensor_bytes(tensor);
    if (!info || bytes < 0)
        return tap_fail(err, TAP_E_INVALID, "cannot print %s: the tensor is not valid", name);
    if (!info->mindspore)
        return tap_fail(err, TAP_E_UNSUPPORTED, "cannot print %s: MindSpore has no %s; convert it to %s", name,
                        info->name, tap_dtype_describe(tap__format_widen(tensor->dtype))->name);
    tap_strbuf head = TAP_STRBUF_INIT;
    put_message(&head, name, tensor, (uint64_t)bytes);
    tap_payload payload = {.fd = fd, .path = "the print file"};
    tap_status status = head.failed ? tap_fail_nomem(err)
                                    : tap__payload_write(&payload, head.text, head.len, tensor, tensor->dtype, err);
    tap__strbuf_free(&head);
    return status;
}

tap_status tap_print_file_append(const char *path, const char *text, const tap_tensor *tensor, tap_error *err)
{
    TAP_NEED(err, path);
    TAP_NEED(err, text);
    TAP_NEED(err, tensor);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    tap_status status = tap__printfile_append(fd, text, tensor, err);
    if (close(fd) != 0 && status == TAP_OK)
        status = tap_fail_errno(err, TAP_E_IO, "cannot write %s", path);
    return status;
}

const tap_format tap__format_print = {"print", print_detect, print_open, NULL, true};
