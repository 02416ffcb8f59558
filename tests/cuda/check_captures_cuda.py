"""Taps while CUDA graphs are captured, on a machine with a GPU: python tests/cuda/check_captures_cuda.py. Every capture stays whole and
gives what it gives without taps; what was not recorded is listed by name. Prints what holds, exits 1 when something does not."""

from __future__ import annotations

import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

import tensortap as tap

CHECKS: list[Callable[[Path], None]] = []


def check(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CHECKS.append(function)
    return function


def lost(directory: Path) -> set[str]:
    return {problem.name for problem in tap.verify(directory).problems}


def names(directory: Path) -> list[str]:
    with tap.open(directory) as run:
        return [record.name for record in run.query()]


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x @ w)
    tap.save(y, "y")
    tap.save(y.t(), "turned")
    z = torch.tanh(y) * 2
    tap.save({"z": z, "both": [y, z]}, "nested")
    return z.sum(dim=0)


@check
def reduce_overhead(directory: Path) -> None:
    x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    with tap.record(directory):
        run = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        for i in range(6):
            torch.compiler.cudagraph_mark_step_begin()
            got = run(x * i, w).clone()
            torch.testing.assert_close(got, (torch.tanh(torch.relu(x * i @ w)) * 2).sum(dim=0), rtol=1e-3, atol=1e-3)
    assert lost(directory) >= {"y", "turned", "nested"}, lost(directory)
    assert names(directory).count("y") >= 1, "the warm-up before the capture is recorded"


@check
def reduce_overhead_training(directory: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()

    def loss(x: torch.Tensor) -> torch.Tensor:
        y = net[1](net[0](x))
        tap.save(y, "hidden", grad=True)
        return net[2](y).square().mean()

    x = torch.randn(16, 32, device="cuda")
    expected = torch.autograd.grad(net[2](net[1](net[0](x))).square().mean(), list(net.parameters()))
    with tap.record(directory):
        run = torch.compile(loss, mode="reduce-overhead", fullgraph=True)
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            net.zero_grad(set_to_none=True)
            run(x).backward()
            for parameter, gradient in zip(net.parameters(), expected):
                torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-4)


@check
def a_captured_graph(directory: Path) -> None:
    x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    for _ in range(3):
        model(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with tap.record(directory):
        tap.save(x, "before")
        with torch.cuda.graph(graph):
            out = model(x, w)
        tap.save(x, "after")
        for i in range(3):
            x.fill_(i / 10)
            graph.replay()
            torch.testing.assert_close(out, (torch.tanh(torch.relu(x @ w)) * 2).sum(dim=0), rtol=1e-3, atol=1e-3)
    assert names(directory) == ["before", "after"], names(directory)
    assert lost(directory) == {"y", "turned", "nested"}, lost(directory)
    assert sum("captured CUDA graph" in m for m in tap.messages()) >= 3, tap.messages()


@check
def another_thread_saves_while_one_captures(directory: Path) -> None:
    x, end, failures, saved = torch.randn(256, 256, device="cuda"), threading.Event(), [], [0]

    def save() -> None:
        try:
            own = torch.cuda.Stream()
            with torch.cuda.stream(own):
                value = torch.randn(64, 64, device="cuda")
                while not end.is_set():
                    tap.save(value, "value")
                    tap.save(value.t(), "turned")
                    saved[0] += 2
        except Exception as error:
            failures.append(repr(error))

    with tap.record(directory):
        thread = threading.Thread(target=save)
        thread.start()
        try:
            while saved[0] < 10 and not failures:
                pass
            for _ in range(20):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="global"):
                    y = x
                    for _ in range(30):
                        y = y * 1.01
                graph.replay()
                torch.testing.assert_close(y, x * 1.01**30, rtol=1e-4, atol=1e-4)
        finally:
            end.set()
            thread.join()
    assert not failures, failures
    count = len(names(directory)) + sum(p.count for p in tap.verify(directory).problems)
    assert count == saved[0], (count, saved[0])


@check
def graphed_callables(directory: Path) -> None:
    class Tapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            tap.save(y, "y", grad=True)
            return torch.relu(y)

    net, x = Tapped().cuda(), torch.randn(8, 16, device="cuda", requires_grad=True)
    expected = torch.relu(net.inner(x)).detach()
    with tap.record(directory):
        graphed = torch.cuda.make_graphed_callables(net, (x,))
        for _ in range(3):
            out = graphed(x)
            torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
            out.sum().backward()


def main() -> int:
    if not torch.cuda.is_available():
        print("no GPU here: nothing was checked")
        return 77
    print(f"tensortap {tap.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    failed = 0
    for function in CHECKS:
        torch._dynamo.reset()
        with tempfile.TemporaryDirectory() as directory:
            try:
                function(Path(directory) / "run")
                print(f"ok      {function.__name__}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {function.__name__}: {traceback.format_exc()[-2500:]}", flush=True)
        tap.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
