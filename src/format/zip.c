/* zip.c - reads zip archives: the directory at the end, zip64 included, and the data of records. */
#include "format/zip.h"

#include "base/status.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { END_BYTES = 22, LOCATOR_BYTES = 20, END64_BYTES = 56, CENTRAL_BYTES = 46, LOCAL_BYTES = 30,
       METHOD_STORED = 0, METHOD_DEFLATED = 8, COMMENT_MAX = 65535, DEFLATE_RATIO = 1032 };

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static tap_status damaged(const tap_zip *zip, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the zip archive is damaged: %s; write the file again", zip->path, what);
}

/* Offset of the end record; the last that fits, since a comment may hold anything. */
static bool find_end(const tap_zip *zip, uint64_t *out)
{
    if (zip->len < END_BYTES)
        return false;
    uint64_t at = zip->len - END_BYTES, first = at > COMMENT_MAX ? at - COMMENT_MAX : 0;
    for (;; at--) {
        if (get(zip->bytes + at, 4) == 0x06054b50 && get(zip->bytes + at + 20, 2) <= zip->len - at - END_BYTES) {
            *out = at;
            return true;
        }
        if (at == first)
            return false;
    }
}

static tap_status find_directory(const tap_zip *zip, uint64_t *offset, uint64_t *bytes, uint64_t *count,
                                 tap_error *err)
{
    uint64_t end;
    if (!find_end(zip, &end))
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: the directory at the end of the zip archive is missing; "
                        "the writer was killed, run: tensortap verify DIR", zip->path);
    const uint8_t *at = zip->bytes + end;
    *count = get(at + 10, 2);
    *bytes = get(at + 12, 4);
    *offset = get(at + 16, 4);
    if (end >= LOCATOR_BYTES && get(at - LOCATOR_BYTES, 4) == 0x07064b50) {
        uint64_t end64 = get(at - LOCATOR_BYTES + 8, 8);
        if (end64 > end || end - end64 < END64_BYTES || get(zip->bytes + end64, 4) != 0x06064b50)
            return damaged(zip, "the zip64 end record is not where it should be", err);
        at = zip->bytes + end64;
        *count = get(at + 32, 8);
        *bytes = get(at + 40, 8);
        *offset = get(at + 48, 8);
    }
    if (*offset > zip->len || *bytes > zip->len - *offset)
        return damaged(zip, "the directory lies outside the file", err);
    if (*count > *bytes / CENTRAL_BYTES)
        return damaged(zip, "the directory is too small for its records", err);
    return TAP_OK;
}

/* Sizes of 0xffffffff stand in the zip64 extra field, in this order. */
static bool read_zip64(tap_zip_record *record, const uint8_t *extra, size_t len)
{
    uint64_t *wide[3] = {&record->size, &record->packed, &record->header};
    while (len >= 4) {
        size_t id = get(extra, 2), size = get(extra + 2, 2);
        extra += 4;
        len -= 4;
        if (size > len)
            return false;
        if (id == 1)
            for (int i = 0; i < 3; i++) {
                if (*wide[i] != 0xffffffff)
                    continue;
                if (size < 8)
                    return false;
                *wide[i] = get(extra, 8);
                extra += 8;
                len -= 8;
                size -= 8;
            }
        extra += size;
        len -= size;
    }
    return true;
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_records(const void *a, const void *b)
{
    const tap_zip_record *x = a, *y = b;
    return compare_names(x->name, x->name_len, y->name, y->name_len);
}

static tap_status read_record(const tap_zip *zip, const uint8_t **at, const uint8_t *end, tap_zip_record *out,
                              tap_error *err)
{
    const uint8_t *entry = *at;
    if ((size_t)(end - entry) < CENTRAL_BYTES || get(entry, 4) != 0x02014b50)
        return damaged(zip, "the directory ends too early", err);
    size_t name_len = get(entry + 28, 2), extra_len = get(entry + 30, 2), comment_len = get(entry + 32, 2);
    if ((size_t)(end - entry) - CENTRAL_BYTES < name_len + extra_len + comment_len)
        return damaged(zip, "a record of the directory ends too early", err);
    *out = (tap_zip_record){.name = (const char *)entry + CENTRAL_BYTES, .name_len = (uint16_t)name_len,
                            .method = (uint16_t)get(entry + 10, 2), .packed = get(entry + 20, 4),
                            .size = get(entry + 24, 4), .header = get(entry + 42, 4)};
    if (get(entry + 8, 2) & 1)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: %.*s is encrypted; write the archive without a password",
                        zip->path, (int)name_len, out->name);
    if (!read_zip64(out, entry + CENTRAL_BYTES + name_len, extra_len))
        return damaged(zip, "a zip64 field ends too early", err);
    *at = entry + CENTRAL_BYTES + name_len + extra_len + comment_len;
    return TAP_OK;
}

tap_status tap__zip_open(tap_zip *zip, const uint8_t *bytes, uint64_t len, const char *path, tap_arena *arena,
                         tap_error *err)
{
    *zip = (tap_zip){.bytes = bytes, .len = len, .path = path, .arena = arena};
    uint64_t offset = 0, size = 0, count = 0;
    TAP_TRY(find_directory(zip, &offset, &size, &count, err));
    size_t memory = (size_t)count * sizeof *zip->records;
    zip->records = tap__arena_alloc(arena, memory);
    if (!zip->records)
        return tap__arena_fail(arena, memory, path, err);
    const uint8_t *at = bytes + offset, *end = at + size;
    for (; zip->count < count; zip->count++)
        TAP_TRY(read_record(zip, &at, end, &zip->records[zip->count], err));
    if (zip->count)
        qsort(zip->records, zip->count, sizeof *zip->records, compare_records);
    return TAP_OK;
}

tap_zip_record *tap__zip_find(const tap_zip *zip, const char *name, size_t len)
{
    size_t low = 0, high = zip->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        tap_zip_record *record = &zip->records[middle];
        int order = compare_names(record->name, record->name_len, name, len);
        if (order == 0)
            return record;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static tap_status inflate_record(const tap_zip *zip, tap_zip_record *record, const uint8_t *packed, tap_error *err)
{
    if (record->size / DEFLATE_RATIO > record->packed)
        return tap_fail(err, TAP_E_LIMIT, "%s: %.*s cannot hold the %llu bytes it promises; the file is damaged or "
                        "hostile", zip->path, (int)record->name_len, record->name, (unsigned long long)record->size);
    uint8_t *bytes = tap__arena_alloc(zip->arena, record->size);
    if (!bytes)
        return tap__arena_fail(zip->arena, record->size, zip->path, err);
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (!decompressor)
        return tap_fail_nomem(err);
    enum libdeflate_result result =
        libdeflate_deflate_decompress(decompressor, packed, record->packed, bytes, record->size, NULL);
    libdeflate_free_decompressor(decompressor);
    if (result != LIBDEFLATE_SUCCESS)
        return damaged(zip, "a compressed record cannot be unpacked", err);
    record->inflated = bytes;
    return TAP_OK;
}

tap_status tap__zip_data(const tap_zip *zip, tap_zip_record *record, const uint8_t **out, tap_error *err)
{
    uint64_t header = record->header;
    if (header > zip->len || zip->len - header < LOCAL_BYTES || get(zip->bytes + header, 4) != 0x04034b50)
        return damaged(zip, "a record is not where the directory says", err);
    const uint8_t *local = zip->bytes + header;
    uint64_t skip = LOCAL_BYTES + get(local + 26, 2) + get(local + 28, 2), left = zip->len - header;
    if (skip > left || record->packed > left - skip)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: %.*s has %llu bytes, the file ends before; the writer "
                        "was killed, run: tensortap verify DIR", zip->path, (int)record->name_len, record->name,
                        (unsigned long long)record->packed);
    if (record->method == METHOD_DEFLATED) {
        if (!record->inflated)
            TAP_TRY(inflate_record(zip, record, local + skip, err));
        *out = record->inflated;
        return TAP_OK;
    }
    if (record->method != METHOD_STORED)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: %.*s is compressed by method %d; pack the archive with: zip -0",
                        zip->path, (int)record->name_len, record->name, record->method);
    if (record->packed != record->size)
        return damaged(zip, "a stored record has two sizes", err);
    *out = local + skip;
    return TAP_OK;
}
