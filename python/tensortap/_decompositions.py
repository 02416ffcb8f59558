"""Operators that are others put together: what a graph is traced with in their place.

A list operator (``_foreach_add`` and its like) is the same operator for each tensor; the few others have a
decomposition in torch whose parts the engine has.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

aten = torch.ops.aten

#: list operators whose one-tensor form has another name, or takes other arguments
_EACH: dict[str, Callable[..., Any]] = {
    "addcdiv": lambda x, a, b, value=1: _scaled(aten.addcdiv, x, a, b, value, lambda: a / b),
    "addcmul": lambda x, a, b, value=1: _scaled(aten.addcmul, x, a, b, value, lambda: a * b),
    "maximum": lambda x, other: aten.clamp_min(x, other),
    "minimum": lambda x, other: aten.clamp_max(x, other),
    "norm": lambda x, ord=2, dtype=None: aten.linalg_vector_norm(x, ord, dtype=dtype),
}


def _scaled(operator: Any, x: Any, a: Any, b: Any, value: Any, product: Callable[[], torch.Tensor]) -> Any:
    """``value`` may be an element of a tensor, which the one-tensor operators do not take."""
    return x + value * product() if isinstance(value, torch.Tensor) else operator(x, a, b, value=value)


def _each(operator: Any) -> Callable[..., list[Any]]:
    """A call of a list operator as calls for each tensor: lists are taken apart, everything else goes to all of them."""
    name = operator._schema.name.removeprefix("aten::_foreach_")
    one = _EACH.get(name) or getattr(aten, name)
    arguments = operator._schema.arguments
    in_lists = {at.name for at in arguments if isinstance(at.type, torch.ListType)}
    if operator._overloadname == "Tensor" and arguments[-1].name == "scalars":
        in_lists.add("scalars")  # one element for each tensor
    keywords = {at.name for at in arguments if at.kwarg_only}

    def of(value: Any) -> Sequence[Any]:
        return value.unbind() if isinstance(value, torch.Tensor) else value  # type: ignore[no-any-return]

    def decomposed(*args: Any, **kwargs: Any) -> list[Any]:
        given = dict(zip((at.name for at in arguments), args)) | kwargs
        rows = zip(*(of(value) if name in in_lists else itertools.repeat(value) for name, value in given.items()))
        return [
            one(
                *(value for name, value in zip(given, row) if name not in keywords),
                **{name: value for name, value in zip(given, row) if name in keywords},
            )
            for row in rows
        ]

    return decomposed


def _foreach() -> dict[Any, Callable[..., Any]]:
    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::_foreach_"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(aten, packet), overload or "default")
        one = packet.removeprefix("_foreach_")
        if not operator._schema.is_mutable and (one in _EACH or hasattr(aten, one)):
            found[operator] = _each(operator)
    return found


def _index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """A mask is the places where it is set."""
    if all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in indices):
        return NotImplemented
    places: list[torch.Tensor | None] = []
    for index in indices:
        masks = index is not None and index.dtype in (torch.bool, torch.uint8)
        places.extend(index.nonzero().unbind(1) if masks and index is not None else [index])
    return aten.index.Tensor(x, places)


def _median(one: Any) -> Callable[..., Any]:
    def of_all(x: torch.Tensor) -> Any:
        return NotImplemented if x.numel() == 0 else one(x.reshape(-1), 0)[0]

    return of_all


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By overload."""
    known = get_decompositions([
        aten._prelu_kernel_backward, aten.glu, aten.glu_backward, aten.log_sigmoid_forward,
    ])  # fmt: skip
    ours = {
        aten.index.Tensor: _index,
        aten.median.default: _median(aten.median.dim),
        aten.nanmedian.default: _median(aten.nanmedian.dim),
    }
    return {**known, **ours, **_foreach()}
