"""Taps of torch: gradients by hooks, and the operators that stand for a tap inside a compiled or exported graph.

Imported once torch is. ``save`` itself stays a C function; Dynamo traces ``save_traced`` in its place.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _core
from .._record import frameworks, sites, state
from .._record.gradients import Gradient, here, leaves, say_once
from .torch_values import is_wrapped, simplify

_LEAF_HOOKS = 64  # on one leaf tensor: a parameter saved in steps without a backward must not collect them
_FIELDS = (
    "module",
    "graph",
    "node",
    "argument",
    "suffix",
    "device",
    "placements",
    "source",
    "line",
    "step",
    "call",
    "replay",
    "graph_id",
)

try:
    from numpy import ndarray as _ARRAY
except ImportError:
    _ARRAY = type("ndarray", (), {})  # type: ignore[misc,assignment]

# torch before 2.10 refuses a hook on a value inside a graph
_HOOKS_ARE_TRACED = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 10)

# ------------------------------------------------------------------------------------------------ gradients in eager


class _Gradient(Gradient):
    __slots__ = ()

    def __call__(self, grad: Any) -> None:
        self.came = True
        if self.handle is not None:
            self.handle.remove()
        self.save(grad, 0)


_leaf_hooks: Any = None  # tensor -> deque of its waiting hooks


def _keep_leaf_hook(tensor: Any, hook: _Gradient) -> None:
    """A hook on a leaf stays until it is removed: it goes after its gradient, and old ones go when there are many."""
    global _leaf_hooks
    if _leaf_hooks is None:
        from torch.utils.weak import WeakIdKeyDictionary

        _leaf_hooks = WeakIdKeyDictionary()
    waiting = _leaf_hooks.setdefault(tensor, deque())
    while waiting and waiting[0].came:
        waiting.popleft()
    waiting.append(hook)
    if len(waiting) > _LEAF_HOOKS:
        waiting.popleft().handle.remove()


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _has_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


_MOST_AWAITED = 1 << 14
_awaited: dict[tuple[int, str, int, int, int], None] = {}  # leaves that have a hook already; the oldest go first


def _is_awaited(key: tuple[int, str, int, int, int], again: bool) -> bool:
    """Activation checkpointing runs a forward twice, and what goes into it has its hook from the first time."""
    if again:
        return key in _awaited
    _awaited[key] = None
    if len(_awaited) > _MOST_AWAITED:
        del _awaited[next(iter(_awaited))]
    return False


def save_gradients(recorder: Any, value: Any, name: str, step: int, call: int, announce: bool) -> None:
    """Announce and hook the gradients of what was just saved; never raises."""
    try:
        found = [(value, here)] if type(value) is torch.Tensor else leaves(value, _is_tensor)
        for number, (tensor, place) in enumerate(found):
            key = (id(recorder), name, step, call, number)
            if tensor.requires_grad and not _is_awaited(key, not announce):
                _hook(recorder, tensor, place, name, step, call, announce)
    except Exception as error:
        say_once(f"the gradient of {name} cannot be recorded: {error}")


def _hook(
    recorder: Any, tensor: Any, place: Callable[[Any], Any], name: str, step: int, call: int, announce: bool
) -> None:
    if is_wrapped(tensor):
        say_once(f"{name}: inside torch.func.grad a tensor has no hooks; its gradient is what torch.func.grad returns")
        return
    hook = _Gradient(recorder, place, name, step, call, announce)
    handle = tensor.register_hook(hook)
    if tensor.is_leaf:
        hook.handle = handle
        _keep_leaf_hook(tensor, hook)
    if announce:
        hook.announce(tensor.detach())


def is_recompute() -> bool:
    """Called during a backward pass with gradients on: is it activation checkpointing that runs a forward again?"""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_CHECKPOINT):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_CHECKPOINT = os.path.join("torch", "utils", "checkpoint.py")

# ----------------------------------------------------------------------------------------------------- inside graphs


def _local(x: Any) -> Any:
    """The part of a sharded tensor that this process holds; any other value as it is."""
    return x.to_local() if _is_sharded(x) else x


def _is_sharded(x: Any) -> bool:
    return state.sharded is not None and isinstance(x, state.sharded)


def _placements(tensors: list[Any]) -> str:
    """How the first sharded tensor lies, as a field of a site."""
    for x in tensors:
        if _is_sharded(x):
            return ";placements=" + sites.text(str(tuple(x.placements)))
    return ""


_PACKAGE = os.path.dirname(os.path.abspath(_core.__file__)) + os.sep


def _where() -> str:
    """File and line of the tap that Dynamo traces, as fields of a site; "" where it traces none."""
    stack = torch._guards.TracingContext.extract_stack()
    for frame in reversed(stack):
        if not frame.filename.startswith(_PACKAGE):
            return ";source=" + sites.text(frame.filename) + ";line=" + str(frame.lineno)
    return ""


_where._dynamo_marked_constant = True  # type: ignore[attr-defined]  # runs while it is traced: its result is a constant


def _encode(value: Any, tensors: list[Any], grad: bool, only: int = -1) -> str:
    """The tree of a nested value, as py_site.c reads it; its tensors are appended to the list.

    ``only``: the place of that tensor, everything else left out.
    """
    if isinstance(value, torch.Tensor) or type(value) is _ARRAY:
        if not isinstance(value, torch.Tensor):
            value = torch.as_tensor(value)
        if value.is_nested:
            parts = {"values": value.values(), "offsets": value.offsets()}
            return "@torch.nested;" + _encode_dict(parts, tensors, grad, only)
        if type(value).__name__ == "MaskedTensor":
            parts = {"data": value._masked_data, "mask": value._masked_mask}
            return "@torch.masked.MaskedTensor;" + _encode_dict(parts, tensors, grad, only)
        tensors.append(value)
        if only >= 0:
            return "T" if len(tensors) - 1 == only else "-"
        return "G" if grad and value.requires_grad else "T"
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        return sites.number(value) if only < 0 else "-"
    if isinstance(value, int) and not isinstance(value, bool):
        tensors.append(torch.scalar_tensor(value, dtype=torch.int64) if only < 0 else value)
        return "I" if only < 0 else "-"
    name = type(value).__module__ + "." + type(value).__qualname__
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "@" + name + ";" + _encode_dict({k: getattr(value, k) for k in value._fields}, tensors, grad, only)
    if isinstance(value, (list, tuple)):
        items = [_encode(item, tensors, grad, only) for item in value]
        return ("l" if isinstance(value, list) else "t") + str(len(items)) + ";" + "".join(items)
    if isinstance(value, dict):
        return _encode_dict(value, tensors, grad, only)
    if hasattr(type(value), "__dataclass_fields__"):
        fields = {k: getattr(value, k) for k in value.__dataclass_fields__}
        return "@" + name + ";" + _encode_dict(fields, tensors, grad, only)
    return "-" if only >= 0 else sites.constant(value, name)


def _encode_dict(value: dict[Any, Any], tensors: list[Any], grad: bool, only: int) -> str:
    items = [sites.text(str(key)) + ";" + _encode(item, tensors, grad, only) for key, item in value.items()]
    return "d" + str(len(items)) + ";" + "".join(items)


def _is_exporting() -> bool:
    """Before torch 2.10 Dynamo takes is_exporting for true in every graph."""
    if _HOOKS_ARE_TRACED:
        return bool(torch.compiler.is_exporting())
    return bool(torch.compiler._is_exporting_flag)


def save_traced(
    value: Any,
    name: str,
    kind: str = "forward",
    step: int | None = None,
    *,
    grad: bool = False,
    flags: int | None = None,
    **fields: Any,
) -> None:
    """What ``save`` is inside a graph: one operator, with everything it needs in its arguments."""
    exporting = _is_exporting()
    if not (state.recording or exporting):
        return None
    site = sites.text(name)
    if step is not None:
        site = site + ";step=" + str(step)
    if state.source and fields.get("source") is None:
        site = site + _where()
    for key in _FIELDS:
        if key in fields and fields[key] is not None:
            site = site + ";" + key + "=" + sites.text(str(fields[key]))
    bits = (sites.KINDS[kind if kind is not None else "forward"] << 8) | (flags if flags is not None else 0)
    if isinstance(value, torch.Tensor) and _is_several(type(value)) and not (grad and value.requires_grad):
        several_in_graph(value, site, bits)
        return None
    tensors: list[Any] = []
    tree = _encode(value, tensors, grad and not exporting)
    if tree[0] == "s" and not isinstance(value, str):
        what = type(value).__module__ + "." + type(value).__qualname__
        tree = sites.lost("a " + what + " is nothing that can be recorded")
    placed = site + _placements(tensors)
    given = [_local(x) for x in tensors]
    if tree == "T":
        torch.ops.tensortap.tap(given[0], placed, bits | (1 if tensors[0].requires_grad else 0))
        return None
    if tree == "G":
        ticket = torch.ops.tensortap.tap_ticket(given, placed, bits | 1)
        _add_hook(value, ticket, site, "")
        return None
    placed = placed + ";tree=" + tree
    if "G" not in tree:
        torch.ops.tensortap.tap_tree(given, placed, bits)
        return None
    ticket = torch.ops.tensortap.tap_ticket(given, placed, bits)
    for i, tensor in enumerate(tensors):
        if tensor.requires_grad:
            _add_hook(tensor, ticket, site, ";tree=" + _encode(value, [], False, i))
    return None


def _is_several(cls: type) -> bool:
    """Is a tensor of this type made of several, which ``__tensor_flatten__`` names?"""
    return hasattr(cls, "__tensor_flatten__") and cls.__name__ not in _ONE


_is_several._dynamo_marked_constant = True  # type: ignore[attr-defined]
_ONE = {"DTensor", "NestedTensor", "AsyncCollectiveTensor", "FunctionalTensor", "FakeTensor"}  # seen to elsewhere


def _encode_several(x: Any, tensors: list[Any]) -> str:
    if not _is_several(type(x)):
        tensors.append(x)
        return "T"
    names = x.__tensor_flatten__()[0]
    items = [sites.text(name) + ";" + _encode_several(getattr(x, name), tensors) for name in names]
    return "@" + type(x).__module__ + "." + type(x).__qualname__ + ";d" + str(len(items)) + ";" + "".join(items)


def several_in_graph(x: Any, site: str, bits: int) -> None:
    """A node of Dynamo's graph: the parts of a tensor are known to what compiles the graph, not to Dynamo."""
    tensors: list[Any] = []
    tree = _encode_several(x, tensors)
    torch.ops.tensortap.tap_tree(tensors, site + ";tree=" + tree, bits)


def _add_hook(tensor: Any, ticket: Any, site: str, place: str) -> None:
    """Traced: the gradient of a tensor goes to the place its ticket left."""
    if tensor.is_leaf:
        tensor.register_hook(_leaf_hook(tensor, ticket, site, place))
    elif _HOOKS_ARE_TRACED:
        tensor.register_hook(_grad_hook(ticket, site, place))
    else:
        hook_in_graph(tensor, ticket, site, place)


def hook_in_graph(tensor: Any, ticket: Any, site: str, place: str) -> Any:
    """For torch before 2.10: a node of Dynamo's graph, at which AOTAutograd traces the hook into the backward."""
    tensor.register_hook(_grad_hook(ticket, site, place))
    return ticket.view_as(ticket)


def _leaf_hook(tensor: Any, ticket: Any, site: str, place: str) -> Callable[[Any], None]:
    """A hook on a leaf stays until it is removed, and each call of the graph adds one: it goes after its gradient."""

    def hook(grad: Any) -> None:
        torch.ops.tensortap.tap_grad(_local(grad), ticket, site + _placements([grad]) + place)
        if not torch.compiler.is_compiling():
            forget(tensor, ticket, place)

    return hook


def forget(tensor: Any, ticket: Any, place: str) -> None:
    """Take the hook of a ticket and a place off a leaf tensor."""
    hooks = tensor._backward_hooks or {}
    for key, hook in list(hooks.items()):
        inside = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
        if any(x is ticket for x in inside) and any(type(x) is str and x == place for x in inside):
            del hooks[key]


def _grad_hook(ticket: Any, site: str, place: str) -> Callable[[Any], None]:
    def hook(grad: Any) -> None:
        torch.ops.tensortap.tap_grad(_local(grad), ticket, site + _placements([grad]) + place)

    return hook


def save_grad(x: Any, name: str) -> Any:
    """See ``tensortap.save_grad``."""
    if torch.compiler.is_compiling():
        if not state.recording or _is_exporting() or not x.requires_grad:
            return x
        y = x.view_as(x)
        site = sites.text(name) + (_where() if state.source else "")
        bits = sites.KINDS["grad"] << 8 | sites.SLOT
        ticket = torch.ops.tensortap.tap_ticket([_local(y)], site + _placements([y]), bits)
        _add_hook(y, ticket, site, "")
        return y
    return _save_grad_eager(x, name)


def _save_grad_eager(x: Any, name: str) -> Any:
    recorder = _core.current()
    if recorder is None or not _has_grad(x) or is_wrapped(x):
        return x
    try:
        y = x.view_as(x)
        numbers = recorder.save(y.detach(), name, "grad", flags=sites.SLOT, numbers=True)
        if numbers is None:
            return x
        y.register_hook(_Gradient(recorder, here, name, numbers[0], numbers[1], True))
        return y
    except Exception as error:
        say_once(f"the gradient of {name} cannot be recorded: {error}")
        return x


def print_traced(x: Any, name: str = "") -> None:
    """What ``tensortap.print`` is inside a graph."""
    tensors: list[Any] = []
    _encode(x, tensors, False)
    for tensor in tensors:
        torch.ops.tensortap.tap_print(_local(tensor), sites.text(name))


# ------------------------------------------------------------------------------------------- graphs asking for Python


def _decode(text: str, at: int, tensors: list[Any]) -> tuple[Any, int]:
    """A value of a tree that ``_encode`` wrote, and where the text goes on; named tuples and dataclasses as dicts."""
    mark = text[at]
    at += 1
    if mark in "TGI":
        return (int(tensors.pop(0)) if mark == "I" else tensors.pop(0)), at
    if mark == "-" or mark == "n":
        return None, at
    if mark == "b":
        return text[at] == "1", at + 1
    end = text.index(";", at)
    word, at = text[at:end], end + 1
    if mark == "@":
        return _decode(text, at, tensors)
    if mark in _WORDS:
        return _WORDS[mark](word), at
    items: list[Any] = []
    keys: list[str] = []
    for _ in range(int(word)):
        if mark == "d":
            end = text.index(";", at)
            keys.append(_plain(text[at:end]))
            at = end + 1
        item, at = _decode(text, at, tensors)
        items.append(item)
    return (dict(zip(keys, items)) if mark == "d" else tuple(items) if mark == "t" else items), at


def _complex(word: str) -> complex:
    real, _, imag = word.partition(",")
    return complex(float(real), float(imag))


def _plain(text: str) -> str:
    return text.replace("%3B", ";").replace("%25", "%")


_WORDS: dict[str, Callable[[str], Any]] = {"i": int, "f": float, "c": _complex, "s": _plain, "x": _plain}


def ask(site: str, tensors: list[Any]) -> bool:
    """Does the predicate of the open recorder want the value of a tap inside a graph?"""
    recorder = _core.current()
    head, found, tree = site.partition(";tree=")
    value = _decode(tree, 0, list(tensors))[0] if found else tensors[0]
    return recorder is None or recorder.wanted(_plain(head.partition(";")[0]), value)


# ------------------------------------------------------------------------------------------------------- installing


def _register() -> None:
    """The operators, from C where this torch has the shim, else through torch.library."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    why = _core.torch_register(path)
    library = torch.library.Library("tensortap", "FRAGMENT")
    if why is not None:
        _core.say(f"torch {torch.__version__}: {why}; taps inside graphs go through Python and are slower")
        _register_in_python(library)
    else:
        for name in _FAKES:
            library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    _keep.append(library)
    for name, fake in _FAKES.items():
        torch.library.register_fake("tensortap::" + name, fake, lib=library)
        torch.fx.node.has_side_effect(getattr(torch.ops.tensortap, name).default)
    if hasattr(torch.library, "register_vmap"):
        for name in ("tap", "tap_tree", "tap_print", "tap_grad", "tap_ticket"):
            torch.library.register_vmap("tensortap::" + name, _batched(name), lib=library)


def _nothing(*args: Any) -> None:
    return None


def _fake_ticket(*args: Any) -> Any:
    return torch.empty(5, dtype=torch.int64, device="cpu")


_FAKES: dict[str, Callable[..., Any]] = {
    "tap": _nothing,
    "tap_tree": _nothing,
    "tap_ticket": _fake_ticket,
    "tap_grad": _nothing,
    "tap_print": _nothing,
}
_keep: list[Any] = []


def _batched(name: str) -> Callable[..., Any]:
    """Under vmap a tap saves the whole batch once, the mapped dimension first."""

    def first(x: Any, dim: Any) -> Any:
        if isinstance(x, list):
            return [first(item, at) for item, at in zip(x, dim)]
        return x if dim is None else x.movedim(dim, 0)

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        op = getattr(torch.ops.tensortap, name)
        return op(*(first(x, dim) for x, dim in zip(args, in_dims))), None

    return rule


def told_when_gone(numbers: Sequence[int], then: Callable[[], None]) -> Any:
    """A tensor of numbers that calls a function when its memory goes."""
    try:
        import numpy
    except ImportError:
        return torch.tensor(numbers)
    memory = numpy.array(numbers, dtype=numpy.int64)
    weakref.finalize(memory, then).atexit = False
    return torch.from_numpy(memory)


def _register_in_python(library: Any) -> None:
    def tap(x: Any, site: str, flags: int) -> None:
        _core.torch_op([x], site, flags, None)

    def tap_tree(xs: list[Any], site: str, flags: int) -> None:
        _core.torch_op(list(xs), site, flags, None)

    def tap_ticket(xs: list[Any], site: str, flags: int) -> Any:
        numbers = _core.torch_op(list(xs), site, flags | _core.WANTS_TICKET, None)
        return told_when_gone(numbers, lambda: _core.torch_drop(numbers[4]))

    def tap_grad(g: Any, ticket: Any, site: str) -> None:
        _core.torch_op([g], site, 0, tuple(ticket.tolist()))

    def tap_print(x: Any, site: str) -> None:
        _core.show(x, _plain(site))

    for schema, function in zip(_core.torch_schemas(), (tap, tap_tree, tap_ticket, tap_grad, tap_print)):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")


def install() -> None:
    """Once torch is imported: its operators, and what ``save`` needs of this module."""
    try:
        _register()
    except Exception as error:
        _core.say(f"torch {torch.__version__}: taps inside graphs are not available: {error}")
    make = getattr(getattr(torch._C, "_aoti", None), "alloc_tensor_by_stealing_from_void_ptr", None)
    _core.on_torch(save_traced, save_gradients, is_recompute, vars(torch.compiler), ask, make)
    frameworks.simplify_torch, frameworks.print_traced = simplify, print_traced
    frameworks.save_grad_torch = save_grad


def install_dynamo() -> None:
    """Once Dynamo is imported: what it traces where a C function of ours is called."""
    from .._record.recording import recording

    recording()
    if not hasattr(torch.compiler, "substitute_in_graph"):
        _core.say(f"torch {torch.__version__} cannot trace taps; they break the graph (torch 2.5 and later can)")
        return
    from .._record import taps

    torch._dynamo.allow_in_graph(several_in_graph)
    torch.fx.node.has_side_effect(several_in_graph)
    if not _HOOKS_ARE_TRACED:
        torch._dynamo.allow_in_graph(hook_in_graph)
        torch.fx.node.has_side_effect(hook_in_graph)

    torch.compiler.substitute_in_graph(_core.save, skip_signature_check=True)(save_traced)
    torch.compiler.substitute_in_graph(taps.print, skip_signature_check=True)(print_traced)


def install_sharded() -> None:
    """Once torch.distributed.tensor is imported: a traced tensor is told by its type alone."""
    from torch.distributed.tensor import DTensor

    state.sharded = DTensor


def install_partitioner() -> None:
    """AOTAutograd takes two equal calls for one, unless the operator is on its list of those that never are."""
    from torch._functorch import compile_utils

    never: Any = getattr(compile_utils, "rand_ops", None)
    if isinstance(never, list):
        never += [getattr(torch.ops.tensortap, name) for name in _FAKES]
    else:
        _core.say(f"torch {torch.__version__}: two equal taps in one compiled training graph may be recorded as one")


def install_checkpointing() -> None:
    """The partitioner may run a tap of the forward once more in the backward; here it learns not to."""
    from torch._functorch import partitioners
    from torch.utils import checkpoint

    original: Any = getattr(partitioners, "has_recomputable_ops", None)
    save = getattr(getattr(checkpoint, "CheckpointPolicy", None), "MUST_SAVE", None)
    if original is None or save is None:
        return

    def has_recomputable_ops(graph: Any) -> bool:
        for node in graph.graph.nodes:
            if getattr(node.target, "namespace", "") != "tensortap":
                continue
            where = {"is_forward": "must_be_in_forward", "is_backward": "must_be_in_backward"}
            tag = node.meta.get("partitioner_tag", "is_forward")
            is_ticket = node.target is torch.ops.tensortap.tap_ticket.default
            if _HOOKS_ARE_TRACED or not is_ticket:  # older ones lose a saved value that is marked so
                node.meta["partitioner_tag"] = where.get(tag, tag)
            if "recompute" in node.meta:
                if is_ticket:
                    node.meta["recompute"] = save
                else:
                    del node.meta["recompute"]
        return bool(original(graph))

    partitioners.has_recomputable_ops = has_recomputable_ops


def install_inductor() -> None:
    """Inductor reorders calls that do not need each other; each tap is made to need the one before it."""
    from torch._inductor import lowering

    for name in _FAKES:
        op = getattr(torch.ops.tensortap, name).default
        lowering.register_lowering(op, type_promotion_kind=None)(_in_order(op))


def _in_order(op: Any) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V
    from torch.utils._pytree import tree_map

    def wrap(x: Any) -> Any:
        if not isinstance(x, ir.IRNode):
            return x
        return x.wrap_for_lowering() if hasattr(x, "wrap_for_lowering") else ir.TensorBox.create(x)

    def lower(*args: Any, **kwargs: Any) -> Any:
        graph = V.graph
        before = len(graph.operations)
        result = tree_map(wrap, ir.FallbackKernel.create(op, *args, **kwargs))
        made = graph.operations[before:]
        previous = graph.__dict__.get("_tensortap_last")
        for operation in made:
            operation.has_side_effects = lambda: True
            if previous is not None and hasattr(graph, "additional_star_deps"):
                graph.additional_star_deps[operation.get_operation_name()].add(previous)
        if made:
            graph._tensortap_last = made[-1].get_name()
        return result

    return lower
