"""A value that cannot be recorded never ends a training: one warning, and verify lists it with its name and the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import tensortap as tap
import torch

from strange_values import ALL, OBJECTS, TENSORS
from tap_helpers import BACKENDS, compiled, python, rows

Entry = Callable[[Any], None]


def save(value: Any) -> None:
    tap.save(value, "x")


def save_on(value: Any) -> None:
    recorder = tap.current()
    assert recorder is not None
    recorder.save(value, "x")


def save_inside(value: Any) -> None:
    tap.save({"good": 1, "bad": [value]}, "x")


def save_with_gradient(value: Any) -> None:
    tap.save(value, "x", grad=True)


def in_a_gradient(value: Any) -> None:
    """In the middle of a backward pass."""
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: save(value))
    (x * 2).sum().backward()


def watched(value: Any) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return value

    module = Module()
    with tap.watch(module):
        assert module(torch.ones(1)) is value


def in_a_graph(backend: str) -> Entry:
    def entry(value: Any) -> None:
        def f(x: torch.Tensor, value: Any) -> torch.Tensor:
            tap.save(value, "x")
            return x + 1

        torch._dynamo.reset()
        assert compiled(f, backend)(torch.ones(1), value).tolist() == [2.0]

    return entry


EAGER: dict[str, Entry] = {
    f.__name__: f for f in (save, save_on, save_inside, save_with_gradient, in_a_gradient, watched)
}


def since(mark: str) -> list[str]:
    """What was said after a mark; messages() keeps the newest 64."""
    said = tap.messages()
    return said[said.index(mark) + 1 :]


def check(path: Path, entry: Entry, value: Any) -> None:
    with tap.record(path):
        tap._core.say(str(path))
        entry(value)
        said = since(str(path))
    assert len([text for text in said if "was not recorded" in text]) == 1, said
    (problem,) = tap.verify(path).problems
    assert (problem.kind, problem.count, problem.is_loss) == ("dropped", 1, True)
    assert problem.name in ("x", "Module.output")
    assert problem.reason
    assert problem.reason in next(text for text in said if "was not recorded" in text)


@pytest.mark.parametrize("name", ALL)
def test_saved_eagerly(tmp_path: Path, name: str) -> None:
    check(tmp_path / "run", save, ALL[name]())


def test_any_value_at_any_place(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    for number in range(60):
        name, entry = draw.choice(list(ALL)), draw.choice(list(EAGER))
        if entry == "save_inside" and name in OBJECTS and name not in ("10**5000", "cycle", "no array", "no keys"):
            continue  # inside a container its repr is recorded
        print(name, "at", entry)
        check(tmp_path / str(number), EAGER[entry], ALL[name]())


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_compiled_graph(tmp_path: Path, backend: str) -> None:
    for name, make in TENSORS.items():
        if name != "conjugate":  # torch computes its values before it calls our operator, wherever they lie
            check(tmp_path / name, in_a_graph(backend), make())


@pytest.mark.parametrize("backend", BACKENDS)
def test_made_in_a_compiled_graph(tmp_path: Path, backend: str) -> None:
    """What no tensor is: objects, numbers, arrays, tensors of several."""

    def f(x: torch.Tensor, given: Any) -> torch.Tensor:
        tap.save(given, "x")
        tap.save(1 << 70, "large")
        tap.save({"huge": 10**5000, "fine": x}, "y")
        return x + 1

    x = torch.arange(2.0)
    values = {
        "array": numpy.arange(3.0),
        "masked": torch.masked.masked_tensor(x, x > 0),
        "jagged": torch.nested.nested_tensor([x, x], layout=torch.jagged),
        "object": object(),
    }
    shown = {}
    for name, value in values.items():
        torch._dynamo.reset()
        with tap.record(tmp_path / name):
            compiled(f, backend)(x, value)
        problems = [(p.name, p.path) for p in tap.verify(tmp_path / name).problems]
        assert problems == ([("x", "")] if name == "object" else []) + [("y", "huge")]
        found = {key[1]: value for key, value in rows(tmp_path / name)}
        assert found.pop("large") == 1 << 70
        assert found.pop("y.fine").tolist() == [0, 1]
        shown |= {f"{name} {key}": value.tolist() for key, value in found.items()}
    assert shown == {
        "array x": [0, 1, 2],
        "masked x.data": [0, 1],
        "masked x.mask": [False, True],
        "jagged x.values": [0, 1, 0, 1],
        "jagged x.offsets": [0, 2, 4],
    }


def test_the_rest_of_a_value_is_kept(tmp_path: Path) -> None:
    check(tmp_path / "run", save_inside, TENSORS["freed"]())
    assert rows(tmp_path / "run") == [((0, "x.good", "forward", 0), 1)]
    (problem,) = tap.verify(tmp_path / "run").problems
    assert (problem.path, problem.step) == ("bad.0", 0)
    assert "storage has 0 bytes" in problem.reason


def test_once_a_name(tmp_path: Path) -> None:
    with tap.record(tmp_path / "run"):
        tap._core.say(str(tmp_path))
        for _ in range(3):
            tap.save(TENSORS["freed"](), "a")
            tap.save(TENSORS["bits8"](), "b")
            tap.step()
        said = [text.partition(" ")[0] for text in since(str(tmp_path))]
    assert said == ["a", "b"]
    assert sorted((p.name, p.step) for p in tap.verify(tmp_path / "run").problems) == [
        (name, step) for name in "ab" for step in range(3)
    ]


def test_odd_arrays_as_numpy_has_them(tmp_path: Path) -> None:
    grid = numpy.arange(24.0).reshape(4, 6)
    values: dict[str, Any] = {
        "negative": grid[::-1, ::-2],
        "transposed": grid[1:, ::3].T,
        "big-endian": grid.astype(">f4"),
        "0-d": numpy.array(3.5),
        "unaligned": numpy.frombuffer(b"\0" + grid.tobytes(), numpy.uint8)[1:].view(numpy.float64),
        "matrix": numpy.asmatrix(grid),
        "broadcast": numpy.broadcast_to(grid[0], (3, 6)),
        "window": numpy.lib.stride_tricks.sliding_window_view(grid, (2, 2)),
        "as_strided": numpy.lib.stride_tricks.as_strided(grid, (2, 3), (96, 8)),
    }
    with tap.record(tmp_path / "run"):
        for name, value in values.items():
            tap.save(value, name)
        tap.save(numpy.array([1, "a", None], dtype=object), "objects")
        tap.save(numpy.ma.masked_array(grid, grid > 3), "masked")
    assert tap.verify(tmp_path / "run").ok
    with tap.open(tmp_path / "run") as run:
        for name, value in values.items():
            assert numpy.array_equal(run[name][0].numpy(), value), name
        assert [record.value() for record in run["objects"]] == [1, "a", None]
        parts = {record.path: record.numpy() for record in run["masked"]}
    assert numpy.array_equal(parts["data"], grid)
    assert numpy.array_equal(parts["mask"], grid > 3)


def test_only_a_wrong_call_is_refused(tmp_path: Path) -> None:
    """At once, whether somebody records or not, with a call that is right."""
    calls: list[Callable[[], Any]] = [
        lambda: tap.save(1),  # type: ignore[call-arg]
        lambda: tap.save(1, 2),  # type: ignore[arg-type]
        lambda: tap.save(1, "a", nothing=1),  # type: ignore[call-arg]
        lambda: tap.save(1, "a", module=5),  # type: ignore[arg-type]
    ]
    for recording in (False, True):
        if recording:
            tap.record(tmp_path / "run")
        for call in calls:
            with pytest.raises(TypeError):
                call()
        for call in calls[:2]:
            with pytest.raises(TypeError, match=r'tap\.save\(x, "x"\)'):
                call()
        tap.save(object(), "x")
    tap.close()
    assert [p.name for p in tap.verify(tmp_path / "run").problems] == ["x"]


def test_who_interrupts_is_heard(tmp_path: Path) -> None:
    class Stops:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyboardInterrupt

    with tap.record(tmp_path / "run"), pytest.raises(KeyboardInterrupt):
        tap.save(Stops(), "x")


COMPAT = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[2])
import torch
import tensortap as tap
import tensortap.compat
tensortap.compat.install()
import troubleshooter as ts
from msprobe.pytorch import PrecisionDebugger
import torch_npu
from strange_values import TENSORS, ARRAYS, ALL

where = sys.argv[1]
debugger = PrecisionDebugger(task="statistics", level="debug", dump_path=where + "/msprobe")
def losses(directory):
    return {p.name for p in tap.verify(directory).problems}
debugger.start()
for name, make in ALL.items():
    PrecisionDebugger.save(make(), "v " + name)
debugger.step()
debugger.stop()
for number, (name, make) in enumerate({**TENSORS, **ARRAYS}.items()):
    value = make()
    if not type(value).__name__ == "void":
        ts.save(f"{where}/ts/v{number}", value)
for number, (name, make) in enumerate(TENSORS.items()):
    torch_npu.save_npugraph_tensor(make(), save_path=f"{where}/npu/v{number}")
    torch_npu.save_npugraph_tensor([torch.ones(1), make()], save_path=f"{where}/npu/list{number}")
tap.flush()
print("came to the end")
print(len(losses(where + "/ts")), len(TENSORS) + len(ARRAYS) - 1)
print(len(losses(where + "/npu")), 2 * len(TENSORS))
print(sorted(name for name in ALL if "v " + name not in losses(where + "/msprobe")))
"""


def test_in_the_calls_of_other_tools(tmp_path: Path) -> None:
    out = python(COMPAT, str(tmp_path), str(Path(__file__).parent)).splitlines()
    assert out[0] == "came to the end"
    assert len({tuple(line.split()) for line in out[1:3]} & {("10", "10"), ("14", "14")}) == 2
    # msprobe shows an object by its repr, as its own does, and a void by its bytes
    shown = ["endless range", "function", "generator", "module", "no array", "object", "void scalar"]
    assert json.loads(out[3].replace("'", '"')) == shown
