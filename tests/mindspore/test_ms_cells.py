"""Every cell of mode x (forward, gradient) x (tensor, nested) x dtype; results and gradients are those of the same
function without taps, bit for bit. The function does nothing else and the gradient that comes in is one we choose, so
that every dtype has one: MindSpore's own operators for the CPU leave out bfloat16, bool or complex here and there."""
import functools
import pathlib
import tempfile
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import tensortap.mindspore as tap
from mindspore import Tensor, ops
from ms_helpers import array, bits, rows

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]  # fmt: skip


def tapped(x: Any, y: Any) -> Any:
    tap.save(x, "x")
    tap.save({"a": [x, (y,)], "b": y}, "n")
    x = tap.save(x, "g", grad=True)
    inside = tap.save([{"k": y}, 5], "ng", grad=True)
    return x, inside[0]["k"]


def plain(x: Any, y: Any) -> Any:
    return x, y


def tensor(dtype: str, shape: "tuple[int, ...]", seed: int) -> Tensor:
    """Values with every special one that the dtype has."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype == "bool":
        return Tensor(rng.integers(0, 2, shape).astype(bool))
    if "int" in dtype:
        info = np.iinfo(dtype)
        return Tensor(rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True))
    values = rng.standard_normal(count)
    values[: min(count, 4)] = [-0.0, np.nan, np.inf, 1e-7][: min(count, 4)]
    if dtype == "bfloat16":
        return Tensor(values.reshape(shape).astype(np.float32)).astype(ms.bfloat16)
    if "complex" in dtype:
        return Tensor(np.stack([values, values[::-1]], -1).view(np.complex128).reshape(shape).astype(dtype))
    return Tensor(values.reshape(shape).astype(dtype))


@functools.cache
def recorded(mode: str, dtype: str) -> Any:
    """One run, looked at by all the cells of its mode and dtype."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    x, y, dx, dy = (tensor(dtype, shape, seed) for seed, shape in enumerate([(2, 3), (4,), (2, 3), (4,)]))
    run = pathlib.Path(tempfile.mkdtemp()) / "run"
    gradient = ops.GradOperation(get_all=True, sens_param=True)
    with tap.record(run):
        out = tapped(x, y) if mode == "pynative" else ms.jit(tapped)(x, y)
        tap.step()
        back = gradient(tapped)(x, y, (dx, dy))
    expected = plain(x, y), gradient(plain)(x, y, (dx, dy))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert tap.verify(run).lost == 0
    return {key: value for key, value in rows(run)}, (x, y, dx, dy), (out, back), expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["tensor", "nested"])
@pytest.mark.parametrize("what", ["forward", "gradient"])
@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_cell(mode: str, what: str, shape: str, dtype: str) -> None:
    saved, (x, y, dx, dy), (out, back), (plain_out, plain_back) = recorded(mode, dtype)
    for one, other in zip((*out, *back), (*plain_out, *plain_back)):
        assert bits(one) == bits(other)
    if what == "forward":
        for step in (0, 1):
            if shape == "tensor":
                assert same(saved[step, "x", "forward", 0], x) and same(saved[step, "g", "forward", 0], x)
            else:
                assert same(saved[step, "n.a.0", "forward", 0], x)
                assert all(same(saved[step, name, "forward", 0], y) for name in ("n.a.1.0", "n.b", "ng.0.k"))
                assert saved[step, "ng.1", "forward", 0] == 5
    elif shape == "tensor":
        assert same(saved[1, "g", "grad", 0], dx)
    else:
        assert same(saved[1, "ng.0.k", "grad", 0], dy)
    grads = [key for key in saved if key[2] == "grad"]
    assert sorted(grads) == [(1, "g", "grad", 0), (1, "ng.0.k", "grad", 0)]


def same(found: np.ndarray, expected: Tensor) -> bool:
    if found.dtype.name in ("float32", "uint16") and array(expected).dtype == np.uint16 and expected.dtype == ms.bfloat16:
        wide = (array(expected).astype(np.uint32) << 16).view(np.float32)  # tap.open reads bfloat16 as float32
        return found.shape == wide.shape and np.array_equal(np.signbit(found), np.signbit(wide)) and np.array_equal(found, wide, equal_nan=True)
    return bits(found) == bits(expected)


SHAPES: "list[tuple[int, ...]]" = [(), (0,), (2, 0, 3), (1,), (2, 3, 1, 4), (1,) * 8]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape(shape: "tuple[int, ...]", mode: str) -> None:
    x = Tensor(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape))

    def f(x: Any) -> Any:
        tap.save(x, "x")
        tap.save("d", "x", x)
        return x

    with tap.record("run"):
        (f if mode == "pynative" else ms.jit(f))(x)
    ((key, value),) = rows("run")
    assert key == (0, "x", "forward", 0) and bits(value) == bits(x)
    assert bits(np.load(next(pathlib.Path("d").rglob("x_float32_0.npy")))) == bits(x)


LARGE = 3 << 18  # elements of 4 bytes: 3 MiB, which are read where they lie


@pytest.mark.parametrize("dtype", [ms.bool_, ms.int8, ms.int64, ms.float16, ms.bfloat16, ms.float32, ms.float64, ms.complex64])
def test_large_values(dtype: Any) -> None:
    """Just computed, and saved before they can be there; numpy says what they are."""
    numbers = np.arange(LARGE * 4) % 97
    with tap.record("run"):
        tap.save(Tensor(numbers, dtype).reshape(-1, 4), "x")
        tap.save({"y": [Tensor(numbers, ms.float32) * 3 + 1]}, "y")
    found = dict(rows("run"))
    x, y = (value for _, value in sorted((key[1], value) for key, value in found.items()))
    expected = numbers.astype(ms.dtype_to_nptype(dtype)).reshape(-1, 4)
    if dtype == ms.bfloat16:
        expected = expected.astype(np.float32)  # which numpy has
    assert bits(x) == bits(expected)
    assert np.array_equal(y, numbers.astype(np.float32) * 3 + 1)


def test_large_views() -> None:
    """Parts of a tensor, and one that lies across."""
    numbers = np.arange(LARGE, dtype=np.float32).reshape(1024, -1)
    with tap.record("run"):
        x = Tensor(numbers) + 0
        tap.save(x[5:], "part")
        tap.save(x.T, "across")
        tap.save(x[:, 1:700], "columns")
        x += 1  # what was saved was copied
    value = {key[1]: value for key, value in rows("run")}
    assert np.array_equal(value["part"], numbers[5:])
    assert np.array_equal(value["across"], numbers.T) and np.array_equal(value["columns"], numbers[:, 1:700])
