"""Level L0 where it is better than what it stands in for, its rules, and what it does when the program is killed."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clean_environment import environment
from msprobe_files import dump_data

RunScript = Callable[..., Any]
HEAD = "import torch, json, os\nfrom torch import nn\nfrom msprobe.pytorch import PrecisionDebugger\n"
L0 = HEAD + "d = PrecisionDebugger(dump_path='dp', level='L0', task='tensor')\n"


def test_training_goes_on_as_without(tmp_path: pathlib.Path, script: RunScript) -> None:
    """Modules that raise, that change their input in place, that are called again after stop; -W error."""
    script(L0 + """
import warnings
warnings.simplefilter("error")
class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("mine")
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.r, self.b, self.raises = nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2), nn.Sequential(Raises())
    def forward(self, x):
        try:
            self.raises(x)
        except ValueError as error:
            assert str(error) == "mine"
        return self.b(self.r(self.a(x)))
def train(watched):
    torch.manual_seed(0)
    model = Model()
    for i in range(3):
        if watched: d.start(model)
        model(torch.ones(2, 2)).sum().backward()
        if watched: d.stop()
        model(torch.ones(2, 2)).sum().backward()
        if watched: d.step()
    return [p.grad for p in model.parameters()]
assert all(torch.equal(a, b) for a, b in zip(train(False), train(True)))
""")
    found = dump_data(tmp_path, 2)
    assert {"Module.a.Linear.forward.0", "Module.r.ReLU.forward.0", "Module.b.Linear.backward.0"} <= set(found)
    assert "output" not in found["Module.raises.0.Raises.forward.0"]
    construct = json.loads(next(tmp_path.rglob("step0/*/construct.json")).read_text())
    assert construct["Module.raises.0.Raises.forward.0"] == "Module.raises.Sequential.forward.0"
    assert construct["Module.a.Linear.forward.0"] is None  # what was raised does not stay around it


def test_what_upstream_loses(tmp_path: pathlib.Path, script: RunScript) -> None:
    """A parameter's gradient when its module is called again without gradients, and lists that hold a parameter."""
    script(L0 + """
class Lists(nn.Module):
    def forward(self, values):
        values.append(values[0] * 2 + values[1])
        return values
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.lists, self.w = nn.Linear(2, 2), Lists(), nn.Parameter(torch.ones(2))
    def forward(self, x):
        y = self.a(x)
        with torch.no_grad():
            self.a(x)
        values = [self.w, y]
        out = self.lists(values)
        assert out is values and len(values) == 3 and values[0] is self.w
        return values[2]
model = Model()
d.start(model); model(torch.ones(1, 2)).sum().backward(); d.stop(); d.step()
assert model.w.grad.tolist() == [2, 2]
""")
    found = dump_data(tmp_path)
    assert found["Module.a.Linear.parameters_grad.0"]["weight"][0]["shape"] == [2, 2]
    assert "Module.a.Linear.forward.1" in found and len(found["Module.lists.Lists.forward.0"]["output"][0]) == 3


def test_several_models_rank_and_steps(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(L0 + """
a, b = nn.Sequential(nn.Linear(1, 1)), nn.Sequential(nn.Tanh())
PrecisionDebugger.set_init_step(5)
for i in range(2):
    PrecisionDebugger.start(model=[a, b], rank_id=3)
    b(a(torch.ones(1, 1)))
    PrecisionDebugger.step()
b(a(torch.ones(1, 1)))
""")
    for step in (5, 6):
        assert list(dump_data(tmp_path, step)) == ["Module.0.0.Linear.forward.0", "Module.1.0.Tanh.forward.0"]
        assert (tmp_path / f"dp/step{step}/rank3/dump.json").exists()
    assert not (tmp_path / "dp/step7").exists()


def test_checkpointing(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(L0 + """
from torch.utils.checkpoint import checkpoint
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)
model = Model()
d.start(model); model(torch.ones(1, 2, requires_grad=True)).sum().backward(); d.stop()
assert model.body[0].weight.grad is not None
""")
    found = dump_data(tmp_path)
    assert "Module.body.0.Linear.forward.1" in found and "Module.body.0.Linear.parameters_grad.0" in found


def test_files_are_whole_after_stop_and_are_read(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(L0 + """
import glob, tensortap
model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
d.start(model=model); model(torch.ones(1, 2)).sum().backward(); d.stop()
(path,) = glob.glob("dp/step0/*/dump.json")
assert len(json.load(open(path))["data"]) == 5
with tensortap.open("dp") as run:
    found = {(r.name, r.kind, r.path): r.numpy().copy() for r in run if r.dtype}
assert torch.equal(torch.from_numpy(found["Module.0.Linear", "output", "parameters.weight"]), model[0].weight.detach())
assert torch.equal(torch.from_numpy(found["Module.0.Linear", "param", "bias.0"]), model[0].bias.grad)
os._exit(0)
""")
    assert torch.load(next(tmp_path.rglob("Module.0.Linear.parameters_grad.0.bias.pt"))).shape == (3,)


def test_killed(tmp_path: pathlib.Path) -> None:
    """Everything that had returned when kill -9 came is in dump.json."""
    text = L0 + """
model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
d.start(model); n = 0
while True:
    model(torch.full((1, 2), float(n))).sum().backward(); n += 1
    print(n, flush=True)
"""
    (tmp_path / "s.py").write_text(text)
    process = subprocess.Popen([sys.executable, "-m", "tensortap.compat", "s.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout
    count = 0
    for line in process.stdout:
        count = int(line)
        if count == 60:
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    last = f"Module.0.Linear.parameters_grad.{count - 1}"
    found: dict[str, Any] = {}
    end = time.monotonic() + 20
    while last not in found and time.monotonic() < end:  # the writer outlives the process by a moment
        time.sleep(0.1)
        if list(tmp_path.rglob("dump.json")):
            found = dump_data(tmp_path)
    assert set(found[last]) == {"weight", "bias"}
    for n in range(count):
        assert found[f"Module.0.Linear.forward.{n}"]["input_args"][0]["Max"] == n
        assert {"output", "parameters"} <= set(found[f"Module.1.Tanh.forward.{n}"]) and f"Module.1.Tanh.backward.{n}" in found


@pytest.mark.parametrize(("part", "told"), [
    ({"tensor_list": ["relu"]}, 'use task "tensor" with "list"'), ({"slice": [{"dim": 0, "begin": 0, "end": 1}]}, "leave it out"),
    ({"scope": ["Module.a.A.forward.0"]}, "the first and the last name"), ({"scope": ["relu", "tanh"]}, "takes names such as"),
    ({"list": ["name-regex(x)"]}, "takes parts of names"), ({"data_mode": ["all", "input"]}, "data_mode is invalid")])  # fmt: skip
def test_refused(tmp_path: pathlib.Path, script: RunScript, part: dict[str, Any], told: str) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"level": "L0", "task": "statistics", "dump_path": "dp", "statistics": part}))
    done = script(HEAD + "PrecisionDebugger('c.json')", check=False)
    assert done.returncode and told in done.stderr and "MsprobeException" in done.stderr


def test_start_without_a_model(script: RunScript) -> None:
    done = script(L0 + "d.start()", check=False)
    assert "missing the parameter 'model'" in done.stderr
    done = script(L0 + "d.start(model=3)", check=False)
    assert "must be a torch.nn.Module" in done.stderr


def test_saves_that_fail_are_said(tmp_path: pathlib.Path, script: RunScript) -> None:
    done = script(L0 + """
model = nn.Sequential(nn.Linear(2, 2))
d.save(torch.ones(1), "x")
os.close(os.open("dp", os.O_CREAT)); d.start(model)
assert model(torch.ones(1, 2)).shape == (1, 2)
d.stop()
""")
    assert 'save is for level "debug"' in done.stderr and "dp" in done.stderr


def test_compiled_model_still_runs(tmp_path: pathlib.Path, script: RunScript) -> None:
    done = script(L0 + """
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
compiled = torch.compile(model, backend="eager", fullgraph=True)
d.start(compiled)
x = torch.ones(1, 2)
assert torch.equal(compiled(x), torch.relu(nn.functional.linear(x, model[0].weight, model[0].bias)))
compiled(x).sum().backward(); d.stop()
assert model[0].weight.grad is not None
""")
    assert "is compiled; level L0 sees only what runs uncompiled" in done.stderr
