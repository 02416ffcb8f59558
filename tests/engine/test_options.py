"""Options of the backend: taps on nodes, the check against eager, the profile, strictness, converters."""

import json
import subprocess
import sys

import pytest
import torch

import tensortap
from tensortap._engine import backend


def model(x, w):
    return torch.relu(x @ w) * 2 + 1


def test_tap_records_the_values_of_nodes(engine, tmp_path):
    compiled = engine.compile(model, tap="relu|aten.mul.*", name="net")
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    with tensortap.record(tmp_path / "run"):
        for _ in range(2):
            result = compiled(x, w)
            tensortap.step()
    hidden = torch.relu(x @ w)
    with tensortap.open(tmp_path / "run") as run:
        names = {record.name for record in run.query()}
        assert len(names) == 2 and all(name.startswith("net_") for name in names)
        (relu,) = [name for name in names if name.endswith(".relu")]
        (mul,) = [name for name in names if name.endswith(".mul")]
        assert [record.step for record in run[relu]] == [0, 1]
        torch.testing.assert_close(torch.from_numpy(run[relu][0].numpy()), hidden)
        torch.testing.assert_close(torch.from_numpy(run[mul][1].numpy()), hidden * 2)
    torch.testing.assert_close(result, model(x, w))


def test_a_tap_changes_no_bit(engine, tmp_path):
    x, w = torch.randn(33, 65), torch.randn(65, 17)
    plain = engine.compile(model)(x, w)
    with tensortap.record(tmp_path / "run"):
        tapped = engine.compile(model, tap="*")(x, w)
    assert torch.equal(plain, tapped)


def test_check_passes_where_the_engine_is_right(engine):
    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    compiled = engine.compile(model, check="eager")
    compiled(x, w).sum().backward()
    assert w.grad is not None


def test_check_names_the_first_node_that_differs(engine, monkeypatch):
    real = torch.ops.aten.relu.default

    def broken(x):  # what eager would have to give for the engine to be wrong
        return real(x).index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(7.0))

    original = backend._Reader.read

    def read(self):
        original(self)
        self.nodes[:] = [(n, broken if t is real else t, s) for n, t, s in self.nodes]

    monkeypatch.setattr(backend._Reader, "read", read)
    compiled = engine.compile(model, check="eager")
    with pytest.raises(tensortap.CheckError) as caught:
        compiled(torch.ones(3, 4), torch.ones(4, 5))
    message = str(caught.value)
    assert ".relu (" in message and "test_options.py:" in message and "torch.relu(x @ w)" in message
    assert "max error 3 at index (1, 2): engine 4.0, eager 7.0" in message


def test_profile(engine, tmp_path):
    compiled = engine.compile(model, profile=True, name="net")
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    with tensortap.record(tmp_path / "run"):
        for _ in range(3):
            compiled(x, w)
    profile = tensortap.profile()
    assert sum(row["runs"] for row in profile.rows) >= 3
    assert "mm" in str(profile) and "GB/s" in str(profile)
    profile.chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert spans and all(event["dur"] > 0 for event in spans)
    shown = subprocess.run(
        [sys.executable, "-m", "tensortap", "stats", tmp_path / "run"], capture_output=True, text=True, check=True
    )
    assert "profile.net_" in shown.stdout


def test_a_strict_profile_has_the_first_run(engine, tmp_path):
    compiled = engine.compile(model, profile=True, strict=True, name="first")
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    with tensortap.record(tmp_path / "run"):
        for _ in range(2):
            compiled(x, w)
    found = [record.name for record in tensortap.open(tmp_path / "run") if record.name.startswith("profile.first_")]
    assert found and len(found) == 2 * len(set(found))


def test_strict_lists_every_node_torch_would_run(engine):
    def f(x):
        return torch.linalg.matrix_exp(x) @ torch.linalg.matrix_exp(x + 1), torch.rand_like(x)

    with pytest.raises(Exception, match=r"(?s)2 nodes would run in torch:.*linalg_matrix_exp.*linalg_matrix_exp") as caught:
        engine.compile(f, strict=True)(torch.eye(3))
    assert "aten.rand" not in str(caught.value)
    engine.compile(model, strict=True)(torch.randn(3, 4), torch.randn(4, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tap": 3}, "option 'tap' takes str, not int"),
        ({"profile": "yes"}, "option 'profile' takes bool, not str"),
        ({"check": "numpy"}, "option 'check' takes \"eager\""),
        ({"strikt": True}, "did you mean 'strict'"),
        ({"zzz": 1}, "the options are: check, name, profile, strict, tap"),
    ],
)
def test_bad_options(engine, options, message):
    with pytest.raises(Exception, match=message):
        engine.compile(model, **options)(torch.randn(3, 4), torch.randn(4, 5))


@pytest.fixture
def converter():
    yield tensortap.register_converter
    backend._converters.clear()


def test_a_converter_of_the_users_wins(engine, converter):
    @converter(torch.ops.aten.relu.default)
    def relu(x):
        return torch.where(x > 0, x, 0.5)

    compiled = engine.compile(torch.relu)
    torch.testing.assert_close(compiled(torch.tensor([-1.0, 2.0])), torch.tensor([0.5, 2.0]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 1 / 0, r"converter of aten.relu.default \(.*test_options.py:\d+\) raised ZeroDivisionError"),
        (lambda x: (x, x), "gave 2 values; the operator has 1"),
        (lambda x: x.double(), "gave torch.float64 with 1 dimensions; torch says torch.float32 with 1"),
        (lambda x: x[None], "gave torch.float32 with 2 dimensions; torch says torch.float32 with 1"),
    ],
)
def test_bad_converters(engine, converter, function, message):
    converter(torch.ops.aten.relu.default)(function)
    with pytest.raises(Exception, match=message):
        engine.compile(torch.relu)(torch.ones(2))


def test_register_converter_wants_an_operator(converter):
    with pytest.raises(TypeError, match=r"takes an operator such as torch\.ops\.aten\.add\.Tensor"):
        converter(torch.relu)
