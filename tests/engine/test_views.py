"""Views: the engine gives them no work and no memory, only other sizes, strides and offsets."""

from __future__ import annotations

import pytest
import torch

import tensortap

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]

VIEWS = {
    "view": lambda x: x.view(3, 8, 5),
    "view with one size open": lambda x: x.view(-1, 10),
    "flatten": lambda x: x.flatten(1),
    "t": lambda x: x[0].t(),
    "transpose": lambda x: x.transpose(0, -1),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "expand": lambda x: x[:, :1].expand(2, 4, 12, 5),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze one": lambda x: x[:, :1].squeeze(1),
    "squeeze some": lambda x: x[:1, :1].squeeze((0, 1)),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "slice": lambda x: x[1:, 2:-3:2, ::3],
    "slice out of range": lambda x: x[:, 100:, -100:3],
    "select": lambda x: x[2, :, -1],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "diagonal": lambda x: x.diagonal(1, 0, 2),
    "diagonal below": lambda x: x.diagonal(-2, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 4), (2, 1), 5),
    "unfold": lambda x: x.unfold(1, 4, 3),
    "detach": lambda x: x.detach(),
    "alias": torch.ops.aten.alias,
    "view of a view": lambda x: x.permute(2, 0, 1)[1:].transpose(1, 2)[:, ::2].unsqueeze(0),
}


def _values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    whole = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    return whole % 3 == 0 if dtype == torch.bool else whole.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_view(engine, dtype):
    views = list(VIEWS.values())

    def f(x):
        return [view(x).clone(memory_format=torch.contiguous_format) for view in views]

    engine.check(f, _values(dtype, 4, 6, 5), exact=True)
    assert tensortap.counters()["views"] >= len(views)


def test_several_at_once(engine):
    def f(x):
        parts = [*x.split(4, 1), *x.split([1, 0, 9], 1), *x.chunk(3, 0), *x.unbind(1)]
        return [part + 1 for part in parts]

    engine.check(f, torch.randn(7, 10), exact=True)


def test_other_dtypes_for_the_same_bytes(engine):
    def f(x, z):
        pairs = torch.view_as_complex(x.view(2, 3, 2))
        return x.view(torch.int32) + 1, torch.view_as_real(z) * 2, pairs + z, z.imag + 1

    engine.check(f, torch.randn(2, 6), torch.randn(2, 3, dtype=torch.complex64))


def test_of_inputs_that_are_not_contiguous(engine):
    def f(x):
        return x.unsqueeze(0).transpose(1, 2)[:, 1:, ::2] + 1, x.diagonal() * 2

    engine.check(f, torch.randn(6, 9).t())
    engine.check(f, torch.randn(12, 9)[::2, 1:8])


def test_of_zero_elements_and_of_one(engine):
    def f(x, y):
        return x.view(3, 0, 2).transpose(0, 1) + 1, x.unsqueeze(0) * 2, y.unsqueeze(0).expand(3) + 1, y.view(1, 1) + y

    engine.check(f, torch.randn(0, 6), torch.tensor(2.0), strides=False)  # torch's own trace strides them otherwise


def test_sizes_that_change(engine):
    def f(x):
        return x[1:, : x.shape[1] // 2].unsqueeze(1).expand(-1, 3, -1).reshape(-1) + 1, x[-2:].t() * 2

    compiled = engine.compile(f, dynamic=True)
    for rows, columns in ((3, 6), (5, 8), (9, 7), (3, 6)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), f(x), rtol=0, atol=0)
    assert tensortap.counters()["graphs"] == 1


def test_gradients(engine):
    def f(x):
        a, b = x.split([2, 4], 1)
        windows = x.unfold(1, 3, 2).square()
        return a.t() @ b, x.diagonal() * 2, x[:, ::2].exp(), windows.sum(-1), x.unsqueeze(0).expand(3, -1, -1) * 2

    x = torch.randn(5, 6, requires_grad=True)
    engine.check(f, x, backward=True, native=False)
    ours = {"aten.unfold_backward.default", "aten.slice_backward.default", "aten.diagonal_backward.default"}
    assert not ours & set(engine.host())


def test_a_view_keeps_no_copy(engine):
    """Rows of a large value are read where they are: the arena holds the value alone."""
    compiled = engine.compile(lambda x: ((x + 1).view(64, 2, 512).transpose(0, 1)[:, 1:] * 2).sum())
    x = torch.randn(128, 512)
    torch.testing.assert_close(compiled(x), ((x + 1).view(64, 2, 512).transpose(0, 1)[:, 1:] * 2).sum())
    assert engine.host() == {}
