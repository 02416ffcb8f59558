"""Operators from a C library: the example as printed, and libraries that are wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/operator"


def build(source: str, path: Path) -> Path:
    (path / "lib.c").write_text(source)
    command = ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-I", ROOT / "include", path / "lib.c", "-o", path / "lib.so"]
    subprocess.run(command, check=True)
    return path / "lib.so"


def run(library: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLE / "scaled_add.py", library]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "2"})


def test_the_example(tmp_path):
    result = run(build((EXAMPLE / "scaled_add.c").read_text(), tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout == (
        "tensor([[2.0000, 2.5000, 3.0000],\n        [2.0000, 2.5000, 3.0000]])\n0 nodes ran in torch\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("args->out[0].ndim = args->in[0].ndim;", "args->out[0].ndim = 1;",
         r"node scaled_add: the shape rule of operator ScaledAdd gives float32 \[2\] for output 0, the framework says "
         r"float32 \[2, 3\]"),
        (".shape = shape,", "", "operator ScaledAdd has no shape rule; set tap_op_desc.shape"),
        ('"ScaledAdd"', '"Add"', "operator Add: there is one of this name; choose another"),
        ("tap_library_init", "other_init", "exports no tap_library_init"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path, old, new, message):
    source = (EXAMPLE / "scaled_add.c").read_text()
    assert old in source
    source = source.replace(old, new)
    if not new:
        source = source.replace("static tap_status shape", "__attribute__((unused)) static tap_status shape")
    result = run(build(source, tmp_path))
    assert result.returncode != 0
    assert re.search(message, result.stderr), result.stderr
