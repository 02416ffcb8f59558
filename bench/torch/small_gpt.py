"""The model of the training row, and how one step of it is timed: shared with the peer's side of the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def best(f: Callable[[], Any], calls: int, rounds: int = 7) -> float:
    """Seconds a call, of the fastest round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


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


def make_step(model: Gpt, after: Callable[[], Any]) -> Callable[[], None]:
    """One training step on random words, ended by `after`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 512, (8, 64))

    def step() -> None:
        optimizer.zero_grad()
        out = model(tokens)
        torch.nn.functional.cross_entropy(out.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        after()

    step()
    return step
