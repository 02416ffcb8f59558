"""Recordings in msprobe's layout whose files were cut, changed, exchanged or removed: what is whole is read, the rest is
listed. Python's json and numpy are the oracles."""
import json
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensortap as tap

Values = dict[tuple[int, str, str], np.ndarray]


def record(where: pathlib.Path, steps: int = 2, **options: Any) -> Values:
    """Records tensors and nested values, and gives every tensor that is in a file."""
    rng = np.random.default_rng(1)
    kept: Values = {}
    with tap.record(where, layout="msprobe", **options) as recorder:
        for step in range(steps):
            arrays = {("x", ""): rng.normal(size=5).astype("f4"), ("y", "a"): rng.normal(size=(2, 3)),
                      ("y", "b.2"): rng.integers(-9, 9, size=4).astype("i4"), ("h", ""): rng.normal(size=64).astype("f2"),
                      ("é", ""): rng.integers(0, 2, size=3).astype("?")}
            tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
            recorder.save(tensors["x", ""], "x")
            recorder.save({"a": tensors["y", "a"], "b": [1, "text", tensors["y", "b.2"], None]}, "y")
            recorder.save(tensors["h", ""], "h")
            recorder.save(tensors["é", ""], "é")
            recorder.step()
            kept |= {(step, *key): array for key, array in arrays.items()}
    return kept


def list_of(where: pathlib.Path, step: int = 0) -> pathlib.Path:
    return next(where.glob(f"step{step}/*/debug.json"))


def read(where: pathlib.Path) -> Values:
    """Every tensor that can be read; a record that says it is whole and is not fails here."""
    with tap.open(where) as run:
        return {(r.step, r.name, r.path): r.numpy() for r in run if r.state == "whole" and r.file}


def same(got: Values, want: Values) -> bool:
    return got.keys() == want.keys() and all(
        got[key].dtype == want[key].dtype and np.array_equal(got[key], want[key]) for key in want)


def problems(where: pathlib.Path) -> list[Any]:
    verified = tap.verify(where)
    assert bool(verified) == (not any(p.kind not in ("never came", "never ran", "rule") for p in verified.problems))
    return verified.problems


def test_a_list_cut_at_every_byte_loses_no_tensor(tmp_path: pathlib.Path) -> None:
    kept = record(tmp_path / "a")
    file = list_of(tmp_path / "a")
    whole = file.read_bytes()
    for at in [*range(0, len(whole), 7), len(whole) - 1]:
        file.write_bytes(whole[:at])
        assert same(read(tmp_path / "a"), kept), at
        found = problems(tmp_path / "a")
        assert [p.file for p in found] == [str(file.relative_to(tmp_path / "a"))], at
        assert "debug.json" in found[0].reason


def test_values_of_the_list_before_the_cut_are_read(tmp_path: pathlib.Path) -> None:
    with tap.record(tmp_path / "a", layout="msprobe") as recorder:
        for i in range(9):
            recorder.save(i, f"n{i}")
        recorder.save(torch.ones(2), "t")
    file = list_of(tmp_path / "a")
    whole = file.read_bytes()
    with tap.open(tmp_path / "a") as run:
        assert [r.name for r in run] == [*(f"n{i}" for i in range(9)), "t"]
    for i in range(1, 9):
        file.write_bytes(whole[: whole.index(f'"n{i}.0.debug"'.encode())])
        with tap.open(tmp_path / "a") as run:
            assert [(r.name, r.stats.max) for r in run if r.dtype == "int64"] == [(f"n{k}", k) for k in range(i)]
            assert "t" in run.names()


@pytest.mark.parametrize("keep", ["stats", "both"])
def test_a_list_that_is_alone_and_broken_is_an_error_that_names_it(tmp_path: pathlib.Path, keep: str) -> None:
    record(tmp_path / "a", steps=1, keep=keep)
    file = list_of(tmp_path / "a")
    shutil.rmtree(file.parent / "dump_tensor_data", ignore_errors=True)
    for text in (b"", b"{", b"nonsense", b'{"data"', b'{"data": 3}', b"[]", b"null", b"\xff", b'{"data": {"\xff": null}}',
                 b"[" * 100000):
        file.write_bytes(text)
        for call in (tap.open, tap.verify):
            with pytest.raises(OSError, match=r"debug\.json|data"):
                call(tmp_path / "a")


def test_flipped_bytes_are_read_as_json_reads_them_or_listed(tmp_path: pathlib.Path) -> None:
    kept = record(tmp_path / "a", steps=1)
    file = list_of(tmp_path / "a")
    whole = file.read_bytes()
    rng = random.Random(2)
    accepted = 0
    for _ in range(1500):
        text = bytearray(whole)
        text[rng.randrange(len(text))] = rng.choice([rng.getrandbits(8), rng.choice(b'{}[]",:0123456789eE+-.NIntfu\\ \n')])
        file.write_bytes(text)
        try:
            data = json.loads(text.decode())["data"]
        except (ValueError, KeyError, TypeError):
            data = None
        if data is None:
            got = [value.tobytes() for value in read(tmp_path / "a").values()]  # a bracket may give another name
            assert sorted(got) == sorted(value.tobytes() for value in kept.values()), text
            assert any("debug.json" in p.reason for p in problems(tmp_path / "a")), text
        elif isinstance(data, dict):
            accepted += 1
            with tap.open(tmp_path / "a") as run:
                seen = {r.name for r in run.query(incomplete=True)}
            shown = {key.rsplit(".", 2)[0] if key.endswith(".debug") and key.rsplit(".", 2)[1].isdigit() else key for key in data}
            assert seen == {name.replace("\0", "%00") for name in shown}, text
    assert accepted > 100


WRONG: list[Any] = [None, True, -1, 3.5, "text", [], [None], {}, {"a": 1}, "x" * 300, float("nan"), 10**40, [[[]]], "../../x"]


def test_wrong_types_for_every_member(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "a", steps=1, checksum="crc32")
    file = list_of(tmp_path / "a")
    whole = json.loads(file.read_bytes())
    for key in whole["data"]["x.0.debug"]:
        for wrong in WRONG:
            changed = json.loads(json.dumps(whole))
            changed["data"]["x.0.debug"][key] = wrong
            file.write_text(json.dumps(changed))
            with tap.open(tmp_path / "a") as run:
                seen = {r.name for r in run.query(incomplete=True)}
            assert seen == {"x", "y", "h", "é"}, (key, wrong)
            tap.verify(tmp_path / "a")
    for wrong in WRONG:
        for part in ("data", "x.0.debug"):
            changed = json.loads(json.dumps(whole))
            (changed if part == "data" else changed["data"])[part] = wrong
            file.write_text(json.dumps(changed))
            try:
                assert not (wrong and tap.verify(tmp_path / "a")) or part == "x.0.debug", (part, wrong)
            except OSError as error:
                assert "debug.json" in str(error)


def exchange(a: pathlib.Path, b: pathlib.Path) -> None:
    other = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(other)


@pytest.mark.parametrize("checksum", [None, "crc32", "xor"])
@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_files_that_are_missing_exchanged_or_changed(tmp_path: pathlib.Path, checksum: str | None, framework: str) -> None:
    where = tmp_path / "a"
    options = {"framework": framework} | ({"checksum": checksum} if checksum else {})
    kept = record(where, **options)
    suffix = "npy" if framework == "mindspore" else "pt"
    assert problems(where) == []
    ours = next(where.glob(f"step0/*/dump_tensor_data/x.0.debug.{suffix}"))
    others = next(where.glob(f"step1/*/dump_tensor_data/x.0.debug.{suffix}"))
    exchange(ours, others)
    assert sorted((p.step, p.name, p.kind) for p in problems(where)) == [(0, "x", "corrupt"), (1, "x", "corrupt")]
    exchange(ours, others)
    assert problems(where) == []
    saved = ours.read_bytes()
    exchange(ours, next(where.glob(f"step0/*/dump_tensor_data/h.0.debug.{suffix}")))
    assert sorted((p.step, p.name, p.kind) for p in problems(where)) == [(0, "h", "corrupt"), (0, "x", "corrupt")]
    exchange(ours, next(where.glob(f"step0/*/dump_tensor_data/h.0.debug.{suffix}")))
    ours.write_bytes(saved[: len(saved) // 2])
    assert [(p.step, p.name) for p in problems(where)] == [(0, "x")]
    ours.unlink()
    assert [(p.step, p.name, p.kind, p.count) for p in problems(where)] == [(0, "x", "missing", 1)]
    assert len(read(where)) == len(kept) - 1
    ours.write_bytes(saved)
    at = saved.index(kept[0, "x", ""].tobytes())
    if checksum:
        ours.write_bytes(saved[: at + 4] + bytes([saved[at + 4] ^ 1]) + saved[at + 5 :])  # one bit, which statistics may not show
        assert [(p.step, p.name, p.kind) for p in problems(where)] == [(0, "x", "corrupt")]


SAMPLES: list[Callable[[np.random.Generator], np.ndarray]] = [
    lambda g: g.normal(size=g.integers(1, 3000)), lambda g: g.normal(size=(2, 3)) * 10.0 ** g.integers(-30, 30),
    lambda g: np.full(g.integers(1, 99), g.normal()), lambda g: g.normal(size=()), lambda g: np.zeros(7),
    lambda g: np.append(g.normal(size=9), g.choice([np.nan, np.inf, -np.inf])), lambda g: np.array([np.inf, -np.inf]),
    lambda g: g.normal(size=2000) + 1e4, lambda g: np.array([-0.0, 0.0]), lambda g: g.integers(-9, 9, size=200).astype(float)]
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.uint8, torch.bool,
         torch.complex64, torch.complex128, torch.float8_e5m2]


@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_what_was_written_passes_for_every_dtype(tmp_path: pathlib.Path, framework: str) -> None:
    generator = np.random.default_rng(3)
    with np.errstate(all="ignore"), tap.record(tmp_path / "a", layout="msprobe", framework=framework) as recorder:
        for dtype in TYPES:
            for sample in SAMPLES:
                recorder.save(torch.from_numpy(np.asarray(sample(generator))).to(dtype), str(dtype)[6:])
    assert problems(tmp_path / "a") == []


def test_statistics_of_torch_itself_pass(tmp_path: pathlib.Path) -> None:
    """As mindstudio-probe has them: four reductions of torch in the tensor's own dtype."""
    generator = np.random.default_rng(4)
    with np.errstate(all="ignore"), tap.record(tmp_path / "a", layout="msprobe") as recorder:
        tensors = [torch.from_numpy(np.asarray(sample(generator))).to(dtype)
                   for dtype in (torch.float16, torch.bfloat16, torch.float32) for sample in SAMPLES for _ in range(20)]
        tensors += [torch.randn(1 << 20), torch.rand(1 << 20), torch.rand(300000) + 1000, torch.rand(300000).half()]
        for tensor in tensors:
            recorder.save(tensor, "x")
    file = list_of(tmp_path / "a")
    whole = json.loads(file.read_bytes())
    for i, tensor in enumerate(tensors):
        leaf = whole["data"][f"x.{i}.debug"]
        if tensor.ndim:
            leaf |= {"Max": tensor.max().item(), "Min": tensor.min().item(), "Mean": tensor.mean().item(),
                     "Norm": torch.norm(tensor).item()}
    file.write_text(json.dumps(whole, indent=1))
    assert problems(tmp_path / "a") == []
    rng = random.Random(1)
    for i in rng.sample(range(len(tensors) - 4), 60):  # and another tensor's do not
        if tensors[i].isfinite().all() and tensors[i].ndim and tensors[i].abs().max() > 0:
            leaf = dict(whole["data"][f"x.{i}.debug"])
            for key in ("Max", "Min", "Mean", "Norm"):
                if leaf[key] and np.isfinite(leaf[key]) and 1e-15 < leaf["Norm"] < 1e15 and tensors[i].numel() < 3000:
                    whole["data"][f"x.{i}.debug"] = leaf | {key: leaf[key] + 0.02 * leaf["Norm"]}
                    file.write_text(json.dumps(whole))
                    assert [p.name for p in problems(tmp_path / "a")] == ["x"], (key, leaf)
            whole["data"][f"x.{i}.debug"] = leaf


def test_gradients_that_never_came_are_listed(tmp_path: pathlib.Path) -> None:
    with tap.record(tmp_path / "a", layout="msprobe") as recorder:
        x, y = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
        recorder.save({"x": x * 2, "n": 1}, "used", grad=True)
        recorder.save([y * 2, torch.ones(1)], "unused", grad=True)
    verified = tap.verify(tmp_path / "a")
    assert sorted((p.name, p.path, p.kind) for p in verified.problems) == [("unused", "0", "never came"), ("used", "x", "never came")]
    assert verified.ok


def test_a_broken_dump_of_modules(tmp_path: pathlib.Path) -> None:
    where = tmp_path / "a"
    with tap.record(where, layout="msprobe_modules") as recorder:
        recorder.save({"input_args": [torch.arange(4.0)], "output": torch.arange(3.0)}, "Module.fc.Linear")
    file = next(where.glob("step0/*/dump.json"))
    whole = file.read_bytes()
    files = {path.name for path in where.glob("step0/*/dump_tensor_data/*")}
    assert len(files) == 2
    for at in range(0, len(whole), 5):
        file.write_bytes(whole[:at])
        with tap.open(where) as run:
            assert sorted(r.numpy().tolist() for r in run if r.file.endswith(".pt")) == [[0, 1, 2], [0, 1, 2, 3]], at
        assert [p.file for p in problems(where)] == [str(file.relative_to(where))]
