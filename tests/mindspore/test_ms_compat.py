"""troubleshooter and msprobe.mindspore beyond the printed scripts, print files included."""
import json
import pathlib
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
from ms_helpers import files, script

HEAD = """
import sys, mindspore as ms, numpy as np, troubleshooter as ts
from mindspore import Tensor, ops
ms.set_context(mode=ms.GRAPH_MODE if sys.argv[1] == "graph" else ms.PYNATIVE_MODE)
x = Tensor(np.array([1, 2], np.float32))
"""
MODES = pytest.mark.parametrize("mode", ["pynative", "graph"])


@MODES
def test_names_in_order_of_execution(mode: str) -> None:
    script(HEAD + """
def f(x):
    y, z = x * 2, x * 3
    ts.save("d/x.npy", x)
    ts.save("n", {"k": [x, None, y], "z": (z,)}, suffix="ms")
    y = ts.save_grad("d/y", y)
    z = ts.save_grad("e/z.npy", z, suffix="g")
    return ops.tanh(y) + z
f = f if sys.argv[1] == "pynative" else ms.jit(f)
ms.grad(f)(x)
f(x)
ts.save("last", Tensor(1.5, ms.bfloat16))
""", mode, compat=True)
    found = files()
    numbers = {path.rpartition("/")[2].partition("_")[0] for path in found}
    assert numbers == {str(n) for n in range(11)} and len(found) == 11
    assert found[:4] == sorted(["10_last.npy", "1_n.k.0_ms.npy", "2_n.k.2_ms.npy", "3_n.z.0_ms.npy"])
    gradients = sorted(path for path in found if path.endswith(("_g.npy", "_backward.npy")))
    assert {path.rpartition("/")[2].partition("_")[0] for path in gradients} == {"4", "5"}
    assert np.load("10_last.npy").dtype == np.float32 and np.load("10_last.npy") == 1.5
    (z,) = (path for path in gradients if path.endswith("_g.npy"))
    assert np.load(z).tolist() == [1, 1] and np.load("d/0_x.npy").tolist() == [1, 2]


@MODES
def test_print(mode: str) -> None:
    done = script(HEAD + """
def f(x):
    ts.save("d/x", [x, {"k": x}], output_mode="print")
    return ts.save_grad("d/x.npy", x, output_mode="print")
print("before")
ms.grad(f)(x)
print("after")
""", mode, compat=True)
    assert done.stdout == "before\n_TS_SAVE_NAME:x.0 [1. 2.]\n_TS_SAVE_NAME:x.1.k [1. 2.]\n_TS_SAVE_NAME:x_backward [1. 1.]\nafter\n"
    assert files() == []


@MODES
def test_print_file(mode: str) -> None:
    """print_file_path, which MindSpore itself ignores on the CPU; its own reader reads what we wrote."""
    script(HEAD + """
ms.set_context(print_file_path="out/print.pb")
def f(x, n, b):
    ts.save("x", x, output_mode="print")
    ts.save("n", [n, b], suffix="s", output_mode="print")
    return ts.save_grad("g", x * 2, output_mode="print")
ms.grad(f)(x, Tensor(7, ms.int64), Tensor(np.ones((2, 2)), ms.bool_))
""", mode, compat=True)
    read = ms.parse_print("out/print.pb")
    assert [item for item in read if isinstance(item, str)] == ["_TS_SAVE_NAME:x", "_TS_SAVE_NAME:n.0_s", "_TS_SAVE_NAME:n.1_s", "_TS_SAVE_NAME:g_backward"]
    values = [item.asnumpy() for item in read if not isinstance(item, str)]
    assert [value.tolist() for value in values] == [[1, 2], 7, [[True, True]] * 2, [1, 1]] and values[1].dtype == np.int64
    subprocess.run([sys.executable, "-m", "tensortap", "convert", "out/print.pb", "npy"], check=True, capture_output=True)
    assert files("npy") == ["g_backward_float32_3.npy", "n.0_s_int64_1.npy", "n.1_s_bool_2.npy", "x_float32_0.npy"]
    assert np.load("npy/g_backward_float32_3.npy").tolist() == [1, 1]


def test_convert_reads_what_mindspore_writes() -> None:
    """Messages made by MindSpore's own code for print files, appended as its receiver appends them."""
    from mindspore.train.print_pb2 import Print

    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, -2], np.int8), "c": np.array([True, False]), "d": np.float64(2.5), "e": np.zeros((2, 0), np.uint16)}
    types = {"float32": "Float32", "int8": "Int8", "bool": "Bool", "float64": "Float64", "uint16": "UInt16"}
    with open("print.pb", "wb") as file:
        for name, array in arrays.items():
            message = Print()
            message.value.add().desc = f"_TS_SAVE_NAME:{name}"
            tensor = message.value.add().tensor
            tensor.dims.extend(array.shape)
            tensor.tensor_type = types[array.dtype.name]
            tensor.tensor_content = array.tobytes()
            file.write(message.SerializeToString())
    subprocess.run([sys.executable, "-m", "tensortap", "convert", "print.pb", "npy"], check=True, capture_output=True)
    assert files("npy") == ["a_float32_0.npy", "b_int8_1.npy", "c_bool_2.npy", "d_float64_3.npy", "e_uint16_4.npy"]
    for index, (name, array) in enumerate(arrays.items()):
        assert np.array_equal(np.load(f"npy/{name}_{array.dtype.name}_{index}.npy"), array)


DEBUG = """
import sys, mindspore as ms, numpy as np
from mindspore import Tensor, nn
from msprobe.mindspore import PrecisionDebugger, seed_all
ms.set_context(mode=ms.PYNATIVE_MODE)
seed_all(7)
debugger = PrecisionDebugger(dump_path="dump_path", level="debug", task=sys.argv[1])

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init="ones")
    def construct(self, x):
        y = self.dense(x)
        debugger.save(y, "y", save_backward=True)
        debugger.save({"k": [x, 3, "text", None]}, "n", save_backward=False)
        return y * y

net = Net()
def loss(x):
    return net(x).sum()
step = ms.value_and_grad(loss, None, net.trainable_params())
for n in range(2):
    step(Tensor(np.ones((2, 3), np.float32)))
    debugger.step()
"""


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_precision_debugger(task: str) -> None:
    script(DEBUG, task, compat=True)
    trees = sorted(pathlib.Path("dump_path").rglob("debug.json"))
    assert [path.parent.parent.name for path in trees] == ["step0", "step1"]
    for path in trees:
        found = json.loads(path.read_text())
        assert (found["task"], found["level"], found["framework"]) == (task, "debug", "mindspore")
        assert list(found["data"]) == ["y.0.debug", "y_grad.0.debug", "n.0.debug"]
        y, gradient, nested = found["data"].values()
        keys = ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm"] + (["data_name"] if task == "tensor" else [])
        assert list(y) == list(gradient) == keys
        assert (y["type"], y["dtype"], y["shape"]) == ("mindspore.Tensor", "Float32", [2, 2])
        assert gradient["Max"] == 2 * y["Max"] and gradient["Norm"] == pytest.approx(2 * y["Norm"])
        assert [item and item.get("value") for item in nested["k"][1:]] == [3, "text", None] and nested["k"][0]["Mean"] == 1
        if task == "tensor":
            saved = sorted(each.name for each in (path.parent / "dump_tensor_data").iterdir())
            assert saved == ["n.0.debug.k.0.npy", "y.0.debug.npy", "y_grad.0.debug.npy"]
            assert np.array_equal(np.load(path.parent / "dump_tensor_data/y_grad.0.debug.npy"), 2 * np.load(path.parent / "dump_tensor_data/y.0.debug.npy"))


def test_seed_all_repeats() -> None:
    done = script("""
import mindspore as ms
from msprobe.mindspore import seed_all
def draw():
    seed_all(5)
    return ms.ops.standard_normal((3,)).asnumpy().tolist()
print(draw() == draw())
""", compat=True)
    assert done.stdout == "True\n"
    wrong = script("from msprobe.mindspore import seed_all\nseed_all('x')\n", compat=True, check=False)
    assert "Seed must be integer" in wrong.stderr


def test_precision_debugger_in_a_graph_says_what_to_do() -> None:
    done = script(DEBUG.replace("PYNATIVE_MODE", "GRAPH_MODE"), "statistics", compat=True, check=False)
    assert done.returncode and "PrecisionDebugger.save works in PyNative mode" in done.stderr
    assert 'debugger.save(y, "y", save_backward=True)' in done.stderr  # the line


@pytest.mark.parametrize(("call", "kind"), [("ts.save('x', x, output_mode='z')", "ValueError"), ("ts.save('d/', x)", "ValueError"), ("ts.save(3, x)", "TypeError"),
                                            ("ts.save('x', [3])", "TypeError"), ("ts.save_grad('x', 3)", "TypeError")])  # fmt: skip
@MODES
def test_mistakes(mode: str, call: str, kind: str) -> None:
    done = script(HEAD + f"""
def f(x):
    {call}
    return x
(f if sys.argv[1] == "pynative" else ms.jit(f))(x)
""", mode, compat=True, check=False)
    assert done.returncode and kind in done.stderr and files() == []
