"""The graph that converters build: operators of GE with their inputs, attributes and outputs.

What a converter sees of a value is its dtype and rank, never its sizes. Nothing is computed here: ``_lower`` turns the
operators into torch's, and the engine runs those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from . import _ge_attr, _ge_types

__all__ = ["GeGraph", "Op", "Tensor", "TensorSpec", "get_default_ge_graph"]


def fixed_size(size: Any) -> int:
    """A size as a number; -1 where it differs from call to call."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_number else -1


class TensorSpec:
    """What torch says about a node's result."""

    def __init__(self, meta: Any) -> None:
        self._meta = meta

    @property
    def dtype(self) -> int:
        """GE's number of the element type."""
        return _ge_types.from_torch(self._meta.dtype)

    @property
    def rank(self) -> int:
        """How many dimensions."""
        return int(self._meta.dim())

    @property
    def size(self) -> list[int]:
        """The sizes; raises when they are not the same for every call."""
        if any(not isinstance(each, int) for each in self._meta.shape):
            raise RuntimeError(f"the sizes {tuple(self._meta.shape)} are not fixed; a converter cannot use them")
        return list(self._meta.shape)

    def __repr__(self) -> str:
        return f"TensorSpec(dtype={_ge_types.dtype_name(self.dtype)}, rank={self.rank})"


class Tensor:
    """An output of an operator, in a graph that is being built."""

    def __init__(self, op: Op, index: int, dtype: int = _ge_types.DataType.DT_UNDEFINED, rank: int = -1) -> None:
        self.node = op
        self.index = index
        self._dtype = dtype
        self._rank = rank
        self.fx_name = ""  # "add-aten.add.Tensor.OUTPUT.0" where it is a value of the traced graph
        self.meta: Any = None  # torch's description of the value, where it is one of the traced graph's

    @property
    def dtype(self) -> int:
        """GE's number of the element type."""
        return self._dtype

    @property
    def rank(self) -> int:
        """How many dimensions; -1: not known yet."""
        return self._rank

    @property
    def symsize(self) -> Any:
        """The sizes as torch traced them, symbols included; None where only the engine knows."""
        return None if self.meta is None else tuple(self.meta.shape)

    @property
    def tensor(self) -> str:
        """ "Add:0"."""
        return f"{self.node.name}:{self.index}"

    def set_meta(self, meta: Any) -> None:
        """Take over what torch says of the same value."""
        if hasattr(meta, "dtype"):
            self.meta = meta
            self._dtype, self._rank = _ge_types.from_torch(meta.dtype), int(meta.dim())

    def __repr__(self) -> str:
        return f"Tensor({self.tensor}, dtype={_ge_types.dtype_name(self._dtype)}, rank={self._rank})"


class Op:
    """One operator: ``inputs`` by parameter; None is one left out, a list a parameter that takes several."""

    def __init__(self, type: str, name: str) -> None:
        self.type = type
        self.name = name
        self.inputs: dict[str, Tensor | list[Tensor] | None] = {}
        self.attrs: dict[str, _ge_attr.Attr] = {}
        self.outputs: list[Tensor] = []
        self.output_names: list[str] = []
        self.controls: list[Op] = []
        self.source = ""  # the line of the program it comes from, as a stack trace shows it
        self.fx = ""  # the traced node it comes from, printed
        self.fx_name = ""
        self.value: Any = None  # of a Const

    def flat_inputs(self) -> Iterator[tuple[str, Tensor | None]]:
        """Every input with its name; those of a list are numbered."""
        for name, given in self.inputs.items():
            if isinstance(given, list):
                for index, each in enumerate(given):
                    yield f"{name}{index}", each
            else:
                yield name, given


class GeGraph:
    """Operators in the order in which they were made; ``with`` makes it the one that builders add to."""

    def __init__(self, name: str = "graph_1") -> None:
        self.name = name
        self.ops: list[Op] = []
        self.attrs: dict[str, _ge_attr.Attr] = {}
        self._counts: dict[str, int] = {}
        self._names: set[str] = set()
        self.source = self.fx = self.fx_name = ""  # given to each operator that is made
        self.on_add: Callable[[Op], None] | None = None  # told of each operator that a builder made

    def unique_name(self, wanted: str) -> str:
        """The name, or the next free one with a number behind it."""
        name = wanted
        while name in self._names:
            count = self._counts[wanted] = self._counts.get(wanted, 0) + 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def add(
        self,
        type: str,
        inputs: dict[str, Any],
        attrs: dict[str, Any] | None = None,
        outputs: Sequence[str | tuple[str, int]] = ("y",),
        node_name: str | None = None,
    ) -> Op:
        """A new operator at the end."""
        op = Op(type, self.unique_name(node_name or type))
        op.inputs = inputs
        op.attrs = {name: _ge_attr.of(value) for name, value in (attrs or {}).items() if value is not None}
        op.source, op.fx, op.fx_name = self.source, self.fx, self.fx_name
        for each in outputs:
            name, count = (each, None) if isinstance(each, str) else each
            for index in range(1 if count is None else count):
                op.output_names.append(name if count is None else f"{name}{index}")
                op.outputs.append(Tensor(op, len(op.outputs)))
        self.ops.append(op)
        return op

    def __enter__(self) -> GeGraph:
        _stack().append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stack().pop()


_local = threading.local()


def _stack() -> list[GeGraph]:
    if not hasattr(_local, "graphs"):
        _local.graphs = [GeGraph()]
    return _local.graphs  # type: ignore[no-any-return]


def get_default_ge_graph() -> GeGraph:
    """The graph that builders add to."""
    return _stack()[-1]
