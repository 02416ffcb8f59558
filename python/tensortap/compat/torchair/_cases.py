"""Cases of ATen operators for ``converter_test``: how common models call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ._support import BF16, BOOL, F16, F32, F64, I32, I64, Support, T

_UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log1p log2 neg reciprocal relu
round rsqrt sigmoid sign silu sin sinh sqrt square tan tanh trunc gelu isnan logical_not hardswish hardsigmoid"""
_BINARY = "add.Tensor sub.Tensor mul.Tensor div.Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor"
_BITS = "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"
_SINGLE = "maximum.default minimum.default atan2.default"

_OTHERS: dict[str, list[Support]] = {
    "add.Tensor": [Support(F32(2, 2), F16(2, 2), alpha=2), Support(F32(2, 2), 2.0), Support(I32(2, 2), 2, alpha=3)],
    "pow.Tensor_Scalar": [Support(F32(2, 3, value_range=(0, 2)), 2), Support(F32(2, 3, value_range=(0.1, 2)), 0.5)],
    "where.self": [Support(BOOL(2, 3), F32(2, 3), F32(3)), Support(BOOL(2, 3), F16(2, 1), F16(2, 3))],
    "clamp.default": [Support(F32(4, 4), -0.5, 0.5), Support(F32(4, 4), None, 0.5)],
    "mm.default": [Support(F32(3, 4), F32(4, 5)), Support(F64(3, 4), F64(4, 5))],
    "bmm.default": [Support(F32(2, 3, 4), F32(2, 4, 5))],
    "addmm.default": [Support(F32(5), F32(3, 4), F32(4, 5)), Support(F32(5), F32(3, 4), F32(4, 5), beta=0.5, alpha=2)],
    "sum.dim_IntList": [Support(F32(2, 3, 4), [1]), Support(F32(2, 3, 4), [0, -1], True), Support(I32(2, 3), [0])],
    "mean.dim": [Support(F32(2, 3, 4), [1]), Support(F32(2, 3, 4), [-1], True)],
    "amax.default": [Support(F32(2, 3, 4), [1]), Support(F32(2, 3, 4), [0, 2], True)],
    "amin.default": [Support(F32(2, 3, 4), [1])],
    "argmax.default": [Support(F32(2, 3, 4), 1), Support(F32(2, 3))],
    "cumsum.default": [Support(F32(2, 5), 1), Support(I64(5), 0)],
    "_softmax.default": [Support(F32(2, 5), -1, False), Support(F16(2, 5), 1, False)],
    "_log_softmax.default": [Support(F32(2, 5), -1, False)],
    "native_layer_norm.default": [Support(F32(2, 3, 8), [8], F32(8), F32(8), 1e-5)],
    "cat.default": [Support([F32(2, 3), F32(4, 3)]), Support([F32(2, 3), F32(2, 1)], 1)],
    "permute.default": [Support(F32(2, 3, 4), [2, 0, 1])],
    "view.default": [Support(F32(2, 6), [3, 4]), Support(F32(2, 6), [-1])],
    "expand.default": [Support(F32(2, 1), [2, 5])],
    "slice.Tensor": [Support(F32(6, 3), 0, 1, 5, 2)],
    "select.int": [Support(F32(6, 3), 1, 2)],
    "index_select.default": [Support(F32(6, 3), 0, T([0, 5, 2]))],
    "gather.default": [Support(F32(3, 4), 1, T([[0, 1], [2, 3], [1, 1]]))],
    "embedding.default": [Support(F32(10, 4), T([[1, 2], [3, 9]]))],
    "convolution.default": [
        Support(F32(1, 3, 8, 8), F32(4, 3, 3, 3), F32(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        Support(F32(1, 4, 8, 8), F32(8, 2, 3, 3), None, [2, 2], [0, 0], [1, 1], False, [0, 0], 2),
    ],
    "max_pool2d_with_indices.default": [Support(F32(1, 2, 8, 8), [2, 2], [2, 2])],
    "topk.default": [Support(F32(2, 9), 3)],
    "sort.default": [Support(F32(2, 9))],
    "tril.default": [Support(F32(4, 4)), Support(F32(4, 4), -1)],
    "masked_fill.Scalar": [Support(F32(2, 3), BOOL(2, 3), 0.5)],
}


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def declared() -> Iterator[tuple[Any, list[Support]]]:
    """Operator and cases."""
    for name in _UNARY.split():
        kinds = [F32, F16] if name in ("log", "sqrt", "rsqrt", "log1p", "log2") else [F32, F16, F64]
        cases = [Support(each(2, 3, value_range=(0.1, 0.9))) for each in kinds]
        yield _overload(name), cases + ([Support(BF16(2, 3))] if name in ("abs", "neg", "relu", "sign") else [])
    for name in _BINARY.split():
        cases = [Support(F32(2, 3), F32(2, 3)), Support(F32(2, 3), F32(3)), Support(F16(2, 1), F32(2, 3))]
        yield _overload(name), cases + _OTHERS.get(name, [])
    for name in _SINGLE.split():
        yield _overload(name), [Support(F32(2, 3), F32(2, 3)), Support(F16(2, 3), F16(2, 1))]
    for name in _BITS.split():
        yield (
            _overload(name),
            [Support(I32(2, 3), I32(2, 3)), Support(BOOL(2, 3), BOOL(2, 3)), Support(I64(2, 3), I64(3))],
        )
    for name, cases in _OTHERS.items():
        if name not in _BINARY.split():
            yield _overload(name), cases
