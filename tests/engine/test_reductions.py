"""Reductions of the engine against eager, over dtypes, layouts and axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphs import compare

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]

SHAPES = [(), (7,), (33, 130), (4, 0), (5, 1, 67), (2, 3, 4, 5), (70, 3)]
FEW = [(7,), (33, 130), (4, 0)]


def values(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.3
    low = 0 if dtype == torch.uint8 else -9
    return torch.randint(low, 10, shape, generator=generator).to(dtype)


def layouts(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """The same values contiguous, transposed, with gaps, from an offset, and expanded."""
    x = values(shape, dtype)
    found = [x]
    if x.dim() >= 2:
        found.append(x.transpose(0, -1).contiguous().transpose(0, -1))
        found.append(x.expand(2, *shape))
        wide = torch.zeros([2 * size + 1 for size in shape], dtype=dtype)
        slot = wide[tuple(slice(1, 2 * size + 1, 2) for size in shape)]
        slot.copy_(x)
        found.append(slot)
    if x.dim() >= 3:
        found.append(x.permute(1, *range(2, x.dim()), 0))
    return found


def inputs_of(dtype: torch.dtype) -> list[torch.Tensor]:
    """Every shape for the dtypes that have kernels of their own, a few for those that are converted on the way."""
    shapes = SHAPES if dtype in (torch.float32, torch.bfloat16, torch.int64) else FEW
    return [x for shape in shapes for x in layouts(shape, dtype)]


def axes_of(x: torch.Tensor) -> list[Any]:
    dims = range(x.dim())
    if x.dim() > 3:
        return [[0], [3], [1, 2], [0, 2, 3], [-1, 0], [0, 1, 2, 3]]
    return [list(some) for count in range(1, x.dim() + 1) for some in itertools.combinations(dims, count)] or [[]]


def nonempty(x: torch.Tensor, axes: Any) -> bool:
    axes = range(x.dim()) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
    return math.prod(x.shape[axis] for axis in axes) > 0 or x.numel() > 0


def by_axes(function: Callable[..., Any], choosing: bool = False) -> Callable[[torch.Tensor], list[Any]]:
    """Every set of axes, kept and not."""

    def run(x: torch.Tensor) -> list[Any]:
        return [
            function(x, axes, keep) for axes in axes_of(x) for keep in (False, True) if not choosing or nonempty(x, axes)
        ] or [x + 0 if x.dtype != torch.bool else x.clone()]

    return run


def by_axis(function: Callable[..., Any], choosing: bool = False) -> Callable[[torch.Tensor], list[Any]]:
    def run(x: torch.Tensor) -> list[Any]:
        return [
            function(x, axis, keep)
            for axis in range(-x.dim(), x.dim())
            for keep in (False, True)
            if not choosing or nonempty(x, axis)
        ] or [x.clone()]

    return run


SUMS = {
    "sum": lambda x: [x.sum(), *by_axes(lambda x, a, k: x.sum(a, k))(x)],
    "mean": lambda x: [x.mean(), *by_axes(lambda x, a, k: x.mean(a, k))(x)],
    "prod": lambda x: [(x * 0.5).prod(), *by_axis(lambda x, a, k: x.prod(a, k))(x)],
    "var": by_axes(lambda x, a, k: x.var(a, keepdim=k)),
    "std": by_axes(lambda x, a, k: x.std(a, correction=0, keepdim=k)),
    "var_mean": by_axes(lambda x, a, k: torch.var_mean(x, a, correction=2, keepdim=k)),
    "std_mean": by_axes(lambda x, a, k: torch.std_mean(x, a, keepdim=k)),
    "norm_0": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, 0, a, k)),
    "norm_1": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, 1, a, k)),
    "norm_2": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, 2, a, k)),
    "norm_3": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, 3, a, k)),
    "norm_half": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, 0.5, a, k)),
    "norm_inf": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, math.inf, a, k), True),
    "norm_low": by_axes(lambda x, a, k: torch.linalg.vector_norm(x, -math.inf, a, k), True),
    "norm": lambda x: [x.norm(), torch.norm(x, 3.0)],
    "logsumexp": by_axes(lambda x, a, k: x.logsumexp(a, k)),
}
PICKS = {
    "amax": by_axes(lambda x, a, k: x.amax(a, k), True),
    "amin": by_axes(lambda x, a, k: x.amin(a, k), True),
    "max": lambda x: [x.max(), *by_axis(lambda x, a, k: x.max(a, k), True)(x)] if x.numel() else [x.clone()],
    "min": lambda x: [x.min(), *by_axis(lambda x, a, k: x.min(a, k), True)(x)] if x.numel() else [x.clone()],
    "aminmax": lambda x: (
        [x.aminmax(), *by_axis(lambda x, a, k: x.aminmax(dim=a, keepdim=k), True)(x)] if x.numel() else [x.clone()]
    ),
    "any": lambda x: [x.any(), *by_axes(lambda x, a, k: x.any(a, k))(x), *by_axis(lambda x, a, k: x.any(a, k))(x)],
    "all": lambda x: [x.all(), *by_axes(lambda x, a, k: x.all(a, k))(x), *by_axis(lambda x, a, k: x.all(a, k))(x)],
    "count_nonzero": lambda x: [x.count_nonzero(), *by_axes(lambda x, a, k: x.count_nonzero(a))(x)],
}
ARGS = {
    "argmax": lambda x: (
        [x.argmax(), *by_axis(lambda x, a, k: x.argmax(a, k), True)(x)] if x.numel() else [x.clone()]
    ),
    "argmin": lambda x: (
        [x.argmin(), *by_axis(lambda x, a, k: x.argmin(a, k), True)(x)] if x.numel() else [x.clone()]
    ),
}


def check_all(function: Callable[..., Any], inputs: list[torch.Tensor], **how: Any) -> None:
    compare(lambda *args: [function(x) for x in args], inputs, **how)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_floats(name: str, dtype: torch.dtype) -> None:
    how: dict[str, Any] = {}
    if name == "prod" and dtype in (torch.float16, torch.bfloat16):  # eager rounds after every factor
        how = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 1e-3}
    check_all(SUMS[name], inputs_of(dtype), **how)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("name", PICKS)
def test_picks(name: str, dtype: torch.dtype) -> None:
    check_all(PICKS[name], inputs_of(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [d for d in FLOATS + INTS if d != torch.bool], ids=str)
@pytest.mark.parametrize("name", ARGS)
def test_args(name: str, dtype: torch.dtype) -> None:
    check_all(ARGS[name], inputs_of(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_sums_of_integers(dtype: torch.dtype) -> None:
    def run(x: torch.Tensor) -> list[Any]:
        return [
            x.sum(),
            x.prod(),
            *by_axes(lambda x, a, k: x.sum(a, k))(x),
            *by_axis(lambda x, a, k: x.prod(a, k))(x),
            *by_axes(lambda x, a, k: x.sum(a, k, dtype=torch.float32))(x),
            *by_axes(lambda x, a, k: x.mean(a, k, dtype=torch.float64))(x),
            *by_axes(lambda x, a, k: x.sum(a, k, dtype=torch.int32))(x),
        ]

    check_all(run, inputs_of(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_sums_of_complex(dtype: torch.dtype) -> None:
    def run(x: torch.Tensor) -> list[Any]:
        return [x.sum(), *by_axes(lambda x, a, k: x.sum(a, k))(x), *by_axes(lambda x, a, k: x.mean(a, k))(x)]

    check_all(run, inputs_of(dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTS[:4], ids=str)
def test_trace(dtype: torch.dtype) -> None:
    check_all(torch.trace, [x for shape in [(3, 5), (6, 2), (0, 3), (40, 40)] for x in layouts(shape, dtype)[:2]])


RUNNING = {
    "cumsum": lambda x, axis: x.cumsum(axis),
    "cumprod": lambda x, axis: x.cumprod(axis),
    "cummax": lambda x, axis: x.cummax(axis),
    "cummin": lambda x, axis: x.cummin(axis),
    "logcumsumexp": lambda x, axis: x.logcumsumexp(axis),
}


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("name", RUNNING)
def test_running(name: str, dtype: torch.dtype) -> None:
    if name == "logcumsumexp" and not dtype.is_floating_point:
        return

    def run(x: torch.Tensor) -> list[Any]:
        return [RUNNING[name](x, axis) for axis in (range(-x.dim(), x.dim()) if x.dim() else [0])]

    inputs = [*inputs_of(dtype), *layouts((3, 1200), dtype)]
    if dtype.is_floating_point:
        x = values((8, 20), dtype)
        x[1, 4] = x[2, 9] = math.nan
        x[3, 3] = math.inf
        x[4, 5:7] = -math.inf
        inputs += [x, x.t()]
    half = dtype in (torch.float16, torch.bfloat16)
    how = {"rtol": 16 * torch.finfo(dtype).eps, "atol": 1e-2} if half and name in ("cumprod", "logcumsumexp") else {}
    check_all(run, inputs, **how)


def test_dtype_argument(engine: Any) -> None:
    def run(x: torch.Tensor, h: torch.Tensor) -> list[Any]:
        return [
            x.sum(dtype=torch.float64), x.sum(1, dtype=torch.float64), h.sum(dtype=torch.float32), h.mean(0, dtype=torch.float32),
            torch.linalg.vector_norm(h, 2, dtype=torch.float32), x.prod(0, dtype=torch.float64),
        ]

    engine.check(run, values((50, 40), torch.float32), values((50, 40), torch.bfloat16), native=False)
    assert set(engine.host()) <= {"aten.sum.default", "aten.sum.dim_IntList", "aten.prod.dim_int"}  # in float64


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinity(engine: Any, dtype: torch.dtype) -> None:
    x = values((9, 200), dtype)
    x[1, 150] = math.nan
    x[2, 3] = x[2, 190] = math.nan
    x[3, 7] = math.inf
    x[4, 199] = -math.inf
    x[5] = -math.inf
    x[6] = math.nan
    x[7] = math.inf

    def run(x: torch.Tensor) -> list[Any]:
        return [
            f(x, axis)
            for axis in (0, 1)
            for f in (
                torch.amax, torch.amin, torch.max, torch.min, torch.argmax, torch.argmin, torch.sum, torch.logsumexp,
                torch.any, torch.all, torch.count_nonzero,
            )
        ] + [x.amax(), x.amin(), x.argmax(), x.argmin(), x[1:2].max(), x[4:5].min(), x.logsumexp([0, 1]), x[3:5].logsumexp([0, 1]),
             torch.linalg.vector_norm(x, math.inf, 1), torch.linalg.vector_norm(x, -math.inf, 1), torch.var(x, 1)]

    engine.check(run, x)
    engine.check(run, x.t().contiguous().t())


def test_first_of_equal_values(engine: Any) -> None:
    x = torch.zeros(5, 3000)
    x[:, 1700] = x[:, 2900] = 1

    def run(x: torch.Tensor) -> list[Any]:
        return [x.argmax(1), x.argmin(1), x.max(1), x.min(0), x.argmax(), x.argmin(), x.t().argmax(0), x.flip(0).argmax()]

    engine.check(run, x, exact=True, native=False)


@pytest.mark.parametrize("shape", [(3_000_001,), (1500, 2000), (2000, 3), (3, 700_000), (700_000, 3), (64, 5, 4096)])
def test_large(shape: tuple[int, ...]) -> None:
    x = values(shape, torch.float32)

    def run(x: torch.Tensor) -> list[Any]:
        out = [x.sum(), x.mean(), x.amax(), x.argmax(), x.var(), x.norm(3.0), x.logsumexp(list(range(x.dim()))), x.any(), x.all()]
        for axis in range(x.dim()):
            out += [x.sum(axis), x.amin(axis), x.var(axis), x.argmin(axis), x.max(axis), x.logsumexp(axis)]
        return out

    compare(run, [x])


def test_at_least_as_accurate_as_eager(engine: Any) -> None:
    x = torch.rand(2_000_000) * 1000
    exact = x.double().sum()
    ours = engine.check(torch.sum, x)
    assert abs(ours.double() - exact) <= abs(x.sum().double() - exact)
    y = torch.rand(100_000, 20)
    exact = y.double().sum(0)
    ours = engine.check(lambda y: y.sum(0), y)
    assert ((ours.double() - exact).abs() <= exact * 6.0e-8).all()


def test_variance_of_offset_values(engine: Any) -> None:
    x = 1e6 + torch.rand(300, 500, dtype=torch.float64)
    engine.check(lambda x: [x.var(), x.var(0), x.var(1), torch.std_mean(x, [0, 1])], x)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_for_any_number_of_threads(engine: Any, threads: int) -> None:
    x = values((1111, 999), torch.float32)

    def run(x: torch.Tensor) -> list[Any]:
        return [x.sum(), x.sum(0), x.sum(1), x.var(), x.logsumexp([0, 1]), x.softmax(1), x.softmax(0), x.norm(3.0)]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = engine.compile(run)(x)
        torch.set_num_threads(threads)
        actual = engine.compile(run)(x)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_dynamic_sizes(engine: Any) -> None:
    def run(x: torch.Tensor) -> list[Any]:
        return [x.sum(), x.mean(1), x.amax(0), x.argmax(1), x.var(1), x.logsumexp(0), x.any(1), torch.linalg.vector_norm(x, 2, 1)]

    compiled = engine.compile(run, dynamic=True)
    for shape in [(3, 4), (10, 7), (65, 300), (2, 2)]:
        x = values(shape, torch.float32)
        torch.testing.assert_close(compiled(x), run(x))
    assert engine.host() == {}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(), lambda x: x.mean(1), lambda x: x.sum(0), lambda x: x.var(1), lambda x: x.std(), lambda x: x.norm(),
        lambda x: x.logsumexp(0), lambda x: x.amax(1), lambda x: x.max(1).values, lambda x: x.prod(1), lambda x: x.norm(dim=1, p=3),
    ],
    ids="sum mean sum0 var std norm logsumexp amax max prod norm3".split(),
)
def test_gradients(engine: Any, function: Callable[..., Any]) -> None:
    x = values((6, 9), torch.float64).requires_grad_()
    engine.check(function, x, backward=True, native=False)


def test_what_is_refused_says_what_eager_says(engine: Any) -> None:
    for function in (lambda x: x.max(), lambda x: x.argmax()):
        with pytest.raises(Exception, match=r"(?i)reduc|non-zero|dimension"):
            engine.compile(function)(torch.empty(0, 3))
