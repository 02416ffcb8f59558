"""What can watch a running graph: a tap on a node's value, a check against eager, a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from .. import _core

Observer = Callable[[int, Any, Any, tuple[Any, ...]], None]


class CheckError(AssertionError):
    """A node of a compiled graph gave another value than torch does on the same inputs."""


def tapper(graph: str, names: list[str]) -> Observer:
    """Records the values of observed nodes as ``graph.node``."""

    def observe(node: int, _args: Any, _kwargs: Any, outputs: tuple[Any, ...]) -> None:
        _core.save(outputs[0] if len(outputs) == 1 else outputs, f"{graph}.{names[node]}")

    return observe


def checker(graph: str, nodes: list[tuple[str, Any, str | None]], is_native: Callable[[int], bool]) -> Observer:
    """Runs each node the engine ran also eagerly, on the engine's own inputs."""

    def observe(node: int, args: Any, kwargs: Any, outputs: tuple[Any, ...]) -> None:
        name, target, source = nodes[node]
        schema = getattr(target, "_schema", None)
        if not is_native(node) or (schema is not None and schema.is_mutable):
            return
        with torch.no_grad():
            result = target(*args, **(kwargs or {}))
        expected = result if isinstance(result, list | tuple) else (result,)
        for index, (ours, theirs) in enumerate(zip(outputs, expected)):
            if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
                _compare(ours, theirs, f"{graph}.{name}", str(target), source, index if len(outputs) > 1 else None)

    return observe


def _compare(
    ours: torch.Tensor, theirs: torch.Tensor, name: str, target: str, source: str | None, output: int | None
) -> None:
    where = f"node {name} ({target})" + (f", output {output}" if output is not None else "")
    where += f", from {source}" if source else ""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        raise CheckError(
            f"{where}: the engine gave {ours.dtype} {tuple(ours.shape)}, eager {theirs.dtype} {tuple(theirs.shape)}"
        )
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        return
    except AssertionError:
        pass
    wide = torch.complex128 if ours.is_complex() else torch.float64
    difference = (ours.to(wide) - theirs.to(wide)).abs()
    difference = torch.where(ours.isnan() != theirs.isnan(), torch.inf, difference.nan_to_num(0.0))
    at = int(difference.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), ours.shape)) if ours.ndim else ()
    raise CheckError(
        f"{where}: differs from eager, max error {float(difference.flatten()[at]):.6g} at index {index}: "
        f"engine {ours[index].item()!r}, eager {theirs[index].item()!r}"
    )


class Profile:
    """Time and bytes per node of the graphs compiled with ``options={"profile": True}``."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __str__(self) -> str:
        total = sum(row["nanoseconds"] for row in self.rows) or 1
        lines = [f"{'graph':20} {'node':24} {'operator':36} {'runs':>6} {'ms':>10} {'share':>6} {'GB/s':>7}"]
        for row in sorted(self.rows, key=lambda row: -row["nanoseconds"]):
            if row["runs"]:
                speed = row["bytes"] / row["nanoseconds"] if row["nanoseconds"] else 0.0
                lines.append(
                    f"{row['graph']:20} {row['node']:24} {row['target']:36} {row['runs']:6} "
                    f"{row['nanoseconds'] / 1e6:10.3f} {row['nanoseconds'] / total:6.1%} {speed:7.2f}"
                )
        return "\n".join(lines)

    def chrome_trace(self, path: str) -> None:
        """Write the newest run of each graph for chrome://tracing or Perfetto."""
        graphs = {name: number for number, name in enumerate(dict.fromkeys(row["graph"] for row in self.rows))}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": name}}
            for name, tid in graphs.items()
        ]
        for row in self.rows:
            if row["runs"]:
                events.append(
                    {
                        "name": row["node"],
                        "cat": row["target"],
                        "ph": "X",
                        "pid": 0,
                        "tid": graphs[row["graph"]],
                        "ts": row["last_start"] / 1e3,
                        "dur": row["last_nanoseconds"] / 1e3,
                        "args": {"source": row["source"], "operator": row["operator"], "host": row["host"]},
                    }
                )
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)
