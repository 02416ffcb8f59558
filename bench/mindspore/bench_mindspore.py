"""What taps cost in MindSpore, as a table: .venv-mindspore/bin/python bench/mindspore/bench_mindspore.py [--quick]

Every row is measured in this one process, alternating with what it is compared to, best of several rounds. In PyNative
mode a value may not be computed yet when it is saved; reading it then waits for MindSpore's own threads, so small saves
are measured both ways. mindstudio-probe runs in a process of its own, where it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms
import numpy as np
import tensortap
import tensortap.mindspore as tap
from mindspore import Tensor, ops

SCRATCH = Path(tempfile.mkdtemp(prefix="tensortap-bench-"))
TAPS = 10


def best(f: Callable[[], Any], calls: int, rounds: int = 7) -> float:
    """Seconds a call, of the fastest round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def row(what: str, measured: str, reach: str, beside: str = "") -> None:
    print(f"| {what} | {measured} | {reach} | {beside} |", flush=True)


PEER = """
import sys, time, mindspore as ms, numpy as np
from msprobe.mindspore import PrecisionDebugger
ready = ms.Tensor(np.random.rand(256).astype(np.float32)) + 1
ready.asnumpy()
debugger = PrecisionDebugger(task="tensor", dump_path=sys.argv[1], level="debug")
times = []
for _ in range(60):
    start = time.perf_counter()
    debugger.save(ready, "x", save_backward=False)
    times.append(time.perf_counter() - start)
print(f"{sorted(times)[30] * 1e6:.0f} us", flush=True)
(ready + 1).asnumpy()
"""


def peer() -> str:
    """mindstudio-probe's PrecisionDebugger.save, in a process of its own, and whether what it asked for was computed."""
    done = subprocess.run([sys.executable, "-c", PEER, str(SCRATCH / "msprobe")], capture_output=True, text=True)
    if "No module named 'msprobe'" in done.stderr:
        return "mindstudio-probe not installed"
    said = [line for line in done.stdout.splitlines() if line.endswith(" us")]
    failed = [line for line in done.stderr.splitlines() if line.startswith("RuntimeError")]
    return f"mindstudio-probe {said[-1] if said else 'fails'}" + (f" and then {failed[0]}" if failed else "")


def medians(calls: int, *functions: Callable[[], Any]) -> list[float]:
    """Seconds of each, made in turn: a launch varies more than a tap costs."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(calls):
        for function, taken in zip(functions, times):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@ms.jit
def plain(x: Any) -> Any:
    for _ in range(TAPS):
        x = ops.cumsum(ops.sin(x), 0)
    return x


@ms.jit
def tapped(x: Any) -> Any:
    for i in range(TAPS):
        x = ops.cumsum(ops.sin(x), 0)
        tap.save(x, "x" + str(i))
    return x


def a_tap(x: Tensor, calls: int) -> str:
    """Microseconds of a tap."""
    without, taken = medians(calls, lambda: plain(x).asnumpy(), lambda: tapped(x).asnumpy())
    return f"{(taken - without) / TAPS * 1e6:.2f} us"


def small_graph(quick: bool) -> None:
    x = Tensor(np.random.rand(256).astype(np.float32))
    calls = 300 if quick else 5000
    for keep in ("stats", "tensor"):
        with tap.record(SCRATCH / f"graph{keep}", keep=keep):
            plain(x), tapped(x)
            each = a_tap(x, calls)
        row(f"save of 256 floats in a graph, over the untapped graph, {keep}", each, "5 us", "TensorDump fails")
    row("the same taps, not recording", a_tap(x, calls), "5 us")


def small_pynative(quick: bool) -> None:
    ready = Tensor(np.random.rand(256).astype(np.float32)) + 1
    ready.asnumpy()
    base = Tensor(np.random.rand(256).astype(np.float32))
    calls = 100 if quick else 1000
    dump, place = ops.TensorDump(), str(SCRATCH / "theirs")
    theirs = best(lambda: dump(place, ready), calls // 10)
    with tap.record(SCRATCH / "pynative"):
        mine = best(lambda: tap.save(ready, "x"), calls)
        computing, waiting, fresh = medians(
            calls, lambda: tap.save(base + 1, "x"), lambda: (base + 1).asnumpy(), lambda: dump(place, base + 1)
        )
    row("save of 256 floats in PyNative mode, value there", f"{mine * 1e6:.1f} us", "30 us", f"TensorDump {theirs * 1e6:.0f} us, {peer()}")
    row("computing 256 floats and saving them", f"{computing * 1e6:.0f} us", "", f"computing and asnumpy() {waiting * 1e6:.0f} us, and TensorDump {fresh * 1e6:.0f} us")
    os.chdir(SCRATCH)
    row("save of 256 floats to a file of its own", f"{best(lambda: tap.save('files', 'x', ready), calls // 10) * 1e6:.0f} us", "", f"TensorDump {theirs * 1e6:.0f} us")


def large(quick: bool) -> None:
    array = np.random.rand((8 if quick else 64) << 18).astype(np.float32)
    size = array.nbytes
    x = Tensor(array) + 0
    x.asnumpy()

    @ms.jit
    def one(x: Any) -> Any:
        tap.save(x, "x")
        return x[:1]

    @ms.jit
    def none(x: Any) -> Any:
        return x[:1]

    def blocked(f: Callable[[], Any]) -> float:
        times = []
        for _ in range(7):
            times.append(best(f, 1, 1))
            tap.flush()
        return min(times)

    with tap.record(SCRATCH / "large"):
        one(x), none(x)
        recorder = blocked(lambda: tensortap.save(array, "x"))
        graph = blocked(lambda: one(x).asnumpy()) - blocked(lambda: none(x).asnumpy())
        eager = blocked(lambda: tap.save(x, "x"))
    dump = ops.TensorDump()
    theirs = best(lambda: dump(str(SCRATCH / "big"), x), 1, 3)
    own = f"recorder {size / recorder / 1e9:.2f} GB/s"
    row(f"save of {size >> 20} MiB in a graph, caller blocked", f"{size / graph / 1e9:.2f} GB/s", own)
    row(f"save of {size >> 20} MiB in PyNative mode, caller blocked", f"{size / eager / 1e9:.2f} GB/s", own, f"TensorDump {size / theirs / 1e9:.2f} GB/s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    quick = arguments.parse_args().quick
    ms.set_context(mode=ms.PYNATIVE_MODE)
    print(f"MindSpore {ms.__version__} on the CPU, Python {sys.version.split()[0]}\n")
    print("| what | measured | reach | beside |\n|---|---|---|---|")
    try:
        small_graph(quick)
        small_pynative(quick)
        large(quick)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
