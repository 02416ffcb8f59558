/* test_pass.c - a pass gives the same bits on every instruction set, for every dtype, however the tensor lies in memory
 * and in whatever pieces it is read; and the right ones, by a plain look at each value. */
#include "tensor/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tensor/hash.h"
#include "tensor/pass.h"

static const char *const ISAS[] = {"plain", "avx2", "avx512", "neon"};
enum { ISA_COUNT = 4, BYTES = 60000, BOTH = TAP_SCAN_STATS | TAP_SCAN_HASH };

static unsigned char pool[2 * BYTES + 64], out[2 * BYTES + 64], expected[2 * BYTES + 64];
/* 0: any bits, which are NaN and infinite now and then; 1: usual values; 2: usual ones with zeros and infinities */
static void fill(tap_dtype dtype, int kind)
{
    for (size_t i = 0; i < sizeof pool; i++)
        pool[i] = (unsigned char)next_random();
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (kind == 0 || (info->kind != 'F' && info->kind != 'C'))
        return;
    size_t count = sizeof pool / info->bytes * (info->kind == 'C' ? 2 : 1) * info->values / info->values;
    double *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = ((double)(next_random() % 20000) - 10000) / 64;
        if (kind == 2 && next_random() % 8 == 0)
            values[i] = next_random() % 4 ? 0 : next_random() % 2 ? (double)INFINITY : -(double)INFINITY;
    }
    tap_dtype part = dtype == TAP_C32 ? TAP_F16 : dtype == TAP_C64 ? TAP_F32 : dtype == TAP_C128 ? TAP_F64 : dtype;
    int64_t shape[1] = {(int64_t)count};
    tap_tensor t = {.data = values, .dtype = TAP_F64, .ndim = 1, .shape = shape};
    assert_int_equal(tap_tensor_convert(&t, part, pool, NULL), TAP_OK);
    free(values);
}

static bool use(const char *isa)
{
    return tap_isa_set(isa);
}

static uint64_t everywhere;

typedef struct result {
    tap_stats stats;
    uint64_t hash;
} result;

static result scan(const tap_tensor *tensor, void *dst)
{
    result r;
    memset(&r, 0, sizeof r);
    tap_error err;
    if (tap_tensor_scan(tensor, BOTH, dst, &r.stats, &r.hash, &err))
        fail_msg("%s", err.message);
    return r;
}

/* Row-major bytes, one element at a time by the definition of strides. */
static void copy_plainly(const tap_tensor *t, unsigned char *to)
{
    int64_t count = tap_tensor_count(t), index[TAP_MAX_NDIM] = {0};
    size_t item = tap_dtype_describe(t->dtype)->bytes;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0, expect = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            offset += index[d] * (t->strides ? t->strides[d] : expect);
            expect *= t->shape[d];
        }
        memcpy(to + (size_t)i * item, (const char *)t->data + offset * (int64_t)item, item);
        for (int d = t->ndim - 1; d >= 0 && ++index[d] == t->shape[d]; d--)
            index[d] = 0;
    }
}

/* What every machine must find for the values that the seed gives; they are compared with plain code besides. */
static void same_everywhere(const result *r)
{
    const uint64_t both[2] = {everywhere, tap_hash_bytes(r, sizeof *r)};
    everywhere = tap_hash_bytes(both, sizeof both);
}

static bool near(double got, long double want, long double size)
{
    return fabsl((long double)got - want) <= 4e-16L * (fabsl(want) + size);
}

static double number(char kind, tap_number n)
{
    return kind == 'I' ? (double)n.i : kind == 'F' || kind == 'C' ? n.f : (double)n.u;
}

/* Against tap_tensor_value: counts, extremes, mean and norm. */
static void check_plainly(const tap_tensor *t, const tap_stats *s)
{
    const tap_dtype_info *info = tap_dtype_describe(t->dtype);
    int64_t count = tap_tensor_count(t) * info->values;
    uint64_t nan = 0, pos = 0, neg = 0, zero = 0, finite = 0;
    double min = (double)INFINITY, max = -(double)INFINITY;
    long double sum = 0, square = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = tap_tensor_value(t, i);
        nan += isnan(x);
        pos += isinf(x) && x > 0;
        neg += isinf(x) && x < 0;
        zero += x == 0;
        min = x < min ? x : min;
        max = x > max ? x : max;
        if (isfinite(x) && fabs(x) < 1e150) {
            sum += x;
            size += fabsl((long double)x);
            square += (long double)x * x;
        }
        finite += isfinite(x) != 0;
    }
    assert_int_equal(s->count, (uint64_t)count);
    assert_int_equal(s->nan, nan);
    assert_int_equal(s->pos_inf, pos);
    assert_int_equal(s->neg_inf, neg);
    assert_int_equal(s->zero, zero);
    if (count > (int64_t)nan) {
        assert_true(number(info->kind, s->min) == min && number(info->kind, s->max) == max);
    }
    if (finite && fmax(fabs(isinf(min) ? 0 : min), fabs(isinf(max) ? 0 : max)) < 1e150) {
        assert_true(near(s->mean, sum / finite, size / finite));
        assert_true(near(s->norm, sqrtl(square), 0));
    }
}

/* On every instruction set, with the copy, against plain code and against each other. */
static void check_everywhere(const tap_tensor *t)
{
    result first, contiguous;
    bool have = false;
    size_t bytes = (size_t)tap_tensor_bytes(t);
    copy_plainly(t, expected);
    for (int i = 0; i < ISA_COUNT; i++) {
        if (!use(ISAS[i]))
            continue;
        memset(out, 0xA5, sizeof out);
        result r = scan(t, out);
        assert_memory_equal(out, expected, bytes);
        assert_int_equal(out[bytes], 0xA5);
        result without = scan(t, NULL);
        assert_memory_equal(&r, &without, sizeof r);
        tap_tensor packed = {.data = expected, .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape};
        contiguous = scan(&packed, NULL);
        assert_memory_equal(&r, &contiguous, sizeof r);
        assert_int_equal(r.hash, tap_hash_bytes(expected, bytes));
        if (!have)
            first = r;
        have = true;
        assert_memory_equal(&r, &first, sizeof r);
    }
    tap_isa_set(NULL);
    check_plainly(t, &first.stats);
    same_everywhere(&first);
}

static void every_dtype_every_length(void **state)
{
    (void)state;
    static const int64_t LENGTHS[] = {0, 1, 2, 7, 15, 16, 17, 127, 128, 129, 255, 2047, 2049, 3700};
    for (int dtype = 1; dtype < TAP_DTYPE_END; dtype++)
        for (int kind = 0; kind < 3; kind++) {
            fill((tap_dtype)dtype, kind);
            for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++)
                for (int skip = 0; skip < 4; skip += 3) { /* data that is not aligned */
                    int64_t shape[1] = {LENGTHS[i]};
                    tap_tensor t = {.data = pool + (kind == 0 ? skip : 0), .dtype = (tap_dtype)dtype, .ndim = 1,
                                    .shape = shape};
                    check_everywhere(&t);
                }
        }
}

static void every_dtype_strided(void **state)
{
    (void)state;
    static const struct {
        int ndim;
        int64_t shape[4], strides[4], first;
    } VIEWS[] = {
        {2, {30, 40}, {1, 30}, 0},              /* transposed */
        {2, {30, 40}, {80, 2}, 0},              /* every second */
        {2, {30, 40}, {-40, 1}, 29 * 40},       /* rows backwards */
        {1, {1500}, {-1}, 1499},                /* backwards */
        {2, {50, 60}, {0, 1}, 0},               /* one row repeated */
        {2, {50, 60}, {1, 0}, 0},               /* one column repeated */
        {1, {3000}, {0}, 5},                    /* one value repeated */
        {4, {3, 1, 20, 11}, {220, 7, 11, 1}, 0}, /* contiguous but for a dimension of one */
        {4, {5, 7, 11, 3}, {1, 5, 105, 35}, 0}, /* permuted */
        {3, {0, 4, 5}, {20, 5, 1}, 0},          /* empty */
        {0, {0}, {0}, 3},                       /* one value */
        {3, {2, 700, 2}, {1400, 1, 700}, 0},
    };
    for (int dtype = 1; dtype < TAP_DTYPE_END; dtype++) {
        fill((tap_dtype)dtype, dtype % 3);
        int64_t item = tap_dtype_describe((tap_dtype)dtype)->bytes;
        for (size_t i = 0; i < sizeof VIEWS / sizeof VIEWS[0]; i++) {
            tap_tensor t = {.data = pool + VIEWS[i].first * item, .dtype = (tap_dtype)dtype, .ndim = VIEWS[i].ndim,
                            .shape = VIEWS[i].shape, .strides = VIEWS[i].strides};
            check_everywhere(&t);
        }
    }
}

static void rank_64(void **state)
{
    (void)state;
    int64_t shape[TAP_MAX_NDIM], strides[TAP_MAX_NDIM];
    for (int i = 0; i < TAP_MAX_NDIM; i++) {
        shape[i] = i % 7 == 3 ? 2 : 1;
        strides[i] = i % 7 == 3 ? 1 << (i / 7) : 99; /* in the opposite order of a contiguous tensor */
    }
    fill(TAP_F32, 1);
    tap_tensor t = {.data = pool, .dtype = TAP_F32, .ndim = TAP_MAX_NDIM, .shape = shape, .strides = strides};
    assert_int_equal(tap_tensor_count(&t), 512);
    check_everywhere(&t);
}

/* Runs after the three tests above. */
static void architectures_agree(void **state)
{
    (void)state;
    assert_int_equal(everywhere, UINT64_C(0x8FA51FC23030E27A));
}

static void more_than_two_to_the_31(void **state)
{
    (void)state;
    unsigned char value[2] = {3, 0};
    int64_t shape[2] = {2, (INT64_C(1) << 30) + 5}, strides[2] = {1, 0};
    tap_tensor t = {.data = value, .dtype = TAP_U8, .ndim = 2, .shape = shape, .strides = strides};
    tap_stats s;
    assert_int_equal(tap_tensor_scan(&t, TAP_SCAN_STATS, NULL, &s, NULL, NULL), TAP_OK);
    assert_int_equal(s.count, (UINT64_C(1) << 31) + 10);
    assert_int_equal(s.zero, (UINT64_C(1) << 30) + 5);
    assert_true(s.mean == 1.5);
    assert_int_equal(s.max.u, 3);
    assert_true(s.norm == sqrt(9.0 * (double)shape[1]));
}

static void hash_in_pieces(void **state)
{
    (void)state;
    fill(TAP_U8, 0);
    for (int i = 0; i < ISA_COUNT; i++) {
        if (!use(ISAS[i]))
            continue;
        for (int k = 0; k < 200; k++) {
            size_t len = next_random() % 5000, first = next_random() % 700 * 8;
            first = first > len ? len / 8 * 8 : first;
            const unsigned char *at = pool + k % 16;
            uint64_t whole = tap__hash_sum(at, len, 0);
            uint64_t parts = tap__hash_sum(at, first, 0) + tap__hash_sum(at + first, len - first, first / 8);
            assert_int_equal(whole, parts);
        }
    }
    tap_isa_set(NULL);
    assert_int_equal(tap_hash_bytes("", 0), tap__hash_finish(0, 0));
    unsigned char one[9] = "tensor x", other[9] = "tensor y";
    assert_true(tap_hash_bytes(one, 8) != tap_hash_bytes(other, 8));
    assert_true(tap_hash_bytes(one, 8) != tap_hash_bytes(one, 9));
}

static void a_bit_changes_the_hash(void **state)
{
    (void)state;
    fill(TAP_U8, 0);
    uint64_t before = tap_hash_bytes(pool, 300);
    for (int bit = 0; bit < 300 * 8; bit++) {
        pool[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(tap_hash_bytes(pool, 300) != before);
        pool[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* As the recorder does it for a tensor larger than its room; large enough for copies past the cache. */
static void pieces_equal_the_whole(void **state)
{
    (void)state;
    enum { LARGE = (1 << 20) + 3 * TAP_PASS_UNIT + 40 };
    unsigned char *data = malloc(LARGE), *copy = aligned_alloc(64, 17 * (1 << 16));
    assert_true(data && copy);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (unsigned char)next_random();
    static const tap_dtype DTYPES[] = {TAP_F32, TAP_F64, TAP_BF16, TAP_I32, TAP_C64};
    for (int i = 0; i < ISA_COUNT; i++)
        for (size_t d = 0; use(ISAS[i]) && d < sizeof DTYPES / sizeof DTYPES[0]; d++)
            for (int strided = 0; strided < 2; strided++) {
                int64_t item = tap_dtype_describe(DTYPES[d])->bytes;
                int64_t shape[2] = {LARGE / item / 10, 10}, strides[2] = {10, 1}, flipped[2] = {1, LARGE / item / 10};
                tap_tensor t = {.data = data, .dtype = DTYPES[d], .ndim = 2, .shape = shape,
                                .strides = strided ? flipped : strides};
                result whole = scan(&t, NULL), pieces;
                memset(&pieces, 0, sizeof pieces);
                tap_pass pass;
                assert_int_equal(tap__pass_begin(&pass, &t, BOTH, NULL), TAP_OK);
                for (uint64_t left = pass.bytes, done = 0; left;) {
                    uint64_t take = TAP_PASS_UNIT * (1 + done / TAP_PASS_UNIT % 5);
                    take = take < left ? take : left;
                    tap__pass_next(&pass, copy + done, take);
                    done += take;
                    left -= take;
                }
                tap__pass_end(&pass, &pieces.stats, &pieces.hash);
                assert_memory_equal(&whole, &pieces, sizeof whole);
                assert_int_equal(whole.hash, tap_hash_bytes(copy, (size_t)pass.bytes));
                for (int64_t k = 0; k < shape[0] * shape[1]; k++) {
                    int64_t from = strided ? k / 10 + k % 10 * shape[0] : k;
                    if (memcmp(copy + k * item, data + from * item, (size_t)item) != 0)
                        fail_msg("element %d of a copy", (int)k);
                }
            }
    tap_isa_set(NULL);
    free(data);
    free(copy);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    int64_t shape[2] = {2, -1}, large[2] = {INT64_MAX, 4};
    float x[2] = {0};
    tap_stats s;
    tap_error err;
    const tap_tensor BAD[] = {
        {x, (tap_dtype)99, 1, large, NULL}, {x, TAP_F32, 65, large, NULL}, {x, TAP_F32, 2, shape, NULL},
        {x, TAP_F32, 2, large, NULL}, {x, TAP_F32, 1, NULL, NULL}, {NULL, TAP_F32, 0, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(tap_tensor_scan(&BAD[i], BOTH, NULL, &s, NULL, &err), TAP_E_INVALID);
        assert_true(strlen(err.message) > 20);
    }
    assert_false(tap_isa_set("mmx"));
    assert_non_null(tap_isa_name());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_every_length), cmocka_unit_test(every_dtype_strided), cmocka_unit_test(rank_64),
        cmocka_unit_test(architectures_agree),
        cmocka_unit_test(more_than_two_to_the_31), cmocka_unit_test(hash_in_pieces),
        cmocka_unit_test(a_bit_changes_the_hash), cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
