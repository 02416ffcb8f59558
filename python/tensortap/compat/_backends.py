"""The names ``npu`` and ``npugraph_ex`` of torch.compile: run as aot_eager runs a graph, one operator at a time."""

from __future__ import annotations

from typing import Any

from . import _paths


def _run(module: Any, inputs: list[Any], **options: Any) -> Any:
    from torch._dynamo.backends.debugging import aot_eager

    set_options = sorted(options.get("options") or options)
    if set_options:
        _paths.say_once("backend", f"the options {', '.join(set_options)} of the backend have no effect here")
    return aot_eager(module, inputs)


def register() -> None:
    """Make the names known, when torch.compile is first used."""
    from torch._dynamo.backends import registry

    for name in ("npu", "npugraph_ex"):
        if name not in registry._COMPILER_FNS and name not in registry._BACKENDS:
            registry.register_backend(_run, name=name)
