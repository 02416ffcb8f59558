"""How nodes of a traced graph are named and printed in dumps, and which process's dump it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from . import _ge_attr
from ._ge_graph import Tensor

# GE's operator for an ATen one of another name; the others are called as ATen calls them, in GE's spelling
_GE_TYPES = {
    "aten.div.Tensor": "RealDiv", "aten.mm.default": "MatMulV2", "aten.bmm.default": "BatchMatMulV2",
    "aten.addmm.default": "Addmm", "aten.gt": "Greater", "aten.ge": "GreaterEqual", "aten.lt": "Less",
    "aten.le": "LessEqual", "aten.eq": "Equal", "aten.ne": "NotEqual", "aten.sum": "ReduceSum",
    "aten.mean": "ReduceMean", "aten.amax": "ReduceMax", "aten.amin": "ReduceMin", "aten.permute": "Transpose",
    "aten.t": "Transpose", "aten.transpose": "Transpose", "aten.view": "Reshape", "aten.reshape": "Reshape",
    "aten._unsafe_view": "Reshape", "aten.expand": "BroadcastTo", "aten.cat": "ConcatD", "aten.where": "SelectV2",
    "aten._softmax": "SoftmaxV2", "aten._log_softmax": "LogSoftmaxV2", "aten.native_layer_norm": "LayerNormV3",
    "aten.clone": "TensorMove", "aten.convolution": "Conv2D", "aten.silu": "Swish", "aten._to_copy": "Cast",
    "prims.convert_element_type": "Cast", "aten.detach": "Identity", "aten.alias": "Identity",
}  # fmt: skip


# ATen operators that mean exactly a GE operator of the table: its inputs in order, nothing else given
_SAME = {
    "aten.add.Tensor": "Add", "aten.sub.Tensor": "Sub", "aten.mul.Tensor": "Mul", "aten.div.Tensor": "RealDiv",
    "aten.abs.default": "Abs", "aten.neg.default": "Neg", "aten.exp.default": "Exp", "aten.log.default": "Log",
    "aten.sqrt.default": "Sqrt", "aten.rsqrt.default": "Rsqrt", "aten.relu.default": "Relu",
    "aten.sigmoid.default": "Sigmoid", "aten.tanh.default": "Tanh", "aten.sin.default": "Sin",
    "aten.cos.default": "Cos", "aten.erf.default": "Erf", "aten.mm.default": "MatMulV2",
    "aten.bmm.default": "BatchMatMulV2", "aten.maximum.default": "Maximum", "aten.minimum.default": "Minimum",
    "aten.where.self": "SelectV2", "aten.gt.Tensor": "Greater", "aten.gt.Scalar": "Greater",
    "aten.ge.Scalar": "GreaterEqual", "aten.lt.Scalar": "Less", "aten.le.Scalar": "LessEqual",
    "aten.eq.Scalar": "Equal", "aten.ne.Scalar": "NotEqual", "aten.eq.Tensor": "Equal", "aten.ne.Tensor": "NotEqual",
    "aten.lt.Tensor": "Less", "aten.le.Tensor": "LessEqual", "aten.ge.Tensor": "GreaterEqual",
}  # fmt: skip


def same_op(node: Node) -> str | None:
    """The operator of the table that a node means, argument by argument."""
    found = _SAME.get(str(node.target))
    plain = not node.kwargs and all(isinstance(each, (Node, int, float)) for each in node.args)
    return found if found and plain else None


def target_name(target: Any) -> str:
    """ "aten.add.Tensor"; a builtin as Python shows it."""
    return str(target)


def ge_type(target: Any) -> str:
    """The type of the operator in the dump."""
    name = target_name(target)
    packet = name.rsplit(".", 1)[0] if name.count(".") >= 2 else name
    for key in (name, packet):
        if key in _GE_TYPES:
            return _GE_TYPES[key]
    base = packet.split(".")[-1] if not name.startswith("<") else name.rstrip(">").split()[-1]
    return "".join(part[:1].upper() + part[1:] for part in base.split("_") if part) or "Op"


def _shown_value(node: Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(each) for each in value.shape)
        return f"{node.name}: {value.dtype}[{sizes}]{value.device}"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return f'{node.name}: "Sym({value})"'
    if isinstance(value, (list, tuple)):
        return f"{node.name}: {type(value).__name__}"
    return str(node.name)


def _shown_argument(value: Any) -> str:
    if isinstance(value, Node):
        return _shown_value(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown_argument(each) for each in value) + "]"
    return repr(value)


def fx_line(node: Node) -> str:
    """add: torch.float32[2, 2]cpu = torch.ops.aten.add.Tensor(x: ..., 1)"""
    target = target_name(node.target)
    shown = f"torch.ops.{target}" if isinstance(node.target, torch._ops.OpOverload) else target
    parts = [_shown_argument(each) for each in node.args]
    parts += [f"{key} = {_shown_argument(each)}" for key, each in node.kwargs.items()]
    return f"{_shown_value(node)} = {shown}({', '.join(parts)})"


def _attribute(value: Any) -> _ge_attr.Attr | None:
    if value is None:
        return None
    try:
        return _ge_attr.of(value)
    except (TypeError, AssertionError):
        return _ge_attr.Str(str(value))


def call_text(node: Node, number: Callable[[Node], int]) -> str:
    """The arguments as JSON, to call the operator again; {"$": n} is the input of that number."""

    def plain(value: Any) -> Any:
        if isinstance(value, Node):
            return {"$": number(value)}
        if isinstance(value, (list, tuple)):
            return [plain(each) for each in value]
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return {"float": str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        for kind in (torch.dtype, torch.layout, torch.memory_format, torch.device):
            if isinstance(value, kind):
                return {"torch": str(value).removeprefix("torch."), "kind": kind.__name__}
        raise TypeError(f"node {node.name}: an argument of type {type(value).__name__} cannot be saved")

    return json.dumps(
        {"args": plain(list(node.args)), "kwargs": {key: plain(each) for key, each in node.kwargs.items()}}
    )


def plain_op(
    node: Node, tensor_of: Callable[[Node], Tensor | None]
) -> tuple[str, dict[str, Any], dict[str, _ge_attr.Attr]]:
    """Type, inputs and attributes of the operator that stands for a node."""
    schema = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments] if schema is not None else []
    given = {names[i] if i < len(names) else f"x{i}": each for i, each in enumerate(node.args)} | dict(node.kwargs)
    inputs: dict[str, Any] = {}
    attrs: dict[str, _ge_attr.Attr] = {"_fx_target": _ge_attr.Str(target_name(node.target))}
    for name, value in given.items():
        if isinstance(value, Node):
            inputs[name] = tensor_of(value)
        elif isinstance(value, (list, tuple)) and any(isinstance(each, Node) for each in value):
            inputs[name] = [tensor_of(each) if isinstance(each, Node) else None for each in value]
        else:
            held = _attribute(value)
            if held is not None:
                attrs[name] = held
    return ge_type(node.target), inputs, attrs


def world_and_rank() -> tuple[int, int]:
    """The size of the process group and the place in it; 1 and 0 without one."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return int(distributed.get_world_size()), int(distributed.get_rank())
    return 1, 0
