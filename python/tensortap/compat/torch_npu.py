"""torch_npu where it is not installed: ``save_npugraph_tensor``, and npu devices through tensortap.compat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from . import _npu, _ops
from ._graph import is_capturing

__all__ = ["__version__", "npu", "save_npugraph_tensor"]
__version__ = torch.__version__.partition("+")[0]
npu = _npu


def _check(tensors: Any, save_path: Any, overwrite: Any) -> tuple[list[torch.Tensor], bool]:
    many = not isinstance(tensors, torch.Tensor)
    if many and not isinstance(tensors, (list, tuple)):
        raise TypeError(f"save_npugraph_tensor takes a tensor or a list of tensors, not {type(tensors).__name__}")
    given = list(tensors) if many else [tensors]
    if not given:
        raise ValueError("input tensor list must not be empty")
    for each in given:
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"save_npugraph_tensor: the list holds a {type(each).__name__}; give tensors only")
    if save_path is not None and not isinstance(save_path, str):
        raise TypeError(f"save_path must be str or None, but got {type(save_path).__name__}")
    if not isinstance(overwrite, bool):
        raise TypeError(f"overwrite must be bool, but got {type(overwrite).__name__}")
    if save_path is not None:
        name = os.path.basename(save_path)
        if name in ("", ".", ".."):
            raise ValueError(f"save_path must include a file name, but got {save_path!r}")
        suffix = os.path.splitext(name)[1]
        if suffix not in ("", ".pt", ".bin"):
            raise ValueError(f"save_path {save_path!r}: the suffix must be .pt or .bin (both are torch archives)")
    return given, many


def save_npugraph_tensor(
    tensor: torch.Tensor | Sequence[torch.Tensor], save_path: str | None = None, *, overwrite: bool = False
) -> None:
    """Save a tensor, or a list of them, to ``<save_path>_device_<index>``: in eager, in graphs, in compiled code.

    Each call and each replay leaves one value: later ones are ``x_device_0_1.pt``, ``x_device_0_2.pt``, ...;
    ``overwrite`` keeps only the newest. Without a path: ``tensor_<time>_device_<index>.pt`` in the current directory.
    """
    given, many = _check(tensor, save_path, overwrite)
    if torch.compiler.is_compiling() or is_capturing():
        torch.ops.tensortap_compat.npugraph(given, save_path, overwrite, many)
    else:
        _ops.save_tensors(given, save_path, overwrite, many)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"torch_npu.{name} is not there: tensortap.compat has save_npugraph_tensor and torch.npu, not the operators of "
        "the NPU; install torch_npu, or guard the call"
    )


_npu.change_torch()
