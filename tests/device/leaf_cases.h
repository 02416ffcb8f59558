/* leaf_cases.h - what a tap kernel must give, wherever it runs: header and payload are compared with tap_tensor_scan bit for bit,
 * mean and norm with sums in 128-bit floats. Included by the test that runs kernels natively and by the one on a GPU. */
#ifndef TAP_TESTS_LEAF_CASES_H
#define TAP_TESTS_LEAF_CASES_H

#include "tensor/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "device/leaf.h"
#include "tensor/walk.h"

enum { CASE_BYTES = 300000, CASE_PAYLOAD = CASE_BYTES + 64 };

/* Runs the tap of a view of `pool`, which the machine has where its kernels can read it; fills header and payload. */
typedef void (*leaf_run)(tap_k_tap *tap, unsigned blocks, unsigned threads, const char *pool, tap_k_header *header, char *payload);

static char case_pool[CASE_BYTES] __attribute__((aligned(64)));
static char case_payload[CASE_PAYLOAD], case_expected[CASE_PAYLOAD];

static int case_kind; /* of what is in the pool */

/* 0: any bits; 1: usual values; 2: large ones that cancel beside them; 3: very large and very small ones */
static void case_fill(tap_dtype dtype, int kind)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    case_kind = kind;
    for (size_t i = 0; i < sizeof case_pool; i++)
        case_pool[i] = (char)next_random();
    if (kind == 0 || (info->kind != 'F' && info->kind != 'C'))
        return;
    tap_dtype part = dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : dtype == TAP_C128 ? TAP_F64 : dtype;
    int64_t count = (int64_t)(sizeof case_pool / tap_dtype_describe(part)->bytes * tap_dtype_describe(part)->values);
    double *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = ((double)(next_random() % 20000) - 10000) / 64;
        if (kind == 2 && i % 2 == 0)
            values[i] = i % 4 ? -0x1p14 : 0x1p14;
        if (kind == 3)
            values[i] = ldexp(values[i], next_random() % 3 ? -1000 : 900);
        if (next_random() % 16 == 0)
            values[i] = next_random() % 4 ? 0 : next_random() % 2 ? (double)INFINITY : (double)NAN;
    }
    tap_tensor t = {.data = values, .dtype = TAP_F64, .ndim = 1, .shape = &count};
    assert_int_equal(tap_tensor_convert(&t, part, case_pool, NULL), TAP_OK);
    free(values);
}

static __float128 case_value(const tap_tensor *dense, int64_t i)
{
    if (dense->dtype == TAP_I64)
        return ((const int64_t *)dense->data)[i];
    if (dense->dtype == TAP_U64)
        return ((const uint64_t *)dense->data)[i];
    return tap_tensor_value(dense, i);
}

/* Within four units in the last place. Where the values are any bits, and so span more powers of two than a plain sum of a few holds
 * (src/tensor/kernels has the same bound), what such a sum may be off by is allowed beside: a part of `sizes`, the mean size. */
static void case_near(const char *what, const char *name, double got, __float128 want, __float128 sizes)
{
    double near = (double)want, ulp = fabs(nextafter(near, INFINITY) - near);
    if (!isfinite(ulp))
        ulp = fabs(near - nextafter(near, 0));
    ulp += case_kind == 0 ? (double)(sizes * 0x1p-54) : 0;
    if (isinf(near) ? got != near : !(fabs((double)((__float128)got - want)) <= 4 * ulp))
        fail_msg("%s of %s: %a, and it is %a", what, name, got, near);
}

static void case_sums(const tap_tensor *dense, const tap_dtype_info *info, const tap_stats *stats)
{
    __float128 sum = 0, square = 0, sizes = 0;
    int64_t finite = 0, count = dense->shape[0] * info->values;
    for (int64_t i = 0; i < count; i++) {
        __float128 x = case_value(dense, i);
        if (!isfinite((double)x))
            continue;
        finite++;
        sum += x;
        sizes += x < 0 ? -x : x;
        square += x * x;
    }
    case_near("mean", info->name, stats->mean, finite ? sum / finite : 0, finite ? sizes / finite : 0);
    case_near("norm", info->name, stats->norm, sqrtl((long double)square), 0);
}

/* One view through the kernel. */
static void case_run(leaf_run run, const tap_tensor *view, unsigned blocks, unsigned threads)
{
    const tap_dtype_info *info = tap_dtype_describe(view->dtype);
    tap_stats want, got;
    uint64_t want_hash, got_hash, bytes = (uint64_t)tap_tensor_bytes(view);
    tap_k_header header;
    tap_k_tap tap;
    memset(&tap, 0, sizeof tap);
    memset(&header, 0xAA, sizeof header);
    memset(case_payload, 0x55, sizeof case_payload);
    tap.what = TAP_K_STATS | TAP_K_HASH | TAP_K_COPY;
    assert_int_equal(tap__leaf_view(&tap, view, NULL), TAP_OK);
    assert_int_equal(tap.bytes, bytes);
    run(&tap, blocks, threads, case_pool, &header, case_payload);
    assert_int_equal(tap_tensor_scan(view, TAP_SCAN_STATS | TAP_SCAN_HASH, case_expected, &want, &want_hash, NULL), TAP_OK);
    tap__leaf_finish(&header.sums, view->dtype, bytes, &got, &got_hash);
    assert_int_equal(header.payload_bytes, bytes);
    assert_memory_equal(case_payload, case_expected, bytes);
    for (size_t i = (bytes + TAP_K_UNIT - 1) / TAP_K_UNIT * TAP_K_UNIT; i < sizeof case_payload; i++)
        assert_int_equal(case_payload[i], 0x55);
    bool same = got_hash == want_hash && got.count == want.count && got.nan == want.nan && got.pos_inf == want.pos_inf &&
                got.neg_inf == want.neg_inf && got.zero == want.zero && got.min.u == want.min.u && got.max.u == want.max.u;
    if (!same)
        fail_msg("%s, %llu bytes, %u blocks of %u: hash %d count %d nan %d inf %d %d zero %d min %a %a max %a %a", info->name,
                 (unsigned long long)bytes, blocks, threads, got_hash == want_hash, got.count == want.count,
                 got.nan == want.nan, got.pos_inf == want.pos_inf, got.neg_inf == want.neg_inf, got.zero == want.zero,
                 got.min.f, want.min.f, got.max.f, want.max.f);
    int64_t dense_shape[1] = {(int64_t)(bytes / info->bytes)};
    case_sums(&(tap_tensor){case_expected, view->dtype, 1, dense_shape, NULL}, info, &got);
}

static void cases_of_sizes(leaf_run run, unsigned blocks, unsigned threads)
{
    static const int64_t COUNTS[] = {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 100, 257, 1023};
    for (int d = 1; d < TAP_DTYPE_END; d++)
        for (int kind = 0; kind < 4; kind++) {
            case_fill((tap_dtype)d, kind);
            for (size_t i = 0; i < sizeof COUNTS / sizeof COUNTS[0]; i++) {
                int64_t item = tap_dtype_describe((tap_dtype)d)->bytes, skip = i % 3; /* not always at the start of a unit */
                case_run(run, &(tap_tensor){case_pool + skip * item, (tap_dtype)d, 1, &COUNTS[i], NULL}, blocks, threads);
            }
        }
}

/* Transposed, stepped, reversed, repeated and of many dimensions. */
static void cases_of_views(leaf_run run, unsigned blocks, unsigned threads)
{
    static const int64_t SHAPES[][4] = {{6, 5, 4, 3}, {3, 1, 7, 11}, {2, 9, 1, 5}, {4, 4, 4, 4}, {1, 1, 1, 1}, {5, 0, 2, 2}};
    static const int64_t STRIDES[][4] = {{1, 6, 30, 120}, {77, 5, 11, 1}, {45, 5, 1, 1}, {0, 16, 0, 1}, {9, 9, 9, 9}, {1, 1, 1, 1}};
    for (int d = 1; d < TAP_DTYPE_END; d++) {
        case_fill((tap_dtype)d, 1);
        int64_t item = tap_dtype_describe((tap_dtype)d)->bytes;
        for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++)
            case_run(run, &(tap_tensor){case_pool, (tap_dtype)d, 4, SHAPES[i], STRIDES[i]}, blocks, threads);
        int64_t back[2] = {-40, -2}, size[2] = {20, 20};
        case_run(run, &(tap_tensor){case_pool + 2000 * item, (tap_dtype)d, 2, size, back}, blocks, threads);
        int64_t many[TAP_MAX_NDIM], steps[TAP_MAX_NDIM];
        for (int i = 0; i < TAP_MAX_NDIM; i++) {
            many[i] = i % 8 == 0 ? 2 : 1;
            steps[i] = i % 8 == 0 ? 1 + i / 8 * 3 : 5;
        }
        case_run(run, &(tap_tensor){case_pool, (tap_dtype)d, TAP_MAX_NDIM, many, steps}, blocks, threads);
    }
}

/* As many blocks and threads as a leaf of its size gets. */
static void cases_of_launches(leaf_run run)
{
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_BF16, TAP_I64, TAP_F64, TAP_C64, TAP_BOOL};
    for (size_t i = 0; i < sizeof DTYPES / sizeof DTYPES[0]; i++) {
        case_fill(DTYPES[i], 1);
        for (int64_t bytes = 1 << 10; bytes < CASE_BYTES; bytes = bytes * 5 + 48) {
            int64_t count = bytes / tap_dtype_describe(DTYPES[i])->bytes;
            uint64_t whole = (uint64_t)count * tap_dtype_describe(DTYPES[i])->bytes;
            case_run(run, &(tap_tensor){case_pool, DTYPES[i], 1, &count, NULL}, tap__leaf_blocks(whole), tap__leaf_threads(whole));
        }
    }
}

#endif
