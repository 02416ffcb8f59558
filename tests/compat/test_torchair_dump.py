"""data_dump: which files a compiled model leaves, and that they hold what eager torch and numpy compute."""
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from clean_environment import environment

from tensortap.compat import torchair
from tensortap.compat.torchair import _pipeline

FORM = re.compile(r"worldsize1_global_rank0/graph_(\d+)/(\d+)/(.+)\.(INPUT|OUTPUT)\.([\w.]+)\.(\d{20})\.npy")


@pytest.fixture(autouse=True)
def first_graph() -> None:
    import itertools

    torch._dynamo.reset()
    _pipeline._ids = itertools.count(1)


def backend(path: Any, keep: Any = None) -> Any:
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(path)
    config.debug.data_dump.filter = keep
    return torchair.get_npu_backend(compiler_config=config)


def dumped(path: pathlib.Path) -> dict[tuple[int, int, str, str, str], Any]:
    """Graph, step, node, direction, argument: array. Every file of upstream's tree must have the form; ours has .tensortap
    beside it for as long as this process records."""
    found = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.relative_to(path).parts[0] != ".tensortap":
            match = FORM.fullmatch(str(file.relative_to(path)))
            assert match, file
            graph, step, node, kind, argument, _ = match.groups()
            found[int(graph), int(step), node, kind, argument] = np.load(file, allow_pickle=False)
    return found


def test_values_are_those_of_eager(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y, alpha=3) * 2.5 - x.mm(y)

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    compiled = torch.compile(work, backend=backend(tmp_path), fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x, y), work(x, y))
    found = dumped(tmp_path)
    added = torch.add(x, y, alpha=3).numpy()
    for step in (0, 1):
        assert np.array_equal(found[1, step, "add-aten.add.Tensor", "OUTPUT", "0"], added)
        assert found[1, step, "add-aten.add.Tensor", "INPUT", "alpha"] == 3  # which upstream loses
        assert np.array_equal(found[1, step, "mul-aten.mul.Tensor", "INPUT", "0"], added)
        number = found[1, step, "mul-aten.mul.Tensor", "INPUT", "1"]
        assert number.shape == () and number == 2.5
        assert np.array_equal(found[1, step, "mm-aten.mm.default", "OUTPUT", "0"], x.mm(y).numpy())
        assert np.array_equal(found[1, step, "sub-aten.sub.Tensor", "OUTPUT", "0"], work(x, y).numpy())
    assert {key[1] for key in found} == {0, 1} and len(found) == 2 * (4 + 3 + 3 + 3)


def test_one_stamp_a_node_and_files_in_place(tmp_path: pathlib.Path) -> None:
    compiled = torch.compile(lambda x: (x + 1).exp(), backend=backend(tmp_path))
    compiled(torch.zeros(2))
    stamps: dict[str, set[str]] = {}
    for file in tmp_path.rglob("*.npy"):
        stamps.setdefault(file.name.split("-")[0], set()).add(file.name.split(".")[-2])
        assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(stamps) == ["add", "exp"] and all(len(each) == 1 for each in stamps.values())
    assert (tmp_path / "worldsize1_global_rank0").stat().st_mode & 0o777 == 0o750


def test_dtypes(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor, h: torch.Tensor, e: torch.Tensor, c: torch.Tensor, b: torch.Tensor) -> Any:
        return x.clone(), h.clone(), e.clone(), c.clone(), b.clone()

    x = torch.randn(4).bfloat16()
    h = torch.tensor([1.5, -2.0]).half()
    e = torch.tensor([0.5, 2.0, -448.0]).to(torch.float8_e4m3fn)
    c = torch.tensor([1 + 2j, -0.5j], dtype=torch.complex64).to(torch.complex32)
    b = torch.tensor([True, False])
    torch.compile(work, backend=backend(tmp_path))(x, h, e, c, b)
    out = {key[2].split("-")[0]: value for key, value in dumped(tmp_path).items() if key[3] == "OUTPUT"}
    by_type = {str(value.dtype): value for value in out.values()}
    assert sorted(str(value.dtype) for value in out.values()) == ["bool", "complex64", "float16", "float32", "float32"]
    arrays = [value for value in out.values() if value.dtype == np.float32]
    assert any(value.size == 4 and np.array_equal(value, x.float().numpy()) for value in arrays)
    assert any(value.size == 3 and np.array_equal(value, [0.5, 2.0, -448.0]) for value in arrays)
    assert np.array_equal(by_type["complex64"], [1 + 2j, -0.5j]) and by_type["bool"].tolist() == [True, False]


def test_lists_none_and_sizes(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.cat([x, x * 2]), x[:, i], torch.topk(x, 2, dim=1), x.reshape(x.shape[0] * x.shape[1])

    x, i = torch.randn(3, 4), torch.tensor([0, 2])
    torch.compile(work, backend=backend(tmp_path), dynamic=True)(x, i)
    found = {(key[2].split("-", 1)[1], key[3], key[4]): value for key, value in dumped(tmp_path).items()}
    assert np.array_equal(found["aten.cat.default", "INPUT", "0.1"], (x * 2).numpy())
    assert np.array_equal(found["aten.index.Tensor", "INPUT", "1.1"], i.numpy())
    assert ("aten.index.Tensor", "INPUT", "1.0") not in found  # None
    assert np.array_equal(found["aten.topk.default", "OUTPUT", "1"], torch.topk(x, 2, dim=1).indices.numpy())
    assert found["aten.view.default", "INPUT", "1"].tolist() in ([12], [-1])
    assert not any("getitem" in key[0] for key in found)
    assert found["<built-in function mul>", "OUTPUT", "0"] == 12  # a size, as 0-d array


def test_filter_is_asked_once_and_obeyed(tmp_path: pathlib.Path) -> None:
    asked: list[str] = []

    def keep(node: torch.fx.Node) -> torch.fx.Node | None:
        asked.append(node.name)
        return node if node.name == "mul" else None

    compiled = torch.compile(lambda x: (x + 1) * 2, backend=backend(tmp_path, keep))
    for _ in range(3):
        compiled(torch.ones(2))
    assert sorted(asked) == ["add", "arg0_1", "mul", "output"]
    assert {key[2] for key in dumped(tmp_path)} == {"mul-aten.mul.Tensor"} and {key[1] for key in dumped(tmp_path)} == {0, 1, 2}


def test_a_call_that_raises_does_not_count(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x + 1)[i]

    compiled = torch.compile(work, backend=backend(tmp_path))
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    compiled(torch.zeros(3), good)
    with pytest.raises(IndexError):
        compiled(torch.zeros(3), bad)
    compiled(torch.ones(3), good)
    steps = {key[1] for key in dumped(tmp_path)}
    assert steps == {0, 1}
    adds = list((tmp_path / "worldsize1_global_rank0/graph_1/1").glob("add*OUTPUT*"))
    assert len(adds) == 2  # of the call that raised, and of the one after it


def test_graphs_are_numbered(tmp_path: pathlib.Path) -> None:
    use = backend(tmp_path)
    x = torch.randn(3, requires_grad=True)
    torch.compile(lambda x: (x * x).sum(), backend=use)(x).backward()
    torch.compile(lambda x: x + 1, backend=use)(torch.ones(2))
    graphs = {key[0]: {each[2] for each in dumped(tmp_path) if each[0] == key[0]} for key in dumped(tmp_path)}
    assert sorted(graphs) == [1, 2, 3] and "add-aten.add.Tensor" in graphs[3]
    assert any("sum" in name for name in graphs[1]) and any("mul" in name for name in graphs[2])


def test_mutated_inputs_are_dumped_as_they_were(tmp_path: pathlib.Path) -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(2)
    torch.compile(work, backend=backend(tmp_path))(x)
    found = {key[2:]: value for key, value in dumped(tmp_path).items()}
    assert found["add-aten.add.Tensor", "INPUT", "0"].tolist() == [0, 0] and x.tolist() == [1, 1]


def test_unusable_paths_raise_before_the_model_runs(tmp_path: pathlib.Path) -> None:
    ran: list[int] = []
    (tmp_path / "file").write_text("")

    @torch.library.custom_op("tensortap_test::note", mutates_args=())
    def note(x: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        return x.clone()

    note.register_fake(lambda x: torch.empty_like(x))
    with pytest.raises(Exception, match=r"config.debug.data_dump.path .*file: a file is in the way"):
        torch.compile(lambda x: note(x), backend=backend(tmp_path / "file"))(torch.ones(2))
    with pytest.raises(Exception, match=r"config.debug.data_dump.filter returned a int for "):
        torch.compile(lambda x: note(x), backend=backend(tmp_path, lambda n: 3))(torch.ones(2))
    assert not ran


def test_says_which_options_have_no_effect(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(tmp_path)
    config.experimental_config.frozen_parameter = True
    config.debug.graph_dump.type = "py"
    compiled = torch.compile(lambda x: x + 1, backend=torchair.get_npu_backend(compiler_config=config))
    compiled(torch.ones(1)), compiled(torch.ones(1))
    said = capfd.readouterr().err
    assert said.count("have no effect: config.debug.graph_dump.type, config.experimental_config.frozen_parameter") == 1


def test_our_reader_finds_them(tmp_path: pathlib.Path) -> None:
    import tensortap

    torch.compile(lambda x: x * 3, backend=backend(tmp_path))(torch.ones(2))
    with tensortap.open(tmp_path) as run:
        assert run.layout == "torchair"
        (output,) = [record for record in run if record.kind == "output"]
        assert output.node == "mul-aten.mul.Tensor" and output.numpy().tolist() == [3, 3]


DISTRIBUTED = """
import os, torch, torch.distributed as dist, torchair
dist.init_process_group("hccl")
config = torchair.CompilerConfig()
config.debug.data_dump.type = "npy"
opt = torch.compile(lambda x: x + dist.get_rank(), backend=torchair.get_npu_backend(compiler_config=config))
opt(torch.ones(2))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_have_their_own_directories(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "tensortap.compat", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(each for each in os.listdir(tmp_path) if each.startswith("world")) == ["worldsize2_global_rank0", "worldsize2_global_rank1"]
    assert not (tmp_path / ".tensortap").exists()
    (file,) = (tmp_path / "worldsize2_global_rank1").rglob("add*OUTPUT*")
    assert np.load(file).tolist() == [2, 2]
