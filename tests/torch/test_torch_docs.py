"""The examples of docs/torch.md, run as they are printed, and the docstrings of the torch part."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tap_helpers import python

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "torch.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str, tmp_path: Path) -> None:
    python(f"import os\nos.chdir({str(tmp_path)!r})\n{example}")


def test_docstrings() -> None:
    from tensortap._record import frameworks, taps
    from tensortap._torch import watch

    for module in (frameworks, taps, watch):
        assert doctest.testmod(module).failed == 0
