"""Graphs traced operator by operator, without the compiler in front: many small cases in little time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import tensortap
from tensortap._engine import backend

#: what may run on the host beside the operator under test
HELPERS = {"aten.clone.default"}


def wider(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def as_good(ours: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor, text: str) -> None:
    """Where the two differ, ours is at least as near to the value in float64, but for the last place of its dtype
    and what float32 loses of the largest value."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, text
    truth = wider(truth)
    last = truth.abs() * torch.finfo(ours.dtype).eps + 1e-6 * truth.abs().max()
    error, allowed = (wider(ours) - truth).abs(), torch.maximum((wider(theirs) - truth).abs(), last)
    same = torch.isclose(wider(ours), wider(theirs), rtol=0, atol=0, equal_nan=True)
    assert ((error <= allowed) | same).all(), f"{text}\nfurther from the truth by {(error - allowed)[~same].max()}"


def compare(function: Callable[..., Any], args: Sequence[torch.Tensor], native: bool = True, **tolerance: Any) -> None:
    """The function run by torch and by the engine gives the same, or the engine's is nearer to the float64 result; with
    ``native`` nothing but helpers ran on the host."""
    with torch.no_grad():
        expected = pytree.tree_leaves(function(*args))
        traced = make_fx(lambda *given: pytree.tree_leaves(function(*given)), tracing_mode="fake")(*args)
    tensortap.counters(reset=True)
    actual = backend.compile_graph(traced, args)(list(args))
    assert len(actual) == len(expected)
    truth: list[Any] = []
    outputs = list(traced.graph.nodes)[-1].args[0]
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        try:
            torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance)
        except AssertionError as problem:
            text = f"{outputs[index].format_node() if outputs[index] is not None else index}: {problem}"
            real = isinstance(theirs, torch.Tensor) and (theirs.is_floating_point() or theirs.is_complex())
            if tolerance or not real:
                raise AssertionError(text) from None
            truth = truth or pytree.tree_leaves(function(*[wider(arg) for arg in args]))
            as_good(ours, theirs, truth[index], text)
    host = set(backend.host_targets()) - HELPERS
    assert not native or not host, f"ran on the host: {host}"
