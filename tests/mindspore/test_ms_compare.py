"""The same small network with the same weights in PyTorch and in MindSpore: the two recordings are equal, and after one
weight is changed the layer it belongs to is the first that is named. Between the layers is relu, which both compute
exactly; MindSpore's tanh is up to 1e-6 away from the true one, which shows in what comes after it."""
import os
import pathlib
import subprocess
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import tensortap.mindspore as tap
from mindspore import Tensor, nn, ops
from ms_helpers import environment

ROOT = pathlib.Path(__file__).parents[2]


def weights() -> "dict[str, np.ndarray]":
    rng = np.random.default_rng(11)
    shapes = {"x": (5, 6), "w0": (8, 6), "b0": (8,), "w1": (8, 8), "b1": (8,), "w2": (3, 8), "b2": (3,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def torch_run(where: pathlib.Path) -> pathlib.Path:
    python = ROOT / os.environ.get("VENV", ".venv") / "bin/python"
    if not python.exists():
        pytest.skip(f"{python} is not there: the PyTorch recording is made by the environment of the other tests (make setup)")
    np.savez(where / "weights.npz", **weights())
    done = subprocess.run([str(python), str(ROOT / "tests/mindspore/ms_torch_side.py"), str(where / "weights.npz"), str(where / "torch")], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    return where / "torch"


class Net(nn.Cell):
    def __init__(self, given: "dict[str, np.ndarray]") -> None:
        super().__init__()
        shapes = [(6, 8), (8, 8), (8, 3)]
        self.layers = nn.CellList([nn.Dense(a, b, Tensor(given[f"w{n}"]), Tensor(given[f"b{n}"])) for n, (a, b) in enumerate(shapes)])

    def construct(self, x: Any) -> Any:
        tap.save(x, "x")
        for index in range(3):
            x = tap.save(self.layers[index](x), "layer" + str(index), grad=True)
            x = ops.relu(x)
        loss = ops.mean(x * x)
        tap.save(loss, "loss")
        return loss


def mindspore_run(where: pathlib.Path, given: "dict[str, np.ndarray]") -> pathlib.Path:
    net = Net(given)
    step = ms.value_and_grad(net, None, net.trainable_params())
    with tap.record(where):
        for _ in range(2):
            step(Tensor(given["x"]))
            tap.step()
    return where


def first_difference(a: pathlib.Path, b: pathlib.Path) -> "str | None":
    """Which record of a is first not like its namesake in b, values within 1e-5; None: all are, and b has no others."""
    with tap.open(a) as one, tap.open(b) as other:
        theirs = {(r.step, r.full_name, r.kind, r.call): r for r in other.query()}
        for record in one.query():
            key = (record.step, record.full_name, record.kind, record.call)
            twin = theirs.pop(key, None)
            if twin is None or twin.dtype != record.dtype or twin.shape != record.shape:
                return f"{record.full_name} {record.kind}"
            if twin.hash != record.hash and not np.allclose(record.numpy(), twin.numpy(), rtol=1e-5, atol=1e-6):
                return f"{record.full_name} {record.kind}"
        return None if not theirs else f"only in {b.name}: {sorted(theirs)[0]}"


def test_pytorch_and_mindspore(mode: str, tmp_path: pathlib.Path) -> None:
    theirs = torch_run(tmp_path)
    ours = mindspore_run(tmp_path / "same", weights())
    assert first_difference(theirs, ours) is None and first_difference(ours, theirs) is None
    with tap.open(ours) as run:
        assert len(list(run.query())) == 2 * 8
    for layer in range(3):
        changed = weights()
        changed[f"w{layer}"][1, 2] += 0.01
        assert first_difference(theirs, mindspore_run(tmp_path / f"changed{layer}", changed)) == f"layer{layer} forward"
