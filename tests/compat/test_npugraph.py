"""save_npugraph_tensor: names, contents, mistakes, captured graphs, compiled code."""
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

RunScript = Callable[..., Any]
HEAD = "import torch, torch_npu, os\nsave = torch_npu.save_npugraph_tensor\n"


def names(where: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(where)) for path in where.rglob("*") if path.is_file())


def test_names_and_contents(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(HEAD + """
x = torch.arange(12.0).reshape(3, 4).requires_grad_()
save(x[1], "a/b/view.pt")
for n in range(3):
    save(torch.tensor([n]), "x.pt" if n % 2 else "./a/../x.pt")
save(x, "plain"); save(x.t(), "t.bin"); save(torch.empty(6, 0), "e.pt"); save(torch.tensor(True), "d0.pt")
save([x, x.int()], "list.pt"); save((x,), "list.pt")
for n in range(3):
    save(torch.tensor([n]), "o.pt", overwrite=True)
save(x.bfloat16(), "bf.pt"); save(torch.ones(2, dtype=torch.complex64).conj() * 1j, "c.pt")
y = torch.zeros(2); save(y, "y.pt"); y += 1
assert torch.load("y_device_0.pt").tolist() == [0, 0]  # there when the call returns, and unchanged later
os.makedirs("elsewhere"); os.chdir("elsewhere")
for n in range(3):
    save(x)
save(x, "x.pt")
""")
    found = names(tmp_path)
    assert [name for name in found if "/" not in name] == [
        "bf_device_0.pt", "c_device_0.pt", "d0_device_0.pt", "e_device_0.pt", "list_device_0.pt", "list_device_0_1.pt",
        "o_device_0.pt", "plain_device_0.pt", "t_device_0.bin", "x_device_0.pt", "x_device_0_1.pt", "x_device_0_2.pt", "y_device_0.pt"]  # fmt: skip
    assert len([name for name in found if name.startswith("elsewhere/tensor_")]) == 3 and "elsewhere/x_device_0.pt" in found
    view = torch.load(tmp_path / "a/b/view_device_0.pt", weights_only=True)
    assert view.tolist() == [4, 5, 6, 7] and view.untyped_storage().nbytes() == 16 and not view.requires_grad
    assert [torch.load(tmp_path / f"x_device_0{end}.pt").item() for end in ("", "_1", "_2")] == [0, 1, 2]
    assert torch.load(tmp_path / "o_device_0.pt").item() == 2
    both = torch.load(tmp_path / "list_device_0.pt", weights_only=True)
    assert isinstance(both, list) and [each.dtype for each in both] == [torch.float32, torch.int32]
    assert len(torch.load(tmp_path / "list_device_0_1.pt")) == 1
    t = torch.load(tmp_path / "t_device_0.bin", weights_only=True)
    assert t.is_contiguous() and t.shape == (4, 3) and t[1].tolist() == [1, 5, 9]
    assert torch.load(tmp_path / "e_device_0.pt").shape == (6, 0) and torch.load(tmp_path / "bf_device_0.pt").dtype == torch.bfloat16


@pytest.mark.parametrize(("call", "kind", "told"), [
    ("save(x, 'x.npy')", "ValueError", ".pt or .bin"), ("save(x, 'd/')", "ValueError", "file name"), ("save(x, 3)", "TypeError", "must be str or None"),
    ("save([], 'x.pt')", "ValueError", "must not be empty"), ("save([x, 3], 'x.pt')", "TypeError", "tensors only"), ("save(3, 'x.pt')", "TypeError", "takes a tensor"),
    ("save(x, 'x.pt', overwrite=1)", "TypeError", "must be bool")])  # fmt: skip
def test_mistakes(script: RunScript, call: str, kind: str, told: str) -> None:
    error = script(HEAD + "x = torch.ones(1)\n" + call, check=False).stderr.strip().splitlines()[-1]
    assert error.startswith(kind) and told in error


def test_a_disk_that_fails_is_said_once(script: RunScript) -> None:
    done = script(HEAD + "open('file', 'w')\nfor n in range(3):\n    save(torch.ones(1), 'file/x.pt')\nprint('went on')\n")
    assert done.stdout == "went on\n" and done.stderr.count("tensortap:") == 1


def test_device_number_is_the_local_rank(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(HEAD + "save(torch.ones(1), 'x.pt')", LOCAL_RANK="3", RANK="7", LOCAL_WORLD_SIZE="4", WORLD_SIZE="8")
    assert names(tmp_path) == ["x_device_3_rank7.pt"]


def test_capture_and_replay(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(HEAD + """
x, state, kept = torch.ones(2), torch.zeros(2), torch.full((2,), 5.0)
weight = torch.nn.Parameter(torch.full((2,), 2.0))
g = torch.npu.NPUGraph()
with torch.npu.graph(g):
    y = x * weight
    state.add_(y)
    view = y[1:]
    save(y, "y.pt"); save(state, "state.pt")
    torch.add(x, 1, out=kept)
    z = (y + view).detach()
    save([z, y], "z.pt")
assert not os.path.exists("y_device_0.pt") and state.tolist() == [0, 0] and kept.tolist() == [5, 5]
address = z.data_ptr()
for n in range(3):
    x.fill_(n + 1)
    g.replay()
    assert z.data_ptr() == address and z.tolist() == [4 * (n + 1)] * 2 and kept.tolist() == [n + 2] * 2
torch.npu.synchronize()
assert state.tolist() == [12, 12]
try:
    with torch.npu.graph(torch.npu.NPUGraph()):
        if (x > 0).all().item():
            pass
except RuntimeError as error:
    assert "read it after replay" in str(error)
else:
    raise SystemExit("no error")
try:
    torch.npu.NPUGraph().replay()
except RuntimeError as error:
    assert "nothing was captured" in str(error)
save(x, "after.pt")
""")
    assert names(tmp_path) == ["after_device_0.pt"] + [f"{name}_device_0{end}.pt" for name in ("state", "y", "z") for end in ("", "_1", "_2")]
    assert [torch.load(tmp_path / f"state_device_0{end}.pt").tolist() for end in ("", "_1", "_2")] == [[2, 2], [6, 6], [12, 12]]
    assert [torch.load(tmp_path / f"y_device_0{end}.pt").tolist() for end in ("", "_1", "_2")] == [[2, 2], [4, 4], [6, 6]]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "npu", "npugraph_ex"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(tmp_path: pathlib.Path, script: RunScript, backend: str, dynamic: bool) -> None:
    script(HEAD + f"""
def f(x):
    y = x + x
    save(y, "y.pt")
    z = y * 3
    save([z, y], save_path="l.bin")
    save(z, "o.pt", overwrite=True)
    save(z[:1] * 0)
    return (z * torch.ones(1, device="npu")).sum()
g = torch.compile(f, backend="{backend}", fullgraph=True, dynamic={dynamic})
assert not os.listdir(".")
for n in range(3):
    x = torch.full((n + 3 if {dynamic} else 3,), float(n), requires_grad=True)
    g(x).backward()
    assert x.grad.unique().tolist() == [6]
""")
    found = names(tmp_path)
    assert [name for name in found if not name.startswith("tensor_")] == [
        "l_device_0.bin", "l_device_0_1.bin", "l_device_0_2.bin", "o_device_0.pt", "y_device_0.pt", "y_device_0_1.pt", "y_device_0_2.pt"]  # fmt: skip
    assert len(found) == 10
    for n, end in enumerate(("", "_1", "_2")):
        y = torch.load(tmp_path / f"y_device_0{end}.pt", weights_only=True)
        assert y.tolist() == [2.0 * n] * (n + 3 if dynamic else 3) and not y.requires_grad
        assert torch.equal(torch.load(tmp_path / f"l_device_0{end}.bin")[0], y * 3)
    assert torch.equal(torch.load(tmp_path / "o_device_0.pt"), y * 3)


@pytest.mark.parametrize("function", ["manual_seed", "manual_seed_all"])
def test_seeds_seed(script: RunScript, function: str) -> None:
    """On a machine without a GPU the CPU's generator stands in."""
    done = script(f"""
import torch, torch_npu
found = []
for seed in (3, 3, 4):
    torch.npu.{function}(seed)
    found.append(torch.rand(4, device="npu").tolist())
print(found[0] == found[1], found[0] == found[2])
""")
    assert done.stdout.splitlines()[-1] == "True False"
