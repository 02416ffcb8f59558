"""Where a tap may stand: control flow, ms.jit, ms.grad, value_and_grad, Model.train, cells, dynamic shapes. Once for each
execution, in the order of the program."""
import pathlib
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import tensortap
import tensortap.mindspore as tap
from mindspore import Tensor, nn, ops
from ms_helpers import array, bits, keys, rows


def names(run: str, kind: "str | None" = None) -> "list[str]":
    return [key[1] for key in keys(run, kind)]


class Control(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3, weight_init="ones", bias_init="zeros")

    def construct(self, x: Any) -> Any:
        tap.save(x, "first")
        if x.sum() > 0:
            tap.save(x, "positive")
            x = self.dense(x)
        else:
            tap.save(x, "negative")
            x = x * 2
        count = Tensor(0)
        while count < 3:
            tap.save(x, "while")
            x = tap.save_grad(x * 2, "gradient")
            count = count + 1
        for index in range(2):
            tap.save(x, "for" + str(index))
        tap.save({"x": x, "i": 3}, "last")
        return x


def expected(sign: str) -> "list[str]":
    return ["first", sign, "while", "while", "while", "for0", "for1", "last.x", "last.i"]


def test_control_flow(mode: str) -> None:
    net = Control()
    with tap.record("run"):
        for x in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 1.0, 1.0]):
            net(Tensor([x], ms.float32))
            tap.step()
    for step, sign in enumerate(["positive", "negative", "positive"]):
        found = [key for key in keys("run") if key[0] == step]
        assert [key[1] for key in found] == expected(sign)
        assert [key[3] for key in found if key[1] == "while"] == [0, 1, 2]
    value = dict(rows("run"))
    assert array(value[0, "while", "forward", 2]).tolist() == [[24.0] * 3] and value[0, "last.i", "forward", 0] == 3


def test_gradients_of_a_loop(mode: str) -> None:
    net = Control()
    x = Tensor([[1.0, 2.0, 3.0]], ms.float32)
    with tap.record("run"):
        got = ms.grad(net)(x)
    assert got.asnumpy().tolist() == [[24.0] * 3]
    assert names("run", "forward") == expected("positive")
    saved = dict(rows("run", "grad"))
    assert [saved[0, "gradient", "grad", call].tolist() for call in range(3)] == [[[4.0] * 3], [[2.0] * 3], [[1.0] * 3]]
    assert tap.verify("run").problems == []


def test_value_and_grad_runs_taps_once(mode: str) -> None:
    net = nn.Dense(2, 1)

    def forward(x: Any) -> Any:
        tap.save(x, "x")
        y = tap.save(net(x), "y", grad=True)
        return ops.sum(y)

    step = ms.value_and_grad(forward, None, net.trainable_params())
    with tap.record("run"):
        for _ in range(3):
            step(Tensor(np.ones((4, 2), np.float32)))
            tap.step()
    assert keys("run") == [key for step in range(3) for key in ((step, "x", "forward", 0), (step, "y", "forward", 0), (step, "y", "grad", 0))]
    assert all(value.tolist() == [[1.0]] * 4 for key, value in rows("run", "grad"))


def test_second_order(mode: str) -> None:
    def f(x: Any) -> Any:
        x = tap.save_grad(x, "g")
        return x * x * x

    with tap.record("run"):
        second = ms.grad(ms.grad(f))(Tensor(2.0))
    assert float(second) == 12.0
    assert 12.0 in [float(value) for _, value in rows("run", "grad")]


def test_jit_inside_pynative() -> None:
    @ms.jit
    def inside(x: Any) -> Any:
        tap.save(x, "inside")
        return x + 1

    def outside(x: Any) -> Any:
        tap.save(x, "before")
        y = inside(x)
        tap.save(y, "after")
        return y

    with tap.record("run"):
        outside(Tensor([1.0]))
        outside(Tensor([2.0]))
    assert names("run") == ["before", "inside", "after"] * 2
    assert [value.item() for _, value in rows("run")] == [1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("capture", ["ast", "bytecode"])
def test_capture_modes(capture: str) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        tap.save(y, "y")
        tap.save([y, x], "n")
        return y + 1

    compiled = ms.jit(f, capture_mode=capture)
    with tap.record("run"):
        for n in range(3):
            assert compiled(Tensor([float(n)])).asnumpy().item() == 2 * n + 1
            tap.step()
    assert keys("run") == [key for n in range(3) for key in ((n, "y", "forward", 0), (n, "n.0", "forward", 0), (n, "n.1", "forward", 0))]


def test_top_level_functions_work_too(mode: str) -> None:
    def f(x: Any) -> Any:
        tensortap.save(x, "x")
        return tensortap.save_grad(x * 2, "g")

    with tensortap.record("run"):
        ms.grad(f)(Tensor([1.0, 2.0]))
    assert keys("run") == [(0, "x", "forward", 0), (0, "g", "grad", 0)]


def test_dynamic_shapes() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            tap.save(x, "x")
            y = tap.save_grad(x * 2, "g")
            tap.save("dump", "y", {"k": y})
            return y

    first = tensortap._core.steps_done()
    net = Net()
    net.set_inputs(Tensor(shape=[None, None], dtype=ms.float32))
    shapes = [(2, 3), (4, 1), (1, 7)]
    gradient = ms.grad(net)
    try:
        with tap.record("run"):
            for shape in shapes:
                x = Tensor(np.random.rand(*shape).astype(np.float32))
                assert bits(net(x)) == bits(x.asnumpy() * 2)
                gradient(x)
                tap.step()
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    found = rows("run")
    assert [(key[0], key[1], key[2]) for key, _ in found] == [k for n in range(3) for k in ((n, "x", "forward"), (n, "x", "forward"), (n, "g", "grad"))]
    assert [value.shape for _, value in found] == [shape for shape in shapes for _ in range(3)]
    assert [np.load(f"dump/step{first + n}/rank0/y.k_float32_{2 * n}.npy").shape for n in range(3)] == shapes


class Small(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(2, 1, weight_init="ones")

    def construct(self, x: Any) -> Any:
        tap.save(x, "x")
        return tap.save(self.dense(x), "y", grad=True)


def test_model_train(mode: str) -> None:
    data = ms.dataset.NumpySlicesDataset((np.arange(8, dtype=np.float32).reshape(4, 2), np.zeros((4, 1), np.float32)), ["x", "y"], shuffle=False).batch(1)
    net = Small()
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.001))
    with tap.record("run"):
        model.train(2, data, dataset_sink_mode=False)
    found = keys("run")
    assert [key[1:3] for key in found] == [("x", "forward"), ("y", "forward"), ("y", "grad")] * 8
    assert [key[3] for key in found] == [call for call in range(8) for _ in range(3)]
    x = [value.ravel().tolist() for key, value in rows("run") if key[1] == "x"]
    assert x == [[0, 1], [2, 3], [4, 5], [6, 7]] * 2


def test_hand_written_loop_is_not_changed(mode: str) -> None:
    """Same weights after three steps, with and without taps."""

    def train(tapping: bool) -> Any:
        ms.set_seed(3)
        net = nn.Dense(4, 3, weight_init=Tensor(np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)))
        optimiser = nn.SGD(net.trainable_params(), 0.1)

        def forward(x: Any) -> Any:
            y = net(x)
            if tapping:
                tap.save(x, "x")
                y = tap.save(y, "y", grad=True)
            return ops.sum(ops.tanh(y))

        step = ms.value_and_grad(forward, None, net.trainable_params())
        for n in range(3):
            _, grads = step(Tensor(np.full((2, 4), 0.1 * (n + 1), np.float32)))
            optimiser(grads)
        return [bits(p.value()) for p in net.get_parameters()]

    without = train(False)
    with tap.record("run"):
        assert train(True) == without
    assert len(keys("run")) == 9


def test_negative_zero_gradients_stay(mode: str) -> None:
    """The gradient through a tap is none, not a zero that is added: -0 + 0 would be 0."""

    def f(x: Any) -> Any:
        tap.save(x, "x")
        tap.save("d", "x", x)
        return ops.reshape(x, (-1,))

    sens = Tensor(np.array([-0.0, 0.0, np.nan, -0.0], np.float32))
    gradient = ops.GradOperation(sens_param=True)(f)
    with tap.record("run"):
        assert bits(gradient(Tensor(np.ones((2, 2), np.float32)), sens)) == bits(sens.asnumpy().reshape(2, 2))


def test_step_inside_a_graph(mode: str) -> None:
    def f(x: Any) -> Any:
        tap.save(x, "x")
        tap.save("d", "x", x)
        tap.step()
        tap.save(x, "y")
        return x

    call = f if mode == "pynative" else ms.jit(f)
    first = tensortap._core.steps_done()
    with tap.record("run"):
        call(Tensor([1.0]))
        call(Tensor([2.0]))
    assert [(key[0], key[1]) for key in keys("run")] == [(0, "x"), (1, "y"), (1, "x"), (2, "y")]
    assert sorted(path.name for path in pathlib.Path("d").glob("[!.]*")) == [f"step{first}", f"step{first + 1}"]


def test_without_a_recorder_nothing_happens(mode: str) -> None:
    net = Control()
    a = net(Tensor([[1.0, 2.0, 3.0]], ms.float32))
    assert array(a).tolist() == [[48.0] * 3]


def test_a_graph_compiled_before_recording_records() -> None:
    @ms.jit
    def f(x: Any) -> Any:
        tap.save(x, "x")
        return x

    f(Tensor([1.0]))
    for run in ("one", "two"):
        with tap.record(run):
            f(Tensor([2.0]))
        f(Tensor([3.0]))
        assert [value.item() for _, value in rows(run)] == [2.0]
