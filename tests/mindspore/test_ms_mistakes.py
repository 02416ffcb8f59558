"""Bad input: what is said, and that training goes on where it can."""
import os
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import tensortap
import tensortap.mindspore as tap
from mindspore import Tensor
from ms_helpers import files, keys, script

X = Tensor(np.ones(2, np.float32))


def refused(mode: str, f: Any, kind: type, text: str, line: str = "") -> None:
    """Raised in PyNative mode; by the compiler, with the line, in a graph."""
    with pytest.raises(kind) as error:
        (f if mode == "pynative" else ms.jit(f))(X)
    assert text in str(error.value)
    if mode == "graph":
        assert __file__ in str(error.value) and line in str(error.value)


def name_is_a_number(x: Any) -> Any:
    tap.save(x, 3)
    return x


def name_is_a_tensor(x: Any) -> Any:
    tap.save("d", x, x)
    return x


def leaf_is_a_number(x: Any) -> Any:
    tap.save("d", "n", {"k": [x, 3]})
    return x


def no_data(x: Any) -> Any:
    tap.save("d", "n")
    return x


def grad_of_a_number(x: Any) -> Any:
    return tap.save_grad("d", "n", [x, 2.0])


def unknown_kind(x: Any) -> Any:
    tap.save(x, "n", "sideways")
    return x


def test_name(mode: str) -> None:
    with tap.record("run"):
        refused(mode, name_is_a_number, TypeError, 'save(x, "x")' if mode == "pynative" else 'save("./dump_dir", "name", x)', "tap.save(x, 3)")
    refused(mode, name_is_a_tensor, TypeError, 'save(x, "name"), or save("./dump_dir", "name", x)', 'tap.save("d", x, x)')
    assert not os.path.exists("d")


def test_leaf(mode: str) -> None:
    refused(mode, leaf_is_a_number, TypeError, "n.k.1 is ", 'tap.save("d", "n", {"k": [x, 3]})')
    refused(mode, grad_of_a_number, TypeError, "n.1 is ", 'tap.save_grad("d", "n", [x, 2.0])')
    assert files() == []


def test_none_is_left_out(mode: str) -> None:
    """As an optional output of a Cell is."""

    def f(x: Any) -> Any:
        tap.save("d", "n", {"a": None, "b": x, "c": [None, x]})
        tap.save("d", "none", {"a": None})
        return x

    (f if mode == "pynative" else ms.jit(f))(X)
    tensortap.flush()
    assert [name.rpartition("/")[2] for name in files()] == ["n.b_float32_0.npy", "n.c.1_float32_0.npy"]


def test_nothing_to_save(mode: str) -> None:
    refused(mode, no_data, TypeError, 'save(x, "name"), or save("./dump_dir", "name", x)', 'tap.save("d", "n")')


def test_kind(mode: str) -> None:
    with tap.record("run"):
        refused(mode, unknown_kind, ValueError, "forward, grad, input, output, param", "sideways")


def test_directory_that_cannot_be_written(mode: str) -> None:
    """Said once, and training goes on."""

    def f(x: Any) -> Any:
        tap.save("/proc/nothing", "x", x)
        return tap.save_grad("/proc/nothing", "x", x * 2)

    before = len(tap.messages())
    f = f if mode == "pynative" else ms.jit(f)
    for _ in range(3):
        assert ms.grad(f)(X).asnumpy().tolist() == [2, 2]
    said = [text for text in tap.messages()[before:] if "/proc/nothing" in text]
    assert len(said) <= 1 and any("/proc/nothing" in text and "values are not saved" in text for text in tap.messages())


def test_disk_that_fills_later(mode: str) -> None:
    """The directory is taken away while the graph runs: one message, the result is right."""
    import shutil

    def f(x: Any) -> Any:
        tap.save("gone/deep", "x", x)
        return x * 2

    f = f if mode == "pynative" else ms.jit(f)
    f(X)
    shutil.rmtree("gone")
    open("gone", "w").close()
    for _ in range(3):
        assert f(X).asnumpy().tolist() == [2, 2]


def test_version_that_was_not_tested() -> None:
    text = """
import mindspore
mindspore.__version__ = "9.9.9"
import tensortap.mindspore as tap
import numpy
tap.record("run")
for n in range(3):
    tap.save(mindspore.Tensor(numpy.ones(2)), "x")
tap.close()
"""
    done = script(text)
    assert done.stderr.count("MindSpore 9.9.9 is not one that was tested (2.7.0)") == 1
    assert len(keys("run")) == 3
    assert "not one that was tested" not in script(text.replace('mindspore.__version__ = "9.9.9"', "")  .replace('"run"', '"again"')).stderr


def test_both_forms_by_keyword(mode: str) -> None:
    def f(x: Any) -> Any:
        tap.save(save_dir="d", name="x", data=x)
        tap.save(value=x, name="y")
        return tap.save_grad(save_dir="d", name="x", data=x)

    with tap.record("run"):
        ms.grad(f if mode == "pynative" else ms.jit(f))(X)
    assert [path.rpartition("/")[2] for path in files("d")] == ["x_float32_0.npy", "x_grad_float32_0.npy"]
    assert keys("run") == [(0, "y", "forward", 0)]


def test_step_and_rank_filters(mode: str) -> None:
    def f(x: Any) -> Any:
        tap.save(x, "x")
        tap.save(x, "other")
        return x

    f = f if mode == "pynative" else ms.jit(f)
    with tap.record("run", steps="1-2", names="x"):
        for _ in range(4):
            f(X)
            tensortap.step()
    assert keys("run") == [(1, "x", "forward", 0), (2, "x", "forward", 0)]
    with tap.record("rank", ranks="3"):
        f(X)
    assert not os.path.exists("rank") or keys("rank") == []
