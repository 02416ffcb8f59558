"""Whole models: forward and backward as eager gives them, for fixed and for varying sizes.

Two oracles: eager itself, and the model run in float64, from which the engine may be at most twice as far as eager is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from architectures import MODELS, Model, gpt2

FLOOR = 4 * torch.finfo(torch.float32).eps  # what is rounding and nothing else


def tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def step(call: Callable[..., Any], model: nn.Module, args: Sequence[Any]) -> dict[str, Tensor]:
    """Outputs, gradients and buffers after one step, by name."""
    for parameter in model.parameters():
        parameter.grad = None
    outputs = tensors(call(*args))
    outputs[0].backward()
    found = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    found |= {f"gradient {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found | {f"buffer {name}": b.clone() for name, b in model.named_buffers()}


def size(values: dict[str, Tensor], kind: str) -> float:
    """The largest element of all values of a kind. A gradient that is nothing but rounding (the bias of attention's
    keys) is small beside the others."""
    found = [value.abs().max().item() for name, value in values.items() if name.startswith(kind) and value.numel() > 0]
    return max(found, default=0.0)


def check_close(engine: dict[str, Tensor], eager: dict[str, Tensor], exact: dict[str, Tensor]) -> None:
    assert engine.keys() == eager.keys() == exact.keys()
    for name, value in engine.items():
        largest = size(exact, name.split()[0])
        torch.testing.assert_close(value, eager[name], rtol=1e-4, atol=1e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")
        if value.is_floating_point() and value.numel() > 0:
            ours, theirs = ((run - exact[name]).abs().max().item() for run in (value.double(), eager[name].double()))
            assert ours <= 2 * theirs + FLOOR * largest, f"{name}: {ours:.3g} from the float64 run, eager {theirs:.3g}"


def doubled(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def compare(engine: Any, row: Model, model: nn.Module, which: Sequence[int], dynamic: bool) -> None:
    ours, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = engine.compile(ours, dynamic)
        for i in which:
            args = row.arguments(i)
            actual = step(compiled, ours, args)
            check_close(actual, step(model, model, args), step(exact, exact, [doubled(arg) for arg in args]))
            if i == which[0]:
                graphs = engine.graphs()
    assert engine.graphs() == graphs, "another shape was compiled again"


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_fixed_sizes(engine, native_share, row):
    compare(engine, row, row.make().train(), [0, 0], dynamic=False)
    native_share(row.name)


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_varying_sizes(engine, row):
    compare(engine, row, row.make().train(), [0, 1, 0], dynamic=True)


def test_dropout_draws_the_same_numbers_as_eager(engine):
    model = gpt2(dropout=0.2, attention="eager").train()
    ours = copy.deepcopy(model)
    args = MODELS[0].arguments(0)
    compiled = engine.compile(ours)
    for seed in (1, 2):
        torch.manual_seed(seed)
        actual = step(compiled, ours, args)
        torch.manual_seed(seed)
        expected = step(model, model, args)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_inference(engine):
    for row in MODELS[:2]:
        model = row.make().eval()
        args = row.arguments(0)
        with torch.inference_mode():
            torch.testing.assert_close(engine.compile(model)(*args), model(*args))
