"""How Python values become recorded ones: which kind each type is, and what rarer values are turned into.

The C half asks ``classify`` once per type and takes the common kinds itself; ``simplify`` turns the rest (subclasses,
tensors on other devices, dtypes of extension packages, dataclasses, sets) into those.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

# the value_kind of py_value.c
OTHER, NONE, BOOL, INT, FLOAT, COMPLEX, STR, BYTES, LIST, TUPLE, DICT, ARRAY, TORCH, SKIPPED, MINDSPORE = range(15)



class Skip:
    """The type of SKIP, which takes the place of a leaf that is left out of a save."""


SKIP = Skip()


class Traced(Exception):
    """Raised for a value that stands for one of a graph being traced: the tap itself belongs into the graph."""


_EXACT: dict[type, int] = {
    type(None): NONE,
    bool: BOOL,
    int: INT,
    float: FLOAT,
    complex: COMPLEX,
    str: STR,
    bytes: BYTES,
    list: LIST,
    tuple: TUPLE,
    dict: DICT,
    Skip: SKIPPED,
}
_PLAIN_TENSORS = {("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("torch.nn.parameter", "Buffer")}

_MINDSPORE_TENSORS = {("mindspore.common.tensor", "Tensor"), ("mindspore.common.parameter", "Parameter")}

# (value, dtype, type name, requires_grad, device, placements): see take_other in py_value.c
Simple = tuple[Any, str | None, str | None, bool, str | None, str | None]


def _qualified(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def classify(cls: type) -> tuple[int, str | None]:
    """The kind of a type's values, and the name to record with them where the kind does not say it.

    >>> classify(dict) == (DICT, None)
    True
    """
    exact = _EXACT.get(cls)
    if exact is not None:
        return exact, None
    if (cls.__module__, cls.__qualname__) in _PLAIN_TENSORS:
        return TORCH, None
    if (cls.__module__, cls.__qualname__) in _MINDSPORE_TENSORS:
        return MINDSPORE, None
    numpy = sys.modules.get("numpy")
    if numpy is not None and cls is numpy.ndarray:
        return ARRAY, None
    if numpy is not None and issubclass(cls, numpy.generic):
        return ARRAY, None
    if issubclass(cls, (list, tuple)) and not hasattr(cls, "_fields"):
        return (LIST if issubclass(cls, list) else TUPLE), _qualified(cls)
    if issubclass(cls, dict):
        return DICT, _qualified(cls)
    return OTHER, None


def _simple(value: Any, type_name: str | None = None) -> Simple:
    return value, None, type_name, False, None, None


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _simplify_torch(x: Any) -> Simple:
    import torch

    from .._torch.torch_taps import is_traced, is_wrapped, unwrapped

    if is_traced(x):
        raise Traced
    if is_wrapped(x):
        with torch._C._DisableFuncTorch():
            return _without_operators(_simplify_torch(unwrapped(x)))
    grad = bool(x.requires_grad)
    name = None if type(x) is torch.Tensor else _qualified(type(x))
    placements = None
    with torch.no_grad():
        t = x.detach()
        if hasattr(t, "to_local") and hasattr(x, "placements"):
            placements = str(tuple(x.placements))
            t = t.to_local()
        device = None if t.device.type == "cpu" else str(t.device)
        if t.device.type == "meta" or type(t).__name__ == "FakeTensor":
            return tuple(int(n) for n in t.shape), str(t.dtype), name, grad, "meta", placements
        if t.layout is not torch.strided:
            return _simple_sparse(t, grad, device)
        if t.is_quantized:
            return _simple_quantised(t, grad, device)
        t = t.cpu().resolve_conj().resolve_neg().as_subclass(torch.Tensor)
        return t, None, name, grad, device, placements


def _without_operators(simple: Simple) -> Simple:
    """Inside torch.func a torch without DLPack's exchange table wraps a tensor again whenever it is asked for its data:
    its memory as an array."""
    import torch

    t = simple[0]
    if not isinstance(t, torch.Tensor) or hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return simple
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[t.element_size()]
    array = t.contiguous().view(bits).numpy()
    return array, str(t.dtype), *simple[2:]


def _simple_sparse(t: Any, grad: bool, device: str | None) -> Simple:
    name = str(t.layout)
    if name == "torch.sparse_coo":
        t = t.coalesce()
        parts = {"indices": t.indices(), "values": t.values()}
    elif name in ("torch.sparse_csr", "torch.sparse_bsr"):
        parts = {"crow_indices": t.crow_indices(), "col_indices": t.col_indices(), "values": t.values()}
    elif name in ("torch.sparse_csc", "torch.sparse_bsc"):
        parts = {"ccol_indices": t.ccol_indices(), "row_indices": t.row_indices(), "values": t.values()}
    else:
        parts = {"values": t.to_dense()}
    parts["shape"] = tuple(t.shape)
    return parts, None, name, grad, device, None


def _simple_quantised(t: Any, grad: bool, device: str | None) -> Simple:
    parts = {"values": t.int_repr().cpu()}
    if "per_tensor" in str(t.qscheme()):
        parts |= {"scale": float(t.q_scale()), "zero_point": int(t.q_zero_point())}
    else:
        parts |= {
            "scales": t.q_per_channel_scales().cpu(),
            "zero_points": t.q_per_channel_zero_points().cpu(),
            "axis": int(t.q_per_channel_axis()),
        }
    return parts, None, str(t.dtype), grad, device, None


def _simplify_array(x: Any) -> Simple | None:
    """An array that C did not take: byte order, alignment, odd strides, dtypes of extension packages."""
    import numpy as np

    a = np.asarray(x)
    if a.dtype.name in _EXTENSION_DTYPES:
        return np.require(a, requirements=["C", "A"]).reshape(a.shape), a.dtype.name, None, False, None, None
    if type(a) is not type(x) and a.dtype.kind in "biufcmM" and a.dtype.isnative and a.dtype.itemsize <= 8:
        return _simple(np.ascontiguousarray(a).reshape(a.shape), _qualified(type(x)))
    kind = a.dtype.kind
    if kind in "OUS" or a.dtype.names is not None:
        return _simple(a.tolist(), f"numpy.ndarray[{a.dtype}]")
    if kind == "f" and a.dtype.itemsize > 8:
        return _simple(a.astype(np.float64), f"numpy.{a.dtype}")
    if kind == "c" and a.dtype.itemsize > 16:
        return _simple(a.astype(np.complex128), f"numpy.{a.dtype}")
    if kind in "biufcmM" and a.dtype.type.__module__ == "numpy":
        native = a.astype(a.dtype.newbyteorder("="))
        return _simple(np.require(native, requirements=["C", "A"]).reshape(a.shape))
    if a.dtype.type.__module__ != "numpy":  # of an extension package, and none of ours
        wide = np.complex64 if "complex" in a.dtype.name else np.float32
        return _simple(a.astype(wide), f"numpy.{a.dtype.name}")
    return None


_EXTENSION_DTYPES = {
    "bfloat16",
    "complex32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
}


def simplify(x: Any, nested: bool) -> Simple:
    """A value C does not take itself, as one that it does.

    >>> simplify({1, 2}, False)[0]
    [1, 2]
    """
    cls = type(x)
    if _is_torch(x):
        return _simplify_torch(x)
    if (cls.__module__, cls.__qualname__) in _MINDSPORE_TENSORS:
        x = x.asnumpy()
    if hasattr(x, "__array_struct__") or hasattr(x, "__array_interface__"):
        simple = _simplify_array(x)
        if simple is not None:
            return simple
    if isinstance(x, tuple) and hasattr(cls, "_fields"):
        return _simple(dict(zip(cls._fields, x, strict=False)), _qualified(cls))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return _simple({f.name: getattr(x, f.name, None) for f in dataclasses.fields(x)}, _qualified(cls))
    scalars: tuple[Any, ...] = (int, float, complex, str, bytes)
    for base in scalars:
        if isinstance(x, base):
            return _simple(base(x), _qualified(cls))
    if isinstance(x, (bytearray, memoryview)):
        return _simple(bytes(x), _qualified(cls))
    if isinstance(x, Mapping):
        return _simple(dict(x), _qualified(cls))
    if isinstance(x, Set):
        return _simple(sorted(x, key=repr), _qualified(cls))
    if hasattr(x, "__dlpack__"):
        import numpy as np

        return _simple(np.from_dlpack(x), _qualified(cls))
    if hasattr(x, "__array__"):
        import numpy as np

        return _simple(np.asarray(x), _qualified(cls))
    if isinstance(x, Sequence):
        return _simple(list(x), _qualified(cls))
    if nested:
        return _simple(repr(x), _qualified(cls))
    raise TypeError(
        f"save: cannot record a {_qualified(cls)}; give an array, a tensor, a number, a str, "
        "or a list, tuple or dict of them"
    )
