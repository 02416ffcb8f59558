"""Inside Inductor's graphs: what is saved is bit for bit what the graph itself returns, and how much the taps changed of
its code can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensortap as tap
import torch

from tap_helpers import BACKENDS, compiled, keys, rows

Values = tuple[torch.Tensor, ...]


def tapped(x: torch.Tensor, w: torch.Tensor) -> Values:
    """Everything that is saved is returned too: the same buffers of the same graph."""
    tap.save(w, "w", grad=True)
    h = torch.sin(x @ w).softmax(-1)
    tap.save(h, "h")
    n = torch.nn.functional.layer_norm(h, h.shape[-1:]) * w.sum()
    tap.save(n, "n")
    v = (n.exp() + 1).log().cumsum(0)[::2, 1:]
    tap.save([v, {"mean": v.mean()}], "tree")
    b = v.bfloat16() * 3
    tap.save(b, "b")
    return h, n, v, v.mean(), b


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_bit_for_bit_what_the_graph_returns(tmp_path: Path, backend: str, dynamic: bool) -> None:
    run = compiled(tapped, backend, dynamic=dynamic)
    returned = []
    with tap.record(tmp_path / "run"):
        for size in (33, 47) if dynamic else (33, 33):
            generator = torch.Generator().manual_seed(size)
            x, w = torch.randn(size, 40, generator=generator), torch.randn(40, 40, generator=generator)
            w.requires_grad_()
            out = run(x, w)
            sum(each.float().sum() for each in out).backward()
            names = ("h", "n", "tree.0", "tree.1.mean", "b")
            returned += [(name, value.detach()) for name, value in zip(names, out)]
            returned += [("w", w.detach().clone()), ("grad of w", w.grad)]
            tap.step()
    got = [(f"grad of {k[1]}" if k[2] == "grad" else k[1], value) for k, value in rows(tmp_path / "run")]
    assert sorted(name for name, _ in got) == sorted(name for name, _ in returned)
    for name in {name for name, _ in got}:
        mine = [value for each, value in got if each == name]
        theirs = [value for each, value in returned if each == name]
        for a, b in zip(mine, theirs):
            assert a.dtype == b.dtype
            assert torch.equal(a, b), name  # no NaN among them: equal means the same bits, but for the sign of zero
            assert torch.equal(torch.signbit(a), torch.signbit(b)), name


class TestExplain:
    def test_a_value_that_was_fused_away(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            tap.save(y, "y")
            return y.cos()

        explained = tap.explain(f, torch.ones(8))
        assert (explained.taps, explained.changed, explained.kernels, explained.kernels_with_taps) == (1, True, 1, 1)
        assert "changed the generated code" in str(explained)
        assert "out_ptr1" in explained.added[0]
        assert "out_ptr1" not in explained.removed[0]

    def test_values_that_exist_anyway(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            tap.save(x, "x")
            tap.save(y, "y")
            return y

        with tap.record(tmp_path / "run"):
            explained = tap.explain(f, torch.ones(8))
            assert tap.recording()
            compiled(f, "inductor")(torch.ones(8))
        assert (explained.taps, explained.changed) == (2, False)
        assert str(explained) == "2 taps: the same 1 kernels as without them"
        # explaining recorded nothing, and recording went on after it
        assert keys(tmp_path / "run") == [(0, "x", "forward", 0), (0, "y", "forward", 0)]

    def test_the_backward_too(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            tap.save(y, "y", grad=True)
            return (y * y).sum()

        explained = tap.explain(f, torch.ones(8, requires_grad=True))
        assert explained.taps == 2  # the value, and its gradient
