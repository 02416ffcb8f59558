"""Showing values while the program runs."""

from __future__ import annotations

import builtins
from typing import Any

from .. import _core
from .values import Traced


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
        from .._torch.torch_taps import print_traced

        print_traced(x, name)
