"""tap_tensor_compare against numpy in float64: every dtype, strides, NaN and infinities, each instruction set."""

import ctypes as C

import numpy as np
import pytest
from tensor_lib import DTYPES, Error, Number, Tensor, carrier, convert, lib, tensor


class Place(C.Structure):
    _fields_ = [("index", C.c_int64), ("a", Number), ("b", Number), ("a_imag", C.c_double), ("b_imag", C.c_double)]


class Difference(C.Structure):
    _fields_ = [("size", C.c_size_t), ("count", C.c_uint64), ("different", C.c_uint64), ("unlike", C.c_uint64),
                ("nan", C.c_uint64 * 2), ("pos_inf", C.c_uint64 * 2), ("neg_inf", C.c_uint64 * 2), ("first", Place),
                ("worst", Place), ("max_abs", C.c_double), ("mean_abs", C.c_double), ("max_rel", C.c_double),
                ("mean_rel", C.c_double), ("max_ulp", C.c_double), ("norm", C.c_double), ("norms", C.c_double * 2),
                ("cosine", C.c_double)]


lib.tap_tensor_compare.argtypes = [C.POINTER(Tensor), C.POINTER(Tensor), C.POINTER(Difference), C.POINTER(Error)]
lib.tap_isa_set.argtypes = [C.c_char_p]
lib.tap_isa_set.restype = C.c_bool

# fraction digits, exponent of the smallest normal number
FLOATS = {
    "float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022), "complex32": (10, -14),
    "complex64": (23, -126), "complex128": (52, -1022), "float8_e4m3fn": (3, -6), "float8_e5m2": (2, -14),
    "float8_e4m3fnuz": (3, -7), "float8_e5m2fnuz": (2, -15), "float8_e8m0fnu": (0, -127), "float4_e2m1fn_x2": (1, 0),
}
NAMES = sorted(DTYPES)
UNPACKED = [name for name in NAMES if name != "float4_e2m1fn_x2"]


ISAS = [isa for isa in ("plain", "avx2", "avx512", "neon") if lib.tap_isa_set(isa.encode())]
lib.tap_isa_set(None)


@pytest.fixture(params=ISAS)
def isa(request):
    lib.tap_isa_set(request.param.encode())
    yield request.param
    lib.tap_isa_set(None)


def difference(a, b, name_a=None, name_b=None):
    out, err = Difference(), Error()
    out.size = C.sizeof(out)
    status = lib.tap_tensor_compare(C.byref(tensor(a, name_a)), C.byref(tensor(b, name_b)), C.byref(out), C.byref(err))
    assert status == 0, err.message.decode()
    return out


def wide(array, name):
    """The values as numpy knows them, exactly: float64, complex128 or Python integers."""
    count = array.size * (2 if name == "float4_e2m1fn_x2" else 1)
    if name.startswith("complex"):
        return np.frombuffer(convert(array, "complex128", name), "c16", count)
    if name in FLOATS:
        return np.frombuffer(convert(array, "float64", name), "f8", count)
    return array.astype(object).reshape(-1) + 0


def mean(values):
    return float(values.astype(np.longdouble).mean()) if len(values) else 0.0


def norm(values):
    return float(np.sqrt(np.sum(np.square(np.abs(values).astype(np.longdouble)))))


def expected(x, y, name_a, name_b):
    """All metrics from numpy alone, one plain formula each."""
    exact = x.dtype == object and y.dtype == object
    if not exact:
        kind = "c16" if x.dtype.kind == "c" or y.dtype.kind == "c" else "f8"
        x, y = x.astype(kind), y.astype(kind)
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if kind == "c16":
            parts = [(x.real, y.real), (x.imag, y.imag)]
            same = np.logical_and(*[(p == q) | (np.isnan(p) & np.isnan(q)) for p, q in parts])
    else:
        finite = np.ones(len(x), bool)
        same = x == y
    f, g = x[finite], y[finite]
    error = np.abs(f - g)
    size = np.abs(g).astype("f8")
    error = error.astype("f8")
    with np.errstate(all="ignore"):
        rel = np.where(error == 0, 0, error / size)
        known = [FLOATS[name] for name in (name_a, name_b) if name in FLOATS]
        spacing = 1.0
        if known:
            digits, least = min(known, key=lambda row: row[0])
            if len(known) == 2 and known[0][0] == known[1][0]:
                least = known[0][1]
            exponent = np.frexp(np.maximum(size, np.ldexp(1.0, least)))[1] - 1
            ulp = np.ldexp(np.ldexp(error, -exponent), digits)
        else:
            ulp = error / spacing
    out = {
        "count": len(x), "different": int((~same).sum()), "unlike": int((~same & ~finite).sum()),
        "max_abs": error.max(initial=0.0), "mean_abs": mean(error),
        "max_rel": rel.max(initial=0.0), "mean_rel": mean(np.where(size == 0, 0, rel)),
        "max_ulp": ulp.max(initial=0.0), "norm": norm(f - g), "norm_a": norm(f), "norm_b": norm(g),
        "first": int(np.argmax(~same)) if (~same).any() else -1,
    }
    if out["unlike"]:
        out["worst"] = int(np.argmax(~same & ~finite))
    elif out["different"]:
        everywhere = np.zeros(len(x))
        everywhere[finite] = error
        out["worst"] = int(np.argmax(everywhere))
    else:
        out["worst"] = -1
    return out


def check(a, b, name_a, name_b):
    got, want = difference(a, b, name_a, name_b), expected(wide(a, name_a), wide(b, name_b), name_a, name_b)
    for key in ("count", "different", "unlike"):
        assert getattr(got, key) == want[key], key
    assert (got.first.index, got.worst.index) == (want["first"], want["worst"])
    for key in ("max_abs", "max_rel", "max_ulp"):
        assert getattr(got, key) == pytest.approx(want[key], rel=1e-12, abs=0), key
    for key in ("mean_abs", "mean_rel", "norm"):
        assert getattr(got, key) == pytest.approx(want[key], rel=1e-9, abs=0), key
    assert got.norms[0] == pytest.approx(want["norm_a"], rel=1e-12, abs=0)
    assert got.norms[1] == pytest.approx(want["norm_b"], rel=1e-12, abs=0)
    return got


def random_bits(rng, name, shape):
    """Any bit pattern of the dtype, so NaN, infinities and subnormals too."""
    kind = carrier(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(rng.bytes(count), kind).reshape(shape).copy()


def tame(rng, name, shape):
    """Ordinary values of a float dtype."""
    values = rng.standard_normal(shape)
    if name in ("float32", "float64", "float16", "complex64", "complex128"):
        return values.astype(name)
    flat = np.ascontiguousarray(values)
    return np.frombuffer(convert(flat, name), carrier(name), flat.size).reshape(shape).copy()


def near(rng, array):
    """The same, some bytes changed by a little."""
    out = array.copy()
    flat = out.reshape(-1).view(np.uint8)
    for at in rng.integers(0, max(1, out.size), 3):
        if out.size:
            flat[at * out.itemsize] ^= 1
    return out


@pytest.mark.parametrize("name", NAMES)
def test_any_bits(name, isa):
    rng = np.random.default_rng(len(name))
    for size in (0, 1, 7, 8, 9, 1023, 1024, 1025, 5000):
        a = random_bits(rng, name, (size,))
        check(a, a, name, name)
        check(a, near(rng, a), name, name)
        check(a, random_bits(rng, name, (size,)), name, name)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "complex64"])
def test_ordinary_values(name, isa):
    rng = np.random.default_rng(5)
    for shape in [(3, 5), (64, 64), (2, 3, 700)]:
        a = tame(rng, name, shape)
        b = near(rng, a)
        got = check(a, b, name, name)
        assert got.cosine == pytest.approx(1, abs=1e-2)
        check(a, tame(rng, name, shape), name, name)


def test_cosine(isa):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal(4000), rng.standard_normal(4000)
    assert difference(a, b).cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-13)
    assert difference(a, -a).cosine == -1
    assert difference(a * 0, a * 0).cosine == 1
    assert np.isnan(difference(a, a * 0).cosine)
    assert difference(a * 1e-200, b * 1e200).cosine == pytest.approx(difference(a, b).cosine, abs=1e-13)


def test_mixed_dtypes(isa):
    rng = np.random.default_rng(7)
    for _ in range(60):
        name_a, name_b = rng.choice(UNPACKED, 2)
        a, b = random_bits(rng, name_a, (1100,)), random_bits(rng, name_b, (1100,))
        check(a, b, name_a, name_b)


def test_strides(isa):
    rng = np.random.default_rng(8)
    for _ in range(60):
        name = str(rng.choice(["float32", "bfloat16", "float64", "int64", "uint8", "complex64"]))
        shape = tuple(rng.integers(1, 12, rng.integers(1, 5)))
        a, b = random_bits(rng, name, shape), random_bits(rng, name, shape)
        order = rng.permutation(len(shape))
        step = int(rng.choice([1, -1, 2]))
        va, vb = a.transpose(order)[::step], np.asfortranarray(b).transpose(order)[::step]
        whole = difference(np.ascontiguousarray(va), np.ascontiguousarray(vb), name, name)
        for got in (difference(va, vb, name, name), difference(np.ascontiguousarray(va), vb, name, name)):
            assert bytes(got) == bytes(whole)


def test_integers_are_exact(isa):
    big = np.array([2**63 - 1, -(2**63), 9007199254740993], np.int64)
    got = difference(big, big - np.array([0, 0, 1]))
    assert (got.different, got.max_abs, got.first.index) == (1, 1.0, 2)
    assert (got.first.a.i, got.first.b.i) == (9007199254740993, 9007199254740992)
    got = difference(big, np.array([2**63 - 1, 2**63, 1], np.uint64))
    assert got.max_abs == 2.0**64
    assert (got.worst.a.i, got.worst.b.u) == (-(2**63), 2**63)


def test_special_values(isa):
    inf, nan = np.inf, np.nan
    a = np.array([1, nan, inf, -inf, nan, inf, 0.0, -0.0], np.float32)
    b = np.array([1, nan, inf, inf, 2.0, 3.0, -0.0, 0.0], np.float32)
    got = difference(a, b)
    assert (got.count, got.different, got.unlike) == (8, 3, 3)
    assert (list(got.nan), list(got.pos_inf), list(got.neg_inf)) == ([2, 1], [2, 2], [1, 0])
    assert (got.first.index, got.worst.index, got.max_abs) == (3, 3, 0)
    assert difference(np.array([1.0]), np.array([0.0])).max_rel == inf


def test_sizes_of_float64(isa):
    """Squares that overflow or vanish."""
    rng = np.random.default_rng(9)
    a = rng.standard_normal(3000)
    for scale in (1e300, 1e-300, 5e-324):
        check(a * scale, a * scale * (1 + 1e-15), "float64", "float64")
        check(a * scale, a[::-1] * scale, "float64", "float64")


def test_same_bits_on_every_machine():
    rng = np.random.default_rng(10)
    for name in ("float32", "float64", "bfloat16", "float16", "int32"):
        a, b = random_bits(rng, name, (5000,)), random_bits(rng, name, (5000,))
        if name in FLOATS:
            a, b = tame(rng, name, (5000,)), tame(rng, name, (5000,))
        seen = set()
        for isa in ISAS:
            lib.tap_isa_set(isa.encode())
            seen.add(bytes(difference(a, b, name, name)))
        lib.tap_isa_set(None)
        assert len(seen) == 1


def test_what_cannot_be_compared():
    err, out = Error(), Difference(size=C.sizeof(Difference))
    x, y = np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)
    assert lib.tap_tensor_compare(C.byref(tensor(x)), C.byref(tensor(y)), C.byref(out), C.byref(err)) == 4
    assert b"different shapes" in err.message
    p, q = np.zeros(2, np.uint8), np.zeros(2, np.float32)
    four = tensor(p, "float4_e2m1fn_x2")
    assert lib.tap_tensor_compare(C.byref(four), C.byref(tensor(q)), C.byref(out), C.byref(err)) == 4
    assert b"two values" in err.message
