"""What every test of the engine needs: run a function eagerly and through the engine, compare, and see who ran it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensortap
from tensortap._engine import backend


def _clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if _dense(value) else value
            if copy is not value:
                copy.copy_(value)
            else:
                copy = value.clone()
        return copy.requires_grad_(value.requires_grad) if value.is_leaf else copy
    if isinstance(value, list | tuple):
        return type(value)(_clone(item) for item in value)
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    return value


def _dense(value: torch.Tensor) -> bool:
    return all(step > 0 for step, size in zip(value.stride(), value.shape) if size > 1) and value.numel() > 0


class Engine:
    """``engine.check(function, *args)`` compares eager with the engine; ``native=True`` asserts nothing fell back."""

    def compile(self, function: Callable[..., Any], dynamic: bool | None = False, **options: Any) -> Callable[..., Any]:
        torch._dynamo.reset()
        tensortap.counters(reset=True)
        return torch.compile(function, backend="tensortap", fullgraph=True, dynamic=dynamic, options=options or None)

    def check(
        self,
        function: Callable[..., Any],
        *args: Any,
        native: bool = True,
        exact: bool = False,
        dynamic: bool | None = False,
        backward: bool = False,
        strides: bool = True,
        **tolerance: Any,
    ) -> Any:
        compiled = self.compile(function, dynamic)
        eager_args, engine_args = _clone(args), _clone(args)
        expected, actual = function(*eager_args), compiled(*engine_args)
        if exact:
            tolerance = {"rtol": 0, "atol": 0}
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=strides, **tolerance)
        torch.testing.assert_close(engine_args, eager_args, equal_nan=True, rtol=0, atol=0)  # inputs and mutations
        if backward:
            self.check_backward(expected, actual, eager_args, engine_args, **tolerance)
        if native:
            assert self.host() == {}, f"ran on the host: {self.host()}"
        return actual

    def check_backward(self, expected: Any, actual: Any, eager_args: Any, engine_args: Any, **tolerance: Any) -> None:
        def leaves(value: Any) -> list[torch.Tensor]:
            return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]

        gradients = []
        for results, inputs in ((expected, eager_args), (actual, engine_args)):
            outputs = [leaf for leaf in leaves(results) if leaf.requires_grad]
            wanted = [leaf for leaf in leaves(inputs) if leaf.requires_grad]
            assert outputs and wanted, "nothing to differentiate"
            generator = torch.Generator().manual_seed(7)
            cotangents = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]
            gradients.append(torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True))
        torch.testing.assert_close(gradients[1], gradients[0], equal_nan=True, **tolerance)

    def host(self) -> dict[str, int]:
        """Operators that torch ran, by name."""
        return backend.host_targets()

    def graphs(self) -> int:
        """Graphs compiled since the last compile()."""
        return tensortap.counters()["graphs"]


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Random data is a test's own, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def engine() -> Engine:
    return Engine()


_SHARES: list[tuple[str, dict[str, int], dict[str, int]]] = []


@pytest.fixture
def native_share() -> Callable[[str], None]:
    """``native_share(model)`` puts who ran the nodes compiled last into the table at the end of the run."""
    return lambda model: _SHARES.append((model, tensortap.counters(), backend.host_targets()))


_LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> Callable[[str], None]:
    """``report(line)`` prints a line at the end of the run."""
    return _LINES.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _LINES:
        terminalreporter.write_line(line)
    if not _SHARES:
        return
    terminalreporter.section("who ran the nodes")
    terminalreporter.write_line(f"{'model':<12} {'nodes':>6} {'native':>6} {'views':>6} {'host':>5} {'share':>6}  operators on the host")
    for model, counts, host in _SHARES:
        work = counts["native"] + counts["host"]
        names = ", ".join(f"{name.removeprefix('aten.')} {count}" for name, count in sorted(host.items(), key=lambda item: -item[1]))
        terminalreporter.write_line(
            f"{model:<12} {work + counts['views']:>6} {counts['native']:>6} {counts['views']:>6} {counts['host']:>5} "
            f"{counts['native'] / max(work, 1):>6.1%}  {names}"
        )
