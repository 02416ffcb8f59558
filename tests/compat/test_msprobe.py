"""PrecisionDebugger where it is better than what it stands in for, its rules, and what it does when killed."""
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clean_environment import environment
from msprobe_files import debug_data

RunScript = Callable[..., Any]
HEAD = "import torch, json, os, numpy as np\nfrom msprobe.pytorch import PrecisionDebugger, seed_all\n"
DEBUG = HEAD + "d = PrecisionDebugger(dump_path='dp', level='debug', task='tensor')\n"


def test_values_that_were_skipped(tmp_path: pathlib.Path, script: RunScript) -> None:
    done = script(DEBUG + """
import dataclasses
@dataclasses.dataclass
class D:
    a: object
deep = torch.ones(1, requires_grad=True)
for _ in range(150):
    deep = [deep]
d.save(None, "none"); d.save({3: torch.ones(1), "s": {2, 1}, "d": D(1)}, "keys"); d.save(np.arange(3, dtype=np.float32), "array")
d.save(deep, "deep"); d.save(torch.ones(1), "a/b c+"); d.save(1j, "complex"); d.save(np.float32(0.5), "np"); d.save(object, "class")
d.save(torch.ones(1), "x_grad"); x = torch.ones(1, requires_grad=True); d.save(x, "x"); (x * 3).sum().backward()
deep_leaf = deep
while isinstance(deep_leaf, list): deep_leaf = deep_leaf[0]
(deep_leaf * 2).sum().backward()
d.save(torch.ones(1), 5); d.save(torch.ones(1), "bad", 3)
""")
    found = debug_data(tmp_path)
    assert found["none.0.debug"] is None and found["keys.0.debug"]["3"]["shape"] == [1]
    assert found["keys.0.debug"]["s"] == [{"type": "int", "value": 1}, {"type": "int", "value": 2}] and found["keys.0.debug"]["d"] == {"a": {"type": "int", "value": 1}}
    assert found["array.0.debug"]["type"] == "numpy.ndarray" and found["array.0.debug"]["Max"] == 2
    inside, grad = found["deep.0.debug"], found["deep_grad.0.debug"]
    for _ in range(150):
        (inside,), (grad,) = inside, grad
    assert inside["Max"] == 1 and grad["Max"] == 2
    assert found["a/b c+.0.debug"]["data_name"] == "a%2Fb c+.0.debug.pt"
    assert found["np.0.debug"] == {"type": "float32", "value": 0.5}
    assert found["x_grad.0.debug"]["Max"] == 1 and found["x_grad~1.0.debug"]["Max"] == 3 and "bad.0.debug" not in found
    assert "Traceback" not in done.stderr


def test_gradients_go_to_the_step_of_their_forward(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(DEBUG + """
w = torch.nn.Parameter(torch.ones(2))
x = torch.ones(2, requires_grad=True); y = x * 2
d.save([y, 1, torch.ones(1)], "y"); d.save(w, "w"); never = x * 5; d.save(never, "never"); del never
d.step()
d.save(torch.ones(1), "other")
(y.sum() * 3 + (w * 7).sum()).backward()
d.step()
(w * 9).sum().backward()  # a hook of a step that is over
d.save(torch.zeros(1), "third")
""")
    first = debug_data(tmp_path)
    assert first["y_grad.0.debug"][0]["Max"] == 3 and first["y_grad.0.debug"][1:] == [None, None]
    assert first["w_grad.0.debug"]["Max"] == 7 and first["never_grad.0.debug"] is None
    assert list(debug_data(tmp_path, 1)) == ["other.0.debug", "other_grad.0.debug"]
    grad = torch.load(next(tmp_path.glob("dp/step0/*/dump_tensor_data/y_grad.0.debug.0.pt")), weights_only=True)
    assert grad.tolist() == [3, 3]


def test_steps_ranks_and_second_instance(tmp_path: pathlib.Path, script: RunScript) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"task": "statistics", "dump_path": "dp", "level": "debug", "rank": [0, 3], "step": ["1-2"]}))
    text = HEAD + """
d = PrecisionDebugger("c.json")
assert PrecisionDebugger() is d and PrecisionDebugger("c.json") is d and PrecisionDebugger(dump_path="other") is d
for n in range(4):
    PrecisionDebugger.start(); d.save(torch.tensor([float(n)]), "x"); d.save(torch.ones(1), "x"); PrecisionDebugger.stop(); PrecisionDebugger.step()
PrecisionDebugger.set_init_step(2); d.save(torch.tensor([20.0]), "x")
"""
    done = script(text)
    assert done.stderr.count("a second PrecisionDebugger with other arguments") == 1
    assert sorted(path.name for path in (tmp_path / "dp").iterdir()) == ["step1", "step2"]
    assert debug_data(tmp_path, 1)["x.0.debug"]["Max"] == 1 and list(debug_data(tmp_path, 1))[2] == "x.1.debug"
    assert debug_data(tmp_path, 2)["x.0.debug"]["Max"] == 20
    script(text, RANK="1", before=("-m", "tensortap.compat"))
    assert len(list((tmp_path / "dp/step1").iterdir())) == 1  # rank 1 is not wanted


def test_hot_switch(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(HEAD + """
def put(**more):
    with open("c.json", "w") as f:
        json.dump({"task": "statistics", "dump_path": "dp", "level": "debug", **more}, f)
put(dump_enable=False)
d = PrecisionDebugger("c.json")
for n, change in enumerate([dict(dump_enable=True), dict(dump_enable=False, rank=[]), None, dict(dump_enable=True, task="tensor")]):
    d.save(torch.ones(1), "x")
    if change is None:
        open("c.json", "w").write("{")
    else:
        put(**change)
    d.step()
d.save(torch.ones(1), "x")
""")
    assert sorted(path.name for path in (tmp_path / "dp").iterdir()) == ["step1", "step4"]
    assert len(list(tmp_path.glob("dp/step4/*/dump_tensor_data/x.0.debug.pt"))) == 1


@pytest.mark.parametrize(("arguments", "told"), [
    ("3", "config_path must be a str"), ("task='x', level='debug'", "task must be one of"), ("dump_path=3, level='debug'", "dump_path must be a str"),
    ("level='L9'", "level must be one of"), ("level='L1'", 'serves the levels "debug" and "L0"'), ("level='mix'", 'serves the levels "debug" and "L0"'), ("level='L2'", '"debug" and "L0"'), ("level='debug', task='acc_check'", '"statistics" or "tensor"'),
    ("level='debug', step=[1.5]", "must be an integer or string"), ("level='debug', step=[True]", "must be an integer or string"),
    ("level='debug', step='1'", "should be a list"), ("level='debug', step=['6-4']", "must end above"), ("level='debug', step=[-1]", "between 0 and 1000000"),
    ("level='debug', step=['1-2-3']", "a number or a range"), ("'missing.json'", "does not exist"), ("'bad.json'", "is not JSON"), ("'c.txt'", "not a .json file"),
    ("'nopath.json'", "dump_path not found"), ("'async.json'", "async_dump is invalid"), ("'mode.json'", "summary_mode")])  # fmt: skip
def test_rules(tmp_path: pathlib.Path, script: RunScript, arguments: str, told: str) -> None:
    base = {"level": "debug", "dump_path": "dp"}
    for name, text in {"bad.json": "{", "c.txt": "{}", "nopath.json": '{"level": "debug"}', "async.json": json.dumps(base | {"async_dump": 1}),
                       "mode.json": json.dumps(base | {"statistics": {"summary_mode": "x"}})}.items():
        (tmp_path / name).write_text(text)
    done = script(HEAD + f"""
from msprobe.core.common.exceptions import FileCheckException, MsprobeException
try:
    PrecisionDebugger({arguments})
except (MsprobeException, FileCheckException) as error:
    print(type(error).__name__, error.code, error)
""")
    assert told in done.stdout and "[msprobe]" in done.stdout


def test_before_there_is_one(script: RunScript) -> None:
    done = script(HEAD + "PrecisionDebugger.save(torch.ones(1), 'x')", check=False)
    assert "PrecisionDebugger instance is not created." in done.stderr


def test_asynchronous_with_checksum(tmp_path: pathlib.Path, script: RunScript) -> None:
    import zlib

    (tmp_path / "c.json").write_text(json.dumps({"task": "tensor", "dump_path": "dp", "level": "debug", "async_dump": True, "tensor": {"summary_mode": "md5"}}))
    script(HEAD + "d = PrecisionDebugger('c.json')\nx = torch.arange(1000.0)\nd.save(x, 'x'); x.zero_(); d.save(torch.ones(3, dtype=torch.complex64), 'c')\n")
    found = debug_data(tmp_path)
    x = torch.arange(1000.0)
    assert found["x.0.debug"]["md5"] == f"{zlib.crc32(x.numpy().tobytes()):08x}" and found["c.0.debug"]["Max"] == 1
    assert torch.equal(torch.load(next(tmp_path.rglob("x.0.debug.pt"))), x)


def test_checksum_of_a_tensor_larger_than_the_ring(tmp_path: pathlib.Path, script: RunScript) -> None:
    import zlib

    (tmp_path / "c.json").write_text(json.dumps({"task": "statistics", "dump_path": "dp", "level": "debug", "statistics": {"summary_mode": "md5"}}))
    script(HEAD + "d = PrecisionDebugger('c.json')\nd.save(torch.arange(1_000_000), 'x')\n", TENSORTAP_RING_BYTES="1M")
    assert debug_data(tmp_path)["x.0.debug"]["md5"] == f"{zlib.crc32(torch.arange(1_000_000).numpy().tobytes()):08x}"


def test_killed(tmp_path: pathlib.Path) -> None:
    """Everything that was saved when kill -9 came is in debug.json."""
    text = DEBUG + """
n = 0
while True:
    x = torch.ones(3, requires_grad=True) * n
    d.save(x, "x"); x.sum().backward(); n += 1
    if n % 50 == 0: d.step()
    print(n, flush=True)
"""
    (tmp_path / "s.py").write_text(text)
    process = subprocess.Popen([sys.executable, "-m", "tensortap.compat", "s.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout
    count = 0
    for line in process.stdout:
        count = int(line)
        if count == 120:
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    import time

    end = time.monotonic() + 20
    total = 0
    while total < 2 * count and time.monotonic() < end:  # the writer outlives the process by a moment
        time.sleep(0.1)
        total = sum(len(json.loads(path.read_text())["data"]) for path in tmp_path.rglob("debug.json"))
    assert total >= 2 * count
    last = debug_data(tmp_path, (count - 1) // 50)
    key = (count - 1) % 50
    assert last[f"x.{key}.debug"]["Max"] == count - 1 and last[f"x_grad.{key}.debug"]["Max"] == 1


def test_seed_all(script: RunScript) -> None:
    done = script(HEAD + """
import random
seed_all(7, True)
a = (random.random(), np.random.rand(), torch.rand(1).item()); seed_all(7, mode=False, rm_dropout=True)
assert a == (random.random(), np.random.rand(), torch.rand(1).item())
assert torch.equal(torch.nn.Dropout(0.9)(torch.ones(100)), torch.ones(100))
for bad in (dict(seed=-1), dict(seed=1.5), dict(mode=1), dict(rm_dropout=1)):
    try:
        seed_all(**bad)
    except Exception as error:
        print(error)
""")
    assert done.stdout.count("[msprobe]") == 4


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "npu"])
def test_compiled_as_eager(tmp_path: pathlib.Path, script: RunScript, backend: str) -> None:
    source = pathlib.Path(__file__).with_name("compiled_script.py")
    trees = {}
    for each in ("none", backend):
        script(source, each)
        trees[each] = {path.parts[-3]: json.loads(path.read_text())["data"] for path in tmp_path.glob(f"dp_{each}/*/*/debug.json")}
    assert len(trees["none"]) == 2 and trees["none"] == trees[backend]
    assert trees["none"]["step0"]["h_grad.1.debug"]["Max"] == 2


def test_flush_reaches_every_recorder(tmp_path: pathlib.Path, script: RunScript) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"task": "tensor", "dump_path": "dp", "level": "debug", "async_dump": True}))
    script(HEAD + """
import tensortap, glob
d = PrecisionDebugger('c.json')
d.save(torch.arange(1000.0), 'x', save_backward=False)
tensortap.flush()
found = json.load(open(glob.glob("dp/step0/*/debug.json")[0]))["data"]["x.0.debug"]
assert torch.load(glob.glob("dp/step0/*/dump_tensor_data/" + found["data_name"])[0]).tolist() == torch.arange(1000.0).tolist()
os._exit(0)
""")


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_xor(tmp_path: pathlib.Path, script: RunScript, task: str) -> None:
    """The xor of all 8-byte words, the last filled with zeros, in place of the statistics."""
    def xor(raw: bytes) -> str:
        total = 0
        for at in range(0, len(raw), 8):
            total ^= int.from_bytes(raw[at : at + 8].ljust(8, b"\0"), "little")
        return f"0x{total:016x}"

    (tmp_path / "c.json").write_text(json.dumps({"task": task, "dump_path": "dp", "level": "debug", task: {"summary_mode": "xor"}}))
    script(HEAD + """
d = PrecisionDebugger('c.json')
d.save(torch.arange(1001.0), 'x'); d.save(torch.arange(100001.0).reshape(-1, 1).expand(-1, 2).t(), 'large'); d.save(torch.ones(0), 'empty')
d.save(torch.arange(3, dtype=torch.int8), 'small')
""", TENSORTAP_RING_BYTES="1M")
    found = debug_data(tmp_path)
    large = torch.arange(100001.0).reshape(-1, 1).expand(-1, 2).t().contiguous()
    for name, value in (("x", torch.arange(1001.0)), ("large", large), ("empty", torch.ones(0)), ("small", torch.arange(3, dtype=torch.int8))):
        leaf = found[f"{name}.0.debug"]
        assert list(leaf)[:5] == ["type", "dtype", "shape", "md5", "requires_grad"] and "Max" not in leaf
        assert leaf["md5"] == xor(value.numpy().tobytes()), name


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_debug_json_is_whole_when_a_call_returns(tmp_path: pathlib.Path, script: RunScript, backend: str | None) -> None:
    """After each backward, step and stop."""
    done = script(DEBUG + f"backend = {backend!r}\n" + """
import glob
def have(step, kind):
    files = glob.glob(f"dp/step{step}/*/debug.json")
    data = json.load(open(files[0]))["data"] if files else {}
    return sorted(name for name, found in data.items() if kind in name and found is not None)
def f(x):
    for n in range(20):
        x = x * 2
        d.save(x, f"v{n}")
    return x.sum()
g = torch.compile(f, backend=backend, fullgraph=True) if backend else f
for step in range(2):
    for part in range(2):
        loss = g(torch.ones(2, requires_grad=True))
        loss.backward()
        print(step, part, len(have(step, "_grad")))
    d.save(torch.ones(1), "last")
    d.step()
    print(step, "step", len(have(step, "last")))
d.save(torch.ones(1), "end")
d.stop()
print("stop", len(have(2, "end")))
try:
    x = torch.ones(1, requires_grad=True); y = x * 2; z = y * 3
    d.save(z, "z"); y.register_hook(lambda g: 1 / 0); z.sum().backward()
except ZeroDivisionError:
    pass
x = torch.ones(1, requires_grad=True); y = x * 2; d.save(y, "after"); y.sum().backward()
print("after", len(have(2, "after_grad")))
""")
    expected = ["0 0 20", "0 1 40", "0 step 1", "1 0 20", "1 1 40", "1 step 1", "stop 1", "after 1"]
    assert done.stdout.splitlines() == expected, done.stderr[-2000:]
