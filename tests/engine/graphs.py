"""Graphs traced operator by operator, without the compiler in front: many small cases in little time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import tensortap
from tensortap import _backend

#: what may run on the host beside the operator under test
HELPERS = {"aten.clone.default"}


def compare(function: Callable[..., Any], args: list[torch.Tensor], native: bool = True, **tolerance: Any) -> None:
    """The function run by torch and by the engine gives the same; with ``native`` nothing but helpers ran on the host."""
    with torch.no_grad():
        expected = pytree.tree_leaves(function(*args))
        traced = make_fx(lambda *given: pytree.tree_leaves(function(*given)), tracing_mode="fake")(*args)
    tensortap.counters(reset=True)
    actual = _backend.compile_graph(traced, args)(list(args))
    assert len(actual) == len(expected)
    outputs = list(traced.graph.nodes)[-1].args[0]
    for node, ours, theirs in zip(outputs, actual, expected, strict=True):
        called = node.format_node()
        torch.testing.assert_close(
            ours, theirs, equal_nan=True, **tolerance, msg=lambda text, called=called: f"{called}: {text}"
        )
    host = set(_backend.host_targets()) - HELPERS
    assert not native or not host, f"ran on the host: {host}"
