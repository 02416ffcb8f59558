"""What export writes, read by the libraries the files are for."""

import json
import subprocess

import pytest

np = pytest.importorskip("numpy")


def export(command, runs, env, *argv) -> list[dict]:
    done = subprocess.run(
        [command, "export", *argv, "--json"], cwd=runs, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def query(step: int, rank: int, call: int) -> "np.ndarray":
    """As record_fixture.c makes layers.0.attn.query."""
    start, slope = (rank, 0.125) if call == 0 else (0.25, -0.125)
    return (start + slope * (step + 1) * np.arange(32)).astype(np.float32).reshape(4, 8)


def test_npy(command, runs, env, tmp_path):
    rows = export(command, runs, env, "small", tmp_path / "out", "--name", "layers.*", "--kind", "forward")
    assert len(rows) == 12
    for row in rows:
        np.testing.assert_array_equal(np.load(row["written"]), query(row["step"], row["rank"], row["call"]))


def test_nested_and_scalars(command, runs, env, tmp_path):
    filters = ["--name", "nested|loss|ids", "--step", "2", "--rank", "1"]
    rows = export(command, runs, env, "small", tmp_path / "out", *filters)
    values = {row["name"] + "." + row["path"]: np.load(row["written"]) for row in rows}
    assert values["loss."] == np.float64(4 / 3)
    assert values["ids."].tolist() == [3, -1, 9007199254740993, 1]
    assert values["ids."].dtype == np.int64
    assert values["nested.pair.0"].tolist() == [1, 2]
    assert values["nested.step"] == 2


def test_pt(command, runs, env, tmp_path):
    torch = pytest.importorskip("torch")
    (row,) = export(command, runs, env, "odd", tmp_path / "out", "--name", "half", "--format", "pt")
    value = torch.load(row["written"], weights_only=True)
    assert value.dtype == torch.bfloat16
    assert value.tolist() == [1.0, -2.0]


def test_safetensors(command, runs, env, tmp_path):
    numpy_reader = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "all.safetensors"
    export(command, runs, env, "small", path, "--step", "0", "--rank", "0")
    tensors = numpy_reader.load_file(path)
    assert len(tensors) == 9
    np.testing.assert_array_equal(tensors["layers.0.attn.query.step0.rank0.call1"], query(0, 0, 1))
    np.testing.assert_array_equal(tensors["注意力.输出.step0.rank0"], np.arange(6, dtype=np.float32).reshape(2, 3))
