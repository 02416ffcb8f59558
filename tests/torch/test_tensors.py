"""Tensors of every sort come back as they were when saved; what cannot be saved never ends the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensortap as tap
import torch

from tap_helpers import MODES, compiled, keys, rows


class Two(torch.Tensor):
    """A subclass as torchao's are: two tensors behind one that has no memory."""

    @staticmethod
    def __new__(cls, left: torch.Tensor, right: torch.Tensor) -> Two:
        made: Two = torch.Tensor._make_wrapper_subclass(cls, left.shape, dtype=left.dtype)
        return made

    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.left, self.right = left, right

    def __repr__(self) -> str:  # type: ignore[override]
        return "Two"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["left", "right"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: None, size: Any, stride: Any) -> Two:
        return Two(inner["left"], inner["right"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils._pytree import tree_map_only

        left = func(*tree_map_only(Two, lambda x: x.left, args), **(kwargs or {}))
        right = func(*tree_map_only(Two, lambda x: x.right, args), **(kwargs or {}))
        return Two(left, right) if isinstance(left, torch.Tensor) else left


def saved(path: Path, value: Any) -> list[tuple[Any, Any]]:
    with tap.record(path):
        tap.save(value, "x")
    return rows(path)


class TestSorts:
    @pytest.mark.parametrize(
        "dtype",
        [
            "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex32 complex64 "
            "complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
        ][0].split(),
    )
    @pytest.mark.parametrize("backend", MODES)
    def test_dtypes(self, tmp_path: Path, dtype: str, backend: str | None) -> None:
        x = torch.arange(6, dtype=torch.uint8).to(torch.float32).to(getattr(torch, dtype)).reshape(2, 3)

        def f(x: torch.Tensor) -> None:
            tap.save(x, "x")

        run = compiled(f, backend)
        with tap.record(tmp_path / "run"):
            run(x)
        ((_, value),) = rows(tmp_path / "run")
        assert value.dtype == x.dtype
        assert value.shape == x.shape
        assert value.contiguous().reshape(-1).view(torch.uint8).tolist() == x.reshape(-1).view(torch.uint8).tolist()

    def test_views_and_bits(self, tmp_path: Path) -> None:
        x = torch.arange(24.0).reshape(2, 3, 4)
        c = torch.complex(x, x + 1)
        values = [x[:, 1:, ::2], x.t() if x.dim() == 2 else x.permute(2, 0, 1), x.expand(5, 2, 3, 4), c.conj(), c.conj().imag]
        assert values[3].is_conj()
        assert values[4].is_neg()
        for i, value in enumerate(values):
            ((_, got),) = saved(tmp_path / str(i), value)
            assert torch.equal(got, value.resolve_conj().resolve_neg())

    def test_bits_inside_a_graph(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor) -> None:
            tap.save(x.conj(), "conj")
            tap.save(x.conj().imag, "neg")

        x = torch.complex(torch.arange(3.0), torch.arange(3.0) + 1)
        with tap.record(tmp_path / "run"):
            torch.compile(f, backend="aot_eager", fullgraph=True)(x)
        (_, conj), (_, neg) = rows(tmp_path / "run")
        assert torch.equal(conj, x.conj().resolve_conj())
        assert torch.equal(neg, x.conj().imag.resolve_neg())

    def test_sparse_and_quantised_as_parts(self, tmp_path: Path) -> None:
        dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
        coo = dict((key[1], value) for key, value in saved(tmp_path / "coo", dense.to_sparse()))
        assert torch.equal(torch.sparse_coo_tensor(coo["x.indices"], coo["x.values"], (2, 2)).to_dense(), dense)
        assert (coo["x.shape.0"], coo["x.shape.1"]) == (2, 2)
        csr = dict((key[1], value) for key, value in saved(tmp_path / "csr", dense.to_sparse_csr()))
        rebuilt = torch.sparse_csr_tensor(csr["x.crow_indices"], csr["x.col_indices"], csr["x.values"], (2, 2))
        assert torch.equal(rebuilt.to_dense(), dense)
        q = torch.quantize_per_tensor(dense, 0.5, 3, torch.qint8)
        parts = dict((key[1], value) for key, value in saved(tmp_path / "q", q))
        assert torch.equal((parts["x.values"].float() - parts["x.zero_point"]) * parts["x.scale"], dense)

    def test_tensors_of_several(self, tmp_path: Path) -> None:
        a, b = torch.arange(2.0), torch.arange(3.0)
        values = {
            "two": Two(a, a + 1),
            "inside": Two(Two(a, a + 2), a + 1),
            "jagged": torch.nested.nested_tensor([a, b], layout=torch.jagged),
            "strided": torch.nested.nested_tensor([a, b]),
            "masked": torch.masked.masked_tensor(b, b > 1),
        }
        with tap.record(tmp_path / "run"):
            for name, value in values.items():
                tap.save(value, name)
        assert tap.verify(tmp_path / "run").ok
        parts = {key[1]: value.tolist() for key, value in rows(tmp_path / "run")}
        assert parts == {
            "two.left": [0, 1], "two.right": [1, 2],
            "inside.left.left": [0, 1], "inside.left.right": [2, 3], "inside.right": [1, 2],
            "jagged.values": [0, 1, 0, 1, 2], "jagged.offsets": [0, 2, 5],
            "strided.0": [0, 1], "strided.1": [0, 1, 2],
            "masked.data": [0, 1, 2], "masked.mask": [False, False, True],
        }  # fmt: skip

    @pytest.mark.parametrize("backend", MODES)
    def test_tensors_of_several_inside_a_graph(self, tmp_path: Path, backend: str | None) -> None:
        def f(x: torch.Tensor, w: Any) -> torch.Tensor:
            tap.save(w, "w")
            tap.save(w * 2, "w")
            return x + 1

        x = torch.arange(2.0)
        run = compiled(f, backend)
        with tap.record(tmp_path / "run"):
            for _ in range(2):
                run(x, Two(Two(x, x + 1), x + 2))
                tap.step()
        assert [(key[1:], value.tolist()) for key, value in rows(tmp_path / "run") if key[0] == 1] == [
            (("w.left.left", "forward", 0), [0, 1]),
            (("w.left.right", "forward", 0), [1, 2]),
            (("w.right", "forward", 0), [2, 3]),
            (("w.left.left", "forward", 1), [0, 2]),
            (("w.left.right", "forward", 1), [2, 4]),
            (("w.right", "forward", 1), [4, 6]),
        ]

    def test_meta_and_fake_have_a_shape(self, tmp_path: Path) -> None:
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = mode.from_tensor(torch.ones(2, 3))
        with tap.record(tmp_path / "run"):
            tap.save(torch.ones(4, 5, device="meta", dtype=torch.bfloat16), "meta")
            tap.save(fake, "fake")
        with tap.open(tmp_path / "run") as run:
            assert [(r.name, r.value_type, r.shape, r.dtype, r.payload_bytes) for r in run] == [
                ("meta", "meta", (4, 5), "bfloat16", 0),
                ("fake", "meta", (2, 3), "float32", 0),
            ]

    def test_dtensor(self, tmp_path: Path) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            mesh = init_device_mesh("cpu", (1,))
            x = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]).requires_grad_()
            with tap.record(tmp_path / "run"):
                y = x * 2
                tap.save(y, "y", grad=True)
                y.sum().backward()
        finally:
            torch.distributed.destroy_process_group()
        with tap.open(tmp_path / "run") as run:
            forward, grad = run
            assert torch.equal(forward.torch(), torch.arange(4.0) * 2)
            assert "Shard(dim=0)" in forward.placements
            assert (grad.kind, grad.torch().tolist()) == ("grad", [1.0] * 4)

    def test_in_place_afterwards(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y")
            y.add_(1)
            tap.save(y, "y")
            return y

        for backend in MODES:
            run = compiled(f, backend)
            with tap.record(tmp_path / str(backend)):
                run(torch.ones(3))
            (_, a), (_, b) = rows(tmp_path / str(backend))
            assert (a.tolist(), b.tolist()) == ([2.0] * 3, [3.0] * 3)


class TestHarmless:
    def test_bit_identical(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor, w: torch.Tensor, on: bool) -> list[torch.Tensor]:
            y = torch.tanh(x @ w)
            if on:
                tap.save({"y": y, "w": [w]}, "y", grad=True)
                y = tap.save_grad(y, "g")
            loss = (y * y).sum()
            return [loss.detach(), *torch.autograd.grad(loss, (x, w))]

        x, w = torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
        with tap.record(tmp_path / "run"):
            with_taps = f(x, w, True)
        assert all(torch.equal(a, b) for a, b in zip(with_taps, f(x, w, False)))

    def test_a_tensor_that_cannot_be_read(self, tmp_path: Path) -> None:
        class Broken(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                raise RuntimeError("cannot touch this")

        broken = torch.ones(2).as_subclass(Broken)
        with tap.record(tmp_path / "run"):
            tap.save(broken, "broken")
            tap.save(torch.ones(1), "fine")
        assert keys(tmp_path / "run") == [(0, "fine", "forward", 0)]
        assert [p.name for p in tap.verify(tmp_path / "run").problems] == ["broken"]
        assert any("cannot touch this" in message for message in tap.messages())

    def test_closed_before_the_backward(self, tmp_path: Path) -> None:
        x = torch.ones(2, requires_grad=True)
        with tap.record(tmp_path / "run"):
            y = x * 2
            tap.save(y, "y", grad=True)
        y.sum().backward()
        assert [p.name for p in tap.verify(tmp_path / "run").problems] == ["y"]

    def test_another_recorder_by_then(self, tmp_path: Path) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.save(y, "y", grad=True)
            return y.sum()

        for backend in MODES:
            run = compiled(f, backend)
            with tap.record(tmp_path / f"a{backend}"):
                loss = run(torch.ones(2, requires_grad=True))
            with tap.record(tmp_path / f"b{backend}"):
                loss.backward()
            assert keys(tmp_path / f"b{backend}") == []

    def test_hooks_of_a_parameter_do_not_pile_up(self, tmp_path: Path) -> None:
        w = torch.nn.Parameter(torch.ones(2))
        with tap.record(tmp_path / "run"):
            for _ in range(200):
                tap.save(w, "w", grad=True)
                tap.step()
            assert len(w._backward_hooks or {}) <= 64
            (w * 2).sum().backward()
            assert len(w._backward_hooks or {}) == 0

    def test_double_backward(self, tmp_path: Path) -> None:
        x = torch.ones(2, requires_grad=True)
        with tap.record(tmp_path / "run"):
            y = x * x * x
            tap.save(y, "y", grad=True)
            (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
            g.register_hook(lambda v: tap.save(v, "v"))
            g.sum().backward()
        with tap.open(tmp_path / "run") as run:
            assert all(not r.flags & 2 for r in run)
