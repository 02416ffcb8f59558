/* test_segment.c - segment files: the same bytes come out of buffered and direct writes, whatever the alignment of
 * memory and offset, on a disk and in memory; locks, cutting and taking over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "record/opened.h"
#include "record/scratch.h"
#include "record/native/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>

#define MIB (1u << 20)

/* A disk with O_DIRECT where there is one, and a tmpfs, which had none before Linux 6.5. */
static char *places[2];

static int make_places(void **state)
{
    (void)state;
    places[0] = scratch_make();
    char path[] = "/dev/shm/tap-test-XXXXXX";
    places[1] = mkdtemp(path) ? strdup(path) : NULL;
    return 0;
}

static int drop_places(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (places[i])
            scratch_drop(places[i]);
    return 0;
}

static tap_attempt_files files_in(const char *place, int32_t attempt)
{
    tap_attempt_files files = tap__attempt_files(opened(place), 0, attempt, 0);
    mkdirat(tap__dir_fd(files.root), files.dir, 0750);
    return files;
}

static tap_segment make_segment(const tap_attempt_files *files, uint32_t number)
{
    tap_segment segment;
    tap_error err;
    tap_segment_header header = {.magic = TAP_SEGMENT_MAGIC, .version = 1, .header_bytes = TAP_PAGE};
    header.first_entry = TAP_PAGE;
    header.segment = number;
    if (tap__segment_create(&segment, files, &header, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return segment;
}

static uint8_t pattern(uint64_t at)
{
    return (uint8_t)(at * 2654435761u >> 13);
}

static void expect_bytes(int fd, const uint8_t *expected, uint64_t offset, uint64_t len)
{
    uint8_t *back = malloc(len);
    assert_int_equal(pread(fd, back, len, (off_t)offset), len);
    for (uint64_t i = 0; i < len; i++)
        if (back[i] != expected[i])
            fail_msg("byte %llu of %llu at %llu", (unsigned long long)i, (unsigned long long)len,
                     (unsigned long long)offset);
    free(back);
}

static void every_alignment(void **state)
{
    (void)state;
    static const uint64_t SHIFTS[] = {0, 64, 4032, 100}, OFFSETS[] = {4096, 4160, 8128, 5000};
    static const uint64_t SIZES[] = {1, 4096, MIB - 1, MIB, MIB + 4095, MIB + 4096, 3 * MIB + 64};
    uint8_t *memory = aligned_alloc(4096, 5 * MIB);
    for (uint64_t i = 0; i < 5 * MIB; i++)
        memory[i] = pattern(i);
    for (int place = 0; place < 2; place++) {
        if (!places[place])
            continue;
        tap_attempt_files files = files_in(places[place], 0);
        tap_segment segment = make_segment(&files, 0);
        for (int direct = 0; direct < 2; direct++) {
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 4; k++)
                    for (int n = 0; n < 7; n++) {
                        assert_int_equal(tap__segment_write(&segment, memory + SHIFTS[i], SIZES[n], OFFSETS[k]), 0);
                        expect_bytes(segment.fd, memory + SHIFTS[i], OFFSETS[k], SIZES[n]);
                    }
            if (segment.direct >= 0) { /* once more as where there is no O_DIRECT */
                close(segment.direct);
                segment.direct = -1;
            }
        }
        tap__segment_close(&segment);
        struct stat st;
        char *path = segment_path(&files, 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        free(path);
    }
    free(memory);
}

/* Direct and buffered writes of neighbours share pages: neither may undo the other. */
static void a_log_of_odd_pieces(void **state)
{
    (void)state;
    uint64_t size = 24 * MIB, offset = TAP_PAGE, dice = 7;
    uint8_t *memory = aligned_alloc(4096, size);
    for (uint64_t i = 0; i < size; i++)
        memory[i] = pattern(i);
    for (int place = 0; place < 2; place++) {
        if (!places[place])
            continue;
        tap_attempt_files files = files_in(places[place], 1);
        tap_segment segment = make_segment(&files, 0);
        for (uint64_t at = 0; at < size;) { /* memory and file keep the same place within a page, as ring and log do */
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            uint64_t len = (dice >> 40) % (dice >> 33 & 1 ? 3 * MIB : 9000) / 64 * 64 + 64;
            len = len < size - at ? len : size - at;
            assert_int_equal(tap__segment_write(&segment, memory + at, len, offset + at), 0);
            at += len;
        }
        assert_int_equal(tap__segment_sync(&segment), 0);
        expect_bytes(segment.fd, memory, offset, size);
        tap__segment_close(&segment);
    }
    free(memory);
}

static void cutting_and_taking_over(void **state)
{
    (void)state;
    tap_attempt_files files = files_in(places[0], 2);
    tap_segment segment = make_segment(&files, 3), again;
    uint8_t bytes[1000];
    memset(bytes, 5, sizeof bytes);
    assert_int_equal(tap__segment_write(&segment, bytes, sizeof bytes, 4096), 0);
    tap__segment_cut(&segment, 4196);
    struct stat st;
    assert_int_equal(fstat(segment.fd, &st), 0);
    assert_int_equal(st.st_size, 4196);
    tap__segment_close(&segment);
    tap__segment_close(&segment); /* twice is fine */
    assert_int_equal(tap__segment_sync(&segment), 0);
    tap_error err;
    assert_int_equal(tap__segment_reopen(&again, &files, 3, &err), TAP_OK);
    expect_bytes(again.fd, bytes, 4096, 100);
    tap__segment_close(&again);
    again = make_segment(&files, 3); /* a writer died right after making it: the next takes it over */
    tap_segment_header header;
    assert_int_equal(pread(again.fd, &header, sizeof header, 0), sizeof header);
    assert_int_equal(header.segment, 3);
    assert_int_equal(header.header_hash, tap_hash_bytes(&header, offsetof(tap_segment_header, header_hash)));
    tap__segment_close(&again);
    assert_int_not_equal(tap__segment_reopen(&again, &files, 4, &err), TAP_OK);
    assert_non_null(strstr(err.message, "000004"));
}

static void *ask_for_a_moment(void *argument)
{
    int fd = *(int *)argument;
    usleep(50000);
    flock(fd, LOCK_UN);
    return NULL;
}

/* Somebody is just asking whether a writer is at work: the writer's lock comes all the same. */
static void the_lock_is_waited_for(void **state)
{
    (void)state;
    tap_attempt_files files = files_in(places[0], 3);
    char *path = segment_path(&files, 0);
    int fd = open(path, O_RDWR | O_CREAT, 0640);
    assert_int_equal(flock(fd, LOCK_SH | LOCK_NB), 0);
    pthread_t id;
    pthread_create(&id, NULL, ask_for_a_moment, &fd);
    tap_segment segment = make_segment(&files, 0);
    pthread_join(id, NULL);
    tap_attempt_info info = {.pid = 1};
    assert_true(tap__attempt_is_live(&files, &info));
    assert_int_not_equal(flock(fd, LOCK_SH | LOCK_NB), 0);
    tap__segment_close(&segment);
    assert_int_equal(flock(fd, LOCK_SH | LOCK_NB), 0);
    assert_false(tap__attempt_is_live(&files, &info));
    close(fd);
    free(path);
}

static void failures_are_errnos(void **state)
{
    (void)state;
    tap_segment closed = TAP_SEGMENT_CLOSED;
    uint8_t byte = 0;
    assert_int_equal(tap__segment_write(&closed, &byte, 1, 0), EBADF);
    tap__segment_cut(&closed, 0);
    tap__segment_close(&closed);
    if (access("/dev/full", W_OK) == 0) {
        tap_segment full = {NULL, 0, open("/dev/full", O_RDWR), -1};
        assert_int_equal(tap__segment_write(&full, &byte, 1, 0), ENOSPC);
        tap__segment_close(&full);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alignment),      cmocka_unit_test(a_log_of_odd_pieces),
        cmocka_unit_test(cutting_and_taking_over), cmocka_unit_test(the_lock_is_waited_for),
        cmocka_unit_test(failures_are_errnos),
    };
    return cmocka_run_group_tests_name("segment", tests, make_places, drop_places);
}
