"""Operators that are others put together: what a graph is traced with in their place.

A list operator (``_foreach_add`` and its like) is the same operator for each tensor; the few others have a
decomposition in torch whose parts the engine has.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
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
    """A call of a list operator as calls for each tensor: lists are taken apart, all else is given to each."""
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


def _as_strided_scatter(
    x: torch.Tensor, src: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    if not x.is_contiguous() or x.storage_offset() != 0:
        return NotImplemented
    places = aten.as_strided(torch.arange(x.numel(), device=x.device), size, stride, storage_offset or 0)
    return aten.scatter(x.reshape(-1), 0, places.reshape(-1), src.reshape(-1)).view(x.shape)


def _batch_norm_update(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    y, *saved, new_mean, new_var = aten._native_batch_norm_legit_functional(
        x, weight, bias, mean, var, True, momentum, eps
    )
    return y, *saved, x.new_empty(0, dtype=torch.uint8), new_mean, new_var


def _batch_norm_plain(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    if mean is None or var is None:
        return NotImplemented
    y, *saved = aten._native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps)
    return y, *saved, x.new_empty(0, dtype=torch.uint8)


# ------------------------------------------------------------------------------------------------------- resampling


def _whole(packet: Any, taken_apart: Callable[..., Any]) -> Callable[..., Any]:
    from torch._decomp.decompositions import upsample_compute_output_size

    def resampled(x: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
        sizes = upsample_compute_output_size(x.size(), output_size, scale_factors)
        # the engine resamples halves in parts only, and torch traces sizes that vary only so
        if x.dtype in (torch.float16, torch.bfloat16) or any(isinstance(size, torch.SymInt) for size in sizes):
            return taken_apart(x, output_size, align_corners, scale_factors)
        return packet.default(x, sizes, align_corners, *(scale_factors or [None] * len(sizes)))

    return resampled


@contextlib.contextmanager
def whole_resampling() -> Iterator[None]:
    """While a graph is traced: linear and cubic resampling stay one operator.

    torch takes them apart into indexing and sums whatever decompositions are asked for; as one operator the engine is
    three times as fast (8x32x64x64 to twice the size, float32).
    """
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    saved = []
    packets = (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d, aten.upsample_bicubic2d)
    for packet in packets:
        for operator in (packet.vec, packet.default):
            kernels = operator.py_kernels
            saved.append((operator, dict(kernels)))
            for key in keys:
                old = kernels.pop(key, None)
                if old is not None and operator is packet.vec:
                    kernels[key] = _whole(packet, old)
            operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in saved:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


# --------------------------------------------------------------------------------------------------- embedding bags

_SUM, _MEAN, _MAX = range(3)


def _in_float(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _sum_into(rows: int, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return aten.index_add(values.new_zeros((rows, *values.shape[1:])), 0, index, values)


def _largest(rows: torch.Tensor, bag: torch.Tensor, bags: int, indices: torch.Tensor) -> tuple[Any, Any]:
    """The largest of each bag and column, zero in a bag without rows, and the index it came from."""
    where = bag.unsqueeze(1).expand(rows.shape)
    best = aten.scatter_reduce(rows.new_zeros((bags, rows.shape[1])), 0, where, rows, "amax", include_self=False)
    count = rows.shape[0]
    place = torch.arange(count, device=rows.device).unsqueeze(1).expand(rows.shape)
    place = torch.where(rows == best.index_select(0, bag), place, count)
    first = aten.scatter_reduce(place.new_zeros((bags, rows.shape[1])), 0, where, place, "amin", include_self=False)
    return best, indices.index_select(0, first.reshape(-1)).view(first.shape)


def _embedding_bag(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False,
    mode: int = _SUM, sparse: bool = False, per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if mode == _MAX and (padding_idx >= 0 or indices.numel() == 0):
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts.shape[0]
    bag = aten.bucketize(torch.arange(indices.shape[0], device=indices.device).to(starts.dtype), starts, right=True) - 1
    rows = _in_float(weight.index_select(0, indices))
    ones = torch.ones(indices.shape[0], dtype=torch.int64, device=indices.device)
    if padding_idx >= 0:
        kept = indices != padding_idx
        rows, ones = torch.where(kept.unsqueeze(1), rows, 0), kept.to(torch.int64)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype).unsqueeze(1)
    size, none = _sum_into(bags, bag, ones), indices.new_zeros(0)
    if mode == _MAX:
        best, chosen = _largest(rows, bag, bags, indices)
        return best.to(weight.dtype), bag, size, chosen
    total = _sum_into(bags, bag, rows)
    if mode == _MEAN:
        total = total / size.clamp(min=1).unsqueeze(1)
    return total.to(weight.dtype), bag, size, none


def _embedding_bag_backward(
    grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, bag: torch.Tensor, size: torch.Tensor,
    chosen: torch.Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: torch.Tensor | None, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if sparse or scale_grad_by_freq or (mode == _MAX and chosen.ndim != 2):
        return NotImplemented  # how often torch counts an index is its own matter
    wide = _in_float(grad)
    if mode == _MAX:
        wide = torch.where(size.unsqueeze(1) > 0, wide, 0)
        return aten.scatter_add(wide.new_zeros((num_weights, wide.shape[1])), 0, chosen, wide).to(grad.dtype)
    if mode == _MEAN:
        wide = wide / size.clamp(min=1).unsqueeze(1)
    rows = wide.index_select(0, bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype).unsqueeze(1)
    if padding_idx >= 0:
        rows = torch.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return _sum_into(num_weights, indices, rows).to(grad.dtype)


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By overload."""
    known = get_decompositions([
        aten._prelu_kernel_backward, aten.addr, aten.glu, aten.glu_backward, aten.isin, aten.linalg_cross,
        aten.log_sigmoid_forward, aten.renorm,
    ])  # fmt: skip
    ours = {
        aten._batch_norm_no_update.default: _batch_norm_plain,
        aten._batch_norm_with_update_functional.default: _batch_norm_update,
        aten._embedding_bag.default: _embedding_bag,
        aten._embedding_bag_backward.default: _embedding_bag_backward,
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten.as_strided_scatter.default: _as_strided_scatter,
        aten.index.Tensor: _index,
        aten.median.default: _median(aten.median.dim),
        aten.nanmedian.default: _median(aten.nanmedian.dim),
    }
    return {**known, **ours, **_foreach()}
