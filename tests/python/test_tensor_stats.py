"""Statistics, hash, copy, conversion and single values against numpy, ml_dtypes, torch and exact arithmetic."""

import ctypes as C
import math
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from tensor_lib import DTYPES, HASH, HEALTH, STATS, Stats, carrier, convert, lib, scan, tensor

ISAS = [isa for isa in ("plain", "avx2", "avx512", "neon") if lib.tap_isa_set(isa.encode())]
lib.tap_isa_set(None)
FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@pytest.fixture(params=ISAS)
def isa(request):
    assert lib.tap_isa_set(request.param.encode())
    yield request.param
    lib.tap_isa_set(None)


def decode(array, name):
    """Every value as a Python int, float or complex, by somebody else's code."""
    with np.errstate(all="ignore"):
        return decode_quietly(array, name)


def decode_quietly(array, name):
    flat = np.ascontiguousarray(array).reshape(-1)
    if name == "bfloat16":
        return flat.view(ml_dtypes.bfloat16).astype(np.float64).tolist()
    if name == "complex32":
        parts = flat.view(np.float16).astype(np.float64).tolist()
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2])]
    if name == "float4_e2m1fn_x2":
        return [FP4[n] for b in flat.tolist() for n in (b & 15, b >> 4)]
    if name in FLOAT8:
        return flat.view(getattr(ml_dtypes, name)).astype(np.float64).tolist()
    return flat.tolist()


def magnitude(value):
    if isinstance(value, complex):
        if math.isnan(value.real) or math.isnan(value.imag):
            return math.nan
        return abs(value)
    return value


def exact_mean(values):
    return float(sum(map(Fraction, values)) / len(values))


def exact_norm(values):
    square = sum(Fraction(v) ** 2 for v in values)
    shift = 2400
    try:
        return float(Fraction(math.isqrt(int(square * (1 << (2 * shift)))), 1 << shift))
    except OverflowError:
        return math.inf


def close(got, want, ulps=2):
    return got == want or abs(got - want) <= ulps * math.ulp(want)


def random_bits(name, shape, rng):
    dtype = carrier(name)
    count = math.prod(shape)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def check(array, name, cancels=False):
    stats, digest, copied = scan(array, name)
    assert copied == np.ascontiguousarray(array).tobytes()
    assert digest == reference_hash(copied)
    parts = decode(array, name)
    values = [magnitude(v) for v in parts]
    numbers = [v for v in values if v == v]
    finite = [v for v in numbers if not math.isinf(v)]
    assert stats.count == len(values)
    assert stats.nan == len(values) - len(numbers)
    assert stats.pos_inf == numbers.count(math.inf)
    assert stats.neg_inf == numbers.count(-math.inf)
    assert stats.zero == sum(v == 0 for v in values)
    kind = "u" if name.startswith(("uint", "bool")) else "i" if name.startswith("int") else "f"
    low, high = getattr(stats.min, kind), getattr(stats.max, kind)
    if not numbers:
        assert kind != "f" or (math.isnan(low) and math.isnan(high)) or not values
    elif "complex" in name:
        assert close(low, min(numbers)) and close(high, max(numbers))
    else:
        assert (low, high) == (min(numbers), max(numbers))
    if not finite:
        assert (stats.mean, stats.norm) == (0, 0)
    elif "complex" in name:
        exact = [math.hypot(v.real, v.imag) for v in parts]
        assert close(stats.mean, exact_mean([v for v in exact if math.isfinite(v)]), 3)
        flat = [p for v, m in zip(parts, exact) if math.isfinite(m) for p in (v.real, v.imag)]
        assert close(stats.norm, exact_norm(flat))
    else:
        mean, size = exact_mean(finite), exact_mean([abs(v) for v in finite])
        # values that cancel to nearly nothing: as exact as their size allows
        assert close(stats.mean, mean) or (cancels and abs(stats.mean - mean) <= math.ulp(size)), (stats.mean, mean)
        assert close(stats.norm, exact_norm(finite)), (stats.norm, exact_norm(finite))
    return stats


def reference_hash(data):
    """docs/format.md's formula, one word at a time."""
    mask = (1 << 64) - 1
    k0, k1, k2 = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7
    total = 0
    for i in range(0, len(data), 8):
        w = int.from_bytes(data[i : i + 8], "little")
        x = w ^ ((k0 + i // 8 * k1) & mask)
        total += (x & 0xFFFFFFFF) * (x >> 32) + ((w << 32 | w >> 32) & mask)
    h = (total & mask) ^ (len(data) * k2 & mask)
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & mask
    h = (h ^ h >> 27) * 0x94D049BB133111EB & mask
    return h ^ h >> 31


@pytest.mark.parametrize("name", list(DTYPES))
def test_any_bits(name, isa):
    rng = np.random.default_rng(7)
    for shape in [(), (0,), (1,), (15,), (16,), (17,), (127,), (128,), (129,), (3, 5, 7), (2500,), (9000,)]:
        check(random_bits(name, shape, rng), name, cancels=True)


@pytest.mark.parametrize("name", list(DTYPES))
def test_strided(name, isa):
    rng = np.random.default_rng(8)
    base = random_bits(name, (12, 10, 34), rng)
    views = [base[::2, ::-1, 3::4], base.transpose(2, 0, 1), base[:, 3], base[::-1, ::-1, ::-1],
             np.broadcast_to(base[:1, :, :1], (12, 10, 34)), base[5, 5, ::2], base.T, base[:, :, 1:]]
    for view in views:
        strided, contiguous = scan(view, name), scan(np.ascontiguousarray(view), name)
        assert bytes(strided[0]) == bytes(contiguous[0])
        assert strided[1:] == contiguous[1:]
    check(views[0], name, cancels=True)


def floats(kind, count, rng):
    normal = rng.standard_normal(count)
    return {
        "normal": normal,
        "positive": np.abs(normal),
        "constant": np.full(count, 0.1),
        "wide": normal * np.exp(rng.standard_normal(count) * 12),
        "tiny": normal * 1e-36,
        "large": normal * 1e36,
        "cancelling": np.concatenate([normal[: count // 2], -normal[: count - count // 2]]) + 1e-3,
        "sparse": np.where(rng.random(count) < 0.99, 0.0, normal),
        "special": np.where(rng.random(count) < 0.01, rng.choice([np.nan, np.inf, -np.inf], count), normal),
    }[kind]


KINDS = ["normal", "positive", "constant", "wide", "tiny", "large", "cancelling", "sparse", "special"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_exact_to_two_ulps(kind, dtype, isa):
    rng = np.random.default_rng(9)
    for count in (1, 100, 4096, 20011):
        with np.errstate(over="ignore"):
            check(floats(kind, count, rng).astype(dtype), dtype)


@pytest.mark.parametrize("values", [
    [1e200] * 3000, [1e-200] * 3000, [1e200, 1e-200, 1.0], [1e308] * 5000, [1e200, 1.0, -1e200], [5e-324] * 10,
    [1e-170] * 2048 + [1e-165], [1.0] * 2048 + [1e300] * 2048 + [1e-300] * 2048, [0.0, 5e-324], [1e16, 1.0, -1e16],
    [1e154] * 100, [1e-160] * 5000 + [math.nan], [0.0] * 5000, [-0.0], [math.inf, -math.inf], [math.nan] * 3,
])
def test_float64_of_any_size(values, isa):
    stats = check(np.array(values), "float64")
    assert math.copysign(1, stats.min.f) == 1 or stats.min.f < 0


def test_integer_sums_are_exact(isa):
    big = np.full(10000, np.iinfo(np.int64).max)
    assert scan(big)[0].mean == float(2**63 - 1)
    mixed = np.array([2**63 - 1, -(2**63), 1, 1] * 3000)
    assert scan(mixed)[0].mean == exact_mean(mixed.tolist())
    unsigned = np.full(5000, 2**64 - 1, np.uint64)
    stats = scan(unsigned)[0]
    assert (stats.min.u, stats.max.u, stats.mean) == (2**64 - 1, 2**64 - 1, 2.0**64)
    assert close(scan(np.full(20000, -(2**31), np.int32))[0].norm, exact_norm([2**31] * 20000))
    assert close(scan(np.full(20000, 2**32 - 1, np.uint32))[0].norm, exact_norm([2**32 - 1] * 20000))


def test_bool_bytes_other_than_one_are_true(isa):
    stats = scan(np.array([0, 1, 2, 255], np.uint8), "bool")[0]
    assert (stats.min.u, stats.max.u, stats.mean, stats.zero) == (0, 1, 0.75, 1)


def test_complex_rules(isa):
    values = np.array([complex(math.nan, math.inf), complex(math.inf, 1), complex(-math.inf, 1), 3 + 4j, 0])
    for dtype in ("complex64", "complex128"):
        s = scan(values.astype(dtype))[0]
        assert (s.nan, s.pos_inf, s.neg_inf, s.zero, s.min.f, s.max.f) == (1, 2, 0, 1, 0, math.inf)
        assert (s.mean, s.norm) == (2.5, 5)
    s = scan(np.array([3e200 + 4e200j, 3e-200 + 4e-200j]))[0]
    assert close(s.max.f, 5e200) and close(s.min.f, 5e-200) and close(s.norm, 5e200)


def test_subnormals_are_kept_when_the_program_flushes_them(isa):
    values = np.array([1e-45, 0.0, 1e-40], np.float32)
    want = bytes(scan(values)[0])
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        assert bytes(scan(values)[0]) == want
        assert C.c_float(1e-30).value * 1e-15 != 0
    finally:
        torch.set_flush_denormal(False)


def test_health_is_the_counts(isa):
    values = np.array([1, 0, math.nan, math.inf, -math.inf, -math.inf], np.float32)
    s = scan(values, what=HEALTH)[0]
    assert (s.count, s.nan, s.pos_inf, s.neg_inf, s.zero) == (6, 1, 1, 2, 1)
    assert (s.min.u, s.max.u, s.mean, s.norm) == (0, 0, 0, 0)


def test_ieee():
    def ieee(values):
        s = scan(np.array(values, np.float64))[0]
        return lib.tap_stats_ieee_mean(C.byref(s)), lib.tap_stats_ieee_norm(C.byref(s))

    assert ieee([1.0, 3.0]) == (2, math.sqrt(10))
    assert ieee([1.0, math.inf]) == (math.inf, math.inf)
    assert ieee([1.0, -math.inf]) == (-math.inf, math.inf)
    assert math.isnan(ieee([math.inf, -math.inf])[0]) and ieee([math.inf, -math.inf])[1] == math.inf
    assert all(map(math.isnan, ieee([1.0, math.nan])))
    assert math.isnan(ieee([])[0]) and ieee([])[1] == 0


def test_large_copy_streams(isa):
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64", "uint8", "int16"):
        data = np.frombuffer(rng.bytes((1 << 20) + 4096 + 8), dtype)
        for what in (STATS | HASH, STATS, HASH, 0):
            room = np.zeros(data.nbytes + 64, np.uint8)
            skip = -room.ctypes.data % 64
            stats, digest = Stats(), C.c_uint64()
            assert lib.tap_tensor_scan(C.byref(tensor(data)), what, room.ctypes.data + skip, C.byref(stats),
                                       C.byref(digest), None) == 0
            assert room[skip : skip + data.nbytes].tobytes() == data.tobytes()
            if what & HASH:
                assert digest.value == lib.tap_hash_bytes(data.ctypes.data, data.nbytes)
            if what & STATS:
                assert bytes(stats) == bytes(scan(data)[0])


def torch_bits(values, name):
    return values.to(getattr(torch, name)).view(torch.uint8).numpy()


@pytest.mark.parametrize("name", ["float16", "bfloat16", *FLOAT8])
def test_convert_to_small_floats(name):
    rng = np.random.default_rng(3)
    kind = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    bits = np.arange(65536, dtype=np.uint16) if np.dtype(kind).itemsize == 2 else np.arange(256, dtype=np.uint8)
    every = np.frombuffer(convert(bits, "float32", name), np.float32)[: bits.size]
    np.testing.assert_array_equal(every, bits.view(kind).astype(np.float32))
    with np.errstate(all="ignore"):
        order = np.sort(every[np.isfinite(every)]).astype(np.float64)
        halfway = (order[1:] + order[:-1]) / 2
        near = np.concatenate([np.nextafter(halfway, np.inf), np.nextafter(halfway, -np.inf), halfway, order])
        values = np.concatenate([near, rng.standard_normal(20000) * np.exp(rng.standard_normal(20000) * 9),
                                 [math.inf, -math.inf, math.nan]])
        if name == "float8_e8m0fnu":  # where the two disagree on zero, torch's choice
            values = values[(values != 0)]
        for source in (np.float32, np.float64):
            data = values.astype(source)
            if source is np.float64 and name != "float16":
                data = data.astype(np.float32).astype(np.float64)
            want = data.astype(kind).view(bits.dtype)
            got = np.frombuffer(convert(data, name), bits.dtype)[: data.size]
            same = (want == got) | (np.isnan(data) & np.isnan(got.view(kind).astype(np.float32)))
            assert same.all(), (data[~same][:5], want[~same][:5], got[~same][:5])


def test_convert_fp4():
    data = np.array([0.0, 0.25, 0.26, 0.75, 1.25, 5.0, 5.1, 7.0, 100.0, -2.5], np.float32)
    want = data.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    got = np.frombuffer(convert(data, "float4_e2m1fn_x2"), np.uint8)[:5]
    assert [n for b in got.tolist() for n in (b & 15, b >> 4)] == (want & 15).tolist()
    back = np.frombuffer(convert(got, "float32", "float4_e2m1fn_x2"), np.float32)[:10]
    np.testing.assert_array_equal(back, data.astype(ml_dtypes.float4_e2m1fn).astype(np.float32))


NUMPY = [n for n in DTYPES if carrier(n).name == n and n not in FLOAT8]


@pytest.mark.parametrize("source", NUMPY)
@pytest.mark.parametrize("to", NUMPY)
def test_convert_between_numpy_types(source, to):
    rng = np.random.default_rng(4)
    data = random_bits(source, (500,), rng)
    if data.dtype.kind in "fc":
        if np.dtype(to).kind in "biu":
            data = (rng.random(500) * 100).astype(source)  # elsewhere C leaves the result open
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        want = data.astype(to)
    got = np.frombuffer(convert(data[::-1], to), to)[:500][::-1]
    np.testing.assert_array_equal(got, want)


def test_convert_rounds_large_integers_once():
    rng = np.random.default_rng(5)
    data = np.concatenate([rng.integers(-(2**63), 2**63 - 1, 20000), (1 << 62) + (1 << 38) + np.arange(-3, 4)])
    np.testing.assert_array_equal(np.frombuffer(convert(data, "float32"), np.float32)[: data.size], data.astype(np.float32))


def test_floats_saturate_to_integers():
    data = np.array([1e30, -1e30, math.nan, math.inf, -1.9, 300.0])
    assert np.frombuffer(convert(data, "uint8"), np.uint8)[:6].tolist() == [255, 0, 0, 255, 0, 255]
    assert np.frombuffer(convert(data, "int8"), np.int8)[:6].tolist() == [127, -128, 0, 127, -1, 127]
    assert np.frombuffer(convert(data, "int64"), np.int64)[:2].tolist() == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("name", list(DTYPES))
def test_value(name):
    rng = np.random.default_rng(6)
    view = random_bits(name, (4, 6, 3), rng).transpose(1, 0, 2)[::-1]
    want = [magnitude(v) for v in decode(view, name)]
    shown = tensor(view, name)
    for i, value in enumerate(want):
        got = lib.tap_tensor_value(C.byref(shown), i)
        assert close(got, float(value)) or (math.isnan(got) and math.isnan(value))
