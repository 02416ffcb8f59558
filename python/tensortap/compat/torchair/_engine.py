"""The one place that hands a traced graph to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._config import CompilerConfig


def compile(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig, graph: int
) -> Callable[..., Any]:
    """A function that runs the graph."""
    return module.forward
