"""The examples of docs/cli.md are what the command prints. TENSORTAP_GOLDEN_UPDATE=1 writes them anew."""

import os
import re
import shutil
from pathlib import Path

from test_golden import outcome

PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.S)


def told(lines: list[str]) -> list[str]:
    """As a reader sees it: stderr is not marked, the exit status is not shown."""
    return [line.removeprefix("! ") for line in lines if not line.startswith("? ")]


def rerun(block: str, place: Path, env: dict[str, str]) -> str:
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join("\n".join([f"$ {command}", *told(outcome(command, place, env))]) + "\n" for command in commands)


def test_examples_are_real(runs, env, tmp_path):
    place = tmp_path / "place"
    shutil.copytree(runs, place)
    (place / "small").rename(place / "run")
    shutil.copytree(place / "run", place / "damaged")
    segment = place / "damaged/rank0/attempt0-000000.tap"
    data = bytearray(segment.read_bytes())
    data[data.index(bytes.fromhex("0000803f00000040"), 8192)] ^= 1  # a value of step 1
    segment.write_bytes(data)
    text = PAGE.read_text(encoding="utf-8")
    real = BLOCK.sub(lambda m: "```console\n" + rerun(m.group(1), place, env) + "```", text)
    if os.environ.get("TENSORTAP_GOLDEN_UPDATE"):
        PAGE.write_text(real, encoding="utf-8")
        return
    assert real == text
