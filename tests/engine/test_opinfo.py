"""Every operator torch has samples for, compiled and compared with eager: nothing fails to compile, nothing is wrong,
whoever runs it. Samples come from torch's own tables (OpInfo)."""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, make_boxed_func
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import tensortap
from tensortap._engine import backend
from tensortap._engine.decompositions import decompositions

SAMPLES = 3  # of each operator and dtype; the first also backward

# Memory nobody wrote to: only what it looks like can be compared.
UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# Which of several equal elements is named first is nobody's promise.
UNORDERED = {"topk"}

# torch traces these into other operators than eager runs, with other results: the traced graph run by torch is the measure.
DECOMPOSED = {"nn.functional.interpolate", "nn.functional.upsample_bilinear", "to_sparse"}

# Sums of many products, in another order than eager's.
LOOSE = {"nn.functional.scaled_dot_product_attention"}

# What cannot be traced (or not run at all here), and what torch says.
ON_DATA = "Could not (extract|guard)|DataDependentOutputException|Cannot call numel"
UNTRACEABLE = {
    "allclose": ON_DATA,
    "corrcoef": ON_DATA,
    "cov": ON_DATA,
    "equal": ON_DATA,
    "nn.functional.gaussian_nll_loss": ON_DATA,
    "nn.functional.one_hot": ON_DATA,
    "tensor_split": ON_DATA,
    "nn.functional.ctc_loss": "DynamicOutputShapeException: aten._ctc_loss",
    "linalg.lstsq": "DynamicOutputShapeException: aten.linalg_lstsq",
    "sparse.mm": "convert all Tensors to FakeTensors first",
    "sparse.sampled_addmm": "convert all Tensors to FakeTensors first",
    "jiterator_unary": "Jiterator is only supported on CUDA",
    "jiterator_binary": "Jiterator is only supported on CUDA",
    "jiterator_4inputs_with_extra_args": "Jiterator is only supported on CUDA",
    "jiterator_binary_return_by_ref": "Jiterator is only supported on CUDA",
    "jiterator_2inputs_2outputs": "Jiterator is only supported on CUDA",
}


class Refused(Exception):
    """The engine failed, when it compiled a graph or when it ran one."""


class Untraceable(Exception):
    """torch failed before the engine had anything to do."""


def samples(op: Any, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 1 if grad else SAMPLES)


def dtypes(op: Any) -> list[torch.dtype]:
    """float32, and integers or booleans where the operator takes them."""
    has = op.supported_dtypes("cpu")
    first = next((d for d in (torch.float32, torch.float64, torch.complex64, torch.bfloat16) if d in has), None)
    second = next((d for d in (torch.int64, torch.bool, torch.int32, torch.uint8) if d in has), None)
    return [d for d in (first, second) if d is not None]


def compiler(programs: list[Any]) -> Callable[..., Any]:
    def compile(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            program = backend.compile_graph(graph, inputs)
        except Exception as error:
            raise Refused(f"{error}\n{graph.code}") from error
        programs.append(program)

        def call(args: list[Any]) -> Any:
            try:
                return program(args)
            except Exception as error:
                raise Refused(f"{error}\n{graph.code}") from error

        call._boxed_call = True
        return call

    return compile


def split(sample: Any) -> tuple[list[Tensor], Callable[..., Any]]:
    """The sample's tensors, and a function that calls the operator with others in their place."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def fill(tensors: Sequence[Tensor]) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        return tree_unflatten(filled, spec)

    return [leaves[i] for i in places], fill


def tensors_of(result: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def fresh(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies with storages of their own, seen the same way."""
    return [(copy.deepcopy if tensor.layout == torch.strided else torch.clone)(tensor.detach()).requires_grad_(tensor.requires_grad) for tensor in tensors]


def run(function: Callable[..., Any], given: Sequence[Tensor], grad: bool) -> tuple[Any, list[Any]]:
    torch.manual_seed(42)  # what samples of random operators set while they are traced
    tensors = fresh(given)
    result = function(*tensors)
    outputs = [out for out in tensors_of(result) if out.requires_grad] if grad else []
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    if not outputs or not wanted:
        return result, []
    return result, list(torch.autograd.grad(outputs, wanted, [torch.ones_like(out) for out in outputs], allow_unused=True))


def traced(function: Callable[..., Any], make: Callable[..., Any], given: Sequence[Tensor], grad: bool) -> Any:
    def attempt(dynamic: bool) -> Any:
        return run(aot_function(function, make, make, inference_compiler=make, decompositions=decompositions(), dynamic=dynamic), given, grad)

    try:
        try:
            return attempt(dynamic=False)
        except (DynamicOutputShapeException, DataDependentOutputException):  # such sizes need symbols
            return attempt(dynamic=True)
    except Refused:
        raise
    except Exception as error:
        raise Untraceable(f"{type(error).__name__}: {error}") from error


def compare(op: Any, sample: Any, actual: Any, expected: Any, grad: bool) -> None:
    if op.name in UNWRITTEN:
        assert [(t.shape, t.dtype) for t in tensors_of(actual)] == [(t.shape, t.dtype) for t in tensors_of(expected)]
        return
    if op.name in UNORDERED:
        (values, places), gradients = actual[0], actual[1]
        dim = sample.args[1] if len(sample.args) > 1 else -1
        found = sample.input.detach().gather(dim, places) if places.ndim else values
        torch.testing.assert_close((found, values), (expected[0][0], expected[0][0]))
        torch.testing.assert_close([g.sum() for g in gradients], [g.sum() for g in expected[1]])
        return
    loose = grad or op.name in LOOSE
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4 if loose else None, atol=1e-4 if loose else None)


def check(op: Any, sample: Any, grad: bool) -> list[Any]:
    """The programs that ran, once their results were found right."""
    given, fill = split(sample)

    def function(*tensors: Tensor) -> Any:
        value, args, kwargs = fill(tensors)
        result = op(value, *args, **kwargs)
        return sample.output_process_fn_grad(result) if grad else result

    programs: list[Any] = []
    try:
        expected = run(function, given, grad)
    except Exception as error:
        raise Untraceable(f"{type(error).__name__}: {error}") from error
    actual = traced(function, compiler(programs), given, grad)
    try:
        compare(op, sample, actual, expected, grad)
    except AssertionError:
        if op.name not in DECOMPOSED:
            raise
        compare(op, sample, actual, traced(function, lambda graph, _: make_boxed_func(graph.forward), given, grad), grad)
    return programs


@pytest.fixture(scope="module")
def tally(report: Callable[[str], None]) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    yield counts
    report(
        f"samples of torch's: {counts['operators']} operators, {counts['samples']} samples, {counts['native']} nodes native, "
        f"{counts['views']} views, {counts['host']} on the host; {counts['untraceable']} samples torch cannot trace"
    )


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", op_db, ids=full_name)
def test_samples(op, tally):
    refused = []
    for dtype, grad in itertools.product(dtypes(op), (False, True)):
        if grad and not (op.supports_autograd and dtype.is_floating_point):
            continue
        for sample in samples(op, dtype, grad):
            try:
                programs = check(op, sample, grad)
            except Untraceable as error:
                refused.append(error)
                continue
            tally["samples"] += 1
            for program in programs:
                tally.update({key: value for key, value in program.program.counts().items() if key in ("native", "views", "host")})
    tensortap.counters(reset=True)
    tally["operators"] += 1
    tally["untraceable"] += len(refused)
    for error in refused:
        assert op.name in UNTRACEABLE and re.search(UNTRACEABLE[op.name], str(error)), error
    if op.name in UNTRACEABLE and not op.variant_test_name:
        assert refused, "torch can trace it now: take it off the list"
