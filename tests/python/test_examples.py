"""The examples of the README, run as they are printed, and the programs under examples/."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensortap as tap
from tensortap._record.command import path as command_path

ROOT = Path(__file__).resolve().parents[2]
READMES = ["README.md", "README.zh.md"]


def blocks(readme: str, language: str) -> list[str]:
    text = (ROOT / readme).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(*command: str | Path, cwd: Path) -> str:
    environment = {**os.environ, "TENSORTAP_RING_BYTES": "16M", "TENSORTAP_LANG": "en"}
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    """The library of a build directory; make test has one."""
    for preset in ("dev", "release"):
        if (ROOT / "build" / preset / "libtensortap.so").exists():
            return ROOT / "build" / preset
    pytest.skip("the library has not been built: make build")


def compile_c(source: Path, program: Path, built: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    library = [f"-L{built}", "-ltensortap", f"-Wl,-rpath,{built}"]
    subprocess.run([compiler, *flags, source, *library, "-o", program], check=True, timeout=60)


@pytest.mark.parametrize("readme", READMES)
def test_python_and_shell(readme: str, tmp_path: Path) -> None:
    (code,) = blocks(readme, "python")
    (tmp_path / "example.py").write_text(code)
    out = run(sys.executable, "example.py", cwd=tmp_path)
    assert [line.split()[:2] for line in out.splitlines()] == [["1", "(5,)"], ["2", "(5,)"]]
    (shell,) = blocks(readme, "sh")
    for line in shell.splitlines():
        program, *arguments = line.split()
        assert program == "tensortap"
        assert run(command_path(), *arguments, cwd=tmp_path)


@pytest.mark.parametrize("readme", READMES)
def test_c(readme: str, tmp_path: Path, built: Path) -> None:
    (code,) = blocks(readme, "c")
    (tmp_path / "program.c").write_text(code)
    compile_c(tmp_path / "program.c", tmp_path / "program", built)
    run(tmp_path / "program", cwd=tmp_path)
    with tap.open(tmp_path / "run-c") as recorded:
        assert [record.numpy().tolist() for record in recorded] == [[1, 2, 3]]


def test_the_two_readmes_show_the_same_code() -> None:
    def code(readme: str) -> list[str]:
        found = [block for language in ("python", "c", "sh") for block in blocks(readme, language)]
        return [re.sub(r"\s*#(?!include).*", "", block) for block in found]

    assert code(READMES[0]) == code(READMES[1])


@pytest.mark.parametrize("page", [*READMES, "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target


def test_the_example_in_c(tmp_path: Path, built: Path) -> None:
    compile_c(ROOT / "examples/record.c", tmp_path / "record", built)
    out = run(tmp_path / "record", "run", cwd=tmp_path)
    assert out.splitlines() == [
        "step 0: max 3, norm 3.74166",
        "step 1: max 7, norm 9.16515",
        "step 2: max 12, norm 16.4317",
    ]


def test_demo(tmp_path: Path) -> None:
    out = run(sys.executable, ROOT / "examples/demo.py", tmp_path / "demo", cwd=tmp_path)
    assert out.count("nothing lost") == 2
    with tap.open(tmp_path / "demo/gelu") as first, tap.open(tmp_path / "demo/gelu-tanh") as second:
        assert first.names() == second.names()
        same = [a.hash == b.hash for a, b in zip(first.query(step=0), second.query(step=0), strict=True)]
        names = [record.name for record in first.query(step=0)]
        # the layer before the changed operator is untouched, the operator's own output is not
        assert dict(zip(names, same, strict=True))["hidden"]
        assert not dict(zip(names, same, strict=True))["active"]
