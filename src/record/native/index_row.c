/* index_row.c - rows of the index, bytes <-> memory. index.h specifies them. */
#include "record/native/index_private.h"

#include <string.h>

static uint8_t *put(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put8(uint8_t *at, const void *value)
{
    memcpy(at, value, 8);
    return at + 8;
}

static uint32_t checksum(const tap_row *row, const uint8_t *bytes, size_t len)
{
    uint64_t where[3] = {row->seq, row->name, (uint64_t)row->step};
    return (uint32_t)(tap_hash_bytes(bytes, len) ^ tap_hash_bytes(where, sizeof where));
}

/* Members in the order they are stored, so that writing and reading cannot differ. */
#define NUMBERS(X)                                                                                                   \
    X(kind) X(value_type) X(dtype) X(state) X(reason) X(flags) X(has) X(call) X(segment) X(offset) X(payload_bytes)  \
    X(replay) X(line) X(stats.count) X(stats.nan) X(stats.pos_inf) X(stats.neg_inf) X(stats.zero)
#define EIGHTS(X) X(stats.min) X(stats.max) X(stats.mean) X(stats.norm) X(hash) X(time_ns)
enum { EIGHTS_BYTES = 6 * 8, SUM_BYTES = 4 };

size_t tap__row_encode(const tap_row *row, uint8_t *out)
{
    uint8_t *at = out;
#define X(member) at = put(at, row->member);
    NUMBERS(X)
#undef X
    for (int i = 0; i < TAP_ROW_TEXTS; i++)
        at = put(at, row->text[i]);
    at = put(at, row->ndim);
    for (uint64_t i = 0; i < row->ndim; i++)
        at = put(at, (uint64_t)row->shape[i]);
#define X(member) at = put8(at, &row->member);
    EIGHTS(X)
#undef X
    uint32_t sum = checksum(row, out, (size_t)(at - out));
    memcpy(at, &sum, SUM_BYTES);
    return (size_t)(at - out) + SUM_BYTES;
}

typedef struct reader {
    const uint8_t *at, *end;
    bool bad;
} reader;

static uint64_t get(reader *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0; r->at < r->end && shift < 64; shift += 7) {
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return value;
    }
    r->bad = true;
    return 0;
}

bool tap__row_decode(tap_row *row, const uint8_t *bytes, size_t len)
{
    if (!bytes || len < EIGHTS_BYTES + SUM_BYTES || len > TAP_ROW_MAX)
        return false;
    uint32_t sum;
    memcpy(&sum, bytes + len - SUM_BYTES, SUM_BYTES);
    if (sum != checksum(row, bytes, len - SUM_BYTES))
        return false;
    reader r = {bytes, bytes + len - EIGHTS_BYTES - SUM_BYTES, false};
#define X(member) row->member = get(&r);
    NUMBERS(X)
#undef X
    for (int i = 0; i < TAP_ROW_TEXTS; i++)
        row->text[i] = get(&r);
    row->ndim = get(&r);
    if (row->ndim > TAP_MAX_NDIM)
        return false;
    for (uint64_t i = 0; i < row->ndim; i++)
        row->shape[i] = (int64_t)get(&r);
    if (r.bad || r.at != r.end)
        return false;
    const uint8_t *at = r.end;
#define X(member)                                                                                                    \
    memcpy(&row->member, at, 8);                                                                                     \
    at += 8;
    EIGHTS(X)
#undef X
    return true;
}
