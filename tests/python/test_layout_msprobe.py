"""debug.json and the tensors beside it: the text against Python's json.dump, the statistics against torch."""
import json
import math
import pathlib
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from layout_machine import GRAD, SLOT_GONE, STATS, Machine, leaves, raw, read

LOW_PRECISION = (torch.float8_e4m3fn, torch.float8_e5m2)


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64)


def numbers(t: torch.Tensor) -> list[Any]:
    """Max, Min, Mean, Norm as mindstudio-probe 26.1 and later has them; mean and norm rounded from the exact value."""
    if t.numel() == 0 or t.device.type == "meta" or t.dtype in LOW_PRECISION:
        return [None] * 4
    if t.dtype == torch.bool:
        return [t.any().item(), t.all().item(), None, None]
    if t.is_complex():
        size = np.abs(t.numpy())
        return [size.max().item(), size.min().item(), size.mean().item(), None]
    if t.ndim == 0:
        return [t.item()] * 4
    if not t.is_floating_point() or t.dtype == torch.float64:
        return [t.max().item(), t.min().item(), None, None]
    mean, norm = exact(t).mean(), exact(t).norm()
    return [t.max().item(), t.min().item(), mean.float().to(t.dtype).item(), norm.float().to(t.dtype).item()]


def shown(value: Any, data_name: str | None, md5: bool) -> Any:
    """What debug.json holds for one leaf."""
    if isinstance(value, torch.Tensor):
        made = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        made |= dict(zip(("Max", "Min", "Mean", "Norm"), numbers(value), strict=True))
        made["requires_grad"] = value.requires_grad
        if data_name and value.numel() and value.device.type != "meta":
            made["data_name"] = data_name
        if md5:
            made["md5"] = None if value.device.type == "meta" else f"{zlib.crc32(bytes.fromhex(raw(value))):08x}"
        return made
    if value is None:
        return None
    if isinstance(value, torch.Size):
        return {"type": "torch.Size", "value": list(value)}
    return {"type": type(value).__name__, "value": value}


def structure(value: Any, stem: str | None, md5: bool, path: str = "") -> Any:
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [structure(item, stem, md5, f"{path}.{i}") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: structure(item, stem, md5, f"{path}.{key}") for key, item in value.items()}
    return shown(value, f"{stem}{path}.pt" if stem else None, md5)


def nulls(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: nulls(item) for key, item in value.items()}
    return None


def document(data: dict[str, Any], directory: str | None) -> str:
    head = {"task": "tensor" if directory else "statistics", "level": "debug", "framework": "pytorch",
            "dump_data_dir": directory, "data": data}
    return json.dumps(head, indent=1)


def values() -> dict[str, Any]:
    torch.manual_seed(0)
    inf, nan = float("inf"), float("nan")
    made: dict[str, Any] = {
        "f32": torch.randn(7, 5), "wanted": torch.randn(3, requires_grad=True), "strided": torch.randn(6, 8)[::2, 1::3],
        "f64": torch.randn(9, dtype=torch.float64), "f16": torch.randn(200).half(), "bf16": torch.randn(200).bfloat16(),
        "i64": torch.tensor([1, 2**62, -5]), "u8": torch.tensor([1, 255], dtype=torch.uint8),
        "i8": torch.tensor([-128, 5], dtype=torch.int8), "b": torch.tensor([True, False]), "b1": torch.tensor([True]),
        "c64": torch.tensor([3 + 4j, 6 - 8j]), "c128": torch.tensor([3 + 4j, 6 - 8j], dtype=torch.complex128),
        "z32": torch.tensor(-3.5), "z64": torch.tensor(-3.5, dtype=torch.float64), "z16": torch.tensor(0.1).half(),
        "zi": torch.tensor(-7), "zb": torch.tensor(False), "znan": torch.tensor(nan), "empty": torch.empty(0, 3),
        "nan": torch.tensor([1.0, nan]), "inf": torch.tensor([inf, -1.0]), "both": torch.tensor([inf, -inf, 2.0]),
        "ninf": torch.tensor([-inf, 2.0]).bfloat16(), "over": torch.full((4,), 60000.0).half(),
        "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), "f8z": torch.tensor(1.0).to(torch.float8_e5m2),
        "meta": torch.empty(3, device="meta"), "int": 5, "float": 2.5, "fnan": nan, "finf": -inf, "true": True,
        "str": "测试é\n\"", "big": 12345678901234567890123, "none": None, "size": torch.Size([2, 3]),
        "size0": torch.Size([]), "list": [], "dict": {}, "测试 name": torch.ones(2), "a/b": torch.ones(1),
        "nested": {"k": [torch.ones(2, requires_grad=True), 1, {"x": (torch.zeros(1), "s")}], "e": [], "d": {}, "0": None},
    }
    return made


def stem_of(name: str) -> str:
    return f"{name.replace('/', '%2F')}.0.debug"


@pytest.mark.parametrize("md5", [False, True])
@pytest.mark.parametrize("tensors", [True, False])
def test_debug_json_byte_for_byte(tmp_path: pathlib.Path, md5: bool, tensors: bool) -> None:
    machine = Machine("msprobe", str(tmp_path), dir_shown="./dp", checksum=int(md5), keep=3 if tensors else STATS)
    data: dict[str, Any] = {}
    for name, value in values().items():
        machine.save(name, value, slots=True)
        data[f"{name}.0.debug"] = structure(value, stem_of(name) if tensors else None, md5)
        data[f"{name}_grad.0.debug"] = nulls(value)
    machine.op("flush")
    machine.run()
    want = document(data, "./dp/step0/proc42/dump_tensor_data" if tensors else None)
    got = (tmp_path / "step0/proc42/debug.json").read_text()
    assert got == want
    files = list((tmp_path / "step0/proc42").glob("dump_tensor_data/*"))
    assert bool(files) == tensors
    for name, value in values().items() if tensors else ():
        if isinstance(value, torch.Tensor) and value.numel() and value.device.type != "meta":
            loaded = torch.load(tmp_path / f"step0/proc42/dump_tensor_data/{stem_of(name)}.pt", weights_only=True)
            assert loaded.dtype == value.dtype and loaded.shape == value.shape and raw(loaded) == raw(value)
            assert not loaded.requires_grad and loaded.untyped_storage().nbytes() == value.numel() * value.element_size()


def test_gradients_fill_their_slots(tmp_path: pathlib.Path) -> None:
    machine = Machine("msprobe", str(tmp_path), distributed=1, rank=3)
    x, y = torch.randn(4, requires_grad=True), torch.randn(2, requires_grad=True)
    tree = {"a": [x, 3], "b": (y,)}
    gx = torch.randn(4)
    machine.save("t", tree, slots=True, step=7)
    machine.save("later", torch.ones(1), slots=True, step=7)
    machine.op("step", step=7)
    machine.op("flush")
    machine.save("next", torch.ones(1), step=8)
    machine.grad("t", gx, "ka\x1fi0", step=7)  # after its step ended, and after the file was written
    machine.grad("t", gx, "kb\x1ft0", step=7, flags=SLOT_GONE)
    machine.op("flush")
    machine.run()
    stem = "t_grad.0.debug"
    got = (tmp_path / "step7/rank3/debug.json").read_text()
    data = {"t.0.debug": structure(tree, "t.0.debug", False),
            "t_grad.0.debug": {"a": [shown(gx, f"{stem}.a.0.pt", False), None], "b": [None]},
            "later.0.debug": shown(torch.ones(1), "later.0.debug.pt", False), "later_grad.0.debug": None}
    assert got == document(data, f"{tmp_path}/step7/rank3/dump_tensor_data")
    assert (tmp_path / "step7/rank3/dump_tensor_data/t_grad.0.debug.a.0.pt").exists()
    assert list(json.loads((tmp_path / "step8/rank3/debug.json").read_text())["data"]) == ["next.0.debug"]


def test_a_gradient_for_a_step_that_was_closed(tmp_path: pathlib.Path) -> None:
    machine = Machine("msprobe", str(tmp_path))
    for step in range(3):
        machine.save("x", torch.ones(2), step=step)
        machine.op("step", step=step)
        machine.op("flush")
    machine.grad("x", torch.zeros(2), step=0)  # nothing announced it: the file is read and continued
    machine.op("flush")
    machine.run()
    data = {"x.0.debug": shown(torch.ones(2), "x.0.debug.pt", False),
            "x_grad.0.debug": shown(torch.zeros(2), "x_grad.0.debug.pt", False)}
    assert (tmp_path / "step0/proc42/debug.json").read_text() == document(
        data, f"{tmp_path}/step0/proc42/dump_tensor_data")


def test_a_variable_named_like_a_gradient(tmp_path: pathlib.Path) -> None:
    machine = Machine("msprobe", str(tmp_path))
    machine.save("x", torch.ones(2, requires_grad=True), slots=True)
    machine.save("x_grad", torch.full((2,), 5.0))
    machine.grad("x", torch.zeros(2))
    machine.op("flush")
    machine.run()
    data = json.loads((tmp_path / "step0/proc42/debug.json").read_text())["data"]
    assert list(data) == ["x.0.debug", "x_grad.0.debug", "x_grad~1.0.debug"]
    assert data["x_grad.0.debug"]["Max"] == 0.0 and data["x_grad~1.0.debug"]["Max"] == 5.0
    for key in data:
        loaded = torch.load(tmp_path / "step0/proc42/dump_tensor_data" / data[key]["data_name"], weights_only=True)
        assert loaded.max().item() == data[key]["Max"]
    layout, records = read(str(tmp_path))
    assert layout == "msprobe"
    assert [(r["name"], r["kind"]) for r in records] == [("x", 0), ("x", GRAD), ("x_grad", 0)]


def test_random_tensors_have_torch_statistics(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(5)
    machine = Machine("msprobe", str(tmp_path), keep=STATS)
    saved = {}
    for i in range(300):
        dtype = (torch.float32, torch.float16, torch.bfloat16)[i % 3]
        saved[f"r{i}"] = (torch.randn(1 + i * 7) * 10 ** (i % 9 - 4)).to(dtype)
        machine.save(f"r{i}", saved[f"r{i}"])
    machine.op("flush")
    machine.run()
    data = json.loads((tmp_path / "step0/proc42/debug.json").read_text())["data"]
    for name, tensor in saved.items():
        got = data[f"{name}.0.debug"]
        assert [got["Max"], got["Min"]] == [tensor.max().item(), tensor.min().item()]
        for key, value in (("Mean", exact(tensor).mean()), ("Norm", exact(tensor).norm())):
            near = value.to(tensor.dtype).item()
            ulp = abs(np.spacing(np.float32(near))) * {torch.float32: 1, torch.float16: 2**13, torch.bfloat16: 2**16}[
                tensor.dtype]
            assert got[key] == near or abs(got[key] - near) <= ulp or (math.isinf(near) and math.isinf(got[key])), name


def test_placements_and_numbers_in_names(tmp_path: pathlib.Path) -> None:
    machine = Machine("msprobe", str(tmp_path), keep=STATS)
    mesh = {"device_mesh": [0, 1], "placements": [{"Shard": {"dim": 0}}, {"Replicate": {}}]}
    machine.save("d", torch.ones(2), type_name="torch.distributed.tensor.DTensor", placements=json.dumps(mesh))
    machine.op("flush")
    machine.run()
    want = shown(torch.ones(2), None, False) | {"type": "torch.distributed.tensor.DTensor"} | mesh
    assert (tmp_path / "step0/proc42/debug.json").read_text() == document({"d.0.debug": want}, None)


@pytest.fixture
def deep_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("deep_recursion")
def test_deep_and_wide_values(tmp_path: pathlib.Path) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    wide = {f"k{i}": i for i in range(20000)}
    machine = Machine("msprobe", str(tmp_path), keep=STATS)
    machine.save("deep", deep)
    machine.save("wide", wide)
    machine.op("flush")
    machine.run()
    data = {"deep.0.debug": structure(deep, None, False), "wide.0.debug": structure(wide, None, False)}
    assert (tmp_path / "step0/proc42/debug.json").read_text() == document(data, None)
    assert len(read(str(tmp_path))[1]) == 20001


def test_mindspore_flavour(tmp_path: pathlib.Path) -> None:
    machine = Machine("msprobe", str(tmp_path), framework="mindspore", checksum=1)
    saved = {"i": torch.tensor([3, -4]), "f": torch.tensor([3.0, 4.0]).bfloat16(), "d": torch.tensor([0.1, 0.2]).double(),
             "b": torch.tensor([True, False])}
    for name, tensor in saved.items():
        machine.save(name, tensor)
    machine.op("flush")
    machine.run()
    text = json.loads((tmp_path / "step0/proc42/debug.json").read_text())
    assert text["framework"] == "mindspore"
    assert list(text["data"]["i.0.debug"].items()) == [
        ("type", "mindspore.Tensor"), ("dtype", "Int64"), ("shape", [2]), ("Max", 3.0), ("Min", -4.0), ("Mean", -0.5),
        ("Norm", 5.0), ("data_name", "i.0.debug.npy"), ("md5", f"{zlib.crc32(saved['i'].numpy().tobytes()):08x}")]
    wide = saved["f"].float().numpy()
    assert text["data"]["f.0.debug"]["dtype"] == "BFloat16"
    assert text["data"]["f.0.debug"]["md5"] == f"{zlib.crc32(wide.tobytes()):08x}"
    assert text["data"]["d.0.debug"]["Mean"] == float(np.float32(saved["d"].mean().item()))
    assert [text["data"]["b.0.debug"][key] for key in ("Max", "Min", "Mean", "Norm")] == [True, False, None, None]
    loaded = np.load(tmp_path / "step0/proc42/dump_tensor_data/f.0.debug.npy")
    assert loaded.dtype == np.float32 and (loaded == wide).all()


def test_reading_back(tmp_path: pathlib.Path) -> None:
    saved = {name: value for name, value in values().items() if name not in ("big", "size", "size0")}
    machine = Machine("msprobe", str(tmp_path), rank=1, distributed=1)
    for name, value in saved.items():
        machine.save(name, value, step=2)
    machine.op("flush")
    machine.run()
    layout, records = read(str(tmp_path))
    assert layout == "msprobe"
    want = [(name, path) for name, value in saved.items() for path, _ in leaves(value)]
    assert [(r["name"], r["path"]) for r in records] == [
        (name, ".".join(part[1:] for part in path.split("\x1f")) if path else "") for name, path in want]
    by_name = {r["name"]: r for r in records}
    for name, value in saved.items():
        r = by_name[name]
        assert (r["rank"], r["step"], r["call"]) == (1, 2, 0)
        if isinstance(value, torch.Tensor):
            assert r["dtype"] == str(value.dtype).removeprefix("torch.") and r["shape"] == list(value.shape)
            assert bool(r["flags"] & 1) == value.requires_grad
            kept = value.numel() > 0 and value.device.type != "meta"
            assert bool(r["file"]) == kept and r["payload_bytes"] == (value.numel() * value.element_size() if kept else 0)
            biggest = numbers(value)[0]
            assert r["has_stats"] == (biggest is not None)
            if biggest is not None:
                assert r["max"] == biggest or (math.isnan(biggest) and math.isnan(r["max"]))


def test_reading_a_tree_of_several_processes_from_any_of_its_levels(tmp_path: pathlib.Path) -> None:
    for step in (0, 10, 2):
        for rank in (0, 1):
            machine = Machine("msprobe", str(tmp_path), rank=rank, distributed=1)
            machine.save("x", torch.full((2,), float(step)), step=step)
            machine.op("flush")
            machine.run()
    layout, records = read(str(tmp_path))
    assert [(r["rank"], r["step"]) for r in records] == [(0, 0), (0, 2), (0, 10), (1, 0), (1, 2), (1, 10)]
    for below in ("step10", "step10/rank1", "step10/rank1/debug.json"):
        layout, records = read(str(tmp_path / below))
        assert layout == "msprobe"
        assert {r["step"] for r in records} == {10}
        base = tmp_path / below if not below.endswith("json") else (tmp_path / below).parent
        assert all((base / r["file"]).is_file() for r in records)
