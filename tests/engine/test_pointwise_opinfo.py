"""Pointwise operators on the samples torch itself tests its operators with."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

SAMPLES = 12  # of one dtype
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
# what the engine leaves to torch on purpose: operator -> dtypes; "int" stands for every integer type
INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def _pointwise_targets() -> set[str]:
    """The overloads the table of the engine maps to a pointwise operator."""
    root = Path(__file__).parents[2] / "src"
    rows = set(re.findall(r"^POINTWISE\((\w+),", (root / "graph/ops.def").read_text(), re.M))
    pairs = re.findall(r'^ATEN\("([^"]+)", (\w+),', (root / "frontend/aten.def").read_text(), re.M)
    return {target for target, op in pairs if op in rows}


TARGETS = _pointwise_targets()
# a divisor that is a tensor of integers may hold a zero, for which torch raises
DIVIDES = {"aten.div.Tensor_mode", "aten.floor_divide.default", "aten.fmod.Tensor", "aten.remainder.Tensor"}


def _covered(info: Any) -> bool:
    if info.name.startswith("masked."):
        return False  # written in Python, around a reduction's identity
    name = (info.aten_name or info.name).split(".")[-1]
    return any(target.split(".")[1] in (name, name.lstrip("_"), "_" + name) for target in TARGETS)


COVERED = [info for info in op_db if _covered(info)]


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    """(arguments, result) of every sample eager takes and gives a tensor for."""
    out = []
    for sample in list(info.sample_inputs("cpu", dtype, requires_grad=False))[:SAMPLES]:
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        if not all(torch.is_tensor(leaf) or leaf is None or isinstance(leaf, bool | int | float | complex | str)
                   for leaf in tree_flatten((args, kwargs))[0]):
            continue
        try:
            result = info.op(*args, **kwargs)
        except (RuntimeError, TypeError, ZeroDivisionError):
            continue
        if torch.is_tensor(result):
            out.append((args, kwargs, result))
    return out


@pytest.mark.parametrize("info", COVERED, ids=lambda info: info.formatted_name)
def test_samples(engine, info):
    seen = 0
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = _samples(info, dtype)
        if not samples:
            continue
        flat = [tree_flatten((args, kwargs)) for args, kwargs, _ in samples]
        tensors = [[leaf for leaf in leaves if torch.is_tensor(leaf)] for leaves, _ in flat]

        def run(tensors, flat=flat):
            results = []
            for (leaves, spec), given in zip(flat, tensors):
                left = iter(given)
                filled = [next(left) if torch.is_tensor(leaf) else leaf for leaf in leaves]
                args, kwargs = tree_unflatten(filled, spec)
                results.append(info.op(*args, **kwargs))
            return results

        compiled = engine.compile(run)
        actual = compiled([[one.clone() for one in given] for given in tensors])
        for (args, kwargs, expected), result in zip(samples, actual):
            def note(text, args=args, kwargs=kwargs, dtype=dtype):
                return f"{dtype} {args} {kwargs}: {text}"

            torch.testing.assert_close(result, expected, equal_nan=True, msg=note)
        seen += len(samples)
        left = set(engine.host()) & TARGETS - (DIVIDES if dtype in INTEGERS else set())
        if not dtype.is_complex:
            assert not left, f"{dtype}: {left} ran on the host"
    assert seen, "no sample of this operator is one eager runs on the CPU"
