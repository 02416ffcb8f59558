"""msprobe.mindspore where it is not installed: save, save_grad and step in both modes, PrecisionDebugger in PyNative
mode, and seed_all."""

from __future__ import annotations

from typing import Any

import mindspore

from .._core import save_mindspore as save
from .._core import step_all as step
from .._mindspore import ms_taps
from .._mindspore.ms_taps import save_grad
from ._msprobe import Debugger, Hook
from ._msprobe import seed as seed_python
from ._msprobe_config import FileCheckException, MsprobeException

__all__ = [
    "FileCheckException",
    "MsprobeException",
    "PrecisionDebugger",
    "save",
    "save_grad",
    "seed_all",
    "step",
]


_deterministic: list[bool] = []


def _save(variable: Any, name: str, save_backward: bool = True) -> None:
    """Save a value under a name and, when they arrive, the gradients of its tensors."""
    _save_now(variable, name, save_backward)


def _save_now(variable: Any, name: str, save_backward: bool) -> None:
    """What MindSpore's compiler, which reads the function above, is told not to read."""
    super(PrecisionDebugger, PrecisionDebugger).save(variable, name, save_backward)


class PrecisionDebugger(Debugger):
    """Saves single values, their statistics and gradients, as msprobe does at level "debug". One a process.

    In PyNative mode; inside a graph use ``save`` and ``save_grad``.
    """

    framework = "mindspore"
    rank = staticmethod(ms_taps.rank)

    save = staticmethod(_save)

    @staticmethod
    def hook(tensor: Any, hook: Hook) -> None:
        """Have the hook called with the gradient of a tensor."""
        ms_taps.add_hook(tensor, hook)


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seed every generator; ``mode`` asks for deterministic algorithms, ``rm_dropout`` sets dropouts to 0."""
    seed_python(seed, mode, rm_dropout)
    mindspore.set_seed(seed)
    if mode and not _deterministic:
        mindspore.set_deterministic(True)  # which MindSpore takes once a process
        _deterministic.append(True)
    if rm_dropout:
        _remove_dropout()


def _remove_dropout() -> None:
    """Every dropout made from now on keeps all values."""
    from mindspore import nn

    for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"):
        cell: Any = getattr(nn, name)

        def construct(self: Any, x: Any) -> Any:
            return x

        cell.construct = construct


ms_taps.install_debugger(_save_now)
