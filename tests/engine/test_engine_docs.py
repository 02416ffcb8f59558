"""The examples of docs/engine.md, run as they are printed, and the docstrings of the engine's modules."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "engine.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example, tmp_path):
    (tmp_path / "example.py").write_text(example)
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    result = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_docstrings():
    from tensortap._engine import backend, options

    for module in (backend, options):
        assert doctest.testmod(module).failed == 0
    backend._converters.clear()


def test_the_page_of_operators():
    command = [sys.executable, str(ROOT / "tools" / "operators_page.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
