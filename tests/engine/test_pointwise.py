"""Pointwise operators through torch.compile: every layout, dynamic sizes, gradients, chains; all of it native."""

from __future__ import annotations

from typing import Any

import pytest
import torch

F = torch.nn.functional

UNARY = {
    "rounding": [torch.abs, torch.neg, torch.sign, torch.ceil, torch.floor, torch.round, torch.trunc, torch.frac],
    "powers": [torch.exp, torch.exp2, torch.expm1, torch.square, torch.reciprocal, lambda x: x**3],
    "waves": [torch.sin, torch.cos, torch.tan, torch.atan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.erf],
    "activations": [F.relu, F.gelu, F.silu, F.mish, F.softplus, F.elu, F.hardswish, F.hardsigmoid, F.leaky_relu],
    "more": [
        lambda x: F.gelu(x, approximate="tanh"),
        F.relu6,
        F.selu,
        lambda x: F.celu(x, 0.7),
        torch.sigmoid,
        torch.erfc,
        F.hardshrink,
    ],
    "questions": [torch.isnan, torch.isinf, torch.signbit, lambda x: x > 0, lambda x: x == 0, torch.logical_not],
    "casts": [lambda x: x.to(torch.int32), lambda x: x.half(), lambda x: x.double(), lambda x: x.bool(), torch.clone],
}
BINARY = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.atan2, torch.lt, torch.ne]


def _layouts(dtype: torch.dtype) -> list[torch.Tensor]:
    """No dimension, no element, odd sizes, gaps, transposed, permuted, expanded, large and transposed."""
    x = (torch.randn(6, 5, 7) * 3).to(dtype)
    return [
        x[0, 0, 0],
        x[:0],
        x.flatten()[:17],
        x[:, ::2, 1:],
        x[0].t(),
        x.permute(2, 0, 1),
        x[:, :1, :].expand(6, 5, 7),
        (torch.randn(70, 90) * 3).to(dtype).t(),
        x.contiguous(),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("group", UNARY)
def test_unary_in_every_layout(engine, group, dtype):
    def f(xs):
        return [op(x) for op in UNARY[group] for x in xs]

    engine.check(f, _layouts(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_binary_broadcast(engine, dtype):
    pairs = [
        ((3, 5, 7), (7,)),
        ((3, 5, 7), (3, 1, 7)),
        ((4, 1), (1, 6)),
        ((), (5,)),
        ((3, 0), (1, 0)),
        ((33, 65), (33, 1)),
    ]
    args = [((torch.rand(a) * 9 + 1).to(dtype), (torch.rand(b) * 9 + 1).to(dtype)) for a, b in pairs]

    def f(args):
        return [op(a, b) for op in BINARY for a, b in args]

    engine.check(f, args)


def test_promotion(engine):
    kinds = [
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ]
    wide = [torch.ones(3, dtype=kind) for kind in kinds]
    zero = [torch.tensor(1, dtype=kind) for kind in kinds]

    def f(wide, zero):
        out = [a + b for a in wide for b in [*wide, *zero]]
        return out + [a * 2 for a in wide] + [a * 2.5 for a in wide] + [a / 3 for a in wide] + [a > 0.5 for a in wide]

    engine.check(f, wide, zero, exact=True)


def test_integers_divide_by_numbers(engine):
    x = torch.arange(-50, 50)

    def f(x):
        return [op(x, n) for op in (torch.floor_divide, torch.remainder, torch.fmod) for n in (3, -7)]

    engine.check(f, x, exact=True)


def test_division_by_a_zero_raises_as_eager_does(engine):
    compiled = engine.compile(lambda x, y: torch.floor_divide(x, y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([1, 2]), torch.tensor([1, 0]))


def test_number_to_a_power(engine):
    # strides: torch's trace promises others than eager gives for a transposed exponent
    engine.check(lambda x: (2**x, 1 / x, 3 - x), torch.randn(6, 7).t(), strides=False)


def test_choices(engine):
    def f(x, y, m):
        return (
            torch.where(m, x, y),
            torch.where(x > 0, x, 2.5),
            x.masked_fill(m, -1),
            x.clamp(-1, 1),
            x.clamp(min=y),
            torch.lerp(x, y, 0.3),
            torch.addcmul(x, y, y, value=2),
            torch.nan_to_num(x / 0),
            torch.zeros_like(x) + y,
        )

    engine.check(f, torch.randn(5, 9), torch.randn(9), torch.rand(5, 9) > 0.5)


def test_dynamic_sizes(engine):
    def f(x, y):
        return torch.tanh(x * y + 1).relu(), x.t() + 1

    compiled = engine.compile(f, dynamic=True)
    for rows, columns in ((3, 5), (1024, 3), (2, 2), (200, 300)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert engine.host() == {}


DIFFERENTIABLE = [
    torch.tanh, torch.sigmoid, F.relu, F.silu, F.gelu, F.mish, F.softplus, F.elu, F.hardswish, F.hardsigmoid,
    F.leaky_relu, F.hardtanh, lambda x: F.gelu(x, approximate="tanh"), torch.exp, torch.sin, lambda x: x**3,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients(engine, dtype):
    x = (torch.randn(6, 9) * 2).to(dtype).requires_grad_()
    engine.check(lambda x: [op(x) for op in DIFFERENTIABLE], x, backward=True)


def test_complex(engine):
    x, y = torch.randn(5, 7, dtype=torch.complex64), torch.randn(7, dtype=torch.complex64)

    def f(x, y):
        return (
            x + y,
            x - y,
            x * y,
            x / y,
            -x,
            x.abs(),
            x == y,
            torch.exp(x),
            x.to(torch.complex128),
            torch.where(x == y, x, y),
        )

    engine.check(f, x, y)


def test_a_long_chain_is_few_passes_and_exact_in_halves(engine):
    def f(x, y):
        for _ in range(20):
            x = x * y + 0.25
        return x

    engine.check(f, torch.rand(333).bfloat16(), torch.rand(333).bfloat16(), exact=True)


_WHOLE: list[Any] = [
    torch.floor_divide, torch.remainder, torch.fmod, lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_divided_by_a_tensor(engine, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max, (37, 9), dtype=dtype)
    y = torch.randint(1, 100, (37, 9), dtype=dtype)
    if limits.min < 0:
        y[::2] *= -1
        x[0, 0], y[0, 0] = limits.min, 7  # the smallest by -1 overflows, here and there

    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        return [
            (divide(x, y), divide(x.t(), y[0, 0]), divide(x[:0], y[:0]), divide(x, y[:1]) + 1) for divide in _WHOLE
        ]

    engine.check(run, x, y, exact=True)


@pytest.mark.parametrize("divide", _WHOLE)
@pytest.mark.parametrize("at", [0, 8999])
def test_integers_divided_by_zero(engine, divide: Any, at: int) -> None:
    x, y = torch.arange(9000), torch.full((9000,), 3)
    compiled = engine.compile(lambda x, y: divide(x + 1, y) * 2)
    torch.testing.assert_close(compiled(x, y), divide(x + 1, y) * 2)
    y[at] = 0
    for function in (compiled, divide):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(x, y)
    assert engine.host() == {}
