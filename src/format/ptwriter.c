/* ptwriter.c - writes torch's .pt files: the zip archive torch.save makes of one tensor or a list of tensors, with the
 * same pickle, so that torch.load(path, weights_only=True) reads it. A view's own elements are written, contiguous. */
#include "format/pt.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/status.h"
#include "format/zip.h"

#include <stdio.h>
#include <string.h>

/* Writes a pickle the way Python's pickler does: what was written before is fetched from its memo by number. */
enum { MEMO_V2, MEMO_V3, MEMO_STORAGE, MEMO_CPU, MEMO_DICT, MEMO_UNTYPED, MEMO_TYPES,
       MEMO_COUNT = MEMO_TYPES + TAP_DTYPE_END, BATCH = 1000 };

typedef struct pickler {
    tap_strbuf out;
    uint32_t next;             /* memo number */
    int64_t memo[MEMO_COUNT];  /* number, -1: not written yet */
} pickler;

static void put_byte(pickler *pickle, int byte)
{
    tap__strbuf_char(&pickle->out, (char)byte);
}

static void put_le(pickler *pickle, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(pickle, (int)(value >> 8 * i & 0xff));
}

static void put_memo(pickler *pickle)
{
    put_byte(pickle, pickle->next < 256 ? 'q' : 'r');
    put_le(pickle, pickle->next, pickle->next < 256 ? 1 : 4);
    pickle->next++;
}

/* true: fetched from the memo; false: the caller writes it, then it has the next number. */
static bool put_known(pickler *pickle, int what)
{
    int64_t known = pickle->memo[what];
    if (known < 0) {
        pickle->memo[what] = pickle->next;
        return false;
    }
    put_byte(pickle, known < 256 ? 'h' : 'j');
    put_le(pickle, (uint64_t)known, known < 256 ? 1 : 4);
    return true;
}

static void put_global(pickler *pickle, int what, const char *module, const char *name)
{
    if (put_known(pickle, what))
        return;
    tap__strbuf_printf(&pickle->out, "c%s\n%s\n", module, name);
    put_memo(pickle);
}

static void put_text(pickler *pickle, const char *text)
{
    size_t len = strlen(text);
    put_byte(pickle, 'X');
    put_le(pickle, len, 4);
    tap__strbuf_add(&pickle->out, text, len);
    put_memo(pickle);
}

static void put_int(pickler *pickle, int64_t number)
{
    if (number >= 0 && number < 256) {
        put_byte(pickle, 'K');
        put_le(pickle, (uint64_t)number, 1);
    } else if (number >= 0 && number < 65536) {
        put_byte(pickle, 'M');
        put_le(pickle, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        put_byte(pickle, 'J');
        put_le(pickle, (uint64_t)number, 4);
    } else {
        int bytes = 8;
        while (bytes > 5 && (number >> (8 * bytes - 9)) == (number < 0 ? -1 : 0))
            bytes--;
        put_byte(pickle, 0x8a);
        put_byte(pickle, bytes);
        put_le(pickle, (uint64_t)number, bytes);
    }
}

static void put_tuple(pickler *pickle, const int64_t *numbers, int32_t count)
{
    if (count == 0) {
        put_byte(pickle, ')');
        return;
    }
    if (count > 3)
        put_byte(pickle, '(');
    for (int32_t i = 0; i < count; i++)
        put_int(pickle, numbers[i]);
    put_byte(pickle, count > 3 ? 't' : 0x84 + count);
    put_memo(pickle);
}

static void put_storage(pickler *pickle, const tap_tensor *tensor, size_t key)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    char text[24];
    put_byte(pickle, '(');
    if (!put_known(pickle, MEMO_STORAGE))
        put_text(pickle, "storage");
    if (info->torch_storage)
        put_global(pickle, MEMO_TYPES + (int)info->dtype, "torch", info->torch_storage);
    else
        put_global(pickle, MEMO_UNTYPED, "torch.storage", "UntypedStorage");
    snprintf(text, sizeof text, "%zu", key);
    put_text(pickle, text);
    if (!put_known(pickle, MEMO_CPU))
        put_text(pickle, "cpu");
    put_int(pickle, info->torch_storage ? tap_tensor_count(tensor) : tap_tensor_bytes(tensor));
    put_byte(pickle, 't');
    put_memo(pickle);
    put_byte(pickle, 'Q');
}

static void put_tensor(pickler *pickle, const tap_tensor *tensor, size_t key)
{
    const tap_dtype_info *info = tap_dtype_describe(tensor->dtype);
    int64_t strides[TAP_MAX_NDIM], stride = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        if (__builtin_mul_overflow(stride, tensor->shape[i] > 1 ? tensor->shape[i] : 1, &stride))
            stride = 1; /* of an empty tensor: never used */
    }
    if (info->torch_storage)
        put_global(pickle, MEMO_V2, "torch._utils", "_rebuild_tensor_v2");
    else
        put_global(pickle, MEMO_V3, "torch._utils", "_rebuild_tensor_v3");
    put_byte(pickle, '(');
    put_storage(pickle, tensor, key);
    put_int(pickle, 0);
    put_tuple(pickle, tensor->shape, tensor->ndim);
    put_tuple(pickle, strides, tensor->ndim);
    put_byte(pickle, 0x89);
    put_global(pickle, MEMO_DICT, "collections", "OrderedDict");
    put_byte(pickle, ')');
    put_byte(pickle, 'R');
    put_memo(pickle);
    if (!info->torch_storage)
        put_global(pickle, MEMO_TYPES + (int)info->dtype, "torch", info->torch);
    put_byte(pickle, 't');
    put_memo(pickle);
    put_byte(pickle, 'R');
    put_memo(pickle);
}

static void put_list(pickler *pickle, const tap_tensor *tensors, size_t count)
{
    put_byte(pickle, ']');
    put_memo(pickle);
    for (size_t i = 0; i < count; i++) {
        if (i % BATCH == 0)
            put_byte(pickle, '(');
        put_tensor(pickle, &tensors[i], i);
        if (i % BATCH == BATCH - 1 || i == count - 1)
            put_byte(pickle, 'e');
    }
}

const char *const tap__pt_as_list[1] = {""};

static tap_status pickle_tensors(pickler *pickle, const tap_tensor *tensors, size_t count, bool list, tap_error *err)
{
    *pickle = (pickler){.out = TAP_STRBUF_INIT};
    for (int i = 0; i < MEMO_COUNT; i++)
        pickle->memo[i] = -1;
    tap__strbuf_reserve(&pickle->out, 500);
    put_byte(pickle, 0x80);
    put_byte(pickle, 2);
    if (count == 1 && !list)
        put_tensor(pickle, tensors, 0);
    else
        put_list(pickle, tensors, count);
    put_byte(pickle, '.');
    return pickle->out.failed ? tap_fail_nomem(err) : TAP_OK;
}

/* The file's name without directory and suffix, as torch does; "archive" when nothing is left or it is not ASCII. */
static void archive_name(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *begin = slash ? slash + 1 : path;
    const char *dot = strrchr(begin, '.');
    size_t len = dot ? (size_t)(dot - begin) : strlen(begin);
    bool plain = len > 0 && len < size;
    for (const char *at = path; *at && plain; at++)
        plain = (unsigned char)*at < 0x80;
    snprintf(out, size, "%.*s", plain ? (int)len : 7, plain ? begin : "archive");
}

static tap_status write_records(const tap_write_request *request, tap_zipwriter *zip, tap_error *err)
{
    pickler pickle;
    tap_status status = pickle_tensors(&pickle, request->tensors, request->count,
                                       request->names == tap__pt_as_list, err);
    if (status == TAP_OK)
        status = tap__zipwriter_add(zip, "data.pkl", pickle.out.text, pickle.out.len, err);
    tap__strbuf_free(&pickle.out);
    TAP_TRY(status);
    TAP_TRY(tap__zipwriter_add(zip, ".format_version", "1", 1, err));
    TAP_TRY(tap__zipwriter_add(zip, ".storage_alignment", "64", 2, err));
    TAP_TRY(tap__zipwriter_add(zip, "byteorder", "little", 6, err));
    char text[48];
    for (size_t i = 0; i < request->count; i++) {
        snprintf(text, sizeof text, "data/%zu", i);
        TAP_TRY(tap__zipwriter_tensor(zip, text, &request->tensors[i], err));
    }
    TAP_TRY(tap__zipwriter_add(zip, "version", "3\n", 2, err));
    snprintf(text, sizeof text, "%020llu%020llu", (unsigned long long)zip->names_hash,
             (unsigned long long)zip->crc_sum);
    TAP_TRY(tap__zipwriter_add(zip, ".data/serialization_id", text, 40, err));
    return tap__zipwriter_finish(zip, err);
}

tap_status tap__pt_write(const tap_write_request *request, tap_error *err)
{
    char prefix[256];
    archive_name(request->path, prefix, sizeof prefix);
    tap_newfile file;
    TAP_TRY(tap__file_create(&file, request->dir, request->name, err));
    tap_zipwriter zip;
    tap_status status = tap__zipwriter_begin(&zip, file.fd, request->path, prefix, err);
    if (status == TAP_OK)
        status = write_records(request, &zip, err);
    tap__zipwriter_free(&zip);
    if (status != TAP_OK) {
        tap__file_abort(&file);
        return status;
    }
    return tap__file_commit(&file, err);
}
