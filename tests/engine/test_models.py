"""Whole models: forward and backward as eager gives them, for fixed and for varying sizes.

Two oracles: eager itself, and the model run in float64, from which the engine may be at most twice as far as eager is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
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
    # else two sizes that happen to be equal in the first call must stay equal
    duck = torch.fx.experimental._config.patch(use_duck_shape=False)
    with torch._dynamo.config.patch(allow_rnn=True), duck:
        compiled = engine.compile(ours, dynamic)
        graphs = 0
        for i in which:
            args = row.arguments(i)
            actual = step(compiled, ours, args)
            check_close(actual, step(model, model, args), step(exact, exact, [doubled(arg) for arg in args]))
            graphs = graphs or engine.graphs()
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


def losses(call: Callable[..., Any], model: nn.Module) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    generator = torch.Generator().manual_seed(5)
    batch = torch.randint(1, 96, (4, 12), generator=generator)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = call(batch)[0]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_training_run_follows_eagers(engine):
    model = gpt2().train()
    ours = copy.deepcopy(model)
    expected, actual = losses(model, model), losses(engine.compile(ours), ours)
    assert expected[-1] < 0.7 * expected[0], "the run must learn something"
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=2e-4, atol=0)
    torch.testing.assert_close(list(ours.parameters()), list(model.parameters()), rtol=1e-2, atol=1e-3)


def test_the_optimizers_step_is_compiled_too(engine):
    model = gpt2().train()
    ours = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, ours)]
    compiled = torch.compile(optimizers[1].step, backend="tensortap")  # torch itself breaks it into graphs
    for _ in range(3):
        for one, theirs in zip(ours.parameters(), model.parameters()):
            one.grad = torch.randn_like(one)
            theirs.grad = one.grad.clone()
        optimizers[0].step()
        compiled()
        torch.testing.assert_close(list(ours.parameters()), list(model.parameters()))


def test_autocast(engine):
    """bfloat16 inside: as far from float32 as eager's autocast is, and near it."""
    model = gpt2().train()
    ours = copy.deepcopy(model)

    def cast(one: nn.Module) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return one(*args)

        return call

    args = MODELS[0].arguments(0)
    actual = step(engine.compile(cast(ours)), ours, args)
    expected, exact = step(cast(model), model, args), step(model, model, args)
    assert actual["output 1"].dtype == torch.bfloat16
    for name, value in actual.items():
        largest = size(exact, name.split()[0])
        ours_off, eagers = ((run.float() - exact[name]).abs().max().item() for run in (value, expected[name]))
        assert ours_off <= 2 * eagers + 2**-8 * largest, f"{name}: {ours_off:.3g} from float32, eager {eagers:.3g}"
        torch.testing.assert_close(value, expected[name], rtol=2**-6, atol=2**-6 * largest)


def test_checkpointed_layers(engine):
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            return x.square().mean()

    model = Deep().train()
    ours = copy.deepcopy(model)
    compiled = engine.compile(ours)
    x = torch.randn(2, 5, 16)
    for seed in (1, 2):  # dropout: the recomputed pass draws the numbers of the first one
        torch.manual_seed(seed)
        actual = step(compiled, ours, [x])
        torch.manual_seed(seed)
        torch.testing.assert_close(actual, step(model, model, [x]), rtol=1e-4, atol=1e-5)
