"""Tensors that the extension does not read itself, as values that it does: subclasses, other devices, torch.func."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .. import _core
from .._record.values import Simple, Traced, Unreadable, qualified

_RELAXED = 2  # the capture mode in which a thread may copy beside other threads' captures


def is_wrapped(x: Any) -> bool:
    """Is it a tensor of torch.func.vmap, grad, jvp, ...?"""
    functorch = torch._C._functorch
    return bool(functorch.is_functorch_wrapped_tensor(x))


def unwrapped(x: Any) -> Any:
    """The value behind torch.func's wrappers; the mapped dimensions of vmap come first."""
    functorch = torch._C._functorch
    if not is_wrapped(x):
        return x
    inside = functorch.get_unwrapped(x)
    if functorch.is_batchedtensor(x):
        dim = functorch.maybe_get_bdim(x)
        whole = unwrapped(inside)
        return whole.movedim(dim + whole.dim() - inside.dim(), 0)
    return unwrapped(inside)


def is_traced(x: Any) -> bool:
    """Does the tensor stand for a value of a graph that is being traced?"""
    name = type(x).__name__
    if name not in ("FakeTensor", "FunctionalTensor"):
        return False
    if name == "FunctionalTensor" or torch.compiler.is_exporting():
        return True
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


@contextlib.contextmanager
def _reading(x: Any) -> Iterator[None]:
    """Around what reads a tensor's numbers: captures elsewhere stay whole. Raises where x is part of one itself."""
    if x.device.type != "cuda":
        yield
        return
    why = _core.torch_capturing(x.device.index or 0)
    if why is not None:
        raise Unreadable(why)
    before = _core.capture_mode(_RELAXED)
    try:
        yield
    finally:
        _core.capture_mode(before)


def simplify(x: Any) -> Simple:
    """See ``values.simplify``. Raises Traced for a stand-in."""
    if is_traced(x):
        raise Traced
    if is_wrapped(x):
        with torch._C._DisableFuncTorch():
            return _without_operators(simplify(unwrapped(x)))
    grad = bool(x.requires_grad)
    name = None if type(x) is torch.Tensor else qualified(type(x))
    parts = _parts(x)
    if parts is not None:
        return parts, None, name or "torch.nested", grad, None, None
    placements = None
    with torch.no_grad():
        t = x.detach()
        if hasattr(t, "to_local") and hasattr(x, "placements"):
            placements = str(tuple(x.placements))
            t = t.to_local()
        device = None if t.device.type == "cpu" else str(t.device)
        if t.device.type == "meta" or type(t).__name__ == "FakeTensor":
            return tuple(int(n) for n in t.shape), str(t.dtype), name, grad, "meta", placements
        with _reading(t):
            if t.layout is not torch.strided:
                return _simple_sparse(t, grad, device)
            if t.is_quantized:
                return _simple_quantised(t, grad, device)
            check(t)
            t = t.cpu().resolve_conj().resolve_neg().as_subclass(torch.Tensor)
            return t, None, name, grad, device, placements


def _parts(x: Any) -> Any:
    """The tensors that a tensor of several is made of, by name; None: it is one."""
    if x.is_nested:
        if x.layout is torch.strided:
            return list(x.unbind())
        lengths = {} if x.lengths() is None else {"lengths": x.lengths()}
        return {"values": x.values(), "offsets": x.offsets(), **lengths}
    if type(x).__module__.startswith("torch.masked."):
        return {"data": x.get_data(), "mask": x.get_mask()}
    whole = (hasattr(x, "to_local") and hasattr(x, "placements")) or type(x).__name__ == "AsyncCollectiveTensor"
    if whole or not hasattr(x, "__tensor_flatten__"):
        return None
    names, _ = x.__tensor_flatten__()
    return {name: getattr(x, name) for name in names}


def check(t: Any) -> None:
    """Raise where the memory of a strided tensor must not, or cannot, be read."""
    if t.dim() > _core.MAX_NDIM:
        raise Unreadable(f"it has {t.dim()} dimensions; at most {_core.MAX_NDIM} can be recorded")
    if str(t.dtype).removeprefix("torch.") not in _core.DTYPES:
        raise Unreadable(f"its dtype {t.dtype} is none that can be recorded")
    if 0 in t.shape or t.device.type not in ("cpu", "cuda"):
        return  # the tensors of other backends may have no storage at all: torch's own copy reads them
    last = t.storage_offset() + sum((size - 1) * step for size, step in zip(t.shape, t.stride()))
    room = t.untyped_storage().nbytes()
    if (last + 1) * t.element_size() > room:
        raise Unreadable(f"its storage has {room} bytes, fewer than it needs; was it resized or freed?")


def _without_operators(simple: Simple) -> Simple:
    """Inside torch.func a torch without DLPack's exchange table wraps a tensor again whenever it is asked for its data:
    its memory as an array."""
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
