/* npy.c - numpy's .npy files. Reads versions 1.0 to 3.0, any byte order; writes what numpy.save writes, byte for byte.
 * Structured types and types that are not numbers are refused by name. */
#include "format/format.h"

#include "base/io.h"
#include "base/newfile.h"
#include "base/status.h"
#include "format/payload.h"

#include <stdio.h>
#include <string.h>

static const char MAGIC[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { PREFIX = 10, ALIGN = 64, HEADER_MAX = 4096, READ_HEADER_MAX = 1 << 20, GROWTH_DIGITS = 21 };

/* ------------------------------------------------------------------------------------------------------- reading */

/* The header: a Python dict literal, of which exactly this one is understood. */
typedef struct npy_header {
    char descr[32];
    bool fortran;
    int32_t ndim;
    int64_t shape[TAP_MAX_NDIM];
    unsigned seen; /* a bit for each key */
} npy_header;

typedef struct npy_text {
    const char *at, *end, *path;
} npy_text;

static bool npy_detect(const uint8_t *bytes, size_t len)
{
    return len && memcmp(bytes, MAGIC, len < sizeof MAGIC ? len : sizeof MAGIC) == 0;
}

static void skip_blanks(npy_text *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r'))
        text->at++;
}

static bool take(npy_text *text, char c)
{
    skip_blanks(text);
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

static bool take_word(npy_text *text, const char *word)
{
    size_t len = strlen(word);
    skip_blanks(text);
    if ((size_t)(text->end - text->at) < len || memcmp(text->at, word, len) != 0)
        return false;
    text->at += len;
    return true;
}

static tap_status bad_header(const npy_text *text, const char *expected, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the npy header is damaged: expected %s at \"%.*s\"; write the file again",
                    text->path, expected, (int)(text->end - text->at > 20 ? 20 : text->end - text->at), text->at);
}

/* A string without escapes; fails when it does not fit. */
static tap_status take_string(npy_text *text, char *out, size_t size, const char *what, tap_error *err)
{
    skip_blanks(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
        return bad_header(text, what, err);
    const char *begin = text->at + 1;
    const char *close = memchr(begin, *text->at, (size_t)(text->end - begin));
    if (!close || memchr(begin, '\\', (size_t)(close - begin)) || (size_t)(close - begin) >= size)
        return bad_header(text, what, err);
    memcpy(out, begin, (size_t)(close - begin));
    out[close - begin] = 0;
    text->at = close + 1;
    return TAP_OK;
}

static tap_status take_dimension(npy_text *text, int64_t *out, tap_error *err)
{
    skip_blanks(text);
    const char *begin = text->at;
    int64_t number = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *text->at - '0', &number))
            return tap_fail(err, TAP_E_LIMIT, "%s: a dimension does not fit 64 bits; the file is damaged", text->path);
    if (text->at == begin)
        return bad_header(text, "a dimension", err);
    if (text->at < text->end && *text->at == 'L') /* written by Python 2 */
        text->at++;
    *out = number;
    return TAP_OK;
}

static tap_status take_shape(npy_text *text, npy_header *header, tap_error *err)
{
    if (!take(text, '('))
        return bad_header(text, "the shape", err);
    header->ndim = 0;
    while (!take(text, ')')) {
        if (header->ndim == TAP_MAX_NDIM)
            return tap_fail(err, TAP_E_LIMIT, "%s: has more than %d dimensions", text->path, TAP_MAX_NDIM);
        TAP_TRY(take_dimension(text, &header->shape[header->ndim++], err));
        if (!take(text, ',')) {
            if (!take(text, ')'))
                return bad_header(text, "a comma", err);
            break;
        }
    }
    return TAP_OK;
}

static tap_status take_descr(npy_text *text, npy_header *header, tap_error *err)
{
    skip_blanks(text);
    if (text->at < text->end && *text->at == '[') {
        const char *close = memchr(text->at, ']', (size_t)(text->end - text->at));
        long len = close ? close - text->at + 1 : text->end - text->at;
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: structured dtype %.*s is not supported; save each field as a file "
                        "of its own: np.save(path, array[field])", text->path, (int)(len > 100 ? 100 : len), text->at);
    }
    return take_string(text, header->descr, sizeof header->descr, "the dtype", err);
}

static tap_status take_pair(npy_text *text, npy_header *header, tap_error *err)
{
    char key[32];
    TAP_TRY(take_string(text, key, sizeof key, "a key", err));
    if (!take(text, ':'))
        return bad_header(text, "a colon", err);
    if (strcmp(key, "descr") == 0) {
        header->seen |= 1;
        return take_descr(text, header, err);
    }
    if (strcmp(key, "shape") == 0) {
        header->seen |= 2;
        return take_shape(text, header, err);
    }
    if (strcmp(key, "fortran_order") == 0) {
        header->seen |= 4;
        header->fortran = take_word(text, "True");
        return header->fortran || take_word(text, "False") ? TAP_OK : bad_header(text, "True or False", err);
    }
    return tap_fail(err, TAP_E_FORMAT, "%s: the npy header has an unknown key \"%s\"; write the file again with "
                    "numpy.save", text->path, key);
}

static tap_status parse_header(npy_text *text, npy_header *header, tap_error *err)
{
    *header = (npy_header){.seen = 0};
    if (!take(text, '{'))
        return bad_header(text, "a dict", err);
    while (!take(text, '}')) {
        TAP_TRY(take_pair(text, header, err));
        if (!take(text, ',')) {
            if (!take(text, '}'))
                return bad_header(text, "a comma", err);
            break;
        }
    }
    if (header->seen != 7)
        return tap_fail(err, TAP_E_FORMAT, "%s: the npy header lacks descr, fortran_order or shape; write the file "
                        "again", text->path);
    return TAP_OK;
}

/* "<f4" and its relatives; swap is set for big-endian numbers. */
static tap_status parse_descr(const char *descr, const char *path, tap_dtype *dtype, uint8_t *swap, tap_error *err)
{
    char order = descr[0];
    const char *kind = order && strchr("<>=|", order) ? descr + 1 : descr;
    *dtype = TAP_DTYPE_NONE;
    if (strcmp(kind, "T2") == 0) /* how MindSpore writes bfloat16 */
        *dtype = TAP_BF16;
    for (int i = 1; i < TAP_DTYPE_END && *dtype == TAP_DTYPE_NONE; i++) {
        const tap_dtype_info *row = tap_dtype_describe((tap_dtype)i);
        if (row->numpy && strcmp(row->numpy + 1, kind) == 0)
            *dtype = row->dtype;
    }
    if (*dtype == TAP_DTYPE_NONE)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: dtype '%s' is not supported, only bool, integers, float16 to "
                        "float64, complex64 and complex128 are; convert with array.astype before numpy.save", path,
                        descr);
    const tap_dtype_info *info = tap_dtype_describe(*dtype);
    int unit = info->kind == 'C' ? info->bytes / 2 : info->bytes;
    *swap = order == '>' && unit > 1 ? (uint8_t)unit : 0;
    return TAP_OK;
}

/* Column-major: strides that count up from the first dimension. */
static tap_status set_fortran(tap_file *file, tap_tensor *tensor, tap_error *err)
{
    void *memory;
    TAP_TRY(tap__file_alloc(file, (size_t)tensor->ndim * sizeof(int64_t), &memory, err));
    int64_t *strides = memory, stride = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        strides[i] = stride;
        if (__builtin_mul_overflow(stride, tensor->shape[i], &stride)) /* of an empty tensor */
            stride = 0;
    }
    tensor->strides = strides;
    return TAP_OK;
}

static tap_status npy_open(tap_file *file, tap_error *err)
{
    const uint8_t *bytes = file->bytes;
    size_t prefix = file->len > 6 && bytes[6] > 1 ? 12 : PREFIX;
    if (file->len < prefix)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: an npy file has at least %zu bytes, this one %zu; the "
                        "writer was killed, run: tensortap verify DIR", file->path, prefix, file->len);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: npy version %d.%d is not known, only 1.0 to 3.0", file->path,
                        bytes[6], bytes[7]);
    size_t len = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (prefix == 12)
        len |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (len > READ_HEADER_MAX)
        return tap_fail(err, TAP_E_LIMIT, "%s: an npy header of %zu bytes is more than the %d allowed; the file is "
                        "damaged", file->path, len, READ_HEADER_MAX);
    if (len > file->len - prefix)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: the npy header has %zu bytes, the file %zu; the writer "
                        "was killed, run: tensortap verify DIR", file->path, len, file->len);
    npy_text text = {(const char *)bytes + prefix, (const char *)bytes + prefix + len, file->path};
    npy_header header;
    TAP_TRY(parse_header(&text, &header, err));
    tap_item *item;
    tap_dtype dtype;
    TAP_TRY(tap__file_add(file, &item, err));
    TAP_TRY(parse_descr(header.descr, file->path, &dtype, &item->swap, err));
    TAP_TRY(tap__file_place(file, item, dtype, header.ndim, header.shape, prefix + len, file->len - prefix - len, err));
    return header.fortran && header.ndim > 1 ? set_fortran(file, &item->entry.tensor, err) : TAP_OK;
}

/* ------------------------------------------------------------------------------------------------------- writing */

static size_t format_header(char *out, const char *descr, bool fortran, int32_t ndim, const int64_t *shape)
{
    size_t at = PREFIX;
    at += (size_t)snprintf(out + at, HEADER_MAX - at, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr,
                           fortran ? "True" : "False");
    for (int32_t i = 0; i < ndim; i++)
        at += (size_t)snprintf(out + at, HEADER_MAX - at, i ? ", %lld" : "%lld", (long long)shape[i]);
    at += (size_t)snprintf(out + at, HEADER_MAX - at, "%s), }", ndim == 1 ? "," : "");
    size_t padded = at;
    if (ndim > 0) /* numpy leaves room for the dimension that grows when a file is appended to */
        padded += (size_t)(GROWTH_DIGITS - snprintf(NULL, 0, "%lld", (long long)shape[fortran ? ndim - 1 : 0]));
    padded = (padded + 1) / ALIGN * ALIGN + ALIGN;
    memset(out + at, ' ', padded - 1 - at);
    out[padded - 1] = '\n';
    memcpy(out, MAGIC, sizeof MAGIC);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((padded - PREFIX) & 0xff);
    out[9] = (char)((padded - PREFIX) >> 8);
    return padded;
}

static tap_tensor reversed_view(const tap_tensor *tensor, int64_t *shape, int64_t *strides)
{
    for (int32_t i = 0; i < tensor->ndim; i++) {
        shape[i] = tensor->shape[tensor->ndim - 1 - i];
        strides[i] = tensor->strides[tensor->ndim - 1 - i];
    }
    return (tap_tensor){tensor->data, tensor->dtype, tensor->ndim, shape, strides};
}

static tap_status npy_write_to(const tap_write_request *request, tap_dtype dtype, int fd, tap_error *err)
{
    const tap_tensor *tensor = request->tensors;
    tap_payload payload = {.fd = fd, .path = request->path};
    char header[HEADER_MAX];
    int64_t shape[TAP_MAX_NDIM], other_shape[TAP_MAX_NDIM], other_strides[TAP_MAX_NDIM];
    int32_t ndim = tap__payload_shape(tensor, dtype, shape);
    const char *descr = tap_dtype_describe(dtype)->numpy;
    /* numpy writes a transposed array as it lies in memory; a packed type unpacks along its last dimension */
    if (tensor->strides && !tap_tensor_is_contiguous(tensor) && tap_dtype_describe(tensor->dtype)->values == 1) {
        tap_tensor other = reversed_view(tensor, other_shape, other_strides);
        if (tap_tensor_is_contiguous(&other)) {
            size_t len = format_header(header, descr, true, ndim, shape);
            return tap__payload_write(&payload, header, len, &other, dtype, err);
        }
    }
    size_t len = format_header(header, descr, false, ndim, shape);
    return tap__payload_write(&payload, header, len, tensor, dtype, err);
}

static tap_status npy_write(const tap_write_request *request, tap_error *err)
{
    if (request->count != 1)
        return tap_fail(err, TAP_E_INVALID, "cannot write %s: an npy file holds one tensor, not %zu; write one file "
                        "each or use format pt", request->path, request->count);
    tap_dtype dtype = request->tensors->dtype;
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (!info->numpy && !request->convert)
        return tap_fail(err, TAP_E_UNSUPPORTED, "cannot write %s: numpy has no %s; convert it to %s or use format pt",
                        request->path, info->name, tap_dtype_describe(tap__format_widen(dtype))->name);
    tap_newfile file;
    TAP_TRY(tap__file_create(&file, request->dir, request->name, err));
    tap_status status = npy_write_to(request, info->numpy ? dtype : tap__format_widen(dtype), file.fd, err);
    if (status != TAP_OK) {
        tap__file_abort(&file);
        return status;
    }
    return tap__file_commit(&file, err);
}

const tap_format tap__format_npy = {"npy", npy_detect, npy_open, npy_write, false};
