"""The one place that hands a traced graph to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _convert
from ._config import CompilerConfig


def native_state(target: Any) -> str | None:
    """"whole" or "partly" where the engine has a kernel for an operator, None where torch runs it."""
    return None


def compile(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig, graph: int
) -> Callable[..., Any]:
    """A function that runs the graph. The module is changed: it belongs to the caller of the engine."""
    if _convert.has_converters(module):
        _convert.convert(module, graph)
    return module.forward
