"""Every ATen overload that torchair has a converter for (overloads.txt) is run by the engine, as it is or taken apart."""

from __future__ import annotations

import pathlib
from typing import Any

import torch

from tensortap import _core
from tensortap._engine.decompositions import decompositions

#: what torch runs: Fourier transforms, volumes by a grid, and batch norm in the parts that devices exchange
LACKING = {
    "aten._fft_c2c.default", "aten.batch_norm_backward_elemt.default", "aten.batch_norm_backward_reduce.default",
    "aten.batch_norm_elemt.default", "aten.grid_sampler_3d.default", "aten.matmul_backward.default",
}  # fmt: skip


def _operator(name: str) -> Any:
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def _never_in_a_graph(operator: Any) -> bool:
    """Taken apart by torch itself before a graph is made, made functional, a size, or drawn from torch's generators."""
    name = operator._schema.name + (f".{operator._overloadname}" if operator._overloadname != "default" else "")
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    random = torch.Tag.nondeterministic_seeded in operator.tags
    return composite or random or operator._schema.is_mutable or name.startswith("aten::sym_")


def test_overloads() -> None:
    names = (pathlib.Path(__file__).parent / "overloads.txt").read_text().split()
    known = {str(operator) for operator in decompositions()}
    lacking = {
        name for name in names
        if not _core.engine_knows(name) and name not in known and not _never_in_a_graph(_operator(name))
    }  # fmt: skip
    assert len(names) > 310
    assert lacking == LACKING
