"""torchair: backends, converters, summaries and the scripts of its document, against eager torch."""
import csv
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from clean_environment import environment

from tensortap._record import command
from tensortap.compat import torchair
from tensortap.compat.torchair import _converter, ge
from tensortap.compat.torchair._convert import ConversionError

PRINTED = pathlib.Path(__file__).parents[2] / "examples/compat"
HEADER = ["目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计"]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch._dynamo.reset()
    before = dict(_converter._converters)
    yield
    _converter._converters.clear()
    _converter._converters.update(before)


def compiled(function: Any, dynamic: bool | None = None, **options: Any) -> Any:
    config = torchair.CompilerConfig()
    for path, value in options.items():
        *parents, last = path.split("__")
        group: Any = config
        for parent in parents:
            group = getattr(group, parent)
        setattr(group, last, value)
    return torch.compile(function, backend=torchair.get_npu_backend(compiler_config=config), dynamic=dynamic, fullgraph=True)


# ------------------------------------------------------------------------------------------------------------ backends


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead", "npugraph_ex"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_trains_as_eager_does(mode: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 1))
    x = torch.randn(4, 3)
    model(x).sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    run = compiled(model, mode=mode)
    result = run(x)
    result.sum().backward()
    torch.testing.assert_close(result, model(x))
    for parameter, grad in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


def test_custom_decompositions_win() -> None:
    used: list[int] = []

    def square(x: torch.Tensor) -> torch.Tensor:
        used.append(1)
        return x * x

    backend = torchair.get_npu_backend(custom_decompositions={torch.ops.aten.exp.default: square})
    x = torch.randn(3)
    assert torch.equal(torch.compile(lambda x: x.exp(), backend=backend)(x), x * x) and used


def test_compiler_in_a_backend_of_ones_own() -> None:
    from torch._functorch.aot_autograd import aot_module_simplified

    compiler = torchair.get_compiler()

    def backend(module: Any, inputs: Any) -> Any:
        return aot_module_simplified(module, inputs, fw_compiler=compiler)

    x = torch.randn(3)
    assert torch.equal(torch.compile(lambda x: x.abs() + 1, backend=backend)(x), x.abs() + 1)


def test_passes_of_the_user() -> None:
    seen: list[str] = []

    def before(module: Any, inputs: Any, config: Any) -> None:
        seen.append("before")
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    def after(module: Any, inputs: Any, config: Any) -> None:
        seen.append("after" if isinstance(config, torchair.CompilerConfig) else "?")

    x = torch.randn(3)
    run = compiled(lambda x: x + 1, post_grad_custom_pre_pass=before, post_grad_custom_post_pass=after)
    assert torch.equal(run(x), x - 1) and seen == ["before", "after"]


@pytest.mark.parametrize("strategy", ["BFS", "DFS", "RDFS", "StableRDFS"])
def test_orders_give_the_same(strategy: str) -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x.cos()).exp() * (x.tanh() - x.abs())

    x = torch.randn(5)
    torch.testing.assert_close(compiled(work, experimental_config__topology_sorting_strategy=strategy)(x), work(x))


def test_orders_differ() -> None:
    from tensortap.compat.torchair import _order

    def names(strategy: str) -> list[str]:
        graph = torch.fx.symbolic_trace(lambda x: (torch.sin(x) + 1) * (torch.cos(x) + 2))
        _order.sort(graph, strategy)
        return [node.name for node in graph.graph.nodes if node.op == "call_function"]

    assert names("DFS") == ["sin", "add", "cos", "add_1", "mul"]
    assert names("BFS") == ["sin", "cos", "add", "add_1", "mul"]
    assert names("RDFS")[0] == "cos" and names("RDFS")[-1] == "mul"


def test_run_eagerly_and_fusion_switch(tmp_path: pathlib.Path) -> None:
    import tensortap

    file = tmp_path / "switch.json"
    file.write_text('{"Switch": {"GraphFusion": {"ALL": "off"}}}')
    x = torch.randn(64)

    def work(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).exp() * 2

    tensortap.counters(reset=True)
    torch.testing.assert_close(compiled(work, debug__run_eagerly=True)(x), work(x))
    assert tensortap.counters()["graphs"] == 0
    torch.testing.assert_close(compiled(work)(x), work(x))
    fused = tensortap.counters(reset=True)["steps"]
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(work, fusion_config__fusion_switch_file=str(file))(x), work(x))
    assert tensortap.counters()["steps"] > fused
    file.write_text("[]")
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"switch.json: expected "):
        compiled(work, fusion_config__fusion_switch_file=str(file))(x)


def test_joint_graph(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (model(x) ** 2).mean()

    x = torch.randn(4, 3)
    wanted = torch.autograd.grad(loss(x) * 3, list(model.parameters()))
    where = {"debug__graph_dump__type": "py", "debug__graph_dump__path": str(tmp_path)}
    run = compiled(loss, experimental_config__aot_config_enable_joint_graph=True, **where)
    result = run(x)
    torch.testing.assert_close(result, loss(x))
    torch.testing.assert_close(torch.autograd.grad(result * 3, list(model.parameters())), wanted)
    dumps = sorted((path.read_text() for path in tmp_path.glob("dynamo_original*")), key=len)
    assert len(dumps) == 2 and "TanhBackward" in dumps[1] and "TanhBackward" not in dumps[0]  # the one has it all


def test_joint_graph_without_a_loss(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    run = compiled(lambda x: x.sin(), experimental_config__aot_config_enable_joint_graph=True)
    result = run(x)
    result.backward(torch.ones_like(result) * 2)
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert "forward and backward stay two graphs" in capfd.readouterr().err


def test_events(capsys: pytest.CaptureFixture[str]) -> None:
    run = compiled(lambda x: x + 1)
    before = torchair.logger.level
    torchair.logger.setLevel(35)
    try:
        run(torch.ones(1))
    finally:
        torchair.logger.setLevel(before)
    assert re.search(r"\[EVENT\] TORCHAIR\(.* torchair run at \d+, process input: \d+us, compile \d+us, graph run: \d+us\n", capsys.readouterr().out)


# ------------------------------------------------------------------------------------- dumps of what the engine computed


def test_dump_at_the_stage_of_the_engine(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).exp() * 2

    x = torch.randn(8)
    run = compiled(work, debug__data_dump__type="npy", debug__data_dump__path=str(tmp_path), debug__data_dump__stage="engine")
    for _ in range(2):
        torch.testing.assert_close(run(x), work(x))
    for step in range(2):
        (out,) = tmp_path.glob(f"worldsize1_global_rank0/graph_*/{step}/exp-aten.exp.default.OUTPUT.0.*.npy")
        np.testing.assert_allclose(np.load(out), np.exp(x.numpy() + 1), rtol=1e-6)
        (into,) = tmp_path.glob(f"worldsize1_global_rank0/graph_*/{step}/mul-aten.mul.Tensor.INPUT.1.*.npy")
        assert np.load(into) == 2


def test_dump_config(tmp_path: pathlib.Path) -> None:
    where = {"dump_config__enable_dump": True, "dump_config__dump_path": str(tmp_path)}
    run = compiled(lambda x: (x + 1).exp(), dump_config__dump_mode="output", dump_config__dump_step="1|3-4", dump_config__dump_layer="exp", **where)
    for _ in range(5):
        run(torch.zeros(2))
    files = sorted(path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.npy"))
    assert [parts[2] for parts in files] == ["1", "3", "4"]
    assert all(parts[3].startswith("exp-aten.exp.default.OUTPUT.0.") for parts in files)


def test_dump_config_statistics(tmp_path: pathlib.Path) -> None:
    run = compiled(lambda x: x * 3, dump_config__enable_dump=True, dump_config__dump_path=str(tmp_path), dump_config__dump_data="stats")
    run(torch.tensor([1.0, 2.0]))
    import tensortap
    from tensortap._record import directories

    directories.flush()
    with tensortap.open(tmp_path / "worldsize1_global_rank0") as recording:
        (output,) = [record for record in recording if record.kind == "output"]
        assert (output.stats.min, output.stats.max) == (3.0, 6.0) and not output.payload_bytes


# ----------------------------------------------------------------------------------------------------------- fx_summary


def summary(where: pathlib.Path) -> dict[str, list[str]]:
    (path,) = where.glob("summary_*.csv")
    assert re.fullmatch(r"summary_\d{20}\.csv", path.name) and path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        first, *rows = csv.reader(file)
    assert first == HEADER
    return {row[0]: row for row in rows}


def test_summary(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensortap

    monkeypatch.chdir(tmp_path)
    library = torch.library.Library("tensortap_summary", "DEF")
    library.define("mine(Tensor x) -> Tensor")
    library.impl("mine", lambda x: x + 1, "CPU")
    library.impl("mine", lambda x: torch.empty_like(x), "Meta")

    def work(x: torch.Tensor) -> Any:
        x = torch.ops.tensortap_summary.mine(x + 1 + 2.0)
        return x, torch.linalg.eigvals(x.mm(x.T)), x.topk(2)[0]

    x = torch.randn(3, 4)
    tensortap.counters(reset=True)
    result = compiled(work, dynamic=True, debug__fx_summary__type="csv")(x)
    torch.testing.assert_close(result[0], work(x)[0])
    rows = summary(tmp_path)
    add = rows["aten.add.Tensor"]
    assert add[1:4] == ["aten", "已支持", "2"] and re.search(r"^1次：\(float32\((s\d+, s\d+|3, 4)\), 1\)$", add[4], re.M)
    assert rows["tensortap_summary.mine.default"][2] == "未注册" and rows["aten.mm.default"][2] == "已支持"
    assert rows["aten._linalg_eigvals.default" if "aten._linalg_eigvals.default" in rows else "aten.linalg_eig.default"][2] == "未支持"
    assert rows["<built-in function getitem>"][1:3] == ["builtin", "已支持"]
    assert tensortap.counters()["runs"] == 0  # skip_compile: torch ran it
    (path,) = tmp_path.glob("summary_*.csv")
    english = subprocess.run([command.path(), "summary", "--lang", "en", str(path)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^aten\.add\.Tensor +aten +supported +2$", english, re.M)


def test_summary_and_compile(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensortap

    monkeypatch.chdir(tmp_path)
    tensortap.counters(reset=True)
    compiled(lambda x: x + 1, debug__fx_summary__type="csv", debug__fx_summary__skip_compile=False)(torch.ones(2))
    assert "aten.add.Tensor" in summary(tmp_path) and tensortap.counters()["runs"] == 1


# ----------------------------------------------------------------------------------------------------------- converters


def test_converter_wins_and_computes(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec("from tensortap.compat.torchair._converter_utils import *", namespace)
    exec((PRINTED / "004_converter.py").read_text(), namespace)
    converter = namespace["conveter_aten_add_Tensor"]
    seen: list[Any] = []
    real = converter.function

    def noted(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        seen.append((result.node.type, result.dtype))
        return result

    converter.function = noted

    def work(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x + y.half(), 2, alpha=2.0).t() * torch.add(x, y, alpha=3).t()

    for dynamic in (False, True):
        torch._dynamo.reset()
        x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
        result = compiled(work, dynamic=dynamic)(x, y)
        torch.testing.assert_close(result, work(x, y))
        (wanted,) = torch.autograd.grad(work(x, y).sum(), x)
        (grad,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(grad, wanted)
    assert {("Add", 0), ("AxpyV2", 0)} <= set(seen)


def test_converter_sees_types_not_sizes() -> None:
    seen: dict[str, Any] = {}

    @torchair.register_fx_node_ge_converter(torch.ops.aten.mul.Tensor)
    def convert(self: Any, other: Any, meta_outputs: Any = None) -> Any:
        seen.update(self=self, other=other, meta=meta_outputs)
        return ge.Mul(*torchair.dtype_promote(self, other, target_dtype=meta_outputs.dtype))

    x = torch.randn(3, 4).bfloat16()
    run = compiled(lambda x, y: x * y, dynamic=True)
    torch.testing.assert_close(run(x, torch.ones(4)), x * torch.ones(4))
    assert (seen["self"].dtype, seen["self"].rank) == (ge.DataType.DT_BF16, 2) and not hasattr(seen["self"], "shape")
    assert (seen["meta"].dtype, seen["meta"].rank) == (ge.DataType.DT_FLOAT, 2)
    with pytest.raises(RuntimeError, match="are not fixed"):
        _ = seen["meta"].size


def bad(result: Any) -> Any:
    @torchair.register_fx_node_ge_converter(torch.ops.aten.sin.default)
    def convert(self: Any, meta_outputs: Any = None) -> Any:
        return result(self)

    return compiled(lambda x: x.sin() + 1)


BAD = [
    (lambda x: [x, x], "returned 2 values, torch gives 1"),
    (lambda x: 3, "returned a int as output 0, not a ge.Tensor"),
    (lambda x: ge.Cast(x, dst_type=ge.DataType.DT_INT32), "gives DT_INT32 as output 0, torch gives DT_FLOAT; use dtype_promote"),
    (lambda x: ge.ReduceSum(x, [0]), r"gives sizes \(\) as output 0, torch gives \(3,\)"),
    (lambda x: 1 / 0, "raised ZeroDivisionError"),
    (lambda x: ge.custom_op("Frobnicate", inputs={"x": x}, outputs=["y"]), "the GE operator Frobnicate .* has no shape rule and no kernel"),
    (lambda x: ge.Nothing(x), "torchair.ge has no operator Nothing"),
    (lambda x: ge.Add(x), "ge.Add: the input x2 is missing"),
    (lambda x: ge.Add(x, x, axis=1), "ge.Add has no input or attribute axis"),
]


@pytest.mark.parametrize(("result", "text"), BAD, ids=[text[:30] for _, text in BAD])
def test_bad_converters_are_named(result: Any, text: str) -> None:
    with pytest.raises(Exception, match=text) as raised:
        bad(result)(torch.ones(3))
    shown = str(raised.value)
    assert re.search(r"the converter of aten\.sin\.default \(.*test_torchair\.py:\d+\)", shown)
    assert re.search(r"; node sin, File \".*test_torchair\.py\", line \d+, in <lambda>", shown)
    assert issubclass(ConversionError, RuntimeError)


GE_CASES = [
    ("exp", lambda x: ge.Exp(x), lambda x: x.exp()),
    ("exp", lambda x: ge.Div(ge.Square(x), ge.Const(2.0)), lambda x: x * x / 2),
    ("exp", lambda x: ge.Reshape(ge.Transpose(x, [1, 0]), ge.Shape(x)), lambda x: x.t().reshape(x.shape)),
    ("exp", lambda x: ge.ConcatD(ge.Split(0, x, num_split=2), concat_dim=0), lambda x: x),
    ("exp", lambda x: ge.Pack([ge.Gather(x, 0), ge.Gather(x, 1), ge.Gather(x, 2), ge.Gather(x, 3)], axis=0), lambda x: x),
    ("exp", lambda x: ge.Sub(x, ge.ReduceMean(x, [1], keep_dims=True)), lambda x: x - x.mean(1, keepdim=True)),
    ("exp", lambda x: ge.SelectV2(ge.Greater(x, 0.0), x, ge.ZerosLike(x)), lambda x: x.relu()),
    ("exp", lambda x: ge.MatMulV2(x, x, transpose_x2=True) if False else ge.MatMul(ge.MatMul(x, x, transpose_x2=True), x), lambda x: x @ x.T @ x),
    ("exp", lambda x: ge.SoftmaxV2(x, axes=[-1]), lambda x: x.softmax(-1)),
    ("exp", lambda x: ge.ClipByValue(x, -0.5, 0.5), lambda x: x.clamp(-0.5, 0.5)),
    ("exp", lambda x: ge.BroadcastTo(ge.ReduceMax(x, [0], keep_dims=True), ge.Shape(x)), lambda x: x.amax(0, keepdim=True).expand_as(x)),
    ("exp", lambda x: ge.AddN([x, x, x]), lambda x: x + x + x),
    ("exp", lambda x: ge.Fill(ge.Shape(x), ge.Const(2.5)), lambda x: torch.full_like(x, 2.5)),
]


@pytest.mark.parametrize("dynamic", [False, True])
def test_builders_compute_what_they_say(dynamic: bool) -> None:
    x = torch.randn(4, 6)
    for _name, build, wanted in GE_CASES:
        @torchair.register_fx_node_ge_converter(torch.ops.aten.exp.default)
        def convert(self: Any, meta_outputs: Any = None, build: Any = build) -> Any:
            return build(self)

        torch._dynamo.reset()
        torch.testing.assert_close(compiled(lambda x: x.exp(), dynamic=dynamic)(x), wanted(x), msg=str(wanted(x)))


def test_support() -> None:
    with pytest.raises(AssertionError, match="Support takes no real tensors"):
        torchair.Support(torch.ones(1))
    with pytest.raises(TypeError, match="BF16 takes no value_range"):
        torchair.BF16(2, value_range=(0, 1))
    (made, two), named = torchair.Support(torchair.I32(2, 3, value_range=(0, 5)), 2, alpha=torchair.T([1.0, 2.0])).make()
    assert made.dtype == torch.int32 and made.shape == (2, 3) and 0 <= made.min() and made.max() < 5 and two == 2
    assert named["alpha"].tolist() == [1, 2]
    assert repr(torchair.Support(torchair.F32(2, 2), 2, alpha=2.0)) == "Support(float32(2, 2), 2, alpha=2.0)"


PATHS = """
import torchair
from torchair.ge_concrete_graph.ge_graph import Tensor, TensorSpec, DataType
from torchair._ge_concrete_graph.ge_graph import Tensor as Tensor2
from torchair._ge_concrete_graph import ge_apis as ge
from torchair.ge_concrete_graph import ge_apis
from torchair.ge._ge_graph import get_default_ge_graph
from torchair.ge_concrete_graph.fx2ge_converter import register_fx_node_ge_converter, declare_supported
from torchair.ge_concrete_graph.supported_declaration import F32, Support
from torchair.ge_concrete_graph.utils import dtype_promote
from torchair.configs.compiler_config import CompilerConfig
from torchair.core.utils import logger
from torchair.ge import attr
from torch_npu.dynamo import torchair as other
import torch_npu, npugraph_ex
assert Tensor is Tensor2 is torchair.ge.Tensor and CompilerConfig is torchair.CompilerConfig is other.CompilerConfig
assert logger is torchair.logger and ge.Add and attr.Int(3).value == 3
print("fine")
"""


def test_old_and_new_paths(script: Callable[..., Any]) -> None:
    assert script(PATHS).stdout == "fine\n"


# ---------------------------------------------------------------------------------------------------------- the scripts


def converter_test(*args: str, cwd: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tensortap.converter_test", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment())


def test_converter_test_of_a_prefix(tmp_path: pathlib.Path) -> None:
    begin = "from torchair.ge_concrete_graph.ge_converter.converter_utils import *\n"
    (tmp_path / "mine.py").write_text(begin + (PRINTED / "004_converter.py").read_text())
    done = converter_test("-i", "mine.py", "aten.add.Tensor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 15 and lines[-1] == "Test result: All testcases passed"
    assert lines[:2] == [f"[{word}] aten.add.Tensor: Support(float32(2, 2), float32(2, 2))" for word in ("RUN", "PASS")]
    wrong = (tmp_path / "mine.py").read_text().replace("ge.Add(self, other)", "ge.Sub(self, other)")
    (tmp_path / "mine.py").write_text(wrong)
    done = converter_test("-i", "mine.py", "aten.add.Tensor", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.count("[FAILED] aten.add.Tensor") == 5
    assert done.stdout.endswith("Test result: 5 testcases failed\n") and "differs from eager by" in done.stdout
    done = converter_test("aten.nothing", cwd=tmp_path)
    assert done.returncode == 1 and "no testcase" in done.stdout


@pytest.mark.slow
def test_converter_test_of_everything(tmp_path: pathlib.Path) -> None:
    done = converter_test(cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.count("[PASS]") == done.stdout.count("[RUN]") > 150


MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        x = x + y
        x = x + y
        x = x * 2
        return x - 1
model = Model()
"""


def test_001_data_dump(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    call = "\nopt_model(torch.ones(2, 2), torch.ones(2, 2))\nopt_model(torch.ones(2, 2), torch.ones(2, 2))\n"
    script(MODEL + (PRINTED / "001_data_dump.py").read_text() + call)
    names = sorted(re.sub(r"\d{20}", "TIME", str(path.relative_to(tmp_path))) for path in tmp_path.rglob("*") if path.is_file())
    each = ["add_1-aten.add.Tensor.INPUT.0", "add_1-aten.add.Tensor.INPUT.1", "add_1-aten.add.Tensor.OUTPUT.0"]
    each += ["sub-aten.sub.Tensor.INPUT.0", "sub-aten.sub.Tensor.INPUT.1", "sub-aten.sub.Tensor.OUTPUT.0"]
    assert names == [f"test/worldsize1_global_rank0/graph_1/{step}/{name}.TIME.npy" for step in (0, 1) for name in each]
    (out,) = tmp_path.glob("test/worldsize1_global_rank0/graph_1/1/sub*OUTPUT*")
    assert np.load(out).tolist() == [[5, 5], [5, 5]]


def test_004_backends_and_summary(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    texts = [(PRINTED / f"004_{name}.py").read_text() for name in ("log_level", "backend", "backend_npu", "fx_summary")]
    script(MODEL + "\n".join(texts) + "\nprint(torch.compile(model, backend=npu_backend)(torch.ones(2), torch.ones(2)))\n")
    assert summary(tmp_path)["aten.add.Tensor"][3] == "2"


CUSTOM = """
{steps}
import torch, torchair
run = torch.compile(lambda x, y: torch.ops.npu_define.custom_op(x, y) * 2, backend=torchair.get_npu_backend(), fullgraph=True)
x, y = torch.randn(3).npu(), torch.randn(3).npu()
assert torch.equal(run(x, y), (x + y) * 2) and torch.equal(torch.ops.npu_define.custom_op(x, y), x + y)
print("fine")
"""


def test_004_custom_operator(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    steps = [(PRINTED / f"004_custom_op_{step}.py").read_text() for step in (1, 2)]
    steps.append("from torchair.ge_concrete_graph.ge_converter.converter_utils import *\nfrom torchair.ge import Add\n")
    steps.append((PRINTED / "004_custom_op_4.py").read_text())
    assert script(CUSTOM.format(steps="\n".join(steps))).stdout == "fine\n"
    # without a shape rule it is said, and nothing runs
    done = script(CUSTOM.format(steps=steps[0]), check=False)
    assert done.returncode and re.search(r"custom_op.*(no fake impl|Meta|fake)", done.stderr, re.S)
