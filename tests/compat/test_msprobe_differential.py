"""The same script under mindstudio-probe 26.2.0 and under tensortap: debug.json and, at level L0, dump.json key by key,
construct.json, stack.json, every .pt, and its compare."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path(__file__).with_name("differential_script.py")
MODULES = pathlib.Path(__file__).with_name("differential_modules_script.py")
BENCH = ROOT / ".venv-bench/bin/python"


def _bench() -> str | None:
    """Makes the other tool's environment; the reason when it cannot be had."""
    done = subprocess.run([ROOT / "tools/setup.sh", "bench"], capture_output=True, text=True, timeout=1800)
    return None if done.returncode == 0 else f"mindstudio-probe 26.2.0 could not be installed: {done.stderr[-500:]}"


@pytest.fixture(scope="module", autouse=True)
def bench(tmp_path_factory: pytest.TempPathFactory) -> None:
    reason = _bench()
    if reason:
        print(reason)
        pytest.skip(reason)
    for script in (SCRIPT, MODULES):
        level = "debug" if script is SCRIPT else "L0"
        dump = run(tmp_path_factory.mktemp("exact") / "theirs", True, config("tensor", level=level), script=script)
        for name, path in tree(dump).items():
            if path.name in ("debug.json", "dump.json"):
                keep_exact(json.loads(path.read_text())["data"], name.split("/")[0] + "/", path.parent)


def keep_exact(value: Any, where: str, directory: pathlib.Path) -> None:
    """The tensors of a run by their place in the JSON."""
    if isinstance(value, dict) and "data_name" in value:
        EXACT[where] = torch.load(directory / "dump_tensor_data" / value["data_name"], weights_only=True)
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            keep_exact(item, f"{where}{'' if where.endswith('/') else '.'}{key}", directory)


def run(where: pathlib.Path, theirs: bool, config: dict[str, Any], ranks: int = 0, script: pathlib.Path = SCRIPT) -> pathlib.Path:
    where.mkdir()
    (where / "config.json").write_text(json.dumps(config))
    launch = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--master_port=0"] if ranks else []
    if launch:
        launch[-1] = "--standalone"
    python = [str(BENCH)] if theirs else [sys.executable, "-m", "tensortap.compat"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("TENSORTAP")}
    env.update(OMP_NUM_THREADS="1", PYTHONPATH="")
    command = [*python, *launch, str(script), "config.json"]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return where / "dump"


def config(task: str, mode: str = "statistics", **more: Any) -> dict[str, Any]:
    return {"task": task, "dump_path": "./dump", "rank": [], "step": [], "level": "debug", "async_dump": False,
            task: {"summary_mode": mode}} | more


def tree(dump: pathlib.Path) -> dict[str, pathlib.Path]:
    """Files by path, with the process's number taken out."""
    found = {}
    for path in dump.rglob("*"):
        if path.is_file():
            parts = ["proc" if part.startswith("proc") else part for part in path.relative_to(dump).parts]
            found["/".join(parts)] = path
    return found


def steps_apart(a: float, b: float, dtype: torch.dtype) -> int:
    """How many values of the dtype lie between two."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0
    if not math.isfinite(a) or not math.isfinite(b):
        return 1 << 30
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    x, y = torch.tensor([a, b], dtype=dtype).view(whole).tolist()
    return abs(x - y) if (x < 0) == (y < 0) else 1 << 30


def check_number(theirs: float, ours: float, name: str, tensor: torch.Tensor, where: str) -> None:
    """Ours is within one step of the exact number; theirs may be off by what its own summing in float32 costs."""
    told = f"{where}.{name}: {theirs!r} {ours!r}"
    if (not tensor.is_complex() and (name in ("Max", "Min") or tensor.ndim == 0)) or not math.isfinite(theirs):
        assert theirs == ours or (math.isnan(theirs) and math.isnan(ours)), told
        return
    dtype = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    wide = tensor.to(torch.complex128).abs() if tensor.is_complex() else tensor.double()
    exact = {"Mean": wide.mean, "Norm": wide.norm, "Max": wide.max, "Min": wide.min}[name]().item()
    assert steps_apart(ours, torch.tensor(exact, dtype=torch.float64).to(dtype).item(), dtype) <= 1, told
    scale = wide.abs().mean().item() if name == "Mean" else exact
    assert abs(theirs - ours) <= 4 * torch.finfo(dtype).eps * scale, told


EXACT: dict[str, torch.Tensor] = {}  # by step and key; the same in every run: the seed is


def same(theirs: Any, ours: Any, where: str) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and list(theirs) == list(ours), where
        for key in theirs:
            if key in ("Max", "Min", "Mean", "Norm") and isinstance(theirs[key], float) and isinstance(ours[key], float):
                step, _, inside = where.partition("/")
                check_number(theirs[key], ours[key], key, EXACT[f"{step}/{inside.partition('.data.')[2]}"], where)
            else:
                same(theirs[key], ours[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list) and len(theirs) == len(ours), where
        for index, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            same(a, b, f"{where}.{index}")
    elif re.search(r"\.inplace\.ReLU\.forward\.\d+\.input_args\..*md5$", where):
        assert type(theirs) is type(ours), where  # theirs is summed in a thread, before or after the value is changed
    else:
        assert type(theirs) is type(ours), f"{where}: {theirs!r} {ours!r}"
        assert theirs == ours or (theirs != theirs and ours != ours), f"{where}: {theirs!r} {ours!r}"


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def beside(theirs: pathlib.Path, ours: pathlib.Path) -> None:
    """construct.json and stack.json: as text, but for where torch is installed."""
    def normal(path: pathlib.Path) -> Any:
        text = path.read_text()
        return re.sub(r"File [^,\n]*/site-packages/", "File ", text)

    assert json.loads(normal(theirs)) == json.loads(normal(ours))
    assert normal(theirs) == normal(ours)


def compare(theirs: pathlib.Path, ours: pathlib.Path) -> tuple[int, int]:
    left, right = tree(theirs), tree(ours)
    assert sorted(left) == sorted(right)
    values = tensors = 0
    for name in left:
        if name.endswith(("construct.json", "stack.json")):
            beside(left[name], right[name])
        elif name.endswith(".json"):
            a, b = (json.loads(path.read_text()) for path in (left[name], right[name]))
            if a["dump_data_dir"]:
                a["dump_data_dir"], b["dump_data_dir"] = (
                    "/".join("proc" if part.startswith("proc") else part for part in each["dump_data_dir"].split("/"))
                    for each in (a, b)
                )
            same(a, b, name)
            values += len(b["data"])
        else:
            x, y = (torch.load(path, weights_only=True) for path in (left[name], right[name]))
            assert x.dtype == y.dtype and x.shape == y.shape and raw(x) == raw(y), name
            assert not y.requires_grad
            tensors += 1
    return values, tensors


def msprobe_compares(tmp_path: pathlib.Path, theirs: pathlib.Path, ours: pathlib.Path, name: str) -> None:
    """Its own compare finds a table for each of two ranks, with a row of that name and no error."""
    command = [str(BENCH.with_name("msprobe")), "compare", "-tp", str(ours / "step0"), "-gp", str(theirs / "step0"), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    tables = sorted((tmp_path / "out").rglob("*.csv"))
    assert len(tables) == 2, done.stdout[-3000:]
    for table in tables:
        text = table.read_text()
        assert name in text and "error" not in text.lower().replace("error_", "")


@pytest.mark.slow
@pytest.mark.parametrize(("task", "mode"), [("statistics", "statistics"), ("statistics", "md5"), ("tensor", "statistics"), ("tensor", "md5")])
def test_same_files(tmp_path: pathlib.Path, task: str, mode: str) -> None:
    theirs = run(tmp_path / "theirs", True, config(task, mode))
    ours = run(tmp_path / "ours", False, config(task, mode))
    values, tensors = compare(theirs, ours)
    assert values > 100 and (tensors > 60) == (task == "tensor")


@pytest.mark.slow
def test_two_ranks_and_compare(tmp_path: pathlib.Path) -> None:
    theirs = run(tmp_path / "theirs", True, config("tensor"), ranks=2)
    ours = run(tmp_path / "ours", False, config("tensor"), ranks=2)
    compare(theirs, ours)
    assert {path.split("/")[1] for path in tree(ours)} == {"rank0", "rank1"}
    msprobe_compares(tmp_path, theirs, ours, "hidden_grad.0.debug")


@pytest.mark.slow
def test_steps_are_honoured(tmp_path: pathlib.Path) -> None:
    settings = config("statistics", step=[0, "2-3"])
    compare(run(tmp_path / "theirs", True, settings), run(tmp_path / "ours", False, settings))


@pytest.mark.slow
def test_asynchronous(tmp_path: pathlib.Path) -> None:
    """Theirs defers: the files at the end are the same, except that it gives up on complex statistics."""
    settings = config("tensor", async_dump=True)
    theirs = run(tmp_path / "theirs", True, settings)
    ours = run(tmp_path / "ours", False, settings)
    for path in tree(theirs).values():
        if path.name == "debug.json":
            loaded = json.loads(path.read_text())
            other = json.loads(next(p for n, p in tree(ours).items() if n.split("/")[0] == path.parts[-3] and n.endswith("debug.json")).read_text())
            for key in ("c64.0.debug", "c128.0.debug"):
                if key in loaded["data"]:
                    assert loaded["data"][key]["Max"] is None and other["data"][key]["Max"] > 0
                    loaded["data"][key] = other["data"][key]
            path.write_text(json.dumps(loaded))
    compare(theirs, ours)


# ------------------------------------------------------------------------------------------------------------ level L0


def modules(tmp_path: pathlib.Path, settings: dict[str, Any], ranks: int = 0) -> tuple[pathlib.Path, int, int]:
    theirs = run(tmp_path / "theirs", True, settings, ranks, MODULES)
    ours = run(tmp_path / "ours", False, settings, ranks, MODULES)
    return ours, *compare(theirs, ours)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "mode"), [("statistics", "statistics"), ("statistics", "md5"), ("tensor", "statistics"), ("tensor", "md5")])
def test_modules(tmp_path: pathlib.Path, task: str, mode: str) -> None:
    ours, values, tensors = modules(tmp_path, config(task, mode, level="L0"))
    assert values > 60 and (tensors > 200) == (task == "tensor")
    assert {path.name for path in tree(ours).values() if path.suffix == ".json"} == {"dump.json", "construct.json", "stack.json"}


@pytest.mark.slow
@pytest.mark.parametrize("data_mode", [["forward"], ["backward"], ["input"], ["output"], ["forward", "output"], ["backward", "input"], ["forward", "backward", "output"]])
def test_modules_data_mode(tmp_path: pathlib.Path, data_mode: list[str]) -> None:
    settings = config("tensor", level="L0", tensor={"data_mode": data_mode})
    assert modules(tmp_path, settings)[2] > 20


@pytest.mark.slow
@pytest.mark.parametrize("part", [
    {"list": ["body", "Split"]},
    {"list": ["Module.body.0.Linear.backward"]},
    {"list": ["Module.body.0.Linear.forward.0"]},
    {"scope": ["Module.body.1.ReLU.forward.0", "Module.split.Split.forward.0"]},
    {"scope": ["Module.twice.Linear.backward.1", "Module.body.2.0.Linear.backward.0"], "list": ["Linear"]},
    {"scope": ["Module.body.2.Sequential.forward.0", "Module.drop.Dropout.forward.0"], "data_mode": ["output"]},
])
def test_modules_filters(tmp_path: pathlib.Path, part: dict[str, Any]) -> None:
    assert modules(tmp_path, config("statistics", level="L0", statistics=part))[1] > 2


@pytest.mark.slow
def test_modules_steps_and_extra_info(tmp_path: pathlib.Path) -> None:
    ours, values, _ = modules(tmp_path, config("statistics", level="L0", step=["1-2"], extra_info=False))
    assert values > 20
    assert {path.split("/")[0] for path in tree(ours)} == {"step1", "step2"}
    assert {path.name for path in tree(ours).values()} == {"dump.json"}


@pytest.mark.slow
def test_modules_of_two_ranks_and_compare(tmp_path: pathlib.Path) -> None:
    ours, _, _ = modules(tmp_path, config("tensor", level="L0"), ranks=2)
    assert {path.split("/")[1] for path in tree(ours)} == {"rank0", "rank1"}
    msprobe_compares(tmp_path, tmp_path / "theirs/dump", ours, "Module.first.Linear.forward.0.input.0")
