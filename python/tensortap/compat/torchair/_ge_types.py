"""Element types and formats under the numbers and names of GE."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DataType", "Format", "dtype_name", "from_torch", "to_torch"]

# GE's name: its number, torch's name ("": torch has none)
_TABLE = {
    "DT_FLOAT": (0, "float32"),
    "DT_FLOAT16": (1, "float16"),
    "DT_INT8": (2, "int8"),
    "DT_INT32": (3, "int32"),
    "DT_UINT8": (4, "uint8"),
    "DT_INT16": (6, "int16"),
    "DT_UINT16": (7, "uint16"),
    "DT_UINT32": (8, "uint32"),
    "DT_INT64": (9, "int64"),
    "DT_UINT64": (10, "uint64"),
    "DT_DOUBLE": (11, "float64"),
    "DT_BOOL": (12, "bool"),
    "DT_STRING": (13, ""),
    "DT_COMPLEX64": (16, "complex64"),
    "DT_COMPLEX128": (17, "complex128"),
    "DT_QINT8": (18, "qint8"),
    "DT_QINT32": (20, "qint32"),
    "DT_QUINT8": (21, "quint8"),
    "DT_RESOURCE": (23, ""),
    "DT_BF16": (27, "bfloat16"),
    "DT_UNDEFINED": (28, ""),
    "DT_INT4": (29, ""),
    "DT_COMPLEX32": (33, "complex32"),
    "DT_HIFLOAT8": (34, ""),
    "DT_FLOAT8_E5M2": (35, "float8_e5m2"),
    "DT_FLOAT8_E4M3FN": (36, "float8_e4m3fn"),
    "DT_FLOAT8_E8M0": (37, "float8_e8m0fnu"),
}
_NAMES = {number: name for name, (number, _) in _TABLE.items()}
_TORCH: dict[int, torch.dtype] = {
    number: getattr(torch, name) for number, name in _TABLE.values() if name and hasattr(torch, name)
}
_NUMBERS = {dtype: number for number, dtype in _TORCH.items()}


class DataType:
    """``DataType.DT_FLOAT`` and the like, as numbers."""

    DT_FLOAT: int
    DT_FLOAT16: int
    DT_INT32: int
    DT_INT64: int
    DT_BOOL: int
    DT_BF16: int
    DT_DOUBLE: int
    DT_UNDEFINED: int


for _name, (_number, _) in _TABLE.items():
    setattr(DataType, _name, _number)


class Format:
    """Memory formats; tensors here are ND, whatever is asked for."""

    FORMAT_NCHW = 0
    FORMAT_NHWC = 1
    FORMAT_ND = 2
    FORMAT_NC1HWC0 = 3
    FORMAT_FRACTAL_Z = 4
    FORMAT_HWCN = 16
    FORMAT_NCDHW = 30
    FORMAT_FRACTAL_NZ = 29
    FORMAT_UNDEFINED = -1


def from_torch(dtype: Any) -> int:
    """GE's number of a torch dtype; a number is one already."""
    if isinstance(dtype, int):
        return dtype
    if dtype not in _NUMBERS:
        raise TypeError(f"GE has no element type for {dtype}")
    return _NUMBERS[dtype]


def to_torch(number: Any) -> torch.dtype:
    """The torch dtype of a number of GE."""
    if isinstance(number, torch.dtype):
        return number
    if number not in _TORCH:
        raise TypeError(f"torch has no element type for {dtype_name(number)}")
    return _TORCH[number]


def number_of(name: str) -> int:
    """The number of "DT_FLOAT"."""
    return _TABLE[name][0]


def dtype_name(number: int) -> str:
    """ "DT_FLOAT"."""
    return _NAMES.get(number, f"DT_{number}")
