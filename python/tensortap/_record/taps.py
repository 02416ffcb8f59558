"""Taps that are more than a save, for any framework."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

from .. import _core
from . import frameworks
from .values import Traced

_T = TypeVar("_T")


def save_grad(x: _T, name: str) -> _T:
    """Return x unchanged; its gradient through the returned value is saved when it comes, with kind ``grad``.

    >>> import tempfile, torch, tensortap as tap
    >>> d = tempfile.mkdtemp() + "/run"
    >>> with tap.record(d):
    ...     x = torch.ones(2, requires_grad=True)
    ...     (tap.save_grad(x * 2, "g") * 3).sum().backward()
    >>> with tap.open(d) as run:
    ...     run["g"][0].numpy().tolist()
    [3.0, 3.0]
    """
    of_mindspore = type(x).__module__.startswith("mindspore.")
    save = frameworks.save_grad_mindspore if of_mindspore else frameworks.save_grad_torch
    if save is None:
        return x
    y: _T = save(x, name)
    return y


def print(x: Any, name: str = "") -> None:
    """Show a value, also inside ``torch.compile(fullgraph=True)`` and when a compiled graph runs again.

    >>> import numpy, tensortap as tap
    >>> tap.print(numpy.arange(3), "x")
    x = int64[3]
    [0 1 2]
    """
    if isinstance(x, (bool, int, float, complex, str, list, tuple, dict)) or x is None:
        builtins.print(f"{name} = {x!r}")
        return
    try:
        _core.show(x, name)
    except Traced:
        if frameworks.print_traced is not None:
            frameworks.print_traced(x, name)
