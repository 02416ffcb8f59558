"""Values that nobody can record: makers of them, by name, for test_strange.py. Each call makes a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch


def freed() -> Any:
    """As FSDP leaves a parameter between its uses."""
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    return x


def shrunk(make: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    def value() -> Any:
        x = make()
        x.untyped_storage().resize_(40)
        return x

    return value


def conjugate() -> Any:
    x = torch.ones(100_000, dtype=torch.complex64)
    x.untyped_storage().resize_(40)
    return x.conj()


def outside(step: int) -> Callable[[], Any]:
    def value() -> Any:
        return numpy.lib.stride_tricks.as_strided(numpy.ones(4), (10_000_000,), (step,))

    return value


def cycle() -> Any:
    """Twice inside itself: a walk of all its paths would never end."""
    value: list[Any] = []
    value += [value, value]
    return value


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("it has no repr")


class NoArray:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("it has no array")


class NoKeys:
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


TENSORS: dict[str, Callable[[], Any]] = {
    "freed": freed,
    "shrunk": shrunk(lambda: torch.ones(100_000)),
    "shrunk view": shrunk(lambda: torch.ones(200_000)[1::2]),
    "shrunk transposed": shrunk(lambda: torch.ones(400, 500, dtype=torch.bfloat16).t()),
    "conjugate": conjugate,
    "bits8": lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
    "65 dimensions": lambda: torch.zeros((1,) * 65),
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "void": lambda: numpy.zeros(3, dtype="V8"),
    "void scalar": lambda: numpy.zeros(3, dtype="V8")[0],
    "as_strided": outside(8),
    "as_strided backwards": outside(-8),
}
OBJECTS: dict[str, Callable[[], Any]] = {
    "object": object,
    "generator": lambda: (i for i in range(3)),
    "10**5000": lambda: 10**5000,
    "cycle": cycle,
    "no repr": lambda: [NoRepr()],
    "no array": NoArray,
    "no keys": lambda: {NoKeys(): 1},
    "endless range": lambda: range(10**12),
    "module": lambda: torch.nn.Linear(1, 1),
    "function": lambda: freed,
}
ALL = {**TENSORS, **ARRAYS, **OBJECTS}
