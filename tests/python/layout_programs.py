"""Finds the C test programs, which do what a Python test tells them on stdin and thus show internals to an oracle."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(name: str) -> str:
    """The newest build of tests/*/<name>.c; TENSORTAP_BUILD names a build directory."""
    given = os.environ.get("TENSORTAP_BUILD")
    builds = [pathlib.Path(given)] if given else list(ROOT.glob("build/*"))
    found = [path for build in builds for path in build.glob(f"**/tests/{name}") if os.access(path, os.X_OK)]
    assert found, f"{name} is not built; run: cmake --preset dev && cmake --build --preset dev"
    return str(max(found, key=lambda path: path.stat().st_mtime))
