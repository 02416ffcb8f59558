"""A traced graph as a graph of GE: operators with a converter in Python go through it, which changes the traced graph
too; every other one becomes an operator named after it, for people to read, and stays as it is.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from . import _ge, _ge_attr, _ge_types, _names
from ._converter import Converter, find
from ._ge_graph import GeGraph, Op, Tensor, TensorSpec, fixed_size
from ._ge_ops import aten
from ._ge_table import OPS
from ._lower import Emitter, Number, lower


class ConversionError(RuntimeError):
    """A converter that cannot be used; says which node, which line, and why."""


def has_converters(module: torch.fx.GraphModule) -> bool:
    """Whether some node has a converter in Python."""
    return any(node.op == "call_function" and find(node.target) is not None for node in module.graph.nodes)


def source_line(node: Node) -> str:
    """The innermost line of the program that a node comes from: File "a.py", line 3, in f    code."""
    lines = [each for each in (node.meta.get("stack_trace") or "").splitlines() if each.strip()]
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].lstrip().startswith("File "):
            code = lines[index + 1].strip() if index + 1 < len(lines) else ""
            return f"{lines[index].strip()}    {code}".rstrip()
    return ""


class _Conversion:
    """One graph on its way."""

    def __init__(
        self, module: torch.fx.GraphModule, name: str, converters: bool, constants: dict[str, torch.Tensor] | None
    ) -> None:
        self.module = module
        self.converters = converters
        self.constants = constants  # inputs that are kept in the file; None: it is not made to be loaded
        self.ge = GeGraph(name)
        self.values: dict[Node, Any] = {}  # ge.Tensor, or a list of them
        self.known: dict[tuple[int, int], Any] = {}  # of each operator's output, what it is in the traced graph
        self.emit: Emitter | None = None
        self.fake_mode = _fake_mode(module)
        self.ge.on_add = self._added

    def run(self) -> GeGraph:
        with self.ge:
            inputs = [node for node in self.module.graph.nodes if node.op == "placeholder"]
            kept = {node for node in inputs if self.constants is not None and node.name in self.constants}
            for index, node in enumerate(node for node in inputs if node not in kept):
                self._input(node, index)
            for node in inputs:
                if node in kept:
                    self._weight(node)
            for node in list(self.module.graph.nodes):
                if node.op == "call_function":
                    self._start(node)
                    converter = find(node.target) if self.converters else None
                    if converter is not None:
                        self._convert(node, converter)
                    else:
                        self._keep(node)
                elif node.op == "get_attr":
                    self._start(node)
                    self._constant(node)
                elif node.op == "output":
                    self.ge.source = self.ge.fx = self.ge.fx_name = ""
                    self._output(node)
        self.module.graph.eliminate_dead_code(is_impure_node=_is_impure)
        self.module.graph.lint()
        self.module.recompile()
        return self.ge

    def _start(self, node: Node) -> None:
        self.ge.source = source_line(node)
        self.ge.fx = _names.fx_line(node)
        self.ge.fx_name = node.name

    def _added(self, op: Op) -> None:
        """An operator that a converter made: its outputs' types are known when this returns."""
        if self.emit is not None:
            lower(op, self.emit, self.known)

    # ------------------------------------------------------------------------------------------------- plain nodes

    def _bind(self, node: Node, tensor: Tensor) -> None:
        tensor.set_meta(node.meta.get("val"))
        if isinstance(node.meta.get("val"), torch.SymInt):
            tensor._dtype, tensor._rank = _ge_types.DataType.DT_INT64, 0
            self.known[id(tensor.node), tensor.index] = Number(node, tensor._dtype)
        else:
            self.known[id(tensor.node), tensor.index] = node

    def _input(self, node: Node, index: int) -> None:
        value = node.meta.get("val")
        scalar = not isinstance(value, torch.Tensor)
        shape = [] if scalar else [fixed_size(each) for each in value.shape]
        dtype = _scalar_dtype(value) if scalar else value.dtype
        placement = "CPU" if scalar else "NPU"
        tensor = _ge.Data(index=index, dtype=dtype, shape=shape, placement=placement, node_name=node.name)
        self._bind(node, tensor)
        self.values[node] = tensor

    def _weight(self, node: Node) -> None:
        assert self.constants is not None
        op = self.ge.add("Const", {}, {}, ("y",), node.name)
        op.value = self.constants[node.name]
        self._bind(node, op.outputs[0])
        self.values[node] = op.outputs[0]

    def _constant(self, node: Node) -> None:
        value = node.meta.get("val")
        op = self.ge.add("Constant", {}, {"_fx_attr": str(node.target)}, ("y",), node.name)
        if value is not None:
            self._bind(node, op.outputs[0])
        self.values[node] = op.outputs[0]

    def _output(self, node: Node) -> None:
        flat: list[Any] = []
        for each in node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]:
            flat.append(self._tensor(each) if isinstance(each, Node) else None)
        _ge.NetOutput([each for each in flat if each is not None])

    def _tensor(self, node: Node) -> Tensor | None:
        value = self.values.get(node)
        return value if isinstance(value, Tensor) else None

    def _keep(self, node: Node) -> None:
        if node.target is operator.getitem:
            parent = self.values.get(node.args[0])
            if isinstance(parent, list) and isinstance(node.args[1], int) and node.args[1] < len(parent):
                self.values[node] = parent[node.args[1]]
                if isinstance(self.values[node], Tensor):
                    self._bind(node, self.values[node])
                return
        meta = node.meta.get("val")
        same = _names.same_op(node)
        if same is not None and isinstance(meta, torch.Tensor) and self._all_known(node):
            number = _ge_types.from_torch(meta.dtype)
            given = [
                self._tensor(each) if isinstance(each, Node) else _ge.Const(each, dtype=number) for each in node.args
            ]
            made = _ge.custom_op(same, inputs=dict(zip(_input_names(same), given)), outputs=OPS[same].outputs)
            self._bind(node, made)
            self._keep_name(node, [made])
            self.values[node] = made
            return
        op_type, inputs, attrs = _names.plain_op(node, self._tensor)
        if self.constants is not None:
            unique = list(dict.fromkeys(node.all_input_nodes))
            inputs = {f"x{i}": self.values[each] for i, each in enumerate(unique)}
            attrs = {"_fx_target": attrs["_fx_target"], "_fx_call": _ge_attr.Str(_names.call_text(node, unique.index))}
        parts = list(meta) if isinstance(meta, (list, tuple)) else [meta]
        op = self.ge.add(op_type, inputs, attrs, ["y"] if len(parts) == 1 else [("y", len(parts))], None)
        for tensor, each in zip(op.outputs, parts, strict=True):
            tensor.set_meta(each)
        self._keep_name(node, op.outputs)
        if isinstance(meta, (list, tuple)):
            self.values[node] = op.outputs
        else:
            self._bind(node, op.outputs[0])
            self.values[node] = op.outputs[0]

    def _all_known(self, node: Node) -> bool:
        return all(self._tensor(each) is not None for each in node.all_input_nodes)

    def _keep_name(self, node: Node, tensors: list[Tensor]) -> None:
        for index, tensor in enumerate(tensors):
            tensor.fx_name = f"{node.name}-{node.target}.OUTPUT.{index}"

    # ------------------------------------------------------------------------------------------------- converted ones

    def _fail(self, node: Node, converter: Converter, why: str, cause: BaseException | None = None) -> ConversionError:
        place = f", {self.ge.source}" if self.ge.source else ""
        text = f"the converter of {node.target} ({converter.where}) {why}; node {node.name}{place}"
        error = ConversionError(text)
        error.__cause__ = cause
        return error

    def _argument(self, value: Any) -> Any:
        """As a converter takes it: tensors of GE, plain numbers, a list with sizes of the call as one tensor."""
        if isinstance(value, Node):
            found = self.values.get(value)
            if found is None:
                raise RuntimeError(f"the value of {value.name} is not a tensor")
            return found
        if isinstance(value, (list, tuple)):
            made = [self._argument(each) for each in value]
            scalars = [each for each in value if isinstance(each, Node) and not _is_tensor(each)]
            return (
                _ge.custom_op("Pack", inputs={"x": _packed(made)}, attrs={"N": _ge_attr.Int(len(made))}, outputs=["y"])
                if scalars
                else made
            )
        return value

    def _convert(self, node: Node, converter: Converter) -> None:
        assert converter.function is not None
        if self.fake_mode is None:
            raise self._fail(node, converter, "needs the traced sizes, and the graph has none")
        self.emit = Emitter(self.module.graph, node, self.fake_mode)
        meta = node.meta.get("val")
        try:
            args = [self._argument(each) for each in node.args]
            kwargs = {key: self._argument(each) for key, each in node.kwargs.items()}
            if converter.wants_meta:
                kwargs["meta_outputs"] = _spec(meta)
            result = converter.function(*args, **kwargs)
            self._check_and_replace(node, converter, meta, result)
        except ConversionError:
            raise
        except Exception as error:
            raise self._fail(node, converter, f"raised {type(error).__name__}: {error}", error) from error
        finally:
            self.emit = None

    def _check_and_replace(self, node: Node, converter: Converter, meta: Any, result: Any) -> None:
        several = isinstance(meta, (list, tuple))
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        wanted = list(meta) if several else [meta]
        if len(results) != len(wanted):
            raise self._fail(node, converter, f"returned {len(results)} values, torch gives {len(wanted)}")
        assert self.emit is not None
        new: list[Any] = []
        for index, (tensor, spec) in enumerate(zip(results, wanted, strict=True)):
            if tensor is None and spec is None:
                new.append(None)
                continue
            if not isinstance(tensor, Tensor):
                raise self._fail(
                    node, converter, f"returned a {type(tensor).__name__} as output {index}, not a ge.Tensor"
                )
            value = self.emit.tensor(self.known[id(tensor.node), tensor.index])
            found = value.meta["val"]
            if found.dtype != spec.dtype:
                names = [_ge_types.dtype_name(_ge_types.from_torch(each.dtype)) for each in (found, spec)]
                raise self._fail(
                    node, converter, f"gives {names[0]} as output {index}, torch gives {names[1]}; use dtype_promote"
                )
            if _other_sizes(found.shape, spec.shape):
                raise self._fail(
                    node,
                    converter,
                    f"gives sizes {tuple(found.shape)} as output {index}, torch gives {tuple(spec.shape)}",
                )
            new.append(self._with_strides(value, spec))
            self.values[new[-1]] = tensor
        self._keep_name(node, [each for each in results if each is not None])
        self._replace(node, new, several)
        self.values[node] = results if several else results[0]

    def _with_strides(self, value: Node, spec: torch.Tensor) -> Node:
        """What follows was traced with torch's strides."""
        assert self.emit is not None
        if _same_sizes(value.meta["val"].stride(), spec.stride()):
            return value
        sizes = [self._size(value, each) for each in spec.shape]
        strides = [self._size(value, each) for each in spec.stride()]
        if any(each is None for each in (*sizes, *strides)):
            return value
        empty = self.emit(aten.new_empty_strided.default, value, sizes, strides)
        return self.emit(aten.copy.default, empty, value)

    def _size(self, value: Node, size: Any) -> Any:
        return size if isinstance(size, int) else None

    def _replace(self, node: Node, new: list[Any], several: bool) -> None:
        assert self.emit is not None
        if not several:
            name = node.name
            node.replace_all_uses_with(new[0])
            self._forget(node)
            if new[0] in self.emit.made:  # people know it by this name
                new[0].name = name
            return
        for user in list(node.users):
            if user.target is operator.getitem:
                user.replace_all_uses_with(new[user.args[1]])
                self.module.graph.erase_node(user)
        self._forget(node)

    def _forget(self, node: Node) -> None:
        if not node.users:
            self.module.graph.erase_node(node)


def _input_names(name: str) -> list[str]:
    return [each.rstrip("?*") for each in OPS[name].inputs if not each.endswith("?")]


def _packed(values: list[Any]) -> list[Tensor]:
    return [each if isinstance(each, Tensor) else _ge.Const(each, dtype=_ge_types.DataType.DT_INT64) for each in values]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_impure(node: Node) -> bool:
    return bool(node.is_impure()) or node.op in ("placeholder", "output")


def _spec(meta: Any) -> Any:
    if isinstance(meta, (list, tuple)):
        return [_spec(each) for each in meta]
    return TensorSpec(meta) if isinstance(meta, torch.Tensor) else None


def _scalar_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (float, torch.SymFloat)):
        return torch.float32
    return torch.bool if isinstance(value, (bool, torch.SymBool)) else torch.int64


def _same_sizes(a: Any, b: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


def _other_sizes(a: Any, b: Any) -> bool:
    """Known to differ; of sizes with symbols it is not always known."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(a) != len(b) or any(statically_known_true(x != y) for x, y in zip(a, b, strict=True))


def _fake_mode(module: torch.fx.GraphModule) -> Any:
    from torch._guards import detect_fake_mode

    return detect_fake_mode([node.meta.get("val") for node in module.graph.nodes])


def convert(
    module: torch.fx.GraphModule, graph: int, converters: bool = True, constants: dict[str, torch.Tensor] | None = None
) -> GeGraph:
    """The graph of GE; operators with converters in Python are replaced in the module. Raises ConversionError.

    With ``constants``, the values of those inputs, it can be loaded again.
    """
    return _Conversion(module, f"graph_{graph}", converters, constants).run()
