"""graph_dump: each type read by the program it is for: protobuf, TensorBoard, Python itself, Graphviz's grammar."""
import importlib.util
import pathlib
import re
import sys
from typing import Any

import pytest
import torch
from google.protobuf import text_format

from tensortap.compat import torchair
from tensortap.compat.torchair import _convert, _graph_dump, _proto, ge

PROTO = pathlib.Path(_proto.__file__).with_name("ge_ir.proto")
NAME = re.compile(r"dynamo_(optimized|original)_graph_(\d+)_rank_0_pid_(\d+)_ts_(\d{20})\.(txt|pbtxt|py|dot)")


@pytest.fixture(scope="session")
def ge_ir(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """ge_ir.proto as protobuf's own compiler understands it."""
    from grpc_tools import protoc

    out = tmp_path_factory.mktemp("proto")
    assert protoc.main(["protoc", f"-I{PROTO.parent}", f"--python_out={out}", str(PROTO)]) == 0
    spec = importlib.util.spec_from_file_location("ge_ir_pb2", out / "ge_ir_pb2.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["ge_ir_pb2"] = module
    spec.loader.exec_module(module)
    return module


def work(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    w = torch.cat([z, z * 2]) - 1.5
    values, _ = torch.topk(w, 2)
    return torch.nn.functional.layer_norm(w, [4]).sum(1), values, w.reshape(-1), (x > 0).logical_not()


@pytest.fixture(params=[False, True], ids=["static", "dynamic"])
def dumped(request: Any, tmp_path: pathlib.Path) -> pathlib.Path:
    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = ["txt", "pbtxt", "py", "dot"]
    config.debug.graph_dump.path = str(tmp_path / "made/here")
    run = torch.compile(work, backend=torchair.get_npu_backend(compiler_config=config), dynamic=request.param)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(run(x, y), work(x, y))
    return tmp_path / "made/here"


def one(where: pathlib.Path, which: str, type: str) -> pathlib.Path:
    (found,) = where.glob(f"dynamo_{which}_graph_*.{type}")
    return found


def test_names(dumped: pathlib.Path) -> None:
    files = [path for path in dumped.iterdir() if not path.is_symlink()]
    matches = [NAME.fullmatch(path.name) for path in files]
    assert all(matches) and len(files) == 8 and len({match[2] for match in matches if match}) == 1
    links = {path.suffix[1:]: path for path in dumped.iterdir() if path.is_symlink()}
    assert sorted(links) == ["dot", "pbtxt", "py", "txt"]
    for type, link in links.items():
        assert re.fullmatch(rf"dynamo_\d{{20}}\.{type}", link.name) and link.resolve() == one(dumped, "optimized", type)
    assert dumped.stat().st_mode & 0o777 == 0o750 and files[0].stat().st_mode & 0o777 == 0o640


def test_txt_is_a_graph_of_protobuf(dumped: pathlib.Path, ge_ir: Any) -> None:
    for which in ("original", "optimized"):
        graph = text_format.Parse(one(dumped, which, "txt").read_text(), ge_ir.GraphDef())
        ops = {op.name: op for op in graph.op}
        assert re.fullmatch(r"graph_\d+", graph.name) and [op.type for op in graph.op].count("Data") in (2, 3)
        add = ops["Add"]
        assert list(add.input) == [f"{op.name}:0" for op in graph.op if op.type == "Data" and op.output_desc[0].dtype == ge_ir.DT_FLOAT]
        assert add.output_desc[0].dtype == ge_ir.DT_FLOAT and list(add.output_desc[0].shape.dim)[1] == 4
        assert add.output_desc[0].attr["_fx_tensor_name"].s == b"add-aten.add.Tensor.OUTPUT.0"
        assert re.fullmatch(rb"Tensor\(dtype=torch\.float32, shape=torch\.Size\(\[\w+, 4\]\)\)", add.output_desc[0].attr["_meta"].s)
        assert len(ops["NetOutput"].input) == 4 and ops["Greater"].output_desc[0].dtype == ge_ir.DT_BOOL
        for op in graph.op:  # every input names an output that was made before
            for each in op.input:
                source, _, index = each.rpartition(":")
                assert int(index) < len(ops[source].output_desc) and list(ops).index(source) < list(ops).index(op.name)


def test_pbtxt_loads_in_tensorboard(dumped: pathlib.Path) -> None:
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.plugins.graph import graph_util

    graph = text_format.Parse(one(dumped, "optimized", "pbtxt").read_text(), GraphDef())
    ops = {node.name: node for node in graph.node}
    assert ops["Mul"].op == "Mul" and ops["Mul"].input[0] == "Add:0" and "[o]y" in ops["Add"].attr
    assert b"dtype: DT_FLOAT" in ops["Add"].attr["[o]y"].s
    assert len(graph_util.merge_graph_defs([graph]).node) == len(graph.node)


def test_py_has_sources_and_names(dumped: pathlib.Path) -> None:
    text = one(dumped, "original", "py").read_text()
    assert re.search(r'^# File ".*test_torchair_graph\.py", line \d+, in work    z = x \+ y$', text, re.M)
    assert re.search(r"^## FX Code: add: torch\.float32\[\w+, 4\]cpu = torch\.ops\.aten\.add\.Tensor\(\w+: torch\.float32\[\w+, 4\]cpu, \w+: ", text, re.M)
    assert re.search(r'^Mul_0 = ge\.Mul\(Add_0, ge\.Const\(2, dtype=0\), node_name="Mul"\)$', text, re.M)


def test_py_runs_and_builds_the_graph_again(dumped: pathlib.Path, ge_ir: Any) -> None:
    for which in ("original", "optimized"):
        text = one(dumped, which, "py").read_text()
        source = text.replace("from torchair._ge_concrete_graph import ge_apis as ge", "").replace("from torchair.ge._ge_graph import get_default_ge_graph", "")
        source = source.replace("from torchair.ge import attr", "")
        wanted = text_format.Parse(one(dumped, which, "txt").read_text(), ge_ir.GraphDef())
        with ge.GeGraph(wanted.name) as graph:
            exec(source, {"ge": ge, "attr": ge.attr})
        again = text_format.Parse(_graph_dump.as_txt(graph), ge_ir.GraphDef())
        assert [(op.name, op.type, list(op.input), dict(op.attr)) for op in again.op] == [(op.name, op.type, list(op.input), dict(op.attr)) for op in wanted.op]
        assert _graph_dump.as_py(graph).splitlines()[-1] == text.splitlines()[-1]


def test_py_runs_as_a_program(dumped: pathlib.Path, script: Any) -> None:
    text = one(dumped, "optimized", "py").read_text() + "\nprint(len(get_default_ge_graph().ops), get_default_ge_graph().ops[-1].type)\n"
    assert re.fullmatch(r"\d+ NetOutput\n", script(text).stdout)


def test_dot(dumped: pathlib.Path) -> None:
    text = one(dumped, "optimized", "dot").read_text()
    assert text.startswith('digraph "graph_') and '"Add" -> "Mul" [label="x1"];' in text and text.count("{") == text.count("}") == 1


def test_bytes_are_protobufs(ge_ir: Any) -> None:
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    for node in module.graph.nodes:
        node.meta["val"] = torch.empty(2, 3)
    message = _graph_dump.graph_message(_convert.convert(module, 3, converters=False))
    data = _proto.to_bytes("GraphDef", message)
    parsed = ge_ir.GraphDef.FromString(data)
    assert parsed == text_format.Parse(_proto.to_text("GraphDef", message), ge_ir.GraphDef())
    assert _proto.from_bytes("GraphDef", parsed.SerializeToString()) == _proto.from_bytes("GraphDef", data)
    values = {"list": {"i": [-1, 0, 2**40], "f": [], "s": [b"\x00\xff\"\\"], "b": [True, False]}}
    attr = ge_ir.AttrDef.FromString(_proto.to_bytes("AttrDef", values))
    assert list(attr.list.i) == [-1, 0, 2**40] and list(attr.list.b) == [True, False] and attr.list.s[0] == b"\x00\xff\"\\"
    assert text_format.Parse(_proto.to_text("AttrDef", values), ge_ir.AttrDef()) == attr
    for cut in range(len(data)):
        try:
            _proto.from_bytes("GraphDef", data[:cut])
        except (ValueError, UnicodeDecodeError):
            pass


def test_converters_show_in_the_original(tmp_path: pathlib.Path) -> None:
    from tensortap.compat.torchair import _converter

    @torchair.register_fx_node_ge_converter(torch.ops.aten.sinh.default)
    def convert(self: Any) -> Any:
        return ge.Mul(ge.Sub(ge.Exp(self), ge.Exp(ge.Neg(self))), 0.5)

    try:
        torch._dynamo.reset()
        config = torchair.CompilerConfig()
        config.debug.graph_dump.type = "py"
        config.debug.graph_dump.path = str(tmp_path)
        x = torch.randn(5)
        run = torch.compile(lambda x: x.sinh(), backend=torchair.get_npu_backend(compiler_config=config))
        torch.testing.assert_close(run(x), x.sinh())
    finally:
        del _converter._converters[torch.ops.aten.sinh.default]
    text = one(tmp_path, "original", "py").read_text()
    assert 'Exp_1_0 = ge.Exp(Neg_0, node_name="Exp_1")' in text and 'ge.Mul(Sub_0, ge.Const(0.5, dtype=0), node_name="Mul")' in text
