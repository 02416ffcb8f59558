"""The wheel and the installed tree, from the outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import tensortap as tap

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "dist").glob("tensortap-*.whl"))


@pytest.mark.skipif(not WHEELS, reason="make wheel has not run")
class TestWheel:
    def test_what_is_in_it(self) -> None:
        names = zipfile.ZipFile(WHEELS[-1]).namelist()
        assert "tensortap/_core.abi3.so" in names
        assert "tensortap/_bin/tensortap" in names
        assert not [name for name in names if name.endswith((".c", ".h", ".a"))]
        assert "-cp310-abi3-" in WHEELS[-1].name

    def test_in_an_empty_environment(self, tmp_path: Path) -> None:
        """Neither numpy nor torch nor our library path: the wheel alone."""
        home = tmp_path / "venv"
        venv.create(home, with_pip=False)
        site = next((home / "lib").glob("python3.*/site-packages"))
        with zipfile.ZipFile(WHEELS[-1]) as wheel:
            wheel.extractall(site)
        os.chmod(site / "tensortap/_bin/tensortap", 0o755)
        code = (
            "import tensortap as tap\n"
            "with tap.record('run'): tap.save({'a': [1, 'text']}, 'x')\n"
            "with tap.open('run') as run: print([r.value() for r in run], bool(run.verify()))\n"
        )
        environment = {"PATH": "/usr/bin:/bin", "TENSORTAP_RING_BYTES": "4M"}
        result = subprocess.run(
            [home / "bin/python", "-I", "-c", code.replace("'run'", repr(str(tmp_path / "run")))],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        assert (result.stdout, result.stderr) == ("[1, 'text'] True\n", "")

    def test_the_extension_stays_inside_the_stable_abi(self) -> None:
        """Symbols of CPython that the extension asks for are all in the limited API of 3.10."""
        core = Path(tap.__file__).parent / "_core.abi3.so"
        listing = subprocess.run(["nm", "-D", "--undefined-only", core], capture_output=True, text=True, check=True)
        wanted = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
        private = {name for name in wanted if name.startswith("_Py") and not name.endswith("_SizeT")}
        assert private <= {"_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_Dealloc"}
        exported = subprocess.run(["nm", "-D", "--defined-only", core], capture_output=True, text=True, check=True)
        names = [line.split()[-1] for line in exported.stdout.splitlines()]
        # MindSpore finds its operators in the library by name
        assert [name for name in names if not name.startswith("tensortap_ms_")] == ["PyInit__core"]


def other_pythons() -> list[str]:
    """Other interpreters on this machine; each must load the same file."""
    found = []
    for minor in set(range(10, 16)) - {sys.version_info.minor}:
        name = f"python3.{minor}"
        for path in filter(None, [shutil.which(name), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}")]):
            if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                found.append(str(path))
                break
    return found


@pytest.mark.parametrize("interpreter", other_pythons())
def test_one_file_serves_every_python(interpreter: str, tmp_path: Path) -> None:
    code = (
        "import sys, tensortap as tap\n"
        f"with tap.record({str(tmp_path / 'run')!r}): tap.save([1.5, None], 'x')\n"
        f"with tap.open({str(tmp_path / 'run')!r}) as run: print([r.value() for r in run])\n"
    )
    package = Path(tap.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TENSORTAP_RING_BYTES": "4M"}
    (tmp_path / "site").mkdir()
    (tmp_path / "site/tensortap").symlink_to(package / "tensortap")
    result = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert (result.stdout, result.stderr) == ("[1.5, None]\n", "")


def test_the_command_is_the_one_of_the_package(tmp_path: Path) -> None:
    script = shutil.which("tensortap", path=str(Path(sys.executable).parent))
    assert script
    for command in ([script], [sys.executable, "-m", "tensortap"]):
        result = subprocess.run([*command, "version"], capture_output=True, text=True, timeout=60, check=True)
        assert tap.__version__ in result.stdout
        failed = subprocess.run([*command, "ls", tmp_path / "missing"], capture_output=True, text=True, timeout=60)
        assert failed.returncode == 2
