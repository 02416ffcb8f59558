"""What a converter declares to support: cases of arguments, of which ``converter_test`` makes tests."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["BF16", "BOOL", "C64", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "Support", "T", "TypedTensor"]


class TypedTensor:
    """A tensor of a declared case: random, within a range if one is given, or with a value."""

    def __init__(self, dims: tuple[int, ...], dtype: torch.dtype, value_range: Any = None, value: Any = None) -> None:
        self.dims, self.dtype, self.value_range, self.value = dims, dtype, value_range, value

    def make(self) -> torch.Tensor:
        """The tensor itself, from torch's generator."""
        if self.value is not None:
            return torch.tensor(self.value, dtype=self.dtype)
        if self.value_range is not None:
            low, high = self.value_range
            return (torch.rand(self.dims) * (high - low) + low).to(self.dtype)
        return torch.randn(self.dims).to(self.dtype)

    def __repr__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        if self.value is not None:
            return f"{name}({self.value!r})"
        within = "" if self.value_range is None else f" in {self.value_range}"
        return f"{name}({', '.join(map(str, self.dims))}){within}"


def _typed(name: str, dtype: torch.dtype, ranges: bool = True) -> Any:
    def make(*dims: int, value_range: tuple[float, float] | None = None) -> TypedTensor:
        if value_range is not None and not ranges:
            raise TypeError(f"{name} takes no value_range")
        for each in dims:
            if not isinstance(each, int) or each < 0:
                raise TypeError(f"{name} takes sizes, not {each!r}")
        return TypedTensor(dims, dtype, value_range)

    make.__name__ = make.__qualname__ = name
    return make


F32 = _typed("F32", torch.float32)
F16 = _typed("F16", torch.float16)
BF16 = _typed("BF16", torch.bfloat16, False)
F64 = _typed("F64", torch.float64)
I8 = _typed("I8", torch.int8)
I16 = _typed("I16", torch.int16)
I32 = _typed("I32", torch.int32)
I64 = _typed("I64", torch.int64)
U8 = _typed("U8", torch.uint8)
C64 = _typed("C64", torch.complex64)
BOOL = _typed("BOOL", torch.bool, False)


def T(value: Any, *, dtype: torch.dtype | None = None) -> TypedTensor:
    """A tensor with this value."""
    made = torch.tensor(value, dtype=dtype)
    return TypedTensor(tuple(made.shape), made.dtype, None, value)


class Support:
    """One way to call the operator; tensors are F32(2, 2) and the like.

    >>> Support(F32(2, 2), 2, alpha=2.0)
    Support(float32(2, 2), 2, alpha=2.0)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for each in (*args, *kwargs.values()):
            for leaf in each if isinstance(each, (list, tuple)) else (each,):
                if isinstance(leaf, torch.Tensor):
                    raise AssertionError("Support takes no real tensors; write F32(2, 2) or T([1.0, 2.0])")
        self.args, self.kwargs = args, kwargs

    def make(self) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with real tensors."""

        def real(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(real(each) for each in value)
            return value.make() if isinstance(value, TypedTensor) else value

        return [real(each) for each in self.args], {key: real(each) for key, each in self.kwargs.items()}

    def __repr__(self) -> str:
        named = [f"{key}={value!r}" for key, value in self.kwargs.items()]
        return f"Support({', '.join([*map(repr, self.args), *named])})"
