"""Drives the small recorder in tests/record/layouts/test_layout.c: what a framework would save goes in, files come out."""
import json
import subprocess
from typing import Any

import torch
from layout_programs import program

STATS, TENSOR = 1, 2
FORWARD, GRAD, INPUT, OUTPUT = 0, 1, 2, 3
REQUIRES_GRAD, SLOT, SLOT_GONE = 1, 4, 8
VALUE = {"tensor": 0, "none": 1, "bool": 2, "int": 3, "float": 4, "complex": 5, "str": 6, "list": 8, "tuple": 9,
         "dict": 10, "meta": 11}


def raw(tensor: torch.Tensor) -> str:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes().hex() if flat.numel() else ""


def leaf(value: Any) -> dict[str, Any]:
    """The members of a save that say what is saved."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        made = {"value_type": VALUE["tensor"], "dtype": name, "shape": list(value.shape),
                "flags": REQUIRES_GRAD if value.requires_grad else 0}
        if value.device.type == "meta":
            return made | {"value_type": VALUE["meta"], "hex": ""}
        return made | {"hex": raw(value)}
    if value is None:
        return {"value_type": VALUE["none"]}
    if isinstance(value, torch.Size):
        return {"value_type": VALUE["str"], "type_name": "torch.Size", "hex": json.dumps(list(value)).encode().hex()}
    if isinstance(value, bool):
        return leaf(torch.tensor(value)) | {"value_type": VALUE["bool"]}
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return leaf(torch.tensor(value)) | {"value_type": VALUE["int"]}
        return {"value_type": VALUE["str"], "type_name": "int", "hex": str(value).encode().hex()}
    if isinstance(value, float):
        return leaf(torch.tensor(value, dtype=torch.float64)) | {"value_type": VALUE["float"]}
    if isinstance(value, str):
        return {"value_type": VALUE["str"], "hex": value.encode("utf-8", "surrogateescape").hex()}
    kind = "list" if isinstance(value, list) else "tuple" if isinstance(value, tuple) else "dict"
    assert not value
    return {"value_type": VALUE[kind]}


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
    """(structured path, leaf) in the order the recorder meets them."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size) and value:
        kind = "i" if isinstance(value, list) else "t"
        return [found for i, item in enumerate(value) for found in leaves(item, (*path, f"{kind}{i}"))]
    if isinstance(value, dict) and value:
        return [found for key, item in value.items() for found in leaves(item, (*path, f"k{key}"))]
    return [("\x1f".join(path), leaf(value))]


class Machine:
    """Collects lines; run() hands them to the program."""

    def __init__(self, layout: str, directory: str, **options: Any) -> None:
        self.lines: list[dict[str, Any]] = [{"op": "open", "layout": layout, "dir": directory, "keep": STATS | TENSOR,
                                             "pid": 42} | options]

    def save(self, name: str, value: Any, *, slots: bool = False, **more: Any) -> None:
        for path, members in leaves(value):
            self.lines.append({"op": "save", "name": name, "path": path} | members | more)
        for path, members in leaves(value) if slots else []:
            flags = SLOT if members.get("flags", 0) & REQUIRES_GRAD else SLOT | SLOT_GONE
            kept = members if members["value_type"] in (8, 9, 10) else {"value_type": VALUE["tensor"]}
            self.lines.append({"op": "save", "name": name, "path": path} | kept | more | {"kind": GRAD, "flags": flags})

    def grad(self, name: str, value: torch.Tensor, path: str = "", **more: Any) -> None:
        self.lines.append({"op": "save", "name": name, "path": path} | leaf(value) | {"kind": GRAD} | more)

    def op(self, op: str, **more: Any) -> None:
        self.lines.append({"op": op} | more)

    def run(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        done = subprocess.run([program("test_layout"), "drive"], input=text, capture_output=True, text=True, timeout=300,
                              check=False)
        assert done.returncode == 0, done.stderr


def read(directory: str) -> tuple[str, list[dict[str, Any]]]:
    """The layout that is recognised, and its records."""
    done = subprocess.run([program("test_layout"), "read", directory], capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    return first, [json.loads(line) for line in rest]
