"""What taps change in the code that Inductor makes for a function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._record import state

_SOURCE = re.compile(r"async_compile\.\w+\((.*?)'''(.*?)'''", re.DOTALL)
_NAME = re.compile(r"\b(?:cpp|triton)_\w+")
_TAP = re.compile(r"^(?!\s*#).*(?:torch\.ops\.tensortap\.\w+\.default\(|tensortap::\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explained:
    """The kernels of a function compiled without its taps and with them; ``changed`` says whether they differ."""

    taps: int
    kernels: int
    kernels_with_taps: int
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether Inductor made other kernels because of the taps: then other values may differ in their last bits."""
        return bool(self.removed or self.added)

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.taps} taps: the same {self.kernels} kernels as without them"
        return (
            f"{self.taps} taps changed the generated code: {self.kernels} kernels without, {self.kernels_with_taps} "
            f"with them, {len(self.removed)} gone and {len(self.added)} new"
        )


def _kernels(codes: list[str]) -> Counter[str]:
    """The sources of the generated kernels; their names count them and say nothing."""
    return Counter(_NAME.sub("kernel", source) for code in codes for _, source in _SOURCE.findall(code))


def _compile(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], recording: bool) -> list[str]:
    import torch
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    state.recording = recording
    with config.patch(force_disable_caches=True):

        def run() -> Any:
            result = torch.compile(function)(*args, **kwargs)
            leaves = torch.utils._pytree.tree_leaves(result)
            wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
            if wanted:  # the backward is compiled when it runs
                given = torch.utils._pytree.tree_leaves((args, kwargs))
                inputs = [x for x in given if getattr(x, "requires_grad", False)]
                if inputs:
                    torch.autograd.grad([x.sum() for x in wanted], inputs, allow_unused=True)
            return result

        codes: list[str] = run_and_get_code(run)[1]
    return codes


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explained:
    """Compile a function for these arguments without its taps and with them, and say whether Inductor's code changed.

    Nothing is recorded meanwhile. What was compiled before is compiled again when it is called next.

    >>> import torch, tensortap as tap
    >>> def f(x):
    ...     y = x.sin()
    ...     tap.save(y, "y")
    ...     return y.cos()
    >>> explained = tap.explain(f, torch.ones(3))
    >>> explained.taps, explained.changed
    (1, True)
    """
    import torch

    before, recorder = state.recording, _core.current()
    if recorder is not None:
        recorder.set_enabled(False)
    try:
        plain = _compile(function, args, kwargs, False)
        tapped = _compile(function, args, kwargs, True)
    finally:
        state.recording = before
        torch._dynamo.reset()
        if recorder is not None:
            recorder.set_enabled(True)
    without, with_taps = _kernels(plain), _kernels(tapped)
    taps = sum(len(_TAP.findall(_SOURCE.sub("", code))) for code in tapped)
    return Explained(
        taps,
        without.total(),
        with_taps.total(),
        tuple((without - with_taps).elements()),
        tuple((with_taps - without).elements()),
    )
