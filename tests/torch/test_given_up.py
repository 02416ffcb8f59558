"""Gradients that never come: nobody waits for them for ever, and nothing piles up."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
import tensortap as tap
import torch

from tap_helpers import BACKENDS, MODES, compiled, keys


def f(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    tap.save({"a": y, "n": [y + 1, 3]}, "tree", grad=True)
    z = tap.save_grad(y, "z")
    return (z * z).sum()


def reasons(path: Path) -> dict[str, str]:
    return {f"{p.name}.{p.path}" if p.path else p.name: p.reason for p in tap.verify(path).problems}


@pytest.mark.parametrize("backend", MODES)
def test_the_graph_went_without_a_backward(tmp_path: Path, backend: str | None) -> None:
    run = compiled(f, backend)
    with tap.record(tmp_path / "run"):
        loss = run(torch.ones(2, requires_grad=True))
        del loss
        gc.collect()
        tap.step()
        run(torch.ones(2, requires_grad=True)).backward()
    with tap.open(tmp_path / "run") as opened:
        gone = {(r.step, r.full_name) for r in opened.query(kind="grad") if r.state == "slot" and r.flags & 8}
        assert len(gone) <= 4
    problems = [(p.step, p.name, p.path, p.reason) for p in tap.verify(tmp_path / "run").problems]
    # tree.n.0 is used by nobody: its gradient does not come in the second step either
    assert sorted(p[:3] for p in problems) == [(0, "tree", "a"), (0, "tree", "n.0"), (0, "z", ""), (1, "tree", "n.0")]
    assert all(p[3] == "its hook was removed before the value came" for p in problems), problems


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_of_a_compiled_parameter_do_not_pile_up(tmp_path: Path, backend: str) -> None:
    w = torch.nn.Parameter(torch.ones(2))

    def g(x: torch.Tensor) -> torch.Tensor:
        tap.save(w, "w", grad=True)
        tap.save([w], "list", grad=True)
        return (w * x).sum()

    run = compiled(g, backend)
    with tap.record(tmp_path / "run"):
        for _ in range(4):
            run(torch.ones(2)).backward()
            tap.step()
        assert len(w._backward_hooks or {}) == 0
    assert len(keys(tmp_path / "run")) == 16
    assert len(set(keys(tmp_path / "run"))) == 16


@pytest.mark.parametrize("backend", MODES)
def test_a_step_of_msprobe_is_closed(tmp_path: Path, backend: str | None) -> None:
    """Its file waits for gradients; those that cannot come any more let go of it."""
    run = compiled(f, backend)
    with tap.record(tmp_path / "run", layout="msprobe", ring_bytes=1 << 20):
        big = torch.ones(1 << 16)
        for _ in range(12):  # what is gathered would fill the ring
            run(big.clone().requires_grad_())
            gc.collect()
            tap.step()
        assert tap.current() is not None
        assert tap.current().numbers().dropped == 0
    files = sorted((tmp_path / "run").glob("step*/*/debug.json"))
    assert len(files) == 12
    assert all(json.loads(path.read_text())["data"]["z_grad.0.debug"] is None for path in files)
