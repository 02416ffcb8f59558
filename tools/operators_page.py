"""Writes docs/operators.md from the tables: python tools/operators_page.py [--check]

The operators are asked of the built library, so they are those of src/graph/ops.def; which ATen overload means which is
read from src/frontend/aten.def.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tensortap import _core

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operators.md"
KINDS = {
    "view": ("Views", "Another shape of the same memory; nothing is computed."),
    "pointwise": ("Pointwise", "One element at a time. Sizes broadcast; chains of them are one pass over memory."),
    "kernel": ("Kernels", "Everything that needs a loop of its own."),
}
HEAD = """# Operators of the engine

This page is written by `tools/operators_page.py` from the table of operators (`src/graph/ops.def`) and the table of
ATen overloads (`src/frontend/aten.def`). Meaning is ATen's. `x?` may be left out, `xs*` is a list, `n:int=1` is an
attribute with its default. An overload that is not here runs in torch, or as the operators it is taken apart into.
"""
GE = """## GE

What converters written for torchair build with `torchair.ge`, under GE's names; each is taken apart into operators of
ATen. `ge.custom_op` takes any of them by position.

| operator | takes | gives | is |
|---|---|---|---|"""


def overloads() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    table = (ROOT / "src/frontend/aten.def").read_text()
    for overload, operator in re.findall(r'^ATEN\("aten\.([^"]+)", (\w+)', table, re.MULTILINE):
        found.setdefault(operator, []).append(overload.removesuffix(".default"))
    return found


def code(texts: list[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def page() -> str:
    means, text = overloads(), [HEAD]
    rows = _core.operators()
    for kind in dict.fromkeys(row[2] for row in rows):
        if kind not in KINDS:
            continue
        title, what = KINDS[kind]
        text.append(f"## {title}\n\n{what}\n\n| operator | takes | is | ATen | GE |\n|---|---|---|---|---|")
        for name, ge, _kind, parameters, _inputs, _outputs, doc in (row for row in rows if row[2] == kind):
            aten = code(sorted(means.get(name, [])))
            text.append(f"| {name} | {code(parameters)} | {doc.replace('|', chr(92) + '|')} | {aten} | {ge or ''} |")
        text.append("")
    text.append(GE)
    for _name, ge, _kind, parameters, _inputs, outputs, doc in (row for row in rows if row[2] == "ge"):
        text.append(f"| {ge} | {code(parameters)} | {code(outputs)} | {doc} |")
    return "\n".join([*text, ""])


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.exit("docs/operators.md is not what the tables say; run: python tools/operators_page.py")
