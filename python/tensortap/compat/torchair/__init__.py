"""torchair where it is not installed: tensortap's engine with torchair's settings, dumps and converters."""

from __future__ import annotations

from . import _ge as ge
from ._config import CompilerConfig
from ._converter import declare_supported, dtype_promote, register_fx_node_ge_converter
from ._export import CompiledModel, dynamo_export, use_internal_format_weight
from ._ge_graph import Tensor, TensorSpec
from ._logger import logger
from ._pipeline import get_compiler, get_npu_backend
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
    "CompiledModel",
    "CompilerConfig",
    "Support",
    "T",
    "Tensor",
    "TensorSpec",
    "declare_supported",
    "dtype_promote",
    "dynamo_export",
    "ge",
    "get_compiler",
    "get_npu_backend",
    "logger",
    "register_fx_node_ge_converter",
    "use_internal_format_weight",
]  # fmt: skip
