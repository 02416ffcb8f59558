"""How Python values become recorded ones: which kind each type is, and what rarer values are turned into.

The C half asks ``classify`` once per type and takes the common kinds itself; ``simplify`` turns the rest (subclasses,
tensors on other devices, dtypes of extension packages, dataclasses, sets) into those.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

from . import frameworks

MOST_ITEMS = 1 << 20  # leaves of one value


class Skip:
    """The type of SKIP, which takes the place of a leaf that is left out of a save."""


SKIP = Skip()


class Unreadable(ValueError):
    """Raised for a value that cannot be recorded. It is lost: one warning, and ``verify`` gives this text."""


class Lost:
    """Takes the place of a value that could not be read: ``verify`` gives the reason."""

    def __init__(self, error: BaseException) -> None:
        self.reason = reason_of(error)


def reason_of(error: BaseException) -> str:
    """Why a value is lost, in one line.

    >>> reason_of(RuntimeError("no such thing\\nat line 3"))
    'RuntimeError: no such thing'
    """
    text = (str(error).strip().splitlines() or [""])[0][:300]
    return text if isinstance(error, Unreadable) else f"{type(error).__name__}: {text}".rstrip(": ")


class Traced(Exception):
    """Raised for a value that stands for one of a graph being traced: the tap itself belongs into the graph."""


_EXACT: dict[type, str] = {
    type(None): "NONE",
    bool: "BOOL",
    int: "INT",
    float: "FLOAT",
    complex: "COMPLEX",
    str: "STR",
    bytes: "BYTES",
    list: "LIST",
    tuple: "TUPLE",
    dict: "DICT",
    Skip: "SKIP",
}
_PLAIN_TENSORS = {("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("torch.nn.parameter", "Buffer")}

_MINDSPORE_TENSORS = {("mindspore.common.tensor", "Tensor"), ("mindspore.common.parameter", "Parameter")}

# (value, dtype, type name, requires_grad, device, placements): see take_other in py_value.c
Simple = tuple[Any, str | None, str | None, bool, str | None, str | None]


def qualified(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def classify(cls: type) -> tuple[str, str | None]:
    """The kind of a type's values, one of VALUE_KIND_MAP in py_value.c, and the name to record where it says more.

    >>> classify(dict)
    ('DICT', None)
    """
    exact = _EXACT.get(cls)
    if exact is not None:
        return exact, None
    if (cls.__module__, cls.__qualname__) in _PLAIN_TENSORS:
        return "TORCH", None
    if (cls.__module__, cls.__qualname__) in _MINDSPORE_TENSORS:
        return "MINDSPORE", None
    numpy = sys.modules.get("numpy")
    if numpy is not None and cls is numpy.ndarray:
        return "ARRAY", None
    if numpy is not None and issubclass(cls, numpy.generic):
        return "ARRAY", None
    if issubclass(cls, (list, tuple)) and not hasattr(cls, "_fields"):
        return ("LIST" if issubclass(cls, list) else "TUPLE"), qualified(cls)
    if issubclass(cls, dict):
        return "DICT", qualified(cls)
    return "OTHER", None


def _simple(value: Any, type_name: str | None = None) -> Simple:
    return value, None, type_name, False, None, None


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _simplify_array(x: Any) -> Simple | None:
    """An array that C did not take: byte order, alignment, odd strides, dtypes of extension packages."""
    import numpy as np

    if isinstance(x, np.ma.MaskedArray):
        return _simple({"data": x.data, "mask": np.ma.getmaskarray(x)}, qualified(type(x)))
    a = np.asarray(x)
    if type(a) is not type(x):
        return _simple(a, None if isinstance(x, np.generic) else qualified(type(x)))
    if not _is_numpys(a.dtype) and a.dtype.name in _dtypes():
        return np.require(a, requirements=["C", "A"]).reshape(a.shape), a.dtype.name, None, False, None, None
    kind = a.dtype.kind
    if kind in "OUST" or a.dtype.names is not None:
        return _simple(_listed(a), f"numpy.ndarray[{a.dtype}]")
    if kind == "V" and a.dtype.type is np.void:
        raise Unreadable(f"an array of {a.dtype.str} holds bytes without a meaning; view it as another dtype")
    if kind == "f" and a.dtype.itemsize > 8:
        return _simple(a.astype(np.float64), f"numpy.{a.dtype}")
    if kind == "c" and a.dtype.itemsize > 16:
        return _simple(a.astype(np.complex128), f"numpy.{a.dtype}")
    if kind in "biufcmM" and _is_numpys(a.dtype):
        native = a.astype(a.dtype.newbyteorder("="))
        return _simple(np.require(native, requirements=["C", "A"]).reshape(a.shape))
    if not _is_numpys(a.dtype):  # of an extension package, and none of ours
        wide = np.complex64 if "complex" in a.dtype.name else np.float32
        return _simple(a.astype(wide), f"numpy.{a.dtype.name}")
    return None


def _is_numpys(dtype: Any) -> bool:
    return getattr(dtype.type, "__module__", "") == "numpy"  # MindSpore's bfloat16 has none


def _dtypes() -> dict[str, int]:
    from .. import _core  # which asks for this module while it is made

    return _core.DTYPES


def _listed(a: Any) -> Any:
    """The values of an array that are no numbers."""
    if a.size > MOST_ITEMS:
        raise Unreadable(f"an array of {a.size} values of {a.dtype}, which are no numbers, is too large")
    return a.tolist()


def _listed_once(x: Any) -> list[Any]:
    """A container that may be as long as it likes, such as a range."""
    if len(x) > MOST_ITEMS:
        raise Unreadable(f"it has {len(x)} leaves; make it an array")
    return list(x)


def simplify(x: Any, nested: bool) -> Simple:
    """A value C does not take itself, as one that it does.

    >>> simplify({1, 2}, False)[0]
    [1, 2]
    """
    cls = type(x)
    if cls is Lost:
        raise Unreadable(x.reason)
    if frameworks.simplify_torch is not None and _is_torch(x):
        return frameworks.simplify_torch(x)
    if (cls.__module__, cls.__qualname__) in _MINDSPORE_TENSORS:
        x = x.asnumpy()
    if hasattr(x, "__array_struct__") or hasattr(x, "__array_interface__"):
        simple = _simplify_array(x)
        if simple is not None:
            return simple
    if isinstance(x, tuple) and hasattr(cls, "_fields"):
        return _simple(dict(zip(cls._fields, x, strict=False)), qualified(cls))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return _simple({f.name: getattr(x, f.name, None) for f in dataclasses.fields(x)}, qualified(cls))
    scalars: tuple[Any, ...] = (int, float, complex, str, bytes)
    for base in scalars:
        if isinstance(x, base):
            return _simple(base(x), qualified(cls))
    if isinstance(x, (bytearray, memoryview)):
        return _simple(bytes(x), qualified(cls))
    if isinstance(x, Mapping):
        return _simple(dict(x), qualified(cls))
    if isinstance(x, Set):
        return _simple(sorted(_listed_once(x), key=repr), qualified(cls))
    if hasattr(x, "__dlpack__"):
        import numpy as np

        return _simple(np.from_dlpack(x), qualified(cls))
    if hasattr(x, "__array__"):
        import numpy as np

        return _simple(np.asarray(x), qualified(cls))
    if isinstance(x, Sequence):
        return _simple(_listed_once(x), qualified(cls))
    if nested:
        return _simple(repr(x), qualified(cls))
    raise Unreadable(
        f"a {qualified(cls)} is nothing that can be recorded; give an array, a tensor, a number, a str, "
        "or a list, tuple or dict of them"
    )
