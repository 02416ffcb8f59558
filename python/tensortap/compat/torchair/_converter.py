"""Converters written in Python: which operators have one, and what it is given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _ge, _ge_types
from ._ge_graph import Tensor
from ._support import Support

__all__ = ["Converter", "declare_supported", "declared", "dtype_promote", "find", "register_fx_node_ge_converter"]

_converters: dict[Any, Converter] = {}


class Converter:
    """The converter of an operator; as a decorator it takes the function."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.function: Callable[..., Any] | None = None
        self.supported_cases: list[Support] | None = None
        self.wants_meta = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is not None:
            return self.function(*args, **kwargs)
        (function,) = args
        functools.update_wrapper(self, function)
        self.function = function
        self.wants_meta = "meta_outputs" in inspect.signature(function).parameters
        _converters[self.target] = self  # the last one wins
        return self

    @property
    def where(self) -> str:
        """File and line of the function."""
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "?"


def register_fx_node_ge_converter(aten_op: Any) -> Any:
    """A decorator that makes a function the converter of an operator; it wins over the built-in one."""
    if aten_op is None:
        return lambda function: function
    if not callable(aten_op):
        raise TypeError(
            f"register_fx_node_ge_converter takes an operator such as torch.ops.aten.add.Tensor, not {aten_op!r}"
        )
    return Converter(aten_op)


def declare_supported(cases: Sequence[Support]) -> Callable[[Converter], Converter]:
    """A decorator that says which calls a converter supports; ``converter_test`` tries them."""
    for each in cases:
        if not isinstance(each, Support):
            raise TypeError(f"declare_supported takes a list of Support, not {each!r}")

    def attach(converter: Converter) -> Converter:
        if not isinstance(converter, Converter):
            raise TypeError("declare_supported stands above register_fx_node_ge_converter")
        converter.supported_cases = list(cases)
        return converter

    return attach


def declared() -> list[Converter]:
    """Converters with declared cases, in the order of registration."""
    return [each for each in _converters.values() if each.supported_cases]


def find(target: Any) -> Converter | None:
    """The converter of a traced operator."""
    found = _converters.get(target)
    if found is None and isinstance(target, torch._ops.OpOverload):
        found = _converters.get(target.overloadpacket)
    return found


def dtype_promote(*tensors: Any, target_dtype: Any) -> Any:
    """As many values, all of one element type: tensors are cast where they have another, numbers become constants."""
    number = _ge_types.from_torch(target_dtype)
    result: list[Any] = []
    for each in tensors:
        if each is None:
            result.append(None)
        elif isinstance(each, Tensor):
            same = each.dtype == number
            result.append(each if same else _ge.Cast(each, dst_type=number))
        else:
            result.append(_ge.Const(each, dtype=number))
    return result[0] if len(result) == 1 else result
