"""``torchair.ge``: builders that add operators to the graph being converted, made from the table of operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _ge_attr as attr
from . import _ge_types
from ._ge_graph import GeGraph, Op, Tensor, TensorSpec, get_default_ge_graph
from ._ge_table import OPS, OpDef
from ._ge_types import DataType, Format

__all__ = [
    "Cast", "Clone", "Const", "DataType", "Format", "GeGraph", "Tensor", "TensorSpec", "attr", "custom_op",
    "get_default_ge_graph",
]  # fmt: skip


def _plain(value: Any) -> Any:
    """A constant without torch or numpy around it."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if type(value).__module__ == "numpy":
        return value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else value


def _first(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0] if value else 0
    return value


def _dtype_of(value: Any, given: Any) -> int:
    if isinstance(given, torch.Tensor):
        return _ge_types.from_torch(given.dtype)
    first = _first(value)
    if isinstance(first, bool):
        return DataType.DT_BOOL
    if isinstance(first, int):
        return DataType.DT_INT64
    if isinstance(first, complex):
        return _ge_types.from_torch(torch.complex64)
    return DataType.DT_FLOAT


def Const(value: Any, dtype: Any = None, node_name: str | None = None, readable: bool = True) -> Tensor:
    """A constant: a number, a list of numbers or a small tensor.

    >>> Const(2.5, dtype=DataType.DT_FLOAT).rank
    0
    """
    plain = _plain(value)
    if isinstance(plain, list) and any(isinstance(each, list) for each in plain):
        raise NotImplementedError(
            "ge.Const of more than one dimension cannot be run here; use ge.Reshape of a flat one"
        )
    graph = get_default_ge_graph()
    number = _dtype_of(plain, value) if dtype is None else _ge_types.from_torch(dtype)
    op = graph.add("Const", {}, {}, ("y",), node_name)
    op.value = plain
    op.outputs[0] = Tensor(op, 0, number, 1 if isinstance(plain, list) else 0)
    _made(graph, op)
    return op.outputs[0]


def _made(graph: GeGraph, op: Op) -> None:
    """Tell whoever converts, so that it learns the types of the outputs at once."""
    if graph.on_add is not None:
        graph.on_add(op)


def _sibling_dtype(value: Any, tensors: list[Tensor]) -> int | None:
    """What a literal beside tensors is: the one floating or whole type that they have."""
    kinds = {each.dtype for each in tensors if each.dtype != DataType.DT_UNDEFINED}
    first = _first(_plain(value))
    floating = {each for each in kinds if _ge_types.to_torch(each).is_floating_point}
    wanted = floating if isinstance(first, float) else kinds - floating
    if isinstance(first, bool):
        return None
    if not wanted and isinstance(first, int):
        wanted = floating
    return next(iter(wanted)) if len(wanted) == 1 else None


def _as_tensors(given: dict[str, Any]) -> dict[str, Any]:
    """Literals become constants."""
    flat = [each for value in given.values() for each in (value if isinstance(value, list) else [value])]
    tensors = [each for each in flat if isinstance(each, Tensor)]

    def made(value: Any, lists: bool) -> Any:
        if value is None or isinstance(value, Tensor):
            return value
        if lists and isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
            return [made(each, False) for each in value]
        return Const(value, _sibling_dtype(value, tensors))

    return {name: made(value, True) for name, value in given.items()}


def _results(op: Op, outputs: Sequence[str | tuple[str, int]]) -> Any:
    several = len(outputs) != 1 or not isinstance(outputs[0], str)
    return op.outputs if several else op.outputs[0]


def _add(
    type: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    outputs: Sequence[str | tuple[str, int]],
    node_name: str | None,
    dependencies: Sequence[Tensor],
) -> Any:
    graph = get_default_ge_graph()
    op = graph.add(type, _as_tensors(inputs), attrs, outputs, node_name)
    op.controls = [each.node for each in dependencies]
    _made(graph, op)
    return _results(op, outputs)


def _given(row: OpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name; raises for one too many, twice, or not in the table."""
    names = [*row.keywords, *(each.keyword for each in row.attrs)]
    if len(args) > len(row.inputs):
        raise TypeError(
            f"ge.{row.name} takes {len(row.inputs)} inputs by position ({', '.join(row.inputs)}), got {len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key not in names:
            raise TypeError(f"ge.{row.name} has no input or attribute {key}; there are {', '.join(names)}")
        if key in given:
            raise TypeError(f"ge.{row.name} got {key} twice")
        given[key] = value
    return given


def _bind(row: OpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and attributes under GE's names; raises for one that is missing or of another type."""
    given = _given(row, args, kwargs)
    inputs = {}
    for name, key in zip(row.inputs, row.keywords, strict=True):
        if given.get(key) is None and not name.endswith("?"):
            raise TypeError(f"ge.{row.name}: the input {key} is missing")
        inputs[name.rstrip("?*")] = list(given[key]) if name.endswith("*") else given.get(key)
    attrs = {}
    for param in row.attrs:
        if param.required and param.keyword not in given:
            raise TypeError(f"ge.{row.name}: the attribute {param.keyword} is missing")
        value = given.get(param.keyword, param.default)
        if param.keyword in given and value != param.default:
            try:
                attrs[param.name] = getattr(attr, param.type)(value)
            except (AssertionError, TypeError) as error:
                raise TypeError(f"ge.{row.name}: the attribute {param.keyword}: {error}") from None
    return inputs, attrs


def _outputs(row: OpDef, attrs: dict[str, Any], sizes: dict[str, Any]) -> list[str | tuple[str, int]]:
    """The names of the outputs; of those that there are any number of, how many."""
    found: list[str | tuple[str, int]] = []
    for name in row.outputs:
        bare = name.rstrip("*")
        if name == bare:
            found.append(name)
            continue
        count = sizes.get(f"size_of_{bare}")
        for key in ("num", "num_split"):
            count = attrs[key].value if count is None and key in attrs else count
        if count is None:
            raise TypeError(f"ge.{row.name}: size_of_{bare} is missing: how many {bare} there are")
        found.append((bare, int(count)))
    return found


def _signature(row: OpDef) -> inspect.Signature:
    """As torchair writes it: inputs by position, all else by name."""
    by_position, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    empty = inspect.Parameter.empty
    found: list[inspect.Parameter] = []
    for name, key in zip(row.inputs, row.keywords, strict=True):
        required = not name.endswith("?") and all(each.default is empty for each in found)
        found.append(inspect.Parameter(key, by_position, default=empty if required else None))
    found += [inspect.Parameter(f"size_of_{y[:-1]}", by_name, default=None) for y in row.outputs if y.endswith("*")]
    for each in row.attrs:
        found.append(inspect.Parameter(each.keyword, by_name, default=empty if each.required else each.default))
    found.append(inspect.Parameter("dependencies", by_name, default=()))
    found.append(inspect.Parameter("node_name", by_name, default=None))
    return inspect.Signature(found)


def _builder(row: OpDef) -> Callable[..., Any]:
    def build(*args: Any, dependencies: Sequence[Tensor] = (), node_name: str | None = None, **kwargs: Any) -> Any:
        counted = [f"size_of_{each[:-1]}" for each in row.outputs if each.endswith("*")]
        sizes = {key: kwargs.pop(key) for key in counted if key in kwargs}
        inputs, attrs = _bind(row, args, kwargs)
        return _add(row.name, inputs, attrs, _outputs(row, attrs, sizes), node_name, dependencies)

    build.__name__ = build.__qualname__ = row.name
    build.__signature__ = _signature(row)  # type: ignore[attr-defined]
    build.__doc__ = row.doc
    return build


def Data(
    *,
    index: int,
    dtype: Any,
    shape: Sequence[int] | None = None,
    format: Any = None,
    placement: str = "NPU",
    node_name: str | None = None,
) -> Tensor:
    """A graph input; -1 is a size that differs from call to call."""
    graph = get_default_ge_graph()
    number = _ge_types.from_torch(dtype)
    held = {"index": attr.Int(index), "dtype": attr.DataType(number), "placement": attr.Str(placement)}
    if shape is not None:
        held["shape"] = attr.ListInt(list(shape))
    op = graph.add("Data", {}, held, ("y",), node_name)
    op.outputs[0] = Tensor(op, 0, number, -1 if shape is None else len(shape))
    _made(graph, op)
    return op.outputs[0]


def NetOutput(x: Sequence[Tensor], *, dependencies: Sequence[Tensor] = (), node_name: str | None = None) -> None:
    """The graph's results."""
    graph = get_default_ge_graph()
    op = graph.add("NetOutput", {"x": list(x)}, {}, (), node_name or "NetOutput")
    op.controls = [each.node for each in dependencies]


def Cast(x: Any, *, dst_type: Any, dependencies: Sequence[Tensor] = (), node_name: str | None = None) -> Tensor:
    """To another element type."""
    held = {"dst_type": attr.DataType(_ge_types.from_torch(dst_type))}
    made: Tensor = _add("Cast", {"x": x}, held, ("y",), node_name, dependencies)
    if made.dtype == DataType.DT_UNDEFINED:
        made._dtype, made._rank = _ge_types.from_torch(dst_type), x.rank
    return made


def Clone(x: Tensor, *, node_name: str | None = None) -> Tensor:
    """A copy."""
    made: Tensor = _add("TensorMove", {"x": x}, {}, ("y",), node_name, ())
    return made


def custom_op(
    op_type: str,
    *args: Any,
    inputs: dict[str, Any] | None = None,
    attrs: dict[str, Any] | None = None,
    outputs: Sequence[str | tuple[str, int]] | None = None,
    node_name: str | None = None,
) -> Any:
    """Any operator by its type: of the table by position, or one of your own with inputs, attrs and outputs by name."""
    row = OPS.get(op_type)
    if args:
        if inputs is not None or attrs is not None or outputs is not None:
            raise ValueError("ge.custom_op takes its arguments by position or as inputs, attrs and outputs, not both")
        if row is None:
            raise RuntimeError(f"ge.custom_op: {op_type} is not in the table; give inputs, attrs and outputs by name")
        given = dict(zip([each.keyword for each in row.attrs], args[len(row.inputs) :], strict=False))
        return _builder(row)(*args[: len(row.inputs)], node_name=node_name, **given)
    if not outputs:
        raise ValueError(f"ge.custom_op({op_type!r}): outputs is missing, the names of what it gives")
    return _add(op_type, dict(inputs or {}), dict(attrs or {}), list(outputs), node_name, ())


def __getattr__(name: str) -> Any:
    row = None if name.startswith("_") else OPS.get(name)
    if row is None:
        raise AttributeError(
            f"torchair.ge has no operator {name}; it has {', '.join(sorted(OPS))}, and custom_op for others"
        )
    return _builder(row)


def __dir__() -> list[str]:
    return sorted({*__all__, *OPS})
