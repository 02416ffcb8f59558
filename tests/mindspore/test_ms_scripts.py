"""The MindSpore scripts printed in other tools' documents and their names, and what MindSpore's own operator does in their place."""
import importlib.util
import pathlib
import sys
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import tensortap
import tensortap.compat
import tensortap.mindspore as tap
from mindspore import Tensor, nn, ops
from ms_helpers import files, script

PRINTED = pathlib.Path(__file__).parents[2] / "examples/compat"


@pytest.mark.parametrize("mode", ["PYNATIVE_MODE", "GRAPH_MODE"])
def test_003_save_grad(mode: str) -> None:
    source = (PRINTED / "003_mindspore_save_grad.py").read_text()
    assert source.count("PYNATIVE_MODE") == 1
    done = script(source.replace("PYNATIVE_MODE", mode).replace("    time.sleep(0.1)\n", ""), compat=True) if mode == "GRAPH_MODE" else script(PRINTED / "003_mindspore_save_grad.py", compat=True)
    assert done.stdout == "['ms_ts_save/0_dense_backward.npy']\n[[-0.5  0.5]]\n"
    found = np.load("ms_ts_save/0_dense_backward.npy")
    assert files() == ["ms_ts_save/0_dense_backward.npy"] and found.dtype == np.float32


def fragment(name: str, **given: Any) -> "dict[str, Any]":
    """A printed piece of code, with the names that its surroundings have."""
    tensortap.compat.install()
    spec = importlib.util.spec_from_file_location("printed_" + name[:-3], PRINTED / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(given)
    sys.modules[spec.name] = module  # where MindSpore's compiler looks for the names of a function
    spec.loader.exec_module(module)
    return vars(module)


def test_002_save(mode: str) -> None:
    net = fragment("002_mindspore_save.py", nn=nn)["Net"]()
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.array_equal(net(x).asnumpy(), x.asnumpy() * 2)
    (path,) = pathlib.Path("dump_data").rglob("*.npy")
    assert path.name == "input_float32_0.npy" and path.parent.name == "rank0" and np.array_equal(np.load(path), x.asnumpy())
    assert path.stat().st_mode & 0o777 == 0o640 and path.parent.stat().st_mode & 0o777 == 0o750


def test_002_save_grad(mode: str) -> None:
    net = fragment("002_mindspore_save_grad.py", nn=nn)["Net"]()
    gradient = ms.grad(net)(Tensor(np.ones(3, np.float32)))
    assert gradient.asnumpy().tolist() == [2, 2, 2]
    (path,) = pathlib.Path("dump_data").rglob("*.npy")
    assert path.name == "grad_grad_float32_0.npy" and np.load(path).tolist() == [2, 2, 2]


def test_002_steps() -> None:
    before, trained = tensortap._core.steps_done(), []
    fragment("002_mindspore_steps.py", epochs=3, train_one_epoch=lambda: trained.append(tensortap._core.steps_done()))
    assert trained == [before, before + 1, before + 2] and tensortap._core.steps_done() == before + 3


TREE = """
import sys, mindspore as ms, numpy as np
from mindspore import Tensor
from msprobe.mindspore import save, save_grad, step
ms.set_context(mode=ms.GRAPH_MODE if sys.argv[1] == "graph" else ms.PYNATIVE_MODE)

class Net(ms.nn.Cell):
    def construct(self, x, z):
        save("./test_dump", 'x', x)
        save("./test_dump", 'n', {"key": [x, z], "k2": (z,)})
        z = save_grad("./test_dump", 'z', z)
        return x * z

net = Net()
for n in range(2):
    ms.grad(net, (0, 1))(Tensor(np.ones(2, np.float32)), Tensor(np.ones(2, np.float16)))
    net(Tensor(np.ones(2, np.float32)), Tensor(np.ones(2, np.float16)))
    step()
"""


@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_002_tree(mode: str) -> None:
    """./test_dump/step0/rank0/x_float32_0.npy and z_grad_float32_0.npy; ids go on after step()."""
    script(TREE, mode, compat=True)
    expected = []
    for step in range(2):
        where = f"test_dump/step{step}/rank0/"
        for call in (2 * step, 2 * step + 1):
            expected += [f"{where}x_float32_{call}.npy", f"{where}n.key.0_float32_{call}.npy", f"{where}n.key.1_float16_{call}.npy", f"{where}n.k2.0_float16_{call}.npy"]
        expected += [f"{where}z_grad_float16_{step}.npy"]
    assert files() == sorted(expected)
    with tap.open("test_dump") as run:
        assert run.layout == "mindspore" and len(list(run.query(kind="grad"))) == 2


class Dumped(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dump = ops.TensorDump()

    def construct(self, x: Any) -> Any:
        self.dump("theirs", x)
        return x * 2


class Tapped(nn.Cell):
    def construct(self, x: Any) -> Any:
        tap.save("ours", "x", x)
        return x * 2


def test_tensordump_fails_in_a_graph_where_ours_works() -> None:
    x = Tensor(np.ones(3, np.float32))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    Dumped()(x)
    theirs = files()
    assert len(theirs) == 1  # so the operator is right and the mode is what it lacks
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(Exception, match=r"Unsupported op \[TensorDump\] on CPU"):
            Dumped()(x)
        assert files() == theirs
        Tapped()(x)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    (path,) = pathlib.Path("ours").rglob("*.npy")
    assert path.name == "x_float32_0.npy" and np.load(path).tolist() == [1, 1, 1]
