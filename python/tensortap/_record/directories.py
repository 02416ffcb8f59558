"""Recorders for the calls that name a file anywhere: one a directory, which stays open until the process ends."""

from __future__ import annotations

import os
import threading
from typing import Any

from .. import _core
from . import recording

_lock = threading.Lock()  # a recorder that a fork inherits writes beside its parent's files: the library sees to it
_recorders: dict[tuple[Any, ...], recording.Recorder] = {}
_said: set[str] = set()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def say_once(key: str, text: str) -> None:
    """A warning that is not repeated."""
    if key not in _said:
        _said.add(key)
        _core.say(text)


def local_rank() -> int:
    """The number of this process on its machine, as launchers tell it."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else 0


def device_index(tensor: Any) -> int:
    """The device number in names: the real one where several are visible, else the process's number."""
    device = getattr(tensor, "device", None)
    if device is not None and device.type == "cuda":
        import torch

        if torch.cuda.device_count() > 1:
            return int(device.index or 0)
    return local_rank()


def recorder_for(directory: str, layout: str, device: int, **more: Any) -> recording.Recorder:
    """The recorder that writes below a directory; ``more`` are options for when it is opened."""
    key = (os.path.realpath(directory), layout, device)
    with _lock:
        recorder = _recorders.get(key)
        if recorder is None or recorder.closed:
            options = {"layout": layout, "device_index": device, "keep": "tensor", "source": False, **more}
            recorder = _recorders[key] = recording._make(key[0], options)
        return recorder


def write(file: str, layout: str, device: int, value: Any, **more: Any) -> None:
    """Write a value to the file that a path stands for; "" is one without a name in this directory.

    A disk that fails is said once, never raised.
    """
    directory, name = os.path.split(os.path.abspath(file)) if file else (os.getcwd(), "")
    try:
        recorder_for(directory, layout, device).save(value, name, **more)
    except (OSError, ValueError) as error:
        say_once(layout, f"{file or directory}: {error.args[0] if error.args else error}; values are not saved")


def flush() -> None:
    """Return when everything written before is in its files."""
    for recorder in list(_recorders.values()):
        if not recorder.closed:
            recorder.flush()
