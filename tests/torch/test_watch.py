"""Watching models, printing, options from files and variables, and the switch in the config file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tensortap as tap
import torch

from tap_helpers import MODES, compiled, keys, python, rows


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


class TestWatch:
    @pytest.mark.parametrize("backend", MODES)
    def test_inputs_outputs_and_gradients(self, tmp_path: Path, backend: str | None) -> None:
        model = network()
        x = torch.randn(5, 3)
        a = model[0](x)
        a.retain_grad()
        model[2](model[1](a)).sum().backward()
        model.zero_grad()
        with tap.record(tmp_path / "run"):
            tap.watch(model, "0|1")
            run = compiled(model, backend)
            run(x).sum().backward()
        got = dict(rows(tmp_path / "run"))
        names = {(key[1], key[2]) for key in got}
        assert names == {
            ("0.input", "input"),
            ("0.output", "output"),
            ("0.output", "grad"),
            ("1.input", "input"),
            ("1.input", "grad"),
            ("1.output", "output"),
            ("1.output", "grad"),
        }
        assert torch.allclose(got[(0, "0.output", "output", 0)], a.detach())
        assert a.grad is not None
        assert torch.allclose(got[(0, "0.output", "grad", 0)], a.grad)

    def test_optimizer(self, tmp_path: Path) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tap.record(tmp_path / "run"):
            watched = tap.watch(model, "2", params=True, optimizer=optimizer, inputs=False, outputs=False)
            before = model[2].weight.detach().clone()
            model(torch.randn(5, 3)).sum().backward()
            assert model[2].weight.grad is not None
            grad = model[2].weight.grad.clone()
            optimizer.step()
            watched.remove()
            optimizer.step()
        got = dict(rows(tmp_path / "run"))
        assert set(got) == {(0, f"2.{n}", kind, 0) for n in ("weight", "bias") for kind in ("grad", "param")}
        assert torch.equal(got[(0, "2.weight", "grad", 0)], grad)
        assert torch.equal(got[(0, "2.weight", "param", 0)], before - 0.1 * grad)

    def test_nothing_matches(self) -> None:
        with pytest.raises(ValueError, match=r"no module matches 'encoder\.\*'; the names begin with '0'"):
            tap.watch(network(), "encoder.*")

    def test_changes_nothing(self, tmp_path: Path) -> None:
        results = []
        for watching in (False, True):
            model = network()
            if watching:
                tap.record(tmp_path / "run")
                tap.watch(model, params=True)
            torch.manual_seed(1)
            out = model(torch.randn(5, 3))
            out.sum().backward()
            results.append([out.detach(), *(p.grad for p in model.parameters())])
        assert all(torch.equal(a, b) for a, b in zip(*results))


class TestPrint:
    @pytest.mark.parametrize("backend", MODES)
    def test_each_call_in_order(self, capsys: pytest.CaptureFixture[str], backend: str | None) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            tap.print(y, "y; 100%")
            tap.print(x, "x")
            return y.sum()

        run = compiled(f, backend)
        for i in range(2):
            run(torch.tensor([1.0, 2.0]) + i)
        assert capsys.readouterr().out == (
            "y; 100% = float32[2]\n[2. 4.]\nx = float32[2]\n[1. 2.]\ny; 100% = float32[2]\n[4. 6.]\nx = float32[2]\n[2. 3.]\n"
        )


class TestOptions:
    def test_config_file_and_switch(self, tmp_path: Path) -> None:
        config = tmp_path / "config.json"

        def write(**options: object) -> None:
            config.write_text(json.dumps(options))
            os.utime(config, ns=(write.time, write.time))  # type: ignore[attr-defined]
            write.time += 10**9  # type: ignore[attr-defined]

        write.time = 10**18  # type: ignore[attr-defined]
        write(names="a*", dump_enable=True)
        tapped = torch.compile(lambda x: tap.save(x * 2, "a_compiled"), backend="aot_eager", fullgraph=True)
        with tap.record(tmp_path / "run", config=config):
            for step in range(5):
                tap.save(torch.ones(1), "a")
                tap.save(torch.ones(1), "b")
                tapped(torch.ones(2))
                if step in (1, 3):
                    write(names="a*", dump_enable=step == 3)
                tap.step()
        assert keys(tmp_path / "run") == [
            (step, name, "forward", 0) for step in (0, 1, 4) for name in ("a", "a_compiled")
        ]

    def test_a_bad_config_is_named(self, tmp_path: Path) -> None:
        config = tmp_path / "config.json"
        for text, message in (('{"stepz": 1}', "no option 'stepz'"), ("{", "not JSON"), ("[]", "give an object")):
            config.write_text(text)
            with pytest.raises(ValueError, match=message):
                tap.record(tmp_path / "run", config=config)

    def test_config_broken_while_running(self, tmp_path: Path) -> None:
        config = tmp_path / "config.json"
        config.write_text("{}")
        with tap.record(tmp_path / "run", config=config):
            config.write_text('{"dump_en')
            tap.step()
            tap.save(torch.ones(1), "x")
        assert keys(tmp_path / "run") == [(1, "x", "forward", 0)]
        assert any("recording goes on as before" in message for message in tap.messages())

    def test_variables(self, tmp_path: Path) -> None:
        script = "import torch, tensortap as tap\ntap.save(torch.ones(1), 'x')\ntap.save(torch.ones(1), 'y')\n"
        python(script, env={"TENSORTAP_RECORD": str(tmp_path / "a"), "TENSORTAP_NAMES": "x"})
        assert keys(tmp_path / "a") == [(0, "x", "forward", 0)]
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"dir": str(tmp_path / "b"), "names": "y"}))
        python(script, env={"TENSORTAP_CONFIG": str(config)})
        assert keys(tmp_path / "b") == [(0, "y", "forward", 0)]
        script = "import tensortap as tap, torch\ntorch.compile(lambda x: tap.save(x + 1, 'x'), backend='eager')(torch.ones(1))"
        python(script, env={"TENSORTAP_RECORD": str(tmp_path / "c")})
        assert keys(tmp_path / "c") == [(0, "x", "forward", 0)]

    def test_predicate(self, tmp_path: Path) -> None:
        def large(name: str, value: torch.Tensor) -> bool:
            return value.numel() > 1

        with tap.record(tmp_path / "run", predicate=large):
            tap.save(torch.ones(1), "a")
            tap.save(torch.ones(2), "b")
        assert keys(tmp_path / "run") == [(0, "b", "forward", 0)]

    def test_ranks_and_steps(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run", ranks=[1], rank=0, world_size=2):
            tap.save(torch.ones(1), "a")
        with tap.record(tmp_path / "other", steps="1|3-"):
            for _ in range(5):
                tap.save(torch.ones(1, requires_grad=True) * 2, "a", grad=True)
                tap.step()
        assert not (tmp_path / "run").exists()
        assert [key[0] for key in keys(tmp_path / "other")] == [1, 3, 4]


@pytest.mark.parametrize("reentrant", [False, True])
def test_each_gradient_once_with_checkpointing(tmp_path: Path, reentrant: bool) -> None:
    """The forward that activation checkpointing runs again must not hook again what came into it."""
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    x = torch.randn(4, 3)
    found = []
    for number, run in enumerate([model, lambda y: checkpoint(model, y, use_reentrant=reentrant)]):
        y = (x * 2).requires_grad_()
        with tap.record(tmp_path / str(number)), tap.watch(model, "*"):
            run(y).sum().backward()
        assert tap.verify(tmp_path / str(number)).ok
        with tap.open(tmp_path / str(number)) as recording:
            grads = [(r.full_name, r.call, r.torch()) for r in recording.query(kind="grad")]
        keys = [(name, call) for name, call, _ in grads]
        assert len(keys) == len(set(keys)), keys
        found.append({(name, call): value for name, call, value in grads})
    plain, again = found
    assert ("0.input", 0) in plain
    assert {"0.input", "Sequential.input"} <= {name for name, _ in again}
    for key in plain.keys() & again.keys():
        assert torch.equal(plain[key], again[key]), key


def test_a_module_may_return_anything(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (i for i in range(3)) if x is None else object()

    model = Odd()
    with tap.record(tmp_path / "run"), tap.watch(model):
        assert list(model(None)) == [0, 1, 2]
        assert type(model(1)) is object
    first, second = tap.verify(tmp_path / "run").problems
    assert (first.name, second.name) == ("Odd.output", "Odd.output")
    assert "a generator" in first.reason
    assert "a object" in second.reason
