"""docs/compare.md, from top to bottom: its programs run, its commands print what stands there, from one to the next.

TENSORTAP_GOLDEN_UPDATE=1 writes what the commands print anew.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensortap._record.command import path as command_path

PAGE = Path(__file__).resolve().parents[2] / "docs/compare.md"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.S)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def outcome(commands: list[str], place: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(command_path()).parent}:/usr/bin:/bin", "TENSORTAP_LANG": "en"}
    text = ""
    for line in commands:
        done = subprocess.run(["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), done.stderr
        text += f"$ {line}\n{done.stdout}{done.stderr}"
    return text


def rough(text: str) -> list[str]:
    """Words without the numbers, which depend on the processor, and the width of columns with them."""
    return NUMBER.sub("N", text).split()


def test_the_hunt(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    parts = []
    text = PAGE.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        language, body = match.groups()
        if language == "python":
            (tmp_path / "hunt.py").write_text(body if "import tensortap" in body else f"import tensortap as tap\n{body}")
            subprocess.run([sys.executable, "hunt.py"], cwd=tmp_path, check=True, timeout=120, capture_output=True)
            continue
        real = outcome([line[2:] for line in body.splitlines() if line.startswith("$ ")], tmp_path)
        parts.append((body, real))
    if os.environ.get("TENSORTAP_GOLDEN_UPDATE"):
        for body, real in parts:
            text = text.replace(f"```console\n{body}```", f"```console\n{real}```")
        PAGE.write_text(text, encoding="utf-8")
        return
    assert len(parts) > 4
    for body, real in parts:
        assert rough(real) == rough(body)
