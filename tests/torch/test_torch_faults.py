"""Training goes on, whatever happens to the recording: killed, out of space, without its writer, with names that no file
can have. One warning, and verify lists what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensortap as tap
import torch

TRAIN = """
import os, sys
import tensortap as tap
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
directory, layout, steps, size, compiled, reserve = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def forward(x, step):
    y = model(x)
    tap.save(torch.full((size,), 1.0) * step, "x")
    tap.save({"y": y, "pair": [y * 2, 3]}, "tree", grad=True)
    return (y * y).sum()

tap.record(directory, layout=layout, reserve_bytes=reserve, stall_ms=3000, ring_bytes=1 << 20)
run = torch.compile(forward, backend="aot_eager", fullgraph=True, dynamic=True) if compiled else forward
for step in range(steps):
    optimizer.zero_grad()
    run(torch.ones(1, 4), torch.tensor(float(step))).backward()
    print("backward", step, flush=True)
    optimizer.step()
    tap.step()
    if step in (3, 6) and os.environ.get("KILL_WRITER"):
        os.kill(tap.current().numbers().writer_pid, 9)
tap.close()
print("done", model.weight.sum().item(), flush=True)
"""


def command(directory: Path, layout: str, steps: int, size: int, compiled: bool = False, reserve: int = 0) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", TRAIN, str(directory), layout, str(steps), str(size),
            str(int(compiled)), str(reserve)]  # fmt: skip


def verify(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensortap", "verify", str(directory)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("layout", ["native", "msprobe"])
def test_killed_in_the_middle_of_training(tmp_path: Path, layout: str, compiled: bool) -> None:
    directory = tmp_path / "run"
    process = subprocess.Popen(command(directory, layout, 10**6, 8, compiled), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = -1
    for line in process.stdout:
        last = int(line.split()[1])
        if last == 30:
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    waited = subprocess.run([sys.executable, "-m", "tensortap", "wait", "--timeout", "60", str(directory)], check=False)
    assert waited.returncode == 0
    if layout == "native":
        with tap.open(directory) as run:
            got = {(r.step, r.full_name, r.kind) for r in run}
            want = [("x", "forward"), ("tree.y", "forward"), ("tree.pair.0", "forward"), ("tree.pair.1", "forward"),
                    ("tree.y", "grad")]  # fmt: skip
            assert {(step, *key) for step in range(last + 1) for key in want} <= got
            assert all(r.torch()[0] == r.step for r in run["x"])
        return
    for step in range(last + 1):
        (path,) = directory.glob(f"step{step}/*/debug.json")
        data = json.loads(path.read_text())["data"]
        assert data["x.0.debug"]["Max"] == step
        assert data["tree.0.debug"]["pair"][1] == {"type": "int", "value": 3}
        assert data["tree_grad.0.debug"]["y"]["shape"] == [1, 4]
        assert data["tree_grad.0.debug"]["pair"] == [None]  # announced, and never came
        loaded = torch.load(path.parent / "dump_tensor_data" / data["x.0.debug"]["data_name"], weights_only=True)
        assert torch.equal(loaded, torch.full((8,), float(step)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)], capture_output=True, text=True,
                          check=False)  # fmt: skip
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def result_without(tmp_path: Path, steps: int) -> str:
    done = subprocess.run(command(tmp_path / "good", "native", steps, 8), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("layout", ["native", "msprobe"])
def test_full_disk(tmp_path: Path, small_disk: Path, layout: str) -> None:
    directory = small_disk / "run"
    done = subprocess.run(command(directory, layout, 40, 1 << 17), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == result_without(tmp_path, 40)
    assert "Traceback" not in done.stderr
    told = {line for line in done.stderr.splitlines() if any(w in line.lower() for w in ("no space", "disk is full", "disk was full"))}
    # once of the tensors' files and, where there is one, of the file that lists them; not once a save
    assert 1 <= len(told) <= (1 if layout == "native" else 2), done.stderr
    listed = verify(directory)
    assert listed.returncode == 1, listed.stdout + listed.stderr
    assert "disk" in listed.stdout, listed.stdout
    for path in directory.glob("step*/*/debug.json"):  # a slow writer may not have had room for one
        path.unlink()
    listed = verify(directory)
    assert listed.returncode == 1 and "disk" in listed.stdout, listed.stdout + listed.stderr


@pytest.mark.parametrize("layout", ["native", "msprobe"])
def test_dead_writer(tmp_path: Path, layout: str) -> None:
    directory = tmp_path / "run"
    done = subprocess.run(
        command(directory, layout, 12, 8), capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"KILL_WRITER": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == result_without(tmp_path, 12)
    assert "Traceback" not in done.stderr
    assert "writer" in done.stderr
    if layout == "native":
        with tap.open(directory) as run:
            lost = {p.step for p in run.verify().problems if p.is_loss}
            assert {r.step for r in run["x"]} | lost == set(range(12))
    else:
        names = [json.loads(path.read_text())["data"] for path in directory.glob("step*/*/debug.json")]
        assert sorted(data["x.0.debug"]["Max"] for data in names) == list(range(12))


NAMES = ["../../up", "/etc/passwd", "a\0b", "", ".", "nl\nname", "\udcff", "x" * 5000, "a/" * 300, "%2F", "名前", "con;x=%3B"]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("layout", ["native", "msprobe", "troubleshooter"])
def test_bad_names(tmp_path: Path, layout: str, compiled: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for name in NAMES:
            tap.save(x * 2, name)
        return x.sum()

    run = torch.compile(f, backend="aot_eager", fullgraph=True) if compiled else f
    with tap.record(tmp_path / "inside" / "run", layout=layout):
        assert run(torch.ones(2)) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["inside"]
    assert [p.name for p in (tmp_path / "inside").iterdir()] == ["run"]
    with tap.open(tmp_path / "inside" / "run") as opened:
        kept = len(list(opened)) + sum(p.count for p in opened.verify().problems)
        assert kept >= len(NAMES) - 1, opened.verify().problems  # "" may share its file with another
        assert all(torch.equal(torch.from_numpy(r.numpy()), torch.full((2,), 2.0)) for r in opened)


DEBUGGER = """
import torch
from msprobe.pytorch import PrecisionDebugger
d = PrecisionDebugger(dump_path="disk/dp", level="debug", task="tensor")
for step in range(30):
    x = torch.ones(1 << 17, requires_grad=True) * step
    d.save(x, "x")
    x.sum().backward()
    d.step()
print("done")
"""


def test_precision_debugger_on_a_failing_disk(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "s.py").write_text(DEBUGGER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tensortap.compat", "s.py"], cwd=tmp_path, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if "no space" in line.lower() or "disk is full" in line]
    assert len(told) == 1, done.stderr
    listed = verify(small_disk / "dp")
    assert listed.returncode == 1, listed.stdout + listed.stderr
    # what is there is whole
    for path in small_disk.rglob("*.pt"):
        torch.load(path, weights_only=True)
    for path in small_disk.rglob("debug.json"):
        json.loads(path.read_text())
