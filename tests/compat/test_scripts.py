"""The scripts printed in other tools' documents, unchanged: which files they leave, and what is in them."""
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

PRINTED = pathlib.Path(__file__).parents[2] / "examples/compat"


def files(where: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(where)) for path in where.rglob("*") if path.is_file())


def shown(names: list[str]) -> list[str]:
    """Times and process numbers taken out."""
    return [re.sub(r"proc\d+", "proc", re.sub(r"tensor_\d{17}_", "tensor_TIME_", name)) for name in names]


def load(path: pathlib.Path) -> torch.Tensor:
    tensor: torch.Tensor = torch.load(path, weights_only=True)
    return tensor


def test_000_eager(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    script(PRINTED / "000_eager.py")
    assert shown(files(tmp_path)) == ["tensor_TIME_device_0.pt", "x_device_0.bin"]
    x, y = load(tmp_path / "x_device_0.bin"), load(next(tmp_path.glob("tensor_*")))
    assert x.shape == (5, 5) and x.dtype == torch.float32 and torch.equal(y, x + x)


def test_000_graph_and_load(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    script(PRINTED / "000_graph.py")
    assert files(tmp_path) == ["output_device_0.pt", "x_device_0.pt"]
    assert torch.equal(load(tmp_path / "output_device_0.pt"), load(tmp_path / "x_device_0.pt").square())
    done = script(PRINTED / "000_load.py")
    assert done.stdout.rstrip().endswith("torch.Size([5, 5])")


@pytest.fixture
def home_dump() -> Iterator[pathlib.Path]:
    """The directory the script writes to; made by the save, and removed."""
    path = pathlib.Path("/home/dump")
    if path.exists() or not os.access("/home", os.W_OK):
        pytest.skip(f"the printed script writes to {path}, which exists already or cannot be made here")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.slow
def test_000_compile(tmp_path: pathlib.Path, script: Callable[..., Any], home_dump: pathlib.Path) -> None:
    script(PRINTED / "000_compile.py")
    assert files(home_dump) == ["output_device_0.pt"]
    assert shown(files(tmp_path)) == ["tensor_TIME_device_0.pt"]
    assert torch.equal(load(next(tmp_path.glob("tensor_*"))), load(home_dump / "output_device_0.pt") + 2)
    assert home_dump.stat().st_mode & 0o777 == 0o750
    assert (home_dump / "output_device_0.pt").stat().st_mode & 0o777 == 0o640


def test_002_save(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    script(PRINTED / "002_save.py")
    assert shown(files(tmp_path)) == ["dump_path/step0/proc/debug.json"]
    found = json.loads(next(tmp_path.rglob("debug.json")).read_text())
    assert {key: found[key] for key in list(found)[:4]} == {"task": "statistics", "level": "debug", "framework": "pytorch", "dump_data_dir": None}
    assert list(found["data"]) == ["x2.0.debug", "x2_grad.0.debug"]
    x2, grad = found["data"].values()
    assert list(x2) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    assert x2["shape"] == grad["shape"] == [10, 2] and x2["requires_grad"] and not grad["requires_grad"]
    assert grad["Max"] in (0.0, 1.0)  # of relu


def test_002_steps(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    script(PRINTED / "002_steps.py")
    assert shown(files(tmp_path)) == sorted(f"dump_path/step{n}/proc/debug.json" for n in range(10))
    for path in tmp_path.rglob("debug.json"):
        data = json.loads(path.read_text())["data"]
        assert list(data) == ["x2.0.debug", "x2_grad.0.debug"] and data["x2_grad.0.debug"]["shape"] == [10, 2]


def test_002_configuration_file(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    shutil.copy(PRINTED / "002_config.json", tmp_path / "config.json")
    script("import torch\nfrom msprobe.pytorch import PrecisionDebugger\ndebugger = PrecisionDebugger('./config.json')\ndebugger.save(torch.ones(2), 'x')\n")
    assert shown(files(tmp_path)) == ["config.json", "dump_path/step0/proc/debug.json"]


def test_003_save_grad(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    done = script(PRINTED / "003_save_grad.py")
    assert done.stdout == "['torch_ts_save/0_dense_backward.npy']\n[[-0.5  0.5]]\n"
    assert files(tmp_path) == ["torch_ts_save/0_dense_backward.npy"]
    array = np.load(tmp_path / "torch_ts_save/0_dense_backward.npy")
    assert array.dtype == np.float32 and array.tolist() == [[-0.5, 0.5]]
