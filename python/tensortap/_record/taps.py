"""Taps that are more than a save."""

from __future__ import annotations

from typing import TypeVar

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
    if type(x).__module__.startswith("mindspore."):
        from .._mindspore import ms_taps

        z: _T = ms_taps.save_grad(x, name)
        return z
    from .._torch import torch_taps

    y: _T = torch_taps.save_grad(x, name)
    return y
