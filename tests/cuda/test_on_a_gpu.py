"""The checks of this directory, each in a process of its own; they need a GPU. They are scripts, since where a GPU is there may be no
pytest: tests/cuda/run_all.sh runs them there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("script", sorted(path.name for path in HERE.glob("check_*.py")))
def test_script(script: str) -> None:
    done = subprocess.run([sys.executable, HERE / script], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
