"""torchrun with gloo: one run directory, each rank its own files, values and gradients of every rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tensortap as tap
import torch

SCRIPT = """
import sys
import tensortap as tap
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
with tap.record(sys.argv[1], ranks=sys.argv[2] or None):
    for step in range(2):
        x = torch.full((1, 2), float(rank + step))
        y = model(x)
        tap.save(x, "x")
        tap.save(y, "y", grad=True)
        (y * (rank + 1)).sum().backward()
        tap.save(model.module.weight.grad, "weight", "grad")
        model.zero_grad()
        tap.step()
dist.destroy_process_group()
"""


def torchrun(tmp_path: Path, world: int, ranks: str = "") -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    result = subprocess.run(
        [*command, str(script), str(tmp_path / "run"), ranks], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("world", [2, 4])
def test_each_rank_its_own_files(tmp_path: Path, world: int) -> None:
    torchrun(tmp_path, world)
    with tap.open(tmp_path / "run") as run:
        assert run.verify().ok
        files = {}
        for rank in range(world):
            records = list(run.query(rank=rank))
            files[rank] = {record.file for record in records}
            assert [(r.step, r.name, r.kind) for r in records] == [
                (step, name, kind)
                for step in range(2)
                for name, kind in (("x", "forward"), ("y", "forward"), ("y", "grad"), ("weight", "grad"))
            ]
            for step in range(2):
                x, y, grad, weight = records[4 * step : 4 * step + 4]
                assert x.torch().tolist() == [[float(rank + step)] * 2]
                assert y.shape == (1, 2)
                assert grad.torch().tolist() == [[float(rank + 1)] * 2]
                # the mean over the ranks: what DistributedDataParallel gives every one of them
                mean = sum((r + 1) * (r + step) for r in range(world)) / world
                assert torch.allclose(weight.torch(), torch.full((2, 2), mean))
        assert sum(len(names) for names in files.values()) == len(set.union(*files.values()))


def test_only_some_ranks(tmp_path: Path) -> None:
    torchrun(tmp_path, 2, "1")
    with tap.open(tmp_path / "run") as run:
        assert {record.rank for record in run} == {1}
        assert len(run) == 8
