"""For a machine with a GPU, by hand: python tests/cuda/check_torch_cuda.py. Prints what holds there, exits 1 when something
does not. CI machines have no GPU, so this is no part of the suite."""

from __future__ import annotations

import sys
import tempfile

import torch

import tensortap as tap

failures = 0


def check(what: str, good: bool, detail: object = "") -> None:
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what} {detail}", flush=True)


def records(directory: str, name: str) -> list[torch.Tensor]:
    with tap.open(directory) as run:
        return [torch.from_numpy(r.numpy().copy()) for r in run.query(name=name)]


def main() -> int:
    if not torch.cuda.is_available():
        print("no GPU here")
        return 0
    print(f"tensortap {tap.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    base = tempfile.mkdtemp()

    x = torch.randn(1000, 1000, device="cuda")
    with tap.record(base + "/eager"):
        tap.save(x, "x")
        tap.save(x.t()[::2], "strided")
        tap.save(x.to(torch.bfloat16), "bf16")
        tap.save({"a": [x[0], 3]}, "nested")
    check("eager: a CUDA tensor comes back equal", torch.equal(records(base + "/eager", "x")[0], x.cpu()))
    check("eager: a strided one too", torch.equal(records(base + "/eager", "strided")[0], x.t()[::2].cpu()))
    check("eager: verify", bool(tap.verify(base + "/eager")))

    w = torch.randn(1000, 1000, device="cuda", requires_grad=True)
    with tap.record(base + "/grad"):
        y = x @ w
        tap.save(y, "y", grad=True)
        y.square().mean().backward()
    with tap.open(base + "/grad") as run:
        kinds = sorted(r.kind for r in run.query(name="y"))
    check("eager: value and gradient", kinds == ["forward", "grad"], kinds)

    def model(a: torch.Tensor) -> torch.Tensor:
        b = torch.relu(a @ a)
        tap.save(b, "b")
        return torch.tanh(b).sum()

    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        directory = f"{base}/compiled-{backend}"
        try:
            with tap.record(directory):
                compiled = torch.compile(model, backend=backend, fullgraph=True)
                for _ in range(4):
                    compiled(x)
            torch.cuda.synchronize()
            got = records(directory, "b")
            same = len(got) == 4 and all(torch.allclose(g, torch.relu(x @ x).cpu(), rtol=1e-3, atol=1e-2) for g in got)
            check(f"compile(fullgraph, {backend}): every call", same, f"{len(got)} of 4")
        except Exception as error:
            check(f"compile(fullgraph, {backend})", False, repr(error)[:300])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
