"""Pointwise operators of the engine beside eager, from 1 MiB on: ``python bench/ops/bench_pointwise.py [NAME ...]``.

A row is: name, size of one operand, eager and engine time, their ratio. Times are the best of many calls, what a call
through torch.compile costs for 16 elements taken off, since that is Dynamo's and not the operator's. ``--cpu`` counts
the CPU time of one thread instead of the clock, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import tensortap  # noqa: F401  registers the backend

F = torch.nn.functional


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Twelve operators."""
    a = torch.sigmoid(x * y + 1.5) * torch.tanh(x - y)
    return torch.relu(a * a + x * 0.5) - torch.abs(y)


def cases(rows: int, columns: int) -> dict[str, tuple[Any, ...]]:
    x, y = torch.randn(rows, columns), torch.randn(rows, columns)
    xh, yh, xb, yb = x.half(), y.half(), x.bfloat16(), y.bfloat16()
    xi, yi = (x * 100).int(), (y * 100).int()
    out: dict[str, tuple[Any, ...]] = {"chain of 12": (_chain, x, y)}
    for f in ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "rsqrt", "abs", "neg", "relu", "floor", "log1p"):
        out[f] = (getattr(torch, f), x.abs() if f in ("sqrt", "rsqrt", "log1p") else x)
    for f in ("gelu", "silu", "mish", "softplus", "elu", "hardswish", "leaky_relu"):
        out[f] = (getattr(F, f), x)
    out |= {
        "add": (torch.add, x, y),
        "mul": (torch.mul, x, y),
        "div": (torch.div, x, y),
        "add number": (lambda a: a + 1.5, x),
        "maximum": (torch.maximum, x, y),
        "pow": (torch.pow, x.abs(), y),
        "pow 2": (lambda a: a**2, x),
        "clamp": (lambda a: a.clamp(-1, 1), x),
        "lt": (torch.lt, x, y),
        "where": (lambda a, b: torch.where(a > 0, a, b), x, y),
        "masked_fill": (lambda a, m: a.masked_fill(m, 0.0), x, y > 0),
        "row broadcast": (torch.add, x, y[0]),
        "column broadcast": (torch.mul, x, y[:, :1]),
        "transposed add": (lambda a, b: a + b.t(), x, y.reshape(columns, rows)),
        "transposed copy": (lambda a: a.t().contiguous(), x),
        "clone": (torch.clone, x),
        "add bfloat16": (torch.add, xb, yb),
        "mul float16": (torch.mul, xh, yh),
        "gelu bfloat16": (F.gelu, xb),
        "silu bfloat16": (F.silu, xb),
        "to bfloat16": (lambda a: a.to(torch.bfloat16), x),
        "from bfloat16": (lambda a: a.float(), xb),
        "to float16": (lambda a: a.half(), x),
        "to int64": (lambda a: a.to(torch.int64), x),
        "add int32": (torch.add, xi, yi),
        "mul uint8": (torch.mul, xi.to(torch.uint8), yi.to(torch.uint8)),
        "eq int64": (torch.eq, xi.long(), yi.long()),
        "exp float64": (torch.exp, x.double()),
        "tanh float64": (torch.tanh, x.double()),
        "add complex64": (torch.add, torch.complex(x, y), torch.complex(y, x)),
        "mul complex64": (torch.mul, torch.complex(x, y), torch.complex(y, x)),
    }
    return out


def best(clock: Callable[[], float], f: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> float:
    f(*args)
    shortest = float("inf")
    for _ in range(rounds):
        start = clock()
        f(*args)
        shortest = min(shortest, clock() - start)
    return shortest


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(f, backend="tensortap", fullgraph=True, dynamic=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rows to run; all without")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread instead of the clock")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sizes", default="512x512,1024x1024,4096x4096")
    options = parser.parse_args()
    clock = time.thread_time if options.cpu else time.perf_counter
    if options.cpu:
        torch.set_num_threads(1)
    tiny = torch.randn(16)
    call = best(clock, compiled(torch.relu), (tiny,), 500) - best(clock, torch.relu, (tiny,), 500)
    print(f"a call of 16 elements: {call * 1e6:.1f} us above eager, taken off below")
    worst: tuple[float, str] = (0, "")
    for text in options.sizes.split(","):
        rows, columns = (int(part) for part in text.split("x"))
        for name, (f, *args) in cases(rows, columns).items():
            if options.names and name not in options.names:
                continue
            native = compiled(f)
            eager = min(best(clock, f, tuple(args), options.rounds) for _ in range(2))
            engine = min(best(clock, native, tuple(args), options.rounds) for _ in range(2)) - call
            worst = max(worst, (engine / eager, f"{name} {text}"))
            print(
                f"{name:18} {text:>10} eager {eager * 1e6:9.0f} us  engine {engine * 1e6:9.0f} us {engine / eager:6.2f}",
                flush=True,
            )
    print(f"worst: {worst[0]:.2f} of eager, {worst[1]}")


if __name__ == "__main__":
    main()
