"""Everything that the file of a converter needs, for ``from torchair....ge_converter.converter_utils import *``."""

from __future__ import annotations

from numbers import Number
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple, Union  # noqa: UP035

import torch
from torch import Generator, contiguous_format, inf, strided
from torch.types import Device

from . import _ge as ge
from ._converter import declare_supported, dtype_promote, register_fx_node_ge_converter
from ._ge import Const, DataType, Format
from ._ge_graph import Tensor, TensorSpec
from ._ge_types import from_torch as torch_dtype_value_to_ge_type
from ._support import BF16, BOOL, C64, F16, F32, F64, I8, I16, I32, I64, U8, Support, T

__all__ = [
    "BF16",
    "BOOL",
    "C64",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "Any",
    "Callable",
    "Const",
    "ContextManager",
    "DataType",
    "Device",
    "Dict",
    "Format",
    "Generator",
    "Iterator",
    "List",
    "Number",
    "Optional",
    "Support",
    "T",
    "Tensor",
    "TensorSpec",
    "Tuple",
    "Union",
    "contiguous_format",
    "declare_supported",
    "dtype_promote",
    "ge",
    "inf",
    "register_fx_node_ge_converter",
    "strided",
    "torch",
    "torch_dtype_value_to_ge_type",
]  # fmt: skip
