"""Graphs of GE as files: txt (protobuf's text), pbtxt (TensorBoard), py (runs and builds the graph again), dot."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _ge_attr, _ge_types, _proto
from ._ge_graph import GeGraph, Op, Tensor, fixed_size
from ._ge_table import OPS
from ._names import world_and_rank
from ._summary import stamp

# ------------------------------------------------------------------------------------------------------------ protobuf

_LISTS = {"list_s": "s", "list_i": "i", "list_f": "f", "list_b": "b", "list_dt": "dt"}


def attr_message(attr: _ge_attr.Attr) -> _proto.Message:
    """AttrDef."""
    if attr.kind in _LISTS:
        return {"list": {_LISTS[attr.kind]: attr.value}}
    if attr.kind == "list_list_i":
        return {"list_list_int": {"list_list_i": [{"list_i": each} for each in attr.value]}}
    if attr.kind == "list_list_f":
        return {"list_list_float": {"list_list_f": [{"list_f": each} for each in attr.value]}}
    return {attr.kind: attr.value}


def sizes_of(tensor: Tensor) -> list[int] | None:
    """The sizes, -1 where they differ from call to call; None: not known."""
    if tensor.meta is None:
        held = tensor.node.attrs.get("shape") if tensor.node.type == "Data" else None
        return None if held is None else list(held.value)
    return [fixed_size(each) for each in tensor.meta.shape]


def descriptor(name: str, tensor: Tensor | None, attrs: dict[str, Any] | None = None) -> _proto.Message:
    """TensorDescriptor."""
    if tensor is None:
        return {"name": name, "attr": {"_is_unfed_optional": {"b": True}}}
    found: _proto.Message = {"name": name, "dtype": _ge_types.dtype_name(tensor.dtype)}
    sizes = sizes_of(tensor)
    if sizes is not None:
        found["shape"] = {"dim": sizes}
    found["layout"] = "ND"
    if attrs:
        found["attr"] = attrs
    host = tensor.node.type == "Data" and tensor.node.attrs["placement"].value == "CPU"
    found["device_type"] = "CPU" if host else "NPU"
    return found


def _output_attrs(op: Op, index: int) -> dict[str, Any]:
    tensor = op.outputs[index]
    found: dict[str, Any] = {}
    if tensor.meta is not None:
        meta = tensor.meta
        shape = ", ".join(str(each) for each in meta.shape)
        found["_meta"] = {"s": f"Tensor(dtype={meta.dtype}, shape=torch.Size([{shape}]))"}
    if tensor.fx_name:
        found["_fx_tensor_name"] = {"s": tensor.fx_name}
    return found


def _op_attrs(op: Op) -> dict[str, _proto.Message]:
    found = {name: attr_message(attr) for name, attr in op.attrs.items()}
    if op.type == "Const" and isinstance(op.value, torch.Tensor):
        held = op.value.detach().cpu().contiguous()
        data = held.reshape(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b""
        found["value"] = {"t": {"desc": descriptor("value", op.outputs[0]), "data": data}}
    elif op.type == "Const":
        found["_readable_value"] = {"s": repr(op.value)}
        flat = op.value if isinstance(op.value, list) else [op.value]
        kind = "f" if any(isinstance(each, float) for each in flat) else "i"
        found["value"] = {"list": {kind: [float(each) if kind == "f" else int(each) for each in flat]}}
        found["dtype"] = {"dt": op.outputs[0].dtype}
    return found


def op_message(op: Op) -> _proto.Message:
    """OpDef."""
    flat = list(op.flat_inputs())
    inputs = ["" if each is None else each.tensor for _, each in flat] + [f"{each.name}:-1" for each in op.controls]
    found: _proto.Message = {"name": op.name, "type": op.type}
    if inputs:
        found["input"] = inputs
    attrs = _op_attrs(op)
    if attrs:
        found["attr"] = attrs
    descs = [descriptor(name, each) for name, each in flat]
    if op.type == "Data":
        descs = [descriptor("x", op.outputs[0])]
    if descs:
        found["input_desc"] = descs
    outputs = [
        descriptor(name, tensor, _output_attrs(op, index))
        for index, (name, tensor) in enumerate(zip(op.output_names, op.outputs, strict=True))
    ]
    if outputs:
        found["output_desc"] = outputs
    return found


def graph_message(graph: GeGraph) -> _proto.Message:
    """GraphDef."""
    found: _proto.Message = {"name": graph.name, "op": [op_message(op) for op in graph.ops]}
    if graph.attrs:
        found["attr"] = {name: attr_message(attr) for name, attr in graph.attrs.items()}
    return found


def as_txt(graph: GeGraph) -> str:
    """Protobuf's text format of GraphDef."""
    return _proto.to_text("GraphDef", graph_message(graph))


# --------------------------------------------------------------------------------------------------------- TensorBoard


def as_pbtxt(graph: GeGraph) -> str:
    """TensorFlow's GraphDef, which TensorBoard draws."""
    out = []
    for op in graph.ops:
        message = op_message(op)
        lines = [f"    name: {_proto.quoted(op.name)}", f"    op: {_proto.quoted(op.type)}"]
        for each in message.get("input", ()):
            if each:
                name = each[:-3] if each.endswith(":-1") else each
                lines.append(f"    input: {_proto.quoted('^' + name if each != name else name)}")
        texts = [(key, _proto.to_text("AttrDef", value)) for key, value in message.get("attr", {}).items()]
        for mark, field in (("[i]", "input_desc"), ("[o]", "output_desc")):
            texts += [
                (mark + each["name"], _proto.to_text("TensorDescriptor", each)) for each in message.get(field, ())
            ]
        for key, text in texts:
            value = f"        value {{\n            s: {_proto.quoted(text)}\n        }}\n"
            lines.append(f"    attr {{\n        key: {_proto.quoted(key)}\n{value}    }}")
        out.append("node {\n" + "\n".join(lines) + "\n}\n")
    return "".join(out)


# --------------------------------------------------------------------------------------------------------------- Python

_PY_HEAD = """# -*- coding: utf-8 -*-
from torch import tensor
from torchair._ge_concrete_graph import ge_apis as ge
from torchair.ge import attr
from torchair.ge._ge_graph import get_default_ge_graph

"""


class _Printer:
    def __init__(self, graph: GeGraph) -> None:
        self.graph = graph
        self.names = GeGraph()  # as building it again would name things
        self.lines: list[str] = []
        self.source = self.fx = ""
        self.uses: dict[int, int] = {}
        for op in graph.ops:
            for _, each in op.flat_inputs():
                if each is not None:
                    self.uses[id(each.node)] = self.uses.get(id(each.node), 0) + 1

    def variable(self, tensor: Tensor) -> str:
        name = re.sub(r"\W", "_", f"{tensor.node.name}_{tensor.index}")
        return name if not name[0].isdigit() else f"v{name}"

    def _name(self, op: Op, wanted: str) -> str:
        """node_name="...", where it would get another one by itself."""
        return "" if self.names.unique_name(wanted) == op.name else f', node_name="{op.name}"'

    def const(self, op: Op) -> str:
        return f"ge.Const({op.value!r}, dtype={op.outputs[0].dtype}{self._name(op, 'Const')})"

    def value(self, given: Any) -> str:
        if given is None:
            return "None"
        if isinstance(given, list):
            return "[" + ", ".join(self.value(each) for each in given) + "]"
        if given.node.type == "Const" and self.uses.get(id(given.node), 0) == 1:
            return self.const(given.node)
        return self.variable(given)

    def call(self, op: Op) -> str:
        row = OPS.get(op.type)
        depends = (
            f", dependencies=[{', '.join(self.variable(each.outputs[0]) for each in op.controls)}]"
            if op.controls
            else ""
        )
        if op.type == "Data":
            shape = op.attrs["shape"].value if "shape" in op.attrs else None
            return (
                f"ge.Data(index={op.attrs['index'].value}, dtype={op.attrs['dtype'].value}, shape={shape}, "
                f'placement="{op.attrs["placement"].value}", node_name="{op.name}")'
            )
        known = row is not None and [each.rstrip("?*") for each in row.inputs] == list(op.inputs)
        known = known and row is not None and set(op.attrs) <= {each.name for each in row.attrs}
        if not known or row is None:
            inputs = ", ".join(f'"{name}": {self.value(each)}' for name, each in op.inputs.items())
            attrs = ", ".join(f'"{name}": {each!r}' for name, each in op.attrs.items())
            self.names.unique_name(op.name)
            rest = f'outputs={op.output_names!r}, node_name="{op.name}"'
            return f'ge.custom_op("{op.type}", inputs={{{inputs}}}, attrs={{{attrs}}}, {rest})'
        parts = [self.value(each) for each in op.inputs.values()]
        keywords = {each.name: each.keyword for each in row.attrs}
        parts += [f"{keywords[name]}={_literal(each)}" for name, each in op.attrs.items()]
        for name in row.outputs:
            if name.endswith("*") and not {"num", "num_split"} & set(op.attrs):
                parts.append(f"size_of_{name[:-1]}={len(op.outputs)}")
        self.names.unique_name(op.name)
        return f'ge.{op.type}({", ".join(parts)}{depends}, node_name="{op.name}")'

    def print(self, op: Op) -> None:
        if op.type == "Const" and self.uses.get(id(op), 0) == 1:
            return
        if op.source and op.source != self.source:
            self.lines += ["", f"# {op.source}"]
        if op.fx and op.fx != self.fx:
            self.lines.append(f"## FX Code: {op.fx}")
        self.source, self.fx = op.source or self.source, op.fx or self.fx
        if op.type == "NetOutput":
            results = op.inputs["x"]
            assert isinstance(results, list)
            shown = ", ".join("None" if each is None else self.variable(each) for each in results)
            self.lines += ["", f"_ = ge.NetOutput([{shown}], dependencies=[])"]
            return
        called = self.const(op) if op.type == "Const" else self.call(op)
        several = len(op.outputs) != 1 or (
            op.type in OPS and OPS[op.type].outputs[0].endswith("*") and "ge.custom_op" not in called
        )
        names = ", ".join(self.variable(each) for each in op.outputs)
        self.lines.append(f"{f'[{names}]' if several else names} = {called}")

    def text(self) -> str:
        for op in self.graph.ops:
            self.print(op)
        return _PY_HEAD + "\n".join(self.lines) + "\n"


def _literal(attr: _ge_attr.Attr) -> str:
    return f'"{attr.value}"' if attr.kind == "s" and isinstance(attr.value, str) else repr(attr.value)


def as_py(graph: GeGraph) -> str:
    """A program that builds the graph."""
    return _Printer(graph).text()


# ------------------------------------------------------------------------------------------------------------------ dot


def as_dot(graph: GeGraph) -> str:
    """Graphviz."""
    out = [f"digraph {_proto.quoted(graph.name)} {{", "  node [shape=box, fontname=monospace];"]
    for op in graph.ops:
        sizes = [f"{_ge_types.dtype_name(each.dtype)}{sizes_of(each) or ''}" for each in op.outputs]
        text = "\n".join([op.name if op.name == op.type else f"{op.name}: {op.type}", *sizes])
        out.append(f"  {_proto.quoted(op.name)} [label={_proto.quoted(text)}];")
        for name, each in op.flat_inputs():
            if each is not None:
                out.append(
                    f"  {_proto.quoted(each.node.name)} -> {_proto.quoted(op.name)} [label={_proto.quoted(name)}];"
                )
        for control in op.controls:
            out.append(f"  {_proto.quoted(control.name)} -> {_proto.quoted(op.name)} [style=dashed];")
    return "\n".join(out) + "\n}\n"


WRITERS: dict[str, Callable[[GeGraph], str]] = {"txt": as_txt, "pbtxt": as_pbtxt, "py": as_py, "dot": as_dot}


def put(path: str, data: str | bytes) -> None:
    """A file under its name only when it is whole."""
    handle, temporary = tempfile.mkstemp(prefix=".dump_", dir=os.path.dirname(path) or ".")
    with open(handle, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    os.chmod(temporary, 0o640)
    os.rename(temporary, path)


def directory(path: str | None) -> str:
    """Where dumps go, made where it is missing."""
    where = path or os.getcwd()
    try:
        os.makedirs(where, mode=0o750, exist_ok=True)
    except OSError as error:
        raise type(error)(f"config.debug.graph_dump.path {where}: {error.strerror}; name a directory") from None
    return where


def write(graph: GeGraph, types: Sequence[str], path: str | None, number: int, which: str) -> None:
    """Write the graph; of the optimized one also a link under the name that torchair's documents give it."""
    where, now = directory(path), stamp()
    _, rank = world_and_rank()
    for type in types:
        name = f"dynamo_{which}_graph_{number}_rank_{rank}_pid_{os.getpid()}_ts_{now}.{type}"
        put(os.path.join(where, name), WRITERS[type](graph))
        if which == "optimized":
            link = os.path.join(where, f"dynamo_{now}.{type}")
            os.symlink(name, link)
