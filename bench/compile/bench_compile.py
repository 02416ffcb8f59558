"""What compiling costs, as a table: python bench/compile/bench_compile.py

A 12-layer GPT-2-sized graph: time inside our backend (reading the graph and making its first plan), the whole first call of
torch.compile beside backend "aot_eager", a new shape under dynamic=True, and a call of a graph of 8 small nodes.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F

import tensortap
from tensortap._engine import backend as engine


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.one(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.two(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 1000) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(1024, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.t()


def row(what: str, measured: str, reach: str) -> None:
    print(f"| {what} | {measured} | {reach} |", flush=True)


def first_call(model: torch.nn.Module, backend: Any, *args: Any) -> float:
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    start = time.perf_counter()
    compiled(*args)
    return time.perf_counter() - start


def main() -> None:
    torch.manual_seed(0)
    print("| what | measured | reach |\n|---|---|---|")
    model, ids = Gpt(), torch.randint(0, 1000, (1, 16))
    spent = {"read": 0.0, "run": []}
    original = engine.compile_graph

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        compiled = original(*args, **kwargs)
        spent["read"] += time.perf_counter() - start
        return compiled

    with torch.no_grad():
        for backend in ("aot_eager", "tensortap"):
            first_call(model, backend, ids)  # warm: imports, caches
        engine.compile_graph = timed
        tensortap.counters(reset=True)
        ours = first_call(model, "tensortap", ids)
        engine.compile_graph = original
        compiled = torch.compile(model, backend="tensortap", fullgraph=True)
        counts = tensortap.counters()
        nodes = counts["native"] + counts["views"] + counts["host"]
        ((_, program),) = engine._programs()
        best = min(_seconds(lambda: compiled(ids)) for _ in range(5))
        aot = min(first_call(model, "aot_eager", ids) for _ in range(3))
        ours = min(ours, *(first_call(model, "tensortap", ids) for _ in range(2)))
        plan = program.counts()["plan_nanoseconds"] / 1e6
        row(f"GPT-2-sized graph, {nodes} nodes: reading it", f"{spent['read'] * 1e3:.1f} ms", "30 ms with the plan")
        row("its first plan", f"{plan:.1f} ms", "")
        row("whole first call beside aot_eager", f"{ours / aot:.2f}x ({ours:.2f} s, {aot:.2f} s)", "1.3x")
        row("one call of it", f"{best * 1e3:.2f} ms", "")

        torch._dynamo.reset()
        tensortap.counters(reset=True)
        dynamic = torch.compile(model, backend="tensortap", fullgraph=True, dynamic=True)
        dynamic(torch.randint(0, 1000, (2, 16)))
        ((_, program),) = engine._programs()
        before = program.counts()["plan_nanoseconds"]
        dynamic(torch.randint(0, 1000, (3, 24)))
        row("a new shape under dynamic=True", f"{(program.counts()['plan_nanoseconds'] - before) / 1e6:.2f} ms",
            "2 ms + 0.4 ms per new matmul shape")  # fmt: skip

        torch._dynamo.reset()
        tensortap.counters(reset=True)

        def small(x: torch.Tensor) -> torch.Tensor:
            for _ in range(4):
                x = torch.relu(x) + 1.5
            return x

        torch.compile(small, backend="tensortap", fullgraph=True)(torch.randn(16))
        ((_, program),) = engine._programs()
        x = torch.randn(16)
        rounds = 20000
        times = []
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(rounds):
                program([x])
            times.append((time.perf_counter() - start) / rounds)
        row("calling a graph of 8 small nodes", f"{min(times) * 1e6:.2f} us", "5 us")


def _seconds(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
