"""``torch.compile(model, backend="tensortap")``: the model's graph, run by the engine.

Here an FX graph is read: each node's target, its arguments by the names of its schema, and the sizes the trace left in
``node.meta["val"]`` as expressions over symbols. Everything else is C.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils import _sympy

from .. import _core
from .._record.recording import recording
from .decompositions import decompositions, whole_resampling
from .observe import Observer, Profile, checker, tapper
from .options import Options

_HOST_ONLY = {"float8_e8m0fnu", "float4_e2m1fn_x2"}  # recorded, but not computed with
_DTYPES = {
    getattr(torch, name): number
    for name, number in _core.DTYPES.items()
    if hasattr(torch, name) and name not in _HOST_ONLY
}


def _empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


def _restride(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).copy_(tensor)


def _plain(value: object) -> torch.Tensor | None:
    """A tensor the engine can read in place, or None where there is none to be had."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout != torch.strided:
        return None
    if value.is_conj() or value.is_neg():
        return value.resolve_conj().resolve_neg()
    return None


_core.engine_setup(torch.dtype, _DTYPES, {code: dtype for dtype, code in _DTYPES.items()}, _empty, _restride, _plain)


def _onednn() -> str | None:
    """TENSORTAP_ONEDNN, else where pip puts it; None: wherever the system finds libraries."""
    installed = os.path.join(sys.prefix, "lib", "libdnnl.so.3")
    return os.environ.get("TENSORTAP_ONEDNN") or (installed if os.path.exists(installed) else None)


_core.engine_onednn(_onednn())


#: relations as integers that are not negative where they hold
_MARGINS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Ge: lambda a, b: a - b,
    sympy.Le: lambda a, b: b - a,
    sympy.Gt: lambda a, b: a - b - 1,
    sympy.Lt: lambda a, b: b - a - 1,
    sympy.Eq: lambda a, b: -((a - b) ** 2),
}


class _Reader:
    """Reads one FX graph into a ``_core.Graph``."""

    def __init__(self, gm: torch.fx.GraphModule, name: str, options: Options) -> None:
        self.gm = gm
        self.options = options
        self.graph = _core.Graph(name)
        self.nodes: list[tuple[str, Any, str | None]] = []  # name, target, source
        self.refs: dict[torch.fx.Node, Any] = {}
        self.inputs: list[_core.Ref] = []
        self.outputs: tuple[Any, ...] = ()
        self.symbols: dict[sympy.Basic, int | None] = {}
        self.unnamed = 0

    # ------------------------------------------------------------------------------------------------------- sizes

    def size(self, value: Any) -> int | None:
        """A size as ``_core.Graph`` takes it: the int, or a negative number for an expression; None: none we know."""
        if type(value) is int:
            return value
        return self.expression(value.node.expr)

    def expression(self, expr: sympy.Basic) -> int | None:
        if expr not in self.symbols:
            self.symbols[expr] = self._expression(expr)
        return self.symbols[expr]

    def _fold(self, op: int, parts: Sequence[sympy.Basic]) -> int | None:
        total = self.expression(parts[0])
        for part in parts[1:]:
            other = self.expression(part)
            if total is None or other is None:
                return None
            total = self.graph.expr(op, total, other)
        return total

    def _expression(self, expr: sympy.Basic) -> int | None:
        functions = _sympy.functions
        if isinstance(expr, sympy.Integer | int):
            return self.graph.const(int(expr))
        if isinstance(expr, sympy.Symbol):
            return self.graph.symbol(expr.name)
        if isinstance(expr, sympy.Add):
            return self._fold(_core.SYM_ADD, expr.args)
        if isinstance(expr, sympy.Mul):
            top, bottom = expr.as_numer_denom()
            if bottom != 1:
                return self._fold(_core.SYM_FLOORDIV, (top, bottom))
            return self._fold(_core.SYM_MUL, expr.args)
        if isinstance(expr, sympy.Pow) and isinstance(expr.args[1], sympy.Integer) and expr.args[1] > 0:
            return self._fold(_core.SYM_POW, expr.args)
        if isinstance(expr, functions.FloorDiv | functions.CleanDiv):
            return self._fold(_core.SYM_FLOORDIV, expr.args)
        if isinstance(expr, functions.Mod | functions.PythonMod | sympy.Mod):
            return self._fold(_core.SYM_MOD, expr.args)
        if isinstance(expr, functions.ModularIndexing):
            base, divisor, modulus = expr.args
            return self._fold(_core.SYM_MOD, (functions.FloorDiv(base, divisor), modulus))
        if isinstance(expr, sympy.Max | functions.Max):
            return self._fold(_core.SYM_MAX, expr.args)
        if isinstance(expr, sympy.Min | functions.Min):
            return self._fold(_core.SYM_MIN, expr.args)
        if isinstance(expr, functions.Identity):
            return self.expression(expr.args[0])
        return None

    def new_symbol(self) -> int:
        """For an integer only torch can compute."""
        self.unnamed += 1
        return self.graph.symbol(f"#{self.unnamed}")

    # -------------------------------------------------------------------------------------------------------- specs

    def spec(self, value: Any) -> Any:
        """What ``_core`` needs to know of a value: see take_spec in py_graph.c."""
        if value is None:
            return None
        if type(value) is int:
            return self.graph.const(value)
        if isinstance(value, torch.SymInt):
            found = self.size(value)
            return self.new_symbol() if found is None else found
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dtype not in _DTYPES:
            return False
        if value.is_conj() or value.is_neg():
            return False
        sizes = tuple(self.size(dim) for dim in value.shape)
        strides = tuple(self.size(step) for step in value.stride())
        offset = self.size(value.storage_offset())
        if None in sizes or None in strides or offset is None:
            return False
        return (_DTYPES[value.dtype], sizes, strides, offset, value.device.type != "cpu")

    # -------------------------------------------------------------------------------------------------------- nodes

    def argument(self, value: Any) -> Any:
        """An argument with references in place of nodes."""
        if isinstance(value, torch.fx.Node):
            return self.refs[value]
        if isinstance(value, list):
            return [self.argument(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self.argument(item) for item in value)
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        return value

    def placeholder(self, node: torch.fx.Node) -> None:
        ref = self.graph.input(node.name, self.spec(node.meta.get("val", False)))
        self.inputs.append(ref)
        self.refs[node] = ref

    def get_attr(self, node: torch.fx.Node) -> None:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            self.refs[node] = self.graph.input(node.name, self.spec(value), value)
        else:
            self.refs[node] = value

    def is_arithmetic(self, node: torch.fx.Node, value: Any) -> bool:
        """An integer that follows from the sizes of the inputs needs no node."""
        if type(value) is int:
            return node.target is not torch.ops.aten._local_scalar_dense.default
        if not isinstance(value, torch.SymInt) or node.meta.get("unbacked_bindings"):
            return False
        if not value.node.expr.free_symbols <= self.symbols.keys():
            return False  # a symbol nobody has seen before is born here
        if node.target is torch.ops.aten.sym_storage_offset.default and value.node.expr.is_Symbol:
            return not _is_unbacked(value)  # a tensor that the host hands over tells its sizes, not its place
        return self.size(value) is not None

    def margin(self, node: Any) -> int | None:
        """What is not negative when an assertion about sizes holds; None: it is not about known sizes alone."""
        relation = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
        if node.target is not torch.ops.aten._assert_scalar.default or not isinstance(relation, torch.SymBool):
            return None
        expr = relation.node.expr
        if type(expr) not in _MARGINS or not expr.free_symbols <= self.symbols.keys():
            return None
        return self.expression(_MARGINS[type(expr)](*expr.args))

    def assertion(self, node: torch.fx.Node, margin: int) -> None:
        value, source = self.graph.integer(margin), _source(node)
        message = str(node.args[1])
        self.nodes.append((node.name, _require, source))
        self.graph.call(
            node.name, str(node.target), source, (("value", value),), (), 0, _require, (value, message), {}, False
        )  # fmt: skip

    def call_function(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.SymBool) and node.users and None not in map(self.margin, node.users):
            return  # said once more by the assertions
        if (margin := self.margin(node)) is not None:
            self.assertion(node, margin)
            return
        if node.target is operator.getitem and isinstance(self.refs.get(node.args[0]), tuple):
            self.refs[node] = self.refs[node.args[0]][node.args[1]]
            return
        if self.is_arithmetic(node, value):
            spec = self.graph.const(value) if type(value) is int else self.size(value)
            assert spec is not None
            self.refs[node] = self.graph.integer(spec)
            return
        many = isinstance(value, list | tuple)
        values = tuple(value) if many else (value,) if value is not None or _returns_something(node) else ()
        specs = tuple(self.spec(item) for item in values)
        args, kwargs = self.argument(node.args), self.argument(node.kwargs)
        named = _named(node.target, args, kwargs)
        target, source = str(node.target), _source(node)
        flags = _core.CALL_OBSERVE if self.options.taps(node.name, target) else 0
        flags |= 0 if named is not None else _core.CALL_HOST
        named = _positional(args, kwargs) if named is None else named
        self.nodes.append((node.name, node.target, source))
        refs = self.graph.call(node.name, target, source, named, specs, flags, node.target, args, kwargs, many)
        self.refs[node] = refs if many else refs[0] if refs else None

    def read(self) -> None:
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "get_attr":
                self.get_attr(node)
            elif node.op == "call_function":
                self.call_function(node)
            elif node.op == "output":
                results = node.args[0]
                self.outputs = tuple(self.argument(list(results) if isinstance(results, list | tuple) else [results]))
            else:
                raise RuntimeError(
                    f"node {node.name}: a traced graph has no {node.op} nodes; compile the model with torch.compile"
                )


def _is_unbacked(value: torch.SymInt) -> bool:
    return bool(value.node.shape_env.is_unbacked_symint(value.node.expr))


def _require(margin: int, message: str) -> None:
    if margin < 0:
        raise RuntimeError(message)


def _returns_something(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or len(schema.returns) > 0


_SCHEMAS: dict[Any, tuple[tuple[str, ...], dict[str, Any]] | None] = {}


def _schema(target: Any) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """Names of a target's parameters in order, and the defaults of those that have one."""
    if target not in _SCHEMAS:
        schema = getattr(target, "_schema", None)
        _SCHEMAS[target] = schema and (
            tuple(argument.name for argument in schema.arguments),
            {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()},
        )
    return _SCHEMAS[target]


def _named(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[str, Any], ...] | None:
    schema = _schema(target)
    if schema is None:
        return None
    names, defaults = schema
    given = dict(zip(names, args))
    return tuple(
        (name, given[name] if name in given else kwargs[name] if name in kwargs else defaults.get(name))
        for name in names
    )


def _positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """What is known of a target without schema: enough to see which values it uses."""
    return tuple((str(i), _flat(arg)) for i, arg in enumerate(args)) + tuple((k, _flat(v)) for k, v in kwargs.items())


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return [_flat(item) for item in value.values()]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    return value


def _source(node: torch.fx.Node) -> str | None:
    """``file.py:26: x = x + 1``: where the user's code made the node."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    lines = trace.strip().splitlines()
    for i in range(len(lines) - 1, -1, -1):
        head = lines[i].strip()
        if head.startswith('File "'):
            path, _, rest = head[6:].partition('", line ')
            code = lines[i + 1].strip() if i + 1 < len(lines) else ""
            return f"{path}:{rest.partition(',')[0]}: {code}"
    return None


#: operators that stay with torch under every option: they draw from its generators or talk to other processes
_ALWAYS_HOST_TAGS = {torch.Tag.nondeterministic_seeded}
_ALWAYS_HOST_SPACES = {"tensortap", "_c10d_functional", "c10d", "c10d_functional"}


def _stays_on_host(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _ALWAYS_HOST_SPACES or bool(_ALWAYS_HOST_TAGS & set(target.tags))
    return False


_compiled: list[weakref.ref[Compiled]] = []  # in the order they were made; one that is gone counts no more
_graphs = itertools.count(1)


class Compiled:
    """What runs in place of the graph: a list of arguments in, a list of results out."""

    def __init__(self, name: str, program: _core.Program, reader: _Reader) -> None:
        self.name = name
        self.program = program
        self.nodes = reader.nodes
        self.options = reader.options
        self._boxed_call = True  # torch's wrappers copy what is in __dict__
        self._run: Callable[[list[Any]], list[Any]] = program
        if self.options.strict:
            self._refuse_host_nodes()
            self._run = self._first_strict
        elif self.options.profile:
            self._run = self._profiled

    def __call__(self, args: list[Any]) -> list[Any]:
        return self._run(args)

    def _first_strict(self, args: list[Any]) -> list[Any]:
        """Some nodes are refused only when their sizes are known."""
        run = self._profiled if self.options.profile else self.program
        results = run(args)
        self._refuse_host_nodes()
        self._run = run
        return results

    def _profiled(self, args: list[Any]) -> list[Any]:
        results = self.program(args)
        if recording():
            for node in self.program.nodes():
                if node.runs:
                    _core.save(node.last_nanoseconds / 1e6, f"profile.{self.name}.{node.name}.ms")
        return results

    def _refuse_host_nodes(self) -> None:
        found = [
            f"  {name}: {target}" + (f", from {source}" if source else "")
            for (name, target, source), node in zip(self.nodes, self.program.nodes())
            if node.host and node.kind != "view" and not _stays_on_host(target)
        ]
        if found:
            raise RuntimeError(
                f"{self.name}: option 'strict' is set, and {len(found)} nodes would run in torch:\n" + "\n".join(found)
            )


def compile_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options | None = None,
    name: str = "",
    *,
    observer: Observer | None = None,
    fuse: bool = True,
) -> Compiled:
    """One traced graph made into a program of the engine. An observer is told of every node, and nothing is fused."""
    options = options or Options()
    name = name or f"{options.name or 'graph'}_{next(_graphs)}"
    reader = _Reader(gm, name, options)
    reader.read()
    flags = _core.ENGINE_PROFILE if options.profile else 0
    flags |= _core.ENGINE_EVERY_NODE if observer is not None or not fuse else 0
    program: _core.Program
    if observer is not None:
        pass
    elif options.check:
        flags |= _core.ENGINE_EVERY_NODE
        observer = checker(name, reader.nodes, lambda node: not program.is_host(node))
    elif options.tap:
        observer = tapper(name, [node[0] for node in reader.nodes])
    program = _core.Program(reader.graph, tuple(reader.inputs), reader.outputs, flags, observer)
    compiled = Compiled(name, program, reader)
    _compiled.append(weakref.ref(compiled))
    return compiled


_converters: dict[Any, Callable[..., Any]] = {}


def register_converter(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say how an operator is to be computed: a function of the same arguments, written with other torch operators.

    It wins over what the engine has, in every graph compiled after it.

    >>> import torch, tensortap
    >>> @tensortap.register_converter(torch.ops.aten.hypot.default)
    ... def hypot(a, b):
    ...     return torch.sqrt(a * a + b * b)
    >>> torch.compile(torch.hypot, backend="tensortap")(torch.tensor([3.0]), torch.tensor([4.0]))
    tensor([5.])
    """
    if not isinstance(operator, torch._ops.OpOverload):
        raise TypeError(f"register_converter takes an operator such as torch.ops.aten.add.Tensor, not {operator!r}")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _converters[operator] = _checked_converter(operator, function)
        return function

    return register


def load_library(path: str | os.PathLike[str]) -> None:
    """Read operators written in C into the engine: see examples/operator and tap_op_desc in tensortap_engine.h."""
    _core.load_operators(os.fspath(path))


def _checked_converter(operator: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    expected = len(operator._schema.returns)

    @functools.wraps(function)
    def convert(*args: Any, **kwargs: Any) -> Any:
        try:
            results = function(*args, **kwargs)
        except Exception as error:
            raise RuntimeError(f"the converter of {operator} ({_place(function)}) raised {error!r}") from error
        found = len(results) if isinstance(results, list | tuple) else 1
        if found != expected:
            raise RuntimeError(
                f"the converter of {operator} ({_place(function)}) gave {found} values; the operator has {expected}"
            )
        _check_like(operator, function, args, kwargs, results)
        return results

    return convert


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _check_like(operator: Any, function: Any, args: Any, kwargs: Any, results: Any) -> None:
    """dtype and sizes must be those torch itself gives; asked on tensors without data."""
    from torch.utils._pytree import tree_leaves, tree_map

    def bare(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            sizes = [hint if (hint := _hint(size)) is not None else 2 for size in value.shape]
            return torch.empty(sizes, dtype=value.dtype, device="meta")
        return _hint(value) if isinstance(value, torch.SymInt) else value

    with torch.utils._python_dispatch._disable_current_modes():
        try:
            wanted = operator(*tree_map(bare, args), **tree_map(bare, kwargs))
        except Exception:
            return  # no rule for tensors without data: nothing to compare with
    for ours, theirs in zip(tree_leaves(results), tree_leaves(wanted)):
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            continue
        if ours.dtype != theirs.dtype or ours.ndim != theirs.ndim:
            raise RuntimeError(
                f"the converter of {operator} ({_place(function)}) gave {ours.dtype} with {ours.ndim} dimensions; "
                f"torch says {theirs.dtype} with {theirs.ndim}"
            )


def _hint(size: Any) -> int | None:
    return size if isinstance(size, int) else size.node.hint if isinstance(size, torch.SymInt) else None


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The entry point torch.compile finds under the name ``tensortap``."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    options = Options.parse(kwargs.pop("options", None))
    name = f"{options.name or 'graph'}_{next(_graphs)}"

    def compiler(kind: str) -> Callable[..., Any]:
        return lambda graph, inputs: compile_graph(graph, inputs, options, f"{name}.{kind}")

    traced = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions={**decompositions(), **_converters},
        keep_inference_input_mutations=True,
    )
    with whole_resampling():
        return traced(gm, example_inputs)  # type: ignore[no-any-return]


def _programs() -> list[tuple[str, _core.Program]]:
    """Name and program of every graph that is still there."""
    _compiled[:] = [ref for ref in _compiled if ref() is not None]
    return [(found.name, found.program) for ref in _compiled if (found := ref()) is not None]


def counters(reset: bool = False) -> dict[str, int]:
    """How many nodes of all graphs compiled so far run in the engine, are views, and run on the host."""
    total = {"graphs": 0, "native": 0, "views": 0, "host": 0, "steps": 0, "plans": 0, "runs": 0}
    for _name, program in _programs():
        counts = program.counts()
        total["graphs"] += 1
        for key in total.keys() & counts.keys():
            total[key] += counts[key]
    if reset:
        _compiled.clear()
    return total


def host_targets() -> dict[str, int]:
    """Which operators ran on the host, and in how many nodes: what keeps graphs from being native."""
    found: dict[str, int] = {}
    for _graph, program in _programs():
        for node in program.nodes():
            if node.host and node.kind != "view":
                found[node.target] = found.get(node.target, 0) + 1
    return found


def profile() -> Profile:
    """Time and bytes per node of the graphs compiled with ``options={"profile": True}``."""
    fields = ("target", "source", "operator", "kind", "host", "runs", "nanoseconds", "bytes", "last_start")
    return Profile(
        [
            {"graph": graph, "node": node.name}
            | {field: getattr(node, field) for field in (*fields, "last_nanoseconds")}
            for graph, program in _programs()
            for node in program.nodes()
        ]
    )
