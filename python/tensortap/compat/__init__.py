"""Scripts written for torch_npu, torchair, msprobe and troubleshooter, run unchanged.

``install()``, ``python -m tensortap.compat SCRIPT`` or the variable ``TENSORTAP_COMPAT=1`` make those packages
importable where the real ones are not installed, and make ``npu`` devices mean CUDA, or the CPU where there is none.
"""

from __future__ import annotations

import os

from ._modules import add_finder, stand_in

__all__ = ["become", "install"]


def install(force: bool = False) -> None:
    """Make the packages importable, in this process and, through TENSORTAP_COMPAT, in the ones it starts.

    A real package that is installed is left alone, unless ``force`` is set. Calling it again does nothing more.

    >>> install()
    >>> from msprobe.pytorch import PrecisionDebugger
    >>> PrecisionDebugger.__name__
    'PrecisionDebugger'
    """
    force = force or os.environ.get("TENSORTAP_COMPAT") == "force"
    os.environ["TENSORTAP_COMPAT"] = "force" if force else "1"
    add_finder(force)


def become(name: str) -> None:
    """Make a package that is being imported the one that stands in for it: for packages that only hand on ours."""
    install()
    stand_in(name)
