"""Golden files: a command line, what it prints, how it ends.

    $ tensortap ls small --step 0
    what comes on stdout
    ! what comes on stderr
    ? 1

"?" is the exit status, 0 when it is not given; lines before the first "$" are remarks. Commands of one file run in one
directory, one after the other. TENSORTAP_GOLDEN_UPDATE=1 writes the files anew: read the difference before committing.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def steady(text: str) -> str:
    """Times, process ids and host names are different each time."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "2000-01-01 00:00:00.000", text)
    text = re.sub(r'"(time_ns|started_ns|ended_ns|pid)": \d+', r'"\1": 0', text)
    return re.sub(r'"host": "[^"]*"', '"host": "here"', text)


def blocks(path: Path):
    """Yields (command, expected lines)."""
    command, lines = None, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, lines
            command, lines = line[2:], []
        elif command is not None:
            lines.append(line)
    if command is not None:
        yield command, lines


def remarks(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("$ ")[0]


def outcome(command: str, cwd: Path, env: dict[str, str]) -> list[str]:
    done = subprocess.run(["bash", "-c", command], cwd=cwd, env=env, capture_output=True, timeout=120, check=False)
    out = steady(done.stdout.decode()).splitlines()
    out += ["! " + line for line in steady(done.stderr.decode()).splitlines()]
    return out + ([f"? {done.returncode}"] if done.returncode else [])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden(path: Path, runs: Path, env: dict[str, str], tmp_path: Path):
    place = tmp_path / "place"
    shutil.copytree(runs, place)
    results = [(command, wanted, outcome(command, place, env)) for command, wanted in blocks(path)]
    assert results
    if os.environ.get("TENSORTAP_GOLDEN_UPDATE"):
        text = "\n".join("\n".join([f"$ {command}", *got]) for command, _, got in results)
        path.write_text(remarks(path) + text + "\n", encoding="utf-8")
        return
    for command, wanted, got in results:
        assert "\n".join(got) == "\n".join(wanted), command
