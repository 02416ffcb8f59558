"""tensortap records the tensors of a running model to disk and reads them back.

>>> import tempfile, numpy, tensortap as tap
>>> directory = tempfile.mkdtemp()
>>> with tap.record(directory + "/run"):
...     for step in range(2):
...         tap.save(numpy.arange(3) + step, "x")
...         tap.step()
>>> with tap.open(directory + "/run") as run:
...     [record.numpy().tolist() for record in run["x"]]
[[0, 1, 2], [1, 2, 3]]
"""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core import Error, messages, save, step
from ._core import version as __version__
from ._explain import Explained, explain
from ._onimport import when_imported as _when_imported
from ._printing import print
from ._reading import Mapping, Problem, Record, Run, Stats, Verified, open, verify
from ._recording import Counts, Recorder, close, current, declare, flush, record, recording, set_step
from ._taps import save_grad
from ._watch import Watch, watch

if _TYPE_CHECKING:
    from ._backend import counters, load_library, profile, register_converter
    from ._observe import CheckError

__all__ = [
    "CheckError",
    "Counts",
    "Error",
    "Explained",
    "Mapping",
    "Problem",
    "Record",
    "Recorder",
    "Run",
    "Stats",
    "Verified",
    "Watch",
    "__version__",
    "close",
    "counters",
    "current",
    "declare",
    "explain",
    "flush",
    "load_library",
    "messages",
    "open",
    "print",
    "profile",
    "record",
    "recording",
    "register_converter",
    "save",
    "save_grad",
    "set_step",
    "step",
    "verify",
    "watch",
]


_ENGINE = {"counters", "load_library", "profile", "register_converter"}  # need torch, so they are found when asked for


def __getattr__(name: str) -> object:
    if name in _ENGINE:
        from . import _backend

        return getattr(_backend, name)
    if name == "CheckError":
        from ._observe import CheckError

        return CheckError
    raise AttributeError(f"module 'tensortap' has no attribute {name!r}")


def _with_torch() -> None:
    from . import _torch

    _torch.install()
    _when_imported("torch._dynamo", _torch.install_dynamo)
    _when_imported("torch.distributed.tensor", _torch.install_sharded)
    _when_imported("torch._functorch.compile_utils", _torch.install_partitioner)
    _when_imported("torch._functorch.partitioners", _torch.install_checkpointing)
    _when_imported("torch._inductor.lowering", _torch.install_inductor)


def _with_mindspore() -> None:
    from . import _mindspore

    _mindspore.install()


_when_imported("torch", _with_torch)
_when_imported("mindspore", _with_mindspore)

if _os.environ.get("TENSORTAP_COMPAT", "") not in ("", "0"):
    from .compat import install as _install

    _install()
