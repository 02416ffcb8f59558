"""Writes into graph inputs: stores of a chain, in order with everything that reads the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensortap


def _swap(x: torch.Tensor, y: torch.Tensor) -> None:
    kept = x + 0
    x.copy_(y)
    y.copy_(kept)


def _twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    z = x + y
    x.add_(z)
    return z * x


def _both_ways(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Reads the input as it lies and turned over, in what would be one pass."""
    turned = x.t() + x
    x.copy_(turned * 2)
    return turned.relu() + y


def _read_after(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.copy_(y * 2)
    return x.t() + 1, x.sum(), x @ x, y


def _part(x: torch.Tensor, y: torch.Tensor) -> None:
    x[1:, :2] = y[1:, 2:4] + 1
    y.t()[0] += 3


def _reverse(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(x.flip(0))
    y.copy_(y.t().clone())


def _reductions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    most = x.amax(0)
    x.sub_(most)
    y.mul_(0.5).add_(x)
    return x.abs().max()


def _spread(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y[0])
    y.copy_(y.amax())


def _returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.add_(y), y.view(-1).mul_(3)


_FUNCTIONS = [_swap, _twice, _both_ways, _read_after, _part, _reverse, _reductions, _spread, _returned]


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_order(engine: Any, function: Callable[..., Any]) -> None:
    dynamic = function in (_both_ways, _part)
    engine.check(function, torch.randn(65, 65), torch.randn(65, 65), dynamic=dynamic, native=function is not _returned)


@pytest.mark.parametrize("function", [_twice, _both_ways, _part, _reverse])
def test_strides(engine: Any, function: Callable[..., Any]) -> None:
    engine.check(function, torch.randn(9, 9).t(), torch.randn(9, 18)[:, ::2])


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 1, 3)])
def test_sizes(engine: Any, shape: tuple[int, ...]) -> None:
    engine.check(_twice, torch.randn(shape), torch.randn(shape))


def test_dtypes(engine: Any) -> None:
    def write(xs: list[torch.Tensor], y: torch.Tensor) -> None:
        for x in xs:
            x.copy_(y)

    dtypes = [torch.bool, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
    engine.check(write, [torch.zeros(5, 7).to(dtype) for dtype in dtypes], torch.randn(5, 7) * 4)


def test_joins_its_chain(engine: Any) -> None:
    def step(x: torch.Tensor, grad: torch.Tensor) -> None:
        x.add_(grad * 2 + x.square(), alpha=-0.1)

    engine.check(step, torch.randn(33, 5), torch.randn(33, 5))
    assert tensortap.counters()["steps"] == 1


def test_seen_by_a_tap_or_a_check(engine: Any) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    for options in ({"tap": "*"}, {"check": "eager"}, {"profile": True}):
        ours, eager = x.clone(), x.clone()
        engine.compile(_twice, **options)(ours, y)
        _twice(eager, y)
        torch.testing.assert_close(ours, eager)


def test_versions(engine: Any) -> None:
    x = torch.randn(3)
    before = x._version
    engine.compile(lambda x: x.add_(1).sum())(x)
    assert x._version > before
