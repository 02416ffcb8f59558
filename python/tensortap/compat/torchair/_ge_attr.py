"""``ge.attr``: the types of attributes that operators take."""

from __future__ import annotations

from typing import Any

from . import _ge_types

__all__ = [
    "Bool", "DataType", "Float", "Int", "ListBool", "ListDataType", "ListFloat", "ListInt", "ListListFloat",
    "ListListInt", "ListStr", "Str",
]  # fmt: skip


class Attr:
    """A value with its type; a value of another type raises."""

    kind = ""
    types: tuple[type, ...] = ()
    depth = 0  # of lists

    def __init__(self, value: Any) -> None:
        self.value = self._checked(value, self.depth)

    def _checked(self, value: Any, depth: int) -> Any:
        if depth:
            if not isinstance(value, (list, tuple)):
                raise AssertionError(f"ge.attr.{type(self).__name__} takes a list, not {value!r}")
            return [self._checked(each, depth - 1) for each in value]
        wrong = isinstance(value, bool) and bool not in self.types
        if wrong or not isinstance(value, self.types):
            raise AssertionError(f"ge.attr.{type(self).__name__} cannot hold {value!r} of type {type(value).__name__}")
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attr) and (self.kind, self.value) == (other.kind, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"attr.{type(self).__name__}({self.value!r})"


class Bool(Attr):
    """True or False."""

    kind, types = "b", (bool,)


class Int(Attr):
    """A whole number."""

    kind, types = "i", (int,)


class Float(Attr):
    """A number."""

    kind, types = "f", (float, int)


class Str(Attr):
    """Text."""

    kind, types = "s", (str, bytes)


class DataType(Attr):
    """An element type: GE's number, or torch's dtype."""

    kind, types = "dt", (int,)

    def __init__(self, value: Any) -> None:
        super().__init__(_ge_types.from_torch(value))


class ListBool(Bool):
    """A list of them."""

    kind, depth = "list_b", 1


class ListInt(Int):
    """A list of them."""

    kind, depth = "list_i", 1


class ListFloat(Float):
    """A list of them."""

    kind, depth = "list_f", 1


class ListStr(Str):
    """A list of them."""

    kind, depth = "list_s", 1


class ListDataType(Attr):
    """A list of element types."""

    kind, types, depth = "list_dt", (int,), 1

    def __init__(self, value: Any) -> None:
        super().__init__([_ge_types.from_torch(each) for each in value])


class ListListInt(Int):
    """A list of lists."""

    kind, depth = "list_list_i", 2


class ListListFloat(Float):
    """A list of lists."""

    kind, depth = "list_list_f", 2


def of(value: Any) -> Attr:
    """The attribute that a plain value is."""
    import torch

    if isinstance(value, Attr):
        return value
    if isinstance(value, torch.dtype):
        return DataType(value)
    if isinstance(value, (list, tuple)):
        kinds = {type(each) for each in value}
        if kinds and kinds <= {list, tuple}:
            whole = all(isinstance(each, int) for inner in value for each in inner)
            return ListListInt(value) if whole else ListListFloat(value)
        for kind, held in ((bool, ListBool), (int, ListInt), (str, ListStr), (float, ListFloat)):
            if kinds == {kind}:
                return held(value)
        return ListFloat(value) if kinds else ListInt(value)
    for kind, one in ((bool, Bool), (int, Int), (float, Float), (str, Str)):
        if isinstance(value, kind):
            return one(value)
    raise TypeError(f"an attribute cannot be {value!r} of type {type(value).__name__}")
