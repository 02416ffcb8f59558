/* test_verify.c - what verify says about recordings that were damaged in known ways: exactly that. */
#include "record/make_segment.h"

#include "record/ring/journal.h"

#include <sys/file.h>

typedef struct found {
    tap_problem_kind kind;
    int32_t rank, attempt;
    int64_t step;
    char name[32], file[64], reason[300];
    uint64_t count;
} found;

typedef struct report {
    found items[128];
    size_t count;
    tap_verify_result result;
    tap_status status;
    tap_error err;
} report;

static void collect(void *user, const tap_problem *problem)
{
    report *r = user;
    assert_true(r->count < 128);
    found *f = &r->items[r->count++];
    *f = (found){problem->kind, problem->rank, problem->attempt, problem->step, "", "", "", problem->count};
    snprintf(f->name, sizeof f->name, "%s", problem->name);
    snprintf(f->file, sizeof f->file, "%s", problem->file);
    snprintf(f->reason, sizeof f->reason, "%s", problem->reason);
    assert_non_null(problem->path);
}

static report *check_with(const char *dir, bool quick, bool rules)
{
    static report r;
    memset(&r, 0, sizeof r);
    tap_verify_result_init(&r.result);
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    tap_verify_options options;
    tap_verify_options_init(&options);
    options.quick = quick;
    options.rules = rules;
    options.on_problem = collect;
    options.user = &r;
    r.status = tap_run_verify(run, &options, &r.result, &r.err);
    tap_run_close(run);
    return &r;
}

static report *check(const char *dir)
{
    return check_with(dir, false, false);
}

static const found *find(const report *r, tap_problem_kind kind, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->items[i].kind == kind && strcmp(r->items[i].name, name) == 0)
            return &r->items[i];
    return NULL;
}

static void add_values(maker *m, int first, int count)
{
    static float data[40000];
    for (int i = first; i < first + count; i++) {
        char name[32];
        snprintf(name, sizeof name, "v%d", i);
        data[0] = (float)i;
        maker_add(m, (made){.name = name, .step = i, .data = data, .count = i % 5 == 4 ? 20000 : 16 + i});
    }
}

/* Two segments of eight values, closed. */
static char *recording(void)
{
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    add_values(&m, 0, 8);
    maker_next_segment(&m);
    add_values(&m, 8, 8);
    maker_close(&m, "closed");
    return dir;
}

static char *file_in(const char *dir, const char *name)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/rank0/%s", dir, name) > 0);
    return path;
}

static void drop(char *dir)
{
    scratch_clear(dir);
    free(dir);
}

static void nothing_lost(void **state)
{
    (void)state;
    char *dir = recording();
    report *r = check(dir);
    assert_int_equal(r->status, TAP_OK);
    assert_int_equal(r->count, 0);
    assert_int_equal(r->result.records, 16);
    assert_int_equal(r->result.lost, 0);
    /* the index has no say */
    char *path = file_in(dir, "attempt0.sqlite");
    unlink(path);
    free(path);
    assert_int_equal(check(dir)->status, TAP_OK);
    drop(dir);
}

/* One changed byte of each payload: that record, no other. */
static void changed_payloads(void **state)
{
    (void)state;
    char *dir = recording();
    tap_run *run;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    assert_int_equal(tap_run_query(run, NULL, &cursor, NULL), TAP_OK);
    while (tap_cursor_next(cursor, &record, NULL) == TAP_OK) {
        const uint64_t places[] = {0, record.payload_bytes / 2, record.payload_bytes - 1};
        for (size_t i = 0; i < 3; i++) {
            char *path = NULL;
            assert_true(asprintf(&path, "%s/%s", dir, record.file) > 0);
            int fd = open(path, O_RDWR);
            unsigned char c, flipped;
            off_t where = (off_t)(record.offset + places[i]);
            assert_int_equal(pread(fd, &c, 1, where), 1);
            flipped = c ^ 1;
            assert_int_equal(pwrite(fd, &flipped, 1, where), 1);
            report *r = check(dir);
            assert_int_equal(r->status, TAP_E_LOST);
            assert_int_equal(r->count, 1);
            assert_int_equal(r->items[0].kind, TAP_PROBLEM_CORRUPT);
            assert_string_equal(r->items[0].name, record.name);
            assert_int_equal(r->items[0].step, record.step);
            assert_string_equal(r->items[0].file, record.file);
            assert_int_equal(r->result.lost, 1);
            assert_int_equal(check_with(dir, true, false)->status, TAP_OK); /* quick does not look */
            assert_int_equal(pwrite(fd, &c, 1, where), 1);
            close(fd);
            free(path);
        }
    }
    tap_cursor_close(cursor);
    tap_run_close(run);
    assert_int_equal(check(dir)->status, TAP_OK);
    drop(dir);
}

/* A finished recording cut at every 64-byte boundary: every value before is fine, all others are told. */
static void cut_when_finished(void **state)
{
    (void)state;
    char *dir = recording(), *path = file_in(dir, "attempt0-000001.tap");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t end = st.st_size - 64; end >= 0; end -= end > 8192 && end < st.st_size - 9000 ? 64 * 97 : 64) {
        assert_int_equal(truncate(path, end), 0);
        report *r = check(dir);
        assert_int_equal(r->status, TAP_E_LOST);
        assert_true(r->count >= 1);
        uint64_t told = 0;
        for (size_t i = 0; i < r->count; i++) {
            if (r->items[i].kind != TAP_PROBLEM_MISSING && r->items[i].kind != TAP_PROBLEM_CORRUPT)
                fail_msg("cut at %ld: %s", (long)end, r->items[i].reason);
            told += r->items[i].count;
        }
        assert_int_equal(told, r->result.lost);
        /* 16 values and END: what is not counted as a record is told as missing; the cut one is both */
        bool cut = r->items[0].name[0] == 'v';
        assert_int_equal(r->result.records + told, 17u + cut);
    }
    free(path);
    drop(dir);
}

/* The same when the writer died: torn at the end, and unfinished. */
static void killed(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    add_values(&m, 0, 3);
    uint64_t whole = m.offset;
    add_values(&m, 3, 1);
    maker_close(&m, NULL);
    report *r = check(dir);
    assert_int_equal(r->status, TAP_E_LOST);
    assert_int_equal(r->count, 1);
    assert_int_equal(r->items[0].kind, TAP_PROBLEM_UNFINISHED);
    assert_non_null(strstr(r->items[0].reason, "recover"));
    assert_int_equal(r->result.lost, 0);
    char *path = file_in(dir, "attempt0-000000.tap");
    assert_int_equal(truncate(path, (off_t)whole + 320), 0); /* header whole, payload not */
    r = check(dir);
    assert_int_equal(r->count, 2);
    assert_non_null(find(r, TAP_PROBLEM_TORN, "v3"));
    assert_int_equal(r->result.lost, 1);
    assert_int_equal(truncate(path, (off_t)whole + 128), 0); /* not even the header */
    r = check(dir);
    assert_int_equal(r->count, 2);
    assert_non_null(find(r, TAP_PROBLEM_TORN, ""));
    assert_int_equal(r->result.lost, 1);
    assert_int_equal(truncate(path, (off_t)whole), 0);
    r = check(dir);
    assert_int_equal(r->count, 1);
    assert_int_equal(truncate(path, (off_t)whole + 65536), 0); /* space taken in advance is nothing lost */
    r = check(dir);
    assert_int_equal(r->count, 1);
    assert_int_equal(r->items[0].kind, TAP_PROBLEM_UNFINISHED);
    free(path);
    drop(dir);
}

static void damaged_header_bytes(void **state)
{
    (void)state;
    char *dir = recording(), *path = file_in(dir, "attempt0-000000.tap");
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\xff\xff", 2, TAP_PAGE + 64 + 16), 2); /* length of the first entry */
    report *r = check(dir);
    assert_int_equal(r->status, TAP_E_LOST);
    assert_int_equal(r->count, 1);
    assert_int_equal(r->items[0].kind, TAP_PROBLEM_CORRUPT);
    assert_int_equal(r->items[0].count, 1);
    assert_string_equal(r->items[0].file, "rank0/attempt0-000000.tap");
    assert_int_equal(r->result.records, 15);
    assert_int_equal(pwrite(fd, "x", 1, 24), 1); /* and the segment's own header */
    r = check(dir);
    assert_int_equal(r->count, 2);
    assert_int_equal(r->result.records, 15);
    close(fd);
    free(path);
    drop(dir);
}

static void missing_files(void **state)
{
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        char *dir = recording(), *path = file_in(dir, gone ? "attempt0-000001.tap" : "attempt0-000000.tap");
        unlink(path);
        report *r = check(dir);
        assert_int_equal(r->status, TAP_E_LOST);
        assert_int_equal(r->count, 1);
        assert_int_equal(r->items[0].kind, TAP_PROBLEM_MISSING);
        assert_string_equal(r->items[0].file, gone ? "rank0/attempt0-000001.tap" : "rank0/attempt0-000000.tap");
        assert_int_equal(r->items[0].count, gone ? 9 : 8); /* with END */
        assert_int_equal(r->result.records, 8);
        free(path);
        path = file_in(dir, "attempt0.json");
        unlink(path);
        r = check(dir);
        assert_int_equal(r->status, TAP_E_LOST);
        assert_non_null(strstr(r->items[r->count - 1].file, "attempt0.json"));
        free(path);
        drop(dir);
    }
}

static void named_losses(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 2, 0, TAP_OPEN_NEW, false);
    add_values(&m, 0, 1);
    maker_add(&m, (made){.type = TAP_ENTRY_LOST, .name = "ring", .step = 4, .count = 7,
                         .reason = TAP_REASON_RING_FULL});
    maker_add(&m, (made){.type = TAP_ENTRY_LOST, .name = "filter", .step = 4, .count = 3, .reason = TAP_REASON_FILTER});
    maker_add(&m, (made){.type = TAP_ENTRY_LOST, .name = "kill", .step = 5, .count = 1, .reason = TAP_REASON_KILLED});
    maker_add(&m, (made){.name = "stats", .step = 6, .state = TAP_RECORD_STATS_ONLY, .reason = TAP_REASON_DISK_FULL});
    maker_add(&m, (made){.name = "keep", .step = 6, .state = TAP_RECORD_RULE, .reason = TAP_REASON_KEEP});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "never"});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "v0"});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "ring"}); /* it ran; its values were lost */
    maker_add(&m, (made){.name = "grad", .kind = TAP_KIND_GRAD, .step = 8, .flags = TAP_SAVE_SLOT});
    maker_add(&m, (made){.name = "came", .kind = TAP_KIND_GRAD, .step = 8, .flags = TAP_SAVE_SLOT});
    maker_add(&m, (made){.name = "came", .kind = TAP_KIND_GRAD, .step = 8});
    m.info.not_named = 11;
    maker_close(&m, "closed");
    report *r = check(dir);
    assert_int_equal(r->status, TAP_E_LOST);
    static const struct {
        tap_problem_kind kind;
        const char *name;
        int64_t step;
        uint64_t count;
        tap_reason reason;
    } EXPECTED[] = {
        {TAP_PROBLEM_DROPPED, "ring", 4, 7, TAP_REASON_RING_FULL}, {TAP_PROBLEM_TORN, "kill", 5, 1, TAP_REASON_KILLED},
        {TAP_PROBLEM_STATS_ONLY, "stats", 6, 1, TAP_REASON_DISK_FULL}, {TAP_PROBLEM_NEVER_RAN, "never", -1, 1, 0},
        {TAP_PROBLEM_SLOT, "grad", 8, 1, 0}, {TAP_PROBLEM_DROPPED, "", -1, 11, 0},
    };
    assert_int_equal(r->count, 6);
    for (size_t i = 0; i < 6; i++) {
        const found *f = find(r, EXPECTED[i].kind, EXPECTED[i].name);
        assert_non_null(f);
        assert_int_equal(f->count, EXPECTED[i].count);
        assert_int_equal(f->step, EXPECTED[i].step);
        assert_int_equal(f->rank, 2);
        if (EXPECTED[i].reason)
            assert_string_equal(f->reason, tap__reason_text(EXPECTED[i].reason));
    }
    assert_int_equal(r->result.lost, 7 + 1 + 1 + 11);
    assert_int_equal(r->result.rules, 4);
    assert_int_equal(r->result.not_named, 11);
    assert_int_equal(check_with(dir, false, true)->count, 8); /* rules too */
    drop(dir);
}

/* Rules, slots and sites that never ran are told but lose nothing. */
static void no_losses(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    maker_add(&m, (made){.type = TAP_ENTRY_LOST, .name = "f", .count = 3, .reason = TAP_REASON_LAST_N});
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "never"});
    maker_add(&m, (made){.name = "grad", .kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT});
    maker_close(&m, "killed"); /* the producer was killed; the writer finished */
    report *r = check(dir);
    assert_int_equal(r->status, TAP_OK);
    assert_int_equal(r->count, 2);
    assert_int_equal(r->result.lost, 0);
    drop(dir);
}

static void big_values(void **state)
{
    (void)state;
    char *dir = scratch_make();
    static float data[600000]; /* more than one piece */
    data[599999] = 3;
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    uint64_t where = m.offset;
    uint64_t a = maker_add(&m, (made){.type = TAP_ENTRY_BIG, .name = "good", .data = data, .count = 600000});
    uint64_t end = m.offset;
    maker_add(&m, (made){.type = TAP_ENTRY_BIG, .name = "torn", .step = 2, .data = data, .count = 600000});
    maker_next_segment(&m); /* its trailer lies in another file */
    maker_add(&m, (made){.type = TAP_ENTRY_TRAILER, .ref = a, .count = (int64_t)tap_hash_bytes(data, sizeof data)});
    maker_close(&m, "killed");
    report *r = check(dir);
    assert_int_equal(r->status, TAP_E_LOST);
    assert_int_equal(r->count, 1);
    assert_non_null(find(r, TAP_PROBLEM_TORN, "torn"));
    assert_int_equal(r->items[0].step, 2);
    char *path = file_in(dir, "attempt0-000000.tap");
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(where + (end - where) / 2)), 1);
    r = check(dir);
    assert_int_equal(r->count, 2);
    assert_non_null(find(r, TAP_PROBLEM_CORRUPT, "good"));
    close(fd);
    free(path);
    drop(dir);
}

static void journal_and_ring(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    add_values(&m, 0, 2);
    tap_journal *journal;
    char lost[TAP_ATTEMPT_NAME];
    tap__attempt_name(&m.files, ".lost", lost);
    assert_int_equal(tap__journal_create(m.files.root, lost, &journal, NULL), TAP_OK);
    tap__journal_add(journal, "full", 3, TAP_REASON_DISK_FULL, 5, 100);
    tap__journal_close(journal);
    maker_close(&m, "closed");
    report *r = check(dir);
    assert_int_equal(r->status, TAP_E_LOST);
    assert_int_equal(r->count, 1);
    assert_int_equal(r->items[0].kind, TAP_PROBLEM_DROPPED);
    assert_string_equal(r->items[0].name, "full");
    assert_int_equal(r->result.lost, 5);
    char *path = file_in(dir, "attempt0.ring");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    r = check(dir);
    assert_int_equal(r->count, 2);
    assert_non_null(find(r, TAP_PROBLEM_UNFINISHED, ""));
    free(path);
    drop(dir);
}

/* While it is written nothing is unfinished, torn or late. */
static void live(void **state)
{
    (void)state;
    char *dir = scratch_make();
    static float data[20000];
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    assert_int_equal(flock(m.fd, LOCK_EX), 0);
    add_values(&m, 0, 2);
    maker_add(&m, (made){.type = TAP_ENTRY_DECLARE, .name = "later"});
    maker_add(&m, (made){.name = "grad", .kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT});
    maker_add(&m, (made){.type = TAP_ENTRY_BIG, .name = "coming", .data = data, .count = 20000});
    report *r = check(dir);
    assert_int_equal(r->status, TAP_OK);
    assert_int_equal(r->count, 0);
    maker_close(&m, NULL);
    assert_int_equal(check(dir)->count, 4); /* unfinished, never ran, never came, torn */
    drop(dir);
}

static bool stop_at(void *user, uint64_t done, uint64_t total)
{
    uint64_t *seen = user;
    assert_true(done >= seen[0] && done <= total);
    seen[0] = done;
    return seen[1]-- > 0;
}

static void progress(void **state)
{
    (void)state;
    char *dir = scratch_make();
    static float data[1 << 20]; /* four pieces */
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    maker_add(&m, (made){.name = "x", .data = data, .count = 1 << 20});
    maker_close(&m, "closed");
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    uint64_t seen[2] = {0, 1000000}; /* highest done; calls until stop */
    tap_verify_options options;
    tap_verify_options_init(&options);
    options.on_progress = stop_at;
    options.user = seen;
    assert_int_equal(tap_run_verify(run, &options, NULL, NULL), TAP_OK);
    assert_true(seen[1] <= 1000000 - 4 && seen[0] >= 4 << 20);
    for (uint64_t calls = 0; calls < 3; calls++) {
        seen[0] = 0;
        seen[1] = calls;
        assert_int_equal(tap_run_verify(run, &options, NULL, NULL), TAP_E_TIMEOUT);
    }
    tap_run_close(run);
    drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_lost),  cmocka_unit_test(changed_payloads), cmocka_unit_test(cut_when_finished),
        cmocka_unit_test(killed),        cmocka_unit_test(damaged_header_bytes), cmocka_unit_test(missing_files),
        cmocka_unit_test(named_losses),  cmocka_unit_test(no_losses),        cmocka_unit_test(big_values),
        cmocka_unit_test(journal_and_ring), cmocka_unit_test(live),          cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
