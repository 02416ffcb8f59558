"""The file and line of a tap is the user's, whoever of ours made the call."""

import inspect
from pathlib import Path

import pytest

import tensortap as tap

torch = pytest.importorskip("torch")


def line_of(function, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)  # the tap's line
        return y * 2


def run_model(model, x):
    return model(x)  # the outer tap's line


def places(path: Path) -> dict[str, tuple[str, int]]:
    with tap.open(path) as run:
        return {r.name: (r.source, r.line) for r in run}


def test_a_watched_module_names_the_line_that_calls_it(tmp_path: Path) -> None:
    model = Inner()
    with tap.record(tmp_path / "run"), tap.watch(model):
        run_model(model, torch.ones(2, 4))
    found = places(tmp_path / "run")
    inside = (__file__, line_of(Inner.forward, "# the tap's line"))
    outside = (__file__, line_of(run_model, "# the outer tap's line"))
    assert found["linear.input"] == found["linear.output"] == inside
    assert found["Inner.input"] == found["Inner.output"] == outside


def test_torch_containers_are_passed_over(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with tap.record(tmp_path / "run"), tap.watch(model):
        run_model(model, torch.ones(2, 4))
    outside = (__file__, line_of(run_model, "# the outer tap's line"))
    assert set(places(tmp_path / "run").values()) == {outside}


def test_many_lines_do_not_take_each_other_for_their_own(tmp_path: Path) -> None:
    """More places than are remembered, one after the other and again."""
    text = "\n".join(f"def f{i}(tap, x):\n    tap.save(x, 'v{i}')" for i in range(600))
    namespace: dict[str, object] = {}
    exec(compile(text, "made_up.py", "exec"), namespace)
    with tap.record(tmp_path / "run"):
        for _ in range(2):
            for i in range(600):
                namespace[f"f{i}"](tap, 1.0)  # type: ignore[operator]
    with tap.open(tmp_path / "run") as run:
        records = list(run)
    assert len(records) == 1200
    assert {(r.source, r.line) for r in records if r.name == "v17"} == {("made_up.py", 36)}
    assert all((r.source, r.line) == ("made_up.py", 2 * int(r.name[1:]) + 2) for r in records)
