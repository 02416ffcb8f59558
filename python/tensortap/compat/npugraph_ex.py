"""npugraph_ex where it is not installed: the same backend with flat options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .torchair import _pipeline
from .torchair._logger import make
from .torchair._npugraph_ex import FlatConfig as CompilerConfig
from .torchair._npugraph_ex import with_options

__all__ = ["CompilerConfig", "compile_fx", "get_compiler", "get_npu_backend", "logger"]

logger = make("npugraph_ex", "NPUGRAPH_EX")


def _config(given: CompilerConfig | None) -> Any:
    return (given or CompilerConfig()).to_config()


def get_compiler(compiler_config: CompilerConfig | None = None) -> Callable[..., Any]:
    """The function that compiles one traced graph."""
    return _pipeline.get_compiler(_config(compiler_config))


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: dict[Any, Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """A backend for torch.compile."""
    return _pipeline.get_npu_backend(
        compiler_config=_config(compiler_config), custom_decompositions=custom_decompositions
    )


def compile_fx(gm: Any, example_inputs: Sequence[Any] | None = None, options: dict[str, Any] | None = None) -> Any:
    """Compile one traced graph with flat options."""
    return _pipeline.get_compiler(with_options(_config(None), options or {}))(gm, example_inputs or [])
