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
from ._record.comparing import Comparison, Match, compare
from ._record.frameworks import when_imported as _when_imported
from ._record.reading import Mapping, Problem, Record, Run, Stats, Verified, open, verify
from ._record.recording import Counts, Recorder, close, current, declare, flush, record, recording, set_step
from ._record.taps import print, save_grad
from ._torch.explain import Explained, explain
from ._torch.watch import Watch, watch

if _TYPE_CHECKING:
    from ._engine.backend import counters, load_library, profile, register_converter
    from ._engine.observe import CheckError

__all__ = [
    "CheckError",
    "Comparison",
    "Counts",
    "Error",
    "Explained",
    "Mapping",
    "Match",
    "Problem",
    "Record",
    "Recorder",
    "Run",
    "Stats",
    "Verified",
    "Watch",
    "__version__",
    "close",
    "compare",
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
        from ._engine import backend

        return getattr(backend, name)
    if name == "CheckError":
        from ._engine.observe import CheckError

        return CheckError
    raise AttributeError(f"module 'tensortap' has no attribute {name!r}")


def _with_torch() -> None:
    from ._torch import torch_taps

    torch_taps.install()
    _when_imported("torch._dynamo", torch_taps.install_dynamo)
    _when_imported("torch.distributed.tensor", torch_taps.install_sharded)
    _when_imported("torch._functorch.compile_utils", torch_taps.install_partitioner)
    _when_imported("torch._functorch.partitioners", torch_taps.install_checkpointing)
    _when_imported("torch._inductor.lowering", torch_taps.install_inductor)


def _with_mindspore() -> None:
    from ._mindspore import ms_taps

    ms_taps.install()


_when_imported("torch", _with_torch)
_when_imported("mindspore", _with_mindspore)

if _os.environ.get("TENSORTAP_COMPAT", "") not in ("", "0"):
    from .compat import install as _install

    _install()
