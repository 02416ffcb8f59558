"""What the torch tests share: one record as a comparable row, a run as a list of them, scripts in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tensortap as tap
import torch

Key = tuple[int, str, str, int]  # step, full name, kind, call

# every backend of torch.compile that the tests go through; a new one is one word here
BACKENDS = ["eager", "aot_eager", "inductor", "tensortap"]
# of those, the ones whose numbers may differ from eager's in the last bits
ROUNDING = {"inductor", "tensortap"}
# None: not compiled
MODES = [None, *BACKENDS]


def compiled(f: Any, backend: str | None, **options: Any) -> Any:
    return f if backend is None else torch.compile(f, backend=backend, fullgraph=True, **options)


def rows(path: Path, *, kind: str | None = None) -> list[tuple[Key, Any]]:
    """Every record in order of saving: its key, and its value as a torch tensor or a Python value."""
    with tap.open(path) as run:
        return [
            (
                (record.step, record.full_name, record.kind, record.call),
                record.torch() if record.value_type == "tensor" else record.value(),
            )
            for record in run.query(kind=kind)
        ]


def keys(path: Path, *, kind: str | None = None) -> list[Key]:
    return [key for key, _ in rows(path, kind=kind)]


def same(a: Any, b: Any, exact: bool) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-4)
    return bool(a == b)


def python(script: str, *args: str, env: dict[str, str] | None = None) -> str:
    """Run a script in a process of its own; its output."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *args],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | (env or {}),
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
