"""The layouts of plain files, read by the libraries people read them with."""
import pathlib
import re

import numpy as np
import pytest
import torch
from layout_machine import FORWARD, GRAD, INPUT, OUTPUT, Machine, raw, read

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.complex32]


def sample(dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.5, 8.0]])
    return numbers.to(torch.complex64).to(dtype) if dtype.is_complex else numbers.to(dtype)


def widened(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64).numpy()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2) else tensor).numpy()


def same(path: pathlib.Path, tensor: torch.Tensor) -> None:
    loaded, want = np.load(path), widened(tensor)
    assert loaded.dtype == want.dtype and loaded.shape == want.shape and loaded.tobytes() == want.tobytes()


def names(directory: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("suffix", ["pt", "bin"])
def test_torch_npu_files_load(tmp_path: pathlib.Path, suffix: str) -> None:
    machine = Machine("torch_npu", str(tmp_path))
    for dtype in DTYPES:
        machine.save(f"d/{str(dtype)[6:]}.{suffix}", sample(dtype))
    machine.save(f"empty.{suffix}", torch.empty(6, 0))
    machine.save(f"scalar.{suffix}", torch.tensor(3.5))
    machine.run()
    for dtype in DTYPES:
        loaded = torch.load(tmp_path / f"d/{str(dtype)[6:]}_device_0.{suffix}", weights_only=True)
        assert loaded.dtype == dtype and loaded.shape == (2, 3) and raw(loaded) == raw(sample(dtype))
    assert torch.load(tmp_path / f"empty_device_0.{suffix}", weights_only=True).shape == (6, 0)
    assert torch.load(tmp_path / f"scalar_device_0.{suffix}", weights_only=True).item() == 3.5


def test_torch_npu_keeps_every_value_and_reads_lists(tmp_path: pathlib.Path) -> None:
    machine = Machine("torch_npu", str(tmp_path))
    for i in range(3):
        machine.save("x.pt", torch.full((2,), float(i)))
    machine.run()
    torch.save([torch.ones(3), torch.zeros(2, dtype=torch.int32)], tmp_path / "l_device_0_0.pt")  # as torch_npu does
    assert [torch.load(tmp_path / f"x_device_0{n}.pt", weights_only=True)[0].item() for n in ("", "_1", "_2")] == [0, 1, 2]
    layout, records = read(str(tmp_path))
    assert layout == "torch_npu"
    assert [(r["name"], r["path"], r["call"], r["dtype"], r["shape"]) for r in records] == [
        ("l.pt", "0", 0, "float32", [3]), ("l.pt", "1", 0, "int32", [2]), ("x.pt", "", 0, "float32", [2]),
        ("x.pt", "", 1, "float32", [2]), ("x.pt", "", 2, "float32", [2])]


def test_mindspore_tree(tmp_path: pathlib.Path) -> None:
    machine = Machine("mindspore", str(tmp_path), rank=1)
    saved = {str(dtype)[6:]: sample(dtype) for dtype in DTYPES}
    for name, tensor in saved.items():
        machine.save(name, tensor)
    machine.save("x", {"key": [torch.ones(1), torch.zeros(1)]}, step=1)
    machine.grad("x", torch.ones(2), step=1)
    machine.run()
    for name, tensor in saved.items():
        same(tmp_path / f"step0/rank1/{name}_{widened(tensor).dtype.name}_0.npy", tensor)
    assert names(tmp_path / "step1") == ["rank1/x.key.0_float32_0.npy", "rank1/x.key.1_float32_0.npy",
                                         "rank1/x_grad_float32_0.npy"]
    layout, records = read(str(tmp_path))
    assert layout == "mindspore"
    assert [(r["name"], r["kind"]) for r in records if r["step"] == 1] == [("x.key.0", FORWARD), ("x.key.1", FORWARD),
                                                                          ("x", GRAD)]
    assert {r["rank"] for r in records} == {1}
    by_name = {r["name"]: r for r in records if r["step"] == 0}
    assert all(by_name[name]["shape"] == [2, 3] and by_name[name]["dtype"] == widened(t).dtype.name
               for name, t in saved.items())


def test_troubleshooter_files(tmp_path: pathlib.Path) -> None:
    machine = Machine("troubleshooter", str(tmp_path))
    machine.save("torch_ts_save/dense", torch.tensor([[-0.5, 0.5]]), suffix="backward", kind=GRAD)
    machine.save("torch_ts_save/n.npy", [sample(torch.bfloat16), sample(torch.int64), None, sample(torch.float32)])
    machine.save("torch_ts_save/dense", torch.zeros(1), suffix="backward", kind=GRAD)
    machine.run()
    assert names(tmp_path) == [f"torch_ts_save/{file}.npy" for file in
                               ("0_dense_backward", "1_n.0", "2_n.1", "3_n.3", "4_dense_backward")]
    assert str(np.load(tmp_path / "torch_ts_save/0_dense_backward.npy")) == "[[-0.5  0.5]]"
    same(tmp_path / "torch_ts_save/1_n.0.npy", sample(torch.bfloat16))
    layout, records = read(str(tmp_path))
    assert layout == "troubleshooter"
    assert [(r["name"], r["kind"], r["call"]) for r in records if r["kind"] == GRAD] == [
        ("torch_ts_save/dense", GRAD, 0), ("torch_ts_save/dense", GRAD, 1)]
    assert read(str(tmp_path / "torch_ts_save/1_n.0.npy"))[1][0]["file"] == "1_n.0.npy"


def test_torchair_tree(tmp_path: pathlib.Path) -> None:
    machine = Machine("torchair", str(tmp_path))
    node, stamp = "add_1-aten.add.Tensor", 1760685131190258
    for i, dtype in enumerate(DTYPES):
        machine.save("", sample(dtype), node=node, kind=INPUT, argument=str(i), graph_id=1, step=3, stamp_us=stamp)
    machine.save("", 7, node=node, kind=INPUT, argument="alpha", graph_id=1, step=3, stamp_us=stamp)
    machine.save("", None, node=node, kind=INPUT, argument="none", graph_id=1, step=3, stamp_us=stamp)
    machine.save("", torch.ones(2), node=node, kind=OUTPUT, argument="0", graph_id=1, step=3, stamp_us=stamp)
    machine.run()
    tree = tmp_path / "worldsize1_global_rank0/graph_1/3"
    assert len(names(tree)) == len(DTYPES) + 2
    for i, dtype in enumerate(DTYPES):
        same(tree / f"{node}.INPUT.{i}.20251017071211190258.npy", sample(dtype))
    assert np.load(tree / f"{node}.INPUT.alpha.20251017071211190258.npy") == np.int64(7)
    layout, records = read(str(tmp_path))
    assert layout == "torchair"
    assert [r["path"] for r in records] == [*map(str, range(len(DTYPES))), "alpha", "0"]
    assert {(r["name"], r["node"], r["graph"], r["step"]) for r in records} == {(node, node, "graph_1", 3)}
    assert records[-1]["kind"] == OUTPUT and records[0]["kind"] == INPUT
    assert {r["time_ns"] for r in records} == {stamp * 1000}


NUMBER = {"torchair": r"^w(\d*)\.", "mindspore": r"_(\d+)\.npy$", "torch_npu": r"_device_0_?(\d*)\.pt$", "troubleshooter": r"^(\d+)_"}


@pytest.mark.parametrize("layout", ["msprobe", "msprobe_modules", "torchair", "mindspore", "torch_npu", "troubleshooter"])
def test_twenty_thousand_files_in_one_directory(tmp_path: pathlib.Path, layout: str) -> None:
    """Also when there are as many files of somebody else's, of names that come before and behind."""
    count = 20000
    tensor = torch.arange(2)
    machine = Machine(layout, str(tmp_path), world_size=1, distributed=True)
    more = {"kind": OUTPUT} if layout == "torchair" else {}
    machine.save("w", tensor, **more)
    if layout.startswith("msprobe"):
        machine.op("flush", force=True)
    machine.run()
    (one,) = [path for path in tmp_path.rglob("*") if path.suffix in (".npy", ".pt")]
    for i in range(count):
        (one.parent / f"{'0a' if i % 2 else 'zz'} {i}.txt").touch()
    found, records = read(str(tmp_path))
    assert found == layout and [r["name"] for r in records] == ["w.pt" if layout == "torch_npu" else "w"]

    if layout.startswith("msprobe"):
        return  # their list says what is there
    stem = {"torchair": f"w{{}}{one.name[1:]}", "mindspore": "w_int64_{}.npy", "torch_npu": "w_device_0_{}.pt", "troubleshooter": "{}_w.npy"}
    for i in range(1, count):
        (one.parent / stem[layout].format(i)).hardlink_to(one)
    found, records = read(str(tmp_path))
    assert found == layout and len(records) == count
    numbers = [int(re.search(NUMBER[layout], r["file"].rsplit("/", 1)[-1]).group(1) or 0) for r in records]
    assert numbers == list(range(count))
