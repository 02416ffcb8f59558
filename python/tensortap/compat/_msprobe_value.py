"""Values as debug.json is to show them: what each leaf becomes, where it lies, and which leaves have gradients."""

from __future__ import annotations

import dataclasses
import functools
import json
import numbers
import sys
from collections.abc import Mapping, Set
from typing import Any

from .._record.values import Lost

_PIECE = 48  # levels that are handed to the recorder at once
_DEEPEST = 400
_CONTAINERS_KEYS = {"device": "torch.device", "dtype": "torch.dtype", "output_dtype": "torch.dtype"}
# tensors whose own type debug.json names; other subclasses are torch.Tensor
_NAMED_TENSORS = ("DTensor", "FakeTensor", "AsyncCollectiveTensor", "NestedTensor")

Leaf = tuple[str, Any]


def _is(value: Any, framework: str, *names: str) -> bool:
    """Is it an instance of a type of a framework that is loaded?"""
    module = sys.modules.get(framework)
    return module is not None and any(isinstance(value, getattr(module, name)) for name in names)


@functools.cache
def _named(base: type, name: str) -> type:
    """A subclass whose values are recorded under a type name."""
    return type(name, (base,), {"__module__": "builtins"})


def _text(value: str, name: str) -> Any:
    return _named(str, name)(value)


@functools.cache
def _array_type() -> Any:
    import numpy

    return type("ndarray", (numpy.ndarray,), {"__module__": "numpy"})


class Shape:
    """A value, walked once. ``objects``: what is no data is shown by its repr, else it is None."""

    def __init__(self, value: Any, objects: bool = True) -> None:
        self._objects = objects
        self.pieces: list[tuple[str, Any]] = []  # parts deeper than one call takes, by path
        self.gradients: list[Leaf] = []
        self.mirror_pieces: list[tuple[str, Any]] = []
        self.cut = False
        self.value, self.mirror = self._walk(value, "", "", 0)

    def _walk(self, value: Any, path: str, key: str, depth: int) -> tuple[Any, Any]:
        made = self._open(value)
        if made is None:
            return self._leaf(value, path, key), None
        if depth >= _DEEPEST:
            self.cut = True
            return _text(f"nested deeper than {_DEEPEST} levels", "str"), None
        if depth and depth % _PIECE == 0:
            # a part of its own; the place it belongs to is filled when it is saved
            inside, mirror = self._items(made, path, depth)
            self.pieces.append((path, inside))
            self.mirror_pieces.append((path, mirror))
            return None, None
        return self._items(made, path, depth)

    def _items(self, made: Any, path: str, depth: int) -> tuple[Any, Any]:
        start = path + "\x1f" if path else ""
        if isinstance(made, dict):
            pairs = {
                key: self._walk(item, f"{start}k{key}", key, depth + 1) for key, item in made.items()
            }
            return {k: v for k, (v, _) in pairs.items()}, {k: m for k, (_, m) in pairs.items()}
        done = [self._walk(item, f"{start}i{index}", "", depth + 1) for index, item in enumerate(made)]
        return [v for v, _ in done], [m for _, m in done]

    @staticmethod
    def _open(value: Any) -> Any:
        """A container as a dict or list; None for a leaf."""
        if isinstance(value, (str, type)) or _is(value, "torch", "Tensor", "Size") or _is(value, "mindspore", "Tensor"):
            return None
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {field: getattr(value, field) for field in value._fields}
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {str(key): item for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return value
        if isinstance(value, Set):
            return sorted(value, key=repr)
        return None

    def _leaf(self, value: Any, path: str, key: str) -> Any:
        if _is(value, "mindspore", "Tensor"):
            self.gradients.append((path, value))
            return value
        if _is(value, "torch", "Tensor"):
            import torch

            if value.requires_grad:
                self.gradients.append((path, value))
            if type(value) in (torch.Tensor, torch.nn.Parameter) or type(value).__name__ in _NAMED_TENSORS:
                return value
            return value.as_subclass(torch.Tensor)
        if key in _CONTAINERS_KEYS and isinstance(value, (str, int)) and not isinstance(value, bool):
            if key != "device" or isinstance(value, str):
                return _text(str(value), _CONTAINERS_KEYS[key])
            return _named(int, "torch.device")(value)
        return _plain(value, self._objects)


def _plain(value: Any, objects: bool) -> Any:
    if value is None or type(value) in (bool, int, float, str, complex, Lost):
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.view(_array_type())
    name = type(value).__name__
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, bool):
        return value
    for base, kind in ((int, int), (float, float), (complex, complex), (str, str), (bytes, bytes)):
        if isinstance(value, base):
            return _named(kind, name)(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if _is(value, "torch", "Size"):
        return _text(json.dumps([int(size) for size in value]), "torch.Size")
    if isinstance(value, slice):
        parts = [None if each is None else int(each) for each in (value.start, value.stop, value.step)]
        return _text(json.dumps(parts), "slice")
    if value is Ellipsis:
        return _text("...", "ellipsis")
    if _is(value, "torch", "device"):
        return _text(f"{value.type}:{value.index}", "torch.device")
    if _is(value, "torch", "dtype"):
        return _text(str(value), "torch.dtype")
    return _text(repr(value), name) if objects else None
