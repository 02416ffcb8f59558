/* test_scan.c - entries of segments that are whole, cut, damaged, missing or still growing. */
#include "record/make_segment.h"

#include "record/native/scan.h"
#include "record/native/segment.h"

enum { ENTRIES = 30, SEGMENTS = 3 };

typedef struct placed {
    uint64_t seq, offset, length, head, payload_end;
    uint32_t segment;
} placed;

typedef struct fixture {
    char *dir;
    tap_attempt_files files;
    tap_attempt_info info;
    placed at[ENTRIES + 1];
    size_t count;
} fixture;

/* Three segments of ten entries with payloads from nothing to three pages, and END. */
static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = scratch_make();
    maker m;
    maker_open(&m, f->dir, 1, 0, TAP_OPEN_NEW, false);
    float *data = calloc(1 << 15, sizeof *data);
    for (int i = 0; i <= ENTRIES; i++) {
        if (i && i % 10 == 0 && i < ENTRIES)
            maker_next_segment(&m);
        char name[32];
        snprintf(name, sizeof name, "layer.%d", i);
        data[0] = (float)i;
        uint64_t before = m.offset;
        int64_t count = i == 5 ? 1 << 15 : i % 4 * 300;
        maker_add(&m, i == ENTRIES ? (made){.type = TAP_ENTRY_END}
                                   : (made){.name = name, .step = i / 10, .data = count ? data : NULL, .count = count});
        tap_entry entry;
        assert_int_equal(pread(m.fd, &entry, sizeof entry, (off_t)before), sizeof entry);
        f->at[f->count++] = (placed){(uint64_t)i, before, m.offset - before, sizeof entry + entry.meta_bytes,
                                     entry.payload_bytes ? entry.payload_offset + entry.payload_bytes : 0, m.segment};
    }
    free(data);
    f->files = m.files;
    maker_close(&m, NULL);
    f->info = m.info;
    memcpy(f->info.ended, "closed", 7);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    scratch_clear(f->dir);
    free(f->dir);
    free(f);
    return 0;
}

typedef struct seen {
    uint64_t seqs[2 * ENTRIES];
    bool cut[2 * ENTRIES];
    size_t count;
    uint64_t gaps, damage;
} seen;

static void scan_all(tap_scan *scan, seen *out)
{
    const tap_entry *entry;
    uint32_t segment;
    uint64_t offset;
    bool cut;
    tap_error err;
    for (;;) {
        tap_status status = tap__scan_next(scan, &entry, &segment, &offset, &cut, &err);
        out->gaps += scan->gap_entries;
        out->damage += scan->damage_bytes;
        if (status == TAP_END)
            return;
        if (status != TAP_OK)
            fail_msg("%s", err.message);
        assert_true(out->count < 2 * ENTRIES);
        out->cut[out->count] = cut;
        out->seqs[out->count++] = entry->seq;
    }
}

static seen scan_once(const fixture *f, tap_scan *keep)
{
    tap_scan scan;
    seen out = {.count = 0};
    assert_int_equal(tap__scan_open(&scan, &f->files, &f->info, NULL), TAP_OK);
    scan_all(&scan, &out);
    tap__scan_close(&scan);
    if (keep)
        *keep = scan;
    return out;
}

static int segment_open(const fixture *f, uint32_t segment)
{
    char *path = segment_path(&f->files, segment);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    free(path);
    return fd;
}

static void whole(void **state)
{
    fixture *f = *state;
    tap_scan scan;
    seen out = scan_once(f, &scan);
    assert_int_equal(out.count, ENTRIES + 1);
    for (size_t i = 0; i < out.count; i++) {
        assert_int_equal(out.seqs[i], i);
        assert_false(out.cut[i]);
    }
    assert_true(scan.ended);
    assert_int_equal(out.gaps + out.damage, 0);
    assert_false(scan.segment_missing);
}

/* The last segment cut at every 64-byte boundary, from its end to nothing. */
static void cut_everywhere(void **state)
{
    fixture *f = *state;
    int fd = segment_open(f, SEGMENTS - 1);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t end = st.st_size - 64; end >= 0; end -= 64) {
        assert_int_equal(ftruncate(fd, end), 0);
        seen out = scan_once(f, NULL);
        size_t expected = 20, cut = SIZE_MAX;
        for (size_t i = 20; i < f->count && f->at[i].offset + f->at[i].head <= (uint64_t)end; i++, expected++)
            if (f->at[i].payload_end && f->at[i].offset + f->at[i].payload_end > (uint64_t)end)
                cut = i;
        if (out.count != expected)
            fail_msg("cut at %ld: %zu entries, not %zu", (long)end, out.count, expected);
        for (size_t i = 0; i < out.count; i++) {
            assert_int_equal(out.seqs[i], i);
            assert_int_equal(out.cut[i], i == cut);
        }
        assert_int_equal(out.gaps, 0);
    }
    close(fd);
}

/* The same file growing back: a scan that waits gets every entry once, none before it is whole. */
static void growing(void **state)
{
    fixture *f = *state;
    int fd = segment_open(f, SEGMENTS - 1);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    char *bytes = malloc((size_t)st.st_size);
    assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
    f->info.ended[0] = 0;
    for (int preallocated = 0; preallocated < 2; preallocated++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        if (preallocated)
            assert_int_equal(ftruncate(fd, st.st_size + 8192), 0);
        tap_scan scan;
        assert_int_equal(tap__scan_open(&scan, &f->files, &f->info, NULL), TAP_OK);
        scan.growing = true;
        seen out = {.count = 0};
        size_t at = 20;
        for (off_t end = 0; end < st.st_size; end += 64) {
            assert_int_equal(pwrite(fd, bytes + end, 64, end), 64);
            scan_all(&scan, &out);
            uint64_t written = (uint64_t)end + 64;
            while (at < f->count && f->at[at].offset + (preallocated || !f->at[at].payload_end ? f->at[at].head
                                                        : f->at[at].payload_end) <= written)
                at++;
            assert_int_equal(out.count, at);
        }
        assert_int_equal(out.count, ENTRIES + 1);
        assert_int_equal(out.gaps + out.damage, 0);
        assert_true(scan.ended);
        tap__scan_close(&scan);
    }
    free(bytes);
    close(fd);
}

/* A changed byte in any entry's header costs that entry and no other. */
static void damaged_headers(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < f->count; i++) {
        int fd = segment_open(f, f->at[i].segment);
        for (uint64_t byte = 0; byte < f->at[i].head; byte += i == 7 ? 1 : 37) {
            char c, flipped;
            off_t where = (off_t)(f->at[i].offset + byte);
            assert_int_equal(pread(fd, &c, 1, where), 1);
            flipped = (char)(c ^ 0x10);
            assert_int_equal(pwrite(fd, &flipped, 1, where), 1);
            seen out = scan_once(f, NULL);
            assert_int_equal(out.count, f->count - 1);
            for (size_t k = 0; k < out.count; k++)
                assert_int_equal(out.seqs[k], k < i ? k : k + 1);
            assert_int_equal(out.gaps, i == f->count - 1 ? 0 : 1);
            assert_int_equal(out.damage, f->at[i].length);
            assert_int_equal(pwrite(fd, &c, 1, where), 1);
        }
        close(fd);
    }
}

static void missing_segment(void **state)
{
    fixture *f = *state;
    for (uint32_t gone = 0; gone < SEGMENTS; gone++) {
        char *path = segment_path(&f->files, gone), *away = NULL;
        assert_true(asprintf(&away, "%s/%s/away", f->files.root->path, f->files.dir) > 0);
        assert_int_equal(rename(path, away), 0);
        tap_scan scan;
        seen out = scan_once(f, &scan);
        assert_true(scan.segment_missing);
        size_t lost = gone == SEGMENTS - 1 ? 11 : 10;
        assert_int_equal(out.count, f->count - lost);
        assert_int_equal(out.gaps, gone == SEGMENTS - 1 ? 0 : 10); /* nothing after it tells how many are missing */
        assert_int_equal(rename(away, path), 0);
        free(path);
        free(away);
    }
    /* deleted by a rule, and said so */
    char *path = segment_path(&f->files, 0);
    unlink(path);
    free(path);
    f->info.first_segment = 1;
    f->info.segments = 2;
    tap_scan scan;
    seen out = scan_once(f, &scan);
    assert_false(scan.segment_missing);
    assert_int_equal(out.gaps, 0);
    assert_int_equal(out.count, f->count - 10);
}

static void damaged_segment_header(void **state)
{
    fixture *f = *state;
    int fd = segment_open(f, 1);
    assert_int_equal(pwrite(fd, "x", 1, 20), 1);
    tap_scan scan;
    seen out = scan_once(f, &scan);
    assert_int_equal(out.count, f->count);
    assert_int_equal(out.gaps, 0);
    close(fd);
}

/* A tensor whose bytes are themselves entries, numbered from first_inside: when its header is damaged those inside
 * are not ours, whether their numbers are lower or higher. */
static void payload_of_entries(uint64_t first_outside, uint64_t first_inside)
{
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 1, 0, TAP_OPEN_NEW, false);
    uint64_t start = m.offset;
    m.seq = first_inside;
    for (int i = 0; i < 5; i++)
        maker_add(&m, (made){.name = "inside"});
    size_t bytes = m.offset - start;
    float *copy = malloc(bytes);
    assert_int_equal(pread(m.fd, copy, bytes, (off_t)start), (ssize_t)bytes);
    m.offset = start; /* over it, the recording itself */
    m.seq = 0;
    for (uint64_t i = 0; i < first_outside; i++)
        maker_add(&m, (made){.name = "before"});
    uint64_t where = m.offset;
    maker_add(&m, (made){.name = "copy", .data = copy, .count = (int64_t)(bytes / 4)});
    maker_add(&m, (made){.name = "after"});
    assert_int_equal(pwrite(m.fd, "x", 1, (off_t)where + 40), 1);
    fixture g = {.files = m.files, .info = m.info};
    seen out = scan_once(&g, NULL);
    assert_int_equal(out.count, first_outside + 1);
    assert_int_equal(out.seqs[first_outside], first_outside + 1);
    assert_int_equal(out.gaps, 1);
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
    free(copy);
}

static void entries_inside_a_payload(void **state)
{
    (void)state;
    payload_of_entries(20, 0);
    payload_of_entries(8, 100000);
}

/* A damaged entry that stood for many numbers does not make those after it unreadable. */
static void numbers_lost_with_an_entry(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    maker_add(&m, (made){.name = "before"});
    m.seq += 500; /* pieces of a large tensor, say */
    uint64_t where = m.offset;
    maker_add(&m, (made){.name = "damaged"});
    maker_add(&m, (made){.name = "after"});
    maker_add(&m, (made){.name = "after"});
    assert_int_equal(pwrite(m.fd, "x", 1, (off_t)where + 40), 1);
    fixture g = {.files = m.files, .info = m.info};
    seen out = scan_once(&g, NULL);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.seqs[1], 502);
    assert_int_equal(out.gaps, 501);
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

/* A writer that keeps only the last steps deletes segments a reader's description still has. */
static void deleted_while_growing(void **state)
{
    fixture *f = *state;
    char *path = segment_path(&f->files, 0);
    unlink(path);
    free(path);
    f->info.ended[0] = 0;
    tap_scan scan;
    assert_int_equal(tap__scan_open(&scan, &f->files, &f->info, NULL), TAP_OK);
    scan.growing = true;
    seen out = {.count = 0};
    scan_all(&scan, &out);
    assert_int_equal(out.count, f->count - 10);
    assert_int_equal(out.gaps, 0);
    assert_false(scan.segment_missing);
    tap__scan_close(&scan);
}

/* Bytes of an older writer behind the newest entry have seqs that were there already. */
static void stale_bytes(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    uint64_t first = m.offset;
    for (int i = 0; i < 4; i++)
        maker_add(&m, (made){.name = "same size"});
    uint64_t end = m.offset;
    char *bytes = malloc(end - first);
    assert_int_equal(pread(m.fd, bytes, end - first, (off_t)first), (ssize_t)(end - first));
    assert_int_equal(pwrite(m.fd, bytes, end - first, (off_t)end), (ssize_t)(end - first));
    fixture g = {.files = m.files, .info = m.info};
    seen out = scan_once(&g, NULL);
    assert_int_equal(out.count, 4);
    assert_int_equal(out.damage, end - first);
    free(bytes);
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

/* Types of later versions and space given up are entries like others. */
static void unknown_types(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    maker_add(&m, (made){.type = TAP_ENTRY_SKIP});
    maker_add(&m, (made){.type = (tap_entry_type)200, .name = "later"});
    maker_add(&m, (made){.name = "x"});
    fixture g = {.files = m.files, .info = m.info};
    assert_int_equal(scan_once(&g, NULL).count, 3);
    maker_close(&m, NULL);
    scratch_clear(dir);
    free(dir);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(whole), T(cut_everywhere), T(growing), T(damaged_headers), T(missing_segment), T(damaged_segment_header),
        cmocka_unit_test(entries_inside_a_payload), T(deleted_while_growing),
        cmocka_unit_test(numbers_lost_with_an_entry),
        cmocka_unit_test(stale_bytes), cmocka_unit_test(unknown_types),
    };
    return cmocka_run_group_tests_name("scan", tests, NULL, NULL);
}
