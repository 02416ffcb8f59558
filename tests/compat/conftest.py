"""Runs scripts as people do: in a process of their own, in an empty directory."""
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from clean_environment import environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script(tmp_path: pathlib.Path) -> Run:
    """script(text or path, *args) under python -m tensortap.compat, in tmp_path."""

    def run(source: str | pathlib.Path, *args: str, check: bool = True, before: tuple[str, ...] = ("-m", "tensortap.compat"), **env: str) -> "subprocess.CompletedProcess[str]":
        path = source
        if isinstance(source, str):
            path = tmp_path.parent / (tmp_path.name + "_script.py")
            path.write_text(source)
        command = [sys.executable, *before, str(path), *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment(**env))
        assert not check or done.returncode == 0, done.stderr[-4000:]
        return done

    return run
