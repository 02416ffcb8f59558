"""dynamo_export and save_graph: the file is a message of protobuf's, and gives what the model gives, in another process."""
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_torchair_graph import ge_ir  # noqa: F401

from tensortap.compat import torchair
from tensortap.compat.torchair import _export, _proto


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.register_buffer("steps", torch.arange(6.0).bfloat16())

    def forward(self, x: torch.Tensor, more: Any = None) -> dict[str, Any]:
        y = self.norm(self.linear(x).relu() + 1.5) * self.steps
        if more is not None:
            y = torch.cat([y, more[0]]).clamp(max=float("inf"))
        values, places = y.topk(2)
        return {"y": y.reshape(-1, 3).to(torch.float64), "top": (values, places), "big": y > 0}


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.mark.parametrize("dynamic", [False, True])
def test_loaded_gives_what_the_model_gives(model: Model, tmp_path: pathlib.Path, dynamic: bool) -> None:
    x, more = torch.randn(5, 4), [torch.randn(3, 6)]
    torchair.CompiledModel.save_graph(model, (x,), dynamic=dynamic, save_path=tmp_path / "d", more=more)
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["compiled_graph.air"]
    run = torchair.CompiledModel.load_graph(tmp_path / "d")
    torch.testing.assert_close(run(x, more=more), model(x, more=more))
    other, longer = torch.randn(9, 4), [torch.randn(2, 6)]
    if dynamic:
        torch.testing.assert_close(run(other, more=longer), model(other, more=longer))
    else:
        with pytest.raises(ValueError, match=r"input 0 is torch.float32\[9, 4\]; the graph was saved for torch.float32\[5, 4\]"):
            run(other, more=more)
    with pytest.raises(ValueError, match="the graph was saved with"):
        run(x)
    with pytest.raises(ValueError, match=r"input 0 is torch.float64"):
        run(x.double(), more=more)


def test_the_file_alone_is_enough(model: Model, tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    x = torch.randn(5, 4)
    torchair.CompiledModel.save_graph(model, (x,), save_path=tmp_path / "save_path")
    np.save(tmp_path / "x.npy", x.numpy())
    text = "import numpy, torch, torchair\nrun = torchair.CompiledModel.load_graph('./save_path')\ny = run(torch.from_numpy(numpy.load('x.npy')))\nnumpy.save('y.npy', y['y'].numpy())\n"
    script(text)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x)["y"].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_export(model: Model, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, ge_ir: Any) -> None:  # noqa: F811
    from google.protobuf import text_format
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    monkeypatch.chdir(tmp_path)
    assert torchair.dynamo_export(torch.randn(5, 4), model=model, dynamic=True) is None
    assert sorted(path.name for path in (tmp_path / "export_file").iterdir()) == ["dynamo.pbtxt", "export.air"]
    made = ge_ir.ModelDef.FromString((tmp_path / "export_file/export.air").read_bytes())
    ops = {op.name: op for op in made.graph[0].op}
    (weight,) = [op for op in ops.values() if op.type == "Const" and list(op.output_desc[0].shape.dim) == [6, 4]]
    held = np.frombuffer(weight.attr["value"].t.data, np.float32).reshape(6, 4)
    assert np.array_equal(held, model.linear.weight.detach().numpy())
    assert [list(op.output_desc[0].shape.dim) for op in ops.values() if op.type == "Data"] == [[-1, 4]]
    shown = text_format.Parse((tmp_path / "export_file/dynamo.pbtxt").read_text(), GraphDef())
    assert len(shown.node) == len(made.graph[0].op)


def test_weights_that_are_too_large_become_files(model: Model, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_export, "_MOST", 100)
    x = torch.randn(5, 4)
    torchair.CompiledModel.save_graph(model, (x,), save_path=tmp_path)
    raw = [path for path in tmp_path.iterdir() if path.suffix != ".air"]
    assert len(raw) == 5 and any(path.read_bytes() == model.linear.weight.detach().numpy().tobytes() for path in raw)
    torch.testing.assert_close(torchair.CompiledModel.load_graph(tmp_path)(x), model(x))


def test_bad_files_are_named(model: Model, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*compiled_graph.air; give the save_path of save_graph"):
        torchair.CompiledModel.load_graph(tmp_path)
    torchair.CompiledModel.save_graph(model, (torch.randn(5, 4),), save_path=tmp_path)
    path = tmp_path / "compiled_graph.air"
    whole = path.read_bytes()
    for cut in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"compiled_graph.air: cannot be loaded"):
            torchair.CompiledModel.load_graph(tmp_path)
    for target in ("os.system", "torch.serialization.load", "__builtins__.eval.x", "<built-in function __import__>"):
        message = _proto.from_bytes("ModelDef", whole)
        for op in message["graph"][0]["op"]:
            if "_fx_target" in op.get("attr", {}):
                op["attr"]["_fx_target"]["s"] = target.encode()
        path.write_bytes(_proto.to_bytes("ModelDef", message))
        with pytest.raises(ValueError, match="the file calls"):
            torchair.CompiledModel.load_graph(tmp_path)


def test_what_cannot_be_kept_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match=r"args is a tuple of the sample inputs, not Tensor; write args=\(x,\)"):
        torchair.CompiledModel.save_graph(torch.nn.ReLU(), torch.ones(1), save_path=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match=r"the model writes to .*running_mean"):
        torchair.CompiledModel.save_graph(torch.nn.BatchNorm1d(3), (torch.randn(4, 3),), save_path=tmp_path)


def test_internal_format(capfd: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(2, 2)
    before = model.weight.clone()
    torchair.use_internal_format_weight(model), torchair.use_internal_format_weight(model)
    assert torch.equal(model.weight, before) and capfd.readouterr().err.count("use_internal_format_weight has no effect here") == 1
    with pytest.raises(TypeError, match=r"takes a torch.nn.Module, not int"):
        torchair.use_internal_format_weight(3)  # type: ignore[arg-type]
