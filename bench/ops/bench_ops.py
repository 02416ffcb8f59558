"""Every native operator beside eager on inputs of 1 MiB and more: python bench/ops/bench_ops.py [FILTER] [--mib N]

Each line is one operator: eager's time, the engine's, and their ratio (the engine's over eager's; at most 1.2 is the aim).
Both are measured in this process, in turn, best of several rounds. The engine's time is that of the compiled graph with its
call; what torch.compile does before it (guards, wrappers: the same for every backend) is the last column.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import tensortap
from tensortap._engine import backend

aten = torch.ops.aten


def along(function: Callable[..., Any], axis: int, x: torch.Tensor) -> Any:
    return function(x, axis)


def cases(n: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """name: function and its inputs; n: elements of a large input."""
    side = int(n**0.5)
    x, y = torch.randn(side, side), torch.randn(side, side)
    p = x.abs() + 0.1
    unit = torch.rand(side, side) * 1.8 - 0.9
    half, bf = x.half(), x.bfloat16()
    whole = torch.randint(1, 100, (side, side))
    mask = x > 0
    flat = torch.randn(n)
    index = torch.randint(0, side, (side,))
    index2 = torch.randint(0, side, (side, side))
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}

    def add(name: str, function: Callable[..., Any], *args: Any) -> None:
        found[name] = (function, args)

    unary = "abs neg exp expm1 sin cos tan atan sinh cosh tanh asinh sigmoid erf erfc floor ceil round trunc frac sign square relu"
    for name in unary.split():
        add(name, getattr(torch, name), x)
    for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma".split():
        add(name, getattr(torch, name), p)
    for name in "asin acos atanh erfinv".split():
        add(name, getattr(torch, name), unit)
    for name in "add sub mul div maximum minimum atan2 fmod remainder eq lt hypot copysign".split():
        add(name, getattr(torch, name), x, y)
    add("pow.tensor", torch.pow, p, y)
    add("pow.3", lambda a: a**3, x)
    add("add.scalar", lambda a: a + 1.5, x)
    add("add.broadcast", torch.add, x, y[0])
    add("add.column", torch.add, x, y[:, :1])
    add("add.transposed", torch.add, x, y.t())
    add("add.half", torch.add, half, half)
    add("add.bfloat16", torch.add, bf, bf)
    add("add.int64", torch.add, whole, whole)
    add("floor_divide.int64", lambda a, b: a // b, whole, whole)
    add("bitwise_and", torch.bitwise_and, whole, whole)
    add("logical_and", torch.logical_and, mask, mask)
    add("where", torch.where, mask, x, y)
    add("masked_fill", lambda a, m: a.masked_fill(m, 0.0), x, mask)
    add("clamp", lambda a: a.clamp(-1, 1), x)
    add("addcmul", torch.addcmul, x, y, p)
    add("lerp", lambda a, b: torch.lerp(a, b, 0.3), x, y)
    add("cast.bfloat16", lambda a: a.bfloat16(), x)
    add("cast.from_half", lambda a: a.float(), half)
    add("cast.int32", lambda a: a.int(), x)
    add("transpose.copy", lambda a: a.t().contiguous(), x)
    for name in "gelu silu mish softplus leaky_relu elu hardtanh hardswish hardsigmoid logsigmoid".split():
        add(name, getattr(F, name), x)
    add("gelu.tanh", lambda a: F.gelu(a, approximate="tanh"), x)
    add("gelu_backward", aten.gelu_backward.default, x, y)
    add("silu_backward", aten.silu_backward.default, x, y)
    add("chain of 6", lambda a, b: torch.relu((a * 2 + b).tanh() * b - 1), x, y)

    for name in "sum mean amax amin prod argmax var std any all".split():
        function = getattr(torch, name)
        add(f"{name}.all", function, x)
        add(f"{name}.rows", functools.partial(along, function, -1), x)
        add(f"{name}.columns", functools.partial(along, function, 0), x)
    add("sum.bfloat16", lambda a: a.sum(-1), bf)
    add("norm", lambda a: torch.linalg.vector_norm(a, dim=-1), x)
    add("logsumexp", lambda a: torch.logsumexp(a, -1), x)
    add("cumsum", lambda a: a.cumsum(-1), x)
    add("softmax", lambda a: torch.softmax(a, -1), x)
    add("softmax.columns", lambda a: torch.softmax(a, 0), x)
    add("log_softmax", lambda a: torch.log_softmax(a, -1), x)
    add("softmax.bfloat16", lambda a: torch.softmax(a, -1), bf)
    soft = torch.softmax(y, -1)
    add("softmax_backward", lambda g, s: aten._softmax_backward_data.default(g, s, -1, torch.float32), x, soft)
    weight, bias = torch.randn(side), torch.randn(side)
    add("layer_norm", lambda a, w, b: F.layer_norm(a, (side,), w, b), x, weight, bias)
    add("rms_norm", lambda a, w: F.rms_norm(a, (side,), w), x, weight)
    image = torch.randn(8, 32, 64, 64)
    add("group_norm", lambda a: F.group_norm(a, 8), image)
    add("batch_norm.training", lambda a: F.batch_norm(a, None, None, training=True), image)
    running = torch.zeros(32), torch.ones(32)
    add("batch_norm.inference", lambda a, m, v: F.batch_norm(a, m, v), image, *running)
    target = torch.randint(0, side, (side,))
    add("cross_entropy", F.cross_entropy, x, target)
    add("mse_loss", F.mse_loss, x, y)

    add("mm", torch.mm, x, y)
    add("mm.transposed", lambda a, b: a @ b.t(), x, y)
    add("mm.bfloat16", torch.mm, bf, bf)
    add("addmm", lambda b, a, c: torch.addmm(b, a, c), bias, x, y)
    add("bmm", torch.bmm, torch.randn(16, 256, 128), torch.randn(16, 128, 256))
    add("mm.float64", torch.mm, x[:512, :512].double(), y[:512, :512].double())
    add("matrix times vector", torch.mv, x, y[0])
    add("conv2d", lambda a, w: F.conv2d(a, w, padding=1), image, torch.randn(64, 32, 3, 3))
    add("conv2d.depthwise", lambda a, w: F.conv2d(a, w, padding=1, groups=32), image, torch.randn(32, 1, 3, 3))
    add("conv1d", lambda a, w: F.conv1d(a, w), torch.randn(8, 64, 2048), torch.randn(64, 64, 5))
    add("conv_transpose2d", lambda a, w: F.conv_transpose2d(a, w, stride=2), image, torch.randn(32, 16, 2, 2))
    q = torch.randn(2, 8, 512, 64)
    add("attention", F.scaled_dot_product_attention, q, q, q)
    add("attention.causal", lambda a: F.scaled_dot_product_attention(a, a, a, is_causal=True), q)

    add("cat", lambda a, b: torch.cat([a, b], 1), x, y)
    add("stack", lambda a, b: torch.stack([a, b]), x, y)
    add("index_select", lambda a, i: a.index_select(0, i), x, index)
    add("index", lambda a, i: a[i], x, index)
    add("gather", lambda a, i: a.gather(1, i), x, index2)
    add("scatter", lambda a, i, b: a.scatter(1, i, b), x, index2, y)
    add("scatter_add", lambda a, i, b: a.scatter_add(1, i, b), x, index2, y)
    add("index_put.add", lambda a, i, b: a.index_put((i,), b, accumulate=True), x, index, y)
    add("embedding", lambda w, i: F.embedding(i, w), x, index2[:64])
    add("embedding_backward", lambda g, i: aten.embedding_dense_backward.default(g, i, side, -1, False), x, index)
    add("flip", lambda a: a.flip(0, 1), x)
    add("roll", lambda a: a.roll(3, 1), x)
    add("pad", lambda a: F.pad(a, (1, 2, 3, 4)), x)
    add("repeat", lambda a: a.repeat(2, 2), x)
    add("tril", torch.tril, x)
    add("sort", lambda a: a.sort(-1), x)
    add("topk", lambda a: a.topk(16, -1), x)
    add("arange", lambda a: torch.arange(n) + a, torch.tensor(1))
    add("max_pool2d", lambda a: F.max_pool2d(a, 2), image)
    add("avg_pool2d", lambda a: F.avg_pool2d(a, 2), image)
    add("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, 7), image)
    add("upsample_nearest2d", lambda a: F.interpolate(a, scale_factor=2), image)
    add("upsample_bilinear2d", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), image)
    add("sum of squares", lambda a: (a * a).sum(), flat)
    return found


def measure(functions: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Seconds a call of each, in turn, the best of the rounds."""
    times = [float("inf")] * len(functions)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - start)
        rounds += 1
    return times


def compile_one(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """The compiled function, and a call of its graph alone with what it was given."""
    seen: list[Any] = []
    original = backend.compile_graph

    def watched(*given: Any, **options: Any) -> Any:
        program = original(*given, **options)

        class Watched:
            _boxed_call = True

            def __call__(self, inputs: list[Any]) -> Any:
                seen[:] = [program, list(inputs)]
                return program(inputs)

        return Watched()

    torch._dynamo.reset()
    backend.compile_graph = watched
    try:
        compiled = torch.compile(function, backend="tensortap", fullgraph=True, dynamic=False)
        compiled(*args)
    finally:
        backend.compile_graph = original
    program, inputs = seen
    return compiled, lambda: program(list(inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--mib", type=float, default=4, help="size of a float32 input (4)")
    parser.add_argument("--seconds", type=float, default=0.25, help="for each operator (0.25)")
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{'operator':24} {'eager us':>10} {'engine us':>10} {'ratio':>6} {'outside':>8}   {torch.get_num_threads()} threads")
    missed, host = [], []
    for name, (function, args) in cases(int(options.mib * (1 << 18))).items():
        if options.filter not in name:
            continue
        tensortap.counters(reset=True)
        with torch.no_grad():
            compiled, call = compile_one(function, args)
            eager, engine, whole = measure(
                [functools.partial(function, *args), call, functools.partial(compiled, *args)], options.seconds
            )
        on_host = backend.host_targets()
        note = " host: " + ", ".join(on_host) if on_host else " <-- slower" if engine > 1.2 * eager else ""
        (host if on_host else missed if engine > 1.2 * eager else []).append(name)
        print(f"{name:24} {eager * 1e6:10.1f} {engine * 1e6:10.1f} {engine / eager:6.2f} {(whole - engine) * 1e6:8.1f} {note}", flush=True)
    print(f"\nmore than 1.2x eager's time: {', '.join(missed) or 'none'}\nnot native: {', '.join(host) or 'none'}")


if __name__ == "__main__":
    main()
