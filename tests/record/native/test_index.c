/* test_index.c - rows in and out of the index, in a file and in memory, and damage to the file. */
#include "record/make_segment.h"

#include "base/io.h"
#include "base/memory.h"
#include "record/native/index_private.h"

#include <dirent.h>
#include <sqlite3.h>
#include <math.h>

static void rows_survive(void **state)
{
    (void)state;
    uint8_t bytes[TAP_ROW_MAX];
    tap_row row = {.seq = 9, .step = -4, .name = 3, .kind = 4, .value_type = 11, .dtype = 22, .state = 5, .reason = 12,
                   .flags = 31, .has = 7, .call = UINT32_MAX, .segment = UINT32_MAX, .offset = UINT64_MAX,
                   .payload_bytes = 1ull << 63, .replay = 127, .line = 128, .ndim = TAP_MAX_NDIM, .hash = UINT64_MAX,
                   .time_ns = 1};
    row.stats = (tap_stats){1, 2, 3, 4, 5, {.f = -INFINITY}, {.u = UINT64_MAX}, 0.1, NAN};
    for (int i = 0; i < TAP_ROW_TEXTS; i++)
        row.text[i] = UINT64_MAX - (uint64_t)i;
    for (int i = 0; i < TAP_MAX_NDIM; i++)
        row.shape[i] = i % 2 ? -1 : INT64_MAX;
    size_t len = tap__row_encode(&row, bytes);
    assert_true(len <= TAP_ROW_MAX);
    tap_row back = {.seq = 9, .step = -4, .name = 3};
    assert_true(tap__row_decode(&back, bytes, len));
    assert_memory_equal(&row, &back, sizeof row);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (tap__row_decode(&back, bytes, len))
            fail_msg("bit %zu", bit);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut++)
        assert_false(tap__row_decode(&back, bytes, cut));
    back.step = 0; /* a row in another's place */
    assert_false(tap__row_decode(&back, bytes, len));
}

typedef struct rows {
    tap_row items[256];
    size_t count;
} rows;

static void select_rows(tap_index *index, const char *names, const char *steps, int kind, bool incomplete, rows *out)
{
    tap_ranges ranges;
    assert_int_equal(tap__ranges_parse(&ranges, steps, "steps", NULL), TAP_OK);
    tap_index_query query = {0, INT64_MAX, names, &ranges, kind, incomplete};
    tap_index_rows *cursor;
    tap_error err;
    if (tap__index_select(index, &query, &cursor, &err))
        fail_msg("%s", err.message);
    out->count = 0;
    tap_status status;
    while ((status = tap__index_next(cursor, &out->items[out->count], &err)) == TAP_OK)
        assert_true(++out->count < 256);
    if (status != TAP_END)
        fail_msg("%s", err.message);
    tap__index_rows_close(cursor);
    tap__ranges_free(&ranges);
}

/* 5 names, 4 steps, forward and grad; every query against the plain truth. */
static void queries_on(tap_index *index)
{
    static const struct {
        const char *names, *steps;
        int kind;
    } CASES[] = {{NULL, NULL, -1}, {"n1", NULL, -1}, {"n1", "2", -1}, {"n[13]", "1-2", -1}, {"*", "0|3", 1},
                 {"!n2", NULL, 0}, {"n9", NULL, -1}, {"n1", "7", -1}, {"n0|n4", "1-", 0}, {"", "", -1}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        static rows got;
        select_rows(index, CASES[i].names, CASES[i].steps, CASES[i].kind, false, &got);
        tap_ranges ranges;
        tap__ranges_parse(&ranges, CASES[i].steps, "steps", NULL);
        size_t at = 0;
        for (uint64_t seq = 0; seq < 40; seq++) {
            char name[8];
            snprintf(name, sizeof name, "n%d", (int)(seq % 5));
            int64_t step = (int64_t)seq / 10;
            int kind = seq / 5 % 2;
            if (!tap__names_match(CASES[i].names, name) || !tap__ranges_contain(&ranges, step) ||
                (CASES[i].kind >= 0 && kind != CASES[i].kind))
                continue;
            assert_true(at < got.count);
            assert_int_equal(got.items[at].seq, seq);
            const char *text;
            assert_int_equal(tap__index_name(index, got.items[at].name, &text, NULL), TAP_OK);
            assert_string_equal(text, name);
            at++;
        }
        assert_int_equal(at, got.count);
        tap__ranges_free(&ranges);
    }
}

static void add_forty(maker *m)
{
    float data[2] = {1, 2};
    for (int seq = 0; seq < 40; seq++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", seq % 5);
        maker_add(m, (made){.name = name, .step = seq / 10, .kind = (tap_kind)(seq / 5 % 2), .data = data, .count = 2,
                            .call = (uint32_t)seq});
    }
}

static void queries(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    add_forty(&m);
    queries_on(m.index); /* while it is written */
    char *path = attempt_path(&m.files, ".sqlite");
    maker_close(&m, "closed");
    tap_index *index;
    assert_int_equal(tap__index_open(&m.files, &index, NULL), TAP_OK);
    queries_on(index);
    tap_index_counts counts;
    tap__index_counts(index, &counts);
    assert_int_equal(counts.entries, 41);
    assert_int_equal(counts.records, 40);
    assert_int_equal(counts.bytes, 320);
    tap__index_close(index);
    free(path);
    scratch_clear(dir);
    free(dir);
}

static size_t count_state(tap_index *index, tap_record_state wanted)
{
    static rows got;
    select_rows(index, NULL, NULL, -1, true, &got);
    size_t count = 0;
    for (size_t i = 0; i < got.count; i++)
        count += got.items[i].state == wanted;
    return count;
}

static void slots_and_declared(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    float data[1] = {1};
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "a"});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "b"});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "b"});
    assert_int_equal(count_state(m.index, TAP_RECORD_DECLARED), 2);
    maker_add(&m, (made){.name = "a", .data = data, .count = 1});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "a"}); /* compiled again */
    assert_int_equal(count_state(m.index, TAP_RECORD_DECLARED), 1);
    for (uint32_t call = 0; call < 3; call++)
        maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = call, .flags = TAP_SAVE_SLOT, .path = "i0"});
    assert_int_equal(count_state(m.index, TAP_RECORD_SLOT), 3);
    /* not the same call, path, kind or step: the slots stay open */
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = 9, .path = "i0", .data = data, .count = 1});
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = 1, .path = "k0", .data = data, .count = 1});
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_FORWARD, .call = 1, .path = "i0", .data = data, .count = 1});
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = 1, .step = 1, .path = "i0", .data = data,
                         .count = 1});
    assert_int_equal(count_state(m.index, TAP_RECORD_SLOT), 3);
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = 1, .path = "i0", .data = data, .count = 1});
    assert_int_equal(count_state(m.index, TAP_RECORD_SLOT), 2);
    maker_add(&m, (made){.name = "a", .kind = TAP_KIND_GRAD, .call = 2, .path = "i0", .flags = TAP_SAVE_SLOT_GONE});
    assert_int_equal(count_state(m.index, TAP_RECORD_SLOT), 2);
    static rows got;
    select_rows(m.index, "a", NULL, TAP_KIND_GRAD, true, &got);
    size_t gone = 0;
    for (size_t i = 0; i < got.count; i++)
        gone += got.items[i].flags & TAP_SAVE_SLOT_GONE ? 1 : 0;
    assert_int_equal(gone, 1);
    select_rows(m.index, NULL, NULL, -1, false, &got);
    assert_int_equal(got.count, 6); /* values only */
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

static void big_and_trailer(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    float data[100] = {1};
    uint64_t first = maker_add(&m, (made){.type = TAP_ENTRY_BIG, .name = "big", .data = data, .count = 100});
    maker_add(&m, (made){.type = TAP_ENTRY_BIG, .name = "torn", .data = data, .count = 100});
    assert_int_equal(count_state(m.index, TAP_RECORD_TORN), 2);
    maker_add(&m, (made){.type = TAP_ENTRY_TRAILER, .ref = first, .count = 4711});
    maker_add(&m, (made){.type = TAP_ENTRY_TRAILER, .ref = 999}); /* of an entry that was lost */
    assert_int_equal(count_state(m.index, TAP_RECORD_TORN), 1);
    static rows got;
    select_rows(m.index, NULL, NULL, -1, false, &got);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.items[0].seq, first);
    assert_int_equal(got.items[0].hash, 4711);
    assert_int_equal(got.items[0].has, TAP_HAS_HASH);
    assert_int_equal(got.items[0].payload_bytes, 400);
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

static void dropped_segments(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    float data[1] = {1};
    for (int i = 0; i < 40; i++) {
        if (i && i % 10 == 0)
            maker_next_segment(&m);
        maker_add(&m, (made){.name = "x", .step = i, .data = data, .count = 1});
    }
    assert_int_equal(tap__index_drop_segment(m.index, 0, NULL), TAP_OK);
    assert_int_equal(tap__index_drop_segment(m.index, 1, NULL), TAP_OK);
    assert_int_equal(tap__index_drop_segment(m.index, 77, NULL), TAP_OK);
    maker_next_segment(&m);
    maker_add(&m, (made){.name = "x", .step = 40, .data = data, .count = 1});
    static rows got;
    select_rows(m.index, "x", NULL, -1, false, &got);
    assert_int_equal(got.count, 21);
    assert_int_equal(got.items[0].seq, 20);
    maker_close(&m, "closed");
    scratch_clear(dir);
    free(dir);
}

/* The temporary file in dir, or NULL. */
static char *find_temporary(const tap_attempt_files *files)
{
    char *dir = tap__path_join(files->root->path, files->dir);
    char *found = NULL;
    DIR *list = opendir(dir);
    for (struct dirent *item; list && !found && (item = readdir(list));)
        if (tap__is_temporary(item->d_name))
            found = tap__path_join(dir, item->d_name);
    if (list)
        closedir(list);
    tap__free(dir);
    return found;
}

/* An index from a stranger whose table is a view without an end: refused at once, and read by scanning. */
static void an_endless_view(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    add_forty(&m);
    char *path = attempt_path(&m.files, ".sqlite");
    maker_close(&m, "closed");
    sqlite3 *db;
    static const char SQL[] =
        "ALTER TABLE record RENAME TO kept; CREATE VIEW record AS WITH RECURSIVE r(seq, name, step, row) AS"
        " (SELECT 0, 0, 0, x'00' UNION ALL SELECT 0, 0, 0, x'00' FROM r) SELECT * FROM r WHERE seq > 1;";
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, SQL, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    alarm(20);
    char *text = scratch_list(dir, NULL, false);
    alarm(0);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 40);
    free(text);
    tap__free(path);
    scratch_drop(dir);
}

/* Nothing is in place before the end, and nothing is left after a discard. */
static void in_place_when_finished(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    char *path = attempt_path(&m.files, ".sqlite"), *temporary = find_temporary(&m.files);
    assert_non_null(temporary);
    add_forty(&m);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(temporary, F_OK), 0);
    tap_index *index;
    assert_int_equal(link(temporary, path), 0); /* as it is now */
    assert_int_equal(tap__index_open(&m.files, &index, NULL), TAP_E_CORRUPT);
    assert_int_equal(unlink(path), 0);
    tap__index_close(m.index);
    m.index = NULL;
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(tap__index_open(&m.files, &index, NULL), TAP_E_NOTFOUND);
    uint64_t records;
    m.info.segments = 1;
    assert_int_equal(tap__index_rebuild(&m.files, &m.info, NULL, NULL, &records, NULL), TAP_OK);
    assert_int_equal(records, 40);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0640, 0);
    assert_int_equal(tap__index_open(&m.files, &index, NULL), TAP_OK);
    queries_on(index);
    tap__index_close(index);
    maker_close(&m, NULL);
    free(path);
    free(temporary);
    scratch_clear(dir);
    free(dir);
}

static bool stop(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_true(done <= total);
    return false;
}

static void rebuild_can_be_stopped(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    add_forty(&m);
    assert_int_equal(tap__index_rebuild(&m.files, &m.info, stop, NULL, NULL, NULL), TAP_E_TIMEOUT);
    assert_null(find_temporary(&m.files));
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_survive),     cmocka_unit_test(queries),
        cmocka_unit_test(slots_and_declared), cmocka_unit_test(big_and_trailer),
        cmocka_unit_test(dropped_segments), cmocka_unit_test(an_endless_view), cmocka_unit_test(in_place_when_finished),
        cmocka_unit_test(rebuild_can_be_stopped),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
