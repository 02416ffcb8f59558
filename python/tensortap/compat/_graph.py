"""``torch.npu.NPUGraph`` on a machine without an accelerator: the operators run under a capture, run again by replay.

A capture runs the operators once, to have their results, but leaves every tensor that was there before as it was: as
on a device, where capturing computes nothing. Replay runs them again and writes the results into the same tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_OURS = "tensortap_compat::"


class _Call:
    """One operator as it was captured."""

    __slots__ = ("args", "copies", "func", "kwargs", "outputs")

    def __init__(self, func: Any, args: Any, kwargs: Any, outputs: list[Any], copies: bool) -> None:
        self.func, self.args, self.kwargs, self.outputs, self.copies = func, args, kwargs, outputs, copies

    def again(self) -> None:
        """Run it, into the tensors it gave when it was captured."""
        result = self.func(*self.args, **self.kwargs)
        if not self.copies:
            return
        for before, now in zip(self.outputs, tree_iter(result), strict=True):
            if isinstance(before, torch.Tensor):
                before.detach().copy_(now)


def _writes(func: Any) -> list[int | str]:
    """Which arguments an operator changes: by position, or by name when they come by keyword."""
    found: list[int | str] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += [position, argument.name]
    return found


class _Capture(TorchDispatchMode):  # type: ignore[misc]
    """Notes the operators and runs them; values that were there before are kept to be put back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.made: set[int] = set()  # storages that came to be under the capture
        self.kept: dict[int, tuple[Any, Any]] = {}

    def _keep(self, tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self.made and storage._cdata not in self.kept:
            self.kept[storage._cdata] = (storage, storage.clone())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.name().startswith(_OURS):
            self.calls.append(_Call(func, args, kwargs, [], False))
            return None
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError(
                "a value was read (item(), print, if) while a graph is captured; it is not computed yet: "
                "read it after replay()"
            )
        for key in _writes(func):
            value = kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
            for tensor in tree_iter(value):
                self._keep(tensor)
        result = func(*args, **kwargs)
        aliased = any(each.alias_info is not None for each in func._schema.returns)
        outputs = list(tree_iter(result))
        if not aliased:
            for tensor in outputs:
                if isinstance(tensor, torch.Tensor):
                    self.made.add(tensor.untyped_storage()._cdata)
        self.calls.append(_Call(func, args, kwargs, outputs, not aliased))
        return result

    def put_back(self) -> None:
        """Undo what the capture changed."""
        for storage, before in self.kept.values():
            storage.copy_(before)
        self.kept.clear()


_capturing = threading.local()


def is_capturing() -> bool:
    """Whether this thread captures a graph of the CPU."""
    return bool(getattr(_capturing, "count", 0))


class _CpuGraph:
    """A captured graph of the CPU."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[_Call] | None = None
        self._capture: _Capture | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Start to capture; ``torch.npu.graph`` does it."""
        if self._capture is not None or is_capturing():
            raise RuntimeError("a graph is being captured already; end that capture first")
        self._capture = _Capture()
        self._capture.__enter__()
        _capturing.count = 1

    def capture_end(self) -> None:
        """End the capture."""
        capture = self._capture
        if capture is None:
            raise RuntimeError("capture_end without capture_begin")
        self._capture = None
        _capturing.count = 0
        capture.__exit__(None, None, None)
        capture.put_back()
        self._calls = capture.calls

    def replay(self) -> None:
        """Run the captured operators again, into the same tensors."""
        if self._calls is None:
            raise RuntimeError("nothing was captured; use torch.npu.graph(g) before g.replay()")
        with torch.no_grad():
            for call in self._calls:
                call.again()

    def reset(self) -> None:
        """Forget what was captured."""
        self._calls = None

    def pool(self) -> tuple[int, int]:
        """The memory pool: the CPU has one."""
        return (0, 0)


class _CpuGraphContext:
    """``with torch.npu.graph(g):``"""

    def __init__(
        self, npu_graph: _CpuGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self.graph = npu_graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.graph.capture_end()
        if kind is not None:
            self.graph.reset()


NPUGraph: Callable[..., Any] = torch.cuda.CUDAGraph if torch.cuda.is_available() else _CpuGraph
graph: Callable[..., Any] = torch.cuda.graph if torch.cuda.is_available() else _CpuGraphContext
