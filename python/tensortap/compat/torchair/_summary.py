"""debug.fx_summary: a table of the operators of a graph, with how many calls, which arguments, and what runs them."""

from __future__ import annotations

import csv
import os
import tempfile
import types
from collections import Counter
from datetime import datetime, timezone
from typing import Any

import torch

from . import _engine
from ._converter import find

HEADER = ("目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计")
# what an operator's state is called; English is in src/cli/cmd_summary.c
SUPPORTED, PARTLY, NOT_SUPPORTED, NOT_REGISTERED = "已支持", "部分支持", "未支持", "未注册"


class _Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _show(value: Any) -> Any:
    """Tensors as float16(1, s0, 4096), inside whatever they are in."""
    if isinstance(value, torch.fx.Node):
        return _show(value.meta.get("val", _Shown(value.name)))
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return _Shown(f"{name}({', '.join(str(each) for each in value.shape)})")
    if isinstance(value, (list, tuple)):
        return type(value)(_show(each) for each in value) if type(value) in (list, tuple) else [_show(x) for x in value]
    if isinstance(value, dict):
        return {key: _show(each) for key, each in value.items()}
    return value


def _kind(target: Any) -> str:
    if isinstance(target, (types.BuiltinFunctionType, types.FunctionType)):
        return "builtin"
    return "prims" if "prim" in str(target) else "aten"


def state(target: Any, native: dict[str, str]) -> str:
    """What the tables say: a converter of the user's, the engine's own, or none."""
    if _kind(target) == "builtin" or find(target) is not None:
        return SUPPORTED
    if str(target) in native:
        return SUPPORTED if native[str(target)] == "whole" else PARTLY
    return NOT_SUPPORTED if str(target).startswith(("aten.", "prims.")) else NOT_REGISTERED


def _counted(texts: Counter[str]) -> str:
    return "\n".join(f"{count}次：{text}" for text, count in texts.most_common())


def rows(module: torch.fx.GraphModule) -> list[list[str]]:
    """One row for each operator, in order of first use."""
    native = _engine.native_targets(module)
    inputs: dict[Any, Counter[str]] = {}
    outputs: dict[Any, Counter[str]] = {}
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        args, kwargs = _show(tuple(node.args)), _show(dict(node.kwargs))
        inputs.setdefault(node.target, Counter())[f"{args}, {kwargs}" if kwargs else str(args)] += 1
        outputs.setdefault(node.target, Counter())[str(_show(node.meta.get("val")))] += 1
    found = []
    for target, counts in inputs.items():
        calls = str(sum(counts.values()))
        found.append(
            [str(target), _kind(target), state(target, native), calls, _counted(counts), _counted(outputs[target])]
        )
    return found


def stamp() -> str:
    """UTC, 20 digits."""
    return datetime.now(tz=timezone.utc).strftime("%Y%m%d%H%M%S%f")


def write(module: torch.fx.GraphModule, directory: str = ".") -> str:
    """Write ``summary_<stamp>.csv``; returns its path. It appears when it is complete."""
    path = os.path.join(directory, f"summary_{stamp()}.csv")
    handle, temporary = tempfile.mkstemp(prefix=".summary_", dir=directory)
    with open(handle, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows(module))
    os.chmod(temporary, 0o640)
    os.rename(temporary, path)
    return path
