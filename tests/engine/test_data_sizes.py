"""Sizes that depend on data: counted by the engine, and what follows is planned when they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tensortap


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    def some(*shape: int) -> torch.Tensor:
        return (torch.randn(shape) * 2).round().clamp(-1, 1).to(dtype)

    return [some(7), some(3, 1, 4), some(6, 5).t(), some(4, 10)[:, ::3], some(), some(0, 3), torch.zeros(9).to(dtype)]


_DTYPES = [torch.bool, torch.int64, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize("dtype", _DTYPES)
def test_nonzero(engine: Any, dtype: torch.dtype) -> None:
    engine.check(lambda xs: [x.nonzero() for x in xs], _inputs(dtype), exact=True)


def test_zeros_with_a_sign_and_nan(engine: Any) -> None:
    x = torch.tensor([0.0, -0.0, float("nan"), 1e-45, float("-inf")])
    both = torch.complex(x, -x.flip(0))
    engine.check(lambda *xs: [x.nonzero() for x in xs], x, x.double(), x.bfloat16(), both, exact=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.complex64])
def test_masked_select(engine: Any, dtype: torch.dtype) -> None:
    xs = _inputs(dtype)
    masks = [torch.rand(x.shape) < 0.5 for x in xs]
    masks[2] = torch.rand(5, 6) < 0.5

    def run(xs: list[torch.Tensor], masks: list[torch.Tensor]) -> list[Any]:
        spread = [torch.masked_select(xs[1], masks[1][..., :1]), torch.masked_select(xs[1], masks[4])]
        return [torch.masked_select(x, mask) for x, mask in zip(xs, masks)] + spread

    engine.check(run, xs, masks, exact=True)


def test_masks_as_indexes(engine: Any) -> None:
    def run(x: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        return [x[mask] * 2, x[rows], x[:, mask[0]], x[rows, 1], torch.where(mask)[1], torch.argwhere(rows)]

    mask = torch.rand(4, 6) < 0.5
    engine.check(run, torch.randn(4, 6), torch.tensor([True, False, True, True]), mask)


def test_every_count_has_its_plan(engine: Any) -> None:
    def run(x: torch.Tensor) -> Any:
        at = x.nonzero()
        kept = torch.masked_select(x * 2, x > 0)
        return at * 2, at.shape[0] + 1, kept.sum(), (kept + 1).nonzero().t() + kept

    compiled = engine.compile(run, dynamic=True)
    for size in (12, 12, 12, 40, 1, 0):
        x = torch.randint(-1, 3, (size,))
        torch.testing.assert_close(compiled(x), run(x))
    assert engine.host() == {} and engine.graphs() <= 3


def test_gradients(engine: Any) -> None:
    def run(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return (torch.masked_select(x, mask) * 3).exp(), x[mask] * 2

    engine.check(run, torch.randn(5, 6, requires_grad=True), torch.rand(5, 6) < 0.5, backward=True, native=False)


def test_what_was_promised_of_a_size(engine: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        at = x.nonzero()
        torch._check(at.shape[0] < 4)
        torch._check(at.shape[0] >= 1)
        return at + 1

    compiled = engine.compile(run)
    for values in ([0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 0]):
        torch.testing.assert_close(compiled(torch.tensor(values)), run(torch.tensor(values)))
    assert engine.host() == {}
    for values in ([1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]):
        with pytest.raises(RuntimeError):
            compiled(torch.tensor(values))
    assert engine.graphs() == 1


def test_with_every_node_watched(engine: Any) -> None:
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for options in ({"tap": "*"}, {"check": "eager"}, {"profile": True}, {"strict": True}):
        torch.testing.assert_close(engine.compile(lambda x: x[x > 0] * 2, **options)(x), torch.tensor([4.0, 6.0]))
    assert tensortap.counters()["host"] == 0


def test_slices_where_the_data_says(engine: Any) -> None:
    """A place in a tensor's storage that only the host knows."""

    def run(x: torch.Tensor) -> torch.Tensor:
        i = int(x.abs().argmax())
        return torch.cat([x[:i], x[i : i + 1] * 2, x[i + 1 :]])

    compiled = torch.compile(run, backend="tensortap", fullgraph=True)
    for place in (0, 1, 5, 9):
        x = torch.rand(10)
        x[place] = 3.0
        assert torch.equal(compiled(x), run(x))
