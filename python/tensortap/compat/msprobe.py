"""msprobe.pytorch where it is not installed: PrecisionDebugger and seed_all."""

from __future__ import annotations

import itertools
import json
import os
import threading
from typing import Any

import torch

from .._record import directories, recording
from .._torch import torch_taps
from ._msprobe import GONE, SLOT, Debugger, Hook, lock, put, written
from ._msprobe import seed as seed_python
from ._msprobe_config import FileCheckException, MsprobeException
from ._msprobe_modules import Modules
from ._msprobe_value import Shape

__all__ = ["FileCheckException", "MsprobeException", "PrecisionDebugger", "seed_all"]


def _rank() -> int | None:
    """The rank of this process, None without a process group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return None


_ending = threading.local()  # task: the backward pass this thread works for; recorders: that have gradients of it


def _after_backward(recorder: recording.Recorder) -> None:
    """debug.json has all gradients of a backward pass when it returns: one rewrite a pass."""
    task = torch._C._current_graph_task_id()
    if task == getattr(_ending, "task", -1):
        if recorder not in _ending.recorders:
            _ending.recorders.append(recorder)
        return
    recorders = [recorder]
    try:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: written(recorders))
    except RuntimeError:
        return  # no backward pass calls
    _ending.task, _ending.recorders = task, recorders


class PrecisionDebugger(Debugger):
    """Saves single values, their statistics and gradients, as msprobe does at level "debug", and at level L0 what goes
    into and comes out of modules. One a process."""

    framework = "pytorch"
    levels = ("debug", "L0")
    rank = staticmethod(_rank)
    _modules: Modules | None = None  # of level L0

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Save a value under a name and, when they arrive, the gradients of its tensors."""
        if torch.compiler.is_compiling():
            cls._get()
            _trace(variable, name, save_backward)
        else:
            super().save(variable, name, save_backward)

    @staticmethod
    def hook(tensor: torch.Tensor, hook: Hook) -> None:
        """Have the hook called with the gradient of a tensor."""

        def came(grad: torch.Tensor) -> None:
            hook(grad)
            _after_backward(hook.recorder)

        hook.leaf = tensor.is_leaf
        hook.handle = tensor.register_hook(came)

    def _watch(self, model: Any) -> None:
        if self._modules is None:
            self._modules = Modules()
        step = self._loop + self._init_step
        self._modules.hook(model)
        if not self._enabled or (self._settings.steps and step not in self._settings.steps):
            return
        try:
            self._modules.start(self._settings, self._open(step), step)
        except Exception as error:
            directories.say_once("msprobe", f"modules are not dumped: {error.args[0] if error.args else error}")

    def _pause(self) -> None:
        if self._modules is not None:
            self._modules.stop()

    def _go_to(self, loop: int) -> None:
        super()._go_to(loop)
        if self._modules is not None:
            self._modules.forget()


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
            torch_taps.forget(tensor, token, path)
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

    def __init__(self, recorder: recording.Recorder, name: str, step: int, call: int, paths: set[str]) -> None:
        self.recorder, self.name, self.step, self.call, self.paths = recorder, name, step, call, paths

    def give_up(self) -> None:
        if not self.recorder.closed:
            for path in self.paths:
                put(
                    self.recorder, None, self.name, self.step, self.call, kind="grad", path=path or None,
                    flags=SLOT | GONE,
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
    with lock():
        debugger = PrecisionDebugger._instance
        if debugger is not None:
            try:
                value = _unflatten(json.loads(text), given)
                step, call = debugger._save(value, name, backward, hooks=False)
                if step >= 0 and backward and debugger._recorder is not None:
                    paths = {path for path, _ in Shape(value).gradients}
                    _awaited[number] = _Awaited(debugger._recorder, name, step, call, paths)
            except Exception as error:
                directories.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")
    return torch_taps.told_when_gone((step, call, number), lambda: _drop(number))


def compiled_grad(grad: torch.Tensor, token: torch.Tensor, name: str, path: str) -> None:
    """What the operator of a gradient runs."""
    step, call, number = token.tolist()
    debugger = PrecisionDebugger._instance
    if step < 0 or debugger is None:
        return
    with lock():
        waiting = _awaited.get(number)
        recorder = waiting.recorder if waiting is not None else debugger._recorders.get(_rank())
        if waiting is not None:
            waiting.paths.discard(path)
            if not waiting.paths:
                del _awaited[number]
        if recorder is not None and not recorder.closed:
            put(recorder, grad.detach(), name, step, call, kind="grad", path=path or None)
            _after_backward(recorder)


# -------------------------------------------------------------------------------------------------------------- seeds


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seed every generator; ``mode`` asks for deterministic algorithms, ``rm_dropout`` sets dropouts to 0."""
    seed_python(seed, mode, rm_dropout)
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
