/* fuzz_compare.c - the kept result of a comparison with any bytes of it changed: opening, summing up, the verdict and
 * every row never crash, hang or read beyond. An input is a list of changes of 4 bytes: u24 place (past the end: the file ends
 * there), u8 what to xor with. */
#include "file_oracle.h"
#include "tensortap/tensortap_compare.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static char dir[] = "/dev/shm/tap-fuzz-XXXXXX";
static uint8_t *whole;
static size_t whole_bytes;

static const char *in_dir(const char *name)
{
    static char path[2][128];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void clean_up(void)
{
    static const char *const NAMES[] = {"a.npy", "b.npy", "kept.cmp", "fuzzed.cmp", ""};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        remove(in_dir(NAMES[i]));
}

static void put_npy(const char *name, float last)
{
    float values[4] = {1, -2, 0.5f, last};
    int64_t four = 4;
    tap_tensor tensor = {values, TAP_F32, 1, &four, NULL};
    ORACLE(tap_file_write(in_dir(name), "npy", &tensor, NULL, 1, true, NULL) == TAP_OK);
}

static void start(void)
{
    struct stat st;
    if (!mkdtemp(dir))
        abort();
    atexit(clean_up);
    put_npy("a.npy", 3);
    put_npy("b.npy", 3.5f);
    tap_compare_options options;
    tap_comparison *made;
    tap_error err;
    tap_compare_options_init(&options);
    options.output = in_dir("kept.cmp");
    char *a = strdup(in_dir("a.npy")), *b = strdup(in_dir("b.npy")), *kept = strdup(in_dir("kept.cmp"));
    options.output = kept;
    if (tap_compare_run(a, b, &options, &made, &err) != TAP_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    tap_comparison_close(made);
    int fd = open(kept, O_RDONLY);
    ORACLE(fd >= 0 && fstat(fd, &st) == 0);
    whole_bytes = (size_t)st.st_size;
    whole = malloc(whole_bytes);
    ORACLE(whole && read(fd, whole, whole_bytes) == (ssize_t)whole_bytes);
    close(fd);
    free(a);
    free(b);
    free(kept);
}

static void read_side(const tap_match_side *side)
{
    ORACLE(side->ndim >= 0 && side->ndim <= TAP_MAX_NDIM);
    oracle_sink = (unsigned char)(strlen(side->name) + strlen(side->source) + strlen(side->module) + strlen(side->file));
}

static void read_all(tap_comparison *comparison)
{
    tap_comparison_summary sum;
    tap_verdict verdict;
    tap_comparison_summary_init(&sum);
    tap_verdict_init(&verdict);
    if (tap_comparison_summarise(comparison, &sum, NULL) == TAP_OK)
        oracle_sink = (unsigned char)(strlen(sum.path[0]) + strlen(sum.layout[1]));
    tap_comparison_verdict(comparison, &verdict, NULL);
    tap_match_cursor *cursor;
    if (tap_comparison_query(comparison, NULL, &cursor, NULL) != TAP_OK)
        return;
    tap_match match;
    tap_match_init(&match);
    for (int i = 0; i < 1000 && tap_match_cursor_next(cursor, &match, NULL) == TAP_OK; i++) {
        read_side(&match.side[0]);
        read_side(&match.side[1]);
        oracle_sink = (unsigned char)(strlen(match.path) + strlen(match.reason));
    }
    tap_match_cursor_close(cursor);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool started;
    if (!started)
        start();
    started = true;
    uint8_t *copy = malloc(whole_bytes);
    if (!copy)
        return 0;
    memcpy(copy, whole, whole_bytes);
    size_t size = whole_bytes;
    for (; len >= 4; bytes += 4, len -= 4) {
        size_t place = (size_t)bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16;
        if (place < whole_bytes)
            copy[place] ^= bytes[3];
        else
            size = place % whole_bytes;
    }
    int fd = open(in_dir("fuzzed.cmp"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ORACLE(fd >= 0 && write(fd, copy, size) == (ssize_t)size);
    close(fd);
    free(copy);
    tap_comparison *comparison;
    tap_error err;
    tap_status status = tap_comparison_open(in_dir("fuzzed.cmp"), &comparison, &err);
    if (status == TAP_OK)
        read_all(comparison);
    else
        ORACLE(err.message[0]);
    if (status == TAP_OK)
        tap_comparison_close(comparison);
    return 0;
}
