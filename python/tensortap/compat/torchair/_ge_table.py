"""The operators of GE that converters may use, as the library's table (``src/graph/ops.def``) has them.

Builders, dumps and checks take inputs, attributes and outputs from here; ``_ge_ops`` says what each computes.
"""

from __future__ import annotations

import ast
import keyword
from typing import Any, NamedTuple

import torch

from ... import _core
from . import _ge_types

__all__ = ["OPS", "OpDef", "Param", "python_name"]

# the table's name of a type: the class of ``ge.attr``
_TYPES = {
    "int": "Int", "float": "Float", "bool": "Bool", "str": "Str", "dtype": "DataType", "ints": "ListInt",
    "floats": "ListFloat", "bools": "ListBool",
}  # fmt: skip


class Param(NamedTuple):
    """An attribute."""

    name: str
    type: str  # a class of ``ge.attr``
    required: bool
    default: Any
    keyword: str  # what a builder calls it


class OpDef(NamedTuple):
    """One operator."""

    name: str
    inputs: tuple[str, ...]  # "x", "x?", "x*"
    attrs: tuple[Param, ...]
    outputs: tuple[str, ...]  # "y", "y*"
    doc: str
    keywords: tuple[str, ...]  # what a builder calls the inputs


def python_name(name: str, taken: set[str]) -> str:
    """What torchair calls a parameter in Python; ``taken`` has those before it, and gets this one."""
    if keyword.iskeyword(name):
        name += "_changed_as_is_python_key"
    if name in taken:
        name += "_changed_as_duplicate_with_input"
    taken.add(name)
    return name


def _default(kind: str, text: str) -> Any:
    if kind == "str":
        return text
    if kind == "bool":
        return text == "true"
    if kind == "dtype":
        return _ge_types.from_torch(getattr(torch, text))
    return ast.literal_eval(text)


def _attr(text: str, taken: set[str]) -> Param:
    left, equals, default = text.partition("=")
    name, _, kind = left.partition(":")
    value = _default(kind, default) if equals else None
    return Param(name, _TYPES[kind], not equals, value, python_name(name, taken))


def _read() -> dict[str, OpDef]:
    found = {}
    for _name, ge, kind, params, count, outputs, doc in _core.operators():
        if kind != "ge" or ge is None:
            continue
        taken: set[str] = set()
        inputs = tuple(params[:count])
        keywords = tuple(python_name(each.rstrip("?*"), taken) for each in inputs)
        attrs = tuple(_attr(each, taken) for each in params[count:])
        found[ge] = OpDef(ge, inputs, attrs, tuple(outputs), doc, keywords)
    return found


OPS = _read()
