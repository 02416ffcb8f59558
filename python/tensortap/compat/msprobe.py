"""msprobe.pytorch where it is not installed: PrecisionDebugger at level "debug" (single-point save), and seed_all.

Every save goes through a recorder of layout "msprobe", one a directory and rank, whose writer keeps debug.json whole
also when this process is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from typing import Any

import torch

from .. import _core, _recording, _torch
from . import _paths
from ._msprobe_config import FileCheckException, MsprobeException, Settings, invalid, read
from ._msprobe_value import Shape

__all__ = ["FileCheckException", "MsprobeException", "PrecisionDebugger", "seed_all"]

_SLOT, _GONE = 4, 8
_lock = threading.RLock()


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


def _rank() -> int | None:
    """The rank of this process, None without a process group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return None


class _Hook:
    """Takes one gradient to the slot its forward left. When it goes without having run, the slot is given up."""

    def __init__(self, recorder: _recording.Recorder, name: str, step: int, call: int, path: str, leaf: bool) -> None:
        self.recorder, self.name, self.step, self.call = recorder, name, step, call
        self.path = path or None
        self.leaf = leaf
        self.came = False
        self.handle: Any = None

    def __call__(self, grad: Any) -> None:
        if self.came and self.recorder.closed:
            return
        if self.came and self.leaf and self.step != self.recorder.current_step:
            if self.handle is not None:  # a parameter keeps its hooks; this one's step is over
                self.handle.remove()
            return
        self.came = True
        _put(self.recorder, grad, self.name, self.step, self.call, kind="grad", path=self.path)

    def __del__(self) -> None:
        try:
            if not self.came and not self.recorder.closed:
                _put(
                    self.recorder, None, self.name, self.step, self.call, kind="grad", path=self.path,
                    flags=_SLOT | _GONE,
                )  # fmt: skip
        except Exception:
            return  # the interpreter is going


def _put(recorder: _recording.Recorder, value: Any, name: str, step: int, call: int, **more: Any) -> None:
    """Save, and never raise: what goes wrong is said once."""
    try:
        recorder.save(value, name, step=step, call=call, **more)
    except Exception as error:
        _paths.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")


class PrecisionDebugger:
    """Saves single values, their statistics and gradients, as msprobe does at level "debug". One a process."""

    _instance: PrecisionDebugger | None = None

    def __new__(
        cls, config_path: Any = None, task: Any = None, dump_path: Any = None, level: Any = None, step: Any = None
    ) -> PrecisionDebugger:
        given = (config_path, task, dump_path, level, step)
        with _lock:
            if cls._instance is not None:
                if given != (None,) * 5 and given != cls._instance._given:
                    _core.say("a second PrecisionDebugger with other arguments: the first one's stay in force")
                return cls._instance
            self = super().__new__(cls)
            self._start(given)
            cls._instance = self
            return self

    def _start(self, given: tuple[Any, ...]) -> None:
        self._given = given
        self._settings = read(*given)
        self._hot = self._settings.dump_enable is not None
        self._enabled = self._settings.dump_enable is not False
        self._signature = self._look()
        self._init_step = self._loop = 0
        self._counts: dict[str, int] = {}
        self._recorders: dict[int | None, _recording.Recorder] = {}
        self._recorder: _recording.Recorder | None = None  # of this step
        self._ready = False

    @property
    def settings(self) -> Settings:
        """What was read from arguments and file."""
        return self._settings

    @classmethod
    def _get(cls) -> PrecisionDebugger:
        if cls._instance is None:
            raise Exception("PrecisionDebugger instance is not created.")
        return cls._instance

    # ------------------------------------------------------------------------------------------------------- saving

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Save a value under a name and, when they arrive, the gradients of its tensors."""
        self = cls._get()
        if torch.compiler.is_compiling():
            _trace(variable, name, save_backward)
            return
        if not isinstance(name, str) or not isinstance(save_backward, bool):
            _paths.say_once("save", "PrecisionDebugger.save takes a value, a str and a bool; this call is skipped")
            return
        with _lock:
            try:
                self._save(variable, name, save_backward, hooks=True)
            except Exception as error:
                _paths.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")

    def _save(self, variable: Any, name: str, backward: bool, hooks: bool) -> tuple[int, int]:
        """Returns step and call, (-1, 0) when nothing was wanted."""
        step = self._loop + self._init_step
        if not self._enabled or (self._settings.steps and step not in self._settings.steps):
            return -1, 0
        if not self._ready:
            self._recorder = self._open(step)
            self._ready = True
        recorder = self._recorder
        if recorder is None:
            return -1, 0
        shape = Shape(variable)
        if shape.cut:
            _paths.say_once("deep", f"{name} is nested deeper than 400 levels; what lies deeper is left out")
        call = self._counts.get(name, 0)
        self._counts[name] = call + 1
        _put(recorder, shape.value, name, step, call)
        for path, part in reversed(shape.pieces):
            _put(recorder, part, name, step, call, path=path)
        if backward:
            self._announce(recorder, shape, name, step, call, hooks)
        return step, call

    @staticmethod
    def _announce(
        recorder: _recording.Recorder, shape: Shape, name: str, step: int, call: int, hooks: bool
    ) -> None:
        """A place for every gradient, empty until it comes."""
        flags = _SLOT if shape.mirror is None and shape.gradients else _SLOT | _GONE
        _put(recorder, shape.mirror, name, step, call, kind="grad", flags=flags)
        for path, part in reversed(shape.mirror_pieces):
            _put(recorder, part, name, step, call, kind="grad", flags=_SLOT | _GONE, path=path)
        for path, tensor in shape.gradients:
            if path:
                _put(recorder, None, name, step, call, kind="grad", flags=_SLOT, path=path)
            if hooks:
                hook = _Hook(recorder, name, step, call, path, tensor.is_leaf)
                hook.handle = tensor.register_hook(hook)

    def _open(self, step: int) -> _recording.Recorder | None:
        """The recorder of this process's rank, None when it is not wanted."""
        rank = _rank()
        known = rank if rank is not None else int(os.environ.get("RANK") or 0)
        if self._settings.ranks and known not in self._settings.ranks:
            return None
        recorder = self._recorders.get(rank)
        if recorder is None or recorder.closed:
            options = {
                "layout": "msprobe",
                "keep": "both" if self._settings.task == "tensor" else "stats",
                "rank": known,
                "distributed": rank is not None,
                "asynchronous": self._settings.asynchronous,
                "checksum": self._settings.checksum,
                "first_step": step,
                "source": False,
            }
            recorder = self._recorders[rank] = _recording._make(self._settings.dump_path, options)
        elif recorder.current_step != step:
            recorder.set_step(step)
        return recorder

    # -------------------------------------------------------------------------------------------------------- steps

    @classmethod
    def step(cls) -> None:
        """End the step; counting starts again."""
        with _lock:
            self = cls._get()
            self._go_to(self._loop + 1)
            self._reload()

    def _go_to(self, loop: int) -> None:
        self._loop = loop
        self._counts.clear()
        self._ready = False
        for recorder in self._recorders.values():
            if not recorder.closed:
                recorder.set_step(self._loop + self._init_step)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """The number of the first step."""
        if not isinstance(step, int) or isinstance(step, bool):
            raise invalid(f"{step} must be an integer")
        if step < 0:
            raise invalid(f"{step} must be greater than or equal to 0")
        with _lock:
            self = cls._get()
            self._init_step = step
            self._go_to(0)

    @classmethod
    def start(
        cls, model: Any = None, token_range: Any = None, rank_id: Any = None, scheduled_tokens: Any = None
    ) -> None:
        """Nothing at level "debug", except that a changed configuration is taken up."""
        with _lock:
            cls._get()._reload()

    @classmethod
    def stop(cls) -> None:
        """Nothing at level "debug", except that a changed configuration is taken up."""
        with _lock:
            cls._get()._reload()

    # --------------------------------------------------------------------------------------------------- hot switch

    def _look(self) -> tuple[int, int] | None:
        path = self._given[0]
        try:
            found = os.stat(path) if path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size) if found is not None else None

    def _reload(self) -> None:
        """Take up a changed config.json, where dump_enable was there from the start."""
        if not self._hot:
            return
        now = self._look()
        if now is None or now == self._signature:
            return
        self._signature = now
        before = self._settings
        try:
            self._settings = read(*self._given)
        except (MsprobeException, FileCheckException, OSError) as error:
            self._enabled = False
            _core.say(f"{self._given[0]} was changed and cannot be read, so saving stops until it can: {error}")
            return
        if self._settings.dump_enable is not None:
            self._enabled = self._settings.dump_enable
        self._ready = False
        if (before.task, before.dump_path, before.asynchronous, before.checksum) != (
            self._settings.task,
            self._settings.dump_path,
            self._settings.asynchronous,
            self._settings.checksum,
        ):
            self._recorders = {}  # gradients under way still hold theirs


# ------------------------------------------------------------------------------------------------------ compiled code


def _flatten(value: Any, tensors: list[Any], hooked: list[Any], path: str) -> Any:
    """A value as JSON with tensors by number; runs while it is traced."""
    start = path + "\x1f" if path else ""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        if value.requires_grad:
            hooked.append((path, value))
        return {"t": len(tensors) - 1}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = {field: getattr(value, field) for field in value._fields}
    if isinstance(value, dict):
        return {"d": [[str(k), _flatten(v, tensors, hooked, f"{start}k{k}")] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"l": [_flatten(v, tensors, hooked, f"{start}i{i}") for i, v in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"v": value}
    return {"v": repr(value)}


def _unflatten(shape: Any, tensors: list[torch.Tensor]) -> Any:
    ((kind, inside),) = shape.items()
    if kind == "t":
        return tensors[inside]
    if kind == "d":
        return {key: _unflatten(item, tensors) for key, item in inside}
    if kind == "l":
        return [_unflatten(item, tensors) for item in inside]
    return inside


def _show(shape: Any) -> str:
    """JSON, made while a compiler traces: the json module cannot be traced."""
    if shape is None:
        return "null"
    if shape is True or shape is False:
        return "true" if shape else "false"
    if isinstance(shape, dict):
        return "{" + ",".join([f'"{key}":{_show(item)}' for key, item in shape.items()]) + "}"
    if isinstance(shape, list):
        return "[" + ",".join([_show(item) for item in shape]) + "]"
    if isinstance(shape, str):
        return '"' + "".join([_escape(c) for c in shape]) + '"'
    text = str(shape)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def _escape(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    return f"\\u{ord(c):04x}" if c < " " else c


def _trace(variable: Any, name: str, backward: bool) -> None:
    """A save inside compiled code: one operator for the value, one for each gradient."""
    tensors: list[Any] = []
    hooked: list[Any] = []
    shape = _show(_flatten(variable, tensors, hooked, ""))
    wanted = "|".join([f"{tensors_index(tensors, tensor)}" for _, tensor in hooked])
    token = torch.ops.tensortap_compat.debug(tensors, name, wanted + "\n" + shape, backward)
    if not backward:
        return
    for path, tensor in hooked:
        if tensor.is_leaf:
            tensor.register_hook(_leaf_hook(tensor, token, name, path))
        else:
            tensor.register_hook(_grad_hook(token, name, path))


def tensors_index(tensors: list[Any], tensor: Any) -> int:
    """Where a tensor is in the list, by identity."""
    for index, each in enumerate(tensors):
        if each is tensor:
            return index
    return -1


def _grad_hook(token: torch.Tensor, name: str, path: str) -> Any:
    def hook(grad: torch.Tensor) -> torch.Tensor:
        torch.ops.tensortap_compat.debug_grad(grad, token, name, path)
        return grad

    return hook


def _leaf_hook(tensor: torch.Tensor, token: torch.Tensor, name: str, path: str) -> Any:
    """A hook on a leaf stays until it is removed; this one goes when its step is over."""

    def hook(grad: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and is_over(token):
            _torch.forget(tensor, token, path)
        else:
            torch.ops.tensortap_compat.debug_grad(grad, token, name, path)
        return grad

    return hook


def is_over(token: torch.Tensor) -> bool:
    """Did the gradient of this token come, and the step of its save end?"""
    step, _, number = token.tolist()
    debugger = PrecisionDebugger._instance
    current = debugger._loop + debugger._init_step if debugger is not None else -1
    return bool(step != current and number not in _awaited)


class _Awaited:
    """The gradients that a compiled save waits for. When its token goes, they are given up."""

    def __init__(self, recorder: _recording.Recorder, name: str, step: int, call: int, paths: set[str]) -> None:
        self.recorder, self.name, self.step, self.call, self.paths = recorder, name, step, call, paths

    def give_up(self) -> None:
        if not self.recorder.closed:
            for path in self.paths:
                _put(
                    self.recorder, None, self.name, self.step, self.call, kind="grad", path=path or None,
                    flags=_SLOT | _GONE,
                )  # fmt: skip


_awaited: dict[int, _Awaited] = {}
_numbers = itertools.count(1)


def _drop(number: int) -> None:
    waiting = _awaited.pop(number, None)
    if waiting is not None:
        waiting.give_up()


def compiled_save(tensors: list[torch.Tensor], name: str, shape: str, backward: bool) -> torch.Tensor:
    """What the operator of a save runs; returns step and call, for the gradients."""
    wanted, _, text = shape.partition("\n")
    given = [tensor.detach() for tensor in tensors]
    for index in wanted.split("|") if wanted else ():
        given[int(index)].requires_grad_(True)
    step, call, number = -1, 0, next(_numbers)
    with _lock:
        debugger = PrecisionDebugger._instance
        if debugger is not None:
            try:
                value = _unflatten(json.loads(text), given)
                step, call = debugger._save(value, name, backward, hooks=False)
                if step >= 0 and backward and debugger._recorder is not None:
                    paths = {path for path, _ in Shape(value).gradients}
                    _awaited[number] = _Awaited(debugger._recorder, name, step, call, paths)
            except Exception as error:
                _paths.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")
    return _torch.told_when_gone((step, call, number), lambda: _drop(number))


def compiled_grad(grad: torch.Tensor, token: torch.Tensor, name: str, path: str) -> None:
    """What the operator of a gradient runs."""
    step, call, number = token.tolist()
    debugger = PrecisionDebugger._instance
    if step < 0 or debugger is None:
        return
    with _lock:
        waiting = _awaited.get(number)
        recorder = waiting.recorder if waiting is not None else debugger._recorders.get(_rank())
        if waiting is not None:
            waiting.paths.discard(path)
            if not waiting.paths:
                del _awaited[number]
        if recorder is not None and not recorder.closed:
            _put(recorder, grad.detach(), name, step, call, kind="grad", path=path or None)


# -------------------------------------------------------------------------------------------------------------- seeds


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seed every generator; ``mode`` asks for deterministic algorithms, ``rm_dropout`` sets dropouts to 0."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise invalid("Seed must be integer.")
    if not 0 <= seed <= 2**32 - 1:
        raise invalid(f"Seed must be between 0 and {2**32 - 1}.")
    if not isinstance(mode, bool):
        raise invalid("seed_all mode must be bool.")
    if not isinstance(rm_dropout, bool):
        raise invalid("The rm_dropout parameter must be bool.")
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        import numpy

        numpy.random.seed(seed)
    except ImportError:
        pass
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if rm_dropout:
        _remove_dropout()


def _remove_dropout() -> None:
    functional: Any = torch.nn.functional
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        real = getattr(functional, name)

        def without(
            input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, real: Any = real
        ) -> Any:
            return real(input, 0.0, training, inplace)

        setattr(functional, name, without)
