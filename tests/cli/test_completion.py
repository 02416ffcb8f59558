"""Completion: the scripts in the tree are what the command prints, and bash completes with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {"bash": ROOT / "completions/tensortap.bash", "zsh": ROOT / "completions/_tensortap"}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_in_the_tree_is_current(command, env, shell):
    printed = subprocess.run([command, "completion", shell], env=env, capture_output=True, check=True, text=True).stdout
    assert SCRIPTS[shell].read_text() == printed, f"run: tensortap completion {shell} > {SCRIPTS[shell]}"


def complete(line: str, cwd: Path, env: dict[str, str]) -> set[str]:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
        source {SCRIPTS["bash"]}
        compopt() {{ :; }}
        COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
        _tensortap
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=env, capture_output=True, check=True, text=True, timeout=60
    )
    assert not done.stderr
    return set(done.stdout.split())


def test_bash_completes(command, runs, env):
    assert complete("tensortap ve", runs, env) == {"verify", "version"}
    assert complete("tensortap ls sm", runs, env) == {"small"}
    assert complete("tensortap ls small --ra", runs, env) == {"--rank"}
    assert complete("tensortap ls small --kind ", runs, env) == {"forward", "grad", "input", "output", "param"}
    assert complete("tensortap ls small -k g", runs, env) == {"grad"}
    assert complete("tensortap show small l", runs, env) == {"layers.0.attn.query", "loss"}
    assert complete("tensortap ls small --name i", runs, env) == {"ids"}
    assert complete("tensortap completion ", runs, env) == {"bash", "zsh"}
    assert complete("tensortap help wa", runs, env) == {"wait"}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_reads_the_script(env):
    subprocess.run(["zsh", "-n", SCRIPTS["zsh"]], env=env, check=True)
