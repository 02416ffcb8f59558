"""What PrecisionDebugger left under dp in a test's directory: the items of one step's debug.json or dump.json."""
import json
import pathlib
from typing import Any


def _data(where: pathlib.Path, name: str, step: int) -> dict[str, Any]:
    found = json.loads(next((where / "dp").glob(f"step{step}/*/{name}")).read_text())["data"]
    assert isinstance(found, dict)
    return found


def debug_data(where: pathlib.Path, step: int = 0) -> dict[str, Any]:
    return _data(where, "debug.json", step)


def dump_data(where: pathlib.Path, step: int = 0) -> dict[str, Any]:
    return _data(where, "dump.json", step)
