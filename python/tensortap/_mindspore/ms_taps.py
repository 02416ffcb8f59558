"""Taps of MindSpore: gradients in PyNative mode, and what its compiler is given for a tap in a graph.

Imported once MindSpore is. ``save`` itself stays a C function; the compiler parses ``ms_graph.save`` in its
place.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import mindspore
import numpy

from .. import _core
from .._record import directories, frameworks, recording, sites, taps
from .._record.gradients import Gradient, leaves, say_once

TESTED = ("2.7.0",)
FORMS = 'save(x, "name"), or save("./dump_dir", "name", x)'
GRAD_FORMS = 'x = save_grad(x, "name"), or x = save_grad("./dump_dir", "name", x)'
_HOOKS = 4096  # whose gradient has not come: then the oldest go

# ------------------------------------------------------------------------------------------------- gradients, PyNative


def _is_tensor(x: Any) -> bool:
    return isinstance(x, mindspore.Tensor)


def _is_recording() -> bool:
    """Is MindSpore noting operators for a gradient?"""
    from mindspore.common.api import _pynative_executor

    return bool(_pynative_executor.requires_grad())


class _Gradient(Gradient):
    __slots__ = ()

    def __call__(self, grad: Any) -> None:
        self.came = True
        self.save(grad, 0)


_done: list[Any] = []
_waiting: deque[Any] = deque()


def add_hook(tensor: Any, hook: Any) -> None:
    """Have ``hook`` called with the gradient of a tensor, the first time one comes."""

    def called(grad: Any) -> Any:
        if not hook.came:
            hook(grad)
            _done.append(hook.handle)  # MindSpore crashes when a hook removes itself
        return grad

    if _is_recording():
        _tidy()
        hook.handle = tensor.register_hook(called)
        _waiting.append(hook)


def _tidy() -> None:
    """Hooks on tensors that live on are taken away once their gradient came."""
    while _done:
        _done.pop().remove()
    while _waiting and (_waiting[0].came or len(_waiting) > _HOOKS):
        hook = _waiting.popleft()
        if not hook.came and hook.handle is not None:
            hook.handle.remove()


def save_gradients(recorder: Any, value: Any, name: str, step: int, call: int, announce: bool) -> None:
    """Announce and hook the gradients of what was just saved; never raises."""
    try:
        if not _is_recording():
            return
        for tensor, place in leaves(value, _is_tensor):
            hook = _Gradient(recorder, place, name, step, call, announce)
            add_hook(tensor, hook)
            if announce:
                hook.announce(tensor)
    except Exception as error:
        say_once(f"the gradient of {name} cannot be recorded: {error}")


class _Through(mindspore.nn.Cell):  # type: ignore[misc]
    """x itself; its gradient is shown to a function. InsertGradientOf, made for it, fails in gradients of gradients."""

    def __init__(self, hook: Callable[[Any], None]) -> None:
        super().__init__()
        self.hook: Callable[[Any], None] | None = hook

    def construct(self, x: Any) -> Any:
        return x

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        hook, self.hook = self.hook, None  # a gradient of a gradient comes by again
        if hook is not None:
            hook(dout)
        return (dout,)


def on_gradient(x: Any, hook: Callable[[Any], None]) -> Any:
    """x itself; its gradient is shown to the hook, where one is computed."""
    return _Through(hook)(x) if _is_recording() else x


def _mapped(value: Any, change: Callable[[Any, tuple[str, ...]], Any], path: tuple[str, ...] = ()) -> Any:
    """A nested value with its tensors changed; ``change`` is told the place of each."""
    if _is_tensor(value):
        return change(value, path)
    if isinstance(value, dict):
        return {key: _mapped(item, change, (*path, f"k{key}")) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        mark = "i" if isinstance(value, list) else "t"
        items = [_mapped(item, change, (*path, f"{mark}{index}")) for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def save_grad(x: Any = None, name: Any = None, data: Any = None, *, save_dir: Any = None) -> Any:
    """Return the value unchanged; its gradient through the returned value is saved when it comes.

    ``x = save_grad(x, "name")`` saves to the open recorder, ``x = save_grad("./dump_dir", "name", x)`` to
    ``dump_dir/step<N>/rank<R>/name_grad_<dtype>_<id>.npy``.
    """
    x = save_dir if save_dir is not None else x
    if not isinstance(name, str):
        refuse("name", forms=GRAD_FORMS)
    if isinstance(x, str):
        if data is None:
            refuse("data", forms=GRAD_FORMS)
        _check_leaves(data, name)
        if not _is_recording():
            return data

        def to_directory(tensor: Any, path: tuple[str, ...]) -> Any:
            def put(grad: Any) -> None:
                _put_in_directory(x, name, grad, kind="grad", path="\x1f".join(path) or None)

            return on_gradient(tensor, put)

        return _mapped(data, to_directory)
    _check_leaves(x, name)
    recorder = _core.current()
    if recorder is None or not _is_recording():
        return x
    numbers = recorder.save(x, name, "grad", flags=sites.SLOT, numbers=True)
    if numbers is None:
        return x

    def to_recorder(tensor: Any, path: tuple[str, ...]) -> Any:
        def put(grad: Any) -> None:
            try:
                if not recorder.closed:
                    recorder.save(grad, name, "grad", numbers[0], call=numbers[1], path="\x1f".join(path) or None)
            except Exception as error:
                say_once(f"the gradient of {name} was not recorded: {error}")

        return on_gradient(tensor, put)

    return _mapped(x, to_recorder)


# ------------------------------------------------------------------------------------------------------------- reading


def view(tensor: Any) -> Any:
    """The numbers of a tensor where MindSpore has them, once they are there; None: they have to be copied.

    Valid while the tensor is, and nothing writes to it: for the length of a save.
    """
    if tensor.device != "CPU" or not tensor.is_contiguous():
        return None
    _wait()
    address = tensor.data_ptr()
    if not address:
        return None
    kind = numpy.dtype(mindspore.dtype_to_nptype(tensor.dtype))
    memory = (ctypes.c_ubyte * tensor.nbytes).from_address(address + tensor.storage_offset() * kind.itemsize)
    return numpy.frombuffer(memory, kind).reshape(tensor.shape)


# --------------------------------------------------------------------------------------------------------- directories


def rank() -> int | None:
    """The number of this process: of its communication group, else RANK_ID; None: as other launchers say."""
    communication = sys.modules.get("mindspore.communication")
    try:
        if communication is not None and communication.GlobalComm.INITED:
            return int(communication.get_rank())
    except Exception as error:
        say_once(f"mindspore.communication does not tell the rank: {error}")
    text = os.environ.get("RANK_ID", "")
    return int(text) if text.isdigit() else None


def _recorder_of(directory: str) -> recording.Recorder:
    options: dict[str, Any] = {"first_step": _core.steps_done()}
    number = rank()
    if number is not None:
        options["rank"] = number
    return directories.recorder_for(directory, "mindspore", 0, **options)


def open_sink(key: str) -> None:
    """Open the recorder of a directory, for the taps of a graph; a failure is said once."""
    layout, _, directory = key.partition(":")
    try:
        recorder = _recorder_of(directory) if layout == "mindspore" else directories.recorder_for(directory, layout, 0)
        _core.set_sink(key, recorder)
    except (OSError, ValueError) as error:
        say_once(f"{directory}: {error.args[0] if error.args else error}; values are not saved")


def _sink(layout: str, directory: str) -> str:
    key = f"{layout}:{os.path.realpath(directory)}"
    open_sink(key)
    return f";sink={sites.text(key)}"


def _put_in_directory(directory: str, name: str, value: Any, **more: Any) -> None:
    try:
        recorder = _recorder_of(directory)
        _core.set_sink(f"mindspore:{os.path.realpath(directory)}", recorder)
        recorder.save(value, name, **more)
    except (OSError, ValueError) as error:
        say_once(f"{directory}: {error.args[0] if error.args else error}; values are not saved")


def save_to_directory(save_dir: Any = None, name: Any = None, data: Any = None, *rest: Any, **more: Any) -> Any:
    """``save(save_dir, name, data)``: ``save_dir/step<N>/rank<R>/name[.<path>]_<dtype>_<id>.npy``."""
    if save_dir is None and "value" in more:
        _core.save(name=name, **more)
        return more["value"] if more.get("grad") else None
    if rest or more or not isinstance(save_dir, str) or data is None:
        refuse("data")
    if not isinstance(name, str):
        refuse("name")
    _check_leaves(data, name)
    _put_in_directory(save_dir, name, data)
    return None


def _check_leaves(value: Any, name: str, path: str = "") -> None:
    """Only tensors, in lists, tuples and dicts; a None in those is left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_leaves(item, name, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_leaves(item, name, f"{path}.{index}")
    elif not _is_tensor(value) and not (value is None and path):
        raise TypeError(f"{name}{path} is a {type(value).__name__}; give a Tensor, or a list, tuple or dict of them")


# ---------------------------------------------------------------------------------------------- sites, for the compiler


def wrong(what: str, head: str = "", path: str = "", forms: str = FORMS) -> str:
    """What is wrong with a call, and what to write instead."""
    if what == "leaf":
        name = re.sub(";.*", "", head) + "".join("." + part[1:] for part in path.split("\x1f") if part)
        name = name.replace("%3B", ";").replace("%25", "%")
        return f"{name} is not a Tensor; give a Tensor, or a list, tuple or dict of them"
    if what == "tensor":
        return "save_grad takes a Tensor and returns it"
    if what == "debugger":
        return (
            "PrecisionDebugger.save works in PyNative mode; in a graph write "
            'save("./dump_dir", "name", x) and x = save_grad("./dump_dir", "name", x) of msprobe.mindspore'
        )
    if what == "data":
        return f"nothing to save; write {forms}"
    return f"the name is not a str, or not a constant one in a graph; write {forms}"


def wrong_kind(kind: Any) -> str:
    """What is wrong with a kind; empty: nothing."""
    return "" if kind in (None, *sites.KINDS) else f"kind is one of {', '.join(sites.KINDS)}, not {kind!r}"


def wrong_file(file: Any, mode: Any) -> str:
    """What is wrong with troubleshooter's file and output_mode; empty: nothing."""
    if mode not in ("npy", "print"):
        return f"output_mode is 'npy' or 'print', not {mode!r}"
    if not isinstance(file, str) and file:
        return f"file is a str, not {type(file).__name__}"
    if file and file.endswith("/"):
        return f"file {file!r} names a directory; add a file name"
    return ""


def refuse(what: str, forms: str = FORMS) -> None:
    """Raise what is wrong with a call."""
    raise TypeError(wrong(what, forms=forms))


def head(name: str, kind: str, step: int | None, announce: bool) -> str:
    """The site of a value for the open recorder."""
    flags = sites.KINDS["grad"] << 8 | sites.SLOT if kind == "announce" else sites.KINDS[kind] << 8
    site = f"{sites.text(name)};flags={flags}"
    if step is not None:
        site += f";step={int(step)}"
    return site + (";announce=1" if announce else "")


def directory_head(save_dir: str, name: str, grad: bool) -> str:
    """The site of a value for a directory."""
    flags = sites.KINDS["grad" if grad else "forward"] << 8
    return f"{sites.text(name)};flags={flags}{_sink('mindspore', save_dir)}"


def file_head(file: Any, suffix: str | None) -> str:
    """The site of a value that troubleshooter saves."""
    directory, name = os.path.split(os.path.abspath(file)) if file else (os.getcwd(), "")
    site = f"{sites.text(name)};count_files=1{_sink('troubleshooter', directory)}"
    return site + (f";suffix={sites.text(suffix)}" if suffix else "")


MARK = "_TS_SAVE_NAME:"


def print_label(file: Any, suffix: str | None, path: str) -> str:
    """The text before a value that troubleshooter prints; ``path`` is its place in a nested value."""
    name = os.path.basename(file or "")
    name = name[:-4] if name.endswith(".npy") else name
    parts = "".join("." + part[1:] for part in path.split("\x1f") if part)
    return f"{MARK}{name}{parts}" + (f"_{suffix}" if suffix else "")


def print_file() -> str:
    """MindSpore's print_file_path; empty: print to the screen."""
    return str(mindspore.get_context("print_file_path") or "")


def print_site(file: Any, suffix: str | None, path: str) -> str:
    """The site of a value that troubleshooter prints."""
    where = print_file()
    return sites.text(print_label(file, suffix, path)) + (f";print_file={sites.text(where)}" if where else "")


# ---------------------------------------------------------------------------------------------------------- installing


def install() -> None:
    """Once MindSpore is imported: its compiler learns what our functions are."""
    from mindspore._extends.parse import resources

    from . import ms_graph

    version = mindspore.__version__
    if version not in TESTED:
        _core.say(f"MindSpore {version} is not one that was tested ({', '.join(TESTED)}); check with tap.verify")
    _core.on_mindspore(save_gradients, save_to_directory, view)
    _core.on_sink(open_sink)
    frameworks.save_grad_mindspore = save_grad
    table = resources.convert_object_map
    table[_core.save] = table[_core.save_mindspore] = ms_graph.save
    table[taps.save_grad] = table[save_grad] = ms_graph.save_grad
    table[_core.step] = table[_core.step_all] = ms_graph.step
    _core.on_settle(_wait)
    atexit.register(_wait_last)


def _wait() -> None:
    """Until what was asked for so far is computed: a graph whose result does not need the tap returns before it."""
    from mindspore.common.api import _pynative_executor

    _pynative_executor.sync()


def _wait_last() -> None:
    """Registered after MindSpore's own clean-up, and so run before it."""
    _core.on_settle(None)
    _wait()


def install_troubleshooter(save: Any, save_grad: Any) -> None:
    """The same for troubleshooter's two functions."""
    from mindspore._extends.parse import resources

    from . import ms_graph

    resources.convert_object_map[save] = ms_graph.trouble_save
    resources.convert_object_map[save_grad] = ms_graph.trouble_save_grad


def install_debugger(save: Any) -> None:
    """A graph cannot hold PrecisionDebugger.save; the compiler is given one that says what can."""
    from mindspore._extends.parse import resources

    from . import ms_graph

    resources.convert_object_map[save] = ms_graph.debugger_save
