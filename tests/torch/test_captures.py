"""Values of a CUDA graph that is being captured, on a machine without a GPU: the driver is the tests' own, and a tensor that
says it is on cuda has no memory, so that whoever reads it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tap_helpers import keys, python

BUILD = Path(os.environ.get("TENSORTAP_BUILD", Path(__file__).resolve().parents[2] / "build" / "dev"))
DRIVER = BUILD / "fake_cuda.so"

SCRIPT = """
import ctypes, os, sys
import torch
from torch.utils._mode_utils import no_dispatch
import tensortap as tap

driver = ctypes.CDLL(os.environ["TENSORTAP_CUDA_DRIVER"])
reads = []

class OnCuda(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), device="cuda:0", dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        name = str(func)
        if name.startswith("tensortap"):
            with no_dispatch():
                return func(*args, **(kwargs or {}))
        if "detach" in name:
            return args[0]
        reads.append(name)
        raise RuntimeError("read: " + name)

x = OnCuda()
def save_all():
    tap.save(x, "eager")
    tap.save({"a": [torch.ones(2), x]}, "nested")
    torch.ops.tensortap.tap(x, "op", 0)
    torch.ops.tensortap.tap_tree([torch.ones(2), x], "tree;tree=t2;TT", 0)
    ticket = torch.ops.tensortap.tap_ticket([x], "ticket", 0)
    assert ticket.tolist()[1] == 0
    torch.ops.tensortap.tap_grad(x, torch.zeros(5, dtype=torch.int64), "gradient")
    torch.ops.tensortap.tap_print(x, "shown")

with tap.record(sys.argv[1]):
    driver.fake_capturing(0, 1)
    save_all()
    save_all()
    tap.save(torch.ones(2), "fine")
    print("reads", len(reads), "relaxed", driver.fake_relaxed())
    driver.fake_capturing(0, 0)
    tap.save(x, "outside")
    print("reads", len(reads) > 0, "relaxed", driver.fake_relaxed() > 0, "mode", driver.fake_mode())
print("said", sum("recorded: it is part of a captured CUDA graph" in m for m in tap.messages()))
"""


@pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built; run: make build")
def test_a_value_of_a_capture_is_counted_and_never_touched(tmp_path: Path) -> None:
    out = python(SCRIPT, str(tmp_path / "run"), env={"TENSORTAP_CUDA_DRIVER": str(DRIVER)})
    assert out.splitlines() == ["reads 0 relaxed 0", "reads True relaxed True mode 0", "said 6"]
    on_cpu = [(0, "nested.a.0", "forward", 0), (0, "nested.a.0", "forward", 1), (0, "fine", "forward", 0)]
    assert keys(tmp_path / "run") == on_cpu
    done = subprocess.run(
        [sys.executable, "-m", "tensortap", "verify", str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if "captured CUDA graph" in line]
    assert sorted(line.split()[3] for line in lines) == sorted(
        2 * ["eager", "gradient", "nested[a.1]", "op", "ticket", "tree"]
    )
