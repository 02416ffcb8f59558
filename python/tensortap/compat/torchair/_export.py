"""Graphs kept in files: ``dynamo_export`` and ``CompiledModel.save_graph`` write .air, ``load_graph`` runs it again.

An .air file is ModelDef of ge_ir.proto. Operators that are not in the table of GE carry the torch operator they are and
its arguments, so that nothing but the file is needed to run it.
"""

from __future__ import annotations

import ast
import json
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree

from ... import _core
from ..._engine.backend import compile_graph
from ..._record import directories
from . import _convert, _ge_attr, _ge_types, _graph_dump, _proto
from ._config import CompilerConfig
from ._ge_graph import GeGraph, Op, Tensor
from ._lower import Emitter, Number, Numbers, lower
from ._names import world_and_rank

__all__ = ["CompiledModel", "dynamo_export", "use_internal_format_weight"]

_VERSION = 1
_MOST = (2048 - 200) << 20  # what a message of protobuf can hold, with some room


# ------------------------------------------------------------------------------------------------------------- writing


def _traced(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool) -> Any:
    """The model's graph with its parameters as inputs."""

    def sizes(value: Any) -> Any:
        return {dim: torch.export.Dim.AUTO for dim in range(value.dim())} if isinstance(value, torch.Tensor) else None

    shapes = _pytree.tree_map(sizes, (args, kwargs)) if dynamic else None
    with torch.no_grad():
        if shapes is not None:
            named = dict(zip(_parameter_names(model, len(args)), shapes[0], strict=False)) | shapes[1]
            program = torch.export.export(model, args, kwargs, dynamic_shapes=named, strict=False)
        else:
            program = torch.export.export(model, args, kwargs, strict=False)
        return program.run_decompositions({})


def _parameter_names(model: torch.nn.Module, count: int) -> list[str]:
    import inspect

    return list(inspect.signature(model.forward).parameters)[:count]


def _air(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool
) -> tuple[GeGraph, _proto.Message]:
    program = _traced(model, args, kwargs, dynamic)
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        names = ", ".join([*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()])
        raise NotImplementedError(
            f"the model writes to {names}; a graph that is kept in a file cannot: use model.eval()"
        )
    state = {**program.state_dict, **program.constants}
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    constants = {placeholder: state[name] for placeholder, name in held.items()}
    graph = _convert.convert(program.graph_module, 1, constants=constants)
    for op in graph.ops:
        if op.type == "Data":
            _keep_symbols(op)
    message = {
        "name": "torchair",
        "version": _VERSION,
        "custom_version": _core.version,
        "graph": [_graph_dump.graph_message(graph)],
        "attr": {
            "in_spec": {"s": _pytree.treespec_dumps(program.call_spec.in_spec)},
            "out_spec": {"s": _pytree.treespec_dumps(program.call_spec.out_spec)},
        },
    }
    return graph, message


def _keep_symbols(op: Op) -> None:
    """Which sizes are equal from call to call, and what they were when it was traced."""
    meta = op.outputs[0].meta
    if meta is not None:
        op.attrs["_symbols"] = _ge_attr.ListStr([str(each) for each in meta.shape])
        op.attrs["_hints"] = _ge_attr.ListInt([int(_hint(each)) for each in meta.shape])


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else size.node.hint or 2


def _weights_to_files(message: _proto.Message, where: str) -> None:
    """Weights that one message cannot hold become files beside it, raw bytes under the parameter's name."""
    ops = [op for op in message["graph"][0]["op"] if op["type"] == "Const" and "t" in op["attr"]["value"]]
    if sum(len(op["attr"]["value"]["t"]["data"]) for op in ops) <= _MOST:
        return
    for op in ops:
        name = op["name"].replace(".", "_").replace("/", "_")
        _graph_dump.put(os.path.join(where, name), op["attr"]["value"]["t"].pop("data"))
        op["type"] = "FileConstant"
        op["attr"]["file_path"] = {"s": name}


def _write(path: str, message: _proto.Message) -> None:
    where = os.path.dirname(path)
    os.makedirs(where, mode=0o750, exist_ok=True)
    _weights_to_files(message, where)
    _graph_dump.put(path, _proto.to_bytes("ModelDef", message))


def dynamo_export(
    *args: Any,
    model: torch.nn.Module,
    export_path: str = "export_file",
    export_name: str = "export",
    dynamic: bool = False,
    config: CompilerConfig | None = None,
    **kwargs: Any,
) -> None:
    """Write the graph of a model with its weights: ``<export_path>/<export_name>.air`` and ``dynamo.pbtxt``."""
    world, rank = world_and_rank()
    graph, message = _air(model, args, kwargs, dynamic)
    several = world > 1
    _write(os.path.join(export_path, f"{export_name}{rank if several else ''}.air"), message)
    beside = os.path.join(export_path, f"rank_{rank}") if several else export_path
    os.makedirs(beside, mode=0o750, exist_ok=True)
    _graph_dump.put(os.path.join(beside, "dynamo.pbtxt"), _graph_dump.as_pbtxt(graph))


def use_internal_format_weight(model: torch.nn.Module) -> None:
    """Weights in a format of the NPU's own: there is none here, so they stay as they are, which is said once."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"use_internal_format_weight takes a torch.nn.Module, not {type(model).__name__}")
    directories.say_once("internal_format", "use_internal_format_weight has no effect here: weights stay as they are")


# ------------------------------------------------------------------------------------------------------------- reading


class _Sizes:
    """Sizes of a file's inputs as symbols of torch: one for each name."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.symbols: dict[str, Any] = {}

    def _symbol(self, name: str, hint: int) -> Any:
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        if name not in self.symbols:
            context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
            real = torch.empty(max(hint, 2))
            self.symbols[name] = self.mode.from_tensor(real, symbolic_context=context).shape[0]
        return self.symbols[name]

    def size(self, text: str, hint: int) -> Any:
        """A number, a symbol, or sums, products and quotients of them."""

        def value(part: ast.AST) -> Any:
            if isinstance(part, ast.Expression):
                return value(part.body)
            if isinstance(part, ast.Constant) and isinstance(part.value, int):
                return part.value
            if isinstance(part, ast.Name):
                return self._symbol(part.id, hint)
            if isinstance(part, ast.BinOp) and type(part.op) in _ARITHMETIC:
                return _ARITHMETIC[type(part.op)](value(part.left), value(part.right))
            raise ValueError(f"a size is {text!r}; it cannot be read")

        return value(ast.parse(text, mode="eval"))


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def _target(name: str) -> Any:
    """An operator of torch's by its name; nothing else can be called from a file."""
    if name.startswith("<built-in function "):
        found = getattr(operator, name[len("<built-in function ") : -1], None)
        if found is None:
            raise ValueError(f"the file calls {name}, which is not there")
        return found
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"the file calls {name!r}, which is no operator of torch")
    try:
        found = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except AttributeError:
        raise ValueError(f"the file calls {name}, which is not there: import the package that registers it") from None
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"the file calls {name!r}, which is no operator of torch")
    return found


class _Loading:
    """A file's graph on its way to a traced graph."""

    def __init__(self, message: _proto.Message, where: str) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.message, self.where = message, where
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.sizes = _Sizes(self.mode)
        self.root = torch.nn.Module()
        self.graph = torch.fx.Graph(self.root)
        self.end = self.graph.output(())
        self.emit = Emitter(self.graph, self.end, self.mode)
        self.known: dict[tuple[int, int], Any] = {}
        self.ops: dict[str, Op] = {}
        self.inputs: list[Node] = []

    def run(self) -> torch.fx.GraphModule:
        for each in self.message["op"]:
            self._op(each)
        module = torch.fx.GraphModule(self.root, self.graph)
        module.graph.lint()
        return module

    def _op(self, each: _proto.Message) -> None:
        op = self.ops[each["name"]] = Op(each["type"], each["name"])
        op.outputs = [Tensor(op, index) for index in range(len(each.get("output_desc", ())))]
        attrs = each.get("attr", {})
        if op.type == "Data":
            self._data(op, attrs)
        elif op.type == "Const" and "t" not in attrs["value"]:
            self._number(op, each)
        elif op.type in ("Const", "FileConstant"):
            self._weight(op, attrs)
        elif op.type == "NetOutput":
            self.end.args = (tuple(self._input(name) for name in each.get("input", ())),)
        elif "_fx_target" in attrs:
            self._call(op, each, attrs)
        else:
            self._table(op, each, attrs)

    def _input(self, name: str) -> Any:
        source, _, index = name.rpartition(":")
        value = self.known[id(self.ops[source]), int(index)]
        return value if isinstance(value, Node) else self.emit.tensor(value)

    def _data(self, op: Op, attrs: dict[str, Any]) -> None:
        dtype = _ge_types.to_torch(attrs["dtype"]["dt"])
        names = [each.decode() for each in attrs["_symbols"]["list"].get("s", ())]
        hints = attrs["_hints"]["list"].get("i", ())
        shape = [self.sizes.size(name, hint) for name, hint in zip(names, hints, strict=True)]
        with self.graph.inserting_before(next(iter(self.graph.nodes)) if not self.inputs else self.inputs[-1].next):
            node = self.graph.placeholder(op.name)
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype)
        self.inputs.append(node)
        self.known[id(op), 0] = node

    def _number(self, op: Op, each: _proto.Message) -> None:
        held = each["attr"]["value"]["list"]
        values = [*held.get("i", ()), *held.get("f", ())]
        dtype = each["attr"]["dtype"]["dt"]
        scalar = not each["output_desc"][0].get("shape", {}).get("dim")
        self.known[id(op), 0] = Number(values[0], dtype) if scalar and len(values) == 1 else Numbers(values, dtype)

    def _weight(self, op: Op, attrs: dict[str, Any]) -> None:
        desc = attrs["value"]["t"]["desc"]
        dtype = _ge_types.to_torch(_ge_types.number_of(desc["dtype"]))
        data = attrs["value"]["t"].get("data", b"")
        if op.type == "FileConstant":
            data = pathlib.Path(self.where, os.path.basename(attrs["file_path"]["s"].decode())).read_bytes()
        shape = desc.get("shape", {}).get("dim", [])
        tensor = (
            torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        )
        name = f"weight{len(list(self.root.buffers()))}"
        self.root.register_buffer(name, tensor)
        with self.graph.inserting_before(self.end):
            node = self.graph.get_attr(name)
        node.meta["val"] = self.mode.from_tensor(tensor, static_shapes=True)
        self.known[id(op), 0] = node

    def _call(self, op: Op, each: _proto.Message, attrs: dict[str, Any]) -> None:
        inputs = [self._input(name) for name in each.get("input", ())]

        def real(value: Any) -> Any:
            if isinstance(value, list):
                return [real(item) for item in value]
            if not isinstance(value, dict):
                return value
            if "$" in value:
                return inputs[value["$"]]
            if "float" in value:
                return float(value["float"])
            if value["kind"] == "device":
                return torch.device(value["torch"])
            return getattr(torch, value["torch"])

        call = json.loads(attrs["_fx_call"]["s"])
        kwargs = {key: real(item) for key, item in call["kwargs"].items()}
        node = self.emit(_target(attrs["_fx_target"]["s"].decode()), *real(call["args"]), **kwargs)
        if isinstance(node.meta["val"], (list, tuple)):
            for index, part in enumerate(self.emit.parts(node)):
                self.known[id(op), index] = part
        else:
            self.known[id(op), 0] = node

    def _table(self, op: Op, each: _proto.Message, attrs: dict[str, Any]) -> None:
        names = [desc["name"] for desc in each.get("input_desc", ())]
        for name, given in zip(names, each.get("input", ()), strict=True):
            source, _, index = given.rpartition(":")
            op.inputs[name] = self.ops[source].outputs[int(index)] if given else None
        for name, attr in attrs.items():
            ((kind, value),) = attr.items()
            op.attrs[name] = _ge_attr.of(next(iter(value.values()), []) if kind == "list" else value)
        lower(op, self.emit, self.known)


class CompiledModel:
    """A model's graph in a file: ``save_graph`` writes it, ``load_graph`` gives one that can be called."""

    def __init__(self, run: Callable[[list[Any]], Any], inputs: list[Any], in_spec: Any, out_spec: Any) -> None:
        self._run, self._inputs, self._in_spec, self._out_spec = run, inputs, in_spec, out_spec

    @staticmethod
    def _path(where: Any) -> str:
        world, rank = world_and_rank()
        if world > 1:
            return os.path.join(os.fspath(where), f"rank_{rank}", f"compiled_graph{rank}.air")
        return os.path.join(os.fspath(where), "compiled_graph.air")

    @staticmethod
    def save_graph(
        model: torch.nn.Module,
        args: tuple[Any, ...] = (),
        *,
        dynamic: bool = False,
        config: CompilerConfig | None = None,
        save_path: str | os.PathLike[str] = "./save_path",
        **kwargs: Any,
    ) -> None:
        """Trace a model with sample inputs and write its graph to ``<save_path>/compiled_graph.air``."""
        if not isinstance(args, tuple):
            raise TypeError(f"args is a tuple of the sample inputs, not {type(args).__name__}; write args=(x,)")
        _write(CompiledModel._path(save_path), _air(model, args, kwargs, dynamic)[1])

    @staticmethod
    def load_graph(load_path: str | os.PathLike[str] = "./save_path") -> CompiledModel:
        """The graph that ``save_graph`` wrote below this path, ready to be called."""
        path = CompiledModel._path(load_path)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no {path}; give the save_path of save_graph")
        data = pathlib.Path(path).read_bytes()
        try:
            message = _proto.from_bytes("ModelDef", data)
            specs = [_pytree.treespec_loads(message["attr"][name]["s"].decode()) for name in ("in_spec", "out_spec")]
            if message["version"] != _VERSION:
                raise ValueError(f"its version is {message['version']}, this one reads {_VERSION}")
            loading = _Loading(message["graph"][0], os.path.dirname(path))
            module = loading.run()
        except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: cannot be loaded: {error!r}; write it again with save_graph") from error
        compiled = compile_graph(module, [], name=os.path.basename(path))
        return CompiledModel(compiled, [node.meta["val"] for node in loading.inputs], *specs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, with arguments like those it was saved with."""
        flat, spec = _pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise ValueError(f"the arguments are {spec}; the graph was saved with {self._in_spec}")
        given = [each for each in flat if isinstance(each, torch.Tensor)]
        for index, (each, wanted) in enumerate(zip(given, self._inputs, strict=True)):
            sizes = [size if isinstance(size, int) else -1 for size in wanted.shape]
            fits = each.dim() == len(sizes) and all(
                size in (-1, have) for size, have in zip(sizes, each.shape, strict=True)
            )
            if each.dtype != wanted.dtype or not fits:
                raise ValueError(
                    f"input {index} is {each.dtype}{list(each.shape)}; the graph was saved for {wanted.dtype}{sizes}"
                )
        with torch.no_grad():
            return _pytree.tree_unflatten(list(self._run(list(given))), self._out_spec)
