/* zipwriter.c - writes torch's zip archives: local header, padding to 64 bytes in an "FB" extra field, data, data
 * descriptor; the directory, always with its zip64 end record, last. Sizes and the checksum stand in the descriptor
 * and the directory, so that data is read once: summed and written block by block. */
#include "format/zip.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "tensor/hash.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>

enum { LOCAL_BYTES = 30, ALIGN = 64, FLAG_DESCRIPTOR = 0x0008, FLAG_UTF8 = 0x0800, SMALL_BYTES = 64 << 10 };
#define ZIP32_MAX 0xffffffffu

static void put(tap_strbuf *out, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(value >> 8 * i & 0xff);
    tap__strbuf_add(out, text, (size_t)bytes);
}

static uint64_t position(const tap_zipwriter *zip)
{
    return zip->written + zip->pending.len;
}

static uint64_t clamp32(uint64_t value)
{
    return value < ZIP32_MAX ? value : ZIP32_MAX;
}

/* The extra field that holds what does not fit 32 bits; 0 bytes when everything does. */
static size_t zip64_bytes(uint64_t size, uint64_t header)
{
    size_t bytes = (size >= ZIP32_MAX ? 16u : 0u) + (header >= ZIP32_MAX ? 8u : 0u);
    return bytes ? bytes + 4 : 0;
}

static void put_zip64(tap_strbuf *out, uint64_t size, uint64_t header)
{
    size_t bytes = zip64_bytes(size, header);
    if (!bytes)
        return;
    put(out, 1, 2);
    put(out, bytes - 4, 2);
    if (size >= ZIP32_MAX) {
        put(out, size, 8);
        put(out, size, 8);
    }
    if (header >= ZIP32_MAX)
        put(out, header, 8);
}

tap_status tap__zipwriter_begin(tap_zipwriter *zip, int fd, const char *path, const char *prefix, tap_error *err)
{
    *zip = (tap_zipwriter){.payload = {.fd = fd, .path = path, .crc_wanted = true}, .prefix = prefix};
    if (!tap__strbuf_reserve(&zip->pending, 8000) || !tap__strbuf_reserve(&zip->central, 1000))
        return tap_fail_nomem(err);
    return TAP_OK;
}

static void begin_record(tap_zipwriter *zip, const char *name, uint64_t size)
{
    tap_strbuf *out = &zip->pending;
    uint64_t header = position(zip);
    size_t name_len = strlen(zip->prefix) + 1 + strlen(name), wide = zip64_bytes(size, header);
    size_t padding = (size_t)(-(header + LOCAL_BYTES + name_len + wide + 4) % ALIGN);
    put(out, 0x04034b50, 4);
    put(out, 0, 2);
    put(out, FLAG_UTF8 | (size ? FLAG_DESCRIPTOR : 0), 2);
    put(out, 0, 6);  /* stored, no time */
    put(out, 0, 4);  /* the checksum is in the descriptor */
    put(out, wide && size >= ZIP32_MAX ? ZIP32_MAX : 0, 4);
    put(out, wide && size >= ZIP32_MAX ? ZIP32_MAX : 0, 4);
    put(out, name_len, 2);
    put(out, wide + 4 + padding, 2);
    tap__strbuf_str(out, zip->prefix);
    tap__strbuf_char(out, '/');
    tap__strbuf_str(out, name);
    put_zip64(out, size, header);
    tap__strbuf_str(out, "FB");
    put(out, padding, 2);
    tap__strbuf_add(out, "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ", padding);
}

static void end_record(tap_zipwriter *zip, const char *name, uint64_t header, uint64_t size, uint32_t crc)
{
    tap_strbuf *out = &zip->pending;
    size_t name_len = strlen(zip->prefix) + 1 + strlen(name), wide = zip64_bytes(size, header);
    if (size) {
        put(out, 0x08074b50, 4);
        put(out, crc, 4);
        put(out, size, wide ? 8 : 4);
        put(out, size, wide ? 8 : 4);
    }
    out = &zip->central;
    put(out, 0x02014b50, 4);
    put(out, 0, 4);
    put(out, FLAG_UTF8 | (size ? FLAG_DESCRIPTOR : 0), 2);
    put(out, 0, 6);
    put(out, crc, 4);
    put(out, clamp32(size), 4);
    put(out, clamp32(size), 4);
    put(out, name_len, 2);
    put(out, wide, 2);
    put(out, 0, 8);
    put(out, 0, 2);
    put(out, clamp32(header), 4);
    tap__strbuf_str(out, zip->prefix);
    tap__strbuf_char(out, '/');
    tap__strbuf_str(out, name);
    put_zip64(out, size, header);
    zip->count++;
    zip->names_hash = zip->names_hash * TAP_HASH_K1 + tap_hash_bytes(name, strlen(name));
    zip->crc_sum = zip->crc_sum * TAP_HASH_K2 + crc;
}

tap_status tap__zipwriter_add(tap_zipwriter *zip, const char *name, const void *bytes, size_t len, tap_error *err)
{
    uint64_t header = position(zip);
    begin_record(zip, name, len);
    tap__strbuf_add(&zip->pending, bytes, len);
    end_record(zip, name, header, len, len ? libdeflate_crc32(0, bytes, len) : 0);
    return zip->pending.failed || zip->central.failed ? tap_fail_nomem(err) : TAP_OK;
}

tap_status tap__zipwriter_tensor(tap_zipwriter *zip, const char *name, const tap_tensor *tensor, tap_error *err)
{
    uint64_t header = position(zip), size = (uint64_t)tap_tensor_bytes(tensor);
    bool small = size <= SMALL_BYTES && zip->pending.len <= SMALL_BYTES;
    begin_record(zip, name, size);
    char *room = tap__strbuf_reserve(&zip->pending, small ? size : 0);
    if (!room)
        return tap_fail_nomem(err);
    zip->payload.crc = 0;
    if (small && size) {
        if (tap_tensor_is_contiguous(tensor))
            memcpy(room, tensor->data, size);
        else
            TAP_TRY(tap_tensor_scan(tensor, 0, room, NULL, NULL, err));
        zip->pending.len += size;
        zip->payload.crc = libdeflate_crc32(0, room, size);
    } else if (!small) {
        TAP_TRY(tap__payload_write(&zip->payload, zip->pending.text, zip->pending.len, tensor, tensor->dtype, err));
        zip->written += zip->pending.len + size;
        tap__strbuf_clear(&zip->pending);
    }
    end_record(zip, name, header, size, zip->payload.crc);
    return zip->pending.failed || zip->central.failed ? tap_fail_nomem(err) : TAP_OK;
}

tap_status tap__zipwriter_finish(tap_zipwriter *zip, tap_error *err)
{
    tap_strbuf *out = &zip->pending;
    uint64_t at = position(zip), end = at + zip->central.len;
    tap__strbuf_add(out, zip->central.text, zip->central.len);
    put(out, 0x06064b50, 4);
    put(out, 44, 8);
    put(out, 0x031e, 2);
    put(out, 0x002d, 2);
    put(out, 0, 8);
    put(out, zip->count, 8);
    put(out, zip->count, 8);
    put(out, zip->central.len, 8);
    put(out, at, 8);
    put(out, 0x07064b50, 4);
    put(out, 0, 4);
    put(out, end, 8);
    put(out, 1, 4);
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, zip->count < 0xffff ? zip->count : 0xffff, 2);
    put(out, zip->count < 0xffff ? zip->count : 0xffff, 2);
    put(out, clamp32(zip->central.len), 4);
    put(out, clamp32(at), 4);
    put(out, 0, 2);
    if (out->failed || zip->central.failed)
        return tap_fail_nomem(err);
    if (tap__write_all(zip->payload.fd, out->text, out->len))
        return tap_fail_errno(err, TAP_E_IO, "cannot write %s", zip->payload.path);
    return TAP_OK;
}

void tap__zipwriter_free(tap_zipwriter *zip)
{
    tap__strbuf_free(&zip->pending);
    tap__strbuf_free(&zip->central);
}
