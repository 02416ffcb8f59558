"""The operators of GE that converters may use: one row each, with what it takes and the torch operators that do it.

A row's signature is ``"x1, x2?, xs* | axis:Int; keep_dims:Bool=False -> y, ys*"``: inputs (may be left out, any
number), attributes with type and default, outputs (as many as ``size_of_ys`` says). ``lower(e, a)`` emits torch
operators by ``e`` and returns the outputs; in ``a`` are the inputs and attributes by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten
Lower = Callable[[Any, Any], Any]


class Param(NamedTuple):
    """An attribute."""

    name: str
    type: str
    required: bool
    default: Any


class OpDef(NamedTuple):
    """One operator."""

    name: str
    inputs: tuple[str, ...]  # "x", "x?", "x*"
    attrs: tuple[Param, ...]
    outputs: tuple[str, ...]  # "y", "y*"
    lower: Lower | None  # None: there is only a builder


OPS: dict[str, OpDef] = {}


def _attr(text: str) -> Param:
    left, equals, default = text.partition("=")
    name, _, kind = left.partition(":")
    return Param(name.strip(), kind.strip(), not equals, ast.literal_eval(default.strip()) if equals else None)


def define(name: str, signature: str, lower: Lower | None = None) -> OpDef:
    """Add a row; a later one replaces an earlier one of the same name."""
    left, _, outputs = signature.partition("->")
    inputs, _, attrs = left.partition("|")

    def split(text: str, by: str = ",") -> list[str]:
        return [each.strip() for each in text.split(by) if each.strip()]

    OPS[name] = OpDef(
        name, tuple(split(inputs)), tuple(_attr(each) for each in split(attrs, ";")), tuple(split(outputs)), lower
    )
    return OPS[name]


# ---------------------------------------------------------------------------------------------------------- one by one


def _unary(name: str, operator: Any) -> None:
    define(name, "x -> y", lambda e, a: e(operator, e.tensor(a.x)))


def _binary(name: str, operator: Any, scalar: Any = None, **more: Any) -> None:
    def lower(e: Any, a: Any) -> Any:
        if scalar is not None and e.is_number(a.x2):
            return e(scalar, e.tensor(a.x1), e.number(a.x2), **more)
        return e(operator, e.tensor(a.x1), e.operand(a.x2), **more)

    define(name, "x1, x2 -> y", lower)


def _both_tensors(name: str, operator: Any) -> None:
    define(name, "x1, x2 -> y", lambda e, a: e(operator, e.tensor(a.x1), e.tensor(a.x2)))


for _name, _operator in {
    "Abs": aten.abs.default, "Neg": aten.neg.default, "Exp": aten.exp.default, "Expm1": aten.expm1.default,
    "Log": aten.log.default, "Log1p": aten.log1p.default, "Sqrt": aten.sqrt.default, "Rsqrt": aten.rsqrt.default,
    "Reciprocal": aten.reciprocal.default, "Relu": aten.relu.default, "Sigmoid": aten.sigmoid.default,
    "Tanh": aten.tanh.default, "Sin": aten.sin.default, "Cos": aten.cos.default, "Tan": aten.tan.default,
    "Asin": aten.asin.default, "Acos": aten.acos.default, "Atan": aten.atan.default, "Sinh": aten.sinh.default,
    "Cosh": aten.cosh.default, "Asinh": aten.asinh.default, "Acosh": aten.acosh.default,
    "Atanh": aten.atanh.default, "Erf": aten.erf.default, "Erfc": aten.erfc.default, "Floor": aten.floor.default,
    "Ceil": aten.ceil.default, "Round": aten.round.default, "Rint": aten.round.default, "Trunc": aten.trunc.default,
    "Sign": aten.sign.default, "IsNan": aten.isnan.default, "IsInf": aten.isinf.default,
    "LogicalNot": aten.logical_not.default, "Invert": aten.bitwise_not.default, "Mish": aten.mish.default,
    "HardSwish": aten.hardswish.default, "HardSigmoid": aten.hardsigmoid.default, "Selu": aten.elu.default,
    "Digamma": aten.digamma.default, "Lgamma": aten.lgamma.default, "ZerosLike": aten.zeros_like.default,
    "OnesLike": aten.ones_like.default, "TensorMove": aten.clone.default, "Identity": aten.alias.default,
}.items():  # fmt: skip
    _unary(_name, _operator)
define("Selu", "x -> y", lambda e, a: e(aten.elu.default, e.tensor(a.x), 1.6732632423543772, 1.0507009873554805))
define("Square", "x -> y", lambda e, a: e(aten.mul.Tensor, e.tensor(a.x), e.tensor(a.x)))
define("Relu6", "x -> y", lambda e, a: e(aten.hardtanh.default, e.tensor(a.x), 0.0, 6.0))
define("Gelu", "x -> y", lambda e, a: e(aten.gelu.default, e.tensor(a.x), approximate="tanh"))
define(
    "GeluV2",
    "x | approximate:Str='none' -> y",
    lambda e, a: e(aten.gelu.default, e.tensor(a.x), approximate=a.approximate),
)
define(
    "Swish",
    "x | scale:Float=1.0 -> y",
    lambda e, a: (
        e(aten.silu.default, e.tensor(a.x))
        if a.scale == 1
        else e(aten.mul.Tensor, a.x, e(aten.sigmoid.default, e(aten.mul.Tensor, e.tensor(a.x), a.scale)))
    ),
)
define(
    "LeakyRelu",
    "x | negative_slope:Float=0.0 -> y",
    lambda e, a: e(aten.leaky_relu.default, e.tensor(a.x), a.negative_slope),
)
define(
    "Elu",
    "x | alpha:Float=1.0; scale:Float=1.0; input_scale:Float=1.0 -> y",
    lambda e, a: e(aten.elu.default, e.tensor(a.x), a.alpha, a.scale, a.input_scale),
)
define(
    "SoftplusV2",
    "x | beta:Float=1.0; threshold:Float=20.0 -> y",
    lambda e, a: e(aten.softplus.default, e.tensor(a.x), a.beta, a.threshold),
)
define(
    "Cast",
    "x | dst_type:DataType -> y",
    lambda e, a: e(torch.ops.prims.convert_element_type.default, e.tensor(a.x), e.dtype(a.dst_type)),
)

for _name, _pair in {
    "Add": (aten.add.Tensor, None), "Sub": (aten.sub.Tensor, None), "Mul": (aten.mul.Tensor, None),
    "RealDiv": (aten.div.Tensor, None), "FloorMod": (aten.remainder.Tensor, aten.remainder.Scalar),
    "Mod": (aten.fmod.Tensor, aten.fmod.Scalar), "Pow": (aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar),
    "Xlogy": (aten.xlogy.Tensor, aten.xlogy.Scalar_Other), "Equal": (aten.eq.Tensor, aten.eq.Scalar),
    "NotEqual": (aten.ne.Tensor, aten.ne.Scalar), "Greater": (aten.gt.Tensor, aten.gt.Scalar),
    "GreaterEqual": (aten.ge.Tensor, aten.ge.Scalar), "Less": (aten.lt.Tensor, aten.lt.Scalar),
    "LessEqual": (aten.le.Tensor, aten.le.Scalar), "BitwiseAnd": (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar),
    "BitwiseOr": (aten.bitwise_or.Tensor, aten.bitwise_or.Scalar),
    "BitwiseXor": (aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar),
    "LeftShift": (aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar),
    "RightShift": (aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar),
}.items():  # fmt: skip
    _binary(_name, *_pair)
for _name, _operator in {
    "Maximum": aten.maximum.default, "Minimum": aten.minimum.default, "LogicalAnd": aten.logical_and.default,
    "LogicalOr": aten.logical_or.default, "LogicalXor": aten.logical_xor.default, "Atan2": aten.atan2.default,
}.items():  # fmt: skip
    _both_tensors(_name, _operator)
_binary("FloorDiv", aten.div.Tensor_mode, rounding_mode="floor")
_binary("TruncateDiv", aten.div.Tensor_mode, rounding_mode="trunc")
define(
    "Div",
    "x1, x2 -> y",
    lambda e, a: (
        e(aten.div.Tensor, e.tensor(a.x1), e.operand(a.x2))
        if e.is_floating(a.x1)
        else e(aten.div.Tensor_mode, e.tensor(a.x1), e.operand(a.x2), rounding_mode="trunc")
    ),
)
define(
    "SquaredDifference",
    "x1, x2 -> y",
    lambda e, a: e(aten.pow.Tensor_Scalar, e(aten.sub.Tensor, e.tensor(a.x1), e.operand(a.x2)), 2),
)
define(
    "AxpyV2",
    "x1, x2, alpha -> y",
    lambda e, a: (
        e(aten.add.Tensor, e.tensor(a.x1), e.operand(a.x2), alpha=e.number(a.alpha))
        if e.is_number(a.alpha)
        else e(aten.add.Tensor, e.tensor(a.x1), e(aten.mul.Tensor, e.tensor(a.x2), e.tensor(a.alpha)))
    ),
)
define(
    "Axpy", "x1, x2 | alpha:Float -> y", lambda e, a: e(aten.add.Tensor, e.tensor(a.x1), e.operand(a.x2), alpha=a.alpha)
)
define("Adds", "x | value:Float -> y", lambda e, a: e(aten.add.Tensor, e.tensor(a.x), a.value))
define("Muls", "x | value:Float -> y", lambda e, a: e(aten.mul.Tensor, e.tensor(a.x), a.value))


def _add_n(e: Any, a: Any) -> Any:
    total = e.tensor(a.x[0])
    for each in a.x[1:]:
        total = e(aten.add.Tensor, total, e.tensor(each))
    return total


define("AddN", "x* | N:Int=0 -> y", _add_n)
define(
    "Addcmul",
    "input_data, x1, x2, value -> y",
    lambda e, a: e(
        aten.addcmul.default, e.tensor(a.input_data), e.tensor(a.x1), e.tensor(a.x2), value=e.number(a.value)
    ),
)
define(
    "Addcdiv",
    "input_data, x1, x2, value -> y",
    lambda e, a: e(
        aten.addcdiv.default, e.tensor(a.input_data), e.tensor(a.x1), e.tensor(a.x2), value=e.number(a.value)
    ),
)
define(
    "Lerp",
    "start, end, weight -> y",
    lambda e, a: e(aten.lerp.Tensor, e.tensor(a.start), e.tensor(a.end), e.tensor(a.weight)),
)
define(
    "ClipByValue",
    "x, clip_value_min, clip_value_max -> y",
    lambda e, a: (
        e(aten.clamp.default, e.tensor(a.x), e.number(a.clip_value_min), e.number(a.clip_value_max))
        if e.is_number(a.clip_value_min) and e.is_number(a.clip_value_max)
        else e(aten.clamp.Tensor, e.tensor(a.x), e.tensor(a.clip_value_min), e.tensor(a.clip_value_max))
    ),
)
for _name in ("Select", "SelectV2"):
    define(
        _name,
        "condition, x1, x2 -> y",
        lambda e, a: e(aten.where.self, e.tensor(a.condition), e.tensor(a.x1), e.tensor(a.x2)),
    )
define(
    "MaskedFill",
    "x, mask, value -> y",
    lambda e, a: (
        e(aten.masked_fill.Scalar, e.tensor(a.x), e.tensor(a.mask), e.number(a.value))
        if e.is_number(a.value)
        else e(aten.masked_fill.Tensor, e.tensor(a.x), e.tensor(a.mask), e.tensor(a.value))
    ),
)
define("SigmoidGrad", "y, dy -> z", lambda e, a: e(aten.sigmoid_backward.default, e.tensor(a.dy), e.tensor(a.y)))
define("TanhGrad", "y, dy -> z", lambda e, a: e(aten.tanh_backward.default, e.tensor(a.dy), e.tensor(a.y)))
define(
    "ReluGrad",
    "gradients, features -> backprops",
    lambda e, a: e(aten.threshold_backward.default, e.tensor(a.gradients), e.tensor(a.features), 0),
)

# ------------------------------------------------------------------------------------------------------------- matmul


def _swapped(e: Any, x: Any, yes: bool) -> Any:
    return e(aten.transpose.int, e.tensor(x), -2, -1) if yes else e.tensor(x)


def _matmul(first: str, second: str, operator: Any) -> Lower:
    def lower(e: Any, a: Any) -> Any:
        y = e(operator, _swapped(e, a.x1, getattr(a, first)), _swapped(e, a.x2, getattr(a, second)))
        bias = getattr(a, "bias", None)
        return y if bias is None else e(aten.add.Tensor, y, e.tensor(bias))

    return lower


_MM = "transpose_x1:Bool=False; transpose_x2:Bool=False"
_BMM = "adj_x1:Bool=False; adj_x2:Bool=False"
define("MatMul", f"x1, x2, bias? | {_MM} -> y", _matmul("transpose_x1", "transpose_x2", aten.mm.default))
define(
    "MatMulV2",
    f"x1, x2, bias?, offset_w? | {_MM}; offset_x:Int=0 -> y",
    _matmul("transpose_x1", "transpose_x2", aten.mm.default),
)
define("BatchMatMul", f"x1, x2 | {_BMM} -> y", _matmul("adj_x1", "adj_x2", aten.matmul.default))
define(
    "BatchMatMulV2",
    f"x1, x2, bias?, offset_w? | {_BMM}; offset_x:Int=0 -> y",
    _matmul("adj_x1", "adj_x2", aten.matmul.default),
)

# -------------------------------------------------------------------------------------------------------------- shapes

define(
    "Reshape",
    "x, shape | axis:Int=0; num_axes:Int=-1 -> y",
    lambda e, a: e(aten.reshape.default, e.tensor(a.x), e.ints(a.shape)),
)
define("Transpose", "x, perm -> y", lambda e, a: e.whole(e(aten.permute.default, e.tensor(a.x), e.ints(a.perm))))
define("TransposeD", "x | perm:ListInt -> y", lambda e, a: e.whole(e(aten.permute.default, e.tensor(a.x), a.perm)))
define("ExpandDims", "x, axis -> y", lambda e, a: e(aten.unsqueeze.default, e.tensor(a.x), e.number(a.axis)))


def _unsqueeze(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    rank = len(e.sizes(x)) + len(a.axes)
    for axis in sorted(each % rank for each in a.axes):
        x = e(aten.unsqueeze.default, x, axis)
    return x


define("Unsqueeze", "x | axes:ListInt -> y", _unsqueeze)
define(
    "Squeeze",
    "x | axis:ListInt=[] -> y",
    lambda e, a: e(aten.squeeze.dims, e.tensor(a.x), a.axis) if a.axis else e(aten.squeeze.default, e.tensor(a.x)),
)
define("Flatten", "x | axis:Int=1 -> y", lambda e, a: e(aten.flatten.using_ints, e.tensor(a.x), a.axis, -1))
for _name in ("BroadcastTo", "Expand"):
    define(_name, "x, shape -> y", lambda e, a: e(aten.expand.default, e.tensor(a.x), e.ints(a.shape)))
define("Tile", "x, multiples -> y", lambda e, a: e(aten.repeat.default, e.tensor(a.x), e.ints(a.multiples)))


def _slice(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    for dim, (start, size) in enumerate(zip(e.ints(a.offsets), e.ints(a.size), strict=True)):
        end = 2**63 - 1 if isinstance(size, int) and size == -1 else e.plus(start, size)
        x = e(aten.slice.Tensor, x, dim, start, end)
    return e.whole(x)


define("Slice", "x, offsets, size -> y", _slice)
define(
    "ConcatD",
    "x* | concat_dim:Int; N:Int=1 -> y",
    lambda e, a: e(aten.cat.default, [e.tensor(each) for each in a.x], a.concat_dim),
)
define(
    "ConcatV2",
    "x*, concat_dim | N:Int=1 -> y",
    lambda e, a: e(aten.cat.default, [e.tensor(each) for each in a.x], e.number(a.concat_dim)),
)
define(
    "Pack",
    "x* | axis:Int=0; N:Int=1 -> y",
    lambda e, a: (
        e.listed(a.x)
        if a.axis == 0 and e.all_numbers(a.x)
        else e(aten.stack.default, [e.tensor(each) for each in a.x], a.axis)
    ),
)
define(
    "Unpack",
    "x | num:Int; axis:Int=0 -> y*",
    lambda e, a: [e(aten.select.int, e.tensor(a.x), a.axis, index) for index in range(a.num)],
)
define("SplitD", "x | split_dim:Int; num_split:Int -> y*", lambda e, a: _split(e, a.x, a.split_dim, a.num_split))
define("Split", "split_dim, x | num_split:Int -> y*", lambda e, a: _split(e, a.x, e.number(a.split_dim), a.num_split))


def _split(e: Any, x: Any, dim: int, count: int) -> list[Any]:
    size = e.sizes(e.tensor(x))[dim]
    return _split_by(e, x, [e.over(size, count)] * count, dim)


def _split_by(e: Any, x: Any, sizes: list[Any], dim: int) -> list[Any]:
    found, start = [], 0
    for size in sizes:
        end = e.plus(start, size)
        found.append(e.whole(e(aten.slice.Tensor, e.tensor(x), dim, start, end)))
        start = end
    return found


define(
    "SplitV",
    "x, size_splits, split_dim | num_split:Int -> y*",
    lambda e, a: _split_by(e, a.x, e.ints(a.size_splits), e.number(a.split_dim)),
)
define("Shape", "x | dtype:DataType=3 -> y", lambda e, a: e.listed(e.sizes(e.tensor(a.x))))


def _gather(e: Any, x: Any, indices: Any, axis: int) -> Any:
    if e.is_list(x) and e.is_number(indices):
        return e.listed_item(x, e.number(indices))
    if e.is_number(indices):
        return e(aten.select.int, e.tensor(x), axis, e.number(indices))
    return e(aten.index.Tensor, e.tensor(x), [None] * (axis % len(e.sizes(e.tensor(x)))) + [e.tensor(indices)])


define(
    "Gather",
    "x, indices | validate_indices:Bool=True; batch_dims:Int=0 -> y",
    lambda e, a: _gather(e, a.x, a.indices, 0),
)
define(
    "GatherV2", "x, indices, axis | batch_dims:Int=0 -> y", lambda e, a: _gather(e, a.x, a.indices, e.number(a.axis))
)
define(
    "GatherElements",
    "x, index | dim:Int=0 -> y",
    lambda e, a: e(aten.gather.default, e.tensor(a.x), a.dim, e.tensor(a.index)),
)
define(
    "GatherD",
    "x, dim, index -> y",
    lambda e, a: e(aten.gather.default, e.tensor(a.x), e.number(a.dim), e.tensor(a.index)),
)
define(
    "ScatterElements",
    "data, indices, updates | axis:Int=0 -> y",
    lambda e, a: e(aten.scatter.src, e.tensor(a.data), a.axis, e.tensor(a.indices), e.tensor(a.updates)),
)
define(
    "Fill",
    "dims, value -> y",
    lambda e, a: (
        e(aten.expand.default, e.tensor(a.value), e.ints(a.dims))
        if not e.is_number(a.value)
        else e(aten.full.default, e.ints(a.dims), e.number(a.value), dtype=e.const_dtype(a.value))
    ),
)
define(
    "Range",
    "start, limit, delta -> y",
    lambda e, a: e(
        aten.arange.start_step, e.number(a.start), e.number(a.limit), e.number(a.delta), dtype=e.const_dtype(a.start)
    ),
)
define("Triu", "x | diagonal:Int=0 -> y", lambda e, a: e(aten.triu.default, e.tensor(a.x), a.diagonal))
define("Tril", "x | diagonal:Int=0 -> y", lambda e, a: e(aten.tril.default, e.tensor(a.x), a.diagonal))

# ---------------------------------------------------------------------------------------------------------- reductions


def _reduction(name: str, operator: Any, **more: Any) -> None:
    def reduce(e: Any, x: Any, axes: list[int], keep: bool) -> Any:
        axes = axes or list(range(len(e.sizes(e.tensor(x)))))
        kept = {key: (e.dtype_of(x) if value is None else value) for key, value in more.items()}
        return e(operator, e.tensor(x), axes, keep, **kept)

    define(name, "x, axes | keep_dims:Bool=False -> y", lambda e, a: reduce(e, a.x, e.ints(a.axes), a.keep_dims))
    define(name + "D", "x | axes:ListInt; keep_dims:Bool=False -> y", lambda e, a: reduce(e, a.x, a.axes, a.keep_dims))


_reduction("ReduceSum", aten.sum.dim_IntList, dtype=None)
_reduction("ReduceMean", aten.mean.dim)
_reduction("ReduceMax", aten.amax.default)
_reduction("ReduceMin", aten.amin.default)
_reduction("ReduceAny", aten.any.dims)
_reduction("ReduceAll", aten.all.dims)
define("ReduceProdD", "x | axes:ListInt; keep_dims:Bool=False -> y", lambda e, a: _product(e, a.x, a.axes, a.keep_dims))
define("ReduceProd", "x, axes | keep_dims:Bool=False -> y", lambda e, a: _product(e, a.x, e.ints(a.axes), a.keep_dims))


def _product(e: Any, x: Any, axes: list[int], keep: bool) -> Any:
    x = e.tensor(x)
    rank = len(e.sizes(x))
    for axis in sorted((each % rank for each in axes or range(rank)), reverse=True):
        x = e(aten.prod.dim_int, x, axis, keep)
    return x


define(
    "ArgMaxV2",
    "x, dimension | dtype:DataType=9 -> y",
    lambda e, a: e.cast(e(aten.argmax.default, e.tensor(a.x), e.number(a.dimension)), a.dtype),
)
define(
    "ArgMin",
    "x, dimension | dtype:DataType=9 -> y",
    lambda e, a: e.cast(e(aten.argmin.default, e.tensor(a.x), e.number(a.dimension)), a.dtype),
)
define(
    "SoftmaxV2",
    "x | axes:ListInt=[-1]; half_to_float:Bool=False -> y",
    lambda e, a: e(aten._softmax.default, e.tensor(a.x), a.axes[0], a.half_to_float),
)
define(
    "LogSoftmaxV2",
    "logits | axes:ListInt=[-1] -> logsoftmax",
    lambda e, a: e(aten._log_softmax.default, e.tensor(a.logits), a.axes[0], False),
)
define(
    "Cumsum",
    "x, axis | exclusive:Bool=False; reverse:Bool=False -> y",
    lambda e, a: e(aten.cumsum.default, e.tensor(a.x), e.number(a.axis), dtype=e.dtype_of(a.x)),
)
define(
    "Cumprod",
    "x, axis | exclusive:Bool=False; reverse:Bool=False -> y",
    lambda e, a: e(aten.cumprod.default, e.tensor(a.x), e.number(a.axis), dtype=e.dtype_of(a.x)),
)
define(
    "TopKV2",
    "x, k | sorted:Bool=True; dim:Int=-1; largest:Bool=True -> values, indices",
    lambda e, a: e.parts(e(aten.topk.default, e.tensor(a.x), e.number(a.k), a.dim, a.largest, a.sorted)),
)
define(
    "Sort",
    "x | axis:Int=-1; descending:Bool=False -> y1, y2",
    lambda e, a: e.parts(e(aten.sort.stable, e.tensor(a.x), stable=True, dim=a.axis, descending=a.descending)),
)


def _layer_norm(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    shape = e.sizes(x)[a.begin_norm_axis :]
    return e.parts(e(aten.native_layer_norm.default, x, shape, e.tensor(a.gamma), e.tensor(a.beta), a.epsilon))


_LAYER_NORM = "x, gamma, beta | begin_norm_axis:Int=0; begin_params_axis:Int=0; epsilon:Float=1e-05"
define("LayerNormV3", f"{_LAYER_NORM} -> y, mean, rstd", _layer_norm)

# those of every graph; they are no work of their own
define("Data", "| index:Int; dtype:DataType; shape:ListInt; placement:Str='NPU' -> y")
define("Const", "-> y")
define("NetOutput", "x* ->")
