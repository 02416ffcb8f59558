/* bench_scan.c - how fast a pass over a tensor is, beside reading and copying the same bytes. Rates of one round are
 * measured one after another and the best of several rounds counts, so that a busy machine disturbs all alike.
 *
 *     bench_scan [MiB] [rounds]      TENSORTAP_ISA=avx2 bench_scan */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensortap/tensortap.h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static volatile uint64_t sink;
static int only_lines;
static char *src, *dst;
static size_t bytes;
static tap_tensor tensor;
static int64_t shape[2], strides[2];

/* The least that looking at every byte can cost: independent sums over whole cache lines. */
static void read_all(void)
{
    typedef uint64_t line __attribute__((vector_size(64), may_alias));
    line a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 256 <= bytes; i += 256) {
        const line *at = (const line *)(const void *)(src + i);
        a += at[0];
        b += at[1];
        c += at[2];
        d += at[3];
    }
    a += b + c + d;
    sink += a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static void copy_all(void)
{
    memcpy(dst, src, bytes);
}

static void scan(unsigned what, void *to)
{
    tap_stats stats = {0};
    uint64_t hash = 0;
    if (tap_tensor_scan(&tensor, what, to, &stats, &hash, NULL))
        abort();
    sink += hash + stats.zero;
}

static void scan_stats(void)
{
    scan(TAP_SCAN_STATS, NULL);
}

static void scan_hash(void)
{
    scan(TAP_SCAN_HASH, NULL);
}

static void scan_stats_hash(void)
{
    scan(TAP_SCAN_STATS | TAP_SCAN_HASH, NULL);
}

static void scan_copy(void)
{
    scan(TAP_SCAN_STATS | TAP_SCAN_HASH, dst);
}

typedef struct mode {
    const char *name;
    void (*run)(void);
    double best;
} mode;

static void measure(mode *modes, size_t count, int rounds, int repeats)
{
    for (size_t i = 0; i < count; i++)
        modes[i].best = 1e9;
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < count; i++) {
            double start = seconds();
            for (int k = 0; k < repeats; k++)
                modes[i].run();
            double took = (seconds() - start) / repeats;
            modes[i].best = took < modes[i].best ? took : modes[i].best;
        }
}

static void table(const char *title, int rounds)
{
    mode modes[] = {{"read", read_all, 0}, {"memcpy", copy_all, 0}, {"stats", scan_stats, 0}, {"hash", scan_hash, 0},
                    {"stats+hash", scan_stats_hash, 0}, {"stats+hash+copy", scan_copy, 0}};
    size_t count = sizeof modes / sizeof modes[0];
    measure(modes, count, rounds, 1);
    if (only_lines) { /* for table.py */
        for (size_t i = 0; i < count; i++)
            printf("%s %.6g GB/s\n", modes[i].name, (double)bytes / modes[i].best * 1e-9);
        return;
    }
    printf("\n%s\n%-18s %9s %12s %12s\n", title, "", "GB/s", "of read", "x memcpy");
    for (size_t i = 0; i < count; i++)
        printf("%-18s %9.2f %11.0f%% %12.2f\n", modes[i].name, (double)bytes / modes[i].best * 1e-9,
               100 * modes[0].best / modes[i].best, modes[i].best / modes[1].best);
}

static void small(int64_t count)
{
    shape[0] = count;
    mode modes[] = {{"stats", scan_stats, 0}, {"stats+hash", scan_stats_hash, 0}, {"stats+hash+copy", scan_copy, 0}};
    measure(modes, 3, 7, 20000);
    printf("%8lld float32:", (long long)count);
    for (size_t i = 0; i < 3; i++)
        printf("   %s %.0f ns", modes[i].name, modes[i].best * 1e9);
    printf("\n");
}

/* Values of about 50 in the given dtype, as usual tensors have them. */
static void fill(tap_dtype dtype)
{
    enum { PIECE = 4096 };
    static float x[2 * PIECE];
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    uint64_t state = 1;
    tap_dtype part = dtype == TAP_C64 ? TAP_F32 : dtype;
    int64_t values[1] = {PIECE};
    tap_tensor piece = {.data = x, .dtype = TAP_F32, .ndim = 1, .shape = values};
    size_t step = PIECE * (size_t)tap_dtype_describe(part)->bytes / info->values;
    for (size_t at = 0; at + step <= bytes; at += step) {
        for (size_t i = 0; i < PIECE; i++) {
            float v = 0;
            for (int k = 0; k < 4; k++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                v += (float)(int32_t)(state >> 32) * 0x1p-26f;
            }
            x[i] = info->kind == 'U' && v < 0 ? -v : v;
        }
        if (tap_tensor_convert(&piece, part, src + at, NULL))
            abort();
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--lines")) {
        only_lines = 1;
        argc = 1;
    }
    size_t mib = argc > 1 ? (size_t)atoi(argv[1]) : 64;
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    bytes = mib << 20;
    src = aligned_alloc(4096, bytes);
    dst = aligned_alloc(4096, bytes);
    if (!src || !dst)
        return 1;
    fill(TAP_F32);
    memset(dst, 1, bytes);
    tensor = (tap_tensor){.data = src, .dtype = TAP_F32, .ndim = 1, .shape = shape};
    shape[0] = (int64_t)(bytes / 4);
    char title[64];
    if (only_lines) {
        table("", 15);
        return 0;
    }
    printf("kernels: %s\n", tap_isa_name());
    snprintf(title, sizeof title, "%zu MiB float32", mib);
    table(title, rounds);

    static const tap_dtype OTHERS[] = {TAP_F64, TAP_BF16, TAP_F16, TAP_F8E4M3FN, TAP_U8, TAP_I32, TAP_I64, TAP_C64};
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        tensor.dtype = OTHERS[i];
        fill(OTHERS[i]);
        shape[0] = (int64_t)(bytes / tap_dtype_describe(OTHERS[i])->bytes);
        snprintf(title, sizeof title, "%zu MiB %s", mib, tap_dtype_describe(OTHERS[i])->name);
        table(title, rounds / 2 + 1);
    }

    fill(TAP_F32);
    tensor.dtype = TAP_F32;
    tensor.ndim = 2;
    tensor.strides = strides;
    int64_t side = 256;
    while (side * side * 16 <= (int64_t)bytes)
        side *= 2;
    shape[0] = shape[1] = side;
    strides[0] = 1;
    strides[1] = side;
    bytes = (size_t)(side * side) * 4;
    snprintf(title, sizeof title, "%lld x %lld float32, transposed", (long long)side, (long long)side);
    table(title, 3);

    tensor.ndim = 1;
    tensor.strides = NULL;
    printf("\n");
    for (int64_t n = 1; n <= 16384; n = n == 1 ? 15 : n == 15 ? 256 : n * 8)
        small(n);
    return 0;
}
