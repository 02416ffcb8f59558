"""The names ``npu`` and ``npugraph_ex`` of torch.compile: torchair's backend in its two modes."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def _backend(mode: str) -> Any:
    from . import torchair

    config = torchair.CompilerConfig()
    config.mode = mode
    return torchair.get_npu_backend(compiler_config=config)


def _npu(module: Any, inputs: list[Any], **options: Any) -> Any:
    return _backend("max-autotune")(module, inputs, **options)


def _npugraph_ex(module: Any, inputs: list[Any], **options: Any) -> Any:
    return _backend("npugraph_ex")(module, inputs, **options)


def register() -> None:
    """Make the names known, when torch.compile is first used."""
    from torch._dynamo.backends import registry

    for name, run in (("npu", _npu), ("npugraph_ex", _npugraph_ex)):
        if name not in registry._COMPILER_FNS and name not in registry._BACKENDS:
            registry.register_backend(run, name=name)
