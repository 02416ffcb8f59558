"""Records a small training run twice, the second time with one operator changed, looks at both and finds it.

Run it with ``make demo``, or ``python examples/demo.py [DIR]``; without DIR it records to a temporary directory.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tensortap as tap
import torch
from tensortap._record.command import path as command_path
from torch import Tensor, nn

STEPS = 5


class Model(nn.Module):
    """Two layers with a tap after each value worth seeing."""

    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.activation = nn.GELU(approximate=approximate)
        self.second = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        tap.save(hidden, "hidden")
        active = self.activation(hidden)
        tap.save(active, "active")
        out = self.second(active)
        tap.save(out, "out")
        return out


def train(directory: Path, approximate: str) -> list[float]:
    """One run: the same seed, data and steps; only the activation differs."""
    torch.manual_seed(0)
    model = Model(approximate)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with tap.record(directory, mode="replace"):
        for _ in range(STEPS):
            x = torch.randn(32, 16)
            loss = nn.functional.mse_loss(model(x), x[:, :4])
            optimizer.zero_grad()
            loss.backward()
            for name, parameter in model.named_parameters():
                tap.save(parameter.grad, name, kind="grad")
            tap.save({"loss": loss.item(), "lr": 0.1}, "train")
            optimizer.step()
            losses.append(loss.item())
            tap.step()
    return losses


def run(*arguments: str, ends_with: int = 0) -> None:
    """Runs the command as a person would and shows what it prints."""
    print(f"\n$ tensortap {' '.join(arguments)}", flush=True)
    status = subprocess.run([command_path(), *arguments], check=False).returncode
    if status != ends_with:
        sys.exit(f"tensortap {arguments[0]} ended with {status}, not {ends_with}")


def main() -> None:
    if len(sys.argv) > 1:
        root = Path(sys.argv[1])
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
    else:
        root = Path(tempfile.mkdtemp(prefix="tensortap-demo-"))
    first, second = root / "gelu", root / "gelu-tanh"
    for directory, approximate in ((first, "none"), (second, "tanh")):
        losses = train(directory, approximate)
        print(f"recorded {directory}: loss {losses[0]:.6f} -> {losses[-1]:.6f}")

    run("ls", str(first), "--step", "0")
    run("show", str(first), "--name", "active", "--step", "0")
    for directory in (first, second):
        run("verify", str(directory))

    with tap.open(first) as recorded:
        norms = [f"{record.stats.norm:.4f}" for record in recorded["hidden"] if record.stats]
    print(f"\nread back in Python: norm of hidden, step by step: {', '.join(norms)}")
    print(f"the recordings are in {root}")

    run("compare", str(first), str(second), "--limit", "6", ends_with=1)  # 1: they differ


if __name__ == "__main__":
    main()
