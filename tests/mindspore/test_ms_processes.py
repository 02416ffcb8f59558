"""Processes that are killed, end at once, hold tensors larger than 2 GB, are ranks of several, or run a cached graph."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensortap.mindspore as tap
from ms_helpers import environment, files, keys, rows, script

MODES = pytest.mark.parametrize("mode", ["pynative", "graph"])
HEAD = """
import os, signal, sys, mindspore as ms, numpy as np
from mindspore import Tensor
import tensortap.mindspore as tap
ms.set_context(mode=ms.GRAPH_MODE if sys.argv[1] == "graph" else ms.PYNATIVE_MODE)
class Net(ms.nn.Cell):
    def construct(self, x):
        tap.save(x, "x")
        y = tap.save(x * 2, "y", grad=True)
        tap.save("dump", "y", y)
        return y
net = Net()
"""


def wait(run: str) -> None:
    subprocess.run([sys.executable, "-m", "tensortap", "wait", run], timeout=60, check=False)


@MODES
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "sys.exit(0)"])
def test_nothing_is_lost(mode: str, end: str) -> None:
    """Right after the save: a kill, an exit without any cleaning up, an ordinary end."""
    script(HEAD + f"""
tap.record("run")
for n in range(5):
    ms.grad(net)(Tensor(np.full(1000, n, np.float32)))
    tap.step()
net(Tensor(np.full(1000, 9, np.float32)))
{end}
""", mode, check=False)
    wait("run")
    found = rows("run")
    assert [key[:3] for key, _ in found] == [(n, name, kind) for n in range(5) for name, kind in (("x", "forward"), ("y", "forward"), ("y", "grad"))] + [(5, "x", "forward"), (5, "y", "forward")]
    assert all(value.shape == (1000,) for _, value in found)
    assert [value[0] for key, value in found if key[1] == "x"] == [0, 1, 2, 3, 4, 9]
    assert tap.verify("run").lost == 0
    assert len(files("dump")) == 6 and all(np.load(pathlib.Path("dump") / name).shape == (1000,) for name in files("dump"))


LATE = HEAD.split("class Net")[0] + """
@ms.jit
def late(x, count):
    y = x
    for _ in range(4):
        y = ms.ops.matmul(y, y)
    tap.save(y[0, 0] + count, "late")
    tap.save("dump", "late", y[0, 0] + count)
    return x
x = Tensor(np.eye(1000, dtype=np.float32))
late(x, Tensor(0.0)).asnumpy()  # compiled; its value goes to the directory
"""


@pytest.mark.parametrize("end", ["tap.close()", "tap.flush(); os._exit(0)", "sys.exit(0)", "recorder.pause(); os._exit(0)"])
def test_a_graph_that_returned_before_its_taps_ran(end: str) -> None:
    """Its result does not need them; they belong to the step, and the recording, that it was called in."""
    script(LATE + f"""
late(x, Tensor(0.5))  # before the recording
recorder = tap.record("run")
for n in range(1, 4):
    late(x, Tensor(float(n)))
    tap.step()
late(x, Tensor(4.0))
tap.set_step(9)
late(x, Tensor(5.0))
{end}
""", "pynative")
    wait("run")
    assert [(key[0], value.item()) for key, value in rows("run")] == [(0, 2.0), (1, 3.0), (2, 4.0), (3, 5.0), (9, 6.0)]
    values = {name: float(np.load(pathlib.Path("dump") / name)) for name in files("dump")}
    assert values == {f"step{step}/rank0/late_float32_{id}.npy": value for id, (step, value) in enumerate([(0, 1.0), (0, 1.5), (0, 2.0), (1, 3.0), (2, 4.0), (3, 5.0), (3, 6.0)])}


@pytest.mark.parametrize("call", ["tap.step()", "tap.set_step(3)", "tap.flush()", "tap.close()", "recorder.pause()"])
def test_what_fails_in_a_graph_is_raised(call: str) -> None:
    """Waiting for a graph must not hide that it failed, nor keep the step or the recording from ending."""
    done = script(HEAD.split("class Net")[0] + f"""
import time
def raise_late(x):
    time.sleep(0.3)
    raise RuntimeError("made to fail")
fail = ms.ops.Custom(raise_late, lambda s: s, lambda d: d, "pyfunc")
fail.add_prim_attr("side_effect_io", True)
@ms.jit
def f(x):
    tap.save(x, "before")
    tap.save(fail(x * 2), "after")
    return x
recorder = tap.record("run")
f(Tensor(np.ones(3, np.float32)))
try:
    {call}
except RuntimeError as error:
    print("raised", error)
print("closed", recorder.closed)
tap.save(Tensor([1.0]), "next")
""", "pynative")
    assert "raised made to fail" in done.stdout
    wait("run")
    step = {"tap.step()": 1, "tap.set_step(3)": 3}.get(call, 0)
    ended = call in ("tap.close()", "recorder.pause()")
    assert ("closed True" in done.stdout) == (call == "tap.close()")
    assert keys("run") == [(0, "before", "forward", 0)] + [(step, "next", "forward", 0)] * (not ended)
    assert tap.verify("run").lost == 0


def test_killed_inside_a_graph() -> None:
    """The graph itself ends the process, between two taps."""
    script(HEAD + """
end = ms.ops.Custom(lambda x: (os.kill(os.getpid(), signal.SIGKILL), x)[1], lambda s: s, lambda d: d, "pyfunc")
end.add_prim_attr("side_effect_io", True)
@ms.jit
def f(x):
    tap.save(x, "before")
    y = end(x * 2)
    tap.save(y, "after")
    return y
tap.record("run")
f(Tensor(np.ones(3, np.float32)))
""", "graph", check=False)
    wait("run")
    assert keys("run") == [(0, "before", "forward", 0)]


@pytest.mark.slow
@MODES
def test_larger_than_2_gb(mode: str) -> None:
    """2.5 GB, whole, in both kinds of recording."""
    script(HEAD.split("class Net")[0] + """
count = 625_000_000
big = np.zeros(count, np.float32)
big[::1 << 20] = np.arange(len(big[::1 << 20]))
big[-1] = 7
def f(x):
    tap.save("dump", "x", x)
    return x[:1]
with tap.record("run"):
    def g(x):
        tap.save(x, "x")
        return x[:1]
    x = Tensor(big)
    del big
    (f if sys.argv[1] == "pynative" else ms.jit(f))(x)
    (g if sys.argv[1] == "pynative" else ms.jit(g))(x)
""", mode)
    marks = np.arange(597)
    (path,) = pathlib.Path("dump").rglob("*.npy")
    for found in (np.load(path, mmap_mode="r"), rows("run")[0][1]):
        assert found.nbytes == 2_500_000_000 and found.dtype == np.float32 and found[-1] == 7
        assert np.array_equal(found[:: 1 << 20], marks) and np.count_nonzero(found[: 64 << 20]) == 63
    path.unlink()
    subprocess.run(["rm", "-rf", "run"], check=True)


def test_rank_from_the_environment() -> None:
    script(HEAD + "tap.record('run')\nnet(Tensor(np.ones(2, np.float32)))\n", "graph", RANK_ID="3", RANK_SIZE="4")
    assert files("dump") == ["step0/rank3/y_float32_0.npy"]
    with tap.open("run") as run:
        assert {record.rank for record in run.query()} == {3}


def test_ranks_of_a_communication_group() -> None:
    """Two processes started by msrun, on the CPU."""
    pathlib.Path("job.py").write_text(HEAD + """
ms.communication.init()
assert os.environ.pop("RANK_ID") in "01"  # so that the group is what tells the rank
net(Tensor(np.full(2, ms.communication.get_rank(), np.float32)))
""")
    msrun = pathlib.Path(sys.executable).with_name("msrun")
    command = [str(msrun), "--worker_num=2", "--local_worker_num=2", "--master_port=18118", "--log_dir=log", "--join=True", "--cluster_time_out=120", "job.py", "graph"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment(PATH=f"{msrun.parent}:/usr/bin:/bin"))
    logs = "".join(path.read_text()[-1500:] for path in pathlib.Path("log").glob("*.log"))
    assert files("dump") == ["step0/rank0/y_float32_0.npy", "step0/rank1/y_float32_0.npy"], done.stdout[-1000:] + done.stderr[-1000:] + logs
    assert [np.load(f"dump/step0/rank{rank}/y_float32_0.npy").tolist() for rank in (0, 1)] == [[0, 0], [2, 2]]


def test_independent_branches_keep_the_order_of_the_program() -> None:
    """MindSpore runs the first call of a graph on several threads; taps stay in order, each value arrives once."""
    script(HEAD.split("class Net")[0] + """
@ms.jit
def f(x):
    parts = []
    for k in range(20):
        y = ms.ops.matmul(x, x) * k
        tap.save(y, "t" + str(k))
        parts = parts + [y]
    return parts
with tap.record("run"):
    for n in range(5):
        f(Tensor(np.full((64, 64), n, np.float32)))
        tap.step()
""", "graph")
    found = rows("run")
    assert [key[:2] for key, _ in found] == [(n, f"t{k}") for n in range(5) for k in range(20)]
    assert all((value == 64 * key[0] ** 2 * int(key[1][1:])).all() for key, value in found)


def test_a_graph_from_the_compile_cache() -> None:
    """A second process loads the compiled graph: nothing of ours runs while it is compiled, the sites are in the graph."""
    text = HEAD + """
os.environ["MS_COMPILER_CACHE_ENABLE"], os.environ["MS_COMPILER_CACHE_PATH"] = "1", os.path.abspath("cache")
tap.record(sys.argv[2])
net(Tensor(np.ones(2, np.float32)))
net(Tensor(np.ones(2, np.float32)))
"""
    for run in ("one", "two"):
        done = script(text, "graph", run, MS_COMPILER_CACHE_ENABLE="1", MS_COMPILER_CACHE_PATH=str(pathlib.Path("cache").absolute()), GLOG_v="2")
        assert keys(run) == [(0, name, "forward", call) for call in range(2) for name in ("x", "y")], done.stderr[-2000:]
    assert files("dump") == ["step0/rank0/y_float32_0.npy", "step0/rank0/y_float32_1.npy"]
