"""Finds the C test programs, which do what a Python test tells them on stdin and thus show internals to an oracle."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(name: str) -> str:
    """tests/*/<name>.c as built in TENSORTAP_BUILD, else in build/dev, else in any other build directory."""
    given = os.environ.get("TENSORTAP_BUILD")
    builds = [pathlib.Path(given)] if given else [ROOT / "build/dev", *sorted(ROOT.glob("build/*"))]
    found = [build / "tests" / name for build in builds if os.access(build / "tests" / name, os.X_OK)]
    assert found, f"{name} is not built; run: cmake --preset dev && cmake --build --preset dev"
    return str(found[0])
