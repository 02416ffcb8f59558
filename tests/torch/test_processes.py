"""Other processes: killed ones, other devices, and a torch without the C shim."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import tensortap as tap
import torch

from tap_helpers import keys, python, rows

LOOP = """
import sys
import tensortap as tap
import torch

model = torch.nn.Linear(4, 4)
tap.record(sys.argv[1])
run = torch.compile(lambda x: tap.save(model(x), "y", grad=True) or model(x).sum(), backend="aot_eager", fullgraph=True)
for step in range(10**6):
    run(torch.ones(1, 4)).backward()
    print(step, flush=True)
    tap.step()
"""


def test_kill_in_the_training_loop(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tmp_path / "run")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    done = -1
    for line in process.stdout:
        done = int(line)
        if done == 50:
            process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run([sys.executable, "-m", "tensortap", "wait", str(tmp_path / "run")], timeout=60, check=False)
    steps = {key[0] for key in keys(tmp_path / "run", kind="forward")}
    assert set(range(done + 1)) <= steps


PRIVATE = """
import sys
import numpy as np
import tensortap as tap
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("npy")

class Npy(torch.Tensor):
    @staticmethod
    def __new__(cls, array):
        result = torch._C._acc.create_empty_tensor(array.shape, torch.float32)
        result.__class__ = Npy
        return result

    def __init__(self, array):
        self.raw = array

@torch.library.impl("aten::_copy_from", "privateuseone")
def _copy_from(a, b, non_blocking=False):
    b.copy_(torch.from_numpy(a.raw))
    return b

@torch.library.impl("aten::detach", "privateuseone")
def detach(a):
    return Npy(a.raw)

@torch.library.impl("aten::mul.Tensor", "privateuseone")
def mul(a, b):
    return Npy(a.raw * float(b))

x = Npy(np.arange(6, dtype=np.float32).reshape(2, 3))
assert x.device.type == "npy"
with tap.record(sys.argv[1]):
    tap.save(x * 2, "eager")
    torch.ops.tensortap.tap(x * 3, "operator", 0)
"""


def test_private_device(tmp_path: Path) -> None:
    """torch's own way to make a backend in Python; its copy is the only way to its values."""
    python(PRIVATE, str(tmp_path / "run"))
    x = torch.arange(6.0).reshape(2, 3)
    (eager, a), (operator, b) = rows(tmp_path / "run")
    assert (eager[1], operator[1]) == ("eager", "operator")
    assert torch.equal(a, x * 2)
    assert torch.equal(b, x * 3)
    with tap.open(tmp_path / "run") as run:
        assert [record.device.rpartition(":")[0] for record in run] == ["npy", "npy"]


WITHOUT_SHIM = """
import sys
import tensortap as tap
from tensortap import _core
_core.torch_register = lambda path: "forced for a test"
import torch

def f(x):
    y = x * 2
    tap.save(y, "y", grad=True)
    tap.save([y + 1, {"a": x.sum(), "n": 3}], "tree", grad=True)
    z = tap.save_grad(y, "g")
    tap.print(y.sum(), "sum")
    return (z * z).sum()

with tap.record(sys.argv[1]):
    for backend in (None, "eager", "aot_eager", "inductor"):
        run = f if backend is None else torch.compile(f, backend=backend, fullgraph=True)
        run(torch.arange(3.0, requires_grad=True)).backward()
        tap.step()
assert sum("forced for a test" in message for message in tap.messages()) == 1
"""


def test_without_the_shim(tmp_path: Path) -> None:
    out = python(WITHOUT_SHIM, str(tmp_path / "run"))
    assert out == "sum = float32[]\n6.0\n" * 4
    got = dict(rows(tmp_path / "run"))
    first = {key[1:]: value for key, value in got.items() if key[0] == 0}
    assert sorted(first) == sorted(
        [(n, "forward", 0) for n in ("y", "tree.0", "tree.1.a", "tree.1.n")] + [("y", "grad", 0), ("g", "grad", 0)]
    )
    for step in range(1, 4):
        again = {key[1:]: value for key, value in got.items() if key[0] == step}
        assert set(again) == set(first)
        assert all(torch.equal(torch.as_tensor(again[key]), torch.as_tensor(first[key])) for key in first)
