"""Pointwise operators on the samples torch itself tests its operators with, in every dtype. Each sample is traced and
the graph given to the engine, without Dynamo, which would take most of the time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

import tensortap
from tensortap._engine import backend

op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason="needs expecttest").op_db

SAMPLES = 24  # of one dtype
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]


def _pointwise_targets() -> set[str]:
    """The overloads the table of the engine maps to a pointwise operator."""
    root = Path(__file__).parents[2] / "src"
    rows = set(re.findall(r"^POINTWISE\((\w+),", (root / "graph/ops.def").read_text(), re.M))
    pairs = re.findall(r'^ATEN\("([^"]+)", (\w+),', (root / "frontend/aten.def").read_text(), re.M)
    return {target for target, op in pairs if op in rows}


TARGETS = _pointwise_targets()
# A divisor that is a tensor of integers may hold a zero, for which torch raises: torch runs it.
# The next number in 16 bits, and complex numbers of 16 bits, are torch's too; dropout of integers is nobody's.
LEFT = {
    torch.float16: {"aten.nextafter.default", "aten.complex.default"},
    torch.bfloat16: {"aten.nextafter.default"},
    **{dtype: {"aten.native_dropout_backward.default"} for dtype in INTEGERS},
}
# With a scale, eager rounds once in its vector loop and twice in what is left over from it.
TWICE = {"add": 2, "sub": 2, "rsub": 2}
DIVIDES = {"aten.div.Tensor_mode", "aten.floor_divide.default", "aten.fmod.Tensor", "aten.remainder.Tensor"}


def _covered(info: Any) -> bool:
    if info.name.startswith("masked."):
        return False  # written in Python, around a reduction's identity
    name = (info.aten_name or info.name).split(".")[-1]
    return any(target.split(".")[1] in (name, "_" + name) for target in TARGETS)


COVERED = [info for info in op_db if _covered(info)]


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    """(arguments, result) of every sample that eager takes and that gives a tensor."""
    out = []
    for sample in list(info.sample_inputs("cpu", dtype, requires_grad=False))[:SAMPLES]:
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        known = (torch.Tensor, bool, int, float, complex, str, type(None))
        if not all(isinstance(leaf, known) for leaf in tree_flatten((args, kwargs))[0]):
            continue
        try:
            result = info.op(*args, **kwargs)
        except (RuntimeError, TypeError, ZeroDivisionError):
            continue
        if torch.is_tensor(result):
            out.append((args, kwargs, result))
    return out


def _run(info: Any, samples: list[Any]) -> list[torch.Tensor]:
    """All samples as one graph, through the engine."""
    flat = [tree_flatten((args, kwargs)) for args, kwargs, _ in samples]
    tensors = [leaf.clone() for leaves, _ in flat for leaf in leaves if torch.is_tensor(leaf)]

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        left = iter(tensors)
        results = []
        for leaves, spec in flat:
            args, kwargs = tree_unflatten([next(left) if torch.is_tensor(leaf) else leaf for leaf in leaves], spec)
            results.append(info.op(*args, **kwargs))
        return results

    graph = make_fx(run, tracing_mode="fake")(*tensors)
    return backend.compile_graph(graph, tensors)(tensors)


@pytest.mark.parametrize("info", COVERED, ids=lambda info: info.formatted_name)
@pytest.mark.filterwarnings("ignore")
def test_samples(info):
    seen = 0
    for dtype in [*INTEGERS, *FLOATS, *COMPLEX]:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        samples = _samples(info, dtype)
        if not samples:
            continue
        tensortap.counters(reset=True)
        for (args, kwargs, expected), result in zip(samples, _run(info, samples), strict=True):

            def note(text: str, args: Any = args, kwargs: Any = kwargs, dtype: torch.dtype = dtype) -> str:
                return f"{text}\n{dtype} {args} {kwargs}"

            rtol, atol = torch.testing._comparison.default_tolerances(result, expected)
            rtol *= TWICE.get(info.name, 1) if dtype in (torch.float16, torch.bfloat16) else 1
            torch.testing.assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True, msg=note)
        seen += len(samples)
        left = set(backend.host_targets()) & TARGETS - LEFT.get(dtype, set())
        left -= DIVIDES if dtype in INTEGERS else set()
        if not dtype.is_complex:
            assert not left, f"{dtype}: {left} ran on the host"
    assert seen, "no sample of this operator is one eager runs on the CPU"
