"""What a tap inside a graph knows: its place in the source, how a tensor is sharded, what the user's predicate says,
and the parts of tensors that are more than one block of memory. Each as in eager."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensortap as tap
import torch

from tap_helpers import MODES, compiled, keys, python, rows


def tapped_line(f: Any) -> int:
    lines, first = inspect.getsourcelines(f)
    return first + next(i for i, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("backend", MODES)
class TestSource:
    def test_file_and_line(self, tmp_path: Path, backend: str | None) -> None:
        def inner(y: torch.Tensor) -> None:
            tap.save({"y": y, "n": 3}, "nested", grad=True)  # here

        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y")  # here
            tap.save(y, "with gradient", grad=True)
            inner(y)
            return y.sum()

        with tap.record(tmp_path / "run"):
            compiled(f, backend)(torch.ones(2, requires_grad=True)).backward()
        with tap.open(tmp_path / "run") as run:
            want = {"y": tapped_line(f), "with gradient": tapped_line(f) + 1, "nested": tapped_line(inner)}
            seen = {(r.name, r.source, r.line) for r in run.query(kind="forward")}
        assert seen == {(name, __file__, line) for name, line in want.items()}

    def test_left_out(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> None:
            tap.save(x, "x")

        with tap.record(tmp_path / "run", source=False):
            compiled(f, backend)(torch.ones(2))
        with tap.open(tmp_path / "run") as run:
            assert [(r.source, r.line) for r in run] == [("", 0)]


@pytest.mark.parametrize("strict", [False, True], ids=["nonstrict", "strict"])
@pytest.mark.parametrize("recording", [False, True], ids=["off", "on"])
def test_source_in_an_exported_graph(tmp_path: Path, strict: bool, recording: bool) -> None:
    class Tapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tap.save(x, "x")  # here
            return x * 2

    if recording:
        tap.record(tmp_path / "here")
    program = torch.export.export(Tapped(), (torch.ones(2),), strict=strict)
    tap.close()
    with tap.record(tmp_path / "run"):
        program.module()(torch.ones(2))
    with tap.open(tmp_path / "run") as run:
        assert [(r.source, r.line) for r in run] == [(__file__, tapped_line(Tapped.forward))]


@pytest.fixture(scope="module")  # torch cannot compile for a second process group
def mesh() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("nested", [False, True], ids=["tensor", "nested"])
def test_placements_as_in_eager(tmp_path: Path, mesh: Any, nested: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        tap.save([y, 1] if nested else y, "y", grad=True)
        z = tap.save_grad(y, "z")
        return (z * z).sum()

    got = {}
    for backend in MODES:
        x = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(1), Replicate()]).requires_grad_()
        with tap.record(tmp_path / str(backend)):
            compiled(f, backend)(x).to_local().backward()
        with tap.open(tmp_path / str(backend)) as run:
            got[backend] = [
                (r.full_name, r.kind, r.placements, r.torch().tolist()) for r in run if r.value_type == "tensor"
            ]
            assert run.verify().ok
    y = (torch.arange(8.0).reshape(4, 2) * 2).tolist()
    name = "y.0" if nested else "y"
    assert got[None][0] == (name, "forward", "(Shard(dim=1), Replicate())", y)
    assert sorted(row[:2] for row in got[None]) == sorted([(name, "forward"), (name, "grad"), ("z", "grad")])
    for backend in MODES:
        assert sorted(got[backend]) == sorted(got[None]), backend


@pytest.mark.parametrize("backend", MODES)
class TestPredicate:
    def test_asked_each_time(self, tmp_path: Path, backend: str | None) -> None:
        asked = []

        def predicate(name: str, value: Any) -> bool:
            asked.append((name, value.sum().item() if isinstance(value, torch.Tensor) else value))
            return name != "no" and (name != "large" or bool(value.max() > 5))

        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "no", grad=True)
            tap.save(y, "large", grad=True)
            tap.save({"a": (y.sum(), 2.5, "text;"), "n": 3, "b": [None, True]}, "tree")
            return (y * y).sum()

        run = compiled(f, backend)
        with tap.record(tmp_path / "run", predicate=predicate):
            for size in (1.0, 3.0, 1.0):
                run(torch.full((2,), size, requires_grad=True)).backward()
                tap.step()
        assert [name for name, _ in asked] == ["no", "large", "tree"] * 3
        assert [value for name, value in asked if name == "large"] == [4.0, 12.0, 4.0]
        tree = asked[2][1]
        assert isinstance(tree["a"][0], torch.Tensor)
        assert (tree["a"][1:], tree["n"], tree["b"]) == ((2.5, "text;"), 3, [None, True])
        got = [key for key in keys(tmp_path / "run") if not key[1].startswith("tree")]
        # the gradient goes with its value; it is not asked about again
        assert got == [(1, "large", "forward", 0), (1, "large", "grad", 0)]
        assert tap.verify(tmp_path / "run").ok

    def test_that_fails(self, tmp_path: Path, backend: str | None) -> None:
        def predicate(name: str, value: Any) -> bool:
            raise ZeroDivisionError

        def f(x: torch.Tensor) -> None:
            tap.save(x, "x")

        with tap.record(tmp_path / "run", predicate=predicate):
            compiled(f, backend)(torch.ones(2))
        assert keys(tmp_path / "run") == [(0, "x", "forward", 0)]


def parts(path: Path) -> dict[str, Any]:
    return {key[1]: value for key, value in rows(path)}


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestParts:
    """Torch traces a per-tensor quantisation; the rest of these it refuses to trace, with or without a tap."""

    @pytest.mark.parametrize("backend", MODES)
    def test_quantised(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            q = torch.quantize_per_tensor(x, 0.5, 3, torch.qint8)
            tap.save(q, "q")
            tap.save([q, x], "list")
            return x * 2

        x = torch.tensor([[0.0, 2.0], [3.0, 0.5]])
        with tap.record(tmp_path / "run"):
            compiled(f, backend)(x)
        assert tap.verify(tmp_path / "run").ok
        got = parts(tmp_path / "run")
        for name in ("q", "list.0"):
            assert torch.equal((got[name + ".values"].float() - got[name + ".zero_point"]) * got[name + ".scale"], x)
        assert torch.equal(got["list.1"], x)

    @pytest.mark.parametrize("layout", ["coo", "csr"])
    def test_sparse_operator(self, tmp_path: Path, layout: str) -> None:
        """The operator itself takes them, wherever a graph got them from."""
        dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
        x = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
        with tap.record(tmp_path / "run"):
            torch.ops.tensortap.tap(x, "x", 0)
        got = parts(tmp_path / "run")
        if layout == "coo":
            back = torch.sparse_coo_tensor(got["x.indices"], got["x.values"], (2, 2))
        else:
            back = torch.sparse_csr_tensor(got["x.crow_indices"], got["x.col_indices"], got["x.values"], (2, 2))
        assert torch.equal(back.to_dense(), dense)

    @pytest.mark.parametrize("make", ["to_sparse", "to_sparse_csr"])
    def test_sparse_is_refused_by_torch_or_saved_between_graphs(self, tmp_path: Path, make: str) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            s = getattr(x * 2, make)()
            tap.save(s, "s")
            return x.sum()

        x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
        with tap.record(tmp_path / "run"):
            with pytest.raises(Exception, match="sparse"):
                torch.compile(f, backend="aot_eager", fullgraph=True)(x)
            torch._dynamo.reset()
            torch.compile(f, backend="aot_eager")(x)
        assert parts(tmp_path / "run")["s.values"].tolist() == [4.0, 6.0]

    def test_what_cannot_be_read_is_listed(self, tmp_path: Path) -> None:
        """A sparse layout inside a graph on a torch that cannot hand the tensor over."""
        script = """
import sys, torch
from tensortap import _core
real = _core.on_torch
_core.on_torch = lambda *args: real(*args[:-1], None)
sys.modules.pop("tensortap._torch.torch_taps", None)
import tensortap as tap
from tensortap._torch import torch_taps
torch_taps.install = lambda: None
_core.on_torch(torch_taps.save_traced, torch_taps.save_gradients, torch_taps.is_recompute, vars(torch.compiler), torch_taps.ask, None)
with tap.record(sys.argv[1]):
    for _ in range(2):
        torch.ops.tensortap.tap(torch.ones(2, 2).to_sparse(), "sparse", 0)
    torch.ops.tensortap.tap(torch.ones(2), "fine", 0)
print(sum("sparse was not recorded: torch could not hand it over" in m for m in tap.messages()))
"""
        assert python(script, str(tmp_path / "run")) == "1\n"
        assert keys(tmp_path / "run") == [(0, "fine", "forward", 0)]
        done = subprocess.run(
            [sys.executable, "-m", "tensortap", "verify", str(tmp_path / "run")], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "sparse" in done.stdout
        assert "could not hand it over" in done.stdout
