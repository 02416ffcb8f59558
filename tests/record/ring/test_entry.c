/* test_entry.c - one entry: what is written is read back, and what is not an entry is refused. */
#include "record/make_segment.h"

#include <stdbool.h>

static uint64_t build(char *bytes, size_t cap)
{
    int64_t shape[3] = {2, 0, 9};
    tap_meta meta = {.shape = shape, .ndim = 3};
    meta.text[TAP_META_NAME] = "层.x";
    meta.len[TAP_META_NAME] = 5;
    meta.text[TAP_META_PATH] = "kkey2\x1Fi0";
    meta.len[TAP_META_PATH] = 8;
    meta.text[TAP_META_DEVICE] = "";
    tap_entry *entry = (tap_entry *)(void *)bytes;
    memset(bytes, 0, cap);
    *entry = (tap_entry){.magic = TAP_ENTRY_MAGIC, .version = 1, .type = TAP_ENTRY_DATA, .kind = TAP_KIND_GRAD,
                         .dtype = TAP_BF16, .ndim = 3, .seq = 4, .step = -3, .call = 2, .line = 77,
                         .meta_bytes = tap__meta_size(&meta), .flags = TAP_SAVE_RECOMPUTED, .has = TAP_HAS_STATS};
    tap__meta_write(&meta, entry + 1);
    entry->payload_offset = (sizeof *entry + entry->meta_bytes + 63) / 64 * 64;
    entry->payload_bytes = 100;
    entry->length = entry->payload_offset + 128;
    tap__entry_seal(entry, entry + 1);
    return entry->length;
}

static void round_trip(void **state)
{
    (void)state;
    _Alignas(64) char bytes[1024];
    uint64_t length = build(bytes, sizeof bytes);
    const tap_entry *entry;
    bool cut;
    assert_int_equal(tap__entry_check(bytes, length, &entry, &cut), TAP_OK);
    assert_false(cut);
    tap_decoded decoded = {.strings = NULL};
    assert_int_equal(tap__entry_decode(entry, &decoded, NULL), TAP_OK);
    assert_string_equal(decoded.record.name, "层.x");
    assert_string_equal(decoded.record.path, "key2.0");
    assert_string_equal(decoded.record.device, "");
    assert_string_equal(decoded.record.module, "");
    assert_int_equal(decoded.record.ndim, 3);
    assert_int_equal(decoded.record.shape[2], 9);
    assert_int_equal(decoded.record.step, -3);
    assert_int_equal(decoded.record.line, 77);
    assert_true(decoded.record.has_stats);
    assert_false(decoded.record.has_hash);
    tap__decoded_free(&decoded);
}

/* Every cut is seen, and says what of the entry is there. */
static void cuts(void **state)
{
    (void)state;
    _Alignas(64) char bytes[1024];
    uint64_t length = build(bytes, sizeof bytes);
    const tap_entry *whole = (const tap_entry *)(const void *)bytes, *entry;
    uint64_t head = sizeof *whole + whole->meta_bytes, end = whole->payload_offset + whole->payload_bytes;
    for (uint64_t avail = 0; avail <= length; avail++) {
        bool cut = false;
        tap_status status = tap__entry_check(bytes, avail, &entry, &cut);
        assert_int_equal(status, avail < head ? TAP_E_TRUNCATED : TAP_OK);
        if (status == TAP_OK)
            assert_int_equal(cut, avail < end);
    }
}

/* One changed bit anywhere in header or meta block is never taken for the entry. */
static void flips(void **state)
{
    (void)state;
    _Alignas(64) char bytes[1024];
    uint64_t length = build(bytes, sizeof bytes);
    size_t head = sizeof(tap_entry) + ((const tap_entry *)(const void *)bytes)->meta_bytes;
    for (size_t bit = 0; bit < 8 * head; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        const tap_entry *entry;
        bool cut;
        if (tap__entry_check(bytes, length, &entry, &cut) == TAP_OK)
            fail_msg("bit %zu", bit);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
}

static void paths(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *shown;
    } CASES[] = {{"", ""}, {"i0", "0"}, {"k0", "0"}, {"kkey2\x1Fi0", "key2.0"}, {"t1\x1Fk", "1."},
                 {"ka\x1Ft10\x1Fkb", "a.10.b"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char out[32];
        size_t len = tap__path_show(CASES[i].stored, strlen(CASES[i].stored), out, sizeof out);
        assert_string_equal(out, CASES[i].shown);
        assert_int_equal(len, strlen(CASES[i].shown));
        char small[4] = "###";
        assert_int_equal(tap__path_show(CASES[i].stored, strlen(CASES[i].stored), small, 3), len);
        assert_int_equal(small[3], 0);
    }
}

static void malformed_meta(void **state)
{
    (void)state;
    tap_meta meta;
    static const uint32_t BAD[][4] = {
        {1, 9, 0, 0},            /* longer than the block */
        {1, 0xFFFFFFFF, 0, 0},   /* rounding up overflows */
        {2, 7, 0, 0},            /* a shape of seven bytes */
        {2, 8 * 65, 0, 0},       /* too many dimensions */
    };
    for (size_t i = 0; i < 4; i++)
        assert_false(tap__meta_read(&meta, BAD[i], sizeof BAD[i]));
    static const uint32_t UNKNOWN[4] = {99, 8, 1, 2};
    assert_true(tap__meta_read(&meta, UNKNOWN, sizeof UNKNOWN));
    assert_false(tap__meta_read(&meta, UNKNOWN, 4));
    assert_true(tap__meta_read(&meta, NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(cuts),  cmocka_unit_test(flips),
        cmocka_unit_test(paths),      cmocka_unit_test(malformed_meta),
    };
    return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
