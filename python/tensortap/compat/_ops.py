"""The operators that saves become inside compiled code and captured graphs. Each calls what eager calls.

They are registered as effectful and ordered, so that no compiler drops, merges or reorders them.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _core
from .._record import directories

_SCHEMAS = {
    "npugraph": "(Tensor[] tensors, str? path, bool overwrite, bool many) -> ()",
    "trouble": "(Tensor x, str file, str suffix, str mode) -> ()",
    "debug": "(Tensor[] tensors, str name, str shape, bool backward) -> Tensor",
    "debug_grad": "(Tensor grad, Tensor token, str name, str path) -> ()",
}
_library: Any = None


def save_tensors(tensors: list[torch.Tensor], path: str | None, overwrite: bool, many: bool) -> None:
    """Write the file of one save_npugraph_tensor."""
    if tensors[0].device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("save_npugraph_tensor inside a CUDA graph capture is not there yet; save outside the graph")
    flags = _core.SAVE_OVERWRITE if overwrite else None
    value: Any = [each.detach() for each in tensors] if many else tensors[0].detach()
    directories.write(path or "", "torch_npu", directories.device_index(tensors[0]), value, flags=flags)


def _save_trouble(x: torch.Tensor, file: str, suffix: str, mode: str) -> None:
    from . import troubleshooter

    troubleshooter.put(x, file, suffix, mode)


def _save_debug(tensors: list[torch.Tensor], name: str, shape: str, backward: bool) -> torch.Tensor:
    from . import msprobe

    return msprobe.compiled_save(tensors, name, shape, backward)


def _save_debug_grad(grad: torch.Tensor, token: torch.Tensor, name: str, path: str) -> None:
    from . import msprobe

    msprobe.compiled_grad(grad, token, name, path)


def _fake(*args: Any) -> None:
    return None


def _fake_token(tensors: list[torch.Tensor], name: str, shape: str, backward: bool) -> torch.Tensor:
    return torch.empty(3, dtype=torch.int64)


def define() -> None:
    """Register the operators, once a process."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("tensortap_compat", "DEF")
    real = {
        "npugraph": save_tensors,
        "trouble": _save_trouble,
        "debug": _save_debug,
        "debug_grad": _save_debug_grad,
    }
    tags = (torch.Tag.cudagraph_unsafe,) if hasattr(torch.Tag, "cudagraph_unsafe") else ()
    for name, schema in _SCHEMAS.items():
        _library.define(name + schema, tags=tags)
        _library.impl(name, real[name], "CompositeExplicitAutograd")
        operator = getattr(torch.ops.tensortap_compat, name).default
        fake = _fake_token if name == "debug" else _fake
        torch.library.register_fake(f"tensortap_compat::{name}", fake, lib=_library)
        _make_effectful(operator)


def _make_effectful(operator: Any) -> None:
    from torch._higher_order_ops.effects import _EffectType

    register = getattr(torch.library, "_register_effectful_op", None)
    if register is not None:
        register(operator, _EffectType.ORDERED, lib=_library)
    else:
        from torch._higher_order_ops.effects import _register_effectful_op

        _register_effectful_op(operator, _EffectType.ORDERED)
