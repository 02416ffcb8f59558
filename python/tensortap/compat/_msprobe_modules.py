"""Level L0 of msprobe.pytorch: what goes into and comes out of modules, forward and backward, by hooks.

Names, their order and what a hook sees are msprobe's. The values go to a recorder of layout "msprobe_modules", which
makes dump.json, construct.json (which module ran inside which) and stack.json (where each was called).
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .._record import directories, recording
from ._msprobe import lock, put, put_shape
from ._msprobe_config import Settings, invalid
from ._msprobe_value import Shape

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _never_raise(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook whose failure is said, not raised: the model goes on as if it were not there."""

    @functools.wraps(hook)
    def safe(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        try:
            with lock():
                return hook(*args)
        except Exception as error:
            directories.say_once("modules", f"a module was not dumped: {error.args[0] if error.args else error}")
            return None

    return safe


# ------------------------------------------------------------------------------------------------ gradients of one call


def _is_followed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled() and value.itemsize > 1


def _find(value: Any, found: list[torch.Tensor], inside: bool = False) -> None:
    """The tensors that get gradients. A leaf in a list or dict is the caller's own and stays as it is."""
    if _is_followed(value):
        if not (inside and value.is_leaf):
            found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _find(item, found, inside or isinstance(value, list))
    elif isinstance(value, dict):
        for item in value.values():
            _find(item, found, True)


def _replace(value: Any, made: list[torch.Tensor], inside: bool = False) -> Any:
    """The same value with the tensors that _find found replaced, lists and dicts in their place."""
    if _is_followed(value):
        return value if inside and value.is_leaf else made.pop(0)
    if isinstance(value, list):
        value[:] = [_replace(item, made, True) for item in value]
    elif isinstance(value, dict):
        for key in list(value):
            value[key] = _replace(value[key], made, True)
    elif isinstance(value, tuple):
        items = [_replace(item, made, inside) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _pass_through(value: Any, hook: Callable[..., Any]) -> Any:
    """The value with its tensors led through a node of the backward graph that calls the hook; None without tensors."""
    found: list[torch.Tensor] = []
    _find(value, found)
    if not found:
        return None
    made = torch.nn.modules._functions.BackwardHookFunction.apply(*found)
    usual: Any = torch._C._autograd.CreationMeta(0)
    for tensor in made:
        if tensor._base is not None:  # the module may change it in place
            torch._C._autograd._set_creation_meta(tensor, usual)
    made[0].grad_fn.register_hook(hook)
    return _replace(value, list(made))


class _Call:
    """One call of a module; takes its gradients when they come."""

    def __init__(self, modules: Modules, name: str, number: int) -> None:
        self.modules, self.name, self.number = modules, name, number
        self.recorder, self.step = modules.recorder, modules.step
        self.forward = f"{name}.forward.{number}"
        self.backward = f"{name}.backward.{number}"
        self.error = sys.exc_info()[1]  # that is being handled already when the module is called
        self.grads: Any = None  # of the outputs, until those of the inputs come
        self.has_inputs = False

    def follow_inputs(self, args: Any) -> Any:
        passed = _pass_through(args, _never_raise(self._inputs_came))
        self.has_inputs = passed is not None
        return args if passed is None else passed

    def follow_outputs(self, output: Any) -> Any:
        passed = _pass_through(output, _never_raise(self._outputs_came))
        return output if passed is None else passed

    def _outputs_came(self, _: Any, grads: Any) -> Any:
        if self.modules.on:
            self.grads = grads
            self.modules.enter(self.backward, self)
            if not self.has_inputs:
                self._finish(())
        return grads  # the node made zeros of those that are None

    def _inputs_came(self, grads: Any, _: Any) -> None:
        if self.grads is not None:
            self._finish(grads)

    def _finish(self, grads: Any) -> None:
        outputs, self.grads = self.grads, None
        if self.modules.on:
            self.modules.save_backward(self, outputs, grads)
        self.modules.leave(self.backward)


# -------------------------------------------------------------------------------------------------------- call stacks


@functools.lru_cache(maxsize=1 << 16)
def _line(code: types.CodeType, number: int) -> str | None:
    path = code.co_filename
    source = linecache.getline(path, number).strip()
    if not source or path.startswith(_OURS):
        return None
    return f"File {path}, line {number}, in {code.co_name}, \n {source}"


def _stack() -> tuple[str, ...]:
    """Where this module is called, innermost first, without our own frames."""
    lines = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        line = _line(frame.f_code, frame.f_lineno)
        if line is not None:
            lines.append(line)
        frame = frame.f_back
    return tuple(lines)


# ------------------------------------------------------------------------------------------------------------ modules


class Modules:
    """Watches the modules of the models it was given, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.step = 0
        self.recorder: Any = None
        self._settings: Any = None
        self._hooked: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._followed: dict[tuple[str, str], tuple[Any, Any]] = {}  # parameters: reference and hook
        self._in_scope = False
        self.forget()

    def forget(self) -> None:
        """A new step: counting starts again."""
        self._counts: dict[str, int] = {}
        self._active: dict[str, None] = {}  # modules that run now, in all threads
        self._stacks: dict[tuple[str, ...], tuple[int, int]] = {}  # number, names
        self._grad_counts: dict[str, tuple[int, str]] = {}
        self._have_backward: set[str] = set()
        self._running: dict[int, list[str]] = {}  # by thread, outermost first
        self._calls: dict[int, list[_Call]] = {}

    def start(self, settings: Settings, recorder: recording.Recorder | None, step: int) -> None:
        self._settings, self.recorder, self.step = settings, recorder, step
        self.on = recorder is not None

    def stop(self) -> None:
        """Off, and the files are whole."""
        if self.on:
            self.on = False
            try:
                self.recorder.flush()
            except Exception as error:
                directories.say_once("modules", f"dump.json may not be whole: {error.args[0] if error.args else error}")

    # -------------------------------------------------------------------------------------------------------- hooks

    def hook(self, model: Any) -> None:
        """Add the hooks of a model, or of a list of models; once each."""
        if model is None:
            raise invalid("missing the parameter 'model': level L0 needs start(model=...)")
        several = isinstance(model, (list, tuple))
        for index, each in enumerate(model if several else [model]):
            if not isinstance(each, torch.nn.Module):
                raise invalid(
                    "The 'model' parameter must be a torch.nn.Module or list[torch.nn.Module] type, "
                    f"currently there is an unsupported {type(each)} type."
                )
            if each not in self._hooked:
                self._hooked.add(each)
                self._hook_model(each, f"Module.{index}." if several else "Module.")

    def _hook_model(self, model: torch.nn.Module, start: str) -> None:
        for path, module in model.named_modules():
            kind = type(module).__name__
            if kind == "OptimizedModule" or module._compiled_call_impl is not None:
                directories.say_once("compiled", f"{path or kind} is compiled; level L0 sees only what runs uncompiled")
            if module is model or kind == "FullyShardedDataParallel":
                continue
            if isinstance(module, torch.jit.ScriptModule):
                directories.say_once("script", f"{path} is a ScriptModule and is not dumped")
                continue
            name = f"{start}{path}.{kind}"
            module.register_forward_pre_hook(_never_raise(functools.partial(self._before, name)), with_kwargs=True)
            module.register_forward_hook(
                _never_raise(functools.partial(self._after, name)), prepend=True, with_kwargs=True, always_call=True
            )

    def _before(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if not self.on:
            return None
        number = self._counts[name] = self._counts.get(name, -1) + 1
        call = _Call(self, name, number)
        self._calls.setdefault(threading.get_ident(), []).append(call)
        self.enter(call.forward, call)
        if self._wants(call.forward):
            if self._settings.takes("forward", "input"):
                self._save({"input_args": args, "input_kwargs": kwargs}, call, "input")
            self._save_stack(call.forward)
        if module._backward_hooks and module._is_full_backward_hook is False:
            directories.say_once(
                "backward", f"{name} has a hook of register_backward_hook; its own gradients are not dumped"
            )
            return None
        return call.follow_inputs(args), kwargs

    def _after(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        calls = self._calls.get(threading.get_ident(), [])
        at = next((i for i in range(len(calls) - 1, -1, -1) if calls[i].name == name), None)
        if at is None:
            return None
        call = calls[at]
        del calls[at:]
        failed = output is None and sys.exc_info()[1] is not call.error
        if self.on and not failed:
            self._follow_parameters(name, module)
            if self._wants(call.forward) and self._settings.takes("forward", "output"):
                parameters = {key.rpartition(".")[2]: value for key, value in module.named_parameters(recurse=False)}
                outputs = output if isinstance(output, tuple) else (output,)
                self._save({"output": outputs, "parameters": parameters}, call, "output")
        self.leave(call.forward)
        return None if failed else call.follow_outputs(output)

    # ---------------------------------------------------------------------------------------------------- parameters

    def _follow_parameters(self, name: str, module: torch.nn.Module) -> None:
        modes = self._settings.data_mode
        if "forward" in modes and "backward" not in modes:
            return
        for key, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            reference, handle = self._followed.get((name, key), (None, None))
            if reference is not None and reference() is parameter:
                continue
            if handle is not None:
                handle.remove()
            hook = _never_raise(functools.partial(self._gradient_came, name, key))
            self._followed[name, key] = weakref.ref(parameter), parameter.register_post_accumulate_grad_hook(hook)

    def _gradient_came(self, name: str, key: str, parameter: torch.Tensor) -> None:
        if not self.on:
            return
        number, first = self._grad_counts.get(name, (-1, key))
        if key == first:
            number += 1
            self._grad_counts[name] = number, key
        if not self._wants(name) and name not in self._have_backward:
            return
        shape = Shape({key.rpartition(".")[2]: [parameter.grad]}, objects=False)
        put_shape(self.recorder, shape, name, self.step, number, kind="param")

    # ---------------------------------------------------------------------------------------------------- recording

    def _wants(self, name: str) -> bool:
        if self._settings.scope and not self._in_scope:
            return False
        names = self._settings.names
        return not names or any(part in name for part in names)

    def _save(self, value: Any, call: _Call, kind: str) -> None:
        put_shape(call.recorder, Shape(value, objects=False), call.name, call.step, call.number, kind=kind)

    def save_backward(self, call: _Call, grad_outputs: Any, grad_inputs: Any) -> None:
        if not self._wants(call.backward):
            return
        value = {}
        if self._settings.takes("backward", "input"):
            value["input"] = grad_outputs
        if self._settings.takes("backward", "output"):
            value["output"] = grad_inputs
        if value:
            self._have_backward.add(call.name)
            self._save(value, call, "grad")

    def enter(self, name: str, call: _Call) -> None:
        """A module's forward or backward begins: what it runs inside goes to construct.json."""
        running = self._running.setdefault(threading.get_ident(), [])
        parent = running[-1] if running else self._find_parent(name)
        self._active[name] = None
        running.append(name)
        if self._settings.scope and name == self._settings.scope[0]:
            self._in_scope = True
        if self._settings.extra_info:
            put(call.recorder, parent, "construct", call.step, 0, suffix="construct", path=f"k{name}")

    def leave(self, name: str) -> None:
        """It ended, and with it what ran inside."""
        self._active.pop(name, None)
        running = self._running.get(threading.get_ident(), [])
        if name in running:
            del running[running.index(name) :]
        if self._settings.scope and name == self._settings.scope[1]:
            self._in_scope = False

    def _find_parent(self, name: str) -> str | None:
        """The module around this one, where another thread runs it."""
        start = name.rsplit(".", 4)[0]
        return next((each for each in reversed(self._active) if each.rsplit(".", 3)[0] == start), None)

    def _save_stack(self, name: str) -> None:
        if not self._settings.extra_info:
            return
        stack = _stack()
        number, count = self._stacks.get(stack, (len(self._stacks), 0))
        self._stacks[stack] = number, count + 1
        path = f"k{number}\x1fi0\x1fi{count}" if count else f"k{number}"
        value = name if count else [[name], list(stack)]
        put(self.recorder, value, "stack", self.step, 0, suffix="stack", path=path)
