"""What the operators of GE compute: for each, a function that emits torch's operators and returns the outputs.

``function(e, a)`` emits by ``e`` (``_lower.Emitter``); in ``a`` are the inputs and attributes under the names that the
builder has for them (``_ge_table``). An operator of the table with no function here has a builder and cannot be run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ._ge_table import OPS

aten = torch.ops.aten
Lower = Callable[[Any, Any], Any]
LOWER: dict[str, Lower] = {}


def lowers(name: str, function: Lower) -> None:
    """Say what an operator of the table computes."""
    LOWER[OPS[name].name] = function


def _only(name: str, a: Any, **values: Any) -> None:
    """Other values of these attributes and inputs cannot be run."""
    for key, value in values.items():
        if getattr(a, key) != value:
            raise NotImplementedError(f"ge.{name}: {key}={getattr(a, key)!r} cannot be run here, {value!r} can")


# ---------------------------------------------------------------------------------------------------------- one by one


def _unary(name: str, operator: Any) -> None:
    (only,) = OPS[name].keywords
    lowers(name, lambda e, a: e(operator, e.tensor(getattr(a, only))))


def _binary(name: str, operator: Any, scalar: Any = None, **more: Any) -> None:
    first, second = OPS[name].keywords

    def lower(e: Any, a: Any) -> Any:
        x1, x2 = getattr(a, first), getattr(a, second)
        if scalar is not None and e.is_number(x2):
            return e(scalar, e.tensor(x1), e.number(x2), **more)
        return e(operator, e.tensor(x1), e.operand(x2), **more)

    lowers(name, lower)


def _both_tensors(name: str, operator: Any) -> None:
    lowers(name, lambda e, a: e(operator, e.tensor(a.x1), e.tensor(a.x2)))


for _name, _operator in {
    "Abs": aten.abs.default, "Neg": aten.neg.default, "Expm1": aten.expm1.default, "Log1p": aten.log1p.default,
    "Sqrt": aten.sqrt.default, "Rsqrt": aten.rsqrt.default, "Reciprocal": aten.reciprocal.default,
    "Relu": aten.relu.default, "Sigmoid": aten.sigmoid.default, "Tanh": aten.tanh.default, "Sin": aten.sin.default,
    "Cos": aten.cos.default, "Tan": aten.tan.default, "Asin": aten.asin.default, "Acos": aten.acos.default,
    "Atan": aten.atan.default, "Sinh": aten.sinh.default, "Cosh": aten.cosh.default, "Asinh": aten.asinh.default,
    "Acosh": aten.acosh.default, "Atanh": aten.atanh.default, "Erf": aten.erf.default, "Erfc": aten.erfc.default,
    "Erfinv": aten.erfinv.default, "Floor": aten.floor.default, "Ceil": aten.ceil.default,
    "Rint": aten.round.default, "Trunc": aten.trunc.default, "Sign": aten.sign.default,
    "IsFinite": aten.isfinite.default, "IsNan": aten.isnan.default, "IsInf": aten.isinf.default,
    "LogicalNot": aten.logical_not.default, "Invert": aten.bitwise_not.default, "Mish": aten.mish.default,
    "HardSwish": aten.hardswish.default, "Digamma": aten.digamma.default, "Lgamma": aten.lgamma.default,
    "ZerosLike": aten.zeros_like.default, "OnesLike": aten.ones_like.default, "TensorMove": aten.clone.default,
    "Identity": aten.alias.default, "Trace": aten.trace.default,
}.items():  # fmt: skip
    _unary(_name, _operator)


def _scaled(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    x = x if a.scale == 1 else e(aten.mul.Tensor, x, a.scale)
    return x if a.shift == 0 else e(aten.add.Tensor, x, a.shift)


def _exp(e: Any, a: Any) -> Any:
    x = _scaled(e, a)
    return e(aten.exp.default, x) if a.base == -1 else e(aten.pow.Scalar, a.base, x)


def _log(e: Any, a: Any) -> Any:
    y = e(aten.log.default, _scaled(e, a))
    return y if a.base == -1 else e(aten.div.Tensor, y, math.log(a.base))


def _hard_sigmoid(e: Any, a: Any) -> Any:
    if (a.alpha, a.beta) == tuple(each.default for each in OPS["HardSigmoid"].attrs):
        return e(aten.hardsigmoid.default, e.tensor(a.input_x))
    return e(aten.clamp.default, e(aten.add.Tensor, e(aten.mul.Tensor, e.tensor(a.input_x), a.alpha), a.beta), 0, 1)


lowers("Exp", _exp)
lowers("Log", _log)
lowers("HardSigmoid", _hard_sigmoid)
lowers(
    "Round",
    lambda e, a: (
        e(aten.round.decimals, e.tensor(a.x), decimals=a.decimals)
        if a.decimals
        else e(aten.round.default, e.tensor(a.x))
    ),
)
lowers("Selu", lambda e, a: e(aten.elu.default, e.tensor(a.x), 1.6732632423543772, 1.0507009873554805))
lowers("Square", lambda e, a: e(aten.mul.Tensor, e.tensor(a.x), e.tensor(a.x)))
lowers("Relu6", lambda e, a: e(aten.hardtanh.default, e.tensor(a.x), 0.0, 6.0))
lowers("Gelu", lambda e, a: e(aten.gelu.default, e.tensor(a.x), approximate="tanh"))
lowers("GeluV2", lambda e, a: e(aten.gelu.default, e.tensor(a.x), approximate=a.approximate))
lowers(
    "Swish",
    lambda e, a: (
        e(aten.silu.default, e.tensor(a.x))
        if a.scale == 1
        else e(aten.mul.Tensor, a.x, e(aten.sigmoid.default, e(aten.mul.Tensor, e.tensor(a.x), a.scale)))
    ),
)
lowers("LeakyRelu", lambda e, a: e(aten.leaky_relu.default, e.tensor(a.x), a.negative_slope))
lowers("Elu", lambda e, a: e(aten.elu.default, e.tensor(a.x), a.alpha, a.scale, a.input_scale))
lowers("SoftplusV2", lambda e, a: e(aten.softplus.default, e.tensor(a.x), a.beta, a.threshold))
lowers("Cast", lambda e, a: e(torch.ops.prims.convert_element_type.default, e.tensor(a.x), e.dtype(a.dst_type)))

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
    "NextAfter": aten.nextafter.default,
}.items():  # fmt: skip
    _both_tensors(_name, _operator)
_binary("FloorDiv", aten.div.Tensor_mode, rounding_mode="floor")
_binary("TruncateDiv", aten.div.Tensor_mode, rounding_mode="trunc")
lowers(
    "Div",
    lambda e, a: (
        e(aten.div.Tensor, e.tensor(a.x1), e.operand(a.x2))
        if e.is_floating(a.x1)
        else e(aten.div.Tensor_mode, e.tensor(a.x1), e.operand(a.x2), rounding_mode="trunc")
    ),
)
lowers(
    "SquaredDifference", lambda e, a: e(aten.pow.Tensor_Scalar, e(aten.sub.Tensor, e.tensor(a.x1), e.operand(a.x2)), 2)
)
lowers(
    "AxpyV2",
    lambda e, a: (
        e(aten.add.Tensor, e.tensor(a.x1), e.operand(a.x2), alpha=e.number(a.alpha))
        if e.is_number(a.alpha)
        else e(aten.add.Tensor, e.tensor(a.x1), e(aten.mul.Tensor, e.tensor(a.x2), e.tensor(a.alpha)))
    ),
)
lowers("Axpy", lambda e, a: e(aten.add.Tensor, e.tensor(a.x1), e.operand(a.x2), alpha=a.alpha))
lowers("Adds", lambda e, a: e(aten.add.Tensor, e.tensor(a.x), a.value))
lowers("Muls", lambda e, a: e(aten.mul.Tensor, e.tensor(a.x), a.value))


def _add_n(e: Any, a: Any) -> Any:
    total = e.tensor(a.x[0])
    for each in a.x[1:]:
        total = e(aten.add.Tensor, total, e.tensor(each))
    return total


lowers("AddN", _add_n)
lowers(
    "Addcmul",
    lambda e, a: e(
        aten.addcmul.default, e.tensor(a.input_data), e.tensor(a.x1), e.tensor(a.x2), value=e.number(a.value)
    ),
)
lowers(
    "Addcdiv",
    lambda e, a: e(
        aten.addcdiv.default, e.tensor(a.input_data), e.tensor(a.x1), e.tensor(a.x2), value=e.number(a.value)
    ),
)
lowers("Lerp", lambda e, a: e(aten.lerp.Tensor, e.tensor(a.start), e.tensor(a.end), e.tensor(a.weight)))
lowers(
    "ClipByValue",
    lambda e, a: (
        e(aten.clamp.default, e.tensor(a.x), e.number(a.clip_value_min), e.number(a.clip_value_max))
        if e.is_number(a.clip_value_min) and e.is_number(a.clip_value_max)
        else e(aten.clamp.Tensor, e.tensor(a.x), e.tensor(a.clip_value_min), e.tensor(a.clip_value_max))
    ),
)
for _name in ("Select", "SelectV2"):
    lowers(_name, lambda e, a: e(aten.where.self, *(e.tensor(each) for each in vars(a).values())))
lowers(
    "MaskedFill",
    lambda e, a: (
        e(aten.masked_fill.Scalar, e.tensor(a.x), e.tensor(a.mask), e.number(a.value))
        if e.is_number(a.value)
        else e(aten.masked_fill.Tensor, e.tensor(a.x), e.tensor(a.mask), e.tensor(a.value))
    ),
)


def _gradient_of_result(name: str, operator: Any) -> None:
    def lower(e: Any, a: Any) -> Any:
        y = e.tensor(a.y)
        if e.dtype_of(y).is_complex and not a.complex_conj:  # torch's takes the conjugate
            y = e(aten.conj_physical.default, y)
        return e(operator, e.tensor(a.dy), y)

    lowers(name, lower)


_gradient_of_result("SigmoidGrad", aten.sigmoid_backward.default)
_gradient_of_result("TanhGrad", aten.tanh_backward.default)
lowers("ReluGrad", lambda e, a: e(aten.threshold_backward.default, e.tensor(a.gradients), e.tensor(a.features), 0))

# ------------------------------------------------------------------------------------------------------------- matmul


def _swapped(e: Any, x: Any, yes: bool) -> Any:
    return e(aten.transpose.int, e.tensor(x), -2, -1) if yes else e.tensor(x)


def _matmul(name: str, operator: Any) -> None:
    first, second = (each.keyword for each in OPS[name].attrs[:2])

    def lower(e: Any, a: Any) -> Any:
        if name.endswith("V2"):
            _only(name, a, offset_w=None, offset_x=0)
        y = e(operator, _swapped(e, a.x1, getattr(a, first)), _swapped(e, a.x2, getattr(a, second)))
        bias = getattr(a, "bias", None)
        return y if bias is None else e(aten.add.Tensor, y, e.tensor(bias))

    lowers(name, lower)


for _name in ("MatMul", "MatMulV2"):
    _matmul(_name, aten.mm.default)
for _name in ("BatchMatMul", "BatchMatMulV2"):
    _matmul(_name, aten.matmul.default)

# -------------------------------------------------------------------------------------------------------------- shapes

lowers("Reshape", lambda e, a: e(aten.reshape.default, e.tensor(a.x), e.ints(a.shape)))
lowers("Transpose", lambda e, a: e.whole(e(aten.permute.default, e.tensor(a.x), e.ints(a.perm))))
lowers("TransposeD", lambda e, a: e.whole(e(aten.permute.default, e.tensor(a.x), a.perm)))
lowers("ExpandDims", lambda e, a: e(aten.unsqueeze.default, e.tensor(a.x), e.number(a.axis)))


def _unsqueeze(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    rank = len(e.sizes(x)) + len(a.axes)
    for axis in sorted(each % rank for each in a.axes):
        x = e(aten.unsqueeze.default, x, axis)
    return x


lowers("Unsqueeze", _unsqueeze)
lowers(
    "Squeeze",
    lambda e, a: e(aten.squeeze.dims, e.tensor(a.x), a.axis) if a.axis else e(aten.squeeze.default, e.tensor(a.x)),
)
lowers("Flatten", lambda e, a: e(aten.flatten.using_ints, e.tensor(a.x), a.axis, -1))
for _name in ("BroadcastTo", "Expand"):
    lowers(_name, lambda e, a: e(aten.expand.default, e.tensor(a.x), e.ints(a.shape)))
lowers("Tile", lambda e, a: e(aten.repeat.default, e.tensor(a.x), e.ints(a.multiples)))


def _slice(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    for dim, (start, size) in enumerate(zip(e.ints(a.offsets), e.ints(a.size), strict=True)):
        end = 2**63 - 1 if isinstance(size, int) and size == -1 else e.plus(start, size)
        x = e(aten.slice.Tensor, x, dim, start, end)
    return e.whole(x)


lowers("Slice", _slice)
lowers("ConcatD", lambda e, a: e(aten.cat.default, [e.tensor(each) for each in a.x], a.concat_dim))
lowers("ConcatV2", lambda e, a: e(aten.cat.default, [e.tensor(each) for each in a.x], e.number(a.concat_dim)))
lowers(
    "Pack",
    lambda e, a: (
        e.listed(a.x)
        if a.axis == 0 and e.all_numbers(a.x)
        else e(aten.stack.default, [e.tensor(each) for each in a.x], a.axis)
    ),
)
lowers("Unpack", lambda e, a: [e(aten.select.int, e.tensor(a.x), a.axis, index) for index in range(a.num)])
lowers("SplitD", lambda e, a: _split(e, a.x, a.split_dim, a.num_split))
lowers("Split", lambda e, a: _split(e, a.x, e.number(a.split_dim), a.num_split))


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


lowers("SplitV", lambda e, a: _split_by(e, a.x, e.ints(a.size_splits), e.number(a.split_dim)))
lowers("Shape", lambda e, a: e.listed(e.sizes(e.tensor(a.x))))


def _gather(e: Any, a: Any, name: str, axis: int) -> Any:
    _only(name, a, batch_dims=0)
    x, indices = a.x, a.indices
    if e.is_list(x) and e.is_number(indices):
        return e.listed_item(x, e.number(indices))
    if e.is_number(indices):
        return e(aten.select.int, e.tensor(x), axis, e.number(indices))
    return e(aten.index.Tensor, e.tensor(x), [None] * (axis % len(e.sizes(e.tensor(x)))) + [e.tensor(indices)])


lowers("Gather", lambda e, a: _gather(e, a, "Gather", 0))
lowers("GatherV2", lambda e, a: _gather(e, a, "GatherV2", e.number(a.axis)))
lowers("GatherElements", lambda e, a: e(aten.gather.default, e.tensor(a.x), a.dim, e.tensor(a.index)))


def _gather_d(e: Any, a: Any) -> Any:
    _only("GatherD", a, dim_changed_as_duplicate_with_input=0)
    return e(aten.gather.default, e.tensor(a.x), e.number(a.dim), e.tensor(a.index))


def _scatter(e: Any, a: Any) -> Any:
    given = e.tensor(a.data), a.axis, e.tensor(a.indices), e.tensor(a.updates)
    if a.reduction == "add":
        return e(aten.scatter_add.default, *given)
    if a.reduction == "mul":
        return e(aten.scatter_reduce.two, *given, "prod")
    _only("ScatterElements", a, reduction="none")
    return e(aten.scatter.src, *given)


lowers("GatherD", _gather_d)
lowers("ScatterElements", _scatter)
lowers(
    "Fill",
    lambda e, a: (
        e(aten.expand.default, e.tensor(a.value), e.ints(a.dims))
        if not e.is_number(a.value)
        else e(aten.full.default, e.ints(a.dims), e.number(a.value), dtype=e.const_dtype(a.value))
    ),
)
lowers(
    "Range",
    lambda e, a: e(
        aten.arange.start_step, e.number(a.start), e.number(a.limit), e.number(a.delta), dtype=e.const_dtype(a.start)
    ),
)
lowers("Triu", lambda e, a: e(aten.triu.default, e.tensor(a.x), a.diagonal))
lowers("Tril", lambda e, a: e(aten.tril.default, e.tensor(a.x), a.diagonal))

# ---------------------------------------------------------------------------------------------------------- reductions


def _reduction(name: str, operator: Any, **more: Any) -> None:
    def reduce(e: Any, a: Any, axes: list[int]) -> Any:
        if not axes and getattr(a, "noop_with_empty_axes", False):
            return e.tensor(a.x)
        axes = axes or list(range(len(e.sizes(e.tensor(a.x)))))
        kept = {key: (e.dtype_of(a.x) if value is None else value) for key, value in more.items()}
        return e(operator, e.tensor(a.x), axes, a.keep_dims, **kept)

    lowers(name, lambda e, a: reduce(e, a, e.ints(a.axes)))
    lowers(name + "D", lambda e, a: reduce(e, a, a.axes))


_reduction("ReduceSum", aten.sum.dim_IntList, dtype=None)
_reduction("ReduceMean", aten.mean.dim)
_reduction("ReduceMax", aten.amax.default)
_reduction("ReduceMin", aten.amin.default)
_reduction("ReduceAny", aten.any.dims)
_reduction("ReduceAll", aten.all.dims)
lowers("ReduceProdD", lambda e, a: _product(e, a.x, a.axes, a.keep_dims))
lowers("ReduceProd", lambda e, a: _product(e, a.x, e.ints(a.axes), a.keep_dims))


def _product(e: Any, x: Any, axes: list[int], keep: bool) -> Any:
    x = e.tensor(x)
    rank = len(e.sizes(x))
    for axis in sorted((each % rank for each in axes or range(rank)), reverse=True):
        x = e(aten.prod.dim_int, x, axis, keep)
    return x


lowers("ArgMaxV2", lambda e, a: e.cast(e(aten.argmax.default, e.tensor(a.x), e.number(a.dimension)), a.dtype))
lowers("ArgMin", lambda e, a: e.cast(e(aten.argmin.default, e.tensor(a.x), e.number(a.dimension)), a.dtype))
lowers("SoftmaxV2", lambda e, a: e(aten._softmax.default, e.tensor(a.x), a.axes[0], a.half_to_float))
lowers("LogSoftmaxV2", lambda e, a: e(aten._log_softmax.default, e.tensor(a.logits), a.axes[0], False))


def _running(name: str, operator: Any) -> None:
    def lower(e: Any, a: Any) -> Any:
        _only(name, a, exclusive=False)
        x, axis, dtype = e.tensor(a.x), e.number(a.axis), e.dtype_of(a.x)
        if not a.reverse:
            return e(operator, x, axis, dtype=dtype)
        return e(aten.flip.default, e(operator, e(aten.flip.default, x, [axis]), axis, dtype=dtype), [axis])

    lowers(name, lower)


_running("Cumsum", aten.cumsum.default)
_running("Cumprod", aten.cumprod.default)
lowers("TopKV2", lambda e, a: e.parts(e(aten.topk.default, e.tensor(a.x), e.number(a.k), a.dim, a.largest, a.sorted)))
lowers(
    "Sort", lambda e, a: e.parts(e(aten.sort.stable, e.tensor(a.x), stable=True, dim=a.axis, descending=a.descending))
)


def _layer_norm(e: Any, a: Any) -> Any:
    x = e.tensor(a.x)
    shape = e.sizes(x)[a.begin_norm_axis :]
    return e.parts(e(aten.native_layer_norm.default, x, shape, e.tensor(a.gamma), e.tensor(a.beta), a.epsilon))


lowers("LayerNormV3", _layer_norm)
