"""The matrix of modes: in each, every call is recorded, in order, with the values and gradients of eager.

The oracle is torch itself: the function is run in eager with its values collected by plain Python and its gradients by
``retain_grad``, neither of which knows tensortap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensortap as tap
import torch
from torch.utils.checkpoint import checkpoint

from tap_helpers import BACKENDS, MODES, ROUNDING, compiled, keys, python, rows, same

CALLS = 3


class Oracle:
    """Stands where ``tap`` stands: keeps values and their gradients in memory."""

    def __init__(self) -> None:
        self.values: list[tuple[str, torch.Tensor, bool]] = []

    def save(self, value: Any, name: str, grad: bool = False) -> None:
        if isinstance(value, torch.Tensor):
            if grad and value.requires_grad and not value.is_leaf:
                value.retain_grad()
            self.values.append((name, value, grad))
        elif isinstance(value, dict):
            for key, item in value.items():
                self.save(item, f"{name}.{key}", grad)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self.save(item, f"{name}.{i}", grad)
        else:
            self.values.append((name, value, False))

    def rows(self, step: int) -> list[tuple[Any, Any]]:
        seen: dict[str, int] = {}
        out = []
        for name, value, _ in self.values:
            call = seen.get(name, -1) + 1
            seen[name] = call
            plain = value.detach() if isinstance(value, torch.Tensor) else value
            out.append(((step, name, "forward", call), plain))
        return out

    def gradients(self, step: int) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        out = {}
        for name, value, grad in self.values:
            call = seen.get(name, -1) + 1
            seen[name] = call
            if grad and isinstance(value, torch.Tensor) and value.requires_grad:
                out[(step, name, "grad", call)] = value.grad
        return out


def model(x: torch.Tensor, w: torch.Tensor, to: Any, nested: bool, grad: bool) -> torch.Tensor:
    """Values that are ready in another order than they are saved in, one saved twice, one nested."""
    h = x @ w
    for _ in range(2):
        h = torch.sin(h) @ w
    to.save(h, "h", grad=grad)
    to.save(x.mean(), "mean")
    to.save(x.mean(), "mean")
    y = torch.cat([h, x]) * 2
    if nested:
        to.save({"y": y, "pair": [h.relu(), (y.sum(), "text", None)], "half": 0.5, "n": 3}, "tree", grad=grad)
    else:
        to.save(y, "y", grad=grad)
    to.save(w.t(), "w.t")
    to.save(y[::2, 1:], "view", grad=grad)
    return y.tanh().sum() + h.sum()


def run_with(to: Any, f: Callable[..., torch.Tensor], nested: bool, grad: bool, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, 8, generator=generator, requires_grad=grad)
    w = torch.randn(8, 8, generator=generator, requires_grad=grad)
    out = f(x, w, to, nested, grad)
    if grad:
        out.backward()
        assert x.grad is not None
        return torch.cat([out.detach().reshape(1), x.grad.reshape(-1)])
    return out


def expected(nested: bool, grad: bool, sizes: list[int]) -> tuple[list[Any], dict[Any, Any], list[torch.Tensor]]:
    values, gradients, outputs = [], {}, []
    for step, size in enumerate(sizes):
        oracle = Oracle()
        outputs.append(run_with(oracle, model, nested, grad, size))
        values += oracle.rows(step)
        gradients |= oracle.gradients(step)
    return values, gradients, outputs


def check(path: Path, nested: bool, grad: bool, sizes: list[int], exact: bool) -> None:
    values, gradients, _ = expected(nested, grad, sizes)
    got = rows(path, kind="forward")
    assert [key for key, _ in got] == [key for key, _ in values]
    for (key, mine), (_, theirs) in zip(got, values):
        assert same(mine, theirs, exact), key
    got_gradients = dict(rows(path, kind="grad"))
    assert set(got_gradients) == {key for key, value in gradients.items() if value is not None}
    for key, mine in got_gradients.items():
        assert same(mine, gradients[key], exact), key
    unused = [key for key, value in gradients.items() if value is None]
    problems = tap.verify(path).problems
    assert sorted(p.name for p in problems) == sorted(key[1].partition(".")[0] for key in unused)


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "grad"])
@pytest.mark.parametrize("nested", [False, True], ids=["tensor", "nested"])
class TestMatrix:
    def test_eager(self, tmp_path: Path, nested: bool, grad: bool) -> None:
        sizes = [4] * CALLS
        with tap.record(tmp_path / "run"):
            for size, theirs in zip(sizes, expected(nested, grad, sizes)[2]):
                assert torch.equal(run_with(tap, model, nested, grad, size), theirs)
                tap.step()
        check(tmp_path / "run", nested, grad, sizes, exact=True)

    @pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_compiled(self, tmp_path: Path, nested: bool, grad: bool, backend: str, dynamic: bool) -> None:
        sizes = [4, 6, 5] if dynamic else [4] * CALLS

        def tapped(x: torch.Tensor, w: torch.Tensor, to: Any, nested: bool, grad: bool) -> torch.Tensor:
            return model(x, w, tap, nested, grad)

        run = compiled(tapped, backend, dynamic=dynamic)
        # compiled before there is a recorder: recording is a guard
        run_with(None, run, nested, grad, sizes[0])
        with tap.record(tmp_path / "run"):
            for size, theirs in zip(sizes, expected(nested, grad, sizes)[2]):
                mine = run_with(None, run, nested, grad, size)
                assert same(mine, theirs, backend not in ROUNDING)
                tap.step()
        check(tmp_path / "run", nested, grad, sizes, exact=backend not in ROUNDING)
        # and off again
        run_with(None, run, nested, grad, sizes[0])


EXPORTED = """
import sys
import tensortap as tap, torch
program = torch.export.load(sys.argv[1])
x = torch.arange(12.0).reshape(3, 4)
with tap.record(sys.argv[2]):
    for _ in range(2):
        program.module()(x)
"""


class Exported(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        tap.save(y, "y", grad=True)
        tap.save({"a": y + 1, "b": [x, "s"]}, "tree")
        return y.sum()


@pytest.mark.parametrize("recording", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("strict", [False, True], ids=["nonstrict", "strict"])
class TestExport:
    def test_again_in_another_process(self, tmp_path: Path, strict: bool, recording: bool) -> None:
        x = torch.arange(12.0).reshape(3, 4)
        if recording:
            tap.record(tmp_path / "here")
        program = torch.export.export(Exported(), (x,), strict=strict)
        tap.close()
        torch.export.save(program, tmp_path / "program.pt2")
        for run in (program, program.run_decompositions()):
            directory = tmp_path / f"run{id(run)}"
            with tap.record(directory):
                run.module()(x)
            self.check(directory, 1)
        python(EXPORTED, str(tmp_path / "program.pt2"), str(tmp_path / "there"))
        self.check(tmp_path / "there", 2)
        if recording:
            assert keys(tmp_path / "here") == []

    def check(self, path: Path, calls: int) -> None:
        x = torch.arange(12.0).reshape(3, 4)
        want = []
        for call in range(calls):
            for name, value in (("y", x * 2), ("tree.a", x * 2 + 1), ("tree.b.0", x), ("tree.b.1", "s")):
                want.append(((0, name, "forward", call), value))
        got = rows(path)
        assert [key for key, _ in got] == [key for key, _ in want]
        assert all(same(a, b, True) for (_, a), (_, b) in zip(got, want))


CACHED = """
import sys
import torch, tensortap as tap

@torch.compile(fullgraph=True)
def f(x):
    y = x.sin() * 2
    tap.save(y, "y", grad=True)
    return (y * y).sum()

x = torch.arange(6.0, requires_grad=True)
with tap.record(sys.argv[1]):
    f(x).backward()
from torch._dynamo.utils import counters
print("hits", counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_compile_cache_in_another_process(tmp_path: Path) -> None:
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    first = python(CACHED, str(tmp_path / "a"), env=env)
    second = python(CACHED, str(tmp_path / "b"), env=env)
    assert "hits 0" in first
    assert "hits 0" not in second
    a, b = rows(tmp_path / "a"), rows(tmp_path / "b")
    assert [key for key, _ in a] == [(0, "y", "forward", 0), (0, "y", "grad", 0)]
    assert [key for key, _ in a] == [key for key, _ in b]
    assert all(torch.equal(x, y) for (_, x), (_, y) in zip(a, b))


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x @ w)
    tap.save(y, "y", grad=True)
    tap.save(y.sum(), "sum")
    return torch.cos(y) @ w


def blocks(x: torch.Tensor, w: torch.Tensor, reentrant: bool | None) -> torch.Tensor:
    for _ in range(2):
        x = block(x, w) if reentrant is None else checkpoint(block, x, w, use_reentrant=reentrant)
    return x.sum()


class TestCheckpointing:
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        return (
            torch.randn(4, 4, generator=generator, requires_grad=True),
            torch.randn(4, 4, generator=generator, requires_grad=True),
        )

    def usual(self, tmp_path: Path) -> dict[Any, Any]:
        with tap.record(tmp_path / "usual"):
            blocks(*self.inputs(), None).backward()
        return dict(rows(tmp_path / "usual"))

    @pytest.mark.parametrize("reentrant", [False, True], ids=["new", "reentrant"])
    def test_eager(self, tmp_path: Path, reentrant: bool) -> None:
        usual = self.usual(tmp_path)
        with tap.record(tmp_path / "run"):
            blocks(*self.inputs(), reentrant).backward()
        with tap.open(tmp_path / "run") as run:
            first = [r for r in run.query(kind="forward") if not r.flags & 2]
            again = [r for r in run.query(kind="forward") if r.flags & 2]
            grads = list(run.query(kind="grad"))
            assert run.verify().ok
            assert [(r.name, r.call) for r in first] == [("y", 0), ("sum", 0), ("y", 1), ("sum", 1)]
            for r in first:
                assert torch.equal(r.torch(), usual[(0, r.name, "forward", r.call)])
            # run again in reverse order, marked, and not counted among the calls
            assert [(r.name, r.call) for r in again if r.name == "y"] == [("y", 0), ("y", 1)]
            assert torch.equal(next(r for r in again if r.name == "y").torch(), usual[(0, "y", "forward", 1)])
            assert len(grads) == 2
            want = [usual[(0, "y", "grad", call)] for call in (1, 0)]
            assert all(torch.equal(r.torch(), g) for r, g in zip(grads, want))

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_compiled(self, tmp_path: Path, backend: str) -> None:
        usual = self.usual(tmp_path)
        run = compiled(blocks, backend)
        with tap.record(tmp_path / "run"):
            run(*self.inputs(), False).backward()
        with tap.open(tmp_path / "run") as run:
            first = [r for r in run if not r.flags & 2]
            assert run.verify().ok
            got = {(0, r.name, r.kind, r.call): r.torch() for r in first}
            assert len(first) == len(got)
        assert set(got) == set(usual)
        assert all(torch.allclose(got[key], usual[key], atol=1e-5) for key in usual)


def test_default_partition(tmp_path: Path) -> None:
    """A backend of the user's own, with the partitioner that knows nothing of side effects."""
    from functorch.compile import default_partition, nop
    from torch._dynamo.backends.common import aot_autograd

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        tap.save(y, "y")
        tap.save([y], "t", grad=True)
        y.register_hook(lambda g: tap.save(g, "hook"))
        return (y * y).sum()

    backend = aot_autograd(fw_compiler=nop, partition_fn=default_partition)
    with tap.record(tmp_path / "run"):
        torch.compile(f, backend=backend, fullgraph=True)(torch.ones(3, requires_grad=True)).backward()
    assert keys(tmp_path / "run", kind="forward") == [(0, name, "forward", 0) for name in ("y", "t.0", "hook")]
    assert keys(tmp_path / "run", kind="grad") == [(0, "t.0", "grad", 0)]


class TestAutocast:
    @pytest.mark.parametrize("backend", MODES)
    def test_bfloat16(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = x @ w
                tap.save(y, "y", grad=True)
                return (y @ w).float().sum()

        run = compiled(f, backend)
        x = torch.randn(4, 4, requires_grad=True)
        w = torch.randn(4, 4)
        with torch.autocast("cpu", torch.bfloat16):
            y = (x @ w).detach()
        with tap.record(tmp_path / "run"):
            run(x, w).backward()
        ((key, value), (grad_key, grad)) = rows(tmp_path / "run")
        assert (key, grad_key) == ((0, "y", "forward", 0), (0, "y", "grad", 0))
        assert value.dtype == grad.dtype == torch.bfloat16
        assert torch.equal(value, y)


class TestFunc:
    """torch.func: a tap under vmap saves the whole batch once, the mapped dimension first."""

    @pytest.mark.parametrize("backend", MODES)
    def test_vmap(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y")
            return y.sum()

        def mapped(x: torch.Tensor) -> torch.Tensor:
            return torch.func.vmap(f, in_dims=1)(x)

        run = compiled(mapped, backend)
        x = torch.arange(6.0).reshape(2, 3)
        with tap.record(tmp_path / "run"):
            assert torch.equal(run(x), (x * 2).sum(0))
        ((key, value),) = rows(tmp_path / "run")
        assert key == (0, "y", "forward", 0)
        assert torch.equal(value, (x * 2).t())

    @pytest.mark.parametrize("backend", MODES)
    def test_grad(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y")
            return (y * y).sum()

        def derived(x: torch.Tensor) -> torch.Tensor:
            return torch.func.grad(f)(x)

        run = compiled(derived, backend)
        x = torch.arange(3.0)
        with tap.record(tmp_path / "run"):
            assert torch.equal(run(x), 8 * x)
        ((key, value),) = rows(tmp_path / "run")
        assert key == (0, "y", "forward", 0)
        assert torch.equal(value, x * 2)

    def test_gradients_get_a_clear_answer(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "with_gradient", grad=True)
            return y.sum()

        x = torch.arange(3.0)
        with tap.record(tmp_path / "run"):
            assert torch.equal(torch.func.grad(f)(x), torch.full((3,), 2.0))
        assert keys(tmp_path / "run") == [(0, "with_gradient", "forward", 0)]
        assert any("with_gradient" in m and "torch.func.grad" in m for m in tap.messages())


@pytest.mark.parametrize("backend", MODES)
def test_threads(tmp_path: Path, backend: str | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        tap.save(y, "y", grad=True)
        return (y * y).sum()

    run = compiled(f, backend)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                x = torch.full((8,), float(number), requires_grad=True)
                run(x).backward()
        except BaseException as error:
            failures.append(error)

    with tap.record(tmp_path / "run"):
        run(torch.full((8,), 0.0, requires_grad=True)).backward()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    got = rows(tmp_path / "run")
    forward = {key[3]: value for key, value in got if key[2] == "forward"}
    grads = {key[3]: value for key, value in got if key[2] == "grad"}
    assert sorted(forward) == sorted(grads) == list(range(41))
    assert all(torch.equal(grads[call], 2 * value) for call, value in forward.items())


@pytest.mark.parametrize("backend", MODES)
class TestSteps:
    def test_a_late_gradient_belongs_to_its_forward(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y", grad=True)
            return (y * y).sum()

        run = compiled(f, backend)
        x = torch.arange(3.0, requires_grad=True)
        with tap.record(tmp_path / "run"):
            losses = []
            for _ in range(3):
                losses.append(run(x))
                losses.append(run(x * 3))
                tap.step()
            for i in (0, 1, 5, 4, 3, 2):  # neither first in first out nor last in first out
                losses[i].backward(retain_graph=i == 0)
        assert tap.verify(tmp_path / "run").ok
        got = dict(rows(tmp_path / "run"))
        assert len(got) == 12
        for step in range(3):
            for call in range(2):
                assert torch.equal(got[(step, "y", "grad", call)], 2 * got[(step, "y", "forward", call)])

    def test_gradient_that_never_comes_is_listed(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "used", grad=True)
            z = x * 3
            tap.save(z, "unused", grad=True)
            return y.sum()

        run = compiled(f, backend)
        with tap.record(tmp_path / "run"):
            run(torch.arange(3.0, requires_grad=True)).backward()
        verified = tap.verify(tmp_path / "run")
        assert [(p.name, p.kind) for p in verified.problems] == [("unused", "never came")]

    def test_save_grad_is_identity(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 2
            z = tap.save_grad(y, "g")
            return (z * 3).sum() + y.sum(), z

        run = compiled(f, backend)
        x = torch.arange(3.0, requires_grad=True)
        with tap.record(tmp_path / "run"):
            loss, z = run(x)
            loss.backward()
        assert torch.equal(z, x * 2)
        ((key, value),) = rows(tmp_path / "run")
        assert key == (0, "g", "grad", 0)
        assert torch.equal(value, torch.full((3,), 3.0))  # of what goes through it, not of y

    def test_gradient_of_an_input(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            tap.save(x, "x", grad=True)
            return (x * x).sum() + x.sum()

        run = compiled(f, backend)
        x = torch.arange(3.0, requires_grad=True)
        with tap.record(tmp_path / "run"):
            for _ in range(3):
                x.grad = None
                run(x).backward()
                tap.step()
        got = dict(rows(tmp_path / "run"))
        assert sorted(got) == sorted((s, "x", k, 0) for s in range(3) for k in ("forward", "grad"))
        assert all(torch.equal(got[(s, "x", "grad", 0)], 2 * x.detach() + 1) for s in range(3))
