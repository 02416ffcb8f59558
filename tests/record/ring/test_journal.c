/* test_journal.c - the list of what could not be recorded: it adds up, never grows, is handed on, and of whatever a disk
 * kept of its last write either that write or the one before it is read. */
#include "base/failing_allocator.h"
#include "base/random.h"
#include "record/ring/journal.h"
#include "record/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

static const char LOST[] = "attempt0.lost";
static tap_dir *root;

typedef struct sum {
    uint64_t calls, count, bytes, unnamed;
    char last[700];
    int64_t step;
    tap_reason reason;
} sum;

static void add_up(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count, uint64_t bytes)
{
    sum *s = user;
    s->calls++;
    s->count += count;
    s->bytes += bytes;
    if (!*name)
        s->unnamed += count;
    snprintf(s->last, sizeof s->last, "%s", name);
    s->step = step;
    s->reason = reason;
}

static void adds_up(void **state)
{
    const char *path = *state;
    tap_journal *journal;
    sum s = {0};
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK); /* no file */
    assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, TAP_JOURNAL_BYTES);
    assert_true(st.st_blocks * 512 >= TAP_JOURNAL_BYTES);
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
    assert_int_equal(s.calls, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(tap__journal_add(journal, "层\"x\"\n", 5, TAP_REASON_DISK_FULL, 1, 100), TAP_OK);
    tap__journal_sync(journal);
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.count, 10);
    assert_int_equal(s.bytes, 1000);
    assert_string_equal(s.last, "层\"x\"\n");
    assert_int_equal(s.step, 5);
    assert_int_equal(s.reason, TAP_REASON_DISK_FULL);
    /* far more than there is room for: the file never grows and no save is forgotten */
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(tap__journal_add(journal, name, i, TAP_REASON_DISK_ERROR, 2, 1), TAP_OK);
    }
    tap__journal_sync(journal);
    s = (sum){0};
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
    assert_int_equal(s.count, 10010);
    assert_int_equal(s.bytes, 6000);
    assert_true(s.unnamed > 0 && s.unnamed < 10000);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, TAP_JOURNAL_BYTES);
    /* kept when something is in it, gone when not */
    tap__journal_close(journal);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
    tap__journal_add(journal, "x", 1, TAP_REASON_DISK_FULL, 1, 1);
    tap__journal_clear(journal);
    tap__journal_close(journal);
    assert_int_equal(access(path, F_OK), -1);
}

/* Somebody wrote it, and its sum is right: what is no text is no name. */
static void members_of_other_types(void **state)
{
    static const char LINES[] = "{\"name\": null, \"count\": 3}\n{\"name\": [1], \"count\": 4}\n{\"name\": 7}\n[]\nnull\n"
                                "{\"unknown\": true, \"tally\": null}\n{\"name\": \"x\", \"count\": 2}\n";
    const char *path = *state;
    static char half[TAP_JOURNAL_BYTES / 2];
    memset(half, ' ', sizeof half);
    int len = snprintf(half, sizeof half, "tensortap-lost 1 1 %zu %llx", sizeof LINES - 1,
                       (unsigned long long)tap_hash_bytes(LINES, sizeof LINES - 1));
    half[len] = ' ';
    memcpy(half + 64, LINES, sizeof LINES - 1);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, half, sizeof half), sizeof half);
    close(fd);
    sum s = {0};
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.last, "x");
    tap_journal *journal; /* who records there goes on with it */
    assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
    tap__journal_close(journal);
}

/* Whatever one write leaves half done, the one before it is still there. */
static void one_half_is_whole(void **state)
{
    const char *path = *state;
    tap_journal *journal;
    assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
    tap__journal_add(journal, "first", 1, TAP_REASON_DISK_FULL, 1, 1); /* written at once: half 0 */
    tap__journal_add(journal, "second", 2, TAP_REASON_DISK_FULL, 1, 1);
    tap__journal_sync(journal); /* half 1 */
    tap__journal_close(journal);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "#", 1, TAP_JOURNAL_BYTES / 2 + 70), 1);
    sum s = {0};
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
    assert_int_equal(s.count, 1);
    assert_string_equal(s.last, "first");
    assert_int_equal(pwrite(fd, "#", 1, 70), 1);
    tap_error err;
    assert_int_equal(tap__journal_read(root, LOST, add_up, &s, &err), TAP_E_CORRUPT);
    close(fd);
}

/* A disk that was cut off while it wrote has any sectors of the new half and the rest as they were. */
static void any_sectors_of_a_write(void **state)
{
    enum { SECTOR = 512, ROUNDS = 60, STATES = 40 };
    static char before[TAP_JOURNAL_BYTES], after[TAP_JOURNAL_BYTES], torn[TAP_JOURNAL_BYTES];
    const char *path = *state;
    tap_journal *journal;
    uint64_t count = 0;
    assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
    int fd = open(path, O_RDWR);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(pread(fd, before, sizeof before, 0), sizeof before);
        uint64_t was = count;
        char name[64]; /* one add: it writes by itself, or the sync does, never both */
        snprintf(name, sizeof name, "layer.%d.%llu", round, (unsigned long long)(next_random() % 50));
        tap__journal_add(journal, name, round, TAP_REASON_DISK_FULL, 1 + (uint64_t)round, 10);
        count += 1 + (uint64_t)round;
        assert_int_equal(tap__journal_sync(journal), TAP_OK);
        assert_int_equal(pread(fd, after, sizeof after, 0), sizeof after);
        for (int k = 0; round > 1 && k < STATES; k++) {
            memcpy(torn, before, sizeof torn);
            for (size_t at = 0; at < sizeof torn; at += SECTOR)
                if (next_random() % 2)
                    memcpy(torn + at, after + at, SECTOR);
            assert_int_equal(pwrite(fd, torn, sizeof torn, 0), sizeof torn);
            sum s = {0};
            tap_error err;
            tap_status status = tap__journal_read(root, LOST, add_up, &s, &err);
            if (status != TAP_OK || (s.count != was && s.count != count))
                fail_msg("round %d: status %d, %llu saves, not %llu or %llu", round, (int)status,
                         (unsigned long long)s.count, (unsigned long long)was, (unsigned long long)count);
        }
        assert_int_equal(pwrite(fd, after, sizeof after, 0), sizeof after);
    }
    close(fd);
    tap__journal_close(journal);
}

/* What the writer before this one could not record stays listed. */
static void handed_on(void **state)
{
    (void)state;
    for (uint64_t writer = 1; writer <= 4; writer++) {
        tap_journal *journal;
        sum s = {0};
        assert_int_equal(tap__journal_create(root, LOST, &journal, NULL), TAP_OK);
        assert_int_equal(tap__journal_add(journal, "x", 7, TAP_REASON_DISK_FULL, 1, 5), TAP_OK);
        assert_int_equal(tap__journal_sync(journal), TAP_OK);
        tap__journal_close(journal);
        assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
        assert_int_equal(s.count, writer);
        assert_int_equal(s.calls, 1);
    }
}

/* Without memory nothing is forgotten that was taken, and nothing taken that is not said. */
static void without_memory(void **state)
{
    const char *path = *state;
    for (long n = 0; n < 40; n++) {
        tap_journal *journal = NULL;
        sum s = {0};
        uint64_t taken = 0;
        unlink(path);
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        tap_status status = tap__journal_create(root, LOST, &journal, NULL);
        for (int i = 0; status == TAP_OK && i < 5; i++) {
            char name[8] = {(char)('a' + i)};
            taken += tap__journal_add(journal, name, 1, TAP_REASON_NO_MEMORY, 1, 1) == TAP_OK;
        }
        bool synced = status == TAP_OK && tap__journal_sync(journal) == TAP_OK;
        tap_allocator_set(NULL);
        if (status == TAP_OK && !synced)
            assert_int_equal(tap__journal_sync(journal), TAP_OK);
        tap__journal_close(journal);
        assert_int_equal(tap__journal_read(root, LOST, add_up, &s, NULL), TAP_OK);
        assert_true(s.count >= taken && s.count <= 5);
    }
}

static int setup(void **state)
{
    char *dir = scratch_make(), *path = malloc(strlen(dir) + 16);
    sprintf(path, "%s/%s", dir, LOST);
    assert_int_equal(tap__dir_open(dir, false, &root, NULL), TAP_OK);
    free(dir);
    *state = path;
    return 0;
}

static int teardown(void **state)
{
    tap__dir_close(root);
    *strrchr(*state, '/') = 0;
    scratch_drop(*state);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(adds_up), T(members_of_other_types), T(one_half_is_whole),
                                       T(any_sectors_of_a_write), T(handed_on),
                                       T(without_memory)};
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
