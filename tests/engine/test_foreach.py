"""List operators: each is the same operator for every tensor, so nothing of them runs on the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tensortap
from tensortap._engine import decompositions

aten = torch.ops.aten
_FLOAT_ONLY = {"lerp", "norm", "frac", "reciprocal", "rsqrt", "sigmoid", "addcdiv"}
_NEEDS = {"acos": 0.9, "asin": 0.9, "lgamma": 2, "log": 2, "log10": 2, "log1p": 2, "log2": 2, "rsqrt": 2, "sqrt": 2}


def _operators(mutable: bool) -> list[Any]:
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::_foreach_"))
    found = []
    for name in names:
        packet, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(aten, packet), overload or "default")
        if operator._schema.is_mutable == mutable and "out" not in overload:
            found.append(operator)
    return found


def _tensors(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(3, 4), (), (0, 2), (5,)]
    if name == "mm":
        shapes = [(3, 3), (2, 2), (0, 0), (1, 1)]
    if name == "max":
        shapes = [(3, 4), (), (1, 2), (5,)]
    made = [torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for shape in shapes]
    limit = _NEEDS.get(name, 3)
    made = [x * limit / 1.5 if limit < 1 else x * limit for x in made]
    made[0] = made[0].t().contiguous().t()
    return [(x * 3).to(dtype) if not dtype.is_floating_point else x.to(dtype) for x in made]


def _arguments(operator: Any, dtype: torch.dtype) -> list[Any]:
    name = operator._schema.name.removeprefix("aten::_foreach_").rstrip("_")
    whole = not dtype.is_floating_point
    values: list[Any] = []
    for at in operator._schema.arguments:
        kind = str(at.type)
        if kind == "List[Tensor]":
            values.append(_tensors(name, dtype))
        elif kind in ("List[number]", "List[Scalar]"):
            values.append([1, 2, 3, 2] if whole else [0.5, 2.0, 1.5, 3])
        elif kind in ("number", "Scalar") and not at.kwarg_only:
            values.append(2 if whole or at.name == "ord" else 1.5)
        elif kind == "Tensor":
            shape = (4,) if at.name == "scalars" else ()
            values.append(torch.full(shape, 2, dtype=dtype))
    return values


def _takes(operator: Any, dtype: torch.dtype) -> bool:
    if operator._schema.arguments[-1].name == "scalars" and operator._overloadname == "Tensor":
        return False  # torch itself does not trace them
    name = operator._schema.name.removeprefix("aten::_foreach_").rstrip("_")
    return (dtype.is_floating_point or name not in _FLOAT_ONLY) and (dtype != torch.bfloat16 or name != "lgamma")


def test_every_list_operator_is_taken_apart() -> None:
    missing = {str(op) for op in _operators(False)} - {str(op) for op in decompositions.decompositions()}
    assert missing <= {"aten._foreach_powsum.Scalar"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_list_operators(engine: Any, dtype: torch.dtype) -> None:
    found = decompositions.decompositions()
    operators = [op for op in _operators(False) if op in found and _takes(op, dtype)]
    given = [_arguments(op, dtype) for op in operators]

    def run(given: list[list[Any]]) -> list[Any]:
        return [list(operator(*args)) for operator, args in zip(operators, given)]

    assert len(operators) > (60 if dtype.is_floating_point else 45)
    engine.check(run, given, strides=False)


@pytest.mark.parametrize("operator", [aten._foreach_addcdiv.Tensor, aten._foreach_addcmul.Tensor])
def test_scalars_in_a_tensor(operator: Any) -> None:
    """Torch does not trace these; what stands for them is right all the same."""
    args = _arguments(operator, torch.float64)
    torch.testing.assert_close(decompositions.decompositions()[operator](*args), list(operator(*args)))


def test_alpha(engine: Any) -> None:
    xs = _tensors("add", torch.float32)

    def run(xs: list[torch.Tensor]) -> Any:
        return torch._foreach_add(xs, xs, alpha=2.5), torch._foreach_sub(xs, xs, alpha=0.5)

    engine.check(run, xs)


def test_in_place(engine: Any) -> None:
    """Made functional by the trace; the results are then written into the inputs by the engine itself."""
    operators = [op for op in _operators(True) if _takes(op, torch.float32)]
    given = [_arguments(op, torch.float32) for op in operators]

    def run(given: list[list[Any]]) -> None:
        for operator, args in zip(operators, given):
            operator(*args)

    expected = [_arguments(op, torch.float32) for op in operators]
    assert len(operators) > 60
    engine.compile(run)(given)
    run(expected)
    torch.testing.assert_close(given, expected)
    assert engine.host() == {}


def test_gradients(engine: Any) -> None:
    xs = [x.requires_grad_() for x in _tensors("mul", torch.float64)]

    def run(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(torch._foreach_mul(torch._foreach_exp(xs), xs))

    engine.check(run, xs, backward=True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.AdamW, {}),
    ],
)
def test_optimizer_steps_run_native(engine: Any, kind: Any, options: dict[str, Any]) -> None:
    def make() -> tuple[list[torch.Tensor], Any]:
        generator = torch.Generator().manual_seed(1)
        shapes = [(4, 3), (7,), (), (2, 3, 4)]
        parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        return parameters, kind(parameters, lr=0.1, foreach=True, **options)

    (expected, eager), (actual, ours) = make(), make()
    torch._dynamo.reset()
    tensortap.counters(reset=True)
    step = torch.compile(ours.step, backend="tensortap")
    for _ in range(3):
        eager.step()
        step()
    torch.testing.assert_close(actual, expected)
    for one, other in zip(ours.state.values(), eager.state.values()):
        torch.testing.assert_close(one, other)
    assert engine.host() == {} and tensortap.counters()["native"] > 10
