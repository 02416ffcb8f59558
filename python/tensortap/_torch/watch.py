"""Watching a model: its modules' inputs, outputs, gradients and weights, by hooks."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .. import _core


class Watch:
    """The hooks that ``watch`` added; ``remove`` takes them away, as does leaving it as a context manager."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._handles: list[Any] = []

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _matches(name: str, pattern: str) -> bool:
    parts = pattern.split("|")
    wanted = [part for part in parts if not part.startswith("!")]
    unwanted = [part[1:] for part in parts if part.startswith("!")]
    if any(fnmatch.fnmatchcase(name, part) for part in unwanted):
        return False
    return not wanted or any(fnmatch.fnmatchcase(name, part) for part in wanted)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs:
        return {str(i): value for i, value in enumerate(args)} | kwargs
    return args[0] if len(args) == 1 else args


def _before(name: str, grad: bool) -> Callable[..., None]:
    site = f"{name}.input"

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args or kwargs:
            _core.save(_arguments(args, kwargs), site, "input", module=name, grad=grad)

    return hook


def _after(name: str, grad: bool) -> Callable[..., None]:
    site = f"{name}.output"

    def hook(module: Any, args: Any, output: Any) -> None:
        _core.save(output, site, "output", module=name, grad=grad)

    return hook


def _parameters(model: Any, names: set[str]) -> list[tuple[str, str, Any]]:
    """(full name, module, parameter) of every parameter that belongs to a watched module or one inside it."""
    found = []
    for full, parameter in model.named_parameters():
        module = full.rpartition(".")[0]
        path = module
        while path and path not in names:
            path = path.rpartition(".")[0]
        if path in names or "" in names:
            found.append((full, module, parameter))
    return found


def _save_weights(parameters: list[tuple[str, str, Any]]) -> None:
    for full, module, parameter in parameters:
        _core.save(parameter, full, "param", module=module)


def _save_gradients(parameters: list[tuple[str, str, Any]]) -> None:
    for full, module, parameter in parameters:
        if parameter.grad is not None:
            _core.save(parameter.grad, full, "grad", module=module)


def watch(
    model: Any,
    pattern: str = "*",
    *,
    inputs: bool = True,
    outputs: bool = True,
    grads: bool = True,
    params: bool = False,
    optimizer: Any = None,
) -> Watch:
    """Save what goes into and comes out of every module whose name matches, with its gradients.

    ``pattern`` are globs over the names of ``model.named_modules()``, ``|`` between, ``!`` excludes; the model itself
    is ``""``. ``params`` saves the weights of the matching modules too: with an ``optimizer`` the gradients it is given
    before each of its steps and the weights after it, else both at each forward and backward.

    >>> import tempfile, torch, tensortap as tap
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> d = tempfile.mkdtemp() + "/run"
    >>> with tap.record(d), tap.watch(model, "0", params=True):
    ...     model(torch.ones(1, 2)).sum().backward()
    >>> with tap.open(d) as run:
    ...     sorted({(r.name, r.kind) for r in run})  # doctest: +NORMALIZE_WHITESPACE
    [('0.bias', 'grad'), ('0.bias', 'param'), ('0.input', 'input'), ('0.output', 'grad'), ('0.output', 'output'),
     ('0.weight', 'grad'), ('0.weight', 'param')]
    """
    watched = Watch()
    for name, module in model.named_modules():
        if not _matches(name, pattern):
            continue
        watched.names.append(name)
        label = name or type(module).__name__
        if inputs:
            watched._handles.append(module.register_forward_pre_hook(_before(label, grads), with_kwargs=True))
        if outputs:
            watched._handles.append(module.register_forward_hook(_after(label, grads)))
    if not watched.names:
        near = ", ".join(repr(name) for name, _ in list(model.named_modules())[1:6])
        raise ValueError(f"watch: no module matches {pattern!r}; the names begin with {near}")
    if params:
        _watch_weights(watched, model, _parameters(model, set(watched.names)), grads, optimizer)
    return watched


def _watch_weights(watched: Watch, model: Any, parameters: list[Any], grads: bool, optimizer: Any) -> None:
    add = watched._handles.append
    if optimizer is not None:
        if grads:
            add(optimizer.register_step_pre_hook(lambda *_: _save_gradients(parameters)))
        add(optimizer.register_step_post_hook(lambda *_: _save_weights(parameters)))
        return
    add(model.register_forward_pre_hook(lambda *_: _save_weights(parameters)))
    if not grads:
        return
    for full, module, parameter in parameters:
        if parameter.requires_grad:

            def came(p: Any, full: str = full, module: str = module) -> None:
                _core.save(p.grad, full, "grad", module=module)

            add(parameter.register_post_accumulate_grad_hook(came))
