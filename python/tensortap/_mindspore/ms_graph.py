"""What taps are inside MindSpore's graphs. MindSpore parses the functions here in place of the ones people call, so
they keep to the Python that its compiler knows: no generators, no exceptions, strings only where they are constant.

Every leaf of a value is one operator of py_mindspore.c. The first gives a ticket (step and call), the further leaves
and the gradients take it. The operators have an effect, so no pass drops, merges or reorders them; a gradient comes
after the taps that stand before it, as it takes the result of one there.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy
from mindspore import Tensor, nn, ops
from mindspore.ops import functional
from mindspore.ops.primitive import constexpr

from .. import _core
from .._record import sites
from . import ms_taps


def _ticket_shape(*shapes: Any) -> tuple[int]:
    return (4,)


def _ticket_dtype(*dtypes: Any) -> Any:
    return mindspore.int64


def _operator(symbol: str, bprop: Any) -> Any:
    made = ops.Custom(
        f"{_core.__file__}:{symbol}", out_shape=_ticket_shape, out_dtype=_ticket_dtype, func_type="aot", bprop=bprop
    )
    made.add_prim_attr("side_effect_io", True)
    # where shapes are dynamic the shape of the result is asked for while the graph runs, in C
    made.add_prim_attr("cpp_infer_shape", True)
    made.add_prim_attr("reg_op_name", symbol)
    return made


# the gradient through a tap is none: MindSpore drops these zeros
_zeros = ops.ZerosLike()


def _none_of_one(x: Any, out: Any, dout: Any) -> Any:
    return (_zeros(x),)


def _none_of_two(site: Any, x: Any, out: Any, dout: Any) -> Any:
    return _zeros(site), _zeros(x)


def _none_of_three(site: Any, x: Any, ticket: Any, out: Any, dout: Any) -> Any:
    return _zeros(site), _zeros(x), _zeros(ticket)


_tap = _operator("tensortap_ms_tap", _none_of_two)
_more = _operator("tensortap_ms_more", _none_of_three)
_grad = _operator("tensortap_ms_grad", _none_of_three)
_here = _operator("tensortap_ms_here", _none_of_one)
_step = _operator("tensortap_ms_step", _none_of_one)
_print = _operator("tensortap_ms_print", _none_of_two)


class _GradTap(nn.Cell):  # type: ignore[misc]
    """x itself; its gradient is saved on its way back, with the numbers of a ticket."""

    def construct(self, x: Any, site: Any, ticket: Any) -> Any:
        return x

    def bprop(self, x: Any, site: Any, ticket: Any, out: Any, dout: Any) -> Any:
        _grad(site, dout, ticket)
        return dout, _zeros(site), _zeros(ticket)


class _LateTap(nn.Cell):  # type: ignore[misc]
    """x itself; its gradient is saved on its way back and counted when it comes, after the taps before it."""

    def construct(self, x: Any, site: Any, here: Any) -> Any:
        return x

    def bprop(self, x: Any, site: Any, here: Any, out: Any, dout: Any) -> Any:
        _tap(functional.depend(site, here), dout)
        return dout, _zeros(site), _zeros(here)


class _LatePrint(nn.Cell):  # type: ignore[misc]
    """x itself; its gradient is shown on its way back, after the taps before it."""

    def construct(self, x: Any, site: Any, here: Any) -> Any:
        return x

    def bprop(self, x: Any, site: Any, here: Any, out: Any, dout: Any) -> Any:
        _print(functional.depend(site, here), dout)
        return dout, _zeros(site), _zeros(here)


_grad_tap, _late_tap, _late_print = _GradTap(), _LateTap(), _LatePrint()

# ------------------------------------------------------------------------------- run by the compiler, on constants


@constexpr  # type: ignore[untyped-decorator]
def _bytes(text: Any) -> Any:
    return Tensor(numpy.frombuffer(text.encode("utf-8", "backslashreplace"), numpy.uint8).copy())


@constexpr  # type: ignore[untyped-decorator]
def _head(name: Any, kind: Any, step: Any, grad: Any) -> str:
    """The site of a native save."""
    return ms_taps.head(name, "forward" if kind is None else kind, step, bool(grad))


@constexpr  # type: ignore[untyped-decorator]
def _directory(save_dir: Any, name: Any, grad: Any) -> str:
    """The site of save(save_dir, name, data); opens the directory."""
    return ms_taps.directory_head(save_dir, name, bool(grad))


@constexpr  # type: ignore[untyped-decorator]
def _file(file: Any, suffix: Any) -> str:
    """The site of troubleshooter's save."""
    return ms_taps.file_head(file, suffix)


@constexpr  # type: ignore[untyped-decorator]
def _shown(file: Any, suffix: Any, path: Any) -> str:
    """The site of troubleshooter's save that prints."""
    return ms_taps.print_site(file, suffix, path)


@constexpr  # type: ignore[untyped-decorator]
def _below(path: Any, part: Any) -> str:
    return f"{path}\x1f{part}" if path else part


@constexpr  # type: ignore[untyped-decorator]
def _site(head: Any, path: Any) -> str:
    return f"{head};path={sites.text(path)}" if path else str(head)


@constexpr  # type: ignore[untyped-decorator]
def _constant(head: Any, path: Any, value: Any) -> str:
    tree = f"i{value};" if type(value) is int else sites.constant(value, type(value).__name__)
    return (f"{head};path={sites.text(path)}" if path else str(head)) + ";tree=" + tree


@constexpr  # type: ignore[untyped-decorator]
def _empty(head: Any, path: Any, kind: Any) -> str:
    return (f"{head};path={sites.text(path)}" if path else str(head)) + f";tree={kind}0;"


@constexpr  # type: ignore[untyped-decorator]
def _wrong(what: Any, head: Any, path: Any) -> str:
    return ms_taps.wrong(what, head, path)


@constexpr  # type: ignore[untyped-decorator]
def _wrong_kind(kind: Any) -> str:
    return ms_taps.wrong_kind(kind)


@constexpr  # type: ignore[untyped-decorator]
def _wrong_file(file: Any, mode: Any) -> str:
    return ms_taps.wrong_file(file, mode)


# raised by the graph, not by a function that runs while it is compiled: MindSpore then says which line of the model


def _refuse(what: Any, head: Any, path: Any) -> None:
    raise TypeError(_wrong(what, head, path))


def _check_kind(kind: Any) -> None:
    if _wrong_kind(kind) != "":
        raise ValueError(_wrong_kind(kind))


def _check_file(file: Any, mode: Any) -> None:
    if file is not None and not isinstance(file, str):
        raise TypeError(_wrong_file(file, mode))
    if _wrong_file(file, mode) != "":
        raise ValueError(_wrong_file(file, mode))


# ----------------------------------------------------------------------------------------------------------- saving


def _put(site: Any, x: Any, ticket: Any) -> Any:
    if ticket is None:
        return _tap(_bytes(site), x)
    return _more(_bytes(site), x, ticket)


def _leaves(value: Any, head: Any, path: Any, ticket: Any, strict: Any) -> Any:
    """Save every leaf; returns the ticket of the first."""
    if isinstance(value, Tensor):
        return _put(_site(head, path), value, ticket)
    if isinstance(value, (list, tuple)):
        mark = "i" if isinstance(value, list) else "t"
        if len(value) == 0 and not strict:
            return _put(_empty(head, path, "l" if isinstance(value, list) else "t"), _bytes("-"), ticket)
        for index in range(len(value)):
            ticket = _leaves(value[index], head, _below(path, mark + str(index)), ticket, strict)
        return ticket
    if isinstance(value, dict):
        if len(value) == 0 and not strict:
            return _put(_empty(head, path, "d"), _bytes("-"), ticket)
        for key in value.keys():
            ticket = _leaves(value[key], head, _below(path, "k" + str(key)), ticket, strict)
        return ticket
    if strict and value is None:
        return ticket
    if strict or not (value is None or isinstance(value, (bool, int, float, str))):
        _refuse("leaf", head, path)
        return ticket
    if not functional.isconstant(value):
        return _put(_site(head, path), functional.scalar_to_tensor(value), ticket)
    return _put(_constant(head, path, value), _bytes("-"), ticket)


def _with_gradients(value: Any, head: Any, path: Any, ticket: Any) -> Any:
    """The value, its tensors replaced by ones whose gradients are saved on their way back."""
    if isinstance(value, Tensor):
        if ticket is None:
            return _late_tap(value, _bytes(_site(head, path)), _here(_bytes("-")))
        return _grad_tap(value, _bytes(_site(head, path)), ticket)
    if isinstance(value, tuple):
        return _in_tuple(value, head, path, ticket, ())
    if isinstance(value, list):
        return _in_list(value, head, path, ticket, [])
    if isinstance(value, dict):
        return _in_dict(value, head, path, ticket, {})
    return value


def _in_tuple(value: Any, head: Any, path: Any, ticket: Any, items: Any) -> Any:
    for index in range(len(value)):
        items = items + (_with_gradients(value[index], head, _below(path, "t" + str(index)), ticket),)
    return items


def _in_list(value: Any, head: Any, path: Any, ticket: Any, items: Any) -> Any:
    for index in range(len(value)):
        items = items + [_with_gradients(value[index], head, _below(path, "i" + str(index)), ticket)]
    return items


def _in_dict(value: Any, head: Any, path: Any, ticket: Any, items: Any) -> Any:
    for key in value.keys():
        items[key] = _with_gradients(value[key], head, _below(path, "k" + str(key)), ticket)
    return items


def _check_leaves(value: Any, head: Any, path: Any) -> None:
    """Only tensors, in lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        for index in range(len(value)):
            _check_leaves(value[index], head, _below(path, "i" + str(index)))
    elif isinstance(value, dict):
        for key in value.keys():
            _check_leaves(value[key], head, _below(path, "k" + str(key)))
    elif value is not None and not isinstance(value, Tensor):
        _refuse("leaf", head, path)


def save(
    value: Any = None,
    name: Any = None,
    kind: Any = None,
    step: Any = None,
    grad: Any = False,
    save_dir: Any = None,
    data: Any = None,
) -> Any:
    """``tensortap.mindspore.save`` and ``tensortap.save``."""
    if save_dir is not None:
        value, kind = save_dir, (data if data is not None else kind)
    elif data is not None and isinstance(value, str):
        kind = data
    if not isinstance(name, str):
        _refuse("name", "", "")
    if isinstance(value, str):
        if kind is None:
            _refuse("data", "", "")
        _leaves(kind, _directory(value, name, False), "", None, 1)
        return None
    _check_kind(kind)
    if grad:
        ticket = _leaves(value, _head(name, kind, step, True), "", None, 0)
        return _with_gradients(value, _head(name, "grad", None, False), "", ticket)
    _leaves(value, _head(name, kind, step, False), "", None, 0)  # a result that nobody names keeps its effect
    return None


def save_grad(x: Any = None, name: Any = None, data: Any = None, save_dir: Any = None) -> Any:
    """``tensortap.mindspore.save_grad`` and ``tensortap.save_grad``."""
    if save_dir is not None:
        x = save_dir
    if not isinstance(name, str):
        _refuse("name", "", "")
    if isinstance(x, str):
        if data is None:
            _refuse("data", "", "")
        head = _directory(x, name, True)
        _check_leaves(data, head, "")
        return _with_gradients(data, head, "", None)
    _check_leaves(x, name, "")
    ticket = _leaves(x, _head(name, "announce", None, False), "", None, 0)
    return _with_gradients(x, _head(name, "grad", None, False), "", ticket)


def step() -> None:
    """``tensortap.mindspore.step``."""
    _step(_bytes("-"))


# --------------------------------------------------------------------------------------------------- troubleshooter


def _show(value: Any, file: Any, suffix: Any, path: Any) -> None:
    if isinstance(value, Tensor):
        _print(_bytes(_shown(file, suffix, path)), value)
    elif isinstance(value, (list, tuple)):
        for index in range(len(value)):
            _show(value[index], file, suffix, _below(path, "k" + str(index)))
    elif isinstance(value, dict):
        for key in value.keys():
            _show(value[key], file, suffix, _below(path, "k" + str(key)))
    elif value is not None:
        _refuse("leaf", file, path)


def trouble_save(file: Any, data: Any, suffix: Any = None, output_mode: Any = "npy") -> None:
    """``troubleshooter.save``."""
    _check_file(file, output_mode)
    if output_mode == "print":
        _show(data, file, suffix, "")
    else:
        _files(data, _file(file, suffix), "")


def _files(value: Any, head: Any, path: Any) -> None:
    """One file a tensor, each with a number of its own."""
    if isinstance(value, Tensor):
        _tap(_bytes(_site(head, path)), value)
    elif isinstance(value, (list, tuple)):
        for index in range(len(value)):
            _files(value[index], head, _below(path, "k" + str(index)))
    elif isinstance(value, dict):
        for key in value.keys():
            _files(value[key], head, _below(path, "k" + str(key)))
    elif value is not None:
        _refuse("leaf", head, path)


def trouble_save_grad(file: Any, data: Any, suffix: Any = "backward", output_mode: Any = "npy") -> Any:
    """``troubleshooter.save_grad``."""
    if not isinstance(data, Tensor):
        _refuse("tensor", "", "")
    _check_file(file, output_mode)
    if output_mode == "print":
        return _late_print(data, _bytes(_shown(file, suffix, "")), _here(_bytes("-")))
    return _late_tap(data, _bytes(_file(file, suffix)), _here(_bytes("-")))


def debugger_save(variable: Any, name: Any, save_backward: Any = True) -> None:
    """``PrecisionDebugger.save``, which graphs do not have."""
    _refuse("debugger", "", "")
