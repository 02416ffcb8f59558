"""npu devices as CUDA, or as the CPU where there is no CUDA: what ``torch.npu`` is, and the changes to torch.

Functions that take a device get theirs translated on the way in, and ``torch.device("npu:0")`` gives the device that
stands in. torch is not told of a device of that name: it would take it for its accelerator, also beside CUDA.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import torch

from .._record import directories
from ._graph import NPUGraph, graph

__all__ = [
    "Event", "NPUGraph", "Stream", "change_torch", "current_device", "current_stream", "default_stream", "device",
    "device_count", "empty_cache", "get_device_name", "graph", "is_available", "is_initialized", "manual_seed",
    "manual_seed_all", "set_device", "stream", "synchronize",
]  # fmt: skip

_cpu_device = 0


def _has_cuda() -> bool:
    return bool(torch.cuda.is_available())


def is_available() -> bool:
    """Always: there is CUDA or the CPU."""
    return True


def is_initialized() -> bool:
    """Always: nothing has to be set up."""
    return True


def device_count() -> int:
    """CUDA devices, or one a process of this machine."""
    if _has_cuda():
        return int(torch.cuda.device_count())
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdigit() else 1


def _number(device: Any) -> int:
    if isinstance(device, int):
        return device
    if device is None:
        return current_device()
    index = torch.device(device).index if isinstance(device, str) else device.index
    return current_device() if index is None else int(index)


def current_device() -> int:
    """The number set by set_device, else 0."""
    return int(torch.cuda.current_device()) if _has_cuda() else _cpu_device


def set_device(device: Any) -> None:
    """Choose the device; on the CPU only its number is remembered."""
    global _cpu_device
    if _has_cuda():
        torch.cuda.set_device(_number(device))
    else:
        _cpu_device = _number(device)


def get_device_name(device: Any = None) -> str:
    """The name of the device that stands in."""
    return str(torch.cuda.get_device_name(_number(device))) if _has_cuda() else "cpu"


def synchronize(device: Any = None) -> None:
    """Wait for the device, and for the files that were being written."""
    if _has_cuda():
        torch.cuda.synchronize(_number(device))
    directories.flush()


def empty_cache() -> None:
    """Give unused device memory back."""
    if _has_cuda():
        torch.cuda.empty_cache()


def manual_seed(seed: int) -> None:
    """Seed the device's generator: the CPU's where that stands in."""
    if _has_cuda():
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    if _has_cuda():
        torch.cuda.manual_seed_all(seed)
    else:
        torch.default_generator.manual_seed(int(seed))


class device:
    """``with torch.npu.device(1):``"""

    def __init__(self, device: Any) -> None:
        self.index = _number(device)

    def __enter__(self) -> None:
        self.before = current_device()
        set_device(self.index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_device(self.before)


class _CpuStream:
    """A stream of the CPU: everything is done when the call returns."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device = torch.device("cpu")
        self.priority = priority

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Any = None) -> Any:
        """An event that is over."""
        event = event or _CpuEvent()
        event.record(self)
        return event

    def query(self) -> bool:
        """Always done."""
        return True


class _CpuEvent:
    """An event of the CPU, with the time it was recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        import time

        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing is under way."""

    def query(self) -> bool:
        """Always done."""
        return True

    def elapsed_time(self, end: _CpuEvent) -> float:
        """Milliseconds to another event."""
        return (end.at - self.at) * 1000


Stream: Any = torch.cuda.Stream if torch.cuda.is_available() else _CpuStream
Event: Any = torch.cuda.Event if torch.cuda.is_available() else _CpuEvent
_stream = _CpuStream()


def current_stream(device: Any = None) -> Any:
    """The stream work goes to."""
    return torch.cuda.current_stream(device) if _has_cuda() else _stream


def default_stream(device: Any = None) -> Any:
    """The device's default stream."""
    return torch.cuda.default_stream(device) if _has_cuda() else _stream


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Send the work of a block to a stream."""
    if _has_cuda():
        with torch.cuda.stream(stream):
            yield
    else:
        yield


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(torch.cuda, name):
        raise AttributeError(f"torch.npu.{name} is not there under tensortap.compat")
    return getattr(torch.cuda, name)


# ------------------------------------------------------------------------------------------------------ translation


def _translate(value: Any) -> Any:
    """npu as what stands in for it; anything else as it is."""
    if isinstance(value, str) and (value == "npu" or value.startswith("npu:")):
        if _has_cuda():
            return "cuda" + value[3:]
        return "cpu"
    return value


def _plain() -> torch.device:
    return torch.device("cuda" if _has_cuda() else "cpu")


_real_device: Any = torch.device


class _DeviceType(type):
    """Calling it makes a real device; asking whether something is one, or what it has, goes to the real type."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and args[0] == "npu" and len(args) > 1 and not _has_cuda():
            args = ("cpu",)
        if kwargs.get("type") == "npu":
            kwargs = {"type": _translate("npu")} | ({"index": kwargs.get("index")} if _has_cuda() else {})
        return _real_device(*[_translate(arg) for arg in args], **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real_device)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _real_device) or other is cls

    def __eq__(cls, other: object) -> bool:  # so that tables by type find either
        return other is cls or other is _real_device

    def __hash__(cls) -> int:
        return hash(_real_device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_real_device, name)


@contextmanager
def real_device() -> Iterator[None]:
    """Parts of torch make tables by type when they are imported: they are to see the real type."""
    target: Any = torch
    stand_in, target.device = torch.device, _real_device
    try:
        yield
    finally:
        target.device = stand_in


def _change_device() -> None:
    import copyreg

    stand_in: Any = _DeviceType("device", (), {"__module__": "torch", "__doc__": _real_device.__doc__})
    copyreg.pickle(_real_device, lambda made: (torch.device, (str(made),)))
    target: Any = torch
    target.device = stand_in


def _takes_device(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _translate(kwargs["device"])
        return function(*args, **kwargs)

    return translated


def _takes_anywhere(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        return function(*[_translate(arg) for arg in args], **{key: _translate(arg) for key, arg in kwargs.items()})

    return translated


# ops whose device comes as a keyword, and calls that take it anywhere
_FACTORIES = (
    "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty", "empty_like", "empty_permuted",
    "empty_strided", "eye", "frombuffer", "full", "full_like", "hamming_window", "hann_window", "kaiser_window",
    "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "range", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csr_tensor", "tensor",
    "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


def _backend(name: Any) -> Any:
    if not isinstance(name, str) or "hccl" not in name.lower():
        return name
    there = "nccl" if _has_cuda() else "gloo"
    if ":" not in name:
        return there
    name = re.sub("(?i)hccl", there, name)
    parts = [part.replace("npu:", "cuda:" if _has_cuda() else "cpu:") for part in name.split(",")]
    return ",".join(dict.fromkeys(parts))


def _takes_backend(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], _backend(args[position]), *args[position + 1 :])
        if "backend" in kwargs:
            kwargs["backend"] = _backend(kwargs["backend"])
        if "device_id" in kwargs:  # a device of the group: gloo takes none
            moved = _translate(kwargs["device_id"])
            kwargs["device_id"] = None if getattr(moved, "type", "cpu") == "cpu" else moved
        return function(*args, **kwargs)

    return translated


def _to_npu(self: Any, device: Any = None, non_blocking: bool = False, **more: Any) -> Any:
    """Move to the device that stands in for the npu."""
    if isinstance(device, int):
        device = f"npu:{device}"
    target = _translate("npu" if device is None else device)
    if isinstance(self, torch.nn.Module):
        return self.to(target)
    return self.to(target, non_blocking=non_blocking)


def _is_npu(self: torch.Tensor) -> bool:
    return bool(self.device.type == _plain().type)


_changed = False


def change_torch() -> None:
    """Teach torch what npu means, once."""
    global _changed
    if _changed or getattr(torch, "npu", None) is not None:
        return
    _changed = True
    import sys

    module: ModuleType = sys.modules[__name__]
    target: Any = torch
    target.npu = module
    sys.modules["torch.npu"] = module
    target.Tensor.npu = target.nn.Module.npu = _to_npu
    target.Tensor.is_npu = property(_is_npu)
    for name in _FACTORIES:
        if hasattr(torch, name):
            setattr(torch, name, _takes_device(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, _takes_device(getattr(torch.Tensor, name)))
    target.Tensor.to = _takes_anywhere(torch.Tensor.to)
    target.nn.Module.to = _takes_anywhere(torch.nn.Module.to)
    target.load = _takes_anywhere(torch.load)
    target.set_default_device = _takes_anywhere(torch.set_default_device)
    from torch.utils import _device

    context: Any = _device.DeviceContext
    context.__init__ = _takes_anywhere(context.__init__)
    target.autocast.__init__ = _takes_anywhere(torch.autocast.__init__)
    target.Generator = _generator(torch.Generator)
    _change_distributed()
    _change_library()
    target.compile = _compile(torch.compile)
    _change_device()
    from . import _ops

    _ops.define()


@functools.cache
def _prepare_compile() -> None:
    """Name the backends: not before, it imports the compiler."""
    from . import _backends

    _backends.register()


def _compile(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def compile(*args: Any, **kwargs: Any) -> Any:
        _prepare_compile()
        return real(*args, **kwargs)

    return compile


def _generator(real: Any) -> Any:
    class Generator(real):  # type: ignore[misc]
        """torch.Generator, also of an npu."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return real.__new__(cls, _translate(device))

    return Generator


def _change_library() -> None:
    """Kernels for the npu (PrivateUse1) also serve what stands in for it; one for the CPU itself wins."""
    library: Any = torch.library.Library
    real = library.impl
    mapped: set[tuple[str, str]] = set()

    @functools.wraps(real)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **more: Any) -> Any:
        key = dispatch_key or self.dispatch_key
        name = self._resolve_op_name(op_name, "impl") if hasattr(self, "_resolve_op_name") else str(op_name)
        name = name if "::" in name else f"{self.ns}::{name}"
        if (name, key) in mapped:  # the kernel that was put there for the npu's makes way
            mapped.discard((name, key))
            more["allow_override"] = True
        real(self, op_name, fn, dispatch_key, **more)
        theirs = not str(getattr(fn, "__module__", "")).startswith("torch.")  # torch sees to its own
        for stand_in in ("CPU", "CUDA") if key == "PrivateUse1" and theirs else ():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, stand_in):
                real(self, op_name, fn, stand_in, **more)
                mapped.add((name, stand_in))

    library.impl = impl


def _change_distributed() -> None:
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    core: Any = distributed_c10d
    distributed.init_process_group = core.init_process_group = _takes_backend(core.init_process_group, 0)
    distributed.new_group = core.new_group = _takes_backend(core.new_group, 2)
    distributed.is_hccl_available = lambda: True
