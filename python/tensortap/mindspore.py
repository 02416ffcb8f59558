"""Taps for MindSpore, in PyNative mode and in graphs, on the CPU.

Two forms of each call, told apart by the first argument. To the open recorder::

    import tensortap.mindspore as tap

    tap.record("run")
    tap.save(x, "x")
    x = tap.save(x, "x", grad=True)      # and the gradient; in a graph, use what it returns
    x = tap.save_grad(x, "x")            # the gradient only
    tap.step()

and to files of their own, ``save_dir/step<N>/rank<R>/<name>_<dtype>_<id>.npy``::

    from tensortap.mindspore import save, save_grad, step

    save("./dump_dir", "x", x)
    x = save_grad("./dump_dir", "x", x)
    step()
"""

from __future__ import annotations

import mindspore as _mindspore  # noqa: F401 - the parts that need it are installed by its import

from . import (
    Counts,
    Error,
    Record,
    Recorder,
    Run,
    close,
    current,
    declare,
    flush,
    messages,
    open,
    record,
    recording,
    set_step,
    verify,
)
from ._core import save_mindspore as save
from ._core import step_all as step
from ._mindspore.ms_taps import save_grad

__all__ = [
    "Counts",
    "Error",
    "Record",
    "Recorder",
    "Run",
    "close",
    "current",
    "declare",
    "flush",
    "messages",
    "open",
    "record",
    "recording",
    "save",
    "save_grad",
    "set_step",
    "step",
    "verify",
]
