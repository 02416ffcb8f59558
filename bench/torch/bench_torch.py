"""What taps cost in torch, as a table: make bench-torch, or python bench/torch/bench_torch.py [--quick] [--peer PYTHON]

Every row is measured in one run, alternating with what it is compared to. mindstudio-probe lives in an environment of
its own (--peer); its numbers come from a process of that one, started between ours.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tensortap as tap
import torch
from small_gpt import Gpt, best, make_step, median

SCRATCH = Path(tempfile.mkdtemp(prefix="tensortap-bench-"))
REACH = {"stats": ("2 us", "3x"), "tensor": ("2.5 us", "20x")}
TASKS = {"stats": "statistics", "tensor": "tensor"}


def row(what: str, measured: str, reach: str, beside: str = "") -> None:
    print(f"| {what} | {measured} | {reach} | {beside} |", flush=True)


def peer(python: str, keep: str, quick: bool) -> dict[str, float]:
    """mindstudio-probe's times; empty, with the reason printed, where it does not run."""
    here = Path(__file__).parent
    command = [python, "-W", "ignore", str(here / "peer_torch.py"), TASKS[keep], str(SCRATCH / f"peer{keep}")]
    try:
        done = subprocess.run(
            [*command, "8" if quick else "64", "4" if quick else "20"], capture_output=True, text=True, check=True, timeout=900
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        print(f"<!-- mindstudio-probe does not run: {why}; make bench-torch sets it up -->")
        return {}
    finally:
        shutil.rmtree(SCRATCH / f"peer{keep}", ignore_errors=True)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def small(keep: str, theirs: dict[str, float], quick: bool) -> None:
    x = torch.randn(256)
    with tap.record(SCRATCH / f"small{keep}", keep=keep):  # type: ignore[arg-type]
        mine = best(lambda: tap.save(x, "x"), 2000 if quick else 20000)
    beside = f"mindstudio-probe {theirs['small'] * 1e6:.0f} us" if theirs else ""
    row(f"save of 256 floats, eager, {keep}", f"{mine * 1e6:.2f} us", REACH[keep][0], beside)


def large(keep: str, theirs: dict[str, float], quick: bool) -> None:
    x = torch.randn((8 if quick else 64) << 18)
    size = x.numel() * 4
    times = []
    with tap.record(SCRATCH / f"large{keep}", keep=keep):  # type: ignore[arg-type]
        for _ in range(5):
            start = time.perf_counter()
            tap.save(x, "x")
            times.append(time.perf_counter() - start)
            tap.flush()
    shutil.rmtree(SCRATCH / f"large{keep}")
    mine = min(times)
    ratio = f", {theirs['large'] / mine:.1f}x" if theirs else ""
    beside = f"mindstudio-probe {size / theirs['large'] / 1e9:.2f} GB/s" if theirs else ""
    row(f"save of {size >> 20} MiB, caller blocked, {keep}", f"{size / mine / 1e9:.2f} GB/s{ratio}", REACH[keep][1], beside)


def inside_inductor(quick: bool) -> None:
    taps = 10

    def chain(x: torch.Tensor, on: bool) -> torch.Tensor:
        for i in range(taps):
            x = torch.sin(x).cumsum(0)
            if on:
                tap.save(x, f"x{i}")
        return x

    x = torch.randn(256)
    calls = 200 if quick else 2000
    compiled = torch.compile(chain, fullgraph=True)
    with tap.record(SCRATCH / "inductor", keep="stats"), torch.no_grad():
        compiled(x, False), compiled(x, True)
        plain, tapped = [], []
        for _ in range(7):
            plain.append(best(lambda: compiled(x, False), calls, 1))
            tapped.append(best(lambda: compiled(x, True), calls, 1))
    row("a tap inside inductor, over the untapped graph", f"{(min(tapped) - min(plain)) / taps * 1e6:.2f} us", "2.5 us")


def save_by_hook(n: int) -> Any:
    """What people write without a tool: the output and its gradient by torch.save."""

    def hook(module: Any, args: Any, y: torch.Tensor) -> None:
        torch.save(y.detach(), SCRATCH / f"hook{n}.pt")
        y.register_hook(lambda g: torch.save(g, SCRATCH / f"hook{n}g.pt"))

    return hook


def training(theirs: dict[str, float], quick: bool) -> None:
    torch.manual_seed(0)
    model = Gpt()
    step = make_step(model, tap.step)
    times: dict[str, list[float]] = {"plain": [], "off": [], "on": [], "hooks": []}
    for i in range(4 if quick else 20):
        times["plain"].append(best(step, 1, 1))
        with tap.watch(model, "blocks.?", inputs=False):
            times["off"].append(best(step, 1, 1))
            with tap.record(SCRATCH / f"gpt{i}", keep="stats"):
                times["on"].append(best(step, 1, 1))
        handles = [block.register_forward_hook(save_by_hook(n)) for n, block in enumerate(model.blocks)]
        times["hooks"].append(best(step, 1, 1))
        for handle in handles:
            handle.remove()
    base = median(times["plain"])
    beside = f"forward hook + torch.save {median(times['hooks']) / base:.3f}x"
    if theirs:
        beside = f"mindstudio-probe {theirs['training']:.3f}x, " + beside
    row(
        "small GPT training step, every block's output and gradient, statistics",
        f"{median(times['on']) / base:.3f}x of {base * 1e3:.1f} ms", "1.05x", beside,
    )  # fmt: skip
    x = torch.ones(1)
    one = best(lambda: tap.save(x, "x"), 20000)
    row(
        "the same taps, not recording",
        f"{one * len(model.blocks) / base * 100:.5f} % ({one * 1e9:.0f} ns a tap)", "under 0.1 %",
        f"step against step: {(median(times['off']) / base - 1) * 100:+.2f} %",
    )  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    arguments.add_argument("--peer", default=".venv-bench/bin/python", help="the Python that has mindstudio-probe")
    given = arguments.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, Python {sys.version.split()[0]}\n")
    try:
        theirs = {keep: peer(given.peer, keep, given.quick) for keep in TASKS}
        print("| what | measured | reach | beside |\n|---|---|---|---|")
        for keep in TASKS:
            small(keep, theirs[keep], given.quick)
        for keep in TASKS:
            large(keep, theirs[keep], given.quick)
        inside_inductor(given.quick)
        training(theirs["stats"], given.quick)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
