/* test_run.c - opening, querying, following and mapping native recordings, with and without their index. */
#include "record/make_segment.h"

#include <pthread.h>
#include <sys/file.h>

#include "base/failing_allocator.h"

typedef struct line {
    int32_t rank, attempt, child;
    uint64_t seq;
    char name[32];
} line;

typedef struct lines {
    line items[512];
    size_t count;
} lines;

static lines list(tap_run *run, const tap_query *query)
{
    static lines out;
    out.count = 0;
    tap_cursor *cursor;
    tap_error err;
    if (tap_run_query(run, query, &cursor, &err))
        fail_msg("%s", err.message);
    tap_record record;
    tap_record_init(&record);
    tap_status status;
    while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK) {
        line *l = &out.items[out.count];
        *l = (line){record.rank, record.attempt, record.child, record.seq, ""};
        snprintf(l->name, sizeof l->name, "%s", record.name);
        assert_true(++out.count < 512);
    }
    if (status != TAP_END)
        fail_msg("%s", err.message);
    tap_cursor_close(cursor);
    uint64_t count;
    assert_int_equal(tap_run_count(run, query, &count, NULL), TAP_OK);
    assert_int_equal(count, out.count);
    return out;
}

static void fill(maker *m, const char *prefix, int count)
{
    for (int i = 0; i < count; i++) {
        char name[32];
        float data[3] = {(float)i, 2, 3};
        snprintf(name, sizeof name, "%s%d", prefix, i % 4);
        maker_add(m, (made){.name = name, .step = i / 4, .data = data, .count = 3, .source = "train.py",
                            .path = "ka\x1Fi2", .call = 5, .kind = TAP_KIND_GRAD});
    }
}

static void attempts_in_order(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    static const struct {
        int rank, child, count;
        bool indexed;
        const char *ended;
    } MAKE[] = {{1, 0, 8, true, "closed"}, {0, 0, 4, true, "killed"}, {0, 77, 2, false, "closed"},
                {0, 0, 6, false, NULL}, {0, 77, 3, true, "closed"}, {0, 5, 1, true, "closed"}};
    for (size_t i = 0; i < 6; i++) {
        maker_open(&m, dir, MAKE[i].rank, MAKE[i].child, TAP_OPEN_APPEND, MAKE[i].indexed);
        fill(&m, "n", MAKE[i].count);
        maker_close(&m, MAKE[i].ended);
    }
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    assert_string_equal(tap_run_layout(run), "native");
    assert_int_equal(tap_run_attempt_count(run), 6);
    static const int ORDER[][3] = {{0, 0, 0}, {0, 0, 77}, {0, 1, 0}, {0, 1, 5}, {0, 1, 77}, {1, 0, 0}};
    static const char *const ENDED[] = {"killed", "closed", "unknown", "closed", "closed", "closed"};
    for (int i = 0; i < 6; i++) {
        tap_attempt a;
        tap_attempt_init(&a);
        tap_run_attempt(run, i, &a);
        assert_int_equal(a.rank, ORDER[i][0]);
        assert_int_equal(a.attempt, ORDER[i][1]);
        assert_int_equal(a.child, ORDER[i][2]);
        assert_string_equal(a.ended, ENDED[i]);
    }
    tap_query query;
    tap_query_init(&query);
    query.attempt = -2;
    assert_int_equal(list(run, &query).count, 4 + 2 + 6 + 1 + 3 + 8);
    tap_query_init(&query); /* the newest, with its children */
    lines got = list(run, &query);
    assert_int_equal(got.count, 6 + 1 + 3 + 8);
    for (size_t i = 1; i < got.count; i++) {
        const line *a = &got.items[i - 1], *b = &got.items[i];
        assert_true(a->rank < b->rank || (a->rank == b->rank && (a->child < b->child || a->seq < b->seq)));
    }
    query.attempt = 0;
    assert_int_equal(list(run, &query).count, 4 + 2 + 8);
    query.ranks = "1-";
    assert_int_equal(list(run, &query).count, 8);
    query.name = "n[12]";
    query.steps = "1";
    assert_int_equal(list(run, &query).count, 2);
    query.kind = TAP_KIND_FORWARD;
    assert_int_equal(list(run, &query).count, 0);
    tap_error err;
    tap_cursor *cursor;
    query.steps = "x";
    assert_int_equal(tap_run_query(run, &query, &cursor, &err), TAP_E_INVALID);
    tap_attempt a;
    tap_attempt_init(&a);
    tap_run_attempt(run, 2, &a); /* not finished: counted by looking */
    assert_int_equal(a.records, 6);
    assert_int_equal(a.bytes, 72);
    assert_string_equal(a.files, "rank0/attempt1");
    tap_run_close(run);
    /* one rank of it */
    char *rank = NULL;
    assert_true(asprintf(&rank, "%s/rank1", dir) > 0);
    assert_int_equal(tap_run_open(rank, &run, NULL), TAP_OK);
    assert_int_equal(list(run, NULL).count, 8);
    tap_run_close(run);
    free(rank);
    scratch_clear(dir);
    free(dir);
}

static void same_record(const tap_record *a, const tap_record *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->path, b->path);
    assert_string_equal(a->file, b->file);
    assert_string_equal(a->source, b->source);
    assert_string_equal(a->device, b->device);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->call, b->call);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->line, b->line);
    assert_int_equal(a->hash, b->hash);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->shape[0], b->shape[0]);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->time_ns, b->time_ns);
    assert_true(a->stats.mean == b->stats.mean && a->has_stats == b->has_stats);
}

/* The index says what the segments say, and a record's bytes are found either way. */
static void index_and_scan_agree(void **state)
{
    (void)state;
    char *dir = scratch_make(), *path = NULL;
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    fill(&m, "n", 10);
    maker_next_segment(&m);
    fill(&m, "o", 10);
    maker_close(&m, "closed");
    tap_run *indexed, *scanned;
    assert_int_equal(tap_run_open(dir, &indexed, NULL), TAP_OK);
    tap_cursor *a, *b;
    assert_int_equal(tap_run_query(indexed, NULL, &a, NULL), TAP_OK);
    tap_record x, y;
    tap_record_init(&x);
    tap_record_init(&y);
    assert_int_equal(tap_cursor_next(a, &x, NULL), TAP_OK); /* opens the index file */
    assert_true(asprintf(&path, "%s/rank0/attempt0.sqlite", dir) > 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tap_run_open(dir, &scanned, NULL), TAP_OK);
    assert_int_equal(tap_run_query(scanned, NULL, &b, NULL), TAP_OK);
    for (int i = 0; i < 20; i++) {
        if (i)
            assert_int_equal(tap_cursor_next(a, &x, NULL), TAP_OK);
        assert_int_equal(tap_cursor_next(b, &y, NULL), TAP_OK);
        same_record(&x, &y);
        assert_string_equal(x.path, "a.2");
        assert_string_equal(x.file, i < 10 ? "rank0/attempt0-000000.tap" : "rank0/attempt0-000001.tap");
        tap_mapping mapping;
        tap_mapping_init(&mapping);
        assert_int_equal(tap_record_map(indexed, &x, &mapping, NULL), TAP_OK);
        assert_int_equal(mapping.tensor.ndim, 1);
        assert_int_equal(mapping.tensor.shape[0], 3);
        const float *data = mapping.tensor.data;
        assert_true(data[0] == (float)(i % 10) && data[1] == 2 && data[2] == 3);
        assert_int_equal((uintptr_t)data % 64, 0);
        tap_mapping_release(&mapping);
    }
    assert_int_equal(tap_cursor_next(a, &x, NULL), TAP_END);
    assert_int_equal(tap_cursor_next(b, &y, NULL), TAP_END);
    tap_cursor_close(a);
    tap_cursor_close(b);
    tap_run_close(indexed);
    tap_run_close(scanned);
    free(path);
    scratch_clear(dir);
    free(dir);
}

/* Whatever happens to the index file, the records are the same. */
static void damaged_index(void **state)
{
    (void)state;
    char *dir = scratch_make(), *path = NULL;
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    fill(&m, "name.", 300);
    maker_close(&m, "closed");
    assert_true(asprintf(&path, "%s/rank0/attempt0.sqlite", dir) > 0);
    int fd = open(path, O_RDWR);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    size_t size = (size_t)st.st_size;
    unsigned char *bytes = malloc(size);
    assert_int_equal(pread(fd, bytes, size, 0), (ssize_t)size);
    unsigned random = 1;
    for (int round = 0; round < 150; round++) {
        size_t at = 0;
        if (round < 20) { /* cut */
            assert_int_equal(ftruncate(fd, (off_t)(size * (size_t)round / 20)), 0);
        } else { /* a byte inside a row or string */
            do {
                random = random * 1103515245u + 12345u;
                at = random % size;
            } while (bytes[at] == 0);
            unsigned char flipped = (unsigned char)(bytes[at] ^ 0x21);
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        }
        tap_run *run;
        assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
        lines got = list(run, NULL);
        for (size_t i = 0; i < got.count; i++) {
            char name[32];
            snprintf(name, sizeof name, "name.%d", (int)i % 4);
            if (got.items[i].seq != i || strcmp(got.items[i].name, name) != 0)
                fail_msg("round %d, byte %zu: record %zu is %s with seq %llu", round, at, i, got.items[i].name,
                         (unsigned long long)got.items[i].seq);
        }
        if (got.count != 300)
            fail_msg("round %d, byte %zu: %zu records", round, at, got.count);
        tap_run_close(run);
        assert_int_equal(pwrite(fd, bytes, size, 0), (ssize_t)size);
    }
    /* and is put right again */
    assert_int_equal(ftruncate(fd, 100), 0);
    uint64_t records;
    assert_int_equal(tap_run_index(dir, NULL, NULL, &records, NULL), TAP_OK);
    assert_int_equal(records, 300);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, size);
    close(fd);
    free(bytes);
    free(path);
    scratch_clear(dir);
    free(dir);
}

static void lock_segment(maker *m)
{
    m->lock = true;
    assert_int_equal(flock(m->fd, LOCK_EX), 0);
}

static void follow(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    lock_segment(&m);
    fill(&m, "a", 3);
    tap_run *run;
    bool more, live;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    tap_cursor *before;
    assert_int_equal(tap_run_query(run, NULL, &before, NULL), TAP_OK);
    tap_attempt a;
    tap_attempt_init(&a);
    tap_run_attempt(run, 0, &a);
    assert_string_equal(a.ended, "live");
    assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
    assert_false(more);
    assert_true(live);
    fill(&m, "b", 2);
    assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
    assert_true(more && live);
    assert_int_equal(list(run, NULL).count, 5);
    tap_record record;
    tap_record_init(&record);
    for (int i = 0; i < 3; i++) /* a cursor sees what was there when it was made */
        assert_int_equal(tap_cursor_next(before, &record, NULL), TAP_OK);
    assert_int_equal(tap_cursor_next(before, &record, NULL), TAP_END);
    tap_cursor_close(before);
    maker_next_segment(&m);
    fill(&m, "c", 4);
    assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
    assert_true(more && live);
    assert_int_equal(list(run, NULL).count, 9);
    maker child;
    maker_open(&child, dir, 0, 99, TAP_OPEN_NEW, false); /* a new attempt appears */
    fill(&child, "d", 1);
    maker_close(&child, "closed");
    maker_close(&m, "closed");
    assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
    assert_true(more);
    assert_false(live);
    assert_int_equal(list(run, NULL).count, 10);
    assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
    assert_false(more || live);
    tap_run_close(run);
    scratch_clear(dir);
    free(dir);
}

/* A writer writing while a reader follows: every record once, in order, whole. */
static void *slow_writer(void *user)
{
    maker *m = user;
    float *data = calloc(20000, sizeof *data);
    for (int i = 0; i < 400; i++) {
        if (i && i % 100 == 0)
            maker_next_segment(m);
        data[0] = (float)i;
        maker_add(m, (made){.name = "x", .step = i, .data = data, .count = i % 50 ? 10 : 20000});
    }
    free(data);
    return NULL;
}

static void follow_while_written(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, false);
    lock_segment(&m);
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, slow_writer, &m), 0);
    bool more, live;
    size_t count = 0;
    while (count < 400) {
        assert_int_equal(tap_run_refresh(run, &more, &live, NULL), TAP_OK);
        lines got = list(run, NULL);
        assert_true(got.count >= count);
        count = got.count;
        for (size_t i = 0; i < count; i++)
            assert_int_equal(got.items[i].seq, i);
    }
    pthread_join(thread, NULL);
    maker_close(&m, "closed");
    assert_int_equal(count, 400);
    tap_run_close(run);
    scratch_clear(dir);
    free(dir);
}

static void maps_and_refusals(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    enum { LARGE = 40000 };
    float *data = calloc(LARGE, sizeof *data);
    data[LARGE - 1] = 5;
    maker_add(&m, (made){.name = "large", .data = data, .count = LARGE});
    maker_add(&m, (made){.name = "none", .state = TAP_RECORD_STATS_ONLY});
    maker_close(&m, "closed");
    tap_run *run;
    tap_cursor *cursor;
    tap_record record;
    tap_record_init(&record);
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_error err;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    assert_int_equal(tap_run_query(run, NULL, &cursor, NULL), TAP_OK);
    assert_int_equal(tap_cursor_next(cursor, &record, NULL), TAP_OK);
    assert_int_equal(record.offset % TAP_PAGE, 0);
    assert_int_equal(tap_record_map(run, &record, &mapping, NULL), TAP_OK);
    assert_true(((const float *)mapping.tensor.data)[LARGE - 1] == 5);
    tap_mapping_release(&mapping);
    tap_record wrong = record;
    int64_t shape[1] = {LARGE + 1};
    wrong.shape = shape;
    assert_int_equal(tap_record_map(run, &wrong, &mapping, &err), TAP_E_CORRUPT);
    wrong = record;
    wrong.offset = UINT64_MAX - 4096;
    assert_int_equal(tap_record_map(run, &wrong, &mapping, &err), TAP_E_TRUNCATED);
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", dir, record.file) > 0);
    assert_int_equal(truncate(path, (off_t)record.offset + 100), 0);
    assert_int_equal(tap_record_map(run, &record, &mapping, &err), TAP_E_TRUNCATED);
    unlink(path);
    assert_int_equal(tap_record_map(run, &record, &mapping, &err), TAP_E_NOTFOUND);
    free(path);
    tap_cursor_close(cursor);
    tap_run_close(run);
    assert_int_equal(tap_run_open("/nonexistent/run", &run, &err), TAP_E_NOTFOUND);
    assert_null(run);
    char *empty = scratch_make();
    assert_int_equal(tap_run_open(empty, &run, &err), TAP_E_FORMAT);
    assert_non_null(strstr(err.message, empty));
    scratch_clear(empty);
    free(empty);
    free(data);
    scratch_clear(dir);
    free(dir);
}

/* Segments without any description are still a recording. */
static void only_segments(void **state)
{
    (void)state;
    char *dir = scratch_make(), *path = NULL;
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    fill(&m, "n", 7);
    maker_close(&m, "closed");
    static const char *const GONE[] = {"run.json", "rank0/attempt0.json", "rank0/attempt0.sqlite"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(asprintf(&path, "%s/%s", dir, GONE[i]) > 0);
        assert_int_equal(unlink(path), 0);
        free(path);
        tap_run *run;
        assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
        assert_int_equal(list(run, NULL).count, 7);
        tap_run_close(run);
    }
    scratch_clear(dir);
    free(dir);
}

/* One tensor file is a run of its values. */
static void single_files(void **state)
{
    (void)state;
    static const struct {
        const char *format, *file, *names[2];
        size_t count;
    } CASES[] = {{"npy", "weights.npy", {"weights"}, 1}, {"safetensors", "m.safetensors", {"b", "w"}, 2}};
    char *dir = scratch_make();
    float a[4] = {1, 2, 3, 4};
    double b[1] = {0.5};
    int64_t shape_a[2] = {2, 2}, shape_b[1] = {1};
    tap_tensor tensors[2] = {{.data = b, .dtype = TAP_F64, .ndim = 1, .shape = shape_b},
                             {.data = a, .dtype = TAP_F32, .ndim = 2, .shape = shape_a}};
    static const char *const NAMES[2] = {"b", "w"};
    for (size_t i = 0; i < 2; i++) {
        char *path = NULL;
        tap_error err;
        assert_true(asprintf(&path, "%s/%s", dir, CASES[i].file) > 0);
        if (tap_file_write(path, CASES[i].format, &tensors[2 - CASES[i].count], NAMES, CASES[i].count, false, &err))
            fail_msg("%s", err.message);
        tap_run *run;
        if (tap_run_open(path, &run, &err))
            fail_msg("%s", err.message);
        assert_string_equal(tap_run_layout(run), CASES[i].format);
        lines got = list(run, NULL);
        assert_int_equal(got.count, CASES[i].count);
        tap_cursor *cursor;
        tap_record record;
        tap_record_init(&record);
        assert_int_equal(tap_run_query(run, NULL, &cursor, NULL), TAP_OK);
        for (size_t k = 0; tap_cursor_next(cursor, &record, NULL) == TAP_OK; k++) {
            assert_string_equal(record.name, CASES[i].names[k]);
            assert_string_equal(record.file, CASES[i].file);
            tap_mapping mapping;
            tap_mapping_init(&mapping);
            if (tap_record_map(run, &record, &mapping, &err))
                fail_msg("%s", err.message);
            bool is_a = record.ndim == 2;
            assert_int_equal(mapping.tensor.dtype, is_a ? TAP_F32 : TAP_F64);
            assert_memory_equal(mapping.tensor.data, is_a ? (void *)a : (void *)b, is_a ? sizeof a : sizeof b);
            tap_mapping_release(&mapping);
        }
        tap_cursor_close(cursor);
        assert_int_equal(tap_run_verify(run, NULL, NULL, &err), TAP_OK);
        unlink(path); /* what verify reads is the file, not what was listed */
        assert_int_equal(tap_run_verify(run, NULL, NULL, &err), TAP_E_LOST);
        bool more, live;
        assert_int_equal(tap_run_refresh(run, &more, &live, &err), TAP_OK);
        tap_run_close(run);
        free(path);
    }
    scratch_clear(dir);
    free(dir);
}

/* More attempts than index files are kept open for. */
static void many_ranks(void **state)
{
    (void)state;
    char *dir = scratch_make();
    enum { RANKS = 100 };
    for (int rank = 0; rank < RANKS; rank++) {
        maker m;
        maker_open(&m, dir, rank, 0, TAP_OPEN_NEW, true);
        fill(&m, "n", 2);
        maker_close(&m, "closed");
    }
    tap_run *run;
    assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
    for (int round = 0; round < 2; round++) {
        lines got = list(run, NULL);
        assert_int_equal(got.count, 2 * RANKS);
        for (size_t i = 0; i < got.count; i++)
            assert_int_equal(got.items[i].rank, i / 2);
    }
    tap_run_close(run);
    scratch_clear(dir);
    free(dir);
}

/* Every allocation may fail; nothing leaks, crashes or is wrong. */
static void no_memory(void **state)
{
    (void)state;
    char *dir = scratch_make();
    maker m;
    maker_open(&m, dir, 0, 0, TAP_OPEN_NEW, true);
    fill(&m, "n", 5);
    maker_close(&m, "closed");
    maker_open(&m, dir, 1, 0, TAP_OPEN_NEW, false);
    fill(&m, "n", 5);
    maker_close(&m, NULL);
    for (int n = 0;; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        tap_run *run;
        tap_cursor *cursor = NULL;
        tap_record record;
        tap_record_init(&record);
        tap_error err;
        tap_query query;
        tap_query_init(&query);
        query.name = "n*";
        query.steps = "0-5";
        tap_status status = tap_run_open(dir, &run, &err);
        size_t count = 0;
        if (status == TAP_OK) {
            status = tap_run_query(run, &query, &cursor, &err);
            if (status == TAP_OK)
                while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK)
                    count++;
            tap_cursor_close(cursor);
            tap_verify_result result;
            tap_verify_result_init(&result);
            if (status == TAP_END) {
                status = tap_run_verify(run, NULL, &result, &err);
                if (status == TAP_E_LOST) /* rank 1 was not finished */
                    status = TAP_OK;
            }
            tap_run_close(run);
        }
        tap_allocator_set(NULL);
        if (status == TAP_OK) {
            assert_int_equal(count, 10);
            break;
        }
        assert_int_equal(status, TAP_E_NOMEM);
    }
    scratch_clear(dir);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempts_in_order), cmocka_unit_test(index_and_scan_agree), cmocka_unit_test(damaged_index),
        cmocka_unit_test(follow),            cmocka_unit_test(follow_while_written),
        cmocka_unit_test(maps_and_refusals),
        cmocka_unit_test(only_segments),     cmocka_unit_test(single_files),
        cmocka_unit_test(many_ranks),           cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
