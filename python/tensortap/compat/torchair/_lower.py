"""Turns operators of GE into nodes of torch's traced graph, whose metadata is made on the way."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_map

from . import _ge_types
from ._ge_graph import Op, Tensor
from ._ge_ops import LOWER, aten
from ._ge_table import OPS, OpDef


class Number:
    """A constant, or one number known when the graph runs: value is Python's, or a node that gives an int."""

    def __init__(self, value: Any, dtype: int) -> None:
        self.value, self.dtype = value, dtype


class Numbers:
    """A constant list of numbers, or one of sizes."""

    def __init__(self, values: list[Any], dtype: int) -> None:
        self.values, self.dtype = values, dtype


class Emitter:
    """Adds nodes before one node of a graph. A value of GE is a node, a Number or Numbers."""

    def __init__(self, graph: torch.fx.Graph, before: Node, fake_mode: Any) -> None:
        self.graph, self.before, self.fake_mode = graph, before, fake_mode
        self.made: set[Node] = set()

    def __call__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        def shown(value: Any) -> Any:
            return value.meta["val"] if isinstance(value, Node) else value

        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, kwargs)
        self.made.add(node)
        with self.fake_mode:
            node.meta["val"] = target(*tree_map(shown, args), **tree_map(shown, kwargs))
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            if key in self.before.meta:
                node.meta[key] = self.before.meta[key]
        return node

    def tensor(self, value: Any) -> Node:
        """As a tensor."""
        if isinstance(value, Node):
            if isinstance(value.meta.get("val"), torch.Tensor):
                return value
            return self(aten.scalar_tensor.default, value, dtype=torch.int64)
        dtype = _ge_types.to_torch(value.dtype)
        if isinstance(value, Number):
            return self(aten.full.default, [], value.value, dtype=dtype)
        parts = [self(aten.full.default, [1], each, dtype=dtype) for each in value.values]
        return self(aten.cat.default, parts) if parts else self(aten.empty.memory_format, [0], dtype=dtype)

    def operand(self, value: Any) -> Any:
        """The second operand of a pointwise operator: torch takes a number there."""
        return value.value if isinstance(value, Number) else self.tensor(value)

    def is_number(self, value: Any) -> bool:
        """One number, known without a tensor."""
        return isinstance(value, Number) or (isinstance(value, Numbers) and len(value.values) == 1)

    def all_numbers(self, values: list[Any]) -> bool:
        """All of them are."""
        return all(self.is_number(each) for each in values)

    def is_list(self, value: Any) -> bool:
        """Numbers, known without a tensor."""
        return isinstance(value, Numbers)

    def number(self, value: Any) -> Any:
        """The number, or the node that gives it; raises for a tensor."""
        if isinstance(value, Number):
            return value.value
        if isinstance(value, Numbers) and len(value.values) == 1:
            return value.values[0]
        raise RuntimeError("a number is needed here that is known before the graph runs, not a tensor")

    def ints(self, value: Any) -> list[Any]:
        """The numbers; raises for a tensor."""
        if isinstance(value, Numbers):
            return list(value.values)
        return [self.number(value)]

    def listed(self, values: list[Any]) -> Numbers:
        """Numbers, or nodes that give ints, as one list."""
        plain = [self.number(each) if isinstance(each, (Number, Numbers)) else each for each in values]
        return Numbers(plain, _ge_types.DataType.DT_INT64)

    def listed_item(self, value: Numbers, index: int) -> Number:
        """One of them."""
        return Number(value.values[index], value.dtype)

    def sizes(self, x: Node) -> list[Any]:
        """A tensor's sizes: ints, or nodes where they differ from call to call."""
        found: list[Any] = []
        for dim, size in enumerate(x.meta["val"].shape):
            found.append(size if isinstance(size, int) else self(aten.sym_size.int, x, dim))
        return found

    def plus(self, a: Any, b: Any) -> Any:
        """The sum of two sizes."""
        return a + b if not isinstance(a, Node) and not isinstance(b, Node) else self(operator.add, a, b)

    def over(self, a: Any, b: int) -> Any:
        """A size divided."""
        return a // b if not isinstance(a, Node) else self(operator.floordiv, a, b)

    def whole(self, x: Node) -> Node:
        """Row by row in memory, as values of GE are."""
        return self(aten.clone.default, x, memory_format=torch.contiguous_format)

    def parts(self, x: Node) -> list[Node]:
        """Each of several results."""
        return [self(operator.getitem, x, index) for index in range(len(x.meta["val"]))]

    def dtype(self, number: Any) -> torch.dtype:
        """torch's dtype of a number of GE."""
        return _ge_types.to_torch(number)

    def dtype_of(self, x: Any) -> torch.dtype:
        """torch's dtype of a value."""
        return x.meta["val"].dtype if isinstance(x, Node) else _ge_types.to_torch(x.dtype)

    const_dtype = dtype_of

    def cast(self, x: Node, number: int) -> Node:
        """To another element type, if it is another."""
        wanted = self.dtype(number)
        same = x.meta["val"].dtype == wanted
        return x if same else self(torch.ops.prims.convert_element_type.default, x, wanted)

    def is_floating(self, x: Any) -> bool:
        """Floating point or complex."""
        dtype = self.dtype_of(x)
        return bool(dtype.is_floating_point or dtype.is_complex)


def _const(op: Op) -> Any:
    dtype = op.outputs[0].dtype
    if isinstance(op.value, (list, tuple)):
        return Numbers(list(op.value), dtype)
    return Number(op.value, dtype)


def _check(op: Op, row: OpDef) -> None:
    """Raises where an operator that was given by name has other inputs or attributes than the table says."""
    inputs = [each.rstrip("?*") for each in row.inputs]
    attrs = [each.name for each in row.attrs]
    who = f"the GE operator {op.type} ({op.name})"
    for what, given, there in (("input", op.inputs, inputs), ("attribute", op.attrs, attrs)):
        for name in given:
            if name not in there and not name.startswith("_"):
                raise TypeError(f"{who} has no {what} {name}; there are {', '.join(there) or 'none'}")
    for name, bare in zip(row.inputs, inputs, strict=True):
        if op.inputs.get(bare) is None and not name.endswith("?"):
            raise TypeError(f"{who}: the input {bare} is missing")
    for param in row.attrs:
        if param.required and param.name not in op.attrs:
            raise TypeError(f"{who}: the attribute {param.name} is missing")


def lower(op: Op, emit: Emitter, known: dict[tuple[int, int], Any]) -> None:
    """Emit one operator; ``known`` has the values of its inputs, by operator and output, and gets its own."""
    if op.type == "Const":
        known[id(op), 0] = _const(op)
        return
    row, function = OPS.get(op.type), LOWER.get(op.type)
    if row is None or function is None:
        raise NotImplementedError(
            f"the GE operator {op.type} ({op.name}) cannot be run here: it has no shape rule and no kernel; "
            f"convert to operators that have one (torchair.ge lists them), or let the torch operator run itself by "
            f"not registering a converter for it"
        )

    _check(op, row)

    def value(tensor: Tensor | None) -> Any:
        return None if tensor is None else known[id(tensor.node), tensor.index]

    given: dict[str, Any] = {}
    for name, key in zip(row.inputs, row.keywords, strict=True):
        taken = op.inputs.get(name.rstrip("?*"))
        given[key] = [value(each) for each in taken] if isinstance(taken, list) else value(taken)
    for param in row.attrs:
        held = op.attrs.get(param.name)
        given[param.keyword] = param.default if held is None else held.value
    result = function(emit, SimpleNamespace(**given))
    results = result if isinstance(result, list) else [result]
    if len(results) != len(op.outputs):
        raise RuntimeError(f"the GE operator {op.type} ({op.name}) has {len(op.outputs)} outputs, not {len(results)}")
    for index, each in enumerate(results):
        known[id(op), index] = each
        if isinstance(each, Node):
            op.outputs[index].set_meta(each.meta["val"])
