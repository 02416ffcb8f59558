"""tap_tensor_print against numpy's own str(), and the histogram against numpy.histogram."""

import ctypes as C
import math

import ml_dtypes
import numpy as np
import pytest
from tensor_lib import DTYPES, Error, carrier, lib, tensor, text

INTEGERS = [n for n in DTYPES if n.startswith(("int", "uint"))]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
SHAPES = [(), (1,), (2,), (7,), (40,), (1000,), (1001,), (3, 4), (2, 3, 4), (30, 40), (7, 200), (200, 7), (2, 3, 4, 5),
          (11, 11, 11), (1, 1, 1, 1), (5, 1, 300), (1500, 1), (2, 600), (6, 7, 30), (7, 6, 30)]


def same(array, name=None, want=None, **options):
    got = text(array, name, **options)
    numpy_options = {"precision": options.get("precision", 8), "threshold": options.get("threshold", 1000),
                     "edgeitems": options.get("edge_items", 3), "linewidth": options.get("line_width", 75)}
    with np.printoptions(**numpy_options):
        want = str(array if want is None else want)
    assert got == want, f"\n{got}\n--- numpy:\n{want}"


def spread(rng, count):
    """Values over a range chosen at random, sometimes with special ones among them."""
    values = rng.standard_normal(count)
    kind = rng.integers(0, 10)
    if kind == 0:
        values = np.round(values * 10)
    elif kind == 1:
        values = values * np.exp(values * 5)
    elif kind == 2:
        values = rng.integers(0, 100, count) / 4
    elif kind == 3:
        values = np.abs(values) * 10.0 ** rng.integers(-12, 12)
    elif kind == 4:
        values = np.where(rng.random(count) < 0.5, 0.0, values)
    elif kind == 5:
        values = 10.0 ** rng.integers(-5, 9, count)
    elif kind == 6:
        values = rng.random(count) * 10.0 ** rng.integers(-3, 5)
    elif kind == 7:
        values = np.full(count, values.flat[0] if count else 0.0)
    if rng.random() < 0.4:
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0], count)
        values = np.where(rng.random(count) < rng.choice([0.05, 0.5, 1]), special, values)
    return values


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype, shape):
    rng = np.random.default_rng(len(shape) * 1000 + math.prod(shape))
    for _ in range(25):
        with np.errstate(all="ignore"):
            same(spread(rng, math.prod(shape)).astype(dtype).reshape(shape))


@pytest.mark.parametrize("shape", SHAPES[:14])
@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex(dtype, shape):
    rng = np.random.default_rng(math.prod(shape))
    count = math.prod(shape)
    for _ in range(12):
        with np.errstate(all="ignore"):
            values = np.empty(count, dtype)
            values.real, values.imag = spread(rng, count), spread(rng, count)
            same(values.reshape(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", INTEGERS + ["bool"])
def test_integers(dtype, shape):
    rng = np.random.default_rng(1)
    for bits in (1, 5, 8, 20, 64):
        raw = rng.integers(0, 2**64, shape, np.uint64, endpoint=False) >> np.uint64(64 - bits)
        same(np.asarray(raw).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_bits(dtype):
    """Every kind of number, one to a line and one by itself: shortest digits are numpy's."""
    rng = np.random.default_rng(2)
    size = np.dtype(dtype).itemsize
    with np.errstate(all="ignore"):
        values = np.frombuffer(rng.bytes(3000 * size), dtype)
        powers = np.array([2.0**e for e in range(-149 if size > 2 else -24, 100 if size > 2 else 16)], dtype)
        for value in np.concatenate([values, powers]):
            same(np.array(value))
            same(np.array([value]))


def test_powers_of_two_have_uneven_neighbours():
    for value in [2.0**-44, 2.0**-1074, 9007199254740993.0, 2.0**89, 5e-324, 1.7976931348623157e308, 9.5367431640625e-07]:
        same(np.array(value))
        same(np.array([value]))


def test_options():
    rng = np.random.default_rng(3)
    for _ in range(300):
        shape = [(30,), (4, 50), (3, 3, 20), (12, 12)][rng.integers(0, 4)]
        options = {"precision": int(rng.integers(0, 14)), "threshold": int(rng.integers(0, 200)),
                   "edge_items": int(rng.integers(1, 6)), "line_width": int(rng.integers(10, 120))}
        with np.errstate(over="ignore"):
            values = spread(rng, math.prod(shape)).astype(rng.choice(FLOATS))
        same(values.reshape(shape), **options)


def test_strided_and_empty():
    base = np.arange(24000.0).reshape(20, 30, 40)
    for view in (base.T, base[::-1, ::2, 5::-1], np.broadcast_to(base[0, 0, 0], (3, 400)), base[:, :0], base[:0],
                 np.zeros(0, np.int8), np.zeros((1,) * 32), base[3:5, 2:4, ::-7]):
        same(view)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                                  "float8_e8m0fnu"])
def test_types_numpy_lacks(name):
    rng = np.random.default_rng(4)
    with np.errstate(all="ignore"):
        for shape in ((), (5,), (3, 20), (2000,)):
            raw = np.frombuffer(rng.bytes(math.prod(shape) * carrier(name).itemsize), carrier(name)).reshape(shape)
            same(raw, name, want=raw.view(getattr(ml_dtypes, name)).astype(np.float32))


def test_complex32():
    halves = np.array([[1.5, -2], [0.1, np.inf]], np.float16)
    same(halves.view(np.uint32).reshape(2), "complex32", want=halves.astype(np.float32).view(np.complex64).reshape(2))


def test_packed_values_stand_along_the_last_dimension():
    same(np.array([[0x10, 0x32], [0x54, 0xF6]], np.uint8), "float4_e2m1fn_x2",
         want=np.array([[0, 0.5, 1, 1.5], [2, 3, 4, -6]], np.float32))
    same(np.array(0x21, np.uint8), "float4_e2m1fn_x2", want=np.array([0.5, 1], np.float32))


def histogram(array, low, high, bins, name=None):
    counts, err = (C.c_uint64 * bins)(), Error()
    assert lib.tap_tensor_histogram(C.byref(tensor(array, name)), low, high, counts, bins, C.byref(err)) == 0
    return list(counts)


def test_histogram():
    rng = np.random.default_rng(5)
    for dtype in ["float64", "float32", "int16", "uint8", "bool"]:
        for bins in (1, 2, 10, 37):
            values = (rng.standard_normal(5000) * 30).astype(dtype)
            low, high = float(values.min()), float(values.max())
            for a, b in ((low, high), (low / 2, high / 3 + 1), (-10.0, 10.0), (0.0, 1.0)):
                if a == b:
                    continue  # numpy widens such a range; we put all into the first part
                want = np.histogram(values.astype(np.float64), bins, (a, b))[0].tolist()
                assert histogram(values[::-1], a, b, bins) == want


def test_histogram_leaves_out_what_is_not_finite():
    values = np.array([np.nan, np.inf, -np.inf, 1.0, 2.0, 3.0])
    assert histogram(values, 1.0, 3.0, 2) == [1, 2]
    assert histogram(values, 2.0, 2.0, 3) == [1, 0, 0]
    err = Error()
    assert lib.tap_tensor_histogram(C.byref(tensor(values)), 3.0, 1.0, (C.c_uint64 * 2)(), 2, C.byref(err)) == 4
    assert b"lo <= hi" in err.message
