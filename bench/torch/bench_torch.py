"""What taps cost in torch, as a table: python bench/torch/bench_torch.py [--quick]

Every row is measured in this one process, alternating with what it is compared to, best of several rounds. A row of
mindstudio-probe is printed where that package is installed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensortap as tap
import torch

SCRATCH = Path(tempfile.mkdtemp(prefix="tensortap-bench-"))


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


def msprobe_save(keep: str, x: torch.Tensor) -> Callable[[], None] | None:
    """mindstudio-probe's PrecisionDebugger.save, with a new name each time as its users must give."""
    try:
        from msprobe.pytorch import PrecisionDebugger
    except Exception:
        return None
    debugger = PrecisionDebugger(
        task="statistics" if keep == "stats" else "tensor", dump_path=str(SCRATCH / f"msprobe{keep}"), level="debug"
    )
    return lambda: debugger.save(x, "x", save_backward=False)


def small(quick: bool) -> None:
    x = torch.randn(256)
    calls = 2000 if quick else 20000
    for keep, reach in (("stats", "2 us"), ("tensor", "2.5 us")):
        with tap.record(SCRATCH / f"small{keep}", keep=keep):
            mine = best(lambda: tap.save(x, "x"), calls)
        peer = msprobe_save(keep, x)
        theirs = f"mindstudio-probe {best(peer, 50) * 1e6:.0f} us" if peer else "mindstudio-probe not installed"
        row(f"save of 256 floats, eager, {keep}", f"{mine * 1e6:.2f} us", reach, theirs)


def large(quick: bool) -> None:
    x = torch.randn((8 if quick else 64) << 18)
    size = x.numel() * 4
    for keep, reach in (("stats", "3x mindstudio-probe"), ("tensor", "20x mindstudio-probe")):
        with tap.record(SCRATCH / f"large{keep}", keep=keep):
            times = []
            for _ in range(5):
                start = time.perf_counter()
                tap.save(x, "x")
                times.append(time.perf_counter() - start)
                tap.flush()
        mine = min(times)
        peer = msprobe_save(keep, x)
        theirs = f"mindstudio-probe {size / best(peer, 1, 3) / 1e9:.2f} GB/s" if peer else "mindstudio-probe not installed"
        row(f"save of {size >> 20} MiB, caller blocked, {keep}", f"{size / mine / 1e9:.2f} GB/s", reach, theirs)
        shutil.rmtree(SCRATCH / f"large{keep}")


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


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Gpt(torch.nn.Module):
    def __init__(self, width: int = 128, depth: int = 4, words: int = 512) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training(quick: bool) -> None:
    torch.manual_seed(0)
    model = Gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 512, (8, 64))

    def step() -> None:
        optimizer.zero_grad()
        out = model(tokens)
        torch.nn.functional.cross_entropy(out.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        tap.step()

    rounds = 4 if quick else 20
    step()
    times: dict[str, list[float]] = {"plain": [], "off": [], "on": [], "hooks": []}
    for i in range(rounds):
        times["plain"].append(best(step, 1, 1))
        with tap.watch(model, "blocks.?", inputs=False):
            times["off"].append(best(step, 1, 1))
            with tap.record(SCRATCH / f"gpt{i}", keep="stats"):
                times["on"].append(best(step, 1, 1))
        handles = [
            block.register_forward_hook(
                lambda _m, _a, y, n=n, i=i: (
                    torch.save(y.detach(), SCRATCH / f"hook{n}.pt"),
                    y.register_hook(lambda g: torch.save(g, SCRATCH / f"hook{n}g.pt")),
                )[:0] or None
            )
            for n, block in enumerate(model.blocks)
        ]
        times["hooks"].append(best(step, 1, 1))
        for handle in handles:
            handle.remove()
    median = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    base = median["plain"]
    row(
        "small GPT training step, every block's output and gradient, statistics",
        f"{median['on'] / base:.3f}x of {base * 1e3:.1f} ms",
        "1.05x",
        f"forward hook + torch.save {median['hooks'] / base:.3f}x",
    )
    row("the same taps, not recording", f"{(median['off'] / base - 1) * 100:+.2f} %", "under 0.1 %")
    x = torch.ones(1)
    row("one tap, not recording", f"{best(lambda: tap.save(x, 'x'), 20000) * 1e9:.0f} ns", "not measurable")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    quick = arguments.parse_args().quick
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, Python {sys.version.split()[0]}\n")
    print("| what | measured | reach | beside |\n|---|---|---|---|")
    try:
        small(quick)
        large(quick)
        inside_inductor(quick)
        training(quick)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
